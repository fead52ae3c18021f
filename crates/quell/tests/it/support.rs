//! A store with a hand on its answers, and workers under paused time.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up may panic")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use quell::clock::{Chance, SteppedTime, Time};
use quell::quell_core::clock::{Clock, Timestamp};
use quell::quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell::quell_core::event::{Key, LaneKey, QueueName};
use quell::quell_core::inspect::{Inspect, Inspected, LaneDetail, RunDetail};
use quell::quell_core::memory::MemoryStore;
use quell::quell_core::shelf::{ShelfAnswer, ShelfRequest};
use quell::quell_core::store::{
    AppendRequest, Appended, ClaimRequest, Claimed, Control, Controlled, Description, ExtendRequest,
    Extended, Held, HoldRequest, Receipt, SettleRequest, Settled, SourceAnswer, SourceRequest, StepAnswer,
    StepRequest, Store, SweepRequest, Swept, Wakeups,
};
use quell::{Engine, Quell, Queue, Shutdown, Worker, WorkerOptions, WorkerReport};
use quell_store_sqlite::SqliteStore;
use tokio::task::JoinHandle;

/// What a store call does instead of answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Refused before anything was done.
    Unavailable,
    /// Done, but the answer is lost.
    DoneUnknown,
    /// Not done, and nobody knows.
    LostUnknown,
}

/// The memory store, with every call counted and some of them failing.
pub(crate) struct TestStore {
    inner: MemoryStore,
    clock: Arc<StoreClock>,
    calls: Mutex<BTreeMap<&'static str, u64>>,
    faults: Mutex<BTreeMap<&'static str, Vec<Fault>>>,
    /// Calls of these verbs fail until they are taken off again.
    down: Mutex<Vec<&'static str>>,
}

/// The runtime's clock, which a test may set ahead for the store alone.
struct StoreClock {
    base: SteppedTime,
    ahead_ms: AtomicI64,
}

impl Clock for StoreClock {
    fn now(&self) -> Timestamp {
        let ahead = Duration::from_millis(self.ahead_ms.load(Ordering::SeqCst).unsigned_abs());
        self.base.wall().after(ahead)
    }
}

impl TestStore {
    pub(crate) fn new() -> Arc<Self> {
        let clock = Arc::new(StoreClock { base: SteppedTime::new(), ahead_ms: AtomicI64::new(0) });
        Arc::new(TestStore {
            inner: MemoryStore::new(clock.clone()),
            clock,
            calls: Mutex::default(),
            faults: Mutex::default(),
            down: Mutex::default(),
        })
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.lock().unwrap().values().sum()
    }

    pub(crate) fn calls_of(&self, verb: &'static str) -> u64 {
        self.calls.lock().unwrap().get(verb).copied().unwrap_or(0)
    }

    /// The next calls of a verb go wrong in this way.
    pub(crate) fn fail(&self, verb: &'static str, faults: &[Fault]) {
        self.faults.lock().unwrap().entry(verb).or_default().extend(faults);
    }

