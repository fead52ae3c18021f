//! Twilio: a form to its message resource. There is no key against repetition, but sent messages can be listed.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use form_urlencoded::Serializer;
use http::{HeaderValue, Method, header};
use quell::fetch::{Call, Http, Reply};
use quell::quell_core::clock::Timestamp;
use quell::webhook::Secret;
use serde_json::Value;

use super::{
    LISTED, Listed, Recipient, Reconciled, Sending, TIMEOUT_DEFAULT, by_status, found, is_number, list_of,
    made, text_at, unanswered,
};
use crate::words::authorization;

pub(super) const TEXT_MAX: usize = 1600;

/// An account at Twilio.
#[derive(Debug, Clone, PartialEq)]
pub struct TwilioAccount {
    pub base_url: String,
    pub account_sid: String,
    pub auth_token: Secret,
    /// The number that replies leave from when the message does not say to which it came.
    pub from: Option<String>,
    pub timeout: Duration,
}

impl TwilioAccount {
    pub const BASE_URL: &str = "https://api.twilio.com";

    pub fn new(account_sid: impl Into<String>, auth_token: Secret, from: Option<String>) -> Self {
        TwilioAccount {
            base_url: Self::BASE_URL.to_owned(),
            account_sid: account_sid.into(),
            auth_token,
            from,
            timeout: TIMEOUT_DEFAULT,
        }
    }

    pub(super) async fn send(&self, http: &Http, to: &Recipient, text: &str) -> Sending {
        let Some(from) = self.from(to) else { return Sending::never(NO_NUMBER) };
        let form = Serializer::new(String::new())
            .append_pair("From", &from)
            .append_pair("To", &address(&to.customer))
            .append_pair("Body", text)
            .finish();
        let Some(call) = self.call(Method::POST, self.url()) else { return Sending::never(BAD_ACCOUNT) };
        let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        let call = call.header(header::CONTENT_TYPE, form_type).body(form);
        match made(http, &self.base_url, call).await {
            Ok(reply) => sent(&reply),
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
        let Some(from) = self.from(to) else { return Reconciled::unknown(NO_NUMBER) };
        let query = Serializer::new(String::new())
            .append_pair("To", &address(&to.customer))
            .append_pair("From", &from)
            .append_pair("PageSize", &LISTED.to_string())
            .finish();
        let Some(call) = self.call(Method::GET, format!("{}?{query}", self.url())) else {
            return Reconciled::unknown(BAD_ACCOUNT);
        };
        match list_of(made(http, &self.base_url, call).await) {
            Ok(list) => listed(&list, text, since),
            Err(unknown) => unknown,
        }
    }

    fn from(&self, to: &Recipient) -> Option<String> {
        to.from.as_deref().or(self.from.as_deref()).map(address)
    }

    fn url(&self) -> String {
        let base = self.base_url.trim_end_matches('/');
        format!("{base}/2010-04-01/Accounts/{}/Messages.json", self.account_sid)
    }

    /// None when the credentials cannot be sent.
    fn call(&self, method: Method, url: String) -> Option<Call> {
        if !self.account_sid.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return None;
        }
        let pair = [self.account_sid.as_bytes(), b":", self.auth_token.bytes()].concat();
        let value = authorization(format!("Basic {}", STANDARD.encode(pair)).as_bytes())?;
        Some(Call::new(method, url).header(header::AUTHORIZATION, value).timeout(self.timeout))
    }
}

const BAD_ACCOUNT: &str = "nothing was sent: the account of Twilio must be letters and digits (AC…)";
const NO_NUMBER: &str = "nothing was sent: neither message nor settings say which number to send from";

/// A number of WhatsApp as Twilio writes it. What is written in full stays as it is.
fn address(number: &str) -> String {
    if number.contains(':') {
        number.to_owned()
    } else if is_number(number) {
        format!("whatsapp:+{number}")
    } else {
        format!("whatsapp:{number}")
    }
}

fn sent(reply: &Reply) -> Sending {
    let said: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    if !reply.status.is_success() {
        let code =
            said.get("code").and_then(Value::as_i64).map(|code| format!("{code} ")).unwrap_or_default();
        return by_status(reply, &format!("{code}{}", text_at(&said, "/message").unwrap_or_default()));
    }
    let Some(sid) = text_at(&said, "/sid") else {
        return Sending::unknown("the answer of Twilio does not name the message");
    };
    match text_at(&said, "/status") {
        Some(status @ ("failed" | "undelivered" | "canceled")) => {
            let code = said.get("error_code").filter(|code| !code.is_null()).map(Value::to_string);
            Sending::never(format!("Twilio calls it {status}, error {}", code.unwrap_or_default()))
        }
        _ => Sending::Sent { id: Some(sid.to_owned()) },
    }
}

fn listed(list: &Value, text: &str, since: Timestamp) -> Reconciled {
    let Some(items) = list.get("messages").and_then(Value::as_array) else {
        return Reconciled::unknown("the list of messages has another form");
    };
    let items: Vec<_> = items.iter().map(item).collect();
    found(&items, text, since)
}

fn item(item: &Value) -> Listed<'_> {
    let created = text_at(item, "/date_created").and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
    Listed {
        id: text_at(item, "/sid"),
        ours: text_at(item, "/direction").is_some_and(|direction| direction.starts_with("outbound")),
        text: text_at(item, "/body").unwrap_or_default(),
        at: created.map(|at| Timestamp::from_millis(at.timestamp().as_millisecond())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_written_as_twilio_wants_them() {
        for written in ["14155238886", "+14155238886", "whatsapp:+14155238886"] {
            assert_eq!(address(written), "whatsapp:+14155238886");
        }
        assert_eq!(address("messenger:1"), "messenger:1");
    }

    #[test]
    fn sent_messages_are_found_in_the_list() {
        let list = json!({"messages": [{
            "sid": "SM1", "body": "Yes", "direction": "outbound-api", "status": "delivered",
            "date_created": "Thu, 24 Aug 2023 05:01:45 +0000",
        }]});
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
        assert_eq!(listed(&list, "Yes", at(1_692_853_305)), Reconciled::Sent { id: Some("SM1".into()) });
        assert_eq!(listed(&list, "Yes", at(1_692_853_306)), Reconciled::NotSent);
        assert!(matches!(listed(&json!({}), "Yes", at(0)), Reconciled::Unknown { .. }));
    }
}
