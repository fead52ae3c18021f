//! Events inside a caller's own transaction (rule 28): stored with the caller's rows or not at all.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quell_core::error::{ErrorKind, StoreError};
use quell_core::event::NewEvent;
use quell_core::lifecycle::{Change, RunState};
use quell_core::store::Store;
use quell_core::window::Window;
use quell_store_sqlite::rusqlite::{self, Connection};
use quell_store_sqlite::{SqliteStore, TransactionError, append_in};
use quell_store_tests::builders::{
    SUCCEEDED, append_one, append_request, claim_all, claim_none, event, ids, lane, refused, settle,
};
use quell_store_tests::reads::{all_runs, changes, event_place, stats, totals, trail_of, verify};

const LIMIT: Duration = Duration::from_secs(5);

struct Place {
    _folder: tempfile::TempDir,
    path: PathBuf,
    store: Arc<SqliteStore>,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = folder.path().join("q.db");
        let store = SqliteStore::open(&path).expect("a new file opens");
        let place = Place { _folder: folder, path, store };
        place
            .connect()
            .execute_batch("CREATE TABLE app_orders (id TEXT PRIMARY KEY)")
            .expect("a table is made");
        place
    }

    /// A connection of the application.
    fn connect(&self) -> Connection {
        let connection = Connection::open(&self.path).expect("the file opens");
        connection.busy_timeout(Duration::from_secs(5)).expect("patience is set");
        connection
    }

    fn orders(&self) -> u64 {
        self.connect()
            .query_row("SELECT count(*) FROM app_orders", [], |row| row.get(0))
            .expect("the table is there")
    }

    /// Nothing of an event or an order is there, and the counters say so.
    async fn assert_nothing(&self) {
        assert_eq!(self.orders(), 0);
        claim_none(&*self.store).await;
        assert!(stats(&*self.store).await.iter().all(|queue| queue.totals.accepted == 0));
        self.assert_sound().await;
    }

    async fn assert_sound(&self) {
        assert_eq!(verify(&*self.store).await.problems, Vec::<String>::new());
    }
}

fn new(text: &str) -> NewEvent {
    event("orders", "k").id(text).window(Window::none()).build()
}

fn order(connection: &Connection, name: &str) -> rusqlite::Result<usize> {
    connection.execute("INSERT INTO app_orders VALUES (?1)", [name])
}

#[tokio::test]
async fn what_a_closure_writes_and_appends_is_stored_together_and_delivered_once() {
    let place = Place::new();
    let mut wakeups = place.store.wakeups();
    let receipt = place
        .store
        .transaction(LIMIT, |connection, appender| -> Result<_, StoreError> {
            order(connection, "o1").unwrap();
            appender.append(new("e1"))
        })
        .await
        .unwrap();
    assert_eq!((receipt.seq, receipt.run_id, receipt.duplicate), (None, None, false));
    tokio::time::timeout(Duration::from_secs(5), wakeups.woken()).await.expect("sleepers are woken");
    assert_eq!(place.orders(), 1);
    assert_eq!(totals(&*place.store, "orders").await.delayed, 1);
    let batches = claim_all(&*place.store).await;
    assert_eq!(batches.iter().map(ids).collect::<Vec<_>>(), [["e1"]]);
    settle(&*place.store, &batches[0], SUCCEEDED).await;
    claim_none(&*place.store).await;
    place.assert_sound().await;
}

#[tokio::test]
async fn the_error_of_a_closure_takes_everything_back() {
    let place = Place::new();
    let refused = place
        .store
        .transaction(LIMIT, |connection, appender| -> Result<(), &str> {
            order(connection, "o1").unwrap();
            appender.append(new("e1")).unwrap();
            Err("no money")
        })
        .await;
    assert_eq!(refused, Err(TransactionError::Closure("no money")));
    place.assert_nothing().await;
}

#[tokio::test]
async fn a_panic_of_a_closure_is_its_callers_and_the_store_goes_on() {
    let place = Place::new();
    let store = place.store.clone();
    let panicked = tokio::spawn(async move {
        let work = |connection: &Connection, _: &mut quell_store_sqlite::Appender| -> Result<(), ()> {
            order(connection, "o1").unwrap();
            panic!("a closure's own mistake")
        };
        store.transaction(LIMIT, work).await
    });
    assert!(panicked.await.unwrap_err().is_panic());
    place.assert_nothing().await;
    append_one(&*place.store, event("orders", "k")).await;
}

