//! Rows as values of Redis: what a script must see is in front at fixed places, the rest is as `quell_store_rows::codec`
//! writes it. Numbers are big-endian.

use quell_core::batch::RunId;
use quell_core::clock::Timestamp;
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::event::{Event, EventId, Fingerprint, Headers, LaneKey, Payload};
use quell_core::lane::{CurrentRun, Lane};
use quell_core::lifecycle::RunState;
use quell_core::source::{CacheRow, Source, SourceId};
use quell_core::store::StepRow;
use quell_core::working_set::{FinishedRun, Kept, Trail};
use quell_store_rows::codec;
use quell_store_rows::rows::{Entries, LaneAt};

use crate::keys::{lane_text, read_lane_key};
use crate::pocket::Pocket;

/// What stands for a missing entry: no store time is that early.
const NONE: i64 = i64::MIN;

fn damaged(what: &str) -> StoreError {
    StoreError::new(
        ErrorKind::Corrupt,
        format!("a stored {what} cannot be read; was it written by a newer version of Quell?"),
    )
}

/// Reads a value from its front.
struct Cut<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Cut<'a> {
    fn bytes(&mut self, count: usize) -> StoreResult<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or_else(|| damaged(self.what))?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> StoreResult<[u8; N]> {
        let bytes = self.bytes(N)?;
        bytes.try_into().map_err(|_| damaged(self.what))
    }

    fn number(&mut self) -> StoreResult<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn time(&mut self) -> StoreResult<i64> {
        self.array().map(i64::from_be_bytes)
    }

    fn size(&mut self) -> StoreResult<usize> {
        let size = u32::from_be_bytes(self.array()?);
        usize::try_from(size).map_err(|_| damaged(self.what))
    }

    fn text(&mut self, count: usize) -> StoreResult<&'a str> {
        std::str::from_utf8(self.bytes(count)?).map_err(|_| damaged(self.what))
    }
}

/// A lane as it was read.
#[derive(Debug, Clone)]
pub(crate) struct LaneValue {
    pub(crate) front: Front,
    pub(crate) at: LaneAt,
    pub(crate) pocket: Pocket,
    /// The row without the pocket, as it was stored.
    pub(crate) head: Vec<u8>,
}

/// The front of a lane's row: all that changes when something of the lane changes, and not the lane itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Front {
    /// Raised by every change: whoever has read an older one begins anew.
    pub(crate) version: u64,
    /// When something of it last changed: time never goes back within a lane.
    pub(crate) latest: Timestamp,
    /// The largest number that any transaction on this lane could give: the next ones are larger. The lane itself
    /// forgets the tokens of runs that ended.
    pub(crate) top: u64,
}

impl Front {
    pub(crate) fn bytes(self) -> Vec<u8> {
        let latest = self.latest.as_millis();
        [self.version.to_be_bytes(), latest.to_be_bytes(), self.top.to_be_bytes()].concat()
    }
}

/// Where scripts find whether nothing keeps the lane but its history: behind the front.
const FLAGS: usize = 24;
/// Nothing keeps the lane but its history.
const QUIET: u8 = 1;
/// The lane is followed by its pocket, and has its size in front.
const POCKETED: u8 = 2;
/// Some events of the lane are not in the pocket.
const ELSEWHERE: u8 = 4;
/// What is in front of the key: the front, flags, due and lease entry, priority, the size of the key.
const KEY: usize = 44;

/// The front (24 bytes), flags (1), due and lease entry (8 each), priority (1), the key with its length (2), the lane with its
/// length (4), its pocket. Rows of version 3 and before have no pocket, and no length of the lane.
pub(crate) fn write_lane(
    front: Front,
    key: &LaneKey,
    lane: &Lane,
    entries: Entries,
    pocket: &Pocket,
) -> Vec<u8> {
    let text = lane_text(key);
    let quiet = lane.is_idle() && !is_held(lane);
    let mut value = Vec::with_capacity(256 + text.len() + pocket.len());
    value.extend(Front { top: front.top.max(largest_number(lane)), ..front }.bytes());
    value.push(flags(quiet, pocket));
    for entry in [entries.due, entries.lease] {
        value.extend(entry.map_or(NONE, Timestamp::as_millis).to_be_bytes());
    }
    value.push(entries.priority);
    value.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
    value.extend(text.as_bytes());
    put_body(&mut value, &codec::write_lane(lane), pocket);
    value
}

