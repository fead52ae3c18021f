//! Promises about attempts and failure: what is refunded and what counts, how a failing batch is halved until the guilty
//! event is alone, and how a failed run blocks its lane until an operator has decided.

use quell_core::batch::{Batch, RunId};
use quell_core::inspect::LaneFilter;
use quell_core::lane::OnFailed;
use quell_core::lifecycle::{Change, RunState};
use quell_core::limits;
use quell_core::store::{ControlAction, HoldAnswer, PurgeWhat, RunPolicy, Store};
use quell_core::totals::Totals;
use quell_core::window::FiredBy;

use crate::World;
use crate::builders::{
    ATTEMPTS, EventBuilder, FAILED, INTERRUPTED, LEASE, RELEASE, RETRY, SUCCEEDED, append, append_one, claim,
    claim_by, claim_none, claim_one, claim_request_by, control, event, extend, hold, ids, interrupting, lane,
    on_failed, policy, purge, redrive, secs, seqs, settle, settle_after, sweep, worker,
};
use crate::reads::{
    all_lanes, assert_moment, changes, event_place, lane_detail, lane_row, run_detail, state_of, totals,
    trail_of,
};

fn new(id: &str) -> EventBuilder {
    event("chat", "k1").id(id)
}

/// One batch of these events, claimed by this policy.
async fn claimed(store: &dyn Store, policy: &RunPolicy, names: &[&str]) -> Batch {
    append(store, names.iter().map(|id| new(id))).await;
    let batch = claim_by(store, policy).await;
    assert_eq!(ids(&batch), names);
    batch
}

fn bisect() -> RunPolicy {
    on_failed(OnFailed::Bisect)
}

fn block() -> RunPolicy {
    on_failed(OnFailed::Block)
}

async fn flush(store: &dyn Store) -> bool {
    control(store, ControlAction::Flush(lane("chat", "k1"))).await.changed
}

async fn pause(store: &dyn Store) -> bool {
    control(store, ControlAction::PauseLane(lane("chat", "k1"))).await.changed
}

async fn resume(store: &dyn Store) -> bool {
    control(store, ControlAction::ResumeLane(lane("chat", "k1"))).await.changed
}

async fn split_into(store: &dyn Store, run: RunId) -> Vec<RunId> {
    run_detail(store, run).await.expect("it is kept").row.links.split_into
}

// Attempts: rule 12.

/// Rule 12: claims are never refunded, attempts are; giving way does not use up the ten refunds of hand-backs, and the
/// eleventh hand-back counts and says so.
pub async fn hand_backs_are_refunded_ten_times_apart_from_giving_way(world: &dyn World) {
    let store = world.store();
    let policy = interrupting(3);
    let mut batch = claimed(&*store, &policy, &["a"]).await;
    append_one(&*store, new("b")).await;
    settle(&*store, &batch, INTERRUPTED).await;
    for round in 0..limits::REFUNDS_MAX {
        batch = claim_by(&*store, &policy).await;
        assert_eq!(batch.attempt, 1, "round {round}");
        assert_eq!(settle(&*store, &batch, RELEASE).await.change, Change::Released, "round {round}");
    }
    batch = claim_by(&*store, &policy).await;
    assert_eq!(settle(&*store, &batch, RELEASE).await.change, Change::ReleasedCounted);
    batch = claim_by(&*store, &policy).await;
    assert_eq!(batch.attempt, 2, "this one was not given back");
    let row = run_detail(&*store, batch.run_id).await.expect("it is running").row;
    assert_eq!((row.claims, row.attempts), (limits::REFUNDS_MAX + 3, 2));
    let told = changes(&trail_of(&*store, "chat", "k1").await);
    let of = |change: Change| told.iter().filter(|c| **c == change).count();
    assert_eq!((of(Change::Released), of(Change::Interrupted), of(Change::ReleasedCounted)), (10, 1, 1));
}

