//! What each store is to reach on a machine with two cores. A ratio is to the raw limit of the same run.

use crate::place::Kind;

pub(crate) struct Targets {
    /// Append, 64 callers, against raw commits of 64 rows.
    pub(crate) callers_of_raw: f64,
    /// Append in bulk, against raw commits of 1,000 rows.
    pub(crate) bulk_of_raw: f64,
    pub(crate) drain: Drain,
    pub(crate) keyed_s: f64,
    pub(crate) start_p50_ms: f64,
    pub(crate) start_p99_ms: f64,
    pub(crate) timer_p99_ms: f64,
}

pub(crate) enum Drain {
    /// Against raw commits of 1,000 rows.
    OfRaw(f64),
    LanesPerSecond(f64),
}

/// The same for all stores.
pub(crate) const BURST_P99_MS: f64 = 50.0;
pub(crate) const WAITING_KEEPS: f64 = 0.80;
pub(crate) const RESIDENT_MB: f64 = 200.0;
/// A claim under another session's open transaction, against one without.
pub(crate) const HELD_TIMES: f64 = 2.0;

/// From the append of an event of another key to its claim, beside a hot one, and what is left of their throughput.
pub(crate) const HOT_START_MS: f64 = 50.0;
pub(crate) const HOT_KEEPS: f64 = 0.95;

/// A hook event, against a process that appends 200 bytes to a file and syncs it.
pub(crate) const HOOK_TIMES: f64 = 3.0;
pub(crate) const HOOK_LOCKED_MS: f64 = 200.0;
pub(crate) const INGEST_MB: f64 = 200.0;

/// Appends through the server, against those in this process.
pub(crate) const HTTP_OF_PROCESS: f64 = 0.6;
pub(crate) const HTTP_P99_MS: f64 = 15.0;

/// A webhook of a chat, beyond one durable append without Quell.
pub(crate) const CHAT_BEYOND_RAW_MS: f64 = 2.0;

impl Targets {
    pub(crate) fn of(kind: Kind) -> Targets {
        match kind {
            Kind::Sqlite => Targets {
                callers_of_raw: 0.15,
                bulk_of_raw: 0.08,
                drain: Drain::OfRaw(0.08),
                keyed_s: 0.85,
                start_p50_ms: 2.0,
                start_p99_ms: 10.0,
                timer_p99_ms: 10.0,
            },
            Kind::Postgres => Targets {
                callers_of_raw: 0.30,
                bulk_of_raw: 0.20,
                drain: Drain::LanesPerSecond(20_000.0),
                keyed_s: 1.2,
                start_p50_ms: 5.0,
                start_p99_ms: 20.0,
                timer_p99_ms: 20.0,
            },
            Kind::Redis => Targets {
                callers_of_raw: 0.25,
                bulk_of_raw: 0.12,
                drain: Drain::LanesPerSecond(15_600.0),
                keyed_s: 1.2,
                start_p50_ms: 3.0,
                start_p99_ms: 15.0,
                timer_p99_ms: 20.0,
            },
        }
    }
}
