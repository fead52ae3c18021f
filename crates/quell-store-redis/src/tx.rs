//! One transaction: what it has read, with the versions it saw, until it ends.
//!
//! Nothing is locked. Every lane that was read is looked at again by the script that ends the transaction, and if any of
//! them has changed since, nothing is written and the transaction is begun anew. So nothing is ever busy, and nobody waits
//! for a process that died. Only claimers would choose the same lanes again and again; these are reserved for a moment
//! (`lua/due.lua`).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use quell_core::aside::Aside;
use quell_core::clock::Timestamp;
use quell_core::error::StoreResult;
use quell_core::event::{LaneKey, QueueName, Tenant};
use quell_core::lane::Lane;
use quell_core::schedule::ScheduleRow;
use quell_core::shelf::{Document, Shelf};
use quell_core::source::{Source, SourceId};
use quell_core::store::Purge;
use quell_store_rows::changes::Changes;
use quell_store_rows::codec;
use quell_store_rows::rows::{
    Entries, Found, LaneAt, Lanes, Patience, Pick, Purgeable, Rows, RowsResult, Trouble, Want,
};
use redis::{Cmd, Value};

use crate::apply::{self, claim_of};
use crate::error::strange;
use crate::keys::{Keys, aside_name, lane_text, queue_text};
use crate::link::For;
use crate::pocket::Pocket;
use crate::reply;
use crate::rows::{Front, is_held, read_lane, stopped_for};
use crate::script::Script;
use crate::store::Shared;
use crate::turns::Turn;

/// How long lanes are reserved for the claimer that has read them: far longer than it needs, and short enough for the
/// lanes of one that died.
const RESERVED: Duration = Duration::from_millis(250);

/// A sorted set of lanes or of events aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Index {
    /// By priority, and by the source that its lanes wait for.
    Due(u8, Option<SourceId>),
    Lease,
    Look,
    Fire,
}

impl Index {
    /// Its name in `waits`, and the set itself.
    pub(crate) fn names(self, keys: &Keys, queue: &str) -> (String, String) {
        match self {
            Index::Due(priority, None) => (format!("d{priority}{queue}"), keys.due(priority, None, queue)),
            Index::Due(priority, source @ Some(id)) => {
                (format!("g{priority}{id}:{queue}"), keys.due(priority, source, queue))
            }
            Index::Lease => (format!("l{queue}"), keys.lease(queue)),
            Index::Look => (format!("a{queue}"), keys.look(queue)),
            Index::Fire => (format!("s{queue}"), keys.fire(queue)),
        }
    }
}

/// An entry that was moved ahead when it was read, and where it was.
#[derive(Debug, Clone)]
pub(crate) struct Reserved {
    pub(crate) index: Index,
    pub(crate) queue: String,
    pub(crate) member: String,
    pub(crate) score: i64,
}

/// A lane as this transaction saw it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) front: Front,
    pub(crate) key: LaneKey,
    pub(crate) entries: Entries,
    /// Paused or blocked.
    pub(crate) held: bool,
    /// The claim under which it was held.
    pub(crate) claim: Option<String>,
    /// Its runs that have not ended.
    pub(crate) runs: Vec<u64>,
    /// The source among whose stopped lanes it was.
    pub(crate) stopped: Option<SourceId>,
    pub(crate) pocket: Pocket,
    /// Its row without the pocket.
    pub(crate) head: Vec<u8>,
}

/// A source as this transaction saw it. It is looked at again at the end if it has changed by then: what only read it
/// might as well have been earlier than whoever changed it meanwhile.
#[derive(Debug, Clone)]
pub(crate) struct SeenSource {
    pub(crate) version: u64,
    pub(crate) source: Source,
}

pub(crate) struct Tx {
    pub(crate) shared: Arc<Shared>,
    pub(crate) now: Timestamp,
    pub(crate) epoch: u64,
    pub(crate) lanes: BTreeMap<u64, Seen>,
    pub(crate) sources: BTreeMap<SourceId, SeenSource>,
    /// The turns of this process on these sources, and on lanes that are contended.
    pub(crate) turns: Vec<Turn>,
    lane_turns: Vec<Turn>,
    /// Keys that had no lane.
    pub(crate) absent: BTreeSet<String>,
    /// What else was seen: command, key, argument, answer.
    pub(crate) looks: BTreeSet<[String; 4]>,
    pub(crate) reserved: Vec<Reserved>,
    /// Those of them that are lanes.
    pub(crate) reserved_lanes: HashSet<(Index, u64)>,
    /// Events aside that were read, by their numbers.
    pub(crate) asides: HashMap<u64, Aside>,
    /// Schedules that were read, with the queues for which they fire.
    pub(crate) schedules: HashMap<(Tenant, QueueName), String>,
    /// The largest number that the lanes at hand have had.
    pub(crate) largest: u64,
    /// The largest that was set apart for this transaction.
    pub(crate) given: u64,
    /// Fills a store, which may be sealed.
    pub(crate) copying: bool,
    /// All that were set apart for it.
    pub(crate) ranges: Vec<Range<u64>>,
}

