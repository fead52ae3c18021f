//! The loop of a worker process: wait, sweep, claim, wait. The table of its states is in `worker_state.rs`.
//!
//! A worker keeps one store call in flight at the most, and no state costs a call of its own: *Connecting* lasts until
//! the store has answered the first call of a round, which is the sweep when one is due and else the claim. An idle
//! worker therefore makes one claim per back-off interval (100 ms doubling to 5 s) and one sweep per minute.
//!
//! A claim asks for as many lanes as there is room for. Its answer says when it is worth asking again (`next_at`), so
//! the loop sleeps until then; notifications cut the sleep short, and the back-off is only the backstop. A notification
//! that comes while a call is in flight is kept until the answer is there: between "empty" and "asleep" none is lost.
//!
//! *ErrorWait* pauses the loop alone. Running handlers and their heartbeats belong to [`super::RunDriver`] and go on.
//!
//! Settings can change while it runs ([`LoopInput::Change`]). A claim that is in flight is answered under those it was asked
//! with; runs that go on keep theirs, and count against the new bounds of their queue.

use std::collections::HashMap;
use std::time::Duration;

use super::worker_state::{
    LoopChange, LoopEffect, LoopInput, LoopQueue, LoopQueues, LoopSettings, MOVES, Slot, WorkerState,
};
use crate::batch::Batch;
use crate::clock::{Tick, Timestamp};
use crate::error::{StoreError, StoreResult};
use crate::event::QueueName;
use crate::lease;
use crate::limits;
use crate::store::{ClaimQueue, ClaimQueues, ClaimRequest, Claimed, SweepRequest, Swept};

/// Hand-backs need a moment after the handlers were stopped: a quarter of the grace is kept for them, up to this. They have
/// this long also when the grace is shorter, for a lease that is not handed back holds its lane up until it expires.
const HAND_BACK: Duration = Duration::from_secs(2);
/// "Due, but nothing taken" (another worker was faster) is asked again this soon, doubling.
const MISSED_PAUSE: Duration = Duration::from_millis(1);
/// A store that is away is asked again this soon.
const AWAY_PAUSE: Duration = Duration::from_secs(1);

/// The store call in flight.
#[derive(Debug)]
enum Asked {
    Sweep,
    Claim {
        sent: Tick,
        max: usize,
        /// Some queue had no room and was not asked for.
        left_out: bool,
    },
}

/// Runs of one place.
#[derive(Debug)]
struct Held {
    /// Nothing for the place of all queues together.
    queue: Option<QueueName>,
    running: usize,
}

#[derive(Debug)]
pub struct WorkerLoop {
    settings: LoopSettings,
    /// The place of the first queue of the settings in force.
    first: usize,
    slots: HashMap<QueueName, usize>,
    state: WorkerState,
    /// Runs going on, for each queue of the settings in force, whenever they were claimed.
    running: Vec<usize>,
    /// The places of runs going on, also those of earlier settings.
    held: HashMap<Slot, Held>,
    /// Settings that wait for the answer to a claim.
    change: Option<LoopChange>,
    total: usize,
    asked: Option<Asked>,
    /// A notification came after the last claim was sent.
    woken: bool,
    /// More may be due than there was room for: the end of a run is a reason to look again.
    limited: bool,
    idle_next: Duration,
    missed_next: Duration,
    wake_at: Tick,
    sweep_at: Tick,
    wall_ahead_ms: Option<i64>,
    distrust_until: Tick,
}

impl WorkerLoop {
    pub fn new(settings: LoopSettings) -> Self {
        let slots = places(&settings.queues);
        WorkerLoop {
            first: 0,
            running: vec![0; places_of(&settings.queues)],
            slots,
            held: HashMap::new(),
            change: None,
            state: WorkerState::Startup,
            total: 0,
            asked: None,
            woken: false,
            limited: false,
            idle_next: settings.idle_min,
            missed_next: MISSED_PAUSE,
            wake_at: Tick::default(),
            sweep_at: Tick::default(),
            wall_ahead_ms: None,
            distrust_until: Tick::default(),
            settings,
        }
    }

