//! The life of one attempt: from the claim to the settlement, its lease kept meanwhile.
//!
//! ```text
//! Claiming ──dispatch──▶ Processing ──outcome──▶ ReportingSuccess | ReportingFailure ──settled──▶ Done
//! ```
//!
//! # The lease
//!
//! All moments are counted from when a claim or an extend was **sent**: the store cannot have started the lease earlier.
//! A batch that waited so long before its handler could start that the first renewal is due is renewed *before* dispatch.
//! At `stop_at` without a confirmed renewal the handler is stopped, and the run is handed back if the store still takes
//! it. A refused renewal (`lost lease`) stops the handler at once, and nothing is settled: somebody else has the run.
//!
//! # Giving way
//!
//! A renewal also tells whether newer events interrupted the run or an operator cancelled it. Then the handler is told
//! (`Stopping`, [`RunDriver::is_unwanted`]), stopped after its `stop_grace`, and the attempt settled as `interrupted` or
//! handed back, which the store turns into the cancellation. So that this does not wait for the next heartbeat,
//! [`RunInput::Look`] brings a renewal forward, at most one per `look_every`: a run shorter than that pays for none. A
//! handler that answers in the same moment is believed.
//!
//! A handler that asked at the gate and was told to give way ([`RunInput::GaveWay`]) has ended its own attempt: it may
//! clean up for a moment, then it is stopped, and nothing more is settled or renewed.
//!
//! # The end
//!
//! An outcome that arrives while a renewal is in flight waits for its answer, so that renewal and settlement never race.
//! A settlement whose answer is temporary or unknown is repeated, the very same one, until one lease after `stop_at`;
//! nothing else may ever be settled for this token. A stopped handler is settled only after its end is confirmed
//! ([`HandlerEnd::Stopped`]), so a handed-back run never overlaps with its own earlier attempt.

use std::sync::Arc;
use std::time::Duration;

use super::run_state::{HandlerEnd, OnError, RunEffect, RunEnd, RunInput, RunPhase, RunSettings, RunTicket};
use crate::clock::Tick;
use crate::error::{ErrorKind, StoreError, StoreResult};
use crate::lease;
use crate::lifecycle::RunState;
use crate::outcome::{Outcome, Verdict};
use crate::store::{ExtendRequest, Extended, SettleRequest, Settled};

/// The first pause before a settlement is repeated; it doubles up to [`SETTLE_PAUSE_MAX`].
const SETTLE_PAUSE: Duration = Duration::from_millis(50);
const SETTLE_PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long a handler may go on after the gate told it to give way: its run may be under way elsewhere.
const GAVE_WAY_GRACE: Duration = Duration::from_secs(1);

/// Why a handler was told to stop; decides what is settled afterwards.
#[derive(Debug, Clone, PartialEq)]
enum Stop {
    Shutdown,
    LeaseUnsure,
    TimeLimit,
    Lost(StoreError),
    /// Newer events want to be part of the batch.
    Interrupted,
    /// An operator ended the run.
    Cancelled,
    /// The gate has ended the attempt; the run stands so.
    GaveWay(RunState),
}

impl Stop {
    fn why(&self) -> &'static str {
        match self {
            Stop::Shutdown => "the worker is stopping",
            Stop::LeaseUnsure => "the lease could not be renewed in time",
            Stop::TimeLimit => "the time limit has passed",
            Stop::Lost(_) => "the lease was taken back",
            Stop::Interrupted => "newer events interrupted it",
            Stop::Cancelled => "an operator cancelled it",
            Stop::GaveWay(_) => "it gave way to newer events",
        }
    }
}

