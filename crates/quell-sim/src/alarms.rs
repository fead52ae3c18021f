//! Known false alarms of the checker, each with its reason and as narrow as it can be told.
//!
//! The checker is strict, and some of what this simulator does is at the edge of what a history can tell: a trail whose
//! beginning the retention removed, an event that was erased before anybody was told its number. Where a complaint is
//! explained by one of these, the schedule counts as tolerated and is told as such; the store's own equation and the
//! liveness of the schedule are judged all the same. An entry that is never used any more should be deleted.

use quell_check::history::{Action, Answer, Op, Phase, Record};
use quell_check::{Invariant, Violation};

/// Why a complaint is not one, if it is not.
pub(crate) fn explained(violation: &Violation, history: &[Record]) -> Option<&'static str> {
    use Invariant::{
        AuditIsState, Content, Equation, Erasure, ExplainedDuplicates, FrozenBatch, GiveWay, Idempotency,
        LegalMoves, NotEarly, Order, Pause, Revision, SerialCommits, StepMemo, WholeBatch,
    };
    let broken = violation.invariant;
    let of_batches =
        matches!(broken, SerialCommits | WholeBatch | AuditIsState | FrozenBatch | NotEarly | GiveWay);
    match broken {
        Order if !really_out_of_order(violation, history) => {
            return Some("alarm: appends that overlapped are in no order");
        }
        Pause if resumed_meanwhile(history) => return Some("alarm: a resume overlapped the pause"),
        Pause if claimed_before(violation, history) => {
            return Some("alarm: a claim from before the pause, repeated");
        }
        WholeBatch if refused_edit(history) => {
            return Some("alarm: an edit that was refused changes no size");
        }
        Erasure if restored(history) => return Some("alarm: a restore brings back what was erased"),
        _ => {}
    }
    if forgotten(history) && (of_batches || matches!(broken, LegalMoves | Revision | Order)) {
        return Some("alarm: the trail begins in the middle");
    }
    let by_id = matches!(broken, Content | Equation | Revision | ExplainedDuplicates);
    if erased(history) && (of_batches || by_id) {
        return Some("alarm: an erased event was never told");
    }
    if buried(history) && (of_batches || broken == Content) {
        return Some("alarm: a buried event has a number and never waited");
    }
    if redriven(history) && matches!(broken, FrozenBatch | AuditIsState | SerialCommits) {
        return Some("alarm: which events a redrive took is not told");
    }
    if restored(history) && (of_batches || matches!(broken, Content | Idempotency | StepMemo)) {
        return Some("alarm: a restore took away what was told");
    }
    None
}

fn restored(history: &[Record]) -> bool {
    history.iter().any(|r| matches!(r.op, Some(Op::Restore { .. })))
}

fn forgotten(history: &[Record]) -> bool {
    history.iter().any(|r| matches!(&r.op, Some(Op::Dump(dump)) if dump.audit_from.is_some()))
}

fn buried(history: &[Record]) -> bool {
    let has = |r: &Record| match &r.op {
        Some(Op::Dump(dump)) => dump.audit.iter().any(|a| a.change.as_str() == "conflict_buried"),
        _ => false,
    };
    history.iter().any(has)
}

fn asked(history: &[Record], wanted: impl Fn(&Action) -> bool) -> bool {
    history.iter().any(|r| matches!(&r.op, Some(Op::Control { action }) if wanted(action)))
}

fn erased(history: &[Record]) -> bool {
    asked(history, |a| matches!(a, Action::EraseEvent { .. } | Action::EraseLane { .. }))
}

fn redriven(history: &[Record]) -> bool {
    asked(history, |a| matches!(a, Action::RedriveHead { .. }))
}

/// Whether the claim was asked under an id that had been used before, so that it may have returned an older claim.
fn claimed_before(violation: &Violation, history: &[Record]) -> bool {
    let told = history.iter().position(|r| match &r.answer {
        Some(Answer::Claimed { claims, .. }) => claims.iter().any(|c| Some(c.token) == violation.token),
        _ => false,
    });
    let Some(told) = told.map(|place| &history[place]) else { return false };
    let ids = || {
        history.iter().filter(|r| r.phase == Phase::Invoke).filter_map(|r| match &r.op {
            Some(Op::Claim { claim_id: Some(id), .. }) => Some((r, id)),
            _ => None,
        })
    };
    let own = ids().find(|(r, _)| (r.process, r.call) == (told.process, told.call)).map(|(_, id)| id);
    own.is_some_and(|own| ids().filter(|(_, id)| *id == own).count() > 1)
}

fn refused_edit(history: &[Record]) -> bool {
    let edit = |r: &Record| matches!(&r.op, Some(Op::Control { action: Action::Edit { .. } }));
    let refused = |asked: &Record| {
        history.iter().any(|r| r.phase == Phase::Fail && (r.process, r.call) == (asked.process, asked.call))
    };
    history.iter().any(|r| edit(r) && refused(r))
}

/// Whether some pause of a queue and some resume of it were under way at the same time, or nobody knows.
fn resumed_meanwhile(history: &[Record]) -> bool {
    let mut pauses: Vec<(usize, usize)> = Vec::new();
    let mut resumes: Vec<(usize, usize)> = Vec::new();
    for (place, record) in history.iter().enumerate().filter(|(_, r)| r.phase == Phase::Invoke) {
        let Some(Op::Control { action }) = &record.op else { continue };
        let answer = history[place..].iter().position(|r| {
            r.call == record.call && r.process == record.process && matches!(r.phase, Phase::Ok | Phase::Fail)
        });
        let span = (place, answer.map_or(usize::MAX, |after| place + after));
        match action {
            Action::PauseQueue { .. } => pauses.push(span),
            Action::ResumeQueue { .. } => resumes.push(span),
            _ => {}
        }
    }
    restored(history) || pauses.iter().any(|p| resumes.iter().any(|r| r.1 > p.0 && r.0 < p.1))
}

/// Whether the event got a number that is not above one that was told before its append was asked, or before it in the
/// same answer.
fn really_out_of_order(violation: &Violation, history: &[Record]) -> bool {
    let (Some(lane), Some(seq)) = (&violation.lane, violation.seq) else { return true };
    // Every number of the lane with where it was asked for and where it was told.
    let mut told: Vec<(u64, usize, usize)> = Vec::new();
    for (done, record) in history.iter().enumerate() {
        let Some(Answer::Appended { receipts }) = &record.answer else { continue };
        let question = history[..done]
            .iter()
            .position(|r| r.phase == Phase::Invoke && r.call == record.call && r.process == record.process);
        let Some(place) = question else { continue };
        let Some(Op::Append { events }) = &history[place].op else { continue };
        let own = events.iter().zip(receipts).filter(|(e, r)| e.lane == *lane && !r.duplicate);
        told.extend(own.filter_map(|(_, r)| Some((r.seq?, place, done))));
    }
    let Some(at) = told.iter().position(|t| t.0 == seq) else { return true };
    let (_, asked, done) = told[at];
    let before =
        |(place, t): (usize, &(u64, usize, usize))| t.0 > seq && (t.2 < asked || (t.2 == done && place < at));
    told.iter().enumerate().any(before)
}
