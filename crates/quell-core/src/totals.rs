//! The no-loss equation, counted.
//!
//! Per queue, at all times: accepted = succeeded + dead + discarded + delayed + buffered + in flight. The counters are
//! written in the transaction of each change; `doctor` compares them with the rows themselves, so a leak is found and
//! not believed.

use serde::Serialize;

use crate::lifecycle::RunState;

/// How many events of a queue are where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Totals {
    pub accepted: u64,
    pub succeeded: u64,
    pub dead: u64,
    /// Removed by policy, cancel, purge or erase.
    pub discarded: u64,
    /// Kept aside until their delay is over.
    pub delayed: u64,
    /// In the open run of a lane.
    pub buffered: u64,
    /// In the current run of a lane: running, in backoff, or waiting to be claimed again.
    pub in_flight: u64,
}

impl Totals {
    /// True while nothing has been lost or counted twice.
    pub fn hold(&self) -> bool {
        self.accepted
            == self.succeeded + self.dead + self.discarded + self.delayed + self.buffered + self.in_flight
    }

    pub fn appended(&mut self, events: u64) {
        self.accepted += events;
        self.buffered += events;
    }

    /// The claim cut them out of the open run.
    pub fn taken(&mut self, events: u64) {
        self.buffered -= events;
        self.in_flight += events;
    }

    /// Their run ended.
    pub fn finished(&mut self, state: RunState, events: u64) {
        self.in_flight -= events;
        match state {
            RunState::Succeeded => self.succeeded += events,
            RunState::Failed => self.dead += events,
            RunState::Cancelled => self.discarded += events,
            RunState::Pending | RunState::Running | RunState::Retryable => {
                unreachable!("a run that goes on has not finished")
            }
        }
    }

    /// The sum over several queues or tenants.
    #[must_use]
    pub fn plus(&self, other: &Totals) -> Totals {
        Totals {
            accepted: self.accepted + other.accepted,
            succeeded: self.succeeded + other.succeeded,
            dead: self.dead + other.dead,
            discarded: self.discarded + other.discarded,
            delayed: self.delayed + other.delayed,
            buffered: self.buffered + other.buffered,
            in_flight: self.in_flight + other.in_flight,
        }
    }
}
