//! What a simulation has shown: a line for each thing that happened, with its reason, and the sums at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quell::config::{DurationText, Settings};
use quell::quell_core::batch::{Batch, RunId};
use quell::quell_core::event::{EventId, LaneKey};
use quell::quell_core::lane::Met;
use quell::quell_core::lifecycle::{Change, RunState};
use quell::quell_core::window::{FiredBy, WindowPolicy};
use quell::testing::{BatchSeen, EndSeen, Happened, What, WorkerNews};
use serde::Serialize;

use crate::times;

/// Of more events than this in a row for one key, the first and the last are shown.
const SHOWN_IN_A_ROW: usize = 4;

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Line {
    /// Milliseconds since the beginning.
    pub(super) at_ms: u64,
    pub(super) lane: Option<LaneKey>,
    /// In one word: `appended`, `claimed`, `succeeded`, `retried`.
    pub(super) what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) worker: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) events: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fired_by: Option<FiredBy>,
    /// When it goes on, in milliseconds since the beginning: due, tried again, entered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_ms: Option<u64>,
    /// In words.
    pub(super) why: String,
}

impl Line {
    fn new(one: &Happened, what: &'static str, why: impl Into<String>) -> Line {
        Line {
            at_ms: millis(one.at),
            lane: one.lane.clone(),
            what,
            run: None,
            worker: None,
            events: None,
            attempt: None,
            fired_by: None,
            next_ms: None,
            why: why.into(),
        }
    }

    /// What it is about, for the table.
    pub(super) fn about(&self) -> String {
        match (&self.lane, &self.worker) {
            (Some(lane), _) => times::one_line(&lane.to_string(), 40),
            (None, Some(worker)) => worker.clone(),
            (None, None) => "-".to_owned(),
        }
    }
}

/// Every line. What the configuration does at the start of a worker is left out.
pub(super) fn lines(happened: &[Happened], settings: &Settings) -> Vec<Line> {
    let mut told =
        Teller { settings, due: BTreeMap::new(), attempts: BTreeMap::new(), sent: BTreeSet::new() };
    happened.iter().filter_map(|one| told.line(one)).collect()
}

/// Turns what happened into words.
struct Teller<'a> {
    settings: &'a Settings,
    /// When a lane is due as far as it was told: its window closes, or its backoff ends.
    due: BTreeMap<LaneKey, Duration>,
    /// The attempts under way, by token.
    attempts: BTreeMap<u64, (u32, u32)>,
    /// Events that somebody sent, also those that are kept aside.
    sent: BTreeSet<(LaneKey, EventId)>,
}

