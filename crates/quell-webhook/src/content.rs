//! The body of a proven delivery as JSON: it is JSON, or a form whose fields become an object.
//!
//! Providers are careless with content types, so a body that is JSON is taken as JSON whatever it is called. A form with
//! one field `payload` that holds JSON (GitHub, Slack's buttons) is that JSON.

use http::header::CONTENT_TYPE;
use serde_json::{Map, Value};

use crate::refusal::{Because, Refusal};
use crate::scheme::Delivery;

/// A form of a provider has some twenty fields.
const FIELDS_MAX: usize = 256;

/// What was sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    value: Value,
    /// The text of it, when it came as JSON: the payload is kept as it was written.
    text: Option<String>,
}

impl Content {
    /// Reads a body by its type: JSON, or a form as an object.
    pub fn of(delivery: &Delivery<'_>) -> Result<Content, Refusal> {
        let unreadable = |detail: String| Refusal::new(Because::Unreadable, detail);
        let body = std::str::from_utf8(delivery.body)
            .map_err(|error| unreadable(format!("the body is not UTF-8: {error}")))?;
        let media = delivery.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
        let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if media == "application/x-www-form-urlencoded" {
            return Content::of_form(body);
        }
        Content::of_json(body).map_err(|error| unreadable(format!("the body is not JSON: {error}")))
    }

    fn of_json(text: &str) -> Result<Content, serde_json::Error> {
        Ok(Content { value: serde_json::from_str(text)?, text: Some(text.trim().to_owned()) })
    }

    fn of_form(body: &str) -> Result<Content, Refusal> {
        let mut fields = Map::new();
        for (number, (name, value)) in form_urlencoded::parse(body.as_bytes()).enumerate() {
            if number == FIELDS_MAX {
                let detail = format!("the form has more than {FIELDS_MAX} fields");
                return Err(Refusal::new(Because::Unreadable, detail));
            }
            let value = Value::String(value.into_owned());
            match fields.get_mut(name.as_ref()) {
                None => {
                    fields.insert(name.into_owned(), value);
                }
                // A field that is there more than once is a list.
                Some(Value::Array(values)) => values.push(value),
                Some(first) => *first = Value::Array(vec![first.take(), value]),
            }
        }
        if let (1, Some(Value::String(payload))) = (fields.len(), fields.get("payload"))
            && let Ok(content) = Content::of_json(payload)
        {
            return Ok(content);
        }
        Ok(Content { value: Value::Object(fields), text: None })
    }

    /// The body as a value.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// All of it, byte for byte where it came as JSON.
    pub fn text(&self) -> String {
        self.text.clone().unwrap_or_else(|| self.value.to_string())
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};
    use serde_json::json;

    use super::*;

    fn content(media: &str, body: &[u8]) -> Result<Content, Refusal> {
        let mut headers = HeaderMap::new();
        if !media.is_empty() {
            headers.insert(CONTENT_TYPE, media.parse().unwrap());
        }
        Content::of(&Delivery { method: &Method::POST, target: "/", rest: None, headers: &headers, body })
    }

    const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";

    #[test]
    fn json_is_json_whatever_it_is_called_and_keeps_its_bytes() {
        for media in ["application/json", "text/plain", "", "application/vnd.api+json"] {
            let found = content(media, b" {\"b\": 1.0, \"a\":2}\n").unwrap();
            assert_eq!(found.text(), "{\"b\": 1.0, \"a\":2}", "{media}");
            assert_eq!(found.value()["a"], 2);
        }
    }

    #[test]
    fn a_form_becomes_an_object_and_a_field_payload_is_what_it_holds() {
        let found = content(FORM, b"a=1&b=x+y&a=2&a=3&%C3%A4=%F0%9F%90%8C&empty=").unwrap();
        assert_eq!(found.value(), &json!({"a": ["1", "2", "3"], "b": "x y", "ä": "🐌", "empty": ""}));
        assert_eq!(content(FORM, b"payload=%7B%22a%22%3A1%7D").unwrap().text(), "{\"a\":1}");
        assert_eq!(content(FORM, b"payload=no").unwrap().value(), &json!({"payload": "no"}));
        let two = content(FORM, b"payload=%7B%7D&token=x").unwrap();
        assert_eq!(two.value(), &json!({"payload": "{}", "token": "x"}));
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let many = "a=1&".repeat(300);
        let deep = "[".repeat(200);
        for (media, body, why) in [
            ("application/json", &b""[..], "not JSON"),
            ("application/json", b"{", "not JSON"),
            ("application/json", b"{} x", "not JSON"),
            ("application/json", b"\xff", "not UTF-8"),
            ("application/json", deep.as_bytes(), "not JSON"),
            ("application/json", b"\xef\xbb\xbf{}", "not JSON"),
            (FORM, many.as_bytes(), "more than 256 fields"),
        ] {
            let refusal = content(media, body).unwrap_err();
            assert!(refusal.because == Because::Unreadable && refusal.detail.contains(why), "{refusal}");
        }
    }
}
