//! Rows in ordered maps behind one lock. Every few transactions it says that somebody else was faster, so that every verb
//! is also begun anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use quell_core::aside::Aside;
use quell_core::batch::RunId;
use quell_core::clock::{Clock, Timestamp};
use quell_core::error::StoreResult;
use quell_core::event::{LaneKey, QueueName, SourceName, Tenant};
use quell_core::inspect::{Inspect, Inspected};
use quell_core::lifecycle::RunState;
use quell_core::schedule::ScheduleRow;
use quell_core::shelf::{Document, Shelf};
use quell_core::source::{Declaration, Source, SourceId};
use quell_core::store::{Description, Durability, Purge, Swept, Wakeups};
use quell_core::totals::Totals;
use quell_core::working_set::{Inhabited, LaneSums, Trail, WorkingSet};
use quell_store_rows::changes::Changes;
use quell_store_rows::rows::{
    Backend, Entries, Found, LaneAt, Lanes, Outlook, Patience, Pick, Purgeable, QueueOutlook, Rows,
    RowsResult, Trouble, Want,
};
use tokio::sync::{Mutex, Notify, OwnedMutexGuard};

#[derive(Default)]
struct Everything {
    set: WorkingSet,
    entries: BTreeMap<LaneKey, Entries>,
    last: u64,
}

pub(crate) struct Plain {
    clock: Arc<dyn Clock>,
    all: Arc<Mutex<Everything>>,
    bell: Arc<Notify>,
    begun: AtomicU64,
}

impl Plain {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Plain { clock, all: Arc::default(), bell: Arc::default(), begun: AtomicU64::new(0) }
    }
}

#[async_trait]
impl Backend for Plain {
    async fn begin(&self) -> RowsResult<Box<dyn Rows>> {
        let all = self.all.clone().lock_owned().await;
        let fails = self.begun.fetch_add(1, Ordering::Relaxed) % 7 == 3;
        Ok(Box::new(PlainRows { now: self.clock.now(), all, fails }))
    }

    async fn outlook(&self, _bounded: bool) -> StoreResult<Outlook> {
        let all = self.all.lock().await;
        let now = self.clock.now();
        let queues = all.set.queues.keys().map(|(tenant, queue)| {
            let mine = |key: &LaneKey| key.tenant == *tenant && key.queue == *queue;
            let entries = || all.entries.iter().filter(|(key, _)| mine(key)).map(|(_, e)| *e);
            let levels = |source: Option<SourceId>| -> Vec<(u8, Timestamp)> {
                let of_source = || entries().filter(|e| e.source == source);
                let first = |p: u8| of_source().filter(|e| e.priority == p).filter_map(|e| e.due).min();
                (0..10).filter_map(|p| Some((p, first(p)?))).collect()
            };
            let sources: BTreeSet<SourceId> = entries().filter_map(|e| e.source).collect();
            let paused =
                |tenant: Option<Tenant>| all.set.paused_queues.contains_key(&(queue.clone(), tenant));
            let schedules = all.set.schedules.values();
            let fires = schedules.filter(|s| s.schedule.tenant == *tenant && s.schedule.queue == *queue);
            QueueOutlook {
                tenant: tenant.clone(),
                queue: queue.clone(),
                paused: paused(None) || paused(Some(tenant.clone())),
                running: entries().filter(|e| e.lease.is_some()).count() as u64,
                levels: levels(None),
                governed: sources.into_iter().map(|id| (id, levels(Some(id)))).collect(),
                first_lease: entries().filter_map(|e| e.lease).min(),
                later_lease: entries().filter_map(|e| e.lease).filter(|at| *at > now).min(),
                first_aside: all.set.aside.iter().filter(|a| mine(&a.event.lane)).map(|a| a.look_at).min(),
                first_fire: fires.filter_map(|s| s.next_at).min(),
            }
        });
        Ok(Outlook { now, queues: queues.collect(), sources: all.set.sources.clone() })
    }

    async fn inspect(&self, request: Inspect) -> StoreResult<Inspected> {
        let all = self.all.lock().await;
        Ok(all.set.inspect(self.clock.now(), request, self.description()))
    }

    async fn forget(&self, retention: Duration, swept: &mut Swept) -> StoreResult<()> {
        let mut all = self.all.lock().await;
        all.set.forget(self.clock.now().before(retention), swept);
        let Everything { set, entries, .. } = &mut *all;
        entries.retain(|key, _| set.lanes.contains_key(key));
        Ok(())
    }

