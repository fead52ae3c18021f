//! Documents on shelves: what a request makes of the ones that are here.

use super::WorkingSet;
use crate::clock::Timestamp;
use crate::error::StoreResult;
use crate::limits;
use crate::shelf::{Document, Shelf, ShelfAction, ShelfAnswer, ShelfRequest, document_exists, shelf_full};

impl WorkingSet {
    /// Decides on the documents that are here, and on how many live ones the shelf has `elsewhere`.
    pub fn shelf(
        &mut self,
        now: Timestamp,
        request: &ShelfRequest,
        elsewhere: usize,
    ) -> StoreResult<ShelfAnswer> {
        let shelf = request.shelf;
        match &request.action {
            ShelfAction::List => Ok(ShelfAnswer::Documents(self.live(now, shelf).cloned().collect())),
            ShelfAction::Remove { name } => {
                let gone = self.shelves.remove(&(shelf, name.clone()));
                Ok(ShelfAnswer::Removed(gone.is_some_and(|document| document.is_live(now))))
            }
            ShelfAction::Put { name, body, ttl, only_new } => {
                let place = (shelf, name.clone());
                let there = self.shelves.get(&place).is_some_and(|document| document.is_live(now));
                if there && *only_new {
                    return Err(document_exists(shelf, name));
                }
                if !there && self.live(now, shelf).count() + elsewhere >= limits::SHELF_DOCUMENTS_MAX {
                    return Err(shelf_full(shelf));
                }
                let document = Document {
                    name: name.clone(),
                    body: body.clone(),
                    put_at: now,
                    expires_at: ttl.map(|ttl| now.after(ttl)),
                };
                self.shelves.insert(place, document);
                Ok(ShelfAnswer::Put)
            }
        }
    }

    fn live(&self, now: Timestamp, shelf: Shelf) -> impl Iterator<Item = &Document> {
        let of_shelf = self.shelves.range((shelf, String::new())..).take_while(move |(at, _)| at.0 == shelf);
        of_shelf.map(|(_, document)| document).filter(move |document| document.is_live(now))
    }

    /// Takes documents away that are over, a bounded number. Says whether there are more.
    pub fn forget_documents(&mut self, now: Timestamp) -> bool {
        let over = self.shelves.iter().filter(|(_, document)| !document.is_live(now));
        let over: Vec<_> = over.map(|(at, _)| at.clone()).collect();
        for place in over.iter().take(limits::SHELF_SWEEP_STEP) {
            self.shelves.remove(place);
        }
        over.len() > limits::SHELF_SWEEP_STEP
    }
}