/// SQLite ends the transaction when its SQL is stopped. A closure that goes on after that must not commit row by row.
#[tokio::test]
async fn a_closure_that_takes_too_long_is_stopped_and_leaves_nothing() {
    let place = Place::new();
    let late = place
        .store
        .transaction(Duration::from_millis(50), |connection, appender| -> Result<(), StoreError> {
            order(connection, "o1").unwrap();
            let endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)
                           INSERT INTO app_orders SELECT 'n' || x FROM n";
            assert!(connection.execute(endless, []).is_err());
            let _ = order(connection, "o2");
            appender.append(new("e1")).map(|_| ())
        })
        .await;
    let Err(TransactionError::Store(error)) = late else { panic!("{late:?}") };
    assert_eq!(error.kind, ErrorKind::Limit, "{error}");
    place.assert_nothing().await;
    let long = place.store.transaction(Duration::from_secs(60), |_, _| Ok::<(), ()>(())).await;
    assert!(matches!(long, Err(TransactionError::Store(e)) if e.kind == ErrorKind::Invalid));
}

#[tokio::test]
async fn a_closure_cannot_commit_by_itself() {
    for ending in ["COMMIT", "ROLLBACK"] {
        let place = Place::new();
        let ended = place
            .store
            .transaction(LIMIT, move |connection, appender| -> Result<(), StoreError> {
                order(connection, "o1").unwrap();
                let _ = connection.execute_batch(ending);
                let _ = order(connection, "o2");
                appender.append(new("e1")).map(|_| ())
            })
            .await;
        let Err(TransactionError::Store(error)) = ended else { panic!("{ended:?}") };
        assert!(error.detail.contains("ended inside the closure"), "{error}");
        place.assert_nothing().await;
    }
}

/// A closure shares the writer with other callers, and none of them is touched by its failure.
#[tokio::test]
async fn the_failure_of_a_closure_is_nobody_elses() {
    let place = Place::new();
    let store = &place.store;
    let closure = store.transaction(LIMIT, |connection, _| -> Result<(), StoreError> {
        let _ = connection.execute_batch("INSERT OR ROLLBACK INTO app_orders VALUES ('a'), ('a')");
        Ok(())
    });
    let (a, b) = (append_request([event("chat", "a")]), append_request([event("chat", "b")]));
    let (first, closure, second) = tokio::join!(store.append(a), closure, store.append(b));
    first.unwrap();
    second.unwrap();
    assert!(matches!(closure, Err(TransactionError::Store(_))));
    assert_eq!(totals(&**store, "chat").await.accepted, 2);
    place.assert_sound().await;
}

#[tokio::test]
async fn an_event_in_a_callers_own_transaction_is_delivered_once_when_that_commits() {
    let place = Place::new();
    let mut wakeups = place.store.wakeups();
    let mut connection = place.connect();
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    order(&transaction, "o1").unwrap();
    let receipt = append_in(&transaction, &new("e1")).unwrap();
    append_in(&transaction, &event("other", "x").delay(3_600).build()).unwrap();
    assert_eq!((receipt.seq, receipt.duplicate), (None, false));
    claim_none(&*place.store).await;
    transaction.commit().unwrap();
    place.store.wake();
    tokio::time::timeout(Duration::from_secs(5), wakeups.woken()).await.expect("sleepers are woken");
    place.assert_sound().await;
    let told = event_place(&*place.store, &lane("orders", "k"), "e1").await.unwrap();
    assert_eq!((told.ready_at, told.event.seq), (receipt.due_at, 0));
    let batches = claim_all(&*place.store).await;
    assert_eq!(batches.iter().map(ids).collect::<Vec<_>>(), [["e1"]]);
    settle(&*place.store, &batches[0], SUCCEEDED).await;
    claim_none(&*place.store).await;
    assert_eq!(totals(&*place.store, "other").await.delayed, 1);
    place.assert_sound().await;
}

#[tokio::test]
async fn a_caller_that_rolls_back_or_dies_leaves_nothing() {
    let place = Place::new();
    let connection = place.connect();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    order(&connection, "o1").unwrap();
    append_in(&connection, &new("e1")).unwrap();
    connection.execute_batch("ROLLBACK").unwrap();
    place.assert_nothing().await;
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    order(&connection, "o1").unwrap();
    append_in(&connection, &new("e1")).unwrap();
    drop(connection);
    place.assert_nothing().await;
    // The numbers that were rolled back are not missed by anybody.
    append_one(&*place.store, event("orders", "k").id("e1")).await;
    place.assert_sound().await;
}

