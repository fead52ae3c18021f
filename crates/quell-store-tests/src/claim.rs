//! Promises of claim: a due lane goes to exactly one worker, as one ordered batch, under a lease with a token that rises;
//! the answer says when to look again, and a listener hears what changes that.

use std::time::Duration;

use quell_core::batch::Batch;
use quell_core::lifecycle::{Change, RunState};
use quell_core::store::{ClaimQueues, ClaimRequest, ControlAction, RunPolicy, Wakeups};
use quell_core::window::FiredBy;

use crate::World;
use crate::builders::{
    ATTEMPTS, FAILED, LEASE, RETRY, SUCCEEDED, append, append_one, claim, claim_all, claim_none, claim_one,
    claim_one_as, claim_request, claim_request_by, control, event, extend, forget, from_queue, ids, keys,
    lane, policy, secs, seq_of, seqs, settle, settle_after, tenant, try_settle, worker,
};
use crate::reads::{assert_moment, changes, health, lane_row, run_detail, state_of, totals, trail_of};

pub async fn a_due_lane_is_handed_over_whole_and_in_order(world: &dyn World) {
    let store = world.store();
    for id in ["a", "b", "c"] {
        append_one(&*store, event("chat", "k1").id(id)).await;
    }
    let batch = claim_one(&*store).await;
    assert_eq!(ids(&batch), ["a", "b", "c"]);
    assert!(seqs(&batch).is_sorted());
}

pub async fn the_envelope_tells_the_whole_story(world: &dyn World) {
    let store = world.store();
    let start = health(&*store).await.now;
    let first = append_one(&*store, event("chat", "k1").quiet(20)).await;
    world.advance(secs(15)).await;
    let second = append_one(&*store, event("chat", "k1").quiet(20)).await;
    world.advance(secs(25)).await;
    let batch = claim_one(&*store).await;
    assert_eq!(batch.lane, lane("chat", "k1"));
    assert_eq!(Some(batch.run_id), first.run_id);
    assert_eq!((batch.attempt, batch.max_attempts, batch.retries), (1, ATTEMPTS, 0));
    assert_eq!(seqs(&batch), [seq_of(&first), seq_of(&second)]);
    assert_eq!(batch.head_seq, seq_of(&second));
    assert_eq!(batch.fired_by, FiredBy::Quiet);
    assert!(batch.token > 0);
    assert_moment(world, batch.first_at, start, "first_at");
    assert_moment(world, batch.last_at, start.after(secs(15)), "last_at");
    assert_moment(world, batch.claimed_at, start.after(secs(40)), "claimed_at");
    assert_eq!(batch.lease_until, batch.claimed_at.after(LEASE));
}

pub async fn the_envelope_says_why_the_batch_was_handed_over(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("q", "1-none")).await;
    append_one(&*store, event("q", "2-fixed").fixed(20)).await;
    append_one(&*store, event("q", "3-quiet").quiet(20)).await;
    append_one(&*store, event("q", "4-cap").quiet_capped(20, 30)).await;
    append(&*store, [event("q", "5-count").fixed(500).max_events(2), event("q", "5-count")]).await;
    append_one(&*store, event("q", "6-bytes").raw("\"1234567890\"").fixed(500).max_bytes(10)).await;
    append_one(&*store, event("q", "7-flush").fixed(500)).await;
    control(&*store, ControlAction::Flush(lane("q", "7-flush"))).await;
    world.advance(secs(15)).await;
    append_one(&*store, event("q", "4-cap").quiet_capped(20, 30)).await;
    world.advance(secs(20)).await;
    let told: Vec<_> =
        claim_all(&*store).await.iter().map(|b| (b.lane.key.as_str().to_owned(), b.fired_by)).collect();
    let expected = [
        ("1-none", FiredBy::None),
        ("2-fixed", FiredBy::Fixed),
        ("3-quiet", FiredBy::Quiet),
        ("4-cap", FiredBy::Cap),
        ("5-count", FiredBy::Count),
        ("6-bytes", FiredBy::Bytes),
        ("7-flush", FiredBy::Flush),
    ];
    assert_eq!(told, expected.map(|(key, by)| (key.to_owned(), by)));
}

pub async fn a_lane_that_is_not_due_is_not_handed_over(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").quiet(20)).await;
    claim_none(&*store).await;
    world.advance(secs(15)).await;
    claim_none(&*store).await;
}

