//! Bytes as text: hex (hand-written, twenty lines: no crate of ours has it) and base64 with or without its padding.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Providers differ in whether they pad; a secret is the same either way.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

pub(crate) fn to_base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// Both cases are read; an odd length is not.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect()
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_is_read_in_both_cases_and_only_whole() {
        assert_eq!(from_hex("00fFa1"), Some(vec![0, 255, 161]));
        assert_eq!(from_hex(""), Some(vec![]));
        for bad in ["0", "0g", "00 ", "+1", "0x12", "äö"] {
            assert_eq!(from_hex(bad), None, "{bad}");
        }
        assert_eq!(to_hex(&[0, 255, 161]), "00ffa1");
    }

    #[test]
    fn base64_is_read_with_and_without_padding() {
        assert_eq!(from_base64("Zm9vYg=="), Some(b"foob".to_vec()));
        assert_eq!(from_base64("Zm9vYg"), Some(b"foob".to_vec()));
        assert_eq!(from_base64("Zm9v Yg"), None);
        assert_eq!(to_base64(b"foob"), "Zm9vYg==");
    }
}
