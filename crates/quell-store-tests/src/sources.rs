//! Outside parties with limits of their own: the rate, the breaker, kept answers, and the operator's hand on them.
//!
//! Rates are a few requests a minute, so that what passes by itself in a real store never makes a token.

use std::time::Duration;

use quell_core::batch::Batch;
use quell_core::clock::Timestamp;
use quell_core::error::ErrorKind;
use quell_core::inspect::{Inspect, Inspected, SourceFilter};
use quell_core::lifecycle::Change;
use quell_core::limits;
use quell_core::source::{
    Because, Breaker, FaultKind, SourceFault, SourceReport, SourceRules, SourceVerdict, Standing,
};
use quell_core::store::{ControlAction, SettleRequest, SourceAction, SourceAnswer, SourceScope, Store};
use quell_core::window::FiredBy;
use serde_json::json;

use crate::World;
use crate::builders::{
    FAILED, INTERRUPTED, LEASE, RELEASE, RETRY, SUCCEEDED, append, append_one, ask, ask_other, breaker,
    claim, claim_all, claim_by, claim_none, claim_one, claim_request, control, declare, event, event_in,
    extend, fault, gated, hold_at_head, ids, interrupting, keys, lane, lane_of, on_failed,
    other_source_request, policy, purge, rate, redrive, redrive_as_new, refused, retry_newer, secs, settle,
    settle_after, settle_request, settle_saying, source_name, source_request, source_scope, sweep, tenant,
    try_append, try_control, try_delete, worker,
};
use crate::reads::{assert_moment, lane_detail, run_detail, source_page, source_row, stats, trail_of};

/// One lane each for these keys, of a queue whose runs ask `shop`.
async fn lanes(store: &dyn Store, names: &[&str]) {
    append(store, names.iter().map(|key| event("q", key).queue_source("shop"))).await;
}

/// When the claim that finds nothing wants to look again.
async fn next_at(store: &dyn Store) -> Option<Timestamp> {
    let claimed = claim(store, claim_request(&worker("looks"))).await;
    assert!(claimed.batches.is_empty(), "nothing is due: {:?}", keys(&claimed.batches));
    claimed.next_at
}

async fn now(store: &dyn Store) -> Timestamp {
    match store.inspect(Inspect::Health).await.expect("reads are answered") {
        Inspected::Health(health) => health.now,
        other => panic!("not health: {other:?}"),
    }
}

/// A retry at once, with this word about the source.
async fn again(store: &dyn Store, batch: &Batch, report: SourceReport) {
    settle_saying(store, batch, RETRY, report).await;
}

/// Opens the breaker of `shop` (two faults) with lanes that are dead afterwards.
async fn open(store: &dyn Store, names: &[&str; 2]) {
    for key in names {
        lanes(store, &[key]).await;
        let batch = claim_one(store).await;
        settle_saying(store, &batch, FAILED, fault()).await;
    }
    let row = source_row(store, "", "shop").await;
    assert_eq!((row.breaker, row.failure_streak), (Breaker::Open, 2));
}

fn wished(seconds: u64) -> SourceReport {
    SourceReport::Fault(SourceFault::new(FaultKind::TooManyRequests).retry_after(secs(seconds)))
}

fn recall(key: &str) -> SourceAction {
    SourceAction::Recall { key: key.into(), ttl: None }
}

fn keep(key: &str, value: serde_json::Value) -> SourceAction {
    SourceAction::Keep { key: key.into(), value, ttl: None }
}

/// Two runs of `shop` at once.
async fn two(store: &dyn Store, rules: SourceRules) -> (Batch, Batch) {
    declare(store, "shop", rules).await;
    lanes(store, &["a", "b"]).await;
    let mut batches = claim_all(store).await;
    let second = batches.pop().expect("two lanes are due");
    (batches.pop().expect("two lanes are due"), second)
}

// The rate.

pub async fn no_more_lanes_are_handed_out_than_there_are_tokens(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", rate(1, 3)).await;
    lanes(store, &["a", "b", "c", "d", "e"]).await;
    assert_eq!(claim_all(store).await.len(), 3, "the burst");
    claim_none(store).await;
    world.advance(secs(50)).await;
    claim_none(store).await;
    world.advance(secs(20)).await;
    assert_eq!(claim_all(store).await.len(), 1, "one a minute");
    claim_none(store).await;
    assert_eq!(source_row(store, "", "shop").await.tokens, Some(0));
}

pub async fn a_rest_fills_the_bucket_up_to_the_burst_and_no_further(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", rate(6, 2)).await;
    world.advance(secs(3_600)).await;
    lanes(store, &["a", "b", "c", "d"]).await;
    assert_eq!(claim_all(store).await.len(), 2);
    assert_eq!(source_row(store, "", "shop").await.waiting, 2);
}

pub async fn a_lane_without_a_token_waits_without_worker_lease_or_attempt(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", rate(1, 1)).await;
    lanes(store, &["a"]).await;
    claim_one(store).await;
    lanes(store, &["b"]).await;
    claim_none(store).await;
    let waiting = lane_detail(store, &lane("q", "b")).await.expect("it waits");
    assert_eq!((waiting.row.worker, waiting.row.lease_until), (None, None));
    assert!(trail_of(store, "q", "b").await.is_empty(), "nothing has happened to it");
    world.advance(secs(70)).await;
    let batches = claim_all(store).await;
    let batch = batches.iter().find(|b| b.lane.key.as_str() == "b").expect("its token came");
    assert_eq!(batch.attempt, 1);
}

pub async fn lanes_of_other_sources_and_of_none_go_on(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", rate(1, 1)).await;
    declare(store, "bank", rate(1, 1)).await;
    lanes(store, &["a"]).await;
    claim_one(store).await;
    lanes(store, &["b", "c", "d"]).await;
    append(store, [event("q", "plain"), event("q", "banks").source("bank"), event("free", "x")]).await;
    assert_eq!(keys(&claim_all(store).await), ["banks", "plain", "x"]);
}

pub async fn next_at_is_the_next_token(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", rate(1, 1)).await;
    lanes(store, &["a"]).await;
    let batch = claim_one(store).await;
    settle(store, &batch, SUCCEEDED).await;
    lanes(store, &["b"]).await;
    let next = next_at(store).await.expect("a token will come");
    assert_moment(world, next, batch.claimed_at.after(secs(60)), "the next token");
    world.advance(secs(70)).await;
    claim_one(store).await;
}

pub async fn an_event_names_its_own_source_in_place_of_its_queues(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", rate(1, 1)).await;
    declare(store, "bank", rate(1, 1)).await;
    lanes(store, &["a"]).await;
    claim_one(store).await;
    append_one(store, event("q", "b").queue_source("shop").source("bank")).await;
    claim_one(store).await;
    assert_eq!(source_row(store, "", "bank").await.tokens, Some(0));
}

pub async fn every_attempt_takes_a_token(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", rate(1, 2)).await;
    lanes(store, &["a"]).await;
    again(store, &claim_one(store).await, SourceReport::Fine).await;
    again(store, &claim_one(store).await, SourceReport::Fine).await;
    claim_none(store).await;
    world.advance(secs(70)).await;
    assert_eq!(claim_one(store).await.attempt, 3);
}

pub async fn a_token_that_was_not_used_goes_back(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", rate(1, 1)).await;
    lanes(store, &["a"]).await;
    let batch = claim_one(store).await;
    lanes(store, &["b"]).await;
    claim_none(store).await;
    settle_saying(store, &batch, SUCCEEDED, SourceReport::Unused).await;
    let batch = claim_one(store).await;
    settle(store, &batch, SUCCEEDED).await;
    lanes(store, &["c"]).await;
    claim_none(store).await;
    let row = source_row(store, "", "shop").await;
    assert!(row.last_success_at.is_some_and(|at| at >= batch.claimed_at), "only the second one asked");
}

pub async fn a_token_that_comes_back_late_never_adds_to_a_bucket_that_was_filled_meanwhile(
    world: &dyn World,
) {
    let store = &*world.store();
    declare(store, "shop", rate(6, 2)).await;
    lanes(store, &["a", "b"]).await;
    let unused = claim_all(store).await;
    world.advance(secs(40)).await;
    lanes(store, &["c", "d", "e", "f", "g"]).await;
    assert_eq!(claim_all(store).await.len(), 2, "it is full again");
    for batch in &unused {
        settle_saying(store, batch, SUCCEEDED, SourceReport::Unused).await;
    }
    claim_none(store).await;
}

