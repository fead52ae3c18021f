//! Runs and audit: what is going on now, then what ended, from the newest backwards.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use quell_core::attempt;
use quell_core::audit::AuditRecord;
use quell_core::batch::RunId;
use quell_core::error::StoreResult;
use quell_core::event::{Event, Key, LaneKey};
use quell_core::inspect::{AuditFilter, Page, RunDetail, RunFilter, RunRow};
use quell_core::lane::{CurrentRun, Lane};
use quell_core::lifecycle::RunState;
use quell_core::limits;
use quell_core::store::StepRow;
use quell_core::working_set::FinishedRun;
use quell_store_rows::rows::{Span, Want};
use redis::Value;

use super::View;
use super::lanes::{Lanes, Steps, Walk, page_limit};
use crate::find::{read_run_name, read_step_of};
use crate::reply;
use crate::rows::{read_records, read_run, run_name};

/// Rows that one page of a filtered listing looks at before it hands out a cursor.
const LOOK_MAX: usize = 5_000;
/// Rows that one command reads.
const CHUNK: usize = 500;
/// Transactions whose records one command reads.
const ENTRIES: usize = 50;

/// A run that was found, with what belongs to it.
struct Found {
    row: RunRow,
    list: Vec<Event>,
    result: Option<serde_json::Value>,
    usage: BTreeMap<String, f64>,
}

/// The events of a run whose batch is fixed.
pub(super) fn members(lane: u64, run: &CurrentRun) -> Span {
    let mark = run.marked.then_some(run.number);
    Span { lane, from: run.lo, upto: run.hi, mark, most: run.count, bytes: None }
}

