//! Mistakes that other systems made, each shown not to be made here. The numbers are those of the list that the design
//! was checked against; each test opens with the mistake in one line.
//!
//! Not here, because a store cannot make them in this version:
//!
//! | mistake | where it is excluded |
//! | --- | --- |
//! | 3 a window that cannot work is silently ignored | `quell-core/src/window.rs`, `Window::check` |
//! | 10 policies named by what they do not do | names and documentation |
//! | 26, 27 renewal too late, or racing with the completion | the worker: `quell-core/src/step.rs`, `lease.rs` |
//! | 41, 42 a key taken from the first event or from volatile data | the key is part of every event, `event.rs` |
//! | 46 counts that scan history | counters: `sweep::the_totals_do_not_change_when_history_is_removed` |
//! | 47 redrive keeps an old counter | redrive is not in this version |
//! | 50 interrupts that leave things half done | interrupts are not in this version |

use std::time::Duration;

use quell_core::error::ErrorKind;
use quell_core::inspect::{LaneFilter, RunFilter};
use quell_core::lifecycle::{Change, RunState};
use quell_core::store::{ClaimRequest, ControlAction, RunPolicy};
use quell_core::window::{FiredBy, Window};
use serde_json::json;
use tokio::task::JoinSet;

use crate::World;
use crate::builders::{
    ATTEMPTS, LEASE, RETRY, SUCCEEDED, append, append_one, claim, claim_all, claim_none, claim_one,
    claim_one_as, claim_request, claim_request_by, control, event, event_in, extend, forget, ids, keys, lane,
    lane_of, policy, refused, secs, seq_of, seqs, settle, settle_after, sweep, try_append, try_settle,
    worker,
};
use crate::reads::{
    all_lanes, all_runs, assert_moment, changes, event_place, health, lane_row, run_detail, state_of, totals,
    trail_of,
};

/// A busy key never runs unless somebody thought of a cap.
pub async fn pitfall_01_a_busy_key_runs_even_if_nobody_set_a_cap(world: &dyn World) {
    let store = world.store();
    let mut waited = 0;
    loop {
        append_one(&*store, event("chat", "k1").quiet(20)).await;
        world.advance(secs(15)).await;
        waited += 15;
        let batches = claim_all(&*store).await;
        if let [batch] = &batches[..] {
            assert_eq!(batch.fired_by, FiredBy::Cap);
            break;
        }
        assert!(waited < 300, "the key starves");
    }
    assert!((200..=220).contains(&waited), "ten quiet periods by default, not {waited} s");
}

/// The cap is taken from each call, and one call without it removes the bound.
pub async fn pitfall_02_a_later_event_cannot_lift_the_cap(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").quiet_capped(20, 50)).await;
    for _ in 0..3 {
        world.advance(secs(15)).await;
        append_one(&*store, event("chat", "k1").quiet_capped(20, 100_000)).await;
    }
    world.advance(secs(10)).await;
    assert_eq!(claim_one(&*store).await.fired_by, FiredBy::Cap, "55 s have passed");
}

/// At the cap the new event opens a second run: the cap splits instead of being a deadline.
pub async fn pitfall_04_an_event_just_before_the_cap_joins_the_same_run(world: &dyn World) {
    let store = world.store();
    let first = append_one(&*store, event("chat", "k1").id("a").quiet_capped(20, 30)).await;
    world.advance(secs(15)).await;
    append_one(&*store, event("chat", "k1").id("b").quiet_capped(20, 30)).await;
    world.advance(secs(10)).await;
    let last = append_one(&*store, event("chat", "k1").id("c").quiet_capped(20, 30)).await;
    assert_eq!(last.run_id, first.run_id);
    world.advance(secs(10)).await;
    assert_eq!(ids(&claim_one(&*store).await), ["a", "b", "c"]);
}

/// Timers with the resolution of a second.
pub async fn pitfall_05_windows_are_kept_to_the_millisecond(world: &dyn World) {
    let store = world.store();
    let window = Window::quiet(Duration::from_millis(12_347));
    let receipt = append_one(&*store, event("chat", "k1").id("a").window(window)).await;
    let event = event_place(&*store, &lane("chat", "k1"), "a").await.expect("it is there").event;
    assert_eq!(receipt.due_at, Some(event.received_at.after(Duration::from_millis(12_347))));
}

