//! The contract of a store: eleven verbs, each one domain transition, each atomic and durable before it answers.
//!
//! `memory.rs` is this contract as readable code, `quell-store-tests` is it as tests. A store that passes the suite may
//! be used as `Arc<dyn Store>` everywhere. What only one store can do (append inside the caller's own transaction) is a
//! method of that store, outside this trait.
//!
//! Every call has three answers (`error.rs`): done, definitely not done, unknown. Only the store's clock decides.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::attempt::AttemptReport;
use crate::batch::{Batch, RunId, WorkerId};
use crate::clock::Timestamp;
use crate::error::{ErrorKind, StoreError, StoreResult};
use crate::event::{AppendPolicy, EventId, Key, LaneKey, NewEvent, Payload, QueueName, SourceName, Tenant};
use crate::inspect::{Inspect, Inspected};
use crate::keys::Keys;
use crate::lane::{Beat, Met, Notify, RunRules, Settlement};
use crate::lifecycle::{Change, RunState};
use crate::limits;
use crate::outcome::{Outcome, Verdict, VerdictKind};
use crate::retry::RetryPolicy;
use crate::schedule::Schedule;
use crate::shelf::{ShelfAnswer, ShelfRequest};
use crate::source::{Because, SourceReport, SourceRules, SourceVerdict};
use crate::tables::Tables;

/// What a database must be able to do. Each call is one transaction: done, definitely not done, or unknown
/// ([`StoreError`]).
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

    /// The gate before an effect: one atomic step that freezes the batch, or ends the attempt because newer events
    /// want to be part of it. Repeating the call gives the same answer.
    async fn hold(&self, request: HoldRequest) -> StoreResult<Held>;

    /// Remembers a piece of a run under (run, revision, name), conditional on the token. The first result stays.
    async fn step(&self, request: StepRequest) -> StoreResult<StepAnswer>;

    /// What a holder asks of its run's source while it works: one more token, what a request has shown, a kept answer.
    /// Of another source, which it names, it gets a token and tells what the request has shown. Conditional on the token.
    async fn source(&self, request: SourceRequest) -> StoreResult<SourceAnswer>;

    /// Ends an attempt, conditional on the token; the audit record is written in the same transaction.
    ///
    /// Repeating the call with the same token and verdict gives the same answer for at least one hour; with another
    /// verdict it is `AlreadySettled`; a token that never settled this run is `LostLease`.
    async fn settle(&self, request: SettleRequest) -> StoreResult<Settled>;

    /// Small documents beside the lanes, by shelf and name: put, remove, list.
    ///
    /// *After `Ok`* of a put or a remove it is committed and seen by whoever lists afterwards. A put may ask to be the first
    /// of its name; of several at once exactly one is. What has expired by the store's clock is not there for anybody, and
    /// its row goes with a later put or sweep. A list is a read: it is answered by a sealed store, too.
    async fn shelf(&self, request: ShelfRequest) -> StoreResult<ShelfAnswer>;

    /// Takes back expired leases and removes what is older than the retention, a small step at a time.
    async fn sweep(&self, request: SweepRequest) -> StoreResult<Swept>;

    /// Reads. Never blocks writers and never changes anything.
    async fn inspect(&self, request: Inspect) -> StoreResult<Inspected>;

    /// An operator's hand: flush, pause, resume, cancel, redrive, purge, erase, edit, schedule. Recorded with the actor.
    async fn control(&self, request: Control) -> StoreResult<Controlled>;

    /// A listener that is woken whenever a lane may have become due earlier than a claim has said.
    fn wakeups(&self) -> Box<dyn Wakeups>;

    /// What kind of store this is and how much it promises, read back from the store itself.
    fn description(&self) -> Description;

    /// Tables of applications in the same database, if the store has any.
    fn tables(self: Arc<Self>) -> Option<Arc<dyn Tables>> {
        None
    }

    /// Keys of applications in the same Redis, if the store is one. No store has both.
    fn keys(self: Arc<Self>) -> Option<Arc<dyn Keys>> {
        None
    }
}

