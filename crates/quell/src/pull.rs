//! Work for handlers that are not in this process: claims, leases and settlements by whoever asks, such as a worker that
//! speaks HTTP.
//!
//! The engine adds what such a holder does not know: the policy of its queue at the claim, and the backoff when a run is
//! to be tried again. Keeping the lease alive is the holder's own business.

use std::sync::Arc;
use std::time::Duration;

use quell_core::batch::{RunId, WorkerId};
use quell_core::error::StoreResult;
use quell_core::event::{QueueName, Tenant};
use quell_core::limits;
use quell_core::outcome::Outcome;
use quell_core::store::{
    ClaimQueue, ClaimQueues, ClaimRequest, Claimed, ExtendRequest, Extended, Held, HoldRequest, RunPolicy,
    SettleRequest, Settled, StepAction, StepAnswer, StepRequest,
};

use crate::config::{HandlerSettings, QueueSettings};
use crate::engine::{Engine, EngineError, resolved, unknown_queue};
use crate::spans;

/// What a holder elsewhere would like to work on.
#[derive(Debug, Clone)]
pub struct PullWish {
    /// Who asks: leases are given to this name.
    pub worker: Arc<WorkerId>,
    /// None means every queue that is pulled.
    pub queues: Vec<QueueName>,
    /// Only lanes of this tenant; of all without.
    pub tenant: Option<Tenant>,
    /// Lanes at the most.
    pub max: usize,
    /// In place of the lease of their queue.
    pub lease: Option<Duration>,
    /// Repeating it returns the claims it got that are still live.
    pub claim_id: Option<String>,
}

impl Engine {
    /// The settings of a queue, if it exists here.
    pub fn queue(&self, name: &QueueName) -> Result<Arc<QueueSettings>, EngineError> {
        let settings = self.settings();
        settings.queue(name).ok_or_else(|| unknown_queue(&settings, name))
    }

    /// What to ask the store for such a wish. A queue that this process handles itself is not pulled: half of its runs
    /// would go elsewhere.
    pub fn pull_request(&self, wish: &PullWish) -> Result<ClaimRequest, EngineError> {
        let policy = |queue: &QueueSettings| match wish.lease {
            Some(lease) => {
                let lease = lease.clamp(limits::LEASE_MIN, limits::LEASE_MAX);
                Arc::new(RunPolicy { lease, ..(*queue.run).clone() })
            }
            None => queue.run.clone(),
        };
        let listed = |queue: &QueueSettings| ClaimQueue::new(queue.name.clone(), policy(queue), wish.max);
        let is_pulled = |queue: &QueueSettings| queue.handler == HandlerSettings::Pull;
        let settings = self.settings();
        let queues = match (&settings.default_queue, wish.queues.is_empty()) {
            (Some(any), true) if is_pulled(any) => ClaimQueues::Any(policy(any)),
            (Some(_), true) => ClaimQueues::Listed(Vec::new()),
            (None, true) => {
                let pulled = settings.queues.values().filter(|queue| is_pulled(queue));
                ClaimQueues::Listed(pulled.map(|queue| listed(queue)).collect())
            }
            (_, false) => {
                let mut list = Vec::with_capacity(wish.queues.len());
                for name in &wish.queues {
                    let queue = self.queue(name)?;
                    if !is_pulled(&queue) {
                        return Err(EngineError::NotPulled { queue: name.clone() });
                    }
                    list.push(listed(&queue));
                }
                ClaimQueues::Listed(list)
            }
        };
        Ok(ClaimRequest {
            worker: wish.worker.clone(),
            queues,
            tenant: wish.tenant.clone(),
            max: wish.max.min(limits::CLAIM_LANES_MAX),
            reclaim: true,
            claim_id: wish.claim_id.clone(),
        })
    }

    /// Takes lanes for a worker elsewhere, as [`Engine::pull_request`] has worded it.
    pub async fn claim(&self, request: ClaimRequest) -> StoreResult<Claimed> {
        let (began, worker) = (spans::beginning(), request.worker.clone());
        let answer = self.store().claim(request).await;
        spans::claimed(began, &worker, &answer);
        answer
    }

    /// Keeps a lease.
    pub async fn extend(&self, request: ExtendRequest) -> StoreResult<Extended> {
        self.store().extend(request).await
    }

    /// The gate before an effect. An unknown answer is resolved by asking again.
    pub async fn hold(&self, request: HoldRequest) -> StoreResult<Held> {
        resolved("hold", |_| self.store().hold(request.clone())).await
    }

    /// Remembers a piece of a run. The first result stays, so an unknown answer is resolved by asking again.
    pub async fn step(
        &self,
        run_id: RunId,
        token: u64,
        name: &str,
        action: StepAction,
    ) -> StoreResult<StepAnswer> {
        let request = StepRequest { run_id, token, name: name.to_owned(), action };
        resolved("step", |_| self.store().step(request.clone())).await
    }

    /// Ends an attempt of a run of this queue that was tried again so many times before. An unknown answer is resolved by
    /// asking again with the same token.
    pub async fn settle(
        &self,
        (run_id, token): (RunId, u64),
        queue: &QueueName,
        retries: u32,
        outcome: Outcome,
    ) -> Result<Settled, EngineError> {
        let retry = self.queue(queue)?.retry;
        let request = SettleRequest::of(run_id, token, outcome, &retry, retries, self.chance().unit());
        Ok(resolved("settle", |_| self.store().settle(request.clone())).await?)
    }
}
