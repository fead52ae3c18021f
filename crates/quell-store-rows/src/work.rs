//! One transaction at work: the rows that were read, what the decisions made of them, and the end.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque, btree_map};
use std::sync::Arc;
use std::time::Duration;

use quell_core::aside::Aside;
use quell_core::clock::Timestamp;
use quell_core::event::{LaneKey, Tenant};
use quell_core::lane::{CurrentRun, Lane, OnFailed};
use quell_core::lifecycle::RunState;
use quell_core::schedule::ScheduleRow;
use quell_core::shelf::Shelf;
use quell_core::source::SourceId;
use quell_core::working_set::{FinishedRun, Inhabited, Kept, Numbers, WorkingSet};

use crate::changes::{Before, Changes, base_totals};
use crate::rows::{Backend, Begun, First, Found, LaneAt, Lanes, Pick, Rows, RowsResult, Span, Want};

/// Transactions overlap by less than this.
const OVERLAP: Duration = Duration::from_secs(30);

pub(crate) struct Work {
    pub(crate) rows: Box<dyn Rows>,
    pub(crate) now: Timestamp,
    /// What the decisions work on.
    pub(crate) set: WorkingSet,
    /// The same rows as they were read, but for lanes.
    before: WorkingSet,
    /// The lanes that were read, as they were, by their numbers.
    lanes: HashMap<u64, Before>,
    /// Lanes whose entries are to be written although nothing else changed.
    pushed: BTreeSet<LaneKey>,
    /// Sources whose answers are all forgotten.
    emptied: Vec<SourceId>,
    /// Answers that are forgotten without having been read.
    forgotten: Vec<(SourceId, String)>,
}

/// How the index entries of changed lanes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Index {
    /// As they truly are.
    Exact,
    /// An entry that would only move to later stays.
    Lazy,
}

impl Work {
    pub(crate) async fn begin(backend: &dyn Backend) -> RowsResult<Work> {
        Ok(Work::of(backend.begin().await?))
    }

    /// Begins with lanes that are locked at once, and with as many numbers as the decisions may use. Says which of the
    /// lanes are busy.
    pub(crate) async fn begin_with(
        backend: &dyn Backend,
        first: First<'_>,
        numbers: usize,
    ) -> RowsResult<(Work, Lanes)> {
        let Begun { rows, mut lanes, numbers } = backend.begin_with(first, numbers).await?;
        let mut work = Work::of(rows);
        work.set.numbers = Numbers::SetApart(numbers.into());
        work.take_in(std::mem::take(&mut lanes.lanes));
        Ok((work, lanes))
    }

    /// Begins with due lanes, which are yet to be taken in: their order is for the claim to say.
    pub(crate) async fn begin_due(
        backend: &dyn Backend,
        picks: &[Pick],
        at: Timestamp,
    ) -> RowsResult<(Work, Vec<LaneAt>)> {
        let Begun { rows, lanes, .. } = backend.begin_with(First::Due(picks, at), 0).await?;
        Ok((Work::of(rows), lanes.lanes))
    }

    fn of(rows: Box<dyn Rows>) -> Work {
        let set = WorkingSet {
            base: base_totals(),
            numbers: Numbers::SetApart(VecDeque::new()),
            ..WorkingSet::default()
        };
        Work {
            now: rows.now(),
            rows,
            before: set.clone(),
            set,
            lanes: HashMap::new(),
            pushed: BTreeSet::new(),
            emptied: Vec::new(),
            forgotten: Vec::new(),
        }
    }

    /// Takes lanes in that were read. One that is here already has perhaps been changed, and stays.
    pub(crate) fn take_in(&mut self, lanes: Vec<LaneAt>) -> Vec<LaneKey> {
        let mut keys = Vec::with_capacity(lanes.len());
        for LaneAt { key, lane, entries } in lanes {
            // Whoever held the lane before may have begun after this transaction: then it is as late as it was for them. A
            // lane that is far ahead has seen a clock that was wrong; it keeps its own time, and the others theirs.
            if lane.updated_at.since(self.now) <= OVERLAP {
                self.now = self.now.max(lane.updated_at);
            }
            keys.push(key.clone());
            let Entry::Vacant(place) = self.lanes.entry(lane.id) else { continue };
            place.insert(Before { lane: lane.clone(), entries, events: Vec::new() });
            self.set.places.insert(lane.id, key.clone());
            self.set.lanes.insert(key, Inhabited { lane, events: BTreeMap::new(), ids: BTreeMap::new() });
        }
        keys
    }

