//! One line of a transcript, and what it says.
//!
//! The format belongs to the agent's vendor and changes without notice, so nothing here insists: a key of another kind
//! is as good as absent, and only a line that is no JSON object at all is malformed. Values are looked at where they
//! stand in the line and only those that are kept are decoded, so the megabytes of a tool's output cost one scan, and
//! no nesting is too deep.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// What is kept of a message's text, and of its thinking. People and models write some kilobytes; what is longer was
/// pasted, and its beginning is enough to find it again.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Ids are UUIDs or some thirty characters. One that is longer is not an id, and half of one would be another's.
pub const ID_CHARS_MAX: usize = 200;
/// Names: of a type, a model, a tool, a branch, a release.
pub const NAME_CHARS_MAX: usize = 200;
/// As long as a path can be on the systems we run on.
pub const PATH_CHARS_MAX: usize = 4096;
/// A title is shown on one line; the last prompt can be its source and is as long as people like.
pub const TITLE_CHARS_MAX: usize = 300;
/// A call of a tool is shown on one line.
pub const SUMMARY_CHARS_MAX: usize = 200;
/// A line holds one block, or a few: more than this many calls, results or other blocks are not kept.
pub const BLOCKS_MAX: usize = 1000;
/// RFC 3339 with nanoseconds and an offset has 35 characters.
const TIMESTAMP_CHARS_MAX: usize = 64;
/// Names of types in a tally; a file that makes up more gets them counted together.
const TYPES_MAX: usize = 100;
const OTHER_TYPES: &str = "…";
/// How a line without a type is called in a tally.
const NO_TYPE: &str = "None";
/// What stands in `model` of an answer that no model has given.
const SYNTHETIC: &str = "<synthetic>";

const BOM: &[u8] = b"\xef\xbb\xbf";

/// What a line is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    Blank,
    /// Not UTF-8, not JSON, or not an object.
    Malformed,
    Entry(Box<Entry>),
}

/// What a line is about, from its `type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    User,
    Assistant,
    System,
    Attachment,
    Progress,
    /// A type that describes the session and is no part of the conversation: a title, a snapshot of files.
    Known,
    /// A type that nobody has told us of, or none.
    Unknown,
}

impl Kind {
    fn of(type_name: Option<&str>) -> Kind {
        match type_name {
            Some("user") => Kind::User,
            Some("assistant") => Kind::Assistant,
            Some("system") => Kind::System,
            Some("attachment") => Kind::Attachment,
            Some("progress") => Kind::Progress,
            Some(
                "summary"
                | "custom-title"
                | "ai-title"
                | "last-prompt"
                | "tag"
                | "content-replacement"
                | "file-history-snapshot"
                | "queue-operation"
                | "permission-mode",
            ) => Kind::Known,
            _ => Kind::Unknown,
        }
    }
}

/// A line that is an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub kind: Kind,
    pub type_name: Option<String>,
    pub uuid: Option<String>,
    pub parent_uuid: Option<String>,
    pub session_id: Option<String>,
    pub agent_id: Option<String>,
    pub cwd: Option<String>,
    pub git_branch: Option<String>,
    pub version: Option<String>,
    /// As written.
    pub timestamp: Option<String>,
    /// The same in milliseconds since 1970.
    pub at: Option<i64>,
    pub sidechain: bool,
    pub meta: bool,
    pub compact_summary: bool,
    /// Of a line of type `user` or `assistant` that has a `uuid`.
    pub message: Option<Message>,
    pub title: Option<Title>,
    /// An empty one takes the tag away.
    pub tag: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    User,
    Assistant,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// By the type of the line: that is what the agent goes by, too.
    pub role: Role,
    /// The text, or the blocks of text with a blank line between them.
    pub text: String,
    pub thinking: String,
    pub tools: Vec<ToolUse>,
    pub results: Vec<ToolResult>,
    /// The types of all other blocks.
    pub other_blocks: Vec<String>,
    /// `message.id`: one answer of the model is several lines with the same one.
    pub api_id: Option<String>,
    /// None also where the agent itself has answered in the place of a model.
    pub model: Option<String>,
    /// Repeated on every line of an answer; the last one counts.
    pub usage: Option<Usage>,
    /// Somebody has typed it.
    pub is_prompt: bool,
    pub api_error: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolUse {
    pub id: Option<String>,
    pub name: String,
    /// One line: the part of the input that says the most, or the beginning of all of it.
    pub summary: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    pub tool_use_id: Option<String>,
    pub is_error: bool,
    /// The size of its content as it is written in the line, without the quotes of a string.
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub input_tokens: i64,
    pub output_tokens: i64,
    pub cache_creation_input_tokens: i64,
    pub cache_read_input_tokens: i64,
}

