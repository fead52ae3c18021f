//! Hot: one key that gets thousands of events a second, beside many that get a few.
//!
//! First the others alone; then the hot key as well, whose handler is stuck, so that its lane grows; then its handler works
//! again and empties the lane while events keep coming. What the others are told of each of the three times has to be the same:
//! how soon an append is acknowledged, how soon its handler begins, how many are handled. The handler itself looks for order
//! and loss on the hot key.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quell::quell_core::event::Overflow;
use quell::{Engine, Incoming, Outcome, Queue, Run, from_fn};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::place::Fresh;
use crate::waiting::resident_mb_of;
use crate::{Figure, Sizes, Watch, Working, grouped, key, payload, percentile, targets};

/// Other keys, which take turns.
const OTHERS: usize = 1_000;
/// Events a second for all of them together.
const OTHERS_RATE: usize = 500;
/// Both streams send so often.
const TICK: Duration = Duration::from_millis(10);
const TICKS_PER_SECOND: usize = 100;
/// More than the hot lane ever holds.
const LANE_EVENTS: u64 = 1_000_000;
const PATIENCE: Duration = Duration::from_secs(300);

/// The key that is hot; no number of the others makes it.
const HOT: &str = "hot";

/// Shared with the handler.
struct Seen {
    /// The hot handler waits until this is true.
    open: watch::Sender<bool>,
    hot_events: AtomicUsize,
    hot_runs: AtomicUsize,
    hot_last: AtomicU64,
    disorder: AtomicBool,
    /// Milliseconds of store time from the append to the claim, of the others.
    starts: Mutex<Vec<f64>>,
}

/// What the others were told during one of the three times.
struct Told {
    acks: Vec<f64>,
    starts: Vec<f64>,
    handled_per_second: f64,
}

pub(crate) async fn run(fresh: &Fresh, sizes: &Sizes) -> anyhow::Result<Vec<Figure>> {
    let seen = Arc::new(Seen {
        open: watch::Sender::new(false),
        hot_events: AtomicUsize::new(0),
        hot_runs: AtomicUsize::new(0),
        hot_last: AtomicU64::new(0),
        disorder: AtomicBool::new(false),
        starts: Mutex::default(),
    });
    let queue = Queue::none().max_lane_events(LANE_EVENTS, Overflow::Reject).handler(handler(seen.clone()));
    let (engine, worker) = fresh.open(queue, 256).await?;
    let working = Working::start(&engine, &worker)?;
    let part = sizes.hot / 2;

    others(&engine, &seen, part / 4).await?; // Not counted: everything is cold.
    let alone = others(&engine, &seen, part).await?;
    let resident = resident_mb_of("self");
    let before = fresh.bytes().await?;
    let (growing, grown) =
        tokio::try_join!(others(&engine, &seen, part), hot(&engine, sizes.hot_rate, part))?;
    let longest = grown.events - seen.hot_events.load(Ordering::SeqCst);
    let resident_grown = resident_mb_of("self");
    seen.open.send_replace(true);
    let (draining, drained) =
        tokio::try_join!(others(&engine, &seen, part), hot(&engine, sizes.hot_rate, part))?;
    let events = grown.events + drained.events;
    let left = events - seen.hot_events.load(Ordering::SeqCst).min(events);
    let watch = Watch::start();
    while seen.hot_events.load(Ordering::SeqCst) < events {
        anyhow::ensure!(watch.elapsed() < PATIENCE, "the hot lane is not empty after {PATIENCE:?}");
        quell::clock::sleep(TICK).await;
    }
    working.end().await?;
    let after = fresh.bytes().await?;
    let delivered = seen.hot_events.load(Ordering::SeqCst);
    anyhow::ensure!(delivered == events, "{delivered} of {events} events of the hot key were delivered");
    anyhow::ensure!(!seen.disorder.load(Ordering::SeqCst), "events of the hot key came out of order");

    let figure = |what: String, value, unit| Figure::new("hot", what, value, unit);
    let mut figures = Vec::new();
    for (when, told) in [
        ("alone", &alone),
        ("beside a hot lane that grows", &growing),
        ("beside a hot lane that is emptied", &draining),
    ] {
        let (ack, start) = (percentile(&told.acks, 0.99), percentile(&told.starts, 0.99));
        let kept = told.handled_per_second / alone.handled_per_second;
        figures.extend([
            figure(format!("other keys {when}: acknowledgement p50"), percentile(&told.acks, 0.5), "ms"),
            figure(format!("other keys {when}: acknowledgement p99"), ack, "ms"),
            figure(format!("other keys {when}: append to claim p99"), start, "ms")
                .at_most(targets::HOT_START_MS),
            figure(format!("other keys {when}: handled"), told.handled_per_second, "events/s")
                .target(format!("≥ {} × alone", targets::HOT_KEEPS), kept >= targets::HOT_KEEPS),
        ]);
    }
    let rate = grouped(sizes.hot_rate as f64);
    figures.extend([
        figure(
            format!("hot key: accepted, {rate} events/s wanted"),
            grown.rate.min(drained.rate),
            "events/s",
        )
        .target("≥ 0.98 × wanted", grown.rate.min(drained.rate) >= 0.98 * sizes.hot_rate as f64),
        figure("hot key: events in its lane at the most".to_owned(), longest as f64, "events"),
        figure("hot key: left when the last was sent".to_owned(), left as f64, "events"),
        figure("hot key: events of one run".to_owned(), events as f64 / runs(&seen), "events"),
        figure(
            "store: bytes for each event meanwhile".to_owned(),
            after.saturating_sub(before) as f64 / (events + 2 * alone.acks.len()) as f64,
            "B",
        ),
    ]);
    if let (Some(before), Some(grown), Some(after)) = (resident, resident_grown, resident_mb_of("self")) {
        let what = |when: &str| format!("memory of this process {when}");
        figures.extend([
            figure(what("before the hot key"), before, "MB"),
            figure(what("with the hot lane at its longest"), grown, "MB"),
            figure(what("at the end"), after, "MB").at_most(targets::RESIDENT_MB),
        ]);
    }
    Ok(figures)
}

