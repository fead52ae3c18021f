//! Many lanes at once, within every limit, and each key in order.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use quell::clock::{Chance, SteppedTime};
use quell::config::{Flags, Settings, SettingsInput};
use quell::quell_core::event::{Payload, QueueName, Tenant};
use quell::quell_core::lifecycle::RunState;
use quell::quell_core::step::WorkerState;
use quell::{Engine, Incoming, Queue, Run, Shutdown, Worker, WorkerOptions, from_fn};

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

#[tokio::test(start_paused = true)]
async fn a_worker_takes_only_the_queues_and_the_tenant_it_is_given() {
    let (store, one, other) = (TestStore::new(), Arc::new(Crowd::default()), Arc::new(Crowd::default()));
    let queues = [("one", slow(&one)), ("other", slow(&other)), ("elsewhere", Queue::none())];
    let (engine, options) = engine_with(&store, &queues, 10, Duration::from_secs(5)).await;
    let name = |text| QueueName::new(text).unwrap();
    let only = |queue, tenant: Option<&str>| WorkerOptions {
        queues: vec![name(queue)],
        tenant: tenant.map(|t| Tenant::new(t).unwrap()),
        ..options.clone()
    };
    let refused = |queue| Worker::new(engine.clone(), only(queue, None)).err().map(|e| e.to_string());
    assert!(refused("nowhere").is_some_and(|text| text.starts_with("unknown queue \"nowhere\"")));
    assert!(refused("elsewhere").is_some_and(|text| text.contains("no handler in this process")));

    for (queue, tenant) in [("one", ""), ("one", "acme"), ("other", "acme")] {
        let payload = Payload::from_json(b"1").unwrap();
        let event = Incoming::new(queue, "k", payload).unwrap().tenant(tenant).unwrap();
        engine.append(vec![event]).await.unwrap();
    }
    let worker = start(&engine, &only("one", Some("acme")));
    pass(60_000).await;
    assert_eq!((one.total(), other.total()), (1, 0));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_configuration_every_queue_is_served() {
    let store = TestStore::new();
    let none = std::collections::BTreeMap::new();
    let input = SettingsInput { config: None, env: &none, flags: Flags::default() };
    let settings = Settings::resolve(input).unwrap();
    let (time, chance) = (Arc::new(SteppedTime::new()), Arc::new(Chance::seeded(1)));
    let engine = Engine::with_parts(store.clone(), settings, time, chance);
    for queue in ["one", "another", "transcripts"] {
        engine.send(queue, "k", serde_json::json!(1)).await.unwrap();
    }
    let options = WorkerOptions { until_idle: true, ..WorkerOptions::default() };
    let worker = Worker::new(engine.clone(), options).unwrap();
    assert_eq!(worker.queues(), None);
    let state = worker.state();
    assert_eq!(worker.run(Shutdown::new()).await.settled, 3);
    assert_eq!(*state.borrow(), WorkerState::Stopped);
}
