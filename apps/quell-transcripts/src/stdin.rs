//! What the agent writes to the hook's standard input, and not a byte or a moment more.
//!
//! An agent may keep the pipe open for ever (it does so when a session ends), so waiting for the end of the file would
//! hang the hook until it is killed and the event with it. The reader therefore stops at the end of the first JSON value.
//! It finds that end by counting brackets as the bytes come, which looks at every byte once; parsing the whole buffer
//! anew after each read would be quadratic in a large event.

use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::clock;

/// An event with a picture in it has some megabytes.
pub const INPUT_MAX: usize = 16 << 20;

/// More than the buffer of [`std::io::Stdin`]: that reads past its own buffer then, and what `poll` says stays true.
const CHUNK: usize = 64 << 10;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// Why there is nothing to look at. Never contains what was read.
#[derive(Debug, thiserror::Error)]
pub enum NotRead {
    #[error("standard input had no complete JSON value after {after:?} ({bytes} bytes were read)")]
    TooSlow { bytes: usize, after: Duration },
    #[error("standard input has no complete JSON value in its first {bytes} bytes")]
    TooLarge { bytes: usize },
    #[error("standard input cannot be read after {bytes} bytes: {error}")]
    Io { bytes: usize, error: std::io::Error },
}

/// Reads one JSON value, or all there is if the input ends before. What follows the value is left out.
///
/// Takes at most `patience` altogether, however many pieces the input comes in, and keeps at most `limit_bytes`.
pub fn read_stdin(
    mut input: impl AsFd + Read,
    limit_bytes: usize,
    patience: Duration,
) -> Result<Vec<u8>, NotRead> {
    let begun = clock::monotonic();
    let mut read = Vec::new();
    let mut end = Scanner::default();
    let mut chunk = vec![0; CHUNK];
    loop {
        let bytes = read.len();
        if bytes >= limit_bytes {
            return Err(NotRead::TooLarge { bytes });
        }
        let Some(left) = patience.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) else {
            return Err(NotRead::TooSlow { bytes, after: patience });
        };
        // Longer than a process lives is for ever.
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 86_400, tv_nsec: 0 });
        match poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&left)) {
            // Nothing yet: the check of the time above says whether that was all.
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(NotRead::Io { bytes, error: error.into() }),
        }
        let room = CHUNK.min(limit_bytes - bytes);
        match input.read(&mut chunk[..room]) {
            Ok(0) => return Ok(read),
            Ok(more) => {
                read.extend_from_slice(&chunk[..more]);
                if let Some(after) = end.look(&chunk[..more]) {
                    read.truncate(bytes + after);
                    return Ok(read);
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => return Err(NotRead::Io { bytes, error }),
        }
    }
}

