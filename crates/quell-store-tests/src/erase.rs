//! Promises of erasure (rules 42 and 43): what is erased is gone for good, wherever it was; the trail stays whole without
//! naming it, and the totals stay true.

use quell_core::audit::AuditRecord;
use quell_core::error::ErrorKind;
use quell_core::inspect::{AuditFilter, RunFilter};
use quell_core::lane::OnFailed;
use quell_core::lifecycle::{Change, RunState};
use quell_core::store::{
    ControlAction, Controlled, PurgeWhat, RedriveTo, RunPolicy, StepAction, StepAnswer, Store,
};
use quell_core::totals::Totals;
use serde_json::json;

use crate::World;
use crate::builders::{
    EventBuilder, FAILED, LEASE, RETRY, SUCCEEDED, append, append_one, cancel, claim_all, claim_by,
    claim_none, claim_one, control, erase_event, erase_lane, event, extend_request, forget, hold_request,
    ids, lane, notifying, on_failed, policy, purge, redrive, redrive_request, refused, secs, seq_of, settle,
    settle_after, step, step_request, try_control, try_settle,
};
use crate::reads::{
    all_runs, assert_totals, changes, event_place, lane_detail, lane_row, run_detail, state_of, totals,
    trail, trail_of,
};

fn new(id: &str) -> EventBuilder {
    event("chat", "k1").id(id)
}

/// A lane with an event in every place an event can be in: dead, succeeded, in flight, buffered, aside.
async fn an_event_everywhere(store: &dyn Store) {
    for (id, verdict) in [("dead", FAILED), ("succeeded", SUCCEEDED)] {
        append_one(store, new(id)).await;
        settle(store, &claim_one(store).await, verdict).await;
    }
    append_one(store, new("running")).await;
    claim_one(store).await;
    append(store, [new("buffered").fixed(500), new("delayed").delay(500)]).await;
    let expected = Totals {
        accepted: 5,
        succeeded: 1,
        dead: 1,
        delayed: 1,
        buffered: 1,
        in_flight: 1,
        ..Totals::default()
    };
    assert_eq!(totals(store, "chat").await, expected);
}

const EVERYWHERE: [&str; 5] = ["dead", "succeeded", "running", "buffered", "delayed"];

/// Nothing of the lane can be read any more, and what had not ended is counted as discarded.
pub async fn an_erased_lane_is_gone_from_every_place(world: &dyn World) {
    let store = world.store();
    an_event_everywhere(&*store).await;
    let key = lane("chat", "k1");
    let runs = all_runs(&*store, RunFilter::default()).await;
    assert_eq!(runs.len(), 4);
    let done = erase_lane(&*store, &key).await;
    assert_eq!((done.changed, done.events), (true, 5));
    let expected = Totals { accepted: 5, succeeded: 1, discarded: 4, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, expected);
    drop(store);
    let store = world.reopen().await;
    assert!(lane_detail(&*store, &key).await.is_none());
    for run in runs {
        assert!(run_detail(&*store, run.id).await.is_none(), "{run:?}");
        let action = ControlAction::Redrive(redrive_request(run.id, RedriveTo::Head));
        refused(try_control(&*store, action).await, ErrorKind::NotFound);
    }
    for id in EVERYWHERE {
        assert!(event_place(&*store, &key, id).await.is_none(), "{id}");
    }
    world.advance(secs(600)).await;
    claim_none(&*store).await;
    assert_eq!(totals(&*store, "chat").await, expected);
    assert_eq!(erase_lane(&*store, &key).await, Controlled::default(), "once");
}

/// The ids are free, and the key starts as if it had never been there; its numbers still rise.
pub async fn an_erased_key_starts_anew(world: &dyn World) {
    let store = world.store();
    append_one(&*store, new("a")).await;
    let last = append_one(&*store, new("b")).await;
    erase_lane(&*store, &lane("chat", "k1")).await;
    let again = append_one(&*store, new("a").raw("\"another payload\"")).await;
    assert!(seq_of(&again) > seq_of(&last));
    let batch = claim_one(&*store).await;
    assert_eq!((ids(&batch), batch.attempt), (vec!["a"], 1));
    settle(&*store, &batch, SUCCEEDED).await;
    let expected = Totals { accepted: 3, succeeded: 1, discarded: 2, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, expected);
}

