//! A secret that two sides share. It is compared in constant time, and it is never printed.

use std::fmt;

use subtle::ConstantTimeEq;

/// The bytes of a secret. `Debug` does not show them, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

/// Why a text is no secret of a scheme. It never repeats the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadSecret(pub String);

impl Secret {
    /// Any bytes; how many a scheme wants it says itself.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Secret(bytes.into())
    }

    /// For what makes a signature of it.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is the one presented; how long this takes says nothing about where they differ.
    pub fn is(&self, presented: &[u8]) -> bool {
        self.0.ct_eq(presented).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret([redacted])")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_printed() {
        let secret = Secret::new("opensesame");
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "Secret([redacted]) Some(Secret([redacted]))");
    }

    #[test]
    fn only_the_same_bytes_are_the_secret() {
        let secret = Secret::new("opensesame");
        assert!(secret.is(b"opensesame"));
        for other in ["opensesam", "opensesamf", "opensesame ", "", "Opensesame"] {
            assert!(!secret.is(other.as_bytes()), "{other}");
        }
    }
}
