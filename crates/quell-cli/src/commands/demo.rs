//! `quell demo`: the promises, shown on a real file with a process that is really killed.
//!
//! Five short scenes in a temporary folder. What is printed comes from the store and the handlers, not from a script:
//! if a promise were broken, the demo would show it or fail.

mod chat;
mod prices;
mod scenes;

use std::time::Duration;

use clap::{Args, ValueEnum};
use quell::{Outcome, Quell, Queue, Run, from_fn};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::output;

/// Short, so that nobody waits: real queues have a minute.
const LEASE: Duration = Duration::from_secs(1);
const QUIET: Duration = Duration::from_millis(500);
pub(super) const QUEUE: &str = "orders";

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// What is shown: the promises of the queue, a bot that answers once per burst, or prices
    #[arg(value_name = "WHAT", default_value = "queue")]
    what: What,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum What {
    /// Five scenes on a real file, with a process that is really killed
    Queue,
    /// You type as a customer, the bot waits and answers once
    Chat,
    /// A market on this machine is asked, each item is kept once, and things are valued
    Prices,
}

#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    #[arg(long)]
    url: String,
}

/// What the worker that will be killed says when it holds a lease.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Holding {
    pub(super) run: String,
    pub(super) attempt: u32,
    pub(super) token: u64,
}

pub(crate) async fn run(args: &DemoArgs) -> Result<u8, Failure> {
    match args.what {
        What::Queue => scenes::play().await?,
        What::Chat => chat::play().await?,
        What::Prices => prices::play().await?,
    }
    Ok(0)
}

/// The hidden command `demo-worker`: claims one run, says so, and then works on it for ever.
pub(crate) async fn work(args: &WorkerArgs) -> Result<u8, Failure> {
    end_with_parent();
    let stubborn = from_fn(|run: Run| async move {
        let holding = Holding { run: run.run_id().to_string(), attempt: run.attempt(), token: run.token() };
        // Without a reader nobody would ever kill us; ending is the next best thing.
        if output::json(&holding).is_err() {
            return Outcome::release("nobody reads");
        }
        std::future::pending::<Outcome>().await
    });
    let _quell =
        Quell::open(&args.url).worker_name("first").queue(QUEUE, queue().handler(stubborn)).start().await?;
    std::future::pending().await
}

pub(super) fn queue() -> Queue {
    Queue::quiet(QUIET).lease(LEASE)
}

/// An interrupted demo leaves nobody behind: our stdin closes when it ends.
fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        std::process::exit(1);
    });
}
