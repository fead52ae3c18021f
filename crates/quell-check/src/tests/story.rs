//! A teller of legal histories: the smallest store that keeps the contract, and a recorder around it.
//!
//! Every verb does what a store would do and writes what a recorder would write. Tests tell a legal story, see it pass,
//! change one thing in the records, and see it fail for the right reason.

use std::collections::BTreeMap;

use crate::history::*;

/// One claim, as its worker knows it.
#[derive(Clone, Copy)]
pub(super) struct Held {
    pub(super) run: u64,
    pub(super) token: u64,
}

struct Event {
    lane: &'static str,
    id: String,
    hash: u64,
    seq: Option<u64>,
    was_seq: Option<u64>,
    at: Millis,
    place: Place,
    run: u64,
}

#[derive(Default)]
struct Lane {
    open: Vec<usize>,
    open_run: u64,
    /// The current run first, then those that wait behind it.
    fixed: Vec<u64>,
}

struct Run {
    lane: &'static str,
    state: State,
    events: Vec<usize>,
    attempts: u32,
    claims: u32,
    revision: u32,
    held: bool,
    token: u64,
    redriven: bool,
}

impl Run {
    fn new(lane: &'static str, state: State, events: Vec<usize>) -> Self {
        let (attempts, claims, revision, token) = (0, 0, 0, 0);
        Run { lane, state, events, attempts, claims, revision, held: false, token, redriven: false }
    }
}

/// What a teller needs to know to go on.
pub(super) struct Now {
    pub(super) buffered: usize,
    /// The run whose turn it is, with the holder it has or last had.
    pub(super) front: Option<(Held, State)>,
    pub(super) events: usize,
    pub(super) attempts: u32,
    pub(super) held: bool,
}

pub(super) struct Story {
    pub(super) records: Vec<Record>,
    pub(super) audit: Vec<AuditEntry>,
    pub(super) now: Millis,
    /// How a claim says it was fired, where the story cares.
    pub(super) fired_by: FiredBy,
    pub(super) process: u64,
    policy: Policy,
    number: u64,
    call: u64,
    events: Vec<Event>,
    lanes: BTreeMap<&'static str, Lane>,
    runs: BTreeMap<u64, Run>,
    erased: u64,
}

pub(super) fn policy() -> Policy {
    Policy { max_attempts: 3, backoff_base_ms: 1_000, jitter: 0.0, lease_ms: 60_000, ..Policy::plain("q") }
}

impl Story {
    pub(super) fn new(policy: Policy) -> Self {
        let records = vec![Record::fact(0, Op::Policy(Box::new(policy.clone())))];
        Story {
            records,
            audit: Vec::new(),
            now: 1_000,
            fired_by: FiredBy::None,
            process: 1,
            policy,
            number: 0,
            call: 0,
            events: Vec::new(),
            lanes: BTreeMap::new(),
            runs: BTreeMap::new(),
            erased: 0,
        }
    }

    pub(super) fn now_in(&self, lane: &str) -> Now {
        let place = self.lanes.get(lane);
        let front = place.and_then(|l| l.fixed.first()).map(|&run| (run, &self.runs[&run]));
        Now {
            buffered: place.map_or(0, |l| l.open.len()),
            front: front.map(|(run, r)| (Held { run, token: r.token }, r.state)),
            events: front.map_or(0, |(_, r)| r.events.len()),
            attempts: front.map_or(0, |(_, r)| r.attempts),
            held: front.is_some_and(|(_, r)| r.held),
        }
    }

    /// Runs that ended badly and still have their events.
    pub(super) fn redrivable(&self) -> Vec<u64> {
        let ended = |r: &Run| matches!(r.state, State::Failed | State::Cancelled) && !r.events.is_empty();
        self.runs.iter().filter(|(_, r)| ended(r)).map(|(&run, _)| run).collect()
    }

