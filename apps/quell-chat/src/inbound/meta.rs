//! Meta's WhatsApp Cloud API: signed bodies with several messages, and a question before the first of them.
//!
//! Signed are the bytes as they came, with `X-Hub-Signature-256: sha256=<hex>`; there is no time in it, so an old delivery is
//! told from a new one by the ids of its messages. The question is a GET with a word that was agreed on
//! (`hub.verify_token`), and is answered with the challenge that it brings.
//!
//! Entries, changes and messages are lists, and all of each are looked at. A customer with a user name may show no number: then
//! the id that Meta gives them is all there is.

use hmac::{Hmac, KeyInit, Mac};
use http::Method;
use quell::webhook::{Because, Check, Delivery, Handshake, Reading, Refusal, Rules, Scheme, Secret};
use serde_json::Value;
use sha2::Sha256;

use super::{
    NO_CUSTOMER, NO_MESSAGE, OWN_MESSAGE, Parsed, REACTION, UNSUPPORTED, blank, customer, from_hex, json,
    number, reading, seconds, text, to_hex,
};
use crate::message::{Button, Channel, Kind, Location, Media, Message};

const SIGNATURE: &str = "x-hub-signature-256";
/// Meta's challenges are a few digits. What comes back is plain text, and no place for anybody's page.
const CHALLENGE_MAX: usize = 128;

/// `scheme = "meta"`
#[derive(Debug, Clone, Copy)]
pub struct Meta;

fn mac(secret: &Secret, body: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.bytes()).expect("HMAC takes keys of any length");
    mac.update(body);
    mac.finalize().into_bytes().to_vec()
}

impl Scheme for Meta {
    fn name(&self) -> &'static str {
        "meta"
    }

    fn verify(&self, delivery: &Delivery<'_>, check: &Check<'_>) -> Result<usize, Refusal> {
        let given = delivery.header(SIGNATURE, Because::MissingSignature)?;
        let Some(signature) = given.strip_prefix("sha256=").and_then(from_hex) else {
            let detail = format!("{SIGNATURE} is not sha256= and hex");
            return Err(Refusal::new(Because::MalformedSignature, detail));
        };
        check.any(&[signature], |secret| mac(secret, delivery.body))
    }

    fn greet(&self, delivery: &Delivery<'_>, check: &Check<'_>) -> Option<Result<Handshake, Refusal>> {
        if *delivery.method != Method::GET {
            return None;
        }
        let (_, query) = delivery.target.split_once('?')?;
        let of = |wanted: &str| {
            let mut found = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == wanted);
            found.next().map(|(_, value)| value.into_owned())
        };
        let mode = of("hub.mode")?;
        Some(handshake(&mode, of("hub.verify_token").as_deref(), of("hub.challenge").as_deref(), check))
    }

    fn read(&self, delivery: &Delivery<'_>, rules: &Rules) -> Result<Reading, Refusal> {
        reading(items(delivery.body)?, rules)
    }

    fn finds_keys(&self) -> bool {
        true
    }

    fn has_verify_token(&self) -> bool {
        true
    }

    fn sign(&self, secret: &Secret, _id: &str, _now: i64, body: &[u8]) -> Vec<(String, String)> {
        vec![(SIGNATURE.to_owned(), format!("sha256={}", to_hex(&mac(secret, body))))]
    }
}

fn handshake(
    mode: &str,
    token: Option<&str>,
    challenge: Option<&str>,
    check: &Check<'_>,
) -> Result<Handshake, Refusal> {
    let refused = |detail: &str| Err(Refusal::new(Because::BadVerifyToken, detail));
    if check.verify.is_empty() {
        return refused(
            "the endpoint has no verify token: name one with verify_token_file or verify_token_env",
        );
    }
    let token = token.unwrap_or_default().as_bytes();
    // All are looked at, so that the time it takes does not tell which one it was.
    let known = check.verify.iter().fold(false, |known, secret| secret.is(token) | known);
    if !known || mode != "subscribe" {
        return refused("the verify token is none of ours, or it asks for something other than to subscribe");
    }
    let challenge = challenge.unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if challenge.is_empty() || challenge.len() > CHALLENGE_MAX || !challenge.bytes().all(plain) {
        let detail = format!("its challenge is not 1 to {CHALLENGE_MAX} letters and digits");
        return Err(Refusal::new(Because::Unusable, detail));
    }
    Ok(Handshake { answer: challenge.to_owned() })
}

