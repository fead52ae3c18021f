//! From the bytes of a hook to an event of bounded size.
//!
//! An agent sends whole files and pictures in its events. All of that is in the transcript anyway, and the event is only
//! there to say that something happened, to whom and where; so it is cut to [`EVENT_MAX`] before it goes anywhere. The
//! cutting happens while the JSON is parsed: what is cut never becomes a value, and nothing nests deeper than
//! [`DEPTH_MAX`], however deep the input is.
//!
//! What must not be cut is what finds the transcript and the session again. If that is absurdly long the event is
//! refused with a reason, because half a path is another path.
//!
//! No text of an error has anything of the payload in it: errors go to a log, and payloads hold secrets.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};

use serde::Serialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};

pub use crate::events::{
    EVENTS, Known, REGISTERED, REGISTERED_NEWER, Registration, Status, Verdict, is_safe_for_continue,
    prompt_of, status_of, verdict,
};
pub use crate::stdin::{INPUT_MAX, NotRead, read_stdin};

/// The longest text in an event, in bytes, with the mark that says how much was cut.
pub const STRING_MAX: usize = 8 << 10;
/// The most elements of an array, with the mark.
pub const ARRAY_MAX: usize = 256;
/// How deep arrays and objects nest, the event itself being the first.
pub const DEPTH_MAX: usize = 32;
/// The size of an event as JSON.
pub const EVENT_MAX: usize = 64 << 10;
/// What an id or a name may have, in characters.
pub const NAME_MAX: usize = 200;
/// What a path may have, in bytes of JSON: no file system opens a longer one.
pub const PATH_MAX: usize = 4 << 10;
/// What an event without a name is called. It still says that the session lives and that its transcript may have grown,
/// and dropping that would cost more than keeping it.
pub const UNNAMED: &str = "unknown";

/// Names of fields have no business being longer.
const KEY_MAX: usize = 200;
/// A text up to this size counts as a short one and is kept when the event is too large.
const SHORT: usize = 256;
const IDS: [&str; 4] = ["session_id", "hook_event_name", "prompt_id", "agent_id"];
const PATHS: [&str; 3] = ["transcript_path", "agent_transcript_path", "cwd"];

/// What an agent said at one of its events.
#[derive(Clone, PartialEq)]
pub struct HookEvent {
    /// The key of a lane. Never part of a path: it is whatever the sender says.
    pub session_id: String,
    /// `hook_event_name`; any name is taken, and [`UNNAMED`] stands for none.
    pub event: String,
    /// Of the main conversation, also for events of a subagent.
    pub transcript_path: Option<String>,
    pub agent_transcript_path: Option<String>,
    pub cwd: Option<String>,
    pub prompt_id: Option<String>,
    /// There only inside a subagent.
    pub agent_id: Option<String>,
    /// All of it, shaped.
    pub payload: Map<String, Value>,
}

/// Without the payload, which must not get into a log by accident.
impl fmt::Debug for HookEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("HookEvent");
        shown.field("event", &self.event).field("session_id", &self.session_id).finish_non_exhaustive()
    }
}

/// Why something is not an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAnEvent {
    #[error("there was nothing on standard input")]
    Empty,
    #[error("standard input is not JSON (byte {at})")]
    NotJson { at: usize },
    #[error("standard input is JSON, but not an object")]
    NotAnObject,
    #[error("the event has no session_id")]
    NoSession,
    #[error("session_id is not a text of 1 to {NAME_MAX} characters without control characters")]
    BadSession,
    #[error("hook_event_name is not a text of 1 to {NAME_MAX} characters without control characters")]
    BadEventName,
    #[error("{key} is too long to be true")]
    TooLong { key: &'static str },
}