/// Wakes a sleeper; nothing is lost between two calls.
#[async_trait]
pub trait Wakeups: Send {
    /// Returns when something may have become due since the last return (or since the listener was made).
    async fn woken(&mut self);
}

/// Events to be stored, all or none.
#[derive(Debug, Clone, Default)]
pub struct AppendRequest {
    /// In the order of their numbers.
    pub events: Vec<NewEvent>,
    /// An earlier try of this very request had an unknown answer: made ids are looked up too.
    pub repeat: bool,
}

/// What became of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Appended {
    /// One per event, in the order of the request.
    pub receipts: Vec<Receipt>,
}

/// What the sender of an event may rely on.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Receipt {
    /// Under which it is stored.
    pub event_id: EventId,
    /// Missing while the event is kept aside: its number is given when it enters its lane.
    pub seq: Option<u64>,
    /// The run in which the event waits at this moment (for a duplicate: the one it is or was in, if still known).
    pub run_id: Option<RunId>,
    /// The id was known: this is the receipt of the first one.
    pub duplicate: bool,
    /// When that run is due as things stand; missing when it is running or has ended. For an event aside: when it is
    /// ready.
    pub due_at: Option<Timestamp>,
    /// The state of that run; missing for an event aside.
    pub state: Option<RunState>,
    /// What the lane was doing, for the log.
    #[serde(skip)]
    pub met: Option<Met>,
}

/// How a queue's runs are executed: decided by its settings, carried by each claim and stamped on the run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunPolicy {
    /// How long a holder is trusted without a sign of life.
    pub lease: Duration,
    /// After so many the run has failed.
    pub max_attempts: u32,
    /// Runs of this queue (per tenant) that may be running at once over all processes.
    pub max_running: Option<u32>,
    /// What newer events, failures and notices mean for a run.
    pub rules: RunRules,
    /// Who is told how a run ended.
    pub notify: Option<Arc<Notify>>,
}

impl Default for RunPolicy {
    fn default() -> Self {
        RunPolicy {
            lease: limits::LEASE_DEFAULT,
            max_attempts: RetryPolicy::default().attempts,
            max_running: None,
            rules: RunRules::default(),
            notify: None,
        }
    }
}

/// What a worker wants to take.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// Who takes it.
    pub worker: Arc<WorkerId>,
    /// Of which queues.
    pub queues: ClaimQueues,
    /// Only lanes of this tenant.
    pub tenant: Option<Tenant>,
    /// Lanes at the most.
    pub max: usize,
    /// False while this process distrusts its clocks: then expired leases are left alone.
    pub reclaim: bool,
    /// Chosen by the caller. Repeating it returns the claims it got that are still live, and takes no others. The same
    /// text of another worker is another claim.
    pub claim_id: Option<String>,
}

/// From which queues to claim.
#[derive(Debug, Clone)]
pub enum ClaimQueues {
    /// Every queue there is, by one policy: a worker without configuration.
    Any(Arc<RunPolicy>),
    /// These, at most `max` lanes of each.
    Listed(Vec<ClaimQueue>),
}

/// A queue that lanes are taken of.
#[derive(Debug, Clone)]
pub struct ClaimQueue {
    /// Its name.
    pub queue: QueueName,
    /// By which its runs are executed.
    pub policy: Arc<RunPolicy>,
    /// In place of the policy, for the lanes of these tenants.
    pub tenants: Arc<BTreeMap<Tenant, Arc<RunPolicy>>>,
    /// Lanes at the most.
    pub max: usize,
}

impl ClaimQueue {
    /// One policy for all tenants.
    pub fn new(queue: QueueName, policy: Arc<RunPolicy>, max: usize) -> Self {
        ClaimQueue { queue, policy, tenants: Arc::default(), max }
    }
}

/// What a worker got.
#[derive(Debug, Clone, Default)]
pub struct Claimed {
    /// One for each lane, each under a lease of its own.
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
    /// Whose lane it is.
    pub lane: LaneKey,
    /// The run whose lease ran out.
    pub run_id: RunId,
    /// The token that is worth nothing any more.
    pub token: u64,
    /// Who held it.
    pub worker: Option<Arc<WorkerId>>,
    /// Since when.
    pub claimed_at: Timestamp,
    /// Pending, or failed when it was the last attempt.
    pub state: RunState,
}