#[derive(Debug)]
pub struct RunDriver {
    ticket: RunTicket,
    settings: Arc<RunSettings>,
    /// Drawn for this attempt from [0, 1): the jitter of a backoff.
    chance: f64,
    phase: RunPhase,
    /// The last confirmed lease is sure until here by this worker's clock.
    stop_at: Tick,
    next_beat: Tick,
    /// When the extend in flight was sent.
    extending: Option<Tick>,
    /// When the claim or the latest extend was sent: what the store has told since is not known yet.
    heard: Tick,
    /// Something happened in the store since.
    look: bool,
    time_limit_at: Option<Tick>,
    finish_by: Option<Tick>,
    stop: Option<Stop>,
    /// The handler was told that its work is not wanted any more, and is stopped at this moment if it has not ended.
    unwanted: Option<(Tick, Stop)>,
    /// Decided by the handler's end, fixed from then on.
    report: Option<SettleRequest>,
    settling: bool,
    settle_at: Tick,
    settle_pause: Duration,
    woken_at: Option<Tick>,
}

impl RunDriver {
    /// `sent` is the moment at which the claim was sent; `chance` is drawn from [0, 1).
    pub fn new(ticket: RunTicket, settings: Arc<RunSettings>, sent: Tick, chance: f64) -> Self {
        let lease = settings.lease;
        RunDriver {
            ticket,
            settings,
            chance,
            phase: RunPhase::Claiming,
            stop_at: lease::stop_at(sent, lease),
            next_beat: sent.after(lease::heartbeat_every(lease)),
            extending: None,
            heard: sent,
            look: false,
            time_limit_at: None,
            finish_by: None,
            stop: None,
            unwanted: None,
            report: None,
            settling: false,
            settle_at: Tick::default(),
            settle_pause: SETTLE_PAUSE,
            woken_at: None,
        }
    }

    pub fn phase(&self) -> RunPhase {
        self.phase
    }

    pub fn ticket(&self) -> RunTicket {
        self.ticket
    }

    /// Until this moment the lease is sure by the worker's own clock.
    pub fn stop_at(&self) -> Tick {
        self.stop_at
    }

    /// Whether what the handler does is no longer wanted: it was interrupted, cancelled, or gave way.
    pub fn is_unwanted(&self) -> bool {
        let stopped = matches!(self.stop, Some(Stop::Interrupted | Stop::Cancelled | Stop::GaveWay(_)));
        stopped || self.unwanted.is_some()
    }

    pub fn step(&mut self, now: Tick, input: RunInput, out: &mut Vec<RunEffect>) {
        if self.phase == RunPhase::Done {
            return;
        }
        match input {
            RunInput::Start | RunInput::Timer => {}
            RunInput::Extended(answer) => self.extended(now, answer, out),
            RunInput::HandlerEnded(end) => self.handler_ended(end, out),
            RunInput::Settled(answer) => self.settled(now, answer, out),
            RunInput::Look => self.look = true,
            RunInput::GaveWay { state, .. } => self.gave_way(now, state, out),
            RunInput::Lost(error) => self.lost(error, out),
            RunInput::Shutdown { finish_by } => self.shutdown(finish_by, out),
        }
        match self.phase {
            RunPhase::Claiming => self.before_dispatch(now, out),
            RunPhase::Processing => self.processing(now, out),
            RunPhase::ReportingSuccess | RunPhase::ReportingFailure | RunPhase::Done => {}
        }
        if matches!(self.phase, RunPhase::ReportingSuccess | RunPhase::ReportingFailure) {
            self.reporting(now, out);
        }
        if self.phase != RunPhase::Done {
            self.wake(out);
        }
    }

