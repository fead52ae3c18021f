//! Inspect: reads on connections of their own, in one snapshot each, never blocking a writer.
//!
//! Listings go by indexes and cursors. Lanes that have something to do are found through the indexes of leases, due
//! times and pauses, so a million idle lanes cost nothing (`inspect/lanes.rs`). Finished runs and audit records are read
//! from the newest backwards; a filter without an index of its own looks at a bounded number of rows per page and hands
//! out a cursor to go on (`inspect/history.rs`). `Verify` reads everything and is for `doctor` (`inspect/verify.rs`).

use std::collections::HashMap;

use quell_core::clock::Timestamp;
use quell_core::error::StoreResult;
use quell_core::event::{LaneKey, QueueName, Tenant};
use quell_core::inspect::{EventPlace, Health, Inspect, Inspected, QueueStats};
use quell_core::lane::Lane;
use quell_core::lifecycle::RunState;
use quell_core::limits;
use quell_core::store::Description;
use rusqlite::{Connection, OptionalExtension};

use crate::claim::key_of;
use crate::clock;
use crate::error::not_done;
use crate::rows::{self, LaneRow};
use crate::tx::{QueuePause, QueueRow, paused_by, queue_pauses, read_now};

mod history;
mod lanes;
mod verify;

const QUEUES: &str = concat!(include_str!("../sql/queue.sql"), "ORDER BY id");
const LANE_BY_KEY: &str = concat!(include_str!("../sql/lane.sql"), "WHERE queue_id = ?1 AND key = ?2");

pub(crate) fn inspect(
    connection: &Connection,
    request: Inspect,
    description: &Description,
) -> StoreResult<Inspected> {
    let read = || -> rusqlite::Result<Inspected> {
        // One snapshot for the whole answer; it ends with this call, so the log can be checkpointed.
        let snapshot = connection.unchecked_transaction()?;
        let mut view = View::open(&snapshot)?;
        match request {
            Inspect::Lane(key) => Ok(Inspected::Lane(view.lane_detail(&key)?.map(Box::new))),
            Inspect::Lanes(filter) => Ok(Inspected::Lanes(view.lanes(&filter)?)),
            Inspect::Run(id) => Ok(Inspected::Run(view.run(id)?.map(Box::new))),
            Inspect::Runs(filter) => Ok(Inspected::Runs(view.runs(&filter)?)),
            Inspect::Event(key, id) => Ok(Inspected::Event(view.event(&key, id.as_str())?)),
            Inspect::Audit(filter) => Ok(Inspected::Audit(view.audit(&filter)?)),
            Inspect::Stats => Ok(Inspected::Stats(view.stats()?)),
            Inspect::Verify => Ok(Inspected::Verify(view.verify()?)),
            Inspect::Health => Ok(Inspected::Health(view.health(description)?)),
        }
    };
    read().map_err(|e| not_done(&e))
}

/// The run an event belongs to: the current one, the open one, or one that ended.
pub(crate) fn place_of_event(
    connection: &Connection,
    lane: &Lane,
    seq: u64,
) -> rusqlite::Result<Option<(u64, RunState)>> {
    if let Some(c) = lane.current.as_ref().filter(|c| c.lo <= seq && seq <= c.hi) {
        return Ok(Some((c.number, c.state)));
    }
    if let Some(o) = lane.open.filter(|o| o.lo <= seq) {
        return Ok(Some((o.number, RunState::Pending)));
    }
    let sql = "SELECT number, state FROM run WHERE lane_id = ?1 AND ?2 BETWEEN lo AND hi";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, rows::decode(&RunState::ALL, row.get(1)?)?));
    connection.prepare_cached(sql)?.query_row((lane.id, seq), read).optional()
}

/// What one read sees: the time, the queues and the pauses of its snapshot.
struct View<'c> {
    connection: &'c Connection,
    now: Timestamp,
    queues: Vec<QueueRow>,
    pauses: Vec<QueuePause>,
    workers: HashMap<u64, String>,
}

impl<'c> View<'c> {
    fn open(connection: &'c Connection) -> rusqlite::Result<Self> {
        let queues = connection
            .prepare_cached(QUEUES)?
            .query_map([], QueueRow::read)?
            .collect::<rusqlite::Result<_>>()?;
        let pauses = queue_pauses(connection)?;
        let now = read_now(connection)?;
        Ok(View { connection, now, queues, pauses, workers: HashMap::new() })
    }

    /// The queues that a filter names.
    fn matching(&self, tenant: Option<&Tenant>, queue: Option<&QueueName>) -> Vec<QueueRow> {
        let of =
            |row: &&QueueRow| tenant.is_none_or(|t| *t == row.tenant) && queue.is_none_or(|q| *q == row.name);
        self.queues.iter().filter(of).cloned().collect()
    }

    fn queue(&self, id: u64) -> Option<&QueueRow> {
        self.queues.binary_search_by_key(&id, |row| row.id).ok().map(|place| &self.queues[place])
    }

    fn paused_by(&self, row: &QueueRow) -> Option<String> {
        paused_by(&self.pauses, row.tenant.as_str(), row.name.as_str()).map(|p| p.by.clone())
    }

