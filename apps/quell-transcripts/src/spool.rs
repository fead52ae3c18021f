//! Where hooks leave events: a log beside the database, which a worker brings in.
//!
//! A hook is a process that an agent waits for, hundreds of times an hour. To append to the database it would have to map
//! half of SQLite, read the schema and take turns with other writers, which costs more than everything else that it does,
//! and as long as anybody holds the write lock. So it appends one line to a log and syncs it. Whoever
//! works on the database is told, and brings the line in within milliseconds; a database that is locked or not there yet
//! makes no difference to the agent.
//!
//! ```text
//! hook:    open log · lock shared · is it still the log? · append a line · sync
//! worker:  rename log to a segment · lock it alone (so every line in it is whole) · append to the queue · remove it
//! ```
//!
//! Nothing is lost: a line is on the disk before the hook returns, and a segment is removed only when the queue has its
//! events. Nothing is twice: an event has an id, which makes a segment that is brought in again (a worker died before it
//! could remove it) the same events. A hook that opened the log just before it was renamed waits for the lock and then finds
//! another file under its name, and begins again. A line that a crash cut off spoils no other: each begins on a line of
//! its own. What cannot be read is kept in `bad`, bounded, and reported.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::clock;

/// The disk that waiting events may take: days of a busy team, should no worker come.
pub const SPOOL_BYTES_MAX: u64 = 1 << 30;
/// One event with what is around it; events are cut to half of that before.
pub const BODY_MAX: usize = 128 << 10;
/// Of the lines that could not be read.
pub const BAD_BYTES_MAX: u64 = 1 << 20;
/// A hook that finds the log renamed begins again; nobody renames it as often as this while one hook waits.
const TRIES: usize = 100;

/// How long a segment is waited for.
const LOCK_TRIES: usize = 20;
const LOCK_WAIT: Duration = Duration::from_millis(5);

const LOG: &str = "log";
const SEGMENT: &str = "segment-";
const BAD: &str = "bad";

/// The folder with the log.
#[derive(Debug, Clone)]
pub struct Spool {
    folder: PathBuf,
}

/// One event that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spooled {
    pub id: String,
    /// When the hook left it, by the clock of the host.
    pub at: u64,
    /// JSON.
    pub body: String,
}

/// Some events, in the order in which hooks left them. Until [`Segment::done`] they stay, and nobody else takes them.
#[derive(Debug)]
pub struct Segment {
    pub events: Vec<Spooled>,
    /// Lines that could not be read, now in the file of the bad ones.
    pub bad: usize,
    path: PathBuf,
    /// Locked as long as this lives.
    _file: File,
}

impl Segment {
    /// The queue has all of it.
    pub fn done(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

#[derive(Serialize)]
struct Written<'a> {
    id: &'a str,
    at: u64,
    body: &'a RawValue,
}

#[derive(Deserialize)]
struct Read1 {
    id: String,
    at: u64,
    body: Box<RawValue>,
}

impl Spool {
    /// `<database file name>-spool`, beside it. Nothing is made until there is something to put there.
    pub fn beside(database: &Path) -> Spool {
        let mut name = database.file_name().unwrap_or_default().to_owned();
        name.push("-spool");
        Spool { folder: database.with_file_name(name) }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Keeps an event (`body` is one JSON value). When this returns, it is on the disk.
    pub fn put(&self, id: &str, body: &str) -> io::Result<()> {
        if body.len() > BODY_MAX {
            return Err(refused("an event is too large for the spool"));
        }
        let body = serde_json::from_str(body).map_err(|_| refused("an event in the spool is JSON"))?;
        let line =
            serde_json::to_string(&Written { id, at: clock::millis(), body }).map_err(io::Error::other)?;
        for _ in 0..TRIES {
            let (file, made) = self.open_log()?;
            file.lock_shared()?;
            if !self.is_the_log(&file)? {
                continue;
            }
            if file.metadata()?.len() > SPOOL_BYTES_MAX {
                return Err(io::Error::new(
                    ErrorKind::QuotaExceeded,
                    "too many events wait in the spool; `quell sessions` starts a worker that brings them in",
                ));
            }
            // In one piece, so that lines of several hooks do not mix; what a crash left of another begins none of ours.
            (&file).write_all(format!("\n{line}\n").as_bytes())?;
            file.sync_data()?;
            if made {
                // A name is not on the disk because its file is.
                File::open(&self.folder)?.sync_all()?;
            }
            return Ok(());
        }
        Err(io::Error::new(ErrorKind::ResourceBusy, "the log of the spool is renamed again and again"))
    }

    /// The log, and whether it was made now. A worker may rename it between any two steps of this.
    fn open_log(&self) -> io::Result<(File, bool)> {
        let path = self.folder.join(LOG);
        let open = |make: bool| {
            let mut options = OpenOptions::new();
            options.append(true).create_new(make).mode(0o600).custom_flags(NOFOLLOW).open(&path)
        };
        let mut made = false;
        for _ in 0..TRIES {
            match open(false) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                opened => return opened.map(|file| (file, made)),
            }
            match DirBuilder::new().mode(0o700).create(&self.folder) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            // Another hook that was first brings its name to the disk before it returns, and so do we.
            made = true;
            match open(true) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                opened => return opened.map(|file| (file, true)),
            }
        }
        Err(io::Error::new(
            ErrorKind::ResourceBusy,
            "the log of the spool is made and renamed again and again",
        ))
    }

