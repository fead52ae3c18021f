//! Twilio's WhatsApp: forms, signed together with the address that they are sent to.
//!
//! `X-Twilio-Signature` is base64 of an HMAC-SHA1 with the auth token, over the public address of the endpoint with its query,
//! followed by the names and values of the form in the order of the names, with nothing between them. The address is a
//! setting (`public_url`): behind a proxy nobody here can know it. A body that is JSON is not signed itself; its SHA-256 is a
//! parameter of the address (`bodySHA256`), which is.
//!
//! With `X-Twilio-Webhooks-Signature-Settings: …,algorithm=HMAC_SHA256` the same text is signed with HMAC-SHA256 and a key of
//! its own. Which algorithm a secret is for is said where the secret is, as `sha256:KEY`, and never by the sender.
//!
//! There is no time in it: an old delivery is told from a new one by the id of its message.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::header::CONTENT_TYPE;
use quell::webhook::{Answer, BadSecret, Because, Check, Delivery, Reading, Refusal, Rules, Scheme, Secret};
use serde_json::Value;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::{NO_CUSTOMER, NO_MESSAGE, Parsed, REACTION, blank, customer, from_hex, json, reading};
use crate::message::{Button, Channel, Kind, Location, Media, Message};

const SIGNATURE: &str = "x-twilio-signature";
const SETTINGS: &str = "x-twilio-webhooks-signature-settings";
const BODY_HASH: &str = "bodySHA256";
/// What stands before a key for HMAC-SHA256.
const SHA256: &str = "sha256:";
const SECRET_BYTES_MIN: usize = 16;
/// A form of Twilio has some twenty fields; all of them are sorted before anything is proven.
const FIELDS_MAX: usize = 512;
/// As many as one message can have.
const MEDIA_MAX: usize = 10;

/// `scheme = "twilio"`
#[derive(Debug, Clone, Copy)]
pub struct Twilio;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    Sha1,
    Sha256,
}

impl Algorithm {
    /// The one that a delivery says it is signed with.
    fn of(delivery: &Delivery<'_>) -> Result<Algorithm, Refusal> {
        if !delivery.headers.contains_key(SETTINGS) {
            return Ok(Algorithm::Sha1);
        }
        let given = delivery.header(SETTINGS, Because::MissingHeader)?;
        let named = |part: &str| part.trim().strip_prefix("algorithm=").map(str::to_owned);
        let mut algorithms = given.split(',').filter_map(named);
        match (algorithms.next().as_deref(), algorithms.next()) {
            (None | Some("HMAC_SHA1"), None) => Ok(Algorithm::Sha1),
            (Some("HMAC_SHA256"), None) => Ok(Algorithm::Sha256),
            _ => {
                let detail = format!("{SETTINGS} names no algorithm that is known");
                Err(Refusal::new(Because::MalformedHeader, detail))
            }
        }
    }

    fn bytes(self) -> usize {
        match self {
            Algorithm::Sha1 => 20,
            Algorithm::Sha256 => 32,
        }
    }

    /// The signature with a secret of this algorithm; nothing with one of the other, which no signature is equal to.
    fn sign(self, secret: &Secret, signed: &str) -> Vec<u8> {
        let any = "HMAC takes keys of any length";
        match (self, secret.bytes().strip_prefix(SHA256.as_bytes())) {
            (Algorithm::Sha1, None) => {
                let mut mac = Hmac::<Sha1>::new_from_slice(secret.bytes()).expect(any);
                mac.update(signed.as_bytes());
                mac.finalize().into_bytes().to_vec()
            }
            (Algorithm::Sha256, Some(key)) => {
                let mut mac = Hmac::<Sha256>::new_from_slice(key).expect(any);
                mac.update(signed.as_bytes());
                mac.finalize().into_bytes().to_vec()
            }
            _ => Vec::new(),
        }
    }
}

