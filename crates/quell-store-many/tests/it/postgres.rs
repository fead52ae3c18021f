//! The shared suite on two databases of a real server, and what more databases cost there: nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use quell_core::store::Store;
use quell_store_many::{ManyStore, Whole};
use quell_store_postgres::{Options, PostgresStore};
use quell_store_tests::builders::{SUCCEEDED, append_request, claim, claim_request, event, settle, worker};
use quell_store_tests::{Harness, World};
use tokio_postgres::{Client, NoTls};

/// A name that no other test of this run has, nor one of another run on the same server.
fn fresh_name() -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let (nth, pid) = (MADE.fetch_add(1, Ordering::SeqCst), std::process::id());
    let moment = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_micros();
    format!("m{pid}_{nth}_{moment:x}")
}

async fn connected(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("the server is there");
    tokio::spawn(connection);
    client
}

async fn member(url: &str) -> Arc<PostgresStore> {
    PostgresStore::open(Options::parse(url).expect("the URL is right")).await.expect("a fresh schema opens")
}

/// Two schemas: to Quell each is a database of its own.
struct Schemas;

struct Pair {
    schemas: Vec<String>,
    open: Mutex<Vec<(Vec<Arc<PostgresStore>>, Arc<ManyStore>)>>,
}

impl Pair {
    async fn opened(&self) -> Arc<ManyStore> {
        let base = quell_test_servers::postgres_url();
        let joint = if base.contains('?') { '&' } else { '?' };
        let mut members = Vec::new();
        for schema in &self.schemas {
            members.push(member(&format!("{base}{joint}schema={schema}&pool=3")).await);
        }
        let list = members.iter().map(|member| member.clone() as Arc<dyn Whole>).collect();
        let store = ManyStore::open(list, &fresh_name()).await.expect("the list is the store");
        self.open.lock().expect("no test panics while it is locked").push((members, store.clone()));
        store
    }

    fn members(&self) -> Vec<Arc<PostgresStore>> {
        self.open.lock().expect("no test panics while it is locked")[0].0.clone()
    }
}

#[async_trait]
impl Harness for Schemas {
    async fn world(&self) -> Box<dyn World> {
        let pair = Pair { schemas: vec![fresh_name(), fresh_name()], open: Mutex::default() };
        pair.opened().await;
        Box::new(pair)
    }

    fn exempts(&self, promise: &str) -> Option<&'static str> {
        crate::exempt::reason(promise)
    }
}

#[async_trait]
impl World for Pair {
    fn store(&self) -> Arc<dyn Store> {
        self.open.lock().expect("no test panics while it is locked")[0].1.clone()
    }

    async fn another(&self) -> Arc<dyn Store> {
        self.opened().await
    }

    async fn advance(&self, by: Duration) {
        for member in self.members() {
            member.advance(by).await.expect("the clock can be moved");
        }
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        self.open.lock().expect("no test panics while it is locked").clear();
        self.opened().await
    }

    fn has_tables(&self) -> bool {
        true
    }

    fn one_sequence(&self) -> bool {
        false
    }

    fn clock_runs(&self) -> bool {
        true
    }

    fn durable(&self) -> bool {
        true
    }
}

/// The schemas go, so that a server that is used for many runs stays small.
impl Drop for Pair {
    fn drop(&mut self) {
        if let Ok(mut open) = self.open.lock() {
            open.clear();
        }
        let schemas = std::mem::take(&mut self.schemas);
        let removed = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                runtime.block_on(async {
                    let client = connected(&quell_test_servers::postgres_url()).await;
                    for schema in schemas {
                        let sql = format!("SET lock_timeout = '5s'; DROP SCHEMA IF EXISTS {schema} CASCADE");
                        // A schema that is left over harms nobody.
                        drop(client.batch_execute(&sql).await);
                    }
                });
            }
        });
        drop(removed.join());
    }
}

quell_store_tests::store_suite!(Schemas);

/// The URL of the server with another database.
fn in_database(base: &str, name: &str) -> String {
    let (before, query) = base.split_once('?').map_or((base, None), |(a, b)| (a, Some(b)));
    let server = before.rsplit_once('/').map_or(before, |(server, _)| server);
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    format!("{server}/{name}{query}")
}

/// Transactions that the server counts while so many keys get an event each, are claimed twenty at a time and settled.
async fn transactions(databases: usize, keys: usize) -> i64 {
    let base = quell_test_servers::postgres_url();
    let admin = connected(&base).await;
    let names: Vec<String> = (0..databases).map(|_| fresh_name()).collect();
    let mut members: Vec<Arc<dyn Whole>> = Vec::new();
    for name in &names {
        admin.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("tests may make databases");
        members.push(member(&in_database(&base, name)).await);
    }
    let store: Arc<dyn Store> = match databases {
        1 => members.remove(0),
        _ => {
            ManyStore::open(std::mem::take(&mut members), &fresh_name()).await.expect("the list is the store")
        }
    };
    for n in 0..keys {
        let request = append_request([event("chat", &format!("key {n}"))]);
        store.append(request).await.expect("it is stored");
    }
    let (mut left, worker) = (keys, worker("w"));
    while left > 0 {
        let batches = claim(&*store, quell_core::store::ClaimRequest { max: 20, ..claim_request(&worker) })
            .await
            .batches;
        left -= batches.len();
        for batch in &batches {
            settle(&*store, batch, SUCCEEDED).await;
        }
    }
    drop((store, members));
    counted(&admin, &names).await
}

/// Once all connections are gone and the server has counted what they did.
async fn counted(admin: &Client, names: &[String]) -> i64 {
    let sql = "SELECT coalesce(sum(xact_commit + xact_rollback), 0)::bigint FROM pg_stat_database WHERE datname = ANY($1)";
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = ANY($1)";
    let mut before = -1;
    for _ in 0..200 {
        let connections: i64 = admin.query_one(open, &[&names]).await.expect("it can be read").get(0);
        let now: i64 = admin.query_one(sql, &[&names]).await.expect("it can be read").get(0);
        if connections == 0 && now == before {
            break;
        }
        before = now;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for name in names {
        admin.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await.expect("it can be removed");
    }
    before
}

/// Growth is near-linear when two databases together do what one does alone, and no more: counted by the server itself. The
/// difference of two loads is what an event costs; opening and migrating is in both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_costs_as_many_transactions_with_two_databases_as_with_one() {
    let (few, many) = (100, 500);
    let one = transactions(1, many).await - transactions(1, few).await;
    let two = transactions(2, many).await - transactions(2, few).await;
    println!("{} events cost {one} transactions in one database, {two} in two", many - few);
    // Claims that find less than they want ask the other database, too: a few at the end.
    let allowed = one + one / 20;
    assert!(one > 0 && two <= allowed, "one database: {one}, two: {two}");
}
