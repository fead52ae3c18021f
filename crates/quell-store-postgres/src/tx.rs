//! One transaction: lanes are locked first, in the order of their numbers, then everything else is read (`find.rs`), then
//! everything is written and committed in one round trip (`commit.rs`).
//!
//! READ COMMITTED: a row that was waited for is read again after its lock is held, and each later statement sees what was
//! committed before it. So what belongs to a lane is read in statements behind the one that locks it, never in the same.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use quell_core::aside::Aside;
use quell_core::batch::RunId;
use quell_core::clock::Timestamp;
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::event::{LaneKey, QueueName, Tenant};
use quell_core::schedule::ScheduleRow;
use quell_core::shelf::{Document, Shelf};
use quell_core::store::{Purge, PurgeWhat};
use quell_core::working_set::Kept;
use quell_store_rows::changes::Changes;
use quell_store_rows::codec;
use quell_store_rows::rows::{
    Found, LaneAt, Lanes, Patience, Pick, Purgeable, Rows, RowsResult, Trouble, Want,
};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Error, Row};

use crate::Shared;
use crate::connection::{Connection, Request, Sql, Value};
use crate::error::{spoils_connection, trouble};
use crate::first::{self, first_columns};
use crate::leases;
use crate::queues::{Fault, Names};
use crate::rows::{
    LANE_COLUMNS, clean, count, get, key, lane_columns, lane_key, number, source_code, stored_lane, time,
};

/// How long a claim waits for a lane that is overdue and always locked.
const SHORT_WAIT: Duration = Duration::from_millis(50);
/// Overdue lanes that one claim waits for.
const SHORT_WAITS: usize = 4;
/// A transaction that was given up is ended within this time, or with its connection.
const ROLLBACK: Duration = Duration::from_secs(10);
pub(crate) static LOCK_KEYS: Sql = Sql {
    text: concat!(
        "SELECT ",
        lane_columns!(),
        " FROM (SELECT unnest($1::int[]) AS queue_id, unnest($2::text[]) AS key) w
         JOIN quell.lane l ON l.queue_id = w.queue_id AND l.key = w.key ORDER BY l.id FOR UPDATE OF l"
    ),
    types: &[Type::INT4_ARRAY, Type::TEXT_ARRAY],
};
/// Lanes that somebody else has locked come without a body. They are found by a hashed list and not by a join, which would
/// compare each lane with each other one where plans may only go by indexes.
pub(crate) static TRY_KEYS: Sql = Sql {
    text: "WITH wanted AS MATERIALIZED (
             SELECT l.id, l.queue_id, l.key
             FROM (SELECT unnest($1::int[]) AS queue_id, unnest($2::text[]) AS key) w
             JOIN quell.lane l ON l.queue_id = w.queue_id AND l.key = w.key),
           locked AS MATERIALIZED (
             SELECT l.id, l.queue_id, l.key, l.due_at, l.lease_at, l.priority, l.body, l.source FROM quell.lane l
             WHERE l.id = ANY(ARRAY(SELECT id FROM wanted)) ORDER BY l.id FOR UPDATE SKIP LOCKED)
           SELECT queue_id, key, due_at, lease_at, priority, body, source FROM locked
           UNION ALL
           SELECT queue_id, key, NULL, NULL, NULL, NULL, NULL FROM wanted WHERE id NOT IN (SELECT id FROM locked)",
    types: &[Type::INT4_ARRAY, Type::TEXT_ARRAY],
};
pub(crate) static LOCK_IDS: Sql = Sql {
    text: concat!(
        "SELECT ",
        lane_columns!(),
        " FROM quell.lane l WHERE l.id = ANY($1) ORDER BY l.id FOR UPDATE"
    ),
    types: &[Type::INT8_ARRAY],
};
pub(crate) static TRY_IDS: Sql = Sql {
    text: concat!(
        "SELECT ",
        lane_columns!(),
        " FROM quell.lane l WHERE l.id = ANY($1) ORDER BY l.id FOR UPDATE SKIP LOCKED"
    ),
    types: &[Type::INT8_ARRAY],
};
static EXISTING: Sql =
    Sql { text: "SELECT id FROM quell.lane WHERE id = ANY($1)", types: &[Type::INT8_ARRAY] };
