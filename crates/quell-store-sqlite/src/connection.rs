//! Opening the file: what is refused, what is set, what is read back.
//!
//! The file is made with mode 0600 before SQLite sees it and is never opened by other means afterwards: closing any
//! descriptor of it would drop the locks that SQLite holds in this process.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::store::Durability;
use rusqlite::{Connection, OpenFlags};

use crate::counted;
use crate::error::not_done;

/// The first release without the WAL-reset race, which corrupts files used by several connections.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// The page size of new files. Against SQLite's 4 KiB the log has half the frames, each of which costs two system calls:
/// bulk appends gained a fifth and the drain of single events a twentieth, while one lone commit took no longer.
const PAGE_BYTES: i64 = 8_192;
/// Pages of the write-ahead log (64 MiB) before the committing connection copies back what `checkpoint.rs` has left. Larger logs
/// mean fewer copies of hot pages; a background checkpointer alone left five times larger files.
const WAL_PAGES: i64 = 8_000;
/// How long a writer waits for another one: a caller's own transaction, or a checkpoint.
pub(crate) const WRITER_PATIENCE: Duration = Duration::from_secs(10);
/// What the log is cut back to after a checkpoint.
const WAL_BYTES_KEPT: i64 = 64 * 1024 * 1024;

/// Refuses what cannot work and makes the file if it does not exist.
pub(crate) fn prepare_file(path: &Path) -> StoreResult<()> {
    check_library(rusqlite::version_number())?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => PathBuf::from("."),
    };
    if !folder.is_dir() {
        let detail =
            format!("the folder {} does not exist; make it or choose another path", folder.display());
        return Err(StoreError::unavailable(detail));
    }
    if path.is_dir() {
        let detail =
            format!("{} is a folder; name a file in it, such as {}/quell.db", path.display(), path.display());
        return Err(StoreError::unavailable(detail));
    }
    refuse_network_filesystem(&folder)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(StoreError::unavailable(format!(
            "cannot create {}: {error}; the folder must be writable for this user",
            path.display()
        ))),
    }
}

fn check_library(version: i32) -> StoreResult<()> {
    if version < SQLITE_VERSION_MIN {
        let detail = format!(
            "SQLite {version} has a bug that corrupts files used by several connections; 3.51.3 or newer is needed"
        );
        return Err(StoreError::new(ErrorKind::Corrupt, detail));
    }
    Ok(())
}

/// SQLite's locks and shared memory do not work over a network.
#[cfg(target_os = "linux")]
fn refuse_network_filesystem(folder: &Path) -> StoreResult<()> {
    const NETWORK: [(i64, &str); 4] =
        [(0x6969, "NFS"), (0xff53_4d42, "CIFS"), (0xfe53_4d42, "SMB"), (0x0102_1997, "9p")];
    let Ok(stat) = rustix::fs::statfs(folder) else { return Ok(()) };
    let kind = stat.f_type;
    match NETWORK.iter().find(|(magic, _)| *magic == kind) {
        Some((_, name)) => Err(StoreError::new(
            ErrorKind::Corrupt,
            format!("{} is on a network file system ({name}); SQLite needs a local disk", folder.display()),
        )),
        None => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
fn refuse_network_filesystem(_folder: &Path) -> StoreResult<()> {
    Ok(())
}

/// How much of a commit is on the disk when it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Synchronous {
    /// All of it.
    Full,
    /// Nothing until the log is copied back.
    Normal,
}

/// A connection that writes. Says how durable its commits are.
pub(crate) fn open_writer(path: &Path, level: Synchronous) -> StoreResult<(Connection, Durability)> {
    let level = match level {
        Synchronous::Full => "FULL",
        Synchronous::Normal => "NORMAL",
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(|e| explain(path, &e))?;
    counted::watch(&mut connection).map_err(|e| explain(path, &e))?;
    let set = || -> rusqlite::Result<Durability> {
        connection.busy_timeout(WRITER_PATIENCE)?;
        connection.execute_batch(&format!("PRAGMA page_size = {PAGE_BYTES}"))?;
        let journal: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        connection.execute_batch(&format!(
            "PRAGMA synchronous = {level}; PRAGMA foreign_keys = OFF; PRAGMA temp_store = MEMORY;
             PRAGMA cache_size = -65536; PRAGMA wal_autocheckpoint = {WAL_PAGES};
             PRAGMA journal_size_limit = {WAL_BYTES_KEPT};"
        ))?;
        crate::erase::overwrite_all(&connection, false)?;
        connection.set_prepared_statement_cache_capacity(64);
        keep_plans(&connection)?;
        let synchronous: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
        Ok(durability(&journal, synchronous))
    };
    let durability = set().map_err(|e| explain(path, &e))?;
    Ok((connection, durability))
}

/// A connection that copies the log back. It waits for nobody: what is in the way is met again.
pub(crate) fn open_checkpointer(path: &Path) -> StoreResult<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|e| explain(path, &e))?;
    let set = || {
        connection.busy_timeout(Duration::ZERO)?;
        // The log is durable before its pages are copied, and they are before the log is begun anew.
        connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;")
    };
    set().map_err(|e| explain(path, &e))?;
    Ok(connection)
}

/// A connection that only reads.
pub(crate) fn open_reader(path: &Path) -> StoreResult<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(|e| explain(path, &e))?;
    counted::watch(&mut connection).map_err(|e| explain(path, &e))?;
    connection.busy_timeout(Duration::from_secs(5)).map_err(|e| explain(path, &e))?;
    keep_plans(&connection).map_err(|e| explain(path, &e))?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

/// A statement keeps its plan whatever values are bound. Without this SQLite plans a statement on a partial index anew
/// for every value, which cost a tenth of the writer's time.
fn keep_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(|_| ())
}

fn durability(journal: &str, synchronous: i64) -> Durability {
    match (journal, synchronous) {
        ("wal" | "delete" | "truncate" | "persist", 2 | 3) => Durability::Durable,
        _ => Durability::BestEffort(format!(
            "journal_mode = {journal} and synchronous = {synchronous} may lose acknowledged events in a power cut"
        )),
    }
}

fn explain(path: &Path, error: &rusqlite::Error) -> StoreError {
    let mut answer = not_done(error);
    if error.sqlite_error_code() == Some(rusqlite::ErrorCode::NotADatabase) {
        answer.detail = "the file is not an SQLite database; choose another path for Quell's store".into();
    }
    answer.detail = format!("{}: {}", path.display(), answer.detail);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_sqlite_with_the_wal_reset_bug_is_refused() {
        assert!(check_library(3_051_002).is_err());
        assert!(check_library(3_040_001).is_err());
        assert!(check_library(3_051_003).is_ok());
        assert!(check_library(rusqlite::version_number()).is_ok());
    }

    #[test]
    fn weaker_settings_are_called_best_effort() {
        assert_eq!(durability("wal", 2), Durability::Durable);
        assert!(matches!(durability("wal", 1), Durability::BestEffort(_)));
        assert!(matches!(durability("off", 2), Durability::BestEffort(_)));
    }
}
