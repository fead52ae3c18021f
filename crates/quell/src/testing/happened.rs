//! What a rehearsal has seen, as data that tests compare and people read.

use std::sync::Arc;
use std::time::Duration;

use quell_core::batch::{Batch, RunId};
use quell_core::event::{EventId, LaneKey};
use quell_core::lane::Met;
use quell_core::lifecycle::{Change, RunState};

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Happened {
    /// How long after the beginning.
    pub at: Duration,
    /// Whose event or run it is; nothing for what concerns a queue, a source or a worker.
    pub lane: Option<LaneKey>,
    /// What it was.
    pub what: What,
}

/// What can happen.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// An event was stored.
    Appended {
        /// Its id.
        event: EventId,
        /// The run that it waits in; nothing while it is kept aside.
        run: Option<RunId>,
        /// What its key was doing.
        met: Option<Met>,
        /// When the run is due as things stand, or when a delayed event enters its lane.
        due: Option<Duration>,
        /// Its id was known: nothing was stored.
        duplicate: bool,
    },
    /// Events were refused, all of the call.
    Refused {
        /// Why, in one word.
        kind: &'static str,
        /// Why, in a sentence.
        error: String,
    },
    /// An event came that nobody sent at this moment: from a schedule, after its delay, as a notice or as follow-up work.
    Entered {
        /// Its id.
        event: EventId,
    },
    /// A worker got a batch.
    Claimed {
        /// The batch.
        batch: Arc<Batch>,
        /// Who got it.
        worker: String,
    },
    /// The attempt ended, by the word of its worker.
    Ended(EndSeen),
    /// A worker was not heard of for a lease: its run was taken back.
    LeaseLost {
        /// Which run.
        run: RunId,
        /// Where it is now.
        state: RunState,
        /// Who had it.
        worker: Option<String>,
    },
    /// Somebody steered by hand.
    Hand {
        /// Which action, by its word: `flush`, `pause_queue`.
        action: &'static str,
        /// The queue, source or schedule, where it is not a lane.
        of: Option<String>,
        /// Who.
        actor: String,
        /// Whether anything changed.
        changed: bool,
        /// Events that it concerned.
        events: u64,
    },
    /// Something about a worker.
    Worker {
        /// Its name.
        worker: String,
        /// What.
        news: WorkerNews,
    },
}

/// What can happen to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerNews {
    /// It began.
    Started,
    /// It is gone without a word.
    Crashed,
    /// It finished what it did.
    Stopped,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub struct EndSeen {
    /// Which run.
    pub run: RunId,
    /// The claim that it ends.
    pub token: u64,
    /// When, after the beginning.
    pub at: Duration,
    /// What became of it.
    pub change: Change,
    /// The state of the run since.
    pub state: RunState,
    /// When it is tried again.
    pub next: Option<Duration>,
    /// What the handler said was wrong.
    pub error: Option<String>,
}

/// A batch that a handler got.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchSeen {
    /// When, after the beginning.
    pub at: Duration,
    /// Its events, its attempt, and why it was handed over.
    pub batch: Arc<Batch>,
    /// Who got it.
    pub worker: String,
    /// How the attempt ended; nothing while it runs, or when its worker was lost.
    pub end: Option<EndSeen>,
}

impl BatchSeen {
    /// The handler has done it.
    pub fn has_succeeded(&self) -> bool {
        self.ended_with(Change::Succeeded)
    }

    /// It is tried again.
    pub fn was_retried(&self) -> bool {
        self.ended_with(Change::Retried)
    }

    /// It went to the dead letter, by the word of the handler or after its last attempt.
    pub fn is_dead(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.state == RunState::Failed)
    }

    fn ended_with(&self, change: Change) -> bool {
        self.end.as_ref().is_some_and(|end| end.change == change)
    }

    /// How long its first event waited for the handler.
    pub fn waited(&self) -> Duration {
        self.batch.claimed_at.since(self.batch.first_at)
    }
}

/// The batches among what happened.
pub(super) fn batches(happened: &[Happened]) -> Vec<BatchSeen> {
    let mut seen: Vec<BatchSeen> = Vec::new();
    for one in happened {
        match &one.what {
            What::Claimed { batch, worker } => {
                let (batch, worker) = (batch.clone(), worker.clone());
                seen.push(BatchSeen { at: one.at, batch, worker, end: None });
            }
            What::Ended(end) => {
                let claim =
                    seen.iter_mut().rev().find(|s| s.batch.token == end.token && s.batch.run_id == end.run);
                if let Some(claim) = claim {
                    claim.end.get_or_insert_with(|| end.clone());
                }
            }
            _ => {}
        }
    }
    seen
}
