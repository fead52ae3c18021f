//! The adapters behind the real handlers: what is stored in the end, and what is not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::{Key, LaneKey, SourceName, Tenant};
use quell::quell_core::inspect::RunDetail;
use quell::quell_core::lifecycle::RunState;
use quell::{Shutdown, Worker, WorkerOptions};
use quell_collectors::book::{Book, Point, PointFilter};
use quell_collectors::intake::{About, Intake};
use quell_collectors::local::{Catalogue, Endpoint, Fault};
use quell_collectors::money::Currency;
use quell_collectors::{COLLECT, live, queue, request};

use crate::ebay::{recorded, six};
use crate::world::{PATIENCE, World, morgan};

struct Working {
    world: World,
    book: Book,
    shutdown: Shutdown,
}

impl Drop for Working {
    fn drop(&mut self) {
        self.shutdown.request();
    }
}

impl Working {
    async fn start(world: World) -> Working {
        let book = Book::open(world.engine.store().clone()).await.unwrap();
        let settings = world.engine.settings();
        let prices = settings.prices.as_ref().unwrap();
        let rules = live::value_rules(&prices.value);
        let sources = Arc::new(world.sources.clone());
        let handlers = quell_collectors::handlers(&world.engine, &book, &sources, &rules, &world.http);
        assert_eq!(handlers.len(), 3, "the configuration gives all three queues to the application");
        let options = WorkerOptions { handlers, ..WorkerOptions::default() };
        let worker = Worker::new(world.engine.clone(), options).unwrap();
        let shutdown = Shutdown::new();
        let asked = shutdown.clone();
        tokio::spawn(async move {
            worker.run(asked).await;
        });
        Working { world, book, shutdown }
    }

    async fn collect(&self, source: &str, id: &str, about: About) -> RunDetail {
        let at = Timestamp::from_millis(1_760_000_000_000);
        let intake = Intake::new(Tenant::none(), id, about, Currency::USD, at).unwrap();
        self.book.add(std::slice::from_ref(&intake)).await.unwrap();
        let source = SourceName::new(source).unwrap();
        let event = request::event(&Tenant::none(), id, &source, &BTreeMap::new()).unwrap();
        let receipt = self.world.engine.append(vec![event]).await.unwrap().remove(0);
        let lane = LaneKey::new(queue(COLLECT), Key::new(intake.lane(&source)).unwrap());
        let waited = self.world.engine.wait(lane, receipt.event_id, PATIENCE).await.unwrap();
        waited.run().unwrap_or_else(|| panic!("waited in vain for {id}: {waited:?}")).clone()
    }

    async fn points(&self, id: &str) -> Vec<Point> {
        let (tenant, intake) = (Tenant::none(), id.to_owned());
        let filter = PointFilter { tenant, intake, source: None, cursor: None, limit: 1_000 };
        self.book.points(&filter).await.unwrap().items
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_listing_of_the_recorded_pages_is_one_point() {
    let working = Working::start(World::with(recorded(), six).await).await;
    let eagle =
        About { year: Some("2024".into()), series: Some("American Silver Eagle".into()), ..About::default() };
    let run = working.collect("ebay", "eagle", eagle).await;
    assert_eq!(run.row.state, RunState::Succeeded, "{:?}", run.row.error);
    let mut keys: Vec<String> =
        working.points("eagle").await.into_iter().map(|point| point.dedupe_key).collect();
    keys.sort();
    assert_eq!(keys, ["ext_110000000001", "ext_110000000003", "ext_110000000008"]);
    assert_eq!(working.book.duplicates().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn both_sources_fill_the_book_and_repeat_nothing() {
    let working = Working::start(World::new(Catalogue::generated(30)).await).await;
    for source in ["ebay", "shop"] {
        let run = working.collect(source, source, morgan()).await;
        assert_eq!(run.row.state, RunState::Succeeded, "{:?}", run.row.error);
        // 30 listings, ten of them twice.
        assert_eq!(working.points(source).await.len(), 30, "{source}");
    }
    assert_eq!(working.book.duplicates().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_fails_once_and_stores_nothing() {
    let world = World::with(Catalogue::generated(30), |settings| {
        let declared =
            settings.replace("[prices.sources.shop]\n", "[prices.sources.shop]\ncurrency = \"USD\"\n");
        declared.replace("q={query}", "q={query}&y={year}")
    })
    .await;
    let working = Working::start(world).await;
    let market = &working.world.market;
    for (name, endpoint, trap, problem) in [
        (
            "redirect",
            Endpoint::Shop,
            Fault::Redirect("https://login.example/".into()),
            "leads to login.example",
        ),
        ("nan", Endpoint::Shop, Fault::Nan, "NaN"),
        ("nan-text", Endpoint::Search, Fault::NanText, "\"NaN\" is no price"),
        ("currency", Endpoint::Shop, Fault::Currency("EUR".into()), "declared to be in USD"),
        ("currency-2", Endpoint::Search, Fault::Currency("EUR".into()), "declared to be in USD"),
    ] {
        let source = if endpoint == Endpoint::Shop { "shop" } else { "ebay" };
        market.fail_always(endpoint, Some(trap));
        let before = market.count(endpoint);
        let run = working.collect(source, name, morgan()).await;
        market.fail_always(endpoint, None);
        assert_eq!(run.row.state, RunState::Failed, "{name}");
        let said = run.row.error.unwrap_or_default();
        assert!(said.contains(problem), "{name}: {said}");
        assert_eq!(market.count(endpoint), before + 1, "{name}: nobody tries again what cannot help");
        assert_eq!(working.points(name).await, [], "{name}");
    }
    let before = market.asked().len();
    let run = working.collect("shop", "no-year", About { year: None, ..morgan() }).await;
    assert_eq!(run.row.state, RunState::Failed);
    assert!(run.row.error.unwrap_or_default().contains("no value for {year}"));
    assert_eq!(market.asked().len(), before, "nobody was asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_broke_off_is_asked_again() {
    let working = Working::start(World::new(Catalogue::generated(30)).await).await;
    let market = &working.world.market;
    for (name, endpoint, trap) in [
        ("half", Endpoint::Shop, Fault::Half),
        ("page", Endpoint::Shop, Fault::NotJson),
        ("lost", Endpoint::Search, Fault::Lost),
        ("error", Endpoint::Search, Fault::ServerError),
        ("busy", Endpoint::Search, Fault::TooMany(Some(Duration::from_secs(1)))),
        ("token", Endpoint::Token, Fault::ServerError),
    ] {
        if endpoint == Endpoint::Token {
            market.withdraw_tokens();
        }
        market.fail_next(endpoint, trap);
        let source = if endpoint == Endpoint::Shop { "shop" } else { "ebay" };
        let run = working.collect(source, name, About { title: Some(name.into()), ..morgan() }).await;
        assert_eq!(run.row.state, RunState::Succeeded, "{name}: {:?}", run.row.error);
        assert_eq!(working.points(name).await.len(), 30, "{name}");
    }
}
