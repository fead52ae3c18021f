//! Files and folders that must be refused at start, with the reason, and what a file looks like from outside.

use std::path::Path;

use quell_core::error::{ErrorKind, StoreError};
use quell_core::inspect::{Inspect, Inspected};
use quell_core::store::{Durability, Store};
use quell_store_sqlite::SqliteStore;
use quell_store_tests::builders::{append_one, event};
use rusqlite::Connection;

fn refused(path: &Path) -> StoreError {
    SqliteStore::open(path).err().expect("this must be refused")
}

#[test]
fn a_file_that_is_not_a_database_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    let text =
        "these are my notes, and they are long enough to be looked at as a header of a file\n".repeat(20);
    std::fs::write(&path, &text).unwrap();
    let error = refused(&path);
    assert_eq!(error.kind, ErrorKind::Corrupt);
    assert!(error.detail.contains("not an SQLite database"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn another_programs_database_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE notes (text TEXT)").unwrap();
    let error = refused(&path);
    assert_eq!(error.kind, ErrorKind::Corrupt);
    assert!(error.detail.contains("another program"), "{error}");
    let tables: i64 = Connection::open(&path)
        .unwrap()
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .unwrap();
    assert_eq!(tables, 1, "nothing of ours was put into it");
}

#[test]
fn a_newer_schema_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    drop(SqliteStore::open(&path).unwrap());
    Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 999").unwrap();
    let error = refused(&path);
    assert!(error.detail.contains("schema 999") && error.detail.contains("newer Quell"), "{error}");
}

#[test]
fn a_damaged_file_is_refused_or_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    drop(SqliteStore::open(&path).unwrap());
    let mut bytes = std::fs::read(&path).unwrap();
    for byte in bytes.iter_mut().skip(100).take(3_900) {
        *byte = 0xa5;
    }
    std::fs::write(&path, bytes).unwrap();
    let error = refused(&path);
    assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
}

#[test]
fn a_folder_that_is_missing_or_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = refused(&folder.path().join("nowhere").join("q.db"));
    assert!(error.detail.contains("does not exist"), "{error}");
    let error = refused(folder.path());
    assert!(error.detail.contains("is a folder"), "{error}");
    // Not even root can make a file there.
    #[cfg(target_os = "linux")]
    {
        let error = refused(Path::new("/proc/quell.db"));
        assert!(error.detail.contains("cannot create"), "{error}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn every_file_of_the_store_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    let store = SqliteStore::open(&path).unwrap();
    store.advance(std::time::Duration::from_secs(1)).await.unwrap();
    let mut seen = 0;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode & 0o077, 0, "{:?} has mode {mode:o}", entry.file_name());
        seen += 1;
    }
    assert!(seen >= 4, "file, log, shared memory and lock are there");
}

#[tokio::test]
async fn durability_is_read_back_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("q.db")).unwrap();
    assert_eq!(store.description().durability, Durability::Durable);
    let Ok(Inspected::Health(health)) = store.inspect(Inspect::Health).await else {
        panic!("health is told")
    };
    assert!(health.facts.iter().any(|(name, value)| name == "journal_mode" && value == "wal"));
    assert!(health.warnings.is_empty(), "{:?}", health.warnings);
    assert!(health.wall_divergence_ms.abs() < 60_000);
}

#[tokio::test]
async fn store_time_is_one_for_all_handles_and_survives_closing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    let (a, b) = (SqliteStore::open(&path).unwrap(), SqliteStore::open(&path).unwrap());
    let day = std::time::Duration::from_secs(86_400);
    let before = now(&*b).await;
    a.advance(day).await.unwrap();
    let moved = now(&*b).await;
    assert!(moved >= before.after(day));
    drop((a, b));
    let again = SqliteStore::open(&path).unwrap();
    assert!(now(&*again).await >= moved, "time never goes back");
}

async fn now(store: &dyn Store) -> quell_core::clock::Timestamp {
    match store.inspect(Inspect::Health).await {
        Ok(Inspected::Health(health)) => health.now,
        other => panic!("health is told: {other:?}"),
    }
}

/// Found in review: the lane was still idle in its row when the retention looked, and was deleted under its new event.
#[tokio::test]
async fn an_event_that_arrives_with_a_retention_step_is_not_lost() {
    use quell_core::store::SweepRequest;
    use quell_core::window::Window;
    use quell_store_tests::builders::{SUCCEEDED, append_one, append_request, claim_all, event, settle};
    use std::time::Duration;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    let store = SqliteStore::open(&path).unwrap();
    for round in 0..20 {
        let old = event("chat", "k").id(&format!("old{round}")).window(Window::none());
        append_one(&*store, old).await;
        for batch in claim_all(&*store).await {
            settle(&*store, &batch, SUCCEEDED).await;
        }
        store.advance(Duration::from_secs(7_200)).await.unwrap();
        // Another process has the file while both requests arrive, so they meet in one transaction.
        let turn = std::fs::File::open(folder.path().join("q.db-lock")).unwrap();
        turn.lock().unwrap();
        let new = event("chat", "k").id(&format!("new{round}")).window(Window::none());
        let (first, append, sweep) = (
            store.append(append_request([event("other", "x").window(Window::none())])),
            store.append(append_request([new])),
            store.sweep(SweepRequest { reclaim: false, retention: Some(Duration::from_secs(3_600)) }),
        );
        let release = async {
            tokio::task::yield_now().await;
            turn.unlock().unwrap();
        };
        let (first, append, sweep, ()) = tokio::join!(first, append, sweep, release);
        first.unwrap();
        append.unwrap();
        sweep.unwrap();
        let Ok(Inspected::Verify(verified)) = store.inspect(Inspect::Verify).await else {
            panic!("verified")
        };
        assert_eq!(verified.problems, Vec::<String>::new(), "round {round}");
        for batch in claim_all(&*store).await {
            settle(&*store, &batch, SUCCEEDED).await;
        }
    }
}

