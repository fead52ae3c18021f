//! Every fixture gets the verdict that its provider's own library gives it, and yields what is in it.

use std::collections::BTreeMap;
use std::path::Path;

use quell::webhook::Endpoint;
use quell_chat::inbound::{Parsed, meta, twilio, wati};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::support::{Sent, endpoint, verify_token};

#[derive(Deserialize)]
struct Manifest {
    secrets: BTreeMap<String, SecretOf>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct SecretOf {
    value: String,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    provider: String,
    secret: String,
    request: Request,
    expect: Expect,
}

#[derive(Deserialize)]
struct Request {
    method: String,
    url: String,
    headers: BTreeMap<String, String>,
    body_file: Option<String>,
}

#[derive(Deserialize)]
struct Expect {
    verdict: String,
    reason: Option<String>,
    items: Option<Vec<Value>>,
    duplicate_of: Option<String>,
    body: Option<String>,
}

/// The word of the fixtures for a reason, in ours.
fn reason(word: &str) -> &'static str {
    match word {
        "bad_signature" | "bad_token" | "bad_body_hash" => "bad_signature",
        "missing_signature" | "missing_token" => "missing_signature",
        "bad_verify_token" => "bad_verify_token",
        other => panic!("{other} is not known"),
    }
}

/// What was found, in the words of the fixtures.
fn shown(parsed: &Parsed) -> Value {
    match parsed {
        Parsed::Message(message) => {
            let mut shown = serde_json::to_value(message).unwrap();
            let fields = shown.as_object_mut().unwrap();
            fields.insert("kind".to_owned(), json!("message"));
            fields.insert("timestamp".to_owned(), json!(message.sent_at));
            fields.insert("text".to_owned(), json!(message.text));
            for more in ["channel", "user_id", "to", "name", "sent_at"] {
                fields.remove(more);
            }
            shown
        }
        Parsed::Status { message_id, status, error_code } => {
            let mut shown = json!({ "kind": "status", "message_id": message_id, "status": status });
            if let Some(code) = error_code {
                shown["error_code"] = json!(code);
            }
            shown
        }
        Parsed::Ignored(why) => json!({ "kind": "ignored", "why": why }),
    }
}

struct Fixture {
    case: Case,
    endpoint: Endpoint,
    sent: Sent,
}

fn fixtures() -> Vec<Fixture> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let manifest: Manifest =
        serde_json::from_slice(&std::fs::read(folder.join("manifest.json")).unwrap()).unwrap();
    let made = manifest.cases.into_iter().map(|case| {
        let secret = manifest.secrets[&case.secret].value.as_str();
        let mut endpoint = endpoint(&case.provider, &[secret]);
        if case.secret == "meta_verify_token" {
            endpoint.verify = verify_token(secret);
        }
        let request = &case.request;
        let (address, query) = request.url.split_once('?').map_or((request.url.as_str(), ""), |parts| parts);
        endpoint.public_url = Some(address.to_owned());
        let path = address.strip_prefix("https://bot.example.com").unwrap();
        let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let body = request.body_file.as_ref().map(|file| std::fs::read(folder.join(file)).unwrap());
        let mut sent = Sent::new(body.unwrap_or_default()).to(&target);
        sent.method = request.method.parse().unwrap();
        for (name, value) in &request.headers {
            sent = sent.with(name, value);
        }
        Fixture { case, endpoint, sent }
    });
    made.collect()
}

fn parsed(fixture: &Fixture) -> Vec<Parsed> {
    let (provider, body) = (fixture.case.provider.as_str(), fixture.sent.body.as_slice());
    let parsed = match provider {
        "wati" => wati::items(body),
        "twilio" => {
            let is_form = fixture.case.request.headers["Content-Type"].contains("form");
            twilio::items(is_form, body)
        }
        _ => meta::items(body),
    };
    parsed.unwrap()
}

#[test]
fn every_fixture_gets_its_verdict_and_its_items() {
    let all = fixtures();
    assert_eq!(all.len(), 48);
    for fixture in &all {
        let (id, expect) = (&fixture.case.id, &fixture.case.expect);
        let verdict = match fixture.sent.greeting(&fixture.endpoint) {
            Some(greeted) => greeted.map(|handshake| {
                assert_eq!(Some(handshake.answer), expect.body, "{id}");
            }),
            None => fixture.endpoint.verify(&fixture.sent.delivery(), crate::support::NOW).map(|_| ()),
        };
        match (expect.verdict.as_str(), verdict) {
            ("accept", Ok(())) => {}
            ("reject", Err(refusal)) => {
                let wanted = reason(expect.reason.as_deref().unwrap());
                assert_eq!(refusal.because.as_str(), wanted, "{id}: {refusal}");
                continue;
            }
            (wanted, got) => panic!("{id}: {wanted} was expected, not {got:?}"),
        }
        let Some(items) = &expect.items else { continue };
        let found: Vec<Value> = parsed(fixture).iter().map(shown).collect();
        // The fixtures of WATI leave open what a place looks like.
        let wanted = items.iter().zip(&found).map(|(wanted, found)| {
            let mut wanted: Map<String, Value> = wanted.as_object().unwrap().clone();
            if wanted.get("type") == Some(&json!("location")) && id == "wati/location" {
                assert_eq!(found["location"], json!({ "latitude": 38.8977, "longitude": -77.0365 }));
                wanted.insert("location".to_owned(), found["location"].clone());
            }
            Value::Object(wanted)
        });
        assert_eq!(found, wanted.collect::<Vec<_>>(), "{id}");
        assert_eq!(found.len(), items.len(), "{id}");
        let messages = items.iter().filter(|item| item["kind"] == "message").count();
        let (read, ignored) = fixture.sent.read(&fixture.endpoint);
        assert_eq!((read.len(), ignored.len()), (messages, items.len() - messages), "{id}");
    }
}

#[test]
fn what_is_sent_again_has_the_same_id_and_the_same_payload() {
    let all = fixtures();
    let mut seen = 0;
    for again in all.iter().filter(|fixture| fixture.case.expect.duplicate_of.is_some()) {
        let first = again.case.expect.duplicate_of.as_ref().unwrap();
        let first = all.iter().find(|fixture| fixture.case.id == *first).unwrap();
        assert_eq!(again.sent.read(&again.endpoint), first.sent.read(&first.endpoint), "{}", again.case.id);
        seen += 1;
    }
    assert_eq!(seen, 5);
}
