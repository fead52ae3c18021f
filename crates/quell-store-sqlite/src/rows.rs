//! Between rows and the values of `quell-core`: codes for enums, and the lane as its row.
//!
//! The codes are part of the file format: a number is never given a second meaning.

use std::sync::Arc;
use std::time::Duration;

use quell_core::batch::WorkerId;
use quell_core::clock::{Timestamp, millis};
use quell_core::event::{Event, EventId, Headers, Payload};
use quell_core::lane::{Blocked, CurrentRun, DuringRun, Finished, Lane, Links, Newer, Notify, OnFailed};
use quell_core::lane::{OpenRun, Paused, RetryWith, RunRules};
use quell_core::lifecycle::{Change, RunState};
use quell_core::limits;
use quell_core::source::SourceId;
use quell_core::window::{FiredBy, OpenWindow, Window, WindowPolicy};
use rusqlite::Row;
use rusqlite::types::{FromSqlError, Value};
use serde::{Deserialize, Serialize};

/// A lane as it is stored: with its queue, its key and the index entries, which may lie before the true times.
#[derive(Debug, Clone)]
pub(crate) struct LaneRow {
    pub(crate) lane: Lane,
    pub(crate) queue_id: u64,
    pub(crate) key: String,
    pub(crate) due_entry: Option<Timestamp>,
    pub(crate) lease_entry: Option<Timestamp>,
    pub(crate) priority_entry: u8,
    pub(crate) source_entry: Option<SourceId>,
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
        let blocked = match row.get::<_, Option<i64>>(44)? {
            Some(at) => Some(Blocked { at: Timestamp::from_millis(at), run: row.get(45)? }),
            None => None,
        };
        let queued = match row.get_ref(46)?.as_str_or_null().map_err(rusqlite::Error::from)? {
            Some(text) => from_json(text)?,
            None => Vec::new(),
        };
        let worker = if current.is_some() { row.get(37)? } else { None };
        Ok(LaneRow {
            lane: Lane {
                id: row.get(0)?,
                head_seq: row.get(5)?,
                open,
                current,
                queued,
                paused,
                blocked,
                updated_at: time(row, 6)?,
            },
            queue_id: row.get(1)?,
            key: row.get(2)?,
            due_entry: maybe_time(row, 3)?,
            lease_entry: maybe_time(row, 4)?,
            priority_entry: row.get(43)?,
            source_entry: source_of(row.get(59)?),
            worker,
        })
    }

    /// A lane that is not in the file yet.
    pub(crate) fn new(lane: Lane, queue_id: u64, key: &str) -> LaneRow {
        LaneRow {
            lane,
            queue_id,
            key: key.to_owned(),
            due_entry: None,
            lease_entry: None,
            priority_entry: limits::PRIORITY_DEFAULT,
            source_entry: None,
            worker: None,
        }
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
        priority: row.get::<_, Option<u8>>(47)?.unwrap_or(limits::PRIORITY_DEFAULT),
        window: OpenWindow {
            window: Window { policy, max_events: row.get(16)?, max_bytes: row.get(17)? },
            first_at: time(row, 18)?,
            latest_at: time(row, 19)?,
            step: row.get::<_, Option<i64>>(48)?.map(ms),
            closed,
        },
        source: maybe_source(row, 60)?,
    })
}

fn current(row: &Row<'_>, number: u64) -> rusqlite::Result<CurrentRun> {
    let flags = Flags::unpack(row.get::<_, Option<i64>>(49)?.unwrap_or(0))?;
    let extra = match row.get_ref(57)?.as_str_or_null()? {
        Some(text) => from_json(text)?,
        None => Extra::default(),
    };
    let small =
        |column, default| Ok::<_, rusqlite::Error>(row.get::<_, Option<u32>>(column)?.unwrap_or(default));
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
        priority: row.get::<_, Option<u8>>(52)?.unwrap_or(limits::PRIORITY_DEFAULT),
        max_events: small(53, limits::BATCH_EVENTS_DEFAULT)?,
        max_bytes: row.get::<_, Option<u64>>(54)?.unwrap_or(limits::BATCH_BYTES_DEFAULT),
        claims: row.get(31)?,
        refunds: row.get(32)?,
        retries: row.get(33)?,
        releases_in_row: row.get(34)?,
        interrupts: small(50, 0)?,
        revision: small(51, 0)?,
        max_attempts: row.get(35)?,
        rules: RunRules {
            during_run: flags.during_run,
            max_interrupts: small(55, limits::INTERRUPTS_DEFAULT)?,
            retry_with: flags.retry_with,
            on_failed: flags.on_failed,
        },
        newer: flags.newer,
        held: flags.has(Flags::HELD),
        frozen: flags.has(Flags::FROZEN),
        marked: flags.has(Flags::MARKED),
        single_attempt: flags.has(Flags::SINGLE),
        interrupt_requested: flags.has(Flags::INTERRUPT),
        cancel_requested: flags.has(Flags::CANCEL),
        token: row.get(36)?,
        claimed_head: row.get::<_, Option<u64>>(58)?.unwrap_or(row.get(25)?),
        claim_id: row.get(56)?,
        worker: None,
        claimed_at: time(row, 38)?,
        heartbeat_at: time(row, 39)?,
        lease_until: time(row, 40)?,
        due_at: time(row, 41)?,
        error: row.get(42)?,
        links: extra.links,
        notify: extra.notify,
        source: extra.source,
        probe: flags.has(Flags::PROBE),
        source_refunds: extra.source_refunds,
    })
}

