//! Which answers may be used again, and for how long: RFC 9111, bounded by the source's own time to live.
//!
//! The rules are those of `http-cache-semantics`, asked as a pure function of request, answer and time. The cache is a
//! *private* one: it belongs to one source of one tenant, so `private` answers are kept. What the rules need is stored
//! with the answer ([`Kept`]) and the policy is built anew each time, so that the stored form is ours and small: only
//! listed headers, no cookies, no credentials.
//!
//! Two things keep one caller's answer from another's. Headers of a request that are not on a short list of harmless
//! ones go into the key as a digest, so two credentials never share an answer. The harmless ones are compared where
//! the answer's `Vary` asks for it.
//!
//! An answer is kept under two keys: [`Keys::fresh`] for as long as it may be served as it is, and, where it can be
//! asked for with a validator, [`Keys::stale`] for the whole time to live. The store ends both by its own clock, and
//! single flight on the fresh key covers the question "has it changed?", too.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_cache_semantics::{BeforeRequest, CacheOptions, CachePolicy};
use reqwest::Url;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::call::{Call, Reply};

/// Headers of a request that say nothing about who asks. All others are secrets until somebody thinks about them.
const HARMLESS: [HeaderName; 6] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::ACCEPT_LANGUAGE,
    header::CACHE_CONTROL,
    header::PRAGMA,
    header::USER_AGENT,
];

/// Headers with which a caller does its own caching, or asks for a part: such a request goes past the cache.
const OWN_CONDITIONS: [HeaderName; 6] = [
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
    header::IF_RANGE,
    header::RANGE,
];

/// Headers of an answer that are kept.
const KEPT_HEADERS: [HeaderName; 12] = [
    header::AGE,
    header::CACHE_CONTROL,
    header::CONTENT_DISPOSITION,
    header::CONTENT_LANGUAGE,
    header::CONTENT_TYPE,
    header::DATE,
    header::ETAG,
    header::EXPIRES,
    header::LAST_MODIFIED,
    header::LINK,
    header::PRAGMA,
    header::VARY,
];

/// A year: nothing is kept for so long, and an answer whose age cannot be read is as old.
const AGE_MAX_S: u64 = 365 * 24 * 3600;

/// The form of [`Kept`]; an entry of another form is as good as none.
const FORM: u8 = 1;

/// Where an answer is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) fresh: String,
    pub(crate) stale: String,
}

impl Keys {
    /// None for what is never taken from a cache.
    pub(crate) fn of(call: &Call, url: &Url) -> Option<Keys> {
        let plain = call.method == Method::GET && call.body.is_empty();
        if !plain || OWN_CONDITIONS.iter().any(|name| call.headers.contains_key(name)) {
            return None;
        }
        let mut secrets: Vec<(&[u8], &[u8])> = call
            .headers
            .iter()
            .filter(|(name, _)| !HARMLESS.contains(name))
            .map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
            .collect();
        secrets.sort_unstable();
        // A fragment is never sent, so it makes no other answer.
        let address = url.as_str().split('#').next().unwrap_or_default();
        let mut digest = Sha256::new();
        let parts = secrets.iter().flat_map(|(name, value)| [*name, *value]);
        for part in std::iter::once(address.as_bytes()).chain(parts) {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        let hex: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Keys { fresh: format!("http/{hex}"), stale: format!("http-stale/{hex}") })
    }
}

/// An answer as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    form: u8,
    status: u16,
    headers: Vec<(String, String)>,
    /// The harmless headers of the request, for `Vary`.
    asked: Vec<(String, String)>,
    /// Wall clock of the worker that got the answer, in milliseconds since the epoch.
    received_ms: u64,
    body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Body {
    Text(String),
    Base64(String),
}

/// How long an answer may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keeping {
    /// May be served as it is.
    pub(crate) fresh: Duration,
    /// May be asked about with its validator: the whole time to live, or zero where there is no use in it.
    pub(crate) stale: Duration,
}

impl Kept {
    /// The answer as it is kept, and for how long; none where it must not be.
    pub(crate) fn new(call: &Call, reply: &Reply, now: SystemTime, ttl: Duration) -> Option<(Kept, Keeping)> {
        let kept = Kept {
            form: FORM,
            status: reply.status.as_u16(),
            headers: texts(&reply.headers, &KEPT_HEADERS),
            asked: texts(&call.headers, &HARMLESS),
            received_ms: millis(now),
            body: Body::of(&reply.body),
        };
        let keeping = kept.keeping(call, now, ttl)?;
        Some((kept, keeping))
    }

    pub(crate) fn read(value: serde_json::Value) -> Option<Kept> {
        serde_json::from_value(value).ok().filter(|kept: &Kept| kept.form == FORM)
    }

    pub(crate) fn value(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("text, numbers and lists are always JSON")
    }

    /// Whether this answers the call as it is: the same variant, and as fresh as the call demands.
    pub(crate) fn serves(&self, call: &Call, now: SystemTime, ttl: Duration) -> bool {
        let Some((policy, request)) = self.policy(call, ttl) else { return false };
        matches!(policy.before_request(&request, now), BeforeRequest::Fresh(_))
    }

    /// The call as a question whether this answer has changed; none where that cannot be asked.
    pub(crate) fn question(&self, call: &Call, now: SystemTime, ttl: Duration) -> Option<Call> {
        let (policy, request) = self.policy(call, ttl)?;
        let BeforeRequest::Stale { request, matches: true } = policy.before_request(&request, now) else {
            return None;
        };
        let mut question = call.clone();
        for name in [header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE] {
            if let Some(value) = request.headers.get(&name) {
                question.headers.insert(name, value.clone());
            }
        }
        (question.headers.len() > call.headers.len()).then_some(question)
    }

