//! Append: events become durable here, and their sender gets its answer.
//!
//! First every event of the request is looked at (known id, full lane) and nothing is changed; then all of them are
//! stored. So a request is all or nothing, and a conflict in one request never touches another of its group. The lanes
//! are kept in the transaction and their rows written once at its end ([`Tx::write_lanes`]).

use std::collections::HashMap;

use quell_core::error::{StoreError, StoreResult};
use quell_core::event::{EventId, Fingerprint, LaneKey, NewEvent, NewEventId};
use quell_core::lane::Lane;
use quell_core::store::{AppendRequest, Appended, Receipt, id_conflict, lane_full};
use rusqlite::OptionalExtension;
use rusqlite::types::Value;

use crate::error::not_done;
use crate::inspect::place_of_event;
use crate::rows::{LaneRow, at, maybe_at, number, open_values};
use crate::tx::{PendingLane, Tx};

const LANE_BY_KEY: &str = concat!(include_str!("../sql/lane.sql"), "WHERE queue_id = ?1 AND key = ?2");

/// What will be done with one event.
enum Plan {
    New,
    /// The same as the event with this sequence number.
    Duplicate(u64),
    /// The same as this earlier event of the request.
    Repeats(usize),
}

pub(crate) fn append(tx: &mut Tx<'_, '_>, request: &AppendRequest) -> StoreResult<Appended> {
    request.check()?;
    let plans = plan(tx, request)?;
    let mut receipts: Vec<Receipt> = Vec::with_capacity(plans.len());
    for (event, plan) in request.events.iter().zip(plans) {
        let receipt = match plan {
            Plan::New => store(tx, event).map_err(|e| not_done(&e))?,
            Plan::Duplicate(seq) => duplicate(tx, event, seq).map_err(|e| not_done(&e))?,
            Plan::Repeats(first) => duplicate(tx, event, receipts[first].seq).map_err(|e| not_done(&e))?,
        };
        receipts.push(receipt);
    }
    Ok(Appended { receipts })
}

fn plan(tx: &mut Tx<'_, '_>, request: &AppendRequest) -> StoreResult<Vec<Plan>> {
    let mut news: HashMap<&LaneKey, u64> = HashMap::new();
    let mut ids: HashMap<(&LaneKey, &EventId), usize> = HashMap::new();
    let mut plans = Vec::with_capacity(request.events.len());
    for (index, event) in request.events.iter().enumerate() {
        let LaneKey { tenant, queue, key } = &event.lane;
        let given = matches!(event.id, NewEventId::Given(_));
        // A refused request leaves no trace, so a queue that is not there yet is not made here.
        let queue = tx.find_queue(tenant, queue).map_err(|e| not_done(&e))?;
        let lane = match queue {
            Some(queue) => tx.pending_lane(queue, key.as_str()).map_err(|e| not_done(&e))?,
            None => None,
        };
        let lane = lane.map(|pending| (pending.row.lane.id, pending.row.lane.events()));
        let mut known = None;
        if let Some((lane, _)) = lane
            && (given || request.repeat)
        {
            known = find_event(tx, lane, event.id.id()).map_err(|e| not_done(&e))?;
        }
        let earlier = if given { ids.get(&(&event.lane, event.id.id())).copied() } else { None };
        let plan = match (known, earlier) {
            (Some((seq, print)), _) => {
                if print.is_some_and(|first| first != event.payload.fingerprint()) {
                    return Err(id_conflict(&event.lane, event.id.id()));
                }
                Plan::Duplicate(seq)
            }
            (None, Some(earlier)) => {
                if request.events[earlier].payload.fingerprint() != event.payload.fingerprint() {
                    return Err(id_conflict(&event.lane, event.id.id()));
                }
                Plan::Repeats(earlier)
            }
            (None, None) => {
                check_room(lane.map_or(0, |(_, n)| n), &mut news, event)?;
                if given {
                    ids.insert((&event.lane, event.id.id()), index);
                }
                Plan::New
            }
        };
        plans.push(plan);
    }
    Ok(plans)
}

fn check_room<'r>(
    waiting: u64,
    news: &mut HashMap<&'r LaneKey, u64>,
    event: &'r NewEvent,
) -> Result<(), StoreError> {
    let new = news.entry(&event.lane).or_default();
    if waiting + *new >= event.policy.lane_events {
        return Err(lane_full(&event.lane, waiting, event.policy.lane_events));
    }
    *new += 1;
    Ok(())
}

