//! Workloads for Quell alone, each beside the raw limit of the same disk in the same run.
//!
//! An absolute number says more about a machine than about Quell, so every figure comes with a ratio: raw is the same
//! bytes written by plain SQL in commits of the same size to the same folder. Full durability, audit and idempotency are
//! on, as in production. `quell bench` prints the table or, for programs, JSON.
//!
//! | workload | what it does |
//! | --- | --- |
//! | `jobs` | N distinct keys with one event each: append by 64 callers, append in bulk, drain with a no-op handler |
//! | `keyed` | 10,000 events over 500 keys, one event per run, strictly serial per key, 1 ms handler |
//! | `burst` | 1,000 keys × 20 events within 2 s, quiet 1 s: runs per key, events delivered, lateness |
//! | `start` | one event at a time into an idle worker: how long until its handler begins |
//! | `timer` | 10,000 lanes due within 2 s: lateness |

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use quell::{Engine, Quell, Queue, Shutdown, Worker, WorkerOptions, WorkerReport};
use serde::Serialize;

mod burst;
mod jobs;
mod keyed;
mod raw;
mod start;

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the files are made; the disk of this folder is what is measured.
    pub folder: PathBuf,
    /// Events of `jobs`.
    pub jobs: usize,
    /// Names of workloads; empty means all.
    pub workloads: Vec<String>,
}

pub const WORKLOADS: [&str; 5] = ["jobs", "keyed", "burst", "start", "timer"];

/// One figure.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    pub workload: &'static str,
    pub what: String,
    pub value: f64,
    pub unit: &'static str,
    /// The raw limit it is compared with, in the same unit.
    pub raw: Option<f64>,
    pub ratio: Option<f64>,
    /// What we want to reach, in words.
    pub target: Option<&'static str>,
    /// Whether it was reached in this run.
    pub reached: Option<bool>,
}

impl Figure {
    fn new(workload: &'static str, what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Figure {
            workload,
            what: what.into(),
            value,
            unit,
            raw: None,
            ratio: None,
            target: None,
            reached: None,
        }
    }

    fn against(mut self, raw: f64) -> Self {
        self.raw = Some(raw);
        self.ratio = Some(self.value / raw);
        self
    }

    fn target(mut self, target: &'static str, reached: bool) -> Self {
        self.target = Some(target);
        self.reached = Some(reached);
        self
    }
}

/// Runs the workloads one after the other; `tell` is called before each, for a progress line.
pub async fn run(options: &Options, mut tell: impl FnMut(&str)) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let wanted = |name: &str| options.workloads.is_empty() || options.workloads.iter().any(|w| w == name);
    if let Some(unknown) = options.workloads.iter().find(|w| !WORKLOADS.contains(&w.as_str())) {
        anyhow::bail!("there is no workload {unknown:?}; choose from {}", WORKLOADS.join(", "));
    }
    if wanted("jobs") {
        tell("jobs: the raw limit of this disk");
        let raw = raw::measure(&options.folder)?;
        tell("jobs: append and drain");
        figures.extend(jobs::run(options, &raw).await?);
    }
    if wanted("keyed") {
        tell("keyed: 10,000 events over 500 keys");
        figures.extend(keyed::run(options).await?);
    }
    if wanted("burst") {
        tell("burst: 1,000 keys × 20 events within 2 s");
        figures.extend(burst::run(options).await?);
    }
    if wanted("start") {
        tell("start: one event at a time");
        figures.extend(start::run(options).await?);
    }
    if wanted("timer") {
        tell("timer: 10,000 lanes due within 2 s");
        figures.extend(burst::timer(options).await?);
    }
    Ok(figures)
}

/// A file of its own in the folder, removed at the end.
fn scratch(folder: &Path) -> anyhow::Result<tempfile::TempDir> {
    tempfile::Builder::new()
        .prefix("quell-bench-")
        .tempdir_in(folder)
        .with_context(|| format!("cannot make a folder in {}", folder.display()))
}

/// One queue named `bench` on a fresh file.
async fn open(
    folder: &tempfile::TempDir,
    queue: Queue,
    lanes: usize,
) -> anyhow::Result<(Engine, WorkerOptions)> {
    let url = format!("sqlite:{}", folder.path().join("b.db").display());
    Ok(Quell::open(&url).queue("bench", queue.concurrency(lanes)).concurrency(lanes).build().await?)
}

/// Works until nothing is left.
async fn drain(engine: &Engine, options: &WorkerOptions) -> anyhow::Result<WorkerReport> {
    let options = WorkerOptions { until_idle: true, ..options.clone() };
    Ok(Worker::new(engine.clone(), options)?.run(Shutdown::new()).await)
}

/// The only clock of this crate: wall time of whole workloads, never an input to a decision.
#[derive(Clone, Copy)]
struct Watch(Instant);

impl Watch {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    fn start() -> Self {
        Watch(Instant::now())
    }

    fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    fn rate(self, count: usize) -> f64 {
        count as f64 / self.elapsed().as_secs_f64()
    }
}

/// The value below which this share of the samples lies.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index into a short list")]
    let index = ((sorted.len() as f64 - 1.0) * share).round() as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

/// About 110 bytes, as a chat message has.
fn payload(n: usize) -> quell::quell_core::event::Payload {
    let text = "a short message as people send it, long enough to be typical of a chat";
    quell::quell_core::event::Payload::of(&serde_json::json!({ "n": n, "text": text }))
}

/// Twenty-four characters, spread like random ones.
fn key(n: usize) -> String {
    let mixed = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{mixed:016x}{n:08x}")
}
