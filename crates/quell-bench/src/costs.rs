//! Costs: what one event and one run take, in microseconds of a core and in bytes.
//!
//! A burst of `b` events becomes one run, so its cost is `burst + b × event`. Both are found from bursts of one event and of twenty:
//! once for the appends, once for the claim and the settle. What a larger payload takes is found with one of 10 KB. Time is that of the
//! processors as the kernel counts it, of this process and of the store apart: of SQLite the thread that writes, of PostgreSQL the
//! processes of its server, of Redis what it tells of itself. What goes over the network is counted by a proxy (`wire.rs`) in a pass of its
//! own, because the proxy itself takes time. `counts.toml` has what does not depend on a machine; this does.
//!
//! The figures in `costs.toml` are what `quell bench costs --write-costs FILE` wrote; `quell simulate --capacity` reckons with them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use quell::quell_core::event::Payload;
use quell::{Engine, Incoming, Outcome, Queue, Run, WorkerOptions, from_fn};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::jobs::CALLERS;
use crate::place::{Fresh, Kind};
use crate::wire::Wire;
use crate::{Figure, Measured, Sizes, Watch, drain, key};

/// Events of a large burst.
const BURST: usize = 20;
/// Bytes of a small payload and of a large one.
pub const SMALL: usize = 110;
const LARGE: usize = 10_000;
/// So many events fewer with large payloads, and where only bytes are counted.
const FEWER: usize = 5;
/// The kernel counts the time of processors in hundredths of a second, on every architecture that we know of.
const TICK_US: f64 = 10_000.0;
/// The thread of the SQLite store that writes.
const WRITER: &str = "quell-writer";

/// What a store costs: microseconds of a core, bytes, milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Of Quell's own process, for each burst and for each event of it: appends.
    pub quell_append_burst_us: f64,
    pub quell_append_event_us: f64,
    /// The same for claim and settle.
    pub quell_run_burst_us: f64,
    pub quell_run_event_us: f64,
    /// Of Quell for each kilobyte of payload, from append to settle.
    pub quell_kilobyte_us: f64,
    /// Of the store, in the same way.
    pub store_append_burst_us: f64,
    pub store_append_event_us: f64,
    pub store_run_burst_us: f64,
    pub store_run_event_us: f64,
    pub store_kilobyte_us: f64,
    /// Bytes that stay until the retention is over; with payloads of 110 B, and for each kilobyte beyond that.
    pub kept_burst_bytes: f64,
    pub kept_event_bytes: f64,
    pub kept_kilobyte_bytes: f64,
    /// Bytes that are written: of SQLite everything, of the others their log. In the same way.
    pub log_burst_bytes: f64,
    pub log_event_bytes: f64,
    pub log_kilobyte_bytes: f64,
    /// Bytes between Quell and the server, both directions together. In the same way.
    pub network_burst_bytes: f64,
    pub network_event_bytes: f64,
    pub network_kilobyte_bytes: f64,
    /// One append alone, from the call to the durable answer.
    pub append_ms: f64,
}

impl Costs {
    /// The committed ones.
    pub fn committed(kind: Kind) -> anyhow::Result<Self> {
        let mut all: BTreeMap<String, Costs> =
            toml::from_str(include_str!("../costs.toml")).context("crates/quell-bench/costs.toml")?;
        all.remove(section(kind)).with_context(|| format!("costs.toml knows nothing of {}", kind.name()))
    }

    /// These, with one of them by its name in place of what was measured.
    pub fn with(self, name: &str, value: f64) -> anyhow::Result<Self> {
        let mut fields = toml::Table::try_from(self)?;
        let Some(field) = fields.get_mut(name) else {
            let names: Vec<&str> = fields.keys().map(String::as_str).collect();
            anyhow::bail!("there is no cost {name:?}; choose from {}", names.join(", "));
        };
        *field = toml::Value::Float(value);
        Ok(fields.try_into()?)
    }
}

