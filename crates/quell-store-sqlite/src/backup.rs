//! Backup and restore: a copy that knows that it is one.
//!
//! A copy is made page by page from one snapshot of the file, with SQLite's own backup interface: it costs one pass over
//! the pages, says how far it is, keeps every row id, and neither waits for writers nor makes them wait, in this process
//! or in others. (`VACUUM INTO` would build every index anew and cannot say how far it is; copying in steps without
//! holding a snapshot starts over whenever somebody writes, and under load never ends.) The price is that the write-ahead
//! log cannot be reset while the copy is made, so it grows by what is written meanwhile.
//!
//! The copy is stamped. Whoever opens a stamped file as a store continues an older past while workers may still hold
//! leases and numbers of the newer one, so the first open raises the epoch: numbers go on far ahead of everything that
//! can have been handed out since, and every lease is void, as is every right to probe a source ([`raise_epoch`]). A
//! plain copy of the files of a closed store has no stamp and is that store.
//!
//! No file that may be open as a database in this process is opened by other means here: closing any descriptor of it
//! would drop the locks that SQLite holds.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quell_core::error::{ErrorKind, StoreError, StoreResult};
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::not_done;
use crate::rows::{LaneRow, at};
use crate::settle::{Report, apply};
use crate::tx::{CommitError, Names, Statements, Tx};
use crate::{connection, migrate, open_lock};

/// Pages that are copied between two reports of progress: 8 MiB.
const STEP_PAGES: i32 = 1_024;
/// The first schema that has a place for the stamp.
const STAMPED_SCHEMA_MIN: u32 = 2;
/// What SQLite may keep beside a database. The log and the journal belong to one very file: beside another one they
/// would be played into it.
const SIDE_FILES: [&str; 3] = ["-wal", "-shm", "-journal"];

/// A backup that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackedUp {
    /// The size of the file that was written.
    pub bytes: u64,
    /// Everything up to this number of the store-wide sequence is in it.
    pub last_number: u64,
}

/// A store that was put in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The size of the store that was made.
    pub bytes: u64,
    /// Where the store that was there before is kept, under a name of its own.
    pub kept: Option<PathBuf>,
}

/// Copies a store, while others use it, into a new file that [`restore`] takes back.
///
/// Everything that was acknowledged before the call is in it. `progress` is told how many bytes of how many are done.
/// An existing file is never overwritten, and the name appears only when the copy is complete, checked and on the disk.
/// Blocks for as long as it takes; call it where that is allowed.
pub fn backup(from: &Path, to: &Path, progress: impl FnMut(u64, u64)) -> StoreResult<BackedUp> {
    if to.try_exists().unwrap_or(true) {
        return Err(refused(to, "exists already; a backup never overwrites a file, choose another name"));
    }
    let source = open_ours(from)?;
    let part = Part::beside(to)?;
    let last_number = copy(&source, &part.path, progress)?;
    let mut copied = open_copy(&part.path)?;
    migrate::migrate(&mut copied)?;
    copied.execute("UPDATE meta SET backup = 1", []).map_err(|e| not_done(&e))?;
    check(&copied, to)?;
    close(copied)?;
    let bytes = part.place(to)?;
    tracing::info!(from = %from.display(), to = %to.display(), bytes, "backup made");
    Ok(BackedUp { bytes, last_number })
}

