//! A worker process: the shipped loop, drivers and sweeper, performed with simulated calls and timers.
//!
//! This file is to the simulation what `worker.rs`, `running.rs`, `heartbeat.rs` and `maintenance.rs` are to the
//! product: it decides nothing. A process can die at any moment, stand still, or be asked to stop; what belongs to an
//! earlier life never reaches a later one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use quell_check::history::Op;
use quell_core::batch::{Batch, WorkerId};
use quell_core::clock::Tick;
use quell_core::inspect::SourceRow;
use quell_core::step::{
    HandlerEnd, LoopEffect, LoopInput, LoopQueue, LoopQueues, LoopSettings, RunDriver, RunEffect, RunEnd,
    RunInput, RunTicket, Slot, Sweeper, SweeperEffect, SweeperInput, WorkerLoop, WorkerState,
};
use quell_core::store::Wakeups;

use crate::call::{Reply, Request};
use crate::clock::{Moment, OwnClock};
use crate::handler::Handler;
use crate::plan::{PullerPlan, QueuePolicy, WorkerPlan};
use crate::pull::Pulling;
use crate::seen::Sight;
use crate::world::{Part, What, Who, World};

pub(crate) struct Node {
    kind: Kind,
    /// Raised by every start and every end.
    pub(crate) life: u32,
    pub(crate) paused_until: Option<Moment>,
    pub(crate) wall_jumps: i64,
    pub(crate) up: Option<Up>,
    /// By the number of the run within this process.
    pub(crate) handlers: BTreeMap<u64, Handler>,
    /// When it is started again after a shutdown.
    down: Option<u64>,
    /// It has the newer settings, from its next start on.
    pub(crate) newer: bool,
    /// It gets the other settings when it has stopped.
    changes: bool,
}

enum Kind {
    Worker(WorkerPlan),
    Puller(PullerPlan),
    Absent,
}

pub(crate) enum Up {
    Worker(Box<Process>),
    Puller(Box<Pulling>),
}

pub(crate) struct Process {
    clock: OwnClock,
    machine: WorkerLoop,
    sweeper: Option<Sweeper>,
    loop_wish: Wish,
    sweeper_wish: Wish,
    runs: BTreeMap<u64, Running>,
    next_run: u64,
    /// The policy of each slot.
    slots: Vec<usize>,
    listener: Box<dyn Wakeups>,
    /// The bell has been heard and its sound is on its way.
    rung: bool,
    /// It came while nobody listened.
    kept: bool,
}

struct Running {
    driver: RunDriver,
    slot: Slot,
    wish: Wish,
    batch: Option<Batch>,
}

/// The latest wish for a timer: an older one means nothing.
#[derive(Default)]
struct Wish {
    number: u32,
    at: Tick,
}

impl Node {
    fn of(kind: Kind) -> Node {
        Node {
            kind,
            life: 0,
            paused_until: None,
            wall_jumps: 0,
            up: None,
            handlers: BTreeMap::new(),
            down: None,
            newer: false,
            changes: false,
        }
    }

    pub(crate) fn worker(plan: WorkerPlan) -> Node {
        Node::of(Kind::Worker(plan))
    }

    pub(crate) fn puller(plan: PullerPlan) -> Node {
        Node::of(Kind::Puller(plan))
    }

    pub(crate) fn absent() -> Node {
        Node::of(Kind::Absent)
    }

    pub(crate) fn is_up(&self) -> bool {
        self.up.is_some()
    }

    pub(crate) fn is_absent(&self) -> bool {
        matches!(self.kind, Kind::Absent)
    }

    pub(crate) fn is_puller(&self) -> bool {
        matches!(self.kind, Kind::Puller(_))
    }

    /// Takes lanes of every queue and runs the shipped loop.
    pub(crate) fn is_full_worker(&self) -> bool {
        matches!(&self.kind, Kind::Worker(plan) if plan.queues.is_empty())
    }

    fn process(&mut self) -> Option<&mut Process> {
        match &mut self.up {
            Some(Up::Worker(process)) => Some(process),
            _ => None,
        }
    }

    pub(crate) fn pulling(&mut self) -> Option<&mut Pulling> {
        match &mut self.up {
            Some(Up::Puller(pulling)) => Some(pulling),
            _ => None,
        }
    }