impl Teller<'_> {
    fn line(&mut self, one: &Happened) -> Option<Line> {
        Some(match &one.what {
            What::Appended { event, run, met, due, duplicate } => {
                self.sent.extend(one.lane.clone().map(|lane| (lane, event.clone())));
                let why = self.appended(one, *met, *due, *duplicate);
                let what = if *duplicate { "duplicate" } else { "appended" };
                Line { run: *run, next_ms: due.map(millis), ..Line::new(one, what, why) }
            }
            What::Refused { error, .. } => Line::new(one, "refused", error.clone()),
            What::Entered { event } => {
                let delayed = one.lane.clone().is_some_and(|lane| self.sent.contains(&(lane, event.clone())));
                let why = match event.as_str() {
                    _ if delayed => "its delay is over",
                    id if id.starts_with("schedule/") => "by its schedule",
                    id if id.ends_with("/notify") => "the notice of how a run ended",
                    _ => "follow-up work of a run",
                };
                Line::new(one, "entered", why)
            }
            What::Claimed { batch, worker } => {
                let due = one.lane.as_ref().and_then(|lane| self.due.remove(lane));
                let late = due.map(|due| one.at.saturating_sub(due)).filter(|late| !late.is_zero());
                let late = late.map(|late| format!(", {} after it was due", show(late))).unwrap_or_default();
                self.attempts.insert(batch.token, (batch.attempt, batch.max_attempts));
                Line {
                    run: Some(batch.run_id),
                    worker: Some(worker.clone()),
                    events: Some(batch.events.len() as u64),
                    attempt: Some(batch.attempt),
                    fired_by: Some(batch.fired_by),
                    ..Line::new(one, "claimed", format!("{}{late}", self.claimed(batch, worker)))
                }
            }
            What::Ended(end) => {
                let attempt = self.attempts.remove(&end.token);
                if let (Some(lane), Some(next)) = (&one.lane, end.next) {
                    self.due.insert(lane.clone(), next);
                }
                Line {
                    run: Some(end.run),
                    attempt: attempt.map(|(attempt, _)| attempt),
                    next_ms: end.next.map(millis),
                    ..Line::new(one, end.change.as_str(), ended(end, attempt))
                }
            }
            What::LeaseLost { run, state, worker } => {
                let who = worker.as_deref().unwrap_or("its worker");
                let then = match state {
                    RunState::Failed => "that was the last attempt: it is in the dead letter",
                    _ => "the run is taken back and handed out again",
                };
                let why = format!("{who} was not heard of for a whole lease; {then}");
                Line { run: Some(*run), worker: worker.clone(), ..Line::new(one, "lease lost", why) }
            }
            What::Hand { actor, .. } if actor == "configuration" => return None,
            What::Hand { action, of, changed, events, .. } => {
                let of = of.as_deref().map(|of| format!("{of}: ")).unwrap_or_default();
                let then = match (changed, events) {
                    (false, _) => "nothing to change".to_owned(),
                    (true, 0) => "done by hand".to_owned(),
                    (true, events) => format!("done by hand, {}", times::count(*events, "event")),
                };
                Line::new(one, action, format!("{of}{then}"))
            }
            What::Worker { worker, news } => {
                let (what, why) = match news {
                    WorkerNews::Started => ("started", "it takes lanes as they become due"),
                    WorkerNews::Crashed => ("crashed", "without a word: its leases run out"),
                    WorkerNews::Stopped => ("stopped", "it finished what it did, or handed it back"),
                };
                Line { worker: Some(worker.clone()), ..Line::new(one, what, why) }
            }
        })
    }

    fn appended(
        &mut self,
        one: &Happened,
        met: Option<Met>,
        due: Option<Duration>,
        duplicate: bool,
    ) -> String {
        if duplicate {
            return "its id is known: nothing was stored".to_owned();
        }
        let (Some(lane), Some(met)) = (&one.lane, met) else {
            return match due {
                Some(due) => format!("kept aside until {}", show(due)),
                None => "stored".to_owned(),
            };
        };
        if met == Met::Running {
            return "a run is under way: kept for the next".to_owned();
        }
        let Some(due) = due else { return "stored".to_owned() };
        let before = self.due.insert(lane.clone(), due);
        match before {
            _ if due <= one.at => "due now".to_owned(),
            None if met == Met::Idle => format!("opens a window, due at {}", show(due)),
            // Events that came during a run have opened it.
            None => format!("joins the window, due at {}", show(due)),
            Some(before) if before < due => format!("window restarted, due at {}", show(due)),
            Some(before) if before > due => format!("due sooner, at {}", show(due)),
            Some(_) => format!("joins the window, due at {} all the same", show(due)),
        }
    }

    fn claimed(&self, batch: &Batch, worker: &str) -> String {
        let window = self
            .settings
            .queue(&batch.lane.queue)
            .map(|queue| queue.append_policy(&batch.lane.tenant).window);
        let (quiet, cap) = match window.map(|window| window.policy) {
            Some(WindowPolicy::Quiet { quiet, max_wait }) => (Some(quiet), Some(max_wait)),
            _ => (None, None),
        };
        let length = |length: Option<Duration>| length.map(DurationText::show).unwrap_or_default();
        let why = match batch.fired_by {
            FiredBy::None => "no window".to_owned(),
            FiredBy::Fixed => "its fixed wait is over".to_owned(),
            FiredBy::Quiet => format!("quiet for {}", length(quiet)),
            FiredBy::Cap => format!("never quiet, and the cap of {} is reached", length(cap)),
            FiredBy::Count => "as many events as a batch may have".to_owned(),
            FiredBy::Bytes => "as many bytes as a batch may have".to_owned(),
            FiredBy::Flush => "flushed by hand".to_owned(),
            FiredBy::Retry => "tried again".to_owned(),
            FiredBy::Merge => "goes on together with newer events".to_owned(),
            FiredBy::Redrive => "put back to work by hand".to_owned(),
        };
        let events = times::count(batch.events.len() as u64, "event");
        format!(
            "{}: {why}; {events}, attempt {} of {}, by {worker}",
            batch.fired_by.as_str(),
            batch.attempt,
            batch.max_attempts
        )
    }
}

fn ended(end: &EndSeen, attempt: Option<(u32, u32)>) -> String {
    let said =
        end.error.as_deref().map(|error| format!("\"{}\"; ", times::one_line(error, 60))).unwrap_or_default();
    let of = attempt.map(|(attempt, of)| format!("attempt {attempt} of {of}")).unwrap_or_default();
    let then = match (end.change, end.state, end.next) {
        (Change::Succeeded, ..) => "done".to_owned(),
        (Change::Exhausted, ..) => "no attempt is left: it is in the dead letter".to_owned(),
        (_, RunState::Failed, _) => "it is in the dead letter".to_owned(),
        (Change::Split, ..) => "halved: each half is tried by itself".to_owned(),
        (_, RunState::Cancelled, _) => "its events are discarded".to_owned(),
        (_, _, Some(next)) => format!("again at {}", show(next)),
        _ => "goes on".to_owned(),
    };
    match of.as_str() {
        "" => format!("{said}{then}"),
        of => format!("{said}{of}; {then}"),
    }
}

