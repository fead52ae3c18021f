//! A hundred thousand schedules: no promise broken, and everything worth seeing seen.
//!
//! The seeds are fixed, so a red run is red for everybody. `QUELL_SIM_SCHEDULES=n` runs more of them,
//! `QUELL_SIM_FIRST=n` others, `QUELL_SIM_SEED=n` one.

#[path = "mutants/store.rs"]
#[allow(dead_code, reason = "the other mistakes are for another test")]
mod store;

use std::sync::Arc;

use quell_core::clock::Clock;
use quell_sim::{Plan, Problem, Seeds, Shrunk, Subject, campaign, real, run, run_plan, shrink};
use store::{Mistake, Mutant};

const SCHEDULES: u64 = 100_000;

/// What cannot happen here, each with its reason.
const UNREACHABLE: &[&str] = &[];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn told(shrunk: &Shrunk) -> String {
    format!("{shrunk}\n\nA schedule broke a promise. The last line replays it.")
}

#[test]
fn no_schedule_breaks_a_promise_and_everything_happens() {
    if let Some(seed) = number("QUELL_SIM_SEED") {
        if let Err(failure) = run(seed, &real) {
            panic!("{}", told(&shrink(seed, failure, &real)));
        }
        return;
    }
    let count = number("QUELL_SIM_SCHEDULES").unwrap_or(SCHEDULES);
    let first = number("QUELL_SIM_FIRST").unwrap_or(0);
    let campaign = campaign(Seeds { first, count, threads: 2, twice_every: 100 }, &real);
    println!("{}", campaign.totals);
    if let Some(shrunk) = &campaign.failure {
        panic!("{}", told(shrunk));
    }
    assert_eq!(campaign.unstable, None, "a seed gave two different histories");
    let missing = campaign.totals.missing(UNREACHABLE);
    assert!(count < SCHEDULES || missing.is_empty(), "never happened in {count} schedules: {missing:#?}");
}

/// Seeds that found something once. A change of the generator makes them other schedules, so each bug also has a test of
/// its own beside the code that was mended.
#[test]
fn seeds_that_found_something_stay_quiet() {
    for line in include_str!("../seeds.txt").lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let mut words = line.split_whitespace();
        let seed: u64 = words.next().and_then(|w| w.parse().ok()).expect("a line begins with its seed");
        let kept = words.next().expect("then the items that are kept, or all");
        let plan = Plan::of(seed);
        let kept: Vec<usize> = match kept {
            "all" => (0..plan.items.len()).collect(),
            list => list.split(',').map(|n| n.parse().expect("places of items")).collect(),
        };
        if let Err(failure) = run_plan(plan.keeping(&kept), &real) {
            panic!("{line}\n{}", failure.problem);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in 0..300 {
        let hash = || run(seed, &real).map(|finished| finished.hash()).map_err(|f| f.problem.to_string());
        assert_eq!(hash(), hash(), "seed {seed}");
    }
}

/// A failure is shrunk to what it needs: here a store that loses an event now and then.
#[test]
fn a_failure_becomes_small() {
    let make =
        |clock: Arc<dyn Clock>| -> Arc<dyn Subject> { Arc::new(Mutant::new(Mistake::LosesEvent, clock)) };
    let failed = (0..500).find_map(|seed| run(seed, &make).err().map(|failure| (seed, failure)));
    let (seed, failure) = failed.expect("a store that loses events is found out");
    let shrunk = shrink(seed, failure, &make);
    assert!(matches!(shrunk.failure.problem, Problem::Broken(_)), "{}", shrunk.failure.problem);
    assert!(shrunk.kept.len() <= 4, "{} of {} items are left:\n{shrunk}", shrunk.kept.len(), shrunk.items);
    let again = run_plan(Plan::of(seed).keeping(&shrunk.kept), &make).err().expect("the replay fails, too");
    assert!(again.problem.is_like(&shrunk.failure.problem));
}
