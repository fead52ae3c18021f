//! Claims, leases, tokens, batches.

use super::story::{Story, audit_of, claim_of, dump_of, policy};
use super::{breaks, passes};
use crate::Invariant::*;
use crate::history::*;
use crate::sometimes::Thing;

/// A worker dies with its batch, another one takes over.
fn takeover() -> Vec<Record> {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    story.append("a", "e2");
    let held = story.claim("a");
    story.reclaim(held);
    let held = story.claim_by("a", "w2", false, true);
    story.refuse(
        Story::settle_op(super::story::Held { token: held.token - 3, ..held }, Verdict::Succeeded),
        Refusal::Stale,
    );
    story.succeed(held);
    story.end()
}

#[test]
fn s7_one_lease_per_lane() {
    let told = takeover();
    let summary = passes(&told);
    assert_eq!(summary.sometimes.of(Thing::ReclaimByAnother), 1);
    assert_eq!(summary.sometimes.of(Thing::Redelivery), 1);
    breaks(&told, OneLease, |h| dump_of(h).audit.retain(|a| a.change.as_str() != "reclaimed"));
    breaks(&told, OneLease, |h| audit_of(h, "reclaimed", 0).at -= 1);
}

#[test]
fn s7_an_extended_lease_is_not_taken_back() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let held = story.claim("a");
    let until = story.now + 60_000;
    story.call(Op::Extend { run: held.run, token: held.token }, Answer::Extended { lease_until: until });
    story.reclaim(held);
    breaks(&story.end(), OneLease, |h| {
        let extended = h.iter_mut().find_map(|r| match &mut r.answer {
            Some(Answer::Extended { lease_until }) => Some(lease_until),
            _ => None,
        });
        *extended.unwrap() += 1;
    });
}

#[test]
fn s8_tokens_rise() {
    let told = takeover();
    breaks(&told, TokensRise, |h| claim_of(h, 1).token = claim_of(h, 0).token);
    breaks(&told, TokensRise, |h| claim_of(h, 1).token = 1);
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let held = story.claim_unheard("a");
    story.reclaim(held);
    let held = story.claim_unheard("a");
    story.reclaim(held);
    breaks(&story.end(), TokensRise, |h| {
        let first = audit_of(h, "claimed", 0).token;
        audit_of(h, "claimed", 1).token = first;
    });
}

#[test]
fn s9_a_stale_call_changes_nothing() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let old = story.claim("a");
    story.reclaim(old);
    let held = story.claim_by("a", "w2", false, true);
    story.refuse(Op::Extend { run: old.run, token: old.token }, Refusal::Stale);
    story.refuse(Story::settle_op(old, Verdict::Succeeded), Refusal::Stale);
    story.succeed(held);
    let told = story.end();
    let summary = passes(&told);
    assert_eq!(summary.sometimes.of(Thing::StaleSettleRefused), 1);
    let accept = |h: &mut Vec<Record>, n: usize, answer: Answer| {
        let refused = h.iter_mut().filter(|r| r.phase == Phase::Fail).nth(n).unwrap();
        *refused = Record::ok(refused.process, refused.call, None, answer);
    };
    breaks(&told, Fencing, |h| accept(h, 0, Answer::Extended { lease_until: 1 }));
    breaks(&told, Fencing, |h| {
        accept(h, 1, Answer::Settled { state: State::Succeeded, next_at: None, repeated: false })
    });
    breaks(&told, Fencing, |h| audit_of(h, "succeeded", 0).token = old.token);
}

#[test]
fn s9_the_holder_is_never_called_stale() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let held = story.claim("a");
    story.call(Op::Extend { run: held.run, token: held.token }, Answer::Extended { lease_until: 1 });
    breaks(&story.end(), Fencing, |h| {
        let (asked, answered) = (h.len() - 3, h.len() - 2);
        h[asked].op = Some(Story::settle_op(held, Verdict::Succeeded));
        h[answered] = Record::fail(h[asked].process, h[asked].call, Refusal::Stale);
    });
}

#[test]
fn s9_a_settled_attempt_is_not_extended() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let held = story.claim("a");
    story.succeed(held);
    let mut told = story.end();
    let dump = told.pop().unwrap();
    told.push(Record::invoke(9, 1, Op::Extend { run: held.run, token: held.token }));
    told.push(Record::fail(9, 1, Refusal::Stale));
    told.push(dump);
    breaks(&told, Fencing, |h| {
        let answered = h.len() - 2;
        h[answered] = Record::ok(9, 1, None, Answer::Extended { lease_until: 1 });
    });
}

