//! Seeded chance, by stream and by key.
//!
//! A stream makes the plan of a schedule. Everything that is decided while the schedule runs (how long a call takes,
//! whether it fails, what a handler does) is drawn by *key* instead: from the seed and the name of the thing. So a
//! schedule from which some items were taken away still draws the same for what is left, and failures can be shrunk.

/// A generator of numbers: splitmix64, whose numbers never change with a dependency.
#[derive(Debug, Clone)]
pub struct Chance(u64);

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Chance {
    pub fn seeded(seed: u64) -> Self {
        Chance(mix(seed.wrapping_add(STEP)))
    }

    /// The generator of one named thing.
    pub fn keyed(seed: u64, key: [u64; 3]) -> Self {
        Chance(
            key.into_iter().fold(mix(seed ^ STEP), |state, part| mix(state ^ mix(part.wrapping_add(STEP)))),
        )
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number from 0 to `below` - 1.
    pub fn below(&mut self, below: u64) -> u64 {
        (self.number() >> 11) % below.max(1)
    }

    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// True in `percent` of a hundred cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A number from [0, 1).
    pub fn unit(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
        let (part, whole) = ((self.number() >> 11) as f64, (1u64 << 53) as f64);
        part / whole
    }

    /// One of the items.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }
}

/// A hash that is the same on every machine and in every build.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_keys_repeat_and_differ() {
        let draw = |mut c: Chance| (0..20).map(|_| c.below(1_000)).collect::<Vec<_>>();
        assert_eq!(draw(Chance::seeded(7)), draw(Chance::seeded(7)));
        assert_ne!(draw(Chance::seeded(7)), draw(Chance::seeded(8)));
        assert_eq!(draw(Chance::keyed(7, [1, 2, 3])), draw(Chance::keyed(7, [1, 2, 3])));
        assert_ne!(draw(Chance::keyed(7, [1, 2, 3])), draw(Chance::keyed(7, [1, 3, 2])));
    }
}
