//! Backup and restore (rules 32 and 44): nothing that was acknowledged is missing, and nothing that was handed out since
//! the backup is handed out again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quell_core::error::ErrorKind;
use quell_core::lifecycle::{Change, RunState};
use quell_core::limits;
use quell_core::store::Store;
use quell_core::window::Window;
use quell_store_sqlite::{SqliteStore, backup, restore};
use quell_store_tests::builders::{
    LEASE, SUCCEEDED, append_one, claim_all, claim_one, event, extend_request, lane, refused, seq_of, settle,
    try_settle,
};
use quell_store_tests::reads::{changes, event_place, health, lane_row, stats, trail_of, verify};
use rusqlite::Connection;

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place { folder: tempfile::tempdir().expect("a temporary folder can be made") }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).expect("the folder is there");
        entries.map(|entry| entry.expect("it can be listed").file_name().display().to_string()).collect()
    }
}

fn last_number(path: &Path) -> u64 {
    let connection = Connection::open(path).expect("the file opens");
    connection
        .query_row("SELECT last_number FROM meta", [], |row| row.get(0))
        .expect("a store has its numbers")
}

async fn assert_sound(store: &dyn Store) {
    assert_eq!(verify(store).await.problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_during_appends_has_everything_acknowledged_before_it_began() {
    let place = Place::new();
    let store = SqliteStore::open(&place.at("q.db")).unwrap();
    let (acknowledged, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let sender = {
        let (store, acknowledged, stop) = (store.clone(), acknowledged.clone(), stop.clone());
        tokio::spawn(async move {
            let mut n = 0;
            while !stop.load(Ordering::SeqCst) {
                n += 1;
                let text = "x".repeat(500);
                let new = event("chat", &format!("k{}", n % 50)).id(&n.to_string());
                append_one(&*store, new.payload(serde_json::json!(text))).await;
                acknowledged.store(n, Ordering::SeqCst);
            }
            n
        })
    };
    while acknowledged.load(Ordering::SeqCst) < 300 {
        tokio::task::yield_now().await;
    }
    for round in 0..3 {
        let before = acknowledged.load(Ordering::SeqCst);
        let (from, to) = (place.at("q.db"), place.at(&format!("{round}.backup")));
        let mut told = Vec::new();
        let (made, told) = tokio::task::spawn_blocking(move || {
            let made = backup(&from, &to, |done, total| told.push((done, total))).unwrap();
            (made, told)
        })
        .await
        .unwrap();
        assert_eq!(told.last().map(|(done, _)| *done), Some(made.bytes), "the last report is the whole");
        assert!(told.is_sorted() && told.iter().all(|(_, total)| *total == made.bytes), "{told:?}");
        let copy = place.at(&format!("{round}.db"));
        restore(&place.at(&format!("{round}.backup")), &copy, false).unwrap();
        let copy = SqliteStore::open(&copy).unwrap();
        for n in 1..=before {
            let key = lane("chat", &format!("k{}", n % 50));
            assert!(event_place(&*copy, &key, &n.to_string()).await.is_some(), "event {n} of {before}");
        }
        assert_sound(&*copy).await;
    }
    stop.store(true, Ordering::SeqCst);
    let sent = sender.await.unwrap();
    assert_eq!(stats(&*store).await[0].totals.accepted, sent, "and the store itself lost nothing");
}

#[tokio::test]
async fn after_a_restore_no_number_is_handed_out_again_and_no_lease_is_alive() {
    let place = Place::new();
    let store = SqliteStore::open(&place.at("q.db")).unwrap();
    append_one(&*store, event("chat", "held").id("a").window(Window::none())).await;
    let held = claim_one(&*store).await;
    append_one(&*store, event("chat", "waits").id("b").window(Window::none())).await;
    backup(&place.at("q.db"), &place.at("b"), |_, _| ()).unwrap();
    // What the lost future hands out.
    let mut numbers = vec![held.token, held.run_id.number];
    for n in 0..50 {
        let receipt =
            append_one(&*store, event("chat", &format!("later{n}")).id("a").window(Window::none())).await;
        numbers.push(seq_of(&receipt));
        for batch in claim_all(&*store).await {
            numbers.extend([batch.token, batch.run_id.number, batch.run_id.lane]);
            settle(&*store, &batch, SUCCEEDED).await;
        }
    }
    let highest = numbers.into_iter().max().unwrap();
    assert!(last_number(&place.at("q.db")) >= highest);
    drop(store);

    let restored = restore(&place.at("b"), &place.at("r.db"), false).unwrap();
    assert_eq!(restored.kept, None);
    let store = SqliteStore::open(&place.at("r.db")).unwrap();
    assert_eq!(stats(&*store).await[0].running, 0);
    assert_sound(&*store).await;
    // The holder of before is stale, whatever it says.
    let stale = store.extend(extend_request(&held, LEASE)).await;
    assert_eq!(stale.unwrap_err().kind, ErrorKind::LostLease);
    refused(try_settle(&*store, &held, SUCCEEDED).await, ErrorKind::LostLease);
    let row = lane_row(&*store, &lane("chat", "held")).await.unwrap();
    assert_eq!((row.state, row.worker), (Some(RunState::Pending), None));
    let told = changes(&trail_of(&*store, "chat", "held").await);
    assert_eq!(told, [Change::Claimed, Change::Restored]);

    let receipt = append_one(&*store, event("chat", "new").id("c").window(Window::none())).await;
    assert!(seq_of(&receipt) > highest, "a new event");
    let batches = claim_all(&*store).await;
    assert_eq!(batches.len(), 3, "what was held, what waited and what is new");
    for batch in &batches {
        assert!(batch.token > highest, "{batch:?}");
        assert_eq!(batch.attempt, 1, "the attempt of the lost future is given back");
        settle(&*store, batch, SUCCEEDED).await;
    }
    let again = batches.iter().find(|b| b.run_id == held.run_id);
    assert!(again.is_some_and(|b| b.events == held.events), "the same run, with the same events");
    assert_sound(&*store).await;

    let health = health(&*store).await;
    assert!(health.facts.iter().any(|(name, _)| name == "restored_at"), "{:?}", health.facts);
    assert!(health.warnings[0].text.contains("events accepted after the backup are not in it"), "{health:?}");
}

#[tokio::test]
async fn a_restored_file_jumps_once_however_often_it_is_opened() {
    let place = Place::new();
    let store = SqliteStore::open(&place.at("q.db")).unwrap();
    append_one(&*store, event("chat", "k")).await;
    let made = backup(&place.at("q.db"), &place.at("b"), |_, _| ()).unwrap();
    restore(&place.at("b"), &place.at("r.db"), false).unwrap();
    let (first, second) = (SqliteStore::open(&place.at("r.db")), SqliteStore::open(&place.at("r.db")));
    let jumped = last_number(&place.at("r.db"));
    assert!(jumped >= made.last_number + limits::EPOCH_JUMP);
    drop((first, second));
    drop(SqliteStore::open(&place.at("r.db")).unwrap());
    assert!(last_number(&place.at("r.db")) < jumped + limits::EPOCH_JUMP, "no second jump");
    // A backup of the restored store is a new one.
    backup(&place.at("r.db"), &place.at("b2"), |_, _| ()).unwrap();
    drop(SqliteStore::open(&place.at("b2")).unwrap());
    assert!(last_number(&place.at("b2")) >= jumped + limits::EPOCH_JUMP);
}

#[tokio::test]
async fn a_plain_copy_of_a_closed_store_is_that_store() {
    let place = Place::new();
    let store = SqliteStore::open(&place.at("q.db")).unwrap();
    append_one(&*store, event("chat", "k").window(Window::none())).await;
    let held = claim_one(&*store).await;
    drop(store);
    std::fs::copy(place.at("q.db"), place.at("copy.db")).unwrap();
    let copy = SqliteStore::open(&place.at("copy.db")).unwrap();
    assert_eq!(last_number(&place.at("copy.db")), last_number(&place.at("q.db")));
    settle(&*copy, &held, SUCCEEDED).await;
    assert!(health(&*copy).await.warnings.is_empty());
    let refused = restore(&place.at("copy.db"), &place.at("r.db"), false).unwrap_err();
    assert!(refused.detail.contains("not a backup"), "{refused}");
    assert!(!place.at("r.db").exists());
}

#[tokio::test]
async fn what_is_no_sound_backup_is_refused_and_nothing_is_put_in_place() {
    let place = Place::new();
    let store = SqliteStore::open(&place.at("q.db")).unwrap();
    for n in 0..200 {
        let text = "y".repeat(2_000);
        append_one(&*store, event("chat", &format!("k{n}")).payload(serde_json::json!(text))).await;
    }
    backup(&place.at("q.db"), &place.at("b"), |_, _| ()).unwrap();
    let whole = std::fs::read(place.at("b")).unwrap();
    let damage = |name: &str, bytes: &[u8]| {
        std::fs::write(place.at(name), bytes).unwrap();
        restore(&place.at(name), &place.at("r.db"), true).unwrap_err()
    };
    let mut torn = whole.clone();
    let middle = torn.len() / 2 / 8_192 * 8_192;
    torn[middle..middle + 8_192].fill(0xa5);
    assert_eq!(damage("torn", &torn).kind, ErrorKind::Corrupt);
    damage("short", &whole[..whole.len() / 2]);
    damage("notes", "these are notes and no database\n".repeat(500).as_bytes());
    damage("empty", b"");
    let missing = restore(&place.at("nowhere"), &place.at("r.db"), false).unwrap_err();
    assert!(missing.detail.contains("is not a file"), "{missing}");
    Connection::open(place.at("other.db")).unwrap().execute_batch("CREATE TABLE notes (text)").unwrap();
    let other = restore(&place.at("other.db"), &place.at("r.db"), false).unwrap_err();
    assert!(other.detail.contains("not a Quell store"), "{other}");
    assert!(backup(&place.at("other.db"), &place.at("b2"), |_, _| ()).is_err());
    let left: Vec<String> =
        place.names().into_iter().filter(|n| n.contains("part") || n.starts_with("r.db")).collect();
    assert_eq!(left, Vec::<String>::new());
}

#[tokio::test]
async fn nothing_that_exists_is_overwritten_and_a_replaced_store_is_kept() {
    let place = Place::new();
    let store = SqliteStore::open(&place.at("q.db")).unwrap();
    append_one(&*store, event("chat", "k").id("old")).await;
    backup(&place.at("q.db"), &place.at("b"), |_, _| ()).unwrap();
    append_one(&*store, event("chat", "k").id("newer")).await;
    let before = std::fs::read(place.at("b")).unwrap();
    assert!(backup(&place.at("q.db"), &place.at("b"), |_, _| ()).unwrap_err().detail.contains("exists"));
    assert_eq!(std::fs::read(place.at("b")).unwrap(), before);
    assert!(restore(&place.at("b"), &place.at("b"), true).is_err(), "a backup does not replace itself");
    let refused = restore(&place.at("b"), &place.at("q.db"), false).unwrap_err();
    assert!(refused.detail.contains("force"), "{refused}");
    let refused = restore(&place.at("b"), &place.at("q.db"), true).unwrap_err();
    assert!(refused.detail.contains("in use"), "{refused}");
    append_one(&*store, event("chat", "k").id("still")).await;
    drop(store);

    let restored = restore(&place.at("b"), &place.at("q.db"), true).unwrap();
    let store = SqliteStore::open(&place.at("q.db")).unwrap();
    let has =
        async |store: &dyn Store, event: &str| event_place(store, &lane("chat", "k"), event).await.is_some();
    assert!(has(&*store, "old").await && !has(&*store, "newer").await);
    let kept = SqliteStore::open(&restored.kept.unwrap()).unwrap();
    assert!(has(&*kept, "old").await && has(&*kept, "newer").await && has(&*kept, "still").await);
    assert_sound(&*kept).await;
}

/// A log beside a file belongs to that very file: beside another one SQLite would play it in.
#[tokio::test]
async fn a_log_that_was_left_behind_is_moved_away_before_the_restore() {
    let place = Place::new();
    let store = SqliteStore::open(&place.at("q.db")).unwrap();
    append_one(&*store, event("chat", "k").id("a")).await;
    backup(&place.at("q.db"), &place.at("b"), |_, _| ()).unwrap();
    append_one(&*store, event("chat", "k").id("b")).await;
    std::fs::copy(place.at("q.db-wal"), place.at("r.db-wal")).unwrap();
    assert!(restore(&place.at("b"), &place.at("r.db"), false).is_err());
    let restored = restore(&place.at("b"), &place.at("r.db"), true).unwrap();
    assert!(restored.kept.is_some());
    let restored = SqliteStore::open(&place.at("r.db")).unwrap();
    assert!(event_place(&*restored, &lane("chat", "k"), "a").await.is_some());
    assert_sound(&*restored).await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_backup_is_one_file_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let store = SqliteStore::open(&place.at("q.db")).unwrap();
    append_one(&*store, event("chat", "k")).await;
    std::fs::create_dir(place.at("backups")).unwrap();
    backup(&place.at("q.db"), &place.at("backups").join("b"), |_, _| ()).unwrap();
    let files: Vec<_> = std::fs::read_dir(place.at("backups")).unwrap().map(|e| e.unwrap()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(files[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
}
