//! A program and its unit tests, which move the clock: `cargo test --example testing`.

use quell::quell_core::retry::RetryPolicy;
use quell::{Outcome, ProgramError, Quell, QuellBuilder, Queue, Run, from_fn};
use serde_json::json;
use std::time::Duration;

/// The queues of the program, for `main` and for the tests.
fn queues(program: QuellBuilder) -> QuellBuilder {
    let sync = from_fn(|run: Run| async move {
        match run.attempt() {
            1 => Outcome::retry("the other side is busy"),
            _ => Outcome::succeeded(),
        }
    });
    let retry = RetryPolicy { base: Duration::from_secs(1), ..RetryPolicy::default() };
    program.queue("orders", Queue::quiet(Duration::from_millis(500)).retry(retry).handler(sync))
}

#[tokio::main]
async fn main() -> Result<(), ProgramError> {
    let quell = queues(Quell::open("sqlite:orders.db")).start().await?;
    quell.send("orders", "alice", json!({ "n": 1 })).await?;
    quell.until_idle().await?;
    quell.shutdown().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use quell::quell_core::window::FiredBy;
    use quell::testing::Rehearsal;

    #[test]
    fn a_burst_is_one_batch_and_its_second_attempt_succeeds() -> Result<(), ProgramError> {
        let mut rehearsal = Rehearsal::start(queues)?;
        for n in 0..3 {
            rehearsal.send("orders", "alice", json!({ "n": n }))?;
            rehearsal.advance(Duration::from_millis(200));
        }
        assert!(rehearsal.batches().is_empty(), "the burst is not over");

        assert!(rehearsal.until_idle(Duration::from_secs(60)), "everything is done within a minute");
        let batches = rehearsal.batches();
        assert_eq!(batches.len(), 2);
        assert_eq!(batches[0].at, Duration::from_millis(900));
        assert_eq!((batches[0].batch.events.len(), batches[0].batch.fired_by), (3, FiredBy::Quiet));
        assert!(batches[0].was_retried() && batches[1].has_succeeded());
        assert!(rehearsal.dead().is_empty());
        Ok(())
    }
}
