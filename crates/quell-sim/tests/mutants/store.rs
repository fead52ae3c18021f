//! Stores with one mistake each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use quell_core::batch::Batch;
use quell_core::clock::Clock;
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::event::{Event, EventId, NewEvent, NewEventId, Payload};
use quell_core::inspect::{Inspect, Inspected};
use quell_core::memory::{MemoryStore, Snapshot};
use quell_core::shelf::{ShelfAnswer, ShelfRequest};
use quell_core::source::{SourceFault, SourceReport, SourceVerdict};
use quell_core::store::*;
use quell_core::window::WindowPolicy;
use quell_sim::Subject;
use quell_store_many::Whole;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// A settle with an old token is taken for one with the current token.
    NoFence,
    /// A lane that is held is handed to the next claimer, too.
    LaneTwice,
    /// Two claims of a lane get the same token.
    TokenTwice,
    /// An acknowledged event vanishes.
    LosesEvent,
    /// An append is refused and done all the same.
    DishonestRefusal,
    /// A given id is not looked up.
    DuplicateIsNew,
    ChangesPayload,
    InventsEvent,
    /// A batch leaves one out.
    SkipsEvent,
    /// Windows are ignored.
    TooEarly,
    OneMoreAttempt,
    /// A step that is done is not known.
    ForgetsStep,
    /// A paused queue is handed out.
    IgnoresPause,
    /// A repeated settlement gets another answer.
    AnotherAnswer,
    /// After a restore numbers start where the backup was.
    NoEpoch,
    /// An expired lease is never taken back.
    NoReclaim,
    /// Sources have no limit.
    NoRate,
    /// A token goes back whether it was used or not.
    TokenBack,
    /// Faults are not counted.
    NoBreaker,
    /// The attempt of a probe counts.
    ProbeCounts,
    /// Nobody is left alone who asks for it.
    NoSilence,
    /// A disabled source is handed out.
    IgnoresDisable,
    /// Everybody fetches an answer that is being fetched.
    FetchTwice,
    /// What another database relays is taken and not stored.
    LosesRelayed,
    /// What another database relays is stored once more, under another id.
    RelaysTwice,
}

pub(crate) struct Mutant {
    mistake: Mistake,
    inner: Arc<MemoryStore>,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    calls: u64,
    /// The token that the lane of a run has now.
    tokens: BTreeMap<u64, (u64, u64)>,
    last: Option<Batch>,
    /// What an outside token stands for.
    aliases: BTreeMap<u64, u64>,
    epoch: u64,
}

impl Mutant {
    pub(crate) fn new(mistake: Mistake, clock: Arc<dyn Clock>) -> Self {
        Mutant { mistake, inner: Arc::new(MemoryStore::new(clock)), memory: Mutex::default() }
    }

    fn is(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().expect("no panic under it")
    }

    /// True for every `n`th call.
    fn now_and_then(&self, n: u64) -> bool {
        let mut memory = self.memory();
        memory.calls += 1;
        memory.calls.is_multiple_of(n)
    }

    /// The store's own token behind one that was told outside.
    fn own(&self, token: u64) -> u64 {
        self.memory().aliases.get(&token).copied().unwrap_or(token)
    }
}

/// Under the id that a settle gave it, and to be kept aside until it is due.
fn is_relayed(event: &NewEvent) -> bool {
    event.id.id().as_str().ends_with("/1") && event.delay == Some(Duration::ZERO)
}

impl Subject for Mutant {
    fn backup(&self) -> Snapshot {
        self.inner.backup()
    }

    fn restore(&self, backup: &Snapshot) {
        self.inner.restore(backup);
        if self.is(Mistake::NoEpoch) {
            self.memory().epoch += quell_core::limits::EPOCH_JUMP;
        }
    }

    fn whole(self: Arc<Self>) -> Arc<dyn Whole> {
        self.inner.clone()
    }
}

