//! Extend: a group of leases in one transaction. The entry of the lease index stays where it is.

use std::collections::BTreeSet;

use quell_core::error::StoreError;
use quell_core::store::{ExtendRequest, Extended};

use crate::append::Answers;
use crate::rows::{Backend, Patience, RowsResult};
use crate::settle::locked_by_id;
use crate::work::{Index, Work};

pub(crate) async fn extend(
    backend: &dyn Backend,
    requests: &[&ExtendRequest],
    patience: Patience,
) -> RowsResult<Answers<Extended>> {
    let mut work = Work::begin(backend).await?;
    let ids: BTreeSet<u64> = requests.iter().map(|r| r.run_id.lane).collect();
    let busy = locked_by_id(&mut work, &ids, patience).await?;
    let now = work.now;
    let mut answers = Vec::with_capacity(requests.len());
    for request in requests {
        if busy.contains(&request.run_id.lane) {
            answers.push(None);
            continue;
        }
        let lost = || StoreError::lost_lease(request.run_id, request.token);
        let lane = work.set.lane_of(request.run_id.lane);
        let beat = lane.map(|(_, l)| {
            l.lane.extend(now.max(l.lane.updated_at), request.run_id.number, request.token, request.lease)
        });
        answers.push(Some(match beat {
            Some(Ok(beat)) => Ok(Extended::from(beat)),
            _ => Err(lost()),
        }));
    }
    work.commit(Index::Lazy).await?;
    Ok(answers)
}
