//! The governed client: cache, limiter, request, breaker, in this order.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::{Method, StatusCode, header};
use quell_core::error::ErrorKind;
use quell_core::event::SourceName;
use quell_core::lifecycle::RunState;
use quell_core::outcome::{Outcome, Verdict};
use quell_core::source::{Because, Breaker, FaultKind, SourceFault, SourceReport, SourceRules};
use quell_fetch::{
    Call, CallError, FetchError, Fetched, Fetcher, Guard, Http, HttpSettings, Origin, Refused,
};

use crate::names::Names;
use crate::server::{Server, answer, ok};
use crate::world::{Log, World, loopback, short};

/// No limit; breaker and cache as by default.
fn free() -> SourceRules {
    SourceRules::default()
}

/// One request per minute, one at once.
fn slow() -> SourceRules {
    SourceRules { per_minute: Some(1), ..SourceRules::default() }
}

/// A server that writes its requests into the log of the world.
async fn heard(log: &Log, answer: impl Fn(usize, &str) -> Vec<u8> + Send + Sync + 'static) -> Server {
    let log = log.clone();
    Server::local(move |n, head| {
        log.lock().expect("no test panics with it").push("request");
        answer(n, head)
    })
    .await
}

fn told(fetched: &Fetched) -> (&str, Origin) {
    (std::str::from_utf8(&fetched.body).unwrap_or("?"), fetched.origin)
}

#[tokio::test]
async fn the_order_is_cache_limiter_request_breaker() {
    let world = World::new(SourceRules { per_minute: Some(60), burst: 10, ..free() }).await;
    let server = heard(&world.log, |n, _| ok(&n.to_string())).await;
    let batch = world.run().await;
    let fetcher = world.fetcher(&batch);
    assert_eq!(world.source().await.tokens, Some(9), "the claim took one");

    let first = fetcher.get(&server.url("/1")).await.unwrap();
    assert_eq!(told(&first), ("0", Origin::Source));
    assert_eq!(world.happened(), ["recall", "request", "fine", "keep"], "the claim has paid for the first");

    fetcher.get(&server.url("/2")).await.unwrap();
    assert_eq!(world.happened(), ["recall", "take", "request", "fine", "keep"]);
    assert_eq!(world.source().await.tokens, Some(8));

    let again = fetcher.get(&server.url("/1")).await.unwrap();
    assert_eq!(told(&again), ("0", Origin::Cache));
    assert_eq!(world.happened(), ["recall"], "a hit touches neither bucket nor breaker");
    assert_eq!(world.source().await.tokens, Some(8));

    let post = Call::new(Method::POST, server.url("/1")).body("x");
    fetcher.fetch(post).await.unwrap();
    assert_eq!(world.happened(), ["take", "request", "fine"], "only GET has to do with the cache");
    assert_eq!(fetcher.report(), SourceReport::Reported);
}

#[tokio::test]
async fn an_answer_that_says_nothing_is_kept_as_long_as_the_source_says() {
    let world = World::new(SourceRules { cache_ttl: Some(Duration::from_secs(100)), ..free() }).await;
    let server = heard(&world.log, |n, _| ok(&n.to_string())).await;
    let batch = world.run().await;
    let fetcher = world.fetcher(&batch);
    assert_eq!(told(&fetcher.get(&server.url("/")).await.unwrap()), ("0", Origin::Source));
    world.clock.advance(Duration::from_secs(99));
    // Another run, on another worker, shares it.
    let other = world.run().await;
    assert_eq!(told(&world.fetcher(&other).get(&server.url("/")).await.unwrap()), ("0", Origin::Cache));
    world.clock.advance(Duration::from_secs(1));
    let later = world.run().await;
    assert_eq!(told(&world.fetcher(&later).get(&server.url("/")).await.unwrap()), ("1", Origin::Source));
}

