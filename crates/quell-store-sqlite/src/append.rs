//! Append: events become durable here, and their sender gets its answer.
//!
//! First every event of the request is looked at (known id, full lane) and nothing is changed; then all of them are
//! stored. So a request is all or nothing, and a conflict in one request never touches another of its group. The lanes
//! are kept in the transaction and their rows written once at its end ([`Tx::write_lanes`]). Delayed events go aside
//! (`aside.rs`) and come back through [`enter`].

use std::collections::HashMap;

use quell_core::error::StoreResult;
use quell_core::event::{EventId, Fingerprint, LaneKey, NewEvent, NewEventId, Overflow};
use quell_core::lane::{Gone, Lane};
use quell_core::lifecycle::{Change, RunState};
use quell_core::limits;
use quell_core::store::{AppendRequest, Appended, Receipt, id_conflict, lane_full, not_idle};
use rusqlite::OptionalExtension;
use rusqlite::types::Value;

use crate::aside;
use crate::error::not_done;
use crate::inspect::place_of_event;
use crate::rows::{LaneRow, at, flags, maybe_at, maybe_number, number, open_values, source_code};
use crate::settle::{Report, record_step};
use crate::tx::{PendingLane, Tx};

const LANE_BY_KEY: &str = concat!(include_str!("../sql/lane.sql"), "WHERE queue_id = ?1 AND key = ?2");

/// What will be done with one event.
enum Plan {
    New,
    /// The same as the event with this sequence number.
    Duplicate(u64),
    /// The same as an event that is still aside.
    DuplicateAside(u64),
    /// The same as this earlier event of the request.
    Repeats(usize),
}

pub(crate) fn append(tx: &mut Tx<'_, '_>, request: &AppendRequest) -> StoreResult<Appended> {
    request.check()?;
    let plans = plan(tx, request)?;
    let mut receipts: Vec<Receipt> = Vec::with_capacity(plans.len());
    for (event, plan) in request.events.iter().zip(plans) {
        let receipt = perform(tx, event, plan, &receipts).map_err(|e| not_done(&e))?;
        receipts.push(receipt);
    }
    Ok(Appended { receipts })
}

fn perform(
    tx: &mut Tx<'_, '_>,
    event: &NewEvent,
    plan: Plan,
    receipts: &[Receipt],
) -> rusqlite::Result<Receipt> {
    match plan {
        Plan::New => match event.delay {
            Some(delay) => aside::put(tx, event, tx.now.after(delay)),
            None => enter(tx, event, false),
        },
        Plan::Duplicate(seq) => duplicate(tx, event, seq),
        Plan::DuplicateAside(number) => aside::duplicate(tx, number),
        Plan::Repeats(first) => match receipts[first].seq {
            Some(seq) => duplicate(tx, event, seq),
            None => Ok(Receipt { duplicate: true, ..receipts[first].clone() }),
        },
    }
}

/// What earlier events of one request have already spoken for.
#[derive(Default)]
struct Spoken<'r> {
    news: HashMap<&'r LaneKey, u64>,
    ids: HashMap<(&'r LaneKey, &'r EventId), usize>,
    contents: HashMap<(&'r LaneKey, Fingerprint), usize>,
}

fn plan(tx: &mut Tx<'_, '_>, request: &AppendRequest) -> StoreResult<Vec<Plan>> {
    let mut spoken = Spoken::default();
    let mut plans = Vec::with_capacity(request.events.len());
    for (index, event) in request.events.iter().enumerate() {
        plans.push(plan_one(tx, request, index, event, &mut spoken)?);
    }
    Ok(plans)
}

