//! Replays one schedule, or tries many.
//!
//! ```text
//! quell-sim --seed 17                  one schedule
//! quell-sim --seed 17 --keep 0,4,9     one schedule with these items of its plan only
//! quell-sim --first 1000 --count 50000 many
//! ```

use std::process::ExitCode;

use quell_sim::{Plan, Problem, Seeds, Shrunk, campaign, real, run_plan};

const USAGE: &str = "quell-sim --seed N [--keep a,b,c] | [--first N] --count N [--threads N]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let place = arguments.iter().position(|a| a == name)?;
        arguments.get(place + 1).map(String::as_str)
    };
    let number = |name: &str| value(name).and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("--seed") {
        let kept = value("--keep").map(|list| list.split(',').filter_map(|n| n.parse().ok()).collect());
        return replay(seed, kept);
    }
    let Some(count) = number("--count") else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let threads = usize::try_from(number("--threads").unwrap_or(2)).unwrap_or(2);
    let seeds = Seeds { first: number("--first").unwrap_or(0), count, threads, twice_every: 100 };
    let campaign = campaign(seeds, &real);
    print!("{}", campaign.totals);
    if let Some(seed) = campaign.unstable {
        println!("seed {seed} gave two different histories");
        return ExitCode::FAILURE;
    }
    match campaign.failure {
        Some(shrunk) => {
            println!("{shrunk}");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

fn replay(seed: u64, kept: Option<Vec<usize>>) -> ExitCode {
    let plan = Plan::of(seed);
    let items = plan.items.len();
    let kept = kept.unwrap_or_else(|| (0..items).collect());
    match run_plan(plan.keeping(&kept), &real) {
        Ok(finished) => {
            for record in &finished.history {
                println!("{}", serde_json::to_string(record).unwrap_or_default());
            }
            println!("seed {seed} kept every promise; history {:016x}", finished.hash());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            if let Problem::Panic(text) = &failure.problem {
                eprintln!("{text}");
            }
            println!("{}", Shrunk { seed, kept, items, failure });
            ExitCode::FAILURE
        }
    }
}