    async fn forget_answers(&self) -> StoreResult<bool> {
        Ok(self.all.lock().await.set.forget_answers(self.clock.now()))
    }

    async fn documents(&self, shelf: Shelf) -> StoreResult<(Timestamp, Vec<Document>)> {
        let all = self.all.lock().await;
        let of_shelf = all.set.shelves.iter().filter(|((of, _), _)| *of == shelf);
        Ok((self.clock.now(), of_shelf.map(|(_, document)| document.clone()).collect()))
    }

    async fn forget_documents(&self) -> StoreResult<bool> {
        Ok(self.all.lock().await.set.forget_documents(self.clock.now()))
    }

    fn ring(&self, _: Timestamp) {
        self.bell.notify_waiters();
        self.bell.notify_one();
    }

    fn sleeps(&self, _: Option<Timestamp>) {}

    fn wakeups(&self) -> Box<dyn Wakeups> {
        Box::new(Bell(self.bell.clone()))
    }

    fn description(&self) -> Description {
        Description {
            kind: "plain rows",
            place: "this process".into(),
            version: "0".into(),
            schema: 0,
            durability: Durability::BestEffort("everything is lost when the process ends".into()),
        }
    }
}

struct Bell(Arc<Notify>);

#[async_trait]
impl Wakeups for Bell {
    async fn woken(&mut self) {
        self.0.notified().await;
    }
}

struct PlainRows {
    now: Timestamp,
    all: OwnedMutexGuard<Everything>,
    fails: bool,
}

impl PlainRows {
    fn at(&self, wanted: impl Fn(&LaneKey, &Inhabited, &Entries) -> bool) -> Vec<LaneAt> {
        let lanes = self.all.set.lanes.iter().map(|(key, l)| (key, l, self.all.entries[key]));
        let lanes = lanes.filter(|(key, l, entries)| wanted(key, l, entries));
        lanes.map(|(key, l, entries)| LaneAt { key: key.clone(), lane: l.lane.clone(), entries }).collect()
    }

    fn find_lane(&self, id: u64) -> Option<&Inhabited> {
        self.all.set.lanes.values().find(|l| l.lane.id == id)
    }
}

fn declaration(set: &WorkingSet, name: &SourceName) -> Option<Declaration> {
    set.declarations.get(name).map(|rules| Declaration { name: name.clone(), rules: *rules })
}

fn of_queues<'q>(queues: &'q [(Tenant, QueueName)]) -> impl Fn(&Tenant, &QueueName) -> bool + 'q {
    |tenant, queue| queues.iter().any(|(t, q)| t == tenant && q == queue)
}

#[async_trait]
impl Rows for PlainRows {
    fn now(&self) -> Timestamp {
        self.now
    }

    async fn lanes(&mut self, keys: &[LaneKey], _: Patience) -> RowsResult<Lanes> {
        Ok(Lanes { lanes: self.at(|key, _, _| keys.contains(key)), ..Lanes::default() })
    }

    async fn lanes_by_id(&mut self, ids: &[u64], _: Patience) -> RowsResult<Lanes> {
        Ok(Lanes { lanes: self.at(|_, l, _| ids.contains(&l.lane.id)), ..Lanes::default() })
    }

    async fn due(&mut self, picks: &[Pick]) -> RowsResult<Vec<LaneAt>> {
        let mut due = Vec::new();
        for pick in picks {
            let mut of_pick = self.at(|key, _, e| {
                key.tenant == pick.tenant
                    && key.queue == pick.queue
                    && e.source == pick.source
                    && e.priority == pick.priority
                    && e.due.is_some_and(|at| at <= self.now)
            });
            of_pick.sort_by_key(|at| at.entries.due);
            due.extend(of_pick.into_iter().take(pick.most));
        }
        Ok(due)
    }

    async fn expired(&mut self, queues: &[(Tenant, QueueName)], most: usize) -> RowsResult<Vec<LaneAt>> {
        let mine = of_queues(queues);
        let mut found =
            self.at(|key, _, e| mine(&key.tenant, &key.queue) && e.lease.is_some_and(|at| at <= self.now));
        found.sort_by_key(|at| at.entries.lease);
        found.truncate(most);
        Ok(found)
    }

