//! The reads of a whole working set: plain filters over everything, the meaning that indexed reads must match.

use std::collections::BTreeMap;

use super::{FinishedRun, Inhabited, Kept, WorkingSet};
use crate::aside::Aside;
use crate::attempt;
use crate::audit::AuditRecord;
use crate::clock::Timestamp;
use crate::event::{Event, LaneKey, QueueName, Tenant};
use crate::inspect::{
    AuditFilter, EventPlace, Health, Inspect, Inspected, LaneDetail, LaneFilter, LaneRow, Page, QueueLeases,
    QueueStats, RunDetail, RunFilter, RunRow, SourceFilter, SourceRow, Verified, Waiting,
};
use crate::lifecycle::RunState;
use crate::limits;
use crate::store::Description;
use crate::totals::Totals;

impl WorkingSet {
    /// Only for a working set that holds everything.
    pub fn inspect(&self, now: Timestamp, request: Inspect, description: Description) -> Inspected {
        match request {
            Inspect::Lane(key) => Inspected::Lane(self.lane_detail(now, &key).map(Box::new)),
            Inspect::Lanes(filter) => Inspected::Lanes(self.lane_rows(now, &filter)),
            Inspect::Run(id) => Inspected::Run(
                self.run_rows().into_iter().find(|r| r.id == id).map(|r| Box::new(self.run_detail(r))),
            ),
            Inspect::Runs(filter) => Inspected::Runs(self.runs(&filter)),
            Inspect::Event(key, id) => {
                let inhabited = self.lanes.get(&key);
                let kept = inhabited.and_then(|l| l.events.get(&l.ids.get(&id)?.0));
                let aside = self.aside.iter().find(|a| a.event.lane == key && *a.event.id.id() == id);
                let place = kept.map(|k| self.event_place(&key, &k.event));
                Inspected::Event(place.or_else(|| aside.map(Aside::place)))
            }
            Inspect::Schedules => Inspected::Schedules(self.schedules.values().cloned().collect()),
            Inspect::Sources(filter) => Inspected::Sources(self.source_rows(now, &filter)),
            Inspect::Audit(filter) => Inspected::Audit(self.audit_rows(&filter)),
            Inspect::Stats => Inspected::Stats(self.stats(now)),
            Inspect::Leases => Inspected::Leases(self.leases(now)),
            Inspect::Verify => Inspected::Verify(self.verify()),
            Inspect::Health => Inspected::Health(Health {
                description,
                now,
                wall_divergence_ms: 0,
                facts: vec![("lanes".into(), self.lanes.len().to_string())],
                warnings: Vec::new(),
            }),
        }
    }

    /// The run an event belongs to: the current one, the open one, or one that ended.
    pub(super) fn place(&self, key: &LaneKey, seq: u64) -> Option<(u64, RunState)> {
        let inhabited = self.lanes.get(key)?;
        let (lane, mark) = (&inhabited.lane, inhabited.events.get(&seq).and_then(|k| k.mark));
        let ended =
            |r: &&FinishedRun| r.lane == lane.id && r.ended.run.count > 0 && r.ended.run.has(seq, mark);
        let ended = || self.finished.iter().find(ended).map(|r| (r.ended.run.number, r.ended.state));
        lane.run_of(seq, mark).or_else(ended)
    }

    fn event_place(&self, key: &LaneKey, event: &Event) -> EventPlace {
        let place = self.place(key, event.seq);
        let lane = &self.lanes[key].lane;
        EventPlace {
            event: event.clone(),
            ready_at: None,
            run_id: place.map(|(number, _)| lane.run_id(number)),
            state: place.map(|(_, state)| state),
        }
    }

    fn lane_detail(&self, now: Timestamp, key: &LaneKey) -> Option<LaneDetail> {
        let inhabited = self.lanes.get(key)?;
        let lane = &inhabited.lane;
        let paused = self.queue_paused(key).map(|p| p.by.clone());
        let first = lane.open.map_or(u64::MAX, |o| o.lo);
        Some(LaneDetail {
            row: LaneRow::of(lane, key, now, paused.clone(), self.source_for(lane)),
            now,
            waiting: Waiting::of(lane, now, paused, self.source_for(lane)),
            open_run: lane.open.map(|o| lane.run_id(o.number)),
            current_run: lane.current.as_ref().map(|c| lane.run_id(c.number)),
            queued_runs: lane.queued.iter().map(|c| lane.run_id(c.number)).collect(),
            delayed: self.aside.iter().filter(|a| a.event.lane == *key).count() as u64,
            events: inhabited
                .events
                .range(first..)
                .filter(|(_, k)| k.mark.is_none())
                .take(limits::PAGE_DEFAULT)
                .map(|(_, k)| k.event.clone())
                .collect(),
        })
    }

