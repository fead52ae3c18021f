//! How fast things went lately: rates out of totals that somebody looked at again and again.
//!
//! A store keeps totals and no history, so whoever shows rates remembers what it saw. The dashboard and `quell top` do so
//! with the same [`Trail`] and compute with the same functions; the store is only ever asked for its totals, whose cost does
//! not depend on the number of lanes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use quell_core::event::{QueueName, Tenant};
use quell_core::inspect::QueueStats;

/// Looks that are remembered: ten minutes at one every five seconds. An incident is looked at while it happens; what is older
/// is for a metrics system.
pub const LOOKS: usize = 120;
/// The pause between two looks.
pub const EVERY: Duration = Duration::from_secs(5);
/// Queues that are remembered one by one, so that a store with very many does not fill the memory: about 5 MB at the most.
pub const QUEUES: usize = 1_000;
/// "Now" is the last minute: shorter, and a burst every few seconds looks like a fault of the display.
const NOW: Duration = Duration::from_secs(60);

/// What has been counted up to a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// Events that came in.
    pub accepted: u64,
    /// Events whose run succeeded.
    pub succeeded: u64,
    /// Events in the dead letter; fewer after a redrive.
    pub dead: u64,
}

/// The sum of what was seen at one look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Since some moment that is the same for all looks of a trail.
    pub at: Duration,
    /// Of all queues together.
    pub counted: Counted,
}

type Owner = Arc<(Tenant, QueueName)>;

struct Look {
    at: Duration,
    queues: Vec<(Owner, Counted)>,
}

/// What was seen lately, queue by queue.
#[derive(Default)]
pub struct Trail {
    looks: VecDeque<Look>,
}

impl Trail {
    /// Remembers one look and forgets what is too old.
    pub fn note(&mut self, at: Duration, stats: &[QueueStats]) {
        let before = self.looks.back();
        let known = |of: &QueueStats| {
            let same = |owner: &Owner| owner.0 == of.tenant && owner.1 == of.queue;
            before?.queues.iter().find(|(owner, _)| same(owner)).map(|(owner, _)| owner.clone())
        };
        let queues = stats
            .iter()
            .take(QUEUES)
            .map(|of| {
                let owner = known(of).unwrap_or_else(|| Arc::new((of.tenant.clone(), of.queue.clone())));
                (owner, counted(of))
            })
            .collect();
        self.looks.push_back(Look { at, queues });
        while self.looks.len() > LOOKS {
            self.looks.pop_front();
        }
    }

    /// The sums over the queues that may be seen, oldest first.
    pub fn seen(&self, sees: impl Fn(&Tenant, &QueueName) -> bool) -> Vec<Seen> {
        let sum = |look: &Look| {
            let own = look.queues.iter().filter(|(owner, _)| sees(&owner.0, &owner.1));
            let counted = own.fold(Counted::default(), |sum, (_, of)| sum.plus(*of));
            Seen { at: look.at, counted }
        };
        self.looks.iter().map(sum).collect()
    }
}

impl Counted {
    fn plus(self, other: Counted) -> Counted {
        Counted {
            accepted: self.accepted + other.accepted,
            succeeded: self.succeeded + other.succeeded,
            dead: self.dead + other.dead,
        }
    }
}

fn counted(stats: &QueueStats) -> Counted {
    let totals = &stats.totals;
    Counted { accepted: totals.accepted, succeeded: totals.succeeded, dead: totals.dead }
}

/// What all of these queues have counted.
pub fn sum(stats: &[QueueStats]) -> Counted {
    stats.iter().fold(Counted::default(), |sum, of| sum.plus(counted(of)))
}

/// One figure over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Trend {
    /// Per second, between each look and the next.
    pub steps: Vec<f64>,
    /// Per second, over the last minute; nothing before there are two looks.
    pub now: Option<f64>,
}

/// The rate of one of the counters. The dead letter shrinks when something is redriven: that is no failure undone, and counts
/// as none.
pub fn trend(seen: &[Seen], of: impl Fn(&Counted) -> u64) -> Trend {
    let steps = seen.windows(2).map(|pair| per_second(pair, &of)).collect();
    let recent = last_minute(seen);
    let grown: f64 = recent.windows(2).map(|pair| grown(pair, &of)).sum();
    let now = span(recent).map(|seconds| grown / seconds);
    Trend { steps, now }
}