pub async fn a_repeated_settle_gives_nothing_back_twice(world: &dyn World) {
    let store = &*world.store();
    let (one, other) = two(store, rate(1, 2)).await;
    settle_saying(store, &one, SUCCEEDED, SourceReport::Unused).await;
    settle(store, &other, SUCCEEDED).await;
    lanes(store, &["c", "d"]).await;
    assert_eq!(claim_all(store).await.len(), 1);
    let request = SettleRequest { source: SourceReport::Unused, ..settle_request(&one, SUCCEEDED) };
    assert!(store.settle(request).await.expect("it is answered again").repeated);
    claim_none(store).await;
}

pub async fn a_holder_takes_a_token_for_each_further_request(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", rate(1, 3)).await;
    lanes(store, &["a"]).await;
    let batch = claim_one(store).await;
    assert_eq!(ask(store, &batch, SourceAction::Take).await, SourceAnswer::Taken);
    assert_eq!(ask(store, &batch, SourceAction::Take).await, SourceAnswer::Taken);
    match ask(store, &batch, SourceAction::Take).await {
        SourceAnswer::Wait { until, because: Because::RateLimited } => {
            assert_moment(world, until, batch.claimed_at.after(secs(60)), "the next token");
        }
        other => panic!("the bucket is empty: {other:?}"),
    }
    lanes(store, &["b"]).await;
    claim_none(store).await;
}

pub async fn a_run_that_waits_for_tokens_is_handed_back_without_end_and_burns_no_attempt(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", rate(1, 1)).await;
    lanes(store, &["a"]).await;
    for _ in 0..limits::REFUNDS_MAX + 3 {
        let batch = claim_one(store).await;
        assert_eq!(batch.attempt, 1);
        assert!(matches!(ask(store, &batch, SourceAction::Take).await, SourceAnswer::Wait { .. }));
        let settled = settle_saying(store, &batch, RELEASE, SourceReport::Starved).await;
        assert_eq!(settled.change, Change::Starved);
        claim_none(store).await;
        world.advance(secs(70)).await;
    }
}

pub async fn who_says_starved_and_is_not_is_handed_back_like_others(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", breaker(5)).await;
    lanes(store, &["a"]).await;
    for _ in 0..limits::REFUNDS_MAX {
        let batch = claim_one(store).await;
        settle_saying(store, &batch, RELEASE, SourceReport::Starved).await;
    }
    let batch = claim_one(store).await;
    let settled = settle_saying(store, &batch, RELEASE, SourceReport::Starved).await;
    assert_eq!(settled.change, Change::ReleasedCounted);
}

pub async fn only_the_holder_asks_anything_of_the_source(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", breaker(1)).await;
    lanes(store, &["a"]).await;
    let batch = claim_one(store).await;
    world.advance(LEASE + secs(10)).await;
    let next = claim_one(store).await;
    let actions = [
        SourceAction::Take,
        SourceAction::Report(SourceVerdict::Fault(SourceFault::new(FaultKind::TimeOut))),
        recall("k"),
        keep("k", json!(1)),
        SourceAction::Forget { key: "k".into() },
    ];
    for action in &actions {
        refused(store.source(source_request(&batch, action.clone())).await, ErrorKind::LostLease);
    }
    settle(store, &next, SUCCEEDED).await;
    for action in actions {
        refused(store.source(source_request(&next, action)).await, ErrorKind::LostLease);
    }
    let row = source_row(store, "", "shop").await;
    assert_eq!((row.breaker, row.cached), (Breaker::Closed, 0));
}

pub async fn a_run_without_a_source_is_not_governed(world: &dyn World) {
    let store = &*world.store();
    append_one(store, event("q", "a")).await;
    let batch = claim_one(store).await;
    assert_eq!(batch.source, None);
    assert_eq!(ask(store, &batch, SourceAction::Take).await, SourceAnswer::Taken);
    assert_eq!(ask(store, &batch, SourceAction::Report(SourceVerdict::Fine)).await, SourceAnswer::Noted);
    let refusal = refused(store.source(source_request(&batch, recall("k"))).await, ErrorKind::Invalid);
    assert!(refusal.detail.contains("names no source"), "{refusal}");
    settle_saying(store, &batch, FAILED, fault()).await;
}

// Batches.

pub async fn a_batch_is_the_longest_prefix_with_one_source(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", breaker(5)).await;
    declare(store, "bank", breaker(5)).await;
    let of = |id: &str, source: &str| event("q", "k").id(id).source(source).fixed(10);
    let plain = event("q", "k").id("e").fixed(10);
    append(store, [of("a", "shop"), of("b", "shop"), of("c", "bank"), of("d", "shop"), plain]).await;
    world.advance(secs(20)).await;
    for expected in [&["a", "b"][..], &["c"], &["d"], &["e"]] {
        let batch = claim_one(store).await;
        assert_eq!((ids(&batch), batch.fired_by), (expected.to_vec(), FiredBy::Fixed));
        settle(store, &batch, SUCCEEDED).await;
    }
    claim_none(store).await;
}

pub async fn what_is_left_of_another_source_waits_for_that_one(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", breaker(5)).await;
    declare(store, "bank", rate(1, 1)).await;
    append_one(store, event("q", "first").source("bank")).await;
    settle(store, &claim_one(store).await, SUCCEEDED).await;
    append(store, [event("q", "k").id("a").source("shop"), event("q", "k").id("b").source("bank")]).await;
    let batch = claim_one(store).await;
    assert_eq!(ids(&batch), ["a"]);
    settle(store, &batch, SUCCEEDED).await;
    claim_none(store).await;
    world.advance(secs(70)).await;
    assert_eq!(ids(&claim_one(store).await), ["b"]);
}

pub async fn a_retry_takes_in_newer_events_of_its_own_source_only(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", breaker(5)).await;
    declare(store, "bank", breaker(5)).await;
    let of = |id: &str, source: &str| event("q", "k").id(id).source(source);
    append_one(store, of("a", "shop")).await;
    again(store, &claim_by(store, &retry_newer()).await, SourceReport::Fine).await;
    append(store, [of("b", "shop"), of("c", "bank"), of("d", "shop")]).await;
    let batch = claim_by(store, &retry_newer()).await;
    assert_eq!(ids(&batch), ["a", "b"]);
    settle(store, &batch, SUCCEEDED).await;
    let batch = claim_by(store, &retry_newer()).await;
    assert_eq!(ids(&batch), ["c"]);
    again(store, &batch, SourceReport::Fine).await;
    let batch = claim_by(store, &retry_newer()).await;
    assert_eq!(ids(&batch), ["c"], "what is newer asks somebody else");
    settle(store, &batch, SUCCEEDED).await;
    assert_eq!(ids(&claim_one(store).await), ["d"]);
}

pub async fn a_run_does_not_give_way_to_events_of_another_source(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", breaker(5)).await;
    append_one(store, event("q", "k").id("a").source("shop")).await;
    let batch = claim_by(store, &interrupting(3)).await;
    append_one(store, event("q", "k").id("b")).await;
    assert!(!extend(store, &batch, LEASE).await.interrupt);
    let settled = settle_saying(store, &batch, INTERRUPTED, SourceReport::Fine).await;
    assert_eq!(settled.change, Change::Retried);
    let batch = claim_by(store, &gated(3)).await;
    assert_eq!(ids(&batch), ["a"]);
    append_one(store, event("q", "k").id("c").source("shop")).await;
    assert_eq!(hold_at_head(store, &batch).await, quell_core::store::HoldAnswer::Held);
    settle(store, &batch, SUCCEEDED).await;
}

pub async fn a_deleted_first_event_leaves_the_source_of_the_next(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", rate(1, 1)).await;
    declare(store, "bank", rate(1, 1)).await;
    lanes(store, &["x"]).await;
    claim_one(store).await;
    append(store, [event("q", "k").id("a").source("shop"), event("q", "k").id("b").source("bank")]).await;
    claim_none(store).await;
    try_delete(store, &lane("q", "k"), "a").await.expect("it is buffered");
    assert_eq!(ids(&claim_one(store).await), ["b"]);
    assert_eq!(source_row(store, "", "bank").await.tokens, Some(0));
}

pub async fn a_full_lane_that_drops_its_oldest_asks_the_source_of_what_stays(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", rate(1, 1)).await;
    declare(store, "bank", rate(1, 1)).await;
    lanes(store, &["x"]).await;
    claim_one(store).await;
    let small = |id: &str| event("q", "k").id(id).lane_events(1).drop_oldest();
    append_one(store, small("a").source("shop")).await;
    claim_none(store).await;
    append_one(store, small("b").source("bank")).await;
    assert_eq!(ids(&claim_one(store).await), ["b"]);
}

