//! Providers of webhooks: how each of them signs, written down a second time, from their own words.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use quell::clock::{RealTime, Time};
use quell::deliveries::{DeliveryRecord, DeliveryVerdict};
use sha2::Sha256;

use crate::support::{RawReply, World, until};

/// An endpoint of every scheme.
pub(crate) const HOOKS: &str = r#"
[queues.jobs]
window = "none"
handler = "pull"
[endpoints.standard]
scheme = "standard"
secret_env = ["STANDARD", "STANDARD_OLD"]
queue = "jobs"
key = "/key"
[endpoints.other]
scheme = "standard"
secret_env = "OTHER"
queue = "jobs"
key = "/key"
[endpoints.github]
scheme = "github"
secret_env = ["GITHUB", "GITHUB_OLD"]
queue = "jobs"
key = "/key"
[endpoints.stripe]
scheme = "stripe"
secret_env = ["STRIPE", "STRIPE_OLD"]
queue = "jobs"
key = "/key"
[endpoints.slack]
scheme = "slack"
secret_env = ["SLACK", "SLACK_OLD"]
queue = "jobs"
key = "/key"
[endpoints.hex]
scheme = "hmac"
secret_env = "HEX"
queue = "jobs"
key = "/key"
[endpoints.base64]
scheme = "hmac"
header = "X-Mac"
prefix = "mac="
encoding = "base64"
secret_env = "BASE64"
queue = "jobs"
key = "/key"
[endpoints.timed]
scheme = "hmac"
timestamp_header = "X-Time"
secret_env = "TIMED"
queue = "jobs"
key = "/key"
[endpoints.bearer]
scheme = "bearer"
secret_env = ["BEARER", "BEARER_OLD"]
queue = "jobs"
key = "/key"
[endpoints.word]
scheme = "bearer"
header = "X-Shop-Word"
secret_env = "WORD"
queue = "jobs"
key = "/key"
[endpoints.open]
scheme = "none"
queue = "jobs"
key = "/key"
"#;

pub(crate) const STANDARD_BYTES: [&[u8]; 3] = [
    b"canary-standard-32-bytes-long-01",
    b"canary-standard-32-bytes-old-001",
    b"canary-standard-of-another-one-1",
];
pub(crate) const GITHUB: &str = "canary-github-secret";
pub(crate) const GITHUB_OLD: &str = "canary-github-secret-old";
pub(crate) const STRIPE: &str = "whsec_Y2FuYXJ5LXN0cmlwZS1zZWNyZXQtMTIzNDU2";
pub(crate) const STRIPE_OLD: &str = "whsec_canary_stripe_old";
pub(crate) const SLACK: &str = "canary-slack-signing";
pub(crate) const SLACK_OLD: &str = "canary-slack-signing-old";
pub(crate) const HEX: &str = "canary-hmac-in-hex";
pub(crate) const BASE64: &str = "canary-hmac-in-base64";
pub(crate) const TIMED: &str = "canary-hmac-with-time";
pub(crate) const BEARER: &str = "canary-bearer-token";
pub(crate) const BEARER_OLD: &str = "canary-bearer-token-old";
pub(crate) const WORD: &str = "canary-word-of-the-shop";

/// The variables that [`HOOKS`] names.
pub(crate) fn secrets() -> Vec<(&'static str, String)> {
    let standard = STANDARD_BYTES.map(|bytes| format!("whsec_{}", base64(bytes)));
    let [new, old, other] = standard;
    let plain = [
        ("GITHUB", GITHUB),
        ("GITHUB_OLD", GITHUB_OLD),
        ("STRIPE", STRIPE),
        ("STRIPE_OLD", STRIPE_OLD),
        ("SLACK", SLACK),
        ("SLACK_OLD", SLACK_OLD),
        ("HEX", HEX),
        ("BASE64", BASE64),
        ("TIMED", TIMED),
        ("BEARER", BEARER),
        ("BEARER_OLD", BEARER_OLD),
        ("WORD", WORD),
    ];
    [("STANDARD", new), ("STANDARD_OLD", old), ("OTHER", other)]
        .into_iter()
        .chain(plain.map(|(name, value)| (name, value.to_owned())))
        .collect()
}

/// A server with [`HOOKS`] and more of a configuration.
pub(crate) async fn hooked(more: &str) -> World {
    let secrets = secrets();
    let secrets: Vec<(&str, &str)> = secrets.iter().map(|(name, value)| (*name, value.as_str())).collect();
    World::hooked(&format!("{HOOKS}{more}"), &secrets).await
}

pub(crate) fn now() -> i64 {
    RealTime::default().wall().as_millis() / 1_000
}

