//! What all parts of an open store share, and the backend that `quell_store_rows` works on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use quell_core::clock::Timestamp;
use quell_core::error::StoreResult;
use quell_core::event::{LaneKey, QueueName, Tenant};
use quell_core::inspect::{Inspect, Inspected};
use quell_core::lane::Paused;
use quell_core::shelf::{Document, Shelf};
use quell_core::source::{Source, SourceId};
use quell_core::store::{Description, Swept, Wakeups};
use quell_store_rows::rows::{Backend, Outlook, QueueOutlook, Rows, RowsResult};
use redis::{Cmd, Value};
use tokio::task::JoinHandle;

use crate::error::strange;
use crate::find::read_pauses;
use crate::keys::read_queue;
use crate::link::{For, Link, SCHEMA};
use crate::numbers::Numbers;
use crate::reply;
use crate::rows::{LaneValue, read_lane, read_source};
use crate::script::Script;
use crate::turns::{LaneTurns, Turns};
use crate::tx::Tx;
use crate::wake::Bell;
use crate::{inspect, sweep};

/// How many rows one read asks for.
const CHUNK: usize = 512;

pub(crate) struct Shared {
    pub(crate) link: Arc<Link>,
    pub(crate) numbers: Numbers,
    pub(crate) turns: Turns,
    pub(crate) lane_turns: LaneTurns,
}

/// The pauses of queues, of one tenant or of all.
pub(crate) type Pauses = BTreeMap<(QueueName, Option<Tenant>), Paused>;

/// Who paused this queue.
pub(crate) fn paused<'p>(pauses: &'p Pauses, tenant: &Tenant, queue: &QueueName) -> Option<&'p Paused> {
    let own = pauses.get(&(queue.clone(), Some(tenant.clone())));
    own.or_else(|| pauses.get(&(queue.clone(), None)))
}

/// Lanes that wait for a source: the source, their priority, and when the first of them is due.
type Governed = (SourceId, u8, Timestamp);

/// The sets of due times in which a queue has lanes.
pub(crate) fn due_places(queue: &QueueOutlook) -> impl Iterator<Item = (u8, Option<SourceId>)> {
    let free = queue.levels.iter().map(|(priority, _)| (*priority, None));
    let governed = queue.governed.iter();
    free.chain(governed.flat_map(|(source, levels)| levels.iter().map(|(p, _)| (*p, Some(*source)))))
}

impl Shared {
    /// Calls a script for a read.
    pub(crate) async fn ask(&self, call: &Cmd) -> StoreResult<Vec<Value>> {
        reply::list(self.link.read(For::Reads, call).await?)
    }

    /// One plain command.
    pub(crate) async fn plain(&self, command: &Cmd) -> StoreResult<Value> {
        self.link.read(For::Reads, command).await
    }

    /// Texts from a place on in a sorted set.
    pub(crate) async fn page(&self, set: &str, at: usize, most: usize) -> StoreResult<Vec<String>> {
        if most == 0 {
            return Ok(Vec::new());
        }
        let mut command = redis::cmd("ZRANGE");
        command.arg(set).arg(at).arg(at + most - 1);
        Ok(reply::list(self.plain(&command).await?)?.into_iter().filter_map(reply::text).collect())
    }

    /// The values of a hash under these names, as far as there are some.
    pub(crate) async fn rows_of(&self, hash: &str, names: &[String]) -> StoreResult<Vec<Vec<u8>>> {
        let mut rows = Vec::with_capacity(names.len());
        for part in names.chunks(CHUNK) {
            let mut command = redis::cmd("HMGET");
            command.arg(self.link.keys.of(hash)).arg(part);
            rows.extend(reply::list(self.plain(&command).await?)?.into_iter().filter_map(reply::bytes));
        }
        Ok(rows)
    }

    /// Lanes by their numbers as texts; those that do not exist are not in the answer.
    pub(crate) async fn lanes_named(&self, names: &[String]) -> StoreResult<Vec<LaneValue>> {
        let mut lanes = Vec::with_capacity(names.len());
        for part in names.chunks(CHUNK) {
            let mut call = self.link.script(Script::ReadLanes);
            call.arg("i").arg(part);
            for row in self.ask(&call).await?.into_iter().skip(2).filter_map(reply::bytes) {
                lanes.push(read_lane(row)?);
            }
        }
        Ok(lanes)
    }

