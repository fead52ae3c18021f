//! The last pass: every answer against the trail, and the trail against the dump.

use crate::fast::Map;
use crate::fold::{Fold, Kind, Run};
use crate::history::{
    Action, Answer, Dump, DumpEvent, HoldAnswer, Millis, Name, Op, Phase, Place, QueueTotals, Refusal, State,
    Verdict,
};
use crate::index::{Call, Loc};
use crate::sometimes::Thing;
use crate::table::Change;
use crate::violation::{Checked, Fault, Invariant, fault};

/// How long the answer to a settle can be had again, in milliseconds.
const ANSWERS_KEPT: Millis = 3_600_000;

pub(crate) fn check(mut fold: Fold<'_, '_>, dump: &Dump) -> Checked {
    answers(&mut fold)?;
    crate::sources::check(&mut fold, dump)?;
    hands(&fold, dump)?;
    handlers(&mut fold)?;
    runs(&fold, dump)?;
    let recount = events(&fold, dump)?;
    equation(&mut fold, dump, &recount)
}

/// What callers were told about runs is in the trail.
fn answers(fold: &mut Fold<'_, '_>) -> Checked {
    for place in 0..fold.index.calls.len() {
        let call = &fold.index.calls[place];
        if call.done == usize::MAX {
            fold.index.some.saw(Thing::CrashInCall);
        }
        let call = &fold.index.calls[place];
        let gone = fold.truncated || fold.index.doubtful(call.asked, call.done);
        match (call.phase, call.op, call.answer) {
            (Phase::Ok, Op::Claim { .. }, Some(Answer::Claimed { claims, .. })) => {
                let off = claims.iter().find(|c| !fold.attempts.contains_key(&c.token));
                if let Some(claim) = off.filter(|_| !gone) {
                    let what = format!("run {} was handed out off the record", claim.run);
                    let fault = fault(Invariant::AuditIsState, what, "a record of the claim in the trail");
                    return Err(fault.lane(&claim.lane).run(claim.run).token(claim.token));
                }
            }
            (Phase::Ok, Op::Extend { run, token }, _)
            | (
                Phase::Ok,
                Op::StepBegin { run, token, .. }
                | Op::StepFinish { run, token, .. }
                | Op::Source { run, token, .. },
                _,
            ) if !gone && fold.attempts.get(token).is_none_or(|a| a.run != *run) => {
                return Err(never_held(*run, *token));
            }
            (Phase::Ok, Op::Hold { run, token, .. }, Some(Answer::Hold(answer))) if !gone => {
                hold(fold, *run, *token, *answer)?;
            }
            (Phase::Ok, Op::Settle { run, token, verdict, .. }, Some(Answer::Settled { state, .. }))
                if !gone =>
            {
                settled(fold, *run, *token, *verdict, *state)?;
            }
            (Phase::Fail, Op::Settle { run, token, verdict, .. }, _) if !gone => {
                let refusal = call.refusal.unwrap_or(Refusal::Other);
                refused(fold, call, *run, *token, *verdict, refusal)?;
            }
            (Phase::Info, Op::Settle { token, verdict, .. }, _) => {
                let end = fold.attempts.get(token).and_then(|a| a.end);
                let happened = end.is_some_and(|end| end.verdict == Some(*verdict));
                fold.index.some.saw(if happened {
                    Thing::UnknownSettleHappened
                } else {
                    Thing::UnknownSettleDidNot
                });
            }
            _ => {}
        }
    }
    Ok(())
}

fn never_held(run: u64, token: u64) -> Box<Fault> {
    let what = "a call was accepted from a token that never held this run";
    fault(Invariant::Fencing, what, "a stale call is refused").run(run).token(token)
}

fn hold(fold: &Fold<'_, '_>, run: u64, token: u64, answer: HoldAnswer) -> Checked {
    let Some(attempt) = fold.attempts.get(&token).filter(|a| a.run == run) else {
        return Err(never_held(run, token));
    };
    let verdict = attempt.end.and_then(|end| end.verdict);
    let recorded = match answer {
        HoldAnswer::Held => fold.runs[&run].held,
        HoldAnswer::Superseded => verdict == Some(Verdict::Superseded),
        HoldAnswer::Interrupted => verdict == Some(Verdict::Interrupted),
    };
    if !recorded {
        let what = format!("hold was answered {answer:?}, and the trail does not say so");
        let expected = "held, or an end of the attempt by that word";
        return Err(fault(Invariant::AuditIsState, what, expected).run(run).token(token));
    }
    Ok(())
}

