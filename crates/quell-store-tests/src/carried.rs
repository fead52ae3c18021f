//! Promises about what the end of a run brings along: events that a settle carries, and the notices that tell how a run
//! ended. Both are stored in the transaction that ends the run, wait aside, and enter their lanes once.

use quell_core::batch::Batch;
use quell_core::error::ErrorKind;
use quell_core::event::{LaneKey, NewEvent};
use quell_core::lane::OnFailed;
use quell_core::lifecycle::{Change, RunState};
use quell_core::limits;
use quell_core::outcome::Verdict;
use quell_core::store::{ClaimQueues, ClaimRequest, RunPolicy, SettleRequest, Settled, Store};
use quell_core::totals::Totals;
use serde_json::json;

use crate::World;
use crate::builders::{
    ATTEMPTS, EventBuilder, FAILED, INTERRUPTED, LEASE, RELEASE, RETRY, SUCCEEDED, SUPERSEDED, append,
    append_one, cancel, claim, claim_all, claim_by, claim_none, claim_one, claim_request, event, event_in,
    from_queue, gated, hold_at_head, ids, interrupting, lane, lane_of, notifying, on_failed, policy, redrive,
    refused, secs, settle, settle_after, settle_request, sweep, worker,
};
use crate::reads::{
    assert_moment, changes, event_place, health, run_detail, state_of, totals, totals_of, trail_of,
};

/// One event of the first key, claimed by this policy.
async fn claimed(store: &dyn Store, policy: &RunPolicy) -> Batch {
    append_one(store, event("work", "k1").id("a")).await;
    claim_by(store, policy).await
}

/// The one lane of the queue `work` that is due, by this policy; notices that wait elsewhere are left alone.
async fn claim_work(store: &dyn Store, policy: &RunPolicy) -> Batch {
    let queues = ClaimQueues::Listed(vec![from_queue("work", policy.clone(), 10)]);
    let mut batches = claim(store, ClaimRequest { queues, ..claim_request(&worker("w")) }).await.batches;
    assert_eq!(batches.len(), 1, "exactly one lane of this queue is due");
    batches.remove(0)
}

/// A settle that carries these events.
fn carrying(
    batch: &Batch,
    verdict: Verdict,
    events: impl IntoIterator<Item = EventBuilder>,
) -> SettleRequest {
    let events: Vec<NewEvent> = events.into_iter().map(EventBuilder::build).collect();
    SettleRequest { events, ..settle_request(batch, verdict) }
}

/// Settles with one event for the queue `next`.
async fn settle_carrying(store: &dyn Store, batch: &Batch, verdict: Verdict) -> Settled {
    let request = carrying(batch, verdict, [event("next", "k1").payload(json!("go on"))]);
    store.settle(request).await.expect("the holder may settle")
}

/// The notices of runs of a lane that have not been claimed yet, as JSON, after taking them in.
async fn notices(store: &dyn Store, to: &LaneKey) -> Vec<(String, serde_json::Value)> {
    sweep(store).await;
    let detail = crate::reads::lane_detail(store, to).await;
    let events = detail.map_or_else(Vec::new, |d| d.events);
    let read = |e: &quell_core::event::Event| {
        (e.id.as_str().to_owned(), e.payload.parse().expect("notices are JSON"))
    };
    events.iter().map(read).collect()
}

// What a settle carries.

/// Rule 29: a settle may carry events: they are accepted with the end of the run and enter as `run_id/n`, in order.
pub async fn what_a_settle_carries_enters_under_ids_of_its_run(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &policy()).await;
    let (to, other) = (event("next", "k1"), event("next", "k2"));
    let request = carrying(
        &batch,
        SUCCEEDED,
        [to.clone().payload(json!(1)), other.payload(json!(2)), to.id("ignored").payload(json!(3))],
    );
    assert_eq!(totals(&*store, "next").await, Totals::default(), "nothing before the end");
    store.settle(request).await.expect("the holder may settle");
    let expected = Totals { accepted: 3, delayed: 3, ..Totals::default() };
    assert_eq!(totals(&*store, "next").await, expected);
    let batches = claim_all(&*store).await;
    let id = |n: u32| format!("{}/{n}", batch.run_id);
    assert_eq!(batches.len(), 2);
    assert_eq!(ids(&batches[0]), [id(1), id(3)], "a settle's events have ids of its run, whatever they had");
    assert_eq!(ids(&batches[1]), [id(2)]);
    assert_eq!(batches[0].events[1].payload.as_str(), "3");
}

