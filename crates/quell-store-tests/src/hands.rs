//! Promises of the operator's hand (rules 16 to 19): cancel, flush, purge, a full lane that drops its oldest, and the
//! edit or deletion of one buffered event. Pauses are in `control.rs`, blocks in `failure.rs`, erasure in `erase.rs`.

use quell_core::batch::Batch;
use quell_core::error::ErrorKind;
use quell_core::lifecycle::{Change, RunState};
use quell_core::limits;
use quell_core::outcome::Verdict;
use quell_core::store::{ControlAction, Controlled, HoldAnswer, Purge, PurgeWhat, RunPolicy, Store};
use quell_core::totals::Totals;
use quell_core::window::FiredBy;
use serde_json::json;

use crate::World;
use crate::builders::{
    EventBuilder, FAILED, INTERRUPTED, LEASE, RELEASE, RETRY, SUCCEEDED, SUPERSEDED, append, append_one,
    cancel, claim_by, claim_none, claim_one, control, event, extend, forget, gated, hold_request, ids,
    interrupting, lane, policy, purge, purge_request, redrive, refused, retry_newer, secs, settle,
    settle_after, sweep, tenant, try_append, try_delete, try_edit, try_settle,
};
use crate::reads::{
    changes, event_place, lane_detail, lane_row, run_detail, state_of, totals, totals_of, trail_of,
};

fn new(id: &str) -> EventBuilder {
    event("chat", "k1").id(id)
}

/// The first event of the key, claimed by this policy.
async fn claimed(store: &dyn Store, policy: &RunPolicy) -> Batch {
    append_one(store, new("a")).await;
    claim_by(store, policy).await
}

// Cancel: rule 16.

/// A holder is asked to stop; until its attempt has ended the lane is not claimable and nothing is discarded.
pub async fn a_cancel_asks_the_holder_and_waits_for_the_end_of_its_attempt(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &policy()).await;
    append_one(&*store, new("b")).await;
    assert!(!extend(&*store, &batch, LEASE).await.cancel);
    let done = cancel(&*store, &batch.lane).await;
    assert_eq!((done.changed, done.run), (true, Some(batch.run_id)));
    assert_eq!(cancel(&*store, &batch.lane).await, Controlled::default(), "it was asked already");
    let beat = extend(&*store, &batch, LEASE).await;
    assert_eq!((beat.cancel, beat.interrupt), (true, false));
    claim_none(&*store).await;
    let detail = lane_detail(&*store, &batch.lane).await.expect("it is running");
    assert!(detail.waiting.cancelling);
    assert_eq!(
        totals(&*store, "chat").await,
        Totals { accepted: 2, in_flight: 1, buffered: 1, ..Totals::default() }
    );
    let settled = settle(&*store, &batch, RETRY).await;
    assert_eq!(
        (settled.state, settled.change, settled.next_at),
        (RunState::Cancelled, Change::Cancelled, None)
    );
    let expected = Totals { accepted: 2, discarded: 1, buffered: 1, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, expected);
    assert_eq!(ids(&claim_one(&*store).await), ["b"], "what waited goes on");
    let trail = trail_of(&*store, "chat", "k1").await;
    let told = [Change::Claimed, Change::CancelRequested, Change::Cancelled, Change::Claimed];
    assert_eq!(changes(&trail), told);
    assert_eq!((trail[1].actor.as_deref(), trail[1].token), (Some("ada"), batch.token));
}

/// Any other end than `succeeded` is the cancellation, and a repeated settle gets the same answer.
pub async fn after_a_cancel_every_end_but_success_is_the_cancellation(world: &dyn World) {
    let store = world.store();
    let ends: [(Verdict, RunPolicy); 5] = [
        (FAILED, policy()),
        (RETRY, policy()),
        (RELEASE, policy()),
        (INTERRUPTED, interrupting(3)),
        (SUPERSEDED, gated(3)),
    ];
    for (n, (verdict, policy)) in ends.into_iter().enumerate() {
        let key = format!("k{n}");
        append_one(&*store, event("chat", &key)).await;
        let batch = claim_by(&*store, &policy).await;
        append_one(&*store, event("chat", &key).fixed(900)).await;
        cancel(&*store, &batch.lane).await;
        assert_eq!(settle(&*store, &batch, verdict).await.state, RunState::Cancelled, "{verdict:?}");
        let again = try_settle(&*store, &batch, verdict).await.expect("the same answer");
        assert_eq!((again.repeated, again.state), (true, RunState::Cancelled), "{verdict:?}");
    }
    assert_eq!(totals(&*store, "chat").await.discarded, 5);
}

