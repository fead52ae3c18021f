//! Sparklines: a figure over time as a small picture, drawn by the server.
//!
//! Only numbers go into it and only whole numbers are written, so what stands in a picture is never a text of anybody's.

use std::fmt::Write as _;

/// The size of a picture, in units of its own; it is as wide as its place.
pub(super) const WIDTH: u32 = 120;
pub(super) const HEIGHT: u32 = 28;

/// A line with the area below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spark {
    pub(super) line: String,
    pub(super) area: String,
    /// For those who do not see it.
    pub(super) words: String,
}

impl Spark {
    /// From the oldest on the left to the newest on the right; nothing with fewer than two.
    pub(super) fn of(values: &[f64]) -> Option<Spark> {
        let last = values.len().checked_sub(1).filter(|last| *last > 0)?;
        let highest = values.iter().copied().fold(0.0, f64::max);
        let mut line = String::new();
        for (place, value) in values.iter().enumerate() {
            let (x, y) = (across(place, last), up(*value, highest));
            let letter = if place == 0 { 'M' } else { 'L' };
            let _ = write!(line, "{letter}{x} {y}");
        }
        let area = format!("{line}L{WIDTH} {HEIGHT}L0 {HEIGHT}Z");
        let words = format!("between {} and {} per second", rate(lowest(values)), rate(highest));
        Some(Spark { line, area, words })
    }
}

fn lowest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn across(place: usize, last: usize) -> u32 {
    u32::try_from(place * WIDTH as usize / last).unwrap_or(WIDTH)
}

/// The line keeps a unit away from the edges, so that it is not cut.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and HEIGHT - 1")]
fn up(value: f64, highest: f64) -> u32 {
    let room = f64::from(HEIGHT - 2);
    let share = if highest > 0.0 { (value / highest).clamp(0.0, 1.0) } else { 0.0 };
    1 + (room - share * room).round() as u32
}

/// `0`, `0.25`, `3.1`, `120`, `12k`: as exact as anybody reads it.
pub(super) fn rate(per_second: f64) -> String {
    match per_second {
        n if n <= 0.0 || !n.is_finite() => "0".to_owned(),
        n if n < 0.01 => "<0.01".to_owned(),
        n if n < 1.0 => format!("{n:.2}"),
        n if n < 10.0 => format!("{n:.1}"),
        n if n < 10_000.0 => format!("{n:.0}"),
        n => format!("{:.0}k", n / 1_000.0),
    }
}

/// `0 %`, `0.4 %`, `12 %`.
pub(super) fn percent(share: f64) -> String {
    match share * 100.0 {
        n if n <= 0.0 => "0 %".to_owned(),
        n if n < 0.1 => "<0.1 %".to_owned(),
        n if n < 10.0 => format!("{n:.1} %"),
        n => format!("{n:.0} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_touches_the_top_and_nothing_lies_at_the_bottom() {
        let spark = Spark::of(&[0.0, 5.0, 10.0]).unwrap();
        assert_eq!(spark.line, "M0 27L60 14L120 1");
        assert_eq!(spark.area, "M0 27L60 14L120 1L120 28L0 28Z");
        assert_eq!(spark.words, "between 0 and 10 per second");
    }

    #[test]
    fn it_stays_in_its_place_whatever_the_values() {
        let values: Vec<f64> = vec![f64::NAN, -3.0, f64::INFINITY, 1e300, 0.0, 7.0];
        let spark = Spark::of(&values).unwrap();
        let numbers = spark.line.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
        let all: Vec<u32> = numbers.map(|part| part.parse().unwrap()).collect();
        assert_eq!(all.len(), 12, "{}", spark.line);
        assert!(all.chunks(2).all(|at| at[0] <= WIDTH && at[1] <= HEIGHT), "{}", spark.line);
    }

    #[test]
    fn a_flat_line_is_drawn_and_a_single_value_is_none() {
        assert_eq!(Spark::of(&[0.0, 0.0]).unwrap().line, "M0 27L120 27");
        assert_eq!(Spark::of(&[4.0, 4.0]).unwrap().line, "M0 1L120 1");
        assert_eq!((Spark::of(&[]), Spark::of(&[1.0])), (None, None));
    }

    #[test]
    fn numbers_are_short() {
        let all = [0.0, 0.004, 0.25, 3.12, 42.4, 1234.0, 45_678.0].map(rate);
        assert_eq!(all, ["0", "<0.01", "0.25", "3.1", "42", "1234", "46k"]);
        assert_eq!([0.0, 0.0004, 0.042, 0.5].map(percent), ["0 %", "<0.1 %", "4.2 %", "50 %"]);
    }
}
