//! The operator's hand on a working set: flush, pause, cancel, redrive, purge, erase, edit, schedules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Report, WorkingSet};
use crate::batch::RunId;
use crate::clock::Timestamp;
use crate::error::{ErrorKind, StoreError, StoreResult};
use crate::event::{EventId, LaneKey, NewEvent, NewEventId, Payload, QueueName, Tenant};
use crate::lane::{self, Lane, Paused};
use crate::lifecycle::{Change, RunState};
use crate::limits;
use crate::mutants::mutant;
use crate::schedule::{Schedule, ScheduleRow};
use crate::source::{Source, Standing};
use crate::store::{
    ControlAction, Controlled, Purge, PurgeWhat, QueueScope, Redrive, RedriveTo, SourceScope, mixed_sources,
    no_such_source, not_buffered, too_large_to_redrive, too_many_queued,
};

/// What there is in a lane beside its live runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct LaneSums {
    /// All its events, live or not.
    pub events: u64,
    /// Those in the dead letter.
    pub dead: u64,
    /// Those that are kept aside.
    pub aside: u64,
}

impl WorkingSet {
    pub fn control(&mut self, now: Timestamp, actor: &str, action: ControlAction) -> StoreResult<Controlled> {
        let now = match &action {
            ControlAction::Flush(key)
            | ControlAction::PauseLane(key)
            | ControlAction::ResumeLane(key)
            | ControlAction::Cancel { lane: key, .. }
            | ControlAction::EditEvent { lane: key, .. }
            | ControlAction::DeleteEvent { lane: key, .. }
            | ControlAction::EraseEvent { lane: key, .. } => self.time_in(now, key),
            ControlAction::Redrive(redrive) => {
                self.lane_of(redrive.run.lane).map_or(now, |(_, l)| now.max(l.lane.updated_at))
            }
            _ => now,
        };
        let (key, made) = match action {
            ControlAction::Flush(key) => {
                let made = self.lanes.get_mut(&key).and_then(|l| l.lane.flush(now));
                (key, made)
            }
            ControlAction::PauseLane(key) => {
                let made = self.inhabit(now, &key).lane.pause(now, actor);
                (key, made)
            }
            ControlAction::ResumeLane(key) => {
                let made = self.lanes.get_mut(&key).and_then(|l| l.lane.resume(now));
                (key, made)
            }
            ControlAction::PauseQueue(scope) => {
                let paused = Paused { at: now, by: actor.to_owned() };
                let known = self.paused_queues.contains_key(&(scope.queue.clone(), scope.tenant.clone()));
                self.paused_queues.entry((scope.queue.clone(), scope.tenant.clone())).or_insert(paused);
                return Ok(self.record_queue(now, scope, Change::QueuePaused, actor, !known));
            }
            ControlAction::ResumeQueue(scope) => {
                let gone = self.paused_queues.remove(&(scope.queue.clone(), scope.tenant.clone())).is_some();
                return Ok(self.record_queue(now, scope, Change::QueueResumed, actor, gone));
            }
            ControlAction::Cancel { lane, run } => return Ok(self.cancel(now, actor, &lane, run)),
            ControlAction::Redrive(redrive) => return self.redrive(now, actor, &redrive),
            ControlAction::Purge(purge) => return Ok(self.purge(now, actor, &purge)),
            ControlAction::EraseLane(lane) => return Ok(self.erase_lane(now, actor, &lane)),
            ControlAction::EraseEvent { lane, id } => return Ok(self.erase_event(now, actor, &lane, &id)),
            ControlAction::EditEvent { lane, id, payload } => {
                return self.edit_event(now, actor, &lane, &id, payload);
            }
            ControlAction::DeleteEvent { lane, id } => return self.delete_event(now, actor, &lane, &id),
            ControlAction::PutSchedule(schedule) => return self.put_schedule(now, actor, schedule),
            ControlAction::RemoveSchedule { tenant, name } => {
                return self.remove_schedule(now, actor, tenant, &name);
            }
            ControlAction::PutSource { name, rules } => return self.put_source(now, name, rules),
            ControlAction::RemoveSource { name } => return Ok(self.remove_source(now, actor, &name)),
            ControlAction::EnableSource(scope) => {
                let done =
                    self.change_source(now, &scope, |s| declared(s, &scope).map(|s| s.enable(now, actor)))?;
                return Ok(self.record_source(now, &scope, Change::SourceEnabled, actor, done));
            }
            ControlAction::DisableSource(scope) => {
                let done =
                    self.change_source(now, &scope, |s| declared(s, &scope).map(|s| s.disable(now, actor)))?;
                return Ok(self.record_source(now, &scope, Change::SourceDisabled, actor, done));
            }
            ControlAction::ReleaseSource(scope) => {
                let done =
                    self.change_source(now, &scope, |s| undeclared(s).map(|s| s.release(now, actor)))?;
                return Ok(self.record_source(now, &scope, Change::SourceReleased, actor, done));
            }
            ControlAction::ResetSource(scope) => {
                let done = self.reset_source(now, actor, &scope)?;
                return Ok(self.record_source(now, &scope, Change::SourceReset, actor, done));
            }
        };
        let Some(made) = made else { return Ok(Controlled::default()) };
        let lane = self.lanes[&key].lane.id;
        self.record(now, &key, Some(lane), made, Some(actor));
        Ok(Controlled::changed(true))
    }

