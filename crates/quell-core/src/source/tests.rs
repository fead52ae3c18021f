//! One source by itself: the bucket against another implementation and against its bound, the breaker move by move, kept
//! answers.

use std::num::NonZeroU32;

use governor::clock::FakeRelativeClock;
use governor::{Quota, RateLimiter};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn run(number: u64) -> RunId {
    RunId { lane: 1, number }
}

fn source(rules: SourceRules) -> Source {
    let declaration = Declaration { name: SourceName::new("shop").unwrap(), rules };
    Source::new(SourceId(7), Tenant::none(), &declaration, at(0))
}

fn rate(per_minute: u32, burst: u32) -> SourceRules {
    SourceRules { per_minute: Some(per_minute), burst, failures: 2, ..SourceRules::default() }
}

/// One request at this moment, if there is a token for it.
fn goes(source: &mut Source, ms: i64, token: u64) -> bool {
    let go = source.readiness(at(ms)).is_go();
    if go {
        source.take(at(ms), run(token), token, at(ms + 60_000));
    }
    go
}

const FAULT: SourceVerdict =
    SourceVerdict::Fault(SourceFault { kind: FaultKind::TimeOut, retry_after: None });

fn opened(now: i64) -> Source {
    let mut shop = source(SourceRules { failures: 2, ..SourceRules::default() });
    for token in 1..=2 {
        shop.report(at(now), run(token), token, FAULT);
    }
    shop
}

#[test]
fn a_token_is_there_at_the_very_millisecond_and_not_before() {
    let mut shop = source(rate(7, 2));
    assert!(goes(&mut shop, 0, 0) && goes(&mut shop, 0, 1));
    // 60,000 / 7 is no whole number of milliseconds.
    assert_eq!(shop.readiness(at(0)), Readiness::Wait(at(8_572), Because::RateLimited));
    assert!(!goes(&mut shop, 8_571, 2));
    assert!(goes(&mut shop, 8_572, 3));
    assert_eq!(
        shop.readiness(at(8_572)),
        Readiness::Wait(at(17_143), Because::RateLimited),
        "nothing is lost"
    );
}

#[test]
fn time_never_goes_back_for_a_source() {
    let mut shop = source(rate(60, 1));
    assert!(goes(&mut shop, 10_000, 1));
    assert!(!goes(&mut shop, 0, 2), "a clock that is behind makes no tokens");
    assert_eq!(shop.readiness(at(0)), Readiness::Wait(at(11_000), Because::RateLimited));
    assert!(goes(&mut shop, 11_000, 3));
}

#[test]
fn no_limit_means_none() {
    let mut shop = source(SourceRules::default());
    assert!((0..10_000).all(|n| goes(&mut shop, 0, n)));
    assert_eq!((shop.tokens(at(0)), shop.unspent.len()), (None, 0));
}

#[test]
fn the_row_of_a_source_stays_small() {
    let mut shop = source(rate(60, 1_000));
    assert!((0..1_000).all(|n| goes(&mut shop, 0, n)));
    assert_eq!(shop.unspent.len(), limits::SOURCE_UNSPENT_MAX);
    shop.give_back(at(0), 1);
    assert_eq!(shop.tokens(at(0)), Some(0), "too long ago to be known");
    shop.give_back(at(0), 999);
    assert_eq!(shop.tokens(at(0)), Some(1));
    shop.give_back(at(0), 999);
    assert_eq!(shop.tokens(at(0)), Some(1), "once");
}

#[test]
fn a_full_bucket_that_gets_everything_back_is_just_full() {
    let mut shop = source(rate(60, 3));
    for token in 1..=3 {
        assert!(goes(&mut shop, 0, token));
    }
    for token in 1..=3 {
        shop.give_back(at(1_700), token);
    }
    assert_eq!(shop.level, shop.rules.capacity());
}

#[test]
fn a_changed_rate_concerns_the_future_only() {
    let mut shop = source(rate(60, 2));
    assert!(goes(&mut shop, 0, 1) && goes(&mut shop, 0, 2));
    assert!(shop.put(at(500), rate(6, 4)), "half a token has come by the old rate");
    assert_eq!(shop.readiness(at(500)), Readiness::Wait(at(5_500), Because::RateLimited));
    assert!(!shop.put(at(600), rate(6, 4)), "the same again");
    assert!(shop.put(at(60_500), rate(6, 1)));
    assert_eq!(shop.tokens(at(60_500)), Some(1), "a smaller bucket spills");
}

