//! Unit tests of handlers and settings under a clock that the test moves: hours pass in milliseconds, nothing sleeps, and
//! the same test gives the same batches every time.
//!
//! A [`Rehearsal`] is the program itself: the shipped engine and worker with their heartbeats, retries and sweeps, over the
//! memory store, on one thread. Only the clock and the store are others. The queues are made by the same function that makes
//! them for `main`, so a test says what production will do.
//!
//! ```
//! use quell::testing::Rehearsal;
//! use quell::{Outcome, QuellBuilder, Queue, Run, from_fn};
//! use quell::quell_core::window::FiredBy;
//! use serde_json::json;
//! use std::time::Duration;
//!
//! /// What `main` calls, too: `queues(Quell::open("sqlite:quell.db")).start().await`.
//! fn queues(program: QuellBuilder) -> QuellBuilder {
//!     let answer = from_fn(|run: Run| async move {
//!         match run.attempt() {
//!             1 => Outcome::retry("the model is busy"),
//!             _ => Outcome::succeeded(),
//!         }
//!     });
//!     program.queue("chat", Queue::quiet(Duration::from_secs(2)).handler(answer))
//! }
//!
//! let mut rehearsal = Rehearsal::start(queues)?;
//! rehearsal.send("chat", "ada", json!({ "text": "hi" }))?;
//! rehearsal.advance(Duration::from_secs(1));
//! rehearsal.send("chat", "ada", json!({ "text": "are you there?" }))?;
//! rehearsal.advance(Duration::from_millis(1_999));
//! assert!(rehearsal.batches().is_empty()); // the second message has begun the two seconds anew
//!
//! rehearsal.advance(Duration::from_millis(1));
//! let first = &rehearsal.batches()[0];
//! assert_eq!((first.batch.events.len(), first.batch.fired_by), (2, FiredBy::Quiet));
//! assert!(first.was_retried());
//!
//! assert!(rehearsal.until_idle(Duration::from_secs(60)));
//! assert!(rehearsal.batches()[1].has_succeeded());
//! assert!(rehearsal.dead().is_empty());
//! # Ok::<(), quell::ProgramError>(())
//! ```
//!
//! # What is the same and what is not
//!
//! - Handlers are futures on the thread of the test. One that waits does so with `quell::clock::sleep` or `tokio::time`, and takes
//!   virtual time; one that blocks its thread stops the test. Work given to `spawn_blocking` is waited for while time moves.
//! - The order of everything is fixed by the calls of the test and by the seed of [`Staging`], with one exception that is not ours:
//!   `tokio::select!` without `biased` draws which branch it looks at first.
//! - Nothing is durable, and the network between a worker and its store never fails. That a store keeps its promises when it
//!   does is tested by Quell itself.
//!
//! A test is a plain `#[test]`: a rehearsal has a runtime of its own, and cannot be moved by one from inside another.

mod happened;
mod watched;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use quell_core::clock::Timestamp;
use quell_core::event::Payload;
use quell_core::inspect::{RunFilter, RunRow};
use quell_core::lifecycle::RunState;
use quell_core::memory::MemoryStore;
use quell_core::store::Receipt;
use quell_core::totals::Totals;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

pub use happened::{BatchSeen, EndSeen, Happened, What, WorkerNews};
use watched::Watched;

use crate::clock::{self, Chance, SteppedTime};
use crate::config::Settings;
use crate::engine::{Engine, EngineError};
use crate::incoming::Incoming;
use crate::program::{ProgramError, Quell, QuellBuilder};
use crate::worker::{Shutdown, Worker, WorkerOptions, WorkerReport};

/// How often everything that is ready gets a turn before a call returns. One turn carries a task as far as it comes without
/// waiting; the longest chain of the engine itself (wake-up, claim, handler, settle, next claim) takes about ten.
const TURNS: usize = 256;

/// How a rehearsal is set up.
#[derive(Debug, Clone)]
pub struct Staging {
    /// Where chance comes from: ids, and the jitter of backoffs.
    pub seed: u64,
    /// The wall clock at the beginning, for schedules.
    pub begins: Timestamp,
    /// Workers that are there from the beginning.
    pub workers: usize,
}

impl Default for Staging {
    /// Seed 0, one worker, 2023-11-14T22:13:20Z.
    fn default() -> Self {
        Staging { seed: 0, begins: SteppedTime::START, workers: 1 }
    }
}

