//! Wake-ups between processes: a sleeper elsewhere hears of what is due, and only of that.

use std::time::Duration;

use quell_core::store::Store;
use quell_store_postgres::PostgresStore;
use quell_store_tests::builders::{append_one, claim_none, claim_one, event};
use quell_test_servers::postgres_url;

use crate::world::{fresh_schema, run_sql, with};

async fn settled(wakeups: &mut Box<dyn quell_core::store::Wakeups>) {
    // Both listen by now, and are told of that.
    tokio::time::sleep(Duration::from_millis(500)).await;
    while tokio::time::timeout(Duration::from_millis(20), wakeups.woken()).await.is_ok() {}
}

#[tokio::test]
async fn a_sleeper_in_another_process_is_woken_soon_after_the_append() {
    let schema = fresh_schema();
    let url = with(&postgres_url(), &schema, "");
    let (one, two) =
        (PostgresStore::open_url(&url).await.unwrap(), PostgresStore::open_url(&url).await.unwrap());
    let mut wakeups = two.wakeups();
    settled(&mut wakeups).await;
    claim_none(&*two).await;
    append_one(&*one, event("chat", "k1")).await;
    tokio::time::timeout(Duration::from_secs(8), wakeups.woken()).await.expect("it is woken");
    claim_one(&*two).await;
    drop((one, two, wakeups));
    run_sql(&postgres_url(), &format!("DROP SCHEMA {schema} CASCADE")).await;
}

#[tokio::test]
async fn a_sleeper_that_looks_before_that_anyway_sleeps_on() {
    let schema = fresh_schema();
    let url = with(&postgres_url(), &schema, "");
    let (one, two) =
        (PostgresStore::open_url(&url).await.unwrap(), PostgresStore::open_url(&url).await.unwrap());
    append_one(&*one, event("chat", "soon").fixed(100)).await;
    let mut wakeups = two.wakeups();
    settled(&mut wakeups).await;
    claim_none(&*two).await;
    settled(&mut wakeups).await;
    append_one(&*one, event("chat", "later").fixed(500)).await;
    let woken = tokio::time::timeout(Duration::from_millis(500), wakeups.woken()).await;
    assert!(woken.is_err(), "it was told to look in 100 s");
    append_one(&*one, event("chat", "sooner").fixed(50)).await;
    tokio::time::timeout(Duration::from_secs(8), wakeups.woken()).await.expect("it is woken");
    drop((one, two, wakeups));
    run_sql(&postgres_url(), &format!("DROP SCHEMA {schema} CASCADE")).await;
}
