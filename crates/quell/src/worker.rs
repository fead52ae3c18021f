//! The worker: waits, claims, hands batches to handlers and settles them, many lanes at once.
//!
//! What to do when is decided by the pure machines of `quell-core/src/step`; this file performs it with a store, tasks
//! and timers. One task is the loop, one keeps all leases (`heartbeat.rs`), each run has its own (`running.rs`), and one
//! removes old history (`maintenance.rs`). A store that is away stops the loop for a while and nothing else.
//!
//! Fourth to sixth stop on the path of an event. Signals are left to the program: it holds a [`Shutdown`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use quell_core::batch::{Batch, WorkerId};
use quell_core::clock::Tick;
use quell_core::event::{QueueName, Tenant};
use quell_core::inspect::{Inspect, Inspected};
use quell_core::lane::DuringRun;
use quell_core::outcome::Outcome;
use quell_core::step::{
    LoopChange, LoopEffect, LoopInput, LoopQueue, LoopQueues, LoopSettings, OnError, RunDriver, RunEnd,
    RunInput, RunSettings, RunTicket, Slot, WorkerLoop, WorkerState,
};
use quell_core::store::{ClaimQueues, ClaimRequest, Claimed, Store};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clock::Alarm;
use crate::config::{self, QueueSettings, Settings, WorkerSettings};
use crate::engine::{Engine, EngineError, unknown_queue};
use crate::handler::{Answer, Handler, Run};
use crate::handlers;
use crate::heartbeat::Heartbeats;
use crate::maintenance::{self, SweepLog};
use crate::observe;
use crate::outbound::Outbound;
use crate::presence::{self, Presence};
use crate::running::{Running, Surroundings, drive};
use crate::spans;

/// Running handlers hear of what happens in the store at most this often; what each run makes of it is its driver's.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Asks a worker to stop. The first request lets handlers finish within the grace; the second stops at once and leaves
/// the leases to expire.
#[derive(Debug, Clone, Default)]
pub struct Shutdown(Arc<watch::Sender<u32>>);

impl Shutdown {
    /// Nobody has asked for anything yet.
    pub fn new() -> Self {
        Shutdown::default()
    }

    /// Once: take nothing more and let handlers finish. Twice: abandon them.
    pub fn request(&self) {
        self.0.send_modify(|requests| *requests = requests.saturating_add(1));
    }

    /// Returns when it has been asked for.
    pub async fn requested(&self) {
        // The sender lives as long as `self`, so this cannot fail.
        let _ = self.0.subscribe().wait_for(|asked| *asked > 0).await;
    }

    /// Whether somebody has asked.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() > 0
    }
}

/// What a worker does beyond its settings.
#[derive(Clone, Default)]
pub struct WorkerOptions {
    /// Only these queues; empty means all that have a handler here.
    pub queues: Vec<QueueName>,
    /// Only lanes of this tenant.
    pub tenant: Option<Tenant>,
    /// Stop by itself when nothing is due, nothing runs and nothing waits.
    pub until_idle: bool,
    /// Handlers written in Rust, in place of what the settings name.
    pub handlers: BTreeMap<QueueName, OwnHandler>,
    /// The environment of this process, where secrets are found and of which programs started by `exec` receive an
    /// allow-list.
    pub env: BTreeMap<String, String>,
}

/// A handler written in Rust.
#[derive(Clone)]
pub struct OwnHandler {
    /// What does the work.
    pub handler: Arc<dyn Handler>,
    /// A run that takes longer is stopped and tried again.
    pub time_limit: Option<Duration>,
}

/// What a worker has done, told at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkerReport {
    /// Attempts that were claimed.
    pub claimed: u64,
    /// Attempts whose outcome the store took, whatever it was.
    pub settled: u64,
    /// Attempts whose lease was lost on the way.
    pub lost: u64,
    /// Attempts left to expire: abandoned, or the store could not be told.
    pub abandoned: u64,
}

