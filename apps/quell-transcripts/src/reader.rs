//! Reading a file that grows, from where the last reading stopped.
//!
//! A transcript is only ever appended to, until it is not: a file can be cut, written again, or exchanged for another
//! under the same name. To go on in the middle of a file that is not the one we know would lose lines and read halves of
//! others. To start over is always safe, since every line has an id and is stored once; it only costs the reading. So a
//! [`Position`] says what the file was, and whatever is not exactly as it says makes the reading start over:
//!
//! - another device or inode: the name stands for another file now. That it begins as the known one did proves nothing,
//!   a forked session begins as its parent does. (Where the numbers of a file system change with every mount, the file
//!   is read once more after each.)
//! - a file that is shorter than what was read of it: it was cut.
//! - another beginning, or another end of what was read: it was cut and has grown past the place since, or the inode was
//!   given to a new file, or somebody has edited it in place.
//!
//! What was read is known by a hash of its first and of its last kilobyte, taken from the very bytes that were read: a
//! file that is exchanged between the reading and the remembering does not get away with it.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The longest line that is read. Images and the output of tools make lines of ten megabytes; what is longer is skipped
/// without being held.
pub const LINE_BYTES_MAX: usize = 32 << 20;
/// A batch is held in memory, twice when it goes to a store.
pub const BATCH_BYTES_MAX: usize = 16 << 20;
/// How much is asked of the file at once.
const CHUNK_BYTES: usize = 1 << 20;
/// How much of the beginning and of the end of what was read makes its mark.
const MARK_BYTES: usize = 1024;

/// How far a file was read, and which file that was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The byte after the last newline that was read.
    pub offset: u64,
    pub identity: Option<Identity>,
}

/// How a file is known again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub device: u64,
    pub inode: u64,
    /// How many bytes had been read when the mark was made: the mark is good for this offset only.
    pub covers: u64,
    /// The hash of the first and of the last kilobyte of them.
    pub mark: String,
}

/// Where a reading begins, and why there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Nothing of the file was read before.
    Fresh,
    /// Where the last reading stopped.
    Resumed,
    /// From the beginning again: the file is shorter than what was read of it.
    Truncated,
    /// From the beginning again: it is another file, or it was written again.
    Replaced,
}

/// Lines that follow one another, and where they end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    start: u64,
    /// Whole lines, each with its newline.
    bytes: Vec<u8>,
    /// All that there was is read; what is left is a line that is still being written, or nothing.
    pub end: bool,
    /// Lines that were longer than [`LINE_BYTES_MAX`] and were skipped.
    pub oversized: u64,
}

/// One line without its newline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawLine<'a> {
    /// Where it begins in the file.
    pub offset: u64,
    pub bytes: &'a [u8],
}

impl Batch {
    pub fn lines(&self) -> impl Iterator<Item = RawLine<'_>> {
        let mut start = 0;
        memchr::memchr_iter(b'\n', &self.bytes).map(move |end| {
            let line = RawLine { offset: self.start + wide(start), bytes: &self.bytes[start..end] };
            start = end + 1;
            line
        })
    }

    /// The byte after its last line.
    pub fn safe_offset(&self) -> u64 {
        self.start + wide(self.bytes.len())
    }

    /// There is no line in it. It need not be the end: a long line is skipped in several batches.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// A file that is being read.
#[derive(Debug)]
pub struct Reader {
    file: File,
    device: u64,
    inode: u64,
    /// The byte after the last newline that was given out.
    safe: u64,
    /// The first bytes of what was given out, and the last.
    head: Vec<u8>,
    tail: Vec<u8>,
    /// What was read after the last newline.
    carry: Vec<u8>,
    /// A line that is too long, if we are in one.
    skipping: Option<Skip>,
    line_max: usize,
}

#[derive(Debug)]
struct Skip {
    /// How much of it is no longer held.
    passed: u64,
    /// How it begins, for the mark.
    first: Vec<u8>,
}

impl Reader {
    /// Goes on with a file from a position, if it is the file that the position is of.
    pub fn open(file: File, position: &Position) -> io::Result<(Reader, Start)> {
        Reader::with_line_max(file, position, LINE_BYTES_MAX)
    }

