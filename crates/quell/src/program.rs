//! The short way: a store, queues with Rust handlers and a worker, in one process.
//!
//! The first page of this documentation and `examples/` have programs of it. Programs with a configuration file use [`crate::Engine`] and [`crate::Worker`] instead; this is nothing but a shorter
//! spelling of the two.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use quell_core::error::StoreResult;
use quell_core::event::{Invalid, Overflow, QueueName, SourceName};
use quell_core::lane::{DuringRun, Notify, OnFailed, RetryWith, RunRules};
use quell_core::lifecycle::RunState;
use quell_core::limits;
use quell_core::retry::{RetryPolicy, RetryProblem};
use quell_core::source::{Declaration, SourceRules};
use quell_core::store::{RunPolicy, Store};
use quell_core::totals::Totals;
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
#[expect(missing_docs, reason = "the text of each error says what its fields are")]
pub enum ProgramError {
    /// A setting of the environment is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The window of a queue cannot be.
    #[error("queue {queue:?}: {problem}")]
    Window { queue: String, problem: WindowProblem },
    /// The retries of a queue cannot be.
    #[error("queue {queue:?}: {problem}")]
    Retry { queue: String, problem: RetryProblem },
    /// A bound of a queue is out of its range.
    #[error("queue {queue:?}: {problem}")]
    Limit { queue: String, problem: String },
    /// A queue or a source has a name that is none.
    #[error(transparent)]
    Name(#[from] Invalid),
    /// The store was not opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// An event or a worker was refused.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The store refused, or is away.
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

    /// For everything beyond sending: looking, steering, waiting.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns when no event of any queue waits or runs. Delayed events, runs in backoff and paused lanes are waited for.
    pub async fn until_idle(&self) -> StoreResult<()> {
        loop {
            let stats = self.engine.stats().await?;
            let left = |t: &Totals| t.delayed + t.buffered + t.in_flight;
            if stats.iter().all(|queue| left(&queue.totals) == 0) {
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
    sources: Vec<(String, SourceRules)>,
    concurrency: usize,
    grace: Option<Duration>,
    name: Option<String>,
    clocks: Option<(Arc<dyn Time>, Arc<Chance>)>,
}

impl QuellBuilder {
    fn new(url: Option<String>, store: Option<Arc<dyn Store>>) -> Self {
        let concurrency = limits::CONCURRENCY_DEFAULT;
        QuellBuilder {
            url,
            store,
            queues: Vec::new(),
            sources: Vec::new(),
            concurrency,
            grace: None,
            name: None,
            clocks: None,
        }
    }

    /// Adds a queue. Only queues that are named here can be sent to.
    #[must_use]
    pub fn queue(mut self, name: &str, queue: Queue) -> Self {
        self.queues.push((name.to_owned(), queue));
        self
    }

    /// Declares an outside party with limits of its own, which [`Queue::source`] or an event names. It is put into the
    /// store, where it is in force for every process at once.
    #[must_use]
    pub fn source(mut self, name: &str, rules: SourceRules) -> Self {
        self.sources.push((name.to_owned(), rules));
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
        // This program has no file, and leaves the schedules of those that have one alone.
        settings.schedules = None;
        settings.worker.concurrency = self.concurrency.clamp(1, limits::CONCURRENCY_MAX);
        settings.worker.grace = self.grace.unwrap_or(settings.worker.grace);
        settings.worker.id = self.name;
        let mut options = WorkerOptions::default();
        let mut notices = Vec::new();
        for (name, mut queue) in self.queues {
            notices.extend(queue.notify.take().map(|(to, on)| (name.clone(), to, on)));
            let (queue, handler) = queue.resolve(&name, settings.worker.concurrency)?;
            if let Some(handler) = handler {
                options.handlers.insert(queue.name.clone(), handler);
            }
            settings.queues.insert(queue.name.clone(), Arc::new(queue));
        }
        attach_notices(&mut settings, &notices)?;
        for (name, rules) in self.sources {
            rules.check()?;
            settings.sources.push(Declaration { name: SourceName::new(&name)?, rules });
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
///
/// ```
/// use quell::quell_core::retry::RetryPolicy;
/// use quell::{DuringRun, Outcome, Queue, Run, from_fn};
/// use std::time::Duration;
///
/// let seconds = Duration::from_secs;
/// let answer = Queue::quiet(seconds(2)) // two quiet seconds …
///     .max_wait(seconds(20)) // … but after twenty at the latest
///     .retry(RetryPolicy { base: seconds(1), ..RetryPolicy::default() })
///     .during_run(DuringRun::Interrupt) // a newer message starts the answer over
///     .time_limit(seconds(60))
///     .handler(from_fn(|run: Run| async move {
///         match run.events().len() {
///             0..100 => Outcome::succeeded(),
///             _ => Outcome::failed("nobody writes that much"),
///         }
///     }));
/// # drop(answer);
/// ```
#[derive(Clone)]
pub struct Queue {
    window: Window,
    retry: RetryPolicy,
    lease: Duration,
    on_error: OnError,
    concurrency: Option<usize>,
    max_running: Option<u32>,
    time_limit: Option<Duration>,
    rules: RunRules,
    /// Nothing means what goes with `during_run`.
    retry_with: Option<RetryWith>,
    overflow: Overflow,
    content_dedupe: bool,
    max_lane_events: u64,
    notify: Option<(String, Vec<RunState>)>,
    source: Option<String>,
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
            rules: RunRules::default(),
            retry_with: None,
            overflow: Overflow::Reject,
            content_dedupe: false,
            max_lane_events: limits::LANE_EVENTS_DEFAULT,
            notify: None,
            source: None,
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

    /// When a run that did not succeed is tried again, and how often.
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

    /// What events that arrive during a run do: wait, interrupt it, or be seen at its gate ([`crate::Run::hold`]).
    #[must_use]
    pub fn during_run(mut self, during_run: DuringRun) -> Self {
        self.rules.during_run = during_run;
        self
    }

    /// How often one run may give way to newer events, 1 to 100.
    #[must_use]
    pub fn max_interrupts(mut self, times: u32) -> Self {
        self.rules.max_interrupts = times;
        self
    }

    /// Which batch a retry gets. `Same` unless it is said, and always `Newer` where runs give way.
    #[must_use]
    pub fn retry_with(mut self, with: RetryWith) -> Self {
        self.retry_with = Some(with);
        self
    }

    /// What a failed run does to its key: the next run goes on, the key waits, or the batch is halved.
    #[must_use]
    pub fn on_failed(mut self, on_failed: OnFailed) -> Self {
        self.rules.on_failed = on_failed;
        self
    }

    /// Events that may wait for one key, and what happens to one more.
    #[must_use]
    pub fn max_lane_events(mut self, events: u64, overflow: Overflow) -> Self {
        (self.max_lane_events, self.overflow) = (events, overflow);
        self
    }

    /// An event without an id whose payload equals one that still waits is that event again.
    #[must_use]
    pub fn content_dedupe(mut self) -> Self {
        self.content_dedupe = true;
        self
    }

    /// Tells another queue of this program how runs ended: an event stored with the end itself.
    #[must_use]
    pub fn notify(mut self, queue: &str, on: &[RunState]) -> Self {
        self.notify = Some((queue.to_owned(), on.to_vec()));
        self
    }

    /// The source that governs its runs, declared by [`QuellBuilder::source`].
    #[must_use]
    pub fn source(mut self, name: &str) -> Self {
        self.source = Some(name.to_owned());
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
        let rules =
            self.run_rules().map_err(|problem| ProgramError::Limit { queue: queue.clone(), problem })?;
        if self.max_lane_events == 0 || self.max_lane_events > limits::LANE_EVENTS_MAX {
            let problem =
                format!("{} events for one key are not between 1 and 1000000", self.max_lane_events);
            return Err(ProgramError::Limit { queue, problem });
        }
        let mut settings = QueueSettings::defaults(QueueName::new(name)?);
        let mut append = (*settings.append).clone();
        append.window = self.window;
        append.overflow = self.overflow;
        append.content_dedupe = self.content_dedupe;
        append.lane_events = self.max_lane_events;
        append.source = self.source.as_deref().map(SourceName::new).transpose()?;
        settings.append = Arc::new(append);
        settings.run = Arc::new(RunPolicy {
            lease: self.lease,
            max_attempts: self.retry.attempts,
            max_running: self.max_running,
            rules,
            notify: None,
        });
        settings.retry = self.retry;
        settings.on_error = self.on_error;
        settings.concurrency = self.concurrency.unwrap_or(process).clamp(1, limits::CONCURRENCY_MAX);
        settings.handler = HandlerSettings::Pull;
        let own = self.handler.map(|handler| OwnHandler { handler, time_limit: self.time_limit });
        Ok((settings, own))
    }

    fn run_rules(&self) -> Result<RunRules, String> {
        let gives_way = self.rules.during_run != DuringRun::Queue;
        let retry_with = match self.retry_with {
            None if gives_way => RetryWith::Newer,
            None => RetryWith::Same,
            Some(RetryWith::Same) if gives_way => {
                return Err(
                    "a retry with the same batch cannot be combined with interrupt or gate, where newer \
                            events join the batch"
                        .to_owned(),
                );
            }
            Some(with) => with,
        };
        if !(1..=limits::INTERRUPTS_MAX).contains(&self.rules.max_interrupts) {
            return Err(format!("max_interrupts {} is not between 1 and 100", self.rules.max_interrupts));
        }
        Ok(RunRules { retry_with, ..self.rules })
    }
}

/// Joins queues with those they notify, when all are known.
fn attach_notices(
    settings: &mut Settings,
    notices: &[(String, String, Vec<RunState>)],
) -> Result<(), ProgramError> {
    for (from, to, on) in notices {
        let problem = |problem: String| ProgramError::Limit { queue: from.clone(), problem };
        let target = settings.queues.get(&QueueName::new(to)?);
        let target = target.ok_or_else(|| problem(format!("it notifies {to:?}, which is no queue here")))?;
        if from == to || notices.iter().any(|(other, ..)| other == to) {
            return Err(problem(format!("it notifies {to:?}, and notices are never told of themselves")));
        }
        let notify = Notify { queue: target.name.clone(), on: on.clone(), policy: (*target.append).clone() };
        let queue = settings.queues.get_mut(&QueueName::new(from)?).expect("it was resolved above");
        let queue = Arc::make_mut(queue);
        queue.run = Arc::new(RunPolicy { notify: Some(Arc::new(notify)), ..(*queue.run).clone() });
    }
    Ok(())
}
