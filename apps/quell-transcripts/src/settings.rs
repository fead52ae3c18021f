//! A settings file of an agent that is changed in a few places and otherwise stays as somebody wrote it.
//!
//! People edit these files by hand, keep them in version control and compare them. So the file is not parsed and printed
//! again: a value stays the text that it was until something in it is changed, and only the objects and arrays on the way
//! to the change are written anew, in the file's own indentation and with their keys in their order. (The JSON maps of
//! this workspace sort their keys, which others rely on.)

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// Why a settings file is left alone. Says where it is and what to do, and shows nothing of what is in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("it is not UTF-8; save it as UTF-8 and try again")]
    NotText,
    #[error("it has comments (line {line}), which are not JSON and would be lost; remove them and try again")]
    Comments { line: usize },
    #[error("it is not JSON (line {line}, column {column}); correct it and try again")]
    NotJson { line: usize, column: usize },
    #[error("it is JSON, but not an object; settings are an object such as {{}}")]
    NotAnObject,
    #[error("{place} is there more than once, and only the last counts; remove the others and try again")]
    MoreThanOnce { place: String },
    #[error("{place} is not {expected}; correct it and try again")]
    Shape { place: String, expected: &'static str },
    #[error("the command is not a call of `quell hook`, and would not be found again")]
    NotOurs,
}

/// A value of which as little as possible has been taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Json {
    /// As it was written.
    Text(String),
    Object(Vec<(String, Json)>),
    Array(Vec<Json>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Style {
    /// What a level is indented by; none for a file that is all in one line.
    indent: Option<String>,
    newline: &'static str,
    /// After the last bracket.
    end: String,
    /// A byte order mark.
    mark: bool,
}

/// A settings file in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    style: Style,
    root: Json,
    value: Value,
}

impl Settings {
    /// An empty text stands for no settings.
    pub fn read(text: &str) -> Result<Settings, Problem> {
        let (mark, text) = text.strip_prefix('\u{feff}').map_or((false, text), |text| (true, text));
        let style = Style::of(text, mark);
        let body = if text.trim_ascii().is_empty() { "{}" } else { text.trim_ascii() };
        let value: Value = serde_json::from_str(text.trim_ascii_end()).or_else(|error| {
            if text.trim_ascii().is_empty() {
                return Ok(Value::Object(serde_json::Map::new()));
            }
            Err(match first_comment(text) {
                Some(line) => Problem::Comments { line },
                None => Problem::NotJson { line: error.line(), column: error.column() },
            })
        })?;
        if !value.is_object() {
            return Err(Problem::NotAnObject);
        }
        let settings = Settings { style, root: Json::Text(body.to_owned()), value };
        settings.check_twice()?;
        Ok(settings)
    }

    /// As a value, for looking at.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// As a file.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if self.style.mark {
            text.push('\u{feff}');
        }
        self.style.write(&self.root, 0, &mut text);
        text.push_str(&self.style.end);
        text
    }

    /// Changes it. What is looked at afterwards is what would be written.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Vec<(String, Json)>)) {
        if let Some(entries) = self.root.object() {
            change(entries);
        }
        if let Ok(value) = serde_json::from_str(self.text().trim_start_matches('\u{feff}')) {
            self.value = value;
        }
    }

    /// A name that is there twice would be changed in one place and count in the other.
    fn check_twice(&self) -> Result<(), Problem> {
        let twice = |entries: &[(String, Json)], within: &str| {
            let names = entries.iter().enumerate();
            let mut repeated =
                names.filter(|(at, (name, _))| entries[..*at].iter().any(|(other, _)| other == name));
            let place = |name: &str| format!("{within}{}", shown(name));
            repeated.next().map_or(Ok(()), |(_, (name, _))| Err(Problem::MoreThanOnce { place: place(name) }))
        };
        let mut root = self.root.clone();
        let Some(entries) = root.object() else { return Ok(()) };
        twice(entries, "")?;
        let hooks = entries.iter_mut().find(|(name, _)| name == "hooks");
        hooks.and_then(|(_, hooks)| hooks.object()).map_or(Ok(()), |hooks| twice(hooks, "hooks."))
    }
}

