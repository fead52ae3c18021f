//! Stopping without losing work: a handler may finish within the grace, the others are handed back and refunded.
//!
//! A handler sees the end coming through `run.stopping()`. A real program calls `shutdown` from its signal handler; here
//! it is called when both handlers are under way. `cargo run -p quell --example graceful_shutdown`

use std::sync::Arc;
use std::time::Duration;

use quell::{Handler, Outcome, ProgramError, Quell, Queue, Run};
use serde_json::json;
use tokio::sync::Barrier;

#[tokio::main]
async fn main() -> Result<(), ProgramError> {
    graceful_shutdown("sqlite:graceful_shutdown.db", |line| println!("{line}")).await
}

struct Work {
    print: fn(String),
    started: Arc<Barrier>,
}

#[async_trait::async_trait]
impl Handler for Work {
    async fn handle(&self, run: &Run) -> Outcome {
        (self.print)(format!("{}: started", run.key()));
        self.started.wait().await;
        if run.key().as_str() == "polite" {
            // Notices that the worker is stopping, finishes what it is doing and answers.
            run.stopping().cancelled().await;
            (self.print)(format!("{}: finished within the grace", run.key()));
            return Outcome::succeeded();
        }
        // Never notices: its future is dropped when the grace is over, and the run is handed back.
        std::future::pending().await
    }
}

pub async fn graceful_shutdown(store: &str, print: fn(String)) -> Result<(), ProgramError> {
    // Two handlers and this function meet here, so that both are under way before the end begins.
    let started = Arc::new(Barrier::new(3));
    let work = Work { print, started: started.clone() };
    let quell = Quell::open(store)
        .grace(Duration::from_secs(1))
        .queue("slow", Queue::none().handler(work))
        .start()
        .await?;
    let polite = quell.send("slow", "polite", json!({})).await?;
    let stubborn = quell.send("slow", "stubborn", json!({})).await?;
    started.wait().await;

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
