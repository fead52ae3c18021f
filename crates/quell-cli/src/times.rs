//! Times and texts as people read them: how long ago and when, keys and errors on one line.
//!
//! Store time is UTC everywhere. A table shows the time of day and the distance; a detail shows the full moment.

use quell::quell_core::clock::Timestamp;
use quell::quell_core::inspect::span;

/// `12.4s ago` or `in 3.0s`.
pub(crate) fn relative(moment: Timestamp, now: Timestamp) -> String {
    if moment > now { format!("in {}", span(moment, now)) } else { format!("{} ago", span(now, moment)) }
}

/// For a table: `03:40:03 (12.4s ago)`, with the date when it is not today's.
pub(crate) fn short(moment: Timestamp, now: Timestamp) -> String {
    format!("{} ({})", clock_face(moment, now), relative(moment, now))
}

/// For a detail: the full moment and the distance.
pub(crate) fn full(moment: Timestamp, now: Timestamp) -> String {
    format!("{moment} ({})", relative(moment, now))
}

pub(crate) fn short_or_dash(moment: Option<Timestamp>, now: Timestamp) -> String {
    moment.map_or_else(|| "-".to_owned(), |moment| short(moment, now))
}

/// The time of day with seconds; the date goes before it when it is another day than `now`.
pub(crate) fn clock_face(moment: Timestamp, now: Timestamp) -> String {
    let (text, today) = (moment.to_string(), now.to_string());
    // Both are RFC 3339 with ten characters of date; anything else is shown as it is.
    match (text.split_once('T'), today.split_once('T')) {
        (Some((date, time)), Some((date_now, _))) => {
            let time = time.get(..8).unwrap_or(time);
            if date == date_now { time.to_owned() } else { format!("{date} {time}") }
        }
        _ => text,
    }
}

/// One line that cannot steer a terminal: control characters escaped, cut with a mark.
pub(crate) fn one_line(text: &str, max_chars: usize) -> String {
    let mut line = String::new();
    for (count, c) in text.trim().chars().enumerate() {
        if count == max_chars {
            line.push('…');
            break;
        }
        match c {
            '\n' | '\r' | '\t' => line.push(' '),
            c if c.is_control() => line.extend(c.escape_default()),
            c => line.push(c),
        }
    }
    line
}

/// A text of several lines, safe for a terminal.
pub(crate) fn safe(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\n' && c != '\t' {
            shown.extend(c.escape_default())
        } else {
            shown.push(c)
        }
    }
    shown
}

/// `1 event`, `3 events`.
pub(crate) fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// `1.5 MiB`.
pub(crate) fn bytes(n: u64) -> String {
    indicatif::BinaryBytes(n).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(1_763_178_003_000 + ms)
    }

    #[test]
    fn times_say_both_when_and_how_long_ago() {
        assert_eq!(short(at(0), at(12_400)), "03:40:03 (12.4s ago)");
        assert_eq!(short(at(3_000), at(0)), "03:40:06 (in 3.0s)");
        assert_eq!(full(at(0), at(250)), "2025-11-15T03:40:03.000Z (250ms ago)");
        assert_eq!(clock_face(at(0), at(86_400_000)), "2025-11-15 03:40:03");
    }

    #[test]
    fn texts_stay_on_one_line_and_cannot_steer_a_terminal() {
        assert_eq!(one_line("a\nb\u{1b}[2J", 20), "a b\\u{1b}[2J");
        assert_eq!(one_line("abcdef", 3), "abc…");
        assert_eq!(safe("a\n\u{7}b"), "a\n\\u{7}b");
    }

    #[test]
    fn counts_agree_with_their_noun() {
        assert_eq!((count(1, "event").as_str(), count(0, "event").as_str()), ("1 event", "0 events"));
    }
}
