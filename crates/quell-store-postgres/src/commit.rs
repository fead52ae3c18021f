//! Commit: everything that changed, and the end of the transaction, in one round trip.
//!
//! Each table gets one statement with an array per column. They are sent together with the COMMIT behind them: if one of
//! them fails, the server turns the COMMIT into a rollback, so an error of a statement means that nothing was done. Only
//! an answer that does not come leaves it open.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quell_core::aside::Aside;
use quell_core::batch::RunId;
use quell_core::clock::Timestamp;
use quell_core::event::{LaneKey, NewEventId, QueueName, Tenant};
use quell_core::source::{Source, SourceId};
use quell_core::working_set::{FinishedRun, Kept};
use quell_store_rows::changes::{Changes, EventChange, LaneWrite};
use quell_store_rows::codec;
use quell_store_rows::rows::{Entries, RowsResult, Trouble};
use tokio_postgres::Error;
use tokio_postgres::types::Type;

use crate::alike::{self, NewLane, is_held};
use crate::connection::{Request, Sql, Value};
use crate::error::{at_commit, trouble, unreadable};
use crate::first::Firsts;
use crate::leases::{Leases, Moves};
use crate::queues::{Known, Names};
use crate::rows::{
    change_code, clean, headers_json, maybe_millis, maybe_number, number, source_code, state_code,
    verdict_code,
};
use crate::shelves;
use crate::tx::Tx;

/// In the order of their keys, so that two who make the same lanes wait for each other in one direction only. Whoever
/// comes second is told so by the unique index, and begins anew.
pub(crate) static NEW_LANES: Sql = Sql {
    text:
        "INSERT INTO quell.lane (id, queue_id, key, due_at, lease_at, priority, source, claim_id, held, body, first_seq,
                                   first_at, first_priority, first_id, first_print, first_payload)
           SELECT unnest($1::bigint[]), unnest($2::int[]), unnest($3::text[]), unnest($4::bigint[]),
                  unnest($5::bigint[]), unnest($6::smallint[]), unnest($7::bigint[]), unnest($8::text[]),
                  unnest($9::bool[]), unnest($10::bytea[]), unnest($11::bigint[]), unnest($12::bigint[]),
                  unnest($13::smallint[]), unnest($14::text[]), unnest($15::bytea[]), unnest($16::text[])",
    types: &[
        Type::INT8_ARRAY,
        Type::INT4_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT2_ARRAY,
        Type::INT8_ARRAY,
        Type::TEXT_ARRAY,
        Type::BOOL_ARRAY,
        Type::BYTEA_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT2_ARRAY,
        Type::TEXT_ARRAY,
        Type::BYTEA_ARRAY,
        Type::TEXT_ARRAY,
    ],
};
pub(crate) static LANES: Sql = Sql {
    text: "UPDATE quell.lane l SET due_at = u.due_at, lease_at = u.lease_at, priority = u.priority,
             source = u.source, claim_id = u.claim_id, held = u.held, body = u.body
           FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS due_at, unnest($3::bigint[]) AS lease_at,
                   unnest($4::smallint[]) AS priority, unnest($5::bigint[]) AS source, unnest($6::text[]) AS claim_id,
                   unnest($7::bool[]) AS held, unnest($8::bytea[]) AS body) u
           WHERE l.id = u.id",
    types: &[
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT2_ARRAY,
        Type::INT8_ARRAY,
        Type::TEXT_ARRAY,
        Type::BOOL_ARRAY,
        Type::BYTEA_ARRAY,
    ],
};
pub(crate) static NEW_DUE: Sql = Sql {
    text: "INSERT INTO quell.due (queue_id, source, priority, due_at, lane_id)
           SELECT unnest($1::int[]), unnest($2::bigint[]), unnest($3::smallint[]), unnest($4::bigint[]),
                  unnest($5::bigint[])",
    types: &DUE_TYPES,
};
/// Row by row through the index, however small the planner believes the table to be.
pub(crate) static GONE_DUE: Sql = Sql {
    text: "DELETE FROM quell.due WHERE ctid = ANY(ARRAY(
             SELECT d.ctid FROM unnest($1::int[], $2::bigint[], $3::smallint[], $4::bigint[], $5::bigint[])
               AS w(queue_id, source, priority, due_at, lane_id)
             CROSS JOIN LATERAL (
               SELECT ctid FROM quell.due
               WHERE queue_id = w.queue_id AND source = w.source AND priority = w.priority AND due_at = w.due_at
                 AND lane_id = w.lane_id
               LIMIT 1) d))",
    types: &DUE_TYPES,
};
const DUE_TYPES: [Type; 5] =
    [Type::INT4_ARRAY, Type::INT8_ARRAY, Type::INT2_ARRAY, Type::INT8_ARRAY, Type::INT8_ARRAY];
/// Only leases that a program of an older version has given have a row for each lane.
pub(crate) static GONE_LEASES: Sql = Sql {
    text: "DELETE FROM quell.lease WHERE ctid = ANY(ARRAY(
             SELECT s.ctid FROM unnest($1::int[], $2::bigint[], $3::bigint[]) AS w(queue_id, lease_at, lane_id)
             CROSS JOIN LATERAL (
               SELECT ctid FROM quell.lease
               WHERE queue_id = w.queue_id AND lease_at = w.lease_at AND lane_id = w.lane_id LIMIT 1) s))",
    types: &[Type::INT4_ARRAY, Type::INT8_ARRAY, Type::INT8_ARRAY],
};
/// For lanes whose entries stay: most appends.
pub(crate) static BODIES: Sql = Sql {
    text: "UPDATE quell.lane l SET body = u.body
           FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bytea[]) AS body) u WHERE l.id = u.id",
    types: &[Type::INT8_ARRAY, Type::BYTEA_ARRAY],
};
/// One that lies with its lane goes with it.
static ERASE_EVENTS: Sql =
    Sql { text: "DELETE FROM quell.event_row WHERE lane_id = ANY($1)", types: &[Type::INT8_ARRAY] };
static ERASE_RUNS: Sql =
    Sql { text: "DELETE FROM quell.run WHERE lane_id = ANY($1)", types: &[Type::INT8_ARRAY] };
static ERASE_STEPS: Sql =
    Sql { text: "DELETE FROM quell.step WHERE lane_id = ANY($1)", types: &[Type::INT8_ARRAY] };
pub(crate) static ERASE_DUE: Sql = Sql {
    text: "DELETE FROM quell.due d USING quell.lane l
           WHERE l.id = ANY($1) AND d.queue_id = l.queue_id AND d.source = l.source AND d.priority = l.priority
             AND d.due_at = l.due_at AND d.lane_id = l.id",
    types: &[Type::INT8_ARRAY],
};
pub(crate) static ERASE_LEASES: Sql = Sql {
    text: "DELETE FROM quell.lease s USING quell.lane l
           WHERE l.id = ANY($1) AND s.queue_id = l.queue_id AND s.lease_at = l.lease_at AND s.lane_id = l.id",
    types: &[Type::INT8_ARRAY],
};
static ERASE_LANES: Sql =
    Sql { text: "DELETE FROM quell.lane WHERE id = ANY($1)", types: &[Type::INT8_ARRAY] };
