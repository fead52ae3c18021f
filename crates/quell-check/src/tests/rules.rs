//! The rules where parts of the contract meet.

use super::story::{Held as Holder, Story, audit_of, claim_of, dump_of, policy};
use super::{breaks, passes};
use crate::Invariant::*;
use crate::history::*;
use crate::sometimes::Thing;

fn step(held: Holder, revision: u32, once: bool) -> Op {
    Op::StepBegin { run: held.run, token: held.token, revision, name: "llm".into(), once }
}

fn finish(held: Holder, value: u64) -> Op {
    Op::StepFinish { run: held.run, token: held.token, revision: 0, name: "llm".into(), value }
}

#[test]
fn r3_a_memo_never_changes() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let held = story.claim("a");
    story.call(step(held, 0, false), Answer::Step(StepAnswer::Begun));
    story.call(finish(held, 7), Answer::Step(StepAnswer::Value(7)));
    story.reclaim(held);
    let held = story.claim("a");
    story.call(step(held, 0, false), Answer::Step(StepAnswer::Value(7)));
    story.call(step(held, 1, false), Answer::Step(StepAnswer::Begun));
    let told = story.end();
    assert_eq!(passes(&told).sometimes.of(Thing::StepRemembered), 1);
    let again = told.iter().rposition(|r| r.answer == Some(Answer::Step(StepAnswer::Value(7)))).unwrap();
    breaks(&told, StepMemo, |h| h[again].answer = Some(Answer::Step(StepAnswer::Value(8))));
    breaks(&told, StepMemo, |h| h[again].answer = Some(Answer::Step(StepAnswer::Begun)));
}

#[test]
fn r4_an_effect_that_must_not_repeat_begins_once() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let held = story.claim("a");
    story.call(step(held, 0, true), Answer::Step(StepAnswer::Begun));
    story.reclaim(held);
    let held = story.claim("a");
    story.call(step(held, 0, true), Answer::Step(StepAnswer::Unknown));
    let told = story.end();
    let again = told.len() - 2;
    breaks(&told, StepMemo, |h| h[again].answer = Some(Answer::Step(StepAnswer::Begun)));
}

/// A run gives way twice, each time to one more event.
fn gives_way() -> Vec<Record> {
    let mut story = Story::new(Policy { during_run: DuringRun::Gate, max_interrupts: 2, ..policy() });
    story.append("a", "e1");
    let held = story.claim("a");
    story.append("a", "e2");
    story.settle(held, Verdict::Superseded, "superseded");
    let held = story.claim_merging("a");
    story.append("a", "e3");
    story.settle(held, Verdict::Interrupted, "interrupted");
    let held = story.claim_merging("a");
    story.succeed(held);
    story.end()
}

#[test]
fn r3_the_revision_rises_with_merges() {
    let told = gives_way();
    breaks(&told, Revision, |h| claim_of(h, 1).revision = 0);
    breaks(&told, Revision, |h| claim_of(h, 2).revision = 3);
    breaks(&told, Revision, |h| {
        let merged = audit_of(h, "merged", 1).run;
        dump_of(h).audit.retain(|a| a.run != merged);
        dump_of(h).runs.retain(|r| Some(r.run) != merged);
    });
}

#[test]
fn r8_a_run_gives_way_a_bounded_number_of_times() {
    let told = gives_way();
    breaks(&told, Interrupts, |h| {
        let Some(Op::Policy(policy)) = &mut h[0].op else { panic!("the policy comes first") };
        policy.max_interrupts = 1;
    });
}

#[test]
fn r8_old_and_new_form_one_batch() {
    let mut story = Story::new(Policy { during_run: DuringRun::Gate, max_events: 2, ..policy() });
    story.append("a", "e1");
    let held = story.claim("a");
    story.settle(held, Verdict::Release, "released");
    story.append("a", "e2");
    let held = story.claim("a");
    story.succeed(held);
    breaks(&story.end(), WholeBatch, |h| {
        let entry = audit_of(h, "released", 0);
        (entry.change, entry.verdict) = ("interrupted".into(), Some(Verdict::Interrupted));
    });
}