/// A sign of life.
#[derive(Debug, Clone)]
pub struct ExtendRequest {
    /// The run that is held.
    pub run_id: RunId,
    /// Under which it is held.
    pub token: u64,
    /// From now on.
    pub lease: Duration,
}

/// The lease goes on, and what has happened meanwhile.
#[derive(Debug, Clone, PartialEq)]
pub struct Extended {
    /// Until then.
    pub lease_until: Timestamp,
    /// The number of the lane's newest event.
    pub head_seq: u64,
    /// Events that arrived for the next run.
    pub newer: u64,
    /// Newer events want the holder to stop: settle as `interrupted`.
    pub interrupt: bool,
    /// An operator wants the holder to stop: any end but `succeeded` is the cancellation.
    pub cancel: bool,
}

impl From<Beat> for Extended {
    fn from(beat: Beat) -> Self {
        let Beat { lease_until, head_seq, newer, interrupt, cancel } = beat;
        Extended { lease_until, head_seq, newer, interrupt, cancel }
    }
}

/// The question at the gate.
#[derive(Debug, Clone)]
pub struct HoldRequest {
    /// The run that is held.
    pub run_id: RunId,
    /// Under which it is held.
    pub token: u64,
    /// The envelope's `head_seq`: pass only if nothing newer has arrived since.
    pub if_head: Option<u64>,
}

/// What the gate says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum HoldAnswer {
    /// Go on: the batch is frozen for the rest of the run.
    Held,
    /// Stop: newer events arrived, and the attempt is over and refunded.
    Superseded,
    /// Stop: newer events or an operator interrupted it, and the attempt is over.
    Interrupted,
}

/// The answer at the gate.
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    /// Whether the effect may follow.
    pub answer: HoldAnswer,
    /// Running when held; else what became of the run.
    pub state: RunState,
}

/// One piece of a run.
#[derive(Debug, Clone)]
pub struct StepRequest {
    /// The run that is held.
    pub run_id: RunId,
    /// Under which it is held.
    pub token: u64,
    /// The step's name, unique in the run.
    pub name: String,
    /// What to do.
    pub action: StepAction,
}

/// What can be done with a step.
#[derive(Debug, Clone, PartialEq)]
pub enum StepAction {
    /// What is known of it.
    Read,
    /// Record the intent to do what must not be done twice.
    Begin,
    /// Record the result; the first one stays.
    Finish(serde_json::Value),
}

/// What is known of a step.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the fields are called what they are; each variant says the rest")]
pub enum StepAnswer {
    /// Nothing yet.
    New,
    /// This attempt's intent is recorded: do it.
    Begun,
    /// An earlier attempt meant to do it, and nobody knows whether it did: the handler decides.
    Unknown,
    /// Its result; `stored` when this call recorded it.
    Done { value: serde_json::Value, stored: bool },
}

/// A step as it is listed.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StepRow {
    /// The batch under which it was stored.
    pub revision: u32,
    /// The step's name.
    pub name: String,
    /// When it was stored.
    pub at: Timestamp,
    /// The attempt that recorded it.
    pub token: u64,
    /// Missing while only the intent is recorded.
    pub value: Option<serde_json::Value>,
}

/// What a holder asks of its run's source, or of another one.
#[derive(Debug, Clone)]
pub struct SourceRequest {
    /// The run that is held.
    pub run_id: RunId,
    /// Under which it is held.
    pub token: u64,
    /// Nothing for the run's own. Another declared source is that of the run's tenant, or the shared one; it is asked for
    /// tokens and told of requests ([`SourceAction::Take`], [`SourceAction::Report`]), and no more.
    pub source: Option<SourceName>,
    /// What to do.
    pub action: SourceAction,
}

/// What a run can do with its source.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the fields are called what they are; each variant says the rest")]
pub enum SourceAction {
    /// A token for one more request; the first one came with the claim.
    Take,
    /// What one request has shown.
    Report(SourceVerdict),
    /// The answer kept under this key, if it is at most `ttl` old (or as old as the declaration allows).
    Recall { key: String, ttl: Option<Duration> },
    /// Keeps an answer for `ttl` (or as long as the declaration says).
    Keep { key: String, value: serde_json::Value, ttl: Option<Duration> },
    /// The answer could not be fetched, or is worth nothing: others need not wait for it.
    Forget { key: String },
}

