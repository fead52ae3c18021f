//! JSON as it is written. A number keeps its digits: `31.50` is never a float on its way to a price.

use std::collections::BTreeMap;

use quell::pointer::Pointer;
use serde_json::value::RawValue;

/// Why a text is no document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoJson {
    /// `NaN` or `Infinity` stands where a value should be: some writers do that, and no retry changes it.
    NoNumber,
    /// It breaks off, or is something else.
    Broken,
}

/// The document, without a mark of its byte order.
pub(super) fn document(body: &[u8]) -> Result<&RawValue, NoJson> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    serde_json::from_slice(body).map_err(|_| match has_no_number(body) {
        true => NoJson::NoNumber,
        false => NoJson::Broken,
    })
}

/// What stands at a place; nothing where there is no such place.
pub(super) fn find<'a>(document: &'a RawValue, pointer: &Pointer) -> Option<&'a RawValue> {
    pointer.steps().iter().try_fold(document, |at, step| match at.get().as_bytes().first()? {
        b'{' => serde_json::from_str::<BTreeMap<String, &RawValue>>(at.get()).ok()?.remove(step.as_str()),
        b'[' => list(at)?.get(index(step)?).copied(),
        _ => None,
    })
}

/// The values of a list; nothing if it is none.
pub(super) fn list(raw: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str(raw.get()).ok()
}

/// A list or an object where a text or a number is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotPlain;

/// A text as it says, a number or a truth as it is written; nothing for `null` and for texts of nothing but space.
pub(super) fn plain(raw: &RawValue) -> Result<Option<String>, NotPlain> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'{' | b'[') | None => Err(NotPlain),
        Some(b'"') => {
            // A text with half a character cannot be kept, and is as good as none.
            let text: Option<String> = serde_json::from_str(text).ok();
            Ok(text.filter(|text| !text.trim().is_empty()))
        }
        Some(b'n') => Ok(None),
        Some(_) => Ok(Some(text.to_owned())),
    }
}

fn index(step: &str) -> Option<usize> {
    let whole = step == "0" || !step.starts_with('0');
    step.parse().ok().filter(|_| whole && step.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether the words that some writers use for numbers that are none stand outside of every text.
fn has_no_number(body: &[u8]) -> bool {
    let (mut at, mut inside) = (0, false);
    while let Some(byte) = body.get(at) {
        match byte {
            b'\\' if inside => at += 1,
            b'"' => inside = !inside,
            _ if !inside && [&b"NaN"[..], b"Infinity"].iter().any(|word| body[at..].starts_with(word)) => {
                return true;
            }
            _ => {}
        }
        at += 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, pointer: &str) -> Option<String> {
        let found = find(document(text.as_bytes()).unwrap(), &Pointer::parse(pointer).unwrap())?;
        Some(found.get().to_owned())
    }

    #[test]
    fn things_are_found_as_they_are_written() {
        let text = r#" {"a/b": [{"price": 31.50}, {"price": 1e2}], "": "x", "A": null, "d": 1, "d": 2} "#;
        for (pointer, found) in [
            ("/a~1b/0/price", Some("31.50")),
            ("/a~1b/1/price", Some("1e2")),
            ("/a~1b/01/price", None),
            ("/a~1b/-", None),
            ("/a~1b/2", None),
            ("/", Some("\"x\"")),
            ("/A", Some("null")),
            ("/A/b", None),
            ("/a", None),
            ("/d", Some("2")),
        ] {
            assert_eq!(at(text, pointer).as_deref(), found, "{pointer}");
        }
        assert_eq!(at("\u{feff}[1]", "/0").as_deref(), Some("1"));
    }

    #[test]
    fn plain_values_keep_their_digits() {
        let read = |text: &str| plain(document(text.as_bytes()).unwrap());
        for (text, value) in [
            ("31.50", Some("31.50")),
            ("123456789012345678901234567890.10", Some("123456789012345678901234567890.10")),
            ("-0", Some("-0")),
            ("\"3\\u00e4\"", Some("3ä")),
            ("true", Some("true")),
            ("null", None),
            ("\" \"", None),
            ("\"\\ud800\"", None),
        ] {
            assert_eq!(read(text), Ok(value.map(str::to_owned)), "{text}");
        }
        assert_eq!((read("[1]"), read("{}")), (Err(NotPlain), Err(NotPlain)));
    }

    #[test]
    fn what_is_cut_is_told_from_what_is_no_number() {
        for (text, why) in [
            ("{\"a\": NaN}", NoJson::NoNumber),
            ("[-Infinity]", NoJson::NoNumber),
            ("{\"a\": \"NaN\"", NoJson::Broken),
            ("{\"a\": \"\\\"NaN\"", NoJson::Broken),
            ("<html>", NoJson::Broken),
            ("", NoJson::Broken),
            ("[1,", NoJson::Broken),
            ("[1] x", NoJson::Broken),
        ] {
            assert_eq!(document(text.as_bytes()).map(RawValue::get), Err(why), "{text}");
        }
        assert_eq!(document(b"[\"\xff\"]").map(RawValue::get), Err(NoJson::Broken));
    }
}
