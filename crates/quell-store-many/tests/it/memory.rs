//! The shared suite on two stores in memory: fast, and what fails here is nobody's fault but that of this crate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use quell_core::clock::{ManualClock, Timestamp};
use quell_core::memory::MemoryStore;
use quell_core::store::Store;
use quell_store_many::{ManyStore, Whole};
use quell_store_tests::{Harness, World};

struct Pairs;

pub(crate) struct Pair {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) members: Vec<Arc<MemoryStore>>,
    store: Arc<ManyStore>,
}

/// A word that no other process has.
fn word() -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    format!("w{}", MADE.fetch_add(1, Ordering::SeqCst))
}

pub(crate) async fn opened(members: &[Arc<MemoryStore>]) -> Arc<ManyStore> {
    let members = members.iter().map(|member| member.clone() as Arc<dyn Whole>).collect();
    ManyStore::open(members, &word()).await.expect("the databases are those of the store")
}

impl Pair {
    pub(crate) async fn fresh(many: usize) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_700_000_000_000)));
        let members: Vec<_> = (0..many).map(|_| Arc::new(MemoryStore::new(clock.clone()))).collect();
        let store = opened(&members).await;
        Pair { clock, members, store }
    }
}

#[async_trait]
impl Harness for Pairs {
    async fn world(&self) -> Box<dyn World> {
        Box::new(Pair::fresh(2).await)
    }

    fn exempts(&self, promise: &str) -> Option<&'static str> {
        crate::exempt::reason(promise)
    }
}

#[async_trait]
impl World for Pair {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn another(&self) -> Arc<dyn Store> {
        opened(&self.members).await
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        opened(&self.members).await
    }

    fn one_sequence(&self) -> bool {
        false
    }

    fn clock_runs(&self) -> bool {
        false
    }

    fn durable(&self) -> bool {
        false
    }
}

quell_store_tests::store_suite!(Pairs);
