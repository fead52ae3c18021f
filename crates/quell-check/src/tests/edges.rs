//! Where a history tells less than everything: what is legal there passes, and what is not still fails.

use super::story::{Story, audit_of, claim_of, dump_of, hash, policy};
use super::{breaks, passes};
use crate::Invariant::*;
use crate::history::*;

/// The place of the first control call that this is true of.
fn control(records: &[Record], wanted: impl Fn(&Action) -> bool) -> usize {
    let found = |r: &Record| matches!(&r.op, Some(Op::Control { action }) if wanted(action));
    records.iter().position(found).expect("such a call")
}

/// The size under which an event was sent.
fn resize(records: &mut [Record], id: &str, bytes: u64) {
    for record in records {
        if let Some(Op::Append { events }) = &mut record.op {
            events.iter_mut().filter(|e| e.id.as_str() == id).for_each(|e| e.bytes = bytes);
        }
    }
}

#[test]
fn s5_an_array_is_in_no_order_with_what_was_told_meanwhile() {
    let mut story = Story::new(policy());
    let events = vec![Story::event("a", "e1"), Story::event("a", "e2")];
    let one = story.ask(Op::Append { events });
    let two = story.ask(Story::append_op("a", "e3"));
    let [first, second, third] = ["e1", "e2", "e3"].map(|id| story.store("a", id));
    story.answer(two, Answer::Appended { receipts: vec![third] });
    story.answer(one, Answer::Appended { receipts: vec![first, second] });
    breaks(&story.end(), Order, |h| {
        let Some(Answer::Appended { receipts }) = &mut h[4].answer else { panic!("the array's answer") };
        let (a, b) = (receipts[0].seq, receipts[1].seq);
        (receipts[0].seq, receipts[1].seq) = (b, a);
    });
}

#[test]
fn r17_a_resume_that_overlaps_a_pause_may_come_after_it() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let pause = story.ask(Op::Control { action: Action::PauseQueue { queue: "q".into() } });
    let resume = story.ask(Op::Control { action: Action::ResumeQueue { queue: "q".into() } });
    story.answer(resume, Answer::Controlled { changed: true });
    story.answer(pause, Answer::Controlled { changed: true });
    let held = story.claim("a");
    story.succeed(held);
    let told = story.end();
    let refused = Record::fail(1, resume, Refusal::Unavailable);
    breaks(&told, Pause, |h| {
        let answer = h.iter().position(|r| r.call == resume && r.phase == Phase::Ok).unwrap();
        h[answer] = refused;
    });
}

#[test]
fn r17_a_claim_from_before_the_pause_may_be_heard_after_it() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let held = story.claim("a");
    story.succeed(held);
    let mut told = story.end();
    let asked = told.iter().position(|r| matches!(r.op, Some(Op::Claim { .. }))).unwrap();
    let claim = |id: &str| Op::Claim { worker: "w1".into(), claim_id: Some(id.into()) };
    told[asked].op = Some(claim("c"));
    // Its answer is lost; the queue is paused; the same claim is asked for again.
    (told[asked + 1].process, told[asked + 1].call) = (9, 2);
    let pause = Op::Control { action: Action::PauseQueue { queue: "q".into() } };
    let between = [
        Record::invoke(9, 1, pause),
        Record::ok(9, 1, None, Answer::Controlled { changed: true }),
        Record::invoke(9, 2, claim("c")),
    ];
    told.splice(asked + 1..asked + 1, between);
    breaks(&told, Pause, |h| h[asked + 3].op = Some(claim("d")));
}

#[test]
fn s11_an_edit_that_was_refused_changes_no_size() {
    let mut story = Story::new(Policy { max_bytes: 25, ..policy() });
    story.append("a", "e1");
    story.append("a", "e2");
    let action = Action::Edit { lane: "a".into(), id: "e1".into(), hash: 5, bytes: 20 };
    story.refuse(Op::Control { action }, Refusal::Other);
    let held = story.claim("a");
    story.succeed(held);
    breaks(&story.end(), WholeBatch, |h| resize(h, "e1", 20));
}

#[test]
fn s24_a_restore_may_bring_back_what_was_erased() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let held = story.claim("a");
    story.succeed(held);
    story.call(Op::Backup { name: "b".into() }, Answer::Done);
    story.control(Action::EraseLane { lane: "a".into() });
    story.records.push(Record::fact(0, Op::Restore { backup: "b".into() }));
    // The backup was taken after the erasure: then nothing of it may come back.
    breaks(&story.end(), Erasure, |h| {
        let erase = control(h, |a| matches!(a, Action::EraseLane { .. }));
        let backup: Vec<Record> = h.drain(erase - 2..erase).collect();
        h.splice(erase..erase, backup);
    });
}

