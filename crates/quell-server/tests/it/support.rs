//! A server of its own for each test: real HTTP on loopback over a SQLite file in a temporary folder.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quell::config::{Config, Flags, Settings, SettingsInput, SourceText};
use quell::endpoints::ReadyEndpoint;
use quell::quell_core::event::{QueueName, Tenant};
use quell::tokens::Scope;
use quell::webhook::Schemes;
use quell::{Engine, TokenWish};
use quell_server::{Server, ServerOptions};
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Nothing here takes this long, unless it hangs.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Queues for tests: `chat` waits for quiet, `jobs` is due at once, both are pulled; `small` takes little; `own` is handled
/// by the server itself.
pub(crate) const CONFIG: &str = r#"
[queues.chat]
window = { quiet = "150ms", max_wait = "2s" }
handler = "pull"
[queues.jobs]
window = "none"
handler = "pull"
retry = { base = "50ms", attempts = 3, jitter = 0 }
[queues.gate]
window = "none"
during_run = "gate"
handler = "pull"
[queues.small]
window = "none"
handler = "pull"
max_payload = "1KiB"
max_lane_events = 3
[queues.own]
window = "none"
handler = "log"
"#;

/// A running server; dropped, it stops.
pub(crate) struct World {
    pub(crate) address: SocketAddr,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) engine: Engine,
    pub(crate) client: Client,
    pub(crate) stop: CancellationToken,
    pub(crate) serving: Option<JoinHandle<bool>>,
    pub(crate) folder: Arc<TempDir>,
}

impl World {
    pub(crate) async fn new() -> World {
        World::with(CONFIG, |options| options).await
    }

    pub(crate) async fn with(config: &str, change: impl FnOnce(ServerOptions) -> ServerOptions) -> World {
        let folder = Arc::new(tempfile::tempdir().expect("a temporary folder can be made"));
        let settings = settings(config, &folder);
        World::start(folder, settings, change).await
    }

    /// With endpoints, whose secrets are in these variables.
    pub(crate) async fn hooked(config: &str, secrets: &[(&str, &str)]) -> World {
        World::hooked_by(config, secrets, &Schemes::built_in()).await
    }

    /// The same, of a program that knows more schemes.
    pub(crate) async fn hooked_by(config: &str, secrets: &[(&str, &str)], schemes: &Schemes) -> World {
        let folder = Arc::new(tempfile::tempdir().expect("a temporary folder can be made"));
        World::hooked_in(folder, config, secrets, schemes).await
    }

    async fn hooked_in(
        folder: Arc<TempDir>,
        config: &str,
        secrets: &[(&str, &str)],
        schemes: &Schemes,
    ) -> World {
        let settings = settings_with(config, &folder, schemes);
        let endpoints = ready(&settings, secrets);
        World::start(folder, settings, |options| ServerOptions { endpoints, ..options }).await
    }

    /// Ends the server and starts another one on the same store.
    pub(crate) async fn restarted(mut self, config: &str, secrets: &[(&str, &str)]) -> World {
        self.stop.cancel();
        let serving = self.serving.take().expect("it serves");
        tokio::time::timeout(LONG, serving).await.expect("it ends").expect("it ends");
        World::hooked_in(self.folder.clone(), config, secrets, &Schemes::built_in()).await
    }

    async fn start(
        folder: Arc<TempDir>,
        settings: Settings,
        change: impl FnOnce(ServerOptions) -> ServerOptions,
    ) -> World {
        let engine = Engine::open(settings).await.expect("the store opens");
        World::over(folder, engine, change).await
    }

