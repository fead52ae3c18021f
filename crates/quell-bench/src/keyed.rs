//! Keyed: strictly serial per key, checked by the handler itself.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quell::{Incoming, Outcome, Queue, Run, from_fn};

use crate::{Figure, Options, Watch, drain, key, open, payload, scratch};

const KEYS: usize = 500;
const EVENTS: usize = 10_000;

#[derive(Default)]
struct Seen {
    /// Per key: whether a handler is in it, and the latest sequence number.
    keys: Mutex<std::collections::HashMap<String, (bool, u64)>>,
    overlaps: AtomicU64,
    disorders: AtomicU64,
    runs: AtomicUsize,
}

pub(crate) async fn run(options: &Options) -> anyhow::Result<Vec<Figure>> {
    let folder = scratch(&options.folder)?;
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
    let (engine, worker) = open(&folder, Queue::none().max_events(1).handler(handler), KEYS).await?;
    for start in (0..EVENTS).step_by(1_000) {
        let events = (start..start + 1_000).map(|n| Incoming::new("bench", &key(n % KEYS), payload(n)));
        engine.append(events.collect::<Result<_, _>>()?).await?;
    }
    let watch = Watch::start();
    drain(&engine, &worker).await?;
    let seconds = watch.elapsed().as_secs_f64();
    let (overlaps, disorders) = (seen.overlaps.load(Ordering::SeqCst), seen.disorders.load(Ordering::SeqCst));
    let runs = seen.runs.load(Ordering::SeqCst);
    anyhow::ensure!(runs == EVENTS, "{runs} runs for {EVENTS} events");
    let faults = (overlaps + disorders) as f64;
    Ok(vec![
        Figure::new("keyed", "10,000 events, 500 keys, 1 ms handler", seconds, "s")
            .target("≤ 0.85 s", seconds <= 0.85),
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
