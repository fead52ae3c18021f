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
    /// What happened.
    pub change: Change,
    /// The run's number, when the change concerns a run.
    pub run: Option<u64>,
    /// The state before, of a run.
    pub from: Option<RunState>,
    /// The state after, of a run.
    pub to: Option<RunState>,
    /// Attempts that were counted so far.
    pub attempt: u32,
    /// The token under which it happened; 0 when nobody held the lane.
    pub token: u64,
    /// Who held the lane.
    pub worker: Option<Arc<WorkerId>>,
    /// Who held it before.
    pub prior_worker: Option<Arc<WorkerId>>,
    /// The newest event that the run had.
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
    /// When, by the clock of the store.
    pub at: Timestamp,
    /// The owner of the key.
    pub tenant: Tenant,
    /// The queue.
    pub queue: QueueName,
    /// Missing when the lane has been removed since, or when the change concerns the whole queue.
    pub key: Option<Key>,
    /// The run that was changed; nothing for changes of a lane, a queue or a declaration.
    pub run: Option<RunId>,
    /// What happened.
    pub change: Change,
    /// The state before, of a run.
    pub from: Option<RunState>,
    /// The state after, of a run.
    pub to: Option<RunState>,
    /// Attempts that were counted so far.
    pub attempt: u32,
    /// The token under which it happened; 0 when nobody held the lane.
    pub token: u64,
    /// Who held the lane, or whose hand it was.
    pub worker: Option<String>,
    /// Who held it before.
    pub prior_worker: Option<String>,
    /// The newest event that the run had.
    pub upto_seq: u64,
    /// The end of the lease or of the backoff that the change set.
    pub next_at: Option<Timestamp>,
    /// The run of the same lane that this one came from, or went into.
    pub other_run: Option<RunId>,
    /// What the holder said, when the change was made by its word.
    pub verdict: Option<VerdictKind>,
    /// The operator, for changes made by hand, and behind a colon the reason if one was given: `token:ops: it is back`.
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
/// [`limits::REASON_CHARS_MAX`]. A name that has a colon and a space in it says its reason already, and gets another one.
pub fn signed(actor: &str, reason: Option<&str>) -> String {
    let one_line = |text: &str| -> String {
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
    };
    match reason.map(one_line).filter(|reason| !reason.is_empty()) {
        Some(reason) => {
            let short: String = reason.chars().take(limits::REASON_CHARS_MAX).collect();
            format!("{actor}{REASON}{short}")
        }
        None => actor.to_owned(),
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
        assert_eq!(parts(&signed("ops: spam", None)), both("ops", "spam"));
        assert_eq!(parts(&signed("ops: spam", Some("again"))), both("ops", "spam: again"));
        assert_eq!(signed("ada", Some(" \n ")), "ada");
        assert_eq!(signed("ada", Some("two\nlines\u{7}")), "ada: two lines");
        assert_eq!(parts(&signed("ada", None)), (Some("ada".to_owned()), None));
        assert_eq!(signed("a", Some(&"ü".repeat(9_000))).chars().count(), limits::REASON_CHARS_MAX + 3);
    }
}
