//! One lane and everything that can happen to it, as pure functions.
//!
//! A lane has at most one *current* run (held by a worker, in backoff, or waiting to be claimed), then frozen runs that
//! wait behind it (*queued*: halves of a split, redriven runs), then one *open* run that collects. The claim cuts the
//! open run into the current one; what is left over becomes a new open run in the same step and is due at once. A window
//! belongs to the open run and goes on while the current run is processed.
//!
//! A run that gave way to newer events, or is retried with them, stays the current run and keeps its number, attempts
//! and batch; the claim that takes it up again lets it *absorb* the front of the open run. So there is one place where
//! runs merge, and an event's run never changes before it is handed over.
//!
//! Stores load a [`Lane`], call one function, and write back the lane, the [`Move`]s for the audit and, when a run
//! ended, the [`Finished`] record: in one transaction. Nothing here reads a clock, draws chance or does I/O. What an
//! operator can do is in `lane/hands.rs`.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::audit::Move;
use crate::batch::{Batch, RunId, WorkerId};
use crate::clock::Timestamp;
use crate::event::{AppendPolicy, Event, LaneKey, NewEvent, QueueName};
use crate::lifecycle::{self, Change, RunState};
use crate::limits;
use crate::mutants::mutant;
use crate::outcome::Verdict;
use crate::source::SourceId;
use crate::store::{HoldAnswer, RunPolicy};
use crate::window::{FiredBy, OpenWindow, Window, WindowPolicy};

mod hands;
#[cfg(test)]
mod tests;

pub use hands::{Gone, Part, purged};

/// The whole state of a lane.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lane {
    /// Given by the store, never used twice.
    pub id: u64,
    /// The newest event's sequence number; 0 before the first.
    pub head_seq: u64,
    pub open: Option<OpenRun>,
    pub current: Option<CurrentRun>,
    /// Frozen runs that go before the open one, the next first. Empty unless there is a current run.
    pub queued: Vec<CurrentRun>,
    pub paused: Option<Paused>,
    /// A failed run for which the lane waits.
    pub blocked: Option<Blocked>,
    pub updated_at: Timestamp,
}

/// A run that collects events.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OpenRun {
    pub number: u64,
    /// Its first event; it holds every unmarked event of the lane from here on.
    pub lo: u64,
    pub count: u64,
    pub bytes: u64,
    /// The highest of its events; a leftover keeps that of the whole.
    pub priority: u8,
    pub window: OpenWindow,
    /// The source of its first event: a batch is cut where another one begins.
    #[serde(default)]
    pub source: Option<SourceId>,
}

/// A run whose batch is fixed: the events lo..=hi that belong to it, no other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CurrentRun {
    pub number: u64,
    /// Pending, Running or Retryable.
    pub state: RunState,
    pub lo: u64,
    pub hi: u64,
    pub count: u64,
    pub bytes: u64,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    pub fired_by: FiredBy,
    pub priority: u8,
    /// The bounds of its batch.
    pub max_events: u32,
    pub max_bytes: u64,
    /// Claims so far, never refunded.
    pub claims: u32,
    pub refunds: u32,
    /// Retry outcomes so far: the exponent of the backoff.
    pub retries: u32,
    /// Hand-backs since the last other outcome; the second in a row waits.
    pub releases_in_row: u32,
    /// How often it gave way to newer events.
    pub interrupts: u32,
    /// Raised by every merge.
    pub revision: u32,
    pub max_attempts: u32,
    /// The queue's rules, as the latest claim had them.
    pub rules: RunRules,
    /// Whether it takes newer events in when it is claimed again.
    pub newer: Newer,
    /// Its holder passed the point of no return: the batch stays as it is for ever.
    pub held: bool,
    /// Made of exactly these events (redriven, or a half): takes no newer ones in.
    pub frozen: bool,
    /// Its events are marked with its number; otherwise they are the unmarked ones of its range.
    pub marked: bool,
    /// One attempt, whatever the queue allows: a half of a split.
    pub single_attempt: bool,
    /// Newer events want the holder to stop.
    pub interrupt_requested: bool,
    /// An operator wants the holder to stop.
    pub cancel_requested: bool,
    /// The token of the latest claim; 0 before the first.
    pub token: u64,
    /// The lane's head at the latest claim: what `if_head` is measured by, also when the claim is answered again.
    pub claimed_head: u64,
    /// Chosen by the claimer: repeating it finds this claim again.
    pub claim_id: Option<String>,
    /// Who holds it, or held it last.
    pub worker: Option<Arc<WorkerId>>,
    pub claimed_at: Timestamp,
    pub heartbeat_at: Timestamp,
    /// Meaningful while running.
    pub lease_until: Timestamp,
    /// Meaningful while pending or retryable.
    pub due_at: Timestamp,
    /// Why the latest attempt did not end well.
    pub error: Option<String>,
    pub links: Links,
    /// Who is told when it ends, stamped by the claim so that a sweep knows it too.
    pub notify: Option<Arc<Notify>>,
    /// The one source of all its events.
    #[serde(default)]
    pub source: Option<SourceId>,
    /// Its latest claim was to find out whether the source works again, and has not found that it does.
    #[serde(default)]
    pub probe: bool,
    /// Refunds that its source caused: no hand-backs, and not bounded like them.
    #[serde(default)]
    pub source_refunds: u32,
}

