//! The queueing simulation: one database with its share of the load, in order of time, by a seed.
//!
//! Bursts arrive at random (exponential gaps). Each event of a burst wants the database for its append; after the last one and the quiet
//! period the run is due, wants the database for its claim, a free slot of a worker for its handler, and the database again for its
//! settle. The database serves as many at once as it has cores for it, first come, first served, and so do the workers. Lateness is
//! from the due time to the first line of the handler. Time is in whole nanoseconds, so the same seed gives the same answer everywhere.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What one database has to do, and who works on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) bursts_per_second: f64,
    pub(crate) burst: u32,
    /// From one event of a burst to the next, in seconds.
    pub(crate) gap_s: f64,
    /// From the last event to the due time, in seconds.
    pub(crate) quiet_s: f64,
    /// Seconds of a core of the database.
    pub(crate) append_s: f64,
    pub(crate) claim_s: f64,
    pub(crate) settle_s: f64,
    /// Seconds that the database waits for its disk, without using a core.
    pub(crate) flush_s: f64,
    pub(crate) handler_s: f64,
    /// How many the database serves at once.
    pub(crate) cores: usize,
    /// How many handlers run at once.
    pub(crate) slots: usize,
}

/// What was seen.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    /// Milliseconds from the due time to the handler.
    pub(crate) late_p50_ms: f64,
    pub(crate) late_p99_ms: f64,
    /// Milliseconds from an append to its answer.
    pub(crate) append_mean_ms: f64,
    pub(crate) append_p99_ms: f64,
    /// The share of its time that each core of the database works, and each slot of the workers.
    pub(crate) database_busy: f64,
    pub(crate) slots_busy: f64,
}

const NANOS: f64 = 1e9;

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "durations of minutes, in nanoseconds"
)]
fn nanos(seconds: f64) -> u64 {
    (seconds.max(0.0) * NANOS) as u64
}

/// Several who serve, first come, first served. Those who come have to be told in the order of their time.
struct Servers {
    free: BinaryHeap<Reverse<u64>>,
    busy: u64,
}

impl Servers {
    fn new(count: usize) -> Self {
        Servers { free: std::iter::repeat_n(Reverse(0), count.max(1)).collect(), busy: 0 }
    }

