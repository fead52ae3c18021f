//! The history: what was asked, what was answered, in the order in which somebody outside saw it.
//!
//! A history is a list of [`Record`]s. A call is two records with the same `process` and `call`: an `invoke` that
//! carries the [`Op`] (the question), written *before* the store is asked, and one of
//!
//! - `ok` with an [`Answer`]: it happened;
//! - `fail` with a [`Refusal`]: it definitely did not happen, now or later;
//! - `info`: nobody knows. A call without a second record (its process died, or its line is torn) counts as `info`.
//!
//! Facts (a policy, a handler that began, a sink that accepted, a crash, the final dump) are one record of phase `ok`
//! that carries an [`Op`] and no answer; [`Op::is_fact`] names them.
//!
//! The order of the slice is real time: when the second record of call A stands before the `invoke` of call B, then A
//! was over when B began. Recorders of several processes give every record an `idx` from a clock that all of them share
//! (the boot clock in nanoseconds will do), and [`read`] merges their files by it. Calls may overlap.
//!
//! Names of lanes, queues, events, workers are text, cheap to clone; runs, sequence numbers and tokens are the store's
//! own numbers (a run is named by its number alone, which a store never uses twice). A payload is its hash: any hash,
//! as long as equal payloads have equal ones, and whole histories use the same.

mod dump;
mod name;
mod policy;
mod read;
mod source;

use serde::{Deserialize, Serialize};

pub use dump::{AuditEntry, Dump, DumpEvent, DumpRun, Place, QueueTotals, State, Trail};
pub use name::Name;
pub use policy::{DuringRun, OnFailed, Policy, RetryWith, Window};
pub use read::{ReadError, read_lines, read_processes};
pub use source::{Governed, SourceAnswer, SourceAsk, SourceReport, SourceRules};

/// A moment of the store's own clock, in milliseconds.
pub type Millis = i64;

/// One line of a history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Orders the records of several processes; within one slice the position is what counts.
    #[serde(default)]
    pub idx: u64,
    /// Who wrote it.
    #[serde(default)]
    pub process: u64,
    /// Joins the answer to its question; unique within a process. Facts use 0.
    #[serde(default)]
    pub call: u64,
    pub phase: Phase,
    /// Store time, where the recorder knows it: for an append that was answered, the arrival of its events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Millis>,
    /// The question, on an `invoke`; the whole content, on a fact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<Op>,
    /// On `ok`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
    /// On `fail`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
}

impl Record {
    pub fn invoke(process: u64, call: u64, op: Op) -> Self {
        Record { op: Some(op), ..Record::bare(process, call, Phase::Invoke) }
    }

    pub fn ok(process: u64, call: u64, at: Option<Millis>, answer: Answer) -> Self {
        Record { at, answer: Some(answer), ..Record::bare(process, call, Phase::Ok) }
    }

    pub fn fail(process: u64, call: u64, refusal: Refusal) -> Self {
        Record { refusal: Some(refusal), ..Record::bare(process, call, Phase::Fail) }
    }

    pub fn info(process: u64, call: u64) -> Self {
        Record::bare(process, call, Phase::Info)
    }

    /// Something that is simply so.
    pub fn fact(process: u64, op: Op) -> Self {
        Record { op: Some(op), ..Record::bare(process, 0, Phase::Ok) }
    }

    #[must_use]
    pub fn with_idx(mut self, idx: u64) -> Self {
        self.idx = idx;
        self
    }