/// What the queue says about a run that is being processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRules {
    pub during_run: DuringRun,
    pub max_interrupts: u32,
    pub retry_with: RetryWith,
    pub on_failed: OnFailed,
}

impl Default for RunRules {
    fn default() -> Self {
        RunRules {
            during_run: DuringRun::Queue,
            max_interrupts: limits::INTERRUPTS_DEFAULT,
            retry_with: RetryWith::Same,
            on_failed: OnFailed::Continue,
        }
    }
}

/// What events that arrive during a run do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DuringRun {
    /// They wait for the next run.
    Queue,
    /// They ask the holder to stop; batch and newer events become one.
    Interrupt,
    /// The holder asks before its effect whether it is still up to date.
    Gate,
}

impl DuringRun {
    pub const ALL: [DuringRun; 3] = [DuringRun::Queue, DuringRun::Interrupt, DuringRun::Gate];
}

/// Which batch a retry gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryWith {
    Same,
    Newer,
}

impl RetryWith {
    pub const ALL: [RetryWith; 2] = [RetryWith::Same, RetryWith::Newer];
}

/// What a failed run does to its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailed {
    /// The next run goes on.
    Continue,
    /// The lane waits for an operator.
    Block,
    /// The batch is halved until the guilty event is alone.
    Bisect,
}

impl OnFailed {
    pub const ALL: [OnFailed; 3] = [OnFailed::Continue, OnFailed::Block, OnFailed::Bisect];
}

/// Whether a waiting run takes newer events in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Newer {
    No,
    /// When its own time comes, unless that is the last allowed attempt.
    AtRetry,
    /// When the window of the newer events is over: it gave way to them.
    AtWindow,
}

impl Newer {
    pub const ALL: [Newer; 3] = [Newer::No, Newer::AtRetry, Newer::AtWindow];
}

/// Where a run's events came from or went, as run numbers of the same lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Links {
    /// What was left over by the claim waits there.
    pub continued_in: Option<u64>,
    pub merged_into: Option<u64>,
    pub split_into: Option<(u64, u64)>,
    pub split_from: Option<u64>,
    pub redriven_from: Option<u64>,
    pub redriven_into: Option<u64>,
}

/// Whom to tell how a run ended: an event of another queue, stored in the transaction that ends the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Notify {
    pub queue: QueueName,
    /// Final states that are told.
    pub on: Vec<RunState>,
    pub policy: AppendPolicy,
}

impl CurrentRun {
    /// Claims that count against the budget.
    pub fn attempt(&self) -> u32 {
        self.claims - self.refunds
    }

    /// Refunded hand-backs: neither giving way nor what its source caused.
    fn hand_backs(&self) -> u32 {
        self.refunds - self.interrupts - self.source_refunds
    }

    /// Redriven and not claimed yet: counted as buffered.
    pub fn is_buffered(&self) -> bool {
        self.links.redriven_from.is_some() && self.claims == 0
    }

    /// Whether an event of this lane with this number and mark is one of its events.
    pub fn has(&self, seq: u64, mark: Option<u64>) -> bool {
        let own = if self.marked { mark == Some(self.number) } else { mark.is_none() };
        own && self.lo <= seq && seq <= self.hi
    }

    /// Its batch cannot grow: it is never superseded or interrupted. What was left over did not fit, and nothing newer
    /// goes before it.
    fn is_full(&self) -> bool {
        let at_bound = self.count >= u64::from(self.max_events) || self.bytes >= self.max_bytes;
        !mutant("full_batch_gives_way") && (at_bound || self.links.continued_in.is_some())
    }

    /// Whether newer events may still make it start over.
    fn can_give_way(&self) -> bool {
        let allowed = self.interrupts < self.rules.max_interrupts || mutant("gives_way_for_ever");
        !self.held && !self.frozen && !self.is_full() && allowed
    }

    fn waits_for_newer(&self) -> Newer {
        let held = self.held && !mutant("held_batch_grows");
        let wanted = self.rules.retry_with == RetryWith::Newer || mutant("same_batch_grows");
        let allowed = !held && !self.frozen && wanted;
        if allowed { Newer::AtRetry } else { Newer::No }
    }