impl Scheme for Twilio {
    fn name(&self) -> &'static str {
        "twilio"
    }

    fn secret(&self, text: &str) -> Result<Secret, BadSecret> {
        let key = text.strip_prefix(SHA256).unwrap_or(text);
        if key.len() < SECRET_BYTES_MIN {
            let found = key.len();
            return Err(BadSecret(format!(
                "it has {found} bytes; an auth token, or {SHA256} and a key, has {SECRET_BYTES_MIN} or more"
            )));
        }
        Ok(Secret::new(text))
    }

    fn verify(&self, delivery: &Delivery<'_>, check: &Check<'_>) -> Result<usize, Refusal> {
        let given = delivery.header(SIGNATURE, Because::MissingSignature)?;
        let algorithm = Algorithm::of(delivery)?;
        let signature = STANDARD.decode(given).ok().filter(|bytes| bytes.len() == algorithm.bytes());
        let Some(signature) = signature else {
            let detail = format!("{SIGNATURE} is not base64 of {} bytes", algorithm.bytes());
            return Err(Refusal::new(Because::MalformedSignature, detail));
        };
        let Some(public_url) = check.public_url else {
            let detail = "the endpoint has no public_url, and the address is signed, too";
            return Err(Refusal::new(Because::BadSignature, detail));
        };
        let query = delivery.target.split_once('?').map(|(_, query)| query);
        let fields = if is_form(delivery) { signed_fields(delivery.body)? } else { String::new() };
        let hash = check_hash(delivery, query);
        let mut verdict = Err(Refusal::new(Because::BadSignature, "no address was tried"));
        for address in addresses(public_url, query) {
            let signed = format!("{address}{fields}");
            let known = check.any(std::slice::from_ref(&signature), |secret| algorithm.sign(secret, &signed));
            verdict = verdict.or(known);
        }
        let secret = verdict.map_err(|refusal| {
            let hint =
                "is public_url the address that Twilio has, and the secret the auth token of this account?";
            Refusal::new(refusal.because, format!("{}: {hint}", refusal.detail))
        })?;
        hash.map(|()| secret)
    }

    fn read(&self, delivery: &Delivery<'_>, rules: &Rules) -> Result<Reading, Refusal> {
        reading(items(is_form(delivery), delivery.body)?, rules)
    }

    /// An empty document: anything else in it would be sent to the customer.
    fn answer(&self) -> Answer {
        Answer::Text { media: "text/xml", text: "<Response/>" }
    }

    fn finds_keys(&self) -> bool {
        true
    }

    fn needs_public_url(&self) -> bool {
        true
    }
}