#[test]
fn s9_and_s16_a_fenced_sink_applies_each_event_once() {
    let mut story = Story::new(Policy { sink: true, ..policy() });
    let seq = story.append("a", "e1");
    let next = story.append("a", "e2");
    let held = story.claim("a");
    let apply =
        |token, seqs, accepted| Record::fact(1, Op::SinkApply { lane: "a".into(), token, seqs, accepted });
    story.records.push(apply(held.token, vec![seq], true));
    story.records.push(apply(held.token, vec![next], true));
    story.records.push(apply(held.token - 1, vec![seq], false));
    story.succeed(held);
    let told = story.end();
    let refused =
        told.iter().position(|r| matches!(r.op, Some(Op::SinkApply { accepted: false, .. }))).unwrap();
    breaks(&told, Fencing, |h| h[refused] = apply(held.token - 1, vec![99], true));
    breaks(&told, OnceAtSink, |h| h[refused] = apply(held.token, vec![seq], true));
    breaks(&told, OnceAtSink, |h| {
        h.remove(refused - 1);
    });
}

#[test]
fn s10_nothing_newer_goes_before_what_waits() {
    let mut story = Story::new(Policy { max_events: 1, ..policy() });
    story.append("a", "e1");
    story.append("a", "e2");
    let held = story.claim("a");
    story.retry(held);
    let held = story.claim("a");
    story.succeed(held);
    let held = story.claim("a");
    story.succeed(held);
    let told = story.end();
    assert_eq!(passes(&told).sometimes.of(Thing::BatchAtCap), 2);
    breaks(&told, SerialCommits, |h| {
        // The second batch first.
        let (first, second) = (claim_of(h, 0).events.clone(), claim_of(h, 2).events.clone());
        (claim_of(h, 0).events, claim_of(h, 2).events) = (second, first);
    });
    breaks(&told, SerialCommits, |h| {
        // The run of the second event is claimed while the first one waits for its retry.
        let other = audit_of(h, "claimed", 2).run;
        let entry = audit_of(h, "claimed", 1);
        (entry.run, entry.from, entry.attempt) = (other, Some(State::Pending), 1);
        let claim = claim_of(h, 1);
        (claim.run, claim.attempt) = (other.unwrap(), 1);
    });
}

#[test]
fn s10_a_batch_is_in_order() {
    let told = takeover();
    breaks(&told, SerialCommits, |h| claim_of(h, 0).events.reverse());
}

#[test]
fn s10_events_of_a_batch_follow_one_another() {
    let mut story = Story::new(policy());
    for id in ["e1", "e2", "e3"] {
        story.append("a", id);
    }
    let held = story.claim("a");
    story.succeed(held);
    breaks(&story.end(), SerialCommits, |h| {
        let first = claim_of(h, 0).events[0].clone();
        claim_of(h, 0).events.insert(1, first);
    });
}

#[test]
fn s11_nothing_is_handed_out_before_it_arrives() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let held = story.claim("a");
    story.succeed(held);
    story.append("a", "e2");
    let held = story.claim("a");
    story.succeed(held);
    breaks(&story.end(), WholeBatch, |h| {
        let early = claim_of(h, 1).events[0].clone();
        audit_of(h, "claimed", 0).upto_seq = early.seq;
        claim_of(h, 0).events.push(early);
    });
}

#[test]
fn s10_a_redriven_run_goes_before_anything_buffered() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let held = story.claim("a");
    story.settle(held, Verdict::Failed, "failed");
    story.append("a", "e2");
    story.redrive(held.run);
    let held = story.claim("a");
    story.succeed(held);
    let held = story.claim("a");
    story.succeed(held);
    let told = story.end();
    passes(&told);
    breaks(&told, SerialCommits, |h| {
        let redriven = claim_of(h, 1).clone();
        let later = claim_of(h, 2).clone();
        *claim_of(h, 1) = Claim { token: redriven.token, ..later.clone() };
        *claim_of(h, 2) = Claim { token: later.token, ..redriven.clone() };
        let (redriven, later) = (redriven.run, later.run);
        (audit_of(h, "claimed", 1).run, audit_of(h, "claimed", 2).run) = (Some(later), Some(redriven));
    });
}

#[test]
fn s10_a_run_is_redriven_once() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let held = story.claim("a");
    story.settle(held, Verdict::Failed, "failed");
    story.redrive(held.run);
    breaks(&story.end(), SerialCommits, |h| {
        let again = AuditEntry { id: 900, run: Some(901), ..audit_of(h, "redriven", 0).clone() };
        dump_of(h).audit.push(again);
    });
}

