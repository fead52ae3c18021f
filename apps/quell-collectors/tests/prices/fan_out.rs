//! One event for everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quell::Incoming;
use quell::quell_core::event::{Payload, Tenant};
use quell::quell_core::inspect::{RunDetail, RunFilter};
use quell::quell_core::lifecycle::RunState;
use quell::quell_core::store::SourceScope;
use quell_collectors::fan_out::enabled;
use quell_collectors::{COLLECT, queue};
use serde_json::json;

use crate::market::item;
use crate::world::{Dying, Kind, World, intake, name, series, until};

const SOURCES: &str = "[sources.market]\n[sources.bazaar]\n[sources.closed]\n";

async fn fair(kind: Kind) -> World {
    let mut world = World::with(kind, SOURCES).await;
    let market = world.sources[&name("market")].clone();
    world.sources.insert(name("bazaar"), market.clone());
    world.sources.insert(name("closed"), market);
    world.market.offer(vec![vec![item("1", "Silver Eagle", "30.00")]]);
    let closed = SourceScope { tenant: Tenant::none(), name: name("closed") };
    assert!(world.engine.disable_source(closed, "test").await.unwrap());
    for id in ["a", "b", "c"] {
        world.add(id, series("Silver Eagle")).await;
    }
    world.book.add(&[intake("acme", "d", series("Silver Eagle"))]).await.unwrap();
    world
}

async fn send_all(world: &World) -> RunDetail {
    let event = Incoming::new(COLLECT, "all", Payload::of(&json!({ "all": true }))).unwrap();
    let receipt = world.send(event).await;
    world.ended(COLLECT, "all", &receipt).await
}

/// The keys of all collections that have ended well.
async fn collected(world: &World) -> Vec<String> {
    world.idle().await;
    let filter = RunFilter { queue: Some(queue(COLLECT)), limit: 100, ..RunFilter::default() };
    let runs = world.engine.runs(filter).await.unwrap().items;
    assert!(runs.iter().all(|run| run.state == RunState::Succeeded), "{runs:?}");
    let mut keys: Vec<String> = runs.iter().map(|run| run.lane.key.to_string()).collect();
    keys.retain(|key| key != "all");
    keys.sort();
    keys
}

const ALL: [&str; 6] = ["a:bazaar", "a:market", "b:bazaar", "b:market", "c:bazaar", "c:market"];

pub(crate) async fn everything_is_one_event_for_each_intake_and_enabled_source(kind: Kind) {
    let mut world = fair(kind).await;
    world.work();
    let run = send_all(&world).await;
    assert_eq!(run.result.unwrap(), json!({ "intakes": 3, "sources": 2, "sent": 6, "busy": 0 }));
    assert_eq!(collected(&world).await, ALL);
    assert_eq!(world.points("a").await.len(), 2, "one of each source");
    let names: Vec<_> = world.sources.keys().cloned().collect();
    let asked = enabled(&world.engine, &Tenant::none(), &names).await.unwrap();
    assert_eq!(asked, [name("bazaar"), name("market")]);
    let other = enabled(&world.engine, &Tenant::new("acme").unwrap(), &names).await.unwrap();
    assert_eq!(other.len(), 3, "what one tenant has disabled is open to another");
}

pub(crate) async fn a_repeated_attempt_sends_nothing_twice(kind: Kind) {
    let mut world = fair(kind).await;
    let done = Arc::new(AtomicU64::new(0));
    world.work_as(Arc::new(Dying(world.collects(), done.clone())));
    let event = Incoming::new(COLLECT, "all", Payload::of(&json!({ "all": true }))).unwrap();
    let receipt = world.send(event).await;
    until("everything is sent, and some of it handled", async || done.load(Ordering::SeqCst) >= 2).await;
    world.kill().await;
    world.work();
    let run = world.ended(COLLECT, "all", &receipt).await;
    assert_eq!((run.row.state, run.row.attempts), (RunState::Succeeded, 2));
    assert_eq!(collected(&world).await, ALL);
}

pub(crate) async fn a_lane_that_has_something_to_do_gets_nothing_more(kind: Kind) {
    let mut world = fair(kind).await;
    world.market.fail(1, crate::market::Fault::Silence);
    world.work();
    let receipt = world.ask("a").await;
    until("one is being collected", async || world.market.asked().len() == 1).await;
    let run = send_all(&world).await;
    assert_eq!(run.result.unwrap(), json!({ "intakes": 3, "sources": 2, "sent": 5, "busy": 1 }));
    world.market.go_on();
    world.ended(COLLECT, "a:market", &receipt).await;
    assert_eq!(collected(&world).await, ALL);
}
