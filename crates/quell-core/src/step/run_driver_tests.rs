//! One attempt, from the claim to its end: every way it can go, and random ways.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::batch::RunId;
use crate::clock::{Tick, Timestamp};
use crate::error::{ErrorKind, StoreError, StoreResult};
use crate::lifecycle::{Change, RunState};
use crate::limits;
use crate::outcome::{Outcome, Verdict};
use crate::retry::RetryPolicy;
use crate::store::{Extended, HoldAnswer, SettleRequest, Settled};

pub(super) const LEASE_MS: u64 = 60_000;

/// A driver with a hand on its inputs, and a memory of everything it asked for.
pub(super) struct Bench {
    pub(super) driver: RunDriver,
    pub(super) now: u64,
    pub(super) dispatched: usize,
    pub(super) extends: usize,
    pub(super) told: bool,
    pub(super) stopped: Option<&'static str>,
    pub(super) settles: Vec<SettleRequest>,
    pub(super) wake_at: Option<Tick>,
    pub(super) end: Option<RunEnd>,
}

pub(super) fn settings() -> RunSettings {
    let retry = RetryPolicy { jitter: 0.5, ..RetryPolicy::default() };
    let lease = Duration::from_millis(LEASE_MS);
    RunSettings { lease, retry, ..RunSettings::default() }
}

pub(super) fn error(kind: ErrorKind) -> StoreError {
    StoreError::new(kind, "test")
}

pub(super) fn kept() -> RunInput {
    RunInput::Extended(Ok(Extended {
        lease_until: Timestamp::default(),
        head_seq: 1,
        newer: 0,
        interrupt: false,
        cancel: false,
    }))
}

pub(super) fn taken(state: RunState) -> RunInput {
    RunInput::Settled(Ok(Settled { state, change: Change::Succeeded, next_at: None, repeated: false }))
}

pub(super) fn ended(outcome: Outcome) -> RunInput {
    RunInput::HandlerEnded(HandlerEnd::Outcome(outcome))
}

impl Bench {
    pub(super) fn new(settings: RunSettings) -> Self {
        let ticket = RunTicket { run_id: RunId { lane: 1, number: 2 }, token: 7, retries: 2 };
        let driver = RunDriver::new(ticket, Arc::new(settings), Tick::from_millis(0), 0.5);
        Bench {
            driver,
            now: 0,
            dispatched: 0,
            extends: 0,
            told: false,
            stopped: None,
            settles: Vec::new(),
            wake_at: None,
            end: None,
        }
    }

    /// With its handler running.
    pub(super) fn processing() -> Self {
        let mut bench = Bench::new(settings());
        bench.give(RunInput::Start);
        assert_eq!((bench.driver.phase(), bench.dispatched), (RunPhase::Processing, 1));
        bench
    }

    pub(super) fn give(&mut self, input: RunInput) -> &mut Self {
        let mut out = Vec::new();
        self.driver.step(Tick::from_millis(self.now), input, &mut out);
        for effect in out {
            assert!(self.end.is_none(), "nothing follows the end");
            match effect {
                RunEffect::Dispatch => self.dispatched += 1,
                RunEffect::Extend(request) => {
                    assert_eq!((request.token, request.lease), (7, Duration::from_millis(LEASE_MS)));
                    self.extends += 1;
                }
                RunEffect::Stopping => self.told = true,
                RunEffect::StopHandler(why) => self.stopped = Some(why),
                RunEffect::Settle(request) => self.settles.push(request),
                RunEffect::WakeAt(at) => self.wake_at = Some(at),
                RunEffect::Ended(end) => self.end = Some(end),
            }
        }
        self
    }

    pub(super) fn at(&mut self, now: u64) -> &mut Self {
        self.now = now;
        self
    }

    pub(super) fn settled(&self) -> &SettleRequest {
        self.settles.last().expect("it settles")
    }
}

#[test]
fn claiming_processing_reporting_success_done() {
    let mut bench = Bench::new(settings());
    assert_eq!(bench.driver.phase(), RunPhase::Claiming);
    bench.give(RunInput::Start);
    assert_eq!(bench.driver.phase(), RunPhase::Processing);
    bench.give(ended(Outcome::succeeded()));
    assert_eq!(bench.driver.phase(), RunPhase::ReportingSuccess);
    bench.give(taken(RunState::Succeeded));
    assert_eq!(bench.driver.phase(), RunPhase::Done);
    assert_eq!(bench.end, Some(RunEnd::Settled { state: RunState::Succeeded }));
    assert_eq!((bench.extends, bench.settles.len()), (0, 1));
}

