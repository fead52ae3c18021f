//! Short ways to say what a promise needs: events, workers, policies, and the verbs with sensible defaults.
//!
//! Defaults: no window (an event is due at once), a lease of 60 s, three attempts. Times are whole tens of seconds, so
//! that the few milliseconds that pass by themselves in a real store never decide anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quell_core::batch::{Batch, RunId, WorkerId};
use quell_core::cron::{Cron, Zone};
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::event::{AppendPolicy, LaneKey, NewEvent, NewEventId, Overflow, Payload, SourceName, Tenant};
use quell_core::lane::{DuringRun, Notify, OnFailed, RetryWith, RunRules};
use quell_core::lifecycle::RunState;
use quell_core::outcome::Verdict;
use quell_core::schedule::Schedule;
use quell_core::shelf::{Document, Shelf, ShelfAction, ShelfAnswer, ShelfRequest};
use quell_core::source::{FaultKind, SourceFault, SourceReport, SourceRules};
use quell_core::store::{
    AppendRequest, Appended, ClaimQueue, ClaimQueues, ClaimRequest, Claimed, Control, ControlAction,
    Controlled, Extended, HoldAnswer, Purge, PurgeWhat, QueueScope, Receipt, Redrive, RedriveTo, RunPolicy,
    SettleRequest, Settled, SourceAction, SourceAnswer, SourceRequest, SourceScope, StepAction, StepAnswer,
    Store, SweepRequest, Swept,
};
use quell_core::window::{Window, WindowPolicy};
pub use quell_torture::requests::{
    extend_request, hold_request, id, lane, queue, settle_request, step_request,
};

/// The lease that [`policy`] gives.
pub const LEASE: Duration = Duration::from_secs(60);

/// The attempts that [`policy`] gives.
pub const ATTEMPTS: u32 = 3;

pub fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub fn tenant(name: &str) -> Tenant {
    Tenant::new(name).expect("test tenants have good names")
}

/// The lane of a tenant's key.
pub fn lane_of(tenant_name: &str, queue_name: &str, key: &str) -> LaneKey {
    lane(queue_name, key).of(tenant(tenant_name))
}

/// An event of this queue and key: no window, a made id, a small payload.
pub fn event(queue_name: &str, key: &str) -> EventBuilder {
    event_in(lane(queue_name, key))
}

/// An event of this lane.
pub fn event_in(lane: LaneKey) -> EventBuilder {
    static MADE: AtomicU64 = AtomicU64::new(1);
    let made = format!("evt_{}", MADE.fetch_add(1, Ordering::Relaxed));
    let payload = Payload::of(&serde_json::json!({ "made": made }));
    EventBuilder(NewEvent::new(lane, NewEventId::Made(id(&made)), payload, no_window()))
}

/// A queue's rules for its senders: no window, the default bounds.
pub fn no_window() -> Arc<AppendPolicy> {
    Arc::new(AppendPolicy { window: Window::none(), ..AppendPolicy::default() })
}

/// An event on its way in; each method changes one thing.
#[derive(Debug, Clone)]
pub struct EventBuilder(NewEvent);

impl EventBuilder {
    /// Gives it the caller's id, and a payload that depends on the id alone.
    #[must_use]
    pub fn id(mut self, text: &str) -> Self {
        self.0.id = NewEventId::Given(id(text));
        self.payload(serde_json::json!({ "id": text }))
    }

    /// Gives it an id made by the engine.
    #[must_use]
    pub fn made(mut self, text: &str) -> Self {
        self.0.id = NewEventId::Made(id(text));
        self.payload(serde_json::json!({ "id": text }))
    }

    #[must_use]
    pub fn payload(mut self, value: serde_json::Value) -> Self {
        self.0.payload = Payload::of(&value);
        self
    }

    /// A payload by its bytes.
    #[must_use]
    pub fn raw(mut self, json: &str) -> Self {
        self.0.payload = Payload::from_json(json.as_bytes()).expect("test payloads are JSON");
        self
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.0.headers.insert(name.into(), value.into());
        self
    }

    #[must_use]
    pub fn of(mut self, tenant_name: &str) -> Self {
        self.0.lane.tenant = tenant(tenant_name);
        self
    }

