//! The first pass: joins answers to questions, in the order of the history, and checks what needs no more than that.
//!
//! After it every event, number, claim and settle can be looked up, and the promises that are about what the outside
//! was told, and when, have been checked: numbers and tokens that rise, duplicates, stale calls that were accepted,
//! memos, the sink, repeated answers. What the store has kept is compared later (`lane.rs`, `finish.rs`).

use crate::fast::Map;
use crate::history::{
    Action, Answer, Claim, Dump, Governed, Millis, Name, NewEvent, Op, Phase, Policy, Record, Refusal, State,
    Verdict,
};
use crate::sometimes::{Sometimes, Thing};
use crate::violation::{Checked, Fault, Invariant, fault};

mod holder;
mod receipts;

/// The position of a record in the history.
pub(crate) type At = usize;

pub(crate) struct Index<'a> {
    pub(crate) lanes: Vec<Lane<'a>>,
    lane_ids: Map<&'a str, u32>,
    pub(crate) queues: Vec<Queue<'a>>,
    pub(crate) queue_ids: Map<&'a str, u32>,
    pub(crate) events: Vec<Event<'a>>,
    event_ids: Map<(u32, &'a str), u32>,
    sends: Vec<Send>,
    pub(crate) seqs: Vec<Seq>,
    pub(crate) by_seq: Map<u64, u32>,
    pub(crate) calls: Vec<Call<'a>>,
    call_ids: Map<(u64, u64), u32>,
    /// By token.
    pub(crate) claims: Map<u64, Told<'a>>,
    /// By token: the latest end of the lease that an extend was told.
    pub(crate) extended: Map<u64, Millis>,
    pub(crate) settled: Map<u64, SettledAs>,
    /// By token.
    pub(crate) begun: Map<u64, Begun<'a>>,
    memos: Map<(u64, u32, &'a str), Memo>,
    backups: Vec<(&'a Name, At)>,
    /// From a backup to its restore: what was answered in between may be gone.
    pub(crate) spans: Vec<(At, At)>,
    /// The retention has removed something.
    pub(crate) retention: bool,
    pub(crate) edits: Vec<Edit>,
    /// An event is governed by a source.
    pub(crate) governed: bool,
    pub(crate) dump: Option<&'a Dump>,
    last_claim_asked: At,
    pub(crate) some: Sometimes,
}

pub(crate) struct Lane<'a> {
    pub(crate) name: &'a Name,
    pub(crate) queue: u32,
    /// (when answered, highest so far), in the order of the answers.
    appended: Vec<(At, u64)>,
    /// The latest answer to an append, and the highest number that this answer alone has told so far.
    answer_top: (At, u64),
    claimed: Vec<(At, u64)>,
    /// Asked, answered (or never), and whether it certainly happened.
    pub(crate) erasures: Vec<(At, At, bool)>,
    /// The latest answer to a purge (`At::MAX` while one is open): events that were kept aside may vanish by it.
    pub(crate) purged: At,
    pub(crate) redriven_as_new: bool,
    /// An event of it was sent, and no record ties a number to it; or it may have had another number before.
    pub(crate) untied: bool,
    event_erased: bool,
    sink_top: u64,
    sink_applied: Map<u64, ()>,
}

#[derive(Default)]
pub(crate) struct Queue<'a> {
    pub(crate) policies: Vec<&'a Policy>,
    /// The calls that asked for a pause, and those that asked for its end.
    pauses: Vec<u32>,
    resumes: Vec<u32>,
}

/// Everything known by one (lane, id).
pub(crate) struct Event<'a> {
    pub(crate) lane: u32,
    pub(crate) queue: u32,
    pub(crate) id: &'a Name,
    bytes: u64,
    pub(crate) own_window: bool,
    pub(crate) source: &'a Governed,
    last_send: Option<u32>,
    pub(crate) seq: Option<u64>,
    /// The answer that accepted it as new.
    pub(crate) fresh: Option<Fresh>,
    /// An answer that called it a duplicate acknowledges it, too.
    pub(crate) acknowledged: Option<Fresh>,
    /// Erasures of this one event.
    pub(crate) erasures: Vec<(At, At, bool)>,
    pub(crate) dumped: u32,
}

