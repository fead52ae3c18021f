//! Quell on an embedded SQLite file: the default store, with no set-up.
//!
//! One writer thread per process commits in groups (`writer.rs`); readers have connections of their own; several
//! processes share one file and take turns. Follow one request: [`SqliteStore`] → `writer.rs` → `tx.rs` → the file of the
//! verb (`append.rs`, `claim.rs`, `extend.rs`, `hold.rs`, `step.rs`, `sources.rs`, `settle.rs`, `shelves.rs`, `sweep.rs`,
//! `control.rs`), whose decisions are those of `quell_core::lane` and `quell_core::source`. Events that are not in a lane yet are in
//! `aside.rs`, which lanes are due says `due.rs`; reads go to `inspect.rs`. Tables of applications are in `tables.rs`. What only this store can do is in `backup.rs` and `transact.rs`; everything moves to or from another store by `copy.rs`.
//!
//! Durable: `synchronous = FULL` is set and read back, and an answer is given only after the commit has returned.

#![warn(missing_docs)]

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use async_trait::async_trait;
use quell_core::error::{StoreError, StoreResult};
use quell_core::inspect::{Inspect, Inspected};
use quell_core::shelf::{ShelfAnswer, ShelfRequest};
use quell_core::store::{
    AppendRequest, Appended, ClaimRequest, Claimed, Control, Controlled, Description, ExtendRequest,
    Extended, Held, HoldRequest, SettleRequest, Settled, SourceAnswer, SourceRequest, StepAnswer,
    StepRequest, Store, SweepRequest, Swept, Wakeups,
};
use quell_core::tables::Tables;
use rusqlite::Connection;

use crate::checkpoint::Checkpointer;
use crate::connection::Synchronous;
use crate::wake::Bell;
use crate::writer::{Answer, Inbox, Request, Writer};

mod append;
mod aside;
mod backup;
mod checkpoint;
mod claim;
mod clock;
mod connection;
mod control;
mod copy;
mod counted;
mod due;
mod erase;
mod error;
mod extend;
mod hold;
mod inspect;
mod migrate;
mod rows;
mod settle;
mod shelves;
mod sources;
mod step;
mod sweep;
mod tables;
mod transact;
mod turn;
mod tx;
mod wake;
mod writer;

pub use backup::{BackedUp, Restored, backup, restore};
pub use counted::{count_statements, counted};
pub use erase::compact;
pub use migrate::dump_schema;
/// Part of this crate's interface: [`SqliteStore::transaction`] and [`append_in`] hand out and take its `Connection`, and
/// a program can link only one version of it, so callers use this one.
pub use rusqlite;
pub use transact::{Appender, TRANSACTION_MAX, TransactionError, append_in};
pub use wake::tell_all as wake;

/// Connections kept open for reads; more reads than this at once open their own for a moment.
const READERS_KEPT: usize = 4;

/// A store in one file.
pub struct SqliteStore {
    inbox: Arc<Inbox>,
    bell: Arc<Bell>,
    path: PathBuf,
    description: Description,
    readers: Arc<Mutex<Vec<Connection>>>,
    statements: Arc<AtomicU64>,
    guard: Arc<transact::Guard>,
    writer: Option<JoinHandle<()>>,
    watcher: Option<JoinHandle<()>>,
}

impl SqliteStore {
    /// Opens the file, making it if it does not exist. Refuses, with the reason, what it cannot be sure of.
    pub fn open(path: &Path) -> StoreResult<Arc<Self>> {
        SqliteStore::opened(path, Synchronous::Full)
    }

    /// Opens it with `synchronous = NORMAL`, which loses acknowledged events in a power cut and says so in its description. It is
    /// here for a test of power cuts, which has to show that it would notice: nothing else should use it.
    pub fn open_unflushed(path: &Path) -> StoreResult<Arc<Self>> {
        SqliteStore::opened(path, Synchronous::Normal)
    }

