//! One source as the contract describes it, without any of the ways in which a store would keep it.
//!
//! The bucket is the list of what was taken from it since it was full. A token that came back is struck off the list, as
//! if it had never been taken, and the level is counted anew from the beginning: slow, and hard to get wrong.

use crate::history::{Millis, Name, SourceReport, SourceRules, Verdict};
use crate::sometimes::Thing;
use crate::table::Change;
use crate::violation::Invariant;

/// A token in parts: a millisecond adds as many of them as the rate allows requests a minute.
const TOKEN: i128 = 60_000;
/// A wish to be left alone is honoured for a day at the most.
const SILENCE_MAX: Millis = 24 * 3_600_000;

#[derive(Debug, Clone)]
pub(super) enum What {
    Claimed {
        lease_until: Millis,
    },
    Ended(Ended),
    /// A token for one more request.
    Taken,
    Reported(SourceReport),
    Extended {
        lease_until: Millis,
    },
    Fetches {
        key: Name,
        until: Millis,
    },
    Fetched {
        key: Name,
    },
    Forgot {
        key: Name,
    },
    Put(SourceRules),
    Removed,
    Enabled,
    Disabled,
    Reset,
    Released,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) change: Change,
    pub(super) verdict: Option<Verdict>,
    /// What its settle said of the source; nothing when no settle ended it.
    pub(super) report: Option<SourceReport>,
}

/// A broken promise, without its place.
pub(super) struct Wrong {
    pub(super) invariant: Invariant,
    pub(super) what: String,
    pub(super) expected: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Enabled,
    Disabled,
    Removed,
    Released,
}

/// One line of the bucket's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// The rules are these from now on.
    Rules { rate: i128, full: i128 },
    /// Taken by a claim with this token, or by a holder (0).
    Take(u64),
}

/// The bucket at a moment.
#[derive(Clone, Copy)]
struct Level {
    parts: i128,
    since: Millis,
    rate: i128,
    full: i128,
}

