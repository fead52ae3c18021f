//! What can go wrong in a store call: few kinds, one per thing a caller does differently.
//!
//! A call has three answers: *done*, *definitely not done*, *unknown*. The first is `Ok`; the other two are told apart
//! by [`StoreError::is_unknown`]. Unknown means that a connection or an fsync was lost at the commit: the caller repeats
//! the same request with the same id or token, and never guesses.

use std::fmt;

use crate::event::Invalid;

/// What a caller does about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request itself is wrong; repeating it changes nothing.
    Invalid,
    /// Over a limit; nothing was stored.
    Limit,
    /// The lane holds as many events as it may; nothing was stored. The request is fine, and worth trying again when the
    /// lane has been worked off.
    Full,
    /// The same id with another payload; nothing was stored.
    Conflict,
    /// The lane has work, and the event asked for an idle one; nothing was stored.
    NotIdle,
    /// The token is not the lane's: somebody else has the run, or it ended.
    LostLease,
    /// The run was settled before with another outcome.
    AlreadySettled,
    /// No such lane, run or queue.
    NotFound,
    /// Definitely not done, and worth trying again later: busy, disk full, shutting down.
    Unavailable,
    /// Nobody knows whether it was done: repeat with the same id or token.
    Unknown,
    /// The store's content or version is not what this program can work with.
    Corrupt,
}

impl ErrorKind {
    /// The word in JSON, in logs and in problems over HTTP.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Invalid => "invalid",
            ErrorKind::Limit => "over-limit",
            ErrorKind::Full => "lane-full",
            ErrorKind::Conflict => "conflict",
            ErrorKind::NotIdle => "lane-not-idle",
            ErrorKind::LostLease => "stale-token",
            ErrorKind::AlreadySettled => "already-settled",
            ErrorKind::NotFound => "not-found",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Unknown => "unknown-outcome",
            ErrorKind::Corrupt => "corrupt",
        }
    }
}

/// A store call that was not (or perhaps not) done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreError {
    /// What it means for whoever asked.
    pub kind: ErrorKind,
    /// What happened, where, and what to do, for people. Never a payload, never a secret.
    pub detail: String,
}

impl StoreError {
    /// Of a kind, with what happened and what to do.
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        StoreError { kind, detail: detail.into() }
    }

    /// The store is away: nothing was done, and later may be better.
    pub fn unavailable(detail: impl Into<String>) -> Self {
        StoreError::new(ErrorKind::Unavailable, detail)
    }

    /// The caller does not hold this run any more.
    pub fn lost_lease(run: impl fmt::Display, token: u64) -> Self {
        StoreError::new(
            ErrorKind::LostLease,
            format!("token {token} does not hold {run}: the lease was taken back or the run has ended"),
        )
    }

    /// There is no such thing.
    pub fn not_found(what: impl fmt::Display) -> Self {
        StoreError::new(ErrorKind::NotFound, format!("{what} does not exist"))
    }

    /// Repeat with the same id or token; never guess.
    pub fn is_unknown(&self) -> bool {
        self.kind == ErrorKind::Unknown
    }

    /// Worth repeating later without any change.
    pub fn is_temporary(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::Unknown)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.as_str(), self.detail)
    }
}

impl std::error::Error for StoreError {}

impl From<Invalid> for StoreError {
    fn from(invalid: Invalid) -> Self {
        StoreError::new(ErrorKind::Invalid, invalid.to_string())
    }
}

/// What every call of a store answers with.
pub type StoreResult<T> = Result<T, StoreError>;
