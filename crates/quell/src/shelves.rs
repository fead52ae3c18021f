//! Shelves: small documents beside the lanes that every process of a store sees.
//!
//! An *unknown* answer is resolved here by repeating the same request, as with an append. A document that was to be new and
//! is found there just so is the one that the first try has put.

use std::time::Duration;

use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::shelf::{Document, Shelf, ShelfAction, ShelfAnswer, ShelfRequest};
use serde_json::Value;

use crate::engine::{Engine, resolved};

impl Engine {
    /// All live documents of a shelf, by name.
    pub async fn documents(&self, shelf: Shelf) -> StoreResult<Vec<Document>> {
        match self.store().shelf(ShelfRequest { shelf, action: ShelfAction::List }).await? {
            ShelfAnswer::Documents(documents) => Ok(documents),
            other => Err(mixed_up(&other)),
        }
    }

    /// Makes or replaces a document; with `ttl` it is gone after that time. With `only_new` a live one of that name is a
    /// conflict, and stays.
    pub async fn put_document(
        &self,
        shelf: Shelf,
        name: &str,
        body: Value,
        ttl: Option<Duration>,
        only_new: bool,
    ) -> StoreResult<()> {
        let action = ShelfAction::Put { name: name.to_owned(), body: body.clone(), ttl, only_new };
        let (answer, repeated) = self.shelf_resolved(ShelfRequest { shelf, action }).await;
        match answer {
            Ok(_) => Ok(()),
            Err(error) if repeated && error.kind == ErrorKind::Conflict => {
                let ours = |found: &Document| {
                    found.name == name && found.body == body && found.expires_at.is_some() == ttl.is_some()
                };
                if self.documents(shelf).await?.iter().any(ours) { Ok(()) } else { Err(error) }
            }
            Err(error) => Err(error),
        }
    }

    /// Takes a document away; false when there was none, or when an earlier try of this very call, whose answer was lost,
    /// has taken it.
    pub async fn remove_document(&self, shelf: Shelf, name: &str) -> StoreResult<bool> {
        let action = ShelfAction::Remove { name: name.to_owned() };
        match self.shelf_resolved(ShelfRequest { shelf, action }).await.0? {
            ShelfAnswer::Removed(removed) => Ok(removed),
            other => Err(mixed_up(&other)),
        }
    }

    /// The answer, and whether the request was made more than once for it.
    async fn shelf_resolved(&self, request: ShelfRequest) -> (StoreResult<ShelfAnswer>, bool) {
        let mut repeated = false;
        let answer = resolved("shelf", |repeat| {
            repeated |= repeat;
            self.store().shelf(request.clone())
        });
        (answer.await, repeated)
    }
}

/// A store answered another question than the one asked.
fn mixed_up(answer: &ShelfAnswer) -> StoreError {
    let kind = std::mem::discriminant(answer);
    StoreError::new(ErrorKind::Corrupt, format!("the store mixed up its answers: got {kind:?}"))
}
