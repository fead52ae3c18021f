//! Webhooks that prove themselves: what is taken, what is wrong with them all the same, and schemes of an application.

use std::sync::Arc;

use quell::Engine;
use quell::deliveries::DeliveryVerdict;
use quell::webhook::{
    Because, Check, Content, Delivery, Found, Handshake, Item, Reading, Refusal, Rules, Scheme, Schemes,
    Secret,
};
use quell_server::{ServeError, Server, ServerOptions};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};

use crate::senders::*;
use crate::support::{CONFIG, LONG, Reply, World, ready, settings, until};

/// Beside [`HOOKS`]: endpoints of GitHub's scheme with rules of their own.
const RULES: &str = r#"
[queues.small]
window = "none"
handler = "pull"
max_payload = "1KiB"
max_lane_events = 3
[queues.deep]
window = "none"
handler = "pull"
max_waiting = 3
[endpoints.small]
scheme = "github"
secret_env = "GITHUB"
queue = "small"
key = "/key"
[endpoints.deep]
scheme = "github"
secret_env = "GITHUB"
queue = "deep"
key = "/key"
[endpoints.quiet]
scheme = "github"
secret_env = "GITHUB"
queue = "jobs"
key = "/key"
unkeyed = "ignore"
[endpoints.part]
scheme = "github"
secret_env = "GITHUB"
queue = "jobs"
key = "/key"
id = "/id"
payload = "/data/0"
[endpoints.routed]
scheme = "github"
secret_env = "GITHUB"
queue = "jobs"
key = ["/shop/id", "header:X-Shop", "text:everyone"]
id = "header:X-Message"
tenant = "acme"
headers = ["X-Kind", "X-Shop", "X-Long", "X-None"]
"#;

const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");

/// A delivery with GitHub's signature, and more fields.
async fn send(world: &World, to: &str, more: &[(&str, &str)], body: impl AsRef<[u8]>) -> Answered {
    let all = [github(GITHUB, &body), fields(more)].concat();
    world.deliver(to, &all, body).await
}

/// Where to, more fields, the body, the status, the reason.
type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], Vec<u8>, u16, &'a str);

