//! What a transaction has changed: the difference between the rows it read and what the decisions made of them.
//!
//! The decisions (`quell_core::working_set`) change ordered maps and know nothing of this. So no verb can forget to
//! write something down, and a store writes every verb by the same code.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use quell_core::aside::Aside;
use quell_core::batch::RunId;
use quell_core::clock::Timestamp;
use quell_core::event::{EventId, LaneKey, Payload, QueueName, SourceName, Tenant};
use quell_core::lane::{Lane, Paused};
use quell_core::schedule::ScheduleRow;
use quell_core::shelf::{Document, Shelf};
use quell_core::source::{CacheRow, Declaration, Source, SourceId};
use quell_core::store::StepRow;
use quell_core::totals::Totals;
use quell_core::working_set::{FinishedRun, Inhabited, Kept, Trail, WorkingSet};

use crate::rows::Entries;

#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// By how much the totals of each queue change. A queue that is not known yet is made, also when nothing changes.
    pub totals: BTreeMap<(Tenant, QueueName), Delta>,
    pub lanes: Vec<LaneWrite>,
    /// Lanes that go with all that belongs to them: events, ids, runs, steps, events aside, schedules of their key. The
    /// number is missing when there is no lane, only events aside or schedules.
    pub erased: Vec<(LaneKey, Option<u64>)>,
    pub new_events: Vec<(u64, Arc<Kept>)>,
    pub changed_events: Vec<EventChange>,
    /// Lane, number and id.
    pub gone_events: Vec<(u64, u64, EventId)>,
    pub new_runs: Vec<FinishedRun>,
    pub changed_runs: Vec<FinishedRun>,
    /// New, or in place of an older one of the same run, revision and name.
    pub steps: Vec<(RunId, StepRow)>,
    /// Runs whose steps are all removed.
    pub gone_steps: Vec<RunId>,
    pub new_aside: Vec<Aside>,
    /// When it is to be looked at again. With its lane, for stores that keep it there.
    pub moved_aside: Vec<(u64, LaneKey, Timestamp)>,
    pub gone_aside: Vec<Aside>,
    /// New or changed.
    pub schedules: Vec<ScheduleRow>,
    pub gone_schedules: Vec<(Tenant, QueueName)>,
    pub pauses: Vec<(QueueName, Option<Tenant>, Paused)>,
    pub gone_pauses: Vec<(QueueName, Option<Tenant>)>,
    pub audit: Vec<Trail>,
    /// Whoever makes one of the same tenant and name meanwhile was faster: then the end is `Again`.
    pub new_sources: Vec<Source>,
    pub sources: Vec<Source>,
    /// New or changed.
    pub declarations: Vec<Declaration>,
    pub gone_declarations: Vec<SourceName>,
    /// New, or in place of an older one.
    pub answers: Vec<CacheRow>,
    pub gone_answers: Vec<(SourceId, String)>,
    /// Sources whose answers are all forgotten.
    pub emptied: Vec<SourceId>,
    /// New, or in place of an older one.
    pub documents: Vec<(Shelf, Document)>,
    pub gone_documents: Vec<(Shelf, String)>,
}

/// A lane as it is to be written.
#[derive(Debug, Clone)]
pub struct LaneWrite {
    pub key: LaneKey,
    pub lane: Box<Lane>,
    /// Nothing when the lane is new.
    pub was: Option<Entries>,
    pub entries: Entries,
}

/// A lane as it was read, with those of its events that were read.
#[derive(Debug)]
pub struct Before {
    pub lane: Box<Lane>,
    pub entries: Entries,
    pub events: Vec<Arc<Kept>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct EventChange {
    pub lane: u64,
    pub seq: u64,
    pub mark: Option<u64>,
    /// Only when it changed.
    pub payload: Option<Payload>,
    /// The event as it was, for stores that find it by its content.
    pub was: Kept,
}

/// By how much totals change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Delta {
    pub accepted: i64,
    pub succeeded: i64,
    pub dead: i64,
    pub discarded: i64,
    pub delayed: i64,
    pub buffered: i64,
    pub in_flight: i64,
}

/// Totals in a working set that holds a part of all rows are counted from here, so that they can fall.
const BASE: u64 = 1 << 40;

/// What the totals of a queue are before a transaction changes them.
pub fn base_totals() -> Totals {
    Totals {
        accepted: BASE,
        succeeded: BASE,
        dead: BASE,
        discarded: BASE,
        delayed: BASE,
        buffered: BASE,
        in_flight: BASE,
    }
}

