//! Inspect: reads over a connection of their own.
//!
//! Listings go by sorted sets and cursors, a bounded number of rows at a time. Lanes that have something to do are found
//! through the sets of leases, due times and holds, so a million idle lanes cost nothing (`inspect/lanes.rs`). Sources are in
//! the order of their names (`inspect/sources.rs`). Runs that ended and records of the trail are read from the newest
//! backwards (`inspect/history.rs`). `Verify` reads everything and is for `doctor` (`inspect/verify.rs`).

use std::collections::BTreeMap;

use quell_core::aside::Aside;
use quell_core::clock::Timestamp;
use quell_core::error::StoreResult;
use quell_core::event::{Event, EventId, LaneKey, QueueName, Tenant};
use quell_core::inspect::{Concern, EventPlace, Health, Inspect, Inspected, QueueLeases, QueueStats};
use quell_core::lane::Lane;
use quell_core::lifecycle::RunState;
use quell_core::limits;
use quell_core::schedule::ScheduleRow;
use quell_core::source::SourceId;
use quell_core::store::Description;
use quell_core::totals::Totals;
use quell_core::working_set::Kept;
use quell_store_rows::codec;
use quell_store_rows::rows::{QueueOutlook, Span, Want};
use redis::Value;

use crate::apply::TOTALS;
use crate::clock::wall_millis;
use crate::find;
use crate::keys::{lane_text, queue_text};
use crate::link::For;
use crate::reply;
use crate::rows::{LaneValue, read_event, read_lane, read_run};
use crate::script::Script;
use crate::store::{Pauses, Shared, due_places, paused};

mod cursor;
mod history;
mod lanes;
mod sources;
mod verify;

pub(crate) async fn inspect(
    shared: &Shared,
    request: Inspect,
    description: Description,
) -> StoreResult<Inspected> {
    cursor::check(&request)?;
    let view = View::open(shared).await?;
    Ok(match request {
        Inspect::Lane(key) => Inspected::Lane(view.lane_detail(&key).await?.map(Box::new)),
        Inspect::Lanes(filter) => Inspected::Lanes(view.lanes(&filter).await?),
        Inspect::Run(id) => Inspected::Run(view.run(id).await?.map(Box::new)),
        Inspect::Runs(filter) => Inspected::Runs(view.runs(&filter).await?),
        Inspect::Event(key, id) => Inspected::Event(view.event(&key, &id).await?),
        Inspect::Audit(filter) => Inspected::Audit(view.audit(&filter).await?),
        Inspect::Schedules => Inspected::Schedules(view.schedules().await?),
        Inspect::Sources(filter) => Inspected::Sources(view.sources(&filter).await?),
        Inspect::Stats => Inspected::Stats(view.stats().await?),
        Inspect::Leases => Inspected::Leases(view.leases().await?),
        Inspect::Verify => Inspected::Verify(view.verify().await?),
        Inspect::Health => Inspected::Health(view.health(description).await?),
    })
}

/// What one read sees: the time, the queues, the sources that their lanes wait for and the pauses at its beginning.
struct View<'s> {
    shared: &'s Shared,
    now: Timestamp,
    pauses: Pauses,
    queues: Vec<(Tenant, QueueName)>,
    /// The sets of lanes that wait for a source, by the text of their queue.
    governed: BTreeMap<String, Vec<(u8, SourceId)>>,
}

impl<'s> View<'s> {
    async fn open(shared: &'s Shared) -> StoreResult<Self> {
        let (outlook, pauses) = shared.outlook(For::Reads).await?;
        let queues = shared.all_queues().await?;
        let governed =
            |q: &QueueOutlook| due_places(q).filter_map(|(p, source)| Some((p, source?))).collect();
        let governed = outlook.queues.iter().map(|q| (queue_text(&q.tenant, &q.queue), governed(q)));
        Ok(View { shared, now: outlook.now, pauses, queues, governed: governed.collect() })
    }

    /// The queues that a filter names.
    fn matching(&self, tenant: Option<&Tenant>, queue: Option<&QueueName>) -> Vec<(Tenant, QueueName)> {
        let of = |(t, q): &&(Tenant, QueueName)| {
            tenant.is_none_or(|tenant| tenant == t) && queue.is_none_or(|queue| queue == q)
        };
        self.queues.iter().filter(of).cloned().collect()
    }

    /// The sets of due times of a queue: all of those without a source, and those with one that have lanes.
    fn due_sets(&self, queue: &str) -> impl Iterator<Item = (u8, Option<SourceId>)> {
        let governed = self.governed.get(queue).into_iter().flatten();
        (0..=limits::PRIORITY_MAX)
            .map(|priority| (priority, None))
            .chain(governed.map(|(priority, source)| (*priority, Some(*source))))
    }