#[test]
fn r9_a_run_gives_way_only_to_newer_events() {
    let mut story = Story::new(Policy { during_run: DuringRun::Gate, ..policy() });
    story.append("a", "e1");
    let held = story.claim("a");
    story.settle(held, Verdict::Release, "released");
    let released = story.end();
    breaks(&released, GiveWay, |h| {
        let entry = audit_of(h, "released", 0);
        (entry.change, entry.verdict) = ("superseded".into(), Some(Verdict::Superseded));
    });
    breaks(&gives_way(), GiveWay, |h| {
        // A full batch never gives way.
        let Some(Op::Policy(policy)) = &mut h[0].op else { panic!("the policy comes first") };
        policy.max_events = 1;
    });
}

#[test]
fn r5_held_is_frozen() {
    let mut story = Story::new(Policy { during_run: DuringRun::Gate, ..policy() });
    story.append("a", "e1");
    let held = story.claim("a");
    story.hold(held);
    story.append("a", "e2");
    story.settle(held, Verdict::Release, "released");
    let held = story.claim("a");
    story.succeed(held);
    let told = story.end();
    assert_eq!(passes(&told).sometimes.of(Thing::HoldHeld), 1);
    for change in ["superseded", "interrupted"] {
        breaks(&told, Held, |h| audit_of(h, "released", 0).change = change.into());
    }
    breaks(&told, AuditIsState, |h| dump_of(h).audit.retain(|a| a.change.as_str() != "held"));
    breaks(&gives_way(), Held, |h| {
        let claimed = audit_of(h, "claimed", 0).clone();
        let after = dump_of(h).audit.iter().position(|a| a.id == claimed.id).unwrap() + 1;
        let held =
            AuditEntry { id: claimed.id + 1, from: Some(State::Running), change: "held".into(), ..claimed };
        dump_of(h).audit.insert(after, held);
        // Its number was the second event's; the order within the lane does not matter for this.
        for id in dump_of(h).audit.iter_mut().skip(after + 1) {
            id.id += 1;
        }
    });
}

#[test]
fn r5_a_held_run_takes_nothing_in() {
    let mut story = Story::new(Policy { retry_with: RetryWith::Newer, ..policy() });
    story.append("a", "e1");
    let held = story.claim("a");
    story.append("a", "e2");
    story.retry(held);
    let held = story.claim_merging("a");
    story.hold(held);
    story.succeed(held);
    breaks(&story.end(), Held, |h| {
        let held = audit_of(h, "held", 0).clone();
        let first = audit_of(h, "claimed", 0).clone();
        dump_of(h).audit.retain(|a| a.change.as_str() != "held");
        let entry = AuditEntry { id: first.id, change: held.change, from: first.to, ..first.clone() };
        let place = dump_of(h).audit.iter().position(|a| a.id == first.id).unwrap();
        dump_of(h).audit[place].id -= 1;
        dump_of(h).audit.insert(place + 1, entry);
    });
}

#[test]
fn r5_a_merge_told_after_its_claim_is_still_a_merge() {
    let mut story = Story::new(Policy { retry_with: RetryWith::Newer, ..policy() });
    story.append("a", "e1");
    let held = story.claim("a");
    story.append("a", "e2");
    story.retry(held);
    let held = story.claim_merging("a");
    story.succeed(held);
    let mut told = story.end();
    // Both records are of one transaction, and the contract does not say which comes first.
    let merged = audit_of(&mut told, "merged", 0).id;
    (audit_of(&mut told, "merged", 0).id, audit_of(&mut told, "claimed", 1).id) = (merged + 1, merged);
    dump_of(&mut told).audit.sort_by_key(|a| a.id);
    passes(&told);
    breaks(&told, Held, |h| {
        let first = audit_of(h, "claimed", 0).clone();
        let place = dump_of(h).audit.iter().position(|a| a.id == first.id).unwrap();
        dump_of(h).audit[place].id -= 1;
        dump_of(h).audit.insert(place + 1, AuditEntry { change: "held".into(), from: first.to, ..first });
    });
    breaks(&told, Revision, |h| audit_of(h, "merged", 0).other_run = Some(777));
}