/// The text of a file of costs with those of one store in place of what it says of it.
fn written(file: &str, kind: Kind, figures: &[Figure]) -> anyhow::Result<String> {
    let mut all: BTreeMap<String, BTreeMap<String, f64>> = toml::from_str(file)?;
    let costs = figures.iter().filter(|figure| figure.workload == "costs");
    let rounded = |value: f64| (value * 1_000.0).round() / 1_000.0;
    all.insert(section(kind).to_owned(), costs.map(|f| (f.what.clone(), rounded(f.value))).collect());
    Ok(format!(
        "# What each store costs. Written by `quell bench costs --write-costs FILE`, one store at a time.\n{}",
        toml::to_string(&all)?
    ))
}

/// Puts what was measured into a file of costs, which may not be there yet.
pub fn write(file: &Path, measured: &Measured) -> anyhow::Result<()> {
    let wrong = || format!("{} cannot take costs", file.display());
    let text = if file.exists() { std::fs::read_to_string(file).with_context(wrong)? } else { String::new() };
    let text = written(&text, measured.kind, &measured.figures).with_context(wrong)?;
    std::fs::write(file, text).with_context(wrong)
}

fn section(kind: Kind) -> &'static str {
    match kind {
        Kind::Sqlite => "sqlite",
        Kind::Postgres => "postgres",
        Kind::Redis => "redis",
    }
}

/// What was used up to a moment.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    quell_us: f64,
    store_us: f64,
    log_bytes: f64,
    kept_bytes: f64,
    network_bytes: f64,
}

impl Used {
    fn since(self, before: Used, units: usize) -> Used {
        let each = |now: f64, before: f64| (now - before).max(0.0) / units as f64;
        Used {
            quell_us: each(self.quell_us, before.quell_us),
            store_us: each(self.store_us, before.store_us),
            log_bytes: each(self.log_bytes, before.log_bytes),
            kept_bytes: each(self.kept_bytes, before.kept_bytes),
            network_bytes: each(self.network_bytes, before.network_bytes),
        }
    }

    fn plus(self, other: Used) -> Used {
        Used {
            quell_us: self.quell_us + other.quell_us,
            store_us: self.store_us + other.store_us,
            log_bytes: self.log_bytes + other.log_bytes,
            kept_bytes: self.kept_bytes + other.kept_bytes,
            network_bytes: self.network_bytes + other.network_bytes,
        }
    }
}

/// A burst and an event of it apart, from bursts of one and of many: `one = burst + event` and `many = burst + n × event`.
fn apart(one: f64, many: f64, n: usize) -> (f64, f64) {
    let event = ((many - one) / (n as f64 - 1.0)).clamp(0.0, one);
    (one - event, event)
}

/// What the model needs, from bursts of one small event, of many and of a large one.
fn model(one: [Used; 2], many: [Used; 2], large: [Used; 2]) -> BTreeMap<String, f64> {
    let both = |[append, run]: [Used; 2]| append.plus(run);
    let (small, several, large) = (both(one), both(many), both(large));
    let mut costs = BTreeMap::new();
    for (name, unit, one, many) in [
        ("quell_append", "us", one[0].quell_us, many[0].quell_us),
        ("quell_run", "us", one[1].quell_us, many[1].quell_us),
        ("store_append", "us", one[0].store_us, many[0].store_us),
        ("store_run", "us", one[1].store_us, many[1].store_us),
        ("kept", "bytes", small.kept_bytes, several.kept_bytes),
        ("log", "bytes", small.log_bytes, several.log_bytes),
        ("network", "bytes", small.network_bytes, several.network_bytes),
    ] {
        let (burst, event) = apart(one, many, BURST);
        costs.insert(format!("{name}_burst_{unit}"), burst);
        costs.insert(format!("{name}_event_{unit}"), event);
    }
    for (name, unit, small, large) in [
        ("quell", "us", small.quell_us, large.quell_us),
        ("store", "us", small.store_us, large.store_us),
        ("kept", "bytes", small.kept_bytes, large.kept_bytes),
        ("log", "bytes", small.log_bytes, large.log_bytes),
        ("network", "bytes", small.network_bytes, large.network_bytes),
    ] {
        let kilobytes = (LARGE - SMALL) as f64 / 1_000.0;
        costs.insert(format!("{name}_kilobyte_{unit}"), (large - small).max(0.0) / kilobytes);
    }
    costs
}