    /// A verb is away until it is set right again.
    pub(crate) fn set_down(&self, verbs: &[&'static str]) {
        *self.down.lock().unwrap() = verbs.to_vec();
    }

    /// The store's clock jumps; the workers' clocks do not.
    pub(crate) fn jump(&self, by: Duration) {
        self.clock.ahead_ms.fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }

    fn fault(&self, verb: &'static str) -> Option<Fault> {
        *self.calls.lock().unwrap().entry(verb).or_default() += 1;
        if self.down.lock().unwrap().contains(&verb) {
            return Some(Fault::Unavailable);
        }
        let mut faults = self.faults.lock().unwrap();
        let list = faults.get_mut(verb).filter(|list| !list.is_empty())?;
        Some(list.remove(0))
    }
}

macro_rules! with_faults {
    ($store:expr, $verb:literal, $call:expr) => {
        match $store.fault($verb) {
            None => $call.await,
            Some(Fault::Unavailable) => Err(StoreError::unavailable("the test says so")),
            Some(Fault::DoneUnknown) => {
                $call.await.ok();
                Err(StoreError::new(ErrorKind::Unknown, "the answer was lost"))
            }
            Some(Fault::LostUnknown) => Err(StoreError::new(ErrorKind::Unknown, "the call was lost")),
        }
    };
}

#[async_trait]
impl Store for TestStore {
    async fn append(&self, request: AppendRequest) -> StoreResult<Appended> {
        with_faults!(self, "append", self.inner.append(request))
    }
    async fn claim(&self, request: ClaimRequest) -> StoreResult<Claimed> {
        with_faults!(self, "claim", self.inner.claim(request))
    }
    async fn extend(&self, request: ExtendRequest) -> StoreResult<Extended> {
        with_faults!(self, "extend", self.inner.extend(request))
    }
    async fn hold(&self, request: HoldRequest) -> StoreResult<Held> {
        with_faults!(self, "hold", self.inner.hold(request))
    }
    async fn step(&self, request: StepRequest) -> StoreResult<StepAnswer> {
        with_faults!(self, "step", self.inner.step(request))
    }
    async fn source(&self, request: SourceRequest) -> StoreResult<SourceAnswer> {
        with_faults!(self, "source", self.inner.source(request))
    }
    async fn settle(&self, request: SettleRequest) -> StoreResult<Settled> {
        with_faults!(self, "settle", self.inner.settle(request))
    }
    async fn shelf(&self, request: ShelfRequest) -> StoreResult<ShelfAnswer> {
        with_faults!(self, "shelf", self.inner.shelf(request))
    }
    async fn sweep(&self, request: SweepRequest) -> StoreResult<Swept> {
        with_faults!(self, "sweep", self.inner.sweep(request))
    }
    async fn inspect(&self, request: Inspect) -> StoreResult<Inspected> {
        self.inner.inspect(request).await
    }
    async fn control(&self, request: Control) -> StoreResult<Controlled> {
        with_faults!(self, "control", self.inner.control(request))
    }
    fn wakeups(&self) -> Box<dyn Wakeups> {
        self.inner.wakeups()
    }
    fn description(&self) -> Description {
        self.inner.description()
    }
}

/// An engine over a store with one queue `q`, and what its worker needs.
pub(crate) async fn engine(store: &Arc<TestStore>, queue: Queue) -> (Engine, WorkerOptions) {
    engine_with(store, &[("q", queue)], 20, Duration::from_secs(10)).await
}

pub(crate) async fn engine_with(
    store: &Arc<TestStore>,
    queues: &[(&str, Queue)],
    concurrency: usize,
    grace: Duration,
) -> (Engine, WorkerOptions) {
    engine_over(store.clone(), queues, concurrency, grace).await
}

/// The same over any store.
pub(crate) async fn engine_over(
    store: Arc<dyn Store>,
    queues: &[(&str, Queue)],
    concurrency: usize,
    grace: Duration,
) -> (Engine, WorkerOptions) {
    static SEED: AtomicU64 = AtomicU64::new(1);
    let chance = Arc::new(Chance::seeded(SEED.fetch_add(1, Ordering::SeqCst)));
    let mut builder = Quell::with_store(store).concurrency(concurrency).grace(grace);
    for (name, queue) in queues {
        builder = builder.queue(name, queue.clone());
    }
    builder.clocks(Arc::new(SteppedTime::new()), chance).build().await.unwrap()
}

/// A worker in a task of its own.
pub(crate) struct Started {
    pub(crate) shutdown: Shutdown,
    pub(crate) task: JoinHandle<WorkerReport>,
}

pub(crate) fn start(engine: &Engine, options: &WorkerOptions) -> Started {
    let shutdown = Shutdown::new();
    let worker = Worker::new(engine.clone(), options.clone()).unwrap();
    Started { task: tokio::spawn(worker.run(shutdown.clone())), shutdown }
}

impl Started {
    pub(crate) async fn stop(self) -> WorkerReport {
        self.shutdown.request();
        self.task.await.unwrap()
    }
}

pub(crate) fn key(text: &str) -> LaneKey {
    LaneKey::new(QueueName::new("q").unwrap(), Key::new(text).unwrap())
}

pub(crate) async fn send(engine: &Engine, key: &str) -> Receipt {
    engine.send("q", key, serde_json::json!({ "n": 1 })).await.unwrap()
}

pub(crate) async fn run_of(engine: &Engine, receipt: &Receipt) -> RunDetail {
    engine.run(receipt.run_id.unwrap()).await.unwrap().unwrap()
}

pub(crate) async fn lane_of(engine: &Engine, text: &str) -> LaneDetail {
    engine.lane(key(text)).await.unwrap().unwrap()
}

/// Lets paused time pass.
pub(crate) async fn pass(ms: u64) {
    quell::clock::sleep(Duration::from_millis(ms)).await;
}

/// Lets time pass until something is so; fails after ten minutes of it.
pub(crate) async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    for _ in 0..600_000 {
        if so().await {
            return;
        }
        pass(1).await;
    }
    panic!("it never happened: {what}");
}

/// How many are in a place at once, and how many ever were.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    now: AtomicU64,
    most: AtomicU64,
    total: AtomicU64,
}

impl Crowd {
    pub(crate) fn enter(self: &Arc<Self>) -> Inside {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.total.fetch_add(1, Ordering::SeqCst);
        Inside(self.clone())
    }

    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    pub(crate) fn most(&self) -> u64 {
        self.most.load(Ordering::SeqCst)
    }

    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::SeqCst)
    }
}

/// Leaves when it is dropped, so a handler that is dropped is seen to be gone.
pub(crate) struct Inside(Arc<Crowd>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A SQLite file that lives as long as its test.
pub(crate) struct File {
    folder: tempfile::TempDir,
}

impl File {
    pub(crate) fn new() -> Self {
        File { folder: tempfile::tempdir().unwrap() }
    }

    /// Opened anew: like another process on the same file.
    pub(crate) fn open(&self) -> Arc<dyn Store> {
        SqliteStore::open(&self.path("q.db")).unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }
}

/// The payloads of a run, for tests that look at what was handed over.
pub(crate) fn numbers(run: &quell::Run) -> Vec<u64> {
    run.events().iter().map(|event| event.payload.parse().unwrap()).collect()
}

/// What handlers leave behind for their test.
#[derive(Debug)]
pub(crate) struct Notes<T>(Mutex<Vec<T>>);

impl<T: Clone> Notes<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Notes(Mutex::new(Vec::new())))
    }

    pub(crate) fn add(&self, note: T) {
        self.0.lock().unwrap().push(note);
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}