    fn lane_rows(&self, now: Timestamp, filter: &LaneFilter) -> Page<LaneRow> {
        let rows = self
            .lanes
            .iter()
            .filter(|(key, _)| filter.tenant.as_ref().is_none_or(|t| *t == key.tenant))
            .filter(|(key, _)| filter.queue.as_ref().is_none_or(|q| *q == key.queue))
            .filter(|(key, _)| {
                filter.key_prefix.as_ref().is_none_or(|p| key.key.as_str().starts_with(p.as_str()))
            })
            .filter(|(_, l)| !filter.running || l.lane.lease_at().is_some())
            .filter(|(_, l)| {
                let held = l.lane.paused.is_some() || l.lane.blocked.is_some();
                filter.idle || held || !l.lane.is_idle()
            })
            .map(|(key, l)| {
                let paused = self.queue_paused(key).map(|p| p.by.clone());
                LaneRow::of(&l.lane, key, now, paused, self.source_for(&l.lane))
            });
        page(rows, filter.cursor.as_deref(), filter.limit)
    }

    fn source_rows(&self, now: Timestamp, filter: &SourceFilter) -> Page<SourceRow> {
        let waiting = self.waiting_by_source();
        let mut sources: Vec<_> = self
            .sources
            .values()
            .filter(|s| filter.tenant.as_ref().is_none_or(|t| *t == s.tenant))
            .filter(|s| filter.name.as_ref().is_none_or(|n| *n == s.name))
            .collect();
        sources.sort_by(|a, b| (&a.name, &a.tenant).cmp(&(&b.name, &b.tenant)));
        let rows = sources.into_iter().map(|source| {
            let kept = |((of, _), row): &(&(_, _), &crate::source::CacheRow)| {
                *of == source.id && row.value.is_some() && now < row.expires_at
            };
            let cached = self.cache.iter().filter(kept).count() as u64;
            SourceRow::of(source, now, waiting.get(&source.id).copied().unwrap_or(0), cached)
        });
        page(rows, filter.cursor.as_deref(), filter.limit)
    }

    fn run_rows(&self) -> Vec<RunRow> {
        let live = self.lanes.iter().flat_map(|(key, l)| {
            let fixed = l.lane.fixed_runs().map(|c| RunRow::of_fixed(&l.lane, c, key));
            fixed.chain(RunRow::of_open(&l.lane, key)).collect::<Vec<_>>()
        });
        // What is going on first, then what ended, the latest end first.
        let ended = self.finished.iter().rev().map(FinishedRun::row);
        live.chain(ended).collect()
    }

    fn runs(&self, filter: &RunFilter) -> Page<RunRow> {
        let rows = self
            .run_rows()
            .into_iter()
            .filter(|r| filter.tenant.as_ref().is_none_or(|t| *t == r.lane.tenant))
            .filter(|r| filter.queue.as_ref().is_none_or(|q| *q == r.lane.queue))
            .filter(|r| filter.key.as_ref().is_none_or(|k| *k == r.lane.key))
            .filter(|r| filter.state.is_none_or(|s| s == r.state));
        page(rows, filter.cursor.as_deref(), filter.limit)
    }

    fn run_detail(&self, row: RunRow) -> RunDetail {
        let ended =
            self.finished.iter().find(|r| r.lane == row.id.lane && r.ended.run.number == row.id.number);
        let inhabited = &self.lanes[&row.lane];
        let of_run = |k: &&Kept| match ended {
            Some(r) => r.ended.run.count > 0 && r.ended.run.has(k.event.seq, k.mark),
            None => inhabited.lane.run_of(k.event.seq, k.mark).is_some_and(|(n, _)| n == row.id.number),
        };
        let filter = AuditFilter { run: Some(row.id), limit: limits::PAGE_MAX, ..AuditFilter::default() };
        let rows = self.steps.iter().filter(|((run, ..), _)| *run == row.id).map(|(_, s)| s.clone());
        let (steps, reports) = attempt::apart(rows.collect());
        RunDetail {
            result: ended.and_then(|r| r.result.clone()),
            usage: ended.map_or_else(BTreeMap::new, |r| r.usage.clone()),
            list: inhabited
                .events
                .range(row.lo..=row.hi)
                .map(|(_, k)| &**k)
                .filter(of_run)
                .map(|k| k.event.clone())
                .collect(),
            steps,
            reports,
            audit: self.audit_rows(&filter).items,
            row,
        }
    }

    fn audit_rows(&self, filter: &AuditFilter) -> Page<AuditRecord> {
        let rows = self
            .audit
            .iter()
            .rev()
            .map(|t| &t.record)
            .filter(|r| filter.tenant.as_ref().is_none_or(|t| *t == r.tenant))
            .filter(|r| filter.queue.as_ref().is_none_or(|q| *q == r.queue))
            .filter(|r| filter.key.is_none() || filter.key == r.key)
            .filter(|r| filter.run.is_none() || filter.run == r.run)
            .cloned();
        page(rows, filter.cursor.as_deref(), filter.limit)
    }

    fn leases(&self, now: Timestamp) -> Vec<QueueLeases> {
        let of_queue = |(tenant, queue): &(Tenant, QueueName)| {
            let of = |key: &LaneKey| key.tenant == *tenant && key.queue == *queue;
            let lanes = self.lanes.iter().filter(|(key, _)| of(key)).map(|(_, l)| &*l.lane);
            QueueLeases::of((tenant, queue), now, lanes)
        };
        self.queues.keys().filter_map(of_queue).collect()
    }

