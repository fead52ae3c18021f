//! Cursors of listings, before a real file with a few lanes in it: what was never handed out is refused or gives a page,
//! and never anything else.

use std::sync::Arc;

use quell_core::error::ErrorKind;
use quell_core::event::{AppendPolicy, EventId, Key, LaneKey, NewEvent, NewEventId, Payload, QueueName};
use quell_core::inspect::{AuditFilter, Inspect, Inspected, LaneFilter, RunFilter};
use quell_core::store::{AppendRequest, Store as _};
use quell_store_sqlite::SqliteStore;
use tokio::runtime::{Builder, Runtime};

struct Shop {
    store: Arc<SqliteStore>,
    runtime: Runtime,
    _folder: tempfile::TempDir,
}

thread_local! {
    static SHOP: Shop = Shop::open();
}

impl Shop {
    fn open() -> Self {
        let folder = tempfile::tempdir().expect("a folder for a test");
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let store = SqliteStore::open(&folder.path().join("q.db")).expect("a new file can be opened");
        let events = (0..12).map(|n| {
            let queue = QueueName::new(["a", "b"][n % 2]).expect("a name of ours");
            let lane = LaneKey::new(queue, Key::new(format!("k.{n}")).expect("a key of ours"));
            let id = NewEventId::Given(EventId::new(format!("e{n}")).expect("an id of ours"));
            NewEvent::new(lane, id, Payload::of(&serde_json::json!(n)), Arc::new(AppendPolicy::default()))
        });
        let request = AppendRequest { events: events.collect(), repeat: false };
        runtime.block_on(store.append(request)).expect("a new file takes events");
        Shop { store, runtime, _folder: folder }
    }

    /// What a page of this listing is answered, in a word.
    fn page(&self, request: Inspect) -> &'static str {
        match self.runtime.block_on(self.store.inspect(request)) {
            Ok(Inspected::Lanes(page)) if page.items.len() <= 3 => "lanes",
            Ok(Inspected::Runs(page)) if page.items.len() <= 3 => "runs",
            Ok(Inspected::Audit(page)) if page.items.len() <= 3 => "audit",
            Ok(_) => panic!("a page is larger than was asked, or another one"),
            Err(error) if error.kind == ErrorKind::Invalid => "refused",
            Err(error) => panic!("a cursor is answered {error}"),
        }
    }
}

pub(super) fn read(input: &[u8]) -> String {
    let cursor = Some(String::from_utf8_lossy(input).into_owned());
    let key = Key::new("k.1").ok();
    SHOP.with(|shop| {
        let lanes = |idle| LaneFilter { idle, cursor: cursor.clone(), limit: 3, ..LaneFilter::default() };
        let runs = |key| RunFilter { key, cursor: cursor.clone(), limit: 3, ..RunFilter::default() };
        let audit = AuditFilter { cursor: cursor.clone(), limit: 3, ..AuditFilter::default() };
        [
            shop.page(Inspect::Lanes(lanes(false))),
            shop.page(Inspect::Lanes(lanes(true))),
            shop.page(Inspect::Runs(runs(None))),
            shop.page(Inspect::Runs(runs(key))),
            shop.page(Inspect::Audit(audit)),
        ]
        .join(" ")
    })
}