/// Ten wake-ups by the poll, which is the backstop, would take twenty seconds.
#[tokio::test]
async fn another_handle_is_woken_at_once_and_not_by_the_poll() {
    use quell_store_tests::builders::{append_request, event};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    let (sender, sleeper) = (SqliteStore::open(&path).unwrap(), SqliteStore::open(&path).unwrap());
    let mut wakeups = sleeper.wakeups();
    let ten = async {
        for n in 0..10 {
            // Each in a queue of its own, so that each is earlier than what sleepers of that queue know.
            sender.append(append_request([event(&format!("q{n}"), "k")])).await.unwrap();
            wakeups.woken().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(10), ten).await.expect("datagrams wake at once");
}

/// After a run the queue's own time is the end of a lease that is over. An event that is due later than that, but earlier
/// than anything else, must still wake those who sleep.
#[tokio::test]
async fn an_event_due_after_a_lease_that_is_over_still_wakes() {
    use quell_core::window::Window;
    use quell_store_tests::builders::{SUCCEEDED, append_one, claim_all, event, settle};
    use std::time::Duration;
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("q.db")).unwrap();
    let rounds = async {
        for n in 0..10 {
            let queue = format!("q{n}");
            append_one(&*store, event(&queue, "k").window(Window::none())).await;
            for batch in claim_all(&*store).await {
                settle(&*store, &batch, SUCCEEDED).await;
            }
            assert!(claim_all(&*store).await.is_empty(), "now the claimer sleeps");
            let mut wakeups = store.wakeups();
            append_one(&*store, event(&queue, "k").window(Window::fixed(Duration::from_secs(3_600)))).await;
            wakeups.woken().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), rounds)
        .await
        .expect("woken by the append and not by the poll");
}

#[cfg(unix)]
#[test]
fn sockets_of_dead_processes_are_cleared_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    let wake = folder.path().join("q.db-wake");
    let store = SqliteStore::open(&path).unwrap();
    // A socket that is bound and closed without being removed is what a killed process leaves.
    drop(std::os::unix::net::UnixDatagram::bind(wake.join("dead")).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(store.advance(std::time::Duration::from_secs(1))).unwrap();
    drop(store);
    assert_eq!(std::fs::read_dir(&wake).unwrap().count(), 0, "nobody is left in the folder");
}

#[tokio::test]
async fn the_write_ahead_log_stays_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    let store = SqliteStore::open(&path).unwrap();
    let big = "x".repeat(200_000);
    let mut largest = 0;
    for n in 0..300 {
        let event = quell_store_tests::builders::event("bulk", &format!("k{}", n % 10))
            .payload(serde_json::json!(big));
        store.append(quell_store_tests::builders::append_request([event])).await.unwrap();
        largest = largest.max(std::fs::metadata(folder.path().join("q.db-wal")).map_or(0, |m| m.len()));
        // Readers come and go; none keeps an old snapshot open.
        if n % 20 == 0 {
            store.inspect(Inspect::Stats).await.unwrap();
        }
    }
    assert!(largest > 0, "the log was looked at");
    assert!(largest < 80 * 1024 * 1024, "60 MB of payloads left a log of {largest} bytes");
}

/// Time is the runtime's, so the ten seconds of patience pass at once; the lock is a real one.
#[tokio::test(start_paused = true)]
async fn a_call_that_never_gets_its_turn_is_refused_and_nothing_is_done() {
    use quell_store_tests::builders::{append_request, event};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    let store = SqliteStore::open(&path).unwrap();
    // As a process does that was stopped while it held the file.
    let turn = std::fs::File::open(folder.path().join("q.db-lock")).unwrap();
    turn.lock().unwrap();
    let refused = store.append(append_request([event("chat", "k").id("a")])).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unavailable, "{refused}");
    assert!(refused.detail.contains("nothing was done"), "{refused}");
    turn.unlock().unwrap();
    tokio::time::resume();
    let stored = store.append(append_request([event("chat", "k").id("a")])).await.unwrap();
    assert!(!stored.receipts[0].duplicate, "the refused call left nothing behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_stopped_in_its_turn_keeps_nobody_from_writing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    let store = SqliteStore::open(&path).unwrap();
    // As somebody who was stopped between its turn and its transaction would hold it.
    let turn = std::fs::File::open(folder.path().join("q.db-lock")).unwrap();
    turn.lock().unwrap();
    for id in ["a", "b"] {
        append_one(&*store, event("orders", "k").id(id)).await;
    }
    // Going on, it meets a file that is as it should be.
    turn.unlock().unwrap();
    append_one(&*store, event("orders", "k").id("c")).await;
    drop(store);
    let rows = Connection::open(&path).unwrap().query_row("SELECT count(*) FROM event", [], |row| row.get(0));
    assert_eq!(rows, Ok(3));
}
