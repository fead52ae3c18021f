//! When does a lane become due? The window of the open run.
//!
//! A window opens with the first event of a run and closes at a moment derived by one function, [`OpenWindow::due`]:
//!
//! | policy  | due at                                               | fired by          |
//! | ------- | ---------------------------------------------------- | ----------------- |
//! | `none`  | the first event                                      | `none`            |
//! | `fixed` | first event + `wait`                                 | `fixed`           |
//! | `quiet` | min(latest event + `quiet`, first event + `max_wait`) | `quiet` or `cap` |
//!
//! A quiet window truly restarts with every event, and its cap is always finite: a busy key cannot starve. The policy
//! and the cap are stamped on the run by its first event, so a changed setting never moves a window that is open.
//!
//! `max_events` and `max_bytes` close a window early and bound the batch; `flush` closes it now. A window closed in
//! one of these ways stays closed (`closed_by`): later events still join the run, but they do not delay it again.
//!
//! Until it is claimed or closed, an overdue quiet window still restarts with each event, up to the cap: the burst is
//! evidently not over.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::limits;
use crate::mutants::mutant;

/// The rule for when a lane is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are called what they are; each variant says the rest")]
pub enum WindowPolicy {
    /// Due at once.
    None,
    /// Due so long after the first event.
    Fixed { wait: Duration },
    /// Due when no event came for `quiet`, at the latest `max_wait` after the first.
    Quiet { quiet: Duration, max_wait: Duration },
}

/// A window policy with the bounds of its batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// When a lane is due.
    pub policy: WindowPolicy,
    /// So many events close it early.
    pub max_events: u32,
    /// So many bytes close it early.
    pub max_bytes: u64,
}

impl Default for Window {
    fn default() -> Self {
        Window::quiet(Duration::from_secs(1))
    }
}

impl Window {
    /// Due at once.
    pub fn none() -> Self {
        Window::with(WindowPolicy::None)
    }

    /// Due so long after the first event.
    pub fn fixed(wait: Duration) -> Self {
        Window::with(WindowPolicy::Fixed { wait })
    }

    /// Quiet with the default cap of ten quiet periods.
    pub fn quiet(quiet: Duration) -> Self {
        Window::quiet_capped(quiet, quiet.saturating_mul(limits::MAX_WAIT_QUIETS_DEFAULT))
    }

    /// Due when no event came for `quiet`, at the latest `max_wait` after the first.
    pub fn quiet_capped(quiet: Duration, max_wait: Duration) -> Self {
        Window::with(WindowPolicy::Quiet { quiet, max_wait })
    }

    fn with(policy: WindowPolicy) -> Self {
        Window { policy, max_events: limits::BATCH_EVENTS_DEFAULT, max_bytes: limits::BATCH_BYTES_DEFAULT }
    }

    /// So many events close it early, and are the most that a batch has.
    #[must_use]
    pub fn max_events(mut self, max_events: u32) -> Self {
        self.max_events = max_events;
        self
    }

    /// So many bytes close it early, and are the most that a batch has.
    #[must_use]
    pub fn max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// Refuses windows that cannot work, when the configuration is read and never later.
    pub fn check(&self) -> Result<(), WindowProblem> {
        let longest = match self.policy {
            WindowPolicy::None => Duration::ZERO,
            WindowPolicy::Fixed { wait } if wait.is_zero() => return Err(WindowProblem::FixedIsZero),
            WindowPolicy::Fixed { wait } => wait,
            WindowPolicy::Quiet { quiet, .. } if quiet.is_zero() => return Err(WindowProblem::QuietIsZero),
            WindowPolicy::Quiet { quiet, max_wait } if max_wait < quiet => {
                return Err(WindowProblem::CapBelowQuiet { quiet, max_wait });
            }
            WindowPolicy::Quiet { max_wait, .. } => max_wait,
        };
        if longest > limits::WINDOW_MAX {
            return Err(WindowProblem::TooLong(longest));
        }
        if self.max_events == 0 || self.max_events > limits::BATCH_EVENTS_MAX {
            return Err(WindowProblem::MaxEvents(self.max_events));
        }
        if self.max_bytes == 0 || self.max_bytes > limits::BATCH_BYTES_MAX {
            return Err(WindowProblem::MaxBytes(self.max_bytes));
        }
        Ok(())
    }
}

