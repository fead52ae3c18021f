//! Growth: the same work again while one thing grows, everything else being equal.
//!
//! | series | what grows | what is measured |
//! | --- | --- | --- |
//! | `growth-lanes` | lanes that wait, from a thousand to a million | whole cycles a second, start latency, memory of this process and of a server |
//! | `growth-sizes` | events of one lane, from 1 to 10,000 | append and drain a second, one claim |
//! | `growth-payloads` | bytes of one payload, from 100 B to 100 KB | append and drain a second, acknowledgement |
//! | `growth-workers` | worker processes, from 1 to 8 | drain a second |
//! | `growth-history` | runs that have ended, from none to a day of them | whole cycles a second, start latency, bytes for each |
//!
//! Each figure says at which size it was measured ([`Figure::at`]); `curve.rs` draws a series.

use anyhow::Context;
use quell::quell_core::event::{Overflow, Payload};
use quell::quell_core::limits;
use quell::{Engine, Incoming, Outcome, Queue, Run, from_fn};
use tokio::task::JoinSet;

use crate::http::Server;
use crate::jobs::CALLERS;
use crate::place::Fresh;
use crate::processes::{self, Program};
use crate::rounds::Rounds;
use crate::waiting::{Bench, FAR, resident_mb_of};
use crate::{Figure, Options, Sizes, Watch, append_with, drain, grouped, key, percentile, targets};

/// The series, by the names of their workloads.
pub(crate) const SERIES: [&str; 5] =
    ["growth-lanes", "growth-sizes", "growth-payloads", "growth-workers", "growth-history"];

/// Worker processes.
const WORKERS: [usize; 4] = [1, 2, 4, 8];
/// Events of a lane.
const LANE_SIZES: [usize; 5] = [1, 10, 100, 1_000, 10_000];
/// Bytes of a payload, and for each how many of the events of the series are sent: no more than the disk of a test.
const PAYLOADS: [(usize, usize); 4] = [(100, 1), (1_000, 1), (10_000, 4), (100_000, 20)];
/// Events that one claim of `growth-sizes` may hand out: a worker's share, whatever the size of a lane.
const CLAIM_EVENTS: usize = 10_000;
/// Events from one caller through a server, for its memory.
const THROUGH_SERVER: usize = 50;
/// They wait like the others, or the next cycle would have them in addition to its own.
const SERVER_QUEUE: &str = "[queues.bench]\nhandler = \"pull\"\nwindow = { fixed = \"24h\" }\n";

pub(crate) async fn run(name: &str, options: &Options, fresh: &Fresh) -> anyhow::Result<Vec<Figure>> {
    let sizes = &options.sizes;
    match name {
        "growth-lanes" => lanes(fresh, sizes, options.server.as_ref()).await,
        "growth-sizes" => lane_sizes(fresh, sizes).await,
        "growth-payloads" => payloads(fresh, sizes).await,
        "growth-workers" => {
            let program = options.worker.as_ref().context("there is no program to start as a worker")?;
            processes::series("growth-workers", fresh, sizes, program, &WORKERS).await
        }
        "growth-history" => history(fresh, sizes).await,
        other => anyhow::bail!("{other} is no series"),
    }
}

/// From a thousand lanes to as many as are asked for, ten times as many each time.
fn steps(most: usize) -> Vec<usize> {
    let mut steps: Vec<usize> =
        std::iter::successors(Some(1_000), |n| Some(n * 10)).take_while(|n| *n < most).collect();
    steps.push(most);
    steps
}