/// The work is done: `succeeded` from the holder still wins.
pub async fn a_success_wins_over_a_cancel(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &policy()).await;
    cancel(&*store, &batch.lane).await;
    assert_eq!(settle(&*store, &batch, SUCCEEDED).await.state, RunState::Succeeded);
    assert_eq!(totals(&*store, "chat").await, Totals { accepted: 1, succeeded: 1, ..Totals::default() });
}

/// A holder that never answers is cancelled when its lease is over, whoever finds it, and not before.
pub async fn a_cancelled_run_ends_with_its_lease(world: &dyn World) {
    let store = world.store();
    for key in ["k1", "k2"] {
        append_one(&*store, event("chat", key).id("a")).await;
        let batch = claim_one(&*store).await;
        append_one(&*store, event("chat", key).id("b")).await;
        cancel(&*store, &batch.lane).await;
        world.advance(secs(50)).await;
        claim_none(&*store).await;
        world.advance(secs(15)).await;
        if key == "k1" {
            let reclaimed = sweep(&*store).await.reclaimed;
            assert_eq!((reclaimed.len(), reclaimed[0].state), (1, RunState::Cancelled));
        }
        let next = claim_one(&*store).await;
        assert_eq!(ids(&next), ["b"], "{key}: no attempt of the cancelled run follows");
        assert_eq!(state_of(&*store, &batch.lane, "a").await, Some(RunState::Cancelled));
        settle(&*store, &next, SUCCEEDED).await;
    }
}

/// A cancelled run does not pass its point of no return; one that has passed it may still succeed.
pub async fn the_gate_stops_a_cancelled_run(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &gated(3)).await;
    cancel(&*store, &batch.lane).await;
    let held = store.hold(hold_request(&batch, None)).await.expect("the holder may ask");
    assert_eq!((held.answer, held.state), (HoldAnswer::Interrupted, RunState::Cancelled));
    let again = store.hold(hold_request(&batch, None)).await.expect("the same answer");
    assert_eq!(again, held);
    claim_none(&*store).await;
    assert_eq!(totals(&*store, "chat").await, Totals { accepted: 1, discarded: 1, ..Totals::default() });
}

/// A run that nobody holds ends at once, alone: in backoff, handed back, or having given way.
pub async fn a_cancel_ends_a_waiting_current_run_at_once_and_alone(world: &dyn World) {
    let store = world.store();
    let waits: [(Verdict, RunPolicy); 3] =
        [(RETRY, retry_newer()), (RELEASE, policy()), (INTERRUPTED, interrupting(3))];
    for (n, (verdict, policy)) in waits.into_iter().enumerate() {
        let key = format!("k{n}");
        append_one(&*store, event("chat", &key).id("a")).await;
        let batch = claim_by(&*store, &policy).await;
        append_one(&*store, event("chat", &key).id("b")).await;
        settle_after(&*store, &batch, verdict, secs(500)).await;
        let done = cancel(&*store, &batch.lane).await;
        assert_eq!((done.changed, done.events, done.run), (true, 1, Some(batch.run_id)), "{verdict:?}");
        let row = run_detail(&*store, batch.run_id).await.expect("it is kept").row;
        assert_eq!((row.state, row.events), (RunState::Cancelled, 1), "{verdict:?}");
        let next = claim_by(&*store, &policy).await;
        assert_eq!((ids(&next), next.attempt, next.revision), (vec!["b"], 1, 0), "{verdict:?}");
        settle(&*store, &next, SUCCEEDED).await;
    }
    assert_eq!(
        totals(&*store, "chat").await,
        Totals { accepted: 6, succeeded: 3, discarded: 3, ..Totals::default() }
    );
}

