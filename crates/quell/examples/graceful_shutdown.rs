//! Stopping without losing work: a handler may finish within the grace, the others are handed back and refunded.
//!
//! A handler sees the end coming through `run.stopping()`. A real program calls `shutdown` from its signal handler; here
//! it is called after a moment. `cargo run -p quell --example graceful_shutdown`

use std::time::Duration;

use quell::{Outcome, ProgramError, Quell, Queue, Run, from_fn};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), ProgramError> {
    graceful_shutdown("sqlite:graceful_shutdown.db", |line| println!("{line}")).await
}

pub async fn graceful_shutdown(store: &str, print: fn(String)) -> Result<(), ProgramError> {
    let work = from_fn(move |run: Run| async move {
        print(format!("{}: started", run.key()));
        if run.key().as_str() == "polite" {
            // Notices that the worker is stopping, finishes what it is doing and answers.
            run.stopping().cancelled().await;
            print(format!("{}: finished within the grace", run.key()));
            return Outcome::succeeded();
        }
        // Never notices: its future is dropped when the grace is over, and the run is handed back.
        std::future::pending::<Outcome>().await
    });
    let quell = Quell::open(store)
        .grace(Duration::from_secs(1))
        .queue("slow", Queue::none().handler(work))
        .start()
        .await?;
    let polite = quell.send("slow", "polite", json!({})).await?;
    let stubborn = quell.send("slow", "stubborn", json!({})).await?;
    while quell.stats().await?.iter().map(|queue| queue.running).sum::<u64>() < 2 {
        quell::clock::sleep(Duration::from_millis(10)).await;
    }

    let engine = quell.engine().clone();
    quell.shutdown().await;
    for receipt in [polite, stubborn] {
        let Some(id) = receipt.run_id else { continue };
        if let Some(run) = engine.run(id).await? {
            let row = run.row;
            print(format!("{} is {} after {} counted attempts", row.lane.key, row.state, row.attempts));
        }
    }
    Ok(())
}
