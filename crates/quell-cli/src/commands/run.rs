//! `quell run ID`: one run, what happened to it, and its events.

use clap::Args;
use owo_colors::OwoColorize;
use quell::quell_core::batch::RunId;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::inspect::{RunDetail, RunRow};

use crate::args::{Form, Global};
use crate::commands::audit;
use crate::context;
use crate::failure::{self, Failure};
use crate::output::{self, Columns, Facts, cell};
use crate::times;

/// Events shown in a table; JSON has all of them.
const EVENTS_SHOWN: usize = 50;
const PAYLOAD_CHARS: usize = 2_000;

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The id of the run, like run_2k_9f
    #[arg(value_name = "ID")]
    run: String,
    /// Also show the payloads of its events
    #[arg(long)]
    payloads: bool,
    #[command(flatten)]
    form: Form,
}

pub(crate) async fn run(args: &RunArgs, global: &Global) -> Result<u8, Failure> {
    let id: RunId = args.run.parse()?;
    let engine = context::open_existing(global).await?;
    let Some(mut detail) = engine.run(id).await? else {
        return Err(Failure::new(failure::NOT_FOUND, format!("there is no run {id}"))
            .help("`quell runs` lists them; finished ones are removed after the retention"));
    };
    // A life is read from its beginning.
    detail.audit.sort_by_key(|record| record.id);
    match (args.form.json, args.payloads) {
        (false, payloads) => show(&detail, payloads, context::now(&engine).await?)?,
        (true, true) => output::json(&detail)?,
        (true, false) => {
            let list = output::without_payloads(&detail.list);
            let rest = RunDetail { list: Vec::new(), ..detail };
            output::json(&output::with_field(&rest, "list", list)?)?;
        }
    }
    Ok(0)
}

fn show(detail: &RunDetail, payloads: bool, now: Timestamp) -> std::io::Result<()> {
    let row = &detail.row;
    output::line(format!(
        "{} of {}: {}, {}",
        row.id.bold(),
        row.lane.bold(),
        row.state,
        times::count(row.events, "event")
    ))?;
    facts(detail, now).write()?;
    if let Some(error) = &row.error {
        output::line(format!("\n{}\n{}", "ERROR".dimmed(), times::safe(error.trim_end())))?;
    }
    if !detail.audit.is_empty() {
        output::line("")?;
        audit::table(&detail.audit, now, false).write()?;
    }
    output::line("")?;
    events(detail, payloads, now)
}

fn facts(detail: &RunDetail, now: Timestamp) -> Facts {
    let row: &RunRow = &detail.row;
    let mut facts = Facts::default();
    facts.add("tries", format!("{} (claimed {}×, retried {}×)", row.attempts, row.claims, row.retries));
    facts.add_some("fired by", row.fired_by.map(|by| by.as_str().to_owned()));
    facts.add_some("token", (row.token > 0).then(|| row.token.to_string()));
    facts.add_some("worker", row.worker.clone());
    facts.add("first event", times::full(row.created_at, now));
    facts.add("last event", times::full(row.last_at, now));
    facts.add_some("claimed", row.claimed_at.map(|at| times::full(at, now)));
    facts.add_some("sign of life", row.heartbeat_at.map(|at| times::full(at, now)));
    facts.add_some("lease until", row.lease_until.map(|at| times::full(at, now)));
    facts.add_some("next try", row.next_at.map(|at| times::full(at, now)));
    facts.add_some("completed", row.completed_at.map(|at| times::full(at, now)));
    facts.add("updated", times::full(row.updated_at, now));
    facts.add("payload", times::bytes(row.bytes));
    facts.add_some(
        "result",
        detail.result.as_ref().map(|result| times::one_line(&result.to_string(), PAYLOAD_CHARS)),
    );
    let usage: Vec<String> = detail.usage.iter().map(|(name, amount)| format!("{name} {amount}")).collect();
    facts.add_some("usage", (!usage.is_empty()).then(|| times::one_line(&usage.join(", "), PAYLOAD_CHARS)));
    facts
}

fn events(detail: &RunDetail, payloads: bool, now: Timestamp) -> std::io::Result<()> {
    let mut table =
        Columns::new(&["SEQ", "ID", "RECEIVED", if payloads { "PAYLOAD" } else { "BYTES" }]).right(0);
    for event in detail.list.iter().take(EVENTS_SHOWN) {
        let last = match payloads {
            true => times::one_line(event.payload.as_str(), PAYLOAD_CHARS),
            false => event.payload.len().to_string(),
        };
        table.row([cell(event.seq), cell(&event.id), cell(times::short(event.received_at, now)), cell(last)]);
    }
    table.write()?;
    if detail.list.len() > EVENTS_SHOWN {
        output::say(format!("{} more events; --json has all of them", detail.list.len() - EVENTS_SHOWN));
    }
    Ok(())
}