impl SourceAction {
    /// The key of the kept answer that it is about.
    pub fn key(&self) -> Option<&str> {
        match self {
            SourceAction::Recall { key, .. }
            | SourceAction::Keep { key, .. }
            | SourceAction::Forget { key } => Some(key),
            SourceAction::Take | SourceAction::Report(_) => None,
        }
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the fields are called what they are; each variant says the rest")]
pub enum SourceAnswer {
    /// The request may be made. Also the answer to a run without a source, which nothing governs.
    Taken,
    /// Not before this moment: a run that cannot wait so long is handed back as starved.
    Wait { until: Timestamp, because: Because },
    /// The report, the answer or the forgetting is recorded.
    Noted,
    /// A kept answer.
    Hit(serde_json::Value),
    /// Fetch it: nobody else does until this moment. Without one the cache is disabled and nothing is kept.
    Fetch { until: Option<Timestamp> },
    /// Somebody else is fetching it: ask again, at the latest at this moment.
    Fetching { until: Timestamp },
}

/// How an attempt ended.
#[derive(Debug, Clone)]
pub struct SettleRequest {
    /// The run that is held.
    pub run_id: RunId,
    /// Under which it is held; another one is refused.
    pub token: u64,
    /// What its holder says.
    pub verdict: Verdict,
    /// The wait of a retry, or of a second release in a row; drawn by the caller from the queue's policy.
    pub delay: Duration,
    /// Why it did not succeed.
    pub error: Option<String>,
    /// What came of it.
    pub result: Option<serde_json::Value>,
    /// Amounts that were used up.
    pub usage: std::collections::BTreeMap<String, f64>,
    /// Succeed only if nothing newer than this has arrived; otherwise the run gives way to the newer events.
    pub if_head: Option<u64>,
    /// Follow-up work, stored with the end of the run and only then: it enters its lanes as `run_id/n`.
    pub events: Vec<NewEvent>,
    /// What the attempt has shown of the run's source.
    pub source: SourceReport,
    /// What was asked and answered. Kept with the error for the latest attempts of the run (`attempt.rs`).
    pub report: Option<Box<AttemptReport>>,
}

impl SettleRequest {
    /// A verdict and nothing else.
    pub fn new(run_id: RunId, token: u64, verdict: Verdict) -> Self {
        SettleRequest {
            run_id,
            token,
            verdict,
            delay: Duration::ZERO,
            error: None,
            result: None,
            usage: std::collections::BTreeMap::new(),
            if_head: None,
            events: Vec::new(),
            source: SourceReport::default(),
            report: None,
        }
    }

    /// What a handler's answer asks of the store: cut to the limits, with the wait that its queue's policy draws (`chance`
    /// is from [0, 1)) after so many earlier retries.
    pub fn of(
        run_id: RunId,
        token: u64,
        outcome: Outcome,
        retry: &RetryPolicy,
        retries: u32,
        chance: f64,
    ) -> Self {
        let Outcome { verdict, error, result, usage, if_head, events, source, report: told } =
            outcome.bounded();
        let (verdict, delay) = match verdict {
            Verdict::Retry { after: Some(after) } => {
                let after = after.min(limits::RETRY_AFTER_MAX);
                (Verdict::Retry { after: Some(after) }, after)
            }
            Verdict::Release => (verdict, retry.base),
            // Giving way is treated as a retry when there is nothing to give way to.
            Verdict::Retry { after: None } | Verdict::Interrupted | Verdict::Superseded => {
                (verdict, retry.delay(retries, chance))
            }
            Verdict::Succeeded | Verdict::Failed => (verdict, Duration::ZERO),
        };
        let asked = SettleRequest::new(run_id, token, verdict);
        let report =
            SettleRequest { delay, error, result, usage, if_head, events, source, report: told, ..asked };
        // Trying again would carry the same: nothing of it can be stored, and dropping it would lose work in silence.
        match report.check() {
            Ok(()) => report,
            Err(problem) => {
                let text = format!("the outcome carries events that cannot be stored: {}", problem.detail);
                let failed = SettleRequest::new(run_id, token, Verdict::Failed);
                SettleRequest {
                    error: Some(text),
                    usage: report.usage,
                    source,
                    report: report.report,
                    ..failed
                }
            }
        }
    }

    /// `refund` is what [`crate::source::Source::refunds`] says of it.
    pub fn settlement(&self, refund: bool) -> Settlement {
        Settlement { verdict: self.verdict, delay: self.delay, if_head: self.if_head, refund }
    }

    /// The checks that need no store.
    pub fn check(&self) -> StoreResult<()> {
        if self.events.len() > limits::CARRIED_EVENTS_MAX {
            let (n, max) = (self.events.len(), limits::CARRIED_EVENTS_MAX);
            return Err(StoreError::new(
                ErrorKind::Limit,
                format!("a settle carries {n} events; at most {max} are allowed"),
            ));
        }
        check_events(&self.events)
    }
}

/// What the end of an attempt made of the run.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    /// Its state now.
    pub state: RunState,
    /// What happened: not always what was asked for.
    pub change: Change,
    /// When the run is due again, for retry, release and giving way.
    pub next_at: Option<Timestamp>,
    /// The same answer as before, because the call was repeated.
    pub repeated: bool,
}

/// How much to clear up.
#[derive(Debug, Clone)]
pub struct SweepRequest {
    /// False while this process distrusts its clocks.
    pub reclaim: bool,
    /// Remove finished runs, their events and ids, and audit records older than this.
    pub retention: Option<Duration>,
}

/// What was cleared up.
#[derive(Debug, Clone, Default)]
pub struct Swept {
    /// Leases that were taken back.
    pub reclaimed: Vec<Reclaimed>,
    /// Finished runs removed by the retention step.
    pub removed_runs: u64,
    /// Events whose retention is over.
    pub removed_events: u64,
    /// Records of the trail whose retention is over.
    pub removed_audit: u64,
    /// There is more of either; call again.
    pub more: bool,
}

/// An operator's request, with who asked.
#[derive(Debug, Clone)]
pub struct Control {
    /// Who does this, for the trail.
    pub actor: String,
    /// What is done.
    pub action: ControlAction,
}

/// What an operator can do.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are called what they are; each variant says the rest")]
pub enum ControlAction {
    /// Hands a lane over now.
    Flush(LaneKey),
    /// Stops handing a lane over.
    PauseLane(LaneKey),
    /// Ends the pause of a lane, or its wait for a failed run.
    ResumeLane(LaneKey),
    /// Stops handing a queue over.
    PauseQueue(QueueScope),
    /// Ends the pause of a queue.
    ResumeQueue(QueueScope),
    /// Ends the current run, or the open one if none is current; with `run` only if it still is that one.
    Cancel { lane: LaneKey, run: Option<RunId> },
    /// Puts the events of a failed or cancelled run back.
    Redrive(Redrive),
    /// Throws away what is dead, delayed or buffered.
    Purge(Purge),
    /// Deletes payloads, key text, steps, dead letters and ids of a lane for good; cancels first.
    EraseLane(LaneKey),
    /// Deletes one event for good, wherever it is.
    EraseEvent { lane: LaneKey, id: EventId },
    /// Changes the payload of one buffered event.
    EditEvent { lane: LaneKey, id: EventId, payload: Payload },
    /// Takes one buffered event out of its lane.
    DeleteEvent { lane: LaneKey, id: EventId },
    /// Makes or changes a schedule; an unchanged one keeps its place in time.
    PutSchedule(Schedule),
    /// Takes a schedule away; events that it has made stay.
    RemoveSchedule { tenant: Tenant, name: String },
    /// Declares a source, or changes what is declared; an unchanged one keeps its state.
    PutSource { name: SourceName, rules: SourceRules },
    /// Takes a declaration away: its lanes are held, of every tenant, and new events that name it are refused.
    RemoveSource { name: SourceName },
    /// Lets the keys of a source go.
    EnableSource(SourceScope),
    /// Holds the lanes of a source; nothing fails and no attempt is counted.
    DisableSource(SourceScope),
    /// Closes the breaker, fills the bucket, ends a silence that the source asked for and forgets its answers.
    ResetSource(SourceScope),
    /// Lets the lanes of a source that is not declared any more go ungoverned.
    ReleaseSource(SourceScope),
}

/// A source of one tenant. A shared one, and one of those who have no tenant, has the empty tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceScope {
    /// The owner; nobody for a shared one.
    pub tenant: Tenant,
    /// By which queues and events name it.
    pub name: SourceName,
}

