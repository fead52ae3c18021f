//! Data of an older version: everything is where that version left it, and is read, used and forgotten by this one.

use std::time::Duration;

use quell_core::inspect::RunFilter;
use quell_core::lifecycle::{Change, RunState};
use quell_core::outcome::Verdict;
use quell_core::store::{Store, SweepRequest};
use quell_store_redis::{Options, RedisStore};
use quell_store_tests::builders::{
    append, append_one, claim_all, claim_one, event, ids, lane_of, redrive, settle,
};
use quell_store_tests::reads::{all_runs, changes, lane_row, state_of, trail_of, verify};

use crate::contract::fresh_prefix;

/// A store as version 3 left it: the commands that make it, one in a line, each word as hexadecimal digits. It was written by
/// `quell send` and `quell work`. `ok/a` has succeeded with two events and has one more that waits, `bad/b` has failed, and
/// `later/c` has two events whose window of an hour is over by now.
const VERSION_3: &str = include_str!("data/version-3.hex");

fn word(digits: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

#[tokio::test]
async fn a_store_of_version_3_is_opened_and_goes_on() {
    let (prefix, url) = (fresh_prefix(), quell_test_servers::redis_url());
    let client = redis::Client::open(url.as_str()).expect("a good address");
    let mut connection = client.get_multiplexed_async_connection().await.expect("the server answers");
    for line in VERSION_3.lines() {
        let words: Vec<Vec<u8>> = line.split(' ').map(word).collect();
        let mut command = redis::Cmd::new();
        let key = [format!("{prefix}:{{p0}}:").as_bytes(), &words[1]].concat();
        command.arg(&words[0]).arg(key).arg(&words[2..]);
        command.exec_async(&mut connection).await.expect("the server does it");
    }
    let options =
        Options::parse(&url).and_then(|options| options.with_prefix(&prefix)).expect("a good address");
    let store = &*RedisStore::open(options).await.expect("the store opens");
    let mut schema = redis::cmd("HGET");
    schema.arg(format!("{prefix}:{{p0}}:meta")).arg("schema");
    let schema: String = schema.query_async(&mut connection).await.expect("it has one");
    assert_eq!(schema, "4", "older programs do not open it any more");
    sound(store).await;

    // What ended is known by its ids, and what waits is handed out with what comes now.
    let first = event("ok", "a").id("first").payload(serde_json::json!({"n": 1}));
    let known = &append(store, [first]).await[0];
    assert_eq!((known.duplicate, known.state), (true, Some(RunState::Succeeded)));
    append_one(store, event("ok", "a").id("seventh")).await;
    let batches = claim_all(store).await;
    let of =
        |queue: &str| batches.iter().find(|batch| batch.lane.queue.as_str() == queue).expect("it is due");
    assert_eq!(batches.len(), 2, "the window of an hour is over, too");
    assert_eq!(ids(of("ok")), ["sixth", "seventh"]);
    assert_eq!(of("later").events.len(), 2);
    for batch in &batches {
        settle(store, batch, Verdict::Succeeded).await;
    }
    let trail = changes(&trail_of(store, "ok", "a").await);
    assert_eq!(trail.iter().filter(|change| **change == Change::Claimed).count(), 2, "{trail:?}");
    let runs = all_runs(store, RunFilter::default()).await;
    let states: Vec<RunState> = runs.iter().map(|run| run.state).collect();
    let (good, bad) = (RunState::Succeeded, RunState::Failed);
    assert_eq!(states, [good, good, good, bad]);
    sound(store).await;

    // What failed is put back to work.
    redrive(store, runs[3].id).await;
    let batch = claim_one(store).await;
    assert_eq!(ids(&batch), ["third"]);
    settle(store, &batch, Verdict::Succeeded).await;
    assert_eq!(state_of(store, &lane_of("", "bad", "b"), "third").await, Some(good));
    sound(store).await;

    // The retention forgets what both versions have written.
    store.advance(Duration::from_secs(400 * 86_400)).await.expect("the clock can be moved");
    loop {
        let retention = Some(Duration::from_secs(86_400));
        let swept = store.sweep(SweepRequest { reclaim: true, retention }).await.expect("the sweep is done");
        if !swept.more {
            break;
        }
    }
    sound(store).await;
    for (queue, key) in [("ok", "a"), ("bad", "b"), ("later", "c")] {
        assert!(lane_row(store, &lane_of("", queue, key)).await.is_none(), "{queue}/{key} is forgotten");
    }
}

async fn sound(store: &RedisStore) {
    let verified = verify(store).await;
    assert!(verified.problems.is_empty(), "{:?}", verified.problems);
}
