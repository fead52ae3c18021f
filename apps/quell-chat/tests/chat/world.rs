//! A store, a worker, a model and three providers of its own for each test, all real and all on this machine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quell::clock::{self, Chance, Stopwatch};
use quell::config::{CHAT, Config, Flags, Settings, SettingsInput, SourceText};
use quell::fetch::Http;
use quell::quell_core::event::{Key, LaneKey, Payload, Tenant};
use quell::quell_core::store::Receipt;
use quell::worker::OwnHandler;
use quell::{Engine, Incoming, Shutdown, Worker, WorkerOptions};
use quell_chat::book::{self, Book, Conversation, Entry, Place};
use quell_chat::desk::Desk;
use quell_chat::handle::Answers;
use quell_chat::live::Live;
use quell_chat::local::{LocalModel, LocalProviders, Received, Script};
use quell_chat::message::Channel;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// Nothing here takes as long, unless the machine is in trouble.
const PATIENCE: Duration = Duration::from_secs(40);
/// Messages this close together are one burst.
pub(crate) const WAIT: Duration = Duration::from_millis(300);

/// Where a test keeps its data.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
    Redis,
}

pub(crate) struct World {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) engine: Engine,
    pub(crate) model: LocalModel,
    pub(crate) providers: LocalProviders,
    pub(crate) book: Arc<dyn Book>,
    pub(crate) live: Arc<Live>,
    pub(crate) http: Http,
    env: BTreeMap<String, String>,
    workers: Vec<(Shutdown, JoinHandle<()>)>,
}

impl World {
    pub(crate) async fn new(kind: Kind) -> World {
        World::with(kind, "").await
    }

    /// With more settings of the tenant.
    pub(crate) async fn with(kind: Kind, more: &str) -> World {
        let folder = tempfile::tempdir().unwrap();
        let model = LocalModel::start(Script::fixed("Certainly.")).await.unwrap();
        let providers = LocalProviders::start().await.unwrap();
        let env: BTreeMap<String, String> =
            LocalProviders::env().map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let settings = settings(&store(kind, &folder), &tenant(&model, &providers, more), &env);
        let live = Arc::new(Live::load(settings.chat.as_ref().unwrap(), &env).unwrap());
        let http = quell_chat::client(&settings).unwrap();
        let engine = Engine::open(settings).await.unwrap();
        let book = book::open(engine.store().clone()).await.unwrap();
        let mut world =
            World { folder, engine, model, providers, book, live, http, env, workers: Vec::new() };
        world.work();
        world
    }

    /// One more worker in this process.
    pub(crate) fn work(&mut self) {
        let mut handlers = quell_chat::handlers(&self.engine, &self.book, &self.live, &self.http);
        let answers = Answers {
            engine: self.engine.clone(),
            book: self.book.clone(),
            live: self.live.clone(),
            http: self.http.clone(),
            chance: Chance::seeded(7),
            reconcile_after: Duration::from_secs(1),
        };
        let answers = OwnHandler { handler: Arc::new(answers), time_limit: None };
        handlers.insert(quell_chat::queue(CHAT), answers);
        let options = WorkerOptions { handlers, env: self.env.clone(), ..WorkerOptions::default() };
        let worker = Worker::new(self.engine.clone(), options).unwrap();
        let shutdown = Shutdown::new();
        let asked = shutdown.clone();
        let task = tokio::spawn(async move {
            worker.run(asked).await;
        });
        self.workers.push((shutdown, task));
    }

    /// All workers are gone at once, as if their process were: their leases stay.
    pub(crate) async fn kill(&mut self) {
        for (_, task) in self.workers.drain(..) {
            task.abort();
            let _ = task.await;
        }
    }

    /// Puts other settings of the tenant in force.
    pub(crate) fn change(&self, more: &str) {
        let text = tenant(&self.model, &self.providers, more);
        let settings = settings("sqlite:unused.db", &text, &self.env);
        let chat = settings.chat.unwrap();
        self.live.change(&chat, &self.env).unwrap();
        chat.apply(&self.engine.settings().queue(&quell_chat::queue(CHAT)).unwrap());
    }

    pub(crate) fn desk(&self) -> Desk {
        Desk { engine: self.engine.clone(), book: self.book.clone() }
    }

    /// A customer writes.
    pub(crate) async fn write(&self, customer: &str, text: &str) -> Receipt {
        self.send(Channel::Wati, customer, json!({ "text": text }), None).await
    }

