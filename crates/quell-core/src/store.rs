//! The contract of a store: seven verbs, each one domain transition, each atomic and durable before it answers.
//!
//! `memory.rs` is this contract as readable code, `quell-store-tests` is it as tests. A store that passes the suite may
//! be used as `Arc<dyn Store>` everywhere. What only one store can do (append inside the caller's own transaction) is a
//! method of that store, outside this trait.
//!
//! Every call has three answers (`error.rs`): done, definitely not done, unknown. Only the store's clock decides.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::batch::{Batch, RunId, WorkerId};
use crate::clock::Timestamp;
use crate::error::{ErrorKind, StoreError, StoreResult};
use crate::event::{EventId, LaneKey, NewEvent, QueueName, Tenant};
use crate::inspect::{Inspect, Inspected};
use crate::lane::Met;
use crate::lifecycle::{Change, RunState};
use crate::limits;
use crate::outcome::Verdict;

#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Stores events durably and in order.
    ///
    /// *Before*: every event is valid. *After `Ok`*: all events of the request, the state of their lanes and the due
    /// times are committed together; each has a sequence number larger than every earlier one of its lane. A duplicate
    /// (same tenant, queue, key and given id) is answered with the first event's receipt and changes nothing.
    /// *After `Err`*: nothing of this request is stored, unless the error is unknown.
    async fn append(&self, request: AppendRequest) -> StoreResult<Appended>;

    /// Hands out due lanes, each to this worker alone.
    ///
    /// *After `Ok`*: every returned batch is held under a live lease by the token in it, its attempt is counted and
    /// audited. Lanes whose lease ran out are taken back on the way. Also says when the next lane will be due.
    async fn claim(&self, request: ClaimRequest) -> StoreResult<Claimed>;

    /// Keeps a lease. *After `Ok`* it ends `lease` from now or later. A token that does not hold the run is refused.
    async fn extend(&self, request: ExtendRequest) -> StoreResult<Extended>;

    /// Ends an attempt, conditional on the token; the audit record is written in the same transaction.
    ///
    /// Repeating the call with the same token and verdict gives the same answer for at least one hour; with another
    /// verdict it is `AlreadySettled`; a token that never settled this run is `LostLease`.
    async fn settle(&self, request: SettleRequest) -> StoreResult<Settled>;

    /// Takes back expired leases and removes what is older than the retention, a small step at a time.
    async fn sweep(&self, request: SweepRequest) -> StoreResult<Swept>;

    /// Reads. Never blocks writers and never changes anything.
    async fn inspect(&self, request: Inspect) -> StoreResult<Inspected>;

    /// An operator's hand: flush, pause, resume. Recorded with the actor.
    async fn control(&self, request: Control) -> StoreResult<Controlled>;

    /// A listener that is woken whenever a lane may have become due earlier than a claim has said.
    fn wakeups(&self) -> Box<dyn Wakeups>;

    /// What kind of store this is and how much it promises, read back from the store itself.
    fn description(&self) -> Description;
}

/// Wakes a sleeper; nothing is lost between two calls.
#[async_trait]
pub trait Wakeups: Send {
    /// Returns when something may have become due since the last return (or since the listener was made).
    async fn woken(&mut self);
}

#[derive(Debug, Clone, Default)]
pub struct AppendRequest {
    pub events: Vec<NewEvent>,
    /// An earlier try of this very request had an unknown answer: made ids are looked up too.
    pub repeat: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Appended {
    /// One per event, in the order of the request.
    pub receipts: Vec<Receipt>,
}

/// What the sender of an event may rely on.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Receipt {
    pub event_id: EventId,
    pub seq: u64,
    /// The run in which the event waits at this moment (for a duplicate: the one it is or was in, if still known).
    pub run_id: Option<RunId>,
    pub duplicate: bool,
    /// When that run is due as things stand; missing when it is running or has ended.
    pub due_at: Option<Timestamp>,
    /// What the lane was doing, for the log.
    #[serde(skip)]
    pub met: Option<Met>,
}