/// Only where the clock stands still between two calls can the very millisecond be met.
pub async fn a_lane_is_due_at_the_very_millisecond_and_not_before(world: &dyn World) {
    if world.clock_runs() {
        return;
    }
    let store = world.store();
    append_one(&*store, event("chat", "k1").fixed(20)).await;
    world.advance(Duration::from_millis(19_999)).await;
    claim_none(&*store).await;
    world.advance(Duration::from_millis(1)).await;
    settle_after(&*store, &claim_one(&*store).await, RETRY, secs(10)).await;
    world.advance(Duration::from_millis(9_999)).await;
    claim_none(&*store).await;
    world.advance(Duration::from_millis(1)).await;
    claim_one(&*store).await;
}

/// A lease is live while now < lease_until.
pub async fn a_lease_ends_at_the_very_millisecond_and_not_before(world: &dyn World) {
    if world.clock_runs() {
        return;
    }
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let first = claim_one(&*store).await;
    world.advance(LEASE - Duration::from_millis(1)).await;
    claim_none(&*store).await;
    world.advance(Duration::from_millis(1)).await;
    assert_eq!(claim_one(&*store).await.run_id, first.run_id);
}

pub async fn a_leased_lane_yields_no_second_batch(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    append_one(&*store, event("chat", "k1")).await;
    claim_one(&*store).await;
    append_one(&*store, event("chat", "k1")).await;
    claim_none(&*store).await;
    claim_none(&*other).await;
    world.advance(secs(55)).await;
    claim_none(&*other).await;
}

pub async fn an_event_after_the_claim_belongs_to_a_later_run(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a")).await;
    let first = claim_one(&*store).await;
    append_one(&*store, event("chat", "k1").id("b")).await;
    let detail = run_detail(&*store, first.run_id).await.expect("it is kept");
    assert_eq!(detail.list.iter().map(|e| e.id.as_str()).collect::<Vec<_>>(), ["a"]);
    settle(&*store, &first, SUCCEEDED).await;
    assert_eq!(state_of(&*store, &lane("chat", "k1"), "a").await, Some(RunState::Succeeded));
    assert_eq!(state_of(&*store, &lane("chat", "k1"), "b").await, Some(RunState::Pending));
    let second = claim_one(&*store).await;
    assert_ne!(second.run_id, first.run_id);
    assert_eq!(ids(&second), ["b"]);
}

pub async fn what_is_left_over_by_count_is_due_at_once_and_in_order(world: &dyn World) {
    let store = world.store();
    let new = |id| event("chat", "k1").id(id).quiet(20).max_events(2);
    let receipts = append(&*store, ["a", "b", "c", "d", "e"].map(new)).await;
    let mut runs = Vec::new();
    for expected in [vec!["a", "b"], vec!["c", "d"], vec!["e"]] {
        let batch = claim_one(&*store).await;
        assert_eq!((ids(&batch), batch.fired_by), (expected, FiredBy::Count));
        assert_eq!(batch.head_seq, seq_of(&receipts[4]));
        runs.push(batch.run_id);
        claim_none(&*store).await;
        settle(&*store, &batch, SUCCEEDED).await;
    }
    runs.dedup();
    assert_eq!(runs.len(), 3, "each is a run of its own");
}

pub async fn what_is_left_over_by_bytes_is_due_at_once_and_in_order(world: &dyn World) {
    let store = world.store();
    let new = |id, bytes: usize| {
        event("chat", "k1").id(id).raw(&format!("\"{}\"", "x".repeat(bytes - 2))).quiet(20).max_bytes(50)
    };
    append(&*store, [new("a", 20), new("b", 20), new("c", 90), new("d", 20), new("e", 30)]).await;
    for expected in [vec!["a", "b"], vec!["c"], vec!["d", "e"]] {
        let batch = claim_one(&*store).await;
        assert_eq!((ids(&batch), batch.fired_by), (expected, FiredBy::Bytes));
        settle(&*store, &batch, SUCCEEDED).await;
    }
}

pub async fn what_is_left_over_takes_in_later_events_without_waiting_again(world: &dyn World) {
    let store = world.store();
    let new = |id| event("chat", "k1").id(id).quiet(20).max_events(2);
    append(&*store, ["a", "b", "c"].map(new)).await;
    let first = claim_one(&*store).await;
    append_one(&*store, new("d")).await;
    append_one(&*store, new("e")).await;
    settle(&*store, &first, SUCCEEDED).await;
    let second = claim_one(&*store).await;
    assert_eq!(ids(&second), ["c", "d"]);
    settle(&*store, &second, SUCCEEDED).await;
    assert_eq!(ids(&claim_one(&*store).await), ["e"]);
}

