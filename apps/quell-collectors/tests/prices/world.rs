//! A store, workers and a marketplace of its own for each test, all real and all on this machine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use quell::clock::{self, Stopwatch};
use quell::config::{Config, Flags, Settings, SettingsInput, SourceText};
use quell::fetch::Http;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::{Key, LaneKey, SourceName, Tenant};
use quell::quell_core::inspect::{RunDetail, SourceFilter, SourceRow};
use quell::quell_core::lifecycle::RunState;
use quell::quell_core::store::Receipt;
use quell::worker::OwnHandler;
use quell::{Engine, Handler, Incoming, Outcome, Run, Shutdown, Worker, WorkerOptions};
use quell_collectors::book::{Book, Point, PointFilter, Valued};
use quell_collectors::collect::Collects;
use quell_collectors::intake::{About, Intake};
use quell_collectors::matching::MatchRules;
use quell_collectors::money::Currency;
use quell_collectors::valuation::Values;
use quell_collectors::value::ValueRules;
use quell_collectors::{COLLECT, COLLECT_TEST, COLLECT_VALUE, PriceSource, queue, request};
use tokio::task::JoinHandle;

use crate::market::Market;

/// Nothing here takes as long, unless the machine is in trouble.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const MARKET: &str = "market";

/// Where a test keeps its data.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

pub(crate) struct World {
    _folder: tempfile::TempDir,
    pub(crate) engine: Engine,
    pub(crate) book: Book,
    pub(crate) market: Market,
    pub(crate) sources: BTreeMap<SourceName, PriceSource>,
    http: Http,
    workers: Vec<(Shutdown, JoinHandle<()>)>,
}

impl World {
    /// With a market that nothing limits, and a worker.
    pub(crate) async fn new(kind: Kind) -> World {
        let mut world = World::with(kind, "[sources.market]\n").await;
        world.work();
        world
    }

    /// With other sources, and nobody who works.
    pub(crate) async fn with(kind: Kind, sources: &str) -> World {
        let folder = tempfile::tempdir().unwrap();
        let market = Market::start().await;
        let settings = settings(&store(kind, &folder), sources);
        let http = quell_collectors::client(&settings).unwrap();
        let engine = Engine::open(settings).await.unwrap();
        engine.apply_sources().await.unwrap();
        let book = Book::open(engine.store().clone()).await.unwrap();
        let source = PriceSource {
            adapter: market.adapter(),
            rules: MatchRules::default(),
            currency: Some(Currency::USD),
            max_pages: 5,
        };
        let sources = BTreeMap::from([(name(MARKET), source)]);
        World { _folder: folder, engine, book, market, sources, http, workers: Vec::new() }
    }

    /// One more worker in this process.
    pub(crate) fn work(&mut self) {
        let collects = self.collects();
        self.work_as(collects);
    }

    /// One whose collections are handled by this.
    pub(crate) fn work_as(&mut self, collects: Arc<dyn Handler>) {
        let own = |handler| OwnHandler { handler, time_limit: None };
        let values = Values { book: self.book.clone(), rules: ValueRules::default() };
        let handlers = BTreeMap::from([
            (queue(COLLECT), own(collects.clone())),
            (queue(COLLECT_TEST), own(collects)),
            (queue(COLLECT_VALUE), own(Arc::new(values))),
        ]);
        let options = WorkerOptions { handlers, ..WorkerOptions::default() };
        let worker = Worker::new(self.engine.clone(), options).unwrap();
        let shutdown = Shutdown::new();
        let asked = shutdown.clone();
        let task = tokio::spawn(async move {
            worker.run(asked).await;
        });
        self.workers.push((shutdown, task));
    }

    pub(crate) fn collects(&self) -> Arc<dyn Handler> {
        Arc::new(Collects {
            engine: self.engine.clone(),
            book: self.book.clone(),
            http: self.http.clone(),
            sources: Arc::new(self.sources.clone()),
        })
    }

    /// All workers are gone at once, as if their process were: their leases stay.
    pub(crate) async fn kill(&mut self) {
        for (_, task) in self.workers.drain(..) {
            task.abort();
            let _ = task.await;
        }
    }

    pub(crate) async fn add(&self, id: &str, about: About) -> Intake {
        let intake = intake("", id, about);
        assert_eq!(self.book.add(std::slice::from_ref(&intake)).await.unwrap(), 1);
        intake
    }

    /// Asks for one intake at the market.
    pub(crate) async fn ask(&self, intake: &str) -> Receipt {
        self.ask_with(intake, &BTreeMap::new()).await
    }

