//! What a customer wrote: the same for all providers, and the payload of an event in the queue `chat`.
//!
//! A provider's own words are left behind at the door (`inbound.rs`): whatever handles, joins, shows or erases messages
//! knows this form alone. Fields are only ever added, because events of an older version may still wait.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Which provider a message came by, and a reply goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    Wati,
    Twilio,
    Meta,
}

impl Channel {
    pub const ALL: [Channel; 3] = [Channel::Wati, Channel::Twilio, Channel::Meta];

    pub fn as_str(self) -> &'static str {
        match self {
            Channel::Wati => "wati",
            Channel::Twilio => "twilio",
            Channel::Meta => "meta",
        }
    }

    pub fn named(name: &str) -> Option<Channel> {
        Channel::ALL.into_iter().find(|channel| channel.as_str() == name)
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One message of a customer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    pub channel: Channel,
    /// Where a reply goes: the phone number in digits, or what the provider knows the customer by when it shows none.
    pub customer: String,
    /// The provider's own name of the customer, where it has one that outlives a change of the number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// What the message was sent to: our number, or the provider's id of it. A reply leaves from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// As the customer calls themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The provider's id of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    #[serde(rename = "type")]
    pub kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media: Option<Media>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<Location>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub button: Option<Button>,
    /// Seconds since 1970 by the provider's clock, where it tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<i64>,
    /// Which conversation of this customer, where an endpoint tells several apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<String>,
}

/// What kind of message it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Text,
    Image,
    Video,
    Audio,
    Document,
    Sticker,
    Location,
    /// The tap on a button, of a template too.
    Button,
    /// The choice from a list.
    List,
}

/// A file that came with a message; it stays with the provider.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Media {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The provider's id of the file, where it has no lasting address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Location {
    pub latitude: f64,
    pub longitude: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Button {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub title: String,
}

impl Message {
    /// Whose lane it belongs to.
    pub fn key(&self) -> String {
        let customer = self.user_id.as_deref().unwrap_or(&self.customer);
        key(self.channel, customer, self.flow.as_deref())
    }

    /// Whether there is anything in it that could be answered.
    pub fn is_empty(&self) -> bool {
        let blank = self.text.as_deref().is_none_or(|text| text.trim().is_empty());
        blank && self.media.is_none() && self.location.is_none()
    }
}

/// The key of a conversation: channel, customer and flow, joined so that no two conversations share one. What could be
/// taken for the sign between them is written as `%3A`, and `%` itself as `%25`.
pub fn key(channel: Channel, customer: &str, flow: Option<&str>) -> String {
    let plain = |part: &str| part.replace('%', "%25").replace(':', "%3A");
    match flow {
        Some(flow) => format!("{channel}:{}:{}", plain(customer), plain(flow)),
        None => format!("{channel}:{}", plain(customer)),
    }
}

/// The parts of a key, for those who have only the key.
pub fn parts(key: &str) -> Option<(Channel, String, Option<String>)> {
    let plain = |part: &str| part.replace("%3A", ":").replace("%25", "%");
    let mut parts = key.split(':');
    let channel = Channel::named(parts.next()?)?;
    let (customer, flow) = (plain(parts.next()?), parts.next().map(plain));
    parts.next().is_none().then_some((channel, customer, flow))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_key_names_channel_customer_and_flow() {
        assert_eq!(key(Channel::Wati, "50376819621", None), "wati:50376819621");
        assert_eq!(key(Channel::Twilio, "a:b%", Some("flow:1")), "twilio:a%3Ab%25:flow%3A1");
        assert_eq!(parts("wati:50376819621"), Some((Channel::Wati, "50376819621".to_owned(), None)));
        assert_eq!(parts("mail:ada"), None);
    }

    proptest! {
        #[test]
        fn no_two_conversations_share_a_key(customer in ".{0,12}", flow in proptest::option::of(".{0,12}")) {
            let made = key(Channel::Meta, &customer, flow.as_deref());
            prop_assert_eq!(parts(&made), Some((Channel::Meta, customer, flow)));
        }
    }
}
