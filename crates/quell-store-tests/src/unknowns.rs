//! Promises for those who do not know: a caller whose answer was lost repeats its request with the same id or token, and
//! is answered as the first time; nothing is done twice, and nobody else is disturbed.

use quell_core::batch::Batch;
use quell_core::error::{ErrorKind, StoreResult};
use quell_core::lane::OnFailed;
use quell_core::lifecycle::{Change, RunState};
use quell_core::limits;
use quell_core::outcome::Verdict;
use quell_core::store::{
    ClaimQueues, ClaimRequest, ControlAction, HoldAnswer, PurgeWhat, RedriveTo, RunPolicy, SettleRequest,
    Settled, Store,
};
use quell_core::totals::Totals;
use serde_json::json;

use crate::World;
use crate::builders::{
    FAILED, INTERRUPTED, LEASE, RELEASE, RETRY, SUCCEEDED, SUPERSEDED, append, append_one, cancel, claim,
    claim_by, claim_none, claim_one, claim_request, control, event, extend, forget, from_queue, gated, hold,
    hold_at_head, hold_request, ids, interrupting, keys, lane, on_failed, policy, purge, redrive,
    redrive_request, refused, secs, settle, settle_after, settle_request, sweep, try_append, try_delete,
    try_settle, worker,
};
use crate::reads::{changes, event_place, lane_row, run_detail, state_of, totals, trail_of};

const ALL: [Verdict; 6] = [SUCCEEDED, FAILED, RETRY, RELEASE, INTERRUPTED, SUPERSEDED];

/// One event of the one key, claimed by this policy.
async fn claimed(store: &dyn Store, policy: &RunPolicy) -> Batch {
    append_one(store, event("chat", "k1")).await;
    claim_by(store, policy).await
}

/// The same verdict gets the same answer, again and again; every other verdict is refused and changes nothing.
async fn answered_alike(store: &dyn Store, batch: &Batch, verdict: Verdict, first: &Settled) {
    let expected = Settled { repeated: true, ..first.clone() };
    let before = changes(&trail_of(store, "chat", "k1").await);
    for _ in 0..2 {
        let again = try_settle(store, batch, verdict).await;
        assert_eq!(again.as_ref(), Ok(&expected), "{verdict:?} repeated");
        for other in ALL.into_iter().filter(|other| other.kind() != verdict.kind()) {
            refused(try_settle(store, batch, other).await, ErrorKind::AlreadySettled);
        }
    }
    assert_eq!(changes(&trail_of(store, "chat", "k1").await), before, "nothing was done twice");
}

// Settles.

/// Rule 20: every verdict that ends or parks a run is answered alike when it is repeated, and other verdicts are refused.
pub async fn a_repeated_settle_of_each_verdict_is_answered_alike(world: &dyn World) {
    let store = world.store();
    for (verdict, state) in [
        (SUCCEEDED, RunState::Succeeded),
        (FAILED, RunState::Failed),
        (RETRY, RunState::Retryable),
        (RELEASE, RunState::Pending),
    ] {
        let batch = claimed(&*store, &policy()).await;
        let first = settle_after(&*store, &batch, verdict, secs(50)).await;
        assert_eq!(first.state, state);
        answered_alike(&*store, &batch, verdict, &first).await;
        cancel(&*store, &batch.lane).await;
        answered_alike(&*store, &batch, verdict, &first).await;
    }
}

/// Rule 20: a retry that was the last attempt is told what it was told: failed, and by exhaustion.
pub async fn a_repeated_settle_of_an_exhausted_retry_is_answered_alike(world: &dyn World) {
    let store = world.store();
    let once = RunPolicy { max_attempts: 1, ..policy() };
    let batch = claimed(&*store, &once).await;
    let first = settle(&*store, &batch, RETRY).await;
    assert_eq!((first.state, first.change, first.next_at), (RunState::Failed, Change::Exhausted, None));
    answered_alike(&*store, &batch, RETRY, &first).await;
}

