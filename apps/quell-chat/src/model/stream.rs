//! An answer that comes in pieces: server-sent events, whose data are parts of one answer.

use serde_json::Value;

use super::reply::{Complaint, Heard};
use super::{Answer, ModelError};

/// Far above any piece of an answer; what exceeds it is no stream of answers.
const EVENT_BYTES_MAX: usize = 256 * 1024;

/// What ends a stream.
const DONE: &str = "[DONE]";

/// Reads a stream as it comes, cut anywhere.
#[derive(Debug, Default)]
pub struct Reading {
    events: Events,
    heard: Heard,
    done: bool,
}

impl Reading {
    /// Takes in the next bytes; true when the stream has said that it is over.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<bool, ModelError> {
        let found = self.events.feed(bytes)?;
        self.take(found)
    }

    /// What the stream amounts to. One that ends without saying why has broken off.
    pub fn end(mut self, request_id: Option<String>) -> Result<Answer, ModelError> {
        let rest = self.events.end();
        self.take(rest)?;
        if !self.done && self.heard.finish.is_none() {
            return Err(ModelError::Broken("it broke off in the middle".into()));
        }
        Ok(self.heard.answer(request_id))
    }

    fn take(&mut self, found: Vec<String>) -> Result<bool, ModelError> {
        for data in found {
            if self.done {
                break;
            }
            if data.trim() == DONE {
                self.done = true;
                break;
            }
            if data.trim().is_empty() {
                continue;
            }
            let said: Value = serde_json::from_str(&data)
                .map_err(|_| ModelError::Broken("a piece of it is not JSON".into()))?;
            if let Some(complaint) = Complaint::of(&said) {
                return Err(complaint.without_status());
            }
            self.heard.hear(&said, "delta");
        }
        Ok(self.done)
    }
}

/// The data of server-sent events. Lines end with LF, CRLF or CR, comments and other fields are passed over, and several
/// lines of data are one text. Bytes are only read as text when a line is whole, so a character may be cut anywhere.
#[derive(Debug, Default)]
struct Events {
    line: Vec<u8>,
    data: Option<String>,
    after_cr: bool,
    begun: bool,
}

impl Events {
    fn feed(&mut self, bytes: &[u8]) -> Result<Vec<String>, ModelError> {
        let mut found = Vec::new();
        for &byte in bytes {
            let after_cr = std::mem::replace(&mut self.after_cr, byte == b'\r');
            match byte {
                b'\n' if after_cr => {}
                b'\n' | b'\r' => found.extend(self.line()),
                _ => self.line.push(byte),
            }
            if self.line.len() + self.data.as_ref().map_or(0, String::len) > EVENT_BYTES_MAX {
                return Err(ModelError::Broken(format!(
                    "a piece of it is larger than {EVENT_BYTES_MAX} bytes"
                )));
            }
        }
        Ok(found)
    }

    /// Some servers leave out the last empty line.
    fn end(&mut self) -> Vec<String> {
        let whole = self.line();
        whole.into_iter().chain(self.data.take()).collect()
    }

    /// Ends a line; an empty one ends an event and gives its data.
    fn line(&mut self) -> Option<String> {
        let bytes = std::mem::take(&mut self.line);
        let mut line = bytes.as_slice();
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        if line.is_empty() {
            return self.data.take();
        }
        let data = match line.strip_prefix(b"data") {
            Some([]) => b"".as_slice(),
            Some([b':', b' ', data @ ..] | [b':', data @ ..]) => data,
            _ => return None,
        };
        let text = String::from_utf8_lossy(data);
        match &mut self.data {
            Some(before) => {
                before.push('\n');
                before.push_str(&text);
            }
            None => self.data = Some(text.into_owned()),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(bytes: &[u8]) -> Vec<String> {
        let mut events = Events::default();
        let mut found = events.feed(bytes).unwrap();
        found.extend(events.end());
        found
    }

    #[test]
    fn events_are_found_in_every_dress() {
        let stream = "\u{feff}: hello\r\n\r\ndata:a\r\rdata: b\ndata:  c\ndata\nid: 7\nevent: x\ndatum: y\n\n\n\
                      retry: 5\n\ndata:\n\ndata: last";
        assert_eq!(all(stream.as_bytes()), ["a", "b\n c\n", "", "last"]);
    }

    #[test]
    fn an_endless_event_is_given_up() {
        let mut reading = Reading::default();
        assert!(reading.feed(b"data: ").is_ok());
        let piece = vec![b'x'; 100_000];
        assert!(reading.feed(&piece).and_then(|_| reading.feed(&piece)).is_ok());
        assert!(matches!(reading.feed(&piece), Err(ModelError::Broken(_))));
        let mut reading = Reading::default();
        let line = format!("data: {}\n", "x".repeat(50_000));
        let fed = (0..6).try_for_each(|_| reading.feed(line.as_bytes()).map(|_| ()));
        assert!(matches!(fed, Err(ModelError::Broken(_))), "lines of one event count together");
    }

    fn text(stream: &str) -> Result<String, ModelError> {
        let mut reading = Reading::default();
        for byte in stream.as_bytes() {
            reading.feed(&[*byte])?;
        }
        match reading.end(None)? {
            Answer::Reply { text, .. } => Ok(text),
            Answer::Nothing { why, .. } => Ok(why.to_string()),
        }
    }

    #[test]
    fn an_answer_is_over_when_it_says_so_by_either_way() {
        let piece = r#"data: {"choices":[{"delta":{"content":"Hé 👋"}}]}"#;
        let last = r#"data: {"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
        assert_eq!(text(&format!("{piece}\n\ndata: [DONE]")), Ok("Hé 👋".into()));
        assert_eq!(text(&format!("{piece}\n\n{last}\n\n")), Ok("Hé 👋".into()));
        assert_eq!(text(&format!("{piece}\n\n{last}")), Ok("Hé 👋".into()));
        assert_eq!(text(&format!("{piece}\n\ndata: [DONE]\n\n{piece}\n\n")), Ok("Hé 👋".into()));
        for broken in [format!("{piece}\n\n"), String::new(), format!("{piece}\n\ndata: {{\n\n")] {
            assert!(matches!(text(&broken), Err(ModelError::Broken(_))), "{broken}");
        }
        let over_two_lines =
            "data: {\"choices\":[{\"delta\":\ndata: {\"content\":\"Hi\"}}]}\n\ndata:[DONE]\n\n";
        assert_eq!(text(over_two_lines), Ok("Hi".into()));
    }

    proptest! {
        #[test]
        fn where_a_stream_is_cut_makes_no_difference(
            stream in "(data: ?|: |[a-é👋]|\r\n|\n|\r){0,40}",
            cuts in proptest::collection::vec(1_usize..7, 0..40),
        ) {
            let (mut events, mut found, mut rest) = (Events::default(), Vec::new(), stream.as_bytes());
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                found.extend(events.feed(piece).unwrap());
                rest = after;
            }
            found.extend(events.feed(rest).unwrap());
            found.extend(events.end());
            prop_assert_eq!(found, all(stream.as_bytes()));
        }
    }
}