    pub fn state(&self) -> WorkerState {
        self.state
    }

    /// Whether a notification of the store would tell something new; otherwise listening only costs.
    pub fn listens(&self) -> bool {
        !self.woken && self.state != WorkerState::ErrorWait && !self.stopping()
    }

    /// Runs that have not ended yet.
    pub fn running(&self) -> usize {
        self.total
    }

    pub fn step(&mut self, now: Tick, input: LoopInput, out: &mut Vec<LoopEffect>) {
        match input {
            LoopInput::Start if self.state == WorkerState::Startup => self.connect(now, out),
            LoopInput::Start => {}
            LoopInput::Timer => self.timer(now, out),
            LoopInput::Woken => {
                self.woken = true;
                if self.state == WorkerState::Idle && self.has_room() {
                    self.connect(now, out);
                }
            }
            LoopInput::Claimed(answer) => self.claimed(now, answer, out),
            LoopInput::Swept(answer) => self.swept(now, answer, out),
            LoopInput::RunsEnded(slots) => self.runs_ended(now, &slots, out),
            LoopInput::Clocks { wall_ahead_ms } => self.look_at_clocks(now, wall_ahead_ms),
            LoopInput::Change(change) => {
                self.change = Some(change);
                self.take_change(now, out);
            }
            LoopInput::Shutdown => self.shutdown(now, out),
        }
    }

    fn timer(&mut self, now: Tick, out: &mut Vec<LoopEffect>) {
        let waiting =
            matches!(self.state, WorkerState::Idle | WorkerState::ErrorWait | WorkerState::Draining);
        if waiting && now < self.wake_at {
            out.push(LoopEffect::WakeAt(self.wake_at));
            return;
        }
        match self.state {
            WorkerState::Idle | WorkerState::ErrorWait => self.connect(now, out),
            WorkerState::Draining => self.abandon(out),
            _ => {}
        }
    }

    /// A round begins with the one call that shows whether the store is there.
    fn connect(&mut self, now: Tick, out: &mut Vec<LoopEffect>) {
        self.enter(WorkerState::Connecting, out);
        if now >= self.sweep_at {
            self.ask_sweep(now, out);
        } else if self.has_room() {
            self.ask_claim(now, out);
        } else {
            self.enter(WorkerState::Recovery, out);
            self.enter(WorkerState::Polling, out);
            self.rest(now, self.sweep_at, out);
        }
    }

    fn swept(&mut self, now: Tick, answer: StoreResult<Swept>, out: &mut Vec<LoopEffect>) {
        if !matches!(self.asked, Some(Asked::Sweep)) {
            return;
        }
        self.asked = None;
        if self.stopping() {
            return self.stop_if_done(out);
        }
        let swept = match answer {
            Ok(swept) => swept,
            Err(error) => return self.error_wait(now, &error, out),
        };
        if self.state == WorkerState::Connecting {
            self.enter(WorkerState::Recovery, out);
        }
        if swept.more {
            return self.ask_sweep(now, out);
        }
        self.sweep_at = now.after(self.settings.sweep_every);
        self.enter(WorkerState::Polling, out);
        self.poll(now, out);
    }

