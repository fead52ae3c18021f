//! `quell audit`: the trail of changes, and the table of it that other commands show too.

use clap::Args;
use owo_colors::OwoColorize;
use quell::quell_core::audit::AuditRecord;
use quell::quell_core::batch::RunId;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::Key;
use quell::quell_core::inspect::AuditFilter;
use quell::quell_core::lifecycle::Change;
use quell::quell_core::outcome::VerdictKind;

use crate::args::{Form, Global, Paging};
use crate::context;
use crate::failure::Failure;
use crate::output::{self, Columns, cell};
use crate::times;

const LANE_CHARS: usize = 40;

#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    /// Only this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Only this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Only keys of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Only this run
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    form: Form,
}

pub(crate) async fn run(args: &AuditArgs, global: &Global) -> Result<u8, Failure> {
    let filter = AuditFilter {
        tenant: context::tenant_of(args.tenant.as_deref())?,
        queue: context::queue_of(args.queue.as_deref())?,
        key: args.key.as_deref().map(Key::new).transpose()?,
        run: args.run.as_deref().map(str::parse::<RunId>).transpose()?,
        cursor: args.paging.cursor.clone(),
        limit: usize::from(args.paging.limit),
    };
    let engine = context::open_existing(global).await?;
    let queue = filter.queue.clone();
    let page = engine.audit(filter).await?;
    context::known_if_empty(&engine, queue.as_ref(), &page).await?;
    if args.form.json {
        output::json(&page)?;
        return Ok(0);
    }
    table(&page.items, context::now(&engine).await?, true).write()?;
    output::page_end(&page, "records");
    Ok(0)
}

/// One row per record; with the lane where several are mixed, and with the other run where there is one.
pub(super) fn table(records: &[AuditRecord], now: Timestamp, with_lane: bool) -> Columns {
    let with_other = records.iter().any(|record| record.other_run.is_some());
    let number = |n: u64| if n == 0 { "-".to_owned() } else { n.to_string() };
    let mut names = vec!["AT"];
    names.extend(with_lane.then_some(["LANE", "RUN"]).into_iter().flatten());
    names.push("CHANGE");
    names.extend(with_other.then_some("OTHER RUN"));
    names.extend(["STATE", "TRY", "TOKEN", "BY"]);
    let tries = names.len() - 3;
    let mut table = Columns::new(&names).right(tries).right(tries + 1);
    for record in records {
        let states = match (record.from, record.to) {
            (Some(from), Some(to)) => format!("{from} → {to}"),
            (_, to) => output::or_dash(to),
        };
        let mut cells = vec![cell(times::short(record.at, now))];
        if with_lane {
            cells.extend([cell(lane(record)), cell(output::or_dash(record.run))]);
        }
        cells.push(cell(change(record)));
        if with_other {
            cells.push(cell(output::or_dash(record.other_run)));
        }
        cells.extend([
            cell(states),
            cell(number(record.attempt.into())),
            cell(number(record.token)),
            cell(by(record)),
        ]);
        table.row(cells);
    }
    table
}

/// One record for those who watch: `20:14:03 chat/7 run_1_2 claimed pending → running, try 1, by host:42`.
pub(super) fn one_line(record: &AuditRecord) -> String {
    let mut text = format!("{} {}", times::clock_face(record.at, record.at).dimmed(), lane(record).bold());
    if let Some(run) = record.run {
        text += &format!(" {run}");
    }
    text += &format!(" {}", change(record));
    if let (Some(from), Some(to)) = (record.from, record.to)
        && from != to
    {
        text += &format!(", {from} → {to}");
    }
    if record.attempt > 0 {
        text += &format!(", try {}", record.attempt);
    }
    match by(record).as_str() {
        "-" => text,
        by => format!("{text}, by {by}"),
    }
}

/// What happened, and what the holder said where that is something else: a retry on the last attempt, for example.
fn change(record: &AuditRecord) -> String {
    let change = record.change;
    match record.verdict.map(VerdictKind::as_str) {
        Some(said) if !change.as_str().starts_with(said) => format!("{change} (said {said})"),
        _ => change.to_string(),
    }
}

fn lane(record: &AuditRecord) -> String {
    let mut text = String::new();
    if !record.tenant.is_none() {
        text += &format!("{}:", record.tenant);
    }
    text += &record.queue.to_string();
    if let Some(key) = &record.key {
        text += &format!("/{key}");
    }
    times::one_line(&text, LANE_CHARS)
}

/// The operator, or the worker; and from whom it was taken.
fn by(record: &AuditRecord) -> String {
    let prior = record
        .prior_worker
        .as_deref()
        .filter(|prior| record.worker.as_deref() != Some(prior))
        .map(|prior| output::worker(Some(prior)));
    match (&record.actor, &record.worker, prior) {
        (Some(actor), _, _) => times::one_line(actor, LANE_CHARS),
        (None, Some(worker), Some(prior)) => format!("{} (before: {prior})", output::worker(Some(worker))),
        (None, Some(worker), None) => output::worker(Some(worker)),
        (None, None, Some(prior)) if record.change == Change::Restored => format!("lease of {prior} is void"),
        (None, None, Some(prior)) => format!("lease of {prior} ran out"),
        (None, None, None) => "-".to_owned(),
    }
}
