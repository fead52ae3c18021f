//! Time outside the server: how far this host's calendar is from the store's, and the waits between two tries.
//!
//! Store time is the server's clock, read in every transaction (`tx.rs`). This is the only file of the store that reads or
//! waits by a clock of its own, and nothing that it says decides anything.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The calendar as this host sees it, for `doctor`.
pub(crate) fn wall_millis() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "the one place where this store reads the wall clock")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

/// Waits before something is tried or sent again.
pub(crate) async fn wait(time: Duration) {
    #[expect(clippy::disallowed_methods, reason = "the one place where this store waits")]
    tokio::time::sleep(time).await;
}

/// For how long a place in an index has been remembered (`floors.rs`).
pub(crate) fn now() -> tokio::time::Instant {
    #[expect(clippy::disallowed_methods, reason = "measures how old a memory is, and nothing else")]
    tokio::time::Instant::now()
}
