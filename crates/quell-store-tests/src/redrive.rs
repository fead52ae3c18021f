//! Promises of redrive (rule 15): events of a run that ended go back, once, exactly those that were named, to the head of
//! their lane or as new; nothing else of the lane is touched.

use quell_core::batch::{Batch, RunId};
use quell_core::error::ErrorKind;
use quell_core::event::Payload;
use quell_core::lifecycle::{Change, RunState};
use quell_core::limits;
use quell_core::store::{
    ControlAction, Controlled, PurgeWhat, Redrive, RedriveTo, StepAction, StepAnswer, Store,
};
use quell_core::totals::Totals;
use quell_core::window::FiredBy;
use serde_json::json;

use crate::World;
use crate::builders::{
    ATTEMPTS, EventBuilder, FAILED, LEASE, RELEASE, RETRY, SUCCEEDED, append, append_one, cancel, claim_by,
    claim_none, claim_one, control, event, extend, forget, id, ids, interrupting, lane, purge, redrive,
    redrive_as_new, redrive_request, refused, secs, seqs, settle, settle_after, step, try_append,
    try_control, try_delete,
};
use crate::reads::{
    assert_moment, changes, event_place, health, lane_detail, lane_row, run_detail, state_of, totals,
    trail_of,
};

fn new(id: &str) -> EventBuilder {
    event("chat", "k1").id(id)
}

/// A run of these events that has failed.
async fn dead(store: &dyn Store, names: &[&str]) -> Batch {
    append(store, names.iter().map(|id| new(id))).await;
    let batch = claim_one(store).await;
    assert_eq!(ids(&batch), names);
    settle(store, &batch, FAILED).await;
    batch
}

async fn redrive_by(store: &dyn Store, redrive: Redrive) -> Controlled {
    control(store, ControlAction::Redrive(redrive)).await
}

/// Only these events of a run.
fn some_of(run: RunId, to: RedriveTo, names: &[&str]) -> Redrive {
    Redrive { events: names.iter().map(|name| id(name)).collect(), ..redrive_request(run, to) }
}

pub async fn a_dead_run_goes_back_as_a_new_run_of_exactly_its_events(world: &dyn World) {
    let store = world.store();
    let old = dead(&*store, &["a", "b"]).await;
    append_one(&*store, new("c").fixed(500)).await;
    let done = redrive(&*store, old.run_id).await;
    let made = done.run.expect("it made a run");
    assert_eq!((done.changed, done.events), (true, 2));
    assert_ne!(made, old.run_id);
    let buffered = Totals { accepted: 3, buffered: 3, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, buffered, "redrive moves dead to buffered");
    let row = run_detail(&*store, made).await.expect("it waits").row;
    assert_eq!((row.state, row.events, row.attempts), (RunState::Pending, 2, 0));
    assert_eq!(row.links.redriven_from, Some(old.run_id));
    let batch = claim_one(&*store).await;
    assert_eq!((batch.run_id, seqs(&batch), batch.fired_by), (made, seqs(&old), FiredBy::Redrive));
    assert_eq!((batch.attempt, batch.retries, batch.revision), (1, 0, 0));
    let row = run_detail(&*store, old.run_id).await.expect("it is kept").row;
    assert_eq!((row.state, row.events), (RunState::Failed, 0), "an event belongs to one unreplaced run");
    assert_eq!(row.links.redriven_into, Some(made));
    settle(&*store, &batch, SUCCEEDED).await;
    let end = Totals { accepted: 3, succeeded: 2, buffered: 1, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, end);
}

/// On an idle lane it is due now, and whoever sleeps is woken.
pub async fn on_an_idle_lane_it_is_due_now(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    let old = dead(&*store, &["a"]).await;
    world.advance(secs(50)).await;
    let mut listener = other.wakeups();
    redrive(&*store, old.run_id).await;
    listener.woken().await;
    let row = lane_row(&*store, &old.lane).await.expect("it waits");
    let now = health(&*store).await.now;
    assert_moment(world, row.due_at.expect("it is due"), now, "due now");
    assert_eq!(ids(&claim_one(&*other).await), ["a"]);
}