#[test]
fn an_open_breaker_becomes_half_open_and_one_may_try() {
    let mut shop = opened(1_000);
    let until = at(301_000);
    assert_eq!(shop.readiness(at(300_999)), Readiness::Wait(until, Because::BreakerOpen));
    assert_eq!(shop.readiness(until), Readiness::Go { most: 1, probe: true });
    shop.take(until, run(3), 3, at(361_000));
    assert_eq!(shop.readiness(at(302_000)), Readiness::Wait(at(361_000), Because::Probing));
    assert_eq!(shop.readiness(at(361_000)), Readiness::Go { most: 1, probe: true }, "its lease is over");
    shop.probe_extended(run(3), 3, at(400_000));
    shop.probe_extended(run(4), 4, at(900_000));
    assert_eq!(shop.readiness(at(361_000)), Readiness::Wait(at(400_000), Because::Probing));
    shop.report(at(362_000), run(1), 1, SourceVerdict::Fine);
    shop.report(at(362_000), run(3), 2, SourceVerdict::Fine);
    assert_eq!(shop.breaker(at(362_000)), Breaker::HalfOpen, "only the probe's word counts");
    shop.report(at(363_000), run(3), 3, FAULT);
    assert_eq!(shop.readiness(at(363_000)), Readiness::Wait(at(663_000), Because::BreakerOpen));
    shop.report(at(364_000), run(3), 3, SourceVerdict::Fine);
    assert_eq!(shop.breaker(at(364_000)), Breaker::Open, "it is the probe no longer");
    shop.take(at(663_000), run(5), 5, at(700_000));
    shop.report(at(664_000), run(5), 5, SourceVerdict::Fine);
    assert_eq!((shop.breaker(at(664_000)), shop.streak), (Breaker::Closed, 0));
}

#[test]
fn a_probe_waits_for_its_token_and_for_the_silence_too() {
    let mut shop = source(rate(1, 1));
    assert!(goes(&mut shop, 0, 1));
    shop.report(at(0), run(1), 1, FAULT);
    let wish = SourceFault::new(FaultKind::TooManyRequests).retry_after(secs(400));
    shop.report(at(0), run(1), 1, SourceVerdict::Fault(wish));
    assert_eq!(shop.readiness(at(0)), Readiness::Wait(at(300_000), Because::BreakerOpen));
    assert_eq!(shop.readiness(at(300_000)), Readiness::Wait(at(400_000), Because::RetryAfter));
    assert_eq!(shop.readiness(at(400_000)), Readiness::Go { most: 1, probe: true });
}

#[test]
fn a_run_of_another_source_meets_what_a_claim_meets() {
    let mut shop = source(rate(60, 2));
    let lease = at(60_000);
    for _ in 0..2 {
        assert!(shop.take_beside(at(0), run(1), 1, lease).is_go());
    }
    let empty = Readiness::Wait(at(1_000), Because::RateLimited);
    assert_eq!(shop.take_beside(at(0), run(1), 1, lease), empty);
    assert_eq!(shop.unspent, [], "a request that is about to be made gives nothing back");
    shop.disable(at(0), "ada");
    let held = Readiness::Wait(at(1_000).after(limits::SOURCE_HELD_WAIT), Because::Disabled);
    assert_eq!(shop.take_beside(at(1_000), run(1), 1, lease), held);
}

#[test]
fn a_run_of_another_source_may_be_the_probe_as_long_as_its_lease_lasts() {
    let mut shop = opened(0);
    let (half, lease) = (at(300_000), at(360_000));
    assert_eq!(
        shop.take_beside(half, run(3), 3, half),
        Readiness::Wait(half, Because::BreakerOpen),
        "its lease is over"
    );
    let probes = Readiness::Go { most: 1, probe: true };
    assert_eq!(shop.take_beside(half, run(3), 3, lease), probes);
    assert_eq!(shop.take_beside(half, run(3), 3, lease), probes, "once more");
    let probing = Readiness::Wait(lease, Because::Probing);
    assert_eq!(shop.take_beside(half, run(4), 4, at(900_000)), probing);
    assert_eq!(shop.readiness(half), probing, "nor is a lane handed out meanwhile");
    assert_eq!(shop.take_beside(lease, run(4), 4, at(900_000)), probes, "the right has ended");
    shop.report(lease, run(3), 3, SourceVerdict::Fine);
    assert_eq!(shop.breaker(lease), Breaker::HalfOpen, "with it the word");
    shop.report(lease, run(4), 4, SourceVerdict::Fine);
    assert_eq!(shop.breaker(lease), Breaker::Closed);
}