impl SourceScope {
    /// Under which the trail tells what is done to it.
    pub fn trail(&self) -> LaneKey {
        let key = Key::new(self.name.as_str()).expect("the name of a source is a key");
        LaneKey { tenant: self.tenant.clone(), queue: QueueName::of_sources(), key }
    }
}

/// Which events go back, and where.
#[derive(Debug, Clone)]
pub struct Redrive {
    /// A failed or cancelled run.
    pub run: RunId,
    /// Only these; none means all of the run.
    pub events: Vec<EventId>,
    /// New payloads for some of them, in the same transaction: nobody works with the old ones in between.
    pub edits: Vec<(EventId, Payload)>,
    /// Where its events go.
    pub to: RedriveTo,
    /// Forget the steps of the old run.
    pub fresh: bool,
    /// The queue's rules, for events that go back as new.
    pub policy: Arc<AppendPolicy>,
}

/// Where redriven events go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedriveTo {
    /// A frozen run of exactly these events, before anything buffered.
    Head,
    /// New sequence numbers at the end of the lane.
    New,
}

/// What is discarded. Bounded per call; the answer says whether there is more.
#[derive(Debug, Clone)]
pub struct Purge {
    /// Of this queue.
    pub queue: QueueName,
    /// Nothing means every tenant.
    pub tenant: Option<Tenant>,
    /// Only this key.
    pub key: Option<Key>,
    /// Which of its events.
    pub what: PurgeWhat,
    /// Only count.
    pub dry_run: bool,
}