    /// The window whose bounds its batch keeps.
    pub fn bounds(&self) -> Window {
        Window { policy: WindowPolicy::None, max_events: self.max_events, max_bytes: self.max_bytes }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    pub at: Timestamp,
    pub by: String,
}

/// The lane waits because this run failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    pub at: Timestamp,
    pub run: u64,
}

/// Whether the lane had work when an event came, told in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Met {
    /// It was idle: this event opened a window.
    Idle,
    /// It was waiting: this event joined the open window.
    Waiting,
    /// It was being processed: this event is kept for the next run.
    Running,
}

/// What a claimer or sweeper finds to do with a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attention {
    /// Nothing until an event or an operator comes.
    Idle,
    /// Nothing before this moment.
    Wait(Timestamp),
    /// Its lease ran out: reclaim first.
    Expired,
    /// The current run can be claimed (again).
    Again,
    /// The open run is due: cut it, then claim.
    Cut,
}

/// What the store read from the front of the open run to cut a batch, or to merge it.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    /// Events and bytes taken from the open run.
    pub count: u64,
    pub bytes: u64,
    pub hi: u64,
    pub last_at: Timestamp,
    /// The first event that stays behind, with its arrival time.
    pub rest: Option<Rest>,
}

#[derive(Debug, Clone, Copy)]
pub struct Rest {
    pub lo: u64,
    pub first_at: Timestamp,
    pub source: Option<SourceId>,
}

/// Who claims, by which policy.
#[derive(Debug, Clone)]
pub struct Claimer {
    pub worker: Arc<WorkerId>,
    pub token: u64,
    pub policy: Arc<RunPolicy>,
    pub claim_id: Option<String>,
    /// The claim is to find out whether the source works again.
    pub probe: bool,
}

/// How a holder wants its run to end; delays are drawn by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settlement {
    pub verdict: Verdict,
    /// The wait before the next attempt of a retry, and of a repeated release.
    pub delay: Duration,
    /// Succeed only if nothing newer than this has arrived.
    pub if_head: Option<u64>,
    /// The source is why it was not done: a retry or a hand-back is refunded.
    pub refund: bool,
}

impl Settlement {
    pub fn of(verdict: Verdict) -> Self {
        Settlement { verdict, delay: Duration::ZERO, if_head: None, refund: false }
    }
}

/// The call does not come from the holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotHolder;

/// What a holder learns when it extends its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    pub lease_until: Timestamp,
    pub head_seq: u64,
    /// Events that arrived for the next run.
    pub newer: u64,
    pub interrupt: bool,
    pub cancel: bool,
}

/// A run that ended, as the history keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// `count` is the number of events that belong to it: none when they went into another run.
    pub run: CurrentRun,
    pub state: RunState,
    pub at: Timestamp,
    /// Its events were counted as buffered, not as in flight, before it ended.
    pub was_buffered: bool,
}

/// What a step did: records for the audit and, if a run ended, its history.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub made: Move,
    /// A second record of the same step.
    pub also: Option<Move>,
    pub finished: Option<Finished>,
    /// The finished run failed and is to be halved: the store reads its events and calls [`Lane::split`] in the same
    /// transaction.
    pub split: bool,
}

impl Step {
    fn of(made: Move) -> Self {
        Step { made, also: None, finished: None, split: false }
    }
}

impl Lane {
    pub fn new(id: u64, at: Timestamp) -> Self {
        Lane {
            id,
            head_seq: 0,
            open: None,
            current: None,
            queued: Vec::new(),
            paused: None,
            blocked: None,
            updated_at: at,
        }
    }

    pub fn run_id(&self, number: u64) -> RunId {
        RunId { lane: self.id, number }
    }

    /// The runs whose batch is fixed, in the order in which they will be claimed.
    pub fn fixed_runs(&self) -> impl Iterator<Item = &CurrentRun> {
        self.current.iter().chain(&self.queued)
    }

    /// Buffered and in flight together: what the lane limit bounds.
    pub fn events(&self) -> u64 {
        self.open.map_or(0, |o| o.count) + self.fixed_runs().map(|c| c.count).sum::<u64>()
    }

    /// Nothing to do and nothing waiting.
    pub fn is_idle(&self) -> bool {
        self.open.is_none() && self.current.is_none()
    }

    pub fn state(&self) -> Option<RunState> {
        match (&self.current, &self.open) {
            (Some(current), _) => Some(current.state),
            (None, Some(_)) => Some(RunState::Pending),
            (None, None) => None,
        }
    }