/// Two timers for one deadline, and only one of them moves.
pub async fn pitfall_06_there_is_one_due_time_wherever_it_is_read(world: &dyn World) {
    let store = world.store();
    for _ in 0..3 {
        let receipt = append_one(&*store, event("chat", "k1").quiet_capped(20, 35)).await;
        let due = receipt.due_at;
        assert!(due.is_some());
        assert_eq!(lane_row(&*store, &lane("chat", "k1")).await.and_then(|r| r.due_at), due);
        let run = run_detail(&*store, receipt.run_id.expect("a run")).await.expect("it is shown");
        assert_eq!(run.row.next_at, due);
        // A claimer may be told to look earlier, but never later and never at once for nothing.
        let told = claim(&*store, claim_request(&worker("w"))).await;
        assert!(told.next_at.is_some_and(|at| told.now < at && Some(at) <= due), "{told:?} for {due:?}");
        world.advance(secs(10)).await;
    }
}

/// The application's clock is compared with the store's.
pub async fn pitfall_07_only_the_stores_clock_decides(world: &dyn World) {
    let store = world.store();
    // A store whose clock is far from that of everybody else.
    world.advance(secs(3 * 365 * 86_400)).await;
    let now = health(&*store).await.now;
    append_one(&*store, event("chat", "k1").fixed(20)).await;
    claim_none(&*store).await;
    world.advance(secs(25)).await;
    let batch = claim_one(&*store).await;
    assert_moment(world, batch.lease_until, now.after(secs(85)), "the lease starts at the store's now");
    settle_after(&*store, &batch, RETRY, secs(30)).await;
    world.advance(secs(25)).await;
    claim_none(&*store).await;
    world.advance(secs(10)).await;
    claim_one(&*store).await;
}

/// An event that is due in the future notifies nobody, and the poller sleeps too long.
pub async fn pitfall_08_a_future_due_time_wakes_those_who_sleep_for_longer(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    let mut listener = store.wakeups();
    assert_eq!(claim(&*store, claim_request(&worker("w"))).await.next_at, None);
    append_one(&*other, event("chat", "k1").fixed(20)).await;
    let heard = tokio::time::timeout(Duration::from_secs(5), listener.woken()).await;
    assert!(heard.is_ok(), "the sleeper must learn of the new due time");
    let told = claim(&*store, claim_request(&worker("w"))).await;
    assert_moment(world, told.next_at.expect("due soon"), told.now.after(secs(20)), "and when it is");
}

/// A window that starts when the events are fetched, so that it almost always closes empty.
pub async fn pitfall_09_a_window_is_measured_from_arrival(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let running = claim_one(&*store).await;
    append_one(&*store, event("chat", "k1").id("b").quiet(20)).await;
    world.advance(secs(25)).await;
    settle(&*store, &running, SUCCEEDED).await;
    assert_eq!(ids(&claim_one(&*store).await), ["b"], "its quiet time has passed during the run");
}

/// The last event wins and the others are gone.
pub async fn pitfall_11_all_events_of_a_burst_are_delivered(world: &dyn World) {
    let store = world.store();
    for n in 0..5 {
        append_one(&*store, event("chat", "k1").payload(json!(n)).quiet(20)).await;
    }
    world.advance(secs(25)).await;
    let batch = claim_one(&*store).await;
    let told: Vec<_> = batch.events.iter().map(|e| e.payload.as_str().to_owned()).collect();
    assert_eq!(told, ["0", "1", "2", "3", "4"]);
}

/// An event is folded into a run that has already taken its batch: all is marked a success, and it never ran.
pub async fn pitfall_12_an_event_is_never_folded_into_a_batch_already_taken(world: &dyn World) {
    let store = world.store();
    append(&*store, ["1", "2", "3"].map(|id| event("chat", "k1").id(id))).await;
    let first = claim_one(&*store).await;
    append(&*store, ["101", "102"].map(|id| event("chat", "k1").id(id))).await;
    settle(&*store, &first, SUCCEEDED).await;
    assert_eq!(ids(&first), ["1", "2", "3"]);
    assert_eq!(totals(&*store, "chat").await.succeeded, 3, "only what ran has succeeded");
    assert_eq!(ids(&claim_one(&*store).await), ["101", "102"]);
}

