//! Control: an operator's hand, and the trail says whose.
//!
//! Flush, pause, resume and schedules are here; what takes events out of a lane or puts them back (cancel, redrive,
//! purge, erase, edit, delete) is in `control/events.rs`, sources are in `sources.rs`.

use quell_core::clock::Timestamp;
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::event::{LaneKey, QueueName, Tenant};
use quell_core::lane::{self, Lane};
use quell_core::lifecycle::Change;
use quell_core::limits;
use quell_core::schedule::{Schedule, ScheduleRow};
use quell_core::store::{Control, ControlAction, Controlled, QueueScope};
use rusqlite::OptionalExtension;
use rusqlite::types::Value;

use crate::aside::{SCHEDULE_COLUMNS, read_schedule};
use crate::error::not_done;
use crate::rows::{LaneRow, at, maybe_at, number, to_json};
use crate::sources;
use crate::tx::{PendingLane, Tx};

mod events;

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
        ControlAction::Cancel { lane, run } => return events::cancel(tx, actor, lane, *run),
        ControlAction::Redrive(redrive) => return events::redrive(tx, actor, redrive),
        ControlAction::Purge(purge) => return events::purge(tx, actor, purge),
        ControlAction::EraseLane(lane) => return events::erase_lane(tx, actor, lane),
        ControlAction::EraseEvent { lane, id } => return events::erase_event(tx, actor, lane, id),
        ControlAction::EditEvent { lane, id, payload } => {
            return events::edit(tx, actor, lane, id, payload);
        }
        ControlAction::DeleteEvent { lane, id } => return events::delete(tx, actor, lane, id),
        ControlAction::PutSchedule(schedule) => return put_schedule(tx, actor, schedule),
        ControlAction::RemoveSchedule { tenant, name } => remove_schedule(tx, actor, tenant, name),
        ControlAction::PutSource { .. }
        | ControlAction::RemoveSource { .. }
        | ControlAction::EnableSource(_)
        | ControlAction::DisableSource(_)
        | ControlAction::ResetSource(_)
        | ControlAction::ReleaseSource(_) => return sources::control(tx, request),
    };
    changed.map(Controlled::changed).map_err(|e| not_done(&e))
}

/// A lane as an operator names it, after everything pending is written.
pub(crate) fn find_lane(tx: &mut Tx<'_, '_>, key: &LaneKey) -> rusqlite::Result<Option<LaneRow>> {
    match tx.find_queue(&key.tenant, &key.queue)? {
        Some(queue) => tx.lane_by_key(queue, key.key.as_str()),
        None => Ok(None),
    }
}

/// Changes one lane; with `make` a key that has never been seen can be paused before its first event.
fn change_lane(
    tx: &mut Tx<'_, '_>,
    key: &LaneKey,
    actor: &str,
    make: bool,
    change: impl FnOnce(&mut Lane, Timestamp) -> Option<quell_core::audit::Move>,
) -> rusqlite::Result<bool> {
    let mut row = match find_lane(tx, key)? {
        Some(row) => row,
        None if make => new_lane(tx, key)?,
        None => return Ok(false),
    };
    let Some(made) = change(&mut row.lane, tx.now) else { return Ok(false) };
    let due = row.lane.due_at().map(|due| due.max(tx.now));
    tx.write_whole(&row, due)?;
    tx.audit(row.queue_id, Some(row.lane.id), &made, Some(actor))?;
    tx.lane_due(row.queue_id, row.lane.source(), due)?;
    // A pause may have taken away what the queue waited for: its time is set anew, so nobody wakes for nothing.
    tx.set_next(row.queue_id)?;
    Ok(true)
}

