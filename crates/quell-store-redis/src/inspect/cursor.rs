//! Cursors: texts by which a listing goes on. One that was never handed out is refused: the first page again would look
//! like the next one.

use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::inspect::Inspect;

use super::lanes::Walk;

/// Looks at the cursor of a listing, before anything is read.
pub(super) fn check(request: &Inspect) -> StoreResult<()> {
    let (cursor, known) = match request {
        Inspect::Lanes(filter) if filter.idle || filter.key_prefix.is_some() => {
            (&filter.cursor, by_key as Form)
        }
        Inspect::Lanes(filter) => (&filter.cursor, walk as Form),
        Inspect::Runs(filter) if filter.key.is_some() => (&filter.cursor, runs_of_key as Form),
        Inspect::Runs(filter) => (&filter.cursor, runs as Form),
        Inspect::Audit(filter) => (&filter.cursor, is_number as Form),
        Inspect::Sources(filter) => (&filter.cursor, by_source as Form),
        _ => return Ok(()),
    };
    match cursor {
        Some(text) if !known(text) => {
            let detail = format!("cursor {text:?} is not one that this listing has given");
            Err(StoreError::new(ErrorKind::Invalid, detail))
        }
        _ => Ok(()),
    }
}

type Form = fn(&str) -> bool;

fn is_number(text: &str) -> bool {
    text.parse::<u64>().is_ok()
}

fn by_key(text: &str) -> bool {
    unhex(text).is_some()
}

fn by_source(text: &str) -> bool {
    unhex_source(text).is_some()
}

fn walk(text: &str) -> bool {
    Walk::parse(text).is_some()
}

fn ended(text: &str) -> bool {
    text.strip_prefix("f.").is_some_and(is_number)
}

/// Behind the walk stands how many runs of the next lane were listed.
fn runs(text: &str) -> bool {
    text.rsplit_once('.').is_some_and(|(lane, listed)| walk(lane) && is_number(listed)) || ended(text)
}

fn runs_of_key(text: &str) -> bool {
    text.strip_prefix("k.").is_some_and(is_number) || ended(text)
}

/// Names hold any character, cursors only harmless ones.
pub(super) fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// A lane.
pub(super) fn unhex(text: &str) -> Option<String> {
    unhex_parts(text, 3)
}

/// A source.
pub(super) fn unhex_source(text: &str) -> Option<String> {
    unhex_parts(text, 2)
}

/// As many parts, with a NUL between them.
fn unhex_parts(text: &str, parts: usize) -> Option<String> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    let byte = |place: usize| u8::from_str_radix(text.get(place..place + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
    String::from_utf8(bytes?).ok().filter(|text| text.split('\0').count() == parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_that_is_given_is_known_and_others_are_not() {
        let lane = hex("\0q\0k");
        assert!(by_key(&lane) && unhex(&lane).is_some_and(|text| text == "\0q\0k"));
        assert!(by_source(&hex("shop\0")) && !by_source(&lane) && !by_key(&hex("shop\0")));
        assert!(runs("f.91") && is_number("36") && runs_of_key("k.20") && runs_of_key("f.91"));
        for bad in ["", "x", "f.", "f.x", "1.2", "0.1.2.x", "0.1.2.3.x", "k.", "-1"] {
            assert!(
                !walk(bad)
                    && !runs(bad)
                    && !is_number(bad)
                    && !runs_of_key(bad)
                    && !by_key(bad)
                    && !by_source(bad),
                "{bad}"
            );
        }
    }
}
