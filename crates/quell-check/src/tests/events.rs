//! What was sent, what was delivered, what is kept.

use super::story::{Story, audit_of, claim_of, dump_of, hash, policy, receipt_of};
use super::{breaks, passes};
use crate::Invariant::*;
use crate::history::*;
use crate::sometimes::Thing;

/// Two events, one batch, done.
fn burst() -> Story {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    story.append("a", "e2");
    let held = story.claim("a");
    story.succeed(held);
    story
}

#[test]
fn s1_an_acknowledged_event_is_never_lost() {
    breaks(&burst().end(), NoLoss, |h| {
        dump_of(h).events.remove(0);
    });
}

#[test]
fn s1_an_event_is_in_one_place() {
    breaks(&burst().end(), NoLoss, |h| {
        let twice = dump_of(h).events[0].clone();
        dump_of(h).events.push(twice);
    });
}

#[test]
fn s1_an_event_keeps_the_number_that_was_told() {
    let mut story = burst();
    story.append("a", "e3");
    breaks(&story.end(), NoLoss, |h| {
        // Nobody has seen the event since, so only the receipt can tell.
        dump_of(h).events[2].seq = None;
    });
}

#[test]
fn s1_nothing_waits_after_a_drain() {
    let mut story = burst();
    story.append("a", "e3");
    breaks(&story.end(), NoLoss, |h| dump_of(h).drained = true);
}

#[test]
fn s1_an_event_that_was_delivered_stays_though_its_sender_never_heard() {
    let mut story = Story::new(policy());
    let call = story.ask(Story::append_op("a", "e1"));
    story.store("a", "e1");
    story.records.push(Record::info(1, call));
    let held = story.claim("a");
    story.succeed(held);
    breaks(&story.end(), NoLoss, |h| dump_of(h).events.clear());
}

#[test]
fn s1_a_duplicate_answer_acknowledges_an_unknown_append() {
    let mut story = Story::new(policy());
    story.ask(Story::append_op("a", "e1"));
    story.store("a", "e1");
    story.duplicate("a", "e1");
    let told = story.end();
    assert_eq!(passes(&told).sometimes.of(Thing::UnknownAppendHappened), 1);
    breaks(&told, NoLoss, |h| dump_of(h).events.clear());
}

#[test]
fn s2_nobody_invents_an_event() {
    breaks(&burst().end(), NoPhantom, |h| claim_of(h, 0).events[0].id = "ghost".into());
    breaks(&burst().end(), NoPhantom, |h| {
        let mut ghost = dump_of(h).events[0].clone();
        ghost.id = "ghost".into();
        dump_of(h).events.push(ghost);
    });
}

#[test]
fn s3_an_id_is_accepted_once() {
    let mut story = burst();
    story.duplicate("a", "e1");
    let told = story.end();
    assert_eq!(passes(&told).sometimes.of(Thing::DuplicateAnswered), 1);
    breaks(&told, Idempotency, |h| receipt_of(h, 2).duplicate = false);
    breaks(&told, Idempotency, |h| receipt_of(h, 2).seq = Some(999));
    breaks(&told, Idempotency, |h| receipt_of(h, 0).duplicate = true);
}

#[test]
fn s3_another_payload_is_a_conflict() {
    let mut story = burst();
    let event = NewEvent { hash: 5, ..Story::event("a", "e1") };
    story.refuse(Op::Append { events: vec![event] }, Refusal::Conflict);
    let told = story.end();
    assert_eq!(passes(&told).sometimes.of(Thing::ConflictAnswered), 1);
    breaks(&told, Idempotency, |h| {
        // The same payload was refused: a conflict with nothing.
        for op in h.iter_mut().filter_map(|r| r.op.as_mut()) {
            if let Op::Append { events } = op {
                events[0].hash = hash(&events[0].id);
            }
        }
    });
    let mut story = burst();
    story.duplicate("a", "e1");
    breaks(&story.end(), Idempotency, |h| {
        let append = h.iter_mut().rev().find_map(|r| match &mut r.op {
            Some(Op::Append { events }) => Some(&mut events[0]),
            _ => None,
        });
        append.unwrap().hash = 5;
    });
}

#[test]
fn s4_different_ids_never_share_a_number() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    story.append("b", "e2");
    breaks(&story.end(), NoFalseMerge, |h| receipt_of(h, 1).seq = receipt_of(h, 0).seq);
    breaks(&burst().end(), NoFalseMerge, |h| {
        *receipt_of(h, 1) = Receipt { duplicate: true, ..receipt_of(h, 0).clone() };
    });
}

#[test]
fn s4_a_receipt_names_an_event_that_was_sent() {
    breaks(&burst().end(), NoFalseMerge, |h| receipt_of(h, 1).id = "ghost".into());
}