#[test]
fn p7_an_id_that_was_erased_before_anyone_was_told_may_be_accepted_again() {
    let mut story = Story::new(policy());
    for _ in 0..2 {
        story.ask(Story::append_op("a", "e1"));
        story.note("erased", "a");
        story.control(Action::EraseEvent { lane: "a".into(), id: "e1".into() });
    }
    let mut told = story.end();
    let totals = &mut dump_of(&mut told).queues[0];
    (totals.accepted, totals.discarded) = (2, 2);
    breaks(&told, Equation, |h| {
        let totals = &mut dump_of(h).queues[0];
        (totals.accepted, totals.discarded) = (3, 3);
    });
}

#[test]
fn s10_a_run_of_events_that_nobody_was_told_of_may_be_redriven() {
    let mut story = Story::new(policy());
    story.ask(Story::append_op("a", "e1"));
    story.store("a", "e1");
    let run = story.discard("a", "cancelled", 1);
    story.redrive(run);
    let mut told = story.end();
    let dump = dump_of(&mut told);
    dump.events.clear();
    dump.runs.iter_mut().for_each(|r| (r.count, r.state) = (0, State::Cancelled));
    let mut ended = audit_of(&mut told, "cancelled", 0).clone();
    let redriven = audit_of(&mut told, "redriven", 0).clone();
    (ended.id, ended.run) = (redriven.id + 1, redriven.run);
    let erased = AuditEntry { lane: Some("a".into()), ..AuditEntry::new(redriven.id + 2, 1_000, "erased") };
    dump_of(&mut told).audit.extend([ended, erased]);
    let totals = &mut dump_of(&mut told).queues[0];
    (totals.buffered, totals.discarded) = (0, 1);
    let dump = told.pop().unwrap();
    let action = Action::EraseEvent { lane: "a".into(), id: "e1".into() };
    told.push(Record::invoke(2, 1, Op::Control { action }));
    told.push(Record::ok(2, 1, None, Answer::Controlled { changed: true }));
    told.push(dump);
    // An event that was told of is known to be in another run.
    breaks(&told, SerialCommits, |h| {
        let told = Receipt { id: "e1".into(), seq: Some(1), duplicate: false, run: Some(2) };
        h.insert(2, Record::ok(1, 1, None, Answer::Appended { receipts: vec![told] }));
        let mut again = audit_of(h, "redriven", 0).clone();
        (again.id, again.run) = (again.id + 3, Some(90));
        dump_of(h).audit.push(again);
    });
}

#[test]
fn r28_a_buried_event_has_a_number_and_never_waited() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    story.bury("a", "conflict_9");
    let held = story.claim("a");
    story.succeed(held);
    let told = story.end();
    breaks(&told, AuditIsState, |h| dump_of(h).events[1].place = Place::Buffered);
    breaks(&told, WholeBatch, |h| dump_of(h).audit.retain(|a| a.change.as_str() != "conflict_buried"));
}

#[test]
fn s11_what_a_restore_took_away_counts_in_no_batch() {
    let mut story = Story::new(Policy { max_bytes: 25, ..policy() });
    story.append("a", "e1");
    story.call(Op::Backup { name: "b".into() }, Answer::Done);
    let receipts = vec![Receipt { id: "lost".into(), seq: Some(500), duplicate: false, run: Some(501) }];
    story.call(Story::append_op("a", "lost"), Answer::Appended { receipts });
    story.records.push(Record::fact(0, Op::Restore { backup: "b".into() }));
    story.jump(1_000);
    story.append("a", "e2");
    let held = story.claim("a");
    story.succeed(held);
    breaks(&story.end(), WholeBatch, |h| resize(h, "e2", 20));
}

#[test]
fn s3_an_answer_may_come_after_the_restore_that_undid_it() {
    let mut story = Story::new(policy());
    story.call(Op::Backup { name: "b".into() }, Answer::Done);
    let late = story.ask(Story::append_op("a", "e1"));
    story.records.push(Record::fact(0, Op::Restore { backup: "b".into() }));
    story.jump(1_000);
    story.append("a", "e1");
    let receipts = vec![Receipt { id: "e1".into(), seq: Some(500), duplicate: false, run: Some(501) }];
    story.answer(late, Answer::Appended { receipts });
    breaks(&story.end(), Idempotency, |h| h.retain(|r| !matches!(r.op, Some(Op::Restore { .. }))));
}

#[test]
fn s6_what_was_delivered_before_a_restore_may_be_another_one() {
    let mut story = Story::new(policy());
    story.call(Op::Backup { name: "b".into() }, Answer::Done);
    let other = NewEvent { hash: 5, ..Story::event("a", "e1") };
    story.ask(Op::Append { events: vec![other] });
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
        events: vec![Delivered { seq: 500, id: "e1".into(), hash: 5 }],
    };
    let op = Op::Claim { worker: "w1".into(), claim_id: None };
    story.call(op, Answer::Claimed { now: 1_000, claims: vec![claim] });
    story.records.push(Record::fact(0, Op::Restore { backup: "b".into() }));
    story.jump(1_000);
    story.append("a", "e1");
    let held = story.claim("a");
    story.succeed(held);
    breaks(&story.end(), Content, |h| claim_of(h, 1).events[0].hash = 5);
}

