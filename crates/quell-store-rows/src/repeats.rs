//! A transaction that met somebody else is begun anew, after a short random wait that grows, and not for ever.

use std::time::Duration;

use quell_core::error::StoreError;
use tokio::time::Instant;

use crate::clock;
use crate::group::PATIENCE;

pub(crate) struct Repeats {
    since: Instant,
    made: u32,
}

impl Repeats {
    pub(crate) fn new() -> Self {
        Repeats { since: clock::now(), made: 0 }
    }

    /// Waits before the next try. False when there has been enough.
    pub(crate) async fn again(&mut self) -> bool {
        if self.since.elapsed() > PATIENCE {
            return false;
        }
        // The first repetition is immediate: most conflicts are over by then.
        if self.made > 0 {
            let most = (1u64 << self.made.min(6)) * 500;
            let wait = Duration::from_micros(rand::random_range(most / 4..most));
            clock::pause(wait).await;
        }
        self.made += 1;
        true
    }

    pub(crate) fn too_many() -> StoreError {
        StoreError::unavailable("too many others change the same lanes; nothing was done, try again")
    }
}