async fn lanes(fresh: &Fresh, sizes: &Sizes, server: Option<&Program>) -> anyhow::Result<Vec<Figure>> {
    const NAME: &str = "growth-lanes";
    let mut bench = Bench::open(fresh, sizes.waiting).await?;
    bench.cycle(sizes.waiting_cycle).await?; // Not counted: everything is cold.
    let (mut figures, mut there, mut first) = (Vec::new(), 0, None);
    for waiting in steps(sizes.waiting) {
        append_with(bench.engine(), there..waiting, |event| event.window(FAR)).await?;
        there = waiting;
        let rate = bench.cycles(sizes.waiting_cycle).await?;
        let kept = rate / *first.get_or_insert(rate);
        let (p50, p99) = bench.starts(sizes.starts).await?;
        let beside = format!("beside {} waiting lanes", grouped(waiting as f64));
        let figure =
            |what: &str, value, unit| Figure::new(NAME, format!("{what} {beside}"), value, unit).at(waiting);
        let cycle = figure("append, claim, settle", rate, "lanes/s");
        figures.push(
            cycle.target(format!("≥ {} × the first", targets::WAITING_KEEPS), kept >= targets::WAITING_KEEPS),
        );
        figures.push(figure("start latency p50", p50, "ms"));
        figures.push(figure("start latency p99", p99, "ms"));
        if let Some(resident) = resident_mb_of("self") {
            figures.push(figure("memory of this process", resident, "MB").at_most(targets::RESIDENT_MB));
        }
        if let Some(program) = server {
            let memory = server_memory(program, fresh, bench.unused(CALLERS * THROUGH_SERVER)).await?;
            figures
                .push(figure("memory of a server at the most", memory, "MB").at_most(targets::RESIDENT_MB));
        }
    }
    Ok(figures)
}

/// The most that a server had that took some events beside all that wait.
async fn server_memory(program: &Program, fresh: &Fresh, first: usize) -> anyhow::Result<f64> {
    let server = Server::start(program, fresh, &["--no-work"], SERVER_QUEUE, &[]).await?;
    server.append(first, THROUGH_SERVER).await?;
    let peak = server.peak_mb().context("the kernel does not tell the memory of a process")?;
    server.end().await?;
    Ok(peak)
}

async fn lane_sizes(fresh: &Fresh, sizes: &Sizes) -> anyhow::Result<Vec<Figure>> {
    const NAME: &str = "growth-sizes";
    let queue = Queue::none()
        .max_lane_events(limits::LANE_EVENTS_MAX, Overflow::Reject)
        .max_events(limits::BATCH_EVENTS_MAX);
    let (engine, _) = fresh.open(queue, 1).await?;
    let rounds = Rounds::open(fresh).await?;
    let (mut figures, mut lane) = (Vec::new(), 0);
    for size in LANE_SIZES.into_iter().filter(|size| *size <= sizes.growth_events) {
        let lanes = sizes.growth_events / size;
        let events = lanes * size;
        let watch = Watch::start();
        append_to_lanes(&engine, lane, events, size).await?;
        let appended = watch.rate(events);
        lane += lanes;
        let at_once = (CLAIM_EVENTS / size).clamp(1, crate::rounds::LANES);
        let (mut left, mut claims) = (events, Vec::new());
        let watch = Watch::start();
        while left > 0 {
            let claim = Watch::start();
            let batches = rounds.claim(at_once).await?;
            claims.push(claim.millis());
            anyhow::ensure!(!batches.is_empty(), "{left} events are due and none is claimed");
            left = left.saturating_sub(batches.iter().map(|batch| batch.events.len()).sum());
            rounds.settle(batches).await?;
        }
        let drained = watch.rate(events);
        claims.sort_by(f64::total_cmp);
        let what = |what: &str| format!("{what}, lanes of {}", grouped(size as f64));
        figures.extend([
            Figure::new(NAME, what("append in bulk"), appended, "events/s").at(size),
            Figure::new(NAME, what("claim and settle"), drained, "events/s").at(size),
            Figure::new(NAME, what("one claim, p99"), percentile(&claims, 0.99), "ms").at(size),
        ]);
    }
    Ok(figures)
}

/// So many events one after the other, of which each lane gets this many.
async fn append_to_lanes(engine: &Engine, first: usize, events: usize, size: usize) -> anyhow::Result<()> {
    for start in (0..events).step_by(crate::BULK) {
        let numbers = start..(start + crate::BULK).min(events);
        let events = numbers.map(|n| Incoming::new("bench", &key(first + n / size), crate::payload(n)));
        engine.append(events.collect::<Result<_, _>>()?).await?;
    }
    Ok(())
}