/// A lane whose entry has changed while it was waited for is not the one that was found: hence the second condition. The entry
/// is locked before its lane: what another claim has just taken is gone with its entry. Of a lane that no longer is as it was found, the
/// server would keep the lock, and whoever settles it would meet a busy lane.
static DUE: Sql = Sql {
    text: concat!(
        "SELECT ",
        lane_columns!(),
        ", ",
        first_columns!(),
        " FROM unnest($1::int[], $2::bigint[], $3::smallint[], $4::bigint[], $5::bigint[])
           AS p(queue_id, source, priority, floor, most)
         CROSS JOIN LATERAL (
           SELECT n.* FROM quell.due d
           JOIN quell.lane n ON n.id = d.lane_id AND n.source = d.source AND n.priority = d.priority
             AND n.due_at = d.due_at
           WHERE d.queue_id = p.queue_id AND d.source = p.source AND d.priority = p.priority AND d.due_at <= $6
             AND d.due_at >= p.floor
           ORDER BY d.due_at, d.lane_id LIMIT p.most FOR UPDATE OF d, n SKIP LOCKED) l"
    ),
    types: &[
        Type::INT4_ARRAY,
        Type::INT8_ARRAY,
        Type::INT2_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8,
    ],
};
/// The first few of each level that are due, whoever has them locked.
static FRONT: Sql = Sql {
    text: "SELECT l.lane_id, l.due_at
           FROM unnest($1::int[], $2::bigint[], $3::smallint[], $4::bigint[]) AS p(queue_id, source, priority, floor)
           CROSS JOIN LATERAL (
             SELECT lane_id, due_at FROM quell.due
             WHERE queue_id = p.queue_id AND source = p.source AND priority = p.priority AND due_at <= $5
               AND due_at >= p.floor
             ORDER BY due_at, lane_id LIMIT 4) l",
    types: &[Type::INT4_ARRAY, Type::INT8_ARRAY, Type::INT2_ARRAY, Type::INT8_ARRAY, Type::INT8],
};
/// With their entries, as in [`DUE`]: every claim has those before it locks a source, so none waits for another in a circle.
static LOCK_DUE: Sql = Sql {
    text: concat!(
        "SELECT ",
        lane_columns!(),
        " FROM quell.lane l
         JOIN quell.due d ON d.queue_id = l.queue_id AND d.source = l.source AND d.priority = l.priority
           AND d.due_at = l.due_at AND d.lane_id = l.id
         WHERE l.id = ANY($1) AND l.due_at <= $2 ORDER BY l.id FOR UPDATE OF d, l"
    ),
    types: &[Type::INT8_ARRAY, Type::INT8],
};
static EXPIRED: Sql = Sql {
    text: concat!(
        "SELECT ",
        lane_columns!(),
        " FROM unnest($1::int[]) AS q(id)
         CROSS JOIN LATERAL (
           SELECT n.* FROM (
             SELECT lane_id, lease_at FROM quell.lease WHERE queue_id = q.id AND lease_at <= $2
             UNION ALL
             SELECT u.lane, g.lease_at FROM quell.lease_group g CROSS JOIN LATERAL unnest(g.lanes) AS u(lane)
             WHERE g.queue_id = q.id AND g.lease_at <= $2) s
           JOIN quell.lane n ON n.id = s.lane_id AND n.lease_at = s.lease_at
           ORDER BY s.lease_at, s.lane_id LIMIT $3 FOR UPDATE OF n SKIP LOCKED) l
         ORDER BY l.lease_at LIMIT $3"
    ),
    types: &[Type::INT4_ARRAY, Type::INT8, Type::INT8],
};
static CLAIMED: Sql = Sql {
    text: concat!(
        "SELECT ",
        lane_columns!(),
        " FROM quell.lane l
         WHERE l.id = ANY(ARRAY(SELECT lane_id FROM quell.lease WHERE claim_id = $1
                                UNION SELECT unnest(lanes) FROM quell.lease_group WHERE claim_id = $1))
           AND l.claim_id = $1 ORDER BY l.id FOR UPDATE OF l"
    ),
    types: &[Type::TEXT],
};
/// Claims of one id meet here, since there may be no lane yet at which they could.
static MEET_CLAIM: Sql =
    Sql { text: "SELECT pg_advisory_xact_lock(hashtext('quell.claim'), hashtext($1))", types: &[Type::TEXT] };