    fn record_queue(
        &mut self,
        at: Timestamp,
        scope: QueueScope,
        change: Change,
        actor: &str,
        changed: bool,
    ) -> Controlled {
        if changed {
            let tenant = scope.tenant.unwrap_or_else(Tenant::none);
            self.queues.entry((tenant.clone(), scope.queue.clone())).or_insert(self.base);
            self.push_audit(at, tenant, scope.queue, None, None, lane::plain(change), Some(actor));
        }
        Controlled::changed(changed)
    }

    /// A source has a lane in the trail, which never gets an event.
    fn record_source(
        &mut self,
        now: Timestamp,
        scope: &SourceScope,
        change: Change,
        actor: &str,
        done: Controlled,
    ) -> Controlled {
        if done.changed {
            let key = scope.trail();
            let now = self.time_in(now, &key);
            let lane = self.inhabit(now, &key).lane.id;
            self.record(now, &key, Some(lane), lane::plain(change), Some(actor));
        }
        done
    }

    fn cancel(&mut self, now: Timestamp, actor: &str, key: &LaneKey, run: Option<RunId>) -> Controlled {
        let Some(inhabited) = self.lanes.get_mut(key) else { return Controlled::default() };
        let lane = &mut inhabited.lane;
        let target = lane.current.as_ref().map(|c| c.number).or(lane.open.map(|o| o.number));
        let Some(id) = target.map(|number| lane.run_id(number)) else { return Controlled::default() };
        if run.is_some_and(|run| run != id) {
            return Controlled::default();
        }
        let Some(step) = lane.cancel(now) else { return Controlled::default() };
        let events = step.finished.as_ref().map_or(0, |f| f.run.count);
        self.apply(now, key, step, Report::default(), Some(actor));
        Controlled { changed: true, events, run: Some(id), more: false }
    }