    /// Sources by their numbers; those that do not exist are not in the answer.
    pub(crate) async fn sources_of(
        &self,
        ids: impl Iterator<Item = SourceId>,
    ) -> StoreResult<BTreeMap<SourceId, Source>> {
        let ids: BTreeSet<SourceId> = ids.collect();
        let names: Vec<String> = ids.into_iter().map(|id| self.link.keys.source(id)).collect();
        let mut sources = BTreeMap::new();
        for part in names.chunks(CHUNK) {
            let mut command = redis::cmd("MGET");
            command.arg(part);
            for row in reply::list(self.plain(&command).await?)?.into_iter().filter_map(reply::bytes) {
                let (_, source) = read_source(&row)?;
                sources.insert(source.id, source);
            }
        }
        Ok(sources)
    }

    /// The keys of these lanes, one for each.
    pub(crate) async fn keys_of_lanes(
        &self,
        lanes: impl Iterator<Item = u64>,
    ) -> StoreResult<Vec<Option<LaneKey>>> {
        let lanes: Vec<u64> = lanes.collect();
        let names: Vec<String> = lanes.iter().map(u64::to_string).collect();
        let found = self.lanes_named(&names).await?;
        let keys: BTreeMap<u64, LaneKey> =
            found.into_iter().map(|lane| (lane.at.lane.id, lane.at.key)).collect();
        Ok(lanes.iter().map(|lane| keys.get(lane).cloned()).collect())
    }

    /// Every queue that was ever used, in order.
    pub(crate) async fn all_queues(&self) -> StoreResult<Vec<(Tenant, QueueName)>> {
        let (set, mut all) = (self.link.keys.of("queues"), Vec::new());
        loop {
            let names = self.page(&set, all.len(), CHUNK).await?;
            let full = names.len() == CHUNK;
            for name in names {
                all.push(read_queue(&name).ok_or_else(|| strange("a queue without a name"))?);
            }
            if !full {
                return Ok(all);
            }
        }
    }

    /// What waits, and the pauses. A sealed store tells it only to those who read.
    pub(crate) async fn outlook(&self, line: For) -> StoreResult<(Outlook, Pauses)> {
        let script = match line {
            For::Transactions => Script::Outlook,
            For::Reads => Script::ReadOutlook,
        };
        let answer = self.link.read(line, &self.link.script(script)).await?;
        let mut answer = reply::list(answer)?.into_iter();
        let mut part = || answer.next().ok_or_else(|| strange("an outlook that ends too soon"));
        let now = reply::time(part()?)?;
        self.link.told(now);
        let (waits, leases) = (reply::list(part()?)?, reply::list(part()?)?);
        let pauses = read_pauses(part()?)?;
        let mut sources = BTreeMap::new();
        for row in reply::list(part()?)?.into_iter().filter_map(reply::bytes) {
            let (_, source) = read_source(&row)?;
            self.turns.learn(&source);
            sources.insert(source.id, source);
        }
        let mut leases = leases.into_iter();
        let mut queues: BTreeMap<(Tenant, QueueName), (QueueOutlook, Vec<Governed>)> = BTreeMap::new();
        let mut waits = waits.into_iter();
        while let (Some(name), Some(at)) = (waits.next(), waits.next()) {
            let name = reply::text(name).ok_or_else(|| strange("a queue without a name"))?;
            let at = reply::time(at)?;
            let (kind, rest) = name.split_at_checked(1).ok_or_else(|| strange("a queue without a name"))?;
            let (level, text) = match kind {
                "d" | "g" => rest.split_at_checked(1).unwrap_or(("", rest)),
                _ => ("", rest),
            };
            let (source, text) = match kind {
                "g" => text.split_once(':').unwrap_or(("", text)),
                _ => ("", text),
            };
            let (tenant, queue) = read_queue(text).ok_or_else(|| strange("a queue without a name"))?;
            let place = (tenant.clone(), queue.clone());
            let paused = paused(&pauses, &tenant, &queue).is_some();
            let (of_queue, governed) = queues.entry(place).or_insert_with(|| {
                (
                    QueueOutlook {
                        tenant,
                        queue,
                        paused,
                        running: 0,
                        levels: Vec::new(),
                        governed: Vec::new(),
                        first_lease: None,
                        later_lease: None,
                        first_aside: None,
                        first_fire: None,
                    },
                    Vec::new(),
                )
            });
            match kind {
                "d" => of_queue.levels.extend(level.parse().ok().map(|level: u8| (level, at))),
                "g" => {
                    let place = source.parse().ok().zip(level.parse().ok());
                    let (source, level) = place.ok_or_else(|| strange("a source without a number"))?;
                    governed.push((SourceId(source), level, at));
                }
                "l" => {
                    of_queue.first_lease = Some(at);
                    of_queue.running = reply::count(leases.next().unwrap_or_default())?;
                    let later = leases.next().and_then(reply::text).filter(|later| !later.is_empty());
                    of_queue.later_lease =
                        later.map(|later| reply::time(Value::BulkString(later.into_bytes()))).transpose()?;
                }
                "a" => of_queue.first_aside = Some(at),
                _ => of_queue.first_fire = Some(at),
            }
        }
        let queues = queues.into_values().map(|(of_queue, mut governed)| {
            governed.sort_unstable();
            let of_source = governed.chunk_by(|a, b| a.0 == b.0);
            let levels = |part: &[Governed]| part.iter().map(|(_, level, at)| (*level, *at)).collect();
            QueueOutlook { governed: of_source.map(|part| (part[0].0, levels(part))).collect(), ..of_queue }
        });
        Ok((Outlook { now, queues: queues.collect(), sources }, pauses))
    }
}

