//! Random legal stories: whatever the teller does, the checker must not cry wolf; and a random lie should not pass.

use std::collections::BTreeMap;

use super::story::{Held, Story, audit_of, claim_of, dump_of, policy};
use super::{check, passes};
use crate::history::*;
use crate::sometimes::{Sometimes, Thing};

/// A small generator: the same seed tells the same story.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

fn tell(seed: u64, steps: usize) -> Vec<Record> {
    let mut dice = Dice(seed);
    let on_failed = if dice.roll(2) == 0 { OnFailed::Bisect } else { OnFailed::Continue };
    let bounds = Policy { max_events: 3, max_interrupts: 2, backoff_base_ms: 0, on_failed, ..policy() };
    let mut story =
        Story::new(Policy { during_run: DuringRun::Gate, retry_with: RetryWith::Newer, ..bounds });
    let mut gave_way: BTreeMap<u64, u32> = BTreeMap::new();
    let mut releases: BTreeMap<u64, u32> = BTreeMap::new();
    let mut last_gave_way: BTreeMap<u64, bool> = BTreeMap::new();
    let mut frozen: Vec<u64> = Vec::new();
    let mut sent = 0;
    for _ in 0..steps {
        story.now += 10;
        let lane = ["a", "b", "c"][usize::try_from(dice.roll(3)).unwrap()];
        let now = story.now_in(lane);
        let running = now.front.is_some_and(|(_, state)| state == State::Running);
        sent += 1;
        let id = format!("e{sent}");
        match dice.roll(10) {
            0..=2 => drop(story.append(lane, &id)),
            3 => {
                let call = story.ask(Story::append_op(lane, &id));
                match dice.roll(4) {
                    0 => drop(story.store(lane, &id)),
                    1 => {}
                    2 => {
                        story.store(lane, &id);
                        story.duplicate(lane, &id);
                    }
                    _ => story.records.push(Record::fail(1, call, Refusal::Unavailable)),
                }
            }
            4 if !running && now.front.is_none() && now.buffered > 0 && dice.roll(4) == 0 => {
                let change = ["cancelled", "dropped", "purged"][usize::try_from(dice.roll(3)).unwrap()];
                let count = if change == "cancelled" { now.buffered } else { 1 };
                story.discard(lane, change, count);
            }
            5 if dice.roll(3) == 0 => {
                if let Some(&run) = story.redrivable().first() {
                    if dice.roll(2) == 0 {
                        frozen.push(story.redrive(run));
                    } else {
                        story.redrive_as_new(run);
                    }
                }
            }
            _ if !running && (now.front.is_some() || now.buffered > 0) => {
                story.now += 100_000;
                let run = now.front.map(|(held, _)| held.run);
                let merge = run.is_some_and(|run| last_gave_way.get(&run) == Some(&true));
                if merge && now.buffered > 0 && now.events < 3 {
                    story.claim_merging(lane);
                } else if dice.roll(5) == 0 {
                    story.claim_unheard(lane);
                } else {
                    story.claim_by(lane, "w2", false, true);
                }
            }
            _ => {
                let Some((held, State::Running)) = now.front else { continue };
                let half =
                    story.audit.iter().any(|a| a.run == Some(held.run) && a.change.as_str() == "split_off");
                let last = now.attempts >= 3 || half;
                last_gave_way.remove(&held.run);
                match dice.roll(9) {
                    0..=1 => story.succeed(held),
                    2 if !last => story.retry(held),
                    3 => fail(&mut story, &mut frozen, held, on_failed, now.events, now.held),
                    4 if *releases.entry(held.run).or_default() < 10 => {
                        *releases.entry(held.run).or_default() += 1;
                        story.settle(held, Verdict::Release, "released");
                    }
                    5 if !last => story.reclaim(held),
                    6 if !now.held => story.hold(held),
                    7 | 8
                        if !now.held
                            && now.buffered > 0
                            && now.events < 3
                            && !frozen.contains(&held.run)
                            && *gave_way.entry(held.run).or_default() < 2 =>
                    {
                        *gave_way.entry(held.run).or_default() += 1;
                        last_gave_way.insert(held.run, true);
                        story.settle(held, Verdict::Superseded, "superseded");
                    }
                    _ => {}
                }
            }
        }
    }
    story.end()
}

fn fail(
    story: &mut Story,
    frozen: &mut Vec<u64>,
    held: Held,
    on_failed: OnFailed,
    events: usize,
    frozen_by_hold: bool,
) {
    if on_failed == OnFailed::Bisect && events > 1 && !frozen_by_hold {
        frozen.extend(story.split(held));
    } else {
        story.settle(held, Verdict::Failed, "failed");
    }
}

