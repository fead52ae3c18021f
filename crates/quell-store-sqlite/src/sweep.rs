//! Sweep: expired leases are taken back, and what is older than the retention is removed, a small step at a time.
//!
//! The retention walks finished runs in the order in which they ended, from a stored mark on. Dead letters are stepped
//! over and stay; the others go with their events and ids. Audit records go by their own mark, which the trigger of the
//! table checks. A lane row goes when nothing refers to it any more. Kept answers of
//! sources and documents on shelves go when they are over. The counters are totals and are not touched.

use std::time::Duration;

use quell_core::error::StoreResult;
use quell_core::lifecycle::RunState;
use quell_core::limits;
use quell_core::store::{SweepRequest, Swept};

use crate::aside;
use crate::claim::reclaim_expired;
use crate::error::not_done;
use crate::rows::{maybe_number, number, state_code};
use crate::shelves::forget_documents;
use crate::sources::forget_answers;
use crate::tx::{QueueRow, Tx};

const QUEUES_WITH_ASIDE: &str =
    concat!(include_str!("../sql/queue.sql"), "WHERE delayed > 0 OR schedules > 0");
const QUEUES_WITH_LEASES: &str = concat!(include_str!("../sql/queue.sql"), "WHERE running > 0");

pub(crate) fn sweep(tx: &mut Tx<'_, '_>, request: &SweepRequest) -> StoreResult<Swept> {
    let mut swept = Swept::default();
    if request.reclaim {
        take_back(tx, &mut swept).map_err(|e| not_done(&e))?;
    }
    take_in(tx, &mut swept).map_err(|e| not_done(&e))?;
    swept.more |= forget_answers(tx).map_err(|e| not_done(&e))?;
    swept.more |= forget_documents(tx).map_err(|e| not_done(&e))?;
    if let Some(retention) = request.retention {
        forget(tx, retention, &mut swept).map_err(|e| not_done(&e))?;
    }
    Ok(swept)
}

fn take_back(tx: &mut Tx<'_, '_>, swept: &mut Swept) -> rusqlite::Result<()> {
    tx.write_lanes()?;
    tx.write_queues()?;
    let queues: Vec<QueueRow> = tx
        .connection
        .prepare_cached(QUEUES_WITH_LEASES)?
        .query_map([], QueueRow::read)?
        .collect::<rusqlite::Result<_>>()?;
    let mut budget = limits::SWEEP_LANES_STEP;
    for queue in queues {
        let found = reclaim_expired(tx, &queue, true, &mut budget)?;
        if !found.is_empty() {
            let next = tx.earliest(queue.id)?;
            tx.due(queue.id, next)?;
        }
        swept.reclaimed.extend(found);
    }
    swept.more |= budget == 0;
    Ok(())
}

/// Events aside enter their lanes and schedules fire also where nobody claims.
fn take_in(tx: &mut Tx<'_, '_>, swept: &mut Swept) -> rusqlite::Result<()> {
    tx.write_lanes()?;
    tx.write_queues()?;
    let queues: Vec<QueueRow> = tx
        .connection
        .prepare_cached(QUEUES_WITH_ASIDE)?
        .query_map([], QueueRow::read)?
        .collect::<rusqlite::Result<_>>()?;
    let mut budget = limits::ASIDE_STEP;
    for queue in queues {
        aside::fire_and_enter(tx, &queue, &mut budget)?;
    }
    tx.write_lanes()?;
    swept.more |= budget == 0;
    Ok(())
}

struct Old {
    id: u64,
    lane: u64,
    state: i64,
    lo: u64,
    hi: u64,
    finished_at: i64,
    number: u64,
    count: u64,
    marked: bool,
    has_steps: bool,
}

