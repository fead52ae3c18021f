//! Lines of a file or of stdin, numbered, each within a bound.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use quell::quell_core::limits;

use crate::failure::{self, Failure};

/// The largest payload and room for key, id and tenant.
const LINE_BYTES_MAX: usize = limits::PAYLOAD_BYTES_MAX + 64 * 1024;

pub(super) struct Lines {
    reader: Box<dyn BufRead>,
    size: Option<u64>,
    number: u64,
    read: u64,
}

/// A line with its number: its bytes, or why it cannot be one.
pub(super) type Line = (u64, Result<Vec<u8>, String>);

impl Lines {
    /// `-` is stdin.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let (reader, size): (Box<dyn BufRead>, _) = if path == Path::new("-") {
            (Box::new(BufReader::new(io::stdin())), None)
        } else {
            let file = File::open(path)
                .map_err(|e| Failure::new(failure::FAILED, format!("cannot read {}: {e}", path.display())))?;
            let size = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|meta| meta.len());
            (Box::new(BufReader::with_capacity(256 * 1024, file)), size)
        };
        Ok(Lines { reader, size, number: 0, read: 0 })
    }

    pub(super) fn size(&self) -> Option<u64> {
        self.size
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.read
    }

    /// The next line that is not empty.
    pub(super) fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let mut bytes = Vec::new();
            let most = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX);
            let read = self.reader.by_ref().take(most).read_until(b'\n', &mut bytes)?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            self.read += u64::try_from(read).unwrap_or(0);
            if read == LINE_BYTES_MAX && bytes.last() != Some(&b'\n') {
                self.skip_rest()?;
                return Ok(Some((self.number, Err(format!("longer than {LINE_BYTES_MAX} bytes")))));
            }
            if !bytes.trim_ascii().is_empty() {
                return Ok(Some((self.number, Ok(bytes))));
            }
        }
    }

    fn skip_rest(&mut self) -> io::Result<()> {
        loop {
            let buffer = self.reader.fill_buf()?;
            let (used, ended) = match buffer.iter().position(|&b| b == b'\n') {
                Some(place) => (place + 1, true),
                None => (buffer.len(), buffer.is_empty()),
            };
            self.reader.consume(used);
            self.read += u64::try_from(used).unwrap_or(0);
            if ended {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Lines {
        Lines { reader: Box::new(io::Cursor::new(text.to_vec())), size: None, number: 0, read: 0 }
    }

    #[test]
    fn empty_lines_are_skipped_and_still_counted() {
        let mut all = lines(b"a\n\n \r\nb");
        assert_eq!(all.next().unwrap(), Some((1, Ok(b"a\n".to_vec()))));
        assert_eq!(all.next().unwrap(), Some((4, Ok(b"b".to_vec()))));
        assert_eq!(all.next().unwrap(), None);
    }

    #[test]
    fn an_endless_line_is_refused_and_the_next_one_is_read() {
        let mut text = vec![b'x'; LINE_BYTES_MAX + 10];
        text.extend_from_slice(b"\nb\n");
        let mut all = lines(&text);
        assert!(matches!(all.next().unwrap(), Some((1, Err(_)))));
        assert_eq!(all.next().unwrap(), Some((2, Ok(b"b\n".to_vec()))));
    }
}
