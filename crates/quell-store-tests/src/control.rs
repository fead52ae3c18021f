//! Promises of control: flush, pause and resume do what they say, once, on record, and nothing else.

use quell_core::inspect::AuditFilter;
use quell_core::lifecycle::{Change, RunState};
use quell_core::store::{Control, ControlAction, Store};
use quell_core::window::FiredBy;

use crate::World;
use crate::builders::{
    LEASE, RELEASE, RETRY, SUCCEEDED, append, append_one, claim, claim_all, claim_none, claim_one,
    claim_request, control, event, extend, ids, keys, lane, lane_of, scoped, secs, seq_of, settle,
    settle_after, whole, worker,
};
use crate::reads::{assert_moment, changes, lane_detail, lane_row, stats, totals, trail, trail_of};

async fn flush(store: &dyn Store, key: &str) -> bool {
    control(store, ControlAction::Flush(lane("chat", key))).await.changed
}

async fn pause(store: &dyn Store, key: &str) -> bool {
    control(store, ControlAction::PauseLane(lane("chat", key))).await.changed
}

async fn resume(store: &dyn Store, key: &str) -> bool {
    control(store, ControlAction::ResumeLane(lane("chat", key))).await.changed
}

pub async fn flush_closes_the_window_now(world: &dyn World) {
    let store = world.store();
    append(&*store, [event("chat", "k1").id("a").fixed(500), event("chat", "k2").fixed(500)]).await;
    assert!(flush(&*store, "k1").await);
    let batch = claim_one(&*store).await;
    assert_eq!((ids(&batch), batch.fired_by), (vec!["a"], FiredBy::Flush));
}

pub async fn a_flushed_window_is_not_opened_again_by_later_events(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a").quiet(20)).await;
    assert!(flush(&*store, "k1").await);
    world.advance(secs(5)).await;
    append_one(&*store, event("chat", "k1").id("b").quiet(20)).await;
    let batch = claim_one(&*store).await;
    assert_eq!((ids(&batch), batch.fired_by), (vec!["a", "b"], FiredBy::Flush));
}

/// A quiet window that is over but not claimed restarts with each event; a flush ends that for good.
pub async fn a_flush_closes_an_overdue_quiet_window_too(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a").quiet(20)).await;
    world.advance(secs(30)).await;
    assert!(flush(&*store, "k1").await);
    world.advance(secs(10)).await;
    append_one(&*store, event("chat", "k1").id("b").quiet(20)).await;
    assert_eq!(ids(&claim_one(&*store).await), ["a", "b"], "it is not opened again");
}

pub async fn flush_of_an_empty_unknown_or_due_lane_changes_nothing(world: &dyn World) {
    let store = world.store();
    assert!(!flush(&*store, "nobody").await);
    assert!(lane_detail(&*store, &lane("chat", "nobody")).await.is_none(), "no lane is made by a flush");
    append_one(&*store, event("chat", "k1")).await;
    assert!(!flush(&*store, "k1").await, "it is due already");
    settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
    assert!(!flush(&*store, "k1").await, "it is idle");
    append_one(&*store, event("chat", "k1").fixed(500)).await;
    assert!(flush(&*store, "k1").await);
    assert!(!flush(&*store, "k1").await, "it was flushed already");
}

pub async fn flush_ends_a_backoff(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let first = claim_one(&*store).await;
    settle_after(&*store, &first, RETRY, secs(1_000)).await;
    claim_none(&*store).await;
    assert!(flush(&*store, "k1").await);
    let again = claim_one(&*store).await;
    assert_eq!((again.run_id, again.attempt, again.fired_by), (first.run_id, 2, FiredBy::Retry));
}

pub async fn flush_ends_the_wait_of_a_second_release(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    settle_after(&*store, &claim_one(&*store).await, RELEASE, secs(1_000)).await;
    let second = claim_one(&*store).await;
    settle_after(&*store, &second, RELEASE, secs(1_000)).await;
    claim_none(&*store).await;
    assert!(flush(&*store, "k1").await);
    let third = claim_one(&*store).await;
    assert_eq!((third.run_id, third.attempt), (second.run_id, 1));
}

pub async fn flush_of_a_running_lane_lets_the_next_run_follow_at_once(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let running = claim_one(&*store).await;
    append_one(&*store, event("chat", "k1").id("b").fixed(500)).await;
    assert!(flush(&*store, "k1").await);
    claim_none(&*store).await;
    settle(&*store, &running, SUCCEEDED).await;
    let next = claim_one(&*store).await;
    assert_eq!((ids(&next), next.fired_by), (vec!["b"], FiredBy::Flush));
}