#[test]
fn r5_what_a_hold_was_answered_is_in_the_trail() {
    let mut story = Story::new(Policy { during_run: DuringRun::Gate, ..policy() });
    story.append("a", "e1");
    let held = story.claim("a");
    story.append("a", "e2");
    let call = story.ask(Op::Hold { run: held.run, token: held.token, if_head: Some(1) });
    story.ends(held, Some(Verdict::Superseded), "superseded");
    story.answer(call, Answer::Hold(HoldAnswer::Superseded));
    let told = story.end();
    let answered = told.len() - 2;
    for wrong in [HoldAnswer::Held, HoldAnswer::Interrupted] {
        breaks(&told, AuditIsState, |h| h[answered].answer = Some(Answer::Hold(wrong)));
    }
}

#[test]
fn r12_hand_backs_are_refunded_ten_times() {
    let mut story = Story::new(Policy { backoff_base_ms: 0, ..policy() });
    story.append("a", "e1");
    for _ in 0..10 {
        let held = story.claim("a");
        story.settle(held, Verdict::Release, "released");
    }
    let held = story.claim("a");
    story.settle(held, Verdict::Release, "released_counted");
    breaks(&story.end(), Refunds, |h| {
        let entry = audit_of(h, "released_counted", 0);
        (entry.change, entry.attempt) = ("released".into(), 0);
    });
}

#[test]
fn r12_a_second_hand_back_in_a_row_waits() {
    let mut story = Story::new(Policy { backoff_base_ms: 0, ..policy() });
    story.append("a", "e1");
    for _ in 0..2 {
        let held = story.claim("a");
        story.settle(held, Verdict::Release, "released");
    }
    breaks(&story.end(), NotEarly, |h| {
        let Some(Op::Policy(policy)) = &mut h[0].op else { panic!("the policy comes first") };
        policy.backoff_base_ms = 100;
    });
}

#[test]
fn r13_halves_go_in_order_and_hold_the_whole_batch() {
    let mut story = Story::new(Policy { on_failed: OnFailed::Bisect, ..policy() });
    for id in ["e1", "e2", "e3"] {
        story.append("a", id);
    }
    let held = story.claim("a");
    story.append("a", "e4");
    story.split(held);
    let left = story.claim("a");
    story.settle(left, Verdict::Failed, "failed");
    let right = story.claim("a");
    story.succeed(right);
    let newer = story.claim("a");
    story.succeed(newer);
    let told = story.end();
    passes(&told);
    let swap = |h: &mut Vec<Record>, a: usize, b: usize| {
        let (one, two) = (claim_of(h, a).clone(), claim_of(h, b).clone());
        *claim_of(h, a) = Claim { token: one.token, ..two.clone() };
        *claim_of(h, b) = Claim { token: two.token, ..one.clone() };
        let (one, two) = (audit_of(h, "claimed", a).clone(), audit_of(h, "claimed", b).clone());
        (audit_of(h, "claimed", a).run, audit_of(h, "claimed", b).run) = (two.run, one.run);
        let (one, two) = (one.upto_seq, two.upto_seq);
        (audit_of(h, "claimed", a).upto_seq, audit_of(h, "claimed", b).upto_seq) = (two, one);
    };
    breaks(&told, SerialCommits, |h| swap(h, 1, 2));
    breaks(&told, SerialCommits, |h| swap(h, 1, 3));
    breaks(&told, Attempts, |h| claim_of(h, 1).max_attempts = 3);
    breaks(&told, SerialCommits, |h| {
        // The right half is missing.
        let run = audit_of(h, "split_off", 1).run;
        let newer = audit_of(h, "claimed", 3).run;
        dump_of(h).audit.retain(|a| a.run != run && a.run != newer);
    });
    breaks(&told, LegalMoves, |h| audit_of(h, "split_off", 0).other_run = Some(1));
}