    fn redrive(&mut self, now: Timestamp, actor: &str, request: &Redrive) -> StoreResult<Controlled> {
        let id = request.run;
        let place = self.finished.iter().position(|r| r.lane == id.lane && r.ended.run.number == id.number);
        let Some(place) = place else {
            let live = self.lane_of(id.lane).is_some_and(|(_, l)| {
                l.lane.fixed_runs().any(|c| c.number == id.number)
                    || l.lane.open.is_some_and(|o| o.number == id.number)
            });
            return if live { Ok(Controlled::default()) } else { Err(StoreError::not_found(id)) };
        };
        let (key, state) = (self.finished[place].key.clone(), self.finished[place].ended.state);
        let old = self.finished[place].ended.run.clone();
        let wanted: BTreeSet<&EventId> = request.events.iter().collect();
        let Some(inhabited) = self.lanes.get(&key) else { return Err(StoreError::not_found(id)) };
        let members = inhabited.members(&old).filter(|_| old.count > 0);
        let chosen = members.filter(|k| wanted.is_empty() || wanted.contains(&k.event.id));
        let seqs: Vec<u64> = chosen.map(|k| k.event.seq).collect();
        // Conditional on still being dead (or discarded), so a repeat does nothing.
        if seqs.is_empty() || state == RunState::Succeeded {
            return Ok(Controlled::default());
        }
        let edits = inhabited.edits(request, &seqs)?;
        if request.to == RedriveTo::Head && inhabited.lane.queued.len() >= limits::QUEUED_RUNS_MAX {
            return Err(too_many_queued(&key));
        }
        let size = |seq: &u64| match edits.get(seq) {
            Some(payload) => payload.len() as u64,
            None => inhabited.events.get(seq).map_or(0, |kept| kept.bytes()),
        };
        let bytes: u64 = seqs.iter().map(size).sum();
        let large = seqs.len() > limits::BATCH_EVENTS_MAX as usize || bytes > limits::BATCH_BYTES_MAX;
        if request.to == RedriveTo::Head && large && seqs.len() > 1 {
            return Err(too_large_to_redrive(id, seqs.len() as u64));
        }
        let sources = seqs.iter().filter_map(|seq| inhabited.events.get(seq)).map(|kept| kept.source);
        if request.to == RedriveTo::Head && sources.collect::<BTreeSet<_>>().len() > 1 {
            return Err(mixed_sources(id));
        }
        let whole = seqs.len() as u64 == old.count && old.links.redriven_into.is_none();
        let edited = self.edit_dead(&key, edits);
        let made = match request.to {
            RedriveTo::Head => self.redrive_head(now, actor, request, &key, &old, &seqs, whole),
            RedriveTo::New => self.redrive_new(now, actor, request, &key, old.number, &seqs),
        };
        for id in edited {
            let events = &self.lanes[&key].events;
            let seq = events.values().find(|kept| kept.event.id == id).map_or(0, |kept| kept.event.seq);
            self.record(now, &key, Some(made.lane), Lane::edited_on_return(made.number, seq), Some(actor));
        }
        let run = &mut self.finished[place].ended.run;
        run.count -= if mutant("redriven_stay_dead") { 0 } else { seqs.len() as u64 };
        run.links.redriven_into = Some(made.number);
        self.totals(&key).redriven(state, seqs.len() as u64);
        Ok(Controlled { changed: true, events: seqs.len() as u64, run: Some(made), more: false })
    }

    /// Gives events of a run that ended the payloads with which they go back; those that change.
    fn edit_dead(&mut self, key: &LaneKey, edits: BTreeMap<u64, Payload>) -> Vec<EventId> {
        let inhabited = self.lanes.get_mut(key).expect("its events are in this lane");
        let mut edited = Vec::new();
        for (seq, payload) in edits {
            let event = &mut inhabited.kept_mut(seq).event;
            if event.payload != payload {
                // The fingerprint stays that of what was sent: a sender that repeats itself is still a duplicate.
                event.payload = payload;
                edited.push(event.id.clone());
            }
        }
        edited
    }

    #[expect(clippy::too_many_arguments, reason = "what a redrive is made of")]
    fn redrive_head(
        &mut self,
        now: Timestamp,
        actor: &str,
        request: &Redrive,
        key: &LaneKey,
        old: &crate::lane::CurrentRun,
        seqs: &[u64],
        whole: bool,
    ) -> RunId {
        let number = self.fresh();
        let inhabited = self.lanes.get_mut(key).expect("its events are in this lane");
        let part = inhabited.part(number, seqs);
        for seq in seqs {
            inhabited.kept_mut(*seq).mark = Some(number);
        }
        let fresh = request.fresh || !whole || mutant("redrive_forgets_its_steps");
        let step = inhabited.lane.redrive(now, old, part, fresh);
        let made = inhabited.lane.run_id(number);
        if !fresh {
            // The latest revision's memos are what a whole run takes along.
            let of_old = self
                .steps
                .iter()
                .filter(|((run, revision, _), _)| *run == request.run && *revision == old.revision);
            let copies: Vec<_> =
                of_old.map(|((_, rev, name), row)| ((made, *rev, name.clone()), row.clone())).collect();
            self.steps.extend(copies);
        }
        self.apply(now, key, step, Report::default(), Some(actor));
        made
    }

