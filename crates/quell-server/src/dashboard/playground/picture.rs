//! Arrivals and batches on one axis of time, as numbers for an SVG: what is drawn is never a text of anybody's.

use std::time::Duration;

use super::rehearsal::Rehearsed;

/// The size of the picture, in units of its own.
pub(super) const WIDTH: u64 = 1_000;

/// A stretch of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bar {
    pub(super) x: u64,
    pub(super) width: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Picture {
    /// The whole axis, in milliseconds: the script draws by it.
    pub(super) span_ms: u64,
    pub(super) ticks: Vec<u64>,
    /// From the first event of each batch until it fired, and from then until its handler was done.
    pub(super) waits: Vec<Bar>,
    pub(super) runs: Vec<Bar>,
    /// What stands below the axis.
    pub(super) marks: [String; 3],
}

impl Picture {
    /// The axis shows all of it, and at least `span`.
    pub(super) fn of(arrivals: &[Duration], batches: &[Rehearsed], span: Duration) -> Picture {
        let last = arrivals.iter().copied().chain(batches.iter().map(|batch| batch.done)).max();
        let span = last.unwrap_or_default().max(span).max(Duration::from_millis(100));
        let span_ms = millis(span);
        let x = |at: Duration| millis(at).saturating_mul(WIDTH) / span_ms;
        let bar = |from: Duration, to: Duration| Bar { x: x(from), width: (x(to) - x(from)).max(3) };
        Picture {
            span_ms,
            ticks: arrivals.iter().map(|at| x(*at)).collect(),
            waits: batches.iter().map(|batch| bar(batch.first, batch.fired)).collect(),
            runs: batches.iter().map(|batch| bar(batch.fired, batch.done)).collect(),
            marks: ["0s".to_owned(), seconds(span / 2), seconds(span)],
        }
    }

    pub(super) fn width(&self) -> u64 {
        WIDTH
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// `0.4s`, `12.5s`, `3m20s`: finer than a second only below a minute.
pub(super) fn seconds(duration: Duration) -> String {
    let ms = duration.as_millis();
    match (ms, ms % 1_000) {
        (60_000.., _) => crate::dashboard::view::distance(duration.as_secs()),
        (_, 0) => format!("{}s", ms / 1_000),
        (_, rest) => format!("{}.{}s", ms / 1_000, format!("{rest:03}").trim_end_matches('0')),
    }
}

#[cfg(test)]
mod tests {
    use quell::quell_core::window::FiredBy;

    use super::*;

    fn batch(first: u64, fired: u64, done: u64) -> Rehearsed {
        let ms = Duration::from_millis;
        Rehearsed {
            events: 1,
            first: ms(first),
            last: ms(first),
            fired: ms(fired),
            done: ms(done),
            by: FiredBy::Quiet,
        }
    }

    #[test]
    fn everything_is_on_the_axis() {
        let arrivals = [Duration::ZERO, Duration::from_secs(5)];
        let picture = Picture::of(&arrivals, &[batch(0, 10_000, 40_000)], Duration::from_secs(20));
        assert_eq!((picture.span_ms, picture.ticks), (40_000, vec![0, 125]));
        assert_eq!(picture.waits, [Bar { x: 0, width: 250 }]);
        assert_eq!(picture.runs, [Bar { x: 250, width: 750 }]);
        assert_eq!(picture.marks, ["0s", "20s", "40s"]);
        let empty = Picture::of(&[], &[], Duration::ZERO);
        assert_eq!((empty.span_ms, empty.ticks.len()), (100, 0));
    }

    #[test]
    fn moments_are_short() {
        let all = [0, 400, 1_250, 12_000, 200_000].map(|ms| seconds(Duration::from_millis(ms)));
        assert_eq!(all, ["0s", "0.4s", "1.25s", "12s", "3m20s"]);
    }
}