/// Puts a backup in place as a store. The next open of it raises the epoch and voids the leases of the time it was made.
///
/// Refuses what is not a sound backup made by [`backup`]. An existing store is replaced only with `force`, never while
/// somebody has it open, and is kept under another name.
pub fn restore(backup: &Path, to: &Path, force: bool) -> StoreResult<Restored> {
    let source = open_ours(backup)?;
    let schema = migrate::version(&source)?;
    if schema < STAMPED_SCHEMA_MIN || stamp(&source)? != 1 {
        return Err(refused(
            backup,
            "is a Quell store and not a backup of one: it was copied by other means, or has been opened as a store \
             since; stop its users and copy the file if it is what you want",
        ));
    }
    let same = |a: &Path, b: &Path| a.canonicalize().ok().is_some_and(|a| b.canonicalize().ok() == Some(a));
    if same(backup, to) {
        return Err(refused(to, "is the backup itself; restore it under another name, so that it stays one"));
    }
    let there = std::iter::once(to.to_path_buf()).chain(side_files(to)).any(|file| file.exists());
    if there && !force {
        return Err(refused(to, "or a part of it exists; restore with force keeps it under another name"));
    }
    let part = Part::beside(to)?;
    copy(&source, &part.path, |_, _| ())?;
    let copied = open_copy(&part.path)?;
    check(&copied, backup)?;
    close(copied)?;
    let kept = if there { Some(set_aside(to)?) } else { None };
    let bytes = part.place(to).map_err(|mut error| {
        if let Some(kept) = &kept {
            error.detail += &format!("; the store that was there is at {}", kept.display());
        }
        error
    })?;
    tracing::info!(backup = %backup.display(), to = %to.display(), bytes, "backup restored");
    Ok(Restored { bytes, kept })
}

fn refused(path: &Path, why: &str) -> StoreError {
    StoreError::new(ErrorKind::Invalid, format!("{} {why}", path.display()))
}

fn damaged(path: &Path, why: impl std::fmt::Display) -> StoreError {
    let detail = format!("{} is damaged: {why}; use another backup", path.display());
    StoreError::new(ErrorKind::Corrupt, detail)
}

/// Opens a file that must be Quell's, to read it.
fn open_ours(path: &Path) -> StoreResult<Connection> {
    if !path.is_file() {
        return Err(refused(path, "is not a file"));
    }
    let source = connection::open_reader(path)?;
    let (id, version) = (migrate::application_id(&source)?, migrate::version(&source)?);
    if id != migrate::APPLICATION_ID {
        return Err(refused(path, "is not a Quell store"));
    }
    if version > migrate::VERSION {
        let known = migrate::VERSION;
        let why = format!("has schema {version} and this Quell knows up to {known}; use a newer Quell");
        return Err(refused(path, &why));
    }
    Ok(source)
}

fn stamp(connection: &Connection) -> StoreResult<i64> {
    connection.query_row("SELECT backup FROM meta", [], |row| row.get(0)).map_err(|e| not_done(&e))
}

/// Copies one snapshot of the source into an empty file. Says how far its sequence was.
fn copy(source: &Connection, to: &Path, mut progress: impl FnMut(u64, u64)) -> StoreResult<u64> {
    let mut run = || -> rusqlite::Result<u64> {
        // The first read fixes the snapshot, and everything below sees it. Without it each step would see another one,
        // and a write by anybody would make the copy start over.
        let snapshot = source.unchecked_transaction()?;
        let last_number = snapshot.query_row("SELECT last_number FROM meta", [], |row| row.get(0))?;
        let page: u64 = snapshot.query_row("PRAGMA page_size", [], |row| row.get(0))?;
        let mut target = Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        // It has no name yet: one sync at the end makes it durable.
        target.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF;")?;
        let copying = Backup::new(source, &mut target)?;
        loop {
            let step = copying.step(STEP_PAGES)?;
            let told = copying.progress();
            let pages = |n: i32| u64::try_from(n).unwrap_or(0) * page;
            progress(pages(told.pagecount - told.remaining), pages(told.pagecount));
            match step {
                StepResult::More => {}
                StepResult::Done => break,
                // Nobody else knows either connection, so nothing that could be waited for holds it.
                _ => return Err(busy()),
            }
        }
        drop(copying);
        target.close().map_err(|(_, error)| error)?;
        Ok(last_number)
    };
    run().map_err(|e| not_done(&e))
}

fn busy() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY), None)
}

