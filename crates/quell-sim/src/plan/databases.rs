//! Draws over how many databases the lanes of a schedule are spread, how far their clocks are apart, and what goes wrong between a
//! process and a single one of them.
//!
//! From streams of its own; a schedule with one database is what it would be if there were no others.

use quell_core::event::Key;

use super::{DatabaseShape, Fault, Item, Shape, Trouble};
use crate::chance::Chance;

/// No two that follow one another have the same database, whether there are two or three: what a settle carries into the next lane
/// has to be relayed.
const KEYS: [&str; 4] = ["cat", "kim", "may", "bea"];

/// How many databases there are, and keys that are spread over them.
pub(super) fn shape(seed: u64, shape: &mut Shape) {
    let mut chance = Chance::keyed(seed, [11, 0, 0]);
    let c = &mut chance;
    if !c.percent(25) {
        return;
    }
    let count = c.index(2) + 2;
    // Each database judges its own lanes by its own clock, so nothing may depend on how far two of them are apart.
    let apart = c.percent(50);
    let mut database = || DatabaseShape { ahead: if apart { c.below(3_000) } else { 0 } };
    shape.databases = (0..count).map(|_| database()).collect();
    let keys = c.index(3) + 2;
    shape.lanes.clear();
    for (place, queue) in shape.queues.iter().enumerate() {
        let key = |key| Key::new(key).expect("a key of ours");
        shape.lanes.extend(KEYS[..keys].iter().map(|name| (queue.lane(&key(*name)), place)));
    }
}

/// What goes wrong with single databases.
pub(super) fn add(seed: u64, shape: &Shape, items: &mut Vec<Item>) {
    let databases = shape.databases.len();
    if databases == 1 {
        return;
    }
    let mut chance = Chance::keyed(seed, [11, 0, 1]);
    let c = &mut chance;
    let nodes = items.iter().filter(|item| matches!(item, Item::Worker(_) | Item::Puller(_))).count();
    let share = *c.pick(&[0, 30, 60]);
    for kind in [Trouble::Refused, Trouble::LostBefore, Trouble::LostAfter, Trouble::Slow] {
        if !c.percent(share) {
            continue;
        }
        for _ in 0..c.between(1, 4) {
            let (at, length) = (c.below(shape.span), c.between(50, 2_500));
            let (database, percent) = (c.index(databases), *c.pick(&[10, 30, 60, 100]));
            let node = c.percent(30).then(|| c.index(nodes));
            items.push(Item::Fault { at, fault: Fault::Database { database, node, kind, length, percent } });
        }
    }
}

#[cfg(test)]
mod tests {
    use quell_core::event::{LaneKey, QueueName};
    use quell_store_many::partition::partition_of;

    use super::*;

    #[test]
    fn keys_that_follow_one_another_have_different_databases() {
        // A new map deals partitions out in turn.
        let home = |key: &str, many: usize| {
            let lane = LaneKey::new(QueueName::new("chat").unwrap(), Key::new(key).unwrap());
            partition_of(&lane) % many
        };
        for many in [2, 3] {
            assert!(KEYS.windows(2).all(|two| home(two[0], many) != home(two[1], many)), "{many} databases");
        }
    }
}