/// Claims lanes and runs their handlers.
///
/// ```no_run
/// use quell::config::{Config, Flags, Settings, SettingsInput, SourceText};
/// use quell::{Engine, Shutdown, Worker, WorkerOptions};
/// use std::path::Path;
///
/// # async fn program() -> Result<(), Box<dyn std::error::Error>> {
/// let env = std::env::vars().collect();
/// let source = SourceText::read(Path::new("quell.toml"))?;
/// let config = Config::parse(&source.text, &source.name)?;
/// let input = SettingsInput { config: Some((config, source)), env: &env, flags: Flags::default() };
/// let engine = Engine::open(Settings::resolve(input)?).await?;
///
/// let worker = Worker::new(engine, WorkerOptions { env, ..WorkerOptions::default() })?;
/// let shutdown = Shutdown::new(); // somebody else calls `shutdown.clone().request()`
/// let report = worker.run(shutdown).await;
/// println!("{} attempts, {} lost", report.claimed, report.lost);
/// # Ok(())
/// # }
/// ```
pub struct Worker {
    engine: Engine,
    id: Arc<WorkerId>,
    settings: LoopSettings,
    /// Who handles the queue of each slot. Every change adds the new ones behind those of before, which may still have runs.
    slots: Vec<SlotHandler>,
    state: watch::Sender<WorkerState>,
    instructions: Instructions,
}

#[derive(Clone)]
struct SlotHandler {
    handler: Arc<dyn Handler>,
    run: Arc<RunSettings>,
}

/// Which queues a worker takes lanes of, and who handles them: made of settings, and checked, before anything is changed.
#[derive(Clone)]
pub struct Plan {
    queues: LoopQueues,
    slots: Vec<SlotHandler>,
    concurrency: usize,
    error_wait: Duration,
    sweep_every: Duration,
    grace: Duration,
}

impl Plan {
    /// Refuses a queue that the settings do not know or that has no handler in this process, and one whose handler cannot
    /// be made here: a secret is missing, for example.
    pub fn new(settings: &Settings, options: &WorkerOptions) -> Result<Plan, EngineError> {
        Plan::with(settings, options, &Outbound::new(settings.outbound.clone()))
    }

    fn with(settings: &Settings, options: &WorkerOptions, outbound: &Outbound) -> Result<Plan, EngineError> {
        let (queues, slots) = choose_queues(settings, options, outbound)?;
        let WorkerSettings { concurrency, error_wait, sweep_every, grace, .. } = settings.worker;
        Ok(Plan { queues, slots, concurrency, error_wait, sweep_every, grace })
    }
}

/// Tells a worker to go on by another plan. Runs that are under way end as they began, their leases kept.
#[derive(Clone)]
pub struct Instructions(watch::Sender<Option<Plan>>);

impl Instructions {
    /// In force as soon as the worker looks up; a later plan replaces one that it has not seen.
    pub fn give(&self, plan: Plan) {
        self.0.send_replace(Some(plan));
    }
}

impl Worker {
    /// Refuses what a [`Plan`] refuses.
    pub fn new(engine: Engine, options: WorkerOptions) -> Result<Worker, EngineError> {
        let id = Arc::new(engine.worker_id());
        let plan = Plan::with(&engine.settings(), &options, &engine.outbound())?;
        let Plan { queues, slots, concurrency, error_wait, sweep_every, grace } = plan;
        let settings = LoopSettings {
            tenant: options.tenant,
            concurrency,
            error_wait,
            sweep_every,
            grace,
            until_idle: options.until_idle,
            ..LoopSettings::new(id.clone(), queues)
        };
        let state = watch::Sender::new(WorkerState::Startup);
        let instructions = Instructions(watch::Sender::new(None));
        Ok(Worker { engine, id, settings, slots, state, instructions })
    }

    /// How it is told to go on by another plan.
    pub fn instructions(&self) -> Instructions {
        self.instructions.clone()
    }

    /// Under which it holds leases: name, process id and a number drawn at its start.
    pub fn id(&self) -> &WorkerId {
        &self.id
    }

    /// What the loop is doing, for those who show it.
    pub fn state(&self) -> watch::Receiver<WorkerState> {
        self.state.subscribe()
    }

    /// The queues that this worker takes lanes of; nothing means every queue there is.
    pub fn queues(&self) -> Option<Vec<QueueName>> {
        match &self.settings.queues {
            LoopQueues::Any(_) => None,
            LoopQueues::Listed(list) => Some(list.iter().map(|q| q.queue.clone()).collect()),
        }
    }

