//! The no-loss equation, counted.
//!
//! Per queue, at all times: accepted = succeeded + dead + discarded + delayed + buffered + in flight. The counters are
//! written in the transaction of each change; `doctor` compares them with the rows themselves, so a leak is found and
//! not believed.

use serde::Serialize;

use crate::lifecycle::RunState;

/// How many events of a queue are where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Totals {
    /// Events that were ever accepted: the sum of all others.
    pub accepted: u64,
    /// Events of runs that have succeeded.
    pub succeeded: u64,
    /// Events of runs that have failed.
    pub dead: u64,
    /// Removed by policy, cancel, purge or erase.
    pub discarded: u64,
    /// Kept aside: delayed, or on their way into their lane.
    pub delayed: u64,
    /// In the open run of a lane, or redriven and not claimed yet.
    pub buffered: u64,
    /// In the current run of a lane: running, in backoff, or waiting to be claimed again.
    pub in_flight: u64,
}

impl Totals {
    /// True while nothing has been lost or counted twice.
    pub fn hold(&self) -> bool {
        self.accepted == self.accounted()
    }

    /// The other side of the equation: events whose place is known.
    pub fn accounted(&self) -> u64 {
        self.succeeded + self.dead + self.discarded + self.delayed + self.buffered + self.in_flight
    }

    /// So many more were accepted and wait.
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

    /// Kept aside, and accepted at that moment.
    pub fn set_aside(&mut self, events: u64) {
        self.accepted += events;
        self.delayed += events;
    }

    /// From aside into their lane.
    pub fn entered(&mut self, events: u64) {
        self.delayed -= events;
        self.buffered += events;
    }

    /// From aside to nowhere: purged, erased, or already in their lane.
    pub fn discarded_aside(&mut self, events: u64) {
        self.delayed -= events;
        self.discarded += events;
    }

    /// From aside straight to the dead letter.
    pub fn buried_aside(&mut self, events: u64) {
        self.delayed -= events;
        self.dead += events;
    }

    /// Out of the open run, or a run that was never claimed, to nowhere.
    pub fn discarded_buffered(&mut self, events: u64) {
        self.buffered -= events;
        self.discarded += events;
    }

    /// Out of the dead letter to nowhere.
    pub fn discarded_dead(&mut self, events: u64) {
        self.dead -= events;
        self.discarded += events;
    }

    /// Out of the dead letter, or back from the discarded, into their lane.
    pub fn redriven(&mut self, from: RunState, events: u64) {
        match from {
            RunState::Failed => self.dead -= events,
            _ => self.discarded -= events,
        }
        self.buffered += events;
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
