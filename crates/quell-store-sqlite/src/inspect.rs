//! Inspect: reads on connections of their own, in one snapshot each, never blocking a writer.
//!
//! Listings go by indexes and cursors. Lanes that have something to do are found through the indexes of leases, due
//! times and pauses, so a million idle lanes cost nothing (`inspect/lanes.rs`). Finished runs and audit records are read
//! from the newest backwards; a filter without an index of its own looks at a bounded number of rows per page and hands
//! out a cursor to go on (`inspect/history.rs`). `Verify` reads everything and is for `doctor` (`inspect/verify.rs`).

use std::collections::HashMap;

use quell_core::clock::Timestamp;
use quell_core::error::StoreResult;
use quell_core::event::{Event, Headers, LaneKey, Payload, QueueName, Tenant};
use quell_core::inspect::{Concern, EventPlace, Health, Inspect, Inspected, QueueLeases, QueueStats, span};
use quell_core::lane::Lane;
use quell_core::lifecycle::RunState;
use quell_core::limits;
use quell_core::schedule::ScheduleRow;
use quell_core::source::{Source, SourceId};
use quell_core::store::Description;
use rusqlite::{Connection, OptionalExtension};

use crate::aside::{SCHEDULE_COLUMNS, read_schedule};
use crate::claim::key_of;
use crate::clock;
use crate::due::{asked, levels};
use crate::error::not_done;
use crate::rows::{self, LaneRow, from_json, maybe_time, source_code, time};
use crate::tx::{QueuePause, QueueRow, paused_by, queue_pauses, read_now};

mod cursor;
pub(crate) mod history;
mod lanes;
mod sources;
mod verify;

const QUEUES: &str = concat!(include_str!("../sql/queue.sql"), "ORDER BY id");
const LANE_BY_KEY: &str = concat!(include_str!("../sql/lane.sql"), "WHERE queue_id = ?1 AND key = ?2");
const EVENT_BY_ID: &str =
    "SELECT seq, id, received_at, headers, payload, was_seq, mark FROM event WHERE id = ?1 AND lane_id = ?2";
const ASIDE_BY_ID: &str = "SELECT id, accepted_at, ready_at, headers, payload FROM aside
    WHERE id = ?1 AND queue_id = ?2 AND key = ?3 ORDER BY number LIMIT 1";
const DUE_BEFORE: &str = concat!(
    include_str!("../sql/lane.sql"),
    "WHERE queue_id = ?1 AND priority = ?2 AND source = ?5 AND due_at <= ?3 ORDER BY due_at LIMIT ?4"
);

pub(crate) fn inspect(
    connection: &Connection,
    request: Inspect,
    description: &Description,
) -> StoreResult<Inspected> {
    cursor::check(&request)?;
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
            Inspect::Schedules => Ok(Inspected::Schedules(view.schedules()?)),
            Inspect::Sources(filter) => Ok(Inspected::Sources(view.sources(&filter)?)),
            Inspect::Stats => Ok(Inspected::Stats(view.stats()?)),
            Inspect::Leases => Ok(Inspected::Leases(view.leases()?)),
            Inspect::Verify => Ok(Inspected::Verify(view.verify()?)),
            Inspect::Health => Ok(Inspected::Health(view.health(description)?)),
        }
    };
    read().map_err(|e| not_done(&e))
}

/// The run an event belongs to: one that waits or is held, the open one, or one that ended.
pub(crate) fn place_of_event(
    connection: &Connection,
    lane: &Lane,
    seq: u64,
    mark: Option<u64>,
) -> rusqlite::Result<Option<(u64, RunState)>> {
    if let Some(place) = lane.run_of(seq, mark) {
        return Ok(Some(place));
    }
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, rows::decode(&RunState::ALL, row.get(1)?)?));
    match mark {
        Some(run) => connection.prepare_cached(MARKED_PLACE)?.query_row((lane.id, run, seq), read).optional(),
        None => connection.prepare_cached(UNMARKED_PLACE)?.query_row((lane.id, seq), read).optional(),
    }
}

const MARKED_PLACE: &str = "SELECT number, state FROM run
    WHERE lane_id = ?1 AND number = ?2 AND count > 0 AND ?3 BETWEEN lo AND hi";
/// From the newest run backwards: a sender that repeats itself does so soon.
const UNMARKED_PLACE: &str = "SELECT number, state FROM run
    WHERE lane_id = ?1 AND ?2 BETWEEN lo AND hi AND count > 0 AND flags & 4 = 0 ORDER BY number DESC LIMIT 1";

/// The first claim of the lanes that are held, and how many leases are over.
const LEASES: &str =
    "SELECT min(r_claimed_at), coalesce(sum(r_lease_until <= ?2), 0) FROM lane INDEXED BY lane_lease
    WHERE queue_id = ?1 AND lease_at IS NOT NULL";

