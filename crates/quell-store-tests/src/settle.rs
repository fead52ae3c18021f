//! Promises of settle: the holder's word ends its attempt, once; a stale worker changes nothing and learns so; nothing
//! of the lane but its own run is touched.

use std::collections::BTreeMap;

use quell_core::batch::{Batch, RunId};
use quell_core::error::ErrorKind;
use quell_core::lifecycle::{Change, RunState};
use quell_core::limits;
use quell_core::outcome::Verdict;
use quell_core::store::{RunPolicy, SettleRequest, Store};
use quell_core::totals::Totals;
use quell_core::window::FiredBy;
use serde_json::json;

use crate::World;
use crate::builders::{
    ATTEMPTS, FAILED, RELEASE, RETRY, SUCCEEDED, append, append_one, claim, claim_none, claim_one,
    claim_one_as, claim_request_by, event, ids, lane, policy, refused, secs, seq_of, seqs, settle,
    settle_after, settle_request, sweep, try_settle, worker,
};
use crate::reads::{
    assert_moment, changes, event_place, health, lane_detail, lane_row, run_detail, totals, trail_of,
};

pub async fn succeeded_ends_the_run_and_leaves_the_lane_idle(world: &dyn World) {
    let store = world.store();
    append(&*store, [event("chat", "k1").id("a"), event("chat", "k1").id("b")]).await;
    let batch = claim_one(&*store).await;
    world.advance(secs(15)).await;
    let settled = settle(&*store, &batch, SUCCEEDED).await;
    assert_eq!((settled.state, settled.next_at), (RunState::Succeeded, None));
    let row = run_detail(&*store, batch.run_id).await.expect("it is kept").row;
    assert_eq!((row.state, row.events, row.attempts), (RunState::Succeeded, 2, 1));
    assert_moment(
        world,
        row.completed_at.expect("it ended"),
        batch.claimed_at.after(secs(15)),
        "completed_at",
    );
    let lane = lane_detail(&*store, &batch.lane).await;
    assert!(lane.is_none_or(|l| l.row.state.is_none() && l.row.in_flight == 0));
    claim_none(&*store).await;
    let expected = Totals { accepted: 2, succeeded: 2, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, expected);
}

pub async fn newer_events_follow_a_success_by_their_own_window(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    let newer = append_one(&*store, event("chat", "k1").id("b").quiet(20)).await;
    settle(&*store, &batch, SUCCEEDED).await;
    let row = lane_row(&*store, &batch.lane).await.expect("it waits");
    assert_eq!((row.state, row.buffered, row.due_at), (Some(RunState::Pending), 1, newer.due_at));
    claim_none(&*store).await;
    world.advance(secs(25)).await;
    assert_eq!(ids(&claim_one(&*store).await), ["b"]);
}

pub async fn a_retry_waits_its_delay_and_repeats_the_very_same_batch(world: &dyn World) {
    let store = world.store();
    append(&*store, [event("chat", "k1").id("a"), event("chat", "k1").id("b")]).await;
    let first = claim_one(&*store).await;
    append_one(&*store, event("chat", "k1").id("late")).await;
    let settled = settle_after(&*store, &first, RETRY, secs(30)).await;
    assert_eq!(settled.state, RunState::Retryable);
    let next = settled.next_at.expect("it is tried again");
    assert_moment(world, next, first.claimed_at.after(secs(30)), "the retry's time");
    world.advance(secs(25)).await;
    claim_none(&*store).await;
    world.advance(secs(10)).await;
    let second = claim_one(&*store).await;
    assert_eq!((second.run_id, second.attempt, second.retries), (first.run_id, 2, 1));
    assert_eq!(seqs(&second), seqs(&first));
    assert_eq!(second.fired_by, FiredBy::Retry);
    assert_eq!((second.first_at, second.last_at), (first.first_at, first.last_at));
}

pub async fn a_retry_without_delay_is_due_at_once(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let first = claim_one(&*store).await;
    settle(&*store, &first, RETRY).await;
    assert_eq!(claim_one(&*store).await.run_id, first.run_id);
}

