//! Append, claim and settle by hand, without a worker, where a workload measures the calls themselves.

use std::ops::Range;
use std::sync::Arc;

use futures_util::future::try_join_all;
use quell::quell_core::batch::{Batch, WorkerId};
use quell::quell_core::event::QueueName;
use quell::quell_core::outcome::Verdict;
use quell::quell_core::store::{ClaimQueue, ClaimQueues, ClaimRequest, RunPolicy, SettleRequest};
use quell::{Engine, Queue};

use crate::append_all;
use crate::place::Fresh;

/// Lanes of one claim: the most that a worker takes at once.
pub(crate) const LANES: usize = 512;

pub(crate) struct Rounds {
    engine: Engine,
    worker: Arc<WorkerId>,
    queues: ClaimQueues,
}

impl Rounds {
    pub(crate) async fn open(fresh: &Fresh) -> anyhow::Result<Self> {
        let (engine, _) = fresh.open(Queue::none(), LANES).await?;
        let worker = Arc::new(engine.worker_id());
        let policy = Arc::new(RunPolicy::default());
        let queues = vec![ClaimQueue::new(QueueName::new("bench")?, policy, LANES)];
        Ok(Rounds { engine, worker, queues: ClaimQueues::Listed(queues) })
    }

    pub(crate) async fn append(&self, keys: Range<usize>) -> anyhow::Result<()> {
        append_all(&self.engine, keys).await
    }

    pub(crate) async fn claim(&self, max: usize) -> anyhow::Result<Vec<Batch>> {
        let request = ClaimRequest {
            worker: self.worker.clone(),
            queues: self.queues.clone(),
            tenant: None,
            max,
            reclaim: true,
            claim_id: None,
        };
        Ok(self.engine.store().claim(request).await?.batches)
    }

    /// All at once, as many handlers would that end together.
    pub(crate) async fn settle(&self, batches: Vec<Batch>) -> anyhow::Result<()> {
        let settles = batches.into_iter().map(|batch| {
            self.engine.store().settle(SettleRequest::new(batch.run_id, batch.token, Verdict::Succeeded))
        });
        try_join_all(settles).await?;
        Ok(())
    }

    /// Append, claim and settle once for each of these keys.
    pub(crate) async fn cycle(&self, keys: Range<usize>) -> anyhow::Result<()> {
        let mut left = keys.len();
        self.append(keys).await?;
        while left > 0 {
            let batches = self.claim(left.min(LANES)).await?;
            anyhow::ensure!(!batches.is_empty(), "{left} lanes are due and none is claimed");
            left -= batches.len();
            self.settle(batches).await?;
        }
        Ok(())
    }
}
