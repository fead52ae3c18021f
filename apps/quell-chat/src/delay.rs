//! How long a reply waits so that it seems typed: 30 ms for each character, 1 to 8 s, more or less by chance.

use std::time::Duration;

const PER_CHARACTER: u64 = 30;
const BOUNDS: (u64, u64) = (1_000, 8_000);

/// The wait before a reply; `chance` is between 0 and 1.
pub fn natural(text: &str, variance_percent: u8, chance: f64) -> Duration {
    let characters = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
    let plain = characters.saturating_mul(PER_CHARACTER).clamp(BOUNDS.0, BOUNDS.1);
    let variance = f64::from(variance_percent.min(100)) / 100.0;
    let factor = 1.0 + variance * (2.0 * chance.clamp(0.0, 1.0) - 1.0);
    Duration::from_millis(plain).mul_f64(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_30_ms_for_a_character_between_1_and_8_seconds() {
        let wait = |characters: usize| natural(&"é".repeat(characters), 0, 0.3).as_millis();
        assert_eq!([wait(0), wait(10), wait(100), wait(5_000)], [1_000, 1_000, 3_000, 8_000]);
    }

    #[test]
    fn it_varies_by_the_given_part_and_no_more() {
        let wait = |chance| natural(&"x".repeat(100), 20, chance).as_millis();
        assert_eq!([wait(0.0), wait(0.5), wait(1.0)], [2_400, 3_000, 3_600]);
    }
}
