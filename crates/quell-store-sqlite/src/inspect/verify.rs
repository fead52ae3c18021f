//! The no-loss equation against the rows themselves: a counter that leaked is found here and not believed.
//!
//! It reads every lane with something to do, every finished run and every event row, so it is for `doctor` and for
//! tests. Each sentence names the queue, lane or run and both numbers, so that whoever reads it knows where to look.

use std::collections::HashMap;

use quell_core::inspect::Verified;
use quell_core::lane::CurrentRun;
use quell_core::source::SourceId;
use rusqlite::OptionalExtension;

use super::View;
use crate::due::earliest;
use crate::rows::{LaneRow, maybe_source};
use crate::sources::looker;
use crate::tx::QueueRow;

/// Lanes that are not idle, each with everything that waits in it.
const BUSY: &str =
    concat!(include_str!("../../sql/lane.sql"), "WHERE o_number IS NOT NULL OR r_number IS NOT NULL");

/// What the lanes of one queue say.
#[derive(Default)]
struct Counted {
    buffered: u64,
    in_flight: u64,
    running: u64,
}

impl View<'_> {
    pub(super) fn verify(&self) -> rusqlite::Result<Verified> {
        let mut problems = Vec::new();
        let counted = self.verify_lanes(&mut problems)?;
        for queue in &self.queues {
            self.verify_queue(queue, counted.get(&queue.id), &mut problems)?;
        }
        for (sql, what) in CHECKS {
            let mut statement = self.connection.prepare_cached(sql)?;
            for lane in statement.query_map([], |row| row.get::<_, u64>(0))? {
                problems.push(format!("lane {}: {what}", lane?));
            }
        }
        self.verify_ended(&mut problems)?;
        let quick: String = self.connection.query_row("PRAGMA quick_check(5)", [], |row| row.get(0))?;
        if quick != "ok" {
            problems.push(format!("the file is damaged: {quick}"));
        }
        let events = self.connection.query_row("SELECT count(*) FROM event", [], |row| row.get(0))?;
        Ok(Verified { queues: self.queues.len() as u64, events, problems })
    }

    pub(super) fn count(&self, sql: &str, of: impl rusqlite::Params) -> rusqlite::Result<u64> {
        self.connection.prepare_cached(sql)?.query_row(of, |row| row.get(0))
    }

    /// The counters of one queue against the rows that they count, and its own time against those it must cover.
    fn verify_queue(
        &self,
        queue: &QueueRow,
        counted: Option<&Counted>,
        problems: &mut Vec<String>,
    ) -> rusqlite::Result<()> {
        let name = format!("{}/{}", queue.tenant, queue.name);
        let totals = &queue.totals;
        if !totals.hold() {
            problems.push(format!("queue {name}: the counters do not add up: {totals:?}"));
        }
        let none = Counted::default();
        let counted = counted.unwrap_or(&none);
        let dead = "SELECT coalesce(sum(run.count), 0) FROM run JOIN lane ON lane.id = run.lane_id
                    WHERE run.state = 4 AND lane.queue_id = ?1";
        let rows = [
            ("buffered", totals.buffered, counted.buffered),
            ("in flight", totals.in_flight, counted.in_flight),
            ("running", queue.running, counted.running),
            ("dead", totals.dead, self.count(dead, [queue.id])?),
            (
                "delayed",
                totals.delayed,
                self.count("SELECT count(*) FROM aside WHERE queue_id = ?1", [queue.id])?,
            ),
            (
                "schedules",
                queue.schedules,
                self.count("SELECT count(*) FROM schedule WHERE queue_id = ?1", [queue.id])?,
            ),
        ];
        for (what, said, rows) in rows {
            if said != rows {
                problems.push(format!("queue {name}: the counter says {said} {what}, the rows say {rows}"));
            }
        }
        let earliest = earliest(self.connection, queue, &mut looker(self.connection, self.now))?;
        // A source lets lanes go by the mere passing of time; a queue whose own time has come is looked at in any case.
        if let Some(earliest) = earliest
            && queue.next_at.is_none_or(|next| next > earliest.max(self.now))
        {
            problems.push(format!(
                "queue {name}: something is due at {earliest}, before the queue's own time, and nobody will look"
            ));
        }
        Ok(())
    }

    /// Every lane with something to do against its events and its index entries.
    fn verify_lanes(&self, problems: &mut Vec<String>) -> rusqlite::Result<HashMap<u64, Counted>> {
        let mut counted: HashMap<u64, Counted> = HashMap::new();
        let mut statement = self.connection.prepare(BUSY)?;
        for row in statement.query_map([], LaneRow::read)? {
            let row = row?;
            let lane = &row.lane;
            let of_queue = counted.entry(row.queue_id).or_default();
            of_queue.running += u64::from(lane.lease_at().is_some());
            if let Some(open) = &lane.open {
                of_queue.buffered += open.count;
                let sql = "SELECT count(*) FROM event WHERE lane_id = ?1 AND seq >= ?2 AND mark IS NULL";
                let rows = self.count(sql, (lane.id, open.lo))?;
                if rows != open.count {
                    let (id, said) = (lane.id, open.count);
                    problems.push(format!("lane {id}: its open run says {said} events, the rows say {rows}"));
                }
            }
            for run in lane.fixed_runs() {
                // Redriven events are buffered until they are claimed, as the totals count them.
                match run.is_buffered() {
                    true => of_queue.buffered += run.count,
                    false => of_queue.in_flight += run.count,
                }
                let rows = self.members(lane.id, run)?;
                if rows != run.count {
                    let (id, said) = (lane.run_id(run.number), run.count);
                    problems.push(format!("{id}: it says {said} events, the rows say {rows}"));
                }
            }
            self.verify_entries(&row, problems);
            self.verify_sources(&row, problems)?;
        }
        Ok(counted)
    }

    fn members(&self, lane: u64, run: &CurrentRun) -> rusqlite::Result<u64> {
        let sql = "SELECT count(*) FROM event WHERE lane_id = ?1 AND seq BETWEEN ?2 AND ?3 AND mark IS ?4";
        self.count(sql, (lane, run.lo, run.hi, run.marked.then_some(run.number)))
    }

    /// Index entries may lie before the true times, never behind them: a lane would be taken up too late, or never.
    fn verify_entries(&self, row: &LaneRow, problems: &mut Vec<String>) {
        let lane = &row.lane;
        let id = lane.id;
        match (lane.due_at(), row.due_entry) {
            (Some(due), None) => {
                problems.push(format!("lane {id}: it is due at {due} and nothing will ever wake it"));
            }
            // What is overdue when it is written gets the time of the writing.
            (Some(due), Some(entry)) if entry > due.max(self.now) => {
                problems.push(format!("lane {id}: it is due at {due} and entered at {entry}, later"));
            }
            _ => {}
        }
        match (lane.lease_at(), row.lease_entry) {
            (Some(until), entry) if entry.is_none_or(|entry| entry > until) => problems.push(format!(
                "lane {id}: its lease ends at {until} and nobody will look by then, in case its holder died"
            )),
            (None, Some(_)) => problems.push(format!("lane {id}: it has a lease entry without running")),
            _ => {}
        }
        let priorities = self.queue(row.queue_id).map_or(0, |queue| queue.priorities);
        if row.due_entry.is_some() && priorities >> row.priority_entry & 1 == 0 {
            let priority = row.priority_entry;
            problems.push(format!("lane {id}: no claim looks for lanes of its priority {priority}"));
        }
    }

    /// The sources of a lane's runs against those of their events.
    fn verify_sources(&self, row: &LaneRow, problems: &mut Vec<String>) -> rusqlite::Result<()> {
        let lane = &row.lane;
        let differ = |run: u64, said: Option<SourceId>| {
            format!("{}: it asks {said:?}, its events do not", lane.run_id(run))
        };
        if let Some(open) = &lane.open {
            let sql = "SELECT source FROM event WHERE lane_id = ?1 AND seq >= ?2 AND mark IS NULL
                       ORDER BY seq LIMIT 1";
            let mut statement = self.connection.prepare_cached(sql)?;
            let first = statement.query_row((lane.id, open.lo), |row| maybe_source(row, 0)).optional()?;
            if first.is_some_and(|first| first != open.source) {
                problems.push(differ(open.number, open.source));
            }
        }
        for run in lane.fixed_runs() {
            let sql = "SELECT count(*) FROM event
                       WHERE lane_id = ?1 AND seq BETWEEN ?2 AND ?3 AND mark IS ?4 AND source IS NOT ?5";
            let mark = run.marked.then_some(run.number);
            let source = run.source.map(|id| id.0);
            if self.count(sql, (lane.id, run.lo, run.hi, mark, source))? > 0 {
                problems.push(differ(run.number, run.source));
            }
        }
        if row.source_entry != lane.source() {
            let (id, asks, entry) = (lane.id, lane.source(), row.source_entry);
            problems.push(format!("lane {id}: it asks {asks:?} and is entered under {entry:?}"));
        }
        let governed = self.queue(row.queue_id).is_some_and(|queue| queue.governed);
        if row.source_entry.is_some() && !governed {
            problems.push(format!("lane {}: no claim looks for lanes that ask a source", lane.id));
        }
        Ok(())
    }

    /// Finished runs against their events, and events against their runs.
    fn verify_ended(&self, problems: &mut Vec<String>) -> rusqlite::Result<()> {
        let sql = "SELECT lane_id, number, count,
                     (SELECT count(*) FROM event WHERE event.lane_id = run.lane_id AND seq BETWEEN lo AND hi
                        AND mark IS CASE WHEN flags & 4 THEN number END) AS rows
                   FROM run WHERE count > 0 AND count <> rows";
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let id = quell_core::batch::RunId { lane: row.get(0)?, number: row.get(1)? };
            let (said, rows): (u64, u64) = (row.get(2)?, row.get(3)?);
            problems.push(format!("{id}: it ended with {said} events, the rows say {rows}"));
        }
        let sql = "SELECT event.lane_id, count(*), coalesce(ended, 0) FROM event
                   LEFT JOIN (SELECT lane_id, sum(count) AS ended FROM run GROUP BY lane_id) AS runs
                     ON runs.lane_id = event.lane_id
                   GROUP BY event.lane_id";
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (lane, events, ended): (u64, u64, u64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let mut of_lane = self.connection.prepare_cached(crate::tx::LANE_BY_ID)?;
            let live = of_lane.query_row([lane], LaneRow::read).map_or(0, |row| row.lane.events());
            if events != ended + live {
                let held = ended + live;
                problems.push(format!("lane {lane}: it has {events} events, its runs say {held}"));
            }
        }
        Ok(())
    }
}

/// Rows that refer to a lane or a run that is not there.
const CHECKS: [(&str, &str); 5] = [
    (
        "SELECT DISTINCT lane_id FROM event WHERE lane_id NOT IN (SELECT id FROM lane)",
        "it has events and no row",
    ),
    (
        "SELECT DISTINCT lane_id FROM run WHERE lane_id NOT IN (SELECT id FROM lane)",
        "it has finished runs and no row",
    ),
    (
        "SELECT DISTINCT lane_id FROM step WHERE lane_id NOT IN (SELECT id FROM lane)",
        "it has steps and no row",
    ),
    (
        "SELECT id FROM lane WHERE lease_at IS NOT NULL AND r_number IS NULL",
        "it has a lease entry and no run",
    ),
    (
        "SELECT DISTINCT lane_id FROM event WHERE source IS NOT NULL AND source NOT IN (SELECT id FROM source)",
        "an event names a source that is not there",
    ),
];