#[async_trait]
impl Store for Mutant {
    async fn append(&self, mut request: AppendRequest) -> StoreResult<Appended> {
        if self.is(Mistake::TooEarly) {
            for event in &mut request.events {
                event.window = Some(WindowPolicy::None);
            }
        }
        let relayed = request.events.iter().all(is_relayed);
        if self.is(Mistake::RelaysTwice) && relayed {
            let mut again = request.clone();
            for event in &mut again.events {
                let id = EventId::new(format!("again-{}", event.id.id())).expect("a short text");
                event.id = NewEventId::Given(id);
            }
            self.inner.append(again).await?;
        }
        let sent = request.clone();
        if self.is(Mistake::DuplicateIsNew) {
            for event in &mut request.events {
                event.id = NewEventId::Made(event.id.id().clone());
            }
            request.repeat = false;
        }
        let appended = self.inner.append(request).await?;
        if self.is(Mistake::DishonestRefusal) && self.now_and_then(9) {
            return Err(StoreError::unavailable("a lie"));
        }
        let loses = |event: &&NewEvent| match self.mistake {
            Mistake::LosesEvent => event.id.id().as_str().ends_with('7'),
            Mistake::LosesRelayed => relayed,
            _ => false,
        };
        if let Some(event) = sent.events.iter().find(loses) {
            let action = ControlAction::EraseEvent { lane: event.lane.clone(), id: event.id.id().clone() };
            self.inner.control(Control { actor: "nobody".into(), action }).await?;
        }
        Ok(appended)
    }

    async fn claim(&self, mut request: ClaimRequest) -> StoreResult<Claimed> {
        if self.is(Mistake::OneMoreAttempt)
            && let ClaimQueues::Listed(list) = &mut request.queues
        {
            for queue in list {
                let mut policy = (*queue.policy).clone();
                policy.max_attempts += 1;
                queue.policy = Arc::new(policy);
            }
        }
        if self.is(Mistake::NoReclaim) {
            request.reclaim = false;
        }
        let repeats = request.claim_id.is_some();
        let mut claimed = self.inner.claim(request).await?;
        let odd = self.now_and_then(5);
        let mut memory = self.memory();
        if self.is(Mistake::LaneTwice) && claimed.batches.is_empty() && odd {
            claimed.batches.extend(memory.last.clone());
        }
        for batch in &mut claimed.batches {
            let (lane, token) = (batch.run_id.lane, batch.token);
            match self.mistake {
                Mistake::ChangesPayload if odd => {
                    batch.events[0].payload = Payload::of(&serde_json::json!("something else"));
                }
                Mistake::InventsEvent if odd => {
                    let first = &batch.events[0];
                    let id = EventId::new("invented").expect("a word");
                    batch.events.push(Event { seq: batch.head_seq + 1, id, ..first.clone() });
                }
                Mistake::SkipsEvent if batch.events.len() > 2 => {
                    batch.events.remove(1);
                }
                Mistake::TokenTwice if !repeats => {
                    if let Some((before, _)) = memory.tokens.get(&lane).copied() {
                        batch.token = before;
                        memory.aliases.insert(before, token);
                    }
                }
                Mistake::NoEpoch => {
                    batch.token = token.saturating_sub(memory.epoch);
                    let told = batch.token;
                    memory.aliases.insert(told, token);
                }
                _ => {}
            }
            let told = batch.token;
            memory.tokens.insert(lane, (told, token));
        }
        memory.last = claimed.batches.last().cloned().or(memory.last.take());
        Ok(claimed)
    }

    async fn extend(&self, request: ExtendRequest) -> StoreResult<Extended> {
        self.inner.extend(ExtendRequest { token: self.own(request.token), ..request }).await
    }

    async fn hold(&self, request: HoldRequest) -> StoreResult<Held> {
        self.inner.hold(HoldRequest { token: self.own(request.token), ..request }).await
    }

    async fn step(&self, request: StepRequest) -> StoreResult<StepAnswer> {
        let answer = self.inner.step(StepRequest { token: self.own(request.token), ..request }).await?;
        let done = matches!(answer, StepAnswer::Done { stored: false, .. });
        Ok(if self.is(Mistake::ForgetsStep) && done { StepAnswer::New } else { answer })
    }

