//! Promises about events that arrive while a run is processed: the gate before an effect, the request to stop, giving
//! way to newer events, and what a retry takes in.
//!
//! The rules meet in one place: a run that gives way stays the same run and takes the newer events in when it is claimed
//! again, so every promise here ends with a look at the next batch.

use std::sync::Arc;

use quell_core::batch::Batch;
use quell_core::error::ErrorKind;
use quell_core::lifecycle::{Change, RunState};
use quell_core::outcome::Verdict;
use quell_core::store::{
    ClaimQueue, ClaimQueues, ClaimRequest, ControlAction, HoldAnswer, RunPolicy, SettleRequest, Settled,
    Store,
};
use quell_core::totals::Totals;
use quell_core::window::{FiredBy, Window};

use crate::World;
use crate::builders::{
    ATTEMPTS, EventBuilder, FAILED, INTERRUPTED, LEASE, RELEASE, RETRY, SUCCEEDED, SUPERSEDED, append,
    append_one, claim, claim_by, claim_none, claim_request_by, control, event, extend, from_queue, gated,
    hold, hold_at_head, hold_request, ids, interrupting, lane, policy, refused, retry_newer, secs, seq_of,
    seqs, settle, settle_after, settle_request, sweep, tenant, try_settle, worker,
};
use crate::reads::{
    assert_moment, changes, event_place, lane_detail, lane_row, run_detail, totals, trail_of,
};

/// An event of the one key that these promises need.
fn new(id: &str) -> EventBuilder {
    event("chat", "k1").id(id)
}

/// The first event of the key, claimed by this policy.
async fn claimed(store: &dyn Store, policy: &RunPolicy) -> Batch {
    append_one(store, new("a")).await;
    claim_by(store, policy).await
}

/// Succeeds only if nothing arrived since the claim.
async fn settle_at_head(store: &dyn Store, batch: &Batch) -> Settled {
    let request = SettleRequest { if_head: Some(batch.head_seq), ..settle_request(batch, SUCCEEDED) };
    store.settle(request).await.expect("the holder may settle")
}

// The gate: rules 5 and 6.

/// Rule 5: after `held` the batch is frozen; newer events neither interrupt nor supersede it, whatever the holder says.
pub async fn after_held_nothing_makes_the_run_give_way(world: &dyn World) {
    let store = world.store();
    let policy = interrupting(3);
    let mut batch = claimed(&*store, &policy).await;
    assert_eq!(hold(&*store, &batch).await, HoldAnswer::Held);
    append_one(&*store, new("b")).await;
    let beat = extend(&*store, &batch, LEASE).await;
    assert_eq!((beat.newer, beat.interrupt), (1, false), "it is behind, but nobody asks it to stop");
    for verdict in [INTERRUPTED, SUPERSEDED] {
        let settled = settle(&*store, &batch, verdict).await;
        assert_eq!((settled.state, settled.change), (RunState::Retryable, Change::Retried), "{verdict:?}");
        batch = claim_by(&*store, &policy).await;
        assert_eq!((ids(&batch), batch.revision), (vec!["a"], 0), "{verdict:?}");
    }
    assert_eq!(batch.attempt, 3, "none of it was refunded");
}

/// Rule 5: one atomic step answers `superseded`; the attempt is over with it.
pub async fn the_gate_ends_the_attempt_when_something_newer_arrived(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &gated(3)).await;
    append_one(&*store, new("b")).await;
    let held = store.hold(hold_request(&batch, Some(batch.head_seq))).await.expect("the holder may ask");
    assert_eq!((held.answer, held.state), (HoldAnswer::Superseded, RunState::Pending));
    refused(try_settle(&*store, &batch, SUCCEEDED).await, ErrorKind::AlreadySettled);
    let next = claim_by(&*store, &gated(3)).await;
    assert_eq!((next.run_id, ids(&next), next.attempt), (batch.run_id, vec!["a", "b"], 1));
    let told = changes(&trail_of(&*store, "chat", "k1").await);
    assert_eq!(told, [Change::Claimed, Change::Superseded, Change::Merged, Change::Claimed]);
}

