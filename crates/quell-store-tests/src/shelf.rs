//! Small documents beside the lanes: put, replaced, removed, listed, gone in time, and bounded.
//!
//! That a copy takes them along is in [`crate::copy`].

use std::sync::Arc;
use std::time::Duration;

use quell_core::error::{ErrorKind, StoreResult};
use quell_core::limits;
use quell_core::shelf::{Document, Shelf, ShelfAction, ShelfAnswer, ShelfRequest};
use quell_core::store::Store;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::World;
use crate::builders::{documents, put_document, refused, remove_document, secs, sweep, try_put_document};
use crate::reads::{assert_moment, health};

fn names(found: &[Document]) -> Vec<&str> {
    found.iter().map(|document| document.name.as_str()).collect()
}

async fn named(store: &dyn Store, shelf: Shelf) -> Vec<String> {
    documents(store, shelf).await.into_iter().map(|document| document.name).collect()
}

/// Puts a document that must be new.
async fn first(
    store: &dyn Store,
    name: &str,
    body: Value,
    ttl: Option<Duration>,
) -> StoreResult<ShelfAnswer> {
    let action = ShelfAction::Put { name: name.to_owned(), body, ttl, only_new: true };
    store.shelf(ShelfRequest { shelf: Shelf::Tokens, action }).await
}

pub async fn a_document_is_listed_as_it_was_put(world: &dyn World) {
    let store = world.store();
    assert_eq!(documents(&*store, Shelf::Tokens).await, []);
    let now = health(&*store).await.now;
    put_document(&*store, Shelf::Tokens, "ada", json!({ "may": ["read"] }), None).await;
    put_document(&*store, Shelf::Tokens, "bob", json!(7), Some(secs(60))).await;
    let found = documents(&*world.another().await, Shelf::Tokens).await;
    assert_eq!(names(&found), ["ada", "bob"]);
    assert_eq!((&found[0].body, found[0].expires_at), (&json!({ "may": ["read"] }), None));
    assert_moment(world, found[0].put_at, now, "put now");
    assert_eq!(found[1].expires_at, Some(found[1].put_at.after(secs(60))));
}

pub async fn a_put_replaces_what_stands_under_its_name(world: &dyn World) {
    let store = world.store();
    put_document(&*store, Shelf::Workers, "w1", json!({ "runs": 1 }), Some(secs(60))).await;
    world.advance(secs(10)).await;
    put_document(&*store, Shelf::Workers, "w1", json!({ "runs": 2 }), Some(secs(60))).await;
    world.advance(secs(55)).await;
    let found = documents(&*store, Shelf::Workers).await;
    assert_eq!(names(&found), ["w1"], "its time began anew");
    assert_eq!(found[0].body, json!({ "runs": 2 }));
    put_document(&*store, Shelf::Workers, "w1", json!(null), None).await;
    world.advance(secs(600)).await;
    sweep(&*store).await;
    assert_eq!(documents(&*store, Shelf::Workers).await[0].body, json!(null), "it stays from now on");
}

pub async fn documents_are_listed_in_the_order_of_their_bytes(world: &dyn World) {
    let store = world.store();
    let ordered = ["A", "B", "a", "a b", "a-b", "aa", "b", "z", "~", "ä", "ö", "日", "😀"];
    for name in ordered.iter().rev() {
        put_document(&*store, Shelf::Tokens, name, json!(name), None).await;
    }
    assert_eq!(named(&*store, Shelf::Tokens).await, ordered);
}

pub async fn shelves_do_not_know_of_one_another(world: &dyn World) {
    let store = world.store();
    put_document(&*store, Shelf::Tokens, "x", json!("token"), None).await;
    put_document(&*store, Shelf::Workers, "x", json!("worker"), None).await;
    put_document(&*store, Shelf::Deliveries, "x", json!("delivery"), None).await;
    assert!(remove_document(&*store, Shelf::Tokens, "x").await);
    assert_eq!(documents(&*store, Shelf::Tokens).await, []);
    assert_eq!(documents(&*store, Shelf::Workers).await[0].body, json!("worker"));
    assert_eq!(documents(&*store, Shelf::Deliveries).await[0].body, json!("delivery"));
}

