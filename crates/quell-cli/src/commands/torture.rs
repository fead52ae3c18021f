//! `quell torture`: real processes on a store, killed, stopped and cut off, with every promise checked in the end.
//!
//! The work is `quell-torture`'s; here are the command line, the stores by their URLs, the processes, which are this binary
//! again (`torture-child`), and the report. The store is the one that `--store` names and never the configuration's, and it has
//! to be new or empty.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clap::Args;
use clap::builder::PossibleValuesParser;
use quell::clock::{Chance, RealTime, Stopwatch, Time};
use quell::config::{Origin, StoreChoice, StoreKind, StoreUrl};
use quell::open::{OpenError, open, open_unflushed};
use quell::quell_core::error::{ErrorKind, StoreError};
use quell::quell_core::store::Store;
use quell_torture::{
    Door, Fault, Kind, Options, Place, Report, Role, Synchronous, Task, refuse_unless_empty,
};

use crate::args::{Form, Global};
use crate::failure::{self, Failure};
use crate::output::{self, Columns, cell};
use crate::signals::Signals;

/// A child waits so long for a store that is just being started again, or whose disk is full.
const OPEN_MAX: Duration = Duration::from_secs(120);
const OPEN_PAUSE: Duration = Duration::from_millis(20);
/// A week; longer than that nobody waits for an answer.
const MINUTES_MAX: f64 = 10_080.0;

#[derive(Debug, Args)]
pub(crate) struct TortureArgs {
    /// How long the processes are hurt; judging what they did comes on top. Parts of a minute are fine
    #[arg(long, value_name = "N", default_value = "10", value_parser = minutes)]
    minutes: Duration,
    /// Only these faults, with commas between them; without it, all that can be done to this store
    #[arg(long, value_name = "FAULTS", value_delimiter = ',', value_parser = PossibleValuesParser::new(Fault::ALL.map(Fault::name)))]
    faults: Vec<String>,
    /// Repeats the plan of another run: which fault comes when, and to whom
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Seconds of one round; each has a fresh store and is judged by itself
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(2..=600))]
    round: u64,
    /// Power cuts with `synchronous = NORMAL` at the end, which have to lose something: the proof that a loss is noticed
    #[arg(long, value_name = "N", default_value_t = 5)]
    bites: u64,
    /// Also write a dated page into this folder
    #[arg(long, value_name = "FOLDER")]
    record: Option<PathBuf>,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct ChildArgs {}

fn minutes(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number <= MINUTES_MAX => Ok(Duration::from_secs_f64(number * 60.0)),
        _ => Err(format!("a number of minutes above 0 and up to {MINUTES_MAX}")),
    }
}

pub(crate) async fn run(args: &TortureArgs, global: &Global) -> Result<u8, Failure> {
    let Some(url) = &global.store else {
        let text = "torture needs --store, and takes no other store than the one that is named there";
        return Err(Failure::new(failure::USAGE, text)
            .help("--store sqlite:/tmp/torture.db for a new file, postgres:local or redis:local for a server of its own"));
    };
    let place = place(url)?;
    refuse_data(&place, url).await?;
    let asked: Vec<Fault> = args.faults.iter().filter_map(|name| Fault::of(name)).collect();
    let options = Options {
        place,
        length: args.minutes,
        round: Duration::from_secs(args.round),
        // Small enough to be typed again.
        seed: args.seed.unwrap_or_else(|| Chance::from_system().number() % 1_000_000),
        faults: if asked.is_empty() { Fault::ALL.to_vec() } else { asked },
        bites: args.bites,
    };
    let doorway = Doorway { program: std::env::current_exe()? };
    let mut signals = Signals::listen()?;
    let mut stopped = None;
    let stop = async { stopped = Some(signals.next_stop().await) };
    let report = Box::pin(quell_torture::run(&options, &doorway, stop, &mut |what| output::say(what))).await;
    let report = report.map_err(|broken| Failure::new(failure::FAILED, broken.to_string()))?;
    let command = repeat(args, url, options.seed);
    if let Some(folder) = &args.record {
        let path = write_record(folder, &report, &command)?;
        output::say(format!("written: {}", path.display()));
    }
    if args.form.json {
        output::json(&serde_json::json!({ "report": report, "good": report.is_good(), "repeat": command }))?;
    } else {
        show(&report, &command)?;
    }
    match (report.is_good(), stopped) {
        (false, _) => Ok(failure::FAILED),
        (true, Some(stop)) => Ok(stop.exit_code()),
        (true, None) => Ok(0),
    }
}

