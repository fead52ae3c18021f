//! CloudEvents 1.0 over HTTP: binary, structured and batched.
//!
//! `source` and `id` together are the identity of a CloudEvent, so together they are the id of ours. The key is the
//! extension `partitionkey`, else `subject`, else `source`. The payload is the whole event in its structured form, so that
//! a handler sees all of it. Hand-written: the SDK brings an HTTP client and a date library of its own.

use std::fmt;

use base64::Engine as _;
use http::HeaderMap;
use percent_encoding::percent_decode_str;
use quell::quell_core::event::Payload;
use quell::quell_core::limits as core_limits;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::body;
use crate::error::{Answer, Problem};

const STRUCTURED: &str = "application/cloudevents+json";
const BATCHED: &str = "application/cloudevents-batch+json";

/// What we need of one.
pub(crate) struct CloudEvent {
    pub(crate) id: String,
    pub(crate) key: String,
    pub(crate) payload: Payload,
}

/// The attributes of an event in JSON, each given once: of two the reader behind us might take the other one.
struct Attributes(Map<String, Value>);

impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Attributes(Map::new()))
    }
}

impl<'de> Visitor<'de> for Attributes {
    type Value = Attributes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a CloudEvent")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut given: A) -> Result<Attributes, A::Error> {
        while let Some((name, value)) = given.next_entry::<String, Value>()? {
            if self.0.contains_key(&name) {
                return Err(A::Error::custom(format!("{name:?} is given twice")));
            }
            self.0.insert(name, value);
        }
        Ok(self)
    }
}

pub(crate) fn is_cloudevent(media: &str, headers: &HeaderMap) -> bool {
    media.starts_with("application/cloudevents") || headers.contains_key("ce-specversion")
}

pub(crate) fn read(media: &str, headers: &HeaderMap, bytes: &[u8]) -> Answer<Vec<CloudEvent>> {
    match media {
        STRUCTURED => Ok(vec![checked(body::parse::<Attributes>(bytes)?.0)?]),
        BATCHED => {
            let events: Vec<Attributes> = body::parse(bytes)?;
            if events.len() > core_limits::APPEND_EVENTS_MAX {
                return Err(Problem::too_large("too many events in one request"));
            }
            let placed = events.into_iter().enumerate();
            placed
                .map(|(at, event)| checked(event.0).map_err(|problem| problem.at(format!("[{at}]"))))
                .collect()
        }
        other if other.starts_with("application/cloudevents") => {
            Err(Problem::unsupported("CloudEvents are taken as JSON").at("Content-Type"))
        }
        _ => Ok(vec![checked(binary(media, headers, bytes)?)?]),
    }
}

/// Attributes are headers, the body is the data.
fn binary(media: &str, headers: &HeaderMap, bytes: &[u8]) -> Answer<Map<String, Value>> {
    let mut event = Map::new();
    for (name, value) in headers {
        let Some(attribute) = name.as_str().strip_prefix("ce-") else { continue };
        let wrong = || Problem::bad_request("this attribute is not text").at(name.as_str());
        let text = value.to_str().map_err(|_| wrong())?;
        let text = percent_decode_str(text).decode_utf8().map_err(|_| wrong())?;
        if event.insert(attribute.to_owned(), Value::String(text.into_owned())).is_some() {
            return Err(Problem::bad_request("this attribute is given twice").at(name.as_str()));
        }
    }
    if !media.is_empty() {
        event.insert("datacontenttype".to_owned(), Value::String(media.to_owned()));
    }
    if bytes.is_empty() {
        return Ok(event);
    }
    if media.is_empty() || body::is_json(media) {
        event.insert("data".to_owned(), body::parse(bytes)?);
    } else if let (true, Ok(text)) = (media.starts_with("text/"), std::str::from_utf8(bytes)) {
        event.insert("data".to_owned(), Value::String(text.to_owned()));
    } else {
        let text = base64::engine::general_purpose::STANDARD.encode(bytes);
        event.insert("data_base64".to_owned(), Value::String(text));
    }
    Ok(event)
}

