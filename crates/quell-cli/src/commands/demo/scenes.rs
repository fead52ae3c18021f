//! The five scenes of the demo, each one promise.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use owo_colors::OwoColorize;
use quell::clock::{RealTime, Time};
use quell::quell_core::clock::Tick;
use quell::quell_core::event::{Key, LaneKey, Payload, QueueName};
use quell::quell_core::inspect::AuditFilter;
use quell::quell_core::limits;
use quell::quell_core::store::Receipt;
use quell::{EngineError, Incoming, Outcome, Quell, Run, from_fn};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::{Holding, QUEUE, queue};
use crate::commands::{audit, doctor};
use crate::context;
use crate::failure::{self, Failure};
use crate::output;
use crate::times;

/// Nothing here takes more than a second or two; waiting longer means that a promise was broken.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) async fn play() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("demo.db").display());
    let stage = Stage { time: RealTime::new(), url };
    stage.say("a real SQLite file in a temporary folder; windows of 500 ms, leases of 1 s")?;

    let mut office = Office::open(&stage.url, "demo").await?;
    stage.one_batch(&mut office).await?;
    stage.waits_for_the_next(&mut office).await?;
    let mut office = stage.takes_over(office).await?;
    stage.duplicate(&mut office).await?;
    stage.books(&office).await?;
    office.quell.shutdown().await;
    Ok(())
}

/// A worker in this process whose handler waits until it is let go.
struct Office {
    quell: Quell,
    handed: mpsc::UnboundedReceiver<Run>,
    let_go: Arc<Semaphore>,
}

impl Office {
    async fn open(url: &str, name: &str) -> Result<Office, Failure> {
        let (hand, handed) = mpsc::unbounded_channel();
        let let_go = Arc::new(Semaphore::new(0));
        let permission = let_go.clone();
        let handler = from_fn(move |run: Run| {
            let (hand, permission) = (hand.clone(), permission.clone());
            async move {
                // Nobody listens only when the demo has failed and is ending.
                let _ = hand.send(run);
                if let Ok(permit) = permission.acquire().await {
                    permit.forget();
                }
                Outcome::succeeded()
            }
        });
        let quell = Quell::open(url).worker_name(name).queue(QUEUE, queue().handler(handler)).start().await?;
        Ok(Office { quell, handed, let_go })
    }

    /// The next batch that the worker was handed; its handler is still busy with it.
    async fn batch(&mut self) -> Result<Run, Failure> {
        match timeout(PATIENCE, self.handed.recv()).await {
            Ok(Some(run)) => Ok(run),
            _ => Err(broken("no batch was handed over in time")),
        }
    }

    fn finish(&self) {
        self.let_go.add_permits(1);
    }

    async fn send(&self, key: &str, payload: serde_json::Value) -> Result<Receipt, Failure> {
        Ok(self.quell.send(QUEUE, key, payload).await?)
    }
}

fn broken(what: &str) -> Failure {
    Failure::new(failure::FAILED, format!("the demo failed: {what}"))
}

struct Stage {
    time: RealTime,
    url: String,
}

impl Stage {
    fn title(&self, text: &str) -> std::io::Result<()> {
        output::line(format!("\n{}", text.bold()))
    }

    fn say(&self, text: &str) -> std::io::Result<()> {
        let passed = self.time.tick().since(Tick::default()).as_millis();
        let stamp = format!("{:>2}.{:01}s", passed / 1_000, passed % 1_000 / 100);
        output::line(format!("{}  {text}", stamp.dimmed()))
    }

    fn told(&self, run: &Run) -> std::io::Result<()> {
        let batch = run.batch();
        let texts: Vec<String> = batch.events.iter().map(|event| event.payload.as_str().to_owned()).collect();
        self.say(&format!(
            "handed over: {} of {} in one batch, fired by {}, {}",
            times::count(u64::try_from(texts.len()).unwrap_or(0), "event"),
            run.key().bold(),
            run.fired_by().as_str(),
            texts.join(" "),
        ))
    }

    async fn one_batch(&self, office: &mut Office) -> Result<(), Failure> {
        self.title("1. Three quick events of one customer become one batch")?;
        for item in ["tea", "milk", "sugar"] {
            let receipt = office.send("ada", json!({ "add": item })).await?;
            self.say(&format!(
                "stored {item} as event {} in {}",
                output::or_dash(receipt.seq),
                output::or_dash(receipt.run_id)
            ))?;
        }
        let run = office.batch().await?;
        self.told(&run)?;
        office.finish();
        if run.events().len() == 3 { Ok(()) } else { Err(broken("the three events were not one batch")) }
    }