pub async fn flush_never_goes_past_a_pause(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a").fixed(500)).await;
    pause(&*store, "k1").await;
    assert!(flush(&*store, "k1").await);
    claim_none(&*store).await;
    resume(&*store, "k1").await;
    control(&*store, ControlAction::PauseQueue(whole("chat"))).await;
    claim_none(&*store).await;
    control(&*store, ControlAction::ResumeQueue(whole("chat"))).await;
    let batch = claim_one(&*store).await;
    assert_eq!((ids(&batch), batch.fired_by), (vec!["a"], FiredBy::Flush));
}

pub async fn a_flush_is_seen_by_next_at(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").fixed(500)).await;
    let running = append_one(&*store, event("chat", "k2")).await;
    let told = claim(&*store, claim_request(&worker("w"))).await;
    assert_eq!(told.batches[0].events[0].seq, seq_of(&running));
    flush(&*store, "k1").await;
    let row = lane_row(&*store, &lane("chat", "k1")).await.expect("it waits");
    assert_moment(world, row.due_at.expect("it is due"), told.now, "due now");
}

pub async fn a_paused_lane_accepts_events_and_hands_out_none(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    append_one(&*store, event("chat", "k1").id("a")).await;
    assert!(pause(&*store, "k1").await);
    append_one(&*store, event("chat", "k1").id("b")).await;
    claim_none(&*store).await;
    claim_none(&*other).await;
    append_one(&*store, event("chat", "k2").id("z")).await;
    assert_eq!(ids(&claim_one(&*other).await), ["z"], "other keys go on");
    assert!(resume(&*other, "k1").await);
    assert_eq!(ids(&claim_one(&*store).await), ["a", "b"]);
}

pub async fn windows_and_backoff_go_on_during_a_pause(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a").quiet(20)).await;
    append_one(&*store, event("chat", "k2").id("b")).await;
    settle_after(&*store, &claim_one(&*store).await, RETRY, secs(30)).await;
    pause(&*store, "k1").await;
    pause(&*store, "k2").await;
    world.advance(secs(15)).await;
    resume(&*store, "k1").await;
    claim_none(&*store).await;
    pause(&*store, "k1").await;
    world.advance(secs(30)).await;
    claim_none(&*store).await;
    resume(&*store, "k1").await;
    resume(&*store, "k2").await;
    let batches = claim_all(&*store).await;
    assert_eq!(keys(&batches), ["k1", "k2"], "overdue means due at resume");
    assert_eq!(batches[0].fired_by, FiredBy::Quiet, "the window closed by its own reason");
}

pub async fn a_pause_does_not_stop_a_running_attempt(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    pause(&*store, "k1").await;
    extend(&*store, &batch, LEASE).await;
    assert_eq!(settle(&*store, &batch, RETRY).await.state, RunState::Retryable);
    claim_none(&*store).await;
    resume(&*store, "k1").await;
    settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
}

pub async fn a_key_can_be_paused_before_its_first_event(world: &dyn World) {
    let store = world.store();
    assert!(pause(&*store, "k1").await);
    append_one(&*store, event("chat", "k1").id("a")).await;
    claim_none(&*store).await;
    assert!(resume(&*store, "k1").await);
    assert_eq!(ids(&claim_one(&*store).await), ["a"]);
}

pub async fn pausing_and_resuming_twice_changes_nothing_and_keeps_the_first_hand(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    assert!(!resume(&*store, "k1").await);
    assert!(!resume(&*store, "nobody").await);
    assert!(pause(&*store, "k1").await);
    let bob = Control { actor: "bob".into(), action: ControlAction::PauseLane(lane("chat", "k1")) };
    assert!(!store.control(bob).await.expect("done").changed);
    let row = lane_row(&*store, &lane("chat", "k1")).await.expect("it waits");
    assert_eq!(row.paused_by.as_deref(), Some("ada"));
    assert!(resume(&*store, "k1").await);
    assert!(!resume(&*store, "k1").await);
    let scope = || whole("chat");
    assert!(!control(&*store, ControlAction::ResumeQueue(scope())).await.changed);
    assert!(control(&*store, ControlAction::PauseQueue(scope())).await.changed);
    assert!(!control(&*store, ControlAction::PauseQueue(scope())).await.changed);
    assert!(control(&*store, ControlAction::ResumeQueue(scope())).await.changed);
    assert_eq!(changes(&trail_of(&*store, "chat", "k1").await), [Change::Paused, Change::Resumed]);
}

