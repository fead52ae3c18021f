//! Erasure on the disk: what was erased is in no file of the store, also not in parts of it that nothing points to.
//!
//! Deleting a row leaves its bytes behind in three places: in the freed space, in copies that SQLite made when it split
//! pages (which no setting of it overwrites: a search still found some with `secure_delete` on), and in the write-ahead
//! log. So after an erase the file is written anew from its live rows (`VACUUM`) and the log is cut to
//! nothing, before the erase is answered. That costs about 7 ms per MiB, in which nobody else writes, so a file above
//! [`SCRUB_BYTES_MAX`] is not rewritten on the spot: there freed space is overwritten, the log is cut, and `doctor` says
//! that the rest waits for [`compact`].
//!
//! `meta.scrub_at` is set in the transaction that erases and emptied when all is done, so a crash in between is made up
//! for by the next open. Ordinary deletes overwrite freed space where that costs no further page (`secure_delete = FAST`),
//! so that what the retention removed does not linger either.

use std::path::Path;
use std::time::Duration;

use quell_core::error::StoreResult;
use quell_core::store::ControlAction;
use rusqlite::{Connection, OptionalExtension};

use crate::error::not_done;
use crate::rows::at;
use crate::tx::Tx;
use crate::{connection, migrate, open_lock};

/// A file up to this size is rewritten as part of an erase: about two seconds.
const SCRUB_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// How long a reader of an old snapshot is waited for; after that the log is cut by a later transaction.
const LOG_PATIENCE: Duration = Duration::from_millis(200);

/// A portion that `checkpoint.rs` copies is done after some of these.
const CUT_TRIES: usize = 5;
const CUT_PAUSE: Duration = Duration::from_millis(20);

/// What is still to be done after an erase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// The file, then the log.
    All,
    /// The file has been rewritten; some reader kept the log from being cut.
    Log,
}

/// Whether an operator's request removes content for good.
pub(crate) fn erases(action: &ControlAction) -> bool {
    matches!(action, ControlAction::EraseLane(_) | ControlAction::EraseEvent { .. })
}

/// From now on what is deleted is overwritten whatever it costs, for an erase, or where it costs no further page.
pub(crate) fn overwrite_all(connection: &Connection, all: bool) -> rusqlite::Result<()> {
    let sql = if all { "PRAGMA secure_delete = ON" } else { "PRAGMA secure_delete = FAST" };
    // Never from the cache: SQLite does it when it prepares the statement.
    connection.query_row(sql, [], |_| Ok(()))
}

/// Remembers, with the erase itself, that the files are still to be cleared.
pub(crate) fn remember(tx: &mut Tx<'_, '_>) -> rusqlite::Result<()> {
    let now = at(tx.now);
    tx.execute("UPDATE meta SET scrub_at = coalesce(scrub_at, ?1)", [now]).map(|_| ())
}

/// What an earlier process was to do and did not.
pub(crate) fn left_over(connection: &Connection) -> rusqlite::Result<Option<Left>> {
    let sql = "SELECT scrub_at FROM meta WHERE scrub_at IS NOT NULL";
    let since: Option<i64> = connection.query_row(sql, [], |row| row.get(0)).optional()?;
    Ok(since.filter(|_| bytes(connection).is_ok_and(|bytes| bytes <= SCRUB_BYTES_MAX)).map(|_| Left::All))
}

/// Clears the files after the commit of an erase, outside every transaction, while this process has its turn. Says what
/// is left; that is tried again after the next transaction.
pub(crate) fn after_erase(connection: &Connection, left: Left) -> Option<Left> {
    let done = || -> rusqlite::Result<Option<Left>> {
        let small = bytes(connection)? <= SCRUB_BYTES_MAX;
        if left == Left::All && small {
            rewrite(connection)?;
        }
        if !cut_log(connection)? {
            return Ok(Some(Left::Log));
        }
        if small {
            connection.execute("UPDATE meta SET scrub_at = NULL", [])?;
        }
        Ok(None)
    };
    done().unwrap_or_else(|error| {
        tracing::warn!(%error, "what was erased is not cleared from the files yet; it is tried again");
        Some(left)
    })
}

/// Writes the file anew from its live rows.
///
/// For files that are too large to be rewritten while they are being used: nobody else can write while it lasts, and
/// they are told `unavailable` if that takes more than ten seconds. Needs as much free disk as the file has, twice.
pub fn compact(path: &Path) -> StoreResult<()> {
    let (mut connection, _) = connection::open_writer(path, connection::Synchronous::Full)?;
    migrate::migrate(&mut connection)?;
    let turn = open_lock(path)?;
    turn.lock().map_err(|e| quell_core::error::StoreError::unavailable(format!("cannot lock: {e}")))?;
    let done = || -> rusqlite::Result<()> {
        rewrite(&connection)?;
        if cut_log(&connection)? {
            connection.execute("UPDATE meta SET scrub_at = NULL", [])?;
        }
        Ok(())
    };
    done().map_err(|e| not_done(&e))
}

fn rewrite(connection: &Connection) -> rusqlite::Result<()> {
    // The copy of the live rows goes to a temporary file that has no name: in memory it would be as large as the store.
    connection.execute_batch("PRAGMA temp_store = FILE")?;
    let done = connection.execute_batch("VACUUM");
    connection.execute_batch("PRAGMA temp_store = MEMORY")?;
    done
}

/// Copies the log back into the file and cuts it to nothing. False when a reader still needs it, or somebody else has been
/// copying it all the time: SQLite does not wait for that.
fn cut_log(connection: &Connection) -> rusqlite::Result<bool> {
    connection.busy_timeout(LOG_PATIENCE)?;
    let cut = || -> rusqlite::Result<(bool, i64)> {
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| Ok((row.get(0)?, row.get(1)?)))
    };
    let mut answer = cut();
    for _ in 0..CUT_TRIES {
        // Without a number of pages it has not even begun.
        if !matches!(answer, Ok((true, -1))) {
            break;
        }
        std::thread::park_timeout(CUT_PAUSE);
        answer = cut();
    }
    connection.busy_timeout(connection::WRITER_PATIENCE)?;
    answer.map(|(busy, _)| !busy)
}

fn bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let pragma = |name: &str| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, u64>(0));
    Ok(pragma("page_count")? * pragma("page_size")?)
}
