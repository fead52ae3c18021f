//! The time-limited right to process a lane: tokens, expiry, and whose clock counts.
//!
//! # What a lease promises
//!
//! At most one worker holds a live lease on a lane. The holder is named by a **token**, a number that grows with every
//! claim of the lane and is never used twice, not even after a restart or a restore. Every change that the holder asks
//! for (extend, settle) carries the token and is refused when the lane has moved on. So safety never depends on a
//! clock: a worker that slept through its lease changes nothing when it wakes, and learns so.
//!
//! # Whose clock
//!
//! - *The store's clock* judges leases. A lease is live while `now < lease_until`; from `now ≥ lease_until` on the lane
//!   may be taken back. `lease_until` only ever moves to a future time.
//! - *The worker's monotonic clock* only stops the handler sooner. The worker knows when it **sent** the claim or the
//!   last confirmed extend; the store cannot have started the lease before that. So `sent + lease − margin`
//!   ([`stop_at`]) lies before the store's expiry, whatever the two clocks think of the date.
//!
//! # What each failure does
//!
//! | failure | effect |
//! | --- | --- |
//! | worker dies | no extend comes; one lease later the lane is claimable, the attempt stays counted |
//! | worker is paused and wakes | its next call is refused (`lost lease`); its handler is stopped |
//! | store is away | extends fail; at `stop_at` the handler is stopped; the run may still be settled if nobody took it |
//! | wall clock jumps | the store's clock does not follow it; a process that sees the two diverge takes nothing back for one lease |
//!
//! An expired lease that nobody took back may still be extended or settled: nothing else has happened to the lane, so
//! refusing would only repeat work.

use std::time::Duration;

use crate::clock::{Tick, Timestamp};
use crate::limits;

/// How often a held lease is renewed: a third of it, and at least every 20 s.
pub fn heartbeat_every(lease: Duration) -> Duration {
    (lease / 3).min(limits::HEARTBEAT_MAX)
}

/// When the worker stops its handler by its own clock, unless a later renewal is confirmed.
pub fn stop_at(sent: Tick, lease: Duration) -> Tick {
    sent.after(lease.saturating_sub(margin(lease)))
}

/// The reserve for stopping a handler and for clocks that run at slightly different rates.
pub fn margin(lease: Duration) -> Duration {
    (lease / 10).clamp(Duration::from_millis(10), Duration::from_secs(5)).min(lease / 2)
}

/// A process whose wall clock and monotonic clock drifted apart by more than this takes nothing back for one lease.
pub fn divergence_max(lease: Duration) -> Duration {
    lease / 4
}

/// Where the store-wide sequence goes on after a restore, so that no number is told twice; nothing when there is none
/// left.
///
/// Far ahead of the backup is not enough: one backup may be restored twice, in two places, and nobody can ask the one
/// what the other has told. So the sequence also never lies behind a floor that rises with the calendar by 2^20 numbers
/// a second, faster than any store hands them out, and below 2^52 until the year 2160.
///
/// One of several databases stays in its range, whose floor rises by 2^16 a second and lies in it until 2058.
pub fn after_restore(last_number: u64, now: Timestamp) -> Option<u64> {
    let next = last_number.saturating_add(jump(last_number)).max(calendar_floor(last_number, now));
    let range =
        |number: u64| number.checked_sub(limits::RANGES_FROM).map(|above| above >> limits::RANGE_BITS);
    (next < limits::NUMBER_MAX && range(next) == range(last_number)).then_some(next)
}

/// How far behind its last number a store goes on after a restore.
pub fn jump(last_number: u64) -> u64 {
    if last_number < limits::RANGES_FROM { limits::EPOCH_JUMP } else { limits::RANGE_JUMP }
}

/// The number that a store does not lie behind at this moment, whatever was restored into it.
pub fn calendar_floor(last_number: u64, now: Timestamp) -> u64 {
    const FLOOR_FROM: i64 = 1_704_067_200; // 2024-01-01
    let seconds = u64::try_from(now.as_millis() / 1_000 - FLOOR_FROM).unwrap_or(0);
    if last_number < limits::RANGES_FROM {
        seconds << 20
    } else {
        ((last_number >> limits::RANGE_BITS) << limits::RANGE_BITS) + (seconds << 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_backup_restored_twice_goes_on_at_two_places() {
        let (first, second) =
            (Timestamp::from_millis(1_800_000_000_000), Timestamp::from_millis(1_800_000_010_000));
        let (a, b) = (after_restore(77, first).unwrap(), after_restore(77, second).unwrap());
        assert!(b > a + 10_000_000, "ten seconds are worth ten million numbers: {a} {b}");
        assert!(after_restore(a, first).unwrap() >= a + limits::EPOCH_JUMP, "never behind what was told");
        assert_eq!(after_restore(limits::NUMBER_MAX - 1, first), None);
        assert!(after_restore(0, Timestamp::from_millis(0)).is_some(), "a clock of 1970 is no obstacle");
    }

    #[test]
    fn one_of_several_databases_goes_on_in_its_own_range() {
        let (first, second) =
            (Timestamp::from_millis(1_800_000_000_000), Timestamp::from_millis(1_800_000_010_000));
        let begin = limits::RANGES_FROM + (3 << limits::RANGE_BITS);
        let own = begin..begin + (1 << limits::RANGE_BITS);
        let (a, b) = (after_restore(begin, first).unwrap(), after_restore(begin, second).unwrap());
        assert!(own.contains(&a) && own.contains(&b) && b - a >= 10 << 16, "{a} {b}");
        assert_eq!(after_restore(a, first), Some(a + limits::RANGE_JUMP), "never behind what was told");
        assert_eq!(after_restore(own.end - 2, first), None, "what follows is the range of another database");
        assert_eq!(after_restore(limits::RANGES_FROM - 2, first), None, "a database alone has no range");
    }

    #[test]
    fn heartbeats_leave_room_for_two_misses() {
        assert_eq!(heartbeat_every(Duration::from_secs(60)), Duration::from_secs(20));
        assert_eq!(heartbeat_every(Duration::from_secs(300)), Duration::from_secs(20));
        assert_eq!(heartbeat_every(Duration::from_secs(9)), Duration::from_secs(3));
    }

    #[test]
    fn the_worker_stops_before_the_store_can_call_the_lease_over() {
        for ms in [100u64, 250, 1_000, 60_000, 86_400_000] {
            let lease = Duration::from_millis(ms);
            let sent = Tick::from_millis(1_000);
            assert!(stop_at(sent, lease) < sent.after(lease), "{ms}");
            assert!(
                stop_at(sent, lease) >= sent.after(heartbeat_every(lease)),
                "a heartbeat fits before it: {ms}"
            );
        }
    }
}
