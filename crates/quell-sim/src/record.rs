//! The recorder: writes down what was asked and answered, in the words of the checker.
//!
//! It stands outside the store: an invoke is written when the question leaves, an answer when it arrives. What a store
//! does behind anybody's back (a schedule fires, a run's end is told to another queue) is written as a send with an
//! unknown answer the first time that its event is seen, because nobody was told when it happened.

use std::collections::{BTreeMap, BTreeSet};

use quell_check::history::{
    self, Answer, Claim, Delivered, FiredBy, Governed, HoldAnswer, Name, Op, Receipt, Record, Refusal, State,
    StepAnswer, Verdict,
};
use quell_core::batch::{Batch, RunId};
use quell_core::error::{ErrorKind, StoreError};
use quell_core::event::{LaneKey, NewEvent, NewEventId, Payload, SourceName, Tenant};
use quell_core::lifecycle::RunState;
use quell_core::outcome::VerdictKind;
use quell_core::store::{self, StepAction};
use quell_core::window;
use quell_store_many::Map;

use crate::call::{Reply, Request};
use crate::chance::hash;
use crate::governed;
use crate::plan::QueueShape;

/// Who writes facts and what happens by itself.
pub(crate) const NOBODY: u64 = 0;

pub(crate) fn queue_name(queue: &QueueShape) -> Name {
    owner(&queue.tenant, &queue.name)
}

/// Tenant and queue as one name: the owner of totals.
pub(crate) fn owner(tenant: &quell_core::event::Tenant, queue: &quell_core::event::QueueName) -> Name {
    if tenant.is_none() { queue.as_str().into() } else { format!("{tenant}:{queue}").into() }
}

pub(crate) fn print(payload: &Payload) -> u64 {
    hash(payload.as_str().as_bytes())
}

/// A lane with its names, made once and cloned.
struct Lane {
    key: LaneKey,
    name: Name,
    queue: Name,
    /// Whose limits its events wait for, if they do not say otherwise.
    source: Governed,
}

#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) records: Vec<Record>,
    lanes: Vec<Lane>,
    /// Sources that all tenants share.
    pub(crate) shared: Vec<SourceName>,
    /// Which of several databases has a lane.
    pub(crate) map: Option<Map>,
    /// Events that somebody sent, or that the store is known to make by itself.
    pub(crate) sent: BTreeSet<(Name, Name)>,
    /// Those that the store has made, with their payload.
    made: BTreeSet<(Name, u64)>,
    calls: u64,
    /// The store's numbers of lanes: an erased lane is told without its name, but its runs are known.
    numbers: BTreeMap<u64, Name>,
    /// When which lane was erased: the trail does not name it any more.
    pub(crate) erased: Vec<(i64, Name)>,
}

impl Recorder {
    pub(crate) fn know(&mut self, key: &LaneKey, source: Option<&SourceName>) {
        let (name, queue) = (Name::from(key.to_string()), owner(&key.tenant, &key.queue));
        let source = self.governed(key, source);
        self.lanes.push(Lane { key: key.clone(), name, queue, source });
    }

    /// Whose limits an event waits for.
    fn governed(&self, lane: &LaneKey, source: Option<&SourceName>) -> Governed {
        let Some(name) = source else { return Governed::Nobody };
        let own = if self.shared.contains(name) { Tenant::none() } else { lane.tenant.clone() };
        let source = governed::scoped(&own, name);
        // Each of several databases has its own part of a source.
        let database = self.map.as_ref().map(|map| map.home(lane));
        Governed::By(database.map_or_else(|| source.clone(), |database| governed::part_of(&source, database)))
    }

    fn known(&self, key: &LaneKey) -> Option<&Lane> {
        self.lanes.iter().find(|lane| lane.key == *key)
    }

