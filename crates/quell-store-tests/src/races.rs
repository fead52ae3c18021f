//! Promises under real concurrency: several tasks on two threads, through two handles on the same data.
//!
//! Nothing here depends on who wins; only that exactly one does, and that nothing is lost, doubled or reordered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quell_core::batch::Batch;
use quell_core::error::ErrorKind;
use quell_core::event::LaneKey;
use quell_core::lifecycle::{Change, RunState};
use quell_core::store::{ClaimRequest, Control, ControlAction, RunPolicy, Store};
use serde_json::json;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::World;
use crate::builders::{
    FAILED, LEASE, SUCCEEDED, append, append_one, append_request, claim, claim_all, claim_none, claim_one,
    claim_request, claim_request_by, event, extend_request, keys, lane, policy, refused, secs, seq_of,
    settle, settle_request, sweep, try_append, try_settle, worker,
};
use crate::reads::{changes, lane_row, totals, trail_of};

/// Longer than any of these tests takes on a slow machine; reaching it is a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// Both handles in turn, for task `n`.
async fn handles(world: &dyn World) -> [Arc<dyn Store>; 2] {
    [world.store(), world.another().await]
}

/// Runs the tasks at the same moment and gives back their answers.
async fn at_once<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    tasks: impl IntoIterator<Item = F>,
) -> Vec<T> {
    let tasks: Vec<F> = tasks.into_iter().collect();
    let barrier = Arc::new(Barrier::new(tasks.len()));
    let mut set = JoinSet::new();
    for task in tasks {
        let barrier = barrier.clone();
        set.spawn(async move {
            barrier.wait().await;
            task.await
        });
    }
    tokio::time::timeout(PATIENCE, set.join_all()).await.expect("the tasks come to an end")
}

/// What a claimer saw: the lane, the token and the ids, in the order of delivery.
type Delivery = (LaneKey, u64, Vec<(u64, String)>);

pub async fn every_event_is_delivered_once_and_in_order_when_nobody_crashes(world: &dyn World) {
    const APPENDERS: u64 = 4;
    const EACH: u64 = 40;
    let handles = handles(world).await;
    let (done, held) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(BTreeSet::new())));
    let mut set: JoinSet<Vec<Delivery>> = JoinSet::new();
    for n in 0..APPENDERS {
        let store = handles[usize::from(n % 2 == 0)].clone();
        set.spawn(async move {
            for i in 0..EACH {
                let new =
                    event("hot", &format!("k{}", (n + i) % 3)).id(&format!("a{n}-{i:03}")).max_events(7);
                append_one(&*store, new).await;
            }
            Vec::new()
        });
    }
    for n in 0..3 {
        let (store, done, held) = (handles[n % 2].clone(), done.clone(), held.clone());
        set.spawn(async move { work(&*store, &done, &held, APPENDERS * EACH).await });
    }
    let seen = tokio::time::timeout(PATIENCE, set.join_all()).await.expect("all is delivered in time");
    let mut deliveries: Vec<Delivery> = seen.into_iter().flatten().collect();
    deliveries.sort_by_key(|(_, token, _)| *token);
    let mut of_lane: BTreeMap<LaneKey, Vec<(u64, String)>> = BTreeMap::new();
    for (lane, _, events) in deliveries {
        of_lane.entry(lane).or_default().extend(events);
    }
    let delivered: usize = of_lane.values().map(Vec::len).sum();
    assert_eq!(delivered as u64, APPENDERS * EACH, "each event once");
    for (lane, events) in of_lane {
        assert!(events.is_sorted_by(|a, b| a.0 < b.0), "{lane}: in order and none twice");
        for n in 0..APPENDERS {
            let of_sender = events.iter().map(|(_, id)| id).filter(|id| id.starts_with(&format!("a{n}-")));
            assert!(
                of_sender.is_sorted_by(|a, b| a < b),
                "{lane}: in the order in which sender {n} sent them"
            );
        }
    }
    assert_eq!(totals(&*world.store(), "hot").await.succeeded, APPENDERS * EACH);
}

