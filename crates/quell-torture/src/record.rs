//! A store that writes down every question and every answer, in the words of the independent checker (`quell-check`).
//!
//! [`Recorded`] wraps any store and is one itself. The question is written before the store is asked and the answer
//! after it came, each with a moment of the monotonic clock that all processes of a machine share, so the records of several
//! processes can be put into one order. [`with_dump`] adds what the store holds in the end; `judge.rs` hands everything to the checker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use quell_check::history::{self, Answer, Claim, Delivered, Name, Op, Record, Refusal};
use quell_core::batch::Batch;
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::event::{LaneKey, NewEvent, NewEventId, Payload, QueueName, Tenant};
use quell_core::inspect::{Inspect, Inspected};
use quell_core::shelf::{ShelfAnswer, ShelfRequest};
use quell_core::store::{
    AppendRequest, Appended, ClaimRequest, Claimed, Control, ControlAction, Controlled, Description,
    ExtendRequest, Extended, Held, HoldRequest, Purge, Receipt, RedriveTo, SettleRequest, Settled,
    SourceAnswer, SourceRequest, StepAction, StepAnswer, StepRequest, Store, SweepRequest, Swept, Wakeups,
};
use serde::de::DeserializeOwned;

mod dump;

pub use dump::dump;

/// Takes records as they come: a list, or a file of lines.
pub type Sink = Box<dyn FnMut(Record) + Send>;

/// A store with a recorder before it.
pub struct Recorded {
    inner: Arc<dyn Store>,
    process: u64,
    calls: AtomicU64,
    state: Mutex<State>,
}

struct State {
    sink: Sink,
    /// The revision of each run, as its latest claim told it: steps are remembered under it.
    revisions: BTreeMap<u64, u32>,
    /// Which lane has which number, from what the store has said.
    lanes: BTreeMap<u64, Name>,
    /// Events that the store has made by itself and that were written down already.
    made: BTreeSet<String>,
}

impl Recorded {
    /// `process` is a number that nobody else in the history has; 0 is nobody.
    pub fn new(inner: Arc<dyn Store>, process: u64, sink: Sink) -> Arc<Self> {
        let state = Mutex::new(State {
            sink,
            revisions: BTreeMap::new(),
            lanes: BTreeMap::new(),
            made: BTreeSet::new(),
        });
        Arc::new(Recorded { inner, process, calls: AtomicU64::new(0), state })
    }

    fn write(&self, idx: u64, record: Record) {
        // A task that was aborted while it wrote has left a whole record or none.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.sink)(record.with_idx(idx));
    }

    /// Something that is simply so.
    pub fn fact(&self, op: Op) {
        self.write(monotonic_nanos(), Record::fact(self.process, op));
    }

    fn asked(&self, op: Op) -> u64 {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        self.write(monotonic_nanos(), Record::invoke(self.process, call, op));
        call
    }

    fn answered<T>(&self, call: u64, result: &StoreResult<T>, answer: impl FnOnce(&T) -> Answer) {
        let record = match result {
            Ok(value) => Record::ok(self.process, call, None, answer(value)),
            Err(error) => match refusal(error) {
                Some(refusal) => Record::fail(self.process, call, refusal),
                None => Record::info(self.process, call),
            },
        };
        self.write(monotonic_nanos(), record);
    }

    fn revision(&self, run: u64) -> u32 {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.revisions.get(&run).copied().unwrap_or(0)
    }

    /// Remembers revisions, and writes down what the store has made by itself before anybody is told of it.
    fn learn(&self, claimed: &Claimed) {
        for batch in &claimed.batches {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.revisions.insert(batch.run_id.number, batch.revision);
            state.lanes.insert(batch.run_id.lane, lane_name(&batch.lane));
            drop(state);
            for event in &batch.events {
                self.made_itself(&batch.lane, event.id.as_str(), &event.payload);
            }
        }
    }

