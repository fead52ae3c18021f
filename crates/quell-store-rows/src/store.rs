//! The contract, kept by any backend.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use quell_core::batch::{Batch, WorkerId};
use quell_core::clock::Timestamp;
use quell_core::error::{StoreError, StoreResult};
use quell_core::event::{QueueName, Tenant};
use quell_core::inspect::{Inspect, Inspected};
use quell_core::shelf::{ShelfAnswer, ShelfRequest};
use quell_core::store::{
    AppendRequest, Appended, ClaimQueues, ClaimRequest, Claimed, Control, Controlled, Description,
    ExtendRequest, Extended, Held, HoldRequest, SettleRequest, Settled, SourceAnswer, SourceRequest,
    StepAnswer, StepRequest, Store, SweepRequest, Swept, Wakeups,
};

use crate::append::Answers;
use crate::group::{Entrance, Grouped};
use crate::repeats::Repeats;
use crate::rows::{Backend, Patience, RowsResult, Trouble};
use crate::{append, claim, control, extend, settle, shelf, source, step, sweep};

/// A store over a connection.
pub struct RowStore {
    backend: Arc<dyn Backend>,
    appends: Entrance<Appends>,
    extends: Entrance<Extends>,
    settles: Entrance<Settles>,
    /// Some claim of this process is bounded by `max_running`: a settle wakes those who wait for a place.
    bounded: AtomicBool,
    /// Until when each claimer of this process sleeps.
    sleepers: Mutex<BTreeMap<Arc<WorkerId>, Option<Timestamp>>>,
    /// Drawn at the start, so that no two processes name their claims alike.
    start: String,
    claims: AtomicU64,
}

/// Claimers of one process that are told apart; with more of them every bell is heard.
const SLEEPERS_MAX: usize = 64;

/// Repeats a call as long as somebody else is in its way.
macro_rules! repeated {
    ($try:expr) => {{
        let mut repeats = Repeats::new();
        loop {
            match $try.await {
                Ok(done) => break Ok(done),
                Err(Trouble::Again) if repeats.again().await => {}
                Err(Trouble::Again) => break Err(Repeats::too_many()),
                Err(Trouble::Store(error)) => break Err(error),
            }
        }
    }};
}

impl RowStore {
    /// Must be called within a runtime: groups are served by tasks of their own, which end with the store.
    pub fn new(backend: Arc<dyn Backend>) -> Arc<Self> {
        Arc::new(RowStore {
            appends: Entrance::open(Appends(backend.clone())),
            extends: Entrance::open(Extends(backend.clone())),
            settles: Entrance::open(Settles(backend.clone())),
            backend,
            bounded: AtomicBool::new(false),
            sleepers: Mutex::default(),
            start: format!("{:016x}", rand::random::<u64>()),
            claims: AtomicU64::new(0),
        })
    }

    async fn claim_lanes(&self, request: &ClaimRequest, named: bool) -> StoreResult<Claimed> {
        let backend = &*self.backend;
        let mut progress = claim::Progress::new(request, named);
        let bounded = is_bounded(request);
        let mut outlook = backend.outlook(bounded).await?;
        let ready = claim::ready(&outlook, request);
        if !ready.is_empty() {
            repeated!(sweep::fire_and_enter(backend, &ready))?;
        }
        let expired = claim::expired(&outlook, request);
        if !expired.is_empty() {
            progress.claimed.reclaimed = repeated!(sweep::reclaim(backend, &expired, request.reclaim))?.0;
        }
        if !expired.is_empty() || !ready.is_empty() {
            outlook = backend.outlook(bounded).await?;
        }
        let mut repeats = Repeats::new();
        for _ in claim::looks() {
            if !claim::has_due(&outlook, request) {
                break;
            }
            let handed_out = match claim::hand_out(backend, &outlook, request, &mut progress).await {
                // Somebody was faster: what is due, and what is paused, is looked at anew.
                Err(Trouble::Again) if repeats.again().await => Ok(true),
                Err(Trouble::Again) => Err(Repeats::too_many()),
                Err(Trouble::Store(error)) => Err(error),
                Ok(more) => Ok(more),
            };
            let more = match handed_out {
                Err(error) if error.is_unknown() => {
                    // All that this claim got, also before.
                    progress.claimed.batches = self.recover(request, error).await?;
                    break;
                }
                // What was handed out before must not be lost with the answer.
                Err(_) if !progress.claimed.batches.is_empty() => break,
                answer => answer?,
            };
            if progress.is_full() {
                // Whoever has got all that it asked for asks again when it has room: nothing need be known until then.
                let now = outlook.now;
                return Ok(Claimed { now, next_at: Some(now), ..progress.claimed });
            }
            outlook = match backend.outlook(bounded).await {
                Ok(outlook) => outlook,
                Err(error) if progress.claimed.batches.is_empty() => return Err(error),
                // The store went away behind the commit: what was handed out must not be lost with the answer.
                Err(_) => {
                    let now = outlook.now;
                    return Ok(Claimed { now, next_at: Some(now), ..progress.claimed });
                }
            };
            if !more {
                break;
            }
        }
        if progress.made_before {
            let id = request.claim_id.as_deref().unwrap_or_default();
            let before = repeated!(claim::claimed_before(backend, request, id))?;
            progress.claimed.batches = before.map(|claimed| claimed.batches).unwrap_or_default();
        }
        let mut claimed = progress.claimed;
        claimed.now = outlook.now;
        claimed.next_at = claim::next_at(&outlook, request);
        Ok(claimed)
    }