pub async fn it_goes_after_the_current_run_and_before_anything_buffered(world: &dyn World) {
    let store = world.store();
    let first = dead(&*store, &["a"]).await;
    let second = dead(&*store, &["b"]).await;
    append_one(&*store, new("c")).await;
    let running = claim_one(&*store).await;
    append_one(&*store, new("d")).await;
    redrive(&*store, second.run_id).await;
    redrive(&*store, first.run_id).await;
    claim_none(&*store).await;
    let detail = lane_detail(&*store, &running.lane).await.expect("it is running");
    assert_eq!((detail.current_run, detail.queued_runs.len()), (Some(running.run_id), 2));
    settle_after(&*store, &running, RETRY, secs(30)).await;
    claim_none(&*store).await;
    world.advance(secs(35)).await;
    for expected in ["c", "b", "a", "d"] {
        let batch = claim_one(&*store).await;
        assert_eq!(
            ids(&batch),
            [expected],
            "the current run, then the redriven ones as asked, then the rest"
        );
        settle(&*store, &batch, SUCCEEDED).await;
    }
}

pub async fn as_new_gives_new_numbers_and_keeps_the_ids(world: &dyn World) {
    let store = world.store();
    let old = dead(&*store, &["a", "b"]).await;
    append_one(&*store, new("c")).await;
    let done = redrive_as_new(&*store, old.run_id).await;
    assert_eq!((done.changed, done.events), (true, 2));
    let batch = claim_one(&*store).await;
    assert_eq!((ids(&batch), Some(batch.run_id)), (vec!["c", "a", "b"], done.run), "behind what waits");
    assert!(seqs(&batch).windows(2).all(|w| w[0] < w[1]), "{:?}", seqs(&batch));
    let was: Vec<_> = batch.events.iter().map(|e| e.was_seq).collect();
    assert_eq!(was, [None, Some(old.lo()), Some(old.hi())]);
    assert!(batch.first_at <= batch.last_at, "{} {}", batch.first_at, batch.last_at);
    assert_eq!(batch.events[1].received_at, old.events[0].received_at, "it arrived when it arrived");
    let resent = try_append(&*store, [new("a")]).await.expect("a duplicate is answered");
    assert!(resent.receipts[0].duplicate, "the id is still known");
    assert_eq!(resent.receipts[0].seq, Some(batch.events[1].seq), "under its new number");
    settle(&*store, &batch, SUCCEEDED).await;
    assert_eq!(totals(&*store, "chat").await, Totals { accepted: 3, succeeded: 3, ..Totals::default() });
}

/// As new they open or join a window like everything that arrives.
pub async fn as_new_opens_a_window_by_the_rules_of_the_queue(world: &dyn World) {
    let store = world.store();
    let old = dead(&*store, &["a"]).await;
    let policy = new("x").fixed(20).build().policy;
    redrive_by(&*store, Redrive { policy, ..redrive_request(old.run_id, RedriveTo::New) }).await;
    world.advance(secs(10)).await;
    claim_none(&*store).await;
    world.advance(secs(15)).await;
    let batch = claim_one(&*store).await;
    assert_eq!((ids(&batch), batch.fired_by, batch.attempt), (vec!["a"], FiredBy::Fixed, 1));
}

/// It is conditional on still being dead, so a repeat after a lost answer does nothing.
pub async fn a_repeated_redrive_does_nothing(world: &dyn World) {
    let store = world.store();
    for (key, to) in [("k1", RedriveTo::Head), ("k2", RedriveTo::New)] {
        append_one(&*store, event("chat", key).id("a")).await;
        let old = claim_one(&*store).await;
        settle(&*store, &old, FAILED).await;
        assert!(redrive_by(&*store, redrive_request(old.run_id, to)).await.changed);
        let before = (totals(&*store, "chat").await, trail_of(&*store, "chat", key).await.len());
        for to in [RedriveTo::Head, RedriveTo::New] {
            let again = redrive_by(&*store, redrive_request(old.run_id, to)).await;
            assert_eq!(again, Controlled::default());
        }
        assert_eq!((totals(&*store, "chat").await, trail_of(&*store, "chat", key).await.len()), before);
        let batch = claim_one(&*store).await;
        assert_eq!(ids(&batch), ["a"], "once");
        settle(&*store, &batch, SUCCEEDED).await;
        claim_none(&*store).await;
    }
}

pub async fn some_events_go_back_and_the_others_stay_dead(world: &dyn World) {
    let store = world.store();
    let old = dead(&*store, &["a", "b", "c"]).await;
    let some = |names| redrive_by(&*store, some_of(old.run_id, RedriveTo::Head, names));
    assert_eq!(some(&["c", "a", "unknown"]).await.events, 2);
    let batch = claim_one(&*store).await;
    assert_eq!(ids(&batch), ["a", "c"], "in the order of the lane");
    assert_eq!(state_of(&*store, &old.lane, "b").await, Some(RunState::Failed));
    let row = run_detail(&*store, old.run_id).await.expect("it is kept");
    assert_eq!((row.row.events, row.list.len(), row.list[0].id.as_str()), (1, 1, "b"));
    settle(&*store, &batch, SUCCEEDED).await;
    assert_eq!(
        totals(&*store, "chat").await,
        Totals { accepted: 3, succeeded: 2, dead: 1, ..Totals::default() }
    );
    assert!(!some(&["a", "c"]).await.changed, "they are not dead any more");
    assert_eq!(redrive_by(&*store, some_of(old.run_id, RedriveTo::New, &["b"])).await.events, 1);
    assert_eq!(ids(&claim_one(&*store).await), ["b"]);
}

