//! The clocks of the simulation: one true time, and everybody's own idea of it.
//!
//! The store's clock never goes back, but it may jump ahead and may stand still for a while. A process has a monotonic
//! clock of its own that runs a little too fast or too slow, may stand still while the process is paused, and starts at
//! zero with every start. Where there are several databases, each has a clock of its own, and a lane goes by that of its database.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use quell_core::clock::{Clock, Tick, Timestamp};

/// A moment in the life of the world, in true milliseconds.
pub(crate) type Moment = u64;

/// An ordinary Monday morning, shortly before the minute at which schedules fire.
const BEGIN: i64 = 1_767_599_997_500;

/// The store's clock, set by the world.
#[derive(Debug)]
pub(crate) struct StoreClock {
    shown: AtomicI64,
}

impl StoreClock {
    pub(crate) fn new() -> Self {
        StoreClock { shown: AtomicI64::new(BEGIN) }
    }
}

impl Clock for StoreClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.shown.load(Ordering::Relaxed))
    }
}

/// The clock of one database of several: a little ahead of the others.
#[derive(Debug)]
pub(crate) struct Ahead {
    pub(crate) clock: Arc<StoreClock>,
    pub(crate) by: u64,
}

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        self.clock.now().after(Duration::from_millis(self.by))
    }
}

/// How the store's clock follows the true time.
#[derive(Debug, Default)]
pub(crate) struct StoreTime {
    ahead: u64,
    stopped_until: Moment,
}

impl StoreTime {
    pub(crate) fn jump(&mut self, by: u64) {
        self.ahead += by;
    }

    pub(crate) fn stop(&mut self, until: Moment) {
        self.stopped_until = self.stopped_until.max(until);
    }

    pub(crate) fn heal(&mut self) {
        self.stopped_until = 0;
    }

    /// Sets the clock to this moment, unless it stands still.
    pub(crate) fn show(&self, now: Moment, clock: &StoreClock) {
        if now >= self.stopped_until {
            let true_time = i64::try_from(now + self.ahead).unwrap_or(i64::MAX);
            clock.shown.fetch_max(BEGIN + true_time, Ordering::Relaxed);
        }
    }
}

/// The monotonic clock of one process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnClock {
    started: Moment,
    /// How long it has stood still.
    frozen: u64,
    /// Millionths by which it is fast.
    skew: i64,
}

const MILLION: i128 = 1_000_000;

impl OwnClock {
    pub(crate) fn started(now: Moment, skew: i64) -> Self {
        OwnClock { started: now, frozen: 0, skew }
    }

    pub(crate) fn freeze(&mut self, length: u64) {
        self.frozen += length;
    }

    pub(crate) fn tick(&self, now: Moment) -> Tick {
        let run = i128::from(now.saturating_sub(self.started + self.frozen));
        let shown = run * (MILLION + i128::from(self.skew)) / MILLION;
        Tick::from_millis(u64::try_from(shown).unwrap_or(0))
    }

    /// The first true moment at which this clock shows at least `tick`.
    pub(crate) fn moment(&self, tick: Tick) -> Moment {
        let rate = MILLION + i128::from(self.skew);
        let run = (i128::from(tick.as_millis()) * MILLION + rate - 1) / rate;
        u64::try_from(run).unwrap_or(u64::MAX).saturating_add(self.started + self.frozen)
    }

    /// How far the wall clock is ahead of this one.
    pub(crate) fn wall_ahead(&self, now: Moment, wall_jumps: i64) -> i64 {
        let wall = i64::try_from(now).unwrap_or(i64::MAX).saturating_add(wall_jumps);
        wall.saturating_sub(i64::try_from(self.tick(now).as_millis()).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skewed_clock_shows_its_tick_at_its_moment_and_not_before() {
        for skew in [-20_000, 0, 333, 20_000] {
            let mut clock = OwnClock::started(77, skew);
            clock.freeze(5);
            for tick in [0, 1, 2, 999, 12_345] {
                let tick = Tick::from_millis(tick);
                let moment = clock.moment(tick);
                assert!(clock.tick(moment) >= tick, "{skew} {tick:?}");
                assert!(tick == Tick::default() || clock.tick(moment - 1) < tick, "{skew} {tick:?}");
            }
        }
    }

    #[test]
    fn the_store_never_goes_back() {
        let (mut time, clock) = (StoreTime::default(), StoreClock::new());
        time.show(10, &clock);
        let ten = clock.now();
        time.stop(20);
        time.show(15, &clock);
        assert_eq!(clock.now(), ten);
        time.jump(100);
        time.show(20, &clock);
        assert_eq!(clock.now().as_millis(), ten.as_millis() + 110);
    }
}