    /// What it tells of itself.
    fn presence(&self) -> Presence {
        let WorkerId { name, pid, .. } = &*self.id;
        Presence {
            worker: name.clone(),
            pid: *pid,
            id: self.id.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state: WorkerState::Startup.as_str().to_owned(),
            concurrency: self.settings.concurrency,
            queues: self.queues(),
            tenant: self.settings.tenant.clone(),
            started_at: self.engine.time().wall(),
            settings: self.engine.settings().fingerprints(),
        }
    }

    /// Works until it is asked to stop (or, with `until_idle`, until nothing is left). Store errors never end it.
    /// Dropping the future abandons all runs; their leases expire.
    pub async fn run(self, shutdown: Shutdown) -> WorkerReport {
        if self.slots.is_empty() && self.settings.until_idle {
            return WorkerReport::default();
        }
        let store = self.engine.store().clone();
        let heartbeats = Arc::new(Heartbeats::new(store.clone(), self.engine.time().clone()));
        let mut helpers = JoinSet::new();
        helpers.spawn(heartbeats.clone().run());
        helpers.spawn(maintenance::all(self.engine.clone()));
        let (about, told) = watch::channel(self.presence());
        helpers.spawn(presence::tell(self.engine.clone(), told, self.id.clone(), self.state()));
        let plans = self.instructions.0.subscribe();
        let engine = self.engine.clone();
        let around = Surroundings { engine, store, heartbeats, stopping: CancellationToken::new() };
        let mut performer = Performer {
            machine: WorkerLoop::new(self.settings.clone()),
            alarm: Alarm::new(self.engine.time().clone()),
            look_alarm: Alarm::new(self.engine.time().clone()),
            looks: true,
            worker: self,
            around: Arc::new(around),
            effects: Vec::new(),
            runs: JoinSet::new(),
            live: HashMap::new(),
            call: None,
            sweeps: SweepLog::default(),
            report: WorkerReport::default(),
            plans,
            about,
        };
        performer.run(shutdown.clone()).await;
        helpers.shutdown().await;
        if *shutdown.0.borrow() < 2 {
            presence::gone(&performer.worker.engine, &performer.worker.id).await;
        }
        performer.report
    }
}

/// While any name is a queue, those with a handler of their own still have it.
struct ByQueue {
    own: BTreeMap<QueueName, OwnHandler>,
    otherwise: Arc<dyn Handler>,
}

#[async_trait]
impl Handler for ByQueue {
    async fn handle(&self, run: &Run) -> Outcome {
        self.of(run).handle(run).await
    }

    async fn answer(&self, run: &Run) -> Answer {
        self.of(run).answer(run).await
    }

    fn stop_grace(&self) -> Duration {
        let own = self.own.values().map(|own| own.handler.stop_grace());
        own.max().unwrap_or_default().max(self.otherwise.stop_grace())
    }
}

impl ByQueue {
    fn of(&self, run: &Run) -> &Arc<dyn Handler> {
        self.own.get(run.queue()).map_or(&self.otherwise, |own| &own.handler)
    }
}