    fn is_the_log(&self, file: &File) -> io::Result<bool> {
        let (ours, there) = (file.metadata()?, fs::symlink_metadata(self.folder.join(LOG)));
        match there {
            Ok(there) => Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The oldest events that nobody else is bringing in; nothing when there are none.
    pub fn take(&self) -> io::Result<Option<Segment>> {
        for path in self.segments()? {
            if let Some(segment) = self.open_segment(path)? {
                return Ok(Some(segment));
            }
        }
        let log = self.folder.join(LOG);
        match fs::metadata(&log) {
            Ok(facts) if facts.len() == 0 => return Ok(None),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
        let segment = self.folder.join(segment_name());
        match fs::rename(&log, &segment) {
            Ok(()) => self.open_segment(segment),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Segments that a worker has begun to bring in, oldest first.
    fn segments(&self) -> io::Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let ours =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(SEGMENT));
        let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(ours).collect();
        found.sort_unstable();
        Ok(found)
    }

    fn open_segment(&self, path: PathBuf) -> io::Result<Option<Segment>> {
        let mut file = match OpenOptions::new().read(true).custom_flags(NOFOLLOW).open(&path) {
            Ok(file) => file,
            // Another worker has brought it in.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if !is_ours(&file)? {
            return Ok(None);
        }
        if fs::symlink_metadata(&path).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return Ok(None);
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let (mut events, mut bad) = (Vec::new(), 0);
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice::<Read1>(line) {
                Ok(Read1 { id, at, body }) => events.push(Spooled { id, at, body: body.get().to_owned() }),
                Err(_) => {
                    bad += 1;
                    self.set_aside(line);
                }
            }
        }
        Ok(Some(Segment { events, bad, path, _file: file }))
    }

    /// Keeps what cannot be read, up to a bound. That it fails changes nothing for the others.
    fn set_aside(&self, line: &[u8]) {
        let path = self.folder.join(BAD);
        if fs::metadata(&path).is_ok_and(|facts| facts.len() > BAD_BYTES_MAX) {
            return;
        }
        let open =
            OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(NOFOLLOW).open(&path);
        let _ = open.and_then(|mut file| file.write_all(&[line, b"\n"].concat()));
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> io::Result<bool> {
        let log = match fs::metadata(self.folder.join(LOG)) {
            Ok(facts) => facts.len() == 0,
            Err(error) if error.kind() == ErrorKind::NotFound => true,
            Err(error) => return Err(error),
        };
        Ok(log && self.segments()?.is_empty())
    }
}

/// Locks a segment. Hooks that were about to write hold it for a moment and are waited for. Another worker holds it for as
/// long as it takes it to bring it in, which may be for ever if it hangs: whoever waited for that would hang with it.
fn is_ours(file: &File) -> io::Result<bool> {
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) => std::thread::park_timeout(LOCK_WAIT),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(false)
}

/// A name that no other segment has: a rename would take its place. Sorted by time.
fn segment_name() -> String {
    // Keyed at random for every value; hosts that share a folder may share process ids, too.
    let chance = RandomState::new().build_hasher().finish();
    format!("{SEGMENT}{:015}-{}-{chance:016x}", clock::millis(), std::process::id())
}

/// `O_NOFOLLOW`: a log that somebody replaced by a link would write anywhere.
const NOFOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

fn refused(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    fn spool() -> (tempfile::TempDir, Spool) {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::beside(&folder.path().join("q.db"));
        (folder, spool)
    }

    fn ids(segment: &Segment) -> Vec<&str> {
        segment.events.iter().map(|event| event.id.as_str()).collect()
    }

    fn take(spool: &Spool) -> Segment {
        spool.take().unwrap().expect("something waits")
    }

    #[test]
    fn events_come_back_in_the_order_in_which_they_were_left() {
        let (_folder, spool) = spool();
        assert!(spool.is_empty().unwrap() && spool.take().unwrap().is_none());
        for n in 0..3 {
            spool.put(&format!("e-{n}"), &format!("{{\"n\":{n},\"text\":\"a\\nb\"}}")).unwrap();
        }
        assert!(!spool.is_empty().unwrap());
        let segment = take(&spool);
        assert_eq!(ids(&segment), ["e-0", "e-1", "e-2"]);
        assert_eq!(segment.events[2].body, "{\"n\":2,\"text\":\"a\\nb\"}");
        assert!(!spool.is_empty().unwrap(), "they stay until they are done");
        segment.done().unwrap();
        assert!(spool.is_empty().unwrap() && spool.take().unwrap().is_none());
    }

    #[test]
    fn what_a_dead_worker_took_is_taken_again_before_anything_newer() {
        let (_folder, spool) = spool();
        spool.put("first", "1").unwrap();
        drop(take(&spool));
        spool.put("second", "2").unwrap();
        let again = take(&spool);
        assert_eq!(ids(&again), ["first"]);
        again.done().unwrap();
        assert_eq!(ids(&take(&spool)), ["second"]);
    }

    #[test]
    fn a_line_that_was_cut_off_spoils_no_other_and_is_kept_apart() {
        let (_folder, spool) = spool();
        spool.put("a", "{}").unwrap();
        let mut log = OpenOptions::new().append(true).open(spool.folder().join(LOG)).unwrap();
        log.write_all(b"\n{\"id\":\"torn\",\"at\":1,\"bo").unwrap();
        spool.put("b", "{}").unwrap();
        let segment = take(&spool);
        assert_eq!((ids(&segment), segment.bad), (vec!["a", "b"], 1));
        assert_eq!(fs::read(spool.folder().join(BAD)).unwrap(), b"{\"id\":\"torn\",\"at\":1,\"bo\n");
    }

    #[test]
    fn many_hooks_and_workers_at_once_lose_nothing() {
        const EACH: usize = 200;
        let (_folder, spool) = spool();
        let (done, seen) = (AtomicBool::new(false), std::sync::Mutex::new(BTreeSet::new()));
        thread::scope(|scope| {
            let hooks: Vec<_> = (0..8)
                .map(|hook| {
                    let spool = spool.clone();
                    scope.spawn(move || {
                        (0..EACH).for_each(|n| spool.put(&format!("{hook}-{n}"), "{}").unwrap());
                    })
                })
                .collect();
            for _ in 0..3 {
                scope.spawn(|| {
                    loop {
                        let last = done.load(Ordering::SeqCst);
                        while let Some(segment) = spool.take().unwrap() {
                            let mut seen = seen.lock().unwrap();
                            for event in &segment.events {
                                assert!(seen.insert(event.id.clone()), "{} came twice", event.id);
                            }
                            assert_eq!(segment.bad, 0);
                            segment.done().unwrap();
                        }
                        if last {
                            return;
                        }
                    }
                });
            }
            hooks.into_iter().for_each(|hook| hook.join().unwrap());
            done.store(true, Ordering::SeqCst);
        });
        assert_eq!(seen.into_inner().unwrap().len(), 8 * EACH);
    }

    #[test]
    fn what_another_worker_has_is_left_to_it_and_newer_events_are_taken() {
        let (_folder, spool) = spool();
        spool.put("first", "1").unwrap();
        let theirs = take(&spool);
        spool.put("second", "2").unwrap();
        assert_eq!(ids(&take(&spool)), ["second"]);
        drop(theirs);
        assert_eq!(ids(&take(&spool)), ["first"]);
    }

    #[test]
    fn nobody_else_can_read_it() {
        let (_folder, spool) = spool();
        spool.put("a", "{}").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(spool.folder()), mode(&spool.folder().join(LOG))), (0o700, 0o600));
    }

    #[test]
    fn what_cannot_be_kept_is_refused_and_nothing_is_left() {
        let (_folder, spool) = spool();
        assert!(spool.put("a", "no json").is_err());
        assert!(spool.put("a", &format!("\"{}\"", "x".repeat(BODY_MAX))).is_err());
        assert!(spool.is_empty().unwrap());
        let below_a_file = tempfile::NamedTempFile::new().unwrap();
        assert!(Spool::beside(&below_a_file.path().join("q.db")).put("a", "1").is_err());
    }

    #[test]
    fn a_log_that_is_a_link_is_not_followed() {
        let (folder, spool) = spool();
        fs::create_dir(spool.folder()).unwrap();
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, "").unwrap();
        std::os::unix::fs::symlink(&elsewhere, spool.folder().join(LOG)).unwrap();
        assert!(spool.put("a", "1").is_err());
        assert_eq!(fs::read(&elsewhere).unwrap(), b"");
    }
}
