//! What kind of error is this? A text with its numbers, ids and quotations taken out, and a short name for it.
//!
//! Errors of one cause differ in what they quote: a number of an order, an address, a time. Dead letters are grouped by what is
//! left without these. Numbers that say what happened stay: the status of an answer, the code of an exit. The first line that
//! says anything decides; what follows it is mostly a trace.

use sha2::{Digest, Sha256};

use crate::limits;

/// The kind of an error.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorFingerprint {
    /// For people: what was taken out is `#` or `…`.
    pub text: String,
    /// For addresses: sixteen hexadecimal digits, the same for the same text.
    pub id: String,
}

/// Words behind which a number says what happened.
const TELLING: [&str; 8] = ["answered", "code", "error", "exit", "exited", "http", "signal", "status"];

/// A word longer than this is data.
const WORD_CHARS_MAX: usize = 40;

/// The kind of an error: its first line without what differs from one time to the next.
pub fn fingerprint(error: &str) -> ErrorFingerprint {
    let line = error.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let looked: String = line.chars().take(limits::FINGERPRINT_CHARS_LOOKED).collect();
    let mut words: Vec<String> = Vec::new();
    for word in without_quotations(&looked).split_whitespace() {
        let behind = words.last().map(|word| word.trim_end_matches(':').to_ascii_lowercase());
        let telling = behind.is_some_and(|word| TELLING.contains(&word.as_str()));
        words.push(kind_of_word(word, telling));
    }
    let text: String = words.join(" ").chars().take(limits::FINGERPRINT_CHARS_MAX).collect();
    let digest = Sha256::digest(text.as_bytes());
    let id = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    ErrorFingerprint { text, id }
}

/// What stands between quotation marks becomes `…`. A mark within a word is none, as in `can't`.
fn without_quotations(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(start) = rest.find(['"', '\'', '`', '“']) {
        let before = &rest[..start];
        text.push_str(before);
        let mark = rest[start..].chars().next().unwrap_or('"');
        let inside = &rest[start + mark.len_utf8()..];
        let within_a_word = before.chars().next_back().is_some_and(char::is_alphanumeric);
        let close = if mark == '“' { '”' } else { mark };
        match inside.find(close).filter(|_| !within_a_word) {
            Some(end) => {
                text.extend([mark, '…', close]);
                rest = &inside[end + close.len_utf8()..];
            }
            None => {
                text.push(mark);
                rest = inside;
            }
        }
    }
    text + rest
}

/// Pieces of a word that hold a digit become `#`, unless the whole word is a short number that tells what happened.
fn kind_of_word(word: &str, telling: bool) -> String {
    let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
    if telling && bare.len() <= 3 && bare.bytes().all(|byte| byte.is_ascii_digit()) {
        return word.to_owned();
    }
    let mut kind = String::new();
    let mut piece = String::new();
    // The end closes the last piece.
    for c in word.chars().map(Some).chain([None]) {
        match c {
            Some(c) if c.is_alphanumeric() || c == '-' || c == '_' => piece.push(c),
            end => {
                kind.push_str(kind_of_piece(&piece));
                piece.clear();
                kind.extend(end.filter(|c| !c.is_control()));
            }
        }
    }
    // `10.0.0.7:5432` is one thing, not five.
    while let Some(shorter) = ["#.#", "#:#", "#,#", "#/#"].iter().find(|pair| kind.contains(**pair)) {
        kind = kind.replace(shorter, "#");
    }
    kind
}

fn kind_of_piece(piece: &str) -> &str {
    match piece {
        _ if piece.chars().any(|c| c.is_ascii_digit()) => "#",
        _ if piece.chars().count() > WORD_CHARS_MAX => "…",
        plain => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(error: &str) -> String {
        fingerprint(error).text
    }

    #[test]
    fn errors_of_one_cause_are_one_kind() {
        let same = [
            ["order 17 is locked by ada", "order 4711 is locked by ada"],
            ["no route to 10.0.0.7:5432", "no route to 192.168.1.1:80"],
            ["user \"Ada Lovelace\" is unknown", "user \"\" is unknown"],
            ["took 1200ms", "took 7ms"],
            [
                "trace 4bf92f3577b34da6a3ce929d0e0e4736 ended at 2026-01-02T03:04:05Z",
                "trace 00f067aa0ba902b700f067aa0ba902b7 ended at 2027-11-12T13:14:15Z",
            ],
            ["it broke\n  at line 3", "it broke\n  at line 4"],
            ["\n\nit broke", "it broke"],
        ];
        for [one, other] in same {
            assert_eq!(fingerprint(one), fingerprint(other), "{one}");
        }
    }

    #[test]
    fn errors_of_different_causes_are_different_kinds() {
        let different = [
            ["the service answered 503: busy", "the service answered 404: busy"],
            ["exit code 1", "exit code 2"],
            ["HTTP 500", "HTTP 502"],
            ["the till is locked", "the till is gone"],
        ];
        for [one, other] in different {
            assert_ne!(fingerprint(one).id, fingerprint(other).id, "{one}");
        }
    }

    #[test]
    fn what_is_left_can_be_read() {
        assert_eq!(text("order 17: can't pay 3.50 EUR for 'tea'"), "order #: can't pay # EUR for '…'");
        assert_eq!(text("exit code 137"), "exit code 137");
        assert_eq!(text("the service answered 503: busy"), "the service answered 503: busy");
        assert_eq!(text("bad \u{7}bell\u{1b}[31m"), "bad bell[#");
        assert_eq!(text(&"x".repeat(100)), "…");
        assert_eq!(text(""), "");
        assert_eq!(text("a 'quotation without an end 7"), "a 'quotation without an end #");
    }

    #[test]
    fn any_text_has_a_short_kind() {
        for error in ["\u{202e}".repeat(10_000), "1 ".repeat(10_000), "“".repeat(9_999), "ü'".repeat(9_999)]
        {
            let kind = fingerprint(&error);
            assert!(kind.text.chars().count() <= limits::FINGERPRINT_CHARS_MAX);
            assert_eq!(kind.id.len(), 16);
        }
    }
}
