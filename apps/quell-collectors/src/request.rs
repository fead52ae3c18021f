//! What is asked for by an event: of the queue `collect`, one intake at one source or all of them everywhere; of `collect.value`, the
//! value of an intake.
//!
//! Everything that a payload can have wrong is told here, in one sentence that says what to do, before anybody is asked.

use std::collections::BTreeMap;

use quell::Incoming;
use quell::quell_core::event::{Invalid, Payload, SourceName, Tenant};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::intake::{About, Intake, check_id, lane};
use crate::{COLLECT, COLLECT_VALUE};

/// Further values of one request: more than any template has places.
pub const PARAMS_MAX: usize = 32;
/// Bytes of the name or of the value of one of them.
pub const PARAM_BYTES_MAX: usize = 512;

/// What an event asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Every intake of the tenant at every enabled source.
    All,
    One(One),
}

/// One intake at one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct One {
    /// Missing only where something is tried out that is no intake yet.
    pub intake: Option<String>,
    pub about: Option<About>,
    pub source: SourceName,
    pub params: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    all: bool,
    intake_id: Option<String>,
    about: Option<About>,
    source_id: Option<String>,
    query_params: Option<BTreeMap<String, Value>>,
}

impl Request {
    /// Reads a payload of the queue `collect`.
    pub fn read(payload: &Payload) -> Result<Request, String> {
        let written = Written::read(payload)?;
        if written.all {
            let alone = written.intake_id.is_none() && written.source_id.is_none();
            return match alone && written.about.is_none() && written.query_params.is_none() {
                true => Ok(Request::All),
                false => Err("\"all\" asks for every intake at every source: leave the rest out".to_owned()),
            };
        }
        let one = written.one()?;
        match (&one.intake, &one.about) {
            (Some(_), None) => Ok(Request::One(one)),
            (None, _) => Err("the payload names no intake: give it an \"intake_id\"".to_owned()),
            (_, Some(_)) => {
                Err("\"about\" is for tests of a source: a collection goes by its intake".to_owned())
            }
        }
    }

    /// Reads a payload of the queue `collect.test`, which may describe a thing in place of naming an intake.
    pub fn read_test(payload: &Payload) -> Result<One, String> {
        let written = Written::read(payload)?;
        if written.all {
            return Err("a test asks one source: name it as \"source_id\"".to_owned());
        }
        let one = written.one()?;
        match one.intake.is_some() != one.about.is_some() {
            true => Ok(one),
            false => Err("a test needs either an \"intake_id\" or what a thing is \"about\"".to_owned()),
        }
    }
}

impl Written {
    fn read(payload: &Payload) -> Result<Written, String> {
        payload.parse().map_err(|error| {
            format!(
                "the payload is no request: {error}; it is {{\"intake_id\", \"source_id\", \"query_params\"}}"
            )
        })
    }

    fn one(self) -> Result<One, String> {
        let named = self.source_id.ok_or("the payload names no source: give it a \"source_id\"")?;
        let source = SourceName::new(&named).map_err(|error| error.to_string())?;
        if let Some(id) = &self.intake_id {
            check_id(id).map_err(|error| error.to_string())?;
        }
        let about = self.about.map(|about| about.checked()).transpose().map_err(|error| error.to_string())?;
        let params = self.query_params.unwrap_or_default();
        if params.len() > PARAMS_MAX {
            return Err(format!("{} query_params; at most {PARAMS_MAX} are possible", params.len()));
        }
        let params = params.into_iter().map(param).collect::<Result<_, _>>()?;
        Ok(One { intake: self.intake_id, about, source, params })
    }
}

/// Numbers and truth values are taken as they are written.
fn param((name, value): (String, Value)) -> Result<(String, String), String> {
    let text = match value {
        Value::String(text) => text,
        Value::Number(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            let name: String = name.chars().take(40).collect();
            return Err(format!("query_params: {name:?} is neither a text nor a number"));
        }
    };
    match name.len().max(text.len()) <= PARAM_BYTES_MAX {
        true => Ok((name, text)),
        false => Err(format!("query_params: a name or a value has more than {PARAM_BYTES_MAX} bytes")),
    }
}

