//! Rows that are alike: what one transaction writes into a table mostly differs in a few columns only.
//!
//! A claim of five hundred lanes gives all of them the same lease, worker and claim; a group of appends has one queue, one
//! time and one priority. A statement with an array for each column makes the server take each array apart and put each
//! row together again, which costs as much as an index. So rows are put into classes that have the other columns in common:
//! these are sent once, and only what differs as arrays. The arrays are taken apart in the list of results and not in
//! `FROM`, where each of them would be written down once more first. Where a transaction has more than a few classes, the
//! statements of `commit.rs` do with an array for each column.

use std::collections::BTreeMap;
use std::sync::Arc;

use quell_core::lifecycle::RunState;
use quell_core::working_set::{FinishedRun, Kept, Trail};
use quell_store_rows::changes::LaneWrite;
use quell_store_rows::codec;
use tokio_postgres::types::Type;

use crate::connection::{Request, Sql, Value};
use crate::rows::{
    change_code, clean, maybe_millis, maybe_number, number, source_code, state_code, verdict_code,
};

/// With more classes than this, one statement for all rows is the cheaper one; and a commit sends a bounded number of them.
const CLASSES_MAX: usize = 2;

/// The columns that rows have in common, with the rows; nothing when they have too little in common.
fn classes<T, C: Ord>(
    rows: impl Iterator<Item = T>,
    class: impl Fn(&T) -> Option<C>,
) -> Option<BTreeMap<C, Vec<T>>> {
    let mut classes: BTreeMap<C, Vec<T>> = BTreeMap::new();
    for row in rows {
        classes.entry(class(&row)?).or_default().push(row);
        if classes.len() > CLASSES_MAX {
            return None;
        }
    }
    Some(classes)
}

pub(crate) static NEW_EVENTS: Sql = Sql {
    text: "INSERT INTO quell.event_row (lane_id, seq, received_at, priority, id, print, payload)
           SELECT unnest($1::bigint[]), unnest($2::bigint[]), $3::bigint, $4::smallint, unnest($5::text[]),
                  unnest($6::bytea[]), unnest($7::text[])",
    types: &[
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8,
        Type::INT2,
        Type::TEXT_ARRAY,
        Type::BYTEA_ARRAY,
        Type::TEXT_ARRAY,
    ],
};

pub(crate) fn new_events(new: &[&(u64, Arc<Kept>)]) -> Option<Vec<Request>> {
    let classes = classes(new.iter().copied(), |(_, k)| {
        let plain = k.mark.is_none() && k.event.was_seq.is_none() && k.source.is_none();
        (plain && k.event.headers.is_empty()).then_some((k.event.received_at, k.priority))
    })?;
    let request = |((at, priority), rows): ((_, u8), Vec<&(u64, Arc<Kept>)>)| -> Request {
        let at: quell_core::clock::Timestamp = at;
        let values: Vec<Value> = vec![
            Box::new(rows.iter().map(|(lane, _)| number(*lane)).collect::<Vec<_>>()),
            Box::new(rows.iter().map(|(_, k)| number(k.event.seq)).collect::<Vec<_>>()),
            Box::new(at.as_millis()),
            Box::new(i16::from(priority)),
            Box::new(rows.iter().map(|(_, k)| k.event.id.as_str().to_owned()).collect::<Vec<_>>()),
            Box::new(rows.iter().map(|(_, k)| k.print.0.to_vec()).collect::<Vec<_>>()),
            Box::new(rows.iter().map(|(_, k)| k.event.payload.as_str().to_owned()).collect::<Vec<_>>()),
        ];
        (&NEW_EVENTS, values)
    };
    Some(classes.into_iter().map(request).collect())
}

/// The id of the claim that holds a lane.
pub(crate) fn claim_id(write: &LaneWrite) -> Option<&str> {
    let current = write.lane.current.as_ref().filter(|c| c.state == RunState::Running)?;
    current.claim_id.as_deref()
}

pub(crate) fn is_held(write: &LaneWrite) -> bool {
    write.lane.paused.is_some() || write.lane.blocked.is_some()
}

/// A lane that is new, with the number of its queue and the event that lies in its row.
#[derive(Clone, Copy)]
pub(crate) struct NewLane<'c> {
    pub(crate) queue: i32,
    pub(crate) write: &'c LaneWrite,
    pub(crate) first: Option<&'c Kept>,
}

