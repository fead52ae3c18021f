//! Several databases as one store.
//!
//! Lanes are independent, so they can lie in different databases: tenant and key of a lane give its partition ([`partition`]),
//! and the map says which database has that partition ([`map`]). Every verb that concerns one lane is one call to one
//! database, the same call that it would be without this crate; so each database adds its whole speed. What concerns all lanes
//! (listings, totals, pauses of queues) asks all databases and puts the answers together.
//!
//! - A request to append that concerns several databases is all or nothing **in each** of them (`append.rs`).
//! - A claim asks one database after the other, beginning with another one each time, until it has enough (`claim.rs`).
//! - A run is found by its number: each database takes its numbers from a range of its own (`runs.rs`).
//! - Events that a settle carries to a key of another database are stored with the settle and relayed afterwards (`relay.rs`).
//! - Documents, and tables and keys of applications, are in the first database.
//! - Limits that are counted in a database (`max_running`, the rate of a source) are divided among the databases.
//!
//! What this costs and what is promised is told in `docs/design/scale-out.md`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize};

use async_trait::async_trait;
use quell_core::batch::WorkerId;
use quell_core::error::StoreResult;
use quell_core::inspect::{Inspect, Inspected};
use quell_core::keys::Keys;
use quell_core::shelf::{Shelf, ShelfAnswer, ShelfRequest};
use quell_core::store::{
    AppendRequest, Appended, ClaimRequest, Claimed, Control, Controlled, Description, Durability,
    ExtendRequest, Extended, Held, HoldRequest, SettleRequest, Settled, SourceAnswer, SourceRequest,
    StepAnswer, StepRequest, Store, SweepRequest, Swept, Wakeups,
};
use quell_core::tables::Tables;

mod append;
mod claim;
mod control;
mod inspect;
pub mod limits;
pub mod map;
mod open;
pub mod partition;
mod relay;
mod runs;
mod spread;
mod wake;

pub use map::Map;
pub use open::{Whole, anything, check_alone, first_number};
pub use relay::RELAY;
pub use spread::Spread;

/// The store over all databases of a list.
pub struct ManyStore {
    members: Vec<Arc<dyn Store>>,
    map: Map,
    /// Under which this process relays.
    relayer: Arc<WorkerId>,
    /// Which database the next claim begins with.
    turn: AtomicUsize,
    /// Claims that will leave a database out, because it did not answer.
    left_out: Vec<AtomicU32>,
    known: runs::Known,
}

impl ManyStore {
    /// Over databases that are known to be those of the map, in its order. [`ManyStore::open`] finds that out.
    pub fn over(members: Vec<Arc<dyn Store>>, map: Map, word: &str) -> Arc<Self> {
        let relayer = WorkerId { name: "relay".to_owned(), pid: std::process::id(), start: word.to_owned() };
        Arc::new(ManyStore {
            relayer: Arc::new(relayer),
            turn: AtomicUsize::new(0),
            left_out: members.iter().map(|_| AtomicU32::new(0)).collect(),
            known: runs::Known::default(),
            members,
            map,
        })
    }

    /// Which database has what.
    pub fn map(&self) -> &Map {
        &self.map
    }
}

#[async_trait]
impl Store for ManyStore {
    async fn append(&self, request: AppendRequest) -> StoreResult<Appended> {
        self.append_in_parts(request).await
    }

    async fn claim(&self, request: ClaimRequest) -> StoreResult<Claimed> {
        self.claim_in_turn(request).await
    }

    async fn extend(&self, request: ExtendRequest) -> StoreResult<Extended> {
        self.on_run(request.run_id, |n| self.members[n].extend(request.clone())).await
    }

    async fn hold(&self, request: HoldRequest) -> StoreResult<Held> {
        self.on_run(request.run_id, |n| self.members[n].hold(request.clone())).await
    }

    async fn step(&self, request: StepRequest) -> StoreResult<StepAnswer> {
        self.on_run(request.run_id, |n| self.members[n].step(request.clone())).await
    }

    async fn source(&self, request: SourceRequest) -> StoreResult<SourceAnswer> {
        self.on_run(request.run_id, |n| self.members[n].source(request.clone())).await
    }

    async fn settle(&self, request: SettleRequest) -> StoreResult<Settled> {
        self.settle_and_relay(request).await
    }

    async fn shelf(&self, request: ShelfRequest) -> StoreResult<ShelfAnswer> {
        let of_maps = request.shelf == Shelf::Map;
        match self.members[0].shelf(request).await? {
            // The map is the store's own affair.
            ShelfAnswer::Documents(documents) if of_maps => {
                let others = documents.into_iter().filter(|document| document.name != map::MAP).collect();
                Ok(ShelfAnswer::Documents(others))
            }
            answer => Ok(answer),
        }
    }

    async fn sweep(&self, request: SweepRequest) -> StoreResult<Swept> {
        self.sweep_all(request).await
    }

    async fn inspect(&self, request: Inspect) -> StoreResult<Inspected> {
        self.inspect_all(request).await
    }

    async fn control(&self, request: Control) -> StoreResult<Controlled> {
        self.control_where(request).await
    }

    fn wakeups(&self) -> Box<dyn Wakeups> {
        Box::new(wake::Any(self.members.iter().map(|member| member.wakeups()).collect()))
    }

    /// Of all databases: the weakest durability is that of the store.
    fn description(&self) -> Description {
        let all: Vec<Description> = self.members.iter().map(|member| member.description()).collect();
        let first = &all[0];
        let mut versions: Vec<&str> = all.iter().map(|one| one.version.as_str()).collect();
        versions.dedup();
        let weak = all.iter().find(|one| one.durability != Durability::Durable);
        Description {
            kind: if all.iter().all(|one| one.kind == first.kind) { first.kind } else { "several" },
            place: all.iter().map(|one| one.place.as_str()).collect::<Vec<_>>().join(", "),
            version: versions.join(", "),
            schema: all.iter().map(|one| one.schema).max().unwrap_or(0),
            durability: weak.map_or(Durability::Durable, |one| one.durability.clone()),
        }
    }

    fn tables(self: Arc<Self>) -> Option<Arc<dyn Tables>> {
        self.members[0].clone().tables()
    }

    fn keys(self: Arc<Self>) -> Option<Arc<dyn Keys>> {
        self.members[0].clone().keys()
    }
}