    fn with_line_max(file: File, position: &Position, line_max: usize) -> io::Result<(Reader, Start)> {
        let found = file.metadata()?;
        let mut reader = Reader {
            device: found.dev(),
            inode: found.ino(),
            file,
            safe: 0,
            head: Vec::new(),
            tail: Vec::new(),
            carry: Vec::new(),
            skipping: None,
            line_max,
        };
        let start = reader.resume(position, found.len())?;
        Ok((reader, start))
    }

    fn resume(&mut self, position: &Position, length: u64) -> io::Result<Start> {
        let offset = position.offset;
        if offset == 0 {
            return Ok(Start::Fresh);
        }
        let same_file = |identity: &&Identity| {
            (identity.device, identity.inode, identity.covers) == (self.device, self.inode, offset)
        };
        let Some(identity) = position.identity.as_ref().filter(same_file) else { return Ok(Start::Replaced) };
        if length < offset {
            return Ok(Start::Truncated);
        }
        let marked = usize::try_from(offset).unwrap_or(usize::MAX).min(MARK_BYTES);
        let mut head = vec![0; marked];
        let mut tail = vec![0; marked];
        let read = self.file.read_exact_at(&mut head, 0);
        match read.and_then(|()| self.file.read_exact_at(&mut tail, offset - wide(marked))) {
            // It was cut since it was measured.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Start::Truncated),
            other => other?,
        }
        if mark(&head, &tail) != identity.mark {
            return Ok(Start::Replaced);
        }
        (self.safe, self.head, self.tail) = (offset, head, tail);
        Ok(Start::Resumed)
    }

    /// The byte after the last newline that was given out: nothing before it need be read again.
    pub fn safe_offset(&self) -> u64 {
        self.safe
    }

    /// To be stored together with what the lines before it have become.
    pub fn position(&self) -> Position {
        let identity = Identity {
            device: self.device,
            inode: self.inode,
            covers: self.safe,
            mark: mark(&self.head, &self.tail),
        };
        Position { offset: self.safe, identity: Some(identity) }
    }

    /// The next whole lines, about so many bytes of them, and at least one if there is one. What stands after the last
    /// newline is left for a later reading. A file that gets shorter meanwhile has an end, too.
    pub fn read_batch(&mut self, up_to: usize) -> io::Result<Batch> {
        // So only the first line of a batch can be too long: what follows a newline came with it, or within the batch.
        let up_to = up_to.clamp(1, BATCH_BYTES_MAX.min(self.line_max / 2));
        let mut bytes = std::mem::take(&mut self.carry);
        // What was carried over holds no newline, so it is not looked through a second time.
        let mut searched = bytes.len();
        let mut passed = 0;
        let mut last_newline = None;
        let mut oversized = 0;
        let mut end = false;
        while last_newline.is_none() || bytes.len() < up_to {
            if self.skipping.is_some() && passed >= up_to {
                break;
            }
            let skipped = self.skipping.as_ref().map_or(0, |skip| skip.passed);
            let from = self.safe + skipped + wide(bytes.len());
            let read = match self.fill(&mut bytes, from, up_to) {
                Ok(read) => read,
                Err(error) => {
                    // Nothing of it was given out, so all of it is read again.
                    self.skipping = None;
                    return Err(error);
                }
            };
            if read == 0 {
                end = true;
                break;
            }
            passed += read;
            if last_newline.is_none() {
                let first = memchr::memchr(b'\n', &bytes[searched..]).map(|at| searched + at);
                match first {
                    Some(first) if self.skipping.is_some() || first > self.line_max => {
                        oversized += 1;
                        let kept = bytes.split_off(first + 1);
                        let skip = self.skipping.take();
                        let begins = skip.as_ref().map_or(&bytes[..], |skip| &skip.first);
                        self.given_out(skipped + wide(bytes.len()), begins, &bytes);
                        bytes = kept;
                        searched = 0;
                    }
                    None if self.skipping.is_some() || bytes.len() > self.line_max.max(MARK_BYTES) => {
                        let skip = self.skipping.get_or_insert_with(|| Skip {
                            passed: 0,
                            first: bytes.iter().copied().take(MARK_BYTES).collect(),
                        });
                        // The end of it is kept, for the mark.
                        let drop = bytes.len().saturating_sub(MARK_BYTES);
                        skip.passed += wide(drop);
                        bytes.drain(..drop);
                    }
                    _ => {}
                }
            }
            if self.skipping.is_none()
                && let Some(at) = memchr::memrchr(b'\n', &bytes[searched..])
            {
                last_newline = Some(searched + at);
            }
            searched = bytes.len();
        }
        let after = bytes.split_off(last_newline.map_or(0, |at| at + 1));
        let start = self.safe;
        self.given_out(wide(bytes.len()), &bytes, &bytes);
        if end {
            // The line may be written on, or anew: it is read again from its beginning.
            self.skipping = None;
        } else {
            self.carry = after;
        }
        Ok(Batch { start, bytes, end, oversized })
    }