    async fn claimed(&mut self, claim_id: &str) -> RowsResult<Vec<LaneAt>> {
        Ok(self
            .at(|_, l, _| l.lane.current.as_ref().is_some_and(|c| c.claim_id.as_deref() == Some(claim_id))))
    }

    async fn ready(&mut self, queues: &[(Tenant, QueueName)], most: usize) -> RowsResult<Vec<Aside>> {
        let mine = of_queues(queues);
        let ready = |a: &&Aside| a.look_at <= self.now && mine(&a.event.lane.tenant, &a.event.lane.queue);
        let mut found: Vec<Aside> = self.all.set.aside.iter().filter(ready).cloned().collect();
        found.sort_by_key(|a| (a.look_at, a.ready_at, a.number));
        found.truncate(most);
        Ok(found)
    }

    async fn fires(&mut self, queues: &[(Tenant, QueueName)]) -> RowsResult<Vec<ScheduleRow>> {
        let mine = of_queues(queues);
        let due = |s: &&ScheduleRow| {
            s.next_at.is_some_and(|at| at <= self.now) && mine(&s.schedule.tenant, &s.schedule.queue)
        };
        Ok(self.all.set.schedules.values().filter(due).cloned().collect())
    }

    async fn find(&mut self, want: &Want, numbers: usize) -> RowsResult<Found> {
        let mut found = Found::default();
        for span in &want.spans {
            let Some(l) = self.find_lane(span.lane) else { continue };
            let mut bytes = 0;
            let of_span = l.events.range(span.from..=span.upto).filter(|(_, k)| k.mark == span.mark);
            for (_, kept) in of_span.take(usize::try_from(span.most).expect("small")) {
                found.events.push((span.lane, (**kept).clone()));
                bytes += kept.event.payload.len() as u64;
                if span.bytes.is_some_and(|most| bytes >= most) {
                    break;
                }
            }
        }
        for (lane, id) in &want.ids {
            let kept = self.find_lane(*lane).and_then(|l| l.events.get(&l.ids.get(id)?.0));
            found.events.extend(kept.map(|k| (*lane, (**k).clone())));
        }
        for (lane, from, print) in &want.contents {
            let l = self.find_lane(*lane);
            let same = l.and_then(|l| {
                l.events.range(*from..).map(|(_, k)| k).find(|k| k.mark.is_none() && k.print == *print)
            });
            found.events.extend(same.map(|k| (*lane, (**k).clone())));
        }
        let set = &self.all.set;
        let id =
            |r: &quell_core::working_set::FinishedRun| RunId { lane: r.lane, number: r.ended.run.number };
        found.runs.extend(set.finished.iter().filter(|r| want.runs.contains(&id(r))).cloned());
        for (lane, seq, mark) in &want.runs_of {
            let run = set
                .finished
                .iter()
                .find(|r| r.lane == *lane && r.ended.run.count > 0 && r.ended.run.has(*seq, *mark));
            found.runs.extend(run.cloned());
        }
        let said = |t: &&Trail| {
            let of = |(run, token): &(RunId, u64)| t.record.run == Some(*run) && t.record.token == *token;
            t.record.verdict.is_some() && want.said.iter().any(of)
        };
        found.said.extend(set.audit.iter().filter(said).cloned());
        for (key, id) in &want.aside_ids {
            let same = |a: &&Aside| a.event.lane == *key && a.event.id.id() == id;
            found.aside.extend(set.aside.iter().filter(same).cloned());
        }
        for key in &want.aside_first {
            let of_lane = set.aside.iter().filter(|a| a.event.lane == *key);
            found.aside.extend(of_lane.min_by_key(|a| (a.ready_at, a.number)).cloned());
        }
        let steps = || set.steps.iter().map(|((run, ..), row)| (*run, row.clone()));
        found.steps.extend(steps().filter(|(run, _)| want.steps.contains(run)));
        if let Some((run, revision, name)) = &want.step {
            let of_run = || steps().filter(|(of, row)| of == run && row.revision == *revision);
            found.step_count = of_run().count();
            found.steps.extend(of_run().filter(|(_, row)| row.name == *name));
        }
        if let Some((key, _)) = &want.sums {
            let dead = set.finished.iter().filter(|r| r.key == *key && r.ended.state == RunState::Failed);
            found.sums = LaneSums {
                events: set.lanes.get(key).map_or(0, |l| l.events.len() as u64),
                dead: dead.map(|r| r.ended.run.count).sum(),
                aside: set.aside.iter().filter(|a| a.event.lane == *key).count() as u64,
            };
        }
        if want.schedules {
            found.schedules = set.schedules.values().cloned().collect();
        }
        if want.pauses {
            found.pauses = set.paused_queues.clone();
        }
        found.sources.extend(want.sources.iter().filter_map(|id| set.sources.get(id).cloned()));
        for (tenant, name) in &want.governing {
            let own = |s: &&Source| s.name == *name && (s.tenant == *tenant || s.tenant.is_none());
            found.sources.extend(set.sources.values().filter(own).cloned());
            found.declarations.extend(declaration(set, name));
        }
        if let Some(name) = &want.declared {
            found.sources.extend(set.sources.values().filter(|s| s.name == *name).cloned());
            found.declarations.extend(declaration(set, name));
            found.declared = set.declarations.len();
        }
        if let Some(place) = &want.answer {
            let of_source = || set.cache.iter().filter(|((source, _), _)| *source == place.0);
            found.answer = set.cache.get(place).cloned();
            found.answers = of_source().count();
            let others = of_source().filter(|(at, _)| *at != place);
            found.next_over = others.min_by_key(|(_, row)| row.expires_at).map(|((_, key), _)| key.clone());
        }
        let first = self.all.last + 1;
        self.all.last += numbers as u64;
        found.numbers.push(first..self.all.last + 1);
        Ok(found)
    }

