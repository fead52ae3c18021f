//! Promises about priority: a level is worth thirty seconds of waiting, in both directions, so nothing starves; inside a
//! lane nothing is ever reordered.
//!
//! All lanes of a promise are in one queue: between queues a claim shares before it ranks.

use quell_core::error::ErrorKind;
use quell_core::limits;
use quell_core::store::{ClaimRequest, ControlAction, Store};
use quell_core::totals::Totals;

use crate::World;
use crate::builders::{
    RETRY, SUCCEEDED, append, append_one, claim, claim_one, claim_request, control, event, ids, lane,
    redrive, refused, secs, settle, settle_after, try_append, worker,
};
use crate::reads::{lane_row, run_detail, totals};

/// The keys in the order in which claims of one lane each get them.
async fn order(store: &dyn Store) -> Vec<String> {
    let mut order = Vec::new();
    loop {
        let request = ClaimRequest { max: 1, ..claim_request(&worker("w")) };
        let Some(batch) = claim(store, request).await.batches.pop() else { return order };
        order.push(batch.lane.key.as_str().to_owned());
    }
}

/// The priority that a lane is shown with.
async fn shown(store: &dyn Store, key: &str) -> u8 {
    lane_row(store, &lane("q", key)).await.expect("it is there").priority
}

/// Rule 35: among lanes due at about the same time the higher priority goes first, whatever the order of arrival.
pub async fn a_higher_priority_goes_first(world: &dyn World) {
    let store = world.store();
    for (key, priority) in [("p4", 4), ("p0", 0), ("p9", 9), ("p5", 5), ("p2", 2)] {
        append_one(&*store, event("q", key).priority(priority)).await;
    }
    assert_eq!(order(&*store).await, ["p9", "p5", "p4", "p2", "p0"]);
}

/// Rule 35: one level overtakes a lane that has been due for less than thirty seconds longer.
pub async fn one_level_overtakes_by_less_than_thirty_seconds(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("q", "old").priority(4)).await;
    world.advance(secs(20)).await;
    append_one(&*store, event("q", "new").priority(5)).await;
    assert_eq!(order(&*store).await, ["new", "old"]);
}

/// Rule 35: and not one that has been due for more than thirty seconds longer.
pub async fn one_level_does_not_overtake_by_more_than_thirty_seconds(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("q", "old").priority(4)).await;
    world.advance(secs(40)).await;
    append_one(&*store, event("q", "new").priority(5)).await;
    assert_eq!(order(&*store).await, ["old", "new"]);
}

/// Rule 35: nine levels are worth four and a half minutes, neither less nor more, so the lowest never starves.
pub async fn the_lowest_priority_never_starves(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("q", "low").priority(0)).await;
    for n in 0..6 {
        append_one(&*store, event("q", &format!("high{n}")).priority(9)).await;
        world.advance(secs(50)).await;
    }
    let told = order(&*store).await;
    assert_eq!(told, ["high0", "high1", "high2", "high3", "high4", "high5", "low"], "250 s are overtaken");
    world.advance(secs(100)).await;
    append_one(&*store, event("q", "low2").priority(0)).await;
    world.advance(secs(280)).await;
    append_one(&*store, event("q", "high6").priority(9)).await;
    let told: Vec<String> =
        order(&*store).await.into_iter().filter(|k| k == "low2" || k == "high6").collect();
    assert_eq!(told, ["low2", "high6"], "280 s are not");
}

/// Rule 35: equal priorities go by due time.
pub async fn equal_priorities_go_by_due_time(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("q", "slow").fixed(30).priority(7)).await;
    append_one(&*store, event("q", "fast").fixed(10).priority(7)).await;
    append_one(&*store, event("q", "middle").fixed(20).priority(7)).await;
    world.advance(secs(40)).await;
    assert_eq!(order(&*store).await, ["fast", "middle", "slow"]);
}

/// Rule 35: priority never hands out what is not due.
pub async fn priority_hands_out_nothing_early(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("q", "high").fixed(20).priority(9)).await;
    append_one(&*store, event("q", "low").priority(0)).await;
    assert_eq!(order(&*store).await, ["low"]);
    world.advance(secs(10)).await;
    assert!(order(&*store).await.is_empty());
}

/// Rule 35: it never reorders inside a lane.
pub async fn priority_never_reorders_inside_a_lane(world: &dyn World) {
    let store = world.store();
    let new = |id: &str, priority| event("q", "k1").id(id).priority(priority).max_events(1);
    append(&*store, [new("a", 0), new("b", 9), new("c", 4)]).await;
    for expected in ["a", "b", "c"] {
        let batch = claim_one(&*store).await;
        assert_eq!(ids(&batch), [expected]);
        settle(&*store, &batch, SUCCEEDED).await;
    }
    append(&*store, [event("q", "k2").id("x").priority(1), event("q", "k2").id("y").priority(8)]).await;
    assert_eq!(ids(&claim_one(&*store).await), ["x", "y"]);
}

