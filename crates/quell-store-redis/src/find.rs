//! What belongs to lanes: one script reads all that a transaction wants, in one round trip.

use std::collections::BTreeSet;

use quell_core::batch::RunId;
use quell_core::error::StoreResult;
use quell_core::event::{LaneKey, QueueName, SourceName, Tenant};
use quell_core::limits;
use quell_core::store::{Purge, PurgeWhat};
use quell_core::working_set::LaneSums;
use quell_store_rows::codec;
use quell_store_rows::rows::{Found, Purgeable, RowsResult, Trouble, Want};
use redis::{Cmd, Value};

use crate::error::strange;
use crate::keys::{lane_text, queue_text, read_lane_key};
use crate::link::For;
use crate::reply;
use crate::rows::{mark_bytes, read_answer, read_event, read_run, read_source, read_step, step_field};
use crate::script::Script;
use crate::store::{Pauses, due_places};
use crate::tx::{SeenSource, Tx, or_empty};

/// This close to the bound, steps that are taken at once look at their number, too.
const STEPS_CLOSE: usize = 100;

/// This close to the bound, declarations that come at once look at their number, too.
const DECLARED_CLOSE: usize = 100;

/// Adds one argument after the other.
fn wish<const N: usize>(call: &mut Cmd, parts: [&[u8]; N]) {
    for part in parts {
        call.arg(part);
    }
}

/// Writes the wishes in the order in which [`Tx::take_found`] reads the answers.
pub(crate) fn ask(call: &mut Cmd, want: &Want) {
    let text = |number: u64| number.to_string();
    for span in &want.spans {
        let (lane, from, upto) = (text(span.lane), text(span.from), text(span.upto));
        let (most, bytes) = (text(span.most), or_empty(span.bytes));
        let mark = mark_bytes(span.mark);
        let [lane, from, upto, most, bytes] = [&lane, &from, &upto, &most, &bytes].map(|t| t.as_bytes());
        wish(call, [b"S", lane, from, upto, &mark, most, bytes]);
    }
    for (lane, id) in &want.ids {
        wish(call, [b"I", text(*lane).as_bytes(), id.as_str().as_bytes()]);
    }
    for (lane, from, print) in &want.contents {
        wish(call, [b"C", text(*lane).as_bytes(), text(*from).as_bytes(), &print.0, &mark_bytes(None)]);
    }
    for run in &want.runs {
        wish(call, [b"R", text(run.lane).as_bytes(), text(run.number).as_bytes()]);
    }
    for (lane, seq, mark) in &want.runs_of {
        wish(call, [b"O", text(*lane).as_bytes(), text(*seq).as_bytes(), or_empty(*mark).as_bytes()]);
    }
    for (run, token) in &want.said {
        wish(call, [b"D", text(run.lane).as_bytes(), text(run.number).as_bytes(), text(*token).as_bytes()]);
    }
    for (key, id) in &want.aside_ids {
        let queue = queue_text(&key.tenant, &key.queue);
        wish(call, [b"A", queue.as_bytes(), lane_text(key).as_bytes(), id.as_str().as_bytes()]);
    }
    for key in &want.aside_first {
        let queue = queue_text(&key.tenant, &key.queue);
        wish(call, [b"F", queue.as_bytes(), lane_text(key).as_bytes()]);
    }
    for run in &want.steps {
        wish(call, [b"T", text(run.lane).as_bytes(), text(run.number).as_bytes()]);
    }
    if let Some((run, revision, name)) = &want.step {
        let (revision, most) = (revision.to_string(), limits::STEPS_MAX.to_string());
        let (lane, number) = (text(run.lane), text(run.number));
        let [lane, number, revision, most] = [&lane, &number, &revision, &most].map(|t| t.as_bytes());
        wish(call, [b"U", lane, number, revision, name.as_bytes(), most]);
    }
    if let Some((key, lane)) = &want.sums {
        wish(call, [b"M", lane_text(key).as_bytes(), or_empty(*lane).as_bytes()]);
    }
    if want.schedules {
        wish(call, [b"H"]);
    }
    if want.pauses {
        wish(call, [b"P"]);
    }
    for source in &want.sources {
        wish(call, [b"G", text(source.0).as_bytes()]);
    }
    for (tenant, name) in &want.governing {
        wish(call, [b"V", name.as_str().as_bytes(), tenant.as_str().as_bytes()]);
    }
    if let Some(name) = &want.declared {
        wish(call, [b"N", name.as_str().as_bytes()]);
    }
    if let Some((source, key)) = &want.answer {
        wish(call, [b"K", text(source.0).as_bytes(), key.as_bytes()]);
    }
}

