//! What went wrong in the hook, for somebody who looks for it: the hook itself says nothing to anybody.
//!
//! A hook runs thousands of times a day and may fail each time (a full disk, a wrong path), so the log is bounded: at
//! [`JOURNAL_MAX`] bytes it becomes `<name>.1` in place of the one before, and both together are all there ever is. Each
//! line is one `write` to a file opened for appending, so lines of several processes do not mix. Failing to write to it
//! is not worth telling anybody either.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::clock;

/// Beyond it the file is put aside.
pub const JOURNAL_MAX: u64 = 256 << 10;
/// What several processes may write while one of them puts the file aside.
const SLACK: u64 = 16 << 10;
/// A line has at most so many bytes of text.
pub const LINE_MAX: usize = 2 << 10;

/// The bounded log of the hook.
#[derive(Debug, Clone, Copy)]
pub struct Journal;

impl Journal {
    /// Appends one line with the time, or says that it could not.
    pub fn append(path: &Path, line: &str) -> bool {
        let line = format!("{} {}\n", clock::rfc3339(clock::millis()), escaped(line));
        // Another process may put the file aside in the meantime, and then it is tried with the new one.
        (0..4).any(|_| appended(path, line.as_bytes()).unwrap_or(false))
    }

    /// Where the older half is.
    pub fn older(path: &Path) -> PathBuf {
        let mut name = OsString::from(path);
        name.push(".1");
        PathBuf::from(name)
    }
}

/// False if the file was full: then it has been put aside by this process or by another one, or cannot be.
fn appended(path: &Path, line: &[u8]) -> std::io::Result<bool> {
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits()).unwrap_or(0);
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    let after = found.len().saturating_add(u64::try_from(line.len()).unwrap_or(u64::MAX));
    if after > JOURNAL_MAX && (put_aside(path, &file, found.ino())? || after > JOURNAL_MAX + SLACK) {
        return Ok(false);
    }
    file.write_all(line)?;
    Ok(true)
}

/// Only one process does, and only if it is still the file that it has looked at: the second of two would otherwise
/// replace the full file with the one just begun. Nobody waits for the lock: whoever finds it taken still writes to the
/// file that is being put aside.
fn put_aside(path: &Path, file: &File, ino: u64) -> std::io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(false),
        locked => locked?,
    }
    if fs::symlink_metadata(path)?.ino() == ino {
        fs::rename(path, Journal::older(path))?;
    }
    Ok(true)
}

/// One line, whatever is in it.
fn escaped(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for letter in text.chars() {
        if line.len() >= LINE_MAX {
            line.push('…');
            break;
        }
        match letter {
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            // Also what ends a line or turns it round in a terminal without being a control character.
            letter
                if letter.is_control()
                    || matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}') =>
            {
                let _ = write!(line, "\\u{{{:x}}}", u32::from(letter));
            }
            letter => line.push(letter),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::thread;

    use super::*;

    #[test]
    fn a_line_has_a_time_and_is_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hook.log");
        assert!(Journal::append(&path, "first\nsecond\r\u{1b}[31m\u{2028}ä"));
        assert!(Journal::append(&path, &"x".repeat(10_000)));
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = text.split_terminator('\n').collect();
        assert_eq!(lines.len(), 2);
        let (time, said) = lines[0].split_once(' ').unwrap();
        assert!(time.parse::<jiff::Timestamp>().is_ok() && time.ends_with('Z') && time.len() == 24, "{time}");
        assert_eq!(said, "first\\nsecond\\r\\u{1b}[31m\\u{2028}ä");
        assert!(lines[1].len() < LINE_MAX + 64);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn it_never_takes_more_than_twice_its_size_and_loses_no_newer_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hook.log");
        thread::scope(|scope| {
            for writer in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    for number in 0..300 {
                        assert!(Journal::append(path, &format!("{writer} {number} {}", "y".repeat(1000))));
                    }
                });
            }
        });
        let most = JOURNAL_MAX + SLACK;
        let (newer, older) =
            (fs::read_to_string(&path).unwrap(), fs::read_to_string(Journal::older(&path)).unwrap());
        assert!(u64::try_from(newer.len()).unwrap() <= most && u64::try_from(older.len()).unwrap() <= most);
        assert!(
            u64::try_from(older.len()).unwrap() > JOURNAL_MAX - 1200,
            "a file was put aside before it was full"
        );
        let lines: Vec<_> =
            older.lines().chain(newer.lines()).map(|line| line.split(' ').collect::<Vec<_>>()).collect();
        for writer in ["0", "1", "2", "3"] {
            let numbers: Vec<usize> =
                lines.iter().filter(|line| line[1] == writer).map(|line| line[2].parse().unwrap()).collect();
            let last = numbers.len();
            assert_eq!(numbers, (300 - last..300).collect::<Vec<_>>(), "the newest of each, without a gap");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_that_was_just_begun_is_not_put_aside_for_the_full_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hook.log");
        fs::write(&path, "full").unwrap();
        let full = File::open(&path).unwrap();
        // Another process was quicker.
        fs::rename(&path, Journal::older(&path)).unwrap();
        fs::write(&path, "new").unwrap();
        assert!(put_aside(&path, &full, full.metadata().unwrap().ino()).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_to_string(Journal::older(&path)).unwrap(), "full");
        // And one that somebody is putting aside is written to as long as there is room.
        fs::write(&path, "x".repeat(usize::try_from(JOURNAL_MAX).unwrap())).unwrap();
        let holder = File::open(&path).unwrap();
        flock(&holder, FlockOperation::LockExclusive).unwrap();
        let written = (0..100).take_while(|_| Journal::append(&path, &"y".repeat(1000))).count();
        assert!((10..=16).contains(&written), "{written}");
        assert!(fs::metadata(&path).unwrap().len() <= JOURNAL_MAX + SLACK);
    }

    #[test]
    fn what_cannot_be_written_is_no_more_than_false() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!Journal::append(&folder.path().join("missing/hook.log"), "x"));
        assert!(!Journal::append(folder.path(), "x"));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &link).unwrap();
        assert!(!Journal::append(&link, "x"));
        assert!(!folder.path().join("elsewhere").exists());
    }
}
