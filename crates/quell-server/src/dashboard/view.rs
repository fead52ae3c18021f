//! How things are written on pages: times, addresses, numbers and texts of users.
//!
//! A time is an element with the moment in it, so that the script can count it down; without the script the text that was
//! true when the page was made stands there. What users wrote is only ever text: templates escape it, and here it is cut.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::LaneKey;

/// Bytes of a payload, result or step that a page shows; the API has all of it.
const SHOWN: usize = 4 * 1024;

/// One part of a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');

/// A word as the beginning of a sentence.
pub(super) fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The moment of a page.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    pub now: Timestamp,
}

impl Clock {
    /// `in 12s` or `3m20s ago`.
    pub fn when(&self, at: &Timestamp) -> When {
        When { at: *at, now: self.now }
    }

    /// The time of day before it; with the date when it was another day.
    pub fn face(&self, at: &Timestamp) -> String {
        let (text, today) = (at.to_string(), self.now.to_string());
        match (text.split_once('T'), today.split_once('T')) {
            (Some((date, time)), Some((date_now, _))) => {
                let time = time.get(..8).unwrap_or(time);
                if date == date_now { time.to_owned() } else { format!("{date} {time}") }
            }
            _ => text,
        }
    }

    pub fn millis(&self) -> i64 {
        self.now.as_millis()
    }
}

/// A moment as an element that counts.
pub struct When {
    at: Timestamp,
    now: Timestamp,
}

/// Nothing in it comes from users.
impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, millis) = (self.at, self.at.as_millis());
        let text = if at > self.now {
            format!("in {}", distance(at.since(self.now).as_secs()))
        } else {
            format!("{} ago", distance(self.now.since(at).as_secs()))
        };
        write!(f, "<time datetime=\"{at}\" title=\"{at}\" data-at=\"{millis}\">{text}</time>")
    }
}

impl askama::filters::HtmlSafe for When {}

/// As the script writes it, too: `12s`, `3m20s`, `2h05m`, `3d04h`.
pub(super) fn distance(seconds: u64) -> String {
    let (s, m, h) = (seconds, seconds / 60, seconds / 3600);
    match () {
        () if m == 0 => format!("{s}s"),
        () if h == 0 => format!("{m}m{:02}s", s % 60),
        () if h < 48 => format!("{h}h{:02}m", m % 60),
        () => format!("{}d{:02}h", h / 24, h % 24),
    }
}

/// `12 345`, with thin spaces that do not break.
pub fn number(n: &u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() * 2);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Letters that are not seen, or that change how others are seen: control characters and marks of direction.
pub(super) fn is_invisible(c: char) -> bool {
    let bidi =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    bidi || c.is_control() || matches!(c, '\u{200b}' | '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// A user's text in which everything can be seen: `⟨1b⟩` in place of what is invisible. Lines and tabs stay.
pub(super) fn visible(text: &str) -> String {
    let mut seen = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => seen.push(c),
            c if is_invisible(c) => seen.push_str(&format!("⟨{:02x}⟩", u32::from(c))),
            c => seen.push(c),
        }
    }
    seen
}

/// The beginning of a user's text, and how many bytes of it were left out.
pub(super) struct Cut<'a> {
    pub(super) text: &'a str,
    pub(super) left_out: usize,
}

pub(super) fn cut(text: &str) -> Cut<'_> {
    let end = text.floor_char_boundary(SHOWN);
    Cut { text: &text[..end], left_out: text.len() - end }
}

/// A text as one part of a path.
pub fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

pub(super) fn lane_path(lane: &LaneKey) -> String {
    format!("/ui/lanes/{}/{}", lane.queue, segment(lane.key.as_str()))
}

/// `?tenant=…`, where there is one.
pub(super) fn tenant_query(lane: &LaneKey) -> String {
    if lane.tenant.is_none() { String::new() } else { query(&[("tenant", lane.tenant.as_str())]) }
}

pub(super) fn lane_place(lane: &LaneKey) -> String {
    lane_path(lane) + &tenant_query(lane)
}

/// `?a=b&c=d` without what is empty.
pub fn query(pairs: &[(&str, &str)]) -> String {
    let mut text = form_urlencoded::Serializer::for_suffix(String::from("?"), 1);
    text.extend_pairs(pairs.iter().filter(|(_, value)| !value.is_empty()));
    let text = text.finish();
    if text == "?" { String::new() } else { text }
}

/// What a field of a form holds, if it holds anything.
pub(super) fn filled(field: Option<&String>) -> Option<String> {
    field.map(|text| text.trim()).filter(|text| !text.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use quell::quell_core::event::{Key, QueueName, Tenant};

    use super::*;

    #[test]
    fn times_are_short_and_count() {
        let clock = Clock { now: Timestamp::from_millis(1_000_000) };
        assert!(clock.when(&Timestamp::from_millis(1_012_900)).to_string().contains(">in 12s<"));
        assert!(clock.when(&Timestamp::from_millis(800_000)).to_string().contains(">3m20s ago<"));
        assert_eq!(["2h05m", "3d04h"].map(str::to_owned), [distance(7_500), distance(273_600)]);
        assert_eq!(clock.face(&Timestamp::from_millis(1_012_900)), "00:16:52");
    }

    #[test]
    fn an_address_holds_any_key() {
        let lane = LaneKey::new(QueueName::new("chat").unwrap(), Key::new("a/b?c=%&<ü").unwrap());
        assert_eq!(lane_place(&lane), "/ui/lanes/chat/a%2Fb%3Fc%3D%25%26%3C%C3%BC");
        let lane = lane.of(Tenant::new("a&b").unwrap());
        assert!(lane_place(&lane).ends_with("%BC?tenant=a%26b"));
        assert_eq!(query(&[("a", ""), ("b", "c d"), ("e", "&")]), "?b=c+d&e=%26");
        assert_eq!(query(&[("a", "")]), "");
    }

    #[test]
    fn what_is_invisible_is_shown() {
        assert_eq!(visible("a\u{202e}b\u{1b}[1m\n\tü"), "a⟨202e⟩b⟨1b⟩[1m\n\tü");
        assert_eq!(visible("order 7/a 🙂"), "order 7/a 🙂");
    }

    #[test]
    fn a_text_is_cut_between_letters() {
        let text = "ü".repeat(SHOWN);
        assert_eq!((cut(&text).text.len(), cut(&text).left_out), (SHOWN, SHOWN));
        assert_eq!(cut("short").left_out, 0);
        assert_eq!(number(&1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(number(&123), "123");
    }
}