/// Claims and settles until `all` events are done; nobody else may hold a lane that is held here.
async fn work(
    store: &dyn Store,
    done: &AtomicU64,
    held: &Mutex<BTreeSet<LaneKey>>,
    all: u64,
) -> Vec<Delivery> {
    let me = worker("claimer");
    let mut seen = Vec::new();
    let mut listener = store.wakeups();
    while done.load(Ordering::SeqCst) < all {
        let batches = claim(store, ClaimRequest { max: 2, ..claim_request(&me) }).await.batches;
        if batches.is_empty() {
            // A wake-up of the last settle may have been heard by another claimer's work only: look again soon.
            let _ = tokio::time::timeout(Duration::from_millis(20), listener.woken()).await;
        }
        for batch in batches {
            let fresh = held.lock().expect("no test panics with it").insert(batch.lane.clone());
            assert!(fresh, "two claimers hold {} at once", batch.lane);
            tokio::task::yield_now().await;
            let events = batch.events.iter().map(|e| (e.seq, e.id.as_str().to_owned())).collect();
            seen.push((batch.lane.clone(), batch.token, events));
            held.lock().expect("no test panics with it").remove(&batch.lane);
            settle(store, &batch, SUCCEEDED).await;
            done.fetch_add(batch.events.len() as u64, Ordering::SeqCst);
        }
    }
    seen
}

pub async fn concurrent_appends_with_one_id_store_one_event(world: &dyn World) {
    let handles = handles(world).await;
    let answers = at_once((0..16).map(|n| {
        let store = handles[n % 2].clone();
        async move { append(&*store, [event("chat", "k1").id("same")]).await.remove(0) }
    }))
    .await;
    assert_eq!(answers.iter().filter(|r| !r.duplicate).count(), 1, "exactly one is new");
    let seqs: BTreeSet<_> = answers.iter().map(|r| (r.seq, r.run_id)).collect();
    assert_eq!(seqs.len(), 1, "and all get its receipt");
    assert_eq!(totals(&*world.store(), "chat").await.accepted, 1);
}

pub async fn concurrent_appends_of_one_id_with_two_payloads_keep_one_of_them(world: &dyn World) {
    let handles = handles(world).await;
    let answers = at_once((0..12).map(|n| {
        let store = handles[n % 2].clone();
        let payload = n % 3;
        async move {
            (payload, try_append(&*store, [event("chat", "k1").id("same").payload(json!(payload))]).await)
        }
    }))
    .await;
    let kept = claim_one(&*world.store()).await.events.remove(0).payload.as_str().to_owned();
    for (payload, answer) in answers {
        if payload.to_string() == kept {
            answer.expect("the kept payload is accepted or a duplicate");
        } else {
            refused(answer, ErrorKind::Conflict);
        }
    }
}

pub async fn two_claimers_never_get_the_same_lane(world: &dyn World) {
    let handles = handles(world).await;
    let wanted = ["k1", "k2", "k3", "k4", "k5"];
    for _ in 0..5 {
        append(&*handles[0], wanted.map(|key| event("chat", key))).await;
        let claims = at_once((0..8).map(|n| {
            let store = handles[n % 2].clone();
            async move { claim_all(&*store).await }
        }))
        .await;
        let all: Vec<Batch> = claims.into_iter().flatten().collect();
        assert_eq!(keys(&all), wanted, "each lane exactly once");
        for batch in &all {
            settle(&*handles[0], batch, SUCCEEDED).await;
        }
    }
}

pub async fn concurrent_claims_keep_max_running(world: &dyn World) {
    let handles = handles(world).await;
    append(&*handles[0], (0..12).map(|n| event("chat", &format!("k{n}")))).await;
    let claims = at_once((0..6).map(|n| {
        let store = handles[n % 2].clone();
        let bound = RunPolicy { max_running: Some(3), ..policy() };
        async move { claim(&*store, claim_request_by(&worker("w"), bound)).await.batches }
    }))
    .await;
    assert_eq!(claims.iter().map(Vec::len).sum::<usize>(), 3);
}

