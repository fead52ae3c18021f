//! `quell lane`: why is this key waiting? The answer first, then everything that is known.
//!
//! The same command changes single events of the key and erases it (`lane/change.rs`): whoever wants that has just
//! looked at them here.

mod change;

use clap::Args;
use owo_colors::OwoColorize;
use quell::Engine;
use quell::quell_core::event::LaneKey;
use quell::quell_core::inspect::LaneDetail;
use quell::quell_core::limits;
use quell::quell_core::store::{Purge, PurgeWhat};

use crate::args::{ByHand, Form, Global};
use crate::context;
use crate::failure::Failure;
use crate::output::{self, Columns, Facts, cell};
use crate::times;
use change::Change;

const PAYLOAD_CHARS: usize = 500;
const ACTOR_CHARS: usize = 200;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell lane chat ada
  quell lane chat ada --edit-event m1 --with '{\"text\":\"hi\"}'   it keeps its place and its id
  quell lane chat ada --delete-event m1    not handed over; `quell redrive` brings it back
  quell lane chat ada --erase              payloads, ids, steps, errors and the key itself

An erased key cannot be brought back. What stays of it are numbers: how many events, and in
the audit when which run was claimed and how it ended.")]
pub(crate) struct LaneArgs {
    /// The kind of work
    queue: String,
    /// Who its events belong to
    key: String,
    /// The owner of the key
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Also show the payloads of waiting events
    #[arg(long)]
    payloads: bool,
    /// Change the payload of this event, which must be waiting
    #[arg(long, value_name = "ID", group = "change", help_heading = "Changes by hand")]
    edit_event: Option<String>,
    /// The new payload as JSON; without this, or with `-`, from stdin
    #[arg(
        long,
        value_name = "JSON",
        requires = "edit_event",
        allow_hyphen_values = true,
        help_heading = "Changes by hand"
    )]
    with: Option<String>,
    /// Discard this event, which must be waiting
    #[arg(long, value_name = "ID", group = "change", help_heading = "Changes by hand")]
    delete_event: Option<String>,
    /// Delete this event for good, wherever it is
    #[arg(long, value_name = "ID", group = "change", help_heading = "Changes by hand")]
    erase_event: Option<String>,
    /// Delete everything of this key for good
    #[arg(long, group = "change", help_heading = "Changes by hand")]
    erase: bool,
    /// Do not ask before erasing
    #[arg(long, help_heading = "Changes by hand")]
    yes: bool,
    #[command(flatten)]
    by: ByHand,
    #[command(flatten)]
    form: Form,
}

pub(crate) async fn run(args: &LaneArgs, global: &Global) -> Result<u8, Failure> {
    let lane = context::lane_key(&args.queue, &args.key, args.tenant.as_deref())?;
    let change = Change::of(args)?;
    let engine = context::open_existing(global).await?;
    if let Some(change) = change {
        return change::make(&engine, lane, change, args).await;
    }
    let Some(detail) = engine.lane(lane.clone()).await? else {
        return only_delayed(&engine, lane, args.form.json).await;
    };
    match (args.form.json, args.payloads) {
        (false, payloads) => show(&detail, payloads)?,
        (true, true) => output::json(&detail)?,
        (true, false) => {
            let events = output::without_payloads(&detail.events);
            let rest = LaneDetail { events: Vec::new(), ..detail };
            output::json(&output::with_field(&rest, "events", events)?)?;
        }
    }
    Ok(0)
}

