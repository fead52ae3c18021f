//! The holes of the older systems that Quell replaces, each shown closed at the level of the store. The number is that
//! of the older system: 000 file markers and locks, 001 a job queue with recovery, 002 a leased task loop.
//!
//! Of 001 two holes concern sources, which are not in this version: a breaker that burns attempts, and a worker that
//! sleeps in the rate limiter while it holds its lease.

use quell_core::error::ErrorKind;
use quell_core::inspect::AuditFilter;
use quell_core::lifecycle::{Change, RunState};
use quell_core::store::SettleRequest;
use tokio::task::JoinSet;

use crate::World;
use crate::builders::{
    LEASE, RELEASE, RETRY, SUCCEEDED, append, append_one, claim, claim_all, claim_none, claim_one,
    claim_one_as, claim_request, event, extend, extend_request, ids, lane, refused, secs, settle,
    settle_after, settle_request, sweep, try_settle, worker,
};
use crate::reads::{changes, lane_row, run_detail, state_of, totals, trail, trail_of};

/// Two processes read the marker, both write it, one update is gone.
pub async fn hole_000_lost_marker_update_between_two_processes(world: &dyn World) {
    let (one, two) = (world.store(), world.another().await);
    let mut set = JoinSet::new();
    for n in 0..20 {
        let store = if n % 2 == 0 { one.clone() } else { two.clone() };
        set.spawn(async move {
            append_one(&*store, event("hooks", "session").id(&format!("e{n}")).fixed(20)).await
        });
    }
    let receipts = set.join_all().await;
    let first = &receipts[0];
    assert!(receipts.iter().all(|r| r.run_id == first.run_id), "all wait in one run");
    world.advance(secs(25)).await;
    assert_eq!(claim_one(&*one).await.events.len(), 20);
}

/// Both find the lock stale, both delete it, both take it.
pub async fn hole_000_two_workers_deleting_a_stale_lock(world: &dyn World) {
    let (one, two) = (world.store(), world.another().await);
    append_one(&*one, event("hooks", "session")).await;
    for round in 2..=3 {
        claim_one(&*one).await;
        world.advance(secs(65)).await;
        let mut set = JoinSet::new();
        for n in 0..6 {
            let store = if n % 2 == 0 { one.clone() } else { two.clone() };
            set.spawn(async move { claim(&*store, claim_request(&worker("heir"))).await });
        }
        let claims = set.join_all().await;
        assert_eq!(
            claims.iter().map(|c| c.reclaimed.len()).sum::<usize>(),
            1,
            "round {round}: taken back once"
        );
        let batches: Vec<_> = claims.into_iter().flat_map(|c| c.batches).collect();
        assert_eq!(batches.len(), 1, "round {round}: one heir");
        assert_eq!(batches[0].attempt, 2);
        settle(&*one, &batches[0], SUCCEEDED).await;
        append_one(&*one, event("hooks", "session")).await;
    }
}

/// An event that arrives while the session is processed is seen only if another one follows.
pub async fn hole_000_event_during_processing(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("hooks", "session").id("a").fixed(20)).await;
    world.advance(secs(25)).await;
    let running = claim_one(&*store).await;
    append_one(&*store, event("hooks", "session").id("b").fixed(20)).await;
    claim_none(&*store).await;
    settle(&*store, &running, SUCCEEDED).await;
    world.advance(secs(25)).await;
    assert_eq!(ids(&claim_one(&*store).await), ["b"], "another pass, without any further event");
}

/// The worker of the last event dies, and nobody ever looks again.
pub async fn hole_000_worker_dies_and_no_later_event_comes(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("hooks", "session").id("a").fixed(20)).await;
    world.advance(secs(25)).await;
    let dead = claim_one(&*store).await;
    drop(store);
    let store = world.reopen().await;
    let told = claim(&*store, claim_request(&worker("next"))).await;
    assert_eq!(told.next_at, Some(dead.lease_until), "whoever asks is told when to come back");
    world.advance(secs(65)).await;
    let again = claim_one(&*store).await;
    assert_eq!((ids(&again), again.attempt), (vec!["a"], 2));
}

