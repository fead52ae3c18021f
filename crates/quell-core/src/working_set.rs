//! The decisions of every verb on rows that have been read: what is stored, handed out, taken back, ended.
//!
//! A working set holds rows: all there are in the memory store, and in a store over a connection
//! (`quell-store-rows`) those that one transaction has read and locked. The code is the same, so the semantics are.
//! Ordered maps, no cleverness, no I/O.
//!
//! The verbs of senders and holders are here; events aside and schedules are in `working_set/aside_rows.rs`, the
//! operator's hand in `working_set/hands.rs`, reads in `working_set/reads.rs`, sources in `working_set/sources.rs`.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use crate::aside::{self, Aside};
use crate::attempt;
use crate::audit::{AuditRecord, Move};
use crate::batch::{Batch, RunId, WorkerId};
use crate::clock::Timestamp;
use crate::error::{StoreError, StoreResult};
use crate::event::{
    Event, EventId, Fingerprint, LaneKey, NewEvent, NewEventId, Overflow, Payload, QueueName, SourceName,
    Tenant,
};
use crate::lane::{self, Attention, Claimer, CurrentRun, Finished, Gone, Lane, Part, Paused};
use crate::lane::{Rest, Step, Taken};
use crate::lifecycle::{Change, RunState};
use crate::limits;
use crate::mutants::mutant;
use crate::outcome::VerdictKind;
use crate::schedule::ScheduleRow;
use crate::shelf::{Document, Shelf};
use crate::source::{CacheRow, Readiness, Source, SourceId, SourceRules};
use crate::store::{
    AppendRequest, Appended, ClaimRequest, Claimed, Held, HoldRequest, Receipt, Reclaimed, Redrive,
    RunPolicy, SettleRequest, Settled, StepAction, StepAnswer, StepRequest, StepRow, Swept, already_settled,
    edits_another, held_before, id_conflict, lane_full, not_idle, too_many_steps,
};
use crate::totals::Totals;
use crate::window::Cut;

mod aside_rows;
mod hands;
mod reads;
mod shelves;
mod sources;

pub use hands::LaneSums;

/// Rows, and the numbers that new ones get.
#[derive(Debug, Default, Clone)]
pub struct WorkingSet {
    pub numbers: Numbers,
    /// Where the totals of a queue that is not in `queues` begin: above zero in a part, so that they can fall.
    pub base: Totals,
    pub queues: BTreeMap<(Tenant, QueueName), Totals>,
    pub paused_queues: BTreeMap<(QueueName, Option<Tenant>), Paused>,
    pub lanes: BTreeMap<LaneKey, Inhabited>,
    /// Where lanes are by their numbers, as far as whoever filled this set has noted it: a holder names its lane by number,
    /// and a group of five hundred would otherwise look through all of them for each. What stands here is only a hint.
    pub places: HashMap<u64, LaneKey>,
    pub aside: Vec<Aside>,
    pub schedules: BTreeMap<(Tenant, QueueName), ScheduleRow>,
    pub steps: BTreeMap<(RunId, u32, String), StepRow>,
    pub finished: Vec<FinishedRun>,
    pub audit: Vec<Trail>,
    pub declarations: BTreeMap<SourceName, SourceRules>,
    pub sources: BTreeMap<SourceId, Source>,
    /// Answers of sources that are kept or being fetched, by source and key.
    pub cache: BTreeMap<(SourceId, String), CacheRow>,
    /// Documents by shelf and name; those that are over may still be among them.
    pub shelves: BTreeMap<(Shelf, String), Document>,
}

/// The store-wide sequence: lane ids, run numbers, event sequence numbers, tokens and record ids all come from it.
#[derive(Debug, Clone)]
pub enum Numbers {
    /// All of them: this is the latest that was given.
    Last(u64),
    /// Those that were set apart for one transaction, after its lanes were locked.
    SetApart(VecDeque<Range<u64>>),
}

impl Default for Numbers {
    fn default() -> Self {
        Numbers::Last(0)
    }
}

impl Numbers {
    /// # Panics
    ///
    /// When a transaction uses more numbers than it has set apart for itself: it counts them generously beforehand.
    fn next(&mut self) -> u64 {
        match self {
            Numbers::Last(last) => {
                *last += 1;
                *last
            }
            Numbers::SetApart(ranges) => loop {
                let range = ranges.front_mut().expect("a transaction sets enough numbers apart");
                match range.next() {
                    Some(number) => break number,
                    None => drop(ranges.pop_front()),
                }
            },
        }
    }
}

/// A lane with its events: buffered, in flight, and those whose run has ended but is still kept.
#[derive(Debug, Clone)]
pub struct Inhabited {
    /// Boxed, as events are shared: a transaction has a thousand of them, and moves them from map to list.
    pub lane: Box<Lane>,
    pub events: BTreeMap<u64, Arc<Kept>>,
    pub ids: BTreeMap<EventId, (u64, Fingerprint)>,
}

/// An event as it is kept in its lane.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    pub event: Event,
    /// The run it was expressly given to; otherwise its number says to which run it belongs.
    pub mark: Option<u64>,
    pub priority: u8,
    /// Of the payload as it was sent, whatever became of it.
    pub print: Fingerprint,
    pub source: Option<SourceId>,
}