pub async fn reclaim_and_settle_at_once_have_exactly_one_winner(world: &dyn World) {
    let handles = handles(world).await;
    for round in 0..15 {
        let key = format!("k{round}");
        append_one(&*handles[0], event("chat", &key)).await;
        let old = claim_one(&*handles[0]).await;
        world.advance(secs(65)).await;
        let (a, b, c) = (handles[0].clone(), handles[1].clone(), handles[1].clone());
        let request = settle_request(&old, SUCCEEDED);
        let mut set: JoinSet<(bool, usize, Vec<Batch>)> = JoinSet::new();
        set.spawn(async move { (a.settle(request).await.is_ok(), 0, Vec::new()) });
        set.spawn(async move {
            let claimed = claim(&*b, claim_request(&worker("heir"))).await;
            (false, claimed.reclaimed.len(), claimed.batches)
        });
        set.spawn(async move { (false, sweep(&*c).await.reclaimed.len(), Vec::new()) });
        let answers = set.join_all().await;
        let settled = answers.iter().any(|a| a.0);
        let reclaimed: usize = answers.iter().map(|a| a.1).sum();
        assert_eq!(usize::from(settled) + reclaimed, 1, "round {round}: one of the two, not both, not none");
        let heirs: Vec<Batch> = answers.into_iter().flat_map(|a| a.2).collect();
        let told = changes(&trail_of(&*handles[0], "chat", &key).await);
        if settled {
            assert!(heirs.is_empty(), "a settled run is not handed out");
            assert_eq!(told, [Change::Claimed, Change::Succeeded]);
        } else {
            refused(try_settle(&*handles[0], &old, SUCCEEDED).await, ErrorKind::LostLease);
            assert_eq!(told[..2], [Change::Claimed, Change::Reclaimed]);
            let heir = match heirs.into_iter().next() {
                Some(heir) => heir,
                None => claim_one(&*handles[0]).await,
            };
            settle(&*handles[0], &heir, SUCCEEDED).await;
        }
    }
    assert_eq!(totals(&*world.store(), "chat").await.succeeded, 15);
}

pub async fn extend_and_reclaim_at_once_have_exactly_one_winner(world: &dyn World) {
    let handles = handles(world).await;
    for round in 0..15 {
        append_one(&*handles[0], event("chat", "k1")).await;
        let old = claim_one(&*handles[0]).await;
        world.advance(secs(65)).await;
        let (a, b) = (handles[0].clone(), handles[1].clone());
        let request = extend_request(&old, LEASE);
        let extending = tokio::spawn(async move { a.extend(request).await });
        let claiming = tokio::spawn(async move { claim_all(&*b).await });
        let (extended, claimed) = (extending.await.expect("no panic"), claiming.await.expect("no panic"));
        let holder = match extended {
            Ok(_) => {
                assert!(claimed.is_empty(), "round {round}: the lane was kept and given away");
                old
            }
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::LostLease, "{error}");
                claimed.into_iter().next().expect("the lane was taken back and handed out")
            }
        };
        let row = lane_row(&*handles[0], &holder.lane).await.expect("it runs");
        assert_eq!(row.token, Some(holder.token));
        settle(&*handles[1], &holder, SUCCEEDED).await;
    }
}

pub async fn one_settle_of_many_at_once_counts(world: &dyn World) {
    let handles = handles(world).await;
    append_one(&*handles[0], event("chat", "k1")).await;
    let batch = claim_one(&*handles[0]).await;
    let answers = at_once((0..10).map(|n| {
        let (store, request) = (handles[n % 2].clone(), settle_request(&batch, SUCCEEDED));
        async move { store.settle(request).await.expect("the same answer for all") }
    }))
    .await;
    assert_eq!(answers.iter().filter(|s| !s.repeated).count(), 1);
    assert!(answers.iter().all(|s| s.state == RunState::Succeeded));
    assert_eq!(totals(&*handles[0], "chat").await.succeeded, 1);
    assert_eq!(trail_of(&*handles[0], "chat", "k1").await.len(), 2);
}

pub async fn two_verdicts_at_once_have_exactly_one_winner(world: &dyn World) {
    let handles = handles(world).await;
    for round in 0..10 {
        append_one(&*handles[0], event("chat", "k1")).await;
        let batch = claim_one(&*handles[0]).await;
        let verdicts = [SUCCEEDED, FAILED];
        let answers = at_once((0..2).map(|n| {
            let (store, request) = (handles[n].clone(), settle_request(&batch, verdicts[n]));
            async move { store.settle(request).await }
        }))
        .await;
        assert_eq!(answers.iter().filter(|a| a.is_ok()).count(), 1, "round {round}");
        let lost = answers.into_iter().find(Result::is_err).expect("one lost");
        refused(lost, ErrorKind::AlreadySettled);
    }
    let t = totals(&*handles[0], "chat").await;
    assert_eq!(t.succeeded + t.dead, 10);
}

pub async fn a_lane_limit_holds_against_many_senders(world: &dyn World) {
    let handles = handles(world).await;
    let answers = at_once((0..20).map(|n| {
        let store = handles[n % 2].clone();
        async move { try_append(&*store, [event("chat", "k1").lane_events(5)]).await }
    }))
    .await;
    assert_eq!(answers.iter().filter(|a| a.is_ok()).count(), 5);
    for lost in answers.into_iter().filter(Result::is_err) {
        refused(lost, ErrorKind::Full);
    }
    assert_eq!(claim_one(&*world.store()).await.events.len(), 5);
}

