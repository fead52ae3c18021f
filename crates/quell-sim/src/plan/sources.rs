//! Draws sources: what is declared, which queues and events they govern, what handlers say of them, who lays hands on
//! them.
//!
//! Everything here is drawn from a stream of its own and put behind the other items, so the rest of a plan is what it
//! would be without sources.

use std::time::Duration;

use quell_core::event::SourceName;
use quell_core::source::SourceRules;

use super::{Habit, Hand, Item, Rule, Shape, SourceShape};
use crate::chance::{Chance, hash};

const NAMES: [&str; 2] = ["shop", "bank"];

pub(super) fn add(seed: u64, shape: &mut Shape, items: &mut Vec<Item>) {
    let mut chance = Chance::keyed(seed, [6, 0, 0]);
    let c = &mut chance;
    if !c.percent(40) {
        return;
    }
    let count = c.index(NAMES.len()) + 1;
    for name in &NAMES[..count] {
        let name = SourceName::new(*name).expect("a name of ours");
        shape.sources.push(SourceShape { name, rules: rules(c) });
    }
    for queue in 0..shape.queues.len() - 1 {
        if queue == 0 || c.percent(70) {
            items.push(Item::Rule { queue, rule: Rule::Source(c.index(count)) });
        }
    }
    let own = if c.percent(40) { c.between(1, 50) } else { 0 };
    for item in items.iter_mut() {
        let Item::Send { send, .. } = item else { continue };
        for event in &mut send.events {
            // The same id names the same source, however often it is sent.
            let mut chance = Chance::keyed(seed, [6, hash(event.id.as_bytes()), 1]);
            event.source = chance.percent(own).then(|| chance.index(count));
        }
    }
    let share = *c.pick(&[20, 40, 60]);
    for habit in Habit::OF_SOURCES {
        if c.percent(share) {
            items.push(Item::Habit { habit, percent: c.between(5, 80) });
        }
    }
    hands(c, shape, items);
}

/// Fast enough that everything is done soon after the faults, slow enough that it is noticed.
fn rules(c: &mut Chance) -> SourceRules {
    let ms = Duration::from_millis;
    SourceRules {
        per_minute: c.percent(75).then(|| *c.pick(&[180, 300, 600, 1_200, 6_000])),
        burst: u32::try_from(c.between(1, 4)).unwrap_or(1),
        failures: u32::try_from(c.between(1, 3)).unwrap_or(1),
        cooldown: ms(*c.pick(&[40, 200, 800, 2_500])),
        cache_ttl: c.percent(70).then(|| ms(c.between(100, 3_000))),
        shared: c.percent(30),
    }
}

fn hands(c: &mut Chance, shape: &Shape, items: &mut Vec<Item>) {
    let share = *c.pick(&[0, 15, 40]);
    for kind in 0..5 {
        if !c.percent(share) {
            continue;
        }
        for _ in 0..c.between(1, 2) {
            let (source, queue) = (c.index(shape.sources.len()), c.index(shape.queues.len() - 1));
            let at = c.below(shape.span);
            let (hand, after) = match kind {
                0 => (Hand::DisableSource { source, queue }, Some(Hand::EnableSource { source, queue })),
                1 => (Hand::RemoveSource { source }, Some(Hand::PutSource { source, rules: None })),
                2 => (Hand::RemoveSource { source }, Some(Hand::ReleaseSource { source, queue })),
                3 => (Hand::ResetSource { source, queue }, None),
                _ => (Hand::PutSource { source, rules: Some(changed(c, shape, source)) }, None),
            };
            items.push(Item::Hand { at, hand });
            if let Some(hand) = after.filter(|_| c.percent(80)) {
                items.push(Item::Hand { at: at + c.below(2_000), hand });
            }
        }
    }
}

/// Other limits; who shares them and what is kept stays.
fn changed(c: &mut Chance, shape: &Shape, source: usize) -> SourceRules {
    let SourceRules { cache_ttl, shared, .. } = shape.sources[source].rules;
    SourceRules { cache_ttl, shared, ..rules(c) }
}