#[test]
fn processing_to_reporting_failure_for_every_other_outcome() {
    for outcome in [Outcome::failed("x"), Outcome::retry("x"), Outcome::release("x")] {
        let mut bench = Bench::processing();
        bench.give(ended(outcome.clone()));
        assert_eq!(bench.driver.phase(), RunPhase::ReportingFailure);
        assert_eq!(bench.settled().verdict, outcome.verdict);
    }
}

#[test]
fn heartbeats_move_the_moment_to_stop_from_when_they_were_sent() {
    let mut bench = Bench::processing();
    assert_eq!(bench.wake_at, Some(Tick::from_millis(20_000)));
    assert_eq!(bench.driver.stop_at(), Tick::from_millis(55_000));
    bench.at(20_000).give(RunInput::Timer);
    assert_eq!(bench.extends, 1);
    bench.at(30_000).give(RunInput::Timer);
    assert_eq!(bench.extends, 1, "one in flight at a time");
    bench.at(34_000).give(kept());
    assert_eq!(bench.driver.stop_at(), Tick::from_millis(75_000), "20 s + lease - margin, not 34 s");
    assert_eq!(bench.wake_at, Some(Tick::from_millis(40_000)));
}

#[test]
fn a_handler_runs_as_long_as_its_lease_is_kept() {
    let mut bench = Bench::processing();
    for beat in 1..500 {
        bench.at(beat * 20_000).give(RunInput::Timer).give(kept());
    }
    assert_eq!((bench.extends, bench.stopped), (499, None));
}

#[test]
fn a_batch_that_waited_is_renewed_before_dispatch() {
    let mut bench = Bench::new(settings());
    bench.at(21_000).give(RunInput::Start);
    assert_eq!((bench.dispatched, bench.extends), (0, 1));
    bench.at(21_050).give(kept());
    assert_eq!(bench.dispatched, 1);
    assert_eq!(bench.driver.stop_at(), Tick::from_millis(76_000));
}

#[test]
fn a_batch_whose_renewal_is_refused_is_never_dispatched() {
    let mut bench = Bench::new(settings());
    bench.at(21_000).give(RunInput::Start);
    bench.give(RunInput::Extended(Err(error(ErrorKind::LostLease))));
    assert!(matches!(bench.end, Some(RunEnd::Lost(_))));
    assert_eq!((bench.dispatched, bench.settles.len()), (0, 0));
}

#[test]
fn a_batch_that_waited_for_the_whole_lease_is_handed_back() {
    let mut bench = Bench::new(settings());
    bench.at(58_000).give(RunInput::Start);
    assert_eq!((bench.dispatched, bench.settled().verdict), (0, Verdict::Release));
}

#[test]
fn a_failed_renewal_is_tried_again_and_several_times_before_the_end() {
    let mut bench = Bench::processing();
    bench.at(20_000).give(RunInput::Timer);
    while bench.stopped.is_none() {
        bench.give(RunInput::Extended(Err(error(ErrorKind::Unavailable))));
        let at = bench.wake_at.unwrap().as_millis();
        bench.at(at).give(RunInput::Timer);
    }
    assert!(bench.extends > 20, "{}", bench.extends);
    assert_eq!(bench.now, 55_000, "stopped at stop_at and not a moment later");
}

#[test]
fn at_stop_at_the_handler_is_stopped_and_the_run_handed_back_if_still_possible() {
    let mut bench = Bench::processing();
    bench.at(20_000).give(RunInput::Timer);
    bench.at(55_000).give(RunInput::Timer);
    assert!(bench.stopped.is_some());
    assert!(bench.settles.is_empty(), "not before the handler is really gone");
    bench.give(RunInput::HandlerEnded(HandlerEnd::Stopped));
    assert_eq!(bench.settled().verdict, Verdict::Release);
    bench.give(RunInput::Settled(Err(error(ErrorKind::LostLease))));
    assert!(matches!(bench.end, Some(RunEnd::Lost(_))));
}

#[test]
fn a_handler_that_finishes_while_being_stopped_is_believed() {
    let mut bench = Bench::processing();
    bench.at(55_000).give(RunInput::Timer);
    bench.give(ended(Outcome::succeeded()));
    assert_eq!(bench.settled().verdict, Verdict::Succeeded, "the store decides whether it still counts");
}

