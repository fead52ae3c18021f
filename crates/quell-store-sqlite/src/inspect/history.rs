//! Runs and audit: what is going on now, then what ended, from the newest backwards.

use quell_core::audit::AuditRecord;
use quell_core::batch::RunId;
use quell_core::clock::Timestamp;
use quell_core::event::LaneKey;
use quell_core::inspect::{AuditFilter, Page, RunDetail, RunFilter, RunRow};
use quell_core::lifecycle::{Change, RunState};
use quell_core::limits;
use quell_core::window::FiredBy;
use rusqlite::{OptionalExtension, Row};

use super::View;
use super::lanes::{PLACES, Walk, page_limit};
use crate::claim::{key_of, read_events};
use crate::rows::{self, LaneRow, maybe_time, time};
use crate::tx::LANE_BY_ID;

const RUN: &str = "SELECT id, lane_id, number, state, lo, hi, count, bytes, first_at, last_at, fired_by, claims, refunds, \
    retries, token, worker, claimed_at, heartbeat_at, finished_at, error FROM run";
const AUDIT: &str = "SELECT id, at, queue_id, lane_id, run, change, from_state, to_state, attempt, token, worker, \
    prior_worker, upto_seq, next_at, actor FROM audit";

/// Rows that one page of a filtered listing looks at before it hands out a cursor.
const LOOK_MAX: usize = 5_000;