#[tokio::test]
async fn the_time_to_live_of_the_source_is_the_bound_and_a_handler_may_want_less() {
    let world = World::new(SourceRules { cache_ttl: Some(Duration::from_secs(50)), ..free() }).await;
    let server =
        heard(&world.log, |n, _| answer("200 OK", &[("cache-control", "max-age=9999")], n.to_string())).await;
    let get = async |ttl: Option<u64>| {
        let batch = world.run().await;
        let fetcher = world.fetcher(&batch);
        let fetcher =
            ttl.map(Duration::from_secs).map_or_else(|| world.fetcher(&batch), |ttl| fetcher.with_ttl(ttl));
        fetcher.get(&server.url("/")).await.unwrap().origin
    };
    assert_eq!(get(None).await, Origin::Source);
    world.clock.advance(Duration::from_secs(20));
    assert_eq!(get(None).await, Origin::Cache);
    assert_eq!(get(Some(30)).await, Origin::Cache);
    assert_eq!(get(Some(10)).await, Origin::Source, "too old for this one");
    world.clock.advance(Duration::from_secs(20));
    assert_eq!(get(None).await, Origin::Source, "it was kept for the 10 seconds that its handler wanted");
    world.clock.advance(Duration::from_secs(50));
    assert_eq!(get(None).await, Origin::Source, "whatever the answer says");
}

#[tokio::test]
async fn an_answer_that_says_nothing_is_kept_no_longer_than_its_handler_wants() {
    let world = World::new(free()).await;
    let server = heard(&world.log, |n, _| ok(&n.to_string())).await;
    let batch = world.run().await;
    world.fetcher(&batch).with_ttl(Duration::from_secs(10)).get(&server.url("/")).await.unwrap();
    world.clock.advance(Duration::from_secs(9));
    assert_eq!(told(&world.fetcher(&batch).get(&server.url("/")).await.unwrap()), ("0", Origin::Cache));
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(told(&world.fetcher(&batch).get(&server.url("/")).await.unwrap()), ("1", Origin::Source));
}

#[tokio::test]
async fn a_source_without_a_cache_is_always_asked() {
    let world = World::new(SourceRules { cache_ttl: None, ..free() }).await;
    let server = heard(&world.log, |_, _| ok("x")).await;
    let batch = world.run().await;
    let fetcher = world.fetcher(&batch);
    for _ in 0..3 {
        assert_eq!(fetcher.get(&server.url("/")).await.unwrap().origin, Origin::Source);
    }
    assert_eq!((server.connections(), world.source().await.cached), (3, 0));
}

