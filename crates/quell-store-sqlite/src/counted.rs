//! Counted: how many statements this process has run on files of Quell, and how many transactions it has begun.
//!
//! Nobody counts unless it was asked for before the store was opened. The guard of what each verb costs
//! (`quell-bench/tests/counts`) does: PostgreSQL and Redis are asked over a wire that can be watched, SQLite is not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rusqlite::Connection;
use rusqlite::trace::{TraceEvent, TraceEventCodes};

static COUNTING: AtomicBool = AtomicBool::new(false);
static STATEMENTS: AtomicU64 = AtomicU64::new(0);
static TRANSACTIONS: AtomicU64 = AtomicU64::new(0);

/// Connections that are opened from now on count what they run.
pub fn count_statements() {
    COUNTING.store(true, Ordering::SeqCst);
}

/// Statements and, of these, beginnings of transactions so far.
pub fn counted() -> (u64, u64) {
    (STATEMENTS.load(Ordering::SeqCst), TRANSACTIONS.load(Ordering::SeqCst))
}

pub(crate) fn watch(connection: &mut Connection) -> rusqlite::Result<()> {
    if !COUNTING.load(Ordering::SeqCst) {
        return Ok(());
    }
    connection.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(note))
}

fn note(event: TraceEvent<'_>) {
    let TraceEvent::Stmt(_, text) = event else { return };
    // What a trigger runs is told as a comment.
    if text.starts_with("--") {
        return;
    }
    STATEMENTS.fetch_add(1, Ordering::SeqCst);
    if text.starts_with("BEGIN") {
        TRANSACTIONS.fetch_add(1, Ordering::SeqCst);
    }
}