fn plan_one<'r>(
    tx: &mut Tx<'_, '_>,
    request: &'r AppendRequest,
    index: usize,
    event: &'r NewEvent,
    spoken: &mut Spoken<'r>,
) -> StoreResult<Plan> {
    let LaneKey { tenant, queue, key } = &event.lane;
    let (id, given) = (event.id.id(), matches!(event.id, NewEventId::Given(_)));
    let conflict = || id_conflict(&event.lane, id);
    // A refused request leaves no trace, so a queue that is not there yet is not made here.
    let queue = tx.find_queue(tenant, queue).map_err(|e| not_done(&e))?;
    let lane = match queue {
        Some(queue) => tx.pending_lane(queue, key.as_str()).map_err(|e| not_done(&e))?,
        None => None,
    };
    let lane = lane.map(|pending| pending.row.lane.clone());
    if given || request.repeat {
        if let Some(lane) = &lane
            && let Some((seq, print)) = find_event(tx, lane.id, id).map_err(|e| not_done(&e))?
        {
            let differs = print.is_some_and(|first| first != event.payload.fingerprint());
            return if differs { Err(conflict()) } else { Ok(Plan::Duplicate(seq)) };
        }
        if let Some(queue) = queue
            && let Some((number, print)) = aside::find(tx, queue, key, id).map_err(|e| not_done(&e))?
        {
            let differs = print != event.payload.fingerprint();
            return if differs { Err(conflict()) } else { Ok(Plan::DuplicateAside(number)) };
        }
    }
    if given && let Some(&first) = spoken.ids.get(&(&event.lane, id)) {
        let differs = request.events[first].payload.fingerprint() != event.payload.fingerprint();
        return if differs { Err(conflict()) } else { Ok(Plan::Repeats(first)) };
    }
    let by_content = event.policy.content_dedupe && event.delay.is_none();
    if by_content {
        let print = event.payload.fingerprint();
        if !given {
            if let Some(lane) = &lane
                && let Some(seq) = same_content(tx, lane, print).map_err(|e| not_done(&e))?
            {
                return Ok(Plan::Duplicate(seq));
            }
            if let Some(&first) = spoken.contents.get(&(&event.lane, print)) {
                return Ok(Plan::Repeats(first));
            }
        }
        spoken.contents.insert((&event.lane, print), index);
    }
    let new = spoken.news.entry(&event.lane).or_default();
    tx.check_source(event)?;
    check_room(tx, event, queue, lane.as_ref(), *new)?;
    *new += 1;
    if given {
        spoken.ids.insert((&event.lane, id), index);
    }
    Ok(Plan::New)
}

/// Whether one more event fits into its lane, behind `new` others of the same request.
fn check_room(
    tx: &mut Tx<'_, '_>,
    event: &NewEvent,
    queue: Option<u64>,
    lane: Option<&Lane>,
    new: u64,
) -> StoreResult<()> {
    let waiting = lane.map_or(0, Lane::events);
    if event.only_if_idle {
        let idle = lane.is_none_or(Lane::is_idle) && new == 0;
        let aside = match queue {
            Some(queue) => aside::count(tx, queue, &event.lane.key).map_err(|e| not_done(&e))?,
            None => 0,
        };
        if !idle || aside > 0 {
            return Err(not_idle(&event.lane));
        }
    }
    if event.delay.is_some() || waiting + new < event.policy.lane_events {
        return Ok(());
    }
    let buffered = lane.and_then(|l| l.open).map_or(0, |o| o.count);
    let over = waiting + new + 1 - event.policy.lane_events;
    if event.policy.overflow == Overflow::DropOldest && over <= buffered {
        return Ok(());
    }
    Err(lane_full(&event.lane, waiting, event.policy.lane_events))
}

/// The sequence number of a known id, with the fingerprint if its sender gave the id.
pub(crate) fn find_event(
    tx: &mut Tx<'_, '_>,
    lane: u64,
    id: &EventId,
) -> rusqlite::Result<Option<(u64, Option<Fingerprint>)>> {
    let sql = "SELECT seq, fingerprint FROM event WHERE id = ?1 AND lane_id = ?2";
    let read = |row: &rusqlite::Row<'_>| {
        let print: Option<[u8; 16]> = row.get(1)?;
        Ok((row.get(0)?, print.map(Fingerprint)))
    };
    tx.statements.get(sql)?.query_row((id.as_str(), lane), read).optional()
}

/// The event of the still open window whose payload is the same.
fn same_content(tx: &mut Tx<'_, '_>, lane: &Lane, print: Fingerprint) -> rusqlite::Result<Option<u64>> {
    let Some(open) = lane.open.filter(|o| o.window.closed.is_none()) else { return Ok(None) };
    let sql = "SELECT seq FROM event WHERE lane_id = ?1 AND seq >= ?2 AND mark IS NULL AND fingerprint = ?3 LIMIT 1";
    tx.statements.get(sql)?.query_row((lane.id, open.lo, print.0), |row| row.get(0)).optional()
}