fn settled(fold: &Fold<'_, '_>, run: u64, token: u64, verdict: Verdict, state: State) -> Checked {
    let Some(attempt) = fold.attempts.get(&token).filter(|a| a.run == run) else {
        return Err(never_held(run, token));
    };
    let complain =
        |invariant, what: String, expected: &str| Err(fault(invariant, what, expected).run(run).token(token));
    let Some(end) = attempt.end else {
        let what =
            format!("settle {verdict:?} was answered {state:?}, and the trail has no end of the attempt");
        return complain(Invariant::AuditIsState, what, "a record in the transaction of the settle");
    };
    let said = match end.verdict {
        None => {
            let what =
                format!("settle {verdict:?} was accepted after the attempt ended as {}", end.change.word());
            return complain(Invariant::Fencing, what, "a stale settle is refused");
        }
        Some(said) => said,
    };
    if said != verdict {
        let what = format!("settle {verdict:?} was accepted after the same token said {said:?}");
        return complain(Invariant::SameAnswer, what, "already settled");
    }
    if end.to != Some(state) {
        let what = format!("settle {verdict:?} was answered {state:?}, the trail says {:?}", end.to);
        return complain(Invariant::AuditIsState, what, "the state that the settle made");
    }
    let told = fold.index.settled.get(&token).and_then(|s| s.next_at);
    if told.is_some() && end.next_at.is_some() && told != end.next_at {
        let what = format!("the next attempt was told for {told:?}, the trail says {:?}", end.next_at);
        return complain(Invariant::AuditIsState, what, "the time that the settle set");
    }
    Ok(())
}

/// A refusal has a reason: the token lost its run, or said something else before.
fn refused(
    fold: &Fold<'_, '_>,
    call: &Call<'_>,
    run: u64,
    token: u64,
    verdict: Verdict,
    refusal: Refusal,
) -> Checked {
    let attempt = fold.attempts.get(&token).filter(|a| a.run == run);
    let end = attempt.and_then(|a| a.end);
    let said = end.and_then(|end| end.verdict);
    // Answers are kept for an hour; where the time of the refusal is not told, it is taken to be soon.
    let kept = end.is_some_and(|end| call.at.is_none_or(|at| at < end.at + ANSWERS_KEPT));
    let erased = attempt.is_some_and(|a| {
        let lane = fold.runs[&a.run].lane;
        !fold.index.lanes[lane as usize].erasures.is_empty()
    });
    let complain =
        |invariant, what: String, expected: &str| Err(fault(invariant, what, expected).run(run).token(token));
    match refusal {
        _ if erased || fold.index.retention => Ok(()),
        Refusal::Stale if attempt.is_some_and(|a| a.end.is_none()) => {
            let what =
                format!("settle {verdict:?} was refused as stale, and the token held its run to the end");
            complain(Invariant::Fencing, what, "the holder's settle is accepted")
        }
        Refusal::Stale if said == Some(verdict) && kept => {
            let what = format!("settle {verdict:?} was refused as stale, and it is what the token said");
            complain(Invariant::SameAnswer, what, "the same answer again, for an hour at least")
        }
        Refusal::AlreadySettled if said.is_none_or(|said| said == verdict) => {
            let what = format!("settle {verdict:?} was refused as settled, and the trail says {said:?}");
            complain(Invariant::SameAnswer, what, "already settled only after another verdict")
        }
        _ => Ok(()),
    }
}

/// What operators were told has happened is in the trail.
fn hands(fold: &Fold<'_, '_>, dump: &Dump) -> Checked {
    let mut asked: Map<(&str, u8), u64> = Map::default();
    let kind = |change: Change| change as u8;
    for call in &fold.index.calls {
        let (Op::Control { action }, Some(Answer::Controlled { changed: true })) = (call.op, call.answer)
        else {
            continue;
        };
        if fold.truncated || fold.index.doubtful(call.asked, call.done) {
            continue;
        }
        if let Some((lane, change)) = recorded_as(action) {
            *asked.entry((lane.as_str(), kind(change))).or_default() += 1;
        }
    }
    if asked.is_empty() {
        return Ok(());
    }
    let mut found: Map<(&str, u8), u64> = Map::default();
    for entry in &dump.audit {
        if let (Some(lane), Some(change)) = (&entry.lane, Change::parse(&entry.change)) {
            let change = match change {
                Change::CancelRequested => Change::Cancelled,
                Change::Unblocked => Change::Resumed,
                other => other,
            };
            *found.entry((lane.as_str(), kind(change))).or_default() += 1;
        }
    }
    for (&(lane, change), &times) in &asked {
        let there = found.get(&(lane, change)).copied().unwrap_or(0);
        let erased = fold.index.lanes.iter().any(|l| l.name.as_str() == lane && !l.erasures.is_empty());
        if there < times && !erased {
            let word = Change::ALL[change as usize].word();
            let what = format!(
                "{times} times an operator was told that something changed, {there} times the trail says {word}"
            );
            let lane = Name::from(lane);
            return Err(fault(Invariant::AuditIsState, what, "a record of each").lane(&lane));
        }
    }
    Ok(())
}