#[test]
fn a_lost_lease_stops_the_handler_at_once_and_settles_nothing() {
    let mut bench = Bench::processing();
    bench.at(20_000).give(RunInput::Timer);
    bench.give(RunInput::Extended(Err(error(ErrorKind::LostLease))));
    assert!(bench.stopped.is_some());
    bench.give(RunInput::HandlerEnded(HandlerEnd::Stopped));
    assert!(matches!(bench.end, Some(RunEnd::Lost(_))));
    assert!(bench.settles.is_empty());
}

#[test]
fn a_renewal_in_flight_is_joined_before_the_settlement() {
    let mut bench = Bench::processing();
    bench.at(20_000).give(RunInput::Timer);
    bench.at(20_010).give(ended(Outcome::succeeded()));
    assert!(bench.settles.is_empty(), "the renewal is still on its way");
    bench.at(20_020).give(kept());
    assert_eq!(bench.settles.len(), 1);
}

#[test]
fn a_renewal_that_is_refused_after_the_handler_ended_settles_nothing() {
    let mut bench = Bench::processing();
    bench.at(20_000).give(RunInput::Timer).give(ended(Outcome::succeeded()));
    bench.give(RunInput::Extended(Err(error(ErrorKind::LostLease))));
    assert!(matches!(bench.end, Some(RunEnd::Lost(_))));
    assert!(bench.settles.is_empty());
}

#[test]
fn a_renewal_that_is_never_answered_does_not_hold_the_outcome_for_ever() {
    let mut bench = Bench::processing();
    bench.at(20_000).give(RunInput::Timer).give(ended(Outcome::succeeded()));
    assert_eq!(bench.wake_at, Some(Tick::from_millis(55_000)));
    bench.at(55_000).give(RunInput::Timer);
    assert_eq!(bench.settles.len(), 1);
}

#[test]
fn a_settlement_is_repeated_unchanged_with_growing_pauses() {
    let mut bench = Bench::processing();
    bench.give(ended(Outcome::retry("x")));
    let mut pauses = Vec::new();
    for kind in [ErrorKind::Unknown, ErrorKind::Unavailable, ErrorKind::Unknown] {
        bench.give(RunInput::Settled(Err(error(kind))));
        let at = bench.wake_at.unwrap().as_millis();
        pauses.push(at - bench.now);
        bench.at(at).give(RunInput::Timer);
    }
    assert_eq!(pauses, [50, 100, 200]);
    assert_eq!(bench.settles.len(), 4);
    let first = format!("{:?}", bench.settles[0]);
    assert!(bench.settles.iter().all(|s| format!("{s:?}") == first), "the very same, jitter included");
}

#[test]
fn a_settlement_is_given_up_one_lease_after_stop_at() {
    let mut bench = Bench::processing();
    bench.give(ended(Outcome::succeeded()));
    while bench.end.is_none() {
        bench.give(RunInput::Settled(Err(error(ErrorKind::Unavailable))));
        let at = bench.wake_at.unwrap().as_millis();
        bench.at(at).give(RunInput::Timer);
    }
    assert!(matches!(bench.end, Some(RunEnd::GaveUp(_))));
    assert_eq!(bench.now, 55_000 + LEASE_MS);
}

#[test]
fn a_settlement_that_is_never_answered_is_given_up_too() {
    let mut bench = Bench::processing();
    bench.give(ended(Outcome::succeeded()));
    bench.at(55_000 + LEASE_MS).give(RunInput::Timer);
    assert!(matches!(bench.end, Some(RunEnd::GaveUp(_))));
}

#[test]
fn already_settled_and_lost_lease_end_quietly() {
    for kind in [ErrorKind::AlreadySettled, ErrorKind::LostLease] {
        let mut bench = Bench::processing();
        bench.give(ended(Outcome::succeeded())).give(RunInput::Settled(Err(error(kind))));
        assert!(matches!(bench.end, Some(RunEnd::Lost(_))));
    }
    let mut bench = Bench::processing();
    bench.give(ended(Outcome::succeeded())).give(RunInput::Settled(Err(error(ErrorKind::Corrupt))));
    assert!(matches!(bench.end, Some(RunEnd::GaveUp(_))));
}

#[test]
fn a_shutdown_tells_the_handler_and_hands_back_after_the_grace() {
    let mut bench = Bench::processing();
    bench.give(RunInput::Shutdown { finish_by: Tick::from_millis(5_000) });
    assert!(bench.told && bench.stopped.is_none());
    assert_eq!(bench.wake_at, Some(Tick::from_millis(5_000)));
    bench.at(5_000).give(RunInput::Timer).give(RunInput::HandlerEnded(HandlerEnd::Stopped));
    assert_eq!(bench.settled().verdict, Verdict::Release);
    assert_eq!(
        bench.settled().delay,
        Duration::from_secs(60),
        "the base backoff, for a second release in a row"
    );
}