impl HookEvent {
    pub fn read(bytes: &[u8]) -> Result<HookEvent, NotAnEvent> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
            None => return Err(NotAnEvent::Empty),
            Some(b'{') => {}
            Some(_) => {
                let json = serde_json::from_slice::<IgnoredAny>(bytes);
                return Err(json.map_or_else(|error| not_json(bytes, &error), |_| NotAnEvent::NotAnObject));
            }
        }
        let mut payload = match shaped(bytes) {
            Ok(payload) => payload,
            Err(error) => {
                mended(bytes).and_then(|bytes| shaped(&bytes).ok()).ok_or(not_json(bytes, &error))?
            }
        };

        let session_id = match payload.get("session_id") {
            None | Some(Value::Null) => return Err(NotAnEvent::NoSession),
            Some(Value::String(id)) if is_name(id) => id.clone(),
            Some(_) => return Err(NotAnEvent::BadSession),
        };
        let event = match payload.get("hook_event_name") {
            None | Some(Value::Null) => UNNAMED.to_owned(),
            Some(Value::String(name)) if is_name(name) => name.clone(),
            Some(_) => return Err(NotAnEvent::BadEventName),
        };
        for key in IDS {
            if text(&payload, key).is_some_and(|id| size(id) > 2 * 4 * NAME_MAX) {
                return Err(NotAnEvent::TooLong { key });
            }
        }
        for key in PATHS {
            if text(&payload, key).is_some_and(|path| size(path) > PATH_MAX) {
                return Err(NotAnEvent::TooLong { key });
            }
        }
        fit(&mut payload);
        let own = |key| text(&payload, key).map(str::to_owned);
        Ok(HookEvent {
            session_id,
            event,
            transcript_path: own("transcript_path"),
            agent_transcript_path: own("agent_transcript_path"),
            cwd: own("cwd"),
            prompt_id: own("prompt_id"),
            agent_id: own("agent_id"),
            payload,
        })
    }

    pub fn status(&self) -> Option<Status> {
        status_of(&self.event, &self.payload)
    }

    pub fn prompt(&self) -> Option<&str> {
        prompt_of(&self.event, &self.payload)
    }
}

fn text<'a>(payload: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    payload.get(key).and_then(Value::as_str)
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().count() <= NAME_MAX && !text.chars().any(char::is_control)
}

fn is_whole(key: &str) -> bool {
    IDS.contains(&key) || PATHS.contains(&key)
}

fn not_json(bytes: &[u8], error: &serde_json::Error) -> NotAnEvent {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').take(error.line().saturating_sub(1));
    NotAnEvent::NotJson { at: lines.map(<[u8]>::len).sum::<usize>() + error.column() }
}

/// A JavaScript writer that cuts a text in the middle of a character writes half of a surrogate pair, which is no text
/// for a strict parser; so does one that cuts bytes. Neither is a reason to lose the event: the half becomes U+FFFD.
/// Only looked for when the parser has refused something.
fn mended(bytes: &[u8]) -> Option<Vec<u8>> {
    let text = String::from_utf8_lossy(bytes);
    let changed = matches!(text, Cow::Owned(_));
    let mut bytes = text.into_owned().into_bytes();
    let unit = |bytes: &[u8], at: usize| -> Option<u16> {
        let escape = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(escape).ok()?, 16).ok()
    };
    let mut halves = false;
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            at += 1;
            continue;
        }
        at += match (unit(&bytes, at), unit(&bytes, at + 6)) {
            (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => 12,
            (Some(0xd800..0xe000), _) => {
                bytes[at + 2..at + 6].copy_from_slice(b"fffd");
                halves = true;
                6
            }
            (Some(_), _) => 6,
            (None, _) => 2,
        };
    }
    (changed || halves).then_some(bytes)
}

fn shaped(bytes: &[u8]) -> Result<Map<String, Value>, serde_json::Error> {
    let mut parser = serde_json::Deserializer::from_slice(bytes);
    let event = Shape { depth: 1, whole: false }.deserialize(&mut parser)?;
    parser.end()?;
    match event {
        Value::Object(event) => Ok(event),
        // The first byte was looked at before.
        _ => Ok(Map::new()),
    }
}

