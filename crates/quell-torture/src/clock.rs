//! The clock of the torture itself: it decides when to hurt, and nothing that is judged.

use std::time::Duration;

use crate::chance::Chance;

/// The monotonic clock.
pub(crate) fn now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let secs = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::from_secs(secs) + Duration::from_nanos(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// A time between two.
pub(crate) fn between(chance: &mut Chance, low_ms: u64, high_ms: u64) -> Duration {
    Duration::from_millis(low_ms + chance.below(high_ms.saturating_sub(low_ms) + 1))
}