pub async fn what_is_left_over_waits_for_the_batch_before_it(world: &dyn World) {
    let store = world.store();
    let new = |id| event("chat", "k1").id(id).max_events(1);
    append(&*store, ["a", "b"].map(new)).await;
    let first = claim_one(&*store).await;
    settle_after(&*store, &first, RETRY, secs(20)).await;
    claim_none(&*store).await;
    world.advance(secs(25)).await;
    let again = claim_one(&*store).await;
    assert_eq!(ids(&again), ["a"], "a retry is never overtaken");
    settle(&*store, &again, SUCCEEDED).await;
    assert_eq!(ids(&claim_one(&*store).await), ["b"]);
}

pub async fn a_receipt_of_a_left_over_event_follows_it_to_its_new_run(world: &dyn World) {
    let store = world.store();
    let new = |id| event("chat", "k1").id(id).max_events(1);
    let before = append(&*store, ["a", "b"].map(new)).await;
    let first = claim_one(&*store).await;
    let now = append(&*store, [new("b")]).await.remove(0);
    assert!(now.duplicate && now.run_id.is_some());
    assert_ne!(now.run_id, before[1].run_id, "the run was cut");
    settle(&*store, &first, SUCCEEDED).await;
    assert_eq!(Some(claim_one(&*store).await.run_id), now.run_id);
}

/// Rule 11: a window belongs to the open run and runs on while the current one is processed.
pub async fn a_window_runs_on_during_processing_and_keeps_its_own_reason(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a")).await;
    let running = claim_one(&*store).await;
    append_one(&*store, event("chat", "k1").id("b").fixed(20)).await;
    world.advance(secs(35)).await;
    settle(&*store, &running, SUCCEEDED).await;
    let next = claim_one(&*store).await;
    assert_eq!((ids(&next), next.fired_by), (vec!["b"], FiredBy::Fixed));
}

pub async fn a_claim_takes_distinct_lanes_up_to_its_maximum(world: &dyn World) {
    let store = world.store();
    for key in ["k1", "k2", "k3", "k4", "k5"] {
        append(&*store, [event("chat", key), event("chat", key)]).await;
    }
    let request = ClaimRequest { max: 3, ..claim_request(&worker("w")) };
    let first = claim(&*store, request.clone()).await;
    assert_eq!(first.batches.len(), 3);
    assert!(first.next_at.is_some_and(|at| at <= first.now), "there is more to claim now");
    let second = claim(&*store, request).await;
    let mut all = [keys(&first.batches), keys(&second.batches)].concat();
    all.sort_unstable();
    assert_eq!(all, ["k1", "k2", "k3", "k4", "k5"]);
}

pub async fn a_claim_of_listed_queues_takes_only_those_by_their_own_policy(world: &dyn World) {
    let store = world.store();
    for name in ["chat", "mail", "other"] {
        append_one(&*store, event(name, "k1")).await;
        append_one(&*store, event(name, "k2")).await;
    }
    let short = RunPolicy { lease: secs(30), max_attempts: 7, ..policy() };
    let queues = ClaimQueues::Listed(vec![from_queue("mail", short, 10), from_queue("chat", policy(), 1)]);
    let claimed = claim(&*store, ClaimRequest { queues, ..claim_request(&worker("w")) }).await;
    let told: Vec<_> = claimed.batches.iter().map(|b| b.lane.queue.as_str()).collect();
    assert_eq!(told, ["chat", "mail", "mail"]);
    assert_eq!(claimed.batches[0].lease_until, claimed.batches[0].claimed_at.after(LEASE));
    assert_eq!(claimed.batches[1].lease_until, claimed.batches[1].claimed_at.after(secs(30)));
    assert_eq!(claimed.batches[1].max_attempts, 7);
    assert_eq!(claim_all(&*store).await.len(), 3, "the rest is still there for others");
}

pub async fn a_claim_of_no_queues_takes_nothing(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let request = ClaimRequest { queues: ClaimQueues::Listed(Vec::new()), ..claim_request(&worker("w")) };
    let claimed = claim(&*store, request).await;
    assert!(claimed.batches.is_empty());
    assert_eq!(claimed.next_at, None, "nothing that this claim could ever find");
}