impl Tx {
    pub(crate) async fn begin(shared: Arc<Shared>) -> RowsResult<Tx> {
        let now = shared.link.now().await?;
        let epoch = shared.link.epoch();
        Ok(Tx {
            shared,
            now,
            epoch,
            lanes: BTreeMap::new(),
            sources: BTreeMap::new(),
            turns: Vec::new(),
            lane_turns: Vec::new(),
            absent: BTreeSet::new(),
            looks: BTreeSet::new(),
            reserved: Vec::new(),
            reserved_lanes: HashSet::new(),
            asides: HashMap::new(),
            schedules: HashMap::new(),
            largest: 0,
            given: 0,
            copying: false,
            ranges: Vec::new(),
        })
    }

    /// One that a seal does not hold back.
    pub(crate) async fn begin_copying(shared: Arc<Shared>) -> RowsResult<Tx> {
        Ok(Tx { copying: true, ..Tx::begin(shared).await? })
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.shared.link.keys
    }

    /// Calls a script that reads; the server's time comes first in its answer.
    pub(crate) async fn ask(&self, call: &Cmd) -> StoreResult<std::vec::IntoIter<Value>> {
        let answer = self.shared.link.read(For::Transactions, call).await?;
        let mut answer = reply::list(answer)?.into_iter();
        self.shared.link.told(reply::time(answer.next().unwrap_or_default())?);
        Ok(answer)
    }

    /// Takes in the rows of lanes.
    fn take_in(&mut self, rows: impl Iterator<Item = Value>) -> StoreResult<Vec<LaneAt>> {
        let mut lanes = Vec::with_capacity(rows.size_hint().0);
        for row in rows {
            let row = reply::bytes(row).ok_or_else(|| strange("a lane without a row"))?;
            let mut value = read_lane(row)?;
            let lane = &mut value.at.lane;
            // What happened to its runs since is part of its past.
            lane.updated_at = lane.updated_at.max(value.front.latest);
            self.largest = self.largest.max(value.front.top);
            let seen = Seen {
                front: value.front,
                key: value.at.key.clone(),
                entries: value.at.entries,
                held: is_held(lane),
                claim: claim_of(lane).map(str::to_owned),
                runs: live_runs(lane),
                stopped: stopped_for(lane),
                pocket: value.pocket,
                head: value.head,
            };
            // The first reading counts: a lane that has changed since is found out at the end.
            self.lanes.entry(lane.id).or_insert(seen);
            lanes.push(value.at);
        }
        Ok(lanes)
    }

    /// The entries of these lanes were moved ahead.
    fn reserve(&mut self, lanes: &[LaneAt], index: impl Fn(&LaneAt) -> (Index, Option<Timestamp>)) {
        for at in lanes {
            let (index, entry) = index(at);
            self.reserved_lanes.insert((index, at.lane.id));
            self.reserved.push(Reserved {
                index,
                queue: queue_text(&at.key.tenant, &at.key.queue),
                member: at.lane.id.to_string(),
                score: entry.unwrap_or(self.now).as_millis(),
            });
        }
    }

    /// Waits for the turn on contended lanes, once: whoever has some already would wait in a circle.
    async fn take_lane_turns(&mut self, asked: impl Fn(u64, &LaneKey) -> bool) {
        if self.lane_turns.is_empty() {
            self.lane_turns = self.shared.lane_turns.take(asked).await;
        }
    }

    /// A script found that the lane in this row has changed.
    pub(crate) fn contended(&self, row: &str) {
        let id = row.rsplit(':').next().and_then(|id| id.parse().ok());
        let lane = id.and_then(|id: u64| Some((id, self.lanes.get(&id)?)));
        // The row of a source may have the same number.
        if let Some((id, seen)) = lane.filter(|(id, _)| self.keys().lane(*id) == row) {
            self.shared.lane_turns.contend(id, &seen.key);
        }
    }

    fn script(&self, script: Script) -> Cmd {
        self.shared.link.script(script)
    }

