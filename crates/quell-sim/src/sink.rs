//! A fenced resource outside: what a careful handler writes to, with its token.
//!
//! It refuses a token below one that it has accepted, and it knows what it has applied. This is how the promise of one
//! effect per event is made on top of handlers that run at least once.

use std::collections::{BTreeMap, BTreeSet};

use quell_check::history::Name;

#[derive(Debug, Default)]
pub(crate) struct Sink(BTreeMap<Name, Applied>);

#[derive(Debug, Default)]
struct Applied {
    top: u64,
    seqs: BTreeSet<u64>,
}

impl Sink {
    /// Which of these are applied now, and which were before; nothing when the token is stale.
    pub(crate) fn apply(&mut self, lane: &Name, token: u64, seqs: &[u64]) -> Option<(Vec<u64>, Vec<u64>)> {
        let applied = self.0.entry(lane.clone()).or_default();
        if token < applied.top {
            return None;
        }
        applied.top = token;
        Some(seqs.iter().partition(|seq| applied.seqs.insert(**seq)))
    }
}