fn choose_queues(
    settings: &Settings,
    options: &WorkerOptions,
    outbound: &Outbound,
) -> Result<(LoopQueues, Vec<SlotHandler>), EngineError> {
    let slot = |queue: &QueueSettings| -> Result<Option<SlotHandler>, EngineError> {
        let own = options.handlers.get(&queue.name);
        let handler = match own {
            Some(own) => Some(own.handler.clone()),
            None => handlers::from_settings(&queue.handler, &options.env, outbound)
                .map_err(|problem| EngineError::BadHandler { queue: queue.name.clone(), problem })?,
        };
        let Some(handler) = handler else { return Ok(None) };
        let on_error = match queue.on_error {
            config::OnError::Failed => OnError::Failed,
            config::OnError::Retry => OnError::Retry,
        };
        let time_limit = own.and_then(|own| own.time_limit);
        let look_every = match queue.run.rules.during_run {
            DuringRun::Interrupt => RunSettings::LOOK_SOON,
            // A tenant may want to be interrupted, now or after the next change.
            DuringRun::Queue | DuringRun::Gate if !queue.tenants.is_empty() => RunSettings::LOOK_SOON,
            DuringRun::Queue | DuringRun::Gate => RunSettings::LOOK_SELDOM,
        };
        let (lease, retry, stop_grace) = (queue.run.lease, queue.retry, handler.stop_grace());
        let run = RunSettings { lease, retry, on_error, time_limit, look_every, stop_grace };
        Ok(Some(SlotHandler { handler, run: Arc::new(run) }))
    };
    if let (true, Some(any)) = (options.queues.is_empty(), &settings.default_queue)
        && let Some(SlotHandler { handler, run }) = slot(any)?
    {
        let handler = Arc::new(ByQueue { own: options.handlers.clone(), otherwise: handler });
        return Ok((LoopQueues::Any(any.run.clone()), vec![SlotHandler { handler, run }]));
    }
    let all = || settings.queues.keys().cloned().collect();
    let names: Vec<QueueName> = if options.queues.is_empty() { all() } else { options.queues.clone() };
    let (mut listed, mut slots) = (Vec::new(), Vec::new());
    for name in names {
        if listed.iter().any(|known: &LoopQueue| known.queue == name) {
            continue; // Named twice.
        }
        let queue = settings.queue(&name).ok_or_else(|| unknown_queue(settings, &name))?;
        let Some(handler) = slot(&queue)? else {
            // Asked for by name it is a mistake; among all queues it is simply somebody else's.
            if options.queues.contains(&name) {
                return Err(EngineError::NoHandler { queue: name });
            }
            continue;
        };
        slots.push(handler);
        listed.push(LoopQueue { queue: name, policy: queue.run.clone(), concurrency: queue.concurrency });
    }
    Ok((LoopQueues::Listed(listed), slots))
}

/// Performs the effects of the loop.
struct Performer {
    worker: Worker,
    machine: WorkerLoop,
    effects: Vec<LoopEffect>,
    around: Arc<Surroundings>,
    runs: JoinSet<RunEnd>,
    live: HashMap<tokio::task::Id, Live>,
    /// The store call in flight, one at the most.
    call: Option<BoxFuture<'static, LoopInput>>,
    alarm: Alarm,
    /// Rings when running handlers may hear of the store's next wake-up.
    look_alarm: Alarm,
    looks: bool,
    sweeps: SweepLog,
    report: WorkerReport,
    plans: watch::Receiver<Option<Plan>>,
    /// What the worker tells of itself.
    about: watch::Sender<Presence>,
}

struct Live {
    running: Arc<Running>,
    slot: Slot,
}

impl Performer {
    async fn run(&mut self, shutdown: Shutdown) {
        let mut wakeups = self.around.store.wakeups();
        // A listener of their own for running handlers: the loop does not listen while it has no room.
        let mut news = self.around.store.wakeups();
        let mut requests = shutdown.0.subscribe();
        let mut obeyed = 0;
        self.feed(LoopInput::Start);
        while self.machine.state() != WorkerState::Stopped {
            let input = tokio::select! {
                biased;
                // The sender lives as long as `shutdown`, so this cannot fail; the second request waits its turn.
                _ = requests.wait_for(|asked| *asked > obeyed) => {
                    obeyed += 1;
                    LoopInput::Shutdown
                }
                // Before the rest and yet no hindrance: at most one in a while.
                () = self.look_alarm.rung() => {
                    self.looks = true;
                    continue;
                }
                () = news.woken(), if self.looks && !self.live.is_empty() => {
                    self.look();
                    continue;
                }
                Ok(()) = self.plans.changed() => {
                    let plan = self.plans.borrow_and_update().clone();
                    match plan {
                        Some(plan) => self.follow(plan),
                        None => continue,
                    }
                }
                Some(ended) = self.runs.join_next_with_id() => self.ended(ended),
                input = answer(&mut self.call) => {
                    self.call = None;
                    self.heard(&input);
                    input
                }
                () = self.alarm.rung() => LoopInput::Timer,
                () = wakeups.woken(), if self.machine.listens() => LoopInput::Woken,
            };
            self.feed(input);
        }
    }