/// A name in a message. Names of settings are no secrets, but they need not be short or harmless either.
pub(crate) fn shown(name: &str) -> String {
    let letters = name.chars().map(|letter| if letter.is_control() { '?' } else { letter });
    letters.take(60).collect()
}

/// The line of the first comment outside of the texts, if there is one.
fn first_comment(text: &str) -> Option<usize> {
    let mut line = 1;
    let mut in_string = false;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\n' => {
                line += 1;
                in_string = false;
            }
            '\\' if in_string => drop(letters.next_if(|next| *next != '\n')),
            '"' => in_string = !in_string,
            '/' if !in_string && letters.peek().is_some_and(|next| matches!(next, '/' | '*')) => {
                return Some(line);
            }
            _ => {}
        }
    }
    None
}

impl Style {
    fn of(text: &str, mark: bool) -> Style {
        let body = text.trim_ascii();
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let indented = body.lines().skip(1).map(|line| &line[..line.len() - line.trim_start().len()]);
        let indent = match indented.into_iter().find(|space| !space.is_empty()) {
            Some(space) => Some(space.to_owned()),
            // One line with something in it was meant to be one line.
            None if !body.contains('\n') && body.contains(':') => None,
            None => Some("  ".to_owned()),
        };
        let end = if body.is_empty() { newline } else { &text[text.trim_ascii_end().len()..] };
        Style { indent, newline, end: end.to_owned(), mark }
    }

    fn write(&self, json: &Json, depth: usize, into: &mut String) {
        let line = |depth: usize, into: &mut String| {
            if let Some(indent) = &self.indent {
                into.push_str(self.newline);
                into.push_str(&indent.repeat(depth));
            }
        };
        match json {
            Json::Text(text) => into.push_str(text),
            Json::Object(entries) if entries.is_empty() => into.push_str("{}"),
            Json::Array(elements) if elements.is_empty() => into.push_str("[]"),
            Json::Object(entries) => {
                into.push('{');
                for (at, (name, value)) in entries.iter().enumerate() {
                    into.push_str(if at > 0 { "," } else { "" });
                    line(depth + 1, into);
                    into.push_str(&text_of(name));
                    into.push_str(if self.indent.is_some() { ": " } else { ":" });
                    self.write(value, depth + 1, into);
                }
                line(depth, into);
                into.push('}');
            }
            Json::Array(elements) => {
                into.push('[');
                for (at, element) in elements.iter().enumerate() {
                    into.push_str(if at > 0 { "," } else { "" });
                    line(depth + 1, into);
                    self.write(element, depth + 1, into);
                }
                line(depth, into);
                into.push(']');
            }
        }
    }
}

fn text_of(text: &str) -> String {
    Value::from(text).to_string()
}

impl Json {
    pub(crate) fn string(text: &str) -> Json {
        Json::Text(text_of(text))
    }

    pub(crate) fn number(number: u64) -> Json {
        Json::Text(number.to_string())
    }

    /// Takes an object apart, one level; nothing if it is none.
    pub(crate) fn object(&mut self) -> Option<&mut Vec<(String, Json)>> {
        if let Json::Text(text) = self
            && let Ok(Entries(entries)) = serde_json::from_str(text)
        {
            *self = Json::Object(entries);
        }
        if let Json::Object(entries) = self { Some(entries) } else { None }
    }

    /// Takes an array apart, one level; nothing if it is none.
    pub(crate) fn array(&mut self) -> Option<&mut Vec<Json>> {
        if let Json::Text(text) = self
            && let Ok(elements) = serde_json::from_str::<Vec<&RawValue>>(text)
        {
            *self = Json::Array(elements.into_iter().map(|raw| Json::Text(raw.get().to_owned())).collect());
        }
        if let Json::Array(elements) = self { Some(elements) } else { None }
    }

