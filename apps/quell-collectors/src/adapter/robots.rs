//! `robots.txt` (RFC 9309): whether a host wants to be asked, by whom, and for what.
//!
//! What the file says is kept in the source's cache, which all workers share, and remembered in the process for an hour. A file
//! that is not there (4xx) forbids nothing. One that cannot be had (5xx, no answer) forbids everything until it can: the error of
//! the client says so and the run is tried again.

use std::sync::Arc;
use std::time::Duration;

use quell::clock::Stopwatch;
use quell::fetch::{Call, Excess, FetchError, Fetched, Fetcher, HeaderValue, Origin};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use url::Url;

use crate::adapter::AdapterError;
use crate::adapter::answer::asked;

/// What we are called in such files.
const PRODUCT: &str = "quell";
/// The standard allows a day; after an hour a new word of the host is heard.
const KEPT_FOR: Duration = Duration::from_secs(3600);
/// As many as the standard asks for.
const REDIRECTS_MAX: usize = 5;
/// Lines behind these are not read; the standard asks for 500 KiB.
const BYTES_MAX: usize = 512 * 1024;

/// The rules of one host.
#[derive(Debug)]
pub(super) struct Robots {
    url: String,
    /// Where the rules are kept. Those of answers begin with the name of a source, which has no such mark.
    key: String,
    user_agent: HeaderValue,
    timeout: Duration,
    /// Locked while the file is read, so that it is read once.
    kept: Mutex<Option<(Stopwatch, Arc<Rules>)>>,
}

impl Robots {
    /// `base` is scheme, host and port.
    pub(super) fn new(base: &str, user_agent: HeaderValue, timeout: Duration) -> Self {
        let (url, key) = (format!("{base}/robots.txt"), format!("robots:{base}"));
        Robots { url, key, user_agent, timeout, kept: Mutex::new(None) }
    }

    /// Refuses what the host does not want.
    pub(super) async fn permit(&self, fetcher: &Fetcher, url: &str) -> Result<(), AdapterError> {
        let parsed = Url::parse(url).map_err(|_| AdapterError::Permanent("the address is no URL".into()))?;
        let path = match parsed.query() {
            Some(query) => format!("{}?{query}", parsed.path()),
            None => parsed.path().to_owned(),
        };
        if self.rules(fetcher).await?.allow(&path) {
            return Ok(());
        }
        let host = parsed.host_str().unwrap_or_default();
        Err(AdapterError::Permanent(format!(
            "robots.txt of {host} forbids {PRODUCT} to ask for this path: leave the source out, or write robots = false if this \
             is an API whose terms you have accepted"
        )))
    }

    async fn rules(&self, fetcher: &Fetcher) -> Result<Arc<Rules>, AdapterError> {
        let mut kept = self.kept.lock().await;
        if let Some((since, rules)) = kept.as_ref()
            && since.elapsed() < KEPT_FOR
        {
            return Ok(rules.clone());
        }
        let (rules, _): (Rules, Origin) = fetcher.recall(&self.key, || self.read(fetcher)).await?;
        let rules = Arc::new(rules);
        *kept = Some((Stopwatch::start(), rules.clone()));
        Ok(rules)
    }

    async fn read(&self, fetcher: &Fetcher) -> Result<Rules, AdapterError> {
        let mut url = self.url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let answer = self.get(fetcher, &url).await?;
            if answer.status.is_success() {
                let body = &answer.body[..answer.body.len().min(BYTES_MAX)];
                return Ok(Rules::parse(&String::from_utf8_lossy(body)));
            }
            let location = answer.headers.get(http::header::LOCATION).and_then(|value| value.to_str().ok());
            let target = location.filter(|_| answer.status.is_redirection());
            match target.and_then(|target| Url::parse(&url).ok()?.join(target).ok()) {
                Some(target) => url = target.into(),
                None => return Ok(Rules::default()),
            }
        }
        Ok(Rules::default())
    }

    async fn get(&self, fetcher: &Fetcher, url: &str) -> Result<Fetched, AdapterError> {
        // What is too long is not read to its end; the rules before that hold.
        let call = Call::get(url).timeout(self.timeout).excess(Excess::Drop);
        let call = call.header(http::header::USER_AGENT, self.user_agent.clone());
        asked(fetcher, call, |_| None).await.map_err(|error| match error {
            AdapterError::Fetch(FetchError::Fault { fault, text, reply }) => {
                let text = format!(
                    "whether the source wants to be asked is unknown, robots.txt cannot be had: {text}"
                );
                AdapterError::Fetch(FetchError::Fault { fault, text, reply })
            }
            other => other,
        })
    }
}

/// What a file says to us.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Rules {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Rule {
    allow: bool,
    pattern: String,
}

