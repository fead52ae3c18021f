//! What a campaign has to say: counts, what was found, and how to repeat it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use quell_check::{Change, Summary, Thing};
use serde::Serialize;

use crate::fault::Fault;
use crate::ground::Kind;
use crate::judge::Judged;

/// Faults and their counts, what the histories contained, and the verdict.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub store: Kind,
    pub seed: u64,
    pub seconds: u64,
    pub rounds: u64,
    /// Each fault by its name, some in several ways, and how often it was done.
    pub faults: BTreeMap<&'static str, u64>,
    /// What was asked for and could not be done here.
    pub skipped: Vec<Skipped>,
    /// Events whose sender was told that they are stored.
    pub acknowledged: u64,
    pub runs: u64,
    pub claims: u64,
    /// Leases that ran out and whose lanes went to somebody else.
    pub reclaims: u64,
    /// Verdicts and extensions of holders that had lost their lease, all refused.
    pub stale_refused: u64,
    /// Calls whose outcome the caller did not learn.
    pub unknown: u64,
    /// Of these, sends that were there in the end.
    pub unknown_happened: u64,
    /// Calls that a death cut off between question and answer are unknown, too.
    pub redelivered: u64,
    /// Questions, answers and facts that were judged.
    pub records: u64,
    pub violations: u64,
    pub found: Option<Found>,
    pub bite: Option<Bite>,
}

/// A fault that was left out.
#[derive(Debug, Clone, Serialize)]
pub struct Skipped {
    pub fault: Fault,
    pub reason: String,
}

/// What is broken, and where everything lies.
#[derive(Debug, Clone, Serialize)]
pub struct Found {
    pub round: u64,
    pub what: String,
    /// The logs of all processes, and the store's file.
    pub kept: Option<PathBuf>,
}

/// Power cuts with `synchronous = NORMAL`, which has to lose: the proof that a loss would be seen.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Bite {
    pub cuts: u64,
    pub found: u64,
}

impl Report {
    pub(crate) fn new(store: Kind, seed: u64, skipped: Vec<(Fault, String)>) -> Self {
        let skipped = skipped.into_iter().map(|(fault, reason)| Skipped { fault, reason }).collect();
        Report {
            store,
            seed,
            seconds: 0,
            rounds: 0,
            faults: BTreeMap::new(),
            skipped,
            acknowledged: 0,
            runs: 0,
            claims: 0,
            reclaims: 0,
            stale_refused: 0,
            unknown: 0,
            unknown_happened: 0,
            redelivered: 0,
            records: 0,
            violations: 0,
            found: None,
            bite: None,
        }
    }

    pub(crate) fn count(&mut self, name: &'static str, times: u64) {
        if times > 0 {
            *self.faults.entry(name).or_default() += times;
        }
    }

    pub(crate) fn add(&mut self, judged: &Judged) {
        let Summary { records, claims, sometimes, .. } = &judged.summary;
        self.rounds += 1;
        self.acknowledged += judged.acknowledged;
        self.runs += judged.runs;
        self.unknown += judged.unknown + sometimes.of(Thing::CrashInCall);
        self.claims += *claims as u64;
        self.records += *records as u64;
        self.reclaims += sometimes.of_change(Change::Reclaimed);
        self.stale_refused +=
            sometimes.of(Thing::StaleSettleRefused) + sometimes.of(Thing::StaleExtendRefused);
        self.unknown_happened += sometimes.of(Thing::UnknownAppendHappened);
        self.redelivered += sometimes.of(Thing::Redelivery);
    }

    /// Nothing was found, and where it was tried, what had to be noticed was noticed.
    pub fn is_good(&self) -> bool {
        self.violations == 0 && self.found.is_none() && self.bite.is_none_or(|bite| bite.found > 0)
    }

    /// How often a fault was done, in whatever way.
    pub fn done(&self, fault: Fault) -> u64 {
        let own = |name: &str| name.split(' ').next() == Some(fault.name());
        self.faults.iter().filter(|(name, _)| own(name)).map(|(_, times)| times).sum()
    }