/// An event takes its place in its lane. One from aside has been accepted before.
pub(crate) fn enter(tx: &mut Tx<'_, '_>, event: &NewEvent, from_aside: bool) -> rusqlite::Result<Receipt> {
    let now = tx.now;
    let queue = tx.queue_id(&event.lane.tenant, &event.lane.queue)?;
    let key = event.lane.key.as_str();
    if tx.pending_lane(queue, key)?.is_none() {
        let row = LaneRow::new(Lane::new(tx.fresh(), now), queue, key);
        tx.lanes.insert((queue, key.to_owned()), PendingLane { row, new: true, changed: true });
    }
    make_room(tx, queue, event)?;
    let source = tx.governing(event)?;
    let (seq, number_if_opened) = (tx.fresh(), tx.fresh());
    let pending = tx.lanes.get_mut(&(queue, key.to_owned())).expect("it was found or inserted above");
    let lane = &mut pending.row.lane;
    let asked_before = lane.current.as_ref().is_some_and(|c| c.interrupt_requested);
    let met = lane.append(now, seq, event, source, || number_if_opened);
    let asked = lane.current.as_ref().is_some_and(|c| c.interrupt_requested);
    pending.changed = true;
    let open = lane.open.expect("an append leaves an open run");
    let (lane_id, run_id, due_at) = (lane.id, lane.run_id(open.number), lane.waits_until(seq, None));
    // A holder that is to stop hears of it by the bell, not at its next heartbeat.
    tx.wake |= asked && !asked_before;
    let (given, id) = match &event.id {
        NewEventId::Given(id) => (true, id),
        NewEventId::Made(id) => (false, id),
    };
    let print = (given || event.policy.content_dedupe).then(|| event.payload.fingerprint().0.to_vec());
    let headers = if event.headers.is_empty() {
        Value::Null
    } else {
        Value::Text(serde_json::to_string(&event.headers).expect("text headers are always JSON"))
    };
    let priority = (event.priority != limits::PRIORITY_DEFAULT).then_some(event.priority);
    let sql = include_str!("../sql/append_event.sql");
    let unset: Option<u64> = None;
    tx.statements.get(sql)?.execute((
        lane_id,
        seq,
        id.as_str(),
        print,
        now.as_millis(),
        headers,
        event.payload.as_str(),
        unset,
        unset,
        priority,
        source.map(|id| id.0),
    ))?;
    tx.wrote = true;
    let totals = &mut tx.queue(queue)?.totals;
    if from_aside {
        totals.entered(1)
    } else {
        totals.appended(1)
    }
    let state = Some(RunState::Pending);
    Ok(Receipt {
        event_id: id.clone(),
        seq: Some(seq),
        run_id: Some(run_id),
        duplicate: false,
        due_at,
        state,
        met: Some(met),
    })
}

/// A full lane that drops its oldest makes room for one more event.
fn make_room(tx: &mut Tx<'_, '_>, queue: u64, event: &NewEvent) -> rusqlite::Result<()> {
    if event.policy.overflow != Overflow::DropOldest {
        return Ok(());
    }
    let key = event.lane.key.as_str().to_owned();
    let lane = &tx.lanes[&(queue, key.clone())].row.lane;
    let waiting = lane.events();
    let Some(open) = lane.open.filter(|_| waiting >= event.policy.lane_events) else { return Ok(()) };
    let (id, over) = (lane.id, waiting + 1 - event.policy.lane_events);
    let gone = gone(tx, id, open.lo, over)?.expect("a full lane has buffered events to drop");
    let run = tx.fresh();
    mark(tx, id, gone.lo, gone.hi, None, run)?;
    let now = tx.now;
    let pending = tx.lanes.get_mut(&(queue, key)).expect("the caller has put it there");
    let step = pending.row.lane.discard(now, gone, Change::Dropped, run);
    pending.changed = true;
    record_step(tx, queue, id, &event.lane, step, &Report::default(), None).map(|_| ())
}

/// The oldest buffered events of a lane, as many as asked for, and where the rest begins.
pub(crate) fn gone(tx: &mut Tx<'_, '_>, lane: u64, lo: u64, most: u64) -> rusqlite::Result<Option<Gone>> {
    let sql = "SELECT seq, octet_length(payload), received_at, source FROM event
               WHERE lane_id = ?1 AND seq >= ?2 AND mark IS NULL ORDER BY seq";
    let mut statement = tx.connection.prepare_cached(sql)?;
    let mut rows = statement.query((lane, lo))?;
    let mut gone: Option<Gone> = None;
    while let Some(row) = rows.next()? {
        let (seq, bytes): (u64, u64) = (row.get(0)?, row.get(1)?);
        let received = crate::rows::time(row, 2)?;
        match &mut gone {
            Some(gone) if gone.count == most => {
                gone.rest_lo = Some(seq);
                gone.rest_source = crate::rows::maybe_source(row, 3)?;
                break;
            }
            Some(gone) => {
                gone.hi = seq;
                gone.count += 1;
                gone.bytes += bytes;
                gone.last_at = received;
            }
            None => {
                let (first_at, last_at) = (received, received);
                let rest_lo = None;
                let rest_source = None;
                gone =
                    Some(Gone { lo: seq, hi: seq, count: 1, bytes, first_at, last_at, rest_lo, rest_source });
            }
        }
    }
    Ok(gone)
}

