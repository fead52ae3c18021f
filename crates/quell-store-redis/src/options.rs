//! Where the server is and what is asked of it, read from one URL.
//!
//! `redis://[user:password@]host[:port][/database]`, `rediss://` with TLS, or `redis+unix:///path`, with `prefix=` and
//! `durability=besteffort` behind the question mark.

use quell_core::error::{ErrorKind, StoreError, StoreResult};

/// How to reach a store in Redis.
#[derive(Clone)]
pub struct Options {
    /// For the client: without what is meant for us.
    pub(crate) url: String,
    /// In front of every key.
    pub prefix: String,
    /// Accept a server that keeps no log: what was acknowledged may be lost when it stops.
    pub best_effort: bool,
}

/// The password stays out of logs.
impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Options { prefix, best_effort, .. } = self;
        write!(f, "Options({}, prefix {prefix:?}, best effort {best_effort})", self.place())
    }
}

impl Options {
    /// Reads a URL.
    pub fn parse(url: &str) -> StoreResult<Self> {
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let mut options = Options { url: address.to_owned(), prefix: "quell".to_owned(), best_effort: false };
        let mut others = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("prefix", prefix) => options.prefix = checked(prefix)?,
                ("durability", "besteffort") => options.best_effort = true,
                ("durability", "durable") => options.best_effort = false,
                ("durability", other) => {
                    return invalid(format!("durability={other} is unknown: use durable or besteffort"));
                }
                _ => others.push(pair),
            }
        }
        if !others.is_empty() {
            options.url = format!("{address}?{}", others.join("&"));
        }
        Ok(options)
    }

    /// The same server under another prefix.
    pub fn with_prefix(mut self, prefix: &str) -> StoreResult<Self> {
        self.prefix = checked(prefix)?;
        Ok(self)
    }

    /// Where it is, without secrets.
    pub(crate) fn place(&self) -> String {
        let address = self.url.split('?').next().unwrap_or_default();
        let shown = match address.split_once("://") {
            Some((scheme, rest)) => format!("{scheme}://{}", rest.rsplit('@').next().unwrap_or_default()),
            None => "redis".to_owned(),
        };
        match self.prefix.as_str() {
            "quell" => shown,
            prefix => format!("{shown}?prefix={prefix}"),
        }
    }
}

fn invalid<T>(detail: String) -> StoreResult<T> {
    Err(StoreError::new(ErrorKind::Invalid, detail))
}

/// Braces would make another hash tag, and anything else is hard to type into `redis-cli`.
fn checked(prefix: &str) -> StoreResult<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':');
    if prefix.is_empty() || prefix.len() > 64 || !prefix.chars().all(allowed) {
        return invalid(format!("prefix={prefix:?} is not 1 to 64 letters, digits, '.', '_', '-' or ':'"));
    }
    Ok(prefix.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ours_is_taken_out_of_the_url() {
        let options =
            Options::parse("redis://u:p@h:1/2?prefix=a.b&protocol=resp3&durability=besteffort").unwrap();
        assert_eq!(options.url, "redis://u:p@h:1/2?protocol=resp3");
        assert_eq!((options.prefix.as_str(), options.best_effort), ("a.b", true));
        for bad in ["redis://h?prefix=a{b", "redis://h?prefix=", "redis://h?durability=maybe"] {
            assert_eq!(Options::parse(bad).unwrap_err().kind, ErrorKind::Invalid, "{bad}");
        }
    }

    #[test]
    fn the_password_is_never_shown() {
        let options = Options::parse("rediss://user:sec@ret@host:6380/1?prefix=x").unwrap();
        assert_eq!(options.place(), "rediss://host:6380/1?prefix=x");
        assert!(!format!("{options:?}").contains("sec"), "{options:?}");
        assert_eq!(Options::parse("redis://h").unwrap().place(), "redis://h");
    }
}