#[derive(Clone, Copy)]
pub(crate) struct Fresh {
    pub(crate) asked: At,
    pub(crate) done: At,
    pub(crate) hash: u64,
    pub(crate) seq: Option<u64>,
}

struct Send {
    call: u32,
    hash: u64,
    before: Option<u32>,
}

/// One incarnation of an event in its lane.
pub(crate) struct Seq {
    pub(crate) seq: u64,
    pub(crate) lane: u32,
    pub(crate) event: u32,
    pub(crate) received_at: Option<Millis>,
    /// It may have vanished at a moment that nobody recorded: erased, retained, rolled back.
    pub(crate) vague: bool,
    pub(crate) dumped: bool,
    pub(crate) place: Loc,
}

/// Where the fold of the audit has put it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loc {
    Nowhere,
    Open,
    Run(u64),
}

pub(crate) struct Call<'a> {
    pub(crate) op: &'a Op,
    pub(crate) asked: At,
    /// Store time of the answer, where it is known.
    pub(crate) at: Option<Millis>,
    /// `At::MAX` when it was never answered.
    pub(crate) done: At,
    pub(crate) phase: Phase,
    pub(crate) answer: Option<&'a Answer>,
    pub(crate) refusal: Option<Refusal>,
}

/// A claim as its worker was told.
pub(crate) struct Told<'a> {
    pub(crate) claim: &'a Claim,
    pub(crate) lane: u32,
    pub(crate) asked: At,
    pub(crate) done: At,
    claim_id: Option<&'a Name>,
}

pub(crate) struct SettledAs {
    pub(crate) verdict: Verdict,
    pub(crate) state: State,
    pub(crate) next_at: Option<Millis>,
    pub(crate) done: At,
}

pub(crate) struct Begun<'a> {
    pub(crate) run: u64,
    pub(crate) seqs: &'a [u64],
    pub(crate) ended: bool,
    pub(crate) at: At,
}

struct Memo {
    /// The value, and where it was asked for and told.
    value: Option<(u64, At, At)>,
    /// The token that began, and where it asked and was told.
    once: Option<(u64, At, At)>,
}

pub(crate) struct Edit {
    pub(crate) event: u32,
    pub(crate) hash: u64,
    bytes: u64,
    pub(crate) call: u32,
}

pub(crate) const NO_QUEUE: u32 = u32::MAX;

impl<'a> Index<'a> {
    pub(crate) fn of(records: &'a [Record]) -> Result<Self, Box<Fault>> {
        let dump = records.iter().rev().find_map(|r| match &r.op {
            Some(Op::Dump(dump)) => Some(&**dump),
            _ => None,
        });
        let mut index = Index {
            lanes: Vec::new(),
            lane_ids: Map::default(),
            queues: Vec::new(),
            queue_ids: Map::default(),
            events: Vec::with_capacity(records.len() / 2),
            event_ids: Map::default(),
            sends: Vec::with_capacity(records.len() / 2),
            seqs: Vec::with_capacity(records.len() / 2),
            by_seq: Map::default(),
            calls: Vec::with_capacity(records.len() / 2),
            call_ids: Map::default(),
            claims: Map::default(),
            extended: Map::default(),
            settled: Map::default(),
            begun: Map::default(),
            memos: Map::default(),
            backups: Vec::new(),
            spans: Vec::new(),
            retention: dump.is_some_and(|d| d.audit_from.is_some()),
            edits: Vec::new(),
            governed: false,
            dump,
            last_claim_asked: 0,
            some: Sometimes::default(),
        };
        for (at, record) in records.iter().enumerate() {
            index.record(at, record)?;
        }
        index.pauses_stop_claims()?;
        Ok(index)
    }

