//! What tests of pages begin with.

use quell::quell_core::batch::RunId;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::{Key, LaneKey, QueueName};
use quell::quell_core::inspect::{RunLinks, RunRow};
use quell::quell_core::lifecycle::RunState;

/// A run of two events after one attempt, of the key `k`, at which everything happened at one moment and which nothing ended.
pub(super) fn run_row(queue: &str, state: RunState, at: Timestamp) -> RunRow {
    RunRow {
        id: RunId { lane: 1, number: 2 },
        lane: LaneKey::new(QueueName::new(queue).unwrap(), Key::new("k").unwrap()),
        state,
        events: 2,
        bytes: 2,
        lo: 1,
        hi: 2,
        attempts: 1,
        claims: 1,
        retries: 0,
        interrupts: 0,
        revision: 0,
        priority: 4,
        token: 1,
        fired_by: None,
        worker: None,
        created_at: at,
        last_at: at,
        claimed_at: None,
        heartbeat_at: None,
        lease_until: None,
        next_at: None,
        updated_at: at,
        completed_at: None,
        error: None,
        links: RunLinks::default(),
    }
}
