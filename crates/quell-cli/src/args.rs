//! The command line: what is common to all commands, and the list of them.
//!
//! The arguments of a command stand in its own file. Nothing here is checked against the configuration; that is
//! `context.rs`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::commands;

/// What scripts decide by: part of the interface, shown under the help, in the manual and in the reference.
pub(crate) const EXIT_CODES: [(&str, &str); 10] = [
    ("0", "done; also a worker that was stopped by one signal"),
    (
        "1",
        "failed, or something is wrong: `doctor` found a problem, `send --bulk` refused lines, `redrive` refused runs, `torture` found something",
    ),
    ("2", "wrong usage or configuration; also a question that nobody can be asked without `--yes`"),
    ("3", "not found: a run, an event, a schedule, a key that was never seen, a queue that nobody knows"),
    (
        "4",
        "conflict or refused: a limit, an id used for another payload, a busy key with `--only-if-idle`, a file or store that would \
         be overwritten or is in use, a question answered with no",
    ),
    ("5", "the store is not available: missing, damaged, not Quell's, of a newer version, read-only, full"),
    ("6", "`send --wait`: the run failed"),
    ("7", "`send --wait`: the run was cancelled, or the event was erased"),
    ("8", "`send --wait`: the run has not ended in time"),
    ("130, 143", "a worker that was stopped at once by a second SIGINT or SIGTERM"),
];

/// The codes, and where to read on.
pub(crate) fn exit_codes() -> String {
    let codes: String = EXIT_CODES.iter().map(|(code, meaning)| format!("  {code}  {meaning}\n")).collect();
    format!("Exit codes:\n{codes}\nDocumentation: docs/guide/first-steps.md, docs/reference/cli.md")
}

#[derive(Debug, Parser)]
#[command(
    name = "quell",
    version,
    about = "Quell turns bursts of events into one orderly run per key.",
    after_help = exit_codes(),
    disable_help_subcommand = false,
    max_term_width = 110
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Options of every command.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Global {
    /// Where events are kept: `sqlite:PATH`, `postgres://…` or `redis://…`; several databases as one store with commas between
    /// them. Before QUELL_STORE, quell.toml, DATABASE_URL and ./quell.db
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// The configuration file; without this, ./quell.toml if it exists
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// What is logged to stderr: error, warn, info, debug, trace, or a filter such as `quell=debug`. Also QUELL_LOG
    /// and RUST_LOG; `info` for serve and work, else `warn`
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(crate) log: Option<String>,
    /// The form of log lines
    #[arg(long, global = true, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) log_format: LogFormat,
    /// Colour on stdout and stderr; `auto` means on a terminal and without NO_COLOR
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) color: Color,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