/// A value of the answer; a missing one is an error of ours.
fn next(answer: &mut impl Iterator<Item = Value>) -> StoreResult<Value> {
    answer.next().ok_or_else(|| strange("an answer that ends too soon"))
}

/// The name and the row of an event aside, each empty when there is none; nothing when the whole queue has none.
pub(crate) fn pair(value: Value) -> StoreResult<Option<(String, Vec<u8>)>> {
    if value == Value::Int(0) {
        return Ok(None);
    }
    let mut parts = reply::list(value)?.into_iter();
    let name = reply::text(next(&mut parts)?).unwrap_or_default();
    Ok(Some((name, reply::bytes(next(&mut parts)?).unwrap_or_default())))
}

/// The pauses of all queues, as `HGETALL` tells them.
pub(crate) fn read_pauses(value: Value) -> StoreResult<Pauses> {
    let mut parts = reply::list(value)?.into_iter();
    let mut pauses = Pauses::new();
    while let (Some(field), Some(paused)) = (parts.next(), parts.next()) {
        let field = reply::text(field).ok_or_else(|| strange("a pause without a name"))?;
        let (queue, tenant) = match field.split_once('\0') {
            Some((queue, tenant)) => (queue, Some(Tenant::new(tenant)?)),
            None => (&field[..], None),
        };
        let paused = codec::read_paused(&reply::bytes(paused).unwrap_or_default())?;
        pauses.insert((QueueName::new(queue)?, tenant), paused);
    }
    Ok(pauses)
}

impl Tx {
    pub(crate) async fn find_all(&mut self, want: &Want, numbers: usize) -> RowsResult<Found> {
        let mut found = Found::default();
        if want.answer.is_none() && self.turns.is_empty() {
            // Those who only ask for an answer do not change its source.
            self.turns = self.shared.turns.take(&want.sources).await;
        }
        let want = self.answer_by_pockets(want, &mut found)?;
        if want != Want::default() {
            let mut call = self.shared.link.script(Script::Find);
            self.as_seen(&mut call, &want);
            ask(&mut call, &want);
            let mut answer = self.ask(&call).await?;
            if let [Value::SimpleString(row)] = answer.as_slice() {
                self.contended(row);
                self.give_back().await;
                return Err(Trouble::Again);
            }
            self.take_found(&want, &mut answer, &mut found)?;
        }
        if numbers > 0 {
            let shared = self.shared.clone();
            let range = shared.numbers.take(&shared.link, self.epoch, numbers, self.largest).await?;
            self.given = self.given.max(range.end - 1);
            self.ranges.push(range.clone());
            found.numbers.push(range);
        }
        Ok(found)
    }

