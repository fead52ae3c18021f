//! This process's own clock: how long a caller has waited, and short pauses. It decides nothing about lanes.

use std::time::Duration;

use tokio::time::Instant;

#[expect(clippy::disallowed_methods, reason = "measures how long a call has waited, and nothing else")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "a pause before a transaction is begun anew")]
pub(crate) async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
