//! Inspect: reads in one snapshot each, never blocking a writer.
//!
//! Listings go by indexes and cursors. Lanes that have something to do are found through the indexes of leases, due
//! times and pauses, so a million idle lanes cost nothing (`inspect/lanes.rs`). Finished runs and audit records are read
//! from the newest backwards; a filter without an index of its own looks at a bounded number of rows per page and hands
//! out a cursor to go on (`inspect/history.rs`). Sources are listed by name (`inspect/sources.rs`). `Verify` reads everything and is for `doctor` (`inspect/verify.rs`).

use std::collections::BTreeMap;

use quell_core::aside::Aside;
use quell_core::clock::Timestamp;
use quell_core::error::StoreResult;
use quell_core::event::{Event, EventId, LaneKey, QueueName, Tenant};
use quell_core::inspect::{EventPlace, Inspect, Inspected, QueueLeases, QueueStats};
use quell_core::lane::{Lane, Paused};
use quell_core::lifecycle::RunState;
use quell_core::limits;
use quell_core::schedule::ScheduleRow;
use quell_core::totals::Totals;
use quell_store_rows::codec;
use quell_store_rows::rows::LaneAt;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::Shared;
use crate::connection::{Connection, Sql};
use crate::error::not_done;
use crate::find::read_pauses;
use crate::rows::{
    count, event_columns, get, kept, lane_columns, lane_key, lost_queue, maybe_number, number, queue_name,
    stored_lane, tenant,
};
use crate::tx::{read_aside, store_time};

mod cursor;
mod history;
mod lanes;
mod sources;
mod verify;

static MOMENT: Sql = Sql {
    text: "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, test_offset FROM quell.meta",
    types: &[],
};
static QUEUES: Sql =
    Sql { text: "SELECT id, tenant, name, priorities FROM quell.queue ORDER BY id", types: &[] };
static PAUSES: Sql = Sql { text: "SELECT queue, every, tenant, body FROM quell.queue_pause", types: &[] };
static LANE_BY_KEY: Sql = Sql {
    text: concat!("SELECT ", lane_columns!(), " FROM quell.lane l WHERE l.queue_id = $1 AND l.key = $2"),
    types: &[Type::INT4, Type::TEXT],
};
pub(crate) static LANE_BY_ID: Sql = Sql {
    text: concat!("SELECT ", lane_columns!(), " FROM quell.lane l WHERE l.id = $1"),
    types: &[Type::INT8],
};
static EVENT_BY_ID: Sql = Sql {
    text: concat!(
        "SELECT ",
        event_columns!(),
        " FROM quell.event e WHERE e.lane_id = $1 AND e.id = $2 ORDER BY e.seq DESC LIMIT 1"
    ),
    types: &[Type::INT8, Type::TEXT],
};
static ASIDE_BY_ID: Sql = Sql {
    text: "SELECT look_at, body FROM quell.aside WHERE id = $1 AND queue_id = $2 AND key = $3 ORDER BY number LIMIT 1",
    types: &[Type::TEXT, Type::INT4, Type::TEXT],
};
static SCHEDULES: Sql = Sql { text: "SELECT body FROM quell.schedule ORDER BY tenant, name", types: &[] };
/// The first of each source and of none.
static DUE_BEFORE: Sql = Sql {
    text: concat!(
        "SELECT ",
        lane_columns!(),
        " FROM (SELECT 0::bigint AS id UNION ALL SELECT source FROM quell.queue_source WHERE queue_id = $1) s
         CROSS JOIN LATERAL (
           SELECT lane_id FROM quell.due WHERE queue_id = $1 AND source = s.id AND priority = $2 AND due_at <= $3
           ORDER BY due_at LIMIT $4) d
         JOIN quell.lane l ON l.id = d.lane_id"
    ),
    types: &[Type::INT4, Type::INT2, Type::INT8, Type::INT8],
};
/// What was added to the rows of the queues, and what has not been added yet, in one snapshot.
static TOTALS: Sql = Sql {
    text: "SELECT q.id,
             (q.accepted + coalesce(sum(d.accepted), 0))::bigint, (q.succeeded + coalesce(sum(d.succeeded), 0))::bigint,
             (q.dead + coalesce(sum(d.dead), 0))::bigint, (q.discarded + coalesce(sum(d.discarded), 0))::bigint,
             (q.delayed + coalesce(sum(d.delayed), 0))::bigint, (q.buffered + coalesce(sum(d.buffered), 0))::bigint,
             (q.in_flight + coalesce(sum(d.in_flight), 0))::bigint
           FROM quell.queue q LEFT JOIN quell.queue_delta d ON d.queue_id = q.id GROUP BY q.id ORDER BY q.id",
    types: &[],
};
static RUNNING: Sql = Sql {
    text: "SELECT queue_id, count(*) FROM (
             SELECT queue_id, lane_id FROM quell.lease
             UNION
             SELECT g.queue_id, l.id FROM quell.lease_group g CROSS JOIN LATERAL unnest(g.lanes) AS u(lane)
             JOIN quell.lane l ON l.id = u.lane AND l.lease_at = g.lease_at) r
           GROUP BY queue_id",
    types: &[],
};
/// The first leases of each queue that has any, with their lanes.
static LEASES: Sql = Sql {
    text: concat!(
        "SELECT ",
        lane_columns!(),
        " FROM (SELECT queue_id FROM quell.lease UNION SELECT queue_id FROM quell.lease_group) q
         CROSS JOIN LATERAL (
           SELECT n.id FROM (
             SELECT lane_id, lease_at FROM quell.lease WHERE queue_id = q.queue_id
             UNION
             SELECT u.lane, g.lease_at FROM quell.lease_group g CROSS JOIN LATERAL unnest(g.lanes) AS u(lane)
             WHERE g.queue_id = q.queue_id) e
           JOIN quell.lane n ON n.id = e.lane_id AND n.lease_at = e.lease_at
           ORDER BY e.lease_at, n.id LIMIT $1) s
         JOIN quell.lane l ON l.id = s.id"
    ),
    types: &[Type::INT8],
};
static MARKED_PLACE: Sql = Sql {
    text: "SELECT number, state FROM quell.run
           WHERE lane_id = $1 AND number = $2 AND marked AND count > 0 AND $3 BETWEEN lo AND hi",
    types: &[Type::INT8, Type::INT8, Type::INT8],
};
/// From the newest run backwards: who asks for an event does so soon.
static UNMARKED_PLACE: Sql = Sql {
    text: "SELECT number, state FROM quell.run
           WHERE lane_id = $1 AND $2 BETWEEN lo AND hi AND count > 0 AND NOT marked ORDER BY number DESC LIMIT 1",
    types: &[Type::INT8, Type::INT8],
};

