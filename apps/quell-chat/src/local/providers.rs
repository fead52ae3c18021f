//! WATI, Twilio and Meta on this machine: one server for all three, as far as replies need them.
//!
//! A message that one of them takes is delivered at once: it stands in [`LocalProviders::delivered`], which is what a
//! customer would see. Whatever else is asked for, from typing indicators to refused calls, is in
//! [`LocalProviders::received`].

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, header};
use percent_encoding::percent_decode_str;
use quell::clock;
use quell::quell_core::clock::Timestamp;
use quell::webhook::Secret;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{Listening, Shared, json as json_answer, with_headers};
use crate::message::Channel;
use crate::provider::{MetaAccount, Provider, TwilioAccount, WatiAccount};

const WATI_TENANT: &str = "10021";
const WATI_TOKEN: &str = "local-wati-token";
const TWILIO_SID: &str = "AC00000000000000000000000000000000";
const TWILIO_TOKEN: &str = "local-twilio-token";
const TWILIO_NUMBER: &str = "14155238886";
const META_NUMBER_ID: &str = "106540352242922";
const META_TOKEN: &str = "local-meta-token";

/// Requests are small; a larger one is a mistake.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// What goes wrong with one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderFault {
    /// 429, and nothing is sent; with a time to wait or without.
    TooMany(Option<Duration>),
    /// 503 with a time to wait, and nothing is sent.
    Unavailable(Duration),
    /// 500, and nothing is sent.
    ErrorBefore,
    /// 500, although it was sent.
    ErrorAfter,
    /// It is sent, and no answer ever comes.
    SilentAfter,
    /// Nothing is sent, and no answer ever comes.
    SilentBefore,
    /// It is sent, and the answer is no JSON.
    GarbageAfter,
    /// This status with this code of the provider's, and nothing is sent. Of WATI, 200 is a refusal with a good status.
    Refused { status: u16, code: i64 },
}

/// A call, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// When it came, by this machine's clock.
    pub at: Timestamp,
    pub channel: Channel,
    /// The provider's id of the message; none when it was not delivered.
    pub id: Option<String>,
    /// As the call names the customer.
    pub to: String,
    /// As the call names what it leaves from.
    pub from: String,
    pub text: String,
    /// What the sender calls it, where the provider has a place for that.
    pub own_id: Option<String>,
    /// The message that a typing indicator answers; such a call is no message.
    pub typing_for: Option<String>,
}

/// The server.
#[derive(Debug)]
pub struct LocalProviders {
    listening: Listening,
    state: Shared<Inner>,
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Inner {
    faults: Vec<(Channel, VecDeque<ProviderFault>)>,
    received: Vec<Received>,
}

impl Inner {
    fn fault(&mut self, channel: Channel) -> Option<ProviderFault> {
        self.faults.iter_mut().find(|(of, _)| *of == channel)?.1.pop_front()
    }
}

impl fmt::Debug for Shared<Inner> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock().fmt(f)
    }
}

impl LocalProviders {
    pub async fn start() -> io::Result<LocalProviders> {
        let (state, changed) = (Shared::new(Inner::default()), Arc::new(Notify::new()));
        let router = Router::new().fallback(serve).with_state((state.clone(), changed.clone()));
        Ok(LocalProviders { listening: Listening::start(router).await?, state, changed })
    }

    /// An account that this server knows.
    pub fn account(&self, channel: Channel) -> Provider {
        let url = self.listening.url();
        match channel {
            Channel::Wati => {
                Provider::Wati(WatiAccount::new(url, Some(WATI_TENANT.into()), Secret::new(WATI_TOKEN)))
            }
            Channel::Twilio => {
                let token = Secret::new(TWILIO_TOKEN);
                let account = TwilioAccount::new(TWILIO_SID, token, Some(TWILIO_NUMBER.into()));
                Provider::Twilio(TwilioAccount { base_url: url, ..account })
            }
            Channel::Meta => {
                let account = MetaAccount::new(META_NUMBER_ID, Secret::new(META_TOKEN));
                Provider::Meta(MetaAccount { base_url: url, ..account })
            }
        }
    }

