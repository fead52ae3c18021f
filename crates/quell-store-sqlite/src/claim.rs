//! Claim: due lanes are handed out, one batch and one lease each.
//!
//! Queues are found by their own `next_at`, which is never later than that of any of their lanes, so a claim costs the
//! same however many queues and lanes are waiting. Within a queue the due index gives the lanes in order (`due.rs`), those
//! of a source only as far as it lets them go: its token is taken in this transaction. Index entries may lie before the true times (windows that restarted, leases that were extended): the claim pushes such entries and goes on until
//! it has enough or nothing is left. Each queue with due lanes gets its share before any gets more.

use std::collections::HashMap;
use std::sync::Arc;

use quell_core::aside::told;
use quell_core::batch::{Batch, WorkerId};
use quell_core::clock::Timestamp;
use quell_core::error::StoreResult;
use quell_core::event::{Event, Key, LaneKey};
use quell_core::lane::{Attention, Claimer, CurrentRun, Rest, Taken};
use quell_core::limits;
use quell_core::source::{Readiness, SourceId};
use quell_core::store::{ClaimRequest, Claimed, Reclaimed, RunPolicy};
use quell_core::window::Cut;
use rusqlite::Connection;

use crate::aside;
use crate::due::{Ready, due_lanes, earliest, earliest_due, earliest_lease};
use crate::error::not_done;
use crate::rows::{self, LaneRow, maybe_at, number};
use crate::settle::{Report, record_step};
use crate::sources::looker;
use crate::tx::{QueueRow, Tx, paused_by, queue_pauses};

const LANE_EXPIRED: &str = concat!(
    include_str!("../sql/lane.sql"),
    "WHERE queue_id = ?1 AND lease_at <= ?2 ORDER BY lease_at LIMIT ?3"
);
const LANE_CLAIMED: &str = concat!(include_str!("../sql/lane.sql"), "WHERE r_claim_id = ?1 ORDER BY id");
const QUEUES_BY_TIME: &str =
    concat!(include_str!("../sql/queue.sql"), "WHERE next_at IS NOT NULL ORDER BY next_at");

pub(crate) fn claim(tx: &mut Tx<'_, '_>, request: &ClaimRequest) -> StoreResult<Claimed> {
    request.check()?;
    if let Some(id) = &request.claim_id {
        let batches = claimed_before(tx, id, &request.worker).map_err(|e| not_done(&e))?;
        if !batches.is_empty() {
            return Ok(Claimed { batches, now: tx.now, next_at: Some(tx.now), ..Claimed::default() });
        }
    }
    claim_lanes(tx, request).map_err(|e| not_done(&e))
}

/// The live claims that an earlier call of this worker with this id got: its answer may have been lost.
fn claimed_before(
    tx: &mut Tx<'_, '_>,
    claim_id: &str,
    worker: &Arc<WorkerId>,
) -> rusqlite::Result<Vec<Batch>> {
    tx.write_lanes()?;
    let rows: Vec<LaneRow> = tx
        .connection
        .prepare_cached(LANE_CLAIMED)?
        .query_map([claim_id], LaneRow::read)?
        .collect::<rusqlite::Result<_>>()?;
    let mut batches = Vec::new();
    for row in rows {
        let row = tx.with_worker(row)?;
        let Some(run) = row.lane.current.as_ref().filter(|c| c.worker.as_ref() == Some(worker)) else {
            continue;
        };
        if row.lane.lease_at().is_none_or(|until| until <= tx.now) {
            continue;
        }
        let events = run_events(tx.connection, row.lane.id, run)?;
        let queue = tx.queue(row.queue_id)?.clone();
        let key = LaneKey { tenant: queue.tenant, queue: queue.name, key: key_of(&row.key)? };
        batches.push(row.lane.envelope(key, events));
    }
    Ok(batches)
}

