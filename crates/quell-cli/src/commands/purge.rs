//! `quell purge`: throw away what is dead, delayed or buffered in a queue.
//!
//! Never what a worker holds. The store takes a bounded number per call, so a large purge stalls nobody; this command
//! goes on until nothing is left. What is purged counts as discarded.

use clap::{Args, ValueEnum};
use quell::Engine;
use quell::quell_core::event::{Key, QueueName};
use quell::quell_core::store::{Purge, PurgeWhat};

use crate::args::{ByHand, Form, Global};
use crate::confirm::confirm;
use crate::context;
use crate::failure::Failure;
use crate::output;
use crate::progress;
use crate::times;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell purge dead --queue orders --dry-run    how many events would go
  quell purge dead --queue orders --yes        without being asked
  quell purge buffered --queue chat --key ada  what waits for one key

What is purged is kept as cancelled runs for a while: `quell redrive RUN` brings it back.
To delete the payloads of a key for good: `quell lane QUEUE KEY --erase`.")]
pub(crate) struct PurgeArgs {
    /// What to throw away
    what: What,
    /// Of this queue
    #[arg(long, value_name = "QUEUE")]
    queue: String,
    /// Only of this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Only of this tenant, instead of all of them
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Only count
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
    #[command(flatten)]
    by: ByHand,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Events of failed runs
    Dead,
    /// Events that have not entered their lane yet
    Delayed,
    /// Events that wait in a window, or for a worker
    Buffered,
}

impl What {
    fn word(self) -> &'static str {
        match self {
            What::Dead => "dead",
            What::Delayed => "delayed",
            What::Buffered => "buffered",
        }
    }
}

pub(crate) async fn run(args: PurgeArgs, global: &Global) -> Result<u8, Failure> {
    let purge = Purge {
        queue: QueueName::new(&args.queue)?,
        tenant: context::tenant_of(args.tenant.as_deref())?,
        key: args.key.as_deref().map(Key::new).transpose()?,
        what: match args.what {
            What::Dead => PurgeWhat::Dead,
            What::Delayed => PurgeWhat::Delayed,
            What::Buffered => PurgeWhat::Buffered,
        },
        dry_run: true,
    };
    let engine = context::open_existing(global).await?;
    context::known_queue(&engine, &purge.queue).await?;
    let actor = context::actor(&args.by);
    let found = engine.purge(purge.clone(), &actor).await?;
    let some = format!("{}{}", if found.more { "at least " } else { "" }, counted(found.events, args.what));
    let place = place(&purge);
    if args.dry_run || found.events == 0 {
        return answer(&args, found.events, found.more, || match found.events {
            0 => format!("{place} has no {} events", args.what.word()),
            _ => format!("would discard {some} of {place}; nothing was changed"),
        });
    }
    confirm(&format!("discard {some} of {place}"), args.yes)?;
    let events = purge_all(&engine, Purge { dry_run: false, ..purge }, &actor, args.what).await?;
    answer(&args, events, false, || format!("discarded {} of {place}", counted(events, args.what)))
}

/// Call after call, until the store says that nothing is left.
async fn purge_all(engine: &Engine, purge: Purge, actor: &str, what: What) -> Result<u64, Failure> {
    let bar = progress::wheel("purging");
    let mut events = 0;
    let ended = loop {
        match engine.purge(purge.clone(), actor).await {
            Ok(done) => {
                events += done.events;
                bar.set_message(format!("discarded {}", counted(events, what)));
                if !done.more || done.events == 0 {
                    break Ok(events);
                }
            }
            Err(error) => {
                let so_far = format!("{} had been discarded before", counted(events, what));
                break Err(Failure::from(error).help(format!("{so_far}; the same command goes on")));
            }
        }
    };
    bar.finish_and_clear();
    ended
}

fn answer(args: &PurgeArgs, events: u64, more: bool, text: impl FnOnce() -> String) -> Result<u8, Failure> {
    if args.form.json {
        output::json(&serde_json::json!({
            "action": "purge",
            "what": args.what.word(),
            "queue": args.queue,
            "key": args.key,
            "tenant": args.tenant,
            "dry_run": args.dry_run,
            "changed": !args.dry_run && events > 0,
            "events": events,
            "more": more,
        }))?;
    } else {
        output::line(text())?;
    }
    Ok(0)
}

fn counted(events: u64, what: What) -> String {
    times::count(events, &format!("{} event", what.word()))
}

fn place(purge: &Purge) -> String {
    let tenant = purge.tenant.as_ref().filter(|tenant| !tenant.is_none());
    let tenant = tenant.map(|tenant| format!("{tenant}:")).unwrap_or_default();
    match &purge.key {
        Some(key) => format!("{tenant}{}/{key}", purge.queue),
        None => format!("queue {tenant}{}", purge.queue),
    }
}
