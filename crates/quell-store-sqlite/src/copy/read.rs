//! Rows as they are, a page at a time. Each page is one snapshot; whoever wants all pages to agree seals the store.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use quell_core::aside::Aside;
use quell_core::audit::AuditRecord;
use quell_core::batch::RunId;
use quell_core::copy::{Counts, Frame, LaneRow};
use quell_core::event::{Fingerprint, LaneKey, QueueName, Tenant};
use quell_core::limits;
use quell_core::source::{CacheRow, SourceId};
use quell_core::working_set::{FinishedRun, Kept, Trail};
use rusqlite::types::FromSqlError;
use rusqlite::{Connection, OptionalExtension};

use crate::aside::{SCHEDULE_COLUMNS, Waiting, read_schedule};
use crate::claim::key_of;
use crate::inspect::history::Recorded;
use crate::rows::{self, RunRecord, from_json, time};
use crate::shelves;
use crate::sources::{declarations, read_answer, read_source};
use crate::tx::{Facts, LANE_BY_ID, QUEUE_BY_ID, QueueRow, facts, queue_pauses};

const LANES: &str = concat!(include_str!("../../sql/lane.sql"), "WHERE id > ?1 ORDER BY id LIMIT ?2");
const QUEUES: &str = concat!(include_str!("../../sql/queue.sql"), "ORDER BY tenant, name");
const EVENTS: &str =
    "SELECT seq, id, received_at, headers, payload, was_seq, mark, priority, fingerprint, source FROM event
    WHERE lane_id = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
const ASIDES: &str =
    "SELECT number, key, id, given, ready_at, priority, window, policy, headers, payload, source,
           queue_id, accepted_at, look_at
    FROM aside WHERE number > ?1 ORDER BY number LIMIT ?2";
const TRAIL: &str = "SELECT id, at, queue_id, lane_id, run, change, from_state, to_state, attempt, token, worker, prior_worker,
           upto_seq, next_at, actor, other_run, verdict
    FROM audit WHERE id > ?1 ORDER BY id LIMIT ?2";
const ANSWERS: &str = "SELECT source, key, value, kept_at, expires_at, flight FROM answer
    WHERE (source, key) > (?1, ?2) ORDER BY source, key LIMIT ?3";
/// A page ends when its payloads reach this.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// One text of the one row of facts.
pub(super) fn of_meta(connection: &Connection, sql: &str) -> rusqlite::Result<Option<String>> {
    connection.prepare_cached(sql)?.query_row([], |row| row.get(0))
}

/// Names by their numbers, as far as one page needs them.
struct Names<'c> {
    connection: &'c Connection,
    queues: HashMap<u64, QueueRow>,
    workers: HashMap<u64, String>,
}

impl<'c> Names<'c> {
    fn new(connection: &'c Connection) -> Self {
        Names { connection, queues: HashMap::new(), workers: HashMap::new() }
    }

    fn queue(&mut self, id: u64) -> rusqlite::Result<&QueueRow> {
        match self.queues.entry(id) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => {
                let mut statement = self.connection.prepare_cached(QUEUE_BY_ID)?;
                Ok(new.insert(statement.query_row([id], QueueRow::read)?))
            }
        }
    }

    fn worker(&mut self, id: u64) -> rusqlite::Result<String> {
        if let Some(name) = self.workers.get(&id) {
            return Ok(name.clone());
        }
        let sql = "SELECT identity FROM worker WHERE id = ?1";
        let name: Option<String> =
            self.connection.prepare_cached(sql)?.query_row([id], |row| row.get(0)).optional()?;
        let name = name.unwrap_or_else(|| format!("worker:{id}:unknown"));
        self.workers.insert(id, name.clone());
        Ok(name)
    }

    fn lane_key(&mut self, row: &rows::LaneRow) -> rusqlite::Result<LaneKey> {
        let queue = self.queue(row.queue_id)?;
        Ok(LaneKey { tenant: queue.tenant.clone(), queue: queue.name.clone(), key: key_of(&row.key)? })
    }
}