impl View<'_> {
    pub(super) fn run(&mut self, id: RunId) -> rusqlite::Result<Option<RunDetail>> {
        if !id.is_plausible() {
            return Ok(None);
        }
        let lane =
            self.connection.prepare_cached(LANE_BY_ID)?.query_row([id.lane], LaneRow::read).optional()?;
        let Some(lane) = lane else { return Ok(None) };
        let lane = self.with_worker(lane)?;
        let key = self.lane_key(&lane)?;
        let live = [RunRow::of_current(&lane.lane, &key), RunRow::of_open(&lane.lane, &key)];
        let mut found = live.into_iter().flatten().find(|row| row.id == id);
        let (mut result, mut usage) = (None, std::collections::BTreeMap::new());
        if found.is_none() {
            let sql = format!("{RUN} WHERE lane_id = ?1 AND number = ?2");
            let mut statement = self.connection.prepare_cached(&sql)?;
            let ended = statement.query_row((id.lane, id.number), Ended::read).optional()?;
            let Some(ended) = ended else { return Ok(None) };
            let sql = "SELECT result, usage FROM run WHERE id = ?1";
            let texts: (Option<String>, Option<String>) = self
                .connection
                .prepare_cached(sql)?
                .query_row([ended.id], |row| Ok((row.get(0)?, row.get(1)?)))?;
            result = texts.0.and_then(|t| serde_json::from_str(&t).ok());
            usage = texts.1.and_then(|t| serde_json::from_str(&t).ok()).unwrap_or_default();
            found = Some(self.ended_row(ended, &key)?);
        }
        let Some(row) = found else { return Ok(None) };
        let list = read_events(self.connection, id.lane, row.lo, row.hi)?;
        let filter = AuditFilter { run: Some(id), limit: limits::PAGE_MAX, ..AuditFilter::default() };
        let audit = self.audit(&filter)?.items;
        Ok(Some(RunDetail { row, result, usage, list, audit }))
    }

    pub(super) fn runs(&mut self, filter: &RunFilter) -> rusqlite::Result<Page<RunRow>> {
        let limit = page_limit(filter.limit);
        let mut items = Vec::new();
        let finished_from = filter.cursor.as_deref().and_then(|c| c.strip_prefix("f."));
        if finished_from.is_none() && filter.state.is_none_or(|s| !s.is_final()) {
            let start = filter.cursor.as_deref().and_then(Walk::parse).unwrap_or(Walk::START);
            if let Some(next) = self.live_runs(filter, start, limit, &mut items)? {
                return Ok(Page { items, next: Some(next) });
            }
        }
        if filter.state.is_some_and(|s| !s.is_final()) {
            return Ok(Page { items, next: None });
        }
        let from = finished_from.and_then(|c| c.parse().ok()).unwrap_or(i64::MAX);
        let next = self.finished_runs(filter, from, limit, &mut items)?;
        Ok(Page { items, next })
    }

    /// The current and open runs of lanes with something to do; a cursor if there are more than fit.
    fn live_runs(
        &mut self,
        filter: &RunFilter,
        start: Walk,
        limit: usize,
        items: &mut Vec<RunRow>,
    ) -> rusqlite::Result<Option<String>> {
        if let Some(key) = &filter.key {
            return self.live_runs_of_key(filter, key.clone(), items).map(|()| None);
        }
        let ids: Vec<u64> =
            self.matching(filter.tenant.as_ref(), filter.queue.as_ref()).iter().map(|q| q.id).collect();
        let (mut next, mut last) = (None, start);
        self.walk(&ids, start, PLACES.len(), |view, row, at| {
            if items.len() >= limit {
                next = Some(last.text());
                return Ok(false);
            }
            let key = view.lane_key(&row)?;
            let rows = [RunRow::of_current(&row.lane, &key), RunRow::of_open(&row.lane, &key)];
            items.extend(rows.into_iter().flatten().filter(|r| filter.state.is_none_or(|s| s == r.state)));
            last = at;
            Ok(true)
        })?;
        Ok(next)
    }

    fn live_runs_of_key(
        &mut self,
        filter: &RunFilter,
        key: quell_core::event::Key,
        items: &mut Vec<RunRow>,
    ) -> rusqlite::Result<()> {
        for queue in self.matching(filter.tenant.as_ref(), filter.queue.as_ref()) {
            let key = LaneKey { tenant: queue.tenant.clone(), queue: queue.name.clone(), key: key.clone() };
            if let Some(row) = self.find_lane(&key)? {
                let rows = [RunRow::of_open(&row.lane, &key), RunRow::of_current(&row.lane, &key)];
                items
                    .extend(rows.into_iter().flatten().filter(|r| filter.state.is_none_or(|s| s == r.state)));
            }
        }
        Ok(())
    }

    fn finished_runs(
        &mut self,
        filter: &RunFilter,
        from: i64,
        limit: usize,
        items: &mut Vec<RunRow>,
    ) -> rusqlite::Result<Option<String>> {
        let mut lane_ids = None;
        if let Some(key) = &filter.key {
            let mut ids = Vec::new();
            for queue in self.matching(filter.tenant.as_ref(), filter.queue.as_ref()) {
                let key =
                    LaneKey { tenant: queue.tenant.clone(), queue: queue.name.clone(), key: key.clone() };
                ids.extend(self.find_lane(&key)?.map(|row| row.lane.id));
            }
            lane_ids = Some(ids);
        }
        let (condition, lanes) = match &lane_ids {
            Some(ids) => ("lane_id = ?2 AND", ids.clone()),
            None if filter.state == Some(RunState::Failed) => ("state = 4 AND ?2 >= 0 AND", vec![0]),
            None => ("?2 >= 0 AND", vec![0]),
        };
        let sql = format!("{RUN} WHERE {condition} id < ?1 ORDER BY id DESC LIMIT ?3");
        let mut ended: Vec<Ended> = Vec::new();
        for lane in &lanes {
            let mut statement = self.connection.prepare_cached(&sql)?;
            for row in statement.query_map((from, lane, LOOK_MAX), Ended::read)? {
                ended.push(row?);
            }
        }
        ended.sort_by_key(|e| std::cmp::Reverse(e.id));
        let looked = ended.len();
        let mut last = None;
        for run in ended {
            if items.len() >= limit {
                return Ok(last.map(|id: u64| format!("f.{id}")).or_else(|| Some(format!("f.{from}"))));
            }
            last = Some(run.id);
            if filter.state.is_some_and(|s| s != run.state) {
                continue;
            }
            if let Some(key) = self.key_of_lane(run.lane)?
                && filter.tenant.as_ref().is_none_or(|t| *t == key.tenant)
                && filter.queue.as_ref().is_none_or(|q| *q == key.queue)
            {
                items.push(self.ended_row(run, &key)?);
            }
        }
        Ok(last.filter(|_| looked >= LOOK_MAX).map(|id| format!("f.{id}")))
    }

    fn key_of_lane(&self, lane: u64) -> rusqlite::Result<Option<LaneKey>> {
        let sql = "SELECT queue_id, key FROM lane WHERE id = ?1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let found: Option<(u64, String)> =
            statement.query_row([lane], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let Some((queue, key)) = found else { return Ok(None) };
        let Some(queue) = self.queue(queue) else { return Ok(None) };
        Ok(Some(LaneKey { tenant: queue.tenant.clone(), queue: queue.name.clone(), key: key_of(&key)? }))
    }

    fn ended_row(&mut self, e: Ended, key: &LaneKey) -> rusqlite::Result<RunRow> {
        let worker = e.worker.map(|id| self.worker(id)).transpose()?;
        Ok(RunRow {
            id: RunId { lane: e.lane, number: e.number },
            lane: key.clone(),
            state: e.state,
            events: e.count,
            bytes: e.bytes,
            lo: e.lo,
            hi: e.hi,
            attempts: e.claims - e.refunds,
            claims: e.claims,
            retries: e.retries,
            token: e.token,
            fired_by: Some(e.fired_by),
            worker,
            created_at: e.first_at,
            last_at: e.last_at,
            claimed_at: Some(e.claimed_at),
            heartbeat_at: Some(e.heartbeat_at),
            lease_until: None,
            next_at: None,
            updated_at: e.finished_at,
            completed_at: Some(e.finished_at),
            error: e.error,
        })
    }

    pub(super) fn audit(&mut self, filter: &AuditFilter) -> rusqlite::Result<Page<AuditRecord>> {
        let limit = page_limit(filter.limit);
        let from: i64 = filter.cursor.as_deref().and_then(|c| c.parse().ok()).unwrap_or(i64::MAX);
        let mut lanes = Vec::new();
        if let Some(run) = filter.run {
            lanes.push(run.lane);
        } else if let Some(key) = &filter.key {
            for queue in self.matching(filter.tenant.as_ref(), filter.queue.as_ref()) {
                let key =
                    LaneKey { tenant: queue.tenant.clone(), queue: queue.name.clone(), key: key.clone() };
                lanes.extend(self.find_lane(&key)?.map(|row| row.lane.id));
            }
        }
        let by_lane = filter.run.is_some() || filter.key.is_some();
        let condition = match filter.run {
            Some(run) => format!("lane_id = ?2 AND run = {} AND", run.number),
            None if by_lane => "lane_id = ?2 AND".to_owned(),
            None => "?2 >= 0 AND".to_owned(),
        };
        if !by_lane {
            lanes.push(0);
        }
        let sql = format!("{AUDIT} WHERE {condition} id < ?1 ORDER BY id DESC LIMIT ?3");
        let mut records: Vec<Recorded> = Vec::new();
        for lane in lanes {
            let mut statement = self.connection.prepare_cached(&sql)?;
            for row in statement.query_map((from, lane, LOOK_MAX), Recorded::read)? {
                records.push(row?);
            }
        }
        records.sort_by_key(|r| std::cmp::Reverse(r.id));
        let (looked, mut items, mut last) = (records.len(), Vec::new(), None);
        for record in records {
            if items.len() == limit {
                return Ok(Page { items, next: last.map(|id: u64| id.to_string()) });
            }
            last = Some(record.id);
            if filter.run.is_some_and(|run| record.run != Some(run.number)) {
                continue;
            }
            let Some(shown) = self.shown(record)? else { continue };
            if filter.tenant.as_ref().is_none_or(|t| *t == shown.tenant)
                && filter.queue.as_ref().is_none_or(|q| *q == shown.queue)
            {
                items.push(shown);
            }
        }
        Ok(Page { items, next: last.filter(|_| looked >= LOOK_MAX).map(|id| id.to_string()) })
    }

    fn shown(&mut self, record: Recorded) -> rusqlite::Result<Option<AuditRecord>> {
        let Some(queue) = self.queue(record.queue).cloned() else { return Ok(None) };
        let lane = record.lane.map(|id| self.key_of_lane(id)).transpose()?.flatten();
        let worker = record.worker.map(|id| self.worker(id)).transpose()?;
        let prior_worker = record.prior_worker.map(|id| self.worker(id)).transpose()?;
        Ok(Some(AuditRecord {
            id: record.id,
            at: record.at,
            tenant: queue.tenant,
            queue: queue.name,
            key: lane.map(|l| l.key),
            run: record.lane.zip(record.run).map(|(lane, number)| RunId { lane, number }),
            change: record.change,
            from: record.from,
            to: record.to,
            attempt: record.attempt,
            token: record.token,
            worker,
            prior_worker,
            upto_seq: record.upto_seq,
            next_at: record.next_at,
            actor: record.actor,
        }))
    }
}