    /// Over an engine that the test has made.
    pub(crate) async fn over(
        folder: Arc<TempDir>,
        engine: Engine,
        change: impl FnOnce(ServerOptions) -> ServerOptions,
    ) -> World {
        let options = change(ServerOptions::at("127.0.0.1:0"));
        let server = Server::bind(engine.clone(), options).await.expect("the server listens");
        let (address, admin, stop) = (server.address(), server.admin_address(), CancellationToken::new());
        let serving = Some(tokio::spawn(server.run(stop.clone(), Duration::from_secs(5))));
        // Whoever sets it first, it is the same one: no test speaks TLS.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Where the dashboard leads is for the tests to see.
        let client = Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).timeout(LONG);
        let client = client.build().expect("a client can be made");
        World { address, admin, engine, client, stop, serving, folder }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, self.url(path))
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        Reply::of(self.request(Method::GET, path)).await
    }

    pub(crate) async fn get_as(&self, token: &str, path: &str) -> Reply {
        Reply::of(self.request(Method::GET, path).bearer_auth(token)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        Reply::of(self.request(Method::POST, path).json(&body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Reply {
        Reply::of(self.request(Method::PUT, path).json(&body)).await
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> Reply {
        Reply::of(self.request(Method::PATCH, path).json(&body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        Reply::of(self.request(Method::DELETE, path)).await
    }

    /// One event, which must be taken.
    pub(crate) async fn append(&self, queue: &str, key: &str, payload: Value) -> Value {
        let body = serde_json::json!({ "key": key, "payload": payload });
        let reply = self.post(&format!("/v1/queues/{queue}/events"), body).await;
        assert_eq!(reply.status, StatusCode::ACCEPTED, "{}", reply.text);
        reply.json()["receipts"][0].clone()
    }

    /// Runs of these queues that are there now, or come within a second.
    pub(crate) async fn claim(&self, queue: &str, max: usize) -> Vec<Value> {
        let body = serde_json::json!({ "queues": [queue], "worker": "w1", "max": max, "wait_ms": 1000 });
        let reply = self.post("/v1/claims", body).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
        reply.json()["claims"].as_array().expect("a list").clone()
    }

    /// Runs of this queue that are there now.
    pub(crate) async fn claim_now(&self, queue: &str) -> Vec<Value> {
        let body = serde_json::json!({ "queues": [queue], "worker": "w1", "max": 100 });
        self.post("/v1/claims", body).await.json()["claims"].as_array().expect("a list").clone()
    }

    /// Ends a run that was claimed.
    pub(crate) async fn settle(&self, run: &Value, outcome: Value) -> Reply {
        let mut body = outcome;
        body["token"] = run["token"].clone();
        self.post(&format!("/v1/claims/{}/settle", run["run_id"].as_str().expect("an id")), body).await
    }

    /// A run that has failed for good, as it was claimed.
    pub(crate) async fn failed(&self, queue: &str, key: &str, error: &str) -> Value {
        self.append(queue, key, serde_json::json!(key)).await;
        let run = self.claim(queue, 1).await.remove(0);
        let settled = self.settle(&run, serde_json::json!({ "outcome": "failed", "error": error })).await;
        assert_eq!(settled.json()["state"], "failed", "{}", settled.text);
        run
    }

    /// The text of a token with these scopes, for these tenants.
    pub(crate) async fn token(
        &self,
        name: &str,
        scopes: &[Scope],
        tenants: &[&str],
        queues: &[&str],
    ) -> String {
        let wish = TokenWish {
            name: name.to_owned(),
            scopes: scopes.iter().copied().collect(),
            tenants: tenants.iter().map(|t| Tenant::new(t).expect("a tenant")).collect(),
            queues: queues.iter().map(|q| QueueName::new(q).expect("a queue")).collect(),
            expires_in: None,
        };
        self.engine.make_token(wish, "test").await.expect("a token can be made").0
    }

    /// Everything that was accepted, over all queues.
    pub(crate) async fn accepted(&self) -> u64 {
        self.engine.stats().await.expect("totals").iter().map(|queue| queue.totals.accepted).sum()
    }

    /// The no-loss equation holds.
    pub(crate) async fn verify(&self) {
        let verified = self.engine.verify().await.expect("the store can be checked");
        assert_eq!(verified.problems, Vec::<String>::new());
    }

    /// A connection for bytes as they are.
    pub(crate) async fn raw(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("the server listens")
    }

    /// Sends these bytes and reads until the server closes (or for very long).
    pub(crate) async fn send_raw(&self, bytes: &[u8]) -> RawReply {
        let mut stream = self.raw().await;
        // A server that refuses early may close before everything is written.
        let _ = stream.write_all(bytes).await;
        RawReply::read(&mut stream).await
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The endpoints of a configuration, whose secrets are in these variables.
pub(crate) fn ready(settings: &Settings, secrets: &[(&str, &str)]) -> Vec<ReadyEndpoint> {
    let secrets: BTreeMap<String, String> =
        secrets.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    quell::endpoints::ready(settings, &secrets).expect("the secrets are there").0
}

pub(crate) fn settings(config: &str, folder: &TempDir) -> Settings {
    settings_with(config, folder, &Schemes::built_in())
}

pub(crate) fn settings_with(config: &str, folder: &TempDir, schemes: &Schemes) -> Settings {
    let parsed = Config::parse(config, "quell.toml").expect("the configuration parses");
    let source = SourceText::new("quell.toml", config);
    let store = format!("sqlite:{}", folder.path().join("quell.db").display());
    let flags = Flags { store: Some(store), ..Flags::default() };
    let env = BTreeMap::new();
    let input = SettingsInput { config: Some((parsed, source)), env: &env, flags };
    Settings::resolve_with(input, schemes).expect("it is valid")
}

/// Looks again and again until it is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let looking = async {
        while !is_so().await {
            quell::clock::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(LONG, looking).await.is_ok(), "it never happened: {what}");
}

/// An answer with its text.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) async fn of(request: RequestBuilder) -> Reply {
        let response = request.send().await.expect("the server answers");
        let (status, headers) = (response.status(), response.headers().clone());
        Reply { status, headers, text: response.text().await.expect("the answer arrives") }
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The code of a problem document, after its form has been checked.
    #[track_caller]
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), "application/problem+json", "{} {}", self.status, self.text);
        let document = self.json();
        assert_eq!(document["status"], self.status.as_u16());
        let code = document["code"].as_str().expect("a code").to_owned();
        assert_eq!(document["type"], format!("urn:quell:{code}"));
        assert!(document["detail"].as_str().is_some_and(|text| !text.is_empty()));
        code
    }
}

/// What came back on a raw connection.
#[derive(Debug)]
pub(crate) struct RawReply {
    pub(crate) text: String,
    /// The server closed the connection.
    pub(crate) closed: bool,
}

impl RawReply {
    pub(crate) async fn read(stream: &mut TcpStream) -> RawReply {
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(LONG, stream.read_to_end(&mut bytes)).await;
        RawReply { text: String::from_utf8_lossy(&bytes).into_owned(), closed: read.is_ok() }
    }

    /// The status of the first answer; 0 when there was none.
    pub(crate) fn status(&self) -> u16 {
        self.text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
    }
}
