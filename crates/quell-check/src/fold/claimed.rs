//! A claim in the trail: who may be claimed, which events it gets, and when.

use super::{Attempt, Fold, Kind, Run, Window};
use crate::history::{AuditEntry, Claim, DuringRun, FiredBy, Policy, RetryWith, State};
use crate::index::Loc;
use crate::sometimes::Thing;
use crate::table::Change;
use crate::violation::{Checked, Fault, Invariant};

impl<'a> Fold<'_, 'a> {
    pub(super) fn claimed(&mut self, entry: &'a AuditEntry) -> Checked {
        let Some(number) = entry.run else {
            return Err(self.wrong(entry, Invariant::AuditIsState, "a claim without a run", "its run"));
        };
        self.may_be_claimed(entry, number)?;
        let told = self.index.claims.get(&entry.token).map(|told| told.claim);
        if told.is_none() {
            self.index.some.saw(Thing::UnknownClaimHappened);
        }
        if let Some(told) = told
            && (told.run, told.attempt) != (number, entry.attempt)
        {
            let what = format!("the worker was told run {}, attempt {}", told.run, told.attempt);
            let expected = format!("run {number}, attempt {}, as in the trail", entry.attempt);
            return Err(self.wrong(entry, Invariant::AuditIsState, what, expected));
        }
        let first = !self.runs.contains_key(&number);
        if first {
            let mut run = Run::new(self.lane.id, State::Pending, Kind::Plain);
            if self.begins_before(entry, number) {
                (run.unknown, run.attempts) = (true, entry.attempt.saturating_sub(1));
                run.state = entry.from.unwrap_or(State::Pending);
            }
            self.runs.insert(number, run);
        }
        self.is_legal(entry, number)?;
        self.counts_attempt(entry, number, told)?;
        let unknown = self.runs[&number].unknown;
        if unknown {
            self.takes(entry, number, told);
        } else {
            self.not_early(entry, number, first, told)?;
            if first { self.first_batch(entry, number, told)? } else { self.same_batch(entry, number, told)? }
        }
        self.revision(entry, number, told)?;
        self.take_up(entry, number);
        Ok(())
    }

    /// Whether the trail may have lost earlier claims of this run: it has claims already, or its events are older than
    /// the first record.
    fn begins_before(&self, entry: &AuditEntry, number: u64) -> bool {
        let Some(dump) = self.index.dump.filter(|d| d.audit_from.is_some()) else { return false };
        let heard = self.heard.get(&number).and_then(|claim| claim.events.first()).map(|e| e.seq);
        let lo = heard.or_else(|| self.dumped.get(&number).map(|row| row.lo));
        entry.attempt > 1
            || entry.from == Some(State::Retryable)
            || lo.is_none_or(|lo| dump.is_before_trail(lo))
    }

    /// What is known to wait leaves the open run with a run whose beginning the trail has lost: all that was handed out,
    /// or all up to its highest event, unless its batch never came from the open run.
    fn takes(&mut self, entry: &AuditEntry, number: u64, told: Option<&Claim>) {
        let row = self.dumped.get(&number);
        let frozen = row.is_some_and(|r| r.redriven_from.is_some() || r.split_from.is_some())
            || self.runs[&number].kind != Kind::Plain;
        let taken = match told {
            Some(told) => self.take_open(number, |seq| told.events.iter().any(|e| e.seq == seq)),
            None if frozen => Vec::new(),
            None => self.take_open(number, |seq| seq <= entry.upto_seq),
        };
        if let Some(&next) = self.lane.open.front().filter(|_| !taken.is_empty()) {
            self.lane.window = self.lane.window.leftover(self.index.seqs[next as usize].received_at);
        }
    }

    /// The lane is free, and it is this run's turn.
    fn may_be_claimed(&self, entry: &AuditEntry, number: u64) -> Checked {
        let lane = &self.lane;
        if let Some(current) = lane.current {
            let running = self.runs[&current].state == State::Running;
            if running {
                let what =
                    format!("run {current} still holds the lane with token {}", self.runs[&current].token);
                return Err(self.wrong(entry, Invariant::OneLease, what, "one live lease per lane"));
            }
            if current != number {
                let what = format!("run {number} was claimed while run {current} waits for its next attempt");
                return Err(self.wrong(entry, Invariant::SerialCommits, what, "a retry is never overtaken"));
            }
        }
        if lane.paused {
            let what = "the lane is paused";
            return Err(self.wrong(entry, Invariant::Pause, what, "no claim before it is resumed"));
        }
        if let Some(failed) = lane.blocked {
            let what = format!("the lane is blocked by run {failed}");
            return Err(self.wrong(
                entry,
                Invariant::Block,
                what,
                "no claim before an operator ends the block",
            ));
        }
        if let Some(failed) = lane.must_block {
            let what = format!("run {failed} failed on a queue that blocks, and the lane went on");
            return Err(self.wrong(entry, Invariant::Block, what, "blocked"));
        }
        if entry.token <= lane.last_token {
            let what = format!("token {} after {}", entry.token, lane.last_token);
            return Err(self.wrong(entry, Invariant::TokensRise, what, "tokens of a lane strictly rise"));
        }
        let mine = self.runs.get(&number);
        let waits = |kind| {
            lane.waiting.iter().copied().find(|other| *other != number && self.runs[other].kind == kind)
        };
        if mine.is_none()
            && !self.begins_before(entry, number)
            && let Some(other) = waits(Kind::Half).or_else(|| waits(Kind::Redriven))
        {
            let what = format!("new events were handed out while run {other} waits to be claimed");
            let expected = "halves and redriven runs go before anything buffered";
            return Err(self.wrong(entry, Invariant::SerialCommits, what, expected));
        }
        if let Some(mine) = mine.filter(|run| run.kind == Kind::Half) {
            let earlier = lane.waiting.iter().find(|other| {
                let run = &self.runs[*other];
                // Of a half whose events were erased, and whose arrival nobody saw, the place is not known.
                run.kind == Kind::Half
                    && run.root == mine.root
                    && !run.batch.is_empty()
                    && self.lowest(run) < self.lowest(mine)
            });
            if let Some(other) = earlier {
                let what = format!("half {number} was claimed before {other}");
                return Err(self.wrong(entry, Invariant::SerialCommits, what, "the left half first"));
            }
        }
        Ok(())
    }

    fn lowest(&self, run: &Run<'_>) -> u64 {
        run.batch.first().map_or(0, |&seq| self.index.seqs[seq as usize].seq)
    }

    fn counts_attempt(&mut self, entry: &AuditEntry, number: u64, told: Option<&Claim>) -> Checked {
        let policy = self.index.policy(self.lane.id);
        let run = &self.runs[&number];
        let counted = run.attempts + 1;
        if entry.attempt != counted {
            let what = format!("the claim counts as attempt {}", entry.attempt);
            let expected = format!("attempt {counted}: {} claims so far, less the refunds", run.claims);
            return Err(self.wrong(entry, Invariant::Attempts, what, expected));
        }
        let max = match (run.kind, told) {
            (Kind::Half, _) => Some(1),
            (_, Some(told)) => Some(told.max_attempts),
            (_, None) => policy.map(|p| p.max_attempts),
        };
        if let Some(max) = max
            && (counted > max || (run.kind == Kind::Half && told.is_some_and(|t| t.max_attempts != 1)))
        {
            let what = format!("attempt {counted} of a run that has {max}");
            return Err(self.wrong(entry, Invariant::Attempts, what, "attempts never go above their budget"));
        }
        if let Some(run) = self.runs.get_mut(&number) {
            run.attempts = counted;
            run.claims += 1;
            run.max_attempts = max;
        }
        Ok(())
    }

    /// In store time: not before the window is over, or the wait that the last attempt left behind.
    fn not_early(&self, entry: &AuditEntry, number: u64, first: bool, told: Option<&Claim>) -> Checked {
        let policy = self.index.policy(self.lane.id);
        let run = &self.runs[&number];
        let gave_way = matches!(run.last_end, Some(Change::Interrupted | Change::Superseded));
        let window = &self.window_of(number, told);
        if let Some(policy) = policy
            && (first || (gave_way && self.waits_for_newer(number)))
            && let Some(due) = window.due(policy)
            && entry.at < due
        {
            let what = format!("claimed at {}", entry.at);
            let expected = format!("not before {due}: {:?}", policy.window);
            return Err(self.wrong(entry, Invariant::NotEarly, what, expected));
        }
        let hides = self.index.may_hide(self.lane.id);
        if let (true, false, Some(policy), Some(told)) = (first, hides, policy, told) {
            let honest = match told.fired_by {
                FiredBy::Count => window.count_reached(policy),
                FiredBy::Bytes => window.bytes_reached(policy),
                FiredBy::Flush => window.was_flushed(),
                _ => true,
            };
            if !honest {
                let what = format!("the claim says fired_by {:?}, which never happened", told.fired_by);
                return Err(self.wrong(
                    entry,
                    Invariant::NotEarly,
                    what,
                    "the reason that closed the window",
                ));
            }
        }
        if let Some(until) = run.not_before
            && entry.at < until
        {
            let what = format!("claimed again at {}", entry.at);
            let expected = format!("not before {until}, which its last attempt left behind");
            return Err(self.wrong(entry, Invariant::NotEarly, what, expected));
        }
        Ok(())
    }

    /// Whether newer events wait that can become part of a run: those of another source cannot.
    fn waits_for_newer(&self, number: u64) -> bool {
        let newer = self.lane.open.iter().find(|&&s| self.is_solid(s));
        let own = self.runs[&number].batch.first();
        newer.is_some_and(|&newer| own.is_none_or(|&own| self.source(own) == self.source(newer)))
    }

    /// The window of the open run. Where an event may have waited that no record tells, it may have opened the window
    /// earlier, or have closed it.
    fn window_of(&self, number: u64, told: Option<&Claim>) -> Window {
        let window = self.lane.window;
        if !self.index.may_hide(self.lane.id) {
            return window;
        }
        let by_time = told.filter(|t| matches!(t.fired_by, FiredBy::Fixed | FiredBy::Quiet | FiredBy::Cap));
        let opened = self.dumped.get(&number).and_then(|row| row.first_at);
        window.opened_by(by_time.and(opened))
    }

    /// The first claim of a run cuts its batch out of the open run: a prefix, as long as the bounds allow.
    fn first_batch(&mut self, entry: &AuditEntry, number: u64, told: Option<&Claim>) -> Checked {
        let batch = self.cut(entry, number, told, 0)?;
        if let Some(run) = self.runs.get_mut(&number) {
            run.batch = batch;
        }
        self.within_bounds(entry, number)
    }

    /// Takes from the open run what a claim took from it; `from` events of what was told are not from there.
    fn cut(
        &mut self,
        entry: &AuditEntry,
        number: u64,
        told: Option<&Claim>,
        from: usize,
    ) -> Result<Vec<u32>, Box<Fault>> {
        let upto = match told.and_then(|t| t.events.last()) {
            Some(last) => last.seq,
            None => entry.upto_seq,
        };
        if let Some(told) = told {
            self.is_prefix(entry, told, from)?;
            if entry.upto_seq != upto {
                let what = format!("the trail says up to {}, the worker was told {upto}", entry.upto_seq);
                return Err(self.wrong(entry, Invariant::AuditIsState, what, "the same batch"));
            }
        }
        let mut batch = Vec::new();
        while let Some(&seq) = self.lane.open.front() {
            let one = &mut self.index.seqs[seq as usize];
            if one.seq > upto {
                break;
            }
            self.lane.open.pop_front();
            // One that may have vanished, and is not in what was told, has.
            let gone = one.vague && told.is_some_and(|t| t.events.iter().all(|e| e.seq != one.seq));
            one.place = if gone { Loc::Nowhere } else { Loc::Run(number) };
            if !gone {
                batch.push(seq);
            }
        }
        let hidden = told.is_none() && self.index.may_hide(self.lane.id);
        if hidden && !self.index.by_seq.contains_key(&upto) {
            if let Some(run) = self.runs.get_mut(&number) {
                run.unknown = true;
            }
        } else if batch.is_empty() {
            let what = format!("a batch up to {upto} was claimed, and no such event waits");
            return Err(self.wrong(entry, Invariant::WholeBatch, what, "at least one event that waits"));
        }
        if let Some(&next) = self.lane.open.front() {
            self.index.some.saw(Thing::LeftOver);
            self.lane.window = self.lane.window.leftover(self.index.seqs[next as usize].received_at);
        }
        Ok(batch)
    }

    /// What was told is the front of the open run, without a gap.
    fn is_prefix(&self, entry: &AuditEntry, told: &Claim, from: usize) -> Checked {
        let events = &told.events[from..];
        let mut open =
            self.lane.open.iter().filter(|&&s| self.is_solid(s)).map(|&s| &self.index.seqs[s as usize]);
        let mut inside = false;
        let mut last = 0;
        for event in events {
            let Some(&seq) = self.index.by_seq.get(&event.seq) else { continue };
            if event.seq <= last {
                let what = format!("event {} was handed out after {last}", event.seq);
                let fault =
                    self.wrong(entry, Invariant::SerialCommits, what, "events in the order of their numbers");
                return Err(fault.seq(event.seq));
            }
            last = event.seq;
            if !self.is_solid(seq) {
                continue;
            }
            match self.place(seq) {
                Loc::Open => {}
                Loc::Run(other) => {
                    let what = format!("event {} was handed out, and it belongs to run {other}", event.seq);
                    let expected = "a second delivery only by retry, merge, split or redrive";
                    return Err(self
                        .wrong(entry, Invariant::ExplainedDuplicates, what, expected)
                        .seq(event.seq));
                }
                Loc::Nowhere => {
                    let what = format!("event {} was handed out before it arrived", event.seq);
                    return Err(self.wrong(entry, Invariant::WholeBatch, what, "only events that wait"));
                }
            }
            if let Some(waits) = open.next()
                && waits.seq != event.seq
            {
                let invariant = if inside { Invariant::WholeBatch } else { Invariant::SerialCommits };
                let what = format!("event {} was handed out while {} waits", event.seq, waits.seq);
                let fault = self.wrong(entry, invariant, what, "everything from the first waiting event on");
                return Err(fault.seq(waits.seq));
            }
            inside = true;
        }
        Ok(())
    }

    /// The smallest and the largest size that these events may have together.
    fn bytes_of(&self, seqs: &[u32]) -> (u64, u64) {
        let sizes = seqs.iter().map(|&s| self.index.sizes(self.index.seqs[s as usize].event));
        sizes.fold((0, 0), |(least, most), (a, b)| (least + a, most + b))
    }

    /// The batch keeps its bounds, and nothing that fits was left behind.
    fn within_bounds(&mut self, entry: &AuditEntry, number: u64) -> Checked {
        let run = &self.runs[&number];
        let count = run.batch.len() as u64;
        let (_, bytes) = self.bytes_of(&run.batch);
        self.index.some.saw(if count == 1 { Thing::BatchOfOne } else { Thing::BatchOfMany });
        let Some(policy) = self.index.policy(self.lane.id).filter(|_| !self.lane.window.own) else {
            return Ok(());
        };
        if count == policy.max_events {
            self.index.some.saw(Thing::BatchAtCap);
        }
        let solid: Vec<u32> =
            self.runs[&number].batch.iter().copied().filter(|&s| self.is_solid(s)).collect();
        let (solid, least) = (solid.len() as u64, self.bytes_of(&solid).0);
        if solid > policy.max_events || (least > policy.max_bytes && solid > 1) {
            let what = format!("a batch of {solid} events, {least} bytes");
            let expected = format!("at most {} events, {} bytes", policy.max_events, policy.max_bytes);
            return Err(self.wrong(entry, Invariant::WholeBatch, what, expected));
        }
        if let Some(next) = self.left_behind(number, policy) {
            let seq = self.index.seqs[next as usize].seq;
            let what = format!("event {seq} was left behind by a batch of {count} events, {bytes} bytes");
            let expected =
                format!("everything up to {} events, {} bytes", policy.max_events, policy.max_bytes);
            return Err(self.wrong(entry, Invariant::WholeBatch, what, expected).seq(seq));
        }
        Ok(())
    }

    /// The first event that waits though there is room for it. One that may have vanished may also have been in the way,
    /// if there was no room for it. A batch ends where another source begins.
    fn left_behind(&self, number: u64, policy: &Policy) -> Option<u32> {
        let batch = &self.runs[&number].batch;
        let (count, (_, bytes)) = (batch.len() as u64, self.bytes_of(batch));
        if count >= policy.max_events || self.index.may_hide(self.lane.id) {
            return None;
        }
        let own = batch.first().map(|&s| self.source(s));
        let fits = |&&s: &&u32| {
            bytes + self.bytes_of(&[s]).1 <= policy.max_bytes && own.is_none_or(|own| own == self.source(s))
        };
        self.lane.open.iter().take_while(fits).copied().find(|&s| self.is_solid(s))
    }

    /// A later claim of a run repeats its batch, or takes newer events in behind it.
    fn same_batch(&mut self, entry: &AuditEntry, number: u64, told: Option<&Claim>) -> Checked {
        let run = &self.runs[&number];
        if run.claims > 1 {
            self.index.some.saw(Thing::Redelivery);
        }
        let had: Vec<u64> = run
            .batch
            .iter()
            .filter(|&&s| self.is_solid(s))
            .map(|&s| self.index.seqs[s as usize].seq)
            .collect();
        let hi = run.batch.last().map_or(0, |&s| self.index.seqs[s as usize].seq);
        let mut old = 0;
        let merges = match told {
            Some(told) => {
                let solid = |seq: u64| self.index.by_seq.get(&seq).is_none_or(|&s| self.is_solid(s));
                let now: Vec<u64> = told.events.iter().map(|e| e.seq).filter(|&s| solid(s)).collect();
                if now.len() < had.len() || now[..had.len()] != had[..] {
                    let what = format!("the batch was {had:?} and is now {now:?}");
                    let expected = "every attempt of a run gets the same events, newer ones only behind them";
                    return Err(self.wrong(entry, Invariant::FrozenBatch, what, expected));
                }
                old = told.events.partition_point(|e| e.seq <= hi);
                now.len() > had.len()
            }
            None => false,
        };
        // The trail tells a merge even where the events have been erased since.
        let merges = merges || entry.upto_seq > run.upto;
        if merges {
            self.may_merge(entry, number)?;
            let taken = self.cut(entry, number, told, old)?;
            if let Some(run) = self.runs.get_mut(&number) {
                run.batch.extend(taken);
                run.merges += 1;
            }
            return self.within_bounds(entry, number);
        }
        self.should_have_merged(entry, number)
    }

    fn may_merge(&self, entry: &AuditEntry, number: u64) -> Checked {
        let run = &self.runs[&number];
        if run.held {
            let what = "newer events were merged into a run that was held";
            return Err(self.wrong(entry, Invariant::Held, what, "its batch is frozen"));
        }
        let gave_way = matches!(run.last_end, Some(Change::Interrupted | Change::Superseded));
        let allowed = gave_way
            || self
                .index
                .policy(self.lane.id)
                .is_none_or(|p| p.retry_with == RetryWith::Newer || p.during_run != DuringRun::Queue);
        if !allowed || run.kind != Kind::Plain {
            let what = "newer events were merged into the run";
            return Err(self.wrong(entry, Invariant::FrozenBatch, what, "its batch is frozen by policy"));
        }
        if run.last_end == Some(Change::Retried) && run.max_attempts == Some(run.attempts) {
            let what = "the last attempt took newer events in";
            return Err(self.wrong(entry, Invariant::FrozenBatch, what, "it repeats what has failed before"));
        }
        Ok(())
    }

    /// A run that gave way forms one batch with what it gave way to, if there is room.
    fn should_have_merged(&self, entry: &AuditEntry, number: u64) -> Checked {
        let run = &self.runs[&number];
        let gave_way = matches!(run.last_end, Some(Change::Interrupted | Change::Superseded));
        let Some(policy) = self.index.policy(self.lane.id) else { return Ok(()) };
        if let Some(next) = self.left_behind(number, policy)
            && gave_way
            && !self.lane.window.own
        {
            let seq = self.index.seqs[next as usize].seq;
            let what = format!("the run gave way to newer events and did not take {seq} in");
            return Err(self
                .wrong(entry, Invariant::WholeBatch, what, "old and new form one batch")
                .seq(seq));
        }
        Ok(())
    }

    fn revision(&mut self, entry: &AuditEntry, number: u64, told: Option<&Claim>) -> Checked {
        let run = &self.runs[&number];
        let Some(told) = told.filter(|_| !run.unknown) else { return Ok(()) };
        let first = run.first_revision.unwrap_or_else(|| told.revision.saturating_sub(run.merges));
        if told.revision != first + run.merges {
            let what = format!("revision {}", told.revision);
            let expected = format!("revision {}: {first} and {} merges", first + run.merges, run.merges);
            return Err(self.wrong(entry, Invariant::Revision, what, expected));
        }
        if let Some(run) = self.runs.get_mut(&number) {
            run.first_revision = Some(first);
        }
        Ok(())
    }

    /// From here on the run is held.
    fn take_up(&mut self, entry: &'a AuditEntry, number: u64) {
        let extended = self.index.extended.get(&entry.token).copied();
        self.lane.last_token = entry.token;
        self.lane.current = Some(number);
        self.lane.waiting.retain(|&other| other != number);
        let Some(run) = self.runs.get_mut(&number) else { return };
        if run.claims > 1 && run.worker.is_some() && run.worker != entry.worker.as_ref() {
            self.index.some.saw(Thing::ReclaimByAnother);
        }
        run.state = State::Running;
        run.token = entry.token;
        run.upto = entry.upto_seq;
        run.worker = entry.worker.as_ref();
        run.lease_until = entry.next_at.max(extended);
        run.not_before = None;
        let (events, attempt) = (run.batch.len(), run.attempts);
        self.attempts.insert(entry.token, Attempt { run: number, events, number: attempt, end: None });
    }
}
