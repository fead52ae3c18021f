//! Extend: a group of leases in one transaction. The entry of the lease index stays where it is.

use std::collections::BTreeSet;

use quell_core::store::{ExtendRequest, Extended};

use crate::append::Answers;
use crate::rows::{Backend, Patience, RowsResult, Want};
use crate::settle::{probed, with_locked};
use crate::work::Index;

pub(crate) async fn extend(
    backend: &dyn Backend,
    requests: &[&ExtendRequest],
    patience: Patience,
) -> RowsResult<Answers<Extended>> {
    let ids: BTreeSet<u64> = requests.iter().map(|r| r.run_id.lane).collect();
    let (mut work, busy) = with_locked(backend, &ids, patience, 0).await?;
    // The right to probe moves with the lease.
    let sources: BTreeSet<_> = work.set.lanes.values().filter_map(|l| probed(&l.lane)).collect();
    work.find(&Want { sources: sources.into_iter().collect(), ..Want::default() }, 0).await?;
    let now = work.now;
    let mut extended = |request: &&ExtendRequest| {
        let free = !busy.contains(&request.run_id.lane);
        free.then(|| work.set.extend(now, request))
    };
    let answers = requests.iter().map(&mut extended).collect();
    work.commit(Index::Lazy).await?;
    Ok(answers)
}
