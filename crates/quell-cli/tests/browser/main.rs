//! The dashboard in a real browser: one journey of an operator through `quell serve`, from the login to the logout.
//!
//! Everything but what a program would do (sending, claiming, settling) is done by clicking, and the browser must not have
//! complained of anything: not of a script, not of a file, not of the content security policy.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod driver;

use std::process::Command;

use reqwest::Client;
use serde_json::{Value, json};

use crate::driver::{Browser, Process};

/// Waits long enough for somebody to read why.
const CONFIG: &str = r#"
[queues.orders]
window = { quiet = "1h", max_wait = "2h" }
handler = "pull"
"#;

/// `quell serve` on a store of its own, and a token for it.
struct Served {
    _process: Process,
    _folder: tempfile::TempDir,
    url: String,
    token: String,
}

impl Served {
    fn start() -> Served {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("quell.toml"), CONFIG).unwrap();
        let made = quell(&folder, &["token", "create", "ops", "--scope", "admin"]).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let token = String::from_utf8(made.stdout).unwrap().trim().to_owned();
        let serve = quell(&folder, &["serve", "--listen", "127.0.0.1:0"]);
        let (process, url) = Process::start(serve, |line| {
            let (_, rest) = line.split_once("http://")?;
            Some(format!("http://{}", rest.split_once(" takes events in")?.0))
        });
        Served { _process: process, _folder: folder, url, token }
    }

    async fn post(&self, client: &Client, path: &str, body: Value) -> Value {
        let request = client.post(format!("{}{path}", self.url)).bearer_auth(&self.token).json(&body);
        let response = request.send().await.unwrap();
        assert!(response.status().is_success(), "{path}: {}", response.status());
        response.json().await.unwrap()
    }
}

fn quell(folder: &tempfile::TempDir, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quell"));
    command.current_dir(folder.path()).args(args).env("NO_COLOR", "1");
    for (name, _) in std::env::vars_os() {
        let ours = name.to_string_lossy().starts_with("QUELL_");
        if ours || ["DATABASE_URL", "REDIS_URL", "RUST_LOG", "PORT"].iter().any(|n| name == *n) {
            command.env_remove(name);
        }
    }
    command
}

#[tokio::test]
async fn an_operator_logs_in_sees_a_key_wait_flushes_it_and_redrives_what_failed() {
    // Whoever sets it first, it is the same one: nothing here speaks TLS.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().no_proxy().timeout(driver::PATIENCE).build().unwrap();
    let (_driver, _profile, browser) = Browser::start(&client).await;
    // In a task of its own, so that the browser is closed however it ends.
    let tasks = tokio::task::LocalSet::new();
    let journey = tasks.spawn_local(journey(client, browser.clone()));
    let journey = tasks.run_until(journey).await;
    browser.quit().await;
    journey.unwrap();
}

async fn journey(client: Client, browser: Browser) {
    let served = Served::start();

    browser.open(&format!("{}/ui/lanes", served.url)).await;
    browser.is_at("/ui/login").await;
    browser.type_into("#token", &served.token).await;
    browser.click("#login").await;
    browser.is_at("/ui/lanes").await;
    browser.click(".bar nav a[href='/']").await;
    browser.reads("#verdict", "All is well").await;
    browser.reads("#pulse", "live").await;
    browser.click(".bar nav a[href='/ui/lanes']").await;
    browser.reads("#live", "Nothing waits and nothing runs").await;

    // It appears by itself: what was put on the page is still there, so it was not loaded again.
    browser.run("window.mark = 'the same page'").await;
    let event = json!({ "key": "order 7/a", "payload": { "text": "<script>alert(1)</script>" } });
    served.post(&client, "/v1/queues/orders/events", event).await;
    browser.reads("#lanes tbody", "order 7/a").await;
    assert_eq!(browser.run("return window.mark").await, "the same page");

    browser.click("#lanes tbody th a").await;
    browser.reads("#key", "order 7/a").await;
    let reason = browser.reads("#reason", "Buffered 1").await;
    assert!(reason.contains("(quiet), at the latest in"), "{reason}");
    browser.reads("#live .payload", r#"{"text":"<script>alert(1)</script>"}"#).await;
    browser.click("#flush").await;
    browser.reads("#live .note", "Flushed").await;
    browser.reads("#reason", "due since").await;

    let claim = json!({ "queues": ["orders"], "worker": "w1", "wait_ms": 50_000 });
    let claimed = served.post(&client, "/v1/claims", claim).await["claims"][0].clone();
    browser.reads("#reason", "Running on w1").await;
    let run = claimed["run_id"].as_str().unwrap();
    let verdict = json!({ "token": claimed["token"], "outcome": "failed", "error": "the till is locked" });
    served.post(&client, &format!("/v1/claims/{run}/settle"), verdict).await;
    browser.reads("#live .state.failed", "failed").await;

    browser.click(&format!("#live a[href='/ui/runs/{run}']")).await;
    browser.reads("#run", run).await;
    browser.reads("section[aria-labelledby=error]", "the till is locked").await;
    browser.reads(".line", "claimed").await;
    browser.click("#redrive").await;
    browser.reads("#live .note", "back at work").await;
    browser.reads("#live .facts", "Redriven from").await;
    browser.fits().await;
    browser.narrow().await;
    browser.fits().await;

    assert_eq!(browser.complaints().await, Vec::<String>::new());
    browser.click("#logout").await;
    browser.is_at("/ui/login").await;
    browser.open(&format!("{}/", served.url)).await;
    browser.is_at("/ui/login").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}