/// A program under a clock that only [`Rehearsal::advance`] and [`Rehearsal::until_idle`] move.
pub struct Rehearsal {
    engine: Engine,
    options: WorkerOptions,
    parts: Parts,
    workers: BTreeMap<usize, Hired>,
    hired: usize,
    /// The last to go: tasks of the others end with it.
    runtime: Runtime,
}

struct Parts {
    store: Arc<Watched>,
    time: Arc<SteppedTime>,
    chance: Arc<Chance>,
}

struct Hired {
    shutdown: Shutdown,
    task: JoinHandle<WorkerReport>,
}

impl Rehearsal {
    /// With the queues and sources that the function gives a program. Store and clocks are the rehearsal's, whatever it says of
    /// them.
    pub fn start(program: impl FnOnce(QuellBuilder) -> QuellBuilder) -> Result<Rehearsal, ProgramError> {
        Rehearsal::staged(&Staging::default(), program)
    }

    /// The same with a seed, a beginning or several workers.
    pub fn staged(
        staging: &Staging,
        program: impl FnOnce(QuellBuilder) -> QuellBuilder,
    ) -> Result<Rehearsal, ProgramError> {
        let (runtime, parts) = stage(staging);
        let program = program(Quell::with_store(parts.store.clone()));
        let program = program.clocks(parts.time.clone(), parts.chance.clone());
        let (engine, options) = runtime.block_on(program.build())?;
        Ok(Rehearsal::begin(runtime, parts, engine, options, staging.workers)?)
    }

    /// With the settings of a configuration file, for programs that have one. Handlers that the file names are the real ones, unless
    /// the options bring others; what they do takes real time.
    pub fn of_settings(
        staging: &Staging,
        settings: Settings,
        options: WorkerOptions,
    ) -> Result<Rehearsal, EngineError> {
        let (runtime, parts) = stage(staging);
        let engine =
            Engine::with_parts(parts.store.clone(), settings, parts.time.clone(), parts.chance.clone());
        Rehearsal::begin(runtime, parts, engine, options, staging.workers)
    }

    fn begin(
        runtime: Runtime,
        parts: Parts,
        engine: Engine,
        options: WorkerOptions,
        workers: usize,
    ) -> Result<Rehearsal, EngineError> {
        let mut rehearsal = Rehearsal { engine, options, parts, workers: BTreeMap::new(), hired: 0, runtime };
        for _ in 0..workers {
            rehearsal.start_worker()?;
        }
        Ok(rehearsal)
    }

    /// Stores one event, and lets everything happen that happens at this moment.
    pub fn send(
        &mut self,
        queue: &str,
        key: &str,
        payload: serde_json::Value,
    ) -> Result<Receipt, EngineError> {
        let incoming = Incoming::new(queue, key, Payload::of(&payload))?;
        let mut receipts = self.append(vec![incoming])?;
        Ok(receipts.pop().expect("one receipt per event"))
    }

    /// Stores events with wishes of their own, all or none.
    pub fn append(&mut self, events: Vec<Incoming>) -> Result<Vec<Receipt>, EngineError> {
        let engine = self.engine.clone();
        self.perform(async move { engine.append(events).await })
    }

    /// For everything beyond sending: looking, steering. Its calls are made by [`Rehearsal::perform`].
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Makes a call of the engine, or anything else that is a future, and lets everything happen that follows from it at this
    /// moment. A future that waits for time moves the clock.
    pub fn perform<T>(&mut self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(async {
            let answer = future.await;
            turns().await;
            answer
        })
    }

    /// Moves the clock on. Everything that is due on the way happens in its order and at its moment.
    pub fn advance(&mut self, by: Duration) {
        self.perform(clock::sleep(by));
    }

    /// Moves the clock on until no event waits, runs or is delayed. False when there still is one after `limit`: behind a pause, for
    /// example, or because no worker is left.
    pub fn until_idle(&mut self, limit: Duration) -> bool {
        let (engine, store) = (self.engine.clone(), self.parts.store.clone());
        let idle = async move {
            loop {
                let mut news = store.news();
                let left = |t: &Totals| t.delayed + t.buffered + t.in_flight;
                match engine.stats().await {
                    Ok(stats) if stats.iter().all(|queue| left(&queue.totals) == 0) => return,
                    _ => {}
                }
                // The store lives as long as this future.
                let _ = news.changed().await;
            }
        };
        self.perform(async move { tokio::time::timeout(limit, idle).await.is_ok() })
    }

