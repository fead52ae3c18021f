//! Small charts, drawn as SVG: prices over time with the value and its interval, and an interval by itself.
//!
//! Only whole numbers are computed with, and only whole numbers are written: what stands in a chart is never a text of
//! anybody's.

use quell::quell_core::clock::Timestamp;

use crate::book::Point;
use crate::found::PriceType;
use crate::money::{Currency, Money};
use crate::value::{Estimate, Valuation};

/// The size of a chart, in units of its own; it is as wide as its place.
pub const WIDTH: i64 = 640;
pub const HEIGHT: i64 = 160;
const MARGIN: i64 = 8;
/// The length of an interval's line.
pub const BAR: i64 = 120;

/// One price in a chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dot {
    pub x: i64,
    pub y: i64,
    pub kind: PriceType,
}

/// Prices over time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chart {
    pub dots: Vec<Dot>,
    /// Where the value stands, and the interval from above.
    pub value: Option<i64>,
    pub band: Option<(i64, i64)>,
    pub from: Timestamp,
    pub to: Timestamp,
    pub low: Money,
    pub high: Money,
}

impl Chart {
    /// Of the prices in this currency; nothing without any.
    pub fn new(points: &[Point], valuation: Option<&Valuation>, currency: Currency) -> Option<Chart> {
        let at = |point: &Point| point.date.unwrap_or(point.last_seen_at);
        let priced: Vec<&Point> =
            points.iter().filter(|point| point.current().currency == currency).collect();
        let (from, to) = (priced.iter().map(|p| at(p)).min()?, priced.iter().map(|p| at(p)).max()?);
        let estimate = valuation.and_then(|valuation| valuation.estimate);
        let prices = priced.iter().map(|point| point.current().cents);
        let marks = estimate.into_iter().flat_map(|e| [e.low_cents, e.high_cents]);
        let low = prices.clone().chain(marks.clone()).min()?;
        let high = prices.chain(marks).max()?;
        let y = |cents: i64| HEIGHT - MARGIN - scaled(cents - low, high - low, HEIGHT - 2 * MARGIN);
        let x = |moment: Timestamp| {
            MARGIN
                + scaled(
                    moment.as_millis() - from.as_millis(),
                    to.as_millis() - from.as_millis(),
                    WIDTH - 2 * MARGIN,
                )
        };
        let dot =
            |point: &&Point| Dot { x: x(at(point)), y: y(point.current().cents), kind: point.price_type };
        let money = |cents| Money { cents, currency };
        Some(Chart {
            dots: priced.iter().map(dot).collect(),
            value: estimate.map(|estimate| y(estimate.cents)),
            band: estimate.map(|estimate| (y(estimate.high_cents), y(estimate.low_cents))),
            from,
            to,
            low: money(low),
            high: money(high),
        })
    }

    /// For those who do not see it.
    pub fn words(&self) -> String {
        let day = |moment: Timestamp| moment.to_string().chars().take(10).collect::<String>();
        let count = self.dots.len();
        let (from, to) = (day(self.from), day(self.to));
        format!("{count} prices from {from} to {to}, between {} and {}", self.low, self.high)
    }
}

/// The interval of a value as a line with a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    pub low: i64,
    pub value: i64,
    pub high: i64,
}

impl Interval {
    /// From nothing to the highest of its page.
    pub fn new(estimate: &Estimate, highest: i64) -> Interval {
        let place = |cents: i64| scaled(cents, highest, BAR);
        Interval {
            low: place(estimate.low_cents),
            value: place(estimate.cents),
            high: place(estimate.high_cents),
        }
    }

    /// A line that is too short to be seen is drawn longer.
    pub fn length(&self) -> i64 {
        (self.high - self.low).max(2)
    }
}

/// `part` of `whole` by another measure; half of it where there is no whole.
fn scaled(part: i64, whole: i64, measure: i64) -> i64 {
    if whole <= 0 {
        return measure / 2;
    }
    let place = i128::from(part) * i128::from(measure) / i128::from(whole);
    i64::try_from(place).unwrap_or(measure).clamp(0, measure)
}

#[cfg(test)]
mod tests {
    use quell::quell_core::event::SourceName;

    use super::*;
    use crate::value::Counted;

    fn point(day: i64, cents: i64, currency: Currency) -> Point {
        let at = Timestamp::from_millis(day * 86_400_000);
        Point {
            source: SourceName::new("shop").unwrap(),
            dedupe_key: "ext_1".to_owned(),
            external_id: None,
            url: None,
            title: "coin".to_owned(),
            price: Money { cents, currency },
            original: None,
            price_type: PriceType::Ask,
            date: Some(at),
            match_strength: 100,
            first_seen_at: at,
            last_seen_at: at,
            observations: 1,
            latest: None,
        }
    }

    #[test]
    fn prices_go_from_left_to_right_and_dear_ones_are_above() {
        let points =
            [point(10, 3000, Currency::USD), point(0, 1000, Currency::USD), point(5, 2000, Currency::USD)];
        let chart = Chart::new(&points, None, Currency::USD).unwrap();
        let places: Vec<(i64, i64)> = chart.dots.iter().map(|dot| (dot.x, dot.y)).collect();
        assert_eq!(places, [(WIDTH - MARGIN, MARGIN), (MARGIN, HEIGHT - MARGIN), (WIDTH / 2, HEIGHT / 2)]);
        assert_eq!(chart.words(), "3 prices from 1970-01-01 to 1970-01-11, between 10.00 USD and 30.00 USD");
        assert!(Chart::new(&points, None, Currency::new("EUR").unwrap()).is_none());
        let alone = Chart::new(&points[..1], None, Currency::USD).unwrap();
        assert_eq!((alone.dots[0].x, alone.dots[0].y), (WIDTH / 2, HEIGHT / 2));
    }

    #[test]
    fn the_value_lies_in_its_band_and_the_band_in_the_chart() {
        let estimate = Estimate { cents: 2000, low_cents: 500, high_cents: 4000 };
        let valuation = Valuation {
            currency: Currency::USD,
            estimate: Some(estimate),
            counted: Counted::default(),
            other_currency: 0,
            as_of: Timestamp::default(),
        };
        let points = [point(0, 1000, Currency::USD), point(1, 3000, Currency::USD)];
        let chart = Chart::new(&points, Some(&valuation), Currency::USD).unwrap();
        let ((above, below), value) = (chart.band.unwrap(), chart.value.unwrap());
        assert!(MARGIN <= above && above < value && value < below && below <= HEIGHT - MARGIN);
        let bar = Interval::new(&estimate, 4000);
        assert_eq!((bar.low, bar.value, bar.high, bar.length()), (15, 60, 120, 105));
    }
}