/// Rule 5: at the gate an asked-for stop is answered `interrupted`, and the attempt is over.
pub async fn the_gate_tells_a_holder_that_it_was_interrupted(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &interrupting(3)).await;
    append_one(&*store, new("b")).await;
    assert_eq!(hold(&*store, &batch).await, HoldAnswer::Interrupted, "also without a condition on the head");
    let next = claim_by(&*store, &interrupting(3)).await;
    assert_eq!((ids(&next), next.attempt, next.revision), (vec!["a", "b"], 1, 1));
}

/// Rule 5: the gate passes when nothing newer arrived; what arrives afterwards belongs to the next run.
pub async fn what_arrives_after_held_waits_for_the_next_run(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &gated(3)).await;
    assert_eq!(hold_at_head(&*store, &batch).await, HoldAnswer::Held);
    append_one(&*store, new("b")).await;
    assert_eq!(settle(&*store, &batch, SUCCEEDED).await.state, RunState::Succeeded);
    let next = claim_by(&*store, &gated(3)).await;
    assert_eq!((ids(&next), next.revision), (vec!["b"], 0));
    assert_ne!(next.run_id, batch.run_id);
}

/// Rule 5: without a condition the gate of a gated run always passes.
pub async fn a_gate_without_condition_passes_whatever_arrived(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &gated(3)).await;
    append_one(&*store, new("b")).await;
    assert_eq!(hold(&*store, &batch).await, HoldAnswer::Held);
}

/// Rule 5: repeated calls get the same answer, also after a restart and when somebody else holds the lane by then.
pub async fn a_repeated_hold_gets_the_same_answer(world: &dyn World) {
    let store = world.store();
    let policies = [("k1", gated(3)), ("k2", gated(3)), ("k3", interrupting(3))];
    let mut asked = Vec::new();
    for (key, policy) in &policies {
        append_one(&*store, event("chat", key)).await;
        asked.push(claim_by(&*store, policy).await);
        if *key != "k1" {
            append_one(&*store, event("chat", key).fixed(900)).await;
        }
    }
    let answers = [HoldAnswer::Held, HoldAnswer::Superseded, HoldAnswer::Interrupted];
    drop(store);
    for round in 0..4 {
        let store = world.store();
        for (batch, answer) in asked.iter().zip(answers) {
            let told = hold_at_head(&*store, batch).await;
            assert_eq!(told, answer, "{} in round {round}", batch.lane);
        }
        match round {
            0 => world.advance(secs(15)).await,
            1 => {
                drop(store);
                world.reopen().await;
            }
            2 => {
                for key in ["k2", "k3"] {
                    control(&*store, ControlAction::Flush(lane("chat", key))).await;
                }
                assert_eq!(crate::builders::claim_all(&*store).await.len(), 2, "both are held again");
            }
            _ => {}
        }
    }
    let store = world.store();
    let told = changes(&trail_of(&*store, "chat", "k1").await);
    assert_eq!(told, [Change::Claimed, Change::Held], "one record, however often it was asked");
}

/// Rule 5: only the holder passes the gate.
pub async fn a_stale_worker_does_not_pass_the_gate(world: &dyn World) {
    let store = world.store();
    let stale = claimed(&*store, &interrupting(3)).await;
    world.advance(secs(65)).await;
    let heir = claim_by(&*store, &interrupting(3)).await;
    refused(store.hold(hold_request(&stale, None)).await, ErrorKind::LostLease);
    append_one(&*store, new("b")).await;
    assert!(extend(&*store, &heir, LEASE).await.interrupt, "the heir was not frozen by the stale call");
    settle(&*store, &heir, SUCCEEDED).await;
    refused(store.hold(hold_request(&heir, None)).await, ErrorKind::AlreadySettled);
}