pub async fn a_redriven_run_keeps_its_source(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", rate(1, 2)).await;
    append(store, [event("q", "head").source("shop"), event("q", "new").source("shop")]).await;
    for batch in claim_all(store).await {
        settle(store, &batch, FAILED).await;
        if batch.lane.key.as_str() == "head" {
            redrive(store, batch.run_id).await;
        } else {
            redrive_as_new(store, batch.run_id).await;
        }
    }
    claim_none(store).await;
    world.advance(secs(70)).await;
    assert_eq!(claim_all(store).await.len(), 1);
    world.advance(secs(60)).await;
    assert_eq!(source_row(store, "", "shop").await.tokens, Some(1));
}

pub async fn events_of_several_sources_are_redriven_as_new_and_not_at_the_head(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", breaker(5)).await;
    append(
        store,
        [event("q", "k").id("a").source("shop").quiet(3_600), event("q", "k").id("b").quiet(3_600)],
    )
    .await;
    purge(store, "q", quell_core::store::PurgeWhat::Buffered).await;
    let purged = trail_of(store, "q", "k").await.pop().and_then(|r| r.run).expect("the purge is recorded");
    let at_head = crate::builders::redrive_request(purged, quell_core::store::RedriveTo::Head);
    let refusal = refused(try_control(store, ControlAction::Redrive(at_head)).await, ErrorKind::Invalid);
    assert!(refusal.detail.contains("different sources"), "{refusal}");
    assert_eq!(redrive_as_new(store, purged).await.events, 2);
    let batch = claim_one(store).await;
    assert_eq!(ids(&batch), ["a"]);
    settle(store, &batch, SUCCEEDED).await;
    assert_eq!(ids(&claim_one(store).await), ["b"]);
}

pub async fn both_halves_of_a_run_ask_its_source(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", rate(1, 1)).await;
    append(store, ["a", "b"].map(|id| event("q", "k").id(id).source("shop"))).await;
    let bisect = on_failed(quell_core::lane::OnFailed::Bisect);
    let batch = claim_by(store, &bisect).await;
    settle(store, &batch, FAILED).await;
    for half in ["a", "b"] {
        claim_none(store).await;
        world.advance(secs(70)).await;
        let batch = claim_by(store, &bisect).await;
        assert_eq!(ids(&batch), [half]);
        settle(store, &batch, SUCCEEDED).await;
    }
}

pub async fn a_delayed_event_meets_its_source_when_it_enters(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", rate(1, 1)).await;
    append_one(store, event("q", "late").source("shop").delay(50)).await;
    world.advance(secs(40)).await;
    lanes(store, &["a"]).await;
    claim_one(store).await;
    world.advance(secs(20)).await;
    claim_none(store).await;
    world.advance(secs(50)).await;
    let batches = claim_all(store).await;
    assert!(keys(&batches).contains(&"late"), "{:?}", keys(&batches));
}

pub async fn a_delayed_event_whose_source_was_removed_is_held_and_not_lost(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", breaker(5)).await;
    append_one(store, event("q", "late").of("acme").source("shop").delay(50)).await;
    control(store, ControlAction::RemoveSource { name: source_name("shop") }).await;
    world.advance(secs(60)).await;
    claim_none(store).await;
    let waiting = lane_detail(store, &lane_of("acme", "q", "late")).await.expect("it entered").waiting.source;
    assert_eq!(waiting.map(|w| w.because), Some(Because::Removed));
    declare(store, "shop", breaker(5)).await;
    claim_one(store).await;
}

pub async fn follow_up_work_of_an_unknown_source_is_held_and_not_lost(world: &dyn World) {
    let store = &*world.store();
    append_one(store, event("q", "a")).await;
    let batch = claim_one(store).await;
    let events = vec![event("then", "b").source("nobody").build()];
    let request = SettleRequest { events, ..settle_request(&batch, SUCCEEDED) };
    store.settle(request).await.expect("the end of a run is not refused for what comes after it");
    claim_none(store).await;
    let row = source_row(store, "", "nobody").await;
    assert_eq!((row.standing, row.waiting), (Standing::Removed, 1));
    let scope = source_scope("nobody");
    control(store, ControlAction::ReleaseSource(scope)).await;
    assert_eq!(keys(&claim_all(store).await), ["b"]);
}

pub async fn an_unknown_source_is_refused_and_nothing_is_stored(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", breaker(5)).await;
    for bad in [event("q", "b").source("shop2"), event("q", "b").queue_source("shop2").delay(10)] {
        let refusal = refused(try_append(store, [event("q", "a"), bad]).await, ErrorKind::Invalid);
        assert!(refusal.detail.contains("shop2") && refusal.detail.contains("[sources.shop2]"), "{refusal}");
    }
    assert!(stats(store).await.iter().all(|row| row.totals.accepted == 0));
    claim_none(store).await;
    control(store, ControlAction::RemoveSource { name: source_name("shop") }).await;
    refused(try_append(store, [event("q", "a").source("shop")]).await, ErrorKind::Invalid);
}

// The breaker.

pub async fn the_breaker_opens_after_so_many_faults_in_a_row(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", breaker(5)).await;
    lanes(store, &["a", "b", "c", "d", "e", "f", "g", "h"]).await;
    let batches = claim_all(store).await;
    for batch in &batches[..4] {
        settle_saying(store, batch, FAILED, fault()).await;
    }
    settle_saying(store, &batches[4], FAILED, SourceReport::Fine).await;
    assert_eq!(source_row(store, "", "shop").await.failure_streak, 0, "another error says that it is there");
    lanes(store, &["i", "j", "k"]).await;
    let more = claim_all(store).await;
    for batch in batches[5..].iter().chain(&more[..1]) {
        settle_saying(store, batch, FAILED, fault()).await;
    }
    let row = source_row(store, "", "shop").await;
    assert_eq!((row.breaker, row.failure_streak, row.paused_until), (Breaker::Closed, 4, None));
    lanes(store, &["waits"]).await;
    settle_saying(store, &more[1], FAILED, fault()).await;
    let row = source_row(store, "", "shop").await;
    assert_eq!((row.breaker, row.failure_streak), (Breaker::Open, 5));
    let failed = row.last_failure_at.expect("it was recorded");
    assert_eq!(row.paused_until, Some(failed.after(secs(100))));
    claim_none(store).await;
    settle(store, &more[2], SUCCEEDED).await;
    assert_eq!(next_at(store).await, row.paused_until, "who began before says nothing of it now");
}

pub async fn an_open_breaker_holds_its_lanes_and_burns_nothing(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", breaker(2)).await;
    open(store, &["x", "y"]).await;
    lanes(store, &["a", "b"]).await;
    let opened = source_row(store, "", "shop").await;
    assert_eq!(next_at(store).await, opened.paused_until, "the cooldown is the time to look again");
    world.advance(secs(90)).await;
    claim_none(store).await;
    assert!(trail_of(store, "q", "a").await.is_empty());
}

pub async fn a_half_open_breaker_lets_one_lane_go_and_a_good_answer_closes_it(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", breaker(2)).await;
    open(store, &["x", "y"]).await;
    lanes(store, &["a", "b", "c"]).await;
    world.advance(secs(110)).await;
    let probe = claim_one(store).await;
    let row = source_row(store, "", "shop").await;
    assert_eq!((row.breaker, row.probe), (Breaker::HalfOpen, Some(probe.run_id)));
    let next = next_at(store).await.expect("the right to probe ends");
    assert_eq!(next, probe.lease_until);
    settle(store, &probe, SUCCEEDED).await;
    let row = source_row(store, "", "shop").await;
    assert_eq!((row.breaker, row.failure_streak, row.paused_until), (Breaker::Closed, 0, None));
    assert_eq!(claim_all(store).await.len(), 2);
}

pub async fn a_faulty_probe_renews_the_cooldown_and_burns_no_attempt(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", breaker(2)).await;
    open(store, &["x", "y"]).await;
    lanes(store, &["a"]).await;
    for _ in 0..5 {
        world.advance(secs(110)).await;
        let probe = claim_one(store).await;
        assert_eq!(probe.attempt, 1, "the queue allows three");
        let settled = settle_saying(store, &probe, RETRY, fault()).await;
        assert_eq!(settled.change, Change::ProbeFaulted);
        let row = source_row(store, "", "shop").await;
        assert_eq!(row.breaker, Breaker::Open);
        assert_eq!(row.paused_until, row.last_failure_at.map(|at| at.after(secs(100))));
        claim_none(store).await;
    }
    world.advance(secs(110)).await;
    assert_eq!(claim_one(store).await.attempt, 1);
}

