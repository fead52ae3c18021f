//! What an operator's hand, a full lane or a restored backup does to a lane.
//!
//! Like everything of `lane.rs` these are pure: the store reads what is asked for, calls one function and writes what
//! it says.

use super::{Blocked, CurrentRun, Finished, Lane, Links, Newer, OnFailed, Paused, RunRules, Step};
use super::{after, open_as_run, plain, record};
use crate::audit::Move;
use crate::clock::Timestamp;
use crate::lifecycle::{Change, RunState};
use crate::mutants::mutant;
use crate::source::SourceId;
use crate::window::{FiredBy, WindowPolicy};

/// Buffered events that leave the lane, as the store has read them.
#[derive(Debug, Clone, Copy)]
pub struct Gone {
    pub lo: u64,
    pub hi: u64,
    pub count: u64,
    pub bytes: u64,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    /// The first event of the open run that stays, if any does, and its source.
    pub rest_lo: Option<u64>,
    pub rest_source: Option<SourceId>,
}

/// Some events of a run, as the store has read them: one half of a split, or what is redriven.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    pub number: u64,
    pub lo: u64,
    pub hi: u64,
    pub count: u64,
    pub bytes: u64,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    /// That of its first event; a part that is to be claimed has only one.
    pub source: Option<SourceId>,
}

impl Lane {
    /// Closes the open window and ends a backoff, also the wait of a second hand-back. Never goes past a pause or a
    /// block: that is for the claim to see.
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

    /// Lifts the lane's own pause; if there is none, ends the block and leaves the failed run in the dead letter.
    pub fn resume(&mut self, now: Timestamp) -> Option<Move> {
        let made = match (self.paused.take(), self.blocked) {
            (Some(_), _) => {
                self.blocked = self.blocked.filter(|_| !mutant("resume_lifts_the_block_too"));
                plain(Change::Resumed)
            }
            (None, Some(blocked)) => self.unblock(blocked),
            (None, None) => return None,
        };
        self.updated_at = now;
        Some(made)
    }

    fn unblock(&mut self, blocked: Blocked) -> Move {
        self.blocked = None;
        Move { run: Some(blocked.run), ..plain(Change::Unblocked) }
    }

    /// Ends the current run, or the open run if none is current. A holder is only asked to stop: its `succeeded` still
    /// wins, any other end of its attempt is the cancellation. Nothing when there is nothing to cancel, or it was asked
    /// before.
    pub fn cancel(&mut self, now: Timestamp) -> Option<Step> {
        let asks = |c: &&mut CurrentRun| c.state == RunState::Running && !mutant("cancel_without_asking");
        if let Some(current) = self.current.as_mut().filter(asks) {
            if std::mem::replace(&mut current.cancel_requested, true) {
                return None;
            }
            self.updated_at = now;
            let made = record(current, Change::CancelRequested, current.state);
            return Some(Step::of(made));
        }
        self.ended(now)
    }

    /// Cancels without waiting for a holder, whose token is worth nothing afterwards: what an erasure needs. Nobody is
    /// told, because the notice would name the key again.
    pub fn end_now(&mut self, now: Timestamp) -> Option<Step> {
        self.ended(now).map(untold)
    }

    fn ended(&mut self, now: Timestamp) -> Option<Step> {
        if self.current.is_some() {
            return Some(self.moved(now, Change::Cancelled));
        }
        let open = self.open.take()?;
        let state = after(RunState::Pending, Change::Cancelled);
        let run = CurrentRun { hi: self.head_seq, state, ..open_as_run(&open, now) };
        self.updated_at = now;
        let made = record(&run, Change::Cancelled, RunState::Pending);
        let finished = Finished { state, run, at: now, was_buffered: true };
        Some(Step { finished: Some(finished), ..Step::of(made) })
    }