    fn bare(process: u64, call: u64, phase: Phase) -> Self {
        Record { idx: 0, process, call, phase, at: None, op: None, answer: None, refusal: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Invoke,
    Ok,
    /// It definitely did not happen.
    Fail,
    /// Nobody knows whether it happened.
    Info,
}

/// What was asked, or what is so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    Append {
        events: Vec<NewEvent>,
    },
    Claim {
        worker: Name,
        /// Chosen by the caller; repeating it returns the same live claims.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        claim_id: Option<Name>,
    },
    Extend {
        run: u64,
        token: u64,
    },
    Hold {
        run: u64,
        token: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        if_head: Option<u64>,
    },
    StepBegin {
        run: u64,
        token: u64,
        revision: u32,
        name: Name,
        /// `step_once`: the intent is recorded before the work.
        #[serde(default)]
        once: bool,
    },
    StepFinish {
        run: u64,
        token: u64,
        revision: u32,
        name: Name,
        /// Hash of the value that the caller would like to be stored.
        value: u64,
    },
    Settle {
        run: u64,
        token: u64,
        verdict: Verdict,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        if_head: Option<u64>,
        /// The wait was chosen by the handler (or the test) and not by the queue's backoff.
        #[serde(default)]
        own_delay: bool,
        /// Events that the settle carries (rule 29).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        follow_ups: Vec<NewEvent>,
        /// What the attempt says of its source.
        #[serde(default, skip_serializing_if = "SourceReport::is_usual")]
        source: SourceReport,
    },
    /// A holder asks something of its run's source.
    Source {
        run: u64,
        token: u64,
        ask: SourceAsk,
    },
    Sweep,
    Control {
        action: Action,
    },
    /// A copy of the store is taken: all that was over before this record is in it. The name is for `Restore`.
    Backup {
        name: Name,
    },

    // Facts.
    /// The settings of a queue, before its first event. A second record for the same queue changes them.
    Policy(Box<Policy>),
    HandlerBegin {
        run: u64,
        token: u64,
        seqs: Vec<u64>,
    },
    HandlerEnd {
        run: u64,
        token: u64,
    },
    /// A fenced resource was asked to apply these events once. It refuses a token below one it has accepted, and
    /// events that it has applied already.
    SinkApply {
        lane: Name,
        token: u64,
        seqs: Vec<u64>,
        accepted: bool,
    },
    /// The process of this record died; its open calls will never be answered.
    Crash,
    Restart,
    /// The store was rolled back to the backup of that name: what was answered since may be gone, but no number that
    /// was ever told may be told again.
    Restore {
        backup: Name,
    },
    /// The whole store, read when nothing else is going on. The last one of a history is judged.
    Dump(Box<Dump>),
}

impl Op {
    /// Facts are one record; all else is a call with an answer.
    pub fn is_fact(&self) -> bool {
        matches!(
            self,
            Op::Policy(_)
                | Op::HandlerBegin { .. }
                | Op::HandlerEnd { .. }
                | Op::SinkApply { .. }
                | Op::Crash
                | Op::Restart
                | Op::Restore { .. }
                | Op::Dump(_)
        )
    }
}

/// An event as its sender knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewEvent {
    /// The owner of the totals: write tenant and queue as one name where there are tenants.
    pub queue: Name,
    pub lane: Name,
    /// The caller's id, or the one that was made for the event before the first try.
    pub id: Name,
    /// Chosen by the caller (then it is an idempotency key), and not made.
    #[serde(default)]
    pub given: bool,
    pub hash: u64,
    #[serde(default)]
    pub bytes: u64,
    /// Kept aside first (a delay, or a caller's transaction): its receipt has no sequence number.
    #[serde(default)]
    pub delayed: bool,
    /// Appended inside a caller's own transaction (rule 28): a known id is only noticed when it enters its lane.
    #[serde(default)]
    pub in_transaction: bool,
    /// It carries a window of its own, so the queue's window says nothing about its run.
    #[serde(default)]
    pub own_window: bool,
    /// Whose limits it waits for.
    #[serde(default, skip_serializing_if = "Governed::is_untold")]
    pub source: Governed,
}

/// One per event of an append, in its order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// The event's id as answered: another one than was sent only under `content_dedupe`.
    pub id: Name,
    /// Missing while the event is kept aside.
    #[serde(default)]
    pub seq: Option<u64>,
    #[serde(default)]
    pub duplicate: bool,
    #[serde(default)]
    pub run: Option<u64>,
}

