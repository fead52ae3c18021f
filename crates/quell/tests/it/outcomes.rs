//! What handlers answer, and what becomes of it: retries, failures, panics, time limits.

use std::sync::Arc;
use std::time::Duration;

use quell::config::OnError;
use quell::quell_core::lifecycle::RunState;
use quell::quell_core::outcome::Outcome;
use quell::quell_core::retry::RetryPolicy;
use quell::{Queue, Run, from_fn};

use crate::support::{Crowd, TestStore, engine, pass, run_of, send, start, until};

fn three_attempts() -> RetryPolicy {
    RetryPolicy { base: Duration::from_secs(10), attempts: 3, jitter: 0.0, ..RetryPolicy::default() }
}

#[tokio::test(start_paused = true)]
async fn a_panic_fails_the_run_and_hurts_nobody_else() {
    let store = TestStore::new();
    let queue = Queue::none().handler(from_fn(|run: Run| async move {
        assert!(run.key().as_str() != "bad", "no answer for {}", run.key());
    }));
    let (engine, options) = engine(&store, queue).await;
    let (bad, good) = (send(&engine, "bad").await, send(&engine, "good").await);
    let worker = start(&engine, &options);
    pass(50).await;
    let failed = run_of(&engine, &bad).await.row;
    assert_eq!((failed.state, failed.attempts), (RunState::Failed, 1));
    assert_eq!(failed.error.as_deref(), Some("the handler panicked: no answer for bad"));
    assert_eq!(run_of(&engine, &good).await.row.state, RunState::Succeeded);
    assert_eq!(worker.stop().await.settled, 2);
}

#[tokio::test(start_paused = true)]
async fn on_error_retry_tries_a_panic_again_until_the_attempts_are_used_up() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let count = crowd.clone();
    let queue =
        Queue::none().on_error(OnError::Retry).retry(three_attempts()).handler(from_fn(move |run: Run| {
            let inside = count.enter();
            async move {
                drop(inside);
                assert!(run.attempt() == 0, "always");
            }
        }));
    let (engine, options) = engine(&store, queue).await;
    let receipt = send(&engine, "k").await;
    let worker = start(&engine, &options);
    pass(50).await;
    assert_eq!(run_of(&engine, &receipt).await.row.state, RunState::Retryable);
    pass(10_000).await;
    assert_eq!(crowd.total(), 2, "after the base");
    pass(20_000).await;
    let run = run_of(&engine, &receipt).await.row;
    assert_eq!((run.state, run.attempts, crowd.total()), (RunState::Failed, 3, 3));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_unclassified_error_is_failed_with_its_text() {
    let store = TestStore::new();
    let queue = Queue::none().handler(from_fn(|_: Run| async { Err::<(), _>("the printer is on fire") }));
    let (engine, options) = engine(&store, queue).await;
    let receipt = send(&engine, "k").await;
    let worker = start(&engine, &options);
    pass(50).await;
    let run = run_of(&engine, &receipt).await.row;
    assert_eq!((run.state, run.error.as_deref()), (RunState::Failed, Some("the printer is on fire")));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_handlers_retry_after_wins_over_the_backoff() {
    let store = TestStore::new();
    let queue = Queue::none().retry(three_attempts()).handler(from_fn(|run: Run| async move {
        match run.attempt() {
            1 => Outcome::retry_after(Duration::from_secs(77), "come back later"),
            _ => Outcome::succeeded().with_usage("pages", 2.0),
        }
    }));
    let (engine, options) = engine(&store, queue).await;
    let receipt = send(&engine, "k").await;
    let worker = start(&engine, &options);
    pass(50).await;
    let waiting = run_of(&engine, &receipt).await.row;
    let now = engine.health().await.unwrap().now;
    let left = waiting.next_at.unwrap().since(now);
    assert!(left > Duration::from_secs(76) && left <= Duration::from_secs(77), "{left:?}");
    pass(76_900).await;
    assert_eq!(run_of(&engine, &receipt).await.row.state, RunState::Retryable);
    pass(100).await;
    let run = run_of(&engine, &receipt).await;
    assert_eq!((run.row.state, run.usage["pages"]), (RunState::Succeeded, 2.0));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_over_its_time_limit_is_stopped_and_tried_again() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let count = crowd.clone();
    let queue = Queue::none().retry(three_attempts()).time_limit(Duration::from_secs(2)).handler(from_fn(
        move |run: Run| {
            let inside = count.enter();
            async move {
                let _inside = inside;
                if run.attempt() == 1 {
                    pass(3_600_000).await;
                }
            }
        },
    ));
    let (engine, options) = engine(&store, queue).await;
    let receipt = send(&engine, "k").await;
    let worker = start(&engine, &options);
    pass(2_010).await;
    let run = run_of(&engine, &receipt).await.row;
    assert_eq!((run.state, crowd.now()), (RunState::Retryable, 0));
    assert!(run.error.unwrap().contains("time limit of 2s"));
    until("the second attempt is done", async || {
        run_of(&engine, &receipt).await.row.state == RunState::Succeeded
    })
    .await;
    worker.stop().await;
}
