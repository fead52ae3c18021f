//! Keyed: strictly serial per key, checked by the handler itself.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quell::{Incoming, Outcome, Queue, Run, from_fn};

use crate::place::Fresh;
use crate::targets::Targets;
use crate::{BULK, Figure, Sizes, Watch, drain, grouped, key, payload};

#[derive(Default)]
struct Seen {
    /// Per key: whether a handler is in it, and the latest sequence number.
    keys: Mutex<std::collections::HashMap<String, (bool, u64)>>,
    overlaps: AtomicU64,
    disorders: AtomicU64,
    runs: AtomicUsize,
}

pub(crate) async fn run(fresh: &Fresh, sizes: &Sizes, targets: &Targets) -> anyhow::Result<Vec<Figure>> {
    let (keys, events) = (sizes.keyed_keys, sizes.keyed_events);
    let seen = Arc::new(Seen::default());
    let handler = {
        let seen = seen.clone();
        from_fn(move |run: Run| {
            let seen = seen.clone();
            async move {
                enter(&seen, &run);
                quell::clock::sleep(Duration::from_millis(1)).await;
                leave(&seen, &run);
                Outcome::succeeded()
            }
        })
    };
    let (engine, worker) = fresh.open(Queue::none().max_events(1).handler(handler), keys).await?;
    for start in (0..events).step_by(BULK) {
        let end = (start + BULK).min(events);
        let bulk = (start..end).map(|n| Incoming::new("bench", &key(n % keys), payload(n)));
        engine.append(bulk.collect::<Result<_, _>>()?).await?;
    }
    let watch = Watch::start();
    drain(&engine, &worker).await?;
    let seconds = watch.elapsed().as_secs_f64();
    let (overlaps, disorders) = (seen.overlaps.load(Ordering::SeqCst), seen.disorders.load(Ordering::SeqCst));
    let runs = seen.runs.load(Ordering::SeqCst);
    anyhow::ensure!(runs == events, "{runs} runs for {events} events");
    let faults = (overlaps + disorders) as f64;
    let what = format!("{} events, {} keys, 1 ms handler", grouped(events as f64), grouped(keys as f64));
    Ok(vec![
        Figure::new("keyed", what, seconds, "s").at_most(targets.keyed_s),
        Figure::new("keyed", "overlaps and order violations", faults, "").target("0", faults == 0.0),
    ])
}

fn enter(seen: &Seen, run: &Run) {
    let mut keys = seen.keys.lock().expect("no panic happens while it is locked");
    let (busy, latest) = keys.entry(run.key().as_str().to_owned()).or_default();
    if std::mem::replace(busy, true) {
        seen.overlaps.fetch_add(1, Ordering::SeqCst);
    }
    for event in run.events() {
        if event.seq <= *latest {
            seen.disorders.fetch_add(1, Ordering::SeqCst);
        }
        *latest = event.seq;
    }
    seen.runs.fetch_add(1, Ordering::SeqCst);
}

fn leave(seen: &Seen, run: &Run) {
    let mut keys = seen.keys.lock().expect("no panic happens while it is locked");
    keys.entry(run.key().as_str().to_owned()).or_default().0 = false;
}
