//! Events beside the database, for when the database is locked or not there.
//!
//! The hook cannot wait and must not lose what it was told, so it leaves the event as a file in a folder of its own, and
//! a worker brings it into the database later. One file for each event, because that is the one thing that several
//! processes can add to at once without a lock: a file is written under a temporary name, brought to the disk, and then
//! renamed, so nobody ever sees a half of one, and after [`Spool::put`] has returned a power cut does not take it.
//!
//! Delivery is at least once. A file is removed after the database has the event ([`Spool::done`]); two workers may take
//! the same one, or one may die between the two steps. The id in the file's name makes it exactly once there.
//!
//! A file that cannot be read is put into `bad/` and reported, and never stands in the way of the others.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, Mode, OFlags, fsync, openat, renameat, unlinkat};
use serde::de::IgnoredAny;

use crate::clock;

/// As many events as a worker that was away for days may find.
pub const SPOOL_FILES_MAX: usize = 100_000;
/// The disk that they may take together.
pub const SPOOL_BYTES_MAX: u64 = 1 << 30;
/// One event with what is around it; events are cut to half of that before.
pub const BODY_MAX: usize = 128 << 10;
/// How many unreadable files are kept for somebody to look at.
pub const BAD_MAX: usize = 100;
/// A temporary file of this age belongs to a process that is gone.
const LEFT_BEHIND_MILLIS: u64 = 3_600_000;
/// Fewer files than this are neither too many nor, as each has at most [`BODY_MAX`], too many bytes.
const FEW_FILES: usize = 8192;
/// Every file system says at least one byte of size for each entry of a folder (ZFS says exactly one, others dozens). A
/// folder whose size is below this has few files, and one `stat` says so; only otherwise is it counted.
const SMALL_FOLDER: u64 = FEW_FILES as u64;
/// The bytes of more files are estimated from so many of them: it is a bound against filling the disk, not accountancy,
/// and asking for the size of a hundred thousand files takes longer than a hook may.
const SAMPLES: usize = 512;

const SUFFIX: &str = ".json";
const TEMPORARY: &str = ".tmp";

/// The folder.
#[derive(Debug, Clone)]
pub struct Spool {
    folder: PathBuf,
}

/// One event that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spooled {
    pub path: PathBuf,
    pub id: String,
    pub body: Vec<u8>,
}

/// A file that was none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bad {
    pub name: String,
    /// Without anything of its content.
    pub why: String,
}