    pub(crate) async fn ask_with(&self, intake: &str, params: &BTreeMap<String, String>) -> Receipt {
        let event = request::event(&Tenant::none(), intake, &name(MARKET), params).unwrap();
        self.send(event).await
    }

    pub(crate) async fn send(&self, event: Incoming) -> Receipt {
        self.engine.append(vec![event]).await.unwrap().remove(0)
    }

    /// Waits for the end of the run of an event in this lane.
    pub(crate) async fn ended(&self, queue_name: &str, key: &str, receipt: &Receipt) -> RunDetail {
        let lane = LaneKey::new(queue(queue_name), Key::new(key).unwrap());
        let waited = self.engine.wait(lane, receipt.event_id.clone(), PATIENCE).await.unwrap();
        waited.run().unwrap_or_else(|| panic!("waited in vain for {key}: {waited:?}")).clone()
    }

    /// Asks for one intake at the market and waits until that is done.
    pub(crate) async fn collect(&self, intake: &str) -> RunDetail {
        let receipt = self.ask(intake).await;
        let run = self.ended(COLLECT, &format!("{intake}:{MARKET}"), &receipt).await;
        assert_eq!(run.row.state, RunState::Succeeded, "{:?}", run.row.error);
        run
    }

    pub(crate) async fn points(&self, intake: &str) -> Vec<Point> {
        let filter = PointFilter {
            tenant: Tenant::none(),
            intake: intake.to_owned(),
            source: None,
            cursor: None,
            limit: 1_000,
        };
        self.book.points(&filter).await.unwrap().items
    }

    pub(crate) async fn valued(&self, intake: &str) -> Option<Valued> {
        self.book.valuation(&Tenant::none(), intake).await.unwrap()
    }

    pub(crate) async fn source(&self) -> SourceRow {
        let filter = SourceFilter { name: Some(name(MARKET)), limit: 1, ..SourceFilter::default() };
        self.engine.sources(filter).await.unwrap().items.remove(0)
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
        assert_eq!(self.book.duplicates().await.unwrap(), [], "no point is there twice");
    }
}

/// A handler that does all of its work and then dies with its worker, before it could say so.
pub(crate) struct Dying(pub(crate) Arc<dyn Handler>, pub(crate) Arc<AtomicU64>);

#[async_trait]
impl Handler for Dying {
    async fn handle(&self, run: &Run) -> Outcome {
        self.0.handle(run).await;
        self.1.fetch_add(1, Ordering::SeqCst);
        std::future::pending().await
    }
}

pub(crate) fn name(text: &str) -> SourceName {
    SourceName::new(text).unwrap()
}

pub(crate) fn intake(tenant: &str, id: &str, about: About) -> Intake {
    let at = Timestamp::from_millis(1_760_000_000_000);
    Intake::new(Tenant::new(tenant).unwrap(), id, about, Currency::USD, at).unwrap()
}

pub(crate) fn series(text: &str) -> About {
    About { series: Some(text.to_owned()), ..About::default() }
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
    let own = format!("prices{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::SeqCst));
    match kind {
        Kind::Sqlite => format!("sqlite:{}", folder.path().join("q.db").display()),
        Kind::Postgres => {
            let url = quell_test_servers::postgres_url();
            let joint = if url.contains('?') { '&' } else { '?' };
            format!("{url}{joint}pool=6&schema={own}")
        }
    }
}

/// A lease so short that a dead worker is noticed while a test waits.
fn settings(store: &str, sources: &str) -> Settings {
    let text = format!(
        "[queues.collect]\nwindow = \"none\"\nmax_events = 1\nlease = \"2s\"\n\
         retry = {{ base = \"100ms\", attempts = 4, jitter = 0.0 }}\n\
         [queues.\"collect.test\"]\nwindow = \"none\"\nmax_events = 1\nretry = {{ attempts = 1 }}\n\
         [queues.\"collect.value\"]\nwindow = {{ quiet = \"300ms\", max_wait = \"3s\" }}\n{sources}"
    );
    let config = Config::parse(&text, "quell.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
    let config = Some((config, SourceText::new("quell.toml", &text)));
    let flags = Flags { store: Some(store.to_owned()), ..Flags::default() };
    let env = BTreeMap::new();
    let input = SettingsInput { config, env: &env, flags };
    Settings::resolve(input).unwrap_or_else(|error| panic!("{error}\n{text}"))
}
