//! The table of worker states, row by row, and what the loop asks of a store.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::WorkerState::{
    Backoff, Claiming, Connecting, Draining, ErrorWait, Idle, Polling, Recovery, Startup, Stopped,
};
use super::*;
use crate::batch::{Batch, RunId, WorkerId};
use crate::clock::{Tick, Timestamp};
use crate::error::StoreError;
use crate::event::{Key, LaneKey, QueueName};
use crate::store::{ClaimQueues, ClaimRequest, Claimed, RunPolicy, SweepRequest, Swept};
use crate::window::FiredBy;

/// A loop with a hand on its inputs.
struct Bench {
    machine: WorkerLoop,
    now: u64,
    moves: Vec<WorkerState>,
    claims: Vec<ClaimRequest>,
    sweeps: Vec<SweepRequest>,
    started: Vec<Slot>,
    handed_back: usize,
    wake_at: Option<Tick>,
    finish_by: Option<Tick>,
    abandoned: bool,
}

fn queue(name: &str, concurrency: usize) -> LoopQueue {
    let policy = RunPolicy::default();
    LoopQueue { queue: QueueName::new(name).unwrap(), policy: Arc::new(policy), concurrency }
}

fn settings() -> LoopSettings {
    let worker = WorkerId { name: "w".into(), pid: 1, start: "s".into() };
    let queues = LoopQueues::Listed(vec![queue("a", 2), queue("b", 3)]);
    LoopSettings { concurrency: 4, ..LoopSettings::new(Arc::new(worker), queues) }
}

fn batch(queue: &str) -> Batch {
    Batch {
        revision: 0,
        run_id: RunId { lane: 1, number: 2 },
        lane: LaneKey::new(QueueName::new(queue).unwrap(), Key::new("k").unwrap()),
        attempt: 1,
        max_attempts: 10,
        retries: 0,
        token: 3,
        fired_by: FiredBy::None,
        first_at: Timestamp::default(),
        last_at: Timestamp::default(),
        claimed_at: Timestamp::default(),
        lease_until: Timestamp::default(),
        head_seq: 1,
        source: None,
        events: Vec::new(),
    }
}

/// An answer at store time 1,000,000 with batches of these queues and the next due time this much later.
fn answer(queues: &[&str], next_in: Option<i64>) -> LoopInput {
    let now = 1_000_000;
    LoopInput::Claimed(Ok(Claimed {
        batches: queues.iter().map(|q| batch(q)).collect(),
        now: Timestamp::from_millis(now),
        next_at: next_in.map(|ms| Timestamp::from_millis(now + ms)),
        ..Claimed::default()
    }))
}

fn away() -> StoreError {
    StoreError::unavailable("away")
}

impl Bench {
    fn new(settings: LoopSettings) -> Self {
        Bench {
            machine: WorkerLoop::new(settings),
            now: 0,
            moves: Vec::new(),
            claims: Vec::new(),
            sweeps: Vec::new(),
            started: Vec::new(),
            handed_back: 0,
            wake_at: None,
            finish_by: None,
            abandoned: false,
        }
    }

    /// Started, swept and with the first claim in flight.
    fn polling() -> Self {
        let mut bench = Bench::new(settings());
        bench.give(LoopInput::Start);
        bench.give(LoopInput::Swept(Ok(Swept::default())));
        assert_eq!(bench.machine.state(), Polling);
        bench
    }

    /// Asleep after an empty claim.
    fn idle() -> Self {
        let mut bench = Bench::polling();
        bench.give(answer(&[], None));
        assert_eq!(bench.machine.state(), Idle);
        bench
    }

    /// Gives an input and returns the states that the loop went through because of it.
    fn give(&mut self, input: LoopInput) -> Vec<WorkerState> {
        let mut out = Vec::new();
        self.machine.step(Tick::from_millis(self.now), input, &mut out);
        self.moves.clear();
        for effect in out {
            match effect {
                LoopEffect::State { to, .. } => self.moves.push(to),
                LoopEffect::Sweep(request) => self.sweeps.push(request),
                LoopEffect::Claim(request) => self.claims.push(request),
                LoopEffect::Run { slot, .. } => self.started.push(slot),
                LoopEffect::HandBack { .. } => self.handed_back += 1,
                LoopEffect::WakeAt(at) => self.wake_at = Some(at),
                LoopEffect::StopRuns { finish_by } => self.finish_by = Some(finish_by),
                LoopEffect::AbandonRuns => self.abandoned = true,
            }
        }
        self.moves.clone()
    }