static ERASE_ASIDE: Sql = Sql {
    text: "DELETE FROM quell.aside a USING unnest($1::int[], $2::text[]) AS w(queue_id, key)
           WHERE a.queue_id = w.queue_id AND a.key = w.key",
    types: &[Type::INT4_ARRAY, Type::TEXT_ARRAY],
};
static ERASE_SCHEDULES: Sql = Sql {
    text: "DELETE FROM quell.schedule s USING unnest($1::int[], $2::text[]) AS w(queue_id, key)
           WHERE s.queue_id = w.queue_id AND s.key = w.key",
    types: &[Type::INT4_ARRAY, Type::TEXT_ARRAY],
};
/// Through the view, as the next one: wherever they lie.
static GONE_EVENTS: Sql = Sql {
    text: "DELETE FROM quell.event e USING unnest($1::bigint[], $2::bigint[]) AS w(lane, seq)
           WHERE e.lane_id = w.lane AND e.seq = w.seq",
    types: &[Type::INT8_ARRAY, Type::INT8_ARRAY],
};
static EVENTS: Sql = Sql {
    text: "UPDATE quell.event e SET mark = u.mark, payload = coalesce(u.payload, e.payload)
           FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[]) AS u(lane, seq, mark, payload)
           WHERE e.lane_id = u.lane AND e.seq = u.seq",
    types: &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT8_ARRAY, Type::TEXT_ARRAY],
};
pub(crate) static NEW_EVENTS: Sql = Sql {
    text: "INSERT INTO quell.event_row (lane_id, seq, received_at, mark, was_seq, priority, id, print, headers, payload,
                                    source)
           SELECT unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::bigint[]),
                  unnest($5::bigint[]), unnest($6::smallint[]), unnest($7::text[]), unnest($8::bytea[]),
                  unnest($9::text[]), unnest($10::text[]), unnest($11::bigint[])",
    types: &[
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT2_ARRAY,
        Type::TEXT_ARRAY,
        Type::BYTEA_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT8_ARRAY,
    ],
};
pub(crate) static NEW_RUNS: Sql = Sql {
    text: "INSERT INTO quell.run (lane_id, number, queue_id, state, marked, ended_at, count, lo, hi, body)
           SELECT unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::int[]), unnest($4::smallint[]),
                  unnest($5::bool[]), unnest($6::bigint[]), unnest($7::bigint[]), unnest($8::bigint[]),
                  unnest($9::bigint[]), unnest($10::bytea[])",
    types: &RUN_TYPES,
};
/// A run that ends once more (a dead letter that is purged) is the latest that ended.
static RUNS: Sql = Sql {
    text: "UPDATE quell.run r SET state = u.state, marked = u.marked, ended_at = u.ended_at, count = u.count, lo = u.lo,
             hi = u.hi, body = u.body,
             id = CASE WHEN r.ended_at = u.ended_at THEN r.id ELSE nextval('quell.run_id') END
           FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::smallint[], $5::bool[], $6::bigint[], $7::bigint[],
                       $8::bigint[], $9::bigint[], $10::bytea[])
             AS u(lane, number, queue_id, state, marked, ended_at, count, lo, hi, body)
           WHERE r.lane_id = u.lane AND r.number = u.number",
    types: &RUN_TYPES,
};
const RUN_TYPES: [Type; 10] = [
    Type::INT8_ARRAY,
    Type::INT8_ARRAY,
    Type::INT4_ARRAY,
    Type::INT2_ARRAY,
    Type::BOOL_ARRAY,
    Type::INT8_ARRAY,
    Type::INT8_ARRAY,
    Type::INT8_ARRAY,
    Type::INT8_ARRAY,
    Type::BYTEA_ARRAY,
];
static GONE_STEPS: Sql = Sql {
    text: "DELETE FROM quell.step s USING unnest($1::bigint[], $2::bigint[]) AS w(lane, run)
           WHERE s.lane_id = w.lane AND s.run = w.run",
    types: &[Type::INT8_ARRAY, Type::INT8_ARRAY],
};
static STEPS: Sql = Sql {
    text: "INSERT INTO quell.step (lane_id, run, revision, name, at, token, value)
           SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::text[], $5::bigint[], $6::bigint[], $7::text[])
           ON CONFLICT (lane_id, run, revision, name)
           DO UPDATE SET at = excluded.at, token = excluded.token, value = excluded.value",
    types: &[
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT4_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::TEXT_ARRAY,
    ],
};
pub(crate) static NEW_ASIDE: Sql = Sql {
    text: "INSERT INTO quell.aside (number, queue_id, key, id, ready_at, look_at, body)
           SELECT * FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bytea[])",
    types: &[
        Type::INT8_ARRAY,
        Type::INT4_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::BYTEA_ARRAY,
    ],
};
static MOVED_ASIDE: Sql = Sql {
    text: "UPDATE quell.aside a SET look_at = u.look_at FROM unnest($1::bigint[], $2::bigint[]) AS u(number, look_at)
           WHERE a.number = u.number",
    types: &[Type::INT8_ARRAY, Type::INT8_ARRAY],
};
static GONE_ASIDE: Sql =
    Sql { text: "DELETE FROM quell.aside WHERE number = ANY($1)", types: &[Type::INT8_ARRAY] };