    /// The next message by this channel without a fault of its own gets this one.
    pub fn fail_next(&self, channel: Channel, fault: ProviderFault) {
        let mut inner = self.state.lock();
        match inner.faults.iter_mut().find(|(of, _)| *of == channel) {
            Some((_, faults)) => faults.push_back(fault),
            None => inner.faults.push((channel, VecDeque::from([fault]))),
        }
    }

    /// Every call with good credentials, in the order in which they came.
    pub fn received(&self) -> Vec<Received> {
        self.state.lock().received.clone()
    }

    /// What customers have got, in order.
    pub fn delivered(&self) -> Vec<Received> {
        let received = self.received();
        received.into_iter().filter(|call| call.id.is_some()).collect()
    }

    /// Waits until the calls look like this; put a time limit around it.
    pub async fn wait_until(&self, like: impl Fn(&[Received]) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if like(&self.state.lock().received) {
                return;
            }
            changed.await;
        }
    }
}

type Served = (Shared<Inner>, Arc<Notify>);

async fn serve(State(served): State<Served>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, BODY_BYTES_MAX).await else {
        return json_answer(StatusCode::PAYLOAD_TOO_LARGE, &json!({}));
    };
    let path = parts.uri.path().to_owned();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let get = parts.method == Method::GET;
    match segments.as_slice() {
        ["2010-04-01", "Accounts", sid, "Messages.json"] => twilio(&served, &parts, &body, sid).await,
        [tenant, "api", "v1", "sendSessionMessage", number] if !get => {
            wati(&served, &parts, tenant, &decoded(number)).await
        }
        [tenant, "api", "v1", "getMessages", number] if get => {
            wati_list(&served, &parts, tenant, &decoded(number))
        }
        [_version, number_id, "messages"] if !get => meta(&served, &parts, &body, number_id).await,
        _ => json_answer(StatusCode::NOT_FOUND, &json!({"message": "not found"})),
    }
}

/// What the three have in common: a fault, a delivery, an answer.
async fn deliver(
    (state, changed): &Served,
    mut call: Received,
    good: impl Fn(&str) -> Response<Body>,
    bad: impl Fn(StatusCode, i64) -> Response<Body>,
) -> Response<Body> {
    let channel = call.channel;
    let (fault, id) = {
        let mut inner = state.lock();
        let fault = inner.fault(channel);
        let sends = !matches!(
            fault,
            Some(
                ProviderFault::TooMany(_)
                    | ProviderFault::Unavailable(_)
                    | ProviderFault::ErrorBefore
                    | ProviderFault::SilentBefore
                    | ProviderFault::Refused { .. }
            )
        );
        let id = id_of(channel, inner.received.len());
        call.id = sends.then(|| id.clone());
        inner.received.push(call);
        (fault, id)
    };
    changed.notify_waiters();
    let waiting = |mut response: Response<Body>, wait: Option<Duration>| {
        if let Some(wait) = wait {
            response.headers_mut().insert(header::RETRY_AFTER, wait.as_secs().into());
        }
        response
    };
    match fault {
        None => good(&id),
        Some(ProviderFault::TooMany(wait)) => {
            let code = if channel == Channel::Meta { 130_429 } else { 20429 };
            waiting(bad(StatusCode::TOO_MANY_REQUESTS, code), wait)
        }
        Some(ProviderFault::Unavailable(wait)) => {
            waiting(with_headers(StatusCode::SERVICE_UNAVAILABLE, &[], "down for a while"), Some(wait))
        }
        Some(ProviderFault::ErrorBefore | ProviderFault::ErrorAfter) => {
            with_headers(StatusCode::INTERNAL_SERVER_ERROR, &[], "<html>Internal Server Error</html>")
        }
        Some(ProviderFault::SilentAfter | ProviderFault::SilentBefore) => std::future::pending().await,
        Some(ProviderFault::GarbageAfter) => with_headers(StatusCode::OK, &[], "<html>ok?</html>"),
        Some(ProviderFault::Refused { status, code }) => {
            bad(StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST), code)
        }
    }
}

fn id_of(channel: Channel, number: usize) -> String {
    match channel {
        Channel::Twilio => format!("SM{number:032x}"),
        Channel::Wati | Channel::Meta => format!("wamid.local{number}"),
    }
}

