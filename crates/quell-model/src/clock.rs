//! The real clock: how long a search took. Nothing in the model reads it.

use std::time::{Duration, Instant};

/// Does something and says how long it took.
#[expect(clippy::disallowed_methods, reason = "what a search costs is measured in real time")]
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let since = Instant::now();
    let done = work();
    (done, since.elapsed())
}
