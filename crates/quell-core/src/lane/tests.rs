//! The lane by itself, where a store would only be in the way.

use super::*;
use crate::event::{EventId, Key, NewEventId, Payload};

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn event(window: Window) -> NewEvent {
    let lane = LaneKey::new(QueueName::new("q").unwrap(), Key::new("k").unwrap());
    let policy = AppendPolicy { window, ..AppendPolicy::default() };
    let id = NewEventId::Made(EventId::new("e").unwrap());
    NewEvent::new(lane, id, Payload::of(&serde_json::json!("12345678")), policy.into())
}

fn policy(rules: RunRules) -> Arc<RunPolicy> {
    RunPolicy { lease: Duration::from_secs(10), max_attempts: 3, rules, ..RunPolicy::default() }.into()
}

fn claimer(token: u64, rules: RunRules) -> Claimer {
    let worker = "w:1:a".parse().map(Arc::new).unwrap();
    Claimer { worker, token, policy: policy(rules), claim_id: None, probe: false }
}

fn taken(count: u64, hi: u64, at: Timestamp) -> Taken {
    Taken { count, bytes: count * 10, hi, last_at: at, rest: None }
}

/// A lane with one event, claimed at 1 s with token 10.
fn claimed(rules: RunRules) -> Lane {
    let mut lane = Lane::new(1, at(0));
    lane.append(at(0), 1, &event(Window::quiet(Duration::from_secs(1))), None, || 7);
    lane.cut(at(1_000), taken(1, 1, at(0)), || 99);
    lane.claim(at(1_000), &claimer(10, rules));
    lane
}

fn interrupt() -> RunRules {
    RunRules { during_run: DuringRun::Interrupt, retry_with: RetryWith::Newer, ..RunRules::default() }
}

#[test]
fn an_interrupted_run_waits_for_the_window_of_the_newer_events_and_takes_them_in() {
    let mut lane = claimed(interrupt());
    lane.append(at(2_000), 2, &event(Window::quiet(Duration::from_secs(1))), None, || 8);
    assert!(lane.extend(at(2_000), 7, 10, Duration::from_secs(10)).unwrap().interrupt);
    let step = lane.settle(at(2_100), 7, 10, &Settlement::of(Verdict::Interrupted), None).unwrap();
    assert_eq!(step.made.change, Change::Interrupted);
    assert_eq!(lane.attention(at(2_999)), Attention::Wait(at(3_000)));
    assert_eq!(lane.attention(at(3_000)), Attention::Again);
    assert!(lane.takes_newer(&policy(interrupt())).is_some());
    let merged = lane.absorb(at(3_000), taken(1, 2, at(2_000)), || 9);
    assert_eq!(merged.finished.unwrap().run.links.merged_into, Some(7));
    lane.claim(at(3_000), &claimer(11, interrupt()));
    let run = lane.current.as_ref().unwrap();
    assert_eq!((run.number, run.attempt(), run.revision, run.count), (7, 1, 1, 2));
    assert_eq!(run.fired_by, FiredBy::Merge);
}

#[test]
fn a_held_run_passes_the_gate_and_is_never_interrupted_afterwards() {
    let mut lane = claimed(interrupt());
    let (answer, _) = lane.hold(at(1_500), 7, 10, Some(1)).unwrap();
    assert_eq!(answer, HoldAnswer::Held);
    lane.append(at(2_000), 2, &event(Window::none()), None, || 8);
    assert!(!lane.extend(at(2_000), 7, 10, Duration::from_secs(10)).unwrap().interrupt);
    let end = Settlement { if_head: Some(1), ..Settlement::of(Verdict::Succeeded) };
    assert_eq!(lane.settle(at(2_100), 7, 10, &end, None).unwrap().made.change, Change::Succeeded);
}

#[test]
fn the_gate_ends_the_attempt_when_something_newer_is_there() {
    let mut lane = claimed(RunRules { during_run: DuringRun::Gate, ..interrupt() });
    lane.append(at(2_000), 2, &event(Window::none()), None, || 8);
    let (answer, step) = lane.hold(at(2_000), 7, 10, Some(1)).unwrap();
    assert_eq!(answer, HoldAnswer::Superseded);
    assert_eq!(step.unwrap().made.verdict, Some(crate::outcome::VerdictKind::Superseded));
    assert_eq!(lane.hold(at(2_000), 7, 10, None), Err(NotHolder));
}

#[test]
fn halves_go_before_anything_newer_and_the_left_one_first() {
    let mut lane = claimed(RunRules { on_failed: OnFailed::Bisect, ..RunRules::default() });
    lane.append(at(1_500), 9, &event(Window::none()), None, || 8);
    lane.current.as_mut().unwrap().count = 3;
    let step = lane.settle(at(2_000), 7, 10, &Settlement::of(Verdict::Failed), None).unwrap();
    assert!(step.split);
    let parent = step.finished.unwrap().run;
    let part = |number, count| Part {
        number,
        lo: 1,
        hi: 3,
        count,
        bytes: 10,
        first_at: at(0),
        last_at: at(0),
        source: None,
    };
    lane.split(at(2_000), &parent, part(20, 2), part(21, 1));
    assert_eq!(lane.fixed_runs().map(|c| c.number).collect::<Vec<_>>(), [20, 21]);
    lane.claim(at(2_000), &claimer(30, RunRules::default()));
    assert_eq!(lane.current.as_ref().unwrap().max_attempts, 1);
    lane.settle(at(2_000), 20, 30, &Settlement::of(Verdict::Succeeded), None).unwrap();
    assert_eq!(lane.attention(at(2_000)), Attention::Again, "the right half is next");
}

/// Found by the model: a heartbeat of a server whose clock is behind.
#[test]
fn a_heartbeat_with_a_clock_that_is_behind_does_not_take_the_time_of_the_lane_back() {
    let mut lane = claimed(RunRules::default());
    lane.append(at(5_000), 9, &event(Window::none()), None, || 8);
    let beat = lane.extend(at(4_000), 7, 10, Duration::from_secs(10)).unwrap();
    assert_eq!(lane.updated_at, at(5_000));
    assert!(beat.lease_until >= at(15_000), "{:?}", beat.lease_until);
}

#[test]
fn priority_overtakes_by_thirty_seconds_a_level() {
    assert!(rank(at(60_000), 5) < rank(at(31_000), 4));
    assert!(rank(at(61_001), 5) > rank(at(31_000), 4));
}

#[test]
fn a_run_that_was_put_back_gets_its_attempt_also_from_settings_with_fewer() {
    let mut lane = claimed(RunRules::default());
    lane.settle(at(1_500), 7, 10, &Settlement::of(Verdict::Retry { after: None }), None).unwrap();
    let fewer = RunPolicy { max_attempts: 1, ..(*policy(RunRules::default())).clone() };
    lane.claim(at(60_000), &Claimer { policy: fewer.into(), ..claimer(11, RunRules::default()) });
    let run = lane.current.as_ref().unwrap();
    assert_eq!((run.attempt(), run.max_attempts), (2, 2), "and it is told that this is the last one");
    let again = Settlement::of(Verdict::Retry { after: None });
    assert_eq!(lane.settle(at(60_500), 7, 11, &again, None).unwrap().made.change, Change::Exhausted);
}
