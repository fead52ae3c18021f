//! How an attempt gives way: to newer events, to an operator, at the gate, and how soon it learns of it.

use std::sync::Arc;
use std::time::Duration;

use super::run_driver_tests::{Bench, LEASE_MS, ended, error, kept, settings, taken};
use super::*;
use crate::clock::{Tick, Timestamp};
use crate::error::ErrorKind;
use crate::event::{AppendPolicy, EventId, Key, LaneKey, NewEvent, NewEventId, Payload, QueueName};
use crate::lifecycle::RunState;
use crate::limits;
use crate::outcome::{Outcome, Verdict};
use crate::store::{Extended, HoldAnswer};

fn told(interrupt: bool, cancel: bool) -> RunInput {
    let lease_until = Timestamp::default();
    RunInput::Extended(Ok(Extended { lease_until, head_seq: 2, newer: 1, interrupt, cancel }))
}

fn gave_way(answer: HoldAnswer) -> RunInput {
    RunInput::GaveWay { answer, state: RunState::Pending }
}

fn stopped() -> RunInput {
    RunInput::HandlerEnded(HandlerEnd::Stopped)
}

/// A handler that runs, and whose renewal has just been sent.
fn beating(settings: RunSettings) -> Bench {
    let mut bench = Bench::new(settings);
    bench.give(RunInput::Start).at(20_000).give(RunInput::Timer);
    assert_eq!((bench.dispatched, bench.extends), (1, 1));
    bench
}

#[test]
fn an_interrupt_stops_the_handler_and_settles_interrupted() {
    let mut bench = beating(settings());
    bench.give(told(true, false));
    assert!(bench.told && bench.stopped == Some("newer events interrupted it"));
    assert!(bench.driver.is_unwanted());
    assert!(bench.settles.is_empty(), "not before the handler is really gone");
    bench.give(stopped());
    assert_eq!(bench.settled().verdict, Verdict::Interrupted);
    assert_eq!(bench.settled().error, None);
    bench.give(taken(RunState::Pending));
    assert_eq!(bench.end, Some(RunEnd::Settled { state: RunState::Pending }));
}

#[test]
fn a_cancellation_tells_and_stops_the_handler_and_hands_back() {
    let mut bench = beating(settings());
    bench.give(told(false, true));
    assert!(bench.told && bench.stopped == Some("an operator cancelled it"));
    bench.give(stopped());
    assert_eq!(bench.settled().verdict, Verdict::Release);
    bench.give(taken(RunState::Cancelled));
    assert_eq!(bench.end, Some(RunEnd::Settled { state: RunState::Cancelled }));
}

#[test]
fn a_cancellation_goes_before_an_interrupt() {
    let mut bench = beating(settings());
    bench.give(told(true, true)).give(stopped());
    assert_eq!(bench.settled().verdict, Verdict::Release);
}

#[test]
fn a_handler_that_had_already_succeeded_still_wins() {
    for input in [told(true, false), told(false, true)] {
        let mut bench = beating(settings());
        bench.give(ended(Outcome::succeeded())).give(input.clone());
        assert_eq!((bench.stopped, bench.settled().verdict), (None, Verdict::Succeeded));
        let mut bench = beating(settings());
        bench.give(input).give(ended(Outcome::succeeded()));
        assert_eq!(bench.settled().verdict, Verdict::Succeeded, "it was faster than the order to stop");
    }
}

#[test]
fn a_program_gets_a_moment_between_being_told_and_being_stopped() {
    let mut bench = beating(RunSettings { stop_grace: Duration::from_secs(1), ..settings() });
    bench.give(told(true, false));
    assert!(bench.told && bench.stopped.is_none());
    assert_eq!(bench.wake_at, Some(Tick::from_millis(21_000)));
    bench.at(21_000).give(RunInput::Timer);
    assert!(bench.stopped.is_some());
    let mut bench = beating(RunSettings { stop_grace: Duration::from_secs(1), ..settings() });
    bench.give(told(true, false)).at(20_400).give(ended(Outcome::interrupted()));
    assert_eq!((bench.stopped, bench.settled().verdict), (None, Verdict::Interrupted));
}

#[test]
fn the_moment_to_stop_never_lies_beyond_the_lease() {
    let mut bench = beating(RunSettings { stop_grace: Duration::from_secs(3_600), ..settings() });
    bench.give(told(true, false));
    assert_eq!(bench.driver.stop_at(), Tick::from_millis(75_000));
    bench.at(40_000).give(RunInput::Timer);
    assert_eq!(bench.extends, 2, "the lease is kept as long as the handler runs");
    bench.at(75_000).give(RunInput::Timer);
    assert!(bench.stopped.is_some());
}