/// Rule 20: giving way is answered alike, also when the run has long been merged and has ended.
pub async fn a_repeated_settle_of_giving_way_is_answered_alike(world: &dyn World) {
    let store = world.store();
    for (verdict, change) in [(SUPERSEDED, Change::Superseded), (INTERRUPTED, Change::Interrupted)] {
        let policy = if verdict == SUPERSEDED { gated(3) } else { interrupting(3) };
        let batch = claimed(&*store, &policy).await;
        append_one(&*store, event("chat", "k1")).await;
        let first = settle(&*store, &batch, verdict).await;
        assert_eq!((first.state, first.change), (RunState::Pending, change));
        answered_alike(&*store, &batch, verdict, &first).await;
        let merged = claim_by(&*store, &policy).await;
        answered_alike(&*store, &batch, verdict, &first).await;
        settle(&*store, &merged, SUCCEEDED).await;
        answered_alike(&*store, &batch, verdict, &first).await;
    }
}

/// Rule 20: giving way with nothing to give way to was a retry, and is told as one.
pub async fn a_repeated_settle_that_became_a_retry_is_answered_alike(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &gated(3)).await;
    let first = settle(&*store, &batch, SUPERSEDED).await;
    assert_eq!(first.change, Change::Retried);
    answered_alike(&*store, &batch, SUPERSEDED, &first).await;
}

/// Rule 20: a success on condition that became a giving way is the answer to that success, condition or not.
pub async fn a_repeated_conditional_success_is_answered_alike(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &gated(3)).await;
    append_one(&*store, event("chat", "k1")).await;
    let request = SettleRequest { if_head: Some(batch.head_seq), ..settle_request(&batch, SUCCEEDED) };
    let first = store.settle(request).await.expect("the holder may settle");
    assert_eq!(first.change, Change::Superseded);
    answered_alike(&*store, &batch, SUCCEEDED, &first).await;
}

/// Rule 20: what a holder said when an operator had cancelled is remembered as it was said.
pub async fn a_repeated_settle_of_a_cancelled_run_is_answered_alike(world: &dyn World) {
    let store = world.store();
    for (verdict, change) in [(RETRY, Change::Cancelled), (SUCCEEDED, Change::Succeeded)] {
        let batch = claimed(&*store, &policy()).await;
        cancel(&*store, &batch.lane).await;
        let first = settle(&*store, &batch, verdict).await;
        assert_eq!((first.change, first.next_at), (change, None));
        answered_alike(&*store, &batch, verdict, &first).await;
    }
}

/// Rule 20: a failure that halved the batch is answered alike while the halves go on, and halves it once.
pub async fn a_repeated_settle_of_a_split_run_is_answered_alike(world: &dyn World) {
    let store = world.store();
    let bisect = RunPolicy { max_attempts: 1, ..on_failed(OnFailed::Bisect) };
    append(&*store, ["a", "b"].map(|id| event("chat", "k1").id(id))).await;
    let whole = claim_by(&*store, &bisect).await;
    let first = settle(&*store, &whole, FAILED).await;
    assert_eq!((first.state, first.change), (RunState::Failed, Change::Split));
    answered_alike(&*store, &whole, FAILED, &first).await;
    let half = claim_by(&*store, &bisect).await;
    answered_alike(&*store, &whole, FAILED, &first).await;
    assert_eq!(ids(&half), ["a"]);
    settle(&*store, &half, SUCCEEDED).await;
    assert_eq!(ids(&claim_by(&*store, &bisect).await), ["b"]);
}

/// Rule 20: longer than an hour, through other attempts, handles and a restart.
pub async fn a_settlement_is_answered_alike_after_more_than_an_hour(world: &dyn World) {
    let store = world.store();
    let batch = claimed(&*store, &policy()).await;
    let first = settle_after(&*store, &batch, RETRY, secs(30)).await;
    world.advance(secs(4_000)).await;
    forget(&*store, secs(7 * 86_400)).await;
    let second = claim_one(&*store).await;
    answered_alike(&*store, &batch, RETRY, &first).await;
    let last = settle(&*store, &second, SUCCEEDED).await;
    world.advance(secs(4_000)).await;
    forget(&*store, secs(7_200)).await;
    drop(store);
    let store = world.reopen().await;
    answered_alike(&*world.another().await, &second, SUCCEEDED, &last).await;
    answered_alike(&*store, &second, SUCCEEDED, &last).await;
}

