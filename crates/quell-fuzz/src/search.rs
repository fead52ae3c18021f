//! Goes on from inputs that went a new way until one breaks a promise, or the search is over.

use std::cell::Cell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::Duration;

use quell_sim::chance::{Chance, hash};

use crate::clock::Watch;
use crate::mutate::mutate;
use crate::targets::Target;

/// No input of sixteen kibibytes takes so long, on a machine where others work as well.
const SLOW: Duration = Duration::from_secs(5);

/// Inputs to go on from; the oldest that were added make room.
const POOL_MAX: usize = 4_096;

/// When a search is over.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    /// After so many inputs.
    Inputs(u64),
    /// After so long.
    Time(Duration),
}

/// What a search did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Report {
    pub inputs: u64,
    /// Ways that inputs went.
    pub ways: usize,
}

/// An input that broke a promise.
#[derive(Debug)]
pub struct Found {
    pub input: Vec<u8>,
    pub problem: String,
}

/// Tries one input.
pub fn try_one(target: &Target, input: &[u8]) -> Result<String, Found> {
    let watch = Watch::start();
    let result = quietly(|| (target.read)(input));
    let problem = match result {
        Ok(way) if watch.elapsed() < SLOW => return Ok(way),
        Ok(_) => format!("it took {:?}", watch.elapsed()),
        Err(text) => text,
    };
    Err(Found { input: input.to_vec(), problem })
}

/// Searches from these inputs, which are tried first. The same seed makes the same inputs.
pub fn search(target: &Target, corpus: &[Vec<u8>], seed: u64, until: Until) -> Result<Report, Found> {
    let watch = Watch::start();
    let mut chance = Chance::seeded(seed);
    let mut ways = HashSet::new();
    let mut pool: Vec<Vec<u8>> = corpus.to_vec();
    for input in corpus {
        ways.insert(hash(try_one(target, input)?.as_bytes()));
    }
    if pool.is_empty() {
        pool.push(Vec::new());
    }
    let mut report = Report { inputs: corpus.len() as u64, ways: ways.len() };
    let over = |inputs: u64| match until {
        Until::Inputs(most) => inputs >= most,
        // The clock is read now and then.
        Until::Time(limit) => inputs.is_multiple_of(64) && watch.elapsed() >= limit,
    };
    while !over(report.inputs) {
        let (first, second) = (chance.index(pool.len()), chance.index(pool.len()));
        let input = mutate(&mut chance, &pool[first], &pool[second], target.words);
        report.inputs += 1;
        let way = try_one(target, &input).map_err(|found| small(target, found))?;
        if ways.insert(hash(way.as_bytes())) {
            report.ways += 1;
            if pool.len() < POOL_MAX {
                pool.push(input);
            } else {
                let place = corpus.len() + chance.index(POOL_MAX - corpus.len());
                pool[place] = input;
            }
        }
    }
    Ok(report)
}

/// Takes parts away for as long as the rest still breaks a promise.
fn small(target: &Target, mut found: Found) -> Found {
    let mut part = found.input.len().div_ceil(2);
    while part > 0 {
        let mut place = 0;
        while place < found.input.len() {
            let mut less = found.input.clone();
            less.drain(place..(place + part).min(less.len()));
            match try_one(target, &less) {
                Err(smaller) => found = smaller,
                Ok(_) => place += part,
            }
        }
        part = if part == 1 { 0 } else { part.div_ceil(2) };
    }
    found
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Catches a panic without printing it: making a find small repeats it often.
fn quietly<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                usual(info);
            }
        }));
    });
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(false);
    result.map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without text".to_owned())
    })
}