static SCHEDULES: Sql = Sql {
    text: "INSERT INTO quell.schedule (tenant, name, queue_id, key, next_at, body)
           SELECT * FROM unnest($1::text[], $2::text[], $3::int[], $4::text[], $5::bigint[], $6::bytea[])
           ON CONFLICT (tenant, name) DO UPDATE
           SET queue_id = excluded.queue_id, key = excluded.key, next_at = excluded.next_at, body = excluded.body",
    types: &[
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT4_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT8_ARRAY,
        Type::BYTEA_ARRAY,
    ],
};
static GONE_SCHEDULES: Sql = Sql {
    text: "DELETE FROM quell.schedule s USING unnest($1::text[], $2::text[]) AS w(tenant, name)
           WHERE s.tenant = w.tenant AND s.name = w.name",
    types: &[Type::TEXT_ARRAY, Type::TEXT_ARRAY],
};
static PAUSES: Sql = Sql {
    text: "INSERT INTO quell.queue_pause (queue, every, tenant, body)
           SELECT * FROM unnest($1::text[], $2::bool[], $3::text[], $4::bytea[]) ON CONFLICT DO NOTHING",
    types: &[Type::TEXT_ARRAY, Type::BOOL_ARRAY, Type::TEXT_ARRAY, Type::BYTEA_ARRAY],
};
static GONE_PAUSES: Sql = Sql {
    text: "DELETE FROM quell.queue_pause p USING unnest($1::text[], $2::bool[], $3::text[]) AS w(queue, every, tenant)
           WHERE p.queue = w.queue AND p.every = w.every AND p.tenant = w.tenant",
    types: &[Type::TEXT_ARRAY, Type::BOOL_ARRAY, Type::TEXT_ARRAY],
};
pub(crate) static AUDIT: Sql = Sql {
    text: "INSERT INTO quell.audit (id, at, queue_id, lane_id, run, change, from_state, to_state, verdict, attempt, token,
                                    upto_seq, next_at, other_run, worker, prior_worker, actor)
           SELECT unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::int[]), unnest($4::bigint[]),
                  unnest($5::bigint[]), unnest($6::smallint[]), unnest($7::smallint[]), unnest($8::smallint[]),
                  unnest($9::smallint[]), unnest($10::int[]), unnest($11::bigint[]), unnest($12::bigint[]),
                  unnest($13::bigint[]), unnest($14::bigint[]), unnest($15::text[]), unnest($16::text[]),
                  unnest($17::text[])",
    types: &[
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT4_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT2_ARRAY,
        Type::INT2_ARRAY,
        Type::INT2_ARRAY,
        Type::INT2_ARRAY,
        Type::INT4_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
    ],
};
pub(crate) static DELTAS: Sql = Sql {
    text: "INSERT INTO quell.queue_delta (queue_id, accepted, succeeded, dead, discarded, delayed, buffered, in_flight)
           SELECT * FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
                                $7::bigint[], $8::bigint[])",
    types: &[
        Type::INT4_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
    ],
};
static PRIORITIES: Sql = Sql {
    text: "UPDATE quell.queue q SET priorities = q.priorities | u.bits FROM unnest($1::int[], $2::int[]) AS u(id, bits)
           WHERE q.id = u.id AND q.priorities & u.bits <> u.bits",
    types: &[Type::INT4_ARRAY, Type::INT4_ARRAY],
};
/// In the order of their names. Whoever comes second is told so by the unique index, and begins anew.
static NEW_SOURCES: Sql = Sql {
    text: "INSERT INTO quell.source (id, tenant, name, body)
           SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bytea[])",
    types: &[Type::INT8_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::BYTEA_ARRAY],
};
static SOURCES: Sql = Sql {
    text: "UPDATE quell.source s SET body = u.body FROM unnest($1::bigint[], $2::bytea[]) AS u(id, body)
           WHERE s.id = u.id",
    types: &[Type::INT8_ARRAY, Type::BYTEA_ARRAY],
};
static PUT_DECLARATIONS: Sql = Sql {
    text: "INSERT INTO quell.declaration (name, body) SELECT * FROM unnest($1::text[], $2::bytea[])
           ON CONFLICT (name) DO UPDATE SET body = excluded.body",
    types: &[Type::TEXT_ARRAY, Type::BYTEA_ARRAY],
};
static GONE_DECLARATIONS: Sql =
    Sql { text: "DELETE FROM quell.declaration WHERE name = ANY($1)", types: &[Type::TEXT_ARRAY] };
static ANSWERS: Sql = Sql {
    text: "INSERT INTO quell.answer (source, key, expires_at, over_at, kept, body)
           SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bool[], $6::bytea[])
           ON CONFLICT (source, key) DO UPDATE SET expires_at = excluded.expires_at, over_at = excluded.over_at,
             kept = excluded.kept, body = excluded.body",
    types: &[
        Type::INT8_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::BOOL_ARRAY,
        Type::BYTEA_ARRAY,
    ],
};
static GONE_ANSWERS: Sql = Sql {
    text: "DELETE FROM quell.answer a USING unnest($1::bigint[], $2::text[]) AS w(source, key)
           WHERE a.source = w.source AND a.key = w.key",
    types: &[Type::INT8_ARRAY, Type::TEXT_ARRAY],
};
static NO_ANSWERS: Sql =
    Sql { text: "DELETE FROM quell.answer WHERE source = ANY($1)", types: &[Type::INT8_ARRAY] };
/// In one order for everybody: whoever adds the same pair at this moment is waited for.
static PAIRS: Sql = Sql {
    text: "INSERT INTO quell.queue_source (queue_id, source) SELECT * FROM unnest($1::int[], $2::bigint[])
           ON CONFLICT DO NOTHING",
    types: &[Type::INT4_ARRAY, Type::INT8_ARRAY],
};
/// Those who put the same id aside for a lane that does not exist meet here, since there is no row to meet at. There are
/// 512 places to meet, because a server has room for a limited number of locks.
static MEET: Sql = Sql {
    text: "SELECT pg_advisory_xact_lock(hashtext('quell.aside'), place)
           FROM (SELECT DISTINCT (hashtextextended(k, 0) & 511)::int AS place FROM unnest($1::text[]) AS k
                 ORDER BY place) AS places",
    types: &[Type::TEXT_ARRAY],
};
static MET: Sql = Sql {
    text: "SELECT 1 FROM unnest($1::int[], $2::text[], $3::text[]) AS w(queue_id, key, id)
           WHERE EXISTS (SELECT 1 FROM quell.aside a WHERE a.id = w.id AND a.queue_id = w.queue_id AND a.key = w.key)
              OR EXISTS (SELECT 1 FROM quell.lane l WHERE l.queue_id = w.queue_id AND l.key = w.key)
           LIMIT 1",
    types: &[Type::INT4_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY],
};

/// The one round trip of a commit, and what this process knows when it has succeeded.
struct Prepared {
    requests: Vec<Request>,
    moves: Moves,
    queues: BTreeMap<Names, Known>,
    pairs: BTreeSet<(i32, SourceId)>,
}

/// The numbers of the queues that changes name.
struct QueueIds(BTreeMap<Names, Known>);

impl QueueIds {
    fn of(&self, tenant: &Tenant, queue: &QueueName) -> Result<i32, Trouble> {
        let known = self.0.get(&(tenant.clone(), queue.clone()));
        Ok(known.map(|known| known.id).ok_or_else(|| unreadable(format!("queue {queue} has no row")))?)
    }

    /// Those of one queue mostly follow one another.
    fn of_all<'n>(
        &self,
        names: impl Iterator<Item = (&'n Tenant, &'n QueueName)>,
    ) -> Result<Vec<i32>, Trouble> {
        let mut last: Option<(&Tenant, &QueueName, i32)> = None;
        let mut ids = Vec::with_capacity(names.size_hint().0);
        for (tenant, queue) in names {
            let id = match last {
                Some((t, q, id)) if t == tenant && q == queue => id,
                _ => self.of(tenant, queue)?,
            };
            last = Some((tenant, queue, id));
            ids.push(id);
        }
        Ok(ids)
    }

    fn of_lane(&self, key: &LaneKey) -> Result<i32, Trouble> {
        self.of(&key.tenant, &key.queue)
    }
}

impl Tx {
    /// Writes everything and commits. Whatever happens, the transaction has ended then.
    pub(crate) async fn write(mut self: Box<Self>, changes: Changes) -> RowsResult<()> {
        match self.prepare(&changes).await {
            Ok(prepared) => {
                let leases = new_leases(&changes);
                self.finish(prepared, left_behind(&changes), leases).await
            }
            Err(Stop::Failed(error)) => {
                let told = trouble(&error);
                self.give_up(&error).await;
                Err(told)
            }
            Err(Stop::Told(told)) => {
                quell_store_rows::rows::Rows::rollback(self).await;
                Err(told)
            }
        }
    }

