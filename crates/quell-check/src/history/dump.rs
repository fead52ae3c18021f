//! The dump: the whole store as it tells itself, read once when nothing else is going on.
//!
//! It is the store's own word about the end, against which the answers it gave on the way are held. Erased events are
//! missing from it and only counted as discarded; so are events whose run the retention has removed.

use serde::{Deserialize, Serialize};

use super::{Millis, Name, Verdict};

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Dump {
    /// Everything was worked off before the dump was taken: nothing may be left waiting.
    #[serde(default)]
    pub drained: bool,
    pub queues: Vec<QueueTotals>,
    pub events: Vec<DumpEvent>,
    pub runs: Vec<DumpRun>,
    /// In commit order: the ids rise.
    pub audit: Vec<AuditEntry>,
    /// The retention has removed audit records below this id, so the trail of a run may begin in its middle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit_from: Option<u64>,
    /// Of a store whose databases number from ranges of their own: where each trail begins. Without it `audit_from` is for all numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trails: Vec<Trail>,
}

/// The trail of one database, from which the retention has removed what is below an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trail {
    /// The first number of its range.
    pub range: u64,
    pub audit_from: u64,
}

impl Dump {
    /// Whether what has this number may have happened before the trail begins.
    pub fn is_before_trail(&self, number: u64) -> bool {
        let Some(from) = self.audit_from else { return false };
        let own = self.trails.iter().filter(|trail| trail.range <= number).max_by_key(|trail| trail.range);
        number < own.map_or(from, |trail| trail.audit_from)
    }
}

/// The counters of a queue, as the store keeps them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueTotals {
    pub queue: Name,
    pub accepted: u64,
    pub succeeded: u64,
    pub dead: u64,
    pub discarded: u64,
    pub delayed: u64,
    pub buffered: u64,
    pub in_flight: u64,
}

/// One event that the store still has, in exactly one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpEvent {
    pub queue: Name,
    pub lane: Name,
    /// Missing while it is kept aside.
    #[serde(default)]
    pub seq: Option<u64>,
    pub id: Name,
    pub hash: u64,
    pub place: Place,
    /// The run it waits in, is in, or ended in: after a redrive the new run, after a split the half.
    #[serde(default)]
    pub run: Option<u64>,
    pub received_at: Millis,
    /// It was redriven as new: the number it had before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was_seq: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    Delayed,
    Buffered,
    InFlight,
    Succeeded,
    Dead,
    Discarded,
}

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Pending,
    Running,
    Retryable,
    Succeeded,
    Failed,
    Cancelled,
}

impl State {
    pub fn is_final(self) -> bool {
        matches!(self, State::Succeeded | State::Failed | State::Cancelled)
    }
}

/// One run that the store still knows: open, current, waiting or finished.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DumpRun {
    pub lane: Name,
    pub run: u64,
    pub state: State,
    /// How many events the store counts in it: 0 for a run whose events were taken over (merged, split, redriven).
    #[serde(default)]
    pub count: u64,
    #[serde(default)]
    pub lo: u64,
    #[serde(default)]
    pub hi: u64,
    #[serde(default)]
    pub attempts: u32,
    #[serde(default)]
    pub claims: u32,
    #[serde(default)]
    pub revision: u32,
    /// True only if the store says so; not every store shows it.
    #[serde(default)]
    pub held: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_into: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split_from: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redriven_from: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_at: Option<Millis>,
}

/// One record of the audit trail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditEntry {
    pub id: u64,
    pub at: Millis,
    /// Missing when the change concerns a whole queue, or when the lane is gone.
    #[serde(default)]
    pub lane: Option<Name>,
    #[serde(default)]
    pub run: Option<u64>,
    /// What happened, in the store's own word; a word that the checker does not know is a violation.
    pub change: Name,
    #[serde(default)]
    pub from: Option<State>,
    #[serde(default)]
    pub to: Option<State>,
    #[serde(default)]
    pub attempt: u32,
    #[serde(default)]
    pub token: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prior_worker: Option<Name>,
    /// The highest event of the run after the change.
    #[serde(default)]
    pub upto_seq: u64,
    /// The end of the lease or of the wait that the change set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Millis>,
    /// The other run of a merge, split, redrive, drop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_run: Option<u64>,
    /// Present on changes that a settle made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Name>,
}

impl AuditEntry {
    /// A record with nothing but its place in the trail; recorders and tests fill in what the store tells.
    pub fn new(id: u64, at: Millis, change: impl Into<Name>) -> Self {
        AuditEntry {
            id,
            at,
            lane: None,
            run: None,
            change: change.into(),
            from: None,
            to: None,
            attempt: 0,
            token: 0,
            worker: None,
            prior_worker: None,
            upto_seq: 0,
            next_at: None,
            other_run: None,
            verdict: None,
            actor: None,
        }
    }
}