pub async fn a_faulty_probe_that_says_failed_has_failed(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", breaker(2)).await;
    open(store, &["x", "y"]).await;
    lanes(store, &["a"]).await;
    world.advance(secs(110)).await;
    let probe = claim_one(store).await;
    let settled = settle_saying(store, &probe, FAILED, fault()).await;
    assert_eq!(settled.change, Change::Failed);
    assert_eq!(source_row(store, "", "shop").await.breaker, Breaker::Open);
}

pub async fn a_probe_that_dies_frees_its_place_and_is_no_verdict(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", breaker(2)).await;
    open(store, &["x", "y"]).await;
    lanes(store, &["a", "b"]).await;
    world.advance(secs(110)).await;
    let died = claim_one(store).await;
    world.advance(LEASE + secs(10)).await;
    assert_eq!(sweep(store).await.reclaimed.len(), 1);
    let row = source_row(store, "", "shop").await;
    assert_eq!((row.breaker, row.failure_streak, row.probe), (Breaker::HalfOpen, 2, None));
    let next = claim_one(store).await;
    assert_ne!(next.token, died.token);
    settle(store, &next, SUCCEEDED).await;
    assert_eq!(source_row(store, "", "shop").await.breaker, Breaker::Closed);
}

pub async fn a_probe_keeps_its_place_as_long_as_it_keeps_its_lease(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", breaker(2)).await;
    open(store, &["x", "y"]).await;
    lanes(store, &["a", "b"]).await;
    world.advance(secs(110)).await;
    let probe = claim_one(store).await;
    for _ in 0..3 {
        world.advance(secs(40)).await;
        extend(store, &probe, LEASE).await;
        claim_none(store).await;
    }
    settle_saying(store, &probe, RETRY, fault()).await;
    assert_eq!(source_row(store, "", "shop").await.breaker, Breaker::Open);
}

pub async fn only_the_probes_verdict_moves_a_breaker_that_is_not_closed(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", breaker(2)).await;
    lanes(store, &["old1", "old2", "old3"]).await;
    let mut before = claim_all(store).await;
    for batch in &before {
        extend(store, batch, secs(3_600)).await;
    }
    open(store, &["x", "y"]).await;
    let opened = source_row(store, "", "shop").await.paused_until;
    settle(store, &before.pop().expect("three"), SUCCEEDED).await;
    let row = source_row(store, "", "shop").await;
    assert_eq!((row.breaker, row.paused_until, row.failure_streak), (Breaker::Open, opened, 2));
    lanes(store, &["a", "b"]).await;
    world.advance(secs(110)).await;
    let probe = claim_one(store).await;
    settle(store, &before.pop().expect("three"), SUCCEEDED).await;
    settle_saying(store, &before.pop().expect("three"), FAILED, fault()).await;
    let row = source_row(store, "", "shop").await;
    assert_eq!((row.breaker, row.probe, row.paused_until), (Breaker::HalfOpen, Some(probe.run_id), opened));
    claim_none(store).await;
    settle(store, &probe, SUCCEEDED).await;
    claim_one(store).await;
}

pub async fn a_probe_that_is_handed_back_or_made_no_request_frees_its_place(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", breaker(2)).await;
    open(store, &["x", "y"]).await;
    lanes(store, &["a"]).await;
    world.advance(secs(110)).await;
    let ends =
        [(RELEASE, SourceReport::Fine), (RETRY, SourceReport::Unused), (RETRY, SourceReport::Reported)];
    for (verdict, report) in ends {
        let probe = claim_one(store).await;
        settle_saying(store, &probe, verdict, report).await;
        let row = source_row(store, "", "shop").await;
        assert_eq!((row.breaker, row.probe, row.failure_streak), (Breaker::HalfOpen, None, 2));
    }
}

pub async fn requests_that_were_reported_by_themselves_are_not_counted_again_at_the_end(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", breaker(2)).await;
    lanes(store, &["a"]).await;
    let batch = claim_one(store).await;
    let faulty = SourceAction::Report(SourceVerdict::Fault(SourceFault::new(FaultKind::Connection)));
    ask(store, &batch, faulty.clone()).await;
    settle_saying(store, &batch, RETRY, SourceReport::Reported).await;
    assert_eq!(source_row(store, "", "shop").await.failure_streak, 1);
    let batch = claim_one(store).await;
    ask(store, &batch, faulty.clone()).await;
    assert_eq!(source_row(store, "", "shop").await.breaker, Breaker::Open);
    let answer = ask(store, &batch, SourceAction::Take).await;
    assert!(matches!(answer, SourceAnswer::Wait { because: Because::BreakerOpen, .. }), "{answer:?}");
    settle_saying(store, &batch, RETRY, SourceReport::Reported).await;
    world.advance(secs(110)).await;
    let probe = claim_one(store).await;
    assert_eq!(probe.attempt, 3);
    ask(store, &probe, faulty).await;
    let settled = settle_saying(store, &probe, RETRY, SourceReport::Reported).await;
    assert_eq!(settled.change, Change::ProbeFaulted, "the last attempt was a probe and is refunded");
    world.advance(secs(110)).await;
    let probe = claim_one(store).await;
    ask(store, &probe, SourceAction::Report(SourceVerdict::Fine)).await;
    assert_eq!(source_row(store, "", "shop").await.breaker, Breaker::Closed);
    assert_eq!(ask(store, &probe, SourceAction::Take).await, SourceAnswer::Taken);
    let settled = settle_saying(store, &probe, RETRY, SourceReport::Reported).await;
    assert_eq!(settled.change, Change::Exhausted, "it was a probe no longer");
}

pub async fn a_wish_to_be_left_alone_is_honoured_and_bounded(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", breaker(5)).await;
    lanes(store, &["a", "b"]).await;
    let batches = claim_all(store).await;
    settle_saying(store, &batches[0], FAILED, wished(300)).await;
    let row = source_row(store, "", "shop").await;
    let failed = row.last_failure_at.expect("it was recorded");
    assert_eq!(row.not_before, Some(failed.after(secs(300))));
    let answer = ask(store, &batches[1], SourceAction::Take).await;
    assert!(matches!(answer, SourceAnswer::Wait { because: Because::RetryAfter, .. }), "{answer:?}");
    settle_saying(store, &batches[1], FAILED, wished(10)).await;
    assert_eq!(
        source_row(store, "", "shop").await.not_before,
        row.not_before,
        "a shorter wish changes nothing"
    );
    lanes(store, &["c"]).await;
    assert_eq!(next_at(store).await, row.not_before);
    world.advance(secs(310)).await;
    let batch = claim_one(store).await;
    settle_saying(store, &batch, FAILED, wished(3_600 * 24 * 365)).await;
    let row = source_row(store, "", "shop").await;
    let most = row.last_failure_at.map(|at| at.after(limits::SOURCE_RETRY_AFTER_MAX));
    assert_eq!(row.not_before, most);
}

// The operator's hand.

pub async fn a_disabled_source_holds_its_lanes_and_enabling_lets_them_go(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", breaker(5)).await;
    lanes(store, &["a", "b"]).await;
    let running =
        claim(store, quell_core::store::ClaimRequest { max: 1, ..claim_request(&worker("w")) }).await;
    assert!(control(store, ControlAction::DisableSource(source_scope("shop"))).await.changed);
    assert!(!control(store, ControlAction::DisableSource(source_scope("shop"))).await.changed);
    let batch = &running.batches[0];
    assert_eq!(ask(store, batch, SourceAction::Take).await, SourceAnswer::Taken, "a running attempt goes on");
    settle(store, batch, SUCCEEDED).await;
    assert_eq!(next_at(store).await, None, "nobody knows when");
    world.advance(secs(3_600)).await;
    claim_none(store).await;
    let row = source_row(store, "", "shop").await;
    assert_eq!((row.enabled, row.standing), (false, Standing::Disabled));
    assert_eq!(row.changed_by.as_deref(), Some("ada"));
    assert!(control(store, ControlAction::EnableSource(source_scope("shop"))).await.changed);
    assert_eq!(claim_one(store).await.attempt, 1);
}

pub async fn a_listener_hears_that_a_source_lets_go(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", rate(1, 1)).await;
    control(store, ControlAction::DisableSource(source_scope("shop"))).await;
    lanes(store, &["a"]).await;
    claim_none(store).await;
    let other = world.another().await;
    let mut listener = other.wakeups();
    control(store, ControlAction::EnableSource(source_scope("shop"))).await;
    tokio::time::timeout(secs(10), listener.woken()).await.expect("it is heard");
    let batch = claim_one(store).await;
    lanes(store, &["b"]).await;
    claim_none(store).await;
    let mut listener = other.wakeups();
    settle_saying(store, &batch, SUCCEEDED, SourceReport::Unused).await;
    tokio::time::timeout(secs(10), listener.woken()).await.expect("a token that comes back is heard");
    claim_one(store).await;
    lanes(store, &["c"]).await;
    claim_none(store).await;
    let mut listener = other.wakeups();
    control(store, ControlAction::ResetSource(source_scope("shop"))).await;
    tokio::time::timeout(secs(10), listener.woken()).await.expect("a full bucket is heard");
    claim_one(store).await;
}