fn claim_lanes(tx: &mut Tx<'_, '_>, request: &ClaimRequest) -> rusqlite::Result<Claimed> {
    tx.write_lanes()?;
    tx.write_queues()?;
    let mut work = Work {
        claimed: Claimed { now: tx.now, ..Claimed::default() },
        left: request.max.min(limits::CLAIM_LANES_MAX),
        bytes: 0,
        pushes: limits::CLAIM_PUSH_MAX,
        of_name: HashMap::new(),
    };
    let mut due = Vec::new();
    let now = tx.now;
    queues_by_time(tx.connection, |row| {
        let is_due = row.next_at.is_some_and(|t| t <= now);
        if is_due && let Some(policy) = policy_for(request, &row) {
            due.push((row, policy));
        }
        Ok(is_due)
    })?;
    // A different queue goes first each time, so that none waits behind another's backlog.
    if !due.is_empty() {
        let turn = usize::try_from(tx.now.as_millis() / 7).unwrap_or(0) % due.len();
        due.rotate_left(turn);
    }
    let mut aside = limits::ASIDE_STEP;
    for (row, _) in due.iter().filter(|(row, _)| row.totals.delayed > 0 || row.schedules > 0) {
        aside::fire_and_enter(tx, row, &mut aside)?;
    }
    tx.write_lanes()?;
    let mut queues = due.len();
    for (row, policy) in &due {
        let share = work.left.div_ceil(queues.max(1));
        queues -= 1;
        if work.left == 0 {
            break; // The next claim begins with another queue.
        }
        claim_queue(tx, request, row, policy, share, &mut work)?;
    }
    // What some did not need is for those that have more.
    for (row, policy) in &due {
        if work.left > 0 && tx.queue(row.id)?.next_at.is_some_and(|t| t <= tx.now) {
            claim_queue(tx, request, row, policy, work.left, &mut work)?;
        }
    }
    tx.write_queues()?;
    work.claimed.next_at = next_at(tx, request)?;
    Ok(work.claimed)
}

/// What a claim without any due queue would answer, read without the write lock; nothing when there is work.
pub(crate) fn nothing_due(
    connection: &Connection,
    request: &ClaimRequest,
    now: Timestamp,
) -> rusqlite::Result<Option<Claimed>> {
    if request.claim_id.is_some() {
        return Ok(None); // Its answer may be what an earlier call got.
    }
    let (mut next, mut work) = (None, false);
    let pauses = queue_pauses(connection)?;
    let mut ready = looker(connection, now);
    queues_by_time(connection, |row| {
        if policy_for(request, &row).is_none() {
            return Ok(true);
        }
        work |= row.next_at.is_some_and(|t| t <= now);
        if work || is_later(row.next_at, next) {
            return Ok(false);
        }
        // The queue's own time is early, for instance after the last lane was settled. It has to be set right, because
        // only events that are due before it wake sleepers, and this claimer is about to sleep for longer.
        work |= row.next_at != earliest(connection, &row, &mut ready)?;
        if work {
            return Ok(false);
        }
        let held = paused_by(&pauses, row.tenant.as_str(), row.name.as_str()).is_some();
        let when = earliest_for(connection, request, now, &row, held, &mut ready)?;
        next = [next, when].into_iter().flatten().min();
        Ok(true)
    })?;
    Ok((!work).then(|| Claimed { now, next_at: next, ..Claimed::default() }))
}

/// Whether a queue that is not due before `this` cannot change `best` any more.
fn is_later(this: Option<Timestamp>, best: Option<Timestamp>) -> bool {
    best.is_some_and(|best| this.is_some_and(|this| this >= best))
}

struct Work {
    claimed: Claimed,
    left: usize,
    bytes: u64,
    pushes: usize,
    /// Lanes taken per queue name, against the request's own bound for it.
    of_name: HashMap<String, usize>,
}

/// Goes through the queues that want attention, earliest first, as long as `visit` says so.
fn queues_by_time(
    connection: &Connection,
    mut visit: impl FnMut(QueueRow) -> rusqlite::Result<bool>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(QUEUES_BY_TIME)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if !visit(QueueRow::read(row)?)? {
            break;
        }
    }
    Ok(())
}

fn policy_for<'r>(request: &'r ClaimRequest, row: &QueueRow) -> Option<&'r Arc<RunPolicy>> {
    request.policy_for(&row.tenant, &row.name)
}