/// Without a current run the open one is cancelled; its events are kept, and their ids still answer as duplicates.
pub async fn a_cancel_without_a_current_run_ends_the_open_one(world: &dyn World) {
    let store = world.store();
    append(&*store, ["a", "b"].map(|id| new(id).fixed(20))).await;
    let key = lane("chat", "k1");
    let done = cancel(&*store, &key).await;
    assert_eq!((done.changed, done.events), (true, 2));
    world.advance(secs(30)).await;
    claim_none(&*store).await;
    let told = try_append(&*store, [new("a")]).await.expect("a duplicate is answered").receipts.remove(0);
    assert_eq!((told.duplicate, told.state), (true, Some(RunState::Cancelled)), "it revives nothing");
    assert_eq!(totals(&*store, "chat").await, Totals { accepted: 2, discarded: 2, ..Totals::default() });
    append_one(&*store, new("c")).await;
    assert_eq!(ids(&claim_one(&*store).await), ["c"]);
    let run = event_place(&*store, &key, "b").await.and_then(|p| p.run_id);
    assert_eq!(run, done.run);
}

/// With a run named, only that run is cancelled: by the time the operator decides, another may be current.
pub async fn a_cancel_of_a_named_run_touches_no_other(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &policy()).await;
    let open = append_one(&*store, new("b")).await.run_id;
    let named = |run| ControlAction::Cancel { lane: batch.lane.clone(), run };
    assert!(!control(&*store, named(open)).await.changed, "it is not that one's turn");
    assert!(!extend(&*store, &batch, LEASE).await.cancel);
    assert!(control(&*store, named(Some(batch.run_id))).await.changed);
    settle(&*store, &batch, SUCCEEDED).await;
    assert!(!control(&*store, named(Some(batch.run_id))).await.changed, "it has ended");
    assert!(control(&*store, named(open)).await.changed);
    claim_none(&*store).await;
}

pub async fn a_cancel_of_nothing_changes_nothing(world: &dyn World) {
    let store = world.store();
    assert_eq!(cancel(&*store, &lane("chat", "nobody")).await, Controlled::default());
    assert!(lane_detail(&*store, &lane("chat", "nobody")).await.is_none(), "no lane is made by a cancel");
    let batch = claimed(&*store, &policy()).await;
    settle(&*store, &batch, SUCCEEDED).await;
    assert_eq!(cancel(&*store, &batch.lane).await, Controlled::default(), "it is idle");
    assert_eq!(trail_of(&*store, "chat", "k1").await.len(), 2);
}

/// Rule 16 and 23: cancelled events are kept for the retention from their end on, and then removed with their ids.
pub async fn discarded_events_are_kept_for_the_retention(world: &dyn World) {
    let store = world.store();
    append_one(&*store, new("a").fixed(500)).await;
    world.advance(secs(300)).await;
    cancel(&*store, &lane("chat", "k1")).await;
    world.advance(secs(50)).await;
    assert_eq!(forget(&*store, secs(100)).await.removed_events, 0);
    world.advance(secs(100)).await;
    assert_eq!(forget(&*store, secs(100)).await.removed_events, 1);
    assert!(!append_one(&*store, new("a").raw("1")).await.duplicate, "its id is free");
    assert_eq!(
        totals(&*store, "chat").await,
        Totals { accepted: 2, discarded: 1, buffered: 1, ..Totals::default() }
    );
}

// Flush: rule 18.

/// A run that gave way waits for the window of the newer events; a flush closes that window for it.
pub async fn a_flush_ends_the_wait_of_a_run_that_gave_way(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &interrupting(3)).await;
    append_one(&*store, new("b").fixed(500)).await;
    settle(&*store, &batch, INTERRUPTED).await;
    claim_none(&*store).await;
    assert!(control(&*store, ControlAction::Flush(batch.lane.clone())).await.changed);
    let next = claim_by(&*store, &interrupting(3)).await;
    assert_eq!((next.run_id, ids(&next)), (batch.run_id, vec!["a", "b"]));
}

// Purge: rule 19.

/// Dead letters become discarded, on record, and are kept for the retention from then on.
pub async fn a_purge_discards_dead_letters(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &policy()).await;
    append_one(&*store, new("b").fixed(500)).await;
    settle(&*store, &batch, FAILED).await;
    world.advance(secs(300)).await;
    let done = purge(&*store, "chat", PurgeWhat::Dead).await;
    assert_eq!((done.changed, done.events, done.more), (true, 1, false));
    let expected = Totals { accepted: 2, discarded: 1, buffered: 1, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, expected);
    assert_eq!(state_of(&*store, &batch.lane, "a").await, Some(RunState::Cancelled));
    let trail = trail_of(&*store, "chat", "k1").await;
    let last = trail.last().expect("it is on record");
    assert_eq!((last.change, last.run), (Change::Purged, Some(batch.run_id)));
    assert_eq!(last.actor.as_deref(), Some("ada"));
    assert_eq!(purge(&*store, "chat", PurgeWhat::Dead).await, Controlled::default(), "once");
    assert_eq!(forget(&*store, secs(100)).await.removed_events, 0, "the retention starts with the purge");
    world.advance(secs(150)).await;
    assert_eq!(forget(&*store, secs(100)).await.removed_events, 1);
    assert_eq!(totals(&*store, "chat").await, expected);
}

