//! The retention: what is older than it goes, a small step at a time, and the changes of the totals are added up.
//!
//! Finished runs are walked in the order in which they ended, from a stored mark on. Dead letters are stepped over and
//! stay; the others go with their events and steps. Audit records go by their own mark, which the trigger of the table
//! checks. A lane row goes when nothing refers to it any more. All of it under the locks of the lanes, so that nobody
//! redrives a run while its events go; lanes that are busy are left for the next step.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use quell_core::clock::Timestamp;
use quell_core::error::StoreResult;
use quell_core::lane::Lane;
use quell_core::lifecycle::RunState;
use quell_core::limits;
use quell_core::store::Swept;
use quell_store_rows::codec;
use tokio_postgres::types::Type;

use crate::Shared;
use crate::begin::WITH_OTHERS;
use crate::connection::{Connection, Request, Sql, Value};
use crate::error::not_done;
use crate::rows::{count, get, maybe_count, number, state, time};
use crate::shelves;
use crate::tx::store_time;

/// One process at a time: others would only find the same rows.
static BEGIN: Sql = Sql {
    text: "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, test_offset, run_mark,
                  pg_try_advisory_xact_lock(hashtext('quell.sweep'), 0), sealed FROM quell.meta",
    types: &[],
};
static OLDEST: Sql = Sql {
    text: "SELECT id, lane_id, number, state, marked, ended_at, count, lo, hi FROM quell.run
           WHERE id > $1 ORDER BY id LIMIT $2",
    types: &[Type::INT8, Type::INT8],
};
/// Runs whose events went into another one. A dead letter that was redriven lies behind the mark of the walk.
static REPLACED: Sql = Sql {
    text: "SELECT id, lane_id, number, state, marked, ended_at, count, lo, hi FROM quell.run
           WHERE count = 0 AND ended_at < $1 ORDER BY ended_at LIMIT $2",
    types: &[Type::INT8, Type::INT8],
};
static AGAIN: Sql = Sql {
    text: "SELECT id, lane_id, number, state, marked, ended_at, count, lo, hi FROM quell.run
           WHERE id = ANY($1) ORDER BY id",
    types: &[Type::INT8_ARRAY],
};
static LOCK_LANES: Sql = Sql {
    text: "SELECT id, body FROM quell.lane WHERE id = ANY($1) ORDER BY id FOR UPDATE SKIP LOCKED",
    types: &[Type::INT8_ARRAY],
};
/// For lanes that may have to go: they are waited for, or nobody would look at them again.
static WAIT_LANES: Sql = Sql {
    text: "SELECT id, body FROM quell.lane WHERE id = ANY($1) ORDER BY id FOR UPDATE",
    types: &[Type::INT8_ARRAY],
};
static DELETE_EVENTS: Sql = Sql {
    text: "WITH gone AS (
             DELETE FROM quell.event_row e
             USING unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) AS w(lane, lo, hi, mark)
             WHERE e.lane_id = w.lane AND e.seq BETWEEN w.lo AND w.hi AND e.mark IS NOT DISTINCT FROM w.mark
             RETURNING 1),
           firsts AS (
             UPDATE quell.lane l SET first_seq = NULL, first_at = NULL, first_priority = NULL, first_id = NULL,
               first_print = NULL, first_payload = NULL
             FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) AS w(lane, lo, hi, mark)
             WHERE l.id = w.lane AND l.first_seq BETWEEN w.lo AND w.hi AND w.mark IS NULL
             RETURNING 1)
           SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM firsts)",
    types: &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT8_ARRAY],
};
static DELETE_STEPS: Sql = Sql {
    text: "DELETE FROM quell.step s USING unnest($1::bigint[], $2::bigint[]) AS w(lane, run)
           WHERE s.lane_id = w.lane AND s.run = w.run",
    types: &[Type::INT8_ARRAY, Type::INT8_ARRAY],
};
static DELETE_RUNS: Sql =
    Sql { text: "DELETE FROM quell.run WHERE id = ANY($1)", types: &[Type::INT8_ARRAY] };
static RUN_MARK: Sql =
    Sql { text: "UPDATE quell.meta SET run_mark = greatest(run_mark, $1)", types: &[Type::INT8] };
static OLD_AUDIT: Sql =
    Sql { text: "SELECT id, lane_id, at FROM quell.audit ORDER BY id LIMIT $1", types: &[Type::INT8] };
static AUDIT_MARK: Sql =
    Sql { text: "UPDATE quell.meta SET audit_mark = greatest(audit_mark, $1)", types: &[Type::INT8] };