impl View<'_> {
    pub(super) async fn run(&self, id: RunId) -> StoreResult<Option<RunDetail>> {
        if !id.is_plausible() {
            return Ok(None);
        }
        let Some(lane) = self.shared.lanes_named(&[id.lane.to_string()]).await?.pop() else {
            return Ok(None);
        };
        let (key, lane) = (lane.at.key, lane.at.lane);
        let found = match self.live_run(&lane, &key, id).await? {
            Some(found) => Some(found),
            None => self.ended_run(&key, id).await?,
        };
        let Some(Found { row, list, result, usage }) = found else { return Ok(None) };
        let filter = AuditFilter { run: Some(id), limit: limits::PAGE_MAX, ..AuditFilter::default() };
        let audit = self.audit(&filter).await?.items;
        let (steps, reports) = attempt::apart(self.steps(id).await?);
        Ok(Some(RunDetail { row, result, usage, list, steps, reports, audit }))
    }

    async fn live_run(&self, lane: &Lane, key: &LaneKey, id: RunId) -> StoreResult<Option<Found>> {
        let found = |row, list| Some(Found { row, list, result: None, usage: BTreeMap::new() });
        if let Some(run) = lane.fixed_runs().find(|run| run.number == id.number) {
            let list = self.span(members(id.lane, run)).await?;
            return Ok(found(RunRow::of_fixed(lane, run, key), list));
        }
        let Some(row) = RunRow::of_open(lane, key).filter(|row| row.id == id) else { return Ok(None) };
        let (from, upto, most) = (row.lo, row.hi, row.events);
        let list = self.span(Span { lane: id.lane, from, upto, mark: None, most, bytes: None }).await?;
        Ok(found(row, list))
    }

    async fn ended_run(&self, key: &LaneKey, id: RunId) -> StoreResult<Option<Found>> {
        let found = self.find(&Want { runs: vec![id], ..Want::default() }).await?.next();
        let Some(value) = found.and_then(reply::bytes) else { return Ok(None) };
        let run = read_run(key.clone(), id.lane, &value)?;
        let list = match run.ended.run.count {
            0 => Vec::new(), // Its events belong to other runs now.
            _ => self.span(members(id.lane, &run.ended.run)).await?,
        };
        let row = RunRow::of_finished(id.lane, &run.ended, key);
        Ok(Some(Found { row, list, result: run.result, usage: run.usage }))
    }

    async fn steps(&self, run: RunId) -> StoreResult<Vec<StepRow>> {
        let found = self.find(&Want { steps: vec![run], ..Want::default() }).await?.next();
        let mut parts = reply::list(found.unwrap_or_default())?.into_iter();
        let mut steps = Vec::new();
        while let (Some(field), Some(value)) = (parts.next(), parts.next()) {
            steps.push(read_step_of(field, value)?);
        }
        steps.sort_by(|a, b| (a.revision, &a.name).cmp(&(b.revision, &b.name)));
        Ok(steps)
    }

    pub(super) async fn runs(&self, filter: &RunFilter) -> StoreResult<Page<RunRow>> {
        let limit = page_limit(filter.limit);
        let mut items = Vec::new();
        let ended_from = filter.cursor.as_deref().and_then(|cursor| cursor.strip_prefix("f."));
        if ended_from.is_none() && filter.state.is_none_or(|state| !state.is_final()) {
            let next = match &filter.key {
                Some(key) => self.live_runs_of_key(filter, key, limit, &mut items).await?,
                None => self.live_runs(filter, limit, &mut items).await?,
            };
            if next.is_some() {
                return Ok(Page { items, next });
            }
        }
        if filter.state.is_some_and(|state| !state.is_final()) {
            return Ok(Page { items, next: None });
        }
        let from = ended_from.and_then(|from| from.parse().ok()).unwrap_or(limits::NUMBER_MAX);
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
        let cursor = filter.cursor.as_deref().and_then(|cursor| cursor.rsplit_once('.'));
        let start = Walk::from_cursor(cursor.map(|(walk, _)| walk));
        let mut listed: usize = cursor.and_then(|(_, listed)| listed.parse().ok()).unwrap_or(0);
        let queues = self.matching(filter.tenant.as_ref(), filter.queue.as_ref());
        let mut last = start.clone();
        let mut steps = Steps::new(self, &queues, start, Lanes::Busy);
        while let Some((lane, at)) = steps.next(self).await? {
            for run in live_rows(&lane.at.lane, &lane.at.key, filter).skip(listed) {
                if items.len() == limit {
                    return Ok(Some(format!("{}.{listed}", last.text())));
                }
                items.push(run);
                listed += 1;
            }
            (last, listed) = (at, 0);
        }
        Ok(None)
    }

    async fn live_runs_of_key(
        &self,
        filter: &RunFilter,
        key: &Key,
        limit: usize,
        items: &mut Vec<RunRow>,
    ) -> StoreResult<Option<String>> {
        let cursor = filter.cursor.as_deref().and_then(|cursor| cursor.strip_prefix("k."));
        let listed: usize = cursor.and_then(|listed| listed.parse().ok()).unwrap_or(0);
        let mut all = Vec::new();
        for key in self.lanes_of_key(filter, key) {
            if let Some(lane) = self.find_lane(&key).await? {
                all.extend(live_rows(&lane.at.lane, &key, filter));
            }
        }
        let more = all.len().saturating_sub(listed) > limit;
        items.extend(all.into_iter().skip(listed).take(limit));
        Ok(more.then(|| format!("k.{}", listed + limit)))
    }

    /// The lanes of one key in the queues that a filter names.
    fn lanes_of_key(&self, filter: &RunFilter, key: &Key) -> Vec<LaneKey> {
        let queues = self.matching(filter.tenant.as_ref(), filter.queue.as_ref());
        queues.into_iter().map(|(tenant, queue)| LaneKey { tenant, queue, key: key.clone() }).collect()
    }

    async fn ended_runs(
        &self,
        filter: &RunFilter,
        mut from: u64,
        limit: usize,
        items: &mut Vec<RunRow>,
    ) -> StoreResult<Option<String>> {
        let dead_only = filter.state == Some(RunState::Failed);
        let of_key = match &filter.key {
            Some(key) => Some(self.ended_of_key(filter, key).await?),
            None => None,
        };
        let mut looked = 0;
        loop {
            let names = match &of_key {
                Some(all) => all.iter().filter(|(number, _)| *number < from).take(CHUNK).copied().collect(),
                None => self.ended_before(from, dead_only).await?,
            };
            let full = names.len() == CHUNK;
            let runs = self.ended_named(&names).await?;
            for (number, id) in names {
                let wanted = runs.get(&id).filter(|run| {
                    let emptied = dead_only && run.ended.run.count == 0;
                    filter.state.is_none_or(|state| state == run.ended.state)
                        && !emptied
                        && filter.tenant.as_ref().is_none_or(|tenant| *tenant == run.key.tenant)
                        && filter.queue.as_ref().is_none_or(|queue| *queue == run.key.queue)
                });
                if wanted.is_some() && items.len() == limit || looked == LOOK_MAX {
                    return Ok(Some(format!("f.{from}")));
                }
                looked += 1;
                from = number;
                items.extend(wanted.map(|run| RunRow::of_finished(run.lane, &run.ended, &run.key)));
            }
            if !full {
                return Ok(None);
            }
        }
    }

    /// Runs that ended before this number, the latest first: those in the dead letter and the others are in two sets.
    async fn ended_before(&self, from: u64, dead_only: bool) -> StoreResult<Vec<(u64, RunId)>> {
        let mut found = Vec::new();
        for set in if dead_only { &["dead"][..] } else { &["dead", "ended"] } {
            let mut command = redis::cmd("ZREVRANGEBYSCORE");
            command.arg(self.shared.link.keys.of(set)).arg(format!("({from}")).arg("-inf");
            command.arg("WITHSCORES").arg("LIMIT").arg(0).arg(CHUNK);
            let mut names = reply::list(self.shared.plain(&command).await?)?.into_iter();
            while let (Some(name), Some(number)) = (names.next(), names.next()) {
                let run = reply::text(name).and_then(|name| read_run_name(&name));
                found.extend(run.map(|run| reply::count(number).map(|number| (number, run))).transpose()?);
            }
        }
        found.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        found.truncate(CHUNK);
        Ok(found)
    }

    /// The ended runs of one key, the latest first: what the retention keeps of one lane is not much.
    async fn ended_of_key(&self, filter: &RunFilter, key: &Key) -> StoreResult<Vec<(u64, RunId)>> {
        let (keys, mut found) = (&self.shared.link.keys, Vec::new());
        for key in self.lanes_of_key(filter, key) {
            let Some(value) = self.find_lane(&key).await? else { continue };
            let lane = value.at.lane.id;
            let mut numbers = redis::cmd("HKEYS");
            numbers.arg(keys.part("run", lane));
            let numbers = reply::list(self.shared.plain(&numbers).await?)?;
            let numbers = numbers.into_iter().filter_map(|number| reply::count(number).ok());
            let numbers: BTreeSet<u64> =
                numbers.chain(value.pocket.runs().map(|(number, _)| number)).collect();
            let runs: Vec<RunId> = numbers.into_iter().map(|number| RunId { lane, number }).collect();
            for part in runs.chunks(CHUNK) {
                let mut pipe = redis::pipe();
                for run in part {
                    pipe.cmd("ZSCORE").arg(keys.of("ended")).arg(run_name(*run));
                    pipe.cmd("ZSCORE").arg(keys.of("dead")).arg(run_name(*run));
                }
                let scores = self.shared.link.pipe(&pipe).await?;
                for (run, scores) in part.iter().zip(scores.chunks(2)) {
                    let score = scores.iter().find(|score| **score != Value::Nil).cloned();
                    found.extend(score.map(reply::count).transpose()?.map(|number| (number, *run)));
                }
            }
        }
        found.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        Ok(found)
    }

    async fn ended_named(&self, names: &[(u64, RunId)]) -> StoreResult<HashMap<RunId, FinishedRun>> {
        let keys = self.shared.keys_of_lanes(names.iter().map(|(_, run)| run.lane)).await?;
        let runs = names.iter().map(|(_, run)| *run).collect();
        let values = self.find(&Want { runs, ..Want::default() }).await?;
        let mut found = HashMap::new();
        for (((_, run), key), value) in names.iter().zip(keys).zip(values) {
            if let (Some(key), Some(value)) = (key, reply::bytes(value)) {
                found.insert(*run, read_run(key, run.lane, &value)?);
            }
        }
        Ok(found)
    }

    pub(super) async fn audit(&self, filter: &AuditFilter) -> StoreResult<Page<AuditRecord>> {
        let limit = page_limit(filter.limit);
        let mut from: u64 =
            filter.cursor.as_deref().and_then(|c| c.parse().ok()).unwrap_or(limits::NUMBER_MAX);
        let lanes = match (filter.run, &filter.key) {
            (Some(run), _) if !run.is_plausible() => return Ok(Page { items: Vec::new(), next: None }),
            (Some(run), _) => Some(vec![run.lane]),
            (None, Some(key)) => {
                let (tenant, queue) = (filter.tenant.clone(), filter.queue.clone());
                let of = RunFilter { tenant, queue, ..RunFilter::default() };
                let mut lanes = Vec::new();
                for key in self.lanes_of_key(&of, key) {
                    lanes.extend(self.find_lane(&key).await?.map(|lane| lane.at.lane.id));
                }
                Some(lanes)
            }
            (None, None) => None,
        };
        let (mut items, mut looked) = (Vec::new(), 0);
        loop {
            let (records, more) = match &lanes {
                Some(lanes) => self.records_of(lanes, filter.run, from).await?,
                None => self.records_before(from).await?,
            };
            let names = records.iter().map(|(_, lane, _)| lane.unwrap_or(0));
            let keys = self.shared.keys_of_lanes(names).await?;
            for ((id, _, mut record), key) in records.into_iter().zip(keys) {
                record.key = key.map(|key| key.key);
                let wanted = filter.tenant.as_ref().is_none_or(|tenant| *tenant == record.tenant)
                    && filter.queue.as_ref().is_none_or(|queue| *queue == record.queue)
                    && filter.key.as_ref().is_none_or(|key| Some(key) == record.key.as_ref())
                    && filter.run.is_none_or(|run| record.run == Some(run));
                if wanted && items.len() == limit || looked == LOOK_MAX {
                    return Ok(Page { items, next: Some(from.to_string()) });
                }
                looked += 1;
                from = id;
                if wanted {
                    items.push(record);
                }
            }
            match more {
                Some(next) => from = from.min(next),
                None => return Ok(Page { items, next: None }),
            }
        }
    }

    /// Records of all lanes before this number, and where to go on.
    async fn records_before(&self, from: u64) -> StoreResult<(Vec<Record>, Option<u64>)> {
        let mut command = redis::cmd("ZREVRANGEBYSCORE");
        command.arg(self.shared.link.keys.of("audit")).arg(format!("({from}")).arg("-inf");
        command.arg("LIMIT").arg(0).arg(ENTRIES);
        let entries = reply::list(self.shared.plain(&command).await?)?;
        let full = entries.len() == ENTRIES;
        let (mut records, mut last) = (Vec::new(), from);
        for entry in entries {
            let of_entry = read_entry(entry)?;
            last = of_entry.first().map_or(last, |(id, ..)| *id);
            records.extend(of_entry.into_iter().rev().filter(|(id, ..)| *id < from));
        }
        Ok((records, full.then_some(last)))
    }

    /// Records of these lanes, or of one run of theirs.
    async fn records_of(
        &self,
        lanes: &[u64],
        run: Option<RunId>,
        from: u64,
    ) -> StoreResult<(Vec<Record>, Option<u64>)> {
        let keys = &self.shared.link.keys;
        let (mut ids, mut more) = (Vec::new(), None);
        let names: Vec<String> = lanes.iter().map(u64::to_string).collect();
        for value in self.shared.lanes_named(&names).await? {
            let of_run = |of: Option<u64>| run.is_none_or(|run| of == Some(run.number));
            let records = value.pocket.records().filter(|named| named.record < from && of_run(named.run));
            ids.extend(records.map(|named| named.record));
        }
        for lane in lanes {
            let mut command = redis::cmd("ZREVRANGEBYSCORE");
            command.arg(keys.part("trail", *lane)).arg(format!("({from}")).arg("-inf");
            command.arg("WITHSCORES").arg("LIMIT").arg(0).arg(CHUNK);
            let mut names = reply::list(self.shared.plain(&command).await?)?.into_iter();
            let (mut count, mut last) = (0, 0);
            while let (Some(name), Some(id)) = (names.next(), names.next()) {
                let (name, id) = (reply::text(name).unwrap_or_default(), reply::count(id)?);
                (count, last) = (count + 1, id);
                let of_run = name
                    .split_once(':')
                    .is_some_and(|(_, of)| run.is_none_or(|run| of.parse() == Ok(run.number)));
                if of_run {
                    ids.push(id);
                }
            }
            if count == CHUNK {
                // Beyond the last one that was read of this lane nothing can be said of any.
                more = Some(more.map_or(last, |known: u64| known.max(last)));
            }
        }
        ids.retain(|id| more.is_none_or(|more| *id >= more));
        ids.sort_unstable_by(|a, b| b.cmp(a));
        ids.dedup();
        let mut records = Vec::new();
        for part in ids.chunks(CHUNK) {
            let mut pipe = redis::pipe();
            for id in part {
                pipe.cmd("ZREVRANGEBYSCORE").arg(keys.of("audit")).arg(id).arg("-inf");
                pipe.arg("LIMIT").arg(0).arg(1);
            }
            for (id, found) in part.iter().zip(self.shared.link.pipe(&pipe).await?) {
                let Some(entry) = reply::list(found)?.pop() else { continue };
                records.extend(read_entry(entry)?.into_iter().find(|(of, ..)| of == id));
            }
        }
        Ok((records, more))
    }
}

/// Its number, its lane, and what it says.
type Record = (u64, Option<u64>, AuditRecord);

/// The records of one transaction.
fn read_entry(entry: Value) -> StoreResult<Vec<Record>> {
    let records = read_records(&reply::bytes(entry).unwrap_or_default())?;
    Ok(records.into_iter().map(|trail| (trail.record.id, trail.lane, trail.record)).collect())
}

/// The runs of a lane that have not ended and that a filter wants, in the order in which they will be claimed.
fn live_rows<'r>(
    lane: &'r Lane,
    key: &'r LaneKey,
    filter: &RunFilter,
) -> impl Iterator<Item = RunRow> + use<'r> {
    let state = filter.state;
    let fixed = lane.fixed_runs().map(|run| RunRow::of_fixed(lane, run, key));
    fixed.chain(RunRow::of_open(lane, key)).filter(move |row| state.is_none_or(|s| s == row.state))
}