fn flags(quiet: bool, pocket: &Pocket) -> u8 {
    let elsewhere = if pocket.elsewhere { ELSEWHERE } else { 0 };
    (if quiet { QUIET } else { 0 }) | POCKETED | elsewhere
}

fn put_body(value: &mut Vec<u8>, lane: &[u8], pocket: &Pocket) {
    value.extend(u32::try_from(lane.len()).unwrap_or(u32::MAX).to_be_bytes());
    value.extend(lane);
    value.extend(pocket.bytes());
}

/// A row with another front and another pocket; its head was read.
pub(crate) fn write_lane_again(front: Front, head: &[u8], pocket: &Pocket) -> Vec<u8> {
    let mut cut = Cut { rest: &head[FLAGS..], what: "lane" };
    let was = cut.bytes(1).map_or(0, |flags| flags[0]);
    let length = usize::from(u16::from_be_bytes([head[KEY - 2], head[KEY - 1]]));
    let key_end = KEY + length;
    let lane = if was & POCKETED == 0 { key_end } else { key_end + 4 };
    let mut value = Vec::with_capacity(head.len() + pocket.len() + 4);
    value.extend(front.bytes());
    value.push(flags(was & QUIET != 0, pocket));
    value.extend(&head[FLAGS + 1..key_end]);
    put_body(&mut value, &head[lane..], pocket);
    value
}

pub(crate) fn read_lane(mut value: Vec<u8>) -> StoreResult<LaneValue> {
    let mut cut = Cut { rest: &value, what: "lane" };
    let (version, latest, top) = (cut.number()?, cut.time()?, cut.number()?);
    let front = Front { version, latest: Timestamp::from_millis(latest), top };
    let [flags] = cut.array()?;
    let entry = |millis: i64| (millis != NONE).then(|| Timestamp::from_millis(millis));
    let (due, lease) = (entry(cut.time()?), entry(cut.time()?));
    let [priority] = cut.array()?;
    let length = usize::from(u16::from_be_bytes(cut.array()?));
    let key = read_lane_key(cut.text(length)?).ok_or_else(|| damaged("key"))?;
    let pocketed = flags & POCKETED != 0;
    let size = if pocketed { cut.size()? } else { cut.rest.len() };
    let lane = codec::read_lane(cut.bytes(size)?)?;
    let items = cut.rest.len();
    // Whatever writes a due entry writes it for the source that the lane waits for.
    let entries = Entries { due, lease, priority, source: due.and(lane.source()) };
    let items = value.split_off(value.len() - items);
    let elsewhere = !pocketed || flags & ELSEWHERE != 0;
    let pocket = Pocket::read(items, elsewhere).ok_or_else(|| damaged("lane"))?;
    Ok(LaneValue { front, at: LaneAt { key, lane: Box::new(lane), entries }, pocket, head: value })
}

/// Paused, or waiting for an operator.
pub(crate) fn is_held(lane: &Lane) -> bool {
    lane.paused.is_some() || lane.blocked.is_some()
}

/// The source that a lane asks next which an operator has paused or a failed run blocks: it is in no set of due times.
pub(crate) fn stopped_for(lane: &Lane) -> Option<SourceId> {
    let stopped = lane.due_at().is_none() && lane.lease_at().is_none();
    lane.source().filter(|_| stopped)
}

/// The largest number in a lane.
fn largest_number(lane: &Lane) -> u64 {
    let runs = lane.fixed_runs().flat_map(|run| [run.number, run.token, run.hi]);
    let open = lane.open.map_or(0, |open| open.number);
    runs.chain([lane.id, lane.head_seq, open]).max().unwrap_or(0)
}

