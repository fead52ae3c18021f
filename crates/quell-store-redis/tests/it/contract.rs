//! The shared suite on a real server: every promise of the contract, kept by Redis.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use quell_core::copy::Portable;
use quell_core::store::Store;
use quell_store_redis::{Options, RedisStore};
use quell_store_tests::{Harness, World};

struct Prefixes;

/// A prefix that no other test of any run on this server has.
pub(crate) fn fresh_prefix() -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let nanos =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("t{:x}-{}-{}", nanos, std::process::id(), MADE.fetch_add(1, Ordering::SeqCst))
}

#[async_trait]
impl Harness for Prefixes {
    async fn world(&self) -> Box<dyn World> {
        let options = Options::parse(&quell_test_servers::redis_url()).expect("the server's address is one");
        let options = options.with_prefix(&fresh_prefix()).expect("a prefix of letters and digits");
        let store = RedisStore::open(options.clone()).await.expect("a new store opens");
        Box::new(PrefixWorld { options, open: Mutex::new(vec![store]) })
    }
}

struct PrefixWorld {
    options: Options,
    open: Mutex<Vec<Arc<RedisStore>>>,
}

impl PrefixWorld {
    fn first(&self) -> Arc<RedisStore> {
        self.open.lock().expect("no test panics while it is locked")[0].clone()
    }

    async fn open(&self) -> Arc<RedisStore> {
        let store = RedisStore::open(self.options.clone()).await.expect("another handle opens");
        self.open.lock().expect("no test panics while it is locked").push(store.clone());
        store
    }
}

#[async_trait]
impl World for PrefixWorld {
    fn store(&self) -> Arc<dyn Store> {
        self.first()
    }

    async fn another(&self) -> Arc<dyn Store> {
        self.open().await
    }

    async fn advance(&self, by: Duration) {
        self.first().advance(by).await.expect("the clock can be moved");
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        self.open.lock().expect("no test panics while it is locked").clear();
        self.open().await
    }

    fn portable(&self) -> Option<Arc<dyn Portable>> {
        Some(self.first())
    }

    fn has_keys(&self) -> bool {
        true
    }

    fn clock_runs(&self) -> bool {
        true
    }

    fn durable(&self) -> bool {
        true
    }
}

quell_store_tests::store_suite!(Prefixes);