/// Where a title comes from: the greater takes precedence, and of the same the later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TitleRank {
    Summary,
    LastPrompt,
    Ai,
    Custom,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Title {
    pub rank: TitleRank,
    pub text: String,
}

/// Reads one line, with or without its line end, and with the mark that some editors put before the first one.
pub fn read_line(bytes: &[u8]) -> Line {
    let bytes = bytes.strip_prefix(BOM).unwrap_or(bytes).trim_ascii();
    if bytes.is_empty() {
        return Line::Blank;
    }
    match std::str::from_utf8(bytes).ok().and_then(entry) {
        Some(entry) => Line::Entry(Box::new(entry)),
        None => Line::Malformed,
    }
}

fn entry(line: &str) -> Option<Entry> {
    let [
        type_name,
        uuid,
        parent_uuid,
        session_id,
        agent_id,
        cwd,
        git_branch,
        version,
        timestamp,
        sidechain,
        meta,
        compact_summary,
        api_error,
        message,
        custom_title,
        ai_title,
        last_prompt,
        summary,
        tag,
    ] = pick(
        line,
        [
            "type",
            "uuid",
            "parentUuid",
            "sessionId",
            "agentId",
            "cwd",
            "gitBranch",
            "version",
            "timestamp",
            "isSidechain",
            "isMeta",
            "isCompactSummary",
            "isApiErrorMessage",
            "message",
            "customTitle",
            "aiTitle",
            "lastPrompt",
            "summary",
            "tag",
        ],
    )?;
    let type_name = name(type_name);
    let kind = Kind::of(type_name.as_deref());
    let timestamp = text(timestamp).filter(|text| text.chars().count() <= TIMESTAMP_CHARS_MAX);
    let at = timestamp.as_deref().and_then(|text| text.parse::<jiff::Timestamp>().ok());
    let title = match type_name.as_deref() {
        Some("custom-title") => title(TitleRank::Custom, custom_title),
        Some("ai-title") => title(TitleRank::Ai, ai_title),
        Some("last-prompt") => title(TitleRank::LastPrompt, last_prompt),
        Some("summary") => title(TitleRank::Summary, summary),
        _ => None,
    };
    let tag = if type_name.as_deref() == Some("tag") { name(tag) } else { None };
    let mut entry = Entry {
        kind,
        type_name,
        uuid: id(uuid),
        parent_uuid: id(parent_uuid),
        session_id: id(session_id),
        agent_id: id(agent_id),
        cwd: text(cwd).map(|text| shorten(&text, PATH_CHARS_MAX)),
        git_branch: name(git_branch),
        version: name(version),
        at: at.map(|at| at.as_millisecond()),
        timestamp: timestamp.map(Cow::into_owned),
        sidechain: is_true(sidechain),
        meta: is_true(meta),
        compact_summary: is_true(compact_summary),
        message: None,
        title,
        tag,
    };
    let role = match kind {
        Kind::User => Some(Role::User),
        Kind::Assistant => Some(Role::Assistant),
        _ => None,
    };
    if let (Some(role), Some(_)) = (role, &entry.uuid) {
        let human = !entry.meta && !entry.sidechain && !entry.compact_summary;
        entry.message = Some(read_message(role, human, is_true(api_error), message));
    }
    Some(entry)
}

fn read_message(role: Role, human: bool, api_error: bool, raw: Option<&str>) -> Message {
    let keys = ["content", "id", "model", "usage"];
    let [content, api_id, model, usage] = raw.and_then(|raw| pick(raw, keys)).unwrap_or_default();
    let mut blocks = Blocks::default();
    match content {
        Some(content) if content.starts_with('[') => each(content, |block| blocks.add(block)),
        content => blocks.text.extend(text(content).map(Cow::into_owned)),
    }
    let spoken = blocks.text.join("\n\n");
    Message {
        role,
        is_prompt: role == Role::User && human && !blocks.answers && is_typed(&spoken),
        text: cut(spoken),
        thinking: cut(blocks.thinking.join("\n\n")),
        tools: blocks.tools,
        results: blocks.results,
        other_blocks: blocks.other,
        api_id: id(api_id),
        model: name(model).filter(|model| model != SYNTHETIC),
        usage: usage.and_then(read_usage),
        api_error,
    }
}

