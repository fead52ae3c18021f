//! The command line with its long texts, which are written once for `--help`, the manual pages and `docs/reference/cli.md`.
//!
//! A text is `help/COMMAND.md`: what there is to say about a command beyond its arguments, with the output of real runs. It is
//! Markdown of the plainest kind (paragraphs, headings, fenced blocks), because each reader shows it in his own way: the terminal
//! here, the manual in `commands/man.rs`, the page in `reference.rs`. A command without a text has its arguments only.

use clap::{Command, CommandFactory};

use crate::args::{Cli, exit_codes};

/// For the program itself.
const QUELL: &str = include_str!("../help/quell.md");

/// By command; those of subcommands stand in the text of their command.
const TEXTS: &[(&str, &str)] = &[
    ("init", include_str!("../help/init.md")),
    ("serve", include_str!("../help/serve.md")),
    ("work", include_str!("../help/work.md")),
    ("listen", include_str!("../help/listen.md")),
    ("send", include_str!("../help/send.md")),
    ("lanes", include_str!("../help/lanes.md")),
    ("lane", include_str!("../help/lane.md")),
    ("runs", include_str!("../help/runs.md")),
    ("run", include_str!("../help/run.md")),
    ("dead", include_str!("../help/dead.md")),
    ("audit", include_str!("../help/audit.md")),
    ("top", include_str!("../help/top.md")),
    ("tail", include_str!("../help/tail.md")),
    ("deliveries", include_str!("../help/deliveries.md")),
    ("trigger", include_str!("../help/trigger.md")),
    ("hook", include_str!("../help/hook.md")),
    ("chat", include_str!("../help/chat.md")),
    ("prices", include_str!("../help/prices.md")),
    ("sessions", include_str!("../help/sessions.md")),
    ("session", include_str!("../help/session.md")),
    ("search", include_str!("../help/search.md")),
    ("schedules", include_str!("../help/schedules.md")),
    ("sources", include_str!("../help/sources.md")),
    ("token", include_str!("../help/token.md")),
    ("flush", include_str!("../help/flush.md")),
    ("pause", include_str!("../help/pause.md")),
    ("resume", include_str!("../help/resume.md")),
    ("cancel", include_str!("../help/cancel.md")),
    ("redrive", include_str!("../help/redrive.md")),
    ("purge", include_str!("../help/purge.md")),
    ("check", include_str!("../help/check.md")),
    ("doctor", include_str!("../help/doctor.md")),
    ("backup", include_str!("../help/backup.md")),
    ("restore", include_str!("../help/restore.md")),
    ("store", include_str!("../help/store.md")),
    ("simulate", include_str!("../help/simulate.md")),
    ("demo", include_str!("../help/demo.md")),
    ("bench", include_str!("../help/bench.md")),
    ("torture", include_str!("../help/torture.md")),
    ("completions", include_str!("../help/completions.md")),
    ("man", include_str!("../help/man.md")),
];

/// The command line as it is parsed and explained.
pub(crate) fn command() -> Command {
    let root = Cli::command().after_long_help(format!("{}\n{}", on_terminal(QUELL), exit_codes()));
    TEXTS.iter().fold(root, |root, (name, text)| {
        root.mut_subcommand(name, |command| {
            let long = format!("{}\n{}", examples(&command), on_terminal(text));
            command.after_long_help(long.trim().to_owned())
        })
    })
}

/// What is said of a command beyond its arguments: the examples that also the short help has, and its text.
pub(crate) fn notes(command: &Command) -> Vec<Piece> {
    let text = TEXTS.iter().find(|(name, _)| *name == command.get_name());
    let mut pieces = pieces(&examples(command));
    pieces.extend(text.into_iter().flat_map(|(_, text)| self::pieces(text)));
    pieces
}

/// What is said of the program itself.
pub(crate) fn program_notes() -> Vec<Piece> {
    pieces(QUELL)
}

fn examples(command: &Command) -> String {
    command.get_after_help().map(|text| format!("{text}\n")).unwrap_or_default()
}

/// A part of a text, as each reader needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Heading(String),
    /// Its lines joined: whoever shows it breaks them anew.
    Paragraph(String),
    /// Shown line by line, in a fixed width; with what its fence says it is.
    Block(&'static str, Vec<String>),
}

/// Takes a text apart. Blocks are fenced, or indented as the examples of a command are.
pub(crate) fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut fenced = false;
    let mut apart = true;
    for line in text.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
            apart = !fenced;
            if fenced {
                pieces.push(Piece::Block("console", Vec::new()));
            }
            continue;
        }
        match (pieces.last_mut(), line) {
            (Some(Piece::Block(_, lines)), _) if fenced => lines.push(line.to_owned()),
            (_, "") => apart = true,
            (_, line) if line.starts_with("#### ") => {
                pieces.push(Piece::Heading(line.trim_start_matches("#### ").to_owned()));
                apart = true;
            }
            (Some(Piece::Block("text", lines)), line) if line.starts_with("  ") && !apart => {
                lines.push(line[2..].to_owned());
            }
            (_, line) if line.starts_with("  ") => {
                pieces.push(Piece::Block("text", vec![line[2..].to_owned()]));
                apart = false;
            }
            (Some(Piece::Paragraph(all)), line) if !apart => {
                all.push(' ');
                all.push_str(line);
            }
            (_, line) => {
                pieces.push(Piece::Paragraph(line.to_owned()));
                apart = false;
            }
        }
    }
    pieces
}

/// For a terminal, which breaks the lines of paragraphs by its own width.
fn on_terminal(text: &str) -> String {
    let shown = pieces(text).into_iter().map(|piece| match piece {
        Piece::Heading(text) => format!("{text}\n\n"),
        Piece::Paragraph(text) => format!("{text}\n\n"),
        Piece::Block(_, lines) => {
            lines.iter().map(|line| format!("  {line}\n")).chain(["\n".to_owned()]).collect()
        }
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_paragraphs_headings_and_blocks() {
        let text = "One\nline.\n\n#### Then\n```console\n$ quell\n\nsaid\n```\nExamples:\n  quell a\n  quell b\n\nEnd.\n";
        let wanted = [
            Piece::Paragraph("One line.".to_owned()),
            Piece::Heading("Then".to_owned()),
            Piece::Block("console", vec!["$ quell".to_owned(), String::new(), "said".to_owned()]),
            Piece::Paragraph("Examples:".to_owned()),
            Piece::Block("text", vec!["quell a".to_owned(), "quell b".to_owned()]),
            Piece::Paragraph("End.".to_owned()),
        ];
        assert_eq!(pieces(text), wanted);
    }

    #[test]
    fn every_text_belongs_to_a_command_and_every_file_is_one() {
        let root = Cli::command();
        for (name, _) in TEXTS {
            assert!(root.find_subcommand(name).is_some(), "there is no command {name}");
        }
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("help");
        for file in std::fs::read_dir(folder).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            let name = name.trim_end_matches(".md");
            let known = name == "quell" || TEXTS.iter().any(|(known, _)| *known == name);
            assert!(known, "help/{name}.md is shown by nobody");
        }
    }
}
