//! WATI: one POST with the text in its query, which is why neither URL nor answer is ever repeated in an error.
//!
//! What it lists as sent is known from recorded answers of the service, not from its documentation.

use std::time::Duration;

use http::{Method, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use quell::fetch::{Call, Http, Reply, URL_BYTES_MAX};
use quell::quell_core::clock::Timestamp;
use quell::webhook::Secret;
use serde_json::Value;

use super::{
    LISTED, Listed, Recipient, Reconciled, Sending, TIMEOUT_DEFAULT, by_status, found, list_of, made,
    text_at, unanswered,
};
use crate::words::{bearer, line};

pub(super) const TEXT_MAX: usize = 4096;

/// The text is a part of the URL, which has a bound of its own; the rest is for everything else in it.
pub(super) const ENCODED_MAX: usize = URL_BYTES_MAX - 1024;

/// What needs no encoding anywhere in a URL.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// An account at WATI.
#[derive(Debug, Clone, PartialEq)]
pub struct WatiAccount {
    /// `https://live-mt-server.wati.io`, as the account's dashboard shows it, without the tenant.
    pub server: String,
    /// The tenant in the path; none for servers that have none.
    pub tenant_id: Option<String>,
    pub token: Secret,
    pub timeout: Duration,
}

impl WatiAccount {
    pub fn new(server: impl Into<String>, tenant_id: Option<String>, token: Secret) -> Self {
        WatiAccount { server: server.into(), tenant_id, token, timeout: TIMEOUT_DEFAULT }
    }

    pub(super) async fn send(&self, http: &Http, to: &Recipient, text: &str) -> Sending {
        let url = format!("{}?messageText={}", self.url("sendSessionMessage", to), encoded(text));
        let Some(call) = self.call(Method::POST, url) else { return Sending::never(BAD_TOKEN) };
        match made(http, &self.server, call).await {
            Ok(reply) => sent(&reply, text),
            Err(error) => unanswered(&error),
        }
    }

    pub(super) async fn reconcile(
        &self,
        http: &Http,
        to: &Recipient,
        text: &str,
        since: Timestamp,
    ) -> Reconciled {
        let url = format!("{}?pageSize={LISTED}&pageNumber=1", self.url("getMessages", to));
        let Some(call) = self.call(Method::GET, url) else { return Reconciled::unknown(BAD_TOKEN) };
        match list_of(made(http, &self.server, call).await) {
            Ok(list) => listed(&list, text, since),
            Err(unknown) => unknown,
        }
    }

    fn url(&self, what: &str, to: &Recipient) -> String {
        let server = self.server.trim_end_matches('/');
        let tenant = self.tenant_id.as_deref().map(|id| format!("/{}", encoded(id))).unwrap_or_default();
        let number = to.number().unwrap_or(&to.customer);
        format!("{server}{tenant}/api/v1/{what}/{}", encoded(number))
    }

    /// None when the token cannot be sent.
    fn call(&self, method: Method, url: String) -> Option<Call> {
        let value = bearer(&self.token)?;
        Some(Call::new(method, url).header(header::AUTHORIZATION, value).timeout(self.timeout))
    }
}

const BAD_TOKEN: &str = "nothing was sent: the token of WATI holds characters that no header may have";

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, UNRESERVED).to_string()
}

/// How many bytes a text takes in a URL.
pub(super) fn encoded_length(text: &str) -> usize {
    utf8_percent_encode(text, UNRESERVED).map(str::len).sum()
}

/// 200 means only that it was heard: the answer says whether it was taken.
fn sent(reply: &Reply, text: &str) -> Sending {
    let said: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let info = text_at(&said, "/info").or_else(|| text_at(&said, "/message")).unwrap_or_default();
    // A reason that repeats the text is none that may be shown.
    let info = if info.contains(text) || info.contains(&encoded(text)) { "" } else { info };
    if !reply.status.is_success() {
        return by_status(reply, info);
    }
    match said.get("result") {
        Some(Value::Bool(true)) => {}
        Some(Value::String(result)) if result == "success" => {}
        Some(Value::Bool(false) | Value::String(_)) => {
            let why = if info.is_empty() { "it does not say why" } else { info };
            return Sending::never(format!("WATI did not take it: {}", line(why)));
        }
        _ => return Sending::unknown("the answer of WATI does not say whether it took the message"),
    }
    let id = ["/message/whatsappMessageId", "/message/id", "/id"]
        .into_iter()
        .find_map(|pointer| text_at(&said, pointer));
    Sending::Sent { id: id.map(str::to_owned) }
}

