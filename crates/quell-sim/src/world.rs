//! The world of a schedule: one queue of things to come, ordered by simulated time, ties broken by the seed.
//!
//! Every call to the store is three moments: it leaves (and is written down), it takes effect, its answer arrives (`travel.rs`). In
//! between anything may happen: the process dies, the answer is lost, somebody else is faster. Nothing here decides
//! what a worker does; that is the shipped logic, performed in `node.rs`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use quell_check::history::{Name, Op};
use quell_core::batch::RunId;
use quell_core::memory::Snapshot;
use quell_core::store::Store;

use crate::call::{MakeStore, Request};
use crate::chance::Chance;
use crate::clock::{Moment, StoreClock, StoreTime};
use crate::databases::{DatabaseTrouble, Databases};
use crate::handler::Handler;
use crate::network::{Network, Way};
use crate::node::Node;
use crate::plan::{Fault, Habit, Item, Plan, QueuePolicy, Trouble};
use crate::record::{NOBODY, Recorder};
use crate::seen::{Seen, Sight};
use crate::sink::Sink;
use crate::travel::Call;

/// Whose call it is, or whose moment has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// A sender's or operator's item of the plan.
    Item(usize),
    /// Part of a process; gone when the process is.
    Part { node: usize, life: u32, part: Part },
    /// The operator who puts things right in the end.
    Closing,
    /// A request of this process that somebody on the way has repeated: nobody waits for its answer.
    Echo { node: usize },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Loop,
    Sweeper,
    /// The driver of a run: its renewals.
    Renewal(u64),
    /// The driver of a run: its settlement, its timer.
    Driver(u64),
    /// The handler of a run.
    Handler(u64),
    /// A puller's claims.
    Claims,
}

/// Something to come.
#[derive(Debug)]
pub(crate) enum What {
    /// An item of the plan has its moment.
    Item(usize),
    /// A call takes effect.
    Effect(usize),
    /// Its answer arrives.
    Answer(usize),
    /// A question to one of several databases arrives, or does not.
    Hop {
        number: usize,
        way: Way,
    },
    /// The answer of one of several databases arrives.
    HopBack {
        number: usize,
    },
    /// A timer that was wished for; an older wish than the latest is nothing.
    Timer {
        who: Who,
        wish: u32,
    },
    /// The store's bell is heard.
    Bell {
        node: usize,
        life: u32,
    },
    /// A handler that was told to stop has stopped.
    Stopped {
        node: usize,
        life: u32,
        run: u64,
    },
    /// A run is over for its worker.
    Ended {
        node: usize,
        life: u32,
        run: u64,
    },
    Restart {
        node: usize,
        life: u32,
    },
    /// The faults are over.
    Heal,
    /// Is everything done?
    Look,
}

struct Entry {
    at: Moment,
    tie: u64,
    order: u64,
    what: What,
}

impl Entry {
    fn key(&self) -> (Moment, u64, u64) {
        (self.at, self.tie, self.order)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// A trouble of the network while it lasts.
pub(crate) struct Weather {
    pub(crate) item: usize,
    pub(crate) kind: Trouble,
    pub(crate) percent: u64,
    pub(crate) until: Moment,
}

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) policies: Vec<QueuePolicy>,
    /// By the newer settings, which some processes have.
    pub(crate) newer: Vec<QueuePolicy>,
    pub(crate) now: Moment,
    /// All databases, as they are seen from outside.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) databases: Databases,
    pub(crate) clock: Arc<StoreClock>,
    pub(crate) time: StoreTime,
    pub(crate) nodes: Vec<Node>,
    pub(crate) recorder: Recorder,
    pub(crate) seen: Seen,
    pub(crate) sink: Sink,
    pub(crate) healed: bool,
    pub(crate) tries: Vec<u32>,
    /// The retention has removed audit records.
    pub(crate) audit_removed: bool,
    pub(crate) open_calls: usize,
    pub(crate) done: bool,
    pub(crate) stuck: Option<String>,
    pub(crate) calm_since: Option<Moment>,
    pub(crate) calls: Vec<Call>,
    heap: BinaryHeap<Reverse<Entry>>,
    order: u64,
    drawn: Vec<u64>,
    pub(crate) weather: Vec<Weather>,
    deaf_until: Moment,
    pub(crate) network: Network,
    pub(crate) backups: Vec<(Name, Vec<Snapshot>)>,
    habits: [u64; Habit::ALL.len()],
    /// How often each lane was handed to a handler.
    pub(crate) claims_of: BTreeMap<Name, u64>,
    /// Whether the last attempt of a run was under the newer settings.
    pub(crate) versions: BTreeMap<RunId, bool>,
}

