//! A memory store with one source, whose calls are written down, and clients that may speak to this machine.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use quell_core::batch::{Batch, WorkerId};
use quell_core::clock::{ManualClock, Timestamp};
use quell_core::error::{StoreError, StoreResult};
use quell_core::event::{
    AppendPolicy, EventId, Key, LaneKey, NewEvent, NewEventId, Payload, QueueName, SourceName,
};
use quell_core::inspect::{Inspect, Inspected, SourceFilter, SourceRow};
use quell_core::memory::MemoryStore;
use quell_core::outcome::Outcome;
use quell_core::shelf::{ShelfAnswer, ShelfRequest};
use quell_core::source::{SourceRules, SourceVerdict};
use quell_core::store::{
    AppendRequest, Appended, ClaimQueues, ClaimRequest, Claimed, Control, ControlAction, Controlled,
    Description, ExtendRequest, Extended, Held, HoldRequest, RunPolicy, SettleRequest, Settled, SourceAction,
    SourceAnswer, SourceRequest, StepAnswer, StepRequest, Store, SweepRequest, Swept, Wakeups,
};
use quell_core::window::Window;
use quell_fetch::{Allow, Fetcher, Guard, Http, HttpSettings};

/// A client that may speak to this machine.
pub(crate) fn loopback() -> Http {
    with_settings(&HttpSettings::default())
}

/// One that waits only so long.
pub(crate) fn short(timeout: Duration) -> Http {
    with_settings(&HttpSettings { timeout, ..HttpSettings::default() })
}

fn with_settings(settings: &HttpSettings) -> Http {
    let allow = Allow::parse(["127.0.0.0/8"]).expect("a good range");
    Http::new(Guard::new(allow), settings).expect("good settings")
}

/// The log of everything that happens, in order: what the store is asked, and what the server hears.
pub(crate) type Log = Arc<Mutex<Vec<&'static str>>>;

/// A memory store whose clock stands still until it is moved.
pub(crate) struct World {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: Arc<Watched>,
    pub(crate) log: Log,
    made: AtomicU64,
}

impl World {
    /// With the source `shop` under these rules.
    pub(crate) async fn new(rules: SourceRules) -> World {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_700_000_000_000)));
        let log = Log::default();
        let store = Watched {
            inner: MemoryStore::new(clock.clone()),
            log: log.clone(),
            mute: AtomicBool::new(false),
        };
        let world = World { clock, store: Arc::new(store), log, made: AtomicU64::new(0) };
        world.declare(shop(), rules).await;
        world
    }

    pub(crate) async fn declare(&self, name: SourceName, rules: SourceRules) {
        let action = ControlAction::PutSource { name, rules };
        let control = Control { actor: "test".into(), action };
        self.store.control(control).await.expect("the rules are good");
    }

    /// A run of its own lane that asks the shop, claimed; none while the source lets nobody go.
    pub(crate) async fn try_run(&self) -> Option<Batch> {
        self.append(Some(shop())).await;
        self.claim().await
    }

    pub(crate) async fn run(&self) -> Batch {
        self.try_run().await.expect("the source lets it go")
    }

    /// A run that asks nobody.
    pub(crate) async fn free_run(&self) -> Batch {
        self.append(None).await;
        self.claim().await.expect("nothing holds it")
    }

    pub(crate) async fn claim(&self) -> Option<Batch> {
        let worker = WorkerId { name: "w".into(), pid: 1, start: "a".into() };
        let request = ClaimRequest {
            worker: Arc::new(worker),
            queues: ClaimQueues::Any(Arc::new(RunPolicy::default())),
            tenant: None,
            max: 1,
            reclaim: true,
            claim_id: None,
        };
        self.store.claim(request).await.expect("memory is there").batches.pop()
    }

    pub(crate) fn fetcher(&self, batch: &Batch) -> Fetcher {
        Fetcher::new(loopback(), self.store.clone(), batch)
    }

    pub(crate) async fn settle(&self, batch: &Batch, outcome: Outcome) -> Settled {
        let request = SettleRequest {
            error: outcome.error,
            source: outcome.source,
            ..SettleRequest::new(batch.run_id, batch.token, outcome.verdict)
        };
        self.store.settle(request).await.expect("the run is held")
    }

    pub(crate) async fn source(&self) -> SourceRow {
        self.source_named(shop()).await
    }

    pub(crate) async fn source_named(&self, name: SourceName) -> SourceRow {
        let filter = SourceFilter { name: Some(name), limit: 1, ..SourceFilter::default() };
        match self.store.inspect(Inspect::Sources(filter)).await {
            Ok(Inspected::Sources(mut page)) => page.items.pop().expect("it is declared"),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        use quell_core::clock::Clock;
        self.clock.now()
    }

    /// What happened since the last look.
    pub(crate) fn happened(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.log.lock().expect("no test panics with it"))
    }

    async fn append(&self, source: Option<SourceName>) {
        let n = self.made.fetch_add(1, Ordering::SeqCst);
        let lane = LaneKey::new(
            QueueName::new("prices").expect("a good name"),
            Key::new(format!("k{n}")).expect("a good key"),
        );
        let id = NewEventId::Made(EventId::new(format!("evt_{n}")).expect("a good id"));
        let policy = Arc::new(AppendPolicy { window: Window::none(), ..AppendPolicy::default() });
        let mut event = NewEvent::new(lane, id, Payload::of(&serde_json::json!({})), policy);
        event.source = source;
        let request = AppendRequest { events: vec![event], repeat: false };
        self.store.append(request).await.expect("memory is there");
    }
}

