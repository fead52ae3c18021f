//! Reads histories from files of JSON lines, one file per process.
//!
//! A process that is killed may leave half a line at the end of its file. That line is dropped: it was never a record.
//! A broken line anywhere else means that the file is not what it should be, and is an error.

use std::fmt;

use super::Record;

/// A line that is not a record, and is not the torn last one.
#[derive(Debug)]
pub struct ReadError {
    /// Which of the texts, counted from 0.
    pub file: usize,
    /// Counted from 1.
    pub line: usize,
    pub problem: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file {}, line {}: {}", self.file, self.line, self.problem)
    }
}

impl std::error::Error for ReadError {}

/// The records of one file, in its order.
pub fn read_lines(text: &str) -> Result<Vec<Record>, ReadError> {
    read_file(0, text.as_bytes())
}

/// The records of several processes, merged by `idx`; records with the same `idx` keep the order of their files.
///
/// Bytes and not text, because a torn line may end in the middle of a character.
pub fn read_processes<'a>(files: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Record>, ReadError> {
    let mut records = Vec::new();
    for (file, bytes) in files.into_iter().enumerate() {
        records.extend(read_file(file, bytes)?);
    }
    records.sort_by_key(|r| r.idx);
    Ok(records)
}

fn read_file(file: usize, bytes: &[u8]) -> Result<Vec<Record>, ReadError> {
    let mut records = Vec::new();
    let mut rest = bytes;
    let mut line = 0;
    while !rest.is_empty() {
        line += 1;
        let end = rest.iter().position(|&b| b == b'\n');
        let (text, after) = match end {
            Some(end) => (&rest[..end], &rest[end + 1..]),
            None => (rest, &rest[rest.len()..]),
        };
        rest = after;
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match serde_json::from_slice(text) {
            Ok(record) => records.push(record),
            // Only a line without its end can be torn: the end is the last byte of the same write.
            Err(_) if end.is_none() => {}
            Err(problem) => return Err(ReadError { file, line, problem: problem.to_string() }),
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Op, Record};

    fn line(idx: u64) -> String {
        let record = Record::invoke(1, idx, Op::Extend { run: 7, token: 9 }).with_idx(idx);
        serde_json::to_string(&record).unwrap() + "\n"
    }

    #[test]
    fn a_record_survives_its_line() {
        let read = read_lines(&line(3)).unwrap();
        assert_eq!(read, [Record::invoke(1, 3, Op::Extend { run: 7, token: 9 }).with_idx(3)]);
    }

    #[test]
    fn a_torn_last_line_is_no_record() {
        let whole = line(1) + &line(2);
        for cut in line(1).len()..whole.len() - 1 {
            assert_eq!(read_processes([&whole.as_bytes()[..cut]]).unwrap().len(), 1, "cut at {cut}");
        }
        assert_eq!(read_lines(whole.trim_end()).unwrap().len(), 2, "only the line's end is missing");
    }

    #[test]
    fn a_broken_line_in_the_middle_is_an_error() {
        let error = read_lines(&(line(1) + "{\"idx\":\n" + &line(2))).unwrap_err();
        assert_eq!((error.file, error.line), (0, 2));
    }

    #[test]
    fn files_of_several_processes_are_merged_by_idx() {
        let (a, b) = (line(1) + &line(4), line(2) + &line(3));
        let read = read_processes([a.as_bytes(), b.as_bytes()]).unwrap();
        assert_eq!(read.iter().map(|r| r.idx).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }
}
