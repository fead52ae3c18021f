//! One file of signed deliveries for everybody who checks signatures: this crate and the clients in other languages.
//!
//! The cases are made here, by our own signer, and judged by our own verifier; `clients/vectors.json` is what they are
//! printed as, and each client has to give every one of them the same verdict. The deliveries of the fixtures, which another
//! library has signed, are among them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, Method};
use quell_webhook::{Delivery, Endpoint, Rules, Scheme, Standard};
use serde_json::{Value, json};

const NOW: i64 = 1_760_000_000;
const TOLERANCE: u64 = 300;
const NEW: &str = "whsec_bmV3LW5ldy1uZXctbmV3LW5ldy1uZXctbmV3LW5ldy0=";
const OLD: &str = "whsec_b2xkLW9sZC1vbGQtb2xkLW9sZC1vbGQtb2xkLW9sZC0=";
const BODY: &str = "{\"run_id\":\"run_2m_9f\",\"events\":[{\"payload\":\"\\u0000 grüße\"}]}";
const HELP: &str = "run QUELL_WRITE_REFERENCE=1 cargo test -p quell-webhook --test it vectors";

/// One delivery, who checks it with what, and the verdict: `ok` or the reason of the refusal.
struct Case {
    name: String,
    secrets: Vec<String>,
    /// Pairs, because a header may be there twice.
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    expect: String,
}

impl Case {
    /// A delivery of [`BODY`] that is right in every way, for a receiver with these secrets.
    fn signed(name: &str, by: &[&str], at: i64, secrets: &[&str], expect: &str) -> Case {
        Case::of(name, by, ("run_2m_9f-3", at), BODY.as_bytes(), secrets, expect)
    }

    fn of(
        name: &str,
        by: &[&str],
        (id, at): (&str, i64),
        body: &[u8],
        secrets: &[&str],
        expect: &str,
    ) -> Case {
        let signers: Vec<_> = by.iter().map(|text| Standard.secret(text).expect("a secret")).collect();
        let value = Standard::signatures(&signers, id, at, body);
        let at = at.to_string();
        let headers = [("webhook-id", id), ("webhook-timestamp", &at), ("webhook-signature", &value)];
        Case {
            name: name.to_owned(),
            secrets: secrets.iter().map(|text| (*text).to_owned()).collect(),
            headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            body: body.to_vec(),
            expect: expect.to_owned(),
        }
    }

    fn with(mut self, header: &str, value: impl Fn(&str) -> String) -> Case {
        for (name, text) in &mut self.headers {
            if name == header {
                *text = value(text);
            }
        }
        self
    }

    fn without(mut self, header: &str) -> Case {
        self.headers.retain(|(name, _)| name != header);
        self
    }

    fn twice(mut self, header: &str) -> Case {
        let again = self.headers.iter().find(|(name, _)| name == header).expect("it is there").clone();
        self.headers.push(again);
        self
    }

    fn verdict(&self) -> String {
        let scheme: Arc<dyn Scheme> = Arc::new(Standard);
        let endpoint = Endpoint {
            secrets: self.secrets.iter().map(|text| scheme.secret(text).expect("a secret")).collect(),
            verify: Vec::new(),
            scheme,
            tolerance: Duration::from_secs(TOLERANCE),
            public_url: None,
            rules: Rules::default(),
        };
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            headers.append(name.parse::<HeaderName>().expect("a name"), value.parse().expect("a value"));
        }
        let (method, body) = (&Method::POST, self.body.as_slice());
        let delivery = Delivery { method, target: "/", rest: None, headers: &headers, body };
        match endpoint.verify(&delivery, NOW) {
            Ok(_) => "ok".to_owned(),
            Err(refusal) => refusal.because.as_str().to_owned(),
        }
    }

    fn printed(&self) -> Value {
        json!({
            "name": self.name,
            "secrets": self.secrets,
            "headers": self.headers,
            "body_base64": STANDARD.encode(&self.body),
            "expect": self.expect,
        })
    }
}