#[test]
fn s11_a_batch_is_whole_up_to_its_bounds() {
    let mut story = Story::new(Policy { max_events: 3, ..policy() });
    for id in ["e1", "e2", "e3", "e4"] {
        story.append("a", id);
    }
    let held = story.claim("a");
    story.succeed(held);
    let held = story.claim("a");
    story.succeed(held);
    let told = story.end();
    assert_eq!(passes(&told).sometimes.of(Thing::LeftOver), 1);
    // One left out in the middle.
    breaks(&told, WholeBatch, |h| {
        claim_of(h, 0).events.remove(1);
    });
    // One left behind though it fits.
    breaks(&told, WholeBatch, |h| {
        let cut = claim_of(h, 0).events.pop().unwrap();
        audit_of(h, "claimed", 0).upto_seq = cut.seq - 2;
    });
    // One too many.
    breaks(&told, WholeBatch, |h| {
        let more = claim_of(h, 1).events.remove(0);
        claim_of(h, 0).events.push(more.clone());
        audit_of(h, "claimed", 0).upto_seq = more.seq;
        claim_of(h, 1).events.push(more);
    });
    breaks(&told, WholeBatch, |h| claim_of(h, 0).events.clear());
}

#[test]
fn s11_bytes_bound_a_batch_too() {
    let mut story = Story::new(Policy { max_bytes: 20, ..policy() });
    for id in ["e1", "e2", "e3"] {
        story.append("a", id);
    }
    // The teller knows no byte bound, so say it by the count.
    let told = {
        let mut twin = Story::new(Policy { max_events: 2, ..policy() });
        for id in ["e1", "e2", "e3"] {
            twin.append("a", id);
        }
        let held = twin.claim("a");
        twin.succeed(held);
        let mut told = twin.end();
        told[0] = story.records[0].clone();
        told
    };
    breaks(&told, WholeBatch, |h| {
        let Some(Op::Policy(policy)) = &mut h[0].op else { panic!("the policy comes first") };
        policy.max_bytes = 30;
    });
}

#[test]
fn s12_a_batch_is_frozen() {
    let told = takeover();
    breaks(&told, FrozenBatch, |h| {
        claim_of(h, 1).events.pop();
    });
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let held = story.claim("a");
    story.append("a", "e2");
    story.retry(held);
    let held = story.claim_merging("a");
    story.succeed(held);
    let mut told = story.end();
    let Some(Op::Policy(policy)) = &mut told[0].op else { panic!("the policy comes first") };
    policy.retry_with = RetryWith::Newer;
    let summary = passes(&told);
    assert_eq!(summary.sometimes.of(Thing::FiredMerge), 1);
    breaks(&told, FrozenBatch, |h| {
        let Some(Op::Policy(policy)) = &mut h[0].op else { panic!("the policy comes first") };
        policy.retry_with = RetryWith::Same;
    });
}

#[test]
fn s12_the_last_attempt_takes_no_newer_events_in() {
    let mut story = Story::new(Policy { retry_with: RetryWith::Newer, max_attempts: 3, ..policy() });
    story.append("a", "e1");
    let held = story.claim("a");
    story.append("a", "e2");
    story.retry(held);
    let held = story.claim_merging("a");
    story.succeed(held);
    breaks(&story.end(), FrozenBatch, |h| claim_of(h, 1).max_attempts = 2);
}

#[test]
fn s12_a_handler_sees_the_batch_of_its_claim() {
    let mut story = Story::new(policy());
    let seq = story.append("a", "e1");
    let held = story.claim("a");
    story
        .records
        .push(Record::fact(1, Op::HandlerBegin { run: held.run, token: held.token, seqs: vec![seq] }));
    story.reclaim(held);
    let told = story.end();
    assert_eq!(passes(&told).sometimes.of(Thing::LeaseLostDuringHandler), 1);
    let begin = |h: &mut Vec<Record>, token: u64, seqs: Vec<u64>| {
        let op = Op::HandlerBegin { run: held.run, token, seqs };
        let place = h.len() - 1;
        h.insert(place, Record::fact(1, op));
    };
    breaks(&told, FrozenBatch, |h| {
        h.retain(|r| !matches!(r.op, Some(Op::HandlerBegin { .. })));
        begin(h, held.token, vec![]);
    });
    breaks(&told, ExplainedDuplicates, |h| begin(h, held.token, vec![seq]));
    breaks(&told, ExplainedDuplicates, |h| begin(h, 77, vec![seq]));
}