    /// Events of lanes that have all of theirs in their pockets came with the lanes. Says what is left to be asked for.
    fn answer_by_pockets(&self, want: &Want, found: &mut Found) -> StoreResult<Want> {
        let whole = |lane: u64| self.lanes.get(&lane).map(|seen| &seen.pocket).filter(|p| !p.elsewhere);
        let mut left = want.clone();
        left.spans.retain(|span| whole(span.lane).is_none());
        left.ids.retain(|(lane, _)| whole(*lane).is_none());
        left.contents.retain(|(lane, ..)| whole(*lane).is_none());
        for span in &want.spans {
            if let Some(pocket) = whole(span.lane) {
                found.events.extend(pocket.span(span)?.into_iter().map(|kept| (span.lane, kept)));
            }
        }
        for (lane, id) in &want.ids {
            let kept = whole(*lane).map(|pocket| pocket.by_id(id)).transpose()?.flatten();
            found.events.extend(kept.map(|kept| (*lane, kept)));
        }
        for (lane, from, print) in &want.contents {
            let kept = whole(*lane).map(|pocket| pocket.by_content(*from, *print)).transpose()?.flatten();
            found.events.extend(kept.map(|kept| (*lane, kept)));
        }
        Ok(left)
    }

    /// The lanes that the wishes are about, with the versions that were seen.
    fn as_seen(&self, call: &mut Cmd, want: &Want) {
        let spans = want.spans.iter().map(|span| span.lane);
        let ids = want.ids.iter().map(|(lane, _)| *lane);
        let contents = want.contents.iter().map(|(lane, ..)| *lane);
        let runs = want.runs.iter().chain(&want.steps).chain(want.step.iter().map(|(run, ..)| run));
        let runs_of = want.runs_of.iter().map(|(lane, ..)| *lane);
        let sums = want.sums.iter().filter_map(|(_, lane)| *lane);
        let all = spans.chain(ids).chain(contents).chain(runs.map(|run| run.lane)).chain(runs_of).chain(sums);
        let lanes: BTreeSet<u64> = all.filter(|lane| self.lanes.contains_key(lane)).collect();
        call.arg(lanes.len());
        for lane in &lanes {
            call.arg(self.keys().lane(*lane));
        }
        for lane in &lanes {
            call.arg(&self.lanes[lane].front.version.to_be_bytes()[..]);
        }
    }

    fn take_found(
        &mut self,
        want: &Want,
        answer: &mut impl Iterator<Item = Value>,
        found: &mut Found,
    ) -> StoreResult<()> {
        for span in &want.spans {
            for event in reply::list(next(answer)?)? {
                found.events.push((span.lane, read_event(&reply::bytes(event).unwrap_or_default())?));
            }
        }
        let single = want.ids.iter().map(|(lane, _)| lane).chain(want.contents.iter().map(|(lane, ..)| lane));
        for lane in single {
            if let Some(event) = reply::bytes(next(answer)?) {
                found.events.push((*lane, read_event(&event)?));
            }
        }
        for run in &want.runs {
            let (value, key) = (reply::bytes(next(answer)?), self.key_of(run.lane));
            if let (Some(value), Some(key)) = (value, key) {
                found.runs.push(read_run(key, run.lane, &value)?);
            }
        }
        for (lane, seq, mark) in &want.runs_of {
            let mut parts = reply::list(next(answer)?)?.into_iter();
            let (Some(_), Some(value), Some(key)) = (parts.next(), parts.next(), self.key_of(*lane)) else {
                continue;
            };
            let run = read_run(key, *lane, &reply::bytes(value).unwrap_or_default())?;
            if run.ended.run.count > 0 && run.ended.run.has(*seq, *mark) {
                found.runs.push(run);
            }
        }
        for _ in &want.said {
            if let Some(record) = reply::bytes(next(answer)?) {
                found.said.push(codec::read_trail(&record)?);
            }
        }
        self.take_found_aside(want, answer, found)?;
        for run in &want.steps {
            let mut parts = reply::list(next(answer)?)?.into_iter();
            while let (Some(field), Some(value)) = (parts.next(), parts.next()) {
                found.steps.push((*run, read_step_of(field, value)?));
            }
        }
        if let Some((run, revision, name)) = &want.step {
            let mut parts = reply::list(next(answer)?)?.into_iter();
            let value = reply::bytes(next(&mut parts)?).unwrap_or_default();
            if !value.is_empty() {
                let field = step_field(*revision, name);
                found.steps.push((*run, read_step(field.as_bytes(), &value)?));
            }
            let count = reply::count(next(&mut parts)?)?;
            found.step_count = usize::try_from(count).unwrap_or(usize::MAX);
            // A memo only ever gets longer: from nothing to an intent, from an intent to a result.
            let set = self.keys().steps(run.lane, run.number);
            self.look("HSTRLEN", set.clone(), step_field(*revision, name), value.len().to_string());
            if found.step_count + STEPS_CLOSE > limits::STEPS_MAX {
                self.look("HLEN", set, String::new(), parts.next().and_then(reply::text).unwrap_or_default());
            }
        }
        if want.sums.is_some() {
            let mut parts = reply::list(next(answer)?)?.into_iter().map(reply::count);
            let mut part = || parts.next().unwrap_or_else(|| Err(strange("a sum that is missing")));
            found.sums = LaneSums { events: part()?, dead: part()?, aside: part()? };
        }
        self.take_found_settings(want, answer, found)
    }