pub async fn a_removed_source_holds_its_lanes_until_it_is_declared_again_or_released(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", rate(1, 1)).await;
    lanes(store, &["a", "b", "c"]).await;
    refused(try_control(store, ControlAction::ReleaseSource(source_scope("shop"))).await, ErrorKind::Invalid);
    settle(store, &claim_one(store).await, SUCCEEDED).await;
    assert!(control(store, ControlAction::RemoveSource { name: source_name("shop") }).await.changed);
    world.advance(secs(3_600)).await;
    assert_eq!(next_at(store).await, None);
    refused(try_control(store, ControlAction::EnableSource(source_scope("shop"))).await, ErrorKind::NotFound);
    declare(store, "shop", rate(1, 1)).await;
    settle(store, &claim_one(store).await, SUCCEEDED).await;
    claim_none(store).await;
    control(store, ControlAction::RemoveSource { name: source_name("shop") }).await;
    claim_none(store).await;
    assert!(control(store, ControlAction::ReleaseSource(source_scope("shop"))).await.changed);
    let batch = claim_one(store).await;
    assert_eq!(ask(store, &batch, SourceAction::Take).await, SourceAnswer::Taken, "nothing governs it");
    for _ in 0..3 {
        ask(store, &batch, SourceAction::Report(SourceVerdict::Fault(SourceFault::new(FaultKind::Other))))
            .await;
    }
    again(store, &batch, fault()).await;
    claim_one(store).await;
}

pub async fn a_reset_closes_fills_and_forgets(world: &dyn World) {
    let store = &*world.store();
    let (one, other) = two(store, rate(1, 2)).await;
    ask(store, &one, keep("k", json!(1))).await;
    settle_saying(store, &one, FAILED, wished(3_600)).await;
    settle_saying(store, &other, FAILED, fault()).await;
    lanes(store, &["c"]).await;
    claim_none(store).await;
    assert!(control(store, ControlAction::ResetSource(source_scope("shop"))).await.changed);
    let row = source_row(store, "", "shop").await;
    assert_eq!((row.breaker, row.failure_streak, row.tokens), (Breaker::Closed, 0, Some(2)));
    assert_eq!((row.not_before, row.cached), (None, 0));
    let batch = claim_one(store).await;
    assert!(matches!(ask(store, &batch, recall("k")).await, SourceAnswer::Fetch { .. }));
}

pub async fn a_changed_rate_concerns_the_future_only(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", rate(1, 2)).await;
    assert!(!declare(store, "shop", rate(1, 2)).await.changed, "nothing changed");
    lanes(store, &["a", "b", "c", "d", "e", "f"]).await;
    assert_eq!(claim_all(store).await.len(), 2);
    assert!(declare(store, "shop", rate(6, 5)).await.changed);
    claim_none(store).await;
    world.advance(secs(15)).await;
    assert_eq!(claim_all(store).await.len(), 1, "ten seconds a token now");
    declare(store, "shop", SourceRules { per_minute: None, ..rate(1, 1) }).await;
    assert_eq!(claim_all(store).await.len(), 3, "no limit any more");
}

pub async fn impossible_rules_are_refused(world: &dyn World) {
    let store = &*world.store();
    let good = rate(60, 5);
    let bad = [
        (SourceRules { per_minute: Some(0), ..good }, "0 requests per minute"),
        (SourceRules { burst: 0, ..good }, "burst of 0"),
        (SourceRules { failures: 0, ..good }, "after 0 failures"),
        (SourceRules { cooldown: Duration::ZERO, ..good }, "cooldown"),
        (SourceRules { cache_ttl: Some(Duration::ZERO), ..good }, "disable the cache"),
    ];
    for (rules, text) in bad {
        let action = ControlAction::PutSource { name: source_name("shop"), rules };
        let refusal = refused(try_control(store, action).await, ErrorKind::Invalid);
        assert!(refusal.detail.contains(text), "{refusal}");
    }
    assert!(source_page(store, SourceFilter::default()).await.items.is_empty());
}

pub async fn two_tenants_have_two_buckets_and_two_breakers(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", SourceRules { per_minute: Some(1), burst: 1, ..breaker(1) }).await;
    let of = |tenant: &str, key: &str| event_in(lane_of(tenant, "q", key)).source("shop");
    append(store, [of("acme", "a"), of("acme", "b"), of("bond", "a"), of("bond", "b")]).await;
    let batches = claim_all(store).await;
    assert_eq!(batches.len(), 2, "one each");
    assert_eq!(batches[0].lane.tenant, tenant("acme"));
    settle_saying(store, &batches[0], FAILED, fault()).await;
    settle(store, &batches[1], SUCCEEDED).await;
    assert_eq!(source_row(store, "acme", "shop").await.breaker, Breaker::Open);
    assert_eq!(source_row(store, "bond", "shop").await.breaker, Breaker::Closed);
    world.advance(secs(70)).await;
    assert_eq!(claim_one(store).await.lane, lane_of("bond", "q", "b"));
    let scope = SourceScope { tenant: tenant("bond"), name: source_name("shop") };
    control(store, ControlAction::DisableSource(scope)).await;
    assert!(source_row(store, "acme", "shop").await.enabled);
    let nobody = SourceScope { tenant: tenant("bond"), name: source_name("other") };
    refused(try_control(store, ControlAction::DisableSource(nobody)).await, ErrorKind::NotFound);
}

pub async fn a_shared_source_is_one_for_all_tenants(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", SourceRules { shared: true, ..rate(1, 1) }).await;
    let of = |tenant: &str| event_in(lane_of(tenant, "q", "k")).source("shop");
    append(store, [of("acme"), of("bond"), of("")]).await;
    let batch = claim_one(store).await;
    claim_none(store).await;
    let rows = source_page(store, SourceFilter::default()).await.items;
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].tenant.as_str(), rows[0].waiting), ("", 2));
    settle(store, &batch, SUCCEEDED).await;
    world.advance(secs(70)).await;
    claim_one(store).await;
    let theirs = SourceScope { tenant: tenant("acme"), name: source_name("shop") };
    refused(try_control(store, ControlAction::DisableSource(theirs)).await, ErrorKind::NotFound);
}

pub async fn a_shared_source_stays_one_while_it_is_not_declared(world: &dyn World) {
    let store = &*world.store();
    let shared = SourceRules { shared: true, ..rate(1, 1) };
    declare(store, "shop", shared).await;
    let of = |tenant: &str| event_in(lane_of(tenant, "q", "k")).source("shop");
    append(store, [of("acme").delay(10), of("bond").delay(10)]).await;
    control(store, ControlAction::RemoveSource { name: source_name("shop") }).await;
    world.advance(secs(20)).await;
    // They enter now, and nobody declares their source.
    claim_none(store).await;
    declare(store, "shop", shared).await;
    claim_one(store).await;
    claim_none(store).await;
    let rows = source_page(store, SourceFilter::default()).await.items;
    assert_eq!((rows.len(), rows[0].tenant.as_str(), rows[0].waiting), (1, "", 1));
}

pub async fn sources_are_listed_by_name_and_tenant_page_by_page(world: &dyn World) {
    let store = &*world.store();
    for name in ["c", "a", "b"] {
        declare(store, name, rate(1, 7)).await;
    }
    append(store, ["acme", "bond"].map(|t| event_in(lane_of(t, "q", "k")).source("b"))).await;
    let mut filter = SourceFilter { limit: 2, ..SourceFilter::default() };
    let mut all = Vec::new();
    loop {
        let page = source_page(store, filter.clone()).await;
        assert!(page.items.len() <= 2);
        all.extend(page.items.into_iter().map(|r| (r.name.to_string(), r.tenant.to_string(), r.tokens)));
        filter.cursor = page.next;
        if filter.cursor.is_none() {
            break;
        }
    }
    let row = |name: &str, tenant: &str| (name.to_owned(), tenant.to_owned(), Some(7));
    assert_eq!(all, [row("a", ""), row("b", ""), row("b", "acme"), row("b", "bond"), row("c", "")]);
}

