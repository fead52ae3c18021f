//! What is tried: one function for each parser, which panics when a promise is broken and says which way an input went.
//!
//! Beyond not to panic, each promises what it can: what is printed reads back as the same, nothing is proven by a secret
//! that others do not have, no address that is not public is let through.

use std::net::IpAddr;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use quell::config::{Config, DurationText, Flags, Settings, SettingsInput, SizeText, SourceText, StoreUrl};
use quell_core::batch::RunId;
use quell_core::clock::Timestamp;
use quell_core::cron::{Cron, Zone};
use quell_core::event::Payload;
use quell_fetch::{Allow, Guard, verdict};
use quell_server::fuzzing;
use quell_transcripts::line::{self, Line, read_line};
use quell_transcripts::redact::Redactor;
use quell_webhook::{Delivery, Endpoint, Rule, Rules, Scheme, Schemes};

mod cursors;

/// One parser.
pub struct Target {
    pub name: &'static str,
    /// Words of its language.
    pub words: &'static [&'static str],
    /// Reads an input and says which way it went.
    pub read: fn(&[u8]) -> String,
}

/// Everything that reads what others have written.
pub const TARGETS: &[Target] = &[
    Target {
        name: "signatures",
        words: &[
            "webhook-id: ",
            "webhook-timestamp: 1760000000",
            "webhook-signature: v1,",
            "x-hub-signature-256: sha256=",
            "stripe-signature: t=1760000000,v1=",
            "x-slack-signature: v0=",
            "x-slack-request-timestamp: 1760000000",
            "authorization: Bearer ",
            "x-signature: ",
            "content-type: application/x-www-form-urlencoded",
            "v1a,",
            "\n\n",
        ],
        read: signatures,
    },
    Target {
        name: "cloudevents",
        words: &[
            "ce-specversion: 1.0",
            "ce-id: ",
            "ce-source: ",
            "ce-type: ",
            "ce-subject: ",
            "ce-partitionkey: ",
            "content-type: application/cloudevents+json",
            "content-type: application/cloudevents-batch+json",
            "content-type: text/plain",
            "\"specversion\":\"1.0\"",
            "\"id\":\"",
            "\"source\":\"",
            "\"type\":\"",
            "\"data_base64\":\"",
            "\"data\":",
            "\n\n",
            "%C3%A4",
        ],
        read: cloudevents,
    },
    Target {
        name: "config",
        words: &[
            "[queues.",
            "window = ",
            "{ quiet = \"2s\", max_wait = \"1m\" }",
            "{ fixed = \"1s\" }",
            "\"none\"",
            "handler = ",
            "{ exec = [\"true\"] }",
            "retry = { attempts = 3 }",
            "[server]",
            "[endpoints.",
            "secret = { env = \"X\" }",
            "[sources.",
            "per_minute = 10",
            "schedule = ",
            "priority = 5",
            "[store]",
            "url = \"sqlite:q.db\"",
            "lease = \"30s\"",
        ],
        read: config,
    },
    Target {
        name: "durations",
        words: &["ms", "s", "m", "h", "d", "w", "y", "us", "KiB", "MiB", "GiB", "B", " "],
        read: durations,
    },
    Target {
        name: "cron",
        words: &[
            "*",
            "*/",
            "-",
            ",",
            " ",
            "MON",
            "JAN",
            "@daily",
            "@hourly",
            "29 2",
            "31",
            "7",
            "Europe/Berlin",
            "\n",
        ],
        read: cron,
    },
    Target {
        name: "transcripts",
        words: &[
            "{\"type\":\"user\"",
            "{\"type\":\"assistant\"",
            "\"message\":",
            "\"content\":[",
            "{\"type\":\"text\",\"text\":\"",
            "{\"type\":\"tool_use\"",
            "\"usage\":{",
            "\"input_tokens\":",
            "\"uuid\":\"",
            "\"sessionId\":\"",
            "\"timestamp\":\"",
            "2026-01-01T00:00:00.000Z",
            "\"isSidechain\":true",
            "\"toolUseResult\":",
            "sk-ant-",
            "ghp_",
            "Bearer ",
        ],
        read: transcripts,
    },
    Target {
        name: "url",
        words: &[
            "http://",
            "https://",
            "localhost",
            "127.0.0.1",
            "0x7f.1",
            "2130706433",
            "0177.0.0.1",
            "[::1]",
            "[::ffff:10.0.0.1]",
            "[64:ff9b::7f00:1]",
            "169.254.169.254",
            "10.0.0.1",
            "example.com",
            ":80",
            ":6379",
            "@",
            "/",
            ".",
            "。",
            "１",
        ],
        read: url,
    },
    Target { name: "cursors", words: &[".", "f.", "k.", "0.1.0.", "-5", "s."], read: cursors::read },
    Target {
        name: "lane_query",
        words: &[
            "queue:",
            "tenant:",
            "key:",
            "state:",
            "why:",
            "worker:",
            "age>",
            "age<",
            "due>",
            "buffered<",
            "-",
            "\"",
            "\\\"",
            "*",
            "running",
            "paused",
            "blocked",
            "idle",
            "5m",
            " ",
        ],
        read: lane_query,
    },
    Target {
        name: "small",
        words: &["run_", "_", "sqlite:", "postgres://", "redis://", "header:", "text:", "/a", "~1"],
        read: small,
    },
];

