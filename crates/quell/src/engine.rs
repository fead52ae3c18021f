//! The engine: append and inspect, over one store and one set of settings. The operator's hand is `operate.rs`, waiting
//! for an event's end is `wait.rs`.
//!
//! Second stop on the path of an event: names and payloads are checked here, the queue's policy is stamped on, an id is
//! made before the store is first asked. The caller's answer comes after the store's commit and never before.
//!
//! An answer *unknown* (a connection lost at the commit) is resolved here by repeating the same request with the same
//! ids, a bounded number of times; *unavailable* is returned, because only the caller knows how long it may wait.
//! Running handlers is `worker.rs`.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use quell_core::audit::AuditRecord;
use quell_core::batch::{RunId, WorkerId};
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::event::{AppendPolicy, EventId, Invalid, LaneKey, NewEvent, NewEventId, Payload, QueueName};
use quell_core::inspect::{
    AuditFilter, EventPlace, Health, Inspect, Inspected, LaneDetail, LaneFilter, LaneRow, Page, QueueLeases,
    QueueStats, RunDetail, RunFilter, RunRow, Verified,
};
use quell_core::store::{AppendRequest, Receipt, Store, SweepRequest, Swept};

use tokio::sync::{OnceCell, watch};

use crate::clock::{self, Chance, Ids, RealTime, Time};
use crate::config::{QueueSettings, Settings};
use crate::handlers::HandlerError;
use crate::incoming::{Incoming, Prepared};
use crate::observe;
use crate::open::{self, OpenError};
use crate::outbound::Outbound;
use crate::spans;

/// The pauses before an unknown answer is asked about again; after the last the caller is told.
pub(crate) const REPEAT_PAUSES: [Duration; 4] = [
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(2),
];

/// Append and inspect. Cheap to clone; all clones are the same engine.
///
/// ```
/// use quell::config::{Flags, Settings, SettingsInput};
/// use quell::quell_core::memory::MemoryStore;
/// use quell::{Engine, clock::SteppedTime};
/// use serde_json::json;
/// use std::{collections::BTreeMap, sync::Arc};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let input = SettingsInput { config: None, env: &BTreeMap::new(), flags: Flags::default() };
/// let settings = Settings::resolve(input)?;
/// let store = Arc::new(MemoryStore::new(Arc::new(SteppedTime::new()))); // `Engine::open` takes the one of the settings
/// let engine = Engine::with_store(store, settings);
///
/// let first = engine.send("chat", "ada", json!({ "text": "hi" })).await?;
/// let second = engine.prepare("chat", "ada", json!({ "text": "later" })).id("msg-2").send().await?;
/// assert_eq!(first.run_id, second.run_id); // one burst, one run
/// let again = engine.prepare("chat", "ada", json!({ "text": "later" })).id("msg-2").send().await?;
/// assert!(again.duplicate);
///
/// let page = engine.lanes(Default::default()).await?;
/// assert_eq!(page.items[0].buffered, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    time: Arc<dyn Time>,
    chance: Arc<Chance>,
    ids: Ids,
    in_force: watch::Sender<Arc<InForce>>,
}

/// The settings, and what is made of them.
struct InForce {
    settings: Arc<Settings>,
    /// The client of everything that the settings have sent.
    outbound: Arc<Outbound>,
    /// Set when the sources of the configuration have been put into the store.
    declared: OnceCell<()>,
}

impl InForce {
    fn new(settings: Settings) -> Arc<Self> {
        let outbound = Arc::new(Outbound::new(settings.outbound.clone()));
        Arc::new(InForce { settings: Arc::new(settings), outbound, declared: OnceCell::new() })
    }
}

/// See [`Engine::changes`].
pub(crate) struct Changes(watch::Receiver<Arc<InForce>>);

impl Changes {
    pub(crate) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // The engine is gone, and nothing will change any more.
            std::future::pending::<()>().await;
        }
    }
}

