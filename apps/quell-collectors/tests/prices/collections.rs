//! Collections from the event to the value: what is stored, what is not, and why.

use std::time::Duration;

use quell::Incoming;
use quell::quell_core::event::{Payload, Tenant};
use quell::quell_core::inspect::RunFilter;
use quell::quell_core::lifecycle::RunState;
use quell_collectors::book::Listing;
use quell_collectors::intake::About;
use quell_collectors::value::{Counted, Estimate};
use quell_collectors::{COLLECT, COLLECT_TEST, COLLECT_VALUE, queue};
use serde_json::{Value, json};

use crate::market::{Fault, item};
use crate::world::{Kind, MARKET, World, name, series, until};

fn eagles() -> Vec<Vec<Value>> {
    let untitled = json!({ "title": "", "price": "1.00", "currency": "USD", "id": "9" });
    vec![
        vec![
            item("1", "2024 American Silver Eagle 1 oz", "31.50"),
            item("2", "Silver Eagle", "29.99"),
            item("3", "1 oz Gold Maple Leaf", "2450.00"),
            item("1", "American Silver EAGLE", "31.50"),
        ],
        vec![
            item("4", "American Silver Eagle replica", "5.00"),
            untitled,
            item("5", "American Silver Eagle", "33.00"),
        ],
    ]
}

pub(crate) async fn pages_become_points_and_one_value(kind: Kind) {
    let world = World::new(kind).await;
    world.market.offer(eagles());
    world.add("eagle", series("American Silver Eagle")).await;
    let run = world.collect("eagle").await;
    assert_eq!(
        run.result.unwrap(),
        json!({ "found": 7, "new": 3, "replaced": 0, "seen": 0, "unmatched": 2, "skipped": 1, "pages": 2, "cached": false })
    );
    assert_eq!(run.usage.get("requests"), Some(&2.0));
    assert_eq!(world.market.asked(), ["1", "2"]);
    let mut points: Vec<(String, u8, i64)> = world
        .points("eagle")
        .await
        .iter()
        .map(|point| (point.dedupe_key.clone(), point.match_strength, point.current().cents))
        .collect();
    points.sort();
    let expected = [("ext_1", 100, 3150), ("ext_2", 66, 2999), ("ext_5", 100, 3300)];
    assert_eq!(points, expected.map(|(key, strength, cents)| (key.to_owned(), strength, cents)));
    until("it is valued", async || world.valued("eagle").await.is_some()).await;
    let valued = world.valued("eagle").await.unwrap().valuation;
    assert_eq!(valued.estimate, Some(Estimate { cents: 3150, low_cents: 3150, high_cents: 3300 }));
    assert_eq!(valued.counted, Counted { sold: 0, ask: 3, bid: 0 });
    world.idle().await;
    let source = world.source().await;
    assert!(source.last_success_at.is_some() && source.failure_streak == 0, "{source:?}");
}

pub(crate) async fn what_is_met_again_is_seen_and_not_stored_twice(kind: Kind) {
    let mut world = World::with(kind, "[sources.market]\ncache = false\n").await;
    world.work();
    world.market.offer(vec![vec![item("1", "Silver Eagle", "30.00"), item("2", "Eagle", "31.00")]]);
    world.add("eagle", series("Silver Eagle")).await;
    world.collect("eagle").await;
    world.market.offer(vec![vec![
        item("1", "Silver Eagle", "28.00"),
        item("2", "Silver Eagle", "31.00"),
        item("3", "Silver Eagle", "32.00"),
    ]]);
    let run = world.collect("eagle").await;
    let result = run.result.unwrap();
    assert_eq!((&result["new"], &result["replaced"], &result["seen"]), (&json!(1), &json!(1), &json!(1)));
    let points = world.points("eagle").await;
    let cheaper = points.iter().find(|point| point.dedupe_key == "ext_1").unwrap();
    assert_eq!((cheaper.price.cents, cheaper.current().cents, cheaper.observations), (3000, 2800, 2));
    let better = points.iter().find(|point| point.dedupe_key == "ext_2").unwrap();
    assert_eq!((better.title.as_str(), better.match_strength), ("Silver Eagle", 100));
    world.idle().await;
    let valued = world.valued("eagle").await.unwrap().valuation;
    assert_eq!(valued.estimate.unwrap().cents, 3100, "the latest price of each counts");
    let last = world.book.last_collected(Some(&Tenant::none()), 5).await.unwrap();
    assert_eq!((last.len(), last[0].new), (1, 1), "the last collection of the lane");
}