impl Level {
    fn at(self, now: Millis) -> i128 {
        (self.parts + self.rate * i128::from(now - self.since)).min(self.full)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Model {
    standing: Standing,
    rules: Option<SourceRules>,
    /// Since the bucket was full for the last time that somebody filled it; empty without a limit.
    bucket: Vec<(Millis, Entry)>,
    silent_until: Millis,
    /// Nothing when a report may have been made that nobody knows of.
    breaker: Option<Breaker>,
    /// Who fetches which answer, and until when; nothing when that is not known.
    flights: Option<Vec<(Name, u64, Millis)>>,
    things: [u64; Thing::OF_SOURCES.len()],
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Breaker {
    streak: u32,
    /// Open until then, and half-open afterwards.
    open_until: Option<Millis>,
    probe: Option<(u64, Millis)>,
    /// Claims that were handed out as a probe and have not been answered well.
    probes: Vec<u64>,
}

type Applied = Result<(), Wrong>;

fn wrong(invariant: Invariant, what: impl Into<String>, expected: impl Into<String>) -> Applied {
    Err(Wrong { invariant, what: what.into(), expected: expected.into() })
}

impl Model {
    pub(super) fn new(breaker: bool, cache: bool) -> Self {
        Model {
            standing: Standing::Removed,
            rules: None,
            bucket: Vec::new(),
            silent_until: Millis::MIN,
            breaker: breaker.then(Breaker::default),
            flights: cache.then(Vec::new),
            things: [0; Thing::OF_SOURCES.len()],
        }
    }

    pub(super) fn saw(&self, thing: Thing) -> u64 {
        let place = Thing::OF_SOURCES.iter().position(|known| *known == thing);
        place.map_or(0, |place| self.things[place])
    }

    fn see(&mut self, thing: Thing) {
        if let Some(place) = Thing::OF_SOURCES.iter().position(|known| *known == thing) {
            self.things[place] += 1;
        }
    }

    pub(super) fn apply(&mut self, at: Millis, token: u64, what: &What) -> Applied {
        match what {
            What::Claimed { lease_until } => return self.claimed(at, token, *lease_until),
            What::Ended(end) => return self.ended(at, token, *end),
            What::Taken => return self.taken(at, token),
            What::Reported(report) => self.reported(at, token, *report),
            What::Extended { lease_until } => {
                if let Some((probe, until)) = self.breaker.as_mut().and_then(|b| b.probe.as_mut())
                    && *probe == token
                {
                    *until = (*until).max(*lease_until);
                }
            }
            What::Fetches { key, until } => return self.fetches(at, token, key, *until),
            What::Fetched { key } => self.lands(|(flying, ..)| flying == key),
            What::Forgot { key } => self.lands(|(flying, by, _)| flying == key && *by == token),
            What::Put(rules) => self.put(at, *rules),
            What::Removed => {
                if matches!(self.standing, Standing::Enabled | Standing::Disabled) {
                    self.standing = Standing::Removed;
                }
            }
            What::Enabled => return self.stands(Standing::Disabled, Standing::Enabled),
            What::Disabled => return self.stands(Standing::Enabled, Standing::Disabled),
            What::Released => return self.stands(Standing::Removed, Standing::Released),
            What::Reset => {
                self.begin(at);
                self.lands(|_| true);
            }
        }
        Ok(())
    }

    /// An operator was told that this has changed.
    fn stands(&mut self, from: Standing, to: Standing) -> Applied {
        if self.standing != from {
            let what = format!("it is {to:?} since, and was {:?} before", self.standing);
            return wrong(Invariant::SourceHeld, what, format!("it was {from:?}, or nothing has changed"));
        }
        self.standing = to;
        Ok(())
    }

    /// Full bucket, closed breaker, no silence.
    fn begin(&mut self, at: Millis) {
        self.bucket.clear();
        self.bucket.extend(self.rules.and_then(limits).map(|rules| (at, rules)));
        self.silent_until = Millis::MIN;
        if let Some(breaker) = &mut self.breaker {
            breaker.close();
        }
    }

    fn put(&mut self, at: Millis, rules: SourceRules) {
        let declared = matches!(self.standing, Standing::Enabled | Standing::Disabled);
        // Nobody has asked it yet, so it may not even have been made when the rules changed.
        let untouched = !self.bucket.iter().any(|(_, entry)| matches!(entry, Entry::Take(_)));
        self.rules = Some(rules);
        if !declared {
            self.standing = Standing::Enabled;
            return self.begin(at);
        }
        match limits(rules) {
            None => self.bucket.clear(),
            Some(rules) if untouched => self.bucket = vec![(at, rules)],
            Some(rules) => self.bucket.push((at, rules)),
        }
    }

    /// What is in the bucket; nothing when there is no limit.
    fn level(&self, now: Millis) -> Option<i128> {
        let mut level: Option<Level> = None;
        for &(at, entry) in &self.bucket {
            level = match entry {
                Entry::Rules { rate, full } => {
                    let parts = level.map_or(full, |level| level.at(at).min(full));
                    Some(Level { parts, since: at, rate, full })
                }
                Entry::Take(_) => {
                    level.map(|level| Level { parts: level.at(at) - TOKEN, since: at, ..level })
                }
            };
        }
        level.map(|level| level.at(now))
    }

    fn spend(&mut self, at: Millis, token: u64) -> Applied {
        if at < self.silent_until {
            let expected = format!("silence until {}", self.silent_until);
            return wrong(Invariant::SourceSilence, "a token was given", expected);
        }
        let Some(level) = self.level(at) else { return Ok(()) };
        if level < TOKEN {
            let taken = self.bucket.iter().filter(|(_, entry)| matches!(entry, Entry::Take(_))).count();
            let what = format!("a token was given, with {level} sixty-thousandths left after {taken}");
            return wrong(Invariant::SourceRate, what, "at most the burst and what the rate has added since");
        }
        self.bucket.push((at, Entry::Take(token)));
        Ok(())
    }

    fn claimed(&mut self, at: Millis, token: u64, lease_until: Millis) -> Applied {
        match self.standing {
            Standing::Enabled => {}
            Standing::Released => return Ok(()),
            Standing::Disabled | Standing::Removed => {
                let what = format!("a lane was handed out while the source was {:?}", self.standing);
                return wrong(Invariant::SourceHeld, what, "its lanes are held");
            }
        }
        let open_until = self.breaker.as_ref().and_then(|b| b.open_until);
        if let Some(until) = open_until {
            if at < until {
                let expected = format!("nobody before {until}");
                return wrong(Invariant::SourceBreaker, "a lane was handed out", expected);
            }
            let probe = self.breaker.as_ref().and_then(|b| b.probe).filter(|probe| at < probe.1);
            if let Some((other, until)) = probe {
                let what = format!("a lane was handed out while token {other} probes until {until}");
                return wrong(Invariant::OneProbe, what, "one lane at a time tries a half-open breaker");
            }
        }
        self.spend(at, token)?;
        if let Some(breaker) = self.breaker.as_mut().filter(|_| open_until.is_some()) {
            breaker.probe = Some((token, lease_until));
            breaker.probes.push(token);
            self.see(Thing::Probed);
        }
        self.see(Thing::ClaimGoverned);
        Ok(())
    }

    fn taken(&mut self, at: Millis, token: u64) -> Applied {
        if self.standing == Standing::Released {
            return Ok(());
        }
        let stopped = |b: &Breaker| b.open_until.is_some() && !b.is_probe(token);
        if self.breaker.as_ref().is_some_and(stopped) {
            let what = "a token was given to one that does not probe";
            return wrong(Invariant::SourceBreaker, what, "an open breaker refuses all but the probe");
        }
        self.see(Thing::TokenTaken);
        self.spend(at, 0)
    }

    fn reported(&mut self, at: Millis, token: u64, report: SourceReport) {
        if let SourceReport::Fault { retry_after_ms: Some(after) } = report {
            self.silent_until = self.silent_until.max(at.saturating_add(after.min(SILENCE_MAX)));
            self.see(Thing::SilenceAsked);
        }
        let Some(rules) = self.rules else { return };
        let Some(breaker) = &mut self.breaker else { return };
        let counts = breaker.open_until.is_none() || breaker.is_probe(token);
        match report {
            SourceReport::Fine => {
                breaker.probes.retain(|probe| *probe != token);
                if counts {
                    let was_open = breaker.open_until.is_some();
                    breaker.close();
                    if was_open {
                        self.see(Thing::BreakerClosed);
                    }
                }
            }
            SourceReport::Fault { .. } if counts => {
                breaker.streak = breaker.streak.saturating_add(1);
                if breaker.open_until.is_some() || breaker.streak >= rules.failures {
                    breaker.open_until = Some(at.saturating_add(rules.cooldown_ms));
                    breaker.probe = None;
                    self.see(Thing::BreakerOpened);
                }
            }
            _ => {}
        }
    }

    fn ended(&mut self, at: Millis, token: u64, end: Ended) -> Applied {
        self.refunded(token, end)?;
        let answers = matches!(end.verdict, Some(Verdict::Succeeded | Verdict::Retry | Verdict::Failed));
        match end.report {
            Some(SourceReport::Fine) if answers => self.reported(at, token, SourceReport::Fine),
            Some(report @ SourceReport::Fault { .. }) => self.reported(at, token, report),
            Some(SourceReport::Unused) => {
                let before = self.bucket.len();
                self.bucket.retain(|(_, entry)| *entry != Entry::Take(token));
                if self.bucket.len() < before {
                    self.see(Thing::TokenBack);
                }
            }
            _ => {}
        }
        if let Some(breaker) = &mut self.breaker {
            breaker.probes.retain(|probe| *probe != token);
            if breaker.is_probe(token) {
                breaker.probe = None;
            }
        }
        Ok(())
    }

    /// Whether an attempt counts: the fault of a probe does not, and nobody else is refunded as one.
    fn refunded(&self, token: u64, end: Ended) -> Applied {
        let Some(breaker) = &self.breaker else { return Ok(()) };
        let probe = breaker.probes.contains(&token);
        let may_be_refunded = matches!(end.verdict, Some(Verdict::Retry | Verdict::Release));
        let faulted = match end.report {
            _ if !may_be_refunded => false,
            Some(SourceReport::Fault { .. }) => probe,
            // Its fault was reported before, which took the right away.
            Some(SourceReport::Reported | SourceReport::Starved) => probe && !breaker.is_probe(token),
            _ => false,
        };
        let starved = matches!(end.report, Some(SourceReport::Starved));
        match end.change {
            Change::ProbeFaulted if !faulted => {
                let what = "the attempt was refunded as a probe's";
                wrong(Invariant::ProbeRefund, what, "a probe that says the source is at fault")
            }
            Change::Starved if !faulted && !starved => {
                let what = "the attempt was refunded as starved";
                wrong(Invariant::ProbeRefund, what, "one that says so, or a probe that met a fault")
            }
            Change::Retried | Change::Exhausted | Change::ReleasedCounted if faulted => {
                let what = format!("{} of a probe that met a fault", end.change.word());
                wrong(Invariant::ProbeRefund, what, "the attempt is refunded")
            }
            _ => Ok(()),
        }
    }

    fn fetches(&mut self, at: Millis, token: u64, key: &Name, until: Millis) -> Applied {
        let Some(flights) = &mut self.flights else { return Ok(()) };
        let other = flights.iter().find(|(flying, by, end)| flying == key && *by != token && at < *end);
        if let Some((_, by, end)) = other {
            let what = format!("{key} is to be fetched while token {by} fetches it until {end}");
            return wrong(Invariant::OneFetch, what, "the others wait");
        }
        flights.retain(|(flying, ..)| flying != key);
        flights.push((key.clone(), token, until));
        self.see(Thing::AnswerFetched);
        Ok(())
    }

    fn lands(&mut self, which: impl Fn(&(Name, u64, Millis)) -> bool) {
        if let Some(flights) = &mut self.flights {
            flights.retain(|flight| !which(flight));
        }
    }
}

impl Breaker {
    /// The verdict of whoever was handed the right counts as long as nobody else was.
    fn is_probe(&self, token: u64) -> bool {
        self.probe.is_some_and(|(probe, _)| probe == token)
    }

    fn close(&mut self) {
        (self.streak, self.open_until, self.probe) = (0, None, None);
    }
}

fn limits(rules: SourceRules) -> Option<Entry> {
    let rate = i128::from(rules.per_minute?);
    Some(Entry::Rules { rate, full: i128::from(rules.burst) * TOKEN })
}
