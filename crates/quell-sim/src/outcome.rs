//! One schedule from its plan to a verdict.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use quell_check::history::{Op, Record};
use quell_check::{Invariant, Summary, Violation};

use crate::call::MakeStore;
use crate::chance::hash;
use crate::plan::Plan;
use crate::record::NOBODY;
use crate::seen::Seen;
use crate::world::World;

/// A schedule that kept every promise.
pub struct Finished {
    pub summary: Summary,
    pub seen: Seen,
    pub history: Vec<Record>,
}

impl Finished {
    /// The same for the same seed on every machine.
    pub fn hash(&self) -> u64 {
        hash_of(&self.history)
    }
}

fn hash_of(history: &[Record]) -> u64 {
    let lines = history.iter().map(|r| serde_json::to_vec(r).unwrap_or_default());
    lines.fold(0, |all, line| all.rotate_left(7) ^ hash(&line))
}

/// A schedule that did not.
pub struct Failure {
    pub problem: Problem,
    pub history: Vec<Record>,
}

#[derive(Debug)]
pub enum Problem {
    /// The checker found a broken promise.
    Broken(Box<Violation>),
    /// The store's own equation does not hold.
    Equation(Vec<String>),
    /// Work was left over that nothing explains.
    Stuck(String),
    /// An assertion of the engine failed.
    Panic(String),
}

impl Problem {
    /// Whether shrinking has kept hold of the same failure.
    pub fn is_like(&self, other: &Problem) -> bool {
        match (self, other) {
            (Problem::Broken(a), Problem::Broken(b)) => a.invariant == b.invariant,
            (Problem::Equation(_), Problem::Equation(_)) | (Problem::Stuck(_), Problem::Stuck(_)) => true,
            (Problem::Panic(a), Problem::Panic(b)) => words(a) == words(b),
            _ => false,
        }
    }

    pub fn invariant(&self) -> Option<Invariant> {
        match self {
            Problem::Broken(violation) => Some(violation.invariant),
            _ => None,
        }
    }
}

/// A text without its numbers.
fn words(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Broken(violation) => write!(f, "{violation}"),
            Problem::Equation(problems) => write!(f, "the store's equation: {}", problems.join("; ")),
            Problem::Stuck(text) => write!(f, "{text}"),
            Problem::Panic(text) => write!(f, "panic: {text}"),
        }
    }
}

/// Runs the schedule of a seed.
pub fn run(seed: u64, make: &MakeStore) -> Result<Finished, Box<Failure>> {
    run_plan(Plan::of(seed), make)
}

pub fn run_plan(plan: Plan, make: &MakeStore) -> Result<Finished, Box<Failure>> {
    let mut world = None;
    let result = quietly(|| {
        let world = world.insert(World::new(plan, make));
        world.run();
        judge(world)
    });
    let history = world.map(|w| (w.recorder.records, w.seen));
    let (history, seen) = history.unwrap_or_default();
    match result {
        Ok(Ok(summary)) => Ok(Finished { summary, seen, history }),
        Ok(Err(problem)) => Err(Box::new(Failure { problem, history })),
        Err(text) => Err(Box::new(Failure { problem: Problem::Panic(text), history })),
    }
}

fn judge(world: &mut World) -> Result<Summary, Problem> {
    let verified = world.verified();
    let dump = world.dump(&verified);
    world.recorder.fact(NOBODY, Op::Dump(Box::new(dump)));
    let summary = quell_check::check(&world.recorder.records).map_err(Problem::Broken)?;
    if !verified.problems.is_empty() {
        return Err(Problem::Equation(verified.problems));
    }
    match world.stuck.take() {
        Some(text) => Err(Problem::Stuck(text)),
        None => Ok(summary),
    }
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Catches a panic of the engine without printing it: it is part of the verdict, and shrinking repeats it often.
fn quietly<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if let Some(place) = info.location().filter(|_| QUIET.get()) {
                LAST.set(Some(format!("{}:{}", place.file(), place.line())));
            } else {
                usual(info);
            }
        }));
    });
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(false);
    result.map_err(|panic| format!("{} at {}", text_of(&*panic), LAST.take().unwrap_or_default()))
}

thread_local! {
    static LAST: Cell<Option<String>> = const { Cell::new(None) };
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".to_owned())
}
