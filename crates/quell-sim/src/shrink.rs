//! Makes a failing schedule small: leaves out items of its plan as long as it still fails in the same way.
//!
//! First it is tried over fewer databases. Then delta debugging: halves first, then smaller and smaller pieces, then single items until none can be spared. What is
//! left is named by the places of the items, so a replay needs the seed and this list.

use std::collections::BTreeSet;
use std::fmt;

use quell_check::history::{Answer, Record};

use crate::call::MakeStore;
use crate::outcome::{Failure, run_plan};
use crate::plan::{Item, Plan};

/// The smallest failing plan that was found.
pub struct Shrunk {
    pub seed: u64,
    pub kept: Vec<usize>,
    /// Over how many databases it still fails.
    pub databases: usize,
    /// How many items the plan had.
    pub items: usize,
    pub failure: Box<Failure>,
}

/// A schedule takes about a millisecond; this many tries are a few seconds.
const TRIES_MAX: usize = 3_000;

pub fn shrink(seed: u64, failure: Box<Failure>, make: &MakeStore) -> Shrunk {
    let plan = Plan::of(seed);
    let (items, databases) = (plan.items.len(), plan.shape.databases.len());
    let mut best = Shrunk { seed, kept: (0..items).collect(), databases, items, failure };
    for fewer in 1..databases {
        match run_plan(plan.clone().over(fewer), make) {
            Err(failure) if failure.problem.is_like(&best.failure.problem) => {
                (best.databases, best.failure) = (fewer, failure);
                break;
            }
            _ => {}
        }
    }
    let plan = plan.over(best.databases);
    let mut tries = 0;
    let mut piece = items.div_ceil(2).max(1);
    loop {
        let mut shrunk = false;
        let mut start = 0;
        while start < best.kept.len() && tries < TRIES_MAX {
            let end = (start + piece).min(best.kept.len());
            let fewer: Vec<usize> = best.kept[..start].iter().chain(&best.kept[end..]).copied().collect();
            tries += 1;
            match run_plan(plan.clone().keeping(&fewer), make) {
                Err(failure) if failure.problem.is_like(&best.failure.problem) => {
                    best.kept = fewer;
                    best.failure = failure;
                    shrunk = true;
                }
                _ => start = end,
            }
        }
        if tries >= TRIES_MAX || (piece == 1 && !shrunk) {
            return best;
        }
        if piece > 1 {
            piece = piece.div_ceil(2);
        }
    }
}

impl Shrunk {
    /// The one command that replays it.
    pub fn command(&self) -> String {
        let kept: Vec<String> = self.kept.iter().map(ToString::to_string).collect();
        let Shrunk { seed, databases, .. } = self;
        // Without a word of it there are as many as the seed says.
        let fewer = match Plan::of(*seed).shape.databases.len() {
            all if all == *databases => String::new(),
            _ => format!(" --databases {databases}"),
        };
        format!("cargo run -p quell-sim -- --seed {seed}{fewer} --keep {}", kept.join(","))
    }
}

impl fmt::Display for Shrunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} failed: {}", self.seed, self.failure.problem)?;
        writeln!(f, "\n{} of {} items are needed:", self.kept.len(), self.items)?;
        let plan = Plan::of(self.seed).over(self.databases).keeping(&self.kept);
        writeln!(f, "       over {}", plan.shape)?;
        for (place, item) in plan.items.iter().enumerate() {
            if !matches!(item, Item::Absent { .. }) {
                writeln!(f, "  #{place:<3} {item}")?;
            }
        }
        writeln!(f, "\nhistory:")?;
        for record in telling(&self.failure.history) {
            writeln!(f, "  {}", serde_json::to_string(record).unwrap_or_default())?;
        }
        write!(f, "\nreplay: {}", self.command())
    }
}

/// The history without the questions to which the store had nothing to say.
fn telling(history: &[Record]) -> impl Iterator<Item = &Record> {
    let idle = |r: &Record| match &r.answer {
        Some(Answer::Claimed { claims, .. }) => claims.is_empty(),
        Some(Answer::Swept { reclaimed, removed_events, removed_audit }) => {
            reclaimed + removed_events + removed_audit == 0
        }
        _ => false,
    };
    let silent: BTreeSet<(u64, u64)> =
        history.iter().filter(|r| idle(r)).map(|r| (r.process, r.call)).collect();
    history.iter().filter(move |r| r.call == 0 || !silent.contains(&(r.process, r.call)))
}