pub async fn why_a_lane_waits_names_the_source_and_until_when(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", rate(1, 1)).await;
    let why = async |key: &str| {
        let detail = lane_detail(store, &lane("q", key)).await.expect("it waits");
        (detail.waiting.source, detail.row.why)
    };
    lanes(store, &["a"]).await;
    assert_eq!(why("a").await.0, None, "it could go");
    let batch = claim_one(store).await;
    assert_eq!(why("a").await.0, None, "it goes");
    lanes(store, &["b"]).await;
    let (waiting, sentence) = why("b").await;
    let waiting = waiting.expect("it waits for a token");
    assert_eq!((waiting.name, waiting.because), (source_name("shop"), Because::RateLimited));
    let until = waiting.until.expect("it is known when");
    assert_moment(world, until, batch.claimed_at.after(secs(60)), "the next token");
    assert!(sentence.contains("source shop is rate limited for "), "{sentence}");
    settle_saying(store, &batch, FAILED, wished(600)).await;
    let (waiting, sentence) = why("b").await;
    assert_eq!(waiting.map(|w| w.because), Some(Because::RetryAfter), "{sentence}");
    control(store, ControlAction::DisableSource(source_scope("shop"))).await;
    let (waiting, sentence) = why("b").await;
    assert_eq!(waiting.and_then(|w| w.until), None);
    assert!(sentence.contains("source shop is disabled by ada"), "{sentence}");
    append_one(store, event("q", "c").queue_source("shop").quiet(600)).await;
    control(store, ControlAction::EnableSource(source_scope("shop"))).await;
    control(store, ControlAction::ResetSource(source_scope("shop"))).await;
    assert_eq!(why("c").await.0, None, "only its window");
}

pub async fn a_flush_does_not_pass_a_source(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", rate(1, 1)).await;
    lanes(store, &["a"]).await;
    let batch = claim_one(store).await;
    settle_after(store, &batch, RETRY, secs(600)).await;
    append_one(store, event("q", "b").queue_source("shop").quiet(600)).await;
    control(store, ControlAction::Flush(lane("q", "a"))).await;
    control(store, ControlAction::Flush(lane("q", "b"))).await;
    claim_none(store).await;
    world.advance(secs(70)).await;
    claim_one(store).await;
    claim_none(store).await;
}

pub async fn sources_and_their_state_survive_a_restart(world: &dyn World) {
    {
        let store = &*world.store();
        declare(store, "shop", rate(1, 1)).await;
        lanes(store, &["a", "b"]).await;
        let batch = claim_one(store).await;
        ask(store, &batch, keep("k", json!({ "price": 7 }))).await;
        settle_saying(store, &batch, SUCCEEDED, fault()).await;
    }
    let store = &*world.reopen().await;
    let row = source_row(store, "", "shop").await;
    assert_eq!((row.failure_streak, row.tokens, row.cached, row.waiting), (1, Some(0), 1, 1));
    claim_none(store).await;
    refused(try_append(store, [event("q", "c").source("other")]).await, ErrorKind::Invalid);
    world.advance(secs(70)).await;
    let batch = claim_one(store).await;
    assert_eq!(ask(store, &batch, recall("k")).await, SourceAnswer::Hit(json!({ "price": 7 })));
}

pub async fn claimers_that_race_never_exceed_the_limit(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", rate(1, 5)).await;
    append(store, (0..40).map(|n| event("q", &format!("k{n}")).queue_source("shop"))).await;
    let mut tasks = Vec::new();
    for n in 0..6 {
        let store = if n % 2 == 0 { world.store() } else { world.another().await };
        tasks.push(tokio::spawn(async move {
            let mut got = 0;
            for _ in 0..4 {
                got += claim_all(&*store).await.len();
            }
            got
        }));
    }
    let mut got = 0;
    for task in tasks {
        got += task.await.expect("no task panics");
    }
    assert_eq!(got, 5);
    assert_eq!(source_row(store, "", "shop").await.waiting, 35);
}

// Another source than the run's own: `shop` governs the runs, `post` is asked beside it.

const TIMED_OUT: SourceAction =
    SourceAction::Report(SourceVerdict::Fault(SourceFault { kind: FaultKind::TimeOut, retry_after: None }));
const FINE: SourceAction = SourceAction::Report(SourceVerdict::Fine);

async fn take_post(store: &dyn Store, batch: &Batch) -> SourceAnswer {
    ask_other(store, batch, "post", SourceAction::Take).await
}

/// It has to wait, and why.
#[track_caller]
fn waits(answer: &SourceAnswer, expected: Because) -> Timestamp {
    match answer {
        SourceAnswer::Wait { until, because } if *because == expected => *until,
        other => panic!("not {expected:?}: {other:?}"),
    }
}

/// Two runs of `shop`, whose leases last, and a `post` of which nobody has heard yet.
async fn two_that_send(store: &dyn Store, post: SourceRules) -> (Batch, Batch) {
    declare(store, "post", post).await;
    let (one, other) = two(store, breaker(2)).await;
    for batch in [&one, &other] {
        extend(store, batch, secs(3_600)).await;
    }
    (one, other)
}

/// The same with `post` half-open.
async fn two_at_a_half_open_one(world: &dyn World, store: &dyn Store) -> (Batch, Batch) {
    let (one, other) = two_that_send(store, breaker(2)).await;
    for batch in [&one, &other] {
        assert_eq!(ask_other(store, batch, "post", TIMED_OUT).await, SourceAnswer::Noted);
    }
    let until = waits(&take_post(store, &one).await, Because::BreakerOpen);
    assert_moment(world, until, now(store).await.after(secs(100)), "the cooldown");
    world.advance(secs(110)).await;
    (one, other)
}

pub async fn a_run_asks_another_source_by_that_ones_limit(world: &dyn World) {
    let store = &*world.store();
    let (one, other) = two_that_send(store, rate(1, 2)).await;
    let elsewhere = world.another().await;
    assert_eq!(take_post(store, &one).await, SourceAnswer::Taken);
    assert_eq!(take_post(&*elsewhere, &other).await, SourceAnswer::Taken);
    let until = waits(&take_post(store, &one).await, Because::RateLimited);
    assert_moment(world, until, now(store).await.after(secs(60)), "the next token");
    waits(&take_post(&*elsewhere, &other).await, Because::RateLimited);
    world.advance(secs(70)).await;
    assert_eq!(take_post(store, &other).await, SourceAnswer::Taken);
    waits(&take_post(store, &one).await, Because::RateLimited);
    let wish = SourceFault::new(FaultKind::TooManyRequests).retry_after(secs(600));
    let wish = SourceAction::Report(SourceVerdict::Fault(wish));
    ask_other(store, &one, "post", wish).await;
    world.advance(secs(120)).await;
    waits(&take_post(&*elsewhere, &other).await, Because::RetryAfter);
}

pub async fn the_limit_of_another_source_holds_for_its_lanes_too(world: &dyn World) {
    let store = &*world.store();
    let (one, _) = two_that_send(store, rate(1, 1)).await;
    assert_eq!(take_post(store, &one).await, SourceAnswer::Taken);
    append_one(store, event("q", "letter").source("post")).await;
    claim_none(store).await;
    world.advance(secs(70)).await;
    assert_eq!(claim_one(store).await.lane, lane("q", "letter"));
    waits(&take_post(store, &one).await, Because::RateLimited);
}

pub async fn holders_that_race_for_another_source_never_exceed_its_limit(world: &dyn World) {
    let store = &*world.store();
    declare(store, "post", rate(1, 5)).await;
    // Of a tenant, so that the source is made by those who race.
    append(store, (0..6).map(|n| event_in(lane_of("acme", "q", &format!("k{n}"))))).await;
    let mut tasks = Vec::new();
    for (n, batch) in claim_all(store).await.into_iter().enumerate() {
        let store = if n % 2 == 0 { world.store() } else { world.another().await };
        tasks.push(tokio::spawn(async move {
            let mut got = 0;
            for _ in 0..3 {
                got += u32::from(take_post(&*store, &batch).await == SourceAnswer::Taken);
            }
            got
        }));
    }
    let mut got = 0;
    for task in tasks {
        got += task.await.expect("no task panics");
    }
    assert_eq!(got, 5);
    assert_eq!(source_row(store, "acme", "post").await.tokens, Some(0));
}

pub async fn faults_of_another_source_open_its_breaker_and_a_probe_closes_it(world: &dyn World) {
    let store = &*world.store();
    let (one, other) = two_at_a_half_open_one(world, store).await;
    append_one(store, event("q", "letter").source("post")).await;
    assert_eq!(take_post(store, &one).await, SourceAnswer::Taken, "nobody else is trying it");
    waits(&take_post(store, &other).await, Because::Probing);
    claim_none(store).await;
    assert_eq!(take_post(store, &one).await, SourceAnswer::Taken, "the probe may ask again");
    ask_other(store, &other, "post", FINE).await;
    assert_eq!(
        source_row(store, "", "post").await.breaker,
        Breaker::HalfOpen,
        "only the probe's word counts"
    );
    ask_other(store, &one, "post", FINE).await;
    assert_eq!(source_row(store, "", "post").await.breaker, Breaker::Closed);
    assert_eq!(take_post(store, &other).await, SourceAnswer::Taken);
    assert_eq!(claim_one(store).await.lane, lane("q", "letter"));
}