    /// Everything that has to be known before the one round trip: the numbers of the queues, those that do not exist yet
    /// made.
    async fn prepare(&mut self, changes: &Changes) -> Result<Prepared, Stop> {
        let names = named(changes);
        let connection = self.connection()?;
        let cache = &self.shared.queues;
        cache.learn_names(connection, names.iter()).await?;
        // What was not there when this transaction looked may be there now, in a queue that was not even known.
        if self.without_queue.iter().any(|names| cache.get(names).is_some()) {
            return Err(Stop::Told(Trouble::Again));
        }
        let unknown: Vec<&Names> = names.iter().filter(|names| cache.get(names).is_none()).collect();
        let mut queues: BTreeMap<Names, Known> =
            names.iter().filter_map(|names| Some((names.clone(), cache.get(names)?))).collect();
        if !unknown.is_empty() {
            let (made, by_others) = cache.make(connection, &unknown).await?;
            if by_others {
                return Err(Stop::Told(Trouble::Again));
            }
            queues.extend(made);
        }
        let ids = QueueIds(queues);
        self.meet_with_new(changes, &ids).await?;
        let mut requests = Vec::new();
        write_erased(changes, &ids, &mut requests)?;
        let mut moves = Moves::default();
        let firsts = if self.filling { Firsts::default() } else { Firsts::of(changes) };
        write_lanes(changes, &ids, &firsts, &mut requests)?;
        write_entries(changes, &ids, &mut requests, (&self.shared.leases, &mut moves))?;
        write_events(changes, &firsts, &mut requests);
        write_runs(changes, &ids, &mut requests)?;
        write_steps(changes, &mut requests);
        write_aside(changes, &ids, &mut requests)?;
        write_schedules(changes, &ids, &mut requests)?;
        write_pauses(changes, &mut requests);
        write_audit(changes, &ids, &mut requests)?;
        write_totals(changes, &ids, &mut requests)?;
        write_sources(changes, &mut requests);
        write_answers(changes, &mut requests);
        shelves::write(changes, &mut requests);
        let pairs = self.new_pairs(changes, &ids)?;
        write_pairs(&pairs, &mut requests);
        let QueueIds(mut queues) = ids;
        raise_priorities(changes, &mut queues, &mut requests);
        // Last of all: they look at lanes as they are written here.
        requests.extend(self.leases_over());
        requests.extend(moves.foreign_rows());
        Ok(Prepared { requests, moves, queues, pairs })
    }

    /// Queues whose lanes wait for a source for the first time, as far as this process knows.
    fn new_pairs(&self, changes: &Changes, ids: &QueueIds) -> Result<BTreeSet<(i32, SourceId)>, Stop> {
        let mut pairs = BTreeSet::new();
        for write in &changes.lanes {
            if let Some(source) = write.entries.source {
                let queue = ids.of_lane(&write.key)?;
                if !self.shared.queues.has_pair(queue, source) {
                    pairs.insert((queue, source));
                }
            }
        }
        Ok(pairs)
    }

    /// Two who put the same id aside for a lane that does not exist must not both do so.
    async fn meet_with_new(&self, changes: &Changes, ids: &QueueIds) -> Result<(), Stop> {
        let (mut lanes, mut event_ids) = (Vec::new(), Vec::new());
        for aside in &changes.new_aside {
            let event = &aside.event;
            let NewEventId::Given(id) = &event.id else { continue };
            if event.delay.is_some() && self.without_lane.binary_search(&event.lane).is_ok() {
                lanes.push((ids.of_lane(&event.lane)?, &event.lane));
                event_ids.push(id.as_str());
            }
        }
        Ok(self.meet(&lanes, &event_ids).await?)
    }

    /// Meets those who put something aside for the same lanes, which do not exist. If one of them does now, or one of
    /// these ids is aside there, what was read before is not true any more.
    pub(crate) async fn meet(&self, lanes: &[(i32, &LaneKey)], ids: &[&str]) -> RowsResult<()> {
        if lanes.is_empty() {
            return Ok(());
        }
        let places: Vec<String> =
            lanes.iter().map(|(queue, key)| format!("{queue}/{}", key.key.as_str())).collect();
        let queues: Vec<i32> = lanes.iter().map(|(queue, _)| *queue).collect();
        let keys: Vec<String> = lanes.iter().map(|(_, key)| key.key.as_str().to_owned()).collect();
        let ids: Vec<Option<String>> =
            (0..lanes.len()).map(|n| ids.get(n).map(|id| (*id).to_owned())).collect();
        let requests: [Request; 2] =
            [(&MEET, vec![Box::new(places)]), (&MET, vec![Box::new(queues), Box::new(keys), Box::new(ids)])];
        let answers = self.connection()?.read(&requests).await.map_err(|e| trouble(&e))?;
        let met = answers.last().is_some_and(|rows| !rows.is_empty());
        if met { Err(Trouble::Again) } else { Ok(()) }
    }

    async fn finish(
        mut self: Box<Self>,
        Prepared { requests, moves, queues, pairs }: Prepared,
        left: u64,
        leases: BTreeMap<Names, (Timestamp, Timestamp)>,
    ) -> RowsResult<()> {
        let together = self.connection()?.write(&requests, "COMMIT").await;
        let (answers, committed) = match together {
            Ok(answers) => answers,
            // Some statement could not be prepared: nothing was sent.
            Err(error) => {
                let told = trouble(&error);
                self.give_up(&error).await;
                return Err(told);
            }
        };
        // The first that failed says why; those behind it only say that something has.
        let failed = answers.into_iter().find_map(Result::err);
        if let Some(error) = failed {
            // The server says it before it reaches the COMMIT. A connection that is lost says nothing of the COMMIT.
            let told = if error.as_db_error().is_some() { trouble(&error) } else { at_commit(&error) };
            if committed.is_err() {
                self.discard();
            } else {
                self.give_up(&error).await;
            }
            return Err(told);
        }
        if let Err(error) = committed {
            let told = at_commit(&error);
            self.discard();
            return Err(told);
        }
        for (names, known) in queues {
            if let Some((first, last)) = leases.get(&names) {
                self.shared.floors.leased(known.id, *first, *last);
            }
            self.shared.queues.put(names, known);
        }
        self.shared.queues.put_pairs(pairs.into_iter());
        self.shared.leases.ended(moves);
        self.shared.left.entries.fetch_add(left, Ordering::Relaxed);
        self.shared.left.deltas.fetch_add(1, Ordering::Relaxed);
        // It has ended: its connection goes back to the pool as it is.
        drop(self.connection.take());
        Ok(())
    }

    fn discard(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.discard();
        }
    }
}

/// Why a transaction does not get as far as its commit.
enum Stop {
    Failed(Error),
    Told(Trouble),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Failed(error)
    }
}

impl From<Trouble> for Stop {
    fn from(told: Trouble) -> Self {
        Stop::Told(told)
    }
}

impl From<crate::queues::Fault> for Stop {
    fn from(fault: crate::queues::Fault) -> Self {
        match fault {
            crate::queues::Fault::Connection(error) => Stop::Failed(error),
            crate::queues::Fault::Store(error) => Stop::Told(error.into()),
        }
    }
}

/// Entries that go or are replaced: what is left of them has to be tidied up.
fn left_behind(changes: &Changes) -> u64 {
    let moved = |w: &&LaneWrite| w.was.is_some_and(|was| was.due.is_some() && was.due != w.entries.due);
    changes.lanes.iter().filter(moved).count() as u64
}

