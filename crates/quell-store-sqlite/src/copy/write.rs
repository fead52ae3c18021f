//! Rows put in place as they came, and the columns that this store derives from them.
//!
//! Lanes, runs, events and records keep their numbers; queues and workers get numbers of this file. What a queue's row
//! knows of its lanes (its next time, how many run, which priorities there are) and the order in which runs ended are set
//! right at the end, by [`take_frame`], so a file that is only half filled is not for use.

use std::collections::HashMap;

use quell_core::aside::Aside;
use quell_core::copy::{Frame, LaneRow, Row};
use quell_core::error::StoreResult;
use quell_core::lifecycle::RunState;
use quell_core::limits;
use quell_core::outcome::VerdictKind;
use quell_core::schedule::ScheduleRow;
use quell_core::totals::Totals;
use quell_core::working_set::{FinishedRun, Kept, Trail};
use rusqlite::OptionalExtension;
use rusqlite::types::Value;

use crate::aside;
use crate::error::not_done;
use crate::rows::{
    self, at, change_code, encode, maybe_at, maybe_number, maybe_source_value, maybe_text, number, small,
    state_code, to_json,
};
use crate::settle::{Report, write_run};
use crate::shelves::put_document;
use crate::sources::put_answer;
use crate::step::put_step;
use crate::tx::Tx;

/// Runs that have no place in the order of ending yet are behind all numbers that are ever given.
const UNORDERED: u64 = limits::NUMBER_MAX;

/// What a copy does to a store.
pub(crate) enum Change {
    Seal(Option<String>),
    Put(Vec<Row>),
    RemoveLane(u64),
    TakeFrame(Box<Frame>),
    SetPlace(Option<String>),
}

impl Change {
    pub(crate) fn rows(&self) -> usize {
        match self {
            Change::Put(rows) => rows.len(),
            _ => 1,
        }
    }
}

pub(crate) fn perform(tx: &mut Tx<'_, '_>, change: &Change) -> StoreResult<()> {
    let done = match change {
        Change::Seal(by) => {
            // Whoever sleeps would otherwise find out late that the store can be used again.
            tx.wake = true;
            tx.execute("UPDATE meta SET sealed = ?1", [maybe_text(by.clone())]).map(|_| ())
        }
        Change::SetPlace(place) => {
            tx.execute("UPDATE meta SET copy_place = ?1", [maybe_text(place.clone())]).map(|_| ())
        }
        Change::Put(rows) => rows.iter().try_for_each(|row| put(tx, row)),
        Change::RemoveLane(lane) => remove_lane(tx, *lane),
        Change::TakeFrame(frame) => take_frame(tx, frame),
    };
    done.map_err(|e| not_done(&e))
}

fn put(tx: &mut Tx<'_, '_>, row: &Row) -> rusqlite::Result<()> {
    match row {
        Row::Lane(row) => put_lane(tx, row),
        Row::Event(lane, kept) => put_event(tx, *lane, kept),
        Row::Run(run) => put_run(tx, run),
        Row::Step(run, step) => put_step(tx, *run, step),
        Row::Aside(aside) => put_aside(tx, aside),
        Row::Trail(trail) => put_trail(tx, trail),
        Row::Cached(row) => put_answer(tx, row),
    }
}

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

fn put_lane(tx: &mut Tx<'_, '_>, row: &LaneRow) -> rusqlite::Result<()> {
    let (key, lane) = (row.key.key.as_str(), &row.lane);
    let queue = tx.queue_id(&row.key.tenant, &row.key.queue)?;
    // A key that was forgotten and came again has another lane now.
    let sql = "SELECT id FROM lane WHERE queue_id = ?1 AND key = ?2 AND id <> ?3";
    let other =
        tx.connection.prepare_cached(sql)?.query_row((queue, key, lane.id), |row| row.get(0)).optional()?;
    if let Some(other) = other {
        remove_lane(tx, other)?;
    }
    let sql = "INSERT INTO lane (id, queue_id, key, head_seq, updated_at) VALUES (?1, ?2, ?3, 0, 0)
               ON CONFLICT (id) DO UPDATE SET queue_id = excluded.queue_id, key = excluded.key";
    tx.execute(sql, [number(lane.id), number(queue), text(key)])?;
    let row = rows::LaneRow::new(lane.clone(), queue, key);
    tx.write_whole(&row, lane.due_at())
}

fn put_event(tx: &mut Tx<'_, '_>, lane: u64, kept: &Kept) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO event
                 (lane_id, seq, id, fingerprint, received_at, headers, payload, mark, was_seq, priority, source)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    let event = &kept.event;
    let priority = Some(kept.priority).filter(|priority| *priority != limits::PRIORITY_DEFAULT);
    let values = [
        number(lane),
        number(event.seq),
        text(event.id.as_str()),
        Value::Blob(kept.print.0.to_vec()),
        at(event.received_at),
        if event.headers.is_empty() { Value::Null } else { to_json(&event.headers) },
        text(event.payload.as_str()),
        maybe_number(kept.mark),
        maybe_number(event.was_seq),
        maybe_number(priority.map(u64::from)),
        maybe_source_value(kept.source),
    ];
    tx.execute(sql, values).map(|_| ())
}

