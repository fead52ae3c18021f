//! The value of an intake, by vectors that were computed elsewhere and by what must hold for any points.

use std::time::Duration;

use proptest::prelude::*;
use quell::quell_core::clock::Timestamp;
use quell_collectors::found::PriceType;
use quell_collectors::money::{Currency, Money};
use quell_collectors::value::{Counted, Estimate, Priced, Valuation, ValueRules, value};
use serde_json::Value;

const DAY: u64 = 24 * 3600;
const NOW: Timestamp = Timestamp::from_millis(1_760_000_000_000);

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

fn days(value: &Value) -> Duration {
    Duration::from_secs(value.as_u64().unwrap() * DAY)
}

#[test]
fn values_are_those_that_were_computed_elsewhere() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/value.json");
    let fixture: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    for vector in fixture["vectors"].as_array().unwrap() {
        let rules = ValueRules {
            half_life: days(&vector["rules"]["half_life_days"]),
            max_age: days(&vector["rules"]["max_age_days"]),
            types: read(&vector["rules"]["types"]),
        };
        let priced = |point: &Value| Priced {
            price: read(&point["price"]),
            price_type: read(&point["price_type"]),
            strength: read(&point["strength"]),
            at: read(&point["at"]),
        };
        let points: Vec<Priced> = vector["points"].as_array().unwrap().iter().map(priced).collect();
        let made = value(&points, read(&vector["currency"]), &rules, read(&vector["now"]));
        let shown = serde_json::to_value(made).unwrap();
        for part in ["estimate", "counted", "other_currency"] {
            assert_eq!(shown[part], vector["value"][part], "{}: {part}", vector["name"]);
        }
    }
}

fn point() -> impl Strategy<Value = Priced> {
    let types = prop::sample::select(PriceType::ALL.to_vec());
    (0..1_000_000_000_i64, types, 0..=100_u8, -5..500_i64, 0..86_400_000_i64).prop_map(
        |(cents, price_type, strength, days, millis)| Priced {
            price: Money { cents, currency: Currency::USD },
            price_type,
            strength,
            at: Timestamp::from_millis(NOW.as_millis() - days * 86_400_000 - millis),
        },
    )
}

fn points() -> impl Strategy<Value = Vec<Priced>> {
    prop::collection::vec(point(), 0..40)
}

fn made(points: &[Priced]) -> Valuation {
    value(points, Currency::USD, &ValueRules::default(), NOW)
}

fn scaled(points: &[Priced], by: i64) -> Vec<Priced> {
    let price = |point: &Priced| Money { cents: point.price.cents * by, ..point.price };
    points.iter().map(|point| Priced { price: price(point), ..*point }).collect()
}

proptest! {
    #[test]
    fn the_order_of_points_does_not_matter(mixed in points().prop_flat_map(|some| (Just(some.clone()), Just(some).prop_shuffle()))) {
        prop_assert_eq!(made(&mixed.0), made(&mixed.1));
    }

    #[test]
    fn the_interval_holds_the_value_and_both_are_between_the_points(some in points()) {
        let made = made(&some);
        prop_assert_eq!(made.estimate.is_some(), made.counted.all() > 0);
        if let Some(Estimate { cents, low_cents, high_cents }) = made.estimate {
            prop_assert!(low_cents <= cents && cents <= high_cents);
            let all = || some.iter().map(|point| point.price.cents);
            prop_assert!(all().min() <= Some(low_cents) && Some(high_cents) <= all().max());
        }
    }

    #[test]
    fn prices_twice_as_high_make_a_value_twice_as_high(some in points(), by in 2..50_i64) {
        let (one, many) = (made(&some), made(&scaled(&some, by)));
        prop_assert_eq!(one.counted, many.counted);
        if let (Some(one), Some(many)) = (one.estimate, many.estimate) {
            // The mean of two is rounded down, which can hide half a cent.
            for (one, many) in [(one.cents, many.cents), (one.low_cents, many.low_cents), (one.high_cents, many.high_cents)] {
                prop_assert!((0..by).contains(&(many - one * by)), "{many} is not {by} times {one}");
            }
        }
    }

    #[test]
    fn strengths_count_only_beside_each_other(some in points()) {
        let half: Vec<Priced> =
            some.iter().map(|point| Priced { strength: point.strength / 2, ..*point }).collect();
        let whole: Vec<Priced> =
            half.iter().map(|point| Priced { strength: point.strength * 2, ..*point }).collect();
        prop_assert_eq!(made(&half), made(&whole));
    }

    #[test]
    fn a_point_in_another_currency_changes_nothing_but_its_count(some in points(), other in point()) {
        let euros = Money { currency: Currency::new("EUR").unwrap(), ..other.price };
        let more: Vec<Priced> = some.iter().copied().chain([Priced { price: euros, ..other }]).collect();
        let (before, after) = (made(&some), made(&more));
        prop_assert_eq!((before.estimate, before.counted), (after.estimate, after.counted));
        prop_assert!(after.other_currency - before.other_currency <= 1);
        let counts = made(&[other]).counted.all();
        prop_assert_eq!(after.other_currency - before.other_currency, counts, "it is told if it would count");
    }

    #[test]
    fn what_does_not_count_changes_nothing(some in points(), other in point()) {
        let old = Priced { at: NOW.before(Duration::from_secs(366 * DAY)), ..other };
        let bid = Priced { price_type: PriceType::Bid, ..other };
        let unfit = Priced { strength: 0, ..other };
        for none in [old, bid, unfit] {
            let more: Vec<Priced> = some.iter().copied().chain([none]).collect();
            prop_assert_eq!(made(&some), made(&more));
        }
    }
}

#[test]
fn the_most_and_largest_points_fit_into_the_numbers() {
    let largest = Money { cents: 999_999_999_999_999, currency: Currency::USD };
    let point = Priced { price: largest, price_type: PriceType::Sold, strength: 100, at: NOW };
    let made = made(&vec![point; quell_collectors::book::VALUED_MAX]);
    let cents = largest.cents;
    assert_eq!(made.estimate, Some(Estimate { cents, low_cents: cents, high_cents: cents }));
    let sold = u64::try_from(quell_collectors::book::VALUED_MAX).unwrap();
    assert_eq!(made.counted, Counted { sold, ask: 0, bid: 0 });
    let shown = made.money().unwrap().map(|money| money.to_string());
    assert_eq!(shown, ["9999999999999.99 USD"; 3]);
}
