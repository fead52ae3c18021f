//! Shelves through the engine: unknown answers are resolved, and only what is ours counts as ours.

use std::time::Duration;

use quell::Queue;
use quell::quell_core::error::ErrorKind;
use quell::quell_core::shelf::Shelf;
use serde_json::json;

use crate::support::Fault::{DoneUnknown, LostUnknown, Unavailable};
use crate::support::{TestStore, engine};

#[tokio::test(start_paused = true)]
async fn documents_are_put_listed_and_removed() {
    let store = TestStore::new();
    let (engine, _) = engine(&store, Queue::none()).await;
    engine.put_document(Shelf::Tokens, "b", json!(2), None, true).await.unwrap();
    engine.put_document(Shelf::Tokens, "a", json!(1), Some(Duration::from_secs(60)), false).await.unwrap();
    let found = engine.documents(Shelf::Tokens).await.unwrap();
    assert_eq!(found.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(engine.remove_document(Shelf::Tokens, "a").await, Ok(true));
    assert_eq!(engine.remove_document(Shelf::Tokens, "a").await, Ok(false));
    assert_eq!(engine.documents(Shelf::Workers).await, Ok(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_answer_is_resolved_by_repeating() {
    let store = TestStore::new();
    let (engine, _) = engine(&store, Queue::none()).await;
    store.fail("shelf", &[LostUnknown, Unavailable, DoneUnknown]);
    engine.put_document(Shelf::Tokens, "a", json!(1), None, false).await.unwrap();
    store.fail("shelf", &[DoneUnknown, DoneUnknown]);
    engine.put_document(Shelf::Tokens, "b", json!({ "new": true }), None, true).await.unwrap();
    assert_eq!(engine.documents(Shelf::Tokens).await.unwrap().len(), 2);
    store.fail("shelf", &[LostUnknown]);
    assert_eq!(engine.remove_document(Shelf::Tokens, "a").await, Ok(true));
}

#[tokio::test(start_paused = true)]
async fn a_document_of_somebody_else_is_a_conflict_however_the_answer_was_lost() {
    let store = TestStore::new();
    let (engine, _) = engine(&store, Queue::none()).await;
    engine.put_document(Shelf::Tokens, "a", json!("theirs"), None, true).await.unwrap();
    store.fail("shelf", &[LostUnknown]);
    let error = engine.put_document(Shelf::Tokens, "a", json!("ours"), None, true).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict);
    let error = engine.put_document(Shelf::Tokens, "a", json!("theirs"), None, true).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict, "the answer was not lost, so it was not this call");
    assert_eq!(engine.documents(Shelf::Tokens).await.unwrap()[0].body, json!("theirs"));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_stays_unknown_is_told_after_a_bounded_time() {
    let store = TestStore::new();
    let (engine, _) = engine(&store, Queue::none()).await;
    store.fail("shelf", &[LostUnknown; 20]);
    let error = engine.put_document(Shelf::Tokens, "a", json!(1), None, false).await.unwrap_err();
    assert!(error.is_unknown());
    assert!(store.calls_of("shelf") <= 6);
}
