//! Rows as they are stored, and back: times and numbers as `bigint`, states as their place in the core's lists.

use std::borrow::Cow;

use quell_core::audit::AuditRecord;
use quell_core::batch::RunId;
use quell_core::clock::Timestamp;
use quell_core::error::{StoreError, StoreResult};
use quell_core::event::{Event, EventId, Fingerprint, Headers, Key, LaneKey, Payload, QueueName, Tenant};
use quell_core::lane::Lane;
use quell_core::lifecycle::{Change, RunState};
use quell_core::outcome::VerdictKind;
use quell_core::source::SourceId;
use quell_core::store::StepRow;
use quell_core::working_set::Kept;
use quell_store_rows::codec;
use quell_store_rows::rows::Entries;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use crate::error::unreadable;

/// A number of the store: they stay far below what a `bigint` holds. What a caller made up is out of reach of all rows.
pub(crate) fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

pub(crate) fn maybe_number(n: Option<u64>) -> Option<i64> {
    n.map(number)
}

pub(crate) fn maybe_millis(at: Option<Timestamp>) -> Option<i64> {
    at.map(Timestamp::as_millis)
}

/// PostgreSQL keeps no NUL in a text; names that callers choose may have one.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { Cow::Borrowed(text) }
}

pub(crate) fn get<'r, T: FromSql<'r>>(row: &'r Row, column: usize) -> StoreResult<T> {
    row.try_get(column).map_err(|error| {
        let name = row.columns().get(column).map_or("?", tokio_postgres::Column::name);
        unreadable(format!("column {name}: {error}"))
    })
}

pub(crate) fn count(row: &Row, column: usize) -> StoreResult<u64> {
    let n: i64 = get(row, column)?;
    u64::try_from(n).map_err(|_| unreadable(format!("{n} is below zero")))
}

pub(crate) fn maybe_count(row: &Row, column: usize) -> StoreResult<Option<u64>> {
    let n: Option<i64> = get(row, column)?;
    n.map(|n| u64::try_from(n).map_err(|_| unreadable(format!("{n} is below zero")))).transpose()
}

pub(crate) fn time(row: &Row, column: usize) -> StoreResult<Timestamp> {
    get(row, column).map(Timestamp::from_millis)
}

pub(crate) fn maybe_time(row: &Row, column: usize) -> StoreResult<Option<Timestamp>> {
    get::<Option<i64>>(row, column).map(|at| at.map(Timestamp::from_millis))
}

/// Places in the core's lists: the same codes as in every store.
fn code<T: PartialEq>(all: &[T], value: &T) -> i16 {
    let place = all.iter().position(|v| v == value).unwrap_or(all.len());
    i16::try_from(place).unwrap_or(i16::MAX)
}

fn decode<T: Copy>(all: &[T], code: i16) -> StoreResult<T> {
    let place = usize::try_from(code).ok().and_then(|place| all.get(place));
    place.copied().ok_or_else(|| unreadable(format!("code {code} is unknown")))
}

pub(crate) fn state_code(state: RunState) -> i16 {
    code(&RunState::ALL, &state)
}

pub(crate) fn state(code: i16) -> StoreResult<RunState> {
    decode(&RunState::ALL, code)
}

pub(crate) fn change_code(change: Change) -> i16 {
    code(&Change::ALL, &change)
}

pub(crate) fn verdict_code(verdict: VerdictKind) -> i16 {
    code(&VerdictKind::ALL, &verdict)
}

pub(crate) fn queue_name(text: &str) -> StoreResult<QueueName> {
    QueueName::new(text).map_err(unreadable)
}

pub(crate) fn tenant(text: &str) -> StoreResult<Tenant> {
    Tenant::new(text).map_err(unreadable)
}

pub(crate) fn key(text: &str) -> StoreResult<Key> {
    Key::new(text).map_err(unreadable)
}

/// The number of a source where 0 stands for none.
pub(crate) fn source_code(source: Option<SourceId>) -> i64 {
    source.map_or(0, |id| number(id.0))
}

fn source(code: i64) -> StoreResult<Option<SourceId>> {
    let id = u64::try_from(code).map_err(|_| unreadable(format!("{code} is below zero")))?;
    Ok((id > 0).then_some(SourceId(id)))
}

/// The columns of [`stored_lane`].
macro_rules! lane_columns {
    () => {
        "l.queue_id, l.key, l.due_at, l.lease_at, l.priority, l.body, l.source"
    };
}
pub(crate) use lane_columns;

/// How many they are.
pub(crate) const LANE_COLUMNS: usize = 7;

/// A lane with the number of its queue, whose name is known elsewhere.
#[derive(Debug, Clone)]
pub(crate) struct StoredLane {
    pub(crate) queue: i32,
    pub(crate) key: Key,
    pub(crate) lane: Box<Lane>,
    pub(crate) entries: Entries,
}