/// A retried call merges with itself, two digests of one second become one, values of different keys are mixed.
pub async fn pitfall_13_nothing_is_merged_by_finding_and_marking(world: &dyn World) {
    let store = world.store();
    append(&*store, [event("chat", "k1").id("a").fixed(20), event("chat", "k2").id("a").fixed(20)]).await;
    append(&*store, [event("chat", "k1").id("a").fixed(20)]).await;
    append(&*store, [event("chat", "k1").id("b").fixed(20)]).await;
    world.advance(secs(25)).await;
    let batches = claim_all(&*store).await;
    assert_eq!(batches.iter().map(ids).collect::<Vec<_>>(), [vec!["a", "b"], vec!["a"]]);
    assert!(batches.iter().all(|b| b.events.iter().all(|e| e.seq >= b.lo() && e.seq <= b.hi())));
}

/// The shape of the payload decides between merging and overwriting.
pub async fn pitfall_14_arrays_and_objects_are_events_like_any_other(world: &dyn World) {
    let store = world.store();
    for payload in [json!([1]), json!([2]), json!({"a": 1}), json!({"a": 2}), json!(null)] {
        append_one(&*store, event("chat", "k1").payload(payload)).await;
    }
    let batch = claim_one(&*store).await;
    let told: Vec<_> = batch.events.iter().map(|e| e.payload.as_str().to_owned()).collect();
    assert_eq!(told, ["[1]", "[2]", "{\"a\":1}", "{\"a\":2}", "null"]);
}

/// A failing run loses its events because a newer event came in.
pub async fn pitfall_15_a_failing_run_keeps_its_events_when_newer_ones_arrive(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a")).await;
    let first = claim_one(&*store).await;
    append_one(&*store, event("chat", "k1").id("b")).await;
    settle_after(&*store, &first, RETRY, secs(20)).await;
    append_one(&*store, event("chat", "k1").id("c")).await;
    world.advance(secs(25)).await;
    let again = claim_one(&*store).await;
    assert_eq!((ids(&again), again.attempt), (vec!["a"], 2));
    settle(&*store, &again, SUCCEEDED).await;
    assert_eq!(ids(&claim_one(&*store).await), ["b", "c"]);
}

/// Newer events set the attempts back to zero, so a poisoned key with steady traffic loops for ever.
pub async fn pitfall_16_newer_events_do_not_reset_attempts_or_backoff(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("poison")).await;
    for attempt in 1..=ATTEMPTS {
        let batch = claim_one(&*store).await;
        assert_eq!((ids(&batch), batch.attempt, batch.retries), (vec!["poison"], attempt, attempt - 1));
        append_one(&*store, event("chat", "k1")).await;
        settle_after(&*store, &batch, RETRY, secs(20)).await;
        append_one(&*store, event("chat", "k1")).await;
        if attempt < ATTEMPTS {
            claim_none(&*store).await;
            world.advance(secs(25)).await;
        }
    }
    assert_eq!(state_of(&*store, &lane("chat", "k1"), "poison").await, Some(RunState::Failed));
    assert_eq!(claim_one(&*store).await.events.len(), 2 * ATTEMPTS as usize, "the others go on without it");
}

/// Under contention the sender gets no answer at all.
pub async fn pitfall_17_every_sender_gets_a_number_or_an_error(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    let mut set = JoinSet::new();
    for n in 0..30 {
        let store = if n % 2 == 0 { store.clone() } else { other.clone() };
        set.spawn(async move { seq_of(&append_one(&*store, event("chat", "hot").quiet(20)).await) });
    }
    let mut seqs = set.join_all().await;
    seqs.sort_unstable();
    seqs.dedup();
    assert_eq!(seqs.len(), 30, "each has a number of its own");
}

/// Between "the queue is empty" and "the lock is free" a wake-up is lost.
pub async fn pitfall_18_an_event_during_the_last_moment_of_a_run_needs_no_later_event(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    extend(&*store, &batch, LEASE).await;
    append_one(&*store, event("chat", "k1").id("late")).await;
    settle(&*store, &batch, SUCCEEDED).await;
    assert_eq!(ids(&claim_one(&*store).await), ["late"]);
}