impl Kept {
    fn bytes(&self) -> u64 {
        self.event.payload.len() as u64
    }
}

/// The history of a run that ended.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedRun {
    pub key: LaneKey,
    pub lane: u64,
    pub ended: Finished,
    pub result: Option<serde_json::Value>,
    pub usage: BTreeMap<String, f64>,
}

/// A record of the trail with the lane it concerns, of which the record shows the key.
#[derive(Debug, Clone, PartialEq)]
pub struct Trail {
    pub lane: Option<u64>,
    pub record: AuditRecord,
}

/// What a handler reported beside its verdict.
#[derive(Debug, Default)]
pub struct Report {
    pub result: Option<serde_json::Value>,
    pub usage: BTreeMap<String, f64>,
}

/// What an append will do with one event: decided for all events before the first is stored.
enum Plan {
    /// With the fingerprint of its payload.
    New(Fingerprint),
    /// The same as the event with this sequence number.
    Duplicate(u64),
    /// The same as an event that is still aside.
    DuplicateAside(u64),
    /// The same as an earlier event of this request.
    Repeats(EventId),
}

impl WorkingSet {
    pub fn append(&mut self, now: Timestamp, request: &AppendRequest) -> StoreResult<Appended> {
        let plans = self.plan(request)?;
        let events = request.events.iter().zip(plans);
        Ok(Appended { receipts: events.map(|(event, plan)| self.perform(now, event, plan)).collect() })
    }

    pub(crate) fn fresh(&mut self) -> u64 {
        self.numbers.next()
    }

    /// All or nothing: a conflict or a full lane refuses the whole request before anything is stored.
    fn plan(&self, request: &AppendRequest) -> StoreResult<Vec<Plan>> {
        let mut news: BTreeMap<&LaneKey, u64> = BTreeMap::new();
        let mut ids: BTreeMap<(&LaneKey, &EventId), Fingerprint> = BTreeMap::new();
        let mut contents: BTreeMap<(&LaneKey, Fingerprint), &EventId> = BTreeMap::new();
        let mut plans = Vec::with_capacity(request.events.len());
        for event in &request.events {
            let inhabited = self.lanes.get(&event.lane);
            let (id, given) = (event.id.id(), matches!(event.id, NewEventId::Given(_)));
            let print = event.payload.fingerprint();
            let same = |first: Fingerprint, plan: Plan| {
                let equal = first == print || mutant("conflict_is_a_duplicate");
                if equal { Ok(plan) } else { Err(id_conflict(&event.lane, id)) }
            };
            let looked_up = request.repeat || given;
            let known = inhabited.and_then(|l| l.ids.get(id)).filter(|_| looked_up);
            let waits = |seq: u64| inhabited.and_then(|l| l.lane.run_of(seq, None)).is_some();
            let known = known.filter(|(seq, _)| !mutant("id_ends_with_its_run") || waits(*seq));
            let aside =
                self.aside.iter().find(|a| looked_up && a.event.lane == event.lane && a.event.id.id() == id);
            if let Some((seq, first)) = known {
                plans.push(same(*first, Plan::Duplicate(*seq))?);
                continue;
            }
            if let Some(first) = aside {
                plans.push(same(first.event.payload.fingerprint(), Plan::DuplicateAside(first.number))?);
                continue;
            }
            if let Some(first) = ids.get(&(&event.lane, id)) {
                plans.push(same(*first, Plan::Repeats(id.clone()))?);
                continue;
            }
            if event.policy.content_dedupe && event.delay.is_none() {
                let own = given && !mutant("equal_content_merges_given_ids");
                if !own && let Some(seq) = inhabited.and_then(|l| l.same_content(print)) {
                    plans.push(Plan::Duplicate(seq));
                    continue;
                }
                if !given && let Some(first) = contents.get(&(&event.lane, print)) {
                    plans.push(Plan::Repeats((*first).clone()));
                    continue;
                }
                contents.insert((&event.lane, print), id);
            }
            let new = news.entry(&event.lane).or_default();
            self.check_source(event)?;
            self.check_room(event, inhabited, *new)?;
            *new += 1;
            ids.insert((&event.lane, id), print);
            plans.push(Plan::New(print));
        }
        Ok(plans)
    }

    /// Whether one more event fits into its lane, behind `new` others of the same request.
    fn check_room(&self, event: &NewEvent, inhabited: Option<&Inhabited>, new: u64) -> StoreResult<()> {
        let waiting = inhabited.map_or(0, |l| l.lane.events());
        let idle = inhabited.is_none_or(|l| l.lane.is_idle()) && new == 0;
        if event.only_if_idle && !(idle && self.aside.iter().all(|a| a.event.lane != event.lane)) {
            return Err(not_idle(&event.lane));
        }
        if event.delay.is_some() || waiting + new < event.policy.lane_events || mutant("lane_has_no_limit") {
            return Ok(());
        }
        let buffered = inhabited.and_then(|l| l.lane.open).map_or(0, |o| o.count);
        let over = waiting + new + 1 - event.policy.lane_events;
        if event.policy.overflow == Overflow::DropOldest && over <= buffered {
            return Ok(());
        }
        Err(lane_full(&event.lane, waiting, event.policy.lane_events))
    }

