//! Searches the model at bounds of your choice and says what it cost: what a recorded run is made with.
//!
//! ```text
//! quell-model                                      the large bounds
//! quell-model --workers 2 --events 3 --crashes 1   others; also --pauses, --unknowns, --repetitions, --attempts, --batch
//! quell-model --newer --minutes 50 --threads 2     retries take newer events in; stop after so long
//! ```

use std::process::ExitCode;
use std::time::Duration;

use quell_core::lane::RetryWith;
use quell_model::{Bounds, OneLane, clock::timed};
use stateright::{Checker as _, Model as _};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str| {
        let place = arguments.iter().position(|a| a == name)?;
        arguments.get(place + 1)?.parse::<u8>().ok()
    };
    let large = Bounds::LARGE;
    let bounds = Bounds {
        workers: number("--workers").unwrap_or(large.workers),
        events: number("--events").unwrap_or(large.events),
        crashes: number("--crashes").unwrap_or(large.crashes),
        pauses: number("--pauses").unwrap_or(large.pauses),
        unknowns: number("--unknowns").unwrap_or(large.unknowns),
        repetitions: number("--repetitions").unwrap_or(large.repetitions),
        attempts: number("--attempts").map_or(large.attempts, u32::from),
        batch: number("--batch").map_or(large.batch, u32::from),
        retry_with: if arguments.iter().any(|a| a == "--newer") { RetryWith::Newer } else { RetryWith::Same },
    };
    let minutes = number("--minutes").unwrap_or(60);
    let limit = Duration::from_secs(u64::from(minutes) * 60);
    let threads = usize::from(number("--threads").unwrap_or(2));
    println!("{bounds:?}, at most {minutes} minutes on {threads} threads");
    let search = || OneLane::new(bounds).checker().threads(threads).timeout(limit).spawn_dfs().join();
    let (checker, took) = timed(search);
    let finished = took < limit;
    println!(
        "{} states, {} steps, depth {}, {:.0} s, {} MiB at most, {}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        took.as_secs_f64(),
        memory_mib().map_or_else(|| "?".to_owned(), |mib| mib.to_string()),
        if finished { "the whole space" } else { "stopped by the limit" },
    );
    let mut good = finished;
    for property in checker.model().properties() {
        let found = checker.discovery(property.name);
        let bad = match property.expectation {
            stateright::Expectation::Sometimes => found.is_none(),
            _ => found.is_some(),
        };
        println!("{} {}", if bad { "BROKEN" } else { "holds " }, property.name);
        if let Some(path) = found.filter(|_| bad) {
            println!("{path}");
        }
        good &= !bad;
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The most memory that this process has had, where the system tells.
fn memory_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? / 1024)
}