    pub(crate) fn lane(&mut self, name: &'a Name) -> u32 {
        let next = u32::try_from(self.lanes.len()).unwrap_or(u32::MAX);
        let id = *self.lane_ids.entry(name.as_str()).or_insert(next);
        if id == next {
            self.lanes.push(Lane {
                name,
                queue: NO_QUEUE,
                appended: Vec::new(),
                answer_top: (0, 0),
                claimed: Vec::new(),
                erasures: Vec::new(),
                purged: 0,
                redriven_as_new: false,
                untied: false,
                event_erased: false,
                sink_top: 0,
                sink_applied: Map::default(),
            });
        }
        id
    }

    pub(crate) fn queue(&mut self, name: &'a Name) -> u32 {
        let next = u32::try_from(self.queues.len()).unwrap_or(u32::MAX);
        let id = *self.queue_ids.entry(name.as_str()).or_insert(next);
        if id == next {
            self.queues.push(Queue::default());
        }
        id
    }

    /// The one policy of a lane, if it had one all the time.
    pub(crate) fn policy(&self, lane: u32) -> Option<&'a Policy> {
        match *self.policies(lane) {
            [one] => Some(one),
            _ => None,
        }
    }

    /// All policies that were in force for a lane, by whoever worked on it: what one of them allows is allowed.
    pub(crate) fn policies(&self, lane: u32) -> &[&'a Policy] {
        let queue = self.queues.get(self.lanes[lane as usize].queue as usize);
        queue.map_or(&[], |queue| &queue.policies)
    }

    pub(crate) fn lane_id(&self, name: &str) -> Option<u32> {
        self.lane_ids.get(name).copied()
    }

    pub(crate) fn event_id(&self, lane: u32, id: &str) -> Option<u32> {
        self.event_ids.get(&(lane, id)).copied()
    }

    /// Whether a restore may have undone what was asked and answered at these records.
    pub(crate) fn doubtful(&self, asked: At, done: At) -> bool {
        self.spans.iter().any(|&(from, to)| asked < to && done > from)
    }

    pub(crate) fn restored_between(&self, a: At, b: At) -> bool {
        self.spans.iter().any(|&(_, to)| a < to && to < b)
    }

    fn record(&mut self, at: At, record: &'a Record) -> Checked {
        match (record.phase, &record.op) {
            (Phase::Invoke, Some(op)) => self.asked(at, record, op),
            (Phase::Ok, Some(op)) if op.is_fact() => self.fact(at, op),
            (Phase::Invoke, None) => Err(malformed(at, "an invoke without an op")),
            _ => {
                let Some(&call) = self.call_ids.get(&(record.process, record.call)) else {
                    return Err(malformed(at, "an answer without a question"));
                };
                self.answered(at, record, call)
            }
        }
    }

    fn asked(&mut self, at: At, record: &'a Record, op: &'a Op) -> Checked {
        let id = u32::try_from(self.calls.len()).unwrap_or(u32::MAX);
        if self.call_ids.insert((record.process, record.call), id).is_some() {
            return Err(malformed(at, "a call number that was used before"));
        }
        self.calls.push(Call {
            op,
            asked: at,
            at: None,
            done: At::MAX,
            phase: Phase::Info,
            answer: None,
            refusal: None,
        });
        match op {
            Op::Append { events } => events.iter().for_each(|event| self.sent(id, event)),
            Op::Settle { follow_ups, .. } => follow_ups.iter().for_each(|event| self.sent(id, event)),
            Op::Claim { .. } => self.last_claim_asked = at,
            Op::Backup { name } => self.backups.push((name, at)),
            Op::Control { action } => self.hand(at, id, action),
            _ => {}
        }
        Ok(())
    }

    fn sent(&mut self, call: u32, new: &'a NewEvent) {
        let (lane, queue) = (self.lane(&new.lane), self.queue(&new.queue));
        self.governed |= matches!(new.source, Governed::By(_));
        self.lanes[lane as usize].queue = queue;
        let next = u32::try_from(self.events.len()).unwrap_or(u32::MAX);
        let event = *self.event_ids.entry((lane, new.id.as_str())).or_insert(next);
        if event == next {
            self.events.push(Event {
                lane,
                queue,
                id: &new.id,
                bytes: new.bytes,
                own_window: new.own_window,
                source: &new.source,
                last_send: None,
                seq: None,
                fresh: None,
                acknowledged: None,
                erasures: Vec::new(),
                dumped: 0,
            });
        }
        let known = &mut self.events[event as usize];
        let before = known.last_send.replace(u32::try_from(self.sends.len()).unwrap_or(u32::MAX));
        self.sends.push(Send { call, hash: new.hash, before });
    }

    /// Operators' calls that matter from the moment they are asked, because they may happen at any time from then on.
    fn hand(&mut self, at: At, call: u32, action: &'a Action) {
        match action {
            Action::EraseLane { lane } => {
                let lane = self.lane(lane);
                self.lanes[lane as usize].erasures.push((at, At::MAX, false));
            }
            Action::EraseEvent { lane, id } => {
                let lane = self.lane(lane);
                self.lanes[lane as usize].event_erased = true;
                if let Some(event) = self.event_id(lane, id) {
                    self.events[event as usize].erasures.push((at, At::MAX, false));
                }
            }
            Action::Purge { lane } | Action::Delete { lane, .. } => {
                let lane = self.lane(lane);
                self.lanes[lane as usize].purged = At::MAX;
            }
            Action::RedriveNew { lane, .. } => {
                let lane = self.lane(lane);
                self.lanes[lane as usize].redriven_as_new = true;
            }
            Action::Edit { lane, id, hash, bytes } => {
                let lane = self.lane(lane);
                if let Some(event) = self.event_id(lane, id) {
                    self.edits.push(Edit { event, hash: *hash, bytes: *bytes, call });
                }
            }
            Action::PauseQueue { queue } => {
                let queue = self.queue(queue);
                self.queues[queue as usize].pauses.push(call);
            }
            Action::ResumeQueue { queue } => {
                let queue = self.queue(queue);
                self.queues[queue as usize].resumes.push(call);
            }
            _ => {}
        }
    }

    fn answered(&mut self, at: At, record: &'a Record, id: u32) -> Checked {
        let call = &mut self.calls[id as usize];
        if call.done != At::MAX {
            return Err(malformed(at, "a second answer to one call"));
        }
        (call.done, call.phase, call.at) = (at, record.phase, record.at);
        (call.answer, call.refusal) = (record.answer.as_ref(), record.refusal);
        let (op, asked) = (call.op, call.asked);
        match (record.phase, op, &record.answer) {
            (Phase::Ok, Op::Append { events }, Some(Answer::Appended { receipts })) => {
                if events.len() != receipts.len() {
                    return Err(malformed(at, "not one receipt per event"));
                }
                for (event, receipt) in events.iter().zip(receipts) {
                    self.receipt(asked, at, record.at, event, receipt)?;
                }
                Ok(())
            }
            (Phase::Ok, Op::Claim { claim_id, .. }, Some(Answer::Claimed { claims, .. })) => {
                if self.last_claim_asked > asked {
                    self.some.saw(Thing::ClaimsOverlapped);
                }
                claims.iter().try_for_each(|claim| self.claimed(asked, at, claim_id.as_ref(), claim))
            }
            (Phase::Ok, Op::Control { action }, Some(Answer::Controlled { .. })) => {
                self.controlled(asked, at, action);
                Ok(())
            }
            (Phase::Ok, Op::Sweep, Some(Answer::Swept { removed_events, removed_audit, .. })) => {
                self.retention |= *removed_events > 0 || *removed_audit > 0;
                Ok(())
            }
            (Phase::Ok, _, Some(answer)) => self.by_holder(asked, at, op, answer),
            (Phase::Ok, _, None) => Err(malformed(at, "an ok without its answer")),
            (Phase::Fail, ..) => self.refused(asked, op, record.refusal.unwrap_or(Refusal::Other)),
            _ => Ok(()),
        }
    }

    fn sends_of(&self, event: u32) -> impl Iterator<Item = &Send> {
        let last = self.events[event as usize].last_send;
        let first = last.map(|i| &self.sends[i as usize]);
        std::iter::successors(first, |send| send.before.map(|i| &self.sends[i as usize]))
    }

    /// The payloads under which the store may know the event; none when every send definitely did not happen.
    pub(crate) fn possible_hashes(&self, event: u32) -> impl Iterator<Item = u64> {
        let happened = |send: &&Send| self.calls[send.call as usize].phase != Phase::Fail;
        self.sends_of(event).filter(happened).map(|send| send.hash)
    }

    /// Whether two different payloads may have been accepted under one id, one of them to be buried.
    pub(crate) fn has_two_payloads(&self, event: u32) -> bool {
        let mut hashes = self.possible_hashes(event);
        let first = hashes.next();
        hashes.any(|hash| Some(hash) != first)
    }

    pub(crate) fn had_unknown_send(&self, event: u32) -> bool {
        self.sends_of(event).any(|send| self.calls[send.call as usize].phase == Phase::Info)
    }

    /// The smallest and the largest size that the event may have had: as sent, and as it may have been edited.
    pub(crate) fn sizes(&self, event: u32) -> (u64, u64) {
        let sent = self.events[event as usize].bytes;
        let edits = self.edits.iter().filter(|e| e.event == event).map(|e| e.bytes);
        edits.fold((sent, sent), |(least, most), bytes| (least.min(bytes), most.max(bytes)))
    }

    /// Whether an erasure or the retention may have removed what was known of this event.
    pub(crate) fn may_be_gone(&self, event: u32) -> bool {
        let known = &self.events[event as usize];
        self.retention || !known.erasures.is_empty() || !self.lanes[known.lane as usize].erasures.is_empty()
    }

    /// Whether an event may have had a number in this lane that no record tells: its sender and its worker heard nothing,
    /// and the dump does not show it, or not under that number.
    pub(crate) fn may_hide(&self, lane: u32) -> bool {
        let lane = &self.lanes[lane as usize];
        let gone = !self.spans.is_empty() || lane.event_erased || !lane.erasures.is_empty();
        self.retention || lane.redriven_as_new || (gone && lane.untied)
    }

    /// How many sends of an event may have been accepted as new.
    pub(crate) fn possible_sends(&self, event: u32) -> u64 {
        self.possible_hashes(event).count() as u64
    }

    fn controlled(&mut self, asked: At, done: At, action: &'a Action) {
        let close = |all: &mut Vec<(At, At, bool)>| {
            if let Some(one) = all.iter_mut().find(|one| one.0 == asked) {
                (one.1, one.2) = (done, true);
            }
        };
        match action {
            Action::EraseLane { lane } => {
                let lane = self.lane(lane);
                close(&mut self.lanes[lane as usize].erasures);
            }
            Action::EraseEvent { lane, id } => {
                let lane = self.lane(lane);
                if let Some(event) = self.event_id(lane, id) {
                    close(&mut self.events[event as usize].erasures);
                }
            }
            Action::Purge { lane } | Action::Delete { lane, .. } => {
                let lane = self.lane(lane);
                self.lanes[lane as usize].purged = done;
            }
            _ => {}
        }
    }

    fn fact(&mut self, at: At, op: &'a Op) -> Checked {
        match op {
            Op::Policy(policy) => {
                let queue = self.queue(&policy.queue);
                self.queues[queue as usize].policies.push(policy);
            }
            Op::HandlerBegin { run, token, seqs } => return self.begins(at, *run, *token, seqs),
            Op::HandlerEnd { token, .. } => {
                if let Some(begun) = self.begun.get_mut(token) {
                    begun.ended = true;
                }
            }
            Op::SinkApply { lane, token, seqs, accepted } => {
                return self.sink(lane, *token, seqs, *accepted);
            }
            Op::Crash => {
                self.some.saw(Thing::Crash);
            }
            Op::Restore { backup } => {
                self.some.saw(Thing::Restore);
                let Some(&(_, from)) = self.backups.iter().rev().find(|(name, _)| *name == backup) else {
                    return Err(malformed(at, "a restore of a backup that was never taken"));
                };
                self.spans.push((from, at));
            }
            _ => {}
        }
        Ok(())
    }
}

/// The history itself is not one: the recorder is at fault, or the files are.
fn malformed(at: At, what: &str) -> Box<Fault> {
    fault(Invariant::WellFormed, format!("{what}, at #{at}"), "a history as its format says")
}
