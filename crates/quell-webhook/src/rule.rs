//! Where something stands in a delivery: `"/repository/full_name"` (a JSON pointer, RFC 6901), `"header:X-GitHub-Delivery"`,
//! or `"text:everyone"` (always this).

use std::fmt;

use http::HeaderName;
use serde_json::{Number, Value};

use crate::content::Content;
use crate::scheme::Delivery;

/// One place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// A JSON pointer; the empty one is the whole document.
    Pointer(String),
    /// A header, in small letters.
    Header(String),
    /// Always this text.
    Text(String),
}

/// Why a text is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} names no place: write \"/a/b\" (a JSON pointer), \"header:NAME\" or \"text:WORD\"")]
pub struct BadRule {
    /// What is no rule.
    pub text: String,
}

impl Rule {
    /// Reads `/a/b`, `header:NAME` or `text:WORD`.
    pub fn parse(text: &str) -> Result<Self, BadRule> {
        let bad = || BadRule { text: text.to_owned() };
        if text.is_empty() || text.starts_with('/') {
            let escaped = text.split('~').skip(1).all(|part| part.starts_with(['0', '1']));
            return if escaped { Ok(Rule::Pointer(text.to_owned())) } else { Err(bad()) };
        }
        match text.split_once(':') {
            Some(("header", name)) => {
                let name: HeaderName = name.trim().parse().map_err(|_| bad())?;
                Ok(Rule::Header(name.as_str().to_owned()))
            }
            Some(("text", word)) if !word.is_empty() => Ok(Rule::Text(word.to_owned())),
            _ => Err(bad()),
        }
    }

    /// The text in that place: a string, a number or a truth value. Nothing else names anything, and nor does an empty text.
    pub(crate) fn text(&self, delivery: &Delivery<'_>, content: &Content) -> Option<String> {
        let found = match self {
            Rule::Pointer(pointer) => match content.value().pointer(pointer)? {
                Value::String(text) => text.clone(),
                Value::Number(number) if is_exact(number) => number.to_string(),
                Value::Bool(truth) => truth.to_string(),
                Value::Null | Value::Array(_) | Value::Object(_) | Value::Number(_) => return None,
            },
            Rule::Header(name) => delivery.headers.get(name)?.to_str().ok()?.to_owned(),
            Rule::Text(word) => word.clone(),
        };
        Some(found).filter(|text| !text.is_empty())
    }
}

/// Beyond 64 bits, and beyond 53 with a point or an exponent, several numbers are read as the same one: two events would have
/// one id.
fn is_exact(number: &Number) -> bool {
    !number.is_f64() || number.as_f64().is_some_and(|number| number.abs() < 9_007_199_254_740_992.0)
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Pointer(pointer) => f.write_str(pointer),
            Rule::Header(name) => write!(f, "header:{name}"),
            Rule::Text(word) => write!(f, "text:{word}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};

    use super::*;

    #[test]
    fn a_rule_is_a_pointer_a_header_or_a_text() {
        for (text, rule) in [
            ("/a/b", Rule::Pointer("/a/b".into())),
            ("/a~1b~0", Rule::Pointer("/a~1b~0".into())),
            ("", Rule::Pointer("".into())),
            ("header:X-GitHub-Delivery", Rule::Header("x-github-delivery".into())),
            ("text:all", Rule::Text("all".into())),
        ] {
            let parsed = Rule::parse(text).unwrap();
            assert_eq!(parsed, rule);
            assert_eq!(Rule::parse(&parsed.to_string()), Ok(parsed));
        }
        for bad in ["a/b", "/a~2", "/a~", "header:", "header:a b", "header:ä", "text:", "query:x", "header"]
        {
            assert!(Rule::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_what_is_one_word_names_something() {
        let mut headers = HeaderMap::new();
        headers.insert("x-id", "7".parse().unwrap());
        headers.insert("x-empty", "".parse().unwrap());
        let body = br#"{"s":"x","n":7,"f":1.5,"large":18446744073709551615,"larger":18446744073709551616,"exponent":1e16,"t":true,"nothing":null,"list":[1],"o":{"in":"side"},"e":"","a/b":"c"}"#;
        let delivery = Delivery { method: &Method::POST, target: "/", rest: None, headers: &headers, body };
        let content = Content::of(&delivery).unwrap();
        for (rule, found) in [
            ("/s", Some("x")),
            ("/n", Some("7")),
            ("/f", Some("1.5")),
            ("/large", Some("18446744073709551615")),
            ("/larger", None),
            ("/exponent", None),
            ("/t", Some("true")),
            ("/o/in", Some("side")),
            ("/a~1b", Some("c")),
            ("/list/0", Some("1")),
            ("/nothing", None),
            ("/list", None),
            ("/o", None),
            ("/e", None),
            ("/missing", None),
            ("", None),
            ("header:X-Id", Some("7")),
            ("header:x-empty", None),
            ("header:x-missing", None),
            ("text:all", Some("all")),
        ] {
            let rule = Rule::parse(rule).unwrap();
            assert_eq!(rule.text(&delivery, &content).as_deref(), found, "{rule}");
        }
    }
}