impl Delta {
    fn of(totals: &Totals) -> Self {
        let by = |value: u64| i64::try_from(value).unwrap_or(i64::MAX) - (1 << 40);
        Delta {
            accepted: by(totals.accepted),
            succeeded: by(totals.succeeded),
            dead: by(totals.dead),
            discarded: by(totals.discarded),
            delayed: by(totals.delayed),
            buffered: by(totals.buffered),
            in_flight: by(totals.in_flight),
        }
    }

    pub fn is_zero(&self) -> bool {
        *self == Delta::default()
    }

    pub fn values(&self) -> [i64; 7] {
        let Delta { accepted, succeeded, dead, discarded, delayed, buffered, in_flight } = *self;
        [accepted, succeeded, dead, discarded, delayed, buffered, in_flight]
    }
}

impl Changes {
    /// What has to be written to get from `before` to `after`. `lanes` are those that were read, by their numbers. With
    /// `lazy`, an entry that would only move to later stays; those of `pushed` lanes are written although nothing else
    /// changed.
    pub fn between(
        before: &WorkingSet,
        mut after: WorkingSet,
        lanes: &mut HashMap<u64, Before>,
        lazy: bool,
        pushed: &BTreeSet<LaneKey>,
    ) -> Changes {
        let audit = after.audit.split_off(before.audit.len());
        let totals = std::mem::take(&mut after.queues);
        let totals = totals.into_iter().map(|(queue, totals)| (queue, Delta::of(&totals))).collect();
        let mut changes = Changes { totals, audit, ..Changes::default() };
        changes.lanes_between(lanes, &mut after, lazy, pushed);
        changes.aside_between(before, std::mem::take(&mut after.aside));
        changes.gone_schedules =
            before.schedules.keys().filter(|name| !after.schedules.contains_key(name)).cloned().collect();
        let schedules = std::mem::take(&mut after.schedules).into_iter();
        changes.schedules = schedules
            .filter(|(name, row)| before.schedules.get(name) != Some(row))
            .map(|(_, row)| row)
            .collect();
        changes.gone_pauses =
            before.paused_queues.keys().filter(|p| !after.paused_queues.contains_key(p)).cloned().collect();
        let pauses = std::mem::take(&mut after.paused_queues).into_iter();
        let new = pauses.filter(|(place, _)| !before.paused_queues.contains_key(place));
        changes.pauses = new.map(|((queue, tenant), paused)| (queue, tenant, paused)).collect();
        changes.sources_between(before, &mut after);
        changes.shelves_between(before, &mut after);
        changes.runs_between(before, after);
        changes
    }

    fn lanes_between(
        &mut self,
        before: &mut HashMap<u64, Before>,
        after: &mut WorkingSet,
        lazy: bool,
        pushed: &BTreeSet<LaneKey>,
    ) {
        let lanes = std::mem::take(&mut after.lanes);
        for (id, key) in &after.places {
            if before.contains_key(id) && !lanes.contains_key(key) {
                self.erased.push((key.clone(), Some(*id)));
            }
        }
        self.erased.sort();
        self.lanes.reserve(lanes.len());
        for (key, Inhabited { lane, events, .. }) in lanes {
            let old = before.get_mut(&lane.id);
            let was = old.as_ref().map(|old| old.entries);
            let changed = old.as_ref().is_none_or(|old| old.lane != lane);
            self.events_between(lane.id, old, events);
            if changed || pushed.contains(&key) {
                let lazily = was.filter(|_| lazy).map(|was| was.lazily(&lane));
                let entries = lazily.unwrap_or_else(|| Entries::of(&lane));
                self.lanes.push(LaneWrite { key, lane, was, entries });
            }
        }
    }

    fn events_between(&mut self, lane: u64, old: Option<&mut Before>, events: BTreeMap<u64, Arc<Kept>>) {
        let Some(old) = old else {
            self.new_events.extend(events.into_values().map(|kept| (lane, kept)));
            return;
        };
        old.events.sort_unstable_by_key(|kept| kept.event.seq);
        for kept in &old.events {
            if !events.contains_key(&kept.event.seq) {
                self.gone_events.push((lane, kept.event.seq, kept.event.id.clone()));
            }
        }
        for (seq, kept) in events {
            match old.events.binary_search_by_key(&seq, |was| was.event.seq) {
                Err(_) => self.new_events.push((lane, kept)),
                Ok(at) if Arc::ptr_eq(&old.events[at], &kept) || old.events[at] == kept => {}
                Ok(at) => {
                    let was = &old.events[at];
                    let edited = was.event.payload != kept.event.payload;
                    self.changed_events.push(EventChange {
                        lane,
                        seq,
                        mark: kept.mark,
                        payload: edited.then(|| kept.event.payload.clone()),
                        was: (**was).clone(),
                    });
                }
            }
        }
    }

