//! The end of a transaction: what was seen and what is to be written, as the arguments of `lua/apply.lua`.
//!
//! Commands on one key are put together: a claim of 256 lanes writes their rows by one command and their leases by
//! another, and what is left for each lane is its record in the trail.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use quell_core::batch::RunId;
use quell_core::clock::Timestamp;
use quell_core::copy::Frame;
use quell_core::event::{LaneKey, SourceName};
use quell_core::lane::Lane;
use quell_core::lifecycle::RunState;
use quell_core::source::{Source, SourceId};
use quell_core::totals::Totals;
use quell_store_rows::changes::{Changes, LaneWrite};
use quell_store_rows::codec;
use quell_store_rows::rows::Entries;
use redis::Cmd;

use crate::keys::{Keys, aside_name, lane_text, queue_text, source_text};
use crate::pocket::Pocket;
use crate::rows::{
    Front, is_held, run_name, step_field, stopped_for, write_lane, write_lane_again, write_source, write_step,
};
use crate::tx::{Index, Reserved, Seen, Tx, or_empty};

mod history;

/// Arguments of one command at the most: Lua cannot unpack more than some 8,000.
const ARGUMENTS: usize = 2_000;

type Word = Vec<u8>;

/// The fields of a queue's totals, in the order of `Delta::values`.
pub(crate) const TOTALS: [&str; 7] =
    ["accepted", "succeeded", "dead", "discarded", "delayed", "buffered", "in_flight"];

/// Commands in order, those of the same name and key as one.
#[derive(Default)]
struct Commands {
    list: Vec<Command>,
    places: HashMap<(&'static str, String), usize>,
}

struct Command {
    name: &'static str,
    key: String,
    words: Vec<Word>,
    /// Words that belong together.
    width: usize,
}

impl Commands {
    /// A command that takes any number of words.
    fn add<const N: usize>(&mut self, name: &'static str, key: String, words: [Word; N]) {
        let place = *self.places.entry((name, key)).or_insert_with_key(|(name, key)| {
            let (key, words) = (key.clone(), Vec::new());
            self.list.push(Command { name, key, words, width: N });
            self.list.len() - 1
        });
        self.list[place].words.extend(words);
    }

    /// A command by itself.
    fn alone(&mut self, name: &'static str, key: String, words: Vec<Word>) {
        let width = words.len().max(1);
        self.list.push(Command { name, key, words, width });
    }

    /// Writes the commands as arguments; says how many.
    fn write(&self, call: &mut Cmd) -> usize {
        let mut count = 0;
        for Command { name, key, words, width } in &self.list {
            let part = (ARGUMENTS / width).max(1) * width;
            let parts: Vec<&[Word]> = if words.is_empty() { vec![&[]] } else { words.chunks(part).collect() };
            // Commands on several keys have no key of their own.
            let own = usize::from(!key.is_empty());
            for words in parts {
                call.arg(words.len() + own + 1).arg(*name);
                if own == 1 {
                    call.arg(key);
                }
                for word in words {
                    call.arg(&word[..]);
                }
                count += words.len() + own + 2;
            }
        }
        count
    }
}

fn word(value: impl ToString) -> Word {
    value.to_string().into_bytes()
}

/// The claim under which a lane is held.
pub(crate) fn claim_of(lane: &Lane) -> Option<&str> {
    let current = lane.current.as_ref().filter(|run| run.state == RunState::Running)?;
    current.claim_id.as_deref()
}

/// Whether a source without a limit has only seen time pass, or one more good answer: that is all that claims and settles do
/// to it while all is well. Nothing was decided by it, so it is written unless somebody has changed the source otherwise,
/// and nobody has to begin anew: neither this transaction nor those that have read the row as it was.
fn is_only_later(was: &Source, is: &Source) -> bool {
    let later = Source { at: is.at, last_success_at: is.last_success_at, ..was.clone() };
    let began = was.last_success_at.is_some() || is.last_success_at.is_none();
    is.rules.per_minute.is_none() && began && later == *is
}

/// Everything that one transaction writes.
struct Writes<'t> {
    keys: &'t Keys,
    tx: &'t Tx,
    commands: Commands,
    /// Sets whose first entry may have changed: the name in `waits`, and the set.
    waits: BTreeMap<String, String>,
    /// Lanes whose rows are written or gone: reserved entries of others are given back.
    written: HashSet<u64>,
    /// Lanes of which something else is written.
    changed: BTreeSet<u64>,
    /// The latest record of each lane.
    records: HashMap<u64, Timestamp>,
    /// Sources that must be as they were seen, with their versions.
    guarded: BTreeMap<SourceId, u64>,
    /// Pockets that change.
    pockets: BTreeMap<u64, Pocket>,
    /// Lanes whose rows are going to be written.
    known: HashSet<u64>,
    /// Lanes that go.
    gone: HashSet<u64>,
}