/// Finds the end of the first JSON object or array in bytes that come in pieces.
///
/// It does not check that what is between the brackets is JSON; the parser does that afterwards. Kinds of brackets are
/// not told apart for the same reason.
#[derive(Debug, Default)]
struct Scanner {
    begun: Begun,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

#[derive(Debug, Default, PartialEq)]
enum Begun {
    /// Up to three bytes of a byte order mark may have been seen.
    #[default]
    No,
    Mark(usize),
    Yes,
}

impl Scanner {
    /// How many of these bytes belong to the value, if it ends in them.
    ///
    /// Something that begins with neither bracket cannot be an event, however it goes on, so that is its end.
    fn look(&mut self, bytes: &[u8]) -> Option<usize> {
        for (at, &byte) in bytes.iter().enumerate() {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            if self.begun != Begun::Yes {
                match (byte, &self.begun) {
                    (b' ' | b'\t' | b'\r' | b'\n', _) => {}
                    (byte, Begun::No) if byte == BOM[0] => self.begun = Begun::Mark(1),
                    (byte, Begun::Mark(seen)) if BOM.get(*seen) == Some(&byte) => {
                        self.begun = Begun::Mark(seen + 1);
                    }
                    (b'{' | b'[', _) => {
                        self.begun = Begun::Yes;
                        self.depth = 1;
                    }
                    _ => return Some(at + 1),
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn pipe() -> (File, File) {
        let (reader, writer) = std::io::pipe().unwrap();
        (File::from(OwnedFd::from(reader)), File::from(OwnedFd::from(writer)))
    }

    #[test]
    fn it_stops_at_the_end_of_the_value_although_the_input_stays_open() {
        let (reader, mut writer) = pipe();
        writer.write_all(b" \n{\"a\":\"}\\\"}\",\"b\":[{}]}\n{\"next\":1}").unwrap();
        let read = read_stdin(reader, INPUT_MAX, SOON).unwrap();
        assert_eq!(read, b" \n{\"a\":\"}\\\"}\",\"b\":[{}]}");
        drop(writer);
    }

    #[test]
    fn the_end_of_the_input_ends_what_is_incomplete() {
        for text in ["", "  ", "{\"a\":", "[1"] {
            let (reader, mut writer) = pipe();
            writer.write_all(text.as_bytes()).unwrap();
            drop(writer);
            assert_eq!(read_stdin(reader, INPUT_MAX, SOON).unwrap(), text.as_bytes());
        }
    }

    #[test]
    fn what_is_no_object_is_not_waited_for() {
        for text in ["hello", "5", "\"a\"", "\u{feff}x"] {
            let (reader, mut writer) = pipe();
            writer.write_all(text.as_bytes()).unwrap();
            assert!(text.as_bytes().starts_with(&read_stdin(reader, INPUT_MAX, SOON).unwrap()), "{text}");
            drop(writer);
        }
    }

    #[test]
    fn patience_is_for_all_of_it_and_the_error_says_how_much_was_read() {
        let (reader, mut writer) = pipe();
        writer.write_all(b"{\"a\":1").unwrap();
        let begun = clock::monotonic();
        let error = read_stdin(reader, INPUT_MAX, Duration::from_millis(60)).unwrap_err();
        assert!(begun.elapsed() >= Duration::from_millis(60) && begun.elapsed() < SOON);
        assert!(matches!(error, NotRead::TooSlow { bytes: 6, .. }), "{error}");
        drop(writer);

        // A writer that never stops does not prolong it.
        let (reader, mut writer) = pipe();
        let drip = thread::spawn(move || {
            writer.write_all(b"{").unwrap();
            while writer.write_all(b" ").is_ok() {
                thread::yield_now();
            }
        });
        let error = read_stdin(reader, usize::MAX, Duration::from_millis(60)).unwrap_err();
        assert!(matches!(error, NotRead::TooSlow { .. }), "{error}");
        drip.join().unwrap();
    }

    #[test]
    fn no_more_than_the_limit_is_read() {
        let (reader, mut writer) = pipe();
        writer.write_all(b"{\"a\":\"xxxxxxxxxxxx\"}").unwrap();
        let error = read_stdin(&reader, 10, SOON).unwrap_err();
        assert!(matches!(error, NotRead::TooLarge { bytes: 10 }), "{error}");
        let (reader, mut writer) = pipe();
        writer.write_all(b"{\"a\":1}").unwrap();
        assert_eq!(read_stdin(reader, 7, SOON).unwrap().len(), 7);
    }

    #[test]
    fn a_large_event_in_many_pieces_is_read_whole() {
        let (reader, mut writer) = pipe();
        let text = format!("{{\"a\":\"{}\"}}", "\\\"{".repeat(1 << 20));
        let whole = text.clone();
        let sender = thread::spawn(move || {
            for piece in text.as_bytes().chunks(1013) {
                writer.write_all(piece).unwrap();
            }
            writer
        });
        assert!(read_stdin(reader, INPUT_MAX, SOON).unwrap() == whole.as_bytes());
        drop(sender.join().unwrap());
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(serde_json::Value::from),
            any::<i64>().prop_map(serde_json::Value::from),
            "[\\\\\"{}\\[\\]a🐌\u{1}]{0,8}".prop_map(serde_json::Value::from),
        ];
        leaf.prop_recursive(4, 40, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
                prop::collection::btree_map("[\\\\\"{}a]{0,3}", inner, 0..4)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_end_is_where_the_parser_finds_it(value in json(), pieces in 1..7usize, mark in any::<bool>()) {
            let value = serde_json::json!({ "v": value });
            let text = format!("{}{value}", if mark { "\u{feff} " } else { "" });
            let whole = format!("{text} {{}} trailing");
            let mut scanner = Scanner::default();
            let mut before = 0;
            let mut found = None;
            for piece in whole.as_bytes().chunks(pieces) {
                if let Some(end) = scanner.look(piece) {
                    found = Some(before + end);
                    break;
                }
                before += piece.len();
            }
            prop_assert_eq!(found, Some(text.len()));
        }
    }
}