#[test]
fn r14_a_blocked_lane_waits() {
    let mut story = Story::new(Policy { on_failed: OnFailed::Block, ..policy() });
    story.append("a", "e1");
    let held = story.claim("a");
    story.settle(held, Verdict::Failed, "failed");
    let entry = story.entry("blocked", "a", held.run, Some(State::Failed), Some(State::Failed));
    story.audit.push(entry);
    story.append("a", "e2");
    story.note("unblocked", "a");
    story.control(Action::Unblock { lane: "a".into() });
    let held = story.claim("a");
    story.succeed(held);
    let told = story.end();
    breaks(&told, Block, |h| dump_of(h).audit.retain(|a| a.change.as_str() != "unblocked"));
    breaks(&told, Block, |h| {
        dump_of(h).audit.retain(|a| !matches!(a.change.as_str(), "blocked" | "unblocked"));
    });
}

#[test]
fn r14_redriving_the_failed_run_ends_its_block() {
    let mut story = Story::new(Policy { on_failed: OnFailed::Block, ..policy() });
    story.append("a", "e1");
    let held = story.claim("a");
    story.settle(held, Verdict::Failed, "failed");
    let entry = story.entry("blocked", "a", held.run, Some(State::Failed), Some(State::Failed));
    story.audit.push(entry);
    story.redrive(held.run);
    let held = story.claim("a");
    story.succeed(held);
    breaks(&story.end(), Block, |h| audit_of(h, "blocked", 0).run = None);
}

#[test]
fn r15_redriven_as_new_gets_new_numbers() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let held = story.claim("a");
    story.settle(held, Verdict::Failed, "failed");
    story.append("a", "e2");
    story.redrive_as_new(held.run);
    let held = story.claim("a");
    story.succeed(held);
    let told = story.end();
    assert_eq!(passes(&told).sometimes.of(Thing::RedrivenAsNew), 1);
    breaks(&told, LegalMoves, |h| audit_of(h, "redriven", 0).from = Some(State::Failed));
}

#[test]
fn r16_a_cancelled_run_ends_cancelled_or_succeeded() {
    for (verdict, change) in [(Verdict::Retry, "cancelled"), (Verdict::Succeeded, "succeeded")] {
        let mut story = Story::new(policy());
        story.append("a", "e1");
        let held = story.claim("a");
        story.running(held, "cancel_requested");
        story.control(Action::Cancel { lane: "a".into() });
        story.settle(held, verdict, change);
        let told = story.end();
        passes(&told);
        breaks(&told, Cancel, |h| {
            let entry = audit_of(h, change, 0);
            (entry.change, entry.to) = ("retried".into(), Some(State::Retryable));
        });
    }
}

#[test]
fn r16_buffered_events_that_are_cancelled_are_discarded() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let gone = story.discard("a", "cancelled", 1);
    story.redrive(gone);
    let held = story.claim("a");
    story.succeed(held);
    story.append("a", "e2");
    story.discard("a", "cancelled", 1);
    let told = story.end();
    breaks(&told, AuditIsState, |h| {
        dump_of(h).events[1].place = Place::Dead;
        (dump_of(h).queues[0].dead, dump_of(h).queues[0].discarded) = (1, 0);
    });
}

#[test]
fn r17_a_pause_stops_claims() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    story.note("paused", "a");
    story.control(Action::PauseLane { lane: "a".into() });
    story.note("resumed", "a");
    story.control(Action::ResumeLane { lane: "a".into() });
    let held = story.claim("a");
    story.succeed(held);
    breaks(&story.end(), Pause, |h| dump_of(h).audit.retain(|a| a.change.as_str() != "resumed"));
    let mut story = Story::new(policy());
    story.append("a", "e1");
    story.control(Action::PauseQueue { queue: "q".into() });
    story.control(Action::ResumeQueue { queue: "q".into() });
    let held = story.claim("a");
    story.succeed(held);
    breaks(&story.end(), Pause, |h| {
        let resume =
            h.iter().position(|r| matches!(r.op, Some(Op::Control { action: Action::ResumeQueue { .. } })));
        h.drain(resume.unwrap()..resume.unwrap() + 2);
    });
}

