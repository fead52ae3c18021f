//! `cargo xtask compare`: Quell beside other systems. The library says how; this file reads the command line.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use quell_bench_compare::answer::Answer;
use quell_bench_compare::run::{self, Options, Pages};
use quell_bench_compare::sizes::Sizes;
use quell_bench_compare::{beanstalkd, driver, page};

/// Quell beside the systems that people use in its place: the same shapes on the same servers, by turns.
#[derive(Parser)]
#[command(name = "cargo xtask compare", args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    compare: Compare,
    #[command(subcommand)]
    driver: Option<Driver>,
}

#[derive(Args)]
struct Compare {
    /// Rounds; the page takes five at least.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Small sizes, one round unless it is said: a look at whether everything works.
    #[arg(long)]
    short: bool,
    /// Only this system; may be repeated. An unknown name prints all.
    #[arg(long = "system", value_name = "NAME")]
    systems: Vec<String>,
    /// Only this shape (jobs, keyed, burst); may be repeated.
    #[arg(long = "shape", value_name = "NAME")]
    shapes: Vec<String>,
    /// Events of `jobs`.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Events of `keyed`.
    #[arg(long, value_name = "N")]
    keyed_events: Option<usize>,
    /// Keys of `burst`.
    #[arg(long, value_name = "N")]
    burst_keys: Option<usize>,
    /// Where peers are installed and servers keep their data; a folder on a disk that is kept for the next run. A temporary one
    /// unless it is said.
    #[arg(long, value_name = "FOLDER")]
    inside: Option<PathBuf>,
    /// Write the section of docs/benchmarks.md and its pictures.
    #[arg(long)]
    write: bool,
    /// How this program was built, for the page.
    #[arg(long, value_name = "TEXT", default_value = "Quell built with `--release`")]
    build: String,
}

/// How the runner starts the systems that are inside this program.
#[derive(Subcommand)]
enum Driver {
    /// Quell
    #[command(hide = true)]
    Quell { shape: String, address: String, sizes: String },
    /// beanstalkd
    #[command(hide = true)]
    Beanstalkd { program: PathBuf, flush_ms: u32, shape: String, folder: String, sizes: String },
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    match cli.driver {
        Some(Driver::Quell { shape, address, sizes }) => {
            print(&driver::quell(&shape, &address, &sizes).await?)
        }
        Some(Driver::Beanstalkd { program, flush_ms, shape, folder, sizes }) => {
            print(&beanstalkd::driver(&program, flush_ms, &shape, &folder, &sizes).await?)
        }
        None => compare(cli.compare).await,
    }
}

fn print(answer: &Answer) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(answer)?);
    Ok(())
}

async fn compare(wanted: Compare) -> anyhow::Result<()> {
    let mut sizes = if wanted.short { Sizes::short() } else { Sizes::default() };
    sizes.jobs = wanted.jobs.unwrap_or(sizes.jobs);
    sizes.keyed_events = wanted.keyed_events.unwrap_or(sizes.keyed_events);
    sizes.burst_keys = wanted.burst_keys.unwrap_or(sizes.burst_keys);
    let rounds = if wanted.short && wanted.rounds == 5 { 1 } else { wanted.rounds };
    if wanted.write {
        let enough = page::worth_writing(rounds, wanted.short);
        anyhow::ensure!(enough, "the page takes five rounds at least, and not the short form");
    }
    let temporary = match &wanted.inside {
        Some(_) => None,
        None => Some(
            tempfile::Builder::new().prefix("quell-compare-").tempdir().context("cannot make a folder")?,
        ),
    };
    let folder = wanted.inside.or_else(|| temporary.as_ref().map(|folder| folder.path().to_path_buf()));
    let folder = std::path::absolute(folder.context("there is a folder either way")?)?;
    let docs = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs"));
    let options = Options {
        rounds,
        sizes,
        systems: run::systems(&wanted.systems)?,
        shapes: run::shapes(&wanted.shapes)?,
        folder,
        write: wanted.write.then(|| Pages { page: docs.join("benchmarks.md"), images: docs.join("images") }),
        build: wanted.build,
        date: today(),
    };
    tokio::select! {
        ran = run::run(&options) => ran.map(drop),
        _ = tokio::signal::ctrl_c() => anyhow::bail!("stopped"),
    }
}

/// In UTC.
fn today() -> String {
    jiff::Timestamp::now().strftime("%F").to_string()
}
