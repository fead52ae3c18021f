//! A text within what a provider takes.

use std::borrow::Cow;

use super::wati::encoded_length;

/// A cut looks for the end of a word within this part of the text at its end: an eighth.
const WORD_PART: usize = 8;

const MARK: char = '…';

/// Cuts a text that has more characters than `most`, or takes more bytes in a URL than `encoded_most`. Characters are
/// counted as UTF-16 does, because that is the larger of the two ways in which providers may count.
pub(super) fn fit(text: &str, most: usize, encoded_most: Option<usize>) -> Cow<'_, str> {
    let encoded = |text: &str| encoded_most.map_or(0, |_| encoded_length(text));
    let encoded_most = encoded_most.unwrap_or(usize::MAX);
    if text.encode_utf16().count() <= most && encoded(text) <= encoded_most {
        return Cow::Borrowed(text);
    }
    let mark = MARK.to_string();
    let (mut room, mut encoded_room) =
        (most.saturating_sub(MARK.len_utf16()), encoded_most.saturating_sub(encoded(&mark)));
    let mut end = 0;
    for (at, character) in text.char_indices() {
        let after = at + character.len_utf8();
        let (takes, takes_encoded) = (character.len_utf16(), encoded(&text[at..after]));
        if takes > room || takes_encoded > encoded_room {
            break;
        }
        (room, encoded_room, end) = (room - takes, encoded_room - takes_encoded, after);
    }
    let cut = &text[..end];
    // Within a word the cut goes back to where it began, if that is not too far back.
    let in_word = text[end..].chars().next().is_some_and(|next| !next.is_whitespace());
    let word = cut.rfind(char::is_whitespace).filter(|at| in_word && *at >= end - end / WORD_PART);
    Cow::Owned(format!("{}{MARK}", cut[..word.unwrap_or(end)].trim_end()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_long_text_is_cut_near_the_end_of_a_word() {
        assert_eq!(fit("short", 5, None), "short");
        assert_eq!(fit("one two three four five", 20, None), "one two three four…");
        assert_eq!(fit("one two three four", 9, None), "one two…", "between two words");
        assert_eq!(fit("Donaudampfschifffahrt", 10, None), "Donaudamp…", "no end of a word is near");
        assert_eq!(fit("a Donaudampfschifffahrt", 10, None), "a Donauda…");
        assert_eq!(fit("👋👋👋👋", 6, None), "👋👋…", "a waving hand counts twice, and is never cut in two");
        assert_eq!(fit("ééé", 3, Some(18)), "ééé");
        assert_eq!(fit("éééé", 4, Some(23)), "éé…");
    }

    proptest! {
        #[test]
        fn what_is_cut_fits_and_stays_as_it_is(text in "[a-z é👋\n]{0,60}", most in 2_usize..40, encoded in 15_usize..90) {
            let once = fit(&text, most, Some(encoded)).into_owned();
            prop_assert!(once.encode_utf16().count() <= most, "{}", once);
            prop_assert!(encoded_length(&once) <= encoded, "{}", once);
            prop_assert!(once == text || text.starts_with(once.trim_end_matches('…')));
            prop_assert_eq!(fit(&once, most, Some(encoded)).into_owned(), once.clone());
        }
    }
}