/// Rule 20: only a token that never settled this run is stale: reclaimed, given to another, or never handed out.
pub async fn only_a_token_that_never_settled_is_stale(world: &dyn World) {
    let store = world.store();
    let lost = claimed(&*store, &policy()).await;
    world.advance(LEASE + secs(10)).await;
    sweep(&*store).await;
    let retried = claim_one(&*store).await;
    settle(&*store, &retried, RETRY).await;
    let last = claim_one(&*store).await;
    let never = Batch { token: last.token + 1_000, ..last.clone() };
    for verdict in ALL {
        refused(try_settle(&*store, &lost, verdict).await, ErrorKind::LostLease);
        refused(try_settle(&*store, &never, verdict).await, ErrorKind::LostLease);
    }
    assert!(try_settle(&*store, &retried, RETRY).await.expect("the same answer").repeated);
    settle(&*store, &last, SUCCEEDED).await;
    for verdict in ALL {
        refused(try_settle(&*store, &lost, verdict).await, ErrorKind::LostLease);
        refused(try_settle(&*store, &never, verdict).await, ErrorKind::LostLease);
    }
    assert!(try_settle(&*store, &retried, RETRY).await.expect("the same answer").repeated);
}

/// Rule 20: verdicts inside a group are per item: many settles at once, good, repeated, contrary and stale.
pub async fn settles_sent_at_once_are_answered_each_by_itself(world: &dyn World) {
    let store = world.store();
    let lane_keys: Vec<String> = (0..12).map(|n| format!("k{n:02}")).collect();
    append(&*store, lane_keys.iter().map(|key| event("chat", key))).await;
    let batches = claim(&*store, claim_request(&worker("w"))).await.batches;
    assert_eq!(batches.len(), 12);
    for batch in batches.iter().filter(|b| b.lane.key.as_str() < "k06") {
        settle(&*store, batch, SUCCEEDED).await;
    }
    let mut tasks = Vec::new();
    for (n, batch) in batches.iter().cloned().enumerate() {
        let store = if n % 2 == 0 { world.store() } else { world.another().await };
        let stale = n % 3 == 0;
        let verdict = if n % 3 == 1 { FAILED } else { SUCCEEDED };
        let batch = if stale { Batch { token: batch.token + 1_000, ..batch } } else { batch };
        tasks.push(tokio::spawn(async move { (n, try_settle(&*store, &batch, verdict).await) }));
    }
    for task in tasks {
        let (n, answer): (usize, StoreResult<Settled>) = task.await.expect("no task panics");
        match (n % 3, n < 6) {
            (0, _) => drop(refused(answer, ErrorKind::LostLease)),
            (1, true) => drop(refused(answer, ErrorKind::AlreadySettled)),
            (1, false) => assert_eq!(answer.expect("the holder may settle").state, RunState::Failed),
            (_, settled) => assert_eq!(answer.expect("the holder may settle").repeated, settled),
        }
    }
    let expected = Totals { accepted: 12, succeeded: 8, dead: 2, in_flight: 2, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, expected);
}

// Holds.

