//! Events aside and schedules on a working set: what is kept out of the lanes, and how it gets in.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{FinishedRun, Kept, WorkingSet};
use crate::aside::Aside;
use crate::audit::Move;
use crate::clock::Timestamp;
use crate::event::{Event, EventId, LaneKey, NewEvent, NewEventId, Overflow, QueueName, Tenant};
use crate::lane::{self, Finished};
use crate::lifecycle::Change;
use crate::limits;
use crate::mutants::mutant;
use crate::store::{ClaimRequest, Receipt, id_conflict};

impl WorkingSet {
    /// Accepts an event without giving it a place in its lane yet.
    pub(super) fn put_aside(&mut self, now: Timestamp, event: NewEvent, ready_at: Timestamp) -> Receipt {
        let number = self.fresh();
        let ready_at = if mutant("delay_is_ignored") { now } else { ready_at };
        self.totals(&event.lane).set_aside(1);
        self.aside.push(Aside { ready_at, look_at: ready_at, ..Aside::new(number, event, now) });
        Receipt { duplicate: false, ..self.duplicate_aside(number) }
    }

    pub(super) fn duplicate_aside(&self, number: u64) -> Receipt {
        let aside = self.aside.iter().find(|a| a.number == number).expect("the caller has just seen it");
        Receipt {
            event_id: aside.event.id.id().clone(),
            seq: None,
            run_id: None,
            duplicate: true,
            due_at: Some(aside.ready_at),
            state: None,
            met: None,
        }
    }

    /// When something aside wants to be looked at, for the queues of this claim.
    pub(super) fn next_aside(&self, request: &ClaimRequest) -> Option<Timestamp> {
        let wanted = |tenant: &Tenant, queue: &QueueName| request.policy_for(tenant, queue).is_some();
        let aside = self.aside.iter().filter(|a| wanted(&a.event.lane.tenant, &a.event.lane.queue));
        let schedules = self.schedules.values().filter(|s| wanted(&s.schedule.tenant, &s.schedule.queue));
        aside.map(|a| a.look_at).chain(schedules.filter_map(|s| s.next_at)).min()
    }

    /// Fires the schedules that are due and takes ready events into their lanes, a bounded number of both together.
    /// Says whether there is more.
    pub fn fire_and_enter(&mut self, now: Timestamp, wanted: impl Fn(&Tenant, &QueueName) -> bool) -> bool {
        let mut fired = Vec::new();
        for row in self.schedules.values_mut() {
            if wanted(&row.schedule.tenant, &row.schedule.queue) {
                fired.extend(row.fire(now));
            }
        }
        for (event, at) in fired {
            self.put_aside(now, event, at);
        }
        self.aside.sort_by_key(|a| (a.ready_at, a.number));
        let ready = |a: &&Aside| a.look_at <= now && wanted(&a.event.lane.tenant, &a.event.lane.queue);
        let mut found: Vec<_> =
            self.aside.iter().filter(ready).map(|a| (a.look_at, a.ready_at, a.number)).collect();
        found.sort_unstable();
        for (.., number) in found.iter().take(limits::ASIDE_STEP) {
            self.enter_from_aside(now, *number);
        }
        found.len() > limits::ASIDE_STEP
    }

    fn enter_from_aside(&mut self, now: Timestamp, number: u64) {
        let place = self.aside.iter().position(|a| a.number == number).expect("it was found a moment ago");
        let aside = &self.aside[place];
        // Those of one lane enter in order: behind one that has to wait, all wait.
        let earlier = self.aside[..place].iter().find(|a| a.event.lane == aside.event.lane);
        let wait = match earlier {
            Some(earlier) => Some(earlier.look_at),
            None => self.is_full_for(&aside.event).then(|| now.after(limits::ASIDE_FULL_WAIT)),
        };
        let key = aside.event.lane.clone();
        let known = self.lanes.get(&key).and_then(|l| l.ids.get(aside.event.id.id())).copied();
        let given = matches!(aside.event.id, NewEventId::Given(_)) && !mutant("aside_enters_twice");
        match (known.filter(|_| given), wait) {
            (None, Some(until)) => self.aside[place].look_at = until,
            (None, None) => {
                let event = self.aside.remove(place).event;
                self.enter(now, &event, event.payload.fingerprint(), true);
            }
            (Some((seq, first)), _) if first == aside.event.payload.fingerprint() => {
                self.aside.remove(place);
                self.totals(&key).discarded_aside(1);
                let lane = self.lanes[&key].lane.id;
                let made = Move { upto_seq: seq, ..lane::plain(Change::DuplicateDropped) };
                self.record(now, &key, Some(lane), made, None);
            }
            (Some(_), _) => {
                let event = self.aside.remove(place).event;
                self.bury(now, &key, &event);
            }
        }
    }