    #[must_use]
    pub fn window(self, window: Window) -> Self {
        self.policy(|p| p.window = window)
    }

    /// Closes after this much silence, at the latest after ten times as long.
    #[must_use]
    pub fn quiet(self, seconds: u64) -> Self {
        self.window(Window::quiet(secs(seconds)))
    }

    #[must_use]
    pub fn quiet_capped(self, seconds: u64, cap: u64) -> Self {
        self.window(Window::quiet_capped(secs(seconds), secs(cap)))
    }

    #[must_use]
    pub fn fixed(self, seconds: u64) -> Self {
        self.window(Window::fixed(secs(seconds)))
    }

    #[must_use]
    pub fn max_events(self, max: u32) -> Self {
        self.policy(|p| p.window = p.window.max_events(max))
    }

    #[must_use]
    pub fn max_bytes(self, max: u64) -> Self {
        self.policy(|p| p.window = p.window.max_bytes(max))
    }

    /// Bounds the events that may wait in the lane.
    #[must_use]
    pub fn lane_events(self, max: u64) -> Self {
        self.policy(|p| p.lane_events = max)
    }

    /// Bounds the payload.
    #[must_use]
    pub fn payload_bytes(self, max: usize) -> Self {
        self.policy(|p| p.payload_bytes = max)
    }

    /// A full lane drops its oldest buffered events instead of refusing this one.
    #[must_use]
    pub fn drop_oldest(self) -> Self {
        self.policy(|p| p.overflow = Overflow::DropOldest)
    }

    /// An equal payload in the still open window is the same event.
    #[must_use]
    pub fn content_dedupe(self) -> Self {
        self.policy(|p| p.content_dedupe = true)
    }

    /// 0 to 9, 9 first.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Self {
        self.0.priority = priority;
        self
    }

    /// Keeps it aside for so many seconds.
    #[must_use]
    pub fn delay(mut self, seconds: u64) -> Self {
        self.0.delay = Some(secs(seconds));
        self
    }

    /// A window of its own in place of the queue's.
    #[must_use]
    pub fn own_window(mut self, policy: WindowPolicy) -> Self {
        self.0.window = Some(policy);
        self
    }

    /// Names its own source.
    #[must_use]
    pub fn source(mut self, name: &str) -> Self {
        self.0.source = Some(source_name(name));
        self
    }

    /// Its queue names a source.
    #[must_use]
    pub fn queue_source(self, name: &str) -> Self {
        self.policy(|p| p.source = Some(source_name(name)))
    }

    #[must_use]
    pub fn only_if_idle(mut self) -> Self {
        self.0.only_if_idle = true;
        self
    }

    pub fn build(self) -> NewEvent {
        self.0
    }

    fn policy(mut self, change: impl FnOnce(&mut AppendPolicy)) -> Self {
        change(Arc::make_mut(&mut self.0.policy));
        self
    }
}

/// The policy of one event, to be changed.
pub(crate) fn policy_of(event: &mut NewEvent) -> &mut AppendPolicy {
    Arc::make_mut(&mut event.policy)
}

pub fn append_request(events: impl IntoIterator<Item = EventBuilder>) -> AppendRequest {
    AppendRequest { events: events.into_iter().map(EventBuilder::build).collect(), repeat: false }
}

/// Appends in one request, whatever the answer.
pub async fn try_append(
    store: &dyn Store,
    events: impl IntoIterator<Item = EventBuilder>,
) -> StoreResult<Appended> {
    store.append(append_request(events)).await
}

/// Appends in one request that must be done.
pub async fn append(store: &dyn Store, events: impl IntoIterator<Item = EventBuilder>) -> Vec<Receipt> {
    let request = append_request(events);
    let asked: Vec<_> = request.events.iter().map(|e| e.id.id().clone()).collect();
    let receipts = store.append(request).await.expect("the append is done").receipts;
    let told: Vec<_> = receipts.iter().map(|r| r.event_id.clone()).collect();
    assert_eq!(told, asked, "there is one receipt per event, in the order of the request");
    receipts
}

