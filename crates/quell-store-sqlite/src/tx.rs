//! One write transaction: what it has read, what it will write at its end.
//!
//! Requests of many callers share a transaction (`writer.rs`). Facts that every request touches (the store-wide
//! sequence, the counters of a queue, the lanes that events are appended to) are kept here while it lasts and written
//! once at its end, so that a thousand events of one lane rewrite its row once. Every request checks everything before it
//! changes anything here, so a refused request leaves no trace.

use std::collections::HashMap;
use std::sync::Arc;

use quell_core::audit::Move;
use quell_core::batch::WorkerId;
use quell_core::clock::Timestamp;
use quell_core::event::{QueueName, Tenant};
use quell_core::lane::Paused;
use quell_core::lease::after_restore;
use quell_core::limits;
use quell_core::outcome::VerdictKind;
use quell_core::totals::Totals;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Statement, params_from_iter};

use crate::clock;
use crate::rows::{
    LaneRow, at, change_code, current_values, encode, maybe_at, maybe_number, number, open_values, small,
    source_code, state_code, to_json,
};
use crate::sources::Sources;

/// Names that never change once they are in the file, remembered over transactions.
#[derive(Default)]
pub(crate) struct Names {
    queues: HashMap<(Tenant, QueueName), u64>,
    workers: HashMap<WorkerId, u64>,
    worker_ids: HashMap<u64, Arc<WorkerId>>,
}

/// Statements that are prepared once per connection and found by the place of their text: looking them up by the text
/// itself, as `prepare_cached` does, cost a tenth of the writer's time.
pub(crate) struct Statements<'c> {
    connection: &'c Connection,
    kept: Vec<(*const str, Statement<'c>)>,
}

impl<'c> Statements<'c> {
    pub(crate) fn new(connection: &'c Connection) -> Self {
        Statements { connection, kept: Vec::new() }
    }