    /// The highest over its current and buffered events; the default when it has none.
    pub fn priority(&self) -> u8 {
        let runs = self.fixed_runs().map(|c| c.priority);
        runs.chain(self.open.map(|o| o.priority)).max().unwrap_or(limits::PRIORITY_DEFAULT)
    }

    /// The source that the next batch of this lane asks, or that its holder asks now: what the claim waits for.
    pub fn source(&self) -> Option<SourceId> {
        match &self.current {
            Some(current) => current.source,
            None => self.open.and_then(|open| open.source),
        }
    }

    /// Whether what is newer could be part of the current run: a batch asks one source.
    fn newer_fits(&self) -> bool {
        let current = self.current.as_ref();
        current.zip(self.open).is_some_and(|(current, open)| current.source == open.source)
    }

    /// An event arrives: it joins the open run or opens one, whatever the current run does. A holder that may be
    /// interrupted is asked to stop.
    pub fn append(
        &mut self,
        now: Timestamp,
        seq: u64,
        event: &NewEvent,
        source: Option<SourceId>,
        fresh: impl FnOnce() -> u64,
    ) -> Met {
        assert!(seq > self.head_seq, "sequence numbers of a lane strictly increase");
        let met = match (&self.current, &self.open) {
            (Some(current), _) if current.state == RunState::Running => Met::Running,
            (None, None) => Met::Idle,
            _ => Met::Waiting,
        };
        let asked = event.window.as_ref().filter(|_| self.open.is_some());
        let open = self.open.get_or_insert_with(|| OpenRun {
            number: fresh(),
            lo: seq,
            count: 0,
            bytes: 0,
            priority: event.priority,
            window: OpenWindow::opened(event.opens(), now),
            source,
        });
        if open.count == 0 {
            // What was there before it has been dropped to make room.
            open.source = source;
        }
        open.count += 1;
        open.bytes += event.payload.len() as u64;
        open.priority = open.priority.max(event.priority);
        open.window.event(now, open.count, open.bytes, asked);
        let fits = self.newer_fits();
        if let Some(current) = self.current.as_mut()
            && fits
            && current.state == RunState::Running
            && current.rules.during_run == DuringRun::Interrupt
            && current.can_give_way()
        {
            current.interrupt_requested = true;
        }
        self.head_seq = seq;
        self.updated_at = now;
        met
    }

    /// When the current run can be claimed, if it is not running.
    pub fn again_at(&self) -> Option<Timestamp> {
        let current = self.current.as_ref().filter(|c| c.state != RunState::Running)?;
        Some(match (current.newer, &self.open) {
            (Newer::AtWindow, Some(open)) if self.newer_fits() => current.due_at.max(open.window.due().0),
            _ => current.due_at,
        })
    }

    /// What there is to do now. Boundaries: due at `now ≥ t`; a lease is live while `now < lease_until`.
    pub fn attention(&self, now: Timestamp) -> Attention {
        if let Some(until) = self.lease_at() {
            let over = if mutant("lease_lives_at_its_end") { now > until } else { now >= until };
            return if over { Attention::Expired } else { Attention::Wait(until) };
        }
        let Some(mut due) = self.due_at() else { return Attention::Idle };
        if mutant("due_too_early") {
            due = due.before(Duration::from_millis(20));
        }
        match self.current {
            _ if now < due => Attention::Wait(due),
            Some(_) => Attention::Again,
            None => Attention::Cut,
        }
    }

    /// When the lane can be claimed next, if it is not running: the value behind the due index.
    pub fn due_at(&self) -> Option<Timestamp> {
        let paused = self.paused.is_some() && !(mutant("pause_spares_retries") && self.current.is_some());
        if paused || (self.blocked.is_some() && !mutant("block_is_ignored")) {
            return None;
        }
        match &self.current {
            Some(c) if c.state == RunState::Running => None,
            Some(_) => self.again_at(),
            None => self.open.map(|o| o.window.due().0),
        }
    }

    /// The run of this lane that holds an event with this number and mark, if it has not ended.
    pub fn run_of(&self, seq: u64, mark: Option<u64>) -> Option<(u64, RunState)> {
        if let Some(run) = self.fixed_runs().find(|c| c.has(seq, mark)) {
            return Some((run.number, run.state));
        }
        self.open.filter(|o| mark.is_none() && o.lo <= seq).map(|o| (o.number, RunState::Pending))
    }

    /// When the run that holds this event is due as things stand; nothing when it is running or has ended.
    pub fn waits_until(&self, seq: u64, mark: Option<u64>) -> Option<Timestamp> {
        if self.current.as_ref().is_some_and(|c| c.has(seq, mark)) {
            return self.again_at();
        }
        if let Some(run) = self.queued.iter().find(|c| c.has(seq, mark)) {
            return Some(run.due_at);
        }
        self.open.filter(|o| mark.is_none() && o.lo <= seq).map(|o| o.window.due().0)
    }

