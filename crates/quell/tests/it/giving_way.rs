//! Runs that give way: interrupted by newer events, stopped at the gate, cancelled by an operator.
//!
//! What depends on the store (that it asks the holder to stop, and rings) is tested over the memory store under paused
//! time and over SQLite in real time.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up may panic")]

use std::sync::Arc;
use std::time::Duration;

use quell::config::ExecSettings;
use quell::handlers::exec::Exec;
use quell::quell_core::lifecycle::{Change, RunState};
use quell::quell_core::store::Store;
use quell::quell_core::window::FiredBy;
use quell::{DuringRun, Engine, Hold, Outcome, Queue, Run, from_fn};
use serde_json::json;

use crate::support::{
    Crowd, File, Notes, TestStore, engine, engine_over, key, numbers, pass, run_of, send, start, until,
};

const GRACE: Duration = Duration::from_secs(5);

async fn number(engine: &Engine, n: u64) {
    engine.send("q", "k", json!(n)).await.unwrap();
}

/// A handler that is slow until its batch has so many events, then answers.
fn patient(enough: usize, crowd: &Arc<Crowd>, answers: &Arc<Notes<Vec<u64>>>) -> Queue {
    let (crowd, answers) = (crowd.clone(), answers.clone());
    Queue::none().during_run(DuringRun::Interrupt).handler(from_fn(move |run: Run| {
        let (crowd, answers) = (crowd.clone(), answers.clone());
        async move {
            let _inside = crowd.enter();
            if run.events().len() < enough {
                std::future::pending::<()>().await;
            }
            answers.add(numbers(&run));
        }
    }))
}

/// Three events, two of them during the run: one answer for all, no attempt lost, each handler really stopped. The sender
/// may be another process, which shares only the store.
async fn a_burst_has_one_answer(store: Arc<dyn Store>, senders: Arc<dyn Store>) {
    let (crowd, answers) = (Arc::new(Crowd::default()), Notes::new());
    let queues = [("q", patient(3, &crowd, &answers))];
    let (engine, options) = engine_over(store, &queues, 1, GRACE).await;
    let (sender, _) = engine_over(senders, &queues, 1, GRACE).await;
    let receipt = engine.send("q", "k", json!(1)).await.unwrap();
    // One place only: a worker without room must hear of interrupts, too.
    let worker = start(&engine, &options);
    for n in [2, 3] {
        until("the handler runs", async || crowd.now() == 1).await;
        number(&sender, n).await;
        until("it started over", async || crowd.total() == n || answers.len() == 1).await;
    }
    until("the burst is answered", async || answers.len() == 1).await;
    assert_eq!(answers.all(), [vec![1, 2, 3]]);
    assert_eq!((crowd.most(), crowd.total()), (1, 3), "never two at once for one key");
    until("it is settled", async || run_of(&engine, &receipt).await.row.state.is_final()).await;
    let run = run_of(&engine, &receipt).await;
    assert_eq!((run.row.state, run.row.attempts, run.row.claims), (RunState::Succeeded, 1, 3));
    assert_eq!((run.row.interrupts, run.row.revision), (2, 2));
    let interrupted = run.audit.iter().filter(|r| r.change == Change::Interrupted).count();
    assert_eq!((interrupted, run.row.fired_by), (2, Some(FiredBy::Merge)));
    assert!(engine.verify().await.unwrap().problems.is_empty());
    assert_eq!(worker.stop().await.settled, 3);
}

#[tokio::test(start_paused = true)]
async fn a_burst_during_the_run_has_one_answer() {
    let store = TestStore::new();
    a_burst_has_one_answer(store.clone(), store).await;
}