    fn perform(&mut self, now: Timestamp, new: &NewEvent, plan: Plan) -> Receipt {
        match plan {
            Plan::New(_) if new.delay.is_some() => {
                self.put_aside(now, new.clone(), now.after(new.delay.unwrap_or_default()))
            }
            Plan::New(print) => self.enter(now, new, print, false),
            Plan::Duplicate(seq) => {
                let lane = self.lanes.get_mut(&new.lane).map(|l| &mut l.lane);
                if mutant("duplicate_moves_the_window")
                    && let Some(open) = lane.and_then(|l| l.open.as_mut())
                {
                    open.window.latest_at = now;
                }
                self.duplicate(new, seq)
            }
            Plan::DuplicateAside(number) => self.duplicate_aside(number),
            Plan::Repeats(id) => match self.lanes.get(&new.lane).and_then(|l| l.ids.get(&id)) {
                Some((seq, _)) => self.duplicate(new, *seq),
                None => {
                    let first =
                        self.aside.iter().find(|a| a.event.lane == new.lane && *a.event.id.id() == id);
                    let number = first.expect("the first of the request is in its lane or aside").number;
                    self.duplicate_aside(number)
                }
            },
        }
    }

    /// Store time in this lane: it never goes back there, also when somebody who began later was faster, or when another
    /// server's clock is behind (rule 31).
    fn time_in(&self, now: Timestamp, key: &LaneKey) -> Timestamp {
        self.lanes.get(key).map_or(now, |l| now.max(l.lane.updated_at))
    }

    fn inhabit(&mut self, now: Timestamp, key: &LaneKey) -> &mut Inhabited {
        if !self.lanes.contains_key(key) {
            let lane = Box::new(Lane::new(self.fresh(), now));
            self.lanes.insert(key.clone(), Inhabited { lane, events: BTreeMap::new(), ids: BTreeMap::new() });
            self.totals(key);
        }
        self.lanes.get_mut(key).expect("it was inserted above")
    }

    /// An event takes its place in its lane. One from aside has been accepted before.
    fn enter(&mut self, now: Timestamp, new: &NewEvent, print: Fingerprint, from_aside: bool) -> Receipt {
        let now = self.time_in(now, &new.lane);
        self.inhabit(now, &new.lane);
        self.make_room(now, new);
        let source = self.resolve(now, new);
        let (mut seq, number) = (self.fresh(), self.fresh());
        let inhabited = self.lanes.get_mut(&new.lane).expect("it was inserted above");
        let lane = &mut inhabited.lane;
        if mutant("sequence_without_the_lock") && lane.head_seq > 0 && seq.is_multiple_of(5) {
            // Somebody who has read the same row at the same time got the same number.
            seq = lane.head_seq;
        }
        let met = lane.append(now, seq, new, source, || number);
        let id = new.id.id().clone();
        inhabited.ids.insert(id.clone(), (seq, print));
        let (payload, headers) = (new.payload.clone(), new.headers.clone());
        let event = Event { seq, id: id.clone(), received_at: now, payload, headers, was_seq: None };
        let kept = Kept { event, mark: None, priority: new.priority, print, source };
        inhabited.events.insert(seq, Arc::new(kept));
        let receipt = Receipt {
            event_id: id,
            seq: Some(seq),
            run_id: lane.open.map(|o| lane.run_id(o.number)),
            duplicate: false,
            due_at: lane.waits_until(seq, None),
            state: Some(RunState::Pending),
            met: Some(met),
        };
        let totals = self.totals(&new.lane);
        if from_aside {
            totals.entered(1)
        } else {
            totals.appended(1)
        }
        receipt
    }

    /// A full lane that drops its oldest makes room for one more event.
    fn make_room(&mut self, now: Timestamp, new: &NewEvent) {
        let inhabited = &self.lanes[&new.lane];
        let waiting = inhabited.lane.events();
        let Some(open) = inhabited.lane.open.filter(|_| waiting >= new.policy.lane_events) else { return };
        if new.policy.overflow != Overflow::DropOldest {
            return;
        }
        let over = usize::try_from(waiting + 1 - new.policy.lane_events).unwrap_or(usize::MAX);
        let unmarked = inhabited.events.range(open.lo..).filter(|(_, k)| k.mark.is_none());
        // The open run begins with the first that stays: a store that has not read it would leave out those in between.
        debug_assert!(
            unmarked.clone().count() as u64 >= open.count.min(over as u64 + 1),
            "too few events are at hand"
        );
        let seqs = unmarked.map(|(seq, _)| *seq);
        let oldest: Vec<u64> = match mutant("drops_the_newest") {
            true => seqs.rev().take(over).collect(),
            false => seqs.take(over).collect(),
        };
        self.discard(now, &new.lane, &oldest, Change::Dropped, None);
    }