/// Attempts start at 0: a redriven run has the whole budget again.
pub async fn a_redriven_run_has_a_fresh_budget_and_may_die_again(world: &dyn World) {
    let store = world.store();
    append_one(&*store, new("a")).await;
    let mut run = None;
    for round in 0..2 {
        for attempt in 1..=ATTEMPTS {
            let batch = claim_one(&*store).await;
            assert_eq!((batch.attempt, batch.retries), (attempt, attempt - 1), "round {round}");
            settle(&*store, &batch, RETRY).await;
            run = Some(batch.run_id);
        }
        claim_none(&*store).await;
        assert_eq!(totals(&*store, "chat").await, Totals { accepted: 1, dead: 1, ..Totals::default() });
        assert!(redrive(&*store, run.expect("it ran")).await.changed);
    }
    settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
    assert_eq!(totals(&*store, "chat").await, Totals { accepted: 1, succeeded: 1, ..Totals::default() });
}

/// Steps go along only when the whole run goes to the head and nobody asked to forget them.
pub async fn steps_are_carried_only_with_the_whole_run_at_the_head(world: &dyn World) {
    let store = world.store();
    let cases: [(&str, RedriveTo, &[&str], bool, bool); 4] = [
        ("whole", RedriveTo::Head, &[], false, true),
        ("fresh", RedriveTo::Head, &[], true, false),
        ("partial", RedriveTo::Head, &["a"], false, false),
        ("as new", RedriveTo::New, &[], false, false),
    ];
    for (key, to, names, fresh, carried) in cases {
        let old = dead_with_step(&*store, key).await;
        let request = Redrive { fresh, ..some_of(old.run_id, to, names) };
        assert!(redrive_by(&*store, request).await.changed, "{key}");
        let batch = claim_one(&*store).await;
        assert_eq!(knows_step(&*store, &batch).await, carried, "{key}");
        settle(&*store, &batch, SUCCEEDED).await;
    }
}

/// What is left of a run after some of its events went back is not the whole run.
pub async fn steps_are_not_carried_by_the_rest_of_a_run(world: &dyn World) {
    let store = world.store();
    let old = dead_with_step(&*store, "k1").await;
    redrive_by(&*store, some_of(old.run_id, RedriveTo::Head, &["a"])).await;
    settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
    redrive(&*store, old.run_id).await;
    let rest = claim_one(&*store).await;
    assert_eq!(ids(&rest), ["b"]);
    assert!(!knows_step(&*store, &rest).await);
}

async fn dead_with_step(store: &dyn Store, key: &str) -> Batch {
    append(store, ["a", "b"].map(|id| event("chat", key).id(id))).await;
    let old = claim_one(store).await;
    step(store, &old, "paid", StepAction::Finish(json!(7))).await;
    settle(store, &old, FAILED).await;
    old
}

async fn knows_step(store: &dyn Store, batch: &Batch) -> bool {
    match step(store, batch, "paid", StepAction::Read).await {
        StepAnswer::Done { value, stored: false } => value == json!(7),
        answer => {
            assert_eq!(answer, StepAnswer::New);
            false
        }
    }
}

/// Rule 15 and 16: what was discarded can be redriven, too: cancelled, purged, dropped or deleted.
pub async fn discarded_events_are_redrivable(world: &dyn World) {
    let store = world.store();
    for how in ["cancelled", "purged", "dropped", "deleted"] {
        let key = lane("chat", how);
        let waiting = |id: &str| event("chat", how).id(id).fixed(500);
        append_one(&*store, waiting("a")).await;
        match how {
            "cancelled" => assert!(cancel(&*store, &key).await.changed),
            "purged" => assert_eq!(purge(&*store, "chat", PurgeWhat::Buffered).await.events, 1),
            "dropped" => {
                append_one(&*store, waiting("b").lane_events(1).drop_oldest()).await;
            }
            _ => assert!(try_delete(&*store, &key, "a").await.expect("it waits").changed),
        }
        let place = event_place(&*store, &key, "a").await.expect("it is kept");
        assert_eq!(place.state, Some(RunState::Cancelled), "{how}");
        let before = totals(&*store, "chat").await;
        assert!(redrive(&*store, place.run_id.expect("it has a run")).await.changed, "{how}");
        let after = totals(&*store, "chat").await;
        assert_eq!((after.discarded, after.buffered), (before.discarded - 1, before.buffered + 1), "{how}");
        let batch = claim_one(&*store).await;
        assert_eq!(ids(&batch), ["a"], "{how}");
        settle(&*store, &batch, SUCCEEDED).await;
        cancel(&*store, &key).await;
    }
}