/// A finished run as its row, with the number of its last holder.
pub(crate) struct RunRecord {
    pub(crate) id: u64,
    pub(crate) lane: u64,
    pub(crate) ended: Finished,
    pub(crate) worker: Option<u64>,
}

impl RunRecord {
    /// Reads the columns of `sql/run.sql`.
    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<RunRecord> {
        let flags = Flags::unpack(row.get(20)?)?;
        let extra = match row.get_ref(26)?.as_str_or_null()? {
            Some(text) => from_json(text)?,
            None => Extra::default(),
        };
        let (state, at) = (decode(&RunState::ALL, row.get(3)?)?, time(row, 18)?);
        let run = CurrentRun {
            number: row.get(2)?,
            state,
            lo: row.get(4)?,
            hi: row.get(5)?,
            count: row.get(6)?,
            bytes: row.get(7)?,
            first_at: time(row, 8)?,
            last_at: time(row, 9)?,
            fired_by: decode(&FiredBy::ALL, row.get(10)?)?,
            priority: row.get(23)?,
            max_events: row.get(24)?,
            max_bytes: row.get(25)?,
            claims: row.get(11)?,
            refunds: row.get(12)?,
            retries: row.get(13)?,
            releases_in_row: 0,
            interrupts: row.get(21)?,
            revision: row.get(22)?,
            max_attempts: 0,
            rules: RunRules {
                during_run: flags.during_run,
                max_interrupts: limits::INTERRUPTS_DEFAULT,
                retry_with: flags.retry_with,
                on_failed: flags.on_failed,
            },
            newer: flags.newer,
            held: flags.has(Flags::HELD),
            frozen: flags.has(Flags::FROZEN),
            marked: flags.has(Flags::MARKED),
            single_attempt: flags.has(Flags::SINGLE),
            interrupt_requested: flags.has(Flags::INTERRUPT),
            cancel_requested: flags.has(Flags::CANCEL),
            token: row.get(14)?,
            claimed_head: row.get(5)?,
            claim_id: None,
            worker: None,
            claimed_at: time(row, 16)?,
            heartbeat_at: time(row, 17)?,
            lease_until: at,
            due_at: at,
            error: row.get(19)?,
            links: extra.links,
            notify: extra.notify,
            source: extra.source,
            probe: flags.has(Flags::PROBE),
            source_refunds: extra.source_refunds,
        };
        let ended = Finished { run, state, at, was_buffered: false };
        Ok(RunRecord { id: row.get(0)?, lane: row.get(1)?, ended, worker: row.get(15)? })
    }
}

/// What is rarely said of a run, kept as JSON so that ordinary rows stay short.
#[derive(Default, Serialize, Deserialize)]
struct Extra {
    #[serde(default)]
    links: Links,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    notify: Option<Arc<Notify>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<SourceId>,
    #[serde(default, skip_serializing_if = "is_zero")]
    source_refunds: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// The rare facts of a run as a column; empty when there are none.
pub(crate) fn extra_value(run: &CurrentRun) -> Value {
    let (source, source_refunds) = (run.source, run.source_refunds);
    if run.links == Links::default() && run.notify.is_none() && source.is_none() && source_refunds == 0 {
        return Value::Null;
    }
    to_json(&Extra { links: run.links, notify: run.notify.clone(), source, source_refunds })
}

/// What a run is and what its queue says, packed into one number. The bits are part of the file format.
struct Flags {
    bits: i64,
    newer: Newer,
    during_run: DuringRun,
    retry_with: RetryWith,
    on_failed: OnFailed,
}

impl Flags {
    const HELD: i64 = 1;
    const FROZEN: i64 = 2;
    const MARKED: i64 = 4;
    const SINGLE: i64 = 8;
    const INTERRUPT: i64 = 16;
    const CANCEL: i64 = 32;
    const PROBE: i64 = 1 << 13;