/// An open store, without the verbs.
pub(crate) struct Redis {
    pub(crate) shared: Arc<Shared>,
    pub(crate) bell: Arc<Bell>,
    tasks: Vec<JoinHandle<()>>,
}

impl Redis {
    /// Must be called within a runtime: wake-ups are told and heard by tasks, which end with the store.
    pub(crate) async fn open(link: Link) -> StoreResult<Self> {
        let link = Arc::new(link);
        // Connects, so that a server that cannot be used is refused now.
        link.now().await?;
        let bell = Bell::new();
        let tasks = bell.tasks(&link);
        let shared = Shared {
            link,
            numbers: Numbers::default(),
            turns: Turns::default(),
            lane_turns: LaneTurns::default(),
        };
        Ok(Redis { shared: Arc::new(shared), bell, tasks })
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

#[async_trait]
impl Backend for Redis {
    async fn begin(&self) -> RowsResult<Box<dyn Rows>> {
        Ok(Box::new(Tx::begin(self.shared.clone()).await?))
    }

    async fn outlook(&self, _bounded: bool) -> StoreResult<Outlook> {
        self.shared.outlook(For::Transactions).await.map(|(outlook, _)| outlook)
    }

    async fn inspect(&self, request: Inspect) -> StoreResult<Inspected> {
        inspect::inspect(&self.shared, request, self.description()).await
    }

    async fn forget(&self, retention: Duration, swept: &mut Swept) -> StoreResult<()> {
        sweep::forget(&self.shared, retention, swept).await
    }

    async fn forget_answers(&self) -> StoreResult<bool> {
        sweep::forget_answers(&self.shared).await
    }

    async fn documents(&self, shelf: Shelf) -> StoreResult<(Timestamp, Vec<Document>)> {
        self.shared.documents(shelf).await
    }

    async fn forget_documents(&self) -> StoreResult<bool> {
        self.shared.forget_documents().await
    }

    fn ring(&self, at: Timestamp) {
        self.bell.ring(at);
    }

    fn sleeps(&self, until: Option<Timestamp>) {
        self.bell.sleeps(until);
    }

    fn wakeups(&self) -> Box<dyn Wakeups> {
        self.bell.listener()
    }

    fn description(&self) -> Description {
        let settings = self.shared.link.settings();
        Description {
            kind: "redis",
            place: self.shared.link.options.place(),
            version: settings.version.clone(),
            schema: SCHEMA,
            durability: settings.durability(),
        }
    }
}
