//! Listings of lanes, and one lane in full.
//!
//! Lanes with something to do are found in stages: those held by workers by the index of leases, those that wait by the
//! index of due times, one priority after the other and in each one source after the other, and those that an operator paused or a failed run blocked by an
//! index of their own. The conditions of the stages exclude one another, so no lane is in two of them.

use quell_core::event::LaneKey;
use quell_core::inspect::{LaneDetail, LaneFilter, LaneRow as Listed, Page, Waiting};
use quell_core::limits;
use rusqlite::types::Value;

use super::View;
use crate::rows::{LaneRow, number, source_code};
use crate::tx::QueueRow;

/// Lanes that are held by workers.
pub(super) const LEASED: &str = concat!(
    include_str!("../../sql/lane.sql"),
    "WHERE queue_id = ?1 AND lease_at IS NOT NULL AND (lease_at, id) > (?2, ?3) ORDER BY lease_at, id LIMIT ?4"
);
/// Lanes of one priority that wait for their time, for their source or for a worker.
pub(super) const DUE: &str = concat!(
    include_str!("../../sql/lane.sql"),
    "WHERE queue_id = ?1 AND priority = ?5 AND due_at IS NOT NULL AND (source, due_at, id) > (?6, ?2, ?3)
     AND lease_at IS NULL ORDER BY source, due_at, id LIMIT ?4"
);
/// Lanes that are paused or blocked and not held by a worker. The first condition is that of the index, word for word.
pub(super) const HELD: &str = concat!(
    include_str!("../../sql/lane.sql"),
    "WHERE queue_id = ?1 AND (paused_at IS NOT NULL OR blocked_at IS NOT NULL) AND id > ?2
     AND lease_at IS NULL AND due_at IS NULL ORDER BY id LIMIT ?3"
);
/// Every lane of a queue by its key, for prefixes and for lists with idle lanes.
pub(super) const BY_KEY: &str =
    concat!(include_str!("../../sql/lane.sql"), "WHERE queue_id = ?1 AND key >= ?2 ORDER BY key LIMIT ?3");
pub(super) const DELAYED: &str = "SELECT count(*) FROM aside WHERE queue_id = ?1 AND key = ?2";

/// Rows that one page of a filtered walk looks at before it hands out a cursor.
const LOOK_MAX: usize = 20_000;
/// Rows that one statement of a walk reads.
const CHUNK: usize = 256;

/// One after the other: leases, due times from the highest priority down, holds.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    Leased,
    Due(u8),
    Held,
}

impl Stage {
    const COUNT: usize = limits::PRIORITY_MAX as usize + 3;

    fn nth(n: usize) -> Stage {
        match u8::try_from(n) {
            Ok(0) => Stage::Leased,
            Ok(n) if n <= limits::PRIORITY_MAX + 1 => Stage::Due(limits::PRIORITY_MAX + 1 - n),
            _ => Stage::Held,
        }
    }

    /// Whether a queue can have lanes in this stage at all.
    fn is_of(self, queue: &QueueRow) -> bool {
        match self {
            Stage::Due(priority) => queue.priorities >> priority & 1 == 1,
            Stage::Leased | Stage::Held => true,
        }
    }

    /// The place of a lane within this stage.
    fn place(self, row: &LaneRow) -> Place {
        let source = if matches!(self, Stage::Due(_)) { source_code(row.source_entry) } else { 0 };
        let entry = match self {
            Stage::Leased => row.lease_entry,
            Stage::Due(_) => row.due_entry,
            Stage::Held => None,
        };
        Place { source, value: entry.map_or(0, |entry| entry.as_millis()), id: row.lane.id }
    }
}

/// Which lanes a walk visits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Lanes {
    Running,
    Busy,
}

/// How far a walk over the stages has come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Walk {
    stage: usize,
    queue: u64,
    place: Place,
}

/// Where a lane stands among those of its stage and queue.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Place {
    source: u64,
    value: i64,
    id: u64,
}

impl Place {
    const START: Place = Place { source: 0, value: i64::MIN, id: 0 };
}

impl Walk {
    pub(super) const START: Walk = Walk { stage: 0, queue: 0, place: Place::START };

