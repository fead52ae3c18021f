//! `docs/reference/cli.md`, made of the command line itself: every visible command with its arguments, their defaults and what
//! `help.rs` has to say.
//!
//! To write the page anew: `QUELL_WRITE_REFERENCE=1 cargo test -p quell-cli --bin quell reference_page`.

use std::path::Path;

use clap::{Arg, Command};

use crate::args::EXIT_CODES;
use crate::help::{self, Piece};

const HEAD: &str = "\
<!-- Made of the command line itself (crates/quell-cli: args.rs, commands/, help/). To change a text, change it there, and write the page
     anew: QUELL_WRITE_REFERENCE=1 cargo test -p quell-cli --bin quell reference_page -->

# Commands

`quell` without arguments says what it is and what to try; `quell help` lists the commands and `quell help COMMAND` says what this page
says, as do the manual pages (`quell man`). All output comes from real runs.

## Common to all commands

";

fn page() -> String {
    let mut root = help::command();
    root.build();
    let mut page = HEAD.to_owned();
    page.push_str(&pieces(&help::program_notes()));
    page.push_str("### Common options\n\n");
    page.push_str(&arguments(&root, None));
    page.push_str("### Exit codes\n\n| code | meaning |\n| --- | --- |\n");
    for (code, meaning) in EXIT_CODES {
        page.push_str(&format!("| {code} | {} |\n", cell(meaning)));
    }
    page.push('\n');
    for command in visible(&root) {
        write(&mut page, command, &root, "##");
    }
    format!("{}\n", page.trim_end())
}

/// A command, and below it those that it has.
fn write(page: &mut String, command: &Command, parent: &Command, depth: &str) {
    let name = command.get_bin_name().unwrap_or_default();
    page.push_str(&format!("{depth} `{name}`\n\n"));
    if let Some(about) = command.get_about() {
        page.push_str(&format!("{about}.\n\n"));
    }
    let usage = command.clone().render_usage().to_string();
    page.push_str(&format!("```text\n{}\n```\n\n", usage.trim_start_matches("Usage: ").trim()));
    page.push_str(&arguments(command, Some(parent)));
    page.push_str(&pieces(&match depth {
        "##" => help::notes(command),
        _ => help::pieces(&command.get_after_help().map(ToString::to_string).unwrap_or_default()),
    }));
    for below in visible(command) {
        write(page, below, command, "###");
    }
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
}

/// The arguments of a command as a table, without those that its parent has for all of its commands.
fn arguments(command: &Command, parent: Option<&Command>) -> String {
    let inherited = |arg: &Arg| {
        parent.is_some_and(|parent| parent.get_arguments().any(|other| other.get_id() == arg.get_id()))
    };
    let left_out = |arg: &Arg| {
        arg.is_hide_set()
            || ["help", "version"].contains(&arg.get_id().as_str())
            || (arg.is_global_set() && inherited(arg))
    };
    let rows: String = command.get_arguments().filter(|arg| !left_out(arg)).map(row).collect();
    if rows.is_empty() {
        return rows;
    }
    format!("| argument | meaning |\n| --- | --- |\n{rows}\n")
}

fn row(arg: &Arg) -> String {
    let mut meaning = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let values = arg.get_possible_values();
    if arg.get_action().takes_values() && values.iter().any(|value| !value.is_hide_set()) {
        let texts: Vec<String> = values
            .iter()
            .map(|value| match value.get_help() {
                Some(help) => format!("`{}` ({help})", value.get_name()),
                None => format!("`{}`", value.get_name()),
            })
            .collect();
        meaning.push_str(&format!(". One of {}", texts.join(", ")));
    }
    if arg.get_action().takes_values() && !arg.get_default_values().is_empty() {
        let values: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        meaning.push_str(&format!(". Default `{}`", values.join(" ")));
    }
    format!("| `{}` | {} |\n", cell(&spelled(arg)), cell(&meaning))
}

/// As it is typed: `QUEUE`, `--limit N`, `-n, --count N`.
fn spelled(arg: &Arg) -> String {
    let values: Vec<&str> =
        arg.get_value_names().unwrap_or_default().iter().map(clap::builder::Str::as_str).collect();
    let value = match (arg.get_action().takes_values(), values.is_empty()) {
        (false, _) => String::new(),
        (true, true) => arg.get_id().as_str().to_uppercase(),
        (true, false) => values.join(" "),
    };
    let flags = [arg.get_short().map(|c| format!("-{c}")), arg.get_long().map(|long| format!("--{long}"))];
    let flags: Vec<String> = flags.into_iter().flatten().collect();
    format!("{} {value}", flags.join(", ")).trim().to_owned()
}

fn pieces(pieces: &[Piece]) -> String {
    let written = pieces.iter().map(|piece| match piece {
        Piece::Heading(text) => format!("#### {text}\n\n"),
        Piece::Paragraph(text) => format!("{}\n\n", linked(text)),
        Piece::Block(kind, lines) => format!("```{kind}\n{}\n```\n\n", lines.join("\n")),
    });
    written.collect()
}

/// In a text a page is named by its path from the root; here it is a link.
fn linked(text: &str) -> String {
    let mut words = Vec::new();
    for word in text.split(' ') {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        let link = match bare.strip_prefix("docs/") {
            Some("reference/cli.md") | None => None,
            Some(path) => Some(format!("[{bare}](../{path})")),
        };
        words.push(link.map_or_else(|| word.to_owned(), |link| word.replace(bare, &link)));
    }
    words.join(" ")
}

fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

#[test]
fn the_reference_page_is_the_command_line_itself() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
    if std::env::var_os("QUELL_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let help = "run QUELL_WRITE_REFERENCE=1 cargo test -p quell-cli --bin quell reference_page";
    assert!(committed == page(), "docs/reference/cli.md is not what the command line says: {help}");
}

#[test]
fn every_argument_has_a_text() {
    fn check(command: &Command) {
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            let name = command.get_name();
            assert!(arg.get_help().is_some(), "`{}` of {name} says nothing about itself", arg.get_id());
        }
        visible(command).for_each(check);
    }
    let mut root = help::command();
    root.build();
    check(&root);
}