    /// This answer with the headers of a 304 put over its own. None when the 304 speaks of another version.
    pub(crate) fn renewed(
        &self,
        call: &Call,
        not_modified: &Reply,
        now: SystemTime,
        ttl: Duration,
    ) -> Option<(Kept, Keeping)> {
        let etag = not_modified.headers.get(header::ETAG).and_then(|value| value.to_str().ok());
        if let (Some(theirs), Some(ours)) = (etag, self.header(&header::ETAG)) {
            // If-None-Match compares weakly (RFC 9110, 8.8.3.2).
            if theirs.trim_start_matches("W/") != ours.trim_start_matches("W/") {
                return None;
            }
        }
        let news = texts(&not_modified.headers, &KEPT_HEADERS);
        let mut headers = self.headers.clone();
        // An age counts from the answer it came with.
        headers.retain(|(name, _)| name != header::AGE.as_str() && !news.iter().any(|(new, _)| new == name));
        headers.extend(news);
        let kept = Kept { headers, received_ms: millis(now), ..self.clone() };
        let keeping = kept.keeping(call, now, ttl)?;
        Some((kept, keeping))
    }

    /// The answer for the handler. None when the stored body cannot be read.
    pub(crate) fn reply(&self) -> Option<Reply> {
        let body = match &self.body {
            Body::Text(text) => text.clone().into_bytes(),
            Body::Base64(text) => STANDARD.decode(text).ok()?,
        };
        Some(Reply { status: StatusCode::from_u16(self.status).ok()?, headers: header_map(&self.headers), body })
    }

    fn keeping(&self, call: &Call, now: SystemTime, ttl: Duration) -> Option<Keeping> {
        let (policy, _) = self.policy(call, ttl)?;
        if !policy.is_storable() || self.header(&header::VARY).is_some_and(|names| names.contains('*')) {
            return None;
        }
        let fresh = policy.time_to_live(now).min(ttl);
        let can_ask = self.header(&header::ETAG).is_some() || self.header(&header::LAST_MODIFIED).is_some();
        let stale = if can_ask && fresh < ttl { ttl } else { Duration::ZERO };
        (!fresh.is_zero() || !stale.is_zero()).then_some(Keeping { fresh, stale })
    }

    /// The rules for this answer and the call as they see it.
    fn policy(&self, call: &Call, ttl: Duration) -> Option<(CachePolicy, Request<()>)> {
        // The key has already told the URL and the method; the rules are asked about one and the same.
        let request = |headers: HeaderMap| {
            let mut request = Request::new(());
            *request.headers_mut() = headers;
            request
        };
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(self.status).ok()?;
        *response.headers_mut() = self.ruled_headers(ttl);
        let options = CacheOptions { shared: false, cache_heuristic: 0.0, ..CacheOptions::default() };
        let received = UNIX_EPOCH.checked_add(Duration::from_millis(self.received_ms))?;
        let asked = request(header_map(&self.asked));
        let policy = CachePolicy::new_options(&asked, &response, received, options);
        Some((policy, request(header_map(&texts(&call.headers, &HARMLESS)))))
    }

    /// The headers as the rules are given them. Directives are in lower case, as the crate compares them so; an age is
    /// bounded, because the crate adds to it without a check; and an answer that says nothing of its freshness gets the
    /// source's time to live. What was said to shared caches alone is taken as said to us.
    fn ruled_headers(&self, ttl: Duration) -> HeaderMap {
        let mut headers = header_map(&self.headers);
        let mut directives: Vec<String> = self
            .headers
            .iter()
            .filter(|(name, _)| name == header::CACHE_CONTROL.as_str())
            .flat_map(|(_, value)| value.split(','))
            .map(|directive| directive.trim().to_ascii_lowercase())
            .collect();
        let has = |name: &str| directives.iter().any(|d| d.split('=').next().map(str::trim) == Some(name));
        if !has("max-age") {
            let pragma = directives.is_empty() && self.header(&header::PRAGMA).is_some();
            let silent = !has("no-cache") && self.header(&header::EXPIRES).is_none() && !pragma;
            if let Some(shared) = directives.iter().find_map(|d| d.strip_prefix("s-maxage=")) {
                directives.push(format!("max-age={shared}"));
            } else if silent {
                directives.push(format!("max-age={}", ttl.as_secs()));
            }
        }
        headers.remove(header::CACHE_CONTROL);
        if let (false, Ok(value)) = (directives.is_empty(), HeaderValue::from_str(&directives.join(", "))) {
            headers.insert(header::CACHE_CONTROL, value);
        }
        if let Some(age) = headers.remove(header::AGE) {
            let seconds = age.to_str().ok().and_then(|text| text.trim().parse().ok()).unwrap_or(AGE_MAX_S);
            headers.insert(header::AGE, HeaderValue::from(seconds.min(AGE_MAX_S)));
        }
        headers
    }

    fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name.as_str()).map(|(_, value)| value.as_str())
    }
}

impl Body {
    fn of(bytes: &[u8]) -> Body {
        match std::str::from_utf8(bytes) {
            Ok(text) => Body::Text(text.to_owned()),
            Err(_) => Body::Base64(STANDARD.encode(bytes)),
        }
    }
}

/// The listed headers as text; a value that is none is left out.
fn texts(headers: &HeaderMap, listed: &[HeaderName]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for name in listed {
        for value in headers.get_all(name) {
            if let Ok(text) = value.to_str() {
                found.push((name.as_str().to_owned(), text.to_owned()));
            }
        }
    }
    found
}

fn header_map(texts: &[(String, String)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in texts {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.append(name, value);
        }
    }
    headers
}

fn millis(moment: SystemTime) -> u64 {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
