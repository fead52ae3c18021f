//! Everything out of this store and into it as it is: the side of Redis in `quell store copy`.
//!
//! What is put in place goes the way of every change (`apply.rs` and `lua/apply.lua`), after what stood there under the
//! same names has been taken away in the same call. The seal is a field of `meta` at which every script looks that
//! changes something (`lua/sealed.lua`); the server does one thing at a time, so when it is set, nobody is still writing.
//!
//! No set of this store has lanes or events aside in the order of their numbers, because nothing but a copy goes by it.
//! The numbers are read when a walk begins and kept here for its pages: eight bytes for a lane, sixteen for an event.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use quell_core::aside::Aside;
use quell_core::batch::RunId;
use quell_core::clock::Timestamp;
use quell_core::copy::{Applications, Counts, Frame, LaneRow, Portable, Row};
use quell_core::error::{StoreError, StoreResult};
use quell_core::event::{LaneKey, QueueName, Tenant};
use quell_core::schedule::ScheduleRow;
use quell_core::shelf::{Document, Shelf};
use quell_core::source::{CacheRow, Declaration, Source, SourceId};
use quell_core::store::StepRow;
use quell_core::totals::Totals;
use quell_core::working_set::{FinishedRun, Kept, Trail};
use quell_store_rows::changes::{Changes, LaneWrite};
use quell_store_rows::codec;
use quell_store_rows::rows::{Entries, Patience, Rows, Trouble};
use redis::{Cmd, Value};

use crate::RedisStore;
use crate::application::PastSeal;
use crate::apply::{self, TOTALS};
use crate::find::{read_pauses, read_run_name, read_step_of};
use crate::inspect::read_totals;
use crate::keys::queue_text;
use crate::link::{For, Link};
use crate::reply;
use crate::rows::{read_answer, read_event, read_lane, read_records, read_run, run_name};
use crate::script::Script;
use crate::store::{Pauses, Shared};
use crate::tx::{Tx, live_runs};

/// Payload bytes of one page.
const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Rows, names or counts that one command is asked for.
const CHUNK: usize = 1_000;
/// Entries of the trail, each with the records of a transaction, that one command is asked for.
const ENTRIES: u64 = 100;
/// Kept answers that one command is asked for.
const ANSWERS: usize = 16;
/// Documents that one call puts in place: 4 MiB at the most.
const DOCUMENTS: usize = 256;
/// How often a write is begun anew when what it saw has changed: its own earlier try may have been done, and only the
/// answer been lost.
const TRIES: usize = 4;

/// Numbers of a walk that goes on. They may name what is gone, which is then not in the page.
#[derive(Default)]
pub(crate) struct Listed {
    lanes: Mutex<Option<BTreeSet<u64>>>,
    /// Ended runs of lanes that have more than a page of them.
    runs: Mutex<HashMap<u64, Vec<u64>>>,
    /// Number of an event aside, and when it is ready.
    asides: Mutex<Option<Vec<(u64, i64)>>>,
}

/// Whatever a panic has left is a list of numbers.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn again() -> StoreError {
    StoreError::unavailable("somebody else changes this store; nothing was done, try again")
}

fn told(trouble: Trouble) -> StoreError {
    match trouble {
        Trouble::Store(error) => error,
        Trouble::Again => again(),
    }
}

impl RedisStore {
    fn shared(&self) -> &Shared {
        &self.backend.shared
    }

    fn link(&self) -> &Link {
        &self.backend.shared.link
    }

    /// One field of `meta`.
    async fn known(&self, field: &str) -> StoreResult<Option<String>> {
        let mut command = redis::cmd("HGET");
        command.arg(self.link().keys.meta()).arg(field);
        Ok(reply::text(self.shared().plain(&command).await?))
    }

    async fn set_known(&self, field: &str, value: Option<&str>) -> StoreResult<()> {
        let mut command = redis::cmd(if value.is_some() { "HSET" } else { "HDEL" });
        command.arg(self.link().keys.meta()).arg(field).arg(value);
        self.link().read(For::Transactions, &command).await.map(drop)
    }

