//! Promises of extend: the holder keeps its lane as long as it lives, and learns what has arrived meanwhile.

use quell_core::error::ErrorKind;
use quell_core::store::{ClaimRequest, ControlAction, ExtendRequest};

use crate::World;
use crate::builders::{
    LEASE, RETRY, SUCCEEDED, append, append_one, claim, claim_all, claim_none, claim_one, claim_request,
    control, event, extend, extend_request, lane, refused, secs, seq_of, settle, sweep, whole, worker,
};
use crate::reads::{assert_moment, changes, run_detail, trail_of};

pub async fn a_renewed_lease_keeps_the_lane(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    world.advance(secs(55)).await;
    let until = extend(&*store, &batch, LEASE).await.lease_until;
    assert_moment(world, until, batch.claimed_at.after(secs(115)), "one lease from now");
    world.advance(secs(50)).await;
    claim_none(&*other).await;
    assert!(sweep(&*other).await.reclaimed.is_empty());
    settle(&*store, &batch, SUCCEEDED).await;
}

pub async fn a_lane_is_claimable_one_lease_after_the_last_heartbeat(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    world.advance(secs(35)).await;
    extend(&*store, &batch, LEASE).await;
    world.advance(secs(65)).await;
    assert_eq!(claim_one(&*other).await.run_id, batch.run_id);
    refused(store.extend(extend_request(&batch, LEASE)).await, ErrorKind::LostLease);
}

pub async fn a_lease_never_ends_earlier_than_it_was_promised(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    assert_eq!(extend(&*store, &batch, secs(10)).await.lease_until, batch.lease_until);
    world.advance(secs(45)).await;
    claim_none(&*store).await;
}

pub async fn a_handler_of_many_leases_finishes_under_one_token(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    for _ in 0..30 {
        world.advance(secs(20)).await;
        extend(&*store, &batch, LEASE).await;
        claim_none(&*other).await;
    }
    settle(&*store, &batch, SUCCEEDED).await;
    let row = run_detail(&*store, batch.run_id).await.expect("it is kept").row;
    assert_eq!((row.claims, row.attempts, row.token), (1, 1, batch.token));
    assert_eq!(trail_of(&*store, "chat", "k1").await.len(), 2, "a heartbeat is no transition");
}

pub async fn the_answer_tells_what_arrived_for_the_next_run(world: &dyn World) {
    let store = world.store();
    let first = append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    let calm = extend(&*store, &batch, LEASE).await;
    assert_eq!((calm.head_seq, calm.newer), (seq_of(&first), 0));
    let receipts = append(&*store, [event("chat", "k1").quiet(20), event("chat", "k1").quiet(20)]).await;
    append_one(&*store, event("chat", "k2").quiet(20)).await;
    let behind = extend(&*store, &batch, LEASE).await;
    assert_eq!((behind.head_seq, behind.newer), (seq_of(&receipts[1]), 2));
}

pub async fn a_stale_worker_cannot_extend_and_moves_nothing(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let stale = claim_one(&*store).await;
    world.advance(secs(65)).await;
    let heir = claim_one(&*store).await;
    refused(store.extend(extend_request(&stale, secs(10_000))).await, ErrorKind::LostLease);
    world.advance(secs(65)).await;
    assert_eq!(claim_one(&*store).await.run_id, heir.run_id, "the heir's lease was not lengthened");
}

pub async fn a_run_that_ended_or_waits_cannot_be_extended(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let first = claim_one(&*store).await;
    settle(&*store, &first, RETRY).await;
    refused(store.extend(extend_request(&first, LEASE)).await, ErrorKind::LostLease);
    let second = claim_one(&*store).await;
    refused(store.extend(extend_request(&first, LEASE)).await, ErrorKind::LostLease);
    settle(&*store, &second, SUCCEEDED).await;
    refused(store.extend(extend_request(&second, LEASE)).await, ErrorKind::LostLease);
    claim_none(&*store).await;
}

pub async fn a_token_that_was_never_given_cannot_extend(world: &dyn World) {
    let store = world.store();
    append(&*store, [event("chat", "k1"), event("chat", "k2")]).await;
    let batches = claim_all(&*store).await;
    let [one, two] = [&batches[0], &batches[1]];
    for (run_id, token) in [(one.run_id, two.token), (two.run_id, one.token), (one.run_id, 0)] {
        let request = ExtendRequest { run_id, token, lease: LEASE };
        refused(store.extend(request).await, ErrorKind::LostLease);
    }
    let mut nowhere = one.run_id;
    nowhere.lane += 1_000_000;
    let request = ExtendRequest { run_id: nowhere, token: one.token, lease: LEASE };
    refused(store.extend(request).await, ErrorKind::LostLease);
}

/// Rule 22: nothing else has happened to the lane.
pub async fn an_expired_lease_that_nobody_took_back_may_still_be_extended(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    world.advance(secs(1_000)).await;
    let until = extend(&*store, &batch, LEASE).await.lease_until;
    assert_moment(world, until, batch.claimed_at.after(secs(1_060)), "one lease from now");
    claim_none(&*other).await;
    settle(&*store, &batch, SUCCEEDED).await;
}

pub async fn a_heartbeat_is_shown_and_counts_no_attempt(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    world.advance(secs(15)).await;
    extend(&*store, &batch, LEASE).await;
    let row = run_detail(&*store, batch.run_id).await.expect("it runs").row;
    assert_eq!((row.claims, row.attempts, row.claimed_at), (1, 1, Some(batch.claimed_at)));
    assert_moment(world, row.heartbeat_at.expect("it beats"), batch.claimed_at.after(secs(15)), "heartbeat");
}

pub async fn a_pause_does_not_take_a_lease_from_its_holder(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    control(&*store, ControlAction::PauseLane(lane("chat", "k1"))).await;
    control(&*store, ControlAction::PauseQueue(whole("chat"))).await;
    world.advance(secs(55)).await;
    extend(&*store, &batch, LEASE).await;
    world.advance(secs(55)).await;
    settle(&*store, &batch, SUCCEEDED).await;
}

pub async fn extending_one_lane_does_not_keep_another(world: &dyn World) {
    let store = world.store();
    append(&*store, [event("chat", "k1"), event("chat", "k2")]).await;
    let batches = claim_all(&*store).await;
    world.advance(secs(55)).await;
    extend(&*store, &batches[0], LEASE).await;
    world.advance(secs(10)).await;
    let claimed = claim(&*store, claim_request(&worker("w"))).await;
    assert_eq!(claimed.batches.len(), 1);
    assert_eq!(claimed.batches[0].run_id, batches[1].run_id);
    assert_eq!(changes(&trail_of(&*store, "chat", "k1").await).len(), 1, "the renewed lane was left alone");
}

pub async fn next_at_follows_a_lease_that_was_renewed(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    world.advance(secs(55)).await;
    extend(&*store, &batch, LEASE).await;
    world.advance(secs(10)).await;
    let told = claim(&*store, ClaimRequest { max: 10, ..claim_request(&worker("w")) }).await;
    assert!(told.batches.is_empty() && told.reclaimed.is_empty());
    let next = told.next_at.expect("the lease may have to be taken back");
    assert!(next > told.now, "a claimer must not be sent into a loop");
    assert_moment(world, next, told.now.after(secs(50)), "the renewed lease");
}
