//! What an idle worker costs, and how fast it wakes.

use std::sync::Arc;
use std::time::Duration;

use quell::{Queue, Run, WorkerOptions, from_fn};

use crate::support::{Crowd, Fault, TestStore, engine, pass, send, start, until};

fn counting(crowd: &Arc<Crowd>, queue: Queue) -> Queue {
    let crowd = crowd.clone();
    queue.handler(from_fn(move |_run: Run| {
        drop(crowd.enter());
        async {}
    }))
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_costs_at_most_one_statement_a_second() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let (engine, options) = engine(&store, counting(&crowd, Queue::none())).await;
    let worker = start(&engine, &options);
    pass(10_000).await;
    assert!(store.calls() <= 10, "the first ten seconds: {}", store.calls());
    let before = store.calls();
    pass(600_000).await;
    let per_second = (store.calls() - before) as f64 / 600.0;
    assert!(per_second < 0.4, "{per_second} statements a second");
    assert!((9..=11).contains(&store.calls_of("sweep").div_ceil(2)), "{}", store.calls_of("sweep"));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_notification_wakes_an_idle_worker_at_once() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let (engine, options) = engine(&store, counting(&crowd, Queue::none())).await;
    let worker = start(&engine, &options);
    pass(60_000).await;
    send(&engine, "k").await;
    pass(1).await;
    assert_eq!(crowd.total(), 1, "no need to wait for the back-off of five seconds");
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_next_due_time_wakes_an_idle_worker_on_time() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let (engine, options) =
        engine(&store, counting(&crowd, Queue::fixed(Duration::from_millis(61_234)))).await;
    let worker = start(&engine, &options);
    pass(30_000).await;
    send(&engine, "k").await;
    pass(61_233).await;
    assert_eq!(crowd.total(), 0);
    pass(3).await;
    assert_eq!(crowd.total(), 1);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_asked_every_second_and_served_when_it_is_back() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let (engine, options) = engine(&store, counting(&crowd, Queue::none())).await;
    let worker = start(&engine, &options);
    pass(20_000).await;
    store.set_down(&["claim", "sweep"]);
    pass(10_000).await;
    let before = store.calls();
    pass(600_000).await;
    let asked = store.calls() - before;
    assert!(
        (590..=770).contains(&asked),
        "the loop every second, the retention every five, its presence every twenty: {asked}"
    );
    store.set_down(&[]);
    send(&engine, "k").await;
    pass(1_010).await;
    assert_eq!(crowd.total(), 1);
    assert!(!worker.task.is_finished());
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn until_idle_ends_when_nothing_is_left_and_waits_for_what_is() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let (engine, options) = engine(&store, counting(&crowd, Queue::fixed(Duration::from_secs(30)))).await;
    for n in 0..50 {
        send(&engine, &format!("k{n}")).await;
    }
    let options = WorkerOptions { until_idle: true, ..options };
    let worker = start(&engine, &options);
    pass(29_000).await;
    assert!(!worker.task.is_finished(), "the windows are still open");
    let report = tokio::time::timeout(Duration::from_secs(2), worker.task).await.unwrap().unwrap();
    assert_eq!((report.settled, crowd.total()), (50, 50));
    let again = start(&engine, &options);
    assert_eq!(again.task.await.unwrap().claimed, 0, "nothing at all: it ends at once");
}

#[tokio::test(start_paused = true)]
async fn until_idle_survives_an_error_of_the_store() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let (engine, options) = engine(&store, counting(&crowd, Queue::none())).await;
    send(&engine, "k").await;
    store.fail("claim", &[Fault::Unavailable, Fault::LostUnknown]);
    let worker = start(&engine, &WorkerOptions { until_idle: true, ..options });
    until("it ends", async || worker.task.is_finished()).await;
    assert_eq!(crowd.total(), 1);
}