#[tokio::test]
async fn a_duplicate_is_dropped_and_a_conflict_becomes_a_dead_letter() {
    let place = Place::new();
    let connection = place.connect();
    let append = |event: &NewEvent| {
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        append_in(&connection, event).unwrap();
        connection.execute_batch("COMMIT").unwrap();
    };
    append(&new("e1"));
    append(&new("e1"));
    append(&event("orders", "k").id("e1").window(Window::none()).payload(serde_json::json!("other")).build());
    let batches = claim_all(&*place.store).await;
    assert_eq!(batches.iter().map(ids).collect::<Vec<_>>(), [["e1"]], "the first stands");
    settle(&*place.store, &batches[0], SUCCEEDED).await;
    let counted = totals(&*place.store, "orders").await;
    let (accepted, succeeded) = (counted.accepted, counted.succeeded);
    assert_eq!((accepted, succeeded, counted.discarded, counted.dead), (3, 1, 1, 1));
    let told = changes(&trail_of(&*place.store, "orders", "k").await);
    assert!(told.contains(&Change::DuplicateDropped) && told.contains(&Change::ConflictBuried), "{told:?}");
    let filter = quell_core::inspect::RunFilter { state: Some(RunState::Failed), ..Default::default() };
    let dead = all_runs(&*place.store, filter).await;
    let error = dead[0].error.clone().unwrap();
    assert!(error.contains("event id e1 was already used"), "{error}");
    place.assert_sound().await;
}

#[tokio::test]
async fn an_event_without_a_transaction_or_into_another_file_is_refused() {
    let place = Place::new();
    let connection = place.connect();
    let error = refused(append_in(&connection, &new("e1")), ErrorKind::Invalid);
    assert!(error.detail.contains("BEGIN IMMEDIATE"), "{error}");
    let idle = event("orders", "k").only_if_idle().build();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    refused(append_in(&connection, &idle), ErrorKind::Invalid);
    connection.execute_batch("COMMIT").unwrap();
    let other = Connection::open_in_memory().unwrap();
    other.execute_batch("BEGIN").unwrap();
    refused(append_in(&other, &new("e1")), ErrorKind::Corrupt);
    place.assert_nothing().await;
}

/// A reader that idles keeps an old snapshot; writing from it is refused, and nobody else notices it.
#[tokio::test]
async fn a_caller_that_idles_in_a_read_transaction_harms_nobody() {
    let place = Place::new();
    let connection = place.connect();
    connection.execute_batch("BEGIN").unwrap();
    let _: u64 = connection.query_row("SELECT count(*) FROM app_orders", [], |row| row.get(0)).unwrap();
    append_one(&*place.store, event("chat", "k").window(Window::none())).await;
    let batches = claim_all(&*place.store).await;
    settle(&*place.store, &batches[0], SUCCEEDED).await;
    let error = refused(append_in(&connection, &new("e1")), ErrorKind::Unavailable);
    assert!(error.detail.contains("BEGIN IMMEDIATE"), "{error}");
    connection.execute_batch("ROLLBACK; BEGIN IMMEDIATE").unwrap();
    append_in(&connection, &new("e1")).unwrap();
    connection.execute_batch("COMMIT").unwrap();
    assert_eq!(claim_all(&*place.store).await.len(), 1);
    place.assert_sound().await;
}

/// Time is the runtime's, so the ten seconds of patience pass at once; the lock is a real one.
#[tokio::test(start_paused = true)]
async fn a_caller_that_idles_in_a_write_transaction_makes_others_wait_or_be_refused() {
    let place = Place::new();
    let connection = place.connect();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    append_in(&connection, &new("e1")).unwrap();
    let request = || append_request([event("chat", "k").id("a").window(Window::none())]);
    let error = refused(place.store.append(request()).await, ErrorKind::Unavailable);
    assert!(error.detail.contains("nothing was done"), "{error}");
    // The next one waits in real time until the caller is done.
    tokio::time::resume();
    let commit = async {
        tokio::task::yield_now().await;
        connection.execute_batch("COMMIT").unwrap();
    };
    let (stored, ()) = tokio::join!(place.store.append(request()), commit);
    assert!(!stored.unwrap().receipts[0].duplicate, "the refused call left nothing behind");
    let mut claimed: Vec<String> = claim_all(&*place.store)
        .await
        .iter()
        .flat_map(|b| ids(b).into_iter().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    claimed.sort();
    assert_eq!(claimed, ["a", "e1"]);
    place.assert_sound().await;
}

#[tokio::test]
async fn a_closure_may_append_by_either_way_and_no_number_is_used_twice() {
    let place = Place::new();
    let both = |connection: &Connection, appender: &mut quell_store_sqlite::Appender| {
        append_in(connection, &new("by the connection"))?;
        appender.append(new("by the appender"))?;
        Ok::<_, StoreError>(())
    };
    place.store.transaction(LIMIT, both).await.expect("both are stored");
    append_one(&*place.store, event("orders", "later").id("delayed").delay(10)).await;
    let batches = claim_all(&*place.store).await;
    assert_eq!(batches.iter().map(|b| b.events.len()).sum::<usize>(), 2);
    place.assert_sound().await;
}
