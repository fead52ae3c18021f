//! The pocket of a lane: its youngest small rows, kept behind the lane in its own row.
//!
//! A lane that gets one event, one run and three records would otherwise have six keys, most of them sets with one member,
//! and each would be written by a command of its own. In the pocket they travel with the lane: the rows of all lanes of a
//! group are written by one command, and whoever reads a lane has its events. A pocket that grows too large is emptied into the
//! sets (`apply/history.rs`); nothing ever goes back. So an event, a run or a record is at exactly one of two places, and whoever
//! reads the row first and then the sets misses none.
//!
//! One item after the other: its kind (1 byte), its size (4), its value. An event and a run are as they are in their sets,
//! a run with its number (8) in front; a record is whether a holder spoke (1), its number, its run (zero when none) and the token
//! (8 each).

use quell_core::error::StoreResult;
use quell_core::event::{EventId, Fingerprint};
use quell_core::working_set::Kept;
use quell_store_rows::rows::Span;

use crate::limits::POCKET_ROW;
use crate::rows::read_event;

const EVENT: u8 = b'e';
const RUN: u8 = b'r';
const RECORD: u8 = b't';
/// Kind and size.
const FRONT: usize = 5;

/// That there is a record of this lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) record: u64,
    pub(crate) run: Option<u64>,
    /// With which token a holder spoke, if it is what a holder said.
    pub(crate) said: Option<u64>,
}

impl Named {
    fn bytes(self) -> Vec<u8> {
        let numbers = [self.record, self.run.unwrap_or(0), self.said.unwrap_or(0)];
        let mut value = vec![u8::from(self.said.is_some())];
        value.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
        value
    }

    fn read(value: &[u8]) -> Option<Self> {
        let (&spoke, rest) = value.split_first()?;
        let (record, rest) = number(rest)?;
        let (run, rest) = number(rest)?;
        let (token, _) = number(rest)?;
        Some(Named { record, run: (run != 0).then_some(run), said: (spoke == 1).then_some(token) })
    }
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (head, rest) = bytes.split_first_chunk()?;
    Some((u64::from_be_bytes(*head), rest))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pocket {
    items: Vec<u8>,
    /// Some events of the lane are, or may be, in its set.
    pub(crate) elsewhere: bool,
}

impl Pocket {
    /// That of a lane which is new, or none of whose events is elsewhere.
    pub(crate) fn new() -> Self {
        Pocket { items: Vec::new(), elsewhere: false }
    }

    /// What stands behind the lane in its row; nothing when it cannot be read.
    pub(crate) fn read(items: Vec<u8>, elsewhere: bool) -> Option<Self> {
        let mut rest = &items[..];
        while !rest.is_empty() {
            rest = cut(rest)?.2;
        }
        Some(Pocket { items, elsewhere })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.items
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether a row of this size may come into a pocket.
    pub(crate) fn takes(size: usize) -> bool {
        size <= POCKET_ROW
    }

    fn of_kind(&self, wanted: u8) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.items[..];
        let all = std::iter::from_fn(move || {
            let (kind, value, behind) = cut(rest)?;
            rest = behind;
            Some((kind, value))
        });
        all.filter(move |(kind, _)| *kind == wanted).map(|(_, value)| value)
    }

    /// Events as they are in their set.
    pub(crate) fn events(&self) -> impl Iterator<Item = &[u8]> {
        self.of_kind(EVENT)
    }

    /// Runs that have ended, by number, as they are in their hash.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.of_kind(RUN).filter_map(number)
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = Named> {
        self.of_kind(RECORD).filter_map(Named::read)
    }

    fn push(&mut self, kind: u8, parts: &[&[u8]]) {
        let size: usize = parts.iter().map(|part| part.len()).sum();
        self.items.push(kind);
        self.items.extend(u32::try_from(size).unwrap_or(u32::MAX).to_be_bytes());
        parts.iter().for_each(|part| self.items.extend_from_slice(part));
    }

    pub(crate) fn push_event(&mut self, value: &[u8]) {
        self.push(EVENT, &[value]);
    }

    pub(crate) fn push_run(&mut self, number: u64, value: &[u8]) {
        self.push(RUN, &[&number.to_be_bytes(), value]);
    }

    pub(crate) fn push_record(&mut self, record: Named) {
        self.push(RECORD, &[&record.bytes()]);
    }

