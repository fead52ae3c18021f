//! Step: one memo of a run, conditional on the token.

use std::collections::BTreeSet;

use quell_core::store::{StepAction, StepAnswer, StepRequest};
use quell_core::working_set::step as decide;

use crate::rows::{Backend, Patience, RowsResult, Want};
use crate::settle::with_locked;
use crate::work::Index;

pub(crate) async fn step(backend: &dyn Backend, request: &StepRequest) -> RowsResult<StepAnswer> {
    let (run, token) = (request.run_id, request.token);
    let (mut work, _) = with_locked(backend, &BTreeSet::from([run.lane]), Patience::Answer, 0).await?;
    let lane = work.lane_by_id(run.lane).cloned();
    let revision = lane.as_ref().and_then(|l| l.holder(run.number, token)).map(|h| h.revision);
    let wanted = revision.map(|revision| (run, revision, request.name.clone()));
    let found = work.find(&Want { step: wanted, ..Want::default() }, 0).await?;
    let known = found.steps.first().map(|(_, row)| row);
    match decide(work.now, lane.as_ref(), request.clone(), known, found.step_count) {
        Ok((answer, Some(row))) if request.action != StepAction::Read => {
            work.set.steps.insert((run, row.revision, row.name.clone()), row);
            work.commit(Index::Exact).await?;
            Ok(answer)
        }
        Ok((answer, _)) => {
            work.rollback().await;
            Ok(answer)
        }
        Err(error) => {
            work.rollback().await;
            Err(error.into())
        }
    }
}