#[test]
fn a_handler_that_finishes_within_the_grace_is_settled_as_it_says() {
    let mut bench = Bench::processing();
    bench.give(RunInput::Shutdown { finish_by: Tick::from_millis(5_000) });
    bench.at(4_000).give(ended(Outcome::succeeded()));
    assert_eq!(bench.settled().verdict, Verdict::Succeeded);
}

#[test]
fn a_run_that_starts_during_a_shutdown_is_handed_back_without_its_handler() {
    let mut bench = Bench::new(settings());
    bench.give(RunInput::Shutdown { finish_by: Tick::from_millis(0) }).give(RunInput::Start);
    assert_eq!((bench.dispatched, bench.settled().verdict), (0, Verdict::Release));
}

#[test]
fn the_time_limit_stops_the_handler_and_tries_again() {
    let limit = Some(Duration::from_secs(3));
    let mut bench = Bench::new(RunSettings { time_limit: limit, ..settings() });
    bench.give(RunInput::Start);
    assert_eq!(bench.wake_at, Some(Tick::from_millis(3_000)));
    bench.at(3_000).give(RunInput::Timer).give(RunInput::HandlerEnded(HandlerEnd::Stopped));
    assert!(matches!(bench.settled().verdict, Verdict::Retry { after: None }));
    assert!(bench.settled().error.as_ref().unwrap().contains("time limit of 3s"));
}

#[test]
fn the_backoff_grows_with_earlier_retries_and_chance_shortens_it() {
    let mut bench = Bench::processing();
    bench.give(ended(Outcome::retry("x")));
    // 1 min x 2^2, shortened by a chance of 0.5 of a jitter of 0.5.
    assert_eq!(bench.settled().delay, Duration::from_secs(180));
}

#[test]
fn a_handlers_own_retry_after_wins_within_its_bound() {
    let mut bench = Bench::processing();
    bench.give(ended(Outcome::retry_after(Duration::from_millis(1), "x")));
    assert_eq!(bench.settled().delay, Duration::from_millis(1));
    let mut bench = Bench::processing();
    bench.give(ended(Outcome::retry_after(Duration::from_secs(u64::MAX), "x")));
    assert_eq!(bench.settled().delay, limits::RETRY_AFTER_MAX);
}

#[test]
fn an_unclassified_error_or_panic_fails_unless_the_queue_says_retry() {
    for (on_error, retried) in [(OnError::Failed, false), (OnError::Retry, true)] {
        for end in [HandlerEnd::Error("broken".into()), HandlerEnd::Panicked("broken".into())] {
            let mut bench = Bench::new(RunSettings { on_error, ..settings() });
            bench.give(RunInput::Start).give(RunInput::HandlerEnded(end));
            assert_eq!(matches!(bench.settled().verdict, Verdict::Retry { .. }), retried);
            assert!(bench.settled().error.as_ref().unwrap().ends_with("broken"));
        }
    }
}

#[test]
fn a_handler_that_never_stops_ends_the_attempt_without_a_settlement() {
    let mut bench = Bench::processing();
    bench.at(55_000).give(RunInput::Timer);
    bench.at(55_000 + LEASE_MS).give(RunInput::Timer);
    assert!(matches!(bench.end, Some(RunEnd::GaveUp(_))));
    assert!(bench.settles.is_empty());
}

#[derive(Debug, Clone)]
enum Chaos {
    Pass(u64),
    /// With what the renewal tells: whether to interrupt, whether to cancel.
    Extended(StoreResult<(bool, bool)>),
    Ended(u8),
    Settled(StoreResult<()>),
    Shutdown(u64),
    Look,
    GaveWay,
}

fn any_answer() -> impl Strategy<Value = StoreResult<()>> {
    let kinds = [ErrorKind::Unavailable, ErrorKind::Unknown, ErrorKind::LostLease, ErrorKind::Corrupt];
    prop_oneof![
        3 => Just(Ok(())),
        2 => prop::sample::select(kinds.to_vec()).prop_map(|kind| Err(error(kind))),
    ]
}

