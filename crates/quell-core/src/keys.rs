//! Keys of an application in the store's own Redis: the counterpart of [`tables`](crate::tables) where there are none.
//!
//! An application on Redis keeps its data beside the lanes, under a prefix of its own. It sees no driver: a change is a
//! script in Lua with keys and values, and so is a read. A script has, beside what Redis gives it,
//!
//! - `KEYS` and `ARGV` as they were passed, names already made full; a value that is [`Cell::Null`] is `false`, a number
//!   is its text, because Lua counts exactly only to 2^53;
//! - `key(name)`, the full name of one more key of the application, for names that are only known when it runs;
//! - `now()`, the store's time in milliseconds. No other clock decides anything.
//!
//! It answers with a flat list of whole numbers, texts and `false` for nothing, or with nothing at all. Other keys than
//! these are not the application's to touch, and a script that builds names by itself is a mistake.
//!
//! A script runs whole, alone and durably, or not at all, with one exception that is Redis's own: what it has written
//! before it fails stays. So scripts look at everything first and write afterwards; one that finds somebody else was first
//! returns `redis.error_reply('CONFLICT …')` before it writes ([`ErrorKind::Conflict`]).
//!
//! Redis knows no migrations: whoever changes the form of its data writes the version into them. A copy of a store to
//! another (`quell store copy`) takes no data of applications along, neither keys nor tables.

use async_trait::async_trait;

use crate::error::{ErrorKind, StoreError, StoreResult};
use crate::limits;
use crate::tables::Cell;

/// Keys of applications.
#[async_trait]
pub trait Keys: Send + Sync + 'static {
    /// Runs a script that may change something. A sealed store refuses it. After an unknown answer nobody knows whether it
    /// was done: a script that may be repeated must see that by itself.
    async fn run(
        &self,
        application: &'static str,
        script: &'static str,
        names: &[&str],
        values: Vec<Cell>,
    ) -> StoreResult<Vec<Cell>>;

    /// Runs a script that changes nothing, which Redis sees to (it needs version 7 for that). A sealed store answers it.
    async fn read(
        &self,
        application: &'static str,
        script: &'static str,
        names: &[&str],
        values: Vec<Cell>,
    ) -> StoreResult<Vec<Cell>>;
}

/// Refuses names that could reach beyond the application's own. Never shows a name: it may hold what a user wrote.
pub fn check_names(application: &str, names: &[&str]) -> StoreResult<()> {
    let invalid = |detail: String| Err(StoreError::new(ErrorKind::Invalid, detail));
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    let most = limits::APPLICATION_NAME_BYTES_MAX;
    if application.is_empty() || application.len() > most || !application.chars().all(plain) {
        return invalid(format!(
            "an application is named by 1 to {most} small letters, digits, _ and -; {application:?} is no such name"
        ));
    }
    let most = limits::APPLICATION_KEY_BYTES_MAX;
    for name in names {
        if name.is_empty() || name.len() > most {
            let length = name.len();
            return invalid(format!("a key of {application} has {length} bytes; 1 to {most} are possible"));
        }
        if name.contains(['{', '}']) {
            return invalid(format!(
                "a key of {application} has a brace, which Redis places keys by; spell it differently"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_below_the_applications_own_are_taken() {
        assert_eq!(check_names("chat", &["message:7", "a\0b", "Ω :*"]), Ok(()));
        assert_eq!(check_names("chat", &[]), Ok(()));
        let long = "x".repeat(limits::APPLICATION_KEY_BYTES_MAX + 1);
        for name in ["", "{p1}", "a}", long.as_str()] {
            let error = check_names("chat", &["good", name]).expect_err("it is refused");
            assert_eq!(error.kind, ErrorKind::Invalid);
            assert!(name.is_empty() || !error.detail.contains(name), "{error}");
        }
        for application in ["", "chat:", "Chat", "a b", "{chat}", &"x".repeat(33)] {
            assert!(check_names(application, &[]).is_err(), "{application}");
        }
    }
}
