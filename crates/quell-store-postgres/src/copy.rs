//! Everything out of this store and into it as it is: the side of PostgreSQL in `quell store copy`.
//!
//! What is put in place goes the way of every change (`commit.rs`), after what stood there under the same names has been
//! taken away in the same transaction. A seal is a word in `meta` that every transaction reads at its beginning, while it
//! holds a lock that the one who seals waits for: so when the seal is there, nobody is still writing.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use quell_core::aside::Aside;
use quell_core::batch::RunId;
use quell_core::copy::{Applications, Counts, Frame, LaneRow, Portable, Row};
use quell_core::error::{StoreError, StoreResult};
use quell_core::source::{CacheRow, SourceId};
use quell_core::store::StepRow;
use quell_core::totals::Totals;
use quell_core::working_set::{FinishedRun, Kept, Trail};
use quell_store_rows::changes::{Changes, LaneWrite};
use quell_store_rows::codec;
use quell_store_rows::rows::{Entries, Trouble};
use tokio_postgres::types::{ToSql, Type};

use crate::PostgresStore;
use crate::commit::{ERASE_DUE, ERASE_LEASES};
use crate::connection::{Connection, Sql};
use crate::error::not_done;
use crate::find::{BLOCK, read_declarations, read_sources};
use crate::first::events_of_lane;
use crate::health::MOMENT;
use crate::rows::{
    audit_columns, count, event_columns, get, kept, lane_columns, lane_key, number, queue_name, recorded,
    step_columns, step_row, stored_lane, tenant,
};
use crate::shelves::{self, NO_DOCUMENTS};
use crate::tables::PastSeal;
use crate::tx::{Tx, read_aside, store_time};

/// Payload bytes of one page.
const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Documents that one statement puts in place: 4 MiB at the most.
const DOCUMENTS_AT_ONCE: usize = 256;

static SEALED: Sql = Sql { text: "SELECT sealed, copy_place FROM quell.meta", types: &[] };
static SEAL: Sql = Sql { text: "UPDATE quell.meta SET sealed = $1", types: &[Type::TEXT] };
static SET_PLACE: Sql = Sql { text: "UPDATE quell.meta SET copy_place = $1", types: &[Type::TEXT] };
/// Whoever writes holds it together with others; whoever seals waits until nobody does.
static ALONE: Sql =
    Sql { text: "SELECT pg_advisory_xact_lock(hashtextextended('quell.seal', 0))", types: &[] };
