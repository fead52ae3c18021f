//! Promises of sweep: expired leases go back to where they can be claimed, with the prior worker on record; the retention
//! removes what ended long ago in small steps, and never what is alive, dead-lettered or counted.

use std::time::Duration;

use quell_core::audit::AuditRecord;
use quell_core::error::ErrorKind;
use quell_core::inspect::{AuditFilter, LaneFilter, RunFilter};
use quell_core::lifecycle::{Change, RunState};
use quell_core::limits;
use quell_core::store::{ClaimRequest, ControlAction, RunPolicy, SweepRequest};
use quell_core::totals::Totals;
use serde_json::json;

use crate::World;
use crate::builders::{
    ATTEMPTS, FAILED, LEASE, RETRY, SUCCEEDED, append, append_one, claim, claim_all, claim_none, claim_one,
    claim_one_as, claim_request, claim_request_by, control, event, extend, forget, ids, lane, policy,
    refused, secs, seq_of, settle, settle_after, sweep, try_append, worker,
};
use crate::reads::{
    all_lanes, all_runs, assert_totals, changes, event_place, lane_detail, run_detail, totals, trail,
    trail_of,
};

pub async fn an_expired_lease_is_taken_back_and_told_with_its_worker(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    append_one(&*store, event("chat", "k1")).await;
    let dead = worker("dead");
    let batch = claim_one_as(&*store, &dead).await;
    world.advance(secs(65)).await;
    let reclaimed = sweep(&*other).await.reclaimed;
    assert_eq!(reclaimed.len(), 1);
    let told = &reclaimed[0];
    assert_eq!((&told.lane, told.run_id, told.token), (&batch.lane, batch.run_id, batch.token));
    assert_eq!((told.worker.as_ref(), told.state), (Some(&dead), RunState::Pending));
    assert_eq!(told.claimed_at, batch.claimed_at);
    let again = claim_one(&*store).await;
    assert_eq!(
        (again.attempt, again.retries),
        (2, 0),
        "the attempt was counted at the claim, reclaim adds none"
    );
    let trail = trail_of(&*store, "chat", "k1").await;
    assert_eq!(changes(&trail), [Change::Claimed, Change::Reclaimed, Change::Claimed]);
    assert_eq!((trail[1].prior_worker.clone(), &trail[1].worker), (Some(dead.to_string()), &None));
    assert_eq!((trail[1].attempt, trail[1].token, trail[1].upto_seq), (1, batch.token, batch.hi()));
}

pub async fn a_live_lease_is_left_alone(world: &dyn World) {
    let store = world.store();
    append(&*store, [event("chat", "k1"), event("chat", "k2")]).await;
    let batches = claim_all(&*store).await;
    world.advance(secs(55)).await;
    extend(&*store, &batches[0], LEASE).await;
    assert!(sweep(&*store).await.reclaimed.is_empty());
    world.advance(secs(10)).await;
    let reclaimed = sweep(&*store).await.reclaimed;
    assert_eq!(reclaimed.iter().map(|r| r.run_id).collect::<Vec<_>>(), [batches[1].run_id]);
}

/// A lease is live while now < lease_until.
pub async fn a_lease_is_taken_back_at_the_very_millisecond_and_not_before(world: &dyn World) {
    if world.clock_runs() {
        return;
    }
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    claim_one(&*store).await;
    world.advance(LEASE - Duration::from_millis(1)).await;
    assert!(sweep(&*store).await.reclaimed.is_empty());
    world.advance(Duration::from_millis(1)).await;
    assert_eq!(sweep(&*store).await.reclaimed.len(), 1);
}

pub async fn sweeping_twice_takes_back_once(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    append_one(&*store, event("chat", "k1")).await;
    claim_one(&*store).await;
    world.advance(secs(65)).await;
    assert_eq!(sweep(&*store).await.reclaimed.len(), 1);
    assert!(sweep(&*other).await.reclaimed.is_empty());
    assert_eq!(trail_of(&*store, "chat", "k1").await.len(), 2);
}

pub async fn a_sweep_that_distrusts_its_clock_takes_nothing_back(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    world.advance(secs(65)).await;
    let request = SweepRequest { reclaim: false, retention: None };
    let swept = store.sweep(request).await.expect("done");
    assert!(swept.reclaimed.is_empty());
    settle(&*store, &batch, SUCCEEDED).await;
}