    async fn purgeable(&mut self, purge: &Purge, most: usize) -> RowsResult<Purgeable> {
        let set = &self.all.set;
        let wanted = |key: &LaneKey| {
            key.queue == purge.queue
                && purge.tenant.as_ref().is_none_or(|t| *t == key.tenant)
                && purge.key.as_ref().is_none_or(|k| *k == key.key)
        };
        let dead = set.finished.iter().filter(|r| wanted(&r.key));
        let dead = dead.filter(|r| r.ended.state == RunState::Failed && r.ended.run.count > 0);
        let open = set.lanes.iter().filter(|(key, l)| wanted(key) && l.lane.open.is_some());
        Ok(Purgeable {
            dead: dead.map(|r| RunId { lane: r.lane, number: r.ended.run.number }).take(most).collect(),
            aside: set.aside.iter().filter(|a| wanted(&a.event.lane)).take(most).cloned().collect(),
            lanes: open.map(|(key, _)| key.clone()).take(most).collect(),
        })
    }

    async fn document(&mut self, shelf: Shelf, name: &str) -> RowsResult<(Option<Document>, usize)> {
        let shelves = &self.all.set.shelves;
        let others = shelves.iter().filter(|((of, at), _)| *of == shelf && at != name);
        let live = others.filter(|(_, document)| document.is_live(self.now)).count();
        Ok((shelves.get(&(shelf, name.to_owned())).cloned(), live))
    }

    async fn running(&mut self, tenant: &Tenant, queue: &QueueName) -> RowsResult<u64> {
        let lanes = self.at(|key, _, e| key.tenant == *tenant && key.queue == *queue && e.lease.is_some());
        Ok(lanes.len() as u64)
    }