#[test]
fn what_ends_an_attempt_says_what_it_can() {
    let ends = [
        (VerdictKind::Succeeded, SourceReport::Fine, Breaker::Closed, false),
        (VerdictKind::Failed, SourceReport::Fine, Breaker::Closed, false),
        (VerdictKind::Retry, SourceReport::Fine, Breaker::Closed, false),
        (VerdictKind::Release, SourceReport::Fine, Breaker::HalfOpen, false),
        (VerdictKind::Interrupted, SourceReport::Fine, Breaker::HalfOpen, false),
        (VerdictKind::Superseded, SourceReport::Fine, Breaker::HalfOpen, false),
        (VerdictKind::Succeeded, SourceReport::Unused, Breaker::HalfOpen, false),
        (VerdictKind::Retry, SourceReport::Reported, Breaker::HalfOpen, false),
        (VerdictKind::Retry, SourceReport::Fault(SourceFault::new(FaultKind::TimeOut)), Breaker::Open, true),
    ];
    for (verdict, report, breaker, refunded) in ends {
        let mut shop = opened(0);
        shop.take(at(300_000), run(3), 3, at(360_000));
        assert_eq!(shop.refunds(at(300_000), run(3), 3, true, report), refunded, "{verdict:?} {report:?}");
        shop.settled(at(300_000), run(3), 3, verdict, report);
        assert_eq!((shop.breaker(at(300_000)), shop.probe), (breaker, None), "{verdict:?} {report:?}");
    }
}

#[test]
fn only_what_is_possible_is_declared() {
    assert_eq!(rate(60, 5).check(), Ok(()));
    assert_eq!(SourceRules::default().check(), Ok(()));
    let good = rate(60, 5);
    let bad = [
        SourceRules { per_minute: Some(0), ..good },
        SourceRules { per_minute: Some(u32::MAX), ..good },
        SourceRules { burst: 0, ..good },
        SourceRules { burst: u32::MAX, ..good },
        SourceRules { failures: 0, ..good },
        SourceRules { failures: 1_001, ..good },
        SourceRules { cooldown: Duration::ZERO, ..good },
        SourceRules { cooldown: secs(25 * 3_600), ..good },
        SourceRules { cache_ttl: Some(Duration::ZERO), ..good },
        SourceRules { cache_ttl: Some(secs(31 * 24 * 3_600)), ..good },
    ];
    for rules in bad {
        assert!(rules.check().is_err(), "{rules:?}");
    }
}

#[test]
fn the_class_of_a_status_follows_the_rule() {
    let kind = |status| SourceFault::of_status(status).map(|fault| fault.kind);
    assert_eq!(kind(429), Some(FaultKind::TooManyRequests));
    assert_eq!((kind(500), kind(503), kind(599)), (kind(500), kind(500), kind(500)));
    assert_eq!(kind(500), Some(FaultKind::ServerError));
    for fine in [200, 301, 400, 404, 408, 499] {
        assert_eq!(kind(fine), None, "{fine}");
    }
}

#[test]
fn an_answer_is_fetched_by_one_and_kept_for_its_time() {
    let shop = source(SourceRules { cache_ttl: Some(secs(10)), ..SourceRules::default() });
    let ask =
        |now, row: Option<&CacheRow>, token| recall(at(now), &shop, row, "k", None, (run(token), token));
    let (answer, row) = ask(0, None, 1);
    assert_eq!(answer, Recall::Fetch(Some(at(30_000))));
    let row = row.expect("the flight is recorded");
    assert_eq!(ask(29_999, Some(&row), 2), (Recall::Wait(at(30_000)), None));
    assert!(matches!(ask(30_000, Some(&row), 2).0, Recall::Fetch(_)));
    assert!(row.is_over(at(30_000)) && !row.is_over(at(29_999)));
    let kept = CacheRow::kept(shop.id, "k".into(), json!(1), at(1_000), secs(10));
    assert_eq!(ask(10_999, Some(&kept), 2), (Recall::Hit(json!(1)), None));
    let (answer, again) = ask(11_000, Some(&kept), 2);
    assert_eq!(answer, Recall::Fetch(Some(at(41_000))));
    assert_eq!(again.expect("a new flight").value, None, "what has expired is not kept on");
    // One that wants a younger answer fetches it, and the others are content with the older one meanwhile.
    let (answer, row) = recall(at(6_000), &shop, Some(&kept), "k", Some(secs(2)), (run(3), 3));
    assert_eq!(answer, Recall::Fetch(Some(at(36_000))));
    let row = row.expect("the flight is recorded");
    assert_eq!(ask(7_000, Some(&row), 4).0, Recall::Hit(json!(1)));
    assert_eq!(ask(11_000, Some(&row), 4).0, Recall::Wait(at(36_000)), "not any longer than it was good for");
    assert_eq!(row.clone().forgotten(at(7_000), run(3), 3), None, "its own");
    assert_eq!(
        row.forgotten(at(7_000), run(4), 4).map(|r| (r.value, r.flight.is_some())),
        Some((None, true))
    );
}

