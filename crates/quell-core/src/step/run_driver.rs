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
use crate::limits;
use crate::outcome::{Outcome, Verdict};
use crate::store::{ExtendRequest, Extended, SettleRequest, Settled};

/// The first pause before a settlement is repeated; it doubles up to [`SETTLE_PAUSE_MAX`].
const SETTLE_PAUSE: Duration = Duration::from_millis(50);
const SETTLE_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Why a handler was told to stop; decides what is settled afterwards.
#[derive(Debug, Clone, PartialEq)]
enum Stop {
    Shutdown,
    LeaseUnsure,
    TimeLimit,
    Lost(StoreError),
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
    time_limit_at: Option<Tick>,
    finish_by: Option<Tick>,
    stop: Option<Stop>,
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
            time_limit_at: None,
            finish_by: None,
            stop: None,
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

    pub fn step(&mut self, now: Tick, input: RunInput, out: &mut Vec<RunEffect>) {
        if self.phase == RunPhase::Done {
            return;
        }
        match input {
            RunInput::Start | RunInput::Timer => {}
            RunInput::Extended(answer) => self.extended(now, answer, out),
            RunInput::HandlerEnded(end) => self.handler_ended(end, out),
            RunInput::Settled(answer) => self.settled(now, answer, out),
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
        if let Some(Stop::Lost(error)) = &self.stop {
            return self.end(RunEnd::Lost(error.clone()), out);
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
        if now >= self.stop_at {
            return self.stop_handler(Stop::LeaseUnsure, "the lease could not be renewed in time", out);
        }
        if self.finish_by.is_some_and(|at| now >= at) {
            return self.stop_handler(Stop::Shutdown, "the worker is stopping", out);
        }
        if self.time_limit_at.is_some_and(|at| now >= at) {
            return self.stop_handler(Stop::TimeLimit, "the time limit has passed", out);
        }
        if now >= self.next_beat && self.extending.is_none() {
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

    fn extend(&mut self, now: Tick, out: &mut Vec<RunEffect>) {
        self.extending = Some(now);
        let RunTicket { run_id, token, .. } = self.ticket;
        out.push(RunEffect::Extend(ExtendRequest { run_id, token, lease: self.settings.lease }));
    }

    fn extended(&mut self, now: Tick, answer: StoreResult<Extended>, out: &mut Vec<RunEffect>) {
        let Some(sent) = self.extending.take() else { return };
        let lease = self.settings.lease;
        match answer {
            Ok(_) => {
                self.stop_at = self.stop_at.max(lease::stop_at(sent, lease));
                self.next_beat = sent.after(lease::heartbeat_every(lease));
            }
            Err(error) if is_lost(&error) => match self.phase {
                RunPhase::Claiming => self.stop = Some(Stop::Lost(error)),
                // The handler has ended already: nothing to stop, and nothing may be settled.
                RunPhase::Processing if self.report.is_some() => self.end(RunEnd::Lost(error), out),
                RunPhase::Processing if self.stop.is_none() => {
                    self.stop_handler(Stop::Lost(error), "the lease was taken back", out);
                }
                RunPhase::Processing => self.stop = Some(Stop::Lost(error)),
                // The settlement in flight will be told the same.
                RunPhase::ReportingSuccess | RunPhase::ReportingFailure | RunPhase::Done => {}
            },
            // Not confirmed: try again soon, so that several tries fit before `stop_at`.
            Err(_) => self.next_beat = now.after((lease / 20).min(Duration::from_secs(1))),
        }
    }

    fn handler_ended(&mut self, end: HandlerEnd, out: &mut Vec<RunEffect>) {
        if self.phase != RunPhase::Processing || self.report.is_some() {
            return;
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
                Some(Stop::LeaseUnsure) => Outcome::release("the lease could not be renewed in time"),
                Some(Stop::Shutdown | Stop::Lost(_)) | None => Outcome::release("the worker is stopping"),
            },
        };
        self.decide(outcome);
    }

    /// Fixes what will be settled. Nothing changes it afterwards.
    fn decide(&mut self, outcome: Outcome) {
        let Outcome { verdict, error, result, usage } = outcome.bounded();
        let retry = &self.settings.retry;
        let (verdict, delay) = match verdict {
            Verdict::Retry { after: Some(after) } => {
                let after = after.min(limits::RETRY_AFTER_MAX);
                (Verdict::Retry { after: Some(after) }, after)
            }
            Verdict::Retry { after: None } => (verdict, retry.delay(self.ticket.retries, self.chance)),
            Verdict::Release => (verdict, retry.base),
            // Treated as a retry when there is nothing to give way to.
            Verdict::Interrupted | Verdict::Superseded => {
                (verdict, retry.delay(self.ticket.retries, self.chance))
            }
            Verdict::Succeeded | Verdict::Failed => (verdict, Duration::ZERO),
        };
        let RunTicket { run_id, token, .. } = self.ticket;
        self.report =
            Some(SettleRequest { delay, error, result, usage, ..SettleRequest::new(run_id, token, verdict) });
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

    fn stop_handler(&mut self, stop: Stop, why: &'static str, out: &mut Vec<RunEffect>) {
        self.stop = Some(stop);
        out.push(RunEffect::StopHandler(why));
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
        let beat = self.extending.is_none().then_some(self.next_beat);
        let at = match self.phase {
            RunPhase::Claiming => beat.map_or(self.stop_at, |b| b.min(self.stop_at)),
            RunPhase::Processing if self.report.is_some() => self.stop_at,
            RunPhase::Processing if self.stop.is_some() => self.give_up_at(),
            RunPhase::Processing => {
                let others = [beat, self.time_limit_at, self.finish_by];
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

/// The store says that this token holds nothing (any more).
fn is_lost(error: &StoreError) -> bool {
    matches!(error.kind, ErrorKind::LostLease | ErrorKind::AlreadySettled | ErrorKind::NotFound)
}