/// Delayed events are discarded before they enter their lane.
pub async fn a_purge_discards_delayed_events(world: &dyn World) {
    let store = world.store();
    append(&*store, [new("a").delay(50), new("b").delay(50), event("mail", "k1").delay(50)]).await;
    let done = purge(&*store, "chat", PurgeWhat::Delayed).await;
    assert_eq!((done.changed, done.events), (true, 2));
    assert_eq!(totals(&*store, "chat").await, Totals { accepted: 2, discarded: 2, ..Totals::default() });
    world.advance(secs(60)).await;
    let batch = claim_one(&*store).await;
    assert_eq!(batch.lane, lane("mail", "k1"), "only the queue that was named");
}

/// Buffered events are discarded; a current run never is, whether it is held, in backoff or redriven and not claimed.
pub async fn a_purge_of_buffered_events_never_touches_a_current_run(world: &dyn World) {
    let store = world.store();
    for key in ["running", "retryable", "redriven", "open"] {
        append_one(&*store, event("chat", key).id("a")).await;
        if key != "open" {
            let batch = claim_one(&*store).await;
            match key {
                "retryable" => assert_eq!(
                    settle_after(&*store, &batch, RETRY, secs(30)).await.state,
                    RunState::Retryable
                ),
                "redriven" => {
                    settle(&*store, &batch, FAILED).await;
                    assert!(redrive(&*store, batch.run_id).await.changed);
                    control(&*store, ControlAction::PauseLane(batch.lane.clone())).await;
                }
                _ => {}
            }
            append_one(&*store, event("chat", key).id("b")).await;
        }
    }
    let done = purge(&*store, "chat", PurgeWhat::Buffered).await;
    assert_eq!((done.changed, done.events), (true, 4));
    let expected = Totals { accepted: 7, discarded: 4, buffered: 1, in_flight: 2, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, expected);
    for key in ["running", "retryable", "redriven"] {
        let row = lane_row(&*store, &lane("chat", key)).await.expect("it is busy");
        assert_eq!(row.buffered + row.in_flight, 1, "{key}");
        assert_eq!(state_of(&*store, &lane("chat", key), "b").await, Some(RunState::Cancelled), "{key}");
    }
    control(&*store, ControlAction::ResumeLane(lane("chat", "redriven"))).await;
    assert_eq!(ids(&claim_one(&*store).await), ["a"]);
}

/// A dry run counts what would go and changes nothing.
pub async fn a_dry_purge_only_counts(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &policy()).await;
    settle(&*store, &batch, FAILED).await;
    append(&*store, [new("b").delay(500), new("c").fixed(500), new("d").fixed(500)]).await;
    let before = (totals(&*store, "chat").await, trail_of(&*store, "chat", "k1").await.len());
    for (what, events) in [(PurgeWhat::Dead, 1), (PurgeWhat::Delayed, 1), (PurgeWhat::Buffered, 2)] {
        let dry = Purge { dry_run: true, ..purge_request("chat", what) };
        let told = control(&*store, ControlAction::Purge(dry)).await;
        assert_eq!((told.changed, told.events), (false, events), "{what:?}");
    }
    assert_eq!((totals(&*store, "chat").await, trail_of(&*store, "chat", "k1").await.len()), before);
}

/// A purge of one tenant or key leaves the others alone.
pub async fn a_purge_reaches_only_what_it_names(world: &dyn World) {
    let store = world.store();
    for who in ["acme", "globex"] {
        append(&*store, ["k1", "k2"].map(|key| event("chat", key).of(who).fixed(500))).await;
    }
    let key = lane("chat", "k1").key;
    let of_acme = Purge { tenant: Some(tenant("acme")), ..purge_request("chat", PurgeWhat::Buffered) };
    let one_key = Purge { key: Some(key), ..of_acme.clone() };
    assert_eq!(control(&*store, ControlAction::Purge(one_key)).await.events, 1);
    assert_eq!(control(&*store, ControlAction::Purge(of_acme)).await.events, 1);
    assert_eq!(totals_of(&*store, "acme", "chat").await.discarded, 2);
    assert_eq!(totals_of(&*store, "globex", "chat").await.buffered, 2);
}

