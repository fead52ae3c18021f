//! Draws what happens to the network of single processes, and between pull workers and their server.
//!
//! From a stream of its own and behind the other items, as sources are.

use super::{Fault, Item, Shape};
use crate::chance::Chance;

pub(super) fn add(seed: u64, shape: &Shape, items: &mut Vec<Item>) {
    let mut chance = Chance::keyed(seed, [9, 0, 0]);
    let c = &mut chance;
    let nodes = items.iter().filter(|item| matches!(item, Item::Worker(_) | Item::Puller(_))).count();
    let pulls = items.iter().any(|item| matches!(item, Item::Puller(_)));
    if !c.percent(25) {
        return;
    }
    for kind in 0..3 {
        // The last two are about pull workers alone.
        if !c.percent(50) || (kind > 0 && !pulls) {
            continue;
        }
        for _ in 0..c.between(1, 3) {
            let (at, length) = (c.below(shape.span), c.between(50, 2_500));
            let fault = match kind {
                0 => Fault::Cut { node: c.index(nodes), length, answers_only: c.percent(40) },
                1 => Fault::ServerGone { length },
                _ => Fault::Echo { length, percent: *c.pick(&[10, 40, 100]) },
            };
            items.push(Item::Fault { at, fault });
        }
    }
}