    fn claimed(&mut self, now: Tick, answer: StoreResult<Claimed>, out: &mut Vec<LoopEffect>) {
        if !matches!(self.asked, Some(Asked::Claim { .. })) {
            return;
        }
        let Some(Asked::Claim { sent, max, left_out }) = self.asked.take() else { return };
        if self.stopping() {
            self.take(answer.map(|a| a.batches).unwrap_or_default(), sent, out);
            return self.stop_if_done(out);
        }
        let claimed = match answer {
            Ok(claimed) => claimed,
            Err(error) => {
                self.adopt();
                return self.error_wait(now, &error, out);
            }
        };
        if self.state == WorkerState::Connecting {
            self.enter(WorkerState::Recovery, out);
            self.enter(WorkerState::Polling, out);
        }
        let Claimed { batches, now: store_now, next_at, .. } = claimed;
        let due = next_at.is_some_and(|t| t <= store_now);
        let took = batches.len();
        if took > 0 || due {
            self.enter(WorkerState::Claiming, out);
            self.take(batches, sent, out);
            self.enter(WorkerState::Polling, out);
        }
        self.limited = left_out || took >= max || self.some_queue_is_full();
        // What was found is no answer for queues that were not asked for.
        self.woken |= self.adopt();
        if took > 0 {
            self.idle_next = self.settings.idle_min;
            self.missed_next = MISSED_PAUSE;
        }
        if self.woken || (took > 0 && (due || took >= max)) {
            return self.poll(now, out);
        }
        // While the clocks are distrusted, expired leases are not looked at: then nothing found does not mean nothing left.
        let trusted = now >= self.distrust_until;
        if self.settings.until_idle && trusted && took == 0 && self.total == 0 && next_at.is_none() {
            self.enter(WorkerState::Draining, out);
            return self.enter(WorkerState::Stopped, out);
        }
        let until = now.after(self.pause(took, due, next_at.map(|t| (store_now, t))));
        self.rest(now, until, out);
    }

    /// How long to sleep: the back-off, cut short by the next due time.
    fn pause(&mut self, took: usize, due: bool, next: Option<(Timestamp, Timestamp)>) -> Duration {
        if took == 0 && due {
            // Somebody else was faster, or holds the lane's lock: soon again, but never in a tight loop.
            let pause = self.missed_next;
            self.missed_next = (pause * 2).min(self.settings.idle_max);
            return pause;
        }
        self.missed_next = MISSED_PAUSE;
        let pause = self.idle_next;
        self.idle_next = (pause * 2).min(self.settings.idle_max);
        next.map_or(pause, |(store_now, t)| pause.min(t.since(store_now)))
    }

    /// In Polling: ask again, unless there is no room or the sweep is due.
    fn poll(&mut self, now: Tick, out: &mut Vec<LoopEffect>) {
        if self.has_room() && now < self.sweep_at {
            self.ask_claim(now, out);
        } else {
            self.rest(now, self.sweep_at, out);
        }
    }

    fn rest(&mut self, now: Tick, until: Tick, out: &mut Vec<LoopEffect>) {
        self.enter(WorkerState::Backoff, out);
        // Without room there is nothing to ask for: the end of a run wakes the loop.
        self.wake_at = if self.has_room() { until.min(self.sweep_at) } else { self.sweep_at };
        self.enter(WorkerState::Idle, out);
        if now >= self.wake_at {
            self.connect(now, out);
        } else {
            out.push(LoopEffect::WakeAt(self.wake_at));
        }
    }

    fn take(&mut self, batches: Vec<Batch>, sent: Tick, out: &mut Vec<LoopEffect>) {
        for batch in batches {
            // A queue that was not asked for would be the store's mistake; its lease expires.
            let Some(place) = self.place(Some(&batch.lane.queue)) else { continue };
            let slot = Slot(self.first + place);
            self.running[place] += 1;
            self.total += 1;
            self.hold(slot, &batch.lane.queue);
            out.push(if self.stopping() {
                LoopEffect::HandBack { batch, slot, sent }
            } else {
                LoopEffect::Run { batch, slot, sent }
            });
        }
    }

    fn runs_ended(&mut self, now: Tick, slots: &[Slot], out: &mut Vec<LoopEffect>) {
        for slot in slots {
            let queue = self.let_go(*slot);
            if let Some(place) = self.place(queue.as_ref()) {
                self.running[place] -= 1;
            }
            self.total -= 1;
        }
        if self.stopping() {
            return self.stop_if_done(out);
        }
        let last = self.settings.until_idle && self.total == 0;
        if self.state == WorkerState::Idle && (self.limited || last) && self.has_room() {
            self.connect(now, out);
        }
    }