#[test]
fn a_run_that_is_told_before_its_handler_starts_is_never_dispatched() {
    for (input, verdict) in [(told(true, false), Verdict::Interrupted), (told(false, true), Verdict::Release)]
    {
        let mut bench = Bench::new(settings());
        bench.at(21_000).give(RunInput::Start).give(input);
        assert_eq!((bench.dispatched, bench.settled().verdict), (0, verdict));
    }
}

#[test]
fn a_look_brings_the_renewal_forward_but_never_right_after_the_claim() {
    let mut bench = Bench::new(RunSettings { look_every: RunSettings::LOOK_SOON, ..settings() });
    bench.give(RunInput::Start).at(50).give(RunInput::Look);
    assert_eq!((bench.extends, bench.wake_at), (0, Some(Tick::from_millis(200))));
    bench.at(200).give(RunInput::Timer);
    assert_eq!(bench.extends, 1);
    bench.at(210).give(kept());
    assert_eq!(bench.wake_at, Some(Tick::from_millis(20_200)), "the heartbeat counts from the look");
    bench.at(5_000).give(RunInput::Look);
    assert_eq!(bench.extends, 2, "the last word is long ago: at once");
}

#[test]
fn looks_are_rate_limited_and_none_is_lost_while_a_renewal_is_in_flight() {
    let mut bench = Bench::new(RunSettings { look_every: RunSettings::LOOK_SOON, ..settings() });
    bench.give(RunInput::Start);
    for ms in 0..10_000 {
        bench.at(ms).give(RunInput::Look).give(RunInput::Timer);
        if bench.extends > 0 {
            bench.give(kept());
        }
    }
    assert!((45..=50).contains(&bench.extends), "{}", bench.extends);
    // The answer under way may be older than what happened now, so it is asked again.
    let before = bench.extends;
    bench.at(20_000).give(RunInput::Look).at(20_001).give(RunInput::Look).at(20_002).give(kept());
    assert_eq!((bench.extends, bench.wake_at), (before + 1, Some(Tick::from_millis(20_200))));
    bench.at(20_200).give(RunInput::Timer).give(told(true, false));
    assert!(bench.stopped.is_some());
}

#[test]
fn a_short_run_pays_for_no_look() {
    let mut bench = Bench::processing();
    bench.at(3).give(RunInput::Look).at(5).give(ended(Outcome::succeeded()));
    assert_eq!((bench.extends, bench.settles.len()), (0, 1));
}

#[test]
fn a_look_that_fails_is_tried_again_like_any_renewal() {
    let mut bench = Bench::processing();
    bench.at(5_000).give(RunInput::Look);
    bench.give(RunInput::Extended(Err(error(ErrorKind::Unavailable))));
    assert_eq!(bench.wake_at, Some(Tick::from_millis(6_000)));
}

#[test]
fn a_handler_that_gave_way_may_clean_up_and_nothing_is_settled() {
    for answer in [HoldAnswer::Superseded, HoldAnswer::Interrupted] {
        let mut bench = Bench::processing();
        bench.at(1_000).give(gave_way(answer));
        assert!(bench.told && bench.stopped.is_none() && bench.driver.is_unwanted());
        bench.at(1_200).give(ended(Outcome::succeeded()));
        assert_eq!(bench.end, Some(RunEnd::Settled { state: RunState::Pending }));
        assert_eq!((bench.settles.len(), bench.extends), (0, 0));
    }
}

#[test]
fn a_handler_that_goes_on_after_it_gave_way_is_stopped() {
    let mut bench = Bench::processing();
    bench.at(19_500).give(gave_way(HoldAnswer::Superseded));
    assert_eq!(bench.wake_at, Some(Tick::from_millis(20_500)));
    bench.at(20_100).give(RunInput::Timer);
    assert_eq!(bench.extends, 0, "there is no lease to keep");
    bench.at(20_500).give(RunInput::Timer);
    assert_eq!(bench.stopped, Some("it gave way to newer events"));
    bench.give(stopped());
    assert_eq!(bench.end, Some(RunEnd::Settled { state: RunState::Pending }));
    assert!(bench.settles.is_empty());
}

