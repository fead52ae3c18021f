//! What must hold: in every state, over every step, and at the end.

use quell_core::lane::Attention;
use quell_core::lifecycle::RunState;
use stateright::Property;

use crate::state::{State, Worker};
use crate::{Action, OneLane};

/// What is asked of the whole search.
pub(crate) fn all() -> Vec<Property<OneLane>> {
    vec![
        Property::always("no step breaks a promise", |_: &OneLane, state: &State| state.broken.is_none()),
        Property::always("one holder at most", |_: &OneLane, state: &State| holders(state) <= 1),
        Property::always("nothing is lost", |_: &OneLane, state: &State| {
            state.events().count() == usize::from(state.sent)
                && state.events().all(|(_, place)| place.is_some())
        }),
        Property::always("the counters say the same", |_: &OneLane, state: &State| {
            let live =
                state.events().filter(|(_, place)| place.is_some_and(|p| !p.is_final())).count() as u64;
            state.set.queues.values().all(|t| t.hold() && t.buffered + t.in_flight == live)
        }),
        Property::always("events end in their order", |_: &OneLane, state: &State| in_order(state)),
        Property::always("what waits is looked at again", |_: &OneLane, state: &State| is_looked_at(state)),
        Property::eventually("everything is settled", |model: &OneLane, state: &State| {
            state.sent == model.bounds.events
                && state.events().all(|(_, place)| place.is_some_and(RunState::is_final))
        }),
        Property::sometimes("a run fails with its last attempt", |_: &OneLane, state: &State| {
            state.events().any(|(_, place)| place == Some(RunState::Failed))
        }),
        Property::sometimes("a worker holds what it has lost", |_: &OneLane, state: &State| {
            let holder = state.holder();
            let stale =
                |w: &Worker| matches!(w, Worker::Holding { run, token } if holder != Some((*run, *token)));
            state.workers.iter().any(stale)
        }),
        Property::sometimes("an answer is lost", |_: &OneLane, state: &State| state.lost > 0),
        Property::sometimes(
            "a batch leaves something behind, where it can",
            |model: &OneLane, state: &State| {
                u32::from(model.bounds.events) <= model.bounds.batch
                    || state
                        .lane()
                        .and_then(|l| l.current.as_ref())
                        .is_some_and(|run| run.links.continued_in.is_some())
            },
        ),
    ]
}

/// Workers whose token is good.
fn holders(state: &State) -> usize {
    let Some(holder) = state.holder() else { return 0 };
    let good = |w: &&Worker| matches!(w, Worker::Holding { run, token } if (*run, *token) == holder);
    state.workers.iter().filter(good).count()
}

/// No event is done while one before it is not.
fn in_order(state: &State) -> bool {
    let done: Vec<bool> = state.events().map(|(_, place)| place.is_some_and(RunState::is_final)).collect();
    done.is_sorted_by(|a, b| a >= b)
}

/// A lane with work that nobody keeps from it has a moment at which it is looked at.
fn is_looked_at(state: &State) -> bool {
    let Some(lane) = state.lane() else { return true };
    let waits = state.events().any(|(_, place)| place.is_some_and(|p| !p.is_final()));
    !waits || lane.paused.is_some() || lane.attention(lane.updated_at) != Attention::Idle
}

/// What must hold between a state and the next.
pub(crate) fn between(last: &State, next: &mut State, action: Action) {
    next.broken = next.broken.or(broken(last, next, action));
}

fn broken(last: &State, next: &State, action: Action) -> Option<&'static str> {
    if !next.set.finished.starts_with(&last.set.finished) {
        return Some("a run that ended stays as it is");
    }
    if !next.set.audit.starts_with(&last.set.audit) {
        return Some("what is on record stays on record");
    }
    let (before, after) = last.lane().zip(next.lane())?;
    let repeats = matches!(action, Action::Resend { .. } | Action::SendAgain { .. });
    if repeats && before != after {
        return Some("a duplicate changes nothing, least of all the window");
    }
    if after.updated_at < before.updated_at {
        return Some("the time of a lane never goes back");
    }
    let (a, b) = before.current.as_ref().zip(after.current.as_ref())?;
    (a.number == b.number && b.token < a.token).then_some("tokens rise")
}
