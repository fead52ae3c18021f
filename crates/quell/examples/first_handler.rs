//! A first handler: all messages of a burst in, one answer out.
//!
//!     cargo run --package quell --example first_handler -- hi 'are you there?'

use quell::{Outcome, ProgramError, Quell, Queue, Run, RunError, from_fn};
use serde_json::{Value, json};
use std::time::Duration;

async fn handle(run: Run) -> Result<Outcome, RunError> {
    let messages: Vec<Value> = run.events().iter().filter_map(|event| event.payload.parse().ok()).collect();
    let texts: Vec<&str> = messages.iter().filter_map(|message| message["text"].as_str()).collect();
    let think = || async { Ok::<_, RunError>(format!("you said: {}", texts.join(", "))) };
    let answer: String = run.step("answer", think).await?; // kept over crashes
    if !run.hold().await?.is_held() {
        return Ok(Outcome::superseded()); // newer messages: the run starts over with all of them
    }
    println!("{} {answer}", run.key());
    Ok(Outcome::succeeded().with_result(json!({ "answer": answer })))
}

#[tokio::main]
async fn main() -> Result<(), ProgramError> {
    let chat = Queue::quiet(Duration::from_millis(300)).handler(from_fn(handle));
    let quell = Quell::open("sqlite:quell.db").queue("chat", chat).start().await?;
    for text in std::env::args().skip(1) {
        quell.send("chat", "customer-7", json!({ "text": text })).await?;
    }
    quell.until_idle().await?;
    quell.shutdown().await;
    Ok(())
}