    /// Reads what belongs to the lanes that are here, with as many numbers as the decisions may use.
    pub(crate) async fn find(&mut self, want: &Want, numbers: usize) -> RowsResult<Found> {
        let at_hand = match &self.set.numbers {
            Numbers::SetApart(ranges) => ranges.iter().map(|range| range.end - range.start).sum(),
            Numbers::Last(_) => 0,
        };
        let numbers = if at_hand >= numbers as u64 { 0 } else { numbers };
        if numbers == 0 && *want == Want::default() {
            return Ok(Found::default());
        }
        let mut found = self.rows.find(want, numbers).await?;
        for (lane, kept) in std::mem::take(&mut found.events) {
            self.put_event(lane, kept);
        }
        for set in [&mut self.before, &mut self.set] {
            for run in &found.runs {
                let same = |r: &FinishedRun| (r.lane, r.ended.run.number) == (run.lane, run.ended.run.number);
                if !set.finished.iter().any(same) {
                    set.finished.push(run.clone());
                }
            }
            set.audit.extend(found.said.iter().cloned());
            for (run, row) in &found.steps {
                set.steps.insert((*run, row.revision, row.name.clone()), row.clone());
            }
            set.paused_queues.extend(found.pauses.clone());
            for source in &found.sources {
                set.sources.entry(source.id).or_insert_with(|| source.clone());
            }
            set.declarations.extend(found.declarations.iter().map(|d| (d.name.clone(), d.rules)));
            set.cache.extend(found.answer.iter().map(|row| ((row.source, row.key.clone()), row.clone())));
        }
        self.take_in_aside(&found.aside);
        self.take_in_schedules(&found.schedules);
        if let Numbers::SetApart(ranges) = &mut self.set.numbers {
            ranges.extend(found.numbers.drain(..));
        }
        Ok(found)
    }

    /// Locks a place on a shelf and takes in what stands there. Says how many others of the shelf are live.
    pub(crate) async fn find_document(&mut self, shelf: Shelf, name: &str) -> RowsResult<usize> {
        let (document, elsewhere) = self.rows.document(shelf, name).await?;
        for set in [&mut self.before, &mut self.set] {
            set.shelves.extend(document.clone().map(|document| ((shelf, document.name.clone()), document)));
        }
        Ok(elsewhere)
    }

    /// Takes events aside in that were read and locked.
    pub(crate) fn take_in_aside(&mut self, aside: &[Aside]) {
        for set in [&mut self.before, &mut self.set] {
            for aside in aside {
                if !set.aside.iter().any(|a| a.number == aside.number) {
                    set.aside.push(aside.clone());
                }
            }
        }
    }

    /// An event that was read, once, however often it was asked for.
    fn put_event(&mut self, lane: u64, kept: Kept) {
        let (Some(before), Some(key)) = (self.lanes.get_mut(&lane), self.set.places.get(&lane)) else {
            return;
        };
        let Some(inhabited) = self.set.lanes.get_mut(key) else { return };
        if let btree_map::Entry::Vacant(place) = inhabited.events.entry(kept.event.seq) {
            inhabited.ids.insert(kept.event.id.clone(), (kept.event.seq, kept.print));
            before.events.push(place.insert(Arc::new(kept)).clone());
        }
    }

    pub(crate) fn take_in_schedules(&mut self, rows: &[ScheduleRow]) {
        for row in rows {
            let place = (row.schedule.tenant.clone(), row.schedule.name.clone());
            self.before.schedules.insert(place.clone(), row.clone());
            self.set.schedules.insert(place, row.clone());
        }
    }

    /// The entries of this lane lie before the true times: they are written anew although nothing else changed.
    pub(crate) fn push(&mut self, key: LaneKey) {
        self.pushed.insert(key);
    }

    /// An answer that was not read is forgotten.
    pub(crate) fn forget_answer(&mut self, source: SourceId, key: String) {
        self.forgotten.push((source, key));
    }

    /// Sources that were found are to be read again, with a lock.
    pub(crate) fn unread_sources(&mut self) {
        self.before.sources.clear();
        self.set.sources.clear();
        self.rows.unread_sources();
    }

