//! Draws mixed versions: some processes have newer settings than others while they work on one store, and processes are restarted
//! with the other settings, forth and back.
//!
//! From a stream of its own and behind the other items, as sources are. Where the checker knows the setting that differs, it asks only
//! what holds under any settings: the order and the exclusion of runs, that nothing is lost, that tokens fence.

use super::draw::rules;
use super::{Fault, Item, Shape};
use crate::chance::{Chance, hash};

pub(super) fn add(seed: u64, shape: &Shape, nodes: usize, items: &mut Vec<Item>) {
    let mut chance = Chance::keyed(seed, [8, 0, 0]);
    let c = &mut chance;
    if !c.percent(15) {
        return;
    }
    let mut newer = Vec::new();
    for queue in 0..shape.queues.len() - 1 {
        rules(c, queue, &mut newer);
    }
    // A new version changes a few things, not everything.
    for item in newer {
        if let Item::Rule { queue, rule } = item
            && c.percent(40)
        {
            items.push(Item::Newer { queue, rule });
        }
    }
    let senders = c.between(0, 80);
    for item in items.iter_mut() {
        let Item::Send { send, .. } = item else { continue };
        for event in &mut send.events {
            // Whoever repeats an event has the settings that he had.
            let mut chance = Chance::keyed(seed, [8, hash(event.id.as_bytes()), 1]);
            event.newer = chance.percent(senders);
        }
    }
    for _ in 0..c.between(1, 4) {
        let (at, node, down) = (c.below(shape.span), c.index(nodes), c.between(1, 800));
        items.push(Item::Fault { at, fault: Fault::Upgrade { node, down } });
    }
}