/// What the table shows: of long rows of events for one key only the ends, as a number that is left out before a line.
pub(super) fn shown(lines: &[Line]) -> Vec<(usize, &Line)> {
    let mut shown = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let line = &lines[at];
        let alike =
            |other: &&Line| other.what == "appended" && line.what == "appended" && other.lane == line.lane;
        let row = lines[at..].iter().take_while(alike).count().max(1);
        if row > SHOWN_IN_A_ROW {
            shown.extend([(0, line), (row - 2, &lines[at + row - 1])]);
        } else {
            shown.extend(lines[at..at + row].iter().map(|line| (0, line)));
        }
        at += row;
    }
    shown
}

/// The sums, of one queue or of all.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Summary {
    pub(super) events: u64,
    pub(super) duplicates: u64,
    pub(super) refused: u64,
    /// Attempts that handlers got.
    pub(super) batches: u64,
    pub(super) succeeded: u64,
    pub(super) retries: u64,
    pub(super) dead: u64,
    pub(super) leases_lost: u64,
    /// From the first event of a batch to its first attempt.
    pub(super) wait_p50_ms: Option<u64>,
    pub(super) wait_max_ms: Option<u64>,
}

/// The sums per queue.
pub(super) fn summaries(happened: &[Happened], batches: &[BatchSeen]) -> BTreeMap<String, Summary> {
    let mut all: BTreeMap<String, Summary> = BTreeMap::new();
    let mut sent = BTreeSet::new();
    for one in happened {
        let Some(lane) = &one.lane else { continue };
        let sum = all.entry(lane.queue.to_string()).or_default();
        match &one.what {
            What::Appended { duplicate: true, .. } => sum.duplicates += 1,
            // One that is kept aside enters later, and is counted once.
            What::Appended { event, .. } | What::Entered { event } => {
                sum.events += u64::from(sent.insert((lane, event)));
            }
            What::Refused { .. } => sum.refused += 1,
            What::LeaseLost { state, .. } => {
                sum.leases_lost += 1;
                sum.dead += u64::from(*state == RunState::Failed);
            }
            What::Ended(end) => {
                sum.succeeded += u64::from(end.change == Change::Succeeded);
                sum.retries += u64::from(end.change == Change::Retried);
                sum.dead += u64::from(end.state == RunState::Failed);
            }
            _ => {}
        }
    }
    let mut waits: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for seen in batches {
        let queue = seen.batch.lane.queue.to_string();
        all.entry(queue.clone()).or_default().batches += 1;
        if seen.batch.attempt == 1 && seen.batch.fired_by != FiredBy::Redrive {
            waits.entry(queue).or_default().push(millis(seen.waited()));
        }
    }
    for (queue, mut waits) in waits {
        waits.sort_unstable();
        let sum = all.entry(queue).or_default();
        // Of an even number the lower of the two in the middle: a wait that really happened.
        sum.wait_p50_ms = waits.get((waits.len() - 1) / 2).copied();
        sum.wait_max_ms = waits.last().copied();
    }
    all
}

/// A moment or a length: `200ms`, `6.25s`, `1m05s`, to the millisecond where it matters.
pub(super) fn show(length: Duration) -> String {
    let ms = length.as_millis();
    if ms < 1_000 {
        return format!("{ms}ms");
    }
    let (seconds, rest) = (ms / 1_000, ms % 1_000);
    let fraction =
        if rest == 0 { String::new() } else { format!(".{rest:03}").trim_end_matches('0').to_owned() };
    match seconds {
        0..60 => format!("{seconds}{fraction}s"),
        60..3_600 => format!("{}m{:02}{fraction}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m{:02}{fraction}s", seconds / 3_600, seconds % 3_600 / 60, seconds % 60),
    }
}

pub(super) fn show_ms(ms: u64) -> String {
    show(Duration::from_millis(ms))
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_short_and_exact() {
        let shown: Vec<String> = [0, 250, 1_000, 6_250, 65_000, 65_001, 3_725_500].map(show_ms).into();
        assert_eq!(shown, ["0ms", "250ms", "1s", "6.25s", "1m05s", "1m05.001s", "1h02m05.5s"]);
    }
}
