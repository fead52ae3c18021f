//! Small things that every call to others needs: their texts in one line, keys in a header, the time.

use std::time::{Duration, SystemTime};

use http::HeaderValue;
use quell::clock::{RealTime, Time};
use quell::webhook::Secret;

/// How much of what a server says an error repeats.
const LINE_BYTES_MAX: usize = 300;

/// The beginning of what somebody else wrote, in one line without control characters.
pub(crate) fn line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > LINE_BYTES_MAX {
            line.truncate(line.floor_char_boundary(LINE_BYTES_MAX));
            line.push('…');
            break;
        }
    }
    line
}

/// `Authorization` with a token; none when it holds what no header may.
pub(crate) fn bearer(token: &Secret) -> Option<HeaderValue> {
    authorization(&[b"Bearer ", token.bytes()].concat())
}

/// A header value that no log shows.
pub(crate) fn authorization(bytes: &[u8]) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_bytes(bytes).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// What the dates of others are compared with.
pub(crate) fn wall() -> SystemTime {
    let millis = u64::try_from(RealTime::new().wall().as_millis()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_others_becomes_one_short_line() {
        assert_eq!(line(" a\r\n\0b\tc "), "a b c");
        let long = line(&"é".repeat(400));
        assert!(long.len() <= LINE_BYTES_MAX + 3 && long.ends_with("é…"), "{long}");
        assert!(format!("{:?}", bearer(&Secret::new("opensesame"))).contains("Sensitive"));
    }
}
