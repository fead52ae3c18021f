//! Steps: a crash after a paid call costs nothing. `cargo run -p quell --example steps`
//!
//! The first worker asks the model and dies before it has sent the answer. The second one finds the answer in the store,
//! sends it, and the model is asked once.

use std::time::Duration;

use quell::{ProgramError, Quell, Queue, Run, RunError, StepOnce, from_fn};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), ProgramError> {
    steps("sqlite:steps.db", |line| println!("{line}")).await
}

pub async fn steps(store: &str, print: fn(String)) -> Result<(), ProgramError> {
    let handler = from_fn(move |run: Run| async move {
        let ask = || async {
            print(format!("attempt {} asks the model", run.attempt()));
            Ok::<_, RunError>("42".to_owned())
        };
        let answer: String = run.step("llm", ask).await?;
        if run.attempt() == 1 {
            // The process dies here: nothing but what the store was told survives.
            std::future::pending::<()>().await;
        }
        // An effect that must not be repeated: the intent is stored before it begins.
        let key = run.step_key("send");
        let send = || async {
            print(format!("attempt {} sends {answer} under the key {key}", run.attempt()));
            Ok::<_, RunError>(())
        };
        if run.step_once("send", send).await? == StepOnce::Unknown {
            print("nobody knows whether it was sent; a person decides".to_owned());
        }
        Ok::<(), RunError>(())
    });
    let queue = Queue::none().lease(Duration::from_millis(500)).handler(handler);

    let first = Quell::open(store).queue("questions", queue.clone()).start().await?;
    let question = first.send("questions", "ada", json!({ "text": "what is it?" })).await?;
    let run = question.run_id.expect("an event that is not delayed has a run");
    while first.run(run).await?.is_none_or(|run| run.steps.is_empty()) {
        quell::clock::sleep(Duration::from_millis(10)).await;
    }
    drop(first); // Abandons its handler, as a crash would.

    let second = Quell::open(store).queue("questions", queue).start().await?;
    second.until_idle().await?;
    second.shutdown().await;
    Ok(())
}
