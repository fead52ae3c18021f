//! The real clock: an input that takes too long is a find, and a search ends after the minutes that it was given.

use std::time::{Duration, Instant};

/// Runs since it was made.
#[derive(Debug, Clone, Copy)]
pub struct Watch(Instant);

impl Watch {
    #[expect(clippy::disallowed_methods, reason = "how long an input takes is measured in real time")]
    pub fn start() -> Self {
        Watch(Instant::now())
    }

    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}