/// Reads do not profit from plans that are kept, and some of them read whole tables.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL jit = off; \
    SET LOCAL plan_cache_mode = auto; SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on; \
    SET LOCAL enable_mergejoin = on; SET LOCAL enable_bitmapscan = on";

pub(crate) async fn inspect(shared: &Shared, request: Inspect) -> StoreResult<Inspected> {
    cursor::check(&request)?;
    let connection = shared.connections.get().await?;
    let answer = match connection.batch(BEGIN).await {
        Ok(()) => read(shared, &connection, &request).await,
        // It had died in the pool: a read can be begun on another.
        Err(error) if error.is_closed() => {
            connection.discard();
            let connection = shared.connections.get().await?;
            connection.batch(BEGIN).await.map_err(|e| not_done(&e))?;
            let answer = read(shared, &connection, &request).await;
            return finished(connection, answer).await;
        }
        Err(error) => Err(not_done(&error)),
    };
    finished(connection, answer).await
}

async fn finished(connection: Connection, answer: StoreResult<Inspected>) -> StoreResult<Inspected> {
    if connection.batch("ROLLBACK").await.is_err() {
        connection.discard();
    }
    answer
}

async fn read(shared: &Shared, connection: &Connection, request: &Inspect) -> StoreResult<Inspected> {
    let view = View::open(shared, connection).await?;
    match request {
        Inspect::Lane(key) => Ok(Inspected::Lane(view.lane_detail(key).await?.map(Box::new))),
        Inspect::Lanes(filter) => Ok(Inspected::Lanes(view.lanes(filter).await?)),
        Inspect::Run(id) => Ok(Inspected::Run(view.run(*id).await?.map(Box::new))),
        Inspect::Runs(filter) => Ok(Inspected::Runs(view.runs(filter).await?)),
        Inspect::Event(key, id) => Ok(Inspected::Event(view.event(key, id).await?)),
        Inspect::Audit(filter) => Ok(Inspected::Audit(view.audit(filter).await?)),
        Inspect::Schedules => Ok(Inspected::Schedules(view.schedules().await?)),
        Inspect::Sources(filter) => Ok(Inspected::Sources(view.sources(filter).await?)),
        Inspect::Stats => Ok(Inspected::Stats(view.stats().await?)),
        Inspect::Leases => Ok(Inspected::Leases(view.leases().await?)),
        Inspect::Verify => Ok(Inspected::Verify(view.verify().await?)),
        Inspect::Health => Ok(Inspected::Health(crate::health::health(shared, connection).await?)),
    }
}