/// Whoever held the lane is told that its lease is lost, whatever it tries, and changes nothing.
pub async fn the_holder_of_an_erased_run_is_stale(world: &dyn World) {
    let store = world.store();
    append_one(&*store, new("a")).await;
    append_one(&*store, event("chat", "k2").id("a")).await;
    let batches = claim_all(&*store).await;
    let [by_lane, by_event] = [&batches[0], &batches[1]];
    erase_lane(&*store, &by_lane.lane).await;
    erase_event(&*store, &by_event.lane, "a").await;
    for batch in [by_lane, by_event] {
        for verdict in [SUCCEEDED, FAILED, RETRY] {
            refused(try_settle(&*store, batch, verdict).await, ErrorKind::LostLease);
        }
        refused(store.extend(extend_request(batch, LEASE)).await, ErrorKind::LostLease);
        refused(store.hold(hold_request(batch, None)).await, ErrorKind::LostLease);
        let paid = step_request(batch, "paid", StepAction::Begin);
        refused(store.step(paid).await, ErrorKind::LostLease);
    }
    assert_eq!(totals(&*store, "chat").await, Totals { accepted: 2, discarded: 2, ..Totals::default() });
}

/// Rule 20 and 42: what a holder has said before the erasure is still answered.
pub async fn a_settle_from_before_the_erasure_is_still_answered(world: &dyn World) {
    let store = world.store();
    append_one(&*store, new("a")).await;
    let batch = claim_one(&*store).await;
    let first = settle(&*store, &batch, SUCCEEDED).await;
    erase_lane(&*store, &batch.lane).await;
    let again = try_settle(&*store, &batch, SUCCEEDED).await.expect("the same answer");
    assert_eq!((again.repeated, again.state, again.change), (true, first.state, first.change));
    refused(try_settle(&*store, &batch, FAILED).await, ErrorKind::AlreadySettled);
}

/// Every record stays as it was, but none names the key; the erasure itself is on record with the operator.
pub async fn the_trail_stays_whole_and_names_the_erased_key_no_more(world: &dyn World) {
    let store = world.store();
    an_event_everywhere(&*store).await;
    append_one(&*store, event("chat", "k2")).await;
    settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
    let before = trail(&*store, AuditFilter::default()).await;
    erase_lane(&*store, &lane("chat", "k1")).await;
    let after = trail(&*store, AuditFilter::default()).await;
    let (kept, added) = after.split_at(before.len());
    for (was, is) in before.iter().zip(kept) {
        let other = was.key.as_ref().is_some_and(|key| key.as_str() == "k2");
        assert_eq!(is.key, if other { was.key.clone() } else { None }, "{is:?}");
        let nameless = |record: &AuditRecord| {
            let mut record = record.clone();
            record.key = None;
            record
        };
        assert_eq!(nameless(is), nameless(was));
    }
    assert_eq!(changes(added), [Change::Cancelled, Change::Cancelled, Change::Erased]);
    assert!(added.iter().all(|r| r.actor.as_deref() == Some("ada") && r.key.is_none()));
    assert!(trail_of(&*store, "chat", "k1").await.is_empty());
}

/// A run that an erasure ends is not told to anybody: the notice would name the key again.
pub async fn an_erasure_tells_nobody(world: &dyn World) {
    let store = world.store();
    let telling = notifying("told", &[RunState::Cancelled]);
    for key in ["k1", "k2", "k3"] {
        append_one(&*store, event("chat", key).id("a")).await;
        let batch = claim_by(&*store, &telling).await;
        settle_after(&*store, &batch, RETRY, secs(500)).await;
    }
    erase_lane(&*store, &lane("chat", "k1")).await;
    erase_event(&*store, &lane("chat", "k2"), "a").await;
    assert_eq!(totals(&*store, "told").await, Totals::default());
    cancel(&*store, &lane("chat", "k3")).await;
    assert_eq!(totals(&*store, "told").await.accepted, 1, "a cancellation is told");
}