/// Rule 5: retries, hand-backs and crashes of a held run repeat its batch and its revision.
pub async fn every_later_attempt_of_a_held_run_repeats_batch_and_revision(world: &dyn World) {
    let store = world.store();
    let policy = RunPolicy { max_attempts: 10, ..gated(3) };
    let first = claimed(&*store, &policy).await;
    append_one(&*store, new("b")).await;
    assert_eq!(hold_at_head(&*store, &first).await, HoldAnswer::Superseded);
    let held = claim_by(&*store, &policy).await;
    assert_eq!((ids(&held), held.revision), (vec!["a", "b"], 1));
    assert_eq!(hold_at_head(&*store, &held).await, HoldAnswer::Held);
    append_one(&*store, new("c")).await;
    let mut batch = held.clone();
    for round in 0..3 {
        match [RETRY, RELEASE].get(round) {
            Some(verdict) => assert_ne!(settle(&*store, &batch, *verdict).await.state, RunState::Failed),
            None => world.advance(secs(65)).await,
        }
        batch = claim_by(&*store, &policy).await;
        assert_eq!((seqs(&batch), batch.revision), (seqs(&held), 1), "round {round}");
        assert_eq!(hold_at_head(&*store, &batch).await, HoldAnswer::Held, "it was held before");
    }
}

/// Rule 5: settle ignores `if_head` once the run is held.
pub async fn settle_of_a_held_run_ignores_if_head(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &gated(3)).await;
    assert_eq!(hold_at_head(&*store, &batch).await, HoldAnswer::Held);
    append_one(&*store, new("b")).await;
    let settled = settle_at_head(&*store, &batch).await;
    assert_eq!((settled.state, settled.change), (RunState::Succeeded, Change::Succeeded));
}

/// Rule 6: `if_head` is the lane's head at the claim, not the end of the batch: what was left over is not newer.
pub async fn if_head_is_the_head_at_the_claim(world: &dyn World) {
    let store = world.store();
    append(&*store, ["a", "b", "c"].map(|id| new(id).max_events(2))).await;
    let batch = claim_by(&*store, &gated(3)).await;
    assert!(batch.head_seq > batch.hi(), "one is left over");
    assert_eq!(hold_at_head(&*store, &batch).await, HoldAnswer::Held);
}

/// Rule 6 and 10: what waited before the claim is not newer either, when the last allowed attempt did not take it in.
pub async fn what_waited_before_the_claim_supersedes_nothing(world: &dyn World) {
    let store = world.store();
    let policy = RunPolicy { max_attempts: 2, ..gated(3) };
    let first = claimed(&*store, &policy).await;
    append_one(&*store, new("b")).await;
    settle(&*store, &first, RETRY).await;
    let last = claim_by(&*store, &policy).await;
    assert_eq!(ids(&last), ["a"]);
    assert_eq!(hold_at_head(&*store, &last).await, HoldAnswer::Held);
}

/// Rule 6: a batch at its count or byte bound is never superseded or interrupted: it could not take anything in. That
/// holds, too, when the bound is not met exactly but something was left over.
pub async fn a_full_batch_never_gives_way(world: &dyn World) {
    let store = world.store();
    let bounds = [
        (Window::none().max_events(2), 2),
        (Window::none().max_bytes(20), 2),
        (Window::none().max_bytes(25), 3),
    ];
    for (window, events) in bounds {
        let ten_bytes = || event("chat", "k1").window(window).raw("\"12345678\"");
        for policy in [gated(3), interrupting(3)] {
            append(&*store, (0..events).map(|_| ten_bytes())).await;
            let batch = claim_by(&*store, &policy).await;
            assert_eq!(batch.events.len(), 2);
            append_one(&*store, ten_bytes()).await;
            assert!(!extend(&*store, &batch, LEASE).await.interrupt, "{window:?}");
            assert_eq!(settle_at_head(&*store, &batch).await.change, Change::Succeeded, "{window:?}");
            let rest = claim_by(&*store, &policy).await;
            assert_eq!(rest.events.len(), events - 1);
            settle(&*store, &rest, SUCCEEDED).await;
        }
    }
}

// Being asked to stop: rules 7 and 8.

