//! The databases of a world: one store in memory, or several behind the shipped `ManyStore`.
//!
//! Over several, a call of a process is a journey: the shipped code asks one database after the other, and each of these questions
//! and answers has a moment of its own (`link.rs`). Every worker process has a store of its own over the same databases, as if it had
//! opened the list; pull workers, senders and operators share that of the server. A process that dies leaves its journey where it
//! is. A question that is on its way arrives all the same.
//!
//! What is looked at from outside (`dump.rs`, `closing.rs`) is read through a store that has no network before it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use quell_core::clock::Clock;
use quell_core::error::ErrorKind;
use quell_core::event::{LaneKey, QueueName};
use quell_core::memory::Snapshot;
use quell_core::store::{AppendRequest, Control, ControlAction, Store};
use quell_store_many::{ManyStore, Map, RELAY};

use crate::call::{MakeStore, Reply, Request, Subject, ready};
use crate::chance::Chance;
use crate::clock::{Ahead, Moment, StoreClock};
use crate::governed;
use crate::link::{Hop, Link, News, Wires};
use crate::network::Way;
use crate::plan::{DatabaseShape, Trouble};
use crate::seen::Sight;
use crate::travel::Effect;
use crate::world::{Gate, What, Who, World};

pub(crate) struct Databases {
    members: Vec<Arc<dyn Subject>>,
    clocks: Vec<Arc<dyn Clock>>,
    several: Option<Several>,
}

/// What there is only where there are several.
struct Several {
    map: Map,
    links: Vec<Arc<dyn Store>>,
    wires: Arc<Wires>,
    /// By worker process and life.
    opened: BTreeMap<(usize, u32), Arc<ManyStore>>,
    server: Arc<ManyStore>,
    /// How often the server was started.
    servers: u32,
    troubles: Vec<DatabaseTrouble>,
}

/// A trouble of one database while it lasts.
pub(crate) struct DatabaseTrouble {
    pub(crate) item: usize,
    pub(crate) database: usize,
    /// Of this process alone.
    pub(crate) node: Option<usize>,
    pub(crate) kind: Trouble,
    pub(crate) percent: u64,
    pub(crate) until: Moment,
}

/// A call to several databases that is under way.
pub(crate) struct Journey {
    future: Pin<Box<dyn Future<Output = Reply> + Send>>,
    /// What its caller hears when whoever asks the databases is gone.
    failed: Reply,
    erases: Option<LaneKey>,
    sweeps: bool,
    /// The server that asks is gone: it asks nothing more.
    pub(crate) cut: bool,
}

/// What one database has to do with a request.
pub(crate) struct Part {
    pub(crate) database: usize,
    pub(crate) told: Request,
    /// The places of its events in an append.
    pub(crate) places: Vec<usize>,
}

impl Databases {
    /// The databases, and the store that they are together.
    pub(crate) fn new(
        shape: &[DatabaseShape],
        clock: &Arc<StoreClock>,
        make: &MakeStore,
    ) -> (Databases, Arc<dyn Store>) {
        if shape.len() == 1 {
            let only = make(clock.clone());
            let databases =
                Databases { members: vec![only.clone()], clocks: vec![clock.clone()], several: None };
            return (databases, only);
        }
        let ahead = |one: &DatabaseShape| -> Arc<dyn Clock> {
            Arc::new(Ahead { clock: clock.clone(), by: one.ahead })
        };
        let clocks: Vec<Arc<dyn Clock>> = shape.iter().map(ahead).collect();
        let members: Vec<Arc<dyn Subject>> = clocks.iter().map(|clock| make(clock.clone())).collect();
        let wholes = members.iter().map(|member| member.clone().whole()).collect();
        let made = ready(ManyStore::open(wholes, "simulated")).expect("new databases become a store");
        let map = made.map().clone();
        let wires = Arc::new(Wires::default());
        let link = |(database, store): (usize, &Arc<dyn Subject>)| -> Arc<dyn Store> {
            Arc::new(Link { database, store: store.clone(), wires: wires.clone() })
        };
        let links: Vec<Arc<dyn Store>> = members.iter().enumerate().map(link).collect();
        let direct = members.iter().map(|member| member.clone() as Arc<dyn Store>).collect();
        let outside = ManyStore::over(direct, map.clone(), "outside");
        let server = ManyStore::over(links.clone(), map.clone(), "server 0");
        let several =
            Several { map, links, wires, opened: BTreeMap::new(), server, servers: 0, troubles: Vec::new() };
        (Databases { members, clocks, several: Some(several) }, outside)
    }

    pub(crate) fn are_several(&self) -> bool {
        self.several.is_some()
    }