impl LogFormat {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

impl Color {
    pub(crate) fn apply(self) {
        match self {
            Color::Auto => {}
            Color::Always => anstream::ColorChoice::Always.write_global(),
            Color::Never => anstream::ColorChoice::Never.write_global(),
        }
    }
}

/// For commands that read: tables for people or JSON for programs.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Form {
    /// Stable JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// For commands that change something by hand.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ByHand {
    /// Who does this, for the audit trail; default user@host
    #[arg(long, value_name = "NAME")]
    pub(crate) actor: Option<String>,
    /// Why, for the audit trail: one sentence
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

/// For commands that list.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Paging {
    /// Rows at the most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) limit: u16,
    /// Go on behind an earlier page: the `next` of its answer
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write a commented quell.toml with the defaults
    Init(commands::init::InitArgs),
    /// HTTP and workers in one process
    Serve(commands::serve::ServeArgs),
    /// Run workers only; with --until-idle, stop when nothing is left
    Work(commands::work::WorkArgs),
    /// Like serve, with every batch sent to one address: for writing the other side
    Listen(commands::listen::ListenArgs),
    /// Store one event, or many with --bulk
    Send(commands::send::SendArgs),
    /// List keys that have something to do
    Lanes(commands::lanes::LanesArgs),
    /// Why is this key waiting? Also edits, deletes and erases its events
    Lane(commands::lane::LaneArgs),
    /// List runs, newest first
    Runs(commands::runs::RunsArgs),
    /// One run with its history and its events
    Run(commands::run::RunArgs),
    /// List failed runs with their errors
    Dead(commands::dead::DeadArgs),
    /// Who changed what, newest first
    Audit(commands::audit::AuditArgs),
    /// A live view in the terminal: totals, rates, lanes with the reason they wait; keys act on them
    Top(commands::top::TopArgs),
    /// Show what happens, as it happens
    Tail(commands::tail::TailArgs),
    /// What webhooks have brought, why it was refused, and taking it in again
    Deliveries(commands::deliveries::DeliveriesArgs),
    /// Send a webhook as its provider would, to try an endpoint out
    Trigger(commands::trigger::TriggerArgs),
    /// Capture sessions of coding agents: what they call, and installing it
    Hook(commands::hook::HookArgs),
    /// Conversations with customers: list, show, take over, say, hand back, forget
    Chat(commands::chat::ChatArgs),
    /// Prices of things: intakes, sources, collecting, values
    Prices(commands::prices::PricesArgs),
    /// Sessions of coding agents: list, import, forget
    Sessions(commands::sessions::SessionsArgs),
    /// One session of a coding agent, to be read
    Session(commands::session::SessionArgs),
    /// Find words in all sessions of coding agents
    Search(commands::search::SearchArgs),
    /// List, put, remove and preview what comes by the calendar
    Schedules(commands::schedules::SchedulesArgs),
    /// Outside parties with limits: list, show, enable, disable, reset, put, remove, release
    Sources(commands::sources::SourcesArgs),
    /// Who may do what over HTTP: create, list, revoke
    Token(commands::token::TokenArgs),
    /// Hand a key over now: close its window, or end its backoff
    Flush(commands::flush::FlushArgs),
    /// Stop handing over a queue, or one key; running handlers go on
    Pause(commands::pause::PauseArgs),
    /// End a pause, or the wait of a key for a failed run
    Resume(commands::pause::PauseArgs),
    /// End what a key is doing, or is about to do
    Cancel(commands::cancel::CancelArgs),
    /// Put the events of failed or cancelled runs back to work
    Redrive(commands::redrive::RedriveArgs),
    /// Throw away what is dead, delayed or buffered
    Purge(commands::purge::PurgeArgs),
    /// Show the settings in force and where each came from
    Check(commands::check::CheckArgs),
    /// Examine the store and this machine
    Doctor(commands::doctor::DoctorArgs),
    /// Copy the store into a file, while it is in use
    Backup(commands::backup::BackupArgs),
    /// Make a store from a backup
    Restore(commands::backup::RestoreArgs),
    /// Move everything to another store, and seal a store
    Store(commands::store::StoreArgs),
    /// What would happen, when and why: a script of arrivals and failures under these settings, in virtual time
    Simulate(commands::simulate::SimulateArgs),
    /// See it work: bursts, a killed worker, duplicates, the audit
    Demo(commands::demo::DemoArgs),
    /// Measure this machine's disk, or the server that --store names, and Quell on it
    Bench(commands::bench::BenchArgs),
    /// Kill, stop and cut off processes on a new store, and check every promise in the end
    Torture(commands::torture::TortureArgs),
    /// Print a completion script for your shell
    Completions(commands::completions::CompletionsArgs),
    /// Write the manual pages, or show the one of quell itself
    Man(commands::man::ManArgs),
    /// The worker that the demo kills.
    #[command(hide = true, name = "demo-worker")]
    DemoWorker(commands::demo::WorkerArgs),
    /// One of the processes that the benchmark starts.
    #[command(hide = true, name = "bench-worker")]
    BenchWorker(commands::bench::WorkerArgs),
    /// One of the processes that torture starts and kills.
    #[command(hide = true, name = "torture-child")]
    TortureChild(commands::torture::ChildArgs),
}

impl Command {
    /// What is logged unless somebody says otherwise.
    pub(crate) fn log_level(&self) -> &'static str {
        match self {
            Command::Serve(_) | Command::Work(_) => "info",
            Command::Listen(_) => "info,quell_server::hooks=debug",
            // It tells its own story, of which a reclaimed lease is a part and no warning.
            Command::Demo(_) | Command::DemoWorker(_) | Command::Simulate(_) => "error",
            // Its parent hurts it on purpose.
            Command::TortureChild(_) => "error",
            _ => "warn",
        }
    }

    /// Whether it may be part of a trace: those that bring events in or work on them.
    #[cfg(feature = "otel")]
    pub(crate) fn is_recorded(&self) -> bool {
        matches!(
            self,
            Command::Serve(_)
                | Command::Work(_)
                | Command::Listen(_)
                | Command::Send(_)
                | Command::Trigger(_)
        )
    }
}
