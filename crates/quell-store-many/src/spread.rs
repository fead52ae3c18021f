//! All databases of a list as one side of a copy: so a store is spread over other databases by the copy that every store has.
//!
//! [`Spread`] reads the databases of a store as if their rows were in one, in the order of their numbers, and puts rows where their
//! partition belongs. Everything else is the copy's own (`quell::copy`): it begins while the source is in use, seals it for the
//! last part, keeps its place, goes on after it was killed, and compares both sides by counts and hashes. The last thing that
//! is written before the comparison is the new map, one version further, with new ranges of numbers above all that were given.
//!
//! The limits of sources are divided anew. Their buckets are empty afterwards: a move only slows down.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use quell_core::aside::Aside;
use quell_core::batch::RunId;
use quell_core::clock::Timestamp;
use quell_core::copy::{Applications, Counts, Frame, LaneRow, Portable, Row};
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::event::{Key, LaneKey, QueueName, Tenant};
use quell_core::lifecycle::RunState;
use quell_core::shelf::{Document, Shelf};
use quell_core::source::{CacheRow, Declaration, Source, SourceId, SourceRules};
use quell_core::store::StepRow;
use quell_core::totals::Totals;
use quell_core::working_set::{FinishedRun, Kept, Trail};

use crate::claim::share;
use crate::limits::{LANES_MAX, PARTITIONS, RANGE_BITS, RANGE_FIRST};
use crate::map::{Database, MAP, Map, agree};
use crate::open::{Whole, first_number};

/// Rows of one page, where a page is read to count them.
const PAGE: usize = 1_000;

/// One side of a move.
pub struct Spread {
    members: Vec<Arc<dyn Whole>>,
    /// What the new map begins with: the name of the store, and the version of its old map.
    store: String,
    version: u64,
    /// Databases of the other side: what a limit is divided by there is rounded up to it on both sides.
    divided: u32,
    /// Keys of lanes by their numbers. Forgotten ones are looked up again.
    keys: Mutex<HashMap<u64, LaneKey>>,
}

impl Spread {
    /// The store that is moved: all its databases, or the one that it is.
    pub async fn source(members: Vec<Arc<dyn Whole>>, targets: usize) -> StoreResult<Self> {
        let mut found = Vec::new();
        for member in &members {
            let place = member.description().place;
            match Map::read(&**member).await? {
                Some(map) => found.push((place, map)),
                None if members.len() == 1 => {}
                None => {
                    let detail =
                        format!("{place} belongs to no store of several databases: move it by itself");
                    return Err(StoreError::new(ErrorKind::Corrupt, detail));
                }
            }
        }
        let (store, version) = match found.is_empty() {
            true => (String::new(), 0),
            false => agree(found).map(|(_, map)| (map.store, map.version))?,
        };
        Ok(Spread::new(members, store, version, targets))
    }

    /// The databases that it is moved to. `word` names the store if it had no name before.
    pub fn target(members: Vec<Arc<dyn Whole>>, source: &Spread, word: &str) -> StoreResult<Self> {
        crate::open::check_number(members.len())?;
        let store = if source.store.is_empty() { word.to_owned() } else { source.store.clone() };
        let divided = members.len();
        Ok(Spread::new(members, store, source.version, divided))
    }

    fn new(members: Vec<Arc<dyn Whole>>, store: String, version: u64, divided: usize) -> Self {
        let divided = u32::try_from(divided).unwrap_or(u32::MAX);
        Spread { members, store, version, divided, keys: Mutex::default() }
    }

