//! Sources: rates, breakers, probes, silence, hands, kept answers.

use super::story::{Held, Story, audit_of, claim_of, policy};
use super::{breaks, passes};
use crate::Invariant::*;
use crate::history::*;
use crate::sometimes::Thing;

const FAULT: SourceReport = SourceReport::Fault { retry_after_ms: None };

/// A token a second, so many at once; two faults in a row open the breaker for ten seconds.
fn rate(burst: u64) -> SourceRules {
    SourceRules { per_minute: Some(60), ..breaker(burst) }
}

fn breaker(burst: u64) -> SourceRules {
    SourceRules { per_minute: None, burst, failures: 2, cooldown_ms: 10_000 }
}

/// A story whose events all ask `shop`, one event in each of these lanes.
fn story(rules: SourceRules, lanes: &[&'static str]) -> Story {
    let mut story = Story::new(Policy { backoff_base_ms: 0, ..policy() });
    hand(&mut story, Action::PutSource { name: "shop".into(), rules });
    story.now += 1;
    for lane in lanes {
        story.append(lane, "e");
    }
    story
}

fn hand(story: &mut Story, action: Action) {
    story.call(Op::Control { action }, Answer::Controlled { changed: true });
}

fn said(story: &mut Story, held: Held, verdict: Verdict, change: &str, report: SourceReport) {
    let (run, token) = (held.run, held.token);
    let (if_head, own_delay, follow_ups) = (None, true, vec![]);
    let op = Op::Settle { run, token, verdict, if_head, own_delay, follow_ups, source: report };
    let call = story.ask(op);
    let (state, next_at) = story.ends(held, Some(verdict), change);
    story.answer(call, Answer::Settled { state, next_at, repeated: false });
}

fn asks(story: &mut Story, held: Held, ask: SourceAsk, answer: SourceAnswer) {
    let (run, token) = (held.run, held.token);
    story.call(Op::Source { run, token, ask }, Answer::Source(answer));
}

/// The records, with the source that every event names and every claim has.
fn told(story: Story) -> Vec<Record> {
    let mut records = story.end();
    for record in &mut records {
        if let Some(Op::Append { events }) = &mut record.op {
            events.iter_mut().for_each(|event| event.source = Governed::By("shop".into()));
        }
        if let Some(Answer::Claimed { claims, .. }) = &mut record.answer {
            claims.iter_mut().for_each(|claim| claim.source = Some(1));
        }
    }
    records
}

/// The report of the n-th settle.
fn report_of(records: &mut [Record], n: usize) -> &mut SourceReport {
    let reports = records.iter_mut().filter_map(|r| match &mut r.op {
        Some(Op::Settle { source, .. }) => Some(source),
        _ => None,
    });
    reports.into_iter().nth(n).unwrap()
}

/// The moment of the answer to the n-th word to a source.
fn asked_at(records: &mut [Record], n: usize) -> &mut Millis {
    let answers = records.iter_mut().filter(|r| matches!(r.answer, Some(Answer::Source(_))));
    answers.into_iter().nth(n).unwrap().at.as_mut().unwrap()
}

/// Two faults in a row open the breaker.
fn opened(story: &mut Story, lanes: [&'static str; 2]) {
    for lane in lanes {
        let held = story.claim(lane);
        said(story, held, Verdict::Failed, "failed", FAULT);
    }
}

#[test]
fn g1_no_window_has_more_tokens_than_the_rate_allows() {
    let mut story = story(rate(2), &["a", "b", "c"]);
    story.claim("a");
    story.claim("b");
    story.now += 1_000;
    let held = story.claim("c");
    story.now += 1_000;
    asks(&mut story, held, SourceAsk::Take, SourceAnswer::Taken);
    let told = told(story);
    let summary = passes(&told);
    assert_eq!(summary.sometimes.of(Thing::ClaimGoverned), 3);
    assert_eq!(summary.sometimes.of(Thing::TokenTaken), 1);
    breaks(&told, SourceRate, |h| audit_of(h, "claimed", 2).at -= 1);
    breaks(&told, SourceRate, |h| *asked_at(h, 0) -= 1);
}

#[test]
fn g1_a_changed_rate_concerns_the_future() {
    let mut story = story(rate(1), &["a", "b", "c"]);
    story.claim("a");
    story.now += 500;
    let rules = SourceRules { per_minute: Some(600), ..rate(1) };
    hand(&mut story, Action::PutSource { name: "shop".into(), rules });
    story.now += 50;
    story.claim("b");
    hand(&mut story, Action::ResetSource { source: "shop".into() });
    story.claim("c");
    let told = told(story);
    breaks(&told, SourceRate, |h| audit_of(h, "claimed", 1).at -= 1);
    breaks(&told, SourceRate, |h| {
        let reset = h.iter_mut().filter_map(|r| match &mut r.answer {
            Some(Answer::Controlled { changed }) => Some(changed),
            _ => None,
        });
        *reset.last().unwrap() = false;
    });
}

#[test]
fn g1_an_unused_token_goes_back_and_never_on_top() {
    let mut story = story(rate(1), &["a", "b", "c"]);
    let unused = story.claim("a");
    said(&mut story, unused, Verdict::Succeeded, "succeeded", SourceReport::Unused);
    story.now += 1;
    story.claim("b");
    let back = told(story);
    assert_eq!(passes(&back).sometimes.of(Thing::TokenBack), 1);
    breaks(&back, SourceRate, |h| *report_of(h, 0) = SourceReport::Fine);

    let mut story = self::story(rate(1), &["a", "b", "c"]);
    let unused = story.claim("a");
    story.now += 1_000;
    story.claim("b");
    said(&mut story, unused, Verdict::Succeeded, "succeeded", SourceReport::Unused);
    story.now += 1_000;
    story.claim("c");
    breaks(&told(story), SourceRate, |h| audit_of(h, "claimed", 2).at -= 1);
}

#[test]
fn g2_an_open_breaker_lets_nobody_go() {
    let mut story = story(breaker(1), &["a", "b", "c"]);
    opened(&mut story, ["a", "b"]);
    story.now += 10_000;
    let probe = story.claim("c");
    asks(&mut story, probe, SourceAsk::Take, SourceAnswer::Taken);
    said(&mut story, probe, Verdict::Succeeded, "succeeded", SourceReport::Fine);
    let told = told(story);
    let seen = passes(&told).sometimes;
    let things = [Thing::BreakerOpened, Thing::Probed, Thing::BreakerClosed];
    assert_eq!(things.map(|thing| seen.of(thing)), [1; 3]);
    breaks(&told, SourceBreaker, |h| audit_of(h, "claimed", 2).at -= 1);
}

#[test]
fn g2_an_open_breaker_refuses_tokens_to_all_but_the_probe() {
    let mut story = story(breaker(1), &["a", "b", "c"]);
    let running = story.claim("c");
    asks(&mut story, running, SourceAsk::Take, SourceAnswer::Taken);
    story.now += 1;
    opened(&mut story, ["a", "b"]);
    breaks(&told(story), SourceBreaker, |h| *asked_at(h, 0) += 2);
}

#[test]
fn g3_one_probe_at_a_time() {
    let mut story = story(breaker(1), &["a", "b", "c", "d"]);
    opened(&mut story, ["a", "b"]);
    story.now += 10_000;
    let probe = story.claim("c");
    story.now += 5;
    said(&mut story, probe, Verdict::Succeeded, "succeeded", SourceReport::Fine);
    story.claim("d");
    breaks(&told(story), OneProbe, |h| audit_of(h, "claimed", 3).at -= 1);
}

#[test]
fn g3_the_right_to_probe_ends_with_the_lease() {
    let mut story = story(breaker(1), &["a", "b", "c", "d"]);
    opened(&mut story, ["a", "b"]);
    story.now += 10_000;
    let probe = story.claim("c");
    let until = story.now + 60_100;
    story.now += 100;
    let op = Op::Extend { run: probe.run, token: probe.token };
    story.call(op, Answer::Extended { lease_until: until });
    story.now = until;
    story.claim("d");
    breaks(&told(story), OneProbe, |h| audit_of(h, "claimed", 3).at -= 1);
}

#[test]
fn g4_a_held_source_holds_its_lanes() {
    let mut story = story(breaker(1), &["a", "b", "c"]);
    hand(&mut story, Action::DisableSource { source: "shop".into() });
    story.now += 5;
    hand(&mut story, Action::EnableSource { source: "shop".into() });
    story.claim("a");
    story.now += 5;
    hand(&mut story, Action::RemoveSource { name: "shop".into() });
    story.now += 5;
    hand(&mut story, Action::ReleaseSource { source: "shop".into() });
    story.claim("b");
    let told = told(story);
    breaks(&told, SourceHeld, |h| audit_of(h, "claimed", 0).at -= 1);
    breaks(&told, SourceHeld, |h| audit_of(h, "claimed", 1).at -= 1);
}

#[test]
fn g5_silence_is_kept() {
    let mut story = story(breaker(1), &["a", "b"]);
    let held = story.claim("a");
    let report = SourceReport::Fault { retry_after_ms: Some(5_000) };
    said(&mut story, held, Verdict::Failed, "failed", report);
    story.now += 5_000;
    story.claim("b");
    breaks(&told(story), SourceSilence, |h| audit_of(h, "claimed", 1).at -= 1);
}

#[test]
fn g6_a_batch_asks_one_source() {
    let mut story = Story::new(policy());
    hand(&mut story, Action::PutSource { name: "shop".into(), rules: breaker(1) });
    story.append("a", "e1");
    story.append("a", "e2");
    let held = story.claim("a");
    story.succeed(held);
    story.append("b", "e3");
    story.claim("b");
    let told = told(story);
    let other = |h: &mut Vec<Record>, n: usize, source: Governed| {
        let appends = h.iter_mut().filter_map(|r| match &mut r.op {
            Some(Op::Append { events }) => Some(events),
            _ => None,
        });
        appends.into_iter().nth(n).unwrap()[0].source = source;
    };
    breaks(&told, OneSource, |h| other(h, 1, Governed::By("bank".into())));
    breaks(&told, OneSource, |h| other(h, 2, Governed::By("bank".into())));
    breaks(&told, OneSource, |h| other(h, 2, Governed::Nobody));
    breaks(&told, OneSource, |h| claim_of(h, 1).source = Some(2));
    breaks(&told, OneSource, |h| claim_of(h, 1).source = None);
}

#[test]
fn g6_a_run_does_not_give_way_to_events_of_another_source() {
    let mut story = Story::new(Policy { during_run: DuringRun::Gate, ..policy() });
    hand(&mut story, Action::PutSource { name: "shop".into(), rules: breaker(1) });
    story.append("a", "e1");
    let held = story.claim("a");
    story.append("a", "e2");
    story.settle(held, Verdict::Superseded, "superseded");
    breaks(&told(story), GiveWay, |h| {
        let appends = h.iter_mut().filter_map(|r| match &mut r.op {
            Some(Op::Append { events }) => Some(events),
            _ => None,
        });
        appends.into_iter().nth(1).unwrap()[0].source = Governed::By("bank".into());
    });
}

#[test]
fn g7_the_fault_of_a_probe_costs_no_attempt() {
    let mut story = story(breaker(1), &["a", "b", "c"]);
    opened(&mut story, ["a", "b"]);
    story.now += 10_000;
    let probe = story.claim("c");
    said(&mut story, probe, Verdict::Retry, "probe_faulted", FAULT);
    story.now += 10_000;
    let probe = story.claim("c");
    said(&mut story, probe, Verdict::Retry, "retried", SourceReport::Fine);
    let told = told(story);
    breaks(&told, ProbeRefund, |h| *report_of(h, 2) = SourceReport::Fine);
    breaks(&told, ProbeRefund, |h| *report_of(h, 3) = FAULT);
    breaks(&told, Attempts, |h| audit_of(h, "probe_faulted", 0).attempt = 1);
}

#[test]
fn g7_only_the_starved_are_refunded_as_starved() {
    let mut story = story(rate(1), &["a"]);
    let held = story.claim("a");
    let wait = SourceAnswer::Wait { until: story.now + 1_000 };
    asks(&mut story, held, SourceAsk::Take, wait);
    said(&mut story, held, Verdict::Release, "starved", SourceReport::Starved);
    breaks(&told(story), ProbeRefund, |h| *report_of(h, 0) = SourceReport::Fine);
}

#[test]
fn g8_one_holder_fetches_at_a_time() {
    let mut story = story(breaker(1), &["a", "b"]);
    let (one, other) = (story.claim("a"), story.claim("b"));
    let recall = || SourceAsk::Recall { key: "k".into() };
    let until = story.now + 30_000;
    let fetch = SourceAnswer::Fetch { until: Some(until) };
    asks(&mut story, one, recall(), fetch);
    story.now += 1;
    asks(&mut story, other, recall(), SourceAnswer::Fetching { until });
    story.now += 1;
    asks(&mut story, one, SourceAsk::Keep { key: "k".into() }, SourceAnswer::Noted);
    story.now += 1;
    asks(&mut story, other, recall(), fetch);
    let told = told(story);
    assert_eq!(passes(&told).sometimes.of(Thing::AnswerFetched), 2);
    breaks(&told, OneFetch, |h| *asked_at(h, 3) -= 2);
    breaks(&told, OneFetch, |h| {
        let kept = h.iter_mut().find_map(|r| match &mut r.op {
            Some(Op::Source { ask: SourceAsk::Keep { key }, .. }) => Some(key),
            _ => None,
        });
        *kept.unwrap() = "another".into();
    });
}

/// A lost answer to an operator, or a report that may have been made: nobody can say, so nobody is blamed.
#[test]
fn what_nobody_knows_is_no_fault() {
    let mut story = story(rate(1), &["a", "b"]);
    story.claim("a");
    story.ask(Op::Control { action: Action::ResetSource { source: "shop".into() } });
    story.claim("b");
    passes(&told(story));
    let mut story = self::story(breaker(1), &["a", "b", "c"]);
    let held = story.claim("c");
    let (run, token) = (held.run, held.token);
    story.ask(Op::Source { run, token, ask: SourceAsk::Report(SourceReport::Fine) });
    opened(&mut story, ["a", "b"]);
    said(&mut story, held, Verdict::Succeeded, "succeeded", SourceReport::Fine);
    story.append("d", "e");
    story.claim("d");
    passes(&told(story));
}

/// Within one millisecond the order is not known: any one will do.
#[test]
fn what_happens_in_one_millisecond_may_have_happened_in_any_order() {
    let mut story = story(rate(1), &["a", "b"]);
    story.claim("a");
    hand(&mut story, Action::ResetSource { source: "shop".into() });
    story.claim("b");
    let mut records = told(story);
    passes(&records);
    let place =
        records.iter().position(|r| matches!(r.op, Some(Op::Control { action: Action::ResetSource { .. } })));
    let pair: Vec<Record> = records.drain(place.unwrap()..place.unwrap() + 2).collect();
    records.splice(2..2, pair);
    passes(&records);
}
