//! One lane and everything that can happen to it, as pure functions.
//!
//! A lane has at most one *current* run (held by a worker, in backoff, or waiting to be claimed again) and one *open*
//! run (collecting). The claim cuts the open run into the current one; what is left over becomes a new open run in the
//! same step and is due at once. A window belongs to the open run and goes on while the current run is processed.
//!
//! Stores load a [`Lane`], call one function, and write back the lane, the [`Move`] for the audit and, when the run
//! ended, the [`Finished`] record: in one transaction. Nothing here reads a clock, draws chance or does I/O.

use std::sync::Arc;
use std::time::Duration;

use crate::audit::Move;
use crate::batch::{Batch, RunId, WorkerId};
use crate::clock::Timestamp;
use crate::event::{Event, LaneKey};
use crate::lifecycle::{self, Change, RunState};
use crate::limits;
use crate::outcome::Verdict;
use crate::window::{FiredBy, OpenWindow, Window, WindowPolicy};

/// The whole state of a lane.
#[derive(Debug, Clone, PartialEq)]
pub struct Lane {
    /// Given by the store, never used twice.
    pub id: u64,
    /// The newest event's sequence number; 0 before the first.
    pub head_seq: u64,
    pub open: Option<OpenRun>,
    pub current: Option<CurrentRun>,
    pub paused: Option<Paused>,
    pub updated_at: Timestamp,
}

/// A run that collects events.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OpenRun {
    pub number: u64,
    /// Its first event; it holds every event of the lane from here on.
    pub lo: u64,
    pub count: u64,
    pub bytes: u64,
    pub window: OpenWindow,
}

/// A run whose batch is fixed: the events lo..=hi, no other.
#[derive(Debug, Clone, PartialEq)]
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
    /// Claims so far, never refunded.
    pub claims: u32,
    pub refunds: u32,
    /// Retry outcomes so far: the exponent of the backoff.
    pub retries: u32,
    /// Hand-backs since the last other outcome; the second in a row waits.
    pub releases_in_row: u32,
    pub max_attempts: u32,
    /// The token of the latest claim; 0 before the first.
    pub token: u64,
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
}

impl CurrentRun {
    /// Claims that count against the budget.
    pub fn attempt(&self) -> u32 {
        self.claims - self.refunds
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paused {
    pub at: Timestamp,
    pub by: String,
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
    /// The current run can be claimed again.
    Again,
    /// The open run is due: cut it, then claim.
    Cut,
}

/// What the store read from the front of the open run to cut a batch.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
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
}

/// Who claims, for how long.
#[derive(Debug, Clone)]
pub struct Claimer {
    pub worker: Arc<WorkerId>,
    pub token: u64,
    pub lease: Duration,
    pub max_attempts: u32,
}

/// How a holder wants its run to end; delays are drawn by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settlement {
    pub verdict: Verdict,
    /// The wait before the next attempt of a retry, and of a repeated release.
    pub delay: Duration,
}

/// The call does not come from the holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotHolder;

/// A run that ended, as the history keeps it.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    pub run: CurrentRun,
    pub state: RunState,
    pub at: Timestamp,
}

/// What a step did: the record for the audit and, if the run ended, its history.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub made: Move,
    pub finished: Option<Finished>,
}

impl Lane {
    pub fn new(id: u64, at: Timestamp) -> Self {
        Lane { id, head_seq: 0, open: None, current: None, paused: None, updated_at: at }
    }

    pub fn run_id(&self, number: u64) -> RunId {
        RunId { lane: self.id, number }
    }

    /// Buffered and in flight together: what the lane limit bounds.
    pub fn events(&self) -> u64 {
        self.open.map_or(0, |o| o.count) + self.current.as_ref().map_or(0, |c| c.count)
    }

    pub fn state(&self) -> Option<RunState> {
        match (&self.current, &self.open) {
            (Some(current), _) => Some(current.state),
            (None, Some(_)) => Some(RunState::Pending),
            (None, None) => None,
        }
    }