/// Rule 7: an append only asks; the lane stays leased and the batch as it is until the holder acknowledges.
pub async fn an_append_only_asks_the_holder_to_stop(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &interrupting(3)).await;
    assert!(!extend(&*store, &batch, LEASE).await.interrupt);
    let newer = append_one(&*store, new("b")).await;
    let beat = extend(&*store, &batch, LEASE).await;
    assert_eq!((beat.head_seq, beat.newer, beat.interrupt, beat.cancel), (seq_of(&newer), 1, true, false));
    claim_none(&*store).await;
    let detail = lane_detail(&*store, &batch.lane).await.expect("it is running");
    assert_eq!((detail.row.state, detail.row.token), (Some(RunState::Running), Some(batch.token)));
    assert!(detail.waiting.interrupting);
    let run = run_detail(&*store, batch.run_id).await.expect("it is running");
    assert_eq!((run.row.events, run.row.revision), (1, 0));
    assert_eq!(changes(&trail_of(&*store, "chat", "k1").await), [Change::Claimed], "asking is no transition");
}

/// Rule 7: the holder's acknowledgement merges and refunds in one step.
pub async fn an_acknowledged_interrupt_merges_and_refunds(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &interrupting(3)).await;
    append(&*store, [new("b"), new("c")]).await;
    let settled = settle_after(&*store, &batch, INTERRUPTED, secs(500)).await;
    assert_eq!((settled.state, settled.change), (RunState::Pending, Change::Interrupted));
    let before = Totals { accepted: 3, in_flight: 1, buffered: 2, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, before);
    let next = claim_by(&*store, &interrupting(3)).await;
    assert_eq!((next.run_id, ids(&next)), (batch.run_id, vec!["a", "b", "c"]), "no delay applies");
    assert_eq!((next.attempt, next.revision, next.retries), (1, 1, 0));
    assert_eq!(next.fired_by, FiredBy::Merge);
    assert_eq!(next.first_at, batch.first_at);
    let row = run_detail(&*store, batch.run_id).await.expect("it is running").row;
    assert_eq!((row.claims, row.attempts, row.interrupts), (2, 1, 1));
    assert_eq!(totals(&*store, "chat").await, Totals { accepted: 3, in_flight: 3, ..Totals::default() });
}

/// Rule 7: a holder that is done before it heard of the request has still succeeded.
pub async fn a_holder_that_was_asked_to_stop_may_still_succeed(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &interrupting(3)).await;
    append_one(&*store, new("b")).await;
    assert_eq!(settle(&*store, &batch, SUCCEEDED).await.change, Change::Succeeded);
    let next = claim_by(&*store, &interrupting(3)).await;
    assert_eq!((ids(&next), next.revision), (vec!["b"], 0));
}

/// Rule 7: if the holder dies instead, the batch is merged too, but its attempt counts.
pub async fn a_holder_that_dies_after_an_interrupt_is_merged_and_its_attempt_counts(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &interrupting(3)).await;
    append_one(&*store, new("b")).await;
    world.advance(secs(65)).await;
    assert_eq!(sweep(&*store).await.reclaimed.len(), 1);
    let next = claim_by(&*store, &interrupting(3)).await;
    assert_eq!((next.run_id, ids(&next)), (batch.run_id, vec!["a", "b"]));
    assert_eq!((next.attempt, next.revision), (2, 1));
    assert!(!extend(&*store, &next, LEASE).await.interrupt, "the request ended with its holder");
}

/// Rule 7: an acknowledgement that nobody asked for is a retry, so a handler cannot loop for free.
pub async fn interrupted_without_being_asked_is_a_retry(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &interrupting(3)).await;
    let settled = settle_after(&*store, &batch, INTERRUPTED, secs(30)).await;
    assert_eq!((settled.state, settled.change), (RunState::Retryable, Change::Retried));
    claim_none(&*store).await;
    world.advance(secs(35)).await;
    assert_eq!(claim_by(&*store, &interrupting(3)).await.attempt, 2);
}