/// Why a call was not done.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the text of each error says what its fields are")]
pub enum EngineError {
    /// There is a configuration, and it does not name this queue.
    #[error("unknown queue {queue:?}; the configuration knows {}", list_of(.known))]
    UnknownQueue { queue: QueueName, known: Vec<QueueName> },
    /// The queue is for workers elsewhere (`pull`), and one was asked for here.
    #[error("queue {queue:?} has no handler in this process: its lanes are claimed by workers elsewhere")]
    NoHandler { queue: QueueName },
    /// The queue is worked on by a handler of the configuration, and a worker elsewhere asked for it.
    #[error(
        "queue {queue:?} is handled by this server itself: with handler = \"pull\" it is left to workers elsewhere"
    )]
    NotPulled { queue: QueueName },
    /// A secret that is missing, or the like: the settings are good, and this process cannot follow them.
    #[error("queue {queue:?}: {problem}")]
    BadHandler { queue: QueueName, problem: HandlerError },
    /// A name, a key or a value is not one.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The store refused, or could not say; its kind tells which.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl EngineError {
    /// Its kind in one word.
    pub fn kind(&self) -> &'static str {
        match self {
            EngineError::UnknownQueue { .. } => "unknown-queue",
            EngineError::NoHandler { .. } => "no-handler",
            EngineError::NotPulled { .. } => "not-pulled",
            EngineError::BadHandler { .. } => "bad-handler",
            EngineError::Invalid(_) => "invalid",
            EngineError::Store(error) => error.kind.as_str(),
        }
    }
}

impl Engine {
    /// Opens the store that the settings name.
    pub async fn open(settings: Settings) -> Result<Engine, OpenError> {
        let store = open::open(&settings.store, settings.worker.start_timeout).await?;
        Ok(Engine::with_store(store, settings))
    }

    /// Over a store of the caller's.
    pub fn with_store(store: Arc<dyn Store>, settings: Settings) -> Engine {
        let (time, chance) = (Arc::new(RealTime::new()), Arc::new(Chance::from_system()));
        Engine::with_parts(store, settings, time, chance)
    }

    /// Over a store, clocks and chance of the caller's: for tests and simulations.
    pub fn with_parts(
        store: Arc<dyn Store>,
        settings: Settings,
        time: Arc<dyn Time>,
        chance: Arc<Chance>,
    ) -> Engine {
        let ids = Ids::new(time.clone(), chance.clone());
        let in_force = watch::Sender::new(InForce::new(settings));
        Engine { inner: Arc::new(Inner { store, time, chance, ids, in_force }) }
    }

    /// The store itself, for programs that keep something of their own in it.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// The settings in force. What was asked for under them goes on under them when they are changed.
    pub fn settings(&self) -> Arc<Settings> {
        self.in_force().settings.clone()
    }

    /// Puts other settings in force, for all clones at once. The store stays, whatever they say of it. A worker brings the new
    /// sources and schedules into the store; which queues it takes lanes of it is told by
    /// [`Instructions`](crate::worker::Instructions).
    pub fn change(&self, settings: Settings) {
        self.inner.in_force.send_replace(InForce::new(settings));
    }

    /// Rings at each change.
    pub(crate) fn changes(&self) -> Changes {
        Changes(self.inner.in_force.subscribe())
    }

    fn in_force(&self) -> Arc<InForce> {
        self.inner.in_force.borrow().clone()
    }

    pub(crate) fn outbound(&self) -> Arc<Outbound> {
        self.in_force().outbound.clone()
    }

    pub(crate) fn time(&self) -> &Arc<dyn Time> {
        &self.inner.time
    }

    pub(crate) fn ids(&self) -> &Ids {
        &self.inner.ids
    }

    pub(crate) fn chance(&self) -> &Arc<Chance> {
        &self.inner.chance
    }

    /// A new identity for a worker of this process.
    pub fn worker_id(&self) -> WorkerId {
        self.inner.ids.worker_id(self.settings().worker.id.clone())
    }

    /// Stores one event durably; the receipt says in which run it waits and until when.
    pub async fn send(
        &self,
        queue: &str,
        key: &str,
        payload: serde_json::Value,
    ) -> Result<Receipt, EngineError> {
        let incoming = Incoming::new(queue, key, Payload::of(&payload))?;
        let mut receipts = self.append(vec![incoming]).await?;
        Ok(receipts.pop().expect("one receipt per event"))
    }

