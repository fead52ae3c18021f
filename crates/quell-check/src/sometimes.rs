//! How often each interesting thing happened: a campaign that never saw them has tested nothing.
//!
//! The counts of many histories are added; [`Sometimes::missing`] names what never happened, so that a campaign can
//! refuse to be called green.

use std::fmt;

use crate::table::Change;

macro_rules! things {
    ($($(#[$doc:meta])* $variant:ident $name:literal)*) => {
        /// Things worth seeing that are not a word of the audit trail.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Thing { $($(#[$doc])* $variant),* }

        impl Thing {
            pub const ALL: &'static [Thing] = &[$(Thing::$variant),*];

            pub fn name(self) -> &'static str {
                match self { $(Thing::$variant => $name),* }
            }
        }
    };
}

things! {
    /// A run was claimed again after its first attempt.
    Redelivery "redelivery"
    /// The second claim was made by another worker.
    ReclaimByAnother "reclaim by another worker"
    StaleSettleRefused "stale settle refused"
    StaleExtendRefused "stale extend refused"
    AlreadySettledRefused "already settled refused"
    SettleRepeated "settle repeated, same answer"
    DuplicateAnswered "duplicate answered"
    ConflictAnswered "conflict answered"
    LimitAnswered "limit answered"
    /// An append with an unknown answer was there in the end.
    UnknownAppendHappened "unknown append happened"
    UnknownAppendDidNot "unknown append did not happen"
    UnknownSettleHappened "unknown settle happened"
    UnknownSettleDidNot "unknown settle did not happen"
    /// A claim whose answer nobody got, found in the audit.
    UnknownClaimHappened "unknown claim happened"
    BatchOfOne "batch of one"
    BatchAtCap "batch at its count"
    BatchOfMany "batch of several"
    LeftOver "events left over by a claim"
    FiredNone "fired by none"
    FiredFixed "fired by fixed"
    FiredQuiet "fired by quiet"
    FiredCap "fired by cap"
    FiredCount "fired by count"
    FiredBytes "fired by bytes"
    FiredFlush "fired by flush"
    FiredRetry "fired by retry"
    FiredMerge "fired by merge"
    FiredRedrive "fired by redrive"
    DelayedAppend "delayed append"
    EventDuringRun "event arrived during a run"
    LeaseLostDuringHandler "lease lost during a handler"
    LeaseExtended "lease extended"
    HoldHeld "hold answered held"
    HoldSuperseded "hold answered superseded"
    HoldInterrupted "hold answered interrupted"
    CancelLostToSuccess "success won over a cancel"
    StepRemembered "step remembered"
    StepUnknown "step answered unknown"
    ClaimRepeated "claim repeated by its id"
    ClaimsOverlapped "two claims overlapped"
    SinkAccepted "sink accepted"
    SinkRefused "sink refused"
    Crash "crash"
    CrashInCall "crash between question and answer"
    Restore "restore"
    LostToRestore "event lost to a restore"
    RedrivenAsNew "redriven as new"
    ClaimGoverned "claim governed by a source"
    TokenTaken "further token taken"
    TokenBack "token given back"
    SilenceAsked "source asked for silence"
    BreakerOpened "breaker opened"
    BreakerClosed "breaker closed by its probe"
    Probed "half-open breaker probed"
    AnswerFetched "answer fetched by one for all"
}

impl Thing {
    /// Those that are seen while the course of a source is followed.
    pub(crate) const OF_SOURCES: [Thing; 8] = [
        Thing::ClaimGoverned,
        Thing::TokenTaken,
        Thing::TokenBack,
        Thing::SilenceAsked,
        Thing::BreakerOpened,
        Thing::BreakerClosed,
        Thing::Probed,
        Thing::AnswerFetched,
    ];
}

const CHANGES: usize = Change::ALL.len();
const THINGS: usize = Thing::ALL.len();

/// The counts, of one history or of many.
#[derive(Clone, PartialEq, Eq)]
pub struct Sometimes {
    changes: [u64; CHANGES],
    things: [u64; THINGS],
}

impl Default for Sometimes {
    fn default() -> Self {
        Sometimes { changes: [0; CHANGES], things: [0; THINGS] }
    }
}

impl Sometimes {
    pub fn of(&self, thing: Thing) -> u64 {
        self.things[thing as usize]
    }

    pub fn of_change(&self, change: Change) -> u64 {
        self.changes[change as usize]
    }

    /// Adds the counts of another history.
    pub fn add(&mut self, other: &Sometimes) {
        self.changes.iter_mut().zip(other.changes).for_each(|(a, b)| *a += b);
        self.things.iter_mut().zip(other.things).for_each(|(a, b)| *a += b);
    }

    /// Everything by name, changes first.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let changes = Change::ALL.iter().map(|&c| (c.word(), self.of_change(c)));
        changes.chain(Thing::ALL.iter().map(|&t| (t.name(), self.of(t))))
    }

    /// What has never happened, except for what the campaign says it cannot reach.
    pub fn missing(&self, unreachable: &[&str]) -> Vec<&'static str> {
        let never = self.counts().filter(|(name, count)| *count == 0 && !unreachable.contains(name));
        never.map(|(name, _)| name).collect()
    }

    pub(crate) fn saw(&mut self, thing: Thing) {
        self.things[thing as usize] += 1;
    }

    pub(crate) fn saw_change(&mut self, change: Change) {
        self.changes[change as usize] += 1;
    }
}

impl fmt::Debug for Sometimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.counts().filter(|(_, count)| *count > 0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_happened_is_named_until_it_does() {
        let mut all = Sometimes::default();
        assert_eq!(all.missing(&[]).len(), CHANGES + THINGS);
        let mut one = Sometimes::default();
        one.saw(Thing::BatchOfOne);
        one.saw_change(Change::Merged);
        all.add(&one);
        all.add(&one);
        assert_eq!((all.of(Thing::BatchOfOne), all.of_change(Change::Merged)), (2, 2));
        assert_eq!(all.missing(&["crash"]).len(), CHANGES + THINGS - 3);
        assert!(!all.missing(&[]).contains(&"merged"));
    }

    #[test]
    fn no_two_things_share_a_name() {
        let names: std::collections::BTreeSet<_> = Sometimes::default().counts().map(|(n, _)| n).collect();
        assert_eq!(names.len(), CHANGES + THINGS);
    }
}
