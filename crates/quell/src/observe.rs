//! The log events of the engine: fixed names, fixed fields, one function each.
//!
//! What is counted with them is described in `observe/table.rs`; what the store tells when somebody reads the numbers is
//! `observe/store.rs`; names as labels are bounded by `observe/labels.rs`.
//!
//! People and programs search logs for these names, so they are written down once. Events that happen per event or per
//! run are `debug`: at tens of thousands of runs a second nobody wants them unasked, and switched off they cost a check
//! of one flag. What an operator must know is `info` or above.

mod labels;
mod store;
mod table;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quell_core::batch::{Batch, WorkerId};
use quell_core::error::StoreError;
use quell_core::event::LaneKey;
use quell_core::lane::Met;
use quell_core::step::{RunEnd, WorkerState};
use quell_core::store::{Receipt, Reclaimed, Swept};

use self::labels::QUEUES;
pub use self::store::scrape;
pub use self::table::{Kind, METRICS, Metric, describe};
use crate::clock::{RealTime, Time};
use crate::schedules::AppliedSchedules;
use crate::sources::AppliedSources;

/// An event was stored: did it open a window, join one, or meet a running batch?
pub fn event_buffered(lane: &LaneKey, receipt: &Receipt) {
    let met = match receipt.met {
        Some(Met::Idle) => "opened",
        Some(Met::Waiting) => "waiting",
        Some(Met::Running) => "running",
        None if receipt.duplicate => "duplicate",
        None => "aside",
    };
    metrics::counter!("quell_events_received_total", "queue" => QUEUES.of(lane.queue.as_str()), "met" => met)
        .increment(1);
    tracing::debug!(
        tenant = %lane.tenant, queue = %lane.queue, key = %lane.key, event = %receipt.event_id, seq = receipt.seq,
        run = receipt.run_id.map(tracing::field::display), lane = met, "event.buffered"
    );
}

pub fn lease_acquired(batch: &Batch, worker: &WorkerId) {
    metrics::counter!("quell_runs_claimed_total", "queue" => QUEUES.of(batch.lane.queue.as_str()))
        .increment(1);
    tracing::debug!(
        tenant = %batch.lane.tenant, queue = %batch.lane.queue, key = %batch.lane.key, run = %batch.run_id,
        token = batch.token, worker = %worker.name, pid = worker.pid, attempt = batch.attempt,
        events = batch.events.len(), "lease.acquired"
    );
}

/// An attempt is over. A lost lease and an outcome that the store did not take are warnings.
pub fn lease_released(
    lane: &LaneKey,
    ticket: quell_core::step::RunTicket,
    worker: &WorkerId,
    held: Duration,
    end: &RunEnd,
) {
    let held_ms = u64::try_from(held.as_millis()).unwrap_or(u64::MAX);
    let (run, token) = (ticket.run_id, ticket.token);
    let ended = match end {
        RunEnd::Settled { state } => state.as_str(),
        RunEnd::Lost(_) => "lost",
        RunEnd::GaveUp(_) => "unsettled",
    };
    let queue = QUEUES.of(lane.queue.as_str());
    metrics::counter!("quell_runs_ended_total", "queue" => queue, "end" => ended).increment(1);
    metrics::histogram!("quell_run_seconds", "queue" => queue).record(held.as_secs_f64());
    match end {
        RunEnd::Settled { state } => tracing::debug!(
            tenant = %lane.tenant, queue = %lane.queue, key = %lane.key, %run, token, worker = %worker.name,
            pid = worker.pid, held_ms, %state, "lease.released"
        ),
        RunEnd::Lost(error) => tracing::warn!(
            tenant = %lane.tenant, queue = %lane.queue, key = %lane.key, %run, token, worker = %worker.name,
            pid = worker.pid, held_ms, state = "lost", %error, "lease.released"
        ),
        RunEnd::GaveUp(why) => tracing::error!(
            tenant = %lane.tenant, queue = %lane.queue, key = %lane.key, %run, token, worker = %worker.name,
            pid = worker.pid, held_ms, state = "unsettled", error = %why, "lease.released"
        ),
    }
}

/// A lease ran out and was taken back.
pub fn lease_reclaimed(reclaimed: &Reclaimed) {
    let Reclaimed { lane, run_id, token, worker, claimed_at, state } = reclaimed;
    metrics::counter!("quell_leases_reclaimed_total", "queue" => QUEUES.of(lane.queue.as_str())).increment(1);
    let (prior, prior_pid) = worker.as_ref().map_or(("", 0), |w| (w.name.as_str(), w.pid));
    tracing::warn!(
        tenant = %lane.tenant, queue = %lane.queue, key = %lane.key, run = %run_id, token, prior_worker = prior,
        prior_pid, since = %claimed_at, %state, "lease.reclaimed"
    );
}

/// What the first sweep of a worker found; also written when it found nothing, so that its absence means something.
pub fn startup_swept(worker: &WorkerId, swept: &[Reclaimed]) {
    static FOUND: AtomicU64 = AtomicU64::new(0);
    let found = FOUND.fetch_add(swept.len() as u64, Ordering::Relaxed) + swept.len() as u64;
    #[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
    metrics::gauge!("quell_start_expired_leases").set(found as f64);
    started();
    let list: Vec<String> = swept.iter().map(|r| format!("{} ({})", r.lane, r.run_id)).collect();
    tracing::info!(worker = %worker.name, pid = worker.pid, count = swept.len(), list = ?list, "startup.swept");
}

/// The loop moved. Moves of every round are `debug`; those that an operator asks about later are not.
pub fn worker_state(worker: &WorkerId, from: WorkerState, to: WorkerState, running: usize) {
    let (from, name) = (from.as_str(), to.as_str());
    match to {
        WorkerState::Draining | WorkerState::Stopped => {
            tracing::info!(worker = %worker.name, pid = worker.pid, from, to = name, running, "worker.state");
        }
        _ => {
            tracing::debug!(worker = %worker.name, pid = worker.pid, from, to = name, running, "worker.state")
        }
    }
}

/// The store did not answer as hoped; the loop goes to ErrorWait.
pub fn store_failed(worker: &WorkerId, call: &'static str, error: &StoreError) {
    metrics::counter!("quell_store_failures_total", "call" => call).increment(1);
    tracing::warn!(
        worker = %worker.name, pid = worker.pid, from = call, to = WorkerState::ErrorWait.as_str(), %error,
        "worker.state"
    );
}

/// A step of the retention removed something.
pub fn retention_step(swept: &Swept) {
    let Swept { removed_runs: runs, removed_events: events, removed_audit: audit, more, .. } = swept;
    tracing::debug!(runs, events, audit, more, "retention.step");
}

/// A worker has brought the configured schedules into the store.
pub fn sources_applied(applied: &AppliedSources) {
    let AppliedSources { put, unchanged, removed } = applied;
    tracing::info!(put, unchanged, removed, "sources.applied");
}

pub fn schedules_applied(applied: &AppliedSchedules) {
    let AppliedSchedules { put, unchanged, removed } = applied;
    if put + unchanged + removed > 0 {
        tracing::info!(put, unchanged, removed, "schedules.applied");
    }
}

/// This process begins to work, which is when it looks for what others left behind.
fn started() {
    #[expect(clippy::cast_precision_loss, reason = "milliseconds stay below 2^53")]
    let now = RealTime::new().wall().as_millis() as f64;
    metrics::gauge!("quell_start_timestamp_seconds").set(now / 1_000.0);
}
