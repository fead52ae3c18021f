//! What follows from an event: carried events, notices, delays, priorities, and waiting for its end.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up may panic")]

use std::sync::Arc;
use std::time::Duration;

use quell::quell_core::error::ErrorKind;
use quell::quell_core::event::{EventId, Payload};
use quell::quell_core::lifecycle::RunState;
use quell::quell_core::store::Store;
use quell::quell_core::window::WindowPolicy;
use quell::{
    DuringRun, Engine, EngineError, Incoming, OnFailed, Outcome, Queue, RedriveWish, Run, Waited, from_fn,
};
use serde_json::{Value, json};

use crate::support::Fault::DoneUnknown;
use crate::support::{
    Crowd, File, Notes, TestStore, engine, engine_over, engine_with, key, lane_of, numbers, pass, send,
    start, until,
};

const GRACE: Duration = Duration::from_secs(5);
const HOUR: Duration = Duration::from_secs(3_600);

/// A queue that writes down what it gets.
fn noting(notes: &Arc<Notes<Value>>) -> Queue {
    let notes = notes.clone();
    Queue::none().handler(from_fn(move |run: Run| {
        run.events().iter().for_each(|event| notes.add(event.payload.parse().unwrap()));
        async {}
    }))
}

async fn left(engine: &Engine) -> u64 {
    let stats = engine.stats().await.unwrap();
    stats.iter().map(|q| q.totals.delayed + q.totals.buffered + q.totals.in_flight).sum()
}

