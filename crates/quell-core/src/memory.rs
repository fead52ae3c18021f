//! The contract as readable code: the whole engine without a database.
//!
//! One lock, ordered maps, no cleverness. Every other store must answer as this one does; random histories compare
//! them. It forgets everything when it is dropped, so Quell never uses it in place of a real store: it serves the
//! simulator, fast tests and readers.
//!
//! Reads are in `memory/reads.rs`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

use async_trait::async_trait;

use crate::audit::{AuditRecord, Move};
use crate::batch::Batch;
use crate::clock::{Clock, Timestamp};
use crate::error::{StoreError, StoreResult};
use crate::event::{Event, EventId, Fingerprint, LaneKey, NewEvent, NewEventId, QueueName, Tenant};
use crate::inspect::{Inspect, Inspected};
use crate::lane::{self, Attention, Claimer, Finished, Lane, Paused, Rest, Settlement, Step, Taken};
use crate::lifecycle::Change;
use crate::limits;
use crate::store::{
    AppendRequest, Appended, ClaimRequest, Claimed, Control, ControlAction, Controlled, Description,
    Durability, ExtendRequest, Extended, QueueScope, Receipt, Reclaimed, RunPolicy, SettleRequest, Settled,
    Store, SweepRequest, Swept, Wakeups, already_settled, id_conflict, lane_full,
};
use crate::totals::Totals;
use crate::window;

mod reads;

/// A store that lives in this process and dies with it.
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    world: Mutex<World>,
    bell: Arc<Bell>,
}

/// Everything there is.
#[derive(Default)]
struct World {
    /// The store-wide sequence: lane ids, run numbers, event sequence numbers and tokens all come from it.
    last_number: u64,
    queues: BTreeMap<(Tenant, QueueName), Totals>,
    paused_queues: BTreeMap<(QueueName, Option<Tenant>), Paused>,
    lanes: BTreeMap<LaneKey, Inhabited>,
    finished: Vec<FinishedRun>,
    audit: Vec<AuditRecord>,
}

/// A lane with its events: buffered, in flight, and those whose run has ended but is still kept.
struct Inhabited {
    lane: Lane,
    events: BTreeMap<u64, Event>,
    ids: BTreeMap<EventId, (u64, Fingerprint)>,
}

/// The history of a run that ended.
struct FinishedRun {
    key: LaneKey,
    lane: u64,
    ended: Finished,
    result: Option<serde_json::Value>,
    usage: BTreeMap<String, f64>,
}

impl MemoryStore {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        MemoryStore { clock, world: Mutex::default(), bell: Arc::default() }
    }

    fn world(&self) -> (Timestamp, MutexGuard<'_, World>) {
        let world = self.world.lock().expect("no panic happens while the world is locked");
        (self.clock.now(), world)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn append(&self, request: AppendRequest) -> StoreResult<Appended> {
        request.check()?;
        let (now, mut world) = self.world();
        let plans = world.plan(&request)?;
        let receipts =
            request.events.iter().zip(plans).map(|(event, plan)| world.append(now, event, plan)).collect();
        self.bell.ring();
        Ok(Appended { receipts })
    }

    async fn claim(&self, request: ClaimRequest) -> StoreResult<Claimed> {
        let (now, mut world) = self.world();
        Ok(world.claim(now, &request))
    }

    async fn extend(&self, request: ExtendRequest) -> StoreResult<Extended> {
        let (now, mut world) = self.world();
        let lost = || StoreError::lost_lease(request.run_id, request.token);
        let lane = &mut world.lane_of(request.run_id.lane).ok_or_else(lost)?.1.lane;
        let lease_until = lane
            .extend(now, request.run_id.number, request.token, request.lease)
            .map_err(|_| StoreError::lost_lease(request.run_id, request.token))?;
        Ok(Extended { lease_until, head_seq: lane.head_seq, newer: lane.open.map_or(0, |o| o.count) })
    }

    async fn settle(&self, request: SettleRequest) -> StoreResult<Settled> {
        let (now, mut world) = self.world();
        let settled = world.settle(now, request)?;
        self.bell.ring();
        Ok(settled)
    }

    async fn sweep(&self, request: SweepRequest) -> StoreResult<Swept> {
        let (now, mut world) = self.world();
        let mut swept = Swept::default();
        if request.reclaim {
            for key in world.lanes.keys().cloned().collect::<Vec<_>>() {
                swept.reclaimed.extend(world.reclaim(now, &key));
            }
        }
        if let Some(retention) = request.retention {
            world.forget(now.before(retention), &mut swept);
        }
        if !swept.reclaimed.is_empty() {
            self.bell.ring();
        }
        Ok(swept)
    }

    async fn inspect(&self, request: Inspect) -> StoreResult<Inspected> {
        let (now, world) = self.world();
        Ok(world.inspect(now, request, self.description()))
    }

    async fn control(&self, request: Control) -> StoreResult<Controlled> {
        let (now, mut world) = self.world();
        let changed = world.control(now, &request.actor, request.action)?;
        self.bell.ring();
        Ok(Controlled { changed })
    }

    fn wakeups(&self) -> Box<dyn Wakeups> {
        Box::new(Listener { heard: self.bell.rung(), bell: self.bell.clone() })
    }

    fn description(&self) -> Description {
        Description {
            kind: "memory",
            place: "this process".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            schema: 0,
            durability: Durability::BestEffort("everything is lost when the process ends".into()),
        }
    }
}

