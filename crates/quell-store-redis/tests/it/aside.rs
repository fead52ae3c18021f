//! Events aside on Redis: another process may look at the first of a lane at the same moment.

use std::time::Duration;

use quell_store_redis::{Options, RedisStore};
use quell_store_tests::builders::{append, append_one, claim_one, event, ids, sweep};
use quell_store_tests::reads::verify;

use crate::contract::fresh_prefix;

#[tokio::test]
async fn an_event_that_another_process_has_reserved_enters_with_those_behind_it_and_drops_no_more_than_its_own()
 {
    let prefix = fresh_prefix();
    let url = quell_test_servers::redis_url();
    let options =
        Options::parse(&url).and_then(|options| options.with_prefix(&prefix)).expect("a good address");
    let store = &*RedisStore::open(options).await.expect("the store opens");
    let new = |id: &str| event("full", "k").id(id).lane_events(6).drop_oldest();
    append(store, ["a", "b", "c", "d", "e", "f"].map(new)).await;
    for (id, delay) in [("first", 1), ("second", 2)] {
        append_one(store, new(id).delay(delay)).await;
    }
    // The first is reserved by a process that will not go on: it is not found among the ready ones.
    let client = redis::Client::open(url.as_str()).expect("a good address");
    let mut connection = client.get_multiplexed_async_connection().await.expect("the server answers");
    let look = format!("{prefix}:{{p0}}:look:\0full");
    let waiting: Vec<(String, i64)> = redis::cmd("ZRANGE")
        .arg(&look)
        .arg(0)
        .arg(-1)
        .arg("WITHSCORES")
        .query_async(&mut connection)
        .await
        .expect("it is small");
    let [(first, at), (_, later)] = &waiting[..] else { panic!("two wait: {waiting:?}") };
    let mut reserve = redis::cmd("ZADD");
    reserve.arg(&look).arg(at + 3_600_000).arg(first);
    reserve.exec_async(&mut connection).await.expect("the server does it");
    while now(&mut connection).await <= *later {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    sweep(store).await;
    let verified = verify(store).await;
    assert!(verified.problems.is_empty(), "{:?}", verified.problems);
    let batch = claim_one(store).await;
    assert_eq!(ids(&batch), ["c", "d", "e", "f", "first", "second"]);
}

async fn now(connection: &mut redis::aio::MultiplexedConnection) -> i64 {
    let (seconds, _): (i64, i64) = redis::cmd("TIME").query_async(connection).await.expect("it has a clock");
    seconds * 1_000
}
