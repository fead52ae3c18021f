//! What providers send: three schemes for webhook endpoints, and how their deliveries become messages.
//!
//! Each provider has a file: `wati.rs`, `twilio.rs`, `meta.rs`. In each of them `items` is a pure function from a body to
//! what is in it ([`Parsed`]); the scheme around it proves the sender first. Here is what they share: a message becomes an
//! event in the lane of its customer, and everything else is ignored by name. A delivery that is proven and only not known is
//! ignored and never refused, because a refusal makes the provider send it again.
//!
//! First stop on the path of a customer's message; the next one is the queue.

pub mod meta;
pub mod twilio;
pub mod wati;

use std::sync::Arc;

use quell::webhook::{Because, Found, Item, Reading, Refusal, Rules, Schemes};
use serde_json::Value;

use crate::message::{Channel, Kind, Message};

/// One thing that was found in a delivery.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "there are few of them, and none lives longer than its delivery"
)]
pub enum Parsed {
    Message(Message),
    /// What became of a message of ours.
    Status {
        message_id: String,
        status: String,
        error_code: Option<i64>,
    },
    /// Understood, and nothing to answer: an echo, a reaction, a kind that a chat has no use for.
    Ignored(&'static str),
}

/// It came from our side.
pub const OWN_MESSAGE: &str = "own_message";
/// There is no message in it.
pub const NO_MESSAGE: &str = "no_message";
/// A message that names nobody who could be answered.
pub const NO_CUSTOMER: &str = "no_customer";
pub const REACTION: &str = "reaction";
/// A kind of message that a chat has no use for.
pub const UNSUPPORTED: &str = "unsupported";
/// Nothing that could be answered.
pub const EMPTY: &str = "empty";

/// The schemes that endpoints of a program with the chat can name.
pub fn schemes() -> Schemes {
    let mut schemes = Schemes::built_in();
    schemes.add(Arc::new(wati::Wati));
    schemes.add(Arc::new(twilio::Twilio));
    schemes.add(Arc::new(meta::Meta));
    schemes
}

impl Parsed {
    /// A message, if there is anything in it.
    fn message(message: Message) -> Parsed {
        if message.is_empty() { Parsed::Ignored(EMPTY) } else { Parsed::Message(message) }
    }
}

/// What the endpoint makes of it: an event for each message.
fn reading(parsed: Vec<Parsed>, rules: &Rules) -> Result<Reading, Refusal> {
    let item = |parsed| match parsed {
        Parsed::Message(message) => event(Message { flow: rules.flow.clone(), ..message }).map(Item::Event),
        Parsed::Status { status, .. } => Ok(Item::Ignored(format!("status {status}"))),
        Parsed::Ignored(why) => Ok(Item::Ignored(why.to_owned())),
    };
    let items = parsed.into_iter().map(item).collect::<Result<Vec<Item>, Refusal>>()?;
    Ok(Reading::Items(items))
}

fn event(message: Message) -> Result<Found, Refusal> {
    let unusable = |error| Refusal::new(Because::Unusable, format!("the message cannot be written: {error}"));
    let payload = serde_json::to_string(&message).map_err(unusable)?;
    Ok(Found { key: message.key(), id: message.message_id, payload, headers: Vec::new() })
}

/// A message of which only the sender and the kind are known.
fn blank(channel: Channel, customer: String, kind: Kind) -> Message {
    Message {
        channel,
        customer,
        user_id: None,
        to: None,
        name: None,
        message_id: None,
        kind,
        text: None,
        media: None,
        location: None,
        button: None,
        sent_at: None,
        flow: None,
    }
}

fn json(body: &[u8]) -> Result<Value, Refusal> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::new(Because::Unreadable, format!("the body is not JSON: {error}")))
}

/// The text of a field, as it was written. A number is a text, too, because providers do not agree; an empty one is none.
fn text(value: &Value, name: &str) -> Option<String> {
    let found = match value.get(name)? {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    Some(found).filter(|text| !text.is_empty())
}

/// A number that may be written as a text.
fn number(value: &Value, name: &str) -> Option<f64> {
    text(value, name)?.trim().parse().ok().filter(|number: &f64| number.is_finite())
}

/// Seconds since 1970 that may be written as a text.
fn seconds(value: &Value, name: &str) -> Option<i64> {
    text(value, name)?.trim().parse().ok()
}

/// A phone number in digits; what is none, such as a name that a provider gives, stays as it is.
fn customer(text: &str) -> Option<String> {
    let text = text.trim();
    let is_phone = text.chars().all(|letter| letter.is_ascii_digit() || "+-(). ".contains(letter));
    let digits = || text.chars().filter(char::is_ascii_digit).collect();
    let found: String = if is_phone { digits() } else { text.to_owned() };
    Some(found).filter(|customer| !customer.is_empty())
}

/// Bytes that are written as two digits each.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_customer_is_a_number_in_digits_or_the_name_that_a_provider_gives() {
        for (given, found) in [
            ("12025550110", Some("12025550110")),
            ("+1 (202) 555-0110", Some("12025550110")),
            ("US.2631558307865492265", Some("US.2631558307865492265")),
            (" ", None),
            ("+", None),
        ] {
            assert_eq!(customer(given).as_deref(), found, "{given}");
        }
    }

    #[test]
    fn the_flow_of_an_endpoint_is_a_part_of_message_and_key() {
        let rules = Rules { flow: Some("sales".to_owned()), ..Rules::default() };
        let message = Message {
            text: Some("Hi".to_owned()),
            ..blank(Channel::Wati, "50376819621".to_owned(), Kind::Text)
        };
        let Reading::Items(items) = reading(vec![Parsed::message(message)], &rules).unwrap() else {
            panic!()
        };
        let [Item::Event(found)] = items.as_slice() else { panic!("{items:?}") };
        assert_eq!((found.key.as_str(), &found.id), ("wati:50376819621:sales", &None));
        let stored: Message = serde_json::from_str(&found.payload).unwrap();
        assert_eq!(stored.flow.as_deref(), Some("sales"));
    }

    #[test]
    fn the_three_are_beside_the_built_in_ones() {
        let names = schemes().names();
        assert!(Channel::ALL.iter().all(|channel| names.contains(&channel.as_str())), "{names:?}");
        assert!(names.contains(&"github"));
    }
}