    /// When the lease ends, if it is running: the value behind the lease index.
    pub fn lease_at(&self) -> Option<Timestamp> {
        self.current.as_ref().filter(|c| c.state == RunState::Running).map(|c| c.lease_until)
    }

    /// Cuts the batch out of the open run. What is left over opens a new run that is due at once.
    pub fn cut(&mut self, now: Timestamp, taken: Taken, fresh: impl FnOnce() -> u64) {
        assert!(self.current.is_none(), "a lane has one current run");
        let open = self.open.expect("only a lane with an open run is cut");
        let continued_in = self.leave_rest(&taken, taken.count, fresh);
        self.current = Some(CurrentRun {
            hi: taken.hi,
            count: taken.count,
            bytes: taken.bytes,
            // An event that was redriven as new arrived long before it joined the window.
            last_at: taken.last_at.max(open.window.first_at),
            links: Links { continued_in, ..Links::default() },
            ..open_as_run(&open, now)
        });
    }

    /// What the claim leaves behind becomes the new open run, due at once; its number, if there is any.
    /// `batch` is the number of events that are handed out together.
    fn leave_rest(&mut self, taken: &Taken, batch: u64, fresh: impl FnOnce() -> u64) -> Option<u64> {
        let open = self.open.take().expect("there is an open run to take from");
        assert!(
            taken.count >= 1 && taken.count <= open.count,
            "a batch is a non-empty prefix of the open run"
        );
        let rest = taken.rest.filter(|_| !mutant("leftover_is_forgotten"))?;
        let number = fresh();
        let full = batch >= u64::from(open.window.window.max_events);
        let by = match () {
            () if full => FiredBy::Count,
            // Cut where another source begins: the window was over for all of them, for the same reason.
            () if rest.source != open.source => open.window.due().1,
            () => FiredBy::Bytes,
        };
        self.open = Some(OpenRun {
            number,
            lo: rest.lo,
            count: open.count - taken.count,
            bytes: open.bytes - taken.bytes,
            priority: open.priority,
            window: OpenWindow {
                first_at: rest.first_at,
                step: None,
                closed: Some((by, rest.first_at)).filter(|_| !mutant("leftover_waits_again")),
                ..open.window
            },
            source: rest.source,
        });
        Some(number)
    }

    /// Whether the current run takes newer events in when it is claimed now: then the store reads the front of the
    /// open run behind this batch, and calls [`Lane::absorb`] if at least one event fits.
    pub fn takes_newer(&self, policy: &RunPolicy) -> Option<&CurrentRun> {
        let current = self.current.as_ref().filter(|c| c.state != RunState::Running)?;
        if !self.newer_fits() {
            return None;
        }
        let last = current.attempt() + 1 >= policy.max_attempts;
        match current.newer {
            Newer::No => None,
            // The last allowed attempt repeats what has failed before, so that new events do not die with it.
            Newer::AtRetry if last && !mutant("last_attempt_merges") => None,
            Newer::AtRetry | Newer::AtWindow => Some(current),
        }
    }

    /// The current run takes in the front of the open run. The open run's number keeps a record that says where its
    /// events went.
    pub fn absorb(&mut self, now: Timestamp, taken: Taken, fresh: impl FnOnce() -> u64) -> Step {
        let open = self.open.expect("there is an open run to take from");
        let before = self.current.as_ref().map_or(0, |c| c.count);
        let continued_in = self.leave_rest(&taken, before + taken.count, fresh);
        let current = self.current.as_mut().expect("a merge needs a run that takes the events in");
        current.hi = taken.hi;
        current.count += taken.count;
        current.bytes += taken.bytes;
        current.last_at = current.last_at.max(taken.last_at);
        current.priority = current.priority.max(open.priority);
        current.revision += u32::from(!mutant("merge_keeps_its_revision"));
        current.fired_by = FiredBy::Merge;
        if continued_in.is_some() {
            current.links.continued_in = continued_in;
        }
        let links = Links { merged_into: Some(current.number), continued_in, ..Links::default() };
        let run = CurrentRun {
            hi: taken.hi,
            count: 0,
            bytes: 0,
            last_at: taken.last_at,
            links,
            state: after(RunState::Pending, Change::Merged),
            ..open_as_run(&open, now)
        };
        let mut made = record(&run, Change::Merged, RunState::Pending);
        made.other_run = Some(current.number);
        self.updated_at = now;
        let finished = Finished { state: run.state, run, at: now, was_buffered: true };
        Step { finished: Some(finished), ..Step::of(made) }
    }