/// Appends one event that must be new.
pub async fn append_one(store: &dyn Store, event: EventBuilder) -> Receipt {
    let receipt = append(store, [event]).await.remove(0);
    assert!(!receipt.duplicate, "the event is new");
    receipt
}

/// The number that an event has got in its lane.
#[track_caller]
pub fn seq_of(receipt: &Receipt) -> u64 {
    receipt.seq.expect("an event that is in its lane has a number")
}

/// A worker's identity. The same name twice gives two identities, as two starts of one program would.
pub fn worker(name: &str) -> Arc<WorkerId> {
    static START: AtomicU64 = AtomicU64::new(1);
    let start = format!("s{}", START.fetch_add(1, Ordering::Relaxed));
    Arc::new(WorkerId { name: name.into(), pid: 100, start })
}

/// A lease of 60 s, three attempts, no bound on what runs at once.
pub fn policy() -> RunPolicy {
    RunPolicy { lease: LEASE, max_attempts: ATTEMPTS, ..RunPolicy::default() }
}

/// [`policy`] with other rules for its runs.
pub fn policy_with(change: impl FnOnce(&mut RunRules)) -> RunPolicy {
    let mut policy = policy();
    change(&mut policy.rules);
    policy
}

/// Events that arrive during a run ask its holder to stop, at most this often.
pub fn interrupting(max_interrupts: u32) -> RunPolicy {
    policy_with(|r| {
        *r = RunRules {
            during_run: DuringRun::Interrupt,
            retry_with: RetryWith::Newer,
            max_interrupts,
            ..RunRules::default()
        }
    })
}

/// The holder asks at its gate whether it is up to date, and gives way at most this often.
pub fn gated(max_interrupts: u32) -> RunPolicy {
    policy_with(|r| *r = RunRules { during_run: DuringRun::Gate, ..interrupting(max_interrupts).rules })
}

/// A retry takes in what arrived meanwhile.
pub fn retry_newer() -> RunPolicy {
    policy_with(|r| r.retry_with = RetryWith::Newer)
}

/// What a failed run does to its lane.
pub fn on_failed(on_failed: OnFailed) -> RunPolicy {
    policy_with(|r| r.on_failed = on_failed)
}

/// Tells this queue about every run that ends in one of these states.
pub fn notifying(queue_name: &str, on: &[RunState]) -> RunPolicy {
    let notify = Notify { queue: queue(queue_name), on: on.to_vec(), policy: (*no_window()).clone() };
    RunPolicy { notify: Some(Arc::new(notify)), ..policy() }
}

/// A claim of everything there is.
pub fn claim_request(worker: &Arc<WorkerId>) -> ClaimRequest {
    claim_request_by(worker, policy())
}

/// A claim of everything there is, by this policy.
pub fn claim_request_by(worker: &Arc<WorkerId>, policy: RunPolicy) -> ClaimRequest {
    ClaimRequest {
        worker: worker.clone(),
        queues: ClaimQueues::Any(Arc::new(policy)),
        tenant: None,
        max: 100,
        reclaim: true,
        claim_id: None,
    }
}

/// One entry of a claim from listed queues.
pub fn from_queue(name: &str, policy: RunPolicy, max: usize) -> ClaimQueue {
    ClaimQueue::new(queue(name), Arc::new(policy), max)
}

/// Claims; batches come sorted by lane, because there is no order between lanes.
pub async fn claim(store: &dyn Store, request: ClaimRequest) -> Claimed {
    let mut claimed = store.claim(request).await.expect("the claim is done");
    claimed.batches.sort_by(|a, b| a.lane.cmp(&b.lane));
    claimed.reclaimed.sort_by(|a, b| a.lane.cmp(&b.lane));
    claimed
}

/// Everything that is due, for some worker.
pub async fn claim_all(store: &dyn Store) -> Vec<Batch> {
    claim(store, claim_request(&worker("any"))).await.batches
}

/// The one lane that is due.
pub async fn claim_one(store: &dyn Store) -> Batch {
    claim_one_as(store, &worker("any")).await
}

/// The one lane that is due, for this worker.
pub async fn claim_one_as(store: &dyn Store, worker: &Arc<WorkerId>) -> Batch {
    let mut batches = claim(store, claim_request(worker)).await.batches;
    assert_eq!(batches.len(), 1, "exactly one lane is due");
    batches.remove(0)
}

