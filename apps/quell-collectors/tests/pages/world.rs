//! A server with the pages of prices on a store of its own, and nobody who collects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quell::Engine;
use quell::config::{Config, Flags, Settings, SettingsInput, SourceText};
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::{SourceName, Tenant};
use quell_collectors::book::{Book, Collection, NewPoint};
use quell_collectors::found::{Found, PriceType};
use quell_collectors::intake::{About, Intake};
use quell_collectors::money::{Currency, Money};
use quell_collectors::pages::Pages;
use quell_collectors::value::{ValueRules, value};
use quell_collectors::{dedupe, request};
use quell_server::pages::AppPage;
use quell_server::{Server, ServerOptions};
use reqwest::{Client, StatusCode};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Nobody takes what is asked for, so it waits.
const CONFIG: &str = "[queues.collect]\nhandler = \"pull\"\n[sources.unrelated]\n[prices.sources.shop]\n\
    url = \"https://shop.example.com/?q={query}\"\nitems = \"/items\"\nprice_type = \"ask\"\ncurrency = \"USD\"\n\
    fields = { id = \"/id\", title = \"/title\", price = \"/price\" }\n";

pub(crate) struct World {
    pub(crate) url: String,
    pub(crate) engine: Engine,
    book: Book,
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
        let book = Book::open(engine.store().clone()).await.unwrap();
        let mut options = ServerOptions::at("127.0.0.1:0");
        options.pages.push(AppPage::of(Arc::new(Pages::new(engine.clone()))));
        let server = Server::bind(engine.clone(), options).await.unwrap();
        let (url, stop) = (format!("http://{}", server.address()), CancellationToken::new());
        tokio::spawn(server.run(stop.clone(), Duration::from_secs(5)));
        // Whoever sets it first, it is the same one: nothing here speaks TLS.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().timeout(crate::driver::PATIENCE).build().unwrap();
        World { url, engine, book, client, stop, _folder: folder }
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

    pub(crate) async fn add(&self, intake: &Intake) {
        assert_eq!(self.book.add(std::slice::from_ref(intake)).await.unwrap(), 1);
    }

    /// As a run would have stored it.
    pub(crate) async fn collect(&self, intake: &Intake, items: &[Found]) {
        let (at, source) = (self.now().await, shop());
        let point =
            |found: &Found| NewPoint { key: dedupe::key(found, at), found: found.clone(), strength: 90 };
        let points: Vec<NewPoint> = items.iter().map(point).collect();
        let collection = Collection {
            intake,
            source: &source,
            run: "run_1_1",
            token: 1,
            at,
            points: &points,
            found: items.len() as u64,
            unmatched: 0,
            skipped: 0,
            pages: 1,
            cached: false,
        };
        self.book.store(&collection).await.unwrap();
    }

    pub(crate) async fn value(&self, intake: &Intake) {
        let points = self.book.priced(intake).await.unwrap();
        let valuation = value(&points, intake.currency, &ValueRules::default(), self.now().await);
        self.book.put_valuation(intake, &valuation, "run_1_2", 1).await.unwrap();
    }

    /// Asks for it, and nobody answers.
    pub(crate) async fn ask(&self, intake: &Intake) {
        let event = request::event(&intake.tenant, &intake.id, &shop(), &BTreeMap::new()).unwrap();
        self.engine.append(vec![event]).await.unwrap();
    }

    async fn now(&self) -> Timestamp {
        self.engine.health().await.unwrap().now
    }
}

fn shop() -> SourceName {
    SourceName::new("shop").unwrap()
}

pub(crate) fn coin(id: &str, title: &str) -> Intake {
    let title: String = title.chars().filter(|letter| !letter.is_control()).collect();
    let about = About { title: Some(title), ..About::default() };
    Intake::new(Tenant::none(), id, about, Currency::USD, Timestamp::default()).unwrap()
}

pub(crate) fn found(id: &str, title: &str, cents: i64) -> Found {
    Found {
        external_id: Some(id.to_owned()),
        url: Some(format!("https://shop.example.com/{id}")),
        title: title.to_owned(),
        price: Money { cents, currency: Currency::USD },
        original: None,
        price_type: PriceType::Ask,
        date: None,
    }
}