/// Rule 29: stored in the settle's own transaction, so a restart right after the answer finds them.
pub async fn what_a_settle_carries_survives_a_restart(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &policy()).await;
    settle_carrying(&*store, &batch, SUCCEEDED).await;
    drop(store);
    let store = world.reopen().await;
    assert_eq!(ids(&claim_one(&*store).await), [format!("{}/1", batch.run_id)]);
}

/// Rule 29: a repeated settle, whether its first answer was lost or not, makes no second event of one.
pub async fn what_a_settle_carries_is_stored_once_however_often_it_is_repeated(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &policy()).await;
    assert!(!settle_carrying(&*store, &batch, SUCCEEDED).await.repeated);
    assert!(settle_carrying(&*store, &batch, SUCCEEDED).await.repeated, "while it is aside");
    assert_eq!(totals(&*store, "next").await.accepted, 1);
    let next = claim_one(&*store).await;
    assert!(settle_carrying(&*store, &batch, SUCCEEDED).await.repeated, "while it is in flight");
    settle(&*store, &next, SUCCEEDED).await;
    drop(store);
    let store = world.reopen().await;
    assert!(settle_carrying(&*store, &batch, SUCCEEDED).await.repeated, "after it has ended");
    claim_none(&*store).await;
    let expected = Totals { accepted: 1, succeeded: 1, ..Totals::default() };
    assert_eq!(totals(&*store, "next").await, expected);
}

/// Rule 29: the events belong to the end of the run: an attempt that only ends itself carries nothing.
pub async fn nothing_is_carried_while_the_run_goes_on(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &gated(3)).await;
    assert_eq!(settle_carrying(&*store, &batch, RETRY).await.state, RunState::Retryable);
    let batch = claim_by(&*store, &gated(3)).await;
    assert_eq!(settle_carrying(&*store, &batch, RELEASE).await.state, RunState::Pending);
    let batch = claim_by(&*store, &gated(3)).await;
    append_one(&*store, event("work", "k1").id("b")).await;
    assert_eq!(settle_carrying(&*store, &batch, SUPERSEDED).await.change, Change::Superseded);
    let batch = claim_by(&*store, &gated(3)).await;
    append_one(&*store, event("work", "k1").id("c")).await;
    let late = carrying(&batch, SUCCEEDED, [event("next", "k1")]);
    let late = SettleRequest { if_head: Some(batch.head_seq), ..late };
    assert_eq!(store.settle(late).await.expect("done").change, Change::Superseded);
    let batch = claim_by(&*store, &interrupting(3)).await;
    append_one(&*store, event("work", "k1").id("d")).await;
    assert_eq!(settle_carrying(&*store, &batch, INTERRUPTED).await.change, Change::Interrupted);
    assert_eq!(totals(&*store, "next").await, Totals::default());
    let batch = claim_by(&*store, &gated(3)).await;
    assert_eq!(settle_carrying(&*store, &batch, SUCCEEDED).await.state, RunState::Succeeded);
    assert_eq!(totals(&*store, "next").await.accepted, 1, "the end carries, and only the end");
}