async fn wati(served: &Served, parts: &Parts, tenant: &str, number: &str) -> Response<Body> {
    let refused =
        |status: StatusCode, info: &str| json_answer(status, &json!({"result": false, "info": info}));
    if tenant != WATI_TENANT || !has_bearer(parts, WATI_TOKEN) {
        return refused(StatusCode::UNAUTHORIZED, "Unauthorized");
    }
    let Some(text) = pair(parts.uri.query().unwrap_or_default().as_bytes(), "messageText") else {
        return refused(StatusCode::BAD_REQUEST, "messageText is required");
    };
    if !is_digits(number) || text.trim().is_empty() || text.encode_utf16().count() > 4096 {
        return refused(StatusCode::OK, "Invalid number or text");
    }
    let call = call(Channel::Wati, number, tenant, text);
    let good = |id: &str| {
        json_answer(StatusCode::OK, &json!({"result": true, "message": {"whatsappMessageId": id}}))
    };
    let bad = |status: StatusCode, code: i64| refused(status, &format!("refused by {code}"));
    deliver(served, call, good, bad).await
}

fn wati_list(served: &Served, parts: &Parts, tenant: &str, number: &str) -> Response<Body> {
    if tenant != WATI_TENANT || !has_bearer(parts, WATI_TOKEN) {
        return json_answer(StatusCode::UNAUTHORIZED, &json!({"result": "error"}));
    }
    let size = pair(parts.uri.query().unwrap_or_default().as_bytes(), "pageSize");
    let size = size.and_then(|size| size.parse().ok()).unwrap_or(100);
    let mut items: Vec<Value> = newest(served, Channel::Wati, number)
        .into_iter()
        .map(|sent| {
            json!({
                "eventType": "message", "type": "text", "text": sent.text, "owner": true, "statusString": "SENT",
                "timestamp": (sent.at.as_millis() / 1000).to_string(), "id": sent.id,
            })
        })
        .collect();
    // What the customer wrote first of all.
    items.push(json!({
        "eventType": "message", "type": "text", "text": "Hello", "owner": false, "timestamp": "1669299798", "id": "0",
    }));
    items.truncate(size);
    json_answer(StatusCode::OK, &json!({"result": "success", "messages": {"items": items, "pageNumber": 1}}))
}

async fn twilio(served: &Served, parts: &Parts, body: &[u8], sid: &str) -> Response<Body> {
    let refused = |status: StatusCode, code: i64, message: &str| {
        json_answer(status, &json!({"code": code, "message": message, "status": status.as_u16()}))
    };
    let basic = format!("Basic {}", STANDARD.encode(format!("{TWILIO_SID}:{TWILIO_TOKEN}")));
    if sid != TWILIO_SID || authorization(parts) != Some(basic.as_bytes()) {
        return refused(StatusCode::UNAUTHORIZED, 20003, "Authenticate");
    }
    if parts.method == Method::GET {
        return twilio_list(served, parts);
    }
    let (to, from) = (pair(body, "To").unwrap_or_default(), pair(body, "From").unwrap_or_default());
    let text = pair(body, "Body").unwrap_or_default();
    let whatsapp = |number: &str| number.strip_prefix("whatsapp:+").is_some_and(is_digits);
    if !whatsapp(&to) {
        return refused(StatusCode::BAD_REQUEST, 21211, "The 'To' number is not a valid phone number.");
    }
    if !whatsapp(&from) {
        return refused(StatusCode::BAD_REQUEST, 21212, "The 'From' number is not a valid phone number.");
    }
    if text.is_empty() {
        return refused(StatusCode::BAD_REQUEST, 21602, "Message body is required.");
    }
    if text.chars().count() > 1600 {
        let said = "The concatenated message body exceeds the 1600 character limit";
        return refused(StatusCode::BAD_REQUEST, 21617, said);
    }
    let call = call(Channel::Twilio, &to, &from, text);
    let sent = call.clone();
    let good = |id: &str| json_answer(StatusCode::CREATED, &resource(&sent, id, "queued"));
    let bad = |status: StatusCode, code: i64| refused(status, code, "refused");
    deliver(served, call, good, bad).await
}

