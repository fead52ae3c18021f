//! The memory store, with a book of what was asked and answered.
//!
//! It changes nothing. What enters a lane without being sent (a schedule, a delay that is over, a notice) is not asked for by
//! anybody, so it is found in the first batch that has it, and written at the moment at which it came.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use quell_core::clock::Timestamp;
use quell_core::error::StoreResult;
use quell_core::event::LaneKey;
use quell_core::inspect::{Inspect, Inspected};
use quell_core::lifecycle::Change;
use quell_core::memory::MemoryStore;
use quell_core::shelf::{ShelfAnswer, ShelfRequest};
use quell_core::store::{
    AppendRequest, Appended, ClaimRequest, Claimed, Control, ControlAction, Controlled, Description,
    ExtendRequest, Extended, Held, HoldAnswer, HoldRequest, Reclaimed, SettleRequest, Settled, SourceAnswer,
    SourceRequest, StepAnswer, StepRequest, Store, SweepRequest, Swept, Wakeups,
};
use tokio::sync::watch;

use super::happened::{EndSeen, Happened, What};
use crate::clock::{SteppedTime, Time};

/// Things that are remembered; then the oldest are forgotten. A rehearsal of a million events is another kind of test.
const HAPPENED_MAX: usize = 1_000_000;

pub(super) struct Watched {
    inner: MemoryStore,
    time: Arc<SteppedTime>,
    begins: Timestamp,
    book: Mutex<Book>,
    news: watch::Sender<()>,
}

#[derive(Default)]
struct Book {
    happened: VecDeque<Happened>,
    /// Events whose arrival is in the book, by the numbers of their lane and of their own.
    arrived: BTreeSet<(u64, u64)>,
    /// Whose claims are under way, by token.
    claimed: BTreeMap<u64, LaneKey>,
    /// The names of lanes by their numbers.
    lanes: BTreeMap<u64, LaneKey>,
}

impl Book {
    fn write(&mut self, at: Duration, lane: Option<LaneKey>, what: What) {
        if self.happened.len() == HAPPENED_MAX {
            self.happened.pop_front();
        }
        // Nearly always at the end; what entered by itself is found later than it came.
        let place = self.happened.iter().rposition(|known| known.at <= at).map_or(0, |place| place + 1);
        self.happened.insert(place, Happened { at, lane, what });
    }
}

impl Watched {
    pub(super) fn new(inner: MemoryStore, time: Arc<SteppedTime>, begins: Timestamp) -> Self {
        Watched { inner, time, begins, book: Mutex::default(), news: watch::Sender::new(()) }
    }

    /// Since the beginning. Only inside the runtime, whose clock it is.
    pub(super) fn now(&self) -> Duration {
        self.since(self.time.wall())
    }

    pub(super) fn happened(&self) -> Vec<Happened> {
        self.book().happened.iter().cloned().collect()
    }

    /// Rings whenever something was changed.
    pub(super) fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    pub(super) fn tell(&self, lane: Option<LaneKey>, what: What) {
        let now = self.now();
        self.book().write(now, lane, what);
        self.news.send_replace(());
    }

    fn since(&self, moment: Timestamp) -> Duration {
        moment.since(self.begins)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("no panic happens while the book is locked")
    }

    fn lost(&self, reclaimed: &[Reclaimed]) {
        for lost in reclaimed {
            self.book().claimed.remove(&lost.token);
            let worker = lost.worker.as_ref().map(|worker| worker.name.clone());
            let what = What::LeaseLost { run: lost.run_id, state: lost.state, worker };
            self.tell(Some(lost.lane.clone()), what);
        }
    }

    fn claims(&self, request: &ClaimRequest, claimed: &Claimed) {
        self.lost(&claimed.reclaimed);
        for batch in &claimed.batches {
            let mut book = self.book();
            for event in &batch.events {
                if book.arrived.insert((batch.run_id.lane, event.seq)) {
                    let what = What::Entered { event: event.id.clone() };
                    book.write(self.since(event.received_at), Some(batch.lane.clone()), what);
                }
            }
            book.claimed.insert(batch.token, batch.lane.clone());
            book.lanes.insert(batch.run_id.lane, batch.lane.clone());
            drop(book);
            let worker = request.worker.name.clone();
            let what = What::Claimed { batch: Arc::new(batch.clone()), worker };
            self.tell(Some(batch.lane.clone()), what);
        }
    }
}

#[async_trait]
impl Store for Watched {
    async fn append(&self, request: AppendRequest) -> StoreResult<Appended> {
        let lanes: Vec<LaneKey> = request.events.iter().map(|event| event.lane.clone()).collect();
        let answer = self.inner.append(request).await;
        match &answer {
            Ok(appended) => {
                for (lane, receipt) in lanes.into_iter().zip(&appended.receipts) {
                    if let (Some(run), Some(seq)) = (receipt.run_id, receipt.seq) {
                        self.book().arrived.insert((run.lane, seq));
                    }
                    let what = What::Appended {
                        event: receipt.event_id.clone(),
                        run: receipt.run_id,
                        met: receipt.met,
                        due: receipt.due_at.map(|due| self.since(due)),
                        duplicate: receipt.duplicate,
                    };
                    self.tell(Some(lane), what);
                }
            }
            Err(error) => {
                let what = What::Refused { kind: error.kind.as_str(), error: error.to_string() };
                self.tell(lanes.into_iter().next(), what);
            }
        }
        answer
    }