/// Parses a value and leaves out what is too much of it.
#[derive(Clone, Copy)]
struct Shape {
    depth: usize,
    /// Not cut, whatever its length.
    whole: bool,
}

impl<'de> DeserializeSeed<'de> for Shape {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Shape {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        let max = if self.whole { usize::MAX } else { STRING_MAX };
        Ok(Value::String(clipped(text, max).into_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        if self.depth > DEPTH_MAX {
            while elements.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(too_deep());
        }
        let inner = Shape { depth: self.depth + 1, whole: false };
        let mut kept = Vec::new();
        while kept.len() < ARRAY_MAX {
            match elements.next_element_seed(inner)? {
                Some(element) => kept.push(element),
                None => return Ok(Value::Array(kept)),
            }
        }
        let mut more = 0_usize;
        while elements.next_element::<IgnoredAny>()?.is_some() {
            more += 1;
        }
        if more > 0 {
            // The mark takes the place of the last one.
            kept.pop();
            kept.push(Value::String(format!("… [+{} items]", more + 1)));
        }
        Ok(Value::Array(kept))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        if self.depth > DEPTH_MAX {
            while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(too_deep());
        }
        let mut kept = Map::new();
        while let Some(key) = entries.next_key::<Cow<'_, str>>()? {
            let whole = self.depth == 1 && is_whole(&key);
            let value = entries.next_value_seed(Shape { depth: self.depth + 1, whole })?;
            kept.insert(clipped(&key, KEY_MAX).into_owned(), value);
        }
        Ok(Value::Object(kept))
    }
}

fn too_deep() -> Value {
    Value::String("… [deeper]".to_owned())
}

/// At most `max` bytes, with the mark that the agents themselves use.
fn clipped(text: &str, max: usize) -> Cow<'_, str> {
    // As many digits as a length can have, and what is around them.
    const MARK: usize = "… [+ chars]".len() + 20;
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    let (kept, rest) = text.split_at(text.floor_char_boundary(max.saturating_sub(MARK)));
    Cow::Owned(format!("{kept}… [+{} chars]", rest.chars().count()))
}

/// Makes room: first what is large gives way to its size, the largest first; then, if it is many small things, those go.
fn fit(payload: &mut Map<String, Value>) {
    let mut total = size(payload);
    if total <= EVENT_MAX {
        return;
    }
    let mut fields: Vec<(usize, String)> = Vec::new();
    for (key, value) in payload.iter().filter(|(key, value)| !is_whole(key) || !value.is_string()) {
        fields.push((size(value), key.clone()));
    }
    fields.sort_by(|one, other| other.cmp(one));
    for (bytes, key) in fields.iter().take_while(|(bytes, _)| *bytes > SHORT) {
        if total <= EVENT_MAX {
            return;
        }
        let instead = json!({ "clipped_bytes": bytes });
        total = total - bytes + size(&instead);
        payload.insert(key.clone(), instead);
    }
    let mut gone = 0_usize;
    // Room for the number itself.
    while total + 64 > EVENT_MAX
        && let Some((_, key)) = fields.pop()
    {
        // With its colon and its comma.
        total -= size(&key) + payload.remove(&key).map_or(0, |value| size(&value)) + 2;
        gone += 1;
    }
    if gone > 0 {
        payload.insert("clipped_keys".to_owned(), Value::from(gone));
    }
}