pub(crate) fn mac(secret: impl AsRef<[u8]>, parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_ref()).expect("any key will do");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub(crate) type Fields = Vec<(String, String)>;

pub(crate) fn fields(all: &[(&str, &str)]) -> Fields {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

pub(crate) fn standard_signature(secret: &[u8], id: &str, time: &str, body: &[u8]) -> String {
    base64(&mac(secret, &[id.as_bytes(), b".", time.as_bytes(), b".", body]))
}

pub(crate) fn standard_at(secret: &[u8], id: &str, time: &str, body: &[u8]) -> Fields {
    let signature = format!("v1,{}", standard_signature(secret, id, time, body));
    fields(&[("webhook-id", id), ("webhook-timestamp", time), ("webhook-signature", &signature)])
}

/// As the first secret signs it now.
pub(crate) fn standard(id: &str, body: impl AsRef<[u8]>) -> Fields {
    standard_at(STANDARD_BYTES[0], id, &now().to_string(), body.as_ref())
}

pub(crate) fn github(secret: &str, body: impl AsRef<[u8]>) -> Fields {
    fields(&[("X-Hub-Signature-256", &format!("sha256={}", hex(&mac(secret, &[body.as_ref()]))))])
}

pub(crate) fn stripe_signature(secret: &str, time: &str, body: &[u8]) -> String {
    hex(&mac(secret, &[time.as_bytes(), b".", body]))
}

pub(crate) fn stripe_at(secret: &str, time: &str, body: &[u8]) -> Fields {
    fields(&[("Stripe-Signature", &format!("t={time},v1={}", stripe_signature(secret, time, body)))])
}

pub(crate) fn slack_at(secret: &str, time: &str, body: &[u8]) -> Fields {
    let signature = format!("v0={}", hex(&mac(secret, &[b"v0:", time.as_bytes(), b":", body])));
    fields(&[("X-Slack-Signature", &signature), ("X-Slack-Request-Timestamp", time)])
}

pub(crate) fn slack(body: impl AsRef<[u8]>) -> Fields {
    slack_at(SLACK, &now().to_string(), body.as_ref())
}

/// The bytes of a delivery that is the last one of its connection.
pub(crate) fn bytes_of(method: &str, target: &str, fields: &Fields, body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: hooks.example\r\nConnection: close\r\n");
    for (name, value) in fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    [head.as_bytes(), body].concat()
}

/// What was answered to a delivery.
pub(crate) struct Answered {
    pub(crate) status: u16,
    /// Status line and fields, but for the date.
    pub(crate) head: Vec<String>,
    pub(crate) body: String,
}

impl Answered {
    pub(crate) fn of(reply: &RawReply) -> Answered {
        let (head, body) = reply.text.split_once("\r\n\r\n").unwrap_or_default();
        let head = head.lines().filter(|line| !line.starts_with("date:")).map(str::to_owned).collect();
        Answered { status: reply.status(), head, body: body.to_owned() }
    }

    pub(crate) fn has(&self, line: &str) -> bool {
        self.head.iter().any(|found| found == line)
    }

    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {} {}", self.status, self.body))
    }
}

impl World {
    pub(crate) async fn deliver(&self, to: &str, fields: &Fields, body: impl AsRef<[u8]>) -> Answered {
        let bytes = bytes_of("POST", &format!("/hooks/{to}"), fields, body.as_ref());
        Answered::of(&self.send_raw(&bytes).await)
    }

    /// One that GitHub would send, with an id.
    pub(crate) async fn deliver_github(&self, id: &str, body: impl AsRef<[u8]>) -> Answered {
        let mut fields = github(GITHUB, &body);
        fields.push(("X-GitHub-Delivery".to_owned(), id.to_owned()));
        self.deliver("github", &fields, body).await
    }

    /// The first record that is so; it is written within a second.
    pub(crate) async fn recorded(
        &self,
        what: &str,
        is_it: impl Fn(&DeliveryRecord) -> bool,
    ) -> DeliveryRecord {
        let mut found = None;
        until(what, async || {
            let records = self.engine.deliveries().await.expect("they are listed");
            found = records.into_iter().find(&is_it);
            found.is_some()
        })
        .await;
        found.expect("it was found")
    }

    /// The newest record of a refusal for this reason.
    pub(crate) async fn refusal(&self, endpoint: &str, reason: &str) -> DeliveryRecord {
        self.recorded(&format!("{endpoint} refuses: {reason}"), |record| {
            record.verdict == DeliveryVerdict::Refused
                && record.endpoint == endpoint
                && record.reason.as_deref() == Some(reason)
        })
        .await
    }
}
