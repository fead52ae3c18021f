//! Seeded chance: the same seed gives the same history on every machine.
//!
//! A xorshift generator is enough to choose among a few steps, and its numbers never change with a dependency.

/// A generator of numbers.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    pub fn seeded(seed: u64) -> Self {
        // Spread neighbouring seeds apart, and never start at zero, where a xorshift stays.
        let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..4 {
            chance.next();
        }
        chance
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number from 0 to `below` - 1.
    pub fn below(&mut self, below: u64) -> u64 {
        (self.next() >> 11) % below.max(1)
    }

    /// True in `percent` of a hundred cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of the items.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        let index = self.below(items.len() as u64);
        &items[usize::try_from(index).expect("an index of a slice")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_seed_gives_others() {
        let draw = |seed| {
            let mut chance = Chance::seeded(seed);
            (0..50).map(|_| chance.below(1_000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert!(draw(0).iter().any(|n| *n > 0), "seed zero is a seed like any other");
    }
}