#[tokio::test]
async fn a_burst_during_the_run_has_one_answer_on_sqlite() {
    let file = File::new();
    a_burst_has_one_answer(file.open(), file.open()).await;
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_is_noticed_within_a_moment_and_costs_few_calls() {
    let (store, crowd, answers) = (TestStore::new(), Arc::new(Crowd::default()), Notes::new());
    let (engine, options) = engine(&store, patient(2, &crowd, &answers)).await;
    number(&engine, 1).await;
    let worker = start(&engine, &options);
    until("the handler runs", async || crowd.now() == 1).await;
    pass(5_000).await;
    let before = store.calls_of("extend");
    number(&engine, 2).await;
    pass(50).await;
    assert_eq!(answers.all(), [vec![1, 2]], "the last word with the store was long ago: at once");
    assert_eq!(store.calls_of("extend"), before + 1);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn short_runs_pay_nothing_for_being_interruptible() {
    let store = TestStore::new();
    let queue = Queue::none().during_run(DuringRun::Interrupt).handler(from_fn(|_: Run| pass(20)));
    let (engine, options) = engine(&store, queue).await;
    let worker = start(&engine, &options);
    for n in 0..100 {
        send(&engine, &format!("k{n}")).await;
        pass(5).await;
    }
    until("all are done", async || engine.stats().await.unwrap()[0].totals.succeeded == 100).await;
    assert_eq!(store.calls_of("extend"), 0);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn after_max_interrupts_the_run_goes_on_and_newer_events_wait() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let batches = Notes::new();
    let (count, log) = (crowd.clone(), batches.clone());
    let slow = from_fn(move |run: Run| {
        let (inside, log) = (count.enter(), log.clone());
        async move {
            let _inside = inside;
            pass(5_000).await;
            log.add(numbers(&run));
        }
    });
    let queue = Queue::none().during_run(DuringRun::Interrupt).max_interrupts(2).handler(slow);
    let (engine, options) = engine(&store, queue).await;
    let worker = start(&engine, &options);
    for n in 1..=5 {
        number(&engine, n).await;
        pass(1_000).await;
    }
    until("all is done", async || batches.len() == 2 && crowd.now() == 0).await;
    assert_eq!(batches.all(), [vec![1, 2, 3], vec![4, 5]]);
    worker.stop().await;
}

/// A program that is asked to end, with time to say so.
#[cfg(unix)]
#[tokio::test]
async fn an_interrupted_program_gets_sigterm_and_its_run_starts_over() {
    let file = File::new();
    let (started, ended, answer) = (file.path("started"), file.path("ended"), file.path("answer"));
    let script = format!(
        "trap 'echo $QUELL_REVISION >> {ended}; exit 0' TERM\n\
         echo $$ >> {started}\n\
         if [ $QUELL_EVENTS -lt 2 ]; then while :; do sleep 0.02; done; fi\n\
         echo $QUELL_EVENTS $QUELL_REVISION $QUELL_ATTEMPT >> {answer}\n",
        ended = ended.display(),
        started = started.display(),
        answer = answer.display(),
    );
    let exec = Exec::new(ExecSettings::new(["/bin/sh", "-c", &script]), &std::env::vars().collect());
    let queue = Queue::none().during_run(DuringRun::Interrupt).handler(exec);
    let (engine, options) = engine_over(file.open(), &[("q", queue)], 2, GRACE).await;
    number(&engine, 1).await;
    let worker = start(&engine, &options);
    let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap_or_default();
    until("the program runs", async || read(&started).ends_with('\n')).await;
    number(&engine, 2).await;
    until("the second one has answered", async || read(&answer).ends_with('\n')).await;
    assert_eq!(read(&answer), "2 1 1\n", "both events, the second revision, the first attempt");
    assert_eq!(read(&ended), "0\n", "the first one was asked to end and did");
    let pid = read(&started).lines().next().unwrap().to_owned();
    assert!(!std::path::Path::new("/proc").join(pid).exists(), "it is gone");
    worker.stop().await;
}

/// A handler that works a while, then asks at the gate, then has its effect.
fn gated(crowd: &Arc<Crowd>, effects: &Arc<Notes<Vec<u64>>>, gates: &Arc<Notes<Hold>>) -> Queue {
    let (crowd, effects, gates) = (crowd.clone(), effects.clone(), gates.clone());
    Queue::none().during_run(DuringRun::Gate).handler(from_fn(move |run: Run| {
        let (crowd, effects, gates) = (crowd.clone(), effects.clone(), gates.clone());
        async move {
            let _inside = crowd.enter();
            pass(300).await;
            let gate = run.hold().await.unwrap();
            gates.add(gate);
            if !gate.is_held() {
                return Outcome::superseded();
            }
            effects.add(numbers(&run));
            pass(300).await;
            Outcome::succeeded()
        }
    }))
}

async fn the_gate_lets_one_answer_through(store: Arc<dyn Store>) {
    let (crowd, effects, gates) = (Arc::new(Crowd::default()), Notes::new(), Notes::new());
    let queue = gated(&crowd, &effects, &gates);
    let (engine, options) = engine_over(store, &[("q", queue)], 4, GRACE).await;
    let receipt = engine.send("q", "k", json!(1)).await.unwrap();
    let worker = start(&engine, &options);
    until("it thinks", async || crowd.now() == 1).await;
    number(&engine, 2).await;
    until("it has its effect", async || effects.len() == 1).await;
    assert_eq!((gates.all(), effects.all()), (vec![Hold::Superseded, Hold::Held], vec![vec![1, 2]]));
    // After the gate the batch is frozen: this one waits for the next run.
    number(&engine, 3).await;
    until("both runs are over", async || effects.len() == 2 && crowd.now() == 0).await;
    assert_eq!(effects.all(), [vec![1, 2], vec![3]]);
    let run = run_of(&engine, &receipt).await;
    assert_eq!((run.row.state, run.row.attempts, run.row.interrupts), (RunState::Succeeded, 1, 1));
    let report = worker.stop().await;
    assert_eq!(
        (report.settled, report.lost, report.abandoned),
        (3, 0, 0),
        "giving way is an end like others"
    );
}

#[tokio::test(start_paused = true)]
async fn the_gate_lets_one_answer_per_burst_through() {
    the_gate_lets_one_answer_through(TestStore::new()).await;
}

#[tokio::test]
async fn the_gate_lets_one_answer_per_burst_through_on_sqlite() {
    let file = File::new();
    the_gate_lets_one_answer_through(file.open()).await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_ignores_the_gate_is_stopped_and_settles_nothing() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let count = crowd.clone();
    let stubborn = from_fn(move |run: Run| {
        let inside = count.enter();
        async move {
            let _inside = inside;
            pass(100).await;
            if !run.hold().await.unwrap().is_held() {
                run.interrupted().cancelled().await;
                assert!(run.stopping().is_cancelled());
                std::future::pending::<()>().await;
            }
        }
    });
    // The window keeps the run away until the stubborn one is gone.
    let queue = Queue::fixed(Duration::from_secs(5)).during_run(DuringRun::Gate).handler(stubborn);
    let (engine, options) = engine(&store, queue).await;
    number(&engine, 1).await;
    let worker = start(&engine, &options);
    until("it runs", async || crowd.now() == 1).await;
    number(&engine, 2).await;
    until("it is stopped", async || crowd.now() == 0).await;
    assert_eq!(store.calls_of("settle"), 0);
    until("the second attempt is done", async || engine.stats().await.unwrap()[0].totals.succeeded == 2)
        .await;
    let report = worker.stop().await;
    assert_eq!((report.claimed, report.settled, report.lost), (2, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_condition_on_the_outcome_is_a_gate_at_the_end() {
    let (store, crowd, batches) = (TestStore::new(), Arc::new(Crowd::default()), Notes::new());
    let (count, log) = (crowd.clone(), batches.clone());
    let queue = Queue::none().during_run(DuringRun::Gate).handler(from_fn(move |run: Run| {
        let (inside, log) = (count.enter(), log.clone());
        async move {
            let _inside = inside;
            pass(100).await;
            log.add(numbers(&run));
            Outcome::succeeded().if_head(run.head_seq())
        }
    }));
    let (engine, options) = engine(&store, queue).await;
    number(&engine, 1).await;
    let worker = start(&engine, &options);
    until("it runs", async || crowd.now() == 1).await;
    number(&engine, 2).await;
    until("all is answered", async || engine.stats().await.unwrap()[0].totals.succeeded == 2).await;
    assert_eq!(batches.all(), [vec![1], vec![1, 2]], "the first answer did not count");
    worker.stop().await;
}

async fn a_cancelled_run_is_stopped(store: Arc<dyn Store>, operators: Arc<dyn Store>) {
    let (crowd, answers) = (Arc::new(Crowd::default()), Notes::new());
    let queue = patient(2, &crowd, &answers).during_run(DuringRun::Queue);
    let queues = [("q", queue)];
    let (engine, options) = engine_over(store, &queues, 2, GRACE).await;
    let (operator, _) = engine_over(operators, &queues, 2, GRACE).await;
    let receipt = engine.send("q", "k", json!(1)).await.unwrap();
    let worker = start(&engine, &options);
    until("it runs", async || crowd.now() == 1).await;
    let asked = operator.cancel(key("k"), receipt.run_id, "ada").await.unwrap();
    assert!(asked.changed);
    until("the handler is gone", async || crowd.now() == 0).await;
    until("it is cancelled", async || run_of(&engine, &receipt).await.row.state.is_final()).await;
    let run = run_of(&engine, &receipt).await.row;
    assert_eq!(
        (run.state, run.error.as_deref()),
        (RunState::Cancelled, Some("an operator cancelled the run"))
    );
    let totals = engine.stats().await.unwrap()[0].totals;
    assert_eq!((totals.discarded, totals.in_flight), (1, 0));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_running_run_stops_its_handler() {
    let store = TestStore::new();
    a_cancelled_run_is_stopped(store.clone(), store).await;
}

#[tokio::test]
async fn cancelling_a_running_run_stops_its_handler_on_sqlite() {
    let file = File::new();
    a_cancelled_run_is_stopped(file.open(), file.open()).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_succeeds_before_it_hears_of_its_cancellation_has_succeeded() {
    let (store, crowd) = (TestStore::new(), Arc::new(Crowd::default()));
    let count = crowd.clone();
    let queue = Queue::none().handler(from_fn(move |_: Run| {
        let inside = count.enter();
        async move {
            let _inside = inside;
            pass(150).await;
        }
    }));
    let (engine, options) = engine(&store, queue).await;
    let receipt = send(&engine, "k").await;
    let worker = start(&engine, &options);
    until("it runs", async || crowd.now() == 1).await;
    engine.cancel(key("k"), None, "ada").await.unwrap();
    until("it is over", async || run_of(&engine, &receipt).await.row.state.is_final()).await;
    assert_eq!(run_of(&engine, &receipt).await.row.state, RunState::Succeeded);
    worker.stop().await;
}
