//! The last pass over sources: what the trail and the calls say of each, in the order of the store's clock.
//!
//! A claim and the end of an attempt are in the trail, with their place in the commit order. Tokens, reports and the
//! operator's hands are not: they are known by their answers alone, and within one millisecond in any order. So every
//! order that is possible is tried against a small model of one source (`model.rs`), which knows nothing of how a store
//! does it; a history is wrong when no order is left in which it is right.
//!
//! What nobody knows makes fewer promises checkable: a report that may have happened says nothing of the breaker from
//! then on, and a lost answer to an operator's hand leaves the source unchecked.

use crate::fast::Map;
use crate::fold::Fold;
use crate::history::{
    Action, Answer, AuditEntry, Dump, Governed, HoldAnswer, Name, Op, Phase, SourceAnswer, SourceAsk,
    SourceReport, Verdict,
};
use crate::sometimes::{Sometimes, Thing};
use crate::table::Change;
use crate::violation::{Checked, Fault, Invariant, fault};

mod model;

use model::{Ended, Model, What, Wrong};

/// More events of one millisecond than this, in no known order, are not tried in every one.
const LOOSE_MAX: usize = 3;

/// Something that happened to one source.
struct Moment {
    at: i64,
    /// Its place in the trail, for what is in it.
    id: Option<u64>,
    token: u64,
    what: What,
}

/// What happened to one source, and what cannot be said of it.
#[derive(Default)]
struct Course {
    moments: Vec<Moment>,
    /// An operator's hand may have been laid on it.
    unsure: bool,
    /// A report may have been made.
    breaker_unsure: bool,
    /// An answer may have been kept or forgotten.
    cache_unsure: bool,
}

pub(crate) fn check(fold: &mut Fold<'_, '_>, dump: &Dump) -> Checked {
    if !fold.index.governed {
        return Ok(());
    }
    one_source(fold)?;
    // A restore takes back what sources knew, and a trail without its beginning does not tell what they know.
    if fold.truncated || !fold.index.spans.is_empty() {
        return Ok(());
    }
    let Some(courses) = courses(fold, dump) else { return Ok(()) };
    let mut names: Vec<_> = courses.keys().copied().collect();
    names.sort_unstable();
    for name in names {
        follow(name, &courses[name], &mut fold.index.some)?;
    }
    Ok(())
}

/// Everything that was handed out together asks one source, and it is the one that its events name.
fn one_source(fold: &Fold<'_, '_>) -> Checked {
    let mut numbers: Map<u64, &Name> = Map::default();
    let mut names: Map<&str, u64> = Map::default();
    let mut told: Vec<_> = fold.index.claims.values().collect();
    told.sort_unstable_by_key(|told| told.claim.token);
    for told in told {
        let claim = told.claim;
        let complain = |what: String, expected: &str| {
            let fault = fault(Invariant::OneSource, what, expected);
            Err(fault.lane(&claim.lane).run(claim.run).token(claim.token))
        };
        let events = claim.events.iter().filter_map(|e| fold.index.event_id(told.lane, &e.id));
        let mut known = events.map(|e| fold.index.events[e as usize].source).filter(|s| !s.is_untold());
        let Some(first) = known.next() else { continue };
        if let Some(other) = known.find(|other| *other != first) {
            return complain(
                format!("a batch asks {first:?} and {other:?}"),
                "the batch ends before the other",
            );
        }
        match (first, claim.source) {
            (Governed::By(name), Some(number)) => {
                let (named, numbered) =
                    (*numbers.entry(number).or_insert(name), *names.entry(name.as_str()).or_insert(number));
                // One that was made since a backup was taken is made again after its restore.
                let other = numbered != number && fold.index.spans.is_empty();
                if named != name || other {
                    let what = format!("source {number} is {named} and {name}, or {name} is {numbered}");
                    return complain(what, "one source, one number");
                }
            }
            (Governed::By(name), None) => {
                return complain(
                    format!("nobody governs a batch of {name}"),
                    "the source that its events name",
                );
            }
            (_, Some(number)) => {
                return complain(format!("source {number} governs a batch that names none"), "nobody does");
            }
            (_, None) => {}
        }
    }
    Ok(())
}

