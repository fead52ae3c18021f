//! What tests of pages begin with.

use quell::quell_core::audit::AuditRecord;
use quell::quell_core::batch::RunId;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::{Key, LaneKey, QueueName, Tenant};
use quell::quell_core::inspect::{RunLinks, RunRow};
use quell::quell_core::lifecycle::{Change, RunState};

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

/// What the trail says of a run of queue `q` at this moment: the first attempt, under the token 1 and by `w1`.
pub(super) fn audit_record(at: Timestamp, change: Change, from: RunState, to: RunState) -> AuditRecord {
    AuditRecord {
        id: 1,
        at,
        tenant: Tenant::none(),
        queue: QueueName::new("q").unwrap(),
        key: None,
        run: None,
        change,
        from: Some(from),
        to: Some(to),
        attempt: 1,
        token: 1,
        worker: Some("w1".to_owned()),
        prior_worker: None,
        upto_seq: 0,
        next_at: None,
        other_run: None,
        verdict: None,
        actor: None,
    }
}
