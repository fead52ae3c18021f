//! `quell bench`: the workloads of `quell-bench` on this machine, as a table or as JSON.
//!
//! The store is the one that `--store` names and never the configuration's: a benchmark is asked for, not inherited. It
//! works in a scratch folder, schema or prefix of its own either way, and removes it also when a signal ends it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use quell_bench::{Figure, GROWTH, Options, Place, Program, Sizes, WORKLOADS};

use crate::args::{Form, Global};
use crate::failure::{self, Failure};
use crate::output::{self, Columns, cell};
use crate::signals::Signals;

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to measure; all but `hot`, `growth` and `costs` when left out
    #[arg(value_name = "WORKLOAD", value_parser = PossibleValuesParser::new(WORKLOADS.iter().chain([&GROWTH])))]
    workloads: Vec<String>,
    /// Only the workload `http`: append through a server
    #[arg(long, conflicts_with = "workloads")]
    http: bool,
    /// SQLite: the disk of this folder is measured. Without it and --store, the folder you are in
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Events of the workload `jobs`
    #[arg(long, value_name = "N", default_value_t = Sizes::default().jobs)]
    jobs: usize,
    /// Lanes that wait at the end of the workloads `waiting` and `growth-lanes`, in `dashboard` and (up to 100,000) in `http`
    #[arg(long, value_name = "N", default_value_t = Sizes::default().waiting)]
    waiting: usize,
    /// Lanes that each number of processes drains in the workloads `processes` and `growth-workers`
    #[arg(long, value_name = "N", default_value_t = Sizes::default().process_lanes)]
    process_lanes: usize,
    /// How long the other session of the workload `held` keeps its transaction open
    #[arg(long, value_name = "N", default_value_t = Sizes::default().held.as_secs())]
    held_seconds: u64,
    /// Customers of the workload `chat`
    #[arg(long, value_name = "N", default_value_t = Sizes::default().customers)]
    customers: usize,
    /// How long the workload `siege` measures alone, and again beside those who mean harm
    #[arg(long, value_name = "N", default_value_t = Sizes::default().siege.as_secs())]
    siege_seconds: u64,
    /// Lanes of the workload `timer`
    #[arg(long, value_name = "N", default_value_t = Sizes::default().timers)]
    timers: usize,
    /// How long the key of the workload `hot` is hot
    #[arg(long, value_name = "N", default_value_t = Sizes::default().hot.as_secs(), value_parser = clap::value_parser!(u64).range(1..=3_600))]
    hot_seconds: u64,
    /// Events a second of that key
    #[arg(long, value_name = "N", default_value_t = Sizes::default().hot_rate)]
    hot_rate: usize,
    /// Events of each step of the workload `growth-sizes`; `growth-payloads` takes half of them
    #[arg(long, value_name = "N", default_value_t = Sizes::default().growth_events)]
    growth_events: usize,
    /// Runs that have ended, at the end of the workload `growth-history`
    #[arg(long, value_name = "N", default_value_t = Sizes::default().history)]
    history: usize,
    /// Write pictures (SVG) of what grows into this folder, one for each series of `growth`
    #[arg(long, value_name = "FOLDER")]
    plot: Option<PathBuf>,
    /// Events of each step of the workload `costs`
    #[arg(long, value_name = "N", default_value_t = Sizes::default().costs)]
    costs_events: usize,
    /// Write what the workload `costs` measured into this file, in place of what it says of this store
    #[arg(long, value_name = "FILE")]
    write_costs: Option<PathBuf>,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {}