pub async fn a_claim_for_one_tenant_takes_only_its_lanes(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a")).await;
    append_one(&*store, event("chat", "k1").of("acme").id("b")).await;
    append_one(&*store, event("chat", "k1").of("globex").id("c")).await;
    let of = async |name: &str| {
        let request = ClaimRequest { tenant: Some(tenant(name)), ..claim_request(&worker("w")) };
        claim(&*store, request).await.batches
    };
    assert_eq!(of("acme").await.iter().map(ids).collect::<Vec<_>>(), [["b"]]);
    assert_eq!(of("nobody").await.len(), 0);
    assert_eq!(of("").await.iter().map(ids).collect::<Vec<_>>(), [["a"]], "no tenant is a tenant of its own");
    assert_eq!(claim_all(&*store).await.iter().map(ids).collect::<Vec<_>>(), [["c"]]);
}

pub async fn at_most_max_running_lanes_of_a_queue_run_over_all_handles(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    for key in ["k1", "k2", "k3", "k4"] {
        append_one(&*store, event("chat", key)).await;
        append_one(&*store, event("mail", key)).await;
    }
    let bound = RunPolicy { max_running: Some(2), ..policy() };
    let request = |name| ClaimRequest { max: 100, ..claim_request_by(&worker(name), bound.clone()) };
    let first = claim(&*store, ClaimRequest { max: 1, ..request("w1") }).await.batches;
    assert_eq!(first.len(), 1);
    let second = claim(&*other, request("w2")).await.batches;
    let mut per_queue = [0, 0];
    for batch in first.iter().chain(&second) {
        per_queue[usize::from(batch.lane.queue.as_str() == "mail")] += 1;
    }
    assert_eq!(per_queue, [2, 2], "the bound is per queue and over all handles");
    assert!(claim(&*store, request("w1")).await.batches.is_empty());
    settle(&*store, &first[0], SUCCEEDED).await;
    let freed = claim(&*other, request("w2")).await.batches;
    assert_eq!(freed.len(), 1, "a settled run makes room for one");
    assert_eq!(freed[0].lane.queue, first[0].lane.queue);
}

pub async fn max_running_is_per_tenant(world: &dyn World) {
    let store = world.store();
    for name in ["acme", "globex"] {
        append_one(&*store, event("chat", "k1").of(name)).await;
        append_one(&*store, event("chat", "k2").of(name)).await;
    }
    let bound = RunPolicy { max_running: Some(1), ..policy() };
    let batches = claim(&*store, claim_request_by(&worker("w"), bound)).await.batches;
    let told: Vec<_> = batches.iter().map(|b| b.lane.tenant.as_str()).collect();
    assert_eq!(told, ["acme", "globex"]);
}

pub async fn an_expired_lease_makes_room_under_max_running(world: &dyn World) {
    let store = world.store();
    for key in ["k1", "k2"] {
        append_one(&*store, event("chat", key)).await;
    }
    let request = || claim_request_by(&worker("w"), RunPolicy { max_running: Some(1), ..policy() });
    assert_eq!(claim(&*store, request()).await.batches.len(), 1);
    assert_eq!(claim(&*store, request()).await.batches.len(), 0);
    world.advance(secs(65)).await;
    assert_eq!(claim(&*store, request()).await.batches.len(), 1);
}

pub async fn tokens_strictly_rise_within_a_lane(world: &dyn World) {
    let mut last = 0;
    for round in 0..4 {
        let store = world.store();
        append_one(&*store, event("chat", "k1")).await;
        let batch = claim_one(&*store).await;
        assert!(batch.token > last);
        settle(&*store, &batch, RETRY).await;
        let again = claim_one(&*store).await;
        assert!(again.token > batch.token, "each claim of a run has its own token");
        last = again.token;
        settle(&*store, &again, SUCCEEDED).await;
        if round == 1 {
            world.advance(secs(10_000)).await;
            forget(&*store, secs(5_000)).await;
        }
        drop(store);
        world.reopen().await;
    }
}