pub async fn a_probe_of_another_source_that_fails_opens_it_again(world: &dyn World) {
    let store = &*world.store();
    let (one, other) = two_at_a_half_open_one(world, store).await;
    assert_eq!(take_post(store, &one).await, SourceAnswer::Taken);
    ask_other(store, &one, "post", TIMED_OUT).await;
    let until = waits(&take_post(store, &other).await, Because::BreakerOpen);
    assert_moment(world, until, now(store).await.after(secs(100)), "the cooldown again");
    waits(&take_post(store, &one).await, Because::BreakerOpen);
    let settled = settle_saying(store, &one, RETRY, SourceReport::Reported).await;
    assert_eq!(settled.change, Change::Retried, "its own source has nothing to do with it");
}

pub async fn a_probe_of_another_source_ends_with_the_lease_that_it_had(world: &dyn World) {
    let store = &*world.store();
    let (one, other) = two_at_a_half_open_one(world, store).await;
    lanes(store, &["c"]).await;
    let short = claim_one(store).await;
    assert_eq!(take_post(store, &short).await, SourceAnswer::Taken);
    waits(&take_post(store, &one).await, Because::Probing);
    world.advance(LEASE + secs(10)).await;
    assert_eq!(take_post(store, &one).await, SourceAnswer::Taken, "whoever had it is gone");
    ask_other(store, &short, "post", FINE).await;
    waits(&take_post(store, &other).await, Because::Probing);
    settle(store, &one, SUCCEEDED).await;
    waits(&take_post(store, &other).await, Because::Probing);
    world.advance(secs(3_500)).await;
    waits(&take_post(store, &other).await, Because::BreakerOpen);
    extend(store, &other, secs(60)).await;
    assert_eq!(take_post(store, &other).await, SourceAnswer::Taken);
}

pub async fn what_is_told_of_another_source_does_not_touch_the_runs_own(world: &dyn World) {
    let store = &*world.store();
    declare(store, "post", breaker(1)).await;
    let (one, other) = two(store, rate(1, 3)).await;
    take_post(store, &one).await;
    ask_other(store, &one, "post", TIMED_OUT).await;
    let own = source_row(store, "", "shop").await;
    assert_eq!((own.breaker, own.failure_streak, own.tokens), (Breaker::Closed, 0, Some(1)));
    assert_eq!((own.last_success_at, own.last_failure_at), (None, None));
    assert_eq!(ask(store, &other, SourceAction::Take).await, SourceAnswer::Taken);
    ask(store, &other, TIMED_OUT).await;
    ask(store, &one, TIMED_OUT).await;
    assert_eq!(source_row(store, "", "shop").await.breaker, Breaker::Open);
    control(store, ControlAction::ResetSource(source_scope("post"))).await;
    assert_eq!(take_post(store, &one).await, SourceAnswer::Taken, "nor the other way round");
    // A run without a source asks one all the same.
    append_one(store, event("q", "free")).await;
    let free = claim_one(store).await;
    assert_eq!(take_post(store, &free).await, SourceAnswer::Taken);
    ask_other(store, &free, "post", TIMED_OUT).await;
    waits(&take_post(store, &one).await, Because::BreakerOpen);
}

pub async fn the_name_of_the_runs_own_source_means_just_that(world: &dyn World) {
    let store = &*world.store();
    let (one, other) = two(store, rate(1, 3)).await;
    assert_eq!(ask_other(store, &one, "shop", SourceAction::Take).await, SourceAnswer::Taken);
    waits(&ask_other(store, &one, "shop", SourceAction::Take).await, Because::RateLimited);
    waits(&ask(store, &other, SourceAction::Take).await, Because::RateLimited);
    control(store, ControlAction::ResetSource(source_scope("shop"))).await;
    control(store, ControlAction::DisableSource(source_scope("shop"))).await;
    assert_eq!(ask_other(store, &one, "shop", SourceAction::Take).await, SourceAnswer::Taken, "it goes on");
}

pub async fn another_source_that_is_not_declared_is_refused(world: &dyn World) {
    let store = &*world.store();
    let (one, _) = two(store, breaker(2)).await;
    let refuse = async |action: &SourceAction| {
        let answer = store.source(other_source_request(&one, "post", action.clone())).await;
        let error = refused(answer, ErrorKind::Invalid);
        assert!(error.detail.contains("[sources.post]"), "{error}");
    };
    for action in [SourceAction::Take, FINE, TIMED_OUT] {
        refuse(&action).await;
    }
    let rows = source_page(store, SourceFilter::default()).await.items;
    assert_eq!(rows.len(), 1, "nothing is made for it");
    declare(store, "post", breaker(2)).await;
    assert_eq!(take_post(store, &one).await, SourceAnswer::Taken);
    control(store, ControlAction::RemoveSource { name: source_name("post") }).await;
    refuse(&SourceAction::Take).await;
}

pub async fn another_source_that_is_disabled_lets_nobody_ask(world: &dyn World) {
    let store = &*world.store();
    let (one, _) = two_that_send(store, breaker(2)).await;
    control(store, ControlAction::DisableSource(source_scope("post"))).await;
    let until = waits(&take_post(store, &one).await, Because::Disabled);
    assert_moment(world, until, now(store).await.after(limits::SOURCE_HELD_WAIT), "worth another look");
    assert_eq!(ask_other(store, &one, "post", FINE).await, SourceAnswer::Noted, "what was sent is told");
    control(store, ControlAction::EnableSource(source_scope("post"))).await;
    assert_eq!(take_post(store, &one).await, SourceAnswer::Taken);
}

pub async fn another_source_keeps_no_answers(world: &dyn World) {
    let store = &*world.store();
    let (one, _) = two_that_send(store, breaker(2)).await;
    for action in [recall("k"), keep("k", json!(1)), SourceAction::Forget { key: "k".into() }] {
        let answer = store.source(other_source_request(&one, "post", action)).await;
        let error = refused(answer, ErrorKind::Invalid);
        assert!(error.detail.contains("post"), "{error}");
    }
    assert_eq!(source_row(store, "", "post").await.cached, 0);
}

pub async fn another_source_is_the_tenants_own_unless_it_is_shared(world: &dyn World) {
    let store = &*world.store();
    declare(store, "post", SourceRules { failures: 1, ..rate(1, 1) }).await;
    declare(store, "bank", SourceRules { shared: true, failures: 1, ..rate(1, 1) }).await;
    append(store, ["acme", "bond", ""].map(|tenant| event_in(lane_of(tenant, "q", "k")))).await;
    let batches = claim_all(store).await;
    for batch in &batches {
        assert_eq!(take_post(store, batch).await, SourceAnswer::Taken, "each has its own");
        waits(&take_post(store, batch).await, Because::RateLimited);
    }
    ask_other(store, &batches[0], "post", TIMED_OUT).await;
    let whose = batches[0].lane.tenant.as_str();
    for tenant in ["acme", "bond", ""] {
        let breaker = if tenant == whose { Breaker::Open } else { Breaker::Closed };
        assert_eq!(source_row(store, tenant, "post").await.breaker, breaker, "{tenant}");
    }
    assert_eq!(ask_other(store, &batches[0], "bank", SourceAction::Take).await, SourceAnswer::Taken);
    waits(&ask_other(store, &batches[1], "bank", SourceAction::Take).await, Because::RateLimited);
    ask_other(store, &batches[2], "bank", TIMED_OUT).await;
    waits(&ask_other(store, &batches[1], "bank", SourceAction::Take).await, Because::BreakerOpen);
    let filter = SourceFilter { name: Some(source_name("bank")), ..SourceFilter::default() };
    assert_eq!(source_page(store, filter).await.items.len(), 1);
}

pub async fn only_the_holder_asks_another_source(world: &dyn World) {
    let store = &*world.store();
    declare(store, "post", breaker(1)).await;
    declare(store, "shop", breaker(1)).await;
    lanes(store, &["a"]).await;
    let batch = claim_one(store).await;
    world.advance(LEASE + secs(10)).await;
    let next = claim_one(store).await;
    let refuse = async |batch: &Batch| {
        for action in [SourceAction::Take, FINE, TIMED_OUT] {
            for name in ["post", "shop", "nobody"] {
                let request = other_source_request(batch, name, action.clone());
                refused(store.source(request).await, ErrorKind::LostLease);
            }
        }
    };
    refuse(&batch).await;
    assert_eq!(take_post(store, &next).await, SourceAnswer::Taken);
    settle(store, &next, SUCCEEDED).await;
    refuse(&next).await;
    assert_eq!(source_row(store, "", "post").await.breaker, Breaker::Closed);
}

