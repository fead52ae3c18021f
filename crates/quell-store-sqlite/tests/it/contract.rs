//! The shared suite on real files: every promise of the contract, kept by SQLite.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use quell_core::copy::Portable;
use quell_core::store::Store;
use quell_store_sqlite::SqliteStore;
use quell_store_tests::{Harness, World};

struct Files;

#[async_trait]
impl Harness for Files {
    async fn world(&self) -> Box<dyn World> {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = folder.path().join("q.db");
        let store = SqliteStore::open(&path).expect("a new file opens");
        Box::new(FileWorld { _folder: folder, path, open: Mutex::new(vec![store]) })
    }
}

struct FileWorld {
    _folder: tempfile::TempDir,
    path: PathBuf,
    open: Mutex<Vec<Arc<SqliteStore>>>,
}

impl FileWorld {
    fn first(&self) -> Arc<SqliteStore> {
        self.open.lock().expect("no test panics while it is locked")[0].clone()
    }
}

#[async_trait]
impl World for FileWorld {
    fn store(&self) -> Arc<dyn Store> {
        self.first()
    }

    async fn another(&self) -> Arc<dyn Store> {
        let store = SqliteStore::open(&self.path).expect("a second handle opens");
        self.open.lock().expect("no test panics while it is locked").push(store.clone());
        store
    }

    async fn advance(&self, by: Duration) {
        self.first().advance(by).await.expect("the clock can be moved");
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        self.open.lock().expect("no test panics while it is locked").clear();
        let store = SqliteStore::open(&self.path).expect("the file opens again");
        self.open.lock().expect("no test panics while it is locked").push(store.clone());
        store
    }

    fn portable(&self) -> Option<Arc<dyn Portable>> {
        Some(self.first())
    }

    fn has_tables(&self) -> bool {
        true
    }

    fn clock_runs(&self) -> bool {
        true
    }

    fn durable(&self) -> bool {
        true
    }
}

quell_store_tests::store_suite!(Files);
