//! Burst and timer: many windows that end at about the same time.
//!
//! Lateness is in store time: from the moment the window was over to the claim.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use quell::{Incoming, Outcome, Queue, Run, from_fn};

use crate::place::Fresh;
use crate::targets::{self, Targets};
use crate::{Figure, Sizes, Watch, Working, grouped, key, payload, percentile};

const QUIET: Duration = Duration::from_secs(1);
/// Lanes worked on at once: the windows of all keys end together, so there is room for all.
const AT_ONCE: usize = 1024;

#[derive(Default)]
struct Handled {
    runs: usize,
    events: usize,
    late_ms: Vec<f64>,
}

pub(crate) async fn run(fresh: &Fresh, sizes: &Sizes) -> anyhow::Result<Vec<Figure>> {
    let (keys, rounds) = (sizes.burst_keys, sizes.burst_rounds);
    let handled = Arc::new(Mutex::new(Handled::default()));
    let queue = Queue::quiet(QUIET).handler(recorder(handled.clone(), QUIET));
    let (engine, worker) = fresh.open(queue, AT_ONCE).await?;
    let working = Working::start(&engine, &worker)?;

    let watch = Watch::start();
    for round in 0..rounds {
        for start in (0..keys).step_by(100) {
            let events =
                (start..(start + 100).min(keys)).map(|n| Incoming::new("bench", &key(n), payload(n)));
            engine.append(events.collect::<Result<_, _>>()?).await?;
        }
        // Paced over two seconds: each key's next event comes well within its quiet period.
        let next = Duration::from_millis(100) * u32::try_from(round + 1).unwrap_or(u32::MAX);
        quell::clock::sleep(next.saturating_sub(watch.elapsed())).await;
    }
    let paced = watch.elapsed();
    until(&handled, keys * rounds, Duration::from_secs(30)).await?;
    working.end().await?;

    let handled = std::mem::take(&mut *handled.lock().expect("the worker has ended"));
    let mut late = handled.late_ms;
    late.sort_by(f64::total_cmp);
    let p99 = percentile(&late, 0.99);
    let (runs, events) = (handled.runs as f64, handled.events as f64);
    let all = grouped((keys * rounds) as f64);
    Ok(vec![
        Figure::new("burst", format!("time to append {all} events"), paced.as_secs_f64(), "s"),
        Figure::new("burst", "runs", runs, "")
            .target(format!("exactly {}", grouped(keys as f64)), handled.runs == keys),
        Figure::new("burst", "events delivered", events, "").target(all, handled.events == keys * rounds),
        Figure::new("burst", "lateness p50", percentile(&late, 0.5), "ms"),
        Figure::new("burst", "lateness p99", p99, "ms").at_most(targets::BURST_P99_MS),
    ])
}

/// Ten thousand fixed windows that end within two seconds and then within one, with the worker otherwise idle.
pub(crate) async fn timer(fresh: &Fresh, sizes: &Sizes, targets: &Targets) -> anyhow::Result<Vec<Figure>> {
    let lanes = sizes.timers;
    let wait = Duration::from_secs(3);
    let handled = Arc::new(Mutex::new(Handled::default()));
    let queue = Queue::fixed(wait).handler(recorder(handled.clone(), wait));
    let (engine, worker) = fresh.open(queue, 512).await?;
    let working = Working::start(&engine, &worker)?;
    let mut figures = Vec::new();
    for (pass, within) in [2, 1].into_iter().enumerate() {
        *handled.lock().expect("no panic happens while it is locked") = Handled::default();
        let watch = Watch::start();
        let ticks = within * 100;
        let each = lanes.div_ceil(ticks);
        for (turn, start) in (0..lanes).step_by(each).enumerate() {
            let numbers = (start..(start + each).min(lanes)).map(|n| pass * lanes + n);
            let events = numbers.map(|n| Incoming::new("bench", &key(n), payload(n)));
            engine.append(events.collect::<Result<_, _>>()?).await?;
            let next = Duration::from_millis(10) * u32::try_from(turn + 1).unwrap_or(u32::MAX);
            quell::clock::sleep(next.saturating_sub(watch.elapsed())).await;
        }
        until(&handled, lanes, Duration::from_secs(30)).await?;
        let mut late =
            std::mem::take(&mut handled.lock().expect("no panic happens while it is locked").late_ms);
        late.sort_by(f64::total_cmp);
        let what =
            |share: &str| format!("lateness {share}, {} lanes within {within} s", grouped(lanes as f64));
        figures.extend([
            Figure::new("timer", what("p50"), percentile(&late, 0.5), "ms"),
            Figure::new("timer", what("p99"), percentile(&late, 0.99), "ms").at_most(targets.timer_p99_ms),
        ]);
    }
    working.end().await?;
    Ok(figures)
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
