//! The independent checker of histories.
//!
//! It knows the contract and nothing of the engine: it imports none of its crates, so an error in the engine's own
//! tables cannot hide itself here. A recorder outside the system writes what was asked and what was answered
//! ([`history`]); the last record is a dump of the store.
//!
//! # The shape of a history
//!
//! ```text
//! {"idx":1,"process":0,"phase":"ok","op":{"policy":{"queue":"q","window":"none", …}}}
//! {"idx":2,"process":1,"call":1,"phase":"invoke","op":{"append":{"events":[{"queue":"q","lane":"a","id":"e1","hash":17}]}}}
//! {"idx":3,"process":1,"call":1,"phase":"ok","at":1000,"answer":{"appended":{"receipts":[{"id":"e1","seq":2,"run":3}]}}}
//! {"idx":4,"process":2,"call":1,"phase":"invoke","op":{"claim":{"worker":"w"}}}
//! {"idx":5,"process":2,"call":1,"phase":"ok","answer":{"claimed":{"now":1000,"claims":[{"lane":"a","run":3,"token":4, …}]}}}
//! …
//! {"idx":9,"process":0,"phase":"ok","op":{"dump":{"queues":[…],"events":[…],"runs":[…],"audit":[…]}}}
//! ```
//!
//! # What a check is
//!
//! [`check`] goes over a history three times, each time once per record: it joins answers to questions (`index.rs`), ties
//! every event that was delivered or dumped to the append that sent it (`known.rs`), and folds the audit trail of each
//! lane in commit order (`fold.rs`). What the fold ends with is held against the dump, and every answer against the
//! trail (`finish.rs`); what happened to each source is held against a model of one (`sources.rs`). The first broken promise is told with the records that show it; [`Summary`] counts what
//! happened, so that a campaign can demand that everything did ([`Sometimes`]).
//!
//! # What a recorder must give
//!
//! | for | needed |
//! | --- | --- |
//! | S1–S6, S19 (events) | every `append` with its `invoke` before the call; receipts; `claim` answers with `(seq, id, hash)`; the dump's events. Events that the store makes itself (a schedule) are appends without an answer, events of a settle are its `follow_ups` |
//! | S7–S12, S14, S17, S18 (runs) | the whole audit trail in the dump, in commit order; the dump's runs; `claim` answers where they were heard |
//! | S7 (leases), S13 (time) | `at` and `next_at` of audit records, `received_at` of events, `lease_until` of extends, a policy; `own_delay` on settles whose wait is not the queue's backoff, `own_window` on events with a window of their own |
//! | S9, R20 (answers) | `extend`, `hold`, steps and `settle` with all three kinds of answers; `Stale` and `AlreadySettled` told apart; `at` on a refusal that comes more than an hour later |
//! | S11 (bounds) | `bytes` of events where `max_bytes` matters |
//! | S15, S16 | `handler_begin`, `sink_apply` |
//! | S24, S27 | erasures as `control` calls; `backup` and `restore` |
//! | P7 (the equation) | the dump's totals |
//! | G1–G8 (sources) | `source` of events, claims and settles; `source` calls and the operators' hands on sources, with `at` on their answers; a trail without gaps |
//!
//! `upto_seq` of an audit record is the highest event of its run *after* the change; that is how the halves of a split
//! and the two ways of a redrive are told apart. Within a lane, the numbers of events, tokens and audit records must
//! come from one rising sequence: they are the commit order.
//!
//! The checker is strict where the history tells, and silent where it does not: a missing dump, policy or arrival time
//! only means that fewer promises are looked at.

mod fast;
mod finish;
mod fold;
pub mod history;
mod index;
mod known;
mod sometimes;
mod sources;
mod table;
mod tell;
mod violation;

#[cfg(test)]
mod tests;

use history::Record;
pub use sometimes::{Sometimes, Thing};
pub use table::Change;
pub use violation::{Invariant, Violation};

/// What a history that kept every promise contained.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    pub records: usize,
    pub lanes: usize,
    /// Different events that were sent.
    pub events: usize,
    /// Claims in the audit.
    pub claims: usize,
    pub sometimes: Sometimes,
}

/// Checks a history, in the order of the slice. The first violation is returned.
pub fn check(records: &[Record]) -> Result<Summary, Box<Violation>> {
    judged(records).map_err(|fault| Box::new(fault.told(records)))
}

fn judged(records: &[Record]) -> Result<Summary, Box<violation::Fault>> {
    let mut index = index::Index::of(records)?;
    known::check(&mut index)?;
    let mut claims = index.claims.len();
    if let Some(dump) = index.dump {
        let fold = fold::Fold::of(&mut index, &dump.audit)?;
        claims = fold.attempts.len();
        finish::check(fold, dump)?;
    }
    Ok(Summary {
        records: records.len(),
        lanes: index.lanes.len(),
        events: index.events.len(),
        claims,
        sometimes: index.some,
    })
}