pub(crate) static NEW_LANES: Sql = Sql {
    text: "INSERT INTO quell.lane (id, queue_id, key, due_at, lease_at, priority, source, claim_id, held, body, first_seq,
                                   first_at, first_priority, first_id, first_print, first_payload)
           SELECT unnest($1::bigint[]), $2::int, unnest($3::text[]), unnest($4::bigint[]), $5::bigint, $6::smallint,
                  $7::bigint, $8::text, $9::bool, unnest($10::bytea[]), unnest($11::bigint[]), $12::bigint, $13::smallint,
                  unnest($14::text[]), unnest($15::bytea[]), unnest($16::text[])",
    types: &[
        Type::INT8_ARRAY,
        Type::INT4,
        Type::TEXT_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8,
        Type::INT2,
        Type::INT8,
        Type::TEXT,
        Type::BOOL,
        Type::BYTEA_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8,
        Type::INT2,
        Type::TEXT_ARRAY,
        Type::BYTEA_ARRAY,
        Type::TEXT_ARRAY,
    ],
};

/// New lanes, in the order of their keys.
pub(crate) fn new_lanes(new: &[NewLane<'_>]) -> Option<Vec<Request>> {
    let classes = classes(new.iter(), |NewLane { queue, write: w, first }| {
        let entries = (w.entries.lease, w.entries.priority, source_code(w.lane.source()));
        let first = first.map(|k| (k.event.received_at, k.priority));
        Some((*queue, entries, claim_id(w), is_held(w), first))
    })?;
    // All of them are one statement, or two who make the same lanes in two orders would wait for each other.
    if classes.len() > 1 {
        return None;
    }
    let mut requests: Vec<Request> = Vec::new();
    for ((queue, (lease, priority, source), claim, held, first), rows) in classes {
        let writes = || rows.iter().map(|new| new.write);
        let mut values: Vec<Value> = vec![
            Box::new(writes().map(|w| number(w.lane.id)).collect::<Vec<_>>()),
            Box::new(queue),
            Box::new(writes().map(|w| w.key.key.as_str().to_owned()).collect::<Vec<_>>()),
            Box::new(writes().map(|w| maybe_millis(w.entries.due)).collect::<Vec<_>>()),
            Box::new(maybe_millis(lease)),
            Box::new(i16::from(priority)),
            Box::new(source),
            Box::new(claim.map(|id| clean(id).into_owned())),
            Box::new(held),
            Box::new(writes().map(|w| codec::write_lane(&w.lane)).collect::<Vec<_>>()),
        ];
        let firsts: Vec<Option<&Kept>> = rows.iter().map(|new| new.first).collect();
        values.push(Box::new(first_seqs(&firsts)));
        values.push(Box::new(first.map(|(at, _)| at.as_millis())));
        values.push(Box::new(first.map(|(_, priority)| i16::from(priority))));
        values.extend(first_values(&firsts));
        requests.push((&NEW_LANES, values));
    }
    Some(requests)
}

pub(crate) fn first_seqs(firsts: &[Option<&Kept>]) -> Vec<Option<i64>> {
    firsts.iter().map(|first| first.map(|k| number(k.event.seq))).collect()
}

/// Ids, fingerprints and payloads.
pub(crate) fn first_values(firsts: &[Option<&Kept>]) -> [Value; 3] {
    let all = || firsts.iter().copied();
    [
        Box::new(all().map(|first| first.map(|k| k.event.id.as_str().to_owned())).collect::<Vec<_>>()),
        Box::new(all().map(|first| first.map(|k| k.print.0.to_vec())).collect::<Vec<_>>()),
        Box::new(all().map(|first| first.map(|k| k.event.payload.as_str().to_owned())).collect::<Vec<_>>()),
    ]
}

pub(crate) static LANES: Sql = Sql {
    text: "UPDATE quell.lane l SET due_at = $3::bigint, lease_at = $4::bigint, priority = $5::smallint,
             source = $6::bigint, claim_id = $7::text, held = $8::bool, body = u.body
           FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bytea[]) AS body) u WHERE l.id = u.id",
    types: &[
        Type::INT8_ARRAY,
        Type::BYTEA_ARRAY,
        Type::INT8,
        Type::INT8,
        Type::INT2,
        Type::INT8,
        Type::TEXT,
        Type::BOOL,
    ],
};