/// What an append will do with one event: decided for all events before the first is stored.
enum Plan {
    New,
    /// The same as the event with this sequence number.
    Duplicate(u64),
    /// The same as an earlier event of this request.
    Repeats(EventId),
}

impl World {
    fn fresh(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// All or nothing: a conflict or a full lane refuses the whole request before anything is stored.
    fn plan(&self, request: &AppendRequest) -> StoreResult<Vec<Plan>> {
        let mut news: BTreeMap<&LaneKey, u64> = BTreeMap::new();
        let mut ids: BTreeMap<(&LaneKey, &EventId), Fingerprint> = BTreeMap::new();
        let mut plans = Vec::with_capacity(request.events.len());
        for event in &request.events {
            let inhabited = self.lanes.get(&event.lane);
            let known = inhabited.and_then(|l| l.ids.get(event.id.id()));
            let looked_up = request.repeat || matches!(event.id, NewEventId::Given(_));
            let print = event.payload.fingerprint();
            let plan = match (known, ids.get(&(&event.lane, event.id.id()))) {
                (Some((seq, first)), _) if looked_up => {
                    if *first != print {
                        return Err(id_conflict(&event.lane, event.id.id()));
                    }
                    Plan::Duplicate(*seq)
                }
                (_, Some(first)) => {
                    if *first != print {
                        return Err(id_conflict(&event.lane, event.id.id()));
                    }
                    Plan::Repeats(event.id.id().clone())
                }
                _ => {
                    let waiting = inhabited.map_or(0, |l| l.lane.events());
                    let new = news.entry(&event.lane).or_default();
                    if waiting + *new >= event.policy.lane_events {
                        return Err(lane_full(&event.lane, waiting, event.policy.lane_events));
                    }
                    *new += 1;
                    ids.insert((&event.lane, event.id.id()), print);
                    Plan::New
                }
            };
            plans.push(plan);
        }
        Ok(plans)
    }

    fn append(&mut self, now: Timestamp, new: &NewEvent, plan: Plan) -> Receipt {
        let first = match plan {
            Plan::Duplicate(seq) => Some(seq),
            Plan::Repeats(id) => self.lanes.get(&new.lane).and_then(|l| l.ids.get(&id)).map(|(seq, _)| *seq),
            Plan::New => None,
        };
        if let Some(seq) = first {
            return self.duplicate(new, seq);
        }
        if !self.lanes.contains_key(&new.lane) {
            let lane = Lane::new(self.fresh(), now);
            self.lanes
                .insert(new.lane.clone(), Inhabited { lane, events: BTreeMap::new(), ids: BTreeMap::new() });
        }
        let (seq, number) = (self.fresh(), self.fresh());
        let inhabited = self.lanes.get_mut(&new.lane).expect("it was inserted above");
        let lane = &mut inhabited.lane;
        let met = lane.append(now, seq, new.payload.len() as u64, &new.policy.window, || number);
        inhabited.ids.insert(new.id.id().clone(), (seq, new.payload.fingerprint()));
        inhabited.events.insert(
            seq,
            Event {
                seq,
                id: new.id.id().clone(),
                received_at: now,
                payload: new.payload.clone(),
                headers: new.headers.clone(),
            },
        );
        let receipt = Receipt {
            event_id: new.id.id().clone(),
            seq,
            run_id: lane.open.map(|o| lane.run_id(o.number)),
            duplicate: false,
            due_at: lane.waits_until(seq),
            met: Some(met),
        };
        self.totals(&new.lane).appended(1);
        receipt
    }

    fn duplicate(&self, new: &NewEvent, seq: u64) -> Receipt {
        let lane = &self.lanes[&new.lane].lane;
        let place = self.place(&new.lane, seq);
        Receipt {
            event_id: new.id.id().clone(),
            seq,
            run_id: place.map(|(number, _)| lane.run_id(number)),
            duplicate: true,
            due_at: lane.waits_until(seq),
            met: None,
        }
    }

    fn claim(&mut self, now: Timestamp, request: &ClaimRequest) -> Claimed {
        let mut claimed = Claimed { now, ..Claimed::default() };
        let mut due: Vec<(Timestamp, LaneKey, Arc<RunPolicy>)> = Vec::new();
        for key in self.lanes.keys().cloned().collect::<Vec<_>>() {
            let Some(policy) = request.policy_for(&key.tenant, &key.queue).cloned() else { continue };
            if request.reclaim {
                claimed.reclaimed.extend(self.reclaim(now, &key));
            }
            if self.queue_paused(&key).is_some() {
                continue;
            }
            let lane = &self.lanes[&key].lane;
            match lane.attention(now) {
                Attention::Again | Attention::Cut => due.push((lane.due_at().unwrap_or(now), key, policy)),
                Attention::Wait(_) | Attention::Expired | Attention::Idle => {}
            }
        }
        due.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let mut of_queue: BTreeMap<QueueName, usize> = BTreeMap::new();
        for (_, key, policy) in due {
            let room = request.room_for(&key.queue);
            let taken = of_queue.entry(key.queue.clone()).or_default();
            let running = self.running(&key);
            let all = policy.max_running.map_or(u64::MAX, u64::from);
            if claimed.batches.len() < request.max && *taken < room && running < all {
                *taken += 1;
                claimed.batches.push(self.hand_out(now, &key, request, &policy));
            }
        }
        claimed.next_at = self.lanes.keys().filter_map(|key| self.next_at(now, key, request)).min();
        claimed
    }

    /// When this claimer should look at the lane again. A queue at its `max_running` is woken by a settle instead.
    /// An expired lease that this claimer may not take back is left for others.
    fn next_at(&self, now: Timestamp, key: &LaneKey, request: &ClaimRequest) -> Option<Timestamp> {
        let policy = request.policy_for(&key.tenant, &key.queue)?;
        let lane = &self.lanes[key].lane;
        let full = policy.max_running.is_some_and(|max| self.running(key) >= u64::from(max));
        let due = lane.due_at().filter(|_| !full && self.queue_paused(key).is_none());
        let lease = lane.lease_at().filter(|until| request.reclaim || *until > now);
        [due, lease].into_iter().flatten().min()
    }

    fn hand_out(
        &mut self,
        now: Timestamp,
        key: &LaneKey,
        request: &ClaimRequest,
        policy: &RunPolicy,
    ) -> Batch {
        let (token, leftover) = (self.fresh(), self.fresh());
        let inhabited = self.lanes.get_mut(key).expect("due lanes exist");
        let lane = &mut inhabited.lane;
        let mut taken_events = 0;
        if let (None, Some(open)) = (&lane.current, lane.open) {
            let waiting: Vec<&Event> = inhabited.events.range(open.lo..).map(|(_, e)| e).collect();
            let count = window::cut(&open.window.window, waiting.iter().map(|e| e.payload.len() as u64));
            let (batch, rest) = waiting.split_at(count);
            let last = batch.last().expect("a cut takes at least one event");
            let taken = Taken {
                count: count as u64,
                bytes: batch.iter().map(|e| e.payload.len() as u64).sum(),
                hi: last.seq,
                last_at: last.received_at,
                rest: rest.first().map(|e| Rest { lo: e.seq, first_at: e.received_at }),
            };
            taken_events = taken.count;
            lane.cut(now, taken, || leftover);
        }
        let claimer = Claimer {
            worker: request.worker.clone(),
            token,
            lease: policy.lease,
            max_attempts: policy.max_attempts,
        };
        let made = lane.claim(now, &claimer);
        let run = lane.current.as_ref().expect("it was claimed above");
        let events = inhabited.events.range(run.lo..=run.hi).map(|(_, e)| e.clone()).collect();
        let batch = lane.envelope(key.clone(), events);
        let id = lane.id;
        self.totals(key).taken(taken_events);
        self.record(now, key, Some(id), made, None);
        batch
    }

    fn settle(&mut self, now: Timestamp, request: SettleRequest) -> StoreResult<Settled> {
        let SettleRequest { run_id, token, verdict, delay, error, result, usage } = request;
        let lost = || StoreError::lost_lease(run_id, token);
        let Some((key, inhabited)) = self.lane_of(run_id.lane) else { return Err(lost()) };
        let key = key.clone();
        match inhabited.lane.settle(now, run_id.number, token, &Settlement { verdict, delay }, error) {
            Ok(step) => {
                let (state, next_at) = (step.made.to.expect("a settlement names a state"), step.made.next_at);
                self.apply(now, &key, step, result, usage);
                Ok(Settled { state, next_at, repeated: false })
            }
            Err(lane::NotHolder) => {
                let settlement = |r: &&AuditRecord| {
                    r.run == Some(run_id) && r.token == token && lane::is_settlement(r.change)
                };
                let first = self.audit.iter().find(settlement).ok_or_else(lost)?;
                if !lane::same_settlement(verdict, first.change) {
                    return Err(already_settled(run_id, token, first.change));
                }
                let state = first.to.expect("a settlement names a state");
                Ok(Settled { state, next_at: first.next_at, repeated: true })
            }
        }
    }

    /// Takes the lane back if its lease ran out.
    fn reclaim(&mut self, now: Timestamp, key: &LaneKey) -> Option<Reclaimed> {
        let lane = &mut self.lanes.get_mut(key)?.lane;
        if lane.attention(now) != Attention::Expired {
            return None;
        }
        let held = lane.current.clone()?;
        let run_id = lane.run_id(held.number);
        let step = lane.reclaim(now);
        let state = step.made.to?;
        self.apply(now, key, step, None, BTreeMap::new());
        let (token, worker, claimed_at) = (held.token, held.worker, held.claimed_at);
        Some(Reclaimed { lane: key.clone(), run_id, token, worker, claimed_at, state })
    }

    /// Writes down what a step did.
    fn apply(
        &mut self,
        now: Timestamp,
        key: &LaneKey,
        step: Step,
        result: Option<serde_json::Value>,
        usage: BTreeMap<String, f64>,
    ) {
        let lane = self.lanes[key].lane.id;
        self.record(now, key, Some(lane), step.made, None);
        if let Some(ended) = step.finished {
            self.totals(key).finished(ended.state, ended.run.count);
            self.finished.push(FinishedRun { key: key.clone(), lane, ended, result, usage });
        }
    }

    fn control(&mut self, now: Timestamp, actor: &str, action: ControlAction) -> StoreResult<bool> {
        let (key, made) = match action {
            ControlAction::Flush(key) => {
                let made = self.lanes.get_mut(&key).and_then(|l| l.lane.flush(now));
                (key, made)
            }
            ControlAction::PauseLane(key) => {
                if !self.lanes.contains_key(&key) {
                    let lane = Lane::new(self.fresh(), now);
                    let inhabited = Inhabited { lane, events: BTreeMap::new(), ids: BTreeMap::new() };
                    self.lanes.insert(key.clone(), inhabited);
                    self.totals(&key);
                }
                let made = self.lanes.get_mut(&key).and_then(|l| l.lane.pause(now, actor));
                (key, made)
            }
            ControlAction::ResumeLane(key) => {
                let made = self.lanes.get_mut(&key).and_then(|l| l.lane.resume(now));
                (key, made)
            }
            ControlAction::PauseQueue(scope) => {
                let paused = Paused { at: now, by: actor.to_owned() };
                let known = self.paused_queues.contains_key(&(scope.queue.clone(), scope.tenant.clone()));
                self.paused_queues.entry((scope.queue.clone(), scope.tenant.clone())).or_insert(paused);
                return Ok(self.record_queue(now, scope, Change::QueuePaused, actor, !known));
            }
            ControlAction::ResumeQueue(scope) => {
                let gone = self.paused_queues.remove(&(scope.queue.clone(), scope.tenant.clone())).is_some();
                return Ok(self.record_queue(now, scope, Change::QueueResumed, actor, gone));
            }
        };
        let Some(made) = made else { return Ok(false) };
        let lane = self.lanes[&key].lane.id;
        self.record(now, &key, Some(lane), made, Some(actor));
        Ok(true)
    }

    fn record_queue(
        &mut self,
        at: Timestamp,
        scope: QueueScope,
        change: Change,
        actor: &str,
        changed: bool,
    ) -> bool {
        if changed {
            let tenant = scope.tenant.unwrap_or_else(Tenant::none);
            self.queues.entry((tenant.clone(), scope.queue.clone())).or_default();
            self.push_audit(at, tenant, scope.queue, None, None, lane::plain(change), Some(actor));
        }
        changed
    }

    /// The retention: finished runs that are not dead, their events and ids, old audit, then lanes nobody knows.
    fn forget(&mut self, before: Timestamp, swept: &mut Swept) {
        let mut kept = Vec::new();
        for run in std::mem::take(&mut self.finished) {
            let expired = run.ended.at < before && run.ended.state != crate::lifecycle::RunState::Failed;
            if !expired || swept.removed_runs >= limits::RETENTION_RUNS_STEP as u64 {
                swept.more |= expired;
                kept.push(run);
                continue;
            }
            swept.removed_runs += 1;
            if let Some(inhabited) = self.lanes.get_mut(&run.key) {
                for seq in run.ended.run.lo..=run.ended.run.hi {
                    if let Some(event) = inhabited.events.remove(&seq) {
                        inhabited.ids.remove(&event.id);
                        swept.removed_events += 1;
                    }
                }
            }
        }
        self.finished = kept;
        let old = self.audit.iter().take_while(|r| r.at < before).count();
        self.audit.drain(..old);
        swept.removed_audit = old as u64;
        let (finished, audit) = (&self.finished, &self.audit);
        self.lanes.retain(|key, l| {
            let quiet = l.lane.state().is_none() && l.lane.paused.is_none();
            let known = finished.iter().any(|r| r.lane == l.lane.id)
                || audit.iter().any(|r| {
                    r.key.as_ref() == Some(&key.key) && r.queue == key.queue && r.tenant == key.tenant
                });
            !quiet || known || !l.events.is_empty()
        });
    }

    fn totals(&mut self, key: &LaneKey) -> &mut Totals {
        self.queues.entry((key.tenant.clone(), key.queue.clone())).or_default()
    }

    fn lane_of(&mut self, id: u64) -> Option<(&LaneKey, &mut Inhabited)> {
        self.lanes.iter_mut().find(|(_, l)| l.lane.id == id)
    }

    fn running(&self, key: &LaneKey) -> u64 {
        let same = |k: &LaneKey| k.tenant == key.tenant && k.queue == key.queue;
        self.lanes.iter().filter(|(k, l)| same(k) && l.lane.lease_at().is_some()).count() as u64
    }

    fn queue_paused(&self, key: &LaneKey) -> Option<&Paused> {
        let own = self.paused_queues.get(&(key.queue.clone(), Some(key.tenant.clone())));
        own.or_else(|| self.paused_queues.get(&(key.queue.clone(), None)))
    }

    fn record(&mut self, at: Timestamp, key: &LaneKey, lane: Option<u64>, made: Move, actor: Option<&str>) {
        self.push_audit(at, key.tenant.clone(), key.queue.clone(), Some(key), lane, made, actor);
    }

    #[expect(clippy::too_many_arguments, reason = "the columns of one record")]
    fn push_audit(
        &mut self,
        at: Timestamp,
        tenant: Tenant,
        queue: QueueName,
        key: Option<&LaneKey>,
        lane: Option<u64>,
        made: Move,
        actor: Option<&str>,
    ) {
        let id = self.fresh();
        self.audit.push(AuditRecord {
            id,
            at,
            tenant,
            queue,
            key: key.map(|k| k.key.clone()),
            run: lane.zip(made.run).map(|(lane, number)| crate::batch::RunId { lane, number }),
            change: made.change,
            from: made.from,
            to: made.to,
            attempt: made.attempt,
            token: made.token,
            worker: made.worker.map(|w| w.to_string()),
            prior_worker: made.prior_worker.map(|w| w.to_string()),
            upto_seq: made.upto_seq,
            next_at: made.next_at,
            actor: actor.map(str::to_owned),
        });
    }
}

/// Wakes listeners without a runtime: a count of rings and those who wait for the next.
#[derive(Default)]
struct Bell(Mutex<(u64, Vec<Waker>)>);

impl Bell {
    fn ring(&self) {
        let mut inner = self.0.lock().expect("no panic happens while the bell is locked");
        inner.0 += 1;
        for waker in inner.1.drain(..) {
            waker.wake();
        }
    }

    fn rung(&self) -> u64 {
        self.0.lock().expect("no panic happens while the bell is locked").0
    }
}

struct Listener {
    bell: Arc<Bell>,
    heard: u64,
}

#[async_trait]
impl Wakeups for Listener {
    async fn woken(&mut self) {
        let (bell, heard) = (self.bell.clone(), self.heard);
        self.heard = std::future::poll_fn(|context| {
            let mut inner = bell.0.lock().expect("no panic happens while the bell is locked");
            if inner.0 > heard {
                return Poll::Ready(inner.0);
            }
            inner.1.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