pub(crate) async fn a_run_that_fails_stores_nothing(kind: Kind) {
    let world = World::new(kind).await;
    world.add("eagle", series("Silver Eagle")).await;
    let euros = json!({ "id": "2", "title": "Silver Eagle", "price": "5.00", "currency": "EUR" });
    let cases = [
        (item("2", "Silver Eagle", "NaN"), "\"NaN\" is no price"),
        (item("2", "Silver Eagle", "1,000.00"), "is no price"),
        (euros, "market has a price in EUR, and is declared to be in USD"),
    ];
    for (bad, part) in cases {
        world.market.offer(vec![vec![item("1", "Silver Eagle", "30.00")], vec![bad]]);
        let receipt = world.ask("eagle").await;
        let run = world.ended(COLLECT, "eagle:market", &receipt).await;
        let error = run.row.error.unwrap_or_default();
        assert_eq!((run.row.state, run.row.attempts), (RunState::Failed, 1), "{error}");
        assert!(error.contains(part), "{error}");
    }
    world.market.offer(vec![vec![item("1", "Silver Eagle", "30.00")], vec![]]);
    for fault in [404, 302, 400] {
        world.market.fail(2, Fault::Status(fault));
        let receipt = world.ask("eagle").await;
        let run = world.ended(COLLECT, "eagle:market", &receipt).await;
        assert_eq!(run.row.state, RunState::Failed);
        assert!(run.row.error.unwrap().contains(&fault.to_string()));
    }
    world.market.fail(2, Fault::Circle);
    let receipt = world.ask("eagle").await;
    let run = world.ended(COLLECT, "eagle:market", &receipt).await;
    assert_eq!(run.row.state, RunState::Failed);
    assert!(run.row.error.unwrap().contains("page 2 of market says that it is followed by itself"));
    world.idle().await;
    assert!(world.points("eagle").await.is_empty());
    assert_eq!(world.book.collected(&Tenant::none(), "eagle").await.unwrap(), []);
    assert_eq!(world.book.valuations(&Listing::default()).await.unwrap().items, []);
    assert_eq!(world.source().await.cached, 0, "and nobody else gets half an answer");
    assert_eq!(world.source().await.failure_streak, 0, "the source is not at fault");
}

pub(crate) async fn a_page_that_is_too_large_to_be_remembered_fails_with_advice(kind: Kind) {
    let world = World::new(kind).await;
    world.add("eagle", series("Silver Eagle")).await;
    let title = format!("Silver Eagle {}", "x".repeat(400));
    let items = (0..800).map(|n| item(&n.to_string(), &title, "30.00")).collect();
    world.market.offer(vec![items]);
    let receipt = world.ask("eagle").await;
    let run = world.ended(COLLECT, "eagle:market", &receipt).await;
    let error = run.row.error.unwrap_or_default();
    assert_eq!((run.row.state, run.row.attempts), (RunState::Failed, 1), "{error}");
    assert!(
        error.starts_with("page 1 of market is larger than a run remembers: ask for fewer items"),
        "{error}"
    );
    assert!(world.points("eagle").await.is_empty());
}

pub(crate) async fn a_source_whose_pages_never_end_is_left_after_the_most(kind: Kind) {
    let mut world = World::with(kind, "[sources.market]\n").await;
    world.sources.get_mut(&name(MARKET)).unwrap().max_pages = 3;
    world.work();
    world.add("eagle", series("Silver Eagle")).await;
    let pages = (0..10).map(|n| vec![item(&n.to_string(), "Silver Eagle", "30.00")]).collect();
    world.market.offer(pages);
    let run = world.collect("eagle").await;
    assert_eq!(run.result.unwrap()["pages"], 3);
    assert_eq!(world.market.asked(), ["1", "2", "3"]);
    assert_eq!(world.points("eagle").await.len(), 3);
}

pub(crate) async fn a_fault_of_the_source_is_tried_again_from_the_page_it_came_to(kind: Kind) {
    let world = World::new(kind).await;
    world.add("eagle", series("Silver Eagle")).await;
    let pages = [("1", "30.00"), ("2", "31.00"), ("3", "32.00")];
    world.market.offer(pages.map(|(id, price)| vec![item(id, "Silver Eagle", price)]).into());
    world.market.fail(2, Fault::Status(503));
    world.market.fail(3, Fault::Status(500));
    let run = world.collect("eagle").await;
    assert_eq!(world.market.asked(), ["1", "2", "2", "3", "3"]);
    assert_eq!(run.row.attempts, 3);
    assert_eq!(run.result.unwrap()["new"], 3);
    let source = world.source().await;
    assert!(source.last_failure_at.is_some() && source.failure_streak == 0, "{source:?}");
}