pub async fn only_the_first_of_a_name_may_be_put_as_new(world: &dyn World) {
    let store = world.store();
    assert_eq!(first(&*store, "ada", json!(1), None).await, Ok(ShelfAnswer::Put));
    let error = refused(first(&*store, "ada", json!(2), None).await, ErrorKind::Conflict);
    assert!(error.detail.contains("ada"), "{error}");
    assert_eq!(documents(&*store, Shelf::Tokens).await[0].body, json!(1), "it stays");
    assert!(remove_document(&*store, Shelf::Tokens, "ada").await);
    assert_eq!(first(&*store, "ada", json!(3), None).await, Ok(ShelfAnswer::Put));
}

pub async fn what_is_removed_is_gone_and_removing_it_again_says_so(world: &dyn World) {
    let store = world.store();
    put_document(&*store, Shelf::Tokens, "ada", json!(1), Some(secs(600))).await;
    put_document(&*store, Shelf::Tokens, "bob", json!(2), None).await;
    assert!(remove_document(&*store, Shelf::Tokens, "ada").await);
    assert!(!remove_document(&*store, Shelf::Tokens, "ada").await);
    assert!(!remove_document(&*store, Shelf::Tokens, "nobody").await);
    assert_eq!(named(&*world.another().await, Shelf::Tokens).await, ["bob"]);
}

pub async fn a_document_is_gone_after_its_time_by_the_clock_of_the_store(world: &dyn World) {
    let store = world.store();
    put_document(&*store, Shelf::Workers, "short", json!(1), Some(secs(30))).await;
    put_document(&*store, Shelf::Workers, "long", json!(2), Some(secs(300))).await;
    world.advance(secs(20)).await;
    assert_eq!(named(&*store, Shelf::Workers).await, ["long", "short"]);
    world.advance(secs(20)).await;
    assert_eq!(named(&*store, Shelf::Workers).await, ["long"]);
    assert!(!remove_document(&*store, Shelf::Workers, "short").await, "there is nothing to remove");
    sweep(&*store).await;
    assert_eq!(named(&*store, Shelf::Workers).await, ["long"]);
}

pub async fn a_name_whose_time_is_over_is_free_again(world: &dyn World) {
    let store = world.store();
    first(&*store, "ada", json!(1), Some(secs(30))).await.expect("it is the first");
    refused(first(&*store, "ada", json!(2), None).await, ErrorKind::Conflict);
    world.advance(secs(40)).await;
    first(&*store, "ada", json!(3), None).await.expect("the first is gone");
    world.advance(secs(40)).await;
    sweep(&*store).await;
    let found = documents(&*store, Shelf::Tokens).await;
    assert_eq!((names(&found), &found[0].body), (vec!["ada"], &json!(3)));
}

pub async fn a_sweep_takes_away_what_is_over_and_nothing_else(world: &dyn World) {
    let store = world.store();
    for n in 0..20 {
        let ttl = (n % 2 == 0).then_some(secs(30));
        put_document(&*store, Shelf::Workers, &format!("w{n:02}"), json!(n), ttl).await;
    }
    world.advance(secs(40)).await;
    sweep(&*store).await;
    sweep(&*store).await;
    let left: Vec<String> = (0..20).filter(|n| n % 2 == 1).map(|n| format!("w{n:02}")).collect();
    assert_eq!(named(&*store, Shelf::Workers).await, left);
}

/// Fills a shelf: as a copy does where that is possible, because ten thousand commits one after the other take their time;
/// otherwise many at once and by two handles.
async fn fill(world: &dyn World, shelf: Shelf, count: usize, ttl: Option<Duration>) {
    const TASKS: usize = 16;
    if let Some(portable) = world.portable() {
        let mut frame = portable.frame().await.expect("reads are answered");
        let (put_at, expires_at) = (frame.now, ttl.map(|ttl| frame.now.after(ttl)));
        let document = |n| Document { name: format!("d{n:05}"), body: json!(n), put_at, expires_at };
        frame.documents = (0..count).map(|n| (shelf, document(n))).collect();
        return portable.take_frame(&frame).await.expect("it is filled");
    }
    let handles = [world.store(), world.another().await];
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let store = handles[task % 2].clone();
        tasks.spawn(async move {
            for n in (task..count).step_by(TASKS) {
                put_document(&*store, shelf, &format!("d{n:05}"), json!(n), ttl).await;
            }
        });
    }
    tasks.join_all().await;
}