/// Divisors of a minute in nanoseconds: the other implementation counts in those.
const RATES: [u32; 16] = [1, 2, 3, 4, 6, 10, 12, 24, 30, 60, 75, 100, 240, 600, 1_200, 6_000];

proptest! {
    /// At every moment both let the same requests go.
    #[test]
    fn the_bucket_lets_go_what_governor_lets_go(
        rate_index in 0..RATES.len(),
        burst in 1u32..20,
        waits in prop::collection::vec(0u64..20_000, 1..200),
        scale in 1u64..20,
    ) {
        let per_minute = RATES[rate_index];
        let clock = FakeRelativeClock::default();
        let period = secs(60) / per_minute;
        let quota = Quota::with_period(period).unwrap().allow_burst(NonZeroU32::new(burst).unwrap());
        let oracle = RateLimiter::direct_with_clock(quota, clock.clone());
        let mut shop = source(rate(per_minute, burst));
        let mut now = 0;
        for (token, wait) in waits.into_iter().enumerate() {
            let wait = wait / scale;
            clock.advance(Duration::from_millis(wait));
            now += i64::try_from(wait).unwrap();
            let token = token as u64 + 1;
            prop_assert_eq!(goes(&mut shop, now, token), oracle.check().is_ok(), "at {} ms", now);
            // A run that ends leaves the bucket as it is.
            if token.is_multiple_of(3) {
                shop.settled(at(now), run(token), token, VerdictKind::Succeeded, SourceReport::Fine);
            }
        }
    }

    /// In every window, closed at both ends, no more requests are made than the burst and the rate allow, whatever comes
    /// back unused and whenever.
    #[test]
    fn no_window_holds_more_requests_than_the_limit_allows(
        per_minute in 1u32..2_000,
        burst in 1u32..8,
        steps in prop::collection::vec((0u64..3_000, 0u8..4), 1..150),
    ) {
        let mut shop = source(rate(per_minute, burst));
        let (mut now, mut token) = (0, 0);
        let mut open: Vec<(u64, i64)> = Vec::new();
        let mut used: Vec<i64> = Vec::new();
        for (wait, what) in steps {
            now += i64::try_from(wait).unwrap();
            match what {
                // Runs begin; their request is made at the claim.
                0 | 1 => {
                    token += 1;
                    if goes(&mut shop, now, token) {
                        open.push((token, now));
                    }
                }
                // The oldest open one made no request after all.
                2 if !open.is_empty() => {
                    let (token, _) = open.remove(0);
                    shop.settled(at(now), run(token), token, VerdictKind::Succeeded, SourceReport::Unused);
                }
                // The latest one made its own and ends.
                3 if !open.is_empty() => {
                    let (token, made) = open.pop().unwrap();
                    shop.settled(at(now), run(token), token, VerdictKind::Succeeded, SourceReport::Fine);
                    used.push(made);
                }
                _ => {
                    if shop.take_more(at(now), run(0), 0).is_go() {
                        used.push(now);
                    }
                }
            }
        }
        used.extend(open.into_iter().map(|(_, made)| made));
        used.sort_unstable();
        for (i, from) in used.iter().enumerate() {
            for (j, to) in used.iter().enumerate().skip(i) {
                let taken = (j - i + 1) as u64 * TOKEN;
                let window = u64::try_from(to - from).unwrap();
                prop_assert!(taken <= shop.rules.capacity() + window * u64::from(per_minute));
            }
        }
    }

    /// When a source says "not before", it lets go then, and not a millisecond before.
    #[test]
    fn the_time_that_is_named_is_the_right_one(
        per_minute in 1u32..100_000,
        burst in 1u32..10,
        waits in prop::collection::vec(0i64..5_000, 1..60),
    ) {
        let mut shop = source(rate(per_minute, burst));
        let mut now = 0;
        for (token, wait) in (1..).zip(waits) {
            now += wait;
            if let Readiness::Wait(until, _) = shop.readiness(at(now)) {
                prop_assert!(until > at(now));
                prop_assert!(!shop.readiness(at(until.as_millis() - 1)).is_go());
                prop_assert!(shop.readiness(until).is_go());
            }
            goes(&mut shop, now, token);
        }
    }
}
