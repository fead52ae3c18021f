//! Which answers may be used again, and for how long: RFC 9111, bounded by the source's own time to live.
//!
//! The rules are those of `http-cache-semantics`, asked as a pure function of request, answer and time. The cache is a
//! *private* one: it belongs to one source of one tenant, so `private` answers are kept. What is stored ([`Kept`]) is our
//! own small form: only listed headers, no cookies, no credentials.
//!
//! Two things keep one caller's answer from another's. Headers of a request that are not on a short list of harmless
//! ones go into the key as a digest, so two credentials never share an answer. The harmless ones are compared where
//! the answer's `Vary` asks for it.
//!
//! How long an answer is fresh is computed once, when it arrives. Whether that time has passed is the store's to say:
//! it is asked for an answer of at most that age, by its own clock. An answer that says nothing of its freshness is as
//! fresh as the source's declaration allows, and none is served for longer than that.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_cache_semantics::{BeforeRequest, CacheOptions, CachePolicy};
use quell_core::limits;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::call::{Call, Excess, Reply};

/// Headers of a request that say nothing about who asks. All others are secrets until somebody thinks about them.
const HARMLESS: [HeaderName; 4] =
    [header::ACCEPT, header::ACCEPT_ENCODING, header::ACCEPT_LANGUAGE, header::USER_AGENT];