    /// Where a lane belongs when partitions are dealt out in turn.
    fn home(&self, tenant: &Tenant, key: &Key) -> usize {
        let lane = LaneKey { tenant: tenant.clone(), queue: QueueName::of_sources(), key: key.clone() };
        crate::partition::partition_of(&lane) % self.members.len()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, LaneKey>> {
        self.keys.lock().expect("no panic happens while it is locked")
    }

    fn keep(&self, rows: &[LaneRow]) {
        let mut known = self.known();
        if known.len() + rows.len() > LANES_MAX {
            known.clear();
        }
        known.extend(rows.iter().map(|row| (row.lane.id, row.key.clone())));
    }

    /// The key of a lane; nothing when no database has it.
    async fn key_of(&self, lane: u64) -> StoreResult<Option<LaneKey>> {
        if let Some(key) = self.known().get(&lane) {
            return Ok(Some(key.clone()));
        }
        for member in &self.members {
            let found = member.lanes(lane.saturating_sub(1), 1).await?;
            if let Some(row) = found.into_iter().find(|row| row.lane.id == lane) {
                self.keep(std::slice::from_ref(&row));
                return Ok(Some(row.key));
            }
        }
        Ok(None)
    }

    async fn member_of_lane(&self, lane: u64) -> StoreResult<usize> {
        Ok(self.key_of(lane).await?.map_or(0, |key| self.home(&key.tenant, &key.key)))
    }

    /// The databases that a row belongs to.
    async fn member_of(&self, row: &Row) -> StoreResult<Vec<usize>> {
        Ok(match row {
            Row::Lane(row) => vec![self.home(&row.key.tenant, &row.key.key)],
            Row::Run(run) => vec![self.home(&run.key.tenant, &run.key.key)],
            Row::Aside(aside) => vec![self.home(&aside.event.lane.tenant, &aside.event.lane.key)],
            Row::Event(lane, _) => vec![self.member_of_lane(*lane).await?],
            Row::Step(run, _) => vec![self.member_of_lane(run.lane).await?],
            // A record without a key belongs to no lane that is still there.
            Row::Trail(trail) => match &trail.record.key {
                Some(key) if trail.lane.is_some() => vec![self.home(&trail.record.tenant, key)],
                _ => vec![0],
            },
            Row::Cached(_) => (0..self.members.len()).collect(),
        })
    }
}

#[async_trait]
impl Portable for Spread {
    async fn sealed(&self) -> StoreResult<Option<String>> {
        for member in &self.members {
            if let Some(by) = member.sealed().await? {
                return Ok(Some(by));
            }
        }
        Ok(None)
    }

    /// One after the other: what is half sealed or half open counts as sealed.
    async fn seal(&self, by: Option<&str>) -> StoreResult<()> {
        for member in &self.members {
            member.seal(by).await?;
        }
        Ok(())
    }

    async fn frame(&self) -> StoreResult<Frame> {
        let mut frames = Vec::new();
        for member in &self.members {
            frames.push(member.frame().await?);
        }
        merged(frames, self.divided)
    }

    async fn lanes(&self, after: u64, most: usize) -> StoreResult<Vec<LaneRow>> {
        let mut rows = Vec::new();
        for member in &self.members {
            rows.extend(member.lanes(after, most).await?);
        }
        rows.sort_by_key(|row: &LaneRow| row.lane.id);
        rows.truncate(most);
        self.keep(&rows);
        Ok(rows)
    }

    async fn events(&self, lane: u64, after: u64, most: usize) -> StoreResult<Vec<Kept>> {
        for member in &self.members {
            let rows = member.events(lane, after, most).await?;
            if !rows.is_empty() {
                return Ok(rows);
            }
        }
        Ok(Vec::new())
    }

    async fn runs(&self, lane: u64, after: u64, most: usize) -> StoreResult<Vec<FinishedRun>> {
        for member in &self.members {
            let rows = member.runs(lane, after, most).await?;
            if !rows.is_empty() {
                return Ok(rows);
            }
        }
        Ok(Vec::new())
    }

    async fn steps(&self, run: RunId) -> StoreResult<Vec<StepRow>> {
        for member in &self.members {
            let rows = member.steps(run).await?;
            if !rows.is_empty() {
                return Ok(rows);
            }
        }
        Ok(Vec::new())
    }

