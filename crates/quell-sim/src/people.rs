//! Senders and operators: those who act on the store from outside, as the plan says.
//!
//! A sender whose answer did not come repeats the same events under the same ids until its patience is over. An
//! operator looks first (reads are not part of a history) and then acts on what was seen, which may be out of date.

use std::time::Duration;

use quell_check::history::{Action, Name};
use quell_core::batch::RunId;
use quell_core::cron::{Cron, Zone};
use quell_core::event::{EventId, LaneKey, NewEvent, NewEventId, Payload, QueueName};
use quell_core::inspect::{Inspect, Inspected, RunFilter, RunRow};
use quell_core::lifecycle::RunState;
use quell_core::schedule::Schedule;
use quell_core::store::{
    AppendRequest, Control, ControlAction, Purge, PurgeWhat, QueueScope, Redrive, RedriveTo,
};

use crate::call::{Reply, Request, ready};
use crate::chance::Chance;
use crate::plan::{EventPlan, Hand, Item};
use crate::record;
use crate::seen::Sight;
use crate::world::{What, Who, World};

impl World {
    /// The moment of an item of the plan has come.
    pub(crate) fn item(&mut self, item: usize) {
        match self.plan.items[item].clone() {
            Item::Send { send, .. } => {
                self.seen.saw(Sight::SendAppend);
                if send.events.len() > 1 {
                    self.seen.saw(Sight::SendArray);
                }
                for event in &send.events {
                    let wishes = [
                        (event.delay.is_some(), Sight::SendDelayed),
                        (event.window.is_some(), Sight::SendOwnWindow),
                        (event.only_if_idle, Sight::SendOnlyIfIdle),
                        (event.source.is_some(), Sight::SendOwnSource),
                        (event.newer, Sight::SendNewer),
                    ];
                    wishes.into_iter().filter(|w| w.0).for_each(|w| self.seen.saw(w.1));
                }
                self.send(item, false);
            }
            Item::Hand { hand, .. } => self.hand(item, hand),
            Item::Fault { fault, .. } => self.fault(item, fault),
            Item::Worker(_)
            | Item::Puller(_)
            | Item::Rule { .. }
            | Item::Newer { .. }
            | Item::Habit { .. }
            | Item::Absent { .. } => {}
        }
    }

    fn send(&mut self, item: usize, repeat: bool) {
        let Item::Send { send, .. } = &self.plan.items[item] else { return };
        let events = send.events.iter().map(|event| self.new_event(event)).collect();
        self.ask(Who::Item(item), Request::Append(AppendRequest { events, repeat }));
    }

    fn new_event(&self, plan: &EventPlan) -> NewEvent {
        let (lane, queue) = &self.plan.shape.lanes[plan.lane];
        let id = EventId::new(&plan.id).expect("an id of ours");
        let id = if plan.given { NewEventId::Given(id) } else { NewEventId::Made(id) };
        let policies = if plan.newer { &self.newer } else { &self.policies };
        let policy = policies[*queue].append.clone();
        NewEvent {
            priority: plan.priority,
            delay: plan.delay.map(Duration::from_millis),
            window: plan.window,
            only_if_idle: plan.only_if_idle,
            source: plan.source.map(|source| self.plan.shape.sources[source].name.clone()),
            ..NewEvent::new(lane.clone(), id, payload(plan.canary, plan.padding), policy)
        }
    }

    pub(crate) fn item_answered(&mut self, item: usize, reply: Reply) {
        let temporary = reply.error().is_some_and(|error| error.is_temporary());
        if !temporary {
            return;
        }
        let patience = match &self.plan.items[item] {
            Item::Send { send, .. } => send.patience,
            Item::Hand { .. } => 1,
            _ => 0,
        };
        if self.tries[item] >= patience {
            self.seen.saw(Sight::SendGivenUp);
            return;
        }
        self.tries[item] += 1;
        let wait = 10 + self.chance(Who::Item(item)).below(200);
        self.later(self.now + wait, What::Timer { who: Who::Item(item), wish: 0 });
    }

    pub(crate) fn item_timer(&mut self, who: Who) {
        let Who::Item(item) = who else { return };
        match self.plan.items[item] {
            Item::Send { .. } => {
                self.seen.saw(Sight::SendRepeat);
                self.send(item, true);
            }
            Item::Hand { hand, .. } => self.hand(item, hand),
            _ => {}
        }
    }

