//! Quell on PostgreSQL: several processes and hosts share one store, beside an application's own tables.
//!
//! The decisions are those of `quell-core`, and the order of things is in `quell-store-rows`; here is how rows are found,
//! locked and written. Follow one request: [`PostgresStore`] → `quell_store_rows` → `tx.rs` (lanes are locked) → `find.rs`
//! (what belongs to them is read) → `commit.rs` (everything is written at once). What waits is in `outlook.rs` and `floors.rs`, the
//! retention in `sweep.rs`, documents in `shelves.rs`, reads in `inspect.rs`, tables of applications in `tables.rs`, wake-ups in `wake.rs`, upkeep in `upkeep.rs`. What only this store can do is in `transact.rs`.
//!
//! Durable: an answer is given only after the COMMIT has returned, and what that is worth on this server is read back.

#![warn(missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use quell_core::clock::Timestamp;
use quell_core::error::StoreResult;
use quell_core::inspect::{Inspect, Inspected};
use quell_core::shelf::{Document, Shelf, ShelfAnswer, ShelfRequest};
use quell_core::store::{
    AppendRequest, Appended, ClaimRequest, Claimed, Control, Controlled, Description, ExtendRequest,
    Extended, Held, HoldRequest, SettleRequest, Settled, SourceAnswer, SourceRequest, StepAnswer,
    StepRequest, Store, SweepRequest, Swept, Wakeups,
};
use quell_core::tables::Tables;
use quell_store_rows::RowStore;
use quell_store_rows::rows::{Backend, Begun, First, Outlook, Rows, RowsResult};
use tokio::task::JoinHandle;

use crate::connection::Connections;
use crate::floors::Floors;
use crate::leases::Leases;
use crate::queues::Queues;
use crate::tx::{Skipped, Tx};
use crate::upkeep::Left;
use crate::wake::Bell;

mod alike;
mod begin;
mod clock;
mod commit;
mod connection;
mod copy;
mod error;
mod find;
mod first;
mod floors;
mod health;
mod inspect;
mod joined;
mod leases;
mod migrate;
mod options;
mod origin;
mod outlook;
mod queues;
mod rows;
mod shelves;
mod sweep;
mod tables;
mod tls;
mod transact;
mod tx;
mod upkeep;
mod wake;

pub use options::{Options, StatementMode, Tls};
/// Part of this crate's interface: [`PostgresStore::append_in`] takes its `Transaction`.
pub use tokio_postgres;

/// A store in one schema of a PostgreSQL database.
pub struct PostgresStore {
    rows: Arc<RowStore>,
    shared: Arc<Shared>,
    /// The task that listens and the one that tidies up.
    tasks: [JoinHandle<()>; 2],
}

/// What the store and its transactions have in common.
pub(crate) struct Shared {
    pub(crate) connections: Connections,
    pub(crate) queues: Queues,
    pub(crate) bell: Arc<Bell>,
    pub(crate) description: Description,
    pub(crate) skipped: Skipped,
    pub(crate) channel: String,
    pub(crate) left: Arc<Left>,
    pub(crate) floors: Arc<Floors>,
    pub(crate) leases: Leases,
}

impl PostgresStore {
    /// Opens the store, making its schema if it does not exist. Refuses, with the reason, what it cannot be sure of.
    /// Must be called within a runtime, which must be there as long as the store is.
    pub async fn open(options: Options) -> StoreResult<Arc<Self>> {
        let connections = Connections::new(&options)?;
        let description = health::describe(&connections, &options).await?;
        migrate::migrate(&connections, &options).await?;
        let channel = format!("quell_{}", options.schema);
        let line = wake::Line {
            config: options.listen.clone().unwrap_or_else(|| options.config.clone()),
            tls: tls::connector(&options)?,
            channel: channel.clone(),
            name: health::own_name(),
        };
        let left = Arc::new(Left::default());
        let floors = Arc::new(Floors::default());
        let bell = Bell::new(floors.clone());
        let tasks = [
            tokio::spawn(wake::run(bell.clone(), line)),
            tokio::spawn(upkeep::run(left.clone(), connections.clone())),
        ];
        let shared = Arc::new(Shared {
            connections,
            queues: Queues::default(),
            bell,
            description,
            skipped: Skipped::default(),
            channel,
            left,
            floors,
            leases: Leases::default(),
        });
        let rows = RowStore::new(Arc::new(Postgres(shared.clone())));
        Ok(Arc::new(PostgresStore { rows, shared, tasks }))
    }

    /// The same by a URL.
    pub async fn open_url(url: &str) -> StoreResult<Arc<Self>> {
        PostgresStore::open(Options::parse(url)?).await
    }

    /// Makes everybody who sleeps look now, here and in other processes.
    pub fn wake(&self) {
        self.shared.bell.ring(Timestamp::from_millis(0));
    }

    /// Moves the clock of this schema for everybody who has it open.
    #[cfg(feature = "test-clock")]
    pub async fn advance(&self, by: Duration) -> StoreResult<()> {
        let connection = self.shared.connections.get().await?;
        let by = quell_core::clock::millis(by);
        connection.query(&health::ADVANCE, &[&by]).await.map_err(|e| error::not_done(&e))?;
        self.wake();
        Ok(())
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.shared.connections.close();
    }
}

/// The rows of the store.
struct Postgres(Arc<Shared>);

#[async_trait]
impl Backend for Postgres {
    async fn begin(&self) -> RowsResult<Box<dyn Rows>> {
        Ok(Box::new(Tx::begin(&self.0).await?))
    }

    async fn begin_with(&self, first: First<'_>, numbers: usize) -> RowsResult<Begun> {
        Tx::begin_with(&self.0, first, numbers).await
    }

    async fn outlook(&self, bounded: bool) -> StoreResult<Outlook> {
        outlook::outlook(&self.0, bounded).await
    }

    async fn inspect(&self, request: Inspect) -> StoreResult<Inspected> {
        inspect::inspect(&self.0, request).await
    }

    async fn forget(&self, retention: Duration, swept: &mut Swept) -> StoreResult<()> {
        sweep::forget(&self.0, retention, swept).await
    }

    async fn forget_answers(&self) -> StoreResult<bool> {
        sweep::forget_answers(&self.0).await
    }

    async fn documents(&self, shelf: Shelf) -> StoreResult<(Timestamp, Vec<Document>)> {
        shelves::documents(&self.0, shelf).await
    }

    async fn forget_documents(&self) -> StoreResult<bool> {
        sweep::forget_documents(&self.0).await
    }

    fn ring(&self, at: Timestamp) {
        self.0.bell.ring(at);
    }

    fn sleeps(&self, until: Option<Timestamp>) {
        self.0.bell.sleeps(until);
    }

    fn wakeups(&self) -> Box<dyn Wakeups> {
        self.0.bell.listener()
    }

    fn description(&self) -> Description {
        self.0.description.clone()
    }
}

#[async_trait]
impl Store for PostgresStore {
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

    async fn inspect(&self, request: Inspect) -> StoreResult<Inspected> {
        self.rows.inspect(request).await
    }

    async fn control(&self, request: Control) -> StoreResult<Controlled> {
        self.rows.control(request).await
    }

    fn wakeups(&self) -> Box<dyn Wakeups> {
        self.rows.wakeups()
    }

    fn description(&self) -> Description {
        self.rows.description()
    }

    fn tables(self: Arc<Self>) -> Option<Arc<dyn Tables>> {
        Some(self)
    }
}