    /// The numbers of all lanes.
    async fn lane_numbers(&self) -> StoreResult<BTreeSet<u64>> {
        let (mut cursor, hash) = ("0".to_owned(), self.link().keys.of("key"));
        let mut numbers = BTreeSet::new();
        loop {
            let mut command = redis::cmd("HSCAN");
            command.arg(&hash).arg(&cursor).arg("COUNT").arg(CHUNK);
            let mut answer = reply::list(self.shared().plain(&command).await?)?.into_iter();
            cursor = answer.next().and_then(reply::text).unwrap_or_default();
            for number in reply::list(answer.next().unwrap_or_default())?.into_iter().skip(1).step_by(2) {
                numbers.insert(reply::count(number)?);
            }
            if cursor == "0" || cursor.is_empty() {
                return Ok(numbers);
            }
        }
    }

    /// All events aside in the order of acceptance: the name of each has the time at which it is ready and its number.
    async fn aside_numbers(&self) -> StoreResult<Vec<(u64, i64)>> {
        let mut numbers = Vec::new();
        for (tenant, queue) in self.shared().all_queues().await? {
            let set = self.link().keys.look(&queue_text(&tenant, &queue));
            let mut at = 0;
            loop {
                let names = self.shared().page(&set, at, CHUNK).await?;
                at += names.len();
                let read = |name: &String| {
                    let (ready, number) = name.split_at_checked(16)?;
                    Some((number.parse().ok()?, ready.parse().ok()?))
                };
                numbers.extend(names.iter().filter_map(read));
                if names.len() < CHUNK {
                    break;
                }
            }
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Calls a script for a sum, which comes first in its answer.
    async fn count(&self, kind: &str, names: &[String]) -> StoreResult<(u64, std::vec::IntoIter<Value>)> {
        let mut call = self.link().script(Script::Count);
        call.arg(kind).arg(names);
        let mut answer = self.shared().ask(&call).await?.into_iter();
        Ok((reply::count(answer.next().unwrap_or_default())?, answer))
    }

    async fn counts(&self) -> StoreResult<Counts> {
        let keys = &self.link().keys;
        let mut command = redis::cmd("HLEN");
        command.arg(keys.of("aside"));
        let mut counts =
            Counts { aside: reply::count(self.shared().plain(&command).await?)?, ..Counts::default() };
        let mut at = 0;
        loop {
            let (records, mut rest) = self.count("r", &[at.to_string(), ENTRIES.to_string()]).await?;
            counts.audit += records;
            let entries = reply::count(rest.next().unwrap_or_default())?;
            at += entries;
            if entries < ENTRIES {
                break;
            }
        }
        let lanes: Vec<String> = self.lane_numbers().await?.iter().map(u64::to_string).collect();
        counts.lanes = lanes.len() as u64;
        for part in lanes.chunks(CHUNK) {
            let (events, rows) = self.count("e", part).await?;
            counts.events += events;
            let mut live = Vec::new();
            for row in rows.filter_map(reply::bytes) {
                let lane = read_lane(row)?.at.lane;
                live.extend(live_runs(&lane).into_iter().map(|number| run_name(lane.run_id(number))));
            }
            for part in live.chunks(CHUNK) {
                counts.steps += self.count("s", part).await?.0;
            }
        }
        for set in ["ended", "dead"] {
            let (set, mut at) = (keys.of(set), 0);
            loop {
                let names = self.shared().page(&set, at, CHUNK).await?;
                at += names.len();
                counts.runs += names.len() as u64;
                counts.steps += self.count("s", &names).await?.0;
                if names.len() < CHUNK {
                    break;
                }
            }
        }
        Ok(counts)
    }

    async fn pauses(&self) -> StoreResult<Pauses> {
        let mut command = redis::cmd("HGETALL");
        command.arg(self.link().keys.of("pause"));
        read_pauses(self.shared().plain(&command).await?)
    }

    /// Schedules as they are stored.
    async fn schedule_rows(&self) -> StoreResult<Vec<Value>> {
        let mut command = redis::cmd("HVALS");
        command.arg(self.link().keys.of("schedule"));
        reply::list(self.shared().plain(&command).await?)
    }

    async fn declarations(&self) -> StoreResult<Vec<Declaration>> {
        let mut command = redis::cmd("HVALS");
        command.arg(self.link().keys.of("declared"));
        let rows = reply::list(self.shared().plain(&command).await?)?.into_iter().filter_map(reply::bytes);
        rows.map(|row| codec::read_declaration(&row)).collect()
    }

    /// All sources by their numbers.
    async fn all_sources(&self) -> StoreResult<BTreeMap<SourceId, Source>> {
        let (set, mut at, mut all) = (self.link().keys.of("sources"), 0, BTreeMap::new());
        loop {
            let texts = self.shared().page(&set, at, CHUNK).await?;
            at += texts.len();
            let numbers = self.shared().rows_of("source", &texts).await?;
            let number = |row: &Vec<u8>| std::str::from_utf8(row).ok()?.parse().ok().map(SourceId);
            all.extend(self.shared().sources_of(numbers.iter().filter_map(number)).await?);
            if texts.len() < CHUNK {
                return Ok(all);
            }
        }
    }

    async fn totals(&self) -> StoreResult<Vec<(Tenant, QueueName, Totals)>> {
        let queues = self.shared().all_queues().await?;
        let mut all = Vec::with_capacity(queues.len());
        for part in queues.chunks(CHUNK) {
            let mut pipe = redis::pipe();
            for (tenant, queue) in part {
                pipe.cmd("HMGET").arg(self.link().keys.totals(&queue_text(tenant, queue))).arg(&TOTALS[..]);
            }
            let answers = self.link().pipe(&pipe).await?;
            for ((tenant, queue), answer) in part.iter().zip(answers) {
                all.push((tenant.clone(), queue.clone(), read_totals(answer)?));
            }
        }
        Ok(all)
    }

    /// Calls the script that writes. False when something of what was read has changed since.
    async fn write(&self, call: &Cmd) -> StoreResult<bool> {
        match reply::text(self.link().read(For::Transactions, call).await?).as_deref() {
            Some("done") => Ok(true),
            Some("epoch") => self.link().open_again().await.map(|()| false),
            _ => Ok(false),
        }
    }

    async fn transaction(&self) -> StoreResult<Tx> {
        Tx::begin_copying(self.backend.shared.clone()).await.map_err(told)
    }

    /// Puts lanes and what came with them; false when it has to be begun anew.
    async fn try_put(&self, lanes: &[LaneRow], changes: &mut Changes) -> StoreResult<bool> {
        let mut tx = self.transaction().await?;
        let keys: Vec<LaneKey> = lanes.iter().map(|row| row.key.clone()).collect();
        let there = tx.lanes(&keys, Patience::Answer).await.map_err(told)?.lanes;
        // What comes without its lane may be in the pocket of one that is there.
        let events = changes.new_events.iter().map(|(lane, _)| *lane);
        let others: BTreeSet<u64> = events.chain(changes.new_runs.iter().map(|run| run.lane)).collect();
        let others: Vec<u64> = others.into_iter().filter(|lane| !tx.lanes.contains_key(lane)).collect();
        tx.lanes_by_id(&others, Patience::Answer).await.map_err(told)?;
        let there: HashMap<&LaneKey, u64> = there.iter().map(|at| (&at.key, at.lane.id)).collect();
        for row in lanes {
            // A key that was forgotten and came again has another lane now.
            if let Some(other) = there.get(&row.key).filter(|id| **id != row.lane.id) {
                self.remove_lane(*other).await?;
                return Ok(false);
            }
        }
        let write = |row: &LaneRow| LaneWrite {
            key: row.key.clone(),
            lane: Box::new(row.lane.clone()),
            was: tx.lanes.get(&row.lane.id).map(|seen| seen.entries),
            entries: Entries::of(&row.lane),
        };
        changes.lanes = lanes.iter().map(write).collect();
        let trail = self.keep_trail_whole(changes).await?;
        self.write(&apply::put(&tx, self.link().script(Script::Put), changes, trail)).await
    }

    /// Records are kept together, so one that is put among others makes a new entry of all of them: those are added to the
    /// changes. Says which entries are replaced.
    async fn keep_trail_whole(&self, changes: &mut Changes) -> StoreResult<Option<(u64, u64)>> {
        let ids = || changes.audit.iter().map(|trail| trail.record.id);
        let (Some(first), Some(last)) = (ids().min(), ids().max()) else { return Ok(None) };
        let (mut from, mut all) = (first, BTreeMap::new());
        for entry in self.entries(first, last).await? {
            from = from.min(entry.first().map_or(from, |trail| trail.record.id));
            all.extend(entry.into_iter().map(|trail| (trail.record.id, trail)));
        }
        let put = std::mem::take(&mut changes.audit);
        all.extend(put.into_iter().map(|trail| (trail.record.id, trail)));
        changes.audit = all.into_values().collect();
        Ok(Some((from, last)))
    }

    /// The entries of the trail with records from one number up to another; the first begins before, as often as not.
    async fn entries(&self, first: u64, last: u64) -> StoreResult<Vec<Vec<Trail>>> {
        let mut found = Vec::new();
        let mut pipe = redis::pipe();
        let audit = self.link().keys.of("audit");
        pipe.cmd("ZREVRANGEBYSCORE")
            .arg(&audit)
            .arg(format!("({first}"))
            .arg("-inf")
            .arg("LIMIT")
            .arg(0)
            .arg(1);
        pipe.cmd("ZRANGEBYSCORE").arg(&audit).arg(first).arg(last);
        for part in self.link().pipe(&pipe).await? {
            for entry in reply::list(part)?.into_iter().filter_map(reply::bytes) {
                let records = read_records(&entry)?;
                if records.last().is_some_and(|trail| trail.record.id >= first) {
                    found.push(records);
                }
            }
        }
        Ok(found)
    }

    async fn try_take_frame(&self, frame: &Frame) -> StoreResult<bool> {
        let mut tx = self.transaction().await?;
        let there = tx.take_in_schedules(self.schedule_rows().await?.into_iter())?;
        let name = |row: &ScheduleRow| (row.schedule.tenant.clone(), row.schedule.name.clone());
        let stays: BTreeSet<_> = frame.schedules.iter().map(name).collect();
        let mut changes = Changes { schedules: frame.schedules.clone(), ..Changes::default() };
        changes.gone_schedules = there.iter().map(name).filter(|name| !stays.contains(name)).collect();
        let stays: BTreeSet<_> = frame.pauses.iter().map(|(queue, tenant, _)| (queue, tenant)).collect();
        let there = self.pauses().await?.into_keys();
        changes.gone_pauses = there.filter(|(queue, tenant)| !stays.contains(&(queue, tenant))).collect();
        changes.pauses = frame.pauses.clone();
        changes.declarations = frame.declarations.clone();
        let stays: BTreeSet<SourceId> = frame.sources.iter().map(|source| source.id).collect();
        let there = self.all_sources().await?.into_keys();
        changes.emptied = there.filter(|source| !stays.contains(source)).collect();
        let queues = self.shared().all_queues().await?;
        let queues: Vec<String> = queues.iter().map(|(tenant, queue)| queue_text(tenant, queue)).collect();
        self.write(&apply::frame(&tx, self.link().script(Script::Put), &changes, &queues, frame)).await
    }

    /// Documents that are not in the frame go, and those of the frame come in parts; false when it has to be begun anew.
    async fn try_take_documents(&self, frame: &Frame) -> StoreResult<bool> {
        let name = |(shelf, document): &(Shelf, Document)| (*shelf, document.name.clone());
        let stays: BTreeSet<_> = frame.documents.iter().map(name).collect();
        let there = self.shared().all_documents().await?;
        let gone_documents = there.iter().map(name).filter(|place| !stays.contains(place)).collect();
        let mut parts = vec![Changes { gone_documents, ..Changes::default() }];
        let documents = frame.documents.chunks(DOCUMENTS);
        parts.extend(documents.map(|part| Changes { documents: part.to_vec(), ..Changes::default() }));
        for changes in &parts {
            let tx = self.transaction().await?;
            if !self.write(&apply::put(&tx, self.link().script(Script::Put), changes, None)).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Runs came lane by lane; listings and the retention go by the order in which they ended.
    async fn order_runs(&self) -> StoreResult<()> {
        let keys = &self.link().keys;
        let mut runs = Vec::new();
        for set in ["ended", "dead"] {
            let (key, mut at) = (keys.of(set), 0);
            loop {
                let names = self.shared().page(&key, at, CHUNK).await?;
                at += names.len();
                let mut call = self.link().script(Script::Ends);
                call.arg(&names);
                for (name, ended) in names.iter().zip(self.shared().ask(&call).await?) {
                    let ended: u64 = reply::text(ended).and_then(|text| text.parse().ok()).unwrap_or(0);
                    runs.extend(read_run_name(name).map(|run| (ended, run.lane, run.number, set)));
                }
                if names.len() < CHUNK {
                    break;
                }
            }
        }
        runs.sort_unstable();
        for set in ["ended", "dead"] {
            let places = (1u64..).zip(&runs).filter(|(_, run)| run.3 == set);
            let places: Vec<(u64, String)> = places
                .map(|(place, (_, lane, number, _))| {
                    (place, run_name(RunId { lane: *lane, number: *number }))
                })
                .collect();
            for part in places.chunks(CHUNK) {
                let mut command = redis::cmd("ZADD");
                command.arg(keys.of(set)).arg("XX").arg(part);
                self.link().read(For::Transactions, &command).await?;
            }
        }
        let mut command = redis::cmd("HSET");
        command.arg(keys.meta()).arg("ended").arg(runs.len());
        self.link().read(For::Transactions, &command).await.map(drop)
    }
}

#[async_trait]
impl Portable for RedisStore {
    async fn sealed(&self) -> StoreResult<Option<String>> {
        self.known("sealed").await
    }

    async fn seal(&self, by: Option<&str>) -> StoreResult<()> {
        self.set_known("sealed", by).await?;
        // Whoever sleeps would otherwise find out late that the store can be used again.
        self.backend.bell.ring(Timestamp::default());
        Ok(())
    }

    async fn frame(&self) -> StoreResult<Frame> {
        let now = self.link().now().await?;
        let totals = self.totals().await?;
        let pauses = self.pauses().await?;
        let pauses = pauses.into_iter().map(|((queue, tenant), paused)| (queue, tenant, paused)).collect();
        let rows = self.schedule_rows().await?.into_iter().filter_map(reply::bytes);
        let mut schedules: Vec<ScheduleRow> =
            rows.map(|row| codec::read_schedule(&row)).collect::<StoreResult<_>>()?;
        schedules.sort_by_key(|row| (row.schedule.tenant.clone(), row.schedule.name.clone()));
        let counts = self.counts().await?;
        // What a process has set apart is counted here as given. A number that is given while the rest is being counted
        // counts, too.
        let last_number = self.known("number").await?.and_then(|text| text.parse().ok()).unwrap_or(0);
        let declarations = self.declarations().await?;
        let sources = self.all_sources().await?.into_values().collect();
        let documents = self.shared().all_documents().await?;
        Ok(Frame { now, last_number, totals, pauses, schedules, declarations, sources, documents, counts })
    }

    async fn lanes(&self, after: u64, most: usize) -> StoreResult<Vec<LaneRow>> {
        if after == 0 || locked(&self.listed.lanes).is_none() {
            let numbers = self.lane_numbers().await?;
            *locked(&self.listed.lanes) = Some(numbers);
        }
        let (mut found, mut last) = (Vec::new(), after);
        while found.len() < most {
            let numbers: Vec<u64> = match locked(&self.listed.lanes).as_ref() {
                Some(all) => {
                    let rest = all.range((Bound::Excluded(last), Bound::Unbounded));
                    rest.take(most - found.len()).copied().collect()
                }
                None => Vec::new(),
            };
            let Some(end) = numbers.last() else { break };
            last = *end;
            let names: Vec<String> = numbers.iter().map(u64::to_string).collect();
            for value in self.shared().lanes_named(&names).await? {
                found.push(LaneRow { key: value.at.key, lane: *value.at.lane });
            }
        }
        Ok(found)
    }

    async fn events(&self, lane: u64, after: u64, most: usize) -> StoreResult<Vec<Kept>> {
        let mut call = self.link().script(Script::Events);
        call.arg(lane).arg(after).arg(most).arg(PAGE_BYTES);
        let events = self.shared().ask(&call).await?.into_iter().filter_map(reply::bytes);
        events.map(|event| read_event(&event)).collect()
    }

    async fn runs(&self, lane: u64, after: u64, most: usize) -> StoreResult<Vec<FinishedRun>> {
        let known = locked(&self.listed.runs).remove(&lane).filter(|_| after > 0);
        let numbers = match known {
            Some(numbers) => numbers,
            None => {
                let mut command = redis::cmd("HKEYS");
                command.arg(self.link().keys.part("run", lane));
                let numbers = reply::list(self.shared().plain(&command).await?)?.into_iter();
                let mut numbers: Vec<u64> = numbers.map(reply::count).collect::<StoreResult<_>>()?;
                if let Some(row) = self.shared().lanes_named(&[lane.to_string()]).await?.pop() {
                    numbers.extend(row.pocket.runs().map(|(number, _)| number));
                }
                numbers.sort_unstable();
                numbers.dedup();
                numbers
            }
        };
        let from = numbers.partition_point(|number| *number <= after);
        let upto = numbers.len().min(from.saturating_add(most));
        if from == upto {
            return Ok(Vec::new());
        }
        let names: Vec<String> = numbers[from..upto].iter().map(u64::to_string).collect();
        let numbers_of_page = numbers[from]..=numbers[upto - 1];
        if upto < numbers.len() {
            locked(&self.listed.runs).insert(lane, numbers);
        }
        let Some(row) = self.shared().lanes_named(&[lane.to_string()]).await?.pop() else {
            return Ok(Vec::new());
        };
        let mut values: BTreeMap<u64, FinishedRun> = BTreeMap::new();
        let here = row.pocket.runs().filter(|(number, _)| numbers_of_page.contains(number));
        let stored = self.shared().rows_of(&format!("run:{lane}"), &names).await?;
        for value in here.map(|(_, value)| value).chain(stored.iter().map(|value| &value[..])) {
            let run = read_run(row.at.key.clone(), lane, value)?;
            values.insert(run.ended.run.number, run);
        }
        Ok(values.into_values().collect())
    }

    async fn steps(&self, run: RunId) -> StoreResult<Vec<StepRow>> {
        let mut command = redis::cmd("HGETALL");
        command.arg(self.link().keys.steps(run.lane, run.number));
        let mut parts = reply::list(self.shared().plain(&command).await?)?.into_iter();
        let mut steps = Vec::new();
        while let (Some(field), Some(value)) = (parts.next(), parts.next()) {
            steps.push(read_step_of(field, value)?);
        }
        steps.sort_by(|a, b| (a.revision, &a.name).cmp(&(b.revision, &b.name)));
        Ok(steps)
    }

    async fn asides(&self, after: u64, most: usize) -> StoreResult<Vec<Aside>> {
        if after == 0 || locked(&self.listed.asides).is_none() {
            let numbers = self.aside_numbers().await?;
            *locked(&self.listed.asides) = Some(numbers);
        }
        let (mut found, mut last) = (Vec::new(), after);
        while found.len() < most {
            let page: Vec<(u64, i64)> = match locked(&self.listed.asides).as_ref() {
                Some(all) => {
                    let from = all.partition_point(|(number, _)| *number <= last);
                    all[from..].iter().take(most - found.len()).copied().collect()
                }
                None => Vec::new(),
            };
            let Some((end, _)) = page.last() else { break };
            last = *end;
            let names: Vec<String> =
                page.iter().map(|(number, ready)| format!("{ready:016}{number:016}")).collect();
            for row in self.shared().rows_of("aside", &names).await? {
                found.push(codec::read_aside(&row)?);
            }
        }
        Ok(found)
    }

    async fn trail(&self, after: u64, most: usize) -> StoreResult<Vec<Trail>> {
        let audit = self.link().keys.of("audit");
        // The page before may have ended in the middle of an entry.
        let mut entry = redis::cmd("ZREVRANGEBYSCORE");
        entry.arg(&audit).arg(after).arg("-inf").arg("LIMIT").arg(0).arg(1);
        let (mut found, mut from) = (Vec::new(), after);
        let mut entries = reply::list(self.shared().plain(&entry).await?)?;
        loop {
            for entry in entries.into_iter().filter_map(reply::bytes) {
                let records = read_records(&entry)?;
                from = records.first().map_or(from, |trail| trail.record.id.max(from));
                found.extend(records.into_iter().filter(|trail| trail.record.id > after));
            }
            if found.len() >= most {
                break;
            }
            let mut next = redis::cmd("ZRANGEBYSCORE");
            next.arg(&audit).arg(format!("({from}")).arg("+inf").arg("LIMIT").arg(0).arg(ENTRIES);
            entries = reply::list(self.shared().plain(&next).await?)?;
            if entries.is_empty() {
                break;
            }
        }
        found.truncate(most);
        Ok(found)
    }

    async fn cached(&self, after: Option<(SourceId, String)>, most: usize) -> StoreResult<Vec<CacheRow>> {
        let mut command = redis::cmd("ZRANGE");
        command.arg(self.link().keys.of("over")).arg(0).arg(-1);
        let numbers = reply::list(self.shared().plain(&command).await?)?.into_iter().map(reply::count);
        let mut sources: Vec<SourceId> = numbers.map(|n| n.map(SourceId)).collect::<StoreResult<_>>()?;
        sources.sort_unstable();
        let (mut found, mut bytes) = (Vec::new(), 0);
        for source in sources.into_iter().filter(|source| after.as_ref().is_none_or(|(of, _)| source >= of)) {
            let mut command = redis::cmd("HKEYS");
            command.arg(self.link().keys.answers(source));
            let keys = reply::list(self.shared().plain(&command).await?)?.into_iter().filter_map(reply::text);
            let behind = |key: &String| after.as_ref().is_none_or(|(of, last)| source > *of || key > last);
            let mut keys: Vec<String> = keys.filter(behind).collect();
            keys.sort_unstable();
            // An answer may have a megabyte, so few are asked for at once.
            for part in keys.chunks(ANSWERS) {
                for row in self.shared().rows_of(&format!("answer:{source}"), part).await? {
                    bytes += row.len();
                    found.push(read_answer(&row)?);
                }
                if found.len() >= most || bytes >= PAGE_BYTES {
                    found.truncate(most);
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }

    async fn put(&self, rows: Vec<Row>) -> StoreResult<()> {
        let (mut lanes, mut changes) = (Vec::new(), Changes::default());
        for row in rows {
            // Whatever names a queue makes it known.
            let queue = match &row {
                Row::Lane(row) => Some((row.key.tenant.clone(), row.key.queue.clone())),
                Row::Aside(aside) => Some((aside.event.lane.tenant.clone(), aside.event.lane.queue.clone())),
                Row::Trail(trail) => Some((trail.record.tenant.clone(), trail.record.queue.clone())),
                Row::Event(..) | Row::Run(_) | Row::Step(..) | Row::Cached(_) => None,
            };
            if let Some(queue) = queue {
                changes.totals.entry(queue).or_default();
            }
            match row {
                Row::Lane(row) => lanes.push(row),
                Row::Event(lane, kept) => changes.new_events.push((lane, Arc::new(kept))),
                Row::Run(run) => changes.new_runs.push(run),
                Row::Step(run, step) => changes.steps.push((run, step)),
                Row::Aside(aside) => changes.new_aside.push(aside),
                Row::Trail(trail) => changes.audit.push(trail),
                Row::Cached(row) => changes.answers.push(row),
            }
        }
        if let Some(known) = locked(&self.listed.lanes).as_mut() {
            known.extend(lanes.iter().map(|row| row.lane.id));
        }
        for _ in 0..TRIES + lanes.len() {
            if self.try_put(&lanes, &mut changes).await? {
                return Ok(());
            }
        }
        Err(again())
    }

    async fn remove_lane(&self, lane: u64) -> StoreResult<()> {
        for _ in 0..TRIES {
            let mut tx = self.transaction().await?;
            let found = tx.lanes_by_id(&[lane], Patience::Answer).await.map_err(told)?.lanes;
            let removed = match found.first() {
                Some(at) => {
                    self.write(&apply::remove(&tx, self.link().script(Script::Put), &at.key, lane)).await?
                }
                None => true,
            };
            if removed {
                if let Some(known) = locked(&self.listed.lanes).as_mut() {
                    known.remove(&lane);
                }
                return Ok(());
            }
        }
        Err(again())
    }

    async fn take_frame(&self, frame: &Frame) -> StoreResult<()> {
        self.order_runs().await?;
        for _ in 0..TRIES {
            if self.try_take_documents(frame).await? && self.try_take_frame(frame).await? {
                // A new epoch has begun: what this process has set apart ends with the old one.
                return self.link().open_again().await;
            }
        }
        Err(again())
    }

    async fn place(&self) -> StoreResult<Option<String>> {
        self.known("copy_place").await
    }

    async fn set_place(&self, place: Option<&str>) -> StoreResult<()> {
        self.set_known("copy_place", place).await
    }

    fn applications(self: Arc<Self>) -> Applications {
        Applications::Keys(Arc::new(PastSeal(self)))
    }
}