static TOTALS: Sql = Sql {
    text: "SELECT q.tenant, q.name, (q.accepted + coalesce(sum(d.accepted), 0))::bigint,
                  (q.succeeded + coalesce(sum(d.succeeded), 0))::bigint, (q.dead + coalesce(sum(d.dead), 0))::bigint,
                  (q.discarded + coalesce(sum(d.discarded), 0))::bigint, (q.delayed + coalesce(sum(d.delayed), 0))::bigint,
                  (q.buffered + coalesce(sum(d.buffered), 0))::bigint,
                  (q.in_flight + coalesce(sum(d.in_flight), 0))::bigint
           FROM quell.queue q LEFT JOIN quell.queue_delta d ON d.queue_id = q.id
           GROUP BY q.id ORDER BY q.tenant, q.name",
    types: &[],
};
static PAUSES: Sql = Sql {
    text: "SELECT queue, every, tenant, body FROM quell.queue_pause ORDER BY queue, every, tenant",
    types: &[],
};
static SCHEDULES: Sql = Sql { text: "SELECT body FROM quell.schedule ORDER BY tenant, name", types: &[] };
static DECLARATIONS: Sql = Sql { text: "SELECT body FROM quell.declaration ORDER BY name", types: &[] };
static SOURCES: Sql = Sql { text: "SELECT body FROM quell.source ORDER BY id", types: &[] };
static CACHED: Sql = Sql {
    text: "SELECT body FROM quell.answer WHERE (source, key) > ($1, $2) AND over_at > $3 ORDER BY source, key LIMIT $4",
    types: &[Type::INT8, Type::TEXT, Type::INT8, Type::INT8],
};
static LAST_NUMBER: Sql = Sql { text: "SELECT last_value, is_called FROM quell.number", types: &[] };
static COUNTS: Sql = Sql {
    text: "SELECT (SELECT count(*) FROM quell.lane), (SELECT count(*) FROM quell.event), (SELECT count(*) FROM quell.run),
                  (SELECT count(*) FROM quell.step), (SELECT count(*) FROM quell.aside),
                  (SELECT count(*) FROM quell.audit)",
    types: &[],
};
static LANES: Sql = Sql {
    text: concat!("SELECT ", lane_columns!(), " FROM quell.lane l WHERE l.id > $1 ORDER BY l.id LIMIT $2"),
    types: &[Type::INT8, Type::INT8],
};
static EVENTS: Sql = Sql {
    text: concat!(
        "SELECT ",
        event_columns!(),
        " FROM (",
        events_of_lane!("$1", "e.seq > $2", "$3"),
        ") e ORDER BY e.seq LIMIT $3"
    ),
    types: &[Type::INT8, Type::INT8, Type::INT8],
};
static RUNS: Sql = Sql {
    text: "SELECT l.queue_id, l.key, r.body FROM quell.run r JOIN quell.lane l ON l.id = r.lane_id
           WHERE r.lane_id = $1 AND r.number > $2 ORDER BY r.number LIMIT $3",
    types: &[Type::INT8, Type::INT8, Type::INT8],
};
static STEPS: Sql = Sql {
    text: concat!(
        "SELECT ",
        step_columns!(),
        " FROM quell.step s WHERE s.lane_id = $1 AND s.run = $2 ORDER BY s.revision, s.name"
    ),
    types: &[Type::INT8, Type::INT8],
};
static ASIDES: Sql = Sql {
    text: "SELECT look_at, body FROM quell.aside WHERE number > $1 ORDER BY number LIMIT $2",
    types: &[Type::INT8, Type::INT8],
};
static TRAIL: Sql = Sql {
    text: concat!(
        "SELECT ",
        audit_columns!(),
        " FROM quell.audit a LEFT JOIN quell.lane l ON l.id = a.lane_id WHERE a.id > $1 ORDER BY a.id LIMIT $2"
    ),
    types: &[Type::INT8, Type::INT8],
};
static OLD_LANES: Sql = Sql { text: "DELETE FROM quell.lane WHERE id = ANY($1)", types: &[Type::INT8_ARRAY] };
static OLD_EVENTS: Sql = Sql {
    text: "DELETE FROM quell.event e USING unnest($1::bigint[], $2::bigint[]) AS w(lane, seq)
           WHERE e.lane_id = w.lane AND e.seq = w.seq",
    types: &[Type::INT8_ARRAY, Type::INT8_ARRAY],
};
static OLD_RUNS: Sql = Sql {
    text: "DELETE FROM quell.run r USING unnest($1::bigint[], $2::bigint[]) AS w(lane, number)
           WHERE r.lane_id = w.lane AND r.number = w.number",
    types: &[Type::INT8_ARRAY, Type::INT8_ARRAY],
};
static OLD_ASIDE: Sql =
    Sql { text: "DELETE FROM quell.aside WHERE number = ANY($1)", types: &[Type::INT8_ARRAY] };
static KNOWN_RECORDS: Sql =
    Sql { text: "SELECT id FROM quell.audit WHERE id = ANY($1)", types: &[Type::INT8_ARRAY] };
/// Lanes of the same keys under other numbers: the key was forgotten at the source and has come back.
static NAMESAKES: Sql = Sql {
    text: "SELECT l.id FROM unnest($1::text[], $2::text[], $3::text[]) AS w(tenant, name, key)
           JOIN quell.queue q ON q.tenant = w.tenant AND q.name = w.name
           JOIN quell.lane l ON l.queue_id = q.id AND l.key = w.key WHERE l.id <> ALL($4)",
    types: &[Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::INT8_ARRAY],
};
static LANE_EVENTS: Sql =
    Sql { text: "DELETE FROM quell.event_row WHERE lane_id = $1", types: &[Type::INT8] };
