//! How far the window of a lane is, as a small drawing: the time left until it fires, and below it the way to the cap.
//!
//! The upper bar is full when an event arrives and empty when the lane fires, so it visibly begins anew with each event of a
//! quiet window. The lower one begins with the first event and only ever grows; on it stand the mark of the quiet period, which
//! moves, and that of the cap, which does not. The script goes on drawing by the moments that are in the element; without it
//! the drawing is of the moment at which the page was made.

use std::fmt;

use quell::quell_core::clock::Timestamp;
use quell::quell_core::inspect::{LaneRow, Reason, WindowMarks};
use quell::quell_core::window::FiredBy;

use super::view::distance;

pub(super) struct Countdown {
    marks: WindowMarks,
    now: Timestamp,
}

/// In hundredths of the whole width.
#[derive(Debug, PartialEq)]
struct Shares {
    left: u64,
    gone: u64,
    quiet: u64,
}

impl Countdown {
    /// For a lane whose window is open and which nothing else keeps.
    pub(super) fn of(row: &LaneRow, now: Timestamp) -> Option<Self> {
        let marks = row.window.filter(|marks| marks.due_at > marks.opened_at)?;
        (row.reason == Reason::Window).then_some(Countdown { marks, now })
    }

    /// When the upper bar was full: with the latest event, or with the first if others change nothing.
    fn full_at(&self) -> Timestamp {
        match self.marks.due_by {
            FiredBy::Fixed => self.marks.opened_at,
            _ => self.marks.latest_at,
        }
    }

    fn shares(&self) -> Shares {
        let WindowMarks { opened_at, due_at, capped_at, .. } = self.marks;
        let share = |from: Timestamp, to: Timestamp, whole_from: Timestamp, whole_to: Timestamp| {
            let (part, whole) = (to.since(from).as_millis(), whole_to.since(whole_from).as_millis());
            let hundredths = (part * 10_000).checked_div(whole).unwrap_or(0).min(10_000);
            u64::try_from(hundredths).unwrap_or(0)
        };
        Shares {
            left: share(self.now, due_at, self.full_at(), due_at),
            gone: share(opened_at, self.now, opened_at, capped_at),
            quiet: share(opened_at, due_at, opened_at, capped_at),
        }
    }
}

/// Nothing in it comes from users.
impl fmt::Display for Countdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shares { left, gone, quiet } = self.shares();
        let WindowMarks { opened_at, due_at, capped_at, .. } = self.marks;
        let told = |at: Timestamp| distance(at.since(self.now).as_secs());
        write!(
            f,
            "<svg class=\"countdown\" viewBox=\"0 0 10000 12\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"fires in {due}, at the latest in {cap}\" data-full=\"{full}\" data-due=\"{due_ms}\" \
             data-opened=\"{opened}\" data-cap=\"{cap_ms}\">\
             <rect class=\"track\" width=\"10000\" height=\"6\"/><rect class=\"left\" width=\"{left}\" height=\"6\"/>\
             <rect class=\"track\" y=\"8\" width=\"10000\" height=\"2\"/>\
             <rect class=\"gone\" y=\"8\" width=\"{gone}\" height=\"2\"/>\
             <rect class=\"quiet\" x=\"{quiet_at}\" y=\"7\" width=\"100\" height=\"5\"/>\
             <rect class=\"cap\" x=\"9900\" y=\"7\" width=\"100\" height=\"5\"/></svg>",
            due = told(due_at),
            cap = told(capped_at),
            full = self.full_at().as_millis(),
            due_ms = due_at.as_millis(),
            opened = opened_at.as_millis(),
            cap_ms = capped_at.as_millis(),
            quiet_at = quiet.min(9_900),
        )
    }
}

impl askama::filters::HtmlSafe for Countdown {}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn shares(latest: i64, due: i64, due_by: FiredBy, now: i64) -> Shares {
        let marks = WindowMarks {
            opened_at: at(0),
            latest_at: at(latest),
            due_at: at(due),
            due_by,
            capped_at: at(20),
        };
        Countdown { marks, now: at(now) }.shares()
    }

    #[test]
    fn it_begins_anew_with_each_event_and_the_way_to_the_cap_goes_on() {
        assert_eq!(shares(0, 4, FiredBy::Quiet, 0), Shares { left: 10_000, gone: 0, quiet: 2_000 });
        assert_eq!(shares(0, 4, FiredBy::Quiet, 3), Shares { left: 2_500, gone: 1_500, quiet: 2_000 });
        // Another event at 3.
        assert_eq!(shares(3, 7, FiredBy::Quiet, 3), Shares { left: 10_000, gone: 1_500, quiet: 3_500 });
        assert_eq!(shares(3, 7, FiredBy::Quiet, 9), Shares { left: 0, gone: 4_500, quiet: 3_500 });
        assert_eq!(shares(18, 20, FiredBy::Cap, 19), Shares { left: 5_000, gone: 9_500, quiet: 10_000 });
    }

    #[test]
    fn a_fixed_window_does_not_begin_anew() {
        assert_eq!(shares(15, 20, FiredBy::Fixed, 15).left, 2_500);
        assert_eq!(shares(0, 0, FiredBy::None, 1), Shares { left: 0, gone: 500, quiet: 0 });
    }
}