pub(super) fn frame(connection: &Connection) -> rusqlite::Result<Frame> {
    let snapshot = connection.unchecked_transaction()?;
    let Facts { last_number, now, .. } = facts(&snapshot)?;
    let queues: Vec<QueueRow> =
        snapshot.prepare_cached(QUEUES)?.query_map([], QueueRow::read)?.collect::<rusqlite::Result<_>>()?;
    let mut pauses = Vec::new();
    for pause in queue_pauses(&snapshot)? {
        let bad = |e: quell_core::event::Invalid| rusqlite::Error::from(FromSqlError::Other(Box::new(e)));
        let tenant = if pause.every { None } else { Some(Tenant::new(&pause.tenant).map_err(bad)?) };
        pauses.push((QueueName::new(&pause.queue).map_err(bad)?, tenant, pause.paused));
    }
    let sql = format!("SELECT {SCHEDULE_COLUMNS}, queue_id FROM schedule ORDER BY tenant, name");
    let mut names = Names::new(&snapshot);
    let mut statement = snapshot.prepare_cached(&sql)?;
    let mut rows = statement.query([])?;
    let mut schedules = Vec::new();
    while let Some(row) = rows.next()? {
        schedules.push(read_schedule(row, names.queue(row.get(9)?)?)?);
    }
    let count = |table: &str| -> rusqlite::Result<u64> {
        snapshot.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0))
    };
    let counts = Counts {
        lanes: count("lane")?,
        events: count("event")?,
        runs: count("run")?,
        steps: count("step")?,
        aside: count("aside")?,
        audit: count("audit")?,
    };
    let totals = queues.into_iter().map(|queue| (queue.tenant, queue.name, queue.totals)).collect();
    let declarations = declarations(&snapshot)?;
    let mut statement = snapshot.prepare_cached("SELECT body FROM source ORDER BY id")?;
    let sources = statement.query_map([], read_source)?.collect::<rusqlite::Result<_>>()?;
    let documents = shelves::all(&snapshot)?;
    Ok(Frame { now, last_number, totals, pauses, schedules, declarations, sources, documents, counts })
}

pub(super) fn lanes(connection: &Connection, after: u64, most: usize) -> rusqlite::Result<Vec<LaneRow>> {
    let mut names = Names::new(connection);
    let mut statement = connection.prepare_cached(LANES)?;
    let mut rows = statement.query((after, most))?;
    let mut lanes = Vec::new();
    while let Some(row) = rows.next()? {
        let mut row = rows::LaneRow::read(row)?;
        if let Some(id) = row.worker {
            let worker = names.worker(id)?;
            row.name_worker(worker.parse().ok().map(std::sync::Arc::new));
        }
        lanes.push(LaneRow { key: names.lane_key(&row)?, lane: row.lane });
    }
    Ok(lanes)
}

pub(super) fn events(
    connection: &Connection,
    lane: u64,
    after: u64,
    most: usize,
) -> rusqlite::Result<Vec<Kept>> {
    let mut statement = connection.prepare_cached(EVENTS)?;
    let mut rows = statement.query((lane, after, most))?;
    let (mut events, mut bytes) = (Vec::new(), 0);
    while bytes < PAGE_BYTES
        && let Some(row) = rows.next()?
    {
        let event = rows::event(row)?;
        bytes += event.payload.len();
        // Not every event has its fingerprint in the file, but what was never stored was never changed, either.
        let print: Option<[u8; 16]> = row.get(8)?;
        let print = print.map_or_else(|| event.payload.fingerprint(), Fingerprint);
        let priority = row.get::<_, Option<u8>>(7)?.unwrap_or(limits::PRIORITY_DEFAULT);
        events.push(Kept { event, mark: row.get(6)?, priority, print, source: rows::maybe_source(row, 9)? });
    }
    Ok(events)
}

