//! `quell completions SHELL`: a script to be sourced by the shell.

use std::io::Write;

use clap::Args;
use clap_complete::Shell;

use crate::failure::Failure;
use crate::help;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell completions bash > /etc/bash_completion.d/quell
  quell completions zsh > \"${fpath[1]}/_quell\"
  quell completions fish > ~/.config/fish/completions/quell.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell that is to read it
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> Result<u8, Failure> {
    // Made in memory first, because the generator panics when its reader goes away.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut help::command(), "quell", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(0)
}
