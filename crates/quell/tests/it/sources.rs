//! Sources from the outside: those of the configuration kept in step with it, and what workers do with governed lanes.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up may panic")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quell::clock::{Chance, SteppedTime};
use quell::config::{Config, Flags, Settings, SettingsInput, SourceText};
use quell::quell_core::event::{Key, LaneKey, QueueName, SourceName};
use quell::quell_core::inspect::{SourceFilter, SourceRow};
use quell::quell_core::lifecycle::RunState;
use quell::quell_core::outcome::Outcome;
use quell::quell_core::source::{Because, Breaker, FaultKind, SourceFault, SourceRules, Standing};
use quell::quell_core::store::Store;
use quell::{AppliedSources, Engine, Quell, Queue, Run, from_fn};

use crate::support::{Crowd, TestStore, pass, run_of, start};

const TWO: &str = "[sources.ebay]\nrate_limit_per_minute = 60\nburst = 2\n[sources.shop]\n\
                   [queues.collect]\nwindow = \"none\"\nsource = \"ebay\"\n";

fn over(store: Arc<dyn Store>, text: Option<&str>) -> Engine {
    let env = BTreeMap::new();
    let config =
        text.map(|text| (Config::parse(text, "quell.toml").unwrap(), SourceText::new("quell.toml", text)));
    let settings = Settings::resolve(SettingsInput { config, env: &env, flags: Flags::default() }).unwrap();
    Engine::with_parts(store, settings, Arc::new(SteppedTime::new()), Arc::new(Chance::seeded(1)))
}

async fn row(engine: &Engine, name: &str) -> SourceRow {
    let filter = SourceFilter { name: Some(SourceName::new(name).unwrap()), ..SourceFilter::default() };
    engine.sources(filter).await.unwrap().items.remove(0)
}

#[tokio::test(start_paused = true)]
async fn the_sources_of_the_store_follow_the_file() {
    let store: Arc<dyn Store> = TestStore::new();
    let engine = over(store.clone(), Some(TWO));
    let applied = engine.apply_sources().await.unwrap();
    assert_eq!(applied, AppliedSources { put: 2, unchanged: 0, removed: 0 });
    let again = engine.apply_sources().await.unwrap();
    assert_eq!(again, AppliedSources { put: 0, unchanged: 2, removed: 0 });
    assert_eq!(row(&engine, "ebay").await.rules.per_minute, Some(60));

    // A file without any leaves them alone, and so does a process without a file.
    for text in [Some("[queues.a]\n"), None] {
        assert_eq!(over(store.clone(), text).apply_sources().await.unwrap(), AppliedSources::default());
    }
    // A changed one is in force at once, and one that is gone from the file holds its lanes.
    let later = over(store.clone(), Some("[sources.ebay]\nrate_limit_per_minute = 30\n"));
    let applied = later.apply_sources().await.unwrap();
    assert_eq!(applied, AppliedSources { put: 1, unchanged: 0, removed: 1 });
    assert_eq!(row(&engine, "ebay").await.rules.per_minute, Some(30));
    assert_eq!(row(&engine, "shop").await.standing, Standing::Removed);
}

#[tokio::test(start_paused = true)]
async fn whoever_sends_first_declares_the_sources_of_its_file() {
    let store: Arc<dyn Store> = TestStore::new();
    let engine = over(store.clone(), Some(TWO));
    engine.send("collect", "coin-1", serde_json::json!({})).await.unwrap();
    let lane = LaneKey::new(QueueName::new("collect").unwrap(), Key::new("coin-1").unwrap());
    assert!(engine.lane(lane).await.unwrap().is_some());
    // One that nobody declares is refused, and nothing is stored.
    let refused = engine.prepare("collect", "coin-2", serde_json::json!({})).source("amazon").send().await;
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("amazon") && text.contains("[sources.amazon]"), "{text}");
    let lane = LaneKey::new(QueueName::new("collect").unwrap(), Key::new("coin-2").unwrap());
    assert!(engine.lane(lane).await.unwrap().is_none());
}