/// The arguments that end a transaction.
pub(crate) fn end(tx: &Tx, call: Cmd, changes: &Changes) -> Cmd {
    finish(Writes::new(tx), call, changes)
}

/// The arguments that put rows in place of what is there under the same names. Lanes that are there were read; records
/// between those of `trail` are among the changes, so that they can be kept together anew.
pub(crate) fn put(tx: &Tx, call: Cmd, changes: &Changes, trail: Option<(u64, u64)>) -> Cmd {
    let mut writes = Writes::new(tx);
    let (keys, commands) = (tx.keys(), &mut writes.commands);
    for (lane, kept) in &changes.new_events {
        let seq = word(kept.event.seq);
        commands.alone("ZREMRANGEBYSCORE", keys.part("ev", *lane), vec![seq.clone(), seq]);
    }
    for run in &changes.new_runs {
        let (lane, number) = (run.lane, run.ended.run.number);
        let name = word(run_name(RunId { lane, number }));
        commands.add("ZREM", keys.part("span", lane), [word(number)]);
        commands.add("ZREM", keys.of("ended"), [name.clone()]);
        commands.add("ZREM", keys.of("dead"), [name]);
    }
    if let Some((first, last)) = trail {
        commands.alone("ZREMRANGEBYSCORE", keys.of("audit"), vec![word(first), word(last)]);
    }
    writes.known.extend(changes.lanes.iter().map(|write| write.lane.id));
    writes.take_out(changes);
    finish(writes, call, changes)
}

/// The arguments that take out a lane that was read, but not its events aside.
pub(crate) fn remove(tx: &Tx, call: Cmd, key: &LaneKey, lane: u64) -> Cmd {
    let mut writes = Writes::new(tx);
    let words = writes.leaves(key, Some(lane));
    writes.commands.alone("@remove", String::new(), words);
    finish(writes, call, &Changes::default())
}

/// The arguments that take over what belongs to no lane: the totals in place of those of `queues`, and the latest number
/// that was given elsewhere.
pub(crate) fn frame(tx: &Tx, call: Cmd, changes: &Changes, queues: &[String], frame: &Frame) -> Cmd {
    let mut writes = Writes::new(tx);
    let (keys, commands) = (tx.keys(), &mut writes.commands);
    for queue in queues {
        commands.alone("DEL", keys.totals(queue), Vec::new());
    }
    for name in ["declared", "source", "sources"] {
        commands.alone("DEL", keys.of(name), Vec::new());
    }
    // Those that were there and do not come with the frame: their answers go, too.
    for source in &changes.emptied {
        commands.alone("DEL", keys.source(*source), Vec::new());
    }
    for (tenant, queue, totals) in &frame.totals {
        let queue = queue_text(tenant, queue);
        commands.add("ZADD", keys.of("queues"), [word(0), word(&queue)]);
        for (field, value) in TOTALS.into_iter().zip(totals_of(totals)) {
            commands.add("HSET", keys.totals(&queue), [word(field), word(value)]);
        }
    }
    commands.alone("@continue", String::new(), vec![word(frame.last_number)]);
    // Those who have read another row of the same version are stopped by the new epoch.
    for source in &frame.sources {
        writes.new_source(source);
    }
    finish(writes, call, changes)
}