    fn redrive_new(
        &mut self,
        now: Timestamp,
        actor: &str,
        request: &Redrive,
        key: &LaneKey,
        old: u64,
        seqs: &[u64],
    ) -> RunId {
        let mut last = 0;
        for seq in seqs {
            let (new_seq, number) = (self.fresh(), self.fresh());
            let inhabited = self.lanes.get_mut(key).expect("its events are in this lane");
            let mut kept = Arc::unwrap_or_clone(inhabited.remove(*seq).expect("it was listed above"));
            let id = NewEventId::Made(kept.event.id.clone());
            let mut new = NewEvent::new(key.clone(), id, kept.event.payload.clone(), request.policy.clone());
            new.priority = kept.priority;
            inhabited.lane.append(now, new_seq, &new, kept.source, || number);
            kept.event.was_seq = Some(*seq);
            kept.event.seq = new_seq;
            kept.mark = None;
            inhabited.ids.insert(kept.event.id.clone(), (new_seq, kept.print));
            inhabited.events.insert(new_seq, Arc::new(kept));
            last = new_seq;
        }
        let inhabited = self.lanes.get_mut(key).expect("its events are in this lane");
        let step = inhabited.lane.redriven_as_new(old, last);
        let open = inhabited.lane.open.expect("the events are in it").number;
        let made = inhabited.lane.run_id(open);
        self.apply(now, key, step, Report::default(), Some(actor));
        made
    }

    fn purge(&mut self, now: Timestamp, actor: &str, purge: &Purge) -> Controlled {
        let wanted = |key: &LaneKey| {
            key.queue == purge.queue
                && purge.tenant.as_ref().is_none_or(|t| *t == key.tenant)
                && purge.key.as_ref().is_none_or(|k| *k == key.key)
        };
        let mut done = Controlled::default();
        match purge.what {
            PurgeWhat::Dead => {
                let dead =
                    |r: &super::FinishedRun| r.ended.state == RunState::Failed && r.ended.run.count > 0;
                let found: Vec<usize> = (0..self.finished.len())
                    .filter(|&i| dead(&self.finished[i]) && wanted(&self.finished[i].key))
                    .collect();
                done.more = found.len() > limits::PURGE_STEP;
                for place in found.into_iter().take(limits::PURGE_STEP) {
                    if done.events >= limits::PURGE_STEP as u64 {
                        done.more = true;
                        break;
                    }
                    done.events += self.finished[place].ended.run.count;
                    if !purge.dry_run {
                        self.purge_dead(now, actor, place);
                    }
                }
            }
            PurgeWhat::Delayed => {
                let found: Vec<(u64, LaneKey)> = self
                    .aside
                    .iter()
                    .filter(|a| wanted(&a.event.lane))
                    .map(|a| (a.number, a.event.lane.clone()))
                    .collect();
                done.more = found.len() > limits::PURGE_STEP;
                let mut by_lane: BTreeMap<LaneKey, Vec<u64>> = BTreeMap::new();
                for (number, key) in found.into_iter().take(limits::PURGE_STEP) {
                    done.events += 1;
                    by_lane.entry(key).or_default().push(number);
                }
                for (key, numbers) in by_lane.into_iter().filter(|_| !purge.dry_run) {
                    self.purge_aside(now, actor, &key, &numbers);
                }
            }
            PurgeWhat::Buffered => {
                let open = |key: &LaneKey| self.lanes[key].lane.open.is_some();
                let found: Vec<LaneKey> =
                    self.lanes.keys().filter(|key| wanted(key) && open(key)).cloned().collect();
                done.more = found.len() > limits::PURGE_STEP;
                for key in found.into_iter().take(limits::PURGE_STEP) {
                    if done.events >= limits::PURGE_STEP as u64 {
                        done.more = true;
                        break;
                    }
                    let seqs = self.buffered(&key);
                    done.events += seqs.len() as u64;
                    if !purge.dry_run {
                        self.discard(now, &key, &seqs, Change::Purged, Some(actor));
                    }
                }
            }
        }
        done.changed = done.events > 0 && !purge.dry_run;
        done
    }