    /// Before the handler starts: renew first if little is left, give up if nothing is.
    fn before_dispatch(&mut self, now: Tick, out: &mut Vec<RunEffect>) {
        match &self.stop {
            Some(Stop::Lost(error)) => return self.end(RunEnd::Lost(error.clone()), out),
            Some(Stop::Interrupted) => return self.decide(Outcome::interrupted()),
            Some(Stop::Cancelled) => return self.decide(cancelled()),
            _ => {}
        }
        if now >= self.stop_at {
            return self.decide(Outcome::release("the lease was nearly over before the handler could start"));
        }
        if self.extending.is_some() {
            return;
        }
        if self.finish_by.is_some() {
            return self.decide(Outcome::release("the worker is stopping"));
        }
        if now >= self.next_beat {
            return self.extend(now, out);
        }
        // A failed renewal leaves `next_beat` in the future although nothing was confirmed.
        if now.after(lease::heartbeat_every(self.settings.lease)) > self.stop_at {
            return;
        }
        self.phase = RunPhase::Processing;
        self.time_limit_at = self.settings.time_limit.map(|limit| now.after(limit));
        out.push(RunEffect::Dispatch);
    }

    /// While the handler runs, or its outcome waits for a renewal's answer.
    fn processing(&mut self, now: Tick, out: &mut Vec<RunEffect>) {
        if self.report.is_some() {
            // Joined: renewal first, then the settlement. The lease's end bounds the wait.
            if self.extending.is_none() || now >= self.stop_at {
                self.report_phase();
            }
            return;
        }
        if self.stop.is_some() {
            // It was told to stop and does not: a handler that blocks its thread. Nothing may be settled beside it.
            if now >= self.give_up_at() {
                self.end(RunEnd::GaveUp("the handler did not stop when it was told to".to_owned()), out);
            }
            return;
        }
        match &self.unwanted {
            Some((at, stop)) if now >= *at => return self.stop_handler(stop.clone(), out),
            // The attempt is over: there is no lease to keep.
            Some((_, Stop::GaveWay(_))) => return,
            _ => {}
        }
        if now >= self.stop_at {
            return self.stop_handler(Stop::LeaseUnsure, out);
        }
        if self.finish_by.is_some_and(|at| now >= at) {
            return self.stop_handler(Stop::Shutdown, out);
        }
        if self.time_limit_at.is_some_and(|at| now >= at) {
            return self.stop_handler(Stop::TimeLimit, out);
        }
        if now >= self.beat_at() && self.extending.is_none() {
            self.extend(now, out);
        }
    }

    fn reporting(&mut self, now: Tick, out: &mut Vec<RunEffect>) {
        if now >= self.give_up_at() {
            let text = "the store did not take the outcome; the lease expires and the run is tried again";
            return self.end(RunEnd::GaveUp(text.to_owned()), out);
        }
        if let Some(report) = self.report.as_ref().filter(|_| !self.settling && now >= self.settle_at) {
            out.push(RunEffect::Settle(report.clone()));
            self.settling = true;
        }
    }

    /// The next renewal: at the heartbeat, or earlier to learn what happened.
    fn beat_at(&self) -> Tick {
        let look_at = self.heard.after(self.settings.look_every);
        if self.look { self.next_beat.min(look_at) } else { self.next_beat }
    }

    fn extend(&mut self, now: Tick, out: &mut Vec<RunEffect>) {
        self.extending = Some(now);
        self.heard = now;
        self.look = false;
        let RunTicket { run_id, token, .. } = self.ticket;
        out.push(RunEffect::Extend(ExtendRequest { run_id, token, lease: self.settings.lease }));
    }

    fn extended(&mut self, now: Tick, answer: StoreResult<Extended>, out: &mut Vec<RunEffect>) {
        let Some(sent) = self.extending.take() else { return };
        let lease = self.settings.lease;
        match answer {
            Ok(beat) => {
                self.stop_at = self.stop_at.max(lease::stop_at(sent, lease));
                self.next_beat = sent.after(lease::heartbeat_every(lease));
                if beat.cancel {
                    self.not_wanted(now, self.settings.stop_grace, Stop::Cancelled, out);
                } else if beat.interrupt {
                    self.not_wanted(now, self.settings.stop_grace, Stop::Interrupted, out);
                }
            }
            Err(error) if is_lost(&error) => self.lost(error, out),
            // Not confirmed: try again soon, so that several tries fit before `stop_at`.
            Err(_) => self.next_beat = now.after((lease / 20).min(Duration::from_secs(1))),
        }
    }

