//! The bytes of a connection before the parser sees them.
//!
//! The parser is lenient where RFC 9112 allows it: a line may end with a bare line feed, and chunks may come with a length
//! beside them. A proxy in front may read the same bytes otherwise, and then the two disagree about where a request ends
//! (smuggling). So the framing of HTTP/1 is followed here, and the head of a request that could be read in two ways is
//! spoilt with a NUL: the parser itself then answers 400 and closes the connection.
//!
//! Hand-written, as the parser has no strict mode. What it does not understand it leaves to the parser.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::accept::Activity;
use crate::limits;

/// A connection whose requests are read in one way, and which is busy while its answers are being taken.
pub(crate) struct Wire<S> {
    stream: S,
    framing: Framing,
    activity: Arc<Activity>,
}

impl<S> Wire<S> {
    pub(crate) fn new(stream: S, activity: Arc<Activity>) -> Self {
        Wire { stream, framing: Framing::default(), activity }
    }

    fn wrote(&self, written: &Poll<io::Result<usize>>) {
        if matches!(written, Poll::Ready(Ok(bytes)) if *bytes > 0) {
            self.activity.touch();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.framing.follow(&mut buffer.filled_mut()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.wrote(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Before or in the first line of a request.
    Start,
    Fields,
    Body(u64),
    ChunkSize,
    /// A chunk with the two bytes that end it.
    Chunk(u64),
    Trailers,
    /// HTTP/2, or something that the parser refuses.
    Beyond,
}

/// Where in a connection the next byte stands.
#[derive(Debug)]
struct Framing {
    at: At,
    /// The line as far as it has come, without its end.
    line: Vec<u8>,
    length: Option<u64>,
    chunked: bool,
}

impl Default for Framing {
    fn default() -> Self {
        Framing { at: At::Start, line: Vec::new(), length: None, chunked: false }
    }
}

impl Framing {
    fn follow(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let taken = match &mut self.at {
                At::Beyond => return,
                At::Body(left) | At::Chunk(left) => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left -= taken as u64;
                    taken
                }
                At::Start | At::Fields | At::ChunkSize | At::Trailers => self.line(bytes),
            };
            match self.at {
                At::Body(0) => self.at = At::Start,
                At::Chunk(0) => self.at = At::ChunkSize,
                _ => {}
            }
            bytes = &mut bytes[taken..];
        }
    }

    /// Takes bytes up to the end of a line, and says how many.
    fn line(&mut self, bytes: &mut [u8]) -> usize {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let part = &bytes[..end.unwrap_or(bytes.len())];
        if self.line.len() + part.len() > limits::HEAD_BYTES {
            self.at = At::Beyond;
            return bytes.len();
        }
        self.line.extend_from_slice(part);
        let Some(end) = end else { return bytes.len() };
        let line = std::mem::take(&mut self.line);
        let spoilt = match (line.strip_suffix(b"\r"), self.at) {
            (Some(line), _) => !self.took(line),
            (None, At::Start | At::Fields) => true,
            // The parser wants both bytes here.
            (None, _) => {
                self.at = At::Beyond;
                false
            }
        };
        if spoilt {
            bytes[end] = 0;
            self.at = At::Beyond;
        }
        end + 1
    }

    /// Goes on behind a line; false when the head that ends here could be read in two ways.
    fn took(&mut self, line: &[u8]) -> bool {
        match self.at {
            At::Start if line.is_empty() => {}
            At::Start if line.starts_with(b"PRI ") => self.at = At::Beyond,
            At::Start => (self.at, self.length, self.chunked) = (At::Fields, None, false),
            At::Fields if line.is_empty() => {
                if self.chunked && self.length.is_some() {
                    return false;
                }
                self.at = match self.length {
                    _ if self.chunked => At::ChunkSize,
                    Some(length) if length > 0 => At::Body(length),
                    _ => At::Start,
                };
            }
            At::Fields => self.field(line),
            At::ChunkSize => {
                let digits =
                    line.split(|byte| matches!(byte, b';' | b' ' | b'\t')).next().unwrap_or_default();
                let size =
                    std::str::from_utf8(digits).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
                self.at = match size.map(|size| size.checked_add(2)) {
                    Some(Some(2)) => At::Trailers,
                    Some(Some(whole)) => At::Chunk(whole),
                    _ => At::Beyond,
                };
            }
            At::Trailers if line.is_empty() => self.at = At::Start,
            At::Trailers | At::Body(_) | At::Chunk(_) | At::Beyond => {}
        }
        true
    }

    fn field(&mut self, line: &[u8]) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.chunked = true;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            match std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()) {
                Some(length) => self.length = Some(length),
                // The parser refuses it.
                None => self.at = At::Beyond,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the parser gets, whether the bytes come at once or one by one.
    fn seen(text: &str) -> String {
        let mut whole = text.as_bytes().to_vec();
        Framing::default().follow(&mut whole);
        let mut singly = text.as_bytes().to_vec();
        let mut framing = Framing::default();
        singly.iter_mut().for_each(|byte| framing.follow(std::slice::from_mut(byte)));
        assert_eq!(whole, singly, "{text:?}");
        String::from_utf8(whole).unwrap()
    }

    #[test]
    fn requests_that_are_read_in_one_way_pass_as_they_are() {
        for text in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "\r\nPOST / HTTP/1.1\r\nContent-Length: 4\r\n\r\na\nb\nGET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n\n\n\n\r\n2;x=y\r\na\n\r\n0\r\nT: 1\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\n\n\n",
            "POST / HTTP/1.1\r\nContent-Length: what\r\n\r\n\n",
        ] {
            assert_eq!(seen(text), text);
        }
    }

    #[test]
    fn a_bare_line_feed_in_a_head_is_spoilt_also_behind_a_body() {
        assert_eq!(seen("GET / HTTP/1.1\nA: b\r\n\r\n"), "GET / HTTP/1.1\0A: b\r\n\r\n");
        assert_eq!(seen("GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n"), "GET / HTTP/1.1\r\nA: b\0C: d\r\n\r\n");
        let second = "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n\n\nGET / HTTP/1.1\n\r\n";
        assert_eq!(seen(second), second.replace("1.1\n\r", "1.1\0\r"));
        let third =
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n\n\r\n0\r\n\r\nGET / HTTP/1.1\n\r\n";
        assert_eq!(seen(third), third.replace("1.1\n\r", "1.1\0\r"));
    }

    #[test]
    fn a_length_beside_chunks_is_spoilt_in_any_order() {
        for fields in [
            "Content-Length: 3\r\nTransfer-Encoding: chunked",
            "transfer-encoding:chunked\r\ncontent-length:3",
        ] {
            let text = format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n0\r\n\r\n");
            assert_eq!(seen(&text), format!("POST / HTTP/1.1\r\n{fields}\r\n\r\x000\r\n\r\n"));
        }
    }
}