/// Why a window was refused; the texts say how to mend it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the text of each error says what its fields are")]
pub enum WindowProblem {
    /// `fixed` needs a time.
    #[error("a fixed window of 0 waits for nothing; write window = \"none\"")]
    FixedIsZero,
    /// `quiet` needs a time.
    #[error("a quiet period of 0 waits for nothing; write window = \"none\"")]
    QuietIsZero,
    /// The cap would come before the first quiet is over.
    #[error("max_wait {max_wait:?} is shorter than quiet {quiet:?}; the window could never close by quiet")]
    CapBelowQuiet { quiet: Duration, max_wait: Duration },
    /// Longer than a lane may wait.
    #[error("a window of {0:?} is longer than 7 days; use a delay instead")]
    TooLong(Duration),
    /// None, or more than a batch may have.
    #[error("max_events = {0} is not between 1 and 10000")]
    MaxEvents(u32),
    /// None, or more than a batch may have.
    #[error("max_bytes = {0} is not between 1 and 33554432 (32 MiB)")]
    MaxBytes(u64),
}

/// Why a batch was handed over, told in its envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum FiredBy {
    /// The queue has no window.
    None,
    /// The time after the first event is over.
    Fixed,
    /// It has been quiet.
    Quiet,
    /// It was never quiet, and the cap was reached.
    Cap,
    /// There are as many events as a batch may have.
    Count,
    /// There are as many bytes as a batch may have.
    Bytes,
    /// Somebody did not want to wait.
    Flush,
    /// It is another attempt.
    Retry,
    /// It gave way and goes on together with newer events.
    Merge,
    /// It was put back to work.
    Redrive,
}

impl FiredBy {
    /// All of them.
    pub const ALL: [FiredBy; 10] = [
        FiredBy::None,
        FiredBy::Fixed,
        FiredBy::Quiet,
        FiredBy::Cap,
        FiredBy::Count,
        FiredBy::Bytes,
        FiredBy::Flush,
        FiredBy::Retry,
        FiredBy::Merge,
        FiredBy::Redrive,
    ];

    /// The word in the envelope and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            FiredBy::None => "none",
            FiredBy::Fixed => "fixed",
            FiredBy::Quiet => "quiet",
            FiredBy::Cap => "cap",
            FiredBy::Count => "count",
            FiredBy::Bytes => "bytes",
            FiredBy::Flush => "flush",
            FiredBy::Retry => "retry",
            FiredBy::Merge => "merge",
            FiredBy::Redrive => "redrive",
        }
    }
}

/// A window while it collects: what its first event stamped and what has arrived since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenWindow {
    /// The window it was opened with.
    pub window: Window,
    /// When its first event came.
    pub first_at: Timestamp,
    /// When its latest event came.
    pub latest_at: Timestamp,
    /// The quiet period that the latest event asked for, when it is not the window's own.
    pub step: Option<Duration>,
    /// Set when count, bytes or flush closed it for good; the moment is when that happened.
    pub closed: Option<(FiredBy, Timestamp)>,
}

impl OpenWindow {
    /// Opened by an event at this moment.
    pub fn opened(window: Window, at: Timestamp) -> Self {
        OpenWindow { window, first_at: at, latest_at: at, step: None, closed: None }
    }

    /// An event arrived: the quiet timer restarts, and a full batch closes the window.
    ///
    /// The first event fixed policy and cap. A later one that asks for a window of its own sets the quiet period of its
    /// own step and may lower the cap, never raise it; `none` acts as a flush.
    pub fn event(&mut self, at: Timestamp, count: u64, bytes: u64, asked: Option<&WindowPolicy>) {
        if !mutant("quiet_does_not_restart") {
            self.latest_at = self.latest_at.max(at);
        }
        if mutant("closed_window_opens_again") {
            self.closed = None;
        }
        self.step = None;
        match asked {
            None => {}
            // One that is over already keeps its own reason.
            Some(WindowPolicy::None) if self.due().0 <= at => {}
            Some(WindowPolicy::None) => self.close(FiredBy::Flush, at),
            Some(WindowPolicy::Fixed { wait }) => self.lower_cap(*wait),
            Some(WindowPolicy::Quiet { quiet, max_wait }) => {
                self.step = Some(*quiet);
                self.lower_cap(*max_wait);
            }
        }
        if self.due().0 <= at {
            return; // Already over: a full batch is not what ended it.
        }
        if count >= u64::from(self.window.max_events) {
            self.close(FiredBy::Count, at);
        } else if bytes >= self.window.max_bytes {
            self.close(FiredBy::Bytes, at);
        }
    }