    /// The connection was lost at the commit: what this claim got is asked for by its id, until the store answers.
    async fn recover(&self, request: &ClaimRequest, lost: StoreError) -> StoreResult<Vec<Batch>> {
        let id = request.claim_id.as_deref().unwrap_or_default();
        let mut repeats = Repeats::new();
        while repeats.again().await {
            match claim::claimed_before(&*self.backend, request, id).await {
                Ok(claimed) => return Ok(claimed.map(|c| c.batches).unwrap_or_default()),
                Err(Trouble::Again) => {}
                Err(Trouble::Store(error)) if error.is_temporary() => {}
                Err(Trouble::Store(error)) => return Err(error),
            }
        }
        Err(lost)
    }

    /// A name for a claim whose caller gave it none, so that a lost answer can be asked for.
    fn claim_name(&self) -> String {
        format!("{}-{}", self.start, self.claims.fetch_add(1, Ordering::Relaxed))
    }

    fn remember(&self, request: &ClaimRequest, next_at: Option<Timestamp>) {
        self.bounded.fetch_or(is_bounded(request), Ordering::Relaxed);
        let mut sleepers = self.sleepers.lock().expect("no panic happens while it is locked");
        if sleepers.len() > SLEEPERS_MAX {
            sleepers.clear();
        }
        sleepers.insert(request.worker.clone(), next_at);
        // The one who sleeps longest must hear what comes before that.
        let longest = sleepers.values().copied().reduce(|a, b| match (a, b) {
            (Some(a), Some(b)) => Some(a.max(b)),
            _ => None,
        });
        self.backend.sleeps(longest.flatten());
    }

    /// A place in a bounded queue may have become free.
    fn made_room(&self) {
        if self.bounded.load(Ordering::Relaxed) {
            self.backend.ring(Timestamp::from_millis(0));
        }
    }
}

#[async_trait]
impl Store for RowStore {
    async fn append(&self, request: AppendRequest) -> StoreResult<Appended> {
        request.check()?;
        self.appends.call(request).await
    }

    async fn claim(&self, mut request: ClaimRequest) -> StoreResult<Claimed> {
        request.check()?;
        let named = request.claim_id.is_some();
        match &request.claim_id {
            Some(id) => {
                let before = repeated!(claim::claimed_before(&*self.backend, &request, id))?;
                if let Some(claimed) = before {
                    return Ok(claimed);
                }
            }
            None => request.claim_id = Some(self.claim_name()),
        }
        let claimed = self.claim_lanes(&request, named).await?;
        self.remember(&request, claimed.next_at);
        Ok(claimed)
    }

    async fn extend(&self, request: ExtendRequest) -> StoreResult<Extended> {
        self.extends.call(request).await
    }

    async fn hold(&self, request: HoldRequest) -> StoreResult<Held> {
        repeated!(settle::hold(&*self.backend, &request))
    }

    async fn step(&self, request: StepRequest) -> StoreResult<StepAnswer> {
        request.check()?;
        repeated!(step::step(&*self.backend, &request))
    }

    async fn source(&self, request: SourceRequest) -> StoreResult<SourceAnswer> {
        request.check()?;
        repeated!(source::source(&*self.backend, &request))
    }