static READY: Sql = Sql {
    text: "SELECT a.look_at, a.body FROM unnest($1::int[]) AS q(id)
           CROSS JOIN LATERAL (
             SELECT * FROM quell.aside WHERE queue_id = q.id AND look_at <= $2
             ORDER BY look_at, ready_at, number LIMIT $3 FOR UPDATE SKIP LOCKED) a
           ORDER BY a.look_at, a.ready_at, a.number LIMIT $3",
    types: &[Type::INT4_ARRAY, Type::INT8, Type::INT8],
};
static FIRES: Sql = Sql {
    text: "SELECT s.body FROM quell.schedule s WHERE s.queue_id = ANY($1) AND s.next_at <= $2
           ORDER BY s.tenant, s.name FOR UPDATE SKIP LOCKED",
    types: &[Type::INT4_ARRAY, Type::INT8],
};
static LOCK_QUEUE: Sql =
    Sql { text: "SELECT id FROM quell.queue WHERE id = $1 FOR UPDATE", types: &[Type::INT4] };
/// How many are under a lease, and how many are named by its rows.
static RUNNING: Sql = Sql {
    text: "SELECT count(*), (SELECT coalesce(sum(cardinality(lanes)), 0)::bigint FROM quell.lease_group WHERE queue_id = $1)
           FROM (
             SELECT lane_id FROM quell.lease WHERE queue_id = $1
             UNION
             SELECT l.id FROM quell.lease_group g CROSS JOIN LATERAL unnest(g.lanes) AS u(lane)
             JOIN quell.lane l ON l.id = u.lane AND l.lease_at = g.lease_at
             WHERE g.queue_id = $1) r",
    types: &[Type::INT4],
};
static DEAD: Sql = Sql {
    text: "SELECT r.lane_id, r.number FROM quell.run r JOIN quell.lane l ON l.id = r.lane_id
           WHERE r.state = 4 AND r.count > 0 AND l.queue_id = ANY($1) AND ($2::text IS NULL OR l.key = $2)
           ORDER BY r.id LIMIT $3",
    types: &[Type::INT4_ARRAY, Type::TEXT, Type::INT8],
};
static DELAYED: Sql = Sql {
    text: "SELECT look_at, body FROM quell.aside WHERE queue_id = ANY($1) AND ($2::text IS NULL OR key = $2)
           ORDER BY number LIMIT $3",
    types: &[Type::INT4_ARRAY, Type::TEXT, Type::INT8],
};
/// Whoever is not idle: that some of their events are buffered is in the body.
static BUSY: Sql = Sql {
    text: concat!(
        "SELECT ",
        lane_columns!(),
        " FROM quell.lane l WHERE l.queue_id = ANY($1) AND ($2::text IS NULL OR l.key = $2) AND l.id > $3
           AND (l.due_at IS NOT NULL OR l.lease_at IS NOT NULL OR l.held)
         ORDER BY l.id LIMIT $4"
    ),
    types: &[Type::INT4_ARRAY, Type::TEXT, Type::INT8, Type::INT8],
};
static QUEUES_OF: Sql = Sql {
    text: "SELECT id, tenant, name, priorities FROM quell.queue WHERE name = $1 AND ($2::text IS NULL OR tenant = $2)",
    types: &[Type::TEXT, Type::TEXT],
};

/// One transaction under way.
pub(crate) struct Tx {
    /// Gone when the transaction has ended.
    pub(crate) connection: Option<Connection>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) now: Timestamp,
    /// Keys that were asked for and have no lane, in their order.
    pub(crate) without_lane: Vec<LaneKey>,
    /// Queues that were asked for and do not exist.
    pub(crate) without_queue: BTreeSet<Names>,
    /// Queues whose leases that are over were looked for: rows of them that nobody is under go at the end, or every look
    /// would find them again.
    pub(crate) over: Vec<i32>,
    /// Also rows of leases that end until then.
    pub(crate) over_at: i64,
    /// The first events of lanes that are due, or that they do not lie with their lanes.
    pub(crate) firsts: HashMap<u64, Option<Kept>>,
    /// A copy into this store: what it puts in place is put there again after a fault, row by row.
    pub(crate) filling: bool,
}