fn claim_queue(
    tx: &mut Tx<'_, '_>,
    request: &ClaimRequest,
    queue: &QueueRow,
    policy: &Arc<RunPolicy>,
    share: usize,
    work: &mut Work,
) -> rusqlite::Result<()> {
    let reclaimed = reclaim_expired(tx, queue, request.reclaim, &mut work.pushes)?;
    work.claimed.reclaimed.extend(reclaimed);
    let paused = tx.queue_paused(queue)?;
    let max_running = policy.max_running.map(u64::from);
    let row = tx.queue(queue.id)?;
    row.max_running = max_running;
    let free = max_running.map_or(u64::MAX, |max| max.saturating_sub(row.running));
    let listed = request.room_for(&queue.name);
    let of_name = work.of_name.get(queue.name.as_str()).copied().unwrap_or(0);
    let mut room = share
        .min(work.left)
        .min(listed.saturating_sub(of_name))
        .min(usize::try_from(free).unwrap_or(usize::MAX));
    while !paused && room > 0 && work.pushes > 0 && work.bytes < limits::CLAIM_BYTES_MAX {
        let lanes = due_lanes(tx, queue.id, room)?;
        if lanes.is_empty() {
            break;
        }
        for lane in lanes {
            if work.bytes >= limits::CLAIM_BYTES_MAX {
                break; // The rest is for the next claim.
            }
            match (lane.lane.attention(tx.now), tx.readiness(lane.lane.source())?) {
                (Attention::Again | Attention::Cut, Readiness::Go { probe, .. }) => {
                    let batch = hand_out(tx, request, queue, policy, lane, probe)?;
                    work.bytes += batch.events.iter().map(|e| e.payload.len() as u64).sum::<u64>();
                    work.claimed.batches.push(batch);
                    *work.of_name.entry(queue.name.as_str().to_owned()).or_default() += 1;
                    work.left -= 1;
                    room -= 1;
                }
                _ => {
                    // The window restarted after this entry was written: the entry moves to the true time.
                    let sql = "UPDATE lane SET due_at = ?2 WHERE id = ?1";
                    tx.execute(sql, [number(lane.lane.id), maybe_at(lane.lane.due_at())])?;
                    work.pushes = work.pushes.saturating_sub(1);
                }
            }
        }
    }
    tx.set_next(queue.id)
}

/// Takes back the leases of a queue that ran out, if allowed, and pushes the entries of those that were extended.
pub(crate) fn reclaim_expired(
    tx: &mut Tx<'_, '_>,
    queue: &QueueRow,
    allowed: bool,
    budget: &mut usize,
) -> rusqlite::Result<Vec<Reclaimed>> {
    let mut reclaimed = Vec::new();
    while *budget > 0 {
        let lanes = expired_lanes(tx, queue.id, (*budget).min(limits::SWEEP_LANES_STEP))?;
        if lanes.is_empty() {
            break;
        }
        for lane in lanes {
            *budget = budget.saturating_sub(1);
            if lane.lane.attention(tx.now) != Attention::Expired {
                // An extended lease: the entry moves to the true end.
                let sql = "UPDATE lane SET lease_at = ?2 WHERE id = ?1";
                tx.execute(sql, [number(lane.lane.id), maybe_at(lane.lane.lease_at())])?;
            } else if allowed {
                reclaimed.push(crate::settle::reclaim(tx, queue, lane)?);
            }
        }
        if !allowed {
            break; // What is left there is for those who may take it back.
        }
    }
    Ok(reclaimed)
}

fn expired_lanes(tx: &mut Tx<'_, '_>, queue: u64, limit: usize) -> rusqlite::Result<Vec<LaneRow>> {
    let now = tx.now.as_millis();
    let lanes: Vec<LaneRow> = tx
        .statements
        .get(LANE_EXPIRED)?
        .query_map((queue, now, limit), LaneRow::read)?
        .collect::<rusqlite::Result<_>>()?;
    lanes.into_iter().map(|lane| tx.with_worker(lane)).collect()
}

