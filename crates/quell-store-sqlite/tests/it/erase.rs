//! Erasure (rule 42): what was erased is in no file of the store, wherever SQLite may have copied it.

use std::path::Path;
use std::time::Duration;

use quell_core::error::ErrorKind;
use quell_core::store::{StepAction, Store};
use quell_core::window::Window;
use quell_store_sqlite::{SqliteStore, compact};
use quell_store_tests::builders::{
    FAILED, append, append_one, claim_all, erase_event, erase_lane, event, lane, settle, step, try_edit,
};
use quell_store_tests::reads::{health, verify};
use rusqlite::Connection;

const CANARY: &str = "CANARY";

/// Every file of the store in which the text is, with how often. Reading a database by other means ends the locks that
/// SQLite holds on it in this process; here no other process could make use of that.
fn found(folder: &Path) -> Vec<(String, usize)> {
    let files = std::fs::read_dir(folder).expect("the folder is there").flatten();
    let count = |bytes: &[u8]| bytes.windows(CANARY.len()).filter(|w| *w == CANARY.as_bytes()).count();
    files
        .filter(|entry| entry.path().is_file())
        .map(|entry| {
            let bytes = std::fs::read(entry.path()).expect("files of the store can be read");
            (entry.file_name().display().to_string(), count(&bytes))
        })
        .filter(|(_, times)| *times > 0)
        .collect()
}

async fn assert_sound(store: &dyn Store) {
    assert_eq!(verify(store).await.problems, Vec::<String>::new());
}

/// Keys, ids, payloads of all sizes, headers, steps, errors, results and events aside, among many that stay. The events
/// of different lanes come mixed, so that pages split and SQLite leaves copies behind.
#[tokio::test]
async fn after_an_erase_nothing_of_it_is_in_any_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    let store = SqliteStore::open(&path).unwrap();
    let key = |n: usize| if n.is_multiple_of(10) { format!("{CANARY}-{n}") } else { format!("plain-{n}") };
    for round in 0..30 {
        let events = (0..60).map(|n| {
            let word = if n % 10 == 0 { CANARY } else { "plain" };
            let text = word.repeat(1 + (n * 7 + round * 31) % 97 * if round % 9 == 0 { 40 } else { 1 });
            let new =
                event("chat", &key(n)).id(&format!("{word}-{n}-{round}")).payload(serde_json::json!(text));
            let new = new.header("traceparent", word).window(Window::none());
            if round % 10 == 9 { new.delay(3_600) } else { new }
        });
        append(&*store, events).await;
        if round % 5 == 4 {
            for batch in claim_all(&*store).await {
                let word = if batch.lane.key.as_str().contains(CANARY) { CANARY } else { "plain" };
                step(&*store, &batch, word, StepAction::Finish(serde_json::json!(word))).await;
                settle(&*store, &batch, FAILED).await;
            }
        }
    }
    append_one(&*store, event("chat", &key(0)).id("edited").payload(serde_json::json!(CANARY))).await;
    try_edit(&*store, &lane("chat", &key(0)), "edited", serde_json::json!(1)).await.unwrap();
    assert!(!found(folder.path()).is_empty(), "the search works");
    for n in (0..60).step_by(10) {
        assert!(erase_lane(&*store, &lane("chat", &key(n))).await.changed);
    }
    assert_eq!(found(folder.path()), []);
    assert_sound(&*store).await;
    drop(store);
    assert_eq!(found(folder.path()), []);
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(health(&*store).await.warnings, [], "and nothing is left to do");
}

#[tokio::test]
async fn one_event_is_erased_and_its_lane_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("q.db")).unwrap();
    append_one(&*store, event("chat", "k").id("stays").window(Window::none())).await;
    append_one(
        &*store,
        event("chat", "k").id("goes").payload(serde_json::json!(CANARY)).window(Window::none()),
    )
    .await;
    assert_eq!(erase_event(&*store, &lane("chat", "k"), "goes").await.events, 1);
    assert_eq!(found(folder.path()), []);
    assert_eq!(claim_all(&*store).await.len(), 1);
    assert_sound(&*store).await;
}

/// A reader that began before the erase still sees the old rows, so the log cannot be cut. It is, as soon as it can be.
#[tokio::test]
async fn a_reader_of_the_past_delays_the_clearing_and_does_not_prevent_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    let store = SqliteStore::open(&path).unwrap();
    append_one(&*store, event("chat", CANARY).payload(serde_json::json!(CANARY))).await;
    let reader = Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let _: u64 = reader.query_row("SELECT count(*) FROM event", [], |row| row.get(0)).unwrap();
    erase_lane(&*store, &lane("chat", CANARY)).await;
    assert!(!found(folder.path()).is_empty(), "it is in the snapshot of the reader");
    let warnings = health(&*store).await.warnings;
    assert!(warnings[0].text.contains("erased"), "{warnings:?}");
    drop(reader);
    // It is tried again with later writes, though not with each of them.
    for _ in 0..100 {
        append_one(&*store, event("chat", "another")).await;
        if found(folder.path()).is_empty() {
            return;
        }
        let _ = tokio::time::timeout(Duration::from_millis(100), std::future::pending::<()>()).await;
    }
    panic!("still there after ten seconds: {:?}", found(folder.path()));
}

/// As if the process had died between the commit of the erase and the clearing of the files.
#[tokio::test]
async fn what_a_crash_left_is_cleared_by_the_next_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    let store = SqliteStore::open(&path).unwrap();
    for n in 0..50 {
        append_one(&*store, event("chat", &format!("k{n}")).payload(serde_json::json!(CANARY.repeat(20))))
            .await;
    }
    drop(store);
    let died = Connection::open(&path).unwrap();
    died.execute_batch(
        "PRAGMA secure_delete = OFF; DELETE FROM event; DELETE FROM lane; UPDATE meta SET scrub_at = 1",
    )
    .unwrap();
    died.execute_batch("UPDATE queue SET discarded = discarded + buffered, buffered = 0, next_at = NULL")
        .unwrap();
    drop(died);
    assert!(!found(folder.path()).is_empty());
    let store = SqliteStore::open(&path).unwrap();
    store.advance(Duration::from_secs(1)).await.unwrap();
    assert_eq!(found(folder.path()), []);
    assert_sound(&*store).await;
}

#[tokio::test]
async fn a_file_is_compacted_while_others_have_it_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    let store = SqliteStore::open(&path).unwrap();
    for n in 0..50 {
        append_one(&*store, event("chat", &format!("k{n}")).window(Window::none())).await;
    }
    compact(&path).unwrap();
    assert_eq!(claim_all(&*store).await.len(), 50);
    assert_sound(&*store).await;
    assert_eq!(compact(&folder.path().join("nowhere.db")).unwrap_err().kind, ErrorKind::Unavailable);
}