static LANE_RUNS: Sql = Sql { text: "DELETE FROM quell.run WHERE lane_id = $1", types: &[Type::INT8] };
static LANE_STEPS: Sql = Sql { text: "DELETE FROM quell.step WHERE lane_id = $1", types: &[Type::INT8] };
static LANE: Sql = Sql { text: "DELETE FROM quell.lane WHERE id = $1", types: &[Type::INT8] };
static NO_DELTAS: Sql = Sql { text: "DELETE FROM quell.queue_delta", types: &[] };
static NO_PAUSES: Sql = Sql { text: "DELETE FROM quell.queue_pause", types: &[] };
static NO_SCHEDULES: Sql = Sql { text: "DELETE FROM quell.schedule", types: &[] };
static NO_DECLARATIONS: Sql = Sql { text: "DELETE FROM quell.declaration", types: &[] };
static NO_SOURCES: Sql = Sql { text: "DELETE FROM quell.source", types: &[] };
static PUT_TOTALS: Sql = Sql {
    text: "INSERT INTO quell.queue (tenant, name, accepted, succeeded, dead, discarded, delayed, buffered, in_flight)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
           ON CONFLICT (tenant, name) DO UPDATE SET accepted = excluded.accepted, succeeded = excluded.succeeded,
             dead = excluded.dead, discarded = excluded.discarded, delayed = excluded.delayed,
             buffered = excluded.buffered, in_flight = excluded.in_flight",
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::INT8,
        Type::INT8,
        Type::INT8,
        Type::INT8,
        Type::INT8,
        Type::INT8,
        Type::INT8,
    ],
};
static PRIORITIES: Sql = Sql {
    text: "UPDATE quell.queue q SET priorities = coalesce(
             (SELECT bit_or(1 << l.priority::int) FROM quell.lane l WHERE l.queue_id = q.id), 0) | q.priorities",
    types: &[],
};
/// Runs came lane by lane; listings and the retention go by the order in which they ended.
static ORDER_RUNS: Sql = Sql {
    text: "UPDATE quell.run r SET id = s.place
           FROM (SELECT o.id, (SELECT coalesce(max(id), 0) FROM quell.run)
                          + row_number() OVER (ORDER BY o.ended_at, o.lane_id, o.number) AS place
                 FROM quell.run o) s
           WHERE r.id = s.id",
    types: &[],
};
static NEXT_RUN: Sql = Sql {
    text: "SELECT setval('quell.run_id', (SELECT coalesce(max(id), 0) + 1 FROM quell.run), false)",
    types: &[],
};
static NEXT_NUMBER: Sql = Sql {
    text: "SELECT setval('quell.number', greatest($1, (SELECT last_value FROM quell.number)), true)",
    types: &[Type::INT8],
};

impl PostgresStore {
    async fn read(&self, sql: &Sql, values: &[&(dyn ToSql + Sync)]) -> StoreResult<Vec<tokio_postgres::Row>> {
        let connection = self.shared.connections.get().await?;
        connection.query(sql, values).await.map_err(|e| not_done(&e))
    }

    /// A transaction of which the seal does not hold anybody back.
    async fn change(&self, work: impl AsyncFnOnce(&Connection) -> StoreResult<()>) -> StoreResult<()> {
        let connection = self.shared.connections.get().await?;
        connection.batch("BEGIN").await.map_err(|e| not_done(&e))?;
        let done = work(&connection).await;
        let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = connection.batch(end).await;
        if ended.is_err() {
            connection.discard();
        }
        done?;
        ended.map_err(|e| not_done(&e))
    }

    async fn names(&self, id: i32) -> StoreResult<crate::queues::Names> {
        let queues = &self.shared.queues;
        if queues.names(id).is_none() {
            let connection = self.shared.connections.get().await?;
            let learned = queues.learn_ids(&connection, std::iter::once(id)).await;
            learned.map_err(|fault| match self.shared.fault(fault) {
                Trouble::Store(error) => error,
                Trouble::Again => StoreError::unavailable("somebody else was faster; try again"),
            })?;
        }
        queues.names(id).ok_or_else(|| crate::rows::lost_queue(id))
    }
}

#[async_trait]
impl Portable for PostgresStore {
    async fn sealed(&self) -> StoreResult<Option<String>> {
        let rows = self.read(&SEALED, &[]).await?;
        rows.first().map_or(Ok(None), |row| get(row, 0))
    }

