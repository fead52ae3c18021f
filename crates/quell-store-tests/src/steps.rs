//! Promises about steps: what an attempt has done is remembered under (run, revision, name), given back to a later
//! attempt, and never to another revision; what must not be done twice is never silently done twice.

use quell_core::batch::Batch;
use quell_core::error::ErrorKind;
use quell_core::event::EventId;
use quell_core::limits;
use quell_core::store::{ControlAction, Redrive, RedriveTo, StepAction, StepAnswer, StepRow, Store};
use serde_json::{Value, json};

use crate::World;
use crate::builders::{
    ATTEMPTS, FAILED, LEASE, RELEASE, RETRY, SUCCEEDED, append, append_one, cancel, claim_by, claim_none,
    claim_one, control, erase_event, erase_lane, event, forget, gated, hold_at_head, id, ids, lane, redrive,
    redrive_as_new, redrive_request, refused, secs, settle, step, step_request, sweep,
};
use crate::reads::{assert_moment, health, run_detail};

fn done(value: Value, stored: bool) -> StepAnswer {
    StepAnswer::Done { value, stored }
}

fn finish(value: Value) -> StepAction {
    StepAction::Finish(value)
}

/// One claimed event.
async fn claimed(store: &dyn Store) -> Batch {
    append_one(store, event("chat", "k1").id("a")).await;
    claim_one(store).await
}

/// The steps of a run as they are listed.
async fn steps_of(store: &dyn Store, batch: &Batch) -> Vec<StepRow> {
    run_detail(store, batch.run_id).await.map_or_else(Vec::new, |detail| detail.steps)
}

/// Revision, name and value of each listed step.
fn facts(rows: &[StepRow]) -> Vec<(u32, &str, Option<&Value>)> {
    rows.iter().map(|r| (r.revision, r.name.as_str(), r.value.as_ref())).collect()
}

// Results.

/// Rule 3: the first result stays; whoever comes later in the same attempt is told it.
pub async fn the_first_result_of_a_step_stays(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store).await;
    assert_eq!(step(&*store, &batch, "llm", StepAction::Read).await, StepAnswer::New);
    assert_eq!(step(&*store, &batch, "llm", finish(json!("one"))).await, done(json!("one"), true));
    assert_eq!(step(&*store, &batch, "llm", finish(json!("two"))).await, done(json!("one"), false));
    assert_eq!(step(&*store, &batch, "llm", StepAction::Read).await, done(json!("one"), false));
    assert_eq!(step(&*store, &batch, "llm", StepAction::Begin).await, done(json!("one"), false));
    assert_eq!(step(&*store, &batch, "llm2", StepAction::Read).await, StepAnswer::New, "by its whole name");
}

/// Rule 3: a result is JSON as it was said, also null.
pub async fn a_result_may_be_any_json(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store).await;
    let values = [json!(null), json!({ "b": [1, 2.5, "\u{e9}\u{0}"], "a": null }), json!(""), json!(1e300)];
    for (n, value) in values.iter().enumerate() {
        step(&*store, &batch, &format!("s{n}"), finish(value.clone())).await;
    }
    drop(store);
    let store = world.reopen().await;
    for (n, value) in values.into_iter().enumerate() {
        let told = step(&*store, &batch, &format!("s{n}"), StepAction::Read).await;
        assert_eq!(told, done(value, false));
    }
}

/// Rule 3: a later attempt of the same run gets the result back, however the earlier one ended, also after a restart.
pub async fn a_later_attempt_gets_the_result_back(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store).await;
    step(&*store, &batch, "llm", finish(json!({ "paid": true }))).await;
    settle(&*store, &batch, RETRY).await;
    let batch = claim_one(&*store).await;
    assert_eq!(step(&*store, &batch, "llm", StepAction::Read).await, done(json!({ "paid": true }), false));
    settle(&*store, &batch, RELEASE).await;
    let batch = claim_one(&*store).await;
    assert_eq!(
        step(&*store, &batch, "llm", finish(json!("again"))).await,
        done(json!({ "paid": true }), false)
    );
    world.advance(LEASE + secs(10)).await;
    sweep(&*store).await;
    drop(store);
    let store = world.reopen().await;
    let batch = claim_one(&*store).await;
    assert_eq!(step(&*store, &batch, "llm", StepAction::Read).await, done(json!({ "paid": true }), false));
}