pub(crate) fn stored_lane(row: &Row, at: usize) -> StoreResult<StoredLane> {
    let priority: i16 = get(row, at + 4)?;
    let due = maybe_time(row, at + 2)?;
    let source = source(get(row, at + 6)?)?;
    Ok(StoredLane {
        queue: get(row, at)?,
        key: key(get(row, at + 1)?)?,
        lane: Box::new(codec::read_lane(get(row, at + 5)?)?),
        entries: Entries {
            due,
            lease: maybe_time(row, at + 3)?,
            priority: u8::try_from(priority).map_err(unreadable)?,
            source: due.and(source),
        },
    })
}

/// The columns of [`kept`].
macro_rules! event_columns {
    () => {
        "e.seq, e.received_at, e.mark, e.was_seq, e.priority, e.id, e.print, e.headers, e.payload, \
         e.source"
    };
}
pub(crate) use event_columns;

pub(crate) fn kept(row: &Row, at: usize) -> StoreResult<Kept> {
    let priority: i16 = get(row, at + 4)?;
    let print: &[u8] = get(row, at + 6)?;
    let headers: Option<&str> = get(row, at + 7)?;
    let event = Event {
        seq: count(row, at)?,
        id: EventId::new(get::<&str>(row, at + 5)?).map_err(unreadable)?,
        received_at: time(row, at + 1)?,
        payload: Payload::from_stored(get(row, at + 8)?),
        headers: headers.map_or_else(|| Ok(Headers::new()), from_json)?,
        was_seq: maybe_count(row, at + 3)?,
    };
    Ok(Kept {
        event,
        mark: maybe_count(row, at + 2)?,
        priority: u8::try_from(priority).map_err(unreadable)?,
        print: Fingerprint(print.try_into().map_err(unreadable)?),
        source: maybe_count(row, at + 9)?.map(SourceId),
    })
}

pub(crate) fn headers_json(headers: &Headers) -> Option<String> {
    (!headers.is_empty()).then(|| serde_json::json!(headers).to_string())
}

fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> StoreResult<T> {
    serde_json::from_str(text).map_err(unreadable)
}

/// The columns of [`step_row`].
macro_rules! step_columns {
    () => {
        "s.lane_id, s.run, s.revision, s.name, s.at, s.token, s.value"
    };
}
pub(crate) use step_columns;

pub(crate) fn step_row(row: &Row) -> StoreResult<(RunId, StepRow)> {
    let run = RunId { lane: count(row, 0)?, number: count(row, 1)? };
    let revision: i32 = get(row, 2)?;
    let value: Option<&str> = get(row, 6)?;
    Ok((
        run,
        StepRow {
            revision: u32::try_from(revision).map_err(unreadable)?,
            name: get(row, 3)?,
            at: time(row, 4)?,
            token: count(row, 5)?,
            value: value.map(from_json).transpose()?,
        },
    ))
}

/// The columns of [`recorded`].
macro_rules! audit_columns {
    () => {
        "a.id, a.at, a.queue_id, a.lane_id, a.run, a.change, a.from_state, a.to_state, a.verdict, a.attempt, a.token, \
         a.upto_seq, a.next_at, a.other_run, a.worker, a.prior_worker, a.actor, l.key"
    };
}
pub(crate) use audit_columns;

/// A record of the trail, with the key of its lane if that still exists. `named` tells the names of its queue.
pub(crate) fn recorded(
    row: &Row,
    named: impl Fn(i32) -> Option<(Tenant, QueueName)>,
) -> StoreResult<(Option<u64>, AuditRecord)> {
    let queue: i32 = get(row, 2)?;
    let (tenant, queue) = named(queue).ok_or_else(|| unreadable(format!("queue {queue} is unknown")))?;
    let lane = maybe_count(row, 3)?;
    let of_lane = |n: Option<u64>| lane.zip(n).map(|(lane, number)| RunId { lane, number });
    let state = |column| -> StoreResult<Option<RunState>> {
        get::<Option<i16>>(row, column)?.map(|code| decode(&RunState::ALL, code)).transpose()
    };
    let verdict = get::<Option<i16>>(row, 8)?.map(|code| decode(&VerdictKind::ALL, code)).transpose()?;
    let attempt: i32 = get(row, 9)?;
    let record = AuditRecord {
        id: count(row, 0)?,
        at: time(row, 1)?,
        tenant,
        queue,
        key: get::<Option<&str>>(row, 17)?.map(key).transpose()?,
        run: of_lane(maybe_count(row, 4)?),
        change: decode(&Change::ALL, get(row, 5)?)?,
        from: state(6)?,
        to: state(7)?,
        attempt: u32::try_from(attempt).map_err(unreadable)?,
        token: count(row, 10)?,
        worker: get(row, 14)?,
        prior_worker: get(row, 15)?,
        upto_seq: count(row, 11)?,
        next_at: maybe_time(row, 12)?,
        other_run: of_lane(maybe_count(row, 13)?),
        verdict,
        actor: get(row, 16)?,
    };
    Ok((lane, record))
}

pub(crate) fn lane_key(names: &(Tenant, QueueName), key: Key) -> LaneKey {
    LaneKey { tenant: names.0.clone(), queue: names.1.clone(), key }
}

/// What a queue is called when its row is not there: it never is removed.
pub(crate) fn lost_queue(id: i32) -> StoreError {
    unreadable(format!("queue {id} has no row"))
}
