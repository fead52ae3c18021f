//! Sending: unknown answers are resolved, unknown queues refused, ids respected.

use quell::quell_core::error::ErrorKind;
use quell::quell_core::event::Payload;
use quell::{EngineError, Incoming, Queue};

use crate::support::Fault::{DoneUnknown, LostUnknown, Unavailable};
use crate::support::{TestStore, engine, lane_of, send};

#[tokio::test(start_paused = true)]
async fn an_unknown_answer_is_resolved_by_repeating_and_stores_once() {
    let store = TestStore::new();
    let (engine, _) = engine(&store, Queue::none()).await;
    store.fail("append", &[DoneUnknown, Unavailable, DoneUnknown]);
    let receipt = send(&engine, "k").await;
    assert!(receipt.event_id.as_str().starts_with("evt_"));
    assert_eq!(lane_of(&engine, "k").await.row.buffered, 1);
    store.fail("append", &[LostUnknown, LostUnknown]);
    send(&engine, "k").await;
    assert_eq!(
        lane_of(&engine, "k").await.row.buffered,
        2,
        "one that was really lost is stored by the repeat"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_stays_unknown_is_told_after_a_bounded_time() {
    let store = TestStore::new();
    let (engine, _) = engine(&store, Queue::none()).await;
    store.fail("append", &[LostUnknown; 20]);
    let answer = engine.send("q", "k", serde_json::json!(1)).await;
    assert!(matches!(answer, Err(EngineError::Store(e)) if e.is_unknown()));
    assert!(store.calls_of("append") <= 6);
}

#[tokio::test(start_paused = true)]
async fn unavailable_is_returned_at_once() {
    let store = TestStore::new();
    let (engine, _) = engine(&store, Queue::none()).await;
    store.fail("append", &[Unavailable]);
    let answer = engine.send("q", "k", serde_json::json!(1)).await;
    assert!(matches!(answer, Err(EngineError::Store(e)) if e.kind == ErrorKind::Unavailable));
    assert_eq!(store.calls_of("append"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_queue_is_refused_by_name() {
    let store = TestStore::new();
    let (engine, _) = engine(&store, Queue::none()).await;
    let error = engine.send("quue", "k", serde_json::json!(1)).await.unwrap_err();
    assert_eq!(error.to_string(), "unknown queue \"quue\"; the configuration knows q");
    let error = engine.send("Not A Queue", "k", serde_json::json!(1)).await.unwrap_err();
    assert!(error.to_string().starts_with("queue name"), "{error}");
    assert_eq!(store.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_given_id_is_stored_once_and_tenants_are_apart() {
    let store = TestStore::new();
    let (engine, _) = engine(&store, Queue::none()).await;
    let event = || {
        let payload = Payload::from_json(b"{ \"n\": 1.0 }").unwrap();
        Incoming::new("q", "k", payload).unwrap().id("message-1").unwrap()
    };
    let of_acme = event().tenant("acme").unwrap();
    let receipts = engine.append(vec![event(), event(), of_acme]).await.unwrap();
    assert_eq!(receipts.iter().map(|r| r.duplicate).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(receipts[0].seq, receipts[1].seq);
    assert!(engine.append(vec![event()]).await.unwrap()[0].duplicate);
}

#[tokio::test(start_paused = true)]
async fn operators_flush_pause_and_resume() {
    let store = TestStore::new();
    let (engine, _) = engine(&store, Queue::fixed(std::time::Duration::from_secs(60))).await;
    send(&engine, "k").await;
    let lane = crate::support::key("k");
    assert!(engine.pause(lane.clone(), "ada").await.unwrap());
    assert!(!engine.pause(lane.clone(), "bob").await.unwrap());
    assert_eq!(lane_of(&engine, "k").await.row.paused_by.as_deref(), Some("ada"));
    assert!(engine.resume(lane.clone(), "ada").await.unwrap());
    assert!(engine.flush(lane.clone(), "ada").await.unwrap());
    assert!(lane_of(&engine, "k").await.row.why.contains("due since"));
    let actors = engine.audit(Default::default()).await.unwrap().items;
    assert!(actors.iter().all(|r| r.actor.as_deref() == Some("ada")));
    assert_eq!(engine.stats().await.unwrap().len(), 1);
}
