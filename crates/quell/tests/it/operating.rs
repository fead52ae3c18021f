//! The operator's hand through the engine: each action once, recorded with who did it.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up may panic")]

use std::time::Duration;

use quell::quell_core::event::Payload;
use quell::quell_core::lifecycle::{Change, RunState};
use quell::quell_core::store::{Purge, PurgeWhat, RedriveTo};
use quell::{OnFailed, Outcome, Overflow, Queue, RedriveWish, Run, RunError, from_fn};
use serde_json::json;

use crate::support::{Notes, TestStore, engine, key, lane_of, numbers, pass, run_of, send, start, until};

const HOUR: Duration = Duration::from_secs(3_600);

fn purge(what: PurgeWhat, dry_run: bool) -> Purge {
    Purge { queue: "q".to_owned().try_into().unwrap(), tenant: None, key: None, what, dry_run }
}

#[tokio::test(start_paused = true)]
async fn waiting_events_are_edited_deleted_cancelled_and_purged() {
    let store = TestStore::new();
    let (engine, _) = engine(&store, Queue::fixed(HOUR)).await;
    let mut ids = Vec::new();
    for n in 1..=3 {
        ids.push(engine.send("q", "k", json!(n)).await.unwrap().event_id);
    }
    let edited = engine.edit_event(key("k"), ids[0].clone(), Payload::of(&json!(10)), "ada").await.unwrap();
    assert!(edited.changed);
    assert!(engine.delete_event(key("k"), ids[1].clone(), "ada").await.unwrap().changed);
    let waiting = lane_of(&engine, "k").await.events;
    assert_eq!(waiting.iter().map(|e| e.payload.as_str()).collect::<Vec<_>>(), ["10", "3"]);
    let cancelled = engine.cancel(key("k"), None, "ada").await.unwrap();
    assert_eq!((cancelled.changed, cancelled.events), (true, 2));
    assert_eq!(engine.run(cancelled.run.unwrap()).await.unwrap().unwrap().row.state, RunState::Cancelled);

    send(&engine, "other").await;
    engine.prepare("q", "late", json!(1)).delay(HOUR).send().await.unwrap();
    for what in [PurgeWhat::Buffered, PurgeWhat::Delayed] {
        assert_eq!(engine.purge(purge(what, true), "ada").await.unwrap().events, 1);
        assert_eq!(engine.purge(purge(what, false), "ada").await.unwrap().events, 1);
        assert_eq!(engine.purge(purge(what, false), "ada").await.unwrap().events, 0);
    }
    let totals = engine.stats().await.unwrap()[0].totals;
    assert_eq!((totals.accepted, totals.discarded, totals.buffered, totals.delayed), (5, 5, 0, 0));
    let trail = engine.audit(Default::default()).await.unwrap().items;
    assert!(trail.iter().all(|r| r.actor.as_deref() == Some("ada")));
    for change in [Change::Edited, Change::Deleted, Change::Cancelled, Change::Purged] {
        assert!(trail.iter().any(|r| r.change == change), "{change}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_blocked_key_goes_on_with_its_redriven_run_and_its_steps() {
    let (store, calls, batches) = (TestStore::new(), Notes::new(), Notes::new());
    let (log, done) = (calls.clone(), batches.clone());
    let queue = Queue::none().on_failed(OnFailed::Block).handler(from_fn(move |run: Run| {
        let (log, done) = (log.clone(), done.clone());
        async move {
            let work = || async {
                log.add(numbers(&run));
                Ok::<_, RunError>(1)
            };
            let _: u32 = run.step("paid", work).await?;
            if log.len() == 1 && run.fired_by().as_str() != "redrive" {
                return Ok(Outcome::failed("broken"));
            }
            done.add(numbers(&run));
            Ok::<_, RunError>(Outcome::succeeded())
        }
    }));
    let (engine, options) = engine(&store, queue).await;
    let first = engine.send("q", "k", json!(1)).await.unwrap();
    let worker = start(&engine, &options);
    until("it has failed", async || run_of(&engine, &first).await.row.state == RunState::Failed).await;
    engine.send("q", "k", json!(2)).await.unwrap();
    pass(10_000).await;
    assert_eq!(lane_of(&engine, "k").await.row.blocked_by, first.run_id);
    assert!(batches.all().is_empty(), "the key waits");
    engine.redrive(first.run_id.unwrap(), RedriveWish::default(), "ada").await.unwrap();
    until("both are done", async || batches.len() == 2).await;
    assert_eq!(batches.all(), [vec![1], vec![2]]);
    assert_eq!(calls.all(), [vec![1], vec![2]], "what was paid for is not paid again");
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn dead_letters_go_back_as_new_or_are_erased() {
    let store = TestStore::new();
    let queue = Queue::none().handler(from_fn(|run: Run| async move {
        let again = run.events()[0].was_seq.is_some();
        if again { Outcome::succeeded() } else { Outcome::failed("no") }
    }));
    let (engine, options) = engine(&store, queue).await;
    let worker = start(&engine, &options);
    let (a, b) = (send(&engine, "a").await, send(&engine, "b").await);
    until("both are dead", async || engine.stats().await.unwrap()[0].totals.dead == 2).await;
    let new = RedriveWish { to: RedriveTo::New, ..RedriveWish::default() };
    assert!(engine.redrive(a.run_id.unwrap(), new, "ada").await.unwrap().changed);
    until("one is done", async || engine.stats().await.unwrap()[0].totals.succeeded == 1).await;
    assert!(engine.erase_event(key("a"), a.event_id.clone(), "ada").await.unwrap().changed);
    assert_eq!(engine.event(key("a"), a.event_id).await.unwrap(), None);
    assert!(engine.erase_lane(key("b"), "ada").await.unwrap().changed);
    assert!(engine.lane(key("b")).await.unwrap().is_none());
    assert!(engine.run(b.run_id.unwrap()).await.unwrap().is_none());
    let missing = engine.redrive(b.run_id.unwrap(), RedriveWish::default(), "ada").await.unwrap_err();
    assert!(missing.to_string().contains("does not exist"), "{missing}");
    assert!(engine.verify().await.unwrap().problems.is_empty());
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_lane_may_drop_its_oldest_and_equal_payloads_may_be_one_event() {
    let store = TestStore::new();
    let queue = Queue::fixed(HOUR).max_lane_events(2, Overflow::DropOldest).content_dedupe();
    let (engine, _) = engine(&store, queue).await;
    for n in [1, 2, 2, 3] {
        engine.send("q", "k", json!(n)).await.unwrap();
    }
    let waiting = lane_of(&engine, "k").await.events;
    assert_eq!(waiting.iter().map(|e| e.payload.as_str()).collect::<Vec<_>>(), ["2", "3"]);
    let totals = engine.stats().await.unwrap()[0].totals;
    assert_eq!((totals.accepted, totals.discarded), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn impossible_queues_of_a_program_are_refused_with_the_reason() {
    use quell::{DuringRun, Quell, RetryWith};
    let refused = async |queues: Vec<(&str, Queue)>| {
        let builder = Quell::with_store(TestStore::new());
        let builder = queues.into_iter().fold(builder, |b, (name, queue)| b.queue(name, queue));
        builder.build().await.err().expect("it is refused").to_string()
    };
    let same = Queue::none().during_run(DuringRun::Gate).retry_with(RetryWith::Same);
    assert!(refused(vec![("q", same)]).await.contains("cannot be combined with interrupt or gate"));
    assert!(refused(vec![("q", Queue::none().max_interrupts(0))]).await.contains("between 1 and 100"));
    let tells = |to: &str| Queue::none().notify(to, &[RunState::Failed]);
    assert!(refused(vec![("q", tells("nowhere"))]).await.contains("which is no queue here"));
    assert!(refused(vec![("q", tells("q"))]).await.contains("never told of themselves"));
    let chain = vec![("a", tells("b")), ("b", tells("c")), ("c", Queue::none())];
    assert!(refused(chain).await.contains("never told of themselves"));
    let lanes = Queue::none().max_lane_events(0, Overflow::Reject);
    assert!(refused(vec![("q", lanes)]).await.contains("not between 1 and 1000000"));
}