    /// All answers of this source are forgotten.
    pub(crate) fn empty(&mut self, source: SourceId) {
        self.emptied.push(source);
    }

    pub(crate) fn lane(&self, key: &LaneKey) -> Option<&Lane> {
        self.set.lanes.get(key).map(|l| &*l.lane)
    }

    pub(crate) fn tenant_of(&self, id: u64) -> Option<Tenant> {
        self.set.places.get(&id).map(|key| key.tenant.clone())
    }

    pub(crate) fn lane_by_id(&self, id: u64) -> Option<&Lane> {
        self.lane(self.set.places.get(&id)?)
    }

    /// Writes what changed and commits. Says when somebody has to be woken.
    pub(crate) async fn commit(self, index: Index) -> RowsResult<Option<Timestamp>> {
        self.end(index, None).await
    }

    /// The same, and what is kept under this key without a lane goes, too.
    pub(crate) async fn commit_erased(self, key: LaneKey) -> RowsResult<Option<Timestamp>> {
        self.end(Index::Exact, Some(key)).await
    }

    async fn end(mut self, index: Index, erased: Option<LaneKey>) -> RowsResult<Option<Timestamp>> {
        let lazy = index == Index::Lazy;
        let mut changes = Changes::between(&self.before, self.set, &mut self.lanes, lazy, &self.pushed);
        changes.emptied = self.emptied;
        changes.gone_answers.extend(self.forgotten);
        if changes.erased.is_empty() {
            changes.erased.extend(erased.map(|key| (key, None)));
        }
        if changes.is_empty() {
            self.rows.rollback().await;
            return Ok(None);
        }
        let wake = wake_at(self.now, &changes, &self.before, &self.lanes);
        self.rows.commit(changes).await?;
        Ok(wake)
    }

    pub(crate) async fn rollback(self) {
        self.rows.rollback().await;
    }
}

/// The earliest moment at which a sleeper that has not heard of these changes would be late.
fn wake_at(
    now: Timestamp,
    changes: &Changes,
    before: &WorkingSet,
    lanes: &HashMap<u64, Before>,
) -> Option<Timestamp> {
    let mut wake: Option<Timestamp> = None;
    let mut earlier = |at: Timestamp| wake = Some(wake.map_or(at, |known| known.min(at)));
    for write in &changes.lanes {
        // Another source may let it go at once, although its due time is what it was.
        let is_new = |due: Timestamp| {
            write
                .was
                .is_none_or(|was| was.due.is_none_or(|at| due < at) || was.source != write.entries.source)
        };
        if let Some(due) = write.entries.due.filter(|due| is_new(*due)) {
            earlier(due);
        }
        if let Some(lease) = write.entries.lease
            && write.was.and_then(|was| was.lease).is_none_or(|was| lease < was)
        {
            earlier(lease);
        }
        // A holder that is to stop hears of it by the bell, not at its next heartbeat.
        let asked = |lane: Option<&Lane>| {
            let current = lane.and_then(|l| l.current.as_ref());
            current.is_some_and(|c| {
                c.state == RunState::Running && (c.interrupt_requested || c.cancel_requested)
            })
        };
        if asked(Some(&write.lane)) && !asked(lanes.get(&write.lane.id).map(|l| &*l.lane)) {
            earlier(now);
        }
    }
    changes.new_aside.iter().for_each(|aside| earlier(aside.look_at));
    changes.schedules.iter().filter_map(|row| row.next_at).for_each(&mut earlier);
    // A source that lets its lanes go earlier than before: enabled, reset, a token given back, a probe that went well.
    for source in &changes.sources {
        source.goes_earlier(before.sources.get(&source.id), now).into_iter().for_each(&mut earlier);
    }
    if !changes.gone_pauses.is_empty() || !changes.erased.is_empty() {
        earlier(now);
    }
    wake
}

/// The events of a run whose batch is fixed.
pub(crate) fn members(lane: u64, run: &CurrentRun) -> Span {
    let mark = run.marked.then_some(run.number);
    Span { lane, from: run.lo, upto: run.hi, mark, most: run.count, bytes: None }
}

/// The events of the current run, when its end may halve it.
pub(crate) fn to_be_split(lane: &Lane) -> Option<Span> {
    let run = lane.current.as_ref()?;
    let halves = run.rules.on_failed == OnFailed::Bisect && run.count > 1 && !run.held;
    halves.then(|| members(lane.id, run))
}