/// The marker is read again, then an event comes, then the marker is deleted.
pub async fn hole_000_event_between_re_read_and_delete_of_the_marker(world: &dyn World) {
    let (one, two) = (world.store(), world.another().await);
    for round in 0..10 {
        append_one(&*one, event("hooks", "session")).await;
        let batch = claim_one(&*one).await;
        assert_eq!(extend(&*one, &batch, LEASE).await.newer, 0, "the re-read finds nothing newer");
        let id = format!("late-{round}");
        let (appending, settling) = (two.clone(), one.clone());
        let sent = id.clone();
        let appending =
            tokio::spawn(async move { append_one(&*appending, event("hooks", "session").id(&sent)).await });
        let settling = tokio::spawn(async move { settle(&*settling, &batch, SUCCEEDED).await });
        appending.await.expect("no panic");
        settling.await.expect("no panic");
        let next = claim_one(&*one).await;
        assert_eq!(ids(&next), [id.as_str()]);
        settle(&*one, &next, SUCCEEDED).await;
    }
}

/// "Am I the latest?" is asked by comparing timestamps, and two events have the same one.
pub async fn hole_000_two_events_with_one_timestamp(world: &dyn World) {
    let store = world.store();
    append(
        &*store,
        [event("hooks", "session").id("a").fixed(20), event("hooks", "session").id("b").fixed(20)],
    )
    .await;
    world.advance(secs(25)).await;
    let batch = claim_one(&*store).await;
    assert_eq!(ids(&batch), ["a", "b"]);
    assert_eq!(
        batch.events[0].received_at, batch.events[1].received_at,
        "the same moment, told apart by number"
    );
    assert!(batch.events[0].seq < batch.events[1].seq);
    settle(&*store, &batch, SUCCEEDED).await;
    claim_none(&*store).await;
}

/// A holder that was slow cleans up at its end and deletes the lock of the one that followed.
pub async fn hole_000_a_slow_holders_clean_up_deletes_anothers_lock(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("hooks", "session")).await;
    let slow = claim_one(&*store).await;
    world.advance(secs(65)).await;
    let heir = claim_one(&*store).await;
    refused(try_settle(&*store, &slow, RELEASE).await, ErrorKind::LostLease);
    refused(try_settle(&*store, &slow, SUCCEEDED).await, ErrorKind::LostLease);
    let row = lane_row(&*store, &heir.lane).await.expect("it runs");
    assert_eq!((row.state, row.token), (Some(RunState::Running), Some(heir.token)));
    claim_none(&*store).await;
    settle(&*store, &heir, SUCCEEDED).await;
}

/// A worker that was thought dead completes the job that somebody else has by now.
pub async fn hole_001_stale_worker_completing_after_reclaim(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("collect", "coin-1").id("a")).await;
    let stale = claim_one_as(&*store, &worker("w1")).await;
    world.advance(secs(65)).await;
    assert_eq!(sweep(&*store).await.reclaimed.len(), 1);
    refused(try_settle(&*store, &stale, SUCCEEDED).await, ErrorKind::LostLease);
    let heir = claim_one_as(&*store, &worker("w2")).await;
    refused(try_settle(&*store, &stale, SUCCEEDED).await, ErrorKind::LostLease);
    assert_eq!(state_of(&*store, &lane("collect", "coin-1"), "a").await, Some(RunState::Running));
    settle_after(&*store, &heir, RETRY, secs(30)).await;
    refused(try_settle(&*store, &stale, SUCCEEDED).await, ErrorKind::LostLease);
    assert_eq!(state_of(&*store, &lane("collect", "coin-1"), "a").await, Some(RunState::Retryable));
}

/// `heartbeat_at < now - timeout` is never true for a job that never sent a heartbeat.
pub async fn hole_001_running_without_any_heartbeat_never_reclaimed(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("collect", "coin-1")).await;
    let silent = claim_one(&*store).await;
    let row = run_detail(&*store, silent.run_id).await.expect("it runs").row;
    assert!(row.lease_until.is_some() && row.heartbeat_at.is_some(), "a running run always has both");
    world.advance(secs(65)).await;
    assert_eq!(sweep(&*store).await.reclaimed.len(), 1);
    assert_eq!(claim_one(&*store).await.attempt, 2);
}