/// Rule 3: steps belong to their run: the next run of the lane starts without any, and so does another lane.
pub async fn another_run_starts_without_steps(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store).await;
    step(&*store, &batch, "llm", finish(json!(1))).await;
    settle(&*store, &batch, SUCCEEDED).await;
    append_one(&*store, event("chat", "k1")).await;
    let next = claim_one(&*store).await;
    assert_eq!(step(&*store, &next, "llm", StepAction::Read).await, StepAnswer::New);
    append_one(&*store, event("chat", "k2")).await;
    let other = claim_one(&*store).await;
    assert_eq!(step(&*store, &other, "llm", StepAction::Read).await, StepAnswer::New);
}

/// Rule 3: a step is conditional on the token: a stale worker records nothing and reads nothing.
pub async fn a_stale_worker_takes_no_steps(world: &dyn World) {
    let store = world.store();
    let stale = claimed(&*store).await;
    world.advance(LEASE + secs(10)).await;
    let batch = claim_one(&*store).await;
    for action in [StepAction::Read, StepAction::Begin, finish(json!("stale"))] {
        refused(store.step(step_request(&stale, "llm", action)).await, ErrorKind::LostLease);
    }
    assert_eq!(step(&*store, &batch, "llm", StepAction::Read).await, StepAnswer::New);
    settle(&*store, &batch, SUCCEEDED).await;
    for action in [StepAction::Read, StepAction::Begin, finish(json!("late"))] {
        refused(store.step(step_request(&batch, "llm", action)).await, ErrorKind::LostLease);
    }
    assert!(steps_of(&*store, &batch).await.is_empty());
}

/// Rule 22: a holder whose lease ran out, and whom nobody has replaced, may still record what it has done.
pub async fn an_expired_lease_that_nobody_took_back_may_still_record_a_step(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store).await;
    world.advance(LEASE * 10).await;
    assert_eq!(step(&*store, &batch, "llm", finish(json!(1))).await, done(json!(1), true));
}

/// Rule 3: a merge raises the revision: older memos are not given back, and stay in the record.
pub async fn a_merge_forgets_the_steps_and_keeps_them_on_record(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a")).await;
    let batch = claim_by(&*store, &gated(3)).await;
    step(&*store, &batch, "llm", finish(json!("about a"))).await;
    append_one(&*store, event("chat", "k1").id("b")).await;
    hold_at_head(&*store, &batch).await;
    let merged = claim_by(&*store, &gated(3)).await;
    assert_eq!((merged.run_id, merged.revision, ids(&merged)), (batch.run_id, 1, vec!["a", "b"]));
    assert_eq!(step(&*store, &merged, "llm", StepAction::Read).await, StepAnswer::New);
    let about = json!("about a and b");
    assert_eq!(step(&*store, &merged, "llm", finish(about.clone())).await, done(about.clone(), true));
    let rows = steps_of(&*store, &merged).await;
    let expected = [(0, "llm", Some(&json!("about a"))), (1, "llm", Some(&about))];
    assert_eq!(facts(&rows), expected);
}

/// Rule 5: the batch of a held run never changes, so its steps stay valid in every later attempt.
pub async fn a_held_run_keeps_its_steps(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a")).await;
    let batch = claim_by(&*store, &gated(3)).await;
    step(&*store, &batch, "llm", finish(json!(1))).await;
    hold_at_head(&*store, &batch).await;
    append_one(&*store, event("chat", "k1").id("b")).await;
    settle(&*store, &batch, RETRY).await;
    let again = claim_by(&*store, &gated(3)).await;
    assert_eq!((again.revision, ids(&again)), (0, vec!["a"]));
    assert_eq!(step(&*store, &again, "llm", StepAction::Read).await, done(json!(1), false));
}

