//! Several messages as one text, the way a model reads them best: pure functions.
//!
//! The first message stands as it is, each later one after the seconds since the first, by the store's clock: `[+5s] text`. A
//! message alone is nothing but its text. What is no text is said in words, with a link where there is one.

use quell::config::Aggregation;
use quell::quell_core::clock::Timestamp;

use crate::message::{Kind, Message};

/// The longest text that a model is given of one burst. Ten thousand words are more than anybody types in two minutes; beyond
/// that it is a paste, of which beginning and end say the most.
pub const JOINED_BYTES_MAX: usize = 64 * 1024;

/// Joins messages with the times at which they were stored; there is at least one.
pub fn join(messages: &[(Timestamp, Message)], how: Aggregation) -> String {
    let first = messages.first().map_or(0, |(at, _)| at.as_millis());
    let line = |(number, (at, message)): (usize, &(Timestamp, Message))| {
        let text = words(message);
        if number == 0 || how == Aggregation::Plain {
            return text;
        }
        let seconds = at.as_millis().saturating_sub(first).max(0) / 1_000;
        format!("[+{seconds}s] {text}")
    };
    let lines: Vec<String> = messages.iter().enumerate().map(line).collect();
    bounded(&lines, JOINED_BYTES_MAX)
}

/// All lines, or as many from both ends as fit, with a mark that says what is missing.
fn bounded(lines: &[String], max: usize) -> String {
    let whole = lines.join("\n");
    if whole.len() <= max {
        return whole;
    }
    let half = max / 2;
    let head = &whole[..whole.floor_char_boundary(half)];
    let tail = &whole[whole.ceil_char_boundary(whole.len() - half)..];
    let left_out = whole[head.len()..whole.len() - tail.len()].chars().count();
    format!("{head}\n[… {left_out} characters of {} messages left out …]\n{tail}", lines.len())
}

/// A message in words.
pub fn words(message: &Message) -> String {
    let text = message.text.as_deref().filter(|text| !text.trim().is_empty());
    let Some(placeholder) = placeholder(message) else { return text.unwrap_or_default().to_owned() };
    match text {
        Some(text) => format!("{placeholder} {text}"),
        None => placeholder,
    }
}

/// What stands for something that is no text.
fn placeholder(message: &Message) -> Option<String> {
    if let Some(place) = &message.location {
        let named: Vec<&str> =
            [&place.name, &place.address].into_iter().flatten().map(String::as_str).collect();
        let named = if named.is_empty() { String::new() } else { format!("{}: ", named.join(", ")) };
        let (latitude, longitude) = (place.latitude, place.longitude);
        return Some(format!("[location: {named}https://maps.google.com/?q={latitude},{longitude}]"));
    }
    let media = message.media.as_ref()?;
    let what = match message.kind {
        Kind::Image => "image",
        Kind::Video => "video",
        Kind::Audio => "voice message",
        Kind::Document => "document",
        Kind::Sticker => "sticker",
        Kind::Text | Kind::Location | Kind::Button | Kind::List => "file",
    };
    let mut text = format!("[{what}");
    if let Some(name) = &media.name {
        text.push_str(&format!(" {name:?}"));
    }
    match (&media.url, &media.id) {
        (Some(url), _) => text.push_str(&format!(": {url}")),
        (None, Some(id)) => text.push_str(&format!(": media {id}")),
        (None, None) => {}
    }
    text.push(']');
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Channel, Location, Media};

    fn text(seconds: i64, text: &str) -> (Timestamp, Message) {
        (Timestamp::from_millis(seconds * 1_000), message(Kind::Text, Some(text)))
    }

    fn message(kind: Kind, text: Option<&str>) -> Message {
        let value = serde_json::json!({
            "channel": Channel::Wati, "customer": "1", "type": kind, "text": text,
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_message_alone_stays_as_it_is() {
        assert_eq!(join(&[text(7, " Hello ")], Aggregation::Timed), " Hello ");
    }

    #[test]
    fn later_messages_carry_the_whole_seconds_since_the_first() {
        let messages = [text(100, "Hello"), text(105, "I mean"), text(110, "Hi there")];
        assert_eq!(join(&messages, Aggregation::Timed), "Hello\n[+5s] I mean\n[+10s] Hi there");
        let late = (Timestamp::from_millis(100_999 + 120_000), message(Kind::Text, Some("late")));
        let joined = join(&[text(100, "a"), late], Aggregation::Timed);
        assert_eq!(joined, "a\n[+120s] late", "rounded down, and never minutes");
        let back = [text(100, "a"), text(99, "b")];
        assert_eq!(join(&back, Aggregation::Timed), "a\n[+0s] b", "time never goes back");
    }

    #[test]
    fn plain_joins_texts_by_line_ends_alone() {
        assert_eq!(join(&[text(0, "a"), text(9, "b")], Aggregation::Plain), "a\nb");
    }

    #[test]
    fn what_is_no_text_is_said_in_words_with_a_link() {
        let media = |kind, url: Option<&str>, id: Option<&str>, name: Option<&str>, caption| {
            let own = |text: Option<&str>| text.map(str::to_owned);
            let media = Media { url: own(url), id: own(id), mime: None, name: own(name) };
            words(&Message { media: Some(media), ..message(kind, caption) })
        };
        let link = Some("https://media.example.com/1.jpg");
        assert_eq!(media(Kind::Image, link, None, None, None), "[image: https://media.example.com/1.jpg]");
        assert_eq!(
            media(Kind::Image, link, None, None, Some("this one")),
            "[image: https://media.example.com/1.jpg] this one"
        );
        assert_eq!(media(Kind::Audio, None, Some("77"), None, None), "[voice message: media 77]");
        assert_eq!(media(Kind::Document, None, None, Some("bill.pdf"), None), "[document \"bill.pdf\"]");
        let place =
            Location { latitude: 38.8977, longitude: -77.0365, name: Some("Shop".into()), address: None };
        let message = Message { location: Some(place), ..message(Kind::Location, None) };
        assert_eq!(words(&message), "[location: Shop: https://maps.google.com/?q=38.8977,-77.0365]");
    }

    #[test]
    fn a_very_long_burst_keeps_both_ends_and_says_what_is_missing() {
        let long: Vec<(Timestamp, Message)> =
            (0..4_000).map(|n| text(n, &format!("€ message number {n} of a very long burst"))).collect();
        let joined = join(&long, Aggregation::Timed);
        assert!(joined.len() < JOINED_BYTES_MAX + 100, "{}", joined.len());
        assert!(
            joined.starts_with("€ message number 0 ") && joined.ends_with("number 3999 of a very long burst")
        );
        assert!(joined.contains("characters of 4000 messages left out …]"), "it is marked");
    }
}