pub async fn attempts_are_counted_at_the_claim(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    for attempt in 1..=ATTEMPTS {
        let batch = claim_one(&*store).await;
        assert_eq!(batch.attempt, attempt, "a crash counts");
        assert_eq!(batch.retries, 0, "a crash is no retry outcome");
        world.advance(secs(65)).await;
    }
    claim_none(&*store).await;
    assert_eq!(totals(&*store, "chat").await.dead, 1);
}

pub async fn a_crashed_workers_lane_is_claimable_one_lease_later_and_the_reclaim_is_told(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    append(&*store, [event("chat", "k1").id("a"), event("chat", "k1").id("b")]).await;
    let dead = worker("dead");
    let first = claim_one_as(&*store, &dead).await;
    world.advance(secs(65)).await;
    let claimed = claim(&*other, claim_request(&worker("heir"))).await;
    assert_eq!(claimed.reclaimed.len(), 1);
    let told = &claimed.reclaimed[0];
    assert_eq!((&told.lane, told.run_id, told.token), (&first.lane, first.run_id, first.token));
    assert_eq!((told.worker.as_ref(), told.state), (Some(&dead), RunState::Pending));
    assert_eq!(told.claimed_at, first.claimed_at);
    let again = &claimed.batches[0];
    assert_eq!((again.run_id, again.attempt), (first.run_id, 2));
    assert_eq!(seqs(again), seqs(&first), "the batch is frozen");
    assert_eq!(again.fired_by, first.fired_by);
    assert!(again.token > first.token);
    let trail = trail_of(&*store, "chat", "k1").await;
    assert_eq!(changes(&trail), [Change::Claimed, Change::Reclaimed, Change::Claimed]);
    assert_eq!(trail[1].prior_worker, Some(dead.to_string()));
    assert_eq!(trail[2].prior_worker, Some(dead.to_string()), "the heir's claim names whom it follows");
}

pub async fn a_reclaim_on_the_last_attempt_goes_to_the_dead_letter_and_the_lane_goes_on(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a")).await;
    let once = RunPolicy { max_attempts: 1, ..policy() };
    let batch = claim(&*store, claim_request_by(&worker("w"), once.clone())).await.batches.remove(0);
    append_one(&*store, event("chat", "k1").id("b")).await;
    world.advance(secs(65)).await;
    let claimed = claim(&*store, claim_request_by(&worker("w"), once)).await;
    assert_eq!(claimed.reclaimed[0].state, RunState::Failed);
    assert_eq!(ids(&claimed.batches[0]), ["b"]);
    let detail = run_detail(&*store, batch.run_id).await.expect("a failed run is kept");
    assert_eq!(detail.row.state, RunState::Failed);
    assert_eq!(detail.row.error.as_deref(), Some("lease expired"));
    assert_eq!(detail.list[0].id.as_str(), "a");
    let trail = trail_of(&*store, "chat", "k1").await;
    assert_eq!(changes(&trail), [Change::Claimed, Change::Expired, Change::Claimed]);
}

pub async fn a_claim_that_distrusts_its_clock_leaves_expired_leases_alone(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let holder = claim_one(&*store).await;
    world.advance(secs(65)).await;
    let request = ClaimRequest { reclaim: false, ..claim_request(&worker("w")) };
    let claimed = claim(&*store, request).await;
    assert!(claimed.batches.is_empty() && claimed.reclaimed.is_empty());
    settle(&*store, &holder, SUCCEEDED).await;
}

pub async fn a_claim_takes_back_only_lanes_that_concern_it(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let holder = claim_one(&*store).await;
    world.advance(secs(65)).await;
    let queues = ClaimQueues::Listed(vec![from_queue("mail", policy(), 10)]);
    let claimed = claim(&*store, ClaimRequest { queues, ..claim_request(&worker("w")) }).await;
    assert!(claimed.reclaimed.is_empty());
    settle(&*store, &holder, SUCCEEDED).await;
}

pub async fn one_blocked_key_never_delays_another_key(world: &dyn World) {
    let store = world.store();
    append(&*store, [event("chat", "stuck"), event("chat", "stuck")]).await;
    let stuck = claim_one(&*store).await;
    append_one(&*store, event("chat", "free").id("a")).await;
    assert_eq!(ids(&claim_one(&*store).await), ["a"]);
    settle_after(&*store, &stuck, RETRY, secs(1_000)).await;
    append_one(&*store, event("chat", "other").id("b")).await;
    assert_eq!(ids(&claim_one(&*store).await), ["b"]);
}