    fn duplicate(&self, new: &NewEvent, seq: u64) -> Receipt {
        let inhabited = &self.lanes[&new.lane];
        let lane = &inhabited.lane;
        let kept = inhabited.events.get(&seq);
        let place = self.place(&new.lane, seq);
        Receipt {
            event_id: kept.map_or_else(|| new.id.id().clone(), |k| k.event.id.clone()),
            seq: Some(seq),
            run_id: place.map(|(number, _)| lane.run_id(number)),
            duplicate: true,
            due_at: lane.waits_until(seq, kept.and_then(|k| k.mark)),
            state: place.map(|(_, state)| state),
            met: None,
        }
    }

    /// Only for a working set that holds everything: looks at every lane.
    pub(crate) fn claim(&mut self, now: Timestamp, request: &ClaimRequest) -> Claimed {
        let mut claimed = Claimed { now, ..Claimed::default() };
        if let Some(id) = &request.claim_id {
            claimed.batches = self.claimed_before(now, id, &request.worker);
            if !claimed.batches.is_empty() {
                claimed.next_at = Some(now);
                return claimed;
            }
        }
        self.fire_and_enter(now, |tenant, queue| request.policy_for(tenant, queue).is_some());
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
            if matches!(lane.attention(now), Attention::Again | Attention::Cut) {
                due.push((lane::rank(lane.due_at().unwrap_or(now), lane.priority()), key, policy));
            }
        }
        due.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let mut of_queue: BTreeMap<QueueName, usize> = BTreeMap::new();
        for (_, key, policy) in due {
            let room = request.room_for(&key.queue);
            let taken = of_queue.entry(key.queue.clone()).or_default();
            let running = self.running(&key);
            let all = policy.max_running.map_or(u64::MAX, u64::from);
            let ready = self.readiness(now, &self.lanes[&key].lane).is_go();
            let allowed = running < all || mutant("max_running_is_ignored");
            if ready && claimed.batches.len() < request.max && *taken < room && allowed {
                *taken += 1;
                claimed.batches.push(self.hand_out(now, &key, request, &policy));
            }
        }
        let lanes = self.lanes.keys().filter_map(|key| self.next_at(now, key, request));
        claimed.next_at = lanes.chain(self.next_aside(request)).min();
        claimed
    }

    /// The live claims that an earlier call of this worker with this id got.
    pub fn claimed_before(&self, now: Timestamp, claim_id: &str, worker: &Arc<WorkerId>) -> Vec<Batch> {
        let lanes = self.lanes.iter().filter(|(_, l)| l.is_claimed(now, claim_id, worker));
        lanes.map(|(key, l)| l.lane.envelope(key.clone(), l.current_events())).collect()
    }

    /// Whether there are any.
    pub fn is_claimed(&self, now: Timestamp, claim_id: &str, worker: &Arc<WorkerId>) -> bool {
        self.lanes.values().any(|l| l.is_claimed(now, claim_id, worker))
    }

    /// When this claimer should look at the lane again: when it is due, but not before its source lets it go. A queue at its
    /// `max_running` is woken by a settle instead. An expired lease that this claimer may not take back is left for others.
    fn next_at(&self, now: Timestamp, key: &LaneKey, request: &ClaimRequest) -> Option<Timestamp> {
        let policy = request.policy_for(&key.tenant, &key.queue)?;
        let lane = &self.lanes[key].lane;
        let full = policy.max_running.is_some_and(|max| self.running(key) >= u64::from(max));
        let due = lane.due_at().filter(|_| !full && self.queue_paused(key).is_none());
        let due = due.and_then(|due| self.readiness(now, lane).not_before(due));
        let lease = lane.lease_at().filter(|until| request.reclaim || *until > now);
        [due, lease].into_iter().flatten().min()
    }

    /// Hands a due lane over, with its batch, after [`WorkingSet::readiness`] said that its source lets it go: one token
    /// is taken in the same step. Its events must be there: those of its current run, and the front of its
    /// open run as far as its bounds, or those of the run that takes them in, allow, and one event behind it.
    ///
    /// # Panics
    ///
    /// When the lane is not due, or its source does not let it go.
    pub fn hand_out(
        &mut self,
        now: Timestamp,
        key: &LaneKey,
        request: &ClaimRequest,
        policy: &Arc<RunPolicy>,
    ) -> Batch {
        let now = self.time_in(now, key);
        let Readiness::Go { probe, .. } = self.readiness(now, &self.lanes[key].lane) else {
            panic!("a lane is handed out only when its source lets it go");
        };
        let (mut token, leftover) = (self.fresh(), self.fresh());
        let inhabited = self.lanes.get_mut(key).expect("due lanes exist");
        if mutant("token_counted_per_run") {
            token = inhabited.lane.current.as_ref().map_or(0, |run| run.token) + 1;
        }
        let lane = &mut inhabited.lane;
        let mut taken_events = 0;
        let mut merged = None;
        match &lane.current {
            None => {
                let open = lane.open.expect("a due lane has a run");
                let cut = Cut::new(&open.window.window);
                let taken = inhabited.take_front(cut, open.source).expect("a cut takes at least one event");
                taken_events = taken.count;
                inhabited.lane.cut(now, taken, || leftover);
            }
            Some(current) if current.is_buffered() => taken_events = current.count,
            Some(_) => {
                let merges =
                    lane.takes_newer(policy).map(|c| (Cut::after(&c.bounds(), c.count, c.bytes), c.source));
                if let Some(taken) = merges.and_then(|(cut, source)| inhabited.take_front(cut, source)) {
                    taken_events = taken.count;
                    merged = Some(inhabited.lane.absorb(now, taken, || leftover));
                }
            }
        }
        let inhabited = self.lanes.get_mut(key).expect("due lanes exist");
        let events = inhabited.current_events();
        let claimer = Claimer {
            worker: request.worker.clone(),
            token,
            policy: aside::told(policy, &events),
            claim_id: request.claim_id.clone(),
            probe,
        };
        let made = inhabited.lane.claim(now, &claimer);
        let batch = inhabited.lane.envelope(key.clone(), events);
        let id = inhabited.lane.id;
        if let Some(source) = batch.source.and_then(|id| self.sources.get_mut(&id)) {
            source.take(now, batch.run_id, token, batch.lease_until);
        }
        self.totals(key).taken(taken_events);
        if let Some(step) = merged {
            self.apply(now, key, step, Report::default(), None);
        }
        self.record(now, key, Some(id), made, None);
        batch
    }

    pub fn hold(&mut self, now: Timestamp, request: &HoldRequest) -> StoreResult<Held> {
        let (run, token) = (request.run_id, request.token);
        let lost = || StoreError::lost_lease(run, token);
        let mut now = now;
        let mut source = None;
        let held = match self.lane_of(run.lane) {
            Some((key, l)) => {
                now = now.max(l.lane.updated_at);
                source = l.lane.source();
                l.lane.hold(now, run.number, token, request.if_head).map(|held| (key.clone(), held))
            }
            None => Err(lane::NotHolder),
        };
        match held {
            Ok((key, (answer, step))) => {
                let state = step.as_ref().and_then(|s| s.made.to).unwrap_or(RunState::Running);
                if let Some(step) = step {
                    self.apply(now, &key, step, Report::default(), None);
                }
                if state != RunState::Running {
                    self.probe_lost(source, run, token);
                }
                Ok(Held { answer, state })
            }
            Err(lane::NotHolder) => {
                let (_, record) = self.settled_before(run, token).ok_or_else(lost)?;
                held_before(run, token, record.verdict, record.change, record.to)
            }
        }
    }

    pub(crate) fn step(&mut self, now: Timestamp, request: StepRequest) -> StoreResult<StepAnswer> {
        let run_id = request.run_id;
        let lane = self.lane_of(run_id.lane).map(|(_, l)| l.lane.clone());
        let holder = lane.as_ref().and_then(|l| l.holder(run_id.number, request.token));
        let revision = holder.map_or(0, |h| h.revision);
        let known = self.steps.get(&(run_id, revision, request.name.clone()));
        let of_run = self.steps.range((run_id, revision, String::new())..);
        let count = of_run.take_while(|((run, rev, _), _)| *run == run_id && *rev == revision).count();
        let (answer, row) = step(now, lane.as_deref(), request, known, count)?;
        if let Some(row) = row {
            self.steps.insert((run_id, row.revision, row.name.clone()), row);
        }
        Ok(answer)
    }

    pub fn settle(&mut self, now: Timestamp, request: SettleRequest) -> StoreResult<Settled> {
        let (run_id, token) = (request.run_id, request.token);
        let lost = || StoreError::lost_lease(run_id, token);
        let holder = self.lane_of(run_id.lane).and_then(|(_, l)| l.lane.holder(run_id.number, token));
        let (source, probe, claims) =
            holder.map_or((None, false, 0), |run| (run.source, run.probe, run.claims));
        let governs = source.and_then(|id| self.sources.get(&id));
        let refund = governs.is_some_and(|s| s.refunds(now, run_id, token, probe, request.source));
        let end = request.settlement(refund);
        // An erased lane is gone, but what its holders have said is still on record.
        let mut now = now;
        let settled = match self.lane_of(run_id.lane) {
            Some((key, l)) => {
                now = now.max(l.lane.updated_at);
                let step = l.lane.settle(now, run_id.number, token, &end, request.error.clone());
                step.map(|step| (key.clone(), step))
            }
            None => Err(lane::NotHolder),
        };
        match settled {
            Ok((key, step)) => {
                let (change, next_at) = (step.made.change, step.made.next_at);
                let state = step.made.to.expect("a settlement names a state");
                if let Some(row) = attempt::row(now, claims, &request) {
                    self.steps.insert((run_id, row.revision, row.name.clone()), row);
                }
                let report = Report { result: request.result, usage: request.usage };
                let ended = step.finished.is_some() && !step.split || mutant("retry_sends_its_follow_ups");
                self.apply(now, &key, step, report, None);
                if let Some(source) = source.and_then(|id| self.sources.get_mut(&id)) {
                    source.settled(now, run_id, token, request.verdict.kind(), request.source);
                }
                if ended {
                    for event in aside::carried(run_id, &request.events) {
                        let ready_at = now.after(event.delay.unwrap_or_default());
                        self.put_aside(now, event, ready_at);
                    }
                }
                Ok(Settled { state, change, next_at, repeated: false })
            }
            Err(lane::NotHolder) => {
                let (verdict, first) = self.settled_before(run_id, token).ok_or_else(lost)?;
                if verdict != request.verdict.kind() && !mutant("second_verdict_is_taken") {
                    return Err(already_settled(run_id, token, first.change));
                }
                let state = first.to.expect("a settlement names a state");
                Ok(Settled { state, change: first.change, next_at: first.next_at, repeated: true })
            }
        }
    }

    /// How this token has settled this run, if it has.
    fn settled_before(&self, run: RunId, token: u64) -> Option<(VerdictKind, &AuditRecord)> {
        let mut of_token =
            self.audit.iter().map(|t| &t.record).filter(|r| r.run == Some(run) && r.token == token);
        of_token.find_map(|r| Some((r.verdict?, r))).filter(|_| !mutant("settlement_is_not_remembered"))
    }

    /// Takes the lane back if its lease ran out.
    pub fn reclaim(&mut self, now: Timestamp, key: &LaneKey) -> Option<Reclaimed> {
        let lane = &mut self.lanes.get_mut(key)?.lane;
        if lane.attention(now) != Attention::Expired {
            return None;
        }
        let held = lane.current.clone()?;
        let run_id = lane.run_id(held.number);
        // Whether the lease is over is for the clock of this call to say; when that was is not.
        let now = now.max(lane.updated_at);
        let step = lane.reclaim(now);
        let state = step.made.to?;
        self.apply(now, key, step, Report::default(), None);
        let (token, worker, claimed_at) = (held.token, held.worker, held.claimed_at);
        Some(Reclaimed { lane: key.clone(), run_id, token, worker, claimed_at, state })
    }

    /// Writes down what a step did, halves what is to be split, and tells whoever wants to be told.
    pub(crate) fn apply(
        &mut self,
        now: Timestamp,
        key: &LaneKey,
        step: Step,
        report: Report,
        actor: Option<&str>,
    ) {
        let lane = self.lanes[key].lane.id;
        if !(mutant("reclaim_leaves_no_record") && step.made.change == Change::Reclaimed) {
            self.record(now, key, Some(lane), step.made, actor);
        }
        if let Some(also) = step.also {
            self.record(now, key, Some(lane), also, actor);
        }
        let Some(mut ended) = step.finished else { return };
        if step.split {
            self.split(now, key, &mut ended.run);
        }
        let counted = ended.run.count;
        let totals = self.totals(key);
        match (ended.was_buffered, ended.state) {
            (true, _) => totals.discarded_buffered(counted),
            (false, RunState::Failed) if mutant("dead_are_not_counted") => {}
            (false, state) => totals.finished(state, counted),
        }
        let run = RunId { lane, number: ended.run.number };
        let notice = aside::notice(key, run, &ended, report.result.as_ref());
        let notice = notice.filter(|_| !mutant("nobody_is_told"));
        let Report { result, usage } = report;
        self.finished.push(FinishedRun { key: key.clone(), lane, ended, result, usage });
        if let Some(event) = notice {
            self.put_aside(now, event, now);
        }
    }

    /// Halves a run that failed. Its events belong to the halves from now on.
    fn split(&mut self, now: Timestamp, key: &LaneKey, parent: &mut CurrentRun) {
        let numbers = [self.fresh(), self.fresh()];
        let inhabited = self.lanes.get_mut(key).expect("a settled run has a lane");
        let seqs: Vec<u64> = inhabited.members(parent).map(|k| k.event.seq).collect();
        let (mut left, right) = seqs.split_at(seqs.len().div_ceil(2));
        if mutant("halves_lose_an_event") && left.len() > 1 {
            left = &left[1..];
        }
        let mut parts = Vec::new();
        for (number, half) in numbers.into_iter().zip([left, right]) {
            parts.push(inhabited.part(number, half));
            for seq in half {
                inhabited.kept_mut(*seq).mark = Some(number);
            }
        }
        let moves = inhabited.lane.split(now, parent, parts[0], parts[1]);
        let lane = inhabited.lane.id;
        parent.count = 0;
        parent.bytes = 0;
        parent.links.split_into = Some((numbers[0], numbers[1]));
        for made in moves {
            self.record(now, key, Some(lane), made, None);
        }
    }

    /// Buffered events leave their lane and are kept under a run of their own.
    fn discard(
        &mut self,
        now: Timestamp,
        key: &LaneKey,
        seqs: &[u64],
        change: Change,
        actor: Option<&str>,
    ) -> RunId {
        let number = self.fresh();
        let inhabited = self.lanes.get_mut(key).expect("buffered events have a lane");
        let Part { lo, hi, count, bytes, first_at, last_at, .. } = inhabited.part(number, seqs);
        for seq in seqs {
            inhabited.kept_mut(*seq).mark = Some(number);
        }
        let open_lo = inhabited.lane.open.expect("buffered events are in the open run").lo;
        let stays = inhabited.events.range(open_lo..).find(|(_, k)| k.mark.is_none());
        let rest_lo = stays.map(|(seq, _)| *seq);
        let rest_source = stays.and_then(|(_, kept)| kept.source);
        let gone = Gone { lo, hi, count, bytes, first_at, last_at, rest_lo, rest_source };
        let step = inhabited.lane.discard(now, gone, change, number);
        let run = inhabited.lane.run_id(number);
        self.apply(now, key, step, Report::default(), actor);
        run
    }

    /// The retention: finished runs that are not dead, their events and ids, old audit, then lanes nobody knows.
    pub fn forget(&mut self, before: Timestamp, swept: &mut Swept) {
        let mut kept = Vec::new();
        for run in std::mem::take(&mut self.finished) {
            let dead = run.ended.state == RunState::Failed && run.ended.run.count > 0;
            let dead = dead && !mutant("retention_takes_dead_letters");
            let expired = run.ended.at < before && !dead;
            if !expired || swept.removed_runs >= limits::RETENTION_RUNS_STEP as u64 {
                swept.more |= expired;
                kept.push(run);
                continue;
            }
            swept.removed_runs += 1;
            let id = RunId { lane: run.lane, number: run.ended.run.number };
            self.steps.retain(|(of, ..), _| *of != id);
            if let Some(inhabited) = self.lanes.get_mut(&run.key).filter(|_| run.ended.run.count > 0) {
                let seqs: Vec<u64> = inhabited.members(&run.ended.run).map(|k| k.event.seq).collect();
                for seq in seqs {
                    inhabited.remove(seq);
                    swept.removed_events += 1;
                }
            }
        }
        self.finished = kept;
        let old = self.audit.iter().take_while(|t| t.record.at < before).count();
        self.audit.drain(..old);
        swept.removed_audit = old as u64;
        let (finished, audit) = (&self.finished, &self.audit);
        self.lanes.retain(|key, l| {
            let quiet = l.lane.is_idle() && l.lane.paused.is_none() && l.lane.blocked.is_none();
            let known = finished.iter().any(|r| r.lane == l.lane.id)
                || audit.iter().map(|t| &t.record).any(|r| {
                    r.key.as_ref() == Some(&key.key) && r.queue == key.queue && r.tenant == key.tenant
                });
            !quiet || known || !l.events.is_empty()
        });
    }

    fn totals(&mut self, key: &LaneKey) -> &mut Totals {
        self.queues.entry((key.tenant.clone(), key.queue.clone())).or_insert(self.base)
    }

    pub fn lane_of(&mut self, id: u64) -> Option<(&LaneKey, &mut Inhabited)> {
        if let Some(key) = self.places.get(&id)
            && self.lanes.get(key).is_some_and(|l| l.lane.id == id)
        {
            return self.lanes.get_mut(key).map(|l| (key, l));
        }
        self.lanes.iter_mut().find(|(_, l)| l.lane.id == id)
    }

    fn running(&self, key: &LaneKey) -> u64 {
        let same = |k: &LaneKey| k.tenant == key.tenant && k.queue == key.queue;
        self.lanes.iter().filter(|(k, l)| same(k) && l.lane.lease_at().is_some()).count() as u64
    }

    fn queue_paused(&self, key: &LaneKey) -> Option<&Paused> {
        let own = self.paused_queues.get(&(key.queue.clone(), Some(key.tenant.clone())));
        let all = self.paused_queues.get(&(key.queue.clone(), None));
        own.or(all.filter(|_| !mutant("pause_of_all_tenants_is_ignored")))
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
        let of_lane = |number: Option<u64>| lane.zip(number).map(|(lane, number)| RunId { lane, number });
        let record = AuditRecord {
            id,
            at,
            tenant,
            queue,
            key: key.map(|k| k.key.clone()),
            run: of_lane(made.run),
            change: made.change,
            from: made.from,
            to: made.to,
            attempt: made.attempt,
            token: made.token,
            worker: made.worker.map(|w| w.to_string()),
            prior_worker: made.prior_worker.map(|w| w.to_string()),
            upto_seq: made.upto_seq,
            next_at: made.next_at,
            other_run: of_lane(made.other_run),
            verdict: made.verdict,
            actor: actor.map(str::to_owned),
        };
        self.audit.push(Trail { lane, record });
    }
}

