//! The way between a process and one database of several: each call to a database leaves, arrives, takes effect there, and its answer
//! comes back, at moments that the world chooses.
//!
//! A store over several databases is one future that makes such calls one after the other. It is polled whenever one of them has
//! moved on; in between others act, and a process that is gone is never polled again: so it dies between two databases.

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

use async_trait::async_trait;
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::event::LaneKey;
use quell_core::inspect::{Inspect, Inspected};
use quell_core::shelf::{ShelfAnswer, ShelfRequest};
use quell_core::store::{
    AppendRequest, Appended, ClaimRequest, Claimed, Control, Controlled, Description, ExtendRequest,
    Extended, Held, HoldRequest, SettleRequest, Settled, SourceAnswer, SourceRequest, StepAnswer,
    StepRequest, Store, SweepRequest, Swept, Wakeups,
};

use crate::call::Subject;
use crate::network::Way;

/// A call to one database.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hop {
    /// Of which call of a process it is a part.
    pub(crate) call: usize,
    pub(crate) database: usize,
    /// It stores events.
    pub(crate) appends: bool,
    pub(crate) noted: Noted,
    stage: Stage,
}

/// What a call did in one database, which the answer of the whole may not tell, or nobody is there to hear.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Noted {
    /// An operator's hand changed something.
    pub(crate) changed: bool,
    pub(crate) removed_audit: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    Leaves,
    Arrived(Way),
    Answered,
    Back,
}

/// What has happened while a future was polled.
#[derive(Debug, Clone, Copy)]
pub(crate) enum News {
    Left(usize),
    /// It took effect.
    Answered(usize),
}

/// All calls to single databases that were ever made, by number.
#[derive(Default)]
pub(crate) struct Wires(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// The call of a process that is being polled.
    polled: usize,
    hops: Vec<Hop>,
    news: Vec<News>,
    noted: Noted,
    met: Vec<(u64, LaneKey)>,
}

impl Wires {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no panic under it")
    }

    /// What is called from now on is a part of this call.
    pub(crate) fn poll_for(&self, call: usize) {
        self.inner().polled = call;
    }

    pub(crate) fn news(&self) -> Vec<News> {
        std::mem::take(&mut self.inner().news)
    }

    pub(crate) fn hop(&self, number: usize) -> Hop {
        self.inner().hops[number]
    }

    /// The question has arrived, or it never will.
    pub(crate) fn arrive(&self, number: usize, way: Way) {
        self.inner().hops[number].stage = Stage::Arrived(way);
    }

    /// The answer has arrived.
    pub(crate) fn come_back(&self, number: usize) {
        self.inner().hops[number].stage = Stage::Back;
    }

    fn leave(&self, database: usize, appends: bool) -> usize {
        let mut inner = self.inner();
        let (number, call) = (inner.hops.len(), inner.polled);
        inner.hops.push(Hop { call, database, appends, noted: Noted::default(), stage: Stage::Leaves });
        inner.news.push(News::Left(number));
        number
    }

    fn answered(&self, number: usize) {
        let mut inner = self.inner();
        inner.hops[number].stage = Stage::Answered;
        inner.hops[number].noted = std::mem::take(&mut inner.noted);
        inner.news.push(News::Answered(number));
    }

    /// What was noted belongs to the call that is answered next.
    fn note(&self, noted: Noted) {
        self.inner().noted = noted;
    }

    /// Which lane has which number, as a database has said, whether anybody hears it or not.
    pub(crate) fn met(&self) -> Vec<(u64, LaneKey)> {
        std::mem::take(&mut self.inner().met)
    }

    fn meet(&self, lanes: impl Iterator<Item = (u64, LaneKey)>) {
        self.inner().met.extend(lanes);
    }

    async fn arrival(&self, number: usize) -> Way {
        poll_fn(|_| match self.hop(number).stage {
            Stage::Arrived(way) => Poll::Ready(way),
            _ => Poll::Pending,
        })
        .await
    }

    async fn return_of(&self, number: usize) {
        poll_fn(|_| match self.hop(number).stage {
            Stage::Back => Poll::Ready(()),
            _ => Poll::Pending,
        })
        .await;
    }
}

