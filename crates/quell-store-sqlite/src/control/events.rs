//! What an operator does to events: cancel, redrive, purge, erase, edit, delete.

use std::collections::BTreeSet;

use quell_core::audit::Move;
use quell_core::batch::RunId;
use quell_core::clock::Timestamp;
use quell_core::error::{StoreError, StoreResult};
use quell_core::event::{EventId, Key, LaneKey, NewEvent, NewEventId, Payload};
use quell_core::lane::{self, Gone, Lane};
use quell_core::lifecycle::{Change, RunState};
use quell_core::limits;
use quell_core::store::{
    Controlled, Purge, PurgeWhat, Redrive, RedriveTo, edits_another, mixed_sources, not_buffered,
    too_large_to_redrive, too_many_queued,
};
use rusqlite::OptionalExtension;
use rusqlite::types::Value;

use super::{find_lane, new_lane};
use crate::append::{find_event, gone, mark};
use crate::aside;
use crate::claim::key_of;
use crate::error::not_done;
use crate::rows::{LaneRow, RunRecord, at, extra_value, maybe_source, number, state_code, time};
use crate::settle::{Member, Report, apply, members, part};
use crate::tx::Tx;

const RUN_BY_NUMBER: &str = concat!(include_str!("../../sql/run.sql"), "WHERE lane_id = ?1 AND number = ?2");

pub(super) fn cancel(
    tx: &mut Tx<'_, '_>,
    actor: &str,
    key: &LaneKey,
    run: Option<RunId>,
) -> StoreResult<Controlled> {
    let cancel = |tx: &mut Tx<'_, '_>| -> rusqlite::Result<Controlled> {
        let Some(mut row) = find_lane(tx, key)? else { return Ok(Controlled::default()) };
        let lane = &mut row.lane;
        let target = lane.current.as_ref().map(|c| c.number).or(lane.open.map(|o| o.number));
        let Some(id) = target.map(|number| lane.run_id(number)) else { return Ok(Controlled::default()) };
        if run.is_some_and(|run| run != id) {
            return Ok(Controlled::default());
        }
        let Some(step) = lane.cancel(tx.now) else { return Ok(Controlled::default()) };
        let events = step.finished.as_ref().map_or(0, |f| f.run.count);
        // A holder that is to stop hears of it by the bell, not at its next heartbeat.
        tx.wake = true;
        apply(tx, &mut row, step, &Report::default(), Some(actor))?;
        tx.set_next(row.queue_id)?;
        Ok(Controlled { changed: true, events, run: Some(id), more: false })
    };
    cancel(tx).map_err(|e| not_done(&e))
}

pub(super) fn redrive(tx: &mut Tx<'_, '_>, actor: &str, request: &Redrive) -> StoreResult<Controlled> {
    let id = request.run;
    if !id.is_plausible() {
        return Err(StoreError::not_found(id));
    }
    let row = tx.lane(id.lane).map_err(|e| not_done(&e))?;
    let Some(row) = row else { return Err(StoreError::not_found(id)) };
    let find = |tx: &mut Tx<'_, '_>| {
        let mut statement = tx.connection.prepare_cached(RUN_BY_NUMBER)?;
        statement.query_row((id.lane, id.number), RunRecord::read).optional()
    };
    let Some(record) = find(tx).map_err(|e| not_done(&e))? else {
        let live = row.lane.fixed_runs().any(|c| c.number == id.number)
            || row.lane.open.is_some_and(|o| o.number == id.number);
        return if live { Ok(Controlled::default()) } else { Err(StoreError::not_found(id)) };
    };
    let mut chosen = choose(tx, request, &record).map_err(|e| not_done(&e))?;
    // Conditional on still being dead (or discarded), so a repeat does nothing.
    if chosen.is_empty() || record.ended.state == RunState::Succeeded {
        return Ok(Controlled::default());
    }
    let edits = edits(tx, request, &mut chosen)?;
    if request.to == RedriveTo::Head && row.lane.queued.len() >= limits::QUEUED_RUNS_MAX {
        let queue = tx.queue(row.queue_id).map_err(|e| not_done(&e))?.clone();
        let key = key_of(&row.key).map_err(|e| not_done(&e))?;
        return Err(too_many_queued(&LaneKey { tenant: queue.tenant, queue: queue.name, key }));
    }
    let bytes: u64 = chosen.iter().map(|m| m.bytes).sum();
    let large = chosen.len() > limits::BATCH_EVENTS_MAX as usize || bytes > limits::BATCH_BYTES_MAX;
    if request.to == RedriveTo::Head && large && chosen.len() > 1 {
        return Err(too_large_to_redrive(id, chosen.len() as u64));
    }
    let several = chosen.iter().any(|m| m.source != chosen[0].source);
    if request.to == RedriveTo::Head && several {
        return Err(mixed_sources(id));
    }
    let done = put_back(tx, actor, request, row, record, &chosen, &edits).map_err(|e| not_done(&e))?;
    Ok(Controlled { changed: true, events: chosen.len() as u64, run: Some(done), more: false })
}

