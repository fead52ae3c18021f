//! apalis on PostgreSQL or SQLite, as a driver of `cargo xtask compare`: `quell-peer-apalis SHAPE ADDRESS SIZES`.
//!
//! An address that begins with `postgres:` is a server, anything else a folder for a SQLite file. It has no order per key and no
//! debounce, so `jobs` is the only shape. Its SQLite storage turns `synchronous` off while it sets up; here every connection that is
//! measured has it at FULL, as the others do.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use apalis::prelude::*;
use apalis_postgres::PostgresStorage;
use apalis_sqlite::SqliteStorage;
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Job {
    n: usize,
    text: String,
}

#[derive(Deserialize)]
struct Sizes {
    jobs: usize,
    one_ms: u64,
    callers: usize,
    callers_ms: u64,
    bulk: usize,
    drain_ms: u64,
}

#[derive(Clone, Default)]
struct Seen {
    handled: Arc<AtomicUsize>,
    numbers: Arc<Mutex<HashSet<usize>>>,
}

async fn handle(job: Job, seen: Data<Seen>) -> Result<(), BoxDynError> {
    seen.numbers.lock().expect("no handler panics").insert(job.n);
    seen.handled.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

fn job(n: usize) -> Job {
    Job { n, text: "a short message as people send it, long enough to be typical of a chat".to_owned() }
}

fn rate(count: usize, since: Instant) -> f64 {
    count as f64 / since.elapsed().as_secs_f64()
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, shape, address, sizes] = arguments.as_slice() else { return Err("SHAPE ADDRESS SIZES".into()) };
    if shape != "jobs" {
        return Err(format!("apalis has no shape {shape}").into());
    }
    let sizes: Sizes = serde_json::from_str(sizes)?;
    let figures = if address.starts_with("postgres:") { postgres(address, &sizes).await? } else { sqlite(address, &sizes).await? };
    let versions = BTreeMap::from([("apalis", "1.0.0")]);
    println!("{}", serde_json::json!({ "figures": figures, "versions": versions }));
    std::process::exit(0)
}

/// The appends and the drain, which differ in nothing but the type of the storage.
macro_rules! jobs {
    ($storage:expr, $worker:expr, $sizes:expr) => {{
        let (storage, sizes): (_, &Sizes) = ($storage, $sizes);
        let mut figures = BTreeMap::new();

        let (since, mut count) = (Instant::now(), 0);
        let mut single = storage.clone();
        while count < sizes.jobs / 4 && since.elapsed() < Duration::from_millis(sizes.one_ms) {
            single.push(job(count)).await?;
            count += 1;
        }
        figures.insert("one", rate(count, since));

        let (since, next) = (Instant::now(), Arc::new(AtomicUsize::new(count)));
        let (end, limit) = (count + sizes.jobs / 4, Duration::from_millis(sizes.callers_ms));
        let callers: Vec<_> = (0..sizes.callers)
            .map(|_| {
                // A storage made for each caller: clones share one buffer.
                let (mut storage, next) = ($storage, next.clone());
                tokio::spawn(async move {
                    let mut sent = 0;
                    while since.elapsed() < limit {
                        let n = next.fetch_add(1, Ordering::SeqCst);
                        if n >= end {
                            break;
                        }
                        storage.push(job(n)).await?;
                        sent += 1;
                    }
                    Ok::<usize, Failure>(sent)
                })
            })
            .collect();
        let mut sent = 0;
        for caller in callers {
            sent += caller.await??;
        }
        figures.insert("callers", rate(sent, since));
        count += sent;

        let (since, first) = (Instant::now(), count);
        while count < sizes.jobs {
            let end = (count + sizes.bulk).min(sizes.jobs);
            // Numbers that no caller took: those may have gaps at their end.
            let numbers = (count..end).map(|n| job(sizes.jobs + n)).collect();
            single.push_bulk(numbers).await?;
            count = end;
        }
        figures.insert("bulk", rate(count - first, since));

        let seen = Seen::default();
        let (since, limit) = (Instant::now(), Duration::from_millis(sizes.drain_ms));
        let all = async {
            while seen.handled.load(Ordering::SeqCst) < count && since.elapsed() < limit {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Ok(())
        };
        // The worker itself stays in this task; what it handles is spawned.
        tokio::select! {
            ended = $worker(seen.clone()) => ended,
            ended = all => ended,
        }?;
        let handled = seen.handled.load(Ordering::SeqCst);
        figures.insert("drain", rate(handled, since));
        figures.insert("drained", handled as f64);
        figures.insert("distinct", seen.numbers.lock().expect("no handler panics").len() as f64);
        figures.insert("appended", count as f64);
        Ok(figures)
    }};
}

async fn postgres(address: &str, sizes: &Sizes) -> Result<BTreeMap<&'static str, f64>, Failure> {
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(25).connect(address).await?;
    PostgresStorage::setup(&pool).await?;
    let storage = || {
        let config = apalis_postgres::Config::default().queue("bench").batch_size(500).persist_results(true);
        PostgresStorage::<Job>::new(&pool).with_config(config)
    };
    let worker = |seen: Seen| {
        let polled = storage().poll_with_interval(Duration::from_millis(5));
        let worker = WorkerBuilder::new("worker").backend(polled).data(seen).parallelize(tokio::spawn).build(handle);
        async move { worker.run().await }
    };
    jobs!(storage(), worker, sizes)
}

async fn sqlite(address: &str, sizes: &Sizes) -> Result<BTreeMap<&'static str, f64>, Failure> {
    let options = SqliteConnectOptions::new()
        .filename(format!("{address}/apalis.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(30));
    let setup = SqlitePoolOptions::new().max_connections(1).connect_with(options.clone()).await?;
    SqliteStorage::setup(&setup).await?;
    // Its connection has `synchronous` off from now on.
    setup.close().await;
    let pool = SqlitePoolOptions::new().max_connections(4).connect_with(options).await?;
    let storage = || {
        let config = apalis_sqlite::Config::default().queue("bench").batch_size(500);
        SqliteStorage::<Job>::new(&pool).with_config(config)
    };
    let worker = |seen: Seen| {
        let polled = storage().poll_with_interval(Duration::from_millis(5));
        let worker = WorkerBuilder::new("worker").backend(polled).data(seen).parallelize(tokio::spawn).build(handle);
        async move { worker.run().await }
    };
    jobs!(storage(), worker, sizes)
}
