//! Listings of lanes, and one lane in full.

use quell_core::event::LaneKey;
use quell_core::inspect::{LaneDetail, LaneFilter, LaneRow as Listed, Page, Waiting};
use quell_core::limits;

use super::View;
use crate::rows::LaneRow;

/// Where lanes with something to do are found, one after the other; no lane is in two of them.
pub(super) const PLACES: [&str; 3] = [
    concat!(
        include_str!("../../sql/lane.sql"),
        "WHERE queue_id = ?1 AND lease_at IS NOT NULL AND (lease_at, id) > (?2, ?3) ORDER BY lease_at, id LIMIT ?4"
    ),
    concat!(
        include_str!("../../sql/lane.sql"),
        "WHERE queue_id = ?1 AND due_at IS NOT NULL AND (due_at, id) > (?2, ?3) ORDER BY due_at, id LIMIT ?4"
    ),
    concat!(
        include_str!("../../sql/lane.sql"),
        "WHERE queue_id = ?1 AND paused_at IS NOT NULL AND lease_at IS NULL AND ?2 <= 0 AND id > ?3 ORDER BY id LIMIT ?4"
    ),
];

/// Every lane of a queue by its key, for prefixes and for lists with idle lanes.
const BY_KEY: &str =
    concat!(include_str!("../../sql/lane.sql"), "WHERE queue_id = ?1 AND key >= ?2 ORDER BY key LIMIT ?3");

/// Rows that one page of a filtered walk looks at before it hands out a cursor.
const LOOK_MAX: usize = 20_000;

/// How far a walk over the places has come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Walk {
    pub(super) place: usize,
    pub(super) queue: u64,
    pub(super) value: i64,
    pub(super) id: u64,
}

impl Walk {
    pub(super) const START: Walk = Walk { place: 0, queue: 0, value: i64::MIN, id: 0 };

    pub(super) fn parse(text: &str) -> Option<Walk> {
        let mut parts = text.split('.');
        let mut part = || parts.next();
        Some(Walk {
            place: part()?.parse().ok()?,
            queue: part()?.parse().ok()?,
            value: part()?.parse().ok()?,
            id: part()?.parse().ok()?,
        })
    }

    pub(super) fn text(self) -> String {
        format!("{}.{}.{}.{}", self.place, self.queue, self.value, self.id)
    }
}

impl View<'_> {
    pub(super) fn lane_detail(&mut self, key: &LaneKey) -> rusqlite::Result<Option<LaneDetail>> {
        let Some(row) = self.find_lane(key)? else { return Ok(None) };
        let lane = &row.lane;
        let paused = self.queue(row.queue_id).and_then(|queue| self.paused_by(queue));
        let events = match lane.open {
            Some(open) => {
                // A full lane may hold gigabytes; a page of it is enough to see what it is.
                let sql = concat!(include_str!("../../sql/claim_events.sql"), " LIMIT ?4");
                let mut statement = self.connection.prepare_cached(sql)?;
                let page = (lane.id, open.lo, lane.head_seq, limits::PAGE_DEFAULT);
                statement.query_map(page, crate::rows::event)?.collect::<rusqlite::Result<_>>()?
            }
            None => Vec::new(),
        };
        Ok(Some(LaneDetail {
            row: Listed::of(lane, key, self.now, paused.clone()),
            now: self.now,
            waiting: Waiting::of(lane, self.now, paused),
            open_run: lane.open.map(|o| lane.run_id(o.number)),
            current_run: lane.current.as_ref().map(|c| lane.run_id(c.number)),
            events,
        }))
    }

    pub(super) fn lanes(&mut self, filter: &LaneFilter) -> rusqlite::Result<Page<Listed>> {
        let limit = page_limit(filter.limit);
        if filter.idle || filter.key_prefix.is_some() {
            return self.lanes_by_key(filter, limit);
        }
        let queues = self.matching(filter.tenant.as_ref(), filter.queue.as_ref());
        let ids: Vec<u64> = queues.iter().map(|q| q.id).collect();
        let start = filter.cursor.as_deref().and_then(Walk::parse).unwrap_or(Walk::START);
        let places = if filter.running { 1 } else { PLACES.len() };
        let mut items = Vec::new();
        let mut last = start;
        let mut next = None;
        self.walk(&ids, start, places, |view, row, at| {
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
        queues: &[u64],
        start: Walk,
        places: usize,
        mut visit: impl FnMut(&mut Self, LaneRow, Walk) -> rusqlite::Result<bool>,
    ) -> rusqlite::Result<()> {
        for (place, sql) in PLACES.iter().enumerate().take(places).skip(start.place) {
            for &queue in queues.iter().filter(|q| place > start.place || **q >= start.queue) {
                let resumed = place == start.place && queue == start.queue;
                let (mut value, mut id) = if resumed { (start.value, start.id) } else { (i64::MIN, 0) };
                loop {
                    let rows: Vec<LaneRow> = self
                        .connection
                        .prepare_cached(sql)?
                        .query_map((queue, value, id, 256), LaneRow::read)?
                        .collect::<rusqlite::Result<_>>()?;
                    let full = rows.len() == 256;
                    for row in rows {
                        let row = self.with_worker(row)?;
                        value = match place {
                            0 => row.lease_entry.map_or(0, |t| t.as_millis()),
                            1 => row.due_entry.map_or(0, |t| t.as_millis()),
                            _ => 0,
                        };
                        id = row.lane.id;
                        if !visit(self, row, Walk { place, queue, value, id })? {
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
                    .query_map((queue.id, &from, 256), LaneRow::read)?
                    .collect::<rusqlite::Result<_>>()?;
                let full = rows.len() == 256;
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
                    let busy = row.lane.state().is_some() || row.lane.paused.is_some();
                    let wanted = (filter.idle || busy) && (!filter.running || row.lane.lease_at().is_some());
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

    pub(super) fn listed(&self, row: &LaneRow) -> rusqlite::Result<Listed> {
        let paused = self.queue(row.queue_id).and_then(|queue| self.paused_by(queue));
        Ok(Listed::of(&row.lane, &self.lane_key(row)?, self.now, paused))
    }
}

/// The first text behind this key: no key holds a NUL, and keys compare as bytes.
fn behind(key: &str) -> String {
    if key.is_empty() { String::new() } else { format!("{key}\0") }
}

pub(super) fn page_limit(limit: usize) -> usize {
    if limit == 0 { limits::PAGE_DEFAULT } else { limit.min(limits::PAGE_MAX) }
}
