//! Every secret that a configuration can name is a canary here, and none of them may be seen anywhere: not in a log of any level,
//! a metric, a trace, an answer, a page, the audit trail, the store, what handlers are told, or the list of processes.
//!
//! The server is brought into trouble on purpose, because errors are where secrets get out: handlers that cannot be reached,
//! programs that print all they know, providers that refuse, senders that are wrong.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quell_chat::local::{LocalModel, LocalProviders, Script};
use quell_collectors::local::{Catalogue, LocalMarket};

use crate::support::{Folder, PATIENCE, http, until};
use crate::telemetry::ear::Ear;

/// As many as `docs/reliability.md` says.
const AT_LEAST: usize = 50;

/// The secrets, each with the form in which it is written down.
#[derive(Default)]
struct Canaries {
    words: RefCell<Vec<String>>,
    variables: RefCell<BTreeMap<String, String>>,
}

impl Canaries {
    /// A new one. Long enough for every kind of secret, and found whatever stands around it.
    fn word(&self) -> String {
        let mut words = self.words.borrow_mut();
        let word = format!("canary{:03}sings-0123456789ab", words.len());
        words.push(word.clone());
        word
    }

    /// As Standard Webhooks wants it.
    fn signing(&self) -> String {
        format!("whsec_{}", STANDARD.encode(self.word()))
    }

    /// In a variable of the server, whose name is returned.
    fn variable(&self, name: &str, value: String) -> String {
        self.variables.borrow_mut().insert(name.to_owned(), value);
        name.to_owned()
    }

    fn env(&self, name: &str) -> String {
        let word = self.word();
        self.variable(name, word)
    }

    fn env_signing(&self, name: &str) -> String {
        let secret = self.signing();
        self.variable(name, secret)
    }

    /// Those that are in a text, in any of the forms that programs give them.
    fn seen_in(&self, text: &[u8]) -> Vec<String> {
        let text = String::from_utf8_lossy(text);
        let found = |word: &&String| {
            let hex: String = word.bytes().map(|byte| format!("{byte:02x}")).collect();
            text.contains(word.as_str())
                || text.contains(STANDARD.encode(word).as_str())
                || text.contains(&hex)
        };
        self.words.borrow().iter().filter(found).cloned().collect()
    }

    #[track_caller]
    fn none_in(&self, place: &str, text: impl AsRef<[u8]>) {
        let seen = self.seen_in(text.as_ref());
        assert!(seen.is_empty(), "{place} shows {seen:?}:\n{}", String::from_utf8_lossy(text.as_ref()));
    }
}