    /// An event with wishes of its own: `engine.prepare("mail", "ada", json!({})).delay(hour).send().await?`.
    pub fn prepare(&self, queue: &str, key: &str, payload: serde_json::Value) -> Prepared<'_> {
        Prepared::new(self, Incoming::new(queue, key, Payload::of(&payload)))
    }

    /// Stores events durably and in order, all or none; one receipt per event.
    pub async fn append(&self, events: Vec<Incoming>) -> Result<Vec<Receipt>, EngineError> {
        let mut queues: BTreeMap<QueueName, Arc<QueueSettings>> = BTreeMap::new();
        let mut new = Vec::with_capacity(events.len());
        for event in events {
            let name = &event.lane.queue;
            let queue = match queues.get(name) {
                Some(queue) => queue.clone(),
                None => {
                    let queue = self.queue(name)?;
                    queues.insert(name.clone(), queue.clone());
                    queue
                }
            };
            let policy = queue.append_policy(&event.lane.tenant);
            new.push(self.with_policy(event, policy));
        }
        self.declare_for(&new).await?;
        let span = spans::appending(&mut new);
        let answer = self.append_resolved(&new).await;
        span.told(answer.as_ref().err().map(|error| error.kind.as_str()));
        let receipts = answer?;
        for (event, receipt) in new.iter().zip(&receipts) {
            observe::event_buffered(&event.lane, receipt);
        }
        Ok(receipts)
    }

    /// Whoever sends the first event that a source of its configuration governs has declared that source before.
    async fn declare_for(&self, events: &[NewEvent]) -> StoreResult<()> {
        let in_force = self.in_force();
        let sources = &in_force.settings.sources;
        let governed = |event: &NewEvent| {
            event.governed_by().is_some_and(|name| sources.iter().any(|source| source.name == *name))
        };
        if !sources.is_empty() && events.iter().any(governed) {
            in_force.declared.get_or_try_init(|| async { self.declare_sources().await.map(drop) }).await?;
        }
        Ok(())
    }

    async fn append_resolved(&self, events: &[NewEvent]) -> StoreResult<Vec<Receipt>> {
        let store = &self.inner.store;
        let append = |repeat| store.append(AppendRequest { events: events.to_vec(), repeat });
        resolved("append", append).await.map(|appended| appended.receipts)
    }

    /// An event as a store takes it: with its queue's policy, and with an id.
    pub(crate) fn resolve(&self, event: Incoming) -> Result<NewEvent, EngineError> {
        let policy = self.queue(&event.lane.queue)?.append_policy(&event.lane.tenant);
        Ok(self.with_policy(event, policy))
    }

    fn with_policy(&self, event: Incoming, policy: Arc<AppendPolicy>) -> NewEvent {
        let Incoming { lane, id, payload, headers, priority, delay, window, only_if_idle, source } = event;
        // Made before the first try, so that an unknown answer can be resolved by asking again.
        let id = id.map_or_else(|| NewEventId::Made(self.inner.ids.event_id()), NewEventId::Given);
        let delay = delay.filter(|delay| !delay.is_zero());
        let new = NewEvent::new(lane, id, payload, policy);
        NewEvent { headers, priority, delay, window, only_if_idle, source, ..new }
    }

    /// Lane in full, with the reason it waits; nothing when the key is idle and forgotten.
    pub async fn lane(&self, lane: LaneKey) -> StoreResult<Option<LaneDetail>> {
        match self.inspect(Inspect::Lane(lane)).await? {
            Inspected::Lane(found) => Ok(found.map(|l| *l)),
            other => Err(mixed_up(&other)),
        }
    }

    /// A page of the lanes that a filter lets through.
    pub async fn lanes(&self, filter: LaneFilter) -> StoreResult<Page<LaneRow>> {
        match self.inspect(Inspect::Lanes(filter)).await? {
            Inspected::Lanes(page) => Ok(page),
            other => Err(mixed_up(&other)),
        }
    }

    /// One run with its events, its steps and its history.
    pub async fn run(&self, run: RunId) -> StoreResult<Option<RunDetail>> {
        match self.inspect(Inspect::Run(run)).await? {
            Inspected::Run(found) => Ok(found.map(|r| *r)),
            other => Err(mixed_up(&other)),
        }
    }

    /// A page of runs: those alive first, then the finished ones, newest first.
    pub async fn runs(&self, filter: RunFilter) -> StoreResult<Page<RunRow>> {
        match self.inspect(Inspect::Runs(filter)).await? {
            Inspected::Runs(page) => Ok(page),
            other => Err(mixed_up(&other)),
        }
    }

    /// Where an event is now.
    pub async fn event(&self, lane: LaneKey, id: EventId) -> StoreResult<Option<EventPlace>> {
        match self.inspect(Inspect::Event(lane, id)).await? {
            Inspected::Event(found) => Ok(found),
            other => Err(mixed_up(&other)),
        }
    }

    /// A page of the audit trail, newest first.
    pub async fn audit(&self, filter: AuditFilter) -> StoreResult<Page<AuditRecord>> {
        match self.inspect(Inspect::Audit(filter)).await? {
            Inspected::Audit(page) => Ok(page),
            other => Err(mixed_up(&other)),
        }
    }

    /// Totals and lane counts per tenant and queue. Without the queue under which hands on sources are recorded: nobody can
    /// send to it.
    pub async fn stats(&self) -> StoreResult<Vec<QueueStats>> {
        match self.inspect(Inspect::Stats).await? {
            Inspected::Stats(mut stats) => {
                stats.retain(|queue| !queue.queue.is_of_sources());
                Ok(stats)
            }
            other => Err(mixed_up(&other)),
        }
    }

    /// The leases of every queue that has any.
    pub async fn leases(&self) -> StoreResult<Vec<QueueLeases>> {
        match self.inspect(Inspect::Leases).await? {
            Inspected::Leases(leases) => Ok(leases),
            other => Err(mixed_up(&other)),
        }
    }

    /// The no-loss equation checked against the rows. Reads everything.
    pub async fn verify(&self) -> StoreResult<Verified> {
        match self.inspect(Inspect::Verify).await? {
            Inspected::Verify(verified) => Ok(verified),
            other => Err(mixed_up(&other)),
        }
    }

    /// How the store is: version, durability, clock, sizes. Cheap next to [`Engine::verify`].
    pub async fn health(&self) -> StoreResult<Health> {
        match self.inspect(Inspect::Health).await? {
            Inspected::Health(health) => Ok(health),
            other => Err(mixed_up(&other)),
        }
    }

    pub(crate) async fn inspect(&self, request: Inspect) -> StoreResult<Inspected> {
        self.inner.store.inspect(request).await
    }

    /// One sweep by hand; a worker does this by itself.
    pub async fn sweep(&self, request: SweepRequest) -> StoreResult<Swept> {
        self.inner.store.sweep(request).await
    }
}

