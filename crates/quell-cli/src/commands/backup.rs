//! `quell backup` and `quell restore`: a copy of a store in one file, and a store from it.
//!
//! Both are for SQLite; other databases have tools of their own. A backup is made while others use the store, and is
//! stamped: whoever opens it as a store goes on with numbers far ahead, so no token and no sequence number repeats.

use std::path::{Path, PathBuf};

use clap::Args;
use quell::OpenError;
use quell::config::{Flags, StoreKind};
use quell::quell_core::error::ErrorKind;

use crate::args::{Form, Global};
use crate::context;
use crate::failure::{self, Failure};
use crate::output;
use crate::progress;
use crate::times;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell backup /backups/monday.db
  quell backup copy.db --store sqlite:/var/lib/quell/quell.db

Everything that was acknowledged before the command started is in it. Workers and senders go on
meanwhile.")]
pub(crate) struct BackupArgs {
    /// The file to write; it must not exist
    file: PathBuf,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell restore /backups/monday.db                          as ./quell.db, or as the settings say
  quell restore /backups/monday.db --store sqlite:test.db   somewhere else, to look at it
  quell restore /backups/monday.db --force                  in place of the store that is there

Events that were accepted after the backup are not in it. What ran at the time of the backup is
handed over again.")]
pub(crate) struct RestoreArgs {
    /// A file that `quell backup` has made
    file: PathBuf,
    /// Replace a store that is there and not in use; it is kept under another name
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    form: Form,
}

pub(crate) async fn run(args: &BackupArgs, global: &Global) -> Result<u8, Failure> {
    let loaded = context::load(global, Flags::default())?;
    context::must_exist(&loaded.settings)?;
    if args.file.exists() {
        return Err(Failure::new(failure::REFUSED, format!("{} already exists", args.file.display()))
            .help("a backup never replaces a file; choose another name"));
    }
    let store = &loaded.settings.store;
    let bar = progress::bytes(Some(0));
    let shown = bar.clone();
    let made = quell::open::backup(store, &args.file, move |done, all| {
        shown.set_length(all);
        shown.set_position(done);
    })
    .await;
    bar.finish_and_clear();
    let made = made.map_err(refused)?;
    if args.form.json {
        output::json(&serde_json::json!({
            "action": "backup",
            "store": store.url.to_string(),
            "file": args.file,
            "bytes": made.bytes,
            "last_number": made.last_number,
        }))?;
        return Ok(0);
    }
    let (file, size) = (args.file.display(), times::bytes(made.bytes));
    output::line(format!("backed up {} to {file}: {size}", store.url))?;
    output::say(format!("`quell restore {}` makes a store from it", quoted(&args.file)));
    Ok(0)
}

pub(crate) async fn restore(args: &RestoreArgs, global: &Global) -> Result<u8, Failure> {
    let loaded = context::load(global, Flags::default())?;
    let store = &loaded.settings.store;
    if !args.file.is_file() {
        return Err(Failure::new(failure::NOT_FOUND, format!("there is no file {}", args.file.display())));
    }
    if let StoreKind::Sqlite(path) = store.url.kind()
        && path.exists()
        && !args.force
    {
        let text = format!("there is a store at {} (from {})", store.url, loaded.told(&store.origin));
        return Err(Failure::new(failure::REFUSED, text)
            .help("--force replaces it and keeps it under another name; --store names another place"));
    }
    let bar = progress::wheel("restoring");
    let restored = quell::open::restore(&args.file, store, args.force).await;
    bar.finish_and_clear();
    let restored = restored.map_err(refused)?;
    if args.form.json {
        output::json(&serde_json::json!({
            "action": "restore",
            "store": store.url.to_string(),
            "file": args.file,
            "bytes": restored.bytes,
            "kept": restored.kept,
        }))?;
        return Ok(0);
    }
    let (file, size) = (args.file.display(), times::bytes(restored.bytes));
    output::line(format!("restored {} from {file}: {size}", store.url))?;
    if let Some(kept) = &restored.kept {
        output::line(format!("the store that was there is kept as {}", kept.display()))?;
    }
    output::say("events that were accepted after the backup are not in it; `quell doctor` examines it");
    Ok(0)
}

/// What a store calls invalid here is no slip of the keyboard: a file of another kind, a store in use.
fn refused(error: OpenError) -> Failure {
    match &error {
        OpenError::Failed { problem, .. } if problem.kind == ErrorKind::Invalid => {
            Failure::new(failure::REFUSED, problem.detail.clone())
        }
        _ => error.into(),
    }
}

fn quoted(path: &Path) -> String {
    output::quoted(&path.display().to_string())
}