    pub(super) fn parse(text: &str) -> Option<Walk> {
        let mut parts = text.split('.');
        let mut part = || parts.next();
        Some(Walk {
            stage: part()?.parse().ok()?,
            queue: part()?.parse().ok()?,
            place: Place {
                source: part()?.parse().ok().filter(|id| *id < limits::NUMBER_MAX)?,
                value: part()?.parse().ok()?,
                id: part()?.parse().ok().filter(|id| *id < limits::NUMBER_MAX)?,
            },
        })
    }

    pub(super) fn text(self) -> String {
        let Place { source, value, id } = self.place;
        format!("{}.{}.{source}.{value}.{id}", self.stage, self.queue)
    }
}

impl View<'_> {
    pub(super) fn lane_detail(&mut self, key: &LaneKey) -> rusqlite::Result<Option<LaneDetail>> {
        let Some(row) = self.find_lane(key)? else { return Ok(None) };
        let lane = &row.lane;
        let paused = self.queue(row.queue_id).and_then(|queue| self.paused_by(queue));
        let delayed = match self.queue(row.queue_id).map_or(0, |queue| queue.totals.delayed) {
            0 => 0,
            _ => self
                .connection
                .prepare_cached(DELAYED)?
                .query_row((row.queue_id, key.key.as_str()), |row| row.get(0))?,
        };
        let events = match lane.open {
            Some(open) => {
                // A full lane may hold gigabytes; a page of it is enough to see what it is.
                let sql = concat!(include_str!("../../sql/claim_events.sql"), " LIMIT ?5");
                let mut statement = self.connection.prepare_cached(sql)?;
                let unmarked: Option<u64> = None;
                let page = (lane.id, open.lo, lane.head_seq, unmarked, limits::PAGE_DEFAULT);
                statement.query_map(page, crate::rows::event)?.collect::<rusqlite::Result<_>>()?
            }
            None => Vec::new(),
        };
        let now = self.now;
        let source = self.source_for(lane)?;
        Ok(Some(LaneDetail {
            row: Listed::of(lane, key, now, paused.clone(), source),
            now,
            waiting: Waiting::of(lane, now, paused, source),
            open_run: lane.open.map(|o| lane.run_id(o.number)),
            current_run: lane.current.as_ref().map(|c| lane.run_id(c.number)),
            queued_runs: lane.queued.iter().map(|c| lane.run_id(c.number)).collect(),
            delayed,
            events,
        }))
    }

    pub(super) fn lanes(&mut self, filter: &LaneFilter) -> rusqlite::Result<Page<Listed>> {
        let limit = page_limit(filter.limit);
        if filter.idle || filter.key_prefix.is_some() {
            return self.lanes_by_key(filter, limit);
        }
        let queues = self.matching(filter.tenant.as_ref(), filter.queue.as_ref());
        let start = filter.cursor.as_deref().and_then(Walk::parse).unwrap_or(Walk::START);
        let which = if filter.running { Lanes::Running } else { Lanes::Busy };
        let mut items = Vec::new();
        let mut last = start;
        let mut next = None;
        self.walk(&queues, start, which, |view, row, at| {
            if items.len() == limit {
                next = Some(last.text());
                return Ok(false);
            }
            items.push(view.listed(&row)?);
            last = at;
            Ok(true)
        })?;
        Ok(Page { items, next })
    }

    /// Goes through the lanes with something to do, from `start` on, as long as `visit` says so.
    pub(super) fn walk(
        &mut self,
        queues: &[QueueRow],
        start: Walk,
        which: Lanes,
        mut visit: impl FnMut(&mut Self, LaneRow, Walk) -> rusqlite::Result<bool>,
    ) -> rusqlite::Result<()> {
        let stages = if which == Lanes::Running { 1 } else { Stage::COUNT };
        for nth in start.stage..stages {
            let stage = Stage::nth(nth);
            let left = |queue: &&QueueRow| nth > start.stage || queue.id >= start.queue;
            for queue in queues.iter().filter(left).filter(|queue| stage.is_of(queue)) {
                let resumed = nth == start.stage && queue.id == start.queue;
                let mut place = if resumed { start.place } else { Place::START };
                loop {
                    let rows = self.chunk(stage, queue.id, place)?;
                    let full = rows.len() == CHUNK;
                    for row in rows {
                        let row = self.with_worker(row)?;
                        place = stage.place(&row);
                        if !visit(self, row, Walk { stage: nth, queue: queue.id, place })? {
                            return Ok(());
                        }
                    }
                    if !full {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// The next lanes of a stage behind this place.
    fn chunk(&self, stage: Stage, queue: u64, place: Place) -> rusqlite::Result<Vec<LaneRow>> {
        let (queue, id, chunk) = (number(queue), number(place.id), number(CHUNK as u64));
        let (value, source) = (Value::Integer(place.value), number(place.source));
        let (sql, values) = match stage {
            Stage::Leased => (LEASED, vec![queue, value, id, chunk]),
            Stage::Due(priority) => {
                (DUE, vec![queue, value, id, chunk, Value::Integer(priority.into()), source])
            }
            Stage::Held => (HELD, vec![queue, id, chunk]),
        };
        let mut statement = self.connection.prepare_cached(sql)?;
        statement.query_map(rusqlite::params_from_iter(values), LaneRow::read)?.collect()
    }

    fn lanes_by_key(&mut self, filter: &LaneFilter, limit: usize) -> rusqlite::Result<Page<Listed>> {
        let prefix = filter.key_prefix.clone().unwrap_or_default();
        let cursor = filter.cursor.as_deref().and_then(|c| c.split_once('.'));
        let (start_queue, start_key) =
            cursor.map_or((0, String::new()), |(q, k)| (q.parse().unwrap_or(0), k.to_owned()));
        let (mut items, mut looked) = (Vec::new(), 0);
        let mut last = (start_queue, start_key.clone());
        for queue in self.matching(filter.tenant.as_ref(), filter.queue.as_ref()) {
            if queue.id < start_queue {
                continue;
            }
            let mut from = if queue.id == start_queue { behind(&start_key) } else { prefix.clone() };
            loop {
                let rows: Vec<LaneRow> = self
                    .connection
                    .prepare_cached(BY_KEY)?
                    .query_map((queue.id, &from, CHUNK), LaneRow::read)?
                    .collect::<rusqlite::Result<_>>()?;
                let full = rows.len() == CHUNK;
                let mut past = false;
                for row in rows {
                    past = !row.key.starts_with(&prefix);
                    if past {
                        break;
                    }
                    if items.len() == limit || looked == LOOK_MAX {
                        return Ok(Page { items, next: Some(format!("{}.{}", last.0, last.1)) });
                    }
                    looked += 1;
                    last = (queue.id, row.key.clone());
                    from = behind(&row.key);
                    let lane = &row.lane;
                    let busy = !lane.is_idle() || lane.paused.is_some() || lane.blocked.is_some();
                    let wanted = (filter.idle || busy) && (!filter.running || lane.lease_at().is_some());
                    if wanted {
                        let row = self.with_worker(row)?;
                        items.push(self.listed(&row)?);
                    }
                }
                if past || !full {
                    break;
                }
            }
        }
        Ok(Page { items, next: None })
    }

    pub(super) fn listed(&mut self, row: &LaneRow) -> rusqlite::Result<Listed> {
        let paused = self.queue(row.queue_id).and_then(|queue| self.paused_by(queue));
        let (key, now) = (self.lane_key(row)?, self.now);
        Ok(Listed::of(&row.lane, &key, now, paused, self.source_for(&row.lane)?))
    }
}

/// The first text behind this key: no key holds a NUL, and keys compare as bytes.
fn behind(key: &str) -> String {
    if key.is_empty() { String::new() } else { format!("{key}\0") }
}

pub(super) fn page_limit(limit: usize) -> usize {
    if limit == 0 { limits::PAGE_DEFAULT } else { limit.min(limits::PAGE_MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_priority_is_a_stage_of_its_own() {
        let stages: Vec<Stage> = (0..Stage::COUNT).map(Stage::nth).collect();
        assert_eq!(stages[0], Stage::Leased);
        assert_eq!(stages[Stage::COUNT - 1], Stage::Held);
        let due: Vec<Stage> = (0..=limits::PRIORITY_MAX).rev().map(Stage::Due).collect();
        assert_eq!(stages[1..Stage::COUNT - 1], due);
    }

    #[test]
    fn cursors_come_back_as_they_were() {
        let walk = Walk { stage: 7, queue: 3, place: Place { source: 9, value: -5, id: 42 } };
        assert_eq!(Walk::parse(&walk.text()), Some(walk));
        for bad in ["", "1", "1.2.3.4", "a.b.c.d.e", "1.2.3.4.18446744073709551615"] {
            assert_eq!(Walk::parse(bad), None, "{bad}");
        }
    }
}