    /// Takes out the event or run with this number. Says whether it was here.
    fn take(&mut self, wanted: u8, of: u64) -> bool {
        let mut at = 0;
        while let Some((kind, value, _)) = cut(&self.items[at..]) {
            let end = at + FRONT + value.len();
            if kind == wanted && number(value).is_some_and(|(number, _)| number == of) {
                self.items.drain(at..end);
                return true;
            }
            at = end;
        }
        false
    }

    pub(crate) fn take_event(&mut self, seq: u64) -> bool {
        self.take(EVENT, seq)
    }

    pub(crate) fn take_run(&mut self, number: u64) -> bool {
        self.take(RUN, number)
    }

    pub(crate) fn take_record(&mut self, record: u64) {
        let kept: Vec<Named> = self.records().filter(|named| named.record != record).collect();
        if kept.len() < self.records().count() {
            let mut left = Pocket::new();
            self.events().for_each(|event| left.push_event(event));
            self.runs().for_each(|(number, run)| left.push_run(number, run));
            kept.into_iter().for_each(|named| left.push_record(named));
            self.items = left.items;
        }
    }

    /// What is left of the pocket when everything has gone into the sets.
    pub(crate) fn empty(&mut self) {
        let events = self.events().next().is_some();
        self.elsewhere |= events;
        self.items.clear();
    }

    /// The events here, in order.
    fn kept(&self) -> StoreResult<Vec<Kept>> {
        let mut events = self.events().map(read_event).collect::<StoreResult<Vec<_>>>()?;
        events.sort_by_key(|kept| kept.event.seq);
        Ok(events)
    }

    /// Events of a span, as `lua/find.lua` reads them from the set.
    pub(crate) fn span(&self, span: &Span) -> StoreResult<Vec<Kept>> {
        let (mut found, mut size) = (Vec::new(), 0);
        for kept in self.kept()? {
            let within = (span.from..=span.upto).contains(&kept.event.seq) && kept.mark == span.mark;
            if within && (found.len() as u64) < span.most && span.bytes.is_none_or(|bytes| size < bytes) {
                size += kept.event.payload.len() as u64;
                found.push(kept);
            }
        }
        Ok(found)
    }

    /// The event with this id; of two the later one, to which it went.
    pub(crate) fn by_id(&self, id: &EventId) -> StoreResult<Option<Kept>> {
        Ok(self.kept()?.into_iter().rfind(|kept| kept.event.id == *id))
    }

    /// The first unmarked event from a number on with this fingerprint.
    pub(crate) fn by_content(&self, from: u64, print: Fingerprint) -> StoreResult<Option<Kept>> {
        let is = |kept: &Kept| kept.event.seq >= from && kept.mark.is_none() && kept.print == print;
        Ok(self.kept()?.into_iter().find(is))
    }
}

/// The kind and the value of the first item, and what is behind it.
fn cut(items: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&kind, rest) = items.split_first()?;
    let (size, rest) = rest.split_first_chunk()?;
    let size = usize::try_from(u32::from_be_bytes(*size)).ok()?;
    let (value, rest) = rest.split_at_checked(size)?;
    Some((kind, value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_into_a_pocket_is_found_and_taken_out() {
        let mut pocket = Pocket::new();
        pocket.push_event(&[&7u64.to_be_bytes()[..], b"seven"].concat());
        pocket.push_run(8, b"eight");
        let spoke = Named { record: 9, run: Some(8), said: Some(5) };
        let plain = Named { record: 10, run: None, said: None };
        pocket.push_record(spoke);
        pocket.push_record(plain);
        let mut pocket = Pocket::read(pocket.bytes().to_vec(), false).unwrap();
        assert_eq!(pocket.events().count(), 1);
        assert_eq!(pocket.runs().collect::<Vec<_>>(), [(8, &b"eight"[..])]);
        assert_eq!(pocket.records().collect::<Vec<_>>(), [spoke, plain]);
        assert!(!pocket.take_event(8) && !pocket.take_run(7), "each kind has numbers of its own");
        assert!(pocket.take_run(8) && !pocket.take_run(8));
        pocket.take_record(9);
        assert_eq!(pocket.records().collect::<Vec<_>>(), [plain]);
        assert_eq!(pocket.events().count(), 1);
        pocket.empty();
        assert!(pocket.elsewhere && pocket.len() == 0, "its event is in the set now");
    }

    #[test]
    fn a_pocket_that_is_cut_off_is_not_read() {
        let mut pocket = Pocket::new();
        pocket.push_run(8, b"eight");
        for end in 1..pocket.len() {
            assert_eq!(Pocket::read(pocket.bytes()[..end].to_vec(), false), None, "{end}");
        }
    }
}