fn queue() -> Queue {
    Queue::none().handler(from_fn(|_: Run| async { Outcome::succeeded() }))
}

pub(crate) async fn run(fresh: &Fresh, sizes: &Sizes) -> anyhow::Result<Vec<Figure>> {
    let (engine, worker) = fresh.open(queue(), 1_024).await?;
    let mut bench = Bench { fresh, engine, worker, next: 0, looks: Cell::new(0.0) };
    bench.measure(sizes.costs / 10, 1, SMALL).await?; // Not counted: everything is cold.
    let mut one = bench.measure(sizes.costs, 1, SMALL).await?;
    let mut many = bench.measure(sizes.costs, BURST, SMALL).await?;
    let mut large = bench.measure(sizes.costs / FEWER, 1, LARGE).await?;
    let append_ms = bench.single().await?;
    if fresh.kind != Kind::Sqlite {
        let wire = Wire::before(fresh.kind, &fresh.url).await?;
        let (engine, worker) = crate::open(&wire.url, queue(), 1_024).await?;
        // The single appends above are waiting.
        drain(&engine, &worker).await?;
        let mut through = Bench { engine, worker, ..bench };
        let events = sizes.costs / FEWER;
        through.network(&wire, events, 1, SMALL).await?; // Not counted: connections are made.
        one[0].network_bytes = through.network(&wire, events, 1, SMALL).await?;
        many[0].network_bytes = through.network(&wire, events, BURST, SMALL).await?;
        large[0].network_bytes = through.network(&wire, events, 1, LARGE).await?;
    }
    let mut costs = model(one, many, large);
    costs.insert("append_ms".to_owned(), append_ms);
    let unit = |name: &str| match name.rsplit('_').next() {
        Some("us") => "µs",
        Some("ms") => "ms",
        _ => "B",
    };
    let figures = costs.into_iter().map(|(name, value)| {
        let unit = unit(&name);
        Figure::new("costs", name, value, unit)
    });
    Ok(figures.collect())
}

struct Bench<'f> {
    fresh: &'f Fresh,
    engine: Engine,
    worker: WorkerOptions,
    next: usize,
    /// Microseconds of this process that went into looking at sizes.
    looks: Cell<f64>,
}

