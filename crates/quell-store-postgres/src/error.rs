//! PostgreSQL's errors as answers of a store: which are "definitely not", which are "unknown", which mean "once more".

use quell_core::error::{ErrorKind, StoreError};
use quell_store_rows::rows::Trouble;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// An error before the commit was sent: the transaction is rolled back, so nothing was done.
pub(crate) fn not_done(error: &Error) -> StoreError {
    let Some(db) = error.as_db_error() else {
        let why = cause(error);
        return StoreError::unavailable(format!(
            "the connection to PostgreSQL was lost ({why}); nothing was stored, try again"
        ));
    };
    let (code, message) = (db.code(), db.message());
    match code {
        &SqlState::DISK_FULL => StoreError::unavailable(
            "the disk of the PostgreSQL server is full: nothing of this request was stored; free some room and send again",
        ),
        &SqlState::LOCK_NOT_AVAILABLE => StoreError::unavailable(
            "another transaction holds the lane's lock for too long; nothing was stored, try again",
        ),
        &SqlState::READ_ONLY_SQL_TRANSACTION => StoreError::unavailable(
            "PostgreSQL takes no writes (a replica, or default_transaction_read_only is on); nothing was stored, point \
             the URL at the primary",
        ),
        &SqlState::INVALID_SQL_STATEMENT_NAME | &SqlState::DUPLICATE_PSTATEMENT => {
            StoreError::unavailable(format!(
                "{message}: a pooler between Quell and PostgreSQL does not follow prepared statements; add \
                 statement_mode=unnamed to the URL"
            ))
        }
        &SqlState::INSUFFICIENT_PRIVILEGE => StoreError::new(
            ErrorKind::Corrupt,
            format!("{message}: the user lacks a right on Quell's schema; let its owner grant it"),
        ),
        &SqlState::UNDEFINED_TABLE | &SqlState::INVALID_SCHEMA_NAME | &SqlState::UNDEFINED_COLUMN => {
            StoreError::new(
                ErrorKind::Corrupt,
                format!(
                    "{message}: Quell's schema was changed or removed while it was open; restart to make it anew"
                ),
            )
        }
        &SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED => StoreError::new(
            ErrorKind::Corrupt,
            format!("the database is damaged: {message}; restore a backup"),
        ),
        _ if is_busy(code) => StoreError::unavailable(format!(
            "PostgreSQL cannot serve now ({message}); nothing was stored, try again"
        )),
        _ => StoreError::new(
            ErrorKind::Corrupt,
            format!("unexpected answer of PostgreSQL: {message} (SQLSTATE {})", code.code()),
        ),
    }
}

/// Shutting down, starting up, out of connections or memory, cancelled by an administrator.
fn is_busy(code: &SqlState) -> bool {
    // 55: recovery is under way, on a replica that was the primary a moment ago.
    ["53", "55", "57", "58", "08", "40", "25"].iter().any(|class| code.code().starts_with(class))
}

/// An error inside a transaction: whether it is worth beginning anew at once.
pub(crate) fn trouble(error: &Error) -> Trouble {
    if is_again(error) { Trouble::Again } else { Trouble::Store(not_done(error)) }
}

/// Somebody else was faster: nothing was done, and the next try will see what they did.
pub(crate) fn is_again(error: &Error) -> bool {
    let again = [
        SqlState::UNIQUE_VIOLATION,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::T_R_SERIALIZATION_FAILURE,
        // A cached plan from before a migration; the connection is given up and the next one plans anew.
        SqlState::FEATURE_NOT_SUPPORTED,
    ];
    error.code().is_some_and(|code| again.contains(code))
}

/// A connection on which this happened is not used again.
pub(crate) fn spoils_connection(error: &Error) -> bool {
    let spoils = [
        SqlState::FEATURE_NOT_SUPPORTED,
        SqlState::INVALID_SQL_STATEMENT_NAME,
        SqlState::DUPLICATE_PSTATEMENT,
    ];
    error.is_closed() || error.code().is_some_and(|code| spoils.contains(code))
}

/// An error of the commit itself, or a connection that was lost after the commit was sent.
pub(crate) fn at_commit(error: &Error) -> Trouble {
    if error.code().is_some_and(|code| code.code().starts_with("40")) {
        return Trouble::Again;
    }
    Trouble::Store(StoreError::new(
        ErrorKind::Unknown,
        format!(
            "the connection to PostgreSQL was lost while the commit was under way ({}); repeat with the same id or token",
            cause(error)
        ),
    ))
}

/// What the driver says, with what lies under it, and never a value of ours.
pub(crate) fn cause(error: &Error) -> String {
    if let Some(db) = error.as_db_error() {
        return db.message().to_owned();
    }
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// A row that is not what this program writes.
pub(crate) fn unreadable(what: impl std::fmt::Display) -> StoreError {
    StoreError::new(ErrorKind::Corrupt, format!("a stored row cannot be read: {what}"))
}