/// The buffer is removed before the flush worked; an id is reserved before its event was admitted.
pub async fn pitfall_19_what_was_not_admitted_reserves_nothing(world: &dyn World) {
    let store = world.store();
    let new = |id| event("chat", "k1").id(id).lane_events(1);
    append_one(&*store, new("a")).await;
    refused(try_append(&*store, [new("b")]).await, ErrorKind::Full);
    let batch = claim_one(&*store).await;
    world.advance(secs(65)).await;
    sweep(&*store).await;
    let again = claim_one(&*store).await;
    assert_eq!(seqs(&again), seqs(&batch), "a batch that was not finished is still there");
    settle(&*store, &again, SUCCEEDED).await;
    assert!(!append_one(&*store, new("b")).await.duplicate, "the refused id is free");
    assert_eq!(ids(&claim_one(&*store).await), ["b"]);
}

/// The sender is answered before the timer was stored.
pub async fn pitfall_20_an_answered_event_has_its_timer(world: &dyn World) {
    let store = world.store();
    let receipt = append_one(&*store, event("chat", "k1").quiet(20)).await;
    drop(store);
    let store = world.reopen().await;
    assert_eq!(claim(&*store, claim_request(&worker("w"))).await.next_at, receipt.due_at);
    world.advance(secs(25)).await;
    claim_one(&*store).await;
}

/// An event with an older time of its own is ignored.
pub async fn pitfall_21_events_are_ordered_by_arrival_and_not_by_their_own_time(world: &dyn World) {
    let store = world.store();
    for (id, at) in [("a", "2026-01-01"), ("b", "1999-01-01"), ("c", "2030-01-01")] {
        append_one(&*store, event("chat", "k1").id(id).payload(json!({ "at": at })).quiet(20)).await;
    }
    world.advance(secs(25)).await;
    assert_eq!(ids(&claim_one(&*store).await), ["a", "b", "c"]);
}

/// Idempotency is dropped exactly inside the window.
pub async fn pitfall_22_a_duplicate_inside_the_window_is_one_event(world: &dyn World) {
    let store = world.store();
    for _ in 0..3 {
        append(&*store, [event("chat", "k1").id("a").quiet(20)]).await;
        world.advance(secs(5)).await;
    }
    world.advance(secs(10)).await;
    assert_eq!(ids(&claim_one(&*store).await), ["a"], "25 s after the first, whatever the resends");
}

/// Under contention the answer is a success, but the update is dropped.
pub async fn pitfall_23_what_is_answered_under_contention_is_there(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    let mut set = JoinSet::new();
    for n in 0..20 {
        let store = store.clone();
        set.spawn(async move {
            let id = format!("e{n}");
            seq_of(&append_one(&*store, event("chat", "hot").id(&id).max_events(3)).await)
        });
    }
    let mut delivered = Vec::new();
    let claiming = tokio::spawn(async move {
        for _ in 0..20 {
            for batch in claim_all(&*other).await {
                settle(&*other, &batch, SUCCEEDED).await;
                delivered.extend(seqs(&batch));
            }
            tokio::task::yield_now().await;
        }
        delivered
    });
    let mut told = set.join_all().await;
    let mut delivered = claiming.await.expect("no panic");
    loop {
        let batches = claim_all(&*store).await;
        let Some(batch) = batches.first() else { break };
        settle(&*store, batch, SUCCEEDED).await;
        delivered.extend(seqs(batch));
    }
    told.sort_unstable();
    assert_eq!(delivered, told, "all of them, in order");
}

/// A full queue drops events and says nothing.
pub async fn pitfall_24_overflow_is_told_to_the_sender(world: &dyn World) {
    let store = world.store();
    append(&*store, [event("chat", "k1").id("a"), event("chat", "k1").id("b")]).await;
    let error = refused(try_append(&*store, [event("chat", "k1").lane_events(2)]).await, ErrorKind::Full);
    assert!(error.detail.contains("chat/k1"), "{error}");
    assert_eq!(ids(&claim_one(&*store).await), ["a", "b"], "nothing older was dropped for it");
}

