//! Between rows and the values of `quell-core`: codes for enums, and the lane as its row.
//!
//! The codes are part of the file format: a number is never given a second meaning.

use std::sync::Arc;
use std::time::Duration;

use quell_core::batch::WorkerId;
use quell_core::clock::{Timestamp, millis};
use quell_core::event::{Event, EventId, Headers, Payload};
use quell_core::lane::{CurrentRun, Lane, OpenRun, Paused};
use quell_core::lifecycle::{Change, RunState};
use quell_core::window::{FiredBy, OpenWindow, Window, WindowPolicy};
use rusqlite::Row;
use rusqlite::types::{FromSqlError, Value};

/// A lane as it is stored: with its queue, its key and the index entries, which may lie before the true times.
#[derive(Debug, Clone)]
pub(crate) struct LaneRow {
    pub(crate) lane: Lane,
    pub(crate) queue_id: u64,
    pub(crate) key: String,
    pub(crate) due_entry: Option<Timestamp>,
    pub(crate) lease_entry: Option<Timestamp>,
    /// The number of the holder, to be turned into an identity.
    pub(crate) worker: Option<u64>,
}

impl LaneRow {
    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<LaneRow> {
        let paused = match row.get::<_, Option<i64>>(7)? {
            Some(at) => Some(Paused { at: Timestamp::from_millis(at), by: row.get(8)? }),
            None => None,
        };
        let open = match row.get::<_, Option<u64>>(9)? {
            Some(number) => Some(open(row, number)?),
            None => None,
        };
        let current = match row.get::<_, Option<u64>>(22)? {
            Some(number) => Some(current(row, number)?),
            None => None,
        };
        let worker = if current.is_some() { row.get(37)? } else { None };
        Ok(LaneRow {
            lane: Lane {
                id: row.get(0)?,
                head_seq: row.get(5)?,
                open,
                current,
                paused,
                updated_at: time(row, 6)?,
            },
            queue_id: row.get(1)?,
            key: row.get(2)?,
            due_entry: maybe_time(row, 3)?,
            lease_entry: maybe_time(row, 4)?,
            worker,
        })
    }

    /// Puts the holder's identity in; rows only know its number.
    pub(crate) fn name_worker(&mut self, worker: Option<Arc<WorkerId>>) {
        if let Some(current) = &mut self.lane.current {
            current.worker = worker;
        }
    }
}

fn open(row: &Row<'_>, number: u64) -> rusqlite::Result<OpenRun> {
    let (wait, max_wait): (i64, i64) = (row.get(14)?, row.get(15)?);
    let policy = match row.get::<_, i64>(13)? {
        0 => WindowPolicy::None,
        1 => WindowPolicy::Fixed { wait: ms(wait) },
        _ => WindowPolicy::Quiet { quiet: ms(wait), max_wait: ms(max_wait) },
    };
    let closed = match row.get::<_, Option<i64>>(20)? {
        Some(code) => Some((decode(&FiredBy::ALL, code)?, time(row, 21)?)),
        None => None,
    };
    Ok(OpenRun {
        number,
        lo: row.get(10)?,
        count: row.get(11)?,
        bytes: row.get(12)?,
        window: OpenWindow {
            window: Window { policy, max_events: row.get(16)?, max_bytes: row.get(17)? },
            first_at: time(row, 18)?,
            latest_at: time(row, 19)?,
            closed,
        },
    })
}

fn current(row: &Row<'_>, number: u64) -> rusqlite::Result<CurrentRun> {
    Ok(CurrentRun {
        number,
        state: decode(&RunState::ALL, row.get(23)?)?,
        lo: row.get(24)?,
        hi: row.get(25)?,
        count: row.get(26)?,
        bytes: row.get(27)?,
        first_at: time(row, 28)?,
        last_at: time(row, 29)?,
        fired_by: decode(&FiredBy::ALL, row.get(30)?)?,
        claims: row.get(31)?,
        refunds: row.get(32)?,
        retries: row.get(33)?,
        releases_in_row: row.get(34)?,
        max_attempts: row.get(35)?,
        token: row.get(36)?,
        worker: None,
        claimed_at: time(row, 38)?,
        heartbeat_at: time(row, 39)?,
        lease_until: time(row, 40)?,
        due_at: time(row, 41)?,
        error: row.get(42)?,
    })
}

/// The thirteen columns of an open run, in the order of the statements.
pub(crate) fn open_values(open: Option<&OpenRun>) -> [Value; 13] {
    let Some(o) = open else { return std::array::from_fn(|_| Value::Null) };
    let w = &o.window;
    let (policy, wait, max_wait) = match w.window.policy {
        WindowPolicy::None => (0, 0, 0),
        WindowPolicy::Fixed { wait } => (1, millis(wait), 0),
        WindowPolicy::Quiet { quiet, max_wait } => (2, millis(quiet), millis(max_wait)),
    };
    [
        number(o.number),
        number(o.lo),
        number(o.count),
        number(o.bytes),
        Value::Integer(policy),
        Value::Integer(wait),
        Value::Integer(max_wait),
        Value::Integer(i64::from(w.window.max_events)),
        number(w.window.max_bytes),
        at(w.first_at),
        at(w.latest_at),
        w.closed.map_or(Value::Null, |(by, _)| Value::Integer(encode(&FiredBy::ALL, by))),
        w.closed.map_or(Value::Null, |(_, when)| at(when)),
    ]
}