impl Inhabited {
    /// Whether a claim of this id and worker holds the lane.
    fn is_claimed(&self, now: Timestamp, claim_id: &str, worker: &Arc<WorkerId>) -> bool {
        let own =
            |c: &CurrentRun| c.claim_id.as_deref() == Some(claim_id) && c.worker.as_ref() == Some(worker);
        let live = self.lane.lease_at().is_some_and(|until| now < until);
        live && self.lane.current.as_ref().is_some_and(own)
    }

    /// New payloads of those events that go back.
    fn edits(&self, request: &Redrive, seqs: &[u64]) -> StoreResult<BTreeMap<u64, Payload>> {
        let found = |(id, payload): &(EventId, Payload)| {
            let own = seqs.iter().find(|seq| self.events.get(seq).is_some_and(|kept| kept.event.id == *id));
            let seq = own.ok_or_else(|| edits_another(request.run, id))?;
            Ok((*seq, payload.clone()))
        };
        request.edits.iter().map(found).collect()
    }

    /// The events of a run, in order.
    fn members<'a>(&'a self, run: &'a CurrentRun) -> impl Iterator<Item = &'a Kept> {
        self.events.range(run.lo..=run.hi).map(|(_, k)| &**k).filter(|k| run.has(k.event.seq, k.mark))
    }

