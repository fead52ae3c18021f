//! Outlook: what every queue has waiting, by the first entries of its indexes: nothing is counted but leases, and those not
//! for ever. Of lanes that wait for a source the first of each source is asked for, with the source itself: so it is known
//! at once which of them can be handed out, and those that cannot are passed over together.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use quell_core::clock::Timestamp;
use quell_core::error::StoreResult;
use quell_core::limits;
use quell_core::source::{Source, SourceId};
use quell_store_rows::codec;
use quell_store_rows::rows::{Outlook, QueueOutlook};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row};

use crate::Shared;
use crate::connection::{Connection, Sql};
use crate::error::{not_done, unreadable};
use crate::floors::Start;
use crate::options::StatementMode;
use crate::rows::{count, get, maybe_time, queue_name, tenant};
use crate::tx::store_time;

/// Leases are counted for those who are bounded by their number, and up to here: whoever is bounded by more than that is
/// counted exactly when it claims. Looks begin at the floors (`floors.rs`).
static OUTLOOK: Sql = Sql {
    text: "WITH moment AS MATERIALIZED (
             SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS clock, test_offset, sealed,
               $5::text::jsonb AS floors FROM quell.meta)
           SELECT m.clock, m.test_offset, q.id, q.tenant, q.name, q.priorities,
             EXISTS (SELECT 1 FROM quell.queue_pause p WHERE p.queue = q.name AND (p.every OR p.tenant = q.tenant)),
             CASE WHEN $4 THEN (SELECT count(*) FROM (
                                  SELECT 1 FROM quell.lease WHERE queue_id = q.id
                                  UNION ALL
                                  SELECT 1 FROM quell.lease_group g CROSS JOIN LATERAL unnest(g.lanes) AS u(lane)
                                  JOIN quell.lane l ON l.id = u.lane AND l.lease_at = g.lease_at
                                  WHERE g.queue_id = q.id LIMIT 1000) r)
                  ELSE 0 END,
             ARRAY(SELECT (SELECT due_at FROM quell.due
                           WHERE queue_id = q.id AND source = 0 AND priority = p
                             AND due_at >= coalesce(f.due, -9223372036854775808)
                           ORDER BY due_at LIMIT 1)
                   FROM generate_series(0, 9) p WHERE q.priorities >> p & 1 = 1 ORDER BY p),
             least((SELECT lease_at FROM quell.lease
                    WHERE queue_id = q.id AND lease_at <= m.clock + m.test_offset
                      AND lease_at >= coalesce(f.lease, -9223372036854775808)
                    ORDER BY lease_at LIMIT 1),
                   (SELECT lease_at FROM quell.lease_group
                    WHERE queue_id = q.id AND lease_at <= m.clock + m.test_offset
                      AND lease_at >= coalesce(f.lease, -9223372036854775808)
                    ORDER BY lease_at LIMIT 1)),
             least((SELECT lease_at FROM quell.lease
                    WHERE queue_id = q.id AND lease_at > greatest(m.clock + m.test_offset, f.lease - 1)
                    ORDER BY lease_at LIMIT 1),
                   (SELECT lease_at FROM quell.lease_group
                    WHERE queue_id = q.id AND lease_at > greatest(m.clock + m.test_offset, f.lease - 1)
                    ORDER BY lease_at LIMIT 1)),
             (SELECT look_at FROM quell.aside WHERE queue_id = q.id ORDER BY look_at, ready_at, number LIMIT 1),
             (SELECT next_at FROM quell.schedule WHERE queue_id = q.id AND next_at IS NOT NULL ORDER BY next_at LIMIT 1)
           , m.sealed, w.sources, w.priorities, w.firsts, w.bodies
           FROM moment m LEFT JOIN quell.queue q ON true
           LEFT JOIN unnest($1::int[], $2::bigint[], $3::bigint[]) AS f(queue_id, due, lease) ON f.queue_id = q.id
           LEFT JOIN LATERAL (
             SELECT array_agg(g.source) AS sources, array_agg(p) AS priorities, array_agg(d.due_at) AS firsts,
               array_agg((SELECT body FROM quell.source WHERE id = g.source)) AS bodies
             FROM quell.queue_source g CROSS JOIN generate_series(0, 9) p
             CROSS JOIN LATERAL (
               SELECT due_at FROM quell.due
               WHERE queue_id = q.id AND source = g.source AND priority = p
                 AND due_at >= coalesce((m.floors ->> (q.id || '.' || g.source))::bigint, -9223372036854775808)
               ORDER BY due_at LIMIT 1) d
             WHERE g.queue_id = q.id AND q.priorities >> p & 1 = 1) w ON true",
    types: &[Type::INT4_ARRAY, Type::INT8_ARRAY, Type::INT8_ARRAY, Type::BOOL, Type::TEXT],
};

