//! The short way: a store, queues with Rust handlers and a worker, in one process.
//!
//! ```no_run
//! # use quell::{Queue, Quell, Run, from_fn};
//! # use std::time::Duration;
//! # async fn program() -> Result<(), quell::ProgramError> {
//! let quell = Quell::open("sqlite:hello.db")
//!     .queue("chat", Queue::quiet(Duration::from_millis(300)).handler(from_fn(|run: Run| async move {
//!         println!("{} wrote {} messages", run.key(), run.events().len());
//!     })))
//!     .start()
//!     .await?;
//! quell.send("chat", "customer-7", serde_json::json!({ "text": "hi" })).await?;
//! quell.until_idle().await?;
//! quell.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! Programs with a configuration file use [`crate::Engine`] and [`crate::Worker`] instead; this is nothing but a shorter
//! spelling of the two.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use quell_core::error::StoreResult;
use quell_core::event::{Invalid, QueueName};
use quell_core::limits;
use quell_core::retry::{RetryPolicy, RetryProblem};
use quell_core::store::{RunPolicy, Store};
use quell_core::window::{Window, WindowPolicy, WindowProblem};
use tokio::task::JoinHandle;

use crate::clock::{self, Chance, Time};
use crate::config::{
    Config, ConfigError, Flags, HandlerSettings, OnError, QueueSettings, Settings, SettingsInput, SourceText,
};
use crate::engine::{Engine, EngineError};
use crate::handler::Handler;
use crate::open::{self, OpenError};
use crate::worker::{OwnHandler, Shutdown, Worker, WorkerOptions, WorkerReport};

/// How often [`Quell::until_idle`] looks whether anything is left.
const IDLE_LOOK: Duration = Duration::from_millis(20);

/// A running program: an engine to send to and a worker that handles. Dropping it abandons running handlers; call
/// [`Quell::shutdown`] to let them finish.
pub struct Quell {
    engine: Engine,
    shutdown: Shutdown,
    worker: JoinHandle<WorkerReport>,
}

/// Why a program did not start.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("queue {queue:?}: {problem}")]
    Window { queue: String, problem: WindowProblem },
    #[error("queue {queue:?}: {problem}")]
    Retry { queue: String, problem: RetryProblem },
    #[error("queue {queue:?}: {problem}")]
    Limit { queue: String, problem: String },
    #[error(transparent)]
    Name(#[from] Invalid),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Store(#[from] quell_core::error::StoreError),
}

impl Quell {
    /// A program over the store with this URL, such as `sqlite:quell.db`; it is opened by [`QuellBuilder::start`].
    pub fn open(store: &str) -> QuellBuilder {
        QuellBuilder::new(Some(store.to_owned()), None)
    }

    /// A program over a store of the caller's.
    pub fn with_store(store: Arc<dyn Store>) -> QuellBuilder {
        QuellBuilder::new(None, Some(store))
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns when no event of any queue waits or runs. Runs in backoff and paused lanes are waited for.
    pub async fn until_idle(&self) -> StoreResult<()> {
        loop {
            let stats = self.engine.stats().await?;
            if stats.iter().all(|queue| queue.totals.buffered + queue.totals.in_flight == 0) {
                return Ok(());
            }
            clock::sleep(IDLE_LOOK).await;
        }
    }

    /// Lets running handlers finish within the grace, hands the others back, and tells what was done.
    pub async fn shutdown(mut self) -> WorkerReport {
        self.shutdown.request();
        (&mut self.worker).await.unwrap_or_default()
    }
}

/// A started program is its engine: `quell.send(…)`, `quell.lane(…)`.
impl Deref for Quell {
    type Target = Engine;
    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Drop for Quell {
    fn drop(&mut self) {
        self.worker.abort();
    }
}

/// Collects what a program needs; checked as a whole by [`QuellBuilder::start`].
pub struct QuellBuilder {
    url: Option<String>,
    store: Option<Arc<dyn Store>>,
    queues: Vec<(String, Queue)>,
    concurrency: usize,
    grace: Option<Duration>,
    name: Option<String>,
    clocks: Option<(Arc<dyn Time>, Arc<Chance>)>,
}

impl QuellBuilder {
    fn new(url: Option<String>, store: Option<Arc<dyn Store>>) -> Self {
        let concurrency = limits::CONCURRENCY_DEFAULT;
        QuellBuilder { url, store, queues: Vec::new(), concurrency, grace: None, name: None, clocks: None }
    }

    /// Adds a queue. Only queues that are named here can be sent to.
    #[must_use]
    pub fn queue(mut self, name: &str, queue: Queue) -> Self {
        self.queues.push((name.to_owned(), queue));
        self
    }

    /// Lanes at once in this process.
    #[must_use]
    pub fn concurrency(mut self, lanes: usize) -> Self {
        self.concurrency = lanes;
        self
    }

    /// How long running handlers may take to finish after a shutdown.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// The name of this worker in listings and logs; the host name by default.
    #[must_use]
    pub fn worker_name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// With clocks and chance of the caller's: for tests and simulations.
    #[must_use]
    pub fn clocks(mut self, time: Arc<dyn Time>, chance: Arc<Chance>) -> Self {
        self.clocks = Some((time, chance));
        self
    }

    /// Opens the store and starts the worker.
    pub async fn start(self) -> Result<Quell, ProgramError> {
        let (engine, options) = self.build().await?;
        let worker = Worker::new(engine.clone(), options)?;
        let shutdown = Shutdown::new();
        let worker = tokio::spawn(worker.run(shutdown.clone()));
        Ok(Quell { engine, shutdown, worker })
    }