fn text(input: &[u8]) -> &str {
    std::str::from_utf8(input).unwrap_or_default()
}

/// A message without what was written, and without numbers: which way something went, and not with what.
fn shape(message: &str, written: &str) -> String {
    let plain = message.replace(&format!("{written:?}"), "…");
    let plain = plain.split(['"', '`']).step_by(2).collect::<Vec<_>>().join("…");
    plain.chars().filter(char::is_ascii_alphabetic).take(40).collect()
}

/// Headers, one in a line; an empty line; the body.
fn message(input: &[u8]) -> (HeaderMap, &[u8]) {
    let cut = input.windows(2).position(|pair| pair == b"\n\n");
    let (head, body) = cut.map_or((input, &b""[..]), |at| (&input[..at], &input[at + 2..]));
    let mut headers = HeaderMap::new();
    for line in head.split(|byte| *byte == b'\n').take(40) {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (Some(name), Some(value)) = (parts.next(), parts.next()) else { continue };
        let value = HeaderValue::from_bytes(value.strip_prefix(b" ").unwrap_or(value));
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), value) {
            headers.append(name, value);
        }
    }
    (headers, body)
}

/// When the corpus was signed.
const NOW: i64 = 1_760_000_000;

fn endpoint(scheme: &Arc<dyn Scheme>, secret: &str) -> Option<Endpoint> {
    let rules =
        Rules { key: vec![Rule::parse("/key").ok()?, Rule::parse("text:k").ok()?], ..Rules::default() };
    Some(Endpoint {
        secrets: vec![scheme.secret(secret).ok()?],
        verify: Vec::new(),
        scheme: scheme.clone(),
        tolerance: Duration::from_secs(300),
        public_url: None,
        rules,
    })
}

const SECRET: &str = "whsec_bmV3LW5ldy1uZXctbmV3LW5ldy1uZXctbmV3LW5ldy0=";
const ANOTHER: &str = "whsec_b2xkLW9sZC1vbGQtb2xkLW9sZC1vbGQtb2xkLW9sZC0=";

fn signatures(input: &[u8]) -> String {
    let (headers, body) = message(input);
    let delivery =
        Delivery { method: &Method::POST, target: "/hooks/a", rest: None, headers: &headers, body };
    let schemes = Schemes::built_in();
    let mut way = String::new();
    for name in schemes.names() {
        let scheme = schemes.get(name).expect("it was listed");
        let (Some(ours), Some(theirs)) = (endpoint(&scheme, SECRET), endpoint(&scheme, ANOTHER)) else {
            continue;
        };
        match ours.verify(&delivery, NOW) {
            Ok(_) => {
                let secret = &ours.secrets[0];
                let signs = !scheme.sign(secret, "id", NOW, body).is_empty();
                assert!(
                    !signs || theirs.verify(&delivery, NOW).is_err(),
                    "{name}: proven by a secret that it has not"
                );
                way += match ours.read(&delivery) {
                    Ok(_) => "+",
                    Err(refusal) => refusal.because.as_str(),
                };
            }
            Err(refusal) => way += refusal.because.as_str(),
        }
        let mut signed = HeaderMap::new();
        for (name, value) in scheme.sign(&ours.secrets[0], "an-id", NOW, body) {
            let (name, value) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(&value));
            signed.append(name.expect("a name of ours"), value.expect("a value of ours"));
        }
        let own = Delivery { headers: &signed, ..delivery };
        assert!(signed.is_empty() || ours.verify(&own, NOW).is_ok(), "{name}: what we sign is not proven");
    }
    way
}