    /// Whether the bell has rung for a process that listens. From then on its sound is on its way.
    pub(crate) fn hears(&mut self) -> bool {
        let Some(process) = self.process() else { return false };
        // Running handlers listen, too: they may have been interrupted or cancelled.
        let wanted = process.machine.listens() || !process.runs.is_empty();
        if process.rung || !wanted {
            return false;
        }
        let mut woken = process.listener.woken();
        let heard = woken.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(());
        drop(woken);
        process.rung = heard || (process.machine.listens() && std::mem::take(&mut process.kept));
        process.rung
    }

    /// The sound got lost on its way.
    pub(crate) fn misses(&mut self) {
        if let Some(process) = self.process() {
            process.rung = false;
        }
    }
}

impl World {
    fn part(&self, node: usize, part: Part) -> Who {
        Who::Part { node, life: self.nodes[node].life, part }
    }

    pub(crate) fn worker_id(&self, node: usize) -> Arc<WorkerId> {
        let start = self.nodes[node].life.to_string();
        Arc::new(WorkerId { name: format!("w{node}"), pid: 1, start })
    }

    /// Starts a process that is not running.
    pub(crate) fn start(&mut self, node: usize) {
        if self.nodes[node].is_up() || self.nodes[node].is_absent() {
            return;
        }
        let (now, process) = (self.now, 1 + node as u64);
        if self.nodes[node].life > 0 {
            self.recorder.fact(process, Op::Restart);
        }
        self.nodes[node].life += 1;
        self.nodes[node].paused_until = None;
        let worker = self.worker_id(node);
        let plan = match &self.nodes[node].kind {
            Kind::Absent => return,
            Kind::Puller(plan) => {
                let pulling = Pulling::new(plan.clone(), worker);
                self.nodes[node].up = Some(Up::Puller(Box::new(pulling)));
                let who = self.part(node, Part::Claims);
                return self.later(now, What::Timer { who, wish: 0 });
            }
            Kind::Worker(plan) => plan.clone(),
        };
        let (queues, slots) = self.queues(node, &plan);
        let ms = Duration::from_millis;
        let settings = LoopSettings {
            concurrency: plan.concurrency,
            idle_min: ms(50),
            idle_max: ms(plan.idle_max),
            error_wait: ms(plan.error_wait),
            sweep_every: ms(plan.sweep_every),
            grace: ms(plan.grace),
            ..LoopSettings::new(worker, queues)
        };
        let clock = OwnClock::started(now, plan.skew);
        let retention = self.plan.shape.retention;
        let sweeper = retention.map(|keep| Sweeper::new(clock.tick(now), keep, ms(800), ms(plan.error_wait)));
        let process = Process {
            clock,
            machine: WorkerLoop::new(settings),
            sweeper,
            loop_wish: Wish::default(),
            sweeper_wish: Wish::default(),
            runs: BTreeMap::new(),
            next_run: 1,
            slots,
            listener: self.store.wakeups(),
            rung: false,
            kept: false,
        };
        self.nodes[node].up = Some(Up::Worker(Box::new(process)));
        self.feed_loop(node, LoopInput::Start);
        self.feed_sweeper(node, SweeperInput::Timer);
    }

    /// The settings that a process was started with.
    pub(crate) fn policies_of(&self, node: usize) -> &[QueuePolicy] {
        if self.nodes[node].newer { &self.newer } else { &self.policies }
    }

    /// The process is asked to stop and comes back with the other settings. Its runs end under those that they began with, or are
    /// left to a process with other ones.
    pub(crate) fn upgrade(&mut self, node: usize, down: u64) {
        if self.nodes[node].is_absent() {
            return;
        }
        self.seen.saw(if self.nodes[node].newer { Sight::Downgraded } else { Sight::Upgraded });
        // One that is down already is changed while it is; one that still works keeps what it has until it is gone.
        if self.nodes[node].is_up() {
            self.nodes[node].changes = true;
            self.shut_down(node, down, false);
        } else {
            self.nodes[node].newer = !self.nodes[node].newer;
        }
    }