pub(crate) async fn requests_that_cannot_be_right_fail_with_a_reason(kind: Kind) {
    let mut world = World::with(kind, "[sources.market]\n[sources.bazaar]\n").await;
    world.work();
    world.add("eagle", series("Silver Eagle")).await;
    let good = |intake: &str, source: &str| json!({ "intake_id": intake, "source_id": source });
    let cases = [
        ("ghost:market", Some("market"), good("ghost", "market"), "there is no intake \"ghost\""),
        ("eagle:bazaar", Some("bazaar"), good("eagle", "bazaar"), "there is no source \"bazaar\""),
        ("eagle", Some("market"), good("eagle", "market"), "send it with key \"eagle:market\""),
        ("eagle:bazaar", Some("bazaar"), good("eagle", "market"), "send it with key \"eagle:market\""),
        ("eagle:market", None, good("eagle", "market"), "not governed by its source"),
        ("eagle:market", Some("market"), json!({ "intake": "eagle" }), "the payload is no request"),
        ("eagle:market", Some("market"), json!("all"), "the payload is no request"),
    ];
    for (key, source, payload, part) in cases {
        let event = Incoming::new(COLLECT, key, Payload::of(&payload)).unwrap();
        let event = Incoming { source: source.map(name), ..event };
        let receipt = world.send(event).await;
        let run = world.ended(COLLECT, key, &receipt).await;
        let error = run.row.error.unwrap_or_default();
        assert_eq!((run.row.state, run.row.attempts), (RunState::Failed, 1), "{payload}: {error}");
        assert!(error.contains(part), "{payload}: {error}");
    }
    assert!(world.market.asked().is_empty(), "nobody was asked");
    assert_eq!(world.source().await.last_success_at, None);
}

pub(crate) async fn a_test_shows_what_would_be_stored_and_stores_nothing(kind: Kind) {
    let world = World::new(kind).await;
    world.market.offer(eagles());
    world.add("eagle", series("American Silver Eagle")).await;
    let thing = json!({ "source_id": MARKET, "about": { "series": "American Silver Eagle" } });
    let known = json!({ "source_id": MARKET, "intake_id": "eagle" });
    for (n, payload) in [thing, known].into_iter().enumerate() {
        let event = Incoming::new(COLLECT_TEST, MARKET, Payload::of(&payload)).unwrap();
        let receipt = world.send(event.source(MARKET).unwrap()).await;
        let run = world.ended(COLLECT_TEST, MARKET, &receipt).await;
        assert_eq!(run.row.state, RunState::Succeeded, "{:?}", run.row.error);
        let result = run.result.unwrap();
        let counts = ["found", "points", "unmatched", "skipped", "pages"].map(|name| result[name].as_u64());
        assert_eq!(counts, [7, 3, 2, 1, 2].map(Some));
        let items = result["items"].as_array().unwrap();
        assert_eq!((&items[0]["match_strength"], &items[0]["price"]), (&json!(100), &json!("31.50 USD")));
        assert_eq!(items[4]["left_out"], "it has \"replica\" in its title");
        assert_eq!(world.market.asked().len(), 2 * (n + 1), "a test never asks the cache");
    }
    world.market.fail(1, Fault::Status(500));
    let payload = json!({ "source_id": MARKET, "intake_id": "eagle" });
    let event = Incoming::new(COLLECT_TEST, MARKET, Payload::of(&payload)).unwrap();
    let receipt = world.send(event.source(MARKET).unwrap()).await;
    let run = world.ended(COLLECT_TEST, MARKET, &receipt).await;
    assert_eq!(run.row.state, RunState::Failed, "there is one try");
    assert!(world.points("eagle").await.is_empty() && world.valued("eagle").await.is_none());
    assert_eq!(world.source().await.cached, 0);
}

pub(crate) async fn twenty_equal_events_are_twenty_runs_one_after_the_other(kind: Kind) {
    let mut world = World::with(kind, "[sources.market]\ncache = false\n").await;
    world.work();
    world.work();
    world.market.offer(vec![vec![item("1", "Silver Eagle", "30.00")]]);
    world.market.slow_down(Duration::from_millis(20));
    let about = About { year: None, ..series("Silver Eagle") };
    world.add("eagle", about).await;
    let mut receipts = Vec::new();
    for _ in 0..20 {
        receipts.push(world.ask("eagle").await);
    }
    let mut runs = Vec::new();
    for receipt in &receipts {
        runs.push(world.ended(COLLECT, "eagle:market", receipt).await);
    }
    runs.dedup_by_key(|run| run.row.id);
    assert_eq!(runs.len(), 20, "each request is its own run");
    assert!(runs.iter().all(|run| run.row.state == RunState::Succeeded && run.row.attempts == 1));
    assert_eq!((world.market.asked().len(), world.market.most_at_once()), (20, 1));
    world.idle().await;
    assert_eq!(world.points("eagle").await.len(), 1);
    let filter = RunFilter { queue: Some(queue(COLLECT_VALUE)), limit: 100, ..RunFilter::default() };
    let values = world.engine.runs(filter).await.unwrap().items.len();
    assert!((1..=20).contains(&values), "values are made after bursts: {values}");
}
