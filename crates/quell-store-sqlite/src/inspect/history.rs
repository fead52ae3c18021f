//! Runs and audit: what is going on now, then what ended, from the newest backwards.

use std::collections::BTreeMap;
use std::sync::Arc;

use quell_core::attempt;
use quell_core::audit::AuditRecord;
use quell_core::batch::RunId;
use quell_core::clock::Timestamp;
use quell_core::event::{Event, Key, LaneKey};
use quell_core::inspect::{AuditFilter, Page, RunDetail, RunFilter, RunRow};
use quell_core::lifecycle::{Change, RunState};
use quell_core::limits;
use quell_core::outcome::VerdictKind;
use quell_core::store::StepRow;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};

use super::View;
use super::lanes::{Lanes, Walk, page_limit};
use crate::claim::{key_of, run_events};
use crate::rows::{self, LaneRow, RunRecord, from_json, maybe_time, number, time};
use crate::tx::LANE_BY_ID;

macro_rules! run {
    ($condition:literal) => {
        concat!(include_str!("../../sql/run.sql"), "WHERE ", $condition)
    };
}
macro_rules! audit {
    ($condition:literal) => {
        concat!(
            "SELECT id, at, queue_id, lane_id, run, change, from_state, to_state, attempt, token, worker, prior_worker,
                    upto_seq, next_at, actor, other_run, verdict
             FROM audit WHERE ",
            $condition,
            " id < ?1 ORDER BY id DESC LIMIT ?2"
        )
    };
}
pub(super) const RUN_BY_NUMBER: &str = run!("lane_id = ?1 AND number = ?2");
pub(super) const RUNS: &str = run!("id < ?1 ORDER BY id DESC LIMIT ?2");
/// The dead letter: failed runs that still have events. Those that were halved or redriven have none.
pub(super) const RUNS_DEAD: &str = run!("state = 4 AND count > 0 AND id < ?1 ORDER BY id DESC LIMIT ?2");
/// By the lane's own index; the `+` keeps SQLite from walking the history of all lanes instead.
pub(super) const RUNS_OF_LANE: &str = run!("lane_id = ?3 AND +id < ?1 ORDER BY id DESC LIMIT ?2");
pub(super) const AUDIT: &str = audit!("");
pub(super) const AUDIT_OF_LANE: &str = audit!("lane_id = ?3 AND");
pub(super) const AUDIT_OF_RUN: &str = audit!("lane_id = ?3 AND run = ?4 AND");
pub(super) const STEPS: &str = "SELECT revision, name, at, token, value FROM step WHERE lane_id = ?1 AND run = ?2 ORDER BY revision, name";

/// Rows that one page of a filtered listing looks at before it hands out a cursor.
const LOOK_MAX: usize = 5_000;

/// A run that was found, with what belongs to it.
struct Found {
    row: RunRow,
    list: Vec<Event>,
    result: Option<serde_json::Value>,
    usage: BTreeMap<String, f64>,
}