/// Rule 12: a second hand-back in a row waits, and a retry between two hand-backs starts the row anew.
pub async fn only_hand_backs_in_a_row_wait(world: &dyn World) {
    let store = world.store();
    let mut batch = claimed(&*store, &policy(), &["a"]).await;
    for (verdict, waits) in [(RELEASE, false), (RELEASE, true), (RETRY, true), (RELEASE, false)] {
        let settled = settle_after(&*store, &batch, verdict, secs(30)).await;
        let due = settled.next_at.expect("it goes on");
        assert_eq!(due.since(batch.claimed_at) >= secs(25), waits, "{verdict:?}");
        if waits {
            claim_none(&*store).await;
            world.advance(secs(35)).await;
        }
        batch = claim_one(&*store).await;
    }
}

// Halving: rule 13.

/// Rule 13: left half, then right half, each a frozen run with one attempt, before anything newer.
pub async fn a_failing_batch_is_halved_and_the_halves_go_before_anything_newer(world: &dyn World) {
    let store = world.store();
    let parent = claimed(&*store, &bisect(), &["a", "b", "c", "d", "e"]).await;
    append_one(&*store, new("newer")).await;
    let settled = settle(&*store, &parent, FAILED).await;
    assert_eq!((settled.state, settled.change), (RunState::Failed, Change::Split));
    let halves = split_into(&*store, parent.run_id).await;
    let left = claim_by(&*store, &bisect()).await;
    assert_eq!((left.run_id, ids(&left)), (halves[0], vec!["a", "b", "c"]));
    assert_eq!((left.attempt, left.max_attempts, left.retries), (1, 1, 0));
    assert_eq!((seqs(&left), left.fired_by), (seqs(&parent)[..3].to_vec(), FiredBy::Retry));
    claim_none(&*store).await;
    settle(&*store, &left, SUCCEEDED).await;
    let right = claim_by(&*store, &bisect()).await;
    assert_eq!((right.run_id, ids(&right), right.max_attempts), (halves[1], vec!["d", "e"], 1));
    settle(&*store, &right, SUCCEEDED).await;
    assert_eq!(ids(&claim_by(&*store, &bisect()).await), ["newer"]);
}

/// Rule 13: whatever its place, the guilty event ends alone in the dead letter and all others succeed, in order.
pub async fn halving_leaves_the_guilty_event_alone(world: &dyn World) {
    let store = world.store();
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    for guilty in names {
        let key = format!("of {guilty}");
        append(&*store, names.map(|id| event("chat", &key).id(id))).await;
        let mut done = Vec::new();
        let mut attempts = 0;
        let request = || claim_request_by(&worker("w"), bisect());
        while let Some(batch) = claim(&*store, request()).await.batches.pop() {
            attempts += 1;
            let failing = ids(&batch).contains(&guilty);
            if !failing || batch.events.len() == 1 {
                done.extend(ids(&batch).into_iter().map(str::to_owned));
            }
            settle(&*store, &batch, if failing { FAILED } else { SUCCEEDED }).await;
        }
        assert_eq!(done, names, "each event ends once, in order");
        assert!(attempts <= 7, "{attempts} attempts for 7 events with one guilty");
        for id in names {
            let expected = if id == guilty { RunState::Failed } else { RunState::Succeeded };
            assert_eq!(state_of(&*store, &lane("chat", &key), id).await, Some(expected), "{id} of {guilty}");
        }
    }
    let expected = Totals { accepted: 49, succeeded: 42, dead: 7, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, expected);
}

/// Rule 13: halving starts when the attempts are used up and not before: by retries, or by a crash on the last one.
pub async fn halving_starts_when_the_attempts_are_used_up(world: &dyn World) {
    let store = world.store();
    let twice = RunPolicy { max_attempts: 2, ..bisect() };
    for (key, crash) in [("k1", false), ("k2", true)] {
        append(&*store, ["a", "b"].map(|id| event("chat", key).id(id))).await;
        let first = claim_by(&*store, &twice).await;
        assert_eq!(settle(&*store, &first, RETRY).await.change, Change::Retried);
        let last = claim_by(&*store, &twice).await;
        assert_eq!((ids(&last), last.attempt), (vec!["a", "b"], 2));
        if crash {
            world.advance(secs(65)).await;
            let reclaimed = sweep(&*store).await.reclaimed;
            assert_eq!((reclaimed.len(), reclaimed[0].state), (1, RunState::Failed));
        } else {
            assert_eq!(settle(&*store, &last, RETRY).await.change, Change::Split);
        }
        assert_eq!(split_into(&*store, last.run_id).await.len(), 2);
        for id in ["a", "b"] {
            let half = claim_by(&*store, &twice).await;
            assert_eq!(ids(&half), [id]);
            settle(&*store, &half, SUCCEEDED).await;
        }
    }
}