/// A lock that is shorter than the handler.
pub async fn pitfall_25_a_lease_is_independent_of_the_length_of_the_run(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    for _ in 0..20 {
        world.advance(secs(50)).await;
        extend(&*store, &batch, LEASE).await;
        claim_none(&*other).await;
    }
    settle(&*store, &batch, SUCCEEDED).await;
}

/// The rescuer acts on an old picture and overwrites a finished run; the completion does not ask who completes.
pub async fn pitfall_28_every_change_is_conditional_on_state_and_token(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a")).await;
    let first = claim_one(&*store).await;
    world.advance(secs(65)).await;
    let second = claim_one(&*store).await;
    assert_eq!(second.run_id, first.run_id, "the same run, another attempt");
    refused(try_settle(&*store, &first, SUCCEEDED).await, ErrorKind::LostLease);
    assert_eq!(state_of(&*store, &lane("chat", "k1"), "a").await, Some(RunState::Running));
    settle(&*store, &second, SUCCEEDED).await;
    world.advance(secs(65)).await;
    assert!(sweep(&*store).await.reclaimed.is_empty(), "a finished run is not rescued");
    assert_eq!(state_of(&*store, &lane("chat", "k1"), "a").await, Some(RunState::Succeeded));
}

/// A limit kept in a counter of its own leaks when a worker dies.
pub async fn pitfall_30_a_crash_leaks_no_room_under_max_running(world: &dyn World) {
    let store = world.store();
    append(&*store, (0..6).map(|n| event("chat", &format!("k{n}")))).await;
    let request = || claim_request_by(&worker("w"), RunPolicy { max_running: Some(2), ..policy() });
    for _ in 0..ATTEMPTS {
        assert_eq!(claim(&*store, request()).await.batches.len(), 2);
        assert_eq!(claim(&*store, request()).await.batches.len(), 0);
        world.advance(secs(65)).await;
        sweep(&*store).await;
    }
    assert_eq!(claim(&*store, request()).await.batches.len(), 2);
}

/// Fetching ahead breaks the order within a key.
pub async fn pitfall_31_a_claim_of_many_takes_distinct_lanes(world: &dyn World) {
    let store = world.store();
    let events = (0..6).map(|n| event("chat", if n % 2 == 0 { "k1" } else { "k2" }).max_events(1));
    append(&*store, events).await;
    for _ in 0..3 {
        let batches = claim_all(&*store).await;
        assert_eq!(keys(&batches), ["k1", "k2"]);
        for batch in &batches {
            settle(&*store, batch, SUCCEEDED).await;
        }
    }
}

/// A worker that restarts with the same identity hides that its run is an orphan.
pub async fn pitfall_32_an_identity_used_twice_does_not_own_the_old_lease(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let me = worker("same");
    let before = claim_one_as(&*store, &me).await;
    drop(store);
    let store = world.reopen().await;
    assert!(claim(&*store, claim_request(&me)).await.batches.is_empty(), "its own orphan is still leased");
    world.advance(secs(65)).await;
    let after = claim_one_as(&*store, &me).await;
    assert_eq!(after.attempt, 2);
    refused(try_settle(&*store, &before, SUCCEEDED).await, ErrorKind::LostLease);
    settle(&*store, &after, SUCCEEDED).await;
}

/// A crash does not count as an attempt, so a poisoned batch crashes workers for ever.
pub async fn pitfall_33_a_crash_counts_as_an_attempt(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a")).await;
    let mut crashes = 0;
    while let [batch] = &claim_all(&*store).await[..] {
        crashes += 1;
        assert_eq!(batch.attempt, crashes);
        assert!(crashes <= ATTEMPTS, "it crashes workers for ever");
        world.advance(secs(65)).await;
    }
    assert_eq!(crashes, ATTEMPTS);
    assert_eq!(state_of(&*store, &lane("chat", "k1"), "a").await, Some(RunState::Failed));
}

/// Redeliveries are counted per session and never looked at.
pub async fn pitfall_34_each_claim_of_a_run_is_counted(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let run = claim_one(&*store).await.run_id;
    world.advance(secs(65)).await;
    settle(&*store, &claim_one(&*store).await, RETRY).await;
    settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
    let row = run_detail(&*store, run).await.expect("it is kept").row;
    assert_eq!((row.claims, row.attempts, row.retries), (3, 3, 1));
}