fn checked(event: Map<String, Value>) -> Answer<CloudEvent> {
    let wrong = |name: &str, what: &str| {
        Problem::bad_request(format!("CloudEvent: {name} {what}")).at(name.to_owned())
    };
    let text = |name: &str| match event.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.as_str())),
        Some(_) => Err(wrong(name, "is not a text of at least one character")),
    };
    let needed = |name: &str| text(name)?.ok_or_else(|| wrong(name, "is missing"));
    if needed("specversion")? != "1.0" {
        return Err(wrong("specversion", "is not 1.0"));
    }
    if let Some(odd) = event.keys().find(|name| !is_attribute(name)) {
        return Err(wrong(odd, "is no attribute: they are small letters and digits"));
    }
    let (id, source) = (needed("id")?, needed("source")?);
    needed("type")?;
    if event.contains_key("data") && event.contains_key("data_base64") {
        return Err(wrong("data", "and data_base64 are both there"));
    }
    match event.get("data_base64") {
        None => {}
        Some(Value::String(text)) if base64::engine::general_purpose::STANDARD.decode(text).is_ok() => {}
        Some(_) => return Err(wrong("data_base64", "is not base 64")),
    }
    let key = match (text("partitionkey")?, text("subject")?) {
        (Some(key), _) | (None, Some(key)) => key.to_owned(),
        (None, None) => source.to_owned(),
    };
    // The length of the first part keeps `a` + `bc` and `ab` + `c` apart.
    let mut identity = format!("{}:{source}#{id}", source.len());
    if identity.len() > core_limits::EVENT_ID_BYTES_MAX {
        identity = Sha256::digest(identity.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    }
    let payload = Payload::from_json(Value::Object(event).to_string().as_bytes())?;
    Ok(CloudEvent { id: identity, key, payload })
}

fn is_attribute(name: &str) -> bool {
    name == "data_base64"
        || (!name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn structured(event: Value) -> Answer<Vec<CloudEvent>> {
        read(STRUCTURED, &HeaderMap::new(), event.to_string().as_bytes())
    }

    fn event() -> Value {
        json!({ "specversion": "1.0", "id": "7", "source": "/shop", "type": "order.paid" })
    }

    #[test]
    fn the_key_is_the_most_particular_name() {
        let mut given = event();
        let key = |given: &Value| structured(given.clone()).unwrap()[0].key.clone();
        assert_eq!(key(&given), "/shop");
        given["subject"] = json!("order 9");
        assert_eq!(key(&given), "order 9");
        given["partitionkey"] = json!("ada");
        assert_eq!(key(&given), "ada");
    }

    #[test]
    fn source_and_id_are_the_identity() {
        let id = |source: &str, id: &str| {
            let mut given = event();
            (given["source"], given["id"]) = (json!(source), json!(id));
            structured(given).unwrap()[0].id.clone()
        };
        assert_ne!(id("a", "b#c"), id("a#b", "c"));
        assert_eq!(id("a", "b"), "1:a#b");
        assert_eq!(id(&"x".repeat(300), "1").len(), 64);
    }

    #[test]
    fn what_is_missing_or_odd_is_named() {
        for (name, value) in
            [("id", Value::Null), ("type", json!("")), ("source", json!(7)), ("specversion", json!("0.3"))]
        {
            let mut given = event();
            given[name] = value;
            let problem = structured(given).err().unwrap();
            assert_eq!(problem.detail().split(' ').nth(1), Some(name));
        }
        let mut given = event();
        given["Trace-Parent"] = json!("x");
        assert!(structured(given).is_err());
    }

    #[test]
    fn binary_attributes_are_percent_decoded_and_data_keeps_its_kind() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("ce-specversion", "1.0"),
            ("ce-id", "1"),
            ("ce-source", "/s"),
            ("ce-type", "t"),
            ("ce-subject", "a%20b%C3%A9"),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        let read =
            |media: &str, bytes: &[u8]| read(media, &headers, bytes).map(|mut events| events.remove(0));
        let json = read("application/json", b"{\"a\":1}").unwrap();
        assert_eq!(json.key, "a bé");
        let value: Value = serde_json::from_str(json.payload.as_str()).unwrap();
        assert_eq!(value["data"], json!({ "a": 1 }));
        let image: Value =
            serde_json::from_str(read("image/png", &[0, 255]).unwrap().payload.as_str()).unwrap();
        assert_eq!(image["data_base64"], json!("AP8="));
        assert!(read("application/json", b"{").is_err());
    }
}
