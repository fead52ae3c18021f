//! WATI: a word that it was given (the passkey), because it signs nothing, and one message in each delivery.
//!
//! The passkey is the header `Authorization`, with or without `Bearer`; or a part of the address, as `?passkey=`, `?token=` or
//! one more segment of the path; or, if there is neither, the field `passkey` of the body. What is given in header and address
//! must be right in every place. It proves the sender and not the body, and everybody who has seen one delivery knows it: so it
//! is never kept ([`Scheme::without_secrets`]).
//!
//! The body is JSON whatever it is called: `curl -d` calls everything a form.

use quell::webhook::{BadSecret, Because, Check, Delivery, Proof, Reading, Refusal, Rules, Scheme, Secret};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    NO_CUSTOMER, NO_MESSAGE, OWN_MESSAGE, Parsed, REACTION, UNSUPPORTED, blank, customer, json, number,
    reading, seconds, text,
};
use crate::message::{Button, Channel, Kind, Location, Media, Message};

const AUTHORIZATION: &str = "authorization";
const PASSKEY: &str = "passkey";
/// Names of parameters of the address.
const PARAMETERS: [&str; 2] = [PASSKEY, "token"];
const REDACTED: &str = "[redacted]";
/// People choose these words, and the senders that know them are few.
const PASSKEY_BYTES_MIN: usize = 8;

/// `scheme = "wati"`
#[derive(Debug, Clone, Copy)]
pub struct Wati;

/// The one field that is looked at before the proof.
#[derive(Deserialize)]
struct Presented {
    passkey: Option<String>,
}

/// What a delivery presents in its header and its address.
fn outside(delivery: &Delivery<'_>) -> Result<Vec<Vec<u8>>, Refusal> {
    let mut found = Vec::new();
    if delivery.headers.get_all(AUTHORIZATION).iter().any(|value| !value.is_empty()) {
        let given = delivery.header(AUTHORIZATION, Because::MissingSignature)?;
        let token = match given.split_once(' ') {
            Some((method, token)) if method.eq_ignore_ascii_case("bearer") => token.trim(),
            _ => given,
        };
        found.push(token.as_bytes().to_vec());
    }
    found.extend(delivery.rest.map(|rest| percent_encoding::percent_decode_str(rest).collect()));
    let query = delivery.target.split_once('?').map_or("", |(_, query)| query);
    let named = form_urlencoded::parse(query.as_bytes())
        .filter(|(name, _)| PARAMETERS.contains(&name.as_ref()))
        .map(|(_, value)| value.into_owned().into_bytes());
    found.extend(named);
    Ok(found)
}

/// What a delivery presents in its body. Nothing else of the body is looked at, and nothing of it is built.
fn inside(body: &[u8]) -> Result<Vec<u8>, Refusal> {
    let missing = "there is no passkey: neither the header authorization, nor in the address, nor as a field of the body";
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(Refusal::new(Because::MissingSignature, format!("{missing}, which is no object")));
    }
    match serde_json::from_slice::<Presented>(body) {
        Ok(Presented { passkey: Some(passkey) }) => Ok(passkey.into_bytes()),
        Ok(Presented { passkey: None }) => Err(Refusal::new(Because::MissingSignature, missing)),
        Err(error) if error.is_data() => {
            let detail = "the passkey of the body is no text, or there twice";
            Err(Refusal::new(Because::MalformedSignature, detail))
        }
        Err(_) => Err(Refusal::new(Because::MissingSignature, format!("{missing}, which is not JSON"))),
    }
}