/// Rule 35: a lane's priority is the highest over its buffered events, so the oldest gains by the newest.
pub async fn a_lane_has_the_highest_priority_of_its_buffered_events(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("q", "k1").priority(2)).await;
    assert_eq!(shown(&*store, "k1").await, 2);
    append_one(&*store, event("q", "k1").priority(7)).await;
    append_one(&*store, event("q", "k1").priority(3)).await;
    append_one(&*store, event("q", "k2").priority(6)).await;
    assert_eq!(shown(&*store, "k1").await, 7);
    assert_eq!(order(&*store).await, ["k1", "k2"]);
}

/// Rule 35: and over its current events: what waits for its next attempt counts with what waits behind it.
pub async fn a_lane_has_the_highest_priority_of_its_current_events_too(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("q", "k1").priority(8)).await;
    let batch = claim_one(&*store).await;
    append_one(&*store, event("q", "k1").priority(1)).await;
    assert_eq!(shown(&*store, "k1").await, 8);
    settle_after(&*store, &batch, RETRY, secs(10)).await;
    append_one(&*store, event("q", "k2").fixed(10).priority(5)).await;
    world.advance(secs(20)).await;
    let first =
        claim(&*store, ClaimRequest { max: 1, ..claim_request(&worker("w")) }).await.batches.remove(0);
    assert_eq!(first.run_id, batch.run_id, "by its current run");
    settle(&*store, &first, SUCCEEDED).await;
    assert_eq!(shown(&*store, "k1").await, 1, "what is left is what counts");
    assert_eq!(order(&*store).await, ["k2", "k1"]);
}

/// Rule 35: the high priority of a newer event lifts a run that waits for its next attempt.
pub async fn a_newer_event_lifts_a_run_in_backoff(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("q", "k1").id("a").priority(1)).await;
    let batch = claim_one(&*store).await;
    settle_after(&*store, &batch, RETRY, secs(10)).await;
    append_one(&*store, event("q", "k2").fixed(10).priority(5)).await;
    append_one(&*store, event("q", "k1").id("b").priority(9)).await;
    world.advance(secs(20)).await;
    let first =
        claim(&*store, ClaimRequest { max: 1, ..claim_request(&worker("w")) }).await.batches.remove(0);
    assert_eq!(ids(&first), ["a"], "the lane goes first, and inside it the order stays");
}

/// A priority is kept across a restart and a redrive, and shown with the run.
pub async fn a_priority_is_kept(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("q", "low").id("a").priority(3)).await;
    append_one(&*store, event("q", "high").id("b").priority(6)).await;
    drop(store);
    let store = world.reopen().await;
    let high = claim(&*store, ClaimRequest { max: 1, ..claim_request(&worker("w")) }).await.batches.remove(0);
    assert_eq!(ids(&high), ["b"]);
    assert_eq!(run_detail(&*store, high.run_id).await.expect("it runs").row.priority, 6);
    settle(&*store, &high, crate::builders::FAILED).await;
    redrive(&*store, high.run_id).await;
    assert_eq!(shown(&*store, "high").await, 6);
    assert_eq!(order(&*store).await, ["high", "low"]);
}

/// An event without a wish is in the middle; one beyond the scale is refused, and nothing is stored.
pub async fn the_scale_is_zero_to_nine_with_a_middle(world: &dyn World) {
    let store = world.store();
    let bad = event("q", "k2").priority(limits::PRIORITY_MAX + 1);
    refused(try_append(&*store, [event("q", "k1"), bad]).await, ErrorKind::Invalid);
    assert_eq!(totals(&*store, "q").await, Totals::default());
    append_one(&*store, event("q", "k1")).await;
    assert_eq!(shown(&*store, "k1").await, limits::PRIORITY_DEFAULT);
    append_one(&*store, event("q", "k1").priority(0)).await;
    assert_eq!(shown(&*store, "k1").await, limits::PRIORITY_DEFAULT);
}

/// Rules 17 and 35: a pause holds whatever the priority; resumed, a lane stands where it stood.
pub async fn a_paused_lane_keeps_its_place(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("q", "high").priority(9)).await;
    control(&*store, ControlAction::PauseLane(lane("q", "high"))).await;
    append_one(&*store, event("q", "a").priority(1)).await;
    append_one(&*store, event("q", "b").priority(1)).await;
    let first =
        claim(&*store, ClaimRequest { max: 1, ..claim_request(&worker("w")) }).await.batches.remove(0);
    assert_eq!(first.lane.key.as_str(), "a");
    control(&*store, ControlAction::ResumeLane(lane("q", "high"))).await;
    assert_eq!(order(&*store).await, ["high", "b"]);
}
