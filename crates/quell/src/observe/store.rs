//! What the store tells at a scrape, as gauges: a fixed number of reads, however many lanes there are.

use std::collections::BTreeMap;

use quell_core::error::StoreResult;
use quell_core::event::QueueName;
use quell_core::inspect::{QueueLeases, QueueStats, SourceFilter, SourceRow};
use quell_core::limits;
use quell_core::source::{Breaker, Standing};
use quell_core::totals::Totals;

use super::labels::{QUEUES, SOURCES};
use crate::config::{HandlerSettings, Settings};
use crate::engine::Engine;

/// Why a source lets nothing go.
const BECAUSE: [&str; 4] = ["breaker", "asked", "disabled", "removed"];

/// Asks the store, and sets what is counted there.
pub async fn scrape(engine: &Engine) -> StoreResult<()> {
    // Those beyond a page are not looked at: sources are declared by people.
    let page = SourceFilter { limit: limits::PAGE_MAX, ..SourceFilter::default() };
    let (stats, leases, sources, workers) =
        tokio::try_join!(engine.stats(), engine.leases(), engine.sources(page), engine.workers())?;
    of_queues(&stats, &leases, &engine.settings());
    of_sources(&sources.items);
    let concurrency: usize = workers.iter().map(|(worker, _)| worker.concurrency).sum();
    metrics::gauge!("quell_workers_concurrency").set(number(concurrency as u64));
    Ok(())
}

/// What is told of the queues that share a label.
#[derive(Default)]
struct Sum {
    totals: Totals,
    running: u64,
    /// Held by workers elsewhere, of queues that are pulled.
    pulled: u64,
    due_ms: u64,
    held_ms: u64,
    silent: u64,
    paused: u64,
}

fn of_queues(stats: &[QueueStats], leases: &[QueueLeases], settings: &Settings) {
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for of in stats {
        let sum = sums.entry(QUEUES.of(of.queue.as_str())).or_default();
        sum.totals = sum.totals.plus(&of.totals);
        *if is_pulled(settings, &of.queue) { &mut sum.pulled } else { &mut sum.running } += of.running;
        sum.paused += u64::from(of.paused_by.is_some());
        sum.due_ms = sum.due_ms.max(of.oldest_due_ms.unwrap_or(0));
    }
    for of in leases {
        let sum = sums.entry(QUEUES.of(of.queue.as_str())).or_default();
        sum.held_ms = sum.held_ms.max(of.oldest_ms);
        sum.silent += of.silent;
    }
    for (queue, sum) in sums {
        of_queue(queue, &sum);
    }
}

/// A queue that the settings do not know is somebody else's, and handled by them.
fn is_pulled(settings: &Settings, queue: &QueueName) -> bool {
    settings.queue(queue).is_some_and(|queue| queue.handler == HandlerSettings::Pull)
}

fn of_queue(queue: &str, sum: &Sum) {
    let Sum { totals, running, pulled, due_ms, held_ms, silent, paused } = sum;
    let set = |name: &'static str, value: f64| metrics::gauge!(name, "queue" => queue.to_owned()).set(value);
    set("quell_events_accepted", number(totals.accepted));
    set("quell_events_succeeded", number(totals.succeeded));
    set("quell_events_dead", number(totals.dead));
    set("quell_events_discarded", number(totals.discarded));
    set("quell_events_delayed", number(totals.delayed));
    set("quell_events_buffered", number(totals.buffered));
    set("quell_events_in_flight", number(totals.in_flight));
    set("quell_events_unaccounted", number(totals.accepted) - number(totals.accounted()));
    set("quell_oldest_due_seconds", number(*due_ms) / 1_000.0);
    set("quell_lease_oldest_seconds", number(*held_ms) / 1_000.0);
    set("quell_leases_silent", number(*silent));
    set("quell_queue_paused", number(*paused));
    // Both, because a queue may change hands while the process runs.
    for (handler, held) in [("own", running), ("pull", pulled)] {
        metrics::gauge!("quell_lanes_running", "queue" => queue.to_owned(), "handler" => handler)
            .set(number(*held));
    }
}

fn of_sources(rows: &[SourceRow]) {
    let mut paused: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for row in rows {
        let name = SOURCES.of(row.name.as_str());
        let because = match row.standing {
            Standing::Disabled => Some("disabled"),
            Standing::Removed => Some("removed"),
            Standing::Released => None,
            Standing::Enabled if row.breaker == Breaker::Open => Some("breaker"),
            Standing::Enabled => row.not_before.map(|_| "asked"),
        };
        if let Some(because) = because {
            *paused.entry((name, because)).or_default() += 1;
        }
    }
    // Also of those that are not there any more: their last word must not stay.
    for source in SOURCES.known() {
        for because in BECAUSE {
            let count = paused.get(&(source, because)).copied().unwrap_or(0);
            metrics::gauge!("quell_source_paused", "source" => source, "because" => because)
                .set(number(count));
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
fn number(count: u64) -> f64 {
    count as f64
}