pub(crate) async fn outlook(shared: &Shared, bounded: bool) -> StoreResult<Outlook> {
    let connection = shared.connections.get().await?;
    let start = shared.floors.start();
    let mode = shared.connections.mode();
    let rows = match ask(&connection, mode, &start, bounded).await {
        Ok(rows) => rows,
        // It had died in the pool: a read can be repeated.
        Err(error) if error.is_closed() => {
            connection.discard();
            let connection = shared.connections.get().await?;
            ask(&connection, mode, &start, bounded).await.map_err(|e| not_done(&e))?
        }
        Err(error) => return Err(not_done(&error)),
    };
    let now = rows.first().map_or(Ok(Timestamp::default()), store_time)?;
    let sealed: Option<String> = rows.first().map_or(Ok(None), |row| get(row, 13))?;
    if let Some(by) = sealed {
        return Err(quell_core::copy::sealed(&by));
    }
    let mut queues = Vec::with_capacity(rows.len());
    let mut sources = BTreeMap::new();
    for row in &rows {
        let id: Option<i32> = get(row, 2)?;
        if let Some(id) = id {
            let outlook = queue_outlook(shared, id, row, &mut sources)?;
            shared.floors.found(&start, id, now, &outlook);
            queues.push(outlook);
        }
    }
    Ok(Outlook { now, queues, sources })
}

/// Where the session keeps no settings, they are sent along, in the same round trip: compiling this statement would take
/// a hundred times as long as running it.
async fn ask(
    connection: &Connection,
    mode: StatementMode,
    start: &Start,
    bounded: bool,
) -> Result<Vec<Row>, Error> {
    let governed = start.governed();
    let values: [&(dyn ToSql + Sync); 5] = [&start.queues, &start.due, &start.lease, &bounded, &governed];
    if mode == StatementMode::Named {
        return connection.query(&OUTLOOK, &values).await;
    }
    let ready = connection.ready(&OUTLOOK).await?;
    let begin = connection.batch("BEGIN READ ONLY; SET LOCAL jit = off");
    let (begun, rows, ended) =
        futures_util::future::join3(begin, connection.send(&ready, &values), connection.batch("COMMIT"))
            .await;
    begun?;
    ended?;
    rows
}

fn queue_outlook(
    shared: &Shared,
    id: i32,
    row: &Row,
    sources: &mut BTreeMap<SourceId, Source>,
) -> StoreResult<QueueOutlook> {
    let (tenant, queue) = (tenant(get(row, 3)?)?, queue_name(get(row, 4)?)?);
    let priorities: i32 = get(row, 5)?;
    let known = crate::queues::Known { id, priorities };
    let names = (tenant, queue);
    if shared.queues.get(&names).is_none_or(|old| old.priorities != priorities) {
        shared.queues.put(names.clone(), known);
    }
    let firsts: Vec<Option<i64>> = get(row, 8)?;
    let levels = (0..=limits::PRIORITY_MAX).filter(|p| priorities >> p & 1 == 1).zip(firsts);
    let (tenant, queue) = names;
    let governed = governed(row, sources)?;
    shared.queues.put_pairs(governed.keys().map(|source| (id, *source)));
    Ok(QueueOutlook {
        tenant,
        queue,
        paused: get(row, 6)?,
        running: count(row, 7)?,
        levels: levels.filter_map(|(p, first)| Some((p, Timestamp::from_millis(first?)))).collect(),
        governed: governed.into_iter().collect(),
        first_lease: maybe_time(row, 9)?.or(maybe_time(row, 10)?),
        later_lease: maybe_time(row, 10)?,
        first_aside: maybe_time(row, 11)?,
        first_fire: maybe_time(row, 12)?,
    })
}

/// When the first lane of each source and priority is due. The sources themselves are taken in on the way.
fn governed(
    row: &Row,
    sources: &mut BTreeMap<SourceId, Source>,
) -> StoreResult<BTreeMap<SourceId, Vec<(u8, Timestamp)>>> {
    let mut governed: BTreeMap<SourceId, Vec<(u8, Timestamp)>> = BTreeMap::new();
    let Some(ids) = get::<Option<Vec<i64>>>(row, 14)? else { return Ok(governed) };
    let (priorities, firsts): (Vec<i32>, Vec<i64>) = (get(row, 15)?, get(row, 16)?);
    let bodies: Vec<Option<&[u8]>> = get(row, 17)?;
    for (((id, priority), first), body) in ids.into_iter().zip(priorities).zip(firsts).zip(bodies) {
        let id = SourceId(u64::try_from(id).map_err(unreadable)?);
        let level = (u8::try_from(priority).map_err(unreadable)?, Timestamp::from_millis(first));
        governed.entry(id).or_default().push(level);
        if let (Some(body), Entry::Vacant(place)) = (body, sources.entry(id)) {
            place.insert(codec::read_source(body)?);
        }
    }
    Ok(governed)
}