impl View<'_> {
    pub(super) fn run(&mut self, id: RunId) -> rusqlite::Result<Option<RunDetail>> {
        if !id.is_plausible() {
            return Ok(None);
        }
        let lane =
            self.connection.prepare_cached(LANE_BY_ID)?.query_row([id.lane], LaneRow::read).optional()?;
        let Some(lane) = lane else { return Ok(None) };
        let lane = self.with_worker(lane)?;
        let found = match self.live_run(&lane, id)? {
            Some(found) => Some(found),
            None => self.ended_run(&lane, id)?,
        };
        let Some(Found { row, list, result, usage }) = found else { return Ok(None) };
        let filter = AuditFilter { run: Some(id), limit: limits::PAGE_MAX, ..AuditFilter::default() };
        let audit = self.audit(&filter)?.items;
        let (steps, reports) = attempt::apart(steps(self.connection, id)?);
        Ok(Some(RunDetail { row, result, usage, list, steps, reports, audit }))
    }

    fn live_run(&self, lane: &LaneRow, id: RunId) -> rusqlite::Result<Option<Found>> {
        let key = self.lane_key(lane)?;
        let found = |row, list| Some(Found { row, list, result: None, usage: BTreeMap::new() });
        if let Some(run) = lane.lane.fixed_runs().find(|c| c.number == id.number) {
            let list = run_events(self.connection, id.lane, run)?;
            return Ok(found(RunRow::of_fixed(&lane.lane, run, &key), list));
        }
        let Some(row) = RunRow::of_open(&lane.lane, &key).filter(|row| row.id == id) else { return Ok(None) };
        let mut statement = self.connection.prepare_cached(include_str!("../../sql/claim_events.sql"))?;
        let unmarked: Option<u64> = None;
        let events = statement.query_map((id.lane, row.lo, row.hi, unmarked), rows::event)?;
        let list = events.collect::<rusqlite::Result<_>>()?;
        Ok(found(row, list))
    }

    fn ended_run(&mut self, lane: &LaneRow, id: RunId) -> rusqlite::Result<Option<Found>> {
        let mut statement = self.connection.prepare_cached(RUN_BY_NUMBER)?;
        let record = statement.query_row((id.lane, id.number), RunRecord::read).optional()?;
        let Some(record) = record else { return Ok(None) };
        let sql = "SELECT result, usage FROM run WHERE id = ?1";
        let texts: (Option<String>, Option<String>) = self
            .connection
            .prepare_cached(sql)?
            .query_row([record.id], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let list = match record.ended.run.count {
            0 => Vec::new(), // Its events belong to other runs now.
            _ => run_events(self.connection, id.lane, &record.ended.run)?,
        };
        let key = self.lane_key(lane)?;
        Ok(Some(Found {
            row: self.ended_row(record, &key)?,
            list,
            result: texts.0.and_then(|t| serde_json::from_str(&t).ok()),
            usage: texts.1.and_then(|t| serde_json::from_str(&t).ok()).unwrap_or_default(),
        }))
    }

    pub(super) fn runs(&mut self, filter: &RunFilter) -> rusqlite::Result<Page<RunRow>> {
        let limit = page_limit(filter.limit);
        let mut items = Vec::new();
        let cursor = filter.cursor.as_deref();
        let ended_from = cursor.and_then(|c| c.strip_prefix("f."));
        if ended_from.is_none() && filter.state.is_none_or(|s| !s.is_final()) {
            let next = match &filter.key {
                Some(key) => self.live_runs_of_key(filter, key, limit, &mut items)?,
                None => self.live_runs(filter, limit, &mut items)?,
            };
            if next.is_some() {
                return Ok(Page { items, next });
            }
        }
        if filter.state.is_some_and(|s| !s.is_final()) {
            return Ok(Page { items, next: None });
        }
        let from = ended_from.and_then(|c| c.parse().ok()).unwrap_or(i64::MAX);
        let next = self.ended_runs(filter, from, limit, &mut items)?;
        Ok(Page { items, next })
    }

    /// The runs of lanes with something to do; a cursor if there are more than fit. It names the last lane that was
    /// listed in full and how many runs of the one behind it were listed.
    fn live_runs(
        &mut self,
        filter: &RunFilter,
        limit: usize,
        items: &mut Vec<RunRow>,
    ) -> rusqlite::Result<Option<String>> {
        let cursor = filter.cursor.as_deref();
        let start = cursor.and_then(Walk::parse).unwrap_or(Walk::START);
        let mut listed: usize = cursor.and_then(|c| c.split('.').nth(5)?.parse().ok()).unwrap_or(0);
        let queues = self.matching(filter.tenant.as_ref(), filter.queue.as_ref());
        let (mut next, mut last) = (None, start);
        self.walk(&queues, start, Lanes::Busy, |view, row, at| {
            let key = view.lane_key(&row)?;
            for run in live_rows(&row, &key, filter).skip(listed) {
                if items.len() == limit {
                    next = Some(format!("{}.{listed}", last.text()));
                    return Ok(false);
                }
                items.push(run);
                listed += 1;
            }
            (last, listed) = (at, 0);
            Ok(true)
        })?;
        Ok(next)
    }

    fn live_runs_of_key(
        &mut self,
        filter: &RunFilter,
        key: &Key,
        limit: usize,
        items: &mut Vec<RunRow>,
    ) -> rusqlite::Result<Option<String>> {
        let cursor = filter.cursor.as_deref().and_then(|c| c.strip_prefix("k."));
        let listed: usize = cursor.and_then(|c| c.parse().ok()).unwrap_or(0);
        let mut all = Vec::new();
        for key in self.lanes_of_key(filter, key) {
            if let Some(row) = self.find_lane(&key)? {
                all.extend(live_rows(&row, &key, filter));
            }
        }
        let more = all.len().saturating_sub(listed) > limit;
        items.extend(all.into_iter().skip(listed).take(limit));
        Ok(more.then(|| format!("k.{}", listed + limit)))
    }

    /// The lanes of one key in the queues that a filter names.
    fn lanes_of_key(&self, filter: &RunFilter, key: &Key) -> Vec<LaneKey> {
        let queues = self.matching(filter.tenant.as_ref(), filter.queue.as_ref());
        let lane = |queue: crate::tx::QueueRow| LaneKey {
            tenant: queue.tenant,
            queue: queue.name,
            key: key.clone(),
        };
        queues.into_iter().map(lane).collect()
    }

    fn ended_runs(
        &mut self,
        filter: &RunFilter,
        from: i64,
        limit: usize,
        items: &mut Vec<RunRow>,
    ) -> rusqlite::Result<Option<String>> {
        let dead = filter.state == Some(RunState::Failed);
        // What no index answers is filtered here, from a bounded number of rows.
        let other_state = filter.state.is_some() && !(dead && filter.key.is_none());
        let of_some = filter.key.is_none() && (filter.tenant.is_some() || filter.queue.is_some());
        let look = if other_state || of_some { LOOK_MAX } else { limit + 1 };
        let mut records: Vec<RunRecord> = Vec::new();
        let mut read = |view: &Self, sql: &str, lane: Option<u64>| -> rusqlite::Result<()> {
            let values = [Value::Integer(from), number(look as u64)].into_iter().chain(lane.map(number));
            let mut statement = view.connection.prepare_cached(sql)?;
            for record in statement.query_map(params_from_iter(values), RunRecord::read)? {
                records.push(record?);
            }
            Ok(())
        };
        match &filter.key {
            Some(key) => {
                for key in self.lanes_of_key(filter, key) {
                    if let Some(row) = self.find_lane(&key)? {
                        read(self, RUNS_OF_LANE, Some(row.lane.id))?;
                    }
                }
            }
            None if dead => read(self, RUNS_DEAD, None)?,
            None => read(self, RUNS, None)?,
        }
        records.sort_by_key(|record| std::cmp::Reverse(record.id));
        let (looked, mut last) = (records.len(), None);
        for record in records {
            if items.len() >= limit {
                return Ok(last.map(|id: u64| format!("f.{id}")).or_else(|| Some(format!("f.{from}"))));
            }
            last = Some(record.id);
            let emptied = dead && record.ended.run.count == 0;
            if filter.state.is_some_and(|s| s != record.ended.state) || emptied {
                continue;
            }
            if let Some(key) = self.key_of_lane(record.lane)?
                && filter.tenant.as_ref().is_none_or(|t| *t == key.tenant)
                && filter.queue.as_ref().is_none_or(|q| *q == key.queue)
            {
                items.push(self.ended_row(record, &key)?);
            }
        }
        Ok(last.filter(|_| looked >= look).map(|id| format!("f.{id}")))
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

    fn ended_row(&mut self, mut record: RunRecord, key: &LaneKey) -> rusqlite::Result<RunRow> {
        let worker = record.worker.map(|id| self.worker(id)).transpose()?;
        record.ended.run.worker = worker.and_then(|name| name.parse().ok()).map(Arc::new);
        Ok(RunRow::of_finished(record.lane, &record.ended, key))
    }

    pub(super) fn audit(&mut self, filter: &AuditFilter) -> rusqlite::Result<Page<AuditRecord>> {
        let limit = page_limit(filter.limit);
        let from: i64 = filter.cursor.as_deref().and_then(|c| c.parse().ok()).unwrap_or(i64::MAX);
        let by_lane = filter.run.is_some() || filter.key.is_some();
        let of_some = (filter.tenant.is_some() || filter.queue.is_some()) && !by_lane;
        let look = if of_some { LOOK_MAX } else { limit + 1 };
        let mut records: Vec<Recorded> = Vec::new();
        let mut read = |view: &Self, sql: &str, of: &[u64]| -> rusqlite::Result<()> {
            let of = of.iter().map(|n| number(*n));
            let values = [Value::Integer(from), number(look as u64)].into_iter().chain(of);
            let mut statement = view.connection.prepare_cached(sql)?;
            for record in statement.query_map(params_from_iter(values), Recorded::read)? {
                records.push(record?);
            }
            Ok(())
        };
        match (filter.run, &filter.key) {
            (Some(run), _) if !run.is_plausible() => {}
            (Some(run), _) => read(self, AUDIT_OF_RUN, &[run.lane, run.number])?,
            (None, Some(key)) => {
                let (tenant, queue) = (filter.tenant.clone(), filter.queue.clone());
                let of = RunFilter { tenant, queue, ..RunFilter::default() };
                for key in self.lanes_of_key(&of, key) {
                    if let Some(row) = self.find_lane(&key)? {
                        read(self, AUDIT_OF_LANE, &[row.lane.id])?;
                    }
                }
            }
            (None, None) => read(self, AUDIT, &[])?,
        }
        records.sort_by_key(|r| std::cmp::Reverse(r.id));
        let (looked, mut items, mut last) = (records.len(), Vec::new(), None);
        for record in records {
            if items.len() == limit {
                return Ok(Page { items, next: last.map(|id: u64| id.to_string()) });
            }
            last = Some(record.id);
            let Some(shown) = self.shown(record)? else { continue };
            if filter.tenant.as_ref().is_none_or(|t| *t == shown.tenant)
                && filter.queue.as_ref().is_none_or(|q| *q == shown.queue)
                && filter.key.as_ref().is_none_or(|k| Some(k) == shown.key.as_ref())
            {
                items.push(shown);
            }
        }
        Ok(Page { items, next: last.filter(|_| looked >= look).map(|id| id.to_string()) })
    }

    fn shown(&mut self, record: Recorded) -> rusqlite::Result<Option<AuditRecord>> {
        let Some(queue) = self.queue(record.queue).cloned() else { return Ok(None) };
        let lane = record.lane.map(|id| self.key_of_lane(id)).transpose()?.flatten();
        let worker = record.worker.map(|id| self.worker(id)).transpose()?;
        let prior_worker = record.prior_worker.map(|id| self.worker(id)).transpose()?;
        let of_lane = |run: Option<u64>| record.lane.zip(run).map(|(lane, number)| RunId { lane, number });
        Ok(Some(AuditRecord {
            id: record.id,
            at: record.at,
            tenant: queue.tenant,
            queue: queue.name,
            key: lane.map(|l| l.key),
            run: of_lane(record.run),
            change: record.change,
            from: record.from,
            to: record.to,
            attempt: record.attempt,
            token: record.token,
            worker,
            prior_worker,
            upto_seq: record.upto_seq,
            next_at: record.next_at,
            other_run: of_lane(record.other_run),
            verdict: record.verdict,
            actor: record.actor,
        }))
    }
}

/// All steps of a run.
pub(crate) fn steps(connection: &Connection, run: RunId) -> rusqlite::Result<Vec<StepRow>> {
    let mut statement = connection.prepare_cached(STEPS)?;
    let rows = statement.query_map((run.lane, run.number), |row| {
        let value = row.get_ref(4)?.as_str_or_null()?.map(from_json).transpose()?;
        Ok(StepRow { revision: row.get(0)?, name: row.get(1)?, at: time(row, 2)?, token: row.get(3)?, value })
    })?;
    rows.collect()
}

/// The runs of a lane that have not ended and that a filter wants, in the order in which they will be claimed.
fn live_rows<'r>(
    row: &'r LaneRow,
    key: &'r LaneKey,
    filter: &RunFilter,
) -> impl Iterator<Item = RunRow> + use<'r> {
    let state = filter.state;
    let fixed = row.lane.fixed_runs().map(|c| RunRow::of_fixed(&row.lane, c, key));
    fixed.chain(RunRow::of_open(&row.lane, key)).filter(move |r| state.is_none_or(|s| s == r.state))
}

/// An audit record as its row.
pub(crate) struct Recorded {
    pub(crate) id: u64,
    pub(crate) at: Timestamp,
    pub(crate) queue: u64,
    pub(crate) lane: Option<u64>,
    pub(crate) run: Option<u64>,
    pub(crate) change: Change,
    pub(crate) from: Option<RunState>,
    pub(crate) to: Option<RunState>,
    pub(crate) attempt: u32,
    pub(crate) token: u64,
    pub(crate) worker: Option<u64>,
    pub(crate) prior_worker: Option<u64>,
    pub(crate) upto_seq: u64,
    pub(crate) next_at: Option<Timestamp>,
    pub(crate) actor: Option<String>,
    pub(crate) other_run: Option<u64>,
    pub(crate) verdict: Option<VerdictKind>,
}

impl Recorded {
    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<Recorded> {
        let state = |column| -> rusqlite::Result<Option<RunState>> {
            row.get::<_, Option<i64>>(column)?.map(|code| rows::decode(&RunState::ALL, code)).transpose()
        };
        let verdict = row.get::<_, Option<i64>>(16)?.map(|code| rows::decode(&VerdictKind::ALL, code));
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
            other_run: row.get(15)?,
            verdict: verdict.transpose()?,
        })
    }
}
