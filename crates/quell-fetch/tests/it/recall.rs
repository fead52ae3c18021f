//! Values under a key of the handler's own: what several requests have brought, kept as one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use quell_core::batch::Batch;
use quell_core::limits;
use quell_core::source::{SourceReport, SourceRules};
use quell_core::store::{SourceAction, SourceAnswer, SourceRequest, Store};
use quell_fetch::{FetchError, Fetcher, Origin};

use crate::server::{Server, ok};
use crate::world::World;

const KEY: &str = "shop|1921|d|one dollar|morgan|";

/// Two pages as one text.
async fn pages(fetcher: &Fetcher, server: &Server) -> Result<String, FetchError> {
    let mut text = String::new();
    for page in ["/1", "/2"] {
        let fetched = fetcher.get(&server.url(page)).await?;
        text.push_str(std::str::from_utf8(&fetched.body).unwrap());
    }
    Ok(text)
}

async fn numbered(world: &World) -> Server {
    let log = world.log.clone();
    Server::local(move |n, _| {
        log.lock().unwrap().push("request");
        ok(&n.to_string())
    })
    .await
}

#[tokio::test]
async fn a_value_of_several_requests_is_kept_as_one() {
    let world = World::new(SourceRules { per_minute: Some(60), burst: 10, ..SourceRules::default() }).await;
    let server = numbered(&world).await;
    let batch = world.run().await;
    let fetcher = world.fetcher(&batch).past_the_cache();
    let made = fetcher.recall(KEY, || pages(&fetcher, &server)).await.unwrap();
    assert_eq!((made, fetcher.requests()), (("01".to_owned(), Origin::Source), 2));
    assert_eq!(
        world.happened(),
        ["recall", "request", "fine", "take", "request", "fine", "keep"],
        "the pages themselves are not kept"
    );
    let other = world.run().await;
    let fetcher = world.fetcher(&other).past_the_cache();
    let tokens = world.source().await.tokens;
    let made = fetcher.recall(KEY, || pages(&fetcher, &server)).await.unwrap();
    assert_eq!((made, fetcher.requests()), (("01".to_owned(), Origin::Cache), 0));
    assert_eq!(world.happened(), ["recall"], "a hit touches neither bucket nor breaker");
    assert_eq!((world.source().await.tokens, fetcher.report()), (tokens, SourceReport::Unused));
}

#[tokio::test]
async fn of_ten_runs_that_want_one_value_one_fetches_it() {
    let world = World::new(SourceRules::default()).await;
    let server = numbered(&world).await;
    let mut batches = Vec::new();
    for _ in 0..10 {
        batches.push(world.run().await);
    }
    let fetchers: Vec<Fetcher> = batches.iter().map(|batch| world.fetcher(batch).past_the_cache()).collect();
    let made = join_all(fetchers.iter().map(|fetcher| fetcher.recall(KEY, || pages(fetcher, &server)))).await;
    let made: Vec<(String, Origin)> =
        made.into_iter().map(|made: Result<_, FetchError>| made.unwrap()).collect();
    assert!(made.iter().all(|(text, _)| text == "01"));
    assert_eq!(made.iter().filter(|(_, origin)| *origin == Origin::Source).count(), 1);
}

#[tokio::test]
async fn an_error_is_kept_by_nobody_and_nobody_waits_for_it() {
    let world = World::new(SourceRules::default()).await;
    let (one, two) = (world.run().await, world.run().await);
    let fetcher = world.fetcher(&one);
    let failed: Result<(String, Origin), FetchError> =
        fetcher.recall(KEY, async || Err(FetchError::Busy)).await;
    assert_eq!(failed, Err(FetchError::Busy));
    assert_eq!(world.happened(), ["recall", "forget"]);
    let made: Result<_, FetchError> = world.fetcher(&two).recall(KEY, async || Ok(7)).await;
    assert_eq!(made, Ok((7, Origin::Source)));
    assert_eq!(world.happened(), ["recall", "keep"]);
}

#[tokio::test]
async fn what_cannot_be_read_is_fetched_anew_and_what_is_too_large_is_forgotten() {
    let world = World::new(SourceRules::default()).await;
    let batch = world.run().await;
    let fetcher = world.fetcher(&batch);
    let made: Result<_, FetchError> = fetcher.recall(KEY, async || Ok("a text".to_owned())).await;
    assert_eq!(made.unwrap().1, Origin::Source);
    // Another version of the handler wants a number.
    for origin in [Origin::Source, Origin::Cache] {
        let made: Result<_, FetchError> = fetcher.recall(KEY, async || Ok(7)).await;
        assert_eq!(made, Ok((7, origin)));
    }
    let large = "x".repeat(limits::CACHE_VALUE_BYTES_MAX + 1);
    for _ in 0..2 {
        let made: Result<_, FetchError> = fetcher.recall("large", async || Ok(large.clone())).await;
        assert_eq!(made, Ok((large.clone(), Origin::Source)));
    }
}

#[tokio::test]
async fn without_a_cache_or_a_source_everything_is_fetched() {
    let world = World::new(SourceRules { cache_ttl: None, ..SourceRules::default() }).await;
    let (governed, free) = (world.run().await, world.free_run().await);
    let calls = AtomicUsize::new(0);
    for batch in [&governed, &free] {
        for _ in 0..2 {
            let made: Result<_, FetchError> =
                world.fetcher(batch).recall(KEY, async || Ok(calls.fetch_add(1, Ordering::SeqCst))).await;
            assert_eq!(made.unwrap().1, Origin::Source);
        }
    }
    assert_eq!(calls.load(Ordering::SeqCst), 4);
}

async fn look(world: &World, batch: &Batch) -> SourceAnswer {
    let action = SourceAction::Recall { key: KEY.to_owned(), ttl: None };
    let request = SourceRequest { run_id: batch.run_id, token: batch.token, source: None, action };
    world.store.source(request).await.unwrap()
}

#[tokio::test]
async fn a_fetch_that_takes_long_says_that_it_goes_on() {
    let world = World::new(SourceRules::default()).await;
    let (one, two) = (world.run().await, world.run().await);
    let fetcher = world.fetcher(&one);
    let slow = async || {
        for _ in 0..5 {
            world.clock.advance(Duration::from_secs(20));
            fetcher.still_fetching(KEY).await?;
            assert!(matches!(look(&world, &two).await, SourceAnswer::Fetching { .. }), "nobody else begins");
        }
        Ok::<_, FetchError>(7)
    };
    assert_eq!(fetcher.recall(KEY, slow).await, Ok((7, Origin::Source)));
    assert_eq!(look(&world, &two).await, SourceAnswer::Hit(7.into()));
}
