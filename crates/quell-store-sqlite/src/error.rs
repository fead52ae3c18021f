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

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    fn failure(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn before_the_commit_nothing_was_done_whatever_went_wrong() {
        for code in [
            ffi::SQLITE_FULL,
            ffi::SQLITE_IOERR_WRITE,
            ffi::SQLITE_BUSY,
            ffi::SQLITE_CORRUPT,
            ffi::SQLITE_ERROR,
        ] {
            assert!(!not_done(&failure(code)).is_unknown(), "{code}");
        }
        assert!(not_done(&failure(ffi::SQLITE_FULL)).detail.contains("disk is full"));
        assert!(not_done(&failure(ffi::SQLITE_FULL)).is_temporary());
    }

    #[test]
    fn a_sync_that_failed_at_the_commit_is_unknown_and_a_full_disk_is_not() {
        assert!(at_commit(&failure(ffi::SQLITE_IOERR_FSYNC)).is_unknown());
        assert!(at_commit(&failure(ffi::SQLITE_IOERR_WRITE)).is_unknown());
        assert!(!at_commit(&failure(ffi::SQLITE_FULL)).is_unknown());
        assert!(!at_commit(&failure(ffi::SQLITE_BUSY)).is_unknown());
    }
}