fn runs(seen: &Seen) -> f64 {
    seen.hot_runs.load(Ordering::SeqCst).max(1) as f64
}

fn handler(seen: Arc<Seen>) -> impl quell::Handler {
    from_fn(move |run: Run| {
        let seen = seen.clone();
        async move {
            let batch = run.batch();
            let Some(first) = batch.events.first() else { return Outcome::succeeded() };
            if batch.lane.key.as_str() == HOT {
                let mut open = seen.open.subscribe();
                // The sender lives as long as the workload.
                let _ = open.wait_for(|open| *open).await;
                let last = batch.events.last().map_or(first.seq, |event| event.seq);
                let earlier = seen.hot_last.swap(last, Ordering::SeqCst);
                if first.seq <= earlier {
                    seen.disorder.store(true, Ordering::SeqCst);
                }
                seen.hot_runs.fetch_add(1, Ordering::SeqCst);
                seen.hot_events.fetch_add(batch.events.len(), Ordering::SeqCst);
            } else {
                let start = batch.claimed_at.as_millis() - first.received_at.as_millis();
                let mut starts = seen.starts.lock().expect("no panic happens while it is locked");
                starts.extend(batch.events.iter().map(|_| start as f64));
            }
            Outcome::succeeded()
        }
    })
}

/// A few events for each of many keys, at a fixed rate whatever happens.
async fn others(engine: &Engine, seen: &Seen, lasts: Duration) -> anyhow::Result<Told> {
    let sent = send(engine, lasts, OTHERS_RATE, |n| key(n % OTHERS)).await?;
    // Each is handled before the next time begins, or it would count there.
    let watch = Watch::start();
    let handled = |seen: &Seen| seen.starts.lock().expect("no panic happens while it is locked").len();
    while handled(seen) < sent.events {
        anyhow::ensure!(watch.elapsed() < PATIENCE, "other keys wait for longer than {PATIENCE:?}");
        quell::clock::sleep(TICK).await;
    }
    let seconds = (sent.seconds + watch.elapsed().as_secs_f64()).max(f64::MIN_POSITIVE);
    let mut starts = std::mem::take(&mut *seen.starts.lock().expect("no panic happens while it is locked"));
    starts.sort_by(f64::total_cmp);
    let mut acks = sent.acks;
    acks.sort_by(f64::total_cmp);
    let handled_per_second = sent.events as f64 / seconds;
    Ok(Told { acks, starts, handled_per_second })
}

async fn hot(engine: &Engine, rate: usize, lasts: Duration) -> anyhow::Result<Sent> {
    send(engine, lasts, rate, |_| HOT.to_owned()).await
}

/// What was sent, and how it was answered.
struct Sent {
    events: usize,
    acks: Vec<f64>,
    seconds: f64,
    rate: f64,
}

/// Single events, each a call of its own, some at each tick.
async fn send(
    engine: &Engine,
    lasts: Duration,
    rate: usize,
    key_of: impl Fn(usize) -> String,
) -> anyhow::Result<Sent> {
    let watch = Watch::start();
    let (mut events, mut acks) = (0, Vec::new());
    let mut calls = JoinSet::new();
    let mut tick = 0_u32;
    while TICK * tick < lasts {
        quell::clock::sleep((TICK * tick).saturating_sub(watch.elapsed())).await;
        tick += 1;
        // A store that cannot keep up gets no more than the calls of one second at once, and the rate shows it.
        while calls.len() > rate {
            if let Some(ended) = calls.join_next().await {
                acks.push(ended??);
            }
        }
        let wanted = rate * tick as usize / TICKS_PER_SECOND;
        for n in events..wanted {
            let (engine, event) = (engine.clone(), Incoming::new("bench", &key_of(n), payload(n))?);
            calls.spawn(async move {
                let watch = Watch::start();
                engine.append(vec![event]).await?;
                anyhow::Ok(watch.millis())
            });
        }
        events = events.max(wanted);
        while let Some(ended) = calls.try_join_next() {
            acks.push(ended??);
        }
    }
    while let Some(ended) = calls.join_next().await {
        acks.push(ended??);
    }
    let seconds = watch.elapsed().as_secs_f64();
    Ok(Sent { events, acks, seconds, rate: events as f64 / seconds.max(lasts.as_secs_f64()) })
}
