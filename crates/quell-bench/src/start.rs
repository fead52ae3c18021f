//! Start latency at low load: from the moment the sender calls append until the handler begins.

use std::time::Duration;

use quell::{Incoming, Outcome, Queue, Run, Shutdown, Worker, from_fn};
use tokio::sync::mpsc;

use crate::{Figure, Options, Watch, key, open, payload, percentile, scratch};

const SAMPLES: usize = 300;

pub(crate) async fn run(options: &Options) -> anyhow::Result<Vec<Figure>> {
    let folder = scratch(&options.folder)?;
    let (begun, mut begins) = mpsc::unbounded_channel();
    let handler = from_fn(move |_: Run| {
        // The receiver lives as long as the workload.
        let _ = begun.send(());
        async { Outcome::succeeded() }
    });
    let (engine, worker) = open(&folder, Queue::none().handler(handler), 16).await?;
    let shutdown = Shutdown::new();
    let working = tokio::spawn(Worker::new(engine.clone(), worker)?.run(shutdown.clone()));
    let mut samples = Vec::with_capacity(SAMPLES);
    for n in 0..SAMPLES + 20 {
        let watch = Watch::start();
        engine.append(vec![Incoming::new("bench", &key(n), payload(n))?]).await?;
        begins.recv().await;
        if n >= 20 {
            samples.push(watch.elapsed().as_secs_f64() * 1_000.0);
        }
        quell::clock::sleep(Duration::from_millis(5)).await;
    }
    shutdown.request();
    working.await?;
    samples.sort_by(f64::total_cmp);
    let (p50, p99) = (percentile(&samples, 0.5), percentile(&samples, 0.99));
    Ok(vec![
        Figure::new("start", "start latency p50", p50, "ms").target("≤ 2 ms", p50 <= 2.0),
        Figure::new("start", "start latency p99", p99, "ms").target("≤ 10 ms", p99 <= 10.0),
    ])
}