/// Rule 5: a repeated hold is answered alike, whatever it was answered, also after its attempt is over.
pub async fn a_repeated_hold_is_answered_alike_after_its_attempt(world: &dyn World) {
    let store = world.store();
    let first = claimed(&*store, &gated(3)).await;
    append_one(&*store, event("chat", "k1")).await;
    assert_eq!(hold_at_head(&*store, &first).await, HoldAnswer::Superseded);
    let second = claim_by(&*store, &gated(3)).await;
    assert_eq!(hold_at_head(&*store, &second).await, HoldAnswer::Held);
    append_one(&*store, event("chat", "k1")).await;
    assert_eq!(hold_at_head(&*store, &second).await, HoldAnswer::Held, "it was up to date when it asked");
    assert_eq!(hold(&*store, &first).await, HoldAnswer::Superseded);
    settle(&*store, &second, SUCCEEDED).await;
    assert_eq!(hold_at_head(&*store, &first).await, HoldAnswer::Superseded);
    refused(store.hold(hold_request(&second, None)).await, ErrorKind::AlreadySettled);
    let held = trail_of(&*store, "chat", "k1").await.iter().filter(|r| r.change == Change::Held).count();
    assert_eq!(held, 1, "one record, however often it was asked");
}

// Claims.

fn named(id: &str, worker: &std::sync::Arc<quell_core::batch::WorkerId>, max: usize) -> ClaimRequest {
    ClaimRequest { claim_id: Some(id.into()), max, ..claim_request(worker) }
}

/// Rule 21: a repeated claim returns the same live claims with the same tokens, and takes no others.
pub async fn a_repeated_claim_returns_the_same_live_claims(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    append(&*store, ["k1", "k2", "k3"].map(|key| event("chat", key))).await;
    let worker = worker("w");
    let first = claim(&*store, named("c1", &worker, 2)).await;
    assert_eq!(first.batches.len(), 2);
    append_one(&*store, event("chat", "k4")).await;
    for (store, max) in [(&store, 2), (&other, 10), (&store, 1)] {
        let again = claim(&**store, named("c1", &worker, max)).await;
        assert_eq!(again.batches, first.batches, "the same envelopes, whatever else is due");
    }
    let row = run_detail(&*store, first.batches[0].run_id).await.expect("it runs").row;
    assert_eq!((row.claims, row.attempts), (1, 1), "nothing was counted twice");
    drop((store, other));
    let store = world.reopen().await;
    assert_eq!(claim(&*store, named("c1", &worker, 2)).await.batches, first.batches, "also after a restart");
    let rest = claim(&*store, named("c2", &worker, 10)).await;
    assert_eq!(rest.batches.len(), 2, "another claim takes what is left");
}

/// Rule 21: a repeated claim returns the batch as it was handed over, though newer events have arrived, and its lease
/// as it is.
pub async fn a_repeated_claim_does_not_change_what_was_handed_over(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a")).await;
    let worker = worker("w");
    let first = claim(&*store, named("c1", &worker, 10)).await.batches.remove(0);
    append_one(&*store, event("chat", "k1").id("b")).await;
    world.advance(secs(30)).await;
    let again = claim(&*store, named("c1", &worker, 10)).await.batches.remove(0);
    assert_eq!((again.token, ids(&again), again.lease_until), (first.token, vec!["a"], first.lease_until));
    assert_eq!(again.head_seq, first.head_seq, "the gate is measured by the head at the claim");
    extend(&*store, &first, LEASE).await;
    world.advance(secs(50)).await;
    let again = claim(&*store, named("c1", &worker, 10)).await.batches.remove(0);
    assert_eq!(again.token, first.token, "a renewed lease is live");
    assert!(again.lease_until > first.lease_until);
}

/// Rule 21: of several claims those that have ended are not returned; when none is live, the claim is a new one.
pub async fn a_repeated_claim_starts_anew_when_its_claims_have_ended(world: &dyn World) {
    let store = world.store();
    append(&*store, ["k1", "k2"].map(|key| event("chat", key))).await;
    let worker = worker("w");
    let first = claim(&*store, named("c1", &worker, 10)).await.batches;
    settle(&*store, &first[0], SUCCEEDED).await;
    append_one(&*store, event("chat", "k3")).await;
    let again = claim(&*store, named("c1", &worker, 10)).await.batches;
    assert_eq!(keys(&again), ["k2"], "the one that is still live, and nothing new");
    settle(&*store, &first[1], SUCCEEDED).await;
    let anew = claim(&*store, named("c1", &worker, 10)).await.batches;
    assert_eq!(keys(&anew), ["k3"]);
    world.advance(LEASE + secs(10)).await;
    let expired = claim(&*store, named("c1", &worker, 10)).await;
    assert_eq!((expired.reclaimed.len(), keys(&expired.batches)), (1, vec!["k3"]));
    assert!(
        expired.batches[0].token > anew[0].token,
        "an expired claim is not live: this is another attempt"
    );
    assert_eq!(expired.batches[0].attempt, 2);
}

