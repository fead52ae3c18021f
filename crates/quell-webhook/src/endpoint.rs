//! One configured endpoint: a delivery in, events or a refusal out.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use crate::content::Content;
use crate::refusal::{Because, Refusal};
use crate::rule::Rule;
use crate::scheme::{Check, Delivery, Handshake, Scheme};
use crate::secret::Secret;

/// Where things stand in the deliveries of an endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// The first that finds something is the key.
    pub key: Vec<Rule>,
    /// Where the id stands, in place of where the scheme finds it.
    pub id: Option<Rule>,
    /// A part of the body; nothing means all of it.
    pub payload: Option<Rule>,
    /// Headers that travel with the event, in small letters.
    pub headers: Vec<String>,
    /// Which conversation, for schemes that find their keys themselves.
    pub flow: Option<String>,
}

/// An event that was found in a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Whose event it is.
    pub key: String,
    /// The provider's id of it.
    pub id: Option<String>,
    /// JSON.
    pub payload: String,
    /// Those that travel with the event.
    pub headers: Vec<(String, String)>,
}

/// One thing that was found in a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// One event.
    Event(Found),
    /// Understood, and nothing for us: an echo, a receipt. With the reason.
    Ignored(String),
}

/// What a proven delivery is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// Several, all of them or none.
    Items(Vec<Item>),
    /// It only asked whether somebody is here.
    Handshake(Handshake),
}

/// Longer ones are not kept beside an event.
const HEADER_BYTES_MAX: usize = 512;

impl Rules {
    /// The one event of a delivery.
    pub fn event(&self, delivery: &Delivery<'_>, content: &Content) -> Result<Found, Refusal> {
        let Some(key) = self.key.iter().find_map(|rule| rule.text(delivery, content)) else {
            let places: Vec<String> = self.key.iter().map(Rule::to_string).collect();
            let detail = format!("there is no key at {}", places.join(" or "));
            return Err(Refusal::new(Because::NoKey, detail));
        };
        let id = self.id.as_ref().and_then(|rule| rule.text(delivery, content));
        let payload = match &self.payload {
            None => content.text(),
            Some(rule @ Rule::Pointer(pointer)) => match content.value().pointer(pointer) {
                Some(part) => part.to_string(),
                None => {
                    return Err(Refusal::new(Because::Unusable, format!("there is no payload at {rule}")));
                }
            },
            Some(rule) => {
                let text = rule.text(delivery, content).unwrap_or_default();
                serde_json::Value::String(text).to_string()
            }
        };
        Ok(Found { key, id, payload, headers: self.kept(delivery.headers) })
    }

    fn kept(&self, headers: &HeaderMap) -> Vec<(String, String)> {
        let kept = |name: &String| {
            let value = headers.get(name)?.to_str().ok().filter(|value| value.len() <= HEADER_BYTES_MAX)?;
            Some((name.clone(), value.to_owned()))
        };
        self.headers.iter().filter_map(kept).collect()
    }
}

/// How deliveries of one endpoint are checked and taken apart.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// How a delivery proves itself and is read.
    pub scheme: Arc<dyn Scheme>,
    /// Any of them proves a delivery.
    pub secrets: Vec<Secret>,
    /// See [`Check::verify`].
    pub verify: Vec<Secret>,
    /// How far a signed time may be off, in either direction.
    pub tolerance: Duration,
    /// The address that the provider knows, for schemes that sign it.
    pub public_url: Option<String>,
    /// Where key, id and payload stand.
    pub rules: Rules,
}

impl Endpoint {
    fn check(&self, now: i64) -> Check<'_> {
        let public_url = self.public_url.as_deref();
        Check { secrets: &self.secrets, verify: &self.verify, now, tolerance: self.tolerance, public_url }
    }

    /// Whether it is proven; the number of the secret.
    pub fn verify(&self, delivery: &Delivery<'_>, now: i64) -> Result<usize, Refusal> {
        self.scheme.verify(delivery, &self.check(now))
    }

    /// A request that only asks whether somebody is here.
    pub fn greet(&self, delivery: &Delivery<'_>, now: i64) -> Option<Result<Handshake, Refusal>> {
        self.scheme.greet(delivery, &self.check(now))
    }

    /// What is in a proven delivery.
    pub fn read(&self, delivery: &Delivery<'_>) -> Result<Reading, Refusal> {
        self.scheme.read(delivery, &self.rules)
    }
}