/// Which events are thrown away; never those that a worker holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PurgeWhat {
    /// Those of failed runs.
    Dead,
    /// Those that have not entered their lane.
    Delayed,
    /// Those that wait for their window.
    Buffered,
}

/// A queue of one tenant, or of all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueScope {
    /// Of this queue.
    pub queue: QueueName,
    /// Nothing means every tenant, also those to come.
    pub tenant: Option<Tenant>,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Controlled {
    /// False when things already were as asked.
    pub changed: bool,
    /// Events that were redriven, purged or erased (or would be, in a dry run).
    pub events: u64,
    /// The run that was made or ended.
    pub run: Option<RunId>,
    /// There is more of it: call again.
    pub more: bool,
}

impl Controlled {
    /// Done, or not needed, and nothing else to tell.
    pub fn changed(changed: bool) -> Self {
        Controlled { changed, ..Controlled::default() }
    }
}

/// What a store says of itself.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Description {
    /// `sqlite`, `postgres`, `redis`, `memory`.
    pub kind: &'static str,
    /// Where it is, without secrets.
    pub place: String,
    /// Of the database, as it names itself.
    pub version: String,
    /// Of Quell's own tables or keys.
    pub schema: u32,
    /// What an acknowledgement is worth, as read back from its settings.
    pub durability: Durability,
}

/// How much an acknowledgement is worth, read back at start.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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
            ClaimQueues::Listed(list) => {
                let listed = list.iter().find(|q| q.queue == *queue)?;
                Some(listed.tenants.get(tenant).unwrap_or(&listed.policy))
            }
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
        check_events(&self.events)
    }
}

