//! Workloads for Quell alone, each beside the raw limit of the same store in the same run.
//!
//! An absolute number says more about a machine than about Quell, so figures of throughput come with a ratio: raw is the
//! same bytes written without Quell in commits of the same size to the same disk or server. Full durability, audit and
//! idempotency are on, as in production. `quell bench` prints the table or, for programs, JSON.
//!
//! | workload | what it does |
//! | --- | --- |
//! | `jobs` | N distinct keys with one event each: append by 64 callers, append in bulk, drain with a no-op handler |
//! | `keyed` | 10,000 events over 500 keys, one event per run, strictly serial per key, 1 ms handler |
//! | `burst` | 1,000 keys × 20 events within 2 s, quiet 1 s: runs per key, events delivered, lateness |
//! | `start` | one event at a time into an idle worker: how long until its handler begins |
//! | `timer` | 10,000 lanes due within 2 s, and then within 1 s: lateness |
//! | `hot` | one key with 5,000 events/s beside others with a few: what the others are told with and without it, sizes, memory |
//! | `waiting` | the same work beside a thousand and beside a million lanes that wait, and the memory of this process |
//! | `processes` | drain by one, two and four worker processes |
//! | `held` | PostgreSQL: claims while another session holds a transaction open |
//! | `http` | the appends of `jobs` through a server of its own, its acknowledgements at half that load, and its memory |
//! | `dashboard` | appends through a server with very many waiting lanes, alone and with ten live clients of the dashboard |
//! | `siege` | paced appends through a server, alone and beside 2,000 slow heads and 100 senders of bombs; memory |
//! | `hook` | SQLite: one hook event of a coding agent as a process, against a minimal process; with the database locked |
//! | `ingest` | SQLite: a transcript of 100 MB read and indexed, and the same again with one new line |
//! | `chat` | bursts of webhooks from many customers into a server with a chat: one reply each, in order; times and memory |
//! | `costs` | what an event and a run take of processors, log, disk and network, in Quell and in the store (`costs.rs`) |
//! | `growth` | the same work while lanes, their events, payloads, workers or the history grow (`growth.rs`) |
//! | `bloat` | PostgreSQL: dead rows and sizes after many cycles on the same keys |
//!
//! Each workload gets a place of its own (`place.rs`), which is gone when it ends, also by an error or a signal.

use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use quell::{Engine, Quell, Queue, Shutdown, Worker, WorkerOptions, WorkerReport};
use serde::Serialize;
use tokio::task::JoinHandle;

mod bloat;
mod burst;
mod chat;
mod compare;
pub mod costs;
mod curve;
mod dashboard;
mod growth;
mod held;
mod hook;
mod hot;
mod http;
mod jobs;
mod keyed;
mod place;
mod processes;
mod raw;
mod rounds;
mod siege;
mod start;
mod targets;
pub mod verbs;
mod waiting;
mod wire;

pub use compare::compare;
pub use curve::{curves, write_curves};
pub use place::{Kind, Place};
pub use processes::{Program, work};

use place::Fresh;
use targets::Targets;

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    pub place: Place,
    /// Names of workloads; empty means all.
    pub workloads: Vec<String>,
    pub sizes: Sizes,
    /// Starts a worker process that calls [`work`]; without it, `processes` is left out.
    pub worker: Option<Program>,
    /// The program whose `serve` is measured; without it, `http`, `dashboard`, `siege` and `chat` are left out.
    pub server: Option<Program>,
}