    /// Where runs of a queue are counted; nowhere, if it is not ours any more.
    fn place(&self, queue: Option<&QueueName>) -> Option<usize> {
        match &self.settings.queues {
            LoopQueues::Any(_) => Some(0),
            LoopQueues::Listed(_) => self.slots.get(queue?).copied(),
        }
    }

    fn hold(&mut self, slot: Slot, queue: &QueueName) {
        let queue = matches!(self.settings.queues, LoopQueues::Listed(_)).then(|| queue.clone());
        self.held.entry(slot).or_insert(Held { queue, running: 0 }).running += 1;
    }

    /// The queue of a run that has ended.
    fn let_go(&mut self, slot: Slot) -> Option<QueueName> {
        let held = self.held.get_mut(&slot).expect("a run ends once");
        held.running -= 1;
        match held.running {
            0 => self.held.remove(&slot).and_then(|held| held.queue),
            _ => held.queue.clone(),
        }
    }

    /// A claim in flight is answered first: what it takes was asked for under the old settings.
    fn take_change(&mut self, now: Tick, out: &mut Vec<LoopEffect>) {
        if matches!(self.asked, Some(Asked::Claim { .. })) || !self.adopt() || self.stopping() {
            return;
        }
        if self.state == WorkerState::Idle && self.has_room() {
            self.connect(now, out);
        }
    }

    /// Puts settings in force that were waiting; false when there were none.
    fn adopt(&mut self) -> bool {
        let Some(change) = self.change.take() else { return false };
        let LoopChange { queues, first, concurrency, error_wait, sweep_every, grace } = change;
        assert!(first.0 >= self.first + self.running.len(), "a place is never given twice");
        let kept = self.settings.clone();
        self.settings = LoopSettings { queues, concurrency, error_wait, sweep_every, grace, ..kept };
        self.slots = places(&self.settings.queues);
        self.first = first.0;
        self.running = vec![0; places_of(&self.settings.queues)];
        for held in self.held.values() {
            if let Some(place) = self.place(held.queue.as_ref()) {
                self.running[place] += held.running;
            }
        }
        true
    }

    fn look_at_clocks(&mut self, now: Tick, wall_ahead_ms: i64) {
        let before = self.wall_ahead_ms.replace(wall_ahead_ms).unwrap_or(wall_ahead_ms);
        let (shortest, longest) = self.leases();
        let jump = Duration::from_millis(wall_ahead_ms.abs_diff(before));
        if jump > lease::divergence_max(shortest) {
            self.distrust_until = now.after(longest);
        }
    }

    fn shutdown(&mut self, now: Tick, out: &mut Vec<LoopEffect>) {
        match self.state {
            WorkerState::Stopped => {}
            WorkerState::Draining => self.abandon(out),
            _ => {
                self.enter(WorkerState::Draining, out);
                let grace = self.settings.grace;
                let finish_by = now.after(grace - (grace / 4).min(HAND_BACK));
                self.wake_at = now.after(grace).max(finish_by.after(HAND_BACK));
                out.push(LoopEffect::StopRuns { finish_by });
                out.push(LoopEffect::WakeAt(self.wake_at));
                self.stop_if_done(out);
            }
        }
    }

    fn abandon(&mut self, out: &mut Vec<LoopEffect>) {
        out.push(LoopEffect::AbandonRuns);
        self.enter(WorkerState::Stopped, out);
    }

    fn stop_if_done(&mut self, out: &mut Vec<LoopEffect>) {
        let claiming = matches!(self.asked, Some(Asked::Claim { .. }));
        if self.state == WorkerState::Draining && self.total == 0 && !claiming {
            self.enter(WorkerState::Stopped, out);
        }
    }

