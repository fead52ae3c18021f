//! One key for one item, however often and however spelt it is met, and one key for one question to a source.
//!
//! An item that its source calls by an id of its own is `ext_` and that id. Any other is `hash_` and the first 16 hex digits
//! of SHA-256 over five parts with a line feed between them: the URL without query and fragment, the title in lower case with
//! single spaces, the price in the smallest unit of its currency, the day in UTC, and what the price means. The vectors in
//! `tests/fixtures/dedupe.json` were computed elsewhere; a change that breaks one makes a second point of every item there is.
//!
//! A URL that cannot be read as one (a path without a host, or garbage) is taken as the text it is, cut before the query and
//! the fragment and without the slash at its end: within one source it still tells two items apart.

use std::collections::BTreeMap;

use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::SourceName;
use quell::quell_core::limits;
use sha2::{Digest, Sha256};
use url::Url;

use crate::found::Found;
use crate::intake::{About, Attribute};

/// How the key of an item with an id of its own begins.
pub const EXTERNAL: &str = "ext_";
const HASHED: &str = "hash_";

/// Hex digits of a digest in a key: 64 bits tell the few thousand points of an intake apart.
const HEX_DIGITS: usize = 16;

/// The five parts that an item without an id is known by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// Empty when there is none.
    pub url: String,
    pub title: String,
    pub cents: i64,
    /// YYYY-MM-DD in UTC.
    pub date: String,
    pub price_type: &'static str,
}

impl Parts {
    /// The parts of an item that was met at this moment, which counts if the source gives no date.
    pub fn of(found: &Found, observed: Timestamp) -> Parts {
        Parts {
            url: found.url.as_deref().map(plain_url).unwrap_or_default(),
            title: plain_text(&found.title),
            cents: found.price.cents,
            date: day(found.date.unwrap_or(observed)),
            price_type: found.price_type.as_str(),
        }
    }

    /// What they are hashed as.
    pub fn joined(&self) -> String {
        let Parts { url, title, cents, date, price_type } = self;
        format!("{url}\n{title}\n{cents}\n{date}\n{price_type}")
    }
}

/// The key of an item that was met at this moment.
pub fn key(found: &Found, observed: Timestamp) -> String {
    match found.external_id.as_deref().filter(|id| !id.is_empty()) {
        Some(id) => format!("{EXTERNAL}{id}"),
        None => format!("{HASHED}{}", digest(&Parts::of(found, observed).joined())),
    }
}

/// Under which the answers of a source to one question are kept: `source|year|mintmark|denomination|series|title`, the parts
/// as titles are compared and with `|` and `\` escaped, a missing one empty. Further values of a request add a digest. A key
/// that is longer than the store keeps is the digest of itself.
pub fn cache_key(source: &SourceName, about: &About, params: &BTreeMap<String, String>) -> String {
    let mut key = source.as_str().to_owned();
    for attribute in Attribute::ALL {
        key.push('|');
        for c in plain_text(about.get(attribute).unwrap_or_default()).chars() {
            if matches!(c, '|' | '\\') {
                key.push('\\');
            }
            key.push(c);
        }
    }
    if !params.is_empty() {
        let joined = serde_json::to_string(params).expect("a map of texts is always JSON");
        key.push('|');
        key.push_str(&digest(&joined));
    }
    match key.len() <= limits::CACHE_KEY_BYTES_MAX {
        true => key,
        false => format!("{source}|{}", hex(&key)),
    }
}

/// Lower case, white space of any kind trimmed and made one space.
pub fn plain_text(text: &str) -> String {
    text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Scheme and host in lower case, no default port, no query, no fragment, no slash at the end.
pub fn plain_url(text: &str) -> String {
    let text = text.trim();
    let plain = match Url::parse(text) {
        Ok(mut url) => {
            url.set_query(None);
            url.set_fragment(None);
            String::from(url)
        }
        Err(_) => text.split(['?', '#']).next().unwrap_or_default().trim_end().to_owned(),
    };
    plain.trim_end_matches('/').to_owned()
}

fn day(at: Timestamp) -> String {
    // Every time that was read from a text is within the calendar; a number that is not stands for no day at all.
    let moment = jiff::Timestamp::from_millisecond(at.as_millis()).unwrap_or_default();
    jiff::tz::TimeZone::UTC.to_datetime(moment).date().to_string()
}

fn digest(text: &str) -> String {
    let mut hex = hex(text);
    hex.truncate(HEX_DIGITS);
    hex
}

fn hex(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