/// In the order of [`TOTALS`].
fn totals_of(totals: &Totals) -> [u64; 7] {
    let Totals { accepted, succeeded, dead, discarded, delayed, buffered, in_flight } = *totals;
    [accepted, succeeded, dead, discarded, delayed, buffered, in_flight]
}

fn finish(mut writes: Writes<'_>, mut call: Cmd, changes: &Changes) -> Cmd {
    let (keys, tx) = (writes.keys, writes.tx);
    for trail in &changes.audit {
        if let Some(lane) = trail.lane {
            let latest = writes.records.entry(lane).or_insert(trail.record.at);
            *latest = trail.record.at.max(*latest);
            writes.changed.insert(lane);
        }
    }
    writes.all(changes);
    let mut looks = tx.looks.clone();
    for aside in &changes.gone_aside {
        looks.insert(["HEXISTS".into(), keys.of("aside"), aside_name(aside), "1".into()]);
    }
    let new: Vec<String> =
        changes.lanes.iter().filter(|w| w.was.is_none()).map(|w| lane_text(&w.key)).collect();
    let absent: BTreeSet<&String> = tx.absent.iter().chain(&new).collect();
    call.arg(tx.epoch).arg(tx.lanes.len() + writes.guarded.len());
    for id in tx.lanes.keys() {
        call.arg(keys.lane(*id));
    }
    for id in writes.guarded.keys() {
        call.arg(keys.source(*id));
    }
    let lanes = tx.lanes.values().map(|seen| seen.front.version);
    for version in lanes.chain(writes.guarded.values().copied()) {
        call.arg(&version.to_be_bytes()[..]);
    }
    call.arg(absent.len());
    for text in absent {
        call.arg(text);
    }
    call.arg(looks.len());
    for look in &looks {
        for part in look {
            call.arg(part);
        }
    }
    writes.commands.write(&mut call);
    let count = undo(keys, &tx.reserved).write(&mut call);
    call.arg(count);
    call
}

/// The arguments that write nothing and give back what was reserved: no epoch is ever empty, so nothing holds.
pub(crate) fn give_back(tx: &Tx, mut call: Cmd) -> Cmd {
    call.arg("");
    let count = undo(tx.keys(), &tx.reserved).write(&mut call);
    call.arg(count);
    call
}

/// Entries go back to where they were, if nobody has removed them.
fn undo(keys: &Keys, reserved: &[Reserved]) -> Commands {
    let mut commands = Commands::default();
    let mut waits = BTreeMap::new();
    for place in reserved {
        give_one_back(&mut commands, &mut waits, keys, place);
    }
    refresh(&mut commands, waits);
    commands
}

fn give_one_back(
    commands: &mut Commands,
    waits: &mut BTreeMap<String, String>,
    keys: &Keys,
    place: &Reserved,
) {
    let (name, set) = place.index.names(keys, &place.queue);
    waits.insert(name, set.clone());
    commands.add("@back", set, [word(place.score), place.member.clone().into_bytes()]);
}

fn refresh(commands: &mut Commands, waits: BTreeMap<String, String>) {
    for (name, set) in waits {
        commands.alone("@waits", String::new(), vec![word(name), word(set)]);
    }
}

impl<'t> Writes<'t> {
    fn new(tx: &'t Tx) -> Self {
        Writes {
            keys: tx.keys(),
            tx,
            commands: Commands::default(),
            waits: BTreeMap::new(),
            written: HashSet::new(),
            changed: BTreeSet::new(),
            records: HashMap::new(),
            guarded: BTreeMap::new(),
            pockets: BTreeMap::new(),
            known: HashSet::new(),
            gone: HashSet::new(),
        }
    }