fn shop() -> SourceName {
    SourceName::new("shop").expect("a good name")
}

/// A memory store that writes down what it is asked about sources.
pub(crate) struct Watched {
    inner: MemoryStore,
    log: Log,
    /// While set, the store cannot be told anything.
    pub(crate) mute: AtomicBool,
}

#[async_trait]
impl Store for Watched {
    async fn append(&self, request: AppendRequest) -> StoreResult<Appended> {
        self.inner.append(request).await
    }

    async fn claim(&self, request: ClaimRequest) -> StoreResult<Claimed> {
        self.inner.claim(request).await
    }

    async fn extend(&self, request: ExtendRequest) -> StoreResult<Extended> {
        self.inner.extend(request).await
    }

    async fn hold(&self, request: HoldRequest) -> StoreResult<Held> {
        self.inner.hold(request).await
    }

    async fn step(&self, request: StepRequest) -> StoreResult<StepAnswer> {
        self.inner.step(request).await
    }

    async fn source(&self, request: SourceRequest) -> StoreResult<SourceAnswer> {
        let (name, tells) = match &request.action {
            SourceAction::Take => ("take", false),
            SourceAction::Report(SourceVerdict::Fine) => ("fine", true),
            SourceAction::Report(SourceVerdict::Fault(_)) => ("fault", true),
            SourceAction::Recall { .. } => ("recall", false),
            SourceAction::Keep { .. } => ("keep", true),
            SourceAction::Forget { .. } => ("forget", true),
        };
        self.log.lock().expect("no test panics with it").push(name);
        if tells && self.mute.load(Ordering::SeqCst) {
            return Err(StoreError::unavailable("away"));
        }
        self.inner.source(request).await
    }

    async fn settle(&self, request: SettleRequest) -> StoreResult<Settled> {
        self.inner.settle(request).await
    }

    async fn shelf(&self, request: ShelfRequest) -> StoreResult<ShelfAnswer> {
        self.inner.shelf(request).await
    }

    async fn sweep(&self, request: SweepRequest) -> StoreResult<Swept> {
        self.inner.sweep(request).await
    }

    async fn inspect(&self, request: Inspect) -> StoreResult<Inspected> {
        self.inner.inspect(request).await
    }

    async fn control(&self, request: Control) -> StoreResult<Controlled> {
        self.inner.control(request).await
    }

    fn wakeups(&self) -> Box<dyn Wakeups> {
        self.inner.wakeups()
    }

    fn description(&self) -> Description {
        self.inner.description()
    }
}
