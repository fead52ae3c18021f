//! Over real HTTP, against a server on a SQLite file.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use quell::Engine;
use quell::config::{Config, Flags, Settings, SettingsInput, SourceText};
use quell::deliveries::{DeliveryRecord, DeliveryVerdict};
use quell::webhook::Secret;
use quell_chat::inbound::schemes;
use quell_server::{Server, ServerOptions};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::support::NOW;
use crate::twilio::{FORM, TOKEN, sign};

const LONG: Duration = Duration::from_secs(60);
const PASSKEY: &str = "FuK@tTcKerZ-2o25";
/// In any of its spellings it has this in it.
const CANARY: &str = "tTcKerZ";
const APP_SECRET: &str = "canary-app-secret-of-meta";
const VERIFY: &str = "canary-verify-word";

const CONFIG: &str = r#"
[queues.chat]
window = "none"
handler = "pull"
[endpoints.wati]
scheme = "wati"
secret_env = "WATI"
path = "/webhook"
[endpoints.twilio]
scheme = "twilio"
secret_env = "TWILIO"
public_url = "https://bot.example.com/hooks/twilio"
flow = "sales"
[endpoints.meta]
scheme = "meta"
secret_env = "META"
verify_token_env = "VERIFY"
path = "/meta/webhook"
tenant = "acme"
"#;

struct World {
    address: SocketAddr,
    engine: Engine,
    client: Client,
    stop: CancellationToken,
    folder: TempDir,
}

struct Reply {
    status: StatusCode,
    media: String,
    text: String,
}

impl Reply {
    fn counts(&self) -> [u64; 3] {
        let told: Value = serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("{}", self.text));
        ["accepted", "duplicates", "ignored"].map(|name| told[name].as_u64().unwrap())
    }
}