pub(super) fn runs(
    connection: &Connection,
    lane: u64,
    after: u64,
    most: usize,
) -> rusqlite::Result<Vec<FinishedRun>> {
    let mut names = Names::new(connection);
    let mut statement = connection.prepare_cached(include_str!("../../sql/copy_runs.sql"))?;
    let mut rows = statement.query((lane, after, most))?;
    let (mut runs, mut key) = (Vec::new(), None);
    while let Some(row) = rows.next()? {
        let RunRecord { mut ended, worker, .. } = RunRecord::read(row)?;
        let worker = worker.map(|id| names.worker(id)).transpose()?;
        ended.run.worker = worker.and_then(|name| name.parse().ok()).map(std::sync::Arc::new);
        let text = |column| row.get_ref(column)?.as_str_or_null().map_err(rusqlite::Error::from);
        let key = match &key {
            Some(key) => LaneKey::clone(key),
            None => {
                let mut of = connection.prepare_cached(LANE_BY_ID)?;
                let lane = of.query_row([lane], rows::LaneRow::read).optional()?;
                // Removed since: its runs are gone with it.
                let Some(lane) = lane else { return Ok(Vec::new()) };
                key.insert(names.lane_key(&lane)?).clone()
            }
        };
        runs.push(FinishedRun {
            key,
            lane,
            ended,
            result: text(27)?.map(from_json).transpose()?,
            usage: text(28)?.map(from_json).transpose()?.unwrap_or_default(),
        });
    }
    Ok(runs)
}

pub(super) fn asides(connection: &Connection, after: u64, most: usize) -> rusqlite::Result<Vec<Aside>> {
    let mut names = Names::new(connection);
    let mut statement = connection.prepare_cached(ASIDES)?;
    let mut rows = statement.query((after, most))?;
    let (mut asides, mut bytes) = (Vec::new(), 0);
    while bytes < PAGE_BYTES
        && let Some(row) = rows.next()?
    {
        let waiting = Waiting::read(row, names.queue(row.get(11)?)?)?;
        bytes += waiting.event.payload.len();
        asides.push(Aside {
            number: waiting.number,
            event: waiting.event,
            accepted_at: time(row, 12)?,
            ready_at: time(row, 4)?,
            look_at: time(row, 13)?,
        });
    }
    Ok(asides)
}

pub(super) fn cached(
    connection: &Connection,
    after: Option<(SourceId, String)>,
    most: usize,
) -> rusqlite::Result<Vec<CacheRow>> {
    let (source, key) = after.map_or((0, String::new()), |(source, key)| (source.0, key));
    let mut statement = connection.prepare_cached(ANSWERS)?;
    let mut rows = statement.query((source, key, most))?;
    let (mut answers, mut bytes) = (Vec::new(), 0);
    while bytes < PAGE_BYTES
        && let Some(row) = rows.next()?
    {
        bytes += row.get_ref(2)?.as_str_or_null()?.map_or(0, str::len);
        answers.push(read_answer(row)?);
    }
    Ok(answers)
}

pub(super) fn trail(connection: &Connection, after: u64, most: usize) -> rusqlite::Result<Vec<Trail>> {
    let mut names = Names::new(connection);
    let mut statement = connection.prepare_cached(TRAIL)?;
    let mut rows = statement.query((after, most))?;
    let mut trail = Vec::new();
    while let Some(row) = rows.next()? {
        trail.push(shown(&mut names, Recorded::read(row)?)?);
    }
    Ok(trail)
}

fn shown(names: &mut Names<'_>, record: Recorded) -> rusqlite::Result<Trail> {
    let worker = record.worker.map(|id| names.worker(id)).transpose()?;
    let prior_worker = record.prior_worker.map(|id| names.worker(id)).transpose()?;
    let queue = names.queue(record.queue)?;
    let of_lane = |run: Option<u64>| record.lane.zip(run).map(|(lane, number)| RunId { lane, number });
    let shown = AuditRecord {
        id: record.id,
        at: record.at,
        tenant: queue.tenant.clone(),
        queue: queue.name.clone(),
        key: None,
        run: of_lane(record.run),
        change: record.change,
        from: record.from,
        to: record.to,
        attempt: record.attempt,
        token: record.token,
        worker,
        prior_worker,
        upto_seq: record.upto_seq,
        next_at: record.next_at,
        other_run: of_lane(record.other_run),
        verdict: record.verdict,
        actor: record.actor,
    };
    Ok(Trail { lane: record.lane, record: shown })
}
