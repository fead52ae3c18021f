//! Shelf: one document is put or removed, or all that are live are listed.

use quell_core::error::StoreResult;
use quell_core::shelf::{ShelfAnswer, ShelfRequest};
use quell_core::working_set::WorkingSet;

use crate::rows::{Backend, RowsResult};
use crate::work::{Index, Work};

/// Puts or removes the document of this name.
pub(crate) async fn change(
    backend: &dyn Backend,
    request: &ShelfRequest,
    name: &str,
) -> RowsResult<ShelfAnswer> {
    let mut work = Work::begin(backend).await?;
    let elsewhere = work.find_document(request.shelf, name).await?;
    match work.set.shelf(work.now, request, elsewhere) {
        Ok(answer) => {
            work.commit(Index::Exact).await?;
            Ok(answer)
        }
        Err(error) => {
            work.rollback().await;
            Err(error.into())
        }
    }
}

pub(crate) async fn list(backend: &dyn Backend, request: &ShelfRequest) -> StoreResult<ShelfAnswer> {
    let (now, documents) = backend.documents(request.shelf).await?;
    let place = |name: &str| (request.shelf, name.to_owned());
    let shelves = documents.into_iter().map(|document| (place(&document.name), document)).collect();
    WorkingSet { shelves, ..WorkingSet::default() }.shelf(now, request, 0)
}
