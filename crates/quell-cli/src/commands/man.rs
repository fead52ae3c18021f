//! `quell man [DIR]`: the manual, one page for each command, made of the same texts as `--help` and the reference.
//!
//! `clap_mangen` writes what the command line knows (usage, options, subcommands); the notes of `help.rs` follow, with their
//! blocks line by line as they stand.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

use crate::args::EXIT_CODES;
use crate::failure::{self, Failure};
use crate::help::{self, Piece};
use crate::output;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell man | man -l -                         read the page of quell itself
  quell man /usr/local/share/man/man1          for `man quell`, `man quell-send` and all the others")]
pub(crate) struct ManArgs {
    /// The folder for the pages of all commands; without it, the page of quell itself goes to stdout
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(crate) fn run(args: &ManArgs) -> Result<u8, Failure> {
    let mut root = help::command().disable_help_subcommand(true);
    root.build();
    let Some(folder) = &args.folder else {
        std::io::stdout().lock().write_all(&page(&root, &root)?)?;
        return Ok(0);
    };
    let written = write(&root, &root, folder).map_err(|error| {
        Failure::new(failure::FAILED, format!("cannot write pages into {}: {error}", folder.display()))
    })?;
    output::line(format!("wrote {written} pages into {}", folder.display()))?;
    Ok(0)
}

/// The pages of a command and of those below it; how many there were.
fn write(command: &Command, root: &Command, folder: &Path) -> std::io::Result<usize> {
    std::fs::create_dir_all(folder)?;
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    std::fs::write(folder.join(format!("{name}.1")), page(command, root)?)?;
    let mut written = 1;
    for below in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        written += write(below, root, folder)?;
    }
    Ok(written)
}

fn page(command: &Command, root: &Command) -> std::io::Result<Vec<u8>> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let is_root = name == root.get_name();
    let man = Man::new(command.clone()).title(name).source(format!("quell {}", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|command| !command.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    let notes = if is_root { help::program_notes() } else { help::notes(command) };
    let mut rest = Roff::new();
    if !notes.is_empty() {
        rest.control("SH", ["NOTES"]);
        notes.iter().for_each(|piece| add(&mut rest, piece));
    }
    if is_root {
        rest.control("SH", ["EXIT STATUS"]);
        for (code, meaning) in EXIT_CODES {
            rest.control("TP", []).text([bold(code)]).text([roman(meaning)]);
        }
    } else {
        rest.control("SH", ["SEE ALSO"]).text([bold("quell"), roman("(1)")]);
    }
    rest.to_writer(&mut page)?;
    Ok(page)
}

fn add(roff: &mut Roff, piece: &Piece) {
    match piece {
        Piece::Heading(text) => {
            roff.control("SS", [text.as_str()]);
        }
        Piece::Paragraph(text) => {
            roff.control("PP", []).text(inline(text));
        }
        Piece::Block(_, lines) => {
            roff.control("PP", []).control("RS", ["4"]).control("nf", []);
            for line in lines {
                roff.text([roman(line)]);
            }
            roff.control("fi", []).control("RE", []);
        }
    }
}

/// What is typed is bold.
fn inline(text: &str) -> Vec<Inline> {
    let parts = text.split('`').enumerate();
    parts.map(|(n, part)| if n % 2 == 1 { bold(part) } else { roman(part) }).collect()
}