#[tokio::test]
async fn what_is_proven_and_no_good_is_told_why_and_nothing_of_it_is_stored() {
    let world = hooked(RULES).await;
    let key = |key: &str| format!("{{\"key\":\"{key}\"}}");
    let long = [("X-GitHub-Delivery", "i".repeat(257))];
    let long: Vec<(&str, &str)> = long.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let deep = format!("{{\"key\":\"k\",\"x\":{}{}}}", "[".repeat(130), "]".repeat(130));
    let large = format!("{{\"key\":\"k\",\"x\":\"{}\"}}", "x".repeat(1024));
    let fields = (0..300).map(|n| format!("f{n}=1")).collect::<Vec<_>>().join("&");
    let form = [FORM];
    let cases: Vec<Case<'_>> = vec![
        ("github", &[], b"{\"key\":".to_vec(), 422, "unreadable"),
        ("github", &[], b"key=k".to_vec(), 422, "unreadable"),
        ("github", &[], b"".to_vec(), 422, "unreadable"),
        ("github", &[], b"\xff\xfe{}".to_vec(), 422, "unreadable"),
        ("github", &[], "\u{feff}{\"key\":\"k\"}".into(), 422, "unreadable"),
        ("github", &[], b"{\"key\":\"k\"} {}".to_vec(), 422, "unreadable"),
        ("github", &[], b"{\"key\":\"k\",\"x\":1e999}".to_vec(), 422, "unreadable"),
        ("github", &[], b"{\"key\":\"\\ud800\"}".to_vec(), 422, "unreadable"),
        ("github", &[], deep.into(), 422, "unreadable"),
        ("github", &form, fields.into(), 422, "unreadable"),
        ("github", &[], b"{}".to_vec(), 422, "no_key"),
        ("github", &[], b"[]".to_vec(), 422, "no_key"),
        ("github", &[], key("").into(), 422, "no_key"),
        ("github", &[], b"{\"key\":null}".to_vec(), 422, "no_key"),
        ("github", &[], b"{\"key\":{\"a\":1}}".to_vec(), 422, "no_key"),
        // As many other numbers are read as the same one, it names nothing.
        ("github", &[], b"{\"key\":18446744073709551617}".to_vec(), 422, "no_key"),
        ("github", &[], key(&"k".repeat(513)).into(), 422, "unusable"),
        ("github", &[], key("a\\u0000b").into(), 422, "unusable"),
        ("github", &long, key("k").into(), 422, "unusable"),
        ("part", &[], b"{\"key\":\"k\",\"data\":[]}".to_vec(), 422, "unusable"),
        ("small", &[], large.into(), 413, "too-large"),
    ];
    let mut answers = Vec::new();
    for (n, (to, more, body, ..)) in cases.iter().enumerate() {
        answers.push(send(&world, to, &[*more, &[("x-case", &n.to_string())]].concat(), body).await);
    }
    for (n, (answer, (_, _, body, status, reason))) in answers.iter().zip(&cases).enumerate() {
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        assert_eq!(answer.status, *status, "{shown}: {}", answer.body);
        assert!(answer.has("content-type: application/problem+json"), "{shown}: {:?}", answer.head);
        let number = ("x-case".to_owned(), n.to_string());
        let record = world.recorded(&shown, |record| record.headers.contains(&number)).await;
        assert_eq!((record.verdict, record.status), (DeliveryVerdict::Refused, *status), "{shown}");
        assert_eq!((record.reason.as_deref(), record.body_bytes), (Some(*reason), body.len()), "{shown}");
        assert!(record.proven, "{shown}");
        let detail = answer.json()["detail"].as_str().expect("a text").to_owned();
        assert_eq!(record.detail, Some(detail), "{shown}");
    }
    assert_eq!(world.accepted().await, 0);
    world.verify().await;
}

#[tokio::test]
async fn without_a_key_it_may_be_ignored() {
    let world = hooked(RULES).await;
    let answer = send(&world, "quiet", &[], "{\"zen\":\"Keep it logically awesome.\"}").await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!((&answer.json()["accepted"], &answer.json()["ignored"]), (&json!(0), &json!(1)));
    let record = world.recorded("it is ignored", |record| record.verdict == DeliveryVerdict::Ignored).await;
    assert!(record.proven && record.detail.is_some_and(|detail| detail.contains("no key at /key")));
    assert_eq!(world.accepted().await, 0);
    assert_eq!(send(&world, "quiet", &[], "{").await.status, 422, "what cannot be read is not ignored");
    assert_eq!(send(&world, "quiet", &[], "{\"key\":1}").await.status, 200);
    assert_eq!(world.accepted().await, 1);
}

#[tokio::test]
async fn a_full_lane_and_a_full_queue_say_when_to_come_again_to_those_who_are_known() {
    let world = hooked(RULES).await;
    for n in 0..3 {
        assert_eq!(send(&world, "small", &[], format!("{{\"key\":\"k\",\"n\":{n}}}")).await.status, 200);
    }
    let full = send(&world, "small", &[], "{\"key\":\"k\"}").await;
    assert_eq!(full.status, 429, "{}", full.body);
    assert!(full.has("retry-after: 1"), "{:?}", full.head);
    let code = full.json()["code"].as_str().expect("a code").to_owned();
    assert!(world.refusal("small", &code).await.proven);
    assert_eq!(send(&world, "small", &[], "{\"key\":\"another\"}").await.status, 200);
    assert_eq!(world.accepted().await, 4);

    let mut stored = 0;
    let full = loop {
        let answer = send(&world, "deep", &[], format!("{{\"key\":\"k{stored}\"}}")).await;
        if answer.status != 200 {
            break answer;
        }
        stored += 1;
        assert!(stored < 100_000, "the door stays open");
    };
    assert_eq!((full.status, &full.json()["code"]), (429, &json!("queue-full")), "{}", full.body);
    assert!(stored >= 3 && full.has("retry-after: 1"), "{:?}", full.head);
    let record = world.refusal("deep", "queue-full").await;
    assert!(record.proven && record.status == 429);
    // A stranger does not learn that it is full, nor that there is such an endpoint.
    let (stranger, nobody) = (github("not the secret", "{}"), github(GITHUB, "{}"));
    let here = world.deliver("deep", &stranger, "{}").await;
    let there = world.deliver("nowhere", &nobody, "{}").await;
    assert_eq!((here.status, &here.head, here.body.as_str()), (401, &there.head, ""));
    assert_eq!(world.accepted().await, 4 + stored);
    world.verify().await;
}

