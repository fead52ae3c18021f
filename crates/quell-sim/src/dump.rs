//! Reads the whole store when nothing goes on any more, for the checker.
//!
//! Everything is read through the store's own reads. Events are asked for by the ids that were ever sent, which is
//! cheap; when the store says that it has more events than were found, all runs are read in full, so nothing that it
//! made up can hide.

use std::collections::BTreeMap;

use quell_check::history::{AuditEntry, Dump, DumpEvent, DumpRun, Name, Place, QueueTotals, Trail};
use quell_core::audit::AuditRecord;
use quell_core::event::{Event, EventId, LaneKey};
use quell_core::inspect::{AuditFilter, Inspect, Inspected, RunFilter, RunRow, Verified};
use quell_core::lifecycle::RunState;
use quell_store_many::first_number;
use quell_store_many::map::Database;

use crate::call::ready;
use crate::databases::is_relay;
use crate::record;
use crate::seen::Sight;
use crate::world::World;

const PAGE: usize = 1_000;

impl World {
    fn read(&self, what: Inspect) -> Inspected {
        ready(self.store.inspect(what)).expect("the memory store can always be read")
    }

    /// The equation against the rows, as the store itself sees it.
    pub(crate) fn verified(&self) -> Verified {
        match self.read(Inspect::Verify) {
            Inspected::Verify(verified) => verified,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn dump(&mut self, verified: &Verified) -> Dump {
        let stats = match self.read(Inspect::Stats) {
            Inspected::Stats(stats) => stats,
            other => panic!("{other:?}"),
        };
        let rows = self.run_rows();
        let audit = self.audit();
        let aside: u64 = stats.iter().map(|s| s.totals.delayed).sum();
        for relay in stats.iter().filter(|s| is_relay(&s.queue)) {
            (0..relay.totals.succeeded).for_each(|_| self.seen.saw(Sight::Relayed));
            (0..relay.totals.dead).for_each(|_| self.seen.saw(Sight::RelayRefused));
        }
        if self.seen.of(Sight::HandPutSchedule) > 0 {
            self.look_for_fires();
        }
        let mut events = self.events(&rows);
        if events.len() as u64 != verified.events + aside {
            self.add_unknown(&rows, &mut events);
        }
        let waiting = |e: &DumpEvent| matches!(e.place, Place::Delayed | Place::Buffered | Place::InFlight);
        Dump {
            drained: self.plan.shape.resume_all && !events.iter().any(waiting),
            queues: stats
                .iter()
                .filter(|s| !is_relay(&s.queue))
                .map(|s| QueueTotals {
                    queue: record::owner(&s.tenant, &s.queue),
                    accepted: s.totals.accepted,
                    succeeded: s.totals.succeeded,
                    dead: s.totals.dead,
                    discarded: s.totals.discarded,
                    delayed: s.totals.delayed,
                    buffered: s.totals.buffered,
                    in_flight: s.totals.in_flight,
                })
                .collect(),
            audit_from: self.audit_removed.then(|| audit.first().map_or(u64::MAX, |a| a.id)),
            trails: self.trails(&audit),
            events,
            runs: rows.values().map(|row| self.dump_run(row)).collect(),
            audit,
        }
    }

    /// Where the trail of each of several databases begins, if anything was removed from them.
    fn trails(&self, audit: &[AuditEntry]) -> Vec<Trail> {
        let Some(map) = self.databases.map().filter(|_| self.audit_removed) else { return Vec::new() };
        let trail = |database: &Database| {
            let range = first_number(database.range).expect("it was given when the map was made");
            let own = audit.iter().find(|entry| map.birth(entry.id) == map.birth(range));
            Trail { range, audit_from: own.map_or(u64::MAX, |entry| entry.id) }
        };
        map.databases.iter().map(trail).collect()
    }

    fn run_rows(&self) -> BTreeMap<u64, RunRow> {
        let mut all = BTreeMap::new();
        let mut cursor = None;
        loop {
            let filter = RunFilter { cursor, limit: PAGE, ..RunFilter::default() };
            let Inspected::Runs(page) = self.read(Inspect::Runs(filter)) else { return all };
            let told = page.items.into_iter().filter(|row| !is_relay(&row.lane.queue));
            all.extend(told.map(|row| (row.id.number, row)));
            cursor = page.next;
            if cursor.is_none() {
                return all;
            }
        }
    }

    fn audit(&self) -> Vec<AuditEntry> {
        let mut all = Vec::new();
        let mut cursor = None;
        loop {
            let filter = AuditFilter { cursor, limit: PAGE, ..AuditFilter::default() };
            let Inspected::Audit(page) = self.read(Inspect::Audit(filter)) else { break };
            let told = page.items.into_iter().filter(|row| !is_relay(&row.queue));
            all.extend(told.map(|row| self.audit_entry(row)));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        // Numbers of one database are in the order in which things happened there, and a lane is in one database.
        all.sort_by_key(|entry| entry.id);
        let mut erased = self.recorder.erased.clone();
        for entry in all.iter_mut().filter(|e| e.lane.is_none() && e.change.as_str() == "erased") {
            if let Some(place) = erased.iter().position(|(at, _)| *at == entry.at) {
                entry.lane = Some(erased.remove(place).1);
            }
        }
        all
    }

    fn audit_entry(&self, row: AuditRecord) -> AuditEntry {
        let AuditRecord { tenant, queue, key, .. } = row;
        let lane = key.map(|key| self.recorder.lane(&LaneKey { tenant, queue, key }));
        let lane = lane.or_else(|| self.recorder.lane_of(row.run?));
        AuditEntry {
            lane,
            run: row.run.map(|r| r.number),
            from: row.from.map(record::state),
            to: row.to.map(record::state),
            attempt: row.attempt,
            token: row.token,
            worker: row.worker.map(Name::from),
            prior_worker: row.prior_worker.map(Name::from),
            upto_seq: row.upto_seq,
            next_at: row.next_at.map(|t| t.as_millis()),
            other_run: row.other_run.map(|r| r.number),
            verdict: row.verdict.map(record::verdict),
            actor: row.actor.map(Name::from),
            ..AuditEntry::new(row.id, row.at.as_millis(), row.change.as_str())
        }
    }

    fn dump_run(&self, row: &RunRow) -> DumpRun {
        DumpRun {
            lane: self.recorder.lane(&row.lane),
            run: row.id.number,
            state: record::state(row.state),
            count: row.events,
            lo: row.lo,
            hi: row.hi,
            attempts: row.attempts,
            claims: row.claims,
            revision: row.revision,
            held: false,
            merged_into: row.links.merged_into.map(|r| r.number),
            split_from: row.links.split_from.map(|r| r.number),
            redriven_from: row.links.redriven_from.map(|r| r.number),
            first_at: Some(row.created_at.as_millis()),
        }
    }

    /// Before something is erased: what the store has made by itself and nobody has seen yet is written down, because it
    /// cannot be found afterwards.
    pub(crate) fn look_before_erasure(&mut self, key: &LaneKey) {
        if self.seen.of(Sight::HandPutSchedule) > 0 {
            self.look_for_fires();
        }
        let lane = self.recorder.lane(key);
        for row in self.run_rows().into_values() {
            if row.lane == *key
                && let Inspected::Run(Some(detail)) = self.read(Inspect::Run(row.id))
            {
                for event in detail.list.iter().filter(|e| record::is_made_by_store(e.id.as_str())) {
                    self.recorder.made_itself(key, &lane, event.id.as_str(), &event.payload);
                }
            }
            let id = EventId::new(format!("{}/notify", row.id)).expect("a short text");
            if let Inspected::Event(Some(place)) = self.read(Inspect::Event(key.clone(), id.clone())) {
                self.recorder.made_itself(key, &lane, id.as_str(), &place.event.payload);
            }
        }
    }

    /// What a schedule fired may still be aside, where it is found by its id alone: the schedule and the minute.
    fn look_for_fires(&mut self) {
        const MINUTE: i64 = 60_000;
        let now = self.store_now() / MINUTE;
        // The clock of one of several databases may be a little ahead.
        let last = now + i64::from(self.databases.are_several());
        let lanes: Vec<(LaneKey, Name)> =
            self.recorder.lanes().map(|(k, n)| (k.clone(), n.clone())).collect();
        for (minute, name) in (now - 2..=last).flat_map(|m| [(m, "s0"), (m, "s1")]) {
            let at = quell_core::clock::Timestamp::from_millis(minute * MINUTE);
            let id = EventId::new(format!("schedule/{name}/{at}")).expect("a short text");
            for (key, lane) in &lanes {
                let place = self.read(Inspect::Event(key.clone(), id.clone()));
                if let Inspected::Event(Some(place)) = place {
                    self.recorder.made_itself(key, lane, id.as_str(), &place.event.payload);
                }
            }
        }
    }

    /// Every event that was ever sent and is still there.
    fn events(&self, rows: &BTreeMap<u64, RunRow>) -> Vec<DumpEvent> {
        let lanes: BTreeMap<&Name, &LaneKey> = self.recorder.lanes().map(|(key, name)| (name, key)).collect();
        let mut found = Vec::new();
        for (name, id) in &self.recorder.sent {
            let Some(lane) = lanes.get(name) else { continue };
            let id = EventId::new(&**id).expect("it was sent under this id");
            let Inspected::Event(Some(place)) = self.read(Inspect::Event((*lane).clone(), id)) else {
                continue;
            };
            let run = place.run_id.and_then(|run| rows.get(&run.number));
            found.push(self.dump_event(lane, &place.event, run, place.ready_at.is_some()));
        }
        found
    }

    fn dump_event(&self, lane: &LaneKey, event: &Event, run: Option<&RunRow>, aside: bool) -> DumpEvent {
        let place = match run {
            _ if aside => Place::Delayed,
            Some(row) => match row.state {
                RunState::Succeeded => Place::Succeeded,
                RunState::Failed => Place::Dead,
                RunState::Cancelled => Place::Discarded,
                RunState::Pending if row.claims == 0 && row.links.split_from.is_none() => Place::Buffered,
                RunState::Pending | RunState::Running | RunState::Retryable => Place::InFlight,
            },
            None => panic!("event {} of {lane} belongs to no run", event.id),
        };
        DumpEvent {
            queue: record::owner(&lane.tenant, &lane.queue),
            lane: self.recorder.lane(lane),
            seq: (!aside).then_some(event.seq),
            id: event.id.as_str().into(),
            hash: record::print(&event.payload),
            place,
            run: run.map(|row| row.id.number),
            received_at: event.received_at.as_millis(),
            was_seq: event.was_seq,
        }
    }

    /// Reads all runs in full: what the store made by itself, or made up.
    fn add_unknown(&mut self, rows: &BTreeMap<u64, RunRow>, events: &mut Vec<DumpEvent>) {
        for row in rows.values() {
            let Inspected::Run(Some(detail)) = self.read(Inspect::Run(row.id)) else { continue };
            let lane = self.recorder.lane(&row.lane);
            for event in &detail.list {
                if events.iter().any(|known| known.lane == lane && known.seq == Some(event.seq)) {
                    continue;
                }
                let told = self.dump_event(&row.lane, event, Some(row), false);
                if record::is_made_by_store(event.id.as_str()) {
                    self.recorder.made_itself(&row.lane, &lane, event.id.as_str(), &event.payload);
                }
                events.push(told);
            }
        }
    }
}