/// The one lane that is due, by this policy.
pub async fn claim_by(store: &dyn Store, policy: &RunPolicy) -> Batch {
    let mut batches = claim(store, claim_request_by(&worker("any"), policy.clone())).await.batches;
    assert_eq!(batches.len(), 1, "exactly one lane is due");
    batches.remove(0)
}

/// Nothing is due.
pub async fn claim_none(store: &dyn Store) {
    let batches = claim_all(store).await;
    let lanes: Vec<_> = batches.iter().map(|b| b.lane.to_string()).collect();
    assert!(lanes.is_empty(), "nothing is due, but {lanes:?} were handed out");
}

pub const SUCCEEDED: Verdict = Verdict::Succeeded;
pub const FAILED: Verdict = Verdict::Failed;
pub const RETRY: Verdict = Verdict::Retry { after: None };
pub const RELEASE: Verdict = Verdict::Release;
pub const INTERRUPTED: Verdict = Verdict::Interrupted;
pub const SUPERSEDED: Verdict = Verdict::Superseded;

/// Settles, whatever the answer.
pub async fn try_settle(store: &dyn Store, batch: &Batch, verdict: Verdict) -> StoreResult<Settled> {
    store.settle(settle_request(batch, verdict)).await
}

/// Settles by the holder; it must be done and not be a repetition.
pub async fn settle(store: &dyn Store, batch: &Batch, verdict: Verdict) -> Settled {
    settle_after(store, batch, verdict, Duration::ZERO).await
}

/// Settles with a delay before the next attempt.
pub async fn settle_after(store: &dyn Store, batch: &Batch, verdict: Verdict, delay: Duration) -> Settled {
    let request = SettleRequest { delay, ..settle_request(batch, verdict) };
    let settled = store.settle(request).await.expect("the holder may settle");
    assert!(!settled.repeated, "this is the first settle of token {}", batch.token);
    settled
}

/// Extends by the holder.
pub async fn extend(store: &dyn Store, batch: &Batch, lease: Duration) -> Extended {
    store.extend(extend_request(batch, lease)).await.expect("the holder may extend")
}

/// Asks at the gate, without a condition on the head.
pub async fn hold(store: &dyn Store, batch: &Batch) -> HoldAnswer {
    store.hold(hold_request(batch, None)).await.expect("the holder may ask").answer
}

/// Asks at the gate whether anything arrived since the claim.
pub async fn hold_at_head(store: &dyn Store, batch: &Batch) -> HoldAnswer {
    store.hold(hold_request(batch, Some(batch.head_seq))).await.expect("the holder may ask").answer
}

/// A step by the holder.
pub async fn step(store: &dyn Store, batch: &Batch, name: &str, action: StepAction) -> StepAnswer {
    store.step(step_request(batch, name, action)).await.expect("the holder may take steps")
}

/// Makes or replaces a document.
pub async fn try_put_document(
    store: &dyn Store,
    shelf: Shelf,
    name: &str,
    body: serde_json::Value,
    ttl: Option<Duration>,
) -> StoreResult<ShelfAnswer> {
    let action = ShelfAction::Put { name: name.to_owned(), body, ttl, only_new: false };
    store.shelf(ShelfRequest { shelf, action }).await
}

pub async fn put_document(
    store: &dyn Store,
    shelf: Shelf,
    name: &str,
    body: serde_json::Value,
    ttl: Option<Duration>,
) {
    let answer = try_put_document(store, shelf, name, body, ttl).await;
    assert_eq!(answer, Ok(ShelfAnswer::Put));
}

/// Says whether it was there.
pub async fn remove_document(store: &dyn Store, shelf: Shelf, name: &str) -> bool {
    let action = ShelfAction::Remove { name: name.to_owned() };
    match store.shelf(ShelfRequest { shelf, action }).await {
        Ok(ShelfAnswer::Removed(removed)) => removed,
        other => panic!("not removed: {other:?}"),
    }
}

