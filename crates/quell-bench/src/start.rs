//! Start latency at low load: from the moment the sender calls append until the handler begins.

use std::time::Duration;

use quell::{Incoming, Outcome, Queue, Run, from_fn};
use tokio::sync::mpsc;

use crate::place::Fresh;
use crate::targets::Targets;
use crate::{Figure, Sizes, Watch, Working, key, payload, percentile};

/// Events before the first that counts.
const WARM_UP: usize = 20;

pub(crate) async fn run(fresh: &Fresh, sizes: &Sizes, targets: &Targets) -> anyhow::Result<Vec<Figure>> {
    let (begun, mut begins) = mpsc::unbounded_channel();
    let handler = from_fn(move |_: Run| {
        // The receiver lives as long as the workload.
        let _ = begun.send(());
        async { Outcome::succeeded() }
    });
    let (engine, worker) = fresh.open(Queue::none().handler(handler), 16).await?;
    let working = Working::start(&engine, &worker)?;
    let mut samples = Vec::with_capacity(sizes.starts);
    for n in 0..sizes.starts + WARM_UP {
        let watch = Watch::start();
        engine.append(vec![Incoming::new("bench", &key(n), payload(n))?]).await?;
        begins.recv().await;
        if n >= WARM_UP {
            samples.push(watch.millis());
        }
        quell::clock::sleep(Duration::from_millis(5)).await;
    }
    working.end().await?;
    samples.sort_by(f64::total_cmp);
    let (p50, p99) = (percentile(&samples, 0.5), percentile(&samples, 0.99));
    Ok(vec![
        Figure::new("start", "start latency p50", p50, "ms").at_most(targets.start_p50_ms),
        Figure::new("start", "start latency p99", p99, "ms").at_most(targets.start_p99_ms),
    ])
}