    /// Buffered events leave the lane: dropped, deleted or purged. They are kept, marked, under a run of their own that
    /// ended as cancelled, so they can be seen and redriven until the retention takes them. Events that are dropped make
    /// room for one that comes in the same step: their window stays, or a busy key would never be due.
    pub fn discard(&mut self, now: Timestamp, gone: Gone, change: Change, number: u64) -> Step {
        let open = self.open.as_mut().expect("buffered events are in the open run");
        assert!(gone.count >= 1 && gone.count <= open.count, "only buffered events are discarded");
        let state = after(RunState::Pending, change);
        let run = CurrentRun {
            number,
            state,
            lo: gone.lo,
            hi: gone.hi,
            count: gone.count,
            bytes: gone.bytes,
            first_at: gone.first_at,
            last_at: gone.last_at,
            marked: true,
            ..open_as_run(open, now)
        };
        let mut made = record(&run, change, RunState::Pending);
        made.other_run = Some(open.number);
        open.count -= if mutant("dropped_still_counted") { 0 } else { gone.count };
        open.bytes -= gone.bytes;
        match gone.rest_lo {
            Some(lo) => {
                open.lo = lo;
                open.source = gone.rest_source;
            }
            None if change == Change::Dropped => open.lo = self.head_seq + 1,
            None => {
                assert_eq!(open.count, 0, "what stays has a first event");
                self.open = None;
            }
        }
        self.updated_at = now;
        let finished = Finished { state, run, at: now, was_buffered: true };
        Step { finished: Some(finished), ..Step::of(made) }
    }

    /// Ends a run whose batch is fixed, also one that waits behind the current one. Nothing when it has ended.
    pub fn end_run(&mut self, now: Timestamp, number: u64) -> Option<Step> {
        if self.current.as_ref()?.number == number {
            return self.end_now(now);
        }
        let place = self.queued.iter().position(|c| c.number == number)?;
        let mut run = self.queued.remove(place);
        let was_buffered = run.is_buffered();
        let from = run.state;
        run.state = after(from, Change::Cancelled);
        self.updated_at = now;
        let made = record(&run, Change::Cancelled, from);
        let finished = Finished { state: run.state, run, at: now, was_buffered };
        Some(untold(Step { finished: Some(finished), ..Step::of(made) }))
    }

    /// An event from aside that cannot enter goes to the dead letter, as a run of its own.
    pub fn bury(&mut self, now: Timestamp, part: Part, error: String) -> (Move, Finished) {
        let state = after(RunState::Pending, Change::ConflictBuried);
        let run = CurrentRun { state, marked: true, error: Some(error), ..part_as_run(part, now) };
        self.updated_at = now;
        let made = record(&run, Change::ConflictBuried, RunState::Pending);
        (made, Finished { state, run, at: now, was_buffered: false })
    }

    /// Events from aside that an operator discards are kept, marked, as a run of their own that ended as cancelled.
    pub fn discard_aside(&mut self, now: Timestamp, part: Part) -> (Move, Finished) {
        let state = after(RunState::Pending, Change::Purged);
        let run = CurrentRun { state, marked: true, ..part_as_run(part, now) };
        self.updated_at = now;
        let made = record(&run, Change::Purged, RunState::Pending);
        (made, Finished { state, run, at: now, was_buffered: false })
    }

    /// The payload of one buffered event was changed.
    pub fn edit(&mut self, now: Timestamp, seq: u64, bytes_before: u64, bytes: u64) -> Move {
        let open = self.open.as_mut().expect("buffered events are in the open run");
        open.bytes = open.bytes - bytes_before + bytes;
        self.updated_at = now;
        Move {
            run: Some(open.number),
            from: Some(RunState::Pending),
            to: Some(after(RunState::Pending, Change::Edited)),
            upto_seq: seq,
            ..plain(Change::Edited)
        }
    }

    /// The payload of an event was changed while it went back into this run.
    pub fn edited_on_return(run: u64, seq: u64) -> Move {
        Move {
            run: Some(run),
            from: Some(RunState::Pending),
            to: Some(after(RunState::Pending, Change::Edited)),
            upto_seq: seq,
            ..plain(Change::Edited)
        }
    }

    /// The two halves of a run that failed: the left one is next, the right one follows, before anything newer.
    pub fn split(&mut self, now: Timestamp, parent: &CurrentRun, left: Part, right: Part) -> [Move; 2] {
        assert!(self.current.is_none(), "the parent has just left the lane");
        let half = |part: Part| CurrentRun {
            fired_by: FiredBy::Retry,
            frozen: true,
            marked: true,
            single_attempt: true,
            priority: parent.priority,
            max_events: parent.max_events,
            max_bytes: parent.max_bytes,
            max_attempts: 1,
            rules: RunRules { on_failed: OnFailed::Bisect, ..parent.rules },
            links: Links { split_from: Some(parent.number), ..Links::default() },
            ..part_as_run(part, now)
        };
        let (left, right) = (half(left), half(right));
        let moves =
            [&left, &right].map(|run| Move { from: None, ..record(run, Change::SplitOff, run.state) });
        let (first, second) = if mutant("right_half_goes_first") { (right, left) } else { (left, right) };
        self.current = Some(first);
        self.queued.insert(0, second);
        self.updated_at = now;
        moves.map(|made| Move { other_run: Some(parent.number), ..made })
    }

