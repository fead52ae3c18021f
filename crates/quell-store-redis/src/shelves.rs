//! Shelves: small documents beside the lanes. A put looks again at what it has replaced, and near the bound also at whether
//! anything else was put meanwhile.

use quell_core::clock::Timestamp;
use quell_core::error::StoreResult;
use quell_core::limits;
use quell_core::shelf::{Document, Shelf};
use quell_store_rows::codec;
use quell_store_rows::rows::RowsResult;

use crate::error::strange;
use crate::link::For;
use crate::reply;
use crate::script::Script;
use crate::store::Shared;
use crate::tx::{Tx, or_empty};

/// This close to the bound, documents that are put at once look at one another, too.
const DOCUMENTS_CLOSE: usize = 100;

/// A document; the version (8 bytes) in front of it is given by the script that writes it.
fn read_document(row: &[u8]) -> StoreResult<Document> {
    let (_, document) = row.split_at_checked(8).ok_or_else(|| strange("a document without a version"))?;
    codec::read_document(document)
}

impl Tx {
    pub(crate) async fn place_on(
        &mut self,
        shelf: Shelf,
        name: &str,
    ) -> RowsResult<(Option<Document>, usize)> {
        let mut call = self.shared.link.script(Script::Document);
        call.arg(shelf.as_str()).arg(name).arg(self.now.as_millis());
        let mut answer = self.ask(&call).await?;
        let mut next = || answer.next().ok_or_else(|| strange("an answer that ends too soon"));
        let row = reply::bytes(next()?).unwrap_or_default();
        let live = usize::try_from(reply::count(next()?)?).unwrap_or(usize::MAX);
        let puts = reply::text(next()?).unwrap_or_default();
        let version = row.first_chunk().map(|version| u64::from_be_bytes(*version));
        self.look("VERSION", self.keys().documents(shelf), name.to_owned(), or_empty(version));
        if live + DOCUMENTS_CLOSE > limits::SHELF_DOCUMENTS_MAX {
            self.look("HGET", self.keys().meta(), "documents".to_owned(), puts);
        }
        let known = version.map(|_| read_document(&row)).transpose()?;
        let here = known.as_ref().is_some_and(|document| document.is_live(self.now));
        Ok((known, live.saturating_sub(usize::from(here))))
    }
}

impl Shared {
    /// All documents of a shelf as they were at one moment, also those that are over.
    pub(crate) async fn documents(&self, shelf: Shelf) -> StoreResult<(Timestamp, Vec<Document>)> {
        let now = self.link.now().await?;
        let mut command = redis::cmd("HVALS");
        command.arg(self.link.keys.documents(shelf));
        let rows = reply::list(self.plain(&command).await?)?.into_iter().filter_map(reply::bytes);
        Ok((now, rows.map(|row| read_document(&row)).collect::<StoreResult<_>>()?))
    }

    /// Those of all shelves, by shelf and name.
    pub(crate) async fn all_documents(&self) -> StoreResult<Vec<(Shelf, Document)>> {
        let mut all = Vec::new();
        for shelf in Shelf::ALL {
            let (_, mut documents) = self.documents(shelf).await?;
            documents.sort_by(|a, b| a.name.cmp(&b.name));
            all.extend(documents.into_iter().map(|document| (shelf, document)));
        }
        Ok(all)
    }

    pub(crate) async fn forget_documents(&self) -> StoreResult<bool> {
        let mut call = self.link.script(Script::Documents);
        call.arg(limits::SHELF_SWEEP_STEP).arg(&Shelf::ALL.map(Shelf::as_str));
        Ok(reply::count(self.link.read(For::Transactions, &call).await?)? == 1)
    }
}
