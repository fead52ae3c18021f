//! How much of everything, for Quell and peers alike. Drivers get it as JSON, so the names are part of the protocol.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Sizes and time limits of the shapes. A limit ends the work of a slow system; its figure is what it did until then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Events of `jobs`: a quarter one by one at most, a quarter by callers at most, the rest in bulk.
    pub jobs: usize,
    pub one_ms: u64,
    pub callers: usize,
    pub callers_ms: u64,
    pub bulk: usize,
    pub drain_ms: u64,
    pub keyed_events: usize,
    pub keyed_keys: usize,
    pub keyed_ms: u64,
    pub burst_keys: usize,
    pub burst_rounds: usize,
    /// Between the beginnings of two rounds of a burst.
    pub pace_ms: u64,
    pub quiet_ms: u64,
    /// A system that cannot take the burst at its pace is sent to for this long.
    pub send_ms: u64,
    /// After the end of the quiet, until everything has to have come.
    pub patience_ms: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes {
            jobs: 20_000,
            one_ms: 300,
            callers: 64,
            callers_ms: 500,
            bulk: 1_000,
            drain_ms: 2_000,
            keyed_events: 10_000,
            keyed_keys: 500,
            keyed_ms: 3_000,
            burst_keys: 1_000,
            burst_rounds: 20,
            pace_ms: 100,
            quiet_ms: 1_000,
            send_ms: 3_000,
            patience_ms: 2_000,
        }
    }
}

impl Sizes {
    /// For a look at whether everything works. Its figures say nothing.
    #[must_use]
    pub fn short() -> Self {
        Sizes {
            jobs: 2_048,
            one_ms: 200,
            callers_ms: 300,
            drain_ms: 2_000,
            keyed_events: 500,
            keyed_keys: 50,
            keyed_ms: 3_000,
            burst_keys: 100,
            burst_rounds: 5,
            patience_ms: 2_000,
            ..Sizes::default()
        }
    }

    /// As Quell's own benchmark calls them.
    #[must_use]
    pub fn of_quell(&self) -> quell_bench::Sizes {
        quell_bench::Sizes {
            jobs: self.jobs,
            keyed_keys: self.keyed_keys,
            keyed_events: self.keyed_events,
            burst_keys: self.burst_keys,
            burst_rounds: self.burst_rounds,
            ..quell_bench::Sizes::default()
        }
    }

    #[must_use]
    pub fn one(&self) -> Duration {
        Duration::from_millis(self.one_ms)
    }
}