/// What one read sees: the time, the queues and the pauses of its snapshot.
struct View<'c> {
    connection: &'c Connection,
    now: Timestamp,
    queues: Vec<QueueRow>,
    pauses: Vec<QueuePause>,
    workers: HashMap<u64, String>,
    sources: HashMap<SourceId, Option<Source>>,
}

impl<'c> View<'c> {
    fn open(connection: &'c Connection) -> rusqlite::Result<Self> {
        let queues = connection
            .prepare_cached(QUEUES)?
            .query_map([], QueueRow::read)?
            .collect::<rusqlite::Result<_>>()?;
        let pauses = queue_pauses(connection)?;
        let now = read_now(connection)?;
        Ok(View { connection, now, queues, pauses, workers: HashMap::new(), sources: HashMap::new() })
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

    fn find_queue(&self, key: &LaneKey) -> Option<&QueueRow> {
        self.queues.iter().find(|q| q.tenant == key.tenant && q.name == key.queue)
    }

    fn find_lane(&mut self, key: &LaneKey) -> rusqlite::Result<Option<LaneRow>> {
        let Some(queue) = self.find_queue(key) else { return Ok(None) };
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
        if let Some(row) = self.find_lane(key)? {
            let read = |row: &rusqlite::Row<'_>| Ok((rows::event(row)?, row.get::<_, Option<u64>>(6)?));
            let mut statement = self.connection.prepare_cached(EVENT_BY_ID)?;
            if let Some((event, mark)) = statement.query_row((id, row.lane.id), read).optional()? {
                let place = place_of_event(self.connection, &row.lane, event.seq, mark)?;
                return Ok(Some(EventPlace {
                    event,
                    ready_at: None,
                    run_id: place.map(|(number, _)| row.lane.run_id(number)),
                    state: place.map(|(_, state)| state),
                }));
            }
        }
        self.event_aside(key, id)
    }

    /// An event that has been accepted and is not in its lane yet: it has neither number nor run.
    fn event_aside(&self, key: &LaneKey, id: &str) -> rusqlite::Result<Option<EventPlace>> {
        let Some(queue) = self.find_queue(key) else { return Ok(None) };
        let mut statement = self.connection.prepare_cached(ASIDE_BY_ID)?;
        let read = |row: &rusqlite::Row<'_>| {
            let headers = match row.get_ref(3)?.as_str_or_null()? {
                Some(text) => from_json(text)?,
                None => Headers::new(),
            };
            let event = Event {
                seq: 0,
                id: rows::event_id(row.get_ref(0)?.as_str()?)?,
                received_at: time(row, 1)?,
                headers,
                payload: Payload::from_stored(row.get_ref(4)?.as_str()?),
                was_seq: None,
            };
            Ok(EventPlace { event, ready_at: maybe_time(row, 2)?, run_id: None, state: None })
        };
        statement.query_row((id, queue.id, key.key.as_str()), read).optional()
    }

    fn schedules(&self) -> rusqlite::Result<Vec<ScheduleRow>> {
        let sql = format!("SELECT {SCHEDULE_COLUMNS}, queue_id FROM schedule ORDER BY tenant, name");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let rows = statement.query_map([], |row| {
            let queue = self.queue(row.get(9)?).ok_or(rusqlite::Error::QueryReturnedNoRows)?;
            read_schedule(row, queue)
        })?;
        rows.collect()
    }

    /// The earliest moment at which a lane of this queue has been due, if any is due now.
    fn oldest_due(&self, queue: &QueueRow) -> rusqlite::Result<Option<Timestamp>> {
        let mut oldest: Option<Timestamp> = None;
        for priority in levels(queue.priorities) {
            for source in asked(self.connection, queue, priority)? {
                // Entries may be early; the first one that is truly due is among the first few, and a page bounds the look.
                let mut statement = self.connection.prepare_cached(DUE_BEFORE)?;
                let now = self.now.as_millis();
                let page = (queue.id, priority, now, limits::PAGE_DEFAULT, source_code(source));
                for row in statement.query_map(page, LaneRow::read)? {
                    let due = row?.lane.due_at().filter(|due| *due <= self.now);
                    oldest = [oldest, due].into_iter().flatten().min();
                }
            }
        }
        Ok(oldest)
    }

