//! Promises about crashes: what was answered stays, what was not answered is whole or not there, and a holder that died
//! costs one attempt and one lease.
//!
//! At the level of calls a crash is [`World::reopen`] between any two of them. For real processes there is a driver:
//! [`child`] is what a process under test runs until it is killed, [`kill_loop`] starts such processes, kills them at
//! random moments, and then has their logs and the store judged by the independent checker. [`governed`] does the same
//! for what several processes may ask of one source.

use std::sync::Arc;
use std::time::Duration;

use quell_core::lifecycle::RunState;
use quell_core::store::{ControlAction, Store};

use crate::builders::{
    FAILED, LEASE, RETRY, SUCCEEDED, append, append_one, claim, claim_all, claim_none, claim_one,
    claim_request, control, event, extend, ids, lane, secs, seqs, settle, settle_after, sweep, try_settle,
    worker,
};
use crate::chance::Chance;
use crate::reads::{
    assert_moment, assert_totals, assert_trail, health, run_detail, state_of, totals, trail_of,
};
use crate::{Harness, World};

mod errands;
pub mod governed;
mod kill_loop;

pub use kill_loop::{KillLoop, child, judge, kill_loop};
pub use quell_torture::log_path;

pub async fn a_claimed_run_is_claimable_one_lease_after_a_crash_and_the_attempt_counts(world: &dyn World) {
    let store = world.store();
    append(&*store, [event("chat", "k1").id("a"), event("chat", "k1").id("b")]).await;
    let first = claim_one(&*store).await;
    drop(store);
    let store = world.reopen().await;
    claim_none(&*store).await;
    world.advance(secs(55)).await;
    claim_none(&*store).await;
    world.advance(secs(10)).await;
    let again = claim_one(&*store).await;
    assert_eq!((again.run_id, again.attempt), (first.run_id, 2));
    assert_eq!(seqs(&again), seqs(&first));
    assert!(again.token > first.token);
}

pub async fn a_holder_that_outlives_the_store_may_still_settle(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    drop(store);
    let store = world.reopen().await;
    extend(&*store, &batch, LEASE).await;
    drop(store);
    let store = world.reopen().await;
    assert_eq!(settle(&*store, &batch, SUCCEEDED).await.state, RunState::Succeeded);
}

pub async fn a_settle_whose_answer_was_lost_is_repeated_after_the_restart(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    let first = settle_after(&*store, &batch, RETRY, secs(30)).await;
    drop(store);
    let store = world.reopen().await;
    let again = try_settle(&*store, &batch, RETRY).await.expect("the same answer");
    assert_eq!((again.state, again.next_at, again.repeated), (first.state, first.next_at, true));
    assert_eq!(trail_of(&*store, "chat", "k1").await.len(), 2);
}

pub async fn a_renewed_lease_survives_a_restart(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    extend(&*store, &batch, secs(300)).await;
    drop(store);
    let store = world.reopen().await;
    world.advance(secs(255)).await;
    claim_none(&*store).await;
    assert!(sweep(&*store).await.reclaimed.is_empty());
    world.advance(secs(50)).await;
    assert_eq!(claim_one(&*store).await.run_id, batch.run_id);
}

pub async fn backoff_left_overs_and_closed_windows_survive_a_restart(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "backoff")).await;
    settle_after(&*store, &claim_one(&*store).await, RETRY, secs(30)).await;
    append(&*store, ["a", "b"].map(|id| event("chat", "left").id(id).max_events(1))).await;
    settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
    append_one(&*store, event("chat", "flushed").id("c").fixed(500)).await;
    control(&*store, ControlAction::Flush(lane("chat", "flushed"))).await;
    drop(store);
    let store = world.reopen().await;
    let batches = claim_all(&*store).await;
    assert_eq!(batches.iter().map(ids).collect::<Vec<_>>(), [["c"], ["b"]]);
    world.advance(secs(35)).await;
    let again = claim_one(&*store).await;
    assert_eq!((again.lane.key.as_str(), again.attempt, again.retries), ("backoff", 2, 1));
}

pub async fn a_crash_between_reclaim_and_claim_costs_nothing_more(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let first = claim_one(&*store).await;
    world.advance(secs(65)).await;
    sweep(&*store).await;
    drop(store);
    let store = world.reopen().await;
    assert!(sweep(&*store).await.reclaimed.is_empty());
    let again = claim_one(&*store).await;
    assert_eq!((again.run_id, again.attempt), (first.run_id, 2));
}

pub async fn a_batch_that_kills_every_worker_ends_in_the_dead_letter(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "poison").id("a")).await;
    append_one(&*store, event("chat", "fine").id("b").fixed(900)).await;
    drop(store);
    for _ in 0..crate::builders::ATTEMPTS {
        let store = world.store();
        claim_one(&*store).await;
        drop(store);
        let _ = world.reopen().await;
        world.advance(secs(65)).await;
    }
    let store = world.store();
    claim_none(&*store).await;
    assert_eq!(state_of(&*store, &lane("chat", "poison"), "a").await, Some(RunState::Failed));
    assert_eq!(totals(&*store, "chat").await.dead, 1);
}