    /// The store says that this token holds nothing (any more).
    fn lost(&mut self, error: StoreError, out: &mut Vec<RunEffect>) {
        if self.gave_way_to().is_some() {
            return; // That is known.
        }
        match self.phase {
            RunPhase::Claiming => self.stop = Some(Stop::Lost(error)),
            // The handler has ended already: nothing to stop, and nothing may be settled.
            RunPhase::Processing if self.report.is_some() => self.end(RunEnd::Lost(error), out),
            RunPhase::Processing if self.stop.is_none() => self.stop_handler(Stop::Lost(error), out),
            RunPhase::Processing => self.stop = Some(Stop::Lost(error)),
            // The settlement in flight will be told the same.
            RunPhase::ReportingSuccess | RunPhase::ReportingFailure | RunPhase::Done => {}
        }
    }

    /// Tells the handler that its work is not wanted any more; it is stopped a little later.
    fn not_wanted(&mut self, now: Tick, grace: Duration, stop: Stop, out: &mut Vec<RunEffect>) {
        match self.phase {
            RunPhase::Claiming if self.stop.is_none() => self.stop = Some(stop),
            RunPhase::Processing
                if self.report.is_none() && self.stop.is_none() && self.unwanted.is_none() =>
            {
                self.unwanted = Some((now.after(grace).min(self.stop_at), stop));
                out.push(RunEffect::Stopping);
            }
            // It has ended or is being stopped: what it answers goes to the store, which knows best.
            _ => {}
        }
    }

    /// The gate ended the attempt: whatever the handler answers from here on, nothing more is settled.
    fn gave_way(&mut self, now: Tick, state: RunState, out: &mut Vec<RunEffect>) {
        if self.phase != RunPhase::Processing || self.report.is_some() {
            return self.end(RunEnd::Settled { state }, out);
        }
        match self.stop {
            Some(_) => self.stop = Some(Stop::GaveWay(state)),
            None => {
                self.unwanted = None;
                self.not_wanted(now, GAVE_WAY_GRACE, Stop::GaveWay(state), out);
            }
        }
    }

    fn gave_way_to(&self) -> Option<RunState> {
        match (&self.stop, &self.unwanted) {
            (Some(Stop::GaveWay(state)), _) | (_, Some((_, Stop::GaveWay(state)))) => Some(*state),
            _ => None,
        }
    }

    fn handler_ended(&mut self, end: HandlerEnd, out: &mut Vec<RunEffect>) {
        if self.phase != RunPhase::Processing || self.report.is_some() {
            return;
        }
        if let Some(state) = self.gave_way_to() {
            return self.end(RunEnd::Settled { state }, out);
        }
        if let Some(Stop::Lost(error)) = &self.stop {
            return self.end(RunEnd::Lost(error.clone()), out);
        }
        let unclassified = |text: String| match self.settings.on_error {
            OnError::Failed => Outcome::failed(text),
            OnError::Retry => Outcome::retry(text),
        };
        let outcome = match end {
            HandlerEnd::Outcome(outcome) => outcome,
            HandlerEnd::Error(text) => unclassified(text),
            HandlerEnd::Panicked(text) => unclassified(format!("the handler panicked: {text}")),
            HandlerEnd::Stopped => match self.stop {
                Some(Stop::TimeLimit) => {
                    let limit = self.settings.time_limit.unwrap_or_default();
                    Outcome::retry(format!("the handler was stopped after its time limit of {limit:?}"))
                }
                Some(Stop::Interrupted) => Outcome::interrupted(),
                Some(Stop::Cancelled) => cancelled(),
                Some(ref stop) => Outcome::release(stop.why()),
                None => Outcome::release(Stop::Shutdown.why()),
            },
        };
        self.decide(outcome);
    }

