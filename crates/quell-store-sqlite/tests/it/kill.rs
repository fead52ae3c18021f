//! Kill -9 of workers and appenders at random, several processes on one file.
//!
//! The loop and its checker are the suite's; here are the processes: this test binary starts itself again and runs one
//! test, `a_child_of_the_kill_loop`, which does a child's work when it is told to.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use quell_check::{Change, Thing};
use quell_core::store::Store;
use quell_store_sqlite::SqliteStore;
use quell_store_tests::crash::{KillLoop, child, kill_loop, log_path};

const FILE: &str = "QUELL_KILL_FILE";
const ROLE: &str = "QUELL_KILL_ROLE";
const LOG: &str = "QUELL_KILL_LOG";

#[test]
fn a_child_of_the_kill_loop() {
    let (Ok(file), Ok(role), Ok(log)) = (std::env::var(FILE), std::env::var(ROLE), std::env::var(LOG)) else {
        return; // Run as an ordinary test: there is nothing to do.
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(Path::new(&file)).expect("the file opens while others use it");
        child(&role, store, Path::new(&log)).await;
    });
}

#[test]
fn two_hundred_kills_lose_nothing_repeat_nothing_unexplained_and_keep_the_order() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("q.db");
    let logs = folder.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    drop(SqliteStore::open(&file).unwrap());
    let options = KillLoop {
        kills: number("QUELL_KILLS").unwrap_or(220),
        seed: number("QUELL_KILL_SEED").unwrap_or(1),
        appenders: 3,
        workers: 3,
        operators: 1,
        pause_max: Duration::from_millis(150),
        stopped: 10,
        logs: logs.clone(),
    };
    let spawn = |role: &str, index: usize| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::a_child_of_the_kill_loop", "--nocapture"])
            .env(FILE, &file)
            .env(ROLE, role)
            .env(LOG, log_path(&logs, role, index))
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap()
    };
    let open = async || SqliteStore::open(&file).unwrap() as Arc<dyn Store>;
    let summary = kill_loop(&options, spawn, || (), open);
    let sometimes = &summary.sometimes;
    println!("{} kills with seed {}: {summary:?}", options.kills, options.seed);
    assert!(summary.events as u64 > options.kills, "the senders hardly got to work: {summary:?}");
    for thing in [Thing::Redelivery, Thing::FiredMerge, Thing::HoldSuperseded, Thing::FiredRedrive] {
        assert!(sometimes.of(thing) > 0, "never seen: {}", thing.name());
    }
    for change in [Change::Reclaimed, Change::Interrupted, Change::Split, Change::Blocked, Change::Dropped] {
        assert!(sometimes.of_change(change) > 0, "never seen: {change:?}");
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}