    async fn claim(&self, request: ClaimRequest) -> StoreResult<Claimed> {
        let answer = self.inner.claim(request.clone()).await;
        if let Ok(claimed) = &answer {
            self.claims(&request, claimed);
        }
        answer
    }

    async fn settle(&self, request: SettleRequest) -> StoreResult<Settled> {
        let (run, token, error) = (request.run_id, request.token, request.error.clone());
        let answer = self.inner.settle(request).await;
        if let Ok(settled) = &answer
            && !settled.repeated
        {
            let lane = self.book().claimed.remove(&token);
            let next = settled.next_at.map(|next| self.since(next));
            let (at, change, state) = (self.now(), settled.change, settled.state);
            self.tell(lane, What::Ended(EndSeen { run, token, at, change, state, next, error }));
        }
        answer
    }

    async fn sweep(&self, request: SweepRequest) -> StoreResult<Swept> {
        let answer = self.inner.sweep(request).await;
        if let Ok(swept) = &answer {
            self.lost(&swept.reclaimed);
        }
        answer
    }

    async fn control(&self, request: Control) -> StoreResult<Controlled> {
        let (mut lane, action, of) = named(&request.action);
        if let ControlAction::Redrive(redrive) = &request.action {
            lane = self.book().lanes.get(&redrive.run.lane).cloned();
        }
        let actor = request.actor.clone();
        let answer = self.inner.control(request).await;
        if let Ok(Controlled { changed, events, .. }) = answer {
            self.tell(lane, What::Hand { action, of, actor, changed, events });
        }
        answer
    }

    async fn extend(&self, request: ExtendRequest) -> StoreResult<Extended> {
        self.inner.extend(request).await
    }

    async fn hold(&self, request: HoldRequest) -> StoreResult<Held> {
        let (run, token) = (request.run_id, request.token);
        let answer = self.inner.hold(request).await;
        if let Ok(Held { answer, state }) = answer
            && let Some(change) = end_at_gate(answer)
        {
            // Asked again it says the same, and the attempt has ended only once.
            if let Some(lane) = self.book().claimed.remove(&token) {
                let end = EndSeen { run, token, at: self.now(), change, state, next: None, error: None };
                self.tell(Some(lane), What::Ended(end));
            }
        }
        answer
    }

    async fn step(&self, request: StepRequest) -> StoreResult<StepAnswer> {
        self.inner.step(request).await
    }

    async fn source(&self, request: SourceRequest) -> StoreResult<SourceAnswer> {
        self.inner.source(request).await
    }

    async fn shelf(&self, request: ShelfRequest) -> StoreResult<ShelfAnswer> {
        self.inner.shelf(request).await
    }

    async fn inspect(&self, request: Inspect) -> StoreResult<Inspected> {
        self.inner.inspect(request).await
    }

    fn wakeups(&self) -> Box<dyn Wakeups> {
        self.inner.wakeups()
    }

    fn description(&self) -> Description {
        self.inner.description()
    }
}

fn end_at_gate(answer: HoldAnswer) -> Option<Change> {
    match answer {
        HoldAnswer::Held => None,
        HoldAnswer::Superseded => Some(Change::Superseded),
        HoldAnswer::Interrupted => Some(Change::Interrupted),
    }
}

/// What an action is called, and what it is done to.
fn named(action: &ControlAction) -> (Option<LaneKey>, &'static str, Option<String>) {
    use ControlAction as A;
    let lane = |lane: &LaneKey, word| (Some(lane.clone()), word, None);
    let other = |of: String, word| (None, word, Some(of));
    match action {
        A::Flush(l) => lane(l, "flush"),
        A::PauseLane(l) => lane(l, "pause"),
        A::ResumeLane(l) => lane(l, "resume"),
        A::Cancel { lane: l, .. } => lane(l, "cancel"),
        A::EraseLane(l) => lane(l, "erase"),
        A::EraseEvent { lane: l, .. } => lane(l, "erase_event"),
        A::EditEvent { lane: l, .. } => lane(l, "edit_event"),
        A::DeleteEvent { lane: l, .. } => lane(l, "delete_event"),
        A::PauseQueue(scope) => other(scope.queue.to_string(), "pause_queue"),
        A::ResumeQueue(scope) => other(scope.queue.to_string(), "resume_queue"),
        A::Redrive(redrive) => other(redrive.run.to_string(), "redrive"),
        A::Purge(purge) => other(purge.queue.to_string(), "purge"),
        A::PutSchedule(schedule) => other(schedule.name.to_string(), "put_schedule"),
        A::RemoveSchedule { name, .. } => other(name.clone(), "remove_schedule"),
        A::PutSource { name, .. } => other(name.to_string(), "put_source"),
        A::RemoveSource { name } => other(name.to_string(), "remove_source"),
        A::EnableSource(scope) => other(scope.name.to_string(), "enable_source"),
        A::DisableSource(scope) => other(scope.name.to_string(), "disable_source"),
        A::ResetSource(scope) => other(scope.name.to_string(), "reset_source"),
        A::ReleaseSource(scope) => other(scope.name.to_string(), "release_source"),
    }
}