/// How a queue's runs are executed: decided by its settings, carried by each claim and stamped on the run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunPolicy {
    pub lease: Duration,
    pub max_attempts: u32,
    /// Runs of this queue (per tenant) that may be running at once over all processes.
    pub max_running: Option<u32>,
}

#[derive(Debug, Clone)]
pub struct ClaimRequest {
    pub worker: Arc<WorkerId>,
    pub queues: ClaimQueues,
    /// Only lanes of this tenant.
    pub tenant: Option<Tenant>,
    /// Lanes at the most.
    pub max: usize,
    /// False while this process distrusts its clocks: then expired leases are left alone.
    pub reclaim: bool,
}

/// From which queues to claim.
#[derive(Debug, Clone)]
pub enum ClaimQueues {
    /// Every queue there is, by one policy: a worker without configuration.
    Any(Arc<RunPolicy>),
    /// These, at most `max` lanes of each.
    Listed(Vec<ClaimQueue>),
}

#[derive(Debug, Clone)]
pub struct ClaimQueue {
    pub queue: QueueName,
    pub policy: Arc<RunPolicy>,
    pub max: usize,
}

#[derive(Debug, Clone, Default)]
pub struct Claimed {
    pub batches: Vec<Batch>,
    /// Leases that were found expired on the way.
    pub reclaimed: Vec<Reclaimed>,
    /// Store time of this claim.
    pub now: Timestamp,
    /// The earliest moment at which another claim could find something; nothing when only a wake-up can change that.
    pub next_at: Option<Timestamp>,
}

/// A lease that ran out.
#[derive(Debug, Clone, PartialEq)]
pub struct Reclaimed {
    pub lane: LaneKey,
    pub run_id: RunId,
    pub token: u64,
    pub worker: Option<Arc<WorkerId>>,
    pub claimed_at: Timestamp,
    /// Pending, or failed when it was the last attempt.
    pub state: RunState,
}

#[derive(Debug, Clone)]
pub struct ExtendRequest {
    pub run_id: RunId,
    pub token: u64,
    pub lease: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Extended {
    pub lease_until: Timestamp,
    pub head_seq: u64,
    /// Events that arrived for the next run.
    pub newer: u64,
}

#[derive(Debug, Clone)]
pub struct SettleRequest {
    pub run_id: RunId,
    pub token: u64,
    pub verdict: Verdict,
    /// The wait of a retry, or of a second release in a row; drawn by the caller from the queue's policy.
    pub delay: Duration,
    pub error: Option<String>,
    pub result: Option<serde_json::Value>,
    pub usage: std::collections::BTreeMap<String, f64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    pub state: RunState,
    /// When the run is due again, for retry and release.
    pub next_at: Option<Timestamp>,
    /// The same answer as before, because the call was repeated.
    pub repeated: bool,
}

#[derive(Debug, Clone)]
pub struct SweepRequest {
    /// False while this process distrusts its clocks.
    pub reclaim: bool,
    /// Remove finished runs, their events and ids, and audit records older than this.
    pub retention: Option<Duration>,
}

#[derive(Debug, Clone, Default)]
pub struct Swept {
    pub reclaimed: Vec<Reclaimed>,
    /// Finished runs removed by the retention step.
    pub removed_runs: u64,
    pub removed_events: u64,
    pub removed_audit: u64,
    /// There is more of either; call again.
    pub more: bool,
}

/// An operator's request, with who asked.
#[derive(Debug, Clone)]
pub struct Control {
    pub actor: String,
    pub action: ControlAction,
}

#[derive(Debug, Clone)]
pub enum ControlAction {
    Flush(LaneKey),
    PauseLane(LaneKey),
    ResumeLane(LaneKey),
    PauseQueue(QueueScope),
    ResumeQueue(QueueScope),
}

/// A queue of one tenant, or of all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueScope {
    pub queue: QueueName,
    /// Nothing means every tenant, also those to come.
    pub tenant: Option<Tenant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Controlled {
    /// False when things already were as asked.
    pub changed: bool,
}

/// What a store says of itself.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Description {
    /// `sqlite`, `postgres`, `redis`, `memory`.
    pub kind: &'static str,
    /// Where it is, without secrets.
    pub place: String,
    pub version: String,
    pub schema: u32,
    pub durability: Durability,
}