    fn take_found_aside(
        &mut self,
        want: &Want,
        answer: &mut impl Iterator<Item = Value>,
        found: &mut Found,
    ) -> StoreResult<()> {
        let mut take = |tx: &mut Self, row: Vec<u8>| -> StoreResult<()> {
            if !row.is_empty() {
                let aside = codec::read_aside(&row)?;
                tx.asides.insert(aside.number, aside.clone());
                found.aside.push(aside);
            }
            Ok(())
        };
        for (key, id) in &want.aside_ids {
            match pair(next(answer)?)? {
                Some((name, row)) => {
                    let ids = self.keys().aside_ids(&lane_text(key));
                    self.look("HGET", ids, id.as_str().to_owned(), name);
                    take(self, row)?;
                }
                None => self.look_none_aside(key),
            }
        }
        for key in &want.aside_first {
            match pair(next(answer)?)? {
                Some((name, row)) => {
                    let of = self.keys().aside_of(&lane_text(key));
                    self.look("FIRST", of, String::new(), name);
                    take(self, row)?;
                }
                None => self.look_none_aside(key),
            }
        }
        Ok(())
    }

    fn look_none_aside(&mut self, key: &LaneKey) {
        let set = self.keys().look(&queue_text(&key.tenant, &key.queue));
        self.look("EXISTS", set, String::new(), "0".to_owned());
    }

    fn take_found_settings(
        &mut self,
        want: &Want,
        answer: &mut impl Iterator<Item = Value>,
        found: &mut Found,
    ) -> StoreResult<()> {
        let meta = self.keys().meta();
        let mut versioned = |tx: &mut Self, name: &str| -> StoreResult<Value> {
            let mut parts = reply::list(next(answer)?)?.into_iter();
            let version = reply::text(next(&mut parts)?).unwrap_or_default();
            tx.look("HGET", meta.clone(), name.to_owned(), version);
            next(&mut parts)
        };
        if want.schedules {
            let rows = reply::list(versioned(self, "schedules")?)?;
            found.schedules = self.take_in_schedules(rows.into_iter())?;
        }
        if want.pauses {
            found.pauses = read_pauses(versioned(self, "pauses")?)?;
        }
        self.take_found_sources(want, answer, found)
    }