    /// The queues that a worker takes lanes of, and the policy behind each.
    fn queues(&self, node: usize, plan: &WorkerPlan) -> (LoopQueues, Vec<usize>) {
        let (mut listed, mut slots): (Vec<LoopQueue>, Vec<usize>) = (Vec::new(), Vec::new());
        for (place, queue) in self.plan.shape.queues.iter().enumerate() {
            let wanted = plan.queues.is_empty() || plan.queues.contains(&place);
            if wanted && listed.iter().all(|known| known.queue != queue.name) {
                let (policy, concurrency) = (self.policies_of(node)[place].run.clone(), plan.concurrency);
                listed.push(LoopQueue { queue: queue.name.clone(), policy, concurrency });
                slots.push(place);
            }
        }
        (LoopQueues::Listed(listed), slots)
    }

    /// The process dies at this very moment.
    pub(crate) fn crash(&mut self, node: usize, down: u64) {
        if !self.nodes[node].is_up() {
            return;
        }
        self.seen.saw(Sight::Crashed);
        if !self.nodes[node].handlers.is_empty() {
            self.seen.saw(Sight::CrashedWithHandler);
            let probing = |h: &Handler, rows: &[SourceRow]| rows.iter().any(|r| r.probe == Some(h.run()));
            let rows = self.source_rows();
            if self.nodes[node].handlers.values().any(|handler| probing(handler, &rows)) {
                self.seen.saw(Sight::CrashedAsProbe);
            }
        }
        self.recorder.fact(1 + node as u64, Op::Crash);
        self.end_process(node, down);
    }

    fn end_process(&mut self, node: usize, down: u64) {
        let one = &mut self.nodes[node];
        one.up = None;
        one.handlers.clear();
        one.life += 1;
        one.newer ^= std::mem::take(&mut one.changes);
        let (life, at) = (one.life, self.now + down);
        self.later(at, What::Restart { node, life });
    }

    pub(crate) fn pause(&mut self, node: usize, length: u64, frozen: bool) {
        let until = self.now + length;
        let one = &mut self.nodes[node];
        if !one.is_up() || one.paused_until.is_some_and(|at| at > self.now) {
            return;
        }
        one.paused_until = Some(until);
        self.seen.saw(if frozen { Sight::PausedFrozen } else { Sight::Paused });
        if let Some(process) = one.process().filter(|_| frozen) {
            process.clock.freeze(length);
        }
    }

    pub(crate) fn shut_down(&mut self, node: usize, down: u64, twice: bool) {
        self.seen.saw(if twice { Sight::ShutDownTwice } else { Sight::ShutDown });
        if self.nodes[node].process().is_none() {
            return self.crash(node, down);
        }
        self.nodes[node].down = Some(down);
        self.feed_loop(node, LoopInput::Shutdown);
        if twice {
            self.feed_loop(node, LoopInput::Shutdown);
        }
    }

    pub(crate) fn feed_loop(&mut self, node: usize, input: LoopInput) {
        let (now, wall) = (self.now, self.nodes[node].wall_jumps);
        let Some(process) = self.nodes[node].process() else { return };
        let tick = process.clock.tick(now);
        let wall_ahead_ms = process.clock.wall_ahead(now, wall);
        let mut out = Vec::new();
        process.machine.step(tick, LoopInput::Clocks { wall_ahead_ms }, &mut out);
        process.machine.step(tick, input, &mut out);
        for effect in out {
            self.perform_loop(node, effect);
        }
        let stopped = |p: &mut Process| p.machine.state() == WorkerState::Stopped;
        if self.nodes[node].process().is_some_and(stopped) {
            let down = self.nodes[node].down.take().unwrap_or(100);
            return self.end_process(node, down);
        }
        self.listen(node);
    }

    fn perform_loop(&mut self, node: usize, effect: LoopEffect) {
        match effect {
            LoopEffect::State { to, .. } => {
                if to == WorkerState::ErrorWait {
                    self.seen.saw(Sight::LoopErrorWait);
                }
            }
            LoopEffect::Sweep(request) => self.ask(self.part(node, Part::Loop), Request::Sweep(request)),
            LoopEffect::Claim(request) => self.ask(self.part(node, Part::Loop), Request::Claim(request)),
            LoopEffect::Run { batch, slot, sent } => self.start_run(node, batch, slot, sent, None),
            LoopEffect::HandBack { batch, slot, sent } => {
                self.seen.saw(Sight::HandedBack);
                let at_once = RunInput::Shutdown { finish_by: Tick::default() };
                self.start_run(node, batch, slot, sent, Some(at_once));
            }
            LoopEffect::WakeAt(at) => {
                let Some(process) = self.nodes[node].process() else { return };
                let (wish, moment) = process.loop_wish.replace(at, &process.clock);
                let who = self.part(node, Part::Loop);
                self.later(moment, What::Timer { who, wish });
            }
            LoopEffect::StopRuns { finish_by } => {
                let Some(process) = self.nodes[node].process() else { return };
                for run in process.runs.keys().copied().collect::<Vec<_>>() {
                    self.feed_driver(node, run, RunInput::Shutdown { finish_by });
                }
            }
            LoopEffect::AbandonRuns => {
                if let Some(process) = self.nodes[node].process() {
                    process.runs.clear();
                }
                self.nodes[node].handlers.clear();
            }
        }
    }