#[tokio::test]
async fn how_much_is_read_tells_nothing_of_an_endpoint() {
    let wide = "[queues.wide]\nwindow = \"none\"\nhandler = \"pull\"\nmax_payload = \"4MiB\"\n\
                [endpoints.wide]\nscheme = \"github\"\nsecret_env = \"GITHUB\"\nqueue = \"wide\"\nkey = \"/key\"\n";
    let world = hooked(wide).await;
    let body = |bytes: usize| format!("{{\"key\":\"k\",\"x\":\"{}\"}}", "x".repeat(bytes - 16));
    let (more, most) = (body(2 * 1024 * 1024), body(4 * 1024 * 1024 + 1));
    for to in ["wide", "github", "nowhere"] {
        assert_eq!(world.deliver(to, &github("not the secret", &more), &more).await.status, 401, "{to}");
        assert_eq!(world.deliver(to, &github(GITHUB, &most), &most).await.status, 413, "{to}");
    }
    assert_eq!(send(&world, "github", &[], &more).await.status, 413, "its queue takes less");
    assert_eq!(world.accepted().await, 0);
    assert_eq!(send(&world, "wide", &[], &more).await.status, 200);
    assert_eq!(world.accepted().await, 1);
}

#[tokio::test]
async fn the_same_delivery_again_is_one_event_and_one_run() {
    let world = hooked("").await;
    let body = "{\"key\":\"k\",\"n\":1}";
    let counts = |answer: &Answered| {
        assert_eq!(answer.status, 200, "{}", answer.body);
        let told = answer.json();
        ["accepted", "duplicates", "ignored"].map(|name| told[name].as_u64().expect("a number"))
    };
    let first = world.deliver_github("d1", body).await;
    assert_eq!(counts(&first), [1, 0, 0]);
    assert_eq!(counts(&world.deliver_github("d1", body).await), [0, 1, 0]);
    let runs = world.claim("jobs", 10).await;
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0]["events"].as_array().map(Vec::len), Some(1));
    assert_eq!(runs[0]["events"][0]["id"], "d1");
    assert_eq!(counts(&world.deliver_github("d1", body).await), [0, 1, 0]);
    let settled = world.settle(&runs[0], json!({ "outcome": "succeeded" })).await;
    assert_eq!(settled.status, 200, "{}", settled.text);
    assert_eq!(counts(&world.deliver_github("d1", body).await), [0, 1, 0]);
    assert!(world.claim_now("jobs").await.is_empty());
    assert_eq!(world.accepted().await, 1);
    let id = first.json()["delivery"].as_str().expect("an id").to_owned();
    let record = world.recorded("the first", |record| record.id == id).await;
    assert_eq!((record.verdict, record.secret), (DeliveryVerdict::Accepted, Some(1)));
    let again = world.recorded("a second", |record| record.verdict == DeliveryVerdict::Duplicate).await;
    assert_eq!(again.events[0].event_id, record.events[0].event_id);
    assert!(again.events[0].duplicate && !again.events[0].differs);
    world.verify().await;
}