/// Rule 29: a run that is halved has not ended for anybody; its halves carry when they end.
pub async fn a_split_carries_nothing(world: &dyn World) {
    let store = world.store();
    append(&*store, ["a", "b"].map(|id| event("work", "k1").id(id))).await;
    let policy = RunPolicy { max_attempts: 1, ..on_failed(OnFailed::Bisect) };
    let whole = claim_by(&*store, &policy).await;
    assert_eq!(settle_carrying(&*store, &whole, FAILED).await.change, Change::Split);
    assert_eq!(totals(&*store, "next").await, Totals::default());
    let half = claim_by(&*store, &policy).await;
    settle_carrying(&*store, &half, SUCCEEDED).await;
    assert!(event_place(&*store, &lane("next", "k1"), &format!("{}/1", half.run_id)).await.is_some());
    assert_eq!(totals(&*store, "next").await.accepted, 1);
}

/// Rule 29: a run that fails ends too, by its own word or because its attempts are used up.
pub async fn a_failed_run_carries_events_too(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &policy()).await;
    assert_eq!(settle_carrying(&*store, &batch, FAILED).await.state, RunState::Failed);
    assert_eq!(ids(&claim_one(&*store).await), [format!("{}/1", batch.run_id)]);
    append_one(&*store, event("work", "k2")).await;
    let last = claim_by(&*store, &RunPolicy { max_attempts: 1, ..policy() }).await;
    assert_eq!(settle_carrying(&*store, &last, RETRY).await.change, Change::Exhausted);
    assert_eq!(totals(&*store, "next").await.accepted, 2);
}

/// Rule 29: a settle that is refused carries nothing.
pub async fn a_refused_settle_carries_nothing(world: &dyn World) {
    let store = world.store();
    let stale = claimed(&*store, &policy()).await;
    world.advance(LEASE + secs(10)).await;
    let batch = claim_one(&*store).await;
    let follow = || [event("next", "k1")];
    refused(store.settle(carrying(&stale, SUCCEEDED, follow())).await, ErrorKind::LostLease);
    settle(&*store, &batch, SUCCEEDED).await;
    refused(store.settle(carrying(&batch, FAILED, follow())).await, ErrorKind::AlreadySettled);
    let late = store.settle(carrying(&batch, SUCCEEDED, follow())).await.expect("the same answer");
    assert!(late.repeated, "and a repetition adds nothing to what the first settle carried");
    assert_eq!(totals(&*store, "next").await, Totals::default());
}

/// Rule 29: what a settle carries keeps to the limits of an append; over them the run goes on as if nothing was said.
pub async fn a_settle_that_carries_too_much_is_refused_whole(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &policy()).await;
    let many = (0..=limits::CARRIED_EVENTS_MAX).map(|_| event("next", "k1"));
    refused(store.settle(carrying(&batch, SUCCEEDED, many)).await, ErrorKind::Limit);
    let big = event("next", "k1").payload_bytes(10).payload(json!("more than ten bytes"));
    refused(store.settle(carrying(&batch, SUCCEEDED, [event("next", "k1"), big])).await, ErrorKind::Limit);
    assert_eq!(state_of(&*store, &lane("work", "k1"), "a").await, Some(RunState::Running));
    assert_eq!(totals(&*store, "next").await, Totals::default());
    let most = (0..limits::CARRIED_EVENTS_MAX).map(|_| event("next", "k1"));
    store.settle(carrying(&batch, SUCCEEDED, most)).await.expect("the most that is allowed");
}

/// Rule 29: a carried event may be delayed, and may be for the run's own lane.
pub async fn a_carried_event_may_be_delayed_and_for_its_own_lane(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &policy()).await;
    append_one(&*store, event("work", "k1").id("b")).await;
    let own = event_in(batch.lane.clone());
    let request = carrying(&batch, SUCCEEDED, [own.clone().delay(30), own]);
    store.settle(request).await.expect("the holder may settle");
    let next = claim_one(&*store).await;
    let id = |n: u32| format!("{}/{n}", batch.run_id);
    assert_eq!(ids(&next), ["b".to_owned(), id(2)], "behind what waited");
    settle(&*store, &next, SUCCEEDED).await;
    claim_none(&*store).await;
    world.advance(secs(35)).await;
    assert_eq!(ids(&claim_one(&*store).await), [id(1)]);
}