    pub(crate) async fn send(
        &self,
        channel: Channel,
        customer: &str,
        more: Value,
        id: Option<&str>,
    ) -> Receipt {
        let mut message = json!({ "channel": channel, "customer": customer, "type": "text" });
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let event = Incoming::to(lane(channel, customer), Payload::of(&message));
        let event = match id {
            Some(id) => event.id(id).unwrap(),
            None => event,
        };
        self.engine.append(vec![event]).await.unwrap().remove(0)
    }

    pub(crate) async fn entries(&self, channel: Channel, customer: &str) -> Vec<Entry> {
        self.book.entries(&place(channel, customer), 100).await.unwrap()
    }

    /// What was said, who said it, in one line each.
    pub(crate) async fn said(&self, channel: Channel, customer: &str) -> Vec<String> {
        let entries = self.entries(channel, customer).await;
        entries.iter().map(|entry| format!("{}: {}", entry.role.as_str(), entry.text)).collect()
    }

    pub(crate) async fn conversation(&self, channel: Channel, customer: &str) -> Option<Conversation> {
        self.book.conversation(&place(channel, customer)).await.unwrap()
    }

    /// Waits for this many delivered replies, and a little longer for one too many.
    pub(crate) async fn replies(&self, count: usize) -> Vec<Received> {
        until(&format!("{count} replies"), async || self.providers.delivered().len() >= count).await;
        self.idle().await;
        let delivered = self.providers.delivered();
        assert_eq!(delivered.len(), count, "{delivered:#?}");
        delivered
    }

    /// Waits until nothing runs and nothing waits in any queue.
    pub(crate) async fn idle(&self) {
        until("nothing is left to do", async || {
            let stats = self.engine.stats().await.unwrap();
            stats
                .iter()
                .all(|queue| queue.totals.buffered + queue.totals.in_flight + queue.totals.delayed == 0)
        })
        .await;
    }

    /// The texts that the model was asked with last of each request.
    pub(crate) fn questions(&self) -> Vec<String> {
        let asked = self.model.asked();
        asked.iter().map(|asked| asked.messages.last().unwrap().content.clone()).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for (_, task) in &self.workers {
            task.abort();
        }
    }
}

pub(crate) fn place(channel: Channel, customer: &str) -> Place {
    Place { tenant: Tenant::none(), key: quell_chat::message::key(channel, customer, None) }
}

pub(crate) fn lane(channel: Channel, customer: &str) -> LaneKey {
    LaneKey::new(quell_chat::queue(CHAT), Key::new(place(channel, customer).key).unwrap())
}

/// Asks until it is so.
pub(crate) async fn until(what: &str, so: impl AsyncFn() -> bool) {
    let since = Stopwatch::start();
    while !so().await {
        assert!(since.elapsed() < PATIENCE, "waited in vain for: {what}");
        clock::sleep(Duration::from_millis(20)).await;
    }
}

fn store(kind: Kind, folder: &tempfile::TempDir) -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let own = format!("chat{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::SeqCst));
    let with = |url: String, what: &str| {
        let joint = if url.contains('?') { '&' } else { '?' };
        format!("{url}{joint}{what}={own}")
    };
    match kind {
        Kind::Sqlite => format!("sqlite:{}", folder.path().join("q.db").display()),
        Kind::Postgres => with(quell_test_servers::postgres_url(), "pool=6&schema"),
        Kind::Redis => with(quell_test_servers::redis_url(), "prefix"),
    }
}

/// A lease so short that a dead worker is noticed while a test waits; no natural delay, because tests have none.
fn tenant(model: &LocalModel, providers: &LocalProviders, more: &str) -> String {
    let own = |name: &str, value: &str| match more.contains(name) {
        true => String::new(),
        false => format!("{name} = {value}\n"),
    };
    let wait = own("wait_time_before_replying_ms", &WAIT.as_millis().to_string());
    let typing = own("typing_indicator_enabled", "false");
    let delays = own("natural_delays_enabled", "false");
    let (url, accounts) = (model.base_url(), providers.settings());
    format!(
        "[queues.chat]\nlease = \"2s\"\nretry = {{ base = \"100ms\", attempts = 4, jitter = 0.0 }}\n\
         [chat.default]\n{wait}{typing}{delays}{more}\n\
         model = {{ name = \"local\", url = \"{url}\" }}\n{accounts}"
    )
}

fn settings(store: &str, text: &str, env: &BTreeMap<String, String>) -> Settings {
    let config = Config::parse(text, "quell.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
    let config = Some((config, SourceText::new("quell.toml", text)));
    let flags = Flags { store: Some(store.to_owned()), ..Flags::default() };
    let input = SettingsInput { config, env, flags };
    Settings::resolve_with(input, &quell_chat::inbound::schemes())
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}
