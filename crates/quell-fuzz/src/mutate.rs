//! How an input becomes another one: by bytes, by words of its language, by numbers, and by parts of other inputs.

use quell_sim::chance::Chance;

/// Longer inputs are cut: every parser here refuses long ones by a bound of its own, which a shorter one finds, too.
pub(crate) const BYTES_MAX: usize = 16 * 1024;

/// Bytes at which readers of text and of numbers go wrong.
const BYTES: &[u8] = b"\0\t\n\r \"'\\/:;,.%&=+-*@#?<>[]{}()|~_019azAZ\x7f\x80\xbf\xc0\xe2\xff";

/// Texts at which they do.
const TEXTS: &[&str] = &[
    "-1",
    "0",
    "1",
    "255",
    "256",
    "65535",
    "65536",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e999",
    "-0",
    "0.1",
    "NaN",
    "null",
    "true",
    "\u{0}",
    "\u{feff}",
    "\u{202e}",
    "\u{ff11}",
    "ß",
    "İ",
    "🐌",
    "%00",
    "%2e%2e",
    "\r\n",
    "../",
    "\\u0000",
    "\\ud800",
];

/// One to four changes.
pub(crate) fn mutate(chance: &mut Chance, input: &[u8], other: &[u8], words: &[&str]) -> Vec<u8> {
    let mut made = input.to_vec();
    for _ in 0..=chance.below(4) {
        change(chance, &mut made, other, words);
        made.truncate(BYTES_MAX);
    }
    made
}

fn change(chance: &mut Chance, made: &mut Vec<u8>, other: &[u8], words: &[&str]) {
    let place = chance.index(made.len() + 1);
    let end = (place + 1 + chance.index(16)).min(made.len());
    match chance.below(10) {
        0 if place < made.len() => made[place] ^= 1 << chance.below(8),
        1 if place < made.len() => made[place] = *chance.pick(BYTES),
        2 => made.insert(place, *chance.pick(BYTES)),
        3 if place < end => drop(made.drain(place..end)),
        4 if place < end => {
            let part = made[place..end].to_vec();
            insert(made, place, &part);
        }
        5 if !words.is_empty() => insert(made, place, chance.pick(words).as_bytes()),
        6 => insert(made, place, chance.pick(TEXTS).as_bytes()),
        7 if !other.is_empty() => {
            let from = chance.index(other.len());
            let to = (from + 1 + chance.index(64)).min(other.len());
            insert(made, place, &other[from..to]);
        }
        8 => {
            // Much of one thing: depth, length, repetition.
            let byte = *chance.pick(BYTES);
            let many = 1 << chance.below(9);
            insert(made, place, &vec![byte; many]);
        }
        _ => made.truncate(place),
    }
}

fn insert(made: &mut Vec<u8>, place: usize, part: &[u8]) {
    made.splice(place..place, part.iter().copied());
}
