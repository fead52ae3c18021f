//! The no-loss equation against the rows themselves: a counter that leaked is found here and not believed.
//!
//! It reads every lane, every finished run and every event, a part at a time, so it is for `doctor` and for tests. What
//! changes meanwhile would look like disorder: it is read again, and counts that never stood still are not judged.

use std::collections::{BTreeMap, BTreeSet};

use quell_core::batch::RunId;
use quell_core::error::StoreResult;
use quell_core::event::{QueueName, Tenant};
use quell_core::inspect::Verified;
use quell_core::lane::CurrentRun;
use quell_core::lifecycle::RunState;
use quell_core::source::SourceId;
use redis::Value;

use super::{View, read_totals};
use crate::apply::TOTALS;
use crate::keys::{queue_text, source_text};
use crate::reply;
use crate::rows::{LaneValue, read_event, read_run, stopped_for};
use crate::tx::Index;

/// How often it is read again when somebody writes at the same time.
const TRIES: usize = 5;
/// Rows that one command reads.
const CHUNK: usize = 500;

/// What the rows of one queue say.
#[derive(Default)]
struct Counted {
    buffered: u64,
    in_flight: u64,
    running: u64,
    dead: u64,
    /// The sets of lanes that wait for a source.
    governed: BTreeSet<(u8, SourceId)>,
}

/// What was found, and whether the store stood still meanwhile.
#[derive(Default)]
struct Found {
    events: u64,
    problems: Vec<String>,
    counted: BTreeMap<(Tenant, QueueName), Counted>,
    sources: BTreeSet<SourceId>,
}