/// Rule 3: a run shows its steps with who recorded them and when.
pub async fn a_run_shows_its_steps(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store).await;
    let now = health(&*store).await.now;
    step(&*store, &batch, "b", finish(json!(2))).await;
    step(&*store, &batch, "a", StepAction::Begin).await;
    step(&*store, &batch, "c", StepAction::Read).await;
    let rows = steps_of(&*store, &batch).await;
    assert_eq!(facts(&rows), [(0, "a", None), (0, "b", Some(&json!(2)))], "a read records nothing");
    for row in &rows {
        assert_eq!(row.token, batch.token);
        assert_moment(world, row.at, now, "when it was recorded");
    }
    settle(&*store, &batch, SUCCEEDED).await;
    assert_eq!(steps_of(&*store, &batch).await, rows, "also after its end");
}

// Intents.

/// Rule 4: the attempt that recorded an intent may repeat the call, and finishes it.
pub async fn the_same_attempt_may_repeat_its_intent(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store).await;
    for _ in 0..2 {
        assert_eq!(step(&*store, &batch, "send", StepAction::Begin).await, StepAnswer::Begun);
    }
    assert_eq!(step(&*store, &batch, "send", StepAction::Read).await, StepAnswer::Begun);
    assert_eq!(step(&*store, &batch, "send", finish(json!("sent"))).await, done(json!("sent"), true));
    assert_eq!(step(&*store, &batch, "send", StepAction::Begin).await, done(json!("sent"), false));
}

/// Rule 4: a later attempt that finds an intent without a result is told that nobody knows, and told so again.
pub async fn an_intent_without_a_result_is_unknown_to_a_later_attempt(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store).await;
    step(&*store, &batch, "send", StepAction::Begin).await;
    world.advance(LEASE + secs(10)).await;
    drop(store);
    let store = world.reopen().await;
    for _ in 1..ATTEMPTS {
        let later = claim_one(&*store).await;
        for action in [StepAction::Begin, StepAction::Read, StepAction::Begin] {
            assert_eq!(step(&*store, &later, "send", action).await, StepAnswer::Unknown);
        }
        world.advance(LEASE + secs(10)).await;
    }
}

/// Rule 4: the handler decides: it may record what it found out, and that result stays.
pub async fn an_unknown_step_may_be_finished_by_a_later_attempt(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store).await;
    step(&*store, &batch, "send", StepAction::Begin).await;
    settle(&*store, &batch, RETRY).await;
    let later = claim_one(&*store).await;
    assert_eq!(step(&*store, &later, "send", StepAction::Begin).await, StepAnswer::Unknown);
    let human = json!({ "asked": "a human" });
    assert_eq!(step(&*store, &later, "send", finish(human.clone())).await, done(human.clone(), true));
    settle(&*store, &later, RETRY).await;
    let last = claim_one(&*store).await;
    assert_eq!(step(&*store, &last, "send", StepAction::Begin).await, done(human, false));
}

/// Rule 4: an intent concerns its own step alone.
pub async fn an_intent_does_not_concern_other_steps(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store).await;
    step(&*store, &batch, "send", StepAction::Begin).await;
    settle(&*store, &batch, RETRY).await;
    let later = claim_one(&*store).await;
    assert_eq!(step(&*store, &later, "sen", StepAction::Begin).await, StepAnswer::Begun);
    assert_eq!(step(&*store, &later, "send2", StepAction::Read).await, StepAnswer::New);
}

// Limits.

/// A step's name is bounded, not empty, and may hold any other text.
pub async fn a_steps_name_is_checked(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store).await;
    let long = "x".repeat(limits::STEP_NAME_BYTES_MAX);
    for bad in ["", "a\0b", &format!("{long}x")] {
        for action in [StepAction::Read, StepAction::Begin, finish(json!(1))] {
            refused(store.step(step_request(&batch, bad, action)).await, ErrorKind::Invalid);
        }
    }
    for good in [long.as_str(), "a/b:c d", "\u{e9}", "'; --"] {
        assert_eq!(step(&*store, &batch, good, finish(json!(good))).await, done(json!(good), true));
    }
}