impl Bench<'_> {
    /// So many events in bursts of this size: what the appends of one burst took, and what its run took.
    async fn measure(&mut self, events: usize, burst: usize, bytes: usize) -> anyhow::Result<[Used; 2]> {
        let before = self.used().await?;
        let bursts = self.append(events, burst, bytes).await?;
        let appended = self.used().await?;
        self.drain(bursts).await?;
        let settled = self.used().await?;
        // Redis writes its log anew when that has grown, and what it took until then cannot be told any more.
        anyhow::ensure!(
            before.log_bytes <= appended.log_bytes && appended.log_bytes <= settled.log_bytes,
            "the log of the server became shorter meanwhile; set auto-aof-rewrite-percentage to 0 to measure"
        );
        Ok([appended.since(before, bursts), settled.since(appended, bursts)])
    }

    /// The same by bytes on the wire, for one burst from its appends to its end.
    async fn network(
        &mut self,
        wire: &Wire,
        events: usize,
        burst: usize,
        bytes: usize,
    ) -> anyhow::Result<f64> {
        let before = wire.bytes();
        let bursts = self.append(events, burst, bytes).await?;
        self.drain(bursts).await?;
        Ok((wire.bytes() - before) / bursts as f64)
    }

    /// Many callers with one event each at a time; the answer is how many bursts they made.
    async fn append(&mut self, events: usize, burst: usize, bytes: usize) -> anyhow::Result<usize> {
        let each = (events / burst / CALLERS).max(1);
        let bursts = each * CALLERS;
        let payload = Payload::of(&serde_json::Value::String(text(bytes - 2)));
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            let (engine, payload) = (self.engine.clone(), payload.clone());
            let first = self.next + caller * each;
            callers.spawn(async move {
                for _ in 0..burst {
                    for n in first..first + each {
                        engine.append(vec![Incoming::new("bench", &key(n), payload.clone())?]).await?;
                    }
                }
                anyhow::Ok(())
            });
        }
        while let Some(ended) = callers.join_next().await {
            ended??;
        }
        self.next += bursts;
        Ok(bursts)
    }

    async fn drain(&self, bursts: usize) -> anyhow::Result<()> {
        let report = drain(&self.engine, &self.worker).await?;
        anyhow::ensure!(report.settled == bursts as u64, "{bursts} bursts and {report:?}");
        Ok(())
    }

    /// The median of one append at a time, in milliseconds.
    async fn single(&mut self) -> anyhow::Result<f64> {
        let mut samples = Vec::new();
        for _ in 0..100 {
            self.next += 1;
            let event = Incoming::new("bench", &key(self.next), crate::payload(self.next))?;
            let watch = Watch::start();
            self.engine.append(vec![event]).await?;
            samples.push(watch.millis());
        }
        Ok(crate::median(samples))
    }

    async fn used(&self) -> anyhow::Result<Used> {
        let begins = of_process("self")?;
        let kept_bytes = self.fresh.bytes().await? as f64;
        // To look is not what is measured: SQLite empties its log for it.
        self.looks.set(self.looks.get() + of_process("self")? - begins);
        let process = of_process("self")? - self.looks.get();
        let (quell_us, store_us, log_bytes) = match self.fresh.kind {
            Kind::Sqlite => {
                let writer = of_threads(WRITER)?;
                let io = std::fs::read_to_string("/proc/self/io").context("the kernel tells no writes")?;
                let written = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
                (process - writer, writer, written.context("the kernel tells no writes")?.trim().parse()?)
            }
            Kind::Postgres => {
                let client = self.fresh.postgres().await?;
                let rows = client
                    .query("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()", &[])
                    .await?;
                // One that has ended meanwhile has nothing more to tell.
                let server: f64 =
                    rows.iter().filter_map(|row| of_process(&row.get::<_, i32>(0).to_string()).ok()).sum();
                anyhow::ensure!(server > 0.0, "the processes of PostgreSQL are not on this machine");
                let log = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8";
                (process, server, client.query_one(log, &[]).await?.get(0))
            }
            Kind::Redis => {
                let mut connection = self.fresh.redis().await?;
                let info: String = redis::cmd("INFO").query_async(&mut connection).await?;
                let told = |name: &str| {
                    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                    value
                        .with_context(|| format!("Redis does not tell {name}"))?
                        .trim()
                        .parse::<f64>()
                        .context("a number")
                };
                let server = (told("used_cpu_user")? + told("used_cpu_sys")?) * 1e6;
                // Without a log there is nothing to count.
                (process, server, told("aof_current_size").unwrap_or_default())
            }
        };
        Ok(Used { quell_us, store_us, log_bytes, kept_bytes, network_bytes: 0.0 })
    }
}

/// Letters that no store makes smaller: PostgreSQL compresses what is large, and a text of one letter would cost it nothing.
fn text(letters: usize) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut state = 1_u64;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(ALPHABET[(state >> 58) as usize])
    };
    (0..letters).map(|_| letter()).collect()
}

/// Microseconds of processors that a process has used.
fn of_process(process: &str) -> anyhow::Result<f64> {
    ticks(&format!("/proc/{process}/stat")).map(|(_, us)| us)
}

