//! What all parts of an open store share, and the backend that `quell_store_rows` works on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use quell_core::clock::Timestamp;
use quell_core::error::StoreResult;
use quell_core::event::{LaneKey, QueueName, Tenant};
use quell_core::inspect::{Inspect, Inspected};
use quell_core::lane::Paused;
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
use crate::rows::{LaneValue, read_lane};
use crate::script::Script;
use crate::tx::Tx;
use crate::wake::Bell;
use crate::{inspect, sweep};

/// How many rows one read asks for.
const CHUNK: usize = 512;

pub(crate) struct Shared {
    pub(crate) link: Arc<Link>,
    pub(crate) numbers: Numbers,
}

/// The pauses of queues, of one tenant or of all.
pub(crate) type Pauses = BTreeMap<(QueueName, Option<Tenant>), Paused>;

/// Who paused this queue.
pub(crate) fn paused<'p>(pauses: &'p Pauses, tenant: &Tenant, queue: &QueueName) -> Option<&'p Paused> {
    let own = pauses.get(&(queue.clone(), Some(tenant.clone())));
    own.or_else(|| pauses.get(&(queue.clone(), None)))
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
                lanes.push(read_lane(&row)?);
            }
        }
        Ok(lanes)
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
        let mut leases = leases.into_iter();
        let mut queues: BTreeMap<(Tenant, QueueName), QueueOutlook> = BTreeMap::new();
        let mut waits = waits.into_iter();
        while let (Some(name), Some(at)) = (waits.next(), waits.next()) {
            let name = reply::text(name).ok_or_else(|| strange("a queue without a name"))?;
            let at = reply::time(at)?;
            let (kind, rest) = name.split_at_checked(1).ok_or_else(|| strange("a queue without a name"))?;
            let (level, text) = match kind {
                "d" => rest.split_at_checked(1).unwrap_or(("", rest)),
                _ => ("", rest),
            };
            let (tenant, queue) = read_queue(text).ok_or_else(|| strange("a queue without a name"))?;
            let place = (tenant.clone(), queue.clone());
            let paused = paused(&pauses, &tenant, &queue).is_some();
            let of_queue = queues.entry(place).or_insert_with(|| QueueOutlook {
                tenant,
                queue,
                paused,
                running: 0,
                levels: Vec::new(),
                first_lease: None,
                later_lease: None,
                first_aside: None,
                first_fire: None,
            });
            match kind {
                "d" => of_queue.levels.extend(level.parse().ok().map(|level: u8| (level, at))),
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
        Ok((Outlook { now, queues: queues.into_values().collect() }, pauses))
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
        Ok(Redis { shared: Arc::new(Shared { link, numbers: Numbers::default() }), bell, tasks })
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