    /// Lets the time pass until the loop wanted to be woken.
    fn sleep(&mut self) -> Vec<WorkerState> {
        self.now = self.wake_at.take().expect("the loop sleeps").as_millis();
        self.give(LoopInput::Timer)
    }

    /// How long the loop wants to sleep.
    fn pause(&self) -> u64 {
        self.wake_at.expect("the loop sleeps").as_millis() - self.now
    }
}

#[test]
fn startup_to_connecting_when_run_is_entered() {
    let mut bench = Bench::new(settings());
    assert_eq!(bench.machine.state(), Startup);
    assert_eq!(bench.give(LoopInput::Start), [Connecting]);
    assert_eq!((bench.sweeps.len(), bench.claims.len()), (1, 0), "the first call is the first sweep");
}

#[test]
fn connecting_to_recovery_when_connected_and_the_sweep_is_due() {
    let mut bench = Bench::new(settings());
    bench.give(LoopInput::Start);
    let more = Swept { more: true, ..Swept::default() };
    assert_eq!(bench.give(LoopInput::Swept(Ok(more))), [Recovery]);
    assert_eq!(bench.sweeps.len(), 2, "it stays in recovery until all expired leases are taken back");
    assert!(bench.sweeps.iter().all(|s| s.reclaim && s.retention.is_none()));
}

#[test]
fn connecting_to_error_wait_when_the_connection_failed() {
    let mut bench = Bench::idle();
    assert_eq!(bench.sleep(), [Connecting]);
    assert_eq!(bench.give(LoopInput::Claimed(Err(away()))), [ErrorWait]);
    let mut bench = Bench::new(settings());
    bench.give(LoopInput::Start);
    assert_eq!(bench.give(LoopInput::Swept(Err(away()))), [ErrorWait]);
}

#[test]
fn recovery_to_polling_when_swept() {
    let mut bench = Bench::new(settings());
    bench.give(LoopInput::Start);
    assert_eq!(bench.give(LoopInput::Swept(Ok(Swept::default()))), [Recovery, Polling]);
    assert_eq!(bench.claims.len(), 1);
}

#[test]
fn recovery_to_polling_when_the_interval_has_not_passed() {
    let mut bench = Bench::idle();
    assert_eq!(bench.sleep(), [Connecting]);
    assert_eq!(bench.give(answer(&[], None))[..2], [Recovery, Polling]);
    assert_eq!(bench.sweeps.len(), 1, "only the first");
}

#[test]
fn polling_to_claiming_when_a_due_lane_was_seen() {
    let mut bench = Bench::polling();
    assert_eq!(bench.give(answer(&["a"], None))[..2], [Claiming, Polling]);
    assert_eq!(bench.started, [Slot(0)]);
}

#[test]
fn polling_to_backoff_when_none_was_seen() {
    let mut bench = Bench::polling();
    assert_eq!(bench.give(answer(&[], None)), [Backoff, Idle]);
}