fn put_run(tx: &mut Tx<'_, '_>, run: &FinishedRun) -> rusqlite::Result<()> {
    let of = run.ended.run.number;
    tx.execute("DELETE FROM run WHERE lane_id = ?1 AND number = ?2", [number(run.lane), number(of)])?;
    let report = Report { result: run.result.as_ref(), usage: Some(&run.usage) };
    write_run(tx, UNORDERED + of, run.lane, &run.ended, &report)
}

fn put_aside(tx: &mut Tx<'_, '_>, aside: &Aside) -> rusqlite::Result<()> {
    let event = &aside.event;
    let queue = tx.queue_id(&event.lane.tenant, &event.lane.queue)?;
    let mut values = aside::values(aside.number, queue, event, aside.accepted_at, aside.ready_at);
    values[7] = at(aside.look_at);
    let sql =
        "INSERT OR REPLACE INTO aside VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
    tx.execute(sql, values).map(|_| ())
}

/// A record that is there already is replaced by the same one; the triggers stop only those who change or delete one.
fn put_trail(tx: &mut Tx<'_, '_>, trail: &Trail) -> rusqlite::Result<()> {
    let record = &trail.record;
    let queue = tx.queue_id(&record.tenant, &record.queue)?;
    let worker = record.worker.as_deref().map(|name| tx.worker_named(name)).transpose()?;
    let prior = record.prior_worker.as_deref().map(|name| tx.worker_named(name)).transpose()?;
    let state = |s: Option<RunState>| s.map_or(Value::Null, |s| Value::Integer(state_code(s)));
    let values = [
        number(record.id),
        at(record.at),
        number(queue),
        maybe_number(trail.lane),
        maybe_number(record.run.map(|run| run.number)),
        Value::Integer(change_code(record.change)),
        state(record.from),
        state(record.to),
        small(record.attempt),
        number(record.token),
        maybe_number(worker),
        maybe_number(prior),
        number(record.upto_seq),
        maybe_at(record.next_at),
        maybe_text(record.actor.clone()),
        maybe_number(record.other_run.map(|run| run.number)),
        record.verdict.map_or(Value::Null, |v| Value::Integer(encode(&VerdictKind::ALL, v))),
    ];
    let sql = "INSERT OR REPLACE INTO audit
                 (id, at, queue_id, lane_id, run, change, from_state, to_state, attempt, token, worker, prior_worker,
                  upto_seq, next_at, actor, other_run, verdict)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";
    tx.execute(sql, values).map(|_| ())
}

/// Takes a lane out. What the queue's row counts of it is set right by [`take_frame`].
fn remove_lane(tx: &mut Tx<'_, '_>, lane: u64) -> rusqlite::Result<()> {
    tx.execute("DELETE FROM event WHERE lane_id = ?1", [number(lane)])?;
    tx.execute("DELETE FROM step WHERE lane_id = ?1", [number(lane)])?;
    tx.execute("DELETE FROM run WHERE lane_id = ?1", [number(lane)])?;
    tx.execute("DELETE FROM lane WHERE id = ?1", [number(lane)]).map(|_| ())
}

fn take_frame(tx: &mut Tx<'_, '_>, frame: &Frame) -> rusqlite::Result<()> {
    tx.reach(frame.last_number);
    take_time(tx, frame)?;
    tx.execute("DELETE FROM queue_pause", [])?;
    for (queue, tenant, paused) in &frame.pauses {
        let every = Value::Integer(i64::from(tenant.is_none()));
        let tenant = tenant.as_ref().map_or("", |t| t.as_str());
        let values = [text(queue.as_str()), every, text(tenant), at(paused.at), text(&paused.by)];
        tx.execute("INSERT INTO queue_pause VALUES (?1, ?2, ?3, ?4, ?5)", values)?;
    }
    tx.forget_pauses();
    tx.execute("DELETE FROM schedule", [])?;
    for row in &frame.schedules {
        put_schedule(tx, row)?;
    }
    take_sources(tx, frame)?;
    tx.execute("DELETE FROM document", [])?;
    for (shelf, document) in &frame.documents {
        put_document(tx, *shelf, document)?;
    }
    order_runs(tx)?;
    // Nothing has been looked at by the retention of this file.
    tx.execute("UPDATE meta SET run_mark = 0", [])?;
    set_queues(tx, frame)?;
    tx.wake = true;
    Ok(())
}

/// Before the queues get their times, which depend on what sources let go.
fn take_sources(tx: &mut Tx<'_, '_>, frame: &Frame) -> rusqlite::Result<()> {
    tx.forget_sources();
    tx.execute("DELETE FROM declaration", [])?;
    for declaration in &frame.declarations {
        tx.put_declaration(declaration)?;
    }
    tx.execute("DELETE FROM source", [])?;
    for source in &frame.sources {
        tx.put_source_row(source)?;
    }
    tx.execute("DELETE FROM answer WHERE source NOT IN (SELECT id FROM source)", []).map(|_| ())
}

