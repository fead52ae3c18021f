//! Stopping: handlers finish or are handed back within the grace; a second request stops at once.

use std::sync::Arc;
use std::time::Duration;

use quell::quell_core::lifecycle::{Change, RunState};
use quell::{Outcome, Queue, Run, from_fn};

use crate::support::{Crowd, TestStore, engine_with, pass, run_of, send, start, until};

const GRACE: Duration = Duration::from_secs(8);

/// A handler that never ends by itself.
fn endless(crowd: &Arc<Crowd>) -> Queue {
    let crowd = crowd.clone();
    Queue::none().lease(Duration::from_secs(20)).handler(from_fn(move |_run: Run| {
        let crowd = crowd.clone();
        async move {
            let _inside = crowd.enter();
            std::future::pending::<()>().await;
        }
    }))
}

#[tokio::test(start_paused = true)]
async fn a_drain_hands_back_what_does_not_finish_and_refunds_it() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let (engine, options) = engine_with(&store, &[("q", endless(&crowd))], 5, GRACE).await;
    let receipt = send(&engine, "k").await;
    let worker = start(&engine, &options);
    until("it runs", async || crowd.now() == 1).await;
    let before = engine.health().await.unwrap().now;
    let report = worker.stop().await;
    let took = engine.health().await.unwrap().now.since(before);
    assert!(took <= GRACE, "{took:?}");
    assert_eq!((report.claimed, report.settled, report.abandoned), (1, 1, 0));
    assert_eq!(crowd.now(), 0);
    let run = run_of(&engine, &receipt).await;
    assert_eq!((run.row.state, run.row.attempts, run.row.claims), (RunState::Pending, 0, 1));
    assert!(run.audit.iter().any(|r| r.change == Change::Released));
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_told_and_may_finish_within_the_grace() {
    let store = TestStore::new();
    let crowd = Arc::new(Crowd::default());
    let count = crowd.clone();
    let polite = Queue::none().handler(from_fn(move |run: Run| {
        let inside = count.enter();
        async move {
            let _inside = inside;
            run.stopping().cancelled().await;
            pass(3_000).await;
            Outcome::succeeded().with_result(serde_json::json!("in time"))
        }
    }));
    let (engine, options) = engine_with(&store, &[("q", polite)], 5, GRACE).await;
    let receipt = send(&engine, "k").await;
    let worker = start(&engine, &options);
    until("it runs", async || crowd.now() == 1).await;
    worker.stop().await;
    let run = run_of(&engine, &receipt).await;
    assert_eq!((run.row.state, run.result), (RunState::Succeeded, Some(serde_json::json!("in time"))));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_claimed_any_more_while_draining() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let (engine, options) = engine_with(&store, &[("q", endless(&crowd))], 5, GRACE).await;
    send(&engine, "first").await;
    let worker = start(&engine, &options);
    until("it runs", async || crowd.now() == 1).await;
    worker.shutdown.request();
    pass(10).await;
    send(&engine, "second").await;
    pass(5_000).await;
    assert_eq!(crowd.total(), 1);
    assert_eq!(worker.task.await.unwrap().claimed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_second_request_stops_at_once_and_leaves_the_lease_to_expire() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let (engine, options) = engine_with(&store, &[("q", endless(&crowd))], 5, GRACE).await;
    let receipt = send(&engine, "k").await;
    let worker = start(&engine, &options);
    until("it runs", async || crowd.now() == 1).await;
    worker.shutdown.request();
    pass(100).await;
    let report = worker.stop().await;
    assert_eq!((report.settled, report.abandoned), (0, 1));
    until("the handler is gone", async || crowd.now() == 0).await;
    let run = run_of(&engine, &receipt).await;
    assert_eq!((run.row.state, run.row.attempts), (RunState::Running, 1));
    // Another worker finds it when the lease is over.
    let next = start(&engine, &options);
    until("it runs again", async || crowd.now() == 1).await;
    assert_eq!(run_of(&engine, &receipt).await.row.attempts, 2);
    next.task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_with_the_grace_even_if_the_store_is_away() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let (engine, options) = engine_with(&store, &[("q", endless(&crowd))], 5, GRACE).await;
    send(&engine, "k").await;
    let worker = start(&engine, &options);
    until("it runs", async || crowd.now() == 1).await;
    store.set_down(&["claim", "sweep", "extend", "settle"]);
    let report = tokio::time::timeout(GRACE + Duration::from_millis(100), worker.stop()).await.unwrap();
    assert_eq!((report.settled, report.abandoned), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_stops_at_once() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let (engine, options) = engine_with(&store, &[("q", endless(&crowd))], 5, GRACE).await;
    let worker = start(&engine, &options);
    pass(60_000).await;
    let stopped = tokio::time::timeout(Duration::from_millis(10), worker.stop()).await;
    assert!(stopped.is_ok());
}
