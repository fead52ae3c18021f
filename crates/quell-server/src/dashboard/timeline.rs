//! The life of a run as a drawing: when its events arrived, how long it waited and for what, and how long it ran.
//!
//! Everything is read off the run and its trail by one pure function; the template only draws. Times in which it waited and
//! times in which it ran are counted apart, because the remedies are different ones.

use std::time::Duration;

use quell::quell_core::clock::Timestamp;
use quell::quell_core::inspect::{LaneDetail, RunDetail, span};
use quell::quell_core::lifecycle::{Change, RunState};
use quell::quell_core::window::{FiredBy, OpenWindow, Window};

/// The width of a drawing in its own units.
pub(super) const WIDTH: u64 = 10_000;
/// Thinner than this nobody sees it, or hits it with the mouse.
const WIDTH_MIN: u64 = 60;
/// Arrivals that are drawn: more would be a solid bar.
const ARRIVALS_MAX: usize = 300;
/// Pieces that are drawn and listed.
const PIECES_MAX: usize = 60;

/// What a run did in a piece of its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It collected events.
    Window,
    /// It was due and nobody had taken it.
    Wait,
    /// A worker had it.
    Run,
    /// It waited for its next attempt.
    Backoff,
}

impl Kind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Kind::Window => "window",
            Kind::Wait => "wait",
            Kind::Run => "run",
            Kind::Backoff => "backoff",
        }
    }
}

#[derive(Debug, PartialEq)]
struct Piece {
    kind: Kind,
    from: Timestamp,
    to: Timestamp,
    told: String,
}

/// One piece as it is drawn and listed.
pub(super) struct Drawn {
    pub(super) kind: Kind,
    pub(super) x: u64,
    pub(super) width: u64,
    pub(super) took: String,
    pub(super) told: String,
}

pub(super) struct Timeline {
    /// Where events arrived.
    pub(super) arrivals: Vec<u64>,
    pub(super) pieces: Vec<Drawn>,
    /// Where the present is, if the drawing goes beyond it.
    pub(super) now: Option<u64>,
    pub(super) waited: String,
    pub(super) ran: String,
    /// Not everything is drawn.
    pub(super) cut: bool,
}

impl Timeline {
    /// `window` is that of its queue as it is now: runs do not keep theirs.
    pub(super) fn of_run(run: &RunDetail, window: Option<Window>, now: Timestamp) -> Timeline {
        let arrivals: Vec<Timestamp> = run.list.iter().map(|event| event.received_at).collect();
        let pieces = pieces(run, window, now);
        draw(&arrivals, pieces, now, run.row.completed_at.is_none())
    }

    /// What the lane collects.
    pub(super) fn of_lane(lane: &LaneDetail) -> Option<Timeline> {
        let marks = lane.row.window?;
        let told = format!("collects until quiet or full, due by {}", marks.due_by.as_str());
        let mut pieces = vec![Piece { kind: Kind::Window, from: marks.opened_at, to: marks.due_at, told }];
        if lane.now > marks.due_at {
            let told = "due, and nobody has taken it".to_owned();
            pieces.push(Piece { kind: Kind::Wait, from: marks.due_at, to: lane.now, told });
        }
        let arrivals: Vec<Timestamp> = lane.events.iter().map(|event| event.received_at).collect();
        Some(draw(&arrivals, pieces, lane.now, true))
    }
}