/// Rule 7: a run that was interrupted `max_interrupts` times is not asked again: it acts as `queue` (rule 8).
pub async fn interrupts_are_bounded_and_then_events_queue(world: &dyn World) {
    let store = world.store();
    let policy = interrupting(2);
    let mut batch = claimed(&*store, &policy).await;
    for round in 1..=2u32 {
        append_one(&*store, new(&format!("n{round}"))).await;
        assert!(extend(&*store, &batch, LEASE).await.interrupt, "round {round}");
        settle(&*store, &batch, INTERRUPTED).await;
        batch = claim_by(&*store, &policy).await;
        assert_eq!((batch.attempt, batch.revision), (1, round));
    }
    append_one(&*store, new("last")).await;
    assert!(!extend(&*store, &batch, LEASE).await.interrupt);
    assert_eq!(hold_at_head(&*store, &batch).await, HoldAnswer::Held, "if_head is ignored from now on");
    settle(&*store, &batch, SUCCEEDED).await;
    assert_eq!(ids(&claim_by(&*store, &policy).await), ["last"]);
}

/// Rule 8: after giving way the window re-opens measured from the first newer event, whatever its kind; so the total
/// wait is bounded by one window per interrupt.
pub async fn the_window_reopens_from_the_first_newer_event(world: &dyn World) {
    let store = world.store();
    // Each newer event comes 10 s after the claim and one more 20 s later; the cap ends before the second silence does.
    let windows = [(Window::fixed(secs(40)), 40), (Window::quiet_capped(secs(40), secs(50)), 50)];
    for (round, (window, wait)) in windows.into_iter().enumerate() {
        let key = format!("k{round}");
        append_one(&*store, event("chat", &key).id("a")).await;
        let batch = claim_by(&*store, &interrupting(3)).await;
        world.advance(secs(10)).await;
        let first = append_one(&*store, event("chat", &key).id("b").window(window)).await;
        world.advance(secs(20)).await;
        let settled = settle(&*store, &batch, INTERRUPTED).await;
        assert_eq!(settled.next_at, first.due_at, "its own window, running since it came");
        append_one(&*store, event("chat", &key).id("c").window(window)).await;
        let due = lane_row(&*store, &batch.lane).await.and_then(|row| row.due_at);
        let expected = batch.claimed_at.after(secs(10 + wait));
        assert_moment(world, due.expect("it waits"), expected, "one window after the first newer event");
        world.advance(secs(wait - 30)).await;
        claim_none(&*store).await;
        world.advance(secs(20)).await;
        let next = claim_by(&*store, &interrupting(3)).await;
        assert_eq!((ids(&next), next.revision), (vec!["a", "b", "c"], 1), "{window:?}");
        settle(&*store, &next, SUCCEEDED).await;
    }
}

/// Rule 8: with the supersedes used up `if_head` is ignored, at the gate and at the end.
pub async fn supersedes_are_bounded_and_then_if_head_is_ignored(world: &dyn World) {
    let store = world.store();
    let mut batch = claimed(&*store, &gated(1)).await;
    append_one(&*store, new("b")).await;
    assert_eq!(hold_at_head(&*store, &batch).await, HoldAnswer::Superseded);
    batch = claim_by(&*store, &gated(1)).await;
    append_one(&*store, new("c")).await;
    assert_eq!(settle_at_head(&*store, &batch).await.change, Change::Succeeded);
    let next = claim_by(&*store, &gated(1)).await;
    assert_eq!((ids(&next), next.run_id != batch.run_id), (vec!["c"], true));
    append_one(&*store, new("d")).await;
    let told = hold_at_head(&*store, &next).await;
    assert_eq!(told, HoldAnswer::Superseded, "the bound is per run");
}

// Giving way at the end: rule 9.

