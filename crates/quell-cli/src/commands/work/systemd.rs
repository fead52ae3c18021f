//! What a service manager is told: ready, stopping, still alive. Without one (`NOTIFY_SOCKET` is not set) nothing happens.

use quell::clock;
use sd_notify::NotifyState;

/// From here on requests are answered and lanes are claimed. Where a watchdog is set, it is fed from the same runtime that
/// does the work, so a process that hangs is restarted.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
    if let Some(every) = sd_notify::watchdog_enabled() {
        tokio::spawn(async move {
            loop {
                tell(&[NotifyState::Watchdog]);
                clock::sleep(every / 2).await;
            }
        });
    }
}

pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "the service manager could not be told");
    }
}
