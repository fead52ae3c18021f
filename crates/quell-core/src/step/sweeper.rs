//! The retention as a pure machine: one small step, then room for everybody else, then the next.
//!
//! Taking expired leases back is the worker loop's business (its state Recovery) and happens inside every claim; here
//! only old history is removed. A step that leaves more to do is followed by another after a pause, so a large backlog
//! is worked off without ever holding the store's writer for long.

use std::time::Duration;

use crate::clock::Tick;
use crate::error::StoreResult;
use crate::store::{SweepRequest, Swept};

/// Between two steps of one backlog: appends and claims that waited go first.
const BREATH: Duration = Duration::from_millis(20);

/// Removes what is older than the retention.
#[derive(Debug)]
pub struct Sweeper {
    retention: Duration,
    every: Duration,
    error_wait: Duration,
    next: Tick,
    asked: bool,
}

#[derive(Debug)]
pub enum SweeperInput {
    /// The time asked for by `WakeAt` has come, or the machine starts.
    Timer,
    Swept(StoreResult<Swept>),
}

#[derive(Debug)]
pub enum SweeperEffect {
    Sweep(SweepRequest),
    /// Give a `Timer` at this moment; replaces an earlier wish.
    WakeAt(Tick),
}

impl Sweeper {
    /// The first step comes after half an interval, so that a start is not slowed by history.
    pub fn new(now: Tick, retention: Duration, every: Duration, error_wait: Duration) -> Self {
        Sweeper { retention, every, error_wait, next: now.after(every / 2), asked: false }
    }

    pub fn step(&mut self, now: Tick, input: SweeperInput, out: &mut Vec<SweeperEffect>) {
        match input {
            SweeperInput::Timer if self.asked => return,
            SweeperInput::Timer => {}
            SweeperInput::Swept(answer) => {
                self.asked = false;
                self.next = now.after(match answer {
                    Ok(swept) if swept.more => BREATH,
                    Ok(_) => self.every,
                    Err(_) => self.error_wait,
                });
            }
        }
        if now >= self.next {
            self.asked = true;
            out.push(SweeperEffect::Sweep(SweepRequest { reclaim: false, retention: Some(self.retention) }));
        } else {
            out.push(SweeperEffect::WakeAt(self.next));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::StoreError;

    fn at(ms: u64) -> Tick {
        Tick::from_millis(ms)
    }

    fn sweeper() -> Sweeper {
        let s = Duration::from_secs;
        Sweeper::new(at(0), s(3600), s(60), s(5))
    }

    fn wake(sweeper: &mut Sweeper, now: Tick, input: SweeperInput) -> Option<Tick> {
        let mut out = Vec::new();
        sweeper.step(now, input, &mut out);
        match out.pop() {
            Some(SweeperEffect::WakeAt(at)) => Some(at),
            Some(SweeperEffect::Sweep(request)) => {
                assert!(!request.reclaim && request.retention.is_some());
                None
            }
            None => panic!("no effect"),
        }
    }

    #[test]
    fn a_backlog_is_removed_in_steps_with_breaths_between() {
        let mut sweeper = sweeper();
        assert_eq!(wake(&mut sweeper, at(0), SweeperInput::Timer), Some(at(30_000)));
        assert_eq!(wake(&mut sweeper, at(30_000), SweeperInput::Timer), None);
        let more = Swept { more: true, ..Swept::default() };
        assert_eq!(wake(&mut sweeper, at(30_010), SweeperInput::Swept(Ok(more))), Some(at(30_030)));
        assert_eq!(wake(&mut sweeper, at(30_030), SweeperInput::Timer), None);
        assert_eq!(
            wake(&mut sweeper, at(30_040), SweeperInput::Swept(Ok(Swept::default()))),
            Some(at(90_040))
        );
    }

    #[test]
    fn an_error_waits_and_a_second_timer_asks_nothing() {
        let mut sweeper = sweeper();
        assert_eq!(wake(&mut sweeper, at(31_000), SweeperInput::Timer), None);
        let mut out = Vec::new();
        sweeper.step(at(31_001), SweeperInput::Timer, &mut out);
        assert!(out.is_empty(), "one call at a time");
        let gone = SweeperInput::Swept(Err(StoreError::unavailable("away")));
        assert_eq!(wake(&mut sweeper, at(31_002), gone), Some(at(36_002)));
    }
}
