//! Searches for as long as it is told to: what `cargo xtask fuzz` runs.
//!
//! ```text
//! quell-fuzz --minutes 10               all targets, each for its share
//! quell-fuzz --minutes 10 --target url  one target
//! quell-fuzz --seed 7                   other inputs than the last time
//! ```

use std::process::ExitCode;
use std::time::Duration;

use quell_fuzz::search::{Until, search};
use quell_fuzz::{TARGETS, corpus};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let place = arguments.iter().position(|a| a == name)?;
        arguments.get(place + 1).map(String::as_str)
    };
    let minutes: u64 = value("--minutes").and_then(|text| text.parse().ok()).unwrap_or(10);
    let seed: u64 = value("--seed").and_then(|text| text.parse().ok()).unwrap_or(1);
    let wanted = value("--target");
    let targets: Vec<_> =
        TARGETS.iter().filter(|target| wanted.is_none_or(|name| name == target.name)).collect();
    if targets.is_empty() {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("there is no such target; there are {}", names.join(", "));
        return ExitCode::from(2);
    }
    let share = Duration::from_secs(minutes * 60) / u32::try_from(targets.len()).unwrap_or(1);
    let mut good = true;
    for target in targets {
        let inputs = match corpus::read(target.name) {
            Ok(inputs) => inputs.into_iter().map(|(_, input)| input).collect::<Vec<_>>(),
            Err(error) => {
                eprintln!("{}: the corpus cannot be read: {error}", target.name);
                return ExitCode::FAILURE;
            }
        };
        match search(target, &inputs, seed, Until::Time(share)) {
            Ok(report) => println!(
                "{:<12} {:>11} inputs, {:>6} ways, {:.0} s",
                target.name,
                report.inputs,
                report.ways,
                share.as_secs_f64()
            ),
            Err(found) => {
                good = false;
                println!("{:<12} BROKEN: {}", target.name, found.problem);
                match corpus::keep(target.name, &found.input) {
                    Ok(place) => {
                        println!("  kept as {}: {:?}", place.display(), String::from_utf8_lossy(&found.input))
                    }
                    Err(error) => {
                        println!("  cannot be kept ({error}): {:?}", String::from_utf8_lossy(&found.input))
                    }
                }
            }
        }
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