/// How much of everything. The targets hold for the default.
#[derive(Debug, Clone)]
pub struct Sizes {
    /// Commits of 64 rows for the raw limit; a third as many of 1,000.
    pub raw_commits: usize,
    /// Events of `jobs`.
    pub jobs: usize,
    pub keyed_keys: usize,
    pub keyed_events: usize,
    pub burst_keys: usize,
    pub burst_rounds: usize,
    /// Events of `start`.
    pub starts: usize,
    /// Lanes of `timer`.
    pub timers: usize,
    /// Lanes that wait, at the end of `waiting`.
    pub waiting: usize,
    /// Lanes of one measured cycle beside them.
    pub waiting_cycle: usize,
    /// Lanes that each number of processes drains.
    pub process_lanes: usize,
    /// How long the other session of `held` holds its transaction.
    pub held: Duration,
    pub bloat_cycles: usize,
    pub bloat_lanes: usize,
    /// Lanes that wait in the server of `http`.
    pub http_lanes: usize,
    /// Events of `hook`.
    pub hooks: usize,
    /// The transcript of `ingest`.
    pub transcript_bytes: u64,
    /// Customers of `chat`.
    pub customers: usize,
    /// How long each half of `siege` goes on.
    pub siege: Duration,
    /// How long the key of `hot` is hot: one half while its lane grows, one while it is emptied.
    pub hot: Duration,
    /// Events a second of the hot key.
    pub hot_rate: usize,
    /// Events of each step of `growth-sizes`, and twice those of `growth-payloads`.
    pub growth_events: usize,
    /// Runs that have ended, at the end of `growth-history`.
    pub history: usize,
    /// Events of each step of `costs`.
    pub costs: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes {
            raw_commits: 300,
            jobs: 100_000,
            keyed_keys: 500,
            keyed_events: 10_000,
            burst_keys: 1_000,
            burst_rounds: 20,
            starts: 300,
            timers: 10_000,
            waiting: 1_000_000,
            waiting_cycle: 10_000,
            process_lanes: 50_000,
            held: Duration::from_secs(30),
            bloat_cycles: 100,
            bloat_lanes: 1_000,
            http_lanes: 100_000,
            hooks: 100,
            transcript_bytes: 100_000_000,
            customers: 10_000,
            siege: Duration::from_secs(20),
            hot: Duration::from_secs(60),
            hot_rate: 5_000,
            growth_events: 50_000,
            history: 1_000_000,
            costs: 50_000,
        }
    }
}

pub const WORKLOADS: [&str; 22] = [
    "jobs",
    "keyed",
    "burst",
    "start",
    "timer",
    "hot",
    "waiting",
    "processes",
    "http",
    "dashboard",
    "siege",
    "hook",
    "ingest",
    "chat",
    "held",
    "bloat",
    "costs",
    "growth-lanes",
    "growth-sizes",
    "growth-payloads",
    "growth-workers",
    "growth-history",
];

/// All of `growth-…` by one name.
pub const GROWTH: &str = "growth";

/// What was measured, and under which conditions.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    pub kind: Kind,
    /// The version of the store and the settings it runs with.
    pub conditions: String,
    pub figures: Vec<Figure>,
}

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
    pub target: Option<String>,
    /// Whether it was reached in this run.
    pub reached: Option<bool>,
    /// How large that was which grows, in a series of figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<f64>,
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
            at: None,
        }
    }

    fn at(mut self, size: usize) -> Self {
        self.at = Some(size as f64);
        self
    }

    fn against(mut self, raw: f64) -> Self {
        self.raw = Some(raw);
        self.ratio = Some(self.value / raw);
        self
    }

    fn target(mut self, target: impl Into<String>, reached: bool) -> Self {
        self.target = Some(target.into());
        self.reached = Some(reached);
        self
    }

    fn at_most(self, limit: f64) -> Self {
        let (target, reached) = (format!("≤ {limit} {}", self.unit), self.value <= limit);
        self.target(target.trim_end(), reached)
    }

    fn at_least(self, limit: f64) -> Self {
        let (target, reached) = (format!("≥ {} {}", grouped(limit), self.unit), self.value >= limit);
        self.target(target.trim_end(), reached)
    }

    /// After [`Figure::against`].
    fn at_least_of_raw(self, ratio: f64, rows: &str) -> Self {
        let reached = self.ratio >= Some(ratio);
        self.target(format!("≥ {ratio:.2} × raw at {rows} rows"), reached)
    }
}

