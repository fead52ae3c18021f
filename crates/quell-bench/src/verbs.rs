//! Verbs: each call of a store a fixed number of times, for those who count what it costs.
//!
//! Seconds say more about a machine than about Quell. How many statements, flushes, round trips and instructions a call takes does
//! not depend on the machine, so the test `counts` compares those with committed figures. This file only performs the calls:
//! [`Verbs::prepare`] makes what a verb needs, [`Verbs::perform`] is what is counted. Everything is the same each time, also the ids.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use quell::Queue;
use quell::quell_core::batch::{Batch, WorkerId};
use quell::quell_core::clock::{ManualClock, Timestamp};
use quell::quell_core::event::{AppendPolicy, EventId, Key, LaneKey, NewEvent, NewEventId, QueueName};
use quell::quell_core::memory::MemoryStore;
use quell::quell_core::outcome::Verdict;
use quell::quell_core::store::{
    AppendRequest, ClaimQueue, ClaimQueues, ClaimRequest, ExtendRequest, RunPolicy, SettleRequest, Store,
    SweepRequest,
};
use quell::quell_core::window::Window;

use crate::{BULK, key, payload};

/// Callers at once.
const CALLERS: usize = 64;
/// Lanes of one large claim: the most that a worker takes at once.
const LANES: usize = 512;
/// Calls of a verb that takes one event or one lane.
const SINGLE: usize = 20;
/// Times that all callers call at once.
const WAVES: usize = 10;
/// Large appends, and whole cycles.
const BULKS: usize = 3;
const LEASE: Duration = Duration::from_secs(30);

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    AppendOne,
    AppendCallers,
    AppendBulk,
    AppendLane,
    ClaimOne,
    ClaimMany,
    ClaimLong,
    Extend,
    SettleOne,
    SettleCallers,
    Cycle,
    ClaimNothing,
    SweepNothing,
}

impl Verb {
    pub const ALL: [Verb; 13] = [
        Verb::AppendOne,
        Verb::AppendCallers,
        Verb::AppendBulk,
        Verb::AppendLane,
        Verb::ClaimOne,
        Verb::ClaimMany,
        Verb::ClaimLong,
        Verb::Extend,
        Verb::SettleOne,
        Verb::SettleCallers,
        Verb::Cycle,
        Verb::ClaimNothing,
        Verb::SweepNothing,
    ];

    /// What it does, and for which unit its figures are.
    pub fn name(self) -> &'static str {
        match self {
            Verb::AppendOne => "append of one event, per event",
            Verb::AppendCallers => "append by 64 callers at once, per event",
            Verb::AppendBulk => "append of 1,000 lanes in one call, per event",
            Verb::AppendLane => "append of 1,000 events of one lane in one call, per event",
            Verb::ClaimOne => "claim of one lane, per lane",
            Verb::ClaimMany => "claim of 512 lanes, per lane",
            Verb::ClaimLong => "claim of a lane of 1,000 events, per event",
            Verb::Extend => "extend, per call",
            Verb::SettleOne => "settle of one run, per run",
            Verb::SettleCallers => "settle by 64 callers at once, per run",
            Verb::Cycle => "append, claim and settle of 1,000 lanes, per lane",
            Verb::ClaimNothing => "claim with nothing due, per call",
            Verb::SweepNothing => "sweep with nothing to do, per call",
        }
    }

    /// Units of one call.
    pub fn units_of_a_call(self) -> usize {
        match self {
            Verb::AppendBulk | Verb::AppendLane | Verb::ClaimLong => BULK,
            Verb::ClaimMany => LANES,
            Verb::AppendCallers | Verb::SettleCallers | Verb::Cycle => CALLERS,
            Verb::AppendOne
            | Verb::ClaimOne
            | Verb::Extend
            | Verb::SettleOne
            | Verb::ClaimNothing
            | Verb::SweepNothing => 1,
        }
    }

    /// Several callers at once are grouped as they happen to meet, so their figures vary.
    pub fn is_concurrent(self) -> bool {
        matches!(self, Verb::AppendCallers | Verb::SettleCallers | Verb::Cycle)
    }
}

