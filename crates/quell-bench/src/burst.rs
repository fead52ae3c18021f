//! Burst and timer: many windows that end at about the same time.
//!
//! Lateness is in store time: from the moment the window was over to the claim.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use quell::{Engine, Incoming, Outcome, Queue, Run, Shutdown, Worker, WorkerOptions, from_fn};

use crate::{Figure, Options, Watch, key, open, payload, percentile, scratch};

const KEYS: usize = 1_000;
const ROUNDS: usize = 20;
const QUIET: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Handled {
    runs: usize,
    events: usize,
    late_ms: Vec<f64>,
}

pub(crate) async fn run(options: &Options) -> anyhow::Result<Vec<Figure>> {
    let folder = scratch(&options.folder)?;
    let handled = Arc::new(Mutex::new(Handled::default()));
    let queue = Queue::quiet(QUIET).handler(recorder(handled.clone(), QUIET));
    let (engine, worker) = open(&folder, queue, 512).await?;
    let (shutdown, working) = start(&engine, worker)?;

    let watch = Watch::start();
    for round in 0..ROUNDS {
        for start in (0..KEYS).step_by(100) {
            let events = (start..start + 100).map(|n| Incoming::new("bench", &key(n), payload(n)));
            engine.append(events.collect::<Result<_, _>>()?).await?;
        }
        // Paced over two seconds: each key's next event comes well within its quiet period.
        let next = Duration::from_millis(100) * u32::try_from(round + 1).unwrap_or(u32::MAX);
        quell::clock::sleep(next.saturating_sub(watch.elapsed())).await;
    }
    let paced = watch.elapsed();
    until(&handled, KEYS * ROUNDS, Duration::from_secs(30)).await?;
    shutdown.request();
    working.await?;

    let handled = std::mem::take(&mut *handled.lock().expect("the worker has ended"));
    let mut late = handled.late_ms;
    late.sort_by(f64::total_cmp);
    let p99 = percentile(&late, 0.99);
    let (runs, events) = (handled.runs as f64, handled.events as f64);
    Ok(vec![
        Figure::new("burst", "time to append 20,000 events", paced.as_secs_f64(), "s"),
        Figure::new("burst", "runs", runs, "").target("exactly 1,000", handled.runs == KEYS),
        Figure::new("burst", "events delivered", events, "")
            .target("20,000", handled.events == KEYS * ROUNDS),
        Figure::new("burst", "lateness p50", percentile(&late, 0.5), "ms"),
        Figure::new("burst", "lateness p99", p99, "ms").target("≤ 50 ms", p99 <= 50.0),
    ])
}

/// Ten thousand fixed windows that end within two seconds, with the worker otherwise idle.
pub(crate) async fn timer(options: &Options) -> anyhow::Result<Vec<Figure>> {
    const LANES: usize = 10_000;
    let wait = Duration::from_secs(3);
    let folder = scratch(&options.folder)?;
    let handled = Arc::new(Mutex::new(Handled::default()));
    let queue = Queue::fixed(wait).handler(recorder(handled.clone(), wait));
    let (engine, worker) = open(&folder, queue, 512).await?;
    let (shutdown, working) = start(&engine, worker)?;
    let watch = Watch::start();
    for (turn, start) in (0..LANES).step_by(50).enumerate() {
        let events = (start..start + 50).map(|n| Incoming::new("bench", &key(n), payload(n)));
        engine.append(events.collect::<Result<_, _>>()?).await?;
        let next = Duration::from_millis(10) * u32::try_from(turn + 1).unwrap_or(u32::MAX);
        quell::clock::sleep(next.saturating_sub(watch.elapsed())).await;
    }
    until(&handled, LANES, Duration::from_secs(30)).await?;
    shutdown.request();
    working.await?;
    let mut late = std::mem::take(&mut handled.lock().expect("the worker has ended").late_ms);
    late.sort_by(f64::total_cmp);
    let p99 = percentile(&late, 0.99);
    Ok(vec![
        Figure::new("timer", "lateness p50, 10,000 lanes within 2 s", percentile(&late, 0.5), "ms"),
        Figure::new("timer", "lateness p99", p99, "ms").target("≤ 10 ms", p99 <= 10.0),
    ])
}

fn recorder(handled: Arc<Mutex<Handled>>, wait: Duration) -> impl quell::Handler {
    from_fn(move |run: Run| {
        let batch = run.batch();
        let late = batch.claimed_at.as_millis() - batch.last_at.after(wait).as_millis();
        let mut handled = handled.lock().expect("no panic happens while it is locked");
        handled.runs += 1;
        handled.events += batch.events.len();
        handled.late_ms.push(late as f64);
        async { Outcome::succeeded() }
    })
}

fn start(
    engine: &Engine,
    options: WorkerOptions,
) -> anyhow::Result<(Shutdown, tokio::task::JoinHandle<quell::WorkerReport>)> {
    let shutdown = Shutdown::new();
    let worker = Worker::new(engine.clone(), options)?;
    Ok((shutdown.clone(), tokio::spawn(worker.run(shutdown))))
}

async fn until(handled: &Mutex<Handled>, events: usize, patience: Duration) -> anyhow::Result<()> {
    let watch = Watch::start();
    loop {
        let seen = handled.lock().expect("no panic happens while it is locked").events;
        if seen >= events {
            return Ok(());
        }
        anyhow::ensure!(watch.elapsed() < patience, "only {seen} of {events} events after {patience:?}");
        quell::clock::sleep(Duration::from_millis(20)).await;
    }
}