/// A purge works in bounded steps and says when there is more.
pub async fn a_purge_works_in_steps_and_says_when_there_is_more(world: &dyn World) {
    let store = world.store();
    let many = limits::PURGE_STEP as u64 + 1;
    append(&*store, (0..many).map(|_| event("chat", "k1").delay(500))).await;
    let first = purge(&*store, "chat", PurgeWhat::Delayed).await;
    assert_eq!((first.events, first.more), (many - 1, true));
    let second = purge(&*store, "chat", PurgeWhat::Delayed).await;
    assert_eq!((second.events, second.more), (1, false));
    assert_eq!(
        totals(&*store, "chat").await,
        Totals { accepted: many, discarded: many, ..Totals::default() }
    );
}

// A full lane that drops its oldest: rule 19.

pub async fn a_full_lane_drops_its_oldest_buffered_events_on_record(world: &dyn World) {
    let store = world.store();
    let newest = |id: &str| new(id).fixed(20).lane_events(2).drop_oldest();
    for id in ["a", "b", "c", "d"] {
        append_one(&*store, newest(id)).await;
    }
    assert_eq!(
        totals(&*store, "chat").await,
        Totals { accepted: 4, discarded: 2, buffered: 2, ..Totals::default() }
    );
    let told = changes(&trail_of(&*store, "chat", "k1").await);
    assert_eq!(told, [Change::Dropped, Change::Dropped]);
    assert_eq!(state_of(&*store, &lane("chat", "k1"), "a").await, Some(RunState::Cancelled));
    world.advance(secs(25)).await;
    assert_eq!(ids(&claim_one(&*store).await), ["c", "d"]);
}

/// Only events of the open run make room; when that is not enough, the whole request is refused.
pub async fn a_full_lane_never_drops_what_is_in_flight(world: &dyn World) {
    let store = world.store();
    append(&*store, [new("a"), new("b")]).await;
    let batch = claim_one(&*store).await;
    let newest = |id: &str| new(id).lane_events(2).drop_oldest();
    refused(try_append(&*store, [newest("c")]).await, ErrorKind::Full);
    append_one(&*store, new("d").lane_events(3)).await;
    refused(try_append(&*store, ["e", "f"].map(|id| newest(id).lane_events(3))).await, ErrorKind::Full);
    assert_eq!(totals(&*store, "chat").await.discarded, 0, "nothing was dropped for what was refused");
    append_one(&*store, newest("g").lane_events(3)).await;
    settle(&*store, &batch, SUCCEEDED).await;
    assert_eq!(ids(&claim_one(&*store).await), ["g"]);
}

/// Room is made by events that waited before: no receipt of a request names an event that the same request dropped.
pub async fn a_request_never_drops_its_own_events(world: &dyn World) {
    let store = world.store();
    let newest = |id: &str| new(id).fixed(500).lane_events(2).drop_oldest();
    append(&*store, ["a", "b"].map(newest)).await;
    refused(try_append(&*store, ["c", "d", "e"].map(newest)).await, ErrorKind::Full);
    assert_eq!(totals(&*store, "chat").await, Totals { accepted: 2, buffered: 2, ..Totals::default() });
    append(&*store, ["c", "d"].map(newest)).await;
    let detail = lane_detail(&*store, &lane("chat", "k1")).await.expect("it waits");
    let kept: Vec<_> = detail.events.iter().map(|e| e.id.as_str()).collect();
    assert_eq!(kept, ["c", "d"]);
}

/// A lane that keeps only the latest event is still due by its window: dropping the oldest does not start it again.
pub async fn dropping_the_oldest_does_not_move_the_window(world: &dyn World) {
    let store = world.store();
    let latest = |n: u64| new(&format!("e{n}")).quiet_capped(40, 60).lane_events(1).drop_oldest();
    let first = append_one(&*store, latest(0)).await;
    for n in 1..=3 {
        world.advance(secs(15)).await;
        let receipt = append_one(&*store, latest(n)).await;
        assert_eq!(receipt.run_id, first.run_id, "it is the same open run");
    }
    world.advance(secs(20)).await;
    let batch = claim_one(&*store).await;
    assert_eq!((ids(&batch), batch.fired_by), (vec!["e3"], FiredBy::Cap));
    assert_eq!(
        totals(&*store, "chat").await,
        Totals { accepted: 4, discarded: 3, in_flight: 1, ..Totals::default() }
    );
}