/// A store, and what is held of it.
pub struct Verbs {
    store: Arc<dyn Store>,
    worker: Arc<WorkerId>,
    queue: QueueName,
    run_policy: Arc<RunPolicy>,
    append_policy: Arc<AppendPolicy>,
    /// Keys and ids from here on are unused.
    next: usize,
    held: Vec<Batch>,
}

impl Verbs {
    /// The store that this URL names. It has to be empty.
    pub async fn open(url: &str) -> anyhow::Result<Self> {
        let (engine, _) = crate::open(url, Queue::none(), LANES).await?;
        Self::of(engine.store().clone()).await
    }

    /// The decisions alone, without a database.
    pub async fn in_memory() -> anyhow::Result<Self> {
        let begins = Timestamp::from_millis(1_700_000_000_000);
        Self::of(Arc::new(MemoryStore::new(Arc::new(ManualClock::at(begins))))).await
    }

    async fn of(store: Arc<dyn Store>) -> anyhow::Result<Self> {
        let mut verbs = Verbs {
            store,
            worker: Arc::new(WorkerId { name: "counted".to_owned(), pid: 1, start: "once".to_owned() }),
            queue: QueueName::new("bench")?,
            run_policy: Arc::new(RunPolicy::default()),
            append_policy: Arc::new(AppendPolicy { window: Window::none(), ..AppendPolicy::default() }),
            next: 0,
            held: Vec::new(),
        };
        // Statements are prepared and the queue is made at the first use; that is not what is counted.
        verbs.cycle(CALLERS).await?;
        verbs.sweep().await?;
        Ok(verbs)
    }

    /// Makes what the verb needs.
    pub async fn prepare(&mut self, verb: Verb) -> anyhow::Result<()> {
        self.drain().await?;
        match verb {
            Verb::AppendOne
            | Verb::AppendCallers
            | Verb::AppendBulk
            | Verb::AppendLane
            | Verb::Cycle
            | Verb::ClaimNothing
            | Verb::SweepNothing => Ok(()),
            Verb::ClaimOne => self.append_lanes(SINGLE).await,
            Verb::ClaimMany => self.append_lanes(LANES).await,
            Verb::ClaimLong => self.append_one_lane(BULK).await,
            Verb::Extend | Verb::SettleOne => {
                self.append_lanes(SINGLE).await?;
                self.claim(SINGLE).await
            }
            Verb::SettleCallers => {
                let runs = CALLERS * WAVES;
                self.append_lanes(runs).await?;
                while self.held.len() < runs {
                    self.claim(LANES).await?;
                }
                Ok(())
            }
        }
    }

    /// What is counted; the answer is for how many units.
    pub async fn perform(&mut self, verb: Verb) -> anyhow::Result<usize> {
        match verb {
            Verb::AppendOne => {
                for _ in 0..SINGLE {
                    self.append_lanes(1).await?;
                }
                Ok(SINGLE)
            }
            Verb::AppendCallers => {
                for _ in 0..WAVES {
                    let requests = (0..CALLERS).map(|_| self.lanes(1)).collect::<anyhow::Result<Vec<_>>>()?;
                    try_join_all(requests.into_iter().map(|request| self.store.append(request))).await?;
                }
                Ok(CALLERS * WAVES)
            }
            Verb::AppendBulk => {
                for _ in 0..BULKS {
                    self.append_lanes(BULK).await?;
                }
                Ok(BULK * BULKS)
            }
            Verb::AppendLane => self.append_one_lane(BULK).await.map(|()| BULK),
            Verb::ClaimOne => {
                for _ in 0..SINGLE {
                    self.claim(1).await?;
                }
                self.holds(SINGLE)
            }
            Verb::ClaimMany => {
                self.claim(LANES).await?;
                self.holds(LANES)
            }
            Verb::ClaimLong => {
                self.claim(1).await?;
                self.holds(1)?;
                let events = self.held[0].events.len();
                anyhow::ensure!(events == BULK, "{events} of {BULK} events were claimed");
                Ok(BULK)
            }
            Verb::Extend => {
                for batch in &self.held {
                    let request = ExtendRequest { run_id: batch.run_id, token: batch.token, lease: LEASE };
                    self.store.extend(request).await?;
                }
                Ok(self.held.len())
            }
            Verb::SettleOne => {
                let held = std::mem::take(&mut self.held);
                let runs = held.len();
                for batch in held {
                    self.store.settle(succeeded(batch)).await?;
                }
                Ok(runs)
            }
            Verb::SettleCallers => {
                let runs = self.held.len();
                while !self.held.is_empty() {
                    let wave = self.held.split_off(self.held.len().saturating_sub(CALLERS));
                    self.settle(wave).await?;
                }
                Ok(runs)
            }
            Verb::Cycle => {
                for _ in 0..BULKS {
                    self.cycle(BULK).await?;
                }
                Ok(BULK * BULKS)
            }
            Verb::ClaimNothing => {
                for _ in 0..SINGLE {
                    self.claim(LANES).await?;
                }
                self.holds(0)?;
                Ok(SINGLE)
            }
            Verb::SweepNothing => {
                for _ in 0..SINGLE {
                    self.sweep().await?;
                }
                Ok(SINGLE)
            }
        }
    }