/// Runs the workloads one after the other; `tell` is called before each, for a progress line. When `stop` is ready, the
/// workload is abandoned, its place removed, and the answer is an error.
pub async fn run(
    options: &Options,
    stop: impl Future<Output = ()>,
    mut tell: impl FnMut(&str),
) -> anyhow::Result<Measured> {
    if let Some(unknown) = options.workloads.iter().find(|w| !WORKLOADS.contains(&w.as_str()) && *w != GROWTH)
    {
        anyhow::bail!("there is no workload {unknown:?}; choose from {}, {GROWTH}", WORKLOADS.join(", "));
    }
    let mut stop = std::pin::pin!(stop.fuse());
    let kind = options.place.kind();
    let conditions = options.place.conditions().await?;
    tell(&conditions);
    let mut figures = Vec::new();
    let wanted = |name: &str| {
        let asked = |w: &String| w == name || (w == GROWTH && growth::SERIES.contains(&name));
        options.workloads.is_empty() || options.workloads.iter().any(asked)
    };
    for name in WORKLOADS.into_iter().filter(|name| wanted(name)) {
        if let Some(why) = left_out(name, options) {
            tell(&format!("{name}: left out, {why}"));
            continue;
        }
        let fresh = options.place.fresh().await?;
        let workload = AssertUnwindSafe(workload(name, options, &fresh, &mut tell)).catch_unwind();
        let ended = tokio::select! {
            ended = workload => ended,
            () = &mut stop => Ok(Err(anyhow::anyhow!("stopped in the middle of {name}"))),
        };
        let removed = fresh.remove().await;
        if let Err(error) = &removed {
            // Said at once: the workload may have an error of its own.
            tell(&format!("{name}: {error:#}"));
        }
        figures.extend(ended.unwrap_or_else(|panic| resume_unwind(panic))?);
        removed?;
    }
    Ok(Measured { kind, conditions, figures })
}

/// Of what takes minutes.
const ASKED_FOR: &str = "it takes minutes and is measured when it is asked for by name";

fn left_out(name: &str, options: &Options) -> Option<String> {
    match name {
        "held" | "bloat" if options.place.kind() != Kind::Postgres => {
            Some(format!("it is about PostgreSQL and this is {}", options.place.kind().name()))
        }
        "hook" | "ingest" if options.place.kind() != Kind::Sqlite => {
            Some(format!("it is about SQLite and this is {}", options.place.kind().name()))
        }
        "hook" | "ingest" if options.server.is_none() => {
            Some("there is no program to start as a hook".to_owned())
        }
        "hot" if options.workloads.is_empty() => Some(ASKED_FOR.to_owned()),
        "costs" if options.workloads.is_empty() => {
            Some("it needs a server on this machine and is measured when it is asked for by name".to_owned())
        }
        name if growth::SERIES.contains(&name) && options.workloads.is_empty() => Some(ASKED_FOR.to_owned()),
        "processes" | "growth-workers" if options.worker.is_none() => {
            Some("there is no program to start as a worker".to_owned())
        }
        "http" | "dashboard" | "siege" | "chat" if options.server.is_none() => {
            Some("there is no program to start as a server".to_owned())
        }
        _ => None,
    }
}

async fn workload(
    name: &str,
    options: &Options,
    fresh: &Fresh,
    tell: &mut impl FnMut(&str),
) -> anyhow::Result<Vec<Figure>> {
    let (sizes, targets) = (&options.sizes, Targets::of(fresh.kind));
    let n = |count: usize| grouped(count as f64);
    match name {
        "jobs" => {
            tell(&format!("jobs: the raw limit of {}", fresh.kind.name()));
            let raw = raw::measure(fresh, sizes).await?;
            tell(&format!("jobs: append and drain {} events", n(sizes.jobs)));
            jobs::run(fresh, sizes, &targets, &raw).await
        }
        "keyed" => {
            tell(&format!("keyed: {} events over {} keys", n(sizes.keyed_events), n(sizes.keyed_keys)));
            keyed::run(fresh, sizes, &targets).await
        }
        "burst" => {
            tell(&format!("burst: {} keys × {} events", n(sizes.burst_keys), n(sizes.burst_rounds)));
            burst::run(fresh, sizes).await
        }
        "start" => {
            tell("start: one event at a time");
            start::run(fresh, sizes, &targets).await
        }
        "timer" => {
            tell(&format!("timer: {} lanes due one after the other", n(sizes.timers)));
            burst::timer(fresh, sizes, &targets).await
        }
        "hot" => {
            let (rate, seconds) = (n(sizes.hot_rate), sizes.hot.as_secs_f64());
            tell(&format!("hot: one key with {rate} events/s beside others, {seconds} s"));
            hot::run(fresh, sizes).await
        }
        "waiting" => {
            tell(&format!("waiting: work beside {} lanes that wait", n(sizes.waiting)));
            waiting::run(fresh, sizes).await
        }
        "processes" => {
            tell(&format!("processes: {} lanes by 1, 2 and 4 workers", n(sizes.process_lanes)));
            processes::run(fresh, sizes, options.worker.as_ref()).await
        }
        "http" => {
            tell(&format!("http: append through a server, {} lanes that wait", n(sizes.http_lanes)));
            http::run(fresh, sizes, options.server.as_ref()).await
        }
        "dashboard" => {
            tell(&format!(
                "dashboard: append beside {} lanes that wait and ten live clients",
                n(sizes.waiting)
            ));
            dashboard::run(fresh, sizes, options.server.as_ref()).await
        }
        "siege" => {
            tell("siege: append beside slow heads and senders of bombs");
            siege::run(fresh, sizes, options.server.as_ref()).await
        }
        "hook" => {
            tell(&format!("hook: {} hook events, one after the other", n(sizes.hooks)));
            hook::run(fresh, sizes, options.server.as_ref())
        }
        "ingest" => {
            tell(&format!("ingest: a transcript of {} bytes", grouped(sizes.transcript_bytes as f64)));
            hook::ingest(fresh, sizes, options.server.as_ref())
        }
        "chat" => {
            tell(&format!("chat: bursts of {} customers", n(sizes.customers)));
            chat::run(fresh, sizes, options.server.as_ref()).await
        }
        "held" => {
            tell(&format!("held: claims while a transaction stays open for {} s", sizes.held.as_secs()));
            held::run(fresh, sizes).await
        }
        "bloat" => {
            tell(&format!("bloat: {} cycles of {} lanes", n(sizes.bloat_cycles), n(sizes.bloat_lanes)));
            bloat::run(fresh, sizes).await
        }
        "costs" => {
            tell(&format!("costs: {} events in bursts of one and of twenty", n(sizes.costs)));
            costs::run(fresh, sizes).await
        }
        series if growth::SERIES.contains(&series) => {
            tell(&format!("{series}: the same work while it grows"));
            growth::run(series, options, fresh).await
        }
        other => anyhow::bail!("{other} is listed and not written"),
    }
}

