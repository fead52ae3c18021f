//! What would come of a burst: the shipped core, run over given arrivals on a clock that jumps.
//!
//! Nothing of a window is computed here. A memory store, which decides by the same functions as every other store, takes each
//! event at its moment; a worker that is always free claims whenever the store said that something is due, and settles when
//! its handler would be done. So what the playground shows is what the engine does.

use std::sync::Arc;
use std::time::Duration;

use quell::quell_core::batch::{Batch, WorkerId};
use quell::quell_core::clock::{Clock as _, ManualClock, Timestamp};
use quell::quell_core::error::StoreResult;
use quell::quell_core::event::{
    AppendPolicy, EventId, Key, LaneKey, NewEvent, NewEventId, Payload, QueueName,
};
use quell::quell_core::limits;
use quell::quell_core::memory::MemoryStore;
use quell::quell_core::outcome::Verdict;
use quell::quell_core::store::{
    AppendRequest, ClaimQueue, ClaimQueues, ClaimRequest, RunPolicy, SettleRequest, Store,
};
use quell::quell_core::window::{FiredBy, Window};

/// The first moment of a rehearsal; offsets are counted from it.
const START: Timestamp = Timestamp::from_millis(1_000_000_000_000);

/// A batch of a rehearsal. Moments are offsets from its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rehearsed {
    pub(super) events: usize,
    pub(super) first: Duration,
    pub(super) last: Duration,
    /// When a worker got it.
    pub(super) fired: Duration,
    /// When its handler was done.
    pub(super) done: Duration,
    pub(super) by: FiredBy,
}

/// The batches that these arrivals, in order of time, make with this window and a handler that takes so long.
pub(super) async fn rehearse(
    arrivals: &[Duration],
    window: Window,
    handling: Duration,
) -> StoreResult<Vec<Rehearsed>> {
    let mut stage = Stage::new(window, handling)?;
    let mut coming = arrivals.iter().copied().enumerate().peekable();
    loop {
        let arrival = coming.peek().map(|(_, at)| START.after(*at));
        let Some(next) = [arrival, stage.next_at()].into_iter().flatten().min() else { break };
        stage.go_to(next);
        while let Some((number, _)) = coming.next_if(|(_, at)| START.after(*at) <= next) {
            stage.append(number).await?;
        }
        stage.work().await?;
    }
    Ok(stage.batches)
}

struct Stage {
    clock: Arc<ManualClock>,
    store: MemoryStore,
    lane: LaneKey,
    policy: Arc<AppendPolicy>,
    worker: Arc<WorkerId>,
    handling: Duration,
    /// What the worker holds, and when it is done.
    held: Option<(Batch, Timestamp)>,
    /// When the last claim said that another one may find something.
    due: Option<Timestamp>,
    batches: Vec<Rehearsed>,
}

impl Stage {
    fn new(window: Window, handling: Duration) -> StoreResult<Stage> {
        let clock = Arc::new(ManualClock::at(START));
        let lane = LaneKey::new(QueueName::new("playground")?, Key::new("burst")?);
        let worker: WorkerId = "playground:1:1".parse()?;
        Ok(Stage {
            store: MemoryStore::new(clock.clone()),
            clock,
            lane,
            policy: Arc::new(AppendPolicy { window, ..AppendPolicy::default() }),
            worker: Arc::new(worker),
            handling,
            held: None,
            due: None,
            batches: Vec::new(),
        })
    }

    /// The next moment at which the worker has something to do.
    fn next_at(&self) -> Option<Timestamp> {
        match &self.held {
            Some((_, done)) => Some(*done),
            // A moment that has come and brought nothing moves on, so that a rehearsal always ends.
            None => self.due.map(|due| due.max(self.clock.now().after(Duration::from_millis(1)))),
        }
    }

    fn go_to(&self, moment: Timestamp) {
        self.clock.advance(moment.since(self.clock.now()));
    }

    async fn append(&self, number: usize) -> StoreResult<()> {
        let id = NewEventId::Made(EventId::new(format!("event-{number}"))?);
        let payload = Payload::of(&serde_json::json!(number));
        let event = NewEvent::new(self.lane.clone(), id, payload, self.policy.clone());
        self.store.append(AppendRequest { events: vec![event], repeat: false }).await?;
        Ok(())
    }

