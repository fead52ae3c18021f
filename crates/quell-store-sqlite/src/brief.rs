//! One event from a process that lives for a moment, such as a hook that a program calls hundreds of times an hour.
//!
//! Opening a store starts threads, sets its clock and may migrate the file; all that would cost more than the event. Here
//! one connection puts the event aside in one transaction (`transact.rs`) and rings. What only an open store can do (make
//! the file, migrate it, set its clock after a reboot) is refused, and the caller keeps the event elsewhere until one is.
//!
//! The connection never copies the log back: the reader of the log would pay for it in the middle of somebody's work.

use std::path::Path;
use std::time::Duration;

use quell_core::error::StoreResult;
use quell_core::event::NewEvent;
use quell_core::store::Receipt;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::error::{at_commit, not_done};
use crate::transact::append_in;
use crate::wake;

/// Puts one event into the store at `path`, durably, waiting at most `patience` for another writer, and wakes whoever
/// works there. After `Ok` it is stored; its number is given when it enters its lane.
///
/// *Refused* when there is no such file, or when nobody has opened it since it was made by an older Quell, restored, or the
/// host was started: open the store once.
pub fn append_briefly(path: &Path, event: &NewEvent, patience: Duration) -> StoreResult<Receipt> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|e| not_done(&e))?;
    let begin = || {
        connection.busy_timeout(patience)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0; BEGIN IMMEDIATE")
    };
    begin().map_err(|e| not_done(&e))?;
    let receipt = append_in(&connection, event)?;
    connection.execute_batch("COMMIT").map_err(|e| at_commit(&e))?;
    wake::tell_all(path);
    Ok(receipt)
}
