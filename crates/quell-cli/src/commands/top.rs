//! `quell top`: what happens, in a terminal, as it happens; and the hand of an operator.
//!
//! It looks at the store itself, as the other commands do, and shows the figures of the dashboard's first page: totals and the
//! no-loss equation, rates, lanes with the reason they wait, workers, sources. `figures.rs` reads, `view.rs` knows what is
//! looked at and what a key means, `draw.rs` draws, all of it testable without a terminal; `screen.rs` is the terminal.

mod draw;
mod figures;
mod once;
mod screen;
mod view;

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;
use quell::Engine;
use quell::quell_core::audit::signed;
use quell::quell_core::event::{LaneKey, QueueName, Tenant};
use quell::quell_core::inspect::LaneFilter;

use self::figures::Looker;
use self::screen::{Screen, Seen};
use self::view::{Act, View, Wish};
use crate::args::{ByHand, Global};
use crate::context;
use crate::failure::Failure;

/// Lanes that one look reads: more than any terminal has rows, and as cheap with a million of them.
const LANES: usize = 200;

#[derive(Debug, Args)]
#[command(after_help = "\
Keys: j k or arrows choose, Enter opens a lane, Esc goes back, 1 2 3 4 or Tab change the table,
/ finds keys by their beginning, f flushes, p pauses, r resumes, c cancels (and asks why), ? helps, q ends.
Without a terminal, or with --once, one look is printed.")]
pub(crate) struct TopArgs {
    /// Only this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Only keys of this owner
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Time between two looks at the store
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print one look and end
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    by: ByHand,
}

/// Faster is no help to a reader, and slower is not live.
fn interval(text: &str) -> Result<Duration, String> {
    let read = quell::config::DurationText::parse(text)?;
    let fits = (Duration::from_millis(200)..=Duration::from_secs(60)).contains(&read);
    if fits { Ok(read) } else { Err("between 200ms and 60s".to_owned()) }
}

pub(crate) async fn run(args: TopArgs, global: &Global) -> Result<u8, Failure> {
    let queue: Option<QueueName> = context::queue_of(args.queue.as_deref())?;
    let tenant: Option<Tenant> = context::tenant_of(args.tenant.as_deref())?;
    let engine = context::open_existing(global).await?;
    if let Some(queue) = &queue {
        context::known_queue(&engine, queue).await?;
    }
    let filter = LaneFilter { tenant, queue, limit: LANES, ..LaneFilter::default() };
    let mut looker = Looker::new(engine.clone(), filter);
    let first = looker.look("").await?;
    if args.once || !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        once::write(&first)?;
        return Ok(0);
    }
    let mut view = View::new(first);
    let actor = context::actor(&args.by);
    let mut screen = Screen::open()?;
    let ended = watch(&mut screen, &mut view, &mut looker, &actor, args.interval).await;
    // Before anything is said: the terminal is the caller's again.
    drop(screen);
    ended?;
    Ok(0)
}

async fn watch(
    screen: &mut Screen,
    view: &mut View,
    looker: &mut Looker,
    actor: &str,
    interval: Duration,
) -> Result<(), Failure> {
    loop {
        screen.draw(view)?;
        let wish = match screen.next(interval).await {
            Seen::Key(key) => view.key(key),
            Seen::Resized => Wish::Nothing,
            Seen::Nothing => Wish::Look,
            Seen::Gone => Wish::Quit,
        };
        match wish {
            Wish::Nothing => continue,
            Wish::Quit => return Ok(()),
            Wish::Look => {}
            Wish::Act { lane, act, why } => {
                let done = perform(looker.engine(), lane, act, actor, why.as_deref()).await;
                view.say(done.unwrap_or_else(|failure| failure.to_string()));
            }
        }
        look(view, looker).await;
    }
}

/// A store that is away is told of; what was seen last stays.
async fn look(view: &mut View, looker: &mut Looker) {
    match looker.look(view.filter()).await {
        Ok(figures) => view.show(figures),
        Err(error) => view.away(error.to_string()),
    }
    if let Some(lane) = view.wants().cloned() {
        match looker.detail(lane).await {
            Ok(detail) => view.show_lane(detail),
            Err(error) => view.away(error.to_string()),
        }
    }
}

async fn perform(
    engine: &Engine,
    lane: LaneKey,
    act: Act,
    actor: &str,
    why: Option<&str>,
) -> Result<String, Failure> {
    let name = lane.key.to_string();
    let changed = match act {
        Act::Flush => engine.flush(lane, actor).await?,
        Act::Pause => engine.pause(lane, actor).await?,
        Act::Resume => engine.resume(lane, actor).await?,
        Act::Cancel => engine.cancel(lane, None, &signed(actor, why)).await?.changed,
    };
    Ok(if changed { format!("{} {name}", act.done()) } else { format!("{name}: nothing to do") })
}