impl World {
    pub(crate) fn new(plan: Plan, make: &MakeStore) -> World {
        let clock = Arc::new(StoreClock::new());
        let (databases, store) = Databases::new(&plan.shape.databases, &clock, make);
        let (policies, newer) = (plan.policies(), plan.newer_policies());
        let mut habits = [0; Habit::ALL.len()];
        for item in &plan.items {
            if let Item::Habit { habit, percent } = item {
                habits[*habit as usize] = *percent;
            }
        }
        let items = plan.items.len();
        let mut world = World {
            policies,
            newer,
            now: 0,
            store,
            databases,
            clock,
            time: StoreTime::default(),
            nodes: Vec::new(),
            recorder: Recorder::default(),
            seen: Seen::default(),
            sink: Sink::default(),
            healed: false,
            tries: vec![0; items],
            audit_removed: false,
            open_calls: 0,
            done: false,
            stuck: None,
            calm_since: None,
            calls: Vec::new(),
            heap: BinaryHeap::new(),
            order: 0,
            drawn: vec![0; 64],
            weather: Vec::new(),
            deaf_until: 0,
            network: Network::default(),
            backups: Vec::new(),
            habits,
            claims_of: BTreeMap::new(),
            versions: BTreeMap::new(),
            plan,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        let shared = self.plan.shape.sources.iter().filter(|s| s.rules.shared).map(|s| s.name.clone());
        self.recorder.shared = shared.collect();
        if self.databases.are_several() {
            self.seen.saw(Sight::SeveralDatabases);
            self.recorder.map = self.databases.map().cloned();
        }
        for (lane, queue) in &self.plan.shape.lanes {
            self.recorder.know(lane, self.policies[*queue].append.source.as_ref());
        }
        for (policy, newer) in self.policies.iter().zip(&self.newer) {
            self.recorder.fact(NOBODY, Op::Policy(Box::new(policy.check.clone())));
            // With two policies the checker asks only what holds under any.
            if newer.check != policy.check {
                self.recorder.fact(NOBODY, Op::Policy(Box::new(newer.check.clone())));
            }
        }
        for source in 0..self.plan.shape.sources.len() {
            let (action, told) = self.declare(source, None);
            self.put_right(action, told);
        }
        let last = self.plan.shape.span.saturating_sub(1);
        for place in 0..self.plan.items.len() {
            let at = match &self.plan.items[place] {
                Item::Worker(w) => {
                    self.nodes.push(Node::worker(w.clone()));
                    continue;
                }
                Item::Puller(p) => {
                    self.nodes.push(Node::puller(p.clone()));
                    continue;
                }
                Item::Absent { node } => {
                    if *node {
                        self.nodes.push(Node::absent());
                    }
                    continue;
                }
                Item::Rule { .. } | Item::Newer { .. } | Item::Habit { .. } => continue,
                Item::Send { at, .. } | Item::Hand { at, .. } | Item::Fault { at, .. } => *at,
            };
            self.later(at.min(last), What::Item(place));
        }
        for node in 0..self.nodes.len() {
            self.start(node);
        }
        self.later(self.plan.shape.span, What::Heal);
    }

    /// Runs until everything is done, or stuck.
    pub(crate) fn run(&mut self) {
        while !self.done {
            let Some(Reverse(entry)) = self.heap.pop() else { break };
            self.now = entry.at;
            self.time.show(self.now, &self.clock);
            self.happen(entry.what);
        }
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Item(item) => self.item(item),
            What::Effect(call) => self.effect(call),
            What::Hop { number, way } => self.hop_arrives(number, way),
            What::HopBack { number } => self.hop_comes_back(number),
            What::Answer(call) => {
                let who = self.calls[call].who;
                match self.gate(who) {
                    Gate::Open => self.answer(call),
                    Gate::Later(at) => self.later(at, What::Answer(call)),
                    Gate::Gone => self.open_calls -= 1,
                }
            }
            What::Timer { who, wish } => match self.gate(who) {
                Gate::Open => self.timer(who, wish),
                Gate::Later(at) => self.later(at, What::Timer { who, wish }),
                Gate::Gone => {}
            },
            What::Bell { node, life } => match self.gate(Who::Part { node, life, part: Part::Loop }) {
                Gate::Open => self.bell(node),
                Gate::Later(at) => self.later(at, What::Bell { node, life }),
                Gate::Gone => {}
            },
            What::Stopped { node, life, run } => {
                match self.gate(Who::Part { node, life, part: Part::Handler(run) }) {
                    Gate::Open => self.stopped(node, run),
                    Gate::Later(at) => self.later(at, What::Stopped { node, life, run }),
                    Gate::Gone => {}
                }
            }
            What::Ended { node, life, run } => match self.gate(Who::Part { node, life, part: Part::Loop }) {
                Gate::Open => self.run_ended(node, run),
                Gate::Later(at) => self.later(at, What::Ended { node, life, run }),
                Gate::Gone => {}
            },
            What::Restart { node, life } => {
                if self.nodes[node].life == life {
                    self.start(node);
                }
            }
            What::Heal => self.heal(),
            What::Look => self.look(),
        }
    }

    pub(crate) fn later(&mut self, at: Moment, what: What) {
        self.order += 1;
        let tie = Chance::keyed(self.plan.seed, [1, self.order, 0]).number();
        self.heap.push(Reverse(Entry { at: at.max(self.now), tie, order: self.order, what }));
    }

