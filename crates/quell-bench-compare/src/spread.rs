//! Medians, what they are the middle of, and ratios of them.

/// The figures of several rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
    pub rounds: usize,
}

impl Spread {
    /// None of none.
    #[must_use]
    pub fn of(mut samples: Vec<f64>) -> Option<Self> {
        samples.sort_by(f64::total_cmp);
        let middle = samples.len() / 2;
        let upper = *samples.get(middle)?;
        let even = samples.len().is_multiple_of(2);
        // Between the two in the middle when there are two.
        let median = if even { (samples[middle - 1] + upper) / 2.0 } else { upper };
        Some(Spread { median, least: *samples.first()?, most: *samples.last()?, rounds: samples.len() })
    }

    /// How many times the other median this one is.
    #[must_use]
    pub fn times(&self, other: &Spread) -> Option<f64> {
        (other.median > 0.0).then(|| self.median / other.median)
    }
}

/// With as many digits as a reader wants: none behind the point for counts, three in all for small figures, thousands apart.
#[must_use]
pub fn shown(value: f64) -> String {
    let decimals = match value.abs() {
        v if v.fract() == 0.0 || v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    let (whole, rest) =
        text.split_once('.').map_or((text.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let digits = whole.trim_start_matches('-');
    let mut apart = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            apart.push(',');
        }
        apart.push(digit);
    }
    let sign = if whole.starts_with('-') { "-" } else { "" };
    rest.map_or_else(|| format!("{sign}{apart}"), |rest| format!("{sign}{apart}.{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_whatever_the_order() {
        assert_eq!(Spread::of(vec![]), None);
        let odd = Spread::of(vec![5.0, 1.0, 3.0]).unwrap();
        assert_eq!((odd.median, odd.least, odd.most, odd.rounds), (3.0, 1.0, 5.0, 3));
        assert_eq!(Spread::of(vec![4.0, 1.0, 3.0, 2.0]).unwrap().median, 2.5);
    }

    #[test]
    fn a_ratio_to_nothing_is_none() {
        let (two, zero) = (Spread::of(vec![2.0]).unwrap(), Spread::of(vec![0.0]).unwrap());
        assert_eq!(two.times(&two), Some(1.0));
        assert_eq!(two.times(&zero), None);
    }

    #[test]
    fn figures_are_shown_as_people_read_them() {
        let texts = [0.0, 7.0, 0.274, 12.34, 999.4, 37_605.4, 1_000_000.0, -1_234.0].map(shown);
        assert_eq!(texts, ["0", "7", "0.27", "12.3", "999", "37,605", "1,000,000", "-1,234"]);
    }
}