impl Scheme for Wati {
    fn name(&self) -> &'static str {
        "wati"
    }

    fn proof(&self) -> Proof {
        Proof::Bearer
    }

    fn secret(&self, text: &str) -> Result<Secret, BadSecret> {
        if text.len() < PASSKEY_BYTES_MIN {
            let found = text.len();
            return Err(BadSecret(format!(
                "it has {found} bytes; a passkey has {PASSKEY_BYTES_MIN} or more"
            )));
        }
        Ok(Secret::new(text))
    }

    fn verify(&self, delivery: &Delivery<'_>, check: &Check<'_>) -> Result<usize, Refusal> {
        let mut presented = outside(delivery)?;
        if presented.is_empty() {
            presented.push(inside(delivery.body)?);
        }
        let mut first = None;
        for passkey in presented {
            let known = check.any(&[passkey], |secret| secret.bytes().to_vec());
            let number =
                known.map_err(|_| Refusal::new(Because::BadSignature, "the passkey is none of ours"))?;
            first.get_or_insert(number);
        }
        first.ok_or_else(|| Refusal::new(Because::MissingSignature, "there is no passkey"))
    }

    fn read(&self, delivery: &Delivery<'_>, rules: &Rules) -> Result<Reading, Refusal> {
        reading(items(delivery.body)?, rules)
    }

    fn without_secrets(&self, body: &[u8]) -> Option<Vec<u8>> {
        match serde_json::from_slice::<Map<String, Value>>(body) {
            Ok(mut fields) => {
                *fields.get_mut(PASSKEY)? = Value::from(REDACTED);
                serde_json::to_vec(&fields).ok()
            }
            // Nobody knows where it stands in there.
            Err(_) => {
                let body = String::from_utf8_lossy(body).to_ascii_lowercase();
                body.contains(PASSKEY).then(|| REDACTED.as_bytes().to_vec())
            }
        }
    }

    fn finds_keys(&self) -> bool {
        true
    }

    fn takes_path_token(&self) -> bool {
        true
    }

    fn sign(&self, secret: &Secret, _id: &str, _now: i64, _body: &[u8]) -> Vec<(String, String)> {
        let passkey = String::from_utf8_lossy(secret.bytes());
        vec![(AUTHORIZATION.to_owned(), format!("Bearer {passkey}"))]
    }
}

/// What is in the body of a delivery.
pub fn items(body: &[u8]) -> Result<Vec<Parsed>, Refusal> {
    let value = json(body)?;
    if !value.is_object() {
        return Err(Refusal::new(Because::Unreadable, "the body is not an object"));
    }
    Ok(vec![item(&value)])
}

fn item(value: &Value) -> Parsed {
    // Versions of an event have the same fields and a longer name.
    let event = text(value, "eventType").unwrap_or_else(|| "message".to_owned());
    let event = event.trim_end_matches("_bsuid").trim_end_matches("_v2").trim_end_matches("_bsuid");
    match event {
        "message" | "messageReceived" if is_true(value.get("owner")) => Parsed::Ignored(OWN_MESSAGE),
        "message" | "messageReceived" => message(value),
        "sessionMessageSent" | "templateMessageSent" => Parsed::Ignored(OWN_MESSAGE),
        "sessionMessageFailed" | "templateMessageFailed" => status(value, "failed"),
        other => match other.strip_prefix("sentMessage") {
            Some(word) if !word.is_empty() => status(value, &word.to_ascii_lowercase()),
            _ => Parsed::Ignored(NO_MESSAGE),
        },
    }
}

fn is_true(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Bool(truth)) => *truth,
        Some(Value::String(word)) => word.eq_ignore_ascii_case("true"),
        _ => false,
    }
}

fn status(value: &Value, status: &str) -> Parsed {
    let id = ["whatsappMessageId", "localMessageId", "id"].into_iter().find_map(|name| text(value, name));
    let Some(message_id) = id else { return Parsed::Ignored(NO_MESSAGE) };
    Parsed::Status { message_id, status: status.to_owned(), error_code: None }
}

