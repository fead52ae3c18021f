//! Settle: a group of ends in one transaction; and hold, the gate before an effect.

use std::collections::BTreeSet;

use quell_core::lane::Lane;
use quell_core::source::SourceId;
use quell_core::store::{Held, HoldRequest, SettleRequest, Settled};

use crate::append::Answers;
use crate::rows::{Backend, First, Patience, RowsResult, Want};
use crate::work::{Index, Work, to_be_split};

pub(crate) async fn settle(
    backend: &dyn Backend,
    requests: &[&SettleRequest],
    patience: Patience,
) -> RowsResult<Answers<Settled>> {
    let ids: BTreeSet<u64> = requests.iter().map(|r| r.run_id.lane).collect();
    let numbers = 16 + requests.iter().map(|r| 12 + r.events.len()).sum::<usize>();
    let (mut work, busy) = with_locked(backend, &ids, patience, numbers).await?;
    let mut want = Want::default();
    for request in requests.iter().filter(|r| !busy.contains(&r.run_id.lane)) {
        let lane = work.lane_by_id(request.run_id.lane);
        match lane.filter(|l| l.holder(request.run_id.number, request.token).is_some()) {
            Some(lane) => {
                want.spans.extend(to_be_split(lane));
                want.sources.extend(lane.current.as_ref().and_then(|run| run.source));
            }
            // Perhaps it has settled before, and its answer was lost.
            None => want.said.push((request.run_id, request.token)),
        }
    }
    want.sources.sort_unstable();
    want.sources.dedup();
    work.find(&want, numbers).await?;
    let now = work.now;
    let answer = |request: &&SettleRequest| {
        let free = !busy.contains(&request.run_id.lane);
        free.then(|| work.set.settle(now, (*request).clone()))
    };
    let answers = requests.iter().map(answer).collect();
    if let Some(at) = work.commit(Index::Exact).await? {
        backend.ring(at);
    }
    Ok(answers)
}

pub(crate) async fn hold(backend: &dyn Backend, request: &HoldRequest) -> RowsResult<Held> {
    let (run, token) = (request.run_id, request.token);
    let (mut work, _) = with_locked(backend, &BTreeSet::from([run.lane]), Patience::Answer, 16).await?;
    let holds = work.lane_by_id(run.lane).is_some_and(|l| l.holder(run.number, token).is_some());
    let said = if holds { Vec::new() } else { vec![(run, token)] };
    let sources = work.lane_by_id(run.lane).and_then(probed).into_iter().collect();
    work.find(&Want { said, sources, ..Want::default() }, 16).await?;
    match work.set.hold(work.now, request) {
        Ok(held) => {
            if let Some(at) = work.commit(Index::Exact).await? {
                backend.ring(at);
            }
            Ok(held)
        }
        Err(error) => {
            work.rollback().await;
            Err(error.into())
        }
    }
}

/// The source that the current run of a lane probes.
pub(crate) fn probed(lane: &Lane) -> Option<SourceId> {
    lane.current.as_ref().filter(|run| run.probe).and_then(|run| run.source)
}

/// A transaction that has locked lanes by number, and which of them are busy and not waited for.
pub(crate) async fn with_locked(
    backend: &dyn Backend,
    ids: &BTreeSet<u64>,
    patience: Patience,
    numbers: usize,
) -> RowsResult<(Work, BTreeSet<u64>)> {
    let ids: Vec<u64> = ids.iter().copied().collect();
    let (work, lanes) = Work::begin_with(backend, First::Ids(&ids, patience), numbers).await?;
    Ok((work, lanes.busy_ids.into_iter().collect()))
}

/// Locks lanes by number, and names those that are busy and not waited for.
pub(crate) async fn locked_by_id(
    work: &mut Work,
    ids: &BTreeSet<u64>,
    patience: Patience,
) -> RowsResult<BTreeSet<u64>> {
    let ids: Vec<u64> = ids.iter().copied().collect();
    let lanes = work.rows.lanes_by_id(&ids, patience).await?;
    work.take_in(lanes.lanes);
    Ok(lanes.busy_ids.into_iter().collect())
}