    fn paused_by(&self, tenant: &Tenant, queue: &QueueName) -> Option<String> {
        paused(&self.pauses, tenant, queue).map(|paused| paused.by.clone())
    }

    async fn find_lane(&self, key: &LaneKey) -> StoreResult<Option<LaneValue>> {
        let mut call = self.shared.link.script(Script::ReadLanes);
        call.arg("k").arg(lane_text(key));
        let row = self.shared.ask(&call).await?.into_iter().nth(2).and_then(reply::bytes);
        row.map(read_lane).transpose()
    }

    /// Reads by the script of transactions; the time comes first.
    async fn find(&self, want: &Want) -> StoreResult<impl Iterator<Item = Value> + use<>> {
        let mut call = self.shared.link.script(Script::Find);
        call.arg(0);
        find::ask(&mut call, want);
        Ok(self.shared.ask(&call).await?.into_iter().skip(1))
    }

    async fn span(&self, span: Span) -> StoreResult<Vec<Event>> {
        let mut answer = self.find(&Want { spans: vec![span], ..Want::default() }).await?;
        let events = reply::list(answer.next().unwrap_or_default())?.into_iter().filter_map(reply::bytes);
        events.map(|event| read_event(&event).map(|kept| kept.event)).collect()
    }

    async fn event(&self, key: &LaneKey, id: &EventId) -> StoreResult<Option<EventPlace>> {
        if let Some(lane) = self.find_lane(key).await?.map(|value| value.at.lane) {
            let mut answer = self.find(&Want { ids: vec![(lane.id, id.clone())], ..Want::default() }).await?;
            if let Some(event) = answer.next().and_then(reply::bytes) {
                let Kept { event, mark, .. } = read_event(&event)?;
                let place = self.place(key, &lane, event.seq, mark).await?;
                return Ok(Some(EventPlace {
                    event,
                    ready_at: None,
                    run_id: place.map(|(number, _)| lane.run_id(number)),
                    state: place.map(|(_, state)| state),
                }));
            }
        }
        let want = Want { aside_ids: vec![(key.clone(), id.clone())], ..Want::default() };
        let found = self.find(&want).await?.next().unwrap_or_default();
        let row = find::pair(found)?.map(|(_, row)| row).filter(|row| !row.is_empty());
        row.map(|row| codec::read_aside(&row).map(|aside| place_aside(&aside))).transpose()
    }

    /// The run an event belongs to: one that waits or is held, the open one, or one that ended.
    async fn place(
        &self,
        key: &LaneKey,
        lane: &Lane,
        seq: u64,
        mark: Option<u64>,
    ) -> StoreResult<Option<(u64, RunState)>> {
        if let Some(place) = lane.run_of(seq, mark) {
            return Ok(Some(place));
        }
        let want = Want { runs_of: vec![(lane.id, seq, mark)], ..Want::default() };
        let found = self.find(&want).await?.next().unwrap_or_default();
        let Some(run) = reply::list(found)?.into_iter().nth(1).and_then(reply::bytes) else {
            return Ok(None);
        };
        let run = read_run(key.clone(), lane.id, &run)?.ended;
        let has = run.run.count > 0 && run.run.has(seq, mark);
        Ok(has.then_some((run.run.number, run.state)))
    }

    async fn schedules(&self) -> StoreResult<Vec<ScheduleRow>> {
        let found = self.find(&Want { schedules: true, ..Want::default() }).await?.next().unwrap_or_default();
        let rows = reply::list(found)?.into_iter().nth(1).unwrap_or_default();
        let rows = reply::list(rows)?.into_iter().filter_map(reply::bytes);
        let mut rows: Vec<ScheduleRow> =
            rows.map(|row| codec::read_schedule(&row)).collect::<StoreResult<_>>()?;
        let name = |row: &ScheduleRow| (row.schedule.tenant.clone(), row.schedule.name.clone());
        rows.sort_by_key(name);
        Ok(rows)
    }

    async fn leases(&self) -> StoreResult<Vec<QueueLeases>> {
        let keys = &self.shared.link.keys;
        let mut pipe = redis::pipe();
        for (tenant, queue) in &self.queues {
            let last = limits::LEASES_LOOK - 1;
            pipe.cmd("ZRANGE").arg(keys.lease(&queue_text(tenant, queue))).arg(0).arg(last);
        }
        let mut names = Vec::new();
        if !self.queues.is_empty() {
            for answer in self.shared.link.pipe(&pipe).await? {
                names.extend(reply::list(answer)?.into_iter().filter_map(reply::text));
            }
        }
        let held = self.shared.lanes_named(&names).await?;
        let of_queue = |(tenant, queue): &(Tenant, QueueName)| {
            let of = |key: &LaneKey| key.tenant == *tenant && key.queue == *queue;
            let lanes = held.iter().filter(|lane| of(&lane.at.key)).map(|lane| &*lane.at.lane);
            QueueLeases::of((tenant, queue), self.now, lanes)
        };
        Ok(self.queues.iter().filter_map(of_queue).collect())
    }