/// Much of what stands in a transcript as the user's was put there by the agent.
fn is_typed(text: &str) -> bool {
    const MADE_BY_THE_AGENT: [&str; 5] = [
        "<local-command-stdout>",
        "<local-command-caveat>",
        "[Request interrupted by user",
        "<session-start-hook>",
        "<task-notification>",
    ];
    let start = text.trim_start();
    !start.is_empty()
        && !MADE_BY_THE_AGENT.iter().any(|made| start.starts_with(made))
        && memchr::memmem::find(start.as_bytes(), b"<command-name>").is_none()
}

#[derive(Default)]
struct Blocks {
    text: Vec<String>,
    thinking: Vec<String>,
    tools: Vec<ToolUse>,
    results: Vec<ToolResult>,
    other: Vec<String>,
    /// There is a result of a tool, kept or not.
    answers: bool,
}

impl Blocks {
    fn add(&mut self, raw: &str) {
        const KEYS: [&str; 9] =
            ["type", "text", "thinking", "id", "name", "input", "tool_use_id", "is_error", "content"];
        let [kind, spoken, thinking, tool_id, tool, input, tool_use_id, is_error, content] =
            pick(raw, KEYS).unwrap_or_default();
        let kind = name(kind);
        match kind.as_deref() {
            Some("text") => self.text.extend(text(spoken).map(Cow::into_owned).filter(|t| !t.is_empty())),
            Some("thinking") => {
                self.thinking.extend(text(thinking).map(Cow::into_owned).filter(|t| !t.is_empty()));
            }
            Some("tool_use") if self.tools.len() < BLOCKS_MAX => self.tools.push(ToolUse {
                id: id(tool_id),
                name: name(tool).unwrap_or_default(),
                summary: summary(input),
            }),
            Some("tool_result") => {
                self.answers = true;
                if self.results.len() < BLOCKS_MAX {
                    self.results.push(ToolResult {
                        tool_use_id: id(tool_use_id),
                        is_error: is_true(is_error),
                        bytes: content.map_or(0, written_size),
                    });
                }
            }
            Some("tool_use") => {}
            kind if self.other.len() < BLOCKS_MAX => self.other.push(kind.unwrap_or("unknown").to_owned()),
            _ => {}
        }
    }
}

fn written_size(raw: &str) -> u64 {
    let quotes = if raw.starts_with('"') { 2 } else { 0 };
    u64::try_from(raw.len().saturating_sub(quotes)).unwrap_or(u64::MAX)
}

fn read_usage(raw: &str) -> Option<Usage> {
    let keys = ["input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];
    let number = |raw: Option<&str>| raw.and_then(|raw| raw.parse::<i64>().ok()).unwrap_or(0).max(0);
    let [input, output, creation, read] = pick(raw, keys)?;
    Some(Usage {
        input_tokens: number(input),
        output_tokens: number(output),
        cache_creation_input_tokens: number(creation),
        cache_read_input_tokens: number(read),
    })
}

fn summary(input: Option<&str>) -> String {
    const KEYS: [&str; 8] =
        ["command", "file_path", "path", "pattern", "query", "url", "description", "prompt"];
    let Some(input) = input else { return String::new() };
    let told = pick(input, KEYS).unwrap_or_default().into_iter().find_map(|value| {
        let value = one_line(&text(value)?, SUMMARY_CHARS_MAX);
        (!value.is_empty()).then_some(value)
    });
    told.unwrap_or_else(|| one_line(input, SUMMARY_CHARS_MAX))
}

fn title(rank: TitleRank, raw: Option<&str>) -> Option<Title> {
    let text = one_line(&text(raw)?, TITLE_CHARS_MAX);
    (!text.is_empty()).then_some(Title { rank, text })
}

fn is_true(raw: Option<&str>) -> bool {
    raw == Some("true")
}

fn name(raw: Option<&str>) -> Option<String> {
    text(raw).map(|text| shorten(&text, NAME_CHARS_MAX))
}

/// An id is kept whole or not at all. NUL could not be stored, and written otherwise it would be another id.
fn id(raw: Option<&str>) -> Option<String> {
    let raw = raw.filter(|raw| raw.len() <= ID_CHARS_MAX * 12)?;
    let id = decode(raw)?;
    let fits = !id.is_empty() && !id.contains('\0') && id.chars().count() <= ID_CHARS_MAX;
    fits.then(|| id.into_owned())
}

/// The string, in a form that every store can hold: PostgreSQL's text has no NUL, so none of them gets one.
fn text(raw: Option<&str>) -> Option<Cow<'_, str>> {
    let text = decode(raw?)?;
    Some(if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { text })
}