    fn lower_cap(&mut self, longest: Duration) {
        match &mut self.window.policy {
            WindowPolicy::None => {}
            WindowPolicy::Fixed { wait } => *wait = longest.min(*wait),
            WindowPolicy::Quiet { max_wait, .. } => *max_wait = longest.min(*max_wait),
        }
    }

    /// Closes the window for good. The first reason stays: a window is closed once.
    pub fn close(&mut self, by: FiredBy, at: Timestamp) {
        self.closed.get_or_insert((by, at));
    }

    /// The one function that says when the window is over, and why.
    pub fn due(&self) -> (Timestamp, FiredBy) {
        let own = match self.window.policy {
            WindowPolicy::None => (self.first_at, FiredBy::None),
            WindowPolicy::Fixed { wait } if mutant("fixed_restarts") => {
                (self.latest_at.after(wait), FiredBy::Fixed)
            }
            WindowPolicy::Fixed { wait } => (self.first_at.after(wait), FiredBy::Fixed),
            WindowPolicy::Quiet { quiet, max_wait } => {
                let (calm, cap) =
                    (self.latest_at.after(self.step.unwrap_or(quiet)), self.first_at.after(max_wait));
                let capped = calm > cap && !mutant("cap_is_ignored");
                if capped { (cap, FiredBy::Cap) } else { (calm, FiredBy::Quiet) }
            }
        };
        match self.closed {
            // A window that was already over keeps its own reason; closing an overdue one changes nothing.
            Some((by, at)) if at <= own.0 => (at, by),
            _ => own,
        }
    }

    /// The moment at which it is due whatever else arrives, shown to people beside the quiet mark.
    pub fn capped_at(&self) -> Timestamp {
        match self.window.policy {
            WindowPolicy::Quiet { max_wait, .. } if self.closed.is_none() => self.first_at.after(max_wait),
            _ => self.due().0,
        }
    }
}

/// Takes the longest prefix of the open run within both bounds, at least one event: fed one size at a time, so that a
/// store stops reading where the batch ends.
#[derive(Debug)]
pub struct Cut {
    bounds: Window,
    /// Events so far.
    pub count: u64,
    /// Bytes so far.
    pub bytes: u64,
}

impl Cut {
    /// With room for as much as the window allows.
    pub fn new(bounds: &Window) -> Self {
        Cut::after(bounds, 0, 0)
    }

    /// Goes on behind a batch of this size: a merge, which takes in only what still fits.
    pub fn after(bounds: &Window, count: u64, bytes: u64) -> Self {
        Cut { bounds: *bounds, count, bytes }
    }

    /// Whether the next event still belongs to the batch.
    pub fn takes(&mut self, size: u64) -> bool {
        let bytes = self.bytes.saturating_add(size);
        let most = u64::from(self.bounds.max_events) + u64::from(mutant("one_event_too_many"));
        let full = self.count >= most || bytes > self.bounds.max_bytes;
        if full && self.count > 0 {
            return false;
        }
        self.count += 1;
        self.bytes = bytes;
        true
    }
}