/// One lane handed to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    pub lane: Name,
    pub run: u64,
    pub token: u64,
    pub attempt: u32,
    pub max_attempts: u32,
    #[serde(default)]
    pub revision: u32,
    pub fired_by: FiredBy,
    #[serde(default)]
    pub head_seq: u64,
    pub lease_until: Millis,
    /// The store's own number of the source that the batch asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<u64>,
    pub events: Vec<Delivered>,
}

/// One event of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    pub seq: u64,
    pub id: Name,
    pub hash: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FiredBy {
    None,
    Fixed,
    Quiet,
    Cap,
    Count,
    Bytes,
    Flush,
    Retry,
    Merge,
    Redrive,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Succeeded,
    Retry,
    Failed,
    Release,
    Interrupted,
    Superseded,
}

/// What happened, for a call that was answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Appended {
        receipts: Vec<Receipt>,
    },
    Claimed {
        /// Store time of the claim.
        now: Millis,
        claims: Vec<Claim>,
    },
    Extended {
        lease_until: Millis,
    },
    Hold(HoldAnswer),
    /// Of both step calls.
    Step(StepAnswer),
    Settled {
        state: State,
        #[serde(default)]
        next_at: Option<Millis>,
        /// The store says that it has given this answer before.
        #[serde(default)]
        repeated: bool,
    },
    Source(SourceAnswer),
    Swept {
        #[serde(default)]
        reclaimed: u64,
        /// Events of finished runs that the retention removed.
        #[serde(default)]
        removed_events: u64,
        #[serde(default)]
        removed_audit: u64,
    },
    Controlled {
        /// False when things already were as asked.
        changed: bool,
    },
    /// A call whose answer holds nothing to check.
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldAnswer {
    Held,
    Superseded,
    Interrupted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepAnswer {
    /// Nothing is stored under this name: do the work.
    Begun,
    /// The hash of what is stored: of a `StepFinish` too, whoever was first.
    Value(u64),
    /// `step_once`: somebody began and nobody finished.
    Unknown,
}

/// Why a call definitely did not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The token does not hold the run.
    Stale,
    /// The token settled the run with another verdict.
    AlreadySettled,
    /// The id is known with another payload.
    Conflict,
    /// A limit, a full lane, a lane that is not idle.
    Limit,
    Unavailable,
    Other,
}

/// An operator's hand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    Flush {
        lane: Name,
    },
    PauseLane {
        lane: Name,
    },
    ResumeLane {
        lane: Name,
    },
    PauseQueue {
        queue: Name,
    },
    ResumeQueue {
        queue: Name,
    },
    /// Ends a block and leaves its run dead.
    Unblock {
        lane: Name,
    },
    Cancel {
        lane: Name,
    },
    RedriveHead {
        lane: Name,
        run: u64,
        /// The events that were asked for; none means all of the run.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        events: Vec<Name>,
    },
    RedriveNew {
        lane: Name,
        run: u64,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        events: Vec<Name>,
    },
    /// Dead, delayed or buffered events of a lane go to discarded.
    Purge {
        lane: Name,
    },
    EraseLane {
        lane: Name,
    },
    EraseEvent {
        lane: Name,
        id: Name,
    },
    /// One buffered event gets another payload.
    Edit {
        lane: Name,
        id: Name,
        hash: u64,
        /// The size of the new payload.
        #[serde(default)]
        bytes: u64,
    },
    /// One buffered event is discarded.
    Delete {
        lane: Name,
        id: Name,
    },
    /// Declares a source for every tenant, or changes what is declared.
    PutSource {
        name: Name,
        rules: SourceRules,
    },
    RemoveSource {
        name: Name,
    },
    /// These four concern one source: its name, with its tenant and a colon before it where it has one.
    EnableSource {
        source: Name,
    },
    DisableSource {
        source: Name,
    },
    ResetSource {
        source: Name,
    },
    ReleaseSource {
        source: Name,
    },
    /// Anything else: schedules.
    Other {
        name: Name,
    },
}