#[test]
fn s4_content_dedupe_joins_events_without_ids_only() {
    let made = |id: &str| NewEvent { given: false, hash: 5, ..Story::event("a", id) };
    let mut story = Story::new(Policy { content_dedupe: true, ..policy() });
    let call = story.ask(Op::Append { events: vec![made("e1")] });
    let receipt = story.store("a", "e1");
    story.answer(call, Answer::Appended { receipts: vec![receipt.clone()] });
    let receipts = vec![Receipt { duplicate: true, ..receipt }];
    story.call(Op::Append { events: vec![made("e2")] }, Answer::Appended { receipts });
    let mut told = story.end();
    dump_of(&mut told).events[0].hash = 5;
    breaks(&told, NoFalseMerge, |h| {
        let Some(Op::Append { events }) = &mut h[3].op else { panic!("the second append") };
        events[0].given = true;
    });
}

#[test]
fn s5_numbers_rise_in_real_time() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    story.append("a", "e2");
    breaks(&story.end(), Order, |h| {
        let (first, second) = (receipt_of(h, 0).seq, receipt_of(h, 1).seq);
        (receipt_of(h, 0).seq, receipt_of(h, 1).seq) = (second, first);
    });
}

#[test]
fn s5_overlapping_appends_may_come_in_any_order() {
    let mut story = Story::new(policy());
    let one = story.ask(Story::append_op("a", "e1"));
    let two = story.ask(Story::append_op("a", "e2"));
    let second = story.store("a", "e2");
    let first = story.store("a", "e1");
    story.answer(one, Answer::Appended { receipts: vec![first] });
    story.answer(two, Answer::Appended { receipts: vec![second] });
    passes(&story.end());
}

#[test]
fn s6_what_is_delivered_is_what_was_sent() {
    breaks(&burst().end(), Content, |h| claim_of(h, 0).events[1].hash = 5);
    breaks(&burst().end(), Content, |h| dump_of(h).events[0].hash = 5);
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let seq = story.append("b", "e1");
    let held = story.claim("a");
    story.succeed(held);
    breaks(&story.end(), Content, |h| claim_of(h, 0).events[0].seq = seq + 100);
}

#[test]
fn s6_an_edited_payload_is_the_one_that_is_kept() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let action = Action::Edit { lane: "a".into(), id: "e1".into(), hash: 5, bytes: 10 };
    story.note("edited", "a");
    story.control(action);
    let mut told = story.end();
    dump_of(&mut told).events[0].hash = 5;
    breaks(&told, Content, |h| dump_of(h).events[0].hash = hash("e1"));
}

#[test]
fn s19_what_definitely_did_not_happen_is_never_seen() {
    let mut story = Story::new(policy());
    let call = story.ask(Story::append_op("a", "e1"));
    story.store("a", "e1");
    story.records.push(Record::info(1, call));
    breaks(&story.end(), HonestErrors, |h| h[2] = Record::fail(1, call, Refusal::Unavailable));
}

#[test]
fn s19_both_ends_of_an_unknown_append_are_legal() {
    let mut story = Story::new(policy());
    story.ask(Story::append_op("a", "e1"));
    let summary = passes(&story.end());
    assert_eq!(summary.sometimes.of(Thing::UnknownAppendDidNot), 1);
    assert_eq!(summary.sometimes.of(Thing::CrashInCall), 1);
}

#[test]
fn s24_an_erased_event_is_gone_and_counted() {
    let mut story = burst();
    let kept = story.dump();
    story.erase("a");
    story.append("a", "e1");
    let told = story.end();
    breaks(&told, Erasure, |h| {
        let dump = dump_of(h);
        dump.events.push(kept.events[1].clone());
    });
    breaks(&told, Equation, |h| {
        let totals = &mut dump_of(h).queues[0];
        (totals.accepted, totals.discarded) = (totals.accepted - 2, 0);
    });
}

#[test]
fn s24_an_erasure_that_did_not_happen_excuses_nothing() {
    let mut story = burst();
    story.refuse(Op::Control { action: Action::EraseLane { lane: "a".into() } }, Refusal::Unavailable);
    breaks(&story.end(), NoLoss, |h| {
        dump_of(h).events.remove(0);
    });
}

/// An event after the backup is rolled back; another one comes after the restore.
fn restored() -> Vec<Record> {
    let mut story = burst();
    story.call(Op::Backup { name: "b".into() }, Answer::Done);
    let lost = Story::append_op("a", "lost");
    let receipts = vec![Receipt { id: "lost".into(), seq: Some(500), duplicate: false, run: Some(501) }];
    story.call(lost, Answer::Appended { receipts });
    let claim = Claim {
        lane: "a".into(),
        run: 501,
        token: 502,
        attempt: 1,
        max_attempts: 3,
        revision: 0,
        fired_by: FiredBy::None,
        head_seq: 500,
        lease_until: 9_000,
        source: None,
        events: vec![Delivered { seq: 500, id: "lost".into(), hash: hash("lost") }],
    };
    let op = Op::Claim { worker: "w1".into(), claim_id: None };
    story.call(op, Answer::Claimed { now: 1_000, claims: vec![claim] });
    story.records.push(Record::fact(0, Op::Restore { backup: "b".into() }));
    // The epoch: numbers go on above everything that was ever told.
    story.jump(1_000);
    story.append("a", "e3");
    let held = story.claim("a");
    story.succeed(held);
    story.end()
}

