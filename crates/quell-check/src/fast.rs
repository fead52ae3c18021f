//! Maps for small keys.
//!
//! A simulator checks hundreds of thousands of small histories, and most of the time would go into hashing with the
//! standard library's defence against hostile keys. The keys here are our own numbers and names.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;

/// Multiply and rotate, as compilers do for their own tables.
#[derive(Default, Clone, Copy)]
pub(crate) struct Mix(u64);

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Mix {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(FACTOR);
    }
}

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
        self.add(bytes.len() as u64);
    }

    fn write_u8(&mut self, n: u8) {
        self.add(u64::from(n));
    }

    fn write_u32(&mut self, n: u32) {
        self.add(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.add(n);
    }

    fn finish(&self) -> u64 {
        // The map takes its bucket from the low bits, and a product mixes only upwards.
        self.0 ^ (self.0 >> 32)
    }
}
