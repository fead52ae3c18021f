//! Waiting for the end of an event: what `send --wait` does.
//!
//! The event is the thread to hold on to, not its run: merges, splits and redrives move it from run to run, and a
//! delayed one has none yet. So the store is asked where the event is, again and again: soon after the store has rung
//! (its wake-ups tell of appends, settles and operators), and with a growing pause otherwise.

use std::time::Duration;

use quell_core::error::{StoreError, StoreResult};
use quell_core::event::{EventId, LaneKey};
use quell_core::inspect::{EventPlace, RunDetail};
use quell_core::lifecycle::RunState;

use crate::clock;
use crate::engine::Engine;

/// Two looks are at least this far apart, however often the store rings.
const LOOK_MIN: Duration = Duration::from_millis(5);
/// Without a sign of the store a look is taken at least this often.
const LOOK_MAX: Duration = Duration::from_millis(250);

/// What became of an event within the time.
#[derive(Debug, Clone)]
pub enum Waited {
    /// Its run has ended: succeeded, failed (the event is in the dead letter) or cancelled (it was discarded).
    Ended(Box<RunDetail>),
    /// The time is over; here is where the event was last seen.
    StillGoing(EventPlace),
}

impl Waited {
    /// The final state, if there is one yet.
    pub fn state(&self) -> Option<RunState> {
        match self {
            Waited::Ended(run) => Some(run.row.state),
            Waited::StillGoing(_) => None,
        }
    }

    /// The run that ended, if it has.
    pub fn run(&self) -> Option<&RunDetail> {
        match self {
            Waited::Ended(run) => Some(run),
            Waited::StillGoing(_) => None,
        }
    }
}

impl Engine {
    /// Waits until the run that the event is in has ended, wherever merges, splits and redrives have taken it. An event
    /// that nobody knows (never sent, erased, or past the retention) is `not-found`.
    pub async fn wait(&self, lane: LaneKey, id: EventId, timeout: Duration) -> StoreResult<Waited> {
        let mut wakeups = self.store().wakeups();
        let start = self.time().tick();
        let end = start.after(timeout);
        let mut pause = LOOK_MIN;
        loop {
            let place = self.event(lane.clone(), id.clone()).await?;
            let place = place.ok_or_else(|| StoreError::not_found(format!("event {id} of {lane}")))?;
            let ended = place.run_id.filter(|_| place.state.is_some_and(RunState::is_final));
            if let Some(run) = ended
                && let Some(detail) = self.run(run).await?
                && detail.row.state.is_final()
            {
                return Ok(Waited::Ended(Box::new(detail)));
            }
            let left = end.since(self.time().tick());
            if left.is_zero() {
                return Ok(Waited::StillGoing(place));
            }
            clock::sleep(LOOK_MIN.min(left)).await;
            let left = end.since(self.time().tick());
            tokio::select! {
                () = wakeups.woken() => {}
                () = clock::sleep(pause.min(left)) => {}
            }
            pause = (pause * 2).min(LOOK_MAX);
        }
    }
}