    /// Another plan: its queues get places behind those of before.
    fn follow(&mut self, plan: Plan) -> LoopInput {
        let Plan { queues, slots, concurrency, error_wait, sweep_every, grace } = plan;
        let first = Slot(self.worker.slots.len());
        self.worker.slots.extend(slots);
        self.worker.settings.queues = queues.clone();
        self.worker.settings.concurrency = concurrency;
        self.about.send_modify(|about| {
            about.queues = self.worker.queues();
            about.concurrency = concurrency;
            about.settings = self.worker.engine.settings().fingerprints();
        });
        LoopInput::Change(LoopChange { queues, first, concurrency, error_wait, sweep_every, grace })
    }

    /// Something happened in the store: perhaps a running handler was interrupted or cancelled.
    fn look(&mut self) {
        for running in self.in_order() {
            running.step(&self.around.heartbeats, RunInput::Look);
            running.watch(&self.around.heartbeats);
        }
        self.looks = false;
        self.look_alarm.set(self.around.heartbeats.now().after(LOOK_EVERY));
    }

    /// The runs under way, oldest first: a map has them in another order in every process, and what is done to them would not be
    /// repeatable in a test.
    fn in_order(&self) -> Vec<Arc<Running>> {
        let mut runs: Vec<_> = self.live.values().map(|live| live.running.clone()).collect();
        runs.sort_unstable_by_key(|running| running.number());
        runs
    }

    fn feed(&mut self, input: LoopInput) {
        let time = self.worker.engine.time();
        let now = time.tick();
        let ticks = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        let wall_ahead_ms = time.wall().as_millis().saturating_sub(ticks);
        let mut effects = std::mem::take(&mut self.effects);
        self.machine.step(now, LoopInput::Clocks { wall_ahead_ms }, &mut effects);
        self.machine.step(now, input, &mut effects);
        for effect in effects.drain(..) {
            self.perform(effect);
        }
        self.effects = effects;
    }

    fn perform(&mut self, effect: LoopEffect) {
        let store = self.around.store.clone();
        match effect {
            LoopEffect::State { from, to } => {
                observe::worker_state(&self.worker.id, from, to, self.machine.running());
                self.worker.state.send_replace(to);
            }
            LoopEffect::Sweep(request) => {
                self.call = Some(Box::pin(async move { LoopInput::Swept(store.sweep(request).await) }));
            }
            LoopEffect::Claim(mut request) => {
                self.by_tenant(&mut request);
                let until_idle = self.worker.settings.until_idle && self.live.is_empty();
                self.call = Some(Box::pin(async move {
                    let began = spans::beginning();
                    let mut answer = store.claim(request.clone()).await;
                    spans::claimed(began, &request.worker, &answer);
                    if let (true, Ok(claimed)) = (until_idle, &mut answer) {
                        forget_schedules(&*store, &request, claimed).await;
                    }
                    LoopInput::Claimed(answer)
                }));
            }
            LoopEffect::Run { batch, slot, sent } => self.start(batch, slot, sent, None),
            LoopEffect::HandBack { batch, slot, sent } => {
                let at_once = RunInput::Shutdown { finish_by: Tick::default() };
                self.start(batch, slot, sent, Some(at_once));
            }
            LoopEffect::WakeAt(at) => self.alarm.set(at),
            LoopEffect::StopRuns { finish_by } => {
                self.around.stopping.cancel();
                for running in self.in_order() {
                    running.step(&self.around.heartbeats, RunInput::Shutdown { finish_by });
                    running.watch(&self.around.heartbeats);
                }
            }
            LoopEffect::AbandonRuns => {
                self.report.abandoned += self.live.len() as u64;
                self.live.clear();
                self.runs.abort_all();
            }
        }
    }

    /// Tenants may have policies of their own, and these may have changed since the last claim.
    fn by_tenant(&self, request: &mut ClaimRequest) {
        let ClaimQueues::Listed(list) = &mut request.queues else { return };
        let settings = self.worker.engine.settings();
        for listed in list {
            if let Some(queue) = settings.queues.get(&listed.queue) {
                listed.tenants = queue.tenants.run_policies();
            }
        }
    }