    /// The value with this name, the last of them as everywhere.
    pub(crate) fn get_mut<'a>(entries: &'a mut [(String, Json)], name: &str) -> Option<&'a mut Json> {
        entries.iter_mut().rev().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// In its place if it is there, else at the end.
    pub(crate) fn set(entries: &mut Vec<(String, Json)>, name: &str, value: Json) {
        match Json::get_mut(entries, name) {
            Some(there) => *there = value,
            None => entries.push((name.to_owned(), value)),
        }
    }
}

/// The entries of an object in their order.
struct Entries(Vec<(String, Json)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    entries.push((name, Json::Text(value.get().to_owned())));
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_b(text: &str) -> String {
        let mut settings = Settings::read(text).unwrap();
        settings.change(|entries| Json::set(entries, "b", Json::Array(vec![Json::number(7)])));
        settings.text()
    }

    #[test]
    fn what_is_not_changed_stays_byte_for_byte() {
        for text in
            ["{}", "{}\n", " { \"z\" : 1.0 ,\n\"a\": [1,  2] }\r\n\n", "\u{feff}{\n\t\"a\": \"\\u00e4\"\n}"]
        {
            let settings = Settings::read(text).unwrap();
            assert_eq!(settings.text().trim(), text.trim_ascii());
            assert!(settings.text().ends_with(&text[text.trim_ascii_end().len()..]));
        }
        assert_eq!(Settings::read("").unwrap().text(), "{}\n");
    }

    #[test]
    fn a_change_is_written_in_the_files_own_hand() {
        for (before, after) in [
            ("", "{\n  \"b\": [\n    7\n  ]\n}\n"),
            ("{}", "{\n  \"b\": [\n    7\n  ]\n}"),
            ("{\"z\":1.50,\"a\":[1, 2]}\n", "{\"z\":1.50,\"a\":[1, 2],\"b\":[7]}\n"),
            (
                "{\n    \"z\": {\"x\":  1e3},\n    \"a\": [\n        1\n    ]\n}\n",
                "{\n    \"z\": {\"x\":  1e3},\n    \"a\": [\n        1\n    ],\n    \"b\": [\n        7\n    ]\n}\n",
            ),
            ("{\n\t\"b\": 1,\n\t\"a\": 2\n}", "{\n\t\"b\": [\n\t\t7\n\t],\n\t\"a\": 2\n}"),
            ("{\r\n  \"a\": 1\r\n}\r\n", "{\r\n  \"a\": 1,\r\n  \"b\": [\r\n    7\r\n  ]\r\n}\r\n"),
            ("\u{feff}{\"a\":1}", "\u{feff}{\"a\":1,\"b\":[7]}"),
        ] {
            assert_eq!(with_b(before), after);
        }
    }

    #[test]
    fn what_is_no_settings_file_says_why() {
        for (text, problem) in [
            ("{\n  // mine\n  \"a\": 1\n}", Problem::Comments { line: 2 }),
            ("{\"url\": \"https://x\" /* no */}", Problem::Comments { line: 1 }),
            ("{\"url\": \"https://x\",}", Problem::NotJson { line: 1, column: 21 }),
            ("{", Problem::NotJson { line: 1, column: 1 }),
            ("[]", Problem::NotAnObject),
            ("null", Problem::NotAnObject),
            ("{\"a\":1,\"a\":2}", Problem::MoreThanOnce { place: "a".to_owned() }),
            (
                "{\"hooks\":{\"Stop\":[],\"Stop\":[]}}",
                Problem::MoreThanOnce { place: "hooks.Stop".to_owned() },
            ),
        ] {
            assert_eq!(Settings::read(text), Err(problem), "{text}");
        }
    }
}