    fn buffered(&self, key: &LaneKey) -> Vec<u64> {
        let inhabited = &self.lanes[key];
        let Some(open) = inhabited.lane.open else { return Vec::new() };
        let unmarked = inhabited.events.range(open.lo..).filter(|(_, k)| k.mark.is_none());
        unmarked.map(|(seq, _)| *seq).collect()
    }

    fn purge_dead(&mut self, now: Timestamp, actor: &str, place: usize) {
        let now = self.time_in(now, &self.finished[place].key);
        let run = &mut self.finished[place];
        let made = lane::purged(&run.ended.run);
        run.ended.state = RunState::Cancelled;
        // Kept for the retention from now on, like everything discarded.
        run.ended.at = now;
        let (key, lane, count) = (run.key.clone(), run.lane, run.ended.run.count);
        if let Some(l) = self.lanes.get_mut(&key) {
            l.lane.updated_at = l.lane.updated_at.max(now);
        }
        self.totals(&key).discarded_dead(count);
        self.record(now, &key, Some(lane), made, Some(actor));
    }

    fn erase_lane(&mut self, now: Timestamp, actor: &str, key: &LaneKey) -> Controlled {
        let sums = self.sums(key);
        self.erase_lane_of(now, actor, key, sums)
    }

    /// What there is in a lane, counted before it is erased.
    fn sums(&self, key: &LaneKey) -> LaneSums {
        let lane = self.lanes.get(key);
        let dead = |r: &&super::FinishedRun| r.key == *key && r.ended.state == RunState::Failed;
        LaneSums {
            events: lane.map_or(0, |l| l.events.len() as u64),
            dead: self.finished.iter().filter(dead).map(|r| r.ended.run.count).sum(),
            aside: self.aside.iter().filter(|a| a.event.lane == *key).count() as u64,
        }
    }

    /// Erases a lane of which only the live runs need be here: `sums` says what else there is.
    pub fn erase_lane_of(
        &mut self,
        now: Timestamp,
        actor: &str,
        key: &LaneKey,
        sums: LaneSums,
    ) -> Controlled {
        self.aside.retain(|a| a.event.lane != *key);
        if sums.aside > 0 {
            self.totals(key).discarded_aside(sums.aside);
        }
        // A schedule of this key would name it again.
        self.schedules.retain(|_, row| {
            let s = &row.schedule;
            s.tenant != key.tenant || s.queue != key.queue || s.key != key.key
        });
        while let Some(step) = self.lanes.get_mut(key).and_then(|l| l.lane.end_now(now)) {
            self.apply(now, key, step, Report::default(), Some(actor));
        }
        let Some(inhabited) = self.lanes.remove(key) else {
            if sums.aside > 0 {
                self.record_erased(now, actor, key, None);
            }
            return Controlled { changed: sums.aside > 0, events: sums.aside, ..Controlled::default() };
        };
        let lane = inhabited.lane.id;
        let events = sums.aside + sums.events;
        self.finished.retain(|r| r.lane != lane);
        self.totals(key).discarded_dead(sums.dead);
        self.steps.retain(|(run, ..), _| run.lane != lane);
        for record in self.audit.iter_mut().map(|t| &mut t.record) {
            if record.tenant == key.tenant
                && record.queue == key.queue
                && record.key.as_ref() == Some(&key.key)
            {
                record.key = None;
            }
        }
        self.record_erased(now, actor, key, Some(lane));
        Controlled { changed: true, events, ..Controlled::default() }
    }