    /// Of all databases at one moment.
    pub(crate) fn backup(&self) -> Vec<Snapshot> {
        self.members.iter().map(|member| member.backup()).collect()
    }

    /// All of them, to one and the same moment: a backup of one alone would lose what was relayed to it since.
    pub(crate) fn restore(&self, backup: &[Snapshot]) {
        for (member, backup) in self.members.iter().zip(backup) {
            member.restore(backup);
        }
    }

    /// Which of them has what, if there are several.
    pub(crate) fn map(&self) -> Option<&Map> {
        self.several.as_ref().map(|several| &several.map)
    }

    /// How a request is told in the history: an append as one for each database, because it is all or nothing there, and a hand on a
    /// source, too, because each has its own part of it. Everything else is told as it is asked.
    pub(crate) fn parts(&self, request: &Request) -> Option<Vec<Part>> {
        let Several { map, .. } = self.several.as_ref()?;
        let many = self.members.len();
        match request {
            Request::Append(append) => {
                let mut parts: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
                for (place, event) in append.events.iter().enumerate() {
                    parts.entry(map.home(&event.lane)).or_default().push(place);
                }
                let part = |(database, places): (usize, Vec<usize>)| {
                    let events = places.iter().map(|place| append.events[*place].clone()).collect();
                    let told = Request::Append(AppendRequest { events, repeat: append.repeat });
                    Part { database, told, places }
                };
                Some(parts.into_iter().map(part).collect())
            }
            Request::Control { control, action } => {
                let part = |database: usize| {
                    let action = governed::hand_in(action, database, many)?;
                    let told = Request::Control { control: control.clone(), action };
                    Some(Part { database, told, places: Vec::new() })
                };
                (0..many).map(part).collect()
            }
            _ => None,
        }
    }

    pub(crate) fn trouble(&mut self, trouble: DatabaseTrouble) {
        if let Some(several) = &mut self.several {
            several.troubles.push(trouble);
        }
    }

    pub(crate) fn heal(&mut self) {
        if let Some(several) = &mut self.several {
            several.troubles.clear();
        }
    }

    /// What the server remembers of its databases is gone with it.
    pub(crate) fn restart_server(&mut self) {
        if let Some(several) = &mut self.several {
            several.servers += 1;
            let word = format!("server {}", several.servers);
            several.server = ManyStore::over(several.links.clone(), several.map.clone(), &word);
        }
    }
}

impl Several {
    /// The store of whoever asks.
    fn store_of(&mut self, asks: Option<(usize, u32)>) -> Arc<ManyStore> {
        let Some((node, life)) = asks else { return self.server.clone() };
        let opened =
            || ManyStore::over(self.links.clone(), self.map.clone(), &format!("worker {node}, life {life}"));
        self.opened.entry((node, life)).or_insert_with(opened).clone()
    }
}

/// The queue in which events wait for another database: the store's own affair, and no part of a history.
pub(crate) fn is_relay(queue: &QueueName) -> bool {
    queue.as_str() == RELAY
}

impl World {
    /// The worker process that asks the databases itself; nothing when the server does.
    fn asks_itself(&self, who: Who) -> Option<(usize, u32)> {
        match who {
            Who::Part { node, life, .. } if !self.nodes[node].is_puller() => Some((node, life)),
            _ => None,
        }
    }

    /// A call to several databases begins.
    pub(crate) fn set_out(&mut self, id: usize, who: Who, request: Request) {
        let asks = self.asks_itself(who);
        let Some(several) = &mut self.databases.several else { return };
        let store = several.store_of(asks);
        let erases = match &request {
            Request::Control { control: Control { action: ControlAction::EraseLane(lane), .. }, .. } => {
                Some(lane.clone())
            }
            _ => None,
        };
        let journey = Journey {
            failed: request.failed(ErrorKind::Unknown),
            sweeps: matches!(request, Request::Sweep(_)),
            erases,
            cut: false,
            future: Box::pin(async move { request.perform(&*store).await }),
        };
        self.calls[id].journey = Some(journey);
        self.go_on(id);
    }

    /// Lets a call do what it can do now.
    fn go_on(&mut self, id: usize) {
        let Some(mut journey) = self.calls[id].journey.take() else { return };
        let Some(several) = &self.databases.several else { return };
        let wires = several.wires.clone();
        wires.poll_for(id);
        let polled = journey.future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        self.calls[id].journey = Some(journey);
        for news in wires.news() {
            match news {
                News::Left(number) => self.hop_leaves(number, wires.hop(number)),
                News::Answered(number) => self.hop_took_effect(number, wires.hop(number)),
            }
        }
        if let Poll::Ready(reply) = polled {
            self.calls[id].journey = None;
            self.took_effect(id, reply);
        }
    }

