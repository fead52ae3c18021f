//! Settle and reclaim: an attempt ends, by its holder's word or because its lease ran out.
//!
//! The run's end, the lane's new state, the counters, the audit records, what the settle carries and whom it notifies
//! are one transaction. A repeated settle is answered from the trail: the same verdict gets the same answer, another one
//! is refused. [`apply`] is the one way in which a step of `quell_core::lane` becomes rows; operators use it too.

use std::collections::BTreeMap;

use quell_core::aside::{carried, notice};
use quell_core::attempt;
use quell_core::batch::RunId;
use quell_core::clock::Timestamp;
use quell_core::error::{StoreError, StoreResult};
use quell_core::event::LaneKey;
use quell_core::lane::{CurrentRun, Finished, NotHolder, Part, Step};
use quell_core::lifecycle::{Change, RunState};
use quell_core::outcome::VerdictKind;
use quell_core::source::SourceId;
use quell_core::store::{Reclaimed, SettleRequest, Settled, already_settled};
use rusqlite::types::Value;

use crate::append::mark;
use crate::aside;
use crate::claim::key_of;
use crate::error::not_done;
use crate::rows::{
    self, LaneRow, at, extra_value, flags, maybe_at, maybe_source, maybe_text, number, small, source_code,
    state_code, time,
};
use crate::step::put_step;
use crate::tx::{QueueRow, Tx};

pub(crate) fn settle(tx: &mut Tx<'_, '_>, request: &SettleRequest) -> StoreResult<Settled> {
    request.check()?;
    let (run, token) = (request.run_id, request.token);
    let lost = || StoreError::lost_lease(run, token);
    if !run.is_plausible() || token >= quell_core::limits::NUMBER_MAX {
        return Err(lost());
    }
    // An erased lane is gone, but what its holders have said is still on record.
    let row = tx.lane(run.lane).map_err(|e| not_done(&e))?;
    let holder = row.as_ref().and_then(|row| row.lane.holder(run.number, token));
    let (source, probe, claims) =
        holder.map_or((None, false, 0), |held| (held.source, held.probe, held.claims));
    let now = tx.now;
    let governs = source.map(|id| tx.source(id)).transpose().map_err(|e| not_done(&e))?.flatten();
    let refund = governs.is_some_and(|source| source.refunds(now, run, token, probe, request.source));
    let end = request.settlement(refund);
    let ended = row.ok_or(NotHolder).and_then(|mut row| {
        let step = row.lane.settle(now, run.number, token, &end, request.error.clone())?;
        Ok((row, step))
    });
    match ended {
        Ok((mut row, step)) => {
            let kept = attempt::row(now, claims, request);
            let written = kept.map_or(Ok(()), |kept| put_step(tx, run, &kept));
            written.and_then(|()| settled(tx, &mut row, step, source, request)).map_err(|e| not_done(&e))
        }
        Err(NotHolder) => {
            let before = settled_before(tx, run, token).map_err(|e| not_done(&e))?;
            let Before { change, state, next_at, verdict } = before.ok_or_else(lost)?;
            if verdict != request.verdict.kind() {
                return Err(already_settled(run, token, change));
            }
            Ok(Settled { state, change, next_at, repeated: true })
        }
    }
}

fn settled(
    tx: &mut Tx<'_, '_>,
    row: &mut LaneRow,
    step: Step,
    source: Option<SourceId>,
    request: &SettleRequest,
) -> rusqlite::Result<Settled> {
    let state = step.made.to.expect("a settlement names a state");
    let (change, next_at) = (step.made.change, step.made.next_at);
    let ended = step.finished.is_some() && !step.split;
    let report = Report { result: request.result.as_ref(), usage: Some(&request.usage) };
    // First, so that nobody is woken for a lane which the source does not let go any more.
    if let Some(id) = source {
        let (now, run, token) = (tx.now, request.run_id, request.token);
        let verdict = request.verdict.kind();
        tx.change_source(id, |source| source.settled(now, run, token, verdict, request.source))?;
    }
    apply(tx, row, step, &report, None)?;
    if ended {
        for event in carried(request.run_id, &request.events) {
            let ready_at = tx.now.after(event.delay.unwrap_or_default());
            aside::put(tx, &event, ready_at)?;
        }
    }
    Ok(Settled { state, change, next_at, repeated: false })
}

/// The run's lease ran out: back to the lane, or to the dead letter after the last attempt.
pub(crate) fn reclaim(
    tx: &mut Tx<'_, '_>,
    queue: &QueueRow,
    mut row: LaneRow,
) -> rusqlite::Result<Reclaimed> {
    let held = row.lane.current.clone().expect("an expired lane has a current run");
    let run_id = row.lane.run_id(held.number);
    let step = row.lane.reclaim(tx.now);
    let state = step.made.to.expect("a reclaim names a state");
    apply(tx, &mut row, step, &Report::default(), None)?;
    let lane = LaneKey { tenant: queue.tenant.clone(), queue: queue.name.clone(), key: key_of(&row.key)? };
    Ok(Reclaimed { lane, run_id, token: held.token, worker: held.worker, claimed_at: held.claimed_at, state })
}