static DELETE_AUDIT: Sql =
    Sql { text: "DELETE FROM quell.audit WHERE id = ANY($1)", types: &[Type::INT8_ARRAY] };
static DELETE_LANES: Sql = Sql {
    text: "DELETE FROM quell.lane l WHERE l.id = ANY($1)
           AND NOT EXISTS (SELECT 1 FROM quell.run r WHERE r.lane_id = l.id)
           AND NOT EXISTS (SELECT 1 FROM quell.audit a WHERE a.lane_id = l.id)
           AND NOT EXISTS (SELECT 1 FROM quell.event e WHERE e.lane_id = l.id)",
    types: &[Type::INT8_ARRAY],
};
/// Answers that are over, the first of them; what somebody is just fetching anew is left alone.
static DELETE_ANSWERS: Sql = Sql {
    text: "WITH gone AS (
             DELETE FROM quell.answer WHERE ctid = ANY(ARRAY(
               SELECT ctid FROM quell.answer WHERE over_at <= $1 ORDER BY over_at LIMIT $2 FOR UPDATE SKIP LOCKED)))
           SELECT EXISTS (SELECT 1 FROM quell.answer WHERE over_at <= $1 ORDER BY over_at OFFSET $2)",
    types: &[Type::INT8, Type::INT8],
};
/// Adds up what transactions left. Whoever adds at the same moment takes other rows.
static FOLD: Sql = Sql {
    text: "WITH gone AS (
             DELETE FROM quell.queue_delta WHERE ctid = ANY(ARRAY(
               SELECT ctid FROM quell.queue_delta LIMIT 20000 FOR UPDATE SKIP LOCKED)) RETURNING *),
           sums AS (
             SELECT queue_id, sum(accepted)::bigint AS accepted, sum(succeeded)::bigint AS succeeded,
               sum(dead)::bigint AS dead, sum(discarded)::bigint AS discarded, sum(delayed)::bigint AS delayed,
               sum(buffered)::bigint AS buffered, sum(in_flight)::bigint AS in_flight
             FROM gone GROUP BY queue_id ORDER BY queue_id)
           UPDATE quell.queue q SET accepted = q.accepted + s.accepted, succeeded = q.succeeded + s.succeeded,
             dead = q.dead + s.dead, discarded = q.discarded + s.discarded, delayed = q.delayed + s.delayed,
             buffered = q.buffered + s.buffered, in_flight = q.in_flight + s.in_flight
           FROM sums s WHERE q.id = s.queue_id",
    types: &[],
};

/// The mark of the walk stays this far behind the newest it has seen: a transaction that got an earlier number may still
/// be on its way.
const MARK_BEHIND: Duration = Duration::from_secs(60);

/// Adds up the changes of the totals, in a transaction of its own.
pub(crate) async fn fold(connection: &Connection) -> StoreResult<()> {
    connection.query(&FOLD, &[]).await.map(drop).map_err(|e| not_done(&e))
}

pub(crate) async fn forget(shared: &Shared, retention: Duration, swept: &mut Swept) -> StoreResult<()> {
    let mut connection = shared.connections.get().await?;
    fold(&connection).await?;
    // Lanes are locked once per transaction, in one order: so runs and audit go in two.
    for part in [Part::Runs, Part::Audit] {
        let done = step(&connection, part, retention, swept).await;
        connection = ended(connection, &done).await?;
        done?;
    }
    Ok(())
}

/// Forgets answers that are over, a bounded number. Says whether there are more.
pub(crate) async fn forget_answers(shared: &Shared) -> StoreResult<bool> {
    let connection = shared.connections.get().await?;
    let done = async {
        let Some((now, _)) = begin(&connection).await? else { return Ok(false) };
        let step = number(limits::CACHE_SWEEP_STEP as u64);
        let rows = connection.query(&DELETE_ANSWERS, &[&now.as_millis(), &step]).await;
        rows.map_err(|e| not_done(&e))?.first().map_or(Ok(false), |row| get(row, 0))
    }
    .await;
    ended(connection, &done).await?;
    done
}

/// Forgets documents that are over, a bounded number. Says whether there are more.
pub(crate) async fn forget_documents(shared: &Shared) -> StoreResult<bool> {
    let connection = shared.connections.get().await?;
    let done = async {
        let Some((now, _)) = begin(&connection).await? else { return Ok(false) };
        shelves::forget(&connection, now).await
    }
    .await;
    ended(connection, &done).await?;
    done
}