#[test]
fn r19_dropped_deleted_and_purged_events_leave_the_open_run() {
    for change in ["dropped", "deleted", "purged"] {
        let mut story = Story::new(policy());
        story.append("a", "e1");
        story.append("a", "e2");
        story.discard("a", change, 1);
        let held = story.claim("a");
        story.succeed(held);
        let told = story.end();
        passes(&told);
        breaks(&told, SerialCommits, |h| dump_of(h).audit.retain(|a| a.change.as_str() != change));
    }
}

#[test]
fn r19_a_window_goes_on_when_its_only_event_makes_room() {
    let window = Window::Quiet { quiet_ms: 100, max_wait_ms: 150 };
    let mut story = Story::new(Policy { window, ..policy() });
    story.append("a", "e1");
    story.now += 90;
    story.discard("a", "dropped", 1);
    story.append("a", "e2");
    story.now += 60;
    story.fired_by = FiredBy::Cap;
    let held = story.claim("a");
    story.succeed(held);
    // A deleted event takes its window with it.
    breaks(&story.end(), NotEarly, |h| audit_of(h, "dropped", 0).change = "deleted".into());
}

#[test]
fn r3_events_that_were_erased_since_do_not_hide_a_merge() {
    let mut story = Story::new(Policy { retry_with: RetryWith::Newer, ..policy() });
    story.append("a", "e1");
    let held = story.claim("a");
    story.append("a", "e2");
    story.retry(held);
    let held = story.claim_merging("a");
    story.succeed(held);
    story.erase("a");
    breaks(&story.end(), Revision, |h| claim_of(h, 1).revision = 0);
}

#[test]
fn r20_the_same_settle_gets_the_same_answer() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let held = story.claim("a");
    story.succeed(held);
    let answer = Answer::Settled { state: State::Succeeded, next_at: None, repeated: true };
    story.call(Story::settle_op(held, Verdict::Succeeded), answer);
    story.refuse(Story::settle_op(held, Verdict::Retry), Refusal::AlreadySettled);
    let told = story.end();
    let summary = passes(&told);
    assert_eq!(summary.sometimes.of(Thing::SettleRepeated), 1);
    let (repeated, refused) = (told.len() - 4, told.len() - 2);
    breaks(&told, SameAnswer, |h| {
        let Some(Answer::Settled { state, .. }) = &mut h[repeated].answer else {
            panic!("the repeated settle")
        };
        *state = State::Pending;
    });
    breaks(&told, SameAnswer, |h| {
        h[repeated] = Record::fail(h[repeated].process, h[repeated].call, Refusal::Stale);
    });
    breaks(&told, SameAnswer, |h| {
        let answer = Answer::Settled { state: State::Retryable, next_at: None, repeated: false };
        h[refused] = Record::ok(h[refused].process, h[refused].call, None, answer);
    });
    breaks(&told, SameAnswer, |h| h[refused - 1].op = Some(Story::settle_op(held, Verdict::Succeeded)));
}

#[test]
fn r21_a_repeated_claim_gets_the_same_batch() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let held = story.claim("a");
    let mut told = story.end();
    let asked = told.iter().position(|r| matches!(r.op, Some(Op::Claim { .. }))).unwrap();
    told[asked].op = Some(Op::Claim { worker: "w1".into(), claim_id: Some("c".into()) });
    let again = [told[asked].clone(), told[asked + 1].clone()];
    for (place, mut record) in again.into_iter().enumerate() {
        record.process = 9;
        told.insert(asked + 2 + place, record);
    }
    assert_eq!(passes(&told).sometimes.of(Thing::ClaimRepeated), 1);
    breaks(&told, SameAnswer, |h| claim_of(h, 1).attempt = 2);
    breaks(&told, TokensRise, |h| {
        h[asked + 2].op = Some(Op::Claim { worker: "w1".into(), claim_id: Some("d".into()) });
    });
    assert!(held.token > 0);
}
