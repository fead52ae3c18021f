//! `quell serve` on a store of its own, and a token for it.

use std::process::Command;
use std::time::Duration;

use quell_chat::local::LocalProviders;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

use crate::driver::{Process, until};

/// By which a provider of messages proves itself.
pub(crate) const PASSKEY: &str = "a word of our own";

pub(crate) struct Served {
    _process: Process,
    folder: tempfile::TempDir,
    client: Client,
    pub(crate) url: String,
    /// With the scope `admin`.
    pub(crate) token: String,
}

impl Served {
    /// With this `quell.toml`.
    pub(crate) fn start(client: &Client, config: &str) -> Served {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("quell.toml"), config).unwrap();
        let token = new_token(&folder, "ops", "admin");
        let serve = quell(&folder, &["serve", "--listen", "127.0.0.1:0"]);
        let (process, url) = Process::start(serve, |line| {
            let (_, rest) = line.split_once("http://")?;
            Some(format!("http://{}", rest.split_once(" takes events in")?.0))
        });
        Served { _process: process, folder, client: client.clone(), url, token }
    }

    /// A file of its folder: `quell.db` is the store.
    pub(crate) fn file(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a command in its folder to the end.
    pub(crate) fn quell(&self, args: &[&str]) {
        let ended = quell(&self.folder, args).output().unwrap();
        assert!(ended.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ended.stderr));
    }

    /// Another token, for one who may do less, once the server knows it: it looks for new ones every two seconds.
    pub(crate) async fn token(&self, name: &str, scope: &str) -> String {
        /// A wrong token too often costs a pause.
        const BETWEEN: Duration = Duration::from_millis(400);
        let token = new_token(&self.folder, name, scope);
        until(&format!("the token {name}"), async || {
            let asked = self.client.get(format!("{}/v1/lanes", self.url)).bearer_auth(&token).send();
            let known = asked.await.unwrap().status() != StatusCode::UNAUTHORIZED;
            if !known {
                quell::clock::sleep(BETWEEN).await;
            }
            known.then_some(())
        })
        .await;
        token
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        let request = self.client.post(format!("{}{path}", self.url)).bearer_auth(&self.token).json(&body);
        let response = request.send().await.unwrap();
        let status = response.status();
        assert!(status.is_success(), "{path}: {status} {}", response.text().await.unwrap());
        response.json().await.unwrap()
    }

    /// A webhook: it proves itself by what is in it, and not by a token.
    pub(crate) async fn deliver(&self, path: &str, body: &Value) {
        let sent = self.client.post(format!("{}{path}", self.url)).json(body).send().await.unwrap();
        assert!(sent.status().is_success(), "{path}: {}", sent.status());
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let request = self.client.get(format!("{}{path}", self.url)).bearer_auth(&self.token);
        let response = request.send().await.unwrap();
        assert!(response.status().is_success(), "{path}: {}", response.status());
        response.json().await.unwrap()
    }

    /// Sends one event.
    pub(crate) async fn send(&self, queue: &str, key: &str, payload: Value) {
        self.post(&format!("/v1/queues/{queue}/events"), json!({ "key": key, "payload": payload })).await;
    }

    /// Claims one batch of a queue, waiting until there is one.
    pub(crate) async fn claim(&self, queue: &str, worker: &str) -> Value {
        let wish = json!({ "queues": [queue], "worker": worker, "wait_ms": 50_000 });
        self.post("/v1/claims", wish).await["claims"][0].clone()
    }

    /// Ends a claim and gives the id of its run.
    pub(crate) async fn settle(&self, claim: &Value, mut verdict: Value) -> String {
        let run = claim["run_id"].as_str().unwrap().to_owned();
        verdict["token"] = claim["token"].clone();
        self.post(&format!("/v1/claims/{run}/settle"), verdict).await;
        run
    }
}

fn new_token(folder: &tempfile::TempDir, name: &str, scope: &str) -> String {
    let made = quell(folder, &["token", "create", name, "--scope", scope]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

fn quell(folder: &tempfile::TempDir, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quell"));
    command.current_dir(folder.path()).args(args).env("NO_COLOR", "1");
    command.envs(LocalProviders::env()).env("WATI_PASSKEY", PASSKEY);
    for (name, _) in std::env::vars_os() {
        let ours = name.to_string_lossy().starts_with("QUELL_");
        if ours || ["DATABASE_URL", "REDIS_URL", "RUST_LOG", "PORT"].iter().any(|n| name == *n) {
            command.env_remove(name);
        }
    }
    command
}
