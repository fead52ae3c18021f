//! Several workers on one store: every key is handled by one worker at a time, and the work is shared.
//!
//! Here the workers are tasks of one process with an engine each; separate processes (or machines, with a store that
//! allows it) work in the same way. `cargo run -p quell --example many_workers`

use std::time::Duration;

use quell::config::OnError;
use quell::{Engine, ProgramError, Quell, Queue, Run, Shutdown, Worker, from_fn};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), ProgramError> {
    many_workers("sqlite:many_workers.db", 3, 30, |line| println!("{line}")).await
}

pub async fn many_workers(
    store: &str,
    workers: usize,
    keys: usize,
    print: fn(String),
) -> Result<(), ProgramError> {
    let shutdown = Shutdown::new();
    let mut tasks = Vec::new();
    let mut sender: Option<Engine> = None;
    for number in 1..=workers {
        let work = from_fn(move |run: Run| async move {
            tokio::task::yield_now().await;
            print(format!("worker {number} handled {} under token {}", run.key(), run.token()));
        });
        // At most two runs at once per worker, so that there is something left for the others.
        let queue =
            Queue::fixed(Duration::from_millis(50)).concurrency(2).on_error(OnError::Retry).handler(work);
        let (engine, options) = Quell::open(store)
            .worker_name(&format!("worker-{number}"))
            .queue("orders", queue)
            .build()
            .await?;
        let worker = Worker::new(engine.clone(), options)?;
        tasks.push(tokio::spawn(worker.run(shutdown.clone())));
        sender.get_or_insert(engine);
    }
    let Some(engine) = sender else { return Ok(()) };
    for key in 0..keys {
        engine.send("orders", &format!("customer-{key}"), json!({ "order": key })).await?;
    }
    while engine.stats().await?.iter().any(|queue| queue.totals.buffered + queue.totals.in_flight > 0) {
        quell::clock::sleep(Duration::from_millis(20)).await;
    }
    shutdown.request();
    for task in tasks {
        let report = task.await.unwrap_or_default();
        print(format!("a worker claimed {} runs and settled {}", report.claimed, report.settled));
    }
    Ok(())
}