#[test]
fn a_renewal_that_crossed_the_gate_is_no_lost_lease() {
    let mut bench = beating(settings());
    bench.give(gave_way(HoldAnswer::Superseded));
    bench.give(RunInput::Extended(Err(error(ErrorKind::LostLease))));
    assert!(bench.stopped.is_none());
    bench.give(RunInput::HandlerEnded(HandlerEnd::Error("whatever".into())));
    assert_eq!(bench.end, Some(RunEnd::Settled { state: RunState::Pending }));
}

#[test]
fn a_handler_that_is_being_stopped_when_it_gives_way_settles_nothing_either() {
    let mut bench = beating(settings());
    bench.give(told(true, false)).give(gave_way(HoldAnswer::Interrupted)).give(stopped());
    assert_eq!(bench.end, Some(RunEnd::Settled { state: RunState::Pending }));
    assert!(bench.settles.is_empty());
    // A program that waits for its grace.
    let mut bench = beating(RunSettings { stop_grace: Duration::from_secs(5), ..settings() });
    bench.give(told(true, false)).give(gave_way(HoldAnswer::Interrupted)).give(stopped());
    assert_eq!(bench.end, Some(RunEnd::Settled { state: RunState::Pending }));
}

#[test]
fn a_run_that_gives_way_after_its_handler_ended_is_over() {
    let mut bench = Bench::processing();
    bench.give(ended(Outcome::succeeded())).give(gave_way(HoldAnswer::Superseded));
    assert_eq!(bench.end, Some(RunEnd::Settled { state: RunState::Pending }));
}

#[test]
fn a_lease_that_a_step_found_lost_ends_the_attempt_without_a_settlement() {
    let mut bench = Bench::processing();
    bench.give(RunInput::Lost(error(ErrorKind::LostLease)));
    assert_eq!(bench.stopped, Some("the lease was taken back"));
    bench.give(RunInput::HandlerEnded(HandlerEnd::Error("stale-token".into())));
    assert!(matches!(bench.end, Some(RunEnd::Lost(_))));
    assert!(bench.settles.is_empty());
}

#[test]
fn a_shutdown_during_the_grace_of_an_interrupt_changes_nothing() {
    let mut bench = beating(RunSettings { stop_grace: Duration::from_secs(1), ..settings() });
    bench.give(told(true, false)).give(RunInput::Shutdown { finish_by: Tick::from_millis(90_000) });
    bench.at(21_000).give(RunInput::Timer).give(stopped());
    assert_eq!(bench.settled().verdict, Verdict::Interrupted);
}

#[test]
fn a_handler_that_never_stops_for_an_interrupt_settles_nothing() {
    let mut bench = beating(settings());
    bench.give(told(true, false));
    bench.at(75_000 + LEASE_MS).give(RunInput::Timer);
    assert!(matches!(bench.end, Some(RunEnd::GaveUp(_))));
    assert!(bench.settles.is_empty());
}

fn event(bytes: usize) -> NewEvent {
    let lane = LaneKey::new(QueueName::new("q").unwrap(), Key::new("k").unwrap());
    let id = NewEventId::Made(EventId::new("e").unwrap());
    let payload = Payload::of(&serde_json::json!("x".repeat(bytes)));
    NewEvent::new(lane, id, payload, Arc::new(AppendPolicy::default()))
}

#[test]
fn conditions_and_carried_events_reach_the_settlement() {
    let mut bench = Bench::processing();
    bench.give(ended(Outcome::succeeded().if_head(17).then(event(1)).then(event(2))));
    assert_eq!((bench.settled().if_head, bench.settled().events.len()), (Some(17), 2));
    let mut bench = Bench::processing();
    bench.give(ended(Outcome::superseded()));
    assert_eq!(bench.settled().verdict, Verdict::Superseded);
    assert_eq!(
        bench.settled().delay,
        Duration::from_secs(180),
        "a retry when there is nothing to give way to"
    );
}

#[test]
fn events_that_no_store_takes_fail_the_run_and_are_not_dropped_in_silence() {
    let too_many = (0..=limits::CARRIED_EVENTS_MAX).fold(Outcome::succeeded(), |o, _| o.then(event(1)));
    let too_large = Outcome::succeeded().then(event(limits::PAYLOAD_BYTES_DEFAULT));
    for outcome in [too_many, too_large] {
        let mut bench = Bench::processing();
        bench.give(ended(outcome));
        assert_eq!(bench.settled().verdict, Verdict::Failed);
        assert!(bench.settled().error.as_ref().unwrap().contains("events that cannot be stored"));
        assert!(bench.settled().events.is_empty());
    }
}