/// What a handler reported beside its verdict.
#[derive(Default)]
pub(crate) struct Report<'a> {
    pub(crate) result: Option<&'a serde_json::Value>,
    pub(crate) usage: Option<&'a BTreeMap<String, f64>>,
}

/// Writes down what a step did to a lane that the caller has read and changed: the lane itself, and everything that
/// [`record_step`] writes. `running` of the queue is counted by what the lane was and is.
pub(crate) fn apply(
    tx: &mut Tx<'_, '_>,
    row: &mut LaneRow,
    step: Step,
    report: &Report<'_>,
    actor: Option<&str>,
) -> rusqlite::Result<()> {
    let now = tx.now;
    let was_running = row.lease_entry.is_some();
    let queue = tx.queue(row.queue_id)?.clone();
    let key = LaneKey { tenant: queue.tenant, queue: queue.name, key: key_of(&row.key)? };
    let ended = step.finished.is_some();
    if step.split {
        let parent = step.finished.as_ref().map(|f| f.run.clone()).expect("a split has a parent");
        let (step, moves) = split(tx, row, step, &parent)?;
        record_step(tx, row.queue_id, row.lane.id, &key, step, report, actor)?;
        for made in moves {
            tx.audit(row.queue_id, Some(row.lane.id), &made, actor)?;
        }
    } else {
        record_step(tx, row.queue_id, row.lane.id, &key, step, report, actor)?;
    }
    let lane = &row.lane;
    // An overdue lane becomes due now and goes behind those that have been due for longer.
    let due = lane.due_at().map(|due| due.max(now));
    let plain = lane.current.is_none() && lane.blocked.is_none() && lane.paused.is_none();
    if ended && was_running && plain {
        let priority = Value::Integer(i64::from(lane.priority()));
        let source = number(source_code(lane.source()));
        let values = [number(lane.id), maybe_at(due), at(now), priority, source];
        tx.change_lane(include_str!("../sql/settle_idle.sql"), values)?;
        tx.has_lanes(row.queue_id, lane.priority(), lane.source())?;
    } else {
        tx.write_whole(row, due)?;
    }
    let is_running = lane.lease_at().is_some();
    let queue = tx.queue(row.queue_id)?;
    if was_running && !is_running {
        queue.running -= 1;
        // Those who found the queue at its `max_running` sleep without a time: this place is what they wait for. Not
        // every claimer has the same bound, so overdue lanes are waited for in any case.
        let waited_for = queue.max_running.is_some() && queue.next_at.is_some();
        let overdue = queue.next_at.is_some_and(|next| next <= now);
        tx.wake |= waited_for || overdue;
    }
    row.lease_entry = lane.lease_at();
    tx.lane_due(row.queue_id, lane.source(), due)
}

/// Writes what a step did beside the lane's own row: records, the finished run, counters, and whom it notifies.
pub(crate) fn record_step(
    tx: &mut Tx<'_, '_>,
    queue: u64,
    lane: u64,
    key: &LaneKey,
    step: Step,
    report: &Report<'_>,
    actor: Option<&str>,
) -> rusqlite::Result<()> {
    tx.audit(queue, Some(lane), &step.made, actor)?;
    if let Some(also) = &step.also {
        tx.audit(queue, Some(lane), also, actor)?;
    }
    let Some(ended) = &step.finished else { return Ok(()) };
    write_finished(tx, lane, ended, report)?;
    let totals = &mut tx.queue(queue)?.totals;
    match ended.was_buffered {
        true => totals.discarded_buffered(ended.run.count),
        false => totals.finished(ended.state, ended.run.count),
    }
    let run = RunId { lane, number: ended.run.number };
    if let Some(event) = notice(key, run, ended, report.result) {
        aside::put(tx, &event, tx.now)?;
    }
    Ok(())
}

/// Halves a run that failed: its events belong to the halves from now on.
fn split(
    tx: &mut Tx<'_, '_>,
    row: &mut LaneRow,
    mut step: Step,
    parent: &CurrentRun,
) -> rusqlite::Result<(Step, [quell_core::audit::Move; 2])> {
    let members = members(tx, row.lane.id, parent)?;
    let (left, right) = members.split_at(members.len().div_ceil(2));
    let numbers = [tx.fresh(), tx.fresh()];
    let from = parent.marked.then_some(parent.number);
    let halves = [left, right];
    let mut parts = Vec::new();
    for (run, half) in numbers.into_iter().zip(halves) {
        let part = part(run, half);
        mark(tx, row.lane.id, part.lo, part.hi, from, run)?;
        parts.push(part);
    }
    let moves = row.lane.split(tx.now, parent, parts[0], parts[1]);
    if let Some(finished) = step.finished.as_mut() {
        finished.run.count = 0;
        finished.run.bytes = 0;
        finished.run.links.split_into = Some((numbers[0], numbers[1]));
    }
    Ok((step, moves))
}