/// The life of a run in order.
fn pieces(run: &RunDetail, window: Option<Window>, now: Timestamp) -> Vec<Piece> {
    let row = &run.row;
    let mut pieces = Vec::new();
    let mut at = row.created_at;
    let mut push = |kind, from: Timestamp, to: Timestamp, told: String| {
        if to > from {
            pieces.push(Piece { kind, from, to, told });
        }
    };
    // A run that was made of another one begins with that.
    if let Some(made) = run.audit.iter().find(|record| record.change == Change::Redriven) {
        at = made.at;
    }
    let claims = run.audit.iter().find(|record| record.change == Change::Claimed);
    let first_claim = claims.map_or(row.completed_at.unwrap_or(now), |record| record.at);
    if let Some(due) = window_end(run, window) {
        let due = due.clamp(at, first_claim);
        let by = row.fired_by.map_or("still open", FiredBy::as_str);
        push(Kind::Window, at, due, format!("collected events, closed by: {by}"));
        at = due;
    }
    let mut held: Option<(Timestamp, String)> = None;
    let mut again: Option<Timestamp> = None;
    for record in &run.audit {
        let leaves = record.from == Some(RunState::Running) && record.to != Some(RunState::Running);
        if record.change == Change::Claimed {
            let due = again.take().map_or(at, |due| due.clamp(at, record.at));
            push(Kind::Backoff, at, due, "waited for the next attempt".to_owned());
            push(Kind::Wait, due, record.at, "was due and waited for a worker".to_owned());
            let worker = record.worker.as_deref().unwrap_or("a worker");
            held = Some((record.at, format!("attempt {} on {worker}", record.attempt)));
            at = record.at;
        } else if let Some((since, told)) = held.take_if(|_| leaves) {
            let end = record.change.as_str().replace('_', " ");
            push(Kind::Run, since, record.at, format!("{told}: {end}"));
            (at, again) = (record.at, record.next_at);
        }
    }
    match held {
        Some((since, told)) => push(Kind::Run, since, now, format!("{told}: running")),
        None if row.completed_at.is_none() => {
            let due = again.or(row.next_at).unwrap_or(at).max(at);
            let kind = if again.is_some() { Kind::Backoff } else { Kind::Window };
            push(kind, at, due, "waits until it is due".to_owned());
            push(Kind::Wait, due, now, "due, and nobody has taken it".to_owned());
        }
        None => {}
    }
    pieces
}

/// When its window closed, as far as that can be told.
fn window_end(run: &RunDetail, window: Option<Window>) -> Option<Timestamp> {
    let row = &run.row;
    match row.fired_by? {
        FiredBy::None | FiredBy::Retry | FiredBy::Merge | FiredBy::Redrive => None,
        FiredBy::Count | FiredBy::Bytes => Some(row.last_at),
        FiredBy::Flush => {
            run.audit.iter().find(|record| record.change == Change::Flushed).map(|record| record.at)
        }
        FiredBy::Fixed | FiredBy::Quiet | FiredBy::Cap => {
            let mut open = OpenWindow::opened(window?, row.created_at);
            open.latest_at = row.last_at;
            Some(open.due().0)
        }
    }
}

fn draw(arrivals: &[Timestamp], mut pieces: Vec<Piece>, now: Timestamp, lives: bool) -> Timeline {
    let cut = pieces.len() > PIECES_MAX || arrivals.len() > ARRIVALS_MAX;
    let total = |kinds: &[Kind]| -> Duration {
        let of_kind = pieces.iter().filter(|piece| kinds.contains(&piece.kind));
        of_kind.map(|piece| piece.to.min(now).since(piece.from)).sum()
    };
    let took =
        |duration: Duration| span(Timestamp::from_millis(0).after(duration), Timestamp::from_millis(0));
    let (waited, ran) = (took(total(&[Kind::Window, Kind::Wait, Kind::Backoff])), took(total(&[Kind::Run])));
    pieces.truncate(PIECES_MAX);
    let moments = || arrivals.iter().copied().chain(pieces.iter().flat_map(|piece| [piece.from, piece.to]));
    let from = moments().min().unwrap_or(now);
    let to = moments().max().unwrap_or(now);
    let place = |at: Timestamp| {
        let (part, whole) = (at.since(from).as_millis(), to.since(from).as_millis().max(1));
        u64::try_from(part * u128::from(WIDTH) / whole).unwrap_or(WIDTH).min(WIDTH)
    };
    let drawn = pieces.iter().map(|piece| {
        let x = place(piece.from).min(WIDTH - WIDTH_MIN);
        let width = place(piece.to).saturating_sub(x).max(WIDTH_MIN);
        let (kind, told) = (piece.kind, piece.told.clone());
        Drawn { kind, x, width, took: span(piece.to, piece.from), told }
    });
    Timeline {
        arrivals: arrivals.iter().take(ARRIVALS_MAX).map(|at| place(*at)).collect(),
        now: (lives && now < to).then(|| place(now)),
        pieces: drawn.collect(),
        waited,
        ran,
        cut,
    }
}