    fn current_events(&self) -> Vec<Event> {
        let run = self.lane.current.as_ref().expect("a claimed lane has a current run");
        self.members(run).map(|k| k.event.clone()).collect()
    }

    /// Reads the front of the open run as far as `cut` takes it and no other source begins; nothing when not even one
    /// event fits.
    fn take_front(&self, mut cut: Cut, source: Option<SourceId>) -> Option<Taken> {
        let (count, bytes) = (cut.count, cut.bytes);
        let open = self.lane.open.expect("there is an open run to take from");
        let mut taken: Option<Taken> = None;
        for (seq, kept) in self.events.range(open.lo..).filter(|(_, k)| k.mark.is_none()) {
            if kept.source != source || !cut.takes(kept.bytes()) {
                if let Some(taken) = &mut taken {
                    let source = kept.source;
                    taken.rest = Some(Rest { lo: *seq, first_at: kept.event.received_at, source });
                }
                break;
            }
            let (count, bytes) = (cut.count - count, cut.bytes - bytes);
            taken = Some(Taken { count, bytes, hi: *seq, last_at: kept.event.received_at, rest: None });
        }
        taken
    }

    /// What is to be known of these events to make a run of them.
    fn part(&self, number: u64, seqs: &[u64]) -> Part {
        let kept = || seqs.iter().filter_map(|seq| self.events.get(seq)).map(|kept| &**kept);
        let (first, last) = (kept().next(), kept().next_back());
        let (first, last) = first.zip(last).expect("a part has at least one event");
        Part {
            number,
            lo: first.event.seq,
            hi: last.event.seq,
            count: seqs.len() as u64,
            bytes: kept().map(Kept::bytes).sum(),
            first_at: first.event.received_at,
            last_at: last.event.received_at,
            source: first.source,
        }
    }