/// One event as far as a run made of it needs to know it.
#[derive(Clone, Copy)]
pub(crate) struct Member {
    pub(crate) seq: u64,
    pub(crate) bytes: u64,
    pub(crate) received_at: Timestamp,
    pub(crate) source: Option<SourceId>,
}

/// The events of a run, in order.
pub(crate) fn members(tx: &mut Tx<'_, '_>, lane: u64, run: &CurrentRun) -> rusqlite::Result<Vec<Member>> {
    let sql = "SELECT seq, octet_length(payload), received_at, source FROM event
               WHERE lane_id = ?1 AND seq BETWEEN ?2 AND ?3 AND mark IS ?4 ORDER BY seq";
    let mark = run.marked.then_some(run.number);
    let read = |row: &rusqlite::Row<'_>| {
        let source = maybe_source(row, 3)?;
        Ok(Member { seq: row.get(0)?, bytes: row.get(1)?, received_at: time(row, 2)?, source })
    };
    tx.connection.prepare_cached(sql)?.query_map((lane, run.lo, run.hi, mark), read)?.collect()
}

/// What is to be known of these events to make a run of them.
pub(crate) fn part(run: u64, members: &[Member]) -> Part {
    let (first, last) = members.first().zip(members.last()).expect("a part has at least one event");
    Part {
        number: run,
        lo: first.seq,
        hi: last.seq,
        count: members.len() as u64,
        bytes: members.iter().map(|m| m.bytes).sum(),
        first_at: first.received_at,
        last_at: last.received_at,
        source: first.source,
    }
}

pub(crate) fn write_finished(
    tx: &mut Tx<'_, '_>,
    lane: u64,
    finished: &Finished,
    report: &Report<'_>,
) -> rusqlite::Result<()> {
    let id = tx.fresh();
    write_run(tx, id, lane, finished, report)
}

/// Writes the history of a run under this number, which says where it stands in the order of ending.
pub(crate) fn write_run(
    tx: &mut Tx<'_, '_>,
    id: u64,
    lane: u64,
    finished: &Finished,
    report: &Report<'_>,
) -> rusqlite::Result<()> {
    let run = &finished.run;
    let worker = run.worker.as_ref().map(|w| tx.worker(w)).transpose()?;
    let usage = report.usage.filter(|usage| !usage.is_empty());
    let usage = usage.map(|usage| serde_json::to_string(usage).unwrap_or_default());
    let values = [
        number(id),
        number(lane),
        number(run.number),
        Value::Integer(state_code(finished.state)),
        number(run.lo),
        number(run.hi),
        number(run.count),
        number(run.bytes),
        at(run.first_at),
        at(run.last_at),
        Value::Integer(rows::encode(&quell_core::window::FiredBy::ALL, run.fired_by)),
        small(run.claims),
        small(run.refunds),
        small(run.retries),
        number(run.token),
        worker.map_or(Value::Null, number),
        at(run.claimed_at),
        at(run.heartbeat_at),
        at(finished.at),
        maybe_text(run.error.clone()),
        maybe_text(report.result.map(|r| r.to_string())),
        maybe_text(usage),
        flags(run),
        small(run.interrupts),
        small(run.revision),
        Value::Integer(i64::from(run.priority)),
        small(run.max_events),
        number(run.max_bytes),
        extra_value(run),
    ];
    tx.execute(include_str!("../sql/settle_run.sql"), values)?;
    Ok(())
}

/// How a token has settled a run.
pub(crate) struct Before {
    pub(crate) change: Change,
    pub(crate) state: RunState,
    pub(crate) next_at: Option<Timestamp>,
    pub(crate) verdict: VerdictKind,
}

/// What the holder said. Records of schema 1 have only the change, which tells it but for exhausted attempts.
fn verdict(row: &rusqlite::Row<'_>) -> rusqlite::Result<VerdictKind> {
    if let Some(code) = row.get::<_, Option<i64>>(3)? {
        return rows::decode(&VerdictKind::ALL, code);
    }
    Ok(match rows::decode(&Change::ALL, row.get(0)?)? {
        Change::Succeeded => VerdictKind::Succeeded,
        Change::Failed => VerdictKind::Failed,
        Change::Released | Change::ReleasedCounted => VerdictKind::Release,
        _ => VerdictKind::Retry,
    })
}

/// Re-reads before calling a token stale: it may have settled this run already.
pub(crate) fn settled_before(
    tx: &mut Tx<'_, '_>,
    run: RunId,
    token: u64,
) -> rusqlite::Result<Option<Before>> {
    let sql = "SELECT change, to_state, next_at, verdict FROM audit
               WHERE lane_id = ?1 AND run = ?2 AND token = ?3 AND id > ?3
                 AND (verdict IS NOT NULL OR change BETWEEN 1 AND 6)";
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Before {
            change: rows::decode(&Change::ALL, row.get(0)?)?,
            state: rows::decode(&RunState::ALL, row.get(1)?)?,
            next_at: rows::maybe_time(row, 2)?,
            verdict: verdict(row)?,
        })
    };
    let mut statement = tx.connection.prepare_cached(sql)?;
    let mut found = statement.query_map((run.lane, run.number, token), read)?;
    found.next().transpose()
}