pub(crate) fn new_lane(tx: &mut Tx<'_, '_>, key: &LaneKey) -> rusqlite::Result<LaneRow> {
    let queue = tx.queue_id(&key.tenant, &key.queue)?;
    let row = LaneRow::new(Lane::new(tx.fresh(), tx.now), queue, key.key.as_str());
    let entry = (queue, key.key.as_str().to_owned());
    tx.lanes.insert(entry, PendingLane { row: row.clone(), new: true, changed: true });
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

fn put_schedule(tx: &mut Tx<'_, '_>, actor: &str, schedule: &Schedule) -> StoreResult<Controlled> {
    let known = find_schedule(tx, &schedule.tenant, &schedule.name).map_err(|e| not_done(&e))?;
    let (row, before) = match known {
        Some((_, row)) if row.schedule == *schedule => return Ok(Controlled::default()),
        Some((queue, row)) => (row.changed(schedule.clone(), tx.now), Some(queue)),
        None => (ScheduleRow::new(schedule.clone(), tx.now), None),
    };
    let count: usize = tx
        .connection
        .query_row("SELECT count(*) FROM schedule", [], |row| row.get(0))
        .map_err(|e| not_done(&e))?;
    if before.is_none() && count >= limits::SCHEDULES_MAX {
        let max = limits::SCHEDULES_MAX;
        return Err(StoreError::new(ErrorKind::Limit, format!("there are {max} schedules already")));
    }
    write_schedule(tx, actor, &row, before).map_err(|e| not_done(&e))?;
    Ok(Controlled::changed(true))
}

fn write_schedule(
    tx: &mut Tx<'_, '_>,
    actor: &str,
    row: &ScheduleRow,
    before: Option<u64>,
) -> rusqlite::Result<()> {
    let s = &row.schedule;
    let queue = tx.queue_id(&s.tenant, &s.queue)?;
    if let Some(before) = before {
        tx.queue(before)?.schedules -= 1;
    }
    tx.queue(queue)?.schedules += 1;
    let text = |s: &str| Value::Text(s.to_owned());
    let values = [
        text(s.tenant.as_str()),
        text(s.name.as_str()),
        number(queue),
        Value::Text(s.cron.to_string()),
        text(s.zone.name()),
        text(s.key.as_str()),
        text(s.payload.as_str()),
        to_json(&*s.policy),
        at(row.last_fire),
        maybe_at(row.next_at),
    ];
    let sql = "INSERT OR REPLACE INTO schedule VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    tx.execute(sql, values)?;
    tx.due(queue, row.next_at)?;
    tx.audit(queue, None, &lane::plain(Change::SchedulePut), Some(actor))
}

fn remove_schedule(tx: &mut Tx<'_, '_>, actor: &str, tenant: &Tenant, name: &str) -> rusqlite::Result<bool> {
    let Ok(name) = QueueName::new(name) else { return Ok(false) };
    let Some((queue, _)) = find_schedule(tx, tenant, &name)? else { return Ok(false) };
    let values = [Value::Text(tenant.as_str().to_owned()), Value::Text(name.as_str().to_owned())];
    tx.execute("DELETE FROM schedule WHERE tenant = ?1 AND name = ?2", values)?;
    tx.queue(queue)?.schedules -= 1;
    tx.audit(queue, None, &lane::plain(Change::ScheduleRemoved), Some(actor))?;
    Ok(true)
}

fn find_schedule(
    tx: &mut Tx<'_, '_>,
    tenant: &Tenant,
    name: &QueueName,
) -> rusqlite::Result<Option<(u64, ScheduleRow)>> {
    let sql = "SELECT queue_id FROM schedule WHERE tenant = ?1 AND name = ?2";
    let place = [tenant.as_str(), name.as_str()];
    let queue = tx.connection.prepare_cached(sql)?.query_row(place, |row| row.get(0)).optional()?;
    let Some(queue) = queue else { return Ok(None) };
    let of = tx.queue(queue)?.clone();
    let sql = format!("SELECT {SCHEDULE_COLUMNS} FROM schedule WHERE tenant = ?1 AND name = ?2");
    let row = tx.connection.prepare_cached(&sql)?.query_row(place, |row| read_schedule(row, &of))?;
    Ok(Some((queue, row)))
}
