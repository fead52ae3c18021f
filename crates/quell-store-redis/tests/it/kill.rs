//! Real processes on one Redis store, killed and stopped at random, while the server itself is killed and started again.
//!
//! The loop and its checker are the suite's; here are the processes: this test binary starts itself again and runs one
//! test, `a_child_of_the_kill_loop`, which does a child's work when it is told to.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use quell_check::{Change, Thing};
use quell_core::store::Store;
use quell_store_redis::{Options, RedisStore};
use quell_store_tests::crash::{KillLoop, child, kill_loop, log_path};
use quell_test_servers::Redis;

const URL: &str = "QUELL_KILL_URL";
const ROLE: &str = "QUELL_KILL_ROLE";
const LOG: &str = "QUELL_KILL_LOG";

/// A server that is just being started again is waited for.
async fn open(url: &str) -> Arc<RedisStore> {
    for _ in 0..100 {
        match RedisStore::open(Options::parse(url).expect("a URL of ours")).await {
            Ok(store) => return store,
            Err(error) if error.is_temporary() => tokio::time::sleep(Duration::from_millis(100)).await,
            Err(error) => panic!("the store cannot be opened: {error}"),
        }
    }
    panic!("the store could not be opened for ten seconds");
}

#[test]
fn a_child_of_the_kill_loop() {
    let (Ok(url), Ok(role), Ok(log)) = (std::env::var(URL), std::env::var(ROLE), std::env::var(LOG)) else {
        return; // Run as an ordinary test: there is nothing to do.
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { child(&role, open(&url).await, Path::new(&log)).await });
}

#[test]
fn processes_are_killed_and_stopped_and_the_server_dies_once_and_nothing_is_lost() {
    let mut server = Redis::start().expect("a server of its own can be started");
    let url = server.url();
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().to_owned();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async { drop(open(&url).await) });
    let options = KillLoop {
        kills: number("QUELL_KILLS").unwrap_or(60),
        seed: number("QUELL_KILL_SEED").unwrap_or(1),
        appenders: 2,
        workers: 3,
        operators: 1,
        pause_max: Duration::from_millis(250),
        stopped: 25,
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
    let halfway = || {
        server.kill().expect("a server can be killed");
        server.start_again().expect("it comes back with its data");
    };
    let summary = kill_loop(&options, spawn, halfway, async || open(&url).await as Arc<dyn Store>);
    println!("{} kills with seed {}: {summary:?}", options.kills, options.seed);
    assert!(summary.events as u64 > options.kills, "the senders hardly got to work: {summary:?}");
    assert!(summary.sometimes.of(Thing::Redelivery) > 0, "nobody took over from the dead: {summary:?}");
    assert!(summary.sometimes.of_change(Change::Reclaimed) > 0, "no lease ran out: {summary:?}");
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}