/// A result over its limit is refused, and nothing is recorded; one at its limit is kept whole.
pub async fn a_result_over_its_limit_is_refused(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store).await;
    let most = json!("x".repeat(limits::STEP_VALUE_BYTES_MAX - 2));
    let over = json!("x".repeat(limits::STEP_VALUE_BYTES_MAX - 1));
    refused(store.step(step_request(&batch, "llm", finish(over))).await, ErrorKind::Limit);
    assert_eq!(step(&*store, &batch, "llm", StepAction::Read).await, StepAnswer::New);
    step(&*store, &batch, "llm", finish(most.clone())).await;
    assert_eq!(step(&*store, &batch, "llm", StepAction::Read).await, done(most, false));
}

/// The steps of a run are bounded; those that are there go on, and another run has its own.
pub async fn a_run_has_a_bounded_number_of_steps(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store).await;
    step(&*store, &batch, "begun", StepAction::Begin).await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 1..limits::STEPS_MAX {
        let (store, request) = (store.clone(), step_request(&batch, &format!("s{n}"), finish(json!(n))));
        tasks.spawn(async move { store.step(request).await });
    }
    for answer in tasks.join_all().await {
        answer.expect("the holder may take steps");
    }
    for action in [StepAction::Begin, finish(json!(1))] {
        refused(store.step(step_request(&batch, "one more", action)).await, ErrorKind::Limit);
    }
    assert_eq!(step(&*store, &batch, "one more", StepAction::Read).await, StepAnswer::New);
    assert_eq!(step(&*store, &batch, "begun", finish(json!(0))).await, done(json!(0), true));
    append_one(&*store, event("chat", "k2")).await;
    step(&*store, &claim_one(&*store).await, "one more", finish(json!(1))).await;
}

// How long steps are kept.

/// Rule 42: steps go with their run: the retention removes them together.
pub async fn the_retention_removes_the_steps_of_a_run(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store).await;
    step(&*store, &batch, "llm", finish(json!(1))).await;
    settle(&*store, &batch, SUCCEEDED).await;
    append_one(&*store, event("chat", "k1").id("b")).await;
    let dead = claim_one(&*store).await;
    step(&*store, &dead, "llm", finish(json!(2))).await;
    settle(&*store, &dead, FAILED).await;
    world.advance(secs(100)).await;
    forget(&*store, secs(200)).await;
    assert_eq!(steps_of(&*store, &batch).await.len(), 1, "younger than the retention");
    forget(&*store, secs(50)).await;
    assert!(run_detail(&*store, batch.run_id).await.is_none());
    assert_eq!(facts(&steps_of(&*store, &dead).await), [(0, "llm", Some(&json!(2)))], "dead letters stay");
}

/// Rule 42: an erased lane or event leaves no steps behind.
pub async fn an_erasure_removes_the_steps(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store).await;
    step(&*store, &batch, "llm", finish(json!("secret"))).await;
    settle(&*store, &batch, SUCCEEDED).await;
    append_one(&*store, event("chat", "k2").id("b")).await;
    let other = claim_one(&*store).await;
    step(&*store, &other, "llm", finish(json!("kept"))).await;
    settle(&*store, &other, SUCCEEDED).await;
    erase_event(&*store, &lane("chat", "k1"), "a").await;
    assert!(steps_of(&*store, &batch).await.is_empty(), "an event's");
    assert_eq!(steps_of(&*store, &other).await.len(), 1, "nobody else's");
    erase_lane(&*store, &lane("chat", "k2")).await;
    assert!(steps_of(&*store, &other).await.is_empty(), "a lane's");
}

// Redrive.