/// A key whose only events are still kept aside has no lane yet, and yet it is not unknown.
async fn only_delayed(engine: &Engine, lane: LaneKey, json: bool) -> Result<u8, Failure> {
    // A purge that only counts is the one question to the store about events aside.
    let count = Purge {
        queue: lane.queue.clone(),
        tenant: Some(lane.tenant.clone()),
        key: Some(lane.key.clone()),
        what: PurgeWhat::Delayed,
        dry_run: true,
    };
    let delayed = engine.purge(count, "").await?.events;
    if delayed == 0 {
        return Err(context::unknown_lane(&lane));
    }
    if json {
        let mut answer = serde_json::to_value(&lane).map_err(std::io::Error::other)?;
        answer["state"] = serde_json::Value::Null;
        answer["delayed"] = delayed.into();
        output::json(&answer)?;
    } else {
        output::line(format!("{}: idle, {}", lane.bold(), times::count(delayed, "delayed event")))?;
    }
    Ok(0)
}

fn show(detail: &LaneDetail, payloads: bool) -> std::io::Result<()> {
    let row = &detail.row;
    output::line(format!("{}: {}", row.lane.bold(), times::safe(&row.why)))?;
    facts(detail).write()?;
    if detail.events.is_empty() {
        return Ok(());
    }
    output::line("")?;
    let mut table =
        Columns::new(&["SEQ", "ID", "RECEIVED", if payloads { "PAYLOAD" } else { "BYTES" }]).right(0);
    for event in &detail.events {
        let last = match payloads {
            true => times::one_line(event.payload.as_str(), PAYLOAD_CHARS),
            false => event.payload.len().to_string(),
        };
        let received = times::short(event.received_at, detail.now);
        table.row([cell(event.seq), cell(&event.id), cell(received), cell(last)]);
    }
    table.write()
}

fn facts(detail: &LaneDetail) -> Facts {
    let (row, waiting, now) = (&detail.row, &detail.waiting, detail.now);
    let full = |moment| times::full(moment, now);
    let mut facts = Facts::default();
    facts.add("state", row.state.map_or("idle", |state| state.as_str()));
    facts.add("buffered", times::count(row.buffered, "event"));
    facts.add("in flight", times::count(row.in_flight, "event"));
    facts.add_some("delayed", (detail.delayed > 0).then(|| times::count(detail.delayed, "event")));
    facts.add_some("priority", priority(row.priority));
    facts.add_some("due", waiting.due_at.map(full));
    facts.add_some("at the latest", waiting.capped_at.map(full));
    facts.add_some("tried again", waiting.again_at.map(full));
    facts.add_some(
        "source",
        waiting.source.as_ref().map(|source| match source.until {
            Some(until) => format!("{}, not before {}", source.name, full(until)),
            None => format!("{}, until somebody lets it go", source.name),
        }),
    );
    facts.add_some("held by", row.worker.clone());
    facts.add_some("token", row.token.map(|token| token.to_string()));
    facts.add_some("since", row.claimed_at.map(full));
    facts.add_some("lease until", row.lease_until.map(full));
    let asked = match (waiting.cancelling, waiting.interrupting) {
        (true, _) => Some("to cancel"),
        (false, true) => Some("to stop for newer events"),
        (false, false) => None,
    };
    facts.add_some("asked", asked.map(str::to_owned));
    facts.add_some("blocked by", row.blocked_by.map(|run| run.to_string()));
    facts.add_some("lane paused by", waiting.lane_paused_by.as_deref().map(actor));
    facts.add_some("queue paused by", waiting.queue_paused_by.as_deref().map(actor));
    facts.add_some("current run", detail.current_run.map(|run| run.to_string()));
    let queued: Vec<String> = detail.queued_runs.iter().map(ToString::to_string).collect();
    facts.add_some("queued runs", (!queued.is_empty()).then(|| queued.join(" ")));
    facts.add_some("open run", detail.open_run.map(|run| run.to_string()));
    facts.add("newest event", row.head_seq.to_string());
    facts.add("updated", full(row.updated_at));
    facts
}

/// Only one that somebody has chosen.
pub(super) fn priority(priority: u8) -> Option<String> {
    (priority != limits::PRIORITY_DEFAULT).then(|| priority.to_string())
}

/// Whatever somebody called himself.
fn actor(name: &str) -> String {
    times::one_line(name, ACTOR_CHARS)
}
