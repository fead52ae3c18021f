//! Promises of append: acknowledged means stored, in order, once; windows are measured from arrival; refused means that
//! nothing was stored.

use quell_core::error::ErrorKind;
use quell_core::event::Key;
use quell_core::lifecycle::RunState;
use quell_core::limits;
use quell_core::store::AppendRequest;
use quell_core::totals::Totals;
use quell_core::window::Window;
use serde_json::json;

use crate::World;
use crate::builders::{
    FAILED, SUCCEEDED, append, append_one, append_request, claim_all, claim_none, claim_one, event, event_in,
    forget, ids, lane, lane_of, refused, secs, seq_of, seqs, settle, try_append,
};
use crate::reads::{
    assert_moment, assert_totals, event_place, health, lane_detail, lane_row, totals, totals_of,
};

pub async fn an_empty_request_is_done_and_changes_nothing(world: &dyn World) {
    let store = world.store();
    assert!(append(&*store, []).await.is_empty());
    claim_none(&*store).await;
}

pub async fn an_acknowledged_event_is_seen_by_another_handle(world: &dyn World) {
    let receipt = append_one(&*world.store(), event("chat", "k1").id("a")).await;
    let place = event_place(&*world.another().await, &lane("chat", "k1"), "a").await.expect("it is there");
    assert_eq!((place.event.seq, place.run_id), (seq_of(&receipt), receipt.run_id));
}

pub async fn acknowledged_events_lane_state_and_due_time_survive_a_restart(world: &dyn World) {
    let store = world.store();
    let receipts =
        append(&*store, [event("chat", "k1").id("a").fixed(20), event("chat", "k1").id("b").fixed(20)]).await;
    drop(store);
    let store = world.reopen().await;
    claim_none(&*store).await;
    world.advance(secs(25)).await;
    let batch = claim_one(&*store).await;
    assert_eq!(ids(&batch), ["a", "b"]);
    assert_eq!(seqs(&batch), [seq_of(&receipts[0]), seq_of(&receipts[1])]);
    assert_eq!(Some(batch.run_id), receipts[0].run_id);
}

pub async fn sequence_numbers_strictly_rise_within_a_lane(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    let mut last = 0;
    for round in 0..10 {
        let handle = if round % 2 == 0 { &store } else { &other };
        for receipt in append(&**handle, [event("chat", "k1"), event("chat", "k1")]).await {
            let seq = seq_of(&receipt);
            assert!(seq > last, "{seq} follows {last}");
            last = seq;
        }
    }
    assert!(last < limits::NUMBER_MAX, "every JSON reader keeps the number exactly");
}

pub async fn sequence_numbers_rise_across_idleness_and_restart(world: &dyn World) {
    let mut last = 0;
    for _ in 0..3 {
        let store = world.store();
        let receipt = append_one(&*store, event("chat", "k1")).await;
        assert!(seq_of(&receipt) > last);
        last = seq_of(&receipt);
        settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
        drop(store);
        world.reopen().await;
    }
}

pub async fn sequence_numbers_rise_after_the_lane_was_forgotten(world: &dyn World) {
    let store = world.store();
    let first = append_one(&*store, event("chat", "k1")).await;
    settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
    world.advance(secs(10_000)).await;
    forget(&*store, secs(5_000)).await;
    drop(store);
    let store = world.reopen().await;
    let second = append_one(&*store, event("chat", "k1")).await;
    assert!(second.seq > first.seq);
    assert_ne!(second.run_id, first.run_id, "no run id is used twice");
}

pub async fn events_of_one_request_keep_its_order(world: &dyn World) {
    let store = world.store();
    append(&*store, ["a", "b", "c", "d"].map(|id| event("chat", "k1").id(id))).await;
    assert_eq!(ids(&claim_one(&*store).await), ["a", "b", "c", "d"]);
}

pub async fn one_request_may_concern_several_lanes_and_queues(world: &dyn World) {
    let store = world.store();
    let events = [
        event("chat", "k1").id("a"),
        event("mail", "k1").id("b"),
        event("chat", "k2").id("c"),
        event("chat", "k1").id("d"),
        event("chat", "k1").of("acme").id("e"),
    ];
    append(&*store, events).await;
    let batches = claim_all(&*store).await;
    let told: Vec<_> = batches.iter().map(|b| (b.lane.to_string(), ids(b))).collect();
    let expected = [
        ("chat/k1".to_owned(), vec!["a", "d"]),
        ("chat/k2".to_owned(), vec!["c"]),
        ("mail/k1".to_owned(), vec!["b"]),
        ("acme:chat/k1".to_owned(), vec!["e"]),
    ];
    assert_eq!(told, expected);
}

