//! `quell init`: a commented quell.toml whose values are the defaults.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use crate::args::Global;
use crate::context::CONFIG_NAME;
use crate::failure::{self, Failure};
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Replace a file that is already there
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &InitArgs, global: &Global) -> Result<u8, Failure> {
    let path = global.config.clone().unwrap_or_else(|| PathBuf::from(CONFIG_NAME));
    let shown = path.display();
    let mut options = std::fs::OpenOptions::new();
    options.write(true).truncate(true);
    // Without --force the file is made by this call or not at all, so nobody's file is lost to a race.
    if args.force {
        options.create(true)
    } else {
        options.create_new(true)
    };
    let mut file = options.open(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::new(failure::REFUSED, format!("{shown} already exists")).help("--force replaces it")
        }
        _ => Failure::new(failure::FAILED, format!("cannot write {shown}: {error}")),
    })?;
    file.write_all(quell::config::template().as_bytes())?;
    file.sync_all()?;
    output::line(format!("wrote {shown}"))?;
    output::say("next: name your queues in it, `quell check` to see what is in force, then `quell serve`");
    Ok(0)
}