    /// Names and numbers, in the order in which people read them.
    pub fn facts(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("events acknowledged", self.acknowledged),
            ("runs", self.runs),
            ("claims", self.claims),
            ("leases reclaimed", self.reclaims),
            ("runs delivered again", self.redelivered),
            ("stale verdicts and extensions refused", self.stale_refused),
            ("sends of unknown outcome that had happened", self.unknown_happened),
            ("records judged", self.records),
            ("violations", self.violations),
        ]
    }

    /// The page for `docs/records`.
    pub fn page(&self, date: &str, command: &str, machine: &str) -> String {
        let mut page = String::new();
        let took = Duration::from_secs(self.seconds);
        let verdict = if self.is_good() { "nothing was found" } else { "something was found" };
        let _ = writeln!(page, "# {date}: torture of {}, {verdict}\n", self.store.name());
        let _ = writeln!(page, "```sh\n{command}\n```\n");
        let _ = writeln!(
            page,
            "{machine}. {} minutes {} seconds, {} rounds, each on a fresh store and judged by itself, seed {}. How it works and what \
             each fault proves: [docs/design/torture.md](../design/torture.md).\n",
            took.as_secs() / 60,
            took.as_secs() % 60,
            self.rounds,
            self.seed
        );
        let _ = writeln!(page, "| fault | times |\n| --- | ---: |");
        for (name, times) in &self.faults {
            let _ = writeln!(page, "| {name} | {times} |");
        }
        for Skipped { fault, reason } in &self.skipped {
            let _ = writeln!(page, "| {} | skipped: {reason} |", fault.name());
        }
        let _ = writeln!(page, "\n| what | number |\n| --- | ---: |");
        for (name, number) in self.facts() {
            let _ = writeln!(page, "| {name} | {number} |");
        }
        if let Some(bite) = self.bite {
            let _ = writeln!(page, "\n{}", bite.sentence());
        }
        if let Some(found) = &self.found {
            let _ = writeln!(page, "\nFound in round {}:\n\n```text\n{}\n```", found.round, found.what);
        }
        if self.is_good() {
            let _ = writeln!(page, "\n{}", self.bound());
        }
        page
    }

    /// What no failure in so many trials says about their rate.
    fn bound(&self) -> String {
        let mut said = Vec::new();
        for (fault, what) in
            [(Fault::Kill, "kill"), (Fault::PowerCut, "power cut"), (Fault::Zombie, "zombie")]
        {
            let times = self.done(fault);
            if times > 0 {
                said.push(format!("3 in {times} per {what}"));
            }
        }
        match said.is_empty() {
            true => "No failure was seen.".to_owned(),
            false => format!(
                "No failure was seen. By the rule of three their rate is, with 95 % confidence, below {}.",
                said.join(", ")
            ),
        }
    }
}

impl Bite {
    /// For people.
    pub fn sentence(self) -> String {
        let Bite { cuts, found } = self;
        match found {
            0 => format!(
                "{cuts} power cuts with `synchronous = NORMAL` lost nothing that was noticed: the power cuts of this run prove nothing."
            ),
            _ => format!(
                "The test bites: with `synchronous = NORMAL`, which Quell does not use, {found} of {cuts} power cuts lost something, and \
                 the same checker said so."
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report =
            Report::new(Kind::Sqlite, 7, vec![(Fault::Tcp, "SQLite has no connections".to_owned())]);
        report.count("kill", 30);
        report.count("tcp cut", 2);
        report.count("tcp delay", 3);
        report
    }

    #[test]
    fn a_fault_in_several_ways_is_counted_together() {
        assert_eq!(report().done(Fault::Tcp), 5);
        assert_eq!(report().done(Fault::Kill), 30);
        assert_eq!(report().done(Fault::Clock), 0);
    }

    #[test]
    fn a_campaign_whose_power_cuts_do_not_bite_is_not_good() {
        let mut report = report();
        assert!(report.is_good());
        report.bite = Some(Bite { cuts: 3, found: 0 });
        assert!(!report.is_good());
        report.bite = Some(Bite { cuts: 3, found: 1 });
        assert!(report.is_good());
    }

    #[test]
    fn the_page_names_what_was_done_what_was_not_and_how_to_repeat_it() {
        let page = report().page("2026-01-31", "quell torture --seed 7", "2 cores");
        for part in [
            "# 2026-01-31: torture of SQLite, nothing was found",
            "quell torture --seed 7",
            "| kill | 30 |",
            "skipped: SQLite has no connections",
            "3 in 30 per kill",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}