/// A finished run as its row.
struct Ended {
    id: u64,
    lane: u64,
    number: u64,
    state: RunState,
    lo: u64,
    hi: u64,
    count: u64,
    bytes: u64,
    first_at: Timestamp,
    last_at: Timestamp,
    fired_by: FiredBy,
    claims: u32,
    refunds: u32,
    retries: u32,
    token: u64,
    worker: Option<u64>,
    claimed_at: Timestamp,
    heartbeat_at: Timestamp,
    finished_at: Timestamp,
    error: Option<String>,
}

impl Ended {
    fn read(row: &Row<'_>) -> rusqlite::Result<Ended> {
        Ok(Ended {
            id: row.get(0)?,
            lane: row.get(1)?,
            number: row.get(2)?,
            state: rows::decode(&RunState::ALL, row.get(3)?)?,
            lo: row.get(4)?,
            hi: row.get(5)?,
            count: row.get(6)?,
            bytes: row.get(7)?,
            first_at: time(row, 8)?,
            last_at: time(row, 9)?,
            fired_by: rows::decode(&FiredBy::ALL, row.get(10)?)?,
            claims: row.get(11)?,
            refunds: row.get(12)?,
            retries: row.get(13)?,
            token: row.get(14)?,
            worker: row.get(15)?,
            claimed_at: time(row, 16)?,
            heartbeat_at: time(row, 17)?,
            finished_at: time(row, 18)?,
            error: row.get(19)?,
        })
    }
}

