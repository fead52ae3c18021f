//! The store suite: a store is done when it passes.
//!
//! Every promise of the contract (`quell-core/src/store.rs`) is one function here, named after what it promises. A
//! store implements [`World`] and [`Harness`] for itself and calls [`store_suite!`] in its `tests/contract.rs`:
//!
//! ```ignore
//! struct Mine;
//! #[async_trait]
//! impl Harness for Mine { /* a fresh, empty store each time */ }
//!
//! quell_store_tests::store_suite!(Mine);
//! ```
//!
//! The macro makes one `#[test]` per promise, grouped in modules, each on its own runtime of two threads. When a
//! promise has been kept, [`run`] also checks what must hold after any history: the no-loss equation
//! ([`reads::assert_totals`]) and the audit trail ([`reads::assert_trail`]).
//!
//! Time never passes by sleeping: [`World::advance`] moves store time. A real store's clock also runs by itself, so all
//! durations are multiples of ten seconds and no comparison sits closer than five seconds to a boundary, except in the
//! boundary tests, which are skipped when [`World::clock_runs`].
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`append`], [`claim`], [`extend`], [`settle`], [`sweep`], [`inspect`], [`control`] | the verbs, one function per promise |
//! | [`during_run`] | events that arrive while a run is processed: the gate, giving way, what a retry takes in |
//! | [`failure`] | refunds, halving, blocked lanes |
//! | [`redrive`], [`hands`], [`erase`] | the operator's hand |
//! | [`aside`], [`carried`], [`schedules`] | events that are not in a lane yet: delayed, brought by an end, by the calendar |
//! | [`shelf`] | small documents beside the lanes |
//! | [`tables`], [`keys`] | data of applications, on stores that have them |
//! | [`sources`] | outside parties with limits: rate, breaker, kept answers |
//! | [`steps`], [`unknowns`] | what an attempt remembers; requests repeated because their answer was lost |
//! | [`priority`], [`options`] | what a sender may ask for beside its event |
//! | [`races`] | several tasks and handles at once |
//! | [`crash`] | restarts at any point, and the drivers for real processes: the kill loop, several that ask one source |
//! | [`record`] | a store that writes down what it is asked and answers, for the independent checker |
//! | [`histories`] | random histories compared with the memory store |
//! | [`copy`] | everything of one store in another; called by whoever has two stores and the driver |
//! | [`pitfalls`], [`holes`] | mistakes of other systems and of the older ones, each shown closed |

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use quell_core::copy::Portable;
use quell_core::store::Store;
pub use quell_torture::{chance, record};

pub mod append;
pub mod aside;
pub mod attempts;
pub mod builders;
pub mod carried;
pub mod claim;
pub mod control;
pub mod copy;
pub mod crash;
pub mod during_run;
pub mod erase;
pub mod extend;
pub mod failure;
pub mod hands;
pub mod histories;
pub mod holes;
pub mod inspect;
pub mod keys;
pub mod options;
pub mod pitfalls;
pub mod priority;
pub mod races;
pub mod reads;
pub mod redrive;
pub mod schedules;
pub mod settle;
pub mod shelf;
pub mod source_trail;
pub mod sources;
pub mod steps;
mod suite;
pub mod sweep;
pub mod tables;
pub mod unknowns;

/// A fresh store and the hand that moves its time.
#[async_trait]
pub trait World: Send + Sync {
    /// The handle in use.
    fn store(&self) -> Arc<dyn Store>;

    /// A second handle on the same data, as another process would have.
    async fn another(&self) -> Arc<dyn Store>;

    /// Moves store time, for all handles, without sleeping.
    async fn advance(&self, by: Duration);

    /// Closes everything and opens it again: what a restart sees. [`World::store`] gives the new handle afterwards.
    async fn reopen(&self) -> Arc<dyn Store>;

    /// The same data as a copy sees them; nothing when this store has no such side.
    fn portable(&self) -> Option<Arc<dyn Portable>> {
        None
    }

    /// True when applications can have tables in it.
    fn has_tables(&self) -> bool {
        false
    }

    /// True when applications can have keys in it.
    fn has_keys(&self) -> bool {
        false
    }

    /// True when all numbers come from one sequence; otherwise each database of the store has its own.
    fn one_sequence(&self) -> bool {
        true
    }

    /// True when real time passes too. Then exact instants are compared with a tolerance.
    fn clock_runs(&self) -> bool;

    /// True when an acknowledged event must survive a power cut.
    fn durable(&self) -> bool;
}

/// Makes worlds.
#[async_trait]
pub trait Harness: Send + Sync {
    /// A world that is fresh and empty.
    async fn world(&self) -> Box<dyn World>;

    /// Why a promise (`group::name`) is not made here, if it is not: for stores of several databases, which do not share a
    /// transaction. Every single database makes all of them.
    fn exempts(&self, _promise: &str) -> Option<&'static str> {
        None
    }
}

/// Runs one promise on a fresh world and then checks what must hold after any history.
pub fn run(harness: impl Harness, promise: impl AsyncFnOnce(&dyn World)) {
    block_on(Box::pin(async {
        let world = harness.world().await;
        promise(&*world).await;
        closing(&*world).await;
    }));
}

async fn closing(world: &dyn World) {
    reads::assert_totals(world).await;
    reads::assert_trail(world).await;
}

/// Runs a promise that needs many worlds.
pub fn run_many(harness: impl Harness, promise: impl AsyncFnOnce(&dyn Harness)) {
    block_on(Box::pin(promise(&harness)));
}

/// Behind a pointer, so that the runtime is compiled once and not for each of hundreds of promises: that took minutes.
fn block_on(promise: Pin<Box<dyn Future<Output = ()> + '_>>) {
    runtime().block_on(promise);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a test machine can start two threads")
}