#[tokio::test]
async fn a_304_saves_the_body() {
    let world = World::new(free()).await;
    let body = "x".repeat(50_000);
    let (sent, log) = (body.clone(), world.log.clone());
    let server = heard(&log, move |_, head| {
        if head.contains("if-none-match: \"v1\"") {
            return answer("304 Not Modified", &[("etag", "\"v1\""), ("cache-control", "max-age=10")], "");
        }
        let headers = [("etag", "\"v1\""), ("cache-control", "max-age=10"), ("content-type", "text/x")];
        answer("200 OK", &headers, &sent)
    })
    .await;
    let batch = world.run().await;
    let fetcher = world.fetcher(&batch);
    let get = async || fetcher.get(&server.url("/")).await.unwrap();
    assert_eq!(get().await.origin, Origin::Source);
    world.clock.advance(Duration::from_secs(9));
    assert_eq!(get().await.origin, Origin::Cache);
    world.clock.advance(Duration::from_secs(2));
    world.happened();
    let renewed = get().await;
    assert_eq!((renewed.status, renewed.origin), (StatusCode::OK, Origin::Revalidated));
    assert_eq!(
        (renewed.body.len(), &renewed.headers[header::CONTENT_TYPE]),
        (50_000, &"text/x".parse().unwrap())
    );
    assert_eq!(world.happened(), ["recall", "recall", "take", "request", "fine", "keep"]);
    world.clock.advance(Duration::from_secs(9));
    assert_eq!(get().await.origin, Origin::Cache, "as good as new");
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_changed_answer_takes_the_place_of_the_old_one() {
    let world = World::new(free()).await;
    let server = heard(&world.log, |n, _| {
        let (tag, date) = (format!("\"v{n}\""), "Sun, 06 Nov 1994 08:49:37 GMT");
        let headers = [("etag", tag.as_str()), ("last-modified", date), ("cache-control", "no-cache")];
        match n {
            // A 304 that speaks of another version than was asked about: the whole answer is fetched.
            2 => answer("304 Not Modified", &headers, ""),
            _ => answer("200 OK", &headers, n.to_string()),
        }
    })
    .await;
    let batch = world.run().await;
    let fetcher = world.fetcher(&batch);
    for expected in ["0", "1", "3"] {
        // An answer that must be asked about every time is fresh for one millisecond.
        world.clock.advance(Duration::from_millis(1));
        assert_eq!(told(&fetcher.get(&server.url("/")).await.unwrap()), (expected, Origin::Source));
    }
    let requests = server.requests();
    assert!(
        requests[1].contains("if-none-match: \"v0\"") && requests[1].contains("if-modified-since: sun, 06")
    );
    assert!(requests[2].contains("if-none-match: \"v1\""));
    assert!(!requests[3].contains("if-none-match"));
}

#[tokio::test]
async fn only_good_answers_that_may_be_kept_are_kept() {
    let world = World::new(SourceRules { failures: 100, ..free() }).await;
    let server = heard(&world.log, |_, head| match head.split(' ').nth(1) {
        Some("/no-store") => answer("200 OK", &[("cache-control", "no-store")], "x"),
        Some("/found") => answer("302 Found", &[("cache-control", "max-age=60"), ("location", "/")], ""),
        Some("/gone") => answer("410 Gone", &[("cache-control", "max-age=60")], ""),
        Some("/error") => answer("500 Error", &[("cache-control", "max-age=60")], ""),
        Some("/large") => answer("200 OK", &[], "\"".repeat(700_000)),
        _ => answer("200 OK", &[("set-cookie", "a=b")], "x"),
    })
    .await;
    let batch = world.run().await;
    let fetcher = world.fetcher(&batch);
    for path in ["/no-store", "/found", "/gone", "/error", "/large"] {
        for _ in 0..2 {
            world.happened();
            let fetched = fetcher.get(&server.url(path)).await;
            assert!(!fetched.is_ok_and(|fetched| fetched.origin != Origin::Source), "{path}");
            // Whoever waits for it is let go at once.
            assert_eq!(world.happened().last(), Some(&"forget"), "{path}");
        }
    }
    assert_eq!(world.source().await.cached, 0);
    fetcher.get(&server.url("/")).await.unwrap();
    assert_eq!(world.source().await.cached, 1);
}

#[tokio::test]
async fn credentials_and_variants_do_not_share_answers() {
    let world = World::new(free()).await;
    let server =
        heard(&world.log, |n, _| answer("200 OK", &[("vary", "accept-language")], n.to_string())).await;
    let batch = world.run().await;
    let fetcher = world.fetcher(&batch);
    let get = async |language: &str, who: &str| {
        let call = Call::get(server.url("/"))
            .header(header::ACCEPT_LANGUAGE, language.parse().unwrap())
            .header(header::AUTHORIZATION, who.parse().unwrap());
        String::from_utf8(fetcher.fetch(call).await.unwrap().body).unwrap()
    };
    assert_eq!(get("de", "a").await, "0");
    assert_eq!(get("de", "a").await, "0");
    assert_eq!(get("de", "b").await, "1", "another credential");
    assert_eq!(get("en", "a").await, "2", "another variant, kept in the place of the first");
    assert_eq!(get("en", "a").await, "2");
    assert_eq!(get("de", "b").await, "1");
}

#[tokio::test]
async fn a_variant_that_cannot_be_had_does_not_cost_the_one_that_is_kept() {
    let world = World::new(free()).await;
    let server = heard(&world.log, |_, head| match head.contains("accept-language: de") {
        true => answer("200 OK", &[("vary", "accept-language")], "gut"),
        false => answer("500 Error", &[], ""),
    })
    .await;
    let batch = world.run().await;
    let fetcher = world.fetcher(&batch);
    let get = async |language: &str| {
        let call = Call::get(server.url("/")).header(header::ACCEPT_LANGUAGE, language.parse().unwrap());
        fetcher.fetch(call).await.map(|fetched| fetched.origin)
    };
    assert_eq!(get("de").await, Ok(Origin::Source));
    assert!(get("en").await.is_err());
    assert_eq!(get("de").await, Ok(Origin::Cache));
}

#[tokio::test]
async fn a_429_silences_the_source_for_as_long_as_it_asks() {
    let world = World::new(free()).await;
    let server = heard(&world.log, |_, _| answer("429 Slow Down", &[("retry-after", "7")], "")).await;
    let batch = world.run().await;
    let fetcher = world.fetcher(&batch);
    let error = fetcher.get(&server.url("/")).await.unwrap_err();
    let fault = SourceFault::new(FaultKind::TooManyRequests).retry_after(Duration::from_secs(7));
    assert!(matches!(&error, FetchError::Fault { fault: f, .. } if *f == fault), "{error:?}");
    assert_eq!(world.happened(), ["recall", "request", "fault", "forget"]);
    let source = world.source().await;
    assert_eq!(source.not_before, Some(world.now().after(Duration::from_secs(7))));
    assert_eq!((source.failure_streak, source.breaker), (1, Breaker::Closed));

    let outcome = fetcher.outcome(&error);
    assert_eq!(outcome.error.as_deref(), Some("the source answered 429 Too Many Requests"));
    assert_eq!((outcome.verdict, outcome.source), (Verdict::Retry { after: None }, SourceReport::Reported));
    world.settle(&batch, outcome).await;
    assert_eq!(world.source().await.failure_streak, 1, "counted once");
    assert!(world.try_run().await.is_none());
    world.clock.advance(Duration::from_secs(7));
    assert!(world.claim().await.is_some());
}

#[tokio::test]
async fn five_faults_in_a_row_open_the_breaker_and_a_probe_closes_it() {
    let world = World::new(free()).await;
    let server = heard(&world.log, |n, _| match n {
        0..=3 => answer("503 Busy", &[], ""),
        4 => ok("fine"),
        5..=9 => answer("500 Error", &[], ""),
        _ => ok("back"),
    })
    .await;
    let batch = world.run().await;
    let fetcher = world.fetcher(&batch);
    let mut streaks = Vec::new();
    for n in 0..10 {
        let _ = fetcher.get(&server.url(&format!("/{n}"))).await;
        streaks.push(world.source().await.failure_streak);
    }
    assert_eq!(streaks, [1, 2, 3, 4, 0, 1, 2, 3, 4, 5]);
    assert_eq!(world.source().await.breaker, Breaker::Open);

    // For a token it would wait a second; the quickest of some says whether it waits, whatever else the machine does.
    let mut quickest = Duration::MAX;
    let mut error = FetchError::Busy;
    for _ in 0..8 {
        let began = Instant::now();
        error = fetcher.get(&server.url("/more")).await.unwrap_err();
        quickest = quickest.min(began.elapsed());
        assert!(matches!(error, FetchError::NoToken { because: Because::BreakerOpen, .. }), "{error}");
    }
    assert!(quickest < Duration::from_millis(900), "no use in waiting");
    assert_eq!(server.connections(), 10);
    // A kept answer is served all the same.
    assert_eq!(told(&fetcher.get(&server.url("/4")).await.unwrap()), ("fine", Origin::Cache));
    world.settle(&batch, fetcher.outcome(&error)).await;
    assert!(world.claim().await.is_none());

    world.clock.advance(Duration::from_secs(300));
    let probe = world.claim().await.expect("one may try");
    let fetcher = world.fetcher(&probe);
    assert_eq!(told(&fetcher.get(&server.url("/more")).await.unwrap()), ("back", Origin::Source));
    let source = world.source().await;
    assert_eq!((source.breaker, source.failure_streak), (Breaker::Closed, 0));
    let settled = world.settle(&probe, fetcher.finish(Outcome::succeeded())).await;
    assert_eq!(settled.state, RunState::Succeeded);
}

#[tokio::test]
async fn time_outs_and_lost_connections_are_faults_and_our_own_limits_are_not() {
    let world = World::new(free()).await;
    let server = heard(&world.log, |_, head| match head.split(' ').nth(1) {
        Some("/silent") => Vec::new(),
        Some("/cut") => b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf".to_vec(),
        _ => answer("200 OK", &[], vec![b'x'; 2 * 1024 * 1024]),
    })
    .await;
    let batch = world.run().await;
    let fetcher = Fetcher::new(short(Duration::from_millis(200)), world.store.clone(), &batch);
    let kind = |error: FetchError| match error {
        FetchError::Fault { fault, .. } => fault.kind,
        other => panic!("{other:?}"),
    };
    assert_eq!(kind(fetcher.get(&server.url("/silent")).await.unwrap_err()), FaultKind::TimeOut);
    assert_eq!(kind(fetcher.get(&server.url("/cut")).await.unwrap_err()), FaultKind::Connection);
    let gone = Server::local(|_, _| ok("")).await.url("/");
    tokio::task::yield_now().await;
    assert_eq!(kind(fetcher.get(&gone).await.unwrap_err()), FaultKind::Connection);
    assert_eq!(world.source().await.failure_streak, 3);

    let error = fetcher.get(&server.url("/large")).await.unwrap_err();
    assert_eq!(error, FetchError::Own(CallError::TooLarge { max: 1024 * 1024 }));
    assert_eq!(world.source().await.failure_streak, 0, "it did answer");
    assert_eq!(fetcher.outcome(&error).verdict, Verdict::Failed);
}

#[tokio::test]
async fn a_forbidden_url_costs_nothing() {
    let world = World::new(slow()).await;
    let inside = Server::local(|_, _| ok("inside")).await;
    let batch = world.run().await;
    let http = Http::new(Guard::default(), &HttpSettings::default()).unwrap();
    let fetcher = Fetcher::new(http, world.store.clone(), &batch);
    let error = fetcher.get(&inside.url("/")).await.unwrap_err();
    let expected = Refused::Address { address: inside.address.ip(), why: "loopback" };
    assert_eq!(error, FetchError::Own(CallError::Refused(expected)));
    assert_eq!((inside.connections(), world.happened().len()), (0, 0));
    let outcome = fetcher.outcome(&error);
    assert_eq!((outcome.verdict, outcome.source), (Verdict::Failed, SourceReport::Unused));
    world.settle(&batch, outcome).await;
    assert_eq!(world.source().await.tokens, Some(1), "given back");
}

#[tokio::test]
async fn a_name_that_turns_out_to_be_forbidden_uses_no_token_and_is_no_fault() {
    let world = World::new(slow()).await;
    let inside = Server::local(|_, _| ok("inside")).await;
    let batch = world.run().await;
    let names = Names::of("shop.example", &[&["127.0.0.1"]]);
    let http = Http::with_names(Guard::default(), &HttpSettings::default(), names).unwrap();
    let fetcher = Fetcher::new(http, world.store.clone(), &batch);
    let url = format!("http://shop.example:{}/", inside.address.port());
    for _ in 0..2 {
        // Twice: the token of the claim is still there for the second.
        let error = fetcher.get(&url).await.unwrap_err();
        assert!(matches!(error, FetchError::Own(CallError::Refused(Refused::Resolved { .. }))), "{error:?}");
        assert_eq!(world.happened(), ["recall", "forget"]);
    }
    assert_eq!((inside.connections(), fetcher.report()), (0, SourceReport::Unused));
    assert_eq!(world.source().await.failure_streak, 0);
}

#[tokio::test]
async fn of_ten_runs_that_want_one_answer_one_fetches_it() {
    let world = World::new(free()).await;
    let server = heard(&world.log, |n, _| ok(&n.to_string())).await;
    let url = server.url("/slow");
    let mut batches = Vec::new();
    for _ in 0..10 {
        batches.push(world.run().await);
    }
    let fetchers: Vec<Fetcher> = batches.iter().map(|batch| world.fetcher(batch)).collect();
    let answers = join_all(fetchers.iter().map(|fetcher| fetcher.get(&url))).await;
    let origins: Vec<Origin> = answers.into_iter().map(|answer| answer.unwrap().origin).collect();
    assert_eq!(origins.iter().filter(|origin| **origin == Origin::Source).count(), 1);
    assert_eq!(server.connections(), 1);
    let used = fetchers.iter().filter(|fetcher| fetcher.report() == SourceReport::Reported).count();
    assert_eq!(used, 1, "nine tokens go back");
}

#[tokio::test]
async fn of_ten_tasks_of_one_run_one_fetches_it() {
    let world = World::new(free()).await;
    let server = heard(&world.log, |n, _| ok(&n.to_string())).await;
    let batch = world.run().await;
    let fetcher = Arc::new(world.fetcher(&batch));
    let url = server.url("/slow");
    let tasks = (0..10).map(|_| {
        let (fetcher, url) = (fetcher.clone(), url.clone());
        tokio::spawn(async move { fetcher.get(&url).await.map(|fetched| fetched.body) })
    });
    for answer in join_all(tasks).await {
        assert_eq!(answer.unwrap(), Ok(b"0".to_vec()));
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn when_a_flight_fails_the_next_one_flies() {
    let world = World::new(free()).await;
    let server =
        heard(&world.log, |n, _| if n == 0 { answer("500 Error", &[], "") } else { ok("good") }).await;
    let url = server.url("/slow");
    let (one, two, three) = (world.run().await, world.run().await, world.run().await);
    let fetchers = [world.fetcher(&one), world.fetcher(&two), world.fetcher(&three)];
    let answers = join_all(fetchers.iter().map(|fetcher| fetcher.get(&url))).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 1);
    assert_eq!(server.connections(), 2, "one that failed, one for the two others");
}

/// The flight of a worker that is not heard of again.
async fn abandoned_flight(world: &World, url: &str) {
    let batch = world.run().await;
    let (fetcher, url) = (world.fetcher(&batch), url.to_owned());
    let task = tokio::spawn(async move { fetcher.get(&url).await });
    while !world.log.lock().unwrap().contains(&"request") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    world.happened();
}

#[tokio::test]
async fn a_flight_whose_worker_died_is_waited_for_until_its_end_and_no_longer() {
    let world = World::new(free()).await;
    let server = heard(&world.log, |n, _| if n == 0 { Vec::new() } else { ok("good") }).await;
    let url = server.url("/");
    abandoned_flight(&world, &url).await;
    let batch = world.run().await;
    let fetcher = world.fetcher(&batch);
    let clock = world.clock.clone();
    let later = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(server.connections(), 1, "it waits");
        clock.advance(Duration::from_secs(30));
    };
    let (answer, ()) = tokio::join!(fetcher.get(&url), later);
    assert_eq!(told(&answer.unwrap()), ("good", Origin::Source));
}

#[tokio::test]
async fn whoever_waited_for_two_flights_hands_its_lane_back() {
    let world = World::new(free()).await;
    let server = heard(&world.log, |_, _| Vec::new()).await;
    let url = server.url("/");
    abandoned_flight(&world, &url).await;
    let batch = world.run().await;
    let fetcher = world.fetcher(&batch);
    // The store's clock stands still, so the flight never ends; the minute passes at once.
    tokio::time::pause();
    let error = fetcher.get(&url).await.unwrap_err();
    assert_eq!(error, FetchError::Busy);
    let outcome = fetcher.outcome(&error);
    assert_eq!((outcome.verdict, outcome.source), (Verdict::Release, SourceReport::Unused));
    assert!(world.happened().len() < 300, "it does not look too often");
}

#[tokio::test]
async fn an_old_answer_is_asked_about_once_for_all() {
    let world = World::new(free()).await;
    let server = heard(&world.log, |n, _| {
        let headers = [("etag", "\"1\""), ("cache-control", "max-age=5")];
        if n == 0 { answer("200 OK", &headers, "body") } else { answer("304 Not Modified", &headers, "") }
    })
    .await;
    let url = server.url("/slow");
    let batch = world.run().await;
    world.fetcher(&batch).get(&url).await.unwrap();
    world.clock.advance(Duration::from_secs(6));
    let mut batches = Vec::new();
    for _ in 0..5 {
        batches.push(world.run().await);
    }
    let fetchers: Vec<Fetcher> = batches.iter().map(|batch| world.fetcher(batch)).collect();
    for answer in join_all(fetchers.iter().map(|fetcher| fetcher.get(&url))).await {
        assert_eq!(answer.unwrap().body, b"body");
    }
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn without_a_token_within_a_second_the_run_is_handed_back() {
    let world = World::new(slow()).await;
    let server = heard(&world.log, |_, _| ok("x")).await;
    let batch = world.run().await;
    let fetcher = world.fetcher(&batch);
    fetcher.get(&server.url("/1")).await.unwrap();
    let began = Instant::now();
    let error = fetcher.get(&server.url("/2")).await.unwrap_err();
    let waited = began.elapsed();
    let until = world.now().after(Duration::from_secs(60));
    assert_eq!(error, FetchError::NoToken { until, because: Because::RateLimited });
    // The token itself is a minute away.
    assert!(waited >= Duration::from_secs(1) && waited < Duration::from_secs(30), "{waited:?}");
    assert_eq!(server.connections(), 1);

    let outcome = fetcher.outcome(&error);
    assert_eq!((outcome.verdict, outcome.source), (Verdict::Release, SourceReport::Starved));
    let settled = world.settle(&batch, outcome).await;
    assert_eq!(settled.state, RunState::Pending);
    assert!(world.claim().await.is_none(), "not before the next token");
    world.clock.advance(Duration::from_secs(60));
    let again = world.claim().await.expect("the token is there");
    assert_eq!((again.run_id, again.attempt), (batch.run_id, 1), "no attempt was burned");
    // What was fetched before is still there, so the run gets further this time.
    let fetcher = world.fetcher(&again);
    assert_eq!(fetcher.get(&server.url("/1")).await.unwrap().origin, Origin::Cache);
    assert_eq!(fetcher.get(&server.url("/2")).await.unwrap().origin, Origin::Source);
}

#[tokio::test]
async fn a_token_that_comes_within_a_second_is_waited_for() {
    let world = World::new(slow()).await;
    let server = heard(&world.log, |_, _| ok("x")).await;
    let batch = world.run().await;
    let fetcher = world.fetcher(&batch);
    fetcher.get(&server.url("/1")).await.unwrap();
    let clock = world.clock.clone();
    let later = async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        clock.advance(Duration::from_secs(60));
    };
    let url = server.url("/2");
    let (answer, ()) = tokio::join!(fetcher.get(&url), later);
    assert_eq!(answer.unwrap().origin, Origin::Source);
    assert!(world.happened().iter().filter(|what| **what == "take").count() <= 6);
}

#[tokio::test]
async fn a_run_that_needed_no_request_gives_its_token_back() {
    let world = World::new(SourceRules { burst: 2, ..slow() }).await;
    let server = heard(&world.log, |_, _| ok("x")).await;
    let (one, two) = (world.run().await, world.run().await);
    world.fetcher(&one).get(&server.url("/")).await.unwrap();
    assert_eq!(world.source().await.tokens, Some(0));
    let fetcher = world.fetcher(&two);
    assert_eq!(fetcher.get(&server.url("/")).await.unwrap().origin, Origin::Cache);
    let outcome = fetcher.finish(Outcome::succeeded());
    assert_eq!(outcome.source, SourceReport::Unused);
    world.settle(&two, outcome).await;
    assert_eq!(world.source().await.tokens, Some(1));
}

#[tokio::test]
async fn a_run_without_a_source_is_guarded_and_not_governed() {
    let world = World::new(slow()).await;
    let server = heard(&world.log, |_, _| answer("500 Error", &[], "")).await;
    let batch = world.free_run().await;
    let fetcher = world.fetcher(&batch);
    for _ in 0..7 {
        assert!(matches!(fetcher.get(&server.url("/")).await, Err(FetchError::Fault { .. })));
    }
    assert_eq!(world.happened(), ["request"; 7]);
    let guarded = Fetcher::new(
        Http::new(Guard::default(), &HttpSettings::default()).unwrap(),
        world.store.clone(),
        &batch,
    );
    assert!(matches!(guarded.get(&server.url("/")).await, Err(FetchError::Own(CallError::Refused(_)))));
}

#[tokio::test]
async fn a_fault_that_the_store_did_not_hear_of_is_said_by_the_outcome() {
    let world = World::new(free()).await;
    let server =
        heard(&world.log, |n, _| if n == 0 { answer("503 Busy", &[], "") } else { ok("good") }).await;
    let batch = world.run().await;
    let fetcher = world.fetcher(&batch);
    world.store.mute.store(true, Ordering::SeqCst);
    let error = fetcher.get(&server.url("/1")).await.unwrap_err();
    assert!(matches!(error, FetchError::Fault { .. }), "{error:?}");
    let fault = SourceFault::new(FaultKind::ServerError);
    assert_eq!(fetcher.outcome(&error).source, SourceReport::Fault(fault));
    // An answer is not lost because the store cannot be told of it.
    assert_eq!(told(&fetcher.get(&server.url("/2")).await.unwrap()), ("good", Origin::Source));
    assert_eq!(fetcher.report(), SourceReport::Reported, "the later answer is the newer word");
    world.store.mute.store(false, Ordering::SeqCst);
    assert_eq!(world.source().await.failure_streak, 0);
}

#[tokio::test]
async fn a_run_that_was_lost_gets_no_answers() {
    let world = World::new(free()).await;
    let server = heard(&world.log, |_, _| ok("x")).await;
    let batch = world.run().await;
    let fetcher = Fetcher::new(loopback(), world.store.clone(), &batch);
    world.settle(&batch, Outcome::succeeded()).await;
    let error = fetcher.get(&server.url("/")).await.unwrap_err();
    assert!(matches!(&error, FetchError::Store(error) if error.kind == ErrorKind::LostLease), "{error:?}");
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn another_source_is_asked_and_told_in_place_of_the_runs_own() {
    let world = World::new(SourceRules { per_minute: Some(60), burst: 10, ..free() }).await;
    let post = SourceName::new("post").unwrap();
    world.declare(post.clone(), SourceRules { per_minute: Some(1), burst: 2, failures: 1, ..free() }).await;
    let server =
        heard(
            &world.log,
            |n, _| if n == 0 { ok("sent") } else { answer("503 Service Unavailable", &[], "") },
        )
        .await;
    let batch = world.run().await;
    let own = world.fetcher(&batch);
    let other = Fetcher::of_source(loopback(), world.store.clone(), &batch, post.clone());

    let sent = other.get(&server.url("/")).await.unwrap();
    assert_eq!(told(&sent), ("sent", Origin::Source));
    assert_eq!(world.happened(), ["take", "request", "fine"], "nothing was paid for it, nothing is kept");
    let fault = other.get(&server.url("/")).await.unwrap_err();
    assert!(matches!(fault, FetchError::Fault { .. }), "{fault}");
    assert_eq!(world.happened(), ["take", "request", "fault"]);
    let stopped = other.get(&server.url("/")).await.unwrap_err();
    assert!(
        matches!(stopped, FetchError::NoToken { because: Because::BreakerOpen, .. }),
        "its breaker is open: {stopped}"
    );
    assert_eq!(world.source_named(post).await.breaker, Breaker::Open);
    let shop = world.source().await;
    assert_eq!((shop.breaker, shop.tokens, shop.last_success_at), (Breaker::Closed, Some(9), None));

    assert_eq!(other.report(), SourceReport::Reported, "of the run's own source it says nothing");
    let outcome = other.outcome(&stopped);
    assert_eq!((outcome.verdict, outcome.source), (Verdict::Release, SourceReport::Reported));
    let outcome = own.finish(other.outcome(&fault));
    assert_eq!((outcome.verdict, outcome.source), (Verdict::Retry { after: None }, SourceReport::Unused));
    world.settle(&batch, outcome).await;
    assert_eq!(world.source().await.tokens, Some(10), "the run asked its own source for nothing");
}

#[tokio::test]
async fn another_source_that_nobody_declares_is_an_error_of_the_store() {
    let world = World::new(free()).await;
    let server = heard(&world.log, |_, _| ok("never")).await;
    let batch = world.run().await;
    let nobody = SourceName::new("nobody").unwrap();
    let other = Fetcher::of_source(loopback(), world.store.clone(), &batch, nobody);
    match other.get(&server.url("/")).await {
        Err(FetchError::Store(error)) => assert_eq!(error.kind, ErrorKind::Invalid, "{error}"),
        answer => panic!("{answer:?}"),
    }
    assert_eq!(world.happened(), ["take"]);
}
