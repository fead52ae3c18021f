//! Turns on sources with a limit and on lanes that are contended: transactions of one process go one after the other.
//!
//! Whoever claims or settles changes the row of such a source, and of those who have read the same row only one can end.
//! The others would have done all their work for nothing, so within a process they wait before they read. This is for
//! speed alone: the versions at the end decide, also between processes, and whoever has waited long enough goes without.
//!
//! The same with a lane that gets thousands of events a second: it has changed whenever a claim comes to its end, and the other
//! lanes of that claim wait as well. So a lane on which a transaction has failed has turns for a while, too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quell_core::event::LaneKey;
use quell_core::source::{Source, SourceId};
use tokio::sync::{Mutex as Gate, OwnedMutexGuard};
use tokio::time::Instant;

use crate::clock;

/// A transaction takes a few milliseconds; this is the time of many, and shorter than due lanes are reserved.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long a lane has turns after a transaction has failed on it.
const CONTENDED: Duration = Duration::from_secs(2);
/// Lanes that have turns: more than are ever hot at once, and few enough to look through.
const CONTENDED_MAX: usize = 64;

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
        in_order(known).await
    }
}

/// The turns at these gates, or those that were had in time.
async fn in_order(gates: Vec<Arc<Gate<()>>>) -> Vec<Turn> {
    let mut turns = Vec::with_capacity(gates.len());
    if gates.is_empty() {
        return turns;
    }
    let all = async {
        for gate in gates {
            turns.push(gate.lock_owned().await);
        }
    };
    tokio::select! {
        () = all => {}
        () = clock::wait(PATIENCE) => {}
    }
    turns
}

/// A lane on which a transaction has failed.
struct Contended {
    id: u64,
    key: LaneKey,
    gate: Arc<Gate<()>>,
    until: Instant,
}

/// In the order of their numbers, so that nobody waits in a circle.
#[derive(Default)]
pub(crate) struct LaneTurns(Mutex<Vec<Contended>>);

impl LaneTurns {
    /// A transaction has failed because this lane had changed since it was read.
    pub(crate) fn contend(&self, id: u64, key: &LaneKey) {
        let now = clock::now();
        let mut lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|lane| lane.until > now);
        let until = now + CONTENDED;
        match lanes.binary_search_by_key(&id, |lane| lane.id) {
            Ok(known) => lanes[known].until = until,
            Err(_) if lanes.len() >= CONTENDED_MAX => {}
            Err(place) => {
                lanes.insert(place, Contended { id, key: key.clone(), gate: Arc::default(), until })
            }
        }
    }

    /// Waits for the turn on each contended lane that is asked for. Hardly ever is there any.
    pub(crate) async fn take(&self, asked: impl Fn(u64, &LaneKey) -> bool) -> Vec<Turn> {
        let gates = {
            let lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if lanes.is_empty() {
                return Vec::new();
            }
            let now = clock::now();
            let asked = lanes.iter().filter(|lane| lane.until > now && asked(lane.id, &lane.key));
            asked.map(|lane| lane.gate.clone()).collect()
        };
        in_order(gates).await
    }
}

#[cfg(test)]
mod tests {
    use quell_core::event::{Key, QueueName};

    use super::*;

    fn key(name: &str) -> LaneKey {
        LaneKey::new(QueueName::new("chat").unwrap(), Key::new(name).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_has_turns_for_a_while_after_a_transaction_has_failed_on_it() {
        let turns = LaneTurns::default();
        assert!(turns.take(|_, _| true).await.is_empty());
        turns.contend(7, &key("hot"));
        turns.contend(3, &key("warm"));
        let held = turns.take(|id, _| id == 7).await;
        assert_eq!(held.len(), 1);
        assert_eq!(turns.take(|_, other| *other == key("warm")).await.len(), 1, "another lane is nobody's");
        assert!(turns.take(|id, _| id == 7).await.is_empty(), "whoever has waited long enough goes without");
        drop(held);
        assert_eq!(turns.take(|_, _| true).await.len(), 2);
        tokio::time::advance(CONTENDED).await;
        assert!(turns.take(|_, _| true).await.is_empty(), "it was hot");
    }

    #[tokio::test(start_paused = true)]
    async fn lanes_with_turns_are_bounded_and_make_room() {
        let turns = LaneTurns::default();
        (0..2 * CONTENDED_MAX as u64).for_each(|id| turns.contend(id, &key("k")));
        assert_eq!(turns.take(|_, _| true).await.len(), CONTENDED_MAX);
        tokio::time::advance(CONTENDED).await;
        turns.contend(1_000, &key("k"));
        assert_eq!(turns.take(|_, _| true).await.len(), 1);
    }
}