pub async fn a_receipt_names_the_run_in_which_the_event_waits(world: &dyn World) {
    let store = world.store();
    let first = append_one(&*store, event("chat", "k1").quiet(20)).await;
    let second = append_one(&*store, event("chat", "k1").quiet(20)).await;
    assert!(first.run_id.is_some());
    assert_eq!(first.run_id, second.run_id);
    world.advance(secs(25)).await;
    assert_eq!(Some(claim_one(&*store).await.run_id), first.run_id);
    let during = append_one(&*store, event("chat", "k1").quiet(20)).await;
    assert!(during.run_id.is_some() && during.run_id != first.run_id, "the next run, not the running one");
}

pub async fn a_receipt_says_when_the_lane_will_be_due(world: &dyn World) {
    let store = world.store();
    let now = health(&*store).await.now;
    for (key, window, wait) in [
        ("none", Window::none(), 0),
        ("fixed", Window::fixed(secs(40)), 40),
        ("quiet", Window::quiet_capped(secs(20), secs(30)), 20),
    ] {
        let receipt = append_one(&*store, event("chat", key).window(window)).await;
        assert_moment(world, receipt.due_at.expect("it waits"), now.after(secs(wait)), key);
    }
    world.advance(secs(15)).await;
    let capped = append_one(&*store, event("chat", "quiet").quiet_capped(20, 30)).await;
    assert_moment(world, capped.due_at.expect("it waits"), now.after(secs(30)), "never beyond the cap");
}

pub async fn a_window_of_none_is_due_at_once(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a")).await;
    assert_eq!(ids(&claim_one(&*store).await), ["a"]);
}

pub async fn a_fixed_window_is_measured_from_the_first_event(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a").fixed(40)).await;
    world.advance(secs(25)).await;
    append_one(&*store, event("chat", "k1").id("b").fixed(40)).await;
    claim_none(&*store).await;
    world.advance(secs(20)).await;
    assert_eq!(ids(&claim_one(&*store).await), ["a", "b"]);
}

pub async fn a_quiet_window_restarts_with_each_event(world: &dyn World) {
    let store = world.store();
    for id in ["a", "b", "c"] {
        append_one(&*store, event("chat", "k1").id(id).quiet(20)).await;
        world.advance(secs(15)).await;
        claim_none(&*store).await;
    }
    world.advance(secs(10)).await;
    assert_eq!(ids(&claim_one(&*store).await), ["a", "b", "c"]);
}

pub async fn a_busy_key_is_handed_over_at_the_cap(world: &dyn World) {
    let store = world.store();
    for _ in 0..4 {
        append_one(&*store, event("chat", "k1").quiet_capped(20, 50)).await;
        claim_none(&*store).await;
        world.advance(secs(15)).await;
    }
    assert_eq!(claim_one(&*store).await.events.len(), 4, "60 s have passed and the cap is 50 s");
}

pub async fn an_overdue_quiet_lane_still_restarts_up_to_the_cap(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a").quiet_capped(20, 70)).await;
    world.advance(secs(35)).await;
    // Nobody claimed it, and the burst goes on: it is not over.
    append_one(&*store, event("chat", "k1").id("b").quiet_capped(20, 70)).await;
    claim_none(&*store).await;
    world.advance(secs(10)).await;
    claim_none(&*store).await;
    world.advance(secs(15)).await;
    append_one(&*store, event("chat", "k1").id("c").quiet_capped(20, 70)).await;
    claim_none(&*store).await;
    world.advance(secs(15)).await;
    assert_eq!(ids(&claim_one(&*store).await), ["a", "b", "c"], "75 s have passed and the cap is 70 s");
}

pub async fn a_full_count_closes_the_window_early_and_for_good(world: &dyn World) {
    let store = world.store();
    let new = |id| event("chat", "k1").id(id).quiet(20).max_events(3);
    append(&*store, [new("a"), new("b")]).await;
    claim_none(&*store).await;
    append_one(&*store, new("c")).await;
    world.advance(secs(5)).await;
    append_one(&*store, new("d")).await;
    assert_eq!(ids(&claim_one(&*store).await), ["a", "b", "c"]);
}

