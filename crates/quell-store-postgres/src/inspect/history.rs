//! Runs and audit: what is going on now, then what ended, from the newest backwards.

use std::collections::BTreeMap;

use quell_core::attempt;
use quell_core::audit::AuditRecord;
use quell_core::batch::RunId;
use quell_core::error::StoreResult;
use quell_core::event::{Event, Key, LaneKey};
use quell_core::inspect::{AuditFilter, Page, RunDetail, RunFilter, RunRow};
use quell_core::lane::CurrentRun;
use quell_core::lifecycle::RunState;
use quell_core::limits;
use quell_core::store::StepRow;
use quell_core::working_set::FinishedRun;
use quell_store_rows::codec;
use quell_store_rows::rows::LaneAt;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::lanes::{Lanes, Walk, page_limit};
use super::{LANE_BY_ID, QueueRow, View};
use crate::connection::Sql;
use crate::rows::{
    audit_columns, count, event_columns, get, kept, key, lane_key, lost_queue, maybe_number, number,
    recorded, step_columns, step_row,
};

macro_rules! run {
    ($condition:literal) => {
        concat!(
            "SELECT r.id, r.lane_id, l.queue_id, l.key, r.body FROM quell.run r JOIN quell.lane l ON l.id = r.lane_id WHERE ",
            $condition
        )
    };
}
macro_rules! audit {
    ($condition:literal) => {
        concat!(
            "SELECT ",
            audit_columns!(),
            " FROM quell.audit a LEFT JOIN quell.lane l ON l.id = a.lane_id WHERE ",
            $condition,
            " a.id < $1 ORDER BY a.id DESC LIMIT $2"
        )
    };
}
static RUN_BY_NUMBER: Sql =
    Sql { text: run!("r.lane_id = $1 AND r.number = $2"), types: &[Type::INT8, Type::INT8] };
static RUNS: Sql =
    Sql { text: run!("r.id < $1 ORDER BY r.id DESC LIMIT $2"), types: &[Type::INT8, Type::INT8] };
/// The dead letter: failed runs that still have events. Those that were halved or redriven have none.
static RUNS_DEAD: Sql = Sql {
    text: run!("r.state = 4 AND r.count > 0 AND r.id < $1 ORDER BY r.id DESC LIMIT $2"),
    types: &[Type::INT8, Type::INT8],
};
static RUNS_OF_LANE: Sql = Sql {
    text: run!("r.lane_id = $3 AND r.id < $1 ORDER BY r.id DESC LIMIT $2"),
    types: &[Type::INT8, Type::INT8, Type::INT8],
};
static AUDIT: Sql = Sql { text: audit!(""), types: &[Type::INT8, Type::INT8] };
static AUDIT_OF_LANE: Sql =
    Sql { text: audit!("a.lane_id = $3 AND"), types: &[Type::INT8, Type::INT8, Type::INT8] };
static AUDIT_OF_RUN: Sql = Sql {
    text: audit!("a.lane_id = $3 AND a.run = $4 AND"),
    types: &[Type::INT8, Type::INT8, Type::INT8, Type::INT8],
};
static STEPS: Sql = Sql {
    text: concat!(
        "SELECT ",
        step_columns!(),
        " FROM quell.step s WHERE s.lane_id = $1 AND s.run = $2 ORDER BY s.revision, s.name"
    ),
    types: &[Type::INT8, Type::INT8],
};
static MEMBERS: Sql = Sql {
    text: concat!(
        "SELECT ",
        event_columns!(),
        " FROM quell.event e WHERE e.lane_id = $1 AND e.seq BETWEEN $2 AND $3 AND e.mark IS NOT DISTINCT FROM $4
         ORDER BY e.seq"
    ),
    types: &[Type::INT8, Type::INT8, Type::INT8, Type::INT8],
};

/// Rows that one page of a filtered listing looks at before it hands out a cursor.
const LOOK_MAX: usize = 5_000;

