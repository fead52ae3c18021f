//! Meta's Cloud API: JSON to the number that the customer wrote to.
//!
//! There is no list of sent messages. What we call a message goes along as `biz_opaque_callback_data` and comes back with
//! the reports of its delivery.

use std::time::Duration;

use http::{Method, header};
use quell::fetch::{Call, CallError, Http, Reply, retry_after};
use quell::webhook::Secret;
use serde_json::{Value, json};

use super::{
    Recipient, Sending, TIMEOUT_DEFAULT, by_status, is_number, json_type, made, text_at, unanswered,
};
use crate::words::{bearer, line, wall};

pub(super) const TEXT_MAX: usize = 4096;

/// After this code only much patience helps: the customer's side holds the number for a sender of spam.
const SPAM_WAIT: Duration = Duration::from_secs(1800);

/// The indicator says nothing to anybody after this.
const TYPING_TIMEOUT: Duration = Duration::from_secs(3);

/// An app of Meta with a number.
#[derive(Debug, Clone, PartialEq)]
pub struct MetaAccount {
    pub base_url: String,
    /// `v23.0`.
    pub version: String,
    /// What replies leave from when the message does not say to which number it came.
    pub phone_number_id: String,
    pub token: Secret,
    pub timeout: Duration,
}

impl MetaAccount {
    pub const BASE_URL: &str = "https://graph.facebook.com";
    pub const VERSION: &str = "v23.0";

    pub fn new(phone_number_id: impl Into<String>, token: Secret) -> Self {
        MetaAccount {
            base_url: Self::BASE_URL.to_owned(),
            version: Self::VERSION.to_owned(),
            phone_number_id: phone_number_id.into(),
            token,
            timeout: TIMEOUT_DEFAULT,
        }
    }

    pub(super) async fn send(&self, http: &Http, to: &Recipient, text: &str, own_id: &str) -> Sending {
        let Some(call) = self.call(to, &message(to, text, own_id)) else {
            return Sending::never(BAD_ACCOUNT);
        };
        match made(http, &self.base_url, call).await {
            Ok(reply) => sent(&reply),
            Err(error) => unanswered(&error),
        }
    }

    pub(super) async fn typing(&self, http: &Http, to: &Recipient, message_id: &str) {
        let body = json!({
            "messaging_product": "whatsapp",
            "status": "read",
            "message_id": message_id,
            "typing_indicator": {"type": "text"},
        });
        let Some(call) = self.call(to, &body) else { return };
        let call = call.timeout(self.timeout.min(TYPING_TIMEOUT));
        let problem = match made(http, &self.base_url, call).await {
            Ok(reply) if reply.status.is_success() => return,
            Ok(reply) => CallError::Invalid(reply.status.to_string()),
            Err(error) => error,
        };
        tracing::debug!(%problem, "the customer does not see that a reply is being written");
    }

    /// None when the account cannot be used.
    fn call(&self, to: &Recipient, body: &Value) -> Option<Call> {
        let number = to.from.as_deref().unwrap_or(&self.phone_number_id);
        let version = self.version.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
        if !is_number(number) || !version {
            return None;
        }
        let url = format!("{}/{}/{number}/messages", self.base_url.trim_end_matches('/'), self.version);
        let call = Call::new(Method::POST, url).header(header::AUTHORIZATION, bearer(&self.token)?);
        Some(json_type(call).body(body.to_string()).timeout(self.timeout))
    }
}

const BAD_ACCOUNT: &str = "nothing was sent: the account of Meta needs an id of a phone number in digits, a version \
                           such as v23.0 and a token without control characters";

/// A customer without a number is called by the id that Meta gave this business.
fn message(to: &Recipient, text: &str, own_id: &str) -> Value {
    let (field, customer) = to.number().map_or(("recipient", to.customer.as_str()), |number| ("to", number));
    json!({
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        field: customer,
        "type": "text",
        "text": {"body": text, "preview_url": false},
        "biz_opaque_callback_data": own_id,
    })
}

/// What Meta's codes say counts more than the status that they come with.
fn sent(reply: &Reply) -> Sending {
    let said: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    if let Some(error) = said.get("error").filter(|error| error.is_object()) {
        return refused(reply, error);
    }
    if !reply.status.is_success() {
        return by_status(reply, "");
    }
    match text_at(&said, "/messages/0/id") {
        Some(id) => Sending::Sent { id: Some(id.to_owned()) },
        None => Sending::unknown("the answer of Meta does not name the message"),
    }
}

fn refused(reply: &Reply, error: &Value) -> Sending {
    let code = error.get("code").and_then(Value::as_i64).unwrap_or(0);
    let details = text_at(error, "/error_data/details").or_else(|| text_at(error, "/message"));
    let said = format!("{code} {}", details.unwrap_or_default());
    let why = || format!("Meta refused it: {}", line(&said));
    match code {
        // Too many calls, too many messages, too many to this one customer.
        4 | 80007 | 130_429 | 131_056 => Sending::later(why(), retry_after(&reply.headers, wall())),
        131_048 => Sending::later(why(), Some(SPAM_WAIT)),
        // More than a day since the customer wrote, undeliverable, the token, the kind of message.
        131_047 | 131_026 | 190 | 131_051 => Sending::never(why()),
        _ => match by_status(reply, &said) {
            Sending::NotSent { again: None, .. } if error.get("is_transient") == Some(&Value::Bool(true)) => {
                Sending::later(why(), None)
            }
            Sending::NotSent { why, again, source_fault } => Sending::NotSent { why, again, source_fault },
            // With a good status nothing else is known than that it complains.
            Sending::Sent { .. } | Sending::Unknown { .. } => Sending::unknown(why()),
        },
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, StatusCode};

    use super::*;

    #[test]
    fn a_customer_is_called_by_number_or_by_id() {
        let to = |customer: &str| {
            let to = Recipient { customer: customer.into(), from: None };
            let body = message(&to, "Yes", "reply-1");
            (body.get("to").cloned(), body.get("recipient").cloned())
        };
        assert_eq!(to("50376819621"), (Some(json!("50376819621")), None));
        assert_eq!(to("+50376819621"), (Some(json!("50376819621")), None));
        assert_eq!(to("US.1234"), (None, Some(json!("US.1234"))));
    }

    #[test]
    fn the_code_decides_before_the_status() {
        let answer = |status: u16, code: i64, transient: bool| {
            let said = json!({"error": {"message": "no", "code": code, "is_transient": transient}});
            let status = StatusCode::from_u16(status).unwrap();
            sent(&Reply { status, headers: HeaderMap::new(), body: said.to_string().into_bytes() })
        };
        for code in [4, 80007, 130_429, 131_056] {
            for status in [200, 400, 429, 500] {
                let sending = answer(status, code, false);
                assert!(
                    matches!(sending, Sending::NotSent { again: Some(None), source_fault: true, .. }),
                    "{code}"
                );
            }
        }
        assert!(matches!(answer(400, 131_048, false), Sending::NotSent { again: Some(Some(SPAM_WAIT)), .. }));
        for code in [131_047, 131_026, 190, 131_051] {
            assert!(matches!(answer(500, code, true), Sending::NotSent { again: None, .. }), "{code}");
        }
        assert!(matches!(answer(400, 100, false), Sending::NotSent { again: None, .. }));
        assert!(matches!(answer(400, 2, true), Sending::NotSent { again: Some(None), .. }));
        assert!(matches!(answer(500, 131_000, true), Sending::Unknown { .. }));
        assert!(matches!(answer(200, 131_000, false), Sending::Unknown { .. }));
    }
}
