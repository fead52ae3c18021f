//! Calls to the store as data: a question that travels, takes effect at some moment, and an answer that travels back.
//!
//! The memory store answers at once, so a future is polled a single time; all waiting is the simulator's. Several of them behind one
//! store are reached one by one (`link.rs`).

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use quell_check::history::{Action, Name};
use quell_core::clock::Clock;
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::memory::{MemoryStore, Snapshot};
use quell_core::store::{
    AppendRequest, Appended, ClaimRequest, Claimed, Control, Controlled, ExtendRequest, Extended, Held,
    HoldRequest, SettleRequest, Settled, SourceAnswer, SourceRequest, StepAnswer, StepRequest, Store,
    SweepRequest, Swept,
};
use quell_store_many::Whole;

/// What is simulated: the memory store, or one with a mistake built in.
pub trait Subject: Store {
    fn backup(&self) -> Snapshot;
    fn restore(&self, backup: &Snapshot);
    /// What it keeps its rows in: as one of several databases it gets its map and its numbers there.
    fn whole(self: Arc<Self>) -> Arc<dyn Whole>;
}

impl Subject for MemoryStore {
    fn backup(&self) -> Snapshot {
        MemoryStore::backup(self)
    }

    fn restore(&self, backup: &Snapshot) {
        MemoryStore::restore(self, backup);
    }

    fn whole(self: Arc<Self>) -> Arc<dyn Whole> {
        self
    }
}

/// Makes the store of a schedule, or each of its databases.
pub type MakeStore = dyn Fn(Arc<dyn Clock>) -> Arc<dyn Subject> + Sync;

/// The store as it is shipped.
pub fn real(clock: Arc<dyn Clock>) -> Arc<dyn Subject> {
    Arc::new(MemoryStore::new(clock))
}

/// Polls a future that never waits.
pub fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the memory store answers at once"),
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Request {
    Append(AppendRequest),
    Claim(ClaimRequest),
    Extend(ExtendRequest),
    Hold(HoldRequest),
    Step { request: StepRequest, revision: u32 },
    Source(SourceRequest),
    Settle { request: SettleRequest, own_delay: bool },
    Sweep(SweepRequest),
    Control { control: Control, action: Action },
    Backup(Name),
}

#[derive(Debug)]
pub(crate) enum Reply {
    Append(StoreResult<Appended>),
    Claim(StoreResult<Claimed>),
    Extend(StoreResult<Extended>),
    Hold(StoreResult<Held>),
    Step(StoreResult<StepAnswer>),
    Source(StoreResult<SourceAnswer>),
    Settle(StoreResult<Settled>),
    Sweep(StoreResult<Swept>),
    Control(StoreResult<Controlled>),
    Backup(StoreResult<()>),
}

impl Request {
    /// The effect: one atomic step of a store in memory; over several databases one step after the other.
    pub(crate) async fn perform(self, store: &dyn Store) -> Reply {
        match self {
            Request::Append(r) => Reply::Append(store.append(r).await),
            Request::Claim(r) => Reply::Claim(store.claim(r).await),
            Request::Extend(r) => Reply::Extend(store.extend(r).await),
            Request::Hold(r) => Reply::Hold(store.hold(r).await),
            Request::Step { request, .. } => Reply::Step(store.step(request).await),
            Request::Source(r) => Reply::Source(store.source(r).await),
            Request::Settle { request, .. } => Reply::Settle(store.settle(request).await),
            Request::Sweep(r) => Reply::Sweep(store.sweep(r).await),
            Request::Control { control, .. } => Reply::Control(store.control(control).await),
            Request::Backup(_) => Reply::Backup(Ok(())),
        }
    }

    /// The answer of a call that went wrong on its way.
    pub(crate) fn failed(&self, kind: ErrorKind) -> Reply {
        let error = StoreError::new(kind, "the simulated network");
        match self {
            Request::Append(_) => Reply::Append(Err(error)),
            Request::Claim(_) => Reply::Claim(Err(error)),
            Request::Extend(_) => Reply::Extend(Err(error)),
            Request::Hold(_) => Reply::Hold(Err(error)),
            Request::Step { .. } => Reply::Step(Err(error)),
            Request::Source(_) => Reply::Source(Err(error)),
            Request::Settle { .. } => Reply::Settle(Err(error)),
            Request::Sweep(_) => Reply::Sweep(Err(error)),
            Request::Control { .. } => Reply::Control(Err(error)),
            Request::Backup(_) => Reply::Backup(Err(error)),
        }
    }

    /// Whether the store's bell may ring: the rest changes nothing that others wait for.
    pub(crate) fn rings(&self) -> bool {
        !matches!(self, Request::Claim(_) | Request::Extend(_) | Request::Step { .. } | Request::Backup(_))
    }
}

impl Reply {
    /// What the answer to an append says of one part of it: of the events at these places of the request. The parts are stored one
    /// after the other, so what refused the first one is no reason for the others, which were not even asked.
    pub(crate) fn of_part(&self, nth: usize, places: &[usize]) -> Reply {
        match self {
            Reply::Append(Ok(Appended { receipts })) => {
                let receipts = places.iter().filter_map(|place| receipts.get(*place).cloned()).collect();
                Reply::Append(Ok(Appended { receipts }))
            }
            Reply::Append(Err(error)) if !error.is_unknown() => {
                let unasked = || StoreError::unavailable("another part was refused");
                Reply::Append(Err(if nth == 0 { error.clone() } else { unasked() }))
            }
            other => other.lost(),
        }
    }

    /// Refused by one database for good after another had done its part. The answer has to say so: a caller who reads it knows no
    /// more of the parts than one who was not answered.
    pub(crate) fn is_partly_done(&self) -> bool {
        self.error().is_some_and(|error| error.detail.contains("in other databases: "))
    }

    /// The same call, answered by nobody.
    pub(crate) fn lost(&self) -> Reply {
        let error = StoreError::new(ErrorKind::Unknown, "the simulated server is gone");
        match self {
            Reply::Append(_) => Reply::Append(Err(error)),
            Reply::Claim(_) => Reply::Claim(Err(error)),
            Reply::Extend(_) => Reply::Extend(Err(error)),
            Reply::Hold(_) => Reply::Hold(Err(error)),
            Reply::Step(_) => Reply::Step(Err(error)),
            Reply::Source(_) => Reply::Source(Err(error)),
            Reply::Settle(_) => Reply::Settle(Err(error)),
            Reply::Sweep(_) => Reply::Sweep(Err(error)),
            Reply::Control(_) => Reply::Control(Err(error)),
            Reply::Backup(_) => Reply::Backup(Err(error)),
        }
    }

    pub(crate) fn error(&self) -> Option<&StoreError> {
        match self {
            Reply::Append(r) => r.as_ref().err(),
            Reply::Claim(r) => r.as_ref().err(),
            Reply::Extend(r) => r.as_ref().err(),
            Reply::Hold(r) => r.as_ref().err(),
            Reply::Step(r) => r.as_ref().err(),
            Reply::Source(r) => r.as_ref().err(),
            Reply::Settle(r) => r.as_ref().err(),
            Reply::Sweep(r) => r.as_ref().err(),
            Reply::Control(r) => r.as_ref().err(),
            Reply::Backup(r) => r.as_ref().err(),
        }
    }
}