pub async fn a_lane_that_always_has_work_does_not_starve_the_others(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "busy")).await;
    let quiet = ["k1", "k2", "k3", "k4", "k5"];
    for key in quiet {
        append_one(&*store, event("chat", key)).await;
    }
    let mut served = Vec::new();
    for _ in 0..2 * (quiet.len() + 1) {
        let request = ClaimRequest { max: 1, ..claim_request(&worker("w")) };
        let Some(batch) = claim(&*store, request).await.batches.pop() else { continue };
        append_one(&*store, event("chat", "busy")).await;
        settle(&*store, &batch, SUCCEEDED).await;
        served.push(batch.lane.key.as_str().to_owned());
        world.advance(secs(10)).await;
    }
    for key in quiet {
        assert!(served.iter().any(|s| s == key), "{key} was never served: {served:?}");
    }
}

pub async fn next_at_is_the_earliest_moment_at_which_something_is_due(world: &dyn World) {
    let store = world.store();
    let look = async || claim(&*store, claim_request(&worker("w"))).await;
    assert_eq!(look().await.next_at, None, "in an empty store only a wake-up can change that");
    append_one(&*store, event("chat", "k1").fixed(300)).await;
    append_one(&*store, event("chat", "k2").fixed(200)).await;
    let told = look().await;
    assert_moment(world, told.next_at.expect("two wait"), told.now.after(secs(200)), "the earlier window");
    append_one(&*store, event("chat", "k3")).await;
    let told = look().await;
    let held = told.batches[0].clone();
    assert_eq!(told.next_at, Some(held.lease_until), "a lease that may have to be taken back");
    settle_after(&*store, &held, RETRY, secs(30)).await;
    let told = look().await;
    assert_moment(world, told.next_at.expect("a retry waits"), told.now.after(secs(30)), "the retry");
    control(&*store, ControlAction::PauseLane(held.lane)).await;
    let told = look().await;
    assert_moment(
        world,
        told.next_at.expect("two wait"),
        told.now.after(secs(200)),
        "a paused lane is not due",
    );
}

pub async fn next_at_follows_a_window_that_moves(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").quiet(20)).await;
    world.advance(secs(15)).await;
    append_one(&*store, event("chat", "k1").quiet(20)).await;
    world.advance(secs(10)).await;
    let told = claim(&*store, claim_request(&worker("w"))).await;
    assert!(told.batches.is_empty());
    let next = told.next_at.expect("it waits");
    assert!(next > told.now, "a claimer must not be sent into a loop");
    assert_moment(world, next, told.now.after(secs(10)), "the moved window");
}

pub async fn next_at_sees_only_what_the_claim_may_take(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").fixed(100)).await;
    append_one(&*store, event("mail", "k1").fixed(200)).await;
    append_one(&*store, event("mail", "k1").of("acme").fixed(300)).await;
    let queues = ClaimQueues::Listed(vec![from_queue("mail", policy(), 10)]);
    let request = ClaimRequest { queues, ..claim_request(&worker("w")) };
    let told = claim(&*store, request.clone()).await;
    assert_moment(world, told.next_at.expect("mail waits"), told.now.after(secs(200)), "the listed queue");
    let told = claim(&*store, ClaimRequest { tenant: Some(tenant("acme")), ..request }).await;
    assert_moment(world, told.next_at.expect("acme waits"), told.now.after(secs(300)), "the tenant's lane");
}

/// How long a wake-up may take. Long enough for a machine under load; the test ends as soon as it comes.
const WAKE: Duration = Duration::from_secs(5);

async fn woken(listener: &mut dyn Wakeups, what: &str) {
    let heard = tokio::time::timeout(WAKE, listener.woken()).await;
    assert!(heard.is_ok(), "the listener was not woken by {what}");
}

pub async fn a_listener_is_woken_by_an_append_of_another_handle(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    let mut listener = store.wakeups();
    let waiting = tokio::spawn(async move { woken(&mut *listener, "another handle's append").await });
    tokio::task::yield_now().await;
    append_one(&*other, event("chat", "k1")).await;
    waiting.await.expect("it is woken");
    claim_one(&*store).await;
}

pub async fn no_wake_up_is_lost_between_an_empty_claim_and_the_wait(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    for round in 0..5 {
        let mut listener = store.wakeups();
        claim_none(&*store).await;
        append_one(&*other, event("chat", "k1")).await;
        woken(&mut *listener, "an append before the wait began").await;
        settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
        assert_eq!(totals(&*store, "chat").await.succeeded, round + 1);
    }
}