fn hand_out(
    tx: &mut Tx<'_, '_>,
    request: &ClaimRequest,
    queue: &QueueRow,
    policy: &Arc<RunPolicy>,
    mut row: LaneRow,
    probe: bool,
) -> rusqlite::Result<Batch> {
    let now = tx.now;
    let token = tx.fresh();
    let key = LaneKey { tenant: queue.tenant.clone(), queue: queue.name.clone(), key: key_of(&row.key)? };
    let events = match &row.lane.current {
        None => cut_open(tx, queue, &mut row)?,
        Some(current) => {
            let mut events = run_events(tx.connection, row.lane.id, current)?;
            if current.is_buffered() {
                let count = current.count;
                tx.queue(queue.id)?.totals.taken(count);
            } else {
                events.extend(merge(tx, queue, &key, policy, &mut row)?);
            }
            events
        }
    };
    let claimer = Claimer {
        worker: request.worker.clone(),
        token,
        policy: told(policy, &events),
        claim_id: request.claim_id.clone(),
        probe,
    };
    let made = row.lane.claim(now, &claimer);
    tx.write_whole(&row, None)?;
    tx.audit(queue.id, Some(row.lane.id), &made, None)?;
    tx.queue(queue.id)?.running += 1;
    let batch = row.lane.envelope(key, events);
    if let Some(id) = batch.source {
        tx.change_source(id, |source| source.take(now, batch.run_id, token, batch.lease_until))?;
    }
    Ok(batch)
}

/// Cuts the batch out of the open run.
fn cut_open(tx: &mut Tx<'_, '_>, queue: &QueueRow, row: &mut LaneRow) -> rusqlite::Result<Vec<Event>> {
    let open = row.lane.open.expect("an idle lane is not due");
    let mut cut = Cut::new(&open.window.window);
    let (events, rest) = read_batch(tx, row.lane.id, open.lo, open.source, &mut cut)?;
    let last = events.last().expect("an open run has events");
    let taken = Taken { count: cut.count, bytes: cut.bytes, hi: last.seq, last_at: last.received_at, rest };
    let leftover = if rest.is_some() { tx.fresh() } else { 0 };
    row.lane.cut(tx.now, taken, || leftover);
    tx.queue(queue.id)?.totals.taken(cut.count);
    Ok(events)
}

/// A run that gave way to newer events, or is retried with them, takes in what fits.
fn merge(
    tx: &mut Tx<'_, '_>,
    queue: &QueueRow,
    key: &LaneKey,
    policy: &RunPolicy,
    row: &mut LaneRow,
) -> rusqlite::Result<Vec<Event>> {
    let Some(run) = row.lane.takes_newer(policy) else { return Ok(Vec::new()) };
    let (count, bytes, source) = (run.count, run.bytes, run.source);
    let mut cut = Cut::after(&run.bounds(), count, bytes);
    let lo = row.lane.open.expect("there is something newer").lo;
    let (events, rest) = read_batch(tx, row.lane.id, lo, source, &mut cut)?;
    let Some(last) = events.last() else { return Ok(events) };
    let (taken_count, taken_bytes) = (cut.count - count, cut.bytes - bytes);
    let taken =
        Taken { count: taken_count, bytes: taken_bytes, hi: last.seq, last_at: last.received_at, rest };
    let leftover = if rest.is_some() { tx.fresh() } else { 0 };
    let step = row.lane.absorb(tx.now, taken, || leftover);
    tx.queue(queue.id)?.totals.taken(taken_count);
    record_step(tx, queue.id, row.lane.id, key, step, &Report::default(), None)?;
    Ok(events)
}

pub(crate) fn key_of(text: &str) -> rusqlite::Result<Key> {
    Key::new(text).map_err(|e| rusqlite::types::FromSqlError::Other(Box::new(e)).into())
}

/// The events of a run, in order.
pub(crate) fn run_events(
    connection: &Connection,
    lane: u64,
    run: &CurrentRun,
) -> rusqlite::Result<Vec<Event>> {
    let mut statement = connection.prepare_cached(include_str!("../sql/claim_events.sql"))?;
    let mark = run.marked.then_some(run.number);
    statement.query_map((lane, run.lo, run.hi, mark), rows::event)?.collect()
}