    fn stats(&self) -> rusqlite::Result<Vec<QueueStats>> {
        let mut all = Vec::with_capacity(self.queues.len());
        for queue in &self.queues {
            let oldest = self.oldest_due(queue)?;
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

    fn leases(&self) -> rusqlite::Result<Vec<QueueLeases>> {
        let mut all = Vec::new();
        for queue in self.queues.iter().filter(|queue| queue.running > 0) {
            let mut statement = self.connection.prepare_cached(LEASES)?;
            let read = |row: &rusqlite::Row<'_>| Ok((maybe_time(row, 0)?, row.get(1)?));
            let (oldest, silent) = statement.query_row((queue.id, self.now.as_millis()), read)?;
            let name = (&queue.tenant, &queue.name);
            all.extend(oldest.map(|oldest| QueueLeases::counted(name, self.now, oldest, silent)));
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
            warnings.push(Concern::new(
                "the write-ahead log is larger than 512 MiB: some reader keeps an old snapshot open",
                "end the program that reads the file (`fuser` or `lsof` on it names them); the log shrinks by itself then",
            ));
        }
        warnings.extend(readable_by_others(&description.place));
        let divergence = self.now.as_millis() - clock::wall_millis();
        if divergence.abs() > 60_000 {
            warnings.push(Concern::new(
                format!("store time and the wall clock differ by {divergence} ms; store time decides"),
                "set this machine's clock by NTP; store time never goes back and follows it from the next boot on",
            ));
        }
        let sql = "SELECT restored_at, scrub_at, sealed, copy_place IS NOT NULL FROM meta";
        let (restored, scrub, sealed, target): (Option<i64>, Option<i64>, Option<String>, bool) = self
            .connection
            .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
        if let Some(by) = sealed {
            warnings.push(Concern::new(
                format!("the store is sealed: nothing is accepted or handed over; sealed by {by}"),
                "use the store that it was copied to, or `quell store unseal` this one",
            ));
        }
        if target {
            warnings.push(Concern::new(
                "a copy into this store has not been finished",
                "run `quell store copy` again to go on",
            ));
        }
        if let Some(at) = scrub.map(Timestamp::from_millis) {
            warnings.push(Concern::new(
                format!("what was erased since {at} may still be in unused parts of the file"),
                "compact it when it is quiet: `sqlite3 FILE VACUUM`",
            ));
        }
        if let Some(at) = restored.map(Timestamp::from_millis) {
            facts.push(("restored_at".into(), at.to_string()));
            // Told for as long as somebody may still look for what is not there, and not for ever.
            if self.now.since(at) < limits::RETENTION_DEFAULT {
                let ago = span(self.now, at);
                warnings.push(Concern::new(
                    format!(
                        "restored from a backup at {at} ({ago} ago); events accepted after the backup are not in it"
                    ),
                    "let their senders send them again: known ids are taken once",
                ));
            }
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
fn readable_by_others(path: &str) -> Option<Concern> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then(|| {
        Concern::new(
            format!("{path} has mode {mode:o}: others can read the payloads"),
            format!("chmod 600 {path}"),
        )
    })
}

#[cfg(not(unix))]
fn readable_by_others(_path: &str) -> Option<Concern> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(sql: &str) -> String {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(include_str!("../schema.sql")).unwrap();
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let values = rusqlite::params_from_iter(vec![1; statement.parameter_count()]);
        let steps = statement.query_map(values, |row| row.get::<_, String>(3)).unwrap();
        steps.collect::<rusqlite::Result<Vec<_>>>().unwrap().join("; ")
    }

    /// Every listing and every look-up of one thing must cost the same in a large file as in a small one.
    #[test]
    fn pitfall_43_reads_go_by_index_and_never_scan_or_sort() {
        let single = [
            LANE_BY_KEY,
            EVENT_BY_ID,
            ASIDE_BY_ID,
            DUE_BEFORE,
            LEASES,
            MARKED_PLACE,
            UNMARKED_PLACE,
            history::STEPS,
        ];
        let lanes = [lanes::LEASED, lanes::DUE, lanes::HELD, lanes::BY_KEY, lanes::DELAYED];
        let runs = [history::RUNS, history::RUNS_DEAD, history::RUN_BY_NUMBER];
        let sources = [
            sources::LISTED,
            sources::LISTED_OF_NAME,
            sources::LISTED_OF_TENANT,
            sources::WAITING,
            sources::KEPT,
        ];
        let audit = [history::AUDIT, history::AUDIT_OF_LANE, history::AUDIT_OF_RUN];
        for sql in [single.as_slice(), &lanes, &runs, &audit, &sources].concat() {
            let plan = plan(sql);
            assert!(plan.starts_with("SEARCH") && !plan.contains("TEMP B-TREE"), "{sql}: {plan}");
            assert!(!plan.contains("SCAN"), "{sql}: {plan}");
        }
    }

    #[test]
    fn each_listing_walks_the_index_that_was_made_for_it() {
        for (sql, index) in [
            (lanes::LEASED, "lane_lease"),
            (lanes::DUE, "lane_due"),
            (lanes::HELD, "lane_paused"),
            (DUE_BEFORE, "lane_due"),
            (LEASES, "lane_lease"),
            (sources::LISTED, "source_name"),
            (history::RUNS_DEAD, "run_dead"),
            // The runs of one lane are sorted by their end: what the retention keeps of one lane is not much.
            (history::RUNS_OF_LANE, "run_lane"),
            (history::AUDIT_OF_RUN, "audit_lane"),
            (UNMARKED_PLACE, "run_lane"),
        ] {
            let plan = plan(sql);
            assert!(plan.starts_with("SEARCH") && plan.contains(&format!("USING INDEX {index} ")), "{plan}");
        }
    }
}