    async fn settle(&self, request: SettleRequest) -> StoreResult<Settled> {
        request.check()?;
        let settled = self.settles.call(request).await?;
        self.made_room();
        Ok(settled)
    }

    async fn shelf(&self, request: ShelfRequest) -> StoreResult<ShelfAnswer> {
        request.check()?;
        match request.action.name() {
            Some(name) => repeated!(shelf::change(&*self.backend, &request, name)),
            None => shelf::list(&*self.backend, &request).await,
        }
    }

    async fn sweep(&self, request: SweepRequest) -> StoreResult<Swept> {
        let backend = &*self.backend;
        let mut swept = Swept::default();
        let outlook = backend.outlook(false).await?;
        let due = |at: Option<Timestamp>| at.is_some_and(|at| at <= outlook.now);
        let queues: Vec<(Tenant, QueueName)> = claim::all_queues(&outlook, |q| due(q.first_lease));
        if request.reclaim && !queues.is_empty() {
            let (reclaimed, more) = repeated!(sweep::reclaim(backend, &queues, true))?;
            swept.reclaimed = reclaimed;
            swept.more |= more;
            self.made_room();
        }
        let queues = claim::all_queues(&outlook, |q| due(q.first_aside) || due(q.first_fire));
        if !queues.is_empty() {
            swept.more |= repeated!(sweep::fire_and_enter(backend, &queues))?;
        }
        swept.more |= backend.forget_answers().await?;
        swept.more |= backend.forget_documents().await?;
        if let Some(retention) = request.retention {
            backend.forget(retention, &mut swept).await?;
        }
        Ok(swept)
    }

    async fn inspect(&self, request: Inspect) -> StoreResult<Inspected> {
        self.backend.inspect(request).await
    }

    async fn control(&self, request: Control) -> StoreResult<Controlled> {
        let controlled = repeated!(control::control(&*self.backend, &request))?;
        self.made_room();
        Ok(controlled)
    }

    fn wakeups(&self) -> Box<dyn Wakeups> {
        self.backend.wakeups()
    }

    fn description(&self) -> Description {
        self.backend.description()
    }
}

/// Whether some queue of this claim bounds how many of its lanes may be running.
fn is_bounded(request: &ClaimRequest) -> bool {
    match &request.queues {
        ClaimQueues::Any(policy) => policy.max_running.is_some(),
        ClaimQueues::Listed(queues) => queues.iter().any(|q| q.policy.max_running.is_some()),
    }
}

struct Appends(Arc<dyn Backend>);

#[async_trait]
impl Grouped for Appends {
    type Request = AppendRequest;
    type Answer = Appended;
    const MOST: usize = 2_000;

    fn place(request: &AppendRequest) -> u64 {
        let mut hasher = DefaultHasher::new();
        request.events.first().map(|event| &event.lane).hash(&mut hasher);
        hasher.finish()
    }

    fn weight(request: &AppendRequest) -> usize {
        request.events.len()
    }

    async fn perform(
        &self,
        requests: &[&AppendRequest],
        patience: Patience,
    ) -> RowsResult<Answers<Appended>> {
        append::append(&*self.0, requests, patience).await
    }
}

struct Extends(Arc<dyn Backend>);

#[async_trait]
impl Grouped for Extends {
    type Request = ExtendRequest;
    type Answer = Extended;
    const MOST: usize = 512;

    fn place(request: &ExtendRequest) -> u64 {
        request.run_id.lane
    }

    fn weight(_: &ExtendRequest) -> usize {
        1
    }

    async fn perform(
        &self,
        requests: &[&ExtendRequest],
        patience: Patience,
    ) -> RowsResult<Answers<Extended>> {
        extend::extend(&*self.0, requests, patience).await
    }
}

struct Settles(Arc<dyn Backend>);

#[async_trait]
impl Grouped for Settles {
    type Request = SettleRequest;
    type Answer = Settled;
    const MOST: usize = 512;

    fn place(request: &SettleRequest) -> u64 {
        request.run_id.lane
    }

    fn weight(request: &SettleRequest) -> usize {
        1 + request.events.len()
    }

    async fn perform(&self, requests: &[&SettleRequest], patience: Patience) -> RowsResult<Answers<Settled>> {
        settle::settle(&*self.0, requests, patience).await
    }
}
