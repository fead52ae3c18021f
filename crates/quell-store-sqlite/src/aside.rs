//! Aside: events that are accepted and not in their lane yet, and the schedules that make some of them.
//!
//! Every claim takes in what is ready for its queues, and every sweep for all of them, in the order of (ready, accepted).
//! A queue's own `next_at` covers the earliest of its events aside and of its schedules, so nobody polls. A full lane
//! leaves its events aside and is looked at again a little later.

use std::sync::Arc;

use quell_core::audit::Move;
use quell_core::clock::Timestamp;
use quell_core::event::{Event, EventId, Fingerprint, Key, LaneKey, NewEvent, NewEventId, Overflow, Payload};
use quell_core::lane;
use quell_core::lifecycle::Change;
use quell_core::limits;
use quell_core::schedule::{Schedule, ScheduleRow};
use quell_core::source::SourceId;
use quell_core::store::{Receipt, id_conflict};
use rusqlite::types::{FromSqlError, Value};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::append::{enter, find_event};
use crate::claim::key_of;
use crate::rows::{
    LaneRow, at, event_id, from_json, maybe_at, maybe_source_value, maybe_time, number, time, to_json,
};
use crate::settle::{Member, Report, part, write_finished};
use crate::sources::source_name;
use crate::tx::{QueueRow, Tx};

/// Accepts an event without giving it a place in its lane yet.
pub(crate) fn put(tx: &mut Tx<'_, '_>, event: &NewEvent, ready_at: Timestamp) -> rusqlite::Result<Receipt> {
    let queue = tx.queue_id(&event.lane.tenant, &event.lane.queue)?;
    let row = tx.fresh();
    tx.execute(INSERT, values(row, queue, event, tx.now, ready_at))?;
    tx.queue(queue)?.totals.set_aside(1);
    tx.due(queue, Some(ready_at.max(tx.now)))?;
    Ok(receipt(event.id.id().clone(), ready_at, false))
}

pub(crate) const INSERT: &str =
    "INSERT INTO aside VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";

/// The row of an event aside.
pub(crate) fn values(
    row: u64,
    queue: u64,
    event: &NewEvent,
    now: Timestamp,
    ready_at: Timestamp,
) -> [Value; 14] {
    let text = |s: &str| Value::Text(s.to_owned());
    [
        number(row),
        number(queue),
        text(event.lane.key.as_str()),
        text(event.id.id().as_str()),
        Value::Integer(matches!(event.id, NewEventId::Given(_)).into()),
        at(now),
        at(ready_at),
        at(ready_at),
        Value::Integer(i64::from(event.priority)),
        event.window.as_ref().map_or(Value::Null, to_json),
        to_json(&*event.policy),
        if event.headers.is_empty() { Value::Null } else { to_json(&event.headers) },
        text(event.payload.as_str()),
        event.source.as_ref().map_or(Value::Null, |name| text(name.as_str())),
    ]
}

pub(crate) fn receipt(event_id: EventId, ready_at: Timestamp, duplicate: bool) -> Receipt {
    let due_at = Some(ready_at);
    Receipt { event_id, seq: None, run_id: None, duplicate, due_at, state: None, met: None }
}

pub(crate) fn duplicate(tx: &mut Tx<'_, '_>, row: u64) -> rusqlite::Result<Receipt> {
    let sql = "SELECT id, ready_at FROM aside WHERE number = ?1";
    tx.connection
        .prepare_cached(sql)?
        .query_row([row], |row| Ok(receipt(event_id(row.get_ref(0)?.as_str()?)?, time(row, 1)?, true)))
}

/// An event aside by its id, with the fingerprint of its payload.
pub(crate) fn find(
    tx: &mut Tx<'_, '_>,
    queue: u64,
    key: &Key,
    id: &EventId,
) -> rusqlite::Result<Option<(u64, Fingerprint)>> {
    if tx.queue(queue)?.totals.delayed == 0 {
        return Ok(None);
    }
    let sql = "SELECT number, payload FROM aside WHERE id = ?1 AND queue_id = ?2 AND key = ?3";
    let read =
        |row: &Row<'_>| Ok((row.get(0)?, Payload::from_stored(row.get_ref(1)?.as_str()?).fingerprint()));
    let mut statement = tx.connection.prepare_cached(sql)?;
    statement.query_row((id.as_str(), queue, key.as_str()), read).optional()
}