/// The event that asks for one intake at one source, governed by that source.
pub fn event(
    tenant: &Tenant,
    intake: &str,
    source: &SourceName,
    params: &BTreeMap<String, String>,
) -> Result<Incoming, Invalid> {
    let mut payload = json!({ "intake_id": intake, "source_id": source });
    if !params.is_empty() {
        payload["query_params"] = json!(params);
    }
    let event = Incoming::new(COLLECT, &lane(intake, source), Payload::of(&payload))?;
    event.tenant(tenant.as_str())?.source(source.as_str())
}

/// The event that has an intake valued anew.
pub fn value_event(intake: &Intake) -> Result<Incoming, Invalid> {
    let payload = Payload::of(&json!({ "intake_id": intake.id }));
    Incoming::new(COLLECT_VALUE, &intake.id, payload)?.tenant(intake.tenant.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: Value) -> Result<Request, String> {
        Request::read(&Payload::of(&value))
    }

    #[test]
    fn an_event_asks_for_what_it_was_made_of() {
        let (tenant, source) = (Tenant::new("acme").unwrap(), SourceName::new("ebay").unwrap());
        let params = BTreeMap::from([("sort".to_owned(), "price".to_owned())]);
        let made = event(&tenant, "coin-1", &source, &params).unwrap();
        assert_eq!((made.lane.key.as_str(), made.lane.tenant), ("coin-1:ebay", tenant));
        assert_eq!(made.source, Some(source.clone()));
        let one = One { intake: Some("coin-1".into()), about: None, source, params };
        assert_eq!(Request::read(&made.payload), Ok(Request::One(one)));
    }

    #[test]
    fn a_payload_that_is_wrong_says_what_is_wrong_with_it() {
        let good = json!({ "intake_id": "a", "source_id": "ebay", "query_params": { "n": 5, "b": true } });
        let Ok(Request::One(one)) = read(good) else { panic!("it is good") };
        assert_eq!(one.params, BTreeMap::from([("b".into(), "true".into()), ("n".into(), "5".into())]));
        assert_eq!(read(json!({ "all": true })), Ok(Request::All));
        let cases = [
            (json!([]), "the payload is no request"),
            (json!({ "intake_id": "a", "source_id": "ebay", "more": 1 }), "unknown field `more`"),
            (json!({ "intake_id": "a" }), "give it a \"source_id\""),
            (json!({ "source_id": "ebay" }), "give it an \"intake_id\""),
            (json!({ "intake_id": "a:b", "source_id": "ebay" }), "is no id of an intake"),
            (json!({ "intake_id": "a", "source_id": "E B" }), "source name"),
            (json!({ "all": true, "source_id": "ebay" }), "leave the rest out"),
            (json!({ "intake_id": "a", "source_id": "e", "about": { "title": "x" } }), "for tests"),
            (json!({ "intake_id": "a", "source_id": "e", "query_params": { "x": [] } }), "neither a text"),
            (json!({ "intake_id": "a", "source_id": "e", "query_params": { "x": "y".repeat(513) } }), "512"),
        ];
        for (payload, part) in cases {
            let error = read(payload.clone()).unwrap_err();
            assert!(error.contains(part), "{payload}: {error}");
        }
    }

    #[test]
    fn a_test_has_an_intake_or_a_description() {
        let read = |value: Value| Request::read_test(&Payload::of(&value));
        assert!(read(json!({ "source_id": "e", "intake_id": "a" })).is_ok());
        assert!(read(json!({ "source_id": "e", "about": { "title": "Eagle" } })).is_ok());
        for bad in [
            json!({ "source_id": "e" }),
            json!({ "source_id": "e", "intake_id": "a", "about": { "title": "Eagle" } }),
            json!({ "source_id": "e", "about": { "year": "1921" } }),
            json!({ "source_id": "e", "about": { "colour": "red" } }),
            json!({ "all": true }),
        ] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
    }
}