/// Lanes that a claim could not lock, with the entries that they had: those that are met again are waited for. A lane
/// that another claim had locked has another entry by then.
#[derive(Default)]
pub(crate) struct Skipped(Mutex<HashMap<u64, i64>>);

impl Skipped {
    /// Those of these lanes that have been skipped before.
    fn again(&self, now: &[(u64, i64)]) -> Vec<u64> {
        let mut before = self.0.lock().expect("no panic happens while it is locked");
        let again = now.iter().filter(|(id, due)| before.get(id) == Some(due)).map(|(id, _)| *id).collect();
        *before = now.iter().copied().collect();
        again
    }
}

impl Tx {
    /// Takes out the rows of leases that are over and that nobody is under any more.
    pub(crate) fn leases_over(&self) -> Option<Request> {
        let until = self.over_at.max(self.now.as_millis());
        let values = || -> Vec<Value> { vec![Box::new(self.over.clone()), Box::new(until)] };
        (!self.over.is_empty()).then(|| (&leases::OVER, values()))
    }

    pub(crate) fn connection(&self) -> RowsResult<&Connection> {
        let ended = || StoreError::new(ErrorKind::Corrupt, "this transaction has ended");
        Ok(self.connection.as_ref().ok_or_else(ended)?)
    }

    async fn lock(
        &self,
        sql: &Sql,
        values: &[&(dyn tokio_postgres::types::ToSql + Sync)],
    ) -> RowsResult<Vec<LaneAt>> {
        let rows = self.connection()?.query(sql, values).await.map_err(|e| trouble(&e))?;
        self.lanes_at(&rows).await
    }

    /// Lanes with the names of their queues.
    async fn lanes_at(&self, rows: &[Row]) -> RowsResult<Vec<LaneAt>> {
        let stored: Vec<_> = rows.iter().map(|row| stored_lane(row, 0)).collect::<StoreResult<_>>()?;
        let queues = &self.shared.queues;
        let ids = stored.iter().map(|l| l.queue).collect::<BTreeSet<_>>().into_iter();
        queues.learn_ids(self.connection()?, ids).await.map_err(|fault| self.shared.fault(fault))?;
        let mut names: HashMap<i32, Names> = HashMap::new();
        let mut lanes = Vec::with_capacity(stored.len());
        for lane in stored {
            let names = match names.entry(lane.queue) {
                std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::hash_map::Entry::Vacant(place) => {
                    let known = queues.names(lane.queue);
                    place.insert(known.ok_or_else(|| crate::rows::lost_queue(lane.queue))?)
                }
            };
            lanes.push(LaneAt { key: lane_key(names, lane.key), lane: lane.lane, entries: lane.entries });
        }
        Ok(lanes)
    }

    /// The numbers of queues, where they exist.
    pub(crate) async fn queue_ids(&self, names: &[Names]) -> RowsResult<Vec<Option<i32>>> {
        let queues = &self.shared.queues;
        queues
            .learn_names(self.connection()?, names.iter())
            .await
            .map_err(|fault| self.shared.fault(fault))?;
        Ok(names.iter().map(|names| queues.get(names).map(|known| known.id)).collect())
    }

    async fn known_ids(&self, names: &[(Tenant, QueueName)]) -> RowsResult<Vec<i32>> {
        Ok(self.queue_ids(names).await?.into_iter().flatten().collect())
    }