/// Makes a call of the store, and resolves an unknown answer by making it again: `call` is told whether it is made for the
/// first time. After the last pause the caller is told that nobody knows.
pub(crate) async fn resolved<T, F: Future<Output = StoreResult<T>>>(
    verb: &'static str,
    mut call: impl FnMut(bool) -> F,
) -> StoreResult<T> {
    let mut answer = call(false).await;
    for pause in REPEAT_PAUSES {
        let Err(error) = &answer else { break };
        if !error.is_unknown() {
            break;
        }
        tracing::warn!(%error, verb, "a call has an unknown answer, asking again");
        clock::sleep(pause).await;
        let again = call(true).await;
        // "Not now" says nothing about the first try: as long as nobody knows, the answer stays unknown.
        if !matches!(&again, Err(e) if e.kind == ErrorKind::Unavailable) {
            answer = again;
        }
    }
    answer
}

pub(crate) fn unknown_queue(settings: &Settings, queue: &QueueName) -> EngineError {
    EngineError::UnknownQueue { queue: queue.clone(), known: settings.queues.keys().cloned().collect() }
}

fn list_of(queues: &[QueueName]) -> String {
    if queues.is_empty() {
        return "no queues".to_owned();
    }
    queues.iter().map(QueueName::as_str).collect::<Vec<_>>().join(", ")
}

/// A store answered another question than the one asked.
pub(crate) fn mixed_up(answer: &Inspected) -> StoreError {
    let kind = std::mem::discriminant(answer);
    StoreError::new(ErrorKind::Corrupt, format!("the store mixed up its answers: got {kind:?}"))
}