/// Rule 9: with newer events `superseded` merges and refunds, by the holder's own word or by its condition.
pub async fn superseded_with_newer_events_merges_and_refunds(world: &dyn World) {
    let store = world.store();
    for (key, by_condition) in [("k1", false), ("k2", true)] {
        append_one(&*store, event("chat", key).id("a")).await;
        let batch = claim_by(&*store, &gated(3)).await;
        append_one(&*store, event("chat", key).id("b")).await;
        let settled = match by_condition {
            true => settle_at_head(&*store, &batch).await,
            false => settle(&*store, &batch, SUPERSEDED).await,
        };
        assert_eq!((settled.state, settled.change), (RunState::Pending, Change::Superseded));
        let next = claim_by(&*store, &gated(3)).await;
        assert_eq!((next.run_id, ids(&next), next.attempt), (batch.run_id, vec!["a", "b"], 1));
        if by_condition {
            let again = settle_at_head(&*store, &batch).await;
            assert!(again.repeated, "the answer is remembered under what was asked");
            assert_eq!((again.state, again.change), (settled.state, settled.change));
        }
    }
    assert_eq!(totals(&*store, "chat").await.succeeded, 0);
}

/// Rule 9: `superseded` with nothing newer is a retry: it waits and counts.
pub async fn superseded_without_newer_events_is_a_retry(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &gated(3)).await;
    let settled = settle_after(&*store, &batch, SUPERSEDED, secs(30)).await;
    assert_eq!((settled.state, settled.change), (RunState::Retryable, Change::Retried));
    world.advance(secs(25)).await;
    claim_none(&*store).await;
    world.advance(secs(10)).await;
    let next = claim_by(&*store, &gated(3)).await;
    assert_eq!((next.attempt, next.retries, next.revision), (2, 1, 0));
}

/// Rule 9: with the supersedes used up `superseded` is a retry, so that a busy key cannot keep a run for ever; the last
/// attempt fails.
pub async fn superseded_too_often_is_a_retry(world: &dyn World) {
    let store = world.store();
    let policy = gated(1);
    let mut batch = claimed(&*store, &policy).await;
    append_one(&*store, new("n0")).await;
    assert_eq!(settle(&*store, &batch, SUPERSEDED).await.change, Change::Superseded);
    for attempt in 1..=ATTEMPTS {
        batch = claim_by(&*store, &policy).await;
        assert_eq!(batch.attempt, attempt);
        append_one(&*store, new(&format!("n{attempt}"))).await;
        let settled = settle(&*store, &batch, SUPERSEDED).await;
        let expected = if attempt == ATTEMPTS { Change::Exhausted } else { Change::Retried };
        assert_eq!(settled.change, expected);
    }
    assert_eq!(run_detail(&*store, batch.run_id).await.expect("it is kept").row.interrupts, 1);
}

// What a retry takes in: rule 10.

/// Rule 10: a retry with newer events is the same run with a larger batch: run id and attempts go on.
pub async fn a_retry_with_newer_events_takes_them_in(world: &dyn World) {
    let store = world.store();
    let first = claimed(&*store, &retry_newer()).await;
    append(&*store, [new("b"), new("c")]).await;
    settle(&*store, &first, RETRY).await;
    let second = claim_by(&*store, &retry_newer()).await;
    assert_eq!((second.run_id, ids(&second)), (first.run_id, vec!["a", "b", "c"]));
    assert_eq!((second.attempt, second.retries, second.revision), (2, 1, 1));
    assert_eq!(second.head_seq, second.hi());
    settle(&*store, &second, SUCCEEDED).await;
    assert_eq!(totals(&*store, "chat").await, Totals { accepted: 3, succeeded: 3, ..Totals::default() });
}

/// Rule 10: the retry time alone decides when: newer events neither hasten it nor delay it by their window.
pub async fn the_retry_time_alone_decides_when_newer_events_are_taken_in(world: &dyn World) {
    let store = world.store();
    let first = claimed(&*store, &retry_newer()).await;
    append_one(&*store, new("b").fixed(900)).await;
    let settled = settle_after(&*store, &first, RETRY, secs(30)).await;
    assert_moment(world, settled.next_at.expect("it is tried again"), first.claimed_at.after(secs(30)), "");
    append_one(&*store, new("c").max_events(1)).await;
    world.advance(secs(25)).await;
    claim_none(&*store).await;
    world.advance(secs(10)).await;
    assert_eq!(ids(&claim_by(&*store, &retry_newer()).await), ["a", "b", "c"]);
}

