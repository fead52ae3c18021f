//! The words of the worker loop: its states and their table, its settings, what it hears and what it asks for.
//!
//! The states are those of the specification Quell replaces, visible in logs, metrics and listings. `worker_loop.rs`
//! moves between them; nothing else does.

use std::sync::Arc;
use std::time::Duration;

use crate::batch::{Batch, WorkerId};
use crate::clock::Tick;
use crate::error::StoreResult;
use crate::event::{QueueName, Tenant};
use crate::limits;
use crate::store::{ClaimRequest, Claimed, RunPolicy, SweepRequest, Swept};

/// What the loop is doing, as people see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    Startup,
    Connecting,
    Recovery,
    Polling,
    Claiming,
    Backoff,
    Idle,
    ErrorWait,
    /// Claiming nothing any more; running handlers finish or are handed back.
    Draining,
    Stopped,
}

impl WorkerState {
    pub fn as_str(self) -> &'static str {
        match self {
            WorkerState::Startup => "startup",
            WorkerState::Connecting => "connecting",
            WorkerState::Recovery => "recovery",
            WorkerState::Polling => "polling",
            WorkerState::Claiming => "claiming",
            WorkerState::Backoff => "backoff",
            WorkerState::Idle => "idle",
            WorkerState::ErrorWait => "error_wait",
            WorkerState::Draining => "draining",
            WorkerState::Stopped => "stopped",
        }
    }
}

/// Every legal move of the loop, besides "any state to ErrorWait or Draining". The later states of a run (Processing,
/// Reporting) belong to its own driver.
pub const MOVES: [(WorkerState, WorkerState); 10] = [
    (WorkerState::Startup, WorkerState::Connecting),
    (WorkerState::Connecting, WorkerState::Recovery),
    (WorkerState::Recovery, WorkerState::Polling),
    (WorkerState::Polling, WorkerState::Claiming),
    (WorkerState::Polling, WorkerState::Backoff),
    (WorkerState::Backoff, WorkerState::Idle),
    (WorkerState::Idle, WorkerState::Connecting),
    (WorkerState::Claiming, WorkerState::Polling),
    (WorkerState::ErrorWait, WorkerState::Connecting),
    (WorkerState::Draining, WorkerState::Stopped),
];

/// How the loop behaves.
#[derive(Debug, Clone)]
pub struct LoopSettings {
    pub worker: Arc<WorkerId>,
    pub queues: LoopQueues,
    /// Only lanes of this tenant.
    pub tenant: Option<Tenant>,
    /// Lanes at once in this process.
    pub concurrency: usize,
    pub idle_min: Duration,
    pub idle_max: Duration,
    pub error_wait: Duration,
    pub sweep_every: Duration,
    /// From the first shutdown until everything is finished or handed back.
    pub grace: Duration,
    /// Stop when nothing is due, nothing runs and nothing will become due by itself.
    pub until_idle: bool,
}

impl LoopSettings {
    pub fn new(worker: Arc<WorkerId>, queues: LoopQueues) -> Self {
        LoopSettings {
            worker,
            queues,
            tenant: None,
            concurrency: limits::CONCURRENCY_DEFAULT,
            idle_min: Duration::from_millis(100),
            idle_max: Duration::from_secs(5),
            error_wait: Duration::from_secs(5),
            sweep_every: Duration::from_secs(60),
            grace: Duration::from_secs(25),
            until_idle: false,
        }
    }
}

/// From which queues the worker takes lanes.
#[derive(Debug, Clone)]
pub enum LoopQueues {
    /// Every queue there is, by one policy.
    Any(Arc<RunPolicy>),
    Listed(Vec<LoopQueue>),
}

#[derive(Debug, Clone)]
pub struct LoopQueue {
    pub queue: QueueName,
    pub policy: Arc<RunPolicy>,
    /// Lanes of this queue at once in this process.
    pub concurrency: usize,
}

/// The place of a queue in the list of the settings (0 for `Any`), counted on from one change of the settings to the next: a
/// run keeps the place that it was claimed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot(pub usize);

/// What the loop is to do from now on. Runs that go on are not touched.
#[derive(Debug, Clone)]
pub struct LoopChange {
    pub queues: LoopQueues,
    /// The place of the first of the queues: larger than any place before.
    pub first: Slot,
    pub concurrency: usize,
    pub error_wait: Duration,
    pub sweep_every: Duration,
    pub grace: Duration,
}

/// What happened.
#[derive(Debug)]
pub enum LoopInput {
    Start,
    /// The moment asked for by `WakeAt` has come.
    Timer,
    /// The store says that something may have become due.
    Woken,
    Claimed(StoreResult<Claimed>),
    Swept(StoreResult<Swept>),
    /// These runs are over, one entry for each.
    RunsEnded(Vec<Slot>),
    /// How far the wall clock is ahead of the monotonic one, in milliseconds; only its changes mean something.
    Clocks {
        wall_ahead_ms: i64,
    },
    /// In force from the next claim on.
    Change(LoopChange),
    /// The first one drains, the second one stops at once.
    Shutdown,
}

/// What to do.
#[derive(Debug)]
pub enum LoopEffect {
    State {
        from: WorkerState,
        to: WorkerState,
    },
    Sweep(SweepRequest),
    Claim(ClaimRequest),
    /// Start a driver for this batch; `sent` is the moment from which its lease is counted.
    Run {
        batch: Batch,
        slot: Slot,
        sent: Tick,
    },
    /// Claimed while stopping: hand it back at once, without a handler.
    HandBack {
        batch: Batch,
        slot: Slot,
        sent: Tick,
    },
    /// Give a `Timer` at this moment; replaces an earlier wish.
    WakeAt(Tick),
    /// Tell all runs to finish; those that have not by then are handed back.
    StopRuns {
        finish_by: Tick,
    },
    /// Drop all runs as they are; their leases expire.
    AbandonRuns,
}
