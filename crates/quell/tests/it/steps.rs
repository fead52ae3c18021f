//! Steps: what one attempt has done, the next one need not do again.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quell::quell_core::lifecycle::RunState;
use quell::quell_core::store::{Store, SweepRequest};
use quell::{DuringRun, Hold, Outcome, Queue, Run, RunError, StepOnce, from_fn};

use crate::support::Fault::{DoneUnknown, LostUnknown, Unavailable};
use crate::support::{
    Crowd, File, Notes, TestStore, engine, engine_over, key, pass, run_of, send, start, until,
};

const LEASE: Duration = Duration::from_secs(1);

/// A worker dies after a paid call and before its settlement; the next one finds the answer.
async fn a_paid_call_is_paid_once(first: Arc<dyn Store>, second: Arc<dyn Store>) {
    let (calls, answers) = (Notes::new(), Notes::new());
    let crowd = Arc::new(Crowd::default());
    let (count, log, said) = (crowd.clone(), calls.clone(), answers.clone());
    let queue = Queue::none().lease(LEASE).handler(from_fn(move |run: Run| {
        let (inside, log, said) = (count.enter(), log.clone(), said.clone());
        async move {
            let work = || async {
                log.add(run.attempt());
                Ok::<_, RunError>(format!("answer of attempt {}", run.attempt()))
            };
            let answer: String = run.step("llm", work).await?;
            if run.attempt() == 1 {
                let _inside = inside;
                std::future::pending::<()>().await;
            }
            said.add(answer);
            Ok::<(), RunError>(())
        }
    }));
    let (engine, options) = engine_over(first, &[("q", queue.clone())], 2, LEASE).await;
    let receipt = send(&engine, "k").await;
    let worker = start(&engine, &options);
    until("the call is made", async || calls.len() == 1).await;
    // Only what the store has been told survives this.
    until("it is stored", async || run_of(&engine, &receipt).await.steps.iter().any(|s| s.value.is_some()))
        .await;
    worker.task.abort();
    until("its handler is gone", async || crowd.now() == 0).await;
    drop(engine);
    let (engine, options) = engine_over(second, &[("q", queue)], 2, LEASE).await;
    let worker = start(&engine, &options);
    until("the second worker has answered", async || answers.len() == 1).await;
    assert_eq!((calls.all(), answers.all()), (vec![1], vec!["answer of attempt 1".to_owned()]));
    until("it is settled", async || run_of(&engine, &receipt).await.row.state.is_final()).await;
    let run = run_of(&engine, &receipt).await;
    assert_eq!((run.row.state, run.row.attempts, run.steps.len()), (RunState::Succeeded, 2, 1));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_step_survives_the_death_of_its_worker() {
    let store = TestStore::new();
    a_paid_call_is_paid_once(store.clone(), store).await;
}

#[tokio::test]
async fn a_step_survives_the_death_of_its_worker_on_sqlite() {
    let file = File::new();
    a_paid_call_is_paid_once(file.open(), file.open()).await;
}

/// A worker dies in the middle of an effect: the next one is told, and does not repeat it.
async fn an_effect_is_not_repeated(first: Arc<dyn Store>, second: Arc<dyn Store>) {
    let (effects, found) = (Notes::new(), Notes::new());
    let (log, told) = (effects.clone(), found.clone());
    let queue = Queue::none().lease(LEASE).handler(from_fn(move |run: Run| {
        let (log, told) = (log.clone(), told.clone());
        async move {
            let send = || async {
                log.add(run.step_key("send"));
                std::future::pending::<()>().await;
                Ok::<_, RunError>(())
            };
            let sent: StepOnce<()> = run.step_once("send", send).await?;
            told.add(sent);
            let outcome = match sent {
                StepOnce::Done(()) => Outcome::succeeded(),
                StepOnce::Unknown => Outcome::failed("nobody knows whether it was sent"),
            };
            Ok::<_, RunError>(outcome)
        }
    }));
    let (engine, options) = engine_over(first, &[("q", queue.clone())], 2, LEASE).await;
    let receipt = send(&engine, "k").await;
    let worker = start(&engine, &options);
    until("the effect has begun", async || effects.len() == 1).await;
    worker.task.abort();
    let (engine, options) = engine_over(second, &[("q", queue)], 2, LEASE).await;
    let worker = start(&engine, &options);
    until("the second attempt was told", async || found.len() == 1).await;
    assert_eq!(found.all(), [StepOnce::Unknown]);
    assert_eq!(effects.all(), [format!("{}/0/send", receipt.run_id.unwrap())]);
    until("it has failed", async || run_of(&engine, &receipt).await.row.state == RunState::Failed).await;
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_effect_that_may_have_happened_is_not_repeated() {
    let store = TestStore::new();
    an_effect_is_not_repeated(store.clone(), store).await;
}

#[tokio::test]
async fn an_effect_that_may_have_happened_is_not_repeated_on_sqlite() {
    let file = File::new();
    an_effect_is_not_repeated(file.open(), file.open()).await;
}

#[tokio::test(start_paused = true)]
async fn lost_answers_are_asked_for_again_and_the_work_is_done_once() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let count = crowd.clone();
    let queue = Queue::none().handler(from_fn(move |run: Run| {
        let crowd = count.clone();
        async move {
            let work = || async {
                drop(crowd.enter());
                Ok::<_, RunError>(7)
            };
            let seven: u32 = run.step("count", work).await?;
            let again: u32 = run.step("count", || async { Ok::<_, RunError>(8) }).await?;
            let once = run.step_once("send", || async { Ok::<_, RunError>(seven + again) }).await?;
            let held = run.hold().await?;
            assert_eq!((seven, again, once, held), (7, 7, StepOnce::Done(14), Hold::Held));
            Ok::<(), RunError>(())
        }
    }));
    // Reading, storing, reading again, the intent, its result: each goes wrong in some way.
    let odd = [LostUnknown, DoneUnknown, DoneUnknown, Unavailable, LostUnknown, DoneUnknown, DoneUnknown];
    store.fail("step", &odd);
    store.fail("hold", &[DoneUnknown, Unavailable]);
    let (engine, options) = engine(&store, queue).await;
    let receipt = send(&engine, "k").await;
    let worker = start(&engine, &options);
    until("it is over", async || run_of(&engine, &receipt).await.row.state.is_final()).await;
    let run = run_of(&engine, &receipt).await;
    assert_eq!((run.row.state, run.row.error), (RunState::Succeeded, None));
    assert_eq!((crowd.total(), run.steps.len()), (1, 2));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_work_is_not_remembered() {
    let (store, tries) = (TestStore::new(), Notes::new());
    let log = tries.clone();
    let queue = Queue::none().on_error(quell::config::OnError::Retry).handler(from_fn(move |run: Run| {
        let log = log.clone();
        async move {
            let work = || async {
                log.add(run.attempt());
                if run.attempt() == 1 { Err("the model is away".to_owned()) } else { Ok(1) }
            };
            run.step("llm", work).await.map(|_: u32| ())
        }
    }));
    let (engine, options) = engine(&store, queue).await;
    let receipt = send(&engine, "k").await;
    let worker = start(&engine, &options);
    until("it has succeeded", async || run_of(&engine, &receipt).await.row.state.is_final()).await;
    assert_eq!(tries.all(), [1, 2]);
    assert_eq!(run_of(&engine, &receipt).await.row.state, RunState::Succeeded);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_merged_batch_is_another_revision_and_does_its_steps_anew() {
    let (store, calls) = (TestStore::new(), Notes::new());
    let log = calls.clone();
    let queue = Queue::none().during_run(DuringRun::Gate).handler(from_fn(move |run: Run| {
        let log = log.clone();
        async move {
            let work = || async {
                log.add((run.revision(), run.events().len()));
                pass(500).await;
                Ok::<_, RunError>(run.events().len())
            };
            let counted: usize = run.step("llm", work).await?;
            if !run.hold().await?.is_held() {
                return Ok(Outcome::superseded());
            }
            Ok::<_, RunError>(Outcome::succeeded().with_result(counted.into()))
        }
    }));
    let (engine, options) = engine(&store, queue).await;
    let receipt = send(&engine, "k").await;
    let worker = start(&engine, &options);
    until("the first call is made", async || calls.len() == 1).await;
    send(&engine, "k").await;
    until("it is over", async || run_of(&engine, &receipt).await.row.state.is_final()).await;
    assert_eq!(calls.all(), [(0, 1), (1, 2)]);
    let run = run_of(&engine, &receipt).await;
    assert_eq!(run.result, Some(2.into()));
    assert_eq!(run.steps.len(), 2, "the older memo stays for the record");
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_an_error_that_ends_the_attempt_without_a_settlement() {
    let (store, errors) = (TestStore::new(), Notes::new());
    let (go, log) = (Arc::new(AtomicBool::new(false)), errors.clone());
    let (may, crowd) = (go.clone(), Arc::new(Crowd::default()));
    let count = crowd.clone();
    let queue = Queue::none().lease(Duration::from_secs(60)).handler(from_fn(move |run: Run| {
        let (may, log, inside) = (may.clone(), log.clone(), count.enter());
        async move {
            let _inside = inside;
            while !may.load(Ordering::SeqCst) {
                pass(10).await;
            }
            let step: Result<u32, RunError> = run.step("late", || async { Ok(1) }).await;
            log.add(matches!(step, Err(RunError::Lost(_))));
            std::future::pending::<()>().await;
        }
    }));
    let (engine, options) = engine(&store, queue).await;
    let receipt = send(&engine, "k").await;
    let worker = start(&engine, &options);
    until("it runs", async || crowd.now() == 1).await;
    // By the store's clock the lease is over, and somebody takes it back.
    engine.pause(key("k"), "test").await.unwrap();
    store.jump(Duration::from_secs(60));
    assert_eq!(
        engine.sweep(SweepRequest { reclaim: true, retention: None }).await.unwrap().reclaimed.len(),
        1
    );
    go.store(true, Ordering::SeqCst);
    until("the handler is stopped", async || crowd.now() == 0).await;
    assert_eq!((errors.all(), store.calls_of("settle")), (vec![true], 0));
    assert_eq!(run_of(&engine, &receipt).await.row.state, RunState::Pending);
    assert_eq!(worker.stop().await.lost, 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stays_away_hands_the_run_back_instead_of_failing_it() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let count = crowd.clone();
    let queue = Queue::none().lease(Duration::from_secs(3)).handler(from_fn(move |run: Run| {
        let inside = count.enter();
        async move {
            let _inside = inside;
            pass(200).await;
            run.step("llm", || async { Ok::<_, RunError>(1) }).await.map(|_: u32| ())
        }
    }));
    let (engine, options) = engine(&store, queue).await;
    let receipt = send(&engine, "k").await;
    let worker = start(&engine, &options);
    until("it runs", async || crowd.now() == 1).await;
    store.set_down(&["step", "extend", "settle", "claim", "sweep"]);
    until("the handler is stopped", async || crowd.now() == 0).await;
    store.set_down(&[]);
    until("it is done after all", async || run_of(&engine, &receipt).await.row.state.is_final()).await;
    let run = run_of(&engine, &receipt).await.row;
    assert_eq!((run.state, run.attempts), (RunState::Succeeded, 1), "the hand-back was refunded");
    worker.stop().await;
}