    /// Notices and fires of a schedule are nobody's call: they are written as a send with an unknown answer.
    pub(crate) fn made_itself(&self, lane: &LaneKey, id: &str, payload: &Payload) {
        if !(id.ends_with("/notify") || id.starts_with("schedule/")) {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.made.insert(id.to_owned()) {
            return;
        }
        drop(state);
        let event = history::NewEvent {
            queue: owner(&lane.tenant, &lane.queue),
            lane: lane_name(lane),
            id: id.into(),
            given: true,
            hash: hash(payload.as_str()),
            bytes: payload.len() as u64,
            delayed: true,
            in_transaction: false,
            own_window: false,
            source: history::Governed::Untold,
        };
        self.asked(Op::Append { events: vec![event] });
    }
}

#[async_trait]
impl Store for Recorded {
    async fn append(&self, request: AppendRequest) -> StoreResult<Appended> {
        let call = self.asked(Op::Append { events: request.events.iter().map(new_event).collect() });
        let result = self.inner.append(request).await;
        self.answered(call, &result, |r| Answer::Appended {
            receipts: r.receipts.iter().map(receipt).collect(),
        });
        result
    }

    async fn claim(&self, request: ClaimRequest) -> StoreResult<Claimed> {
        let worker = request.worker.to_string().into();
        let call = self.asked(Op::Claim { worker, claim_id: request.claim_id.as_deref().map(Name::from) });
        let result = self.inner.claim(request).await;
        if let Ok(claimed) = &result {
            self.learn(claimed);
        }
        self.answered(call, &result, |r| Answer::Claimed {
            now: r.now.as_millis(),
            claims: r.batches.iter().map(claim).collect(),
        });
        result
    }

    async fn extend(&self, request: ExtendRequest) -> StoreResult<Extended> {
        let call = self.asked(Op::Extend { run: request.run_id.number, token: request.token });
        let result = self.inner.extend(request).await;
        self.answered(call, &result, |r| Answer::Extended { lease_until: r.lease_until.as_millis() });
        result
    }

    async fn hold(&self, request: HoldRequest) -> StoreResult<Held> {
        let (run, token, if_head) = (request.run_id.number, request.token, request.if_head);
        let call = self.asked(Op::Hold { run, token, if_head });
        let result = self.inner.hold(request).await;
        self.answered(call, &result, |r| Answer::Hold(same_word(&r.answer)));
        result
    }

    async fn step(&self, request: StepRequest) -> StoreResult<StepAnswer> {
        let (run, token) = (request.run_id.number, request.token);
        let (revision, name) = (self.revision(run), Name::from(request.name.as_str()));
        let call = self.asked(match &request.action {
            StepAction::Read => Op::StepBegin { run, token, revision, name, once: false },
            StepAction::Begin => Op::StepBegin { run, token, revision, name, once: true },
            StepAction::Finish(value) => {
                Op::StepFinish { run, token, revision, name, value: hash(&value.to_string()) }
            }
        });
        let result = self.inner.step(request).await;
        self.answered(call, &result, |r| {
            Answer::Step(match r {
                StepAnswer::New | StepAnswer::Begun => history::StepAnswer::Begun,
                StepAnswer::Unknown => history::StepAnswer::Unknown,
                StepAnswer::Done { value, .. } => history::StepAnswer::Value(hash(&value.to_string())),
            })
        });
        result
    }

    /// The checker knows lanes and runs; what a source says shows in which of them are claimed.
    async fn source(&self, request: SourceRequest) -> StoreResult<SourceAnswer> {
        self.inner.source(request).await
    }

    async fn settle(&self, request: SettleRequest) -> StoreResult<Settled> {
        let carried = quell_core::aside::carried(request.run_id, &request.events);
        let call = self.asked(Op::Settle {
            run: request.run_id.number,
            token: request.token,
            verdict: same_word(&request.verdict.kind()),
            if_head: request.if_head,
            // Tests draw their own waits; the backoff of a queue is the worker's business.
            own_delay: true,
            follow_ups: carried.map(|e| history::NewEvent { delayed: true, ..new_event(&e) }).collect(),
            source: history::SourceReport::Fine,
        });
        let result = self.inner.settle(request).await;
        self.answered(call, &result, |r| Answer::Settled {
            state: same_word(&r.state),
            next_at: r.next_at.map(|at| at.as_millis()),
            repeated: r.repeated,
        });
        result
    }