#[cfg(test)]
mod tests {
    use quell::quell_core::audit::AuditRecord;
    use quell::quell_core::inspect::RunRow;

    use super::super::samples::{audit_record, run_row};
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn record(seconds: i64, change: Change, from: RunState, to: RunState, next: Option<i64>) -> AuditRecord {
        AuditRecord { next_at: next.map(at), ..audit_record(at(seconds), change, from, to) }
    }

    fn run(state: RunState, ended: Option<i64>, next: Option<i64>, audit: Vec<AuditRecord>) -> RunDetail {
        let row = RunRow {
            fired_by: (!audit.is_empty()).then_some(FiredBy::Quiet),
            last_at: at(4),
            next_at: next.map(at),
            updated_at: at(4),
            completed_at: ended.map(at),
            ..run_row("q", state, at(0))
        };
        let usage = std::collections::BTreeMap::new();
        RunDetail {
            row,
            result: None,
            usage,
            list: Vec::new(),
            steps: Vec::new(),
            reports: Vec::new(),
            audit,
        }
    }

    fn story(run: &RunDetail, now: i64) -> Vec<(Kind, i64, i64)> {
        let window = Window::quiet_capped(Duration::from_secs(2), Duration::from_secs(20));
        let seconds = |at: Timestamp| at.as_millis() / 1_000;
        let told = pieces(run, Some(window), at(now));
        told.iter().map(|piece| (piece.kind, seconds(piece.from), seconds(piece.to))).collect()
    }

    #[test]
    fn waiting_and_running_are_told_apart() {
        let (pending, running, retryable) = (RunState::Pending, RunState::Running, RunState::Retryable);
        let trail = vec![
            record(9, Change::Claimed, pending, running, Some(69)),
            record(12, Change::Retried, running, retryable, Some(20)),
            record(21, Change::Claimed, retryable, running, Some(81)),
            record(22, Change::Held, running, running, None),
            record(25, Change::Succeeded, running, RunState::Succeeded, None),
        ];
        let done = run(RunState::Succeeded, Some(25), None, trail);
        let whole = [
            (Kind::Window, 0, 6),
            (Kind::Wait, 6, 9),
            (Kind::Run, 9, 12),
            (Kind::Backoff, 12, 20),
            (Kind::Wait, 20, 21),
            (Kind::Run, 21, 25),
        ];
        assert_eq!(story(&done, 1_000), whole);
        let drawn = Timeline::of_run(&done, Some(Window::quiet(Duration::from_secs(2))), at(1_000));
        assert_eq!((drawn.waited.as_str(), drawn.ran.as_str(), drawn.now), ("18.0s", "7.0s", None));
        assert!(drawn.pieces.iter().all(|piece| piece.x + piece.width <= WIDTH + WIDTH_MIN));
    }

    #[test]
    fn what_has_not_ended_goes_on_until_now() {
        let claimed = vec![record(9, Change::Claimed, RunState::Pending, RunState::Running, Some(69))];
        let running = run(RunState::Running, None, None, claimed);
        assert_eq!(story(&running, 30), [(Kind::Window, 0, 6), (Kind::Wait, 6, 9), (Kind::Run, 9, 30)]);
        let collecting = run(RunState::Pending, None, Some(6), Vec::new());
        assert_eq!(story(&collecting, 3), [(Kind::Window, 0, 6)]);
        assert_eq!(story(&collecting, 8), [(Kind::Window, 0, 6), (Kind::Wait, 6, 8)]);
        let drawn = Timeline::of_run(&collecting, None, at(3));
        assert_eq!((drawn.now, drawn.waited.as_str()), (Some(WIDTH / 2), "3.0s"));
    }

    #[test]
    fn a_long_life_is_cut() {
        let mut trail = Vec::new();
        for n in 0..200 {
            trail.push(record(10 + n * 2, Change::Claimed, RunState::Pending, RunState::Running, None));
            trail.push(record(11 + n * 2, Change::Reclaimed, RunState::Running, RunState::Pending, None));
        }
        let drawn = Timeline::of_run(&run(RunState::Pending, None, None, trail), None, at(500));
        assert!(drawn.cut && drawn.pieces.len() == PIECES_MAX);
    }
}