    fn holds(&self, lanes: usize) -> anyhow::Result<usize> {
        anyhow::ensure!(self.held.len() == lanes, "{} lanes are held in place of {lanes}", self.held.len());
        Ok(lanes)
    }

    /// One event for each of so many new lanes.
    fn lanes(&mut self, count: usize) -> anyhow::Result<AppendRequest> {
        let events = (0..count).map(|_| {
            let lane = self.next;
            self.event(lane)
        });
        Ok(AppendRequest { events: events.collect::<anyhow::Result<_>>()?, repeat: false })
    }

    fn event(&mut self, lane: usize) -> anyhow::Result<NewEvent> {
        let n = self.next;
        self.next += 1;
        let lane = LaneKey::new(self.queue.clone(), Key::new(key(lane))?);
        let id = NewEventId::Made(EventId::new(format!("id-{n:020}"))?);
        Ok(NewEvent::new(lane, id, payload(n), self.append_policy.clone()))
    }

    async fn append_lanes(&mut self, count: usize) -> anyhow::Result<()> {
        let request = self.lanes(count)?;
        self.store.append(request).await?;
        Ok(())
    }

    async fn append_one_lane(&mut self, count: usize) -> anyhow::Result<()> {
        let lane = self.next;
        let events = (0..count).map(|_| self.event(lane)).collect::<anyhow::Result<_>>()?;
        self.store.append(AppendRequest { events, repeat: false }).await?;
        Ok(())
    }

    async fn claim(&mut self, max: usize) -> anyhow::Result<()> {
        let queue = ClaimQueue::new(self.queue.clone(), self.run_policy.clone(), max);
        let request = ClaimRequest {
            worker: self.worker.clone(),
            queues: ClaimQueues::Listed(vec![queue]),
            tenant: None,
            max,
            reclaim: true,
            claim_id: None,
        };
        self.held.extend(self.store.claim(request).await?.batches);
        Ok(())
    }

    /// All at once, as many handlers would that end together.
    async fn settle(&self, batches: Vec<Batch>) -> anyhow::Result<()> {
        try_join_all(batches.into_iter().map(|batch| self.store.settle(succeeded(batch)))).await?;
        Ok(())
    }

    async fn cycle(&mut self, lanes: usize) -> anyhow::Result<()> {
        self.append_lanes(lanes).await?;
        self.drain().await
    }

    async fn drain(&mut self) -> anyhow::Result<()> {
        loop {
            self.claim(LANES).await?;
            if self.held.is_empty() {
                return Ok(());
            }
            let held = std::mem::take(&mut self.held);
            self.settle(held).await?;
        }
    }

    async fn sweep(&self) -> anyhow::Result<()> {
        self.store.sweep(SweepRequest { reclaim: true, retention: None }).await?;
        Ok(())
    }
}

fn succeeded(batch: Batch) -> SettleRequest {
    SettleRequest::new(batch.run_id, batch.token, Verdict::Succeeded)
}