    fn all(&mut self, changes: &Changes) {
        self.known.extend(changes.lanes.iter().map(|write| write.lane.id));
        for lane in changes.erased.iter().filter_map(|(_, lane)| *lane) {
            self.gone.insert(lane);
        }
        self.events(changes);
        self.runs(changes);
        self.trail(&changes.audit);
        self.empty_full_pockets();
        self.steps(changes);
        self.aside(changes);
        self.settings(changes);
        self.sources(changes);
        self.shelves(changes);
        for write in &changes.lanes {
            self.lane(write);
        }
        for (key, lane) in &changes.erased {
            self.erased(key, *lane);
        }
        self.versions();
        for ((tenant, queue), delta) in &changes.totals {
            let queue = queue_text(tenant, queue);
            self.commands.add("ZADD", self.keys.of("queues"), [word(0), word(&queue)]);
            for (field, value) in TOTALS.into_iter().zip(delta.values()).filter(|(_, value)| *value != 0) {
                self.commands.alone("HINCRBY", self.keys.totals(&queue), vec![word(field), word(value)]);
            }
        }
        for place in &self.tx.reserved {
            let written = match place.index {
                Index::Look => self.aside_written(changes, &place.member),
                _ => place.member.parse().is_ok_and(|lane: u64| self.written.contains(&lane)),
            };
            if !written {
                give_one_back(&mut self.commands, &mut self.waits, self.keys, place);
            }
        }
        refresh(&mut self.commands, std::mem::take(&mut self.waits));
    }

    fn aside_written(&self, changes: &Changes, name: &str) -> bool {
        let moved = || changes.moved_aside.iter().filter_map(|(number, ..)| self.tx.asides.get(number));
        changes.gone_aside.iter().any(|aside| aside_name(aside) == name)
            || moved().any(|aside| aside_name(aside) == name)
            || changes.erased.iter().any(|(key, _)| {
                self.tx.asides.values().any(|aside| aside.event.lane == *key && aside_name(aside) == name)
            })
    }

    fn lane(&mut self, write: &LaneWrite) {
        let LaneWrite { key, lane, was, entries } = write;
        let (queue, id) = (queue_text(&key.tenant, &key.queue), word(lane.id));
        let seen = self.tx.lanes.get(&lane.id);
        let pocket = match (self.pockets.remove(&lane.id), seen) {
            (Some(changed), _) => Cow::Owned(changed),
            (None, Some(seen)) => Cow::Borrowed(&seen.pocket),
            (None, None) => Cow::Owned(self.new_pocket()),
        };
        let value = write_lane(self.front(lane.id, seen), key, lane, *entries, &pocket);
        self.commands.add("MSET", String::new(), [self.keys.lane(lane.id).into_bytes(), value]);
        self.written.insert(lane.id);
        if was.is_none() {
            let text = lane_text(key);
            self.commands.add("HSET", self.keys.of("key"), [word(&text), id.clone()]);
            self.commands.add("ZADD", self.keys.of("names"), [word(0), word(text)]);
        }
        let reserved = |index: Index| self.tx.reserved_lanes.contains(&(index, lane.id));
        let due = |e: &Entries| e.due.map(|at| (Index::Due(e.priority, e.source), at));
        let (old, new) = (was.as_ref().and_then(due), due(entries));
        let stale_due = old.is_some_and(|(index, _)| reserved(index));
        let old_lease = was.and_then(|was| was.lease.map(|at| (Index::Lease, at)));
        let new_lease = entries.lease.map(|at| (Index::Lease, at));
        let stale_lease = reserved(Index::Lease);
        for (old, new, stale) in [(old, new, stale_due), (old_lease, new_lease, stale_lease)] {
            if old == new && !stale {
                continue;
            }
            if let Some((index, _)) = old
                && new.is_none_or(|(now, _)| now != index)
            {
                let (name, set) = index.names(self.keys, &queue);
                self.waits.insert(name, set.clone());
                self.commands.add("ZREM", set, [id.clone()]);
            }
            if let Some((index, at)) = new {
                let (name, set) = index.names(self.keys, &queue);
                self.waits.insert(name, set.clone());
                self.commands.add("ZADD", set, [word(at.as_millis()), id.clone()]);
            }
        }
        match (seen.is_some_and(|seen| seen.held), is_held(lane)) {
            (false, true) => self.commands.add("ZADD", self.keys.held(&queue), [id.clone(), id.clone()]),
            (true, false) => self.commands.add("ZREM", self.keys.held(&queue), [id.clone()]),
            _ => {}
        }
        let (old, new) = (seen.and_then(|seen| seen.stopped), stopped_for(lane));
        if old != new {
            if let Some(source) = old {
                self.commands.add("SREM", self.keys.stopped(source), [id.clone()]);
            }
            if let Some(source) = new {
                self.commands.add("SADD", self.keys.stopped(source), [id.clone()]);
            }
        }
        let (old, new) = (seen.and_then(|seen| seen.claim.as_deref()), claim_of(lane));
        if old != new {
            if let Some(claim) = old {
                self.commands.add("SREM", self.keys.claim(claim), [id.clone()]);
            }
            if let Some(claim) = new {
                self.commands.add("SADD", self.keys.claim(claim), [id]);
            }
        }
    }