/// When the first and the last of the new leases of each queue end.
fn new_leases(changes: &Changes) -> BTreeMap<Names, (Timestamp, Timestamp)> {
    let mut leases: BTreeMap<Names, (Timestamp, Timestamp)> = BTreeMap::new();
    let mut last: Option<(&LaneKey, Timestamp)> = None;
    for write in &changes.lanes {
        let Some(until) = write.entries.lease else { continue };
        // Those of one claim mostly follow one another, and end together.
        let same = |(key, known): (&LaneKey, Timestamp)| {
            known == until && key.tenant == write.key.tenant && key.queue == write.key.queue
        };
        if !last.is_some_and(same) {
            let names = (write.key.tenant.clone(), write.key.queue.clone());
            let known = leases.entry(names).or_insert((until, until));
            *known = (until.min(known.0), until.max(known.1));
            last = Some((&write.key, until));
        }
    }
    leases
}

/// Every queue that changes name, in one order for everybody.
fn named(changes: &Changes) -> BTreeSet<Names> {
    let of = |key: &LaneKey| (key.tenant.clone(), key.queue.clone());
    let mut names: BTreeSet<Names> = changes.totals.keys().cloned().collect();
    let lanes = changes.lanes.iter().map(|write| (&write.key.tenant, &write.key.queue));
    let runs = changes.new_runs.iter().chain(&changes.changed_runs);
    let runs = runs.map(|run| (&run.key.tenant, &run.key.queue));
    let records = changes.audit.iter().map(|trail| (&trail.record.tenant, &trail.record.queue));
    // Those of one queue mostly follow one another.
    let mut last = None;
    for (tenant, queue) in lanes.chain(runs).chain(records) {
        if last != Some((tenant, queue)) {
            names.insert((tenant.clone(), queue.clone()));
        }
        last = Some((tenant, queue));
    }
    names.extend(changes.new_aside.iter().map(|aside| of(&aside.event.lane)));
    names.extend(
        changes.schedules.iter().map(|row| (row.schedule.tenant.clone(), row.schedule.queue.clone())),
    );
    names.extend(changes.erased.iter().map(|(key, _)| of(key)));
    names
}

fn write_erased(changes: &Changes, ids: &QueueIds, requests: &mut Vec<Request>) -> Result<(), Stop> {
    if changes.erased.is_empty() {
        return Ok(());
    }
    let lanes: Vec<i64> = changes.erased.iter().filter_map(|(_, lane)| maybe_number(*lane)).collect();
    if !lanes.is_empty() {
        for sql in [&ERASE_EVENTS, &ERASE_RUNS, &ERASE_STEPS, &ERASE_DUE, &ERASE_LEASES, &ERASE_LANES] {
            requests.push((sql, vec![Box::new(lanes.clone())]));
        }
    }
    let mut queues = Vec::new();
    let mut keys = Vec::new();
    for (key, _) in &changes.erased {
        queues.push(ids.of_lane(key)?);
        keys.push(key.key.as_str().to_owned());
    }
    for sql in [&ERASE_ASIDE, &ERASE_SCHEDULES] {
        requests.push((sql, vec![Box::new(queues.clone()), Box::new(keys.clone())]));
    }
    Ok(())
}

/// The id of the claim that holds a lane, as it is stored.
fn claim_id(write: &LaneWrite) -> Option<String> {
    alike::claim_id(write).map(|id| clean(id).into_owned())
}

fn write_lanes(
    changes: &Changes,
    ids: &QueueIds,
    firsts: &Firsts<'_>,
    requests: &mut Vec<Request>,
) -> Result<(), Stop> {
    let mut new: Vec<NewLane<'_>> = Vec::new();
    // An append changes neither entries nor who holds the lane.
    let (mut bodies, mut whole) = (Vec::new(), Vec::new());
    for write in &changes.lanes {
        let unchanged = write.was == Some(write.entries) && write.entries.lease.is_none() && !is_held(write);
        match write.was {
            None => {
                let (queue, first) = (ids.of_lane(&write.key)?, firsts.of_lane(write.lane.id));
                new.push(NewLane { queue, write, first });
            }
            Some(was) if unchanged && was.due.is_some() => bodies.push(write),
            Some(_) => whole.push(write),
        }
    }
    if !new.is_empty() {
        new.sort_by(|a, b| (a.queue, &a.write.key.key).cmp(&(b.queue, &b.write.key.key)));
    }
    if let Some(alike) = alike::new_lanes(&new) {
        requests.extend(alike);
    } else {
        let numbers: Vec<i64> = new.iter().map(|new| number(new.write.lane.id)).collect();
        let queues: Vec<i32> = new.iter().map(|new| new.queue).collect();
        let keys: Vec<String> = new.iter().map(|new| new.write.key.key.as_str().to_owned()).collect();
        let mut values: Vec<Value> = vec![Box::new(numbers), Box::new(queues), Box::new(keys)];
        values.extend(lane_values(new.iter().map(|new| new.write)));
        let firsts: Vec<Option<&Kept>> = new.iter().map(|new| new.first).collect();
        let at = |first: &Option<&Kept>| first.map(|k| k.event.received_at.as_millis());
        let priority = |first: &Option<&Kept>| first.map(|k| i16::from(k.priority));
        values.push(Box::new(alike::first_seqs(&firsts)));
        values.push(Box::new(firsts.iter().map(at).collect::<Vec<_>>()));
        values.push(Box::new(firsts.iter().map(priority).collect::<Vec<_>>()));
        values.extend(alike::first_values(&firsts));
        requests.push((&NEW_LANES, values));
    }
    if let Some(alike) = alike::lanes(&whole) {
        requests.extend(alike);
    } else {
        let numbers: Vec<i64> = whole.iter().map(|w| number(w.lane.id)).collect();
        let mut values: Vec<Value> = vec![Box::new(numbers)];
        values.extend(lane_values(whole.iter().copied()));
        requests.push((&LANES, values));
    }
    if !bodies.is_empty() {
        let numbers: Vec<i64> = bodies.iter().map(|w| number(w.lane.id)).collect();
        let bodies: Vec<Vec<u8>> = bodies.iter().map(|w| codec::write_lane(&w.lane)).collect();
        requests.push((&BODIES, vec![Box::new(numbers), Box::new(bodies)]));
    }
    Ok(())
}