/// By source; nothing when it is not known which source something has happened to.
fn courses<'a>(fold: &Fold<'_, 'a>, dump: &Dump) -> Option<Map<&'a str, Course>> {
    let mut courses: Map<&str, Course> = Map::default();
    for event in &fold.index.events {
        if let Governed::By(name) = event.source {
            courses.entry(name.as_str()).or_default();
        }
    }
    let reports = Reports::of(fold);
    for entry in &dump.audit {
        let change = Change::parse(&entry.change)?;
        if change != Change::Claimed && !change.ends_attempt() {
            continue;
        }
        let attempt = fold.attempts.get(&entry.token).filter(|a| Some(a.run) == entry.run);
        let attempt = match attempt {
            Some(attempt) => attempt,
            // Of a lane that was erased, and nobody knows which source it asked.
            None if change == Change::Claimed => return None,
            // Cancelled before it was claimed: no attempt ends.
            None => continue,
        };
        let Some(course) = course(fold, &mut courses, attempt.run, entry.token)? else { continue };
        let what = match change {
            Change::Claimed => What::Claimed { lease_until: entry.next_at? },
            _ => match reports.end(entry, change) {
                Some(end) => What::Ended(end),
                None => {
                    course.unsure = true;
                    continue;
                }
            },
        };
        course.moments.push(Moment { at: entry.at, id: Some(entry.id), token: entry.token, what });
    }
    calls(fold, &mut courses)?;
    Some(courses)
}

/// The source of a run; nothing at all when it is not known.
fn course<'c, 'a>(
    fold: &Fold<'_, 'a>,
    courses: &'c mut Map<&'a str, Course>,
    run: u64,
    token: u64,
) -> Option<Option<&'c mut Course>> {
    let batch = fold.runs.get(&run).and_then(|run| run.batch.first());
    let told = || {
        let told = fold.index.claims.get(&token)?;
        let event = fold.index.event_id(told.lane, &told.claim.events.first()?.id)?;
        Some(fold.index.events[event as usize].source)
    };
    match batch.map(|&seq| fold.source(seq)).or_else(told)? {
        Governed::Untold => None,
        Governed::Nobody => Some(None),
        Governed::By(name) => Some(courses.get_mut(name.as_str())),
    }
}

/// What settles have said, by token.
struct Reports {
    said: Map<u64, Vec<(Verdict, SourceReport)>>,
    /// A gate may have ended the attempt, and not the settle that says the same.
    gates: Map<u64, ()>,
}

impl Reports {
    fn of(fold: &Fold<'_, '_>) -> Self {
        let mut reports = Reports { said: Map::default(), gates: Map::default() };
        for call in &fold.index.calls {
            match call.op {
                Op::Settle { token, verdict, source, .. } => {
                    reports.said.entry(*token).or_default().push((*verdict, *source));
                }
                Op::Hold { token, .. } if call.answer != Some(&Answer::Hold(HoldAnswer::Held)) => {
                    reports.gates.insert(*token, ());
                }
                _ => {}
            }
        }
        reports
    }

    /// How an attempt ended; nothing when it is not known what was said.
    fn end(&self, entry: &AuditEntry, change: Change) -> Option<Ended> {
        let ended = |report| Some(Ended { change, verdict: entry.verdict, report });
        let Some(verdict) = entry.verdict else { return ended(None) };
        let said = self.said.get(&entry.token).map_or(&[][..], |all| all);
        let mut said = said.iter().filter(|(v, _)| *v == verdict).map(|(_, report)| *report);
        let Some(first) = said.next() else { return ended(None) };
        let sure = said.all(|other| other == first)
            && (first == SourceReport::Fine || !self.gates.contains_key(&entry.token));
        if sure { ended(Some(first)) } else { None }
    }
}

/// What is not in the trail.
fn calls<'a>(fold: &Fold<'_, 'a>, courses: &mut Map<&'a str, Course>) -> Option<()> {
    for call in fold.index.calls.iter().filter(|call| call.phase != Phase::Fail) {
        let answer = call.answer.filter(|_| call.phase == Phase::Ok);
        match call.op {
            Op::Source { run, token, ask } => {
                let Some(course) = course(fold, courses, *run, *token)? else { continue };
                let what = match (ask, answer) {
                    (SourceAsk::Take, Some(Answer::Source(SourceAnswer::Taken))) => What::Taken,
                    (SourceAsk::Report(report), Some(_)) => What::Reported(*report),
                    (SourceAsk::Report(_), None) => {
                        course.breaker_unsure = true;
                        continue;
                    }
                    (
                        SourceAsk::Recall { key },
                        Some(Answer::Source(SourceAnswer::Fetch { until: Some(until) })),
                    ) => What::Fetches { key: key.clone(), until: *until },
                    (SourceAsk::Keep { key }, Some(_)) => What::Fetched { key: key.clone() },
                    (SourceAsk::Forget { key }, Some(_)) => What::Forgot { key: key.clone() },
                    (SourceAsk::Keep { .. } | SourceAsk::Forget { .. }, None) => {
                        course.cache_unsure = true;
                        continue;
                    }
                    // A token that was perhaps taken is not counted.
                    _ => continue,
                };
                course.moments.push(Moment { at: call.at?, id: None, token: *token, what });
            }
            Op::Extend { run, token } => {
                if let Some(Answer::Extended { lease_until }) = answer
                    && let Some(course) = course(fold, courses, *run, *token)?
                {
                    let what = What::Extended { lease_until: *lease_until };
                    course.moments.push(Moment { at: call.at?, id: None, token: *token, what });
                }
            }
            Op::Control { action } => hand(call.at, action, answer, courses)?,
            _ => {}
        }
    }
    Some(())
}