    fn take_found_sources(
        &mut self,
        want: &Want,
        answer: &mut impl Iterator<Item = Value>,
        found: &mut Found,
    ) -> StoreResult<()> {
        for _ in &want.sources {
            let row = reply::bytes(next(answer)?);
            self.take_in_source(row, found)?;
        }
        for (tenant, name) in &want.governing {
            let mut parts = reply::list(next(answer)?)?.into_iter().map(reply::bytes);
            let mut part = || parts.next().flatten().filter(|part| !part.is_empty());
            let (version, declaration) = (part(), part());
            let (own, shared) = (part(), part());
            // What is there may change; what is missing is made, unless somebody else was faster.
            if declaration.is_none() || own.is_none() || shared.is_none() {
                self.look_named(name, version);
            }
            found.declarations.extend(declaration.map(|row| codec::read_declaration(&row)).transpose()?);
            self.take_in_source(own, found)?;
            // For those who have no tenant both are the same.
            self.take_in_source(shared.filter(|_| !tenant.is_none()), found)?;
        }
        if let Some(name) = &want.declared {
            let mut parts = reply::list(next(answer)?)?.into_iter();
            let (version, declaration) = (next(&mut parts)?, next(&mut parts)?);
            self.look_named(name, reply::bytes(version));
            let declaration = reply::bytes(declaration).filter(|row| !row.is_empty());
            found.declarations.extend(declaration.map(|row| codec::read_declaration(&row)).transpose()?);
            let declared = reply::count(next(&mut parts)?)?;
            found.declared = usize::try_from(declared).unwrap_or(usize::MAX);
            if found.declared + DECLARED_CLOSE > limits::SOURCES_DECLARED_MAX {
                self.look("HLEN", self.keys().of("declared"), String::new(), declared.to_string());
            }
            for row in reply::list(next(&mut parts)?)? {
                self.take_in_source(reply::bytes(row), found)?;
            }
        }
        if let Some((source, key)) = &want.answer {
            let mut parts = reply::list(next(answer)?)?.into_iter();
            let row = reply::bytes(next(&mut parts)?).unwrap_or_default();
            let version = row.first_chunk().map(|version| u64::from_be_bytes(*version));
            self.look("VERSION", self.keys().answers(*source), key.clone(), or_empty(version));
            found.answer = version.map(|_| read_answer(&row)).transpose()?;
            let answers = reply::count(next(&mut parts)?)?;
            found.answers = usize::try_from(answers).unwrap_or(usize::MAX);
            found.next_over = reply::text(next(&mut parts)?).filter(|key| !key.is_empty());
        }
        Ok(())
    }

    /// Nothing comes or goes under this name until the end, or the end is a conflict.
    fn look_named(&mut self, name: &SourceName, version: Option<Vec<u8>>) {
        let version = String::from_utf8(version.unwrap_or_default()).unwrap_or_default();
        self.look("HGET", self.keys().of("named"), name.as_str().to_owned(), version);
    }

    fn take_in_source(&mut self, row: Option<Vec<u8>>, found: &mut Found) -> StoreResult<()> {
        let Some(row) = row.filter(|row| !row.is_empty()) else { return Ok(()) };
        let (version, source) = read_source(&row)?;
        self.shared.turns.learn(&source);
        // The first reading counts, as with lanes.
        let seen = SeenSource { version, source: source.clone() };
        self.sources.entry(source.id).or_insert(seen);
        found.sources.push(source);
        Ok(())
    }

    fn key_of(&self, lane: u64) -> Option<LaneKey> {
        self.lanes.get(&lane).map(|seen| seen.key.clone())
    }
}

pub(crate) fn read_step_of(field: Value, value: Value) -> StoreResult<quell_core::store::StepRow> {
    read_step(&reply::bytes(field).unwrap_or_default(), &reply::bytes(value).unwrap_or_default())
}

/// How many names one page of a search reads.
const PAGE: usize = 512;

impl Tx {
    /// Looks for what a purge could take, in the sets of the queue as far as there are some. What is found may be gone
    /// before it is purged: the caller reads it again.
    pub(crate) async fn find_purgeable(&mut self, purge: &Purge, most: usize) -> RowsResult<Purgeable> {
        let mut found = Purgeable::default();
        match purge.what {
            PurgeWhat::Dead => found.dead = self.dead(purge, most).await?,
            PurgeWhat::Delayed => {
                for queue in self.queues_of(purge).await? {
                    self.delayed(purge, &queue, most, &mut found).await?;
                }
            }
            PurgeWhat::Buffered => {
                for queue in self.queues_of(purge).await? {
                    self.buffered(purge, &queue, most, &mut found).await?;
                }
            }
        }
        Ok(found)
    }