    /// Every lane with its name.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = (&LaneKey, &Name)> {
        self.lanes.iter().map(|lane| (&lane.key, &lane.name))
    }

    pub(crate) fn lane(&self, key: &LaneKey) -> Name {
        self.known(key).map_or_else(|| Name::from(key.to_string()), |lane| lane.name.clone())
    }

    /// The lane of a run, also when the lane is gone.
    pub(crate) fn lane_of(&self, run: RunId) -> Option<Name> {
        self.numbers.get(&run.lane).cloned()
    }

    /// A database has named the number of a lane.
    pub(crate) fn meet(&mut self, number: u64, lane: &LaneKey) {
        let name = self.lane(lane);
        self.numbers.insert(number, name);
    }

    /// A database has erased a lane.
    pub(crate) fn erase(&mut self, at: i64, lane: &LaneKey) {
        self.erased.push((at, self.lane(lane)));
    }

    /// Remembers which lane has which number, from what the store itself has said.
    pub(crate) fn learn(&mut self, question: usize, at: i64, reply: &Reply) {
        match (&self.records[question].op, reply) {
            (Some(Op::Append { events }), Reply::Append(Ok(r))) => {
                for (event, receipt) in events.iter().zip(&r.receipts) {
                    if let Some(run) = receipt.run_id {
                        self.numbers.entry(run.lane).or_insert_with(|| event.lane.clone());
                    }
                }
            }
            (Some(Op::Control { action: history::Action::EraseLane { lane } }), Reply::Control(Ok(r)))
                if r.changed && !self.erased.contains(&(at, lane.clone())) =>
            {
                self.erased.push((at, lane.clone()));
            }
            (_, Reply::Claim(Ok(r))) => {
                for batch in &r.batches {
                    let name = self.lane(&batch.lane);
                    self.numbers.insert(batch.run_id.lane, name);
                }
                for lost in &r.reclaimed {
                    let name = self.lane(&lost.lane);
                    self.numbers.insert(lost.run_id.lane, name);
                }
            }
            _ => {}
        }
    }

    fn queue(&self, key: &LaneKey) -> Name {
        self.known(key).map_or_else(|| owner(&key.tenant, &key.queue), |lane| lane.queue.clone())
    }

    pub(crate) fn fact(&mut self, process: u64, op: Op) {
        self.records.push(Record::fact(process, op));
    }

    /// Writes the question and gives the number that its answer will carry.
    pub(crate) fn asked(&mut self, process: u64, request: &Request) -> u64 {
        self.calls += 1;
        let call = self.calls;
        let op = self.op(request);
        if let Op::Append { events } | Op::Settle { follow_ups: events, .. } = &op {
            self.sent.extend(events.iter().map(|e| (e.lane.clone(), e.id.clone())));
        }
        self.records.push(Record::invoke(process, call, op));
        call
    }

    fn op(&self, request: &Request) -> Op {
        match request {
            Request::Append(r) => Op::Append { events: r.events.iter().map(|e| self.new_event(e)).collect() },
            Request::Claim(r) => Op::Claim {
                worker: r.worker.to_string().into(),
                claim_id: r.claim_id.as_deref().map(Name::from),
            },
            Request::Extend(r) => Op::Extend { run: r.run_id.number, token: r.token },
            Request::Hold(r) => Op::Hold { run: r.run_id.number, token: r.token, if_head: r.if_head },
            Request::Step { request: r, revision } => {
                let (run, token, revision) = (r.run_id.number, r.token, *revision);
                let name = Name::from(r.name.as_str());
                match &r.action {
                    StepAction::Read => Op::StepBegin { run, token, revision, name, once: false },
                    StepAction::Begin => Op::StepBegin { run, token, revision, name, once: true },
                    StepAction::Finish(value) => Op::StepFinish {
                        run,
                        token,
                        revision,
                        name,
                        value: hash(value.to_string().as_bytes()),
                    },
                }
            }
            Request::Settle { request: r, own_delay } => {
                let carried = quell_core::aside::carried(r.run_id, &r.events);
                Op::Settle {
                    run: r.run_id.number,
                    token: r.token,
                    verdict: verdict(r.verdict.kind()),
                    if_head: r.if_head,
                    own_delay: *own_delay,
                    follow_ups: carried
                        .map(|e| history::NewEvent { delayed: true, ..self.new_event(&e) })
                        .collect(),
                    source: governed::told_report(r.source),
                }
            }
            Request::Source(r) => {
                Op::Source { run: r.run_id.number, token: r.token, ask: governed::told_ask(&r.action) }
            }
            Request::Sweep(_) => Op::Sweep,
            Request::Control { action, .. } => Op::Control { action: action.clone() },
            Request::Backup(name) => Op::Backup { name: name.clone() },
        }
    }

    pub(crate) fn new_event(&self, event: &NewEvent) -> history::NewEvent {
        history::NewEvent {
            queue: self.queue(&event.lane),
            lane: self.lane(&event.lane),
            id: event.id.id().as_str().into(),
            given: matches!(event.id, NewEventId::Given(_)),
            hash: print(&event.payload),
            bytes: event.payload.len() as u64,
            delayed: event.delay.is_some(),
            in_transaction: false,
            own_window: event.window.is_some(),
            source: self.governed(&event.lane, event.governed_by()),
        }
    }

    /// Writes the answer; `at` is the store's time when the call took effect.
    pub(crate) fn answered(&mut self, process: u64, call: u64, at: i64, reply: &Reply) {
        let record = match reply.error() {
            Some(error) => match refusal(error) {
                Some(refusal) => Record::fail(process, call, refusal),
                None => Record::info(process, call),
            },
            None => {
                if let Reply::Claim(Ok(claimed)) = reply {
                    claimed.batches.iter().for_each(|batch| self.discover(batch));
                }
                Record::ok(process, call, Some(at), self.answer(reply))
            }
        };
        self.records.push(record);
    }

    /// Events that the store made by itself are written down the first time that they are seen.
    fn discover(&mut self, batch: &Batch) {
        let lane = self.lane(&batch.lane);
        for event in &batch.events {
            if is_made_by_store(event.id.as_str()) {
                self.made_itself(&batch.lane, &lane, event.id.as_str(), &event.payload);
            }
        }
    }

    pub(crate) fn made_itself(&mut self, key: &LaneKey, lane: &Name, id: &str, payload: &Payload) {
        let id = Name::from(id);
        let hash = print(payload);
        self.sent.insert((lane.clone(), id.clone()));
        // After a restore the same run may end again, and be told again in other words.
        if !self.made.insert((id.clone(), hash)) {
            return;
        }
        self.calls += 1;
        // What was kept under another id is of whom it was before.
        let kept = ["conflict_", "purged_"].iter().any(|start| id.starts_with(start));
        let source = self.known(key).filter(|_| !kept).map_or(Governed::Untold, |lane| lane.source.clone());
        let event = history::NewEvent {
            queue: self.queue(key),
            lane: lane.clone(),
            id,
            given: true,
            hash,
            bytes: payload.len() as u64,
            delayed: true,
            in_transaction: false,
            own_window: false,
            source,
        };
        self.records.push(Record::invoke(NOBODY, self.calls, Op::Append { events: vec![event] }));
    }

    fn answer(&self, reply: &Reply) -> Answer {
        match reply {
            Reply::Append(Ok(r)) => Answer::Appended { receipts: r.receipts.iter().map(receipt).collect() },
            Reply::Claim(Ok(r)) => Answer::Claimed {
                now: r.now.as_millis(),
                claims: r.batches.iter().map(|batch| self.claim(batch)).collect(),
            },
            Reply::Extend(Ok(r)) => Answer::Extended { lease_until: r.lease_until.as_millis() },
            Reply::Hold(Ok(r)) => Answer::Hold(match r.answer {
                store::HoldAnswer::Held => HoldAnswer::Held,
                store::HoldAnswer::Superseded => HoldAnswer::Superseded,
                store::HoldAnswer::Interrupted => HoldAnswer::Interrupted,
            }),
            Reply::Step(Ok(r)) => Answer::Step(match r {
                store::StepAnswer::New | store::StepAnswer::Begun => StepAnswer::Begun,
                store::StepAnswer::Unknown => StepAnswer::Unknown,
                store::StepAnswer::Done { value, .. } => {
                    StepAnswer::Value(hash(value.to_string().as_bytes()))
                }
            }),
            Reply::Source(Ok(r)) => Answer::Source(governed::told_answer(r)),
            Reply::Settle(Ok(r)) => Answer::Settled {
                state: state(r.state),
                next_at: r.next_at.map(|t| t.as_millis()),
                repeated: r.repeated,
            },
            Reply::Sweep(Ok(r)) => Answer::Swept {
                reclaimed: r.reclaimed.len() as u64,
                removed_events: r.removed_events,
                removed_audit: r.removed_audit,
            },
            Reply::Control(Ok(r)) => Answer::Controlled { changed: r.changed },
            _ => Answer::Done,
        }
    }

    fn claim(&self, batch: &Batch) -> Claim {
        let delivered = |e: &quell_core::event::Event| Delivered {
            seq: e.seq,
            id: e.id.as_str().into(),
            hash: print(&e.payload),
        };
        Claim {
            lane: self.lane(&batch.lane),
            run: batch.run_id.number,
            token: batch.token,
            attempt: batch.attempt,
            max_attempts: batch.max_attempts,
            revision: batch.revision,
            fired_by: fired(batch.fired_by),
            head_seq: batch.head_seq,
            lease_until: batch.lease_until.as_millis(),
            source: batch.source.map(|id| id.0),
            events: batch.events.iter().map(delivered).collect(),
        }
    }
}

