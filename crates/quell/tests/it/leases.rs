//! Leases: kept while a handler runs, taken over when a worker is gone, refused to those who come back too late.

use std::sync::Arc;
use std::time::Duration;

use quell::quell_core::lifecycle::{Change, RunState};
use quell::quell_core::store::SweepRequest;
use quell::{Queue, Run, from_fn};

use crate::support::{Crowd, TestStore, engine, pass, run_of, send, start, until};

const LEASE: Duration = Duration::from_secs(3);

/// A queue whose handler takes this long, under a lease of three seconds.
fn lasting(crowd: &Arc<Crowd>, ms: u64) -> Queue {
    let crowd = crowd.clone();
    Queue::none().lease(LEASE).handler(from_fn(move |_run: Run| {
        let crowd = crowd.clone();
        async move {
            let _inside = crowd.enter();
            pass(ms).await;
        }
    }))
}

#[tokio::test(start_paused = true)]
async fn a_handler_longer_than_its_lease_finishes_under_one_token() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let (engine, options) = engine(&store, lasting(&crowd, 60_000)).await;
    let receipt = send(&engine, "k").await;
    // Two workers, so that somebody would take the run if the lease were not kept.
    let workers = [start(&engine, &options), start(&engine, &options)];
    until("it is over", async || crowd.total() > 0 && crowd.now() == 0).await;
    let run = run_of(&engine, &receipt).await;
    assert_eq!((run.row.state, run.row.claims, crowd.total()), (RunState::Succeeded, 1, 1));
    assert!(store.calls_of("extend") >= 55, "renewed every second: {}", store.calls_of("extend"));
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_aborted_workers_run_is_taken_over_after_its_lease() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let (engine, options) = engine(&store, lasting(&crowd, 10_000)).await;
    let receipt = send(&engine, "k").await;
    let first = start(&engine, &options);
    until("it runs", async || crowd.now() == 1).await;
    pass(5_000).await;
    first.task.abort();
    until("its handler is gone", async || crowd.now() == 0).await;
    let second = start(&engine, &options);
    pass(1_500).await;
    assert_eq!(crowd.now(), 0, "not before the lease is over");
    until("it is taken over", async || crowd.now() == 1).await;
    until("it is done", async || crowd.now() == 0).await;
    pass(1).await;
    let run = run_of(&engine, &receipt).await;
    assert_eq!((run.row.state, run.row.attempts), (RunState::Succeeded, 2), "the crash counts");
    let reclaimed = run.audit.iter().find(|r| r.change == Change::Reclaimed).expect("it is on record");
    assert!(reclaimed.prior_worker.is_some());
    assert_eq!(second.stop().await.settled, 1);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_cannot_renew_stops_before_its_lease_is_over() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let (engine, options) = engine(&store, lasting(&crowd, 600_000)).await;
    let receipt = send(&engine, "k").await;
    let worker = start(&engine, &options);
    until("it runs", async || crowd.now() == 1).await;
    let until_then = run_of(&engine, &receipt).await.row.lease_until.unwrap();
    store.set_down(&["extend", "settle", "claim", "sweep"]);
    until("the handler is stopped", async || crowd.now() == 0).await;
    let now = engine.health().await.unwrap().now;
    assert!(now < until_then, "{now} is before {until_then}");
    assert!(store.calls_of("extend") >= 5, "it tried several times");
    store.set_down(&[]);
    until("it is handed back and runs again", async || crowd.now() == 1).await;
    let run = run_of(&engine, &receipt).await;
    assert_eq!(run.row.attempts, 1, "the hand-back was refunded");
    worker.task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_stale_worker_learns_so_and_stops() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let (engine, options) = engine(&store, lasting(&crowd, 600_000)).await;
    let receipt = send(&engine, "k").await;
    let worker = start(&engine, &options);
    until("it runs", async || crowd.now() == 1).await;
    // By the store's clock the lease is over, and somebody takes it back.
    engine.pause(crate::support::key("k"), "test").await.unwrap();
    store.jump(LEASE);
    let swept = engine.sweep(SweepRequest { reclaim: true, retention: None }).await.unwrap();
    assert_eq!(swept.reclaimed.len(), 1);
    assert_eq!(crowd.now(), 1, "the worker does not know yet");
    pass(1_100).await;
    assert_eq!(crowd.now(), 0, "the next heartbeat told it");
    let run = run_of(&engine, &receipt).await;
    assert_eq!(run.row.state, RunState::Pending);
    assert_eq!(store.calls_of("settle"), 0, "a stale worker settles nothing");
    assert_eq!(worker.stop().await.lost, 1);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_loop_stops_neither_handlers_nor_heartbeats() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let (engine, options) = engine(&store, lasting(&crowd, 30_000)).await;
    let receipt = send(&engine, "k").await;
    let worker = start(&engine, &options);
    until("it runs", async || crowd.now() == 1).await;
    store.set_down(&["claim", "sweep"]);
    until("it is over", async || crowd.now() == 0).await;
    pass(1).await;
    let run = run_of(&engine, &receipt).await;
    assert_eq!((run.row.state, run.row.claims), (RunState::Succeeded, 1));
    store.set_down(&[]);
    send(&engine, "other").await;
    pass(5_100).await;
    assert_eq!(crowd.total(), 2, "the loop goes on by itself");
    worker.task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_settlement_with_a_lost_answer_is_repeated_and_counts_once() {
    use crate::support::Fault::{DoneUnknown, LostUnknown, Unavailable};
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let (engine, options) = engine(&store, lasting(&crowd, 10)).await;
    store.fail("settle", &[Unavailable, LostUnknown, DoneUnknown]);
    let receipt = send(&engine, "k").await;
    let worker = start(&engine, &options);
    until("it is settled", async || store.calls_of("settle") == 4).await;
    pass(1).await;
    let run = run_of(&engine, &receipt).await;
    let settled = run.audit.iter().filter(|r| r.change == Change::Succeeded).count();
    assert_eq!((run.row.state, settled, crowd.total()), (RunState::Succeeded, 1, 1));
    assert_eq!(worker.stop().await.settled, 1);
}

/// Real time and real threads: a handler that never yields holds up its own task and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_handler_that_blocks_its_thread_keeps_its_lease() {
    let store = TestStore::new();
    let queue = Queue::none().lease(Duration::from_secs(2)).handler(from_fn(|_run: Run| async {
        let (_keep, never) = std::sync::mpsc::channel::<()>();
        never.recv_timeout(Duration::from_millis(2_600)).ok();
    }));
    let (engine, options) = engine(&store, queue).await;
    let receipt = send(&engine, "k").await;
    let worker = start(&engine, &options);
    until("it is over", async || run_of(&engine, &receipt).await.row.state.is_final()).await;
    let run = run_of(&engine, &receipt).await.row;
    assert_eq!((run.state, run.claims), (RunState::Succeeded, 1));
    assert!(store.calls_of("extend") >= 2, "{}", store.calls_of("extend"));
    worker.stop().await;
}
