//! The audit trail: complete, legal, and equal to the tables.

use super::story::{Story, audit_of, dump_of, policy};
use super::{breaks, passes};
use crate::Invariant::*;
use crate::history::*;
use crate::sometimes::Thing;
use crate::{Change, check};

fn life() -> Story {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let held = story.claim("a");
    story.retry(held);
    let held = story.claim("a");
    story.succeed(held);
    story.append("b", "e2");
    story
}

#[test]
fn s17_every_answer_is_in_the_trail() {
    let told = life().end();
    breaks(&told, AuditIsState, |h| dump_of(h).audit.retain(|a| a.change.as_str() != "succeeded"));
    breaks(&told, AuditIsState, |h| dump_of(h).audit.clear());
    breaks(&told, AuditIsState, |h| audit_of(h, "retried", 0).next_at = Some(2_500));
    let mut story = life();
    story.note("paused", "b");
    story.control(Action::PauseLane { lane: "b".into() });
    breaks(&story.end(), AuditIsState, |h| dump_of(h).audit.retain(|a| a.change.as_str() != "paused"));
}

#[test]
fn s17_folding_the_trail_gives_the_tables() {
    let told = life().end();
    breaks(&told, AuditIsState, |h| dump_of(h).runs[0].state = State::Failed);
    breaks(&told, AuditIsState, |h| dump_of(h).runs[0].attempts = 1);
    breaks(&told, AuditIsState, |h| dump_of(h).runs[0].claims = 3);
    breaks(&told, AuditIsState, |h| dump_of(h).runs[0].held = true);
    breaks(&told, AuditIsState, |h| dump_of(h).runs[0].count = 2);
    breaks(&told, AuditIsState, |h| dump_of(h).runs.clear());
    breaks(&told, AuditIsState, |h| {
        let mut ghost = dump_of(h).runs[0].clone();
        ghost.run = 777;
        dump_of(h).runs.push(ghost);
    });
    breaks(&told, AuditIsState, |h| {
        (dump_of(h).events[0].place, dump_of(h).events[0].run) = (Place::Dead, None);
        (dump_of(h).queues[0].dead, dump_of(h).queues[0].succeeded) = (1, 0);
    });
}

#[test]
fn s17_the_trail_is_in_commit_order() {
    let told = life().end();
    breaks(&told, AuditIsState, |h| dump_of(h).audit.swap(0, 1));
    breaks(&told, AuditIsState, |h| audit_of(h, "succeeded", 0).at = 1);
}

#[test]
fn s18_only_moves_of_the_table() {
    let told = life().end();
    breaks(&told, LegalMoves, |h| audit_of(h, "succeeded", 0).change = "vanished".into());
    breaks(&told, LegalMoves, |h| audit_of(h, "retried", 0).to = Some(State::Succeeded));
    breaks(&told, LegalMoves, |h| audit_of(h, "claimed", 1).from = Some(State::Pending));
    breaks(&told, LegalMoves, |h| {
        // A run that has ended ends again.
        let again = AuditEntry { id: 900, ..audit_of(h, "succeeded", 0).clone() };
        dump_of(h).audit.push(again);
    });
}

#[test]
fn a_trail_that_the_retention_has_shortened_is_folded_from_its_middle() {
    let mut story = life();
    story.call(Op::Sweep, Answer::Swept { reclaimed: 0, removed_events: 0, removed_audit: 2 });
    let mut told = story.end();
    let dump = dump_of(&mut told);
    dump.audit.drain(..2);
    dump.audit_from = Some(dump.audit[0].id);
    dump.runs[0].claims = 2;
    passes(&told);
    breaks(&told, LegalMoves, |h| audit_of(h, "succeeded", 0).from = Some(State::Pending));
}

#[test]
fn each_database_of_several_has_a_trail_of_its_own() {
    let trail = |range, audit_from| Trail { range, audit_from };
    let dump = Dump {
        audit_from: Some(130),
        trails: vec![trail(100, 130), trail(200, u64::MAX), trail(300, 301)],
        ..Dump::default()
    };
    let before: Vec<u64> = [99, 129, 130, 199, 200, 299, 300, 301, 999]
        .into_iter()
        .filter(|number| dump.is_before_trail(*number))
        .collect();
    assert_eq!(before, [99, 129, 200, 299, 300]);
    assert!(!Dump { audit_from: None, ..dump }.is_before_trail(1), "nothing was removed");
}

