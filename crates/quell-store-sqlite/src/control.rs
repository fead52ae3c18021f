//! Control: an operator flushes, pauses or resumes, and the trail says who.

use quell_core::error::StoreResult;
use quell_core::event::{LaneKey, Tenant};
use quell_core::lane::{self, Lane};
use quell_core::lifecycle::Change;
use quell_core::store::{Control, ControlAction, Controlled, QueueScope};
use quell_core::window::FiredBy;
use rusqlite::types::Value;

use crate::claim::earliest;
use crate::error::not_done;
use crate::rows::{LaneRow, at, encode, maybe_at, number};
use crate::tx::{PendingLane, Tx};

pub(crate) fn control(tx: &mut Tx<'_, '_>, request: &Control) -> StoreResult<Controlled> {
    let actor = request.actor.as_str();
    let changed = match &request.action {
        ControlAction::Flush(key) => change_lane(tx, key, actor, false, |lane, now| lane.flush(now)),
        ControlAction::PauseLane(key) => {
            change_lane(tx, key, actor, true, |lane, now| lane.pause(now, actor))
        }
        ControlAction::ResumeLane(key) => change_lane(tx, key, actor, false, |lane, now| lane.resume(now)),
        ControlAction::PauseQueue(scope) => pause_queue(tx, scope, actor),
        ControlAction::ResumeQueue(scope) => resume_queue(tx, scope, actor),
    };
    Ok(Controlled { changed: changed.map_err(|e| not_done(&e))? })
}

/// Changes one lane; with `make` a key that has never been seen can be paused before its first event.
fn change_lane(
    tx: &mut Tx<'_, '_>,
    key: &LaneKey,
    actor: &str,
    make: bool,
    change: impl FnOnce(&mut Lane, quell_core::clock::Timestamp) -> Option<quell_core::audit::Move>,
) -> rusqlite::Result<bool> {
    let found = tx.find_queue(&key.tenant, &key.queue)?;
    let queue = match found {
        Some(queue) => queue,
        None if make => tx.queue_id(&key.tenant, &key.queue)?,
        None => return Ok(false),
    };
    let mut row = match tx.lane_by_key(queue, key.key.as_str())? {
        Some(row) => row,
        None if make => new_lane(tx, queue, key)?,
        None => return Ok(false),
    };
    let Some(made) = change(&mut row.lane, tx.now) else { return Ok(false) };
    let lane = &row.lane;
    let due = lane.due_at().map(|due| due.max(tx.now));
    let (closed_by, closed_at) = match lane.open.and_then(|o| o.window.closed) {
        Some((by, when)) => (Value::Integer(encode(&FiredBy::ALL, by)), at(when)),
        None => (Value::Null, Value::Null),
    };
    let (paused_at, paused_by) = match &lane.paused {
        Some(paused) => (at(paused.at), Value::Text(paused.by.clone())),
        None => (Value::Null, Value::Null),
    };
    let values = [
        number(lane.id),
        maybe_at(due),
        at(tx.now),
        paused_at,
        paused_by,
        closed_by,
        closed_at,
        maybe_at(lane.current.as_ref().map(|c| c.due_at)),
    ];
    tx.execute(include_str!("../sql/control_lane.sql"), values)?;
    tx.audit(queue, Some(lane.id), &made, Some(actor))?;
    tx.due(queue, due)?;
    // A pause may have taken away what the queue waited for: its time is set anew, so nobody wakes for nothing.
    let next = earliest(tx.connection, queue)?;
    tx.queue(queue)?.next_at = next;
    Ok(true)
}

fn new_lane(tx: &mut Tx<'_, '_>, queue: u64, key: &LaneKey) -> rusqlite::Result<LaneRow> {
    let lane = Lane::new(tx.fresh(), tx.now);
    let key = key.key.as_str().to_owned();
    let row =
        LaneRow { lane, queue_id: queue, key: key.clone(), due_entry: None, lease_entry: None, worker: None };
    tx.lanes.insert((queue, key), PendingLane { row: row.clone(), new: true, changed: true });
    tx.write_lanes()?;
    Ok(row)
}

fn pause_queue(tx: &mut Tx<'_, '_>, scope: &QueueScope, actor: &str) -> rusqlite::Result<bool> {
    let [queue, every, tenant] = scope_values(scope);
    let values = [queue, every, tenant, at(tx.now), Value::Text(actor.to_owned())];
    let changed = tx.execute("INSERT OR IGNORE INTO queue_pause VALUES (?1, ?2, ?3, ?4, ?5)", values)? > 0;
    record(tx, scope, Change::QueuePaused, actor, changed)
}

fn resume_queue(tx: &mut Tx<'_, '_>, scope: &QueueScope, actor: &str) -> rusqlite::Result<bool> {
    let sql = "DELETE FROM queue_pause WHERE queue = ?1 AND every = ?2 AND tenant = ?3";
    let changed = tx.execute(sql, scope_values(scope))? > 0;
    // What became due during the pause is due now, and nobody sleeps until then.
    tx.wake |= changed;
    record(tx, scope, Change::QueueResumed, actor, changed)
}

fn scope_values(scope: &QueueScope) -> [Value; 3] {
    let tenant = scope.tenant.as_ref().map_or("", |t| t.as_str());
    let text = |s: &str| Value::Text(s.to_owned());
    [text(scope.queue.as_str()), Value::Integer(i64::from(scope.tenant.is_none())), text(tenant)]
}

fn record(
    tx: &mut Tx<'_, '_>,
    scope: &QueueScope,
    change: Change,
    actor: &str,
    changed: bool,
) -> rusqlite::Result<bool> {
    tx.forget_pauses();
    if changed {
        let tenant = scope.tenant.clone().unwrap_or_else(Tenant::none);
        let queue = tx.queue_id(&tenant, &scope.queue)?;
        tx.audit(queue, None, &lane::plain(change), Some(actor))?;
    }
    Ok(changed)
}