/// The part of what ended that failed for good, over all that is remembered; nothing when nothing has ended.
pub fn error_rate(seen: &[Seen]) -> Option<f64> {
    let all = |of: fn(&Counted) -> u64| -> f64 { seen.windows(2).map(|pair| grown(pair, &of)).sum() };
    let (dead, succeeded) = (all(|c| c.dead), all(|c| c.succeeded));
    let ended = dead + succeeded;
    (ended > 0.0).then(|| dead / ended)
}

fn last_minute(seen: &[Seen]) -> &[Seen] {
    let Some(last) = seen.last() else { return seen };
    let from = last.at.saturating_sub(NOW);
    let start = seen.iter().position(|one| one.at >= from).unwrap_or(0);
    // Looks that are further apart than that still make a rate.
    &seen[start.min(seen.len().saturating_sub(2))..]
}

fn span(seen: &[Seen]) -> Option<f64> {
    let seconds = seen.last()?.at.saturating_sub(seen.first()?.at).as_secs_f64();
    (seconds > 0.0).then_some(seconds)
}

fn per_second(pair: &[Seen], of: &impl Fn(&Counted) -> u64) -> f64 {
    span(pair).map_or(0.0, |seconds| grown(pair, of) / seconds)
}

/// Counters stay far below 2^53, where a float counts exactly.
fn grown(pair: &[Seen], of: &impl Fn(&Counted) -> u64) -> f64 {
    match pair {
        [earlier, later] => of(&later.counted).saturating_sub(of(&earlier.counted)) as f64,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use quell_core::totals::Totals;

    use super::*;

    fn seen(at: u64, accepted: u64, succeeded: u64, dead: u64) -> Seen {
        Seen { at: Duration::from_secs(at), counted: Counted { accepted, succeeded, dead } }
    }

    fn stats(tenant: &str, queue: &str, accepted: u64) -> QueueStats {
        QueueStats {
            tenant: Tenant::new(tenant).unwrap(),
            queue: QueueName::new(queue).unwrap(),
            totals: Totals { accepted, buffered: accepted, ..Totals::default() },
            running: 0,
            paused_by: None,
            oldest_due_ms: None,
        }
    }

    #[test]
    fn a_rate_is_what_was_added_by_the_time_it_took() {
        let trail = [seen(0, 100, 0, 0), seen(5, 110, 0, 0), seen(10, 160, 0, 0)];
        let trend = trend(&trail, |c| c.accepted);
        assert_eq!((trend.steps, trend.now), (vec![2.0, 10.0], Some(6.0)));
    }

    #[test]
    fn now_is_the_last_minute_and_not_the_whole_trail() {
        let trail: Vec<Seen> = (0..=24).map(|n| seen(n * 5, if n < 12 { 0 } else { 600 }, 0, 0)).collect();
        assert_eq!(trend(&trail, |c| c.accepted).now, Some(0.0), "the 600 came before it");
        let apart = [seen(0, 0, 0, 0), seen(600, 6_000, 0, 0)];
        assert_eq!(trend(&apart, |c| c.accepted).now, Some(10.0));
    }

    #[test]
    fn nothing_is_said_before_there_is_something_to_compare() {
        assert_eq!(trend(&[], |c| c.accepted).now, None);
        assert_eq!(trend(&[seen(3, 7, 0, 0)], |c| c.accepted), Trend { steps: vec![], now: None });
        assert_eq!(trend(&[seen(3, 7, 0, 0), seen(3, 9, 0, 0)], |c| c.accepted).now, None);
        assert_eq!(error_rate(&[seen(0, 1, 0, 0), seen(5, 9, 0, 0)]), None);
    }

    #[test]
    fn a_redriven_run_is_no_failure_and_no_negative_one() {
        let trail = [seen(0, 0, 0, 4), seen(5, 0, 3, 5), seen(10, 0, 3, 0)];
        assert_eq!(error_rate(&trail), Some(0.25));
        assert_eq!(trend(&trail, |c| c.dead).steps, vec![0.2, 0.0]);
    }

    #[test]
    fn a_trail_is_bounded_and_shows_each_what_is_its_own() {
        let mut trail = Trail::default();
        for n in 0..300_u64 {
            trail.note(
                EVERY * u32::try_from(n).unwrap(),
                &[stats("", "chat", n), stats("acme", "chat", 10 * n)],
            );
        }
        let all = trail.seen(|_, _| true);
        assert_eq!((all.len(), all[0].counted.accepted), (LOOKS, 180 * 11));
        let own = trail.seen(|tenant, _| tenant.as_str() == "acme");
        assert_eq!(own.last().map(|one| one.counted.accepted), Some(2990));
    }
}