/// The twenty-one columns of a current run, in the order of the statements.
pub(crate) fn current_values(current: Option<&CurrentRun>, worker: Option<u64>) -> [Value; 21] {
    let Some(c) = current else { return std::array::from_fn(|_| Value::Null) };
    [
        number(c.number),
        Value::Integer(encode(&RunState::ALL, c.state)),
        number(c.lo),
        number(c.hi),
        number(c.count),
        number(c.bytes),
        at(c.first_at),
        at(c.last_at),
        Value::Integer(encode(&FiredBy::ALL, c.fired_by)),
        small(c.claims),
        small(c.refunds),
        small(c.retries),
        small(c.releases_in_row),
        small(c.max_attempts),
        number(c.token),
        worker.map_or(Value::Null, number),
        at(c.claimed_at),
        at(c.heartbeat_at),
        at(c.lease_until),
        at(c.due_at),
        c.error.clone().map_or(Value::Null, Value::Text),
    ]
}

/// Reads `seq, id, received_at, headers, payload`.
pub(crate) fn event(row: &Row<'_>) -> rusqlite::Result<Event> {
    let headers = match row.get::<_, Option<String>>(3)? {
        Some(text) => serde_json::from_str(&text).unwrap_or_default(),
        None => Headers::new(),
    };
    Ok(Event {
        seq: row.get(0)?,
        id: event_id(row.get_ref(1)?.as_str()?)?,
        received_at: time(row, 2)?,
        headers,
        payload: Payload::from_stored(row.get_ref(4)?.as_str()?),
    })
}

pub(crate) fn event_id(text: &str) -> rusqlite::Result<EventId> {
    EventId::new(text).map_err(|e| rusqlite::Error::from(FromSqlError::Other(Box::new(e))))
}

pub(crate) fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    row.get(column).map(Timestamp::from_millis)
}

pub(crate) fn maybe_time(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_millis))
}

fn ms(value: i64) -> Duration {
    Duration::from_millis(u64::try_from(value).unwrap_or(0))
}

/// Numbers stay below 2^53, so they always fit.
pub(crate) fn number(value: u64) -> Value {
    Value::Integer(i64::try_from(value).expect("numbers of the store stay below 2^53"))
}

pub(crate) fn small(value: u32) -> Value {
    Value::Integer(i64::from(value))
}

pub(crate) fn at(when: Timestamp) -> Value {
    Value::Integer(when.as_millis())
}

pub(crate) fn maybe_at(when: Option<Timestamp>) -> Value {
    when.map_or(Value::Null, at)
}

/// The code of a value: its place in the list of all, to which new ones are only ever appended.
pub(crate) fn encode<T: PartialEq>(all: &[T], value: T) -> i64 {
    let place = all.iter().position(|v| *v == value).expect("the list of all values is complete");
    i64::try_from(place).expect("lists are short")
}

pub(crate) fn decode<T: Copy>(all: &[T], code: i64) -> rusqlite::Result<T> {
    let place = usize::try_from(code).ok().and_then(|c| all.get(c)).copied();
    place.ok_or_else(|| FromSqlError::OutOfRange(code).into())
}

pub(crate) fn state_code(state: RunState) -> i64 {
    encode(&RunState::ALL, state)
}

pub(crate) fn change_code(change: Change) -> i64 {
    encode(&Change::ALL, change)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_part_of_the_file_format_and_never_move() {
        let states: Vec<_> = RunState::ALL.iter().map(|s| (state_code(*s), s.as_str())).collect();
        let expected = [
            (0, "pending"),
            (1, "running"),
            (2, "retryable"),
            (3, "succeeded"),
            (4, "failed"),
            (5, "cancelled"),
        ];
        assert_eq!(states, expected);
        let fired: Vec<_> = FiredBy::ALL.iter().map(|f| f.as_str()).collect();
        let expected =
            ["none", "fixed", "quiet", "cap", "count", "bytes", "flush", "retry", "merge", "redrive"];
        assert_eq!(fired, expected);
        let changes: Vec<_> = Change::ALL.iter().map(|c| c.as_str()).collect();
        let expected = [
            "claimed",
            "succeeded",
            "retried",
            "failed",
            "exhausted",
            "released",
            "released_counted",
            "reclaimed",
            "expired",
            "paused",
            "resumed",
            "queue_paused",
            "queue_resumed",
            "flushed",
        ];
        assert_eq!(changes, expected);
    }
}