/// The sequence number of a known id, with the fingerprint if its sender gave the id.
fn find_event(
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

fn store(tx: &mut Tx<'_, '_>, event: &NewEvent) -> rusqlite::Result<Receipt> {
    let now = tx.now;
    let queue = tx.queue_id(&event.lane.tenant, &event.lane.queue)?;
    let key = event.lane.key.as_str();
    if tx.pending_lane(queue, key)?.is_none() {
        let lane = Lane::new(tx.fresh(), now);
        let row = LaneRow {
            lane,
            queue_id: queue,
            key: key.to_owned(),
            due_entry: None,
            lease_entry: None,
            worker: None,
        };
        tx.lanes.insert((queue, key.to_owned()), PendingLane { row, new: true, changed: true });
    }
    let (seq, number_if_opened) = (tx.fresh(), tx.fresh());
    let pending = tx.lanes.get_mut(&(queue, key.to_owned())).expect("it was found or inserted above");
    let lane = &mut pending.row.lane;
    let met = lane.append(now, seq, event.payload.len() as u64, &event.policy.window, || number_if_opened);
    pending.changed = true;
    let open = lane.open.expect("an append leaves an open run");
    let (lane_id, run_id) = (lane.id, lane.run_id(open.number));
    let (fingerprint, id) = match &event.id {
        NewEventId::Given(id) => (Value::Blob(event.payload.fingerprint().0.to_vec()), id),
        NewEventId::Made(id) => (Value::Null, id),
    };
    let headers = if event.headers.is_empty() {
        Value::Null
    } else {
        Value::Text(serde_json::to_string(&event.headers).expect("text headers are always JSON"))
    };
    let sql = include_str!("../sql/append_event.sql");
    tx.statements.get(sql)?.execute((
        lane_id,
        seq,
        id.as_str(),
        fingerprint,
        now.as_millis(),
        headers,
        event.payload.as_str(),
    ))?;
    tx.wrote = true;
    tx.queue(queue)?.totals.appended(1);
    let due_at = Some(open.window.due().0);
    Ok(Receipt { event_id: id.clone(), seq, run_id: Some(run_id), duplicate: false, due_at, met: Some(met) })
}

/// The first event's receipt; nothing moves.
fn duplicate(tx: &mut Tx<'_, '_>, event: &NewEvent, seq: u64) -> rusqlite::Result<Receipt> {
    let queue = tx.queue_id(&event.lane.tenant, &event.lane.queue)?;
    let pending = tx.pending_lane(queue, event.lane.key.as_str())?.expect("the plan found the lane");
    let lane = pending.row.lane.clone();
    let place = place_of_event(tx.connection, &lane, seq)?;
    Ok(Receipt {
        event_id: event.id.id().clone(),
        seq,
        run_id: place.map(|(number, _)| lane.run_id(number)),
        duplicate: true,
        due_at: lane.waits_until(seq),
        met: None,
    })
}

impl Tx<'_, '_> {
    /// A lane by its key, kept for the rest of the transaction.
    fn pending_lane(&mut self, queue: u64, key: &str) -> rusqlite::Result<Option<&PendingLane>> {
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
        // A running or paused lane is not due, and one in backoff keeps the entry that its backoff wrote.
        let due = lane.due_at().map(|due| due.max(self.now));
        if new {
            let key = Value::Text(row.key.clone());
            let head = [id, number(row.queue_id), key, maybe_at(due), head, updated];
            self.execute(include_str!("../sql/append_lane_new.sql"), head.into_iter().chain(open))?;
            return self.due(row.queue_id, due);
        }
        let runs = [id, head, updated].into_iter().chain(open);
        match due.filter(|due| row.due_entry.is_none_or(|entry| *due < entry)) {
            Some(earlier) => {
                self.change_lane(include_str!("../sql/append_lane_due.sql"), runs.chain([at(earlier)]))?;
                self.due(row.queue_id, Some(earlier))
            }
            None => self.change_lane(include_str!("../sql/append_lane_open.sql"), runs),
        }
    }
}

impl Tx<'_, '_> {
    /// A lane by its key as the file has it, after everything pending is written.
    pub(crate) fn lane_by_key(&mut self, queue: u64, key: &str) -> rusqlite::Result<Option<LaneRow>> {
        self.write_lanes()?;
        let row = self.statements.get(LANE_BY_KEY)?.query_row((queue, key), LaneRow::read).optional()?;
        row.map(|row| self.with_worker(row)).transpose()
    }
}