pub async fn a_paused_queue_holds_all_its_lanes_also_those_to_come(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    append(&*store, [event("chat", "k1"), event("mail", "k1")]).await;
    control(&*store, ControlAction::PauseQueue(whole("chat"))).await;
    append(&*other, [event("chat", "k2"), event("chat", "k3").of("acme")]).await;
    let batches = claim_all(&*other).await;
    assert_eq!(batches.iter().map(|b| b.lane.to_string()).collect::<Vec<_>>(), ["mail/k1"]);
    let queues = stats(&*store).await;
    let paused: Vec<_> = queues.iter().filter(|q| q.paused_by.is_some()).map(|q| q.queue.as_str()).collect();
    assert_eq!(paused, ["chat", "chat"]);
    control(&*other, ControlAction::ResumeQueue(whole("chat"))).await;
    assert_eq!(keys(&claim_all(&*store).await), ["k1", "k2", "k3"]);
}

pub async fn a_queue_can_be_paused_for_one_tenant(world: &dyn World) {
    let store = world.store();
    append(&*store, [event("chat", "k1").of("acme"), event("chat", "k1").of("globex"), event("chat", "k1")])
        .await;
    control(&*store, ControlAction::PauseQueue(scoped("chat", "acme"))).await;
    let batches = claim_all(&*store).await;
    assert_eq!(batches.iter().map(|b| b.lane.tenant.as_str()).collect::<Vec<_>>(), ["", "globex"]);
    control(&*store, ControlAction::ResumeQueue(scoped("chat", "acme"))).await;
    assert_eq!(claim_all(&*store).await.len(), 1);
}

/// No tenant is the empty text: pausing its queue is not pausing everybody's.
pub async fn a_queue_of_no_tenant_is_not_the_queue_of_all_tenants(world: &dyn World) {
    let store = world.store();
    append(&*store, [event("chat", "k1").of("acme"), event("chat", "k1")]).await;
    control(&*store, ControlAction::PauseQueue(scoped("chat", ""))).await;
    let batches = claim_all(&*store).await;
    assert_eq!(batches.iter().map(|b| b.lane.tenant.as_str()).collect::<Vec<_>>(), ["acme"]);
}

/// Rule 17: resume lifts only its own pause.
pub async fn pauses_are_independent_of_one_another(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").of("acme")).await;
    let key = lane_of("acme", "chat", "k1");
    control(&*store, ControlAction::PauseLane(key.clone())).await;
    control(&*store, ControlAction::PauseQueue(whole("chat"))).await;
    control(&*store, ControlAction::PauseQueue(scoped("chat", "acme"))).await;
    for lift in [
        ControlAction::ResumeQueue(whole("chat")),
        ControlAction::ResumeLane(key),
        ControlAction::ResumeQueue(scoped("chat", "acme")),
    ] {
        claim_none(&*store).await;
        assert!(control(&*store, lift).await.changed);
    }
    assert_eq!(claim_all(&*store).await.len(), 1);
}

pub async fn pauses_survive_a_restart(world: &dyn World) {
    let store = world.store();
    append(&*store, [event("chat", "k1"), event("mail", "k1")]).await;
    pause(&*store, "k1").await;
    control(&*store, ControlAction::PauseQueue(whole("mail"))).await;
    drop(store);
    let store = world.reopen().await;
    claim_none(&*store).await;
    control(&*store, ControlAction::ResumeQueue(whole("mail"))).await;
    resume(&*store, "k1").await;
    assert_eq!(claim_all(&*store).await.len(), 2);
}

pub async fn every_operators_hand_is_on_record_with_its_name(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").fixed(500)).await;
    pause(&*store, "k1").await;
    resume(&*store, "k1").await;
    flush(&*store, "k1").await;
    control(&*store, ControlAction::PauseQueue(whole("chat"))).await;
    control(&*store, ControlAction::ResumeQueue(scoped("chat", "acme"))).await;
    control(&*store, ControlAction::ResumeQueue(whole("chat"))).await;
    let records = trail(&*store, AuditFilter::default()).await;
    let told = [Change::Paused, Change::Resumed, Change::Flushed, Change::QueuePaused, Change::QueueResumed];
    assert_eq!(changes(&records), told, "what changed nothing leaves no record");
    assert!(records.iter().all(|r| r.actor.as_deref() == Some("ada")));
    assert!(records[..3].iter().all(|r| r.key.as_ref().is_some_and(|k| k.as_str() == "k1")));
    assert!(records[3..].iter().all(|r| r.key.is_none() && r.queue.as_str() == "chat"));
}

pub async fn an_operators_hand_moves_no_totals(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").fixed(500)).await;
    let before = totals(&*store, "chat").await;
    flush(&*store, "k1").await;
    pause(&*store, "k1").await;
    pause(&*store, "never-seen").await;
    control(&*store, ControlAction::PauseQueue(whole("chat"))).await;
    assert_eq!(totals(&*store, "chat").await, before);
}
