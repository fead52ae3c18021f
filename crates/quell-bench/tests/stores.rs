//! Every workload with tiny numbers on every store: figures come, and nothing is left behind.
//!
//! `processes`, `http` and `chat` start programs and are tested with the real one, in `quell-cli`.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::future::pending;
use std::time::Duration;

use quell_bench::{Measured, Options, Place, Sizes};
use quell_test_servers::{postgres_url, redis_url};

/// One at a time on the servers: what is left behind is counted there.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn tiny() -> Sizes {
    Sizes {
        raw_commits: 3,
        jobs: 640,
        keyed_keys: 10,
        keyed_events: 50,
        burst_keys: 20,
        burst_rounds: 3,
        starts: 5,
        timers: 100,
        waiting: 1_500,
        waiting_cycle: 200,
        process_lanes: 100,
        held: Duration::from_millis(600),
        bloat_cycles: 2,
        bloat_lanes: 600,
        http_lanes: 1_000,
        hooks: 3,
        transcript_bytes: 200_000,
        customers: 20,
        siege: Duration::from_secs(2),
        hot: Duration::from_secs(2),
        hot_rate: 500,
        growth_events: 1_280,
        history: 600,
        costs: 1_280,
    }
}

fn options(place: Place, workloads: &[&str]) -> Options {
    let workloads = workloads.iter().map(|&name| name.to_owned()).collect();
    Options { place, workloads, sizes: tiny(), worker: None, server: None }
}

async fn measure(place: Place) -> (Measured, Vec<String>) {
    let mut said = Vec::new();
    let measured = quell_bench::run(&options(place, &[]), pending(), |line| said.push(line.to_owned())).await;
    (measured.unwrap(), said)
}

/// Each workload has figures, or a line that says why it has none.
fn check(measured: &Measured, said: &[String]) {
    for name in quell_bench::WORKLOADS {
        let figures = measured.figures.iter().filter(|figure| figure.workload == name).count();
        let left_out = said.iter().any(|line| line.starts_with(&format!("{name}: left out")));
        assert_eq!(figures == 0, left_out, "{name}: {said:?}");
    }
    for figure in &measured.figures {
        assert!(figure.value.is_finite() && figure.value >= 0.0, "{figure:?}");
    }
    let exact = |what: &str| measured.figures.iter().find(|figure| figure.what == what).unwrap().value;
    assert_eq!((exact("runs"), exact("events delivered")), (20.0, 60.0));
    assert_eq!(exact("overlaps and order violations"), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_is_measured_and_its_folder_is_empty_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let (measured, said) = measure(Place::Folder(folder.path().to_path_buf())).await;
    check(&measured, &said);
    assert!(measured.conditions.contains("synchronous = FULL"), "{}", measured.conditions);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_is_measured_and_no_schema_is_left() {
    let _alone = ALONE.lock().await;
    let (measured, said) = measure(Place::of(&postgres_url()).unwrap()).await;
    check(&measured, &said);
    assert!(measured.conditions.contains("synchronous_commit = on"), "{}", measured.conditions);
    assert_eq!(schemas().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_measured_and_no_key_is_left() {
    let _alone = ALONE.lock().await;
    let (measured, said) = measure(Place::of(&redis_url()).unwrap()).await;
    check(&measured, &said);
    assert!(measured.conditions.contains("appendfsync = always"), "{}", measured.conditions);
    assert_eq!(keys().await, Vec::<String>::new());
}

/// What takes minutes unless it is made small, on every store.
#[tokio::test(flavor = "multi_thread")]
async fn a_hot_key_and_growth_are_measured_when_they_are_asked_for() {
    let _alone = ALONE.lock().await;
    let folder = tempfile::tempdir().unwrap();
    for place in [
        Place::Folder(folder.path().to_path_buf()),
        Place::of(&postgres_url()).unwrap(),
        Place::of(&redis_url()).unwrap(),
    ] {
        let options = options(place, &["hot", "growth", "costs"]);
        let measured = quell_bench::run(&options, pending(), |_| {}).await.unwrap();
        let of = |what: &str| {
            let found = measured.figures.iter().find(|figure| figure.what == what);
            found.unwrap_or_else(|| panic!("no {what}: {measured:?}")).value
        };
        // Loss and disorder would have been an error. Nearly all of the lane was there at once, and it is emptied in large batches.
        assert!(of("hot key: events in its lane at the most") >= 250.0, "{measured:?}");
        assert!(of("hot key: events of one run") >= 2.0, "{measured:?}");
        assert!(of("other keys beside a hot lane that is emptied: handled") > 0.0);
        assert!(of("claim and settle, lanes of 1,000") > 0.0);
        assert!(of("log_burst_bytes") + of("log_event_bytes") > 0.0, "{measured:?}");
        assert!(of("append_ms") > 0.0, "{measured:?}");
        let sizes: Vec<f64> = measured.figures.iter().filter_map(|figure| figure.at).collect();
        assert!(sizes.contains(&1_500.0) && sizes.contains(&600.0), "{sizes:?}");
        assert!(quell_bench::curves(&measured.figures).iter().any(|(name, _)| name == "growth-lanes"));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    assert_eq!((schemas().await, keys().await), (0, Vec::new()));
}

#[tokio::test]
async fn a_workload_that_is_stopped_leaves_nothing_behind() {
    let _alone = ALONE.lock().await;
    let folder = tempfile::tempdir().unwrap();
    for place in [
        Place::Folder(folder.path().to_path_buf()),
        Place::of(&postgres_url()).unwrap(),
        Place::of(&redis_url()).unwrap(),
    ] {
        // Stopped as soon as it has said that it works.
        let (began, begins) = tokio::sync::oneshot::channel::<()>();
        let mut began = Some(began);
        let stop = async { begins.await.unwrap() };
        let tell = |line: &str| {
            if line.starts_with("timer")
                && let Some(began) = began.take()
            {
                // Nobody waits for it when the workload has ended by itself; then the answer below is wrong.
                let _ = began.send(());
            }
        };
        let error = quell_bench::run(&options(place, &["timer"]), stop, tell).await.unwrap_err();
        assert!(error.to_string().contains("stopped in the middle of timer"), "{error:#}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    assert_eq!((schemas().await, keys().await), (0, Vec::new()));
}

#[tokio::test]
async fn an_unknown_workload_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(Place::Folder(folder.path().to_path_buf()), &["everything"]);
    let error = quell_bench::run(&options, pending(), |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("choose from jobs, keyed"), "{error}");
}

async fn schemas() -> i64 {
    let (client, connection) = tokio_postgres::connect(&postgres_url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let count = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'quell_bench_%'";
    client.query_one(count, &[]).await.unwrap().get(0)
}

async fn keys() -> Vec<String> {
    let client = redis::Client::open(redis_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd("KEYS").arg("quell-bench-*").query_async(&mut connection).await.unwrap()
}