/// Rule 13: a half has one attempt, whatever it asks for, and no backoff.
pub async fn a_half_that_asks_for_a_retry_is_halved_at_once(world: &dyn World) {
    let store = world.store();
    let parent = claimed(&*store, &bisect(), &["a", "b", "c"]).await;
    settle(&*store, &parent, FAILED).await;
    let left = claim_by(&*store, &bisect()).await;
    assert_eq!(ids(&left), ["a", "b"]);
    let settled = settle_after(&*store, &left, RETRY, secs(500)).await;
    assert_eq!((settled.change, settled.next_at), (Change::Split, None));
    let quarter = claim_by(&*store, &bisect()).await;
    assert_eq!(ids(&quarter), ["a"]);
    let settled = settle_after(&*store, &quarter, RETRY, secs(500)).await;
    assert_eq!((settled.state, settled.change), (RunState::Failed, Change::Exhausted));
    for id in ["b", "c"] {
        let next = claim_by(&*store, &bisect()).await;
        assert_eq!(ids(&next), [id], "the order of the parent is kept");
        settle(&*store, &next, SUCCEEDED).await;
    }
}

/// Rule 13: a single failing event is not halved.
pub async fn a_single_failing_event_goes_to_the_dead_letter(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &bisect(), &["a"]).await;
    assert_eq!(settle(&*store, &batch, FAILED).await.change, Change::Failed);
    assert!(split_into(&*store, batch.run_id).await.is_empty());
    assert_eq!(totals(&*store, "chat").await, Totals { accepted: 1, dead: 1, ..Totals::default() });
}

/// Rule 13: the parent shows its halves and counts no events; the halves show where they came from, on record.
pub async fn the_parent_shows_its_halves_and_counts_no_events(world: &dyn World) {
    let store = world.store();
    let parent = claimed(&*store, &bisect(), &["a", "b"]).await;
    settle(&*store, &parent, FAILED).await;
    let shown = run_detail(&*store, parent.run_id).await.expect("it is kept");
    assert_eq!((shown.row.state, shown.row.events, shown.list.len()), (RunState::Failed, 0, 0));
    let halves = shown.row.links.split_into.clone();
    assert_eq!(totals(&*store, "chat").await, Totals { accepted: 2, in_flight: 2, ..Totals::default() });
    let detail = lane_detail(&*store, &parent.lane).await.expect("it waits");
    assert_eq!((detail.current_run, detail.queued_runs), (Some(halves[0]), vec![halves[1]]));
    for (half, id) in halves.iter().zip(["a", "b"]) {
        let row = run_detail(&*store, *half).await.expect("it waits").row;
        assert_eq!((row.state, row.events, row.attempts), (RunState::Pending, 1, 0));
        assert_eq!(row.links.split_from, Some(parent.run_id));
        let place = event_place(&*store, &parent.lane, id).await.expect("it waits");
        assert_eq!((place.run_id, place.state), (Some(*half), Some(RunState::Pending)));
    }
    let trail = trail_of(&*store, "chat", "k1").await;
    assert_eq!(changes(&trail), [Change::Claimed, Change::Split, Change::SplitOff, Change::SplitOff]);
    assert!(trail[2..].iter().all(|r| r.other_run == Some(parent.run_id)));
}

/// Rule 13 and 5: a held run is never halved: its effect was about the whole.
pub async fn a_held_run_is_never_halved(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &bisect(), &["a", "b"]).await;
    assert_eq!(hold(&*store, &batch).await, HoldAnswer::Held);
    assert_eq!(settle(&*store, &batch, FAILED).await.change, Change::Failed);
    assert!(split_into(&*store, batch.run_id).await.is_empty());
    assert_eq!(totals(&*store, "chat").await.dead, 2);
    claim_none(&*store).await;
}