/// What every event on its way in must keep to, wherever it comes from.
fn check_events(events: &[NewEvent]) -> StoreResult<()> {
    let limit = |detail: String| Err(StoreError::new(ErrorKind::Limit, detail));
    if let Some(problem) = events.iter().find_map(|event| event.opens().check().err()) {
        return Err(StoreError::new(ErrorKind::Invalid, problem.to_string()));
    }
    if let Some(event) = events.iter().find(|event| event.lane.queue.is_of_sources()) {
        let queue = &event.lane.queue;
        let text = format!("the queue {queue} is kept for what is recorded of sources: choose another name");
        return Err(StoreError::new(ErrorKind::Invalid, text));
    }
    let mut total = 0;
    for (index, event) in events.iter().enumerate() {
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
        if event.priority > limits::PRIORITY_MAX {
            let text = format!("event {index}: priority {} is not between 0 and 9", event.priority);
            return Err(StoreError::new(ErrorKind::Invalid, text));
        }
        if event.delay.is_some_and(|delay| delay > limits::DELAY_MAX) {
            return limit(format!("event {index}: a delay of more than 366 days"));
        }
        total += size;
    }
    if total > limits::APPEND_BYTES_MAX {
        let max = limits::APPEND_BYTES_MAX;
        return limit(format!("{total} bytes of payload in one request; at most {max} are allowed"));
    }
    Ok(())
}

impl ClaimRequest {
    /// The checks that need no store.
    pub fn check(&self) -> StoreResult<()> {
        match &self.claim_id {
            Some(id) if id.is_empty() || id.len() > limits::CLAIM_ID_BYTES_MAX => {
                let max = limits::CLAIM_ID_BYTES_MAX;
                Err(StoreError::new(ErrorKind::Invalid, format!("a claim_id has 1 to {max} bytes")))
            }
            _ => Ok(()),
        }
    }
}

impl StepRequest {
    /// The checks that need no store.
    pub fn check(&self) -> StoreResult<()> {
        if self.name.is_empty() || self.name.len() > limits::STEP_NAME_BYTES_MAX || self.name.contains('\0') {
            let max = limits::STEP_NAME_BYTES_MAX;
            let text = format!("a step's name has 1 to {max} bytes and no NUL");
            return Err(StoreError::new(ErrorKind::Invalid, text));
        }
        if let StepAction::Finish(value) = &self.action {
            let (size, max) = (value.to_string().len(), limits::STEP_VALUE_BYTES_MAX);
            if size > max {
                let text =
                    format!("the result of step {:?} has {size} bytes; at most {max} are kept", self.name);
                return Err(StoreError::new(ErrorKind::Limit, text));
            }
        }
        Ok(())
    }
}

impl SourceRequest {
    /// The checks that need no store.
    pub fn check(&self) -> StoreResult<()> {
        let Some(key) = self.action.key() else { return Ok(()) };
        if let Some(name) = &self.source {
            let text = format!(
                "answers are kept by the run's own source, not by {name}: ask without a name, or keep the answer as a step"
            );
            return Err(StoreError::new(ErrorKind::Invalid, text));
        }
        if key.is_empty() || key.len() > limits::CACHE_KEY_BYTES_MAX || key.contains('\0') {
            let max = limits::CACHE_KEY_BYTES_MAX;
            let text = format!("the key of a kept answer has 1 to {max} bytes and no NUL");
            return Err(StoreError::new(ErrorKind::Invalid, text));
        }
        if let SourceAction::Keep { value, .. } = &self.action {
            let (size, max) = (value.to_string().len(), limits::CACHE_VALUE_BYTES_MAX);
            if size > max {
                let text = format!("the answer has {size} bytes; at most {max} are kept");
                return Err(StoreError::new(ErrorKind::Limit, text));
            }
        }
        Ok(())
    }
}

/// The answer to an event that names a source which nobody declares.
pub fn unknown_source(lane: &LaneKey, name: &SourceName) -> StoreError {
    let detail = format!(
        "an event of {lane} names the source {name}, which is not declared; nothing was stored: declare it as \
         [sources.{name}], or leave the source out"
    );
    StoreError::new(ErrorKind::Invalid, detail)
}

/// The answer to a holder that asks another source which nobody declares.
pub fn undeclared_source(run: RunId, name: &SourceName) -> StoreError {
    let detail =
        format!("{run} asks the source {name}, which is not declared: declare it as [sources.{name}]");
    StoreError::new(ErrorKind::Invalid, detail)
}

