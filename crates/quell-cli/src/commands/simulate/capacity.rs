//! `quell simulate --capacity`: how many databases, servers and workers a load needs, how late it would be and what it would cost.
//!
//! Costs are those that `quell bench costs` measured (`costs.toml` of quell-bench), unless flags say others. `plan.rs` reckons, `queue.rs`
//! simulates.

#[cfg(test)]
mod page;
mod plan;
mod queue;

use std::time::Duration;

use clap::{Args, ValueEnum};
use quell::config::DurationText;
use quell_bench::Kind;
use quell_bench::costs::Costs;

use crate::failure::{self, Failure};
use crate::output::{self, Columns, cell};
use plan::{Ask, DATABASES_MAX, MORE, Plan, per_million};

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Store {
    Sqlite,
    Postgres,
    Redis,
}

impl Store {
    fn kind(self) -> Kind {
        match self {
            Store::Sqlite => Kind::Sqlite,
            Store::Postgres => Kind::Postgres,
            Store::Redis => Kind::Redis,
        }
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Capacity")]
pub(crate) struct CapacityArgs {
    /// How many machines a load needs, in place of a script
    #[arg(long, conflicts_with = "script")]
    pub(crate) capacity: bool,
    /// Events of one minute; may be repeated
    #[arg(long, value_name = "N", default_values_t = [10_000.0, 1_000_000.0, 100_000_000.0], conflicts_with = "script")]
    events_per_minute: Vec<f64>,
    /// Bytes of one payload
    #[arg(long, value_name = "BYTES", default_value_t = 1_000, conflicts_with = "script")]
    payload: u32,
    /// Events of one burst, which become one run
    #[arg(long, value_name = "N", default_value_t = 5, conflicts_with = "script", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    burst: u32,
    /// From one event of a burst to the next
    #[arg(long, value_name = "DURATION", default_value = "200ms", conflicts_with = "script", value_parser = DurationText::parse)]
    gap: Duration,
    /// The quiet period that ends a burst
    #[arg(long, value_name = "DURATION", default_value = "2s", conflicts_with = "script", value_parser = DurationText::parse)]
    quiet: Duration,
    /// How long a handler takes
    #[arg(long, value_name = "DURATION", default_value = "200ms", conflicts_with = "script", value_parser = DurationText::parse)]
    handler_time: Duration,
    /// The share of its time that a handler uses a core, 0 to 1; the rest it waits for others
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, conflicts_with = "script")]
    handler_cpu: f64,
    /// The kind of store
    #[arg(long, value_name = "KIND", value_enum, default_value = "sqlite", conflicts_with = "script")]
    kind: Store,
    /// Cores of each machine
    #[arg(long, value_name = "N", default_value_t = 4, conflicts_with = "script", value_parser = clap::value_parser!(u16).range(1..=1024))]
    cores: u16,
    /// Handlers that run at once in one worker process
    #[arg(long, value_name = "N", default_value_t = 16, conflicts_with = "script", value_parser = clap::value_parser!(u16).range(1..))]
    slots: u16,
    /// The share of its time that anything may work
    #[arg(long, value_name = "SHARE", default_value_t = 0.7, conflicts_with = "script")]
    busy: f64,
    /// How late 99 of 100 runs may begin after their window is over
    #[arg(long, value_name = "DURATION", default_value = "250ms", conflicts_with = "script", value_parser = DurationText::parse)]
    late: Duration,
    /// Days that finished runs are kept
    #[arg(long, value_name = "DAYS", default_value_t = 7.0, conflicts_with = "script")]
    retention_days: f64,
    /// Megabytes a second that the disk of one database writes: an assumption
    #[arg(long, value_name = "MB", default_value_t = 500.0, conflicts_with = "script")]
    disk_speed: f64,
    /// Gigabits a second that the network of one machine carries: an assumption
    #[arg(long, value_name = "GBIT", default_value_t = 10.0, conflicts_with = "script")]
    network_speed: f64,
    /// What a core costs for an hour: your price, this one is an example
    #[arg(long, value_name = "MONEY", default_value_t = 0.05, conflicts_with = "script")]
    core_hour: f64,
    /// What a gigabyte of disk costs for a month: your price, this one is an example
    #[arg(long, value_name = "MONEY", default_value_t = 0.10, conflicts_with = "script")]
    gigabyte_month: f64,
    /// A cost in place of the measured one, as `store_append_event_us=12`; may be repeated
    #[arg(long = "cost", value_name = "NAME=VALUE", conflicts_with = "script", value_parser = pair)]
    costs: Vec<(String, f64)>,
}