pub async fn only_runs_that_ended_badly_are_redriven(world: &dyn World) {
    let store = world.store();
    append_one(&*store, new("a")).await;
    let batch = claim_one(&*store).await;
    let waiting = append_one(&*store, new("b").fixed(500)).await.run_id.expect("it waits in a run");
    for run in [batch.run_id, waiting] {
        assert_eq!(redrive(&*store, run).await, Controlled::default(), "it has not ended");
    }
    settle(&*store, &batch, SUCCEEDED).await;
    assert_eq!(redrive(&*store, batch.run_id).await, Controlled::default(), "there is nothing to repair");
    let RunId { lane, number } = batch.run_id;
    for run in [RunId { lane, number: number + 1_000_000 }, RunId { lane: lane + 1_000_000, number }] {
        let action = ControlAction::Redrive(redrive_request(run, RedriveTo::Head));
        refused(try_control(&*store, action).await, ErrorKind::NotFound);
    }
    assert_eq!(
        totals(&*store, "chat").await,
        Totals { accepted: 2, succeeded: 1, buffered: 1, ..Totals::default() }
    );
}

/// Frozen: newer events neither interrupt a redriven run nor join it, in any of its attempts.
pub async fn a_redriven_run_takes_nothing_newer_in(world: &dyn World) {
    let store = world.store();
    let old = dead(&*store, &["a"]).await;
    redrive(&*store, old.run_id).await;
    append_one(&*store, new("b")).await;
    let mut batch = claim_by(&*store, &interrupting(3)).await;
    append_one(&*store, new("c")).await;
    assert!(!extend(&*store, &batch, LEASE).await.interrupt);
    for verdict in [RETRY, RELEASE] {
        settle(&*store, &batch, verdict).await;
        batch = claim_by(&*store, &interrupting(3)).await;
        assert_eq!((ids(&batch), batch.revision), (vec!["a"], 0), "{verdict:?}");
    }
}

/// Rule 15 and 23: a resend of a redriven event is still a duplicate and revives nothing.
pub async fn a_resend_of_a_dead_or_redriven_event_is_a_duplicate(world: &dyn World) {
    let store = world.store();
    let old = dead(&*store, &["a"]).await;
    let resend = || try_append(&*store, [new("a")]);
    let told = resend().await.expect("a duplicate is answered").receipts.remove(0);
    assert_eq!((told.duplicate, told.state, told.run_id), (true, Some(RunState::Failed), Some(old.run_id)));
    claim_none(&*store).await;
    let made = redrive(&*store, old.run_id).await.run;
    let told = resend().await.expect("a duplicate is answered").receipts.remove(0);
    assert_eq!((told.duplicate, told.state, told.run_id), (true, Some(RunState::Pending), made));
    assert_eq!(totals(&*store, "chat").await.accepted, 1);
}

/// The retention of the old run does not reach the events that have left it.
pub async fn redriven_events_outlive_the_run_they_left(world: &dyn World) {
    let store = world.store();
    let old = dead(&*store, &["a", "b"]).await;
    redrive_by(&*store, some_of(old.run_id, RedriveTo::Head, &["a"])).await;
    redrive_by(&*store, some_of(old.run_id, RedriveTo::New, &["b"])).await;
    world.advance(secs(1_000)).await;
    assert_eq!(forget(&*store, secs(500)).await.removed_events, 0);
    for expected in ["a", "b"] {
        let batch = claim_one(&*store).await;
        assert_eq!(ids(&batch), [expected]);
        settle(&*store, &batch, SUCCEEDED).await;
    }
    assert_eq!(totals(&*store, "chat").await, Totals { accepted: 2, succeeded: 2, ..Totals::default() });
}