/// What lanes are found by: rows that come and go with the entries of their lanes.
fn write_entries(
    changes: &Changes,
    ids: &QueueIds,
    requests: &mut Vec<Request>,
    (leases, moves): (&Leases, &mut Moves),
) -> Result<(), Stop> {
    let (mut gone_due, mut new_due) = (Vec::new(), Vec::new());
    let mut gone_leases = Vec::new();
    let queues = ids.of_all(changes.lanes.iter().map(|write| (&write.key.tenant, &write.key.queue)))?;
    for (write, queue) in changes.lanes.iter().zip(queues) {
        let due = |e: Entries| e.due.map(|at| (source_code(e.source), i16::from(e.priority), at.as_millis()));
        let (was, is) = (write.was.and_then(due), due(write.entries));
        let lane = number(write.lane.id);
        if was != is {
            gone_due.extend(was.map(|(source, priority, at)| (queue, source, priority, at, lane)));
            new_due.extend(is.map(|(source, priority, at)| (queue, source, priority, at, lane)));
        }
        let (was, is) = (write.was.and_then(|was| was.lease), write.entries.lease);
        if was != is {
            let elsewhere = was.filter(|at| !leases.leaves(moves, queue, lane, at.as_millis()));
            gone_leases.extend(elsewhere.map(|at| (queue, at.as_millis(), lane)));
            if let Some(at) = is {
                moves.gives(queue, at.as_millis(), write);
            }
        }
    }
    let alike = (alike::gone_due(&gone_due), alike::new_due(&new_due));
    for (sql, alike, rows) in [(&GONE_DUE, alike.0, gone_due), (&NEW_DUE, alike.1, new_due)] {
        if let Some(alike) = alike {
            requests.extend(alike);
        } else {
            let values: Vec<Value> = vec![
                Box::new(rows.iter().map(|row| row.0).collect::<Vec<_>>()),
                Box::new(rows.iter().map(|row| row.1).collect::<Vec<_>>()),
                Box::new(rows.iter().map(|row| row.2).collect::<Vec<_>>()),
                Box::new(rows.iter().map(|row| row.3).collect::<Vec<_>>()),
                Box::new(rows.iter().map(|row| row.4).collect::<Vec<_>>()),
            ];
            requests.push((sql, values));
        }
    }
    if let Some(alike) = alike::gone_leases(&gone_leases) {
        requests.extend(alike);
    } else {
        let values: Vec<Value> = vec![
            Box::new(gone_leases.iter().map(|row| row.0).collect::<Vec<_>>()),
            Box::new(gone_leases.iter().map(|row| row.1).collect::<Vec<_>>()),
            Box::new(gone_leases.iter().map(|row| row.2).collect::<Vec<_>>()),
        ];
        requests.push((&GONE_LEASES, values));
    }
    for lane in changes.erased.iter().filter_map(|(_, lane)| maybe_number(*lane)) {
        leases.erases(moves, lane);
    }
    leases.look(moves);
    requests.extend(moves.new_rows());
    requests.extend(moves.spent_rows());
    Ok(())
}

/// Due, lease, priority, source, claim, held and body.
fn lane_values<'w>(writes: impl Iterator<Item = &'w LaneWrite> + Clone) -> Vec<Value> {
    vec![
        Box::new(writes.clone().map(|w| maybe_millis(w.entries.due)).collect::<Vec<_>>()),
        Box::new(writes.clone().map(|w| maybe_millis(w.entries.lease)).collect::<Vec<_>>()),
        Box::new(writes.clone().map(|w| i16::from(w.entries.priority)).collect::<Vec<_>>()),
        Box::new(writes.clone().map(|w| source_code(w.lane.source())).collect::<Vec<_>>()),
        Box::new(writes.clone().map(claim_id).collect::<Vec<_>>()),
        Box::new(writes.clone().map(is_held).collect::<Vec<_>>()),
        Box::new(writes.map(|w| codec::write_lane(&w.lane)).collect::<Vec<_>>()),
    ]
}

fn write_events(changes: &Changes, firsts: &Firsts<'_>, requests: &mut Vec<Request>) {
    let gone = &changes.gone_events;
    if !gone.is_empty() {
        let (lanes, seqs): (Vec<i64>, Vec<i64>) =
            gone.iter().map(|(lane, seq, _)| (number(*lane), number(*seq))).unzip();
        requests.push((&GONE_EVENTS, vec![Box::new(lanes), Box::new(seqs)]));
    }
    let changed = &changes.changed_events;
    if !changed.is_empty() {
        let of = |f: fn(&EventChange) -> Option<i64>| -> Value {
            Box::new(changed.iter().map(f).collect::<Vec<_>>())
        };
        let payloads: Vec<Option<String>> =
            changed.iter().map(|c| c.payload.as_ref().map(|p| p.as_str().to_owned())).collect();
        let values: Vec<Value> = vec![
            of(|c| Some(number(c.lane))),
            of(|c| Some(number(c.seq))),
            of(|c| maybe_number(c.mark)),
            Box::new(payloads),
        ];
        requests.push((&EVENTS, values));
    }
    let apart = changes.new_events.iter().filter(|(lane, kept)| !firsts.has(*lane, kept));
    let new: Vec<&(u64, Arc<Kept>)> = apart.collect();
    if let Some(alike) = alike::new_events(&new) {
        requests.extend(alike);
    } else {
        let values: Vec<Value> = vec![
            Box::new(new.iter().map(|(lane, _)| number(*lane)).collect::<Vec<_>>()),
            Box::new(new.iter().map(|(_, k)| number(k.event.seq)).collect::<Vec<_>>()),
            Box::new(new.iter().map(|(_, k)| k.event.received_at.as_millis()).collect::<Vec<_>>()),
            Box::new(new.iter().map(|(_, k)| maybe_number(k.mark)).collect::<Vec<_>>()),
            Box::new(new.iter().map(|(_, k)| maybe_number(k.event.was_seq)).collect::<Vec<_>>()),
            Box::new(new.iter().map(|(_, k)| i16::from(k.priority)).collect::<Vec<_>>()),
            Box::new(new.iter().map(|(_, k)| k.event.id.as_str().to_owned()).collect::<Vec<_>>()),
            Box::new(new.iter().map(|(_, k)| k.print.0.to_vec()).collect::<Vec<_>>()),
            Box::new(new.iter().map(|(_, k)| headers_json(&k.event.headers)).collect::<Vec<_>>()),
            Box::new(new.iter().map(|(_, k)| k.event.payload.as_str().to_owned()).collect::<Vec<_>>()),
            Box::new(new.iter().map(|(_, k)| k.source.map(|id| number(id.0))).collect::<Vec<_>>()),
        ];
        requests.push((&NEW_EVENTS, values));
    }
}

fn write_runs(changes: &Changes, ids: &QueueIds, requests: &mut Vec<Request>) -> Result<(), Stop> {
    for (sql, runs) in [(&NEW_RUNS, &changes.new_runs), (&RUNS, &changes.changed_runs)] {
        if runs.is_empty() {
            continue;
        }
        let of = |f: fn(&FinishedRun) -> i64| -> Value { Box::new(runs.iter().map(f).collect::<Vec<_>>()) };
        let queues = ids.of_all(runs.iter().map(|run| (&run.key.tenant, &run.key.queue)))?;
        if std::ptr::eq(sql, &NEW_RUNS)
            && let Some(alike) = alike::new_runs(&queues, runs)
        {
            requests.extend(alike);
            continue;
        }
        let values: Vec<Value> = vec![
            of(|run| number(run.lane)),
            of(|run| number(run.ended.run.number)),
            Box::new(queues),
            Box::new(runs.iter().map(|run| state_code(run.ended.state)).collect::<Vec<_>>()),
            Box::new(runs.iter().map(|run| run.ended.run.marked).collect::<Vec<_>>()),
            of(|run| run.ended.at.as_millis()),
            of(|run| number(run.ended.run.count)),
            of(|run| number(run.ended.run.lo)),
            of(|run| number(run.ended.run.hi)),
            Box::new(runs.iter().map(codec::write_run).collect::<Vec<_>>()),
        ];
        requests.push((sql, values));
    }
    Ok(())
}

