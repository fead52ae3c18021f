//! What of a state is compared: everything on which the future depends, and nothing else.
//!
//! Moments are seen from the latest one that the lane knows, and those that are long over, or far away, are all alike:
//! nothing here lasts longer than three units, and no clock is behind by more than one. Places of events are compared with
//! places of events, numbers of runs with numbers of runs and tokens with tokens, by their order: nothing in the engine
//! compares one kind with another. What a worker holds that has lost the lane is seen from the lane: whether its run is
//! still there and which, and whether its token is older, the same or newer than that run's. What only tells the past (when
//! something began, whose error it was, how something ended, the audit of what cannot be asked again) is left out.

use quell_core::batch::RunId;
use quell_core::lane::{CurrentRun, Lane, Newer};
use quell_core::lifecycle::RunState;
use quell_core::outcome::VerdictKind;

use crate::state::{State, Worker};

/// A state as numbers; equal when nothing that follows can differ.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct View(Vec<i64>);

/// No moment of the future is further away than a lease: in milliseconds.
const FAR: i64 = 50;

/// A window that began so long ago is due by its cap for every clock, also for one that is behind.
const LONG_AGO: i64 = 30;

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
    /// The places of all events, in order.
    places: Vec<u64>,
    /// The runs that have not ended, in order, with the tokens of those that were ever claimed.
    runs: Vec<(u64, Option<u64>)>,
}

impl Writer {
    fn new(state: &State) -> Self {
        let runs = |lane: &Lane| {
            let fixed = lane.fixed_runs().map(|run| (run.number, Some(run.token)));
            fixed.chain(lane.open.map(|open| (open.number, None))).collect()
        };
        let mut runs: Vec<_> = state.lane().map_or_else(Vec::new, runs);
        runs.sort_unstable();
        let latest = state.lane().map_or(0, |lane| lane.updated_at.as_millis());
        let places = state.events().map(|(seq, _)| seq).collect();
        Writer { out: Vec::with_capacity(64), latest, places, runs }
    }

    /// How many events are before this place, and whether one is there.
    fn place(&mut self, seq: u64) {
        let (Ok(before) | Err(before)) = self.places.binary_search(&seq);
        let there = self.places.get(before) == Some(&seq);
        self.out.push(2 * count(before) + i64::from(there));
    }

    fn run_number(&mut self, number: u64) {
        let place = self.runs.iter().position(|(known, _)| *known == number);
        self.out.push(place.map_or(-1, count));
    }

    /// What somebody holds, or has held, seen from the lane.
    fn hold(&mut self, run: RunId, token: u64) {
        self.run_number(run.number);
        let known = self.runs.iter().find(|(number, _)| *number == run.number).and_then(|(_, token)| *token);
        self.out.push(known.map_or(-2, |known| token.cmp(&known) as i64));
    }

    fn moment(&mut self, at: quell_core::clock::Timestamp) {
        self.out.push((at.as_millis() - self.latest).clamp(-LONG_AGO, FAR));
    }

    fn counts(&mut self, state: &State) {
        let State { sent, crashes, pauses, lost, repeated, .. } = state;
        self.out.extend([sent, crashes, pauses, lost, repeated].map(|count| i64::from(*count)));
        self.out.push(count(state.unheard.len()));
        self.out.extend(state.unheard.iter().map(|event| i64::from(*event)));
        self.out.push(i64::from(state.broken.is_some()));
    }

    fn workers(&mut self, state: &State) {
        let from = self.out.len();
        let mut each: Vec<Vec<i64>> = Vec::with_capacity(state.workers.len());
        for worker in &state.workers {
            match worker {
                Worker::Idle => self.out.push(0),
                Worker::Holding { run, token } => {
                    self.out.push(1);
                    self.hold(*run, *token);
                }
                Worker::Unheard { run, token, verdict, state, change } => {
                    self.out.extend([
                        2,
                        i64::from(*verdict == VerdictKind::Succeeded),
                        state_number(*state),
                        *change as i64,
                    ]);
                    self.hold(*run, *token);
                }
            }
            each.push(self.out.drain(from..).collect());
        }
        // Two who see the same of the lane may change places, whoever came first.
        each.sort_unstable();
        self.out.extend(each.into_iter().flatten());
    }

    fn lane(&mut self, state: &State) {
        let Some(lane) = state.lane() else { return };
        self.out.push(i64::from(lane.paused.is_some()) + 2 * i64::from(lane.blocked.is_some()));
        // Well or badly: what has ended is never asked again how.
        let ended = i64::MAX;
        let now = |place: RunState| if place.is_final() { ended } else { state_number(place) };
        self.out.extend(state.events().map(|(_, place)| place.map_or(-1, now)));
        self.out.push(count(lane.fixed_runs().count()));
        for run in lane.fixed_runs() {
            self.run(run);
        }
        if let Some(open) = &lane.open {
            self.run_number(open.number);
            self.place(open.lo);
            self.out.push(i64::try_from(open.count).unwrap_or(-1));
            self.moment(open.window.first_at);
            self.moment(open.window.latest_at);
            self.moment(open.window.due().0);
            self.out.push(i64::from(open.window.closed.is_some()));
        }
    }

    fn run(&mut self, run: &CurrentRun) {
        self.run_number(run.number);
        self.place(run.lo);
        self.place(run.hi);
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

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(-1)
}

fn state_number(state: RunState) -> i64 {
    RunState::ALL
        .iter()
        .position(|one| *one == state)
        .and_then(|place| i64::try_from(place).ok())
        .unwrap_or(-1)
}
