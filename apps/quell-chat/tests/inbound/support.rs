//! Endpoints and deliveries that need no server.

use std::time::Duration;

use http::{HeaderMap, HeaderName, Method};
use quell::webhook::{Because, Delivery, Endpoint, Handshake, Item, Reading, Refusal, Rules, Secret};
use quell_chat::inbound::schemes;
use quell_chat::message::Message;

pub(crate) const NOW: i64 = 1_760_000_000;

/// An endpoint of this scheme.
pub(crate) fn endpoint(scheme: &str, secrets: &[&str]) -> Endpoint {
    let scheme = schemes().get(scheme).unwrap();
    Endpoint {
        secrets: secrets.iter().map(|text| scheme.secret(text).unwrap()).collect(),
        scheme,
        verify: Vec::new(),
        tolerance: Duration::from_secs(300),
        public_url: None,
        rules: Rules::default(),
    }
}

/// A delivery that a test makes.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) rest: Option<String>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Sent {
    pub(crate) fn new(body: impl AsRef<[u8]>) -> Sent {
        Sent {
            method: Method::POST,
            target: "/hooks/any".to_owned(),
            rest: None,
            headers: HeaderMap::new(),
            body: body.as_ref().to_vec(),
        }
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Sent {
        self.headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        self
    }

    pub(crate) fn to(mut self, target: &str) -> Sent {
        target.clone_into(&mut self.target);
        self
    }

    /// With one more segment of the path.
    pub(crate) fn beyond(mut self, rest: &str) -> Sent {
        self.target = format!("{}/{rest}", self.target);
        self.rest = Some(rest.to_owned());
        self
    }

    pub(crate) fn delivery(&self) -> Delivery<'_> {
        let Sent { method, target, rest, headers, body } = self;
        Delivery { method, target, rest: rest.as_deref(), headers, body }
    }

    pub(crate) fn verdict(&self, endpoint: &Endpoint) -> Result<usize, Because> {
        endpoint.verify(&self.delivery(), NOW).map_err(|refusal| refusal.because)
    }

    pub(crate) fn greeting(&self, endpoint: &Endpoint) -> Option<Result<Handshake, Refusal>> {
        endpoint.greet(&self.delivery(), NOW)
    }

    /// The messages of a delivery and why other things in it are ignored.
    pub(crate) fn read(&self, endpoint: &Endpoint) -> (Vec<Message>, Vec<String>) {
        let (mut messages, mut ignored) = (Vec::new(), Vec::new());
        let Reading::Items(items) = endpoint.read(&self.delivery()).unwrap() else { panic!("no handshake") };
        for item in items {
            match item {
                Item::Event(found) => {
                    let message: Message = serde_json::from_str(&found.payload).unwrap();
                    assert_eq!((&found.key, &found.id), (&message.key(), &message.message_id));
                    messages.push(message);
                }
                Item::Ignored(why) => ignored.push(why),
            }
        }
        (messages, ignored)
    }

    /// The only message.
    pub(crate) fn message(&self, endpoint: &Endpoint) -> Message {
        let (mut messages, ignored) = self.read(endpoint);
        assert!(messages.len() == 1 && ignored.is_empty(), "{messages:?} {ignored:?}");
        messages.remove(0)
    }
}

pub(crate) fn verify_token(text: &str) -> Vec<Secret> {
    vec![Secret::new(text)]
}