/// The same for the threads of this process that have this name.
fn of_threads(name: &str) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for thread in std::fs::read_dir("/proc/self/task").context("the kernel tells no threads")? {
        let stat = thread?.path().join("stat");
        // A thread may end while the list is read.
        if let Ok((called, us)) = ticks(&stat.display().to_string())
            && called == name
        {
            sum += us;
        }
    }
    Ok(sum)
}

/// The name is in parentheses and may hold anything; the twelfth and thirteenth field after it are the ticks.
fn ticks(file: &str) -> anyhow::Result<(String, f64)> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    parse(&text).with_context(|| format!("cannot understand {file}"))
}

fn parse(stat: &str) -> Option<(String, f64)> {
    let (start, fields) = stat.rsplit_once(") ")?;
    let name = start.split_once('(')?.1.to_owned();
    let mut fields = fields.split(' ').skip(11);
    let (user, system): (f64, f64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((name, (user + system) * TICK_US))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_its_events_are_told_apart() {
        assert_eq!(apart(30.0, 220.0, 20), (20.0, 10.0));
        // What is within the noise is nobody's debt.
        assert_eq!(apart(30.0, 25.0, 20), (30.0, 0.0));
    }

    #[test]
    fn what_a_larger_payload_adds_is_told_for_each_kilobyte() {
        let used = |us: f64, bytes: f64| Used { quell_us: us, log_bytes: bytes, ..Used::default() };
        let costs = model(
            [used(20.0, 300.0), used(10.0, 100.0)],
            [used(210.0, 1_000.0), used(29.0, 350.0)],
            [used(40.0, 10_000.0), used(20.0, 290.0)],
        );
        assert_eq!((costs["quell_append_burst_us"], costs["quell_append_event_us"]), (10.0, 10.0));
        assert_eq!((costs["quell_run_burst_us"], costs["quell_run_event_us"]), (9.0, 1.0));
        assert_eq!((costs["log_burst_bytes"], costs["log_event_bytes"]), (350.0, 50.0));
        assert!((costs["log_kilobyte_bytes"] - 1_000.0).abs() < 1e-9, "{costs:?}");
        assert!((costs["quell_kilobyte_us"] - 30.0 / 9.89).abs() < 1e-9, "{costs:?}");
    }

    #[test]
    fn a_payload_has_its_size_and_all_letters() {
        let text = text(LARGE);
        assert_eq!(text.len(), LARGE);
        assert_eq!(text.chars().collect::<std::collections::BTreeSet<_>>().len(), 64);
    }

    #[test]
    fn ticks_of_a_thread_with_a_strange_name() {
        let stat = "12 (a (b) c) S 1 1 1 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 1 0 100 0 0";
        assert_eq!(parse(stat), Some(("a (b) c".to_owned(), 3_000_000.0)));
    }

    #[test]
    fn every_store_has_committed_costs_and_each_can_be_replaced_by_name() {
        for kind in [Kind::Sqlite, Kind::Postgres, Kind::Redis] {
            let costs = Costs::committed(kind).unwrap();
            assert!(costs.store_append_event_us + costs.store_append_burst_us > 0.0, "{costs:?}");
            let changed = costs.with("append_ms", 7.5).unwrap();
            assert_eq!(changed, Costs { append_ms: 7.5, ..costs });
        }
        let error = Costs::committed(Kind::Sqlite).unwrap().with("money", 1.0).unwrap_err();
        assert!(error.to_string().contains("append_ms"), "{error}");
    }

    #[test]
    fn the_costs_of_one_store_are_written_beside_those_of_the_others() {
        let figures =
            [Figure::new("costs", "append_ms", 0.12345, "ms"), Figure::new("jobs", "drain", 1.0, "")];
        let text = written("[redis]\nappend_ms = 2.0\n", Kind::Sqlite, &figures).unwrap();
        assert!(
            text.contains("[redis]\nappend_ms = 2.0\n") && text.contains("[sqlite]\nappend_ms = 0.123\n"),
            "{text}"
        );
    }
}