/// What waits, oldest first, and what could not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    pub events: Vec<Spooled>,
    pub bad: Vec<Bad>,
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

    /// Keeps an event. When this returns, it is on the disk.
    pub fn put(&self, id: &str, body: &[u8]) -> io::Result<()> {
        if !is_id(id) {
            return Err(refused("an id in the spool is 1 to 100 letters, digits and hyphens"));
        }
        if body.len() > BODY_MAX {
            return Err(refused("an event is too large for the spool"));
        }
        let folder = self.open()?;
        self.has_room(&folder)?;
        let name = format!("{:015}-{}-{id}{SUFFIX}", moment(), process::id());
        let temporary = format!(".{name}{TEMPORARY}");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&folder, &temporary, flags, Mode::RUSR | Mode::WUSR)?);
        let written = file
            .write_all(body)
            .and_then(|()| file.sync_data())
            .and_then(|()| Ok(renameat(&folder, &temporary, &folder, &name)?));
        if let Err(error) = written {
            // Half a file is nothing anybody wants; if it stays, it is swept in an hour.
            let _ = unlinkat(&folder, &temporary, rustix::fs::AtFlags::empty());
            return Err(error);
        }
        Ok(fsync(&folder)?)
    }

    /// Up to `max` events, oldest first. They stay until they are [`done`](Spool::done).
    pub fn take(&self, max: usize) -> io::Result<Taken> {
        let mut names = Vec::new();
        for entry in self.entries()? {
            let name = entry?.file_name();
            match name.to_str() {
                Some(name) if name.ends_with(TEMPORARY) => self.sweep(name),
                Some(name) if name.ends_with(SUFFIX) => names.push(name.to_owned()),
                // The folder of the bad ones, and what is not ours.
                _ => {}
            }
        }
        names.sort_unstable();
        let mut taken = Taken::default();
        for name in names {
            if taken.events.len() == max {
                break;
            }
            let path = self.folder.join(&name);
            match read(&path, &name) {
                Ok(Some((id, body))) => taken.events.push(Spooled { path, id, body }),
                // Another worker was quicker.
                Ok(None) => {}
                Err(why) => {
                    self.set_aside(&path, &name);
                    taken.bad.push(Bad { name, why });
                }
            }
        }
        Ok(taken)
    }

    /// The database has it.
    pub fn done(&self, event: &Spooled) -> io::Result<()> {
        match fs::remove_file(&event.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Looks no further than the first event.
    pub fn is_empty(&self) -> io::Result<bool> {
        for entry in self.entries()? {
            if entry?.file_name().as_encoded_bytes().ends_with(SUFFIX.as_bytes()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn entries(&self) -> io::Result<impl Iterator<Item = io::Result<fs::DirEntry>>> {
        match fs::read_dir(&self.folder) {
            Ok(entries) => Ok(Some(entries).into_iter().flatten()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None.into_iter().flatten()),
            Err(error) => Err(error),
        }
    }

    /// The folder, made if it is not there. A link in its place is refused: it would lead our events elsewhere.
    fn open(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open =
            || openat(CWD, &self.folder, flags, Mode::empty()).map(File::from).map_err(io::Error::from);
        match open() {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            opened => return opened,
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        // The new folder has to survive, too.
        if let Some(parent) = self.folder.parent() {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            File::open(parent)?.sync_all()?;
        }
        open()
    }

    fn has_room(&self, folder: &File) -> io::Result<()> {
        if folder.metadata()?.len() < SMALL_FOLDER {
            return Ok(());
        }
        let mut names = Vec::new();
        for entry in self.entries()? {
            names.push(entry?.file_name());
        }
        if names.len() >= SPOOL_FILES_MAX {
            return Err(full(&format!("has {} files", names.len())));
        }
        if names.len() <= FEW_FILES {
            return Ok(());
        }
        let sampled = names.iter().step_by(names.len().div_ceil(SAMPLES));
        let sizes: Vec<u64> = sampled
            .filter_map(|name| fs::symlink_metadata(self.folder.join(name)).ok())
            .map(|found| found.len())
            .collect();
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let each = sizes.iter().sum::<u64>() / count(sizes.len()).max(1);
        let bytes = each.saturating_mul(count(names.len()));
        if bytes >= SPOOL_BYTES_MAX {
            return Err(full(&format!("has about {bytes} bytes")));
        }
        Ok(())
    }

    /// Removes what a process left that died while it wrote.
    fn sweep(&self, name: &str) {
        // The name says when it was begun, in the clock of this machine.
        let begun =
            name.trim_start_matches('.').split('-').next().and_then(|millis| millis.parse::<u64>().ok());
        if begun.is_none_or(|begun| begun.saturating_add(LEFT_BEHIND_MILLIS) < clock::millis()) {
            let _ = fs::remove_file(self.folder.join(name));
        }
    }

    /// Whatever fails here is tried again when it is met the next time.
    fn set_aside(&self, path: &Path, name: &str) {
        let folder = self.folder.join("bad");
        let _ = DirBuilder::new().mode(0o700).create(&folder);
        if fs::rename(path, folder.join(name)).is_err() {
            return;
        }
        let Ok(entries) = fs::read_dir(&folder) else { return };
        let mut kept: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        kept.sort_unstable();
        let surplus = kept.len().saturating_sub(BAD_MAX);
        for oldest in &kept[..surplus] {
            let _ = fs::remove_file(oldest).or_else(|_| fs::remove_dir_all(oldest));
        }
    }
}

const _: () = assert!(FEW_FILES as u64 * BODY_MAX as u64 <= SPOOL_BYTES_MAX);

fn refused(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, why)
}

fn full(how: &str) -> io::Error {
    let text =
        format!("the spool {how}, which is the most it may have: is a worker running on this database?");
    io::Error::new(ErrorKind::StorageFull, text)
}

fn is_id(id: &str) -> bool {
    (1..=100).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Milliseconds that grow with each event of this process, so that the order of names is the order of events.
fn moment() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = clock::millis();
    let next = |last: u64| now.max(last + 1);
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
    last.map_or(now, next)
}

/// The id and the content; nothing if the file is gone; or why it is bad.
fn read(path: &Path, name: &str) -> Result<Option<(String, Vec<u8>)>, String> {
    let parts = name.strip_suffix(SUFFIX).and_then(|name| {
        let mut parts = name.splitn(3, '-');
        Some((parts.next()?, parts.next()?, parts.next()?))
    });
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let id = match parts {
        Some((millis, pid, id)) if number(millis) && number(pid) && is_id(id) => id.to_owned(),
        _ => return Err("its name is none of ours".to_owned()),
    };
    let unreadable = |error: io::Error| match error.kind() {
        ErrorKind::NotFound => Ok(None),
        kind => Err(format!("it cannot be read: {kind}")),
    };
    // Neither waits for a pipe that somebody put there, nor follows a link.
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits()).unwrap_or(0);
    let file = match fs::OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) => return unreadable(error),
    };
    match file.metadata() {
        Ok(found) if !found.is_file() => return Err("it is no file".to_owned()),
        Ok(_) => {}
        Err(error) => return unreadable(error),
    }
    let mut body = Vec::new();
    let limit = u64::try_from(BODY_MAX).unwrap_or(u64::MAX);
    if let Err(error) = file.take(limit + 1).read_to_end(&mut body) {
        return unreadable(error);
    }
    if body.len() > BODY_MAX {
        return Err("it is too large".to_owned());
    }
    match serde_json::from_slice::<IgnoredAny>(&body) {
        Ok(_) => Ok(Some((id, body))),
        Err(error) => Err(format!("it is not JSON (line {}, column {})", error.line(), error.column())),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    fn spool() -> (tempfile::TempDir, Spool) {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::beside(&folder.path().join("deep/events.db"));
        (folder, spool)
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn ids(taken: &Taken) -> Vec<&str> {
        taken.events.iter().map(|event| event.id.as_str()).collect()
    }

    #[test]
    fn events_come_back_in_order_until_they_are_done() {
        let (_folder, spool) = spool();
        assert!(spool.is_empty().unwrap());
        assert_eq!(spool.take(10).unwrap(), Taken::default());
        let order = ["zz-9", "a", "m-1-2", "b"];
        for id in order {
            spool.put(id, format!("{{\"id\":\"{id}\"}}").as_bytes()).unwrap();
        }
        assert!(!spool.is_empty().unwrap());
        assert_eq!(ids(&spool.take(2).unwrap()), ["zz-9", "a"]);
        let taken = spool.take(10).unwrap();
        assert_eq!(ids(&taken), order);
        assert_eq!(taken.events[2].body, b"{\"id\":\"m-1-2\"}");
        spool.done(&taken.events[0]).unwrap();
        spool.done(&taken.events[0]).unwrap();
        assert_eq!(ids(&spool.take(10).unwrap()), &order[1..]);
    }

    #[test]
    fn two_events_of_a_process_never_have_the_same_moment() {
        let moments: Vec<u64> = (0..1000).map(|_| moment()).collect();
        assert!(moments.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn it_is_beside_the_database_and_for_nobody_else() {
        let (folder, spool) = spool();
        assert_eq!(spool.folder(), folder.path().join("deep/events.db-spool"));
        spool.put("a", b"{}").unwrap();
        assert_eq!(mode(spool.folder()), 0o700);
        assert_eq!(mode(&spool.take(1).unwrap().events[0].path), 0o600);
        assert_eq!(Spool::beside(Path::new("x.db")).folder(), Path::new("x.db-spool"));
    }

    #[test]
    fn what_a_dead_process_left_is_swept_after_an_hour_and_not_before() {
        let (_folder, spool) = spool();
        spool.put("a", b"{}").unwrap();
        let now = clock::millis();
        let old = spool.folder().join(format!(".{:015}-1-x.json.tmp", now - 3_700_000));
        let young = spool.folder().join(format!(".{:015}-1-y.json.tmp", now - 3_000_000));
        fs::write(&old, "{").unwrap();
        fs::write(&young, "{").unwrap();
        assert_eq!(ids(&spool.take(10).unwrap()), ["a"]);
        assert!(!old.exists() && young.exists());
        fs::remove_file(&spool.take(1).unwrap().events[0].path).unwrap();
        assert!(spool.is_empty().unwrap(), "a temporary file is no event");
    }

    #[test]
    fn a_bad_file_is_set_aside_and_stands_in_nobodys_way() {
        let (_folder, spool) = spool();
        spool.put("good", b"{}").unwrap();
        for (name, content) in [("000000000000001-1-half.json", "{\"secret\":"), ("oddly named.json", "{}")] {
            fs::write(spool.folder().join(name), content).unwrap();
        }
        fs::write(spool.folder().join("000000000000002-1-large.json"), "1".repeat(BODY_MAX + 1)).unwrap();
        fs::create_dir(spool.folder().join("000000000000003-1-folder.json")).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", spool.folder().join("000000000000004-1-link.json"))
            .unwrap();
        fs::write(spool.folder().join("notes.txt"), "not ours").unwrap();
        let taken = spool.take(1).unwrap();
        assert_eq!(ids(&taken), ["good"]);
        let bad: Vec<_> = taken.bad.iter().map(|bad| bad.name.split('-').next_back().unwrap()).collect();
        assert_eq!(bad, ["half.json", "large.json", "folder.json", "link.json"]);
        assert!(!format!("{taken:?}").contains("secret"));
        assert_eq!(spool.take(2).unwrap().bad.len(), 1, "the one that comes after the good one");
        assert_eq!(spool.take(2).unwrap().bad, []);
        assert_eq!(fs::read_dir(spool.folder().join("bad")).unwrap().count(), 5);
        assert!(spool.folder().join("notes.txt").exists());

        for number in 0..BAD_MAX {
            fs::write(spool.folder().join(format!("{:015}-1-x.json", 1000 + number)), "").unwrap();
        }
        assert_eq!(spool.take(1).unwrap().bad.len(), BAD_MAX);
        assert_eq!(fs::read_dir(spool.folder().join("bad")).unwrap().count(), BAD_MAX);
    }

    #[test]
    fn eight_writers_and_two_takers_lose_nothing() {
        let (_folder, spool) = spool();
        let writing = AtomicUsize::new(8);
        let taker = || {
            let mut seen = BTreeSet::new();
            loop {
                let last = writing.load(Ordering::SeqCst) == 0;
                let taken = spool.take(50).unwrap();
                assert_eq!(taken.bad, []);
                for event in &taken.events {
                    assert_eq!(event.body, format!("{{\"id\":\"{}\"}}", event.id).as_bytes());
                    seen.insert(event.id.clone());
                    spool.done(event).unwrap();
                }
                if last && taken.events.is_empty() {
                    return seen;
                }
            }
        };
        let seen = thread::scope(|scope| {
            for writer in 0..8 {
                let (spool, writing) = (&spool, &writing);
                scope.spawn(move || {
                    for number in 0..100 {
                        let id = format!("{writer}-{number}");
                        spool.put(&id, format!("{{\"id\":\"{id}\"}}").as_bytes()).unwrap();
                    }
                    writing.fetch_sub(1, Ordering::SeqCst);
                });
            }
            let takers = [scope.spawn(taker), scope.spawn(taker)];
            takers.map(|taker| taker.join().unwrap())
        });
        let all: BTreeSet<_> = seen.into_iter().flatten().collect();
        assert_eq!(all.len(), 800);
        assert_eq!(fs::read_dir(spool.folder()).unwrap().count(), 0);
    }

    #[test]
    fn what_does_not_belong_there_is_refused() {
        let (_folder, spool) = spool();
        for id in ["", "../x", "a/b", "a.b", "ä", "a b", &"x".repeat(101)] {
            assert_eq!(spool.put(id, b"{}").unwrap_err().kind(), ErrorKind::InvalidInput, "{id}");
        }
        assert_eq!(spool.put("a", &vec![b'1'; BODY_MAX + 1]).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(!spool.folder().exists());
    }

    #[test]
    fn a_place_that_cannot_be_written_is_an_error() {
        let (folder, spool) = spool();
        // A file in the place of the folder fails for everybody, also for a user whom no mode stops.
        fs::create_dir(folder.path().join("deep")).unwrap();
        fs::write(spool.folder(), "").unwrap();
        assert!(spool.put("a", b"{}").is_err() && spool.take(1).is_err() && spool.is_empty().is_err());
        fs::remove_file(spool.folder()).unwrap();
        let elsewhere = folder.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, spool.folder()).unwrap();
        assert!(spool.put("a", b"{}").is_err(), "a link leads elsewhere");
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        fs::remove_file(spool.folder()).unwrap();

        spool.put("a", b"{}").unwrap();
        fs::set_permissions(spool.folder(), PermissionsExt::from_mode(0o500)).unwrap();
        let put = spool.put("b", b"{}");
        assert_eq!(put.is_err(), !rustix::process::geteuid().is_root());
        assert_eq!(spool.take(1).unwrap().events.len(), 1);
        fs::set_permissions(spool.folder(), PermissionsExt::from_mode(0o700)).unwrap();
    }

    #[test]
    fn a_full_spool_refuses_and_says_so() {
        let (_folder, spool) = spool();
        spool.put("a", b"{}").unwrap();
        // Links to one file: as many entries without as many files.
        let first = spool.take(1).unwrap().events.remove(0).path;
        let mut source = first.clone();
        for number in 1..SPOOL_FILES_MAX {
            let name = spool.folder().join(format!("{number:015}-1-x.json"));
            if fs::hard_link(&source, &name).is_err() {
                // A file can have so many names and no more.
                fs::write(&name, "{}").unwrap();
                source = name;
            }
        }
        let error = spool.put("b", b"{}").unwrap_err();
        assert!(
            error.kind() == ErrorKind::StorageFull && error.to_string().contains("100000 files"),
            "{error}"
        );
        fs::remove_file(first).unwrap();
        spool.put("b", b"{}").unwrap();
    }

    #[test]
    fn too_many_bytes_are_refused_also() {
        let (_folder, spool) = spool();
        spool.put("a", b"{}").unwrap();
        let folder = File::open(spool.folder()).unwrap();
        // Sparse files: their size counts.
        let large = spool.folder().join("000000000000000-1-x.json");
        File::create(&large).unwrap().set_len(SPOOL_BYTES_MAX / 9000).unwrap();
        for number in 1..9500 {
            fs::hard_link(&large, spool.folder().join(format!("{number:015}-1-x.json"))).unwrap();
        }
        assert!(
            folder.metadata().unwrap().len() >= SMALL_FOLDER,
            "this file system says less of a folder than known"
        );
        let error = spool.put("b", b"{}").unwrap_err();
        assert!(error.kind() == ErrorKind::StorageFull && error.to_string().contains("bytes"), "{error}");
    }
}
