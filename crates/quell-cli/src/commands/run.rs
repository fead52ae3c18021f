//! `quell run ID`: one run, what happened to it, and its events.

use clap::Args;
use owo_colors::OwoColorize;
use quell::quell_core::attempt::{AttemptReport, ReportedAttempt};
use quell::quell_core::batch::RunId;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::inspect::{RunDetail, RunLinks, RunRow};

use crate::args::{Form, Global};
use crate::commands::{audit, lane};
use crate::context;
use crate::failure::Failure;
use crate::output::{self, Columns, Facts, cell};
use crate::times;

/// Events shown in a table; JSON has all of them.
const EVENTS_SHOWN: usize = 50;
const PAYLOAD_CHARS: usize = 2_000;
const STEP_CHARS: usize = 60;
const REPORT_CHARS: usize = 120;

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The id of the run, like run_2k_9f
    #[arg(value_name = "ID")]
    run: String,
    /// Also show the payloads of its events
    #[arg(long)]
    payloads: bool,
    /// Also show what its steps have stored
    #[arg(long)]
    steps: bool,
    /// Also show in full what its latest attempts were answered
    #[arg(long)]
    reports: bool,
    #[command(flatten)]
    form: Form,
}

pub(crate) async fn run(args: &RunArgs, global: &Global) -> Result<u8, Failure> {
    let id: RunId = args.run.parse()?;
    let engine = context::open_existing(global).await?;
    let mut detail = context::found_run(&engine, id).await?;
    // A life is read from its beginning.
    detail.audit.sort_by_key(|record| record.id);
    match (args.form.json, args.payloads) {
        (false, _) => show(&detail, args, context::now(&engine).await?)?,
        (true, true) => output::json(&detail)?,
        (true, false) => {
            let list = output::without_payloads(&detail.list);
            let rest = RunDetail { list: Vec::new(), ..detail };
            output::json(&output::with_field(&rest, "list", list)?)?;
        }
    }
    Ok(0)
}

fn show(detail: &RunDetail, args: &RunArgs, now: Timestamp) -> std::io::Result<()> {
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
    if !detail.reports.is_empty() {
        output::line("")?;
        reports(&detail.reports, now).write()?;
        if args.reports {
            detail.reports.iter().try_for_each(in_full)?;
        }
    }
    if !detail.steps.is_empty() {
        output::line("")?;
        steps(detail, args.steps, now).write()?;
    }
    if detail.list.is_empty() {
        return Ok(());
    }
    output::line("")?;
    events(detail, args.payloads, now)
}

fn facts(detail: &RunDetail, now: Timestamp) -> Facts {
    let row: &RunRow = &detail.row;
    let mut facts = Facts::default();
    facts.add("tries", format!("{} (claimed {}×, retried {}×)", row.attempts, row.claims, row.retries));
    facts.add_some("gave way", (row.interrupts > 0).then(|| format!("{}×", row.interrupts)));
    facts.add_some("revision", (row.revision > 0).then(|| row.revision.to_string()));
    facts.add_some("priority", lane::priority(row.priority));
    links(&row.links, &mut facts);
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

/// Where its events came from and went.
fn links(links: &RunLinks, facts: &mut Facts) {
    let mut link = |name, run: Option<RunId>| facts.add_some(name, run.map(|run| run.to_string()));
    link("split from", links.split_from);
    link("redriven from", links.redriven_from);
    link("continued in", links.continued_in);
    link("merged into", links.merged_into);
    link("redriven into", links.redriven_into);
    let halves: Vec<String> = links.split_into.iter().map(ToString::to_string).collect();
    facts.add_some("split into", (!halves.is_empty()).then(|| halves.join(" ")));
}

/// What its latest attempts asked and were answered, a line each. The trail above has all of them, by their tokens.
fn reports(reports: &[ReportedAttempt], now: Timestamp) -> Columns {
    let mut table = Columns::new(&["TOKEN", "ENDED", "ASKED", "ANSWER", "SAID"]).right(0);
    for ReportedAttempt { token, at, error, report } in reports {
        let said = [error, &report.stderr, &report.response].into_iter().flatten().next();
        table.row([
            cell(token),
            cell(times::short(*at, now)),
            cell(times::one_line(report.request.as_deref().unwrap_or("-"), STEP_CHARS)),
            cell(answer(report)),
            cell(times::one_line(said.map_or("-", String::as_str), REPORT_CHARS)),
        ]);
    }
    table
}

fn answer(report: &AttemptReport) -> String {
    match (report.status, report.exit_code) {
        (Some(status), _) => format!("status {status}"),
        (None, Some(code)) => format!("exit code {code}"),
        (None, None) => "-".to_owned(),
    }
}

/// The texts of one attempt as they are kept.
fn in_full(reported: &ReportedAttempt) -> std::io::Result<()> {
    let ReportedAttempt { token, error, report, .. } = reported;
    let texts = [("ERROR", error), ("ANSWER", &report.response), ("STDERR", &report.stderr)];
    for (name, text) in texts {
        if let Some(text) = text {
            let heading = format!("{name} of {token}");
            output::line(format!("\n{}\n{}", heading.dimmed(), times::safe(text.trim_end())))?;
        }
    }
    Ok(())
}

/// What its attempts have remembered; the values when they are wanted.
fn steps(detail: &RunDetail, values: bool, now: Timestamp) -> Columns {
    let names = ["STEP", "REVISION", "AT", "TOKEN", if values { "VALUE" } else { "BYTES" }];
    let mut table = Columns::new(&names).right(1).right(3);
    for step in &detail.steps {
        let value = match &step.value {
            None => "begun, no result".to_owned(),
            Some(value) if values => times::one_line(&value.to_string(), PAYLOAD_CHARS),
            Some(value) => value.to_string().len().to_string(),
        };
        table.row([
            cell(times::one_line(&step.name, STEP_CHARS)),
            cell(step.revision),
            cell(times::short(step.at, now)),
            cell(step.token),
            cell(value),
        ]);
    }
    table
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