    fn opened(path: &Path, synchronous: Synchronous) -> StoreResult<Arc<Self>> {
        connection::prepare_file(path)?;
        let turn = turn::Turn::new(open_lock(path)?, connection::WRITER_PATIENCE);
        let (mut writer, durability) = connection::open_writer(path, synchronous)?;
        migrate::migrate(&mut writer)?;
        settle_clock(&writer).map_err(|e| error::not_done(&e))?;
        backup::raise_epoch(&writer)?;
        let left = erase::left_over(&writer).map_err(|e| error::not_done(&e))?;
        let guard = transact::Guard::install(&mut writer).map_err(|e| error::not_done(&e))?;
        let description = Description {
            kind: "sqlite",
            place: path.display().to_string(),
            version: rusqlite::version().to_owned(),
            schema: migrate::VERSION,
            durability,
        };
        // Opened now so that a file that cannot be read is refused now.
        let reader = connection::open_reader(path)?;
        let watcher = connection::open_reader(path)?;
        let inbox = Inbox::new();
        let bell = Bell::new(path, &socket_name());
        let statements = Arc::new(AtomicU64::new(0));
        let writer = Writer {
            connection: writer,
            turn,
            inbox: inbox.clone(),
            bell: bell.clone(),
            statements: statements.clone(),
            checkpointer: Checkpointer::new(path),
            left,
        };
        let start = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(work)
                .map_err(|e| StoreError::unavailable(format!("cannot start a thread: {e}")))
        };
        let (watch_bell, watch_statements) = (bell.clone(), statements.clone());
        // Read before anybody can be told that the store is open, so that no later commit is missed.
        let seen = data_version(&watcher).map_err(|e| error::not_done(&e))?;
        let writer = start("quell-writer", Box::new(move || writer.run()))?;
        let watcher =
            start("quell-watcher", Box::new(move || watch(&watcher, seen, &watch_bell, &watch_statements)))?;
        Ok(Arc::new(SqliteStore {
            inbox,
            bell,
            path: path.to_path_buf(),
            description,
            readers: Arc::new(Mutex::new(vec![reader])),
            statements,
            guard,
            writer: Some(writer),
            watcher: Some(watcher),
        }))
    }

    /// Transactions, reads and polls made so far: what an idle process costs.
    pub fn statements(&self) -> u64 {
        self.statements.load(Ordering::Relaxed)
    }

    /// Reads on a connection of its own, off the threads that drive others.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        self.statements.fetch_add(1, Ordering::Relaxed);
        let (readers, path) = (self.readers.clone(), self.path.clone());
        let read = move || {
            let kept = readers.lock().ok().and_then(|mut kept| kept.pop());
            let connection = match kept {
                Some(connection) => connection,
                None => connection::open_reader(&path)?,
            };
            let answer = work(&connection);
            if let Ok(mut kept) = readers.lock()
                && kept.len() < READERS_KEPT
            {
                kept.push(connection);
            }
            answer
        };
        let done = tokio::task::spawn_blocking(read).await;
        done.unwrap_or_else(|e| Err(StoreError::unavailable(format!("the read did not finish: {e}"))))
    }

    /// Moves the clock of this file for everybody who has it open.
    #[cfg(feature = "test-clock")]
    pub async fn advance(&self, by: std::time::Duration) -> StoreResult<()> {
        self.inbox.call(Request::MoveClock(quell_core::clock::millis(by))).await.map(|_| ())
    }
}

impl Drop for SqliteStore {
    /// The writer's connection closes last: it is the one that can copy the log back into the file and remove it.
    fn drop(&mut self) {
        self.bell.close();
        join(self.watcher.take());
        if let Ok(mut readers) = self.readers.lock() {
            readers.clear();
        }
        self.inbox.close();
        join(self.writer.take());
    }
}

fn join(thread: Option<JoinHandle<()>>) {
    if thread.is_some_and(|thread| thread.join().is_err()) {
        tracing::error!("a thread of the store panicked");
    }
}

/// Calls the writer and takes the answer of the same name.
macro_rules! write {
    ($store:expr, $verb:ident, $request:expr) => {
        match $store.inbox.call(Request::$verb($request)).await? {
            Answer::$verb(answer) => Ok(answer),
            _ => unreachable!("the writer answers what it was asked"),
        }
    };
}

#[async_trait]
impl Store for SqliteStore {
    async fn append(&self, request: AppendRequest) -> StoreResult<Appended> {
        write!(self, Append, request)
    }