    fn start_run(&mut self, node: usize, batch: Batch, slot: Slot, sent: Tick, first: Option<RunInput>) {
        let chance = self.chance(self.part(node, Part::Loop)).unit();
        let Some(process) = self.nodes[node].process() else { return };
        let place = process.slots[slot.0];
        let settings = self.policies_of(node)[place].settings.clone();
        let Some(process) = self.nodes[node].process() else { return };
        let driver = RunDriver::new(RunTicket::of(&batch), settings, sent, chance);
        let run = process.next_run;
        process.next_run += 1;
        process.runs.insert(run, Running { driver, slot, wish: Wish::default(), batch: Some(batch) });
        for input in first.into_iter().chain([RunInput::Start]) {
            self.feed_driver(node, run, input);
        }
    }

    pub(crate) fn feed_driver(&mut self, node: usize, run: u64, input: RunInput) {
        let now = self.now;
        let Some(process) = self.nodes[node].process() else { return };
        let tick = process.clock.tick(now);
        let Some(running) = process.runs.get_mut(&run) else { return };
        let mut out = Vec::new();
        running.driver.step(tick, input, &mut out);
        for effect in out {
            self.perform_run(node, run, effect);
        }
    }

    fn perform_run(&mut self, node: usize, run: u64, effect: RunEffect) {
        let life = self.nodes[node].life;
        let driver = self.part(node, Part::Driver(run));
        let Some(process) = self.nodes[node].process() else { return };
        let Some(running) = process.runs.get_mut(&run) else { return };
        match effect {
            RunEffect::Dispatch => {
                let batch = running.batch.take().expect("a run is dispatched once");
                self.start_handler(node, run, batch, false);
            }
            RunEffect::Extend(request) => {
                self.ask(self.part(node, Part::Renewal(run)), Request::Extend(request));
            }
            RunEffect::Stopping => {}
            RunEffect::StopHandler(_) => {
                self.seen.saw(Sight::StoppedHandler);
                if self.tell_to_stop(node, run) {
                    let at = self.now + self.chance(driver).below(20);
                    self.later(at, What::Stopped { node, life, run });
                }
            }
            RunEffect::Settle(request) => {
                let own_delay =
                    matches!(request.verdict, quell_core::outcome::Verdict::Retry { after: Some(_) });
                self.ask(driver, Request::Settle { request, own_delay });
            }
            RunEffect::WakeAt(at) => {
                let (wish, moment) = running.wish.replace(at, &process.clock);
                self.later(moment, What::Timer { who: driver, wish });
            }
            RunEffect::Ended(end) => {
                if matches!(end, RunEnd::Lost(_)) && self.nodes[node].paused_until.is_some() {
                    self.seen.saw(Sight::ZombieWoke);
                }
                self.later(self.now, What::Ended { node, life, run });
            }
        }
    }

    /// A run is over for its worker; a handler that does not stop goes on as a ghost.
    pub(crate) fn run_ended(&mut self, node: usize, run: u64) {
        let Some(process) = self.nodes[node].process() else { return };
        let Some(running) = process.runs.remove(&run) else { return };
        if self.nodes[node].handlers.get(&run).is_some_and(Handler::is_ghost) {
            self.seen.saw(Sight::GhostHandler);
        } else {
            self.nodes[node].handlers.remove(&run);
        }
        self.feed_loop(node, LoopInput::RunsEnded(vec![running.slot]));
    }