pub async fn a_lane_in_backoff_is_not_claimable_by_newer_events(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a")).await;
    let first = claim_one(&*store).await;
    settle_after(&*store, &first, RETRY, secs(100)).await;
    for _ in 0..3 {
        append_one(&*store, event("chat", "k1").max_events(1)).await;
        world.advance(secs(15)).await;
        claim_none(&*store).await;
    }
    world.advance(secs(60)).await;
    assert_eq!(ids(&claim_one(&*store).await), ["a"]);
}

pub async fn the_last_attempt_that_asks_for_a_retry_goes_to_the_dead_letter(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a")).await;
    append_one(&*store, event("chat", "k2").id("z").fixed(900)).await;
    for attempt in 1..=ATTEMPTS {
        let batch = claim_one(&*store).await;
        assert_eq!(batch.attempt, attempt);
        let request =
            SettleRequest { error: Some(format!("try {attempt}")), ..settle_request(&batch, RETRY) };
        let settled = store.settle(request).await.expect("done");
        let last = attempt == ATTEMPTS;
        assert_eq!(settled.state, if last { RunState::Failed } else { RunState::Retryable });
        assert_eq!(settled.next_at.is_none(), last);
    }
    claim_none(&*store).await;
    let place = event_place(&*store, &lane("chat", "k1"), "a").await.expect("dead events are kept");
    assert_eq!(place.state, Some(RunState::Failed));
    let detail = run_detail(&*store, place.run_id.expect("it has a run")).await.expect("it is kept");
    assert_eq!((detail.row.error.as_deref(), detail.row.attempts), (Some("try 3"), 3));
    let told = changes(&trail_of(&*store, "chat", "k1").await);
    assert_eq!(told.last(), Some(&Change::Exhausted));
    assert_eq!(
        totals(&*store, "chat").await,
        Totals { accepted: 2, dead: 1, buffered: 1, ..Totals::default() }
    );
}

pub async fn failed_goes_to_the_dead_letter_with_payload_error_and_sequence_numbers(world: &dyn World) {
    let store = world.store();
    let receipts =
        append(&*store, [event("chat", "k1").id("a").raw("{\"b\":1.0}"), event("chat", "k1").id("b")]).await;
    let batch = claim_one(&*store).await;
    append_one(&*store, event("chat", "k1").id("c")).await;
    let request = SettleRequest { error: Some("never\u{e9}".into()), ..settle_request(&batch, FAILED) };
    let settled = store.settle(request).await.expect("done");
    assert_eq!((settled.state, settled.next_at), (RunState::Failed, None));
    let detail = run_detail(&*store, batch.run_id).await.expect("it is kept");
    assert_eq!(detail.row.error.as_deref(), Some("never\u{e9}"));
    assert_eq!(
        detail.list.iter().map(|e| e.seq).collect::<Vec<_>>(),
        [seq_of(&receipts[0]), seq_of(&receipts[1])]
    );
    assert_eq!(detail.list[0].payload.as_str(), "{\"b\":1.0}");
    assert_eq!(ids(&claim_one(&*store).await), ["c"], "the lane goes on");
}

pub async fn settle_touches_only_the_events_of_its_own_run(world: &dyn World) {
    let store = world.store();
    let new = |id| event("chat", "k1").id(id).max_events(2);
    append(&*store, ["a", "b", "c"].map(new)).await;
    let batch = claim_one(&*store).await;
    append_one(&*store, new("d")).await;
    settle(&*store, &batch, SUCCEEDED).await;
    for (id, state) in [
        ("a", RunState::Succeeded),
        ("b", RunState::Succeeded),
        ("c", RunState::Pending),
        ("d", RunState::Pending),
    ] {
        let place = event_place(&*store, &batch.lane, id).await.expect("it is there");
        assert_eq!(place.state, Some(state), "{id}");
        assert_eq!(place.run_id == Some(batch.run_id), state == RunState::Succeeded, "{id}");
    }
    assert_eq!(ids(&claim_one(&*store).await), ["c", "d"]);
}