pub async fn a_shelf_holds_so_many_documents_and_not_one_more(world: &dyn World) {
    let store = world.store();
    fill(world, Shelf::Tokens, limits::SHELF_DOCUMENTS_MAX - 1, Some(secs(86_400))).await;
    put_document(&*store, Shelf::Tokens, "last", json!(1), Some(secs(2 * 86_400))).await;
    let one_more = |name: &'static str| {
        let store = store.clone();
        async move { try_put_document(&*store, Shelf::Tokens, name, json!(1), None).await }
    };
    let error = refused(one_more("more").await, ErrorKind::Limit);
    assert!(error.detail.contains(&limits::SHELF_DOCUMENTS_MAX.to_string()), "the limit is named: {error}");
    put_document(&*store, Shelf::Tokens, "last", json!(2), Some(secs(2 * 86_400))).await;
    put_document(&*store, Shelf::Workers, "w", json!(1), None).await;
    assert!(remove_document(&*store, Shelf::Tokens, "d00000").await);
    let answers = [one_more("x"), one_more("y"), one_more("z")].map(tokio::spawn);
    let mut done = 0;
    for answer in answers {
        match answer.await.expect("no task panics") {
            Ok(_) => done += 1,
            Err(error) => assert_eq!(error.kind, ErrorKind::Limit, "{error}"),
        }
    }
    assert_eq!(done, 1, "there was room for one");
    world.advance(secs(86_500)).await;
    assert_eq!(one_more("more").await, Ok(ShelfAnswer::Put), "what is over takes no room");
    assert_eq!(documents(&*store, Shelf::Tokens).await.len(), 3);
    sweep(&*store).await;
    assert_eq!(documents(&*store, Shelf::Tokens).await.len(), 3);
}

pub async fn a_document_over_a_limit_is_refused_and_nothing_is_stored(world: &dyn World) {
    let store = world.store();
    let put = |name: String, body: Value, ttl: Option<Duration>| {
        let store = store.clone();
        async move { try_put_document(&*store, Shelf::Tokens, &name, body, ttl).await }
    };
    let long = "x".repeat(limits::SHELF_NAME_BYTES_MAX + 1);
    for name in [String::new(), "a\0b".to_owned(), long.clone()] {
        refused(put(name, json!(1), None).await, ErrorKind::Invalid);
    }
    let action = ShelfAction::Remove { name: long };
    refused(store.shelf(ShelfRequest { shelf: Shelf::Tokens, action }).await, ErrorKind::Invalid);
    for shelf in Shelf::ALL {
        let large = json!("x".repeat(shelf.body_bytes_max() - 1));
        refused(try_put_document(&*store, shelf, "large", large, None).await, ErrorKind::Limit);
    }
    let longer = limits::SHELF_TTL_MAX + secs(1);
    refused(put("late".into(), json!(1), Some(longer)).await, ErrorKind::Limit);
    let deep = (0..limits::SHELF_BODY_DEPTH_MAX).fold(json!([]), |inner, _| json!([inner]));
    refused(put("deep".into(), deep, None).await, ErrorKind::Invalid);
    for shelf in Shelf::ALL {
        assert_eq!(documents(&*store, shelf).await, [], "{}", shelf.as_str());
    }
}