/// Events aside of one key.
pub(crate) fn count(tx: &mut Tx<'_, '_>, queue: u64, key: &Key) -> rusqlite::Result<u64> {
    if tx.queue(queue)?.totals.delayed == 0 {
        return Ok(0);
    }
    let sql = "SELECT count(*) FROM aside WHERE queue_id = ?1 AND key = ?2";
    tx.connection.prepare_cached(sql)?.query_row((queue, key.as_str()), |row| row.get(0))
}

/// When something aside of this queue wants to be looked at. Queues without any pay nothing.
pub(crate) fn earliest(connection: &Connection, queue: &QueueRow) -> rusqlite::Result<Option<Timestamp>> {
    let min = |sql: &str| -> rusqlite::Result<Option<Timestamp>> {
        let found: Option<i64> = connection.prepare_cached(sql)?.query_row([queue.id], |row| row.get(0))?;
        Ok(found.map(Timestamp::from_millis))
    };
    let aside = match queue.totals.delayed {
        0 => None,
        _ => min("SELECT min(look_at) FROM aside WHERE queue_id = ?1")?,
    };
    let schedule = match queue.schedules {
        0 => None,
        _ => min("SELECT min(next_at) FROM schedule WHERE queue_id = ?1 AND next_at IS NOT NULL")?,
    };
    Ok([aside, schedule].into_iter().flatten().min())
}

/// Fires the schedules of a queue that are due and takes ready events into their lanes, within the budget.
pub(crate) fn fire_and_enter(
    tx: &mut Tx<'_, '_>,
    queue: &QueueRow,
    budget: &mut usize,
) -> rusqlite::Result<()> {
    if queue.schedules > 0 {
        fire(tx, queue)?;
    }
    if tx.queue(queue.id)?.totals.delayed == 0 {
        return Ok(());
    }
    let sql = "SELECT number, key, id, given, ready_at, priority, window, policy, headers, payload, source FROM aside
               WHERE queue_id = ?1 AND look_at <= ?2 ORDER BY look_at, ready_at, number LIMIT ?3";
    let now = tx.now.as_millis();
    let ready: Vec<Waiting> = tx
        .connection
        .prepare_cached(sql)?
        .query_map((queue.id, now, *budget), |row| Waiting::read(row, queue))?
        .collect::<rusqlite::Result<_>>()?;
    *budget -= ready.len().min(*budget);
    for waiting in ready {
        enter_one(tx, queue.id, waiting)?;
    }
    Ok(())
}

/// One event aside, as its row.
pub(crate) struct Waiting {
    pub(crate) number: u64,
    pub(crate) ready_at: i64,
    pub(crate) event: NewEvent,
}

impl Waiting {
    pub(crate) fn read(row: &Row<'_>, queue: &QueueRow) -> rusqlite::Result<Waiting> {
        let lane = LaneKey {
            tenant: queue.tenant.clone(),
            queue: queue.name.clone(),
            key: key_of(row.get_ref(1)?.as_str()?)?,
        };
        let id = event_id(row.get_ref(2)?.as_str()?)?;
        let id = if row.get(3)? { NewEventId::Given(id) } else { NewEventId::Made(id) };
        let payload = Payload::from_stored(row.get_ref(9)?.as_str()?);
        let mut event = NewEvent::new(lane, id, payload, Arc::new(from_json(row.get_ref(7)?.as_str()?)?));
        event.priority = row.get(5)?;
        if let Some(text) = row.get_ref(6)?.as_str_or_null()? {
            event.window = Some(from_json(text)?);
        }
        if let Some(text) = row.get_ref(8)?.as_str_or_null()? {
            event.headers = from_json(text)?;
        }
        event.source = row.get_ref(10)?.as_str_or_null()?.map(source_name).transpose()?;
        Ok(Waiting { number: row.get(0)?, ready_at: row.get(4)?, event })
    }
}