pub async fn documents(store: &dyn Store, shelf: Shelf) -> Vec<Document> {
    match store.shelf(ShelfRequest { shelf, action: ShelfAction::List }).await {
        Ok(ShelfAnswer::Documents(documents)) => documents,
        other => panic!("not documents: {other:?}"),
    }
}

/// Takes back expired leases.
pub async fn sweep(store: &dyn Store) -> Swept {
    let mut all = Swept::default();
    loop {
        let step =
            store.sweep(SweepRequest { reclaim: true, retention: None }).await.expect("the sweep is done");
        all.reclaimed.extend(step.reclaimed);
        if !step.more {
            break;
        }
    }
    all.reclaimed.sort_by(|a, b| a.lane.cmp(&b.lane));
    all
}

/// Removes what ended longer ago than `retention`, step by step until nothing is left to remove.
pub async fn forget(store: &dyn Store, retention: Duration) -> Swept {
    let mut all = Swept::default();
    loop {
        let request = SweepRequest { reclaim: false, retention: Some(retention) };
        let step = store.sweep(request).await.expect("the sweep is done");
        all.removed_runs += step.removed_runs;
        all.removed_events += step.removed_events;
        all.removed_audit += step.removed_audit;
        if !step.more {
            return all;
        }
    }
}

/// An operator named ada does something.
pub async fn control(store: &dyn Store, action: ControlAction) -> Controlled {
    store.control(Control { actor: "ada".into(), action }).await.expect("the operator's request is done")
}

/// An operator named ada tries something.
pub async fn try_control(store: &dyn Store, action: ControlAction) -> StoreResult<Controlled> {
    store.control(Control { actor: "ada".into(), action }).await
}

/// Cancels whatever the lane is at.
pub async fn cancel(store: &dyn Store, lane: &LaneKey) -> Controlled {
    control(store, ControlAction::Cancel { lane: lane.clone(), run: None }).await
}

/// All events of a run, to the head of their lane or as new, with their steps.
pub fn redrive_request(run: RunId, to: RedriveTo) -> Redrive {
    Redrive { run, events: Vec::new(), edits: Vec::new(), to, fresh: false, policy: no_window() }
}

/// Puts all events of a run back to the head of their lane.
pub async fn redrive(store: &dyn Store, run: RunId) -> Controlled {
    control(store, ControlAction::Redrive(redrive_request(run, RedriveTo::Head))).await
}

/// Puts all events of a run back as new.
pub async fn redrive_as_new(store: &dyn Store, run: RunId) -> Controlled {
    control(store, ControlAction::Redrive(redrive_request(run, RedriveTo::New))).await
}

/// What is to be discarded of a queue, for all tenants and keys.
pub fn purge_request(queue_name: &str, what: PurgeWhat) -> Purge {
    Purge { queue: queue(queue_name), tenant: None, key: None, what, dry_run: false }
}

/// Discards from a queue.
pub async fn purge(store: &dyn Store, queue_name: &str, what: PurgeWhat) -> Controlled {
    control(store, ControlAction::Purge(purge_request(queue_name, what))).await
}

pub async fn erase_lane(store: &dyn Store, lane: &LaneKey) -> Controlled {
    control(store, ControlAction::EraseLane(lane.clone())).await
}

pub async fn erase_event(store: &dyn Store, lane: &LaneKey, event: &str) -> Controlled {
    control(store, ControlAction::EraseEvent { lane: lane.clone(), id: id(event) }).await
}

/// Changes the payload of a buffered event, whatever the answer.
pub async fn try_edit(
    store: &dyn Store,
    lane: &LaneKey,
    event: &str,
    payload: serde_json::Value,
) -> StoreResult<Controlled> {
    let payload = Payload::of(&payload);
    try_control(store, ControlAction::EditEvent { lane: lane.clone(), id: id(event), payload }).await
}

/// Takes a buffered event out of its lane, whatever the answer.
pub async fn try_delete(store: &dyn Store, lane: &LaneKey, event: &str) -> StoreResult<Controlled> {
    try_control(store, ControlAction::DeleteEvent { lane: lane.clone(), id: id(event) }).await
}

