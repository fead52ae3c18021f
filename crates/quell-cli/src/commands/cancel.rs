//! `quell cancel`: end what a key is doing, or is about to do.
//!
//! A run that nobody holds ends at once. A holder is asked to stop; if it succeeds before it hears of it, it has
//! succeeded. Either way the events are kept as discarded until the retention ends, and can be redriven.

use clap::Args;
use quell::quell_core::batch::RunId;
use quell::quell_core::event::LaneKey;
use quell::quell_core::inspect::RunDetail;
use quell::quell_core::lifecycle::RunState;

use crate::args::{ByHand, Form, Global};
use crate::context;
use crate::failure::{self, Failure};
use crate::output;
use crate::times;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell cancel chat ada               what runs for this key, or else what waits
  quell cancel chat ada --run run_2_4 only if that is still the run in question
  quell cancel --run run_2_4          the same, without typing its key

Its events are discarded and kept for a while: `quell redrive RUN` brings them back.")]
pub(crate) struct CancelArgs {
    /// The kind of work
    #[arg(required_unless_present = "run", requires = "key")]
    queue: Option<String>,
    /// Who its events belong to
    key: Option<String>,
    /// The owner of the key
    #[arg(long, value_name = "TENANT", requires = "key")]
    tenant: Option<String>,
    /// Only this run, and only if it is the one that the key is busy with
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    #[command(flatten)]
    by: ByHand,
    #[command(flatten)]
    form: Form,
}

pub(crate) async fn run(args: CancelArgs, global: &Global) -> Result<u8, Failure> {
    let run: Option<RunId> = args.run.as_deref().map(str::parse).transpose()?;
    let named = match (&args.queue, &args.key) {
        (Some(queue), Some(key)) => Some(context::lane_key(queue, key, args.tenant.as_deref())?),
        _ => None,
    };
    let engine = context::open_existing(global).await?;
    let lane = match (named, run) {
        (Some(lane), _) => {
            context::known_queue(&engine, &lane.queue).await?;
            if engine.lane(lane.clone()).await?.is_none() {
                return Err(context::unknown_lane(&lane));
            }
            lane
        }
        (None, Some(run)) => context::found_run(&engine, run).await?.row.lane,
        (None, None) => unreachable!("one of the two is required"),
    };
    let done = engine.cancel(lane.clone(), run, &context::actor(&args.by)).await?;
    // When nothing changed, the run that the key is busy with says why.
    let busy = engine.lane(lane.clone()).await?.and_then(|lane| lane.current_run);
    let target = match done.run.or(run).or(busy) {
        Some(id) => engine.run(id).await?,
        None => None,
    };
    let refused = if done.changed { None } else { refusal(target.as_ref(), busy) };
    if args.form.json {
        output::json(&serde_json::json!({
            "action": "cancel",
            "lane": lane,
            "run": target.as_ref().map(|run| run.row.id),
            "changed": done.changed,
            "state": target.as_ref().map(|run| run.row.state),
            "events": done.events,
        }))?;
    } else if refused.is_none() {
        output::line(told(&lane, target.as_ref(), done.changed))?;
    }
    refused.map_or(Ok(0), Err)
}

fn told(lane: &LaneKey, target: Option<&RunDetail>, changed: bool) -> String {
    let Some(run) = target.map(|run| &run.row) else {
        return format!("{lane} has nothing to cancel");
    };
    let (id, events) = (run.id, times::count(run.events, "event"));
    match (changed, run.state) {
        (true, RunState::Running) => format!(
            "asked {} to stop {id} of {lane}: it is cancelled then, unless it succeeds first",
            output::worker(run.worker.as_deref())
        ),
        (true, RunState::Cancelled) => {
            format!("cancelled {id} of {lane}: {events} discarded; `quell redrive {id}` undoes it")
        }
        // Between the request and this look the holder has answered.
        (true, state) => format!("{id} of {lane} was asked to stop and has ended as {state}"),
        (false, RunState::Running) => format!("{id} of {lane} was asked to stop already"),
        (false, state) if state.is_final() => {
            format!("{id} of {lane} has ended as {state}: nothing to cancel")
        }
        (false, state) => format!("{id} of {lane} is {state}: nothing was cancelled"),
    }
}

/// A run that waits behind another one cannot be reached; saying "done" would be wrong.
fn refusal(target: Option<&RunDetail>, busy: Option<RunId>) -> Option<Failure> {
    let (run, busy) = target.map(|run| &run.row).zip(busy)?;
    (!run.state.is_final() && run.id != busy).then(|| {
        Failure::new(failure::REFUSED, format!("{} waits behind {busy}", run.id))
            .help("a key is cancelled from the front: cancel that one first, or purge what waits")
    })
}