impl View<'_> {
    pub(super) async fn verify(&self) -> StoreResult<Verified> {
        let mut tries = 0;
        loop {
            tries += 1;
            let before = self.applied().await?;
            let mut found = Found::default();
            self.verify_sources(&mut found).await?;
            self.verify_lanes(&mut found).await?;
            for (tenant, queue) in &self.queues {
                self.verify_queue(tenant, queue, &mut found).await?;
            }
            let still = before == self.applied().await?;
            if still || found.problems.is_empty() {
                return Ok(Verified {
                    queues: self.queues.len() as u64,
                    events: found.events,
                    problems: found.problems,
                });
            }
            if tries == TRIES {
                // Too much is going on to compare counters with rows that were read one after the other.
                return Ok(Verified {
                    queues: self.queues.len() as u64,
                    events: found.events,
                    problems: Vec::new(),
                });
            }
        }
    }

    /// Counts transactions.
    async fn applied(&self) -> StoreResult<Option<String>> {
        let mut command = redis::cmd("HGET");
        command.arg(self.shared.link.keys.meta()).arg("applied");
        Ok(reply::text(self.shared.plain(&command).await?))
    }

    async fn count(&self, name: &str, key: String) -> StoreResult<u64> {
        let mut command = redis::cmd(name);
        command.arg(key);
        reply::count(self.shared.plain(&command).await?)
    }

    /// The counters of one queue against the rows that they count.
    async fn verify_queue(&self, tenant: &Tenant, queue: &QueueName, found: &mut Found) -> StoreResult<()> {
        let (keys, text) = (&self.shared.link.keys, queue_text(tenant, queue));
        let mut totals = redis::cmd("HMGET");
        totals.arg(keys.totals(&text)).arg(&TOTALS[..]);
        let totals = read_totals(self.shared.plain(&totals).await?)?;
        let name = format!("{tenant}/{queue}");
        if !totals.hold() {
            found.problems.push(format!("queue {name}: the counters do not add up: {totals:?}"));
        }
        let none = Counted::default();
        let counted = found.counted.get(&(tenant.clone(), queue.clone())).unwrap_or(&none);
        let rows = [
            ("buffered", totals.buffered, counted.buffered),
            ("in flight", totals.in_flight, counted.in_flight),
            ("running", self.count("ZCARD", keys.lease(&text)).await?, counted.running),
            ("dead", totals.dead, counted.dead),
            ("delayed", totals.delayed, self.count("ZCARD", keys.look(&text)).await?),
        ];
        for (what, said, rows) in rows {
            if said != rows {
                found
                    .problems
                    .push(format!("queue {name}: the counter says {said} {what}, the rows say {rows}"));
            }
        }
        let governed = counted.governed.clone();
        self.verify_waits(&text, &name, governed, found).await
    }

    /// Whoever waits for a queue must be woken by its first entry.
    async fn verify_waits(
        &self,
        queue: &str,
        name: &str,
        governed: BTreeSet<(u8, SourceId)>,
        found: &mut Found,
    ) -> StoreResult<()> {
        let keys = &self.shared.link.keys;
        let levels = self.due_sets(queue).chain(governed.into_iter().map(|(p, source)| (p, Some(source))));
        let levels: BTreeSet<(u8, Option<SourceId>)> = levels.collect();
        let levels = levels.into_iter().map(|(priority, source)| Index::Due(priority, source));
        let mut pipe = redis::pipe();
        for index in levels.chain([Index::Lease, Index::Look, Index::Fire]) {
            let (member, set) = index.names(keys, queue);
            pipe.cmd("ZSCORE").arg(keys.of("waits")).arg(member);
            pipe.cmd("ZRANGE").arg(set).arg(0).arg(0).arg("WITHSCORES");
        }
        let answers = self.shared.link.pipe(&pipe).await?;
        for pair in answers.chunks(2) {
            let [told, first] = pair else { continue };
            let told = match told {
                Value::Nil => None,
                told => Some(reply::number(told.clone())?),
            };
            let first = reply::list(first.clone())?.into_iter().nth(1).map(reply::number).transpose()?;
            if told != first {
                found.problems.push(format!(
                    "queue {name}: its first entry is at {first:?}, and those who wait are told {told:?}"
                ));
            }
        }
        Ok(())
    }

    async fn verify_lanes(&self, found: &mut Found) -> StoreResult<()> {
        let (mut cursor, hash) = ("0".to_owned(), self.shared.link.keys.of("key"));
        let mut lanes = BTreeSet::new();
        loop {
            let mut command = redis::cmd("HSCAN");
            command.arg(&hash).arg(&cursor).arg("COUNT").arg(CHUNK);
            let mut answer = reply::list(self.shared.plain(&command).await?)?.into_iter();
            cursor = answer.next().and_then(reply::text).unwrap_or_default();
            let ids = reply::list(answer.next().unwrap_or_default())?.into_iter().skip(1).step_by(2);
            // A scan may name one twice.
            let ids: Vec<String> =
                ids.filter_map(reply::text).filter(|id| lanes.insert(id.clone())).collect();
            for lane in self.shared.lanes_named(&ids).await? {
                self.verify_lane(&lane, found).await?;
            }
            if cursor == "0" || cursor.is_empty() {
                return Ok(());
            }
        }
    }

    /// A lane against its events, its ended runs and its index entries.
    async fn verify_lane(&self, value: &LaneValue, found: &mut Found) -> StoreResult<()> {
        let (lane, key) = (&value.at.lane, &value.at.key);
        let id = lane.id;
        let events = self.events(value).await?;
        let ended = self.ended(value).await?;
        found.events += events.len() as u64;
        let problems = &mut found.problems;
        let counted = found.counted.entry((key.tenant.clone(), key.queue.clone())).or_default();
        counted.running += u64::from(lane.lease_at().is_some());
        if let (Some(_), Some(source)) = (value.at.entries.due, value.at.entries.source) {
            counted.governed.insert((value.at.entries.priority, source));
        }
        let members =
            |run: &CurrentRun| events.iter().filter(|(seq, mark, _)| run.has(*seq, *mark)).count() as u64;
        let mut differ = Vec::new();
        let mut held = 0;
        if let Some(open) = lane.open {
            counted.buffered += open.count;
            held += open.count;
            let of_open = || events.iter().filter(|(seq, mark, _)| mark.is_none() && *seq >= open.lo);
            let rows = of_open().count() as u64;
            if of_open().next().is_some_and(|(.., source)| *source != open.source) {
                differ.push((open.number, open.source));
            }
            if rows != open.count {
                let said = open.count;
                problems.push(format!("lane {id}: its open run says {said} events, the rows say {rows}"));
            }
        }
        for run in lane.fixed_runs() {
            // Redriven events are buffered until they are claimed, as the totals count them.
            match run.is_buffered() {
                true => counted.buffered += run.count,
                false => counted.in_flight += run.count,
            }
            held += run.count;
            if events.iter().any(|(seq, mark, source)| run.has(*seq, *mark) && *source != run.source) {
                differ.push((run.number, run.source));
            }
            let rows = members(run);
            if rows != run.count {
                let (id, said) = (lane.run_id(run.number), run.count);
                problems.push(format!("{id}: it says {said} events, the rows say {rows}"));
            }
        }
        for (run, state) in &ended {
            if *state == RunState::Failed {
                counted.dead += run.count;
            }
            held += run.count;
            let rows = if run.count > 0 { members(run) } else { 0 };
            if rows != run.count {
                let (id, said) = (RunId { lane: id, number: run.number }, run.count);
                problems.push(format!("{id}: it ended with {said} events, the rows say {rows}"));
            }
        }
        if events.len() as u64 != held {
            let rows = events.len();
            problems.push(format!("lane {id}: it has {rows} events, its runs say {held}"));
        }
        for (number, said) in differ {
            let run = lane.run_id(number);
            problems.push(format!("{run}: it asks source {said:?}, its events do not"));
        }
        let asked = events.iter().filter_map(|(.., source)| *source);
        if let Some(unknown) = asked.filter(|source| !found.sources.contains(source)).min() {
            problems.push(format!("lane {id}: an event names source {unknown}, which is not there"));
        }
        self.verify_entries(value, problems).await
    }

    /// Every source is known by its name, and only those that are there.
    async fn verify_sources(&self, found: &mut Found) -> StoreResult<()> {
        let mut command = redis::cmd("HGETALL");
        command.arg(self.shared.link.keys.of("source"));
        let mut parts = reply::list(self.shared.plain(&command).await?)?.into_iter();
        let mut named = BTreeMap::new();
        while let (Some(text), Some(id)) = (parts.next(), parts.next()) {
            named.insert(SourceId(reply::count(id)?), reply::text(text).unwrap_or_default());
        }
        let rows = self.shared.sources_of(named.keys().copied()).await?;
        for (id, text) in named {
            let shown = text.replace('\0', " of ");
            match rows.get(&id) {
                Some(row) if source_text(&row.tenant, &row.name) == text => {
                    found.sources.insert(id);
                }
                Some(_) => {
                    found.problems.push(format!("source {id}: it is known as {shown}, its row is not"))
                }
                None => found.problems.push(format!("source {id}: it is known as {shown} and has no row")),
            }
        }
        Ok(())
    }

    /// Number, mark and source of every event of a lane.
    async fn events(&self, value: &LaneValue) -> StoreResult<Vec<(u64, Option<u64>, Option<SourceId>)>> {
        let (set, mut all) = (self.shared.link.keys.part("ev", value.at.lane.id), Vec::new());
        let shown = |event: &[u8]| read_event(event).map(|kept| (kept.event.seq, kept.mark, kept.source));
        loop {
            let mut command = redis::cmd("ZRANGE");
            command.arg(&set).arg(all.len()).arg(all.len() + CHUNK - 1);
            let part = reply::list(self.shared.plain(&command).await?)?;
            let full = part.len() == CHUNK;
            for event in part.into_iter().filter_map(reply::bytes) {
                all.push(shown(&event)?);
            }
            if !full {
                break;
            }
        }
        for event in value.pocket.events() {
            all.push(shown(event)?);
        }
        all.sort_unstable();
        Ok(all)
    }

    async fn ended(&self, value: &LaneValue) -> StoreResult<Vec<(CurrentRun, RunState)>> {
        let mut command = redis::cmd("HVALS");
        command.arg(self.shared.link.keys.part("run", value.at.lane.id));
        let stored = reply::list(self.shared.plain(&command).await?)?.into_iter().filter_map(reply::bytes);
        let runs = stored.chain(value.pocket.runs().map(|(_, run)| run.to_vec()));
        runs.map(|run| {
            let run = read_run(value.at.key.clone(), value.at.lane.id, &run)?.ended;
            Ok((run.run, run.state))
        })
        .collect()
    }

    /// Index entries may lie before the true times, never behind them: a lane would be taken up too late, or never. A
    /// lane that a claimer has just reserved is behind for a moment.
    async fn verify_entries(&self, value: &LaneValue, problems: &mut Vec<String>) -> StoreResult<()> {
        let (lane, entries) = (&value.at.lane, &value.at.entries);
        let (id, keys) = (lane.id, &self.shared.link.keys);
        let queue = queue_text(&value.at.key.tenant, &value.at.key.queue);
        let mut pipe = redis::pipe();
        pipe.cmd("ZSCORE").arg(keys.due(entries.priority, lane.source(), &queue)).arg(id);
        pipe.cmd("ZSCORE").arg(keys.lease(&queue)).arg(id);
        let stopped = stopped_for(lane);
        if let Some(source) = stopped {
            pipe.cmd("SISMEMBER").arg(keys.stopped(source)).arg(id);
        }
        let scores = self.shared.link.pipe(&pipe).await?;
        let score = |value: Option<&Value>| match value {
            None | Some(Value::Nil) => Ok(None),
            Some(value) => reply::number(value.clone()).map(Some),
        };
        let (due, lease) = (score(scores.first())?, score(scores.get(1))?);
        if let Some(source) = stopped.filter(|_| scores.get(2) != Some(&Value::Int(1))) {
            problems.push(format!("lane {id}: it is stopped and not counted among those of source {source}"));
        }
        let moment = self.now.as_millis() + 1_000;
        match (lane.due_at(), due) {
            (Some(at), None) => {
                problems.push(format!("lane {id}: it is due at {at} and nothing will ever wake it"));
            }
            (Some(at), Some(entry)) if entry > at.as_millis().max(moment) => {
                problems.push(format!("lane {id}: it is due at {at} and entered at {entry}, later"));
            }
            _ => {}
        }
        match (lane.lease_at(), lease) {
            (Some(until), entry) if entry.is_none_or(|entry| entry > until.as_millis().max(moment)) => {
                problems.push(format!(
                    "lane {id}: its lease ends at {until} and nobody will look by then, in case its holder died"
                ));
            }
            (None, Some(_)) => problems.push(format!("lane {id}: it has a lease entry without running")),
            _ => {}
        }
        Ok(())
    }
}