/// Rule 21: the id is the caller's own: the same text from another worker is another claim.
pub async fn the_same_claim_id_of_another_worker_is_another_claim(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let (one, two) = (worker("one"), worker("two"));
    let first = claim(&*store, named("1", &one, 10)).await.batches;
    assert!(claim(&*store, named("1", &two, 10)).await.batches.is_empty(), "nobody gets another's lease");
    append_one(&*store, event("chat", "k2")).await;
    let second = claim(&*store, named("1", &two, 10)).await.batches;
    assert_eq!(keys(&second), ["k2"]);
    assert_eq!(claim(&*store, named("1", &one, 10)).await.batches, first, "each repeats its own");
    assert_eq!(claim(&*store, named("1", &two, 10)).await.batches, second);
}

/// Rule 21: a repeated claim of nothing is simply a claim, and without an id nothing is repeated.
pub async fn a_claim_that_got_nothing_or_has_no_id_takes_what_is_due(world: &dyn World) {
    let store = world.store();
    let worker = worker("w");
    assert!(claim(&*store, named("c1", &worker, 10)).await.batches.is_empty());
    append_one(&*store, event("chat", "k1")).await;
    assert_eq!(claim(&*store, named("c1", &worker, 10)).await.batches.len(), 1);
    append_one(&*store, event("chat", "k2")).await;
    assert_eq!(keys(&claim(&*store, claim_request(&worker)).await.batches), ["k2"]);
}

/// Rule 21: a claim without a usable id is refused, and takes nothing.
pub async fn a_claim_id_that_is_empty_or_too_long_is_refused(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let worker = worker("w");
    let long = "x".repeat(limits::CLAIM_ID_BYTES_MAX);
    for bad in ["", &format!("{long}x")] {
        refused(store.claim(named(bad, &worker, 10)).await, ErrorKind::Invalid);
    }
    assert_eq!(claim(&*store, named(&long, &worker, 10)).await.batches.len(), 1);
}

/// Rule 21: many repetitions at once get the same claims.
pub async fn claims_of_one_id_at_once_get_the_same(world: &dyn World) {
    let store = world.store();
    append(&*store, (0..6).map(|n| event("chat", &format!("k{n}")))).await;
    let worker = worker("w");
    let mut tasks = Vec::new();
    for n in 0..8 {
        let store = if n % 2 == 0 { world.store() } else { world.another().await };
        let queues = ClaimQueues::Listed(vec![from_queue("chat", policy(), 10)]);
        let request = ClaimRequest { queues, ..named("c1", &worker, 3) };
        tasks.push(tokio::spawn(async move { claim(&*store, request).await.batches }));
    }
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.expect("no task panics"));
    }
    assert_eq!(answers[0].len(), 3);
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert_eq!(totals(&*store, "chat").await.in_flight, 3);
}

// Ids.

