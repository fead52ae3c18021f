//! Kill -9 of workers and appenders at random, several processes on one server, which is killed itself halfway.
//!
//! The loop and its checker are the suite's; here are the processes: this test binary starts itself again and runs one
//! test, `a_child_of_the_kill_loop`, which does a child's work when it is told to.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use quell_check::Change;
use quell_core::store::Store;
use quell_store_postgres::PostgresStore;
use quell_store_tests::crash::{KillLoop, child, kill_loop, log_path};
use quell_test_servers::{Options, Postgres};

const URL: &str = "QUELL_KILL_URL";
const ROLE: &str = "QUELL_KILL_ROLE";
const LOG: &str = "QUELL_KILL_LOG";

#[test]
fn a_child_of_the_kill_loop() {
    let (Ok(url), Ok(role), Ok(log)) = (std::env::var(URL), std::env::var(ROLE), std::env::var(LOG)) else {
        return; // Run as an ordinary test: there is nothing to do.
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = loop {
            match PostgresStore::open_url(&url).await {
                Ok(store) => break store,
                Err(error) if error.is_temporary() => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(error) => panic!("{error}"),
            }
        };
        child(&role, store, Path::new(&log)).await;
    });
}

#[test]
fn kills_of_processes_and_of_the_server_lose_nothing_and_keep_the_order() {
    let mut server = Postgres::start(Options::default()).expect("PostgreSQL is installed");
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    let url = format!("{}?pool=4", server.url());
    let options = KillLoop {
        kills: number("QUELL_KILLS").unwrap_or(120),
        seed: number("QUELL_KILL_SEED").unwrap_or(1),
        appenders: 3,
        workers: 3,
        operators: 1,
        pause_max: Duration::from_millis(200),
        stopped: 10,
        logs: logs.clone(),
    };
    let spawn = |role: &str, index: usize| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::a_child_of_the_kill_loop", "--nocapture"])
            .env(URL, &url)
            .env(ROLE, role)
            .env(LOG, log_path(&logs, role, index))
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap()
    };
    let open = async || PostgresStore::open_url(&url).await.unwrap() as Arc<dyn Store>;
    let halfway = || {
        server.kill().expect("the server can be killed");
        server.start_again().expect("it starts again");
    };
    let summary = kill_loop(&options, spawn, halfway, open);
    println!("{} kills with seed {}: {summary:?}", options.kills, options.seed);
    assert!(summary.events as u64 > options.kills, "the senders hardly got to work: {summary:?}");
    for change in [Change::Reclaimed, Change::Interrupted, Change::Split] {
        assert!(summary.sometimes.of_change(change) > 0, "never seen: {change:?}");
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}
