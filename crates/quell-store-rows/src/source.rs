//! Source: what a holder asks of its run's source while it works, conditional on the token.

use std::collections::BTreeSet;

use quell_core::limits;
use quell_core::store::{SourceAnswer, SourceRequest};

use crate::rows::{Backend, Patience, RowsResult, Want};
use crate::settle::locked_by_id;
use crate::work::{Index, Work};

pub(crate) async fn source(backend: &dyn Backend, request: &SourceRequest) -> RowsResult<SourceAnswer> {
    let mut work = Work::begin(backend).await?;
    let (run, token) = (request.run_id, request.token);
    locked_by_id(&mut work, &BTreeSet::from([run.lane]), Patience::Answer).await?;
    let holder = work.lane_by_id(run.lane).and_then(|lane| lane.holder(run.number, token));
    let source = holder.and_then(|run| run.source);
    let key = request.action.key().map(str::to_owned);
    let want = Want { sources: source.into_iter().collect(), answer: source.zip(key), ..Want::default() };
    let found = work.find(&want, 0).await?;
    match work.set.source(work.now, request.clone()) {
        Ok(answer) => {
            let kept = want.answer.is_some_and(|place| work.set.cache.contains_key(&place));
            if let (Some(source), Some(next)) = (source, found.next_over)
                && kept
                && found.answer.is_none()
                && found.answers >= limits::CACHE_ROWS_MAX
            {
                // A source that has as many as it may forgets the one that expires first.
                work.forget_answer(source, next);
            }
            if let Some(at) = work.commit(Index::Lazy).await? {
                backend.ring(at);
            }
            Ok(answer)
        }
        Err(error) => {
            work.rollback().await;
            Err(error.into())
        }
    }
}
