//! Listings of lanes, and one lane in full.
//!
//! Lanes with something to do are found in stages: those held by workers by the index of leases, those that wait by the
//! index of due times, one priority after the other, and those that an operator paused or a failed run blocked by an
//! index of their own. The conditions of the stages exclude one another, so no lane is in two of them.

use quell_core::error::StoreResult;
use quell_core::event::LaneKey;
use quell_core::inspect::{LaneDetail, LaneFilter, LaneRow as Listed, Page, Waiting};
use quell_core::limits;
use quell_store_rows::rows::LaneAt;
use tokio_postgres::types::Type;

use super::{QueueRow, View};
use crate::connection::Sql;
use crate::first::events_of_lane;
use crate::rows::{clean, count, event_columns, kept, lane_columns, number};

/// Lanes that are held by workers.
static LEASED: Sql = Sql {
    text: concat!(
        "SELECT ",
        lane_columns!(),
        " FROM (SELECT lease_at, lane_id FROM quell.lease WHERE queue_id = $1 AND (lease_at, lane_id) > ($2, $3)
               UNION
               SELECT g.lease_at, u.lane FROM quell.lease_group g CROSS JOIN LATERAL unnest(g.lanes) AS u(lane)
               WHERE g.queue_id = $1 AND g.lease_at >= $2 AND (g.lease_at, u.lane) > ($2, $3)) s
         JOIN quell.lane l ON l.id = s.lane_id AND l.lease_at = s.lease_at
         ORDER BY s.lease_at, s.lane_id LIMIT $4"
    ),
    types: &[Type::INT4, Type::INT8, Type::INT8, Type::INT8],
};
/// Lanes of one priority that wait for their time, their source or a worker: the first of each source and of none.
static DUE: Sql = Sql {
    text: concat!(
        "SELECT ",
        lane_columns!(),
        " FROM (SELECT 0::bigint AS id UNION ALL SELECT source FROM quell.queue_source WHERE queue_id = $1) s
         CROSS JOIN LATERAL (
           SELECT e.due_at, e.lane_id FROM quell.due e JOIN quell.lane n ON n.id = e.lane_id AND n.lease_at IS NULL
           WHERE e.queue_id = $1 AND e.source = s.id AND e.priority = $5 AND (e.due_at, e.lane_id) > ($2, $3)
           ORDER BY e.due_at, e.lane_id LIMIT $4) d
         JOIN quell.lane l ON l.id = d.lane_id ORDER BY d.due_at, d.lane_id LIMIT $4"
    ),
    types: &[Type::INT4, Type::INT8, Type::INT8, Type::INT8, Type::INT2],
};
/// Lanes that are paused or blocked and not held by a worker.
static HELD: Sql = Sql {
    text: concat!(
        "SELECT ",
        lane_columns!(),
        " FROM quell.lane l WHERE l.queue_id = $1 AND l.held AND l.id > $2 AND l.lease_at IS NULL AND l.due_at IS NULL
         ORDER BY l.id LIMIT $3"
    ),
    types: &[Type::INT4, Type::INT8, Type::INT8],
};
/// Every lane of a queue by its key, for prefixes and for lists with idle lanes.
static BY_KEY: Sql = Sql {
    text: concat!(
        "SELECT ",
        lane_columns!(),
        " FROM quell.lane l WHERE l.queue_id = $1 AND l.key >= $2 AND l.key > $3 ORDER BY l.key LIMIT $4"
    ),
    types: &[Type::INT4, Type::TEXT, Type::TEXT, Type::INT8],
};
static DELAYED: Sql = Sql {
    text: "SELECT count(*) FROM quell.aside WHERE queue_id = $1 AND key = $2",
    types: &[Type::INT4, Type::TEXT],
};
static BUFFERED: Sql = Sql {
    text: concat!(
        "SELECT ",
        event_columns!(),
        " FROM (",
        events_of_lane!("$1", "e.seq >= $2 AND e.mark IS NULL", "$3"),
        ") e ORDER BY e.seq LIMIT $3"
    ),
    types: &[Type::INT8, Type::INT8, Type::INT8],
};

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
    fn value(self, at: &LaneAt) -> i64 {
        let entry = match self {
            Stage::Leased => at.entries.lease,
            Stage::Due(_) => at.entries.due,
            Stage::Held => None,
        };
        entry.map_or(0, |entry| entry.as_millis())
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
    queue: i32,
    value: i64,
    id: u64,
}