/// The string that is written there, if it is one.
fn decode(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    let decoded = serde_json::from_str(raw).or_else(|_| serde_json::from_str(&without_lone_surrogates(raw)));
    decoded.ok().map(Cow::Owned)
}

/// JavaScript cuts strings in the middle of a pair of surrogates and writes the half as an escape, which Rust's strings
/// cannot hold: each becomes the replacement character. Escapes are all that is looked at, so `\\ud83d` stays what it is.
fn without_lone_surrogates(raw: &str) -> String {
    let unit = |at: &str| {
        let digits = at.strip_prefix("\\u")?.get(..4)?;
        u32::from_str_radix(digits, 16).ok()
    };
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (instead, taken) = match unit(rest) {
            Some(0xd800..=0xdbff) if matches!(unit(&rest[6..]), Some(0xdc00..=0xdfff)) => (None, 12),
            Some(0xd800..=0xdfff) => (Some("\\ufffd"), 6),
            Some(_) => (None, 6),
            // A backslash and what it escapes, which is one byte in JSON.
            None => (None, 1 + rest[1..].chars().next().map_or(0, char::len_utf8)),
        };
        out.push_str(instead.unwrap_or(&rest[..taken]));
        rest = &rest[taken..];
    }
    out.push_str(rest);
    out
}

fn cut(mut text: String) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text;
    }
    let keep = text.floor_char_boundary(TEXT_BYTES_MAX);
    let lost = text.len() - keep;
    text.truncate(keep);
    text.push_str(&format!("… [+{lost} bytes]"));
    text.shrink_to_fit();
    text
}

/// At most so many characters, the last of them `…` if there were more.
fn shorten(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some(_) => text.chars().take(max - 1).chain(['…']).collect(),
    }
}

/// White space and control characters become single spaces.
fn one_line(text: &str, max: usize) -> String {
    let mut line = String::new();
    let mut length = 0;
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if length > max {
            break;
        }
        if length > 0 {
            line.push(' ');
            length += 1;
        }
        // One more than fits tells the shortening that there was more.
        for c in word.chars().take(max + 1) {
            line.push(c);
            length += 1;
        }
    }
    shorten(&line, max)
}

/// The values of these keys as they are written, if it is an object. Of a key that is there twice the last one counts,
/// as in JavaScript.
fn pick<'a, const N: usize>(raw: &'a str, keys: [&'static str; N]) -> Option<[Option<&'a str>; N]> {
    struct Pick<const N: usize>([&'static str; N]);

    impl<'a, const N: usize> Visitor<'a> for Pick<N> {
        type Value = [Option<&'a str>; N];

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = [None; N];
            while let Some(key) = map.next_key::<&'a RawValue>()? {
                let key = decode(key.get()).unwrap_or_default();
                match self.0.iter().position(|wanted| *wanted == key) {
                    Some(at) => found[at] = Some(map.next_value::<&'a RawValue>()?.get()),
                    None => {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
            }
            Ok(found)
        }
    }

    let mut json = serde_json::Deserializer::from_str(raw);
    let found = json.deserialize_map(Pick(keys)).ok()?;
    json.end().ok()?;
    Some(found)
}

/// Every value of an array, as it is written.
fn each(raw: &str, visit: impl FnMut(&str)) {
    struct Each<F>(F);

    impl<'a, F: FnMut(&str)> Visitor<'a> for Each<F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }

        fn visit_seq<A: SeqAccess<'a>>(mut self, mut seq: A) -> Result<(), A::Error> {
            while let Some(value) = seq.next_element::<&'a RawValue>()? {
                (self.0)(value.get());
            }
            Ok(())
        }
    }

    // It has been scanned as part of the line already, so it is an array to its end.
    let _ = serde_json::Deserializer::from_str(raw).deserialize_seq(Each(visit));
}

