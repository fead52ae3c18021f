//! `quell prices watch`: collections and values as they come, of all processes that work on this store.

use std::time::Duration;

use clap::Args;
use owo_colors::OwoColorize;
use quell::clock;
use quell::quell_core::audit::AuditRecord;
use quell::quell_core::event::QueueName;
use quell::quell_core::inspect::AuditFilter;
use quell::quell_core::lifecycle::RunState;
use quell_collectors::{COLLECT, COLLECT_VALUE, queue};

use super::Desk;
use crate::args::{Form, Global};
use crate::context;
use crate::failure::Failure;
use crate::output;
use crate::signals::Signals;
use crate::times;

/// How often the trail is looked at without a sign of the store.
const LOOK: Duration = Duration::from_millis(500);
/// What is shown of one look; more is said to be left out.
const MOST: usize = 1_000;
const ERROR_CHARS: usize = 160;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell prices watch                         until Ctrl-C
  quell prices watch --until-idle            until nothing is asked for any more
  quell prices watch --json                  one record per line")]
pub(crate) struct WatchArgs {
    /// Only of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// End when nothing waits and nothing runs
    #[arg(long)]
    until_idle: bool,
    #[command(flatten)]
    form: Form,
}

pub(super) async fn run(args: &WatchArgs, global: &Global) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let desk = Desk::open(global).await?;
    let filter =
        AuditFilter { tenant: context::tenant_of(args.tenant.as_deref())?, ..AuditFilter::default() };
    let mut wakeups = desk.engine.store().wakeups();
    let mut seen = desk.engine.newest_record().await?;
    if !args.until_idle {
        output::say("collections and values are shown here as they come; Ctrl-C ends it");
    }
    loop {
        // Asked before the trail is read: what ended before this question is in it.
        let idle = args.until_idle && is_idle(&desk).await?;
        let newest = desk.engine.newest_record().await?;
        if newest > seen {
            let (records, whole) = desk.engine.audit_since(seen, filter.clone(), MOST).await?;
            if !whole && records.len() >= MOST {
                output::say("more happened at once than is shown here: `quell audit` has all of it");
            }
            for record in &records {
                show(&desk, record, args.form).await?;
            }
            seen = records.last().map_or(newest, |record| record.id.max(newest));
        }
        if idle {
            return Ok(0);
        }
        tokio::select! {
            _ = signals.next() => return Ok(0),
            () = wakeups.woken() => clock::sleep(LOOK / 5).await,
            () = clock::sleep(LOOK) => {}
        }
    }
}

async fn is_idle(desk: &Desk) -> Result<bool, Failure> {
    let ours = [queue(COLLECT), queue(COLLECT_VALUE)];
    let stats = desk.engine.stats().await?;
    let busy = |name: &QueueName| {
        let rows = stats.iter().filter(|row| row.queue == *name);
        rows.map(|row| row.totals.buffered + row.totals.in_flight + row.totals.delayed).sum::<u64>() > 0
    };
    Ok(!ours.iter().any(busy))
}

/// One end of a run, if it is one of ours.
async fn show(desk: &Desk, record: &AuditRecord, form: Form) -> Result<(), Failure> {
    let AuditRecord { tenant, queue, at, .. } = record;
    let of_value = queue.as_str() == COLLECT_VALUE;
    if queue.as_str() != COLLECT && !of_value {
        return Ok(());
    }
    let (Some(to), Some(run), Some(key)) = (record.to, record.run, &record.key) else { return Ok(()) };
    if !matches!(to, RunState::Succeeded | RunState::Failed | RunState::Retryable) {
        return Ok(());
    }
    let valued = match of_value && to == RunState::Succeeded {
        true => desk.book.valuation(tenant, key.as_str()).await?,
        false => None,
    };
    let detail = desk.engine.run(run).await?;
    let (result, error) = detail.map_or((None, None), |run| (run.result, run.row.error));
    if form.json {
        output::json(&serde_json::json!({
            "at": at, "tenant": tenant, "queue": queue, "key": key, "run_id": run, "state": to, "error": error,
            "result": result, "valuation": valued,
        }))?;
        return Ok(());
    }
    let said = match (to, &valued, &result) {
        (RunState::Succeeded, Some(valued), _) => {
            let points = times::count(valued.valuation.counted.all(), "price");
            let value = super::shown::value_of(Some(valued), valued.valuation.currency);
            format!("worth {value}; {points}").green().to_string()
        }
        (RunState::Succeeded, None, Some(result)) => {
            let number = |name: &str| result[name].as_u64().unwrap_or(0);
            let cached = if result["cached"] == true { ", from the cache" } else { "" };
            format!("{} found, {} new{cached}", number("found"), number("new"))
        }
        (RunState::Succeeded, None, None) => "done".to_owned(),
        (state, _, _) => {
            let error = times::one_line(error.as_deref().unwrap_or("no reason was given"), ERROR_CHARS);
            format!("{}: {error}", state.as_str().yellow())
        }
    };
    let face = times::clock_face(*at, *at);
    output::line(format!("{} {} {said}", face.dimmed(), times::safe(key.as_str()).bold()))?;
    Ok(())
}