    async fn seal(&self, by: Option<&str>) -> StoreResult<()> {
        self.change(async |connection| {
            connection.query(&SEAL, &[&by]).await.map(drop).map_err(|e| not_done(&e))
        })
        .await?;
        // Those who began before they could read it are waited for.
        self.change(async |connection| {
            connection.query(&ALONE, &[]).await.map(drop).map_err(|e| not_done(&e))
        })
        .await?;
        // Whoever sleeps would otherwise find out late that the store can be used again.
        self.wake();
        Ok(())
    }

    async fn frame(&self) -> StoreResult<Frame> {
        let moment = self.read(&MOMENT, &[]).await?;
        let now = moment.first().map_or(Ok(Default::default()), store_time)?;
        let mut totals = Vec::new();
        for row in self.read(&TOTALS, &[]).await? {
            let [accepted, succeeded, dead, discarded, delayed, buffered, in_flight] =
                [2, 3, 4, 5, 6, 7, 8].map(|column| count(&row, column));
            let of_queue = Totals {
                accepted: accepted?,
                succeeded: succeeded?,
                dead: dead?,
                discarded: discarded?,
                delayed: delayed?,
                buffered: buffered?,
                in_flight: in_flight?,
            };
            totals.push((tenant(get(&row, 0)?)?, queue_name(get(&row, 1)?)?, of_queue));
        }
        let mut pauses = Vec::new();
        for row in self.read(&PAUSES, &[]).await? {
            let every: bool = get(&row, 1)?;
            let of = if every { None } else { Some(tenant(get(&row, 2)?)?) };
            pauses.push((queue_name(get(&row, 0)?)?, of, codec::read_paused(get(&row, 3)?)?));
        }
        let schedules = self.read(&SCHEDULES, &[]).await?;
        let schedules =
            schedules.iter().map(|row| codec::read_schedule(get(row, 0)?)).collect::<StoreResult<_>>()?;
        let last = self.read(&LAST_NUMBER, &[]).await?;
        let last_number = match last.first() {
            Some(row) if get(row, 1)? => count(row, 0)? + BLOCK - 1,
            _ => 0,
        };
        let counted = self.read(&COUNTS, &[]).await?;
        let row = counted.first().ok_or_else(|| StoreError::unavailable("the server counts nothing"))?;
        let counts = Counts {
            lanes: count(row, 0)?,
            events: count(row, 1)?,
            runs: count(row, 2)?,
            steps: count(row, 3)?,
            aside: count(row, 4)?,
            audit: count(row, 5)?,
        };
        let declarations = read_declarations(&self.read(&DECLARATIONS, &[]).await?)?;
        let sources = read_sources(&self.read(&SOURCES, &[]).await?)?;
        let documents = shelves::all(&self.shared.connections.get().await?).await?;
        Ok(Frame { now, last_number, totals, pauses, schedules, declarations, sources, documents, counts })
    }

    async fn lanes(&self, after: u64, most: usize) -> StoreResult<Vec<LaneRow>> {
        let mut lanes = Vec::new();
        for row in self.read(&LANES, &[&number(after), &number(most as u64)]).await? {
            let stored = stored_lane(&row, 0)?;
            let names = self.names(stored.queue).await?;
            lanes.push(LaneRow { key: lane_key(&names, stored.key), lane: *stored.lane });
        }
        Ok(lanes)
    }

    async fn events(&self, lane: u64, after: u64, most: usize) -> StoreResult<Vec<Kept>> {
        let values: [&(dyn ToSql + Sync); 3] = [&number(lane), &number(after), &number(most as u64)];
        let (mut events, mut bytes) = (Vec::new(), 0);
        for row in self.read(&EVENTS, &values).await? {
            let event = kept(&row, 0)?;
            bytes += event.event.payload.len();
            events.push(event);
            if bytes >= PAGE_BYTES {
                break;
            }
        }
        Ok(events)
    }

    async fn runs(&self, lane: u64, after: u64, most: usize) -> StoreResult<Vec<FinishedRun>> {
        let values: [&(dyn ToSql + Sync); 3] = [&number(lane), &number(after), &number(most as u64)];
        let mut runs = Vec::new();
        for row in self.read(&RUNS, &values).await? {
            let names = self.names(get(&row, 0)?).await?;
            let key = lane_key(&names, crate::rows::key(get(&row, 1)?)?);
            runs.push(codec::read_run(key, lane, get(&row, 2)?)?);
        }
        Ok(runs)
    }