pub async fn requests_that_cross_several_lanes_in_opposite_order_all_end(world: &dyn World) {
    let handles = handles(world).await;
    at_once((0..2).map(|n| {
        let store = handles[n].clone();
        async move {
            for _ in 0..30 {
                let mut lanes = ["k1", "k2", "k3"];
                if n == 1 {
                    lanes.reverse();
                }
                append(&*store, lanes.map(|key| event("chat", key))).await;
            }
        }
    }))
    .await;
    assert_eq!(totals(&*world.store(), "chat").await.accepted, 180);
}

pub async fn an_append_that_races_with_the_claim_is_in_this_run_or_the_next(world: &dyn World) {
    let handles = handles(world).await;
    for round in 0..15 {
        append_one(&*handles[0], event("chat", "k1").id(&format!("first-{round}"))).await;
        let (a, b) = (handles[0].clone(), handles[1].clone());
        let request = append_request([event("chat", "k1").id(&format!("second-{round}"))]);
        let appending =
            tokio::spawn(async move { a.append(request).await.expect("done").receipts.remove(0) });
        let claiming = tokio::spawn(async move { claim_one(&*b).await });
        let (receipt, batch) = (appending.await.expect("no panic"), claiming.await.expect("no panic"));
        settle(&*handles[0], &batch, SUCCEEDED).await;
        if batch.hi() < seq_of(&receipt) {
            assert_eq!(batch.events.len(), 1);
            let next = claim_one(&*handles[0]).await;
            assert_eq!((next.events.len(), next.hi()), (1, seq_of(&receipt)));
            assert_eq!(receipt.run_id, Some(next.run_id), "the receipt named the run it waits in");
            settle(&*handles[0], &next, SUCCEEDED).await;
        } else {
            assert_eq!(batch.events.len(), 2);
        }
        claim_none(&*handles[1]).await;
    }
}

pub async fn an_append_that_races_with_the_settle_is_never_forgotten(world: &dyn World) {
    let handles = handles(world).await;
    for round in 0..15 {
        append_one(&*handles[0], event("chat", "k1")).await;
        let batch = claim_one(&*handles[0]).await;
        let (a, b) = (handles[0].clone(), handles[1].clone());
        let id = format!("late-{round}");
        let request = append_request([event("chat", "k1").id(&id)]);
        let appending = tokio::spawn(async move { a.append(request).await.expect("done") });
        let settling = tokio::spawn(async move { settle(&*b, &batch, SUCCEEDED).await });
        appending.await.expect("no panic");
        settling.await.expect("no panic");
        let next = claim_one(&*handles[0]).await;
        assert_eq!(next.events.iter().map(|e| e.id.as_str()).collect::<Vec<_>>(), [id.as_str()]);
        settle(&*handles[0], &next, SUCCEEDED).await;
    }
}

pub async fn one_of_many_operators_pauses_the_lane(world: &dyn World) {
    let handles = handles(world).await;
    append_one(&*handles[0], event("chat", "k1")).await;
    let answers =
        at_once(
            (0..8).map(|n| {
                let store = handles[n % 2].clone();
                let action = ControlAction::PauseLane(lane("chat", "k1"));
                async move {
                    store.control(Control { actor: format!("op{n}"), action }).await.expect("done").changed
                }
            }),
        )
        .await;
    assert_eq!(answers.iter().filter(|changed| **changed).count(), 1);
    assert_eq!(changes(&trail_of(&*handles[0], "chat", "k1").await), [Change::Paused]);
}

/// A worker that only ever waits for its listener, never looking by itself, still sees every event.
pub async fn a_worker_that_trusts_its_wake_ups_sleeps_through_nothing(world: &dyn World) {
    const EVENTS: u64 = 25;
    let handles = handles(world).await;
    let (tell, mut told) = tokio::sync::mpsc::channel::<usize>(1);
    let store = handles[0].clone();
    let working = tokio::spawn(async move {
        let mut listener = store.wakeups();
        loop {
            for batch in claim_all(&*store).await {
                settle(&*store, &batch, SUCCEEDED).await;
                if tell.send(batch.events.len()).await.is_err() {
                    return;
                }
            }
            listener.woken().await;
        }
    });
    for n in 0..EVENTS {
        append_one(&*handles[1], event("chat", &format!("k{}", n % 3))).await;
        let seen = tokio::time::timeout(Duration::from_secs(5), told.recv()).await;
        assert_eq!(seen, Ok(Some(1)), "event {n} was slept through");
    }
    working.abort();
    let _ = working.await;
}
