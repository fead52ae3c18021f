//! Copies the log back into the file in portions, beside the writer.
//!
//! Left alone, the committing connection copies 64 MiB at once, and everybody who waits for that commit waits for the copy. A
//! second connection copies what has gathered every few milliseconds (`PASSIVE`: it waits for nobody and nobody waits for it), so
//! that the writer's own checkpoint, which alone can begin the log anew, finds little to do. It changes no promise: a frame is
//! copied only after it is durable in the log.
//!
//! The thread starts when a process has shown that it writes a lot; a command that stores one event never has it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;

use crate::connection;

/// Commits before the thread starts.
const COMMITS_BEFORE: u64 = 64;
/// Pages that are copied at once (8 MiB): a portion whose writes do not hold up the log's own for long. With 20 MiB they did
/// (`docs/benchmarks.md`).
const PORTION: i64 = 1_000;
/// How often it looks while there are commits.
const LOOK: Duration = Duration::from_millis(20);

/// The writer's side.
pub(crate) struct Checkpointer {
    path: PathBuf,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    commits: AtomicU64,
    /// It sleeps until the next commit.
    asleep: AtomicBool,
    closed: AtomicBool,
}

impl Checkpointer {
    pub(crate) fn new(path: &Path) -> Self {
        Checkpointer { path: path.to_path_buf(), shared: Arc::default(), thread: None }
    }

    /// After each commit.
    pub(crate) fn committed(&mut self) {
        let commits = self.shared.commits.fetch_add(1, Ordering::SeqCst) + 1;
        match &self.thread {
            Some(thread) if self.shared.asleep.swap(false, Ordering::SeqCst) => thread.thread().unpark(),
            None if commits == COMMITS_BEFORE => self.start(),
            _ => {}
        }
    }

    /// Without it everything still works: the writer then copies all by itself.
    fn start(&mut self) {
        let (path, shared) = (self.path.clone(), self.shared.clone());
        let work = move || match connection::open_checkpointer(&path) {
            Ok(connection) => run(&connection, &shared),
            Err(error) => tracing::warn!(%error, "the log is copied back by the writer alone"),
        };
        match std::thread::Builder::new().name("quell-checkpoint".to_owned()).spawn(work) {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => tracing::warn!(%error, "the log is copied back by the writer alone"),
        }
    }
}

impl Drop for Checkpointer {
    /// Its connection is closed before the writer's, which is the one that can remove the log.
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("a thread of the store panicked");
            }
        }
    }
}

fn run(connection: &Connection, shared: &Shared) {
    let mut seen = 0;
    while !shared.closed.load(Ordering::SeqCst) {
        let commits = shared.commits.load(Ordering::SeqCst);
        if commits == seen {
            shared.asleep.store(true, Ordering::SeqCst);
            // A commit between the two looks has seen that it sleeps, or is seen here.
            if shared.commits.load(Ordering::SeqCst) == seen && !shared.closed.load(Ordering::SeqCst) {
                std::thread::park();
            }
            shared.asleep.store(false, Ordering::SeqCst);
            continue;
        }
        seen = commits;
        // Whatever is in the way now is not in the way at the next look.
        if matches!(pages(connection, "NOOP"), Ok((log, copied)) if log - copied >= PORTION) {
            let _ = pages(connection, "PASSIVE");
        }
        std::thread::park_timeout(LOOK);
    }
}

/// Pages in the log, and how many of them have been copied.
fn pages(connection: &Connection, mode: &str) -> rusqlite::Result<(i64, i64)> {
    let sql = format!("PRAGMA wal_checkpoint({mode})");
    connection.prepare_cached(&sql)?.query_row([], |row| Ok((row.get(1)?, row.get(2)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until(is_so: impl Fn() -> bool) {
        for _ in 0..2_000 {
            if is_so() {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
        panic!("it never happened");
    }

    #[test]
    fn what_many_commits_have_left_is_copied_by_somebody_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("quell.db");
        connection::prepare_file(&path).unwrap();
        let (writer, _) = connection::open_writer(&path, connection::Synchronous::Full).unwrap();
        writer.execute_batch("CREATE TABLE t (a BLOB)").unwrap();
        let mut checkpointer = Checkpointer::new(&path);
        for _ in 0..COMMITS_BEFORE {
            checkpointer.committed();
        }
        let thread = checkpointer.thread.as_ref().expect("it has started");
        let thread_id = thread.thread().id();
        writer.execute("INSERT INTO t VALUES (zeroblob(8192 * 1500))", []).unwrap();
        checkpointer.committed();
        until(|| matches!(pages(&writer, "NOOP"), Ok((log, copied)) if log >= 1_500 && log == copied));
        // Idle, it sleeps, and the next commit wakes it.
        until(|| checkpointer.shared.asleep.load(Ordering::SeqCst));
        assert_eq!(checkpointer.thread.as_ref().map(|thread| thread.thread().id()), Some(thread_id));
        drop(checkpointer);
        drop(writer);
        assert!(!folder.path().join("quell.db-wal").exists(), "the writer's connection was the last");
    }

    #[test]
    fn a_few_commits_start_nothing() {
        let mut checkpointer = Checkpointer::new(Path::new("nowhere"));
        for _ in 1..COMMITS_BEFORE {
            checkpointer.committed();
        }
        assert!(checkpointer.thread.is_none());
    }
}