    async fn stats(&self) -> StoreResult<Vec<QueueStats>> {
        let keys = &self.shared.link.keys;
        let mut all = Vec::with_capacity(self.queues.len());
        for (tenant, queue) in &self.queues {
            let text = queue_text(tenant, queue);
            let mut pipe = redis::pipe();
            pipe.cmd("HMGET").arg(keys.totals(&text)).arg(&TOTALS[..]);
            pipe.cmd("ZCARD").arg(keys.lease(&text));
            for (priority, source) in self.due_sets(&text) {
                // Entries may be early; the first one that is truly due is among the first few, and a page bounds the look.
                pipe.cmd("ZRANGEBYSCORE")
                    .arg(keys.due(priority, source, &text))
                    .arg("-inf")
                    .arg(self.now.as_millis());
                pipe.arg("LIMIT").arg(0).arg(limits::PAGE_DEFAULT);
            }
            let mut answers = self.shared.link.pipe(&pipe).await?.into_iter();
            let totals = read_totals(answers.next().unwrap_or_default())?;
            let running = reply::count(answers.next().unwrap_or(Value::Int(0)))?;
            let mut names = Vec::new();
            for answer in answers {
                names.extend(reply::list(answer)?.into_iter().filter_map(reply::text));
            }
            let lanes = self.shared.lanes_named(&names).await?;
            let due = lanes.iter().filter_map(|lane| lane.at.lane.due_at()).filter(|due| *due <= self.now);
            all.push(QueueStats {
                tenant: tenant.clone(),
                queue: queue.clone(),
                totals,
                running,
                paused_by: self.paused_by(tenant, queue),
                oldest_due_ms: due
                    .min()
                    .map(|due| u64::try_from(self.now.since(due).as_millis()).unwrap_or(u64::MAX)),
            });
        }
        Ok(all)
    }

    async fn health(&self, mut description: Description) -> StoreResult<Health> {
        let settings = self.shared.link.look_again().await?;
        description.durability = settings.durability();
        let mut warnings = settings.warnings();
        if let Err(error) = settings.check(&self.shared.link.options) {
            warnings.push(Concern::new(error.detail, "until then its next start is refused"));
        }
        let divergence = self.now.as_millis() - wall_millis();
        if divergence.abs() > 60_000 {
            warnings.push(Concern::new(
                format!("the server's clock and this one differ by {divergence} ms; the server's decides"),
                "set both clocks by NTP; nothing is lost by it, but logs do not match",
            ));
        }
        let said = |value: Option<&str>| value.unwrap_or("not told").to_owned();
        let appendonly = settings.appendonly.map(|on| if on { "yes" } else { "no" });
        let facts = vec![
            ("appendonly".to_owned(), said(appendonly)),
            ("appendfsync".to_owned(), said(settings.appendfsync.as_deref())),
            ("maxmemory-policy".to_owned(), said(settings.maxmemory_policy.as_deref())),
            ("used_memory".to_owned(), said(settings.used_memory.as_deref())),
            ("role".to_owned(), settings.role.clone()),
            ("epoch".to_owned(), self.shared.link.epoch().to_string()),
        ];
        Ok(Health { description, now: self.now, wall_divergence_ms: divergence, facts, warnings })
    }
}

/// Totals in the order of [`TOTALS`].
pub(crate) fn read_totals(value: Value) -> StoreResult<Totals> {
    let mut fields = reply::list(value)?.into_iter();
    let mut field = || match fields.next() {
        None | Some(Value::Nil) => Ok(0),
        Some(value) => reply::count(value),
    };
    Ok(Totals {
        accepted: field()?,
        succeeded: field()?,
        dead: field()?,
        discarded: field()?,
        delayed: field()?,
        buffered: field()?,
        in_flight: field()?,
    })
}

/// An event that has been accepted and is not in its lane yet: it has neither number nor run.
fn place_aside(aside: &Aside) -> EventPlace {
    let event = Event {
        seq: 0,
        id: aside.event.id.id().clone(),
        received_at: aside.accepted_at,
        payload: aside.event.payload.clone(),
        headers: aside.event.headers.clone(),
        was_seq: None,
    };
    EventPlace { event, ready_at: Some(aside.ready_at), run_id: None, state: None }
}
