//! `quell store`: everything of one store into another, and the seal that keeps a store as it is.
//!
//! A copy can be cut short at any point and is continued by the same command. When it is done, the source stays sealed:
//! whoever still writes to it is refused and told why.

use std::sync::Arc;

use clap::{Args, Subcommand};
use quell::config::{Origin, StoreChoice, StoreKind, StoreUrl};
use quell::copy::{Application, Belongings, CopyError, Names, Phase};
use quell::open::{Spread, new_word, open_members, open_portable};
use quell::quell_core::copy::Portable;

use crate::args::{ByHand, Form};
use crate::context;
use crate::failure::{self, Failure};
use crate::output::{self, Columns, cell};
use crate::progress;
use crate::times;

/// Of a digest, what people compare.
const DIGEST_CHARS: usize = 16;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell store copy sqlite:quell.db sqlite:/srv/quell/quell.db
  quell store copy sqlite:quell.db postgres://quell@db/quell
  quell store move postgres://quell@a/quell postgres://quell@b/quell,postgres://quell@c/quell
  quell store seal sqlite:quell.db               nothing is accepted or handed over any more
  quell store unseal sqlite:quell.db --force     it can be used again

A copy begins while the store is in use and seals it for the last part. It can be cut short and
is continued by the same command. When it is done, the source stays sealed: start workers and
senders with the new store.")]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Copy everything into an empty store, verify it, and leave the source sealed
    Copy(CopyArgs),
    /// Spread everything over other databases, verify it, and leave the old ones sealed
    Move(MoveArgs),
    /// Refuse every change from now on; reads go on
    Seal(SealArgs),
    /// Lift a seal
    Unseal(UnsealArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell store copy sqlite:quell.db sqlite:/srv/quell/quell.db
  quell store copy sqlite:quell.db postgres://quell@db/quell --json

Keys, events, ids, what is delayed, dead letters, steps, schedules, pauses, counters, leases and
the audit are the same afterwards, and so are conversations, prices and transcripts: a handler
that was started with the old store may end its run in the new one. Prices and transcripts need
tables, so a store that has any is not copied into Redis. Both sides are compared by counts and by SHA-256 before the copy is open for use.")]
struct CopyArgs {
    /// The store to copy, as for --store
    from: String,
    /// An empty store, or one into which this copy was begun
    to: String,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell store move postgres://quell@a/quell postgres://quell@b/quell,postgres://quell@c/quell
  quell store move sqlite:quell.db 'postgres://quell@a/one,postgres://quell@a/two' --json

Databases of one store stand with commas between them. The new ones must be empty; each gets the
keys of its partitions, and a map that says which databases belong together. Like a copy, a move
begins while the store is in use, seals it for the last part, can be cut short and is continued
by the same command. Both sides are compared by counts and by SHA-256 before the new databases
are open for use.")]
struct MoveArgs {
    /// All databases of the store, as for --store
    from: String,
    /// Empty databases, or those to which this move was begun
    to: String,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
struct SealArgs {
    /// The store, as for --store
    url: String,
    #[command(flatten)]
    by: ByHand,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
struct UnsealArgs {
    /// The store, as for --store
    url: String,
    /// The store may have been moved: whatever is accepted here is not in its copy
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    form: Form,
}

pub(crate) async fn run(args: StoreArgs) -> Result<u8, Failure> {
    match args.action {
        Action::Copy(args) => Box::pin(copy(args)).await,
        Action::Move(args) => Box::pin(spread(args)).await,
        Action::Seal(args) => seal(args).await,
        Action::Unseal(args) => unseal(args).await,
    }
}

fn choice(text: &str) -> Result<StoreChoice, Failure> {
    let url = StoreUrl::parse(text).map_err(|problem| Failure::new(failure::USAGE, problem))?;
    Ok(StoreChoice { url, origin: Origin::Flag("the command line") })
}

/// A store that must be there.
fn existing(text: &str) -> Result<StoreChoice, Failure> {
    let choice = choice(text)?;
    match choice.url.kind() {
        StoreKind::Sqlite(path) if !path.exists() => {
            Err(Failure::new(failure::STORE, format!("there is no store at {}", choice.url)))
        }
        _ => Ok(choice),
    }
}

/// What a store is called by every process on every day: a file by its whole path. Without a password.
fn name(choice: &StoreChoice) -> String {
    match choice.url.kind() {
        StoreKind::Several(urls) => {
            let one = |url: &StoreUrl| name(&StoreChoice { url: url.clone(), origin: choice.origin.clone() });
            urls.iter().map(one).collect::<Vec<_>>().join(",")
        }
        StoreKind::Sqlite(path) => {
            format!("sqlite:{}", path.canonicalize().unwrap_or_else(|_| path.clone()).display())
        }
        _ => choice.url.to_string(),
    }
}

async fn copy(args: CopyArgs) -> Result<u8, Failure> {
    let (from, to) = (existing(&args.from)?, choice(&args.to)?);
    let same = || Failure::new(failure::REFUSED, format!("{} is both the source and the target", from.url));
    if name(&from) == name(&to) {
        return Err(same());
    }
    let (source, target) = (open_portable(&from).await?, open_portable(&to).await?);
    if name(&from) == name(&to) {
        return Err(same());
    }
    copy_all(&source, &target, (&from, &to), "copy", args.form).await
}

/// A store over other databases: the copy that every store has, with several databases on one side or both.
async fn spread(args: MoveArgs) -> Result<u8, Failure> {
    let (from, to) = (existing(&args.from)?, choice(&args.to)?);
    let databases = |choice: &StoreChoice| name(choice).split(',').map(str::to_owned).collect::<Vec<_>>();
    if let Some(both) = databases(&to).iter().find(|one| databases(&from).contains(one)) {
        let text = format!("{both} is on both sides: a store is moved to databases that are empty");
        return Err(Failure::new(failure::REFUSED, text));
    }
    let (old, new) = (open_members(&from).await?, open_members(&to).await?);
    let source = Spread::source(old, new.len()).await?;
    let target: Arc<dyn Portable> = Arc::new(Spread::target(new, &source, &new_word())?);
    let source: Arc<dyn Portable> = Arc::new(source);
    copy_all(&source, &target, (&from, &to), "move", args.form).await
}

async fn copy_all(
    source: &Arc<dyn Portable>,
    target: &Arc<dyn Portable>,
    (from, to): (&StoreChoice, &StoreChoice),
    action: &str,
    form: Form,
) -> Result<u8, Failure> {
    let names = Names { from: name(from), to: name(to) };
    let applications: [&dyn Application; 3] =
        [&quell_chat::book::Belongs, &quell_collectors::book::Belongs, &quell_transcripts::copy::Belongs];
    let belongings = Belongings::find(&applications, source, target).await.map_err(|problem| {
        failed(CopyError::Store { which: format!("{} or {}", names.from, names.to), problem })
    })?;
    let bar = progress::phases();
    let (shown, mut phase) = (bar.clone(), None);
    let mut tell = move |progress: quell::copy::Progress| {
        if phase.replace(progress.phase) != Some(progress.phase) {
            shown.reset_eta();
            shown.set_message(progress.phase.as_str());
            if progress.phase == Phase::Trail {
                shown.println("the source is sealed: it refuses every change from now on");
            }
        }
        shown.set_length(progress.of);
        shown.set_position(progress.done);
    };
    let copied = quell::copy::copy(&**source, &**target, &names, &belongings, &mut tell).await;
    bar.finish_and_clear();
    let copied = copied.map_err(failed)?;
    if form.json {
        output::json(&serde_json::json!({
            "action": action,
            "from": from.url.to_string(),
            "to": to.url.to_string(),
            "counts": copied.counts,
            "sha256": copied.digests,
            "tables": copied.tables,
            "resumed": copied.resumed,
            "copied_again": copied.again,
        }))?;
        return Ok(0);
    }
    output::line(format!(
        "{} {} to {}",
        if action == "move" { "moved" } else { "copied" },
        from.url,
        to.url
    ))?;
    let (counts, digests) = (&copied.counts, &copied.digests);
    let mut table = Columns::new(&["KIND", "ROWS", "SHA-256"]).right(1);
    for (kind, count, digest) in [
        ("lanes", counts.lanes, &digests.lanes),
        ("events", counts.events, &digests.events),
        ("runs", counts.runs, &digests.runs),
        ("steps", counts.steps, &digests.steps),
        ("delayed", counts.aside, &digests.aside),
        ("audit", counts.audit, &digests.audit),
    ] {
        table.row([cell(kind), cell(count), cell(&digest[..DIGEST_CHARS])]);
    }
    for kept in copied.tables.iter().filter(|kept| kept.rows > 0) {
        table.row([cell(kept.table), cell(kept.rows), cell(&kept.sha256[..DIGEST_CHARS])]);
    }
    table.write()?;
    let again = times::count(copied.again, "lane");
    output::line(format!("verified: both sides are the same; {again} copied again, as of the seal"))?;
    output::say(format!(
        "{} is sealed and stays so: start workers and senders with --store {}",
        from.url,
        output::quoted(&to.url.to_string())
    ));
    Ok(0)
}

fn failed(error: CopyError) -> Failure {
    match &error {
        CopyError::Store { problem, .. } => {
            let help = "what was copied is kept: the same command goes on from there";
            Failure::new(failure::code_of(problem), error.to_string()).help(help)
        }
        CopyError::NotEmpty { .. } | CopyError::Refused { .. } => {
            Failure::new(failure::REFUSED, error.to_string())
        }
        CopyError::Differs { .. } => Failure::new(failure::FAILED, error.to_string()).help(
            "the source has everything; remove the target and copy again, or lift the seal of the source",
        ),
    }
}

async fn seal(args: SealArgs) -> Result<u8, Failure> {
    let choice = existing(&args.url)?;
    let store = open_portable(&choice).await?;
    if let Some(by) = store.sealed().await? {
        return Err(Failure::new(failure::REFUSED, format!("{} is sealed already, by {by}", choice.url)));
    }
    let by = context::actor(&args.by);
    quell::copy::check_sealer(&by)?;
    store.seal(Some(&by)).await?;
    tell(&choice, "seal", Some(&by), args.form)?;
    Ok(0)
}

async fn unseal(args: UnsealArgs) -> Result<u8, Failure> {
    let choice = existing(&args.url)?;
    let store = open_portable(&choice).await?;
    let Some(by) = store.sealed().await? else {
        tell(&choice, "unseal", None, args.form)?;
        return Ok(0);
    };
    if store.place().await?.is_some() {
        let text = format!("{} is half a store: {by} has not been finished", choice.url);
        return Err(
            Failure::new(failure::REFUSED, text).help("`quell store copy` with the same stores goes on")
        );
    }
    if !args.force {
        let text = format!("{} was sealed by {by}", choice.url);
        return Err(Failure::new(failure::REFUSED, text)
            .help("--force lifts the seal; if the store was moved, whatever it accepts is not in its copy"));
    }
    store.seal(None).await?;
    tell(&choice, "unseal", Some(&by), args.form)?;
    Ok(0)
}

fn tell(choice: &StoreChoice, action: &str, by: Option<&str>, form: Form) -> std::io::Result<()> {
    let url = choice.url.to_string();
    if form.json {
        return output::json(&serde_json::json!({
            "action": action,
            "store": url,
            "sealed_by": by,
            "changed": by.is_some(),
        }));
    }
    match (action, by) {
        ("seal", _) => output::line(format!("sealed {url}: it refuses every change, and reads go on")),
        (_, Some(by)) => output::line(format!("unsealed {url}, which was sealed by {by}")),
        (_, None) => output::line(format!("{url} was not sealed")),
    }
}