pub async fn full_bytes_close_the_window_early_and_for_good(world: &dyn World) {
    let store = world.store();
    let new = |id| event("chat", "k1").id(id).raw("\"12345678\"").quiet(20).max_bytes(30);
    append(&*store, [new("a"), new("b")]).await;
    claim_none(&*store).await;
    append_one(&*store, new("c")).await;
    world.advance(secs(5)).await;
    append_one(&*store, new("d")).await;
    assert_eq!(ids(&claim_one(&*store).await), ["a", "b", "c"]);
}

pub async fn the_first_event_fixes_the_window_of_its_run(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a").fixed(20)).await;
    append_one(&*store, event("chat", "k1").id("b").fixed(300)).await;
    world.advance(secs(25)).await;
    assert_eq!(ids(&claim_one(&*store).await), ["a", "b"]);
}

pub async fn an_event_during_a_run_opens_the_next_window_from_its_own_arrival(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a").fixed(20)).await;
    world.advance(secs(25)).await;
    let running = claim_one(&*store).await;
    append_one(&*store, event("chat", "k1").id("b").fixed(20)).await;
    settle(&*store, &running, SUCCEEDED).await;
    claim_none(&*store).await;
    world.advance(secs(25)).await;
    assert_eq!(ids(&claim_one(&*store).await), ["b"]);
}

pub async fn a_duplicate_gets_the_first_receipt_and_adds_nothing(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    let first = append_one(&*store, event("chat", "k1").id("a").quiet(20)).await;
    let again = append(&*other, [event("chat", "k1").id("a").quiet(20)]).await.remove(0);
    assert!(again.duplicate);
    assert_eq!((again.seq, again.run_id), (first.seq, first.run_id));
    assert_eq!(totals(&*store, "chat").await, Totals { accepted: 1, buffered: 1, ..Totals::default() });
    world.advance(secs(25)).await;
    assert_eq!(ids(&claim_one(&*store).await), ["a"]);
}

pub async fn a_duplicate_does_not_move_the_window(world: &dyn World) {
    let store = world.store();
    let first = append_one(&*store, event("chat", "k1").id("a").quiet(20)).await;
    world.advance(secs(15)).await;
    let again = append(&*store, [event("chat", "k1").id("a").quiet(20)]).await.remove(0);
    assert_eq!(again.due_at, first.due_at);
    world.advance(secs(10)).await;
    assert_eq!(ids(&claim_one(&*store).await), ["a"]);
}

pub async fn a_duplicate_never_closes_a_window_by_count(world: &dyn World) {
    let store = world.store();
    let new = |id| event("chat", "k1").id(id).quiet(20).max_events(2);
    append_one(&*store, new("a")).await;
    append(&*store, [new("a"), new("a")]).await;
    claim_none(&*store).await;
}