    fn runs_between(&mut self, before: &WorkingSet, after: WorkingSet) {
        let erased: BTreeSet<u64> = self.erased.iter().filter_map(|(_, lane)| *lane).collect();
        let id = |run: &FinishedRun| RunId { lane: run.lane, number: run.ended.run.number };
        let old: BTreeMap<RunId, &FinishedRun> = before.finished.iter().map(|run| (id(run), run)).collect();
        for run in after.finished {
            match old.get(&id(&run)) {
                None => self.new_runs.push(run),
                Some(was) if **was == run => {}
                Some(_) => self.changed_runs.push(run),
            }
        }
        let left: BTreeSet<RunId> = after.steps.keys().map(|(run, ..)| *run).collect();
        let had: BTreeSet<RunId> = before.steps.keys().map(|(run, ..)| *run).collect();
        self.gone_steps = had.difference(&left).filter(|run| !erased.contains(&run.lane)).copied().collect();
        for (place, row) in after.steps {
            if before.steps.get(&place) != Some(&row) {
                self.steps.push((place.0, row));
            }
        }
    }

    fn sources_between(&mut self, before: &WorkingSet, after: &mut WorkingSet) {
        for (id, source) in std::mem::take(&mut after.sources) {
            match before.sources.get(&id) {
                None => self.new_sources.push(source),
                Some(was) if *was == source => {}
                Some(_) => self.sources.push(source),
            }
        }
        let gone = before.declarations.keys().filter(|name| !after.declarations.contains_key(name));
        self.gone_declarations = gone.cloned().collect();
        for (name, rules) in std::mem::take(&mut after.declarations) {
            if before.declarations.get(&name) != Some(&rules) {
                self.declarations.push(Declaration { name, rules });
            }
        }
        let gone = before.cache.keys().filter(|place| !after.cache.contains_key(place));
        self.gone_answers = gone.cloned().collect();
        for (place, row) in std::mem::take(&mut after.cache) {
            if before.cache.get(&place) != Some(&row) {
                self.answers.push(row);
            }
        }
    }

    fn shelves_between(&mut self, before: &WorkingSet, after: &mut WorkingSet) {
        let gone = before.shelves.keys().filter(|place| !after.shelves.contains_key(place));
        self.gone_documents = gone.cloned().collect();
        for (place, document) in std::mem::take(&mut after.shelves) {
            if before.shelves.get(&place) != Some(&document) {
                self.documents.push((place.0, document));
            }
        }
    }

    fn aside_between(&mut self, before: &WorkingSet, after: Vec<Aside>) {
        let old: BTreeMap<u64, &Aside> = before.aside.iter().map(|a| (a.number, a)).collect();
        let new: BTreeSet<u64> = after.iter().map(|a| a.number).collect();
        for aside in after {
            match old.get(&aside.number) {
                None => self.new_aside.push(aside),
                Some(was) if was.look_at == aside.look_at => {}
                Some(_) => self.moved_aside.push((aside.number, aside.event.lane, aside.look_at)),
            }
        }
        for (number, aside) in old {
            let erased = || self.erased.iter().any(|(key, _)| *key == aside.event.lane);
            if !new.contains(&number) && !erased() {
                self.gone_aside.push(aside.clone());
            }
        }
    }

    /// True when there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.totals.values().all(Delta::is_zero)
            && self.lanes.is_empty()
            && self.erased.is_empty()
            && self.new_events.is_empty()
            && self.changed_events.is_empty()
            && self.gone_events.is_empty()
            && self.new_runs.is_empty()
            && self.changed_runs.is_empty()
            && self.steps.is_empty()
            && self.gone_steps.is_empty()
            && self.new_aside.is_empty()
            && self.moved_aside.is_empty()
            && self.gone_aside.is_empty()
            && self.schedules.is_empty()
            && self.gone_schedules.is_empty()
            && self.pauses.is_empty()
            && self.gone_pauses.is_empty()
            && self.audit.is_empty()
            && self.new_sources.is_empty()
            && self.sources.is_empty()
            && self.declarations.is_empty()
            && self.gone_declarations.is_empty()
            && self.answers.is_empty()
            && self.gone_answers.is_empty()
            && self.emptied.is_empty()
            && self.documents.is_empty()
            && self.gone_documents.is_empty()
    }
}
