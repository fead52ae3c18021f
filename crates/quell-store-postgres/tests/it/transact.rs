//! Events inside a caller's own transaction (rule 28): stored with the caller's rows or not at all.

use std::sync::Arc;
use std::time::Duration;

use quell_core::error::ErrorKind;
use quell_core::event::NewEvent;
use quell_core::lifecycle::{Change, RunState};
use quell_core::store::Store;
use quell_core::window::Window;
use quell_store_postgres::PostgresStore;
use quell_store_tests::builders::{
    SUCCEEDED, append_one, claim_all, claim_none, declare, event, ids, rate, refused, settle,
};
use quell_store_tests::reads::{all_runs, changes, source_row, totals, trail_of, verify};
use quell_test_servers::postgres_url;
use tokio_postgres::Client;

use crate::world::{fresh_schema, run_sql, with};

struct Place {
    schema: String,
    store: Arc<PostgresStore>,
    client: Client,
}

impl Place {
    async fn new() -> Place {
        let schema = fresh_schema();
        let store = PostgresStore::open_url(&with(&postgres_url(), &schema, "")).await.expect("it opens");
        let (client, connection) = tokio_postgres::connect(&postgres_url(), tokio_postgres::NoTls)
            .await
            .expect("the server is there");
        tokio::spawn(connection);
        let table = format!("CREATE TABLE {schema}.app_orders (id text PRIMARY KEY)");
        client.batch_execute(&table).await.expect("a table is made");
        Place { schema, store, client }
    }

    fn order(&self, name: &str) -> String {
        format!("INSERT INTO {}.app_orders VALUES ('{name}')", self.schema)
    }

    async fn orders(&self) -> i64 {
        let sql = format!("SELECT count(*) FROM {}.app_orders", self.schema);
        self.client.query_one(&sql, &[]).await.expect("the table is there").get(0)
    }

    async fn end(self) {
        assert_eq!(verify(&*self.store).await.problems, Vec::<String>::new());
        drop(self.store);
        run_sql(&postgres_url(), &format!("DROP SCHEMA {} CASCADE", self.schema)).await;
    }
}

fn new(text: &str) -> NewEvent {
    event("orders", "k").id(text).window(Window::none()).build()
}

#[tokio::test]
async fn what_a_transaction_writes_and_appends_is_stored_together_and_delivered_once() {
    let mut place = Place::new().await;
    let order = place.order("o1");
    let transaction = place.client.transaction().await.unwrap();
    transaction.batch_execute(&order).await.unwrap();
    let receipt = place.store.append_in(&transaction, &new("e1")).await.unwrap();
    assert!(receipt.seq.is_none() && receipt.run_id.is_none() && !receipt.duplicate, "{receipt:?}");
    claim_none(&*place.store).await;
    transaction.commit().await.unwrap();
    let batches = claim_all(&*place.store).await;
    assert_eq!(batches.iter().map(ids).collect::<Vec<_>>(), [["e1"]]);
    settle(&*place.store, &batches[0], SUCCEEDED).await;
    claim_none(&*place.store).await;
    assert_eq!((place.orders().await, totals(&*place.store, "orders").await.succeeded), (1, 1));
    place.end().await;
}

#[tokio::test]
async fn what_is_rolled_back_was_never_there() {
    let mut place = Place::new().await;
    let order = place.order("o1");
    let transaction = place.client.transaction().await.unwrap();
    transaction.batch_execute(&order).await.unwrap();
    place.store.append_in(&transaction, &new("e1")).await.unwrap();
    transaction.rollback().await.unwrap();
    claim_none(&*place.store).await;
    assert_eq!((place.orders().await, totals(&*place.store, "orders").await.accepted), (0, 0));
    place.end().await;
}

/// The caller takes its time: others append to the same lane, claim and settle meanwhile.
#[tokio::test]
async fn a_caller_that_idles_blocks_nobody() {
    let mut place = Place::new().await;
    let transaction = place.client.transaction().await.unwrap();
    place.store.append_in(&transaction, &new("late")).await.unwrap();
    let work = async {
        append_one(&*place.store, event("orders", "k").id("early")).await;
        let batches = claim_all(&*place.store).await;
        assert_eq!(batches.iter().map(ids).collect::<Vec<_>>(), [["early"]]);
        settle(&*place.store, &batches[0], SUCCEEDED).await;
    };
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("nobody waits for the caller");
    transaction.commit().await.unwrap();
    assert_eq!(claim_all(&*place.store).await.iter().map(ids).collect::<Vec<_>>(), [["late"]]);
    place.end().await;
}