pub async fn store_time_never_goes_back_and_never_jumps_at_a_restart(world: &dyn World) {
    let mut last = health(&*world.store()).await.now;
    for _ in 0..4 {
        world.advance(secs(100)).await;
        let now = health(&*world.another().await).await.now;
        assert!(now >= last.after(secs(100)), "one clock for all handles: {now} after {last}");
        let after = health(&*world.reopen().await).await.now;
        assert!(after >= now, "{after} after {now}");
        assert_moment(world, after, now, "a restart is no jump");
        last = after;
    }
}

/// A fixed story of every verb, told once without a restart and once with one before each call.
pub async fn a_restart_between_any_two_calls_changes_no_answer(harness: &dyn Harness) {
    let plain = Box::pin(story(&*harness.world().await, None)).await;
    assert!(plain.len() > 15, "the story has a few calls");
    for at in 0..plain.len() {
        let world = harness.world().await;
        let told = Box::pin(story(&*world, Some(at))).await;
        assert_eq!(told, plain, "restart before call {at}");
        assert_totals(&*world).await;
        assert_trail(&*world).await;
    }
}

/// The answers that do not depend on numbers or on time.
async fn story(world: &dyn World, restart_at: Option<usize>) -> Vec<String> {
    let mut told = Vec::new();
    let mut calls = 0;
    let mut next = async || {
        let store = if restart_at == Some(calls) { world.reopen().await } else { world.store() };
        calls += 1;
        store
    };
    let mut latest = None;
    for round in 0..3 {
        let receipts = append(
            &*next().await,
            [
                event("chat", "k1").id(&format!("a{round}")).quiet(20).max_events(2),
                event("chat", "k2").id("same"),
                event("chat", "k1").id(&format!("b{round}")).quiet(20).max_events(2),
            ],
        )
        .await;
        told.push(format!("{:?}", receipts.iter().map(|r| r.duplicate).collect::<Vec<_>>()));
        let mut batches = claim(&*next().await, claim_request(&worker("w"))).await.batches;
        told.push(format!("{:?}", batches.iter().map(|b| (ids(b).join(","), b.attempt)).collect::<Vec<_>>()));
        let first = batches.remove(0);
        let extended = extend(&*next().await, &first, LEASE).await;
        told.push(format!("newer {}", extended.newer));
        let verdict = [RETRY, SUCCEEDED, FAILED][round];
        told.push(format!("{:?}", settle_after(&*next().await, &first, verdict, secs(10)).await.state));
        let again = try_settle(&*next().await, &first, verdict).await.expect("the same answer");
        told.push(format!("{:?} {}", again.state, again.repeated));
        let flushed = control(&*next().await, ControlAction::Flush(lane("chat", "k1"))).await.changed;
        told.push(format!("flushed {flushed}"));
        world.advance(secs(65)).await;
        let reclaimed = sweep(&*next().await).await.reclaimed;
        told.push(format!(
            "{:?}",
            reclaimed.iter().map(|r| (r.lane.to_string(), r.state)).collect::<Vec<_>>()
        ));
        latest = Some(first.run_id);
    }
    let detail = run_detail(&*next().await, latest.expect("three rounds")).await.expect("it is kept");
    told.push(format!("{:?} {}", detail.row.state, detail.list.len()));
    told.push(format!("{:?}", totals(&*next().await, "chat").await));
    told
}

/// The kill loop without processes: the same work, the same logs, the same checks, but tasks that are dropped at any
/// point where they wait. It runs on every store, also on one that lives in memory.
pub async fn workers_and_senders_that_vanish_at_any_point_lose_nothing(world: &dyn World) {
    let folder = tempfile::tempdir().expect("a folder for the logs");
    let mut chance = Chance::seeded(11);
    let mut running = Vec::new();
    let mut started = 0;
    let mut start = async |role: &'static str| {
        let store: Arc<dyn Store> = if started % 2 == 0 { world.store() } else { world.another().await };
        let log = log_path(folder.path(), role, started);
        started += 1;
        (role, tokio::spawn(async move { child(role, store, &log).await }))
    };
    for role in ["append", "append", "work", "work", "work", "operate"] {
        running.push(start(role).await);
    }
    for _ in 0..40 {
        // Long enough for a few calls, short enough to end them half-way.
        let _ =
            tokio::time::timeout(Duration::from_millis(chance.below(12)), std::future::pending::<()>()).await;
        let victim = usize::try_from(chance.below(running.len() as u64)).expect("a small index");
        let (role, task) = running.swap_remove(victim);
        task.abort();
        let _ = task.await;
        running.push(start(role).await);
        if chance.percent(20) {
            world.advance(secs(20)).await;
        }
    }
    for (_, task) in running {
        task.abort();
        let _ = task.await;
    }
    let summary = judge(folder.path(), &world.store(), async || world.advance(secs(20)).await).await;
    assert!(summary.events > 0 && summary.claims > 0, "something happened: {summary:?}");
    let redelivered = summary.sometimes.of(quell_check::Thing::Redelivery);
    assert!(redelivered > 0, "some attempts were cut off: {summary:?}");
}
