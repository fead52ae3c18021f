//! What telemetry costs, counted by the store: spans no statement, a scrape the same however many keys there are.
//!
//! A binary of its own: once spans are recorded in a process, they are for ever.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use opentelemetry_sdk::trace::SdkTracerProvider;
use quell::quell_core::event::Headers;
use quell::quell_core::outcome::Outcome;
use quell::spans::{self, Recording};
use quell::{Engine, Incoming, PullWish, Quell, Queue};
use quell_store_sqlite::SqliteStore;

const SENDER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Three events, their claim and its end; the context that the batch carries.
async fn once_around(engine: &Engine, key: &str) -> Option<String> {
    for n in 0..3 {
        let event =
            Incoming::new("q", key, quell::quell_core::event::Payload::of(&serde_json::json!(n))).unwrap();
        let headers = Headers::from([("traceparent".to_owned(), SENDER.to_owned())]);
        engine.append(vec![Incoming { headers, ..event }]).await.unwrap();
    }
    let worker = std::sync::Arc::new(engine.worker_id());
    let wish = PullWish { worker, queues: Vec::new(), tenant: None, max: 1, lease: None, claim_id: None };
    let request = engine.pull_request(&wish).unwrap();
    let batch = engine.claim(request).await.unwrap().batches.pop().unwrap();
    let (run, queue) = ((batch.run_id, batch.token), batch.lane.queue.clone());
    engine.settle(run, &queue, batch.retries, Outcome::succeeded()).await.unwrap();
    batch.events[2].headers.get("traceparent").cloned()
}

#[tokio::test]
async fn recording_costs_no_statement_and_not_recording_changes_no_header() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("q.db")).unwrap();
    let (engine, _) = Quell::with_store(store.clone()).queue("q", Queue::none()).build().await.unwrap();
    once_around(&engine, "warm").await;
    let spent = async |key| {
        let before = store.statements();
        let carried = once_around(&engine, key).await;
        (store.statements() - before, carried)
    };
    let (off, carried) = spent("off").await;
    assert_eq!(carried.as_deref(), Some(SENDER));
    assert!(off > 0, "the store counts");

    spans::record(&SdkTracerProvider::builder().build(), Recording::default());
    let (on, carried) = spent("on").await;
    assert_eq!(on, off);
    let carried = carried.unwrap();
    assert!(
        carried.starts_with(&SENDER[..36]) && carried != SENDER,
        "the same trace, one span further: {carried}"
    );
}

#[tokio::test]
async fn a_scrape_asks_the_store_four_times_with_one_key_and_with_hundreds() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("q.db")).unwrap();
    let (engine, _) = Quell::with_store(store.clone()).queue("q", Queue::none()).build().await.unwrap();
    let mut spent = Vec::new();
    for keys in [1, 300] {
        for key in 0..keys {
            engine.send("q", &format!("k{key}"), serde_json::json!(1)).await.unwrap();
        }
        let worker = std::sync::Arc::new(engine.worker_id());
        let wish =
            PullWish { worker, queues: Vec::new(), tenant: None, max: 150, lease: None, claim_id: None };
        engine.claim(engine.pull_request(&wish).unwrap()).await.unwrap();
        let before = store.statements();
        quell::observe::scrape(&engine).await.unwrap();
        spent.push(store.statements() - before);
    }
    assert_eq!(spent, [4, 4]);
}
