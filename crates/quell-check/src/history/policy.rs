//! What a queue allows: an input of the checker, so that it knows which of the legal behaviours was asked for.
//!
//! Durations are milliseconds. A queue without a policy record is checked for everything that needs no policy.

use serde::{Deserialize, Serialize};

use super::Name;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    pub queue: Name,
    pub window: Window,
    /// Bounds of a batch.
    pub max_events: u64,
    pub max_bytes: u64,
    pub during_run: DuringRun,
    pub max_interrupts: u32,
    pub retry_with: RetryWith,
    pub max_attempts: u32,
    pub backoff_base_ms: u64,
    pub backoff_factor: f64,
    pub backoff_cap_ms: u64,
    /// The share by which chance may shorten a backoff: 0 to 1.
    pub jitter: f64,
    pub on_failed: OnFailed,
    pub lease_ms: u64,
    /// Events without an id whose payload waits in the open window get that event's receipt.
    #[serde(default)]
    pub content_dedupe: bool,
    /// Every handler of this queue applies its batch at the fenced sink before it says succeeded.
    #[serde(default)]
    pub sink: bool,
}

impl Policy {
    /// No window, one event or a thousand, ten attempts: the plain job queue. Tests and recorders change what matters.
    pub fn plain(queue: impl Into<Name>) -> Self {
        Policy {
            queue: queue.into(),
            window: Window::None,
            max_events: 1_000,
            max_bytes: 4 << 20,
            during_run: DuringRun::Queue,
            max_interrupts: 3,
            retry_with: RetryWith::Same,
            max_attempts: 10,
            backoff_base_ms: 60_000,
            backoff_factor: 2.0,
            backoff_cap_ms: 86_400_000,
            jitter: 0.1,
            on_failed: OnFailed::Continue,
            lease_ms: 60_000,
            content_dedupe: false,
            sink: false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Window {
    None,
    Fixed { wait_ms: u64 },
    Quiet { quiet_ms: u64, max_wait_ms: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DuringRun {
    Queue,
    Interrupt,
    Gate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryWith {
    Same,
    Newer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailed {
    Continue,
    Block,
    Bisect,
}