    async fn commit(mut self: Box<Self>, changes: Changes) -> RowsResult<()> {
        if self.fails {
            return Err(Trouble::Again);
        }
        let Everything { set, entries, .. } = &mut *self.all;
        for (queue, delta) in changes.totals {
            let totals = set.queues.entry(queue).or_default();
            let by =
                |value: u64, by: i64| value.checked_add_signed(by).expect("totals never fall below zero");
            *totals = Totals {
                accepted: by(totals.accepted, delta.accepted),
                succeeded: by(totals.succeeded, delta.succeeded),
                dead: by(totals.dead, delta.dead),
                discarded: by(totals.discarded, delta.discarded),
                delayed: by(totals.delayed, delta.delayed),
                buffered: by(totals.buffered, delta.buffered),
                in_flight: by(totals.in_flight, delta.in_flight),
            };
        }
        for write in changes.lanes {
            let due = write.lane.due_at();
            let early = write.entries.due.is_some() == due.is_some() && write.entries.due <= due;
            assert!(early, "an entry lies behind the true time: {write:?}");
            entries.insert(write.key.clone(), write.entries);
            match set.lanes.get_mut(&write.key) {
                Some(l) => l.lane = write.lane,
                None => {
                    assert!(write.was.is_none());
                    let l = Inhabited { lane: write.lane, events: BTreeMap::new(), ids: BTreeMap::new() };
                    set.lanes.insert(write.key, l);
                }
            }
        }
        for (id, kept) in changes.new_events {
            let l = set.lanes.values_mut().find(|l| l.lane.id == id).expect("events are in a lane");
            l.ids.insert(kept.event.id.clone(), (kept.event.seq, kept.print));
            assert!(l.events.insert(kept.event.seq, kept).is_none(), "a new event replaces nothing");
        }
        for change in changes.changed_events {
            let l = set.lanes.values_mut().find(|l| l.lane.id == change.lane).expect("events are in a lane");
            let kept = Arc::make_mut(l.events.get_mut(&change.seq).expect("a changed event is there"));
            kept.mark = change.mark;
            if let Some(payload) = change.payload {
                kept.event.payload = payload;
            }
        }
        for (id, seq, event) in changes.gone_events {
            let l = set.lanes.values_mut().find(|l| l.lane.id == id).expect("events are in a lane");
            l.events.remove(&seq).expect("an event that goes is there");
            if l.ids.get(&event).is_some_and(|(of, _)| *of == seq) {
                l.ids.remove(&event);
            }
        }
        set.finished.extend(changes.new_runs);
        for run in changes.changed_runs {
            let same = |r: &&mut quell_core::working_set::FinishedRun| {
                (r.lane, r.ended.run.number) == (run.lane, run.ended.run.number)
            };
            *set.finished.iter_mut().find(same).expect("a changed run is there") = run.clone();
        }
        for run in changes.gone_steps {
            set.steps.retain(|(of, ..), _| *of != run);
        }
        for (run, row) in changes.steps {
            set.steps.insert((run, row.revision, row.name.clone()), row);
        }
        let gone: Vec<u64> = changes.gone_aside.iter().map(|a| a.number).collect();
        set.aside.retain(|a| !gone.contains(&a.number));
        for (number, _, at) in changes.moved_aside {
            set.aside.iter_mut().find(|a| a.number == number).expect("it is there").look_at = at;
        }
        set.aside.extend(changes.new_aside);
        for row in changes.schedules {
            set.schedules.insert((row.schedule.tenant.clone(), row.schedule.name.clone()), row);
        }
        for place in changes.gone_schedules {
            set.schedules.remove(&place);
        }
        for (queue, tenant, paused) in changes.pauses {
            set.paused_queues.insert((queue, tenant), paused);
        }
        for place in changes.gone_pauses {
            set.paused_queues.remove(&place);
        }
        for source in changes.new_sources {
            assert!(set.sources.insert(source.id, source).is_none(), "a new source replaces none");
        }
        for source in changes.sources {
            assert!(set.sources.insert(source.id, source).is_some(), "a changed source is there");
        }
        for Declaration { name, rules } in changes.declarations {
            set.declarations.insert(name, rules);
        }
        for name in changes.gone_declarations {
            set.declarations.remove(&name);
        }
        for row in changes.answers {
            set.cache.insert((row.source, row.key.clone()), row);
        }
        for place in changes.gone_answers {
            set.cache.remove(&place).expect("an answer that goes is there");
        }
        set.cache.retain(|(source, _), _| !changes.emptied.contains(source));
        for (shelf, document) in changes.documents {
            set.shelves.insert((shelf, document.name.clone()), document);
        }
        for place in changes.gone_documents {
            set.shelves.remove(&place).expect("a document that goes is there");
        }
        for (key, id) in changes.erased {
            set.lanes.remove(&key);
            entries.remove(&key);
            set.aside.retain(|a| a.event.lane != key);
            set.schedules.retain(|_, row| {
                let s = &row.schedule;
                s.tenant != key.tenant || s.queue != key.queue || s.key != key.key
            });
            set.finished.retain(|r| Some(r.lane) != id);
            set.steps.retain(|(run, ..), _| Some(run.lane) != id);
            for t in set.audit.iter_mut().filter(|t| t.lane == id) {
                t.record.key = None;
            }
        }
        set.audit.extend(changes.audit);
        Ok(())
    }

    async fn rollback(self: Box<Self>) {}
}