pub async fn a_release_hands_the_run_back_at_once_and_refunds_the_attempt(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").fixed(20)).await;
    world.advance(secs(25)).await;
    let first = claim_one(&*store).await;
    let settled = settle_after(&*store, &first, RELEASE, secs(100)).await;
    assert_eq!(settled.state, RunState::Pending);
    assert_moment(
        world,
        settled.next_at.expect("due again"),
        first.claimed_at,
        "at once, whatever the delay",
    );
    let second = claim_one(&*store).await;
    assert_eq!((second.run_id, second.attempt, second.retries), (first.run_id, 1, 0));
    assert_eq!((seqs(&second), second.fired_by), (seqs(&first), first.fired_by));
    let row = run_detail(&*store, first.run_id).await.expect("it is there").row;
    assert_eq!((row.claims, row.attempts), (2, 1), "claims are never refunded");
    let trail = trail_of(&*store, "chat", "k1").await;
    assert_eq!(
        changes(&trail),
        [Change::Claimed, Change::Released, Change::Claimed],
        "each refund is audited"
    );
}

pub async fn a_second_release_in_a_row_waits(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    settle_after(&*store, &claim_one(&*store).await, RELEASE, secs(30)).await;
    settle_after(&*store, &claim_one(&*store).await, RELEASE, secs(30)).await;
    world.advance(secs(25)).await;
    claim_none(&*store).await;
    world.advance(secs(10)).await;
    settle(&*store, &claim_one(&*store).await, RETRY).await;
    let settled = settle_after(&*store, &claim_one(&*store).await, RELEASE, secs(30)).await;
    assert_eq!(settled.state, RunState::Pending);
    claim_one(&*store).await;
}

pub async fn a_loop_of_releases_ends_because_refunds_are_bounded(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    for round in 0..limits::REFUNDS_MAX {
        let batch = claim_one(&*store).await;
        assert_eq!(batch.attempt, 1, "round {round} is refunded");
        settle(&*store, &batch, RELEASE).await;
    }
    for attempt in 1..=ATTEMPTS {
        let batch = claim_one(&*store).await;
        assert_eq!(batch.attempt, attempt, "after ten refunds a release counts");
        let settled = settle(&*store, &batch, RELEASE).await;
        assert_eq!(settled.state == RunState::Failed, attempt == ATTEMPTS);
    }
    claim_none(&*store).await;
    assert_eq!(totals(&*store, "chat").await.dead, 1);
}

pub async fn a_stale_worker_changes_nothing_and_learns_so(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let stale = claim_one(&*store).await;
    world.advance(secs(65)).await;
    let heir = claim_one(&*store).await;
    let before = lane_row(&*store, &heir.lane).await;
    for verdict in [SUCCEEDED, FAILED, RETRY, RELEASE] {
        refused(try_settle(&*store, &stale, verdict).await, ErrorKind::LostLease);
    }
    assert_eq!(shown(lane_row(&*store, &heir.lane).await), shown(before));
    settle(&*store, &heir, SUCCEEDED).await;
    refused(try_settle(&*store, &stale, SUCCEEDED).await, ErrorKind::LostLease);
    assert_eq!(totals(&*store, "chat").await.succeeded, 1);
    let told = changes(&trail_of(&*store, "chat", "k1").await);
    assert_eq!(told, [Change::Claimed, Change::Reclaimed, Change::Claimed, Change::Succeeded]);
}

/// A row without the sentence, which tells the time that has passed.
fn shown(row: Option<quell_core::inspect::LaneRow>) -> Option<quell_core::inspect::LaneRow> {
    row.map(|mut row| {
        row.why.clear();
        row
    })
}