/// The value of a counter without labels, or of all of this name together.
fn counter(metrics: &str, name: &str) -> f64 {
    let lines = metrics.lines().filter(|line| line.starts_with(name));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

#[tokio::test]
async fn a_known_id_with_another_body_is_a_duplicate_and_the_first_stays() {
    let world = hooked("").await;
    let before = world.get("/metrics").await.text;
    assert_eq!(world.deliver_github("d1", "{\"key\":\"k\",\"n\":1}").await.json()["accepted"], 1);
    let other = world.deliver_github("d1", "{\"key\":\"k\",\"n\":2}").await;
    assert_eq!((other.status, &other.json()["duplicates"]), (200, &json!(1)), "{}", other.body);
    let run = world.claim("jobs", 1).await.remove(0);
    assert_eq!(run["events"].as_array().map(Vec::len), Some(1));
    assert_eq!(run["events"][0]["payload"]["n"], 1);
    let record = world.recorded("the second", |record| record.verdict == DeliveryVerdict::Duplicate).await;
    assert!(record.events[0].differs, "{record:?}");
    let after = world.get("/metrics").await.text;
    let grown = |name: &str| counter(&after, name) - counter(&before, name);
    assert!(grown("quell_hook_conflicts_total") >= 1.0);
    assert!(grown("quell_hooks_total{endpoint=\"github\"") >= 2.0);
    assert!(grown("quell_hook_secrets_total{endpoint=\"github\",secret=\"1\"}") >= 2.0);
    assert_eq!(world.accepted().await, 1);
    world.verify().await;
}

#[tokio::test]
async fn which_secret_it_was_is_known_to_the_operator() {
    let world = hooked("").await;
    for (number, secret) in [(1, GITHUB), (2, GITHUB_OLD)] {
        let body = format!("{{\"key\":\"k\",\"n\":{number}}}");
        assert_eq!(world.deliver("github", &github(secret, &body), &body).await.status, 200);
        world.recorded("the secret", |record| record.secret == Some(number)).await;
    }
}

#[tokio::test]
async fn slack_is_answered_what_it_asks_for_and_otherwise_nothing() {
    let world = hooked("").await;
    let longest = "c".repeat(128);
    for challenge in ["3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P", "a-_.=+/Z9", &longest] {
        let body = json!({ "type": "url_verification", "challenge": challenge, "token": "x" }).to_string();
        let answer = world.deliver("slack", &slack(&body), &body).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, challenge));
        assert!(answer.has("content-type: text/plain; charset=utf-8"), "{:?}", answer.head);
        assert!(answer.has("x-content-type-options: nosniff"), "{:?}", answer.head);
    }
    let long = "c".repeat(129);
    for hostile in ["<script>alert(1)</script>", "a b", "a\r\nX: y", "", "\u{e4}", &long] {
        let body = json!({ "type": "url_verification", "challenge": hostile }).to_string();
        let answer = world.deliver("slack", &slack(&body), &body).await;
        assert_eq!(answer.status, 422, "{hostile}: {}", answer.body);
        assert!(hostile.is_empty() || !answer.body.contains(hostile), "{}", answer.body);
    }
    assert!(world.refusal("slack", "unusable").await.proven);
    let asked = world.recorded("a question", |record| record.verdict == DeliveryVerdict::Ignored).await;
    assert!(asked.proven && asked.events.is_empty());
    assert_eq!(world.accepted().await, 0);

    let body = "{\"key\":\"k\",\"event_id\":\"Ev1\"}";
    for _ in 0..2 {
        let answer = world.deliver("slack", &slack(body), body).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, ""));
        assert!(answer.has("content-length: 0"), "{:?}", answer.head);
    }
    // A slash command: a form, signed the same way.
    let form = "key=k&command=%2Fweather&text=94070";
    let all = [slack(form), fields(&[FORM])].concat();
    assert_eq!(world.deliver("slack", &all, form).await.status, 200);
    let events = world.claim("jobs", 1).await.remove(0)["events"].clone();
    assert_eq!((&events[0]["id"], events.as_array().map(Vec::len)), (&json!("Ev1"), Some(2)));
    assert_eq!(events[1]["payload"], json!({ "key": "k", "command": "/weather", "text": "94070" }));
}