/// An audit record as its row.
struct Recorded {
    id: u64,
    at: Timestamp,
    queue: u64,
    lane: Option<u64>,
    run: Option<u64>,
    change: Change,
    from: Option<RunState>,
    to: Option<RunState>,
    attempt: u32,
    token: u64,
    worker: Option<u64>,
    prior_worker: Option<u64>,
    upto_seq: u64,
    next_at: Option<Timestamp>,
    actor: Option<String>,
}

impl Recorded {
    fn read(row: &Row<'_>) -> rusqlite::Result<Recorded> {
        let state = |column| -> rusqlite::Result<Option<RunState>> {
            row.get::<_, Option<i64>>(column)?.map(|code| rows::decode(&RunState::ALL, code)).transpose()
        };
        Ok(Recorded {
            id: row.get(0)?,
            at: time(row, 1)?,
            queue: row.get(2)?,
            lane: row.get(3)?,
            run: row.get(4)?,
            change: rows::decode(&Change::ALL, row.get(5)?)?,
            from: state(6)?,
            to: state(7)?,
            attempt: row.get(8)?,
            token: row.get(9)?,
            worker: row.get(10)?,
            prior_worker: row.get(11)?,
            upto_seq: row.get(12)?,
            next_at: maybe_time(row, 13)?,
            actor: row.get(14)?,
        })
    }
}