fn any_chaos() -> impl Strategy<Value = Chaos> {
    prop_oneof![
        4 => (0u64..30_000).prop_map(Chaos::Pass),
        3 => (any_answer(), prop::bool::weighted(0.2), prop::bool::weighted(0.1))
            .prop_map(|(answer, interrupt, cancel)| Chaos::Extended(answer.map(|()| (interrupt, cancel)))),
        2 => Just(Chaos::Look),
        1 => Just(Chaos::GaveWay),
        1 => (0u8..6).prop_map(Chaos::Ended),
        2 => any_answer().prop_map(Chaos::Settled),
        1 => (0u64..200_000).prop_map(Chaos::Shutdown),
    ]
}

proptest! {
    /// Answers late, lost, repeated or never: one settlement, no handler past its lease, always an end.
    #[test]
    fn any_order_of_inputs_settles_one_thing_and_ends(
        start in 0u64..80_000,
        grace in prop::sample::select(vec![0u64, 1_000, 30_000]),
        limit in prop::option::of(1u64..100_000),
        chaos in prop::collection::vec(any_chaos(), 0..60),
    ) {
        let stop_grace = Duration::from_millis(grace);
        let time_limit = limit.map(Duration::from_millis);
        let mut bench = Bench::new(RunSettings { time_limit, stop_grace, ..settings() });
        bench.at(start).give(RunInput::Start);
        let check = |bench: &Bench, running: bool| {
            prop_assert!(bench.dispatched <= 1);
            let same = bench.settles.windows(2).all(|two| format!("{:?}", two[0]) == format!("{:?}", two[1]));
            prop_assert!(same, "two settlements differ");
            let late = bench.now >= bench.driver.stop_at().as_millis();
            prop_assert!(!(running && late) || bench.stopped.is_some(), "a handler runs past stop_at");
            Ok(())
        };
        let (mut handler_over, mut gave_way) = (false, None);
        for event in chaos {
            let input = match event {
                Chaos::Pass(ms) => {
                    // Time passes in the steps that the driver asked for: a runtime never oversleeps a wish by design.
                    let until = bench.now + ms;
                    while bench.end.is_none() && bench.wake_at.is_some_and(|at| at.as_millis() <= until) {
                        let at = bench.wake_at.take().unwrap().as_millis().max(bench.now);
                        bench.at(at).give(RunInput::Timer);
                        check(&bench, bench.dispatched == 1 && !handler_over)?;
                    }
                    bench.now = until;
                    continue;
                }
                Chaos::Extended(answer) => RunInput::Extended(answer.map(|(interrupt, cancel)| Extended {
                    lease_until: Timestamp::default(), head_seq: 1, newer: 0,
                    interrupt,
                    cancel,
                })),
                Chaos::Look => RunInput::Look,
                Chaos::GaveWay if bench.dispatched == 0 => continue,
                Chaos::GaveWay => {
                    gave_way = Some(bench.settles.len());
                    RunInput::GaveWay { answer: HoldAnswer::Superseded, state: RunState::Pending }
                }
                Chaos::Settled(answer) => RunInput::Settled(answer.map(|()| Settled {
                    state: RunState::Succeeded, next_at: None, repeated: false,
                    change: Change::Succeeded,
                })),
                Chaos::Shutdown(at) => RunInput::Shutdown { finish_by: Tick::from_millis(at) },
                Chaos::Ended(_) if bench.dispatched == 0 || handler_over => continue,
                Chaos::Ended(how) => {
                    handler_over = true;
                    match how {
                        0 => ended(Outcome::succeeded()),
                        1 => ended(Outcome::retry("x")),
                        2 => ended(Outcome::failed("x")),
                        3 => ended(Outcome::release("x")),
                        4 => RunInput::HandlerEnded(HandlerEnd::Panicked("x".into())),
                        _ => RunInput::HandlerEnded(HandlerEnd::Error("x".into())),
                    }
                }
            };
            bench.give(input);
            check(&bench, bench.dispatched == 1 && !handler_over)?;
        }
        // Silence: no further answer ever comes. The timers alone bring it to its end.
        for _ in 0..1_000 {
            if bench.end.is_some() {
                break;
            }
            let at = bench.wake_at.take().expect("a driver that waits asks to be woken");
            let at = at.as_millis().max(bench.now);
            bench.at(at).give(RunInput::Timer);
        }
        prop_assert!(bench.end.is_some(), "it never ended, in {:?}", bench.driver.phase());
        prop_assert!(gave_way.is_none_or(|before| bench.settles.len() == before), "settled after giving way");
    }
}