/// Rule 13: a worker that dies with a half has used up its one attempt.
pub async fn a_crash_during_a_half_halves_it_again(world: &dyn World) {
    let store = world.store();
    let parent = claimed(&*store, &bisect(), &["a", "b", "c"]).await;
    settle(&*store, &parent, FAILED).await;
    let left = claim_by(&*store, &bisect()).await;
    world.advance(secs(65)).await;
    let quarter = claim_by(&*store, &bisect()).await;
    assert_eq!((ids(&quarter), split_into(&*store, left.run_id).await.len()), (vec!["a"], 2));
    world.advance(secs(65)).await;
    let next = claim_by(&*store, &bisect()).await;
    assert_eq!(ids(&next), ["b"]);
    let place = event_place(&*store, &parent.lane, "a").await.expect("dead events are kept");
    let dead = run_detail(&*store, place.run_id.expect("it has a run")).await.expect("it is kept");
    assert_eq!((dead.row.state, dead.row.error.as_deref()), (RunState::Failed, Some("lease expired")));
}

/// Rule 13 and 12: a hand-back of a half is refunded, so that a rolling restart buries nothing.
pub async fn a_hand_back_of_a_half_is_refunded(world: &dyn World) {
    let store = world.store();
    let parent = claimed(&*store, &bisect(), &["a", "b"]).await;
    settle(&*store, &parent, FAILED).await;
    let left = claim_by(&*store, &bisect()).await;
    assert_eq!(settle(&*store, &left, RELEASE).await.state, RunState::Pending);
    let again = claim_by(&*store, &bisect()).await;
    assert_eq!((again.run_id, ids(&again), again.attempt), (left.run_id, vec!["a"], 1));
}

/// Rule 13: halves are frozen: newer events neither interrupt them nor join them.
pub async fn halves_take_nothing_newer_in(world: &dyn World) {
    let store = world.store();
    let mut policy = interrupting(3);
    policy.rules.on_failed = OnFailed::Bisect;
    let parent = claimed(&*store, &policy, &["a", "b", "c"]).await;
    settle(&*store, &parent, FAILED).await;
    let left = claim_by(&*store, &policy).await;
    append_one(&*store, new("newer")).await;
    assert!(!extend(&*store, &left, LEASE).await.interrupt);
    settle(&*store, &left, RELEASE).await;
    assert_eq!(ids(&claim_by(&*store, &policy).await), ["a", "b"]);
}

/// Rule 13: what waits to be tried in halves survives a restart in its order.
pub async fn halves_survive_a_restart(world: &dyn World) {
    let store = world.store();
    let parent = claimed(&*store, &bisect(), &["a", "b", "c", "d"]).await;
    settle(&*store, &parent, FAILED).await;
    let left = claim_by(&*store, &bisect()).await;
    settle(&*store, &left, FAILED).await;
    append_one(&*store, new("newer")).await;
    drop(store);
    let store = world.reopen().await;
    for expected in [vec!["a"], vec!["b"], vec!["c", "d"], vec!["newer"]] {
        let batch = claim_by(&*store, &bisect()).await;
        assert_eq!(ids(&batch), expected);
        settle(&*store, &batch, SUCCEEDED).await;
    }
    assert_eq!(totals(&*store, "chat").await, Totals { accepted: 5, succeeded: 5, ..Totals::default() });
}

// Blocking: rule 14.

/// Rule 14: the lane waits, named by the failed run, whose events are in the dead letter; other lanes go on.
pub async fn a_failed_run_blocks_its_lane_by_name(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &block(), &["a"]).await;
    append_one(&*store, new("b")).await;
    settle(&*store, &batch, FAILED).await;
    claim_none(&*store).await;
    let detail = lane_detail(&*store, &batch.lane).await.expect("it waits");
    assert_eq!((detail.row.blocked_by, detail.waiting.blocked_by), (Some(batch.run_id), Some(batch.run_id)));
    assert_eq!(detail.row.due_at, None);
    assert!(detail.row.why.contains(&batch.run_id.to_string()), "{}", detail.row.why);
    assert_eq!(state_of(&*store, &batch.lane, "a").await, Some(RunState::Failed));
    let told = changes(&trail_of(&*store, "chat", "k1").await);
    assert_eq!(told, [Change::Claimed, Change::Failed, Change::Blocked]);
    append_one(&*store, event("chat", "k2").id("z")).await;
    assert_eq!(ids(&claim_by(&*store, &block()).await), ["z"], "one blocked key never delays another");
}