pub async fn the_last_attempt_goes_to_the_dead_letter_as_lease_expired(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a")).await;
    for attempt in 1..=ATTEMPTS {
        let batch = claim_one(&*store).await;
        assert_eq!(batch.attempt, attempt);
        world.advance(secs(65)).await;
        let told = sweep(&*store).await.reclaimed.remove(0);
        let last = attempt == ATTEMPTS;
        assert_eq!(told.state, if last { RunState::Failed } else { RunState::Pending });
    }
    claim_none(&*store).await;
    let place = event_place(&*store, &lane("chat", "k1"), "a").await.expect("dead events are kept");
    assert_eq!(place.state, Some(RunState::Failed));
    let row = run_detail(&*store, place.run_id.expect("it has a run")).await.expect("it is kept").row;
    assert_eq!((row.error.as_deref(), row.attempts), (Some("lease expired"), ATTEMPTS));
    assert_eq!(totals(&*store, "chat").await, Totals { accepted: 1, dead: 1, ..Totals::default() });
    let records = trail_of(&*store, "chat", "k1").await;
    assert_eq!(records.last().map(|r| r.change), Some(Change::Expired));
}

pub async fn a_crash_after_a_retry_keeps_the_count_of_both(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    settle(&*store, &claim_one(&*store).await, RETRY).await;
    claim_one(&*store).await;
    world.advance(secs(65)).await;
    sweep(&*store).await;
    let third = claim_one(&*store).await;
    assert_eq!((third.attempt, third.retries), (3, 1), "a crash lengthens no backoff, but it counts");
}

pub async fn many_expired_leases_are_taken_back_in_steps(world: &dyn World) {
    let store = world.store();
    let many = limits::SWEEP_LANES_STEP + 20;
    append(&*store, (0..many).map(|n| event("chat", &format!("k{n}")))).await;
    let mut held = 0;
    while held < many {
        let batches = claim(&*store, ClaimRequest { max: 500, ..claim_request(&worker("w")) }).await.batches;
        assert!(!batches.is_empty(), "{held} of {many} lanes could be claimed");
        held += batches.len();
    }
    world.advance(secs(65)).await;
    assert_eq!(sweep(&*store).await.reclaimed.len(), many);
    assert_totals(world).await;
}

pub async fn a_paused_lane_is_taken_back_but_not_handed_out(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    claim_one(&*store).await;
    control(&*store, ControlAction::PauseLane(lane("chat", "k1"))).await;
    world.advance(secs(65)).await;
    assert_eq!(sweep(&*store).await.reclaimed.len(), 1);
    claim_none(&*store).await;
    control(&*store, ControlAction::ResumeLane(lane("chat", "k1"))).await;
    assert_eq!(claim_one(&*store).await.attempt, 2);
}

pub async fn a_listener_hears_that_a_lane_was_taken_back(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    append_one(&*store, event("chat", "k1")).await;
    claim_one(&*store).await;
    world.advance(secs(65)).await;
    let mut listener = store.wakeups();
    sweep(&*other).await;
    let heard = tokio::time::timeout(Duration::from_secs(5), listener.woken()).await;
    assert!(heard.is_ok(), "the lane is claimable and nobody was told");
}

/// A retention of 5,000 s; a run that ended 10,000 s ago is past it.
const RETENTION: Duration = Duration::from_secs(5_000);
const LONG: Duration = Duration::from_secs(10_000);

pub async fn the_retention_removes_finished_runs_their_events_and_ids(world: &dyn World) {
    let store = world.store();
    append(&*store, [event("chat", "k1").id("a"), event("chat", "k1").id("b")]).await;
    let batch = claim_one(&*store).await;
    settle(&*store, &batch, SUCCEEDED).await;
    world.advance(LONG).await;
    let swept = forget(&*store, RETENTION).await;
    assert_eq!((swept.removed_runs, swept.removed_events), (1, 2));
    assert!(run_detail(&*store, batch.run_id).await.is_none());
    assert!(event_place(&*store, &batch.lane, "a").await.is_none());
    let receipt = append_one(&*store, event("chat", "k1").id("a").payload(json!("another"))).await;
    assert!(!receipt.duplicate, "the id is free again, even for another payload");
    assert!(seq_of(&receipt) > batch.hi());
    assert_eq!(ids(&claim_one(&*store).await), ["a"]);
}