/// Rule 10: the last allowed attempt takes no newer events in, so that they do not die with the old ones.
pub async fn the_last_allowed_attempt_takes_no_newer_events_in(world: &dyn World) {
    let store = world.store();
    let policy = RunPolicy { max_attempts: 2, ..retry_newer() };
    let first = claimed(&*store, &policy).await;
    append_one(&*store, new("b")).await;
    settle(&*store, &first, RETRY).await;
    let last = claim_by(&*store, &policy).await;
    assert_eq!((ids(&last), last.attempt, last.revision), (vec!["a"], 2, 0));
    settle(&*store, &last, RETRY).await;
    assert_eq!(ids(&claim_by(&*store, &policy).await), ["b"]);
    let expected = Totals { accepted: 2, dead: 1, in_flight: 1, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, expected);
}

/// Rule 10: the old batch is never cut; what does not fit any more is due at once behind it, in order (rule 2).
pub async fn a_merge_never_cuts_the_old_batch_and_what_is_left_over_is_due_at_once(world: &dyn World) {
    let store = world.store();
    let of_three = |id: &str| new(id).fixed(20).max_events(3);
    append(&*store, ["a", "b"].map(of_three)).await;
    world.advance(secs(25)).await;
    let first = claim_by(&*store, &retry_newer()).await;
    let newer = append(&*store, ["c", "d", "e"].map(|id| new(id).fixed(900).max_events(10))).await;
    settle(&*store, &first, RETRY).await;
    let second = claim_by(&*store, &retry_newer()).await;
    assert_eq!(ids(&second), ["a", "b", "c"]);
    let row = run_detail(&*store, second.run_id).await.expect("it is running").row;
    let rest = lane_detail(&*store, &second.lane).await.expect("it is running").open_run;
    assert!(rest.is_some() && row.links.continued_in == rest, "{:?}", row.links);
    assert_ne!(rest, newer[2].run_id, "what is left over waits in a run of its own");
    settle(&*store, &second, SUCCEEDED).await;
    let last = claim_by(&*store, &retry_newer()).await;
    assert_eq!((ids(&last), Some(last.run_id)), (vec!["d", "e"], rest));
}

/// Rule 2 and 10: the run that was taken in says into which run its events went, and the event itself says so, too.
pub async fn a_run_that_was_taken_in_says_where_its_events_went(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &interrupting(3)).await;
    let newer = append_one(&*store, new("b")).await;
    let taken = newer.run_id.expect("it waits in a run");
    assert_ne!(taken, batch.run_id);
    settle(&*store, &batch, INTERRUPTED).await;
    let place = event_place(&*store, &batch.lane, "b").await.expect("it waits");
    assert_eq!(
        (place.run_id, place.state),
        (Some(taken), Some(RunState::Pending)),
        "not before it is handed over"
    );
    claim_by(&*store, &interrupting(3)).await;
    let run = run_detail(&*store, taken).await.expect("it is kept");
    assert_eq!((run.row.state, run.row.events, run.list.len()), (RunState::Cancelled, 0, 0));
    assert_eq!(run.row.links.merged_into, Some(batch.run_id));
    let place = event_place(&*store, &batch.lane, "b").await.expect("it is in flight");
    assert_eq!((place.run_id, place.state), (Some(batch.run_id), Some(RunState::Running)));
    let record = trail_of(&*store, "chat", "k1").await.into_iter().find(|r| r.change == Change::Merged);
    let record = record.expect("a merge is on record");
    assert_eq!((record.run, record.other_run), (Some(taken), Some(batch.run_id)));
}