fn message(value: &Value) -> Parsed {
    let Some(kind) = kind(value) else { return Parsed::Ignored(UNSUPPORTED) };
    let Some(kind) = kind else { return Parsed::Ignored(REACTION) };
    let user_id = text(value, "bsuid");
    let phone = text(value, "waId").as_deref().and_then(customer);
    let Some(customer) = phone.or_else(|| user_id.clone()) else { return Parsed::Ignored(NO_CUSTOMER) };
    let button = button(value, kind);
    let mut message = Message {
        user_id,
        to: text(value, "channelPhoneNumber"),
        name: text(value, "senderName"),
        message_id: ["whatsappMessageId", "id"].into_iter().find_map(|name| text(value, name)),
        text: text(value, "text").or_else(|| button.as_ref().map(|button| button.title.clone())),
        sent_at: seconds(value, "timestamp"),
        button,
        ..blank(Channel::Wati, customer, kind)
    };
    let data = value.get("data").unwrap_or(&Value::Null);
    match kind {
        Kind::Image | Kind::Video | Kind::Audio | Kind::Document | Kind::Sticker => {
            message.media = Some(media(data));
        }
        Kind::Location => {
            message.location = location(data);
            // A place that cannot be read is at least a link.
            message.media = message.location.is_none().then(|| media(data));
        }
        Kind::Text | Kind::Button | Kind::List => {}
    }
    Parsed::message(message)
}

/// Nothing for what a chat has no use for; a reaction is understood and no message.
fn kind(value: &Value) -> Option<Option<Kind>> {
    let word = text(value, "type").unwrap_or_else(|| "text".to_owned());
    Some(Some(match word.as_str() {
        "reaction" => return Some(None),
        "text" => Kind::Text,
        "image" => Kind::Image,
        "video" => Kind::Video,
        "audio" | "voice" => Kind::Audio,
        "document" => Kind::Document,
        "sticker" => Kind::Sticker,
        "location" => Kind::Location,
        "interactive" | "button" if value.get("listReply").is_some_and(Value::is_object) => Kind::List,
        "interactive" | "button" => Kind::Button,
        _ => return None,
    }))
}

fn button(value: &Value, kind: Kind) -> Option<Button> {
    let names = match kind {
        Kind::List => &["listReply"][..],
        Kind::Button => &["interactiveButtonReply", "buttonReply"],
        _ => return None,
    };
    let reply = names.iter().find_map(|name| value.get(*name).filter(|reply| reply.is_object()))?;
    let title = text(reply, "title").or_else(|| text(reply, "text")).or_else(|| text(value, "text"))?;
    Some(Button { id: text(reply, "id").or_else(|| text(reply, "payload")), title })
}

/// An address, an object about the file, or nothing.
fn media(data: &Value) -> Media {
    let one_of = |names: &[&str]| names.iter().find_map(|name| text(data, name));
    match data {
        Value::String(url) if !url.is_empty() => Media { url: Some(url.clone()), ..Media::default() },
        Value::Object(_) => Media {
            url: one_of(&["url", "link"]),
            id: one_of(&["id", "mediaId"]),
            mime: one_of(&["mimeType", "mime_type"]),
            name: one_of(&["fileName", "filename", "name"]),
        },
        _ => Media::default(),
    }
}

/// An object with numbers, or an address of a map with both numbers in its query, or both numbers alone.
fn location(data: &Value) -> Option<Location> {
    if let Value::String(text) = data {
        let place = text.rsplit(['=', '/']).next()?.replace("%2C", ",");
        let (latitude, longitude) = place.split_once(',')?;
        let (latitude, longitude) = (latitude.trim().parse().ok()?, longitude.trim().parse().ok()?);
        return is_place(latitude, longitude).then(|| Location {
            latitude,
            longitude,
            ..Location::default()
        });
    }
    let (latitude, longitude) = (number(data, "latitude")?, number(data, "longitude")?);
    let (name, address) = (text(data, "name"), text(data, "address"));
    Some(Location { latitude, longitude, name, address })
}

fn is_place(latitude: f64, longitude: f64) -> bool {
    (-90.0..=90.0).contains(&latitude) && (-180.0..=180.0).contains(&longitude)
}