/// Rule 14: every way to fail blocks: at once, by the last retry, by a crash on the last attempt.
pub async fn used_up_attempts_and_crashes_block_too(world: &dyn World) {
    let store = world.store();
    let once = RunPolicy { max_attempts: 1, ..block() };
    for key in ["k1", "k2"] {
        append_one(&*store, event("chat", key)).await;
        let batch = claim_by(&*store, &once).await;
        if key == "k1" {
            assert_eq!(settle(&*store, &batch, RETRY).await.change, Change::Exhausted);
        } else {
            world.advance(secs(65)).await;
            assert_eq!(sweep(&*store).await.reclaimed.len(), 1);
        }
        append_one(&*store, event("chat", key)).await;
        claim_none(&*store).await;
        let row = lane_row(&*store, &batch.lane).await.expect("it waits");
        assert_eq!(row.blocked_by, Some(batch.run_id), "{key}");
    }
}

/// Rule 14 and 17: a blocked lane accepts events and their windows go on: overdue means due when the block ends.
pub async fn a_blocked_lane_accepts_and_windows_events(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &block(), &["a"]).await;
    settle(&*store, &batch, FAILED).await;
    let waiting = append_one(&*store, new("b").fixed(20)).await;
    assert_moment(world, waiting.due_at.expect("a window"), batch.claimed_at.after(secs(20)), "due_at");
    world.advance(secs(30)).await;
    claim_none(&*store).await;
    assert!(resume(&*store).await);
    let next = claim_by(&*store, &block()).await;
    assert_eq!((ids(&next), next.fired_by), (vec!["b"], FiredBy::Fixed));
}

/// Rule 14: redriving the failed run ends the block, and it goes before everything that waits.
pub async fn redriving_the_failed_run_ends_the_block_and_goes_first(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &block(), &["a"]).await;
    append_one(&*store, new("b")).await;
    settle(&*store, &batch, FAILED).await;
    assert!(redrive(&*store, batch.run_id).await.changed);
    let row = lane_row(&*store, &batch.lane).await.expect("it waits");
    assert_eq!(row.blocked_by, None);
    let told = changes(&trail_of(&*store, "chat", "k1").await);
    assert_eq!(told[3..], [Change::Redriven, Change::Unblocked]);
    for (id, fired_by) in [("a", FiredBy::Redrive), ("b", FiredBy::None)] {
        let next = claim_by(&*store, &block()).await;
        assert_eq!((ids(&next), next.fired_by), (vec![id], fired_by));
        settle(&*store, &next, SUCCEEDED).await;
    }
}

/// Rule 14: it goes first also past another redriven run that waited behind it.
pub async fn the_run_that_blocked_goes_before_another_redriven_run(world: &dyn World) {
    let store = world.store();
    let older = claimed(&*store, &policy(), &["a"]).await;
    settle(&*store, &older, FAILED).await;
    let batch = claimed(&*store, &block(), &["b"]).await;
    assert!(redrive(&*store, older.run_id).await.changed, "it waits behind the current run");
    settle(&*store, &batch, FAILED).await;
    claim_none(&*store).await;
    assert!(redrive(&*store, batch.run_id).await.changed);
    for id in ["b", "a"] {
        let next = claim_by(&*store, &policy()).await;
        assert_eq!(ids(&next), [id]);
        settle(&*store, &next, SUCCEEDED).await;
    }
}