fn recorded_as(action: &Action) -> Option<(&Name, Change)> {
    Some(match action {
        Action::Flush { lane } => (lane, Change::Flushed),
        Action::PauseLane { lane } => (lane, Change::Paused),
        Action::ResumeLane { lane } | Action::Unblock { lane } => (lane, Change::Resumed),
        Action::Cancel { lane } => (lane, Change::Cancelled),
        Action::RedriveHead { lane, .. } | Action::RedriveNew { lane, .. } => (lane, Change::Redriven),
        Action::Purge { lane } => (lane, Change::Purged),
        Action::EraseLane { lane } | Action::EraseEvent { lane, .. } => (lane, Change::Erased),
        Action::Edit { lane, .. } => (lane, Change::Edited),
        Action::Delete { lane, .. } => (lane, Change::Deleted),
        Action::PauseQueue { .. }
        | Action::ResumeQueue { .. }
        | Action::PutSource { .. }
        | Action::RemoveSource { .. }
        | Action::EnableSource { .. }
        | Action::DisableSource { .. }
        | Action::ResetSource { .. }
        | Action::ReleaseSource { .. }
        | Action::Other { .. } => return None,
    })
}

/// A handler saw what its claim was given, and only under a token that was claimed.
fn handlers(fold: &mut Fold<'_, '_>) -> Checked {
    let mut tokens: Vec<u64> = fold.index.begun.keys().copied().collect();
    tokens.sort_unstable();
    for token in tokens {
        let begun = &fold.index.begun[&token];
        let (run, seqs) = (begun.run, begun.seqs);
        let told = fold.index.claims.get(&token);
        let asked = told.map_or(begun.at, |t| t.asked);
        if fold.truncated || fold.index.doubtful(asked, begun.at) {
            continue;
        }
        let Some(attempt) = fold.attempts.get(&token).filter(|a| a.run == run) else {
            let what = "a handler began under a token that was not claimed";
            let fault = fault(Invariant::ExplainedDuplicates, what, "a claim in the trail");
            return Err(fault.run(run).token(token));
        };
        let solid =
            |seq: &u64| fold.index.by_seq.get(seq).is_none_or(|&i| !fold.index.seqs[i as usize].vague);
        let batch = &fold.runs[&run].batch;
        let batch = batch[..attempt.events.min(batch.len())].iter().map(|&s| fold.index.seqs[s as usize].seq);
        if !fold.runs[&run].unknown && !batch.filter(solid).eq(seqs.iter().copied().filter(solid)) {
            let what =
                format!("the handler saw {seqs:?}, which is not the batch of attempt {}", attempt.number);
            let fault = fault(Invariant::FrozenBatch, what, "the events of the claim, no others");
            return Err(fault.run(run).token(token));
        }
        let lost = attempt.end.is_some_and(|e| matches!(e.change, Change::Reclaimed | Change::Expired));
        if lost && !begun.ended {
            fold.index.some.saw(Thing::LeaseLostDuringHandler);
        }
    }
    Ok(())
}

