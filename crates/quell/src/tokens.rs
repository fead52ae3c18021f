//! Who may do what over HTTP: tokens with scopes, limited to tenants and queues where that is wanted.
//!
//! A token is 256 random bits behind a readable prefix and an id, with a check sum at its end, so that scanners find a
//! leaked one and a misspelt one is told from a wrong one. The store keeps its hash and nothing else of the secret; with
//! that much entropy a plain SHA-256 is enough. Comparing is done in constant time, after looking up the id.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use quell_core::batch::base32;
use quell_core::clock::Timestamp;
use quell_core::event::{Invalid, QueueName, Tenant};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// What all tokens begin with.
pub const TOKEN_PREFIX: &str = "quell_";
const ID_LENGTH: usize = 10;
const SECRET_LENGTH: usize = 52;
const SUM_LENGTH: usize = 6;

/// What a token allows. `admin` allows everything, `operate` also reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Scope {
    /// Appending events.
    Ingest,
    /// Claiming and settling runs.
    Work,
    /// Looking at everything, payloads included.
    Read,
    /// Flush, pause, resume, cancel, redrive, purge.
    Operate,
    /// Tokens, declarations, erasing.
    Admin,
}

impl Scope {
    /// All of them, the least first.
    pub const ALL: [Scope; 5] = [Scope::Ingest, Scope::Work, Scope::Read, Scope::Operate, Scope::Admin];

    /// The word on the command line, in JSON and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Ingest => "ingest",
            Scope::Work => "work",
            Scope::Read => "read",
            Scope::Operate => "operate",
            Scope::Admin => "admin",
        }
    }

    /// Whether one who has this scope may do what asks for that one.
    pub fn allows(self, wanted: Scope) -> bool {
        self == wanted || self == Scope::Admin || (self == Scope::Operate && wanted == Scope::Read)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Scope {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        Scope::ALL.into_iter().find(|scope| scope.as_str() == text).ok_or_else(|| Invalid {
            what: "scope",
            problem: format!("{text:?} is none of ingest, work, read, operate, admin"),
        })
    }
}

/// A token as the store keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ApiToken {
    /// The readable part of the token.
    pub id: String,
    /// What it is for, as its maker called it; actions are recorded under it.
    pub name: String,
    /// What its bearer may do.
    pub scopes: BTreeSet<Scope>,
    /// Only these; empty means every tenant.
    #[serde(default)]
    pub tenants: BTreeSet<Tenant>,
    /// Only these; empty means every queue.
    #[serde(default)]
    pub queues: BTreeSet<QueueName>,
    /// Who made it, as in the audit trail.
    pub made_by: String,
    /// When it was made.
    pub made_at: Timestamp,
    /// After this moment it is worth nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// SHA-256 of the whole token, in hex.
    #[cfg_attr(feature = "schema", schema(ignore))]
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub hash: String,
}

impl ApiToken {
    /// Whether one of its scopes includes this one.
    pub fn allows(&self, wanted: Scope) -> bool {
        self.scopes.iter().any(|scope| scope.allows(wanted))
    }

    /// In constant time.
    pub fn is(&self, presented: &Presented<'_>) -> bool {
        self.hash.as_bytes().ct_eq(presented.hash().as_bytes()).into()
    }

    /// As it is shown: nothing that helps to guess it.
    #[must_use]
    pub fn without_hash(mut self) -> Self {
        self.hash.clear();
        self
    }
}

/// A token that was just made. Its text is shown once and not kept.
pub struct NewToken {
    /// Its public part, by which it is listed and revoked.
    pub id: String,
    /// What its bearer shows. Nobody else ever knows it.
    pub text: String,
    /// What the store keeps of it.
    pub hash: String,
}

impl NewToken {
    /// From 256 bits that nobody can guess, and some for the id.
    pub fn of(secret: [u8; 32], id: u64) -> Self {
        let id = fixed(&base32(id), ID_LENGTH);
        let secret: String = secret.chunks(8).map(|part| fixed(&base32(number(part)), 13)).collect();
        let body = format!("{TOKEN_PREFIX}{id}_{secret}");
        let text = format!("{body}{}", check_sum(&body));
        let hash = hash_of(&text);
        NewToken { id, text, hash }
    }
}

/// A token that somebody shows, well formed and not yet known.
pub struct Presented<'a> {
    /// Its public part.
    pub id: &'a str,
    text: &'a str,
}

impl<'a> Presented<'a> {
    /// Nothing when it cannot be one of ours.
    pub fn read(text: &'a str) -> Option<Self> {
        let rest = text.strip_prefix(TOKEN_PREFIX)?;
        let (id, secret) = rest.split_once('_')?;
        let whole = id.len() == ID_LENGTH && secret.len() == SECRET_LENGTH + SUM_LENGTH && text.is_ascii();
        let (body, sum) = text.split_at_checked(text.len().checked_sub(SUM_LENGTH)?)?;
        (whole && check_sum(body) == sum).then_some(Presented { id, text })
    }

    fn hash(&self) -> String {
        hash_of(self.text)
    }
}

fn number(part: &[u8]) -> u64 {
    part.iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

/// Exactly so long: cut at the front, or filled with zeros.
fn fixed(text: &str, length: usize) -> String {
    let short = &text[text.len().saturating_sub(length)..];
    format!("{short:0>length$}")
}

fn hash_of(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn check_sum(body: &str) -> String {
    let digest = Sha256::digest(body.as_bytes());
    fixed(&base32(number(&digest[..4])), SUM_LENGTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_again_and_a_misspelt_one_is_not_even_looked_up() {
        let made = NewToken::of([7; 32], 42);
        assert!(made.text.starts_with("quell_000000001a_"), "{}", made.text);
        assert_eq!(made.text.len(), 6 + ID_LENGTH + 1 + SECRET_LENGTH + SUM_LENGTH);
        let presented = Presented::read(&made.text).unwrap();
        assert_eq!((presented.id, presented.hash()), (made.id.as_str(), made.hash.clone()));
        for at in 0..made.text.len() {
            let mut other = made.text.clone().into_bytes();
            other[at] = if other[at] == b'x' { b'y' } else { b'x' };
            assert!(Presented::read(std::str::from_utf8(&other).unwrap()).is_none(), "byte {at}");
        }
        for bad in
            ["", "quell_", "quell__", "Bearer", "quell_é_é", &made.text[1..], &format!("{} ", made.text)]
        {
            assert!(Presented::read(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn secrets_of_all_sizes_have_one_length() {
        let lengths: BTreeSet<usize> =
            [[0; 32], [255; 32], [1; 32]].map(|secret| NewToken::of(secret, u64::MAX).text.len()).into();
        assert_eq!(lengths.len(), 1);
    }

    #[test]
    fn operators_read_and_administrators_do_everything() {
        let allowed = |scope: Scope| Scope::ALL.map(|wanted| scope.allows(wanted));
        assert_eq!(allowed(Scope::Ingest), [true, false, false, false, false]);
        assert_eq!(allowed(Scope::Work), [false, true, false, false, false]);
        assert_eq!(allowed(Scope::Read), [false, false, true, false, false]);
        assert_eq!(allowed(Scope::Operate), [false, false, true, true, false]);
        assert_eq!(allowed(Scope::Admin), [true; 5]);
    }
}