    /// The numbers of the queues of these lanes, those once each that exist.
    pub(crate) async fn ids_of<'k>(
        &mut self,
        keys: impl Iterator<Item = &'k LaneKey>,
    ) -> RowsResult<BTreeMap<Names, i32>> {
        let names: BTreeSet<Names> = keys.map(|key| (key.tenant.clone(), key.queue.clone())).collect();
        let names: Vec<Names> = names.into_iter().collect();
        let ids = self.queue_ids(&names).await?;
        let mut known = BTreeMap::new();
        for (names, id) in names.into_iter().zip(ids) {
            match id {
                Some(id) => drop(known.insert(names, id)),
                None => drop(self.without_queue.insert(names)),
            }
        }
        Ok(known)
    }

    /// Lanes by their keys; those that somebody else has locked have come without a body.
    pub(crate) async fn found_by_key(&mut self, keys: &[LaneKey], rows: Vec<Row>) -> RowsResult<Lanes> {
        let (mut locked, mut busy) = (Vec::with_capacity(rows.len()), Vec::new());
        for row in rows {
            let body: Option<&[u8]> = get(&row, 5)?;
            if body.is_some() { locked.push(row) } else { busy.push(row) }
        }
        let mut found = Lanes { lanes: self.lanes_at(&locked).await?, ..Lanes::default() };
        for row in &busy {
            let queue: i32 = get(row, 0)?;
            let names = self.shared.queues.names(queue).ok_or_else(|| crate::rows::lost_queue(queue))?;
            found.busy.push(lane_key(&names, key(get(row, 1)?)?));
        }
        let mut seen: Vec<&LaneKey> = found.lanes.iter().map(|at| &at.key).chain(&found.busy).collect();
        seen.sort_unstable();
        self.without_lane.extend(keys.iter().filter(|key| seen.binary_search(key).is_err()).cloned());
        self.without_lane.sort_unstable();
        Ok(found)
    }

    /// Lanes by their numbers; those that are missing are busy, or not there.
    pub(crate) async fn found_by_id(
        &self,
        ids: &[u64],
        patience: Patience,
        rows: &[Row],
    ) -> RowsResult<Lanes> {
        let lanes = self.lanes_at(rows).await?;
        let mut busy_ids = Vec::new();
        if patience == Patience::None && lanes.len() < ids.len() {
            let locked: HashSet<u64> = lanes.iter().map(|at| at.lane.id).collect();
            let others: Vec<i64> =
                ids.iter().filter(|id| !locked.contains(id)).map(|id| number(*id)).collect();
            let rows = self.connection()?.query(&EXISTING, &[&others]).await.map_err(|e| trouble(&e))?;
            busy_ids = rows.iter().map(|row| count(row, 0)).collect::<StoreResult<_>>()?;
        }
        Ok(Lanes { lanes, busy_ids, ..Lanes::default() })
    }

    /// The answers to [`due_requests`]: lanes that are locked now, and those in front, which others may have locked.
    pub(crate) async fn found_due(&mut self, due: &[Row], front: &[Row]) -> RowsResult<Vec<LaneAt>> {
        let mut lanes = self.lanes_at(due).await?;
        for (at, row) in lanes.iter().zip(due) {
            self.firsts.insert(at.lane.id, first::read(row, LANE_COLUMNS)?);
        }
        let locked: HashSet<u64> = lanes.iter().map(|at| at.lane.id).collect();
        let mut skipped: Vec<(u64, i64)> = Vec::new();
        for row in front {
            let id = count(row, 0)?;
            if !locked.contains(&id) {
                skipped.push((id, get(row, 1)?));
            }
        }
        let overdue = self.now.before(quell_store_rows::OVERDUE).as_millis();
        let late: Vec<(u64, i64)> = skipped.iter().copied().filter(|(_, due)| *due <= overdue).collect();
        let mut again = self.shared.skipped.again(&late);
        if lanes.is_empty() {
            // There is nothing else to do than to wait for these: a sender is just done with them, or another claim.
            again = skipped.iter().map(|(id, _)| *id).collect();
        }
        again.truncate(SHORT_WAITS);
        if !again.is_empty() {
            lanes.extend(self.wait_for(&again).await?);
        }
        Ok(lanes)
    }

    /// Waits a short while for lanes that are overdue and were skipped before.
    async fn wait_for(&self, ids: &[u64]) -> RowsResult<Vec<LaneAt>> {
        let connection = self.connection()?;
        let wait = SHORT_WAIT.as_millis();
        let begin = format!("SAVEPOINT short; SET LOCAL lock_timeout = {wait}");
        connection.batch(&begin).await.map_err(|e| trouble(&e))?;
        let numbers: Vec<i64> = ids.iter().map(|id| number(*id)).collect();
        let rows = connection.query(&LOCK_DUE, &[&numbers, &self.now.as_millis()]).await;
        let rows = match rows {
            // Rolling back to the savepoint gives the time limit back, too.
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                connection.batch("ROLLBACK TO short").await.map_err(|e| trouble(&e))?;
                return Ok(Vec::new());
            }
            rows => rows.map_err(|e| trouble(&e))?,
        };
        connection.batch("SET LOCAL lock_timeout = 5000").await.map_err(|e| trouble(&e))?;
        self.lanes_at(&rows).await
    }

    pub(crate) async fn end(connection: Connection) {
        let ended = tokio::time::timeout(ROLLBACK, connection.batch("ROLLBACK")).await;
        if !matches!(ended, Ok(Ok(()))) {
            connection.discard();
        }
    }

    /// Ends the transaction after an error, so that it holds no lock while its owner decides what to do.
    pub(crate) async fn give_up(mut self: Box<Self>, error: &Error) {
        if let Some(connection) = self.connection.take() {
            if spoils_connection(error) {
                connection.discard();
            } else {
                Tx::end(connection).await;
            }
        }
    }
}

