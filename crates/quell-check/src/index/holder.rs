//! What workers are told: claims, calls of the holder, handlers, and the fenced sink.

use super::{At, Begun, Call, Index, Memo, SettledAs, Told, malformed};
use crate::fast::Map;
use crate::history::{Answer, Claim, Name, Op, Refusal, StepAnswer};
use crate::history::{FiredBy, HoldAnswer, Phase};
use crate::sometimes::Thing;
use crate::violation::{Checked, Invariant, fault};

impl<'a> Index<'a> {
    pub(super) fn claimed(
        &mut self,
        asked: At,
        done: At,
        claim_id: Option<&'a Name>,
        claim: &'a Claim,
    ) -> Checked {
        let lane = self.lane(&claim.lane);
        let place = |f: Box<crate::violation::Fault>| f.lane(&claim.lane).run(claim.run).token(claim.token);
        if let Some(first) = self.claims.get(&claim.token) {
            let repeated = claim_id.is_some() && first.claim_id == claim_id;
            let same = first.claim.run == claim.run
                && first.claim.attempt == claim.attempt
                && first.claim.events == claim.events;
            if repeated && same {
                self.some.saw(Thing::ClaimRepeated);
                return Ok(());
            }
            let (invariant, what) = match (repeated, self.restored_between(first.done, done)) {
                (true, _) => (Invariant::SameAnswer, "a repeated claim was answered with another batch"),
                (false, true) => (Invariant::Restore, "a token from before the restore was used again"),
                (false, false) => (Invariant::TokensRise, "a token was used twice"),
            };
            return Err(place(fault(invariant, what, format!("see #{} and #{done}", first.done))));
        }
        let told = &self.lanes[lane as usize].claimed;
        let over = told.partition_point(|&(at, _)| at < asked);
        if let Some(&(at, top)) = told[..over].last()
            && top >= claim.token
        {
            let crossed = self.restored_between(at, done);
            let invariant = if crossed { Invariant::Restore } else { Invariant::TokensRise };
            let what = format!("token {top} was told at #{at}, before this claim was asked");
            return Err(place(fault(invariant, what, format!("a token above {top}"))));
        }
        if claim.events.is_empty() {
            let what = "a batch without events was handed out";
            return Err(place(fault(Invariant::WholeBatch, what, "at least one event")));
        }
        let told = &mut self.lanes[lane as usize].claimed;
        let top = told.last().map_or(0, |&(_, top)| top).max(claim.token);
        told.push((done, top));
        self.some.saw(fired(claim.fired_by));
        self.claims.insert(claim.token, Told { claim, lane, asked, done, claim_id });
        Ok(())
    }