pub async fn an_id_is_free_after_the_retention_though_its_lane_lives_on(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a")).await;
    settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
    append_one(&*store, event("chat", "k1").id("b").fixed(90_000)).await;
    world.advance(LONG).await;
    forget(&*store, RETENTION).await;
    append_one(&*store, event("chat", "k1").id("a").payload(json!("another"))).await;
    world.advance(secs(90_000)).await;
    assert_eq!(ids(&claim_one(&*store).await), ["b", "a"]);
}

pub async fn nothing_younger_than_the_retention_is_removed(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a")).await;
    settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
    world.advance(secs(4_000)).await;
    let swept = forget(&*store, RETENTION).await;
    assert_eq!((swept.removed_runs, swept.removed_events, swept.removed_audit), (0, 0, 0));
    assert!(
        append(&*store, [event("chat", "k1").id("a")]).await[0].duplicate,
        "ids expire only with their event"
    );
}

/// Rule 23: the retention starts when the event ends, not when it arrived.
pub async fn the_retention_starts_when_the_event_ends(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a").fixed(9_000)).await;
    world.advance(LONG).await;
    settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
    assert_eq!(forget(&*store, RETENTION).await.removed_runs, 0);
    assert!(append(&*store, [event("chat", "k1").id("a")]).await[0].duplicate);
}

pub async fn events_that_have_not_ended_are_never_removed(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "buffered").id("a").fixed(100_000)).await;
    append_one(&*store, event("chat", "held").id("a")).await;
    let held = claim_one(&*store).await;
    append_one(&*store, event("chat", "backoff").id("a")).await;
    settle_after(&*store, &claim_one(&*store).await, RETRY, secs(100_000)).await;
    world.advance(LONG).await;
    let swept = forget(&*store, RETENTION).await;
    assert_eq!((swept.removed_runs, swept.removed_events), (0, 0));
    for key in ["buffered", "held", "backoff"] {
        assert!(
            append(&*store, [event("chat", key).id("a")]).await[0].duplicate,
            "{key}: its id has not expired"
        );
    }
    settle(&*store, &held, SUCCEEDED).await;
}

pub async fn dead_letters_and_their_ids_never_expire(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a").raw("{\"b\":1.0}")).await;
    let batch = claim_one(&*store).await;
    settle(&*store, &batch, FAILED).await;
    world.advance(LONG).await;
    let swept = forget(&*store, RETENTION).await;
    assert_eq!((swept.removed_runs, swept.removed_events), (0, 0));
    let detail = run_detail(&*store, batch.run_id).await.expect("a dead letter is kept");
    assert_eq!(detail.row.state, RunState::Failed);
    assert_eq!(detail.list[0].payload.as_str(), "{\"b\":1.0}");
    assert!(append(&*store, [event("chat", "k1").id("a").raw("{\"b\":1}")]).await[0].duplicate);
    refused(try_append(&*store, [event("chat", "k1").id("a")]).await, ErrorKind::Conflict);
}

pub async fn the_retention_removes_only_the_events_of_the_runs_it_removes(world: &dyn World) {
    let store = world.store();
    let new = |id| event("chat", "k1").id(id).max_events(1);
    append(&*store, ["a", "b", "c", "d"].map(new)).await;
    settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
    settle(&*store, &claim_one(&*store).await, FAILED).await;
    settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
    world.advance(LONG).await;
    assert_eq!(forget(&*store, RETENTION).await.removed_runs, 2);
    let key = lane("chat", "k1");
    let mut there = Vec::new();
    for id in ["a", "b", "c", "d"] {
        there.push(event_place(&*store, &key, id).await.is_some());
    }
    assert_eq!(there, [false, true, false, true], "the dead one and the buffered one stay");
    assert_eq!(ids(&claim_one(&*store).await), ["d"]);
}

pub async fn the_totals_do_not_change_when_history_is_removed(world: &dyn World) {
    let store = world.store();
    append(&*store, [event("chat", "k1"), event("chat", "k2"), event("chat", "k3").fixed(90_000)]).await;
    let batches = claim_all(&*store).await;
    settle(&*store, &batches[0], SUCCEEDED).await;
    settle(&*store, &batches[1], FAILED).await;
    let before = totals(&*store, "chat").await;
    world.advance(LONG).await;
    forget(&*store, RETENTION).await;
    assert_eq!(totals(&*store, "chat").await, before);
    assert_totals(world).await;
}