/// Store time here is never behind that of the source: leases, windows and backoffs are moments, and go on as they were.
fn take_time(tx: &mut Tx<'_, '_>, frame: &Frame) -> rusqlite::Result<()> {
    let behind = frame.now.as_millis() - tx.now.as_millis();
    if behind > 0 {
        let sql = "UPDATE meta SET clock_offset = clock_offset + ?1";
        tx.execute(sql, [Value::Integer(behind)])?;
    }
    Ok(())
}

fn put_schedule(tx: &mut Tx<'_, '_>, row: &ScheduleRow) -> rusqlite::Result<()> {
    let s = &row.schedule;
    let queue = tx.queue_id(&s.tenant, &s.queue)?;
    let values = [
        text(s.tenant.as_str()),
        text(s.name.as_str()),
        number(queue),
        Value::Text(s.cron.to_string()),
        text(s.zone.name()),
        text(s.key.as_str()),
        text(s.payload.as_str()),
        to_json(&*s.policy),
        at(row.last_fire),
        maybe_at(row.next_at),
    ];
    tx.execute("INSERT INTO schedule VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)", values).map(|_| ())
}

/// What a queue's row says of its rows elsewhere.
#[derive(Default)]
struct Counted {
    priorities: u64,
    governed: bool,
    running: u64,
    schedules: u64,
}

fn set_queues(tx: &mut Tx<'_, '_>, frame: &Frame) -> rusqlite::Result<()> {
    let mut totals: HashMap<u64, Totals> = HashMap::new();
    for (tenant, queue, of) in &frame.totals {
        totals.insert(tx.queue_id(tenant, queue)?, *of);
    }
    let mut counted: HashMap<u64, Counted> = HashMap::new();
    let sql =
        "SELECT queue_id, priority, count(lease_at), max(source) <> 0 FROM lane GROUP BY queue_id, priority";
    let mut statement = tx.connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let of = counted.entry(row.get(0)?).or_default();
        of.priorities |= 1 << row.get::<_, u8>(1)?.min(limits::PRIORITY_MAX);
        of.running += row.get::<_, u64>(2)?;
        of.governed |= row.get::<_, bool>(3)?;
    }
    let mut statement = tx.connection.prepare("SELECT queue_id, count(*) FROM schedule GROUP BY queue_id")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        counted.entry(row.get(0)?).or_default().schedules = row.get(1)?;
    }
    let mut statement = tx.connection.prepare("SELECT id FROM queue")?;
    let queues: Vec<u64> = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    for id in queues {
        let Counted { priorities, governed, running, schedules } = counted.remove(&id).unwrap_or_default();
        let row = tx.queue(id)?;
        row.totals = totals.remove(&id).unwrap_or_default();
        row.priorities = priorities | 1 << limits::PRIORITY_DEFAULT;
        row.governed = governed;
        row.running = running;
        row.schedules = schedules;
        // The next claim says what the bound is.
        row.max_running = None;
        tx.set_next(id)?;
    }
    Ok(())
}

/// Numbers the runs by the order in which they ended, from 1 on: there are never more of them than numbers were given.
/// Of those that ended in the same millisecond the trail knows the order.
fn order_runs(tx: &mut Tx<'_, '_>) -> rusqlite::Result<()> {
    tx.execute("UPDATE run SET id = ?1 + number WHERE id < ?1", [number(UNORDERED)])?;
    let mut ordered = Vec::new();
    let mut same: Vec<(u64, u64)> = Vec::new();
    let mut moment = None;
    let mut statement = tx
        .connection
        .prepare("SELECT id, finished_at, lane_id, number, token FROM run ORDER BY finished_at, number")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (id, ended): (u64, i64) = (row.get(0)?, row.get(1)?);
        if moment.replace(ended) != Some(ended) {
            flush(&mut same, &mut ordered);
        }
        let (lane, run, token): (u64, u64, u64) = (row.get(2)?, row.get(3)?, row.get(4)?);
        // Its end is recorded behind its number and its latest claim; the index of the lane leads there.
        let sql =
            "SELECT id FROM audit WHERE lane_id = ?1 AND id > ?2 AND run = ?3 AND at = ?4 AND to_state >= 3
                   ORDER BY id LIMIT 1";
        let mut ends = tx.connection.prepare_cached(sql)?;
        let end = ends.query_row((lane, token.max(run), run, ended), |row| row.get(0)).optional()?;
        same.push((end.unwrap_or(0), id));
    }
    flush(&mut same, &mut ordered);
    drop(rows);
    for (place, id) in (1..).zip(ordered) {
        tx.execute("UPDATE run SET id = ?2 WHERE id = ?1", [number(id), number(place)])?;
    }
    Ok(())
}

fn flush(same: &mut Vec<(u64, u64)>, ordered: &mut Vec<u64>) {
    same.sort_unstable();
    ordered.extend(same.drain(..).map(|(_, id)| id));
}