/// A schedule of no tenant, in UTC, without a window.
pub fn schedule(name: &str, cron: &str, lane: &LaneKey) -> Schedule {
    Schedule {
        tenant: lane.tenant.clone(),
        name: queue(name),
        cron: cron.parse::<Cron>().expect("test schedules are good cron expressions"),
        zone: Zone::utc(),
        queue: lane.queue.clone(),
        key: lane.key.clone(),
        payload: Payload::of(&serde_json::json!({ "schedule": name })),
        policy: no_window(),
    }
}

/// A queue of all tenants.
pub fn whole(queue_name: &str) -> QueueScope {
    QueueScope { queue: queue(queue_name), tenant: None }
}

/// A queue of one tenant.
pub fn scoped(queue_name: &str, tenant_name: &str) -> QueueScope {
    QueueScope { queue: queue(queue_name), tenant: Some(tenant(tenant_name)) }
}

pub fn source_name(name: &str) -> SourceName {
    SourceName::new(name).expect("test sources have good names")
}

/// So many requests a minute, so many at once; the breaker opens after two faults in a row, for 100 s.
pub fn rate(per_minute: u32, burst: u32) -> SourceRules {
    SourceRules { per_minute: Some(per_minute), burst, ..breaker(2) }
}

/// No limit; the breaker opens after so many faults in a row, for 100 s.
pub fn breaker(failures: u32) -> SourceRules {
    SourceRules { failures, cooldown: secs(100), ..SourceRules::default() }
}

/// Declares a source.
pub async fn declare(store: &dyn Store, name: &str, rules: SourceRules) -> Controlled {
    control(store, ControlAction::PutSource { name: source_name(name), rules }).await
}

/// A source of those who have no tenant, or a shared one.
pub fn source_scope(name: &str) -> SourceScope {
    SourceScope { tenant: Tenant::none(), name: source_name(name) }
}

/// A fault without a wish.
pub fn fault() -> SourceReport {
    SourceReport::Fault(SourceFault::new(FaultKind::ServerError))
}

/// Settles and says something of the source.
pub async fn settle_saying(
    store: &dyn Store,
    batch: &Batch,
    verdict: Verdict,
    source: SourceReport,
) -> Settled {
    let request = SettleRequest { source, ..settle_request(batch, verdict) };
    store.settle(request).await.expect("the holder may settle")
}

pub fn source_request(batch: &Batch, action: SourceAction) -> SourceRequest {
    SourceRequest { run_id: batch.run_id, token: batch.token, source: None, action }
}

/// The same of another source than the run's own.
pub fn other_source_request(batch: &Batch, name: &str, action: SourceAction) -> SourceRequest {
    SourceRequest { source: Some(source_name(name)), ..source_request(batch, action) }
}

/// Asks something of the run's source, by the holder.
pub async fn ask(store: &dyn Store, batch: &Batch, action: SourceAction) -> SourceAnswer {
    store.source(source_request(batch, action)).await.expect("the holder may ask")
}

/// Asks something of another source, by the holder of a run.
pub async fn ask_other(store: &dyn Store, batch: &Batch, name: &str, action: SourceAction) -> SourceAnswer {
    store.source(other_source_request(batch, name, action)).await.expect("the holder may ask")
}

/// The answer is an error of this kind.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(answer: StoreResult<T>, kind: ErrorKind) -> StoreError {
    match answer {
        Err(error) => {
            assert_eq!(error.kind, kind, "{error}");
            assert!(!error.detail.is_empty(), "an error says what happened");
            error
        }
        Ok(done) => panic!("expected {kind:?}, but it was done: {done:?}"),
    }
}

/// The ids of a batch, in the order of delivery.
pub fn ids(batch: &Batch) -> Vec<&str> {
    batch.events.iter().map(|e| e.id.as_str()).collect()
}

/// The sequence numbers of a batch, in the order of delivery.
pub fn seqs(batch: &Batch) -> Vec<u64> {
    batch.events.iter().map(|e| e.seq).collect()
}

/// The keys of batches, sorted.
pub fn keys(batches: &[Batch]) -> Vec<&str> {
    let mut keys: Vec<_> = batches.iter().map(|b| b.lane.key.as_str()).collect();
    keys.sort_unstable();
    keys
}