#[test]
fn r15_a_redrive_may_take_some_events_only() {
    let mut story = Story::new(policy());
    for id in ["e1", "e2", "e3"] {
        story.append("a", id);
    }
    let held = story.claim("a");
    story.settle(held, Verdict::Failed, "failed");
    story.redrive_part(held.run, &["e1", "e3"]);
    story.claim_unheard("a");
    breaks(&story.end(), AuditIsState, |h| {
        let place = control(h, |a| matches!(a, Action::RedriveHead { .. }));
        let Some(Op::Control { action: Action::RedriveHead { events, .. } }) = &mut h[place].op else {
            panic!("the redrive")
        };
        events.clear();
    });
}

#[test]
fn s17_a_run_that_began_before_the_trail_takes_newer_events_in() {
    let mut story = Story::new(Policy { retry_with: RetryWith::Newer, ..policy() });
    story.append("a", "e1");
    let held = story.claim("a");
    story.retry(held);
    story.append("a", "e2");
    let held = story.claim_merging("a");
    story.succeed(held);
    story.append("a", "e3");
    story.append("a", "e4");
    let held = story.claim("a");
    story.succeed(held);
    let mut told = story.end();
    let dump = dump_of(&mut told);
    dump.audit.remove(0);
    dump.audit_from = Some(dump.audit[0].id);
    assert_eq!(hash("e4"), claim_of(&mut told, 2).events[1].hash);
    breaks(&told, SerialCommits, |h| {
        claim_of(h, 2).events.remove(0);
    });
}

#[test]
fn s17_what_the_trail_no_longer_knows_may_be_redriven_as_new() {
    let mut story = Story::new(Policy { retry_with: RetryWith::Newer, ..policy() });
    story.append("a", "e1");
    let held = story.claim("a");
    story.settle(held, Verdict::Failed, "failed");
    story.append("a", "e2");
    story.redrive_as_new(held.run);
    let held = story.claim("a");
    story.append("a", "e3");
    story.settle(held, Verdict::Superseded, "superseded");
    let mut told = story.end();
    let dump = dump_of(&mut told);
    dump.audit.drain(..2);
    dump.audit_from = Some(dump.audit[0].id);
    breaks(&told, Attempts, |h| audit_of(h, "superseded", 0).attempt = 1);
}

#[test]
fn r3_a_memo_that_a_restore_undid_may_be_told_after_another_was_made() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let held = story.claim("a");
    story.call(Op::Backup { name: "b".into() }, Answer::Done);
    let (run, token, revision, name) = (held.run, held.token, 0, Name::from("s"));
    let finish = |value| Op::StepFinish { run, token, revision, name: name.clone(), value };
    let late = story.ask(finish(7));
    story.records.push(Record::fact(0, Op::Restore { backup: "b".into() }));
    story.call(finish(8), Answer::Step(StepAnswer::Value(8)));
    story.answer(late, Answer::Step(StepAnswer::Value(7)));
    breaks(&story.end(), StepMemo, |h| h.retain(|r| !matches!(r.op, Some(Op::Restore { .. }))));
}

#[test]
fn r3_a_memo_told_after_the_restore_that_undid_it_binds_nobody() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let held = story.claim("a");
    story.call(Op::Backup { name: "b".into() }, Answer::Done);
    let (run, token, revision, name) = (held.run, held.token, 0, Name::from("s"));
    let late = story.ask(Op::StepFinish { run, token, revision, name: name.clone(), value: 7 });
    story.records.push(Record::fact(0, Op::Restore { backup: "b".into() }));
    story.answer(late, Answer::Step(StepAnswer::Value(7)));
    let again = Op::StepBegin { run, token, revision, name, once: false };
    story.call(again, Answer::Step(StepAnswer::Begun));
    breaks(&story.end(), StepMemo, |h| h.retain(|r| !matches!(r.op, Some(Op::Restore { .. }))));
}

#[test]
fn s17_halves_of_a_run_that_began_before_the_trail_are_not_judged_by_their_events() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    story.append("a", "e2");
    let held = story.claim("a");
    story.retry(held);
    let held = story.claim("a");
    let halves = story.split(held);
    let mut told = story.end();
    let dump = dump_of(&mut told);
    dump.audit.drain(..2);
    dump.audit_from = Some(dump.audit[0].id);
    passes(&told);
    breaks(&told, LegalMoves, |h| audit_of(h, "split_off", 0).from = Some(State::Pending));
    assert!(halves[0] < halves[1]);
}