    /// Settles what is done, and claims what is due.
    async fn work(&mut self) -> StoreResult<()> {
        loop {
            let now = self.clock.now();
            match self.held.take() {
                Some((batch, done)) if done <= now => {
                    let done = SettleRequest::new(batch.run_id, batch.token, Verdict::Succeeded);
                    self.store.settle(done).await?;
                }
                Some(held) => {
                    self.held = Some(held);
                    return Ok(());
                }
                None => {}
            }
            let claimed = self.store.claim(self.wish()).await?;
            self.due = claimed.next_at;
            let Some(batch) = claimed.batches.into_iter().next() else { return Ok(()) };
            let done = now.after(self.handling);
            self.batches.push(Rehearsed {
                events: batch.events.len(),
                first: batch.first_at.since(START),
                last: batch.last_at.since(START),
                fired: now.since(START),
                done: done.since(START),
                by: batch.fired_by,
            });
            self.held = Some((batch, done));
        }
    }

    fn wish(&self) -> ClaimRequest {
        let policy = RunPolicy { lease: limits::LEASE_MAX, ..RunPolicy::default() };
        ClaimRequest {
            worker: self.worker.clone(),
            queues: ClaimQueues::Listed(vec![ClaimQueue::new(self.lane.queue.clone(), policy.into(), 1)]),
            tenant: None,
            max: 1,
            reclaim: false,
            claim_id: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(all: &[f64]) -> Vec<Duration> {
        all.iter().map(|s| Duration::from_secs_f64(*s)).collect()
    }

    async fn told(arrivals: &[f64], window: Window, handling: f64) -> Vec<(usize, f64, FiredBy)> {
        let batches = rehearse(&seconds(arrivals), window, Duration::from_secs_f64(handling)).await.unwrap();
        batches.iter().map(|batch| (batch.events, batch.fired.as_secs_f64(), batch.by)).collect()
    }

    #[tokio::test]
    async fn a_burst_is_one_batch_when_it_is_over_and_the_cap_ends_one_that_does_not_end() {
        let quiet = Window::quiet_capped(Duration::from_secs(2), Duration::from_secs(5));
        assert_eq!(
            told(&[0.0, 1.0, 1.5, 9.0], quiet, 0.0).await,
            [(3, 3.5, FiredBy::Quiet), (1, 11.0, FiredBy::Quiet)]
        );
        let steady: Vec<f64> = (0..10).map(f64::from).collect();
        let told = told(&steady, quiet, 0.0).await;
        assert_eq!(told[0], (6, 5.0, FiredBy::Cap), "{told:?}");
        assert_eq!(told.iter().map(|(events, ..)| events).sum::<usize>(), 10);
    }

    #[tokio::test]
    async fn other_windows_and_the_bound_of_a_batch_are_those_of_the_engine() {
        let fixed = Window::fixed(Duration::from_secs(4));
        assert_eq!(
            told(&[1.0, 4.9, 5.1], fixed, 0.0).await,
            [(2, 5.0, FiredBy::Fixed), (1, 9.1, FiredBy::Fixed)]
        );
        assert_eq!(told(&[0.5, 0.5], Window::none(), 0.0).await.len(), 1, "they came at once");
        let few = Window::quiet(Duration::from_secs(60)).max_events(2);
        let told = told(&[0.0, 1.0, 2.0], few, 0.0).await;
        assert_eq!(told[0], (2, 1.0, FiredBy::Count));
    }

    #[tokio::test]
    async fn what_comes_while_a_handler_runs_waits_for_it() {
        let quiet = Window::quiet(Duration::from_secs(1));
        assert_eq!(
            told(&[0.0, 2.0], quiet, 10.0).await,
            [(1, 1.0, FiredBy::Quiet), (1, 11.0, FiredBy::Quiet)]
        );
    }

    #[tokio::test]
    async fn nothing_comes_of_nothing_and_no_event_is_lost() {
        let quiet = Window::quiet(Duration::from_millis(1));
        assert_eq!(told(&[], quiet, 0.0).await, []);
        let many: Vec<f64> = (0..400).map(|n| f64::from(n) * 0.0007).collect();
        let told = told(&many, quiet, 0.003).await;
        assert_eq!(told.iter().map(|(events, ..)| events).sum::<usize>(), 400);
    }
}