    async fn asides(&self, after: u64, most: usize) -> StoreResult<Vec<Aside>> {
        let mut rows = Vec::new();
        for member in &self.members {
            rows.extend(member.asides(after, most).await?);
        }
        rows.sort_by_key(|row: &Aside| row.number);
        rows.truncate(most);
        Ok(rows)
    }

    /// With the keys of lanes that are there: by them the records find their database.
    async fn trail(&self, after: u64, most: usize) -> StoreResult<Vec<Trail>> {
        let mut rows = Vec::new();
        for member in &self.members {
            rows.extend(member.trail(after, most).await?);
        }
        rows.sort_by_key(|row: &Trail| row.record.id);
        rows.truncate(most);
        for row in &mut rows {
            row.record.key = match row.lane {
                Some(lane) => self.key_of(lane).await?.map(|key| key.key),
                None => None,
            };
        }
        Ok(rows)
    }

    async fn cached(&self, after: Option<(SourceId, String)>, most: usize) -> StoreResult<Vec<CacheRow>> {
        let mut rows: BTreeMap<(SourceId, String), CacheRow> = BTreeMap::new();
        for member in &self.members {
            let page = member.cached(after.clone(), most).await?;
            rows.extend(page.into_iter().map(|row| ((row.source, row.key.clone()), row)));
        }
        Ok(rows.into_values().take(most).collect())
    }

    /// All or none in each database; a copy that was cut short puts all of them again.
    async fn put(&self, rows: Vec<Row>) -> StoreResult<()> {
        let mut parts: Vec<Vec<Row>> = self.members.iter().map(|_| Vec::new()).collect();
        for row in rows {
            if let Row::Lane(row) = &row {
                self.keep(std::slice::from_ref(row));
            }
            for member in self.member_of(&row).await? {
                parts[member].push(row.clone());
            }
        }
        for (member, part) in self.members.iter().zip(parts).filter(|(_, part)| !part.is_empty()) {
            member.put(part).await?;
        }
        Ok(())
    }

    async fn remove_lane(&self, lane: u64) -> StoreResult<()> {
        self.known().remove(&lane);
        for member in &self.members {
            member.remove_lane(lane).await?;
        }
        Ok(())
    }

    async fn take_frame(&self, frame: &Frame) -> StoreResult<()> {
        let many = self.members.len();
        for declaration in &frame.declarations {
            check_rate(declaration, many)?;
        }
        let range = RANGE_FIRST.max((frame.last_number >> RANGE_BITS) + 1);
        let databases = (range..)
            .zip(&self.members)
            .map(|(range, member)| Database { place: member.description().place, range });
        let map = Map::new(self.store.clone(), self.version + 1, databases.collect());
        debug_assert!((0..PARTITIONS).all(|n| usize::from(map.partitions[n]) == n % many));
        let mut counted = Vec::new();
        for member in &self.members {
            counted.push(counted_in(&**member).await?);
        }
        for (me, member) in self.members.iter().enumerate() {
            let mut part = Frame {
                // A single database has no map, and its numbers simply go on.
                last_number: if many == 1 { frame.last_number } else { first_number(range + me as u64)? },
                totals: totals_of(&frame.totals, &counted, me),
                schedules: frame
                    .schedules
                    .iter()
                    .filter(|row| self.home(&row.schedule.tenant, &row.schedule.key) == me)
                    .cloned()
                    .collect(),
                declarations: frame
                    .declarations
                    .iter()
                    .map(|d| Declaration { name: d.name.clone(), rules: part_of(d.rules, many, me) })
                    .collect(),
                sources: frame
                    .sources
                    .iter()
                    .map(|source| Source { rules: part_of(source.rules, many, me), ..source.clone() })
                    .collect(),
                documents: if me == 0 { frame.documents.clone() } else { Vec::new() },
                ..frame.clone()
            };
            if many > 1 {
                let (name, body, put_at) = (MAP.to_owned(), map.copy_for(me).body(), frame.now);
                part.documents.push((Shelf::Map, Document { name, body, put_at, expires_at: None }));
            }
            member.take_frame(&part).await?;
        }
        Ok(())
    }