    fn hop_leaves(&mut self, number: usize, hop: Hop) {
        let mut there = Chance::keyed(self.plan.seed, [12, number as u64, 0]).below(4);
        let mut way = Way::Open;
        let who = self.calls[hop.call].who;
        let asks = self.asks_itself(who).map(|(node, _)| node);
        let troubles = self.databases.several.iter().flat_map(|several| &several.troubles);
        for trouble in troubles.filter(|t| t.database == hop.database && self.now < t.until) {
            let mut chance = Chance::keyed(self.plan.seed, [13, trouble.item as u64, number as u64]);
            if trouble.node.is_some_and(|node| asks != Some(node)) || !chance.percent(trouble.percent) {
                continue;
            }
            match trouble.kind {
                Trouble::Refused => way = Way::Refused,
                Trouble::LostBefore => way = Way::Lost,
                Trouble::LostAfter => way = Way::AnswerLost,
                Trouble::Slow => there += chance.below(600),
            }
        }
        let sight = match way {
            Way::Open => None,
            Way::Refused => Some(Sight::DatabaseRefused),
            Way::Lost => Some(Sight::DatabaseQuestionLost),
            Way::AnswerLost => Some(Sight::DatabaseAnswerLost),
        };
        sight.into_iter().for_each(|sight| self.seen.saw(sight));
        self.later(self.now + there, What::Hop { number, way });
    }

    /// A question arrives at its database, or its sender learns that it does not.
    pub(crate) fn hop_arrives(&mut self, number: usize, way: Way) {
        let Some(several) = &self.databases.several else { return };
        let wires = several.wires.clone();
        let call = wires.hop(number).call;
        if matches!(way, Way::Refused | Way::Lost) {
            if self.may_go_on(call, What::Hop { number, way }) {
                wires.arrive(number, way);
                self.go_on(call);
            }
            return;
        }
        // It happens at the database, whatever has become of the process.
        if let Some(lane) = self.calls[call].journey.as_ref().and_then(|journey| journey.erases.clone()) {
            self.look_before_erasure(&lane);
        }
        wires.arrive(number, way);
        self.go_on(call);
    }

    fn hop_took_effect(&mut self, number: usize, hop: Hop) {
        let at = self.databases.clocks[hop.database].now().as_millis();
        if let Some(several) = &self.databases.several {
            several.wires.met().iter().for_each(|(number, lane)| self.recorder.meet(*number, lane));
        }
        let call = &mut self.calls[hop.call];
        let erased = call.journey.as_ref().and_then(|journey| journey.erases.as_ref());
        if let Some(lane) = erased.filter(|_| hop.noted.changed) {
            self.recorder.erase(at, lane);
        }
        call.effects.push(Effect { database: hop.database, at, changed: hop.noted.changed });
        self.audit_removed |= hop.noted.removed_audit;
        if hop.appends && call.journey.as_ref().is_some_and(|journey| journey.sweeps) {
            self.seen.saw(Sight::RelayedBySweep);
        }
        let back = Chance::keyed(self.plan.seed, [12, number as u64, 1]).below(4);
        self.later(self.now + back, What::HopBack { number });
        self.ring();
    }

    /// The answer of a database arrives.
    pub(crate) fn hop_comes_back(&mut self, number: usize) {
        let Some(several) = &self.databases.several else { return };
        let wires = several.wires.clone();
        let call = wires.hop(number).call;
        if self.may_go_on(call, What::HopBack { number }) {
            wires.come_back(number);
            self.go_on(call);
        }
    }

    /// Whether the process that asks is there to hear; if it stands still it hears later, and if it is gone it has asked its last.
    fn may_go_on(&mut self, call: usize, heard: What) -> bool {
        let who = self.calls[call].who;
        let Some(journey) = &self.calls[call].journey else { return false };
        let between = !self.calls[call].effects.is_empty();
        if journey.cut {
            if between {
                self.seen.saw(Sight::ServerGoneBetween);
            }
            let failed = self.calls[call].journey.take().map(|journey| journey.failed);
            self.calls[call].reply = failed;
            self.later(self.now + 1, What::Answer(call));
            return false;
        }
        let gate = if self.asks_itself(who).is_some() { self.gate(who) } else { Gate::Open };
        match gate {
            Gate::Open => true,
            Gate::Later(at) => {
                self.later(at, heard);
                false
            }
            Gate::Gone => {
                if between {
                    self.seen.saw(Sight::GoneBetween);
                }
                self.calls[call].journey = None;
                self.open_calls -= 1;
                false
            }
        }
    }
}