/// Ends the transaction of a step. A connection on which that does not succeed is given up.
async fn ended<T>(connection: Connection, done: &StoreResult<T>) -> StoreResult<Connection> {
    let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
    match connection.batch(end).await {
        Ok(()) => Ok(connection),
        Err(error) => {
            connection.discard();
            // What went wrong first says more.
            Err(done.as_ref().err().cloned().unwrap_or_else(|| not_done(&error)))
        }
    }
}

#[derive(Clone, Copy)]
enum Part {
    Runs,
    Audit,
}

async fn step(
    connection: &Connection,
    part: Part,
    retention: Duration,
    swept: &mut Swept,
) -> StoreResult<()> {
    let Some((now, mark)) = begin(connection).await? else { return Ok(()) };
    let before = now.before(retention);
    match part {
        Part::Runs => forget_runs(connection, before, mark, swept).await,
        Part::Audit => forget_audit(connection, before, swept).await,
    }
}

/// Begins a step: the time, and the mark of the walk over runs. Nothing when another process is at it.
async fn begin(connection: &Connection) -> StoreResult<Option<(Timestamp, i64)>> {
    let begin = "BEGIN; SET LOCAL lock_timeout = 5000; SET LOCAL idle_in_transaction_session_timeout = 10000";
    connection.batch(begin).await.map_err(|e| not_done(&e))?;
    connection.query(&WITH_OTHERS, &[]).await.map_err(|e| not_done(&e))?;
    let rows = connection.query(&BEGIN, &[]).await.map_err(|e| not_done(&e))?;
    let Some(row) = rows.first() else { return Ok(None) };
    if let Some(by) = get::<Option<String>>(row, 4)? {
        return Err(quell_core::copy::sealed(&by));
    }
    let alone: bool = get(row, 3)?;
    let begun = (store_time(row)?, get(row, 2)?);
    Ok(alone.then_some(begun))
}

/// A finished run, as far as the retention asks.
struct Old {
    id: i64,
    lane: u64,
    number: u64,
    state: RunState,
    marked: bool,
    ended_at: Timestamp,
    count: u64,
    lo: u64,
    hi: u64,
}

impl Old {
    fn read(row: &tokio_postgres::Row) -> StoreResult<Old> {
        Ok(Old {
            id: get(row, 0)?,
            lane: count(row, 1)?,
            number: count(row, 2)?,
            state: state(get(row, 3)?)?,
            marked: get(row, 4)?,
            ended_at: time(row, 5)?,
            count: count(row, 6)?,
            lo: count(row, 7)?,
            hi: count(row, 8)?,
        })
    }

    fn is_dead(&self) -> bool {
        self.state == RunState::Failed && self.count > 0
    }
}

async fn forget_runs(
    connection: &Connection,
    before: Timestamp,
    mark: i64,
    swept: &mut Swept,
) -> StoreResult<()> {
    let most = limits::RETENTION_RUNS_STEP;
    let limit = number(most as u64);
    let requests: [Request; 2] = [
        (&OLDEST, vec![Box::new(mark), Box::new(limit)]),
        (&REPLACED, vec![Box::new(before.as_millis()), Box::new(limit)]),
    ];
    let answers = connection.read(&requests).await.map_err(|e| not_done(&e))?;
    let read = |rows: &Vec<tokio_postgres::Row>| rows.iter().map(Old::read).collect::<StoreResult<Vec<_>>>();
    let [oldest, replaced] = &answers[..] else { return Ok(()) };
    let (oldest, replaced) = (read(oldest)?, read(replaced)?);
    // Runs are in the order in which they ended, so the first young one ends the walk.
    let old: Vec<&Old> = oldest.iter().take_while(|run| run.ended_at < before).collect();
    swept.more |= old.len() == most || replaced.len() == most;
    let (mut walked, mut chosen, mut events) = (None, BTreeSet::new(), 0);
    let mut lanes = BTreeSet::new();
    for run in &old {
        if events >= limits::RETENTION_EVENTS_STEP as u64 {
            swept.more = true;
            break;
        }
        if run.ended_at < before.before(MARK_BEHIND) {
            walked = Some(run.id);
        }
        if !run.is_dead() {
            events += run.count;
            chosen.insert(run.id);
            lanes.insert(run.lane);
        }
    }
    for run in &replaced {
        chosen.insert(run.id);
        lanes.insert(run.lane);
    }
    let locked = lock(connection, &LOCK_LANES, &lanes).await?;
    // Read again behind the locks: a run may have been redriven or erased since.
    let chosen: Vec<i64> = chosen.into_iter().collect();
    let again = connection.query(&AGAIN, &[&chosen]).await.map_err(|e| not_done(&e))?;
    let gone: Vec<Old> = read(&again)?
        .into_iter()
        .filter(|run| locked.contains_key(&run.lane) && run.ended_at < before && !run.is_dead())
        .collect();
    // What could not be locked is in front of the next step, too.
    let kept = chosen.iter().filter(|id| !gone.iter().any(|run| run.id == **id)).min();
    let walked = walked.map(|walked| kept.map_or(walked, |kept| walked.min(kept - 1)));
    if let Some(walked) = walked.filter(|walked| *walked > mark) {
        connection.query(&RUN_MARK, &[&walked]).await.map_err(|e| not_done(&e))?;
    }
    if gone.is_empty() {
        return Ok(());
    }
    swept.removed_runs += gone.len() as u64;
    swept.removed_events += delete_runs(connection, &gone).await?;
    let lanes: BTreeSet<u64> = gone.iter().map(|run| run.lane).collect();
    forget_lanes(connection, &locked, &lanes).await
}

