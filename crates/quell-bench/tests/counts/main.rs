//! What each verb costs, by counts and not by seconds, against the figures in `counts.toml`.
//!
//! - The decisions alone (`memory`) run under callgrind, which counts instructions.
//! - SQLite runs under strace, which counts flushes, and tells its statements and transactions by itself. (Callgrind cannot run it: a library there talks to the kernel in its own way.)
//! - PostgreSQL and Redis run on servers of their own behind a proxy that counts statements and round trips; the server tells how many
//!   transactions wrote something and how many bytes of log came of it. With full durability each such transaction waits for one
//!   flush, as does each round trip of Redis that writes.
//!
//! When a verb costs more, or less, this fails and says what and by how much. Then
//! `QUELL_WRITE_REFERENCE=1 cargo test -p quell-bench --test counts` writes the file anew.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod callgrind;
mod figures;
mod strace;
mod wire;

use std::sync::Arc;

use figures::{Costs, judge};
use quell_bench::verbs::{Verb, Verbs};
use quell_test_servers::{Options, Postgres, Redis};
use wire::{Language, Wire};

#[test]
fn the_decisions_take_no_more_instructions_than_they_did() {
    let folder = tempfile::tempdir().unwrap();
    let counted = callgrind::count(folder.path());
    judge(
        "memory",
        counted
            .into_iter()
            .map(|(verb, each)| (verb, Costs::from([("instructions".to_owned(), each)])))
            .collect(),
    );
}

#[test]
fn sqlite_costs_no_more_than_it_did() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("counted.db").display());
    judge("sqlite", Verb::ALL.into_iter().zip(strace::count(&url, folder.path())).collect());
}

#[tokio::test]
async fn postgres_costs_no_more_than_it_did() {
    // Nobody but the store writes, and a page is logged whole only when that is asked for.
    let options = Options::default().setting("autovacuum", "off").setting("full_page_writes", "off");
    let server = Postgres::start(options).unwrap();
    let (client, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let (url, wire) = wire::count(&server.url(), server.port(), Language::Postgres).await;
    let now = async || {
        let ask = "SELECT txid_snapshot_xmax(txid_current_snapshot()), \
                   (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint";
        let row = client.query_one(ask, &[]).await.unwrap();
        Seen::of(&wire, [("commits", row.get::<_, i64>(0)), ("bytes", row.get(1))])
    };
    judge("postgres", count(&url, now).await);
}

#[tokio::test]
async fn redis_costs_no_more_than_it_did() {
    // A log that is written anew would become shorter.
    let options = Options::default().setting("auto-aof-rewrite-percentage", "0");
    let server = Redis::start_with(options).unwrap();
    let client = redis::Client::open(server.url()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let (url, wire) = wire::count(&server.url(), server.port(), Language::Redis).await;
    let now = async || {
        let mut connection = connection.clone();
        let info: String = redis::cmd("INFO")
            .arg("commandstats")
            .arg("persistence")
            .query_async(&mut connection)
            .await
            .unwrap();
        // Also those that a script calls; without our own question.
        let calls =
            info.lines().filter(|line| line.starts_with("cmdstat_") && !line.starts_with("cmdstat_info"));
        let calls =
            calls.filter_map(|line| line.split_once("calls=")?.1.split(',').next()?.parse::<i64>().ok());
        let bytes = info.lines().find_map(|line| line.strip_prefix("aof_current_size:"));
        Seen::of(&wire, [("commands", calls.sum()), ("bytes", bytes.unwrap().trim().parse().unwrap())])
    };
    judge("redis", count(&url, now).await);
}

/// The counters of one moment.
struct Seen(Vec<(&'static str, f64)>);

impl Seen {
    fn of(wire: &Arc<Wire>, told: [(&'static str, i64); 2]) -> Self {
        let mut seen =
            vec![("statements", wire.statements() as f64), ("round_trips", wire.round_trips() as f64)];
        seen.extend(told.map(|(what, value)| (what, value as f64)));
        Seen(seen)
    }
}

/// Each verb several times, and the least of each count: what happens beside the calls only adds to it.
async fn count(url: &str, now: impl AsyncFn() -> Seen) -> Vec<(Verb, Costs)> {
    let mut verbs = Verbs::open(url).await.unwrap();
    let mut counted = Vec::new();
    for verb in Verb::ALL {
        let mut least = Costs::new();
        for _ in 0..TIMES {
            verbs.prepare(verb).await.unwrap();
            let before = now().await;
            let units = verbs.perform(verb).await.unwrap() as f64;
            let after = now().await;
            for ((what, before), (_, after)) in before.0.iter().zip(&after.0) {
                let each = (after - before) / units;
                least.entry((*what).to_owned()).and_modify(|least| *least = least.min(each)).or_insert(each);
            }
        }
        counted.push((verb, least));
    }
    counted
}

const TIMES: usize = 5;

/// For how many units each verb was performed, by what the program says.
fn units<'l>(said: impl Iterator<Item = &'l str>) -> Vec<usize> {
    said.filter_map(|line| line.split('\t').next()?.parse().ok()).collect()
}
