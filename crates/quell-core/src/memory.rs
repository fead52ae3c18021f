//! The contract as readable code: the whole engine without a database.
//!
//! One lock around a working set (`working_set.rs`) that holds everything, no cleverness. Every other store must answer
//! as this one does; random histories compare them. It forgets everything when it is dropped, so Quell never uses it in
//! place of a real store: it serves the simulator, fast tests and readers.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

use async_trait::async_trait;

use crate::clock::{Clock, Timestamp};
use crate::error::StoreResult;
use crate::inspect::{Inspect, Inspected};
use crate::mutants::mutant;
use crate::shelf::{ShelfAnswer, ShelfRequest};
use crate::store::{
    AppendRequest, Appended, ClaimRequest, Claimed, Control, Controlled, Description, Durability,
    ExtendRequest, Extended, Held, HoldRequest, SettleRequest, Settled, SourceAnswer, SourceRequest,
    StepAnswer, StepRequest, Store, SweepRequest, Swept, Wakeups,
};
use crate::working_set::{Numbers, Report, WorkingSet};

mod portable;
#[cfg(test)]
mod tests;

/// A store that lives in this process and dies with it.
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    world: Mutex<WorkingSet>,
    bell: Arc<Bell>,
    moved: Mutex<portable::Moved>,
}

/// Everything there is, at one moment: what a backup would hold.
#[derive(Clone)]
pub struct Snapshot(WorkingSet);

impl MemoryStore {
    /// Empty, with the clock that its timestamps come from.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        MemoryStore { clock, world: Mutex::default(), bell: Arc::default(), moved: Mutex::default() }
    }

    fn world(&self) -> (Timestamp, MutexGuard<'_, WorkingSet>) {
        let world = self.world.lock().expect("no panic happens while the world is locked");
        (self.clock.now(), world)
    }

    /// To change something: refused when the store is sealed.
    fn open(&self) -> StoreResult<(Timestamp, MutexGuard<'_, WorkingSet>)> {
        let world = self.world();
        match &self.moved().sealed {
            Some(by) => Err(crate::copy::sealed(by)),
            None => Ok(world),
        }
    }

    fn moved(&self) -> MutexGuard<'_, portable::Moved> {
        self.moved.lock().expect("no panic happens while this is locked")
    }

    /// What a backup taken now would hold.
    pub fn backup(&self) -> Snapshot {
        Snapshot(self.world().1.clone())
    }

    /// Goes back to a backup: numbers go on far ahead of it, and every lease is void.
    pub fn restore(&self, backup: &Snapshot) {
        let (now, mut world) = self.world();
        // A backup may be restored twice: what was told after the first time must not be told again after the second.
        let told = portable::last(&world).max(portable::last(&backup.0));
        *world = backup.0.clone();
        world.numbers = Numbers::Last(told + crate::lease::jump(told));
        if mutant("restore_takes_numbers_back") {
            world.numbers = backup.0.numbers.clone();
        }
        for source in world.sources.values_mut() {
            source.probe = None;
        }
        for key in world.lanes.keys().cloned().collect::<Vec<_>>() {
            let inhabited = world.lanes.get_mut(&key).expect("it was listed above");
            if let Some(step) = inhabited.lane.restored(now) {
                world.apply(now, &key, step, Report::default(), None);
            }
        }
        self.bell.ring();
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn append(&self, request: AppendRequest) -> StoreResult<Appended> {
        request.check()?;
        let (now, mut world) = self.open()?;
        let appended = world.append(now, &request)?;
        self.bell.ring();
        Ok(appended)
    }

    async fn claim(&self, request: ClaimRequest) -> StoreResult<Claimed> {
        request.check()?;
        let (now, mut world) = self.open()?;
        Ok(world.claim(now, &request))
    }

    async fn extend(&self, request: ExtendRequest) -> StoreResult<Extended> {
        let (now, mut world) = self.open()?;
        world.extend(now, &request)
    }

    async fn hold(&self, request: HoldRequest) -> StoreResult<Held> {
        let (now, mut world) = self.open()?;
        let held = world.hold(now, &request)?;
        self.bell.ring();
        Ok(held)
    }

    async fn step(&self, request: StepRequest) -> StoreResult<StepAnswer> {
        request.check()?;
        let (now, mut world) = self.open()?;
        world.step(now, request)
    }

    async fn source(&self, request: SourceRequest) -> StoreResult<SourceAnswer> {
        request.check()?;
        let (now, mut world) = self.open()?;
        let answer = world.source(now, request)?;
        self.bell.ring();
        Ok(answer)
    }

    async fn settle(&self, request: SettleRequest) -> StoreResult<Settled> {
        request.check()?;
        let (now, mut world) = self.open()?;
        let before = world.audit.len();
        let settled = world.settle(now, request)?;
        if mutant("audit_after_commit") && now.as_millis() % 7 == 0 {
            // The process died between the commit and the record.
            world.audit.truncate(before);
        }
        self.bell.ring();
        Ok(settled)
    }

    async fn shelf(&self, request: ShelfRequest) -> StoreResult<ShelfAnswer> {
        request.check()?;
        let changes = request.action.name().is_some();
        let (now, mut world) = if changes { self.open()? } else { self.world() };
        world.shelf(now, &request, 0)
    }

    async fn sweep(&self, request: SweepRequest) -> StoreResult<Swept> {
        let (now, mut world) = self.open()?;
        let mut swept = Swept::default();
        if request.reclaim {
            for key in world.lanes.keys().cloned().collect::<Vec<_>>() {
                swept.reclaimed.extend(world.reclaim(now, &key));
            }
        }
        swept.more |= world.fire_and_enter(now, |_, _| true);
        swept.more |= world.forget_answers(now);
        swept.more |= world.forget_documents(now);
        if let Some(retention) = request.retention {
            world.forget(now.before(retention), &mut swept);
        }
        self.bell.ring();
        Ok(swept)
    }

    async fn inspect(&self, request: Inspect) -> StoreResult<Inspected> {
        let (now, world) = self.world();
        Ok(world.inspect(now, request, self.description()))
    }

    async fn control(&self, request: Control) -> StoreResult<Controlled> {
        let (now, mut world) = self.open()?;
        let controlled = world.control(now, &request.actor, request.action)?;
        self.bell.ring();
        Ok(controlled)
    }

    fn wakeups(&self) -> Box<dyn Wakeups> {
        Box::new(Listener { heard: self.bell.rung(), bell: self.bell.clone() })
    }

    fn description(&self) -> Description {
        Description {
            kind: "memory",
            place: "this process".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            schema: 0,
            durability: Durability::BestEffort("everything is lost when the process ends".into()),
        }
    }
}

/// Wakes listeners without a runtime: a count of rings and those who wait for the next.
#[derive(Default)]
struct Bell(Mutex<(u64, Vec<Waker>)>);

impl Bell {
    fn ring(&self) {
        let mut inner = self.0.lock().expect("no panic happens while the bell is locked");
        inner.0 += 1;
        for waker in inner.1.drain(..) {
            waker.wake();
        }
    }

    fn rung(&self) -> u64 {
        self.0.lock().expect("no panic happens while the bell is locked").0
    }
}

struct Listener {
    bell: Arc<Bell>,
    heard: u64,
}

#[async_trait]
impl Wakeups for Listener {
    async fn woken(&mut self) {
        let (bell, heard) = (self.bell.clone(), self.heard);
        self.heard = std::future::poll_fn(|context| {
            let mut inner = bell.0.lock().expect("no panic happens while the bell is locked");
            if inner.0 > heard {
                return Poll::Ready(inner.0);
            }
            inner.1.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