/// How many of these events form the batch.
pub fn cut(window: &Window, sizes: impl IntoIterator<Item = u64>) -> usize {
    let mut cut = Cut::new(window);
    sizes.into_iter().take_while(|&size| cut.takes(size)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn none_is_due_at_once() {
        assert_eq!(OpenWindow::opened(Window::none(), at(5)).due(), (at(5), FiredBy::None));
    }

    #[test]
    fn fixed_is_measured_from_the_first_event() {
        let mut open = OpenWindow::opened(Window::fixed(secs(65)), at(1_000));
        open.event(at(60_000), 2, 2, None);
        assert_eq!(open.due(), (at(66_000), FiredBy::Fixed));
    }

    #[test]
    fn quiet_truly_restarts_with_each_event_up_to_the_cap() {
        let mut open = OpenWindow::opened(Window::quiet_capped(secs(2), secs(5)), at(0));
        assert_eq!(open.due(), (at(2_000), FiredBy::Quiet));
        open.event(at(1_500), 2, 2, None);
        assert_eq!(open.due(), (at(3_500), FiredBy::Quiet));
        open.event(at(3_400), 3, 3, None);
        assert_eq!(open.due(), (at(5_000), FiredBy::Cap));
        open.event(at(4_900), 4, 4, None);
        assert_eq!(open.due(), (at(5_000), FiredBy::Cap));
        assert_eq!(open.capped_at(), at(5_000));
    }

    #[test]
    fn pitfall_4_the_cap_is_a_deadline_and_not_a_split_point() {
        let mut open = OpenWindow::opened(Window::quiet_capped(secs(2), secs(3)), at(0));
        open.event(at(2_900), 2, 2, None);
        assert_eq!(open.due().0, at(3_000), "the due time is clamped to first + cap");
        assert!(open.closed.is_none(), "an event just before the cap still joins this run");
    }

    #[test]
    fn count_and_bytes_close_for_good() {
        let mut open = OpenWindow::opened(Window::quiet(secs(2)).max_events(3), at(0));
        open.event(at(100), 2, 2, None);
        assert_eq!(open.due(), (at(2_100), FiredBy::Quiet));
        open.event(at(200), 3, 3, None);
        assert_eq!(open.due(), (at(200), FiredBy::Count));
        open.event(at(900), 4, 4, None);
        assert_eq!(open.due(), (at(200), FiredBy::Count), "later events do not re-open it");
        let mut open = OpenWindow::opened(Window::quiet(secs(2)).max_bytes(10), at(0));
        open.event(at(100), 2, 10, None);
        assert_eq!(open.due(), (at(100), FiredBy::Bytes));
    }

    #[test]
    fn impossible_windows_are_refused() {
        assert_eq!(Window::fixed(Duration::ZERO).check(), Err(WindowProblem::FixedIsZero));
        assert_eq!(Window::quiet(Duration::ZERO).check(), Err(WindowProblem::QuietIsZero));
        assert!(matches!(
            Window::quiet_capped(secs(5), secs(4)).check(),
            Err(WindowProblem::CapBelowQuiet { .. })
        ));
        assert!(matches!(Window::fixed(secs(8 * 86_400)).check(), Err(WindowProblem::TooLong(_))));
        assert!(matches!(Window::none().max_events(0).check(), Err(WindowProblem::MaxEvents(0))));
        assert!(matches!(Window::none().max_bytes(0).check(), Err(WindowProblem::MaxBytes(0))));
        assert_eq!(Window::default().check(), Ok(()));
    }

    #[test]
    fn a_batch_is_never_empty_and_never_above_its_bounds() {
        let bounds = Window::none().max_events(3).max_bytes(10);
        assert_eq!(cut(&bounds, [4, 4, 4]), 2);
        assert_eq!(cut(&bounds, [1, 1, 1, 1]), 3);
        assert_eq!(cut(&bounds, [100, 1]), 1, "one oversized event goes alone");
        assert_eq!(cut(&bounds, [1, 100]), 1);
        assert_eq!(cut(&bounds, [5, 5]), 2);
    }

    proptest! {
        #[test]
        fn a_window_is_due_between_its_first_event_and_its_cap(
            quiet in 1u64..10_000, extra in 0u64..100_000, gaps in prop::collection::vec(0i64..5_000, 0..50),
        ) {
            let window = Window::quiet_capped(Duration::from_millis(quiet), Duration::from_millis(quiet + extra));
            let mut open = OpenWindow::opened(window, at(0));
            let (mut now, mut count) = (0, 1);
            for gap in gaps {
                now += gap;
                count += 1;
                let before = open.due().0;
                open.event(at(now), count, count, None);
                prop_assert!(open.due().0 >= before, "an event never makes a quiet window earlier");
                prop_assert!(open.due().0 <= open.first_at.after(Duration::from_millis(quiet + extra)));
                prop_assert!(open.due().0 > open.first_at);
            }
        }
    }
}