    pub(crate) fn get(&mut self, sql: &'static str) -> rusqlite::Result<&mut Statement<'c>> {
        let place = match self.kept.iter().position(|(text, _)| std::ptr::eq(*text, sql)) {
            Some(place) => place,
            None => {
                self.kept.push((std::ptr::from_ref(sql), self.connection.prepare(sql)?));
                self.kept.len() - 1
            }
        };
        Ok(&mut self.kept[place].1)
    }
}

pub(crate) struct Tx<'t, 'c> {
    pub(crate) connection: &'c Connection,
    pub(crate) statements: &'t mut Statements<'c>,
    pub(crate) now: Timestamp,
    /// Who sealed the store: then only a copy may write.
    pub(crate) sealed: Option<String>,
    /// Something may be due earlier than sleepers know.
    pub(crate) wake: bool,
    /// Something was erased: what is left of it in the files has to go, too.
    pub(crate) erased: bool,
    names: &'t mut Names,
    last_number: u64,
    numbers_taken: bool,
    /// Each queue with what was read of it: only a row that changed is written.
    queues: HashMap<u64, (QueueRow, QueueRow)>,
    pauses: Option<Vec<QueuePause>>,
    pub(crate) lanes: HashMap<(u64, String), PendingLane>,
    pub(crate) sources: Sources,
    /// Whether anything was written: a transaction that only looked is not committed.
    pub(crate) wrote: bool,
    named: Vec<Named>,
}

/// A name added in this transaction: forgotten again if it is rolled back.
enum Named {
    Queue(Tenant, QueueName),
    Worker(WorkerId, u64),
}

/// A lane that events are being appended to.
pub(crate) struct PendingLane {
    pub(crate) row: LaneRow,
    pub(crate) new: bool,
    pub(crate) changed: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct QueueRow {
    pub(crate) id: u64,
    pub(crate) tenant: Tenant,
    pub(crate) name: QueueName,
    pub(crate) next_at: Option<Timestamp>,
    pub(crate) max_running: Option<u64>,
    pub(crate) running: u64,
    pub(crate) totals: Totals,
    /// Bit n: some lane has had priority n.
    pub(crate) priorities: u64,
    /// Schedules that fire into it.
    pub(crate) schedules: u64,
    /// Some lane has asked a source.
    pub(crate) governed: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct QueuePause {
    pub(crate) queue: String,
    pub(crate) every: bool,
    pub(crate) tenant: String,
    pub(crate) paused: Paused,
}

pub(crate) const LANE_BY_ID: &str = concat!(include_str!("../sql/lane.sql"), "WHERE id = ?1");
/// A queue is made on first sight, by number, tenant and name.
pub(crate) const NEW_QUEUE: &str =
    "INSERT INTO queue (id, tenant, name, running, accepted, succeeded, dead, discarded, delayed, buffered, in_flight)
     VALUES (?1, ?2, ?3, 0, 0, 0, 0, 0, 0, 0, 0)";
pub(crate) const QUEUE_BY_ID: &str = concat!(include_str!("../sql/queue.sql"), "WHERE id = ?1");

impl<'t, 'c> Tx<'t, 'c> {
    /// Begins to write. The caller holds the lock file, so this does not wait long.
    pub(crate) fn begin(statements: &'t mut Statements<'c>, names: &'t mut Names) -> rusqlite::Result<Self> {
        let connection = statements.connection;
        statements.get("BEGIN IMMEDIATE")?.execute([])?;
        let Facts { last_number, now, sealed } = match facts(connection) {
            Ok(facts) => facts,
            Err(error) => {
                // A transaction that could not be begun whole must not stay open.
                connection.execute_batch("ROLLBACK")?;
                return Err(error);
            }
        };
        Ok(Tx {
            connection,
            statements,
            now,
            sealed,
            wake: false,
            erased: false,
            names,
            last_number,
            numbers_taken: false,
            queues: HashMap::new(),
            pauses: None,
            lanes: HashMap::new(),
            sources: Sources::default(),
            wrote: false,
            named: Vec::new(),
        })
    }

    /// Writes what was kept and makes it durable. The error of the commit itself is told apart from those before it.
    pub(crate) fn commit(mut self) -> Result<bool, CommitError> {
        if let Err(error) = self.write_back() {
            self.undo();
            return Err(CommitError::Before(error));
        }
        if !self.wrote {
            self.undo();
            return Ok(false);
        }
        let commit = self.statements.get("COMMIT").and_then(|statement| statement.execute([]));
        match commit {
            Ok(_) => Ok(self.wake),
            Err(error) => {
                self.undo();
                Err(CommitError::During(error))
            }
        }
    }

    pub(crate) fn rollback(mut self) {
        self.undo();
    }

    fn undo(&mut self) {
        for named in self.named.drain(..) {
            match named {
                Named::Queue(tenant, name) => {
                    self.names.queues.remove(&(tenant, name));
                }
                Named::Worker(worker, id) => {
                    self.names.workers.remove(&worker);
                    self.names.worker_ids.remove(&id);
                }
            }
        }
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::warn!(%error, "rollback");
        }
    }

    fn write_back(&mut self) -> rusqlite::Result<()> {
        self.write_lanes()?;
        self.write_queues()?;
        self.write_sources()?;
        if self.numbers_taken || self.wrote {
            assert!(self.last_number < limits::NUMBER_MAX, "the store-wide sequence is used up");
            self.wrote = true;
            let sql = "UPDATE meta SET last_number = ?1, clock_high = max(clock_high, ?2)";
            self.execute(sql, [number(self.last_number), at(self.now)])?;
        }
        Ok(())
    }

    /// The next number of the store-wide sequence.
    pub(crate) fn fresh(&mut self) -> u64 {
        self.numbers_taken = true;
        self.last_number += 1;
        self.last_number
    }

    /// The latest number that was given.
    pub(crate) fn last_number(&self) -> u64 {
        self.last_number
    }

    /// Reads again what somebody may have changed in the file behind this transaction's back: a caller's closure.
    pub(crate) fn read_again(&mut self) -> rusqlite::Result<()> {
        let last_number = facts(self.connection)?.last_number;
        self.reach(last_number);
        self.queues.clear();
        self.forget_sources();
        Ok(())
    }

    /// The sequence goes on behind this number, if it is not there yet.
    pub(crate) fn reach(&mut self, number: u64) {
        self.numbers_taken |= number > self.last_number;
        self.last_number = self.last_number.max(number);
    }

    /// Continues the sequence after a restore. False, and nothing changed, when there is no room left for that.
    pub(crate) fn jump(&mut self) -> bool {
        let Some(next) = after_restore(self.last_number, self.now) else { return false };
        self.numbers_taken = true;
        self.last_number = next;
        true
    }

    pub(crate) fn execute(
        &mut self,
        sql: &'static str,
        values: impl IntoIterator<Item = Value>,
    ) -> rusqlite::Result<usize> {
        self.wrote = true;
        self.statements.get(sql)?.execute(params_from_iter(values))
    }

    /// Changes the row of one lane. A lane that is not there would be an event lost in silence.
    pub(crate) fn change_lane(
        &mut self,
        sql: &'static str,
        values: impl IntoIterator<Item = Value>,
    ) -> rusqlite::Result<()> {
        match self.execute(sql, values)? {
            1 => Ok(()),
            rows => Err(rusqlite::Error::StatementChangedRows(rows)),
        }
    }

    /// Writes everything that can change in a lane.
    pub(crate) fn write_whole(&mut self, row: &LaneRow, due: Option<Timestamp>) -> rusqlite::Result<()> {
        let lane = &row.lane;
        let worker = lane.current.as_ref().and_then(|c| c.worker.clone());
        let worker = worker.map(|w| self.worker(&w)).transpose()?;
        let (paused_at, paused_by) = match &lane.paused {
            Some(paused) => (at(paused.at), Value::Text(paused.by.clone())),
            None => (Value::Null, Value::Null),
        };
        let priority = lane.priority();
        let head = [
            number(lane.id),
            maybe_at(due),
            maybe_at(lane.lease_at()),
            Value::Integer(i64::from(priority)),
            number(lane.head_seq),
            at(lane.updated_at),
            paused_at,
            paused_by,
            maybe_at(lane.blocked.map(|b| b.at)),
            maybe_number(lane.blocked.map(|b| b.run)),
            if lane.queued.is_empty() { Value::Null } else { to_json(&lane.queued) },
            number(source_code(lane.source())),
        ];
        let runs =
            open_values(lane.open.as_ref()).into_iter().chain(current_values(lane.current.as_ref(), worker));
        self.change_lane(include_str!("../sql/write_lane.sql"), head.into_iter().chain(runs))?;
        self.has_lanes(row.queue_id, priority, lane.source())
    }

    /// One lane by its number, with its holder's name.
    pub(crate) fn lane(&mut self, id: u64) -> rusqlite::Result<Option<LaneRow>> {
        self.write_lanes()?;
        let row = self.statements.get(LANE_BY_ID)?.query_row([id], LaneRow::read).optional()?;
        row.map(|row| self.with_worker(row)).transpose()
    }

    pub(crate) fn with_worker(&mut self, mut row: LaneRow) -> rusqlite::Result<LaneRow> {
        if let Some(id) = row.worker {
            let worker = self.worker_name(id)?;
            row.name_worker(worker);
        }
        Ok(row)
    }

    fn worker_name(&mut self, id: u64) -> rusqlite::Result<Option<Arc<WorkerId>>> {
        if let Some(known) = self.names.worker_ids.get(&id) {
            return Ok(Some(known.clone()));
        }
        let sql = "SELECT identity FROM worker WHERE id = ?1";
        let text: Option<String> =
            self.connection.prepare_cached(sql)?.query_row([id], |row| row.get(0)).optional()?;
        let Some(worker) = text.and_then(|t| t.parse::<WorkerId>().ok()) else { return Ok(None) };
        let worker = Arc::new(worker);
        self.names.worker_ids.insert(id, worker.clone());
        Ok(Some(worker))
    }

    /// The number of a worker, given on first sight.
    pub(crate) fn worker(&mut self, worker: &Arc<WorkerId>) -> rusqlite::Result<u64> {
        if let Some(id) = self.names.workers.get(&**worker) {
            return Ok(*id);
        }
        let last = self.last_number;
        let id = self.worker_named(&worker.to_string())?;
        if self.last_number > last {
            self.named.push(Named::Worker((**worker).clone(), id));
        }
        self.names.workers.insert((**worker).clone(), id);
        self.names.worker_ids.insert(id, worker.clone());
        Ok(id)
    }

    /// The number of a worker by its identity as text, given on first sight.
    pub(crate) fn worker_named(&mut self, identity: &str) -> rusqlite::Result<u64> {
        let sql = "SELECT id FROM worker WHERE identity = ?1";
        let known =
            self.connection.prepare_cached(sql)?.query_row([identity], |row| row.get(0)).optional()?;
        if let Some(id) = known {
            return Ok(id);
        }
        let id = self.fresh();
        let sql = "INSERT INTO worker (id, identity) VALUES (?1, ?2)";
        self.execute(sql, [number(id), Value::Text(identity.to_owned())])?;
        Ok(id)
    }

    /// The number of a queue, if it exists.
    pub(crate) fn find_queue(&mut self, tenant: &Tenant, name: &QueueName) -> rusqlite::Result<Option<u64>> {
        if let Some(id) = self.names.queues.get(&(tenant.clone(), name.clone())) {
            return Ok(Some(*id));
        }
        let sql = "SELECT id FROM queue WHERE tenant = ?1 AND name = ?2";
        let id: Option<u64> = self
            .connection
            .prepare_cached(sql)?
            .query_row([tenant.as_str(), name.as_str()], |row| row.get(0))
            .optional()?;
        if let Some(id) = id {
            self.names.queues.insert((tenant.clone(), name.clone()), id);
        }
        Ok(id)
    }

    /// The number of a queue, made on first sight.
    pub(crate) fn queue_id(&mut self, tenant: &Tenant, name: &QueueName) -> rusqlite::Result<u64> {
        if let Some(id) = self.find_queue(tenant, name)? {
            return Ok(id);
        }
        let id = self.fresh();
        let text = |s: &str| Value::Text(s.to_owned());
        self.execute(NEW_QUEUE, [number(id), text(tenant.as_str()), text(name.as_str())])?;
        self.names.queues.insert((tenant.clone(), name.clone()), id);
        self.named.push(Named::Queue(tenant.clone(), name.clone()));
        Ok(id)
    }

    /// A queue's row, to read and change; written back at the end.
    pub(crate) fn queue(&mut self, id: u64) -> rusqlite::Result<&mut QueueRow> {
        if !self.queues.contains_key(&id) {
            let row = self.statements.get(QUEUE_BY_ID)?.query_row([id], QueueRow::read)?;
            self.queues.insert(id, (row.clone(), row));
        }
        Ok(&mut self.queues.get_mut(&id).expect("it was inserted above").0)
    }

    /// A lane of this queue wants attention at `when`: the queue's own time may not be later.
    pub(crate) fn due(&mut self, queue: u64, when: Option<Timestamp>) -> rusqlite::Result<()> {
        let Some(when) = when else { return Ok(()) };
        let now = self.now;
        let row = self.queue(queue)?;
        // What has been due for a while may be something that a sleeper was not allowed to take: it is woken, too.
        let overdue = row.next_at.is_some_and(|known| known <= now);
        if row.next_at.is_none_or(|known| when < known) {
            row.next_at = Some(when);
            self.wake = true;
        }
        self.wake |= overdue;
        Ok(())
    }

    pub(crate) fn write_queues(&mut self) -> rusqlite::Result<()> {
        let changed: Vec<QueueRow> =
            self.queues.values().filter(|(row, read)| row != read).map(|(row, _)| row.clone()).collect();
        for q in changed {
            let (sql, t) = (
                "UPDATE queue SET next_at = ?2, max_running = ?3, running = ?4, accepted = ?5, succeeded = ?6, dead = ?7,
                 discarded = ?8, delayed = ?9, buffered = ?10, in_flight = ?11, priorities = ?12, schedules = ?13,
                 governed = ?14 WHERE id = ?1",
                &q.totals,
            );
            let counters = [t.accepted, t.succeeded, t.dead, t.discarded, t.delayed, t.buffered, t.in_flight];
            let [a, s, d, x, l, b, f] = counters.map(number);
            let max = q.max_running.map_or(Value::Null, number);
            self.execute(
                sql,
                [
                    number(q.id),
                    maybe_at(q.next_at),
                    max,
                    number(q.running),
                    a,
                    s,
                    d,
                    x,
                    l,
                    b,
                    f,
                    number(q.priorities),
                    number(q.schedules),
                    Value::Integer(q.governed.into()),
                ],
            )?;
            self.queues.insert(q.id, (q.clone(), q));
        }
        Ok(())
    }

    /// Who paused the queue, if it is paused for this tenant.
    pub(crate) fn queue_paused(&mut self, row: &QueueRow) -> rusqlite::Result<bool> {
        let pauses = match self.pauses.take() {
            Some(pauses) => pauses,
            None => queue_pauses(self.connection)?,
        };
        let pauses = self.pauses.insert(pauses);
        Ok(paused_by(pauses, row.tenant.as_str(), row.name.as_str()).is_some())
    }

    pub(crate) fn forget_pauses(&mut self) {
        self.pauses = None;
    }

    /// One record of the trail, in this transaction.
    pub(crate) fn audit(
        &mut self,
        queue: u64,
        lane: Option<u64>,
        made: &Move,
        actor: Option<&str>,
    ) -> rusqlite::Result<()> {
        let id = self.fresh();
        let worker = made.worker.as_ref().map(|w| self.worker(w)).transpose()?;
        let prior = made.prior_worker.as_ref().map(|w| self.worker(w)).transpose()?;
        let maybe = |n: Option<u64>| n.map_or(Value::Null, number);
        let state = |s: Option<quell_core::lifecycle::RunState>| {
            s.map_or(Value::Null, |s| Value::Integer(state_code(s)))
        };
        let values = [
            number(id),
            at(self.now),
            number(queue),
            maybe(lane),
            maybe(made.run),
            Value::Integer(change_code(made.change)),
            state(made.from),
            state(made.to),
            small(made.attempt),
            number(made.token),
            maybe(worker),
            maybe(prior),
            number(made.upto_seq),
            maybe_at(made.next_at),
            actor.map_or(Value::Null, |a| Value::Text(a.to_owned())),
            maybe(made.other_run),
            made.verdict.map_or(Value::Null, |v| Value::Integer(encode(&VerdictKind::ALL, v))),
        ];
        self.execute(include_str!("../sql/audit.sql"), values)?;
        Ok(())
    }
}

/// Where a commit went wrong.
pub(crate) enum CommitError {
    /// Nothing was done.
    Before(rusqlite::Error),
    /// Perhaps it was.
    During(rusqlite::Error),
}

/// What holds for the whole store at one moment.
pub(crate) struct Facts {
    /// Of the store-wide sequence.
    pub(crate) last_number: u64,
    pub(crate) now: Timestamp,
    pub(crate) sealed: Option<String>,
}

pub(crate) fn facts(connection: &Connection) -> rusqlite::Result<Facts> {
    let sql = "SELECT last_number, clock_offset, test_offset, sealed FROM meta";
    connection.prepare_cached(sql)?.query_row([], |row| {
        let offset: i64 = row.get(1)?;
        let test: i64 = row.get(2)?;
        let moved = if cfg!(feature = "test-clock") { test } else { 0 };
        Ok(Facts { last_number: row.get(0)?, now: clock::now(offset + moved), sealed: row.get(3)? })
    })
}

/// Store time for a reader.
pub(crate) fn read_now(connection: &Connection) -> rusqlite::Result<Timestamp> {
    facts(connection).map(|facts| facts.now)
}

pub(crate) fn queue_pauses(connection: &Connection) -> rusqlite::Result<Vec<QueuePause>> {
    let mut statement = connection.prepare_cached("SELECT queue, every, tenant, at, by FROM queue_pause")?;
    let rows = statement.query_map([], |row| {
        Ok(QueuePause {
            queue: row.get(0)?,
            every: row.get(1)?,
            tenant: row.get(2)?,
            paused: Paused { at: Timestamp::from_millis(row.get(3)?), by: row.get(4)? },
        })
    })?;
    rows.collect()
}

pub(crate) fn paused_by<'a>(pauses: &'a [QueuePause], tenant: &str, queue: &str) -> Option<&'a Paused> {
    let of_queue = || pauses.iter().filter(|p| p.queue == queue);
    let own = of_queue().find(|p| !p.every && p.tenant == tenant);
    own.or_else(|| of_queue().find(|p| p.every)).map(|p| &p.paused)
}

impl QueueRow {
    pub(crate) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<QueueRow> {
        let bad = |e: quell_core::event::Invalid| {
            rusqlite::Error::from(rusqlite::types::FromSqlError::Other(Box::new(e)))
        };
        Ok(QueueRow {
            id: row.get(0)?,
            tenant: Tenant::new(row.get_ref(1)?.as_str()?).map_err(bad)?,
            name: QueueName::new(row.get_ref(2)?.as_str()?).map_err(bad)?,
            next_at: row.get::<_, Option<i64>>(3)?.map(Timestamp::from_millis),
            max_running: row.get(4)?,
            running: row.get(5)?,
            totals: Totals {
                accepted: row.get(6)?,
                succeeded: row.get(7)?,
                dead: row.get(8)?,
                discarded: row.get(9)?,
                delayed: row.get(10)?,
                buffered: row.get(11)?,
                in_flight: row.get(12)?,
            },
            priorities: row.get(13)?,
            schedules: row.get(14)?,
            governed: row.get(15)?,
        })
    }
}
