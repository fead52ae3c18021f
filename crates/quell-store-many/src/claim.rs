//! Claiming from several databases: one after the other, beginning with another one each time, until the claim has enough.
//!
//! While there is more to do than one claim takes, each claim asks one database; so the calls per batch stay what they are with
//! one database. Only a claim that finds less than it wants asks the others as well. Priorities decide within a database.
//!
//! A claim with an id of its own first asks all databases for what an earlier one of that id got and still has; only when there is
//! nothing, it takes something. So it may be repeated through any process.
//!
//! `max_running` is counted by each database, so each gets a share of it, and a queue with a smaller limit than there are
//! databases is refused: some of its lanes would never run.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use quell_core::clock::Timestamp;
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::store::{ClaimQueue, ClaimQueues, ClaimRequest, Claimed, RunPolicy, SweepRequest, Swept};

use crate::ManyStore;
use crate::limits::CLAIMS_LEFT_OUT;
use crate::partition::of_text;
use crate::relay::RELAY;

/// How long a database that did not answer is left alone when the others have nothing.
const AGAIN: Duration = Duration::from_secs(1);

impl ManyStore {
    pub(crate) async fn claim_in_turn(&self, request: ClaimRequest) -> StoreResult<Claimed> {
        request.check()?;
        check_limits(&request, self.members.len())?;
        let order = self.order(&request);
        if request.claim_id.is_some()
            && let Some(before) = self.claimed_before(&request, &order).await?
        {
            return Ok(before);
        }
        let mut got = Gathered::default();
        for database in order {
            let wanted = request.max.saturating_sub(got.all.batches.len());
            if wanted == 0 && request.max > 0 {
                got.unasked = true;
                break;
            }
            let asked = self.share_of(&request, database, wanted, &got.all);
            match self.members[database].claim(asked).await {
                Ok(claimed) => {
                    self.left_out[database].store(0, Ordering::Relaxed);
                    let claimed = self.without_relayed(database, claimed).await;
                    self.remember(&claimed.batches, database);
                    got.add(claimed);
                }
                // Whoever repeats the claim by its id gets what it may have got here.
                Err(error) if error.is_unknown() && request.claim_id.is_some() => return Err(error),
                Err(error) if error.is_temporary() => {
                    self.left_out[database].store(CLAIMS_LEFT_OUT, Ordering::Relaxed);
                    got.failed = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        got.finish()
    }

    /// What an earlier claim of this id got and still has. A claim of no queues takes nothing.
    async fn claimed_before(&self, request: &ClaimRequest, order: &[usize]) -> StoreResult<Option<Claimed>> {
        let asked = ClaimRequest { queues: ClaimQueues::Listed(Vec::new()), ..request.clone() };
        let mut got = Gathered { unasked: true, ..Gathered::default() };
        for database in order {
            match self.members[*database].claim(asked.clone()).await {
                Ok(claimed) => {
                    self.remember(&claimed.batches, *database);
                    got.add(claimed);
                }
                // What it has given cannot be worked on while it is away.
                Err(error) if error.is_temporary() => {}
                Err(error) => return Err(error),
            }
        }
        if got.all.batches.is_empty() { Ok(None) } else { got.finish().map(Some) }
    }

    /// All databases, those first that have answered lately; the others only when their turn has come again.
    fn order(&self, request: &ClaimRequest) -> Vec<usize> {
        let many = self.members.len();
        let first = match &request.claim_id {
            Some(id) => of_text(id, many),
            None => self.turn.fetch_add(1, Ordering::Relaxed) % many,
        };
        let all: Vec<usize> = (first..first + many).map(|n| n % many).collect();
        let left_out = |n: &usize| {
            let fewer = |left: u32| left.checked_sub(1);
            self.left_out[*n].fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer).is_ok()
        };
        let asked: Vec<usize> = all.iter().copied().filter(|n| !left_out(n)).collect();
        if asked.is_empty() { all } else { asked }
    }

    /// The claim as one database is asked it: what is left to take, and its share of every limit.
    fn share_of(
        &self,
        request: &ClaimRequest,
        database: usize,
        wanted: usize,
        got: &Claimed,
    ) -> ClaimRequest {
        let many = self.members.len();
        let queues = match &request.queues {
            ClaimQueues::Any(policy) => ClaimQueues::Any(shared(policy, many, database)),
            ClaimQueues::Listed(list) => ClaimQueues::Listed(
                list.iter()
                    .map(|listed| {
                        let taken =
                            got.batches.iter().filter(|batch| batch.lane.queue == listed.queue).count();
                        let share = |policy: &Arc<RunPolicy>| shared(policy, many, database);
                        let tenants = match listed.tenants.values().any(|policy| policy.max_running.is_some())
                        {
                            true => {
                                Arc::new(listed.tenants.iter().map(|(t, p)| (t.clone(), share(p))).collect())
                            }
                            false => listed.tenants.clone(),
                        };
                        ClaimQueue {
                            queue: listed.queue.clone(),
                            policy: share(&listed.policy),
                            tenants,
                            max: listed.max.saturating_sub(taken),
                        }
                    })
                    .collect(),
            ),
        };
        ClaimRequest { queues, max: wanted, ..request.clone() }
    }

    /// A worker that takes every queue is given relayed events, too; they are not for it.
    async fn without_relayed(&self, database: usize, claimed: Claimed) -> Claimed {
        let (relayed, batches) =
            claimed.batches.into_iter().partition(|batch| batch.lane.queue.as_str() == RELAY);
        self.relay_batches(database, relayed).await;
        Claimed { batches, ..claimed }
    }

    /// Each database by itself; one that does not answer is swept by whoever comes next.
    pub(crate) async fn sweep_all(&self, request: SweepRequest) -> StoreResult<Swept> {
        let (mut all, mut done, mut failed) = (Swept::default(), 0, None);
        for database in 0..self.members.len() {
            match self.members[database].sweep(request.clone()).await {
                Ok(swept) => {
                    done += 1;
                    all.reclaimed.extend(swept.reclaimed);
                    all.removed_runs += swept.removed_runs;
                    all.removed_events += swept.removed_events;
                    all.removed_audit += swept.removed_audit;
                    all.more |= swept.more;
                    self.relay_from(database).await;
                }
                Err(error) => {
                    tracing::warn!(store = %self.members[database].description().place, %error, "not swept");
                    failed = Some(error);
                }
            }
        }
        match failed {
            Some(error) if done == 0 => Err(error),
            _ => Ok(all),
        }
    }
}

/// What the databases have given so far.
#[derive(Default)]
struct Gathered {
    all: Claimed,
    answered: bool,
    /// The shortest wait that any of them named, with its own time.
    wait: Option<(Duration, Timestamp)>,
    unasked: bool,
    failed: Option<StoreError>,
}

impl Gathered {
    fn add(&mut self, claimed: Claimed) {
        if !self.answered {
            self.all.now = claimed.now;
        }
        self.answered = true;
        let wait = claimed.next_at.map(|at| (at.since(claimed.now), claimed.now));
        self.wait = [self.wait, wait].into_iter().flatten().min();
        self.all.batches.extend(claimed.batches);
        self.all.reclaimed.extend(claimed.reclaimed);
    }

    fn finish(self) -> StoreResult<Claimed> {
        let Gathered { mut all, answered, wait, unasked, failed } = self;
        if let Some(error) = failed.as_ref().filter(|_| !answered) {
            return Err(error.clone());
        }
        let now = all.now;
        let waits = [wait, unasked.then_some((Duration::ZERO, now)), failed.map(|_| (AGAIN, now))];
        if let Some((wait, now)) = waits.into_iter().flatten().min() {
            (all.now, all.next_at) = (now, Some(now.after(wait)));
        }
        Ok(all)
    }
}

/// One database's part of what all of them may do together.
pub(crate) fn share(of: u32, many: usize, nth: usize) -> u32 {
    let many = u32::try_from(many).unwrap_or(u32::MAX);
    of / many + u32::from(u32::try_from(nth).unwrap_or(u32::MAX) < of % many)
}

fn shared(policy: &Arc<RunPolicy>, many: usize, nth: usize) -> Arc<RunPolicy> {
    match policy.max_running {
        None => policy.clone(),
        Some(max) => Arc::new(RunPolicy { max_running: Some(share(max, many, nth)), ..(**policy).clone() }),
    }
}

fn check_limits(request: &ClaimRequest, many: usize) -> StoreResult<()> {
    let too_small = |policy: &RunPolicy| policy.max_running.filter(|max| (*max as usize) < many);
    let found = match &request.queues {
        ClaimQueues::Any(policy) => too_small(policy).map(|max| (None, max)),
        ClaimQueues::Listed(list) => list.iter().find_map(|listed| {
            let policies = [&listed.policy].into_iter().chain(listed.tenants.values());
            policies.filter_map(|policy| too_small(policy)).next().map(|max| (Some(&listed.queue), max))
        }),
    };
    let Some((queue, max)) = found else { return Ok(()) };
    let queue = queue.map_or_else(String::new, |queue| format!(" of queue {queue}"));
    Err(StoreError::new(
        ErrorKind::Invalid,
        format!(
            "max_running = {max}{queue} cannot be divided among {many} databases: each counts its own part; allow at least \
             {many}, or keep the queue in a store of one database"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_differ_by_one_at_the_most() {
        for (of, many) in [(2, 2), (3, 2), (7, 3), (100, 32), (32, 32)] {
            let shares: Vec<u32> = (0..many).map(|nth| share(of, many, nth)).collect();
            assert_eq!(shares.iter().sum::<u32>(), of);
            assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
        }
    }
}
