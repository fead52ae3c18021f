//! Which events there are: compares what was sent with what was delivered and what was dumped.
//!
//! Nothing lost, nothing invented, nothing changed on the way. An event whose send had an unknown answer is looked for
//! here, and both findings are legal; after this pass every number in the history is tied to its event.

use crate::fast::Map;
use crate::history::{Answer, DumpEvent, Millis, Name, Op, Phase, Place};
use crate::index::{At, Fresh, Index};
use crate::sometimes::Thing;
use crate::violation::{Checked, Fault, Invariant, fault};

pub(crate) fn check<'a>(index: &mut Index<'a>) -> Checked {
    for call in 0..index.calls.len() {
        let call = &index.calls[call];
        let at = call.done;
        if let (Phase::Ok, Op::Claim { .. }, Some(Answer::Claimed { claims, .. })) =
            (call.phase, call.op, call.answer)
        {
            for claim in claims {
                let lane = index.lane(&claim.lane);
                for event in &claim.events {
                    let met = Met { lane, id: &event.id, hash: event.hash, how: "delivered", at };
                    let known = met.exists(index)?;
                    met.number(index, known, event.seq, None)?;
                }
            }
        }
    }
    let Some(dump) = index.dump else { return Ok(()) };
    let conflicts = dump.audit.iter().filter(|a| a.change.as_str() == "conflict_buried");
    let conflicts: Map<u64, ()> = conflicts.map(|a| (a.upto_seq, ())).collect();
    let buried = !conflicts.is_empty();
    for event in &dump.events {
        dumped(index, event, event.seq.is_some_and(|seq| conflicts.contains_key(&seq)), dump.drained)?;
    }
    for event in 0..index.events.len() {
        kept(index, u32::try_from(event).unwrap_or(u32::MAX), buried)?;
    }
    for seq in 0..index.seqs.len() {
        let one = &index.seqs[seq];
        let event = &index.events[one.event as usize];
        let undone =
            !one.dumped && (index.retention || !index.spans.is_empty() || erasable(index, one.event, None));
        let (number, lost) = (one.seq, !one.dumped && !undone && event.dumped == 0);
        if lost {
            let what = format!("event {} was delivered as {number} and is nowhere in the end", event.id);
            let lane = index.lanes[one.lane as usize].name;
            let expected = "it is in exactly one place";
            return Err(fault(Invariant::NoLoss, what, expected).lane(lane).event(event.id).seq(number));
        }
        index.seqs[seq].vague = undone || dump.is_before_trail(number);
    }
    for event in 0..index.events.len() {
        let known = &index.events[event];
        let event = u32::try_from(event).unwrap_or(u32::MAX);
        let again = index.may_be_gone(event) && index.possible_sends(event) > 1;
        if (known.seq.is_none() && known.dumped == 0 && index.possible_sends(event) > 0) || again {
            index.lanes[known.lane as usize].untied = true;
        }
    }
    Ok(())
}

/// An event that somebody saw.
struct Met<'a> {
    lane: u32,
    id: &'a Name,
    hash: u64,
    how: &'static str,
    /// Where in the history.
    at: At,
}

impl Met<'_> {
    fn fault(&self, index: &Index<'_>, invariant: Invariant, what: String, expected: &str) -> Box<Fault> {
        fault(invariant, what, expected).lane(index.lanes[self.lane as usize].name).event(self.id)
    }

    /// It was sent, the send may have happened, and it is what was sent.
    fn exists(&self, index: &Index<'_>) -> Result<u32, Box<Fault>> {
        let Some(event) = index.event_id(self.lane, self.id) else {
            let what = format!("event {} was {}, and nobody sent it", self.id, self.how);
            return Err(self.fault(index, Invariant::NoPhantom, what, "every event was sent by somebody"));
        };
        let (mut possible, mut same) = (false, false);
        for hash in index.possible_hashes(event) {
            possible = true;
            same |= hash == self.hash;
        }
        if !possible {
            let what =
                format!("event {} was {}, and every send of it was answered as not done", self.id, self.how);
            return Err(self.fault(index, Invariant::HonestErrors, what, "unknown, if it may have happened"));
        }
        let first = index.events[event as usize].fresh;
        let stays = first.filter(|f| !index.may_be_gone(event) && !index.doubtful(f.asked, f.done));
        // What was seen before a restore may be another one than was accepted after it.
        let stays = stays.filter(|f| f.asked < self.at || !index.restored_between(self.at, f.asked));
        let edited = index.edits.iter().any(|e| e.event == event && e.hash == self.hash);
        if !edited && (!same || stays.is_some_and(|f| f.hash != self.hash)) {
            let what = format!("event {} was {} with payload {}", self.id, self.how, self.hash);
            let expected = match stays {
                Some(first) => format!("payload {}, as it was accepted", first.hash),
                None => "a payload that was sent under this id".to_owned(),
            };
            return Err(self.fault(index, Invariant::Content, what, &expected));
        }
        Ok(event)
    }

    /// The number is the one that was told, unless the event was redriven as new or vanished and came back.
    fn number(&self, index: &mut Index<'_>, event: u32, seq: u64, received_at: Option<Millis>) -> Checked {
        let known = index.events[event as usize].seq;
        let moved = index.lanes[self.lane as usize].redriven_as_new
            || index.may_be_gone(event)
            || !index.spans.is_empty();
        if let Some(known) = known
            && known != seq
            && !moved
            && index.by_seq.get(&seq).is_none_or(|&i| index.seqs[i as usize].event == event)
        {
            let what = format!("event {} has number {known} and was {} as {seq}", self.id, self.how);
            let fault = self.fault(index, Invariant::Content, what, "the number that its sender was told");
            return Err(fault.seq(seq));
        }
        index.add_seq(self.lane, event, seq, received_at)
    }
}

