//! The content of the memory store, read out and put in as it is: what a copy between stores means, in plain code.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use async_trait::async_trait;

use super::MemoryStore;
use crate::aside::Aside;
use crate::batch::RunId;
use crate::copy::{Counts, Frame, LaneRow, Portable, Row};
use crate::error::StoreResult;
use crate::event::Key;
use crate::source::{CacheRow, Declaration, SourceId};
use crate::store::StepRow;
use crate::working_set::{FinishedRun, Inhabited, Kept, Numbers, Trail, WorkingSet};

/// Payloads of one page of events, and values of one page of kept answers.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Whether a store may be changed, and the word that a copy keeps in its target.
#[derive(Default)]
pub(super) struct Moved {
    pub(super) sealed: Option<String>,
    place: Option<String>,
}

#[async_trait]
impl Portable for MemoryStore {
    async fn sealed(&self) -> StoreResult<Option<String>> {
        Ok(self.moved().sealed.clone())
    }

    async fn seal(&self, by: Option<&str>) -> StoreResult<()> {
        // Whoever changes something has locked the world first, so nothing is under way when this is done.
        let _world = self.world();
        self.moved().sealed = by.map(str::to_owned);
        Ok(())
    }

    async fn frame(&self) -> StoreResult<Frame> {
        let (now, world) = self.world();
        let count = |n: usize| n as u64;
        Ok(Frame {
            now,
            last_number: last(&world),
            totals: world.queues.iter().map(|((t, q), totals)| (t.clone(), q.clone(), *totals)).collect(),
            pauses: world.paused_queues.iter().map(|((q, t), p)| (q.clone(), t.clone(), p.clone())).collect(),
            schedules: world.schedules.values().cloned().collect(),
            declarations: world
                .declarations
                .iter()
                .map(|(name, rules)| Declaration { name: name.clone(), rules: *rules })
                .collect(),
            sources: world.sources.values().cloned().collect(),
            documents: world.shelves.iter().map(|((shelf, _), d)| (*shelf, d.clone())).collect(),
            counts: Counts {
                lanes: count(world.lanes.len()),
                events: world.lanes.values().map(|l| count(l.events.len())).sum(),
                runs: count(world.finished.len()),
                steps: count(world.steps.len()),
                aside: count(world.aside.len()),
                audit: count(world.audit.len()),
            },
        })
    }

    async fn lanes(&self, after: u64, most: usize) -> StoreResult<Vec<LaneRow>> {
        let (_, world) = self.world();
        let found = world.lanes.iter().filter(|(_, l)| l.lane.id > after);
        let mut rows: Vec<_> =
            found.map(|(key, l)| LaneRow { key: key.clone(), lane: (*l.lane).clone() }).collect();
        rows.sort_by_key(|row| row.lane.id);
        rows.truncate(most);
        Ok(rows)
    }

    async fn events(&self, lane: u64, after: u64, most: usize) -> StoreResult<Vec<Kept>> {
        let (_, mut world) = self.world();
        let Some((_, inhabited)) = world.lane_of(lane) else { return Ok(Vec::new()) };
        let rows = inhabited.events.range(after + 1..).map(|(_, kept)| (**kept).clone()).take(most);
        Ok(page(rows, |kept| kept.event.payload.len()))
    }

    async fn runs(&self, lane: u64, after: u64, most: usize) -> StoreResult<Vec<FinishedRun>> {
        let (_, world) = self.world();
        let found = world.finished.iter().filter(|r| r.lane == lane && r.ended.run.number > after);
        let mut rows: Vec<_> = found.cloned().collect();
        rows.sort_by_key(|row| row.ended.run.number);
        rows.truncate(most);
        Ok(rows)
    }

    async fn steps(&self, run: RunId) -> StoreResult<Vec<StepRow>> {
        let (_, world) = self.world();
        Ok(world.steps.iter().filter(|((of, ..), _)| *of == run).map(|(_, row)| row.clone()).collect())
    }

    async fn asides(&self, after: u64, most: usize) -> StoreResult<Vec<Aside>> {
        let (_, world) = self.world();
        let mut rows: Vec<_> = world.aside.iter().filter(|a| a.number > after).cloned().collect();
        rows.sort_by_key(|row| row.number);
        rows.truncate(most);
        Ok(rows)
    }

    async fn trail(&self, after: u64, most: usize) -> StoreResult<Vec<Trail>> {
        let (_, world) = self.world();
        Ok(world.audit.iter().filter(|t| t.record.id > after).take(most).cloned().collect())
    }

    async fn cached(&self, after: Option<(SourceId, String)>, most: usize) -> StoreResult<Vec<CacheRow>> {
        let (now, world) = self.world();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = world.cache.range((from, Bound::Unbounded)).map(|(_, row)| row);
        let kept = rows.filter(|row| !row.is_over(now)).take(most).cloned();
        Ok(page(kept, |row| row.value.as_ref().map_or(0, |value| value.to_string().len())))
    }

    async fn put(&self, rows: Vec<Row>) -> StoreResult<()> {
        let (_, mut world) = self.world();
        for row in rows {
            put(&mut world, row);
        }
        Ok(())
    }