async fn payloads(fresh: &Fresh, sizes: &Sizes) -> anyhow::Result<Vec<Figure>> {
    const NAME: &str = "growth-payloads";
    let queue = Queue::none().handler(from_fn(|_: Run| async { Outcome::succeeded() }));
    let (engine, worker) = fresh.open(queue, 256).await?;
    let (mut figures, mut next) = (Vec::new(), 0);
    for (bytes, fewer) in PAYLOADS {
        let each = (sizes.growth_events / fewer / CALLERS / 2).max(1);
        let events = each * CALLERS;
        let watch = Watch::start();
        let mut acks = append_sized(&engine, next, each, bytes).await?;
        let appended = watch.rate(events);
        next += events;
        let watch = Watch::start();
        let report = drain(&engine, &worker).await?;
        anyhow::ensure!(report.settled == events as u64, "{events} lanes and {report:?}");
        let drained = watch.rate(events);
        acks.sort_by(f64::total_cmp);
        let what = |what: &str| format!("{what}, payloads of {} B", grouped(bytes as f64));
        let megabytes = appended * bytes as f64 / 1e6;
        figures.extend([
            Figure::new(NAME, what(&format!("append, {CALLERS} callers")), appended, "events/s").at(bytes),
            Figure::new(NAME, what("the same in bytes"), megabytes, "MB/s").at(bytes),
            Figure::new(NAME, what("acknowledgement p99"), percentile(&acks, 0.99), "ms").at(bytes),
            Figure::new(NAME, what("drain"), drained, "lanes/s").at(bytes),
        ]);
    }
    Ok(figures)
}

/// Callers that each append one event after the other; milliseconds of each.
async fn append_sized(engine: &Engine, first: usize, each: usize, bytes: usize) -> anyhow::Result<Vec<f64>> {
    let payload = Payload::of(&serde_json::Value::String("x".repeat(bytes.saturating_sub(2))));
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (engine, payload) = (engine.clone(), payload.clone());
        callers.spawn(async move {
            let mut acks = Vec::with_capacity(each);
            for n in 0..each {
                let watch = Watch::start();
                let event = Incoming::new("bench", &key(first + caller * each + n), payload.clone())?;
                engine.append(vec![event]).await?;
                acks.push(watch.millis());
            }
            anyhow::Ok(acks)
        });
    }
    let mut acks = Vec::with_capacity(CALLERS * each);
    while let Some(ended) = callers.join_next().await {
        acks.extend(ended??);
    }
    Ok(acks)
}

async fn history(fresh: &Fresh, sizes: &Sizes) -> anyhow::Result<Vec<Figure>> {
    const NAME: &str = "growth-history";
    let mut bench = Bench::open(fresh, 0).await?;
    bench.cycle(sizes.waiting_cycle).await?; // Not counted: everything is cold.
    let (mut figures, mut first) = (Vec::new(), None);
    for ended in [0, sizes.history / 10, sizes.history] {
        while bench.ended() < ended {
            bench.cycle(HISTORY_PIECE.min(ended - bench.ended())).await?;
        }
        let rate = bench.cycles(sizes.waiting_cycle).await?;
        let kept = rate / *first.get_or_insert(rate);
        let (p50, p99) = bench.starts(sizes.starts).await?;
        let bytes = fresh.bytes().await? as f64 / bench.ended() as f64;
        let what = |what: &str| format!("{what} after {} runs", grouped(ended as f64));
        let figure = |said: &str, value, unit| Figure::new(NAME, what(said), value, unit).at(ended);
        figures.push(
            figure("append, claim, settle", rate, "lanes/s")
                .target(format!("≥ {} × the first", targets::WAITING_KEEPS), kept >= targets::WAITING_KEEPS),
        );
        figures.push(figure("start latency p50", p50, "ms"));
        figures.push(figure("start latency p99", p99, "ms"));
        figures.push(figure("kept for each run", bytes, "B"));
        if let Some(resident) = resident_mb_of("self") {
            figures.push(figure("memory of this process", resident, "MB").at_most(targets::RESIDENT_MB));
        }
    }
    Ok(figures)
}

/// Runs of one piece of history.
const HISTORY_PIECE: usize = 50_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_grow_tenfold_up_to_what_is_asked_for() {
        assert_eq!(steps(1_000_000), [1_000, 10_000, 100_000, 1_000_000]);
        assert_eq!(steps(1_500), [1_000, 1_500]);
        assert_eq!(steps(500), [500]);
    }
}