    async fn steps(&self, run: RunId) -> StoreResult<Vec<StepRow>> {
        let rows = self.read(&STEPS, &[&number(run.lane), &number(run.number)]).await?;
        rows.iter().map(|row| step_row(row).map(|(_, step)| step)).collect()
    }

    async fn asides(&self, after: u64, most: usize) -> StoreResult<Vec<Aside>> {
        let rows = self.read(&ASIDES, &[&number(after), &number(most as u64)]).await?;
        rows.iter().map(read_aside).collect()
    }

    async fn trail(&self, after: u64, most: usize) -> StoreResult<Vec<Trail>> {
        let mut trail = Vec::new();
        for row in self.read(&TRAIL, &[&number(after), &number(most as u64)]).await? {
            self.names(get(&row, 2)?).await?;
            let (lane, record) = recorded(&row, |id| self.shared.queues.names(id))?;
            trail.push(Trail { lane, record });
        }
        Ok(trail)
    }

    async fn cached(&self, after: Option<(SourceId, String)>, most: usize) -> StoreResult<Vec<CacheRow>> {
        let moment = self.read(&MOMENT, &[]).await?;
        let now = moment.first().map_or(Ok(Default::default()), store_time)?;
        let (source, key) = after.map_or((0, String::new()), |(source, key)| (number(source.0), key));
        let values: [&(dyn ToSql + Sync); 4] = [&source, &key, &now.as_millis(), &number(most as u64)];
        let (mut cached, mut bytes) = (Vec::new(), 0);
        for row in self.read(&CACHED, &values).await? {
            let body: &[u8] = get(&row, 0)?;
            bytes += body.len();
            cached.push(codec::read_answer(body)?);
            if bytes >= PAGE_BYTES {
                break;
            }
        }
        Ok(cached)
    }

    async fn put(&self, rows: Vec<Row>) -> StoreResult<()> {
        let mut changes = Changes::default();
        for row in rows {
            match row {
                Row::Lane(LaneRow { key, lane }) => {
                    let entries = Entries::of(&lane);
                    changes.lanes.push(LaneWrite { key, lane: Box::new(lane), was: None, entries });
                }
                Row::Event(lane, kept) => changes.new_events.push((lane, Arc::new(kept))),
                Row::Run(run) => changes.new_runs.push(run),
                Row::Step(run, step) => changes.steps.push((run, step)),
                Row::Aside(aside) => changes.new_aside.push(aside),
                Row::Trail(trail) => changes.audit.push(trail),
                Row::Cached(row) => changes.answers.push(row),
            }
        }
        let tx = Tx::begin_sealed(&self.shared).await.map_err(told)?;
        let connection = tx.connection().map_err(told)?;
        let lanes: Vec<i64> = changes.lanes.iter().map(|w| number(w.lane.id)).collect();
        let events: (Vec<i64>, Vec<i64>) =
            changes.new_events.iter().map(|(lane, k)| (number(*lane), number(k.event.seq))).unzip();
        let runs: (Vec<i64>, Vec<i64>) =
            changes.new_runs.iter().map(|r| (number(r.lane), number(r.ended.run.number))).unzip();
        let aside: Vec<i64> = changes.new_aside.iter().map(|a| number(a.number)).collect();
        let records: Vec<i64> = changes.audit.iter().map(|t| number(t.record.id)).collect();
        let failed = |e: tokio_postgres::Error| not_done(&e);
        let of = |f: fn(&LaneWrite) -> &str| changes.lanes.iter().map(f).collect::<Vec<&str>>();
        let names = [of(|w| w.key.tenant.as_str()), of(|w| w.key.queue.as_str()), of(|w| w.key.key.as_str())];
        let namesakes = connection.query(&NAMESAKES, &[&names[0], &names[1], &names[2], &lanes]).await;
        for row in namesakes.map_err(failed)? {
            take_out(connection, count(&row, 0)?).await?;
        }
        for sql in [&ERASE_DUE, &ERASE_LEASES, &OLD_LANES] {
            connection.query(sql, &[&lanes]).await.map_err(failed)?;
        }
        connection.query(&OLD_EVENTS, &[&events.0, &events.1]).await.map_err(failed)?;
        connection.query(&OLD_RUNS, &[&runs.0, &runs.1]).await.map_err(failed)?;
        connection.query(&OLD_ASIDE, &[&aside]).await.map_err(failed)?;
        // A record is never changed, so one that is there is the same.
        let known = connection.query(&KNOWN_RECORDS, &[&records]).await.map_err(failed)?;
        let known: HashSet<u64> = known.iter().map(|row| count(row, 0)).collect::<StoreResult<_>>()?;
        changes.audit.retain(|t| !known.contains(&t.record.id));
        Box::new(tx).write(changes).await.map_err(told)
    }

