//! Find: what belongs to lanes that are locked, in one round trip, and the numbers for what will be written.
//!
//! All statements are sent together and run one after the other, each with a snapshot of its own that is younger than the
//! locks. Numbers come last and in blocks of a thousand: larger than any number that was given to a holder of these lanes
//! before.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use quell_core::aside::Aside;
use quell_core::error::StoreResult;
use quell_core::event::{EventId, LaneKey, QueueName, SourceName, Tenant};
use quell_core::lane::Paused;
use quell_core::source::{Declaration, Source};
use quell_core::working_set::{FinishedRun, LaneSums, Trail};
use quell_store_rows::codec;
use quell_store_rows::rows::{Found, RowsResult, Span, Want};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::{Request, Sql, Value};
use crate::error::trouble;
use crate::first::{self, events_of_lane};
use crate::queues::Names;
use crate::rows::{
    audit_columns, count, event_columns, get, kept, key, lane_key, lost_queue, maybe_number, number,
    queue_name, recorded, step_columns, step_row, tenant,
};
use crate::tx::{Tx, read_aside};

/// Numbers in one block: the increment of the sequence.
pub(crate) const BLOCK: u64 = 1_000;

macro_rules! spans {
    ($events:expr) => {
        concat!(
            "SELECT s.lane, ",
            event_columns!(),
            " FROM (SELECT unnest($1::bigint[]) AS lane, unnest($2::bigint[]) AS lo, unnest($3::bigint[]) AS hi,
                     unnest($4::bigint[]) AS mark, unnest($5::bigint[]) AS most) s
             CROSS JOIN LATERAL (SELECT * FROM (",
            $events,
            ") both_places ORDER BY seq LIMIT s.most) e"
        )
    };
}
/// An event is read when those before it do not weigh enough yet. The size of a text is known without reading it.
macro_rules! heavy_spans {
    ($events:expr) => {
        concat!(
            "SELECT s.lane, ",
            event_columns!(),
            " FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
                AS s(lane, lo, hi, mark, most, bytes)
             CROSS JOIN LATERAL (
               SELECT f.*, sum(octet_length(f.payload))
                 OVER (ORDER BY f.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
               FROM (SELECT * FROM (",
            $events,
            ") both_places ORDER BY seq LIMIT s.most) f) e
             WHERE coalesce(e.before, 0) < s.bytes"
        )
    };
}
macro_rules! in_both_places {
    () => {
        events_of_lane!(
            "s.lane",
            "e.seq BETWEEN s.lo AND s.hi AND e.mark IS NOT DISTINCT FROM s.mark",
            "s.most"
        )
    };
}
/// Of lanes whose first event is known: their rows need not be looked at once more.
macro_rules! apart {
    () => {
        "SELECT * FROM quell.event_row
         WHERE lane_id = s.lane AND seq BETWEEN s.lo AND s.hi AND mark IS NOT DISTINCT FROM s.mark
         ORDER BY seq LIMIT s.most"
    };
}
static SPANS: Sql = Sql { text: spans!(in_both_places!()), types: &[Type::INT8_ARRAY; 5] };
static HEAVY_SPANS: Sql = Sql { text: heavy_spans!(in_both_places!()), types: &[Type::INT8_ARRAY; 6] };
static SPANS_APART: Sql = Sql { text: spans!(apart!()), types: &[Type::INT8_ARRAY; 5] };
static HEAVY_SPANS_APART: Sql = Sql { text: heavy_spans!(apart!()), types: &[Type::INT8_ARRAY; 6] };
static IDS: Sql = Sql {
    text: concat!(
        "SELECT e.lane_id, ",
        event_columns!(),
        " FROM (SELECT unnest($1::bigint[]) AS lane, unnest($2::text[]) AS id) w
         JOIN quell.event e ON e.lane_id = w.lane AND e.id = w.id"
    ),
    types: &[Type::INT8_ARRAY, Type::TEXT_ARRAY],
};
static CONTENTS: Sql = Sql {
    text: concat!(
        "SELECT w.lane, ",
        event_columns!(),
        " FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS w(lane, lo, print)
         CROSS JOIN LATERAL (SELECT * FROM (",
        events_of_lane!("w.lane", "e.seq >= w.lo AND e.mark IS NULL AND e.print = w.print", "1"),
        ") both_places ORDER BY seq LIMIT 1) e"
    ),
    types: &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::BYTEA_ARRAY],
};
static RUNS: Sql = Sql {
    text: "SELECT r.lane_id, l.queue_id, l.key, r.body FROM unnest($1::bigint[], $2::bigint[]) AS w(lane, number)
           JOIN quell.run r ON r.lane_id = w.lane AND r.number = w.number
           JOIN quell.lane l ON l.id = r.lane_id",
    types: &[Type::INT8_ARRAY, Type::INT8_ARRAY],
};
/// From the newest run backwards: a sender that repeats itself does so soon.
static RUNS_OF: Sql = Sql {
    text: "SELECT r.lane_id, l.queue_id, l.key, r.body
           FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS w(lane, seq, mark)
           JOIN quell.lane l ON l.id = w.lane
           CROSS JOIN LATERAL (
             SELECT lane_id, body FROM quell.run
             WHERE lane_id = w.lane AND number = w.mark AND marked AND count > 0 AND w.seq BETWEEN lo AND hi
             UNION ALL
             (SELECT lane_id, body FROM quell.run
              WHERE w.mark IS NULL AND lane_id = w.lane AND NOT marked AND count > 0 AND w.seq BETWEEN lo AND hi
              ORDER BY number DESC LIMIT 1)) r",
    types: &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT8_ARRAY],
};
/// A token's word was recorded after the token was given, so with a larger number.
static SAID: Sql = Sql {
    text: concat!(
        "SELECT ",
        audit_columns!(),
        " FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS w(lane, run, token)
         JOIN quell.audit a ON a.lane_id = w.lane AND a.id > w.token AND a.run = w.run AND a.token = w.token
           AND a.verdict IS NOT NULL
         LEFT JOIN quell.lane l ON l.id = a.lane_id
         ORDER BY a.id"
    ),
    types: &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT8_ARRAY],
};
static ASIDE_IDS: Sql = Sql {
    text: "SELECT a.look_at, a.body FROM unnest($1::int[], $2::text[], $3::text[]) AS w(queue_id, key, id)
           JOIN quell.aside a ON a.id = w.id AND a.queue_id = w.queue_id AND a.key = w.key",
    types: &[Type::INT4_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY],
};
static ASIDE_FIRST: Sql = Sql {
    text: "SELECT a.look_at, a.body FROM unnest($1::int[], $2::text[]) AS w(queue_id, key)
           CROSS JOIN LATERAL (
             SELECT * FROM quell.aside WHERE queue_id = w.queue_id AND key = w.key
             ORDER BY ready_at, number LIMIT 1) a",
    types: &[Type::INT4_ARRAY, Type::TEXT_ARRAY],
};
static STEPS: Sql = Sql {
    text: concat!(
        "SELECT ",
        step_columns!(),
        " FROM unnest($1::bigint[], $2::bigint[]) AS w(lane, run)
         JOIN quell.step s ON s.lane_id = w.lane AND s.run = w.run"
    ),
    types: &[Type::INT8_ARRAY, Type::INT8_ARRAY],
};
static STEP: Sql = Sql {
    text: concat!(
        "SELECT ",
        step_columns!(),
        " FROM quell.step s WHERE s.lane_id = $1 AND s.run = $2 AND s.revision = $3 AND s.name = $4"
    ),
    types: &[Type::INT8, Type::INT8, Type::INT4, Type::TEXT],
};
static STEP_COUNT: Sql = Sql {
    text: "SELECT count(*) FROM quell.step WHERE lane_id = $1 AND run = $2 AND revision = $3",
    types: &[Type::INT8, Type::INT8, Type::INT4],
};
static SUMS: Sql = Sql {
    text: "SELECT (SELECT count(*) FROM quell.event WHERE lane_id = $1),
                  (SELECT coalesce(sum(count), 0)::bigint FROM quell.run WHERE lane_id = $1 AND state = 4),
                  (SELECT count(*) FROM quell.aside WHERE queue_id = $2 AND key = $3)",
    types: &[Type::INT8, Type::INT4, Type::TEXT],
};
/// Locked: a fire between this read and the write would be undone, and repeated.
static SCHEDULES: Sql =
    Sql { text: "SELECT body FROM quell.schedule ORDER BY tenant, name FOR UPDATE", types: &[] };
static PAUSES: Sql = Sql { text: "SELECT queue, every, tenant, body FROM quell.queue_pause", types: &[] };
/// In the order of their numbers, for everybody: so nobody waits in a circle.
static SOURCES: Sql = Sql {
    text: "SELECT body FROM quell.source WHERE id = ANY($1) ORDER BY id FOR UPDATE",
    types: &[Type::INT8_ARRAY],
};
static GOVERNING: Sql = Sql {
    text: "SELECT s.body FROM unnest($1::text[], $2::text[]) AS w(name, tenant)
           JOIN quell.source s ON s.name = w.name AND s.tenant = w.tenant",
    types: &[Type::TEXT_ARRAY, Type::TEXT_ARRAY],
};
static DECLARATIONS: Sql =
    Sql { text: "SELECT body FROM quell.declaration WHERE name = ANY($1)", types: &[Type::TEXT_ARRAY] };
/// Whoever lays a hand on sources is alone with them, and nobody makes one meanwhile.
static HANDS: Sql = Sql { text: "SELECT pg_advisory_xact_lock(hashtext('quell.source'), 0)", types: &[] };
/// Together with others who make sources, and not while somebody lays a hand on them.
static MEET_HANDS: Sql =
    Sql { text: "SELECT pg_advisory_xact_lock_shared(hashtext('quell.source'), 0)", types: &[] };
static NAMESAKES: Sql = Sql {
    text: "SELECT body FROM quell.source WHERE name = $1 ORDER BY id FOR UPDATE",
    types: &[Type::TEXT],
};
static DECLARED: Sql = Sql { text: "SELECT count(*) FROM quell.declaration", types: &[] };
static ANSWER: Sql = Sql {
    text: "SELECT body FROM quell.answer WHERE source = $1 AND key = $2",
    types: &[Type::INT8, Type::TEXT],
};
/// How many there are matters only to one that would be added: whoever finds an answer does not count the others.
static ANSWERS: Sql = Sql {
    text: "SELECT CASE WHEN EXISTS (SELECT 1 FROM quell.answer WHERE source = $1 AND key = $2) THEN 1
                  ELSE (SELECT count(*) FROM quell.answer WHERE source = $1) END,
             (SELECT key FROM quell.answer WHERE source = $1 AND key <> $2 ORDER BY expires_at LIMIT 1)",
    types: &[Type::INT8, Type::TEXT],
};
static NUMBERS: Sql =
    Sql { text: "SELECT nextval('quell.number') FROM generate_series(1, $1::bigint)", types: &[Type::INT8] };

/// Asks for at least so many numbers.
pub(crate) fn numbers(most: usize) -> Request {
    (&NUMBERS, vec![Box::new(number((most as u64).div_ceil(BLOCK)))])
}

/// The numbers that were given, in rising order.
pub(crate) fn blocks(rows: &[Row]) -> StoreResult<Vec<Range<u64>>> {
    let first = rows.iter().map(|row| count(row, 0));
    let mut blocks: Vec<Range<u64>> =
        first.map(|first| first.map(|first| first..first + BLOCK)).collect::<StoreResult<_>>()?;
    blocks.sort_by_key(|range| range.start);
    Ok(blocks)
}

/// What the rows of an answer are.
#[derive(Clone, Copy)]
enum Kind {
    Events,
    Runs,
    Said,
    Aside,
    Steps,
    StepCount,
    Sums,
    Schedules,
    Pauses,
    Sources,
    Declarations,
    Declared,
    Answer,
    Answers,
    /// Nothing: it was only waited for.
    Locked,
    Numbers,
}

impl Tx {
    pub(crate) async fn read(&mut self, want: &Want, numbers: usize) -> RowsResult<Found> {
        let aside = want.aside_ids.iter().map(|(key, _)| key);
        let keys = aside.chain(&want.aside_first).chain(want.sums.iter().map(|(key, _)| key));
        let queues = self.ids_of(keys).await?;
        let mut kinds = Vec::new();
        let mut requests: Vec<Request> = Vec::new();
        let mut ask = |kind: Kind, sql: &'static Sql, values: Vec<Value>| {
            kinds.push(kind);
            requests.push((sql, values));
        };
        let mut found = Found::default();
        let (mut spans, mut apart) = (Vec::new(), Vec::new());
        for span in &want.spans {
            let Some(first) = self.firsts.get(&span.lane) else {
                spans.push(span.clone());
                continue;
            };
            match first.as_ref().filter(|first| first::begins(span, first)) {
                Some(first) => {
                    found.events.push((span.lane, first.clone()));
                    apart.extend(first::rest(span, first));
                }
                None => apart.push(span.clone()),
            }
        }
        ask_spans(&spans, [&SPANS, &HEAVY_SPANS], &mut ask);
        ask_spans(&apart, [&SPANS_APART, &HEAVY_SPANS_APART], &mut ask);
        ask_events(want, &mut ask);
        ask_runs(want, &mut ask);
        ask_aside(want, &queues, &mut ask);
        ask_rest(want, &queues, &mut ask);
        ask_sources(want, &mut ask);
        if numbers > 0 {
            let (sql, values) = self::numbers(numbers);
            ask(Kind::Numbers, sql, values);
        }
        if requests.is_empty() {
            return Ok(found);
        }
        // Whether a lane is idle depends on what is aside for it, also while there is no lane.
        let unlocked = want.aside_first.iter().filter(|key| self.without_lane.binary_search(key).is_ok());
        let unlocked: Vec<(i32, &LaneKey)> = unlocked
            .filter_map(|key| Some((*queues.get(&(key.tenant.clone(), key.queue.clone()))?, key)))
            .collect();
        self.meet(&unlocked, &[]).await?;
        let answers = self.connection()?.read(&requests).await.map_err(|e| trouble(&e))?;
        for (kind, rows) in kinds.into_iter().zip(answers) {
            self.take(kind, &rows, &mut found).await?;
        }
        if makes_source(want, &found) {
            self.meet_hands(want, &mut found).await?;
        }
        Ok(found)
    }

    /// A new source is made by its declaration: whoever changes that at this moment is waited for, and the next one waits
    /// until the source is made. He would change only the sources that he can see.
    async fn meet_hands(&self, want: &Want, found: &mut Found) -> RowsResult<()> {
        let (names, tenants) = governing(want);
        let requests: [Request; 3] = [
            (&MEET_HANDS, Vec::new()),
            (&DECLARATIONS, vec![Box::new(names.clone())]),
            (&GOVERNING, vec![Box::new(names.clone()), Box::new(tenants)]),
        ];
        let answers = self.connection()?.read(&requests).await.map_err(|e| trouble(&e))?;
        found.declarations.retain(|d| !names.iter().any(|name| name == d.name.as_str()));
        for (kind, rows) in [Kind::Locked, Kind::Declarations, Kind::Sources].into_iter().zip(answers) {
            self.take(kind, &rows, found).await?;
        }
        Ok(())
    }

    async fn take(&self, kind: Kind, rows: &[Row], found: &mut Found) -> RowsResult<()> {
        match kind {
            Kind::Events => {
                for row in rows {
                    found.events.push((count(row, 0)?, kept(row, 1)?));
                }
            }
            Kind::Runs => {
                self.learn(rows, 1).await?;
                for row in rows {
                    found.runs.push(self.run(row)?);
                }
            }
            Kind::Said => {
                self.learn(rows, 2).await?;
                for row in rows {
                    let (lane, record) = recorded(row, |id| self.shared.queues.names(id))?;
                    found.said.push(Trail { lane, record });
                }
            }
            Kind::Aside => found.aside.extend(read_all(rows)?),
            Kind::Steps => {
                for row in rows {
                    found.steps.push(step_row(row)?);
                }
            }
            Kind::StepCount => {
                let counted = rows.first().map_or(Ok(0), |row| count(row, 0))?;
                found.step_count = usize::try_from(counted).unwrap_or(usize::MAX);
            }
            Kind::Sums => {
                if let Some(row) = rows.first() {
                    found.sums =
                        LaneSums { events: count(row, 0)?, dead: count(row, 1)?, aside: count(row, 2)? };
                }
            }
            Kind::Schedules => {
                for row in rows {
                    found.schedules.push(codec::read_schedule(get(row, 0)?)?);
                }
            }
            Kind::Pauses => found.pauses = read_pauses(rows)?,
            Kind::Sources => found.sources.extend(read_sources(rows)?),
            Kind::Declarations => found.declarations.extend(read_declarations(rows)?),
            Kind::Declared => {
                let counted = rows.first().map_or(Ok(0), |row| count(row, 0))?;
                found.declared = usize::try_from(counted).unwrap_or(usize::MAX);
            }
            Kind::Answer => {
                found.answer = rows.first().map(|row| codec::read_answer(get(row, 0)?)).transpose()?;
            }
            Kind::Answers => {
                if let Some(row) = rows.first() {
                    found.answers = usize::try_from(count(row, 0)?).unwrap_or(usize::MAX);
                    found.next_over = get(row, 1)?;
                }
            }
            Kind::Locked => {}
            Kind::Numbers => found.numbers = blocks(rows)?,
        }
        Ok(())
    }

    /// Learns the names of the queues whose numbers stand in this column.
    async fn learn(&self, rows: &[Row], column: usize) -> RowsResult<()> {
        let ids: Vec<i32> = rows.iter().map(|row| get(row, column)).collect::<StoreResult<_>>()?;
        let learned = self.shared.queues.learn_ids(self.connection()?, ids.into_iter()).await;
        learned.map_err(|fault| self.shared.fault(fault))
    }

    fn run(&self, row: &Row) -> StoreResult<FinishedRun> {
        let queue: i32 = get(row, 1)?;
        let names = self.shared.queues.names(queue).ok_or_else(|| lost_queue(queue))?;
        codec::read_run(lane_key(&names, key(get(row, 2)?)?), count(row, 0)?, get(row, 3)?)
    }
}

/// Spans by the number of their events, and those that are also bounded by their bytes.
fn ask_spans(
    spans: &[Span],
    [light, heavy]: [&'static Sql; 2],
    ask: &mut impl FnMut(Kind, &'static Sql, Vec<Value>),
) {
    for (by_bytes, sql) in [(false, light), (true, heavy)] {
        let of = || spans.iter().filter(|s| s.bytes.is_some() == by_bytes);
        if of().next().is_none() {
            continue;
        }
        let column =
            |value: fn(&Span) -> Option<i64>| -> Value { Box::new(of().map(value).collect::<Vec<_>>()) };
        let mut values: Vec<Value> = vec![
            column(|s| Some(number(s.lane))),
            column(|s| Some(number(s.from))),
            column(|s| Some(number(s.upto))),
            column(|s| maybe_number(s.mark)),
            column(|s| Some(number(s.most))),
        ];
        if by_bytes {
            values.push(column(|s| maybe_number(s.bytes)));
        }
        ask(Kind::Events, sql, values);
    }
}

fn ask_events(want: &Want, ask: &mut impl FnMut(Kind, &'static Sql, Vec<Value>)) {
    if !want.ids.is_empty() {
        let (lanes, ids): (Vec<i64>, Vec<String>) =
            want.ids.iter().map(|(lane, id)| (number(*lane), id.as_str().to_owned())).unzip();
        ask(Kind::Events, &IDS, vec![Box::new(lanes), Box::new(ids)]);
    }
    if !want.contents.is_empty() {
        let lanes: Vec<i64> = want.contents.iter().map(|(lane, ..)| number(*lane)).collect();
        let from: Vec<i64> = want.contents.iter().map(|(_, from, _)| number(*from)).collect();
        let prints: Vec<Vec<u8>> = want.contents.iter().map(|(.., print)| print.0.to_vec()).collect();
        ask(Kind::Events, &CONTENTS, vec![Box::new(lanes), Box::new(from), Box::new(prints)]);
    }
}

fn ask_runs(want: &Want, ask: &mut impl FnMut(Kind, &'static Sql, Vec<Value>)) {
    if !want.runs.is_empty() {
        let (lanes, numbers): (Vec<i64>, Vec<i64>) =
            want.runs.iter().map(|run| (number(run.lane), number(run.number))).unzip();
        ask(Kind::Runs, &RUNS, vec![Box::new(lanes), Box::new(numbers)]);
    }
    if !want.runs_of.is_empty() {
        let lanes: Vec<i64> = want.runs_of.iter().map(|(lane, ..)| number(*lane)).collect();
        let seqs: Vec<i64> = want.runs_of.iter().map(|(_, seq, _)| number(*seq)).collect();
        let marks: Vec<Option<i64>> = want.runs_of.iter().map(|(.., mark)| maybe_number(*mark)).collect();
        ask(Kind::Runs, &RUNS_OF, vec![Box::new(lanes), Box::new(seqs), Box::new(marks)]);
    }
    if !want.said.is_empty() {
        let lanes: Vec<i64> = want.said.iter().map(|(run, _)| number(run.lane)).collect();
        let runs: Vec<i64> = want.said.iter().map(|(run, _)| number(run.number)).collect();
        let tokens: Vec<i64> = want.said.iter().map(|(_, token)| number(*token)).collect();
        ask(Kind::Said, &SAID, vec![Box::new(lanes), Box::new(runs), Box::new(tokens)]);
    }
}

fn ask_aside(
    want: &Want,
    queues: &BTreeMap<Names, i32>,
    ask: &mut impl FnMut(Kind, &'static Sql, Vec<Value>),
) {
    let queue = |key: &LaneKey| queues.get(&(key.tenant.clone(), key.queue.clone())).copied();
    // In a queue that does not exist nothing is aside.
    let ids: Vec<(i32, &LaneKey, &EventId)> =
        want.aside_ids.iter().filter_map(|(key, id)| Some((queue(key)?, key, id))).collect();
    if !ids.is_empty() {
        let queues: Vec<i32> = ids.iter().map(|(queue, ..)| *queue).collect();
        let keys: Vec<String> = ids.iter().map(|(_, key, _)| key.key.as_str().to_owned()).collect();
        let ids: Vec<String> = ids.iter().map(|(.., id)| id.as_str().to_owned()).collect();
        ask(Kind::Aside, &ASIDE_IDS, vec![Box::new(queues), Box::new(keys), Box::new(ids)]);
    }
    let (queues, keys): (Vec<i32>, Vec<String>) =
        want.aside_first.iter().filter_map(|key| Some((queue(key)?, key.key.as_str().to_owned()))).unzip();
    if !queues.is_empty() {
        ask(Kind::Aside, &ASIDE_FIRST, vec![Box::new(queues), Box::new(keys)]);
    }
}

fn ask_rest(
    want: &Want,
    queues: &BTreeMap<Names, i32>,
    ask: &mut impl FnMut(Kind, &'static Sql, Vec<Value>),
) {
    if !want.steps.is_empty() {
        let (lanes, runs): (Vec<i64>, Vec<i64>) =
            want.steps.iter().map(|run| (number(run.lane), number(run.number))).unzip();
        ask(Kind::Steps, &STEPS, vec![Box::new(lanes), Box::new(runs)]);
    }
    if let Some((run, revision, name)) = &want.step {
        let revision = i32::try_from(*revision).unwrap_or(i32::MAX);
        let of = || -> Vec<Value> {
            vec![Box::new(number(run.lane)), Box::new(number(run.number)), Box::new(revision)]
        };
        let mut one = of();
        one.push(Box::new(name.clone()));
        ask(Kind::Steps, &STEP, one);
        ask(Kind::StepCount, &STEP_COUNT, of());
    }
    if let Some((key, lane)) = &want.sums {
        let queue = queues.get(&(key.tenant.clone(), key.queue.clone())).copied();
        let values: Vec<Value> =
            vec![Box::new(maybe_number(*lane)), Box::new(queue), Box::new(key.key.as_str().to_owned())];
        ask(Kind::Sums, &SUMS, values);
    }
    if want.schedules {
        ask(Kind::Schedules, &SCHEDULES, Vec::new());
    }
    if want.pauses {
        ask(Kind::Pauses, &PAUSES, Vec::new());
    }
}

/// Sources come last, because all lanes are locked before them; those that are locked come before those that are only read.
fn ask_sources(want: &Want, ask: &mut impl FnMut(Kind, &'static Sql, Vec<Value>)) {
    if let Some(name) = &want.declared {
        let name = || name.as_str().to_owned();
        ask(Kind::Locked, &HANDS, Vec::new());
        ask(Kind::Sources, &NAMESAKES, vec![Box::new(name())]);
        ask(Kind::Declarations, &DECLARATIONS, vec![Box::new(vec![name()])]);
        ask(Kind::Declared, &DECLARED, Vec::new());
    }
    if !want.sources.is_empty() {
        let ids: Vec<i64> = want.sources.iter().map(|id| number(id.0)).collect();
        ask(Kind::Sources, &SOURCES, vec![Box::new(ids)]);
    }
    if !want.governing.is_empty() {
        let (names, tenants) = governing(want);
        ask(Kind::Declarations, &DECLARATIONS, vec![Box::new(names.clone())]);
        ask(Kind::Sources, &GOVERNING, vec![Box::new(names), Box::new(tenants)]);
    }
    if let Some((source, key)) = &want.answer {
        let of = || -> Vec<Value> { vec![Box::new(number(source.0)), Box::new(key.clone())] };
        ask(Kind::Answer, &ANSWER, of());
        ask(Kind::Answers, &ANSWERS, of());
    }
}

/// Names and tenants of the sources that may govern. Also those of no tenant, in case one is shared; each by its own place
/// in the index, because there may be thousands.
fn governing(want: &Want) -> (Vec<String>, Vec<String>) {
    let of_all = want.governing.iter().flat_map(|(tenant, name)| [(name, tenant.as_str()), (name, "")]);
    let places: BTreeSet<(&SourceName, &str)> = of_all.collect();
    places.into_iter().map(|(name, tenant)| (name.as_str().to_owned(), tenant.to_owned())).unzip()
}

/// Whether an event will be the first of its source.
fn makes_source(want: &Want, found: &Found) -> bool {
    want.governing.iter().any(|(tenant, name)| {
        let of = |tenant: &Tenant| found.sources.iter().find(|s| s.name == *name && s.tenant == *tenant);
        let declared = found.declarations.iter().find(|d| d.name == *name).map(|d| d.rules);
        let remembered = of(&Tenant::none()).map(|source| source.rules);
        of(&Source::owner(tenant, declared, remembered)).is_none()
    })
}

pub(crate) fn read_sources(rows: &[Row]) -> StoreResult<Vec<Source>> {
    rows.iter().map(|row| codec::read_source(get(row, 0)?)).collect()
}

pub(crate) fn read_declarations(rows: &[Row]) -> StoreResult<Vec<Declaration>> {
    rows.iter().map(|row| codec::read_declaration(get(row, 0)?)).collect()
}

fn read_all(rows: &[Row]) -> StoreResult<Vec<Aside>> {
    rows.iter().map(read_aside).collect()
}

pub(crate) fn read_pauses(rows: &[Row]) -> StoreResult<BTreeMap<(QueueName, Option<Tenant>), Paused>> {
    let mut pauses = BTreeMap::new();
    for row in rows {
        let every: bool = get(row, 1)?;
        let of = (!every).then(|| tenant(get(row, 2)?)).transpose()?;
        pauses.insert((queue_name(get(row, 0)?)?, of), codec::read_paused(get(row, 3)?)?);
    }
    Ok(pauses)
}