    /// An event arrives: it joins the open run or opens one, whatever the current run does.
    pub fn append(
        &mut self,
        now: Timestamp,
        seq: u64,
        bytes: u64,
        window: &Window,
        fresh: impl FnOnce() -> u64,
    ) -> Met {
        assert!(seq > self.head_seq, "sequence numbers of a lane strictly increase");
        let met = match (&self.current, &self.open) {
            (Some(current), _) if current.state == RunState::Running => Met::Running,
            (None, None) => Met::Idle,
            _ => Met::Waiting,
        };
        let open = self.open.get_or_insert_with(|| OpenRun {
            number: fresh(),
            lo: seq,
            count: 0,
            bytes: 0,
            window: OpenWindow::opened(*window, now),
        });
        open.count += 1;
        open.bytes += bytes;
        open.window.event(now, open.count, open.bytes);
        self.head_seq = seq;
        self.updated_at = now;
        met
    }

    /// What there is to do now. Boundaries: due at `now ≥ t`; a lease is live while `now < lease_until`.
    pub fn attention(&self, now: Timestamp) -> Attention {
        let (due, ready) = match &self.current {
            Some(c) if c.state == RunState::Running => {
                return if now >= c.lease_until {
                    Attention::Expired
                } else {
                    Attention::Wait(c.lease_until)
                };
            }
            _ if self.paused.is_some() => return Attention::Idle,
            Some(c) => (c.due_at, Attention::Again),
            None => match &self.open {
                Some(open) => (open.window.due().0, Attention::Cut),
                None => return Attention::Idle,
            },
        };
        if now >= due { ready } else { Attention::Wait(due) }
    }

    /// When the lane can be claimed next, if it is not running: the value behind the due index.
    pub fn due_at(&self) -> Option<Timestamp> {
        if self.paused.is_some() {
            return None;
        }
        match &self.current {
            Some(c) if c.state == RunState::Running => None,
            Some(c) => Some(c.due_at),
            None => self.open.map(|o| o.window.due().0),
        }
    }

    /// When the run that holds this event is due as things stand; nothing when it is running or has ended.
    pub fn waits_until(&self, seq: u64) -> Option<Timestamp> {
        match (&self.current, &self.open) {
            (Some(c), _) if c.lo <= seq && seq <= c.hi => (c.state != RunState::Running).then_some(c.due_at),
            (_, Some(open)) if open.lo <= seq => Some(open.window.due().0),
            _ => None,
        }
    }

    /// When the lease ends, if it is running: the value behind the lease index.
    pub fn lease_at(&self) -> Option<Timestamp> {
        self.current.as_ref().filter(|c| c.state == RunState::Running).map(|c| c.lease_until)
    }

    /// Cuts the batch out of the open run. What is left over opens a new run that is due at once.
    pub fn cut(&mut self, now: Timestamp, taken: Taken, fresh: impl FnOnce() -> u64) {
        assert!(self.current.is_none(), "a lane has one current run");
        let open = self.open.take().expect("only a lane with an open run is cut");
        assert!(
            taken.count >= 1 && taken.count <= open.count,
            "a batch is a non-empty prefix of the open run"
        );
        let full = if taken.count >= u64::from(open.window.window.max_events) {
            FiredBy::Count
        } else {
            FiredBy::Bytes
        };
        self.open = taken.rest.map(|rest| OpenRun {
            number: fresh(),
            lo: rest.lo,
            count: open.count - taken.count,
            bytes: open.bytes - taken.bytes,
            window: OpenWindow {
                first_at: rest.first_at,
                closed: Some((full, rest.first_at)),
                ..open.window
            },
        });
        let (due_at, fired_by) = open.window.due();
        self.current = Some(CurrentRun {
            number: open.number,
            state: RunState::Pending,
            lo: open.lo,
            hi: taken.hi,
            count: taken.count,
            bytes: taken.bytes,
            first_at: open.window.first_at,
            last_at: taken.last_at,
            fired_by,
            claims: 0,
            refunds: 0,
            retries: 0,
            releases_in_row: 0,
            max_attempts: 0,
            token: 0,
            worker: None,
            claimed_at: now,
            heartbeat_at: now,
            lease_until: now,
            due_at,
            error: None,
        });
    }

