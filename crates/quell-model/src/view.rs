//! What of a state is compared: everything on which the future depends, and nothing else.
//!
//! Moments are seen from the latest one that the lane knows, and those that are long over, or far away, are all alike:
//! nothing here lasts longer than three units. Numbers of the store-wide sequence are replaced by their order. What only
//! tells the past (when something began, whose error it was, the audit of what cannot be asked again) is left out.

use std::collections::BTreeSet;

use quell_core::lane::{CurrentRun, Newer};
use quell_core::lifecycle::RunState;
use quell_core::outcome::VerdictKind;

use crate::state::{State, Worker};

/// A state as numbers; equal when nothing that follows can differ.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct View(Vec<i64>);

/// No moment of the future is further away than a lease, no window of the past is longer: in milliseconds.
const FAR: i64 = 50;

impl View {
    pub(crate) fn of(state: &State) -> Self {
        let mut writer = Writer::new(state);
        writer.counts(state);
        writer.workers(state);
        writer.lane(state);
        View(writer.out)
    }
}

struct Writer {
    out: Vec<i64>,
    latest: i64,
    /// All numbers in use, in order.
    numbers: Vec<u64>,
}

impl Writer {
    fn new(state: &State) -> Self {
        let mut numbers = BTreeSet::new();
        if let Some(lane) = state.lane() {
            numbers.extend(lane.open.iter().flat_map(|open| [open.number, open.lo]));
            numbers.extend(lane.fixed_runs().flat_map(|run| [run.number, run.lo, run.hi, run.token]));
        }
        for worker in &state.workers {
            if let Worker::Holding { run, token } | Worker::Unheard { run, token, .. } = worker {
                numbers.extend([run.number, *token]);
            }
        }
        numbers.extend(state.events().map(|(seq, _)| seq));
        let latest = state.lane().map_or(0, |lane| lane.updated_at.as_millis());
        Writer { out: Vec::with_capacity(64), latest, numbers: numbers.into_iter().collect() }
    }

    fn number(&mut self, number: u64) {
        let place =
            self.numbers.binary_search(&number).map_or(-1, |place| i64::try_from(place).unwrap_or(-1));
        self.out.push(place);
    }

    fn moment(&mut self, at: quell_core::clock::Timestamp) {
        self.out.push((at.as_millis() - self.latest).clamp(-FAR, FAR));
    }

    fn counts(&mut self, state: &State) {
        let State { sent, crashes, pauses, lost, repeated, .. } = state;
        self.out.extend([sent, crashes, pauses, lost, repeated].map(|count| i64::from(*count)));
        self.out.push(i64::try_from(state.unheard.len()).unwrap_or(-1));
        self.out.extend(state.unheard.iter().map(|event| i64::from(*event)));
        self.out.push(i64::from(state.broken.is_some()));
    }

    fn workers(&mut self, state: &State) {
        for worker in &state.workers {
            match worker {
                Worker::Idle => self.out.push(0),
                Worker::Holding { run, token } => {
                    self.out.push(1);
                    self.number(run.number);
                    self.number(*token);
                }
                Worker::Unheard { run, token, verdict, state, change } => {
                    self.out.extend([
                        2,
                        i64::from(*verdict == VerdictKind::Succeeded),
                        state_number(*state),
                        *change as i64,
                    ]);
                    self.number(run.number);
                    self.number(*token);
                }
            }
        }
    }

    fn lane(&mut self, state: &State) {
        let Some(lane) = state.lane() else { return };
        self.out.push(i64::from(lane.paused.is_some()) + 2 * i64::from(lane.blocked.is_some()));
        for (seq, place) in state.events().collect::<Vec<_>>() {
            self.number(seq);
            self.out.push(place.map_or(-1, state_number));
        }
        self.out.push(i64::try_from(lane.fixed_runs().count()).unwrap_or(-1));
        for run in lane.fixed_runs() {
            self.run(run);
        }
        if let Some(open) = &lane.open {
            self.number(open.number);
            self.number(open.lo);
            self.out.push(i64::try_from(open.count).unwrap_or(-1));
            self.moment(open.window.first_at);
            self.moment(open.window.latest_at);
            self.moment(open.window.due().0);
            self.out.push(i64::from(open.window.closed.is_some()));
        }
    }

    fn run(&mut self, run: &CurrentRun) {
        self.number(run.number);
        self.number(run.lo);
        self.number(run.hi);
        self.number(run.token);
        self.out.extend([
            state_number(run.state),
            i64::try_from(run.count).unwrap_or(-1),
            i64::from(run.claims),
            i64::from(run.refunds),
            i64::from(run.retries),
            i64::from(run.releases_in_row),
            i64::from(run.revision),
            match run.newer {
                Newer::No => 0,
                Newer::AtRetry => 1,
                Newer::AtWindow => 2,
            },
            i64::from(run.links.continued_in.is_some()),
        ]);
        let until = if run.state == RunState::Running { run.lease_until } else { run.due_at };
        self.moment(until);
    }
}

fn state_number(state: RunState) -> i64 {
    RunState::ALL
        .iter()
        .position(|one| *one == state)
        .and_then(|place| i64::try_from(place).ok())
        .unwrap_or(-1)
}
