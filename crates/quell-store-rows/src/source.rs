//! Source: what a holder asks of its run's source, or of another, while it works, conditional on the token.

use std::collections::BTreeSet;

use quell_core::event::{SourceName, Tenant};
use quell_core::limits;
use quell_core::source::{Source, SourceId};
use quell_core::store::{SourceAnswer, SourceRequest};

use crate::rows::{Backend, Patience, RowsResult, Want};
use crate::settle::with_locked;
use crate::work::{Index, Work};

pub(crate) async fn source(backend: &dyn Backend, request: &SourceRequest) -> RowsResult<SourceAnswer> {
    let (run, token) = (request.run_id, request.token);
    let (mut work, _) = with_locked(backend, &BTreeSet::from([run.lane]), Patience::Answer, 0).await?;
    let holder = work.lane_by_id(run.lane).and_then(|lane| lane.holder(run.number, token));
    let own = holder.and_then(|run| run.source);
    let source = match (&request.source, holder.and(work.tenant_of(run.lane))) {
        (Some(name), Some(tenant)) => other(&mut work, &tenant, name).await?,
        _ => own,
    };
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

/// The source of this name that a run of this tenant asks beside its own: first found, then locked. Nothing when it is yet
/// to be made, for which there is a number then, or when nobody declares it.
async fn other(work: &mut Work, tenant: &Tenant, name: &SourceName) -> RowsResult<Option<SourceId>> {
    let governing = vec![(tenant.clone(), name.clone())];
    work.find(&Want { governing, ..Want::default() }, 0).await?;
    let Some(rules) = work.set.declarations.get(name).copied() else { return Ok(None) };
    let owner = Source::owner(tenant, Some(rules), None);
    let found = work.set.sources.values().find(|s| s.tenant == owner && s.name == *name).map(|s| s.id);
    match found {
        // What was read without a lock may be old by now.
        Some(_) => work.unread_sources(),
        None => drop(work.find(&Want::default(), 1).await?),
    }
    Ok(found)
}