    /// Starts a run's driver, then its task. In this order, and here: a task could be held up by its handler before
    /// anybody knows that there is a lease to keep.
    fn start(&mut self, batch: Batch, slot: Slot, sent: Tick, first: Option<RunInput>) {
        let SlotHandler { handler, run } = &self.worker.slots[slot.0];
        observe::lease_acquired(&batch, &self.worker.id);
        self.report.claimed += 1;
        let chance = self.worker.engine.chance().unit();
        let driver = RunDriver::new(RunTicket::of(&batch), run.clone(), sent, chance);
        let running = Running::new(self.report.claimed, driver);
        for input in first.into_iter().chain([RunInput::Start]) {
            running.step(&self.around.heartbeats, input);
        }
        running.watch(&self.around.heartbeats);
        let (around, handler) = (self.around.clone(), handler.clone());
        let (task_of, worker) = (running.clone(), self.worker.id.clone());
        let task = self.runs.spawn(async move {
            let (lane, ticket) = (batch.lane.clone(), task_of.ticket());
            let span = spans::processing(&batch, &worker);
            let end = drive(around.clone(), task_of, handler, batch, span).await;
            let held = around.heartbeats.now().since(sent);
            observe::lease_released(&lane, ticket, &worker, held, &end);
            end
        });
        self.live.insert(task.id(), Live { running, slot });
    }

    /// One run has ended; takes all others that have, too, so that one claim fills all free places.
    fn ended(&mut self, first: Result<(tokio::task::Id, RunEnd), tokio::task::JoinError>) -> LoopInput {
        let mut slots = Vec::new();
        let mut next = Some(first);
        while let Some(ended) = next {
            let id = match ended {
                Ok((id, end)) => {
                    match end {
                        RunEnd::Settled { .. } => self.report.settled += 1,
                        RunEnd::Lost(_) => self.report.lost += 1,
                        RunEnd::GaveUp(_) => self.report.abandoned += 1,
                    }
                    id
                }
                Err(error) => {
                    // Handlers' panics are caught; this would be one of ours. The lease must not be kept alive.
                    tracing::error!(%error, "the task of a run ended unexpectedly; its lease expires");
                    self.report.abandoned += 1;
                    error.id()
                }
            };
            if let Some(live) = self.live.remove(&id) {
                live.running.forget(&self.around.heartbeats);
                slots.push(live.slot);
            }
            next = self.runs.try_join_next_with_id();
        }
        LoopInput::RunsEnded(slots)
    }

    /// Tells what a store call brought to light, before the loop decides about it.
    fn heard(&mut self, input: &LoopInput) {
        match input {
            LoopInput::Claimed(Ok(claimed)) => claimed.reclaimed.iter().for_each(observe::lease_reclaimed),
            LoopInput::Swept(Ok(swept)) => self.sweeps.swept(&self.worker.id, swept),
            LoopInput::Claimed(Err(error)) => observe::store_failed(&self.worker.id, "claim", error),
            LoopInput::Swept(Err(error)) => observe::store_failed(&self.worker.id, "sweep", error),
            _ => {}
        }
    }
}

/// A schedule will fire for ever, so the next fire alone is no reason for `until_idle` to stay: when no event of these
/// queues waits, runs or is delayed, nothing is left.
async fn forget_schedules(store: &dyn Store, request: &ClaimRequest, claimed: &mut Claimed) {
    let later = claimed.next_at.is_some_and(|next| next > claimed.now);
    if !claimed.batches.is_empty() || !later {
        return;
    }
    // Without an answer it stays; the next round asks again.
    let Ok(Inspected::Stats(stats)) = store.inspect(Inspect::Stats).await else { return };
    let mut ours = stats.iter().filter(|q| request.policy_for(&q.tenant, &q.queue).is_some());
    if ours.all(|q| q.totals.delayed + q.totals.buffered + q.totals.in_flight == 0) {
        claimed.next_at = None;
    }
}

/// The answer to the call in flight; never while there is none.
async fn answer(call: &mut Option<BoxFuture<'static, LoopInput>>) -> LoopInput {
    match call {
        Some(call) => call.await,
        None => std::future::pending().await,
    }
}
