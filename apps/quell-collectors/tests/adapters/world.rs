//! A store and a market of its own for each test, and runs that ask it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quell::config::{Config, Flags, Settings, SettingsInput, SourceText};
use quell::fetch::{FetchError, Fetcher, Http};
use quell::quell_core::batch::WorkerId;
use quell::quell_core::event::SourceName;
use quell::quell_core::inspect::{SourceFilter, SourceRow};
use quell::quell_core::source::FaultKind;
use quell::quell_core::store::{ClaimQueues, ClaimRequest, RunPolicy};
use quell::{Engine, Incoming};
use quell_collectors::PriceSource;
use quell_collectors::adapter::{AdapterError, Page, Query};
use quell_collectors::found::Found;
use quell_collectors::intake::About;
use quell_collectors::live;
use quell_collectors::local::{Catalogue, LocalMarket};
use serde_json::Value;

/// Nothing here takes as long, unless the machine is in trouble.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    _folder: tempfile::TempDir,
    pub(crate) engine: Engine,
    pub(crate) market: LocalMarket,
    pub(crate) sources: BTreeMap<SourceName, PriceSource>,
    pub(crate) http: Http,
    runs: AtomicU64,
}

impl World {
    pub(crate) async fn new(catalogue: Catalogue) -> World {
        World::with(catalogue, |settings| settings).await
    }

    /// With the market's own settings changed, and nothing that limits it.
    pub(crate) async fn with(catalogue: Catalogue, change: impl Fn(String) -> String) -> World {
        let folder = tempfile::tempdir().unwrap();
        let market = LocalMarket::start(catalogue).await.unwrap();
        let text = format!(
            "{}[sources.ebay]\n[sources.shop]\n[queues.collect]\nlease = \"2s\"\n\
             retry = {{ base = \"100ms\", attempts = 3, jitter = 0.0 }}\n",
            change(market.settings())
        );
        let store = format!("sqlite:{}", folder.path().join("q.db").display());
        let settings = settings(&text, &store).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let sources = live::sources(settings.prices.as_ref().unwrap(), &env()).unwrap();
        let http = quell_collectors::client(&settings).unwrap();
        let engine = Engine::open(settings).await.unwrap();
        engine.apply_sources().await.unwrap();
        World { _folder: folder, engine, market, sources, http, runs: AtomicU64::new(0) }
    }

    /// The client of one more run that asks this source.
    pub(crate) async fn fetcher(&self, source: &str) -> Fetcher {
        let key = format!("run-{}", self.runs.fetch_add(1, Ordering::SeqCst));
        let event =
            Incoming::new("collect", &key, quell::quell_core::event::Payload::of(&Value::Null)).unwrap();
        self.engine.append(vec![event.source(source).unwrap()]).await.unwrap();
        let request = ClaimRequest {
            worker: Arc::new(WorkerId { name: "w".into(), pid: 1, start: "a".into() }),
            queues: ClaimQueues::Any(Arc::new(RunPolicy::default())),
            tenant: None,
            max: 1,
            reclaim: true,
            claim_id: None,
        };
        let batch = self.engine.store().claim(request).await.unwrap().batches.pop().unwrap();
        let http = self.http.meaning(self.source(source).adapter.base_url());
        Fetcher::new(http, self.engine.store().clone(), &batch).past_the_cache()
    }

    pub(crate) fn source(&self, name: &str) -> &PriceSource {
        &self.sources[&SourceName::new(name).unwrap()]
    }

    /// One page, asked for by a run of its own.
    pub(crate) async fn page(
        &self,
        source: &str,
        about: &About,
        from: Option<&str>,
    ) -> Result<Page, AdapterError> {
        let fetcher = self.fetcher(source).await;
        let query = Query { about, params: &BTreeMap::new() };
        let page = self.source(source).adapter.page(&fetcher, query, from);
        tokio::time::timeout(PATIENCE, page).await.expect("it is answered in time")
    }

    /// All pages, as far as they lead.
    pub(crate) async fn items(&self, source: &str, about: &About) -> (Vec<Found>, u32) {
        let (mut items, mut pages, mut from) = (Vec::new(), 0, None);
        loop {
            let page = self.page(source, about, from.as_deref()).await.unwrap();
            (items, pages) = (items.into_iter().chain(page.items).collect(), pages + 1);
            match page.next {
                Some(next) => from = Some(next),
                None => return (items, pages),
            }
            assert!(pages < 100, "the pages have an end");
        }
    }

    pub(crate) async fn governed(&self, name: &str) -> SourceRow {
        let name = SourceName::new(name).unwrap();
        let filter = SourceFilter { name: Some(name), limit: 1, ..SourceFilter::default() };
        self.engine.sources(filter).await.unwrap().items.remove(0)
    }
}

/// The variables of the market's settings.
pub(crate) fn env() -> BTreeMap<String, String> {
    LocalMarket::env().map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

pub(crate) fn settings(text: &str, store: &str) -> Result<Settings, String> {
    let config = Config::parse(text, "quell.toml").map_err(|error| error.to_string())?;
    let config = Some((config, SourceText::new("quell.toml", text)));
    let flags = Flags { store: Some(store.to_owned()), ..Flags::default() };
    let env = BTreeMap::new();
    Settings::resolve(SettingsInput { config, env: &env, flags }).map_err(|error| error.to_string())
}

pub(crate) fn morgan() -> About {
    About {
        year: Some("1881".into()),
        mintmark: Some("S".into()),
        series: Some("Morgan Dollar".into()),
        ..About::default()
    }
}

/// The text of a permanent error; anything else ends the test.
pub(crate) fn permanent<T: std::fmt::Debug>(answer: Result<T, AdapterError>) -> String {
    match answer {
        Err(AdapterError::Permanent(text)) => text,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn transient<T: std::fmt::Debug>(answer: Result<T, AdapterError>) -> String {
    match answer {
        Err(AdapterError::Transient(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// A fault of the source that the client has reported: its kind, the time to wait and the text.
pub(crate) fn fault<T: std::fmt::Debug>(
    answer: Result<T, AdapterError>,
) -> (FaultKind, Option<Duration>, String) {
    match answer {
        Err(AdapterError::Fetch(FetchError::Fault { fault, text, reply })) => {
            assert_eq!(reply, None, "what the source wrote goes no further");
            (fault.kind, fault.retry_after, text)
        }
        other => panic!("{other:?}"),
    }
}

/// A file of `tests/fixtures/ebay`.
pub(crate) fn fixture(name: &str) -> Value {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ebay").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}