/// How much an acknowledgement is worth, read back at start.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Acknowledged events survive a power cut.
    Durable,
    /// They survive less; the text says what.
    BestEffort(String),
}

impl ClaimRequest {
    /// The policy under which this claim may take lanes of that queue, if at all.
    pub fn policy_for(&self, tenant: &Tenant, queue: &QueueName) -> Option<&Arc<RunPolicy>> {
        if self.tenant.as_ref().is_some_and(|wanted| wanted != tenant) {
            return None;
        }
        match &self.queues {
            ClaimQueues::Any(policy) => Some(policy),
            ClaimQueues::Listed(list) => list.iter().find(|q| q.queue == *queue).map(|q| &q.policy),
        }
    }

    /// How many lanes of a queue of that name this claim may take.
    pub fn room_for(&self, queue: &QueueName) -> usize {
        match &self.queues {
            ClaimQueues::Any(_) => usize::MAX,
            ClaimQueues::Listed(list) => list.iter().find(|q| q.queue == *queue).map_or(0, |q| q.max),
        }
    }
}

impl AppendRequest {
    /// The checks that need no store: sizes and counts. Every store calls it before it touches anything.
    pub fn check(&self) -> StoreResult<()> {
        let limit = |detail: String| Err(StoreError::new(ErrorKind::Limit, detail));
        if self.events.len() > limits::APPEND_EVENTS_MAX {
            let (n, max) = (self.events.len(), limits::APPEND_EVENTS_MAX);
            return limit(format!(
                "{n} events in one request; at most {max} are allowed, send several requests"
            ));
        }
        let mut total = 0;
        if let Some(problem) = self.events.iter().find_map(|event| event.policy.window.check().err()) {
            return Err(StoreError::new(ErrorKind::Invalid, problem.to_string()));
        }
        for (index, event) in self.events.iter().enumerate() {
            let (size, max) = (event.payload.len(), event.policy.payload_bytes);
            if size > max {
                let lane = &event.lane;
                return limit(format!(
                    "event {index} of {lane}: payload of {size} bytes; the queue allows {max}"
                ));
            }
            let headers: usize = event.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
            if headers > limits::HEADERS_BYTES_MAX {
                let max = limits::HEADERS_BYTES_MAX;
                return limit(format!("event {index}: headers of {headers} bytes; at most {max} are kept"));
            }
            total += size;
        }
        if total > limits::APPEND_BYTES_MAX {
            let max = limits::APPEND_BYTES_MAX;
            return limit(format!("{total} bytes of payload in one request; at most {max} are allowed"));
        }
        Ok(())
    }
}

/// The answer to an event that would overfill its lane; the same words in every store.
pub fn lane_full(lane: &LaneKey, waiting: u64, max: u64) -> StoreError {
    let detail = format!(
        "lane {lane} holds {waiting} events and its limit is {max}; nothing was stored, send again later"
    );
    StoreError::new(ErrorKind::Limit, detail)
}

/// The answer to a known id with another payload.
pub fn id_conflict(lane: &LaneKey, id: &EventId) -> StoreError {
    let detail = format!("event id {id} was already used in {lane} with another payload; nothing was stored");
    StoreError::new(ErrorKind::Conflict, detail)
}

/// The answer to a settle that says something else than the first one did.
pub fn already_settled(run: RunId, token: u64, change: Change) -> StoreError {
    let detail = format!("token {token} has already settled {run} as {change}");
    StoreError::new(ErrorKind::AlreadySettled, detail)
}
