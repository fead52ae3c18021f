//! The one place where this crate reads a clock and waits.
//!
//! What a source allows and how long an answer is kept is decided by the store's clock. The wall clock here only dates
//! answers and reads the dates of others; where it is wrong, an answer is fetched once more.

use std::time::{Duration, SystemTime};

#[expect(clippy::disallowed_methods, reason = "the one place where this crate reads the wall clock")]
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

#[expect(clippy::disallowed_methods, reason = "the one place where this crate waits")]
pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}
