//! What an idle worker costs on a real file, in real time: at most one store statement per second, counted by the store.

use std::time::Duration;

use quell::{Quell, Queue, Run, Shutdown, Worker, from_fn};
use quell_store_sqlite::SqliteStore;

#[tokio::test]
async fn an_idle_worker_on_sqlite_costs_at_most_one_statement_per_second() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("q.db")).unwrap();
    let queue = Queue::none().handler(from_fn(|_: Run| async {}));
    let (engine, options) = Quell::with_store(store.clone()).queue("q", queue).build().await.unwrap();
    engine.send("q", "k", serde_json::json!(1)).await.unwrap();
    let shutdown = Shutdown::new();
    let working = tokio::spawn(Worker::new(engine.clone(), options).unwrap().run(shutdown.clone()));
    // The idle pause grows from 100 ms to 5 s; what counts is the rate once it has.
    quell::clock::sleep(Duration::from_secs(4)).await;
    let before = store.statements();
    quell::clock::sleep(Duration::from_secs(6)).await;
    let spent = store.statements() - before;
    shutdown.request();
    let report = working.await.unwrap();
    assert_eq!(report.claimed, 1, "it did work before it was idle");
    assert!(spent <= 6, "{spent} statements in 6 idle seconds");
}