pub async fn a_worker_whose_lane_was_swept_is_stale_though_nobody_has_claimed_yet(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let stale = claim_one(&*store).await;
    world.advance(secs(65)).await;
    assert_eq!(sweep(&*store).await.reclaimed.len(), 1);
    refused(try_settle(&*store, &stale, SUCCEEDED).await, ErrorKind::LostLease);
    assert_eq!(claim_one(&*store).await.attempt, 2);
}

pub async fn a_token_that_was_never_given_is_refused(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    append_one(&*store, event("chat", "k2")).await;
    let batches = crate::builders::claim_all(&*store).await;
    let [one, two] = [&batches[0], &batches[1]];
    let with = |run_id, token| SettleRequest { run_id, token, ..settle_request(one, SUCCEEDED) };
    for (run_id, token) in [
        (one.run_id, two.token),
        (one.run_id, 0),
        (one.run_id, one.token + 1_000_000),
        (two.run_id, one.token),
        (RunId { lane: one.run_id.lane, number: two.run_id.number }, one.token),
        (RunId { lane: two.run_id.lane, number: one.run_id.number }, one.token),
        (RunId { lane: one.run_id.lane + 1_000_000, number: one.run_id.number }, one.token),
        (RunId { lane: one.run_id.lane, number: one.run_id.number + 1_000_000 }, one.token),
    ] {
        refused(store.settle(with(run_id, token)).await, ErrorKind::LostLease);
    }
    settle(&*store, one, SUCCEEDED).await;
    settle(&*store, two, SUCCEEDED).await;
}

/// Each verdict once, on a lane of its own, with the answer it got.
async fn one_of_each(store: &dyn Store) -> Vec<(Batch, Verdict, quell_core::store::Settled)> {
    let mut all = Vec::new();
    for (key, verdict, delay) in
        [("k1", SUCCEEDED, 0), ("k2", FAILED, 0), ("k3", RETRY, 1_000), ("k4", RELEASE, 0)]
    {
        append_one(store, event("chat", key)).await;
        let batch = claim_one(store).await;
        let settled = settle_after(store, &batch, verdict, secs(delay)).await;
        if verdict == RELEASE {
            // Held again by somebody else, so that the next lane is the only one due.
            claim_one(store).await;
        }
        all.push((batch, verdict, settled));
    }
    append_one(store, event("chat", "k5")).await;
    let once = RunPolicy { max_attempts: 1, ..policy() };
    let batch = claim(store, claim_request_by(&worker("w"), once)).await.batches.remove(0);
    let settled = settle_after(store, &batch, RETRY, secs(10)).await;
    assert_eq!(settled.state, RunState::Failed);
    all.push((batch, RETRY, settled));
    all
}

pub async fn a_repeated_settle_gets_the_same_answer(world: &dyn World) {
    let settled = one_of_each(&*world.store()).await;
    for round in 0..3 {
        let store = world.store();
        for (batch, verdict, first) in &settled {
            // The delay of a repetition is drawn anew by the caller: the first one counts.
            let request = SettleRequest { delay: secs(7_770), ..settle_request(batch, *verdict) };
            let again = store.settle(request).await.expect("the same answer");
            assert!(again.repeated);
            assert_eq!((again.state, again.next_at), (first.state, first.next_at), "{verdict:?}");
        }
        match round {
            0 => world.advance(secs(15)).await,
            _ => {
                drop(store);
                world.reopen().await;
            }
        }
    }
}

pub async fn a_settle_with_another_verdict_is_refused_as_already_settled(world: &dyn World) {
    let store = world.store();
    for (batch, verdict, _) in one_of_each(&*store).await {
        let before = trail_of(&*store, "chat", batch.lane.key.as_str()).await;
        for other in [SUCCEEDED, FAILED, RETRY, RELEASE] {
            let exhausted = batch.lane.key.as_str() == "k5" && other == RELEASE;
            if other == verdict || exhausted {
                continue;
            }
            refused(try_settle(&*store, &batch, other).await, ErrorKind::AlreadySettled);
        }
        assert_eq!(trail_of(&*store, "chat", batch.lane.key.as_str()).await, before);
    }
}