    /// A worker takes the current run under a lease. The attempt is counted here, so a crash counts.
    pub fn claim(&mut self, now: Timestamp, by: &Claimer) -> Move {
        let current = self.current.as_mut().expect("only a lane with a current run is claimed");
        assert!(by.token > current.token, "tokens of a lane strictly increase");
        let prior = current.worker.take();
        let from = current.state;
        current.state = after(from, Change::Claimed);
        current.claims += 1;
        // A run that was put back for one more attempt gets it, also from a process whose settings have fewer: it is the last.
        let allowed = by.policy.max_attempts.max(current.attempt());
        let once = current.single_attempt && !mutant("half_tries_again");
        current.max_attempts = if once { 1 } else { allowed };
        current.rules = by.policy.rules;
        current.notify = by.policy.notify.clone();
        current.newer = Newer::No;
        current.probe = by.probe;
        current.token = by.token;
        current.claimed_head = self.head_seq;
        current.claim_id = by.claim_id.clone();
        current.worker = Some(by.worker.clone());
        current.claimed_at = now;
        current.heartbeat_at = now;
        current.lease_until = now.after(by.policy.lease);
        self.updated_at = now;
        let mut made = record(current, Change::Claimed, from);
        made.prior_worker = prior;
        made.next_at = Some(current.lease_until);
        made
    }

    /// The envelope of the current run, as it is handed to the worker that has claimed it.
    pub fn envelope(&self, key: LaneKey, events: Vec<Event>) -> Batch {
        let run = self.current.as_ref().expect("only a claimed lane is handed over");
        Batch {
            run_id: self.run_id(run.number),
            lane: key,
            attempt: run.attempt(),
            max_attempts: run.max_attempts,
            retries: run.retries,
            token: run.token,
            revision: run.revision,
            fired_by: run.fired_by,
            first_at: run.first_at,
            last_at: run.last_at,
            claimed_at: run.claimed_at,
            lease_until: run.lease_until,
            head_seq: run.claimed_head,
            source: run.source,
            events,
        }
    }

    /// The holder is alive: its lease ends later, never earlier. It learns whether it is behind or should stop.
    pub fn extend(
        &mut self,
        now: Timestamp,
        number: u64,
        token: u64,
        lease: Duration,
    ) -> Result<Beat, NotHolder> {
        let current = held(&mut self.current, number, token)?;
        // The time of a lane never goes back, also when the clock of this call is behind (rule 31).
        let now = now.max(self.updated_at);
        current.heartbeat_at = now;
        if !mutant("extend_does_not_extend") {
            current.lease_until = current.lease_until.max(now.after(lease));
        }
        self.updated_at = now;
        Ok(Beat {
            lease_until: current.lease_until,
            head_seq: self.head_seq,
            newer: self.open.map_or(0, |o| o.count),
            interrupt: current.interrupt_requested,
            cancel: current.cancel_requested,
        })
    }

    /// The holder's request was answered: the source works, and the run is a probe no longer.
    pub fn probe_passed(&mut self, number: u64, token: u64) {
        if let Ok(current) = held(&mut self.current, number, token) {
            current.probe = false;
        }
    }

    /// Whether the current run holds this token: what steps ask.
    pub fn holder(&self, number: u64, token: u64) -> Option<&CurrentRun> {
        let current = self.current.as_ref()?;
        let token_fits = current.token == token || mutant("step_without_token");
        let holds = current.state == RunState::Running && current.number == number && token_fits;
        holds.then_some(current)
    }

    /// Whether something newer than `head` waits, for which this run may start over.
    fn is_superseded(&self, head: u64) -> bool {
        self.head_seq > head
            && !mutant("gate_ignores_newer")
            && self.newer_fits()
            && self.current.as_ref().is_some_and(CurrentRun::can_give_way)
    }

    /// The gate before an effect: the batch is frozen, or the attempt is over because newer events want to be part of
    /// it. A run that an operator has cancelled does not pass either. No step means that it was held before.
    pub fn hold(
        &mut self,
        now: Timestamp,
        number: u64,
        token: u64,
        if_head: Option<u64>,
    ) -> Result<(HoldAnswer, Option<Step>), NotHolder> {
        let current = held(&mut self.current, number, token)?;
        if current.held {
            return Ok((HoldAnswer::Held, None));
        }
        let (interrupted, cancelled) = (current.interrupt_requested, current.cancel_requested);
        if interrupted || cancelled {
            let step = self.settle(now, number, token, &Settlement::of(Verdict::Interrupted), None)?;
            return Ok((HoldAnswer::Interrupted, Some(step)));
        }
        if if_head.is_some_and(|head| self.is_superseded(head)) {
            let step = self.settle(now, number, token, &Settlement::of(Verdict::Superseded), None)?;
            return Ok((HoldAnswer::Superseded, Some(step)));
        }
        let current = held(&mut self.current, number, token)?;
        current.held = !mutant("hold_is_forgotten");
        self.updated_at = now;
        let made = record(current, Change::Held, after(current.state, Change::Held));
        Ok((HoldAnswer::Held, Some(Step::of(made))))
    }

