//! The gate: one answer per burst, even if the burst goes on while the answer is made. `cargo run -p quell --example gate`
//!
//! The handler takes its time; a second message comes meanwhile. At the gate it is told that it is out of date, and the
//! run starts over with both messages. Nothing was sent, and no attempt is lost.

use std::sync::Arc;
use std::time::Duration;

use quell::{DuringRun, Outcome, ProgramError, Quell, Queue, Run, RunError, from_fn};
use serde_json::json;
use tokio::sync::Barrier;

#[tokio::main]
async fn main() -> Result<(), ProgramError> {
    gate("sqlite:gate.db", |line| println!("{line}")).await
}

pub async fn gate(store: &str, print: fn(String)) -> Result<(), ProgramError> {
    // The first attempt and this function meet twice: when the answer is begun, and when the second message is there.
    let thinking = Arc::new(Barrier::new(2));
    let met = thinking.clone();
    let handler = from_fn(move |run: Run| {
        let met = met.clone();
        async move {
            let messages = run.events().len();
            print(format!("thinking about {messages} messages"));
            if run.revision() == 0 {
                met.wait().await;
                met.wait().await;
            }
            if !run.hold().await?.is_held() {
                print("out of date: starting over".to_owned());
                return Ok(Outcome::superseded());
            }
            // From here on the batch stays as it is, and the answer may leave the house.
            print(format!("one answer to {messages} messages"));
            Ok::<_, RunError>(Outcome::succeeded())
        }
    });
    let chat = Queue::quiet(Duration::from_millis(100)).during_run(DuringRun::Gate).handler(handler);
    let quell = Quell::open(store).queue("chat", chat).start().await?;

    quell.send("chat", "customer-7", json!({ "text": "hi" })).await?;
    thinking.wait().await;
    quell.send("chat", "customer-7", json!({ "text": "are you there?" })).await?;
    thinking.wait().await;
    quell.until_idle().await?;
    quell.shutdown().await;
    Ok(())
}
