//! The second pass: folds the audit trail, lane by lane, from empty.
//!
//! Numbers of events, tokens and audit records come from one rising sequence that is drawn while the lane is locked, so
//! within a lane they give the store's own commit order. The fold walks a lane's events and audit records in this
//! order, keeps what must then be buffered, current, waiting, paused and blocked, and holds every record against it.
//! What it ends with must be what the store has dumped (`finish.rs`).
//!
//! An event may have vanished at a moment that nobody recorded (erased, removed by the retention, rolled back by a
//! restore). Such an event is *vague*: where batches are compared it is left out on both sides.

use std::collections::VecDeque;

use crate::fast::Map;
use crate::history::{Action, AuditEntry, Claim, DumpRun, Governed, Millis, Name, Op, Phase, State, Verdict};
use crate::index::{Index, Loc};
use crate::sometimes::Thing;
use crate::table::Change;
use crate::violation::{Checked, Fault, Invariant, fault};

mod claimed;
mod moves;
mod window;

use window::Window;

/// A run as the trail tells it.
pub(crate) struct Run<'a> {
    pub(crate) lane: u32,
    pub(crate) state: State,
    /// Its events, in order; indices into `Index::seqs`. Empty while it is open.
    pub(crate) batch: Vec<u32>,
    /// Its highest event, in the trail's own word.
    upto: u64,
    pub(crate) kind: Kind,
    pub(crate) attempts: u32,
    pub(crate) claims: u32,
    pub(crate) held: bool,
    pub(crate) merges: u32,
    /// The trail begins in its middle, so its batch and counts are not known.
    pub(crate) unknown: bool,
    /// Some of its events went into another run made by a redrive.
    pub(crate) redriven: bool,
    pub(crate) merges_told: u32,
    /// Revision of its first claim, less the merges until then.
    first_revision: Option<u32>,
    releases: u32,
    releases_in_row: u32,
    retries: u32,
    interrupts: u32,
    cancel: bool,
    max_attempts: Option<u32>,
    token: u64,
    worker: Option<&'a Name>,
    lease_until: Option<Millis>,
    /// It may not be claimed before.
    not_before: Option<Millis>,
    last_end: Option<Change>,
    /// All halves of one failed run have the same root.
    root: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    Half,
    Redriven,
}

impl Run<'_> {
    fn new(lane: u32, state: State, kind: Kind) -> Self {
        Run {
            lane,
            state,
            batch: Vec::new(),
            upto: 0,
            kind,
            attempts: 0,
            claims: 0,
            held: false,
            merges: 0,
            unknown: false,
            redriven: false,
            merges_told: 0,
            first_revision: None,
            releases: 0,
            releases_in_row: 0,
            retries: 0,
            interrupts: 0,
            cancel: false,
            max_attempts: None,
            token: 0,
            worker: None,
            lease_until: None,
            not_before: None,
            last_end: None,
            root: 0,
        }
    }
}

/// One claim with its end, by token.
pub(crate) struct Attempt {
    pub(crate) run: u64,
    /// How much of the run's batch it was given: a later merge adds behind it.
    pub(crate) events: usize,
    pub(crate) number: u32,
    pub(crate) end: Option<End>,
}

#[derive(Clone, Copy)]
pub(crate) struct End {
    pub(crate) change: Change,
    pub(crate) to: Option<State>,
    pub(crate) verdict: Option<Verdict>,
    pub(crate) next_at: Option<Millis>,
    pub(crate) at: Millis,
}

pub(crate) struct Fold<'i, 'a> {
    pub(crate) index: &'i mut Index<'a>,
    pub(crate) runs: Map<u64, Run<'a>>,
    pub(crate) attempts: Map<u64, Attempt>,
    /// By token: whether a settle chose its own delay; missing when no settle was seen.
    own_delay: Map<u64, bool>,
    pub(crate) truncated: bool,
    pub(crate) dumped: Map<u64, &'a DumpRun>,
    /// By run: a claim of it that was heard.
    heard: Map<u64, &'a Claim>,
    /// By run: which events a redrive of it was asked for, of every such call that may have happened.
    redrives: Map<u64, Vec<&'a [Name]>>,
    /// Numbers of events that were kept beside their lane's window from the first: buried as a conflict.
    set_down: Map<u64, ()>,
    lane: Lane,
}