/// A mark as scripts compare it.
pub(crate) fn mark_bytes(mark: Option<u64>) -> [u8; 8] {
    mark.unwrap_or(0).to_be_bytes()
}

/// Number (8 bytes), mark (8), size of the payload (4), fingerprint (16), priority (1), when it came (8), the number it
/// had before (8), its id with its length (2), headers with their length (4), the payload; then its source (8), if it has
/// one, so that rows from before there were sources are read as they are.
pub(crate) fn write_event(kept: &Kept, mark: Option<u64>, payload: &Payload) -> Vec<u8> {
    let event = &kept.event;
    let headers = match event.headers.is_empty() {
        true => Vec::new(),
        false => rmp_serde::to_vec(&event.headers).unwrap_or_default(),
    };
    let (id, text) = (event.id.as_str().as_bytes(), payload.as_str().as_bytes());
    let mut value = Vec::with_capacity(64 + id.len() + headers.len() + text.len());
    value.extend(event.seq.to_be_bytes());
    value.extend(mark_bytes(mark));
    value.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    value.extend(kept.print.0);
    value.push(kept.priority);
    value.extend(event.received_at.as_millis().to_be_bytes());
    value.extend(event.was_seq.unwrap_or(0).to_be_bytes());
    value.extend(u16::try_from(id.len()).unwrap_or(u16::MAX).to_be_bytes());
    value.extend(id);
    value.extend(u32::try_from(headers.len()).unwrap_or(u32::MAX).to_be_bytes());
    value.extend(headers);
    value.extend(text);
    value.extend(kept.source.iter().flat_map(|source| source.0.to_be_bytes()));
    value
}

/// The number and the id of an event.
pub(crate) fn read_event_name(value: &[u8]) -> Option<(u64, &[u8])> {
    let seq = u64::from_be_bytes(*value.first_chunk()?);
    let length = u16::from_be_bytes(*value.get(53..)?.first_chunk()?);
    Some((seq, value.get(55..55 + usize::from(length))?))
}

pub(crate) fn read_event(value: &[u8]) -> StoreResult<Kept> {
    let mut cut = Cut { rest: value, what: "event" };
    let some = |number: u64| (number != 0).then_some(number);
    let (seq, mark) = (cut.number()?, some(cut.number()?));
    let size = cut.size()?;
    let print = Fingerprint(cut.array()?);
    let [priority] = cut.array()?;
    let received_at = Timestamp::from_millis(cut.time()?);
    let was_seq = some(cut.number()?);
    let length = usize::from(u16::from_be_bytes(cut.array()?));
    let id = EventId::new(cut.text(length)?).map_err(|_| damaged("event id"))?;
    let headers = match cut.size()? {
        0 => Headers::new(),
        size => rmp_serde::from_slice(cut.bytes(size)?).map_err(|_| damaged("header"))?,
    };
    let payload = Payload::from_stored(cut.text(size)?);
    let source = match cut.rest {
        [] => None,
        _ => Some(SourceId(cut.number()?)),
    };
    Ok(Kept {
        event: Event { seq, id, received_at, payload, headers, was_seq },
        mark,
        priority,
        print,
        source,
    })
}

/// Flags (1 byte: 1 failed, 2 marked), count, first and last event, when it ended (8 each), the run.
pub(crate) fn write_run(run: &FinishedRun) -> Vec<u8> {
    let ended = &run.ended;
    let failed = u8::from(ended.state == RunState::Failed);
    let mut value = vec![failed | u8::from(ended.run.marked) << 1];
    for number in [ended.run.count, ended.run.lo, ended.run.hi] {
        value.extend(number.to_be_bytes());
    }
    value.extend(ended.at.as_millis().to_be_bytes());
    value.extend(codec::write_run(run));
    value
}

pub(crate) fn read_run(key: LaneKey, lane: u64, value: &[u8]) -> StoreResult<FinishedRun> {
    let mut cut = Cut { rest: value, what: "run" };
    cut.bytes(33)?;
    codec::read_run(key, lane, cut.rest)
}

