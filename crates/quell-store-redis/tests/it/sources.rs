//! Sources on Redis: what lanes that wait cost, limits that several processes keep, and stores that move or are old.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quell_core::clock::Timestamp;
use quell_core::copy::{Portable, Row};
use quell_core::limits;
use quell_core::source::SourceRules;
use quell_core::store::{ClaimRequest, SourceAction, SourceAnswer, Store};
use quell_store_redis::{Options, RedisStore};
use quell_store_tests::builders::{
    FAILED, SUCCEEDED, append, append_one, ask, breaker, claim, claim_all, claim_one, claim_request, declare,
    event, fault, rate, settle, settle_saying, worker,
};
use quell_store_tests::reads::{source_row, totals, verify};
use quell_test_servers::Redis;
use serde_json::json;

use crate::contract::fresh_prefix;

fn options() -> Options {
    let options = Options::parse(&quell_test_servers::redis_url()).expect("the server's address is one");
    options.with_prefix(&fresh_prefix()).expect("a prefix of letters and digits")
}

async fn opened(options: &Options) -> Arc<RedisStore> {
    RedisStore::open(options.clone()).await.expect("the store opens")
}

async fn connection(url: &str) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(url).expect("a good address");
    client.get_multiplexed_async_connection().await.expect("the server answers")
}

/// One section of what the server tells of itself.
async fn info(connection: &mut redis::aio::MultiplexedConnection, section: &str) -> String {
    redis::cmd("INFO").arg(section).query_async(connection).await.expect("the server tells")
}

/// How many commands the server has run.
async fn commands(connection: &mut redis::aio::MultiplexedConnection) -> u64 {
    let stats = info(connection, "commandstats").await;
    let calls = stats.lines().filter_map(|line| line.split_once(":calls=")?.1.split(',').next());
    calls.filter_map(|calls| calls.parse::<u64>().ok()).sum()
}

/// How many bytes the server has sent.
async fn sent(connection: &mut redis::aio::MultiplexedConnection) -> u64 {
    let stats = info(connection, "stats").await;
    let sent =
        stats.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:")?.trim().parse().ok());
    sent.expect("a server counts what it sends")
}

/// What one claim of twenty lanes costs: commands and bytes of answers, the fewest of several tries, because blocks of
/// numbers and the bell come in between.
async fn cost_of_a_claim(store: &dyn Store, url: &str) -> (u64, u64) {
    let mut connection = connection(url).await;
    let mut fewest = (u64::MAX, u64::MAX);
    for round in 0..8 {
        // Keys of their own: a lane that is used again has events outside of its pocket in the end, which cost a look.
        append(store, (0..20).map(|n| event("q", &format!("{}.{round}.{n}", fresh_prefix())))).await;
        let request = ClaimRequest { max: 20, ..claim_request(&worker("w")) };
        let (run, said) = (commands(&mut connection).await, sent(&mut connection).await);
        let batches = claim(store, request).await.batches;
        let said = sent(&mut connection).await - said;
        let run = commands(&mut connection).await - run;
        assert_eq!(batches.len(), 20);
        fewest = (fewest.0.min(run), fewest.1.min(said));
        for batch in &batches {
            settle(store, batch, SUCCEEDED).await;
        }
    }
    fewest
}

#[tokio::test]
async fn ten_thousand_lanes_behind_an_open_breaker_cost_a_claim_of_others_one_row_of_their_source() {
    let server = Redis::start().expect("a server of its own can be started");
    let store = &*opened(&Options::parse(&server.url()).unwrap()).await;
    declare(store, "shop", breaker(1)).await;
    append_one(store, event("q", "first").queue_source("shop")).await;
    let batch = claim_one(store).await;
    settle_saying(store, &batch, SUCCEEDED, fault()).await;
    let (commands, bytes) = cost_of_a_claim(store, &server.url()).await;
    append_one(store, event("q", "held").queue_source("shop")).await;
    let (commands_one, bytes_one) = cost_of_a_claim(store, &server.url()).await;
    for part in 0..10 {
        let held = (0..1_000).map(|n| event("q", &format!("held{part}.{n}")).queue_source("shop"));
        append(store, held).await;
    }
    assert_eq!(source_row(store, "", "shop").await.waiting, 10_001);
    let (commands_all, bytes_all) = cost_of_a_claim(store, &server.url()).await;
    assert!(commands_all <= commands_one, "{commands_all} commands, with one such lane {commands_one}");
    // The row of the source is what says that its lanes are held.
    assert!(commands_one <= commands + 1, "{commands_one} commands, without such lanes {commands}");
    // Ten thousand entries would be a hundred thousand bytes; rows grow by a few as time goes on.
    assert!(bytes_all <= bytes_one + 500, "{bytes_all} bytes, with one such lane {bytes_one}");
    assert!(bytes_one <= bytes + 1_000, "{bytes_one} bytes, without such lanes {bytes}");
}

