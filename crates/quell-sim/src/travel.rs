//! How a call travels: it leaves and is written down, takes effect, and its answer arrives.
//!
//! In between anything may happen. Over one database the effect is a single step of the store; over several it is a journey of its
//! own (`databases.rs`).

use quell_core::error::ErrorKind;
use quell_core::store::{Control, ControlAction, Controlled};

use crate::call::{Reply, Request, ready};
use crate::chance::Chance;
use crate::databases::{Journey, Part};
use crate::network::Way;
use crate::plan::Trouble;
use crate::seen::Sight;
use crate::world::{What, Who, World};

/// A call on its way.
pub(crate) struct Call {
    pub(crate) who: Who,
    process: u64,
    told: Vec<Told>,
    request: Option<Request>,
    /// Lost on the way back, which takes so long.
    lost_after: bool,
    back: u64,
    pub(crate) reply: Option<Reply>,
    pub(crate) journey: Option<Journey>,
    pub(crate) effects: Vec<Effect>,
}

/// What a call did in one database, and when, by the clock there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effect {
    pub(crate) database: usize,
    pub(crate) at: i64,
    /// An operator's hand changed something.
    pub(crate) changed: bool,
}

/// How a call is told in the history: perhaps as one call for each of several databases, at the time of that one.
struct Told {
    number: u64,
    /// Where its question stands in the history.
    place: usize,
    /// The database whose part it tells; nothing where the first effect is the one that counts.
    database: Option<usize>,
    /// The places of the events that it tells; nothing for all of it.
    events: Vec<usize>,
}

impl Call {
    /// When it took effect, and what is answered, as far as it is told here.
    fn as_told(&self, nth: usize, reply: &Reply) -> (i64, Option<Reply>) {
        let told = &self.told[nth];
        let own = self.effects.iter().find(|effect| Some(effect.database) == told.database);
        let at = own.or(self.effects.first()).map_or(0, |effect| effect.at);
        let part = match reply {
            _ if reply.is_partly_done() => Some(reply.lost()),
            _ if told.database.is_none() => None,
            Reply::Append(_) => Some(reply.of_part(nth, &told.events)),
            // What changed in one database may have been so in another.
            Reply::Control(Ok(controlled)) => {
                let changed = own.is_some_and(|effect| effect.changed);
                Some(Reply::Control(Ok(Controlled { changed, ..*controlled })))
            }
            _ => None,
        };
        (at, part)
    }
}

impl World {
    /// Sends a question on its way.
    pub(crate) fn ask(&mut self, who: Who, request: Request) {
        if let Some(echo) = self.echo(who) {
            self.seen.saw(Sight::Echoed);
            self.send_out(echo, request.clone());
        }
        self.send_out(who, request);
    }

    fn send_out(&mut self, who: Who, request: Request) {
        let process = Self::process(who);
        let told = self.tell(process, &request);
        let mut chance = self.chance(who);
        let (mut there, mut back) = (chance.below(3), chance.below(3));
        let (mut refused, mut lost_before, mut lost_after) = (false, false, false);
        for weather in &self.weather {
            let mut chance = Chance::keyed(self.plan.seed, [3, weather.item as u64, chance.number()]);
            if self.now >= weather.until || !chance.percent(weather.percent) {
                continue;
            }
            match weather.kind {
                Trouble::Refused => refused = true,
                Trouble::LostBefore => lost_before = true,
                Trouble::LostAfter => lost_after = true,
                Trouble::Slow => {
                    there += chance.below(600);
                    back += chance.below(600);
                }
            }
        }
        match self.network.way(who, self.now, &self.nodes) {
            Way::Open => {}
            Way::Refused => refused = true,
            Way::Lost => lost_before = true,
            Way::AnswerLost => lost_after = true,
        }
        if matches!(who, Who::Echo { .. }) {
            // Later than the first one, as a repetition is, and answered to nobody.
            there += 5 + chance.below(400);
            lost_after = true;
        }
        let id = self.calls.len();
        let reply = if refused {
            self.seen.saw(Sight::CallRefused);
            Some(request.failed(ErrorKind::Unavailable))
        } else if lost_before {
            self.seen.saw(Sight::QuestionLost);
            Some(request.failed(ErrorKind::Unknown))
        } else {
            None
        };
        let answered = reply.is_some();
        let effects = if answered {
            vec![Effect { database: 0, at: self.store_now(), changed: false }]
        } else {
            Vec::new()
        };
        self.open_calls += 1;
        let request = Some(request);
        self.calls.push(Call {
            who,
            process,
            told,
            request,
            lost_after,
            back,
            reply,
            journey: None,
            effects,
        });
        if answered {
            self.later(self.now + there + back, What::Answer(id));
        } else {
            self.later(self.now + there, What::Effect(id));
        }
    }

