//! Who an event belongs to and what may be appended: the checked vocabulary at the entrance.
//!
//! Every value here is checked when it is made, so the rest of the engine never asks again: a [`Key`] is never empty
//! or too long, a [`Payload`] is always valid JSON within its depth bound and keeps the bytes as they were sent.
//! First stop on the path of an event; the next one is `window.rs`, then the store's `append.rs`.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::clock::Timestamp;
use crate::limits;
use crate::window::{Window, WindowPolicy};

/// Why a name, key, id or payload was not accepted. The text says what is wrong and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {problem}")]
pub struct Invalid {
    /// What it should have been: `queue`, `key`, `payload`, …
    pub what: &'static str,
    /// Completes the sentence "a queue …".
    pub problem: String,
}

impl Invalid {
    fn new(what: &'static str, problem: impl Into<String>) -> Self {
        Invalid { what, problem: problem.into() }
    }
}

macro_rules! text_type {
    ($(#[$doc:meta])* $name:ident, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        /// As bytes. The lanes of one transaction mostly share the texts of their tenant and queue: those are not read.
        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl $name {
            /// Checked: the error says what it may look like.
            pub fn new(text: impl AsRef<str>) -> Result<Self, Invalid> {
                let text = text.as_ref();
                $check(text)?;
                Ok($name(Arc::from(text)))
            }

            /// As it was written.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = Invalid;
            fn try_from(text: String) -> Result<Self, Invalid> {
                $name::new(text)
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.0.to_string()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        /// Shown escaped: keys may hold any character, and a terminal must not be steered by one.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                for c in self.0.chars() {
                    if c.is_control() { write!(f, "{}", c.escape_default())? } else { write!(f, "{c}")? }
                }
                Ok(())
            }
        }
    };
}

text_type!(
    /// A named kind of work, `[a-z0-9._-]{1,64}`.
    QueueName,
    check_queue
);
text_type!(
    /// A governed outside party, `[a-z0-9._-]{1,64}` like a queue.
    SourceName,
    check_source
);
text_type!(
    /// Who the event belongs to: 1 to 512 bytes of UTF-8 without NUL, compared as bytes.
    Key,
    check_key
);
text_type!(
    /// The owner of a lane. No tenant is the empty text, never a missing value.
    Tenant,
    check_tenant
);
text_type!(
    /// The caller's id of an event, or one made by the engine.
    EventId,
    check_event_id
);

/// See [`QueueName::of_sources`].
const OF_SOURCES: &str = "quell.sources";

impl QueueName {
    /// The queue under which the trail tells what operators did to sources, with the source's name as the key. A record
    /// stands under a queue and a key, and sources belong to none. No event can be sent to it, and no listing of queues
    /// shows it.
    pub fn of_sources() -> Self {
        QueueName(Arc::from(OF_SOURCES))
    }

    /// Whether it is [`QueueName::of_sources`].
    pub fn is_of_sources(&self) -> bool {
        self.as_str() == OF_SOURCES
    }
}

impl Tenant {
    /// The tenant of those who have none.
    pub fn none() -> Self {
        // One text for all: nearly every event without tenants needs it, and comparing them reads nothing then.
        static NONE: LazyLock<Tenant> = LazyLock::new(|| Tenant(Arc::from("")));
        NONE.clone()
    }

    /// Whether it is nobody's: the tenant of those who have none.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }
}

fn check_queue(text: &str) -> Result<(), Invalid> {
    check_name("queue name", text)
}

fn check_source(text: &str) -> Result<(), Invalid> {
    check_name("source name", text)
}

fn check_name(what: &'static str, text: &str) -> Result<(), Invalid> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-');
    if text.is_empty() || text.len() > limits::QUEUE_NAME_BYTES_MAX || !text.chars().all(allowed) {
        return Err(Invalid::new(
            what,
            format!("{:?} is not 1 to 64 characters of a-z, 0-9, '.', '_' and '-'", shorten(text)),
        ));
    }
    Ok(())
}