    /// A store that is merely away (a restart, a failover) is asked again soon: its work waits.
    fn error_wait(&mut self, now: Tick, error: &StoreError, out: &mut Vec<LoopEffect>) {
        self.enter(WorkerState::ErrorWait, out);
        let wait = self.settings.error_wait;
        self.wake_at = now.after(if error.is_temporary() { wait.min(AWAY_PAUSE) } else { wait });
        out.push(LoopEffect::WakeAt(self.wake_at));
    }

    fn ask_sweep(&mut self, now: Tick, out: &mut Vec<LoopEffect>) {
        self.asked = Some(Asked::Sweep);
        out.push(LoopEffect::Sweep(SweepRequest { reclaim: now >= self.distrust_until, retention: None }));
    }

    fn ask_claim(&mut self, now: Tick, out: &mut Vec<LoopEffect>) {
        let max = self.settings.concurrency.saturating_sub(self.total).min(limits::CLAIM_LANES_MAX);
        let mut left_out = false;
        let queues = match &self.settings.queues {
            LoopQueues::Any(policy) => ClaimQueues::Any(policy.clone()),
            LoopQueues::Listed(list) => {
                let with_room = |(slot, q): (usize, &LoopQueue)| {
                    let room = q.concurrency.saturating_sub(self.running[slot]).min(max);
                    (room > 0).then(|| ClaimQueue::new(q.queue.clone(), q.policy.clone(), room))
                };
                let asked: Vec<ClaimQueue> = list.iter().enumerate().filter_map(with_room).collect();
                left_out = asked.len() < list.len();
                ClaimQueues::Listed(asked)
            }
        };
        self.woken = false;
        self.asked = Some(Asked::Claim { sent: now, max, left_out });
        out.push(LoopEffect::Claim(ClaimRequest {
            worker: self.settings.worker.clone(),
            queues,
            tenant: self.settings.tenant.clone(),
            max,
            reclaim: now >= self.distrust_until,
            claim_id: None,
        }));
    }

    fn has_room(&self) -> bool {
        let free = |slot: usize, q: &LoopQueue| self.running[slot] < q.concurrency;
        self.total < self.settings.concurrency
            && match &self.settings.queues {
                LoopQueues::Any(_) => true,
                LoopQueues::Listed(list) => list.iter().enumerate().any(|(slot, q)| free(slot, q)),
            }
    }

    fn some_queue_is_full(&self) -> bool {
        match &self.settings.queues {
            LoopQueues::Any(_) => false,
            LoopQueues::Listed(list) => {
                list.iter().zip(&self.running).any(|(q, running)| *running >= q.concurrency)
            }
        }
    }

    /// The shortest and the longest lease of the queues.
    fn leases(&self) -> (Duration, Duration) {
        match &self.settings.queues {
            LoopQueues::Any(policy) => (policy.lease, policy.lease),
            LoopQueues::Listed(list) => {
                let leases = || list.iter().map(|q| q.policy.lease);
                let default = limits::LEASE_DEFAULT;
                (leases().min().unwrap_or(default), leases().max().unwrap_or(default))
            }
        }
    }

    fn stopping(&self) -> bool {
        matches!(self.state, WorkerState::Draining | WorkerState::Stopped)
    }

    fn enter(&mut self, to: WorkerState, out: &mut Vec<LoopEffect>) {
        let from = self.state;
        let from_any = matches!(to, WorkerState::ErrorWait | WorkerState::Draining) && !self.stopping();
        assert!(from_any || MOVES.contains(&(from, to)), "{from:?} to {to:?} is not in the table");
        self.state = to;
        out.push(LoopEffect::State { from, to });
    }
}

fn places_of(queues: &LoopQueues) -> usize {
    match queues {
        LoopQueues::Any(_) => 1,
        LoopQueues::Listed(list) => list.len(),
    }
}

/// Which place each queue has in the list.
fn places(queues: &LoopQueues) -> HashMap<QueueName, usize> {
    match queues {
        LoopQueues::Any(_) => HashMap::new(),
        LoopQueues::Listed(list) => list.iter().enumerate().map(|(i, q)| (q.queue.clone(), i)).collect(),
    }
}