    fn lanes_script(&self) -> Cmd {
        self.script(if self.copying { Script::ReadLanes } else { Script::Lanes })
    }

    fn reserved_until(&self) -> i64 {
        self.now.after(RESERVED).as_millis()
    }

    pub(crate) fn look(&mut self, command: &str, key: String, argument: String, seen: String) {
        self.looks.insert([command.to_owned(), key, argument, seen]);
    }

    /// Gives back what was reserved. Whether it is done or not: it is free again in a moment.
    pub(crate) async fn give_back(&mut self) {
        if self.reserved.is_empty() {
            return;
        }
        let call = apply::give_back(self, self.script(Script::Apply));
        if let Err(error) = self.shared.link.read(For::Transactions, &call).await {
            tracing::debug!(%error, "reserved lanes were not given back");
        }
        self.reserved.clear();
    }
}

#[async_trait]
impl Rows for Tx {
    fn now(&self) -> Timestamp {
        self.now
    }

    async fn lanes(&mut self, keys: &[LaneKey], _patience: Patience) -> RowsResult<Lanes> {
        if keys.is_empty() {
            return Ok(Lanes::default());
        }
        self.take_lane_turns(|_, key| keys.contains(key)).await;
        let mut call = self.lanes_script();
        call.arg("k");
        let mut missing: BTreeSet<String> = keys.iter().map(lane_text).collect();
        for text in &missing {
            call.arg(text);
        }
        let mut rows = self.ask(&call).await?;
        let floor = reply::count(rows.next().unwrap_or_default())?;
        let lanes = self.take_in(rows)?;
        if lanes.len() < missing.len() {
            self.largest = self.largest.max(floor);
        }
        for at in &lanes {
            missing.remove(&lane_text(&at.key));
        }
        self.absent.extend(missing);
        Ok(Lanes { lanes, ..Lanes::default() })
    }

    async fn lanes_by_id(&mut self, ids: &[u64], _patience: Patience) -> RowsResult<Lanes> {
        if ids.is_empty() {
            return Ok(Lanes::default());
        }
        self.take_lane_turns(|id, _| ids.contains(&id)).await;
        let mut call = self.lanes_script();
        call.arg("i");
        for id in ids.iter().collect::<BTreeSet<_>>() {
            call.arg(id);
        }
        let rows = self.ask(&call).await?.skip(1);
        Ok(Lanes { lanes: self.take_in(rows)?, ..Lanes::default() })
    }

    async fn due(&mut self, picks: &[Pick]) -> RowsResult<Vec<LaneAt>> {
        // Which of them are due is known only when they are read.
        self.take_lane_turns(|_, key| {
            picks.iter().any(|pick| pick.tenant == key.tenant && pick.queue == key.queue)
        })
        .await;
        let mut call = self.script(Script::Due);
        call.arg(self.now.as_millis()).arg(self.reserved_until());
        for pick in picks {
            let index = Index::Due(pick.priority, pick.source);
            let (name, set) = index.names(self.keys(), &queue_text(&pick.tenant, &pick.queue));
            call.arg(name).arg(set).arg(pick.most);
        }
        let rows = self.ask(&call).await?;
        let lanes = self.take_in(rows)?;
        self.reserve(&lanes, |at| (Index::Due(at.entries.priority, at.entries.source), at.entries.due));
        Ok(lanes)
    }

    async fn expired(&mut self, queues: &[(Tenant, QueueName)], most: usize) -> RowsResult<Vec<LaneAt>> {
        let mut call = self.script(Script::Expired);
        call.arg(self.now.as_millis()).arg(self.reserved_until()).arg(most);
        for (tenant, queue) in queues {
            call.arg(queue_text(tenant, queue));
        }
        let rows = self.ask(&call).await?;
        let mut lanes = self.take_in(rows)?;
        self.reserve(&lanes, |at| (Index::Lease, at.entries.lease));
        lanes.sort_by_key(|at| at.entries.lease);
        Ok(lanes)
    }

    async fn claimed(&mut self, claim_id: &str) -> RowsResult<Vec<LaneAt>> {
        let mut call = self.script(Script::Claimed);
        call.arg(claim_id);
        let mut rows = self.ask(&call).await?;
        let count = reply::count(rows.next().unwrap_or_default())?;
        let lanes = self.take_in(rows)?;
        self.look("SCARD", self.keys().claim(claim_id), String::new(), count.to_string());
        Ok(lanes)
    }