    /// Opens the store without a worker: for programs that only send, or run [`Worker`] themselves.
    pub async fn build(self) -> Result<(Engine, WorkerOptions), ProgramError> {
        // An empty configuration, so that the environment of the process changes nothing behind the program's back.
        let text = SourceText::new("this program", "");
        let url = self.url.unwrap_or_else(|| "sqlite:unused".to_owned());
        let flags = Flags { store: Some(url), ..Flags::default() };
        let input = SettingsInput { config: Some((Config::default(), text)), env: &BTreeMap::new(), flags };
        let mut settings = Settings::resolve(input)?;
        settings.worker.concurrency = self.concurrency.clamp(1, limits::CONCURRENCY_MAX);
        settings.worker.grace = self.grace.unwrap_or(settings.worker.grace);
        settings.worker.id = self.name;
        let mut options = WorkerOptions::default();
        for (name, queue) in self.queues {
            let (queue, handler) = queue.resolve(&name, settings.worker.concurrency)?;
            if let Some(handler) = handler {
                options.handlers.insert(queue.name.clone(), handler);
            }
            settings.queues.insert(queue.name.clone(), Arc::new(queue));
        }
        let store = match self.store {
            Some(store) => store,
            None => open::open(&settings.store, settings.worker.start_timeout).await?,
        };
        let engine = match self.clocks {
            Some((time, chance)) => Engine::with_parts(store, settings, time, chance),
            None => Engine::with_store(store, settings),
        };
        Ok((engine, options))
    }
}

/// One queue of a program: when it is due, how it is tried again, and who handles it.
#[derive(Clone)]
pub struct Queue {
    window: Window,
    retry: RetryPolicy,
    lease: Duration,
    on_error: OnError,
    concurrency: Option<usize>,
    max_running: Option<u32>,
    time_limit: Option<Duration>,
    handler: Option<Arc<dyn Handler>>,
}

impl Queue {
    /// Every event is due at once: a plain job queue.
    pub fn none() -> Self {
        Queue::with(Window::none())
    }

    /// Due this long after the first event.
    pub fn fixed(wait: Duration) -> Self {
        Queue::with(Window::fixed(wait))
    }

    /// Due when no event came for this long, at the latest after ten times as long.
    pub fn quiet(quiet: Duration) -> Self {
        Queue::with(Window::quiet(quiet))
    }

    fn with(window: Window) -> Self {
        Queue {
            window,
            retry: RetryPolicy::default(),
            lease: limits::LEASE_DEFAULT,
            on_error: OnError::Failed,
            concurrency: None,
            max_running: None,
            time_limit: None,
            handler: None,
        }
    }

    /// With [`Queue::quiet`]: due this long after the first event at the latest.
    #[must_use]
    pub fn max_wait(mut self, wait: Duration) -> Self {
        if let WindowPolicy::Quiet { max_wait, .. } = &mut self.window.policy {
            *max_wait = wait;
        }
        self
    }

    /// Events of one batch at the most; that many close a window early.
    #[must_use]
    pub fn max_events(mut self, events: u32) -> Self {
        self.window.max_events = events;
        self
    }

    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// How long a worker owns a run without a sign of life. Running handlers are renewed, so it does not limit them.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// What an `Err` or a panic of the handler becomes.
    #[must_use]
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// Lanes of this queue at once in this process.
    #[must_use]
    pub fn concurrency(mut self, lanes: usize) -> Self {
        self.concurrency = Some(lanes);
        self
    }

    /// Runs of this queue at once over all processes.
    #[must_use]
    pub fn max_running(mut self, runs: u32) -> Self {
        self.max_running = Some(runs);
        self
    }

    /// A handler that takes longer is stopped and the run tried again.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// Who handles the batches; without one this process only sends.
    #[must_use]
    pub fn handler(mut self, handler: impl Handler) -> Self {
        self.handler = Some(Arc::new(handler));
        self
    }

    fn resolve(
        self,
        name: &str,
        process: usize,
    ) -> Result<(QueueSettings, Option<OwnHandler>), ProgramError> {
        let queue = name.to_owned();
        self.window.check().map_err(|problem| ProgramError::Window { queue: queue.clone(), problem })?;
        self.retry.check().map_err(|problem| ProgramError::Retry { queue: queue.clone(), problem })?;
        if self.lease < limits::LEASE_MIN || self.lease > limits::LEASE_MAX {
            let problem = format!("a lease of {:?} is not between 100 ms and 24 h", self.lease);
            return Err(ProgramError::Limit { queue, problem });
        }
        let mut settings = QueueSettings::defaults(QueueName::new(name)?);
        let mut append = (*settings.append).clone();
        append.window = self.window;
        settings.append = Arc::new(append);
        settings.run = Arc::new(RunPolicy {
            lease: self.lease,
            max_attempts: self.retry.attempts,
            max_running: self.max_running,
        });
        settings.retry = self.retry;
        settings.on_error = self.on_error;
        settings.concurrency = self.concurrency.unwrap_or(process).clamp(1, limits::CONCURRENCY_MAX);
        settings.handler = HandlerSettings::Pull;
        let own = self.handler.map(|handler| OwnHandler { handler, time_limit: self.time_limit });
        Ok((settings, own))
    }
}