fn check_key(text: &str) -> Result<(), Invalid> {
    if text.is_empty() {
        return Err(Invalid::new("key", "is empty; a key says who the event belongs to"));
    }
    check_text("key", text, limits::KEY_BYTES_MAX)
}

fn check_tenant(text: &str) -> Result<(), Invalid> {
    check_text("tenant", text, limits::TENANT_BYTES_MAX)
}

fn check_event_id(text: &str) -> Result<(), Invalid> {
    if text.is_empty() {
        return Err(Invalid::new("event id", "is empty; leave it out to have one made"));
    }
    check_text("event id", text, limits::EVENT_ID_BYTES_MAX)
}

fn check_text(what: &'static str, text: &str, max: usize) -> Result<(), Invalid> {
    if text.len() > max {
        return Err(Invalid::new(what, format!("has {} bytes; at most {max} are allowed", text.len())));
    }
    if text.contains('\0') {
        return Err(Invalid::new(what, "contains a NUL character, which no store keeps"));
    }
    Ok(())
}

fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

/// The identity of a lane. Two tenants never share one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LaneKey {
    /// The owner of the key; [`Tenant::none`] where there are no tenants.
    pub tenant: Tenant,
    /// The kind of work.
    pub queue: QueueName,
    /// Whose events they are.
    pub key: Key,
}

impl LaneKey {
    /// A lane without a tenant; [`LaneKey::of`] gives it one.
    pub fn new(queue: QueueName, key: Key) -> Self {
        LaneKey { tenant: Tenant::none(), queue, key }
    }

    /// The same lane of this tenant.
    #[must_use]
    pub fn of(mut self, tenant: Tenant) -> Self {
        self.tenant = tenant;
        self
    }
}

impl fmt::Display for LaneKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.tenant.is_none() {
            write!(f, "{}:", self.tenant)?;
        }
        write!(f, "{}/{}", self.queue, self.key)
    }
}

/// JSON as it was sent: `\u0000`, the order of keys and the form of numbers survive in every store.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload(Arc<str>);

impl Payload {
    /// Checks that `bytes` are one JSON value within the depth bound. Size is a queue's setting, checked by append.
    pub fn from_json(bytes: &[u8]) -> Result<Self, Invalid> {
        if bytes.len() > limits::PAYLOAD_BYTES_MAX {
            let max = limits::PAYLOAD_BYTES_MAX;
            return Err(Invalid::new(
                "payload",
                format!("has {} bytes; at most {max} are allowed", bytes.len()),
            ));
        }
        check_depth(bytes)?;
        let raw: &serde_json::value::RawValue = serde_json::from_slice(bytes)
            .map_err(|e| Invalid::new("payload", format!("is not valid JSON: {e}")))?;
        Ok(Payload(Arc::from(raw.get())))
    }

    /// A payload made by the program itself.
    pub fn of(value: &serde_json::Value) -> Self {
        Payload(Arc::from(value.to_string()))
    }

    /// Trusts bytes that a store gives back: they were checked when they were appended.
    pub fn from_stored(text: &str) -> Self {
        Payload(Arc::from(text))
    }

    /// The JSON as it was sent, byte for byte.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// In bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never: the shortest JSON has one byte.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads it as a type of the caller's.
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }

    /// Equal for payloads that are equal as parsed JSON, so that a provider's resend with other white space or key
    /// order is a duplicate and not a conflict. Stores compare this inside the append's transaction.
    pub fn fingerprint(&self) -> Fingerprint {
        let canonical = serde_json::from_str::<serde_json::Value>(&self.0).map(|v| normal(v).to_string());
        // A number beyond every machine type (1e999) cannot be parsed; then only equal bytes are equal.
        let text = canonical.as_deref().unwrap_or(&self.0);
        let digest = Sha256::digest(text.as_bytes());
        let mut short = [0; 16];
        short.copy_from_slice(&digest[..16]);
        Fingerprint(short)
    }
}