    fn find_lane(&mut self, key: &LaneKey) -> rusqlite::Result<Option<LaneRow>> {
        let Some(queue) = self.queues.iter().find(|q| q.tenant == key.tenant && q.name == key.queue) else {
            return Ok(None);
        };
        let mut statement = self.connection.prepare_cached(LANE_BY_KEY)?;
        let row = statement.query_row((queue.id, key.key.as_str()), LaneRow::read).optional()?;
        row.map(|row| self.with_worker(row)).transpose()
    }

    fn with_worker(&mut self, mut row: LaneRow) -> rusqlite::Result<LaneRow> {
        if let Some(id) = row.worker {
            let name = self.worker(id)?;
            row.name_worker(name.parse().ok().map(std::sync::Arc::new));
        }
        Ok(row)
    }

    fn worker(&mut self, id: u64) -> rusqlite::Result<String> {
        if let Some(name) = self.workers.get(&id) {
            return Ok(name.clone());
        }
        let sql = "SELECT identity FROM worker WHERE id = ?1";
        let name: Option<String> =
            self.connection.prepare_cached(sql)?.query_row([id], |row| row.get(0)).optional()?;
        let name = name.unwrap_or_else(|| format!("worker {id}"));
        self.workers.insert(id, name.clone());
        Ok(name)
    }

    fn lane_key(&self, row: &LaneRow) -> rusqlite::Result<LaneKey> {
        let queue = self.queue(row.queue_id).ok_or(rusqlite::Error::QueryReturnedNoRows)?;
        Ok(LaneKey { tenant: queue.tenant.clone(), queue: queue.name.clone(), key: key_of(&row.key)? })
    }

    fn event(&mut self, key: &LaneKey, id: &str) -> rusqlite::Result<Option<EventPlace>> {
        let Some(row) = self.find_lane(key)? else { return Ok(None) };
        let sql = "SELECT seq, id, received_at, headers, payload FROM event WHERE id = ?1 AND lane_id = ?2";
        let event =
            self.connection.prepare_cached(sql)?.query_row((id, row.lane.id), rows::event).optional()?;
        let Some(event) = event else { return Ok(None) };
        let place = place_of_event(self.connection, &row.lane, event.seq)?;
        Ok(Some(EventPlace {
            event,
            run_id: place.map(|(number, _)| row.lane.run_id(number)),
            state: place.map(|(_, state)| state),
        }))
    }

    fn stats(&self) -> rusqlite::Result<Vec<QueueStats>> {
        let mut all = Vec::with_capacity(self.queues.len());
        for queue in &self.queues {
            // Entries may be early; the first one that is truly due is among the first few, and a page bounds the look.
            let sql = concat!(
                include_str!("../sql/lane.sql"),
                "WHERE queue_id = ?1 AND due_at <= ?2 ORDER BY due_at LIMIT ?3"
            );
            let mut statement = self.connection.prepare_cached(sql)?;
            let entries = statement
                .query_map((queue.id, self.now.as_millis(), limits::PAGE_DEFAULT), LaneRow::read)?
                .collect::<rusqlite::Result<Vec<_>>>()?;
            let oldest =
                entries.iter().filter_map(|row| row.lane.due_at()).filter(|due| *due <= self.now).min();
            all.push(QueueStats {
                tenant: queue.tenant.clone(),
                queue: queue.name.clone(),
                totals: queue.totals,
                running: queue.running,
                paused_by: self.paused_by(queue),
                oldest_due_ms: oldest
                    .map(|due| u64::try_from(self.now.since(due).as_millis()).unwrap_or(u64::MAX)),
            });
        }
        Ok(all)
    }

    fn health(&self, description: &Description) -> rusqlite::Result<Health> {
        let pragma = |name: &str| -> rusqlite::Result<String> {
            self.connection.query_row(&format!("PRAGMA {name}"), [], |row| {
                row.get::<_, rusqlite::types::Value>(0).map(|value| match value {
                    rusqlite::types::Value::Integer(n) => n.to_string(),
                    rusqlite::types::Value::Text(t) => t,
                    other => format!("{other:?}"),
                })
            })
        };
        let mut facts = Vec::new();
        for name in ["journal_mode", "page_size", "page_count", "freelist_count"] {
            facts.push((name.to_owned(), pragma(name)?));
        }
        let size = |suffix: &str| {
            std::fs::metadata(format!("{}{suffix}", description.place)).map_or(0, |meta| meta.len())
        };
        facts.push(("file_bytes".into(), size("").to_string()));
        facts.push(("wal_bytes".into(), size("-wal").to_string()));
        let mut warnings = Vec::new();
        if size("-wal") > 512 * 1024 * 1024 {
            warnings.push(
                "the write-ahead log is larger than 512 MiB: some reader keeps an old snapshot open".into(),
            );
        }
        if let Some(text) = readable_by_others(&description.place) {
            warnings.push(text);
        }
        let divergence = self.now.as_millis() - clock::wall_millis();
        if divergence.abs() > 60_000 {
            warnings
                .push(format!("store time and the wall clock differ by {divergence} ms; store time decides"));
        }
        Ok(Health {
            description: description.clone(),
            now: self.now,
            wall_divergence_ms: divergence,
            facts,
            warnings,
        })
    }
}

#[cfg(unix)]
fn readable_by_others(path: &str) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0)
        .then(|| format!("{path} has mode {mode:o}: others can read the payloads; chmod 600 it"))
}

#[cfg(not(unix))]
fn readable_by_others(_path: &str) -> Option<String> {
    None
}