/// The only event of the next run of this queue, and the run.
async fn next(world: &World) -> (Value, Value) {
    let mut runs = world.claim("jobs", 1).await;
    assert_eq!(runs.len(), 1);
    let run = runs.remove(0);
    assert_eq!(run["events"].as_array().map(Vec::len), Some(1), "{run}");
    world.settle(&run, json!({ "outcome": "succeeded" })).await;
    (run["events"][0].clone(), run)
}

#[tokio::test]
async fn key_id_tenant_payload_and_headers_come_from_where_the_endpoint_says() {
    let world = hooked(RULES).await;
    let long = "l".repeat(513);
    let more =
        [("X-Message", "m1"), ("X-Kind", "order"), ("X-Shop", "s7"), ("X-Long", &long), ("Cookie", "c")];
    let answer = send(&world, "routed", &more, "{\"shop\":{\"id\":42}}").await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let (event, run) = next(&world).await;
    assert_eq!((&run["key"], &run["tenant"]), (&json!("42"), &json!("acme")));
    assert_eq!(event["id"], "m1");
    assert_eq!(event["headers"], json!({ "x-kind": "order", "x-shop": "s7" }), "only those that are named");
    send(&world, "routed", &[("X-Shop", "s7")], "{\"shop\":{}}").await;
    assert_eq!(next(&world).await.1["key"], "s7");
    send(&world, "routed", &[], "{}").await;
    let (event, run) = next(&world).await;
    assert_eq!((&run["key"], &event["headers"]), (&json!("everyone"), &Value::Null));
    assert!(event["id"].as_str().is_some_and(|id| id.starts_with("evt_")), "{event}");

    send(&world, "part", &[], "{\"key\":true,\"id\":7,\"data\":[{\"b\":[1,null],\"a\":\"\u{1f40c}\"}]}")
        .await;
    let (event, run) = next(&world).await;
    assert_eq!((&run["key"], &event["id"]), (&json!("true"), &json!("7")));
    assert_eq!(event["payload"], json!({ "b": [1, null], "a": "\u{1f40c}" }));

    send(&world, "github", &[("X-GitHub-Event", "push")], "{\"key\":\"k\"}").await;
    assert_eq!(next(&world).await.0["headers"], json!({ "x-github-event": "push" }), "usual for GitHub");
    let form = "payload=%7B%22key%22%3A%22k%22%2C%22zen%22%3A%22a+b%22%7D";
    assert_eq!(send(&world, "github", &[FORM], form).await.status, 200);
    assert_eq!(next(&world).await.0["payload"], json!({ "key": "k", "zen": "a b" }));
    world.verify().await;
}

#[tokio::test]
async fn the_bytes_of_a_payload_are_kept_as_they_came() {
    let world = hooked("").await;
    let body = "{ \"z\" : 1.0, \"key\":\"k\",\"a\":\"\\u00fc\", \"large\":123456789012345678901234567890,\t\"e\":1E2 }";
    let sent = format!("\n{body}\r\n");
    assert_eq!(world.deliver_github("d1", &sent).await.status, 200);
    let claim = json!({ "queues": ["jobs"], "worker": "w1", "max": 1, "wait_ms": 1000 });
    let text = world.post("/v1/claims", claim).await.text;
    assert!(text.contains(&format!("\"payload\":{body}")), "{text}");
}

