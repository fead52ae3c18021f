//! Draws a plan: swarm testing, so each schedule has its own few kinds of rules, habits, operations and faults.
//!
//! A schedule with everything switched on at once hides more than it shows: pauses keep interrupts from happening,
//! crashes keep batches from being merged. So what exists at all is drawn first, and only then how often.

use std::time::Duration;

use quell_core::event::{Key, QueueName, Tenant};
use quell_core::lane::{DuringRun, OnFailed};
use quell_core::window::WindowPolicy;

use super::items::Items;
use super::{
    DatabaseShape, Habit, Item, Plan, PullerPlan, QueueShape, Rule, Shape, WorkerPlan, databases, network,
    sources, versions,
};
use crate::chance::Chance;

const QUEUES: [&str; 2] = ["chat", "jobs"];
const KEYS: [&str; 4] = ["ada", "bob", "eve", "joe"];

pub(super) fn plan(seed: u64) -> Plan {
    let mut chance = Chance::seeded(seed);
    let c = &mut chance;
    let mut shape = shape(c);
    databases::shape(seed, &mut shape);
    let queues = shape.queues.len();
    let mut items = Vec::new();
    let mut workers = c.between(0, 2);
    let pullers = if workers == 0 { c.between(1, 2) } else { c.below(3) };
    if workers == 0 && pullers == 0 {
        workers = 1;
    }
    for place in 0..workers {
        items.push(Item::Worker(worker(c, queues, place == 0 && !shape.closer)));
    }
    for _ in 0..pullers {
        items.push(Item::Puller(PullerPlan { poll: c.between(20, 400), max: c.index(3) + 1 }));
    }
    for queue in 0..queues - 1 {
        rules(c, queue, &mut items);
    }
    habits(c, &mut items);
    let nodes = items.iter().filter(|i| matches!(i, Item::Worker(_) | Item::Puller(_))).count();
    let mut more = Items::new(c, &shape, nodes);
    more.sends();
    more.hands();
    more.faults();
    items.append(&mut more.items);
    sources::add(seed, &mut shape, &mut items);
    versions::add(seed, &shape, nodes, &mut items);
    network::add(seed, &shape, &mut items);
    databases::add(seed, &shape, &mut items);
    Plan { seed, shape, items }
}

fn shape(c: &mut Chance) -> Shape {
    let count = c.index(2) + 1;
    let name = |text: &str| QueueName::new(text).expect("a name of ours");
    let acme = c.percent(15);
    let mut queues: Vec<QueueShape> = QUEUES[..count]
        .iter()
        .map(|queue| QueueShape { name: name(queue), tenant: Tenant::none() })
        .collect();
    if let Some(last) = queues.last_mut().filter(|_| acme) {
        last.tenant = Tenant::new("acme").expect("a name of ours");
        // Two tenants with a queue of the same name share nothing, not even a counter.
        if c.percent(50) {
            last.name = name(QUEUES[0]);
        }
    }
    let tenant = queues[0].tenant.clone();
    queues.push(QueueShape { name: name("notices"), tenant });
    let keys = c.index(3) + 1;
    let mut lanes = Vec::new();
    for (place, queue) in queues.iter().enumerate() {
        for key in &KEYS[..keys] {
            lanes.push((queue.lane(&Key::new(key).expect("a key of ours")), place));
        }
    }
    Shape {
        queues,
        sources: Vec::new(),
        lanes,
        span: c.between(500, 8_000),
        resume_all: c.percent(70),
        closer: c.percent(50),
        retention: c.percent(8).then(|| Duration::from_millis(c.between(500, 4_000))),
        sink: c.percent(30),
        databases: vec![DatabaseShape::default()],
    }
}

fn worker(c: &mut Chance, queues: usize, all: bool) -> WorkerPlan {
    let some = !all && c.percent(20);
    WorkerPlan {
        queues: if some { vec![c.index(queues)] } else { Vec::new() },
        concurrency: c.index(4) + 1,
        skew: if c.percent(30) { i64::try_from(c.below(40_000)).unwrap_or(0) - 20_000 } else { 0 },
        idle_max: *c.pick(&[500, 1_000, 5_000]),
        sweep_every: *c.pick(&[500, 2_000, 60_000]),
        error_wait: *c.pick(&[100, 500, 2_000]),
        grace: *c.pick(&[0, 200, 2_000]),
    }
}

pub(super) fn rules(c: &mut Chance, queue: usize, items: &mut Vec<Item>) {
    let mut add = |rule| items.push(Item::Rule { queue, rule });
    if c.percent(60) {
        add(Rule::Window(window(c)));
    }
    if c.percent(35) {
        add(Rule::MaxEvents(u32::try_from(c.between(1, 6)).unwrap_or(1)));
    }
    if c.percent(15) {
        add(Rule::MaxBytes(c.between(10, 120)));
    }
    if c.percent(50) {
        add(Rule::During(*c.pick(&[DuringRun::Interrupt, DuringRun::Gate])));
        if c.percent(40) {
            add(Rule::MaxInterrupts(u32::try_from(c.below(3)).unwrap_or(0)));
        }
    } else if c.percent(40) {
        add(Rule::RetryNewer);
    }
    if c.percent(60) {
        add(Rule::Attempts(u32::try_from(c.between(1, 5)).unwrap_or(1)));
    }
    if c.percent(60) {
        add(Rule::OnFailed(*c.pick(&[OnFailed::Block, OnFailed::Bisect, OnFailed::Bisect])));
    }
    if c.percent(70) {
        add(Rule::Lease(*c.pick(&[150, 300, 600, 2_000])));
    }
    if c.percent(10) {
        add(Rule::MaxRunning(u32::try_from(c.between(1, 2)).unwrap_or(1)));
    }
    if c.percent(15) {
        add(Rule::Notify { failed_only: c.percent(50) });
    }
    if c.percent(25) {
        add(Rule::LaneEvents(c.between(1, 8)));
        if c.percent(50) {
            add(Rule::DropOldest);
        }
    }
    if c.percent(15) {
        add(Rule::ContentDedupe);
    }
    if c.percent(50) {
        let base = c.between(1, 300);
        add(Rule::Backoff { base, cap: base + c.below(1_500), jitter: *c.pick(&[0.0, 0.1, 0.5]) });
    }
    if c.percent(20) {
        add(Rule::TimeLimit(c.between(50, 800)));
    }
    if c.percent(20) {
        add(Rule::StopGrace(c.between(1, 200)));
    }
    if c.percent(40) {
        add(Rule::OnErrorRetry);
    }
}

pub(super) fn window(c: &mut Chance) -> WindowPolicy {
    let ms = Duration::from_millis;
    match c.below(5) {
        0 => WindowPolicy::None,
        1 => WindowPolicy::Fixed { wait: ms(c.between(1, 800)) },
        _ => {
            let quiet = c.between(1, 500);
            WindowPolicy::Quiet { quiet: ms(quiet), max_wait: ms(quiet + c.below(1_500)) }
        }
    }
}

fn habits(c: &mut Chance, items: &mut Vec<Item>) {
    // Few at a time, but those often.
    let share = *c.pick(&[10, 25, 45]);
    for habit in Habit::ALL.into_iter().filter(|habit| !Habit::OF_SOURCES.contains(habit)) {
        if c.percent(share) {
            items.push(Item::Habit { habit, percent: c.between(5, 80) });
        }
    }
}