fn dumped<'a>(index: &mut Index<'a>, event: &'a DumpEvent, buried: bool, drained: bool) -> Checked {
    let lane = index.lane(&event.lane);
    let met = Met { lane, id: &event.id, hash: event.hash, how: "dumped", at: At::MAX };
    let place = |f: Box<Fault>| f.lane(&event.lane).event(&event.id);
    if drained && matches!(event.place, Place::Delayed | Place::Buffered | Place::InFlight) {
        let what = format!("event {} is still {:?} after the drain", event.id, event.place);
        return Err(place(fault(Invariant::NoLoss, what, "nothing waits after a drain")));
    }
    // One payload alone under an id meets no conflict: then the store has given the buried event an id of its own.
    let aside = buried && index.event_id(lane, &event.id).is_none_or(|known| index.has_two_payloads(known));
    let known = match met.exists(index) {
        // A conflicting event from aside was buried beside the first of its id.
        Err(_) if aside && index.event_id(lane, &event.id).is_some() => return Ok(()),
        other => other?,
    };
    index.events[known as usize].dumped += 1;
    let Some(seq) = event.seq else { return Ok(()) };
    if let Some(was) = event.was_seq {
        index.add_seq(lane, known, was, None)?;
        let was = index.by_seq[&was];
        index.seqs[was as usize].dumped = true;
        index.lanes[lane as usize].redriven_as_new = true;
    }
    if !aside {
        met.number(index, known, seq, Some(event.received_at))?;
    }
    let Some(&one) = index.by_seq.get(&seq) else { return Ok(()) };
    if std::mem::replace(&mut index.seqs[one as usize].dumped, true) && event.was_seq != Some(seq) {
        let what = format!("event {} is dumped twice as {seq}", event.id);
        return Err(place(fault(Invariant::NoLoss, what, "it is in exactly one place")).seq(seq));
    }
    last_edit(index, known, event)
}

/// A payload that was changed by hand, once and certainly, is what is kept.
fn last_edit(index: &Index<'_>, known: u32, event: &DumpEvent) -> Checked {
    let mut edits = index.edits.iter().filter(|e| e.event == known);
    let (Some(edit), None) = (edits.next(), edits.next()) else { return Ok(()) };
    let call = &index.calls[edit.call as usize];
    let made = matches!(call.answer, Some(Answer::Controlled { changed: true }));
    let stays = !index.doubtful(call.asked, call.done) && !index.may_be_gone(known);
    if made && edit.hash != event.hash && stays {
        let what = format!("event {} was edited to {} and is kept as {}", event.id, edit.hash, event.hash);
        let fault = fault(Invariant::Content, what, "the edited payload");
        return Err(fault.lane(&event.lane).event(&event.id));
    }
    Ok(())
}

/// What was acknowledged is there, once, under the number that was told.
fn kept(index: &mut Index<'_>, event: u32, buried: bool) -> Checked {
    let known = &index.events[event as usize];
    let lane = &index.lanes[known.lane as usize];
    let complain = |invariant, what: String, expected: &str| {
        Err(fault(invariant, what, expected).lane(lane.name).event(known.id))
    };
    if known.dumped > 1 && !buried && !index.may_be_gone(event) {
        let what = format!("event {} is in {} places", known.id, known.dumped);
        return complain(Invariant::NoLoss, what, "it is in exactly one place");
    }
    // Both answers to an unknown send are legal, and both should be seen in a campaign.
    if index.had_unknown_send(event) {
        let found = known.dumped > 0;
        index.some.saw(if found { Thing::UnknownAppendHappened } else { Thing::UnknownAppendDidNot });
    }
    let Some(first) = known.fresh.or(known.acknowledged) else { return Ok(()) };
    if index.doubtful(first.asked, first.done) {
        if known.dumped == 0 {
            index.some.saw(Thing::LostToRestore);
        }
        return Ok(());
    }
    if known.dumped == 0 && !index.retention && !erasable(index, event, Some(first)) {
        let what =
            format!("event {} was acknowledged at #{} and is nowhere in the end", known.id, first.done);
        return complain(Invariant::NoLoss, what, "an acknowledged event is never lost");
    }
    let Some(seq) = first.seq else { return Ok(()) };
    let there = index.by_seq.get(&seq).is_some_and(|&i| index.seqs[i as usize].dumped);
    if known.dumped > 0 && !there && !lane.redriven_as_new && !index.may_be_gone(event) {
        let what = format!("event {} was acknowledged as {seq} and has another number in the end", known.id);
        return complain(Invariant::NoLoss, what, "the number that its sender was told");
    }
    let mut erasures = lane.erasures.iter().chain(&known.erasures);
    // A restore may bring back what was erased since the backup.
    let stays = |asked, done| !index.doubtful(asked, done);
    if there && erasures.any(|&(asked, done, certain)| certain && first.done < asked && stays(asked, done)) {
        let what = format!("event {} ({seq}) was erased and is still there", known.id);
        return complain(Invariant::Erasure, what, "an erased event is gone");
    }
    Ok(())
}

/// Whether an erasure that was over after the event was sent may have taken it; or, while it was kept aside, a purge.
pub(crate) fn erasable(index: &Index<'_>, event: u32, first: Option<Fresh>) -> bool {
    let known = &index.events[event as usize];
    let lane = &index.lanes[known.lane as usize];
    let since: At = first.or(known.fresh).map_or(0, |f| f.asked);
    let aside = known.seq.is_none() && lane.purged > since;
    aside || lane.erasures.iter().chain(&known.erasures).any(|&(_, done, _)| done > since)
}
