//! The states of a run and the legal moves between them, as one table.
//!
//! ```text
//!             append                  due & claimed               settle succeeded
//!    idle ───────────▶ pending ───────────────────▶ running ─────────────────────▶ idle (or pending, if newer events)
//!                         ▲  ▲                        │ │ │
//!    newer events exist ──┘  │  due again             │ │ └─ settle failed ─▶ dead letter; lane: continue | block | bisect
//!                            └──────── retryable ◀────┘ │      (retry: after backoff, same batch or merged with newer)
//!                            └──────── gave way ◀───────┤      (interrupted or superseded: attempt refunded, merged)
//!                            └──────── reclaimed ◀──────┘      (lease ran out; prior owner recorded; attempt counted)
//! ```
//!
//! [`MOVES`] is the whole truth: a move that is not in it is refused by [`next`], and `lane.rs` takes no other way to
//! change a state. The history of a run is the list of its moves in the audit. A run that ended stays as it is, with one
//! exception made by hand: a purge turns a dead letter into a discarded run. A redrive makes a new run.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The state of a run as people see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum RunState {
    /// Collecting events, or waiting to be claimed (again).
    Pending,
    /// Held by a worker under a lease.
    Running,
    /// Waiting for its backoff to end; the lane is not claimable before that.
    Retryable,
    /// Its work is done.
    Succeeded,
    /// Its events are in the dead letter.
    Failed,
    /// Somebody did not want it any more; its events are discarded.
    Cancelled,
}

impl RunState {
    /// All of them, in the order of a life.
    pub const ALL: [RunState; 6] = [
        RunState::Pending,
        RunState::Running,
        RunState::Retryable,
        RunState::Succeeded,
        RunState::Failed,
        RunState::Cancelled,
    ];

    /// The word in JSON and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            RunState::Pending => "pending",
            RunState::Running => "running",
            RunState::Retryable => "retryable",
            RunState::Succeeded => "succeeded",
            RunState::Failed => "failed",
            RunState::Cancelled => "cancelled",
        }
    }

    /// Whether nothing happens to it any more, except a redrive.
    pub fn is_final(self) -> bool {
        matches!(self, RunState::Succeeded | RunState::Failed | RunState::Cancelled)
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What happened to a run, or to a lane, a queue or a source by an operator's hand. The order is part of the file format: new ones
/// only at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Change {
    /// A worker took it under a lease.
    Claimed,
    /// The handler said it is done.
    Succeeded,
    /// The handler asked for another try.
    Retried,
    /// The handler said it can never work.
    Failed,
    /// The last attempt asked for another try.
    Exhausted,
    /// The holder handed it back and the attempt was refunded.
    Released,
    /// The holder handed it back too often: the attempt counts.
    ReleasedCounted,
    /// The lease ran out and attempts are left.
    Reclaimed,
    /// The lease ran out on the last attempt.
    Expired,
    /// A lane is not handed over until somebody resumes it.
    Paused,
    /// The pause of a lane is over.
    Resumed,
    /// A queue is not handed over until somebody resumes it.
    QueuePaused,
    /// The pause of a queue is over.
    QueueResumed,
    /// A window was closed, or a backoff ended, by hand.
    Flushed,
    /// The run gave way to newer events at the holder's gate; the attempt was refunded.
    Superseded,
    /// The holder acknowledged that newer events interrupted it; the attempt was refunded.
    Interrupted,
    /// The holder passed its point of no return: the batch is frozen.
    Held,
    /// An operator asked the holder to stop.
    CancelRequested,
    /// An operator ended it; its events are discarded.
    Cancelled,
    /// Its events were taken in by the run that waited before it.
    Merged,
    /// It failed and was halved; its events are in the halves.
    Split,
    /// One half of a run that was split.
    SplitOff,
    /// Made of the events of a run that had ended.
    Redriven,
    /// An operator discarded what was dead, delayed or buffered.
    Purged,
    /// A full lane dropped its oldest buffered events.
    Dropped,
    /// An operator deleted one buffered event.
    Deleted,
    /// An operator changed the payload of one buffered event.
    Edited,
    /// Payloads, key text, steps and ids were deleted for good.
    Erased,
    /// The lane waits for an operator because a run failed.
    Blocked,
    /// A lane waits no longer for its failed run.
    Unblocked,
    /// A restored backup voided the lease.
    Restored,
    /// An event from aside was already in its lane.
    DuplicateDropped,
    /// An event from aside used a known id with another payload: it went to the dead letter.
    ConflictBuried,
    /// A schedule was made or changed.
    SchedulePut,
    /// A schedule was removed.
    ScheduleRemoved,
    /// It was to find out whether its source works again, and it does not; the attempt was refunded.
    ProbeFaulted,
    /// The holder handed it back because its source had no token for it; the attempt was refunded.
    Starved,
    /// An operator lets the keys of a source go.
    SourceEnabled,
    /// An operator holds the keys of a source.
    SourceDisabled,
    /// An operator closed the breaker of a source, filled its bucket and forgot its answers.
    SourceReset,
    /// An operator lets the keys of a source that is not declared any more go ungoverned.
    SourceReleased,
}

