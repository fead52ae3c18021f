//! One lane, its senders, its workers and its operator as a model whose every order of steps is tried.
//!
//! The steps are no copy of the engine: the model calls `quell_core::working_set`, which every store calls, and `stateright`
//! tries what can happen next, for each thing that can happen, until there is no state that it has not seen.
//!
//! | tried in every order | bound |
//! | --- | --- |
//! | senders append, and send again what they have sent | events, repetitions |
//! | workers claim, extend, settle with success or another try | workers, attempts |
//! | workers vanish, or are slow for as long as you like | vanished workers; slowness has none |
//! | an operator pauses the lane and resumes it | pauses |
//! | the answer of an append, a claim or a settlement is lost | lost answers |
//! | a call comes with a clock that is behind, equal, or ahead by less or more than a window, a backoff and a lease | none |
//!
//! Time has no bound because only differences count: two states that differ by a shift of all moments are one state, and so
//! are two that differ in what the store-wide sequence has reached (`view.rs`). What must hold is in `promises.rs`.

mod promises;
mod state;
mod view;

pub mod clock;

use std::sync::Arc;
use std::time::Duration;

use quell_core::lane::{RetryWith, RunRules};
use quell_core::outcome::Verdict;
use quell_core::store::RunPolicy;
use stateright::{Model, Property};

pub use state::{State, Worker};

/// How much may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub workers: u8,
    pub events: u8,
    /// Workers that vanish while they hold the lane.
    pub crashes: u8,
    /// Times that the operator pauses the lane.
    pub pauses: u8,
    /// Answers that get lost.
    pub unknowns: u8,
    /// Events that are sent again although their sender knows that they were accepted.
    pub repetitions: u8,
    /// Attempts of a run.
    pub attempts: u32,
    /// Events of a batch.
    pub batch: u32,
    pub retry_with: RetryWith,
}

impl Bounds {
    /// What is searched in the tests.
    pub const SMALL: Bounds = Bounds {
        workers: 2,
        events: 2,
        crashes: 1,
        pauses: 1,
        unknowns: 1,
        repetitions: 1,
        attempts: 2,
        batch: 2,
        retry_with: RetryWith::Same,
    };

    /// What is searched before a release, in a recorded run.
    pub const LARGE: Bounds = Bounds { workers: 3, events: 4, crashes: 2, unknowns: 2, ..Bounds::SMALL };
}

/// The model: what can happen within the bounds.
pub struct OneLane {
    pub bounds: Bounds,
    policy: Arc<RunPolicy>,
}

/// The unit of all durations here: a window and a backoff are one, a lease is two.
pub(crate) const UNIT: Duration = Duration::from_millis(10);
pub(crate) const LEASE: Duration = Duration::from_millis(20);

impl OneLane {
    pub fn new(bounds: Bounds) -> Self {
        let rules = RunRules { retry_with: bounds.retry_with, ..RunRules::default() };
        let policy =
            RunPolicy { lease: LEASE, max_attempts: bounds.attempts, max_running: None, rules, notify: None };
        OneLane { bounds, policy: Arc::new(policy) }
    }
}

/// The clock of a call, seen from the latest moment that the lane knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Clock {
    /// Behind: another server's, or one that was set back.
    Behind,
    Same,
    /// A window and a backoff are over, a lease is not.
    Soon,
    /// A lease is over, too.
    Late,
}

impl Clock {
    const ALL: [Clock; 4] = [Clock::Behind, Clock::Same, Clock::Soon, Clock::Late];
}

/// One thing that happens. `lost` says that it is done and nobody hears so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The next event is sent.
    Send {
        clock: Clock,
        lost: bool,
    },
    /// A sender that has not heard of its event sends it again, and says that it repeats itself.
    Resend {
        event: u8,
        clock: Clock,
    },
    /// An event that was accepted is sent once more.
    SendAgain {
        event: u8,
        clock: Clock,
    },
    Claim {
        worker: u8,
        clock: Clock,
        lost: bool,
    },
    Extend {
        worker: u8,
        clock: Clock,
    },
    Settle {
        worker: u8,
        verdict: Verdict,
        clock: Clock,
        lost: bool,
    },
    /// A worker that has not heard of its settlement asks again.
    SettleAgain {
        worker: u8,
        clock: Clock,
    },
    Crash {
        worker: u8,
    },
    Pause {
        clock: Clock,
    },
    Resume {
        clock: Clock,
    },
    /// Nobody wants the lane, and it is taken back all the same.
    Sweep {
        clock: Clock,
    },
}

impl Model for OneLane {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self.bounds.workers)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let Bounds { events, crashes, pauses, unknowns, repetitions, .. } = self.bounds;
        if state.broken.is_some() {
            return;
        }
        let losses: &[bool] = if state.lost < unknowns { &[false, true] } else { &[false] };
        for clock in Clock::ALL {
            for &lost in losses {
                if state.sent < events {
                    actions.push(Action::Send { clock, lost });
                }
            }
            actions.extend(state.unheard.iter().map(|&event| Action::Resend { event, clock }));
            if state.repeated < repetitions {
                let heard = (0..state.sent).filter(|event| !state.unheard.contains(event));
                actions.extend(heard.map(|event| Action::SendAgain { event, clock }));
            }
            self.worker_actions(state, clock, losses, actions);
            if state.is_paused() {
                actions.push(Action::Resume { clock });
            } else if state.pauses < pauses && state.sent > 0 {
                actions.push(Action::Pause { clock });
            }
            actions.push(Action::Sweep { clock });
        }
        if state.crashes < crashes {
            let holders = (0..).zip(&state.workers).filter(|(_, w)| **w != Worker::Idle);
            actions.extend(holders.map(|(worker, _)| Action::Crash { worker }));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        next.perform(action, &self.policy, self.bounds.batch);
        promises::between(last, &mut next, action);
        next.look();
        // What changes nothing is no step.
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        promises::all()
    }
}

impl OneLane {
    fn worker_actions(&self, state: &State, clock: Clock, losses: &[bool], actions: &mut Vec<Action>) {
        let retry = Verdict::Retry { after: None };
        let mut asked = false;
        for (number, worker) in (0..).zip(&state.workers) {
            match worker {
                // Whoever is idle is like everybody else who is.
                Worker::Idle if asked => {}
                Worker::Idle => {
                    asked = true;
                    actions.extend(losses.iter().map(|&lost| Action::Claim { worker: number, clock, lost }));
                }
                Worker::Holding { .. } => {
                    actions.push(Action::Extend { worker: number, clock });
                    for (&lost, verdict) in losses.iter().flat_map(|l| [(l, Verdict::Succeeded), (l, retry)])
                    {
                        actions.push(Action::Settle { worker: number, verdict, clock, lost });
                    }
                }
                Worker::Unheard { .. } => actions.push(Action::SettleAgain { worker: number, clock }),
            }
        }
    }
}