/// What is in the body of a delivery, in its order.
pub fn items(body: &[u8]) -> Result<Vec<Parsed>, Refusal> {
    let value = json(body)?;
    if !value.is_object() {
        return Err(Refusal::new(Because::Unreadable, "the body is not an object"));
    }
    let is_ours = value.get("object").and_then(Value::as_str) == Some("whatsapp_business_account");
    let changes = list(&value, "entry").iter().flat_map(|entry| list(entry, "changes"));
    let found: Vec<Parsed> = changes.filter(|_| is_ours).flat_map(change).collect();
    Ok(if found.is_empty() { vec![Parsed::Ignored(NO_MESSAGE)] } else { found })
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn change(change: &Value) -> Vec<Parsed> {
    match change.get("field").and_then(Value::as_str) {
        Some("messages") => {}
        Some("smb_message_echoes" | "message_echoes") => return vec![Parsed::Ignored(OWN_MESSAGE)],
        _ => return vec![Parsed::Ignored(NO_MESSAGE)],
    }
    let value = change.get("value").unwrap_or(&Value::Null);
    let messages = list(value, "messages").iter().map(|one| message(value, one));
    messages.chain(list(value, "statuses").iter().map(status)).collect()
}

fn status(status: &Value) -> Parsed {
    let (Some(message_id), Some(word)) = (text(status, "id"), text(status, "status")) else {
        return Parsed::Ignored(NO_MESSAGE);
    };
    let error_code = list(status, "errors").iter().find_map(|error| seconds(error, "code"));
    Parsed::Status { message_id, status: word, error_code }
}

fn message(value: &Value, message: &Value) -> Parsed {
    let word = text(message, "type").unwrap_or_default();
    let body = message.get(&word).unwrap_or(&Value::Null);
    if word == "reaction" {
        return Parsed::Ignored(REACTION);
    }
    // What is said in a group is not said to us alone, and an answer to one of it would go elsewhere.
    if text(message, "group_id").is_some() {
        return Parsed::Ignored(UNSUPPORTED);
    }
    let metadata = value.get("metadata").unwrap_or(&Value::Null);
    let phone = text(message, "from").as_deref().and_then(customer);
    if phone.is_some() && phone == text(metadata, "display_phone_number").as_deref().and_then(customer) {
        return Parsed::Ignored(OWN_MESSAGE);
    }
    let contact = contact(list(value, "contacts"), message);
    let user_id = text(message, "from_user_id").or_else(|| text(contact, "user_id"));
    let phone = phone.or_else(|| text(contact, "wa_id").as_deref().and_then(customer));
    let Some(customer) = phone.or_else(|| user_id.clone()) else { return Parsed::Ignored(NO_CUSTOMER) };
    let profile = contact.get("profile").unwrap_or(&Value::Null);
    let about = |kind| Message {
        user_id: user_id.clone(),
        to: text(metadata, "phone_number_id"),
        name: text(profile, "name").or_else(|| text(profile, "username")),
        message_id: text(message, "id"),
        sent_at: seconds(message, "timestamp"),
        ..blank(Channel::Meta, customer.clone(), kind)
    };
    let media = |kind| Message { media: Some(media(body)), text: text(body, "caption"), ..about(kind) };
    let tapped = |kind, button: Option<Button>| {
        let text = button.as_ref().map(|button| button.title.clone());
        Message { text, button, ..about(kind) }
    };
    Parsed::message(match word.as_str() {
        "text" => Message { text: text(body, "body"), ..about(Kind::Text) },
        "image" => media(Kind::Image),
        "video" => media(Kind::Video),
        "audio" => media(Kind::Audio),
        "document" => media(Kind::Document),
        "sticker" => media(Kind::Sticker),
        "location" => Message { location: location(body), ..about(Kind::Location) },
        "button" => tapped(Kind::Button, button(body, "payload", "text")),
        "interactive" => match (body.get("button_reply"), body.get("list_reply")) {
            (Some(reply), _) => tapped(Kind::Button, button(reply, "id", "title")),
            (None, Some(reply)) => tapped(Kind::List, button(reply, "id", "title")),
            (None, None) => return Parsed::Ignored(UNSUPPORTED),
        },
        _ => return Parsed::Ignored(UNSUPPORTED),
    })
}

/// The contact that a message is from; the only one where neither number nor id are given.
fn contact<'a>(contacts: &'a [Value], message: &Value) -> &'a Value {
    let same = |contact: &&Value, theirs: &str, its: &str| {
        text(contact, theirs).is_some_and(|id| Some(id) == text(message, its))
    };
    let named =
        contacts.iter().find(|one| same(one, "user_id", "from_user_id") || same(one, "wa_id", "from"));
    let nameless = text(message, "from").is_none() && text(message, "from_user_id").is_none();
    let only = match contacts {
        [only] if nameless => Some(only),
        _ => None,
    };
    named.or(only).unwrap_or(&Value::Null)
}

fn media(body: &Value) -> Media {
    Media {
        url: text(body, "url"),
        id: text(body, "id"),
        mime: text(body, "mime_type"),
        name: text(body, "filename"),
    }
}

fn location(body: &Value) -> Option<Location> {
    let (latitude, longitude) = (number(body, "latitude")?, number(body, "longitude")?);
    Some(Location { latitude, longitude, name: text(body, "name"), address: text(body, "address") })
}

fn button(reply: &Value, id: &str, title: &str) -> Option<Button> {
    Some(Button { id: text(reply, id), title: text(reply, title)? })
}
