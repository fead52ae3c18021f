//! Everything out of a file and everything into one: what `quell store copy` needs of this store.
//!
//! Reads (`copy/read.rs`) go in pages on the connections of readers. Writes (`copy/write.rs`) go through the writer like
//! those of all others, but in transactions of their own, which a seal does not stop. The seal itself is a column that
//! every transaction reads when it has the write lock: once it is committed, nobody in any process changes anything, and
//! whoever was writing had committed before.

use std::sync::Arc;

use async_trait::async_trait;
use quell_core::aside::Aside;
use quell_core::batch::RunId;
use quell_core::copy::{Applications, Frame, LaneRow, Portable, Row};
use quell_core::error::StoreResult;
use quell_core::source::{CacheRow, SourceId};
use quell_core::store::StepRow;
use quell_core::working_set::{FinishedRun, Kept, Trail};
use rusqlite::Connection;

use crate::SqliteStore;
use crate::error::not_done;
use crate::inspect::history;
use crate::tables::PastSeal;
use crate::writer::Request;

mod read;
mod write;

pub(crate) use write::{Change, perform};

impl SqliteStore {
    async fn change(&self, change: Change) -> StoreResult<()> {
        self.inbox.call(Request::Copy(change)).await.map(|_| ())
    }

    async fn page<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> StoreResult<T> {
        self.read(move |connection| read(connection).map_err(|e| not_done(&e))).await
    }
}

#[async_trait]
impl Portable for SqliteStore {
    async fn sealed(&self) -> StoreResult<Option<String>> {
        self.page(|connection| read::of_meta(connection, "SELECT sealed FROM meta")).await
    }

    async fn seal(&self, by: Option<&str>) -> StoreResult<()> {
        self.change(Change::Seal(by.map(str::to_owned))).await
    }

    async fn frame(&self) -> StoreResult<Frame> {
        self.page(read::frame).await
    }

    async fn lanes(&self, after: u64, most: usize) -> StoreResult<Vec<LaneRow>> {
        self.page(move |connection| read::lanes(connection, after, most)).await
    }

    async fn events(&self, lane: u64, after: u64, most: usize) -> StoreResult<Vec<Kept>> {
        self.page(move |connection| read::events(connection, lane, after, most)).await
    }

    async fn runs(&self, lane: u64, after: u64, most: usize) -> StoreResult<Vec<FinishedRun>> {
        self.page(move |connection| read::runs(connection, lane, after, most)).await
    }

    async fn steps(&self, run: RunId) -> StoreResult<Vec<StepRow>> {
        self.page(move |connection| history::steps(connection, run)).await
    }

    async fn asides(&self, after: u64, most: usize) -> StoreResult<Vec<Aside>> {
        self.page(move |connection| read::asides(connection, after, most)).await
    }

    async fn trail(&self, after: u64, most: usize) -> StoreResult<Vec<Trail>> {
        self.page(move |connection| read::trail(connection, after, most)).await
    }

    async fn cached(&self, after: Option<(SourceId, String)>, most: usize) -> StoreResult<Vec<CacheRow>> {
        self.page(move |connection| read::cached(connection, after, most)).await
    }

    async fn put(&self, rows: Vec<Row>) -> StoreResult<()> {
        self.change(Change::Put(rows)).await
    }

    async fn remove_lane(&self, lane: u64) -> StoreResult<()> {
        self.change(Change::RemoveLane(lane)).await
    }

    async fn take_frame(&self, frame: &Frame) -> StoreResult<()> {
        self.change(Change::TakeFrame(Box::new(frame.clone()))).await
    }

    async fn place(&self) -> StoreResult<Option<String>> {
        self.page(|connection| read::of_meta(connection, "SELECT copy_place FROM meta")).await
    }

    async fn set_place(&self, place: Option<&str>) -> StoreResult<()> {
        self.change(Change::SetPlace(place.map(str::to_owned))).await
    }

    fn applications(self: Arc<Self>) -> Applications {
        Applications::Tables(Arc::new(PastSeal(self)))
    }
}
