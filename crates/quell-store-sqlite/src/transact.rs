//! Append inside a caller's own transaction: the application's rows and the event are stored together or not at all.
//!
//! Two ways. [`SqliteStore::transaction`] runs a closure on the writer thread, in a transaction of its own, with a time
//! limit. [`append_in`] works on the caller's own connection to the same file, inside its own `BEGIN … COMMIT`. Both only
//! put the event aside (`aside.rs`): no lane is read or changed, so nobody waits for a caller longer than for its write
//! lock, and duplicates are dealt with when the event enters its lane (a duplicate is dropped and recorded, a known id
//! with another payload becomes a dead letter).
//!
//! The application's tables live in Quell's file then. Their names need a prefix of their own, so that no later version of
//! Quell can want them; a prefix of Quell's will never be `app_`. Quell's own tables are for reading: writing to them
//! breaks its promises, and nothing here keeps a caller from it.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quell_core::clock::{Timestamp, millis};
use quell_core::copy::sealed;
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::event::{NewEvent, SourceName};
use quell_core::limits;
use quell_core::store::{AppendRequest, Receipt, unknown_source};
use rusqlite::{Connection, ErrorCode, OptionalExtension, params_from_iter};

use crate::error::not_done;
use crate::tx::{NEW_QUEUE, Tx, facts};
use crate::writer::{Answer, Request};
use crate::{SqliteStore, aside, clock, migrate, sources};

/// A closure may hold the file this long at the most: beyond it the calls of others are refused.
pub const TRANSACTION_MAX: Duration = limits::STORE_CALL_DEADLINE;
/// Instructions of SQLite between two looks at the time limit: some microseconds.
const LOOK_EVERY: i32 = 1_000;

/// Why nothing of a transaction is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransactionError<E> {
    /// The closure's own error.
    Closure(E),
    /// The store's: over the time limit, busy, refused. If it [is unknown](StoreError::is_unknown), the commit's fate is:
    /// look before repeating it.
    Store(StoreError),
}

impl<E: std::fmt::Display> std::fmt::Display for TransactionError<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TransactionError::Closure(error) => error.fmt(f),
            TransactionError::Store(error) => error.fmt(f),
        }
    }
}

impl<E: std::fmt::Debug + std::fmt::Display> std::error::Error for TransactionError<E> {}

/// Takes the events of one transaction.
///
/// They are checked at once and stored when the closure has returned `Ok`, so a savepoint that the closure rolls back
/// does not take them back; an error of the closure does.
#[derive(Debug)]
pub struct Appender {
    now: Timestamp,
    events: Vec<NewEvent>,
    /// What an event may name.
    sources: HashSet<SourceName>,
}

impl Appender {
    /// Adds an event to the transaction. Its number is given when it enters its lane, after the commit.
    pub fn append(&mut self, event: NewEvent) -> StoreResult<Receipt> {
        check(&event)?;
        if let Some(name) = event.governed_by().filter(|name| !self.sources.contains(*name)) {
            return Err(unknown_source(&event.lane, name));
        }
        if self.events.len() == limits::APPEND_EVENTS_MAX {
            let max = limits::APPEND_EVENTS_MAX;
            let detail = format!("more than {max} events in one transaction; nothing was added, use several");
            return Err(StoreError::new(ErrorKind::Limit, detail));
        }
        let receipt = aside::receipt(event.id.id().clone(), self.ready_at(&event), false);
        self.events.push(event);
        Ok(receipt)
    }

    fn ready_at(&self, event: &NewEvent) -> Timestamp {
        self.now.after(event.delay.unwrap_or_default())
    }
}

/// What an event aside must keep to before it is accepted.
fn check(event: &NewEvent) -> StoreResult<()> {
    AppendRequest { events: vec![event.clone()], repeat: false }.check()?;
    if event.only_if_idle {
        let detail = "an event inside a transaction cannot ask for an idle lane: it enters its lane later";
        return Err(StoreError::new(ErrorKind::Invalid, detail));
    }
    Ok(())
}