/// How many bytes it has as JSON.
fn size(value: &(impl Serialize + ?Sized)) -> usize {
    struct Count(usize);
    impl Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // A map with texts as its keys always serialises.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::{Path, PathBuf};

    use proptest::prelude::*;

    use super::*;

    fn fixtures() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hooks")
    }

    fn all() -> BTreeMap<String, Vec<u8>> {
        let files = std::fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap().path());
        let names = files.filter(|path| path.is_file() && !path.ends_with("settings.example.json"));
        names
            .map(|path| {
                (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read(&path).unwrap())
            })
            .collect()
    }

    fn odd(name: &str) -> Result<HookEvent, NotAnEvent> {
        HookEvent::read(&std::fs::read(fixtures().join("odd").join(name)).unwrap())
    }

    fn read(value: &Value) -> Result<HookEvent, NotAnEvent> {
        HookEvent::read(value.to_string().as_bytes())
    }

    #[test]
    fn every_fixture_is_an_event_has_a_verdict_and_is_kept_whole() {
        let mut seen = BTreeSet::new();
        for (name, bytes) in all() {
            let event = HookEvent::read(&bytes).unwrap();
            assert_eq!(event.event, name.split('.').next().unwrap());
            assert_eq!(event.session_id, "30113672-ca10-4be8-84df-3d1f4db8581e", "{name}");
            assert!(event.transcript_path.as_deref().unwrap().ends_with(".jsonl"), "{name}");
            assert!(event.cwd.is_some(), "{name}");
            assert_eq!(
                Value::Object(event.payload),
                serde_json::from_slice::<Value>(&bytes).unwrap(),
                "{name}"
            );
            assert!(verdict(&event.event).is_some(), "{name}");
            seen.insert(event.event);
        }
        assert_eq!(seen, EVENTS.iter().map(|known| known.event.to_owned()).collect());
    }

    #[test]
    fn what_every_fixture_says_of_the_session() {
        use Status::{Active, Done, Ended, Idle, PermissionNeeded, Started};
        let said: BTreeMap<&str, Status> = [
            ("Elicitation", PermissionNeeded),
            ("ElicitationResult", Active),
            ("Notification", PermissionNeeded),
            ("Notification.idle", Idle),
            ("PermissionDenied", Active),
            ("PermissionRequest", PermissionNeeded),
            ("PostToolBatch", Active),
            ("PostToolUse", Active),
            ("PostToolUse.array_response", Active),
            ("PostToolUseFailure", Active),
            ("PreToolUse", Active),
            ("PreToolUse.subagent_mcp", Active),
            ("SessionEnd", Ended),
            ("SessionEnd.clear", Ended),
            ("SessionStart", Started),
            ("SessionStart.resume", Started),
            ("Stop", Done),
            ("Stop.active_background", Done),
            ("StopFailure", Done),
            ("SubagentStart", Active),
            ("UserPromptExpansion", Active),
            ("UserPromptSubmit", Active),
            ("UserPromptSubmit.unicode", Active),
        ]
        .into();
        for (name, bytes) in all() {
            let event = HookEvent::read(&bytes).unwrap();
            assert_eq!(event.status(), said.get(name.as_str()).copied(), "{name}");
        }
    }

    #[test]
    fn fields_and_prompts_are_found() {
        let all = all();
        let event = HookEvent::read(&all["SubagentStop"]).unwrap();
        assert_eq!(event.agent_id.as_deref(), Some("a2e61df5"));
        assert!(event.agent_transcript_path.unwrap().ends_with("agent-a2e61df5.jsonl"));
        assert_eq!(event.prompt_id.as_deref(), Some("aea69667-eab0-48cc-b16d-105c6abe942f"));
        let event = HookEvent::read(&all["UserPromptSubmit.unicode"]).unwrap();
        assert_eq!(event.prompt(), Some("Prüfe den Preis 👩🏽‍🔧 für „Silber“ 🪙\nsecond line\t\"quoted\""));
        assert_eq!(HookEvent::read(&all["UserPromptExpansion"]).unwrap().prompt(), None);
        assert_eq!(HookEvent::read(&all["SessionStart"]).unwrap().prompt_id, None);
        assert!(!format!("{event:?}").contains("Silber"));
    }

    #[test]
    fn what_is_not_an_event_says_why_and_shows_nothing_of_it() {
        assert_eq!(odd("empty.json"), Err(NotAnEvent::Empty));
        assert_eq!(odd("not_json.json"), Err(NotAnEvent::NotJson { at: 1 }));
        assert_eq!(odd("truncated.json"), Err(NotAnEvent::NotJson { at: 206 }));
        assert_eq!(odd("missing_session.json"), Err(NotAnEvent::NoSession));
        let future = odd("future_event.json").unwrap();
        assert_eq!((future.event.as_str(), future.status()), ("SomethingNew", None));
        assert_eq!(future.payload["novel"], json!({"x": [1]}));

        let long = "x".repeat(201);
        for (value, why) in [
            (json!([1]), NotAnEvent::NotAnObject),
            (json!("secret"), NotAnEvent::NotAnObject),
            (json!({}), NotAnEvent::NoSession),
            (json!({"session_id": null}), NotAnEvent::NoSession),
            (json!({"session_id": 7}), NotAnEvent::BadSession),
            (json!({"session_id": ""}), NotAnEvent::BadSession),
            (json!({"session_id": "secret\n"}), NotAnEvent::BadSession),
            (json!({ "session_id": long }), NotAnEvent::BadSession),
            (json!({"session_id": "s", "hook_event_name": "secret\u{7f}"}), NotAnEvent::BadEventName),
            (json!({"session_id": "s", "hook_event_name": []}), NotAnEvent::BadEventName),
            (json!({"session_id": "s", "cwd": "secret".repeat(1000)}), NotAnEvent::TooLong { key: "cwd" }),
            (
                json!({"session_id": "s", "prompt_id": "secret".repeat(1000)}),
                NotAnEvent::TooLong { key: "prompt_id" },
            ),
        ] {
            assert_eq!(read(&value), Err(why), "{value}");
            assert!(!why.to_string().contains("secret"));
        }
        assert_eq!(HookEvent::read(b"{\n\n x"), Err(NotAnEvent::NotJson { at: 5 }));
        assert_eq!(HookEvent::read(b"{\"session_id\":\"s\"} x").unwrap_err(), NotAnEvent::NotJson { at: 20 });
        assert_eq!(read(&json!({"session_id": "s"})).unwrap().event, UNNAMED);
        assert_eq!(read(&json!({ "session_id": "ä".repeat(200) })).unwrap().session_id.chars().count(), 200);
        assert_eq!(HookEvent::read("\u{feff}{\"session_id\":\"s\"}".as_bytes()).unwrap().session_id, "s");
    }

    #[test]
    fn half_a_character_does_not_lose_the_event() {
        let event = HookEvent::read(
            br#"{"session_id":"s","a":"x\ud83d","b":"\\ud83d","c":"\ud83d\ude00","d":"\udc00\n"}"#,
        );
        let payload = event.unwrap().payload;
        assert_eq!(payload["a"], "x\u{fffd}");
        assert_eq!(payload["b"], "\\ud83d");
        assert_eq!(payload["c"], "😀");
        assert_eq!(payload["d"], "\u{fffd}\n");
        let event = HookEvent::read(b"{\"session_id\":\"s\",\"a\":\"x\xf0\x9f\"}").unwrap();
        assert_eq!(event.payload["a"], "x\u{fffd}");
    }

    #[test]
    fn long_texts_and_arrays_are_cut_with_a_mark() {
        let text = "ä🐌".repeat(5000);
        let items: Vec<usize> = (0..1000).collect();
        let event = read(
            &json!({"session_id": "s", "t": text, "i": items, "j": items[..256], "k": "x".repeat(8192)}),
        );
        let payload = event.unwrap().payload;
        let cut = payload["t"].as_str().unwrap();
        assert!(cut.len() <= STRING_MAX && cut.len() > STRING_MAX - 64, "{}", cut.len());
        let (kept, mark) = cut.split_once("… [+").unwrap();
        assert!(text.starts_with(kept));
        let more: usize = mark.strip_suffix(" chars]").unwrap().parse().unwrap();
        assert_eq!(kept.chars().count() + more, 10_000);
        let cut = payload["i"].as_array().unwrap();
        assert_eq!((cut.len(), &cut[254], &cut[255]), (256, &json!(254), &json!("… [+745 items]")));
        assert_eq!(payload["j"].as_array().unwrap().len(), 256);
        assert_eq!(payload["k"].as_str().unwrap().len(), 8192);
    }

    #[test]
    fn depth_is_bounded_even_where_a_parser_would_give_up() {
        fn depth(value: &Value) -> usize {
            match value {
                Value::Array(inner) => 1 + inner.iter().map(depth).max().unwrap_or(0),
                Value::Object(inner) => 1 + inner.values().map(depth).max().unwrap_or(0),
                _ => 0,
            }
        }
        for levels in [10, 31, 32, 100, 100_000] {
            let text = format!("{{\"session_id\":\"s\",\"x\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
            let event = HookEvent::read(text.as_bytes()).unwrap();
            assert_eq!(depth(&Value::Object(event.payload)), (levels + 1).min(DEPTH_MAX), "{levels}");
        }
    }

    #[test]
    fn the_largest_gives_way_first_and_what_finds_the_session_stays() {
        let parts = |count: usize| vec![json!("y".repeat(8000)); count];
        let event = read(&json!({
            "session_id": "s", "hook_event_name": "PostToolUse", "cwd": "/srv", "transcript_path": "/t".repeat(2000),
            "tool_name": "Bash", "tool_input": parts(3), "tool_response": parts(9), "duration_ms": 5,
        }));
        let event = event.unwrap();
        assert!(size(&event.payload) <= EVENT_MAX);
        assert_eq!(event.payload["tool_response"], json!({"clipped_bytes": 9 * 8003 + 1}));
        assert_eq!(event.payload["tool_input"].as_array().unwrap().len(), 3);
        assert_eq!(event.payload["tool_name"], "Bash");
        assert_eq!(event.transcript_path.unwrap().len(), 4000);
    }

    #[test]
    fn many_small_fields_give_way_too() {
        let mut value = json!({"session_id": "s", "hook_event_name": "Stop", "cwd": "/srv"});
        for number in 0..20_000 {
            value[format!("key {number}")] = json!(number);
        }
        let event = read(&value).unwrap();
        assert!(size(&event.payload) <= EVENT_MAX && size(&event.payload) > EVENT_MAX / 2);
        assert_eq!((event.event.as_str(), event.cwd.as_deref()), ("Stop", Some("/srv")));
        let kept = event.payload.len();
        assert_eq!(event.payload["clipped_keys"], json!(20_003 + 1 - kept));
    }

    fn anything() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Value::from),
            "\\PC{0,20}".prop_map(Value::from),
            (0..12_000usize, prop::sample::select(vec!["a", "ä", "🐌", "\u{1}", "\""]))
                .prop_map(|(times, text)| Value::from(text.repeat(times))),
        ];
        leaf.prop_recursive(5, 60, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                (prop::collection::vec(inner.clone(), 1..3), 1..200usize)
                    .prop_map(|(some, times)| Value::from(vec![Value::from(some); times])),
                prop::collection::btree_map("[a-z]{1,3}", inner, 0..8)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn whatever_comes_is_bounded_and_shaping_it_again_changes_nothing(
            fields in prop::collection::btree_map("[a-z]{1,3}", anything(), 0..6),
        ) {
            let mut value = json!({"session_id": "s", "hook_event_name": "Stop", "cwd": "/srv"});
            for (key, field) in fields {
                value[key] = field;
            }
            let event = read(&value).unwrap();
            prop_assert!(size(&event.payload) <= EVENT_MAX);
            prop_assert_eq!(event.cwd.as_deref(), Some("/srv"));
            let again = read(&Value::Object(event.payload.clone())).unwrap();
            prop_assert_eq!(again, event);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = HookEvent::read(&bytes);
            let mut event = b"{\"session_id\":\"s\",\"x\":\"".to_vec();
            event.extend(bytes);
            event.extend(b"\"}");
            let _ = HookEvent::read(&event);
        }
    }
}