    /// Fixes what will be settled. Nothing changes it afterwards.
    fn decide(&mut self, outcome: Outcome) {
        let RunTicket { run_id, token, retries, .. } = self.ticket;
        let report = SettleRequest::of(run_id, token, outcome, &self.settings.retry, retries, self.chance);
        self.report = Some(report);
        if self.phase == RunPhase::Claiming {
            self.report_phase();
        }
    }

    fn report_phase(&mut self) {
        let succeeded = self.report.as_ref().is_some_and(|r| r.verdict == Verdict::Succeeded);
        self.phase = if succeeded { RunPhase::ReportingSuccess } else { RunPhase::ReportingFailure };
    }

    fn settled(&mut self, now: Tick, answer: StoreResult<Settled>, out: &mut Vec<RunEffect>) {
        if !std::mem::take(&mut self.settling) {
            return;
        }
        match answer {
            Ok(settled) => self.end(RunEnd::Settled { state: settled.state }, out),
            Err(error) if error.is_temporary() => {
                self.settle_at = now.after(self.settle_pause);
                self.settle_pause = (self.settle_pause * 2).min(SETTLE_PAUSE_MAX);
            }
            Err(error) if is_lost(&error) => self.end(RunEnd::Lost(error), out),
            Err(error) => self.end(RunEnd::GaveUp(error.to_string()), out),
        }
    }

    fn shutdown(&mut self, finish_by: Tick, out: &mut Vec<RunEffect>) {
        if self.finish_by.is_none() && self.phase == RunPhase::Processing && self.report.is_none() {
            out.push(RunEffect::Stopping);
        }
        self.finish_by = Some(self.finish_by.map_or(finish_by, |at| at.min(finish_by)));
    }

    fn stop_handler(&mut self, stop: Stop, out: &mut Vec<RunEffect>) {
        out.push(RunEffect::StopHandler(stop.why()));
        self.stop = Some(stop);
    }

    fn end(&mut self, end: RunEnd, out: &mut Vec<RunEffect>) {
        self.phase = RunPhase::Done;
        out.push(RunEffect::Ended(end));
    }

    fn give_up_at(&self) -> Tick {
        self.stop_at.after(self.settings.lease)
    }

    /// Asks for the next moment at which this machine has something to decide, if it changed.
    fn wake(&mut self, out: &mut Vec<RunEffect>) {
        let beat = self.extending.is_none().then(|| self.beat_at());
        let unwanted = self.unwanted.as_ref().map(|(at, _)| *at);
        let at = match self.phase {
            RunPhase::Claiming if self.extending.is_some() => self.stop_at,
            RunPhase::Claiming => self.next_beat.min(self.stop_at),
            RunPhase::Processing if self.report.is_some() => self.stop_at,
            RunPhase::Processing if self.stop.is_some() => self.give_up_at(),
            RunPhase::Processing if self.gave_way_to().is_some() => unwanted.unwrap_or(self.stop_at),
            RunPhase::Processing => {
                let others = [beat, self.time_limit_at, self.finish_by, unwanted];
                others.into_iter().flatten().fold(self.stop_at, Tick::min)
            }
            RunPhase::ReportingSuccess | RunPhase::ReportingFailure if self.settling => self.give_up_at(),
            RunPhase::ReportingSuccess | RunPhase::ReportingFailure => self.settle_at.min(self.give_up_at()),
            RunPhase::Done => return,
        };
        if self.woken_at != Some(at) {
            self.woken_at = Some(at);
            out.push(RunEffect::WakeAt(at));
        }
    }
}

/// The store makes the cancellation of any end but success.
fn cancelled() -> Outcome {
    Outcome::release("an operator cancelled the run")
}

/// The store says that this token holds nothing (any more).
fn is_lost(error: &StoreError) -> bool {
    matches!(error.kind, ErrorKind::LostLease | ErrorKind::AlreadySettled | ErrorKind::NotFound)
}