fn write_steps(changes: &Changes, requests: &mut Vec<Request>) {
    let gone = &changes.gone_steps;
    if !gone.is_empty() {
        let (lanes, runs): (Vec<i64>, Vec<i64>) =
            gone.iter().map(|run: &RunId| (number(run.lane), number(run.number))).unzip();
        requests.push((&GONE_STEPS, vec![Box::new(lanes), Box::new(runs)]));
    }
    let steps = &changes.steps;
    if !steps.is_empty() {
        let revision = |revision: u32| i32::try_from(revision).unwrap_or(i32::MAX);
        let values: Vec<Value> = vec![
            Box::new(steps.iter().map(|(run, _)| number(run.lane)).collect::<Vec<_>>()),
            Box::new(steps.iter().map(|(run, _)| number(run.number)).collect::<Vec<_>>()),
            Box::new(steps.iter().map(|(_, row)| revision(row.revision)).collect::<Vec<_>>()),
            Box::new(steps.iter().map(|(_, row)| row.name.clone()).collect::<Vec<_>>()),
            Box::new(steps.iter().map(|(_, row)| row.at.as_millis()).collect::<Vec<_>>()),
            Box::new(steps.iter().map(|(_, row)| number(row.token)).collect::<Vec<_>>()),
            Box::new(
                steps.iter().map(|(_, row)| row.value.as_ref().map(ToString::to_string)).collect::<Vec<_>>(),
            ),
        ];
        requests.push((&STEPS, values));
    }
}

/// The columns of [`NEW_ASIDE`].
pub(crate) fn aside_values(aside: &[(i32, &Aside)]) -> Vec<Value> {
    vec![
        Box::new(aside.iter().map(|(_, a)| number(a.number)).collect::<Vec<_>>()),
        Box::new(aside.iter().map(|(queue, _)| *queue).collect::<Vec<_>>()),
        Box::new(aside.iter().map(|(_, a)| a.event.lane.key.as_str().to_owned()).collect::<Vec<_>>()),
        Box::new(aside.iter().map(|(_, a)| a.event.id.id().as_str().to_owned()).collect::<Vec<_>>()),
        Box::new(aside.iter().map(|(_, a)| a.ready_at.as_millis()).collect::<Vec<_>>()),
        Box::new(aside.iter().map(|(_, a)| a.look_at.as_millis()).collect::<Vec<_>>()),
        Box::new(aside.iter().map(|(_, a)| codec::write_aside(a)).collect::<Vec<_>>()),
    ]
}

fn write_aside(changes: &Changes, ids: &QueueIds, requests: &mut Vec<Request>) -> Result<(), Stop> {
    if !changes.gone_aside.is_empty() {
        let numbers: Vec<i64> = changes.gone_aside.iter().map(|a| number(a.number)).collect();
        requests.push((&GONE_ASIDE, vec![Box::new(numbers)]));
    }
    let moved = &changes.moved_aside;
    if !moved.is_empty() {
        let (numbers, times): (Vec<i64>, Vec<i64>) =
            moved.iter().map(|(n, _, at)| (number(*n), at.as_millis())).unzip();
        requests.push((&MOVED_ASIDE, vec![Box::new(numbers), Box::new(times)]));
    }
    if !changes.new_aside.is_empty() {
        let mut new = Vec::with_capacity(changes.new_aside.len());
        for aside in &changes.new_aside {
            new.push((ids.of_lane(&aside.event.lane)?, aside));
        }
        requests.push((&NEW_ASIDE, aside_values(&new)));
    }
    Ok(())
}

fn write_schedules(changes: &Changes, ids: &QueueIds, requests: &mut Vec<Request>) -> Result<(), Stop> {
    let gone = &changes.gone_schedules;
    if !gone.is_empty() {
        let (tenants, names): (Vec<String>, Vec<String>) =
            gone.iter().map(|(tenant, name)| (tenant.as_str().to_owned(), name.as_str().to_owned())).unzip();
        requests.push((&GONE_SCHEDULES, vec![Box::new(tenants), Box::new(names)]));
    }
    let rows = &changes.schedules;
    if !rows.is_empty() {
        let queues = rows.iter().map(|row| ids.of(&row.schedule.tenant, &row.schedule.queue));
        let queues = queues.collect::<Result<Vec<i32>, Trouble>>()?;
        let values: Vec<Value> = vec![
            Box::new(rows.iter().map(|row| row.schedule.tenant.as_str().to_owned()).collect::<Vec<_>>()),
            Box::new(rows.iter().map(|row| row.schedule.name.as_str().to_owned()).collect::<Vec<_>>()),
            Box::new(queues),
            Box::new(rows.iter().map(|row| row.schedule.key.as_str().to_owned()).collect::<Vec<_>>()),
            Box::new(rows.iter().map(|row| maybe_millis(row.next_at)).collect::<Vec<_>>()),
            Box::new(rows.iter().map(codec::write_schedule).collect::<Vec<_>>()),
        ];
        requests.push((&SCHEDULES, values));
    }
    Ok(())
}

fn write_pauses(changes: &Changes, requests: &mut Vec<Request>) {
    let text = |tenant: &Option<Tenant>| tenant.as_ref().map_or(String::new(), |t| t.as_str().to_owned());
    let gone = &changes.gone_pauses;
    if !gone.is_empty() {
        let values: Vec<Value> = vec![
            Box::new(gone.iter().map(|(queue, _)| queue.as_str().to_owned()).collect::<Vec<_>>()),
            Box::new(gone.iter().map(|(_, tenant)| tenant.is_none()).collect::<Vec<_>>()),
            Box::new(gone.iter().map(|(_, tenant)| text(tenant)).collect::<Vec<_>>()),
        ];
        requests.push((&GONE_PAUSES, values));
    }
    let pauses = &changes.pauses;
    if !pauses.is_empty() {
        let values: Vec<Value> = vec![
            Box::new(pauses.iter().map(|(queue, ..)| queue.as_str().to_owned()).collect::<Vec<_>>()),
            Box::new(pauses.iter().map(|(_, tenant, _)| tenant.is_none()).collect::<Vec<_>>()),
            Box::new(pauses.iter().map(|(_, tenant, _)| text(tenant)).collect::<Vec<_>>()),
            Box::new(pauses.iter().map(|(.., paused)| codec::write_paused(paused)).collect::<Vec<_>>()),
        ];
        requests.push((&PAUSES, values));
    }
}