/// Counts of what was read. Lines are counted as they come; messages only when they were new, which the archive knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Complete lines that are not blank, malformed ones among them.
    pub lines: u64,
    pub blanks: u64,
    pub malformed: u64,
    /// By the name of the type; malformed lines have none and are not among them.
    pub types: BTreeMap<String, u64>,
    pub unknown_types: u64,
    pub without_uuid: u64,
    pub messages: u64,
    pub sidechain_messages: u64,
    pub meta_messages: u64,
    pub prompts: u64,
    pub tool_uses: u64,
    pub tool_results: u64,
    /// Of the earliest and the latest message, as written.
    pub first: Option<Moment>,
    pub last: Option<Moment>,
}

/// When a message was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    pub at: i64,
    pub written: String,
}

impl Tally {
    /// Counts a line, whatever it is.
    pub fn line(&mut self, line: &Line) {
        let entry = match line {
            Line::Blank => {
                self.blanks += 1;
                return;
            }
            Line::Malformed => {
                self.lines += 1;
                self.malformed += 1;
                return;
            }
            Line::Entry(entry) => entry,
        };
        self.lines += 1;
        let name = entry.type_name.as_deref().unwrap_or(NO_TYPE);
        let full = self.types.len() >= TYPES_MAX && !self.types.contains_key(name);
        let name = if full { OTHER_TYPES } else { name };
        match self.types.get_mut(name) {
            Some(count) => *count += 1,
            None => {
                self.types.insert(name.to_owned(), 1);
            }
        }
        self.unknown_types += u64::from(entry.kind == Kind::Unknown);
        self.without_uuid += u64::from(entry.uuid.is_none());
    }

