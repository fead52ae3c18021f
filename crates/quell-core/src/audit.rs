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
use crate::limits;
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
    /// The operator, for changes made by hand, and behind a colon the reason that was given: see [`signed`].
    pub actor: Option<String>,
}

impl AuditRecord {
    /// The operator's name alone.
    pub fn who(&self) -> Option<&str> {
        self.actor.as_deref().map(|actor| actor.split_once(REASON).map_or(actor, |(who, _)| who))
    }

    /// Why the operator did it, if they said so.
    pub fn reason(&self) -> Option<&str> {
        self.actor.as_deref()?.split_once(REASON).map(|(_, reason)| reason)
    }
}

/// Between the operator and the reason.
const REASON: &str = ": ";

/// How an operator is named who says why: `token:ops: the printer is back`.
///
/// Everything that tells who did something, such as who paused a lane, then tells the reason with it. It is one line, cut to
/// [`limits::REASON_CHARS_MAX`]. A name never has the separator in it, so that the two can be told apart again.
pub fn signed(actor: &str, reason: Option<&str>) -> String {
    let one_line = |text: &str| -> String {
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
    };
    let actor = actor.replace(REASON, ":");
    match reason.map(one_line).filter(|reason| !reason.is_empty()) {
        Some(reason) => actor + REASON + &reason.chars().take(limits::REASON_CHARS_MAX).collect::<String>(),
        None => actor,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(actor: &str) -> (Option<String>, Option<String>) {
        let queue = QueueName::new("q").unwrap();
        let record = AuditRecord {
            id: 1,
            at: Timestamp::from_millis(0),
            tenant: Tenant::none(),
            queue,
            key: None,
            run: None,
            change: Change::Flushed,
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
            actor: Some(actor.to_owned()),
        };
        (record.who().map(str::to_owned), record.reason().map(str::to_owned))
    }

    #[test]
    fn who_and_why_are_told_apart_again() {
        let both = |who: &str, why: &str| (Some(who.to_owned()), Some(why.to_owned()));
        assert_eq!(
            parts(&signed("token:ops", Some("the printer: is back"))),
            both("token:ops", "the printer: is back")
        );
        assert_eq!(parts(&signed("ada: the first", Some("x"))), both("ada:the first", "x"));
        assert_eq!(signed("ada", Some(" \n ")), "ada");
        assert_eq!(signed("ada", Some("two\nlines\u{7}")), "ada: two lines");
        assert_eq!(parts(&signed("ada", None)), (Some("ada".to_owned()), None));
        assert_eq!(signed("a", Some(&"ü".repeat(9_000))).chars().count(), limits::REASON_CHARS_MAX + 3);
    }
}