/// The sweeper is itself a job and can be stuck.
pub async fn pitfall_35_a_claim_takes_back_expired_lanes_without_any_sweeper(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    world.advance(secs(65)).await;
    assert_eq!(claim_one(&*store).await.run_id, batch.run_id);
}

/// The oldest events are scanned first, and a blocked key hides all the others.
pub async fn pitfall_36_a_blocked_key_with_many_events_hides_nobody(world: &dyn World) {
    let store = world.store();
    append(&*store, (0..500).map(|_| event("chat", "blocked").max_events(1))).await;
    let blocked = claim_one(&*store).await;
    append_one(&*store, event("chat", "free").id("a")).await;
    let request = ClaimRequest { max: 1, ..claim_request(&worker("w")) };
    let batches = claim(&*store, request).await.batches;
    assert_eq!(batches.iter().map(ids).collect::<Vec<_>>(), [["a"]]);
    settle_after(&*store, &blocked, RETRY, secs(100)).await;
    append_one(&*store, event("chat", "next").id("b")).await;
    assert_eq!(ids(&claim_one(&*store).await), ["b"]);
}

/// Something dated into the future blocks what is ready under the same lock.
pub async fn pitfall_37_a_backoff_blocks_its_own_lane_and_no_other(world: &dyn World) {
    let store = world.store();
    append(&*store, [event("chat", "k1"), event("chat", "k2")]).await;
    let batches = claim_all(&*store).await;
    settle_after(&*store, &batches[0], RETRY, secs(1_000)).await;
    settle(&*store, &batches[1], SUCCEEDED).await;
    append(&*store, [event("chat", "k1"), event("chat", "k2"), event("chat", "k3")]).await;
    assert_eq!(keys(&claim_all(&*store).await), ["k2", "k3"]);
}

/// Retries break the order.
pub async fn pitfall_38_a_retry_is_never_overtaken(world: &dyn World) {
    let store = world.store();
    let mut delivered = Vec::new();
    append(&*store, (0..4).map(|n| event("chat", "k1").id(&format!("e{n}")).max_events(1))).await;
    for round in 0..8 {
        let batch = claim_one(&*store).await;
        delivered.push(ids(&batch)[0].to_owned());
        if round % 2 == 0 {
            settle_after(&*store, &batch, RETRY, secs(20)).await;
            claim_none(&*store).await;
            world.advance(secs(25)).await;
        } else {
            settle(&*store, &batch, SUCCEEDED).await;
        }
    }
    assert_eq!(delivered, ["e0", "e0", "e1", "e1", "e2", "e2", "e3", "e3"]);
}

/// A `*` as key froze the queue; keys were glued together; numbers and texts were mixed up.
pub async fn pitfall_39_a_key_is_only_a_key(world: &dyn World) {
    let store = world.store();
    for key in ["*", "1", "1.0", "01", "true", "null", "{\"a\":1}", "k:*", "k%", "k\\_"] {
        append_one(&*store, event("chat", key).id("a")).await;
        let batch = claim_one(&*store).await;
        assert_eq!(batch.lane.key.as_str(), key);
        control(&*store, ControlAction::PauseLane(lane("chat", key))).await;
        settle(&*store, &batch, SUCCEEDED).await;
    }
    append_one(&*store, event("chat", "k:1")).await;
    append_one(&*store, event("chat", "other")).await;
    assert_eq!(keys(&claim_all(&*store).await), ["k:1", "other"], "pausing `*` paused one key");
}

/// Tenants share a buffer because the key alone is the identity.
pub async fn pitfall_40_the_same_key_of_two_tenants_or_queues_is_two_lanes(world: &dyn World) {
    let store = world.store();
    let lanes = [lane("chat", "+49"), lane_of("acme", "chat", "+49"), lane("sales", "+49")];
    for lane in &lanes {
        append_one(&*store, event_in(lane.clone()).id("a")).await;
    }
    control(&*store, ControlAction::PauseLane(lanes[1].clone())).await;
    let batches = claim_all(&*store).await;
    assert_eq!(
        batches.iter().map(|b| b.lane.clone()).collect::<Vec<_>>(),
        [lanes[0].clone(), lanes[2].clone()]
    );
}