fn enter_one(tx: &mut Tx<'_, '_>, queue: u64, waiting: Waiting) -> rusqlite::Result<()> {
    let event = &waiting.event;
    let key = event.lane.key.as_str();
    let lane = tx.pending_lane(queue, key)?.map(|pending| pending.row.lane.clone());
    if let (Some(lane), NewEventId::Given(id)) = (&lane, &event.id)
        && let Some((seq, print)) = find_event(tx, lane.id, id)?
    {
        remove(tx, waiting.number)?;
        return if print.is_none_or(|first| first == event.payload.fingerprint()) {
            tx.queue(queue)?.totals.discarded_aside(1);
            let made = Move { upto_seq: seq, ..lane::plain(Change::DuplicateDropped) };
            let id = lane.id;
            tx.write_lanes()?;
            tx.audit(queue, Some(id), &made, None)
        } else {
            bury(tx, queue, event)
        };
    }
    // Those of one lane enter in order: behind one that has to wait, all wait.
    let sql = "SELECT look_at FROM aside WHERE queue_id = ?1 AND key = ?2 AND (ready_at, number) < (?3, ?4)
               ORDER BY ready_at, number LIMIT 1";
    let mut statement = tx.connection.prepare_cached(sql)?;
    let earlier: Option<i64> =
        statement.query_row((queue, key, waiting.ready_at, waiting.number), |row| row.get(0)).optional()?;
    let full = lane.is_some_and(|lane| {
        let (waiting, most) = (lane.events(), event.policy.lane_events);
        let buffered = lane.open.map_or(0, |o| o.count);
        let drops = event.policy.overflow == Overflow::DropOldest && waiting < most + buffered;
        waiting >= most && !drops
    });
    let later = tx.now.after(limits::ASIDE_FULL_WAIT).as_millis();
    match earlier.or(full.then_some(later)) {
        Some(until) => {
            let values = [number(waiting.number), Value::Integer(until)];
            tx.execute("UPDATE aside SET look_at = ?2 WHERE number = ?1", values).map(|_| ())
        }
        None => {
            remove(tx, waiting.number)?;
            enter(tx, event, true).map(|_| ())
        }
    }
}

fn remove(tx: &mut Tx<'_, '_>, row: u64) -> rusqlite::Result<()> {
    tx.execute("DELETE FROM aside WHERE number = ?1", [number(row)]).map(|_| ())
}

/// A known id with another payload: its sender is gone, so the event goes to the dead letter, under an id of its own.
fn bury(tx: &mut Tx<'_, '_>, queue: u64, new: &NewEvent) -> rusqlite::Result<()> {
    let run = tx.fresh();
    let mut row = tx.lane_by_key(queue, new.lane.key.as_str())?.expect("its id is known in this lane");
    let member = set_down(tx, row.lane.id, new, run, "conflict")?;
    let error = id_conflict(&new.lane, new.id.id()).detail;
    let (made, mut ended) = row.lane.bury(tx.now, part(run, &[member]), error);
    ended.run.priority = new.priority;
    tx.queue(queue)?.totals.buried_aside(1);
    tx.audit(queue, Some(row.lane.id), &made, None)?;
    write_finished(tx, row.lane.id, &ended, &Report::default())
}

/// Events aside of a queue, or of one key of it, in the order of their lanes and of acceptance.
pub(crate) fn list(
    tx: &mut Tx<'_, '_>,
    queue: &QueueRow,
    key: Option<&Key>,
    most: usize,
) -> rusqlite::Result<Vec<Waiting>> {
    let sql = "SELECT number, key, id, given, ready_at, priority, window, policy, headers, payload, source FROM aside
               WHERE queue_id = ?1 AND (?2 IS NULL OR key = ?2) ORDER BY key, ready_at, number LIMIT ?3";
    let read = |row: &Row<'_>| Waiting::read(row, queue);
    let key = key.map(Key::as_str);
    tx.connection.prepare_cached(sql)?.query_map((queue.id, key, most), read)?.collect()
}

/// Events aside of one lane that an operator discards: a run of their own, kept like everything discarded.
pub(crate) fn purge(
    tx: &mut Tx<'_, '_>,
    actor: &str,
    row: &mut LaneRow,
    gone: &[Waiting],
) -> rusqlite::Result<()> {
    let run = tx.fresh();
    let mut members = Vec::with_capacity(gone.len());
    for waiting in gone {
        remove(tx, waiting.number)?;
        members.push(set_down(tx, row.lane.id, &waiting.event, run, "purged")?);
    }
    let (made, mut ended) = row.lane.discard_aside(tx.now, part(run, &members));
    ended.run.priority = gone.iter().map(|w| w.event.priority).max().unwrap_or(limits::PRIORITY_DEFAULT);
    tx.queue(row.queue_id)?.totals.discarded_aside(gone.len() as u64);
    tx.audit(row.queue_id, Some(row.lane.id), &made, Some(actor))?;
    write_finished(tx, row.lane.id, &ended, &Report::default())
}