    /// The front of a lane's row after this transaction.
    fn front(&self, lane: u64, seen: Option<&Seen>) -> Front {
        let front = seen.map_or(Front { version: 0, latest: self.tx.now, top: 0 }, |seen| seen.front);
        let latest = self.records.get(&lane).copied().unwrap_or(front.latest);
        Front {
            version: front.version + 1,
            latest: front.latest.max(latest),
            top: front.top.max(self.tx.given),
        }
    }

    /// Takes a lane out of all sets by which it is found. Says what the scripts that remove the rest need to know.
    fn leaves(&mut self, key: &LaneKey, lane: Option<u64>) -> Vec<Word> {
        let (text, queue) = (lane_text(key), queue_text(&key.tenant, &key.queue));
        let mut words = vec![word(text), word(&queue), lane.map_or_else(Vec::new, word)];
        if let Some((id, seen)) = lane.and_then(|id| Some((id, self.tx.lanes.get(&id)?))) {
            let Seen { entries, claim, held, runs, stopped, pocket, .. } = seen;
            // The trail of a lane that goes stays, and its pocket goes with its row.
            pocket.records().for_each(|record| self.record_in_set(id, record));
            words.extend(runs.iter().map(word));
            let member = word(id);
            let due = entries.due.map(|_| Index::Due(entries.priority, entries.source));
            for index in due.into_iter().chain(entries.lease.map(|_| Index::Lease)) {
                let (name, set) = index.names(self.keys, &queue);
                self.waits.insert(name, set.clone());
                self.commands.add("ZREM", set, [member.clone()]);
            }
            if *held {
                self.commands.add("ZREM", self.keys.held(&queue), [member.clone()]);
            }
            if let Some(source) = stopped {
                self.commands.add("SREM", self.keys.stopped(*source), [member.clone()]);
            }
            if let Some(claim) = claim {
                self.commands.add("SREM", self.keys.claim(claim), [member]);
            }
            self.written.insert(id);
        }
        words
    }

    fn erased(&mut self, key: &LaneKey, lane: Option<u64>) {
        let words = self.leaves(key, lane);
        self.commands.alone("@erase", String::new(), words);
        let queue = queue_text(&key.tenant, &key.queue);
        let (name, set) = Index::Look.names(self.keys, &queue);
        self.waits.insert(name, set);
    }

    /// Whoever has read a lane of which anything changes begins anew, also when its row stays the same.
    fn versions(&mut self) {
        for lane in std::mem::take(&mut self.changed) {
            if self.written.contains(&lane) {
                continue;
            }
            if let Some(seen) = self.tx.lanes.get(&lane) {
                let front = self.front(lane, Some(seen));
                match self.pockets.remove(&lane) {
                    Some(pocket) => {
                        let row = write_lane_again(front, &seen.head, &pocket);
                        self.commands.add("MSET", String::new(), [self.keys.lane(lane).into_bytes(), row]);
                    }
                    None => {
                        let words = vec![word(0), front.bytes()];
                        self.commands.alone("SETRANGE", self.keys.lane(lane), words);
                    }
                }
            }
        }
    }

