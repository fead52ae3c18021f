//! Worlds of several databases: no promise broken, and what only several can do wrong did happen.
//!
//! The long campaign has such worlds, too; here they are alone, so that a change of what is relayed or divided is judged within
//! seconds.

#[path = "mutants/store.rs"]
#[allow(dead_code, reason = "the other mistakes are for another test")]
mod store;

use std::sync::Arc;

use quell_check::Invariant;
use quell_core::clock::Clock;
use quell_sim::{Plan, Problem, Seen, Sight, Subject, real, run, shrink};
use store::{Mistake, Mutant};

const SCHEDULES: usize = 400;

/// Seeds whose worlds have so many databases.
fn seeds(databases: usize) -> impl Iterator<Item = u64> {
    (0..).filter(move |seed| Plan::of(*seed).shape.databases.len() == databases)
}

#[test]
fn no_schedule_over_several_databases_breaks_a_promise() {
    for databases in [2, 3] {
        let mut seen = Seen::default();
        for seed in seeds(databases).take(SCHEDULES) {
            match run(seed, &real) {
                Ok(finished) => seen.add(&finished.seen),
                Err(failure) => panic!("{}", shrink(seed, failure, &real)),
            }
        }
        let happened = [
            Sight::SeveralDatabases,
            Sight::DatabaseRefused,
            Sight::DatabaseQuestionLost,
            Sight::DatabaseAnswerLost,
            Sight::GoneBetween,
            Sight::ServerGoneBetween,
            Sight::SendInParts,
            Sight::StoredInPart,
            Sight::Relayed,
            Sight::RelayedBySweep,
            Sight::Restored,
        ];
        for sight in happened {
            assert!(seen.of(sight) > 0, "{databases} databases, never: {}", sight.name());
        }
    }
}

/// The first failure of databases that have this mistake. Those of relaying are in `mutants.rs`.
fn found(mistake: Mistake) -> Problem {
    let make = move |clock: Arc<dyn Clock>| -> Arc<dyn Subject> { Arc::new(Mutant::new(mistake, clock)) };
    let failure = seeds(2).take(SCHEDULES).find_map(|seed| run(seed, &make).err());
    failure.unwrap_or_else(|| panic!("{mistake:?} was not found")).problem
}

/// A part that says that it was not asked, and was.
#[test]
fn a_database_that_lies_about_its_part_is_found() {
    let problem = found(Mistake::DishonestRefusal);
    let right = [Invariant::HonestErrors, Invariant::NoPhantom, Invariant::Idempotency];
    assert!(problem.invariant().is_some_and(|invariant| right.contains(&invariant)), "{problem}");
}

/// What does not need several databases is told over one.
#[test]
fn a_failure_that_does_not_need_several_databases_is_told_over_one() {
    let make =
        |clock: Arc<dyn Clock>| -> Arc<dyn Subject> { Arc::new(Mutant::new(Mistake::LosesEvent, clock)) };
    let failed = seeds(3).take(SCHEDULES).find_map(|seed| Some((seed, run(seed, &make).err()?)));
    let (seed, failure) = failed.expect("a store that loses events is found out");
    let shrunk = shrink(seed, failure, &make);
    assert_eq!(shrunk.databases, 1, "{shrunk}");
    assert!(shrunk.command().contains("--databases 1"), "{}", shrunk.command());
}