pub async fn a_redrive_is_on_record_with_the_operator(world: &dyn World) {
    let store = world.store();
    let old = dead(&*store, &["a", "b"]).await;
    let made = [
        redrive_by(&*store, some_of(old.run_id, RedriveTo::Head, &["a"])).await.run,
        redrive_by(&*store, some_of(old.run_id, RedriveTo::New, &["b"])).await.run,
    ];
    let trail = trail_of(&*store, "chat", "k1").await;
    assert_eq!(changes(&trail)[2..], [Change::Redriven, Change::Redriven]);
    for (record, made) in trail[2..].iter().zip(made) {
        assert_eq!((record.run, record.other_run), (made, Some(old.run_id)));
        assert_eq!(record.actor.as_deref(), Some("ada"));
    }
}

/// The old payloads never come back to a worker, and the record says which events were changed.
pub async fn events_go_back_with_the_payloads_that_an_operator_gave_them(world: &dyn World) {
    let store = world.store();
    for (to, [a, b, c]) in [(RedriveTo::Head, ["a", "b", "c"]), (RedriveTo::New, ["d", "e", "f"])] {
        let old = dead(&*store, &[a, b, c]).await;
        let before = trail_of(&*store, "chat", "k1").await.len();
        let payload = |text: &str| Payload::of(&json!({ "text": text }));
        let request = |edits: &[(&str, &str)]| Redrive {
            edits: edits.iter().map(|(name, text)| (id(name), payload(text))).collect(),
            ..redrive_request(old.run_id, to)
        };
        let stranger = ControlAction::Redrive(request(&[(a, "new"), ("nobody", "x")]));
        refused(try_control(&*store, stranger).await, ErrorKind::Invalid);
        assert_eq!(totals(&*store, "chat").await.dead, 3, "nothing was done");

        let kept = old.events[2].payload.clone();
        let mut wish = request(&[(a, "longer than it was before"), (b, "")]);
        wish.edits.push((id(c), kept.clone()));
        let made = redrive_by(&*store, wish).await.run.expect("it made a run");
        let trail = trail_of(&*store, "chat", "k1").await;
        assert_eq!(changes(&trail)[before..], [Change::Redriven, Change::Edited, Change::Edited]);
        assert!(trail[before..].iter().all(|record| record.run == Some(made)));
        let batch = claim_one(&*store).await;
        let seqs: Vec<u64> = trail[before + 1..].iter().map(|record| record.upto_seq).collect();
        assert_eq!(seqs, [batch.events[0].seq, batch.events[1].seq]);
        let payloads: Vec<_> = batch.events.iter().map(|event| event.payload.clone()).collect();
        assert_eq!(payloads, [payload("longer than it was before"), payload(""), kept]);
        let bytes: u64 = payloads.iter().map(|payload| payload.len() as u64).sum();
        assert_eq!(run_detail(&*store, made).await.expect("it runs").row.bytes, bytes);
        settle(&*store, &batch, SUCCEEDED).await;
    }
}

pub async fn redriven_runs_survive_a_restart(world: &dyn World) {
    let store = world.store();
    let first = dead(&*store, &["a"]).await;
    let second = dead(&*store, &["b", "c"]).await;
    append_one(&*store, new("d")).await;
    redrive(&*store, first.run_id).await;
    redrive_by(&*store, some_of(second.run_id, RedriveTo::Head, &["c"])).await;
    drop(store);
    let store = world.reopen().await;
    for expected in ["a", "c", "d"] {
        let batch = claim_one(&*store).await;
        assert_eq!(ids(&batch), [expected]);
        settle(&*store, &batch, SUCCEEDED).await;
    }
    assert_eq!(
        totals(&*store, "chat").await,
        Totals { accepted: 4, succeeded: 3, dead: 1, ..Totals::default() }
    );
}

/// Frozen runs are part of the lane's state, so their number is bounded; the refused one stays dead.
pub async fn too_many_redriven_runs_in_one_lane_are_refused(world: &dyn World) {
    let store = world.store();
    let mut runs = Vec::new();
    for n in 0..=limits::QUEUED_RUNS_MAX {
        runs.push(dead(&*store, &[&format!("e{n}")]).await.run_id);
    }
    append_one(&*store, new("running")).await;
    let running = claim_one(&*store).await;
    let (last, others) = runs.split_last().expect("there are many");
    for run in others {
        assert!(redrive(&*store, *run).await.changed);
    }
    let action = || ControlAction::Redrive(redrive_request(*last, RedriveTo::Head));
    refused(try_control(&*store, action()).await, ErrorKind::Limit);
    assert_eq!(totals(&*store, "chat").await.dead, 1);
    settle(&*store, &running, SUCCEEDED).await;
    assert!(control(&*store, action()).await.changed, "there is room again");
}
