//! The audit trail: one immutable record per change, written in the transaction that makes the change.
//!
//! A record holds ids and codes. Key text, error text and payloads live elsewhere, so that they can be erased while the
//! trail stays whole; a listing joins the names that still exist.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::batch::{RunId, WorkerId};
use crate::clock::Timestamp;
use crate::event::{Key, QueueName, Tenant};
use crate::lifecycle::{Change, RunState};
use crate::outcome::VerdictKind;

/// What changed, as `lane.rs` decides it; the store adds when, where and by whom.
#[derive(Debug, Clone, PartialEq)]
pub struct Move {
    pub change: Change,
    /// The run's number, when the change concerns a run.
    pub run: Option<u64>,
    pub from: Option<RunState>,
    pub to: Option<RunState>,
    pub attempt: u32,
    pub token: u64,
    pub worker: Option<Arc<WorkerId>>,
    pub prior_worker: Option<Arc<WorkerId>>,
    pub upto_seq: u64,
    /// The end of the lease or of the backoff that the change set.
    pub next_at: Option<Timestamp>,
    /// The run this one came from, or went into: see the change.
    pub other_run: Option<u64>,
    /// What the holder said, when the change was made by its word.
    pub verdict: Option<VerdictKind>,
}

/// One record of the trail as it is listed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AuditRecord {
    /// Grows with every record: the cursor of listings.
    pub id: u64,
    pub at: Timestamp,
    pub tenant: Tenant,
    pub queue: QueueName,
    /// Missing when the lane has been removed since, or when the change concerns the whole queue.
    pub key: Option<Key>,
    pub run: Option<RunId>,
    pub change: Change,
    pub from: Option<RunState>,
    pub to: Option<RunState>,
    pub attempt: u32,
    pub token: u64,
    pub worker: Option<String>,
    pub prior_worker: Option<String>,
    pub upto_seq: u64,
    pub next_at: Option<Timestamp>,
    /// The run of the same lane that this one came from, or went into.
    pub other_run: Option<RunId>,
    /// What the holder said, when the change was made by its word.
    pub verdict: Option<VerdictKind>,
    /// The operator, for changes made by hand.
    pub actor: Option<String>,
}