/// Claims and settles until the time is over; says when each lane was handed out.
async fn claim_for(store: Arc<RedisStore>, name: &str, time: Duration) -> Vec<Timestamp> {
    let until = tokio::time::Instant::now() + time;
    claim_while(store, name, || tokio::time::Instant::now() < until).await
}

async fn claim_while(store: Arc<RedisStore>, name: &str, goes_on: impl Fn() -> bool) -> Vec<Timestamp> {
    let name = worker(name);
    let mut taken = Vec::new();
    while goes_on() {
        let request = ClaimRequest { max: 20, ..claim_request(&name) };
        let batches = claim(&*store, request).await.batches;
        taken.extend(batches.iter().map(|batch| batch.claimed_at));
        let ends = batches.iter().map(|batch| settle(&*store, batch, SUCCEEDED));
        futures_util::future::join_all(ends).await;
    }
    taken
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_that_claim_at_once_keep_the_limit_in_every_window() {
    const BURST: u32 = 10;
    const PER_SECOND: u32 = 100;
    let options = options();
    let (one, other) = (opened(&options).await, opened(&options).await);
    let began = tokio::time::Instant::now();
    declare(&*one, "shop", rate(PER_SECOND * 60, BURST)).await;
    append(&*one, (0..600).map(|n| event("q", &format!("k{n}")).queue_source("shop"))).await;
    let time = Duration::from_secs(2);
    let tasks = [(&one, "a"), (&one, "b"), (&other, "c"), (&other, "d")]
        .map(|(store, name)| tokio::spawn(claim_for(store.clone(), name, time)));
    let mut taken: Vec<i64> = Vec::new();
    for task in tasks {
        taken.extend(task.await.expect("no task panics").iter().map(|at| at.as_millis()));
    }
    taken.sort_unstable();
    let most = |millis: u128| u128::from(BURST) + u128::from(PER_SECOND) * millis / 1_000;
    let (count, window) = (taken.len() as u128, began.elapsed().as_millis());
    assert!(count <= most(window + 1), "{count} within {window} ms, the whole time");
    for (first, from) in taken.iter().enumerate() {
        for (last, upto) in taken.iter().enumerate().skip(first) {
            // A claim is told the time at which it began. It may have waited for its turn since, less than this.
            let window = u128::try_from(upto - from).expect("they are sorted") + 150;
            let (count, most) = ((last - first + 1) as u128, most(window));
            assert!(count <= most, "{count} within {window} ms");
        }
    }
    assert!(taken.len() > 100, "{} were handed out in two seconds: nobody starves", taken.len());
    let verified = verify(&*one).await;
    assert!(verified.problems.is_empty(), "{:?}", verified.problems);
}

/// How long claims and settles of two stores on one source take, while an operator changes its rules.
async fn drained(rules: SourceRules) -> Duration {
    let options = options();
    let (one, other) = (opened(&options).await, opened(&options).await);
    declare(&*one, "shop", rules).await;
    append(&*one, (0..1_000).map(|n| event("q", &format!("k{n}")).queue_source("shop"))).await;
    let began = tokio::time::Instant::now();
    let over = Arc::new(AtomicBool::new(false));
    let tasks = [(&one, "a"), (&one, "b"), (&other, "c"), (&other, "d")].map(|(store, name)| {
        let (store, over) = (store.clone(), over.clone());
        tokio::spawn(async move { claim_while(store, name, || !over.load(Ordering::SeqCst)).await })
    });
    for failures in 4..8 {
        declare(&*other, "shop", SourceRules { failures, ..rules }).await;
    }
    let mut last = 0;
    while last < 1_000 {
        assert!(began.elapsed() < Duration::from_secs(120), "{last} of 1000 have succeeded");
        tokio::time::sleep(Duration::from_millis(20)).await;
        last = totals(&*one, "q").await.succeeded;
    }
    let took = began.elapsed();
    over.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.expect("no task panics");
    }
    let row = source_row(&*one, "", "shop").await;
    assert!(row.last_success_at.is_some() && row.failure_streak == 0 && row.waiting == 0, "{row:?}");
    assert_eq!(row.rules.failures, 7);
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_that_claim_and_settle_on_one_source_all_come_through() {
    for rules in [breaker(3), rate(limits::SOURCE_PER_MINUTE_MAX, limits::SOURCE_BURST_MAX)] {
        let took = drained(rules).await;
        println!("{:?} per minute: a thousand lanes in {took:?}", rules.per_minute);
    }
}

#[tokio::test]
async fn sources_their_answers_and_what_waits_for_them_travel_with_a_copy() {
    let (from, to) = (opened(&options()).await, opened(&options()).await);
    declare(&*from, "shop", rate(1, 1)).await;
    declare(&*to, "other", rate(1, 1)).await;
    append(&*from, ["a", "b"].map(|key| event("q", key).queue_source("shop"))).await;
    append_one(&*from, event("q", "c").of("acme").source("shop")).await;
    let batch = claim_all(&*from).await.into_iter().find(|batch| batch.lane.tenant.is_none());
    let batch = batch.expect("one lane without a tenant is handed out");
    let keep = SourceAction::Keep { key: "k".into(), value: json!({ "price": 7 }), ttl: None };
    ask(&*from, &batch, keep).await;
    from.seal(Some("a test")).await.unwrap();
    let (mut after, mut answers) = (None, 0);
    loop {
        let page = from.cached(after, 1).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some((last.source, last.key.clone()));
        answers += page.len();
        to.put(page.into_iter().map(Row::Cached).collect()).await.unwrap();
    }
    assert_eq!(answers, 1);
    for row in from.lanes(0, 100).await.unwrap() {
        let lane = row.lane.id;
        to.put(vec![Row::Lane(row)]).await.unwrap();
        let events = from.events(lane, 0, 100).await.unwrap();
        to.put(events.into_iter().map(|kept| Row::Event(lane, kept)).collect()).await.unwrap();
    }
    let frame = from.frame().await.unwrap();
    to.take_frame(&frame).await.unwrap();
    let there = to.frame().await.unwrap();
    assert_eq!((&frame.declarations, &frame.sources), (&there.declarations, &there.sources));
    let verified = verify(&*to).await;
    assert!(verified.problems.is_empty(), "{:?}", verified.problems);
    let rows = [source_row(&*from, "", "shop").await, source_row(&*to, "", "shop").await];
    assert_eq!([(rows[0].waiting, rows[0].cached), (rows[1].waiting, rows[1].cached)], [(1, 1), (1, 1)]);
    let recall = SourceAction::Recall { key: "k".into(), ttl: None };
    assert_eq!(ask(&*to, &batch, recall).await, SourceAnswer::Hit(json!({ "price": 7 })));
    settle_saying(&*to, &batch, FAILED, fault()).await;
    assert_eq!(source_row(&*to, "", "shop").await.failure_streak, 1);
}

/// The row of a lane as it was written before there were sources: the last field of an open run and the last three of a
/// current one are missing.
fn as_before(row: &[u8]) -> Vec<u8> {
    let key = usize::from(u16::from_be_bytes([row[42], row[43]]));
    // Behind the key come the size of the lane, which is newer, and the version of the form; behind the lane its pocket.
    let (key, body) = row.split_at(44 + key);
    let (size, body) = body.split_first_chunk().expect("four bytes");
    let (state, pocket) = body.split_at(usize::try_from(u32::from_be_bytes(*size)).expect("it is small"));
    // That it was claimed is all that is lost.
    assert!(pocket.is_empty() || (pocket.len() == 30 && pocket[0] == b't'), "{pocket:?}");
    let front = [key, &state[..1]].concat();
    let state = &state[1..];
    let mut lane: serde_json::Value = rmp_serde::from_slice(state).expect("a lane is a list of its fields");
    for (field, newer) in [(2, 1), (3, 3)] {
        if let Some(run) = lane[field].as_array_mut() {
            run.truncate(run.len() - newer);
        }
    }
    let state = rmp_serde::to_vec(&lane).expect("it has a form");
    assert!(lane.is_array() && state.len() < row.len() - front.len());
    let mut old = [front, state].concat();
    // Of the flags only the first was there.
    old[24] &= 1;
    old
}

#[tokio::test]
async fn a_store_of_the_version_before_opens_works_and_is_left_alone_by_that_version_from_then_on() {
    let server = Redis::start().expect("a server of its own can be started");
    let options = Options::parse(&server.url()).unwrap();
    let batch = {
        let store = opened(&options).await;
        // Events too large for a pocket are where they always were.
        let large = |key: &str| event("q", key).payload(json!("x".repeat(600)));
        append_one(&*store, large("running")).await;
        let batch = claim_one(&*store).await;
        append(&*store, ["running", "waiting"].map(large)).await;
        batch
    };
    let mut connection = connection(&server.url()).await;
    let lanes: Vec<String> =
        redis::cmd("KEYS").arg("quell:{p0}:lane:*").query_async(&mut connection).await.expect("it is small");
    assert_eq!(lanes.len(), 2);
    for lane in lanes {
        let row: Vec<u8> =
            redis::cmd("GET").arg(&lane).query_async(&mut connection).await.expect("it is there");
        let old = as_before(&row);
        redis::cmd("SET").arg(&lane).arg(old).exec_async(&mut connection).await.expect("the server does it");
    }
    let mut older = redis::cmd("HSET");
    older.arg("quell:{p0}:meta").arg("schema").arg(1);
    older.exec_async(&mut connection).await.expect("the server does it");
    let store = &*opened(&options).await;
    settle(store, &batch, SUCCEEDED).await;
    declare(store, "shop", rate(1, 1)).await;
    append_one(store, event("q", "governed").queue_source("shop")).await;
    assert_eq!(claim_all(store).await.len(), 3);
    let verified = verify(store).await;
    assert!(verified.problems.is_empty(), "{:?}", verified.problems);
    let mut schema = redis::cmd("HGET");
    schema.arg("quell:{p0}:meta").arg("schema");
    let schema: u32 = schema.query_async(&mut connection).await.expect("it is known");
    assert_eq!(schema, store.description().schema);
}