/// An engine over a queue `work` that the source `party` governs.
async fn governed(
    store: &Arc<TestStore>,
    rules: SourceRules,
    queue: Queue,
) -> (Engine, quell::WorkerOptions) {
    let clocks = (Arc::new(SteppedTime::new()), Arc::new(Chance::seeded(7)));
    Quell::with_store(store.clone())
        .clocks(clocks.0, clocks.1)
        .source("party", rules)
        .queue("work", queue.source("party"))
        .build()
        .await
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn workers_obey_the_rate_and_wait_without_a_lease_or_an_attempt() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let count = crowd.clone();
    let queue = Queue::none().handler(from_fn(move |_: Run| {
        drop(count.enter());
        async {}
    }));
    let rules = SourceRules { per_minute: Some(60), burst: 2, ..SourceRules::default() };
    let (engine, options) = governed(&store, rules, queue).await;
    for key in 0..10 {
        engine.send("work", &format!("k{key}"), serde_json::json!({})).await.unwrap();
    }
    let workers = [start(&engine, &options), start(&engine, &options)];
    pass(100).await;
    assert_eq!(crowd.total(), 2, "the burst");
    let waiting = row(&engine, "party").await;
    assert_eq!((waiting.waiting, waiting.tokens), (8, Some(0)));
    let lane = LaneKey::new(QueueName::new("work").unwrap(), Key::new("k9").unwrap());
    let why = engine.lane(lane).await.unwrap().unwrap().waiting.source.unwrap();
    assert_eq!((why.name.as_str(), why.because), ("party", Because::RateLimited));
    let calls = store.calls_of("claim");
    pass(3_000).await;
    assert_eq!(crowd.total(), 5, "one each second");
    assert!(store.calls_of("claim") - calls < 40, "workers sleep until the next token");
    pass(10_000).await;
    assert_eq!(crowd.total(), 10);
    for worker in workers {
        worker.stop().await;
    }
    let stats = engine.stats().await.unwrap();
    assert_eq!(stats.iter().map(|q| q.totals.succeeded).sum::<u64>(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_does_not_work_is_left_alone_and_probed_by_one() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let count = crowd.clone();
    let queue = Queue::none().handler(from_fn(move |_: Run| {
        drop(count.enter());
        let works = count.total() > 6;
        async move {
            let fault = SourceFault::new(FaultKind::ServerError);
            if works { Outcome::succeeded() } else { Outcome::retry("503").source_fault(fault) }
        }
    }));
    let cooldown = Duration::from_secs(60);
    let (engine, options) = governed(&store, SourceRules { cooldown, ..SourceRules::default() }, queue).await;
    let mut receipts = Vec::new();
    for key in 0..5 {
        receipts.push(engine.send("work", &format!("k{key}"), serde_json::json!({})).await.unwrap());
    }
    let worker = start(&engine, &options);
    pass(1_000).await;
    assert_eq!((crowd.total(), row(&engine, "party").await.breaker), (5, Breaker::Open));
    let held = engine.send("work", "later", serde_json::json!({})).await.unwrap();
    pass(50_000).await;
    assert_eq!(crowd.total(), 5, "nobody is handed out while the breaker is open");
    // The first probe fails, which renews the cooldown and costs its run no attempt; the second goes well.
    pass(15_000).await;
    assert_eq!((crowd.total(), row(&engine, "party").await.breaker), (6, Breaker::Open));
    pass(70_000).await;
    assert_eq!(row(&engine, "party").await.breaker, Breaker::Closed);
    pass(180_000).await;
    for receipt in receipts.iter().chain([&held]) {
        let run = run_of(&engine, receipt).await.row;
        assert_eq!(run.state, RunState::Succeeded, "{run:?}");
        assert!(run.attempts <= 2, "{run:?}");
    }
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_program_leaves_the_sources_of_others_alone() {
    let store = TestStore::new();
    let shared: Arc<dyn Store> = store.clone();
    over(shared.clone(), Some(TWO)).apply_sources().await.unwrap();
    let (engine, options) =
        governed(&store, SourceRules::default(), Queue::none().handler(from_fn(|_: Run| async {}))).await;
    let worker = start(&engine, &options);
    pass(100).await;
    assert_eq!(row(&engine, "ebay").await.standing, Standing::Enabled);
    assert_eq!(row(&engine, "party").await.standing, Standing::Enabled);
    worker.stop().await;
}
