//! Pull workers: processes in any language that claim over the network, with an id of their own for each claim.
//!
//! A claim whose answer did not come is repeated under the same id and returns the same live claims; a batch is begun
//! once, however often it is returned.

use std::collections::BTreeSet;
use std::sync::Arc;

use quell_core::batch::WorkerId;
use quell_core::error::StoreResult;
use quell_core::store::{ClaimQueue, ClaimQueues, ClaimRequest, Claimed};

use crate::call::Request;
use crate::plan::PullerPlan;
use crate::seen::Sight;
use crate::world::{Part, What, Who, World};

pub(crate) struct Pulling {
    plan: PullerPlan,
    worker: Arc<WorkerId>,
    /// The id of the claim that has no answer yet.
    claim: Option<String>,
    last: Option<String>,
    claims: u64,
    next_run: u64,
    begun: BTreeSet<u64>,
}

impl Pulling {
    pub(crate) fn new(plan: PullerPlan, worker: Arc<WorkerId>) -> Self {
        Pulling { plan, worker, claim: None, last: None, claims: 0, next_run: 1, begun: BTreeSet::new() }
    }
}

impl World {
    fn puller(&self, node: usize) -> Who {
        Who::Part { node, life: self.nodes[node].life, part: Part::Claims }
    }

    /// Claims, if there is room.
    pub(crate) fn pull(&mut self, node: usize) {
        let who = self.puller(node);
        let mut chance = self.chance(who);
        let busy = self.nodes[node].handlers.len();
        let mut queues: Vec<ClaimQueue> = Vec::new();
        for (shape, policy) in self.plan.shape.queues.iter().zip(self.policies_of(node)) {
            if queues.iter().all(|q| q.queue != shape.name) {
                queues.push(ClaimQueue::new(shape.name.clone(), policy.run.clone(), 8));
            }
        }
        let Some(pulling) = self.nodes[node].pulling() else { return };
        if busy >= pulling.plan.max {
            let at = self.now + 20 + chance.below(60);
            return self.later(at, What::Timer { who, wish: 0 });
        }
        let again = pulling.last.take().filter(|_| chance.percent(10));
        let reused = pulling.claim.is_none() && again.is_some();
        let id = pulling.claim.clone().or(again).unwrap_or_else(|| {
            pulling.claims += 1;
            format!("{}-{}", pulling.worker, pulling.claims)
        });
        pulling.claim = Some(id.clone());
        let request = ClaimRequest {
            worker: pulling.worker.clone(),
            queues: ClaimQueues::Listed(queues),
            tenant: None,
            max: pulling.plan.max - busy,
            reclaim: true,
            claim_id: Some(id),
        };
        if reused {
            self.seen.saw(Sight::ClaimReused);
        }
        self.ask(who, Request::Claim(request));
    }

    pub(crate) fn pulled(&mut self, node: usize, answer: StoreResult<Claimed>) {
        let who = self.puller(node);
        let mut chance = self.chance(who);
        let healed = self.healed;
        let Some(pulling) = self.nodes[node].pulling() else { return };
        let mut wait = if healed { 1_000 } else { pulling.plan.poll };
        match answer {
            Ok(claimed) => {
                pulling.last = pulling.claim.take();
                for batch in claimed.batches {
                    let Some(pulling) = self.nodes[node].pulling() else { return };
                    if pulling.begun.insert(batch.token) {
                        let run = pulling.next_run;
                        pulling.next_run += 1;
                        wait = chance.below(50);
                        self.start_handler(node, run, batch, true);
                    }
                }
            }
            // Usually the same claim again; some forget that they asked.
            Err(_) if chance.percent(85) => wait = 20 + chance.below(80),
            Err(_) => pulling.claim = None,
        }
        self.later(self.now + wait, What::Timer { who, wish: 0 });
    }
}