    fn stats(&self, now: Timestamp) -> Vec<QueueStats> {
        let row = |((tenant, queue), totals): (&(Tenant, QueueName), &Totals)| {
            let of = |key: &LaneKey| key.tenant == *tenant && key.queue == *queue;
            let lanes = || self.lanes.iter().filter(|(key, _)| of(key)).map(|(_, l)| &l.lane);
            let paused = self
                .paused_queues
                .get(&(queue.clone(), Some(tenant.clone())))
                .or_else(|| self.paused_queues.get(&(queue.clone(), None)));
            let oldest = lanes().filter_map(|l| l.due_at()).min().filter(|due| *due <= now);
            QueueStats {
                tenant: tenant.clone(),
                queue: queue.clone(),
                totals: *totals,
                running: lanes().filter(|l| l.lease_at().is_some()).count() as u64,
                paused_by: paused.map(|p| p.by.clone()),
                oldest_due_ms: oldest
                    .map(|due| u64::try_from(now.since(due).as_millis()).unwrap_or(u64::MAX)),
            }
        };
        self.queues.iter().map(row).collect()
    }

    fn ended(&self, of: &impl Fn(&LaneKey) -> bool, state: RunState) -> u64 {
        let runs = self.finished.iter().filter(|r| of(&r.key) && r.ended.state == state);
        runs.map(|r| r.ended.run.count).sum()
    }

    fn verify(&self) -> Verified {
        let mut problems = Vec::new();
        for ((tenant, queue), totals) in &self.queues {
            let of = |key: &LaneKey| key.tenant == *tenant && key.queue == *queue;
            let lanes = || self.lanes.iter().filter(|(key, _)| of(key)).map(|(_, l)| l);
            let fixed = |l: &Inhabited, buffered: bool| -> u64 {
                l.lane.fixed_runs().filter(|c| c.is_buffered() == buffered).map(|c| c.count).sum()
            };
            let open = |l: &Inhabited| l.lane.open.map_or(0, |o| o.count);
            let rows = [
                ("buffered", totals.buffered, lanes().map(|l| open(l) + fixed(l, true)).sum()),
                ("in flight", totals.in_flight, lanes().map(|l| fixed(l, false)).sum()),
                ("dead", totals.dead, self.ended(&of, RunState::Failed)),
                ("delayed", totals.delayed, self.aside.iter().filter(|a| of(&a.event.lane)).count() as u64),
            ];
            if !totals.hold() {
                problems.push(format!("{queue}: {totals:?} do not add up"));
            }
            for (what, said, counted) in rows.into_iter().filter(|(_, said, counted)| said != counted) {
                problems.push(format!("{queue}: {said} {what}, rows: {counted}"));
            }
            for run in self.finished.iter().filter(|r| of(&r.key) && r.ended.run.count > 0) {
                let rows = self.lanes[&run.key].members(&run.ended.run).count() as u64;
                if rows != run.ended.run.count {
                    let (n, said) = (run.ended.run.number, run.ended.run.count);
                    problems.push(format!("{queue}: ended run {n} has {said} events, rows: {rows}"));
                }
            }
            for l in lanes() {
                let first = l.lane.open.map_or(u64::MAX, |o| o.lo);
                let rows = l.events.range(first..).filter(|(_, k)| k.mark.is_none()).count() as u64;
                if rows != open(l) {
                    problems.push(format!("lane {}: {} buffered, {rows} rows", l.lane.id, open(l)));
                }
                for run in l.lane.fixed_runs() {
                    let (rows, said) = (l.members(run).count() as u64, run.count);
                    if rows != said {
                        problems.push(format!("run {}: {said} events, {rows} rows", run.number));
                    }
                }
            }
        }
        self.verify_sources(&mut problems);
        let events = self.lanes.values().map(|l| l.events.len() as u64).sum();
        Verified { queues: self.queues.len() as u64, events, problems }
    }
}

impl Aside {
    fn place(&self) -> EventPlace {
        let event = Event {
            seq: 0,
            id: self.event.id.id().clone(),
            received_at: self.accepted_at,
            payload: self.event.payload.clone(),
            headers: self.event.headers.clone(),
            was_seq: None,
        };
        EventPlace { event, ready_at: Some(self.ready_at), run_id: None, state: None }
    }
}

impl FinishedRun {
    fn row(&self) -> RunRow {
        RunRow::of_finished(self.lane, &self.ended, &self.key)
    }
}

/// Cursors of the memory store are plain offsets: nothing is added while a test pages through.
fn page<T>(rows: impl Iterator<Item = T>, cursor: Option<&str>, limit: usize) -> Page<T> {
    let limit = if limit == 0 { limits::PAGE_DEFAULT } else { limit.min(limits::PAGE_MAX) };
    let start = cursor.and_then(|c| c.parse::<usize>().ok()).unwrap_or(0);
    let mut items: Vec<T> = rows.skip(start).take(limit + 1).collect();
    let more = items.len() > limit;
    items.truncate(limit);
    Page { items, next: more.then(|| (start + limit).to_string()) }
}
