//! When the open run of a lane may be claimed at the earliest, as far as the history tells.
//!
//! Where something is not known (an arrival time, a window of an event's own, a setting that changed) the answer is
//! "at any time": a checker must not cry wolf.

use crate::history::{Millis, Policy, Window as Rule};

/// The window of the open run.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Window {
    first_at: Option<Millis>,
    latest_at: Option<Millis>,
    pub(super) flushed: bool,
    pub(super) own: bool,
    /// Left over by a claim: due at once.
    pub(super) left_over: bool,
    peak_count: u64,
    bytes: u64,
}

impl Window {
    pub(super) fn opened(at: Option<Millis>) -> Self {
        Window { first_at: at, ..Window::default() }
    }

    pub(super) fn event(&mut self, at: Option<Millis>, count: usize, bytes: u64, own: bool) {
        self.latest_at = self.latest_at.max(at);
        self.peak_count = self.peak_count.max(count as u64);
        // Never lowered when an event is deleted: the window may have been closed by then.
        self.bytes += bytes;
        self.own |= own;
    }

    /// A batch was cut off, and this is the first event that stayed behind.
    pub(super) fn leftover(&self, first_at: Option<Millis>) -> Self {
        Window { first_at, left_over: true, ..*self }
    }

    /// What is left after events were taken out by hand has its own latest event.
    pub(super) fn shrunk(&mut self, latest_at: Option<Millis>) {
        self.latest_at = latest_at;
    }

    /// The same window, opened at the latest then; not known when it was opened, if that is not told.
    pub(super) fn opened_by(self, at: Option<Millis>) -> Self {
        Window { first_at: self.first_at.zip(at).map(|(first, at)| first.min(at)), ..self }
    }

    pub(super) fn count_reached(&self, policy: &Policy) -> bool {
        self.left_over || self.own || self.peak_count >= policy.max_events
    }

    pub(super) fn bytes_reached(&self, policy: &Policy) -> bool {
        self.left_over || self.own || self.bytes >= policy.max_bytes
    }

    pub(super) fn was_flushed(&self) -> bool {
        self.flushed || self.own
    }

    /// The earliest moment at which it can be over.
    pub(super) fn due(&self, policy: &Policy) -> Option<Millis> {
        if self.count_reached(policy) || self.bytes_reached(policy) || self.was_flushed() {
            return None;
        }
        let first = self.first_at?;
        match policy.window {
            Rule::None => None,
            Rule::Fixed { wait_ms } => Some(after(first, wait_ms)),
            Rule::Quiet { quiet_ms, max_wait_ms } => {
                let calm = after(self.latest_at.unwrap_or(first), quiet_ms);
                Some(calm.min(after(first, max_wait_ms)))
            }
        }
    }
}

/// The shortest backoff that the policy allows after this many earlier retries.
pub(super) fn backoff_min(policy: &Policy, retries: u32) -> Millis {
    let exponent = i32::try_from(retries).unwrap_or(i32::MAX);
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of a backoff are far below 2^53")]
    let (base, cap) = (policy.backoff_base_ms as f64, policy.backoff_cap_ms as f64);
    let shortest = (base * policy.backoff_factor.powi(exponent)).min(cap) * (1.0 - policy.jitter);
    // One millisecond is left to rounding.
    #[expect(clippy::cast_possible_truncation, reason = "bounded by the cap above")]
    let shortest = shortest.floor() as Millis - 1;
    shortest.max(0)
}

fn after(at: Millis, ms: u64) -> Millis {
    at.saturating_add(Millis::try_from(ms).unwrap_or(Millis::MAX))
}