#[test]
fn s13_a_window_is_waited_for() {
    let window = Window::Quiet { quiet_ms: 100, max_wait_ms: 250 };
    let mut story = Story::new(Policy { window, ..policy() });
    story.append("a", "e1");
    story.now += 90;
    story.append("a", "e2");
    story.now += 100;
    story.fired_by = FiredBy::Quiet;
    let held = story.claim("a");
    story.succeed(held);
    let told = story.end();
    breaks(&told, NotEarly, |h| audit_of(h, "claimed", 0).at -= 1);
    breaks(&told, NotEarly, |h| claim_of(h, 0).fired_by = FiredBy::Flush);
    breaks(&told, NotEarly, |h| claim_of(h, 0).fired_by = FiredBy::Count);
    breaks(&told, NotEarly, |h| claim_of(h, 0).fired_by = FiredBy::Bytes);
    let mut story = Story::new(Policy { window: Window::Fixed { wait_ms: 200 }, ..policy() });
    story.append("a", "e1");
    story.now += 200;
    let held = story.claim("a");
    story.succeed(held);
    breaks(&story.end(), NotEarly, |h| audit_of(h, "claimed", 0).at -= 1);
}

#[test]
fn s13_a_quiet_window_is_capped() {
    let window = Window::Quiet { quiet_ms: 100, max_wait_ms: 150 };
    let mut story = Story::new(Policy { window, ..policy() });
    story.append("a", "e1");
    story.now += 90;
    story.append("a", "e2");
    story.now += 60;
    story.fired_by = FiredBy::Cap;
    let held = story.claim("a");
    story.succeed(held);
    let told = story.end();
    assert_eq!(passes(&told).sometimes.of(Thing::FiredCap), 1);
    breaks(&told, NotEarly, |h| audit_of(h, "claimed", 0).at -= 1);
}

#[test]
fn s13_flush_and_count_close_a_window() {
    let window = Window::Fixed { wait_ms: 1_000 };
    let mut story = Story::new(Policy { window, max_events: 2, ..policy() });
    story.append("a", "e1");
    let mut entry = story.entry("flushed", "a", 2, Some(State::Pending), Some(State::Pending));
    entry.upto_seq = 0;
    story.audit.push(entry);
    story.control(Action::Flush { lane: "a".into() });
    story.fired_by = FiredBy::Flush;
    let held = story.claim("a");
    story.succeed(held);
    story.fired_by = FiredBy::Count;
    story.append("a", "e2");
    story.append("a", "e3");
    let held = story.claim("a");
    story.succeed(held);
    let told = story.end();
    breaks(&told, NotEarly, |h| dump_of(h).audit.retain(|a| a.change.as_str() != "flushed"));
    breaks(&told, NotEarly, |h| {
        let Some(Op::Policy(policy)) = &mut h[0].op else { panic!("the policy comes first") };
        policy.max_events = 3;
    });
}

#[test]
fn s13_a_backoff_is_waited_for() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let held = story.claim("a");
    story.retry(held);
    let held = story.claim("a");
    story.retry(held);
    let told = story.end();
    breaks(&told, NotEarly, |h| audit_of(h, "claimed", 1).at = audit_of(h, "retried", 0).at + 999);
    breaks(&told, NotEarly, |h| {
        let at = audit_of(h, "retried", 1).at + 1_000;
        audit_of(h, "retried", 1).next_at = Some(at);
        for record in h.iter_mut() {
            if let Some(Answer::Settled { next_at, .. }) = &mut record.answer {
                *next_at = None;
            }
        }
    });
}

#[test]
fn s14_attempts_are_counted_and_bounded() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let held = story.claim("a");
    story.retry(held);
    let held = story.claim("a");
    story.retry(held);
    let held = story.claim("a");
    story.settle(held, Verdict::Retry, "exhausted");
    let told = story.end();
    breaks(&told, Attempts, |h| {
        claim_of(h, 1).attempt = 1;
        audit_of(h, "claimed", 1).attempt = 1;
    });
    breaks(&told, Attempts, |h| (0..3).for_each(|n| claim_of(h, n).max_attempts = 2));
    breaks(&told, Attempts, |h| (0..3).for_each(|n| claim_of(h, n).max_attempts = 4));
    breaks(&told, Attempts, |h| audit_of(h, "exhausted", 0).attempt = 2);
}

#[test]
fn s15_a_second_delivery_has_a_reason() {
    let mut story = Story::new(Policy { max_events: 1, ..policy() });
    story.append("a", "e1");
    story.append("a", "e2");
    let held = story.claim("a");
    story.succeed(held);
    let held = story.claim("a");
    story.succeed(held);
    breaks(&story.end(), ExplainedDuplicates, |h| claim_of(h, 1).events = claim_of(h, 0).events.clone());
}

#[test]
fn an_unheard_claim_is_found_in_the_trail() {
    let mut story = Story::new(policy());
    story.append("a", "e1");
    let held = story.claim_unheard("a");
    story.reclaim(held);
    let held = story.claim("a");
    story.succeed(held);
    assert_eq!(passes(&story.end()).sometimes.of(Thing::UnknownClaimHappened), 1);
}