fn write_audit(changes: &Changes, ids: &QueueIds, requests: &mut Vec<Request>) -> Result<(), Stop> {
    let audit = &changes.audit;
    if audit.is_empty() {
        return Ok(());
    }
    let records = || audit.iter().map(|trail| &trail.record);
    let queues = ids.of_all(records().map(|r| (&r.tenant, &r.queue)))?;
    if let Some(alike) = alike::audit(&queues, audit) {
        requests.extend(alike);
        return Ok(());
    }
    let text = |text: &Option<String>| text.as_deref().map(|text| clean(text).into_owned());
    let values: Vec<Value> = vec![
        Box::new(records().map(|r| number(r.id)).collect::<Vec<_>>()),
        Box::new(records().map(|r| r.at.as_millis()).collect::<Vec<_>>()),
        Box::new(queues),
        Box::new(audit.iter().map(|trail| maybe_number(trail.lane)).collect::<Vec<_>>()),
        Box::new(records().map(|r| r.run.map(|run| number(run.number))).collect::<Vec<_>>()),
        Box::new(records().map(|r| change_code(r.change)).collect::<Vec<_>>()),
        Box::new(records().map(|r| r.from.map(state_code)).collect::<Vec<_>>()),
        Box::new(records().map(|r| r.to.map(state_code)).collect::<Vec<_>>()),
        Box::new(records().map(|r| r.verdict.map(verdict_code)).collect::<Vec<_>>()),
        Box::new(records().map(|r| i32::try_from(r.attempt).unwrap_or(i32::MAX)).collect::<Vec<_>>()),
        Box::new(records().map(|r| number(r.token)).collect::<Vec<_>>()),
        Box::new(records().map(|r| number(r.upto_seq)).collect::<Vec<_>>()),
        Box::new(records().map(|r| maybe_millis(r.next_at)).collect::<Vec<_>>()),
        Box::new(records().map(|r| r.other_run.map(|run| number(run.number))).collect::<Vec<_>>()),
        Box::new(records().map(|r| text(&r.worker)).collect::<Vec<_>>()),
        Box::new(records().map(|r| text(&r.prior_worker)).collect::<Vec<_>>()),
        Box::new(records().map(|r| text(&r.actor)).collect::<Vec<_>>()),
    ];
    requests.push((&AUDIT, values));
    Ok(())
}

fn write_totals(changes: &Changes, ids: &QueueIds, requests: &mut Vec<Request>) -> Result<(), Stop> {
    let mut queues = Vec::new();
    let mut columns: [Vec<i64>; 7] = Default::default();
    for ((tenant, queue), delta) in changes.totals.iter().filter(|(_, delta)| !delta.is_zero()) {
        queues.push(ids.of(tenant, queue)?);
        for (column, value) in columns.iter_mut().zip(delta.values()) {
            column.push(value);
        }
    }
    if !queues.is_empty() {
        let mut values: Vec<Value> = vec![Box::new(queues)];
        values.extend(columns.into_iter().map(|column| Box::new(column) as Value));
        requests.push((&DELTAS, values));
    }
    Ok(())
}

fn write_sources(changes: &Changes, requests: &mut Vec<Request>) {
    if !changes.new_sources.is_empty() {
        let mut new: Vec<&Source> = changes.new_sources.iter().collect();
        new.sort_by(|a, b| (&a.name, &a.tenant).cmp(&(&b.name, &b.tenant)));
        let values: Vec<Value> = vec![
            Box::new(new.iter().map(|s| number(s.id.0)).collect::<Vec<_>>()),
            Box::new(new.iter().map(|s| s.tenant.as_str().to_owned()).collect::<Vec<_>>()),
            Box::new(new.iter().map(|s| s.name.as_str().to_owned()).collect::<Vec<_>>()),
            Box::new(new.into_iter().map(codec::write_source).collect::<Vec<_>>()),
        ];
        requests.push((&NEW_SOURCES, values));
    }
    if !changes.sources.is_empty() {
        let ids: Vec<i64> = changes.sources.iter().map(|source| number(source.id.0)).collect();
        let bodies: Vec<Vec<u8>> = changes.sources.iter().map(codec::write_source).collect();
        requests.push((&SOURCES, vec![Box::new(ids), Box::new(bodies)]));
    }
    if !changes.gone_declarations.is_empty() {
        let gone: Vec<String> = changes.gone_declarations.iter().map(|n| n.as_str().to_owned()).collect();
        requests.push((&GONE_DECLARATIONS, vec![Box::new(gone)]));
    }
    if !changes.declarations.is_empty() {
        let names: Vec<String> = changes.declarations.iter().map(|d| d.name.as_str().to_owned()).collect();
        let bodies: Vec<Vec<u8>> = changes.declarations.iter().map(codec::write_declaration).collect();
        requests.push((&PUT_DECLARATIONS, vec![Box::new(names), Box::new(bodies)]));
    }
}

fn write_answers(changes: &Changes, requests: &mut Vec<Request>) {
    if !changes.emptied.is_empty() {
        let ids: Vec<i64> = changes.emptied.iter().map(|source| number(source.0)).collect();
        requests.push((&NO_ANSWERS, vec![Box::new(ids)]));
    }
    if !changes.gone_answers.is_empty() {
        let (ids, keys): (Vec<i64>, Vec<String>) =
            changes.gone_answers.iter().map(|(source, key)| (number(source.0), key.clone())).unzip();
        requests.push((&GONE_ANSWERS, vec![Box::new(ids), Box::new(keys)]));
    }
    let rows = &changes.answers;
    if !rows.is_empty() {
        let values: Vec<Value> = vec![
            Box::new(rows.iter().map(|row| number(row.source.0)).collect::<Vec<_>>()),
            Box::new(rows.iter().map(|row| row.key.clone()).collect::<Vec<_>>()),
            Box::new(rows.iter().map(|row| row.expires_at.as_millis()).collect::<Vec<_>>()),
            Box::new(rows.iter().map(|row| row.over_at().as_millis()).collect::<Vec<_>>()),
            Box::new(rows.iter().map(|row| row.value.is_some()).collect::<Vec<_>>()),
            Box::new(rows.iter().map(codec::write_answer).collect::<Vec<_>>()),
        ];
        requests.push((&ANSWERS, values));
    }
}

fn write_pairs(pairs: &BTreeSet<(i32, SourceId)>, requests: &mut Vec<Request>) {
    if !pairs.is_empty() {
        let (queues, sources): (Vec<i32>, Vec<i64>) =
            pairs.iter().map(|(queue, source)| (*queue, number(source.0))).unzip();
        requests.push((&PAIRS, vec![Box::new(queues), Box::new(sources)]));
    }
}

/// A claim looks for lanes by the priorities of their queue: one that is new there is written down first. Last of all,
/// because all appends of that queue would wait for it.
fn raise_priorities(changes: &Changes, queues: &mut BTreeMap<Names, Known>, requests: &mut Vec<Request>) {
    let mut raised: BTreeMap<i32, i32> = BTreeMap::new();
    let mut last: Option<(&LaneKey, u8)> = None;
    for write in changes.lanes.iter().filter(|w| w.entries.due.is_some()) {
        let same = |(key, priority): (&LaneKey, u8)| {
            priority == write.entries.priority
                && key.tenant == write.key.tenant
                && key.queue == write.key.queue
        };
        if last.replace((&write.key, write.entries.priority)).is_some_and(same) {
            continue;
        }
        let known = queues.get_mut(&(write.key.tenant.clone(), write.key.queue.clone()));
        let bit = 1 << write.entries.priority.min(quell_core::limits::PRIORITY_MAX);
        if let Some(known) = known.filter(|known| known.priorities & bit == 0) {
            known.priorities |= bit;
            *raised.entry(known.id).or_default() |= bit;
        }
    }
    if !raised.is_empty() {
        let (ids, bits): (Vec<i32>, Vec<i32>) = raised.into_iter().unzip();
        requests.push((&PRIORITIES, vec![Box::new(ids), Box::new(bits)]));
    }
}