/// Rule 23: the id of a carried event is known from the settle on.
pub async fn an_append_with_the_id_of_a_carried_event_is_its_duplicate(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &policy()).await;
    settle_carrying(&*store, &batch, SUCCEEDED).await;
    let known = event("next", "k1").id(&format!("{}/1", batch.run_id));
    let told = append(&*store, [known.clone().payload(json!("go on"))]).await.remove(0);
    assert_eq!((told.duplicate, told.seq), (true, None));
    let answer = crate::builders::try_append(&*store, [known.payload(json!("other"))]).await;
    refused(answer, ErrorKind::Conflict);
}

/// Rule 28: dedupe happens at the move: an event whose id is already in its lane is dropped, recorded and counted.
pub async fn a_carried_event_that_is_already_in_its_lane_is_dropped_and_recorded(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &policy()).await;
    let known = event("next", "k1").id(&format!("{}/1", batch.run_id)).payload(json!("go on"));
    let first = append_one(&*store, known.fixed(500)).await;
    settle_carrying(&*store, &batch, SUCCEEDED).await;
    assert_eq!(totals(&*store, "next").await.delayed, 1);
    sweep(&*store).await;
    let expected = Totals { accepted: 2, buffered: 1, discarded: 1, ..Totals::default() };
    assert_eq!(totals(&*store, "next").await, expected);
    let trail = trail_of(&*store, "next", "k1").await;
    assert_eq!(changes(&trail), [Change::DuplicateDropped]);
    assert_eq!(Some(trail[0].upto_seq), first.seq, "the record names the event that was there first");
}

/// Rule 28: a conflict at the move has no sender to be told: the event becomes a dead letter that says why.
pub async fn a_carried_event_that_conflicts_becomes_a_dead_letter(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &policy()).await;
    let id = format!("{}/1", batch.run_id);
    append_one(&*store, event("next", "k1").id(&id).payload(json!("mine")).fixed(500)).await;
    settle_carrying(&*store, &batch, SUCCEEDED).await;
    sweep(&*store).await;
    let expected = Totals { accepted: 2, buffered: 1, dead: 1, ..Totals::default() };
    assert_eq!(totals(&*store, "next").await, expected);
    let trail = trail_of(&*store, "next", "k1").await;
    assert_eq!(changes(&trail), [Change::ConflictBuried]);
    let run = trail[0].run.expect("it has a run of its own");
    let dead = run_detail(&*store, run).await.expect("dead letters are kept");
    assert_eq!((dead.row.state, dead.row.events), (RunState::Failed, 1));
    assert_eq!(dead.list[0].payload.as_str(), "\"go on\"", "nothing of it is lost");
    let error = dead.row.error.expect("it says why");
    assert!(error.contains(&id) && error.contains("another payload"), "{error}");
    let first = event_place(&*store, &lane("next", "k1"), &id).await.expect("the first is untouched");
    assert_eq!(first.event.payload.as_str(), "\"mine\"");
    redrive(&*store, run).await;
    assert_eq!(claim_one(&*store).await.events[0].payload.as_str(), "\"go on\"", "an operator may let it in");
}

// Notices.

/// Rule 29: the end of a run is told once, by an event with the facts, to the same tenant and key of the named queue.
pub async fn the_end_of_a_run_is_told_once_with_its_facts(world: &dyn World) {
    let store = world.store();
    append(&*store, [event("work", "k1").of("acme"), event("work", "k1").of("acme")]).await;
    let policy = notifying("told", &[RunState::Succeeded]);
    settle(&*store, &claim_by(&*store, &policy).await, RETRY).await;
    let batch = claim_by(&*store, &policy).await;
    let result = json!({ "answer": 42 });
    let request = SettleRequest { result: Some(result.clone()), ..settle_request(&batch, SUCCEEDED) };
    let now = health(&*store).await.now;
    store.settle(request.clone()).await.expect("done");
    assert!(store.settle(request).await.expect("the same answer").repeated);
    let mut told = notices(&*store, &lane_of("acme", "told", "k1")).await;
    assert_eq!(told.len(), 1, "told once: {told:?}");
    let (id, mut notice) = told.remove(0);
    assert_eq!(id, format!("{}/notify", batch.run_id));
    let at = serde_json::from_value(notice["completed_at"].take()).expect("a moment");
    assert_moment(world, at, now, "completed_at");
    let expected = json!({
        "run_id": batch.run_id, "tenant": "acme", "queue": "work", "key": "k1", "state": "succeeded",
        "attempts": 2, "events": 2, "completed_at": null, "result": result,
    });
    assert_eq!(notice, expected);
    assert_eq!(totals_of(&*store, "acme", "told").await.accepted, 1);
}