/// A queue as a read sees it.
#[derive(Debug, Clone)]
struct QueueRow {
    id: i32,
    tenant: Tenant,
    name: QueueName,
    priorities: i32,
}

impl QueueRow {
    fn names(&self) -> (Tenant, QueueName) {
        (self.tenant.clone(), self.name.clone())
    }
}

/// What one read sees: the time, the queues and the pauses of its snapshot.
struct View<'c> {
    connection: &'c Connection,
    now: Timestamp,
    queues: Vec<QueueRow>,
    pauses: BTreeMap<(QueueName, Option<Tenant>), Paused>,
}

impl<'c> View<'c> {
    async fn open(shared: &Shared, connection: &'c Connection) -> StoreResult<Self> {
        let requests = [(&MOMENT, Vec::new()), (&QUEUES, Vec::new()), (&PAUSES, Vec::new())];
        let answers = connection.read(&requests).await.map_err(|e| not_done(&e))?;
        let [moment, rows, pauses] = &answers[..] else {
            return Err(crate::error::unreadable("three answers were due"));
        };
        shared.queues.take_in(rows)?;
        let mut queues = Vec::with_capacity(rows.len());
        for row in rows {
            queues.push(QueueRow {
                id: get(row, 0)?,
                tenant: tenant(get(row, 1)?)?,
                name: queue_name(get(row, 2)?)?,
                priorities: get(row, 3)?,
            });
        }
        let now = moment.first().map_or(Ok(Timestamp::default()), store_time)?;
        Ok(View { connection, now, queues, pauses: read_pauses(pauses)? })
    }

    async fn query(&self, sql: &Sql, values: &[&(dyn ToSql + Sync)]) -> StoreResult<Vec<Row>> {
        self.connection.query(sql, values).await.map_err(|e| not_done(&e))
    }

    /// The queues that a filter names.
    fn matching(&self, tenant: Option<&Tenant>, queue: Option<&QueueName>) -> Vec<QueueRow> {
        let of =
            |row: &&QueueRow| tenant.is_none_or(|t| *t == row.tenant) && queue.is_none_or(|q| *q == row.name);
        self.queues.iter().filter(of).cloned().collect()
    }

    fn queue(&self, id: i32) -> Option<&QueueRow> {
        self.queues.binary_search_by_key(&id, |row| row.id).ok().map(|place| &self.queues[place])
    }

    fn find_queue(&self, key: &LaneKey) -> Option<&QueueRow> {
        self.queues.iter().find(|q| q.tenant == key.tenant && q.name == key.queue)
    }

    fn paused_by(&self, tenant: &Tenant, queue: &QueueName) -> Option<String> {
        let own = self.pauses.get(&(queue.clone(), Some(tenant.clone())));
        own.or_else(|| self.pauses.get(&(queue.clone(), None))).map(|p| p.by.clone())
    }

    fn lane_at(&self, row: &Row) -> StoreResult<LaneAt> {
        let stored = stored_lane(row, 0)?;
        let queue = self.queue(stored.queue).ok_or_else(|| lost_queue(stored.queue))?;
        let key = lane_key(&queue.names(), stored.key);
        Ok(LaneAt { key, lane: stored.lane, entries: stored.entries })
    }

    async fn find_lane(&self, key: &LaneKey) -> StoreResult<Option<LaneAt>> {
        let Some(queue) = self.find_queue(key) else { return Ok(None) };
        let rows = self.query(&LANE_BY_KEY, &[&queue.id, &key.key.as_str()]).await?;
        rows.first().map(|row| self.lane_at(row)).transpose()
    }

    /// The run an event belongs to: one that waits or is held, the open one, or one that ended.
    async fn place_of_event(
        &self,
        lane: &Lane,
        seq: u64,
        mark: Option<u64>,
    ) -> StoreResult<Option<(u64, RunState)>> {
        if let Some(place) = lane.run_of(seq, mark) {
            return Ok(Some(place));
        }
        let (id, seq) = (number(lane.id), number(seq));
        let rows = match maybe_number(mark) {
            Some(run) => self.query(&MARKED_PLACE, &[&id, &run, &seq]).await?,
            None => self.query(&UNMARKED_PLACE, &[&id, &seq]).await?,
        };
        rows.first().map(|row| Ok((count(row, 0)?, crate::rows::state(get(row, 1)?)?))).transpose()
    }