    async fn remove_lane(&self, lane: u64) -> StoreResult<()> {
        self.change(async |connection| take_out(connection, lane).await).await
    }

    async fn take_frame(&self, frame: &Frame) -> StoreResult<()> {
        self.change(async |connection| {
            let ask = async |sql: &'static Sql, values: &[&(dyn ToSql + Sync)]| {
                connection.query(sql, values).await.map(drop).map_err(|e| not_done(&e))
            };
            ask(&NO_DELTAS, &[]).await?;
            ask(&NO_PAUSES, &[]).await?;
            ask(&NO_SCHEDULES, &[]).await?;
            ask(&NO_DECLARATIONS, &[]).await?;
            ask(&NO_SOURCES, &[]).await?;
            ask(&NO_DOCUMENTS, &[]).await?;
            for (tenant, queue, t) in &frame.totals {
                let counters =
                    [t.accepted, t.succeeded, t.dead, t.discarded, t.delayed, t.buffered, t.in_flight];
                let [a, s, d, x, l, b, f] = counters.map(number);
                let (tenant, queue) = (tenant.as_str(), queue.as_str());
                ask(&PUT_TOTALS, &[&tenant, &queue, &a, &s, &d, &x, &l, &b, &f]).await?;
            }
            ask(&PRIORITIES, &[]).await?;
            ask(&ORDER_RUNS, &[]).await?;
            ask(&NEXT_RUN, &[]).await?;
            ask(&NEXT_NUMBER, &[&number(frame.last_number)]).await
        })
        .await?;
        for documents in frame.documents.chunks(DOCUMENTS_AT_ONCE) {
            let changes = Changes { documents: documents.to_vec(), ..Changes::default() };
            let tx = Tx::begin_sealed(&self.shared).await.map_err(told)?;
            Box::new(tx).write(changes).await.map_err(told)?;
        }
        let mut changes = Changes { schedules: frame.schedules.clone(), ..Changes::default() };
        changes.pauses = frame.pauses.clone();
        changes.declarations = frame.declarations.clone();
        changes.new_sources = frame.sources.clone();
        let tx = Tx::begin_sealed(&self.shared).await.map_err(told)?;
        Box::new(tx).write(changes).await.map_err(told)
    }

    async fn place(&self) -> StoreResult<Option<String>> {
        let rows = self.read(&SEALED, &[]).await?;
        rows.first().map_or(Ok(None), |row| get(row, 1))
    }

    async fn set_place(&self, place: Option<&str>) -> StoreResult<()> {
        self.change(async |connection| {
            connection.query(&SET_PLACE, &[&place]).await.map(drop).map_err(|e| not_done(&e))
        })
        .await
    }

    fn applications(self: Arc<Self>) -> Applications {
        Applications::Tables(Arc::new(PastSeal(self)))
    }
}

/// A lane with everything that belongs to it, except its records in the trail.
async fn take_out(connection: &Connection, lane: u64) -> StoreResult<()> {
    for sql in [&ERASE_DUE, &ERASE_LEASES] {
        connection.query(sql, &[&vec![number(lane)]]).await.map_err(|e| not_done(&e))?;
    }
    for sql in [&LANE_EVENTS, &LANE_RUNS, &LANE_STEPS, &LANE] {
        connection.query(sql, &[&number(lane)]).await.map_err(|e| not_done(&e))?;
    }
    Ok(())
}

/// Nobody else writes to a store that is being filled.
fn told(trouble: Trouble) -> StoreError {
    match trouble {
        Trouble::Store(error) => error,
        Trouble::Again => {
            StoreError::unavailable("somebody else changes this store; nothing was done, try again")
        }
    }
}
