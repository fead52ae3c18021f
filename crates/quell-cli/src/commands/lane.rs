//! `quell lane`: why is this key waiting? The answer first, then everything that is known.

use clap::Args;
use owo_colors::OwoColorize;
use quell::quell_core::inspect::LaneDetail;

use crate::args::{Form, Global};
use crate::context;
use crate::failure::{self, Failure};
use crate::output::{self, Columns, Facts, cell};
use crate::times;

const PAYLOAD_CHARS: usize = 500;

#[derive(Debug, Args)]
pub(crate) struct LaneArgs {
    queue: String,
    key: String,
    /// The owner of the key
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Also show the payloads of waiting events
    #[arg(long)]
    payloads: bool,
    #[command(flatten)]
    form: Form,
}

pub(crate) async fn run(args: &LaneArgs, global: &Global) -> Result<u8, Failure> {
    let lane = context::lane_key(&args.queue, &args.key, args.tenant.as_deref())?;
    let engine = context::open_existing(global).await?;
    let Some(detail) = engine.lane(lane.clone()).await? else {
        return Err(Failure::new(failure::NOT_FOUND, format!("nothing is known of lane {lane}"))
            .help("it never had an event, or its history is older than the retention"));
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

fn show(detail: &LaneDetail, payloads: bool) -> std::io::Result<()> {
    let (row, now) = (&detail.row, detail.now);
    output::line(format!("{}: {}", row.lane.bold(), row.why))?;
    let mut facts = Facts::default();
    facts.add("state", row.state.map_or("idle", |state| state.as_str()));
    facts.add("buffered", times::count(row.buffered, "event"));
    facts.add("in flight", times::count(row.in_flight, "event"));
    facts.add_some("due", detail.waiting.due_at.map(|due| times::full(due, now)));
    facts.add_some("at the latest", detail.waiting.capped_at.map(|cap| times::full(cap, now)));
    facts.add_some("tried again", detail.waiting.again_at.map(|until| times::full(until, now)));
    facts.add_some("held by", row.worker.clone());
    facts.add_some("token", row.token.map(|token| token.to_string()));
    facts.add_some("since", row.claimed_at.map(|at| times::full(at, now)));
    facts.add_some("lease until", row.lease_until.map(|until| times::full(until, now)));
    facts.add_some("lane paused by", detail.waiting.lane_paused_by.clone());
    facts.add_some("queue paused by", detail.waiting.queue_paused_by.clone());
    facts.add_some("current run", detail.current_run.map(|run| run.to_string()));
    facts.add_some("open run", detail.open_run.map(|run| run.to_string()));
    facts.add("newest event", row.head_seq.to_string());
    facts.add("updated", times::full(row.updated_at, now));
    facts.write()?;
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
        let received = times::short(event.received_at, now);
        table.row([cell(event.seq), cell(&event.id), cell(received), cell(last)]);
    }
    table.write()
}