fn forget(tx: &mut Tx<'_, '_>, retention: Duration, swept: &mut Swept) -> rusqlite::Result<()> {
    // A lane that gets an event in this very transaction is not idle, and only its written row says so.
    tx.write_lanes()?;
    let before = tx.now.before(retention).as_millis();
    let sql = "SELECT id, lane_id, state, lo, hi, finished_at, number, count, flags & 4 <> 0,
                      EXISTS (SELECT 1 FROM step WHERE step.lane_id = run.lane_id AND step.run = run.number)
               FROM run WHERE id > (SELECT run_mark FROM meta) ORDER BY id LIMIT ?1";
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Old {
            id: row.get(0)?,
            lane: row.get(1)?,
            state: row.get(2)?,
            lo: row.get(3)?,
            hi: row.get(4)?,
            finished_at: row.get(5)?,
            number: row.get(6)?,
            count: row.get(7)?,
            marked: row.get(8)?,
            has_steps: row.get(9)?,
        })
    };
    let oldest: Vec<Old> = tx
        .connection
        .prepare_cached(sql)?
        .query_map([limits::RETENTION_RUNS_STEP], read)?
        .collect::<rusqlite::Result<_>>()?;
    let failed = state_code(RunState::Failed);
    let (mut mark, mut looked_at) = (None, 0);
    // Runs are in the order in which they ended, so the first young one ends the walk.
    for run in oldest.iter().take_while(|run| run.finished_at < before) {
        looked_at += 1;
        if swept.removed_events >= limits::RETENTION_EVENTS_STEP as u64 {
            swept.more = true;
            break;
        }
        mark = Some(run.id);
        if run.state == failed && run.count > 0 {
            continue;
        }
        if run.count > 0 {
            let sql = "DELETE FROM event WHERE lane_id = ?1 AND seq BETWEEN ?2 AND ?3 AND mark IS ?4";
            let mark = maybe_number(run.marked.then_some(run.number));
            let values = [number(run.lane), number(run.lo), number(run.hi), mark];
            swept.removed_events += tx.execute(sql, values)? as u64;
        }
        if run.has_steps {
            let sql = "DELETE FROM step WHERE lane_id = ?1 AND run = ?2";
            tx.execute(sql, [number(run.lane), number(run.number)])?;
        }
        tx.execute("DELETE FROM run WHERE id = ?1", [number(run.id)])?;
        swept.removed_runs += 1;
    }
    if let Some(mark) = mark {
        tx.execute("UPDATE meta SET run_mark = ?1", [number(mark)])?;
    }
    swept.more |= looked_at == limits::RETENTION_RUNS_STEP;
    forget_replaced(tx, before, swept)?;
    forget_audit(tx, before, swept)?;
    for run in oldest.iter().take(looked_at) {
        forget_lane(tx, run.lane)?;
    }
    Ok(())
}

/// Runs whose events went into another one. A dead letter that was redriven lies behind the mark of the walk above.
fn forget_replaced(tx: &mut Tx<'_, '_>, before: i64, swept: &mut Swept) -> rusqlite::Result<()> {
    let sql = "SELECT id, lane_id, number FROM run WHERE count = 0 AND finished_at < ?1 ORDER BY finished_at LIMIT ?2";
    let old: Vec<(u64, u64, u64)> = tx
        .connection
        .prepare_cached(sql)?
        .query_map((before, limits::RETENTION_RUNS_STEP), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<rusqlite::Result<_>>()?;
    swept.more |= old.len() == limits::RETENTION_RUNS_STEP;
    for (id, lane, run) in old {
        tx.execute("DELETE FROM step WHERE lane_id = ?1 AND run = ?2", [number(lane), number(run)])?;
        tx.execute("DELETE FROM run WHERE id = ?1", [number(id)])?;
        swept.removed_runs += 1;
        forget_lane(tx, lane)?;
    }
    Ok(())
}

fn forget_audit(tx: &mut Tx<'_, '_>, before: i64, swept: &mut Swept) -> rusqlite::Result<()> {
    let step = limits::RETENTION_RUNS_STEP * 4;
    let old: Vec<(u64, Option<u64>, i64)> = tx
        .connection
        .prepare_cached("SELECT id, lane_id, at FROM audit ORDER BY id LIMIT ?1")?
        .query_map([step], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let old: Vec<_> = old.into_iter().take_while(|(_, _, at)| *at < before).collect();
    let Some((last, ..)) = old.last() else { return Ok(()) };
    tx.execute("UPDATE meta SET audit_mark = max(audit_mark, ?1)", [number(*last)])?;
    swept.removed_audit += tx.execute("DELETE FROM audit WHERE id <= ?1", [number(*last)])? as u64;
    swept.more |= old.len() == step;
    let mut lanes: Vec<u64> = old.iter().filter_map(|(_, lane, _)| *lane).collect();
    lanes.sort_unstable();
    lanes.dedup();
    for lane in lanes {
        forget_lane(tx, lane)?;
    }
    Ok(())
}

/// Removes a lane that has nothing to do and to which nothing refers.
fn forget_lane(tx: &mut Tx<'_, '_>, lane: u64) -> rusqlite::Result<()> {
    let sql = "DELETE FROM lane WHERE id = ?1 AND o_number IS NULL AND r_number IS NULL AND paused_at IS NULL AND blocked_at IS NULL
               AND NOT EXISTS (SELECT 1 FROM run WHERE lane_id = ?1)
               AND NOT EXISTS (SELECT 1 FROM audit WHERE lane_id = ?1)";
    tx.execute(sql, [number(lane)]).map(|_| ())
}