    /// The holder ends its attempt.
    pub fn settle(
        &mut self,
        now: Timestamp,
        number: u64,
        token: u64,
        end: &Settlement,
        error: Option<String>,
    ) -> Result<Step, NotHolder> {
        let superseded = end.if_head.is_some_and(|head| self.is_superseded(head));
        let newer = self.newer_fits();
        let current = held(&mut self.current, number, token)?;
        let most = current.max_attempts + u32::from(mutant("one_attempt_more"));
        let last = current.attempt() >= most;
        let retry = if last { Change::Exhausted } else { Change::Retried };
        let change = match end.verdict {
            Verdict::Succeeded if superseded && current.cancel_requested => Change::Cancelled,
            Verdict::Succeeded if superseded => Change::Superseded,
            Verdict::Succeeded => Change::Succeeded,
            _ if current.cancel_requested && !mutant("cancel_is_forgotten") => Change::Cancelled,
            Verdict::Failed => Change::Failed,
            Verdict::Retry { .. } if end.refund => Change::ProbeFaulted,
            Verdict::Retry { .. } => retry,
            Verdict::Release if end.refund => Change::Starved,
            Verdict::Release if current.hand_backs() < limits::REFUNDS_MAX => Change::Released,
            Verdict::Release if mutant("hand_back_for_ever") => Change::Released,
            Verdict::Release if last => Change::Exhausted,
            Verdict::Release => Change::ReleasedCounted,
            Verdict::Interrupted if current.interrupt_requested => Change::Interrupted,
            Verdict::Superseded if newer && current.can_give_way() => Change::Superseded,
            // Nothing to give way to, or too often: an ordinary retry.
            Verdict::Interrupted | Verdict::Superseded => retry,
        };
        current.error = error;
        let mut step = self.end_attempt(now, change, end.delay);
        step.made.verdict = Some(end.verdict.kind());
        Ok(step)
    }

    /// The lease ran out: back to pending if attempts are left, else to the dead letter.
    pub fn reclaim(&mut self, now: Timestamp) -> Step {
        assert_eq!(self.attention(now), Attention::Expired, "only an expired lease is taken back");
        let current = self.current.as_mut().expect("an expired lane has a current run");
        if mutant("crash_resets_attempts") {
            current.refunds = current.claims;
        }
        let last = current.attempt() >= current.max_attempts && !mutant("crash_never_exhausts");
        let change = match () {
            () if current.cancel_requested && !mutant("crash_forgets_cancel") => Change::Cancelled,
            () if last => Change::Expired,
            () => Change::Reclaimed,
        };
        if change == Change::Expired {
            current.error = Some("lease expired".to_owned());
        }
        let mut step = self.end_attempt(now, change, Duration::ZERO);
        // Nobody made this change: the holder is recorded as the one who was there before.
        step.made.prior_worker = step.made.worker.take();
        step
    }

    /// One attempt is over, in whatever way.
    fn end_attempt(&mut self, now: Timestamp, change: Change, delay: Duration) -> Step {
        let current = self.current.as_mut().expect("an attempt belongs to the current run");
        current.interrupt_requested = false;
        current.newer = current.waits_for_newer();
        current.due_at = now;
        if !matches!(change, Change::Released | Change::ReleasedCounted) {
            current.releases_in_row = 0;
        }
        match change {
            Change::Retried => {
                current.retries += 1;
                current.fired_by = FiredBy::Retry;
                current.due_at = if mutant("retry_at_once") { now } else { now.after(delay) };
            }
            Change::ProbeFaulted => {
                current.refunds += 1;
                current.source_refunds += 1;
                current.fired_by = FiredBy::Retry;
                current.due_at = now.after(delay);
            }
            // It waits for its source, so a second one in a row is no loop.
            Change::Starved => {
                current.refunds += 1;
                current.source_refunds += 1;
            }
            Change::Released | Change::ReleasedCounted => {
                current.refunds += u32::from(change == Change::Released);
                current.releases_in_row += 1;
                // One hand-back is a restart somewhere; a second in a row would be a loop, so it waits.
                if current.releases_in_row > 1 {
                    current.due_at = now.after(delay);
                }
            }
            Change::Superseded | Change::Interrupted => {
                current.refunds += u32::from(!mutant("giving_way_costs_an_attempt"));
                current.interrupts += u32::from(!mutant("giving_way_costs_an_attempt"));
                current.newer = Newer::AtWindow;
            }
            Change::Failed | Change::Exhausted | Change::Expired => return self.fail(now, change),
            _ => {}
        }
        self.moved(now, change)
    }

