//! Settle and reclaim: an attempt ends, by its holder's word or because its lease ran out.
//!
//! The run's end, the lane's new state, the counters and the audit record are one transaction. A repeated settle is
//! answered from the trail: the same verdict gets the same answer, another one is refused.

use std::collections::BTreeMap;

use quell_core::error::{StoreError, StoreResult};
use quell_core::event::LaneKey;
use quell_core::lane::{self, Finished, NotHolder, Settlement, Step};
use quell_core::lifecycle::{Change, RunState};
use quell_core::store::{Reclaimed, SettleRequest, Settled, already_settled};
use rusqlite::types::Value;

use crate::claim::key_of;
use crate::error::not_done;
use crate::rows::{self, LaneRow, at, maybe_at, number, small, state_code};
use crate::tx::{QueueRow, Tx};

pub(crate) fn settle(tx: &mut Tx<'_, '_>, request: &SettleRequest) -> StoreResult<Settled> {
    if !request.run_id.is_plausible() || request.token >= quell_core::limits::NUMBER_MAX {
        return Err(StoreError::lost_lease(request.run_id, request.token));
    }
    let row = tx.lane(request.run_id.lane).map_err(|e| not_done(&e))?;
    let Some(mut row) = row else { return Err(StoreError::lost_lease(request.run_id, request.token)) };
    let end = Settlement { verdict: request.verdict, delay: request.delay };
    let (number, token) = (request.run_id.number, request.token);
    match row.lane.settle(tx.now, number, token, &end, request.error.clone()) {
        Ok(step) => {
            let state = step.made.to.expect("a settlement names a state");
            let next_at = step.made.next_at;
            let report = Report { result: request.result.as_ref(), usage: &request.usage };
            apply(tx, &row, &step, report).map_err(|e| not_done(&e))?;
            Ok(Settled { state, next_at, repeated: false })
        }
        Err(NotHolder) => settled_before(tx, request),
    }
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
    apply(tx, &row, &step, Report { result: None, usage: &BTreeMap::new() })?;
    let lane = LaneKey { tenant: queue.tenant.clone(), queue: queue.name.clone(), key: key_of(&row.key)? };
    Ok(Reclaimed { lane, run_id, token: held.token, worker: held.worker, claimed_at: held.claimed_at, state })
}

/// What a handler reported beside its verdict.
struct Report<'a> {
    result: Option<&'a serde_json::Value>,
    usage: &'a BTreeMap<String, f64>,
}

fn apply(tx: &mut Tx<'_, '_>, row: &LaneRow, step: &Step, report: Report<'_>) -> rusqlite::Result<()> {
    let now = tx.now;
    let lane = &row.lane;
    // An overdue lane becomes due now and goes behind those that have been due for longer.
    let due = lane.due_at().map(|due| due.max(now));
    if let Some(finished) = &step.finished {
        tx.change_lane(include_str!("../sql/settle_idle.sql"), [number(lane.id), maybe_at(due), at(now)])?;
        write_finished(tx, lane.id, finished, report)?;
        tx.queue(row.queue_id)?.totals.finished(finished.state, finished.run.count);
    } else {
        tx.write_runs(lane, due, row.worker)?;
    }
    tx.audit(row.queue_id, Some(lane.id), &step.made, None)?;
    let queue = tx.queue(row.queue_id)?;
    queue.running -= 1;
    // Those who found the queue at its `max_running` sleep without a time: this place is what they wait for.
    let waited_for = queue.max_running.is_some() && queue.next_at.is_some();
    tx.wake |= waited_for;
    tx.due(row.queue_id, due)
}

fn write_finished(
    tx: &mut Tx<'_, '_>,
    lane: u64,
    finished: &Finished,
    report: Report<'_>,
) -> rusqlite::Result<()> {
    let id = tx.fresh();
    let run = &finished.run;
    let worker = run.worker.as_ref().map(|w| tx.worker(w)).transpose()?;
    let text = |t: Option<String>| t.map_or(Value::Null, Value::Text);
    let usage = (!report.usage.is_empty()).then(|| serde_json::to_string(report.usage).unwrap_or_default());
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
        text(run.error.clone()),
        text(report.result.map(|r| r.to_string())),
        text(usage),
    ];
    tx.execute(include_str!("../sql/settle_run.sql"), values)?;
    Ok(())
}

/// Re-reads before calling a token stale: it may have settled this run already.
fn settled_before(tx: &mut Tx<'_, '_>, request: &SettleRequest) -> StoreResult<Settled> {
    let sql = "SELECT change, to_state, next_at FROM audit WHERE lane_id = ?1 AND run = ?2 AND token = ?3";
    let read = |row: &rusqlite::Row<'_>| {
        let change: Change = rows::decode(&Change::ALL, row.get(0)?)?;
        let to: Option<i64> = row.get(1)?;
        let state = to.map(|code| rows::decode(&RunState::ALL, code)).transpose()?;
        Ok((change, state, rows::maybe_time(row, 2)?))
    };
    let (id, token) = (request.run_id, request.token);
    let find = || -> rusqlite::Result<Option<_>> {
        let mut statement = tx.connection.prepare_cached(sql)?;
        for record in statement.query_map((id.lane, id.number, token), read)? {
            let (change, state, next_at) = record?;
            if lane::is_settlement(change) {
                return Ok(state.map(|state| (change, state, next_at)));
            }
        }
        Ok(None)
    };
    let Some((change, state, next_at)) = find().map_err(|e| not_done(&e))? else {
        return Err(StoreError::lost_lease(id, token));
    };
    if !lane::same_settlement(request.verdict, change) {
        return Err(already_settled(id, token, change));
    }
    Ok(Settled { state, next_at, repeated: true })
}