// One buffered event: edit and delete.

/// The payload is changed before anybody has seen it; the sender that repeats itself is still a duplicate.
pub async fn a_buffered_event_can_be_edited(world: &dyn World) {
    let store = world.store();
    let small = |id: &str| new(id).fixed(20).max_bytes(30);
    append(&*store, [small("a"), small("b")]).await;
    let key = lane("chat", "k1");
    let payload = json!({ "long": "0123456789012345" });
    let done = try_edit(&*store, &key, "a", payload.clone()).await.expect("it waits");
    assert_eq!((done.changed, done.events), (true, 1));
    let again = try_edit(&*store, &key, "a", payload.clone()).await.expect("it waits");
    assert_eq!(again, Controlled::default(), "nothing to change");
    let resent = try_append(&*store, [small("a")]).await.expect("no conflict").receipts.remove(0);
    assert!(resent.duplicate);
    world.advance(secs(25)).await;
    let batch = claim_one(&*store).await;
    assert_eq!(ids(&batch), ["a"], "its new size counts for the bounds of the batch");
    assert_eq!(batch.events[0].payload.as_str(), payload.to_string());
    let trail = trail_of(&*store, "chat", "k1").await;
    let edited = trail.iter().find(|r| r.change == Change::Edited).expect("it is on record");
    assert_eq!((edited.actor.as_deref(), edited.upto_seq), (Some("ada"), batch.events[0].seq));
    settle(&*store, &batch, SUCCEEDED).await;
    assert_eq!(ids(&claim_one(&*store).await), ["b"]);
}

/// One event leaves; the others stay in their order, and the last one leaves the lane idle.
pub async fn a_buffered_event_can_be_deleted(world: &dyn World) {
    let store = world.store();
    append(&*store, ["a", "b", "c"].map(|id| new(id).fixed(20))).await;
    let key = lane("chat", "k1");
    for (n, id) in ["b", "a", "c"].into_iter().enumerate() {
        let done = try_delete(&*store, &key, id).await.expect("it waits");
        assert_eq!((done.changed, done.events), (true, 1));
        let left = lane_row(&*store, &key).await.map_or(0, |row| row.buffered);
        assert_eq!(left, 2 - n as u64);
        refused(try_delete(&*store, &key, id).await, ErrorKind::NotFound);
    }
    world.advance(secs(30)).await;
    claim_none(&*store).await;
    assert_eq!(totals(&*store, "chat").await, Totals { accepted: 3, discarded: 3, ..Totals::default() });
    append_one(&*store, new("d")).await;
    assert_eq!(ids(&claim_one(&*store).await), ["d"]);
    assert_eq!(changes(&trail_of(&*store, "chat", "k1").await)[..3], [Change::Deleted; 3]);
}

/// What a worker has seen, or what has ended, is never changed under it.
pub async fn only_buffered_events_can_be_edited_or_deleted(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &policy()).await;
    append_one(&*store, new("b")).await;
    let untouched = |id: &'static str| {
        let (store, key) = (store.clone(), batch.lane.clone());
        async move {
            refused(try_edit(&*store, &key, id, json!(1)).await, ErrorKind::NotFound);
            refused(try_delete(&*store, &key, id).await, ErrorKind::NotFound);
        }
    };
    untouched("a").await;
    untouched("unknown").await;
    settle(&*store, &batch, RETRY).await;
    untouched("a").await;
    settle(&*store, &claim_one(&*store).await, FAILED).await;
    untouched("a").await;
    redrive(&*store, batch.run_id).await;
    untouched("a").await;
    refused(try_delete(&*store, &lane("chat", "k2"), "b").await, ErrorKind::NotFound);
    assert_eq!(claim_one(&*store).await.events[0].payload.as_str(), r#"{"id":"a"}"#);
    assert_eq!(
        totals(&*store, "chat").await,
        Totals { accepted: 2, in_flight: 1, buffered: 1, ..Totals::default() }
    );
}