    fn has(&self, bit: i64) -> bool {
        self.bits & bit != 0
    }

    fn unpack(bits: i64) -> rusqlite::Result<Flags> {
        Ok(Flags {
            bits,
            newer: decode(&Newer::ALL, bits >> 6 & 3)?,
            during_run: decode(&DuringRun::ALL, bits >> 8 & 3)?,
            retry_with: decode(&RetryWith::ALL, bits >> 10 & 1)?,
            on_failed: decode(&OnFailed::ALL, bits >> 11 & 3)?,
        })
    }
}

/// The packed flags of a run.
pub(crate) fn flags(run: &CurrentRun) -> Value {
    let bit = |on: bool, bit: i64| if on { bit } else { 0 };
    Value::Integer(
        bit(run.held, Flags::HELD)
            | bit(run.frozen, Flags::FROZEN)
            | bit(run.marked, Flags::MARKED)
            | bit(run.single_attempt, Flags::SINGLE)
            | bit(run.interrupt_requested, Flags::INTERRUPT)
            | bit(run.cancel_requested, Flags::CANCEL)
            | encode(&Newer::ALL, run.newer) << 6
            | encode(&DuringRun::ALL, run.rules.during_run) << 8
            | encode(&RetryWith::ALL, run.rules.retry_with) << 10
            | encode(&OnFailed::ALL, run.rules.on_failed) << 11
            | bit(run.probe, Flags::PROBE),
    )
}

/// The columns of an open run, in the order of the statements.
pub(crate) fn open_values(open: Option<&OpenRun>) -> [Value; 16] {
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
        Value::Integer(i64::from(o.priority)),
        w.step.map_or(Value::Null, |step| Value::Integer(millis(step))),
        maybe_source_value(o.source),
    ]
}

/// The columns of a current run, in the order of the statements.
pub(crate) fn current_values(current: Option<&CurrentRun>, worker: Option<u64>) -> [Value; 31] {
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
        maybe_text(c.error.clone()),
        flags(c),
        small(c.interrupts),
        small(c.revision),
        Value::Integer(i64::from(c.priority)),
        small(c.max_events),
        number(c.max_bytes),
        small(c.rules.max_interrupts),
        maybe_text(c.claim_id.clone()),
        extra_value(c),
        number(c.claimed_head),
    ]
}

/// Reads `seq, id, received_at, headers, payload, was_seq`.
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
        was_seq: row.get(5)?,
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

/// The source of an event or of an open run; most have none, and their rows stay short.
pub(crate) fn maybe_source(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<SourceId>> {
    Ok(row.get::<_, Option<u64>>(column)?.map(SourceId))
}

pub(crate) fn maybe_source_value(source: Option<SourceId>) -> Value {
    maybe_number(source.map(|SourceId(id)| id))
}

/// The source in the due index, where 0 stands for none: numbers begin at 1.
pub(crate) fn source_code(source: Option<SourceId>) -> u64 {
    source.map_or(0, |SourceId(id)| id)
}

pub(crate) fn source_of(code: u64) -> Option<SourceId> {
    Some(SourceId(code)).filter(|_| code != 0)
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

pub(crate) fn maybe_text(text: Option<String>) -> Value {
    text.map_or(Value::Null, Value::Text)
}

pub(crate) fn maybe_number(value: Option<u64>) -> Value {
    value.map_or(Value::Null, number)
}

pub(crate) fn to_json(value: &impl Serialize) -> Value {
    Value::Text(serde_json::to_string(value).expect("plain data is always JSON"))
}

pub(crate) fn from_json<'a, T: Deserialize<'a>>(text: &'a str) -> rusqlite::Result<T> {
    serde_json::from_str(text).map_err(|e| FromSqlError::Other(Box::new(e)).into())
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
            "superseded",
            "interrupted",
            "held",
            "cancel_requested",
            "cancelled",
            "merged",
            "split",
            "split_off",
            "redriven",
            "purged",
            "dropped",
            "deleted",
            "edited",
            "erased",
            "blocked",
            "unblocked",
            "restored",
            "duplicate_dropped",
            "conflict_buried",
            "schedule_put",
            "schedule_removed",
            "probe_faulted",
            "starved",
            "source_enabled",
            "source_disabled",
            "source_reset",
            "source_released",
        ];
        assert_eq!(changes, expected);
    }
}
