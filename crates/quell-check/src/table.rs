//! The checker's own table of legal moves, written from the contract and not from the engine.
//!
//! A change is a word of the audit trail. A word that is not here is a violation, and so is a known word between two
//! states that the contract does not join by it.

use crate::history::State;

macro_rules! changes {
    ($($variant:ident $word:literal)*) => {
        /// The words of the audit trail.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Change { $($variant),* }

        impl Change {
            pub const ALL: &'static [Change] = &[$(Change::$variant),*];

            pub fn word(self) -> &'static str {
                match self { $(Change::$variant => $word),* }
            }

            pub fn parse(word: &str) -> Option<Change> {
                match word { $($word => Some(Change::$variant),)* _ => None }
            }
        }
    };
}

changes! {
    Claimed "claimed"
    Succeeded "succeeded"
    Retried "retried"
    Failed "failed"
    Exhausted "exhausted"
    Released "released"
    ReleasedCounted "released_counted"
    Reclaimed "reclaimed"
    Expired "expired"
    Paused "paused"
    Resumed "resumed"
    QueuePaused "queue_paused"
    QueueResumed "queue_resumed"
    Flushed "flushed"
    Superseded "superseded"
    Interrupted "interrupted"
    Held "held"
    CancelRequested "cancel_requested"
    Cancelled "cancelled"
    Merged "merged"
    Split "split"
    SplitOff "split_off"
    Redriven "redriven"
    Purged "purged"
    Dropped "dropped"
    Deleted "deleted"
    Edited "edited"
    Erased "erased"
    Blocked "blocked"
    Unblocked "unblocked"
    Restored "restored"
    DuplicateDropped "duplicate_dropped"
    ConflictBuried "conflict_buried"
    SchedulePut "schedule_put"
    ScheduleRemoved "schedule_removed"
    ProbeFaulted "probe_faulted"
    Starved "starved"
    SourceEnabled "source_enabled"
    SourceDisabled "source_disabled"
    SourceReset "source_reset"
    SourceReleased "source_released"
}

impl Change {
    /// Whether the contract knows this move. Changes that concern a lane or queue and no run have no states.
    pub(crate) fn is_legal(self, from: Option<State>, to: Option<State>) -> bool {
        use State::{Cancelled, Failed, Pending, Retryable, Running, Succeeded};
        match (self, from, to) {
            (Change::Claimed, Some(Pending | Retryable), Some(Running)) => true,
            (Change::Succeeded, Some(Running), Some(Succeeded)) => true,
            (Change::Retried | Change::ProbeFaulted, Some(Running), Some(Retryable)) => true,
            (Change::Failed | Change::Exhausted | Change::Expired, Some(Running), Some(Failed)) => true,
            (Change::Released | Change::ReleasedCounted | Change::Starved, Some(Running), Some(Pending)) => {
                true
            }
            (Change::Reclaimed | Change::Restored, Some(Running), Some(Pending)) => true,
            (Change::Superseded | Change::Interrupted, Some(Running), Some(Pending)) => true,
            (Change::Held | Change::CancelRequested, Some(Running), Some(Running)) => true,
            (Change::Cancelled, Some(Pending | Retryable | Running), Some(Cancelled)) => true,
            (Change::Flushed, Some(Pending), Some(Pending)) => true,
            (Change::Flushed, Some(Retryable), Some(Retryable)) => true,
            (Change::Merged, Some(Pending), Some(Cancelled)) => true,
            (Change::Split, Some(Running), Some(Failed)) => true,
            (Change::SplitOff | Change::Redriven, None, Some(Pending)) => true,
            (Change::Purged, Some(Failed | Pending), Some(Cancelled)) => true,
            // Events that were kept aside belong to no run yet.
            (Change::Purged, None, None | Some(Cancelled)) => true,
            (Change::Dropped | Change::Deleted, Some(Pending), Some(Cancelled)) => true,
            (Change::ConflictBuried, None | Some(Pending), Some(Failed)) => true,
            (Change::Blocked, Some(Failed), Some(Failed)) => true,
            (Change::Edited, Some(Pending), Some(Pending)) => true,
            (
                Change::Paused
                | Change::Resumed
                | Change::QueuePaused
                | Change::QueueResumed
                | Change::Blocked
                | Change::Unblocked
                | Change::Edited
                | Change::Erased
                | Change::DuplicateDropped
                | Change::SchedulePut
                | Change::ScheduleRemoved
                | Change::SourceEnabled
                | Change::SourceDisabled
                | Change::SourceReset
                | Change::SourceReleased,
                None,
                None,
            ) => true,
            // An erased or unblocked run stays what it was; some stores say so.
            (Change::Erased | Change::Unblocked, Some(a), Some(b)) => a == b,
            _ => false,
        }
    }

    /// Ends an attempt: the run is no longer held.
    pub(crate) fn ends_attempt(self) -> bool {
        matches!(
            self,
            Change::Succeeded
                | Change::Retried
                | Change::ProbeFaulted
                | Change::Starved
                | Change::Failed
                | Change::Exhausted
                | Change::Released
                | Change::ReleasedCounted
                | Change::Reclaimed
                | Change::Expired
                | Change::Superseded
                | Change::Interrupted
                | Change::Cancelled
                | Change::Split
                | Change::Restored
        )
    }

    /// The attempt did not count.
    pub(crate) fn refunds(self) -> bool {
        matches!(
            self,
            Change::Released
                | Change::Superseded
                | Change::Interrupted
                | Change::ProbeFaulted
                | Change::Starved
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 6] =
        [State::Pending, State::Running, State::Retryable, State::Succeeded, State::Failed, State::Cancelled];

    #[test]
    fn words_are_read_back() {
        for &change in Change::ALL {
            assert_eq!(Change::parse(change.word()), Some(change));
        }
        assert_eq!(Change::parse("vanished"), None);
    }

    #[test]
    fn running_is_entered_only_by_a_claim_and_nothing_leaves_success() {
        for &change in Change::ALL {
            for from in STATES {
                let enters = change.is_legal(Some(from), Some(State::Running)) && from != State::Running;
                assert!(!enters || change == Change::Claimed, "{change:?}");
                for to in STATES.into_iter().filter(|&to| to != State::Succeeded) {
                    assert!(!change.is_legal(Some(State::Succeeded), Some(to)), "{change:?} to {to:?}");
                }
            }
        }
    }
}