    /// Documents are none of the checker's business: they concern no lane.
    async fn shelf(&self, request: ShelfRequest) -> StoreResult<ShelfAnswer> {
        self.inner.shelf(request).await
    }

    async fn sweep(&self, request: SweepRequest) -> StoreResult<Swept> {
        let call = self.asked(Op::Sweep);
        let result = self.inner.sweep(request).await;
        self.answered(call, &result, |r| Answer::Swept {
            reclaimed: r.reclaimed.len() as u64,
            removed_events: r.removed_events,
            removed_audit: r.removed_audit,
        });
        result
    }

    async fn inspect(&self, request: Inspect) -> StoreResult<Inspected> {
        let result = self.inner.inspect(request).await;
        if let Ok(Inspected::Runs(page)) = &result {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.lanes.extend(page.items.iter().map(|row| (row.id.lane, lane_name(&row.lane))));
        }
        result
    }

    async fn control(&self, request: Control) -> StoreResult<Controlled> {
        let call = self.asked(Op::Control { action: self.action(&request.action) });
        let result = self.inner.control(request).await;
        self.answered(call, &result, |r| Answer::Controlled { changed: r.changed });
        result
    }

    fn wakeups(&self) -> Box<dyn Wakeups> {
        self.inner.wakeups()
    }

    fn description(&self) -> Description {
        self.inner.description()
    }
}

/// Adds a dump of the store. Nothing may go on in it any more.
pub async fn with_dump(
    mut records: Vec<Record>,
    store: &Arc<dyn Store>,
    drained: bool,
) -> StoreResult<Vec<Record>> {
    let late = Arc::new(Mutex::new(Vec::new()));
    let sink = late.clone();
    let push = move |record| sink.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    let recorder = Recorded::new(store.clone(), u64::MAX, Box::new(push));
    let dump = dump(&recorder, drained).await?;
    recorder.fact(Op::Dump(Box::new(dump)));
    records.extend(std::mem::take(&mut *late.lock().unwrap_or_else(PoisonError::into_inner)));
    Ok(records)
}

/// The monotonic clock: one for all processes of this machine, also for those whose boot clock was moved.
fn monotonic_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let whole = u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000;
    whole + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Equal payloads have equal numbers: FNV, because the checker wants a number and nothing more.
pub(crate) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

pub(crate) fn lane_name(lane: &LaneKey) -> Name {
    lane.to_string().into()
}

/// Tenant and queue as one name: the owner of totals.
pub(crate) fn owner(tenant: &Tenant, queue: &QueueName) -> Name {
    if tenant.is_none() { queue.as_str().into() } else { format!("{tenant}:{queue}").into() }
}

/// Both sides write the same words for states, verdicts and reasons, as they stand in JSON.
pub(crate) fn same_word<T: serde::Serialize, U: DeserializeOwned>(value: &T) -> U {
    let word = serde_json::to_value(value).expect("a plain word");
    serde_json::from_value(word.clone())
        .unwrap_or_else(|_| panic!("the checker does not know the word {word}"))
}

fn new_event(event: &NewEvent) -> history::NewEvent {
    history::NewEvent {
        queue: owner(&event.lane.tenant, &event.lane.queue),
        lane: lane_name(&event.lane),
        id: event.id.id().as_str().into(),
        given: matches!(event.id, NewEventId::Given(_)),
        hash: hash(event.payload.as_str()),
        bytes: event.payload.len() as u64,
        delayed: event.delay.is_some(),
        in_transaction: false,
        own_window: event.window.is_some(),
        source: history::Governed::Untold,
    }
}

fn receipt(receipt: &Receipt) -> history::Receipt {
    history::Receipt {
        id: receipt.event_id.as_str().into(),
        seq: receipt.seq,
        duplicate: receipt.duplicate,
        run: receipt.run_id.map(|id| id.number),
    }
}

fn claim(batch: &Batch) -> Claim {
    let delivered = |e: &quell_core::event::Event| Delivered {
        seq: e.seq,
        id: e.id.as_str().into(),
        hash: hash(e.payload.as_str()),
    };
    Claim {
        lane: lane_name(&batch.lane),
        run: batch.run_id.number,
        token: batch.token,
        attempt: batch.attempt,
        max_attempts: batch.max_attempts,
        revision: batch.revision,
        fired_by: same_word(&batch.fired_by),
        head_seq: batch.head_seq,
        lease_until: batch.lease_until.as_millis(),
        source: batch.source.map(|id| id.0),
        events: batch.events.iter().map(delivered).collect(),
    }
}

/// Nothing when nobody knows.
fn refusal(error: &StoreError) -> Option<Refusal> {
    Some(match error.kind {
        ErrorKind::Unknown => return None,
        ErrorKind::LostLease => Refusal::Stale,
        ErrorKind::AlreadySettled => Refusal::AlreadySettled,
        ErrorKind::Conflict => Refusal::Conflict,
        ErrorKind::Limit | ErrorKind::Full | ErrorKind::NotIdle => Refusal::Limit,
        ErrorKind::Unavailable => Refusal::Unavailable,
        ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::Corrupt => Refusal::Other,
    })
}

impl Recorded {
    /// The name of a lane that is only known by its number.
    fn lane_of(&self, number: u64) -> Name {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.lanes.get(&number).cloned().unwrap_or_else(|| format!("lane {number}").into())
    }