pub async fn a_repeated_settle_after_a_later_claim_gets_the_same_answer_and_disturbs_nobody(
    world: &dyn World,
) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let first = claim_one(&*store).await;
    let told = settle(&*store, &first, RETRY).await;
    let second = claim_one(&*store).await;
    let again = try_settle(&*store, &first, RETRY).await.expect("the same answer");
    assert_eq!((again.state, again.next_at, again.repeated), (told.state, told.next_at, true));
    refused(try_settle(&*store, &first, SUCCEEDED).await, ErrorKind::AlreadySettled);
    let row = lane_row(&*store, &first.lane).await.expect("it runs");
    assert_eq!((row.state, row.token), (Some(RunState::Running), Some(second.token)));
    settle(&*store, &second, SUCCEEDED).await;
    let again = try_settle(&*store, &first, RETRY).await.expect("the same answer");
    assert_eq!(again.state, RunState::Retryable, "the answer it got, not where the run is now");
}

pub async fn a_settlement_is_remembered_for_an_hour(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    settle(&*store, &batch, SUCCEEDED).await;
    world.advance(secs(3_500)).await;
    crate::builders::forget(&*store, secs(7 * 86_400)).await;
    assert!(try_settle(&*store, &batch, SUCCEEDED).await.expect("the same answer").repeated);
}

/// Rule 22: nothing else has happened to the lane, so refusing would only repeat work.
pub async fn an_expired_lease_that_nobody_took_back_may_still_be_settled(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    world.advance(secs(1_000)).await;
    assert_eq!(settle(&*store, &batch, SUCCEEDED).await.state, RunState::Succeeded);
}

pub async fn error_result_and_usage_are_kept_with_the_run(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    let usage = BTreeMap::from([("tokens".to_owned(), 12.5), ("cents".to_owned(), 0.1)]);
    let result = json!({ "answer": [1, "zwei", null], "big": 1.5e300 });
    let request = SettleRequest {
        result: Some(result.clone()),
        usage: usage.clone(),
        ..settle_request(&batch, SUCCEEDED)
    };
    store.settle(request).await.expect("done");
    drop(store);
    let store = world.reopen().await;
    let detail = run_detail(&*store, batch.run_id).await.expect("it is kept");
    assert_eq!((detail.result, detail.usage), (Some(result), usage));
}

pub async fn the_error_of_the_latest_attempt_is_shown_while_it_waits_and_is_gone_after_success(
    world: &dyn World,
) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    let request = SettleRequest { error: Some("model is down".into()), ..settle_request(&batch, RETRY) };
    store.settle(request).await.expect("done");
    let row = run_detail(&*store, batch.run_id).await.expect("it waits").row;
    assert_eq!((row.state, row.error.as_deref()), (RunState::Retryable, Some("model is down")));
    settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
    let row = run_detail(&*store, batch.run_id).await.expect("it is kept").row;
    assert_eq!((row.state, row.error), (RunState::Succeeded, None));
}

pub async fn a_settle_through_another_handle_counts_as_well(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    settle(&*other, &batch, SUCCEEDED).await;
    assert!(try_settle(&*store, &batch, SUCCEEDED).await.expect("the same answer").repeated);
}

pub async fn every_change_sets_updated_at_to_store_time(world: &dyn World) {
    let store = world.store();
    let key = lane("chat", "k1");
    let check = async |what: &str| {
        let now = health(&*store).await.now;
        let row = lane_row(&*store, &key).await.expect("the lane is there");
        assert_moment(world, row.updated_at, now, what);
        world.advance(secs(15)).await;
    };
    append_one(&*store, event("chat", "k1")).await;
    check("append").await;
    let batch = claim_one_as(&*store, &worker("w")).await;
    check("claim").await;
    crate::builders::extend(&*store, &batch, secs(60)).await;
    check("extend").await;
    settle_after(&*store, &batch, RETRY, secs(10)).await;
    check("settle").await;
}