// Kept answers.

pub async fn a_kept_answer_is_given_again_and_costs_no_token(world: &dyn World) {
    let store = &*world.store();
    let (one, other) = two(store, rate(1, 2)).await;
    let answer = json!({ "price": 1.5, "text": "\u{0}ö" });
    assert!(matches!(ask(store, &one, recall("k")).await, SourceAnswer::Fetch { until: Some(_) }));
    assert_eq!(ask(store, &one, keep("k", answer.clone())).await, SourceAnswer::Noted);
    let before = source_row(store, "", "shop").await;
    assert_eq!(ask(store, &other, recall("k")).await, SourceAnswer::Hit(answer));
    assert!(matches!(ask(store, &other, recall("K")).await, SourceAnswer::Fetch { .. }), "another key");
    let after = source_row(store, "", "shop").await;
    assert_eq!((after.tokens, after.last_success_at), (before.tokens, before.last_success_at));
    settle_saying(store, &other, SUCCEEDED, SourceReport::Unused).await;
    assert_eq!(source_row(store, "", "shop").await.tokens, Some(1), "the claim's token was not needed");
}

pub async fn one_fetches_and_the_others_wait(world: &dyn World) {
    let store = &*world.store();
    let (one, other) = two(store, breaker(5)).await;
    let until = match ask(store, &one, recall("k")).await {
        SourceAnswer::Fetch { until: Some(until) } => until,
        other => panic!("nothing is kept: {other:?}"),
    };
    assert_moment(world, until, now(store).await.after(limits::CACHE_FLIGHT), "the end of the flight");
    assert_eq!(ask(store, &other, recall("k")).await, SourceAnswer::Fetching { until });
    assert!(matches!(ask(store, &one, recall("k")).await, SourceAnswer::Fetch { .. }), "its own flight");
    ask(store, &one, keep("k", json!("it"))).await;
    assert_eq!(ask(store, &other, recall("k")).await, SourceAnswer::Hit(json!("it")));
}

pub async fn a_fetch_that_failed_is_not_kept_and_the_next_one_fetches(world: &dyn World) {
    let store = &*world.store();
    let (one, other) = two(store, breaker(5)).await;
    ask(store, &one, recall("k")).await;
    ask(store, &one, SourceAction::Forget { key: "k".into() }).await;
    assert!(matches!(ask(store, &other, recall("k")).await, SourceAnswer::Fetch { .. }));
    ask(store, &one, SourceAction::Forget { key: "k".into() }).await;
    assert!(matches!(ask(store, &one, recall("k")).await, SourceAnswer::Fetching { .. }), "another's flight");
}

pub async fn a_fetcher_that_died_is_not_waited_for_longer_than_its_flight(world: &dyn World) {
    let store = &*world.store();
    let (one, other) = two(store, breaker(5)).await;
    ask(store, &one, recall("k")).await;
    world.advance(secs(20)).await;
    assert!(matches!(ask(store, &other, recall("k")).await, SourceAnswer::Fetching { .. }));
    world.advance(secs(20)).await;
    assert!(matches!(ask(store, &other, recall("k")).await, SourceAnswer::Fetch { .. }));
}

pub async fn an_answer_expires_by_the_time_of_its_keeper_or_of_who_asks(world: &dyn World) {
    let store = &*world.store();
    let (one, _) = two(store, SourceRules { cache_ttl: Some(secs(100)), ..breaker(5) }).await;
    extend(store, &one, secs(3_600)).await;
    ask(store, &one, keep("k", json!(1))).await;
    ask(store, &one, SourceAction::Keep { key: "long".into(), value: json!(2), ttl: Some(secs(1_000)) })
        .await;
    world.advance(secs(50)).await;
    let fresh = |key: &str| SourceAction::Recall { key: key.into(), ttl: Some(secs(30)) };
    assert_eq!(ask(store, &one, recall("k")).await, SourceAnswer::Hit(json!(1)));
    assert!(matches!(ask(store, &one, fresh("k")).await, SourceAnswer::Fetch { .. }), "too old for this one");
    assert_eq!(ask(store, &one, recall("k")).await, SourceAnswer::Hit(json!(1)), "not for others");
    world.advance(secs(60)).await;
    assert!(matches!(ask(store, &one, recall("k")).await, SourceAnswer::Fetch { .. }));
    let patient = SourceAction::Recall { key: "long".into(), ttl: Some(secs(900)) };
    assert_eq!(ask(store, &one, patient).await, SourceAnswer::Hit(json!(2)));
    assert_eq!(source_row(store, "", "shop").await.cached, 1);
}

pub async fn a_disabled_cache_keeps_nothing(world: &dyn World) {
    let store = &*world.store();
    let (one, other) = two(store, SourceRules { cache_ttl: None, ..breaker(5) }).await;
    assert_eq!(ask(store, &one, recall("k")).await, SourceAnswer::Fetch { until: None });
    assert_eq!(ask(store, &other, recall("k")).await, SourceAnswer::Fetch { until: None }, "nobody waits");
    assert_eq!(ask(store, &one, keep("k", json!(1))).await, SourceAnswer::Noted);
    assert_eq!(ask(store, &other, recall("k")).await, SourceAnswer::Fetch { until: None });
    assert_eq!(source_row(store, "", "shop").await.cached, 0);
}

pub async fn answers_of_two_sources_and_of_two_tenants_are_apart(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", breaker(5)).await;
    declare(store, "bank", breaker(5)).await;
    append(store, [event("q", "a").source("shop"), event("q", "b").source("bank")]).await;
    append_one(store, event_in(lane_of("acme", "q", "c")).source("shop")).await;
    let batches = claim_all(store).await;
    for (n, batch) in batches.iter().enumerate() {
        assert!(matches!(ask(store, batch, recall("k")).await, SourceAnswer::Fetch { until: Some(_) }));
        ask(store, batch, keep("k", json!(n))).await;
    }
    for (n, batch) in batches.iter().enumerate() {
        assert_eq!(ask(store, batch, recall("k")).await, SourceAnswer::Hit(json!(n)));
    }
}

pub async fn keys_and_answers_over_their_limits_are_refused(world: &dyn World) {
    let store = &*world.store();
    let (one, _) = two(store, breaker(5)).await;
    let long = "k".repeat(limits::CACHE_KEY_BYTES_MAX);
    ask(store, &one, keep(&long, json!("x".repeat(limits::CACHE_VALUE_BYTES_MAX - 2)))).await;
    assert!(matches!(ask(store, &one, recall(&long)).await, SourceAnswer::Hit(_)), "the largest survives");
    for key in [String::new(), format!("{long}k"), "a\0b".to_owned()] {
        refused(store.source(source_request(&one, recall(&key))).await, ErrorKind::Invalid);
    }
    let large = keep("k", json!("x".repeat(limits::CACHE_VALUE_BYTES_MAX)));
    refused(store.source(source_request(&one, large)).await, ErrorKind::Limit);
    assert_eq!(source_row(store, "", "shop").await.cached, 1);
}

pub async fn a_sweep_forgets_answers_that_are_over(world: &dyn World) {
    let store = &*world.store();
    let (one, _) = two(store, SourceRules { cache_ttl: Some(secs(100)), ..breaker(5) }).await;
    ask(store, &one, keep("k", json!(1))).await;
    settle(store, &one, SUCCEEDED).await;
    sweep(store).await;
    assert_eq!(source_row(store, "", "shop").await.cached, 1);
    world.advance(secs(110)).await;
    sweep(store).await;
    assert_eq!(source_row(store, "", "shop").await.cached, 0);
}

pub async fn the_policy_of_a_run_is_not_touched_by_its_source(world: &dyn World) {
    let store = &*world.store();
    declare(store, "shop", breaker(1_000)).await;
    lanes(store, &["a"]).await;
    for attempt in 1..=policy().max_attempts {
        let batch = claim_one(store).await;
        assert_eq!(batch.attempt, attempt, "a fault of a source that is let go counts like any other");
        again(store, &batch, fault()).await;
    }
    claim_none(store).await;
    let records = trail_of(store, "q", "a").await;
    let last = records.last().expect("there is a trail");
    assert_eq!(last.change, Change::Exhausted);
    let run = run_detail(store, last.run.expect("of a run")).await.expect("it is kept");
    assert_eq!(run.row.attempts, policy().max_attempts);
}
