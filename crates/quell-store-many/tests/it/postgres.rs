//! The shared suite on two databases of a real server, and what more databases cost there: nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use quell_core::error::StoreResult;
use quell_core::inspect::{Inspect, Inspected};
use quell_core::shelf::{ShelfAnswer, ShelfRequest};
use quell_core::store::{
    AppendRequest, Appended, ClaimRequest, Claimed, Control, Controlled, Description, ExtendRequest,
    Extended, Held, HoldRequest, SettleRequest, Settled, SourceAnswer, SourceRequest, StepAnswer,
    StepRequest, Store, SweepRequest, Swept, Wakeups,
};
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

/// The databases of a handle, and the handle.
type Opened = (Vec<Arc<PostgresStore>>, Arc<ManyStore>);

struct Pair {
    schemas: Vec<String>,
    open: Mutex<Vec<Opened>>,
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

/// A database that counts what is asked of it: each of these calls is the same transactions as without others beside it.
struct Counting {
    store: Arc<PostgresStore>,
    calls: Arc<AtomicU64>,
}

impl Counting {
    fn count(&self) -> &PostgresStore {
        self.calls.fetch_add(1, Ordering::SeqCst);
        &self.store
    }
}

#[async_trait]
impl Store for Counting {
    async fn append(&self, request: AppendRequest) -> StoreResult<Appended> {
        self.count().append(request).await
    }

    async fn claim(&self, request: ClaimRequest) -> StoreResult<Claimed> {
        self.count().claim(request).await
    }

    async fn extend(&self, request: ExtendRequest) -> StoreResult<Extended> {
        self.count().extend(request).await
    }

    async fn hold(&self, request: HoldRequest) -> StoreResult<Held> {
        self.count().hold(request).await
    }

    async fn step(&self, request: StepRequest) -> StoreResult<StepAnswer> {
        self.count().step(request).await
    }

    async fn source(&self, request: SourceRequest) -> StoreResult<SourceAnswer> {
        self.count().source(request).await
    }

    async fn settle(&self, request: SettleRequest) -> StoreResult<Settled> {
        self.count().settle(request).await
    }

    async fn shelf(&self, request: ShelfRequest) -> StoreResult<ShelfAnswer> {
        self.count().shelf(request).await
    }

    async fn sweep(&self, request: SweepRequest) -> StoreResult<Swept> {
        self.count().sweep(request).await
    }

    async fn inspect(&self, request: Inspect) -> StoreResult<Inspected> {
        self.count().inspect(request).await
    }

    async fn control(&self, request: Control) -> StoreResult<Controlled> {
        self.count().control(request).await
    }

    fn wakeups(&self) -> Box<dyn Wakeups> {
        self.store.wakeups()
    }

    fn description(&self) -> Description {
        self.store.description()
    }
}

/// Calls while so many keys get an event each, are claimed twenty at a time and settled.
async fn calls(databases: usize, keys: usize) -> u64 {
    let world = Pair { schemas: (0..databases).map(|_| fresh_name()).collect(), open: Mutex::default() };
    let map = world.opened().await.map().clone();
    let calls = Arc::new(AtomicU64::new(0));
    let counting = |store| Arc::new(Counting { store, calls: calls.clone() }) as Arc<dyn Store>;
    let members: Vec<Arc<dyn Store>> = world.members().into_iter().map(counting).collect();
    let store: Arc<dyn Store> = match databases {
        1 => members[0].clone(),
        _ => ManyStore::over(members, map, &fresh_name()),
    };
    for n in 0..keys {
        store.append(append_request([event("chat", &format!("key {n}"))])).await.expect("it is stored");
    }
    let (mut left, worker) = (keys, worker("w"));
    while left > 0 {
        let batches = claim(&*store, ClaimRequest { max: 20, ..claim_request(&worker) }).await.batches;
        left -= batches.len();
        for batch in &batches {
            settle(&*store, batch, SUCCEEDED).await;
        }
    }
    calls.load(Ordering::SeqCst)
}

/// Growth is near-linear when two databases together are asked what one is asked alone, and no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_costs_as_many_calls_with_two_databases_as_with_one() {
    let (keys, claims) = (200, 10);
    assert_eq!(
        calls(1, keys).await,
        (keys + claims + keys) as u64,
        "an append, a settle, and a claim for twenty"
    );
    let two = calls(2, keys).await;
    // Only the last claims find less than they want in one database and ask the other, too.
    assert!(two <= (keys + claims + keys + 2) as u64, "{two} calls");
}