    /// The event of the still open window whose payload is the same.
    fn same_content(&self, print: Fingerprint) -> Option<u64> {
        let open =
            self.lane.open.filter(|o| o.window.closed.is_none() || mutant("content_outlives_its_window"))?;
        let same = |(_, k): &(&u64, &Arc<Kept>)| k.mark.is_none() && k.print == print;
        self.events.range(open.lo..).find(same).map(|(seq, _)| *seq)
    }

    /// An event that is to be changed.
    ///
    /// # Panics
    ///
    /// When it is not here: only members that were listed before are changed.
    fn kept_mut(&mut self, seq: u64) -> &mut Kept {
        Arc::make_mut(self.events.get_mut(&seq).expect("it was listed before"))
    }

    fn remove(&mut self, seq: u64) -> Option<Arc<Kept>> {
        let kept = self.events.remove(&seq)?;
        if self.ids.get(&kept.event.id).is_some_and(|(of, _)| *of == seq) {
            self.ids.remove(&kept.event.id);
        }
        Some(kept)
    }
}

/// What a step is answered, and what is to be remembered of it: pure, for stores that read one step and not all.
/// `known` is what is remembered under the holder's revision and this name; `count` how many of that revision there are.
pub fn step(
    now: Timestamp,
    lane: Option<&Lane>,
    request: StepRequest,
    known: Option<&StepRow>,
    count: usize,
) -> StoreResult<(StepAnswer, Option<StepRow>)> {
    let StepRequest { run_id, token, name, action } = request;
    let holder = lane.and_then(|l| l.holder(run_id.number, token));
    let revision = holder.ok_or_else(|| StoreError::lost_lease(run_id, token))?.revision;
    if let Some(value) =
        known.and_then(|row| row.value.clone()).filter(|_| !mutant("finished_step_runs_again"))
    {
        return Ok((StepAnswer::Done { value, stored: false }, None));
    }
    let begun_by = known.map(|row| row.token);
    let (answer, value) = match action {
        StepAction::Read | StepAction::Begin if begun_by.is_some_and(|by| by != token) => {
            return Ok((StepAnswer::Unknown, None));
        }
        StepAction::Read if begun_by.is_some() => return Ok((StepAnswer::Begun, None)),
        StepAction::Read => return Ok((StepAnswer::New, None)),
        _ if begun_by.is_none() && count >= limits::STEPS_MAX => return Err(too_many_steps(run_id)),
        StepAction::Begin => (StepAnswer::Begun, None),
        StepAction::Finish(value) => (StepAnswer::Done { value: value.clone(), stored: true }, Some(value)),
    };
    Ok((answer, Some(StepRow { revision, name, at: now, token, value })))
}
