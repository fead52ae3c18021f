//! The clocks of the hook: how long standard input may still be waited for, and the wall time that names a file and
//! begins a line of the log. Neither decides anything about windows, retries or leases: those are store time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[expect(
    clippy::disallowed_methods,
    reason = "measures how long standard input was waited for, and nothing else"
)]
pub(crate) fn monotonic() -> Instant {
    Instant::now()
}

/// Milliseconds since the Unix epoch; a clock before it reads as zero.
#[expect(clippy::disallowed_methods, reason = "the one place where this crate reads the wall clock")]
pub(crate) fn millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// RFC 3339 with milliseconds, in UTC.
pub(crate) fn rfc3339(millis: u64) -> String {
    let moment = i64::try_from(millis).ok().and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
    moment.map_or_else(|| format!("{millis}ms"), |moment| format!("{moment:.3}"))
}