    fn is_full_for(&self, event: &NewEvent) -> bool {
        let Some(inhabited) = self.lanes.get(&event.lane) else { return false };
        let (waiting, most) = (inhabited.lane.events(), event.policy.lane_events);
        let buffered = inhabited.lane.open.map_or(0, |o| o.count);
        let drops = event.policy.overflow == Overflow::DropOldest && waiting < most + buffered;
        waiting >= most && !drops
    }

    /// A known id with another payload: its sender is gone, so the event goes to the dead letter, under an id of its
    /// own.
    fn bury(&mut self, now: Timestamp, key: &LaneKey, new: &NewEvent) {
        let number = self.fresh();
        let seq = self.set_down(now, new, number, "conflict");
        let inhabited = self.lanes.get_mut(key).expect("its id is known in this lane");
        let error = id_conflict(key, new.id.id()).detail;
        let part = inhabited.part(number, &[seq]);
        let (made, ended) = inhabited.lane.bury(now, part, error);
        self.totals(key).buried_aside(1);
        self.end_aside(now, key, made, ended, new.priority, None);
    }

    /// Events aside that an operator discards: a run of their own, kept like everything discarded.
    pub(super) fn purge_aside(&mut self, now: Timestamp, actor: &str, key: &LaneKey, numbers: &[u64]) {
        let number = self.fresh();
        self.inhabit(now, key);
        let (gone, kept) =
            std::mem::take(&mut self.aside).into_iter().partition(|a: &Aside| numbers.contains(&a.number));
        self.aside = kept;
        let mut gone: Vec<Aside> = gone;
        gone.sort_by_key(|a| (a.ready_at, a.number));
        let seqs: Vec<u64> = gone.iter().map(|a| self.set_down(now, &a.event, number, "purged")).collect();
        let inhabited = self.lanes.get_mut(key).expect("it was inhabited above");
        let part = inhabited.part(number, &seqs);
        let (made, ended) = inhabited.lane.discard_aside(now, part);
        self.totals(key).discarded_aside(seqs.len() as u64);
        let priority = gone.iter().map(|a| a.event.priority).max().unwrap_or(limits::PRIORITY_DEFAULT);
        self.end_aside(now, key, made, ended, priority, Some(actor));
    }

    /// Keeps an event from aside in its lane as one of this run, which has ended. Where its id is known already it gets
    /// one made of this word.
    fn set_down(&mut self, now: Timestamp, new: &NewEvent, run: u64, word: &str) -> u64 {
        let source = self.resolve(now, new);
        let seq = self.fresh();
        let inhabited = self.lanes.get_mut(&new.lane).expect("the caller has seen its lane");
        let own = || EventId::new(format!("{word}_{seq}")).expect("a word and a number are a short text");
        let known = inhabited.ids.contains_key(new.id.id());
        let id = if known { own() } else { new.id.id().clone() };
        let print = new.payload.fingerprint();
        inhabited.ids.insert(id.clone(), (seq, print));
        let (payload, headers) = (new.payload.clone(), new.headers.clone());
        let event = Event { seq, id, received_at: now, payload, headers, was_seq: None };
        let kept = Kept { event, mark: Some(run), priority: new.priority, print, source };
        inhabited.events.insert(seq, Arc::new(kept));
        seq
    }

    fn end_aside(
        &mut self,
        now: Timestamp,
        key: &LaneKey,
        made: Move,
        mut ended: Finished,
        priority: u8,
        actor: Option<&str>,
    ) {
        let lane = self.lanes[key].lane.id;
        ended.run.priority = priority;
        self.record(now, key, Some(lane), made, actor);
        let (result, usage) = (None, BTreeMap::new());
        self.finished.push(FinishedRun { key: key.clone(), lane, ended, result, usage });
    }
}