/// Removes runs with their steps and events. Says how many events went.
async fn delete_runs(connection: &Connection, gone: &[Old]) -> StoreResult<u64> {
    let full = || gone.iter().filter(|run| run.count > 0);
    let of = |f: fn(&Old) -> Option<i64>| -> Value { Box::new(full().map(f).collect::<Vec<_>>()) };
    let events: Vec<Value> = vec![
        of(|run| Some(number(run.lane))),
        of(|run| Some(number(run.lo))),
        of(|run| Some(number(run.hi))),
        of(|run| run.marked.then(|| number(run.number))),
    ];
    let (lanes, numbers): (Vec<i64>, Vec<i64>) =
        gone.iter().map(|run| (number(run.lane), number(run.number))).unzip();
    let ids: Vec<i64> = gone.iter().map(|run| run.id).collect();
    let requests: [Request; 3] = [
        (&DELETE_EVENTS, events),
        (&DELETE_STEPS, vec![Box::new(lanes), Box::new(numbers)]),
        (&DELETE_RUNS, vec![Box::new(ids)]),
    ];
    let answers = connection.read(&requests).await.map_err(|e| not_done(&e))?;
    answers.first().and_then(|rows| rows.first()).map_or(Ok(0), |row| count(row, 0))
}

async fn forget_audit(connection: &Connection, before: Timestamp, swept: &mut Swept) -> StoreResult<()> {
    let most = limits::RETENTION_RUNS_STEP * 4;
    let rows = connection.query(&OLD_AUDIT, &[&number(most as u64)]).await.map_err(|e| not_done(&e))?;
    let (mut ids, mut lanes) = (Vec::new(), BTreeSet::new());
    for row in &rows {
        if time(row, 2)? >= before {
            break;
        }
        ids.push(get::<i64>(row, 0)?);
        lanes.extend(maybe_count(row, 1)?);
    }
    let Some(last) = ids.last().copied() else { return Ok(()) };
    let locked = lock(connection, &WAIT_LANES, &lanes).await?;
    let removed = ids.len();
    let requests: [Request; 2] = [(&AUDIT_MARK, vec![Box::new(last)]), (&DELETE_AUDIT, vec![Box::new(ids)])];
    connection.read(&requests).await.map_err(|e| not_done(&e))?;
    swept.removed_audit += removed as u64;
    swept.more |= removed == most;
    forget_lanes(connection, &locked, &lanes).await
}

async fn lock(connection: &Connection, sql: &Sql, lanes: &BTreeSet<u64>) -> StoreResult<HashMap<u64, Lane>> {
    let ids: Vec<i64> = lanes.iter().map(|id| number(*id)).collect();
    let rows = connection.query(sql, &[&ids]).await.map_err(|e| not_done(&e))?;
    rows.iter().map(|row| Ok((count(row, 0)?, codec::read_lane(get(row, 1)?)?))).collect()
}

/// Removes lanes that have nothing to do and to which nothing refers.
async fn forget_lanes(
    connection: &Connection,
    locked: &HashMap<u64, Lane>,
    lanes: &BTreeSet<u64>,
) -> StoreResult<()> {
    let quiet = |lane: &Lane| lane.is_idle() && lane.paused.is_none() && lane.blocked.is_none();
    let ids: Vec<i64> =
        lanes.iter().filter(|id| locked.get(id).is_some_and(quiet)).map(|id| number(*id)).collect();
    if ids.is_empty() {
        return Ok(());
    }
    connection.query(&DELETE_LANES, &[&ids]).await.map(drop).map_err(|e| not_done(&e))
}
