//! Replays one schedule, or tries many.
//!
//! ```text
//! quell-sim --seed 17                  one schedule
//! quell-sim --seed 17 --keep 0,4,9     one schedule with these items of its plan only
//! quell-sim --seed 17 --databases 1    one schedule over so many databases, if its plan has more
//! quell-sim --first 1000 --count 50000 many, until one fails
//! quell-sim --count 50000 --survey     many, and the kinds of failures
//! ```

use std::collections::BTreeMap;
use std::process::ExitCode;

use quell_check::history::{Action, Op, Record};
use quell_sim::{Plan, Problem, Seeds, Shrunk, campaign, real, run_plan};

const USAGE: &str = "quell-sim --seed N [--keep a,b,c] [--databases N] | [--first N] --count N [--threads N]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let place = arguments.iter().position(|a| a == name)?;
        arguments.get(place + 1).map(String::as_str)
    };
    let number = |name: &str| value(name).and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("--seed") {
        let kept = value("--keep").map(|list| list.split(',').filter_map(|n| n.parse().ok()).collect());
        let databases = number("--databases").and_then(|n| usize::try_from(n).ok());
        return replay(seed, kept, databases);
    }
    let Some(count) = number("--count") else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if arguments.iter().any(|a| a == "--survey") {
        survey(number("--first").unwrap_or(0), count);
        return ExitCode::SUCCESS;
    }
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

/// Goes on after failures and counts them by kind, with the first seed of each.
fn survey(first: u64, count: u64) {
    let mut kinds: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for seed in first..first + count {
        if let Err(failure) = quell_sim::run(seed, &real) {
            let kind = format!("{}{}", circumstances(&failure.history), kind_of(&failure.problem));
            kinds.entry(kind).or_insert((0, seed)).0 += 1;
        }
    }
    for (kind, (times, seed)) in kinds {
        println!("{times:>6} times, first seed {seed}: {kind}");
    }
}

fn kind_of(problem: &Problem) -> String {
    match problem {
        Problem::Broken(violation) => {
            let (seen, expected) = (plain(&violation.what), plain(&violation.expected));
            format!("{}: {seen} / {expected}", violation.invariant)
        }
        Problem::Equation(all) => format!("equation: {}", plain(&all.join(", "))),
        Problem::Stuck(_) => "stuck".to_owned(),
        Problem::Panic(text) => format!("panic: {text}"),
    }
}

/// What makes things vanish, if it happened: much of a history is judged otherwise then.
fn circumstances(history: &[Record]) -> String {
    let erases = |r: &Record| {
        matches!(r.op, Some(Op::Control { action: Action::EraseLane { .. } | Action::EraseEvent { .. } }))
    };
    let restores = |r: &Record| matches!(r.op, Some(Op::Restore { .. }));
    let forgets = |r: &Record| matches!(&r.op, Some(Op::Dump(dump)) if dump.audit_from.is_some());
    let all = [("[erase] ", history.iter().any(erases)), ("[restore] ", history.iter().any(restores))];
    let all = all.into_iter().chain([("[retention] ", history.iter().any(forgets))]);
    all.filter(|(_, there)| *there).map(|(name, _)| name).collect()
}

/// A text without its numbers.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}

fn replay(seed: u64, kept: Option<Vec<usize>>, databases: Option<usize>) -> ExitCode {
    let plan = Plan::of(seed).over(databases.unwrap_or(usize::MAX));
    let (shape, databases) = (plan.shape.to_string(), plan.shape.databases.len());
    let items = plan.items.len();
    let kept = kept.unwrap_or_else(|| (0..items).collect());
    match run_plan(plan.keeping(&kept), &real) {
        Ok(finished) => {
            for record in &finished.history {
                println!("{}", serde_json::to_string(record).unwrap_or_default());
            }
            println!("seed {seed} over {shape} kept every promise; history {:016x}", finished.hash());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            if let Problem::Panic(text) = &failure.problem {
                eprintln!("{text}");
            }
            println!("{}", Shrunk { seed, kept, databases, items, failure });
            ExitCode::FAILURE
        }
    }
}