/// Rule 25: a request is all or nothing, and a limit or conflict in one never affects another sent at the same time.
pub async fn a_limit_in_one_request_does_not_affect_another_sent_at_the_same_time(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "full").lane_events(1)).await;
    append_one(&*store, event("chat", "k1").id("taken").payload(json!(0))).await;
    let mut tasks = Vec::new();
    for n in 0..18 {
        let store = if n % 2 == 0 { world.store() } else { world.another().await };
        tasks.push(tokio::spawn(async move {
            let good = || event("chat", "k1").id(&format!("e{n}"));
            let events = match n % 6 {
                0 | 1 => vec![good()],
                2 => vec![good(), event("chat", "full").lane_events(1)],
                3 => vec![good(), event("chat", "k1").id("taken").payload(json!(1))],
                4 => vec![good(), event("chat", "full").only_if_idle()],
                _ => vec![good().delay(30), event("chat", "k1").id("taken").payload(json!(1))],
            };
            (n, try_append(&*store, events).await)
        }));
    }
    for task in tasks {
        let (n, answer) = task.await.expect("no task panics");
        match n % 6 {
            0 | 1 => assert!(!answer.expect("a good request is done").receipts[0].duplicate),
            2 => drop(refused(answer, ErrorKind::Full)),
            4 => drop(refused(answer, ErrorKind::NotIdle)),
            _ => drop(refused(answer, ErrorKind::Conflict)),
        }
    }
    let expected = Totals { accepted: 8, buffered: 8, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, expected);
}

/// Rule 23: a duplicate of a dead or discarded event is answered as duplicate with its state, and revives nothing.
pub async fn a_duplicate_of_a_dead_or_discarded_event_revives_nothing(world: &dyn World) {
    let store = world.store();
    let key = lane("chat", "k1");
    let new = |id: &str| event("chat", "k1").id(id);
    append_one(&*store, new("dead")).await;
    settle(&*store, &claim_one(&*store).await, FAILED).await;
    append_one(&*store, new("purged")).await;
    settle(&*store, &claim_one(&*store).await, FAILED).await;
    let purged = event_place(&*store, &key, "purged").await.expect("it is dead").run_id;
    redrive(&*store, event_place(&*store, &key, "dead").await.and_then(|p| p.run_id).expect("it is dead"))
        .await;
    purge(&*store, "chat", PurgeWhat::Dead).await;
    settle(&*store, &claim_one(&*store).await, FAILED).await;
    append_one(&*store, new("cancelled")).await;
    cancel(&*store, &key).await;
    append(&*store, [new("deleted").fixed(500), new("dropped").fixed(500)]).await;
    try_delete(&*store, &key, "deleted").await.expect("it is buffered");
    append_one(&*store, new("newest").lane_events(1).drop_oldest()).await;
    purge(&*store, "chat", PurgeWhat::Buffered).await;
    let before = totals(&*store, "chat").await;
    assert_eq!((before.dead, before.discarded, before.buffered), (1, 5, 0));
    for name in ["dead", "purged", "cancelled", "deleted", "dropped", "newest"] {
        let state = if name == "dead" { RunState::Failed } else { RunState::Cancelled };
        for again in [new(name), new(name).delay(30), new(name).drop_oldest()] {
            let told = append(&*store, [again]).await.remove(0);
            assert!(told.duplicate, "{name}");
            assert_eq!((told.state, told.due_at), (Some(state), None), "{name}");
            assert_eq!(told.run_id, event_place(&*store, &key, name).await.and_then(|p| p.run_id), "{name}");
        }
        let other = new(name).payload(json!("other"));
        refused(try_append(&*store, [other]).await, ErrorKind::Conflict);
    }
    claim_none(&*store).await;
    assert_eq!(totals(&*store, "chat").await, before);
    assert_eq!(event_place(&*store, &key, "purged").await.expect("it is kept").run_id, purged);
}

/// Rules 19 and 23: a delayed event that was purged is discarded like any other: seen, known and redrivable.
pub async fn a_purged_delayed_event_is_known_and_redrivable(world: &dyn World) {
    let store = world.store();
    let key = lane("chat", "k1");
    append_one(&*store, event("chat", "k1").id("a").delay(30)).await;
    assert_eq!(purge(&*store, "chat", PurgeWhat::Delayed).await.events, 1);
    let told = append(&*store, [event("chat", "k1").id("a")]).await.remove(0);
    assert_eq!((told.duplicate, told.state), (true, Some(RunState::Cancelled)));
    world.advance(secs(40)).await;
    claim_none(&*store).await;
    let place = event_place(&*store, &key, "a").await.expect("it is kept");
    assert_eq!((place.ready_at, place.state), (None, Some(RunState::Cancelled)));
    let expected = Totals { accepted: 1, discarded: 1, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, expected);
    redrive(&*store, place.run_id.expect("it has a run of its own")).await;
    assert_eq!(ids(&claim_one(&*store).await), ["a"]);
}