/// Watches over closures on the writer's connection: ends their SQL at the time limit, and turns every commit that is not
/// the store's into a rollback. SQLite itself ends a transaction on some errors (a full disk, the time limit); what a
/// closure wrote after that would otherwise be committed row by row.
#[derive(Debug)]
pub(crate) struct Guard {
    /// In milliseconds of the boot clock.
    deadline: AtomicI64,
    closure_runs: AtomicBool,
}

impl Guard {
    pub(crate) fn install(connection: &mut Connection) -> rusqlite::Result<Arc<Guard>> {
        let guard =
            Arc::new(Guard { deadline: AtomicI64::new(i64::MAX), closure_runs: AtomicBool::new(false) });
        let (at_commit, at_work) = (guard.clone(), guard.clone());
        connection.commit_hook(Some(move || at_commit.closure_runs.load(Ordering::SeqCst)))?;
        connection.progress_handler(LOOK_EVERY, Some(move || at_work.is_over()))?;
        Ok(guard)
    }

    fn is_over(&self) -> bool {
        let deadline = self.deadline.load(Ordering::SeqCst);
        deadline != i64::MAX && clock::boot_millis() > deadline
    }

    /// Runs a closure under the limit. Says what it returned and whether it was too late.
    fn watch<T>(&self, limit: Duration, work: impl FnOnce() -> T) -> (T, bool) {
        self.deadline.store(clock::boot_millis().saturating_add(millis(limit)), Ordering::SeqCst);
        self.closure_runs.store(true, Ordering::SeqCst);
        let done = work();
        let late = self.is_over();
        self.closure_runs.store(false, Ordering::SeqCst);
        self.deadline.store(i64::MAX, Ordering::SeqCst);
        (done, late)
    }
}

/// Does the caller's work and keeps its result for it. Says whether to commit; never panics.
type Work = Box<dyn FnOnce(&Connection, &mut Appender) -> bool + Send>;

/// A closure on its way to the writer.
pub(crate) struct Transaction {
    guard: Arc<Guard>,
    limit: Duration,
    /// It belongs to a copy, which a seal does not stop.
    pub(crate) passes_seal: bool,
    work: Mutex<Option<Work>>,
}

/// Runs the closure of a request. After an error the caller rolls everything back.
pub(crate) fn transact(tx: &mut Tx<'_, '_>, request: &Transaction) -> StoreResult<()> {
    let work = request.work.lock().expect("no panic happens while it is locked").take();
    let work =
        work.ok_or_else(|| StoreError::unavailable("the closure has run before; nothing was stored"))?;
    let mut prepare = || {
        tx.write_lanes()?;
        tx.write_queues()?;
        tx.write_sources()?;
        sources::declarations(tx.connection)
    };
    let declared = prepare().map_err(|e| not_done(&e))?;
    let sources = declared.into_iter().map(|declaration| declaration.name).collect();
    let mut appender = Appender { now: tx.now, events: Vec::new(), sources };
    let (wanted, late) = request.guard.watch(request.limit, || work(tx.connection, &mut appender));
    if late {
        let detail =
            format!("the transaction took longer than {:?}; nothing of it was stored", request.limit);
        return Err(StoreError::new(ErrorKind::Limit, detail));
    }
    if tx.connection.is_autocommit() {
        let detail = "the transaction ended inside the closure, by its own COMMIT or ROLLBACK or by an error that ends \
                      it; nothing of it was stored";
        return Err(StoreError::new(ErrorKind::Invalid, detail));
    }
    if !wanted {
        return Err(StoreError::new(ErrorKind::Invalid, "the closure returned an error; nothing was stored"));
    }
    // The closure may have appended with `append_in`, which counts in the file.
    tx.read_again().map_err(|e| not_done(&e))?;
    for event in &appender.events {
        aside::put(tx, event, appender.ready_at(event)).map_err(|e| not_done(&e))?;
    }
    // The closure may have written where this transaction does not see it.
    tx.wrote = true;
    Ok(())
}