    /// The queues of the name that a purge gives, as texts.
    async fn queues_of(&self, purge: &Purge) -> StoreResult<Vec<String>> {
        if let Some(tenant) = &purge.tenant {
            return Ok(vec![queue_text(tenant, &purge.queue)]);
        }
        let all = self.shared.all_queues().await?;
        Ok(all
            .into_iter()
            .filter(|(_, queue)| *queue == purge.queue)
            .map(|(t, q)| queue_text(&t, &q))
            .collect())
    }

    /// Failed runs that have events, the oldest first.
    async fn dead(&self, purge: &Purge, most: usize) -> StoreResult<Vec<RunId>> {
        let dead = self.keys().of("dead");
        let (mut found, mut at) = (Vec::new(), 0);
        loop {
            let names = self.shared.page(&dead, at, PAGE).await?;
            at += names.len();
            let full = names.len() == PAGE;
            let runs: Vec<RunId> = names.iter().filter_map(|name| read_run_name(name)).collect();
            let lanes = self.shared.keys_of_lanes(runs.iter().map(|run| run.lane)).await?;
            for (run, key) in runs.into_iter().zip(lanes) {
                if key.is_some_and(|key| is_wanted(purge, &key)) {
                    found.push(run);
                    if found.len() >= most {
                        return Ok(found);
                    }
                }
            }
            if !full {
                return Ok(found);
            }
        }
    }

    async fn delayed(
        &self,
        purge: &Purge,
        queue: &str,
        most: usize,
        found: &mut Purgeable,
    ) -> StoreResult<()> {
        let set = match &purge.key {
            Some(key) => self.keys().aside_of(&format!("{queue}\0{}", key.as_str())),
            None => self.keys().look(queue),
        };
        let left = most.saturating_sub(found.aside.len());
        let names = self.shared.page(&set, 0, left).await?;
        for row in self.shared.rows_of("aside", &names).await? {
            found.aside.push(codec::read_aside(&row)?);
        }
        Ok(())
    }

    /// Lanes with buffered events: those that are due some day, those that run, and those that are held.
    async fn buffered(
        &self,
        purge: &Purge,
        queue: &str,
        most: usize,
        found: &mut Purgeable,
    ) -> StoreResult<()> {
        if let Some(key) = &purge.key {
            found.lanes.extend(read_lane_key(&format!("{queue}\0{}", key.as_str())));
            return Ok(());
        }
        let keys = self.keys();
        let (outlook, _) = self.shared.outlook(For::Reads).await?;
        let of_queue = outlook.queues.iter().filter(|q| queue_text(&q.tenant, &q.queue) == queue);
        let due: Vec<String> = of_queue
            .flat_map(|q| due_places(q).map(|(priority, source)| keys.due(priority, source, queue)))
            .collect();
        let mut seen = BTreeSet::new();
        for set in due.into_iter().chain([keys.lease(queue), keys.held(queue)]) {
            let mut at = 0;
            while found.lanes.len() < most {
                let names = self.shared.page(&set, at, PAGE).await?;
                at += names.len();
                for lane in self.shared.lanes_named(&names).await? {
                    if lane.at.lane.open.is_some() && seen.insert(lane.at.lane.id) {
                        found.lanes.push(lane.at.key);
                    }
                }
                if names.len() < PAGE {
                    break;
                }
            }
        }
        found.lanes.truncate(most);
        Ok(())
    }
}

fn is_wanted(purge: &Purge, key: &LaneKey) -> bool {
    key.queue == purge.queue
        && purge.tenant.as_ref().is_none_or(|tenant| *tenant == key.tenant)
        && purge.key.as_ref().is_none_or(|wanted| *wanted == key.key)
}

pub(crate) fn read_run_name(name: &str) -> Option<RunId> {
    let (lane, number) = name.split_once(':')?;
    Some(RunId { lane: lane.parse().ok()?, number: number.parse().ok()? })
}