/// The task takes longer than its lease, and a second worker starts it as well.
pub async fn hole_002_task_longer_than_its_lease(world: &dyn World) {
    let (one, two) = (world.store(), world.another().await);
    append_one(&*one, event("tasks", "t1")).await;
    let long = claim_one(&*one).await;
    for _ in 0..10 {
        world.advance(secs(40)).await;
        extend(&*one, &long, LEASE).await;
        assert!(claim_all(&*two).await.is_empty());
        assert!(sweep(&*two).await.reclaimed.is_empty());
    }
    // Without heartbeats it is taken over, and then the slow one learns so instead of finishing twice.
    world.advance(secs(65)).await;
    let heir = claim_one(&*two).await;
    refused(one.extend(extend_request(&long, LEASE)).await, ErrorKind::LostLease);
    settle(&*two, &heir, SUCCEEDED).await;
    refused(try_settle(&*one, &long, SUCCEEDED).await, ErrorKind::LostLease);
    assert_eq!(totals(&*one, "tasks").await.succeeded, 1);
}

/// The status was written, then the process died, and the audit row was never written.
pub async fn hole_002_audit_row_missing_after_a_crash(world: &dyn World) {
    let mut expected = Vec::new();
    let told = async |expected: &[Change]| {
        let store = world.reopen().await;
        let records = trail(&*store, AuditFilter::default()).await;
        assert_eq!(changes(&records), expected, "each change that was answered has its record after a crash");
    };
    append_one(&*world.store(), event("tasks", "t1")).await;
    for verdict in [RETRY, RELEASE, SUCCEEDED] {
        let batch = claim_one(&*world.store()).await;
        expected.push(Change::Claimed);
        told(&expected).await;
        settle(&*world.store(), &batch, verdict).await;
        expected.push(match verdict {
            RETRY => Change::Retried,
            RELEASE => Change::Released,
            _ => Change::Succeeded,
        });
        told(&expected).await;
    }
    append_one(&*world.store(), event("tasks", "t1")).await;
    claim_one(&*world.store()).await;
    world.advance(secs(65)).await;
    sweep(&*world.store()).await;
    expected.extend([Change::Claimed, Change::Reclaimed]);
    told(&expected).await;
}

/// The answer to "done" was lost, "done" is said again, and it counts twice.
pub async fn hole_002_success_reported_twice(world: &dyn World) {
    let (one, two) = (world.store(), world.another().await);
    append_one(&*one, event("tasks", "t1")).await;
    let batch = claim_one(&*one).await;
    settle(&*one, &batch, SUCCEEDED).await;
    for store in [&one, &two, &one] {
        let again = try_settle(&**store, &batch, SUCCEEDED).await.expect("the same answer");
        assert!(again.repeated && again.state == RunState::Succeeded);
    }
    assert_eq!(totals(&*one, "tasks").await.succeeded, 1);
    assert_eq!(changes(&trail_of(&*one, "tasks", "t1").await), [Change::Claimed, Change::Succeeded]);
}

/// The status says done, the process dies before it told anybody: after the restart the same question gets the same
/// answer and the result is there, so that telling can be done again.
pub async fn hole_002_crash_between_status_update_and_notification(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("tasks", "t1")).await;
    let batch = claim_one(&*store).await;
    let result = Some(serde_json::json!({ "answer": 42 }));
    let request = SettleRequest { result: result.clone(), ..settle_request(&batch, SUCCEEDED) };
    store.settle(request.clone()).await.expect("done");
    drop(store);
    let store = world.reopen().await;
    let again = store.settle(request).await.expect("the same answer");
    assert!(again.repeated);
    assert_eq!(run_detail(&*store, batch.run_id).await.expect("it is kept").result, result);
    claim_none(&*store).await;
}