#[tokio::test]
async fn webhooks_speak_http_1_and_the_rest_of_the_server_both() {
    let world = hooked("").await;
    let client =
        Client::builder().no_proxy().http2_prior_knowledge().timeout(LONG).build().expect("a client");
    let body = "{\"key\":\"k\"}";
    for to in ["github", "nowhere"] {
        let signature = value(&github(GITHUB, body));
        let request = client.post(world.url(&format!("/hooks/{to}")));
        let reply = Reply::of(request.header("x-hub-signature-256", signature).body(body)).await;
        assert_eq!((reply.status.as_u16(), reply.problem().as_str()), (505, "http-version"), "{to}");
    }
    assert_eq!(world.accepted().await, 0);
    let event = json!({ "key": "k", "payload": 1 });
    let taken = client.post(world.url("/v1/queues/jobs/events")).json(&event).send().await;
    assert_eq!(taken.expect("it is answered").status(), StatusCode::ACCEPTED);
    assert_eq!(world.deliver_github("d1", body).await.status, 200);
}

fn value(fields: &Fields) -> String {
    fields[0].1.clone()
}

#[tokio::test]
async fn an_endpoint_without_a_proof_is_not_open_to_other_machines_unless_this_is_said() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let open = "[endpoints.open]\nscheme = \"none\"\nqueue = \"jobs\"\nkey = \"text:k\"\n";
    for (allowed, config) in [(false, open.to_owned()), (true, format!("{open}allow_unsigned = true\n"))] {
        let settings = settings(&format!("{CONFIG}{config}"), &folder);
        let endpoints = ready(&settings, &[]);
        let engine = Engine::open(settings).await.expect("the store opens");
        let options =
            |listen: &str| ServerOptions { endpoints: endpoints.clone(), ..ServerOptions::at(listen) };
        assert!(Server::bind(engine.clone(), options("127.0.0.1:0")).await.is_ok());
        let wish = quell::TokenWish {
            name: format!("any {allowed}"),
            scopes: [quell::tokens::Scope::Read].into(),
            tenants: Default::default(),
            queues: Default::default(),
            expires_in: None,
        };
        engine.make_token(wish, "test").await.expect("a token can be made");
        let public = options("0.0.0.0:0");
        let admin = ServerOptions { admin_listen: Some("0.0.0.0:0".to_owned()), ..options("127.0.0.1:0") };
        for options in [public, admin] {
            match Server::bind(engine.clone(), options).await {
                Err(ServeError::Unsigned { endpoint, .. }) => {
                    assert_eq!((endpoint.as_str(), allowed), ("open", false))
                }
                Err(error) => panic!("{error}"),
                Ok(_) => assert!(allowed, "it starts and everybody may send anything"),
            }
        }
    }
}

/// A provider that an application knows: several messages in one delivery, its own among them, and a question by GET.
#[derive(Debug)]
struct Duo;

impl Scheme for Duo {
    fn name(&self) -> &'static str {
        "duo"
    }

    fn verify(&self, delivery: &Delivery<'_>, check: &Check<'_>) -> Result<usize, Refusal> {
        let given = delivery.header("x-duo", Because::MissingSignature)?;
        let sign = |secret: &Secret| hex(&mac(secret.bytes(), &[delivery.body])).into_bytes();
        check.any(&[given.as_bytes().to_vec()], sign)
    }

    fn greet(&self, delivery: &Delivery<'_>, check: &Check<'_>) -> Option<Result<Handshake, Refusal>> {
        let (_, query) = delivery.target.split_once('?').filter(|_| *delivery.method == Method::GET)?;
        let of = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        let known = check.secrets.iter().any(|secret| secret.is(of("word").unwrap_or_default().as_bytes()));
        let answer = of("challenge").unwrap_or_default().to_owned();
        let refusal = Refusal::new(Because::BadSignature, "the word is none of ours");
        Some(if known { Ok(Handshake { answer }) } else { Err(refusal) })
    }

    fn read(&self, delivery: &Delivery<'_>, _: &Rules) -> Result<Reading, Refusal> {
        let content = Content::of(delivery)?;
        let messages = content.value().as_array().cloned().unwrap_or_default();
        let text = |message: &Value, name: &str| message[name].as_str().unwrap_or_default().to_owned();
        let item = |message: &Value| match text(message, "from").as_str() {
            "us" => Item::Ignored("it is our own".to_owned()),
            from => Item::Event(Found {
                key: from.to_owned(),
                id: Some(text(message, "id")),
                payload: message.to_string(),
                headers: Vec::new(),
            }),
        };
        Ok(Reading::Items(messages.iter().map(item).collect()))
    }
}