/// How lanes are locked by their keys.
pub(crate) fn by_key(patience: Patience) -> &'static Sql {
    match patience {
        Patience::Answer => &LOCK_KEYS,
        Patience::None => &TRY_KEYS,
    }
}

/// How lanes are locked by their numbers.
pub(crate) fn by_id(patience: Patience) -> &'static Sql {
    match patience {
        Patience::Answer => &LOCK_IDS,
        Patience::None => &TRY_IDS,
    }
}

/// The columns of [`by_key`]: keys come sorted, so those of one queue follow one another, and its number is asked for once.
/// Those of a queue without a number are left out.
pub(crate) fn places(keys: &[LaneKey], queue: impl Fn(&Names) -> Option<i32>) -> (Vec<i32>, Vec<String>) {
    let (mut queues, mut texts) = (Vec::with_capacity(keys.len()), Vec::with_capacity(keys.len()));
    let mut last: Option<(&Tenant, &QueueName, Option<i32>)> = None;
    for key in keys {
        let id = match last {
            Some((tenant, queue, id)) if *tenant == key.tenant && *queue == key.queue => id,
            _ => queue(&(key.tenant.clone(), key.queue.clone())),
        };
        last = Some((&key.tenant, &key.queue, id));
        if let Some(id) = id {
            queues.push(id);
            texts.push(key.key.as_str().to_owned());
        }
    }
    (queues, texts)
}

/// Locks the lanes that were due at this moment, and asks for those in front.
pub(crate) fn due_requests(shared: &Shared, picks: &[(i32, &Pick)], at: Timestamp) -> Vec<Request> {
    let floors: Vec<i64> = picks.iter().map(|(id, pick)| shared.floors.due(*id, pick.source)).collect();
    let levels = || -> Vec<Value> {
        vec![
            Box::new(picks.iter().map(|(id, _)| *id).collect::<Vec<i32>>()),
            Box::new(picks.iter().map(|(_, pick)| source_code(pick.source)).collect::<Vec<i64>>()),
            Box::new(picks.iter().map(|(_, pick)| i16::from(pick.priority)).collect::<Vec<i16>>()),
            Box::new(floors.clone()),
        ]
    };
    let (mut due, mut front) = (levels(), levels());
    due.push(Box::new(picks.iter().map(|(_, pick)| number(pick.most as u64)).collect::<Vec<i64>>()));
    due.push(Box::new(at.as_millis()));
    front.push(Box::new(at.as_millis()));
    vec![(&DUE, due), (&FRONT, front)]
}

/// Store time: the server's clock, moved by tests.
pub(crate) fn store_time(row: &Row) -> StoreResult<Timestamp> {
    let (clock, offset): (i64, i64) = (get(row, 0)?, get(row, 1)?);
    let offset = if cfg!(feature = "test-clock") { offset } else { 0 };
    Ok(Timestamp::from_millis(clock + offset))
}