/// The state of the lane that is being folded.
#[derive(Default)]
struct Lane {
    id: u32,
    open: VecDeque<u32>,
    window: Window,
    /// Events were dropped for one that comes next: the run and its window go on, even if none was left.
    makes_room: bool,
    /// Claimed and not ended.
    current: Option<u64>,
    /// Halves and redriven runs that have not been claimed yet.
    waiting: Vec<u64>,
    /// Runs that were split and whose halves are not all there yet.
    splitting: Vec<u64>,
    paused: bool,
    blocked: Option<u64>,
    must_block: Option<u64>,
    last_token: u64,
    last_at: Millis,
}

impl<'i, 'a> Fold<'i, 'a> {
    pub(crate) fn of(index: &'i mut Index<'a>, audit: &'a [AuditEntry]) -> Result<Self, Box<Fault>> {
        let truncated = index.dump.is_some_and(|d| d.audit_from.is_some());
        let mut fold = Fold {
            index,
            runs: Map::default(),
            attempts: Map::default(),
            own_delay: Map::default(),
            truncated,
            dumped: Map::default(),
            heard: Map::default(),
            redrives: Map::default(),
            set_down: Map::default(),
            lane: Lane::default(),
        };
        fold.note_delays();
        fold.note_redrives();
        let items = fold.order(audit)?;
        let mut lane = None;
        for (id, _, item) in items {
            if lane != Some(id) {
                fold.end_lane()?;
                fold.lane = Lane { id, ..Lane::default() };
                lane = Some(id);
            }
            match item {
                Item::Event(seq) if fold.set_down.contains_key(&fold.index.seqs[seq as usize].seq) => {}
                Item::Event(seq) => fold.arrives(seq),
                Item::Audit(place) => fold.entry(&audit[place as usize])?,
            }
        }
        fold.end_lane()?;
        Ok(fold)
    }

    fn note_delays(&mut self) {
        for call in &self.index.calls {
            if let Op::Settle { token, own_delay, .. } = call.op {
                *self.own_delay.entry(*token).or_default() |= own_delay;
            }
        }
    }

    fn note_redrives(&mut self) {
        for call in self.index.calls.iter().filter(|call| call.phase != Phase::Fail) {
            if let Op::Control { action: Action::RedriveHead { run, events, .. } } = call.op {
                self.redrives.entry(*run).or_default().push(events);
            }
        }
        for told in self.index.claims.values() {
            self.heard.insert(told.claim.run, told.claim);
        }
    }

    /// Events and records of all lanes, lane by lane, in commit order. Checks what concerns the trail as a whole.
    fn order(&mut self, audit: &'a [AuditEntry]) -> Result<Vec<(u32, u64, Item)>, Box<Fault>> {
        let mut items = Vec::with_capacity(audit.len() + self.index.seqs.len());
        for (place, seq) in self.index.seqs.iter().enumerate() {
            items.push((seq.lane, seq.seq, Item::Event(u32::try_from(place).unwrap_or(u32::MAX))));
        }
        let mut of_run: Map<u64, u32> = Map::default();
        if let Some(dump) = self.index.dump {
            for run in &dump.runs {
                let lane = self.index.lane(&run.lane);
                of_run.insert(run.run, lane);
                self.dumped.insert(run.run, run);
            }
        }
        for told in self.index.claims.values() {
            of_run.insert(told.claim.run, told.lane);
        }
        let mut last = 0;
        for (place, entry) in audit.iter().enumerate() {
            if entry.id <= last {
                let what = format!("audit record {} follows {last}", entry.id);
                return Err(fault(Invariant::AuditIsState, what, "the ids of the trail rise"));
            }
            last = entry.id;
            let Some(change) = Change::parse(&entry.change) else {
                let what = format!("audit record {} says {:?}", entry.id, entry.change);
                return Err(about(
                    entry,
                    fault(Invariant::LegalMoves, what, "a change that the contract knows"),
                ));
            };
            self.index.some.saw_change(change);
            if !change.is_legal(entry.from, entry.to) {
                let what = format!("{} moved {:?} to {:?}", entry.change, entry.from, entry.to);
                return Err(about(entry, fault(Invariant::LegalMoves, what, "a move of the table")));
            }
            if change == Change::ConflictBuried {
                self.set_down.insert(entry.upto_seq, ());
            }
            let lane = match (&entry.lane, entry.run) {
                (Some(name), _) => Some(self.index.lane(name)),
                (None, Some(run)) => of_run.get(&run).copied(),
                (None, None) => None,
            };
            if let Some(lane) = lane {
                if let Some(run) = entry.run {
                    of_run.insert(run, lane);
                }
                items.push((lane, entry.id, Item::Audit(u32::try_from(place).unwrap_or(u32::MAX))));
            }
        }
        items.sort_unstable();
        Ok(items)
    }

