//! The real clock: waiting for another process, always with a limit.

use std::time::{Duration, Instant};

/// How often a condition is looked at. A server needs a second to start, so looking is not what takes the time.
const PAUSE: Duration = Duration::from_millis(10);

/// Asks until there is an answer; `None` when there was none within the limit.
#[expect(
    clippy::disallowed_methods,
    reason = "other processes keep real time; a test of them cannot move it"
)]
pub(crate) fn wait_for<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let since = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if since.elapsed() >= limit {
            return None;
        }
        std::thread::sleep(PAUSE);
    }
}
