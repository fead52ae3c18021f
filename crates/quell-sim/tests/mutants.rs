//! The tester is tested: stores with one mistake each must be caught within a few hundred schedules, and by the right
//! promise.
//!
//! Each mutant wraps the memory store, alone or as one of several databases, and breaks one thing that a real store could break. A
//! simulator that lets one of them pass proves nothing about the others.

mod mutants {
    pub(crate) mod store;
}

use std::sync::Arc;

use mutants::store::{Mistake, Mutant};
use quell_check::Invariant;
use quell_core::clock::Clock;
use quell_sim::{Problem, Subject, real, run};

const SCHEDULES: u64 = 400;

/// The first seed whose schedule finds the mistake, and how.
fn find(mistake: Mistake) -> Option<(u64, Problem)> {
    let make = move |clock: Arc<dyn Clock>| -> Arc<dyn Subject> { Arc::new(Mutant::new(mistake, clock)) };
    let found = |seed| run(seed, &make).err().map(|failure| (seed, failure.problem));
    // The store without the mistake passes the same schedule.
    (0..SCHEDULES).filter_map(found).find(|(seed, _)| run(*seed, &real).is_ok())
}

fn caught(mistake: Mistake, by: &[Invariant]) {
    let Some((seed, problem)) = find(mistake) else {
        panic!("{mistake:?} was not found in {SCHEDULES} schedules");
    };
    let right = problem.invariant().is_some_and(|invariant| by.contains(&invariant));
    assert!(right, "{mistake:?} was found by seed {seed}, but not as one of {by:?}: {problem}");
}

#[test]
fn a_store_that_forgets_to_fence_is_caught() {
    use Invariant::*;
    caught(Mistake::NoFence, &[Fencing, AuditIsState, SameAnswer, OneLease]);
}

#[test]
fn a_store_that_hands_a_lane_out_twice_is_caught() {
    use Invariant::*;
    caught(Mistake::LaneTwice, &[TokensRise, OneLease, ExplainedDuplicates, AuditIsState]);
}

#[test]
fn a_store_that_repeats_a_token_is_caught() {
    use Invariant::*;
    caught(Mistake::TokenTwice, &[TokensRise, AuditIsState, OneLease]);
}

#[test]
fn a_store_that_loses_an_event_is_caught() {
    caught(Mistake::LosesEvent, &[Invariant::NoLoss]);
}

#[test]
fn a_store_that_says_no_and_does_it_is_caught() {
    use Invariant::*;
    caught(Mistake::DishonestRefusal, &[HonestErrors, NoPhantom, Idempotency]);
}

#[test]
fn a_store_that_accepts_a_known_id_as_new_is_caught() {
    use Invariant::*;
    caught(Mistake::DuplicateIsNew, &[Idempotency, NoFalseMerge, NoLoss]);
}

#[test]
fn a_store_that_changes_a_payload_is_caught() {
    caught(Mistake::ChangesPayload, &[Invariant::Content]);
}

#[test]
fn a_store_that_invents_an_event_is_caught() {
    use Invariant::*;
    caught(Mistake::InventsEvent, &[NoPhantom, NoFalseMerge]);
}

#[test]
fn a_store_that_skips_an_event_is_caught() {
    use Invariant::*;
    caught(Mistake::SkipsEvent, &[WholeBatch, SerialCommits, AuditIsState, FrozenBatch]);
}

#[test]
fn a_store_that_hands_out_too_early_is_caught() {
    caught(Mistake::TooEarly, &[Invariant::NotEarly]);
}

#[test]
fn a_store_that_allows_one_attempt_too_many_is_caught() {
    caught(Mistake::OneMoreAttempt, &[Invariant::Attempts]);
}

#[test]
fn a_store_that_forgets_a_step_is_caught() {
    caught(Mistake::ForgetsStep, &[Invariant::StepMemo]);
}

#[test]
fn a_store_that_ignores_a_pause_is_caught() {
    use Invariant::*;
    caught(Mistake::IgnoresPause, &[Pause, AuditIsState]);
}

#[test]
fn a_store_that_changes_its_mind_about_a_settlement_is_caught() {
    use Invariant::*;
    caught(Mistake::AnotherAnswer, &[SameAnswer, AuditIsState]);
}

#[test]
fn a_store_whose_numbers_fall_back_after_a_restore_is_caught() {
    use Invariant::*;
    caught(Mistake::NoEpoch, &[Restore, TokensRise, AuditIsState, ExplainedDuplicates, Fencing]);
}

#[test]
fn a_store_that_keeps_no_rate_is_caught() {
    caught(Mistake::NoRate, &[Invariant::SourceRate]);
}

#[test]
fn a_store_that_takes_used_tokens_back_is_caught() {
    use Invariant::*;
    // What is said to be unused is no verdict either, so a breaker stays open that should be closed.
    caught(Mistake::TokenBack, &[SourceRate, SourceBreaker]);
}

#[test]
fn a_store_without_a_breaker_is_caught() {
    use Invariant::*;
    caught(Mistake::NoBreaker, &[SourceBreaker, OneProbe, ProbeRefund]);
}

#[test]
fn a_store_that_counts_the_attempt_of_a_probe_is_caught() {
    caught(Mistake::ProbeCounts, &[Invariant::ProbeRefund]);
}

#[test]
fn a_store_that_does_not_keep_silence_is_caught() {
    caught(Mistake::NoSilence, &[Invariant::SourceSilence]);
}

#[test]
fn a_store_that_hands_out_lanes_of_a_disabled_source_is_caught() {
    caught(Mistake::IgnoresDisable, &[Invariant::SourceHeld]);
}

#[test]
fn a_store_that_lets_everybody_fetch_is_caught() {
    caught(Mistake::FetchTwice, &[Invariant::OneFetch]);
}

#[test]
fn a_database_that_loses_what_is_relayed_to_it_is_caught() {
    use Invariant::*;
    // Where nobody was told that the settle was stored, only the counters show that its event was there.
    caught(Mistake::LosesRelayed, &[NoLoss, Equation]);
}

#[test]
fn a_database_that_stores_what_is_relayed_to_it_twice_is_caught() {
    use Invariant::*;
    caught(Mistake::RelaysTwice, &[NoPhantom, NoFalseMerge]);
}

#[test]
fn a_store_that_never_takes_a_lease_back_is_caught() {
    let (_, problem) = find(Mistake::NoReclaim).expect("a lane that nobody takes back is noticed");
    assert!(matches!(problem, Problem::Stuck(_)), "{problem}");
}