    async fn remove_lane(&self, lane: u64) -> StoreResult<()> {
        remove_lane(&mut self.world().1, lane);
        Ok(())
    }

    async fn take_frame(&self, frame: &Frame) -> StoreResult<()> {
        let (_, mut world) = self.world();
        let Frame { totals, pauses, schedules, declarations, sources, documents, .. } = frame.clone();
        world.queues.extend(totals.into_iter().map(|(tenant, queue, totals)| ((tenant, queue), totals)));
        world.paused_queues = pauses.into_iter().map(|(queue, tenant, by)| ((queue, tenant), by)).collect();
        let by_name = |row: crate::schedule::ScheduleRow| {
            ((row.schedule.tenant.clone(), row.schedule.name.clone()), row)
        };
        world.schedules = schedules.into_iter().map(by_name).collect();
        world.declarations = declarations.into_iter().map(|d| (d.name, d.rules)).collect();
        world.sources = sources.into_iter().map(|source| (source.id, source)).collect();
        world.shelves = documents.into_iter().map(|(shelf, d)| ((shelf, d.name.clone()), d)).collect();
        let numbers = last(&world).max(frame.last_number);
        world.numbers = Numbers::Last(numbers);
        Ok(())
    }

    async fn place(&self) -> StoreResult<Option<String>> {
        Ok(self.moved().place.clone())
    }

    async fn set_place(&self, place: Option<&str>) -> StoreResult<()> {
        self.moved().place = place.map(str::to_owned);
        Ok(())
    }
}

/// The latest number that was given.
pub(super) fn last(world: &WorkingSet) -> u64 {
    match world.numbers {
        Numbers::Last(last) => last,
        Numbers::SetApart(_) => 0,
    }
}

/// Rows until they weigh a page; the one that reaches it is still among them.
fn page<T>(rows: impl Iterator<Item = T>, weight: impl Fn(&T) -> usize) -> Vec<T> {
    let mut bytes = 0;
    let mut page = Vec::new();
    for row in rows {
        bytes += weight(&row);
        page.push(row);
        if bytes >= PAGE_BYTES {
            break;
        }
    }
    page
}

fn put(world: &mut WorkingSet, row: Row) {
    let base = world.base;
    match row {
        Row::Lane(LaneRow { key, lane }) => {
            world.queues.entry((key.tenant.clone(), key.queue.clone())).or_insert(base);
            match world.lanes.get_mut(&key) {
                Some(known) if known.lane.id == lane.id => *known.lane = lane,
                // A key that was forgotten and came again has another lane now.
                known => {
                    if let Some(other) = known.map(|l| l.lane.id) {
                        remove_lane(world, other);
                    }
                    let (events, ids) = (BTreeMap::new(), BTreeMap::new());
                    name_trail(world, lane.id, Some(&key.key));
                    world.lanes.insert(key, Inhabited { lane: Box::new(lane), events, ids });
                }
            }
        }
        Row::Event(lane, kept) => {
            let Some((_, inhabited)) = world.lane_of(lane) else { return };
            inhabited.ids.insert(kept.event.id.clone(), (kept.event.seq, kept.print));
            inhabited.events.insert(kept.event.seq, Arc::new(kept));
        }
        Row::Run(run) => {
            let same = |r: &FinishedRun| r.lane == run.lane && r.ended.run.number == run.ended.run.number;
            world.finished.retain(|r| !same(r));
            world.finished.push(run);
            world.finished.sort_by_key(|r| r.ended.at);
        }
        Row::Step(run, step) => {
            world.steps.insert((run, step.revision, step.name.clone()), step);
        }
        Row::Aside(aside) => {
            let lane = &aside.event.lane;
            world.queues.entry((lane.tenant.clone(), lane.queue.clone())).or_insert(base);
            world.aside.retain(|a| a.number != aside.number);
            world.aside.push(aside);
        }
        Row::Trail(mut trail) => {
            let of_lane = trail.lane.and_then(|id| world.lane_of(id)).map(|(key, _)| key.key.clone());
            trail.record.key = of_lane;
            let queue = (trail.record.tenant.clone(), trail.record.queue.clone());
            world.queues.entry(queue).or_insert(base);
            let place = world.audit.partition_point(|t| t.record.id < trail.record.id);
            match world.audit.get_mut(place).filter(|t| t.record.id == trail.record.id) {
                Some(known) => *known = trail,
                None => world.audit.insert(place, trail),
            }
        }
        Row::Cached(row) => {
            world.cache.insert((row.source, row.key.clone()), row);
        }
    }
}

fn remove_lane(world: &mut WorkingSet, lane: u64) {
    world.lanes.retain(|_, l| l.lane.id != lane);
    world.finished.retain(|r| r.lane != lane);
    world.steps.retain(|(run, ..), _| run.lane != lane);
    name_trail(world, lane, None);
}

/// The key in a record is its lane's: where that is gone nobody knows it, and where it comes back it is known again.
fn name_trail(world: &mut WorkingSet, lane: u64, key: Option<&Key>) {
    for trail in world.audit.iter_mut().filter(|trail| trail.lane == Some(lane)) {
        trail.record.key = key.cloned();
    }
}