/// The fold of the trail is what the store says of its runs.
fn runs(fold: &Fold<'_, '_>, dump: &Dump) -> Checked {
    for row in &dump.runs {
        let place = |f: Box<Fault>| f.lane(&row.lane).run(row.run);
        let Some(run) = fold.runs.get(&row.run) else {
            if row.state != State::Pending && !fold.truncated {
                let what = format!("the run is {:?}, and the trail does not know it", row.state);
                return Err(place(fault(Invariant::AuditIsState, what, "a record of every change")));
            }
            continue;
        };
        let same = run.state == row.state
            && (run.unknown || (run.attempts, run.claims) == (row.attempts, row.claims))
            && (run.held || !row.held || run.unknown);
        if !same {
            let what = format!(
                "{:?}, attempts {}, claims {}, held {}",
                row.state, row.attempts, row.claims, row.held
            );
            let expected = format!(
                "{:?}, attempts {}, claims {}, held {}, as the trail tells",
                run.state, run.attempts, run.claims, run.held
            );
            return Err(place(fault(Invariant::AuditIsState, what, expected)));
        }
    }
    let mut numbers: Vec<_> = fold.runs.iter().collect();
    numbers.sort_unstable_by_key(|(number, _)| **number);
    for (number, run) in numbers {
        let lane = &fold.index.lanes[run.lane as usize];
        let forgotten = fold.index.retention || !lane.erasures.is_empty();
        if !forgotten && !fold.dumped.contains_key(number) {
            let what = format!("the trail leaves the run {:?}, and the store does not know it", run.state);
            let fault = fault(Invariant::AuditIsState, what, "every run of the trail");
            return Err(fault.lane(lane.name).run(*number));
        }
        if run.merges != run.merges_told && !run.unknown {
            let what = format!(
                "{} claims merged newer events in, the trail tells of {}",
                run.merges, run.merges_told
            );
            let fault = fault(Invariant::Revision, what, "a record of each run that was merged");
            return Err(fault.lane(lane.name).run(*number));
        }
    }
    Ok(())
}

/// Events by place, in the order of the enum.
type Recount = [u64; 6];

fn events(fold: &Fold<'_, '_>, dump: &Dump) -> Result<Map<u32, Recount>, Box<Fault>> {
    let mut recount: Map<u32, Recount> = Map::default();
    let mut of_run: Map<u64, u64> = Map::default();
    for event in &dump.events {
        let queue = fold.index.queue_ids.get(event.queue.as_str()).copied().unwrap_or(crate::index::NO_QUEUE);
        recount.entry(queue).or_default()[event.place as usize] += 1;
        if let Some(run) = event.run {
            *of_run.entry(run).or_default() += 1;
        }
        located(fold, event)?;
    }
    let one_by_one = fold.index.events.iter().any(|e| !e.erasures.is_empty());
    for row in &dump.runs {
        let events = of_run.get(&row.run).copied().unwrap_or(0);
        let moved = fold.runs.get(&row.run).is_some_and(|run| run.redriven || run.unknown);
        let lane = fold.index.lane_id(&row.lane).map(|lane| &fold.index.lanes[lane as usize]);
        let forgotten = fold.index.retention || one_by_one || lane.is_some_and(|l| !l.erasures.is_empty());
        if events > 0 && row.count != events && !moved && !forgotten {
            let what = format!("the run counts {} events, {events} say that they are in it", row.count);
            let fault = fault(Invariant::AuditIsState, what, "the same number");
            return Err(fault.lane(&row.lane).run(row.run));
        }
    }
    Ok(recount)
}

/// The event is where the fold has put it.
fn located(fold: &Fold<'_, '_>, event: &DumpEvent) -> Checked {
    let index = &fold.index;
    let Some(one) = event.seq.and_then(|seq| index.by_seq.get(&seq)).map(|&i| &index.seqs[i as usize]) else {
        return Ok(());
    };
    if one.vague {
        return Ok(());
    }
    let (place, run) = match one.place {
        Loc::Nowhere => return Ok(()),
        Loc::Open => (Place::Buffered, None),
        Loc::Run(number) => match fold.runs.get(&number) {
            Some(run) if !run.unknown => (place_of(run), Some(number)),
            _ => return Ok(()),
        },
    };
    if event.place != place || (run.is_some() && event.run.is_some() && event.run != run) {
        let what = format!("event {} is {:?} in run {:?}", event.id, event.place, event.run);
        let expected = format!("{place:?} in run {run:?}, as the trail tells");
        let fault = fault(Invariant::AuditIsState, what, expected).lane(&event.lane).event(&event.id);
        return Err(fault.seq(one.seq));
    }
    let sink = index.policies(one.lane).iter().any(|p| p.sink);
    if sink && place == Place::Succeeded && !index.is_applied(one.lane, one.seq) {
        let what = format!("event {} succeeded and was never applied at the sink", event.id);
        let fault = fault(Invariant::OnceAtSink, what, "each event is applied once").lane(&event.lane);
        return Err(fault.event(&event.id).seq(one.seq));
    }
    Ok(())
}

