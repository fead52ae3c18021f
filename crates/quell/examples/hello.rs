//! The first program, word for word as in the README: three messages of one customer become one batch.

use quell::{ProgramError, Quell, Queue, Run, from_fn};
use serde_json::json;
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), ProgramError> {
    let answer = from_fn(|run: Run| async move {
        println!("{} sent {} messages", run.key(), run.events().len());
    });
    let chat = Queue::quiet(Duration::from_millis(300)).handler(answer);
    let quell = Quell::open("sqlite:hello.db").queue("chat", chat).start().await?;

    for text in ["hi", "are you there?", "hello?"] {
        quell.send("chat", "customer-7", json!({ "text": text })).await?;
    }
    quell.until_idle().await?; // prints: customer-7 sent 3 messages
    quell.shutdown().await;
    Ok(())
}