/// Rule 29: a failed run is told with its error; states that nobody asked about are not told.
pub async fn only_the_states_that_were_asked_for_are_told(world: &dyn World) {
    let store = world.store();
    let policy = notifying("told", &[RunState::Failed]);
    let batch = claimed(&*store, &policy).await;
    settle_after(&*store, &batch, RETRY, secs(0)).await;
    settle(&*store, &claim_by(&*store, &policy).await, SUCCEEDED).await;
    append_one(&*store, event("work", "k1")).await;
    settle(&*store, &claim_by(&*store, &policy).await, RELEASE).await;
    let batch = claim_by(&*store, &policy).await;
    let request = SettleRequest { error: Some("no such page".into()), ..settle_request(&batch, FAILED) };
    store.settle(request).await.expect("done");
    let told = notices(&*store, &lane("told", "k1")).await;
    assert_eq!(told.len(), 1, "{told:?}");
    let notice = &told[0].1;
    assert_eq!((&notice["run_id"], &notice["state"]), (&json!(batch.run_id), &json!("failed")));
    assert_eq!(notice["error"], "no such page");
}

/// Rule 29: whom to tell is stamped by the claim, so a sweep that finds the run dead tells it too.
pub async fn a_run_whose_last_lease_expired_is_told_by_the_sweep(world: &dyn World) {
    let store = world.store();
    let policy = notifying("told", &[RunState::Failed]);
    append_one(&*store, event("work", "k1")).await;
    let mut run = None;
    for _ in 0..ATTEMPTS {
        run = Some(claim_by(&*store, &policy).await.run_id);
        world.advance(LEASE + secs(10)).await;
        sweep(&*store).await;
    }
    sweep(&*store).await;
    let told = notices(&*store, &lane("told", "k1")).await;
    assert_eq!(told.len(), 1, "told once: {told:?}");
    assert_eq!(told[0].1["run_id"], json!(run));
    assert_eq!((&told[0].1["state"], &told[0].1["error"]), (&json!("failed"), &json!("lease expired")));
}

/// Rule 29: an operator's cancel is an end like any other, also when the run waits between two attempts.
pub async fn a_cancelled_run_is_told_where_that_is_asked_for(world: &dyn World) {
    let store = world.store();
    let policy = notifying("told", &[RunState::Cancelled]);
    let held = claimed(&*store, &policy).await;
    cancel(&*store, &held.lane).await;
    assert_eq!(totals(&*store, "told").await.accepted, 0, "asking a holder ends nothing yet");
    settle(&*store, &held, FAILED).await;
    append_one(&*store, event("work", "k2")).await;
    let waiting = claim_work(&*store, &policy).await;
    settle_after(&*store, &waiting, RETRY, secs(100)).await;
    cancel(&*store, &waiting.lane).await;
    for batch in [held, waiting] {
        let to = LaneKey { queue: crate::builders::queue("told"), ..batch.lane.clone() };
        let told = notices(&*store, &to).await;
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!((&told[0].1["run_id"], &told[0].1["state"]), (&json!(batch.run_id), &json!("cancelled")));
    }
    assert_eq!(totals(&*store, "told").await.accepted, 2);
}

