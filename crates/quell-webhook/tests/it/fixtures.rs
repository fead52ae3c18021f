//! Every signed fixture gets the verdict that its provider's own library gives it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, Method};
use quell_webhook::{Delivery, Endpoint, Item, Reading, Rule, Rules, Scheme, Schemes};
use serde::Deserialize;

#[derive(Deserialize)]
struct Manifest {
    now: i64,
    tolerance_seconds: u64,
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
    now: Option<i64>,
    request: Request,
    expect: Expect,
}

#[derive(Deserialize)]
struct Request {
    headers: BTreeMap<String, String>,
    body_file: String,
}

#[derive(Deserialize)]
struct Expect {
    verdict: String,
    reason: Option<String>,
    event_id: Option<String>,
    body: Option<String>,
}

/// The word of the fixtures for a reason, in ours.
fn reason(word: &str, id: &str) -> &'static str {
    match word {
        "bad_signature" => "bad_signature",
        "stale" => "stale",
        "future" => "future",
        "missing_signature" => "missing_signature",
        // Stripe has everything in one header.
        "missing_header" if id.starts_with("stripe/") => "missing_signature",
        "missing_header" => "missing_header",
        other => panic!("{other} is not known"),
    }
}

#[test]
fn all_signed_fixtures_get_their_verdict() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let manifest = std::fs::read(folder.join("manifest.json")).unwrap();
    let manifest: Manifest = serde_json::from_slice(&manifest).unwrap();
    let schemes = Schemes::built_in();
    for case in &manifest.cases {
        let name = if case.provider == "standard_webhooks" { "standard" } else { case.provider.as_str() };
        let scheme: Arc<dyn Scheme> = schemes.get(name).unwrap();
        let rules = Rules {
            key: vec![Rule::parse("text:everything").unwrap()],
            id: scheme.usual_id(),
            ..Rules::default()
        };
        let endpoint = Endpoint {
            secrets: vec![scheme.secret(&manifest.secrets[&case.secret].value).unwrap()],
            verify: Vec::new(),
            scheme,
            tolerance: Duration::from_secs(manifest.tolerance_seconds),
            public_url: None,
            rules,
        };
        let mut headers = HeaderMap::new();
        for (name, value) in &case.request.headers {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        let body = std::fs::read(folder.join(&case.request.body_file)).unwrap();
        let delivery =
            Delivery { method: &Method::POST, target: "/", rest: None, headers: &headers, body: &body };
        let verdict = endpoint.verify(&delivery, case.now.unwrap_or(manifest.now));
        match (case.expect.verdict.as_str(), verdict) {
            ("accept", Ok(_)) => match endpoint.read(&delivery).unwrap() {
                Reading::Handshake(handshake) => {
                    assert_eq!(Some(handshake.answer), case.expect.body, "{}", case.id);
                }
                Reading::Items(items) => {
                    let [Item::Event(event)] = items.as_slice() else { panic!("{}: {items:?}", case.id) };
                    assert_eq!(event.id, case.expect.event_id, "{}", case.id);
                }
            },
            ("reject", Err(refusal)) => {
                let wanted = reason(case.expect.reason.as_deref().unwrap(), &case.id);
                assert_eq!(refusal.because.as_str(), wanted, "{}: {refusal}", case.id);
            }
            (wanted, got) => panic!("{}: {wanted} was expected, not {got:?}", case.id),
        }
    }
    assert_eq!(manifest.cases.len(), 27);
}
