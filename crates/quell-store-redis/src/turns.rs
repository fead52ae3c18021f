//! Turns on sources with a limit: transactions of one process go one after the other.
//!
//! Whoever claims or settles changes the row of such a source, and of those who have read the same row only one can end.
//! The others would have done all their work for nothing, so within a process they wait before they read. This is for
//! speed alone: the versions at the end decide, also between processes, and whoever has waited long enough goes without.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quell_core::source::{Source, SourceId};
use tokio::sync::{Mutex as Gate, OwnedMutexGuard};

use crate::clock;

/// A transaction takes a few milliseconds; this is the time of many, and shorter than due lanes are reserved.
const PATIENCE: Duration = Duration::from_millis(100);

/// Ends when it is dropped.
pub(crate) type Turn = OwnedMutexGuard<()>;

#[derive(Default)]
pub(crate) struct Turns {
    gates: Mutex<HashMap<SourceId, Arc<Gate<()>>>>,
}

impl Turns {
    /// A source was read: from now on those with a limit have turns. The others are hardly ever changed.
    pub(crate) fn learn(&self, source: &Source) {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        if source.rules.per_minute.is_some() {
            gates.entry(source.id).or_default();
        } else {
            gates.remove(&source.id);
        }
    }

    /// Waits for the turn on each of these sources, in their order, so that nobody waits in a circle.
    pub(crate) async fn take(&self, sources: &[SourceId]) -> Vec<Turn> {
        let known: Vec<Arc<Gate<()>>> = {
            let gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
            sources.iter().filter_map(|source| gates.get(source).cloned()).collect()
        };
        let mut turns = Vec::with_capacity(known.len());
        if known.is_empty() {
            return turns;
        }
        let all = async {
            for gate in known {
                turns.push(gate.lock_owned().await);
            }
        };
        tokio::select! {
            () = all => {}
            () = clock::wait(PATIENCE) => {}
        }
        turns
    }
}
