//! Many lanes at once, within every limit, and each key in order.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use quell::quell_core::lifecycle::RunState;
use quell::{Queue, Run, from_fn};

use crate::support::{Crowd, TestStore, engine, engine_with, lane_of, pass, run_of, send, start, until};

/// A queue whose handler stays for 100 ms.
fn slow(crowd: &Arc<Crowd>) -> Queue {
    let crowd = crowd.clone();
    Queue::none().handler(from_fn(move |_run: Run| {
        let crowd = crowd.clone();
        async move {
            let _inside = crowd.enter();
            pass(100).await;
        }
    }))
}

#[tokio::test(start_paused = true)]
async fn many_lanes_run_at_once_up_to_the_limit_of_the_process() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let (engine, options) = engine_with(&store, &[("q", slow(&crowd))], 7, Duration::from_secs(5)).await;
    for n in 0..50 {
        send(&engine, &format!("k{n}")).await;
    }
    let worker = start(&engine, &options);
    until("all are handled", async || crowd.total() == 50 && crowd.now() == 0).await;
    assert_eq!(crowd.most(), 7);
    let report = worker.stop().await;
    assert_eq!((report.claimed, report.settled), (50, 50));
    assert!(engine.verify().await.unwrap().problems.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_queue_has_a_limit_of_its_own_and_does_not_hold_up_another() {
    let (store, one, other) = (TestStore::new(), Arc::new(Crowd::default()), Arc::new(Crowd::default()));
    let queues = [("one", slow(&one).concurrency(2)), ("other", slow(&other))];
    let (engine, options) = engine_with(&store, &queues, 10, Duration::from_secs(5)).await;
    for n in 0..20 {
        engine.send("one", &format!("k{n}"), serde_json::json!(n)).await.unwrap();
        engine.send("other", &format!("k{n}"), serde_json::json!(n)).await.unwrap();
    }
    let worker = start(&engine, &options);
    until("the other is done", async || other.total() == 20 && other.now() == 0).await;
    assert!(one.total() < 20, "the limited one takes longer");
    until("both are done", async || one.total() == 20 && one.now() == 0).await;
    assert_eq!(one.most(), 2);
    assert!(other.most() >= 8, "{}", other.most());
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn max_running_holds_over_all_workers() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let (engine, options) = engine(&store, slow(&crowd).max_running(3)).await;
    for n in 0..20 {
        send(&engine, &format!("k{n}")).await;
    }
    let workers = [start(&engine, &options), start(&engine, &options)];
    until("all are handled", async || crowd.total() == 20 && crowd.now() == 0).await;
    assert_eq!(crowd.most(), 3);
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_during_a_run_gets_a_later_run_of_its_own() {
    let store = TestStore::new();
    let seen: Arc<Mutex<Vec<(u64, usize)>>> = Arc::default();
    let (log, started) = (seen.clone(), Arc::new(Crowd::default()));
    let count = started.clone();
    let queue = Queue::none().handler(from_fn(move |run: Run| {
        let (log, inside) = (log.clone(), count.enter());
        async move {
            let _inside = inside;
            pass(500).await;
            log.lock().unwrap().push((run.token(), run.events().len()));
        }
    }));
    let (engine, options) = engine(&store, queue).await;
    let first = send(&engine, "k").await;
    let worker = start(&engine, &options);
    until("the first runs", async || started.now() == 1).await;
    let (second, third) = (send(&engine, "k").await, send(&engine, "k").await);
    assert_ne!(first.run_id, second.run_id);
    assert_eq!(second.run_id, third.run_id);
    until("both runs are over", async || started.total() == 2 && started.now() == 0).await;
    assert_eq!(started.most(), 1, "never two at once for one key");
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.iter().map(|(_, events)| *events).collect::<Vec<_>>(), [1, 2]);
    assert!(seen[0].0 < seen[1].0, "the token grows");
    worker.stop().await;
    assert_eq!(run_of(&engine, &third).await.row.state, RunState::Succeeded);
    assert_eq!(lane_of(&engine, "k").await.row.state, None);
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_one_batch_when_it_is_over() {
    let store = TestStore::new();
    let sizes: Arc<Mutex<Vec<usize>>> = Arc::default();
    let log = sizes.clone();
    let queue = Queue::quiet(Duration::from_secs(1)).handler(from_fn(move |run: Run| {
        log.lock().unwrap().push(run.events().len());
        async {}
    }));
    let (engine, options) = engine(&store, queue).await;
    let worker = start(&engine, &options);
    for _ in 0..5 {
        send(&engine, "k").await;
        pass(900).await;
    }
    assert!(sizes.lock().unwrap().is_empty(), "every event restarts the quiet period");
    pass(105).await;
    assert_eq!(*sizes.lock().unwrap(), [5]);
    worker.stop().await;
}