/// Fired by a schedule, telling of a run's end, or kept under a new id because its own was taken.
pub(crate) fn is_made_by_store(id: &str) -> bool {
    let made = ["schedule/", "conflict_", "purged_"];
    made.iter().any(|start| id.starts_with(start)) || id.ends_with("/notify")
}

fn receipt(r: &store::Receipt) -> Receipt {
    Receipt {
        id: r.event_id.as_str().into(),
        seq: r.seq,
        duplicate: r.duplicate,
        run: r.run_id.map(|id| id.number),
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

pub(crate) fn verdict(kind: VerdictKind) -> Verdict {
    match kind {
        VerdictKind::Succeeded => Verdict::Succeeded,
        VerdictKind::Retry => Verdict::Retry,
        VerdictKind::Failed => Verdict::Failed,
        VerdictKind::Release => Verdict::Release,
        VerdictKind::Interrupted => Verdict::Interrupted,
        VerdictKind::Superseded => Verdict::Superseded,
    }
}

pub(crate) fn state(state: RunState) -> State {
    match state {
        RunState::Pending => State::Pending,
        RunState::Running => State::Running,
        RunState::Retryable => State::Retryable,
        RunState::Succeeded => State::Succeeded,
        RunState::Failed => State::Failed,
        RunState::Cancelled => State::Cancelled,
    }
}

fn fired(by: window::FiredBy) -> FiredBy {
    match by {
        window::FiredBy::None => FiredBy::None,
        window::FiredBy::Fixed => FiredBy::Fixed,
        window::FiredBy::Quiet => FiredBy::Quiet,
        window::FiredBy::Cap => FiredBy::Cap,
        window::FiredBy::Count => FiredBy::Count,
        window::FiredBy::Bytes => FiredBy::Bytes,
        window::FiredBy::Flush => FiredBy::Flush,
        window::FiredBy::Retry => FiredBy::Retry,
        window::FiredBy::Merge => FiredBy::Merge,
        window::FiredBy::Redrive => FiredBy::Redrive,
    }
}