/// An event that goes back with another payload.
struct Edit<'a> {
    seq: u64,
    id: &'a EventId,
    payload: &'a Payload,
}

/// Those whose payload really changes; the sizes of the chosen ones are then those that they will have.
fn edits<'a>(tx: &mut Tx<'_, '_>, request: &'a Redrive, chosen: &mut [Member]) -> StoreResult<Vec<Edit<'a>>> {
    let mut edits = Vec::new();
    for (id, payload) in &request.edits {
        let found = find_event(tx, request.run.lane, id).map_err(|e| not_done(&e))?;
        let own = found.and_then(|(seq, _)| chosen.iter_mut().find(|member| member.seq == seq));
        let Some(member) = own else { return Err(edits_another(request.run, id)) };
        let sql = "SELECT payload = ?3 FROM event WHERE lane_id = ?1 AND seq = ?2";
        let same = |tx: &Tx<'_, '_>| -> rusqlite::Result<bool> {
            let mut statement = tx.connection.prepare_cached(sql)?;
            statement.query_row((request.run.lane, member.seq, payload.as_str()), |row| row.get(0))
        };
        if !same(tx).map_err(|e| not_done(&e))? {
            member.bytes = payload.len() as u64;
            edits.push(Edit { seq: member.seq, id, payload });
        }
    }
    Ok(edits)
}

/// The events of the old run that are asked for.
fn choose(tx: &mut Tx<'_, '_>, request: &Redrive, record: &RunRecord) -> rusqlite::Result<Vec<Member>> {
    if record.ended.run.count == 0 {
        return Ok(Vec::new());
    }
    let all = members(tx, record.lane, &record.ended.run)?;
    if request.events.is_empty() {
        return Ok(all);
    }
    let mut wanted = BTreeSet::new();
    for id in &request.events {
        wanted.extend(find_event(tx, record.lane, id)?.map(|(seq, _)| seq));
    }
    Ok(all.into_iter().filter(|m| wanted.contains(&m.seq)).collect())
}