#[test]
fn legal_stories_pass_whatever_happens_in_them() {
    let mut all = Sometimes::default();
    for seed in 0..600 {
        let told = tell(seed, 120);
        let summary = check(&told).unwrap_or_else(|violation| panic!("seed {seed}:\n{violation}"));
        all.add(&summary.sometimes);
    }
    for thing in
        [Thing::Redelivery, Thing::FiredMerge, Thing::FiredRedrive, Thing::RedrivenAsNew, Thing::LeftOver]
    {
        assert!(all.of(thing) > 20, "{thing:?} hardly ever happened: {all:?}");
    }
    for thing in [Thing::UnknownAppendHappened, Thing::UnknownAppendDidNot, Thing::UnknownClaimHappened] {
        assert!(all.of(thing) > 20, "{thing:?} hardly ever happened: {all:?}");
    }
}

/// One thing is changed at random. Every one of these lies must be found, in every story that can hold it.
#[test]
fn no_lie_passes() {
    let mut found: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..300 {
        let told = tell(seed, 120);
        passes(&told);
        for (name, lie) in lies() {
            let mut spoilt = told.clone();
            let mut dice = Dice(seed);
            if lie(&mut spoilt, &mut dice) {
                *found.entry(name).or_default() += 1;
                assert!(check(&spoilt).is_err(), "seed {seed}: {name} was not noticed");
            }
        }
    }
    assert_eq!(found.len(), lies().len(), "each lie was told at least once: {found:?}");
}

type Lie = fn(&mut Vec<Record>, &mut Dice) -> bool;

fn lies() -> Vec<(&'static str, Lie)> {
    fn pick(dice: &mut Dice, len: usize) -> usize {
        usize::try_from(dice.roll(len as u64)).unwrap()
    }
    vec![
        ("an event is missing", |h, dice| {
            let acknowledged: Vec<Name> = h
                .iter()
                .filter_map(|r| match &r.answer {
                    Some(Answer::Appended { receipts }) => Some(receipts[0].id.clone()),
                    _ => None,
                })
                .collect();
            if acknowledged.is_empty() {
                return false;
            }
            let lost = acknowledged[pick(dice, acknowledged.len())].clone();
            dump_of(h).events.retain(|e| e.id != lost);
            true
        }),
        ("an event is elsewhere", |h, dice| {
            let n = dump_of(h).events.len();
            if n == 0 {
                return false;
            }
            let event = &mut dump_of(h).events[pick(dice, n)];
            event.place = if event.place == Place::Dead { Place::Succeeded } else { Place::Dead };
            true
        }),
        ("a record of the trail is missing", |h, dice| {
            let n = dump_of(h).audit.len();
            if n == 0 {
                return false;
            }
            dump_of(h).audit.remove(pick(dice, n));
            true
        }),
        ("a payload is changed on the way", |h, dice| {
            let n = h.iter().filter(|r| matches!(r.answer, Some(Answer::Claimed { .. }))).count();
            if n == 0 {
                return false;
            }
            claim_of(h, pick(dice, n)).events[0].hash += 1;
            true
        }),
        ("an event is left out of a batch", |h, dice| {
            let n = h.iter().filter(|r| matches!(r.answer, Some(Answer::Claimed { .. }))).count();
            if n == 0 {
                return false;
            }
            claim_of(h, pick(dice, n)).events.remove(0);
            true
        }),
        ("a counter is wrong", |h, _| {
            let totals = &mut dump_of(h).queues[0];
            (totals.accepted, totals.succeeded) = (totals.accepted + 1, totals.succeeded + 1);
            true
        }),
        ("a claim counts no attempt", |h, dice| {
            let n = dump_of(h).audit.iter().filter(|a| a.change.as_str() == "claimed").count();
            if n == 0 {
                return false;
            }
            audit_of(h, "claimed", pick(dice, n)).attempt -= 1;
            true
        }),
        ("a run is another in the tables", |h, dice| {
            let n = dump_of(h).runs.len();
            if n == 0 {
                return false;
            }
            dump_of(h).runs[pick(dice, n)].attempts += 1;
            true
        }),
        ("a settle was refused though it happened", |h, dice| {
            let settled: Vec<usize> =
                (0..h.len()).filter(|&i| matches!(h[i].answer, Some(Answer::Settled { .. }))).collect();
            if settled.is_empty() {
                return false;
            }
            let place = settled[pick(dice, settled.len())];
            h[place] = Record::fail(h[place].process, h[place].call, Refusal::Stale);
            true
        }),
    ]
}