fn cloudevents(input: &[u8]) -> String {
    let (headers, body) = message(input);
    match fuzzing::cloud_events(&headers, body) {
        Err(problem) => shape(&problem, ""),
        Ok(events) => {
            for event in &events {
                let mut structured = HeaderMap::new();
                structured.insert("content-type", HeaderValue::from_static("application/cloudevents+json"));
                let again = fuzzing::cloud_events(&structured, event.payload.as_bytes());
                let again =
                    again.unwrap_or_else(|problem| panic!("its structured form is refused: {problem}"));
                assert!(again.len() == 1 && again[0] == *event, "its structured form is another event");
            }
            format!("{} events", events.len().min(3))
        }
    }
}

fn config(input: &[u8]) -> String {
    let written = text(input);
    match Config::parse(written, "quell.toml") {
        Err(error) => shape(&error.to_string(), written),
        Ok(config) => {
            let env = std::collections::BTreeMap::new();
            let source = SourceText::new("quell.toml", written);
            let input = SettingsInput { config: Some((config, source)), env: &env, flags: Flags::default() };
            match Settings::resolve(input) {
                Err(error) => shape(&error.to_string(), written),
                Ok(settings) => {
                    let told = settings.explain();
                    format!("{} settings", told.len())
                }
            }
        }
    }
}

fn durations(input: &[u8]) -> String {
    let written = text(input);
    let duration = match DurationText::parse(written) {
        Err(problem) => shape(&problem, written),
        Ok(duration) => {
            let shown = DurationText::show(duration);
            assert_eq!(
                DurationText::parse(&shown),
                Ok(duration),
                "what is shown as {shown} is another duration"
            );
            format!("a duration of {} characters", shown.len())
        }
    };
    let size = match SizeText::parse(written) {
        Err(problem) => shape(&problem, written),
        Ok(size) => format!("a size of {} bits", size.checked_ilog2().unwrap_or(0)),
    };
    format!("{duration} {size}")
}

fn cron(input: &[u8]) -> String {
    let mut lines = text(input).lines();
    let expression = match Cron::from_str(lines.next().unwrap_or_default()) {
        Ok(cron) => cron,
        Err(problem) => return shape(&problem.to_string(), text(input)),
    };
    let again = Cron::from_str(&expression.to_string());
    assert!(again.is_ok_and(|again| again == expression), "{expression} does not read back as itself");
    let zone = match Zone::from_str(lines.next().unwrap_or("UTC")) {
        Ok(zone) => zone,
        Err(problem) => return shape(&problem.to_string(), text(input)),
    };
    let mut at = Timestamp::from_millis(NOW * 1_000);
    for _ in 0..3 {
        let Some(next) = expression.next_after(&zone, at) else { return "never".to_owned() };
        assert!(next > at, "{expression} fires at {next}, which is not after {at}");
        let latest = expression.latest_at_or_before(&zone, at, next);
        assert_eq!(latest, Some(next), "{expression}: the latest of one fire is that fire");
        at = next;
    }
    format!("fires {}", (at.as_millis() / 1_000 - NOW).checked_ilog2().unwrap_or(0))
}

fn transcripts(input: &[u8]) -> String {
    let read = read_line(input);
    let way = match &read {
        Line::Blank => "blank".to_owned(),
        Line::Malformed => "malformed".to_owned(),
        Line::Entry(entry) => {
            let short =
                |text: &Option<String>, most: usize| text.as_ref().is_none_or(|t| t.chars().count() <= most);
            assert!(
                short(&entry.uuid, line::ID_CHARS_MAX) && short(&entry.session_id, line::ID_CHARS_MAX),
                "a long id"
            );
            assert!(short(&entry.cwd, line::PATH_CHARS_MAX), "a long path");
            format!("{:?} {:?}", entry.kind, entry.type_name.as_deref().map(str::len).map(|n| n.min(20)))
        }
    };
    thread_local! {
        static REDACTOR: Redactor = Redactor::new(&[]).expect("no patterns of our own");
    }
    let redacted = REDACTOR.with(|redactor| {
        let (once, count) = redactor.redact_counted(text(input));
        let again = redactor.redact(&once);
        assert_eq!(once, again, "what was redacted is redacted again");
        count
    });
    format!("{way} {}", redacted.min(5))
}