impl World {
    async fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::parse(CONFIG, "quell.toml").unwrap();
        let store = format!("sqlite:{}", folder.path().join("quell.db").display());
        let flags = Flags { store: Some(store), ..Flags::default() };
        let env = [("WATI", PASSKEY), ("TWILIO", TOKEN), ("META", APP_SECRET), ("VERIFY", VERIFY)];
        let env: BTreeMap<String, String> =
            env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let source = SourceText::new("quell.toml", CONFIG);
        let input = SettingsInput { config: Some((config, source)), env: &env, flags };
        let settings = Settings::resolve_with(input, &schemes()).unwrap();
        let (endpoints, _) = quell::endpoints::ready(&settings, &env).unwrap();
        let engine = Engine::open(settings).await.unwrap();
        let options = ServerOptions { endpoints, ..ServerOptions::at("127.0.0.1:0") };
        let server = Server::bind(engine.clone(), options).await.unwrap();
        let (address, stop) = (server.address(), CancellationToken::new());
        tokio::spawn(server.run(stop.clone(), Duration::from_secs(5)));
        // Whoever sets it first, it is the same one: no test speaks TLS.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().timeout(LONG).build().unwrap();
        World { address, engine, client, stop, folder }
    }

    async fn send(
        &self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
        body: impl Into<String>,
    ) -> Reply {
        let url = format!("http://{}{target}", self.address);
        let mut request = self.client.request(method, url).body(body.into());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.unwrap();
        let media = response.headers().get("content-type").map(|value| value.to_str().unwrap().to_owned());
        let (status, media) = (response.status(), media.unwrap_or_default());
        Reply { status, media, text: response.text().await.unwrap() }
    }

    async fn post(&self, target: &str, headers: &[(&str, &str)], body: impl Into<String>) -> Reply {
        self.send(Method::POST, target, headers, body).await
    }

    async fn get(&self, target: &str) -> Reply {
        self.send(Method::GET, target, &[], "").await
    }

    /// As Meta signs it.
    async fn meta(&self, target: &str, body: &str) -> Reply {
        let scheme = schemes().get("meta").unwrap();
        let signed = scheme.sign(&Secret::new(APP_SECRET), "", NOW, body.as_bytes());
        self.post(target, &[(&signed[0].0, &signed[0].1)], body).await
    }

    /// All that waits now: tenant, key and the payloads of its events.
    async fn claimed(&self) -> Vec<(String, String, Vec<Value>)> {
        let wish = json!({ "queues": ["chat"], "worker": "w1", "max": 100, "wait_ms": 1000 });
        let reply = self.post("/v1/claims", &[("content-type", "application/json")], wish.to_string()).await;
        let told: Value = serde_json::from_str(&reply.text).unwrap();
        let mut found = Vec::new();
        for run in told["claims"].as_array().unwrap_or_else(|| panic!("{}", reply.text)) {
            let events = run["events"].as_array().unwrap();
            let payloads = events.iter().map(|event| event["payload"].clone()).collect();
            let text = |name: &str| run[name].as_str().unwrap_or_default().to_owned();
            found.push((text("tenant"), text("key"), payloads));
        }
        found.sort_by(|a, b| a.1.cmp(&b.1));
        found
    }

    async fn accepted(&self) -> u64 {
        self.engine.stats().await.unwrap().iter().map(|queue| queue.totals.accepted).sum()
    }

    /// All deliveries, as soon as there are so many.
    async fn deliveries(&self, many: usize) -> Vec<DeliveryRecord> {
        let looking = async {
            loop {
                let records = self.engine.deliveries().await.unwrap();
                if records.len() >= many {
                    return records;
                }
                quell::clock::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(LONG, looking).await.expect("all of them are remembered")
    }

    /// Everything that the interface shows of deliveries.
    async fn shown(&self) -> String {
        let list = self.get("/v1/deliveries").await.text;
        let rows: Value = serde_json::from_str(&list).unwrap();
        let mut shown = list;
        for row in rows["items"].as_array().unwrap() {
            shown.push_str(&self.get(&format!("/v1/deliveries/{}", row["id"].as_str().unwrap())).await.text);
        }
        shown
    }

    /// The bytes of all files of the store.
    fn files(&self) -> Vec<u8> {
        let files = std::fs::read_dir(self.folder.path()).unwrap();
        files.flat_map(|file| std::fs::read(file.unwrap().path()).unwrap_or_default()).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn is_in(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

fn older(customer: &str, text: &str) -> String {
    format!("{{\"waId\":\"{customer}\",\"text\":\"{text}\",\"passkey\":\"{PASSKEY}\"}}")
}

#[tokio::test]
async fn the_calls_of_the_older_system_work_at_its_own_path() {
    let world = World::new().await;
    let json = [("content-type", "application/json")];
    for number in 1..=3 {
        let reply = world.post("/webhook", &json, older("50376819621", &format!("Message {number}"))).await;
        assert_eq!((reply.status.as_u16(), reply.counts()), (200, [1, 0, 0]), "{}", reply.text);
    }
    // Without a word about its type, curl calls it a form.
    let form = [("content-type", FORM)];
    for number in 1..=4 {
        let reply = world.post("/webhook", &form, older(&format!("5037681962{number}"), "Test")).await;
        assert_eq!((reply.status.as_u16(), reply.counts()), (200, [1, 0, 0]), "{}", reply.text);
    }
    let claimed = world.claimed().await;
    let keys: Vec<&str> = claimed.iter().map(|(_, key, _)| key.as_str()).collect();
    assert_eq!(keys, ["wati:50376819621", "wati:50376819622", "wati:50376819623", "wati:50376819624"]);
    let texts: Vec<&Value> = claimed[0].2.iter().map(|payload| &payload["text"]).collect();
    assert_eq!(texts, ["Message 1", "Message 2", "Message 3", "Test"]);
    let payload = json!({ "channel": "wati", "customer": "50376819622", "type": "text", "text": "Test" });
    assert_eq!(claimed[1].2, [payload]);
}

#[tokio::test]
async fn the_passkey_is_nowhere_in_what_is_kept() {
    let world = World::new().await;
    let body = older("50376819621", "Message 1");
    let plain = "{\"waId\":\"50376819621\",\"text\":\"Hi\"}";
    let bearer = format!("Bearer {PASSKEY}");
    let both = [("authorization", bearer.as_str())];
    let escaped = body.replace('@', "\\u0040");
    let good = [
        ("/webhook", &[][..], body.as_str()),
        ("/hooks/wati", &[], &escaped),
        ("/hooks/wati", &both, plain),
        ("/webhook", &both, &body),
        ("/webhook?passkey=FuK@tTcKerZ-2o25", &[], plain),
        ("/hooks/wati?token=FuK%40tTcKerZ-2o25", &[], plain),
        ("/webhook/FuK@tTcKerZ-2o25", &[], plain),
        ("/webhook/FuK%40tTcKerZ-2o25?x=1", &[], plain),
        ("/hooks/wati/FuK%40tTcKerZ-2o25", &[], plain),
    ];
    let bad = [
        ("/webhook", &[][..], "{\"passkey\":\"FuK@tTcKerZ-2o26\",\"waId\":\"1\"}"),
        ("/webhook", &[], &body[..body.len() - 1]),
        ("/webhook", &[], "passkey=FuK@tTcKerZ-2o25&waId=1"),
        ("/webhook", &[("authorization", "tTcKerZ")], &body),
        ("/hooks/wati/tTcKerZ-is-wrong", &[], plain),
        // To the wrong place, or none at all.
        ("/hooks/nobody", &[], &body),
        ("/hooks/nobody", &[], &escaped),
        ("/hooks/nobody", &[], "{\"passkey\":\"FuK@tTcKerZ-2o26\",\"waId\":\"1\"}"),
        ("/hooks/nobody/FuK@tTcKerZ-2o25", &[], plain),
        ("/hooks/FuK@tTcKerZ-2o25", &[], plain),
        ("/hooks/FuK%40tTcKerZ-2o25", &[], plain),
        ("/hooks/twilio/FuK@tTcKerZ-2o25", &[], plain),
        ("/hooks/meta", &both, plain),
    ];
    for (target, headers, body) in good {
        let reply = world.post(target, headers, body).await;
        assert_eq!((reply.status.as_u16(), reply.counts()), (200, [1, 0, 0]), "{target}: {}", reply.text);
    }
    for (target, headers, body) in bad {
        let reply = world.post(target, headers, body).await;
        assert_eq!((reply.status.as_u16(), reply.text.as_str()), (401, ""), "{target}");
    }
    let records = world.deliveries(good.len() + bad.len()).await;
    let taken = records.iter().filter(|record| record.verdict == DeliveryVerdict::Accepted).count();
    assert_eq!((taken, records.len()), (good.len(), good.len() + bad.len()));
    let shown = world.shown().await;
    assert!(shown.contains("[redacted]") && !shown.contains(CANARY), "{shown}");
    let claimed = format!("{:?}", world.claimed().await);
    assert!(claimed.contains("Message 1") && !claimed.contains(CANARY), "{claimed}");
    let files = world.files();
    assert!(is_in(&files, "[redacted]") && is_in(&files, "50376819621"));
    assert!(!is_in(&files, CANARY), "it stands in a file of the store");
    assert!(!world.get("/metrics").await.text.contains(CANARY));
    let target = |record: &DeliveryRecord| record.target.clone();
    let targets: Vec<String> = records.iter().map(target).collect();
    assert!(targets.contains(&"/webhook/[redacted]?x=[redacted]".to_owned()), "{targets:?}");
}

#[tokio::test]
async fn what_was_taken_can_be_taken_in_again_without_its_passkey() {
    let world = World::new().await;
    world.post("/webhook", &[], older("50376819621", "Message 1")).await;
    let record = world.deliveries(1).await.remove(0);
    assert_eq!((record.endpoint.as_str(), record.scheme.as_str(), record.secret), ("wati", "wati", Some(1)));
    let again = world.post(&format!("/v1/deliveries/{}/replay", record.id), &[], "").await;
    assert_eq!(again.status, 200, "{}", again.text);
    assert!(again.text.contains("\"accepted\""), "{}", again.text);
    assert_eq!(world.accepted().await, 2);
}

#[tokio::test]
async fn strangers_are_refused_alike_and_other_paths_are_none() {
    let world = World::new().await;
    for target in
        ["/webhook", "/webhook/wrong", "/hooks/wati", "/hooks/wati/wrong", "/hooks/none", "/hooks/none/x"]
    {
        let reply = world.post(target, &[], "{\"waId\":\"1\",\"text\":\"Hi\"}").await;
        assert_eq!((reply.status.as_u16(), reply.text.as_str()), (401, ""), "{target}");
        let asked = world.get(target).await;
        assert_eq!((asked.status.as_u16(), asked.text.as_str()), (401, ""), "{target}");
    }
    // Only where a token may stand is there one more segment.
    for target in
        ["/webhooks", "/webhook/", "/webhook/a/b", "/Webhook", "/meta", "/meta/webhook/x", "/hooks/a/b/c"]
    {
        let reply = world.post(target, &[], older("1", "Hi")).await;
        assert_eq!(
            (reply.status.as_u16(), reply.media.as_str()),
            (404, "application/problem+json"),
            "{target}"
        );
    }
    // A webhook comes by any name; the rest of a server on loopback does not.
    let elsewhere = [("host", "bot.example.com")];
    assert_eq!(world.post("/webhook", &elsewhere, older("1", "Hi")).await.status, 200);
    let bearer = format!("/webhook/{PASSKEY}");
    let plain = "{\"waId\":\"1\",\"text\":\"Hi\"}";
    assert_eq!(world.post(&bearer, &elsewhere, plain).await.status, 200);
    assert_eq!(world.post("/other", &elsewhere, older("1", "Hi")).await.status, 421);
    assert_eq!(world.accepted().await, 2);
}

#[tokio::test]
async fn meta_is_answered_what_it_asks_with_the_right_word_alone() {
    let world = World::new().await;
    for path in ["/hooks/meta", "/meta/webhook"] {
        let ask = |word: &str| {
            format!("{path}?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token={word}")
        };
        let right = world.get(&ask(VERIFY)).await;
        assert_eq!((right.status.as_u16(), right.text.as_str()), (200, "1158201444"));
        assert_eq!(right.media, "text/plain; charset=utf-8");
        let wrong = world.get(&ask("nope")).await;
        assert_eq!((wrong.status.as_u16(), wrong.text.as_str()), (403, ""));
        let other = world.get(path).await;
        assert_eq!((other.status.as_u16(), other.text.as_str()), (401, ""), "no question at all");
    }
    let nobody = "/hooks/nobody?hub.mode=subscribe&hub.challenge=1&hub.verify_token=nope";
    assert_eq!(world.get(nobody).await.status, 401);
    let records = world.deliveries(7).await;
    let refused = records.iter().find(|record| record.reason.as_deref() == Some("bad_verify_token")).unwrap();
    assert_eq!((refused.status, refused.proven), (403, false));
    assert!(!world.shown().await.contains("canary") && !is_in(&world.files(), "canary"));
}

fn fixture(name: &str) -> String {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

#[tokio::test]
async fn a_batch_becomes_the_events_of_its_customers_once() {
    let world = World::new().await;
    let batch = fixture("meta/batch_two_customers.json");
    let first = world.meta("/meta/webhook", &batch).await;
    assert_eq!((first.status.as_u16(), first.counts()), (200, [3, 0, 0]), "{}", first.text);
    let again = world.meta("/hooks/meta", &batch).await;
    assert_eq!((again.status.as_u16(), again.counts()), (200, [0, 3, 0]), "{}", again.text);
    let read = world.meta("/hooks/meta", &fixture("meta/status_delivered.json")).await;
    assert_eq!(read.counts(), [0, 0, 1]);
    let claimed = world.claimed().await;
    let lanes: Vec<(&str, &str, usize)> =
        claimed.iter().map(|(tenant, key, events)| (tenant.as_str(), key.as_str(), events.len())).collect();
    let wanted = [("acme", "meta:US.14711661483930008702", 1), ("acme", "meta:US.2631558307865492265", 2)];
    assert_eq!(lanes, wanted);
    assert_eq!(claimed[1].2[0]["text"], "Hi, do you buy silver coins? #1");
    assert_eq!(claimed[1].2[1]["text"], "I have about twenty of them #2");
    assert_eq!(claimed[1].2[0]["name"], "Ana Souza");
    let tampered = world.post("/meta/webhook", &[("x-hub-signature-256", "sha256=00")], batch).await;
    assert_eq!((tampered.status.as_u16(), tampered.text.as_str()), (401, ""));
    assert_eq!(world.accepted().await, 3);
}

#[tokio::test]
async fn our_own_words_and_receipts_are_recorded_and_never_answered() {
    let world = World::new().await;
    let bearer = format!("Bearer {PASSKEY}");
    let headers = [("authorization", bearer.as_str())];
    for (name, why) in [
        ("wati/own_message_echo.json", "own_message"),
        ("wati/new_contact.json", "no_message"),
        ("wati/status_delivered.json", "status delivered"),
    ] {
        let reply = world.post("/hooks/wati", &headers, fixture(name)).await;
        assert_eq!((reply.status.as_u16(), reply.counts()), (200, [0, 0, 1]), "{name}: {}", reply.text);
        let found = async || {
            let records = world.engine.deliveries().await.unwrap();
            records
                .into_iter()
                .any(|one| one.verdict == DeliveryVerdict::Ignored && one.detail.as_deref() == Some(why))
        };
        let looking = async {
            while !found().await {
                quell::clock::sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(tokio::time::timeout(LONG, looking).await.is_ok(), "{why} is not recorded");
    }
    let text = fixture("wati/text.json");
    assert_eq!(world.post("/hooks/wati", &headers, text.clone()).await.counts(), [1, 0, 0]);
    assert_eq!(world.post("/webhook", &headers, text).await.counts(), [0, 1, 0]);
    assert_eq!(world.accepted().await, 1);
}

#[tokio::test]
async fn twilio_is_answered_with_an_empty_document_whatever_it_sends() {
    let world = World::new().await;
    let url = "https://bot.example.com/hooks/twilio";
    let message = ("From=%2B12025550110&Body=Hi&MessageSid=SM1", "BodyHiFrom+12025550110MessageSidSM1");
    let status = ("MessageSid=SM2&MessageStatus=read", "MessageSidSM2MessageStatusread");
    for (body, signed) in [message, message, status] {
        let signature = sign(&format!("{url}?a=b%20c{signed}"));
        let headers = [("content-type", FORM), ("x-twilio-signature", signature.as_str())];
        let reply = world.post("/hooks/twilio?a=b%20c", &headers, body).await;
        assert_eq!((reply.status.as_u16(), reply.text.as_str()), (200, "<Response/>"));
        assert_eq!(reply.media, "text/xml");
        let elsewhere = world.post("/hooks/twilio?a=b", &headers, body).await;
        assert_eq!((elsewhere.status.as_u16(), elsewhere.text.as_str()), (401, ""));
    }
    let claimed = world.claimed().await;
    assert_eq!(claimed.len(), 1);
    assert_eq!((claimed[0].1.as_str(), claimed[0].2.len()), ("twilio:12025550110:sales", 1));
    assert_eq!(claimed[0].2[0]["flow"], "sales");
}