    fn arrives(&mut self, seq: u32) {
        self.index.seqs[seq as usize].place = Loc::Open;
        let one = &self.index.seqs[seq as usize];
        let event = &self.index.events[one.event as usize];
        let (at, vague) = (one.received_at, one.vague);
        let (own, (_, bytes)) = (event.own_window, self.index.sizes(one.event));
        if self.lane.open.is_empty() && !std::mem::take(&mut self.lane.makes_room) {
            self.lane.window = Window::opened(at);
        }
        self.lane.open.push_back(seq);
        self.lane.window.event(at.filter(|_| !vague), self.lane.open.len(), bytes, own);
        let running = self.lane.current.and_then(|run| self.runs.get(&run));
        if running.is_some_and(|run| run.state == State::Running) {
            self.index.some.saw(Thing::EventDuringRun);
        }
    }

    fn entry(&mut self, entry: &'a AuditEntry) -> Checked {
        // The words were read once already, when the trail was ordered.
        let Some(change) = Change::parse(&entry.change) else { return Ok(()) };
        if entry.at < self.lane.last_at {
            let what = format!(
                "audit record {} is from {}, one before it from {}",
                entry.id, entry.at, self.lane.last_at
            );
            return Err(about(entry, fault(Invariant::AuditIsState, what, "store time never goes back")));
        }
        self.lane.last_at = entry.at;
        match change {
            Change::Claimed => self.claimed(entry),
            _ => self.moved(entry, change),
        }
    }

    fn end_lane(&mut self) -> Checked {
        for parent in std::mem::take(&mut self.lane.splitting) {
            let run = &self.runs[&parent];
            let left = run.batch.iter().find(|&&s| self.is_solid(s) && self.place(s) == Loc::Run(parent));
            if let Some(&seq) = left {
                let seq = self.index.seqs[seq as usize].seq;
                let what = format!("run {parent} was split and event {seq} is in neither half");
                let lane = self.lane_name();
                let expected = "the halves together hold the batch";
                return Err(fault(Invariant::SerialCommits, what, expected).lane(lane).run(parent).seq(seq));
            }
        }
        Ok(())
    }

    fn is_solid(&self, seq: u32) -> bool {
        !self.index.seqs[seq as usize].vague
    }

    /// Whose limits an event waits for.
    pub(crate) fn source(&self, seq: u32) -> &'a Governed {
        self.index.events[self.index.seqs[seq as usize].event as usize].source
    }

    fn place(&self, seq: u32) -> Loc {
        self.index.seqs[seq as usize].place
    }

    fn lane_name(&self) -> &'a Name {
        self.index.lanes[self.lane.id as usize].name
    }

    /// A complaint about a record of the lane at hand.
    fn wrong(
        &self,
        entry: &AuditEntry,
        invariant: Invariant,
        what: impl Into<String>,
        expected: impl Into<String>,
    ) -> Box<Fault> {
        about(entry, fault(invariant, what, expected)).lane(self.lane_name())
    }

    /// Takes the events at the front of the lane up to a number, or all that a predicate picks, out of the open run.
    fn take_open(&mut self, run: u64, picks: impl Fn(u64) -> bool) -> Vec<u32> {
        let mut taken = Vec::new();
        let seqs = &mut self.index.seqs;
        self.lane.open.retain(|&seq| {
            let one = &mut seqs[seq as usize];
            let picked = picks(one.seq);
            if picked {
                one.place = Loc::Run(run);
                taken.push(seq);
            }
            !picked
        });
        taken
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    Event(u32),
    Audit(u32),
}

fn about(entry: &AuditEntry, mut fault: Box<Fault>) -> Box<Fault> {
    if let Some(lane) = &entry.lane {
        fault = fault.lane(lane);
    }
    if let Some(run) = entry.run {
        fault = fault.run(run);
    }
    if entry.token > 0 { fault.token(entry.token) } else { fault }
}
