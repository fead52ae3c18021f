//! Short ways to say what a child asks for.

use std::time::Duration;

use quell_core::batch::Batch;
use quell_core::event::{EventId, Key, LaneKey, QueueName};
use quell_core::outcome::Verdict;
use quell_core::store::{ExtendRequest, HoldRequest, SettleRequest, StepAction, StepRequest};

/// A queue by its name.
pub fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("test queues have good names")
}

/// The lane of a key without tenant.
pub fn lane(queue_name: &str, key: &str) -> LaneKey {
    LaneKey::new(queue(queue_name), Key::new(key).expect("test keys are good keys"))
}

/// An event's id.
pub fn id(text: &str) -> EventId {
    EventId::new(text).expect("test ids are good ids")
}

/// Ends a run.
pub fn settle_request(batch: &Batch, verdict: Verdict) -> SettleRequest {
    SettleRequest::new(batch.run_id, batch.token, verdict)
}

/// Asks for a longer lease.
pub fn extend_request(batch: &Batch, lease: Duration) -> ExtendRequest {
    ExtendRequest { run_id: batch.run_id, token: batch.token, lease }
}

/// Asks at the gate.
pub fn hold_request(batch: &Batch, if_head: Option<u64>) -> HoldRequest {
    HoldRequest { run_id: batch.run_id, token: batch.token, if_head }
}

/// A step of a run.
pub fn step_request(batch: &Batch, name: &str, action: StepAction) -> StepRequest {
    StepRequest { run_id: batch.run_id, token: batch.token, name: name.into(), action }
}