    async fn place(&self) -> StoreResult<Option<String>> {
        self.members[0].place().await
    }

    async fn set_place(&self, place: Option<&str>) -> StoreResult<()> {
        self.members[0].set_place(place).await
    }

    /// Applications are in the first database.
    fn applications(self: Arc<Self>) -> Applications {
        self.members[0].clone().applications()
    }
}

/// What belongs to no lane, of all databases together.
fn merged(frames: Vec<Frame>, divided: u32) -> StoreResult<Frame> {
    let many = frames.len();
    let (mut totals, mut counts): (BTreeMap<(Tenant, QueueName), Totals>, Counts) = Default::default();
    let (mut declarations, mut sources) = (BTreeMap::new(), BTreeMap::new());
    let (mut schedules, mut now, mut last_number) = (Vec::new(), Timestamp::from_millis(0), 0);
    let mut first: Option<Frame> = None;
    for frame in frames {
        (now, last_number) = (frame.now.max(now), frame.last_number.max(last_number));
        for (tenant, queue, one) in &frame.totals {
            add(totals.entry((tenant.clone(), queue.clone())).or_default(), one);
        }
        let Counts { lanes, events, runs, steps, aside, audit } = frame.counts;
        counts.lanes += lanes;
        counts.events += events;
        counts.runs += runs;
        counts.steps += steps;
        counts.aside += aside;
        counts.audit += audit;
        schedules.extend(frame.schedules.iter().cloned());
        for declaration in &frame.declarations {
            join(&mut declarations, declaration.name.clone(), declaration.clone(), |d| &mut d.rules);
        }
        for source in &frame.sources {
            join(&mut sources, source.id, source.clone(), |source| &mut source.rules);
        }
        first.get_or_insert(frame);
    }
    let first = first.ok_or_else(|| StoreError::unavailable("no database was named"))?;
    check_numbers(&sources, many)?;
    let rounded = |rules: SourceRules| SourceRules { burst: rules.burst.max(divided), ..rules };
    Ok(Frame {
        now,
        last_number,
        counts,
        schedules,
        totals: totals.into_iter().map(|((tenant, queue), totals)| (tenant, queue, totals)).collect(),
        declarations: declarations
            .into_values()
            .map(|(_, d)| Declaration { rules: rounded(d.rules), ..d })
            .collect(),
        sources: sources.into_values().map(|(_, source)| emptied(source, rounded)).collect(),
        documents: first.documents.iter().filter(|(shelf, _)| *shelf != Shelf::Map).cloned().collect(),
        pauses: first.pauses,
    })
}

/// A bucket that nobody has filled yet: what each database may let go at once after a move is nothing.
fn emptied(source: Source, rounded: impl Fn(SourceRules) -> SourceRules) -> Source {
    Source { rules: rounded(source.rules), level: 0, unspent: Vec::new(), probe: None, ..source }
}

/// The same thing in one more database: its limits add up.
fn join<K: Ord, T: Clone>(
    all: &mut BTreeMap<K, (usize, T)>,
    name: K,
    one: T,
    rules: impl Fn(&mut T) -> &mut SourceRules,
) {
    match all.get_mut(&name) {
        None => drop(all.insert(name, (1, one))),
        Some((times, known)) => {
            *times += 1;
            let (mut one, known) = (one, rules(known));
            let more = rules(&mut one);
            known.per_minute = known.per_minute.zip(more.per_minute).map(|(a, b)| a + b);
            known.burst += more.burst;
        }
    }
}

/// Events name a source by its number, so each must have the same number in all databases.
fn check_numbers(sources: &BTreeMap<SourceId, (usize, Source)>, many: usize) -> StoreResult<()> {
    match sources.values().find(|(times, _)| *times != many) {
        None => Ok(()),
        Some((_, source)) => Err(StoreError::new(
            ErrorKind::Invalid,
            format!(
                "source {} was first used after the store was spread, so its number differs from database to database; such \
                 a store cannot be moved again",
                source.name
            ),
        )),
    }
}

fn check_rate(declaration: &Declaration, many: usize) -> StoreResult<()> {
    match declaration.rules.per_minute {
        Some(rate) if (rate as usize) < many => Err(StoreError::new(
            ErrorKind::Invalid,
            format!(
                "source {} allows {rate} requests per minute, which cannot be divided among {many} databases",
                declaration.name
            ),
        )),
        _ => Ok(()),
    }
}

fn part_of(rules: SourceRules, many: usize, nth: usize) -> SourceRules {
    SourceRules {
        per_minute: rules.per_minute.map(|rate| share(rate, many, nth)),
        burst: share(rules.burst, many, nth).max(1),
        ..rules
    }
}

fn add(known: &mut Totals, one: &Totals) {
    let Totals { accepted, succeeded, dead, discarded, delayed, buffered, in_flight } = *one;
    known.accepted += accepted;
    known.succeeded += succeeded;
    known.dead += dead;
    known.discarded += discarded;
    known.delayed += delayed;
    known.buffered += buffered;
    known.in_flight += in_flight;
}

type Counted = BTreeMap<(Tenant, QueueName), Totals>;

/// What the rows of one database say about where events are. What has ended well, or is discarded, is not counted by rows.
async fn counted_in(member: &dyn Portable) -> StoreResult<Counted> {
    let mut counted = Counted::new();
    let mut after = 0;
    loop {
        let lanes = member.lanes(after, PAGE).await?;
        let Some(last) = lanes.last().map(|row| row.lane.id) else { break };
        after = last;
        for row in lanes {
            let mut dead = 0;
            let mut from = 0;
            loop {
                let runs = member.runs(row.lane.id, from, PAGE).await?;
                let Some(last) = runs.last().map(|run| run.ended.run.number) else { break };
                from = last;
                dead += runs
                    .iter()
                    .filter(|run| run.ended.state == RunState::Failed)
                    .map(|run| run.ended.run.count)
                    .sum::<u64>();
            }
            let totals = counted.entry((row.key.tenant.clone(), row.key.queue.clone())).or_default();
            totals.dead += dead;
            totals.buffered += row.lane.open.map_or(0, |open| open.count);
            for run in row.lane.fixed_runs() {
                if run.is_buffered() { totals.buffered += run.count } else { totals.in_flight += run.count }
            }
        }
    }
    let mut after = 0;
    loop {
        let asides = member.asides(after, PAGE).await?;
        let Some(last) = asides.last().map(|aside| aside.number) else { return Ok(counted) };
        after = last;
        for aside in asides {
            let lane = aside.event.lane;
            counted.entry((lane.tenant, lane.queue)).or_default().delayed += 1;
        }
    }
}

/// The counters of one database: what its rows say, and in the first also everything that no rows are kept of. All together
/// they are those of the source.
fn totals_of(
    all: &[(Tenant, QueueName, Totals)],
    counted: &[Counted],
    me: usize,
) -> Vec<(Tenant, QueueName, Totals)> {
    let part = |(tenant, queue, whole): &(Tenant, QueueName, Totals)| {
        let name = (tenant.clone(), queue.clone());
        let mut mine = counted[me].get(&name).copied().unwrap_or_default();
        if me == 0 {
            (mine.succeeded, mine.discarded) = (whole.succeeded, whole.discarded);
        }
        mine.accepted = mine.accounted();
        (tenant.clone(), queue.clone(), mine)
    };
    all.iter().map(part).collect()
}
