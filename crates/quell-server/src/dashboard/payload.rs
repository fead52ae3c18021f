//! JSON of users as people read it: a tree to unfold, the text as it is, and what differs between two of them.
//!
//! What the rules of the configuration hide is taken out first, so nothing behind it can show it by accident. Everything is cut:
//! a page shows what a person can take in, and the API has the rest.

use quell::deliveries::DeliveryRecord;
use quell::quell_core::event::Event;
use quell::redact::{REDACTED, RedactRule, hides_name, redact, redact_text};
use serde_json::Value;

use super::view::{self, Cut};

/// Lines of one tree: several screens, and quickly written.
const LINES_MAX: usize = 400;
/// Letters of one text in a tree.
const TEXT_CHARS: usize = 300;
/// What is unfolded at first.
const OPEN_DEPTH: usize = 2;
/// Differences that are listed.
const DIFFERENCES_MAX: usize = 200;

/// A piece of JSON without what is hidden.
pub(super) struct Shown {
    value: Value,
    text: String,
    /// Whether a rule has taken something out.
    pub(super) hidden: bool,
}

impl Shown {
    pub(super) fn of(rules: &[RedactRule], mut value: Value) -> Shown {
        let hidden = redact(rules, &mut value);
        let text = value.to_string();
        Shown { value, text, hidden }
    }

    /// A payload is JSON, or it would not have been taken in. Its own text is kept where nothing is hidden.
    pub(super) fn payload(rules: &[RedactRule], text: &str) -> Shown {
        let value = serde_json::from_str(text).unwrap_or_else(|_| Value::from("this is not JSON"));
        let mut shown = Shown::of(rules, value);
        if !shown.hidden {
            text.clone_into(&mut shown.text);
        }
        shown
    }

    /// Its text.
    pub(super) fn text(self) -> String {
        self.text
    }

    /// Its text, cut.
    pub(super) fn raw(&self) -> Cut<'_> {
        view::cut(&self.text)
    }

    /// Something that can be unfolded.
    pub(super) fn is_tree(&self) -> bool {
        matches!(&self.value, Value::Object(members) if !members.is_empty())
            || matches!(&self.value, Value::Array(items) if !items.is_empty())
    }

    pub(super) fn lines(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        grow(&mut lines, None, &self.value, 0);
        lines
    }

    /// What is different in the other one, place by place.
    pub(super) fn differences(&self, other: &Shown) -> Vec<Difference> {
        let mut found = Vec::new();
        compare(&mut found, String::new(), Some(&self.value), Some(&other.value));
        found
    }
}

/// One line of a tree.
pub(super) struct Line {
    pub(super) name: String,
    /// What it is, for its looks: `text`, `number`, `word` or `many`.
    pub(super) kind: &'static str,
    pub(super) text: String,
    /// The following lines are inside it, until one closes it.
    pub(super) branch: bool,
    /// Unfolded at first.
    pub(super) open: bool,
    /// So many branches end behind it.
    pub(super) closes: usize,
}

fn grow(lines: &mut Vec<Line>, name: Option<&str>, value: &Value, depth: usize) {
    let name = name.map(shortened).unwrap_or_default();
    let leaf = |kind, text| Line { name: name.clone(), kind, text, branch: false, open: false, closes: 0 };
    let children: Vec<(String, &Value)> = match value {
        Value::Object(members) => members.iter().map(|(name, member)| (name.clone(), member)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(n, item)| (n.to_string(), item)).collect(),
        _ => Vec::new(),
    };
    if children.is_empty() {
        lines.push(match value {
            Value::String(text) => leaf("text", shortened(text)),
            Value::Number(number) => leaf("number", number.to_string()),
            Value::Object(_) => leaf("word", "{}".to_owned()),
            Value::Array(_) => leaf("word", "[]".to_owned()),
            other => leaf("word", other.to_string()),
        });
        return;
    }
    let many =
        if value.is_object() { format!("{{{}}}", children.len()) } else { format!("[{}]", children.len()) };
    lines.push(Line { branch: true, open: depth < OPEN_DEPTH, ..leaf("many", many) });
    for (name, child) in children {
        if lines.len() >= LINES_MAX {
            let text = "more than is shown here; its text has all of it".to_owned();
            lines.push(Line { name: "…".to_owned(), ..leaf("many", text) });
            break;
        }
        grow(lines, Some(&name), child, depth + 1);
    }
    if let Some(last) = lines.last_mut() {
        last.closes += 1;
    }
}

fn shortened(text: &str) -> String {
    let mut letters = text.chars();
    let mut short = view::visible(&letters.by_ref().take(TEXT_CHARS).collect::<String>());
    if letters.next().is_some() {
        short.push('…');
    }
    short
}

/// A place at which two pieces of JSON are not the same.
#[derive(Debug, PartialEq)]
pub(super) struct Difference {
    /// A JSON pointer; empty for the whole.
    pub(super) place: String,
    pub(super) before: Option<String>,
    pub(super) after: Option<String>,
}

fn compare(found: &mut Vec<Difference>, place: String, before: Option<&Value>, after: Option<&Value>) {
    if before == after || found.len() >= DIFFERENCES_MAX {
        return;
    }
    let below = |name: &str| format!("{place}/{}", name.replace('~', "~0").replace('/', "~1"));
    match (before, after) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            for (name, member) in old {
                compare(found, below(name), Some(member), new.get(name));
            }
            for (name, member) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
                compare(found, below(name), None, Some(member));
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            for index in 0..old.len().max(new.len()) {
                compare(found, below(&index.to_string()), old.get(index), new.get(index));
            }
        }
        _ => {
            let text = |value: &Value| shortened(&value.to_string());
            let (before, after) = (before.map(text), after.map(text));
            found.push(Difference { place: shortened(&place), before, after });
        }
    }
}

