//! What lanes keep of their past and future: events, runs that ended, records of the trail. Small ones go into the pocket of their
//! lane, and from there into the sets when it is full.

use quell_core::batch::RunId;
use quell_core::lifecycle::RunState;
use quell_core::working_set::Trail;
use quell_store_rows::changes::Changes;

use super::{ARGUMENTS, Word, Writes, word};
use crate::limits::POCKET;
use crate::pocket::{Named, Pocket};
use crate::rows::{
    has_span, is_dead, read_event_name, read_run_range, run_name, write_event, write_record, write_run,
};
use crate::tx::or_empty;

/// Records of one transaction that are kept together: a reader of one of them reads all.
const RECORDS: usize = 100;

impl Writes<'_> {
    /// That of a lane which is made. What a copy puts in place comes in any order and without its lane, so it is in the sets.
    pub(super) fn new_pocket(&self) -> Pocket {
        let mut pocket = Pocket::new();
        pocket.elsewhere = self.tx.copying;
        pocket
    }

    /// The pocket of a lane that was read or is made; nothing for one that goes or is not known here.
    fn pocket(&mut self, lane: u64) -> Option<&mut Pocket> {
        let seen = self.tx.lanes.get(&lane);
        if self.gone.contains(&lane) || (seen.is_none() && !self.known.contains(&lane)) {
            return None;
        }
        let new = self.new_pocket();
        Some(self.pockets.entry(lane).or_insert_with(|| seen.map_or(new, |seen| seen.pocket.clone())))
    }

    /// The pocket of a lane, if this row belongs there.
    fn pocket_for(&mut self, lane: u64, size: usize) -> Option<&mut Pocket> {
        let small = Pocket::takes(size) && !self.tx.copying;
        self.pocket(lane).filter(|_| small)
    }

    /// What goes is removed first: an event that is redriven as new keeps its id.
    pub(super) fn events(&mut self, changes: &Changes) {
        for (lane, seq, id) in &changes.gone_events {
            self.changed.insert(*lane);
            if !self.pocket(*lane).is_some_and(|pocket| pocket.take_event(*seq)) {
                let words = vec![word(seq), word(seq)];
                self.commands.alone("ZREMRANGEBYSCORE", self.keys.part("ev", *lane), words);
                self.commands.add("HDEL", self.keys.part("id", *lane), [word(id.as_str())]);
            }
        }
        for change in &changes.changed_events {
            let (lane, seq) = (change.lane, word(change.seq));
            let payload = change.payload.as_ref().unwrap_or(&change.was.event.payload);
            let value = write_event(&change.was, change.mark, payload);
            self.changed.insert(lane);
            // One that has grown too large for its pocket empties it in the end.
            match self.pocket(lane).filter(|pocket| pocket.events().any(|event| event[..8] == value[..8])) {
                Some(pocket) => {
                    pocket.take_event(change.seq);
                    pocket.push_event(&value);
                }
                None => {
                    let ev = self.keys.part("ev", lane);
                    self.commands.alone("ZREMRANGEBYSCORE", ev.clone(), vec![seq.clone(), seq.clone()]);
                    self.commands.alone("ZADD", ev, vec![seq, value]);
                }
            }
        }
        for (lane, kept) in &changes.new_events {
            let value = write_event(kept, kept.mark, &kept.event.payload);
            self.changed.insert(*lane);
            match self.pocket_for(*lane, value.len()) {
                Some(pocket) => pocket.push_event(&value),
                None => {
                    if let Some(pocket) = self.pocket(*lane) {
                        pocket.elsewhere = true;
                    }
                    self.event_in_set(*lane, value);
                }
            }
        }
    }

    /// Whoever has the pocket of the lane remembers that not all events are there.
    fn event_in_set(&mut self, lane: u64, value: Word) {
        let Some((seq, id)) = read_event_name(&value) else { return };
        let (seq, id) = (word(seq), id.to_vec());
        self.commands.add("HSET", self.keys.part("id", lane), [id, seq.clone()]);
        self.commands.add("ZADD", self.keys.part("ev", lane), [seq, value]);
    }

    pub(super) fn runs(&mut self, changes: &Changes) {
        let mut ended = Vec::new();
        for run in &changes.new_runs {
            let (lane, number) = (run.lane, run.ended.run.number);
            let value = write_run(run);
            match self.pocket_for(lane, value.len()) {
                Some(pocket) => pocket.push_run(number, &value),
                None => self.run_in_hash(lane, number, value),
            }
            ended.push(word(if is_dead(run) { "dead" } else { "ended" }));
            ended.push(word(run_name(RunId { lane, number })));
            self.changed.insert(lane);
        }
        for part in ended.chunks(ARGUMENTS) {
            self.commands.alone("@ended", String::new(), part.to_vec());
        }
        for run in &changes.changed_runs {
            let (lane, number) = (run.lane, run.ended.run.number);
            let value = write_run(run);
            match self.pocket(lane).filter(|pocket| pocket.runs().any(|(here, _)| here == number)) {
                Some(pocket) => {
                    pocket.take_run(number);
                    pocket.push_run(number, &value);
                }
                None => {
                    self.commands.add("HSET", self.keys.part("run", lane), [word(number), value]);
                    if !has_span(&run.ended.run) {
                        self.commands.add("ZREM", self.keys.part("span", lane), [word(number)]);
                    }
                }
            }
            if !is_dead(run) {
                let purged = run.ended.run.count > 0 && run.ended.state == RunState::Cancelled;
                let name = run_name(RunId { lane, number });
                self.commands.alone("@undead", String::new(), vec![word(name), word(u8::from(purged))]);
            }
            self.changed.insert(lane);
        }
    }

    fn run_in_hash(&mut self, lane: u64, number: u64, value: Word) {
        if let Some(first) = read_run_range(&value) {
            self.commands.add("ZADD", self.keys.part("span", lane), [word(first), word(number)]);
        }
        self.commands.add("HSET", self.keys.part("run", lane), [word(number), value]);
    }

    /// Records are kept together as long as no other transaction can have a number between theirs.
    pub(super) fn trail(&mut self, records: &[Trail]) {
        let range = |trail: &Trail| self.tx.ranges.iter().position(|range| range.contains(&trail.record.id));
        for together in records.chunk_by(|a, b| range(a) == range(b)) {
            for part in together.chunks(RECORDS) {
                let mut entry = Vec::with_capacity(part.len() * 160);
                part.iter().for_each(|trail| write_record(&mut entry, trail));
                self.commands.add("ZADD", self.keys.of("audit"), [word(part[0].record.id), entry]);
            }
        }
        for Trail { lane, record } in records {
            let Some(lane) = *lane else { continue };
            let said = record.run.and(record.verdict.as_ref()).map(|_| record.token);
            let named = Named { record: record.id, run: record.run.map(|run| run.number), said };
            match self.pocket_for(lane, 0) {
                Some(pocket) => pocket.push_record(named),
                None => {
                    if let Some(pocket) = self.pockets.get_mut(&lane) {
                        pocket.take_record(record.id);
                    }
                    self.record_in_set(lane, named);
                }
            }
        }
    }

    pub(super) fn record_in_set(&mut self, lane: u64, named: Named) {
        let Named { record, run, said } = named;
        let name = word(format!("r{record}:{}", or_empty(run)));
        match said {
            Some(token) => {
                let said = word(format!("v{token}:{}", or_empty(run)));
                self.commands.alone("@said", String::new(), vec![word(lane), word(record), said, name]);
            }
            None => self.commands.add("ZADD", self.keys.part("trail", lane), [word(record), name]),
        }
    }

    /// What a copy puts in place is taken out of the pocket where it may have been.
    pub(super) fn take_out(&mut self, changes: &Changes) {
        for (lane, kept) in &changes.new_events {
            if let Some(pocket) = self.pocket(*lane) {
                pocket.take_event(kept.event.seq);
            }
        }
        for run in &changes.new_runs {
            if let Some(pocket) = self.pocket(run.lane) {
                pocket.take_run(run.ended.run.number);
            }
        }
    }

    /// Pockets that have grown too large are emptied into the sets.
    pub(super) fn empty_full_pockets(&mut self) {
        let full = self.pockets.iter().filter(|(_, pocket)| pocket.len() > POCKET);
        let full: Vec<u64> = full.map(|(lane, _)| *lane).collect();
        for lane in full {
            let Some(mut pocket) = self.pockets.remove(&lane) else { continue };
            pocket.events().for_each(|event| self.event_in_set(lane, event.to_vec()));
            pocket.runs().for_each(|(number, run)| self.run_in_hash(lane, number, run.to_vec()));
            pocket.records().for_each(|record| self.record_in_set(lane, record));
            pocket.empty();
            self.pockets.insert(lane, pocket);
        }
    }
}
