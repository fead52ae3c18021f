//! SQLite's errors as answers of a store: which are "definitely not" and which are "unknown".

use quell_core::error::{ErrorKind, StoreError};
use rusqlite::ErrorCode;

/// An error before the commit: the transaction is rolled back, so nothing was done.
pub(crate) fn not_done(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::unavailable(
            "the disk is full: nothing of this request was stored; free some room and send again",
        ),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::unavailable(
            "another process holds the database's write lock for too long; nothing was stored, try again",
        ),
        Some(ErrorCode::ReadOnly) => StoreError::unavailable(
            "the database file or its folder is read-only; make it writable for this user",
        ),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::new(
            ErrorKind::Corrupt,
            format!("the database file is damaged: {error}; restore a backup"),
        ),
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => {
            StoreError::unavailable(format!("the disk answered with an error: {error}; nothing was stored"))
        }
        _ => StoreError::new(ErrorKind::Corrupt, format!("unexpected answer of SQLite: {error}")),
    }
}

/// An error of the commit itself. A full disk rolls back; anything the disk says about a sync leaves it open whether the
/// commit will be there after a restart.
pub(crate) fn at_commit(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => not_done(error),
        _ => StoreError::new(
            ErrorKind::Unknown,
            format!(
                "the disk failed while the commit was being made durable ({error}); repeat with the same id or token"
            ),
        ),
    }
}