    /// A worker takes the current run under a lease. The attempt is counted here, so a crash counts.
    pub fn claim(&mut self, now: Timestamp, by: &Claimer) -> Move {
        let current = self.current.as_mut().expect("only a lane with a current run is claimed");
        assert!(by.token > current.token, "tokens of a lane strictly increase");
        let prior = current.worker.take();
        let from = current.state;
        current.state = after(from, Change::Claimed);
        current.claims += 1;
        current.max_attempts = by.max_attempts;
        current.token = by.token;
        current.worker = Some(by.worker.clone());
        current.claimed_at = now;
        current.heartbeat_at = now;
        current.lease_until = now.after(by.lease);
        self.updated_at = now;
        let mut made = record(current, Change::Claimed, from);
        made.prior_worker = prior;
        made.next_at = Some(current.lease_until);
        made
    }

    /// The envelope of the current run, as it is handed to the worker that has just claimed it.
    pub fn envelope(&self, key: LaneKey, events: Vec<Event>) -> Batch {
        let run = self.current.as_ref().expect("only a claimed lane is handed over");
        Batch {
            run_id: self.run_id(run.number),
            lane: key,
            attempt: run.attempt(),
            max_attempts: run.max_attempts,
            retries: run.retries,
            token: run.token,
            fired_by: run.fired_by,
            first_at: run.first_at,
            last_at: run.last_at,
            claimed_at: run.claimed_at,
            lease_until: run.lease_until,
            head_seq: self.head_seq,
            events,
        }
    }

    /// The holder is alive: its lease ends later, never earlier.
    pub fn extend(
        &mut self,
        now: Timestamp,
        number: u64,
        token: u64,
        lease: Duration,
    ) -> Result<Timestamp, NotHolder> {
        let current = held(&mut self.current, number, token)?;
        current.heartbeat_at = now;
        current.lease_until = current.lease_until.max(now.after(lease));
        let until = current.lease_until;
        self.updated_at = now;
        Ok(until)
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
        let current = held(&mut self.current, number, token)?;
        current.error = error;
        let last = current.attempt() >= current.max_attempts;
        let change = match end.verdict {
            Verdict::Succeeded => Change::Succeeded,
            Verdict::Failed => Change::Failed,
            Verdict::Retry { .. } if last => Change::Exhausted,
            Verdict::Retry { .. } => Change::Retried,
            Verdict::Release if current.refunds < limits::REFUNDS_MAX => Change::Released,
            Verdict::Release if last => Change::Exhausted,
            Verdict::Release => Change::ReleasedCounted,
        };
        let from = current.state;
        match change {
            Change::Retried => {
                current.retries += 1;
                current.releases_in_row = 0;
                current.fired_by = FiredBy::Retry;
                current.due_at = now.after(end.delay);
            }
            Change::Released | Change::ReleasedCounted => {
                if change == Change::Released {
                    current.refunds += 1;
                }
                current.releases_in_row += 1;
                // One hand-back is a restart somewhere; a second in a row would be a loop, so it waits.
                current.due_at = if current.releases_in_row > 1 { now.after(end.delay) } else { now };
            }
            _ => {}
        }
        Ok(self.moved(now, from, change))
    }

    /// The lease ran out: back to pending if attempts are left, else to the dead letter.
    pub fn reclaim(&mut self, now: Timestamp) -> Step {
        assert_eq!(self.attention(now), Attention::Expired, "only an expired lease is taken back");
        let current = self.current.as_mut().expect("an expired lane has a current run");
        let last = current.attempt() >= current.max_attempts;
        let change = if last { Change::Expired } else { Change::Reclaimed };
        if last {
            current.error = Some("lease expired".to_owned());
        }
        current.due_at = now;
        let from = current.state;
        let mut step = self.moved(now, from, change);
        // Nobody made this change: the holder is recorded as the one who was there before.
        step.made.prior_worker = step.made.worker.take();
        step
    }