/// An operator's hand, on one source or on all of a name.
fn hand(
    at: Option<i64>,
    action: &Action,
    answer: Option<&Answer>,
    courses: &mut Map<&str, Course>,
) -> Option<()> {
    let (what, name, of_all) = match action {
        Action::PutSource { name, rules } => (What::Put(*rules), name, true),
        Action::RemoveSource { name } => (What::Removed, name, true),
        Action::EnableSource { source } => (What::Enabled, source, false),
        Action::DisableSource { source } => (What::Disabled, source, false),
        Action::ResetSource { source } => (What::Reset, source, false),
        Action::ReleaseSource { source } => (What::Released, source, false),
        _ => return Some(()),
    };
    // A declaration is for the sources of every tenant.
    let meant = |known: &str| {
        let known = if of_all { known.rsplit(':').next().unwrap_or(known) } else { known };
        known == name.as_str()
    };
    for course in courses.iter_mut().filter(|(known, _)| meant(known)).map(|(_, course)| course) {
        match answer {
            Some(Answer::Controlled { changed: true }) => {
                course.moments.push(Moment { at: at?, id: None, token: 0, what: what.clone() });
            }
            Some(_) => {}
            None => course.unsure = true,
        }
    }
    Some(())
}

/// Follows one source through its history.
fn follow(name: &str, course: &Course, some: &mut Sometimes) -> Checked {
    if course.unsure {
        return Ok(());
    }
    let mut order: Vec<&Moment> = course.moments.iter().collect();
    // What is in the trail keeps its order; the rest of a millisecond is put in every place.
    order.sort_by_key(|m| (m.at, m.id.is_none(), m.id));
    let mut models = vec![Model::new(!course.breaker_unsure, !course.cache_unsure)];
    for together in order.chunk_by(|a, b| a.at == b.at) {
        let (fixed, loose): (Vec<&Moment>, Vec<&Moment>) = together.iter().partition(|m| m.id.is_some());
        if loose.len() > LOOSE_MAX {
            return Ok(());
        }
        let mut after = Vec::new();
        let mut wrong: Option<Broken<'_>> = None;
        for model in &models {
            interleave(model, &fixed, &loose, &mut after, &mut wrong);
        }
        if after.is_empty() {
            return Err(told(name, wrong));
        }
        models = after;
    }
    for thing in Thing::OF_SOURCES {
        for _ in 0..models[0].saw(thing) {
            some.saw(thing);
        }
    }
    Ok(())
}

/// Where an order went wrong.
struct Broken<'m> {
    /// How much of the millisecond was left.
    left: usize,
    moment: &'m Moment,
    why: Wrong,
}

/// Every order of what happened in one millisecond that keeps the order of the trail.
fn interleave<'m>(
    model: &Model,
    fixed: &[&'m Moment],
    loose: &[&'m Moment],
    after: &mut Vec<Model>,
    wrong: &mut Option<Broken<'m>>,
) {
    let mut next: Vec<(&'m Moment, &[&'m Moment], Vec<&'m Moment>)> = Vec::new();
    if let Some((first, rest)) = fixed.split_first() {
        next.push((first, rest, loose.to_vec()));
    }
    for place in 0..loose.len() {
        let mut rest = loose.to_vec();
        next.push((rest.remove(place), fixed, rest));
    }
    if next.is_empty() && !after.contains(model) {
        after.push(model.clone());
    }
    for (moment, fixed, loose) in next {
        let mut model = model.clone();
        match model.apply(moment.at, moment.token, &moment.what) {
            Ok(()) => interleave(&model, fixed, &loose, after, wrong),
            Err(why) => {
                // The order that went well for longest is the one to tell.
                let left = fixed.len() + loose.len();
                if wrong.as_ref().is_none_or(|known| left < known.left) {
                    *wrong = Some(Broken { left, moment, why });
                }
            }
        }
    }
}

fn told(name: &str, wrong: Option<Broken<'_>>) -> Box<Fault> {
    let Some(Broken { moment, why: Wrong { invariant, what, expected }, .. }) = wrong else {
        return fault(
            Invariant::WellFormed,
            format!("source {name} has no history"),
            "one order of its calls",
        );
    };
    let fault = fault(invariant, format!("source {name} at {}: {what}", moment.at), expected);
    if moment.token > 0 { fault.token(moment.token) } else { fault }
}