pub async fn a_listener_hears_a_settle_that_leaves_work_behind(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    append_one(&*store, event("chat", "k1")).await;
    let mut listener = store.wakeups();
    claim_none(&*store).await;
    settle(&*other, &batch, SUCCEEDED).await;
    woken(&mut *listener, "a settle").await;
    claim_one(&*store).await;
}

pub async fn a_listener_hears_a_flush_and_a_resume(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    append_one(&*store, event("chat", "k1").fixed(500)).await;
    let mut listener = store.wakeups();
    claim_none(&*store).await;
    control(&*other, ControlAction::Flush(lane("chat", "k1"))).await;
    woken(&mut *listener, "a flush").await;
    settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;

    control(&*store, ControlAction::PauseLane(lane("chat", "k1"))).await;
    append_one(&*store, event("chat", "k1")).await;
    let mut listener = store.wakeups();
    claim_none(&*store).await;
    control(&*other, ControlAction::ResumeLane(lane("chat", "k1"))).await;
    woken(&mut *listener, "a resume").await;
    claim_one(&*store).await;
}

pub async fn every_transition_has_one_audit_record_with_all_its_facts(world: &dyn World) {
    let store = world.store();
    append(&*store, [event("chat", "k1"), event("chat", "k1")]).await;
    let me = worker("w1");
    let first = claim_one_as(&*store, &me).await;
    settle_after(&*store, &first, RETRY, secs(20)).await;
    world.advance(secs(25)).await;
    let second = claim_one_as(&*store, &me).await;
    settle(&*store, &second, FAILED).await;
    try_settle(&*store, &second, FAILED).await.expect("a repeated settle gets the same answer");
    let trail = trail_of(&*store, "chat", "k1").await;
    assert_eq!(
        changes(&trail),
        [Change::Claimed, Change::Retried, Change::Claimed, Change::Failed],
        "a repeated settle leaves no second record"
    );
    let expect = |index: usize, batch: &Batch, from, to, attempt| {
        let record = &trail[index];
        assert_eq!((record.run, record.token, record.attempt), (Some(batch.run_id), batch.token, attempt));
        assert_eq!((record.from, record.to), (Some(from), Some(to)));
        assert_eq!((record.upto_seq, record.worker.clone()), (batch.hi(), Some(me.to_string())));
        assert_eq!((record.lane_text(), &record.actor), ("chat/k1".to_owned(), &None));
    };
    expect(0, &first, RunState::Pending, RunState::Running, 1);
    expect(1, &first, RunState::Running, RunState::Retryable, 1);
    expect(2, &second, RunState::Retryable, RunState::Running, 2);
    expect(3, &second, RunState::Running, RunState::Failed, 2);
    assert_eq!(trail[0].next_at, Some(first.lease_until));
    assert_eq!(trail[0].prior_worker, None);
    assert_moment(
        world,
        trail[1].next_at.expect("the retry's time"),
        first.claimed_at.after(secs(20)),
        "retry",
    );
    assert_eq!(trail[3].next_at, None);
}

/// The lane of a record as text.
trait LaneText {
    fn lane_text(&self) -> String;
}

impl LaneText for quell_core::audit::AuditRecord {
    fn lane_text(&self) -> String {
        let key = self.key.as_ref().map(|k| k.as_str()).unwrap_or_default();
        format!("{}{}/{key}", self.tenant, self.queue)
    }
}

pub async fn a_claim_is_shown_on_the_lane_with_worker_token_and_lease(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let me = worker("w1");
    let batch = claim_one_as(&*store, &me).await;
    let row = lane_row(&*store, &batch.lane).await.expect("the lane is there");
    assert_eq!(row.state, Some(RunState::Running));
    assert_eq!((row.worker, row.token), (Some(me.to_string()), Some(batch.token)));
    assert_eq!((row.claimed_at, row.lease_until), (Some(batch.claimed_at), Some(batch.lease_until)));
    assert_eq!(row.updated_at, batch.claimed_at, "every change sets updated_at to store time");
    let until = extend(&*store, &batch, secs(300)).await.lease_until;
    let row = lane_row(&*store, &batch.lane).await.expect("the lane is there");
    assert_eq!(row.lease_until, Some(until));
}