    async fn waits_for_the_next(&self, office: &mut Office) -> Result<(), Failure> {
        self.title("2. An event that arrives during a run waits for the next one")?;
        office.send("ada", json!({ "add": "bread" })).await?;
        let first = office.batch().await?;
        self.told(&first)?;
        let late = office.send("ada", json!({ "add": "butter" })).await?;
        self.say("the handler is busy, and butter arrives")?;
        let lane = LaneKey::new(QueueName::new(QUEUE)?, Key::new("ada")?);
        if let Some(detail) = office.quell.lane(lane).await? {
            self.say(&format!("ada is {}", detail.row.why))?;
        }
        office.finish();
        let second = office.batch().await?;
        self.told(&second)?;
        office.finish();
        let apart = late.run_id == Some(second.run_id()) && first.run_id() != second.run_id();
        if apart && second.events().len() == 1 {
            Ok(())
        } else {
            Err(broken("butter was not a run of its own"))
        }
    }

    async fn takes_over(&self, office: Office) -> Result<Office, Failure> {
        self.title("3. A worker process is killed, another one takes over")?;
        let engine = office.quell.engine().clone();
        // First nobody works, so that only the victim can claim what is sent now.
        office.quell.shutdown().await;
        let receipt = engine.send(QUEUE, "bob", json!({ "pay": 42 })).await?;
        self.say(&format!("stored a payment as event {}", output::or_dash(receipt.seq)))?;
        let mut victim = self.victim()?;
        let held = holding(&mut victim).await?;
        let pid = victim.id().unwrap_or(0);
        self.say(&format!(
            "process {pid} holds {} with token {}, attempt {}",
            held.run, held.token, held.attempt
        ))?;
        victim.kill().await?;
        self.say(&format!("{} of process {pid}: it can neither finish nor say goodbye", "kill -9".red()))?;
        let mut office = Office::open(&self.url, "second").await?;
        let run = office.batch().await?;
        self.say(&format!(
            "its lease ran out; process {} has {} now, with token {}, attempt {}",
            std::process::id(),
            run.run_id(),
            run.token(),
            run.attempt()
        ))?;
        office.finish();
        let same = run.run_id().to_string() == held.run && run.attempt() == held.attempt + 1;
        if same && run.token() > held.token { Ok(office) } else { Err(broken("the run was not taken over")) }
    }

    /// This very program as another process.
    fn victim(&self) -> Result<Child, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["demo-worker", "--url", &self.url]);
        Ok(command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?)
    }

    async fn duplicate(&self, office: &mut Office) -> Result<(), Failure> {
        self.title("4. The same id twice is stored once")?;
        let event = |amount: u32| -> Result<Incoming, Failure> {
            let payload = Payload::of(&json!({ "refund": amount }));
            Ok(Incoming::new(QUEUE, "cyd", payload)?.id("refund-17")?)
        };
        let mut receipts = office.quell.append(vec![event(5)?]).await?;
        receipts.extend(office.quell.append(vec![event(5)?]).await?);
        for receipt in &receipts {
            let word = if receipt.duplicate { "already there, the first receipt again" } else { "stored" };
            self.say(&format!("sent {}: {word}, event {}", receipt.event_id, output::or_dash(receipt.seq)))?;
        }
        match office.quell.append(vec![event(500)?]).await {
            Err(EngineError::Store(error)) => self.say(&format!("sent it with another amount: {error}"))?,
            _ => return Err(broken("an id was taken for another payload")),
        }
        let run = office.batch().await?;
        self.told(&run)?;
        office.finish();
        if run.events().len() == 1 { Ok(()) } else { Err(broken("a duplicate was stored")) }
    }

    async fn books(&self, office: &Office) -> Result<(), Failure> {
        self.title("5. Everything is written down, and nothing is lost")?;
        timeout(PATIENCE, office.quell.until_idle()).await.map_err(|_| broken("work was left over"))??;
        let filter = AuditFilter { limit: limits::PAGE_MAX, ..AuditFilter::default() };
        let mut records = office.quell.audit(filter).await?.items;
        records.reverse();
        audit::table(&records, context::now(&office.quell).await?, true).write()?;
        output::line("")?;
        let (queues, verified) = (office.quell.stats().await?, office.quell.verify().await?);
        doctor::equation(&queues).write()?;
        if let Some(problem) = verified.problems.first() {
            return Err(broken(problem));
        }
        output::line("")?;
        self.say(&format!("{} all {} events are accounted for", "ok".green(), verified.events))?;
        output::line(format!("\nNext: {}, or docs/guide/first-steps.md", "quell serve".cyan()))?;
        Ok(())
    }
}

/// Waits until the other process holds a lease.
async fn holding(victim: &mut Child) -> Result<Holding, Failure> {
    let stdout = victim.stdout.take().ok_or_else(|| broken("the other process has no output"))?;
    let mut lines = BufReader::new(stdout).lines();
    match timeout(PATIENCE, lines.next_line()).await {
        Ok(Ok(Some(line))) => serde_json::from_str(&line).map_err(|e| broken(&e.to_string())),
        _ => Err(broken("the other process claimed nothing")),
    }
}