/// An event as a page shows it.
pub(super) struct EventShown<'a> {
    pub(super) event: &'a Event,
    pub(super) payload: Shown,
    pub(super) headers: Vec<(&'a str, &'a str)>,
    /// Where its trace is looked at.
    pub(super) trace: Option<String>,
    /// What is different from the event before it.
    pub(super) differences: Option<Vec<Difference>>,
}

/// Events in their order, each compared with the one before.
pub(super) fn events<'a>(
    rules: &[RedactRule],
    trace_url: Option<&str>,
    events: &'a [Event],
) -> Vec<EventShown<'a>> {
    let mut shown: Vec<EventShown<'a>> = Vec::with_capacity(events.len());
    for event in events {
        let payload = Shown::payload(rules, event.payload.as_str());
        let differences = shown.last().map(|before| before.payload.differences(&payload));
        let headers = event.headers.iter().map(|(name, value)| {
            let value = if hides_name(rules, name) { REDACTED } else { value.as_str() };
            (name.as_str(), value)
        });
        let trace = trace_url.zip(trace_id(event)).map(|(url, id)| url.replace("{trace_id}", id));
        shown.push(EventShown { event, payload, headers: headers.collect(), trace, differences });
    }
    shown
}

/// Takes out of a delivery what the rules hide. In a body that is not JSON, or only the beginning of it, nothing can be found, so
/// where there are rules none of it is shown; nor is the query of its address.
pub(super) fn hide_in_delivery(rules: &[RedactRule], record: &mut DeliveryRecord) {
    if rules.is_empty() {
        return;
    }
    for (name, value) in &mut record.headers {
        if hides_name(rules, name) {
            REDACTED.clone_into(value);
        }
    }
    record.detail = record.detail.take().map(|text| redact_text(rules, &text));
    if let Some((path, _)) = record.target.split_once('?') {
        record.target = format!("{path}?{REDACTED}");
    }
    if !record.body.is_empty() {
        let whole = serde_json::from_str(&record.body).ok().filter(|_| !record.body_is_base64);
        record.body = whole.map_or_else(|| REDACTED.to_owned(), |value| Shown::of(rules, value).text);
    }
}

/// The second part of `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`.
fn trace_id(event: &Event) -> Option<&str> {
    let (_, sent) = event.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("traceparent"))?;
    let id = sent.split('-').nth(1)?;
    (id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(id)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tree(value: Value) -> String {
        let mut text = String::new();
        for line in Shown::of(&[], value).lines() {
            text += &format!("{}={}{}", line.name, line.text, if line.branch { "(" } else { " " });
            text += &")".repeat(line.closes);
        }
        text
    }

    #[test]
    fn a_tree_closes_what_it_opens() {
        assert_eq!(tree(json!({ "a": { "b": [1, true] }, "c": "x" })), "={2}(a={1}(b=[2](0=1 1=true ))c=x )");
        assert_eq!(tree(json!([])), "=[] ");
        assert_eq!(tree(json!("only a text")), "=only a text ");
        assert_eq!(tree(json!([[]])), "=[1](0=[] )");
    }

    #[test]
    fn a_large_one_is_cut_and_still_closed() {
        let mut deep = json!(1);
        for _ in 0..100 {
            deep = json!([deep, deep.clone().as_array().map_or(0, Vec::len)]);
        }
        for value in [deep, json!((0..10_000).collect::<Vec<_>>()), json!("x".repeat(1_000_000))] {
            let lines = Shown::of(&[], value).lines();
            assert!(lines.len() <= LINES_MAX + 100, "{}", lines.len());
            let opened = lines.iter().filter(|line| line.branch).count();
            assert_eq!(opened, lines.iter().map(|line| line.closes).sum::<usize>());
            assert!(lines.iter().all(|line| line.text.chars().count() <= TEXT_CHARS + 1));
        }
    }

    #[test]
    fn differences_are_told_by_place() {
        let of = |value| Shown::of(&[], value);
        let before = of(json!({ "same": 1, "gone": 2, "list": [1, 2], "a/b": { "c": 1 } }));
        let after = of(json!({ "same": 1, "new": 3, "list": [1, 3, 4], "a/b": { "c": 2 } }));
        let told = |place: &str, before: Option<&str>, after: Option<&str>| Difference {
            place: place.to_owned(),
            before: before.map(str::to_owned),
            after: after.map(str::to_owned),
        };
        assert_eq!(
            before.differences(&after),
            [
                told("/a~1b/c", Some("1"), Some("2")),
                told("/gone", Some("2"), None),
                told("/list/1", Some("2"), Some("3")),
                told("/list/2", None, Some("4")),
                told("/new", None, Some("3")),
            ]
        );
        assert_eq!(before.differences(&before), []);
        assert_eq!(of(json!(1)).differences(&of(json!([]))), [told("", Some("1"), Some("[]"))]);
    }

    #[test]
    fn what_is_hidden_is_nowhere() {
        let rules = [RedactRule::parse("*secret*").unwrap()];
        let shown = Shown::payload(&rules, r#"{"my_secret":"xyzzy","b":1}"#);
        assert!(shown.hidden && !shown.raw().text.contains("xyzzy"));
        assert!(shown.lines().iter().all(|line| !line.text.contains("xyzzy")));
        let plain = Shown::payload(&rules, r#"{ "b":  1 }"#);
        assert_eq!((plain.hidden, plain.raw().text), (false, r#"{ "b":  1 }"#), "as it was sent");
    }
}