/// Payloads stay out of logs: only the size is printed.
impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.0.len())
    }
}

impl Serialize for Payload {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            return serializer.serialize_str(&self.0);
        }
        let raw: &serde_json::value::RawValue =
            serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// From a store's own rows, where it was checked on the way in; from JSON it would be read as part of a document.
impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let raw: Box<serde_json::value::RawValue> = Deserialize::deserialize(deserializer)?;
            return Ok(Payload(raw.get().into()));
        }
        String::deserialize(deserializer).map(|text| Payload(text.into()))
    }
}

/// The first 128 bits of a SHA-256 over the canonical form of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 16]);

/// 1.0 and 1 are the same number to every reader of JSON, so they are the same here.
fn normal(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Number(n) => match n.as_f64() {
            #[expect(clippy::cast_possible_truncation, reason = "checked to be a whole number below 2^53")]
            Some(f) if n.is_f64() && f.fract() == 0.0 && f.abs() < 9_007_199_254_740_992.0 => {
                Value::from(f as i64)
            }
            _ => Value::Number(n),
        },
        Value::Array(items) => items.into_iter().map(normal).collect(),
        Value::Object(map) => map.into_iter().map(|(k, v)| (k, normal(v))).collect(),
        other => other,
    }
}

fn check_depth(bytes: &[u8]) -> Result<(), Invalid> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for &b in bytes {
        if in_string {
            match b {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match b {
            b'"' => in_string = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > limits::PAYLOAD_DEPTH_MAX {
            let max = limits::PAYLOAD_DEPTH_MAX;
            return Err(Invalid::new("payload", format!("is nested deeper than {max} levels")));
        }
    }
    Ok(())
}

/// Small named strings that travel with an event (trace context, content type); an allow-list made by the edge.
pub type Headers = BTreeMap<String, String>;

/// How a queue receives events: decided by its settings, carried by each append.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AppendPolicy {
    /// When a lane with such events is due.
    pub window: Window,
    /// Payloads above this are refused.
    pub payload_bytes: usize,
    /// Events that may wait in one lane (buffered and in flight together).
    pub lane_events: u64,
    /// What happens to an event for a full lane.
    pub overflow: Overflow,
    /// An event without an id whose payload equals one in the still open window is that event again.
    pub content_dedupe: bool,
    /// The outside party that its runs ask, unless an event names its own.
    #[serde(default)]
    pub source: Option<SourceName>,
}

/// What a full lane does with one more event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// The sender is told, and nothing is stored.
    Reject,
    /// The oldest buffered events make room and are recorded as discarded. Events that a worker holds never do.
    DropOldest,
}

impl Default for AppendPolicy {
    fn default() -> Self {
        AppendPolicy {
            window: Window::default(),
            payload_bytes: limits::PAYLOAD_BYTES_DEFAULT,
            lane_events: limits::LANE_EVENTS_DEFAULT,
            overflow: Overflow::Reject,
            content_dedupe: false,
            source: None,
        }
    }
}

/// One event on its way in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewEvent {
    /// Where it goes.
    pub lane: LaneKey,
    /// Under which it is stored once.
    pub id: NewEventId,
    /// What it says.
    pub payload: Payload,
    /// What travels with it.
    pub headers: Headers,
    /// By which it is taken in.
    pub policy: Arc<AppendPolicy>,
    /// 0 to 9, 9 first: overtakes other lanes by a bounded time, never inside its lane.
    pub priority: u8,
    /// Kept aside this long before it enters its lane.
    pub delay: Option<Duration>,
    /// A window of its own in place of the queue's.
    pub window: Option<WindowPolicy>,
    /// Refused when the lane has anything to do: unique work.
    pub only_if_idle: bool,
    /// The outside party that its run asks, in place of the queue's.
    #[serde(default)]
    pub source: Option<SourceName>,
}