fn pair(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.split_once('=').ok_or("a cost is NAME=VALUE")?;
    let value: f64 = value.parse().map_err(|_| format!("{value:?} is not a number"))?;
    if !value.is_finite() || value < 0.0 {
        return Err(format!("{value} is no cost"));
    }
    Ok((name.to_owned(), value))
}

pub(crate) fn run(args: &CapacityArgs, seed: u64, json: bool) -> Result<u8, Failure> {
    let kind = args.kind.kind();
    let mut costs =
        Costs::committed(kind).map_err(|error| Failure::new(failure::FAILED, format!("{error:#}")))?;
    for (name, value) in &args.costs {
        costs = costs.with(name, *value).map_err(|error| Failure::new(failure::USAGE, error.to_string()))?;
    }
    let asked = args.events_per_minute.iter().map(|events| asked(args, *events, seed));
    let asked: Vec<Ask> =
        asked.collect::<Result<_, String>>().map_err(|text| Failure::new(failure::USAGE, text))?;
    let plans: Vec<(Ask, Plan)> =
        asked.into_iter().map(|ask| (ask.clone(), plan::plan(&ask, &costs))).collect();
    if json {
        let items: Vec<_> =
            plans.iter().map(|(ask, plan)| serde_json::json!({ "asked": ask, "plan": plan })).collect();
        output::json(&serde_json::json!({ "costs": costs, "items": items, "next": null }))?;
        return Ok(0);
    }
    let names: Vec<String> = plans.iter().map(|(ask, _)| grouped(ask.events_per_minute)).collect();
    let names: Vec<&str> = ["EVENTS A MINUTE"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let mut table = (1..names.len()).fold(Columns::new(&names), Columns::right);
    for (what, values) in rows(&plans) {
        table.row([cell(what)].into_iter().chain(values.into_iter().map(cell)));
    }
    table.write()?;
    output::say(
        "simulated with measured costs; the prices and the speeds of disk and network are assumptions, see --help",
    );
    Ok(0)
}

fn asked(args: &CapacityArgs, events_per_minute: f64, seed: u64) -> Result<Ask, String> {
    let share = |name: &str, value: f64, least: f64| {
        let fits = value >= least && value <= 1.0;
        if fits { Ok(value) } else { Err(format!("{name} is a share of the time, {least} to 1")) }
    };
    let amount = |name: &str, value: f64, most: f64| {
        let fits = value > 0.0 && value <= most;
        if fits { Ok(value) } else { Err(format!("{name} is more than 0 and at most {most}")) }
    };
    let price = |name: &str, value: f64| {
        if value.is_finite() && value >= 0.0 {
            Ok(value)
        } else {
            Err(format!("{name} is an amount of money"))
        }
    };
    Ok(Ask {
        store: args.kind.kind(),
        events_per_minute: amount("--events-per-minute", events_per_minute, EVENTS_PER_MINUTE_MAX)?,
        payload_bytes: f64::from(args.payload),
        burst: args.burst,
        gap_s: args.gap.as_secs_f64(),
        quiet_s: args.quiet.as_secs_f64(),
        handler_s: args.handler_time.as_secs_f64(),
        handler_cpu: share("--handler-cpu", args.handler_cpu, 0.0)?,
        cores: usize::from(args.cores),
        concurrency: usize::from(args.slots),
        busy_max: share("--busy", args.busy, 0.05)?,
        late_p99_max_ms: args.late.as_secs_f64() * 1e3,
        retention_days: amount("--retention-days", args.retention_days, 3_650.0)?,
        disk_megabytes_per_second: amount("--disk-speed", args.disk_speed, 1e6)?,
        network_gigabits: amount("--network-speed", args.network_speed, 1e6)?,
        core_hour: price("--core-hour", args.core_hour)?,
        gigabyte_month: price("--gigabyte-month", args.gigabyte_month)?,
        seed,
    })
}

/// More than all of the world's chats together send.
const EVENTS_PER_MINUTE_MAX: f64 = 1e10;

/// What a row says of one plan.
type Says = fn(&Ask, &Plan) -> String;

/// The answer, by rows: what it is, and how much of it for each load.
fn rows(plans: &[(Ask, Plan)]) -> Vec<(String, Vec<String>)> {
    let more = format!("the same with {MORE} × the load");
    let most =
        format!("what one store of {} databases takes, events a minute", grouped(DATABASES_MAX as f64));
    let rows: [(&str, Says); 28] = [
        ("runs a second", |_, plan| grouped(plan.runs_per_second)),
        ("databases", |_, plan| grouped(plan.databases as f64)),
        ("stores side by side", |_, plan| grouped(plan.stores as f64)),
        ("machines for Quell beside them", |_, plan| grouped(plan.servers as f64)),
        ("worker processes", |_, plan| grouped(plan.workers as f64)),
        ("handlers at once", |_, plan| grouped(plan.slots as f64)),
        ("cores at work in the databases", |_, plan| cores(plan.database_cores)),
        ("cores at work in Quell", |_, plan| cores(plan.quell_cores)),
        ("written to disks, MB/s", |_, plan| grouped(plan.log_megabytes_per_second)),
        ("over the network, MB/s", |_, plan| grouped(plan.network_megabytes_per_second)),
        ("busy: each database", |_, plan| percent(plan.database_busy)),
        ("busy: the cores for Quell", |_, plan| percent(plan.quell_busy)),
        ("busy: handlers", |_, plan| percent(plan.slots_busy)),
        ("busy: each disk", |_, plan| percent(plan.disk_busy)),
        ("busy: each network", |_, plan| percent(plan.network_busy)),
        ("a run begins late by, p50", |_, plan| millis(plan.late_p50_ms)),
        ("a run begins late by, p99", |_, plan| millis(plan.late_p99_ms)),
        (&more, |_, plan| plan.more_late_p99_ms.map_or("grows".to_owned(), millis)),
        ("an append is answered within, p99", |_, plan| millis(plan.append_p99_ms)),
        ("disk of a day, GB", |_, plan| grouped(plan.gigabytes_per_day)),
        ("disk in the end, GB", |_, plan| grouped(plan.gigabytes_kept)),
        ("machines for a month", |_, plan| grouped(plan.machines_per_month)),
        ("disks for a month", |_, plan| grouped(plan.disks_per_month)),
        ("for a million events", |ask, plan| format!("{:.3}", per_million(ask, plan))),
        ("the next limit", |_, plan| plan.limit.to_owned()),
        ("reached at, events a minute", |_, plan| about(plan.limit_events_per_minute)),
        (&most, |_, plan| about(plan.most_events_per_minute)),
        ("all of it is to be had", |_, plan| if plan.reached { "yes" } else { "no" }.to_owned()),
    ];
    let row = |(what, says): (&str, Says)| {
        (what.to_owned(), plans.iter().map(|(ask, plan)| says(ask, plan)).collect())
    };
    rows.into_iter().map(row).collect()
}

fn percent(share: f64) -> String {
    if share > 0.0 && share < 0.01 { "< 1 %".to_owned() } else { format!("{:.0} %", share * 100.0) }
}

fn millis(ms: f64) -> String {
    format!("{ms:.1} ms")
}

/// Small ones by their hundredths.
fn cores(amount: f64) -> String {
    if amount < 10.0 { format!("{amount:.2}") } else { grouped(amount) }
}

/// Three digits that mean something.
fn about(value: f64) -> String {
    let digits = 10_f64.powf(value.max(1.0).log10().floor() - 2.0).max(1.0);
    grouped((value / digits).round() * digits)
}

/// Thousands apart; decimals only for what is small.
fn grouped(value: f64) -> String {
    if value < 100.0 && value.fract() != 0.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
