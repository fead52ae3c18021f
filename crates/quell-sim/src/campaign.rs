//! Many schedules over a few threads, and what happened in all of them together.
//!
//! A campaign is green only when no schedule failed *and* everything that is worth seeing was seen: every change of the
//! audit trail, every fault, every operation, every habit of a handler.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use quell_check::Sometimes;

use crate::call::MakeStore;
use crate::outcome::run;
use crate::seen::Seen;
use crate::shrink::{Shrunk, shrink};

/// Which seeds are tried.
#[derive(Debug, Clone, Copy)]
pub struct Seeds {
    pub first: u64,
    pub count: u64,
    pub threads: usize,
    /// Every so many schedules one is run twice and compared.
    pub twice_every: u64,
}

/// What all schedules of a campaign did together.
#[derive(Default)]
pub struct Totals {
    pub schedules: u64,
    pub records: u64,
    pub events: u64,
    pub claims: u64,
    pub sometimes: Sometimes,
    pub seen: Seen,
}

impl Totals {
    fn add(&mut self, other: &Totals) {
        self.schedules += other.schedules;
        self.records += other.records;
        self.events += other.events;
        self.claims += other.claims;
        self.sometimes.add(&other.sometimes);
        self.seen.add(&other.seen);
    }

    /// Everything that is counted, by name.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        let seen = self.seen.counts();
        seen.chain(self.sometimes.counts().map(|(name, count)| (name.to_owned(), count))).collect()
    }

    /// What never happened, except for what cannot happen here.
    pub fn missing(&self, unreachable: &[&str]) -> Vec<String> {
        let never =
            self.counts().into_iter().filter(|(name, n)| *n == 0 && !unreachable.contains(&name.as_str()));
        never.map(|(name, _)| name).collect()
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Totals { schedules, records, events, claims, .. } = self;
        writeln!(f, "{schedules} schedules, {records} records, {events} events, {claims} claims")?;
        for (name, count) in self.counts() {
            writeln!(f, "  {count:>10}  {name}")?;
        }
        Ok(())
    }
}

pub struct Campaign {
    pub totals: Totals,
    /// The first seed that failed, made small.
    pub failure: Option<Shrunk>,
    /// A seed whose two runs differed.
    pub unstable: Option<u64>,
}

/// Tries the seeds. Stops at the first failure, which is shrunk; of several the lowest seed is told.
pub fn campaign(seeds: Seeds, make: &MakeStore) -> Campaign {
    let next = AtomicU64::new(0);
    let failed: Mutex<Option<(u64, Box<crate::outcome::Failure>)>> = Mutex::new(None);
    let unstable: Mutex<Option<u64>> = Mutex::new(None);
    let all = Mutex::new(Totals::default());
    std::thread::scope(|scope| {
        for _ in 0..seeds.threads.max(1) {
            scope.spawn(|| {
                let mut own = Totals::default();
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    if place >= seeds.count || failed.lock().expect("no panic under it").is_some() {
                        break;
                    }
                    let seed = seeds.first.wrapping_add(place);
                    match run(seed, make) {
                        Ok(one) => {
                            let twice = seeds.twice_every > 0 && place.is_multiple_of(seeds.twice_every);
                            if twice && run(seed, make).map_or(0, |again| again.hash()) != one.hash() {
                                unstable.lock().expect("no panic under it").get_or_insert(seed);
                            }
                            own.add(&Totals {
                                schedules: 1,
                                records: one.summary.records as u64,
                                events: one.summary.events as u64,
                                claims: one.summary.claims as u64,
                                sometimes: one.summary.sometimes,
                                seen: one.seen,
                            });
                        }
                        Err(failure) => {
                            let mut first = failed.lock().expect("no panic under it");
                            if first.as_ref().is_none_or(|(known, _)| seed < *known) {
                                *first = Some((seed, failure));
                            }
                        }
                    }
                }
                all.lock().expect("no panic under it").add(&own);
            });
        }
    });
    let failure = failed.into_inner().expect("no panic under it");
    Campaign {
        totals: all.into_inner().expect("no panic under it"),
        failure: failure.map(|(seed, failure)| shrink(seed, failure, make)),
        unstable: unstable.into_inner().expect("no panic under it"),
    }
}