/// A transaction that nobody ended is rolled back, apart from whoever dropped it.
impl Drop for Tx {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if !connection.is_closed() => drop(runtime.spawn(Tx::end(connection))),
            _ => connection.discard(),
        }
    }
}

pub(crate) fn read_aside(row: &Row) -> StoreResult<Aside> {
    // What changes after it was written is kept beside the bytes.
    Ok(Aside { look_at: time(row, 0)?, ..codec::read_aside(get(row, 1)?)? })
}

#[async_trait]
impl Rows for Tx {
    fn now(&self) -> Timestamp {
        self.now
    }

    async fn lanes(&mut self, keys: &[LaneKey], patience: Patience) -> RowsResult<Lanes> {
        let ids = self.ids_of(keys.iter()).await?;
        let (queues, texts) = places(keys, |names| ids.get(names).copied());
        let mut rows = Vec::new();
        if !queues.is_empty() {
            let asked = self.connection()?.query(by_key(patience), &[&queues, &texts]).await;
            rows = asked.map_err(|e| trouble(&e))?;
        }
        self.found_by_key(keys, rows).await
    }

    async fn lanes_by_id(&mut self, ids: &[u64], patience: Patience) -> RowsResult<Lanes> {
        let numbers: Vec<i64> = ids.iter().map(|id| number(*id)).collect();
        let rows = self.connection()?.query(by_id(patience), &[&numbers]).await.map_err(|e| trouble(&e))?;
        self.found_by_id(ids, patience, &rows).await
    }

    async fn due(&mut self, picks: &[Pick]) -> RowsResult<Vec<LaneAt>> {
        let names: Vec<Names> = picks.iter().map(|p| (p.tenant.clone(), p.queue.clone())).collect();
        let ids = self.queue_ids(&names).await?;
        let picks: Vec<(i32, &Pick)> =
            picks.iter().zip(ids).filter_map(|(pick, id)| Some((id?, pick))).collect();
        let requests = due_requests(&self.shared, &picks, self.now);
        let answers = self.connection()?.read(&requests).await.map_err(|e| trouble(&e))?;
        let [due, front] = &answers[..] else { return Ok(Vec::new()) };
        self.found_due(due, front).await
    }

    async fn expired(&mut self, queues: &[(Tenant, QueueName)], most: usize) -> RowsResult<Vec<LaneAt>> {
        let ids = self.known_ids(queues).await?;
        let lanes = self.lock(&EXPIRED, &[&ids, &self.now.as_millis(), &number(most as u64)]).await?;
        self.over.extend(ids);
        Ok(lanes)
    }

    async fn claimed(&mut self, claim_id: &str) -> RowsResult<Vec<LaneAt>> {
        let id = clean(claim_id).into_owned();
        // In this order: the lanes of whoever had the lock before are seen.
        let requests: [Request; 2] =
            [(&MEET_CLAIM, vec![Box::new(id.clone())]), (&CLAIMED, vec![Box::new(id)])];
        let answers = self.connection()?.read(&requests).await.map_err(|e| trouble(&e))?;
        self.lanes_at(answers.last().map_or(&[], |rows| rows.as_slice())).await
    }