    /// Whether a part of a process can be reached: not when its process is another one by now, and only later while it
    /// stands still.
    pub(crate) fn gate(&self, who: Who) -> Gate {
        let Who::Part { node, life, .. } = who else { return Gate::Open };
        let node = &self.nodes[node];
        match node.paused_until {
            _ if node.life != life || !node.is_up() => Gate::Gone,
            Some(until) if self.now < until => Gate::Later(until),
            _ => Gate::Open,
        }
    }

    pub(crate) fn process(who: Who) -> u64 {
        match who {
            Who::Part { node, .. } => 1 + node as u64,
            Who::Item(item) => 100 + item as u64,
            Who::Closing => 99,
            // A stream and a process of its own: it is asked while its process asks something else.
            Who::Echo { node } => 50 + node as u64,
        }
    }

    /// A generator for the next decision about this actor.
    pub(crate) fn chance(&mut self, who: Who) -> Chance {
        let process = Self::process(who);
        let place = usize::try_from(process).unwrap_or(0);
        if place >= self.drawn.len() {
            self.drawn.resize(place + 1, 0);
        }
        self.drawn[place] += 1;
        Chance::keyed(self.plan.seed, [2, process, self.drawn[place]])
    }

    /// How often handlers do this, in percent; after the faults they behave.
    pub(crate) fn habit(&self, habit: Habit) -> u64 {
        if self.healed { 0 } else { self.habits[habit as usize] }
    }

    pub(crate) fn store_now(&self) -> i64 {
        quell_core::clock::Clock::now(&*self.clock).as_millis()
    }

    /// Lets every listening process hear the store's bell.
    pub(crate) fn ring(&mut self) {
        for node in 0..self.nodes.len() {
            self.listen(node);
        }
    }

    pub(crate) fn listen(&mut self, node: usize) {
        if !self.nodes[node].hears() {
            return;
        }
        if self.now < self.deaf_until {
            self.seen.saw(Sight::BellUnheard);
            return self.nodes[node].misses();
        }
        let (life, at) = (self.nodes[node].life, self.now + 1);
        self.later(at, What::Bell { node, life });
    }

    pub(crate) fn fault(&mut self, item: usize, fault: Fault) {
        match fault {
            Fault::Crash { node, down } => self.crash(node, down),
            Fault::Pause { node, length, frozen } => self.pause(node, length, frozen),
            Fault::Shutdown { node, down, twice } => self.shut_down(node, down, twice),
            Fault::WallJump { node, by } => {
                self.seen.saw(Sight::WallJumped);
                self.nodes[node].wall_jumps += by;
            }
            Fault::StoreForward { by } => {
                self.seen.saw(Sight::StoreClockJumped);
                self.time.jump(by);
            }
            Fault::StoreStops { length } => {
                self.seen.saw(Sight::StoreClockStopped);
                self.time.stop(self.now + length);
            }
            Fault::Trouble { kind, length, percent } => {
                let until = self.now + length;
                if kind == Trouble::Slow {
                    self.seen.saw(Sight::SlowNetwork);
                }
                self.weather.push(Weather { item, kind, percent, until });
            }
            Fault::Cut { node, length, answers_only } => {
                self.seen.saw(if answers_only { Sight::AnswersCut } else { Sight::Cut });
                self.network.cut(node, self.now + length, answers_only);
            }
            Fault::ServerGone { length } => {
                self.seen.saw(Sight::ServerGone);
                self.network.lose_server(self.now + length);
                self.lose_answers();
            }
            Fault::Echo { length, percent } => self.network.repeat(item, self.now + length, percent),
            Fault::Upgrade { node, down } => self.upgrade(node, down),
            Fault::Database { database, node, kind, length, percent } => {
                let until = self.now + length;
                self.databases.trouble(DatabaseTrouble { item, database, node, kind, percent, until });
            }
            Fault::Deafness { length } => self.deaf_until = self.now + length,
            Fault::Backup => {
                let name = Name::from(format!("b{}", self.backups.len()));
                self.ask(Who::Item(item), Request::Backup(name));
            }
            Fault::Restore => {
                if let Some((name, backup)) = self.backups.last() {
                    self.seen.saw(Sight::Restored);
                    self.databases.restore(backup);
                    self.recorder.fact(NOBODY, Op::Restore { backup: name.clone() });
                    self.ring();
                }
            }
        }
    }

    /// The network and the clocks are well again.
    pub(crate) fn clear_weather(&mut self) {
        self.weather.clear();
        self.network = Network::default();
        self.databases.heal();
        self.deaf_until = 0;
        self.time.heal();
    }

    pub(crate) fn handler(&mut self, node: usize, run: u64) -> Option<&mut Handler> {
        self.nodes[node].handlers.get_mut(&run)
    }
}

pub(crate) enum Gate {
    Open,
    Later(Moment),
    Gone,
}