/// A run that was found, with what belongs to it.
struct Found {
    row: RunRow,
    list: Vec<Event>,
    result: Option<serde_json::Value>,
    usage: BTreeMap<String, f64>,
}

/// A run that ended, with its place in the order of ends.
struct Record {
    id: i64,
    run: FinishedRun,
}

impl View<'_> {
    pub(super) async fn run(&self, id: RunId) -> StoreResult<Option<RunDetail>> {
        if !id.is_plausible() {
            return Ok(None);
        }
        let rows = self.query(&LANE_BY_ID, &[&number(id.lane)]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let at = self.lane_at(row)?;
        let found = match self.live_run(&at, id).await? {
            Some(found) => Some(found),
            None => self.ended_run(id).await?,
        };
        let Some(Found { row, list, result, usage }) = found else { return Ok(None) };
        let filter = AuditFilter { run: Some(id), limit: limits::PAGE_MAX, ..AuditFilter::default() };
        let audit = self.audit(&filter).await?.items;
        let (steps, reports) = attempt::apart(self.steps(id).await?);
        Ok(Some(RunDetail { row, result, usage, list, steps, reports, audit }))
    }

    async fn live_run(&self, at: &LaneAt, id: RunId) -> StoreResult<Option<Found>> {
        let found = |row, list| Some(Found { row, list, result: None, usage: BTreeMap::new() });
        if let Some(run) = at.lane.fixed_runs().find(|c| c.number == id.number) {
            let list = self.members(id.lane, run).await?;
            return Ok(found(RunRow::of_fixed(&at.lane, run, &at.key), list));
        }
        let open = RunRow::of_open(&at.lane, &at.key).filter(|row| row.id == id);
        let Some(row) = open else { return Ok(None) };
        let list = self.events(id.lane, row.lo, row.hi, None).await?;
        Ok(found(row, list))
    }

    async fn ended_run(&self, id: RunId) -> StoreResult<Option<Found>> {
        let rows = self.query(&RUN_BY_NUMBER, &[&number(id.lane), &number(id.number)]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let FinishedRun { key, lane, ended, result, usage } = self.record(row)?.run;
        let list = match ended.run.count {
            0 => Vec::new(), // Its events belong to other runs now.
            _ => self.members(lane, &ended.run).await?,
        };
        Ok(Some(Found { row: RunRow::of_finished(lane, &ended, &key), list, result, usage }))
    }

    async fn members(&self, lane: u64, run: &CurrentRun) -> StoreResult<Vec<Event>> {
        self.events(lane, run.lo, run.hi, run.marked.then_some(run.number)).await
    }

    async fn events(&self, lane: u64, lo: u64, hi: u64, mark: Option<u64>) -> StoreResult<Vec<Event>> {
        let values: [&(dyn ToSql + Sync); 4] = [&number(lane), &number(lo), &number(hi), &maybe_number(mark)];
        let rows = self.query(&MEMBERS, &values).await?;
        rows.iter().map(|row| Ok(kept(row, 0)?.event)).collect()
    }

    fn record(&self, row: &Row) -> StoreResult<Record> {
        let queue: i32 = get(row, 2)?;
        let names = self.queue(queue).map(QueueRow::names).ok_or_else(|| lost_queue(queue))?;
        let run = codec::read_run(lane_key(&names, key(get(row, 3)?)?), count(row, 1)?, get(row, 4)?)?;
        Ok(Record { id: get(row, 0)?, run })
    }

    async fn steps(&self, run: RunId) -> StoreResult<Vec<StepRow>> {
        let rows = self.query(&STEPS, &[&number(run.lane), &number(run.number)]).await?;
        rows.iter().map(|row| Ok(step_row(row)?.1)).collect()
    }

    pub(super) async fn runs(&self, filter: &RunFilter) -> StoreResult<Page<RunRow>> {
        let limit = page_limit(filter.limit);
        let mut items = Vec::new();
        let cursor = filter.cursor.as_deref();
        let ended_from = cursor.and_then(|c| c.strip_prefix("f."));
        if ended_from.is_none() && filter.state.is_none_or(|s| !s.is_final()) {
            let next = match &filter.key {
                Some(key) => self.live_runs_of_key(filter, key, limit, &mut items).await?,
                None => self.live_runs(filter, limit, &mut items).await?,
            };
            if next.is_some() {
                return Ok(Page { items, next });
            }
        }
        if filter.state.is_some_and(|s| !s.is_final()) {
            return Ok(Page { items, next: None });
        }
        let from = ended_from.and_then(|c| c.parse().ok()).unwrap_or(i64::MAX);
        let next = self.ended_runs(filter, from, limit, &mut items).await?;
        Ok(Page { items, next })
    }

    /// The runs of lanes with something to do; a cursor if there are more than fit. It names the last lane that was
    /// listed in full and how many runs of the one behind it were listed.
    async fn live_runs(
        &self,
        filter: &RunFilter,
        limit: usize,
        items: &mut Vec<RunRow>,
    ) -> StoreResult<Option<String>> {
        let cursor = filter.cursor.as_deref();
        let mut last = cursor.and_then(Walk::parse).unwrap_or(Walk::START);
        let mut listed: usize = cursor.and_then(|c| c.split('.').nth(4)?.parse().ok()).unwrap_or(0);
        let queues = self.matching(filter.tenant.as_ref(), filter.queue.as_ref());
        loop {
            let lanes = self.walk(&queues, last, Lanes::Busy, limit + 1).await?;
            let full = lanes.len() > limit;
            for (at, walk) in lanes {
                for run in live_rows(&at, filter).skip(listed) {
                    if items.len() == limit {
                        return Ok(Some(format!("{}.{listed}", last.text())));
                    }
                    items.push(run);
                    listed += 1;
                }
                (last, listed) = (walk, 0);
            }
            if !full {
                return Ok(None);
            }
        }
    }

    async fn live_runs_of_key(
        &self,
        filter: &RunFilter,
        key: &Key,
        limit: usize,
        items: &mut Vec<RunRow>,
    ) -> StoreResult<Option<String>> {
        let cursor = filter.cursor.as_deref().and_then(|c| c.strip_prefix("k."));
        let listed: usize = cursor.and_then(|c| c.parse().ok()).unwrap_or(0);
        let mut all = Vec::new();
        for key in self.lanes_of_key(filter, key) {
            if let Some(at) = self.find_lane(&key).await? {
                all.extend(live_rows(&at, filter));
            }
        }
        let more = all.len().saturating_sub(listed) > limit;
        items.extend(all.into_iter().skip(listed).take(limit));
        Ok(more.then(|| format!("k.{}", listed + limit)))
    }

    /// The lanes of one key in the queues that a filter names.
    fn lanes_of_key(&self, filter: &RunFilter, key: &Key) -> Vec<LaneKey> {
        let queues = self.matching(filter.tenant.as_ref(), filter.queue.as_ref());
        queues.into_iter().map(|queue| lane_key(&queue.names(), key.clone())).collect()
    }

    async fn ended_runs(
        &self,
        filter: &RunFilter,
        from: i64,
        limit: usize,
        items: &mut Vec<RunRow>,
    ) -> StoreResult<Option<String>> {
        let dead = filter.state == Some(RunState::Failed);
        // What no index answers is filtered here, from a bounded number of rows.
        let other_state = filter.state.is_some() && !(dead && filter.key.is_none());
        let of_some = filter.key.is_none() && (filter.tenant.is_some() || filter.queue.is_some());
        let look = if other_state || of_some { LOOK_MAX } else { limit + 1 };
        let most = number(look as u64);
        let mut rows = Vec::new();
        match &filter.key {
            Some(key) => {
                for key in self.lanes_of_key(filter, key) {
                    if let Some(at) = self.find_lane(&key).await? {
                        rows.extend(self.query(&RUNS_OF_LANE, &[&from, &most, &number(at.lane.id)]).await?);
                    }
                }
            }
            None if dead => rows = self.query(&RUNS_DEAD, &[&from, &most]).await?,
            None => rows = self.query(&RUNS, &[&from, &most]).await?,
        }
        let mut records: Vec<Record> = rows.iter().map(|row| self.record(row)).collect::<StoreResult<_>>()?;
        records.sort_by_key(|record| std::cmp::Reverse(record.id));
        let (looked, mut last) = (records.len(), None);
        for Record { id, run } in records {
            if items.len() >= limit {
                return Ok(Some(format!("f.{}", last.unwrap_or(from))));
            }
            last = Some(id);
            let emptied = dead && run.ended.run.count == 0;
            if filter.state.is_some_and(|s| s != run.ended.state) || emptied {
                continue;
            }
            if filter.tenant.as_ref().is_none_or(|t| *t == run.key.tenant)
                && filter.queue.as_ref().is_none_or(|q| *q == run.key.queue)
            {
                items.push(RunRow::of_finished(run.lane, &run.ended, &run.key));
            }
        }
        Ok(last.filter(|_| looked >= look).map(|id| format!("f.{id}")))
    }

    pub(super) async fn audit(&self, filter: &AuditFilter) -> StoreResult<Page<AuditRecord>> {
        let limit = page_limit(filter.limit);
        let from: i64 = filter.cursor.as_deref().and_then(|c| c.parse().ok()).unwrap_or(i64::MAX);
        let by_lane = filter.run.is_some() || filter.key.is_some();
        let of_some = (filter.tenant.is_some() || filter.queue.is_some()) && !by_lane;
        let look = if of_some { LOOK_MAX } else { limit + 1 };
        let most = number(look as u64);
        let mut rows = Vec::new();
        match (filter.run, &filter.key) {
            (Some(run), _) if !run.is_plausible() => {}
            (Some(run), _) => {
                let of: [&(dyn ToSql + Sync); 4] = [&from, &most, &number(run.lane), &number(run.number)];
                rows = self.query(&AUDIT_OF_RUN, &of).await?;
            }
            (None, Some(key)) => {
                let (tenant, queue) = (filter.tenant.clone(), filter.queue.clone());
                let of = RunFilter { tenant, queue, ..RunFilter::default() };
                for key in self.lanes_of_key(&of, key) {
                    if let Some(at) = self.find_lane(&key).await? {
                        rows.extend(self.query(&AUDIT_OF_LANE, &[&from, &most, &number(at.lane.id)]).await?);
                    }
                }
            }
            (None, None) => rows = self.query(&AUDIT, &[&from, &most]).await?,
        }
        let mut records = Vec::with_capacity(rows.len());
        for row in &rows {
            records.push(recorded(row, |id| self.queue(id).map(QueueRow::names))?.1);
        }
        records.sort_by_key(|r| std::cmp::Reverse(r.id));
        let (looked, mut items, mut last) = (records.len(), Vec::new(), None);
        for shown in records {
            if items.len() == limit {
                return Ok(Page { items, next: last.map(|id: u64| id.to_string()) });
            }
            last = Some(shown.id);
            if filter.tenant.as_ref().is_none_or(|t| *t == shown.tenant)
                && filter.queue.as_ref().is_none_or(|q| *q == shown.queue)
                && filter.key.as_ref().is_none_or(|k| Some(k) == shown.key.as_ref())
            {
                items.push(shown);
            }
        }
        Ok(Page { items, next: last.filter(|_| looked >= look).map(|id| id.to_string()) })
    }
}

/// The runs of a lane that have not ended and that a filter wants, in the order in which they will be claimed.
fn live_rows<'r>(at: &'r LaneAt, filter: &RunFilter) -> impl Iterator<Item = RunRow> + use<'r> {
    let state = filter.state;
    let fixed = at.lane.fixed_runs().map(|c| RunRow::of_fixed(&at.lane, c, &at.key));
    fixed.chain(RunRow::of_open(&at.lane, &at.key)).filter(move |r| state.is_none_or(|s| s == r.state))
}
