//! The store's clock: the host's boot clock plus an offset kept in the file.
//!
//! All processes of a host share the boot clock, which no one can set back and which goes on during sleep. The offset
//! to the calendar is stored in the file with the id of the boot it belongs to; a new boot computes it afresh as
//! max(wall clock, latest stored time) − boot clock. So store time never goes back and never stands still, and a jump of
//! the wall clock moves no lease. The drift that builds up against the wall clock is shown by `doctor`.
//!
//! This is the only file of the store that reads a clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quell_core::clock::Timestamp;

/// Milliseconds of the boot clock.
#[cfg(target_os = "linux")]
pub(crate) fn boot_millis() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec * 1_000 + time.tv_nsec / 1_000_000
}

/// Elsewhere the wall clock stands in; `clock_high` keeps it from going back over a restart.
#[cfg(not(target_os = "linux"))]
pub(crate) fn boot_millis() -> i64 {
    wall_millis()
}

/// The name of this boot of the host.
#[cfg(target_os = "linux")]
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_or_else(|_| "unknown".into(), |id| id.trim().to_owned())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn boot_id() -> String {
    "wall".into()
}

/// The calendar as this host sees it: for the offset of a new boot and for `doctor`, never for a decision.
pub(crate) fn wall_millis() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "the one place where this store reads the wall clock")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

/// Store time by this offset.
pub(crate) fn now(offset: i64) -> Timestamp {
    Timestamp::from_millis(boot_millis().saturating_add(offset))
}

/// The offset that a new boot starts with.
pub(crate) fn offset_of_new_boot(clock_high: i64) -> i64 {
    wall_millis().max(clock_high.saturating_add(1)) - boot_millis()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_boot_never_starts_before_the_latest_stored_time() {
        let far = wall_millis() + 3_600_000;
        assert!(now(offset_of_new_boot(far)).as_millis() > far, "the wall clock is an hour behind");
        let near = now(offset_of_new_boot(0)).as_millis();
        assert!((near - wall_millis()).abs() < 60_000, "a first start follows the wall clock");
    }
}