pub async fn a_resend_with_other_white_space_and_key_order_is_a_duplicate(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a").raw(r#"{"x":1,"y":[2.0]}"#)).await;
    let again = append(&*store, [event("chat", "k1").id("a").raw("{ \"y\": [2], \"x\": 1.0 }")]).await;
    assert!(again[0].duplicate);
    let kept = claim_one(&*store).await.events.remove(0);
    assert_eq!(kept.payload.as_str(), r#"{"x":1,"y":[2.0]}"#, "the first bytes are kept");
}

pub async fn the_same_id_with_another_payload_is_a_conflict_that_changes_nothing(world: &dyn World) {
    let store = world.store();
    let first = append_one(&*store, event("chat", "k1").id("a").payload(json!(1)).quiet(20)).await;
    world.advance(secs(15)).await;
    let answer = try_append(&*store, [event("chat", "k1").id("a").payload(json!(2)).quiet(20)]).await;
    refused(answer, ErrorKind::Conflict);
    let row = lane_row(&*store, &lane("chat", "k1")).await.expect("the lane is there");
    assert_eq!((row.buffered, row.head_seq, row.due_at), (1, seq_of(&first), first.due_at));
    world.advance(secs(10)).await;
    assert_eq!(claim_one(&*store).await.events[0].payload.as_str(), "1");
}

pub async fn a_conflict_refuses_its_whole_request(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a").payload(json!(1))).await;
    let events = [
        event("chat", "k1").id("b"),
        event("mail", "new"),
        event("chat", "k1").id("a").payload(json!(2)),
        event("chat", "k1").id("c"),
    ];
    refused(try_append(&*store, events).await, ErrorKind::Conflict);
    assert_eq!(totals(&*store, "chat").await.accepted, 1);
    assert_eq!(totals(&*store, "mail").await, Totals::default());
    assert!(lane_detail(&*store, &lane("mail", "new")).await.is_none(), "no lane was made");
    assert_eq!(ids(&claim_one(&*store).await), ["a"]);
    let later = append(&*store, [event("chat", "k1").id("b")]).await;
    assert!(!later[0].duplicate, "the id of a refused event is free");
}

pub async fn an_id_repeated_inside_one_request_duplicates_the_first(world: &dyn World) {
    let store = world.store();
    let new = |id| event("chat", "k1").id(id);
    let receipts = append(&*store, [new("a"), new("b"), new("a")]).await;
    assert_eq!(receipts.iter().map(|r| r.duplicate).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!((receipts[2].seq, receipts[2].run_id), (receipts[0].seq, receipts[0].run_id));
    assert_eq!(ids(&claim_one(&*store).await), ["a", "b"]);
}

pub async fn a_conflict_inside_one_request_refuses_it(world: &dyn World) {
    let store = world.store();
    let new = |n: u32| event("chat", "k1").id("a").payload(json!(n));
    refused(try_append(&*store, [new(1), new(2)]).await, ErrorKind::Conflict);
    claim_none(&*store).await;
    append_one(&*store, new(2)).await;
}

pub async fn an_id_belongs_to_its_tenant_queue_and_key(world: &dyn World) {
    let store = world.store();
    let lanes = [lane("chat", "k1"), lane("chat", "k2"), lane("mail", "k1"), lane_of("acme", "chat", "k1")];
    for lane in &lanes {
        append_one(&*store, event_in(lane.clone()).id("first")).await;
    }
    // Also into lanes that exist already, and with a payload that would be a conflict in one of the others.
    for (n, lane) in lanes.iter().enumerate() {
        append_one(&*store, event_in(lane.clone()).id("a").payload(json!(n))).await;
    }
    let batches = claim_all(&*store).await;
    assert_eq!(batches.len(), 4);
    assert!(batches.iter().all(|b| ids(b) == ["first", "a"]));
}

pub async fn ids_are_compared_as_bytes(world: &dyn World) {
    let store = world.store();
    for id in ["a", "A", "a ", "ä", "a\u{308}", "%", "_", "*"] {
        append_one(&*store, event("chat", "k1").id(id)).await;
    }
    assert_eq!(claim_one(&*store).await.events.len(), 8);
}

pub async fn equal_events_without_ids_are_never_merged(world: &dyn World) {
    let store = world.store();
    let ok = || event("chat", "k1").payload(json!("ok"));
    append(&*store, [ok(), ok()]).await;
    append(&*store, [ok()]).await;
    assert_eq!(claim_one(&*store).await.events.len(), 3);
}

pub async fn an_unknown_answer_is_resolved_by_repeating_the_request(world: &dyn World) {
    let store = world.store();
    let request = append_request([event("chat", "k1").made("m1"), event("chat", "k1").id("g1")]);
    let first = store.append(request.clone()).await.expect("done").receipts;
    let repeated = AppendRequest { repeat: true, ..request };
    let again = store.append(repeated.clone()).await.expect("done").receipts;
    assert!(again.iter().all(|r| r.duplicate));
    assert_eq!(seqs_of(&again), seqs_of(&first));
    // The other way an unknown answer can have ended: nothing was stored.
    let never = AppendRequest { repeat: true, ..append_request([event("chat", "k1").made("m2")]) };
    assert!(!store.append(never.clone()).await.expect("done").receipts[0].duplicate);
    assert!(store.append(never).await.expect("done").receipts[0].duplicate);
    assert_eq!(ids(&claim_one(&*store).await), ["m1", "g1", "m2"]);
}

fn seqs_of(receipts: &[quell_core::store::Receipt]) -> Vec<u64> {
    receipts.iter().map(seq_of).collect()
}

pub async fn a_duplicate_of_an_event_in_flight_is_answered_and_not_delivered_again(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a")).await;
    let batch = claim_one(&*store).await;
    let again = append(&*store, [event("chat", "k1").id("a")]).await.remove(0);
    assert!(again.duplicate);
    assert_eq!(again.run_id, Some(batch.run_id));
    settle(&*store, &batch, SUCCEEDED).await;
    claim_none(&*store).await;
}

pub async fn a_duplicate_of_a_finished_event_is_answered_and_revives_nothing(world: &dyn World) {
    for (key, verdict, state) in [("k1", SUCCEEDED, RunState::Succeeded), ("k2", FAILED, RunState::Failed)] {
        let store = world.store();
        let first = append_one(&*store, event("chat", key).id("a")).await;
        let batch = claim_one(&*store).await;
        settle(&*store, &batch, verdict).await;
        world.advance(secs(3_600)).await;
        let again = append(&*store, [event("chat", key).id("a")]).await.remove(0);
        assert!(again.duplicate);
        assert_eq!((again.seq, again.run_id, again.due_at), (first.seq, Some(batch.run_id), None));
        claim_none(&*store).await;
        let place = event_place(&*store, &lane("chat", key), "a").await.expect("it is kept");
        assert_eq!(place.state, Some(state));
        let other = event("chat", key).id("a").payload(json!("another"));
        refused(try_append(&*store, [other]).await, ErrorKind::Conflict);
    }
}

pub async fn ids_are_remembered_across_a_restart(world: &dyn World) {
    let store = world.store();
    let first = append_one(&*store, event("chat", "k1").id("a")).await;
    drop(store);
    let store = world.reopen().await;
    let again = append(&*store, [event("chat", "k1").id("a")]).await.remove(0);
    assert_eq!((again.duplicate, again.seq), (true, first.seq));
    refused(try_append(&*store, [event("chat", "k1").id("a").payload(json!(9))]).await, ErrorKind::Conflict);
}

pub async fn a_payload_over_its_queues_limit_is_refused_and_nothing_is_stored(world: &dyn World) {
    let store = world.store();
    let large = event("chat", "k1").raw(&format!("\"{}\"", "x".repeat(200))).payload_bytes(100);
    let error = refused(try_append(&*store, [event("chat", "k1"), large]).await, ErrorKind::Limit);
    assert!(error.detail.contains("100"), "the limit is named: {error}");
    assert_eq!(totals(&*store, "chat").await.accepted, 0);
    claim_none(&*store).await;
}

pub async fn a_request_of_too_many_events_is_refused_and_nothing_is_stored(world: &dyn World) {
    let store = world.store();
    let many = (0..=limits::APPEND_EVENTS_MAX).map(|_| event("chat", "k1"));
    refused(try_append(&*store, many).await, ErrorKind::Limit);
    let body = format!("\"{}\"", "x".repeat(3 * 1024 * 1024));
    let bytes = (0..3).map(|_| event("chat", "k1").raw(&body).payload_bytes(limits::PAYLOAD_BYTES_MAX));
    refused(try_append(&*store, bytes).await, ErrorKind::Limit);
    let headers = event("chat", "k1").header("trace", &"x".repeat(limits::HEADERS_BYTES_MAX));
    refused(try_append(&*store, [headers]).await, ErrorKind::Limit);
    assert_eq!(totals(&*store, "chat").await.accepted, 0);
    claim_none(&*store).await;
}

pub async fn a_full_lane_refuses_the_whole_request_and_keeps_what_it_has(world: &dyn World) {
    let store = world.store();
    let new = |id| event("chat", "k1").id(id).lane_events(3);
    append(&*store, [new("a"), new("b")]).await;
    let answer = try_append(&*store, [new("c"), event("chat", "k2").id("z"), new("d")]).await;
    let error = refused(answer, ErrorKind::Full);
    assert!(error.detail.contains('3'), "the limit is named: {error}");
    assert_eq!(totals(&*store, "chat").await, Totals { accepted: 2, buffered: 2, ..Totals::default() });
    assert!(!append_one(&*store, new("c")).await.duplicate, "what fits is taken");
    refused(try_append(&*store, [new("d")]).await, ErrorKind::Full);
    assert_eq!(ids(&claim_one(&*store).await), ["a", "b", "c"]);
}

pub async fn events_in_flight_count_for_the_lane_limit_until_they_are_settled(world: &dyn World) {
    let store = world.store();
    let new = |id| event("chat", "k1").id(id).lane_events(2);
    append(&*store, [new("a"), new("b")]).await;
    let batch = claim_one(&*store).await;
    refused(try_append(&*store, [new("c")]).await, ErrorKind::Full);
    settle(&*store, &batch, SUCCEEDED).await;
    append_one(&*store, new("c")).await;
}

pub async fn a_duplicate_is_answered_even_when_the_lane_is_full(world: &dyn World) {
    let store = world.store();
    let new = |id| event("chat", "k1").id(id).lane_events(2);
    let first = append(&*store, [new("a"), new("b")]).await;
    let again = append(&*store, [new("a"), new("b"), new("a")]).await;
    assert_eq!(again[0].seq, first[0].seq);
    assert!(again.iter().all(|r| r.duplicate));
}

pub async fn a_full_lane_does_not_concern_another_lane(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").lane_events(1)).await;
    append_one(&*store, event("chat", "k2").lane_events(1)).await;
    append_one(&*store, event("mail", "k1").lane_events(1)).await;
    append_one(&*store, event("chat", "k1").of("acme").lane_events(1)).await;
}

pub async fn two_tenants_never_share_a_lane(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a")).await;
    append_one(&*store, event("chat", "k1").of("acme").id("b")).await;
    append_one(&*store, event("chat", "k1").of("globex").id("c")).await;
    let batches = claim_all(&*store).await;
    assert_eq!(batches.iter().map(ids).collect::<Vec<_>>(), [["a"], ["b"], ["c"]]);
    for name in ["", "acme", "globex"] {
        let told = totals_of(&*store, name, "chat").await;
        assert_eq!(told, Totals { accepted: 1, in_flight: 1, ..Totals::default() }, "tenant {name:?}");
    }
}

/// Parts that would be one text if they were glued together carelessly.
pub async fn neighbouring_names_never_become_one_lane(world: &dyn World) {
    let store = world.store();
    let lanes = [
        lane_of("a", "b", "c/d"),
        lane_of("a", "b", "c"),
        lane_of("a:b", "c", "d"),
        lane_of("a", "b.c", "d"),
        lane("a", "b/c"),
        lane("a", "b:c"),
        lane("a", "b|c"),
        lane_of("b", "a", "c"),
        lane_of("a/b", "c", "d"),
        lane_of("a", "b", "c:d"),
    ];
    for lane in &lanes {
        append_one(&*store, event_in(lane.clone()).id("same")).await;
    }
    let batches = claim_all(&*store).await;
    assert_eq!(batches.len(), lanes.len());
    assert!(batches.iter().all(|b| b.events.len() == 1 && lanes.contains(&b.lane)));
}

/// Keys that other systems choked on.
pub const ODD_KEYS: [&str; 24] = [
    "*",
    "%",
    "_",
    "?",
    "{}",
    "{a}",
    "[a-z]",
    "'",
    "\"",
    "' OR 1=1 --",
    "a\nb",
    "a\r\nb",
    "\t",
    " ",
    "k ",
    "K",
    "k",
    "-x",
    "\\",
    "0",
    "00",
    "😀👩‍👩‍👧",
    "ü",
    "u\u{308}",
];

pub async fn a_key_may_hold_any_characters_and_is_compared_as_bytes(world: &dyn World) {
    let store = world.store();
    let longest = ["x".repeat(512), "😀".repeat(128), format!("{}y", "x".repeat(511))];
    let keys: Vec<&str> = ODD_KEYS.into_iter().chain(longest.iter().map(String::as_str)).collect();
    for key in &keys {
        append_one(&*store, event("chat", key).id("same")).await;
        assert!(append(&*store, [event("chat", key).id("same")]).await[0].duplicate);
    }
    let batches = claim_all(&*store).await;
    assert_eq!(batches.len(), keys.len());
    for batch in batches {
        assert!(keys.contains(&batch.lane.key.as_str()));
        assert_eq!(batch.events.len(), 1);
        let detail = lane_detail(&*store, &batch.lane).await.expect("the lane is found by its key");
        assert_eq!(detail.current_run, Some(batch.run_id));
        settle(&*store, &batch, SUCCEEDED).await;
    }
}

pub async fn a_key_over_its_limit_cannot_even_be_said(world: &dyn World) {
    for bad in ["", "a\0b", &"x".repeat(513)] {
        assert!(Key::new(bad).is_err());
    }
    claim_none(&*world.store()).await;
}

/// Payloads whose bytes a careless store would change.
pub const ODD_PAYLOADS: [&str; 16] = [
    r#""\u0000""#,
    r#"{"b":1,"a":2}"#,
    r#"{"a":1,"a":2}"#,
    "1.0",
    "-0.0",
    "1e999",
    "12345678901234567890123",
    "0.1000000000000000055511151231257827",
    "{ \"spaced\" :  [ 1 , 2 ] }",
    "\"\u{1f600} \\ud83d\\ude00\"",
    "\"\\ud800\"",
    "null",
    "\"\"",
    "[]",
    "\"line\\nbreak \u{2028}\"",
    "\"'; DROP TABLE events; --\"",
];

pub async fn payload_bytes_survive_exactly(world: &dyn World) {
    let store = world.store();
    append(&*store, ODD_PAYLOADS.map(|raw| event("chat", "k1").raw(raw))).await;
    drop(store);
    let store = world.reopen().await;
    let batch = claim_one(&*store).await;
    let told: Vec<_> = batch.events.iter().map(|e| e.payload.as_str()).collect();
    assert_eq!(told, ODD_PAYLOADS);
}

pub async fn a_payload_at_the_highest_limit_survives(world: &dyn World) {
    let store = world.store();
    let body = format!("\"{}\"", "é".repeat((limits::PAYLOAD_BYTES_MAX - 2) / 2));
    assert_eq!(body.len(), limits::PAYLOAD_BYTES_MAX);
    append_one(&*store, event("chat", "k1").raw(&body).payload_bytes(limits::PAYLOAD_BYTES_MAX)).await;
    let batch = claim_one(&*store).await;
    assert!(batch.events[0].payload.as_str() == body, "four megabytes come back as they were sent");
}

pub async fn headers_and_arrival_time_travel_with_the_event(world: &dyn World) {
    let store = world.store();
    let now = health(&*store).await.now;
    let new =
        event("chat", "k1").header("traceparent", "00-abc\u{e9}-01").header("content-type", "a/b").fixed(20);
    append_one(&*store, new).await;
    world.advance(secs(25)).await;
    let batch = claim_one(&*store).await;
    let told: Vec<_> = batch.events[0].headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(told, [("content-type", "a/b"), ("traceparent", "00-abc\u{e9}-01")]);
    assert_moment(
        world,
        batch.events[0].received_at,
        now,
        "received when it arrived, not when it was claimed",
    );
}

pub async fn a_conflict_in_one_request_does_not_affect_another_sent_at_the_same_time(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("taken").payload(json!(0))).await;
    let mut tasks = Vec::new();
    for n in 0..20 {
        let store = if n % 2 == 0 { world.store() } else { world.another().await };
        tasks.push(tokio::spawn(async move {
            let new = event("chat", "k1").id(&format!("e{n}"));
            let bad = event("chat", "k1").id("taken").payload(json!(1));
            let events = if n % 4 < 2 { vec![new] } else { vec![new, bad] };
            (n, try_append(&*store, events).await)
        }));
    }
    for task in tasks {
        let (n, answer) = task.await.expect("no task panics");
        if n % 4 < 2 {
            assert!(!answer.expect("a good request is done").receipts[0].duplicate);
        } else {
            refused(answer, ErrorKind::Conflict);
        }
    }
    assert_eq!(totals(&*store, "chat").await.accepted, 11);
    assert_eq!(claim_one(&*store).await.events.len(), 11);
}

pub async fn the_totals_hold_after_every_step(world: &dyn World) {
    let store = world.store();
    let expect = async |expected: [u64; 5]| {
        assert_totals(world).await;
        let t = totals(&*store, "chat").await;
        assert_eq!([t.accepted, t.buffered, t.in_flight, t.succeeded, t.dead], expected);
    };
    append(&*store, [event("chat", "k1"), event("chat", "k1"), event("chat", "k2")]).await;
    expect([3, 3, 0, 0, 0]).await;
    let batches = claim_all(&*store).await;
    expect([3, 0, 3, 0, 0]).await;
    append(&*store, [event("chat", "k1").fixed(20)]).await;
    expect([4, 1, 3, 0, 0]).await;
    settle(&*store, &batches[0], SUCCEEDED).await;
    expect([4, 1, 1, 2, 0]).await;
    settle(&*store, &batches[1], FAILED).await;
    expect([4, 1, 0, 2, 1]).await;
    world.advance(secs(25)).await;
    let batch = claim_one(&*store).await;
    expect([4, 0, 1, 2, 1]).await;
    settle(&*store, &batch, crate::builders::RETRY).await;
    expect([4, 0, 1, 2, 1]).await;
    settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
    expect([4, 0, 0, 3, 1]).await;
}