/// Many different keys make everything slow, because each leaves something behind.
pub async fn pitfall_43_keys_that_went_idle_leave_nothing_behind(world: &dyn World) {
    let store = world.store();
    append(&*store, (0..300).map(|n| event("chat", &format!("customer-{n}")))).await;
    let mut done = 0;
    while done < 300 {
        let batches = claim(&*store, ClaimRequest { max: 500, ..claim_request(&worker("w")) }).await.batches;
        assert!(!batches.is_empty(), "{done} of 300 were handed over");
        for batch in &batches {
            settle(&*store, batch, SUCCEEDED).await;
        }
        done += batches.len();
    }
    assert!(all_lanes(&*store, LaneFilter::default()).await.is_empty());
    world.advance(secs(10_000)).await;
    forget(&*store, secs(5_000)).await;
    assert!(all_lanes(&*store, LaneFilter { idle: true, ..LaneFilter::default() }).await.is_empty());
    assert!(all_runs(&*store, RunFilter::default()).await.is_empty());
    assert_eq!(totals(&*store, "chat").await.succeeded, 300, "but they are still counted");
}

/// A concurrency limit that counts parts of a run.
pub async fn pitfall_44_a_limit_counts_runs_and_not_events(world: &dyn World) {
    let store = world.store();
    append(&*store, (0..10).map(|n| event("chat", if n < 5 { "k1" } else { "k2" }))).await;
    let bound = RunPolicy { max_running: Some(2), ..policy() };
    let batches = claim(&*store, claim_request_by(&worker("w"), bound)).await.batches;
    assert_eq!(batches.iter().map(|b| b.events.len()).collect::<Vec<_>>(), [5, 5]);
}

/// A pause skips the events that arrive during it.
pub async fn pitfall_45_a_pause_holds_events_and_skips_none(world: &dyn World) {
    let store = world.store();
    let key = lane("chat", "k1");
    append_one(&*store, event("chat", "k1").id("before").quiet(20)).await;
    control(&*store, ControlAction::PauseLane(key.clone())).await;
    append_one(&*store, event("chat", "k1").id("during").quiet(20)).await;
    world.advance(secs(1_000)).await;
    claim_none(&*store).await;
    control(&*store, ControlAction::ResumeLane(key)).await;
    assert_eq!(ids(&claim_one(&*store).await), ["before", "during"]);
}

/// A hot key: every sender waits for the same lock, fails and tries again.
pub async fn pitfall_48_a_hot_key_takes_all_its_events_while_it_is_processed(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    append_one(&*store, event("chat", "hot")).await;
    let running = claim_one(&*store).await;
    let mut set = JoinSet::new();
    for n in 0..60 {
        let store = if n % 2 == 0 { store.clone() } else { other.clone() };
        set.spawn(async move { append_one(&*store, event("chat", "hot").quiet(20)).await });
    }
    let extended = extend(&*other, &running, LEASE).await;
    assert!(extended.newer <= 60, "a heartbeat does not queue behind the senders for ever");
    assert_eq!(set.join_all().await.len(), 60);
    assert_eq!(extend(&*store, &running, LEASE).await.newer, 60);
    settle(&*store, &running, SUCCEEDED).await;
    world.advance(secs(25)).await;
    assert_eq!(claim_one(&*store).await.events.len(), 60);
    assert_eq!(
        changes(&trail_of(&*store, "chat", "hot").await),
        [Change::Claimed, Change::Succeeded, Change::Claimed]
    );
}

/// The size of a batch is limited only where it is sent, which is too late.
pub async fn pitfall_49_a_batch_is_cut_by_bytes_and_the_rest_follows_in_order(world: &dyn World) {
    let store = world.store();
    let body = format!("\"{}\"", "x".repeat(998));
    append(&*store, (0..10).map(|_| event("chat", "k1").raw(&body).fixed(500).max_bytes(3_500))).await;
    let mut delivered = Vec::new();
    for expected in [3, 3, 3, 1] {
        let batch = claim_one(&*store).await;
        assert_eq!(batch.events.len(), expected);
        delivered.extend(seqs(&batch));
        settle(&*store, &batch, SUCCEEDED).await;
    }
    assert!(delivered.is_sorted_by(|a, b| a < b) && delivered.len() == 10);
}
