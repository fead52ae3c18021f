//! Time outside the server: how long ago it told its own, how far this host's calendar is from it, and the waits between
//! two tries.
//!
//! Store time is the server's. This is the only file of the store that reads or waits by a clock of this host.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The monotonic clock, by which the server's time is reckoned on from its last answer, for a moment.
pub(crate) fn instant() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "the one place where this store reads the monotonic clock")]
    Instant::now()
}

/// The same as tests may move it: how long ago something happened here.
pub(crate) fn now() -> tokio::time::Instant {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where this store reads the clock of the runtime"
    )]
    tokio::time::Instant::now()
}

fn wall() -> Duration {
    #[expect(clippy::disallowed_methods, reason = "the one place where this store reads the wall clock")]
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The calendar as this host sees it, for `doctor`.
pub(crate) fn wall_millis() -> i64 {
    i64::try_from(wall().as_millis()).unwrap_or(i64::MAX)
}

/// Waits before something is tried or sent again.
pub(crate) async fn wait(time: Duration) {
    #[expect(clippy::disallowed_methods, reason = "the one place where this store waits")]
    tokio::time::sleep(time).await;
}

/// A name for an open store that no other one has: another of this process, or one of another host.
pub(crate) fn own_name() -> String {
    static OPENED: AtomicU64 = AtomicU64::new(0);
    let (pid, nth) = (std::process::id(), OPENED.fetch_add(1, Ordering::SeqCst));
    format!("{pid}-{nth}-{:x}", wall().as_nanos())
}