/// Opens a copy as one file without a log beside it, so that it can be moved as such.
fn open_copy(path: &Path) -> StoreResult<Connection> {
    let open = || -> rusqlite::Result<Connection> {
        let copied = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        copied.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()))?;
        copied.execute_batch("PRAGMA synchronous = FULL")?;
        Ok(copied)
    };
    open().map_err(|e| not_done(&e))
}

/// A copy that is not sound is no backup. `shown` is the name that people know it by.
fn check(copied: &Connection, shown: &Path) -> StoreResult<()> {
    let quick: String =
        copied.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(|e| damaged(shown, e))?;
    let id = migrate::application_id(copied)?;
    if quick != "ok" || id != migrate::APPLICATION_ID || stamp(copied)? != 1 {
        return Err(damaged(shown, quick));
    }
    Ok(())
}

fn close(connection: Connection) -> StoreResult<()> {
    connection.close().map_err(|(_, e)| not_done(&e))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn side_files(path: &Path) -> impl Iterator<Item = PathBuf> {
    SIDE_FILES.iter().map(|suffix| beside(path, suffix))
}

/// Moves a store that nobody uses, and whatever SQLite has left beside it, to a free name. Nothing is deleted.
fn set_aside(path: &Path) -> StoreResult<PathBuf> {
    let in_use = || refused(path, "is in use; stop every process that has it open, then restore again");
    // Processes that write take turns by this lock; held, so that none begins to before the file has been moved.
    let turn = open_lock(path)?;
    turn.try_lock().map_err(|_| in_use())?;
    let last_user = if path.exists() { sole_user(path, in_use)? } else { None };
    let kept = (1..).map(|n| beside(path, &format!(".replaced-{n}"))).find(|name| !name.exists());
    let kept = kept.expect("some number is free");
    let files = std::iter::once(String::new()).chain(SIDE_FILES.map(str::to_owned));
    for suffix in files {
        let (from, to) = (beside(path, &suffix), beside(&kept, &suffix));
        match std::fs::rename(&from, &to) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                let detail = format!("cannot move {} to {}: {error}", from.display(), to.display());
                return Err(StoreError::unavailable(detail));
            }
            _ => {}
        }
    }
    drop(last_user);
    Ok(kept)
}

/// Proves that no other connection of any process has the store open, and copies its log back into it on the way. A file
/// that is no readable database has no users.
fn sole_user(path: &Path, in_use: impl Fn() -> StoreError) -> StoreResult<Option<Connection>> {
    let open = || -> rusqlite::Result<(Connection, String)> {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.busy_timeout(Duration::from_millis(500))?;
        // Every user of a write-ahead log holds a shared lock, and leaving that mode takes an exclusive one.
        let mode = connection.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0))?;
        connection.execute_batch("BEGIN EXCLUSIVE")?;
        Ok((connection, mode))
    };
    match open() {
        Ok((connection, mode)) => {
            if mode != "delete" {
                return Err(in_use());
            }
            if migrate::application_id(&connection)? != migrate::APPLICATION_ID {
                return Err(refused(path, "belongs to another program; choose another path for the store"));
            }
            Ok(Some(connection))
        }
        Err(error) => match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Err(in_use()),
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Ok(None),
            _ => Err(not_done(&error)),
        },
    }
}

/// A file under a temporary name in its folder, removed again unless it is placed.
struct Part {
    path: PathBuf,
    folder: PathBuf,
}

impl Part {
    fn beside(to: &Path) -> StoreResult<Part> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let folder = match to.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let Some(name) = to.file_name() else { return Err(refused(to, "is not the name of a file")) };
        let nth = MADE.fetch_add(1, Ordering::SeqCst);
        let name = format!(".{}.{}-{nth}.part", name.to_string_lossy(), std::process::id());
        let path = folder.join(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        match options.open(&path) {
            Ok(_) => Ok(Part { path, folder }),
            Err(error) => Err(StoreError::unavailable(format!("cannot create {}: {error}", path.display()))),
        }
    }

