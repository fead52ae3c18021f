//! What an intake is worth: a weighted median of its points, with an interval, as a pure function.
//!
//! A point weighs as much as it fits the intake, and the less the older it is: half after each half-life, in a straight line
//! between two halvings. Points that are too old, of a type that does not count, or in another currency weigh nothing; the last
//! are told, because money is never converted here. The value is the weighted median and the interval the weighted quartiles;
//! where the weights meet exactly, it is the mean of both sides, rounded down.
//!
//! How old a point is: a sale is as old as its date (or as the first time it was seen), an offer as the last time it was seen,
//! for so long it stood. All of it is whole numbers, so the same points give the same value on every machine, in any order.

use std::time::Duration;

use quell::quell_core::clock::{Timestamp, millis};
use serde::Serialize;

use crate::book::Point;
use crate::found::PriceType;
use crate::money::{Currency, Money};

/// The weight of what is new, before it is multiplied with a strength: it can be halved forty times before nothing is left,
/// and sums of all points of an intake stay far below what 128 bits hold.
const SCALE: u128 = 1 << 40;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// How a value is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueRules {
    /// After this long a point weighs half; default 90 days.
    pub half_life: Duration,
    /// Older points do not count; default 365 days.
    pub max_age: Duration,
    /// What counts; by default what was paid and what is asked, because a bid is only the beginning of a price.
    pub types: Vec<PriceType>,
}

impl Default for ValueRules {
    fn default() -> Self {
        ValueRules { half_life: 90 * DAY, max_age: 365 * DAY, types: vec![PriceType::Sold, PriceType::Ask] }
    }
}

/// A point as the value sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priced {
    pub price: Money,
    pub price_type: PriceType,
    /// 0 to 100.
    pub strength: u8,
    /// When the price was true for the last time.
    pub at: Timestamp,
}

impl Priced {
    pub fn of(point: &Point) -> Priced {
        let at = match point.price_type {
            PriceType::Sold => point.date.unwrap_or(point.first_seen_at),
            PriceType::Ask | PriceType::Bid => point.last_seen_at,
        };
        Priced { price: point.current(), price_type: point.price_type, strength: point.match_strength, at }
    }
}

/// What an intake is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Valuation {
    pub currency: Currency,
    /// Nothing when no point counts.
    pub estimate: Option<Estimate>,
    /// The points that it is made of.
    pub counted: Counted,
    /// Points that would count if they were in this currency.
    pub other_currency: u64,
    pub as_of: Timestamp,
}

/// The value and its interval, in the smallest unit of the currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Estimate {
    pub cents: i64,
    /// A quarter of the weight is below.
    pub low_cents: i64,
    /// A quarter of the weight is above.
    pub high_cents: i64,
}

/// Points by what their price means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    pub sold: u64,
    pub ask: u64,
    pub bid: u64,
}

impl Counted {
    pub fn all(&self) -> u64 {
        self.sold + self.ask + self.bid
    }

    fn add(&mut self, kind: PriceType) {
        match kind {
            PriceType::Sold => self.sold += 1,
            PriceType::Ask => self.ask += 1,
            PriceType::Bid => self.bid += 1,
        }
    }
}

impl Valuation {
    /// The value and its interval as money: low, value, high.
    pub fn money(&self) -> Option<[Money; 3]> {
        let Estimate { cents, low_cents, high_cents } = self.estimate?;
        Some([low_cents, cents, high_cents].map(|cents| Money { cents, currency: self.currency }))
    }
}

/// Makes the value of all points of an intake at a moment.
pub fn value(points: &[Priced], currency: Currency, rules: &ValueRules, now: Timestamp) -> Valuation {
    let (mut counted, mut other_currency) = (Counted::default(), 0);
    let mut weighed: Vec<(i64, u128)> = Vec::with_capacity(points.len());
    for point in points.iter().filter(|point| rules.types.contains(&point.price_type)) {
        let weight = weight(point, rules, now);
        if weight == 0 {
            continue;
        }
        if point.price.currency == currency {
            counted.add(point.price_type);
            weighed.push((point.price.cents, weight));
        } else {
            other_currency += 1;
        }
    }
    weighed.sort_unstable();
    let quantile = |quarter| quantile(&weighed, quarter);
    let estimate = match (quantile(1), quantile(2), quantile(3)) {
        (Some(low_cents), Some(cents), Some(high_cents)) => Some(Estimate { cents, low_cents, high_cents }),
        _ => None,
    };
    Valuation { currency, estimate, counted, other_currency, as_of: now }
}

/// Strength times decay; nothing for what is too old or does not fit at all. What is dated in the future is new.
fn weight(point: &Priced, rules: &ValueRules, now: Timestamp) -> u128 {
    let age = now.since(point.at);
    if age > rules.max_age {
        return 0;
    }
    let half = u128::from(millis(rules.half_life).max(1).unsigned_abs());
    let age = u128::from(millis(age).unsigned_abs());
    let halvings = u32::try_from(age / half).unwrap_or(u32::MAX);
    let from = SCALE.checked_shr(halvings).unwrap_or(0);
    let decay = from - from * (age % half) / (2 * half);
    u128::from(point.strength) * decay
}

/// Where so many quarters of the weight are below; the points are sorted by price and each has a weight.
fn quantile(weighed: &[(i64, u128)], quarters: u128) -> Option<i64> {
    let total: u128 = weighed.iter().map(|(_, weight)| weight).sum();
    let mut below = 0;
    let mut left = weighed.iter();
    while let Some((cents, weight)) = left.next() {
        below += 4 * weight;
        if below > quarters * total {
            return Some(*cents);
        }
        if below == quarters * total {
            let (next, _) = left.next()?;
            return Some(cents + (next - cents) / 2);
        }
    }
    None
}