/// One queue named `bench`.
async fn open(url: &str, queue: Queue, lanes: usize) -> anyhow::Result<(Engine, WorkerOptions)> {
    Ok(Quell::open(url).queue("bench", queue.concurrency(lanes)).concurrency(lanes).build().await?)
}

/// Works until nothing is left.
async fn drain(engine: &Engine, options: &WorkerOptions) -> anyhow::Result<WorkerReport> {
    let options = WorkerOptions { until_idle: true, ..options.clone() };
    Ok(Worker::new(engine.clone(), options)?.run(Shutdown::new()).await)
}

/// A worker in the background, which never outlives the workload that started it.
struct Working {
    shutdown: Shutdown,
    task: JoinHandle<WorkerReport>,
}

impl Working {
    fn start(engine: &Engine, options: &WorkerOptions) -> anyhow::Result<Self> {
        let shutdown = Shutdown::new();
        let worker = Worker::new(engine.clone(), options.clone())?;
        Ok(Working { shutdown: shutdown.clone(), task: tokio::spawn(worker.run(shutdown)) })
    }

    /// Lets it finish what it has begun.
    async fn end(mut self) -> anyhow::Result<WorkerReport> {
        self.shutdown.request();
        Ok((&mut self.task).await?)
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Appends one event for each of these keys, in bulk.
async fn append_all(engine: &Engine, numbers: std::ops::Range<usize>) -> anyhow::Result<()> {
    append_with(engine, numbers, |event| event).await
}

async fn append_with(
    engine: &Engine,
    numbers: std::ops::Range<usize>,
    with: impl Fn(quell::Incoming) -> quell::Incoming,
) -> anyhow::Result<()> {
    for start in numbers.clone().step_by(BULK) {
        let end = (start + BULK).min(numbers.end);
        let events = (start..end).map(|n| quell::Incoming::new("bench", &key(n), payload(n)).map(&with));
        engine.append(events.collect::<Result<_, _>>()?).await?;
    }
    Ok(())
}

/// Events of one bulk append.
const BULK: usize = 1_000;

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

    fn millis(self) -> f64 {
        self.elapsed().as_secs_f64() * 1_000.0
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

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    percentile(&samples, 0.5)
}

/// Thousands apart from one another; without decimals from one thousand on.
fn grouped(value: f64) -> String {
    if value < 1_000.0 {
        return format!("{value}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart() {
        let shown: Vec<String> = [2.0, 0.85, 999.0, 1_000.0, 15_600.0, 1_000_000.0].map(grouped).into();
        assert_eq!(shown, ["2", "0.85", "999", "1,000", "15,600", "1,000,000"]);
    }
}