fn cases() -> Vec<Case> {
    let right = |name: &str, expect: &str| Case::signed(name, &[NEW], NOW, &[NEW], expect);
    let bare = NEW.strip_prefix("whsec_").expect("it has one");
    let mut all = vec![
        right("valid", "ok"),
        Case::of("an empty body", &[NEW], ("run_1_2-0", NOW), b"", &[NEW], "ok"),
        Case::of("bytes that are no text", &[NEW], ("run_1_2-0", NOW), b"\xff\0\xfe", &[NEW], "ok"),
        Case::signed("another secret", &[OLD], NOW, &[NEW], "bad_signature"),
        Case::signed("rotated: signed by both, one known", &[NEW, OLD], NOW, &[OLD], "ok"),
        Case::signed("rotated: signed by the old one, both known", &[OLD], NOW, &[NEW, OLD], "ok"),
        Case::signed("as old as allowed", &[NEW], NOW - 300, &[NEW], "ok"),
        Case::signed("too old", &[NEW], NOW - 301, &[NEW], "stale"),
        Case::signed("as far in the future as allowed", &[NEW], NOW + 300, &[NEW], "ok"),
        Case::signed("too far in the future", &[NEW], NOW + 301, &[NEW], "future"),
        Case::signed("too old and not proven", &[OLD], NOW - 301, &[NEW], "bad_signature"),
        Case::signed("a secret without prefix", &[NEW], NOW, &[bare], "ok"),
        Case::signed("a secret without padding", &[NEW], NOW, &[NEW.trim_end_matches('=')], "ok"),
        right("a signature without padding", "ok")
            .with("webhook-signature", |text| text.trim_end_matches('=').to_owned()),
        right("too much padding", "malformed_signature")
            .with("webhook-signature", |text| format!("{text}==")),
        right("another version beside it", "ok")
            .with("webhook-signature", |text| format!("v1a,{} {text}", "A".repeat(86))),
        right("only another version", "malformed_signature")
            .with("webhook-signature", |text| text.replace("v1,", "v2,")),
        right("no base64", "malformed_signature").with("webhook-signature", |_| "v1,!!!!".to_owned()),
        right("a signature that is cut", "bad_signature")
            .with("webhook-signature", |text| text[..23].to_owned()),
        right("spaces around", "ok").with("webhook-timestamp", |text| format!(" {text} ")),
        right("another id", "bad_signature").with("webhook-id", |_| "run_2m_9f-4".to_owned()),
        right("another time", "bad_signature").with("webhook-timestamp", |_| "1760000001".to_owned()),
        right("no id", "missing_header").without("webhook-id"),
        right("no time", "missing_header").without("webhook-timestamp"),
        right("no signature", "missing_signature").without("webhook-signature"),
        right("an empty signature", "missing_signature").with("webhook-signature", |_| String::new()),
        right("the signature twice", "malformed_signature").twice("webhook-signature"),
        right("the id twice", "malformed_header").twice("webhook-id"),
        Case::of("an id with a dot", &[NEW], ("a.1", NOW), b"{}", &[NEW], "malformed_header"),
    ];
    let mut other = right("other bytes", "bad_signature");
    other.body.push(b' ');
    all.push(other);
    let mut upper = right("headers in capitals", "ok");
    upper.headers.iter_mut().for_each(|(name, _)| name.make_ascii_uppercase());
    all.push(upper);
    let signature = |by: &str| {
        Standard::signatures(&[Standard.secret(by).expect("a secret")], "run_2m_9f-3", NOW, BODY.as_bytes())
    };
    let fifteen = [signature(OLD).as_str()].repeat(15).join(" ");
    all.push(
        right("the sixteenth signature", "ok").with("webhook-signature", |text| format!("{fifteen} {text}")),
    );
    all.push(
        right("the seventeenth signature", "bad_signature")
            .with("webhook-signature", |text| format!("{fifteen} {} {text}", signature(OLD))),
    );
    all.extend(from_fixtures());
    all
}

fn read(file: &Path) -> Vec<u8> {
    std::fs::read(file).expect("the fixtures are there")
}

/// What another library has signed.
fn from_fixtures() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let manifest: Value = serde_json::from_slice(&read(&folder.join("manifest.json"))).expect("JSON");
    let secret = manifest["secrets"]["standard_webhooks"]["value"].as_str().expect("a secret");
    let standard = |case: &&Value| case["provider"] == "standard_webhooks";
    let case_of = |case: &Value| {
        let headers = case["request"]["headers"].as_object().expect("headers");
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        Case {
            name: format!("fixture {}", text(&case["id"])),
            secrets: vec![secret.to_owned()],
            headers: headers.iter().map(|(name, value)| (name.clone(), text(value))).collect(),
            body: read(&folder.join(text(&case["request"]["body_file"]))),
            expect: case["expect"]["reason"].as_str().unwrap_or("ok").to_owned(),
        }
    };
    manifest["cases"].as_array().expect("cases").iter().filter(standard).map(case_of).collect()
}

#[test]
fn every_vector_gets_the_verdict_that_the_clients_are_told() {
    for case in cases() {
        assert_eq!(case.verdict(), case.expect, "{}", case.name);
    }
}

#[test]
fn the_vectors_of_the_clients_are_what_this_signer_makes() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/vectors.json");
    let cases: Vec<Value> = cases().iter().map(Case::printed).collect();
    let wanted = json!({ "now": NOW, "tolerance": TOLERANCE, "cases": cases });
    let wanted = serde_json::to_string_pretty(&wanted).unwrap() + "\n";
    if std::env::var_os("QUELL_WRITE_REFERENCE").is_some() {
        std::fs::write(&file, &wanted).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(committed == wanted, "{HELP}");
}
