//! Waiting: the same work beside few and beside very many lanes whose time is far away.
//!
//! A queue that debounces has most of its lanes waiting most of the time. What is due must be found as quickly among a
//! million of them as among a thousand, and the process must not grow with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quell::quell_core::window::WindowPolicy;
use quell::{Engine, Incoming, Outcome, Queue, Run, WorkerOptions, from_fn};
use tokio::sync::Notify;

use crate::place::Fresh;
use crate::{
    Figure, Sizes, Watch, Working, append_all, append_with, grouped, key, median, payload, percentile,
    targets,
};

const FEW: usize = 1_000;
/// Their median counts.
const CYCLES: usize = 3;
const PATIENCE: Duration = Duration::from_secs(120);
/// The worker sleeps again before the next event of those that come alone.
const BETWEEN_STARTS: Duration = Duration::from_millis(5);
/// No benchmark lasts this long.
pub(crate) const FAR: WindowPolicy = WindowPolicy::Fixed { wait: Duration::from_secs(24 * 3600) };

#[derive(Default)]
struct Handled {
    runs: AtomicUsize,
    wanted: AtomicUsize,
    reached: Notify,
}

/// A worker's place in which whole cycles are measured.
pub(crate) struct Bench {
    engine: Engine,
    worker: WorkerOptions,
    handled: Arc<Handled>,
    /// Keys from here on are unused.
    next: usize,
}

pub(crate) async fn run(fresh: &Fresh, sizes: &Sizes) -> anyhow::Result<Vec<Figure>> {
    let few = FEW.min(sizes.waiting);
    let mut bench = Bench::open(fresh, sizes.waiting).await?;

    append_with(&bench.engine, 0..few, |event| event.window(FAR)).await?;
    bench.cycle(sizes.waiting_cycle).await?; // Not counted: everything is cold.
    let before = bench.cycles(sizes.waiting_cycle).await?;
    let watch = Watch::start();
    append_with(&bench.engine, few..sizes.waiting, |event| event.window(FAR)).await?;
    let filled = watch.rate((sizes.waiting - few).max(1));
    let after = bench.cycles(sizes.waiting_cycle).await?;

    let beside =
        |lanes: usize| format!("append, claim, settle beside {} waiting lanes", grouped(lanes as f64));
    let kept = Figure::new("waiting", "what is left of the throughput", after / before, "×");
    let mut figures = vec![
        Figure::new("waiting", beside(few), before, "lanes/s"),
        Figure::new("waiting", "append of lanes that wait, in bulk", filled, "events/s"),
        Figure::new("waiting", beside(sizes.waiting), after, "lanes/s"),
        kept.at_least(targets::WAITING_KEEPS),
    ];
    if let Some(resident) = resident_mb() {
        let figure = Figure::new("waiting", "resident memory of this process", resident, "MB");
        figures.push(figure.at_most(targets::RESIDENT_MB));
    }
    Ok(figures)
}

impl Bench {
    /// Keys below this number are for others.
    pub(crate) async fn open(fresh: &Fresh, first: usize) -> anyhow::Result<Self> {
        let handled = Arc::new(Handled::default());
        let queue = Queue::none().handler(counting(handled.clone()));
        let (engine, worker) = fresh.open(queue, 1_024).await?;
        Ok(Bench { engine, worker, handled, next: first })
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Runs that have ended so far.
    pub(crate) fn ended(&self) -> usize {
        self.handled.runs.load(Ordering::SeqCst)
    }

    /// The first of so many keys that nobody uses but the one who asks.
    pub(crate) fn unused(&mut self, keys: usize) -> usize {
        self.next += keys;
        self.next - keys
    }

    /// From the sender's call to the handler's first line at low load, in milliseconds: p50 and p99.
    pub(crate) async fn starts(&mut self, count: usize) -> anyhow::Result<(f64, f64)> {
        let working = Working::start(&self.engine, &self.worker)?;
        let mut samples = Vec::with_capacity(count);
        for _ in 0..count {
            let n = self.unused(1);
            self.handled.wanted.store(self.ended() + 1, Ordering::SeqCst);
            let watch = Watch::start();
            self.engine.append(vec![Incoming::new("bench", &key(n), payload(n))?]).await?;
            let begun = tokio::time::timeout(PATIENCE, self.handled.reached.notified()).await;
            anyhow::ensure!(begun.is_ok(), "one event is not handled after {PATIENCE:?}");
            samples.push(watch.millis());
            quell::clock::sleep(BETWEEN_STARTS).await;
        }
        working.end().await?;
        samples.sort_by(f64::total_cmp);
        Ok((percentile(&samples, 0.5), percentile(&samples, 0.99)))
    }

    pub(crate) async fn cycles(&mut self, lanes: usize) -> anyhow::Result<f64> {
        let mut rates = Vec::with_capacity(CYCLES);
        for _ in 0..CYCLES {
            rates.push(self.cycle(lanes).await?);
        }
        Ok(median(rates))
    }

    /// Appends new lanes to a running worker and waits until it has settled them.
    pub(crate) async fn cycle(&mut self, lanes: usize) -> anyhow::Result<f64> {
        let wanted = self.handled.runs.load(Ordering::SeqCst) + lanes;
        self.handled.wanted.store(wanted, Ordering::SeqCst);
        let watch = Watch::start();
        let working = Working::start(&self.engine, &self.worker)?;
        append_all(&self.engine, self.next..self.next + lanes).await?;
        self.next += lanes;
        let reached = tokio::time::timeout(PATIENCE, self.handled.reached.notified()).await;
        let runs = self.handled.runs.load(Ordering::SeqCst);
        anyhow::ensure!(reached.is_ok(), "{} of {lanes} lanes are left after {PATIENCE:?}", wanted - runs);
        let report = working.end().await?;
        anyhow::ensure!(report.settled == lanes as u64, "{lanes} lanes and {report:?}");
        Ok(watch.rate(lanes))
    }
}

fn counting(handled: Arc<Handled>) -> impl quell::Handler {
    from_fn(move |_: Run| {
        let runs = handled.runs.fetch_add(1, Ordering::SeqCst) + 1;
        if runs == handled.wanted.load(Ordering::SeqCst) {
            handled.reached.notify_one();
        }
        async { Outcome::succeeded() }
    })
}

/// What the kernel says; nothing where it does not.
fn resident_mb() -> Option<f64> {
    resident_mb_of("self")
}

/// Of the process with this id.
pub(crate) fn resident_mb_of(process: &str) -> Option<f64> {
    megabytes_of(process, "VmRSS:")
}

/// The most that the process with this id ever had.
pub(crate) fn peak_mb_of(process: &str) -> Option<f64> {
    megabytes_of(process, "VmHWM:")
}

fn megabytes_of(process: &str, named: &str) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(named))?;
    let kilobytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes / 1_024.0)
}