fn url(input: &[u8]) -> String {
    let guard = Guard::new(Allow::default());
    address(&guard, input);
    let written = text(input);
    match guard.admit(written) {
        Err(refused) => shape(&refused.to_string(), written),
        Ok(admitted) => {
            assert!(!admitted.listed && !admitted.is_loopback(), "{written} is let through");
            match admitted.url.host() {
                Some(url::Host::Ipv4(address)) => {
                    assert!(is_public(address.into()), "{address} is let through")
                }
                Some(url::Host::Ipv6(address)) => {
                    assert!(is_public(address.into()), "{address} is let through")
                }
                Some(url::Host::Domain(name)) => {
                    assert!(name.parse::<IpAddr>().is_err(), "{name} is an address")
                }
                None => panic!("{written} has no host and is let through"),
            }
            let again = guard.admit(admitted.url.as_str());
            assert!(
                again.is_ok_and(|again| again.url == admitted.url),
                "{} is not what was let through",
                admitted.url
            );
            format!("{} {:?}", admitted.url.scheme(), admitted.url.port().is_some())
        }
    }
}

/// The bytes as an address: what is let through is public, by the standard library's words as well.
fn address(guard: &Guard, input: &[u8]) {
    if let Ok(bytes) = <[u8; 4]>::try_from(input) {
        let address = IpAddr::from(bytes);
        assert!(guard.address(address).is_err() || is_public(address), "{address} is let through");
    }
    if let Ok(bytes) = <[u8; 16]>::try_from(input) {
        let address = IpAddr::from(bytes);
        assert!(verdict(address).is_err() || is_public(address), "{address} is let through");
    }
}

/// By other words than the guard's own.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            let shared = a == 100 && (64..128).contains(&b);
            let benchmark = a == 198 && (b == 18 || b == 19);
            !(v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_unspecified()
                || v4.is_broadcast())
                && !(v4.is_multicast() || v4.is_documentation() || a == 0 || a >= 240 || shared || benchmark)
        }
        IpAddr::V6(v6) => {
            let inner = v6.to_ipv4_mapped();
            let special = v6.is_loopback() || v6.is_unspecified() || v6.is_multicast();
            let local = v6.is_unique_local() || v6.is_unicast_link_local();
            !special && !local && inner.is_none_or(|v4| is_public(v4.into()))
        }
    }
}

fn lane_query(input: &[u8]) -> String {
    let written = text(input);
    // The filter of no key at all is none.
    if !written.is_empty() {
        fuzzing::lane_words(written);
    }
    fuzzing::lane_query(written).unwrap_or_else(|problem| shape(&problem, written))
}

/// Those that are too small for a corpus of their own.
fn small(input: &[u8]) -> String {
    let written = text(input);
    let mut way = String::new();
    if let Ok(run) = RunId::from_str(written) {
        assert_eq!(RunId::from_str(&run.to_string()), Ok(run), "a run id does not read back as itself");
        way += "run ";
    }
    if let Ok(rule) = Rule::parse(written) {
        assert_eq!(Rule::parse(&rule.to_string()), Ok(rule), "a rule does not read back as itself");
        way += "rule ";
    }
    if let Ok(payload) = Payload::from_json(input) {
        let again = Payload::from_json(payload.as_str().as_bytes()).expect("what was taken is taken again");
        assert_eq!(again.fingerprint(), payload.fingerprint(), "the same payload, another fingerprint");
        way += "payload ";
    }
    if StoreUrl::parse(written).is_ok() {
        way += "store ";
    }
    if Allow::parse([written]).is_ok() {
        way += "allowed ";
    }
    // How it begins is as much as its errors would tell.
    let begins: String = written.chars().take_while(char::is_ascii_alphabetic).take(8).collect();
    way += &begins;
    way
}