    /// The run has failed: to the dead letter, or into halves; the lane goes on or waits for an operator.
    fn fail(&mut self, now: Timestamp, change: Change) -> Step {
        let current = self.current.as_ref().expect("a failed attempt belongs to the current run");
        let on_failed = current.rules.on_failed;
        let number = current.number;
        let held = current.held && !mutant("held_batch_is_halved");
        if on_failed == OnFailed::Bisect && current.count > 1 && !held {
            return self.moved(now, Change::Split);
        }
        let mut step = self.moved(now, change);
        if on_failed == OnFailed::Block {
            self.blocked = Some(Blocked { at: now, run: number }).filter(|_| !mutant("block_on_paper_only"));
            let made = Move { change: Change::Blocked, ..step.made.clone() };
            step.also = Some(Move { from: Some(RunState::Failed), next_at: None, ..made });
        }
        step
    }

    /// Moves the current run. If that ends it, the next frozen run takes its place.
    fn moved(&mut self, now: Timestamp, change: Change) -> Step {
        let current = self.current.as_mut().expect("a move belongs to the current run");
        let from = current.state;
        let was_buffered = current.is_buffered();
        current.state = after(from, change);
        self.updated_at = now;
        let mut made = record(current, change, from);
        if !current.state.is_final() {
            made.next_at = self.again_at();
            return Step::of(made);
        }
        let run = self.current.take().expect("it was there a line ago");
        // The check was made at the claim: what has come since is not looked at again.
        if mutant("release_in_two_steps") && change == Change::Succeeded && run.links.continued_in.is_none() {
            self.open = None;
        }
        let split = change == Change::Split;
        if !split {
            self.promote(now);
        }
        let finished = Finished { state: run.state, run, at: now, was_buffered };
        Step { finished: Some(finished), split, ..Step::of(made) }
    }

    /// The next frozen run, if any, becomes the current one.
    fn promote(&mut self, now: Timestamp) {
        if self.current.is_none() && !self.queued.is_empty() {
            let place = if mutant("last_queued_goes_first") { self.queued.len() - 1 } else { 0 };
            let mut next = self.queued.remove(place);
            next.due_at = next.due_at.max(now);
            self.current = Some(next);
        }
    }
}

/// The open run in the form of a run that has never been claimed.
fn open_as_run(open: &OpenRun, now: Timestamp) -> CurrentRun {
    let (due_at, fired_by) = open.window.due();
    let part = Part {
        number: open.number,
        lo: open.lo,
        hi: open.lo,
        count: open.count,
        bytes: open.bytes,
        first_at: open.window.first_at,
        last_at: open.window.latest_at,
        source: open.source,
    };
    CurrentRun {
        fired_by,
        due_at,
        priority: open.priority,
        max_events: open.window.window.max_events,
        max_bytes: open.window.window.max_bytes,
        ..hands::part_as_run(part, now)
    }
}

/// Priority overtakes by a bounded time: the moment at which a lane would have to be due to stand where it stands.
pub fn rank(due: Timestamp, priority: u8) -> Timestamp {
    let above = u32::from(priority.min(limits::PRIORITY_MAX));
    due.before(limits::PRIORITY_STEP * above)
}

fn held(current: &mut Option<CurrentRun>, number: u64, token: u64) -> Result<&mut CurrentRun, NotHolder> {
    current
        .as_mut()
        .filter(|c| c.state == RunState::Running || mutant("token_outlives_its_lease"))
        .filter(|c| c.number == number && (c.token == token || mutant("no_token_check")))
        .ok_or(NotHolder)
}

fn after(from: RunState, change: Change) -> RunState {
    lifecycle::next(from, change).expect("lane.rs only makes moves of the table")
}

fn record(current: &CurrentRun, change: Change, from: RunState) -> Move {
    Move {
        run: Some(current.number),
        from: Some(from),
        to: Some(current.state),
        attempt: current.attempt(),
        token: current.token,
        worker: current.worker.clone(),
        upto_seq: current.hi,
        ..plain(change)
    }
}

/// A change that concerns no run in particular.
pub fn plain(change: Change) -> Move {
    Move {
        change,
        run: None,
        from: None,
        to: None,
        attempt: 0,
        token: 0,
        worker: None,
        prior_worker: None,
        upto_seq: 0,
        next_at: None,
        other_run: None,
        verdict: None,
    }
}