    /// Counts the message of a line that was not there before; a line without one counts nothing.
    pub fn message(&mut self, entry: &Entry) {
        let Some(message) = &entry.message else { return };
        let many = |blocks: usize| u64::try_from(blocks).unwrap_or(u64::MAX);
        self.messages += 1;
        self.sidechain_messages += u64::from(entry.sidechain);
        self.meta_messages += u64::from(entry.meta);
        self.prompts += u64::from(message.is_prompt);
        self.tool_uses += many(message.tools.len());
        self.tool_results += many(message.results.len());
        if let (Some(at), Some(written)) = (entry.at, &entry.timestamp) {
            let moment = || Some(Moment { at, written: written.clone() });
            if self.first.as_ref().is_none_or(|first| at < first.at) {
                self.first = moment();
            }
            if self.last.as_ref().is_none_or(|last| at > last.at) {
                self.last = moment();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(line: &str) -> Entry {
        match read_line(line.as_bytes()) {
            Line::Entry(entry) => *entry,
            other => panic!("{other:?}: {line}"),
        }
    }

    fn message(content: &str) -> Message {
        let line = format!(r#"{{"type":"user","uuid":"u1","message":{{"content":{content}}}}}"#);
        read(&line).message.unwrap()
    }

    #[test]
    fn a_line_is_blank_malformed_or_an_object() {
        for blank in [&b""[..], b" ", b"\r", b"\t \r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n"] {
            assert_eq!(read_line(blank), Line::Blank, "{blank:?}");
        }
        let nul = b"{\"type\":\"user\",\"uuid\":\"a\0b\"}";
        for bad in [
            &b"null"[..],
            b"[1,2,3]",
            b"\"x\"",
            b"{",
            b"{}{}",
            b"{} x",
            b"{\"a\":\"\xff\"}",
            b"{\"a\":\"\xed\xa0\xbd\"}",
            b"{\"a\":tru}",
            b"{\"a\":[}",
            b"\xef\xbb\xbf\xef\xbb\xbf{}",
            nul,
        ] {
            assert_eq!(read_line(bad), Line::Malformed, "{bad:?}");
        }
        for good in ["{}", " {} ", "\u{feff}{}", "{}\r", "{\"a\":1e999}", "{\"type\":7,\"uuid\":[]}"] {
            let entry = read(good);
            assert_eq!((entry.kind, entry.type_name, entry.uuid), (Kind::Unknown, None, None), "{good}");
        }
    }

    #[test]
    fn all_that_is_kept_is_found_in_any_order_and_the_last_of_two_counts() {
        let entry = read(
            r#"{"uuid":"x","message":{"usage":{"output_tokens":3,"input_tokens":-5,"cache_read_input_tokens":"7"},"model":"m","id":"msg_1","role":"user","content":[{"text":"a","type":"text"},{"type":"thinking","thinking":"t1"},{"type":"text","text":"b"},{"type":"redacted_thinking","data":"…"},{"type":"tool_use","id":"t","name":"Bash","input":{"description":"d","command":" ls\n  -l "}},{"type":"image"},7]},"uuid":"u1","parentUuid":"p","sessionId":"s","agentId":"a","cwd":"/w","gitBranch":"main","version":"2.1","timestamp":"2025-10-08T08:53:21.137+02:00","isSidechain":true,"isMeta":true,"isCompactSummary":true,"isApiErrorMessage":true,"\u0074ype":"assistant"}"#,
        );
        let some = |text: &str| Some(text.to_owned());
        let message = Message {
            role: Role::Assistant,
            text: "a\n\nb".to_owned(),
            thinking: "t1".to_owned(),
            tools: vec![ToolUse { id: some("t"), name: "Bash".to_owned(), summary: "ls -l".to_owned() }],
            results: vec![],
            other_blocks: vec!["redacted_thinking".to_owned(), "image".to_owned(), "unknown".to_owned()],
            api_id: some("msg_1"),
            model: some("m"),
            usage: Some(Usage { output_tokens: 3, ..Usage::default() }),
            is_prompt: false,
            api_error: true,
        };
        let expected = Entry {
            kind: Kind::Assistant,
            type_name: some("assistant"),
            uuid: some("u1"),
            parent_uuid: some("p"),
            session_id: some("s"),
            agent_id: some("a"),
            cwd: some("/w"),
            git_branch: some("main"),
            version: some("2.1"),
            timestamp: some("2025-10-08T08:53:21.137+02:00"),
            at: Some(1_759_906_401_137),
            sidechain: true,
            meta: true,
            compact_summary: true,
            message: Some(message),
            title: None,
            tag: None,
        };
        assert_eq!(entry, expected);
    }

    #[test]
    fn only_user_and_assistant_lines_with_a_uuid_are_messages() {
        for (line, is_message) in [
            (r#"{"type":"user","uuid":"u"}"#, true),
            (r#"{"type":"assistant","uuid":"u","message":null}"#, true),
            (r#"{"type":"user"}"#, false),
            (r#"{"type":"user","uuid":""}"#, false),
            (r#"{"type":"user","uuid":7,"message":{"content":"x"}}"#, false),
            (r#"{"type":"user","uuid":"a\u0000b"}"#, false),
            (r#"{"type":"system","uuid":"u","message":{"content":"x"}}"#, false),
            (r#"{"uuid":"u","message":{"content":"x"}}"#, false),
        ] {
            assert_eq!(read(line).message.is_some(), is_message, "{line}");
        }
        let long = |n: usize| format!(r#"{{"type":"user","uuid":"{}"}}"#, "é".repeat(n));
        assert!(read(&long(ID_CHARS_MAX)).message.is_some());
        assert!(read(&long(ID_CHARS_MAX + 1)).uuid.is_none());
    }

    #[test]
    fn a_prompt_is_what_somebody_typed() {
        for (content, typed) in [
            (r#""Fix it""#, true),
            (r#"[{"type":"text","text":"Fix it"},{"type":"image"}]"#, true),
            (r#"[{"type":"text","text":"x"},{"type":"tool_result","tool_use_id":"t"}]"#, false),
            (r#"[{"type":"image"}]"#, false),
            (r#""""#, false),
            (r#"" \n""#, false),
            (r#""a <command-name>/cost</command-name>""#, false),
            (r#""<local-command-stdout>x""#, false),
            (r#""\n<local-command-caveat>x""#, false),
            (r#""[Request interrupted by user for tool use]""#, false),
            (r#""<session-start-hook>""#, false),
            (r#""<task-notification>""#, false),
            (r#""why <local-command-stdout>?""#, true),
        ] {
            assert_eq!(message(content).is_prompt, typed, "{content}");
        }
        for flag in ["isMeta", "isSidechain", "isCompactSummary"] {
            let line = |value: &str| {
                format!(r#"{{"type":"user","uuid":"u","{flag}":{value},"message":{{"content":"Fix it"}}}}"#)
            };
            assert!(!read(&line("true")).message.unwrap().is_prompt, "{flag}");
            assert!(read(&line("false")).message.unwrap().is_prompt, "{flag}");
        }
        let answer = r#"{"type":"assistant","uuid":"u","message":{"content":"Done"}}"#;
        assert!(!read(answer).message.unwrap().is_prompt);
    }

    #[test]
    fn half_a_surrogate_pair_does_not_lose_the_line() {
        for (written, text) in [
            (r"a\ud83db", "a\u{fffd}b"),
            (r"\ud83d", "\u{fffd}"),
            (r"\udc00\ud83d", "\u{fffd}\u{fffd}"),
            (r"\ud83d\ud83d\ude00", "\u{fffd}😀"),
            (r"\uD83D\uDE00 \ud83d", "😀 \u{fffd}"),
            (r"\ud83d\n\\ud83d\\\ud83d", "\u{fffd}\n\\ud83d\\\u{fffd}"),
            (r"\\\\ud83d \ud83d", "\\\\ud83d \u{fffd}"),
            (r"é\ud83dé", "é\u{fffd}é"),
        ] {
            assert_eq!(message(&format!("\"{written}\"")).text, text, "{written}");
        }
        // In what is not kept, and in a key, it costs nothing.
        assert_eq!(read(r#"{"type":"user","toolUseResult":"\ud83d","\ud83d":1}"#).kind, Kind::User);
        assert_eq!(read_line(br#"{"type":"\u12"}"#), Line::Malformed);
    }

    #[test]
    fn nul_is_replaced_in_all_that_is_kept() {
        assert_eq!(message(r#""a\u0000b""#).text, "a\u{fffd}b");
        let line = r#"{"type":"a\u0000","cwd":"\u0000","version":"\u0000","gitBranch":"\u0000","timestamp":"\u0000"}"#;
        let entry = read(line);
        assert_eq!(entry.type_name.as_deref(), Some("a\u{fffd}"));
        let used = message(
            r#"[{"type":"tool_use","name":"\u0000","input":{"command":"a\u0000b"}},{"type":"\u0000"}]"#,
        );
        assert!(!format!("{entry:?}{used:?}").contains("\\0"), "{entry:?}{used:?}");
    }

    #[test]
    fn nesting_has_no_end_and_overflows_nothing() {
        let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
        let line = format!(r#"{{"type":"user","uuid":"u","x":{deep},"message":{{"content":{deep}}}}}"#);
        assert_eq!(read(&line).message.unwrap().other_blocks, ["unknown"]);
        let used = message(&format!(r#"[{{"type":"tool_use","name":"x","input":{deep}}}]"#));
        assert_eq!(used.tools[0].summary.chars().count(), SUMMARY_CHARS_MAX);
        assert_eq!(read_line("{\"a\":".repeat(200_000).as_bytes()), Line::Malformed);
    }

    #[test]
    fn a_call_is_told_in_one_line() {
        let told = |input: &str| {
            message(&format!(r#"[{{"type":"tool_use","input":{input}}}]"#)).tools[0].summary.clone()
        };
        for (input, summary) in [
            (r#"{"path":"/p","pattern":"x","file_path":"/f"}"#, "/f"),
            (r#"{"pattern":"x","path":"/p"}"#, "/p"),
            (r#"{"prompt":"p","description":"d","url":"u","query":"q"}"#, "q"),
            (r#"{"command":"","url":7,"prompt":"p"}"#, "p"),
            (r#"{"a":[1,"b c"]}"#, r#"{"a":[1,"b c"]}"#),
            (r#""text""#, r#""text""#),
            ("null", "null"),
        ] {
            assert_eq!(told(input), summary, "{input}");
        }
        assert_eq!(message(r#"[{"type":"tool_use"}]"#).tools[0].summary, "");
        let long = told(&format!(r#"{{"command":"{}"}}"#, "é".repeat(300)));
        assert_eq!(long, format!("{}…", "é".repeat(199)));
        let exact = told(&format!(r#"{{"command":"{} {}"}}"#, "é".repeat(100), "x".repeat(99)));
        assert_eq!((exact.chars().count(), exact.ends_with('x')), (200, true));
    }

    #[test]
    fn results_tell_their_size_and_whether_they_failed() {
        let found = message(
            r#"[{"type":"tool_result","tool_use_id":"t","content":"abc","is_error":true},{"type":"tool_result","content":[{"a":1}]},{"type":"tool_result"}]"#,
        );
        let told: Vec<_> =
            found.results.iter().map(|r| (r.tool_use_id.as_deref(), r.is_error, r.bytes)).collect();
        assert_eq!(told, [(Some("t"), true, 3), (None, false, 9), (None, false, 0)]);
    }

    #[test]
    fn titles_have_an_order_and_tags_can_be_taken_away() {
        let title = |line: &str| read(line).title.map(|title| (title.rank, title.text));
        assert_eq!(
            title(r#"{"type":"custom-title","customTitle":" a\n b "}"#),
            Some((TitleRank::Custom, "a b".to_owned()))
        );
        assert_eq!(title(r#"{"type":"ai-title","aiTitle":"a"}"#), Some((TitleRank::Ai, "a".to_owned())));
        assert_eq!(title(r#"{"type":"last-prompt","lastPrompt":""}"#), None);
        assert_eq!(title(r#"{"type":"user","summary":"s"}"#), None);
        assert!(TitleRank::Custom > TitleRank::Ai && TitleRank::Ai > TitleRank::LastPrompt);
        assert!(TitleRank::LastPrompt > TitleRank::Summary);
        assert_eq!(read(r#"{"type":"tag","tag":""}"#).tag.as_deref(), Some(""));
        assert_eq!(read(r#"{"type":"user","tag":"x"}"#).tag, None);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let long = message(&format!("\"{}\"", "é".repeat(TEXT_BYTES_MAX)));
        assert!(long.text.ends_with(&format!("é… [+{TEXT_BYTES_MAX} bytes]")));
        assert_eq!(message(&format!("\"{}\"", "x".repeat(TEXT_BYTES_MAX))).text.len(), TEXT_BYTES_MAX);
        let blocks = r#"{"type":"tool_use"},{"type":"tool_result"},{"type":"x"},"#.repeat(BLOCKS_MAX + 5);
        let many = message(&format!("[{}0]", blocks));
        assert_eq!([many.tools.len(), many.results.len(), many.other_blocks.len()], [BLOCKS_MAX; 3]);
        let odd = "x".repeat(10_000);
        let line = format!(
            r#"{{"type":"{odd}","cwd":"{odd}","version":"{odd}","gitBranch":"{odd}","timestamp":"{odd}","parentUuid":"{odd}"}}"#
        );
        let entry = read(&line);
        assert_eq!(entry.cwd.unwrap().chars().count(), PATH_CHARS_MAX);
        assert_eq!(entry.type_name.unwrap().chars().count(), NAME_CHARS_MAX);
        assert_eq!((entry.timestamp, entry.parent_uuid), (None, None));
    }

    #[test]
    fn types_that_are_made_up_do_not_fill_the_tally() {
        let mut tally = Tally::default();
        for n in 0..1000 {
            tally.line(&read_line(format!(r#"{{"type":"t{n}"}}"#).as_bytes()));
        }
        assert_eq!((tally.lines, tally.unknown_types, tally.types.len()), (1000, 1000, TYPES_MAX + 1));
        assert_eq!(tally.types[OTHER_TYPES], 900);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            read_line(&bytes);
            let _ = without_lone_surrogates(&String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn no_content_makes_it_panic(
            content in r#"(\\|\\u|d83d|\\ud83d|\\udc00|["\{\}\[\]:,]|é|0|"type"|"text"|tool_use){0,30}"#
        ) {
            let _ = without_lone_surrogates(&content);
            let line = format!(r#"{{"type":"user","uuid":"u","message":{{"content":{content}}}}}"#);
            read_line(line.as_bytes());
            let line = format!(r#"{{"type":"user","uuid":"u","message":{{"content":"{content}"}}}}"#);
            read_line(line.as_bytes());
        }

        #[test]
        fn a_text_is_read_as_it_was_written(text in any::<String>()) {
            let written = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(message(&written).text, text.replace('\0', "\u{fffd}"));
        }
    }
}