impl Rules {
    fn parse(text: &str) -> Rules {
        let (mut ours, mut everybodys): (Option<Vec<Rule>>, Vec<Rule>) = (None, Vec::new());
        let (mut for_us, mut for_all, mut in_rules) = (false, false, false);
        for line in text.trim_start_matches('\u{feff}').lines() {
            let line = line.split('#').next().unwrap_or_default();
            let Some((name, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            match name.trim().to_ascii_lowercase().as_str() {
                "user-agent" => {
                    if in_rules {
                        (for_us, for_all, in_rules) = (false, false, false);
                    }
                    let end = value.find(|c: char| !c.is_ascii_alphabetic() && c != '_' && c != '-');
                    let product = &value[..end.unwrap_or(value.len())];
                    for_all |= value.starts_with('*');
                    if product.eq_ignore_ascii_case(PRODUCT) {
                        for_us = true;
                        // A group without rules is one, too: it forbids nothing.
                        ours.get_or_insert_default();
                    }
                }
                name @ ("allow" | "disallow") => {
                    in_rules = true;
                    let rule = Rule { allow: name == "allow", pattern: normal(value) };
                    if value.is_empty() {
                        continue;
                    }
                    if for_us && let Some(ours) = &mut ours {
                        ours.push(rule.clone());
                    }
                    if for_all {
                        everybodys.push(rule);
                    }
                }
                _ => {}
            }
        }
        Rules { rules: ours.unwrap_or(everybodys) }
    }

    /// The longest pattern that fits decides; of two that are equally long, the one that allows.
    fn allow(&self, path: &str) -> bool {
        let path = normal(path);
        let fitting = self.rules.iter().filter(|rule| rule.fits(&path));
        fitting.max_by_key(|rule| (rule.pattern.len(), rule.allow)).is_none_or(|rule| rule.allow)
    }
}

impl Rule {
    /// Whether the pattern fits the beginning of the path: `*` is any text, `$` at the end is the end.
    fn fits(&self, path: &str) -> bool {
        let (pattern, ends) = match self.pattern.strip_suffix('$') {
            Some(pattern) => (pattern, true),
            None => (self.pattern.as_str(), false),
        };
        let mut parts = pattern.split('*');
        let Some(mut rest) = parts.next().and_then(|first| path.strip_prefix(first)) else { return false };
        let mut parts = parts.peekable();
        if parts.peek().is_none() {
            return !ends || rest.is_empty();
        }
        while let Some(part) = parts.next() {
            // The last part must be the end where the pattern has one; any other is taken where it first stands.
            if ends && parts.peek().is_none() {
                return rest.ends_with(part);
            }
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        true
    }
}

/// One way to write a path: what need not be percent-encoded is not, everything else in capital digits.
fn normal(path: &str) -> String {
    let bytes = path.as_bytes();
    let (mut text, mut at) = (String::with_capacity(path.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        let encoded = (byte == b'%').then(|| path.get(at + 1..at + 3)).flatten();
        let decoded = encoded.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match decoded {
            Some(plain) if plain.is_ascii_alphanumeric() || b"-._~".contains(&plain) => {
                text.push(plain.into())
            }
            Some(other) => text.push_str(&format!("%{other:02X}")),
            None if byte.is_ascii() => text.push(byte.into()),
            None => text.push_str(&format!("%{byte:02X}")),
        }
        at += if decoded.is_some() { 3 } else { 1 };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_pattern_decides_and_allowing_wins_a_tie() {
        for (file, path, allowed) in [
            ("", "/a", true),
            ("user-agent: *\ndisallow: /", "/a", false),
            ("user-agent: *\ndisallow:", "/a", true),
            ("User-Agent: *\nDisallow: /a # all of it", "/ab", false),
            ("user-agent: *\ndisallow: /a\nallow: /a/b", "/a/b/c", true),
            ("user-agent: *\ndisallow: /a\nallow: /a", "/a", true),
            ("user-agent: *\ndisallow: /*.json$", "/x/y.json", false),
            ("user-agent: *\ndisallow: /*.json$", "/x/y.json?z", true),
            ("user-agent: *\ndisallow: /s?q=", "/s?q=coin", false),
            ("user-agent: *\ndisallow: /*q=*&p=", "/s?q=coin&p=2", false),
            ("user-agent: *\ndisallow: /*q=*&p=", "/s?p=2&q=coin", true),
            ("user-agent: *\ndisallow: /a$", "/a", false),
            ("user-agent: *\ndisallow: /a$", "/a/b", true),
            ("user-agent: *\ndisallow: /%7ejoe/ä", "/~joe/%C3%A4/x", false),
            ("user-agent: *\ndisallow: /a%2fb", "/a/b", true),
            ("disallow: /", "/a", true),
        ] {
            assert_eq!(Rules::parse(file).allow(path), allowed, "{file:?} {path}");
        }
    }

    #[test]
    fn a_group_for_us_is_the_only_one_that_counts() {
        for (file, allowed) in [
            ("user-agent: *\ndisallow: /\n\nuser-agent: quell\ndisallow: /b", true),
            ("user-agent: QUELL/2.0\nuser-agent: other\ndisallow: /a\n\nuser-agent: *\nallow: /", false),
            (
                "user-agent: quell\nallow: /a/b\nuser-agent: x\ndisallow: /\nuser-agent: quell\ndisallow: /a",
                false,
            ),
            ("user-agent: quell\nuser-agent: *\ndisallow: /a", false),
            ("user-agent: quellbot\ndisallow: /", true),
            // Lines that are neither end no group, so this is one group for both.
            ("user-agent: quell\ncrawl-delay: 3\n\nuser-agent: *\ndisallow: /", false),
            ("\u{feff}user-agent: quell\nsitemap: https://x/y\ndisallow: /a", false),
        ] {
            assert_eq!(Rules::parse(file).allow("/a"), allowed, "{file:?}");
        }
    }
}