fn place_of(run: &Run<'_>) -> Place {
    match run.state {
        State::Succeeded => Place::Succeeded,
        State::Failed => Place::Dead,
        State::Cancelled => Place::Discarded,
        // A redriven run counts as buffered until somebody takes it up.
        State::Pending if run.kind == Kind::Redriven && run.claims == 0 => Place::Buffered,
        State::Pending | State::Running | State::Retryable => Place::InFlight,
    }
}

/// Nothing is lost or counted twice, by the store's own counters and by a recount of the dump.
fn equation(fold: &mut Fold<'_, '_>, dump: &Dump, recount: &Map<u32, Recount>) -> Checked {
    let dropped = dump.audit.iter().filter(|a| a.change.as_str() == "duplicate_dropped").count() as u64;
    for totals in &dump.queues {
        let complain = |what: String, expected: &str| {
            Err(fault(Invariant::Equation, format!("queue {}: {what}", totals.queue), expected))
        };
        let sum = totals.succeeded
            + totals.dead
            + totals.discarded
            + totals.delayed
            + totals.buffered
            + totals.in_flight;
        if totals.accepted != sum {
            let what = format!("{totals:?}, which sum up to {sum}");
            return complain(
                what,
                "accepted = succeeded + dead + discarded + delayed + buffered + in flight",
            );
        }
        let queue = fold.index.queue_ids.get(totals.queue.as_str()).copied();
        let counted = queue.and_then(|q| recount.get(&q)).copied().unwrap_or_default();
        let Some(queue) = queue else {
            if totals.accepted > 0 {
                return complain(format!("{totals:?}, and nothing was sent to it"), "no events");
            }
            continue;
        };
        let gone = missing(fold, queue);
        let may_vanish = fold.index.retention || gone.erasures || dropped > 0;
        if !agrees(totals, &counted, may_vanish) {
            let what = format!(
                "{totals:?}, and the dump holds (delayed, buffered, in flight, succeeded, dead, discarded) {counted:?}"
            );
            return complain(what, "the counters and the events agree");
        }
        let vanished = totals.accepted - counted.iter().sum::<u64>().min(totals.accepted);
        let (least, most) = (gone.certain, gone.certain + gone.possible + dropped);
        if !fold.index.retention && (vanished < least || vanished > most) && may_vanish {
            let what = format!("{vanished} events are counted and not dumped");
            return complain(what, &format!("between {least} and {most}: the erased ones"));
        }
    }
    for (queue, counted) in recount {
        let known = dump.queues.iter().any(|t| fold.index.queue_ids.get(t.queue.as_str()) == Some(queue));
        if !known {
            let what =
                format!("{} events are dumped of a queue that has no totals", counted.iter().sum::<u64>());
            return Err(fault(Invariant::Equation, what, "totals of every queue"));
        }
    }
    Ok(())
}

fn agrees(totals: &QueueTotals, counted: &Recount, may_vanish: bool) -> bool {
    let at = |place: Place| counted[place as usize];
    let waiting = totals.delayed == at(Place::Delayed)
        && totals.buffered == at(Place::Buffered)
        && totals.in_flight == at(Place::InFlight);
    let ended = [
        (totals.succeeded, at(Place::Succeeded)),
        (totals.dead, at(Place::Dead)),
        (totals.discarded, at(Place::Discarded)),
    ];
    waiting && ended.iter().all(|(total, count)| total == count || (may_vanish && total > count))
}

struct Missing {
    certain: u64,
    possible: u64,
    erasures: bool,
}

/// Events that were sent to a queue and are not in the dump.
fn missing(fold: &Fold<'_, '_>, queue: u32) -> Missing {
    let index = &fold.index;
    let mut missing = Missing { certain: 0, possible: 0, erasures: false };
    for (place, event) in index.events.iter().enumerate().filter(|(_, e)| e.queue == queue) {
        let place = u32::try_from(place).unwrap_or(u32::MAX);
        let erased = !event.erasures.is_empty() || !index.lanes[event.lane as usize].erasures.is_empty();
        missing.erasures |= erased;
        if erased {
            // An id that was erased and sent again was accepted twice.
            missing.possible += index.possible_sends(place).saturating_sub(1);
        }
        if event.dumped > 0 {
            continue;
        }
        missing.erasures |= crate::known::erasable(index, place, None);
        match event.fresh {
            Some(fresh) if !index.doubtful(fresh.asked, fresh.done) => missing.certain += 1,
            _ if index.possible_hashes(place).next().is_some() => missing.possible += 1,
            _ => {}
        }
    }
    missing
}