pub async fn names_and_json_survive_exactly(world: &dyn World) {
    let store = world.store();
    let widest = "ä".repeat(limits::SHELF_NAME_BYTES_MAX / 2);
    let odd = ["\u{1}\n\t\r", " ", "'; DROP TABLE document; --", "\"{}\"", "quell.meta", "{p0}:x", &widest];
    let deepest = (1..limits::SHELF_BODY_DEPTH_MAX).fold(json!([]), |inner, _| json!([inner]));
    let bodies = [
        json!(null),
        json!({ "nul": "\u{0}", "": "\u{feff}\u{2028}😀\\\"/", "quell.": "{p0}" }),
        json!([u64::MAX, i64::MIN, 0, -1, 0.5, -0.25, true, false]),
        json!(""),
        json!({ "b": 1, "a": { "z": [], "y": {} } }),
        deepest,
        json!("x".repeat(limits::SHELF_BODY_BYTES_MAX - 2)),
    ];
    for (name, body) in odd.iter().zip(&bodies) {
        put_document(&*store, Shelf::Tokens, name, body.clone(), None).await;
    }
    let mut expected: Vec<(&str, &Value)> = odd.iter().copied().zip(&bodies).collect();
    expected.sort_by_key(|(name, _)| *name);
    let found = documents(&*store, Shelf::Tokens).await;
    let found: Vec<(&str, &Value)> = found.iter().map(|d| (d.name.as_str(), &d.body)).collect();
    assert_eq!(found, expected);
    for name in odd {
        assert!(remove_document(&*store, Shelf::Tokens, name).await, "{name:?}");
    }
    // Each shelf takes what its documents need, to the last byte: of plain text, of wide characters, and of escapes.
    for shelf in Shelf::ALL {
        let room = shelf.body_bytes_max() - 2;
        let texts = ["x".repeat(room), "\u{1f40c}".repeat(room / 4), "\u{0}".repeat(room / 6)];
        for (n, text) in texts.iter().enumerate() {
            put_document(&*store, shelf, &format!("full {n}"), json!(text), None).await;
        }
        let found = documents(&*store, shelf).await;
        let bodies: Vec<&str> = found.iter().filter_map(|document| document.body.as_str()).collect();
        assert!(bodies == texts, "{} gives back something else", shelf.as_str());
    }
}

pub async fn documents_survive_a_restart(world: &dyn World) {
    let store = world.store();
    put_document(&*store, Shelf::Tokens, "ada", json!({ "hash": "abc" }), Some(secs(3_600))).await;
    put_document(&*store, Shelf::Tokens, "bob", json!(2), None).await;
    remove_document(&*store, Shelf::Tokens, "bob").await;
    let before = documents(&*store, Shelf::Tokens).await;
    drop(store);
    let store = world.reopen().await;
    assert_eq!(documents(&*store, Shelf::Tokens).await, before);
    refused(first(&*store, "ada", json!(1), None).await, ErrorKind::Conflict);
    first(&*store, "bob", json!(1), None).await.expect("it was removed");
}

pub async fn a_sealed_store_lists_its_shelves_and_changes_nothing(world: &dyn World) {
    let Some(portable) = world.portable() else { return };
    let store = world.store();
    put_document(&*store, Shelf::Tokens, "ada", json!(1), None).await;
    put_document(&*store, Shelf::Tokens, "old", json!(1), Some(secs(10))).await;
    world.advance(secs(20)).await;
    portable.seal(Some("bob")).await.expect("it is sealed");
    let remove = |name: &str| ShelfAction::Remove { name: name.to_owned() };
    let put = |name: &str, only_new: bool| {
        let (name, body) = (name.to_owned(), json!(2));
        ShelfAction::Put { name, body, ttl: None, only_new }
    };
    let all = [put("new", false), put("ada", false), put("ada", true), put("old", true)];
    for action in all.into_iter().chain(["ada", "old", "nobody"].map(remove)) {
        let answer = store.shelf(ShelfRequest { shelf: Shelf::Tokens, action }).await;
        let error = refused(answer, ErrorKind::Unavailable);
        assert!(error.detail.contains("sealed by bob"), "{error}");
    }
    assert_eq!(named(&*store, Shelf::Tokens).await, ["ada"]);
    portable.seal(None).await.expect("the seal is lifted");
    assert!(remove_document(&*store, Shelf::Tokens, "ada").await);
}

pub async fn of_many_who_want_to_be_the_first_exactly_one_is(world: &dyn World) {
    let handles: [Arc<dyn Store>; 2] = [world.store(), world.another().await];
    for round in 0..5 {
        let name = format!("round {round}");
        let mut tasks = JoinSet::new();
        for n in 0..16 {
            let (store, name) = (handles[n % 2].clone(), name.clone());
            tasks.spawn(async move { (n, first(&*store, &name, json!(n), None).await) });
        }
        let mut won = Vec::new();
        for (n, answer) in tasks.join_all().await {
            match answer {
                Ok(_) => won.push(json!(n)),
                Err(error) => assert_eq!(error.kind, ErrorKind::Conflict, "{error}"),
            }
        }
        let found = documents(&*handles[0], Shelf::Tokens).await;
        let stands: Vec<Value> =
            found.into_iter().filter(|document| document.name == name).map(|d| d.body).collect();
        assert_eq!(won, stands, "the one who was told so");
        assert_eq!(won.len(), 1);
    }
}