pub(crate) fn lanes(writes: &[&LaneWrite]) -> Option<Vec<Request>> {
    let classes = classes(writes.iter(), |w| {
        let entries = (w.entries.due, w.entries.lease, w.entries.priority, source_code(w.lane.source()));
        Some((entries, claim_id(w), is_held(w)))
    })?;
    let mut requests: Vec<Request> = Vec::new();
    for (((due, lease, priority, source), claim, held), rows) in classes {
        let values: Vec<Value> = vec![
            Box::new(rows.iter().map(|w| number(w.lane.id)).collect::<Vec<_>>()),
            Box::new(rows.iter().map(|w| codec::write_lane(&w.lane)).collect::<Vec<_>>()),
            Box::new(maybe_millis(due)),
            Box::new(maybe_millis(lease)),
            Box::new(i16::from(priority)),
            Box::new(source),
            Box::new(claim.map(|id| clean(id).into_owned())),
            Box::new(held),
        ];
        requests.push((&LANES, values));
    }
    Some(requests)
}

/// Queue, source, priority, due time and lane.
pub(crate) type Due = (i32, i64, i16, i64, i64);

pub(crate) static NEW_DUE: Sql = Sql {
    text: "INSERT INTO quell.due (queue_id, source, priority, due_at, lane_id)
           SELECT $1::int, $2::bigint, $3::smallint, unnest($4::bigint[]), unnest($5::bigint[])",
    types: &DUE_TYPES,
};
/// Row by row through the index, however small the planner believes the table to be.
pub(crate) static GONE_DUE: Sql = Sql {
    text: "DELETE FROM quell.due WHERE ctid = ANY(ARRAY(
             SELECT d.ctid FROM (SELECT unnest($4::bigint[]) AS due_at, unnest($5::bigint[]) AS lane_id) w
             CROSS JOIN LATERAL (
               SELECT ctid FROM quell.due
               WHERE queue_id = $1 AND source = $2 AND priority = $3 AND due_at = w.due_at AND lane_id = w.lane_id
               LIMIT 1) d))",
    types: &DUE_TYPES,
};
const DUE_TYPES: [Type; 5] = [Type::INT4, Type::INT8, Type::INT2, Type::INT8_ARRAY, Type::INT8_ARRAY];

pub(crate) fn new_due(rows: &[Due]) -> Option<Vec<Request>> {
    due(&NEW_DUE, rows)
}

pub(crate) fn gone_due(rows: &[Due]) -> Option<Vec<Request>> {
    due(&GONE_DUE, rows)
}

fn due(sql: &'static Sql, rows: &[Due]) -> Option<Vec<Request>> {
    let classes = classes(rows.iter(), |row| Some((row.0, row.1, row.2)))?;
    let request = |((queue, source, priority), rows): ((i32, i64, i16), Vec<&Due>)| -> Request {
        let values: Vec<Value> = vec![
            Box::new(queue),
            Box::new(source),
            Box::new(priority),
            Box::new(rows.iter().map(|row| row.3).collect::<Vec<_>>()),
            Box::new(rows.iter().map(|row| row.4).collect::<Vec<_>>()),
        ];
        (sql, values)
    };
    Some(classes.into_iter().map(request).collect())
}

pub(crate) static GONE_LEASES: Sql = Sql {
    text: "DELETE FROM quell.lease WHERE ctid = ANY(ARRAY(
             SELECT s.ctid FROM (SELECT unnest($2::bigint[]) AS lease_at, unnest($3::bigint[]) AS lane_id) w
             CROSS JOIN LATERAL (
               SELECT ctid FROM quell.lease
               WHERE queue_id = $1 AND lease_at = w.lease_at AND lane_id = w.lane_id LIMIT 1) s))",
    types: &[Type::INT4, Type::INT8_ARRAY, Type::INT8_ARRAY],
};

pub(crate) fn gone_leases(rows: &[(i32, i64, i64)]) -> Option<Vec<Request>> {
    let classes = classes(rows.iter(), |row| Some(row.0))?;
    let request = |(queue, rows): (i32, Vec<&(i32, i64, i64)>)| -> Request {
        let values: Vec<Value> = vec![
            Box::new(queue),
            Box::new(rows.iter().map(|row| row.1).collect::<Vec<_>>()),
            Box::new(rows.iter().map(|row| row.2).collect::<Vec<_>>()),
        ];
        (&GONE_LEASES, values)
    };
    Some(classes.into_iter().map(request).collect())
}

pub(crate) static NEW_RUNS: Sql = Sql {
    text: "INSERT INTO quell.run (lane_id, number, queue_id, state, marked, ended_at, count, lo, hi, body)
           SELECT unnest($1::bigint[]), unnest($2::bigint[]), $3::int, $4::smallint, $5::bool, $6::bigint, $7::bigint,
                  unnest($8::bigint[]), unnest($9::bigint[]), unnest($10::bytea[])",
    types: &[
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT4,
        Type::INT2,
        Type::BOOL,
        Type::INT8,
        Type::INT8,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::BYTEA_ARRAY,
    ],
};