fn listed(list: &Value, text: &str, since: Timestamp) -> Reconciled {
    let Some(items) = list.pointer("/messages/items").and_then(Value::as_array) else {
        return Reconciled::unknown("the list of messages has another form");
    };
    let items: Vec<_> = items.iter().map(item).collect();
    // The customer wrote before we answered: a list without that is not the one we think it is.
    if !items.iter().any(|item| !item.ours) {
        return Reconciled::unknown("the list of messages does not show what the customer wrote");
    }
    found(&items, text, since)
}

/// Entries that are no messages (a ticket, an assignment) have no text; they count for how far back the list reaches.
fn item(item: &Value) -> Listed<'_> {
    let seconds = match item.get("timestamp") {
        Some(Value::String(text)) => text.parse().ok(),
        Some(Value::Number(number)) => number.as_i64(),
        _ => None,
    };
    let created = || Some(text_at(item, "/created")?.parse::<jiff::Timestamp>().ok()?.as_millisecond());
    Listed {
        id: text_at(item, "/whatsappMessageId").or_else(|| text_at(item, "/id")),
        ours: item.get("owner").and_then(Value::as_bool) == Some(true),
        text: text_at(item, "/text").unwrap_or_default(),
        at: seconds
            .map(|seconds: i64| seconds.saturating_mul(1000))
            .or_else(created)
            .map(Timestamp::from_millis),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, StatusCode};
    use serde_json::json;

    use super::*;

    fn answer(status: u16, said: &Value) -> Sending {
        let status = StatusCode::from_u16(status).unwrap();
        let reply = Reply { status, headers: HeaderMap::new(), body: said.to_string().into_bytes() };
        sent(&reply, "Yes & no")
    }

    #[test]
    fn the_answer_says_whether_it_was_taken() {
        let id = |id: Option<&str>| Sending::Sent { id: id.map(str::to_owned) };
        assert_eq!(
            answer(200, &json!({"result": true, "message": {"whatsappMessageId": "w"}})),
            id(Some("w"))
        );
        assert_eq!(answer(200, &json!({"result": "success"})), id(None));
        let refused = answer(200, &json!({"result": false, "info": "Ticket has been expired."}));
        assert_eq!(refused, Sending::never("WATI did not take it: Ticket has been expired."));
        for unclear in [json!({}), json!([]), json!({"result": null}), json!("ok")] {
            assert!(matches!(answer(200, &unclear), Sending::Unknown { .. }), "{unclear}");
        }
    }

    #[test]
    fn no_error_repeats_the_text() {
        for info in ["cannot send: Yes & no", "/x?messageText=Yes%20%26%20no"] {
            for (status, result) in [(200, json!(false)), (400, json!(false)), (500, Value::Null)] {
                let shown = format!("{:?}", answer(status, &json!({"result": result, "info": info})));
                assert!(!shown.contains("Yes"), "{shown}");
            }
        }
    }

    #[test]
    fn sent_messages_are_found_in_the_list() {
        let list = json!({"result": "success", "messages": {"items": [
            {"text": "Yes", "owner": true, "timestamp": "1669299815", "id": "a", "eventType": "message"},
            {"eventDescription": "assigned", "created": "2022-11-24T14:23:35.982Z", "eventType": "ticket"},
            {"text": "Hello", "owner": false, "timestamp": "1669299798", "eventType": "message"},
        ]}});
        let since = Timestamp::from_millis(1_669_299_800_000);
        assert_eq!(listed(&list, "Yes", since), Reconciled::Sent { id: Some("a".into()) });
        assert_eq!(listed(&list, "No", since), Reconciled::NotSent);
        for other in [json!({"result": "success", "messages": {"items": []}}), json!({"messages": []})] {
            assert!(matches!(listed(&other, "Yes", since), Reconciled::Unknown { .. }), "{other}");
        }
    }
}