/// An order leads to a mail, and its end to a notice: each once.
async fn follow_ups_come_once(store: Arc<dyn Store>) {
    let (mails, notices) = (Notes::new(), Notes::new());
    let orders = Queue::none().notify("notices", &[RunState::Succeeded, RunState::Failed]).handler(from_fn(
        |run: Run| async move {
            if run.key().as_str() == "bad" {
                return Ok(Outcome::failed("no such article"));
            }
            let mail = Incoming::new("mails", run.key().as_str(), Payload::of(&json!({ "to": run.key() })))?;
            let mail = run.follow_up(mail)?;
            Ok::<_, EngineError>(Outcome::succeeded().with_result(json!(17)).then(mail))
        },
    ));
    let queues = [("orders", orders), ("mails", noting(&mails)), ("notices", noting(&notices))];
    let (engine, options) = engine_over(store, &queues, 5, GRACE).await;
    let good = engine.send("orders", "ada", json!(1)).await.unwrap();
    engine.send("orders", "bad", json!(2)).await.unwrap();
    let workers = [start(&engine, &options), start(&engine, &options)];
    until("all has followed", async || mails.len() >= 1 && notices.len() >= 2 && left(&engine).await == 0)
        .await;
    pass(50).await;
    assert_eq!(mails.all(), [json!({ "to": "ada" })]);
    let mut told = notices.all();
    told.sort_by_key(|notice| notice["key"].to_string());
    assert_eq!((told.len(), &told[0]["state"], &told[0]["result"]), (2, &json!("succeeded"), &json!(17)));
    assert_eq!((&told[1]["state"], &told[1]["error"]), (&json!("failed"), &json!("no such article")));
    let id = EventId::new(format!("{}/1", good.run_id.unwrap())).unwrap();
    let mail = quell::quell_core::event::LaneKey {
        queue: "mails".to_owned().try_into().unwrap(),
        key: "ada".to_owned().try_into().unwrap(),
        tenant: quell::quell_core::event::Tenant::none(),
    };
    assert_eq!(engine.event(mail, id).await.unwrap().unwrap().state, Some(RunState::Succeeded));
    assert!(engine.verify().await.unwrap().problems.is_empty());
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn carried_events_and_notices_come_exactly_once() {
    let store = TestStore::new();
    // The answers to the first settlements are lost, so they are repeated.
    store.fail("settle", &[DoneUnknown, DoneUnknown, DoneUnknown]);
    follow_ups_come_once(store).await;
}

#[tokio::test]
async fn carried_events_and_notices_come_exactly_once_on_sqlite() {
    let file = File::new();
    follow_ups_come_once(file.open()).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_tried_again_carries_nothing() {
    let (store, mails) = (TestStore::new(), Notes::new());
    let orders = Queue::none().handler(from_fn(|run: Run| async move {
        let mail = Incoming::new("mails", "ada", Payload::of(&json!(run.attempt()))).unwrap();
        let mail = run.follow_up(mail).unwrap();
        if run.attempt() == 1 { Outcome::retry("later").then(mail) } else { Outcome::succeeded().then(mail) }
    }));
    let queues = [("orders", orders), ("mails", noting(&mails))];
    let (engine, options) = engine_with(&store, &queues, 5, GRACE).await;
    engine.send("orders", "k", json!(1)).await.unwrap();
    let worker = start(&engine, &options);
    until("all is done", async || left(&engine).await == 0).await;
    assert_eq!(mails.all(), [json!(2)]);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn follow_up_work_for_an_unknown_queue_is_an_error_of_the_handler() {
    let store = TestStore::new();
    let queue = Queue::none().handler(from_fn(|run: Run| async move {
        let mail = Incoming::new("mials", "ada", Payload::of(&json!(1)))?;
        Ok::<_, EngineError>(Outcome::succeeded().then(run.follow_up(mail)?))
    }));
    let (engine, options) = engine(&store, queue).await;
    let receipt = send(&engine, "k").await;
    let worker = start(&engine, &options);
    let waited = engine.wait(key("k"), receipt.event_id, GRACE).await.unwrap();
    let run = waited.run().unwrap();
    assert_eq!(run.row.error.as_deref(), Some("unknown queue \"mials\"; the configuration knows q"));
    worker.stop().await;
}

async fn a_delayed_event_comes_later(store: Arc<dyn Store>, delay: Duration) {
    let notes = Notes::new();
    let (engine, options) = engine_over(store, &[("q", noting(&notes))], 5, GRACE).await;
    let worker = start(&engine, &options);
    let receipt = engine.prepare("q", "k", json!("later")).delay(delay).send().await.unwrap();
    assert_eq!((receipt.seq, receipt.run_id, receipt.duplicate), (None, None, false));
    engine.send("q", "k", json!("now")).await.unwrap();
    until("the other one is handled", async || notes.len() == 1).await;
    let early = engine.wait(key("k"), receipt.event_id.clone(), delay / 4).await.unwrap();
    assert!(matches!(&early, Waited::StillGoing(place) if place.ready_at == receipt.due_at), "{early:?}");
    assert_eq!(notes.all(), [json!("now")], "it blocks nobody");
    let waited = engine.wait(key("k"), receipt.event_id, delay * 2).await.unwrap();
    assert_eq!((waited.state(), notes.len()), (Some(RunState::Succeeded), 2));
    assert_eq!(left(&engine).await, 0);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_delayed_event_enters_its_lane_when_its_time_has_come() {
    a_delayed_event_comes_later(TestStore::new(), HOUR).await;
}

#[tokio::test]
async fn a_delayed_event_enters_its_lane_when_its_time_has_come_on_sqlite() {
    let file = File::new();
    a_delayed_event_comes_later(file.open(), Duration::from_millis(800)).await;
}

#[tokio::test(start_paused = true)]
async fn priority_decides_which_key_goes_first() {
    let (store, notes) = (TestStore::new(), Notes::new());
    let (engine, options) = engine_with(&store, &[("q", noting(&notes))], 1, GRACE).await;
    for (key, priority) in [("a", 0), ("b", 4), ("c", 9)] {
        engine.prepare("q", key, json!(key)).priority(priority).send().await.unwrap();
    }
    let worker = start(&engine, &options);
    until("all are handled", async || notes.len() == 3).await;
    assert_eq!(notes.all(), [json!("c"), json!("b"), json!("a")]);
    let refused = engine.prepare("q", "k", json!(1)).priority(10).send().await.unwrap_err();
    assert!(refused.to_string().contains("priority 10 is not between 0 and 9"), "{refused}");
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn unique_work_is_refused_while_the_key_has_any() {
    let store = TestStore::new();
    let (engine, _) = engine(&store, Queue::fixed(HOUR)).await;
    let first = engine.prepare("q", "k", json!(1)).only_if_idle().id("one").send().await.unwrap();
    let second = engine.prepare("q", "k", json!(2)).only_if_idle().send().await;
    assert!(matches!(second, Err(EngineError::Store(e)) if e.kind == ErrorKind::NotIdle));
    // The same event again is a duplicate and no second piece of work.
    let again = engine.prepare("q", "k", json!(1)).only_if_idle().id("one").send().await.unwrap();
    assert_eq!((again.duplicate, again.seq), (true, first.seq));
    assert!(engine.prepare("q", "k", json!(1)).tenant("acme").only_if_idle().send().await.is_ok());
    let bad = engine.prepare("Q", "", json!(1)).send().await.unwrap_err();
    assert!(bad.to_string().starts_with("queue name"), "{bad}");
}

#[tokio::test(start_paused = true)]
async fn an_event_may_bring_its_own_window() {
    let (store, batches) = (TestStore::new(), Notes::new());
    let log = batches.clone();
    let queue = Queue::fixed(HOUR).handler(from_fn(move |run: Run| {
        log.add(numbers(&run));
        async {}
    }));
    let (engine, options) = engine(&store, queue).await;
    let worker = start(&engine, &options);
    engine.send("q", "k", json!(1)).await.unwrap();
    engine.prepare("q", "k", json!(2)).window(WindowPolicy::None).send().await.unwrap();
    pass(50).await;
    assert_eq!(batches.all(), [vec![1, 2]]);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn waiting_gives_the_result_of_the_run_wherever_the_event_went() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let count = crowd.clone();
    let queue = Queue::none().during_run(DuringRun::Gate).handler(from_fn(move |run: Run| {
        let inside = count.enter();
        async move {
            let _inside = inside;
            pass(1_000).await;
            if !run.hold().await.unwrap().is_held() {
                return Outcome::superseded();
            }
            Outcome::succeeded().with_result(json!(numbers(&run)))
        }
    }));
    let (engine, options) = engine(&store, queue).await;
    let first = engine.send("q", "k", json!(1)).await.unwrap();
    let worker = start(&engine, &options);
    until("it runs", async || crowd.now() == 1).await;
    // The second event's own run is merged into the first one.
    let waited = engine.prepare("q", "k", json!(2)).send_and_wait(GRACE).await.unwrap();
    let run = waited.run().unwrap();
    assert_eq!((run.row.state, run.result.clone()), (RunState::Succeeded, Some(json!([1, 2]))));
    assert_eq!(Some(run.row.id), first.run_id);
    let nobody = engine.wait(key("k"), EventId::new("unknown").unwrap(), GRACE).await.unwrap_err();
    assert_eq!(nobody.kind, ErrorKind::NotFound);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn waiting_follows_halves_and_redrives() {
    let store = TestStore::new();
    let queue = Queue::fixed(Duration::from_secs(1)).on_failed(OnFailed::Bisect).handler(from_fn(
        |run: Run| async move {
            let spoilt = numbers(&run).contains(&3) && run.fired_by().as_str() != "redrive";
            if spoilt { Outcome::failed("three") } else { Outcome::succeeded() }
        },
    ));
    let (engine, options) = engine(&store, queue).await;
    let mut ids = Vec::new();
    for n in 1..=4u64 {
        ids.push(engine.send("q", "k", json!(n)).await.unwrap().event_id);
    }
    let worker = start(&engine, &options);
    let mut states = Vec::new();
    for id in &ids {
        states.push(engine.wait(key("k"), id.clone(), GRACE).await.unwrap().state());
    }
    let (good, bad) = (Some(RunState::Succeeded), Some(RunState::Failed));
    assert_eq!(states, [good, good, bad, good]);
    let dead = engine.wait(key("k"), ids[2].clone(), GRACE).await.unwrap().run().unwrap().row.id;
    let redriven = engine.redrive(dead, RedriveWish::default(), "ada").await.unwrap();
    assert_eq!((redriven.changed, redriven.events), (true, 1));
    assert!(
        !engine.redrive(dead, RedriveWish::default(), "ada").await.unwrap().changed,
        "a repeat does nothing"
    );
    let again = engine.wait(key("k"), ids[2].clone(), GRACE).await.unwrap();
    assert_eq!((again.state(), again.run().map(|r| r.row.id)), (good, redriven.run));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_sees_that_it_is_behind() {
    let (store, seen) = (TestStore::new(), Notes::new());
    let log = seen.clone();
    let queue = Queue::none().lease(Duration::from_secs(3)).handler(from_fn(move |run: Run| {
        let log = log.clone();
        async move {
            while run.newer() == 0 && run.events().len() == 1 {
                pass(100).await;
            }
            log.add((run.events().len(), run.newer()));
        }
    }));
    let (engine, options) = engine(&store, queue).await;
    send(&engine, "k").await;
    let worker = start(&engine, &options);
    pass(200).await;
    send(&engine, "k").await;
    send(&engine, "k").await;
    until("both runs are over", async || seen.len() == 2).await;
    assert_eq!(seen.all(), [(1, 2), (2, 0)]);
    assert_eq!(lane_of(&engine, "k").await.row.buffered, 0);
    worker.stop().await;
}