impl SqliteStore {
    /// Runs a closure on the writer thread, inside a write transaction of its own: its rows and its events are stored
    /// together, durably, before this returns `Ok`, or not at all.
    ///
    /// The store does nothing else meanwhile, so the closure should only talk to the database. Its SQL is stopped at
    /// `limit` (at most [`TRANSACTION_MAX`]); Rust code cannot be stopped, but what comes back late is not stored. A panic
    /// goes on in the caller. The closure runs once; it is not run when the caller has gone away before.
    pub async fn transaction<T, E>(
        &self,
        limit: Duration,
        work: impl FnOnce(&Connection, &mut Appender) -> Result<T, E> + Send + 'static,
    ) -> Result<T, TransactionError<E>>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        self.transact(limit, false, work).await
    }

    /// The same, for those whom a seal may not stop.
    pub(crate) async fn transact<T, E>(
        &self,
        limit: Duration,
        passes_seal: bool,
        work: impl FnOnce(&Connection, &mut Appender) -> Result<T, E> + Send + 'static,
    ) -> Result<T, TransactionError<E>>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        if limit > TRANSACTION_MAX {
            let detail = format!("a transaction may take {TRANSACTION_MAX:?} at the most, not {limit:?}");
            return Err(TransactionError::Store(StoreError::new(ErrorKind::Invalid, detail)));
        }
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        let work: Work = Box::new(move |connection, appender| {
            // A panic here would end the writer, and with it the store for everybody.
            let done = catch_unwind(AssertUnwindSafe(|| work(connection, appender)));
            let wanted = matches!(done, Ok(Ok(_)));
            *slot.lock().expect("no panic happens while it is locked") = Some(done);
            wanted
        });
        let request =
            Transaction { guard: self.guard.clone(), limit, passes_seal, work: Mutex::new(Some(work)) };
        let answer = self.inbox.call(Request::Transact(request)).await;
        let done = result.lock().expect("no panic happens while it is locked").take();
        match (answer, done) {
            (_, Some(Err(panic))) => resume_unwind(panic),
            (Ok(Answer::Transact), Some(Ok(Ok(value)))) => Ok(value),
            (Err(_), Some(Ok(Err(error)))) => Err(TransactionError::Closure(error)),
            (Err(error), _) => Err(TransactionError::Store(error)),
            (Ok(_), _) => unreachable!("the writer commits what the closure wanted"),
        }
    }

    /// Makes everybody who sleeps look now, here and in other processes. For after the commit of a transaction with
    /// [`append_in`]; without it the event is noticed by a poll within two seconds.
    pub fn wake(&self) {
        self.bell.ring();
    }
}

/// Adds an event to the caller's own open transaction on a Quell file: it exists when that commits, and only then.
///
/// Begin with `BEGIN IMMEDIATE`: a transaction that has read before it writes is refused by SQLite when somebody else has
/// written since. Until the commit no one else can write to the file, so the transaction should be short; others wait or
/// are told `unavailable`, and nothing is lost. How durable the commit is depends on that connection's own `synchronous`;
/// `FULL` is what Quell uses. After the commit call [`SqliteStore::wake`], so that workers look at once.
///
/// After an error nothing of the event is in the transaction, which goes on unless the error says that it ended.
pub fn append_in(connection: &Connection, event: &NewEvent) -> StoreResult<Receipt> {
    check(event)?;
    if connection.is_autocommit() {
        let detail = "there is no transaction on this connection; begin one with BEGIN IMMEDIATE";
        return Err(StoreError::new(ErrorKind::Invalid, detail));
    }
    check_file(connection)?;
    let done = || -> rusqlite::Result<StoreResult<Receipt>> {
        connection.execute_batch("SAVEPOINT quell_append")?;
        let answer = put(connection, event)?;
        if answer.is_ok() {
            connection.execute_batch("RELEASE quell_append")?;
        } else {
            connection.execute_batch("ROLLBACK TO quell_append; RELEASE quell_append")?;
        }
        Ok(answer)
    };
    done().unwrap_or_else(|error| Err(undone(connection, &error)))
}