    fn steps(&mut self, changes: &Changes) {
        for run in &changes.gone_steps {
            self.commands.alone("DEL", self.keys.steps(run.lane, run.number), Vec::new());
            self.changed.insert(run.lane);
        }
        for (run, row) in &changes.steps {
            let words = [word(step_field(row.revision, &row.name)), write_step(row)];
            // A holder may take many steps at once. Each looks at its own memo again and not at the others, so the
            // version of the lane stays.
            self.commands.add("HSET", self.keys.steps(run.lane, run.number), words);
        }
    }

    fn aside(&mut self, changes: &Changes) {
        let queue_of = |key: &LaneKey| queue_text(&key.tenant, &key.queue);
        for aside in &changes.gone_aside {
            let (name, text) = (aside_name(aside), lane_text(&aside.event.lane));
            let (waits, look) = Index::Look.names(self.keys, &queue_of(&aside.event.lane));
            self.commands.add("HDEL", self.keys.of("aside"), [word(&name)]);
            self.commands.add("ZREM", look.clone(), [word(&name)]);
            self.commands.add("ZREM", self.keys.aside_of(&text), [word(&name)]);
            self.commands.add("HDEL", self.keys.aside_ids(&text), [word(aside.event.id.id().as_str())]);
            self.waits.insert(waits, look);
        }
        for (number, key, look_at) in &changes.moved_aside {
            let Some(known) = self.tx.asides.get(number) else { continue };
            let (waits, look) = Index::Look.names(self.keys, &queue_of(key));
            let mut moved = known.clone();
            moved.look_at = *look_at;
            let name = word(aside_name(&moved));
            self.commands.add("HSET", self.keys.of("aside"), [name.clone(), codec::write_aside(&moved)]);
            self.commands.add("ZADD", look.clone(), [word(look_at.as_millis()), name]);
            self.waits.insert(waits, look);
        }
        for aside in &changes.new_aside {
            let (name, text) = (word(aside_name(aside)), lane_text(&aside.event.lane));
            let (waits, look) = Index::Look.names(self.keys, &queue_of(&aside.event.lane));
            self.commands.add("HSET", self.keys.of("aside"), [name.clone(), codec::write_aside(aside)]);
            self.commands.add("ZADD", look.clone(), [word(aside.look_at.as_millis()), name.clone()]);
            let ready = word(aside.ready_at.as_millis());
            self.commands.add("ZADD", self.keys.aside_of(&text), [ready, name.clone()]);
            let id = word(aside.event.id.id().as_str());
            self.commands.add("HSET", self.keys.aside_ids(&text), [id, name]);
            self.waits.insert(waits, look);
        }
    }

    /// Schedules and pauses: each has a version, because they are read all together.
    fn settings(&mut self, changes: &Changes) {
        let meta = |this: &mut Self, version: &str| {
            this.commands.alone("HINCRBY", this.keys.meta(), vec![word(version), word(1)]);
        };
        for name in &changes.gone_schedules {
            let text = word(queue_text(&name.0, &name.1));
            self.commands.add("HDEL", self.keys.of("schedule"), [text.clone()]);
            self.unfire(name, &text, None);
        }
        for row in &changes.schedules {
            let schedule = &row.schedule;
            let name = (schedule.tenant.clone(), schedule.name.clone());
            let text = word(queue_text(&name.0, &name.1));
            let queue = queue_text(&schedule.tenant, &schedule.queue);
            self.commands.add("HSET", self.keys.of("schedule"), [text.clone(), codec::write_schedule(row)]);
            self.unfire(&name, &text, row.next_at.is_some().then_some(&queue));
            if let Some(next) = row.next_at {
                let (waits, set) = Index::Fire.names(self.keys, &queue);
                self.commands.add("ZADD", set.clone(), [word(next.as_millis()), text]);
                self.waits.insert(waits, set);
            }
        }
        if !changes.schedules.is_empty() || !changes.gone_schedules.is_empty() {
            meta(self, "schedules");
        }
        let pause = |queue: &str, tenant: Option<&str>| match tenant {
            Some(tenant) => word(format!("{queue}\0{tenant}")),
            None => word(queue),
        };
        for (queue, tenant, paused) in &changes.pauses {
            let field = pause(queue.as_str(), tenant.as_ref().map(|t| t.as_str()));
            self.commands.add("HSET", self.keys.of("pause"), [field, codec::write_paused(paused)]);
        }
        for (queue, tenant) in &changes.gone_pauses {
            let field = pause(queue.as_str(), tenant.as_ref().map(|t| t.as_str()));
            self.commands.add("HDEL", self.keys.of("pause"), [field]);
        }
        if !changes.pauses.is_empty() || !changes.gone_pauses.is_empty() {
            meta(self, "pauses");
        }
    }