/// A run of these events with a result and an intent, in the dead letter.
async fn dead(store: &dyn Store, events: &[&str]) -> Batch {
    append(store, events.iter().map(|name| event("chat", "k1").id(name))).await;
    let batch = claim_one(store).await;
    step(store, &batch, "llm", finish(json!("paid"))).await;
    step(store, &batch, "send", StepAction::Begin).await;
    settle(store, &batch, FAILED).await;
    batch
}

/// Rule 15: a whole run that is redriven at the head takes its steps along: what was paid for is not paid again.
pub async fn a_whole_redrive_at_the_head_carries_the_steps(world: &dyn World) {
    let store = world.store();
    let old = dead(&*store, &["a", "b"]).await;
    redrive(&*store, old.run_id).await;
    let batch = claim_one(&*store).await;
    assert_ne!(batch.run_id, old.run_id);
    assert_eq!(step(&*store, &batch, "llm", StepAction::Read).await, done(json!("paid"), false));
    assert_eq!(step(&*store, &batch, "send", StepAction::Begin).await, StepAnswer::Unknown);
    step(&*store, &batch, "more", finish(json!(1))).await;
    settle(&*store, &batch, SUCCEEDED).await;
    assert_eq!(steps_of(&*store, &old).await.len(), 2, "the old run keeps its own record");
}

/// Rule 15: a cancelled run that is redriven whole carries its steps just so.
pub async fn a_cancelled_run_carries_its_steps_too(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store).await;
    step(&*store, &batch, "llm", finish(json!("paid"))).await;
    settle(&*store, &batch, RETRY).await;
    cancel(&*store, &lane("chat", "k1")).await;
    redrive(&*store, batch.run_id).await;
    let again = claim_one(&*store).await;
    assert_eq!(step(&*store, &again, "llm", StepAction::Read).await, done(json!("paid"), false));
}

/// Rules 3 and 15: only the latest revision's steps belong to the batch that is redriven.
pub async fn a_redrive_carries_the_steps_of_the_latest_revision(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a")).await;
    let batch = claim_by(&*store, &gated(3)).await;
    step(&*store, &batch, "old", finish(json!("about a"))).await;
    append_one(&*store, event("chat", "k1").id("b")).await;
    hold_at_head(&*store, &batch).await;
    let merged = claim_by(&*store, &gated(3)).await;
    step(&*store, &merged, "new", finish(json!("about both"))).await;
    settle(&*store, &merged, FAILED).await;
    redrive(&*store, merged.run_id).await;
    let again = claim_one(&*store).await;
    assert_eq!(step(&*store, &again, "new", StepAction::Read).await, done(json!("about both"), false));
    assert_eq!(step(&*store, &again, "old", StepAction::Read).await, StepAnswer::New);
    assert_eq!(facts(&steps_of(&*store, &again).await), [(1, "new", Some(&json!("about both")))]);
}

/// Rule 15: with `fresh`, in part, or as new, a redrive starts without steps.
pub async fn any_other_redrive_starts_without_steps(world: &dyn World) {
    let store = world.store();
    let fresh = dead(&*store, &["a", "b"]).await;
    let request = Redrive { fresh: true, ..redrive_request(fresh.run_id, RedriveTo::Head) };
    control(&*store, ControlAction::Redrive(request)).await;
    let without = async |what: &str| {
        let batch = claim_one(&*store).await;
        for name in ["llm", "send"] {
            assert_eq!(
                step(&*store, &batch, name, StepAction::Read).await,
                StepAnswer::New,
                "{what}: {name}"
            );
        }
        settle(&*store, &batch, SUCCEEDED).await;
    };
    without("fresh").await;
    let whole = dead(&*store, &["c", "d"]).await;
    let one: EventId = id("c");
    let request = Redrive { events: vec![one], ..redrive_request(whole.run_id, RedriveTo::Head) };
    control(&*store, ControlAction::Redrive(request)).await;
    without("in part").await;
    redrive(&*store, whole.run_id).await;
    without("what a redrive in part has left").await;
    let new = dead(&*store, &["e"]).await;
    redrive_as_new(&*store, new.run_id).await;
    without("as new").await;
    claim_none(&*store).await;
}
