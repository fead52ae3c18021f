//! What a database must be able to do: give rows, keep others from changing them, and write all changes at once.
//!
//! A [`Backend`] opens transactions. A transaction ([`Rows`]) first locks lanes, then reads what belongs to them, then
//! gets numbers, then writes: in this order, so that a number that was given later is larger within its lane.
//!
//! Locking may be real (PostgreSQL: row locks) or a promise that is checked at the end (Redis: versions). In both cases
//! a transaction that cannot go on says [`Trouble::Again`] and is begun anew by the verb that began it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use quell_core::aside::Aside;
use quell_core::clock::Timestamp;
use quell_core::error::{StoreError, StoreResult};
use quell_core::event::{EventId, Fingerprint, LaneKey, QueueName, SourceName, Tenant};
use quell_core::inspect::{Inspect, Inspected};
use quell_core::lane::{Lane, Paused};
use quell_core::schedule::ScheduleRow;
use quell_core::shelf::{Document, Shelf};
use quell_core::source::{CacheRow, Declaration, Readiness, Source, SourceId};
use quell_core::store::{Description, Purge, StepRow, Swept, Wakeups};
use quell_core::working_set::{FinishedRun, Kept, LaneSums, Trail};

use crate::changes::Changes;
use quell_core::batch::RunId;

/// Why a transaction did not go on.
#[derive(Debug)]
pub enum Trouble {
    /// Somebody else was faster (a conflict, a deadlock): nothing was done, begin anew.
    Again,
    Store(StoreError),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Trouble::Store(error)
    }
}

pub type RowsResult<T> = Result<T, Trouble>;

/// A database that keeps the rows.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Begins a transaction. The time it tells is the server's.
    async fn begin(&self) -> RowsResult<Box<dyn Rows>>;

    /// Begins a transaction, locks its first lanes, and sets numbers apart that are larger than any in these lanes: in one
    /// round trip where the database can. It may leave the numbers to [`Rows::find`].
    async fn begin_with(&self, first: First<'_>, numbers: usize) -> RowsResult<Begun> {
        let _ = numbers;
        let mut rows = self.begin().await?;
        let lanes = match first {
            First::Keys(keys, patience) => rows.lanes(keys, patience).await?,
            First::Ids(ids, patience) => rows.lanes_by_id(ids, patience).await?,
            First::Due(picks, _) => Lanes { lanes: rows.due(picks).await?, ..Lanes::default() },
        };
        Ok(Begun { rows, lanes, numbers: Vec::new() })
    }

    /// What every queue has waiting, without locking anything. Lanes under a lease need only be counted for a claimer that
    /// is `bounded` by their number.
    async fn outlook(&self, bounded: bool) -> StoreResult<Outlook>;

    /// Reads.
    async fn inspect(&self, request: Inspect) -> StoreResult<Inspected>;

    /// The retention, one bounded step: finished runs that are not dead letters, their events, ids and steps, old audit
    /// records, then lanes to which nothing refers. Adds to `swept`.
    async fn forget(&self, retention: Duration, swept: &mut Swept) -> StoreResult<()>;

    /// Forgets kept answers that are over, [`quell_core::limits::CACHE_SWEEP_STEP`] at the most. True when there are more.
    async fn forget_answers(&self) -> StoreResult<bool>;

    /// All documents of a shelf with the time, also those that are over. A sealed store answers, too.
    async fn documents(&self, shelf: Shelf) -> StoreResult<(Timestamp, Vec<Document>)>;

    /// Forgets documents that are over, [`quell_core::limits::SHELF_SWEEP_STEP`] at the most. True when there are more.
    async fn forget_documents(&self) -> StoreResult<bool>;

    /// Something may be due at this moment (now, when a holder or a sleeper has to look at once): wakes the sleepers of
    /// this process and, apart and coalesced, those of others that would sleep longer.
    fn ring(&self, at: Timestamp);

    /// A claimer of this process is told to look again at this moment, so that only what is due before it need wake it.
    fn sleeps(&self, until: Option<Timestamp>);

    fn wakeups(&self) -> Box<dyn Wakeups>;

    fn description(&self) -> Description;
}

/// What is waiting at one moment.
#[derive(Debug, Clone)]
pub struct Outlook {
    pub now: Timestamp,
    pub queues: Vec<QueueOutlook>,
    /// The sources that lanes of these queues wait for, as they were at this moment.
    pub sources: BTreeMap<SourceId, Source>,
}

impl Outlook {
    /// Whether lanes that wait for this source, or for none, can be handed out now.
    pub fn readiness(&self, source: Option<SourceId>) -> Readiness {
        match source {
            None => Readiness::FREE,
            // One that is not known here yet is seen by the next look.
            Some(id) => self.sources.get(&id).map_or(Readiness::FREE, |source| source.readiness(self.now)),
        }
    }
}

