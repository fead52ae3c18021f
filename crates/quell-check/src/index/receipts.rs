//! What senders are told: numbers that rise, duplicates that are duplicates, and one number per event.

use super::{At, Fresh, Index, Loc, Send, Seq, malformed};
use crate::history::{Millis, NewEvent, Phase, Receipt};
use crate::sometimes::Thing;
use crate::violation::{Checked, Invariant, fault};

impl<'a> Index<'a> {
    pub(super) fn receipt(
        &mut self,
        asked: At,
        done: At,
        received_at: Option<Millis>,
        new: &'a NewEvent,
        receipt: &'a Receipt,
    ) -> Checked {
        let Some(&lane) = self.lane_ids.get(new.lane.as_str()) else { return Ok(()) };
        let Some(event) = self.event_id(lane, &receipt.id) else {
            let what = format!("event {} was answered with the id {}, which nobody sent", new.id, receipt.id);
            return Err(fault(Invariant::NoFalseMerge, what, "its own id").lane(&new.lane).event(&new.id));
        };
        if receipt.id != new.id {
            let same = self.sends_of(event).any(|send| send.hash == new.hash);
            let allowed = self.policies(lane).iter().any(|p| p.content_dedupe) && !new.given;
            if !(allowed && receipt.duplicate && same) {
                let what = format!("event {} was answered with the receipt of {}", new.id, receipt.id);
                let expected = "two events with different ids stay two";
                return Err(fault(Invariant::NoFalseMerge, what, expected).lane(&new.lane).event(&new.id));
            }
        }
        if receipt.duplicate {
            self.some.saw(Thing::DuplicateAnswered);
            self.duplicate(asked, done, lane, event, new, receipt)
        } else {
            self.fresh(asked, done, received_at, lane, event, new, receipt)
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one receipt with its place in the history")]
    fn fresh(
        &mut self,
        asked: At,
        done: At,
        received_at: Option<Millis>,
        lane: u32,
        event: u32,
        new: &'a NewEvent,
        receipt: &Receipt,
    ) -> Checked {
        let known = &self.events[event as usize];
        if new.in_transaction && known.fresh.is_some() {
            return Ok(());
        }
        // An answer may come late: a restore has undone since what it tells.
        let undone = self.doubtful(asked, done);
        let stays = known.fresh.is_some_and(|f| !self.doubtful(f.asked, f.done));
        if let Some(first) = known.fresh
            && !self.may_be_gone(event)
            && !self.doubtful(first.asked, first.done)
            && !undone
        {
            let what = format!("event {} was accepted as new twice, at #{} and #{done}", new.id, first.done);
            let expected = "the second is answered as a duplicate";
            return Err(fault(Invariant::Idempotency, what, expected).lane(&new.lane).event(&new.id));
        }
        if !(undone && stays) {
            self.events[event as usize].fresh = Some(Fresh { asked, done, hash: new.hash, seq: receipt.seq });
        }
        let Some(seq) = receipt.seq else {
            self.some.saw(Thing::DelayedAppend);
            if !new.delayed {
                return Err(malformed(done, "a receipt without a number for an event that was not delayed"));
            }
            return Ok(());
        };
        let told = &self.lanes[lane as usize];
        // What was over before this append was asked, and what the same answer has told already. What others were told
        // meanwhile is in no order with it.
        let over = told.appended.partition_point(|&(at, _)| at < asked);
        let own = Some(told.answer_top).filter(|&(at, _)| at == done);
        let earlier = told.appended[..over].last().copied().into_iter().chain(own);
        if let Some((at, top)) = earlier.max_by_key(|&(_, top)| top)
            && top >= seq
        {
            let invariant =
                if self.restored_between(at, done) { Invariant::Restore } else { Invariant::Order };
            let what = format!("event {} got number {seq}; {top} had been told before, at #{at}", new.id);
            let expected = format!("a number above {top}");
            return Err(fault(invariant, what, expected).lane(&new.lane).event(&new.id).seq(seq));
        }
        self.note_appended(lane, done, seq);
        self.add_seq(lane, event, seq, received_at)
    }

    fn duplicate(
        &mut self,
        asked: At,
        done: At,
        lane: u32,
        event: u32,
        new: &'a NewEvent,
        receipt: &Receipt,
    ) -> Checked {
        let happened = |send: &&Send| self.calls[send.call as usize].phase != Phase::Fail;
        let sends = self.sends_of(event).filter(happened).count();
        let own = usize::from(receipt.id == new.id);
        let complain = |what: String, expected: &str| {
            Err(fault(Invariant::Idempotency, what, expected).lane(&new.lane).event(&new.id))
        };
        if sends <= own {
            let what = format!("event {} was answered as a duplicate at #{done}, but was sent once", new.id);
            return complain(what, "only a repeated id is a duplicate");
        }
        let first = self.events[event as usize].fresh;
        let edited = self.edits.iter().any(|e| e.event == event);
        if first.is_some_and(|f| f.hash != new.hash) && !edited && !self.may_be_gone(event) {
            let what = format!("event {} was answered as a duplicate with another payload", new.id);
            return complain(what, "a conflict that changes nothing");
        }
        let answer = Fresh { asked, done, hash: new.hash, seq: receipt.seq };
        self.events[event as usize].acknowledged.get_or_insert(answer);
        let Some(seq) = receipt.seq else { return Ok(()) };
        let known = self.events[event as usize].seq;
        let moved = self.lanes[lane as usize].redriven_as_new || self.may_be_gone(event);
        // A restore may have taken the first one away, and a later append of the same id was new.
        if known.is_some_and(|k| k != seq) && !moved && self.spans.is_empty() {
            let what =
                format!("event {} has number {}, its duplicate got {seq}", new.id, known.unwrap_or_default());
            return complain(what, "a duplicate is answered with the first event's receipt");
        }
        self.note_appended(lane, done, seq);
        self.add_seq(lane, event, seq, None)
    }

    fn note_appended(&mut self, lane: u32, done: At, seq: u64) {
        let lane = &mut self.lanes[lane as usize];
        let top = lane.appended.last().map_or(0, |&(_, top)| top).max(seq);
        lane.appended.push((done, top));
        let (at, own) = lane.answer_top;
        lane.answer_top = (done, if at == done { own.max(seq) } else { seq });
    }

    /// Ties a number to its event. A number belongs to one event for ever.
    pub(crate) fn add_seq(
        &mut self,
        lane: u32,
        event: u32,
        seq: u64,
        received_at: Option<Millis>,
    ) -> Checked {
        let next = u32::try_from(self.seqs.len()).unwrap_or(u32::MAX);
        let index = *self.by_seq.entry(seq).or_insert(next);
        if index == next {
            let place = Loc::Nowhere;
            self.seqs.push(Seq { seq, lane, event, received_at, vague: false, dumped: false, place });
            self.events[event as usize].seq = Some(seq);
            return Ok(());
        }
        let known = &mut self.seqs[index as usize];
        if known.event != event {
            let (a, b) = (self.events[known.event as usize].id, self.events[event as usize].id);
            let what = format!("events {a} and {b} share the number {seq}");
            let lane = self.lanes[lane as usize].name;
            return Err(fault(Invariant::NoFalseMerge, what, "one number, one event").lane(lane).seq(seq));
        }
        known.received_at = received_at.or(known.received_at);
        Ok(())
    }
}