    async fn event(&self, key: &LaneKey, id: &EventId) -> StoreResult<Option<EventPlace>> {
        if let Some(at) = self.find_lane(key).await? {
            let rows = self.query(&EVENT_BY_ID, &[&number(at.lane.id), &id.as_str()]).await?;
            if let Some(row) = rows.first() {
                let kept = kept(row, 0)?;
                let place = self.place_of_event(&at.lane, kept.event.seq, kept.mark).await?;
                return Ok(Some(EventPlace {
                    event: kept.event,
                    ready_at: None,
                    run_id: place.map(|(number, _)| at.lane.run_id(number)),
                    state: place.map(|(_, state)| state),
                }));
            }
        }
        let Some(queue) = self.find_queue(key) else { return Ok(None) };
        let rows = self.query(&ASIDE_BY_ID, &[&id.as_str(), &queue.id, &key.key.as_str()]).await?;
        // An event that has been accepted and is not in its lane yet has neither number nor run.
        rows.first().map(|row| Ok(place_aside(read_aside(row)?))).transpose()
    }

    async fn schedules(&self) -> StoreResult<Vec<ScheduleRow>> {
        let rows = self.query(&SCHEDULES, &[]).await?;
        rows.iter().map(|row| codec::read_schedule(get(row, 0)?)).collect()
    }

    /// The earliest moment at which a lane of this queue has been due, if any is due now.
    async fn oldest_due(&self, queue: &QueueRow) -> StoreResult<Option<Timestamp>> {
        let mut oldest: Option<Timestamp> = None;
        for priority in (0..=limits::PRIORITY_MAX).filter(|p| queue.priorities >> p & 1 == 1) {
            // Entries may be early; the first one that is truly due is among the first few, and a page bounds the look.
            let page = number(limits::PAGE_DEFAULT as u64);
            let values: [&(dyn ToSql + Sync); 4] =
                [&queue.id, &i16::from(priority), &self.now.as_millis(), &page];
            for row in &self.query(&DUE_BEFORE, &values).await? {
                let due = stored_lane(row, 0)?.lane.due_at().filter(|due| *due <= self.now);
                oldest = [oldest, due].into_iter().flatten().min();
            }
        }
        Ok(oldest)
    }

    async fn totals(&self) -> StoreResult<BTreeMap<i32, Totals>> {
        let mut totals = BTreeMap::new();
        for row in &self.query(&TOTALS, &[]).await? {
            let of_queue = Totals {
                accepted: count(row, 1)?,
                succeeded: count(row, 2)?,
                dead: count(row, 3)?,
                discarded: count(row, 4)?,
                delayed: count(row, 5)?,
                buffered: count(row, 6)?,
                in_flight: count(row, 7)?,
            };
            totals.insert(get(row, 0)?, of_queue);
        }
        Ok(totals)
    }

    async fn leases(&self) -> StoreResult<Vec<QueueLeases>> {
        let mut lanes: BTreeMap<i32, Vec<Lane>> = BTreeMap::new();
        for row in &self.query(&LEASES, &[&number(limits::LEASES_LOOK as u64)]).await? {
            let stored = stored_lane(row, 0)?;
            lanes.entry(stored.queue).or_default().push(*stored.lane);
        }
        let of_queue = |(id, lanes): (&i32, &Vec<Lane>)| {
            let queue = self.queue(*id)?;
            QueueLeases::of((&queue.tenant, &queue.name), self.now, lanes.iter())
        };
        Ok(lanes.iter().filter_map(of_queue).collect())
    }

    async fn stats(&self) -> StoreResult<Vec<QueueStats>> {
        let totals = self.totals().await?;
        let mut running = BTreeMap::new();
        for row in &self.query(&RUNNING, &[]).await? {
            running.insert(get::<i32>(row, 0)?, count(row, 1)?);
        }
        let mut all = Vec::with_capacity(self.queues.len());
        for queue in &self.queues {
            let oldest = self.oldest_due(queue).await?;
            all.push(QueueStats {
                tenant: queue.tenant.clone(),
                queue: queue.name.clone(),
                totals: totals.get(&queue.id).copied().unwrap_or_default(),
                running: running.get(&queue.id).copied().unwrap_or(0),
                paused_by: self.paused_by(&queue.tenant, &queue.name),
                oldest_due_ms: oldest
                    .map(|due| u64::try_from(self.now.since(due).as_millis()).unwrap_or(u64::MAX)),
            });
        }
        all.sort_by(|a, b| (&a.tenant, &a.queue).cmp(&(&b.tenant, &b.queue)));
        Ok(all)
    }
}

fn place_aside(aside: Aside) -> EventPlace {
    let event = Event {
        seq: 0,
        id: aside.event.id.id().clone(),
        received_at: aside.accepted_at,
        payload: aside.event.payload,
        headers: aside.event.headers,
        was_seq: None,
    };
    EventPlace { event, ready_at: Some(aside.ready_at), run_id: None, state: None }
}
