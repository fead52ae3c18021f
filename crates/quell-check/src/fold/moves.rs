//! Every record of the trail that is not a claim: what it may say, and what it does to the lane.

use super::window::backoff_min;
use super::{End, Fold, Kind, Run};
use crate::history::{AuditEntry, Name, OnFailed, State};
use crate::index::Loc;
use crate::sometimes::Thing;
use crate::table::Change;
use crate::violation::{Checked, Invariant};

/// How many hand-backs are refunded, by the rules.
const REFUNDS_MAX: u32 = 10;

impl<'a> Fold<'_, 'a> {
    pub(super) fn moved(&mut self, entry: &'a AuditEntry, change: Change) -> Checked {
        match change {
            Change::Paused => self.lane.paused = true,
            Change::Resumed => self.lane.paused = false,
            Change::Blocked => {
                self.lane.blocked = Some(entry.run.unwrap_or_default());
                self.lane.must_block = None;
            }
            Change::Unblocked => (self.lane.blocked, self.lane.must_block) = (None, None),
            Change::Erased if entry.run.is_none() => {
                // The lane may be gone with its pause and its block; its events are vague already.
                (self.lane.blocked, self.lane.must_block, self.lane.paused) = (None, None, false);
            }
            _ => {}
        }
        let (Some(number), Some(to)) = (entry.run, entry.to) else { return Ok(()) };
        match change {
            Change::SplitOff => return self.split_off(entry, number),
            Change::Redriven => return self.redriven(entry, number),
            Change::Flushed => self.lane.window.flushed = true,
            _ => {}
        }
        if !self.runs.contains_key(&number) {
            return self.of_open_run(entry, number, change, to);
        }
        self.is_legal(entry, number)?;
        if entry.from == Some(State::Running) {
            self.by_holder(entry, number, change)?;
        }
        self.obeys_rules(entry, number, change)?;
        self.apply(entry, number, change, to);
        Ok(())
    }

    /// The move starts from the state in which the trail has left the run.
    pub(super) fn is_legal(&self, entry: &AuditEntry, number: u64) -> Checked {
        let state = self.runs[&number].state;
        if entry.from != Some(state) {
            let what = format!("{} says the run was {:?}", entry.change, entry.from);
            let expected = format!("{state:?}, as its earlier records have left it");
            return Err(self.wrong(entry, Invariant::LegalMoves, what, expected));
        }
        Ok(())
    }

    /// A run that has no record yet is the open run, or a fresh one made of its events.
    fn of_open_run(&mut self, entry: &AuditEntry, number: u64, change: Change, to: State) -> Checked {
        let mut run = Run::new(self.lane.id, to, Kind::Plain);
        run.upto = entry.upto_seq;
        let range = self.dumped.get(&number).map(|r| (r.lo, r.hi));
        match change {
            // It had been claimed, split off or redriven before the trail begins, so it is not the open run.
            Change::Cancelled
                if self.truncated
                    && (entry.attempt > 0
                        || self.dumped.get(&number).is_some_and(|r| {
                            r.claims > 0 || r.split_from.is_some() || r.redriven_from.is_some()
                        })) =>
            {
                (run.unknown, run.attempts, run.token) = (true, entry.attempt, entry.token);
            }
            Change::Cancelled if entry.from == Some(State::Pending) => {
                run.batch = self.take_open(number, |_| true);
            }
            // Without the run that the events waited in, they were kept aside and never waited.
            Change::Purged if entry.from == Some(State::Pending) && entry.other_run.is_none() => {
                let range = range.filter(|&(_, hi)| hi > 0);
                let index = &*self.index;
                let aside = |seq: u64| {
                    let event =
                        index.by_seq.get(&seq).map(|&s| &index.events[index.seqs[s as usize].event as usize]);
                    let untold = event.is_some_and(|e| e.fresh.is_none_or(|f| f.seq != Some(seq)));
                    range.map_or(number < seq && seq <= entry.upto_seq, |(lo, hi)| lo <= seq && seq <= hi)
                        && untold
                };
                let wanted: Vec<u64> = self
                    .lane
                    .open
                    .iter()
                    .map(|&s| index.seqs[s as usize].seq)
                    .filter(|&s| aside(s))
                    .collect();
                run.batch = self.take_open(number, |seq| wanted.contains(&seq));
                self.shrink();
            }
            Change::Dropped | Change::Purged | Change::Deleted if entry.from == Some(State::Pending) => {
                let lowest = if change == Change::Deleted { entry.upto_seq } else { 0 };
                let (lo, hi) = range.filter(|&(_, hi)| hi > 0).unwrap_or((lowest, entry.upto_seq));
                run.batch = self.take_open(number, |seq| lo <= seq && seq <= hi);
                self.shrink();
                self.lane.makes_room = change == Change::Dropped;
            }
            Change::Merged => {
                let into = entry.other_run.and_then(|other| self.runs.get_mut(&other));
                match into {
                    Some(into) if into.held => {
                        let what = "the run that took the events in was held";
                        return Err(self.wrong(entry, Invariant::Held, what, "its batch is frozen"));
                    }
                    Some(into) => into.merges_told += 1,
                    None if self.truncated => {}
                    None => {
                        let what = format!("merged into {:?}, which was never claimed", entry.other_run);
                        return Err(self.wrong(
                            entry,
                            Invariant::Revision,
                            what,
                            "the run that waited before it",
                        ));
                    }
                }
            }
            // These leave an open run open, and open runs are not kept here.
            Change::Flushed | Change::Edited | Change::Erased => return Ok(()),
            // A buried event has a number and never waited.
            Change::ConflictBuried => match self.index.by_seq.get(&entry.upto_seq) {
                Some(&seq) => {
                    self.index.seqs[seq as usize].place = Loc::Run(number);
                    run.batch.push(seq);
                }
                None => run.unknown = true,
            },
            Change::Purged => run.unknown = true,
            _ if self.truncated => {
                (run.unknown, run.attempts, run.token) = (true, entry.attempt, entry.token);
            }
            _ => {
                let what = format!("{} of a run that was never claimed", entry.change);
                return Err(self.wrong(entry, Invariant::LegalMoves, what, "a claim before it"));
            }
        }
        self.runs.insert(number, run);
        Ok(())
    }

    /// Events left the open run: its window waits for the latest of those that stay.
    fn shrink(&mut self) {
        let latest = self.lane.open.iter().filter_map(|&s| self.index.seqs[s as usize].received_at).max();
        self.lane.window.shrunk(latest);
    }

    /// A running run is changed by its holder, or after its lease.
    fn by_holder(&mut self, entry: &AuditEntry, number: u64, change: Change) -> Checked {
        let run = &self.runs[&number];
        if entry.token != run.token {
            let what = format!("{} was made by token {}", entry.change, entry.token);
            let expected = format!("token {}, which holds the run", run.token);
            return Err(self.wrong(entry, Invariant::Fencing, what, expected));
        }
        let early = run.lease_until.is_some_and(|until| entry.at < until);
        if matches!(change, Change::Reclaimed | Change::Expired) && early {
            let what = format!("the lease was taken back at {}", entry.at);
            let expected = format!("not before it ends at {:?}", run.lease_until.unwrap_or_default());
            return Err(self.wrong(entry, Invariant::OneLease, what, expected));
        }
        let left = run.max_attempts.map(|max| run.attempts < max);
        let wrong = match change {
            Change::Retried | Change::Reclaimed | Change::ReleasedCounted => left == Some(false),
            Change::Exhausted | Change::Expired => left == Some(true),
            _ => false,
        };
        if wrong && !run.unknown {
            let max = run.max_attempts.unwrap_or_default();
            let what = format!("{} after attempt {} of {max}", entry.change, run.attempts);
            let expected = "the dead letter after the last attempt, and not before";
            return Err(self.wrong(entry, Invariant::Attempts, what, expected));
        }
        let refunded = run.attempts.saturating_sub(u32::from(change.refunds()));
        // Whether a restore gives the attempt back is the store's choice.
        let choice = change == Change::Restored && entry.attempt + 1 == run.attempts;
        if entry.attempt != refunded && !choice {
            let what = format!("{} leaves attempt {}", entry.change, entry.attempt);
            return Err(self.wrong(entry, Invariant::Attempts, what, format!("attempt {refunded}")));
        }
        Ok(())
    }

    fn obeys_rules(&self, entry: &AuditEntry, number: u64, change: Change) -> Checked {
        let run = &self.runs[&number];
        let policy = self.index.policy(self.lane.id);
        let gives_way = matches!(change, Change::Superseded | Change::Interrupted);
        if run.held && (gives_way || change == Change::Split) {
            let what = format!("{} after the run was held", entry.change);
            return Err(self.wrong(entry, Invariant::Held, what, "no interrupt, supersede, merge or bisect"));
        }
        if run.cancel && change.ends_attempt() {
            let ends = matches!(change, Change::Succeeded | Change::Cancelled | Change::Restored);
            if !ends {
                let what = format!("{} after a cancel was asked for", entry.change);
                return Err(self.wrong(
                    entry,
                    Invariant::Cancel,
                    what,
                    "cancelled, or succeeded by the holder",
                ));
            }
        }
        if gives_way {
            if run.kind != Kind::Plain {
                let what = format!("{} of a half or a redriven run", entry.change);
                return Err(self.wrong(entry, Invariant::FrozenBatch, what, "its batch is frozen"));
            }
            let solid = run.batch.iter().filter(|&&s| self.is_solid(s)).count() as u64;
            let full = policy.is_some_and(|p| solid >= p.max_events);
            // What asks another source could not become part of it.
            let first = self.lane.open.front().filter(|_| self.lane.open.iter().all(|&s| self.is_solid(s)));
            let own = run.batch.iter().find(|&&s| self.is_solid(s));
            let other = first.zip(own).is_some_and(|(&first, &own)| self.source(first) != self.source(own));
            let alone = change == Change::Superseded
                && (self.lane.open.is_empty() || other)
                && !self.index.may_hide(self.lane.id);
            if alone || full {
                let what = format!(
                    "{} with {} newer events, batch of {}",
                    entry.change,
                    self.lane.open.len(),
                    run.batch.len()
                );
                let expected = "newer events, and room for them in the batch";
                return Err(self.wrong(entry, Invariant::GiveWay, what, expected));
            }
            if let Some(policy) = policy.filter(|p| run.interrupts >= p.max_interrupts) {
                let what = format!("{} after {} times", entry.change, run.interrupts);
                let expected = format!("at most {} times", policy.max_interrupts);
                return Err(self.wrong(entry, Invariant::Interrupts, what, expected));
            }
        }
        if change == Change::Released && run.releases >= REFUNDS_MAX {
            let what = format!("hand-back {} was refunded", run.releases + 1);
            return Err(self.wrong(entry, Invariant::Refunds, what, "at most 10 refunds, then they count"));
        }
        self.waits_long_enough(entry, number, change)
    }

    /// The wait that a retry or a second hand-back leaves behind is the queue's backoff, unless the handler chose it.
    fn waits_long_enough(&self, entry: &AuditEntry, number: u64, change: Change) -> Checked {
        let run = &self.runs[&number];
        let Some(policy) = self.index.policy(self.lane.id) else { return Ok(()) };
        let least = match change {
            Change::Retried => backoff_min(policy, run.retries),
            Change::Released | Change::ReleasedCounted if run.releases_in_row > 0 => backoff_min(policy, 0),
            _ => return Ok(()),
        };
        let known = self.own_delay.get(&entry.token) == Some(&false);
        if let Some(next_at) = entry.next_at
            && known
            && !run.unknown
            && next_at - entry.at < least
        {
            let what = format!("{} waits {} ms", entry.change, next_at - entry.at);
            let expected = format!("at least {least} ms after {} retries", run.retries);
            return Err(self.wrong(entry, Invariant::NotEarly, what, expected));
        }
        Ok(())
    }

    fn apply(&mut self, entry: &AuditEntry, number: u64, change: Change, to: State) {
        let blocks = self.index.policy(self.lane.id).is_some_and(|p| p.on_failed == OnFailed::Block);
        let Some(run) = self.runs.get_mut(&number) else { return };
        let was_running = run.state == State::Running;
        run.state = to;
        match change {
            Change::Held => run.held = true,
            Change::CancelRequested => run.cancel = true,
            Change::Flushed => run.not_before = None,
            Change::Succeeded if run.cancel => self.index.some.saw(Thing::CancelLostToSuccess),
            Change::Split => self.lane.splitting.push(number),
            Change::Retried => run.retries += 1,
            Change::Released => run.releases += 1,
            Change::Superseded | Change::Interrupted => run.interrupts += 1,
            Change::Failed | Change::Exhausted | Change::Expired if blocks => {
                self.lane.must_block = Some(number);
            }
            _ => {}
        }
        if was_running && change.ends_attempt() {
            let in_row = matches!(change, Change::Released | Change::ReleasedCounted);
            run.releases_in_row = if in_row { run.releases_in_row + 1 } else { 0 };
            run.attempts = entry.attempt;
            run.last_end = Some(change);
            // What a run that gave way waits for is the window, and that may move.
            let waits = !matches!(change, Change::Superseded | Change::Interrupted);
            run.not_before = entry.next_at.filter(|_| waits && !to.is_final());
            let (to, verdict, next_at, at) = (entry.to, entry.verdict, entry.next_at, entry.at);
            let end = End { change, to, verdict, next_at, at };
            if let Some(attempt) = self.attempts.get_mut(&run.token) {
                attempt.end = Some(end);
            }
        }
        if to.is_final() {
            if self.lane.current == Some(number) {
                self.lane.current = None;
            }
            self.lane.waiting.retain(|&other| other != number);
        }
    }

    /// A half of a failed run: the part of its parent that no earlier half has taken, up to its own highest event.
    fn split_off(&mut self, entry: &AuditEntry, number: u64) -> Checked {
        let parent = entry.other_run.filter(|other| self.lane.splitting.contains(other));
        let Some(parent) = parent else {
            if self.truncated {
                let mut run = Run::new(self.lane.id, State::Pending, Kind::Half);
                (run.unknown, run.upto) = (true, entry.upto_seq);
                self.runs.insert(number, run);
                return Ok(());
            }
            let what = format!("a half of {:?}, which was not split", entry.other_run);
            return Err(self.wrong(entry, Invariant::LegalMoves, what, "a split before it"));
        };
        let mut half = Run::new(self.lane.id, State::Pending, Kind::Half);
        half.upto = entry.upto_seq;
        let from = &self.runs[&parent];
        half.unknown = from.unknown;
        half.root = if from.kind == Kind::Half { from.root } else { parent };
        let seqs = &self.index.seqs;
        let mine = |s: &&u32| {
            let one = &seqs[**s as usize];
            one.place == Loc::Run(parent) && one.seq <= entry.upto_seq
        };
        half.batch = from.batch.iter().filter(mine).copied().collect();
        self.enqueue(entry, number, half, parent)
    }

    /// A new run made of the events of one that ended; or, as new, events that have joined the open run already.
    fn redriven(&mut self, entry: &AuditEntry, number: u64) -> Checked {
        let Some(old) = entry.other_run else {
            let what = "a redrive that does not say of what";
            return Err(self.wrong(entry, Invariant::AuditIsState, what, "the run whose events it takes"));
        };
        if self.lane.blocked == Some(old) {
            self.lane.blocked = None;
        }
        if self.lane.must_block == Some(old) {
            self.lane.must_block = None;
        }
        // Its highest event waits in the open run, or the store says that it is a plain run: then the events were redriven as new. What is older than the trail may
        // have left the open run long ago.
        let open = |&s: &u32| self.is_solid(s) && self.place(s) == Loc::Open;
        let plain = self.dumped.get(&number).is_some_and(|row| row.redriven_from.is_none());
        let waits = plain || self.index.by_seq.get(&entry.upto_seq).is_some_and(open);
        let Some(from) = self.runs.get_mut(&old) else {
            if self.truncated && waits {
                self.index.some.saw(Thing::RedrivenAsNew);
                return Ok(());
            }
            if self.truncated {
                let mut run = Run::new(self.lane.id, State::Pending, Kind::Redriven);
                run.unknown = true;
                self.runs.insert(number, run);
                return Ok(());
            }
            let what = format!("run {old} was redriven, and the trail does not know it");
            return Err(self.wrong(entry, Invariant::AuditIsState, what, "a run that has ended"));
        };
        if !matches!(from.state, State::Failed | State::Cancelled) {
            let what = format!("run {old} was redriven while {:?}", from.state);
            return Err(self.wrong(entry, Invariant::LegalMoves, what, "only dead or discarded events"));
        }
        from.redriven = true;
        if entry.upto_seq > from.upto {
            self.index.some.saw(Thing::RedrivenAsNew);
            return Ok(());
        }
        let mut run = Run::new(self.lane.id, State::Pending, Kind::Redriven);
        (run.root, run.unknown, run.upto) = (old, from.unknown, entry.upto_seq);
        run.batch = self.part(entry, number, old);
        self.enqueue(entry, number, run, old)
    }

    /// Which events of a run that ended went into the one that a redrive made: those that were handed out with it, else
    /// those that were asked for. Where that leaves several answers, what they differ in is vague.
    fn part(&mut self, entry: &AuditEntry, number: u64, old: u64) -> Vec<u32> {
        let seq_of = |s: &u32| self.index.seqs[*s as usize].seq;
        let left = self.runs[&old].batch.iter().copied().filter(|&s| self.place(s) == Loc::Run(old));
        let left: Vec<u32> = left.collect();
        if let Some(heard) = self.heard.get(&number) {
            let handed = |s: &u32| heard.events.iter().any(|e| e.seq == seq_of(s)) || !self.is_solid(*s);
            return left.into_iter().filter(handed).collect();
        }
        let row = self.dumped.get(&number).map(|r| (r.lo, r.hi)).filter(|&(_, hi)| hi > 0);
        let fits = |part: &Vec<u32>| {
            let ends = part.first().map(seq_of).zip(part.last().map(seq_of));
            ends.is_some_and(|(lo, hi)| hi == entry.upto_seq && row.is_none_or(|row| row == (lo, hi)))
        };
        let asked = self.redrives.get(&old).map_or(&[][..], |all| &all[..]);
        let chosen = |ids: &&[Name]| -> Vec<u32> {
            let named = |s: &u32| {
                let id = self.index.events[self.index.seqs[*s as usize].event as usize].id;
                ids.is_empty() || ids.contains(id)
            };
            left.iter().copied().filter(named).collect()
        };
        let mut parts: Vec<Vec<u32>> = asked.iter().map(chosen).filter(fits).collect();
        parts.sort_unstable();
        parts.dedup();
        let Some(first) = parts.first().cloned() else {
            let (lo, hi) = row.unwrap_or((0, self.runs[&old].upto));
            return left.into_iter().filter(|s| (lo..=hi).contains(&seq_of(s))).collect();
        };
        let (sure, vague): (Vec<u32>, Vec<u32>) =
            left.into_iter().partition(|s| parts.iter().all(|part| part.contains(s)));
        for seq in vague.into_iter().filter(|s| parts.iter().any(|part| part.contains(s))) {
            self.index.seqs[seq as usize].vague = true;
        }
        if parts.len() == 1 { first } else { sure }
    }

    fn enqueue(&mut self, entry: &AuditEntry, number: u64, mut run: Run<'a>, from: u64) -> Checked {
        run.unknown |= run.batch.is_empty() && self.index.may_hide(self.lane.id);
        if run.batch.is_empty() && !run.unknown {
            let what = format!("run {number} takes the events of {from}, and none are left there");
            let expected = "an event belongs to one run that nothing has replaced";
            return Err(self.wrong(entry, Invariant::SerialCommits, what, expected));
        }
        for &seq in &run.batch {
            self.index.seqs[seq as usize].place = Loc::Run(number);
        }
        self.lane.waiting.push(number);
        self.runs.insert(number, run);
        Ok(())
    }
}