    fn fill(&self, bytes: &mut Vec<u8>, from: u64, up_to: usize) -> io::Result<usize> {
        let length = bytes.len();
        bytes.resize(length + up_to.min(CHUNK_BYTES), 0);
        loop {
            match self.file.read_at(&mut bytes[length..], from) {
                Ok(read) => {
                    bytes.truncate(length + read);
                    return Ok(read);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Moves on by so many bytes, which begin and end like this: a kilobyte of each is enough.
    fn given_out(&mut self, length: u64, first: &[u8], last: &[u8]) {
        self.safe += length;
        let missing = MARK_BYTES - self.head.len();
        self.head.extend(first.iter().take(missing));
        self.tail.extend(&last[last.len().saturating_sub(MARK_BYTES)..]);
        let drop = self.tail.len().saturating_sub(MARK_BYTES);
        self.tail.drain(..drop);
    }
}

fn wide(size: usize) -> u64 {
    // A `usize` has at most 64 bits wherever there are files.
    u64::try_from(size).unwrap_or(u64::MAX)
}

/// Half of the hash is plenty against chance, and nobody gains by deceiving it: the worst is a line that is not read.
fn mark(head: &[u8], tail: &[u8]) -> String {
    let hash = Sha256::new().chain_update(head).chain_update(tail).finalize();
    hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::path::Path;

    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;

    fn open(path: &Path, position: &Position) -> (Reader, Start) {
        Reader::open(File::open(path).unwrap(), position).unwrap()
    }

    fn append(path: &Path, bytes: &[u8]) {
        fs::OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(bytes).unwrap();
    }

    /// All lines with their offsets, how many were too long, and where it stopped.
    fn drain(reader: &mut Reader, up_to: usize) -> (Vec<(u64, Vec<u8>)>, u64) {
        let (mut lines, mut oversized) = (Vec::new(), 0);
        loop {
            let batch = reader.read_batch(up_to).unwrap();
            lines.extend(batch.lines().map(|line| (line.offset, line.bytes.to_vec())));
            oversized += batch.oversized;
            assert_eq!(batch.safe_offset(), reader.safe_offset());
            if batch.end {
                return (lines, oversized);
            }
        }
    }

    fn texts(lines: &[(u64, Vec<u8>)]) -> Vec<String> {
        lines.iter().map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).collect()
    }

    fn scratch(bytes: &[u8]) -> (TempDir, std::path::PathBuf) {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("t.jsonl");
        fs::write(&path, bytes).unwrap();
        (dir, path)
    }

    #[test]
    fn half_a_line_waits_and_is_read_once_it_is_whole() {
        let (_dir, path) = scratch(b"one\n\ntwo\nthr");
        let (mut reader, start) = open(&path, &Position::default());
        assert_eq!(start, Start::Fresh);
        let (lines, _) = drain(&mut reader, 1 << 20);
        assert_eq!(lines, [(0, b"one".to_vec()), (4, vec![]), (5, b"two".to_vec())]);
        assert_eq!(reader.safe_offset(), 9);
        // The same reader, and one that was told where that one stopped, both go on.
        append(&path, b"ee\nfour");
        let position = reader.position();
        assert_eq!(drain(&mut reader, 3).0, [(9, b"three".to_vec())]);
        let (mut again, start) = open(&path, &position);
        assert_eq!((start, drain(&mut again, 3).0), (Start::Resumed, vec![(9, b"three".to_vec())]));
        assert_eq!(again.position(), reader.position());
        let stored = serde_json::to_string(&again.position()).unwrap();
        assert_eq!(serde_json::from_str::<Position>(&stored).unwrap(), again.position());
    }

    #[test]
    fn an_empty_file_has_no_lines_and_can_become_one_that_has() {
        let (_dir, path) = scratch(b"");
        let (mut reader, _) = open(&path, &Position::default());
        let batch = reader.read_batch(10).unwrap();
        assert!(batch.end && batch.is_empty());
        append(&path, b"x\n");
        let (mut reader, start) = open(&path, &reader.position());
        assert_eq!((start, texts(&drain(&mut reader, 10).0)), (Start::Fresh, vec!["x".to_owned()]));
    }

    #[test]
    fn a_file_that_is_another_one_is_read_from_its_beginning() {
        let long = |last: &str| format!("{}\n{last}\n", "x".repeat(5000));
        let read = |path: &Path| {
            let (mut reader, _) = open(path, &Position::default());
            drain(&mut reader, 100);
            reader.position()
        };
        let rename_over = |path: &Path, bytes: &[u8]| {
            let new = path.with_extension("new");
            fs::write(&new, bytes).unwrap();
            fs::rename(&new, path).unwrap();
        };
        type Change<'a> = &'a dyn Fn(&Path);
        let cases: [(&str, Change<'_>, Start); 8] = [
            ("nothing", &|_| {}, Start::Resumed),
            ("appended", &|path| append(path, b"more\n"), Start::Resumed),
            ("cut", &|path| fs::write(path, b"a\n").unwrap(), Start::Truncated),
            ("emptied", &|path| fs::write(path, b"").unwrap(), Start::Truncated),
            ("written again, longer", &|path| fs::write(path, "y\n".repeat(9000)).unwrap(), Start::Replaced),
            ("same beginning, longer", &|path| fs::write(path, long("B\nC")).unwrap(), Start::Replaced),
            ("renamed over, other", &|path| rename_over(path, b"y\n"), Start::Replaced),
            ("renamed over, same", &|path| rename_over(path, long("A").as_bytes()), Start::Replaced),
        ];
        for (what, change, expected) in cases {
            let (_dir, path) = scratch(long("A").as_bytes());
            let position = read(&path);
            change(&path);
            let (mut reader, start) = open(&path, &position);
            assert_eq!(start, expected, "{what}");
            let from = if expected == Start::Resumed { position.offset } else { 0 };
            assert_eq!(reader.safe_offset(), from, "{what}");
            drain(&mut reader, 100);
            assert_eq!(reader.position(), read(&path), "{what}");
        }
    }

    #[test]
    fn a_position_that_does_not_fit_together_is_not_believed() {
        let (_dir, path) = scratch(b"one\ntwo\n");
        let (mut reader, _) = open(&path, &Position::default());
        drain(&mut reader, 100);
        let good = reader.position();
        let other = |change: &dyn Fn(&mut Position)| {
            let mut position = good.clone();
            change(&mut position);
            open(&path, &position).1
        };
        assert_eq!(other(&|_| {}), Start::Resumed);
        assert_eq!(other(&|position| position.offset = 4), Start::Replaced);
        assert_eq!(other(&|position| position.identity = None), Start::Replaced);
        assert_eq!(other(&|position| position.identity.as_mut().unwrap().inode += 1), Start::Replaced);
        assert_eq!(other(&|position| position.identity.as_mut().unwrap().device += 1), Start::Replaced);
        assert_eq!(other(&|position| position.identity.as_mut().unwrap().mark.push('0')), Start::Replaced);
        let all = |position: &mut Position| {
            position.offset = u64::MAX;
            position.identity.as_mut().unwrap().covers = u64::MAX;
        };
        assert_eq!(other(&all), Start::Truncated);
    }

    #[test]
    fn a_file_that_gets_shorter_while_it_is_read_has_an_end() {
        let (_dir, path) = scratch("line\n".repeat(1000).as_bytes());
        let (mut reader, _) = open(&path, &Position::default());
        let first = reader.read_batch(100).unwrap();
        assert!(!first.end && first.lines().count() >= 20);
        fs::write(&path, b"x\n").unwrap();
        let rest = drain(&mut reader, 100).0;
        assert!(rest.is_empty(), "{rest:?}");
        assert_eq!(open(&path, &reader.position()).1, Start::Truncated);
    }

    #[test]
    fn lines_that_are_too_long_are_passed_over_and_counted() {
        let max = 3000;
        let (x, y) = ("x".repeat(max), "y".repeat(max + 1));
        let huge = "z".repeat(50_000);
        for text in
            [format!("{y}\na\n{x}\nb\n{huge}\n{huge}\nc\n"), format!("{huge}\na\n{x}\nb\n{y}\n{y}\nc\n")]
        {
            let whole = ["a", &x, "b", "c"].map(str::to_owned);
            let mut marks = Vec::new();
            for up_to in [1, 7, 999, 4096, 1 << 20] {
                let (_dir, path) = scratch(text.as_bytes());
                let open = |position: &Position| {
                    Reader::with_line_max(File::open(&path).unwrap(), position, max).unwrap()
                };
                let (mut reader, _) = open(&Position::default());
                let (lines, oversized) = drain(&mut reader, up_to);
                assert_eq!((texts(&lines), oversized), (whole.to_vec(), 3), "{up_to}");
                for (offset, line) in lines {
                    let at = usize::try_from(offset).unwrap();
                    assert_eq!(&text.as_bytes()[at..at + line.len()], line, "{up_to}");
                }
                assert_eq!(reader.safe_offset(), wide(text.len()));
                assert_eq!(open(&reader.position()).1, Start::Resumed, "{up_to}");
                marks.push(reader.position().identity.unwrap().mark);
                // One that has no end yet is not counted and not passed.
                append(&path, huge.as_bytes());
                assert_eq!(drain(&mut reader, up_to), (vec![], 0), "{up_to}");
                append(&path, b"\nd\n");
                let (lines, oversized) = drain(&mut reader, up_to);
                assert_eq!((texts(&lines), oversized), (vec!["d".to_owned()], 1), "{up_to}");
                assert!(reader.carry.capacity() < 1 << 20);
            }
            marks.dedup();
            assert_eq!(marks.len(), 1);
        }
    }

    #[test]
    fn no_batch_reads_all_of_a_line_without_an_end() {
        let (_dir, path) = scratch(&vec![b'x'; 100_000]);
        let (mut reader, _) =
            Reader::with_line_max(File::open(&path).unwrap(), &Position::default(), 1000).unwrap();
        let mut batches = 0;
        while !reader.read_batch(500).unwrap().end {
            batches += 1;
        }
        assert!((190..=200).contains(&batches), "{batches}");
        assert_eq!(reader.safe_offset(), 0);
    }

    proptest! {
        #[test]
        fn any_pieces_and_any_batches_give_the_same_lines(
            pieces in proptest::collection::vec(
                prop_oneof![
                    4 => proptest::collection::vec(prop_oneof![3 => any::<u8>(), 1 => Just(b'\n')], 0..60),
                    1 => (0_usize..3000).prop_map(|length| vec![b'x'; length]),
                ],
                0..12,
            ),
            up_to in 1_usize..800,
            line_max in prop_oneof![5_usize..100, 500_usize..4000],
            reopen in any::<bool>(),
        ) {
            let (_dir, path) = scratch(b"");
            let open = |position: &Position| {
                Reader::with_line_max(File::open(&path).unwrap(), position, line_max).unwrap()
            };
            let mut reader = open(&Position::default()).0;
            let (mut lines, mut oversized) = (Vec::new(), 0);
            for piece in &pieces {
                append(&path, piece);
                if reopen {
                    let position = reader.position();
                    let (next, start) = open(&position);
                    prop_assert_eq!(start, if position.offset == 0 { Start::Fresh } else { Start::Resumed });
                    reader = next;
                }
                let (more, skipped) = drain(&mut reader, up_to);
                lines.extend(more);
                oversized += skipped;
            }
            let all = pieces.concat();
            let mut expected = Vec::new();
            let (mut offset, mut too_long) = (0, 0);
            let whole = all.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            for line in all[..whole].split_inclusive(|byte| *byte == b'\n') {
                if line.len() - 1 > line_max {
                    too_long += 1;
                } else {
                    expected.push((offset, line[..line.len() - 1].to_vec()));
                }
                offset += wide(line.len());
            }
            prop_assert_eq!(lines, expected);
            prop_assert_eq!(oversized, too_long);
            prop_assert_eq!(reader.safe_offset(), offset);
        }
    }
}