impl Walk {
    pub(super) const START: Walk = Walk { stage: 0, queue: 0, value: i64::MIN, id: 0 };

    pub(super) fn parse(text: &str) -> Option<Walk> {
        let mut parts = text.split('.');
        let mut part = || parts.next();
        Some(Walk {
            stage: part()?.parse().ok()?,
            queue: part()?.parse().ok()?,
            value: part()?.parse().ok()?,
            id: part()?.parse().ok().filter(|id| *id < limits::NUMBER_MAX)?,
        })
    }

    pub(super) fn text(self) -> String {
        format!("{}.{}.{}.{}", self.stage, self.queue, self.value, self.id)
    }
}

impl View<'_> {
    pub(super) async fn lane_detail(&self, key: &LaneKey) -> StoreResult<Option<LaneDetail>> {
        let Some(at) = self.find_lane(key).await? else { return Ok(None) };
        let Some(queue) = self.find_queue(key) else { return Ok(None) };
        let lane = &at.lane;
        let paused = self.paused_by(&key.tenant, &key.queue);
        let delayed = self.query(&DELAYED, &[&queue.id, &key.key.as_str()]).await?;
        let mut events = Vec::new();
        if let Some(open) = lane.open {
            // A full lane may hold gigabytes; a page of it is enough to see what it is.
            let page = number(limits::PAGE_DEFAULT as u64);
            for row in &self.query(&BUFFERED, &[&number(lane.id), &number(open.lo), &page]).await? {
                events.push(kept(row, 0)?.event);
            }
        }
        let sources = self.sources_of(std::iter::once(&at)).await?;
        let source = sources.values().next();
        Ok(Some(LaneDetail {
            row: Listed::of(lane, key, self.now, paused.clone(), source),
            now: self.now,
            waiting: Waiting::of(lane, self.now, paused, source),
            open_run: lane.open.map(|o| lane.run_id(o.number)),
            current_run: lane.current.as_ref().map(|c| lane.run_id(c.number)),
            queued_runs: lane.queued.iter().map(|c| lane.run_id(c.number)).collect(),
            delayed: delayed.first().map_or(Ok(0), |row| count(row, 0))?,
            events,
        }))
    }

    pub(super) async fn lanes(&self, filter: &LaneFilter) -> StoreResult<Page<Listed>> {
        let limit = page_limit(filter.limit);
        if filter.idle || filter.key_prefix.is_some() {
            return self.lanes_by_key(filter, limit).await;
        }
        let queues = self.matching(filter.tenant.as_ref(), filter.queue.as_ref());
        let start = filter.cursor.as_deref().and_then(Walk::parse).unwrap_or(Walk::START);
        let which = if filter.running { Lanes::Running } else { Lanes::Busy };
        let mut found = self.walk(&queues, start, which, limit + 1).await?;
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).map(|(_, walk)| walk.text());
        let lanes: Vec<LaneAt> = found.into_iter().map(|(at, _)| at).collect();
        Ok(Page { items: self.listed(&lanes).await?, next })
    }

    /// The first lanes with something to do behind `start`, each with its place in the walk.
    pub(super) async fn walk(
        &self,
        queues: &[QueueRow],
        start: Walk,
        which: Lanes,
        most: usize,
    ) -> StoreResult<Vec<(LaneAt, Walk)>> {
        let stages = if which == Lanes::Running { 1 } else { Stage::COUNT };
        let mut found = Vec::new();
        for nth in start.stage..stages {
            let stage = Stage::nth(nth);
            let left = |queue: &&QueueRow| nth > start.stage || queue.id >= start.queue;
            for queue in queues.iter().filter(left).filter(|queue| stage.is_of(queue)) {
                let resumed = nth == start.stage && queue.id == start.queue;
                let (mut value, mut id) = if resumed { (start.value, start.id) } else { (i64::MIN, 0) };
                loop {
                    let chunk = CHUNK.min(most - found.len());
                    let lanes = self.chunk(stage, queue.id, value, id, chunk).await?;
                    let full = lanes.len() == chunk;
                    for at in lanes {
                        (value, id) = (stage.value(&at), at.lane.id);
                        found.push((at, Walk { stage: nth, queue: queue.id, value, id }));
                    }
                    if found.len() == most {
                        return Ok(found);
                    }
                    if !full {
                        break;
                    }
                }
            }
        }
        Ok(found)
    }

    /// The next lanes of a stage behind this place.
    async fn chunk(
        &self,
        stage: Stage,
        queue: i32,
        value: i64,
        id: u64,
        most: usize,
    ) -> StoreResult<Vec<LaneAt>> {
        let (id, most) = (number(id), number(most as u64));
        let rows = match stage {
            Stage::Leased => self.query(&LEASED, &[&queue, &value, &id, &most]).await?,
            Stage::Due(priority) => {
                self.query(&DUE, &[&queue, &value, &id, &most, &i16::from(priority)]).await?
            }
            Stage::Held => self.query(&HELD, &[&queue, &id, &most]).await?,
        };
        rows.iter().map(|row| self.lane_at(row)).collect()
    }

    async fn lanes_by_key(&self, filter: &LaneFilter, limit: usize) -> StoreResult<Page<Listed>> {
        let prefix = filter.key_prefix.as_deref().unwrap_or_default();
        let cursor = filter.cursor.as_deref().and_then(|c| c.split_once('.'));
        let (start_queue, start_key) =
            cursor.map_or((0, String::new()), |(q, k)| (q.parse().unwrap_or(0), k.to_owned()));
        let (mut items, mut looked) = (Vec::new(), 0);
        let mut last = (start_queue, start_key.clone());
        for queue in self.matching(filter.tenant.as_ref(), filter.queue.as_ref()) {
            if queue.id < start_queue {
                continue;
            }
            let mut behind = if queue.id == start_queue { start_key.clone() } else { String::new() };
            loop {
                let rows = self
                    .query(&BY_KEY, &[&queue.id, &clean(prefix), &clean(&behind), &number(CHUNK as u64)])
                    .await?;
                let full = rows.len() == CHUNK;
                let mut past = false;
                for row in &rows {
                    let at = self.lane_at(row)?;
                    past = !at.key.key.as_str().starts_with(prefix);
                    if past {
                        break;
                    }
                    if items.len() == limit || looked == LOOK_MAX {
                        let next = Some(format!("{}.{}", last.0, last.1));
                        return Ok(Page { items: self.listed(&items).await?, next });
                    }
                    looked += 1;
                    at.key.key.as_str().clone_into(&mut behind);
                    last = (queue.id, behind.clone());
                    let lane = &at.lane;
                    let busy = !lane.is_idle() || lane.paused.is_some() || lane.blocked.is_some();
                    if (filter.idle || busy) && (!filter.running || lane.lease_at().is_some()) {
                        items.push(at);
                    }
                }
                if past || !full {
                    break;
                }
            }
        }
        Ok(Page { items: self.listed(&items).await?, next: None })
    }

    /// Lanes with what they wait for.
    async fn listed(&self, lanes: &[LaneAt]) -> StoreResult<Vec<Listed>> {
        let sources = self.sources_of(lanes.iter()).await?;
        let listed = |at: &LaneAt| {
            let paused = self.paused_by(&at.key.tenant, &at.key.queue);
            let source = at.lane.source().and_then(|id| sources.get(&id));
            Listed::of(&at.lane, &at.key, self.now, paused, source)
        };
        Ok(lanes.iter().map(listed).collect())
    }
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
        let walk = Walk { stage: 7, queue: 3, value: -5, id: 42 };
        assert_eq!(Walk::parse(&walk.text()), Some(walk));
        for bad in ["", "1", "1.2.3", "a.b.c.d", "1.2.3.18446744073709551615"] {
            assert_eq!(Walk::parse(bad), None, "{bad}");
        }
    }
}