pub(crate) async fn run(args: &BenchArgs, global: &Global) -> Result<u8, Failure> {
    if cfg!(debug_assertions) {
        output::say("this is a debug build; figures of `cargo run --release -- bench` say more");
    }
    let options = Options {
        place: place(args, global)?,
        workloads: if args.http { vec!["http".to_owned()] } else { args.workloads.clone() },
        sizes: Sizes {
            jobs: args.jobs,
            waiting: args.waiting,
            http_lanes: args.waiting.min(Sizes::default().http_lanes),
            process_lanes: args.process_lanes,
            customers: args.customers,
            siege: Duration::from_secs(args.siege_seconds),
            held: Duration::from_secs(args.held_seconds),
            timers: args.timers,
            hot: Duration::from_secs(args.hot_seconds),
            hot_rate: args.hot_rate,
            growth_events: args.growth_events,
            history: args.history,
            costs: args.costs_events,
            ..Sizes::default()
        },
        worker: Some(Program { path: std::env::current_exe()?, args: vec!["bench-worker".to_owned()] }),
        server: Some(Program { path: std::env::current_exe()?, args: Vec::new() }),
    };
    let mut signals = Signals::listen()?;
    let mut stopped = None;
    let stop = async { stopped = Some(signals.next_stop().await) };
    let measured = Box::pin(quell_bench::run(&options, stop, |what| output::say(what))).await;
    if let Some(stop) = stopped {
        return Ok(stop.exit_code());
    }
    let measured = measured.map_err(|error| Failure::new(failure::FAILED, format!("{error:#}")))?;
    if let Some(folder) = &args.plot {
        let written = quell_bench::write_curves(folder, &measured);
        written.map_err(|error| Failure::new(failure::FAILED, format!("{error:#}")))?;
    }
    if let Some(file) = &args.write_costs {
        let written = quell_bench::costs::write(file, &measured);
        written.map_err(|error| Failure::new(failure::FAILED, format!("{error:#}")))?;
    }
    if args.form.json {
        let (store, conditions, items) = (measured.kind, &measured.conditions, &measured.figures);
        output::json(
            &serde_json::json!({ "store": store, "conditions": conditions, "items": items, "next": null }),
        )?;
    } else {
        table(&measured.figures).write()?;
    }
    Ok(0)
}

/// The hidden command `bench-worker`: one of the processes of the workload `processes`.
pub(crate) async fn work(_args: &WorkerArgs) -> Result<u8, Failure> {
    let worked = Box::pin(quell_bench::work()).await;
    worked.map_err(|error| Failure::new(failure::FAILED, format!("{error:#}")))?;
    Ok(0)
}

fn place(args: &BenchArgs, global: &Global) -> Result<Place, Failure> {
    match (&global.store, &args.folder) {
        (Some(_), Some(_)) => {
            let text = "--store and --folder both say what to measure; --folder is for SQLite";
            Err(Failure::new(failure::USAGE, text))
        }
        (Some(url), None) => {
            Place::of(url).map_err(|error| Failure::new(failure::USAGE, format!("{error:#}")))
        }
        (None, folder) => Ok(Place::Folder(folder.clone().unwrap_or_else(|| PathBuf::from(".")))),
    }
}

fn table(figures: &[Figure]) -> Columns {
    let names = ["WORKLOAD", "WHAT", "VALUE", "UNIT", "RAW", "OF RAW", "WANTED", "REACHED"];
    let mut table = Columns::new(&names).right(2).right(4).right(5);
    for figure in figures {
        table.row([
            cell(figure.workload),
            cell(&figure.what),
            cell(number(figure.value)),
            cell(figure.unit),
            cell(output::or_dash(figure.raw.map(number))),
            cell(output::or_dash(figure.ratio.map(|ratio| format!("{:.0} %", ratio * 100.0)))),
            cell(output::or_dash(figure.target.as_ref())),
            cell(output::or_dash(figure.reached.map(|reached| if reached { "yes" } else { "no" }))),
        ]);
    }
    table
}

/// Three digits that mean something.
fn number(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let shown: Vec<String> = [0.123, 1.5, 12.34, 123.4, 45_678.9].into_iter().map(number).collect();
        assert_eq!(shown, ["0.12", "1.50", "12.3", "123", "45679"]);
    }
}