/// Nothing is known of the key but what it sent ahead; that goes too, and is on record.
pub async fn a_key_that_has_only_delayed_events_is_erased_on_record(world: &dyn World) {
    let store = world.store();
    append(&*store, [new("a").delay(50), event("chat", "k2").id("b").delay(50)]).await;
    let done = erase_lane(&*store, &lane("chat", "k1")).await;
    assert_eq!((done.changed, done.events), (true, 1));
    let records = trail(&*store, AuditFilter::default()).await;
    assert_eq!(changes(&records), [Change::Erased]);
    assert!(records[0].key.is_none() && records[0].actor.as_deref() == Some("ada"));
    world.advance(secs(60)).await;
    assert_eq!(ids(&claim_one(&*store).await), ["b"]);
}

pub async fn an_erasure_of_nothing_changes_nothing(world: &dyn World) {
    let store = world.store();
    append_one(&*store, new("a").fixed(500)).await;
    assert_eq!(erase_lane(&*store, &lane("chat", "nobody")).await, Controlled::default());
    assert_eq!(erase_event(&*store, &lane("chat", "nobody"), "a").await, Controlled::default());
    assert_eq!(erase_event(&*store, &lane("chat", "k1"), "unknown").await, Controlled::default());
    assert!(trail(&*store, AuditFilter::default()).await.is_empty());
    assert_eq!(totals(&*store, "chat").await, Totals { accepted: 1, buffered: 1, ..Totals::default() });
}

/// One event can be erased wherever it is; the others of its lane stay what they are.
pub async fn one_event_is_erased_wherever_it_is(world: &dyn World) {
    let store = world.store();
    an_event_everywhere(&*store).await;
    let key = lane("chat", "k1");
    for id in EVERYWHERE {
        assert_eq!(erase_event(&*store, &key, id).await.events, 1, "{id}");
        assert!(event_place(&*store, &key, id).await.is_none(), "{id}");
        assert_eq!(erase_event(&*store, &key, id).await, Controlled::default(), "{id}: once");
        assert_totals(world).await;
    }
    assert_eq!(
        totals(&*store, "chat").await,
        Totals { accepted: 5, succeeded: 1, discarded: 4, ..Totals::default() }
    );
    let erased = trail_of(&*store, "chat", "k1").await.into_iter().filter(|r| r.change == Change::Erased);
    assert_eq!(erased.count(), EVERYWHERE.len());
    world.advance(secs(600)).await;
    claim_none(&*store).await;
}

/// A buffered event leaves its window without disturbing the others.
pub async fn erasing_a_buffered_event_leaves_the_others_waiting(world: &dyn World) {
    let store = world.store();
    append(&*store, ["a", "b", "c"].map(|id| new(id).fixed(20))).await;
    erase_event(&*store, &lane("chat", "k1"), "a").await;
    erase_event(&*store, &lane("chat", "k1"), "b").await;
    let row = lane_row(&*store, &lane("chat", "k1")).await.expect("it waits");
    assert_eq!(row.buffered, 1);
    world.advance(secs(25)).await;
    assert_eq!(ids(&claim_one(&*store).await), ["c"]);
}

/// An event in flight takes its run with it: the others of that run are discarded, kept, and can be redriven.
pub async fn erasing_an_event_in_flight_cancels_its_run(world: &dyn World) {
    let store = world.store();
    append(&*store, [new("a"), new("b")]).await;
    let batch = claim_one(&*store).await;
    append_one(&*store, new("c")).await;
    step(&*store, &batch, "paid", StepAction::Finish(json!("about a"))).await;
    erase_event(&*store, &batch.lane, "a").await;
    let expected = Totals { accepted: 3, discarded: 2, buffered: 1, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, expected);
    let run = run_detail(&*store, batch.run_id).await.expect("it is kept");
    assert_eq!((run.row.state, run.row.events, run.list.len()), (RunState::Cancelled, 1, 1));
    assert!(run.steps.is_empty(), "steps may hold what was erased");
    assert!(redrive(&*store, batch.run_id).await.changed);
    let again = claim_one(&*store).await;
    assert_eq!(ids(&again), ["b"], "before what waited");
    assert_eq!(step(&*store, &again, "paid", StepAction::Read).await, StepAnswer::New);
    settle(&*store, &again, SUCCEEDED).await;
    assert_eq!(ids(&claim_one(&*store).await), ["c"]);
}