    /// Closes the open window and ends a backoff, also the wait of a second hand-back. Never goes past a pause: that is
    /// for the claim to see.
    pub fn flush(&mut self, now: Timestamp) -> Option<Move> {
        let mut made = None;
        if let Some(current) = self.current.as_mut()
            && current.state != RunState::Running
            && current.due_at > now
        {
            current.due_at = now;
            made = Some(record(current, Change::Flushed, current.state));
        }
        // An overdue quiet window, too: otherwise the next event would open it again. The others stay over by themselves.
        if let Some(open) = self.open.as_mut()
            && open.window.closed.is_none()
            && (open.window.due().0 > now || matches!(open.window.window.policy, WindowPolicy::Quiet { .. }))
        {
            open.window.close(FiredBy::Flush, now);
            let number = open.number;
            made.get_or_insert_with(|| Move {
                run: Some(number),
                from: Some(RunState::Pending),
                to: Some(RunState::Pending),
                ..plain(Change::Flushed)
            });
        }
        if made.is_some() {
            self.updated_at = now;
        }
        made
    }

    /// Stops new claims; a running attempt goes on, windows and backoff too.
    pub fn pause(&mut self, now: Timestamp, by: &str) -> Option<Move> {
        if self.paused.is_some() {
            return None;
        }
        self.paused = Some(Paused { at: now, by: by.to_owned() });
        self.updated_at = now;
        Some(plain(Change::Paused))
    }

    pub fn resume(&mut self, now: Timestamp) -> Option<Move> {
        self.paused.take()?;
        self.updated_at = now;
        Some(plain(Change::Resumed))
    }

    fn moved(&mut self, now: Timestamp, from: RunState, change: Change) -> Step {
        let current = self.current.as_mut().expect("a move belongs to the current run");
        current.state = after(from, change);
        self.updated_at = now;
        let mut made = record(current, change, from);
        if current.state.is_final() {
            let run = self.current.take().expect("it was there a line ago");
            let state = run.state;
            return Step { made, finished: Some(Finished { run, state, at: now }) };
        }
        made.next_at = Some(current.due_at);
        Step { made, finished: None }
    }
}

/// Whether a settle with `verdict` is what the trail has recorded as `change`: a repeated call gets the same answer.
pub fn same_settlement(verdict: Verdict, change: Change) -> bool {
    match verdict {
        Verdict::Succeeded => change == Change::Succeeded,
        Verdict::Failed => change == Change::Failed,
        Verdict::Retry { .. } => matches!(change, Change::Retried | Change::Exhausted),
        Verdict::Release => matches!(change, Change::Released | Change::ReleasedCounted | Change::Exhausted),
    }
}

/// Whether the trail's `change` ended an attempt by its holder's own word.
pub fn is_settlement(change: Change) -> bool {
    use Change::{Exhausted, Failed, Released, ReleasedCounted, Retried, Succeeded};
    matches!(change, Succeeded | Failed | Retried | Exhausted | Released | ReleasedCounted)
}

fn held(current: &mut Option<CurrentRun>, number: u64, token: u64) -> Result<&mut CurrentRun, NotHolder> {
    current
        .as_mut()
        .filter(|c| c.state == RunState::Running && c.number == number && c.token == token)
        .ok_or(NotHolder)
}

fn after(from: RunState, change: Change) -> RunState {
    lifecycle::next(from, change).expect("lane.rs only makes moves of the table")
}

fn record(current: &CurrentRun, change: Change, from: RunState) -> Move {
    Move {
        change,
        run: Some(current.number),
        from: Some(from),
        to: Some(current.state),
        attempt: current.attempt(),
        token: current.token,
        worker: current.worker.clone(),
        prior_worker: None,
        upto_seq: current.hi,
        next_at: None,
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
    }
}
