//! Slack: `X-Slack-Signature: v0=<hex>` and `X-Slack-Request-Timestamp`. Signed is `v0:<timestamp>:<body>` with HMAC-SHA256.
//!
//! A body `{"type":"url_verification","challenge":…}` only asks whether the endpoint is ours, and is answered with the
//! challenge. Slash commands and buttons are forms, signed the same way.

use serde_json::Value;

use crate::content::Content;
use crate::encoding::{from_hex, to_hex};
use crate::endpoint::{Item, Reading, Rules};
use crate::hmac::sha256;
use crate::refusal::{Because, Refusal};
use crate::rule::Rule;
use crate::scheme::{Answer, Check, Delivery, Handshake, Scheme};
use crate::secret::Secret;

const SIGNATURE: &str = "x-slack-signature";
const TIMESTAMP: &str = "x-slack-request-timestamp";
/// Slack's challenges are much shorter. What comes back is plain text, and no place for anybody's page.
const CHALLENGE_MAX: usize = 128;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Slack;

fn signed<'a>(timestamp: &'a str, body: &'a [u8]) -> [&'a [u8]; 4] {
    [b"v0:", timestamp.as_bytes(), b":", body]
}

impl Scheme for Slack {
    fn name(&self) -> &'static str {
        "slack"
    }

    fn verify(&self, delivery: &Delivery<'_>, check: &Check<'_>) -> Result<usize, Refusal> {
        let given = delivery.header(SIGNATURE, Because::MissingSignature)?;
        let timestamp = delivery.header(TIMESTAMP, Because::MissingHeader)?;
        let Some(signature) = given.strip_prefix("v0=").and_then(from_hex) else {
            let detail = format!("{SIGNATURE} is not v0= and hex");
            return Err(Refusal::new(Because::MalformedSignature, detail));
        };
        let sign = |secret: &Secret| sha256(secret, &signed(timestamp, delivery.body));
        let secret = check.any(&[signature], sign)?;
        check.time(timestamp, TIMESTAMP)?;
        Ok(secret)
    }

    fn read(&self, delivery: &Delivery<'_>, rules: &Rules) -> Result<Reading, Refusal> {
        let content = Content::of(delivery)?;
        let value = content.value();
        if value.get("type").and_then(Value::as_str) == Some("url_verification") {
            let challenge = value.get("challenge").and_then(Value::as_str).unwrap_or_default();
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.=+/".contains(&byte);
            if challenge.is_empty() || challenge.len() > CHALLENGE_MAX || !challenge.bytes().all(plain) {
                let detail = format!("its challenge is not 1 to {CHALLENGE_MAX} letters and digits");
                return Err(Refusal::new(Because::Unusable, detail));
            }
            return Ok(Reading::Handshake(Handshake { answer: challenge.to_owned() }));
        }
        Ok(Reading::Items(vec![Item::Event(rules.event(delivery, &content)?)]))
    }

    fn usual_id(&self) -> Option<Rule> {
        Some(Rule::Pointer("/event_id".to_owned()))
    }

    fn answer(&self) -> Answer {
        Answer::Nothing
    }

    fn sign(&self, secret: &Secret, _id: &str, now: i64, body: &[u8]) -> Vec<(String, String)> {
        let timestamp = now.to_string();
        let signature = format!("v0={}", to_hex(&sha256(secret, &signed(&timestamp, body))));
        vec![(SIGNATURE.to_owned(), signature), (TIMESTAMP.to_owned(), timestamp)]
    }
}
