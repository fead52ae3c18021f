//! Everything of one store in another of another kind: the promises of `quell_store_tests::copy` between files and servers,
//! in both directions. Each test has a schema or a prefix of its own.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quell_store_postgres::PostgresStore;
use quell_store_redis::RedisStore;
use quell_store_sqlite::SqliteStore;
use quell_store_tests::copy::{self as promises, Side, Wrong};

use crate::copying::copier;

/// A name that no other test of this run has, nor one of another run on the same server.
fn fresh_name() -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let (nth, pid) = (MADE.fetch_add(1, Ordering::SeqCst), std::process::id());
    let moment = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_micros();
    format!("c{pid}_{nth}_{moment:x}")
}

fn with(url: &str, setting: &str) -> String {
    let joint = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joint}{setting}")
}

/// The two forms of a store, and the hand that moves its time.
macro_rules! side {
    ($store:expr) => {{
        let store = $store;
        let moved = Arc::clone(&store);
        let advance = move |by: Duration| -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
            let store = Arc::clone(&moved);
            Box::pin(async move { store.advance(by).await.unwrap() })
        };
        Side { portable: store.clone(), store, advance: Box::new(advance) }
    }};
}

async fn sqlite(folder: &tempfile::TempDir) -> Side {
    side!(SqliteStore::open(&folder.path().join(fresh_name())).unwrap())
}

async fn postgres(_: &tempfile::TempDir) -> Side {
    let url = with(&quell_test_servers::postgres_url(), &format!("schema={}&pool=8", fresh_name()));
    side!(PostgresStore::open_url(&url).await.unwrap())
}

async fn redis(_: &tempfile::TempDir) -> Side {
    let url = with(&quell_test_servers::redis_url(), &format!("prefix={}", fresh_name()));
    side!(RedisStore::open_url(&url).await.unwrap())
}

/// All promises from one kind of store to another.
macro_rules! copies {
    ($name:ident: $from:ident => $to:ident: $($promise:ident),*) => {
        mod $name {
            use super::*;

            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                let folder = tempfile::tempdir().unwrap();
                let (from, to) = ($from(&folder).await, $to(&folder).await);
                promises::$promise(&from, &to, &copier).await;
            })*

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_wrong_byte_is_found() {
                for kind in Wrong::ALL {
                    let folder = tempfile::tempdir().unwrap();
                    let (from, to) = ($from(&folder).await, $to(&folder).await);
                    promises::a_wrong_byte_is_found(&from, &to, &copier, kind).await;
                }
            }
        }
    };
    ($($name:ident: $from:ident => $to:ident;)*) => {
        $(copies!($name: $from => $to:
            everything_arrives_and_the_copy_works_at_once,
            changes_between_the_passes_arrive,
            a_copy_that_was_cut_short_goes_on,
            a_target_with_something_in_it_is_refused,
            a_store_that_has_moved_is_not_copied_again
        );)*
    };
}

copies! {
    from_sqlite_to_postgres: sqlite => postgres;
    from_postgres_to_redis: postgres => redis;
    from_redis_to_sqlite: redis => sqlite;
    from_sqlite_to_redis: sqlite => redis;
    from_redis_to_postgres: redis => postgres;
    from_redis_to_redis: redis => redis;
}