    /// When it begins and when it is done.
    fn serve(&mut self, at: u64, takes: u64) -> (u64, u64) {
        let free = self.free.pop().map_or(0, |Reverse(free)| free);
        let begins = at.max(free);
        self.free.push(Reverse(begins + takes));
        self.busy += takes;
        (begins, begins + takes)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Append { last: bool },
    Due,
    Handler { due: u64 },
    Settle,
}

/// So many bursts, of which the first tenth is not counted: everything is empty then.
pub(crate) fn simulate(load: &Load, bursts: usize, seed: u64) -> Seen {
    let (mut database, mut workers) = (Servers::new(load.cores), Servers::new(load.slots));
    let mut chance = Chance(seed ^ 0x9e37_79b9_7f4a_7c15);
    let warm = bursts / 10;
    let [append, claim, settle, flush, handler, quiet, gap] =
        [load.append_s, load.claim_s, load.settle_s, load.flush_s, load.handler_s, load.quiet_s, load.gap_s]
            .map(nanos);
    let (mut late, mut answers) = (Vec::new(), Vec::new());
    let mut calendar: BinaryHeap<Reverse<(u64, u64, What)>> = BinaryHeap::new();
    let (mut order, mut arrived, mut at) = (0, 0, 0_u64);
    let mut counts_from = 0;
    let mut ends = 0;
    loop {
        // The next burst is written into the calendar only when its time has come, so that the calendar stays short.
        while arrived < bursts && calendar.peek().is_none_or(|Reverse((next, ..))| *next >= at) {
            for n in 0..load.burst {
                order += 1;
                let what = What::Append { last: n + 1 == load.burst };
                calendar.push(Reverse((at + gap * u64::from(n), order, what)));
            }
            arrived += 1;
            if arrived == warm {
                counts_from = at;
            }
            at += nanos(chance.exponential() / load.bursts_per_second);
        }
        let Some(Reverse((now, _, what))) = calendar.pop() else { break };
        order += 1;
        let counts = now >= counts_from && arrived > warm;
        let mut ask = |takes: u64| {
            let (_, done) = database.serve(now, takes);
            ends = ends.max(done);
            done
        };
        match what {
            What::Append { last } => {
                let done = ask(append) + flush;
                if counts {
                    answers.push(done - now);
                }
                if last {
                    calendar.push(Reverse(((now + quiet).max(done), order, What::Due)));
                }
            }
            What::Due => {
                let done = ask(claim) + flush;
                calendar.push(Reverse((done, order, What::Handler { due: now })));
            }
            What::Handler { due } => {
                let (begins, done) = workers.serve(now, handler);
                if counts {
                    late.push(begins - due);
                }
                calendar.push(Reverse((done, order, What::Settle)));
            }
            What::Settle => {
                ask(settle);
            }
        }
    }
    let busy =
        |servers: &Servers, count: usize| servers.busy as f64 / (ends.max(1) as f64 * count.max(1) as f64);
    let append_mean_ms =
        answers.iter().map(|took| *took as f64).sum::<f64>() / answers.len().max(1) as f64 / 1e6;
    Seen {
        late_p50_ms: percentile(&mut late, 0.50),
        late_p99_ms: percentile(&mut late, 0.99),
        append_mean_ms,
        append_p99_ms: percentile(&mut answers, 0.99),
        database_busy: busy(&database, load.cores),
        slots_busy: busy(&workers, load.slots),
    }
}

/// In milliseconds.
fn percentile(samples: &mut [u64], share: f64) -> f64 {
    if samples.is_empty() {
        return 0.0;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index into the samples")]
    let index = ((samples.len() as f64 - 1.0) * share).round() as usize;
    *samples.select_nth_unstable(index).1 as f64 / 1e6
}

/// SplitMix64: small, the same everywhere, and random enough for gaps between arrivals.
struct Chance(u64);

impl Chance {
    fn exponential(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let share = ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
        -(1.0 - share).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Single events whose only cost is the append: a plain queue before `cores` servers.
    fn plain(rate: f64, cores: usize) -> Load {
        Load {
            bursts_per_second: rate,
            burst: 1,
            gap_s: 0.0,
            quiet_s: 0.0,
            append_s: 0.001,
            claim_s: 0.0,
            settle_s: 0.0,
            flush_s: 0.0,
            handler_s: 0.0,
            cores,
            slots: 1,
        }
    }

    /// The mean wait in milliseconds of random arrivals with a fixed service of 1 ms: exact for one server; for several half of that
    /// with random service times, with the correction of Cosmetatos.
    fn closed_form(rate: f64, servers: usize) -> f64 {
        let (offered, c) = (rate / 1_000.0, servers as f64);
        let busy = offered / c;
        let (mut term, mut sum) = (1.0, 0.0);
        for k in 0..servers {
            sum += term;
            term *= offered / (k as f64 + 1.0);
        }
        let waits = term / (1.0 - busy) / (sum + term / (1.0 - busy));
        let random = waits / (c - offered);
        let correction = 1.0 + (1.0 - busy) * (c - 1.0) * ((4.0 + 5.0 * c).sqrt() - 2.0) / (16.0 * busy * c);
        0.5 * random * correction
    }

    #[test]
    fn waits_agree_with_the_closed_form_for_one_server_and_for_several() {
        for (rate, cores) in [(500.0, 1), (800.0, 1), (1_500.0, 2), (3_200.0, 4)] {
            let seen = simulate(&plain(rate, cores), 400_000, 7);
            let (wait, exact) = (seen.append_mean_ms - 1.0, closed_form(rate, cores));
            assert!((wait - exact).abs() / exact < 0.05, "{rate} on {cores}: {wait} against {exact}");
            assert!((seen.database_busy - rate / 1_000.0 / cores as f64).abs() < 0.02, "{seen:?}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_answer_and_another_one_nearly_so() {
        let load = Load {
            burst: 5,
            gap_s: 0.2,
            quiet_s: 1.0,
            claim_s: 0.0005,
            settle_s: 0.0005,
            handler_s: 0.2,
            slots: 40,
            ..plain(120.0, 2)
        };
        let (one, again, other) =
            (simulate(&load, 20_000, 1), simulate(&load, 20_000, 1), simulate(&load, 20_000, 2));
        assert_eq!(one, again);
        assert_ne!(one, other);
        assert!((one.slots_busy - 120.0 * 0.2 / 40.0).abs() < 0.03, "{one:?}");
        assert!(one.late_p50_ms >= 0.5 && one.late_p99_ms < 100.0, "{one:?}");
    }

    #[test]
    fn too_few_slots_make_runs_late() {
        let enough = Load { handler_s: 0.1, slots: 20, ..plain(100.0, 2) };
        let few = Load { slots: 10, ..enough };
        assert!(simulate(&enough, 20_000, 1).late_p99_ms < 50.0);
        assert!(simulate(&few, 20_000, 1).late_p99_ms > 500.0);
    }
}