/// A file of another schema, or a backup that nobody has opened yet, has other rules.
fn check_file(connection: &Connection) -> StoreResult<()> {
    if migrate::application_id(connection)? != migrate::APPLICATION_ID
        || migrate::version(connection)? != migrate::VERSION
    {
        let known = migrate::VERSION;
        let detail = format!(
            "the main database of this connection is not a Quell store of schema {known}; open it first"
        );
        return Err(StoreError::new(ErrorKind::Corrupt, detail));
    }
    let (stamp, boot): (i64, String) = connection
        .prepare_cached("SELECT backup, boot_id FROM meta")
        .and_then(|mut statement| statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?))))
        .map_err(|e| not_done(&e))?;
    if boot != clock::boot_id() {
        let detail =
            "nobody has opened this store since the host was started, so its clock is not set; open it first";
        return Err(StoreError::unavailable(detail));
    }
    if stamp != 0 {
        let detail = "this file is a backup that has not been opened as a store yet; open it first";
        return Err(StoreError::new(ErrorKind::Corrupt, detail));
    }
    Ok(())
}

/// Refused when somebody has sealed the store, or nobody declares the source of the event.
fn put(connection: &Connection, event: &NewEvent) -> rusqlite::Result<StoreResult<Receipt>> {
    let lane = &event.lane;
    // The first write takes the lock; only then is anything read that others may change.
    let number = fresh(connection)?;
    let facts = facts(connection)?;
    if let Some(by) = facts.sealed {
        return Ok(Err(sealed(&by)));
    }
    if let Some(name) = event.governed_by()
        && !sources::is_declared(connection, name)?
    {
        return Ok(Err(unknown_source(lane, name)));
    }
    let now = facts.now;
    let ready_at = now.after(event.delay.unwrap_or_default());
    let sql = "SELECT id FROM queue WHERE tenant = ?1 AND name = ?2";
    let known = connection
        .prepare_cached(sql)?
        .query_row([lane.tenant.as_str(), lane.queue.as_str()], |row| row.get(0))
        .optional()?;
    let queue = match known {
        Some(queue) => queue,
        None => {
            let queue = fresh(connection)?;
            let values = (queue, lane.tenant.as_str(), lane.queue.as_str());
            connection.prepare_cached(NEW_QUEUE)?.execute(values)?;
            queue
        }
    };
    let values = aside::values(number, queue, event, now, ready_at);
    connection.prepare_cached(aside::INSERT)?.execute(params_from_iter(values))?;
    let sql = "UPDATE queue SET accepted = accepted + 1, delayed = delayed + 1, next_at = min(coalesce(next_at, ?2), ?2)
               WHERE id = ?1";
    connection.prepare_cached(sql)?.execute((queue, ready_at.as_millis()))?;
    let sql = "UPDATE meta SET clock_high = max(clock_high, ?1)";
    connection.prepare_cached(sql)?.execute([now.as_millis()])?;
    Ok(Ok(aside::receipt(event.id.id().clone(), ready_at, false)))
}

/// The next number of the store-wide sequence.
fn fresh(connection: &Connection) -> rusqlite::Result<u64> {
    let sql = "UPDATE meta SET last_number = last_number + 1 RETURNING last_number";
    connection.prepare_cached(sql)?.query_row([], |row| row.get(0))
}

/// Takes back what was written of the event, and says how far that went.
fn undone(connection: &Connection, error: &rusqlite::Error) -> StoreError {
    let mut answer = not_done(error);
    if matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)) {
        answer.detail += "; begin the transaction with BEGIN IMMEDIATE, and again if it had read before";
    }
    if connection.is_autocommit() {
        answer.detail += "; SQLite rolled the whole transaction back";
    } else if connection.execute_batch("ROLLBACK TO quell_append; RELEASE quell_append").is_err() {
        answer.detail += "; roll the transaction back";
    }
    answer
}