/// Gives the events of a range that belong to `from` (or are unmarked) expressly to a run.
pub(crate) fn mark(
    tx: &mut Tx<'_, '_>,
    lane: u64,
    lo: u64,
    hi: u64,
    from: Option<u64>,
    to: u64,
) -> rusqlite::Result<usize> {
    let sql = "UPDATE event SET mark = ?5 WHERE lane_id = ?1 AND seq BETWEEN ?2 AND ?3 AND mark IS ?4";
    tx.execute(sql, [number(lane), number(lo), number(hi), maybe_number(from), number(to)])
}

/// The first event's receipt; nothing moves.
fn duplicate(tx: &mut Tx<'_, '_>, event: &NewEvent, seq: u64) -> rusqlite::Result<Receipt> {
    let queue = tx.queue_id(&event.lane.tenant, &event.lane.queue)?;
    let pending = tx.pending_lane(queue, event.lane.key.as_str())?.expect("the plan found the lane");
    let lane = pending.row.lane.clone();
    let sql = "SELECT id, mark FROM event WHERE lane_id = ?1 AND seq = ?2";
    let read = |row: &rusqlite::Row<'_>| Ok((crate::rows::event_id(row.get_ref(0)?.as_str()?)?, row.get(1)?));
    let (event_id, mark) = tx.statements.get(sql)?.query_row((lane.id, seq), read)?;
    let place = place_of_event(tx.connection, &lane, seq, mark)?;
    Ok(Receipt {
        event_id,
        seq: Some(seq),
        run_id: place.map(|(number, _)| lane.run_id(number)),
        duplicate: true,
        due_at: lane.waits_until(seq, mark),
        state: place.map(|(_, state)| state),
        met: None,
    })
}

impl Tx<'_, '_> {
    /// A lane by its key, kept for the rest of the transaction.
    pub(crate) fn pending_lane(&mut self, queue: u64, key: &str) -> rusqlite::Result<Option<&PendingLane>> {
        let entry = (queue, key.to_owned());
        if !self.lanes.contains_key(&entry) {
            let row = self.statements.get(LANE_BY_KEY)?.query_row((queue, key), LaneRow::read).optional()?;
            let Some(row) = row else { return Ok(None) };
            let row = self.with_worker(row)?;
            self.lanes.insert(entry.clone(), PendingLane { row, new: false, changed: false });
        }
        Ok(self.lanes.get(&entry))
    }

    /// Writes the lanes that got events. The due index is touched only when a lane becomes due earlier than its entry.
    pub(crate) fn write_lanes(&mut self) -> rusqlite::Result<()> {
        for (_, pending) in std::mem::take(&mut self.lanes) {
            if pending.changed {
                self.write_lane(pending)?;
            }
        }
        Ok(())
    }

    fn write_lane(&mut self, pending: PendingLane) -> rusqlite::Result<()> {
        let PendingLane { row, new, .. } = pending;
        let lane = &row.lane;
        let (id, head, updated) = (number(lane.id), number(lane.head_seq), at(lane.updated_at));
        let open = open_values(lane.open.as_ref());
        let priority = lane.priority();
        let level = Value::Integer(i64::from(priority));
        let source = lane.source();
        let asks = number(source_code(source));
        // A running, paused or blocked lane is not due, and one in backoff keeps the entry that its backoff wrote.
        let due = lane.due_at().map(|due| due.max(self.now));
        if new {
            let key = Value::Text(row.key.clone());
            let head = [id, number(row.queue_id), key, maybe_at(due), level, asks, head, updated];
            self.execute(include_str!("../sql/append_lane_new.sql"), head.into_iter().chain(open))?;
            self.has_lanes(row.queue_id, priority, source)?;
            return self.lane_due(row.queue_id, source, due);
        }
        let flags = lane.current.as_ref().map_or(Value::Null, flags);
        let runs = [id, head, updated, flags].into_iter().chain(open);
        let entry = row.due_entry;
        let earlier =
            due.is_some_and(|due| entry.is_none_or(|entry| due < entry) || row.priority_entry != priority);
        if !earlier && row.source_entry == source {
            return self.change_lane(include_str!("../sql/append_lane_open.sql"), runs);
        }
        // The entry never moves to later here: that is for the claim, when it is reached.
        let due = due.map(|due| entry.map_or(due, |entry| entry.min(due)));
        let entry = [maybe_at(due), level, asks];
        self.change_lane(include_str!("../sql/append_lane_due.sql"), runs.chain(entry))?;
        self.has_lanes(row.queue_id, priority, source)?;
        self.lane_due(row.queue_id, source, due)
    }

    /// A lane by its key as the file has it, after everything pending is written.
    pub(crate) fn lane_by_key(&mut self, queue: u64, key: &str) -> rusqlite::Result<Option<LaneRow>> {
        self.write_lanes()?;
        let row = self.statements.get(LANE_BY_KEY)?.query_row((queue, key), LaneRow::read).optional()?;
        row.map(|row| self.with_worker(row)).transpose()
    }
}