/// The hidden command `torture-child`: one of the processes.
pub(crate) async fn child(_args: &ChildArgs) -> Result<u8, Failure> {
    let Some(task) = Task::from_environment() else {
        return Err(Failure::new(failure::USAGE, "torture-child is started by `quell torture` only"));
    };
    let doorway = Doorway { program: PathBuf::new() };
    let waited = Stopwatch::start();
    let store = loop {
        match doorway.open(&task.store, task.sync).await {
            Ok(store) => break store,
            Err(error) if error.is_temporary() && waited.elapsed() < OPEN_MAX => {
                quell::clock::sleep(OPEN_PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    };
    let role = task.role;
    let done = Box::pin(quell_torture::child(role, store, &task.log)).await;
    done.map_err(|broken| Failure::new(failure::FAILED, broken.to_string()))?;
    match role {
        Role::Drain => Ok(0),
        _ => Err(Failure::new(failure::FAILED, "a child has come to an end, which it never does")),
    }
}

fn place(url: &str) -> Result<Place, Failure> {
    match url {
        "postgres:local" => return Ok(Place::Own(Kind::Postgres)),
        "redis:local" => return Ok(Place::Own(Kind::Redis)),
        _ => {}
    }
    let parsed = StoreUrl::parse(url)
        .map_err(|problem| Failure::new(failure::USAGE, format!("--store: {problem}")))?;
    Ok(match parsed.kind() {
        StoreKind::Sqlite(path) => Place::File(path.clone()),
        StoreKind::Postgres => Place::Server(Kind::Postgres, url.to_owned()),
        StoreKind::Redis => Place::Server(Kind::Redis, url.to_owned()),
        StoreKind::Several(_) => {
            let text = "--store: one database at a time is tortured; name one";
            return Err(Failure::new(failure::USAGE, text));
        }
    })
}

/// Whoever names a store that is in use has made a mistake.
async fn refuse_data(place: &Place, url: &str) -> Result<(), Failure> {
    let other = match place {
        Place::Own(_) => return Ok(()),
        // A file that is not there yet is not made for this.
        Place::File(path) if std::fs::metadata(path).map_or(0, |about| about.len()) == 0 => return Ok(()),
        Place::File(_) => "a file that does not exist",
        Place::Server(Kind::Postgres, _) => "a schema that does not exist, with ?schema=NAME",
        Place::Server(..) => "a prefix that nobody uses, with ?prefix=NAME",
    };
    let store = open(&choice(url)?, Duration::ZERO).await?;
    refuse_unless_empty(&*store).await.map_err(|has| {
        let text = format!(
            "{} is in use: {has}; torture only works on a store that is new or empty",
            store.description().place
        );
        Failure::new(failure::REFUSED, text).help(format!("name {other}"))
    })
}

fn choice(url: &str) -> Result<StoreChoice, StoreError> {
    let url = StoreUrl::parse(url).map_err(|problem| StoreError::new(ErrorKind::Invalid, problem))?;
    Ok(StoreChoice { url, origin: Origin::Flag("--store") })
}

struct Doorway {
    program: PathBuf,
}

#[async_trait]
impl Door for Doorway {
    async fn open(&self, url: &str, sync: Synchronous) -> Result<Arc<dyn Store>, StoreError> {
        let choice = choice(url)?;
        let opened = match sync {
            Synchronous::Full => open(&choice, Duration::ZERO).await,
            Synchronous::Normal => open_unflushed(&choice).await,
        };
        opened.map_err(|error| match error {
            OpenError::Failed { problem, .. } => problem,
            other => StoreError::new(ErrorKind::Invalid, other.to_string()),
        })
    }

    fn child(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("torture-child");
        command
    }
}

/// The command that does the same again, without passwords.
fn repeat(args: &TortureArgs, url: &str, seed: u64) -> String {
    let shown = StoreUrl::parse(url).map_or_else(|_| url.to_owned(), |url| url.to_string());
    let minutes = args.minutes.as_secs_f64() / 60.0;
    let mut command =
        format!("quell torture --store {shown} --minutes {minutes:.2} --seed {seed} --round {}", args.round);
    if !args.faults.is_empty() {
        command.push_str(" --faults ");
        command.push_str(&args.faults.join(","));
    }
    command.push_str(&format!(" --bites {}", args.bites));
    command
}

fn show(report: &Report, command: &str) -> Result<(), Failure> {
    let mut table = Columns::new(&["FAULT", "TIMES"]).right(1);
    for (name, times) in &report.faults {
        table.row([cell(name), cell(times)]);
    }
    table.write()?;
    for skipped in &report.skipped {
        output::line(format!("skipped: {} ({})", skipped.fault.name(), skipped.reason))?;
    }
    output::line("")?;
    let mut table = Columns::new(&["WHAT", "NUMBER"]).right(1);
    for (name, number) in report.facts() {
        table.row([cell(name), cell(number)]);
    }
    table.write()?;
    if let Some(bite) = report.bite {
        output::line(format!("\n{}", bite.sentence()))?;
    }
    if let Some(found) = &report.found {
        output::line(format!("\nfound in round {}:\n{}", found.round, found.what))?;
        if let Some(kept) = &found.kept {
            output::line(format!("everything is kept in {}", kept.display()))?;
        }
    }
    output::line(format!(
        "\n{} rounds in {} s, seed {}; again: {command}",
        report.rounds, report.seconds, report.seed
    ))?;
    Ok(())
}

/// `2026-01-31-torture-sqlite-7.md`.
fn write_record(folder: &Path, report: &Report, command: &str) -> Result<PathBuf, Failure> {
    let now = jiff::Timestamp::from_millisecond(RealTime::new().wall().as_millis());
    let date = now.map(|now| now.strftime("%Y-%m-%d").to_string()).unwrap_or_default();
    let kind = report.store.name().to_lowercase();
    let mut path = folder.join(format!("{date}-torture-{kind}-{}.md", report.seed));
    let mut again = 1;
    while path.exists() {
        again += 1;
        path = folder.join(format!("{date}-torture-{kind}-{}-{again}.md", report.seed));
    }
    let unwritten =
        |error| Failure::new(failure::FAILED, format!("cannot write {}: {error}", path.display()));
    std::fs::create_dir_all(folder).map_err(unwritten)?;
    std::fs::write(&path, report.page(&date, command, &machine())).map_err(unwritten)?;
    Ok(path)
}

/// What a reader has to know of where it was done.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let system = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    format!("Quell {} ({build} build), {cores} cores, Linux {}", env!("CARGO_PKG_VERSION"), system.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_may_be_parts_and_are_bounded() {
        assert_eq!(minutes("0.5").unwrap(), Duration::from_secs(30));
        for bad in ["0", "-1", "nan", "inf", "20000", "soon"] {
            assert!(minutes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_server_of_its_own_is_a_place_like_any_other() {
        assert_eq!(place("redis:local").unwrap().kind(), Kind::Redis);
        assert_eq!(place("postgres:local").unwrap().kind(), Kind::Postgres);
        assert_eq!(place("sqlite:x.db").unwrap().kind(), Kind::Sqlite);
        assert!(place("mysql:local").is_err());
    }
}