    /// A handler that was told to stop has done so.
    pub(crate) fn stopped(&mut self, node: usize, run: u64) {
        let Some(handler) = self.nodes[node].handlers.remove(&run) else { return };
        self.recorder.fact(1 + node as u64, handler.end());
        self.feed_driver(node, run, RunInput::HandlerEnded(HandlerEnd::Stopped));
    }

    fn feed_sweeper(&mut self, node: usize, input: SweeperInput) {
        let now = self.now;
        let who = self.part(node, Part::Sweeper);
        let Some(process) = self.nodes[node].process() else { return };
        let tick = process.clock.tick(now);
        let Some(sweeper) = process.sweeper.as_mut() else { return };
        let mut out = Vec::new();
        sweeper.step(tick, input, &mut out);
        for effect in out {
            match effect {
                SweeperEffect::Sweep(request) => self.ask(who, Request::Sweep(request)),
                SweeperEffect::WakeAt(at) => {
                    let Some(process) = self.nodes[node].process() else { return };
                    let (wish, moment) = process.sweeper_wish.replace(at, &process.clock);
                    self.later(moment, What::Timer { who, wish });
                }
            }
        }
    }

    pub(crate) fn bell(&mut self, node: usize) {
        let Some(process) = self.nodes[node].process() else { return };
        process.rung = false;
        let listens = process.machine.listens();
        process.kept |= !listens;
        for run in process.runs.keys().copied().collect::<Vec<_>>() {
            self.feed_driver(node, run, RunInput::Look);
        }
        if listens {
            self.feed_loop(node, LoopInput::Woken);
        }
    }

    /// A timer rings, if it is still wished for. One that is early by its owner's clock is set again.
    pub(crate) fn timer(&mut self, who: Who, wish: u32) {
        let Who::Part { node, part, .. } = who else { return self.item_timer(who) };
        let now = self.now;
        match part {
            Part::Handler(run) => return self.handler_timer(node, run, wish),
            Part::Claims => return self.pull(node),
            Part::Loop | Part::Sweeper | Part::Driver(_) | Part::Renewal(_) => {}
        }
        let Some(process) = self.nodes[node].process() else { return };
        let wished = match part {
            Part::Loop => &process.loop_wish,
            Part::Sweeper => &process.sweeper_wish,
            Part::Driver(run) => match process.runs.get(&run) {
                Some(running) => &running.wish,
                None => return,
            },
            _ => return,
        };
        if wished.number != wish {
            return;
        }
        if process.clock.tick(now) < wished.at {
            let moment = process.clock.moment(wished.at);
            return self.later(moment, What::Timer { who, wish });
        }
        match part {
            Part::Loop => self.feed_loop(node, LoopInput::Timer),
            Part::Driver(run) => self.feed_driver(node, run, RunInput::Timer),
            _ => self.feed_sweeper(node, SweeperInput::Timer),
        }
    }

    pub(crate) fn part_answered(&mut self, node: usize, part: Part, reply: Reply) {
        match (part, reply) {
            (Part::Loop, Reply::Claim(answer)) => self.feed_loop(node, LoopInput::Claimed(answer)),
            (Part::Loop, Reply::Sweep(answer)) => self.feed_loop(node, LoopInput::Swept(answer)),
            (Part::Sweeper, Reply::Sweep(answer)) => {
                if answer.as_ref().is_ok_and(|swept| swept.removed_runs + swept.removed_audit > 0) {
                    self.seen.saw(Sight::RetentionRemoved);
                }
                self.feed_sweeper(node, SweeperInput::Swept(answer));
            }
            (Part::Renewal(run), Reply::Extend(answer)) => {
                self.feed_driver(node, run, RunInput::Extended(answer));
            }
            (Part::Driver(run), Reply::Settle(answer)) => {
                self.feed_driver(node, run, RunInput::Settled(answer));
            }
            (Part::Claims, Reply::Claim(answer)) => self.pulled(node, answer),
            (Part::Handler(run), reply) => self.handler_answered(node, run, reply),
            (part, reply) => panic!("{part:?} did not ask for {reply:?}"),
        }
    }
}

impl Wish {
    /// Puts a new wish in place of the old one; says its number and its true moment.
    fn replace(&mut self, at: Tick, clock: &OwnClock) -> (u32, Moment) {
        self.number += 1;
        self.at = at;
        (self.number, clock.moment(at))
    }
}