/// Rule 23: an id repeated inside one array duplicates the first, also when the first was known before.
pub async fn an_id_repeated_inside_one_array_duplicates_the_first(world: &dyn World) {
    let store = world.store();
    let known = append_one(&*store, event("chat", "k1").id("known").fixed(500)).await;
    let names = ["known", "a", "b", "a", "known", "a"];
    let told = append(&*store, names.map(|name| event("chat", "k1").id(name))).await;
    let duplicates: Vec<bool> = told.iter().map(|r| r.duplicate).collect();
    assert_eq!(duplicates, [true, false, false, true, true, true]);
    assert_eq!((told[0].seq, told[4].seq), (known.seq, known.seq));
    assert_eq!((told[3].seq, told[5].seq), (told[1].seq, told[1].seq));
    let run = told[1].run_id;
    assert!(run.is_some() && told.iter().all(|r| r.run_id == run), "all of them wait in one run");
    assert_eq!(totals(&*store, "chat").await.accepted, 3);
}

/// Rule 23: the retention starts when the event ends: ids of delayed, buffered, in-flight and dead events do not expire.
pub async fn ids_expire_only_when_the_event_has_ended_and_the_retention_is_over(world: &dyn World) {
    let store = world.store();
    let new = |key: &str| event("chat", key).id("a");
    append(&*store, [new("delayed").delay(5_000), new("buffered").fixed(5_000)]).await;
    append(&*store, [new("dead"), new("flies"), new("late"), new("soon")]).await;
    let batches = claim(&*store, claim_request(&worker("w"))).await.batches;
    assert_eq!(keys(&batches), ["dead", "flies", "late", "soon"]);
    settle(&*store, &batches[0], FAILED).await;
    settle(&*store, &batches[3], SUCCEEDED).await;
    world.advance(secs(100)).await;
    settle(&*store, &batches[2], SUCCEEDED).await;
    forget(&*store, secs(50)).await;
    let known = ["buffered", "dead", "delayed", "flies", "late"];
    for key in known {
        let told = append(&*store, [new(key)]).await.remove(0);
        assert!(told.duplicate, "the id of an event that is {key} is known");
    }
    assert!(!append(&*store, [new("soon")]).await.remove(0).duplicate, "and free when its time is over");
    world.advance(secs(100)).await;
    forget(&*store, secs(50)).await;
    assert!(!append(&*store, [new("late")]).await.remove(0).duplicate, "as here");
    assert_eq!(state_of(&*store, &lane("chat", "dead"), "a").await, Some(RunState::Failed));
}

/// Rule 23: a dead event that was redriven as new keeps its id, and the retention starts when it ends at last.
pub async fn the_id_of_a_redriven_event_expires_when_it_ends_at_last(world: &dyn World) {
    let store = world.store();
    let new = || event("chat", "k1").id("a");
    append_one(&*store, new()).await;
    let dead = claim_one(&*store).await;
    settle(&*store, &dead, FAILED).await;
    world.advance(secs(100)).await;
    control(&*store, ControlAction::Redrive(redrive_request(dead.run_id, RedriveTo::New))).await;
    forget(&*store, secs(50)).await;
    assert!(append(&*store, [new()]).await.remove(0).duplicate);
    settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
    forget(&*store, secs(50)).await;
    assert!(append(&*store, [new()]).await.remove(0).duplicate, "it has just ended");
    world.advance(secs(100)).await;
    forget(&*store, secs(50)).await;
    assert!(!append(&*store, [new()]).await.remove(0).duplicate);
    assert_eq!(lane_row(&*store, &lane("chat", "k1")).await.expect("it waits").buffered, 1);
}