/// Rule 10: attempts, interrupts and revision are counted over all merges of one run, also across a restart.
pub async fn a_run_keeps_its_counts_across_merges_and_a_restart(world: &dyn World) {
    let store = world.store();
    let policy = RunPolicy { max_attempts: 10, ..interrupting(3) };
    let mut batch = claimed(&*store, &policy).await;
    let mut held = store;
    for (round, verdict) in [INTERRUPTED, RETRY, INTERRUPTED, RELEASE, RETRY].into_iter().enumerate() {
        append_one(&*held, new(&format!("n{round}"))).await;
        settle(&*held, &batch, verdict).await;
        drop(held);
        held = world.reopen().await;
        batch = claim_by(&*held, &policy).await;
        assert_eq!(batch.events.len(), round + 2, "each claim takes in what arrived");
    }
    assert_eq!((batch.attempt, batch.retries, batch.revision), (3, 2, 5));
    let row = run_detail(&*held, batch.run_id).await.expect("it is running").row;
    assert_eq!((row.claims, row.attempts, row.interrupts, row.events), (6, 3, 2, 6));
}

/// Rule 11: the window of the next run runs on while the current one waits for its retry, and keeps its own reason.
pub async fn a_window_runs_on_during_a_backoff_and_keeps_its_own_reason(world: &dyn World) {
    let store = world.store();
    let policy = crate::builders::policy();
    let first = claimed(&*store, &policy).await;
    let newer = append_one(&*store, new("b").fixed(20)).await;
    settle_after(&*store, &first, RETRY, secs(60)).await;
    world.advance(secs(65)).await;
    let second = claim_by(&*store, &policy).await;
    assert_eq!(ids(&second), ["a"], "the older batch goes first");
    assert_eq!(settle(&*store, &second, FAILED).await.state, RunState::Failed);
    let row = lane_row(&*store, &second.lane).await.expect("it waits");
    assert_eq!(row.due_at, newer.due_at, "it was due all along");
    let next = claim_by(&*store, &policy).await;
    assert_eq!((ids(&next), next.fired_by), (vec!["b"], FiredBy::Fixed));
}

/// Rule 7 and 9: what a run that gives way was asked for is remembered, so a repeated settle gets the same answer.
pub async fn a_repeated_giving_way_gets_the_same_answer(world: &dyn World) {
    let store = world.store();
    let verdicts: [(Verdict, RunPolicy); 2] = [(INTERRUPTED, interrupting(3)), (SUPERSEDED, gated(3))];
    for (verdict, policy) in verdicts {
        append_one(&*store, event("chat", "k1")).await;
        let batch = claim_by(&*store, &policy).await;
        append_one(&*store, event("chat", "k1")).await;
        let first = settle(&*store, &batch, verdict).await;
        let heir = claim_by(&*store, &policy).await;
        let again = try_settle(&*store, &batch, verdict).await.expect("the same answer");
        assert!(again.repeated);
        assert_eq!((again.state, again.change, again.next_at), (first.state, first.change, first.next_at));
        refused(try_settle(&*store, &batch, SUCCEEDED).await, ErrorKind::AlreadySettled);
        settle(&*store, &heir, SUCCEEDED).await;
    }
}

// Policies of single tenants.

/// A claim may bring another policy for the lanes of a tenant; the others of the queue have the queue's.
pub async fn a_tenant_may_have_a_policy_of_its_own(world: &dyn World) {
    let store = world.store();
    let new = |id: &str, of: &str| event("chat", "k1").of(of).id(id);
    append(&*store, [new("a", "calm"), new("b", "hasty")]).await;
    let tenants = [(tenant("hasty"), Arc::new(interrupting(3)))].into();
    let listed = ClaimQueue { tenants: Arc::new(tenants), ..from_queue("chat", policy(), 10) };
    let request = ClaimRequest {
        queues: ClaimQueues::Listed(vec![listed]),
        ..claim_request_by(&worker("w1"), policy())
    };
    let batches = claim(&*store, request).await.batches;
    assert_eq!(batches.len(), 2);
    append(&*store, [new("c", "calm"), new("d", "hasty")]).await;
    for (batch, interrupted) in batches.iter().zip([false, true]) {
        let beat = extend(&*store, batch, LEASE).await;
        assert_eq!((beat.newer, beat.interrupt), (1, interrupted), "{}", batch.lane);
    }
}