    fn fresh(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    pub(super) fn ask(&mut self, op: Op) -> u64 {
        self.call += 1;
        self.records.push(Record::invoke(self.process, self.call, op));
        self.call
    }

    pub(super) fn answer(&mut self, call: u64, answer: Answer) {
        self.records.push(Record::ok(self.process, call, Some(self.now), answer));
    }

    pub(super) fn call(&mut self, op: Op, answer: Answer) {
        let call = self.ask(op);
        self.answer(call, answer);
    }

    pub(super) fn refuse(&mut self, op: Op, refusal: Refusal) {
        let call = self.ask(op);
        self.records.push(Record::fail(self.process, call, refusal));
    }

    pub(super) fn event(lane: &str, id: &str) -> NewEvent {
        NewEvent {
            queue: "q".into(),
            lane: lane.into(),
            id: id.into(),
            given: true,
            hash: hash(id),
            bytes: 10,
            delayed: false,
            in_transaction: false,
            own_window: false,
            source: Governed::Untold,
        }
    }

    pub(super) fn append_op(lane: &str, id: &str) -> Op {
        Op::Append { events: vec![Story::event(lane, id)] }
    }

    /// The store takes an event in, whatever the sender is told.
    pub(super) fn store(&mut self, lane: &'static str, id: &str) -> Receipt {
        let seq = self.fresh();
        let run = self.fresh();
        let place = self.lanes.entry(lane).or_default();
        if place.open.is_empty() {
            place.open_run = run;
        }
        place.open.push(self.events.len());
        let run = place.open_run;
        let (id, hash) = (id.to_owned(), hash(id));
        let receipt = Receipt { id: id.as_str().into(), seq: Some(seq), duplicate: false, run: Some(run) };
        let place = Place::Buffered;
        self.events.push(Event { lane, id, hash, seq: Some(seq), was_seq: None, at: self.now, place, run });
        receipt
    }

    pub(super) fn append(&mut self, lane: &'static str, id: &str) -> u64 {
        let call = self.ask(Story::append_op(lane, id));
        let receipt = self.store(lane, id);
        let seq = receipt.seq.unwrap();
        self.answer(call, Answer::Appended { receipts: vec![receipt] });
        seq
    }

    /// The first event of that id is answered again.
    pub(super) fn duplicate(&mut self, lane: &'static str, id: &str) {
        let first = self.events.iter().find(|e| e.lane == lane && e.id == id).unwrap();
        let receipt = Receipt { id: id.into(), seq: first.seq, duplicate: true, run: Some(first.run) };
        self.call(Story::append_op(lane, id), Answer::Appended { receipts: vec![receipt] });
    }

    /// An event that is kept aside, and later enters its lane.
    pub(super) fn delayed(&mut self, lane: &'static str, id: &str) -> usize {
        let event = NewEvent { delayed: true, ..Story::event(lane, id) };
        let receipt = Receipt { id: id.into(), seq: None, duplicate: false, run: None };
        self.call(Op::Append { events: vec![event] }, Answer::Appended { receipts: vec![receipt] });
        let (id, hash, place) = (id.to_owned(), hash(id), Place::Delayed);
        let event = Event { lane, id, hash, seq: None, was_seq: None, at: self.now, place, run: 0 };
        self.events.push(event);
        self.events.len() - 1
    }

    pub(super) fn enters(&mut self, event: usize) {
        let lane = self.events[event].lane;
        let id = self.events[event].id.clone();
        let receipt = self.store(lane, &id);
        self.events.remove(event);
        let moved = self.events.len() - 1;
        // The removed place shifts those behind it.
        for lane in self.lanes.values_mut() {
            lane.open.iter_mut().filter(|i| **i > event).for_each(|i| *i -= 1);
        }
        for run in self.runs.values_mut() {
            run.events.iter_mut().filter(|i| **i > event).for_each(|i| *i -= 1);
        }
        self.events[moved].seq = receipt.seq;
    }

    pub(super) fn claim(&mut self, lane: &'static str) -> Held {
        self.claim_by(lane, "w1", false, true)
    }

    pub(super) fn claim_merging(&mut self, lane: &'static str) -> Held {
        self.claim_by(lane, "w1", true, true)
    }

    /// The worker dies before it hears the answer.
    pub(super) fn claim_unheard(&mut self, lane: &'static str) -> Held {
        self.claim_by(lane, "w1", false, false)
    }

    fn room(&self, taken: usize) -> usize {
        usize::try_from(self.policy.max_events).unwrap().saturating_sub(taken)
    }

    pub(super) fn claim_by(&mut self, lane: &'static str, worker: &str, merge: bool, heard: bool) -> Held {
        let call = self.ask(Op::Claim { worker: worker.into(), claim_id: None });
        let token = self.fresh();
        let place = self.lanes.get_mut(lane).unwrap();
        let first = place.fixed.is_empty();
        let number = if first { place.open_run } else { place.fixed[0] };
        let taken = if first { 0 } else { self.runs[&number].events.len() };
        let room = self.room(taken);
        let place = self.lanes.get_mut(lane).unwrap();
        let mut absorbed = None;
        if first {
            place.fixed.push(number);
            let state = State::Pending;
            let run = Run::new(lane, state, vec![]);
            self.runs.insert(number, run);
        }
        if first || merge {
            let count = place.open.len().min(room);
            let front: Vec<usize> = place.open.drain(..count).collect();
            let open_run = place.open_run;
            if !place.open.is_empty() {
                self.number += 1;
                place.open_run = self.number;
                let (rest, run) = (place.open.clone(), self.number);
                rest.into_iter().for_each(|i| self.events[i].run = run);
            }
            let run = self.runs.get_mut(&number).unwrap();
            run.events.extend(front);
            if merge {
                run.revision += 1;
                absorbed = Some(open_run);
            }
        }
        if let Some(open_run) = absorbed {
            let upto = self.upto(number);
            let mut entry =
                self.entry("merged", lane, open_run, Some(State::Pending), Some(State::Cancelled));
            (entry.other_run, entry.upto_seq) = (Some(number), upto);
            self.audit.push(entry);
            let run = Run::new(lane, State::Cancelled, vec![]);
            self.runs.insert(open_run, run);
        }
        let from = self.runs[&number].state;
        let run = self.runs.get_mut(&number).unwrap();
        (run.state, run.token) = (State::Running, token);
        run.attempts += 1;
        run.claims += 1;
        for &event in &run.events {
            (self.events[event].place, self.events[event].run) = (Place::InFlight, number);
        }
        let until = self.now + 60_000;
        let mut entry = self.entry("claimed", lane, number, Some(from), Some(State::Running));
        (entry.next_at, entry.worker) = (Some(until), Some(worker.into()));
        self.audit.push(entry);
        let run = &self.runs[&number];
        let event = |&i: &usize| {
            let e = &self.events[i];
            Delivered { seq: e.seq.unwrap(), id: e.id.as_str().into(), hash: e.hash }
        };
        let fired_by = match (merge, run.claims) {
            (true, _) => FiredBy::Merge,
            (_, 1) if run.redriven => FiredBy::Redrive,
            (_, 1) => self.fired_by,
            _ => FiredBy::Retry,
        };
        let claim = Claim {
            lane: lane.into(),
            run: number,
            token,
            attempt: run.attempts,
            max_attempts: self.max_attempts(number),
            revision: run.revision,
            fired_by,
            head_seq: 0,
            lease_until: until,
            source: None,
            events: run.events.iter().map(event).collect(),
        };
        if heard {
            self.answer(call, Answer::Claimed { now: self.now, claims: vec![claim] });
        }
        Held { run: number, token }
    }

    fn max_attempts(&self, run: u64) -> u32 {
        let half = self.audit.iter().any(|a| a.run == Some(run) && a.change.as_str() == "split_off");
        if half { 1 } else { self.policy.max_attempts }
    }

    fn upto(&self, run: u64) -> u64 {
        self.runs[&run].events.iter().filter_map(|&i| self.events[i].seq).max().unwrap_or(0)
    }

    pub(super) fn entry(
        &mut self,
        change: &str,
        lane: &str,
        run: u64,
        from: Option<State>,
        to: Option<State>,
    ) -> AuditEntry {
        let id = self.fresh();
        let known = self.runs.get(&run);
        AuditEntry {
            lane: Some(lane.into()),
            run: Some(run),
            from,
            to,
            attempt: known.map_or(0, |r| r.attempts),
            token: known.map_or(0, |r| r.token),
            upto_seq: known.map_or(0, |_| self.upto(run)),
            ..AuditEntry::new(id, self.now, change)
        }
    }

    /// A change of the lane itself.
    pub(super) fn note(&mut self, change: &str, lane: &str) {
        let id = self.fresh();
        let entry = AuditEntry { lane: Some(lane.into()), ..AuditEntry::new(id, self.now, change) };
        self.audit.push(entry);
    }

    pub(super) fn settle_op(held: Held, verdict: Verdict) -> Op {
        let (run, token) = (held.run, held.token);
        Op::Settle {
            run,
            token,
            verdict,
            if_head: None,
            own_delay: false,
            follow_ups: vec![],
            source: SourceReport::Fine,
        }
    }

    /// The holder ends its attempt with this change.
    pub(super) fn settle(&mut self, held: Held, verdict: Verdict, change: &str) {
        let call = self.ask(Story::settle_op(held, verdict));
        let (state, next_at) = self.ends(held, Some(verdict), change);
        self.answer(call, Answer::Settled { state, next_at, repeated: false });
    }

    pub(super) fn succeed(&mut self, held: Held) {
        self.settle(held, Verdict::Succeeded, "succeeded");
    }

    pub(super) fn retry(&mut self, held: Held) {
        self.settle(held, Verdict::Retry, "retried");
        self.now += 1_000 * (1 << self.runs[&held.run].claims);
    }

    /// An attempt ends in the store.
    pub(super) fn ends(
        &mut self,
        held: Held,
        verdict: Option<Verdict>,
        change: &str,
    ) -> (State, Option<Millis>) {
        let run = self.runs.get_mut(&held.run).unwrap();
        let lane = run.lane;
        if matches!(change, "released" | "superseded" | "interrupted" | "probe_faulted" | "starved") {
            run.attempts -= 1;
        }
        let (state, place, wait) = match change {
            "succeeded" => (State::Succeeded, Place::Succeeded, None),
            "failed" | "exhausted" | "expired" | "split" => (State::Failed, Place::Dead, None),
            "cancelled" => (State::Cancelled, Place::Discarded, None),
            "retried" => (State::Retryable, Place::InFlight, Some(1_000 << (run.claims - 1))),
            "probe_faulted" => (State::Retryable, Place::InFlight, Some(0)),
            _ => (State::Pending, Place::InFlight, Some(0)),
        };
        run.state = state;
        for &event in &run.events {
            self.events[event].place = place;
        }
        if state.is_final() {
            self.lanes.get_mut(lane).unwrap().fixed.retain(|&r| r != held.run);
        }
        let mut entry = self.entry(change, lane, held.run, Some(State::Running), Some(state));
        let next_at = wait.map(|wait| self.now + wait);
        (entry.verdict, entry.next_at) = (verdict, next_at);
        self.audit.push(entry);
        (state, next_at)
    }

    /// The lease runs out and is taken back.
    pub(super) fn reclaim(&mut self, held: Held) {
        self.now += 60_000;
        self.ends(held, None, "reclaimed");
    }

    pub(super) fn running(&mut self, held: Held, change: &str) {
        let lane = self.runs[&held.run].lane;
        if change == "held" {
            self.runs.get_mut(&held.run).unwrap().held = true;
        }
        let entry = self.entry(change, lane, held.run, Some(State::Running), Some(State::Running));
        self.audit.push(entry);
    }

    pub(super) fn hold(&mut self, held: Held) {
        let (run, token) = (held.run, held.token);
        let call = self.ask(Op::Hold { run, token, if_head: None });
        self.running(held, "held");
        self.answer(call, Answer::Hold(HoldAnswer::Held));
    }

    pub(super) fn control(&mut self, action: Action) {
        self.call(Op::Control { action }, Answer::Controlled { changed: true });
    }

    /// A new run of those events, before anything buffered.
    fn fixed_run(&mut self, change: &str, from: u64, events: Vec<usize>, place: Place, turn: usize) -> u64 {
        let (number, lane) = (self.fresh(), self.runs[&from].lane);
        for &event in &events {
            (self.events[event].place, self.events[event].run) = (place, number);
        }
        let (state, redriven) = (State::Pending, change == "redriven");
        let run = Run { redriven, ..Run::new(lane, state, events) };
        self.runs.insert(number, run);
        let fixed = &mut self.lanes.get_mut(lane).unwrap().fixed;
        fixed.insert(turn.min(fixed.len()), number);
        let mut entry = self.entry(change, lane, number, None, Some(State::Pending));
        entry.other_run = Some(from);
        self.audit.push(entry);
        number
    }

    pub(super) fn redrive(&mut self, from: u64) -> u64 {
        let events = std::mem::take(&mut self.runs.get_mut(&from).unwrap().events);
        self.redrive_events(from, events, Vec::new())
    }

    /// Only the events of these ids go into the new run.
    pub(super) fn redrive_part(&mut self, from: u64, ids: &[&str]) -> u64 {
        let all = std::mem::take(&mut self.runs.get_mut(&from).unwrap().events);
        let (part, rest) = all.into_iter().partition(|&i| ids.contains(&self.events[i].id.as_str()));
        self.runs.get_mut(&from).unwrap().events = rest;
        self.redrive_events(from, part, ids.iter().map(|&id| id.into()).collect())
    }

    fn redrive_events(&mut self, from: u64, events: Vec<usize>, asked: Vec<Name>) -> u64 {
        let lane = self.runs[&from].lane;
        let action = Action::RedriveHead { lane: lane.into(), run: from, events: asked };
        let call = self.ask(Op::Control { action });
        let number = self.fixed_run("redriven", from, events, Place::Buffered, usize::MAX);
        self.answer(call, Answer::Controlled { changed: true });
        number
    }

    pub(super) fn redrive_as_new(&mut self, from: u64) {
        let lane = self.runs[&from].lane;
        let action = Action::RedriveNew { lane: lane.into(), run: from, events: Vec::new() };
        let call = self.ask(Op::Control { action });
        let events = std::mem::take(&mut self.runs.get_mut(&from).unwrap().events);
        let mut upto = 0;
        for event in events {
            let (seq, run) = (self.fresh(), self.fresh());
            let place = self.lanes.get_mut(lane).unwrap();
            if place.open.is_empty() {
                place.open_run = run;
            }
            place.open.push(event);
            let run = place.open_run;
            let event = &mut self.events[event];
            event.was_seq = event.seq.replace(seq);
            (event.place, event.run) = (Place::Buffered, run);
            upto = seq;
        }
        let open_run = self.lanes[lane].open_run;
        let mut entry = self.entry("redriven", lane, open_run, None, Some(State::Pending));
        (entry.other_run, entry.upto_seq) = (Some(from), upto);
        self.audit.push(entry);
        self.answer(call, Answer::Controlled { changed: true });
    }

    /// A conflicting event from aside goes to the dead letter, under an id that the store makes.
    pub(super) fn bury(&mut self, lane: &'static str, id: &str) {
        self.ask(Op::Append { events: vec![NewEvent { delayed: true, ..Story::event(lane, id) }] });
        let (run, seq) = (self.fresh(), self.fresh());
        let (id, hash, place) = (id.to_owned(), hash(id), Place::Dead);
        self.events.push(Event { lane, id, hash, seq: Some(seq), was_seq: None, at: self.now, place, run });
        self.runs.insert(run, Run::new(lane, State::Failed, vec![self.events.len() - 1]));
        let entry = self.entry("conflict_buried", lane, run, Some(State::Pending), Some(State::Failed));
        self.audit.push(entry);
    }

    /// A failing batch of several becomes two halves.
    pub(super) fn split(&mut self, held: Held) -> [u64; 2] {
        self.settle(held, Verdict::Failed, "split");
        let mut left = std::mem::take(&mut self.runs.get_mut(&held.run).unwrap().events);
        let right = left.split_off(left.len() / 2);
        [(left, 0), (right, 1)]
            .map(|(half, turn)| self.fixed_run("split_off", held.run, half, Place::InFlight, turn))
    }

    /// Some buffered events leave the lane: dropped, deleted, purged, or (all of them) cancelled.
    pub(super) fn discard(&mut self, lane: &'static str, change: &str, count: usize) -> u64 {
        let place = self.lanes.get_mut(lane).unwrap();
        let (open_run, gone) = (place.open_run, place.open.drain(..count).collect::<Vec<_>>());
        let number = if change == "cancelled" { open_run } else { self.fresh() };
        for &event in &gone {
            (self.events[event].place, self.events[event].run) = (Place::Discarded, number);
        }
        let state = State::Cancelled;
        let run = Run::new(lane, state, gone);
        self.runs.insert(number, run);
        let mut entry = self.entry(change, lane, number, Some(State::Pending), Some(State::Cancelled));
        entry.other_run = Some(open_run).filter(|&open| open != number);
        self.audit.push(entry);
        number
    }

    /// Everything of the lane is deleted for good.
    pub(super) fn erase(&mut self, lane: &'static str) {
        let call = self.ask(Op::Control { action: Action::EraseLane { lane: lane.into() } });
        self.note("erased", lane);
        let before = self.events.len();
        assert!(
            self.lanes.values().all(|l| l.open.is_empty() && l.fixed.is_empty()),
            "erase idle stories only"
        );
        self.events.retain(|e| e.lane != lane);
        self.erased += (before - self.events.len()) as u64;
        self.runs.retain(|_, r| r.lane != lane);
        self.answer(call, Answer::Controlled { changed: true });
    }

    /// Numbers go on from there; nothing else remains.
    pub(super) fn jump(&mut self, number: u64) {
        self.number = self.number.max(number);
    }

    pub(super) fn dump(&self) -> Dump {
        let count = |place: Place| self.events.iter().filter(|e| e.place == place).count() as u64;
        let totals = QueueTotals {
            queue: "q".into(),
            accepted: self.events.len() as u64 + self.erased,
            succeeded: count(Place::Succeeded),
            dead: count(Place::Dead),
            discarded: count(Place::Discarded) + self.erased,
            delayed: count(Place::Delayed),
            buffered: count(Place::Buffered),
            in_flight: count(Place::InFlight),
        };
        let events = self.events.iter().map(|e| DumpEvent {
            queue: "q".into(),
            lane: e.lane.into(),
            seq: e.seq,
            id: e.id.as_str().into(),
            hash: e.hash,
            place: e.place,
            run: Some(e.run).filter(|&run| run > 0),
            received_at: e.at,
            was_seq: e.was_seq,
        });
        let runs = self.runs.iter().map(|(&number, run)| {
            let seqs = || run.events.iter().filter_map(|&i| self.events[i].seq);
            DumpRun {
                lane: run.lane.into(),
                run: number,
                state: run.state,
                count: run.events.len() as u64,
                lo: seqs().min().unwrap_or(0),
                hi: seqs().max().unwrap_or(0),
                attempts: run.attempts,
                claims: run.claims,
                revision: run.revision,
                held: run.held,
                merged_into: None,
                split_from: None,
                redriven_from: None,
                first_at: None,
            }
        });
        Dump {
            queues: vec![totals],
            events: events.collect(),
            runs: runs.collect(),
            audit: self.audit.clone(),
            ..Dump::default()
        }
    }

    pub(super) fn end(mut self) -> Vec<Record> {
        let dump = self.dump();
        self.records.push(Record::fact(0, Op::Dump(Box::new(dump))));
        self.records
    }
}

pub(super) fn hash(id: &str) -> u64 {
    id.bytes().fold(17, |h, b| h * 31 + u64::from(b))
}

// Ways to spoil a history.

pub(super) fn dump_of(records: &mut [Record]) -> &mut Dump {
    let found = records.iter_mut().rev().find_map(|r| match &mut r.op {
        Some(Op::Dump(dump)) => Some(&mut **dump),
        _ => None,
    });
    found.expect("the story ends with a dump")
}

/// The n-th audit record of that change.
pub(super) fn audit_of<'r>(records: &'r mut [Record], change: &str, n: usize) -> &'r mut AuditEntry {
    dump_of(records)
        .audit
        .iter_mut()
        .filter(|a| a.change.as_str() == change)
        .nth(n)
        .expect("it is in the story")
}

/// The n-th claim that was answered.
pub(super) fn claim_of(records: &mut [Record], n: usize) -> &mut Claim {
    let mut claims = records.iter_mut().filter_map(|r| match &mut r.answer {
        Some(Answer::Claimed { claims, .. }) => claims.first_mut(),
        _ => None,
    });
    claims.nth(n).expect("it is in the story")
}

/// The n-th receipt.
pub(super) fn receipt_of(records: &mut [Record], n: usize) -> &mut Receipt {
    let mut receipts = records.iter_mut().filter_map(|r| match &mut r.answer {
        Some(Answer::Appended { receipts }) => receipts.first_mut(),
        _ => None,
    });
    receipts.nth(n).expect("it is in the story")
}