pub async fn old_audit_is_removed_and_young_audit_is_kept(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
    world.advance(LONG).await;
    append_one(&*store, event("chat", "k1")).await;
    settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
    assert_eq!(forget(&*store, RETENTION).await.removed_audit, 2);
    let kept: Vec<AuditRecord> = trail(&*store, AuditFilter::default()).await;
    assert_eq!(changes(&kept), [Change::Claimed, Change::Succeeded]);
}

pub async fn the_retention_works_in_small_steps_and_says_when_there_is_more(world: &dyn World) {
    let store = world.store();
    let many = limits::RETENTION_RUNS_STEP + 30;
    append(&*store, (0..many).map(|n| event("chat", &format!("k{n}")))).await;
    let mut settled = 0;
    while settled < many {
        let request = ClaimRequest { max: 500, ..claim_request(&worker("w")) };
        let batches = claim(&*store, request).await.batches;
        assert!(!batches.is_empty(), "{settled} of {many} lanes could be claimed");
        for batch in batches {
            settle(&*store, &batch, SUCCEEDED).await;
            settled += 1;
        }
    }
    world.advance(LONG).await;
    let request = SweepRequest { reclaim: true, retention: Some(RETENTION) };
    let first = store.sweep(request.clone()).await.expect("done");
    assert!(first.removed_runs <= limits::RETENTION_RUNS_STEP as u64, "a step is small");
    assert!(first.more, "and says that it has not finished");
    let mut removed = first.removed_runs;
    loop {
        let step = store.sweep(request.clone()).await.expect("done");
        removed += step.removed_runs;
        assert_totals(world).await;
        if !step.more {
            break;
        }
    }
    assert_eq!(removed, many as u64);
    assert!(all_runs(&*store, RunFilter::default()).await.is_empty());
    let again = store.sweep(request).await.expect("done");
    assert_eq!((again.removed_runs, again.removed_events, again.removed_audit), (0, 0, 0));
}

pub async fn an_idle_lane_that_nothing_remembers_is_gone(world: &dyn World) {
    let store = world.store();
    append(&*store, [event("chat", "k1"), event("chat", "k2")]).await;
    for batch in claim_all(&*store).await {
        settle(&*store, &batch, SUCCEEDED).await;
    }
    control(&*store, ControlAction::PauseLane(lane("chat", "k2"))).await;
    world.advance(LONG).await;
    forget(&*store, RETENTION).await;
    let left = all_lanes(&*store, LaneFilter { idle: true, ..LaneFilter::default() }).await;
    assert_eq!(
        left.iter().map(|r| r.lane.key.as_str()).collect::<Vec<_>>(),
        ["k2"],
        "a paused lane stays paused"
    );
    assert!(lane_detail(&*store, &lane("chat", "k1")).await.is_none());
    append_one(&*store, event("chat", "k2")).await;
    claim_none(&*store).await;
}

pub async fn without_a_retention_nothing_is_removed(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    settle(&*store, &batch, SUCCEEDED).await;
    world.advance(secs(1_000_000)).await;
    let swept = store.sweep(SweepRequest { reclaim: true, retention: None }).await.expect("done");
    assert_eq!((swept.removed_runs, swept.removed_events, swept.removed_audit, swept.more), (0, 0, 0, false));
    assert!(run_detail(&*store, batch.run_id).await.is_some());
}

pub async fn a_sweep_of_an_empty_store_finds_nothing(world: &dyn World) {
    let request = SweepRequest { reclaim: true, retention: Some(RETENTION) };
    let swept = world.store().sweep(request).await.expect("done");
    assert!(swept.reclaimed.is_empty() && !swept.more);
}

pub async fn a_changed_attempt_budget_applies_from_the_next_claim_on(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    claim_one(&*store).await;
    world.advance(secs(65)).await;
    let once = RunPolicy { max_attempts: 2, ..policy() };
    let batch = claim(&*store, claim_request_by(&worker("w"), once)).await.batches.remove(0);
    assert_eq!((batch.attempt, batch.max_attempts), (2, 2));
    world.advance(secs(65)).await;
    assert_eq!(sweep(&*store).await.reclaimed[0].state, RunState::Failed);
}
