//! Moving everything from one store to another: what both sides must be able to do.
//!
//! A copy goes lane by lane. A first pass runs while the source is in use; then the source is **sealed** (it refuses every
//! change from then on) and the lanes that have changed meanwhile are copied again, with what belongs to no lane. Rows are
//! put in place of what is there under the same name, so a copy that was cut short is simply continued. Numbers, tokens
//! and leases are taken over as they are: a worker that held a run on the source may settle it on the copy.
//!
//! The driver is `quell::copy`, the command `quell store copy`.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::aside::Aside;
use crate::batch::RunId;
use crate::clock::Timestamp;
use crate::error::{StoreError, StoreResult};
use crate::event::{LaneKey, QueueName, Tenant};
use crate::keys::Keys;
use crate::lane::{Lane, Paused};
use crate::schedule::ScheduleRow;
use crate::shelf::{Document, Shelf};
use crate::source::{CacheRow, Declaration, Source, SourceId};
use crate::store::StepRow;
use crate::tables::Tables;
use crate::totals::Totals;
use crate::working_set::{FinishedRun, Kept, Trail};

/// A store whose content can be read out and put in as it is.
#[async_trait]
pub trait Portable: Send + Sync + 'static {
    /// Who sealed this store, if it is sealed.
    async fn sealed(&self) -> StoreResult<Option<String>>;

    /// Seals the store, or lifts the seal with `None`. When this returns, no change is under way any more, in no process.
    async fn seal(&self, by: Option<&str>) -> StoreResult<()>;

    /// What belongs to no lane, and how much there is of everything.
    async fn frame(&self) -> StoreResult<Frame>;

    /// Lanes in the order of their numbers, those after `after`.
    async fn lanes(&self, after: u64, most: usize) -> StoreResult<Vec<LaneRow>>;

    /// Events of a lane in order, those after `after`, until their payloads reach 4 MiB.
    async fn events(&self, lane: u64, after: u64, most: usize) -> StoreResult<Vec<Kept>>;

    /// Ended runs of a lane by number, those after `after`.
    async fn runs(&self, lane: u64, after: u64, most: usize) -> StoreResult<Vec<FinishedRun>>;

    /// All steps of a run, of every revision.
    async fn steps(&self, run: RunId) -> StoreResult<Vec<StepRow>>;

    /// Events aside in the order of acceptance, those after `after`.
    async fn asides(&self, after: u64, most: usize) -> StoreResult<Vec<Aside>>;

    /// Records of the trail by number, those after `after`. Their keys need not be filled in.
    async fn trail(&self, after: u64, most: usize) -> StoreResult<Vec<Trail>>;

    /// Kept answers of sources by (source, key), those after `after`, until their values reach 4 MiB. Answers that are
    /// over need not be among them. They are worth a request each and nothing more: a copy does not compare them.
    async fn cached(&self, after: Option<(SourceId, String)>, most: usize) -> StoreResult<Vec<CacheRow>>;

    /// Puts rows in place, all of them or none. What is there under the same name is replaced. This and what follows is
    /// allowed on a sealed store.
    async fn put(&self, rows: Vec<Row>) -> StoreResult<()>;

    /// Takes a lane out with everything that belongs to it, except its records in the trail.
    async fn remove_lane(&self, lane: u64) -> StoreResult<()>;

    /// Takes over what belongs to no lane: totals, pauses, schedules, declarations, sources and documents replace those that
    /// are there, and numbers go on after `last_number`. The queues were made by the rows that name them.
    async fn take_frame(&self, frame: &Frame) -> StoreResult<()>;

    /// A word that a copy keeps in its target to find its place again; nothing when there is none.
    async fn place(&self) -> StoreResult<Option<String>>;
    async fn set_place(&self, place: Option<&str>) -> StoreResult<()>;

    /// Where applications keep what is theirs. Unlike by the store's own [`tables`](crate::store::Store::tables) and
    /// [`keys`](crate::store::Store::keys), it can be changed while the store is sealed.
    fn applications(self: Arc<Self>) -> Applications {
        Applications::Nowhere
    }
}

/// The place that a store has for applications.
#[derive(Clone)]
pub enum Applications {
    Tables(Arc<dyn Tables>),
    Keys(Arc<dyn Keys>),
    /// It has none, and so there is nothing of theirs.
    Nowhere,
}

/// One row of a lane, or of none.
#[derive(Debug, Clone)]
pub enum Row {
    Lane(LaneRow),
    /// The lane must be there.
    Event(u64, Kept),
    Run(FinishedRun),
    Step(RunId, StepRow),
    Aside(Aside),
    Trail(Trail),
    Cached(CacheRow),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaneRow {
    pub key: LaneKey,
    pub lane: Lane,
}

/// What belongs to no lane.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    pub now: Timestamp,
    /// The latest number that was given.
    pub last_number: u64,
    pub totals: Vec<(Tenant, QueueName, Totals)>,
    pub pauses: Vec<(QueueName, Option<Tenant>, Paused)>,
    pub schedules: Vec<ScheduleRow>,
    pub declarations: Vec<Declaration>,
    pub sources: Vec<Source>,
    /// By shelf and name, also those that are over and still there.
    pub documents: Vec<(Shelf, Document)>,
    pub counts: Counts,
}

/// How many rows of each kind there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub lanes: u64,
    pub events: u64,
    pub runs: u64,
    pub steps: u64,
    pub aside: u64,
    pub audit: u64,
}

/// The answer of a sealed store to every change; the same words in every store.
pub fn sealed(by: &str) -> StoreError {
    StoreError::unavailable(format!(
        "the store was sealed by {by}: it is being copied, or has been moved; use the copy, or lift the seal with `quell \
         store unseal --force`"
    ))
}