#[test]
fn s27_a_restore_may_lose_events_but_repeats_no_number() {
    let told = restored();
    let summary = passes(&told);
    assert_eq!(summary.sometimes.of(Thing::LostToRestore), 1);
    breaks(&told, Restore, |h| receipt_of(h, 3).seq = Some(400));
    breaks(&told, Restore, |h| {
        claim_of(h, 2).token = 499;
        audit_of(h, "claimed", 1).token = 499;
    });
    breaks(&told, NoLoss, |h| h.retain(|r| !matches!(r.op, Some(Op::Restore { .. }))));
}

#[test]
fn p7_the_equation_holds_and_the_counters_agree_with_the_events() {
    let told = burst().end();
    breaks(&told, Equation, |h| dump_of(h).queues[0].accepted += 1);
    breaks(&told, Equation, |h| {
        let totals = &mut dump_of(h).queues[0];
        (totals.succeeded, totals.dead) = (1, 1);
    });
    breaks(&told, Equation, |h| dump_of(h).queues.clear());
}

#[test]
fn delayed_events_are_counted_and_enter_their_lane_later() {
    let mut story = Story::new(policy());
    let event = story.delayed("a", "e1");
    story.delayed("a", "e2");
    story.append("a", "e3");
    story.enters(event);
    let held = story.claim("a");
    story.succeed(held);
    let told = story.end();
    assert_eq!(passes(&told).sometimes.of(Thing::DelayedAppend), 2);
    breaks(&told, Equation, |h| dump_of(h).queues[0].delayed = 0);
    breaks(&told, NoLoss, |h| dump_of(h).events.retain(|e| e.id.as_str() != "e2"));
}

#[test]
fn h0_a_history_that_is_none_is_told_apart() {
    let told = burst().end();
    breaks(&told, WellFormed, |h| {
        h.remove(1);
    });
    breaks(&told, WellFormed, |h| h[2].answer = None);
    breaks(&told, WellFormed, |h| {
        let again = h[2].clone();
        h.insert(3, again);
    });
    breaks(&told, WellFormed, |h| h[2].answer = Some(Answer::Extended { lease_until: 1 }));
}

#[test]
fn r19_a_purge_may_take_what_is_kept_aside() {
    let mut story = Story::new(policy());
    story.delayed("a", "e1");
    story.append("a", "e2");
    story.note("purged", "a");
    story.control(Action::Purge { lane: "a".into() });
    let mut told = story.end();
    dump_of(&mut told).events.remove(0);
    let totals = &mut dump_of(&mut told).queues[0];
    (totals.delayed, totals.discarded) = (0, 1);
    breaks(&told, Equation, |h| {
        let totals = &mut dump_of(h).queues[0];
        (totals.accepted, totals.discarded) = (1, 0);
    });
    breaks(&told, NoLoss, |h| dump_of(h).events.clear());
}

#[test]
fn r28_events_of_a_callers_transaction_are_told_apart_when_they_enter() {
    let event = NewEvent { delayed: true, in_transaction: true, ..Story::event("a", "e1") };
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let receipts = vec![Receipt { id: "e1".into(), seq: None, duplicate: false, run: None }];
    story.call(Op::Append { events: vec![event] }, Answer::Appended { receipts });
    story.note("duplicate_dropped", "a");
    let mut told = story.end();
    let totals = &mut dump_of(&mut told).queues[0];
    (totals.accepted, totals.discarded) = (2, 1);
    breaks(&told, Idempotency, |h| {
        let Some(Op::Append { events }) = &mut h[3].op else { panic!("the second append") };
        events[0].in_transaction = false;
    });
    breaks(&told, Equation, |h| dump_of(h).audit.clear());
}

#[test]
fn r29_a_settle_may_carry_events() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let held = story.claim("a");
    story.succeed(held);
    story.store("b", "run/1");
    let mut told = story.end();
    let settle = told.iter_mut().find_map(|r| match &mut r.op {
        Some(Op::Settle { follow_ups, .. }) => Some(follow_ups),
        _ => None,
    });
    settle.unwrap().push(NewEvent { delayed: true, ..Story::event("b", "run/1") });
    breaks(&told, NoPhantom, |h| {
        for record in h.iter_mut() {
            if let Some(Op::Settle { follow_ups, .. }) = &mut record.op {
                follow_ups.clear();
            }
        }
    });
}
