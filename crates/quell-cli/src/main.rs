//! The `quell` command: one binary to send events, run handlers and look at lanes and runs.
//!
//! A hook of a coding agent is answered first, in milliseconds (`commands/hook/quick.rs`). This file reads the command line, starts logging and the runtime, calls the command and turns what came back into
//! an exit code. Each command is one file in `commands/`; they talk to the store only through the public interface of
//! the library. Data goes to stdout, everything said about it to stderr.

mod args;
mod commands;
mod confirm;
mod context;
mod failure;
mod help;
mod logging;
mod outgoing;
mod output;
mod payload;
mod progress;
#[cfg(test)]
mod reference;
mod signals;
#[cfg(feature = "otel")]
mod telemetry;
mod times;
mod transcripts;

use std::process::ExitCode;
use std::time::Duration;

use clap::FromArgMatches;

use crate::args::Cli;
use crate::failure::Failure;

/// A worker on a database of its own spends a sixth of its time in the system's allocator: rows come and go on many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// After the command has returned, what is still running in the background gets this long; a handler that was
/// abandoned has its program killed in that time.
const BACKGROUND_MAX: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    if let Some(code) = commands::hook::quick::run(std::env::args_os().skip(1)) {
        return code;
    }
    let matches = match help::command().try_get_matches() {
        Ok(matches) => matches,
        Err(answer) => return usage(&answer),
    };
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(answer) => return usage(&answer),
    };
    cli.global.color.apply();
    let ended = match cli.command {
        Some(command) => run(command, &cli.global),
        None => commands::welcome(),
    };
    ended.map_or_else(|failure| failure.report(), ExitCode::from)
}

/// Files and connections that may be open at once. Systems begin with 1,024 and let a process have more: a server takes 4,096
/// connections unless its configuration says otherwise. Not all that there may be, because programs that handlers start inherit it.
#[cfg(unix)]
const OPEN_FILES: u64 = 16_384;

#[cfg(unix)]
fn allow_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(OPEN_FILES, |most| most.min(OPEN_FILES));
    if limit.current.is_some_and(|now| now < wanted) {
        // Without it, the bound is met later, by a connection that is refused.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit });
    }
}

fn run(command: args::Command, global: &args::Global) -> Result<u8, Failure> {
    logging::start(global, command.log_level())?;
    #[cfg(unix)]
    allow_open_files();
    #[cfg(feature = "otel")]
    let telemetry = command.is_recorded().then(telemetry::Telemetry::start);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(Box::pin(commands::run(command, global)));
    runtime.shutdown_timeout(BACKGROUND_MAX);
    #[cfg(feature = "otel")]
    if let Some(telemetry) = telemetry {
        telemetry.end();
    }
    ended
}

/// What clap has to say: help and version are answers on stdout, everything else is a mistake in the command line.
fn usage(answer: &clap::Error) -> ExitCode {
    // A reader that went away does not change the verdict.
    let _ = answer.print();
    ExitCode::from(if answer.use_stderr() { failure::USAGE } else { 0 })
}