/// Rule 14: only that run or a resume ends the block: a redrive of another run, a flush, a purge and new events do not.
pub async fn nothing_else_ends_a_block(world: &dyn World) {
    let store = world.store();
    let older = claimed(&*store, &policy(), &["a"]).await;
    settle(&*store, &older, FAILED).await;
    let batch = claimed(&*store, &block(), &["b"]).await;
    settle(&*store, &batch, FAILED).await;
    append_one(&*store, new("c").fixed(500)).await;
    assert!(redrive(&*store, older.run_id).await.changed);
    claim_none(&*store).await;
    assert!(flush(&*store).await);
    claim_none(&*store).await;
    assert_eq!(purge(&*store, "chat", PurgeWhat::Dead).await.events, 1);
    claim_none(&*store).await;
    assert!(resume(&*store).await);
    for id in ["a", "c"] {
        let next = claim_by(&*store, &policy()).await;
        assert_eq!(ids(&next), [id]);
        settle(&*store, &next, SUCCEEDED).await;
    }
}

/// Rule 14: resume ends the block and leaves the failed run in the dead letter, from where it can still be redriven.
pub async fn resume_ends_the_block_and_leaves_the_run_dead(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &block(), &["a"]).await;
    append_one(&*store, new("b")).await;
    settle(&*store, &batch, FAILED).await;
    assert!(resume(&*store).await);
    assert!(!resume(&*store).await, "once");
    assert_eq!(changes(&trail_of(&*store, "chat", "k1").await)[3..], [Change::Unblocked]);
    assert_eq!(ids(&claim_by(&*store, &block()).await), ["b"]);
    assert_eq!(state_of(&*store, &batch.lane, "a").await, Some(RunState::Failed));
    assert_eq!(totals(&*store, "chat").await.dead, 1);
    assert_eq!(redrive(&*store, batch.run_id).await.events, 1);
}

/// Rule 14 and 17: a block and a pause are independent; resume lifts one thing at a time, the pause first.
pub async fn a_block_and_a_pause_are_independent(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &block(), &["a"]).await;
    append_one(&*store, new("b")).await;
    assert!(pause(&*store).await);
    settle(&*store, &batch, FAILED).await;
    assert!(resume(&*store).await);
    let row = lane_row(&*store, &batch.lane).await.expect("it waits");
    assert_eq!((row.paused_by, row.blocked_by), (None, Some(batch.run_id)));
    claim_none(&*store).await;
    assert!(pause(&*store).await, "a blocked lane can be paused");
    assert!(redrive(&*store, batch.run_id).await.changed);
    let row = lane_row(&*store, &batch.lane).await.expect("it waits");
    assert_eq!((row.paused_by.as_deref(), row.blocked_by), (Some("ada"), None));
    claim_none(&*store).await;
    assert!(resume(&*store).await);
    assert_eq!(ids(&claim_by(&*store, &block()).await), ["a"]);
}

/// Rule 14: a block survives a restart, and an idle blocked lane is still shown.
pub async fn a_block_survives_a_restart(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &block(), &["a"]).await;
    settle(&*store, &batch, FAILED).await;
    drop(store);
    let store = world.reopen().await;
    let lanes = all_lanes(&*store, LaneFilter::default()).await;
    assert_eq!(lanes.iter().map(|l| l.blocked_by).collect::<Vec<_>>(), [Some(batch.run_id)]);
    append_one(&*store, new("b")).await;
    claim_none(&*store).await;
    assert!(resume(&*store).await);
    assert_eq!(ids(&claim_by(&*store, &block()).await), ["b"]);
}

/// Rule 14: without `block` the lane goes on, whatever an earlier claim of the same lane said.
pub async fn the_policy_of_the_latest_claim_decides_what_a_failure_does(world: &dyn World) {
    let store = world.store();
    let mut batch = claimed(&*store, &block(), &["a", "b"]).await;
    settle(&*store, &batch, RETRY).await;
    batch = claim_by(&*store, &policy()).await;
    assert_eq!((batch.attempt, batch.max_attempts), (2, ATTEMPTS));
    append_one(&*store, new("c")).await;
    assert_eq!(settle(&*store, &batch, FAILED).await.change, Change::Failed);
    assert_eq!(ids(&claim_one(&*store).await), ["c"]);
}
