//! A server with the pages of an archive on a store of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quell::Engine;
use quell::config::{Flags, Settings, SettingsInput};
use quell_server::pages::AppPage;
use quell_server::{Server, ServerOptions};
use quell_transcripts::archive::{Archive, Chunk, Told};
use quell_transcripts::lazily::LazyArchive;
use quell_transcripts::line::{Line, read_line};
use quell_transcripts::pages::Pages;
use quell_transcripts::shape::HookEvent;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Of events; long ago for the server's own clock.
pub(crate) const NOW: i64 = 1_780_000_000_000;

pub(crate) struct World {
    pub(crate) url: String,
    pub(crate) archive: Archive,
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
        let settings = Settings::resolve(SettingsInput { config: None, env: &env, flags }).unwrap();
        let engine = Engine::open(settings).await.unwrap();
        let archive = Archive::open(engine.store().clone()).await.unwrap();
        let mut options = ServerOptions::at("127.0.0.1:0");
        options.pages.push(AppPage::of(Arc::new(Pages::new(LazyArchive::new(engine.store().clone())))));
        let server = Server::bind(engine, options).await.unwrap();
        let (url, stop) = (format!("http://{}", server.address()), CancellationToken::new());
        tokio::spawn(server.run(stop.clone(), Duration::from_secs(5)));
        // Whoever sets it first, it is the same one: nothing here speaks TLS.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().timeout(crate::driver::PATIENCE).build().unwrap();
        World { url, archive, client, stop, _folder: folder }
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

    /// What of a page is fetched again.
    pub(crate) async fn part(&self, place: &str) -> String {
        let request = self.client.get(format!("{}{place}", self.url)).header("HX-Request", "true");
        request.send().await.unwrap().text().await.unwrap()
    }

    pub(crate) async fn tell(&self, session: &str, at: i64, event: HookEvent) {
        let id = format!("{session} {at} {}", event.event);
        self.archive.tell(session, &[Told { id, at, event }]).await.unwrap();
    }

    /// Lines of a transcript, read as they are read from a file.
    pub(crate) async fn lines(&self, session: &str, lines: &[Value]) {
        let mut chunk = Chunk::default();
        for line in lines {
            let mut line = line.clone();
            line["sessionId"] = json!(session);
            line["timestamp"] = json!("2026-05-28T20:26:40Z");
            let Line::Entry(entry) = read_line(line.to_string().as_bytes()) else { panic!("{line}") };
            chunk.entries.push((0, *entry));
        }
        let current = self.archive.current(session).await.unwrap();
        self.archive.take_lines(session, &chunk, &current).await.unwrap();
    }

    pub(crate) async fn finish(&self, session: &str, problem: Option<&str>) {
        self.archive.finish(session, problem).await.unwrap();
    }
}

/// What an agent's hook says.
pub(crate) fn hook(session: &str, event: &str, cwd: &str, more: &Value) -> HookEvent {
    let mut payload = json!({ "session_id": session, "hook_event_name": event, "cwd": cwd });
    for (name, value) in more.as_object().unwrap() {
        payload[name] = value.clone();
    }
    HookEvent::read(payload.to_string().as_bytes()).unwrap()
}

pub(crate) fn uuid(n: usize) -> String {
    format!("00000000-0000-4000-8000-{n:012}")
}