    /// How much time has passed since the beginning.
    pub fn now(&self) -> Duration {
        let _inside = self.runtime.enter();
        self.parts.store.now()
    }

    /// What has happened, in order.
    pub fn happened(&self) -> Vec<Happened> {
        self.parts.store.happened()
    }

    /// Every batch that was handed to a handler, in order, with what came of it.
    pub fn batches(&self) -> Vec<BatchSeen> {
        happened::batches(&self.happened())
    }

    /// The dead letter: runs that have failed, newest first, up to a thousand.
    pub fn dead(&mut self) -> Vec<RunRow> {
        let filter = RunFilter { state: Some(RunState::Failed), limit: LISTED_MAX, ..RunFilter::default() };
        self.runs(filter)
    }

    /// Runs that a filter lets through.
    pub fn runs(&mut self, filter: RunFilter) -> Vec<RunRow> {
        let engine = self.engine.clone();
        self.perform(async move { engine.runs(filter).await }).expect("the memory store answers").items
    }

    /// Whether every event that was accepted is accounted for, by the counters and by the rows.
    pub fn nothing_is_lost(&mut self) -> bool {
        let engine = self.engine.clone();
        self.perform(async move { engine.verify().await }).is_ok_and(|verified| verified.problems.is_empty())
    }

    /// One more worker. The answer is its number; its name is `worker-1` and so on.
    pub fn start_worker(&mut self) -> Result<usize, EngineError> {
        let number = self.hired + 1;
        let mut settings = Settings::clone(&self.engine.settings());
        settings.worker.id = Some(name_of(number));
        let Parts { store, time, chance } = &self.parts;
        let engine = Engine::with_parts(store.clone(), settings, time.clone(), chance.clone());
        let (shutdown, options) = (Shutdown::new(), self.options.clone());
        let task = {
            let _inside = self.runtime.enter();
            let worker = Worker::new(engine, options)?;
            self.runtime.spawn(worker.run(shutdown.clone()))
        };
        self.hired = number;
        self.workers.insert(number, Hired { shutdown, task });
        self.tell(number, WorkerNews::Started);
        self.perform(async {});
        Ok(number)
    }

    /// Ends a worker without a word, as a power cut would: what it holds is taken back when its leases run out. False when there is
    /// no such worker.
    pub fn crash_worker(&mut self, number: usize) -> bool {
        let Some(hired) = self.workers.remove(&number) else { return false };
        hired.task.abort();
        self.tell(number, WorkerNews::Crashed);
        self.perform(async {});
        true
    }

    /// Lets a worker finish what it does, within the grace of its settings, which moves the clock. Nothing when there is no such
    /// worker.
    pub fn stop_worker(&mut self, number: usize) -> Option<WorkerReport> {
        let hired = self.workers.remove(&number)?;
        hired.shutdown.request();
        let report = self.perform(hired.task).unwrap_or_default();
        self.tell(number, WorkerNews::Stopped);
        Some(report)
    }

    /// The numbers of the workers that are there.
    pub fn workers(&self) -> Vec<usize> {
        self.workers.keys().copied().collect()
    }

    fn tell(&self, worker: usize, news: WorkerNews) {
        let _inside = self.runtime.enter();
        self.parts.store.tell(None, What::Worker { worker: name_of(worker), news });
    }
}

/// Rows of a listing that is read as a whole.
const LISTED_MAX: usize = 1000;

fn name_of(worker: usize) -> String {
    format!("worker-{worker}")
}

/// One thread whose clock stands still until it is moved, with what belongs to it.
fn stage(staging: &Staging) -> (Runtime, Parts) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.expect("this process may open one more file, for its runtime");
    let time = {
        let _inside = runtime.enter();
        Arc::new(SteppedTime::starting_at(staging.begins))
    };
    let store = Arc::new(Watched::new(MemoryStore::new(time.clone()), time.clone(), staging.begins));
    (runtime, Parts { store, time, chance: Arc::new(Chance::seeded(staging.seed)) })
}

/// Lets everything happen that can happen without time passing.
async fn turns() {
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
}