fn twilio_list(served: &Served, parts: &Parts) -> Response<Body> {
    let query = parts.uri.query().unwrap_or_default().as_bytes();
    let (to, from) = (pair(query, "To").unwrap_or_default(), pair(query, "From"));
    let size = pair(query, "PageSize").and_then(|size| size.parse().ok()).unwrap_or(50);
    let messages: Vec<Value> = newest(served, Channel::Twilio, &to)
        .into_iter()
        .filter(|sent| from.as_ref().is_none_or(|from| *from == sent.from))
        .take(size)
        .map(|sent| resource(&sent, sent.id.as_deref().unwrap_or_default(), "delivered"))
        .collect();
    json_answer(
        StatusCode::OK,
        &json!({"messages": messages, "page": 0, "page_size": size, "next_page_uri": null}),
    )
}

/// A message as Twilio shows it.
fn resource(sent: &Received, id: &str, status: &str) -> Value {
    let at = jiff::Timestamp::from_millisecond(sent.at.as_millis()).unwrap_or_default();
    let date = at.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string();
    json!({
        "sid": id, "account_sid": TWILIO_SID, "to": sent.to, "from": sent.from, "body": sent.text, "status": status,
        "direction": "outbound-api", "date_created": date, "date_sent": date, "error_code": null, "error_message": null,
    })
}

async fn meta(served: &Served, parts: &Parts, body: &[u8], number_id: &str) -> Response<Body> {
    let refused = |status: StatusCode, code: i64| {
        let error = json!({
            "message": "refused", "type": "OAuthException", "code": code,
            "error_data": {"messaging_product": "whatsapp", "details": "as it was told"}, "fbtrace_id": "local",
        });
        json_answer(status, &json!({"error": error}))
    };
    if !has_bearer(parts, META_TOKEN) {
        return refused(StatusCode::UNAUTHORIZED, 190);
    }
    let said: Value = serde_json::from_slice(body).unwrap_or_default();
    let word = |pointer: &str| said.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    if number_id != META_NUMBER_ID || word("/messaging_product") != "whatsapp" {
        return refused(StatusCode::BAD_REQUEST, 100);
    }
    if word("/status") == "read" {
        let mut call = call(Channel::Meta, "", number_id, String::new());
        call.typing_for = Some(word("/message_id").to_owned());
        served.0.lock().received.push(call);
        served.1.notify_waiters();
        return json_answer(StatusCode::OK, &json!({"success": true}));
    }
    let (to, text) = ([word("/to"), word("/recipient")].concat(), word("/text/body"));
    let both = said.get("to").is_some() && said.get("recipient").is_some();
    if word("/type") != "text"
        || to.is_empty()
        || both
        || text.is_empty()
        || text.encode_utf16().count() > 4096
    {
        return refused(StatusCode::BAD_REQUEST, 100);
    }
    let mut call = call(Channel::Meta, &to, number_id, text.to_owned());
    call.own_id = said.get("biz_opaque_callback_data").and_then(Value::as_str).map(str::to_owned);
    let good = |id: &str| {
        let contacts = json!([{"input": to, "wa_id": to}]);
        let said = json!({"messaging_product": "whatsapp", "contacts": contacts, "messages": [{"id": id}]});
        json_answer(StatusCode::OK, &said)
    };
    deliver(served, call, good, refused).await
}

fn call(channel: Channel, to: &str, from: &str, text: String) -> Received {
    Received {
        at: clock::Time::wall(&clock::RealTime::new()),
        channel,
        id: None,
        to: to.to_owned(),
        from: from.to_owned(),
        text,
        own_id: None,
        typing_for: None,
    }
}

/// What was delivered to somebody, the latest first.
fn newest(served: &Served, channel: Channel, to: &str) -> Vec<Received> {
    let inner = served.0.lock();
    let sent = |call: &&Received| call.channel == channel && call.to == to && call.id.is_some();
    inner.received.iter().rev().filter(sent).cloned().collect()
}

fn has_bearer(parts: &Parts, token: &str) -> bool {
    authorization(parts) == Some(format!("Bearer {token}").as_bytes())
}

fn authorization(parts: &Parts) -> Option<&[u8]> {
    parts.headers.get(header::AUTHORIZATION).map(header::HeaderValue::as_bytes)
}

fn pair(form: &[u8], name: &str) -> Option<String> {
    form_urlencoded::parse(form).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

fn decoded(segment: &str) -> String {
    percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
