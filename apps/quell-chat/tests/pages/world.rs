//! A server with the pages of chat on a store of its own, and nobody who answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quell::config::{CHAT, Config, Flags, Settings, SettingsInput, SourceText};
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::{Key, LaneKey, Payload, Tenant};
use quell::{Engine, Incoming};
use quell_chat::book::{self, About, Book, Conversation, Entry, Place, Role};
use quell_chat::desk::Desk;
use quell_chat::message::{self, Channel};
use quell_chat::pages::Pages;
use quell_server::pages::AppPage;
use quell_server::{Server, ServerOptions};
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Of entries; long ago for the server's own clock.
pub(crate) const NOW: i64 = 1_780_000_000_000;

/// Nobody takes what is written there, so it waits.
const CONFIG: &str = "[queues.chat]\nwindow = \"none\"\nhandler = \"pull\"\n";

pub(crate) struct World {
    pub(crate) url: String,
    pub(crate) desk: Desk,
    client: Client,
    stop: CancellationToken,
    _folder: TempDir,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl World {
    pub(crate) async fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let store = format!("sqlite:{}", folder.path().join("quell.db").display());
        let env = BTreeMap::new();
        let flags = Flags { store: Some(store), ..Flags::default() };
        let config = Config::parse(CONFIG, "quell.toml").unwrap();
        let config = Some((config, SourceText::new("quell.toml", CONFIG)));
        let settings = Settings::resolve(SettingsInput { config, env: &env, flags }).unwrap();
        let engine = Engine::open(settings).await.unwrap();
        let book = book::open(engine.store().clone()).await.unwrap();
        let mut options = ServerOptions::at("127.0.0.1:0");
        options.pages.push(AppPage::of(Arc::new(Pages::new(engine.clone()))));
        let server = Server::bind(engine.clone(), options).await.unwrap();
        let (url, stop) = (format!("http://{}", server.address()), CancellationToken::new());
        tokio::spawn(server.run(stop.clone(), Duration::from_secs(5)));
        // Whoever sets it first, it is the same one: nothing here speaks TLS.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().timeout(crate::driver::PATIENCE).build().unwrap();
        World { url, desk: Desk { engine, book }, client, stop, _folder: folder }
    }

    pub(crate) async fn get(&self, place: &str) -> (StatusCode, String) {
        let reply = self.client.get(format!("{}{place}", self.url)).send().await.unwrap();
        (reply.status(), reply.text().await.unwrap())
    }

    /// A page that is there.
    pub(crate) async fn page(&self, place: &str) -> String {
        let (status, page) = self.get(place).await;
        assert_eq!(status, StatusCode::OK, "{place}: {page}");
        page
    }

    /// A worker takes what waits, and keeps it.
    pub(crate) async fn claim(&self) {
        let wish = json!({ "queues": [CHAT], "worker": "w1", "max": 100, "wait_ms": 10_000 });
        let reply = self.client.post(format!("{}/v1/claims", self.url)).json(&wish).send().await.unwrap();
        assert_eq!(reply.status(), StatusCode::OK);
    }

    pub(crate) fn book(&self) -> &Arc<dyn Book> {
        &self.desk.book
    }

    pub(crate) async fn record(&self, conversation: &Conversation, entries: &[Entry]) {
        self.book().record(conversation, entries).await.unwrap();
    }

    /// A customer writes, and it waits.
    pub(crate) async fn write(&self, place: &Place, more: &Value) {
        let (channel, customer, _) = message::parts(&place.key).unwrap();
        let mut message = json!({ "channel": channel, "customer": customer, "type": "text" });
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let lane = LaneKey::new(quell_chat::queue(CHAT), Key::new(&place.key).unwrap());
        let lane = LaneKey { tenant: place.tenant.clone(), ..lane };
        self.desk.engine.append(vec![Incoming::to(lane, Payload::of(&message))]).await.unwrap();
    }
}

pub(crate) fn place(tenant: &str, customer: &str) -> Place {
    let tenant = if tenant.is_empty() { Tenant::none() } else { Tenant::new(tenant).unwrap() };
    Place { tenant, key: message::key(Channel::Wati, customer, None) }
}

/// As it begins with a customer's first message.
pub(crate) fn conversation(place: &Place, at: i64) -> Conversation {
    Conversation::begun(place, Timestamp::from_millis(at)).unwrap()
}

pub(crate) fn entry(n: i64, role: Role, text: &str) -> Entry {
    let at = Timestamp::from_millis(NOW + n);
    Entry { id: format!("e{n}"), at, role, text: text.to_owned(), about: About::default() }
}
