//! Time as data: store time in milliseconds, and the manual clock of tests and simulations.
//!
//! Two kinds of time exist in Quell and they never mix:
//!
//! - [`Timestamp`] is *store time*. Only the store's clock makes one, and only store time decides when a window
//!   closes, when a retry is due and whether a lease has run out. Callers send durations, never instants.
//! - [`Tick`] is a worker's own *monotonic* time. It stops a handler before its lease can have run out, and it
//!   decides nothing else.
//!
//! The real clocks live at the edge: `clock.rs` of each store and `quell/src/clock.rs`.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment of store time: milliseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Since 1970, UTC.
    pub const fn from_millis(millis: i64) -> Self {
        Timestamp(millis)
    }

    /// Since 1970, UTC.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The later moment `self + by`; saturates instead of wrapping, so "for ever" stays in the future.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Timestamp(self.0.saturating_add(millis(by)))
    }

    /// The earlier moment `self - by`.
    #[must_use]
    pub fn before(self, by: Duration) -> Self {
        Timestamp(self.0.saturating_sub(millis(by)))
    }

    /// How long after `earlier` this moment is; zero when it is not after it.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// RFC 3339 with milliseconds, in UTC: the one form of a time in JSON, tables and logs.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(moment) => f.pad(&format!("{moment:.3}")),
            Err(_) => f.pad(&format!("{}ms", self.0)),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// In a store's own rows it is the number.
impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            serializer.serialize_i64(self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return i64::deserialize(deserializer).map(Timestamp);
        }
        let text = String::deserialize(deserializer)?;
        let moment: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Timestamp(moment.as_millisecond()))
    }
}

/// Whole milliseconds of a duration, rounded up so that a positive wait never becomes none.
pub fn millis(duration: Duration) -> i64 {
    let whole = duration.as_millis();
    let up = if duration.subsec_nanos().is_multiple_of(1_000_000) { whole } else { whole + 1 };
    i64::try_from(up).unwrap_or(i64::MAX)
}

/// A moment of a worker's own monotonic clock, in milliseconds since the process started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tick(u64);

impl Tick {
    /// Since the clock was made.
    pub const fn from_millis(millis: u64) -> Self {
        Tick(millis)
    }

    /// Since the clock was made.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// So much later; it stops at the end of time instead of turning over.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Tick(self.0.saturating_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How much later this is; zero when it is earlier.
    pub fn since(self, earlier: Tick) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Where store time comes from when the store has no clock of its own (the memory store).
pub trait Clock: Send + Sync + 'static {
    /// The moment, as the store has it.
    fn now(&self) -> Timestamp;
}

/// A clock that moves only when told to: simulations and fast tests.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// Stands at this moment until it is moved.
    pub fn at(start: Timestamp) -> Self {
        ManualClock(AtomicI64::new(start.0))
    }

    /// Moves on.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(millis(by), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_positive_wait_never_becomes_none() {
        assert_eq!(millis(Duration::from_nanos(1)), 1);
        assert_eq!(millis(Duration::from_millis(7)), 7);
        assert_eq!(millis(Duration::ZERO), 0);
    }

    #[test]
    fn times_are_written_as_rfc_3339_with_milliseconds() {
        let moment = Timestamp::from_millis(1_763_178_003_000);
        assert_eq!(moment.to_string(), "2025-11-15T03:40:03.000Z");
        let text = serde_json::to_string(&moment).unwrap();
        assert_eq!(serde_json::from_str::<Timestamp>(&text).unwrap(), moment);
    }

    #[test]
    fn moments_saturate_instead_of_wrapping() {
        let late = Timestamp::from_millis(i64::MAX);
        assert_eq!(late.after(Duration::from_secs(1)), late);
        assert_eq!(Timestamp::from_millis(5).since(Timestamp::from_millis(9)), Duration::ZERO);
    }
}