    /// Events of a run that ended become a new frozen run, after the current one and before anything buffered. If that
    /// run blocked the lane, it goes first and the block is over.
    pub fn redrive(&mut self, now: Timestamp, old: &CurrentRun, part: Part, fresh_steps: bool) -> Step {
        let run = CurrentRun {
            fired_by: FiredBy::Redrive,
            frozen: true,
            marked: true,
            priority: old.priority,
            max_events: old.max_events,
            max_bytes: old.max_bytes,
            // Steps are remembered under the revision: a whole run that keeps them keeps its revision, too.
            revision: if fresh_steps { 0 } else { old.revision },
            links: Links { redriven_from: Some(old.number), ..Links::default() },
            ..part_as_run(part, now)
        };
        let made =
            Move { from: None, other_run: Some(old.number), ..record(&run, Change::Redriven, run.state) };
        let mut step = Step::of(made);
        let unblocks = |b: &Blocked| b.run == old.number && !mutant("redrive_leaves_the_block");
        if let Some(blocked) = self.blocked.filter(unblocks) {
            step.also = Some(self.unblock(blocked));
            // Whatever became current behind the failed run has not been claimed, because of the block.
            if let Some(next) = self.current.replace(run) {
                self.queued.insert(0, next);
            }
        } else {
            self.queued.push(run);
        }
        self.promote(now);
        self.updated_at = now;
        step
    }

    /// Events of a run that ended joined the open run as new: what is left is the record, and the end of a block.
    pub fn redriven_as_new(&mut self, old: u64, upto_seq: u64) -> Step {
        let made = Move {
            run: self.open.map(|o| o.number),
            to: Some(RunState::Pending),
            other_run: Some(old),
            upto_seq,
            ..plain(Change::Redriven)
        };
        let mut step = Step::of(made);
        if let Some(blocked) = self.blocked.filter(|b| b.run == old) {
            step.also = Some(self.unblock(blocked));
        }
        step
    }

    /// The store was restored from a backup: whoever held the lane holds it no longer. The attempt is given back,
    /// because nobody can say what became of it.
    pub fn restored(&mut self, now: Timestamp) -> Option<Step> {
        let voids = |c: &&mut CurrentRun| c.state == RunState::Running && !mutant("restore_keeps_leases");
        let current = self.current.as_mut().filter(voids)?;
        // Whatever ends the attempt of a run that was to be cancelled, but for its holder's success, cancels it.
        let change = if current.cancel_requested { Change::Cancelled } else { Change::Restored };
        current.refunds += u32::from(change == Change::Restored);
        current.due_at = now;
        current.probe = false;
        current.interrupt_requested = false;
        current.newer = current.waits_for_newer();
        let mut step = self.moved(now, change);
        step.made.prior_worker = step.made.worker.take();
        Some(step)
    }
}

/// A step whose end nobody is told of.
fn untold(mut step: Step) -> Step {
    if let Some(finished) = &mut step.finished {
        finished.run.notify = None;
    }
    step
}

/// The record of a dead letter that an operator discards.
pub fn purged(run: &CurrentRun) -> Move {
    let made = record(run, Change::Purged, RunState::Failed);
    // An operator did it, not the worker that held the run last.
    Move { to: Some(after(RunState::Failed, Change::Purged)), worker: None, ..made }
}

/// A run that nobody has claimed yet.
pub(super) fn part_as_run(part: Part, now: Timestamp) -> CurrentRun {
    CurrentRun {
        number: part.number,
        state: RunState::Pending,
        lo: part.lo,
        hi: part.hi,
        count: part.count,
        bytes: part.bytes,
        first_at: part.first_at,
        last_at: part.last_at,
        fired_by: FiredBy::None,
        priority: 0,
        max_events: 0,
        max_bytes: 0,
        claims: 0,
        refunds: 0,
        retries: 0,
        releases_in_row: 0,
        interrupts: 0,
        revision: 0,
        max_attempts: 0,
        rules: RunRules::default(),
        newer: Newer::No,
        held: false,
        frozen: false,
        marked: false,
        single_attempt: false,
        interrupt_requested: false,
        cancel_requested: false,
        token: 0,
        claimed_head: 0,
        claim_id: None,
        worker: None,
        claimed_at: now,
        heartbeat_at: now,
        lease_until: now,
        due_at: now,
        error: None,
        links: Links::default(),
        notify: None,
        source: part.source,
        probe: false,
        source_refunds: 0,
    }
}