fn put_back(
    tx: &mut Tx<'_, '_>,
    actor: &str,
    request: &Redrive,
    mut row: LaneRow,
    mut record: RunRecord,
    chosen: &[Member],
    edits: &[Edit<'_>],
) -> rusqlite::Result<RunId> {
    let (queue, lane) = (row.queue_id, row.lane.id);
    for edit in edits {
        // The fingerprint stays that of what was sent: a sender that repeats itself is still a duplicate.
        let sql = "UPDATE event SET payload = ?3 WHERE lane_id = ?1 AND seq = ?2";
        tx.execute(sql, [number(lane), number(edit.seq), Value::Text(edit.payload.as_str().to_owned())])?;
    }
    let old = record.ended.run.clone();
    let whole = chosen.len() as u64 == old.count && old.links.redriven_into.is_none();
    let made = match request.to {
        RedriveTo::Head => {
            let run = tx.fresh();
            let from = old.marked.then_some(old.number);
            for member in chosen {
                mark(tx, lane, member.seq, member.seq, from, run)?;
            }
            let fresh = request.fresh || !whole;
            let step = row.lane.redrive(tx.now, &old, part(run, chosen), fresh);
            if !fresh {
                let sql = "INSERT INTO step SELECT lane_id, ?4, revision, name, at, token, value FROM step
                           WHERE lane_id = ?1 AND run = ?2 AND revision = ?3";
                let revision = Value::Integer(i64::from(old.revision));
                tx.execute(sql, [number(lane), number(old.number), revision, number(run)])?;
            }
            apply(tx, &mut row, step, &Report::default(), Some(actor))?;
            run
        }
        RedriveTo::New => as_new(tx, actor, request, &mut row, old.number, chosen)?,
    };
    for edit in edits {
        // It may have a new number by now.
        let seq = find_event(tx, lane, edit.id)?.map_or(edit.seq, |(seq, _)| seq);
        tx.audit(queue, Some(lane), &Lane::edited_on_return(made, seq), Some(actor))?;
    }
    let totals = &mut tx.queue(queue)?.totals;
    totals.redriven(record.ended.state, chosen.len() as u64);
    let run = &mut record.ended.run;
    run.count -= chosen.len() as u64;
    run.links.redriven_into = Some(made);
    let sql = "UPDATE run SET count = ?2, extra = ?3 WHERE id = ?1";
    tx.execute(sql, [number(record.id), number(run.count), extra_value(run)])?;
    tx.set_next(queue)?;
    tx.wake = true;
    Ok(RunId { lane, number: made })
}

/// The events get new numbers at the end of their lane and keep their ids.
fn as_new(
    tx: &mut Tx<'_, '_>,
    actor: &str,
    request: &Redrive,
    row: &mut LaneRow,
    old: u64,
    chosen: &[Member],
) -> rusqlite::Result<u64> {
    let lane = row.lane.id;
    let key = key_of(&row.key)?;
    let queue = tx.queue(row.queue_id)?.clone();
    let key = LaneKey { tenant: queue.tenant, queue: queue.name, key };
    let mut last = 0;
    for member in chosen {
        let (seq, run) = (tx.fresh(), tx.fresh());
        let sql = "SELECT id, payload, priority FROM event WHERE lane_id = ?1 AND seq = ?2";
        let new = tx.connection.prepare_cached(sql)?.query_row((lane, member.seq), |found| {
            let id = crate::rows::event_id(found.get_ref(0)?.as_str()?)?;
            let payload = Payload::from_stored(found.get_ref(1)?.as_str()?);
            let mut new = NewEvent::new(key.clone(), NewEventId::Made(id), payload, request.policy.clone());
            new.priority = found.get::<_, Option<u8>>(2)?.unwrap_or(limits::PRIORITY_DEFAULT);
            Ok(new)
        })?;
        row.lane.append(tx.now, seq, &new, member.source, || run);
        let sql = "UPDATE event SET seq = ?3, mark = NULL, was_seq = ?2 WHERE lane_id = ?1 AND seq = ?2";
        tx.execute(sql, [number(lane), number(member.seq), number(seq)])?;
        last = seq;
    }
    let step = row.lane.redriven_as_new(old, last);
    let open = row.lane.open.expect("the events are in it").number;
    apply(tx, row, step, &Report::default(), Some(actor))?;
    Ok(open)
}

pub(super) fn purge(tx: &mut Tx<'_, '_>, actor: &str, purge: &Purge) -> StoreResult<Controlled> {
    tx.write_lanes().map_err(|e| not_done(&e))?;
    let mut done = Controlled::default();
    for queue in purge_queues(tx, purge).map_err(|e| not_done(&e))? {
        if is_enough(&mut done) {
            break;
        }
        let purged = match purge.what {
            PurgeWhat::Dead => purge_dead(tx, actor, purge, queue, &mut done),
            PurgeWhat::Delayed => purge_delayed(tx, actor, purge, queue, &mut done),
            PurgeWhat::Buffered => purge_buffered(tx, actor, purge, queue, &mut done),
        };
        purged.map_err(|e| not_done(&e))?;
        tx.set_next(queue).map_err(|e| not_done(&e))?;
    }
    done.changed = done.events > 0 && !purge.dry_run;
    Ok(done)
}

fn purge_queues(tx: &mut Tx<'_, '_>, purge: &Purge) -> rusqlite::Result<Vec<u64>> {
    let sql = "SELECT id FROM queue WHERE name = ?1 AND (?2 IS NULL OR tenant = ?2) ORDER BY tenant";
    let tenant = purge.tenant.as_ref().map(|t| t.as_str());
    let mut statement = tx.connection.prepare_cached(sql)?;
    statement.query_map((purge.queue.as_str(), tenant), |row| row.get(0))?.collect()
}

/// Whether one call has done its share: the rest is for the next one, so that nobody waits long behind it.
fn is_enough(done: &mut Controlled) -> bool {
    let enough = done.events >= limits::PURGE_STEP as u64;
    done.more |= enough;
    enough
}

fn purge_dead(
    tx: &mut Tx<'_, '_>,
    actor: &str,
    purge: &Purge,
    queue: u64,
    done: &mut Controlled,
) -> rusqlite::Result<()> {
    // The dead letter is an index of its own; the lane of a run says whose it is.
    let sql = concat!(
        include_str!("../../sql/run.sql"),
        "WHERE state = 4 AND count > 0
         AND EXISTS (SELECT 1 FROM lane WHERE lane.id = run.lane_id AND queue_id = ?1 AND (?2 IS NULL OR key = ?2))
         ORDER BY id LIMIT ?3"
    );
    let key = purge.key.as_ref().map(Key::as_str);
    let found: Vec<RunRecord> = tx
        .connection
        .prepare_cached(sql)?
        .query_map((queue, key, limits::PURGE_STEP + 1), RunRecord::read)?
        .collect::<rusqlite::Result<_>>()?;
    for record in found {
        if is_enough(done) {
            break;
        }
        let run = &record.ended.run;
        done.events += run.count;
        if purge.dry_run {
            continue;
        }
        let made = lane::purged(run);
        // Kept for the retention from now on, like everything discarded: it moves to the end of the finished runs.
        let sql = "UPDATE run SET id = ?2, state = ?3, finished_at = ?4 WHERE id = ?1";
        let cancelled = Value::Integer(state_code(RunState::Cancelled));
        let id = tx.fresh();
        tx.execute(sql, [number(record.id), number(id), cancelled, at(tx.now)])?;
        let now = at(tx.now);
        tx.execute(
            "UPDATE lane SET updated_at = max(updated_at, ?2) WHERE id = ?1",
            [number(record.lane), now],
        )?;
        tx.queue(queue)?.totals.discarded_dead(run.count);
        tx.audit(queue, Some(record.lane), &made, Some(actor))?;
    }
    Ok(())
}

fn purge_delayed(
    tx: &mut Tx<'_, '_>,
    actor: &str,
    purge: &Purge,
    queue: u64,
    done: &mut Controlled,
) -> rusqlite::Result<()> {
    let queue = tx.queue(queue)?.clone();
    let mut found = aside::list(tx, &queue, purge.key.as_ref(), limits::PURGE_STEP + 1)?;
    done.more |= found.len() > limits::PURGE_STEP;
    found.truncate(limits::PURGE_STEP);
    done.events += found.len() as u64;
    if purge.dry_run {
        return Ok(());
    }
    for gone in found.chunk_by(|a, b| a.event.lane == b.event.lane) {
        let key = &gone[0].event.lane;
        let mut row = match find_lane(tx, key)? {
            Some(row) => row,
            None => new_lane(tx, key)?,
        };
        aside::purge(tx, actor, &mut row, gone)?;
    }
    Ok(())
}

fn purge_buffered(
    tx: &mut Tx<'_, '_>,
    actor: &str,
    purge: &Purge,
    queue: u64,
    done: &mut Controlled,
) -> rusqlite::Result<()> {
    let sql = concat!(
        include_str!("../../sql/lane.sql"),
        "WHERE queue_id = ?1 AND o_number IS NOT NULL AND (?2 IS NULL OR key = ?2) ORDER BY key LIMIT ?3"
    );
    let key = purge.key.as_ref().map(Key::as_str);
    let found: Vec<LaneRow> = tx
        .connection
        .prepare_cached(sql)?
        .query_map((queue, key, limits::PURGE_STEP + 1), LaneRow::read)?
        .collect::<rusqlite::Result<_>>()?;
    for row in found {
        if is_enough(done) {
            break;
        }
        let row = tx.with_worker(row)?;
        let open = row.lane.open.expect("the query asked for open runs");
        done.events += open.count;
        if !purge.dry_run
            && let Some(all) = gone(tx, row.lane.id, open.lo, u64::MAX)?
        {
            discard(tx, actor, row, all, Change::Purged)?;
        }
    }
    Ok(())
}

/// Buffered events leave their lane and are kept under a run of their own. Only unmarked events of the range are
/// meant, so a range of one event is that event.
fn discard(
    tx: &mut Tx<'_, '_>,
    actor: &str,
    mut row: LaneRow,
    gone: Gone,
    change: Change,
) -> rusqlite::Result<RunId> {
    let run = tx.fresh();
    mark(tx, row.lane.id, gone.lo, gone.hi, None, run)?;
    let step = row.lane.discard(tx.now, gone, change, run);
    apply(tx, &mut row, step, &Report::default(), Some(actor))?;
    Ok(row.lane.run_id(run))
}

/// One buffered event, with its lane.
struct Buffered {
    row: LaneRow,
    seq: u64,
    bytes: u64,
    received_at: Timestamp,
    payload: String,
}

fn buffered(tx: &mut Tx<'_, '_>, key: &LaneKey, id: &EventId) -> rusqlite::Result<Option<Buffered>> {
    let Some(row) = find_lane(tx, key)? else { return Ok(None) };
    let Some(open) = row.lane.open else { return Ok(None) };
    let sql = "SELECT seq, octet_length(payload), received_at, payload FROM event
               WHERE id = ?1 AND lane_id = ?2 AND seq >= ?3 AND mark IS NULL";
    let mut statement = tx.connection.prepare_cached(sql)?;
    let found = statement.query_row((id.as_str(), row.lane.id, open.lo), |found| {
        Ok((found.get(0)?, found.get(1)?, time(found, 2)?, found.get(3)?))
    });
    let found = found.optional()?;
    Ok(found.map(|(seq, bytes, received_at, payload)| Buffered { row, seq, bytes, received_at, payload }))
}

pub(super) fn edit(
    tx: &mut Tx<'_, '_>,
    actor: &str,
    key: &LaneKey,
    id: &EventId,
    payload: &Payload,
) -> StoreResult<Controlled> {
    let found = buffered(tx, key, id).map_err(|e| not_done(&e))?;
    let Buffered { mut row, seq, bytes, payload: before, .. } = found.ok_or_else(|| not_buffered(key, id))?;
    if before == payload.as_str() {
        return Ok(Controlled::default());
    }
    let mut write = || -> rusqlite::Result<()> {
        // The fingerprint stays that of what was sent: a sender that repeats itself is still a duplicate.
        let sql = "UPDATE event SET payload = ?3 WHERE lane_id = ?1 AND seq = ?2";
        let text = Value::Text(payload.as_str().to_owned());
        tx.execute(sql, [number(row.lane.id), number(seq), text])?;
        let made = row.lane.edit(tx.now, seq, bytes, payload.len() as u64);
        let due = row.lane.due_at().map(|due| due.max(tx.now));
        tx.write_whole(&row, due)?;
        tx.audit(row.queue_id, Some(row.lane.id), &made, Some(actor))
    };
    write().map_err(|e| not_done(&e))?;
    Ok(Controlled { changed: true, events: 1, ..Controlled::default() })
}

pub(super) fn delete(
    tx: &mut Tx<'_, '_>,
    actor: &str,
    key: &LaneKey,
    id: &EventId,
) -> StoreResult<Controlled> {
    let found = buffered(tx, key, id).map_err(|e| not_done(&e))?;
    let found = found.ok_or_else(|| not_buffered(key, id))?;
    let run = take_out(tx, actor, found).map_err(|e| not_done(&e))?;
    Ok(Controlled { changed: true, events: 1, run: Some(run), more: false })
}

fn take_out(tx: &mut Tx<'_, '_>, actor: &str, found: Buffered) -> rusqlite::Result<RunId> {
    let Buffered { row, seq, bytes, received_at, .. } = found;
    let (lane, open) = (row.lane.id, row.lane.open.expect("a buffered event is in the open run"));
    let sql = "SELECT seq, source FROM event WHERE lane_id = ?1 AND seq >= ?2 AND seq <> ?3 AND mark IS NULL
               ORDER BY seq LIMIT 1";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, maybe_source(row, 1)?));
    let mut statement = tx.connection.prepare_cached(sql)?;
    let rest = statement.query_row((lane, open.lo, seq), read).optional()?;
    let (rest_lo, rest_source) = (rest.map(|(lo, _)| lo), rest.and_then(|(_, source)| source));
    let (first_at, last_at) = (received_at, received_at);
    let gone = Gone { lo: seq, hi: seq, count: 1, bytes, first_at, last_at, rest_lo, rest_source };
    let queue = row.queue_id;
    let run = discard(tx, actor, row, gone, Change::Deleted)?;
    tx.set_next(queue)?;
    Ok(run)
}

pub(super) fn erase_lane(tx: &mut Tx<'_, '_>, actor: &str, key: &LaneKey) -> StoreResult<Controlled> {
    erase_whole(tx, actor, key).map_err(|e| not_done(&e))
}

fn erase_whole(tx: &mut Tx<'_, '_>, actor: &str, key: &LaneKey) -> rusqlite::Result<Controlled> {
    let Some(queue) = tx.find_queue(&key.tenant, &key.queue)? else { return Ok(Controlled::default()) };
    tx.erased = true;
    let mut events = erase_aside(tx, queue, key, None)?;
    // A schedule of this key would name it again.
    let of_key = [number(queue), Value::Text(key.key.as_str().to_owned())];
    let schedules = tx.execute("DELETE FROM schedule WHERE queue_id = ?1 AND key = ?2", of_key)? as u64;
    tx.queue(queue)?.schedules -= schedules;
    while let Some(mut row) = find_lane(tx, key)? {
        let Some(step) = row.lane.end_now(tx.now) else { break };
        apply(tx, &mut row, step, &Report::default(), Some(actor))?;
    }
    let Some(row) = find_lane(tx, key)? else {
        if events > 0 {
            tx.audit(queue, None, &lane::plain(Change::Erased), Some(actor))?;
            tx.set_next(queue)?;
        }
        return Ok(Controlled { changed: events > 0, events, ..Controlled::default() });
    };
    let lane = row.lane.id;
    let sql = "SELECT coalesce(sum(count), 0) FROM run WHERE lane_id = ?1 AND state = 4";
    let dead = tx.connection.prepare_cached(sql)?.query_row([lane], |row| row.get(0))?;
    tx.queue(queue)?.totals.discarded_dead(dead);
    events += tx.execute("DELETE FROM event WHERE lane_id = ?1", [number(lane)])? as u64;
    tx.execute("DELETE FROM step WHERE lane_id = ?1", [number(lane)])?;
    tx.execute("DELETE FROM run WHERE lane_id = ?1", [number(lane)])?;
    // Without its row nothing says what the key was; the trail keeps the lane's number.
    tx.execute("DELETE FROM lane WHERE id = ?1", [number(lane)])?;
    tx.audit(queue, Some(lane), &lane::plain(Change::Erased), Some(actor))?;
    tx.set_next(queue)?;
    Ok(Controlled { changed: true, events, ..Controlled::default() })
}

fn erase_aside(
    tx: &mut Tx<'_, '_>,
    queue: u64,
    key: &LaneKey,
    id: Option<&EventId>,
) -> rusqlite::Result<u64> {
    let id = id.map_or(Value::Null, |id| Value::Text(id.as_str().to_owned()));
    let key = Value::Text(key.key.as_str().to_owned());
    let sql = "DELETE FROM aside WHERE queue_id = ?1 AND key = ?2 AND (?3 IS NULL OR id = ?3)";
    let gone = tx.execute(sql, [number(queue), key, id])? as u64;
    tx.queue(queue)?.totals.discarded_aside(gone);
    Ok(gone)
}

pub(super) fn erase_event(
    tx: &mut Tx<'_, '_>,
    actor: &str,
    key: &LaneKey,
    id: &EventId,
) -> StoreResult<Controlled> {
    erase_one(tx, actor, key, id).map_err(|e| not_done(&e))
}

fn erase_one(tx: &mut Tx<'_, '_>, actor: &str, key: &LaneKey, id: &EventId) -> rusqlite::Result<Controlled> {
    let Some(queue) = tx.find_queue(&key.tenant, &key.queue)? else { return Ok(Controlled::default()) };
    tx.erased = true;
    let mut events = erase_aside(tx, queue, key, Some(id))?;
    let row = find_lane(tx, key)?;
    let lane = row.as_ref().map(|row| row.lane.id);
    let found = match lane {
        Some(lane) => find_event(tx, lane, id)?.map(|(seq, _)| seq),
        None => None,
    };
    if let (Some(row), Some(seq)) = (row, found) {
        erase_seq(tx, actor, key, id, row, seq)?;
        events += 1;
    }
    if events > 0 {
        let made = Move { upto_seq: found.unwrap_or(0), ..lane::plain(Change::Erased) };
        tx.audit(queue, lane, &made, Some(actor))?;
        tx.set_next(queue)?;
    }
    Ok(Controlled { changed: events > 0, events, ..Controlled::default() })
}

/// Cancels the run that holds the event, wherever it stands, then deletes the event and the steps of that run.
fn erase_seq(
    tx: &mut Tx<'_, '_>,
    actor: &str,
    key: &LaneKey,
    id: &EventId,
    mut row: LaneRow,
    seq: u64,
) -> rusqlite::Result<()> {
    let lane = row.lane.id;
    let queue = row.queue_id;
    if let Some(found) = buffered(tx, key, id)? {
        take_out(tx, actor, found)?;
    } else if let Some((run, _)) = row.lane.run_of(seq, mark_of(tx, lane, seq)?)
        && let Some(step) = row.lane.end_run(tx.now, run)
    {
        apply(tx, &mut row, step, &Report::default(), Some(actor))?;
    }
    let mark = mark_of(tx, lane, seq)?;
    let sql = "DELETE FROM event WHERE lane_id = ?1 AND seq = ?2";
    tx.execute(sql, [number(lane), number(seq)])?;
    let sql = concat!(
        include_str!("../../sql/run.sql"),
        "WHERE lane_id = ?1 AND count > 0 AND ?2 BETWEEN lo AND hi AND (number = ?3 OR (?3 IS NULL AND flags & 4 = 0))"
    );
    let record =
        tx.connection.prepare_cached(sql)?.query_row((lane, seq, mark), RunRecord::read).optional()?;
    let Some(record) = record else { return Ok(()) };
    // What the handlers said of it may quote it, and so may the runs that it went through.
    let sql = "UPDATE run SET count = count - 1, error = NULL, result = NULL, usage = NULL WHERE id = ?1";
    tx.execute(sql, [number(record.id)])?;
    if record.ended.state == RunState::Failed {
        tx.queue(queue)?.totals.discarded_dead(1);
    }
    forget_steps(tx, lane, record.ended.run.number)?;
    let mut from = record.ended.run.links.redriven_from.or(record.ended.run.links.split_from);
    while let Some(run) = from.take() {
        forget_steps(tx, lane, run)?;
        let sql =
            "UPDATE run SET error = NULL, result = NULL, usage = NULL WHERE lane_id = ?1 AND number = ?2";
        tx.execute(sql, [number(lane), number(run)])?;
        let mut statement = tx.connection.prepare_cached(RUN_BY_NUMBER)?;
        let before = statement.query_row((lane, run), RunRecord::read).optional()?;
        from = before.and_then(|r| r.ended.run.links.redriven_from.or(r.ended.run.links.split_from));
    }
    Ok(())
}

fn forget_steps(tx: &mut Tx<'_, '_>, lane: u64, run: u64) -> rusqlite::Result<()> {
    tx.execute("DELETE FROM step WHERE lane_id = ?1 AND run = ?2", [number(lane), number(run)]).map(|_| ())
}

fn mark_of(tx: &mut Tx<'_, '_>, lane: u64, seq: u64) -> rusqlite::Result<Option<u64>> {
    let sql = "SELECT mark FROM event WHERE lane_id = ?1 AND seq = ?2";
    tx.connection.prepare_cached(sql)?.query_row((lane, seq), |row| row.get(0))
}