    /// The trail says that something was erased, and not what.
    fn record_erased(&mut self, now: Timestamp, actor: &str, key: &LaneKey, lane: Option<u64>) {
        let (tenant, queue, made) = (key.tenant.clone(), key.queue.clone(), lane::plain(Change::Erased));
        self.push_audit(now, tenant, queue, None, lane, made, Some(actor));
    }

    fn erase_aside(&mut self, key: &LaneKey, id: &EventId) -> u64 {
        let before = self.aside.len();
        self.aside.retain(|a| a.event.lane != *key || a.event.id.id() != id);
        let gone = (before - self.aside.len()) as u64;
        if gone > 0 {
            self.totals(key).discarded_aside(gone);
        }
        gone
    }

    fn erase_event(&mut self, now: Timestamp, actor: &str, key: &LaneKey, id: &EventId) -> Controlled {
        let mut events = self.erase_aside(key, id);
        let seq = self.lanes.get(key).and_then(|l| l.ids.get(id)).map(|(seq, _)| *seq);
        if let Some(seq) = seq {
            self.erase_seq(now, actor, key, seq);
            events += 1;
        }
        if events > 0 {
            let lane = self.lanes.get(key).map(|l| l.lane.id);
            let made = crate::audit::Move { upto_seq: seq.unwrap_or(0), ..lane::plain(Change::Erased) };
            self.record(now, key, lane, made, Some(actor));
        }
        Controlled { changed: events > 0, events, ..Controlled::default() }
    }

    /// Cancels the run that holds the event, wherever it stands, then deletes the event and the steps of that run.
    fn erase_seq(&mut self, now: Timestamp, actor: &str, key: &LaneKey, seq: u64) {
        let lane = &self.lanes[key].lane;
        let mark = self.lanes[key].events[&seq].mark;
        let buffered = lane.open.is_some_and(|o| mark.is_none() && o.lo <= seq);
        if let Some((number, _)) = lane.run_of(seq, mark).filter(|_| !buffered) {
            self.end_run(now, actor, key, number);
        } else if buffered {
            self.discard(now, key, &[seq], Change::Deleted, Some(actor));
        }
        let inhabited = self.lanes.get_mut(key).expect("the event is in this lane");
        let lane = inhabited.lane.id;
        let mark = inhabited.events[&seq].mark;
        inhabited.remove(seq);
        let run = self
            .finished
            .iter_mut()
            .find(|r| r.lane == lane && r.ended.run.count > 0 && r.ended.run.has(seq, mark));
        let Some(run) = run else { return };
        run.ended.run.count -= 1;
        // What the handler said of it may quote it.
        run.ended.run.error = None;
        run.result = None;
        run.usage.clear();
        let (state, id) = (run.ended.state, RunId { lane, number: run.ended.run.number });
        let mut from = run.ended.run.links.redriven_from.or(run.ended.run.links.split_from);
        if state == RunState::Failed {
            self.totals(key).discarded_dead(1);
        }
        self.steps.retain(|(of, ..), _| *of != id);
        // The runs that it went through remember it, too.
        while let Some(number) = from.take() {
            let before = self.finished.iter_mut().find(|r| r.lane == lane && r.ended.run.number == number);
            let Some(before) = before else { break };
            before.ended.run.error = None;
            before.result = None;
            before.usage.clear();
            from = before.ended.run.links.redriven_from.or(before.ended.run.links.split_from);
            self.steps.retain(|(of, ..), _| *of != RunId { lane, number });
        }
    }

    /// Ends a run that has not ended, also one that waits behind the current one.
    fn end_run(&mut self, now: Timestamp, actor: &str, key: &LaneKey, number: u64) {
        let lane = &mut self.lanes.get_mut(key).expect("the caller has seen it").lane;
        let Some(step) = lane.end_run(now, number) else { return };
        self.apply(now, key, step, Report::default(), Some(actor));
    }