    fn hand(&mut self, item: usize, hand: Hand) {
        let mut chance = Chance::keyed(self.plan.seed, [5, item as u64, 0]);
        if let Some((sight, action, told)) = self.choose(hand, &mut chance) {
            self.seen.saw(sight);
            if let ControlAction::EraseEvent { lane, .. } = &action {
                self.look_before_erasure(lane);
            }
            let control = Control { actor: "ops".to_owned(), action };
            self.ask(Who::Item(item), Request::Control { control, action: told });
        }
    }

    /// What exactly an operator does, with what it is called in a history. Nothing when there is nothing to do it to.
    fn choose(&self, hand: Hand, c: &mut Chance) -> Option<(Sight, ControlAction, Action)> {
        let key = |lane: usize| self.plan.shape.lanes[lane].0.clone();
        let name = |lane: usize| self.recorder.lane(&self.plan.shape.lanes[lane].0);
        Some(match hand {
            Hand::Flush(l) => {
                (Sight::HandFlush, ControlAction::Flush(key(l)), Action::Flush { lane: name(l) })
            }
            Hand::PauseLane(l) => {
                (Sight::HandPauseLane, ControlAction::PauseLane(key(l)), Action::PauseLane { lane: name(l) })
            }
            Hand::ResumeLane(l) => (
                Sight::HandResumeLane,
                ControlAction::ResumeLane(key(l)),
                Action::ResumeLane { lane: name(l) },
            ),
            Hand::PauseQueue(q) => {
                let action = ControlAction::PauseQueue(self.scope(q));
                (Sight::HandPauseQueue, action, Action::PauseQueue { queue: self.queue_name(q) })
            }
            Hand::ResumeQueue(q) => {
                let action = ControlAction::ResumeQueue(self.scope(q));
                (Sight::HandResumeQueue, action, Action::ResumeQueue { queue: self.queue_name(q) })
            }
            Hand::Cancel { lane, named } => {
                let live = |r: &RunRow| !r.state.is_final();
                let run = if named { Some(self.runs_of(lane).into_iter().find(live)?.id) } else { None };
                let action = ControlAction::Cancel { lane: key(lane), run };
                (Sight::HandCancel, action, Action::Cancel { lane: name(lane) })
            }
            Hand::Redrive { lane, head, part, fresh } => return self.redrive(lane, head, part, fresh, c),
            Hand::PurgeDead(l) => {
                (Sight::HandPurgeDead, self.purge(l, PurgeWhat::Dead), Action::Purge { lane: name(l) })
            }
            Hand::PurgeDelayed(l) => {
                (Sight::HandPurgeDelayed, self.purge(l, PurgeWhat::Delayed), Action::Purge { lane: name(l) })
            }
            Hand::PurgeBuffered(l) => (
                Sight::HandPurgeBuffered,
                self.purge(l, PurgeWhat::Buffered),
                Action::Purge { lane: name(l) },
            ),
            Hand::EraseLane(l) => {
                (Sight::HandEraseLane, ControlAction::EraseLane(key(l)), Action::EraseLane { lane: name(l) })
            }
            Hand::EraseEvent(l) => {
                let id = self.some_event(l, c, false)?;
                let told = Action::EraseEvent { lane: name(l), id: id.as_str().into() };
                (Sight::HandEraseEvent, ControlAction::EraseEvent { lane: key(l), id }, told)
            }
            Hand::Edit(l) => {
                let id = self.some_event(l, c, true)?;
                let payload = payload(900_000 + c.below(100_000), c.index(20));
                let (hash, bytes) = (record::print(&payload), payload.len() as u64);
                let told = Action::Edit { lane: name(l), id: id.as_str().into(), hash, bytes };
                (Sight::HandEdit, ControlAction::EditEvent { lane: key(l), id, payload }, told)
            }
            Hand::Delete(l) => {
                let id = self.some_event(l, c, true)?;
                let told = Action::Delete { lane: name(l), id: id.as_str().into() };
                (Sight::HandDelete, ControlAction::DeleteEvent { lane: key(l), id }, told)
            }
            Hand::PutSchedule { name, lane } => {
                let told = Action::Other { name: "put schedule".into() };
                (Sight::HandPutSchedule, ControlAction::PutSchedule(self.schedule(name, lane)), told)
            }
            Hand::RemoveSchedule { name } => {
                let tenant = self.plan.shape.queues[0].tenant.clone();
                let action = ControlAction::RemoveSchedule { tenant, name: format!("s{name}") };
                (Sight::HandRemoveSchedule, action, Action::Other { name: "remove schedule".into() })
            }
            Hand::DisableSource { .. }
            | Hand::EnableSource { .. }
            | Hand::ResetSource { .. }
            | Hand::ReleaseSource { .. }
            | Hand::RemoveSource { .. }
            | Hand::PutSource { .. } => return self.choose_source(hand),
        })
    }