/// Reads the open run from its front until the batch is full or another source begins; says what is left over.
fn read_batch(
    tx: &mut Tx<'_, '_>,
    lane: u64,
    lo: u64,
    source: Option<SourceId>,
    cut: &mut Cut,
) -> rusqlite::Result<(Vec<Event>, Option<Rest>)> {
    let statement = tx.statements.get(include_str!("../sql/claim_events.sql"))?;
    let unmarked: Option<u64> = None;
    let mut rows = statement.query((lane, lo, i64::MAX, unmarked))?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        let event = rows::event(row)?;
        let asks = rows::maybe_source(row, 6)?;
        if asks != source || !cut.takes(event.payload.len() as u64) {
            return Ok((events, Some(Rest { lo: event.seq, first_at: event.received_at, source: asks })));
        }
        events.push(event);
    }
    Ok((events, None))
}

/// An expired lease that this claimer may not take back is left for others, who look for it themselves.
fn earliest_for(
    connection: &Connection,
    request: &ClaimRequest,
    now: Timestamp,
    row: &QueueRow,
    held: bool,
    ready: Ready<'_>,
) -> rusqlite::Result<Option<Timestamp>> {
    let due = if held { None } else { earliest_due(connection, row, ready)? };
    let aside = aside::earliest(connection, row)?;
    let after = if request.reclaim { i64::MIN } else { now.as_millis() };
    let lease = earliest_lease(connection, row.id, after)?;
    Ok([due, lease, aside].into_iter().flatten().min())
}

/// When this claimer should look again. A paused queue and one at its `max_running` count only with their leases:
/// their due lanes become claimable by a resume or a settle, which wake.
fn next_at(tx: &mut Tx<'_, '_>, request: &ClaimRequest) -> rusqlite::Result<Option<Timestamp>> {
    let mut next: Option<Timestamp> = None;
    let (connection, now) = (tx.connection, tx.now);
    queues_by_time(connection, |row| {
        if is_later(row.next_at, next) {
            return Ok(false);
        }
        let Some(policy) = policy_for(request, &row) else { return Ok(true) };
        let full = policy.max_running.is_some_and(|max| row.running >= u64::from(max));
        let held = full || tx.queue_paused(&row)?;
        tx.set_next(row.id)?;
        let when = earliest_for(connection, request, now, &row, held, &mut |source| tx.readiness(source))?;
        next = [next, when].into_iter().flatten().min();
        Ok(true)
    })?;
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::due::{LANE_DUE, LANE_DUE_FIRST, LEASE_FIRST, QUEUE_NEXT, SOURCE_NEXT};

    #[test]
    fn pitfall_43_claims_go_by_index_and_never_scan_or_sort() {
        let schema = include_str!("../schema.sql");
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(schema).unwrap();
        let statements = [
            LANE_DUE,
            LANE_EXPIRED,
            QUEUES_BY_TIME,
            LANE_DUE_FIRST,
            LANE_CLAIMED,
            "SELECT min(look_at) FROM aside WHERE queue_id = ?1",
            "SELECT min(next_at) FROM schedule WHERE queue_id = ?1 AND next_at IS NOT NULL",
            LEASE_FIRST,
            SOURCE_NEXT,
            QUEUE_NEXT,
            include_str!("../sql/claim_events.sql"),
        ];
        for sql in statements {
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let plan: Vec<String> = statement
                .query_map(rusqlite::params_from_iter(vec![1; statement.parameter_count()]), |row| row.get(3))
                .unwrap()
                .collect::<rusqlite::Result<_>>()
                .unwrap();
            let plan = plan.join("; ");
            assert!(plan.contains("USING") && !plan.contains("TEMP B-TREE"), "{sql}: {plan}");
            assert!(!plan.contains("SCAN lane") && !plan.contains("SCAN event"), "{sql}: {plan}");
        }
    }
}