    fn edit_event(
        &mut self,
        now: Timestamp,
        actor: &str,
        key: &LaneKey,
        id: &EventId,
        payload: Payload,
    ) -> StoreResult<Controlled> {
        let seq = self.buffered_event(key, id)?;
        let inhabited = self.lanes.get_mut(key).expect("the event is in this lane");
        let kept = inhabited.kept_mut(seq);
        if kept.event.payload == payload {
            return Ok(Controlled::default());
        }
        let before = kept.bytes();
        // The fingerprint stays that of what was sent: a sender that repeats itself is still a duplicate.
        kept.event.payload = payload;
        let after = kept.bytes();
        let made = inhabited.lane.edit(now, seq, before, after);
        let lane = inhabited.lane.id;
        self.record(now, key, Some(lane), made, Some(actor));
        Ok(Controlled { changed: true, events: 1, ..Controlled::default() })
    }

    fn delete_event(
        &mut self,
        now: Timestamp,
        actor: &str,
        key: &LaneKey,
        id: &EventId,
    ) -> StoreResult<Controlled> {
        let seq = self.buffered_event(key, id)?;
        let run = self.discard(now, key, &[seq], Change::Deleted, Some(actor));
        Ok(Controlled { changed: true, events: 1, run: Some(run), more: false })
    }

    fn buffered_event(&self, key: &LaneKey, id: &EventId) -> StoreResult<u64> {
        let inhabited = self.lanes.get(key);
        let seq = inhabited.and_then(|l| l.ids.get(id)).map(|(seq, _)| *seq);
        let is_buffered = |seq: &u64| {
            inhabited.is_some_and(|l| {
                let unmarked = l.events.get(seq).is_some_and(|k| k.mark.is_none());
                unmarked && l.lane.open.is_some_and(|o| o.lo <= *seq)
            })
        };
        seq.filter(is_buffered).ok_or_else(|| not_buffered(key, id))
    }

    fn put_schedule(&mut self, now: Timestamp, actor: &str, schedule: Schedule) -> StoreResult<Controlled> {
        let place = (schedule.tenant.clone(), schedule.name.clone());
        let row = match self.schedules.get(&place) {
            Some(row) if row.schedule == schedule => return Ok(Controlled::default()),
            Some(row) => row.changed(schedule, now),
            None if self.schedules.len() >= limits::SCHEDULES_MAX => {
                let max = limits::SCHEDULES_MAX;
                return Err(StoreError::new(ErrorKind::Limit, format!("there are {max} schedules already")));
            }
            None => ScheduleRow::new(schedule, now),
        };
        let (tenant, queue) = (row.schedule.tenant.clone(), row.schedule.queue.clone());
        self.schedules.insert(place, row);
        self.queues.entry((tenant.clone(), queue.clone())).or_insert(self.base);
        self.push_audit(now, tenant, queue, None, None, lane::plain(Change::SchedulePut), Some(actor));
        Ok(Controlled::changed(true))
    }

    fn remove_schedule(
        &mut self,
        now: Timestamp,
        actor: &str,
        tenant: Tenant,
        name: &str,
    ) -> StoreResult<Controlled> {
        let Ok(name) = QueueName::new(name) else { return Ok(Controlled::default()) };
        let Some(row) = self.schedules.remove(&(tenant.clone(), name)) else {
            return Ok(Controlled::default());
        };
        let made = lane::plain(Change::ScheduleRemoved);
        self.push_audit(now, tenant, row.schedule.queue, None, None, made, Some(actor));
        Ok(Controlled::changed(true))
    }
}

/// Enabling and disabling are for what is declared.
fn declared<'s>(source: &'s mut Source, scope: &SourceScope) -> StoreResult<&'s mut Source> {
    match source.standing {
        Standing::Enabled | Standing::Disabled => Ok(source),
        Standing::Removed | Standing::Released => Err(no_such_source(scope)),
    }
}

/// Releasing is for what is not.
fn undeclared(source: &mut Source) -> StoreResult<&mut Source> {
    match source.standing {
        Standing::Removed | Standing::Released => Ok(source),
        Standing::Enabled | Standing::Disabled => {
            let detail = format!(
                "source {} is declared, so its lanes are governed: remove it first, or take its limit out of its declaration",
                source.name
            );
            Err(StoreError::new(ErrorKind::Invalid, detail))
        }
    }
}