/// Any request, so that heads can be wrong in any way; the whole answer.
fn ask(address: &str, first: &str, fields: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let head = format!(
        "{first} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{fields}Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// What the system shows of a process and all that it has started, to everybody.
fn shown_of(pid: u32) -> Vec<u8> {
    let mut text = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
        text.extend(shown_of(child));
    }
    text
}

/// An address at which nobody listens.
fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn endpoints(canaries: &Canaries, folder: &Folder) -> String {
    let mut text = String::new();
    let mut endpoint = |name: &str, scheme: &str, more: &str| {
        text.push_str(&format!(
            "[endpoints.{name}]\nscheme = \"{scheme}\"\nqueue = \"shop\"\nkey = \"/key\"\n{more}\n"
        ));
    };
    let pair = |old: &str, new: &str| format!("secret_env = [\"{old}\", \"{new}\"]");
    endpoint(
        "standard",
        "standard",
        &pair(&canaries.env_signing("STANDARD"), &canaries.env_signing("STANDARD_OLD")),
    );
    for name in ["github", "stripe", "slack", "hmac", "bearer"] {
        let upper = name.to_uppercase();
        endpoint(name, name, &pair(&canaries.env(&upper), &canaries.env(&format!("{upper}_OLD"))));
    }
    folder.write("word.secret", &canaries.word());
    folder.write("old.secret", &canaries.word());
    endpoint("file", "bearer", "header = \"X-Word\"\nsecret_file = [\"word.secret\", \"old.secret\"]");
    let mut endpoint = |name: &str, more: &str| {
        text.push_str(&format!("[endpoints.{name}]\nscheme = \"{name}\"\n{more}\n"));
    };
    endpoint("wati", &pair(&canaries.env("WATI"), &canaries.env("WATI_OLD")));
    let twilio = pair(&canaries.env("TWILIO"), &canaries.env("TWILIO_OLD"));
    endpoint("twilio", &format!("{twilio}\npublic_url = \"https://bot.example.com/hooks/twilio\""));
    let verify =
        format!("verify_token_env = [\"{}\", \"{}\"]", canaries.env("VERIFY"), canaries.env("VERIFY_OLD"));
    endpoint("meta", &format!("{}\n{verify}", pair(&canaries.env("META"), &canaries.env("META_OLD"))));
    text
}

fn queues(canaries: &Canaries, folder: &Folder, handler: &Ear) -> String {
    folder.write("push.secret", &canaries.signing());
    folder.write("notice.secret", &canaries.signing());
    let (key, one, two) = (canaries.word(), canaries.env_signing("PUSH"), canaries.env_signing("PUSH_OLD"));
    let (away, yes) = (nowhere(), handler.url());
    let retry = "retry = { attempts = 2, base = \"50ms\", jitter = 0.0 }";
    format!(
        "[queues.shop]\nhandler = {{ http = \"{yes}/batch\", secret_file = \"push.secret\" }}\n{retry}\n\
         [queues.away]\nhandler = {{ http = \"http://{away}/batch?key={key}\", secret_env = [\"{one}\", \"{two}\"] }}\n{retry}\n\
         notify = {{ url = \"http://{away}/notice\", secret_file = \"notice.secret\", on = [\"failed\"] }}\n\
         [queues.talkative]\nhandler = {{ exec = [\"sh\", \"-c\", \"env; env >&2; ps -ef; exit 3\"] }}\n{retry}\n\
         [queues.gone]\nhandler = {{ exec = [\"./not-there\"] }}\n{retry}\n"
    )
}

#[test]
fn no_secret_is_seen_anywhere_whatever_goes_wrong() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let model = runtime.block_on(LocalModel::start(Script::computed(|_| "yes".to_owned()))).unwrap();
    let providers = runtime.block_on(LocalProviders::start()).unwrap();
    let market = runtime.block_on(LocalMarket::start(Catalogue::generated(3))).unwrap();
    let (handler, collector) = (Ear::listen(), Ear::listen());

    let canaries = Canaries::default();
    let folder = Folder::new();
    for (name, _) in LocalProviders::env().into_iter().chain(LocalMarket::env()) {
        canaries.env(name);
    }
    let (key, wati) = (canaries.env("MODEL_KEY"), nowhere());
    let chat = format!(
        "[chat.default]\nwait_time_before_replying_ms = 100\nnatural_delays_enabled = false\n\
         model = {{ name = \"local\", url = \"{}\", key_env = \"{key}\" }}\n{}\n",
        model.base_url(),
        providers.settings()
    );
    let unreachable = format!(
        "[prices.sources.away]\nurl = \"http://{wati}/search?q={{title}}\"\nheaders = {{ \"X-Api-Key\" = \"{{secret}}\" }}\n\
         secret_env = \"{}\"\nitems = \"/results\"\ncurrency = \"USD\"\nprice_type = \"ask\"\n\
         fields = {{ id = \"/sku\", title = \"/name\", price = \"/price\" }}\n",
        canaries.env("AWAY_KEY")
    );
    let config = format!(
        "[worker]\nsweep_every = \"1s\"\n{}{}{chat}[prices]\n{}{unreachable}",
        queues(&canaries, &folder, &handler),
        endpoints(&canaries, &folder),
        market.settings(),
    );
    folder.write("quell.toml", &config);

    // What is in the environment besides, and is none of a handler's business.
    let others = "AWS_SECRET_ACCESS_KEY GITHUB_TOKEN DATABASE_PASSWORD QUELL_HANDLER_KEY STRIPE_API_KEY NPM_TOKEN OPENAI_API_KEY \
                  SMTP_PASSWORD SSH_PASSPHRASE JWT_SIGNING_KEY SENTRY_AUTH_TOKEN VAULT_TOKEN";
    for name in others.split_whitespace() {
        canaries.env(name);
    }
    let header = format!("authorization=Basic%20{},x-key={}", canaries.word(), canaries.word());
    canaries.variable("OTEL_EXPORTER_OTLP_HEADERS", header);
    canaries.variable("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url());
    canaries.variable("OTEL_BSP_SCHEDULE_DELAY", "50".to_owned());
    let postgres = quell_test_servers::postgres_url();
    let password = postgres.split_once('@').unwrap().0.rsplit(':').next().unwrap();
    canaries.words.borrow_mut().push(password.to_owned());
    let joint = if postgres.contains('?') { '&' } else { '?' };
    let store = format!("{postgres}{joint}pool=4&schema=canaries{}", std::process::id());
    canaries.variable("QUELL_STORE", store);
    let variables = canaries.variables.borrow().clone();
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();

    let quell = |args: &[&str]| {
        let mut command = folder.command(args);
        command.envs(variables.iter().copied());
        let answer = crate::support::Answer::of(&mut command);
        let place = format!("quell {}", args.join(" "));
        canaries.none_in(&place, &answer.out);
        canaries.none_in(&place, &answer.err);
        answer
    };
    quell(&["check"]).ok();
    // Shown once, to whoever makes it, and never again.
    let mut create = folder.command(&["token", "create", "ops", "--scope", "admin"]);
    let made = crate::support::Answer::of(create.envs(variables.iter().copied())).ok();
    let token = made.out.trim().to_owned();
    canaries.words.borrow_mut().push(token[17..].to_owned());

    let mut serve = folder.start_with(&["serve", "--log", "trace", "--log-format", "json"], &variables);
    let address = serve.http_address();
    let events = |queue: &str, key: &str| {
        let body = format!("{{\"key\":\"{key}\",\"payload\":{{\"n\":1}}}}");
        let (status, said) =
            http(&address, "POST", &format!("/v1/queues/{queue}/events"), Some(&token), &body);
        assert_eq!(status, 202, "{said}");
    };
    for queue in ["shop", "away", "talkative", "gone"] {
        events(queue, "a");
    }

    // Deliveries, right where a right one needs no signature, and wrong in many ways.
    let value = |name: &str| variables.iter().find(|(of, _)| *of == name).unwrap().1;
    let body = "{\"key\":\"k\"}";
    let wati = "{\"id\":\"1\",\"waId\":\"4915112345678\",\"type\":\"text\",\"text\":\"hello\",\"eventType\":\"message\"}";
    let bearer =
        |secret: &str| format!("Authorization: Bearer {secret}\r\nContent-Type: application/json\r\n");
    let mut answers = vec![
        ask(&address, "POST /hooks/bearer", &bearer(value("BEARER")), body),
        ask(&address, "POST /hooks/file", &format!("X-Word: {}\r\n", folder.read("word.secret")), body),
        ask(&address, "POST /hooks/wati", &bearer(value("WATI")), wati),
        ask(&address, &format!("POST /hooks/wati?passkey={}", value("WATI")), "", wati),
        ask(&address, &format!("POST /hooks/wati/{}", value("WATI")), "", wati),
        ask(
            &address,
            &format!(
                "GET /hooks/meta?hub.mode=subscribe&hub.challenge=12&hub.verify_token={}",
                value("VERIFY")
            ),
            "",
            "",
        ),
        ask(&address, &format!("GET /v1/lanes?token={token}"), "", ""),
        ask(&address, "GET /v1/lanes", &format!("Authorization: Basic {token}\r\n"), ""),
        ask(&address, "GET /v1/lanes", &format!("Cookie: quell={token}\r\n"), ""),
        ask(
            &address,
            "POST /ui/login",
            "Content-Type: application/x-www-form-urlencoded\r\n",
            &format!("token={token}x"),
        ),
        ask(&address, &format!("GET /{token}"), "", ""),
        ask(&address, "POST /v1/queues/shop/events", &bearer(&token), &format!("{{\"key\":{token}")),
    ];
    for name in [
        "standard", "github", "stripe", "slack", "hmac", "bearer", "file", "wati", "twilio", "meta", "nobody",
    ] {
        for secret in [value("GITHUB"), value("STANDARD"), &token] {
            let fields = format!(
                "Authorization: Bearer {secret}\r\nCookie: session={secret}\r\nX-Word: {secret}\r\n\
                 webhook-id: 1\r\nwebhook-timestamp: 1\r\nwebhook-signature: v1,wrong\r\nX-Hub-Signature-256: sha256=00\r\n\
                 Stripe-Signature: t=1,v1=00\r\nX-Slack-Signature: v0=00\r\nX-Signature: 00\r\nX-Twilio-Signature: 00\r\n"
            );
            answers.push(ask(&address, &format!("POST /hooks/{name}?token={secret}"), &fields, body));
        }
    }
    for answer in &answers {
        canaries.none_in("an answer", answer);
    }
    assert!(answers.iter().filter(|answer| answer.starts_with("HTTP/1.1 200")).count() >= 4, "{answers:#?}");

    quell(&["prices", "intake", "add", "--title", "Morgan dollar"]).ok();
    for source in ["ebay", "shop", "away"] {
        quell(&["prices", "source", "test", source]);
    }
    quell(&["prices", "collect"]).ok();
    until("everything has gone wrong", || {
        let dead = quell(&["dead", "--json"]).out;
        ["away", "talkative", "gone", "chat", "collect"]
            .iter()
            .all(|queue| dead.contains(&format!("\"{queue}\"")))
    });
    canaries.none_in("the list of processes", shown_of(serve.pid()));

    for path in [
        "/metrics",
        "/v1/audit",
        "/v1/dead",
        "/v1/runs",
        "/v1/lanes",
        "/v1/deliveries",
        "/v1/sources",
        "/v1/workers",
        "/v1/tokens",
        "/v1/stats",
        "/v1/schedules",
        "/openapi.json",
        "/readyz",
        "/",
        "/ui/lanes",
        "/ui/dead",
        "/ui/runs",
        "/ui/deliveries",
        "/ui/sources",
        "/ui/audit",
        "/ui/prices",
        "/ui/chat",
    ] {
        let (_, said) = http(&address, "GET", path, Some(&token), "");
        canaries.none_in(path, said);
    }
    let listed: serde_json::Value =
        serde_json::from_str(&http(&address, "GET", "/v1/deliveries", Some(&token), "").1).unwrap();
    for delivery in crate::support::items(&listed) {
        let path = format!("/v1/deliveries/{}", delivery["id"].as_str().unwrap());
        canaries.none_in(&path, http(&address, "GET", &path, Some(&token), "").1);
    }
    for args in [
        &["audit", "--limit", "500"][..],
        &["runs"],
        &["dead"],
        &["lanes"],
        &["sources"],
        &["doctor"],
        &["token", "list"],
        &["prices", "source", "list"],
        &["prices", "points"],
        &["top"],
        &["check", "--json"],
    ] {
        quell(args);
    }
    let runs: serde_json::Value = quell(&["dead", "--json"]).json();
    for run in crate::support::items(&runs) {
        quell(&["run", run["run"].as_str().or(run["id"].as_str()).unwrap(), "--json"]).ok();
    }

    let lines = serve.stop();
    assert!(lines.len() > 100, "nothing was logged at this level");
    for line in &lines {
        canaries.none_in("the log", line.text());
    }
    assert!(!collector.heard().is_empty() && !handler.heard().is_empty());
    for request in collector.heard() {
        canaries.none_in("a trace", request.body);
    }
    for request in handler.heard() {
        canaries.none_in("a batch", request.body);
        canaries.none_in("the head of a batch", format!("{:?}", request.headers));
    }
    assert!(canaries.words.borrow().len() >= AT_LEAST, "{} canaries", canaries.words.borrow().len());
}