    pub(crate) fn scope(&self, queue: usize) -> QueueScope {
        let shape = &self.plan.shape.queues[queue];
        QueueScope { queue: shape.name.clone(), tenant: Some(shape.tenant.clone()) }
    }

    pub(crate) fn queue_name(&self, queue: usize) -> Name {
        record::queue_name(&self.plan.shape.queues[queue])
    }

    fn purge(&self, lane: usize, what: PurgeWhat) -> ControlAction {
        let LaneKey { tenant, queue, key } = self.plan.shape.lanes[lane].0.clone();
        ControlAction::Purge(Purge { queue, tenant: Some(tenant), key: Some(key), what, dry_run: false })
    }

    fn schedule(&self, name: u64, lane: usize) -> Schedule {
        let (key, queue) = &self.plan.shape.lanes[lane];
        Schedule {
            // One owner for all schedules, so that they can be found again.
            tenant: self.plan.shape.queues[0].tenant.clone(),
            name: QueueName::new(format!("s{name}")).expect("a name of ours"),
            cron: "* * * * *".parse::<Cron>().expect("a rhythm of ours"),
            zone: Zone::utc(),
            queue: key.queue.clone(),
            key: key.key.clone(),
            payload: payload(800_000 + name, 0),
            policy: self.policies[*queue].append.clone(),
        }
    }

    fn runs_of(&self, lane: usize) -> Vec<RunRow> {
        let LaneKey { tenant, queue, key } = self.plan.shape.lanes[lane].0.clone();
        let filter = RunFilter {
            tenant: Some(tenant),
            queue: Some(queue),
            key: Some(key),
            limit: 100,
            ..RunFilter::default()
        };
        match ready(self.store.inspect(Inspect::Runs(filter))) {
            Ok(Inspected::Runs(page)) => page.items,
            _ => Vec::new(),
        }
    }

    fn events_of(&self, run: RunId) -> Vec<EventId> {
        match ready(self.store.inspect(Inspect::Run(run))) {
            Ok(Inspected::Run(Some(detail))) => detail.list.into_iter().map(|e| e.id).collect(),
            _ => Vec::new(),
        }
    }

    fn some_event(&self, lane: usize, c: &mut Chance, waiting: bool) -> Option<EventId> {
        let wanted =
            |r: &&RunRow| r.events > 0 && (!waiting || (r.state == RunState::Pending && r.claims == 0));
        let runs = self.runs_of(lane);
        let runs: Vec<&RunRow> = runs.iter().filter(wanted).collect();
        let run = runs.get(c.index(runs.len()))?;
        let events = self.events_of(run.id);
        events.get(c.index(events.len())).cloned()
    }

    fn redrive(
        &self,
        lane: usize,
        head: bool,
        part: bool,
        fresh: bool,
        c: &mut Chance,
    ) -> Option<(Sight, ControlAction, Action)> {
        let ended = |r: &&RunRow| matches!(r.state, RunState::Failed | RunState::Cancelled);
        let runs = self.runs_of(lane);
        let ended: Vec<&RunRow> = runs.iter().filter(ended).collect();
        let run = ended.get(c.index(ended.len()))?;
        let mut events = if part { self.events_of(run.id) } else { Vec::new() };
        events.retain(|_| c.percent(50));
        let policy = self.policies[self.plan.shape.lanes[lane].1].append.clone();
        let to = if head { RedriveTo::Head } else { RedriveTo::New };
        let sight = match head {
            _ if !events.is_empty() => Sight::HandRedrivePart,
            true => Sight::HandRedriveHead,
            false => Sight::HandRedriveNew,
        };
        let (name, number) = (self.recorder.lane(&run.lane), run.id.number);
        let asked = events.iter().map(|id| id.as_str().into()).collect();
        let told = if head {
            Action::RedriveHead { lane: name, run: number, events: asked }
        } else {
            Action::RedriveNew { lane: name, run: number, events: asked }
        };
        let redrive = Redrive { run: run.id, events, edits: Vec::new(), to, fresh, policy };
        Some((sight, ControlAction::Redrive(redrive), told))
    }
}

/// A payload with a canary of its own.
fn payload(canary: u64, padding: usize) -> Payload {
    let text = if padding == 0 {
        format!("{{\"n\":{canary}}}")
    } else {
        format!("{{\"n\":{canary},\"p\":\"{}\"}}", "x".repeat(padding))
    };
    Payload::from_stored(&text)
}