const DUO: &str = "[queues.jobs]\nwindow = \"none\"\nhandler = \"pull\"\n\
                   [endpoints.duo]\nscheme = \"duo\"\nsecret_env = \"DUO\"\nqueue = \"jobs\"\nkey = \"/from\"\n";

#[tokio::test]
async fn a_scheme_of_an_application_finds_several_events_and_answers_a_question() {
    let mut schemes = Schemes::built_in();
    schemes.add(Arc::new(Duo));
    let world = World::hooked_by(DUO, &[("DUO", WORD)], &schemes).await;
    let ask =
        async |target: &str| Answered::of(&world.send_raw(&bytes_of("GET", target, &fields(&[]), b"")).await);
    let asked = ask(&format!("/hooks/duo?word={WORD}&challenge=abc")).await;
    assert_eq!((asked.status, asked.body.as_str()), (200, "abc"));
    assert!(
        asked.has("content-type: text/plain; charset=utf-8") && asked.has("x-content-type-options: nosniff")
    );
    let (wrong, nobody) =
        (ask("/hooks/duo?word=wrong&challenge=abc").await, ask("/hooks/nobody?word=wrong").await);
    assert_eq!((wrong.status, &wrong.head, wrong.body.as_str()), (401, &nobody.head, ""));
    assert_eq!(ask("/hooks/duo").await.status, 401, "it asks nothing, and is no POST");

    let deliver = async |messages: &[(&str, &str, u64)]| {
        let body: Vec<Value> =
            messages.iter().map(|(from, id, n)| json!({ "from": from, "id": id, "n": n })).collect();
        let body = json!(body).to_string();
        let signature = hex(&mac(WORD, &[body.as_bytes()]));
        let answer = world.deliver("duo", &fields(&[("X-Duo", &signature)]), &body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let told = answer.json();
        ["accepted", "duplicates", "ignored"].map(|name| told[name].as_u64().expect("a number"))
    };
    assert_eq!(deliver(&[("ada", "1", 1), ("us", "2", 2), ("bob", "3", 3)]).await, [2, 0, 1]);
    let mut keys: Vec<Value> = world.claim("jobs", 10).await.iter().map(|run| run["key"].clone()).collect();
    keys.sort_by_key(ToString::to_string);
    assert_eq!(keys, ["ada", "bob"]);
    let record = world.recorded("both", |record| record.events.len() == 2).await;
    assert_eq!(
        (record.verdict, record.detail.as_deref()),
        (DeliveryVerdict::Accepted, Some("it is our own"))
    );

    // Sent again, with one that is new; then with one that says something else.
    assert_eq!(deliver(&[("ada", "1", 1), ("us", "2", 2), ("bob", "3", 3)]).await, [0, 2, 1]);
    assert_eq!(deliver(&[("ada", "1", 1), ("ada", "4", 4)]).await, [1, 1, 0]);
    assert_eq!(deliver(&[("bob", "5", 5), ("ada", "1", 99), ("us", "6", 6)]).await, [1, 1, 1]);
    let differs =
        world.recorded("one differs", |record| record.events.iter().any(|event| event.differs)).await;
    assert_eq!(differs.verdict, DeliveryVerdict::Accepted);
    assert_eq!(deliver(&[("us", "7", 7)]).await, [0, 0, 1]);
    assert_eq!(deliver(&[]).await, [0, 0, 0]);
    assert_eq!(world.accepted().await, 4);
    until("all are remembered", async || {
        let records = world.engine.deliveries().await.expect("they are listed");
        records.len() == 10
    })
    .await;
    world.verify().await;
}