impl NewEvent {
    /// An event without wishes of its own.
    pub fn new(lane: LaneKey, id: NewEventId, payload: Payload, policy: Arc<AppendPolicy>) -> Self {
        NewEvent {
            lane,
            id,
            payload,
            headers: Headers::new(),
            policy,
            priority: limits::PRIORITY_DEFAULT,
            delay: None,
            window: None,
            only_if_idle: false,
            source: None,
        }
    }

    /// The outside party that governs it: its own, or its queue's.
    pub fn governed_by(&self) -> Option<&SourceName> {
        self.source.as_ref().or(self.policy.source.as_ref())
    }

    /// The window that this event opens when it is the first of its run.
    pub fn opens(&self) -> Window {
        Window { policy: self.window.unwrap_or(self.policy.window.policy), ..self.policy.window }
    }
}

/// An event always has an id before the store is first asked, so that an unknown answer can be resolved by repeating.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewEventId {
    /// The caller's: checked for duplicates in its lane.
    Given(EventId),
    /// Made by the engine and unique by construction: looked up only when a request is repeated.
    Made(EventId),
}

impl NewEventId {
    /// The id, whoever chose it.
    pub fn id(&self) -> &EventId {
        match self {
            NewEventId::Given(id) | NewEventId::Made(id) => id,
        }
    }
}

/// One event as a handler receives it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Event {
    /// Its number in the lane: later events have larger ones.
    pub seq: u64,
    /// Its sender's id, or one that was made for it.
    pub id: EventId,
    /// When it was stored, by the clock of the store.
    pub received_at: Timestamp,
    /// What it says.
    pub payload: Payload,
    /// What travels with it.
    #[serde(skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
    /// The number it had before it was redriven as new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub was_seq: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_keys_are_checked_when_made() {
        assert!(QueueName::new("chat.eu-1_a").is_ok());
        for bad in ["", "Chat", "a b", "ü", &"x".repeat(65)] {
            assert!(QueueName::new(bad).is_err(), "{bad:?}");
        }
        for good in ["*", "%", "{a}", "-x", "49 171/5", "Ünïcode", "a\nb", "' OR 1=1 --"] {
            assert_eq!(Key::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "a\0b", &"x".repeat(513)] {
            assert!(Key::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(Key::new("x".repeat(512)).unwrap().as_str().len(), 512);
    }

    #[test]
    fn a_shown_key_cannot_steer_a_terminal() {
        assert_eq!(Key::new("a\u{1b}[2J\n").unwrap().to_string(), "a\\u{1b}[2J\\n");
    }

    #[test]
    fn payload_bytes_are_kept_as_sent() {
        let sent = "{\"b\":1.0,\"a\":\"\\u0000\", \"n\":12345678901234567890123}";
        assert_eq!(Payload::from_json(sent.as_bytes()).unwrap().as_str(), sent);
    }

    #[test]
    fn payloads_that_are_not_one_json_value_are_refused() {
        for bad in ["", "{", "{} {}", "nul", "\u{feff}{}", "[1,]"] {
            assert!(Payload::from_json(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(Payload::from_json(b"\"\xff\"").is_err());
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(Payload::from_json(deep(128).as_bytes()).is_ok());
        assert!(Payload::from_json(deep(129).as_bytes()).unwrap_err().problem.contains("deeper than 128"));
    }

    #[test]
    fn fingerprints_compare_parsed_json() {
        let of = |text: &str| Payload::from_json(text.as_bytes()).unwrap().fingerprint();
        assert_eq!(of(r#"{"a":1,"b":[2.0]}"#), of("{ \"b\" : [2], \"a\":1.0 }"));
        assert_ne!(of(r#"{"a":1}"#), of(r#"{"a":"1"}"#));
        assert_ne!(of("[1,2]"), of("[2,1]"));
        assert_eq!(of("1e999"), of("1e999"));
        assert_ne!(of("1e999"), of("2e999"));
    }

    #[test]
    fn payloads_stay_out_of_debug_output() {
        let payload = Payload::from_json(br#""secret""#).unwrap();
        assert_eq!(format!("{payload:?}"), "Payload(8 bytes)");
    }
}