/// Headers that are for the cache itself.
const FOR_THE_CACHE: [HeaderName; 2] = [header::CACHE_CONTROL, header::PRAGMA];

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
const KEPT_HEADERS: [HeaderName; 11] = [
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

/// The store is never asked for an answer of age zero, which would mean "none at all". An answer that must be asked
/// about every time is this fresh.
const SHORTEST: Duration = Duration::from_millis(1);

/// The form of [`Kept`]; an entry of another form is as good as none.
const FORM: u8 = 1;

/// Where the answer to a call is kept; none for what goes past the cache.
pub(crate) fn key_of(call: &Call, url: &Url) -> Option<String> {
    // What may be cut short is no answer for others.
    let whole = call.excess == Excess::Refuse;
    let plain = call.method == Method::GET && call.body.is_empty() && whole;
    let own = OWN_CONDITIONS.iter().any(|name| call.headers.contains_key(name));
    if !plain || own || directives(&call.headers).iter().any(|d| d == "no-store") {
        return None;
    }
    let secret = |name: &HeaderName| !HARMLESS.contains(name) && !FOR_THE_CACHE.contains(name);
    let mut secrets: Vec<(&[u8], &[u8])> = call
        .headers
        .iter()
        .filter(|(name, _)| secret(name))
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
    Some(format!("http/{hex}"))
}

/// How old an answer may be by the request's own words; none when it says nothing.
fn demanded(call: &Call) -> Option<Duration> {
    let said = directives(&call.headers);
    let pragma = said.is_empty() && call.headers.get(header::PRAGMA).is_some_and(|value| value == "no-cache");
    if pragma || said.iter().any(|d| d == "no-cache") {
        return Some(Duration::ZERO);
    }
    said.iter().find_map(|d| d.strip_prefix("max-age=")?.parse().ok()).map(Duration::from_secs)
}

/// An answer as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    form: u8,
    status: u16,
    headers: Vec<(String, String)>,
    /// The harmless headers of the request, for `Vary`.
    asked: Vec<(String, String)>,
    /// How long it may be served as it is, from when it was kept; missing when it did not say.
    fresh_ms: Option<u64>,
    body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Body {
    Text(String),
    Base64(String),
}

impl Kept {
    /// The answer as it is kept; none where it must not be, or where that would be of no use.
    pub(crate) fn new(call: &Call, reply: &Reply, now: SystemTime) -> Option<Kept> {
        if !reply.status.is_success() {
            return None;
        }
        let kept = Kept {
            form: FORM,
            status: reply.status.as_u16(),
            headers: texts(&reply.headers, &KEPT_HEADERS),
            asked: texts(&call.headers, &HARMLESS),
            fresh_ms: None,
            body: Body::of(&reply.body),
        };
        kept.judged(reply.headers.get(header::AGE), now)
    }

    /// None for what is not of this form: it is fetched anew.
    pub(crate) fn read(value: serde_json::Value) -> Option<Kept> {
        serde_json::from_value(value).ok().filter(|kept: &Kept| kept.form == FORM && kept.reply().is_some())
    }

    pub(crate) fn value(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("text, numbers and lists are always JSON")
    }

    /// Whether this is the variant that the call asks for.
    pub(crate) fn fits(&self, call: &Call) -> bool {
        let mut request = Request::new(());
        *request.headers_mut() = header_map(&texts(&call.headers, &HARMLESS));
        let then = SystemTime::UNIX_EPOCH;
        match self.policy(header_map(&self.headers), then).before_request(&request, then) {
            BeforeRequest::Fresh(_) => true,
            BeforeRequest::Stale { matches, .. } => matches,
        }
    }

    /// The age up to which this answers the call as it is; none when neither of them sets a limit.
    pub(crate) fn fresh_for(&self, call: &Call) -> Option<Duration> {
        let own = self.fresh_ms.map(Duration::from_millis);
        let shorter = [own, demanded(call)].into_iter().flatten().min();
        shorter.map(|age| age.max(SHORTEST))
    }

    /// How long it is worth keeping: as long as the source allows where it can be asked about later, else while fresh.
    pub(crate) fn worth(&self) -> Option<Duration> {
        if self.has_validator() { None } else { self.fresh_ms.map(Duration::from_millis) }
    }

    /// The call as the question whether this answer has changed; without a validator it is the call itself.
    pub(crate) fn question(&self, call: &Call) -> Call {
        let mut question = call.clone();
        let validators =
            [(header::ETAG, header::IF_NONE_MATCH), (header::LAST_MODIFIED, header::IF_MODIFIED_SINCE)];
        for (told, asked) in validators {
            if let Some(value) = self.header(&told).and_then(|text| HeaderValue::from_str(text).ok()) {
                question.headers.insert(asked, value);
            }
        }
        question
    }

    /// Whether a 304 speaks of this answer. Validators are compared weakly (RFC 9110, 8.8.3.2); a 304 without one
    /// answers the only question that was asked.
    pub(crate) fn is_meant_by(&self, not_modified: &Reply) -> bool {
        let theirs = not_modified.headers.get(header::ETAG).and_then(|value| value.to_str().ok());
        match (theirs, self.header(&header::ETAG)) {
            (Some(theirs), Some(ours)) => theirs.trim_start_matches("W/") == ours.trim_start_matches("W/"),
            _ => self.has_validator(),
        }
    }

    /// This answer with the headers of a 304 put over its own, and whether it may be kept on.
    pub(crate) fn renewed(mut self, not_modified: &Reply, now: SystemTime) -> (Kept, bool) {
        let news = texts(&not_modified.headers, &KEPT_HEADERS);
        self.headers.retain(|(name, _)| !news.iter().any(|(new, _)| new == name));
        self.headers.extend(news);
        match self.clone().judged(not_modified.headers.get(header::AGE), now) {
            Some(kept) => (kept, true),
            None => (self, false),
        }
    }

    /// The answer for the handler. None when what was stored cannot be read.
    pub(crate) fn reply(&self) -> Option<Reply> {
        let body = match &self.body {
            Body::Text(text) => text.clone().into_bytes(),
            Body::Base64(text) => STANDARD.decode(text).ok()?,
        };
        Some(Reply {
            status: StatusCode::from_u16(self.status).ok()?,
            headers: header_map(&self.headers),
            body,
        })
    }

    /// Computes the freshness; none when the rules forbid to keep it, or when it would never be used.
    fn judged(mut self, age: Option<&HeaderValue>, now: SystemTime) -> Option<Kept> {
        let (mut headers, silent) = self.ruled_headers();
        if let Some(age) = age {
            // An age that cannot be read is the greatest.
            let seconds = age.to_str().ok().and_then(|text| text.trim().parse().ok()).unwrap_or(u64::MAX);
            headers.insert(header::AGE, HeaderValue::from(seconds));
        }
        let policy = self.policy(headers, now);
        let varies_always = self.header(&header::VARY).is_some_and(|names| names.contains('*'));
        if !policy.is_storable() || varies_always {
            return None;
        }
        let fresh = policy.time_to_live(now).min(limits::CACHE_TTL_MAX);
        self.fresh_ms =
            if silent { None } else { Some(u64::try_from(fresh.as_millis()).unwrap_or(u64::MAX)) };
        (silent || !fresh.is_zero() || self.has_validator()).then_some(self)
    }

    fn policy(&self, headers: HeaderMap, received: SystemTime) -> CachePolicy {
        // The key has already told the URL and the method; the rules are asked about one and the same.
        let mut request = Request::new(());
        *request.headers_mut() = header_map(&self.asked);
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::NOT_IMPLEMENTED);
        *response.headers_mut() = headers;
        let options = CacheOptions { shared: false, cache_heuristic: 0.0, ..CacheOptions::default() };
        CachePolicy::new_options(&request, &response, received, options)
    }

    /// The headers as the rules are given them, and whether they say nothing of freshness. Directives are put in lower
    /// case, because the rules compare them so; what was said to shared caches alone is taken as said to us.
    fn ruled_headers(&self) -> (HeaderMap, bool) {
        let mut headers = header_map(&self.headers);
        let mut said = directives(&headers);
        let has = |name: &str| said.iter().any(|d| d.split('=').next().map(str::trim) == Some(name));
        let pragma = said.is_empty() && headers.contains_key(header::PRAGMA);
        let timed = has("max-age") || has("s-maxage") || has("no-cache") || has("immutable");
        let silent = !timed && !pragma && !headers.contains_key(header::EXPIRES);
        let shared = said.iter().find_map(|d| d.strip_prefix("s-maxage=")).map(str::to_owned);
        if let (false, Some(seconds)) = (has("max-age"), shared) {
            said.push(format!("max-age={seconds}"));
        }
        headers.remove(header::CACHE_CONTROL);
        if let (false, Ok(value)) = (said.is_empty(), HeaderValue::from_str(&said.join(", "))) {
            headers.insert(header::CACHE_CONTROL, value);
        }
        (headers, silent)
    }

    fn has_validator(&self) -> bool {
        self.header(&header::ETAG).is_some() || self.header(&header::LAST_MODIFIED).is_some()
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

/// The directives of `Cache-Control`, in lower case.
fn directives(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(header::CACHE_CONTROL).into_iter().filter_map(|value| value.to_str().ok());
    let split = values.flat_map(|value| value.split(','));
    split.map(|directive| directive.trim().to_ascii_lowercase()).filter(|d| !d.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(headers: &[(&str, &str)]) -> Call {
        let mut call = Call::get("http://example.com/a?b=1#c");
        call.headers = header_map(&pairs(headers));
        call
    }

    fn pairs(headers: &[(&str, &str)]) -> Vec<(String, String)> {
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn reply(status: u16, headers: &[(&str, &str)]) -> Reply {
        Reply {
            status: StatusCode::from_u16(status).unwrap(),
            headers: header_map(&pairs(headers)),
            body: b"body".to_vec(),
        }
    }

    fn key(call: &Call) -> Option<String> {
        key_of(call, &Url::parse(&call.url).unwrap())
    }

    fn kept(headers: &[(&str, &str)]) -> Option<Kept> {
        // Sun, 06 Nov 1994 08:49:37 GMT, the moment of the examples in the standard.
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        Kept::new(&call(&[]), &reply(200, headers), now)
    }

    #[test]
    fn answers_are_kept_by_the_rules() {
        // What an answer says, and for how many seconds it is fresh: none = not kept, silent = as the source says.
        const NOT_KEPT: Option<Option<u64>> = None;
        const SILENT: Option<Option<u64>> = Some(None);
        const DATE: (&str, &str) = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        type Case<'a> = (&'a [(&'a str, &'a str)], Option<Option<u64>>);
        let cases: &[Case<'_>] = &[
            (&[], SILENT),
            (&[("etag", "\"1\"")], SILENT),
            (&[("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT")], SILENT),
            (&[("cache-control", "public")], SILENT),
            (&[("cache-control", "private")], SILENT),
            (&[("cache-control", "max-age=60")], Some(Some(60))),
            (&[("cache-control", "Max-Age=60")], Some(Some(60))),
            (&[("cache-control", "private, max-age=60")], Some(Some(60))),
            (&[("cache-control", "max-age=60"), ("age", "20")], Some(Some(40))),
            (&[("cache-control", "max-age=60"), ("age", "60")], NOT_KEPT),
            (&[("cache-control", "max-age=60"), ("age", "18446744073709551615")], NOT_KEPT),
            (&[("cache-control", "max-age=60"), ("age", "-1")], NOT_KEPT),
            (&[("cache-control", "max-age=60"), ("expires", "0")], Some(Some(60))),
            (&[("cache-control", "max-age=0")], NOT_KEPT),
            (&[("cache-control", "max-age=x")], NOT_KEPT),
            (&[("cache-control", "max-age=0"), ("etag", "\"1\"")], Some(Some(0))),
            (&[("cache-control", "no-cache"), ("etag", "\"1\"")], Some(Some(0))),
            (&[("cache-control", "no-cache")], NOT_KEPT),
            (&[("cache-control", "no-store")], NOT_KEPT),
            (&[("cache-control", "No-Store, max-age=60")], NOT_KEPT),
            (&[("cache-control", "max-age=60"), ("cache-control", "NO-STORE")], NOT_KEPT),
            (&[("cache-control", "s-maxage=30")], Some(Some(30))),
            (&[("cache-control", "s-maxage=30, max-age=60")], Some(Some(60))),
            (&[("cache-control", "max-age=99999999999")], Some(Some(30 * 24 * 3600))),
            (&[("pragma", "no-cache")], NOT_KEPT),
            (&[DATE, ("expires", "Sun, 06 Nov 1994 08:51:37 GMT")], Some(Some(120))),
            (&[("expires", "Sun, 06 Nov 1994 08:51:37 GMT")], Some(Some(120))),
            (&[DATE, ("expires", "Sun, 06 Nov 1994 08:39:37 GMT")], NOT_KEPT),
            (&[("expires", "0")], NOT_KEPT),
            (&[("vary", "*")], NOT_KEPT),
            (&[("vary", "accept, *"), ("cache-control", "max-age=60")], NOT_KEPT),
        ];
        for (headers, expected) in cases {
            let found = kept(headers).map(|kept| kept.fresh_ms.map(|ms| ms / 1000));
            assert_eq!(found, *expected, "{headers:?}");
        }
        for status in [201, 202, 206, 301, 302, 304, 400, 404, 410, 429, 500] {
            let answer = reply(status, &[("cache-control", "max-age=60")]);
            assert_eq!(Kept::new(&call(&[]), &answer, SystemTime::UNIX_EPOCH), None, "{status}");
        }
    }

    #[test]
    fn two_credentials_never_share_an_answer() {
        let plain = key(&call(&[]));
        assert!(plain.as_ref().is_some_and(|key| key.len() == 69 && key.starts_with("http/")));
        let keys = [
            plain.clone(),
            key(&call(&[("authorization", "Bearer a")])),
            key(&call(&[("authorization", "Bearer b")])),
            key(&call(&[("x-api-key", "a")])),
            key(&call(&[("cookie", "a")])),
            key(&Call::get("http://example.com/a?b=2")),
        ];
        for (i, one) in keys.iter().enumerate() {
            assert!(keys.iter().skip(i + 1).all(|other| other != one), "{i}");
        }
        assert_eq!(key(&call(&[("accept", "text/html"), ("cache-control", "no-cache")])), plain);
        assert_eq!(key(&Call::get("http://example.com/a?b=1")), plain, "a fragment is not sent");
    }

    #[test]
    fn some_calls_go_past_the_cache() {
        for name in ["range", "if-match", "if-none-match", "if-modified-since", "if-range"] {
            assert_eq!(key(&call(&[(name, "x")])), None, "{name}");
        }
        assert_eq!(key(&call(&[("cache-control", "No-Store")])), None);
        assert_eq!(key(&Call::new(Method::POST, "http://example.com/")), None);
        assert_eq!(key(&Call::new(Method::HEAD, "http://example.com/")), None);
        assert_eq!(key(&call(&[]).body("x")), None);
        assert_eq!(key(&call(&[]).excess(Excess::Drop)), None);
    }

    #[test]
    fn another_variant_does_not_fit() {
        let german = call(&[("accept-language", "de"), ("accept", "text/html")]);
        let answer = reply(200, &[("vary", "Accept-Language")]);
        let kept = Kept::new(&german, &answer, SystemTime::UNIX_EPOCH).unwrap();
        assert!(kept.fits(&german));
        assert!(kept.fits(&call(&[("accept-language", "de"), ("accept", "image/png")])));
        assert!(!kept.fits(&call(&[("accept-language", "en")])));
        assert!(!kept.fits(&call(&[])));
    }

    #[test]
    fn the_younger_demand_counts() {
        let minute = kept(&[("cache-control", "max-age=60")]).unwrap();
        let seconds =
            |headers: &[(&str, &str)]| minute.fresh_for(&call(headers)).map(|age| age.as_secs_f64());
        assert_eq!(seconds(&[]), Some(60.0));
        assert_eq!(seconds(&[("cache-control", "max-age=10")]), Some(10.0));
        assert_eq!(seconds(&[("cache-control", "max-age=100")]), Some(60.0));
        assert_eq!(seconds(&[("cache-control", "no-cache")]), Some(0.001));
        assert_eq!(seconds(&[("pragma", "no-cache")]), Some(0.001));
        assert_eq!(kept(&[]).unwrap().fresh_for(&call(&[])), None);
    }

    #[test]
    fn a_question_carries_the_validators_and_a_304_renews_the_headers() {
        let old =
            kept(&[("etag", "W/\"1\""), ("cache-control", "max-age=1"), ("content-type", "text/x")]).unwrap();
        let question = old.question(&call(&[("accept", "a")]));
        assert_eq!(question.headers[header::IF_NONE_MATCH], "W/\"1\"");
        assert_eq!(question.headers.len(), 2);
        assert_eq!(old.worth(), None, "it can be asked about as long as the source allows");
        assert!(old.is_meant_by(&reply(304, &[("etag", "\"1\"")])));
        assert!(old.is_meant_by(&reply(304, &[])));
        assert!(!old.is_meant_by(&reply(304, &[("etag", "\"2\"")])));
        let news = reply(304, &[("cache-control", "max-age=7"), ("set-cookie", "a=b")]);
        let (renewed, keep) = old.clone().renewed(&news, SystemTime::UNIX_EPOCH);
        assert!(keep);
        assert_eq!(renewed.fresh_ms, Some(7000));
        let answer = renewed.reply().unwrap();
        assert_eq!((answer.body, answer.headers.len()), (b"body".to_vec(), 3));
        let (_, keep) = old.renewed(&reply(304, &[("cache-control", "no-store")]), SystemTime::UNIX_EPOCH);
        assert!(!keep);
    }

    #[test]
    fn what_is_stored_is_small_and_read_again() {
        let mut answer =
            reply(200, &[("content-type", "text/x"), ("set-cookie", "secret"), ("x-trace", "1")]);
        let asked = call(&[("authorization", "secret"), ("accept", "a")]);
        for body in ["text".as_bytes(), &[0xff, 0, 1]] {
            answer.body = body.to_vec();
            let kept = Kept::new(&asked, &answer, SystemTime::UNIX_EPOCH).unwrap();
            assert!(!kept.value().to_string().contains("secret"));
            let again = Kept::read(kept.value()).unwrap();
            assert_eq!(again, kept);
            let served = again.reply().unwrap();
            assert_eq!((served.body.as_slice(), served.headers.len()), (body, 1));
        }
        let good = kept(&[]).unwrap();
        let broken = Kept { body: Body::Base64("?".into()), ..good.clone() };
        for other in [broken.value(), Kept { form: 2, ..good }.value(), serde_json::json!("text")] {
            assert_eq!(Kept::read(other), None);
        }
    }
}
