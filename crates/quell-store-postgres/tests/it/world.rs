//! Worlds on the shared server: a schema of its own for each, gone with it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use quell_core::copy::Portable;
use quell_core::store::Store;
use quell_store_postgres::{Options, PostgresStore};
use quell_store_tests::World;
use quell_store_tests::reads::verify;
use quell_test_servers::postgres_url;

/// A name that no other test of this run has, nor one of another run on the same server.
pub(crate) fn fresh_schema() -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let (nth, pid) = (MADE.fetch_add(1, Ordering::SeqCst), std::process::id());
    let moment = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_micros();
    format!("t{pid}_{nth}_{moment:x}")
}

/// The URL with a schema and few connections: hundreds of tests share one server.
pub(crate) fn with(url: &str, schema: &str, more: &str) -> String {
    let joint = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joint}schema={schema}&pool=4{more}")
}

/// Takes a schema, `%`, back to version 6, in which all events lay in one table.
pub(crate) const WITHOUT_FIRSTS: &str = "
    INSERT INTO %.event_row SELECT * FROM %.event e
      WHERE NOT EXISTS (SELECT FROM %.event_row r WHERE r.lane_id = e.lane_id AND r.seq = e.seq);
    DROP VIEW %.event;
    DROP FUNCTION %.event_comes(), %.event_goes(), %.event_changes();
    ALTER TABLE %.event_row RENAME TO event;
    ALTER TABLE %.lane DROP COLUMN first_seq, DROP COLUMN first_at, DROP COLUMN first_priority, DROP COLUMN first_id,
      DROP COLUMN first_print, DROP COLUMN first_payload;
    UPDATE %.meta SET version = 6;";

/// A store in this schema, for tests that look into its tables.
pub(crate) async fn open_in(schema: &str) -> Arc<PostgresStore> {
    open(&with(&postgres_url(), schema, "")).await
}

/// Ends such a test: the store has nothing to complain of, and its schema goes.
pub(crate) async fn end(schema: &str, store: Arc<PostgresStore>) {
    assert_eq!(verify(&*store).await.problems, Vec::<String>::new());
    drop(store);
    run_sql(&postgres_url(), &format!("DROP SCHEMA {schema} CASCADE")).await;
}

/// Runs statements on the server, past the store.
pub(crate) async fn run_sql(url: &str, sql: &str) {
    let (client, connection) =
        tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("the server is there");
    let connection = tokio::spawn(connection);
    client.batch_execute(sql).await.expect("the statements are right");
    drop(client);
    connection.await.expect("the connection ends").expect("the connection ends well");
}

pub(crate) struct Schema {
    /// To the server itself.
    server: String,
    url: String,
    schema: String,
    open: Mutex<Vec<Arc<PostgresStore>>>,
}

impl Schema {
    /// A fresh schema, reached by this URL; made and removed by the other.
    pub(crate) async fn fresh(server: &str, url: &str, more: &str) -> Self {
        let schema = fresh_schema();
        let url = with(url, &schema, more);
        let store = open(&url).await;
        Schema { server: server.to_owned(), url, schema, open: Mutex::new(vec![store]) }
    }

    fn first(&self) -> Arc<PostgresStore> {
        self.open.lock().expect("no test panics while it is locked")[0].clone()
    }
}

async fn open(url: &str) -> Arc<PostgresStore> {
    let options = Options::parse(url).expect("the URL is right");
    PostgresStore::open(options).await.expect("a fresh schema opens")
}

#[async_trait]
impl World for Schema {
    fn store(&self) -> Arc<dyn Store> {
        self.first()
    }

    async fn another(&self) -> Arc<dyn Store> {
        let store = open(&self.url).await;
        self.open.lock().expect("no test panics while it is locked").push(store.clone());
        store
    }

    async fn advance(&self, by: Duration) {
        self.first().advance(by).await.expect("the clock can be moved");
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        self.open.lock().expect("no test panics while it is locked").clear();
        let store = open(&self.url).await;
        self.open.lock().expect("no test panics while it is locked").push(store.clone());
        store
    }

    fn portable(&self) -> Option<Arc<dyn Portable>> {
        Some(self.first())
    }

    fn has_tables(&self) -> bool {
        true
    }

    fn clock_runs(&self) -> bool {
        true
    }

    fn durable(&self) -> bool {
        true
    }
}

/// The schema goes, so that a server that is used for many runs stays small.
impl Drop for Schema {
    fn drop(&mut self) {
        if let Ok(mut open) = self.open.lock() {
            open.clear();
        }
        let (server, gone) = (self.server.clone(), format!("DROP SCHEMA IF EXISTS {} CASCADE", self.schema));
        let removed = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                runtime.block_on(run_sql(&server, &format!("SET lock_timeout = '5s'; {gone}")));
            }
        });
        // A schema that is left over harms nobody.
        drop(removed.join());
    }
}