#[test]
fn backoff_to_idle_with_an_interval_that_doubles_and_is_reset_by_work() {
    let mut bench = Bench::polling();
    let mut pauses = Vec::new();
    for _ in 0..8 {
        bench.give(answer(&[], None));
        pauses.push(bench.pause());
        bench.sleep();
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
    bench.give(answer(&["a"], None));
    assert_eq!(bench.pause(), 100);
}

#[test]
fn the_interval_is_bounded_by_the_next_due_time() {
    let mut bench = Bench::polling();
    bench.give(answer(&[], Some(37)));
    assert_eq!(bench.pause(), 37);
    bench.sleep();
    bench.give(answer(&[], Some(999_999)));
    assert_eq!(bench.pause(), 200, "and by the back-off");
}

#[test]
fn idle_to_connecting_when_slept() {
    let mut bench = Bench::idle();
    assert_eq!(bench.sleep(), [Connecting]);
    assert_eq!(bench.claims.len(), 2);
}

#[test]
fn idle_to_connecting_when_woken() {
    let mut bench = Bench::idle();
    assert_eq!(bench.give(LoopInput::Woken), [Connecting]);
    assert_eq!(bench.claims.len(), 2);
}

#[test]
fn claiming_to_processing_when_the_lease_was_acquired() {
    let mut bench = Bench::polling();
    bench.give(answer(&["a", "b"], None));
    assert_eq!(bench.started, [Slot(0), Slot(1)], "each gets a driver, which is in Processing by itself");
    assert_eq!(bench.machine.running(), 2);
}

#[test]
fn claiming_to_polling_when_another_worker_was_faster() {
    let mut bench = Bench::polling();
    assert_eq!(bench.give(answer(&[], Some(0))), [Claiming, Polling, Backoff, Idle]);
    assert_eq!(bench.pause(), 1, "soon again, though never in a tight loop");
    bench.sleep();
    bench.give(answer(&[], Some(-5)));
    assert_eq!(bench.pause(), 2);
}

#[test]
fn reporting_to_polling_when_settled() {
    let mut bench = Bench::polling();
    bench.give(answer(&["a", "a", "b", "b"], Some(-1)));
    assert_eq!(bench.machine.state(), Idle, "full: nothing to ask for");
    assert_eq!(bench.give(LoopInput::Woken), [], "nor when woken");
    assert_eq!(bench.give(LoopInput::RunsEnded(vec![Slot(0)])), [Connecting]);
    assert_eq!(bench.claims.last().unwrap().max, 1);
}

#[test]
fn any_state_to_error_wait_and_after_five_seconds_to_connecting() {
    let mut bench = Bench::polling();
    let corrupt = StoreError::new(crate::error::ErrorKind::Corrupt, "unreadable");
    assert_eq!(bench.give(LoopInput::Claimed(Err(corrupt))), [ErrorWait]);
    assert_eq!(bench.pause(), 5_000);
    bench.now += 1_000;
    assert_eq!(bench.give(LoopInput::Woken), [], "no storm of calls on a store that is away");
    assert_eq!(bench.give(LoopInput::Timer), [], "not before its time");
    assert_eq!(bench.sleep(), [Connecting]);
    for _ in 0..100 {
        // One of the two is in flight; the other is ignored.
        bench.give(LoopInput::Claimed(Err(away())));
        bench.give(LoopInput::Swept(Err(away())));
        assert_eq!(bench.sleep(), [Connecting], "the loop never exits by itself");
    }
}

#[test]
fn a_store_that_is_merely_away_is_asked_again_after_a_second() {
    let mut bench = Bench::polling();
    assert_eq!(bench.give(LoopInput::Claimed(Err(away()))), [ErrorWait]);
    assert_eq!(bench.pause(), 1_000);
    assert_eq!(bench.sleep(), [Connecting]);
}

#[test]
fn error_wait_stops_no_running_handler() {
    let mut bench = Bench::polling();
    bench.give(answer(&["a"], Some(-1)));
    bench.give(LoopInput::Claimed(Err(away())));
    assert_eq!((bench.machine.state(), bench.machine.running()), (ErrorWait, 1));
    assert!(!bench.abandoned && bench.finish_by.is_none());
    assert_eq!(bench.give(LoopInput::RunsEnded(vec![Slot(0)])), []);
    assert_eq!(bench.machine.running(), 0);
}

#[test]
fn a_wake_up_during_a_claim_is_not_lost() {
    let mut bench = Bench::polling();
    bench.give(LoopInput::Woken);
    assert_eq!(bench.give(answer(&[], None)), [], "still polling");
    assert_eq!(bench.claims.len(), 2);
    bench.give(answer(&[], None));
    assert_eq!(bench.machine.state(), Idle);
}

#[test]
fn a_claim_asks_for_as_many_lanes_as_there_is_room() {
    let mut bench = Bench::polling();
    let asked = |bench: &Bench| {
        let request = bench.claims.last().unwrap();
        let ClaimQueues::Listed(list) = &request.queues else { panic!("listed") };
        (request.max, list.iter().map(|q| (q.queue.to_string(), q.max)).collect::<Vec<_>>())
    };
    let of = |name: &str, max| (name.to_owned(), max);
    assert_eq!(asked(&bench), (4, vec![of("a", 2), of("b", 3)]));
    bench.give(answer(&["a", "a"], Some(-1)));
    assert_eq!(asked(&bench), (2, vec![of("b", 2)]), "a full queue is not asked for");
    bench.give(answer(&[], None));
    assert_eq!(bench.give(LoopInput::RunsEnded(vec![Slot(0)])), [Connecting], "its place is free again");
    assert_eq!(asked(&bench), (3, vec![of("a", 1), of("b", 3)]));
}

#[test]
fn after_work_it_asks_again_at_once_only_if_more_is_due() {
    let mut bench = Bench::polling();
    bench.give(answer(&["a"], Some(-1)));
    assert_eq!(bench.claims.len(), 2, "more is due");
    bench.give(answer(&["b"], Some(5_000)));
    assert_eq!((bench.claims.len(), bench.machine.state()), (2, Idle), "the store said that nothing is");
}

#[test]
fn an_idle_worker_makes_less_than_one_call_a_second() {
    let mut bench = Bench::new(settings());
    bench.give(LoopInput::Start);
    let calls = |bench: &Bench| bench.claims.len() + bench.sweeps.len();
    let mut answered = 0;
    while bench.now < 600_000 {
        if calls(&bench) == answered {
            bench.sleep();
        }
        answered = calls(&bench);
        let swept = bench.machine.state() == Connecting && bench.sweeps.len() as u64 > bench.now / 60_001;
        // Whichever call is in flight accepts its answer and ignores the other.
        if swept {
            bench.give(LoopInput::Swept(Ok(Swept::default())));
        }
        bench.give(answer(&[], None));
    }
    let per_second = calls(&bench) as f64 / 600.0;
    assert!(per_second < 0.3, "{per_second}");
    assert!((9..=11).contains(&bench.sweeps.len()), "{} sweeps in ten minutes", bench.sweeps.len());
}

#[test]
fn a_busy_worker_sweeps_too() {
    let mut bench = Bench::polling();
    bench.now = 61_000;
    let moves = bench.give(answer(&["a"], Some(-1)));
    assert_eq!(moves, [Claiming, Polling, Backoff, Idle, Connecting]);
    assert_eq!(bench.sweeps.len(), 2);
}

#[test]
fn clocks_that_diverge_reclaim_nothing_for_one_lease() {
    let mut bench = Bench::new(LoopSettings { sweep_every: Duration::from_secs(3600), ..settings() });
    bench.give(LoopInput::Start);
    bench.give(LoopInput::Swept(Ok(Swept::default())));
    bench.give(answer(&[], None));
    bench.give(LoopInput::Clocks { wall_ahead_ms: 5 });
    bench.give(LoopInput::Clocks { wall_ahead_ms: 15_005 });
    bench.sleep();
    assert!(bench.claims.last().unwrap().reclaim, "a quarter of the lease is within bounds");
    bench.give(answer(&[], None));
    bench.give(LoopInput::Clocks { wall_ahead_ms: -2 });
    let jumped = bench.now;
    bench.sleep();
    assert!(!bench.claims.last().unwrap().reclaim);
    bench.give(answer(&[], None));
    bench.now = jumped + 59_999;
    bench.give(LoopInput::Woken);
    assert!(!bench.claims.last().unwrap().reclaim);
    bench.give(answer(&[], None));
    bench.now = jumped + 60_000;
    bench.give(LoopInput::Woken);
    assert!(bench.claims.last().unwrap().reclaim, "one lease later it trusts its clocks again");
}

#[test]
fn the_first_shutdown_drains_and_the_last_end_stops() {
    let mut bench = Bench::polling();
    bench.give(answer(&["a", "b"], Some(5_000)));
    assert_eq!(bench.give(LoopInput::Shutdown), [Draining]);
    assert_eq!(
        bench.finish_by,
        Some(Tick::from_millis(23_000)),
        "two seconds of the grace are for handing back"
    );
    assert_eq!(bench.give(LoopInput::Woken), []);
    bench.give(LoopInput::RunsEnded(vec![Slot(0)]));
    assert_eq!(bench.give(LoopInput::RunsEnded(vec![Slot(1)])), [Stopped]);
    assert_eq!(bench.claims.len(), 1, "nothing is claimed any more");
}

#[test]
fn what_a_claim_brings_after_the_shutdown_is_handed_back() {
    let mut bench = Bench::polling();
    assert_eq!(bench.give(LoopInput::Shutdown), [Draining]);
    bench.give(answer(&["a"], None));
    assert_eq!((bench.handed_back, bench.started.len()), (1, 0));
    assert_eq!(bench.give(LoopInput::RunsEnded(vec![Slot(0)])), [Stopped]);
}

#[test]
fn the_second_shutdown_stops_at_once() {
    let mut bench = Bench::polling();
    bench.give(answer(&["a"], None));
    bench.give(LoopInput::Shutdown);
    assert_eq!(bench.give(LoopInput::Shutdown), [Stopped]);
    assert!(bench.abandoned);
}

#[test]
fn a_drain_ends_with_the_grace() {
    let mut bench = Bench::polling();
    bench.give(answer(&["a"], None));
    bench.give(LoopInput::Shutdown);
    assert_eq!(bench.pause(), 25_000);
    assert_eq!(bench.sleep(), [Stopped]);
    assert!(bench.abandoned);
}

#[test]
fn a_short_grace_leaves_the_time_to_hand_back() {
    for (grace, finish_by, ends) in [(0, 0, 2_000), (1_000, 750, 2_750), (4_000, 3_000, 5_000)] {
        let settings = LoopSettings { grace: Duration::from_millis(grace), ..settings() };
        let mut bench = Bench::new(settings);
        bench.give(LoopInput::Start);
        bench.give(LoopInput::Swept(Ok(Swept::default())));
        bench.give(answer(&["a"], None));
        bench.give(LoopInput::Shutdown);
        assert_eq!(bench.finish_by, Some(Tick::from_millis(finish_by)), "{grace}");
        assert_eq!(bench.pause(), ends, "{grace}");
    }
}

#[test]
fn until_idle_stops_when_nothing_is_left_and_not_before() {
    let mut bench = Bench::new(LoopSettings { until_idle: true, ..settings() });
    bench.give(LoopInput::Start);
    bench.give(LoopInput::Swept(Ok(Swept::default())));
    bench.give(answer(&["a"], None));
    bench.sleep();
    bench.give(answer(&[], None));
    assert_eq!(bench.machine.state(), Idle, "one still runs");
    assert_eq!(bench.give(LoopInput::RunsEnded(vec![Slot(0)])), [Connecting]);
    bench.give(answer(&[], Some(60_000)));
    assert_eq!(bench.machine.state(), Idle, "one is waiting for its backoff");
    bench.sleep();
    assert_eq!(bench.give(answer(&[], None)), [Recovery, Polling, Draining, Stopped]);
}

/// Settings that follow `settings()`, with places behind `first`.
fn change(first: usize, queues: Vec<LoopQueue>) -> LoopInput {
    let LoopSettings { concurrency, error_wait, sweep_every, grace, .. } = settings();
    let (queues, first) = (LoopQueues::Listed(queues), Slot(first));
    LoopInput::Change(LoopChange { queues, first, concurrency, error_wait, sweep_every, grace })
}

fn asked_for(claim: &ClaimRequest) -> Vec<(&str, usize)> {
    let ClaimQueues::Listed(list) = &claim.queues else { panic!("queues are listed") };
    list.iter().map(|one| (one.queue.as_str(), one.max)).collect()
}

#[test]
fn changed_settings_are_in_force_at_once_and_running_lanes_count_against_them() {
    let mut bench = Bench::polling();
    bench.give(answer(&["a"], None));
    assert_eq!(bench.give(change(2, vec![queue("c", 1), queue("a", 3)])), [Connecting]);
    assert_eq!(asked_for(bench.claims.last().unwrap()), [("c", 1), ("a", 2)]);
    bench.give(answer(&["c", "a"], None));
    assert_eq!(bench.started, [Slot(0), Slot(2), Slot(3)], "places go on behind the earlier ones");
    bench.give(LoopInput::RunsEnded(vec![Slot(0), Slot(2)]));
    bench.give(LoopInput::Woken);
    assert_eq!(asked_for(bench.claims.last().unwrap()), [("c", 1), ("a", 2)]);
}

#[test]
fn a_claim_in_flight_is_answered_under_the_settings_it_was_asked_with() {
    let mut bench = Bench::polling();
    bench.give(change(2, vec![queue("c", 1)]));
    assert_eq!(bench.claims.len(), 1, "one call at a time");
    bench.give(answer(&["b"], None));
    assert_eq!(bench.started, [Slot(1)], "a queue that has gone since is still worked on");
    assert_eq!(asked_for(bench.claims.last().unwrap()), [("c", 1)], "and the new ones are asked for at once");
    bench.give(LoopInput::RunsEnded(vec![Slot(1)]));
    assert_eq!(bench.machine.running(), 0);
}

#[test]
fn fewer_places_than_runs_wait_until_some_have_ended() {
    let mut bench = Bench::polling();
    bench.give(answer(&["a", "a", "b"], None));
    let LoopInput::Change(fewer) = change(2, vec![queue("a", 1), queue("b", 1)]) else { unreachable!() };
    bench.give(LoopInput::Change(LoopChange { concurrency: 1, ..fewer }));
    let before = bench.claims.len();
    bench.give(LoopInput::Woken);
    bench.give(LoopInput::RunsEnded(vec![Slot(0), Slot(1)]));
    assert_eq!(bench.claims.len(), before, "one still runs, and there is room for one");
    bench.give(LoopInput::RunsEnded(vec![Slot(0)]));
    bench.give(LoopInput::Woken);
    assert_eq!(asked_for(bench.claims.last().unwrap()), [("a", 1), ("b", 1)]);
}

fn any_input() -> impl Strategy<Value = LoopInput> {
    prop_oneof![
        3 => Just(()).prop_map(|()| LoopInput::Timer),
        2 => Just(()).prop_map(|()| LoopInput::Woken),
        4 => (0usize..3, prop::option::of(-5i64..5_000)).prop_map(|(n, next)| answer(&["a"; 3][..n], next)),
        1 => Just(()).prop_map(|()| LoopInput::Claimed(Err(away()))),
        2 => Just(()).prop_map(|()| LoopInput::Swept(Ok(Swept::default()))),
        1 => Just(()).prop_map(|()| LoopInput::Swept(Err(away()))),
        1 => (-100_000i64..100_000).prop_map(|wall_ahead_ms| LoopInput::Clocks { wall_ahead_ms }),
    ]
}

proptest! {
    /// Whatever comes in whatever order, the loop takes only moves of the table, and it never sleeps for ever.
    #[test]
    fn any_order_of_inputs_keeps_the_table(inputs in prop::collection::vec((any_input(), 0u64..2_000), 1..80)) {
        let mut bench = Bench::new(settings());
        bench.give(LoopInput::Start);
        for (input, passed) in inputs {
            bench.now += passed;
            // No store hands out more than it was asked for.
            if let LoopInput::Claimed(Ok(claimed)) = &input
                && claimed.batches.len() + bench.machine.running() > 2
            {
                continue;
            }
            bench.give(input);
            let sleeping = matches!(bench.machine.state(), Idle | ErrorWait);
            prop_assert!(!sleeping || bench.wake_at.is_some());
            prop_assert!(!matches!(bench.machine.state(), Startup | Stopped | Backoff | Claiming));
            if bench.machine.running() > 0 && passed % 3 == 0 {
                bench.give(LoopInput::RunsEnded(vec![Slot(0)]));
            }
        }
        bench.give(LoopInput::Shutdown);
        bench.give(LoopInput::Shutdown);
        prop_assert_eq!(bench.machine.state(), Stopped);
    }
}