/// Whether a run that ended is in the dead letter.
pub(crate) fn is_dead(run: &FinishedRun) -> bool {
    run.ended.state == RunState::Failed && run.ended.run.count > 0
}

/// Whether a run that ended is found by the range of its events.
pub(crate) fn has_span(run: &CurrentRun) -> bool {
    run.count > 0 && !run.marked
}

/// The first event of a run, as it is stored, that is found by the range of its events.
pub(crate) fn read_run_range(value: &[u8]) -> Option<u64> {
    let mut cut = Cut { rest: value, what: "run" };
    let [flags] = cut.array().ok()?;
    let (count, lo) = (cut.number().ok()?, cut.number().ok()?);
    (flags & 2 == 0 && count > 0).then_some(lo)
}

pub(crate) fn run_name(run: RunId) -> String {
    format!("{}:{}", run.lane, run.number)
}

/// Adds a record to those of its transaction: number, lane (zero when none) and time (8 bytes each), its size (4), the
/// record.
pub(crate) fn write_record(entry: &mut Vec<u8>, trail: &Trail) {
    let record = codec::write_trail(trail);
    entry.extend(trail.record.id.to_be_bytes());
    entry.extend(trail.lane.unwrap_or(0).to_be_bytes());
    entry.extend(trail.record.at.as_millis().to_be_bytes());
    entry.extend(u32::try_from(record.len()).unwrap_or(u32::MAX).to_be_bytes());
    entry.extend(record);
}

/// The records of a transaction, in order.
pub(crate) fn read_records(entry: &[u8]) -> StoreResult<Vec<Trail>> {
    let mut cut = Cut { rest: entry, what: "audit record" };
    let mut records = Vec::new();
    while !cut.rest.is_empty() {
        cut.bytes(24)?;
        let size = cut.size()?;
        records.push(codec::read_trail(cut.bytes(size)?)?);
    }
    Ok(records)
}

/// Version (8 bytes), the source.
pub(crate) fn write_source(version: u64, source: &Source) -> Vec<u8> {
    let mut value = version.to_be_bytes().to_vec();
    value.extend(codec::write_source(source));
    value
}

pub(crate) fn read_source(value: &[u8]) -> StoreResult<(u64, Source)> {
    let mut cut = Cut { rest: value, what: "source" };
    Ok((cut.number()?, codec::read_source(cut.rest)?))
}

/// An answer; the version (8 bytes) in front of it is given by the script that writes it.
pub(crate) fn read_answer(value: &[u8]) -> StoreResult<CacheRow> {
    let mut cut = Cut { rest: value, what: "kept answer" };
    cut.number()?;
    codec::read_answer(cut.rest)
}

/// A step's field in the hash of its run.
pub(crate) fn step_field(revision: u32, name: &str) -> String {
    format!("{revision}\0{name}")
}

/// When, by which token, and the result as JSON if there is one.
pub(crate) fn write_step(row: &StepRow) -> Vec<u8> {
    let value = row.value.as_ref().map(serde_json::Value::to_string);
    rmp_serde::to_vec(&(row.at, row.token, value)).unwrap_or_default()
}