/// New runs with the numbers of their queues.
pub(crate) fn new_runs(queues: &[i32], runs: &[FinishedRun]) -> Option<Vec<Request>> {
    let classes = classes(queues.iter().zip(runs), |(queue, run)| {
        let ended = &run.ended;
        Some((**queue, state_code(ended.state), ended.run.marked, ended.at, ended.run.count))
    })?;
    let mut requests: Vec<Request> = Vec::new();
    for ((queue, state, marked, at, count), rows) in classes {
        let of = |f: fn(&FinishedRun) -> u64| -> Value {
            Box::new(rows.iter().map(|(_, run)| number(f(run))).collect::<Vec<_>>())
        };
        let values: Vec<Value> = vec![
            of(|run| run.lane),
            of(|run| run.ended.run.number),
            Box::new(queue),
            Box::new(state),
            Box::new(marked),
            Box::new(at.as_millis()),
            Box::new(number(count)),
            of(|run| run.ended.run.lo),
            of(|run| run.ended.run.hi),
            Box::new(rows.iter().map(|(_, run)| codec::write_run(run)).collect::<Vec<_>>()),
        ];
        requests.push((&NEW_RUNS, values));
    }
    Some(requests)
}

pub(crate) static AUDIT: Sql = Sql {
    text: "INSERT INTO quell.audit (id, at, queue_id, lane_id, run, change, from_state, to_state, verdict, attempt, token,
                                    upto_seq, next_at, worker, prior_worker, actor)
           SELECT unnest($1::bigint[]), $2::bigint, $3::int, unnest($4::bigint[]), unnest($5::bigint[]), $6::smallint,
                  $7::smallint, $8::smallint, $9::smallint, $10::int, unnest($11::bigint[]), unnest($12::bigint[]),
                  $13::bigint, $14::text, $15::text, $16::text",
    types: &[
        Type::INT8_ARRAY,
        Type::INT8,
        Type::INT4,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT2,
        Type::INT2,
        Type::INT2,
        Type::INT2,
        Type::INT4,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
    ],
};

/// Records with the numbers of their queues.
pub(crate) fn audit(queues: &[i32], trail: &[Trail]) -> Option<Vec<Request>> {
    let classes = classes(queues.iter().zip(trail), |(queue, Trail { record: r, .. })| {
        let codes = (
            change_code(r.change),
            r.from.map(state_code),
            r.to.map(state_code),
            r.verdict.map(verdict_code),
        );
        let who = (r.worker.as_deref(), r.prior_worker.as_deref(), r.actor.as_deref());
        r.other_run.is_none().then_some((**queue, r.at, r.next_at, r.attempt, codes, who))
    })?;
    let text = |text: Option<&str>| text.map(|text| clean(text).into_owned());
    let mut requests: Vec<Request> = Vec::new();
    for ((queue, at, next_at, attempt, (change, from, to, verdict), (worker, prior, actor)), rows) in classes
    {
        let values: Vec<Value> = vec![
            Box::new(rows.iter().map(|(_, t)| number(t.record.id)).collect::<Vec<_>>()),
            Box::new(at.as_millis()),
            Box::new(queue),
            Box::new(rows.iter().map(|(_, t)| maybe_number(t.lane)).collect::<Vec<_>>()),
            Box::new(
                rows.iter().map(|(_, t)| t.record.run.map(|run| number(run.number))).collect::<Vec<_>>(),
            ),
            Box::new(change),
            Box::new(from),
            Box::new(to),
            Box::new(verdict),
            Box::new(i32::try_from(attempt).unwrap_or(i32::MAX)),
            Box::new(rows.iter().map(|(_, t)| number(t.record.token)).collect::<Vec<_>>()),
            Box::new(rows.iter().map(|(_, t)| number(t.record.upto_seq)).collect::<Vec<_>>()),
            Box::new(maybe_millis(next_at)),
            Box::new(text(worker)),
            Box::new(text(prior)),
            Box::new(text(actor)),
        ];
        requests.push((&AUDIT, values));
    }
    Some(requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_too_little_in_common_are_no_classes() {
        let rows = [(1, 'a'), (2, 'b'), (1, 'c')];
        let by = classes(rows.iter(), |row| Some(row.0)).unwrap();
        assert_eq!(by[&1], [&(1, 'a'), &(1, 'c')]);
        assert!(classes(rows.iter(), |row| Some(row.1)).is_none(), "three classes are too many");
        assert!(classes(rows.iter(), |row| (row.0 == 1).then_some(())).is_none(), "one row is of no class");
    }
}