/// Keeps an event from aside in its lane as one of this run, which has ended. Where its id is known already it gets one
/// made of this word.
fn set_down(
    tx: &mut Tx<'_, '_>,
    lane: u64,
    new: &NewEvent,
    run: u64,
    word: &str,
) -> rusqlite::Result<Member> {
    let source = tx.governing(new)?;
    let (seq, now) = (tx.fresh(), tx.now);
    let own = || EventId::new(format!("{word}_{seq}")).expect("a word and a number are a short text");
    let known = find_event(tx, lane, new.id.id())?.is_some();
    let id = if known { own() } else { new.id.id().clone() };
    let (payload, headers) = (new.payload.clone(), new.headers.clone());
    let event = Event { seq, id, received_at: now, payload, headers, was_seq: None };
    insert_marked(tx, lane, &event, run, new.priority, source)?;
    Ok(Member { seq, bytes: event.payload.len() as u64, received_at: now, source })
}

fn insert_marked(
    tx: &mut Tx<'_, '_>,
    lane: u64,
    event: &Event,
    run: u64,
    priority: u8,
    source: Option<SourceId>,
) -> rusqlite::Result<()> {
    let priority = (priority != limits::PRIORITY_DEFAULT).then_some(priority);
    let sql = include_str!("../sql/append_event.sql");
    let headers = if event.headers.is_empty() { Value::Null } else { to_json(&event.headers) };
    let values = [
        number(lane),
        number(event.seq),
        Value::Text(event.id.as_str().to_owned()),
        Value::Blob(event.payload.fingerprint().0.to_vec()),
        at(event.received_at),
        headers,
        Value::Text(event.payload.as_str().to_owned()),
        number(run),
        Value::Null,
        priority.map_or(Value::Null, |p| Value::Integer(i64::from(p))),
        maybe_source_value(source),
    ];
    tx.execute(sql, values).map(|_| ())
}

/// Reads a schedule whose queue is known: `name, cron, zone, key, payload, policy, last_fire, next_at, tenant`.
pub(crate) fn read_schedule(row: &Row<'_>, queue: &QueueRow) -> rusqlite::Result<ScheduleRow> {
    let bad = |e: Box<dyn std::error::Error + Send + Sync>| rusqlite::Error::from(FromSqlError::Other(e));
    let text = |column| -> rusqlite::Result<String> { row.get(column) };
    let schedule = Schedule {
        tenant: queue.tenant.clone(),
        name: quell_core::schedule::schedule_name(&text(0)?).map_err(|e| bad(Box::new(e)))?,
        cron: text(1)?.parse().map_err(|e: quell_core::cron::CronProblem| bad(Box::new(e)))?,
        zone: text(2)?.parse().map_err(|e: quell_core::cron::ZoneProblem| bad(Box::new(e)))?,
        queue: queue.name.clone(),
        key: key_of(&text(3)?)?,
        payload: Payload::from_stored(&text(4)?),
        policy: Arc::new(from_json(row.get_ref(5)?.as_str()?)?),
    };
    Ok(ScheduleRow { schedule, last_fire: time(row, 6)?, next_at: maybe_time(row, 7)? })
}

pub(crate) const SCHEDULE_COLUMNS: &str =
    "name, cron, zone, key, payload, policy, last_fire, next_at, tenant";

fn fire(tx: &mut Tx<'_, '_>, queue: &QueueRow) -> rusqlite::Result<()> {
    let sql = format!("SELECT {SCHEDULE_COLUMNS} FROM schedule WHERE queue_id = ?1 AND next_at <= ?2");
    let due: Vec<ScheduleRow> = tx
        .connection
        .prepare_cached(&sql)?
        .query_map((queue.id, tx.now.as_millis()), |row| read_schedule(row, queue))?
        .collect::<rusqlite::Result<_>>()?;
    for mut row in due {
        // The place in time and the event are one transaction: a fire is neither lost nor doubled.
        let fired = row.fire(tx.now);
        let text = |s: &str| Value::Text(s.to_owned());
        let values = [
            text(row.schedule.tenant.as_str()),
            text(row.schedule.name.as_str()),
            at(row.last_fire),
            maybe_at(row.next_at),
        ];
        tx.execute(
            "UPDATE schedule SET last_fire = ?3, next_at = ?4 WHERE tenant = ?1 AND name = ?2",
            values,
        )?;
        if let Some((event, when)) = fired {
            put(tx, &event, when)?;
        }
    }
    Ok(())
}
