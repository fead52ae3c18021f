//! The handler of a simulation: it does what the script says, in virtual time, and nothing else.
//!
//! It stands in for whatever the configuration names. A program is not started and nothing is sent anywhere, but the time limit that
//! the configuration gives it is kept.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use quell::clock::{self, Chance};
use quell::config::{HandlerSettings, Settings};
use quell::quell_core::event::{LaneKey, QueueName};
use quell::quell_core::lane::DuringRun;
use quell::quell_core::source::{FaultKind, SourceFault};
use quell::worker::OwnHandler;
use quell::{Handler, Outcome, Run};

use super::script::{Habit, Often, Place, Wrong};

/// What the error of a run says.
const SAID: &str = "the script says so";

/// How the handlers of all queues behave at the moment.
pub(super) struct Habits {
    of: Mutex<BTreeMap<Place, Behaviour>>,
    chance: Chance,
}

#[derive(Debug, Clone, Copy, Default)]
struct Behaviour {
    takes: Option<(Duration, Duration)>,
    wrong: Option<(Wrong, Often)>,
}

impl Habits {
    pub(super) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Habits { of: Mutex::default(), chance: Chance::seeded(seed) })
    }

    pub(super) fn tell(&self, of: Place, habit: Habit) {
        let mut all = self.all();
        let behaviour = all.entry(of).or_default();
        match habit {
            Habit::Takes(from, to) => behaviour.takes = Some((from, to)),
            Habit::Works => behaviour.wrong = None,
            Habit::Wrong(wrong, often) => behaviour.wrong = Some((wrong, often)),
        }
    }

    /// One attempt: how long it takes, and what goes wrong. What is said of a key goes before what is said of its queue.
    fn attempt(&self, lane: &LaneKey) -> (Duration, Option<Wrong>) {
        let places = [Place::Lane(lane.clone()), Place::Queue(lane.queue.clone())];
        let mut all = self.all();
        let takes = places.iter().find_map(|place| all.get(place)?.takes);
        let takes = takes.map_or(Duration::ZERO, |(from, to)| {
            let spread = to.saturating_sub(from).mul_f64(self.chance.unit());
            Duration::from_millis(u64::try_from((from + spread).as_millis()).unwrap_or(u64::MAX))
        });
        for place in places {
            let Some(behaviour) = all.get_mut(&place) else { continue };
            match &mut behaviour.wrong {
                Some((wrong, Often::Always)) => return (takes, Some(*wrong)),
                Some((wrong, Often::Percent(percent))) => {
                    let hit = self.chance.unit() * 100.0 < f64::from(*percent);
                    return (takes, hit.then_some(*wrong));
                }
                Some((wrong, Often::Times(left))) if *left > 0 => {
                    *left -= 1;
                    return (takes, Some(*wrong));
                }
                Some(_) | None => {}
            }
        }
        (takes, None)
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Place, Behaviour>> {
        self.of.lock().expect("no panic happens while this is locked")
    }
}

/// A handler for each queue of the settings, in place of the real ones.
pub(super) fn all(settings: &Settings, habits: &Arc<Habits>) -> BTreeMap<QueueName, OwnHandler> {
    let queues = settings.queues.iter().map(|(name, queue)| {
        let gate = queue.run.rules.during_run == DuringRun::Gate;
        let time_limit = match &queue.handler {
            HandlerSettings::Exec(exec) => Some(exec.timeout),
            HandlerSettings::Http(push) => Some(push.timeout),
            HandlerSettings::Log | HandlerSettings::Pull | HandlerSettings::App => None,
        };
        let handler = Arc::new(Scripted { habits: habits.clone(), gate });
        (name.clone(), OwnHandler { handler, time_limit })
    });
    queues.collect()
}

struct Scripted {
    habits: Arc<Habits>,
    /// The queue has a gate, which a handler asks before its effect.
    gate: bool,
}

#[async_trait]
impl Handler for Scripted {
    async fn handle(&self, run: &Run) -> Outcome {
        let lane = LaneKey::new(run.queue().clone(), run.key().clone()).of(run.tenant().clone());
        let (takes, wrong) = self.habits.attempt(&lane);
        if !takes.is_zero() {
            clock::sleep(takes).await;
        }
        match wrong {
            Some(Wrong::Fails) => return Outcome::retry(SAID),
            Some(Wrong::Refuses) => return Outcome::failed(SAID),
            Some(Wrong::Panics) => std::panic::resume_unwind(Box::new(SAID)),
            Some(Wrong::Faults(silence)) => {
                let fault = SourceFault::new(FaultKind::ServerError);
                let fault = silence.map_or(fault, |length| fault.retry_after(length));
                return Outcome::retry(SAID).source_fault(fault);
            }
            None => {}
        }
        if self.gate && !run.hold().await.is_ok_and(|hold| hold.is_held()) {
            return Outcome::superseded();
        }
        Outcome::succeeded()
    }
}