pub(crate) fn read_step(field: &[u8], value: &[u8]) -> StoreResult<StepRow> {
    let field = std::str::from_utf8(field).map_err(|_| damaged("step"))?;
    let (revision, name) = field.split_once('\0').ok_or_else(|| damaged("step"))?;
    let (at, token, text): (Timestamp, u64, Option<String>) =
        rmp_serde::from_slice(value).map_err(|_| damaged("step"))?;
    let value = text.map(|text| serde_json::from_str(&text)).transpose().map_err(|_| damaged("step"))?;
    let revision = revision.parse().map_err(|_| damaged("step"))?;
    Ok(StepRow { revision, name: name.to_owned(), at, token, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quell_core::event::{Key, QueueName, Tenant};

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn lanes_come_back_as_they_were() {
        let tenant = Tenant::new("acme").unwrap();
        let key = LaneKey::new(QueueName::new("mail").unwrap(), Key::new("a\u{1}{b}").unwrap()).of(tenant);
        let mut lane = Lane::new(7, at(5));
        lane.head_seq = 9;
        let entries = Entries { due: Some(at(77)), lease: None, priority: 3, source: None };
        let front = Front { version: 12, latest: at(8), top: 99 };
        let mut pocket = Pocket::new();
        let value = write_lane(front, &key, &lane, entries, &pocket);
        assert_eq!(value[..24], front.bytes());
        assert_eq!(value[24] & QUIET, 1, "nothing keeps it");
        let read = read_lane(value).unwrap();
        assert_eq!((read.front, &read.at.key, read.at.entries), (front, &key, entries));
        assert_eq!((*read.at.lane, &read.pocket), (lane.clone(), &pocket));
        assert!(read_lane(b"short".to_vec()).is_err());
        // The same lane with something in its pocket.
        pocket.push_run(12, b"a run");
        pocket.elsewhere = true;
        let later = Front { version: 13, ..front };
        let again = write_lane_again(later, &read.head, &pocket);
        assert_eq!(again, write_lane(later, &key, &lane, entries, &pocket));
        assert_eq!(read_lane(again).unwrap().pocket, pocket);
    }

    #[test]
    fn lanes_of_version_3_have_their_events_elsewhere() {
        let key = LaneKey::new(QueueName::new("mail").unwrap(), Key::new("a").unwrap());
        let lane = Lane::new(7, at(5));
        let entries = Entries { due: None, lease: Some(at(77)), priority: 3, source: None };
        let front = Front { version: 12, latest: at(8), top: 99 };
        let now = write_lane(front, &key, &lane, entries, &Pocket::new());
        let key_end = KEY + lane_text(&key).len();
        let mut then = [&now[..key_end], &now[key_end + 4..]].concat();
        then[FLAGS] = QUIET;
        let read = read_lane(then.clone()).unwrap();
        assert_eq!((*read.at.lane, read.at.entries), (lane, entries));
        assert_eq!(read.pocket, Pocket::read(Vec::new(), true).unwrap());
        assert_eq!(write_lane_again(front, &then, &Pocket::new()), now, "it can be written anew");
    }

    #[test]
    fn events_come_back_as_they_were() {
        let payload = Payload::of(&serde_json::json!({"text": "ü\u{0}"}));
        let headers: Headers = [("a".to_owned(), "b".to_owned())].into();
        let governed = Some(SourceId(77));
        for (headers, mark, was_seq, source) in
            [(headers, None, Some(3), governed), (Headers::new(), Some(8), None, None)]
        {
            let event = Event {
                seq: 41,
                id: EventId::new("evt_1").unwrap(),
                received_at: at(1_000),
                payload: payload.clone(),
                headers,
                was_seq,
            };
            let kept = Kept { event, mark, priority: 9, print: payload.fingerprint(), source };
            let value = write_event(&kept, mark, &payload);
            assert_eq!(read_event(&value).unwrap(), kept);
            // The places at which scripts look.
            assert_eq!(value[..8], 41u64.to_be_bytes());
            assert_eq!(value[8..16], mark_bytes(mark));
            assert_eq!(value[16..20], u32::try_from(payload.len()).unwrap().to_be_bytes());
            assert_eq!(value[20..36], kept.print.0);
            assert_eq!(value[53..60], *b"\0\x05evt_1");
            // As it was written before there were sources.
            let before = &value[..value.len() - source.map_or(0, |_| 8)];
            assert_eq!(read_event(before).unwrap(), Kept { source: None, ..kept });
        }
    }

    #[test]
    fn steps_come_back_as_they_were() {
        for value in [None, Some(serde_json::json!({"a": [1, 2.5]}))] {
            let row = StepRow { revision: 2, name: "llm/1".into(), at: at(9), token: 77, value };
            let read = read_step(step_field(2, "llm/1").as_bytes(), &write_step(&row)).unwrap();
            assert_eq!(read, row);
        }
    }
}