    /// Writes the question down.
    fn tell(&mut self, process: u64, request: &Request) -> Vec<Told> {
        let Some(parts) = self.databases.parts(request) else {
            let place = self.recorder.records.len();
            let number = self.recorder.asked(process, request);
            return vec![Told { number, place, database: None, events: Vec::new() }];
        };
        if parts.len() > 1 && matches!(request, Request::Append(_)) {
            self.seen.saw(Sight::SendInParts);
        }
        let tell = |Part { database, told, places }| {
            let place = self.recorder.records.len();
            let number = self.recorder.asked(process, &told);
            Told { number, place, database: Some(database), events: places }
        };
        parts.into_iter().map(tell).collect()
    }

    pub(crate) fn effect(&mut self, id: usize) {
        let who = self.calls[id].who;
        let request = self.calls[id].request.take().expect("a call takes effect once");
        if let Request::Backup(name) = &request {
            let backup = (name.clone(), self.databases.backup());
            self.backups.push(backup);
        } else if self.databases.are_several() {
            return self.set_out(id, who, request);
        }
        if let Request::Control { control: Control { action: ControlAction::EraseLane(lane), .. }, .. } =
            &request
        {
            self.look_before_erasure(lane);
        }
        let at = self.store_now();
        self.calls[id].effects.push(Effect { database: 0, at, changed: false });
        let rings = request.rings();
        let reply = ready(request.perform(&*self.store));
        self.took_effect(id, reply);
        if rings {
            self.ring();
        }
    }

    /// The answer is there and goes back, or is lost.
    pub(crate) fn took_effect(&mut self, id: usize, reply: Reply) {
        let call = &self.calls[id];
        for (nth, told) in call.told.iter().enumerate() {
            let (at, part) = call.as_told(nth, &reply);
            self.recorder.learn(told.place, at, part.as_ref().unwrap_or(&reply));
        }
        if let Reply::Sweep(Ok(swept)) = &reply {
            self.audit_removed |= swept.removed_audit > 0;
        }
        let (lost, back) = (call.lost_after, call.back);
        if lost {
            self.seen.saw(Sight::AnswerLost);
        }
        self.calls[id].reply = Some(if lost { reply.lost() } else { reply });
        self.later(self.now + back, What::Answer(id));
    }

    pub(crate) fn answer(&mut self, id: usize) {
        self.open_calls -= 1;
        let reply = self.calls[id].reply.take().expect("an answer arrives once");
        if reply.is_partly_done() && matches!(reply, Reply::Append(_)) {
            self.seen.saw(Sight::StoredInPart);
        }
        let Call { who, process, .. } = self.calls[id];
        for (nth, told) in self.calls[id].told.iter().enumerate() {
            let (at, part) = self.calls[id].as_told(nth, &reply);
            self.recorder.answered(process, told.number, at, part.as_ref().unwrap_or(&reply));
        }
        match who {
            Who::Item(item) => self.item_answered(item, reply),
            Who::Closing | Who::Echo { .. } => {}
            Who::Part { node, part, .. } => self.part_answered(node, part, reply),
        }
    }

    /// The server is gone: what it had passed on happens, and its pull workers never hear of it.
    pub(crate) fn lose_answers(&mut self) {
        self.databases.restart_server();
        for call in &mut self.calls {
            let Who::Part { node, .. } = call.who else { continue };
            if !self.nodes[node].is_puller() {
                continue;
            }
            if let Some(reply) = &mut call.reply {
                self.seen.saw(Sight::ServerGoneInCall);
                *reply = reply.lost();
            } else if let Some(journey) = &mut call.journey {
                self.seen.saw(Sight::ServerGoneInCall);
                journey.cut = true;
            } else if call.request.is_some() {
                self.seen.saw(Sight::ServerGoneInCall);
                call.lost_after = true;
            }
        }
    }

    /// Whether this request is repeated on its way.
    fn echo(&mut self, who: Who) -> Option<Who> {
        let Who::Part { node, .. } = who else { return None };
        let (item, percent) = self.network.repeats(self.now)?;
        if !self.nodes[node].is_puller() {
            return None;
        }
        let draws = self.calls.len() as u64;
        let repeated = Chance::keyed(self.plan.seed, [10, item as u64, draws]).percent(percent);
        repeated.then_some(Who::Echo { node })
    }
}