fn is_form(delivery: &Delivery<'_>) -> bool {
    let media = delivery.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    media.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

/// Names in their order, each followed by its values: distinct ones in their order, as they are decoded.
fn signed_fields(body: &[u8]) -> Result<String, Refusal> {
    let mut fields: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (number, (name, value)) in form_urlencoded::parse(body).enumerate() {
        if number == FIELDS_MAX {
            let detail = format!("the form has more than {FIELDS_MAX} fields");
            return Err(Refusal::new(Because::MalformedSignature, detail));
        }
        fields.entry(name.into_owned()).or_default().insert(value.into_owned());
    }
    let each = fields.iter().flat_map(|(name, values)| values.iter().flat_map(move |value| [name, value]));
    Ok(each.map(String::as_str).collect())
}

/// A body that is no form is proven by its hash in the address. Where there is a hash it must be right, whatever the body is
/// called: what it is called is not signed.
fn check_hash(delivery: &Delivery<'_>, query: Option<&str>) -> Result<(), Refusal> {
    let query = query.unwrap_or_default().as_bytes();
    let mut hashes =
        form_urlencoded::parse(query).filter(|(name, _)| name == BODY_HASH).map(|(_, value)| value);
    let bad = |detail: String| Err(Refusal::new(Because::BadSignature, detail));
    let right = Secret::new(Sha256::digest(delivery.body).to_vec());
    let is_right = |hash: &str| from_hex(hash).is_some_and(|hash| right.is(&hash));
    match (hashes.next(), hashes.next()) {
        (None, _) if is_form(delivery) => Ok(()),
        (None, _) => bad(format!("the body is no form, and the address has no {BODY_HASH}")),
        (Some(hash), None) if is_right(&hash) => Ok(()),
        _ => bad(format!("{BODY_HASH} is not that of the body")),
    }
}

/// The address as it is written, without its port, and with the usual one: Twilio signs one of them.
fn addresses(public_url: &str, query: Option<&str>) -> Vec<String> {
    let base = public_url.split(['?', '#']).next().unwrap_or_default();
    let whole = |base: String| match query {
        Some(query) => format!("{base}?{query}"),
        None => base,
    };
    let mut found = vec![base.to_owned()];
    if let Some((scheme, rest)) = base.split_once("://") {
        let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let port = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
        found.push(match (port, scheme) {
            (Some((host, _)), _) => format!("{scheme}://{host}{path}"),
            (None, "https") => format!("{scheme}://{host}:443{path}"),
            (None, _) => format!("{scheme}://{host}:80{path}"),
        });
    }
    found.into_iter().map(whole).collect()
}

/// The fields of a delivery; of one that is there more than once the first.
struct Fields(BTreeMap<String, String>);

impl Fields {
    fn of_form(body: &[u8]) -> Fields {
        let mut fields = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(body).take(FIELDS_MAX) {
            fields.entry(name.into_owned()).or_insert_with(|| value.into_owned());
        }
        Fields(fields)
    }

    fn of_json(body: &[u8]) -> Result<Fields, Refusal> {
        let Value::Object(object) = json(body)? else { return Ok(Fields(BTreeMap::new())) };
        let plain = |(name, value)| match value {
            Value::String(text) => Some((name, text)),
            Value::Number(number) => Some((name, number.to_string())),
            _ => None,
        };
        Ok(Fields(object.into_iter().filter_map(plain).collect()))
    }

    /// As it was written; an empty one is none.
    fn text(&self, name: &str) -> Option<String> {
        self.0.get(name).filter(|text| !text.is_empty()).cloned()
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.text(name)?.trim().parse().ok().filter(|number: &f64| number.is_finite())
    }
}

/// What is in the body of a delivery.
pub fn items(is_form: bool, body: &[u8]) -> Result<Vec<Parsed>, Refusal> {
    let fields = if is_form { Fields::of_form(body) } else { Fields::of_json(body)? };
    let message_id = ["MessageSid", "SmsMessageSid", "SmsSid"].into_iter().find_map(|name| fields.text(name));
    let status = fields.text("MessageStatus").or_else(|| fields.text("SmsStatus"));
    if let Some(status) = status.filter(|status| !["received", "receiving"].contains(&status.as_str())) {
        let error_code = fields.text("ErrorCode").and_then(|code| code.parse().ok());
        return Ok(vec![match message_id {
            Some(message_id) => Parsed::Status { message_id, status, error_code },
            None => Parsed::Ignored(NO_MESSAGE),
        }]);
    }
    if fields.text("From").is_none() && fields.text("WaId").is_none() {
        return Ok(vec![Parsed::Ignored(NO_MESSAGE)]);
    }
    if fields.text("MessageType").as_deref() == Some("reaction") {
        return Ok(vec![Parsed::Ignored(REACTION)]);
    }
    Ok(messages(&fields, message_id))
}

/// One message, and one more for each further file of it.
fn messages(fields: &Fields, message_id: Option<String>) -> Vec<Parsed> {
    let from = fields.text("From").unwrap_or_default();
    let from = from.strip_prefix("whatsapp:").unwrap_or(&from).to_owned();
    let Some(customer) = fields.text("WaId").as_deref().and_then(customer).or_else(|| customer(&from)) else {
        return vec![Parsed::Ignored(NO_CUSTOMER)];
    };
    let mut files = (0..MEDIA_MAX).map_while(|number| file(fields, number));
    let first = files.next();
    let (location, button) = (location(fields), button(fields));
    let kind = match (&button, &location, &first) {
        (Some((kind, _)), _, _) => *kind,
        (None, Some(_), _) => Kind::Location,
        (None, None, Some((kind, _))) => *kind,
        (None, None, None) => Kind::Text,
    };
    let about = |kind| Message {
        to: fields.text("To"),
        name: fields.text("ProfileName"),
        message_id: message_id.clone(),
        ..blank(Channel::Twilio, customer.clone(), kind)
    };
    let button = button.map(|(_, button)| button);
    let text = fields.text("Body").or_else(|| button.as_ref().map(|button| button.title.clone()));
    let media = first.map(|(_, media)| media);
    let mut found = vec![Parsed::message(Message { text, media, location, button, ..about(kind) })];
    found.extend(files.zip(1..).map(|((kind, media), number)| {
        let message_id = message_id.as_ref().map(|id| format!("{id}/{number}"));
        Parsed::message(Message { message_id, media: Some(media), ..about(kind) })
    }));
    found
}

fn file(fields: &Fields, number: usize) -> Option<(Kind, Media)> {
    let url = fields.text(&format!("MediaUrl{number}"))?;
    let mime = fields.text(&format!("MediaContentType{number}"));
    let kind = match mime.as_deref().and_then(|mime| mime.split('/').next()) {
        _ if fields.text("MessageType").as_deref() == Some("sticker") => Kind::Sticker,
        Some("image") => Kind::Image,
        Some("video") => Kind::Video,
        Some("audio") => Kind::Audio,
        _ => Kind::Document,
    };
    Some((kind, Media { url: Some(url), mime, ..Media::default() }))
}

fn location(fields: &Fields) -> Option<Location> {
    let (latitude, longitude) = (fields.number("Latitude")?, fields.number("Longitude")?);
    Some(Location { latitude, longitude, name: fields.text("Label"), address: fields.text("Address") })
}

fn button(fields: &Fields) -> Option<(Kind, Button)> {
    let reply = |kind, id: &str, title: &str| {
        let title = fields.text(title).or_else(|| fields.text("Body"))?;
        Some((kind, Button { id: fields.text(id), title }))
    };
    if fields.text("ListId").or_else(|| fields.text("ListTitle")).is_some() {
        return reply(Kind::List, "ListId", "ListTitle");
    }
    fields.text("ButtonText").or_else(|| fields.text("ButtonPayload"))?;
    reply(Kind::Button, "ButtonPayload", "ButtonText")
}
