//! Where a run is: its id names its lane, and the number of a lane names the database that made it.
//!
//! Only lanes from before a move are numbered from ranges that no database of the map has. They are remembered when they are
//! claimed, and otherwise looked for in all databases; exactly one of them has it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use quell_core::batch::{Batch, RunId};
use quell_core::error::{ErrorKind, StoreError, StoreResult};

use crate::ManyStore;
use crate::limits::LANES_MAX;

/// Where lanes are, as far as one process remembers it. Forgetting costs a few more questions.
#[derive(Default)]
pub(crate) struct Known(Mutex<HashMap<u64, usize>>);

impl Known {
    fn locked(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
        self.0.lock().expect("no panic happens while it is locked")
    }

    fn lane(&self, lane: u64) -> Option<usize> {
        self.locked().get(&lane).copied()
    }

    fn keep_lane(&self, lane: u64, database: usize) {
        let mut known = self.locked();
        if known.len() >= LANES_MAX {
            known.clear();
        }
        known.insert(lane, database);
    }
}

impl ManyStore {
    /// The databases that may have a lane of this number, the likeliest first.
    pub(crate) fn homes_of(&self, lane: u64) -> Vec<usize> {
        if let Some(birth) = self.map.birth(lane) {
            return vec![birth];
        }
        let known = self.known.lane(lane);
        known.into_iter().chain((0..self.members.len()).filter(|n| Some(*n) != known)).collect()
    }

    /// Remembers where lanes are that their numbers do not tell.
    pub(crate) fn remember(&self, batches: &[Batch], database: usize) {
        for batch in batches.iter().filter(|batch| self.map.birth(batch.run_id.lane).is_none()) {
            self.known.keep_lane(batch.run_id.lane, database);
        }
    }

    /// Asks the database that has a run. One that has not says so in the words of one whose run it is not (any more): those of
    /// the first one are the answer when all say so, unless one could not be asked.
    pub(crate) async fn on_run<T, Asked>(&self, run: RunId, ask: impl Fn(usize) -> Asked) -> StoreResult<T>
    where
        Asked: Future<Output = StoreResult<T>>,
    {
        let mut refused: Option<StoreError> = None;
        for database in self.homes_of(run.lane) {
            match ask(database).await {
                Err(error) if matches!(error.kind, ErrorKind::LostLease | ErrorKind::NotFound) => {
                    refused = refused.or(Some(error));
                }
                Err(error) if error.is_temporary() => refused = Some(error),
                answer => return answer,
            }
        }
        Err(refused.unwrap_or_else(|| StoreError::not_found(run)))
    }
}