#[tokio::test]
async fn the_commit_itself_wakes_sleepers_here_and_elsewhere() {
    let mut place = Place::new().await;
    let other = PostgresStore::open_url(&with(&postgres_url(), &place.schema, "")).await.unwrap();
    let (mut here, mut there) = (place.store.wakeups(), other.wakeups());
    // Both listen by now, and are told of that.
    tokio::time::sleep(Duration::from_millis(500)).await;
    for wakeups in [&mut here, &mut there] {
        let _ = tokio::time::timeout(Duration::from_millis(10), wakeups.woken()).await;
    }
    let transaction = place.client.transaction().await.unwrap();
    place.store.append_in(&transaction, &new("e1")).await.unwrap();
    for wakeups in [&mut here, &mut there] {
        let early = tokio::time::timeout(Duration::from_millis(100), wakeups.woken()).await;
        assert!(early.is_err(), "nobody is woken before the commit");
    }
    transaction.commit().await.unwrap();
    for wakeups in [&mut here, &mut there] {
        tokio::time::timeout(Duration::from_secs(8), wakeups.woken()).await.expect("the commit wakes");
    }
    drop((here, there, other));
    place.end().await;
}

#[tokio::test]
async fn a_duplicate_is_dropped_and_a_conflict_becomes_a_dead_letter_when_they_enter() {
    let mut place = Place::new().await;
    append_one(&*place.store, event("orders", "k").id("same")).await;
    append_one(&*place.store, event("orders", "k").id("other").payload(serde_json::json!("first"))).await;
    let transaction = place.client.transaction().await.unwrap();
    place.store.append_in(&transaction, &new("same")).await.unwrap();
    let conflict = event("orders", "k").id("other").payload(serde_json::json!("second")).build();
    place.store.append_in(&transaction, &conflict).await.unwrap();
    transaction.commit().await.unwrap();
    let batches = claim_all(&*place.store).await;
    assert_eq!(batches.iter().map(ids).collect::<Vec<_>>(), [["same", "other"]]);
    let trail = trail_of(&*place.store, "orders", "k").await;
    assert!(changes(&trail).contains(&Change::DuplicateDropped), "{trail:?}");
    let runs = all_runs(&*place.store, quell_core::inspect::RunFilter::default()).await;
    assert_eq!(runs.iter().filter(|run| run.state == RunState::Failed).count(), 1);
    assert_eq!(totals(&*place.store, "orders").await.dead, 1);
    place.end().await;
}

#[tokio::test]
async fn what_cannot_be_accepted_is_refused_before_anything_is_written() {
    let mut place = Place::new().await;
    let transaction = place.client.transaction().await.unwrap();
    let idle = event("orders", "k").id("e").only_if_idle().build();
    refused(place.store.append_in(&transaction, &idle).await, ErrorKind::Invalid);
    let large =
        event("orders", "k").id("e").payload_bytes(4).payload(serde_json::json!("far too large")).build();
    refused(place.store.append_in(&transaction, &large).await, ErrorKind::Limit);
    place.store.append_in(&transaction, &new("fine")).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(claim_all(&*place.store).await.iter().map(ids).collect::<Vec<_>>(), [["fine"]]);
    place.end().await;
}

#[tokio::test]
async fn an_event_of_an_unknown_source_is_refused_and_one_of_a_known_source_waits_for_it() {
    let mut place = Place::new().await;
    let governed = |id: &str| event("orders", "k").id(id).queue_source("shop").build();
    let transaction = place.client.transaction().await.unwrap();
    let error = refused(place.store.append_in(&transaction, &governed("e1")).await, ErrorKind::Invalid);
    assert!(error.detail.contains("shop"), "{error}");
    // The refusal is the store's own: the caller's transaction goes on.
    transaction.batch_execute("SELECT 1").await.unwrap();
    transaction.rollback().await.unwrap();
    declare(&*place.store, "shop", rate(1, 1)).await;
    append_one(&*place.store, event("orders", "other").queue_source("shop")).await;
    assert_eq!(claim_all(&*place.store).await.len(), 1, "the only token");
    let transaction = place.client.transaction().await.unwrap();
    place.store.append_in(&transaction, &governed("e2")).await.unwrap();
    transaction.commit().await.unwrap();
    claim_none(&*place.store).await;
    assert_eq!(source_row(&*place.store, "", "shop").await.waiting, 1);
    place.store.advance(Duration::from_secs(65)).await.unwrap();
    assert_eq!(claim_all(&*place.store).await.iter().map(ids).collect::<Vec<_>>(), [["e2"]]);
    place.end().await;
}