/// The answer to one declaration too many.
pub fn too_many_sources() -> StoreError {
    let max = limits::SOURCES_DECLARED_MAX;
    StoreError::new(
        ErrorKind::Limit,
        format!("{max} sources are declared already: remove one that nobody names"),
    )
}

/// The answer to a hand laid on a source that is not there.
pub fn no_such_source(scope: &SourceScope) -> StoreError {
    let whose = if scope.tenant.is_none() { String::new() } else { format!(" of tenant {}", scope.tenant) };
    let detail = format!(
        "there is no source {}{whose}: declare it as [sources.{}]; a shared one is named without a tenant",
        scope.name, scope.name
    );
    StoreError::new(ErrorKind::NotFound, detail)
}

/// The answer to a holder that wants kept answers though nothing governs its run.
pub fn ungoverned(run: RunId) -> StoreError {
    let detail = format!(
        "{run} names no source, and answers are kept by source: name one with the event or its queue"
    );
    StoreError::new(ErrorKind::Invalid, detail)
}

/// The answer to a redrive at the head of events that ask different parties: a batch asks one.
pub fn mixed_sources(run: RunId) -> StoreError {
    let detail =
        format!("the events of {run} name different sources: redrive it as new, or some of its events");
    StoreError::new(ErrorKind::Invalid, detail)
}

/// The answer to an event that would overfill its lane; the same words in every store.
pub fn lane_full(lane: &LaneKey, waiting: u64, max: u64) -> StoreError {
    let detail = format!(
        "lane {lane} holds {waiting} events and its limit is {max}; nothing was stored, send again later"
    );
    StoreError::new(ErrorKind::Full, detail)
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

/// The answer to an event that wanted an idle lane.
pub fn not_idle(lane: &LaneKey) -> StoreError {
    let detail = format!("lane {lane} has work, and the event asked for an idle one; nothing was stored");
    StoreError::new(ErrorKind::NotIdle, detail)
}

/// The answer to more steps than a run may have.
pub fn too_many_steps(run: RunId) -> StoreError {
    let max = limits::STEPS_MAX;
    StoreError::new(ErrorKind::Limit, format!("{run} has {max} steps already; nothing was stored"))
}

/// The answer to a redrive into a lane where too many frozen runs wait.
pub fn too_many_queued(lane: &LaneKey) -> StoreError {
    let max = limits::QUEUED_RUNS_MAX;
    let detail = format!("{max} runs wait in lane {lane} already; redrive again when some are done");
    StoreError::new(ErrorKind::Limit, detail)
}

/// The answer to a redrive of more than one batch can be: a claim reads it in one piece.
pub fn too_large_to_redrive(run: RunId, events: u64) -> StoreError {
    let (most, bytes) = (limits::BATCH_EVENTS_MAX, limits::BATCH_BYTES_MAX >> 20);
    let detail = format!(
        "{run} has {events} events; a run at the head holds at most {most} and {bytes} MiB: redrive it as new, or some \
         of its events"
    );
    StoreError::new(ErrorKind::Limit, detail)
}

/// The answer to a redrive that would change an event which does not go back with it.
pub fn edits_another(run: RunId, id: &EventId) -> StoreError {
    let detail = format!("event {id} is none of those of {run} that go back; nothing was changed");
    StoreError::new(ErrorKind::Invalid, detail)
}

/// The answer to a hand laid on an event that is not buffered (any more).
pub fn not_buffered(lane: &LaneKey, id: &EventId) -> StoreError {
    let detail = format!("event {id} of {lane} is not buffered: only events that wait can be changed");
    StoreError::new(ErrorKind::NotFound, detail)
}

/// The answer to a repeated hold whose first call ended the attempt.
pub fn held_before(
    run: RunId,
    token: u64,
    verdict: Option<VerdictKind>,
    change: Change,
    to: Option<RunState>,
) -> StoreResult<Held> {
    let answer = match verdict {
        Some(VerdictKind::Interrupted) => HoldAnswer::Interrupted,
        Some(VerdictKind::Superseded) => HoldAnswer::Superseded,
        _ => return Err(already_settled(run, token, change)),
    };
    Ok(Held { answer, state: to.expect("a settlement names a state") })
}