    async fn ready(&mut self, queues: &[(Tenant, QueueName)], most: usize) -> RowsResult<Vec<Aside>> {
        let mut call = self.script(Script::Ready);
        call.arg(self.now.as_millis()).arg(self.reserved_until()).arg(most);
        for (tenant, queue) in queues {
            call.arg(queue_text(tenant, queue));
        }
        let mut found = Vec::new();
        for row in self.ask(&call).await? {
            let row = reply::bytes(row).ok_or_else(|| strange("an event aside without a row"))?;
            let aside = codec::read_aside(&row)?;
            self.reserved.push(Reserved {
                index: Index::Look,
                queue: queue_text(&aside.event.lane.tenant, &aside.event.lane.queue),
                member: aside_name(&aside),
                score: aside.look_at.as_millis(),
            });
            found.push(aside);
        }
        found.sort_by_key(|aside| (aside.look_at, aside.ready_at, aside.number));
        found.truncate(most);
        for aside in &found {
            self.take_in_aside(aside.clone());
        }
        Ok(found)
    }

    async fn fires(&mut self, queues: &[(Tenant, QueueName)]) -> RowsResult<Vec<ScheduleRow>> {
        let mut call = self.script(Script::Fires);
        call.arg(self.now.as_millis());
        for (tenant, queue) in queues {
            call.arg(queue_text(tenant, queue));
        }
        let mut answer = self.ask(&call).await?;
        let version = answer.next().and_then(reply::text).unwrap_or_default();
        let rows = self.take_in_schedules(answer)?;
        if !rows.is_empty() {
            self.look("HGET", self.keys().meta(), "schedules".to_owned(), version);
        }
        Ok(rows)
    }

    async fn find(&mut self, want: &Want, numbers: usize) -> RowsResult<Found> {
        self.find_all(want, numbers).await
    }

    /// Here the first reading would be the one that is looked at again at the end.
    fn unread_sources(&mut self) {
        self.sources.clear();
    }

    async fn document(&mut self, shelf: Shelf, name: &str) -> RowsResult<(Option<Document>, usize)> {
        self.place_on(shelf, name).await
    }

    async fn purgeable(&mut self, purge: &Purge, most: usize) -> RowsResult<Purgeable> {
        self.find_purgeable(purge, most).await
    }

    async fn running(&mut self, tenant: &Tenant, queue: &QueueName) -> RowsResult<u64> {
        let queue = queue_text(tenant, queue);
        let mut call = self.script(Script::Running);
        call.arg(&queue);
        let running = reply::count(self.shared.link.read(For::Transactions, &call).await?)?;
        self.look("AT MOST", self.keys().lease(&queue), String::new(), running.to_string());
        Ok(running)
    }

    async fn commit(self: Box<Self>, changes: Changes) -> RowsResult<()> {
        let call = apply::end(&self, self.script(Script::Apply), &changes);
        let answer = self.shared.link.end(&call).await?;
        match reply::text(answer).as_deref() {
            Some("done") => Ok(()),
            Some("epoch") => {
                self.shared.link.open_again().await?;
                Err(Trouble::Again)
            }
            reason => {
                tracing::trace!(?reason, "somebody else was faster");
                if let Some(row) = reason.and_then(|reason| reason.strip_prefix("lane ")) {
                    self.contended(row);
                }
                Err(Trouble::Again)
            }
        }
    }

    async fn rollback(mut self: Box<Self>) {
        self.give_back().await;
    }
}

impl Tx {
    pub(crate) fn take_in_aside(&mut self, aside: Aside) {
        let name = aside_name(&aside);
        self.look("HEXISTS", self.keys().of("aside"), name, "1".to_owned());
        self.asides.insert(aside.number, aside);
    }

    pub(crate) fn take_in_schedules(
        &mut self,
        rows: impl Iterator<Item = Value>,
    ) -> StoreResult<Vec<ScheduleRow>> {
        let mut found = Vec::new();
        for row in rows {
            let row = reply::bytes(row).ok_or_else(|| strange("a schedule without a row"))?;
            let row = codec::read_schedule(&row)?;
            let schedule = &row.schedule;
            let queue = queue_text(&schedule.tenant, &schedule.queue);
            self.schedules.insert((schedule.tenant.clone(), schedule.name.clone()), queue);
            found.push(row);
        }
        Ok(found)
    }
}

/// The runs of a lane that have not ended.
pub(crate) fn live_runs(lane: &Lane) -> Vec<u64> {
    let fixed = lane.fixed_runs().map(|run| run.number);
    fixed.chain(lane.open.map(|open| open.number)).collect()
}

/// The text by which a script knows a missing value.
pub(crate) fn or_empty(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}