/// What one queue has waiting, by index entries: they may lie before the true times, never behind them.
#[derive(Debug, Clone)]
pub struct QueueOutlook {
    pub tenant: Tenant,
    pub queue: QueueName,
    pub paused: bool,
    /// Lanes under a lease, where they were to be counted.
    pub running: u64,
    /// For each priority with waiting lanes that wait for no source: when its first lane is due.
    pub levels: Vec<(u8, Timestamp)>,
    /// The same for the lanes of each source: so a source that lets nobody go is passed over as a whole, however many lanes
    /// wait for it.
    pub governed: Vec<(SourceId, Vec<(u8, Timestamp)>)>,
    /// When its first lease runs out.
    pub first_lease: Option<Timestamp>,
    /// When the first lease runs out that has not run out yet: for those who may not take any back.
    pub later_lease: Option<Timestamp>,
    /// When its first event aside wants to be looked at.
    pub first_aside: Option<Timestamp>,
    /// When its first schedule fires.
    pub first_fire: Option<Timestamp>,
}

/// How long to wait for a lane that somebody else is changing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Not at all: such lanes are named as busy.
    None,
    /// For as long as an answer may take.
    Answer,
}

/// A lane as it is stored: with its index entries, which may lie before the true times.
#[derive(Debug, Clone)]
pub struct LaneAt {
    pub key: LaneKey,
    pub lane: Box<Lane>,
    pub entries: Entries,
}

/// The values by which a lane is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entries {
    pub due: Option<Timestamp>,
    pub lease: Option<Timestamp>,
    pub priority: u8,
    /// The source that a lane with a due time waits for.
    pub source: Option<SourceId>,
}

impl Entries {
    /// The true values.
    pub fn of(lane: &Lane) -> Self {
        let due = lane.due_at();
        Entries { due, lease: lane.lease_at(), priority: lane.priority(), source: due.and(lane.source()) }
    }

    /// The true values, but an entry that would only move to later stays where it is: the index is not touched, and a
    /// claim that finds the lane too early moves it.
    #[must_use]
    pub fn lazily(self, lane: &Lane) -> Self {
        let new = Entries::of(lane);
        let later = |old: Option<Timestamp>, new: Option<Timestamp>| match (old, new) {
            (Some(old), Some(new)) if old <= new => Some(old),
            (_, new) => new,
        };
        let stays = (self.priority, self.source) == (new.priority, new.source);
        let due = if stays { later(self.due, new.due) } else { new.due };
        Entries { due, lease: later(self.lease, new.lease), ..new }
    }
}

/// The lanes that were found and locked, and the keys or numbers of those that somebody else is changing.
#[derive(Debug, Clone, Default)]
pub struct Lanes {
    pub lanes: Vec<LaneAt>,
    /// Those of [`Rows::lanes`].
    pub busy: Vec<LaneKey>,
    /// Those of [`Rows::lanes_by_id`].
    pub busy_ids: Vec<u64>,
}

/// Due lanes of one queue, source (or none) and priority, in the order of their entries.
#[derive(Debug, Clone)]
pub struct Pick {
    pub tenant: Tenant,
    pub queue: QueueName,
    pub source: Option<SourceId>,
    pub priority: u8,
    pub most: usize,
}

/// Events of a locked lane in order: numbers from `from` to `upto` that carry exactly this mark (or none).
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    pub lane: u64,
    pub from: u64,
    pub upto: u64,
    pub mark: Option<u64>,
    pub most: u64,
    /// Enough when their payloads together reach this many bytes; the event that reaches it is still read.
    pub bytes: Option<u64>,
}

/// Rows that belong to lanes that are locked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Want {
    pub spans: Vec<Span>,
    /// Events by their ids.
    pub ids: Vec<(u64, EventId)>,
    /// The first unmarked event from this number on whose payload has this fingerprint.
    pub contents: Vec<(u64, u64, Fingerprint)>,
    /// Runs that have ended.
    pub runs: Vec<RunId>,
    /// The ended runs to which these events belong (lane, number, mark), among those that still have events.
    pub runs_of: Vec<(u64, u64, Option<u64>)>,
    /// The records in which this token's word ended an attempt of this run (those with a verdict).
    pub said: Vec<(RunId, u64)>,
    /// Events aside by their ids.
    pub aside_ids: Vec<(LaneKey, EventId)>,
    /// The first event aside of each of these lanes, in the order (ready_at, number).
    pub aside_first: Vec<LaneKey>,
    /// All steps of these runs.
    pub steps: Vec<RunId>,
    /// One step, and how many its revision has.
    pub step: Option<(RunId, u32, String)>,
    /// What there is in this lane altogether: to be erased. The number is missing when there is no such lane.
    pub sums: Option<(LaneKey, Option<u64>)>,
    pub schedules: bool,
    pub pauses: bool,
    /// Sources, locked in the order of their numbers, after all lanes.
    pub sources: Vec<SourceId>,
    /// What governs new events of this tenant that name this source: the declaration of the name, and the sources of this
    /// tenant and of none. Not locked; one that is not there stays so until the end, or the end is [`Trouble::Again`].
    pub governing: Vec<(Tenant, SourceName)>,
    /// The declaration of this name and all its sources, locked; and how many declarations there are.
    pub declared: Option<SourceName>,
    /// The answer kept under this key, how many its source has, and which of the others expires first. The source is among
    /// those that are locked.
    pub answer: Option<(SourceId, String)>,
}

