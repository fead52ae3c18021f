//! Answers that several collections share.

use std::collections::BTreeMap;
use std::time::Duration;

use quell::clock;
use quell_collectors::COLLECT;
use serde_json::json;

use crate::market::{Fault, item};
use crate::world::{Kind, World, series};

pub(crate) async fn an_answer_from_the_cache_touches_neither_bucket_nor_breaker(kind: Kind) {
    // Two tokens, and the next one in a minute.
    let mut world = World::with(kind, "[sources.market]\nrate_limit_per_minute = 1\nburst = 2\n").await;
    world.work();
    world.market.offer(vec![vec![item("1", "Silver Eagle", "30.00")]]);
    world.add("one", series("Silver Eagle")).await;
    world.add("two", series("  SILVER\u{a0}eagle")).await;
    let first = world.collect("one").await;
    assert_eq!(first.result.unwrap()["cached"], false);
    let before = world.source().await;
    assert_eq!(before.tokens, Some(1));
    // One request more would be a fault.
    world.market.fail(1, Fault::Status(500));
    for _ in 0..5 {
        let run = world.collect("two").await;
        assert_eq!((run.row.attempts, run.usage.get("requests")), (1, Some(&0.0)));
        assert_eq!(run.result.unwrap()["cached"], true);
    }
    let after = world.source().await;
    assert_eq!((after.tokens, after.last_success_at), (before.tokens, before.last_success_at));
    assert_eq!((after.last_failure_at, after.failure_streak), (None, 0));
    assert_eq!(world.market.asked().len(), 1);
    world.idle().await;
    assert_eq!(world.points("one").await, world.points("two").await);
}

pub(crate) async fn two_intakes_with_equal_attributes_are_fetched_once(kind: Kind) {
    let world = World::new(kind).await;
    world
        .market
        .offer(vec![vec![item("1", "Silver Eagle", "30.00")], vec![item("2", "Silver Eagle", "31.00")]]);
    world.market.slow_down(Duration::from_millis(300));
    let mut receipts = Vec::new();
    for id in ["a", "b", "c", "d"] {
        world.add(id, series("Silver Eagle")).await;
    }
    for id in ["a", "b", "c", "d"] {
        receipts.push((format!("{id}:market"), world.ask(id).await));
    }
    let mut fetched = 0;
    for (key, receipt) in &receipts {
        let run = world.ended(COLLECT, key, receipt).await;
        let result = run.result.unwrap();
        assert_eq!((&result["new"], &result["pages"]), (&json!(2), &json!(2)));
        fetched += usize::from(result["cached"] == false);
    }
    assert_eq!(fetched, 1, "the others waited for the one that fetched");
    assert_eq!(world.market.asked(), ["1", "2"]);
}

pub(crate) async fn other_values_in_a_request_are_another_question(kind: Kind) {
    let world = World::new(kind).await;
    world.market.offer(vec![vec![item("1", "Silver Eagle", "30.00")]]);
    world.add("eagle", series("Silver Eagle")).await;
    for (value, asked) in [(None, 1), (Some("a"), 2), (Some("b"), 3), (Some("a"), 3), (None, 3)] {
        let params: BTreeMap<String, String> =
            value.map(|value| ("q".into(), value.into())).into_iter().collect();
        let receipt = world.ask_with("eagle", &params).await;
        let run = world.ended(COLLECT, "eagle:market", &receipt).await;
        assert!(run.result.is_some(), "{:?}", run.row.error);
        assert_eq!(world.market.asked().len(), asked, "{value:?}");
    }
}

pub(crate) async fn a_kept_answer_is_as_old_as_its_first_page(kind: Kind) {
    let world = World::new(kind).await;
    world.market.offer(vec![vec![item("1", "Silver Eagle", "30.00")]]);
    world.add("one", series("Silver Eagle")).await;
    world.add("two", series("Silver Eagle")).await;
    world.collect("one").await;
    let first = world.points("one").await.remove(0).last_seen_at;
    clock::sleep(Duration::from_millis(50)).await;
    world.collect("one").await;
    world.collect("two").await;
    let points = [world.points("one").await.remove(0), world.points("two").await.remove(0)];
    for point in points {
        assert_eq!((point.first_seen_at, point.last_seen_at), (first, first));
    }
}