    fn sources(&mut self, changes: &Changes) {
        let names = |this: &mut Self, name: &SourceName| {
            this.commands.alone("HINCRBY", this.keys.of("named"), vec![word(name.as_str()), word(1)]);
        };
        for source in &changes.new_sources {
            self.new_source(source);
            names(self, &source.name);
        }
        for source in &changes.sources {
            let Some(seen) = self.tx.sources.get(&source.id) else { continue };
            let key = self.keys.source(source.id).into_bytes();
            if is_only_later(&seen.source, source) {
                let version = seen.version.to_be_bytes().to_vec();
                let words = vec![key, version, write_source(seen.version, source)];
                self.commands.alone("@later", String::new(), words);
            } else {
                self.guarded.insert(source.id, seen.version);
                self.commands.add("MSET", String::new(), [key, write_source(seen.version + 1, source)]);
            }
        }
        for declaration in &changes.declarations {
            let words = [word(declaration.name.as_str()), codec::write_declaration(declaration)];
            self.commands.add("HSET", self.keys.of("declared"), words);
            names(self, &declaration.name);
        }
        for name in &changes.gone_declarations {
            self.commands.add("HDEL", self.keys.of("declared"), [word(name.as_str())]);
            names(self, name);
        }
        for source in &changes.emptied {
            self.commands.alone("@emptied", String::new(), vec![word(source)]);
        }
        for (source, key) in &changes.gone_answers {
            self.commands.alone("@unanswered", String::new(), vec![word(source), word(key)]);
        }
        for row in &changes.answers {
            let (source, key) = (word(row.source), word(&row.key));
            let over = word(row.over_at().as_millis());
            let expires = row.value.as_ref().map_or_else(Vec::new, |_| word(row.expires_at.as_millis()));
            let words = vec![source, key, over, expires, codec::write_answer(row)];
            self.commands.alone("@answer", String::new(), words);
        }
    }

    fn shelves(&mut self, changes: &Changes) {
        for (shelf, name) in &changes.gone_documents {
            self.commands.add("HDEL", self.keys.documents(*shelf), [word(name)]);
            self.commands.add("ZREM", self.keys.lapses(*shelf), [word(name)]);
        }
        for (shelf, document) in &changes.documents {
            let lapses = document.expires_at.map(|at| at.as_millis());
            let words = [word(shelf.as_str()), word(&document.name), word(or_empty(lapses))];
            let words = words.into_iter().chain([codec::write_document(document)]).collect();
            self.commands.alone("@document", String::new(), words);
        }
    }

    /// Puts a source in its place that was not there.
    fn new_source(&mut self, source: &Source) {
        let (key, text) = (self.keys.source(source.id), source_text(&source.tenant, &source.name));
        self.commands.add("MSET", String::new(), [key.into_bytes(), write_source(1, source)]);
        self.commands.add("HSET", self.keys.of("source"), [word(&text), word(source.id)]);
        self.commands.add("ZADD", self.keys.of("sources"), [word(0), word(text)]);
    }

    /// A schedule leaves the queue for which it fired, unless that is the one for which it goes on to.
    fn unfire(
        &mut self,
        name: &(quell_core::event::Tenant, quell_core::event::QueueName),
        text: &[u8],
        stays: Option<&String>,
    ) {
        let Some(old) = self.tx.schedules.get(name).filter(|old| Some(*old) != stays) else { return };
        let (waits, set) = Index::Fire.names(self.keys, old);
        self.commands.add("ZREM", set.clone(), [text.to_vec()]);
        self.waits.insert(waits, set);
    }
}
