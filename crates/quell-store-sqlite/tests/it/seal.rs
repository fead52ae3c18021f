//! A sealed file: nothing changes in it any more, whichever way somebody comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quell_core::copy::Portable;
use quell_core::error::ErrorKind;
use quell_store_sqlite::rusqlite::Connection;
use quell_store_sqlite::{SqliteStore, TransactionError, append_in};
use quell_store_tests::builders::{append_one, event, refused, try_append};
use quell_store_tests::reads::health;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_own_transactions_are_refused_too() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("q.db");
    let store = SqliteStore::open(&path).expect("a new file opens");
    let own = Connection::open(&path).expect("the file opens");
    own.execute_batch("CREATE TABLE app_orders (id TEXT PRIMARY KEY)").expect("a table is made");
    store.seal(Some("ada")).await.expect("it is sealed");

    let closure = store.transaction(Duration::from_secs(5), |_, appender| {
        appender.append(event("orders", "k").id("a").build()).map(|_| ())
    });
    let Err(TransactionError::Store(error)) = closure.await else { panic!("the closure ran") };
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.detail.contains("sealed by ada"), "{error}");

    own.execute_batch("BEGIN IMMEDIATE; INSERT INTO app_orders VALUES ('o1')").expect("a row is written");
    let error = refused(append_in(&own, &event("orders", "k").id("b").build()), ErrorKind::Unavailable);
    assert!(error.detail.contains("sealed by ada"), "{error}");
    own.execute_batch("COMMIT").expect("the caller's transaction goes on");
    let frame = store.frame().await.expect("it is read");
    assert_eq!((frame.counts.aside, frame.totals.len(), frame.last_number), (0, 0, 0), "{frame:?}");
    let warnings = health(&*store).await.warnings;
    assert!(warnings.iter().any(|one| one.text.contains("sealed by ada")), "{warnings:?}");

    store.seal(None).await.expect("the seal is lifted");
    append_one(&*store, event("orders", "k").id("a")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_seal_is_there_nobody_is_still_writing() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("q.db");
    let store = SqliteStore::open(&path).expect("a new file opens");
    let another = SqliteStore::open(&path).expect("a second handle opens");
    let sealed = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = [store.clone(), another.clone()]
        .into_iter()
        .map(|store| {
            let sealed = sealed.clone();
            tokio::spawn(async move {
                let mut stored = 0_u64;
                loop {
                    let knew = sealed.load(Ordering::SeqCst);
                    match try_append(&*store, [event("chat", "k").quiet(3_600)]).await {
                        Ok(_) => assert!(!knew, "an event was stored after the seal"),
                        Err(error) => break (stored, error),
                    }
                    stored += 1;
                }
            })
        })
        .collect();
    while store.frame().await.expect("it is read").counts.events < 20 {}
    another.seal(Some("ada")).await.expect("it is sealed");
    sealed.store(true, Ordering::SeqCst);
    let events = store.frame().await.expect("it is read").counts.events;
    let mut told = 0;
    for writer in writers {
        let (stored, error) = writer.await.expect("the writer ends");
        assert!(error.detail.contains("sealed by ada"), "{error}");
        told += stored;
    }
    assert_eq!(store.frame().await.expect("it is read").counts.events, events);
    assert_eq!(told, events, "what was acknowledged is there, and nothing else");
}