/// One database as processes see it.
pub(crate) struct Link {
    pub(crate) database: usize,
    pub(crate) store: Arc<dyn Subject>,
    pub(crate) wires: Arc<Wires>,
}

impl Link {
    async fn cross<T>(
        &self,
        appends: bool,
        call: impl Future<Output = StoreResult<T>> + Send,
    ) -> StoreResult<T> {
        let unknown = || StoreError::new(ErrorKind::Unknown, "the simulated network before one database");
        let hop = self.wires.leave(self.database, appends);
        let way = self.wires.arrival(hop).await;
        match way {
            Way::Refused => return Err(StoreError::unavailable("one simulated database is away")),
            Way::Lost => return Err(unknown()),
            Way::Open | Way::AnswerLost => {}
        }
        let answer = call.await;
        self.wires.answered(hop);
        self.wires.return_of(hop).await;
        if way == Way::AnswerLost { Err(unknown()) } else { answer }
    }
}

#[async_trait]
impl Store for Link {
    async fn append(&self, request: AppendRequest) -> StoreResult<Appended> {
        let lanes: Vec<LaneKey> = request.events.iter().map(|event| event.lane.clone()).collect();
        let appended = async {
            let appended = self.store.append(request).await;
            let receipts = appended.iter().flat_map(|appended| &appended.receipts).zip(lanes);
            self.wires.meet(receipts.filter_map(|(receipt, lane)| Some((receipt.run_id?.lane, lane))));
            appended
        };
        self.cross(true, appended).await
    }

    async fn claim(&self, request: ClaimRequest) -> StoreResult<Claimed> {
        let claimed = async {
            let claimed = self.store.claim(request).await;
            let batches = claimed.iter().flat_map(|claimed| &claimed.batches);
            self.wires.meet(batches.map(|batch| (batch.run_id.lane, batch.lane.clone())));
            let reclaimed = claimed.iter().flat_map(|claimed| &claimed.reclaimed);
            self.wires.meet(reclaimed.map(|lost| (lost.run_id.lane, lost.lane.clone())));
            claimed
        };
        self.cross(false, claimed).await
    }

    async fn extend(&self, request: ExtendRequest) -> StoreResult<Extended> {
        self.cross(false, self.store.extend(request)).await
    }

    async fn hold(&self, request: HoldRequest) -> StoreResult<Held> {
        self.cross(false, self.store.hold(request)).await
    }

    async fn step(&self, request: StepRequest) -> StoreResult<StepAnswer> {
        self.cross(false, self.store.step(request)).await
    }

    async fn source(&self, request: SourceRequest) -> StoreResult<SourceAnswer> {
        self.cross(false, self.store.source(request)).await
    }

    async fn settle(&self, request: SettleRequest) -> StoreResult<Settled> {
        self.cross(false, self.store.settle(request)).await
    }

    async fn shelf(&self, request: ShelfRequest) -> StoreResult<ShelfAnswer> {
        self.cross(false, self.store.shelf(request)).await
    }

    async fn sweep(&self, request: SweepRequest) -> StoreResult<Swept> {
        let swept = async {
            let swept = self.store.sweep(request).await;
            let removed_audit = swept.as_ref().is_ok_and(|swept| swept.removed_audit > 0);
            self.wires.note(Noted { removed_audit, ..Noted::default() });
            swept
        };
        self.cross(false, swept).await
    }

    async fn inspect(&self, request: Inspect) -> StoreResult<Inspected> {
        self.cross(false, self.store.inspect(request)).await
    }

    async fn control(&self, request: Control) -> StoreResult<Controlled> {
        let controlled = async {
            let controlled = self.store.control(request).await;
            let changed = controlled.as_ref().is_ok_and(|controlled| controlled.changed);
            self.wires.note(Noted { changed, ..Noted::default() });
            controlled
        };
        self.cross(false, controlled).await
    }

    fn wakeups(&self) -> Box<dyn Wakeups> {
        self.store.wakeups()
    }

    fn description(&self) -> Description {
        self.store.description()
    }
}
