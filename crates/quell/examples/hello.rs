//! The first program: three messages of one customer become one batch.
//!
//! `cargo run -p quell --example hello` prints `customer-7 sent 3 messages: hi / are you there? / hello?`

use std::time::Duration;

use quell::{ProgramError, Quell, Queue, Run, from_fn};
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), ProgramError> {
    hello("sqlite:hello.db", |line| println!("{line}")).await
}

pub async fn hello(store: &str, print: fn(String)) -> Result<(), ProgramError> {
    // A queue that waits for 300 ms of silence, and what to do with the burst that went before.
    let answer = from_fn(move |run: Run| async move {
        let texts: Result<Vec<Value>, _> = run.events().iter().map(|event| event.payload.parse()).collect();
        let texts: Vec<String> =
            texts?.iter().map(|v| v["text"].as_str().unwrap_or("?").to_owned()).collect();
        print(format!("{} sent {} messages: {}", run.key(), texts.len(), texts.join(" / ")));
        Ok::<(), serde_json::Error>(())
    });
    let chat = Queue::quiet(Duration::from_millis(300)).handler(answer);
    let quell = Quell::open(store).queue("chat", chat).start().await?;

    for text in ["hi", "are you there?", "hello?"] {
        quell.send("chat", "customer-7", json!({ "text": text })).await?;
    }
    quell.until_idle().await?;
    quell.shutdown().await;
    Ok(())
}
