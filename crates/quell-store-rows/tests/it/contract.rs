//! The shared suite on the plainest backend there is: what fails here is a fault of the verbs, not of a database.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use quell_core::clock::{ManualClock, Timestamp};
use quell_core::store::Store;
use quell_store_rows::RowStore;
use quell_store_tests::{Harness, World};

use crate::plain::Plain;

struct Rows;

#[async_trait]
impl Harness for Rows {
    async fn world(&self) -> Box<dyn World> {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
        let plain = Arc::new(Plain::new(clock.clone()));
        Box::new(RowsWorld { clock, store: RowStore::new(plain.clone()), plain })
    }
}

struct RowsWorld {
    clock: Arc<ManualClock>,
    plain: Arc<Plain>,
    store: Arc<RowStore>,
}

#[async_trait]
impl World for RowsWorld {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn another(&self) -> Arc<dyn Store> {
        RowStore::new(self.plain.clone())
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn clock_runs(&self) -> bool {
        false
    }

    fn durable(&self) -> bool {
        false
    }
}

quell_store_tests::store_suite!(Rows);