/// A dead letter loses one event; the others are still dead, and still there to be redriven.
pub async fn erasing_a_dead_event_leaves_the_others_dead(world: &dyn World) {
    let store = world.store();
    append(&*store, [new("a"), new("b")]).await;
    let batch = claim_one(&*store).await;
    settle(&*store, &batch, FAILED).await;
    erase_event(&*store, &batch.lane, "b").await;
    assert_eq!(
        totals(&*store, "chat").await,
        Totals { accepted: 2, dead: 1, discarded: 1, ..Totals::default() }
    );
    assert_eq!(state_of(&*store, &batch.lane, "a").await, Some(RunState::Failed));
    assert_eq!(redrive(&*store, batch.run_id).await.events, 1);
    assert_eq!(ids(&claim_one(&*store).await), ["a"]);
}

/// What waits behind the current run is reached, too, and alone.
pub async fn erasing_an_event_of_a_redriven_run_leaves_the_current_one_alone(world: &dyn World) {
    let store = world.store();
    append_one(&*store, new("a")).await;
    let dead = claim_one(&*store).await;
    settle(&*store, &dead, FAILED).await;
    append_one(&*store, new("b")).await;
    let running = claim_one(&*store).await;
    redrive(&*store, dead.run_id).await;
    erase_event(&*store, &running.lane, "a").await;
    assert_eq!(
        totals(&*store, "chat").await,
        Totals { accepted: 2, discarded: 1, in_flight: 1, ..Totals::default() }
    );
    settle(&*store, &running, SUCCEEDED).await;
    claim_none(&*store).await;
}

/// An erased lane that blocked or was paused holds nobody up when its key comes back.
pub async fn an_erased_key_is_neither_paused_nor_blocked(world: &dyn World) {
    let store = world.store();
    let block = on_failed(OnFailed::Block);
    append_one(&*store, new("a")).await;
    settle(&*store, &claim_by(&*store, &block).await, FAILED).await;
    control(&*store, ControlAction::PauseLane(lane("chat", "k1"))).await;
    erase_lane(&*store, &lane("chat", "k1")).await;
    append_one(&*store, new("b")).await;
    assert_eq!(ids(&claim_one(&*store).await), ["b"]);
}

/// Rule 43: the equation stays true across retention, purge and erase, and none of them changes what was accepted.
pub async fn totals_stay_true_across_retention_purge_and_erase(world: &dyn World) {
    let store = world.store();
    let once = RunPolicy { max_attempts: 1, ..policy() };
    for key in ["k1", "k2", "k3"] {
        for (id, verdict) in [("a", SUCCEEDED), ("b", RETRY), ("c", FAILED)] {
            append_one(&*store, event("chat", key).id(id)).await;
            settle(&*store, &claim_by(&*store, &once).await, verdict).await;
        }
        append(&*store, [event("chat", key).id("d").fixed(5_000), event("chat", key).id("e").delay(5_000)])
            .await;
    }
    let start = Totals { accepted: 15, succeeded: 3, dead: 6, buffered: 3, delayed: 3, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, start);
    world.advance(secs(1_000)).await;
    let removed = forget(&*store, secs(500)).await;
    assert_eq!((removed.removed_runs, removed.removed_events), (3, 3));
    assert_eq!(totals(&*store, "chat").await, start, "what was removed stays counted");
    erase_lane(&*store, &lane("chat", "k1")).await;
    erase_event(&*store, &lane("chat", "k2"), "b").await;
    let erased = Totals { dead: 3, buffered: 2, delayed: 2, discarded: 5, ..start };
    assert_eq!(totals(&*store, "chat").await, erased);
    assert_eq!(purge(&*store, "chat", PurgeWhat::Dead).await.events, 3);
    assert_eq!(purge(&*store, "chat", PurgeWhat::Buffered).await.events, 2);
    let purged = Totals { accepted: 15, succeeded: 3, delayed: 2, discarded: 10, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, purged);
    assert_totals(world).await;
    world.advance(secs(1_000)).await;
    forget(&*store, secs(500)).await;
    assert_eq!(totals(&*store, "chat").await, purged);
    let left = all_runs(&*store, RunFilter::default()).await;
    assert!(left.is_empty(), "dead letters that were purged are removed like all that ended: {left:?}");
}