/// Rule 29: a run that was halved, and one whose events were taken in by another, have not ended for anybody.
pub async fn split_parents_and_merged_runs_are_not_told(world: &dyn World) {
    let store = world.store();
    let all = [RunState::Succeeded, RunState::Failed, RunState::Cancelled];
    let notify = notifying("told", &all).notify;
    append(&*store, ["a", "b"].map(|id| event("work", "k1").id(id))).await;
    let bisect = RunPolicy { max_attempts: 1, notify: notify.clone(), ..on_failed(OnFailed::Bisect) };
    let mut ends = Vec::new();
    settle(&*store, &claim_work(&*store, &bisect).await, FAILED).await;
    for verdict in [SUCCEEDED, FAILED] {
        let half = claim_work(&*store, &bisect).await;
        settle(&*store, &half, verdict).await;
        ends.push(format!("{}/notify", half.run_id));
    }
    let gate = RunPolicy { notify, ..gated(3) };
    append_one(&*store, event("work", "k1").id("c")).await;
    let first = claim_work(&*store, &gate).await;
    append_one(&*store, event("work", "k1").id("d")).await;
    hold_at_head(&*store, &first).await;
    let merged = claim_work(&*store, &gate).await;
    assert_eq!(ids(&merged), ["c", "d"]);
    settle(&*store, &merged, SUCCEEDED).await;
    ends.push(format!("{}/notify", merged.run_id));
    let told: Vec<String> = notices(&*store, &lane("told", "k1")).await.into_iter().map(|n| n.0).collect();
    assert_eq!(told, ends, "each half and the merged run, nothing else");
}

/// Rule 29: notices are never told of themselves: not in the queue that they go to, and not around a circle of queues.
pub async fn a_run_of_notices_is_never_told(world: &dyn World) {
    let store = world.store();
    let all = [RunState::Succeeded, RunState::Failed, RunState::Cancelled];
    settle(&*store, &claimed(&*store, &notifying("told", &all)).await, SUCCEEDED).await;
    let notice = claim_by(&*store, &notifying("told", &all)).await;
    assert_eq!(notice.lane, lane("told", "k1"));
    settle(&*store, &notice, SUCCEEDED).await;
    claim_none(&*store).await;
    append_one(&*store, event("work", "k2")).await;
    settle(&*store, &claim_by(&*store, &notifying("told", &all)).await, SUCCEEDED).await;
    let back = notifying("work", &all);
    let notice = claim_by(&*store, &back).await;
    assert_eq!(notice.lane, lane("told", "k2"));
    settle_after(&*store, &notice, RETRY, secs(0)).await;
    settle(&*store, &claim_by(&*store, &back).await, FAILED).await;
    claim_none(&*store).await;
    assert_eq!(totals(&*store, "work").await.accepted, 2, "nothing came back around the circle");
    append_one(&*store, event("told", "k2").id("own work")).await;
    let own = claim_by(&*store, &back).await;
    settle(&*store, &own, SUCCEEDED).await;
    assert_eq!(ids(&claim_one(&*store).await), [format!("{}/notify", own.run_id)], "other work is told");
    append_one(&*store, event("told", "k3").id("own work")).await;
    settle(&*store, &claim_by(&*store, &notifying("told", &all)).await, SUCCEEDED).await;
    assert!(notices(&*store, &lane("told", "k3")).await.is_empty(), "but not to the queue that it is in");
}

/// Rule 29: the claim stamps whom to tell: the latest one counts, as with every other setting.
pub async fn the_latest_claim_says_who_is_told(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &notifying("told", &[RunState::Succeeded])).await;
    settle(&*store, &batch, RETRY).await;
    settle(&*store, &claim_by(&*store, &notifying("news", &[RunState::Succeeded])).await, SUCCEEDED).await;
    assert_eq!((totals(&*store, "told").await.accepted, totals(&*store, "news").await.accepted), (0, 1));
    append_one(&*store, event("work", "k2")).await;
    settle(&*store, &claim_work(&*store, &policy()).await, SUCCEEDED).await;
    assert_eq!((totals(&*store, "told").await.accepted, totals(&*store, "news").await.accepted), (0, 1));
}