    async fn source(&self, request: SourceRequest) -> StoreResult<SourceAnswer> {
        let request = SourceRequest { token: self.own(request.token), ..request };
        let forgets = matches!(request.action, SourceAction::Report(SourceVerdict::Fault(_)));
        if self.is(Mistake::NoBreaker) && forgets {
            return Ok(SourceAnswer::Noted);
        }
        match self.inner.source(request).await? {
            SourceAnswer::Fetching { until } if self.is(Mistake::FetchTwice) => {
                Ok(SourceAnswer::Fetch { until: Some(until) })
            }
            answer => Ok(answer),
        }
    }

    async fn settle(&self, request: SettleRequest) -> StoreResult<Settled> {
        let mut request = SettleRequest { token: self.own(request.token), ..request };
        request.source = match (self.mistake, request.source) {
            (Mistake::TokenBack, SourceReport::Fine) => SourceReport::Unused,
            (Mistake::NoBreaker, SourceReport::Fault(_)) => SourceReport::Reported,
            (Mistake::NoSilence, SourceReport::Fault(fault)) => {
                SourceReport::Fault(SourceFault { retry_after: None, ..fault })
            }
            (_, report) => report,
        };
        if let (Mistake::ProbeCounts, SourceReport::Fault(fault)) = (self.mistake, request.source)
            && let Inspected::Sources(page) = self.inner.inspect(Inspect::Sources(Default::default())).await?
            && page.items.iter().any(|source| source.probe == Some(request.run_id))
        {
            // Said before the end it opens the breaker as well, and the end itself says nothing any more.
            let action = SourceAction::Report(SourceVerdict::Fault(fault));
            let (run_id, token) = (request.run_id, request.token);
            if self.inner.source(SourceRequest { run_id, token, source: None, action }).await.is_ok() {
                request.source = SourceReport::Fine;
            }
        }
        let mut answer = self.inner.settle(request.clone()).await;
        let stale = answer.as_ref().is_err_and(|e| e.kind == ErrorKind::LostLease);
        if self.is(Mistake::NoFence) && stale {
            let current = self.memory().tokens.get(&request.run_id.lane).map(|(_, token)| *token);
            let token = current.unwrap_or(request.token);
            answer = self.inner.settle(SettleRequest { token, ..request }).await;
        }
        if self.is(Mistake::AnotherAnswer)
            && let Ok(settled) = &mut answer
            && settled.repeated
        {
            settled.next_at = settled.next_at.map(|t| t.after(Duration::from_secs(1)));
            settled.state = quell_core::lifecycle::RunState::Failed;
        }
        answer
    }

    async fn shelf(&self, request: ShelfRequest) -> StoreResult<ShelfAnswer> {
        self.inner.shelf(request).await
    }

    async fn sweep(&self, request: SweepRequest) -> StoreResult<Swept> {
        let reclaim = request.reclaim && !self.is(Mistake::NoReclaim);
        self.inner.sweep(SweepRequest { reclaim, ..request }).await
    }

    async fn inspect(&self, request: Inspect) -> StoreResult<Inspected> {
        self.inner.inspect(request).await
    }

    async fn control(&self, request: Control) -> StoreResult<Controlled> {
        if self.is(Mistake::IgnoresPause) && matches!(request.action, ControlAction::PauseQueue(_)) {
            return Ok(Controlled::changed(true));
        }
        if self.is(Mistake::IgnoresDisable)
            && let ControlAction::DisableSource(_) = request.action
        {
            return Ok(Controlled::changed(true));
        }
        let mut request = request;
        if let ControlAction::PutSource { rules, .. } = &mut request.action
            && self.is(Mistake::NoRate)
        {
            rules.per_minute = None;
        }
        self.inner.control(request).await
    }

    fn wakeups(&self) -> Box<dyn Wakeups> {
        self.inner.wakeups()
    }

    fn description(&self) -> Description {
        self.inner.description()
    }
}