/// The answer to [`Want`]. What does not exist is not in it.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// With the lanes they are in. One that was wanted in two ways may be here twice.
    pub events: Vec<(u64, Kept)>,
    pub runs: Vec<FinishedRun>,
    pub said: Vec<Trail>,
    pub aside: Vec<Aside>,
    pub steps: Vec<(RunId, StepRow)>,
    pub step_count: usize,
    pub sums: LaneSums,
    pub schedules: Vec<ScheduleRow>,
    pub pauses: BTreeMap<(QueueName, Option<Tenant>), Paused>,
    pub sources: Vec<Source>,
    pub declarations: Vec<Declaration>,
    /// How many declarations there are altogether.
    pub declared: usize,
    pub answer: Option<CacheRow>,
    /// How many answers its source has; only counted when this one is not there.
    pub answers: usize,
    /// Which of the others expires first.
    pub next_over: Option<String>,
    /// The numbers that were asked for, in rising order.
    pub numbers: Vec<Range<u64>>,
}

/// What a purge could take.
#[derive(Debug, Clone, Default)]
pub struct Purgeable {
    /// Failed runs that have events, the oldest first.
    pub dead: Vec<RunId>,
    pub aside: Vec<Aside>,
    /// Lanes with buffered events.
    pub lanes: Vec<LaneKey>,
}

/// What a transaction locks first.
#[derive(Debug, Clone, Copy)]
pub enum First<'f> {
    /// As [`Rows::lanes`] does.
    Keys(&'f [LaneKey], Patience),
    /// As [`Rows::lanes_by_id`] does.
    Ids(&'f [u64], Patience),
    /// As [`Rows::due`] does; those that were due at this moment, which has been, are enough.
    Due(&'f [Pick], Timestamp),
}

/// A transaction that has locked its first lanes.
pub struct Begun {
    pub rows: Box<dyn Rows>,
    pub lanes: Lanes,
    /// Those that were set apart already, in rising order.
    pub numbers: Vec<Range<u64>>,
}

/// One transaction.
#[async_trait]
pub trait Rows: Send {
    /// The server's time, the same throughout.
    fn now(&self) -> Timestamp;

    /// Locks lanes by key. A key without a lane is not in the answer, and stays without one until the end, or the end
    /// is [`Trouble::Again`].
    async fn lanes(&mut self, keys: &[LaneKey], patience: Patience) -> RowsResult<Lanes>;

    /// Locks lanes by number.
    async fn lanes_by_id(&mut self, ids: &[u64], patience: Patience) -> RowsResult<Lanes>;

    /// Locks lanes whose due entry is not after now, and leaves those alone that somebody else is changing, unless they
    /// have been due for more than [`crate::OVERDUE`]: then it waits for a short while.
    async fn due(&mut self, picks: &[Pick]) -> RowsResult<Vec<LaneAt>>;

    /// Locks lanes of these queues whose lease entry is not after now, the earliest first; leaves busy ones alone.
    async fn expired(&mut self, queues: &[(Tenant, QueueName)], most: usize) -> RowsResult<Vec<LaneAt>>;

    /// Locks the lanes whose current run was claimed under this id. Nobody else asks this for the same id until the end,
    /// or the end is [`Trouble::Again`].
    async fn claimed(&mut self, claim_id: &str) -> RowsResult<Vec<LaneAt>>;

    /// Locks and reads events aside of these queues whose `look_at` is not after now, in the order (look_at, ready_at,
    /// number); leaves alone what somebody else has locked.
    async fn ready(&mut self, queues: &[(Tenant, QueueName)], most: usize) -> RowsResult<Vec<Aside>>;

    /// Locks and reads the schedules of these queues that are due; leaves alone what somebody else has locked.
    async fn fires(&mut self, queues: &[(Tenant, QueueName)]) -> RowsResult<Vec<ScheduleRow>>;

    /// Reads what belongs to locked lanes, and sets at least `numbers` numbers apart, all of them larger than any number
    /// in the locked lanes: so no lane is locked after the call that asks for some. In as few round trips as possible.
    async fn find(&mut self, want: &Want, numbers: usize) -> RowsResult<Found>;

    /// What was read of sources so far counts for nothing: they are read again, with a lock.
    fn unread_sources(&mut self) {}

    /// Locks a place on a shelf. Says what stands there, and how many others of the shelf are live: which need only be
    /// counted when this one is not.
    async fn document(&mut self, shelf: Shelf, name: &str) -> RowsResult<(Option<Document>, usize)>;

    /// Reads what a purge could take, without locking.
    async fn purgeable(&mut self, purge: &Purge, most: usize) -> RowsResult<Purgeable>;

    /// How many lanes of this queue are under a lease; nobody else changes that until the end.
    async fn running(&mut self, tenant: &Tenant, queue: &QueueName) -> RowsResult<u64>;

    /// Writes everything and commits. Nothing of it is seen by anybody before all of it is.
    async fn commit(self: Box<Self>, changes: Changes) -> RowsResult<()>;

    /// Ends it without a trace.
    async fn rollback(self: Box<Self>);
}