    async fn ready(&mut self, queues: &[(Tenant, QueueName)], most: usize) -> RowsResult<Vec<Aside>> {
        let ids = self.known_ids(queues).await?;
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&ids, &self.now.as_millis(), &number(most as u64)];
        let rows = self.connection()?.query(&READY, &values).await.map_err(|e| trouble(&e))?;
        Ok(rows.iter().map(read_aside).collect::<StoreResult<_>>()?)
    }

    async fn fires(&mut self, queues: &[(Tenant, QueueName)]) -> RowsResult<Vec<ScheduleRow>> {
        let ids = self.known_ids(queues).await?;
        let rows = self.connection()?.query(&FIRES, &[&ids, &self.now.as_millis()]).await;
        let rows = rows.map_err(|e| trouble(&e))?;
        Ok(rows.iter().map(|row| codec::read_schedule(get(row, 0)?)).collect::<StoreResult<_>>()?)
    }

    async fn find(&mut self, want: &Want, numbers: usize) -> RowsResult<Found> {
        self.read(want, numbers).await
    }

    async fn document(&mut self, shelf: Shelf, name: &str) -> RowsResult<(Option<Document>, usize)> {
        self.place_on(shelf, name).await
    }

    async fn purgeable(&mut self, purge: &Purge, most: usize) -> RowsResult<Purgeable> {
        let connection = self.connection()?;
        let tenant = purge.tenant.as_ref().map(Tenant::as_str);
        let rows = connection.query(&QUEUES_OF, &[&purge.queue.as_str(), &tenant]).await;
        let rows = rows.map_err(|e| trouble(&e))?;
        self.shared.queues.take_in(&rows)?;
        let ids: Vec<i32> = rows.iter().map(|row| get(row, 0)).collect::<StoreResult<_>>()?;
        let key = purge.key.as_ref().map(quell_core::event::Key::as_str);
        let limit = number(most as u64);
        let mut found = Purgeable::default();
        match purge.what {
            PurgeWhat::Dead => {
                let rows = connection.query(&DEAD, &[&ids, &key, &limit]).await.map_err(|e| trouble(&e))?;
                for row in &rows {
                    found.dead.push(RunId { lane: count(row, 0)?, number: count(row, 1)? });
                }
            }
            PurgeWhat::Delayed => {
                let rows =
                    connection.query(&DELAYED, &[&ids, &key, &limit]).await.map_err(|e| trouble(&e))?;
                found.aside = rows.iter().map(read_aside).collect::<StoreResult<_>>()?;
            }
            PurgeWhat::Buffered => {
                let mut from = 0;
                loop {
                    let rows = connection.query(&BUSY, &[&ids, &key, &number(from), &limit]).await;
                    let lanes = self.lanes_at(&rows.map_err(|e| trouble(&e))?).await?;
                    let full = lanes.len() == most;
                    from = lanes.last().map_or(from, |at| at.lane.id);
                    found
                        .lanes
                        .extend(lanes.into_iter().filter(|at| at.lane.open.is_some()).map(|at| at.key));
                    if !full || found.lanes.len() >= most {
                        break;
                    }
                }
                found.lanes.truncate(most);
            }
        }
        Ok(found)
    }

    async fn running(&mut self, tenant: &Tenant, queue: &QueueName) -> RowsResult<u64> {
        let ids = self.known_ids(&[(tenant.clone(), queue.clone())]).await?;
        let Some(id) = ids.first().copied() else { return Ok(0) };
        // In this order: the count sees what was committed before the lock was had.
        let requests = [(&LOCK_QUEUE, vec![Box::new(id) as Value]), (&RUNNING, vec![Box::new(id) as Value])];
        let answers = self.connection()?.read(&requests).await.map_err(|e| trouble(&e))?;
        let Some(row) = answers.last().and_then(|rows| rows.first()) else { return Ok(0) };
        let (running, named) = (count(row, 0)?, count(row, 1)?);
        if named > running * 2 + leases::STALE_MAX {
            // Rows of leases whose lanes were handed back through several processes, so that none of them knew the last one.
            self.over.push(id);
            self.over_at = i64::MAX;
        }
        Ok(running)
    }

    async fn commit(self: Box<Self>, changes: Changes) -> RowsResult<()> {
        self.write(changes).await
    }

    async fn rollback(mut self: Box<Self>) {
        let Some(connection) = self.connection.take() else { return };
        let Some(over) = self.leases_over() else { return Tx::end(connection).await };
        // Nothing else was written. It is only late when it fails, and the next look finds the same.
        let tidied = tokio::time::timeout(ROLLBACK, connection.write(&[over], "COMMIT")).await;
        if !matches!(tidied, Ok(Ok((_, Ok(()))))) {
            connection.discard();
        }
    }
}

impl Shared {
    pub(crate) fn fault(&self, fault: Fault) -> Trouble {
        match fault {
            Fault::Connection(error) => trouble(&error),
            Fault::Store(error) => Trouble::Store(error),
        }
    }
}