impl Change {
    /// All of them.
    pub const ALL: [Change; 41] = [
        Change::Claimed,
        Change::Succeeded,
        Change::Retried,
        Change::Failed,
        Change::Exhausted,
        Change::Released,
        Change::ReleasedCounted,
        Change::Reclaimed,
        Change::Expired,
        Change::Paused,
        Change::Resumed,
        Change::QueuePaused,
        Change::QueueResumed,
        Change::Flushed,
        Change::Superseded,
        Change::Interrupted,
        Change::Held,
        Change::CancelRequested,
        Change::Cancelled,
        Change::Merged,
        Change::Split,
        Change::SplitOff,
        Change::Redriven,
        Change::Purged,
        Change::Dropped,
        Change::Deleted,
        Change::Edited,
        Change::Erased,
        Change::Blocked,
        Change::Unblocked,
        Change::Restored,
        Change::DuplicateDropped,
        Change::ConflictBuried,
        Change::SchedulePut,
        Change::ScheduleRemoved,
        Change::ProbeFaulted,
        Change::Starved,
        Change::SourceEnabled,
        Change::SourceDisabled,
        Change::SourceReset,
        Change::SourceReleased,
    ];

    /// The word in JSON and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Change::Claimed => "claimed",
            Change::Succeeded => "succeeded",
            Change::Retried => "retried",
            Change::Failed => "failed",
            Change::Exhausted => "exhausted",
            Change::Released => "released",
            Change::ReleasedCounted => "released_counted",
            Change::Reclaimed => "reclaimed",
            Change::Expired => "expired",
            Change::Paused => "paused",
            Change::Resumed => "resumed",
            Change::QueuePaused => "queue_paused",
            Change::QueueResumed => "queue_resumed",
            Change::Flushed => "flushed",
            Change::Superseded => "superseded",
            Change::Interrupted => "interrupted",
            Change::Held => "held",
            Change::CancelRequested => "cancel_requested",
            Change::Cancelled => "cancelled",
            Change::Merged => "merged",
            Change::Split => "split",
            Change::SplitOff => "split_off",
            Change::Redriven => "redriven",
            Change::Purged => "purged",
            Change::Dropped => "dropped",
            Change::Deleted => "deleted",
            Change::Edited => "edited",
            Change::Erased => "erased",
            Change::Blocked => "blocked",
            Change::Unblocked => "unblocked",
            Change::Restored => "restored",
            Change::DuplicateDropped => "duplicate_dropped",
            Change::ConflictBuried => "conflict_buried",
            Change::SchedulePut => "schedule_put",
            Change::ScheduleRemoved => "schedule_removed",
            Change::ProbeFaulted => "probe_faulted",
            Change::Starved => "starved",
            Change::SourceEnabled => "source_enabled",
            Change::SourceDisabled => "source_disabled",
            Change::SourceReset => "source_reset",
            Change::SourceReleased => "source_released",
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Every legal move of a run: from, what happened, to.
pub const MOVES: [(RunState, Change, RunState); 31] = [
    (RunState::Pending, Change::Claimed, RunState::Running),
    (RunState::Retryable, Change::Claimed, RunState::Running),
    (RunState::Running, Change::Succeeded, RunState::Succeeded),
    (RunState::Running, Change::Retried, RunState::Retryable),
    (RunState::Running, Change::Failed, RunState::Failed),
    (RunState::Running, Change::Exhausted, RunState::Failed),
    (RunState::Running, Change::Released, RunState::Pending),
    (RunState::Running, Change::ReleasedCounted, RunState::Pending),
    (RunState::Running, Change::Reclaimed, RunState::Pending),
    (RunState::Running, Change::Expired, RunState::Failed),
    // A flush closes the window of an open run, or ends the wait of one that was handed back.
    (RunState::Pending, Change::Flushed, RunState::Pending),
    // A flush ends the backoff; the run stays retryable and is due now.
    (RunState::Retryable, Change::Flushed, RunState::Retryable),
    (RunState::Running, Change::Superseded, RunState::Pending),
    (RunState::Running, Change::Interrupted, RunState::Pending),
    (RunState::Running, Change::Restored, RunState::Pending),
    (RunState::Running, Change::ProbeFaulted, RunState::Retryable),
    (RunState::Running, Change::Starved, RunState::Pending),
    (RunState::Running, Change::Held, RunState::Running),
    (RunState::Running, Change::CancelRequested, RunState::Running),
    (RunState::Running, Change::Cancelled, RunState::Cancelled),
    (RunState::Pending, Change::Cancelled, RunState::Cancelled),
    (RunState::Retryable, Change::Cancelled, RunState::Cancelled),
    (RunState::Running, Change::Split, RunState::Failed),
    // An open run whose events went elsewhere: into the run before it, or out of the lane.
    (RunState::Pending, Change::Merged, RunState::Cancelled),
    (RunState::Pending, Change::Purged, RunState::Cancelled),
    (RunState::Pending, Change::Dropped, RunState::Cancelled),
    (RunState::Pending, Change::Deleted, RunState::Cancelled),
    (RunState::Pending, Change::Edited, RunState::Pending),
    // A conflicting event from aside goes straight to the dead letter.
    (RunState::Pending, Change::ConflictBuried, RunState::Failed),
    // The only moves out of a final state: a dead letter that is purged, and a failed run that blocks its lane.
    (RunState::Failed, Change::Purged, RunState::Cancelled),
    (RunState::Failed, Change::Blocked, RunState::Failed),
];

/// The state after `change`, or nothing when the move is not legal.
pub fn next(from: RunState, change: Change) -> Option<RunState> {
    MOVES.iter().find(|(f, c, _)| *f == from && *c == change).map(|(_, _, to)| *to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_purge_leaves_a_final_state() {
        for from in RunState::ALL.into_iter().filter(|s| s.is_final()) {
            for change in Change::ALL {
                if from == RunState::Failed && matches!(change, Change::Purged | Change::Blocked) {
                    continue;
                }
                assert_eq!(next(from, change), None, "{from} must stay, whatever happens ({change})");
            }
        }
    }

    #[test]
    fn a_move_has_one_answer_and_running_is_entered_only_by_a_claim() {
        for (i, a) in MOVES.iter().enumerate() {
            assert!(MOVES[i + 1..].iter().all(|b| (a.0, a.1) != (b.0, b.1)), "two answers for {a:?}");
            assert!(a.2 != RunState::Running || a.1 == Change::Claimed || a.0 == RunState::Running);
        }
    }

    #[test]
    fn names_are_unique_and_stable() {
        let names: std::collections::BTreeSet<_> = Change::ALL.iter().map(|c| c.as_str()).collect();
        assert_eq!(names.len(), Change::ALL.len());
        for state in RunState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        for change in Change::ALL {
            assert_eq!(serde_json::to_value(change).unwrap(), change.as_str());
        }
    }
}