    /// No claim is made while a queue is certainly paused: after the answer to a pause, if no resume was under way since
    /// the pause was asked for, and no restore may have undone it. A claim that repeats an id may have been made when
    /// that id was used first.
    pub(super) fn pauses_stop_claims(&self) -> Checked {
        if self.queues.iter().all(|q| q.pauses.is_empty()) {
            return Ok(());
        }
        let mut first_asked: Map<&str, At> = Map::default();
        for call in &self.calls {
            if let Op::Claim { claim_id: Some(id), .. } = call.op {
                first_asked.entry(id.as_str()).or_insert(call.asked);
            }
        }
        let mut told: Vec<&Told<'_>> = self.claims.values().collect();
        told.sort_unstable_by_key(|told| told.done);
        for told in told {
            let Some(queue) = self.queues.get(self.lanes[told.lane as usize].queue as usize) else {
                continue;
            };
            let asked = told.claim_id.map_or(told.asked, |id| first_asked[id.as_str()]);
            let call = |id: &u32| &self.calls[*id as usize];
            let holds = |pause: &&Call<'_>| {
                let lifted = |resume: &Call<'_>| {
                    let over = if resume.phase == Phase::Ok { resume.done } else { At::MAX };
                    resume.phase != Phase::Fail && resume.asked < told.done && over > pause.asked
                };
                pause.phase == Phase::Ok
                    && pause.done < asked
                    && !self.doubtful(pause.asked, pause.done)
                    && !queue.resumes.iter().map(call).any(lifted)
            };
            if let Some(pause) = queue.pauses.iter().map(call).find(holds) {
                let what = format!("the queue was paused at #{} and claimed at #{}", pause.done, told.done);
                let fault = fault(Invariant::Pause, what, "no claim before the queue is resumed");
                return Err(fault.lane(&told.claim.lane).run(told.claim.run).token(told.claim.token));
            }
        }
        Ok(())
    }

    /// Calls that only a holder may make and that were answered.
    pub(super) fn by_holder(&mut self, asked: At, done: At, op: &'a Op, answer: &'a Answer) -> Checked {
        match (op, answer) {
            (Op::Extend { run, token }, Answer::Extended { lease_until }) => {
                self.holds(asked, *run, *token, "extend")?;
                self.some.saw(Thing::LeaseExtended);
                let until = self.extended.entry(*token).or_insert(*lease_until);
                *until = (*until).max(*lease_until);
                Ok(())
            }
            (Op::Hold { run, token, .. }, Answer::Hold(answer)) => {
                self.some.saw(match answer {
                    HoldAnswer::Held => Thing::HoldHeld,
                    HoldAnswer::Superseded => Thing::HoldSuperseded,
                    HoldAnswer::Interrupted => Thing::HoldInterrupted,
                });
                // A hold that gave way may be repeated and get the same answer, though it holds no longer.
                if *answer == HoldAnswer::Held { self.holds(asked, *run, *token, "hold") } else { Ok(()) }
            }
            (Op::StepBegin { run, token, revision, name, once }, Answer::Step(answer)) => {
                self.holds(asked, *run, *token, "step")?;
                self.step((*run, *revision, name), *token, *once, (asked, done), *answer)
            }
            (Op::StepFinish { run, token, revision, name, .. }, Answer::Step(answer)) => {
                self.holds(asked, *run, *token, "step")?;
                self.step((*run, *revision, name), *token, false, (asked, done), *answer)
            }
            (Op::Settle { run, token, verdict, .. }, Answer::Settled { state, next_at, .. }) => {
                let now = SettledAs { verdict: *verdict, state: *state, next_at: *next_at, done };
                let Some(first) = self.settled.get(token) else {
                    self.settled.insert(*token, now);
                    return Ok(());
                };
                if (first.verdict, first.state, first.next_at) != (*verdict, *state, *next_at) {
                    let what = format!(
                        "settled as {:?} ({:?}, next {:?}) at #{} and as {verdict:?} ({state:?}, next {next_at:?}) at #{done}",
                        first.verdict, first.state, first.next_at, first.done
                    );
                    let expected = "the same answer to the same verdict, a refusal to another";
                    return Err(fault(Invariant::SameAnswer, what, expected).run(*run).token(*token));
                }
                self.some.saw(Thing::SettleRepeated);
                Ok(())
            }
            (Op::Source { run, token, .. }, Answer::Source(_)) => {
                self.holds(asked, *run, *token, "a word to the source")
            }
            (Op::Backup { .. }, _) | (_, Answer::Done) => Ok(()),
            _ => Err(malformed(done, "an answer that does not fit its question")),
        }
    }

    /// A later claim of the lane, or the end of this attempt, was told before the call was asked: it cannot hold.
    fn holds(&self, asked: At, run: u64, token: u64, verb: &str) -> Checked {
        let complain = |what: String| {
            Err(fault(Invariant::Fencing, what, "a stale call is refused").run(run).token(token))
        };
        if let Some(told) = self.claims.get(&token) {
            let lane = &self.lanes[told.lane as usize];
            let over = lane.claimed.partition_point(|&(at, _)| at < asked);
            if let Some(&(at, top)) = lane.claimed[..over].last()
                && top > token
            {
                let what = format!("{verb} was accepted, though token {top} was told at #{at}");
                return complain(what);
            }
        }
        if let Some(settled) = self.settled.get(&token)
            && settled.done < asked
        {
            let what = format!("{verb} was accepted, though the attempt was settled at #{}", settled.done);
            return complain(what);
        }
        Ok(())
    }

    fn step(
        &mut self,
        (run, revision, name): (u64, u32, &'a Name),
        token: u64,
        once: bool,
        (asked, done): (At, At),
        answer: StepAnswer,
    ) -> Checked {
        // It may come late, and a restore has undone since what it tells: another attempt has done the step anew.
        if self.doubtful(asked, done) {
            return Ok(());
        }
        let lost = |asked: At, done: At| self.doubtful(asked, done);
        let memo = self.memos.get(&(run, revision, name.as_str()));
        let value =
            memo.and_then(|m| m.value).filter(|&(_, asked, at)| !lost(asked, at)).map(|(v, _, at)| (v, at));
        let begun =
            memo.and_then(|m| m.once).filter(|&(_, asked, at)| !lost(asked, at)).map(|(t, _, at)| (t, at));
        let complain = |what: String, expected: &str| {
            Err(fault(Invariant::StepMemo, what, expected).run(run).token(token))
        };
        match answer {
            StepAnswer::Value(got) => {
                if let Some((first, at)) = value
                    && first != got
                {
                    let what = format!(
                        "step {name} of revision {revision} was {first} at #{at} and {got} at #{done}"
                    );
                    return complain(what, "the first stored value, for ever");
                }
            }
            StepAnswer::Begun => {
                if let Some((first, at)) = value.filter(|&(_, at)| at < asked) {
                    let what = format!(
                        "step {name} of revision {revision} was {first} at #{at} and is not known at #{done}"
                    );
                    return complain(what, "the stored value");
                }
                if let Some((_, at)) = begun.filter(|&(by, at)| once && by != token && at < asked) {
                    let what = format!("step_once {name} began at #{at} and again at #{done}");
                    return complain(what, "unknown, because nobody knows what became of the first");
                }
            }
            StepAnswer::Unknown => {}
        }
        let memo = self.memos.entry((run, revision, name)).or_insert(Memo { value: None, once: None });
        match answer {
            StepAnswer::Value(got) => {
                if memo.value.is_some() {
                    self.some.saw(Thing::StepRemembered);
                }
                memo.value = Some((got, asked, done));
            }
            StepAnswer::Begun if once => memo.once = Some((token, asked, done)),
            StepAnswer::Begun => {}
            StepAnswer::Unknown => self.some.saw(Thing::StepUnknown),
        }
        Ok(())
    }

    pub(super) fn refused(&mut self, asked: At, op: &'a Op, refusal: Refusal) -> Checked {
        match (op, refusal) {
            (Op::Settle { .. }, Refusal::Stale) => self.some.saw(Thing::StaleSettleRefused),
            (Op::Settle { .. }, Refusal::AlreadySettled) => self.some.saw(Thing::AlreadySettledRefused),
            (Op::Extend { .. } | Op::Hold { .. }, Refusal::Stale) => self.some.saw(Thing::StaleExtendRefused),
            (_, Refusal::Limit) => self.some.saw(Thing::LimitAnswered),
            (Op::Append { events }, Refusal::Conflict) => {
                self.some.saw(Thing::ConflictAnswered);
                // Some event of the request must have met its id with another payload: in the store, or beside it.
                let explained = events.iter().any(|new| {
                    let lane = self.lane_ids.get(new.lane.as_str()).copied();
                    let event = lane.and_then(|lane| self.event_id(lane, &new.id));
                    event.is_some_and(|event| {
                        let edited = self.edits.iter().any(|e| e.event == event);
                        edited || self.sends_of(event).any(|send| send.hash != new.hash)
                    })
                });
                if let (false, Some(first)) = (explained, events.first()) {
                    let what = format!(
                        "a conflict was answered to the append asked at #{asked}, and no other payload was ever sent"
                    );
                    let expected = "a conflict only for a known id with another payload";
                    return Err(fault(Invariant::Idempotency, what, expected)
                        .lane(&first.lane)
                        .event(&first.id));
                }
            }
            (Op::Control { action }, _) => self.refused_hand(asked, action),
            _ => {}
        }
        Ok(())
    }

    /// An erasure that definitely did not happen excuses nothing.
    fn refused_hand(&mut self, asked: At, action: &'a crate::history::Action) {
        use crate::history::Action;
        match action {
            Action::EraseLane { lane } => {
                let lane = self.lane(lane);
                self.lanes[lane as usize].erasures.retain(|one| one.0 != asked);
            }
            Action::EraseEvent { lane, id } => {
                let lane = self.lane(lane);
                if let Some(event) = self.event_id(lane, id) {
                    self.events[event as usize].erasures.retain(|one| one.0 != asked);
                }
            }
            Action::Edit { .. } => {
                let calls = &self.calls;
                self.edits.retain(|e| calls[e.call as usize].phase != Phase::Fail);
            }
            _ => {}
        }
    }

    pub(super) fn begins(&mut self, at: At, run: u64, token: u64, seqs: &'a [u64]) -> Checked {
        let begun = Begun { run, seqs, ended: false, at };
        match self.begun.insert(token, begun) {
            None => Ok(()),
            Some(first) => {
                let what = format!("a handler began under this token at #{} and again at #{at}", first.at);
                let expected = "one delivery per claim";
                Err(fault(Invariant::ExplainedDuplicates, what, expected).run(run).token(token))
            }
        }
    }

    pub(super) fn sink(&mut self, name: &'a Name, token: u64, seqs: &'a [u64], accepted: bool) -> Checked {
        if !accepted {
            self.some.saw(Thing::SinkRefused);
            return Ok(());
        }
        self.some.saw(Thing::SinkAccepted);
        let lane = self.lane(name);
        let lane = &mut self.lanes[lane as usize];
        if token < lane.sink_top {
            let what = format!("the sink accepted token {token} after {}", lane.sink_top);
            return Err(fault(Invariant::Fencing, what, "accepted tokens never fall")
                .lane(name)
                .token(token));
        }
        lane.sink_top = token;
        for &seq in seqs {
            if lane.sink_applied.insert(seq, ()).is_some() {
                let what = format!("event {seq} was applied a second time, under token {token}");
                let expected = "each event is applied once";
                return Err(fault(Invariant::OnceAtSink, what, expected).lane(name).seq(seq).token(token));
            }
        }
        Ok(())
    }

    /// Whether the sink has applied it.
    pub(crate) fn is_applied(&self, lane: u32, seq: u64) -> bool {
        self.lanes[lane as usize].sink_applied.contains_key(&seq)
    }
}

fn fired(by: FiredBy) -> Thing {
    match by {
        FiredBy::None => Thing::FiredNone,
        FiredBy::Fixed => Thing::FiredFixed,
        FiredBy::Quiet => Thing::FiredQuiet,
        FiredBy::Cap => Thing::FiredCap,
        FiredBy::Count => Thing::FiredCount,
        FiredBy::Bytes => Thing::FiredBytes,
        FiredBy::Flush => Thing::FiredFlush,
        FiredBy::Retry => Thing::FiredRetry,
        FiredBy::Merge => Thing::FiredMerge,
        FiredBy::Redrive => Thing::FiredRedrive,
    }
}