#[test]
fn a_violation_is_told_with_its_records() {
    let mut told = life().end();
    dump_of(&mut told).runs[0].state = State::Failed;
    let text = check(&told).unwrap_err().to_string();
    for part in
        ["S17 audit is state", "lane a", "expected: Succeeded", "#4 ", "\"change\":\"retried\"", "dumped run"]
    {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    assert!(!text.contains("\"id\":\"e2\""), "other lanes are left out:\n{text}");
}

#[test]
fn every_change_is_counted() {
    let summary = passes(&life().end());
    assert_eq!(summary.sometimes.of_change(Change::Claimed), 2);
    assert_eq!(summary.sometimes.of_change(Change::Retried), 1);
    assert_eq!(summary.sometimes.of(Thing::BatchOfOne), 1);
    assert_eq!((summary.lanes, summary.events, summary.claims), (2, 2, 2));
}

#[test]
fn a_history_survives_json() {
    let told = life().end();
    let lines: String = told.iter().map(|r| serde_json::to_string(r).unwrap() + "\n").collect();
    let read = read_lines(&lines).unwrap();
    assert_eq!(read, told);
    passes(&read);
}

/// A run fails and is redriven at the head; its second life is claimed.
fn second_life() -> (Vec<Record>, u64) {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    story.append("a", "e2");
    let held = story.claim("a");
    story.settle(held, Verdict::Failed, "failed");
    story.redrive(held.run);
    let again = story.claim("a");
    story.append("a", "e3");
    story.settle(again, Verdict::Release, "released");
    (story.end(), held.run)
}

#[test]
fn s17_a_redrive_says_of_what() {
    let (told, _) = second_life();
    breaks(&told, AuditIsState, |h| audit_of(h, "redriven", 0).other_run = None);
    breaks(&told, AuditIsState, |h| audit_of(h, "redriven", 0).other_run = Some(777));
    breaks(&told, AuditIsState, |h| audit_of(h, "claimed", 1).run = None);
}

#[test]
fn s18_only_what_has_ended_is_redriven() {
    let (told, first) = second_life();
    breaks(&told, LegalMoves, |h| {
        let failed = audit_of(h, "failed", 0);
        (failed.change, failed.to, failed.verdict) =
            ("succeeded".into(), Some(State::Succeeded), Some(Verdict::Failed));
        assert_eq!(failed.run, Some(first));
    });
}

#[test]
fn s12_a_redriven_run_never_gives_way() {
    let (told, _) = second_life();
    breaks(&told, FrozenBatch, |h| {
        let released = audit_of(h, "released", 0);
        (released.change, released.verdict) = ("superseded".into(), Some(Verdict::Superseded));
    });
}

#[test]
fn s17_the_trail_and_the_worker_know_the_same_batch() {
    let (told, _) = second_life();
    breaks(&told, AuditIsState, |h| audit_of(h, "claimed", 0).upto_seq += 100);
    breaks(&told, AuditIsState, |h| audit_of(h, "claimed", 0).run = Some(777));
}

#[test]
fn s9_a_token_that_never_held_a_run_does_nothing() {
    let (mut told, run) = second_life();
    let dump = told.pop().unwrap();
    let calls = [
        (Op::Extend { run, token: 888 }, Answer::Extended { lease_until: 1 }),
        (Op::Hold { run, token: 888, if_head: None }, Answer::Hold(HoldAnswer::Held)),
        (
            Op::StepFinish { run, token: 888, revision: 0, name: "s".into(), value: 1 },
            Answer::Step(StepAnswer::Value(1)),
        ),
        (
            Op::Settle {
                run,
                token: 888,
                verdict: Verdict::Succeeded,
                if_head: None,
                own_delay: false,
                follow_ups: vec![],
                source: SourceReport::Fine,
            },
            Answer::Settled { state: State::Succeeded, next_at: None, repeated: false },
        ),
    ];
    for (op, answer) in calls {
        let mut legal = told.clone();
        legal.push(Record::invoke(9, 1, op));
        legal.push(Record::fail(9, 1, Refusal::Stale));
        legal.push(dump.clone());
        let place = legal.len() - 2;
        breaks(&legal, Fencing, |h| h[place] = Record::ok(9, 1, None, answer));
    }
}