    async fn claim(&self, request: ClaimRequest) -> StoreResult<Claimed> {
        write!(self, Claim, request)
    }

    async fn extend(&self, request: ExtendRequest) -> StoreResult<Extended> {
        write!(self, Extend, request)
    }

    async fn hold(&self, request: HoldRequest) -> StoreResult<Held> {
        write!(self, Hold, request)
    }

    async fn step(&self, request: StepRequest) -> StoreResult<StepAnswer> {
        write!(self, Step, request)
    }

    async fn source(&self, request: SourceRequest) -> StoreResult<SourceAnswer> {
        write!(self, Source, request)
    }

    async fn settle(&self, request: SettleRequest) -> StoreResult<Settled> {
        write!(self, Settle, request)
    }

    async fn shelf(&self, request: ShelfRequest) -> StoreResult<ShelfAnswer> {
        match request.action.name() {
            Some(_) => write!(self, Shelf, request),
            None => self.read(move |connection| shelves::list(connection, &request)).await,
        }
    }

    async fn sweep(&self, request: SweepRequest) -> StoreResult<Swept> {
        write!(self, Sweep, request)
    }

    async fn control(&self, request: Control) -> StoreResult<Controlled> {
        write!(self, Control, request)
    }

    async fn inspect(&self, request: Inspect) -> StoreResult<Inspected> {
        let description = self.description.clone();
        self.read(move |connection| inspect::inspect(connection, request, &description)).await
    }

    fn wakeups(&self) -> Box<dyn Wakeups> {
        self.bell.listener()
    }

    fn description(&self) -> Description {
        self.description.clone()
    }

    fn tables(self: Arc<Self>) -> Option<Arc<dyn Tables>> {
        Some(self)
    }
}

/// The side file by which processes take turns.
fn open_lock(path: &Path) -> StoreResult<std::fs::File> {
    let mut name = path.as_os_str().to_owned();
    name.push("-lock");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(&name).map_err(|error| {
        let name = Path::new(&name).display();
        StoreError::unavailable(format!(
            "cannot open {name}: {error}; the folder must be writable for this user"
        ))
    })
}

/// On the first open after a boot the offset of the clock is set anew.
fn settle_clock(connection: &Connection) -> rusqlite::Result<()> {
    let boot = clock::boot_id();
    let read = |connection: &Connection| {
        connection.query_row("SELECT boot_id, clock_high, clock_offset FROM meta", [], |row| {
            let (stored, high, offset): (String, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            // A host that cannot name its boots, or names them all alike, is found out by time that would go back.
            let holds = stored == boot && clock::now(offset).as_millis() >= high;
            Ok((holds || cfg!(feature = "test-clock") && stored == boot, high))
        })
    };
    if read(connection)?.0 {
        return Ok(());
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let set = || {
        let (holds, high) = read(connection)?;
        // Another process may have been first.
        if !holds {
            let sql = "UPDATE meta SET boot_id = ?1, clock_offset = ?2";
            connection.execute(sql, (&boot, clock::offset_of_new_boot(high)))?;
        }
        connection.execute_batch("COMMIT")
    };
    set().inspect_err(|_| {
        let _ = connection.execute_batch("ROLLBACK");
    })
}

/// New for every open store, so that a fast restart with the same pid never takes over a socket.
fn socket_name() -> String {
    static OPENED: AtomicU64 = AtomicU64::new(0);
    let (pid, nth) = (std::process::id(), OPENED.fetch_add(1, Ordering::SeqCst));
    format!("{pid}-{nth}-{:x}", clock::boot_millis())
}

/// Rings when another process tells us that it wrote, or when a poll shows that one did.
fn watch(connection: &Connection, mut seen: i64, bell: &Bell, statements: &AtomicU64) {
    loop {
        let told = bell.wait();
        if bell.closing.load(Ordering::SeqCst) {
            return;
        }
        if told {
            bell.ring_here();
            continue;
        }
        statements.fetch_add(1, Ordering::Relaxed);
        if let Ok(now) = data_version(connection)
            && now != seen
        {
            seen = now;
            bell.ring_here();
        }
    }
}

/// Changes whenever another connection has committed.
fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}
