//! Redis's errors as answers of a store: which are "definitely not" and which are "unknown".

use quell_core::error::{ErrorKind, StoreError};
use redis::{ErrorKind as Kind, RedisError, ServerErrorKind};

/// An error of a read, or before anything was written: nothing was done.
pub(crate) fn not_done(error: &RedisError, place: &str) -> StoreError {
    let said = said(error);
    match error.kind() {
        Kind::Server(ServerErrorKind::ReadOnly) => StoreError::unavailable(format!(
            "{place} is a read-only replica: connect to the primary, or wait until a replica takes over"
        )),
        Kind::Server(ServerErrorKind::BusyLoading) => {
            StoreError::unavailable(format!("{place} is still loading its data; try again in a moment"))
        }
        Kind::Server(ServerErrorKind::NoPerm) => StoreError::unavailable(format!(
            "{place} does not allow this user what Quell needs ({said}): give it ~<prefix>:* &<prefix>:* +@all -@dangerous +info"
        )),
        Kind::AuthenticationFailed => wrong_password(place, &said),
        _ => by_code(error, place, &said),
    }
}

fn wrong_password(place: &str, said: &str) -> StoreError {
    StoreError::unavailable(format!(
        "{place} refused the user or password ({said}): check both in the URL, redis://user:password@host"
    ))
}

fn by_code(error: &RedisError, place: &str, said: &str) -> StoreError {
    match error.code() {
        Some("WRONGPASS" | "NOAUTH") => wrong_password(place, said),
        Some("OOM") => StoreError::unavailable(format!(
            "{place} is at its maxmemory: nothing of this request was stored; raise it (CONFIG SET maxmemory …) or \
             shorten the retention, then send again"
        )),
        Some("MISCONF") => StoreError::unavailable(format!(
            "{place} cannot write its data to disk and refuses writes ({said}); nothing was stored"
        )),
        Some("NOREPLICAS") => StoreError::unavailable(format!(
            "{place} has fewer replicas than it must have (min-replicas-to-write); nothing was stored"
        )),
        Some("SEALED") => quell_core::copy::sealed(error.detail().unwrap_or_default()),
        Some("BUSY") => {
            StoreError::unavailable(format!("{place} is busy with a long script; nothing was stored"))
        }
        Some(_) => StoreError::new(ErrorKind::Corrupt, format!("unexpected answer of {place}: {said}")),
        None => StoreError::unavailable(format!("{place} cannot be reached ({said}); nothing was stored")),
    }
}

/// An error after the script that ends a transaction was sent. What the server answered was not done; without an answer
/// nobody knows.
pub(crate) fn at_apply(error: &RedisError, place: &str) -> StoreError {
    match error.code() {
        Some(_) => not_done(error, place),
        None => StoreError::new(
            ErrorKind::Unknown,
            format!(
                "the connection to {place} was lost before it answered ({}); repeat with the same id or token",
                said(error)
            ),
        ),
    }
}

/// What a script of an application says itself, or what Redis says of it. Nothing for what any script could meet.
pub(crate) fn of_application(error: &RedisError, application: &str) -> Option<StoreError> {
    match error.code()? {
        "CONFLICT" => {
            let said = error.detail().unwrap_or("somebody else was first");
            Some(StoreError::new(ErrorKind::Conflict, format!("{application}: {said}")))
        }
        "ERR" | "WRONGTYPE" => {
            let text = format!("Redis refuses a script of {application}: {}", said(error));
            Some(StoreError::new(ErrorKind::Invalid, text))
        }
        _ => None,
    }
}

/// The server is somewhere else, or is no Redis.
pub(crate) fn not_reached(error: &RedisError, place: &str) -> StoreError {
    let said = said(error);
    let lower = said.to_lowercase();
    if error.code().is_some() || matches!(error.kind(), Kind::AuthenticationFailed) {
        return not_done(error, place);
    }
    if matches!(error.kind(), Kind::InvalidClientConfig) {
        let text = format!("{place} is no address of a Redis server ({said}): use redis://host:6379/0");
        return StoreError::new(ErrorKind::Invalid, text);
    }
    // A server without TLS waits for the rest of what it takes for a command.
    let secure = place.starts_with("rediss:") && !error.is_connection_refusal();
    if secure || lower.contains("certificate") || lower.contains("tls") || lower.contains("handshake") {
        return StoreError::unavailable(format!(
            "no secure connection to {place} ({said}): check the server's certificate, or use redis:// if it has no TLS"
        ));
    }
    StoreError::unavailable(format!(
        "{place} cannot be reached ({said}): is the server running, and do host and port agree?"
    ))
}

/// What happened, in one line.
fn said(error: &RedisError) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// An answer that a script of ours never gives.
pub(crate) fn strange(what: &str) -> StoreError {
    StoreError::new(ErrorKind::Corrupt, format!("the server gave an answer that was not expected: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io(kind: std::io::ErrorKind) -> RedisError {
        std::io::Error::from(kind).into()
    }

    #[test]
    fn without_an_answer_only_the_end_is_unknown() {
        let lost = io(std::io::ErrorKind::ConnectionReset);
        assert!(at_apply(&lost, "redis://h").is_unknown());
        assert!(!not_done(&lost, "redis://h").is_unknown());
        assert!(not_done(&lost, "redis://h").is_temporary());
    }

    #[test]
    fn a_sealed_store_answers_in_the_words_of_all_stores() {
        let error = redis::make_extension_error("SEALED".to_owned(), Some("a copy to x [1]".to_owned()));
        assert_eq!(at_apply(&error, "redis://h"), quell_core::copy::sealed("a copy to x [1]"));
    }

    #[test]
    fn what_the_server_refused_was_not_done() {
        for (code, word) in [("OOM", "maxmemory"), ("MISCONF", "disk"), ("WRONGPASS", "password")] {
            let error = redis::make_extension_error(code.to_owned(), Some("x".to_owned()));
            let told = at_apply(&error, "redis://h");
            assert!(!told.is_unknown() && told.detail.contains(word), "{told}");
        }
    }
}
