//! Quell on Redis or Valkey: for those who run one anyway, and for many machines.
//!
//! The verbs are those of `quell_store_rows`: decisions are made here, in Rust, on rows that were read, and one script
//! (`lua/apply.lua`) looks whether they are still the same and writes everything at once, or nothing. Follow one request:
//! [`RedisStore`] → `quell_store_rows` → `tx.rs` (what was read) → `find.rs` (what belongs to it) → `apply.rs` (what is
//! written). Names of keys are in `keys.rs`, the form of values in `rows.rs` and `pocket.rs`, the connection in `link.rs`, the numbers that
//! a process sets apart in `numbers.rs`, turns on sources in `turns.rs`. Reads go to `inspect.rs`, what moves a store to another or fills it to `copy.rs`,
//! data of applications to `application.rs`.
//!
//! As durable as the server is set up to be: its settings are read back when the store is opened, and a server that could
//! lose accepted events without a word is refused (`settings.rs`). A server that was restarted, or has taken over from
//! another, is noticed before it is told anything, and no number or token is ever told twice (`lua/open.lua`).

#![warn(missing_docs)]

use std::sync::Arc;

use async_trait::async_trait;
use quell_core::error::StoreResult;
use quell_core::inspect::{Inspect, Inspected};
use quell_core::keys::Keys;
use quell_core::shelf::{ShelfAnswer, ShelfRequest};
use quell_core::store::{
    AppendRequest, Appended, ClaimRequest, Claimed, Control, Controlled, Description, ExtendRequest,
    Extended, Held, HoldRequest, SettleRequest, Settled, SourceAnswer, SourceRequest, StepAnswer,
    StepRequest, Store, SweepRequest, Swept, Wakeups,
};
use quell_store_rows::RowStore;

mod application;
mod apply;
mod clock;
mod copy;
mod error;
mod find;
mod inspect;
mod keys;
mod limits;
mod link;
mod numbers;
mod options;
mod pocket;
mod reply;
mod rows;
mod script;
mod settings;
mod shelves;
mod store;
mod sweep;
mod turns;
mod tx;
mod wake;

pub use options::Options;

use crate::link::Link;
use crate::store::Redis;

/// A store in one Redis.
pub struct RedisStore {
    rows: Arc<RowStore>,
    /// Kept for what is no verb: the clock of tests, and copies.
    backend: Arc<Redis>,
    listed: copy::Listed,
}

impl RedisStore {
    /// Connects, looks at the server's settings and opens the store. Refuses, with the reason, what it cannot be sure of.
    /// Must be called within a runtime.
    pub async fn open(options: Options) -> StoreResult<Arc<Self>> {
        let backend = Arc::new(Redis::open(Link::new(options)?).await?);
        let rows = RowStore::new(backend.clone());
        Ok(Arc::new(RedisStore { rows, backend, listed: copy::Listed::default() }))
    }

    /// The same by a URL.
    pub async fn open_url(url: &str) -> StoreResult<Arc<Self>> {
        RedisStore::open(Options::parse(url)?).await
    }

    /// Moves the clock of this store for everybody who has it open.
    #[cfg(feature = "test-clock")]
    pub async fn advance(&self, by: std::time::Duration) -> StoreResult<()> {
        let link = &self.backend.shared.link;
        let mut command = redis::cmd("HINCRBY");
        command.arg(link.keys.meta()).arg("offset").arg(quell_core::clock::millis(by));
        link.read(link::For::Transactions, &command).await.map(|_| ())
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn append(&self, request: AppendRequest) -> StoreResult<Appended> {
        self.rows.append(request).await
    }

    async fn claim(&self, request: ClaimRequest) -> StoreResult<Claimed> {
        self.rows.claim(request).await
    }

    async fn extend(&self, request: ExtendRequest) -> StoreResult<Extended> {
        self.rows.extend(request).await
    }

    async fn hold(&self, request: HoldRequest) -> StoreResult<Held> {
        self.rows.hold(request).await
    }

    async fn step(&self, request: StepRequest) -> StoreResult<StepAnswer> {
        self.rows.step(request).await
    }

    async fn source(&self, request: SourceRequest) -> StoreResult<SourceAnswer> {
        self.rows.source(request).await
    }

    async fn settle(&self, request: SettleRequest) -> StoreResult<Settled> {
        self.rows.settle(request).await
    }

    async fn shelf(&self, request: ShelfRequest) -> StoreResult<ShelfAnswer> {
        self.rows.shelf(request).await
    }

    async fn sweep(&self, request: SweepRequest) -> StoreResult<Swept> {
        self.rows.sweep(request).await
    }

    async fn control(&self, request: Control) -> StoreResult<Controlled> {
        self.rows.control(request).await
    }

    async fn inspect(&self, request: Inspect) -> StoreResult<Inspected> {
        self.rows.inspect(request).await
    }

    fn wakeups(&self) -> Box<dyn Wakeups> {
        self.rows.wakeups()
    }

    fn description(&self) -> Description {
        self.rows.description()
    }

    fn keys(self: Arc<Self>) -> Option<Arc<dyn Keys>> {
        Some(self)
    }
}