    /// Makes the file durable and gives it its name, which must be free. Says how large it is.
    fn place(self, to: &Path) -> StoreResult<u64> {
        let place = || -> std::io::Result<u64> {
            let file = File::open(&self.path)?;
            file.sync_all()?;
            let bytes = file.metadata()?.len();
            // A link, unlike a rename, fails where a file has come to be meanwhile.
            match std::fs::hard_link(&self.path, to) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Err(error),
                // Some file systems have no links.
                Err(_) => std::fs::rename(&self.path, to)?,
            }
            sync_folder(&self.folder)?;
            Ok(bytes)
        };
        place().map_err(|error| StoreError::unavailable(format!("cannot write {}: {error}", to.display())))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        for file in std::iter::once(self.path.clone()).chain(side_files(&self.path)) {
            // It may have become the file itself, and the others are there only after a failure.
            let _ = std::fs::remove_file(file);
        }
    }
}

/// A new name is durable only when its folder is.
#[cfg(unix)]
fn sync_folder(folder: &Path) -> std::io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_folder: &Path) -> std::io::Result<()> {
    Ok(())
}

const LEASED: &str = concat!(
    include_str!("../sql/lane.sql"),
    "WHERE queue_id = ?1 AND lease_at IS NOT NULL ORDER BY lease_at"
);

/// The first open of a backup: numbers go on far ahead, every lease is void, and the stamp goes, in one transaction. Of
/// several processes that open it at once one does it.
pub(crate) fn raise_epoch(connection: &Connection) -> StoreResult<()> {
    if stamp(connection)? == 0 {
        return Ok(());
    }
    let (mut statements, mut names) = (Statements::new(connection), Names::default());
    let mut tx = Tx::begin(&mut statements, &mut names).map_err(|e| not_done(&e))?;
    let voided = match raise(&mut tx) {
        Ok(Some(voided)) => voided,
        Ok(None) => {
            tx.rollback();
            return Ok(());
        }
        Err(error) => {
            tx.rollback();
            return Err(error);
        }
    };
    match tx.commit() {
        Ok(_) => {
            tracing::warn!(
                voided_leases = voided,
                "this store was restored from a backup; events accepted after the backup are not in it"
            );
            Ok(())
        }
        Err(CommitError::Before(error) | CommitError::During(error)) => Err(not_done(&error)),
    }
}

/// Says how many leases were void; nothing when somebody else was faster.
fn raise(tx: &mut Tx<'_, '_>) -> StoreResult<Option<u64>> {
    if stamp(tx.connection)? == 0 {
        return Ok(None);
    }
    if !tx.jump() {
        let detail = "this store has been restored so often that its numbers are used up; move its events to a new one";
        return Err(StoreError::new(ErrorKind::Corrupt, detail));
    }
    void_leases(tx).map(Some).map_err(|e| not_done(&e))
}

fn void_leases(tx: &mut Tx<'_, '_>) -> rusqlite::Result<u64> {
    let queues: Vec<u64> = tx
        .connection
        .prepare("SELECT id FROM queue")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    // Before the queues get their times, which depend on what sources let go.
    tx.void_probes()?;
    let now = tx.now;
    let mut voided = 0;
    for queue in queues {
        let rows: Vec<LaneRow> = tx
            .connection
            .prepare(LEASED)?
            .query_map([queue], LaneRow::read)?
            .collect::<rusqlite::Result<_>>()?;
        for row in rows {
            let mut row = tx.with_worker(row)?;
            let Some(step) = row.lane.restored(now) else { continue };
            apply(tx, &mut row, step, &Report::default(), None)?;
            voided += 1;
        }
        tx.queue(queue)?.running = 0;
        tx.set_next(queue)?;
    }
    tx.execute("UPDATE meta SET backup = 0, restored_at = ?1", [at(now)])?;
    Ok(voided)
}
