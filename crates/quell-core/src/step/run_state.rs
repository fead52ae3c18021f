//! The words of a run's driver: its phases and settings, what it hears and what it asks for.
//!
//! `run_driver.rs` decides; the runtime or the simulator performs each [`RunEffect`] and answers with a [`RunInput`].

use std::time::Duration;

use crate::batch::{Batch, RunId};
use crate::clock::Tick;
use crate::error::{StoreError, StoreResult};
use crate::lifecycle::RunState;
use crate::limits;
use crate::outcome::Outcome;
use crate::retry::RetryPolicy;
use crate::store::{ExtendRequest, Extended, HoldAnswer, SettleRequest, Settled};

/// How the runs of a queue are driven.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSettings {
    pub lease: Duration,
    pub retry: RetryPolicy,
    pub on_error: OnError,
    /// A handler that takes longer is stopped and the run tried again.
    pub time_limit: Option<Duration>,
    /// After a [`RunInput::Look`] the lease is renewed this long after the last word with the store: often where newer
    /// events may interrupt a run, seldom where only an operator may.
    pub look_every: Duration,
    /// Between telling a handler that its work is not wanted any more and stopping it. Nothing for a handler whose
    /// future is simply dropped; a program needs a moment after SIGTERM.
    pub stop_grace: Duration,
}

impl RunSettings {
    /// How soon newer events are noticed where they interrupt. Short against what people notice, long against what a
    /// renewal costs the store.
    pub const LOOK_SOON: Duration = Duration::from_millis(200);
    /// How soon a cancellation is noticed elsewhere.
    pub const LOOK_SELDOM: Duration = Duration::from_secs(1);
}

impl Default for RunSettings {
    fn default() -> Self {
        RunSettings {
            lease: limits::LEASE_DEFAULT,
            retry: RetryPolicy::default(),
            on_error: OnError::Failed,
            time_limit: None,
            look_every: RunSettings::LOOK_SELDOM,
            stop_grace: Duration::ZERO,
        }
    }
}

/// What an unclassified error or a panic becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    Failed,
    Retry,
}

/// The little that a driver needs to know of its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunTicket {
    pub run_id: RunId,
    pub token: u64,
    /// Earlier retry outcomes of the run.
    pub retries: u32,
}

impl RunTicket {
    pub fn of(batch: &Batch) -> Self {
        RunTicket { run_id: batch.run_id, token: batch.token, retries: batch.retries }
    }
}

/// How a handler ended.
#[derive(Debug, Clone, PartialEq)]
pub enum HandlerEnd {
    Outcome(Outcome),
    /// An error that the handler did not classify.
    Error(String),
    Panicked(String),
    /// It was dropped, as `StopHandler` asked.
    Stopped,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum RunInput {
    Start,
    /// The moment asked for by `WakeAt` has come.
    Timer,
    Extended(StoreResult<Extended>),
    HandlerEnded(HandlerEnd),
    Settled(StoreResult<Settled>),
    /// Something happened in the store, perhaps to this run: renew the lease soon to learn of it.
    Look,
    /// The handler asked at the gate and was told to give way: its attempt is over, and the run stands so.
    GaveWay {
        answer: HoldAnswer,
        state: RunState,
    },
    /// The store refused a call that the handler made with this run's token.
    Lost(StoreError),
    /// The worker stops: finish by this moment or be handed back.
    Shutdown {
        finish_by: Tick,
    },
}

/// What to do.
#[derive(Debug, Clone)]
pub enum RunEffect {
    /// Start the handler.
    Dispatch,
    Extend(ExtendRequest),
    /// Tell the handler that it should end soon; [`super::RunDriver::is_unwanted`] says whether its work still counts.
    Stopping,
    /// Drop the handler and confirm with [`HandlerEnd::Stopped`] (or with its outcome, if it was faster).
    StopHandler(&'static str),
    Settle(SettleRequest),
    /// Give a `Timer` at this moment; replaces an earlier wish.
    WakeAt(Tick),
    /// The driver is done; nothing follows.
    Ended(RunEnd),
}

/// How an attempt ended for its worker.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEnd {
    Settled {
        state: RunState,
    },
    /// Somebody else has the run, or it was settled otherwise; nothing was changed.
    Lost(StoreError),
    /// The store could not be told; the lease expires and the run is tried again elsewhere.
    GaveUp(String),
}

/// Where an attempt is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    Claiming,
    Processing,
    ReportingSuccess,
    ReportingFailure,
    Done,
}
