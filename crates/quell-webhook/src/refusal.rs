//! Why a delivery was not taken. The sender learns little of it; the operator, in the inspector, everything.

use serde::{Deserialize, Serialize};

/// What was wrong, as programs compare it. The first part means that nothing is proven: whoever sent it learns nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Because {
    /// There is no such endpoint.
    UnknownEndpoint,
    /// The header with the signature or the token is not there, or empty.
    MissingSignature,
    /// It cannot be read: no hex, no known version, twice the header.
    MalformedSignature,
    /// It is not the one of these bytes with any of our secrets.
    BadSignature,
    /// Another header that is signed with the body is missing.
    MissingHeader,
    /// A header that is signed with the body cannot be read.
    MalformedHeader,
    /// It was sent too long ago.
    Stale,
    /// It says that it was sent in the future.
    Future,
    /// A page in a browser sent it, to an endpoint without any proof.
    FromBrowser,
    /// It is no POST, and no question that the scheme answers.
    WrongMethod,
    /// It asks whether this endpoint is ours, with another word than the agreed one.
    BadVerifyToken,
    /// From here on it is proven. The body is not what the endpoint takes.
    Unreadable,
    /// The rule of the endpoint finds no key in it.
    NoKey,
    /// Key, id, tenant or payload cannot be used.
    Unusable,
}

impl Because {
    /// Whether the sender has not proven who it is. Then it is told nothing but that.
    pub fn is_unproven(self) -> bool {
        !matches!(self, Because::Unreadable | Because::NoKey | Because::Unusable)
    }

    /// The word in the inspector and in the metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Because::UnknownEndpoint => "unknown_endpoint",
            Because::MissingSignature => "missing_signature",
            Because::MalformedSignature => "malformed_signature",
            Because::BadSignature => "bad_signature",
            Because::MissingHeader => "missing_header",
            Because::MalformedHeader => "malformed_header",
            Because::Stale => "stale",
            Because::Future => "future",
            Because::FromBrowser => "from_browser",
            Because::WrongMethod => "wrong_method",
            Because::BadVerifyToken => "bad_verify_token",
            Because::Unreadable => "unreadable",
            Because::NoKey => "no_key",
            Because::Unusable => "unusable",
        }
    }
}

/// A refusal with its reason in full, for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Refusal {
    /// The reason in one word.
    pub because: Because,
    /// A sentence. It repeats neither a secret nor the body.
    pub detail: String,
}

impl Refusal {
    /// With the reason in full, for the operator and not for the sender.
    pub fn new(because: Because, detail: impl Into<String>) -> Self {
        Refusal { because, detail: detail.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_read() {
        let all = [
            Because::UnknownEndpoint,
            Because::MissingSignature,
            Because::MalformedSignature,
            Because::BadSignature,
            Because::MissingHeader,
            Because::MalformedHeader,
            Because::Stale,
            Because::Future,
            Because::FromBrowser,
            Because::WrongMethod,
            Because::BadVerifyToken,
            Because::Unreadable,
            Because::NoKey,
            Because::Unusable,
        ];
        for because in all {
            assert_eq!(serde_json::to_value(because).unwrap(), because.as_str());
        }
        assert_eq!(all.iter().filter(|because| because.is_unproven()).count(), 11);
    }
}