    fn action(&self, action: &ControlAction) -> history::Action {
        use history::Action;
        let lane = lane_name;
        match action {
            ControlAction::Flush(key) => Action::Flush { lane: lane(key) },
            ControlAction::PauseLane(key) => Action::PauseLane { lane: lane(key) },
            ControlAction::ResumeLane(key) => Action::ResumeLane { lane: lane(key) },
            ControlAction::PauseQueue(scope) => Action::PauseQueue { queue: scope.queue.as_str().into() },
            ControlAction::ResumeQueue(scope) => Action::ResumeQueue { queue: scope.queue.as_str().into() },
            ControlAction::Cancel { lane: key, .. } => Action::Cancel { lane: lane(key) },
            ControlAction::Redrive(redrive) => {
                let (lane, run) = (self.lane_of(redrive.run.lane), redrive.run.number);
                let events = redrive.events.iter().map(|id| id.as_str().into()).collect();
                match redrive.to {
                    RedriveTo::Head => Action::RedriveHead { lane, run, events },
                    RedriveTo::New => Action::RedriveNew { lane, run, events },
                }
            }
            ControlAction::Purge(Purge { queue, tenant, key: Some(key), .. }) => {
                let tenant = tenant.clone().unwrap_or_else(Tenant::none);
                Action::Purge { lane: lane(&LaneKey { tenant, queue: queue.clone(), key: key.clone() }) }
            }
            ControlAction::EraseLane(key) => Action::EraseLane { lane: lane(key) },
            ControlAction::EraseEvent { lane: key, id } => {
                Action::EraseEvent { lane: lane(key), id: id.as_str().into() }
            }
            ControlAction::EditEvent { lane: key, id, payload } => Action::Edit {
                lane: lane(key),
                id: id.as_str().into(),
                hash: hash(payload.as_str()),
                bytes: payload.len() as u64,
            },
            ControlAction::DeleteEvent { lane: key, id } => {
                Action::Delete { lane: lane(key), id: id.as_str().into() }
            }
            ControlAction::Purge(_) => Action::Other { name: "purge of a queue".into() },
            ControlAction::PutSchedule(_) | ControlAction::RemoveSchedule { .. } => {
                Action::Other { name: "schedule".into() }
            }
            ControlAction::PutSource { .. }
            | ControlAction::RemoveSource { .. }
            | ControlAction::EnableSource(_)
            | ControlAction::DisableSource(_)
            | ControlAction::ResetSource(_)
            | ControlAction::ReleaseSource(_) => Action::Other { name: "source".into() },
        }
    }
}
