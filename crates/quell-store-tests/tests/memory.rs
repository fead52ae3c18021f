//! The suite on the memory store: the contract as tests against the contract as code.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use quell_core::clock::{ManualClock, Timestamp};
use quell_core::copy::Portable;
use quell_core::memory::MemoryStore;
use quell_core::store::Store;
use quell_store_tests::{Harness, World, store_suite};

struct Memory;

struct MemoryWorld {
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
}

#[async_trait]
impl Harness for Memory {
    async fn world(&self) -> Box<dyn World> {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_700_000_000_000)));
        Box::new(MemoryWorld { store: Arc::new(MemoryStore::new(clock.clone())), clock })
    }
}

/// The memory store has one handle: another process cannot see it, and a restart would empty it.
#[async_trait]
impl World for MemoryWorld {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn another(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn portable(&self) -> Option<Arc<dyn Portable>> {
        Some(self.store.clone())
    }

    fn clock_runs(&self) -> bool {
        false
    }

    fn durable(&self) -> bool {
        false
    }
}

store_suite!(Memory);
