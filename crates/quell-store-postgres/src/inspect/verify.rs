//! The no-loss equation against the rows themselves: a counter that leaked is found here and not believed.
//!
//! It reads every lane with something to do, every finished run and every event row, so it is for `doctor` and for
//! tests. Each sentence names the queue, lane or run and both numbers, so that whoever reads it knows where to look.

use std::collections::BTreeMap;

use quell_core::batch::RunId;
use quell_core::error::StoreResult;
use quell_core::inspect::Verified;
use quell_core::source::SourceId;
use quell_core::totals::Totals;
use quell_store_rows::rows::LaneAt;
use tokio_postgres::types::Type;

use super::{QueueRow, View};
use crate::connection::Sql;
use crate::rows::{count, get, lane_columns, maybe_number, number};

/// Lanes a part at a time, each with what its events say.
static LANES: Sql = Sql {
    text: concat!(
        "SELECT ",
        lane_columns!(),
        ", (SELECT count(*) FROM quell.event e WHERE e.lane_id = l.id),
           (SELECT coalesce(sum(r.count), 0)::bigint FROM quell.run r WHERE r.lane_id = l.id)
         FROM quell.lane l WHERE l.id > $1 ORDER BY l.id LIMIT $2"
    ),
    types: &[Type::INT8, Type::INT8],
};
/// How many events lie in each of these ranges, and whether one of the first few names another source.
static RANGES: Sql = Sql {
    text: "SELECT (SELECT count(*) FROM quell.event e WHERE e.lane_id = w.lane AND e.seq BETWEEN w.lo AND w.hi
                     AND e.mark IS NOT DISTINCT FROM w.mark),
             EXISTS (SELECT 1 FROM (
               SELECT e.source FROM quell.event e WHERE e.lane_id = w.lane AND e.seq BETWEEN w.lo AND w.hi
                 AND e.mark IS NOT DISTINCT FROM w.mark ORDER BY e.seq LIMIT w.alike) f
               WHERE f.source IS DISTINCT FROM w.source)
           FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) WITH ORDINALITY
             AS w(lane, lo, hi, mark, alike, source, place) ORDER BY w.place",
    types: &[
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
    ],
};
static DEAD: Sql = Sql {
    text: "SELECT l.queue_id, coalesce(sum(r.count), 0)::bigint FROM quell.run r JOIN quell.lane l ON l.id = r.lane_id
           WHERE r.state = 4 GROUP BY l.queue_id",
    types: &[],
};
static DELAYED: Sql =
    Sql { text: "SELECT queue_id, count(*) FROM quell.aside GROUP BY queue_id", types: &[] };
static ENDED: Sql = Sql {
    text: "SELECT * FROM (
             SELECT r.lane_id, r.number, r.count,
               (SELECT count(*) FROM quell.event e WHERE e.lane_id = r.lane_id AND e.seq BETWEEN r.lo AND r.hi
                  AND e.mark IS NOT DISTINCT FROM CASE WHEN r.marked THEN r.number END) AS events
             FROM quell.run r WHERE r.count > 0) AS runs WHERE count <> events",
    types: &[],
};
static EVENTS: Sql = Sql { text: "SELECT count(*) FROM quell.event", types: &[] };

/// Rows that refer to a lane that is not there.
static CHECKS: [(&str, Sql); 9] = [
    (
        "it has events and no row",
        Sql {
            text: "SELECT DISTINCT lane_id FROM quell.event e
                   WHERE NOT EXISTS (SELECT 1 FROM quell.lane l WHERE l.id = e.lane_id)",
            types: &[],
        },
    ),
    (
        "it has finished runs and no row",
        Sql {
            text: "SELECT DISTINCT lane_id FROM quell.run r
                   WHERE NOT EXISTS (SELECT 1 FROM quell.lane l WHERE l.id = r.lane_id)",
            types: &[],
        },
    ),
    (
        "it has a due time and no entry: no claim finds it",
        Sql {
            text: "SELECT l.id FROM quell.lane l WHERE l.due_at IS NOT NULL AND NOT EXISTS (
                     SELECT 1 FROM quell.due d WHERE d.queue_id = l.queue_id AND d.source = l.source
                       AND d.priority = l.priority AND d.due_at = l.due_at AND d.lane_id = l.id)",
            types: &[],
        },
    ),
    (
        "it has an entry and no such due time",
        Sql {
            text: "SELECT d.lane_id FROM quell.due d WHERE NOT EXISTS (
                     SELECT 1 FROM quell.lane l WHERE l.id = d.lane_id AND l.queue_id = d.queue_id
                       AND l.source = d.source AND l.priority = d.priority AND l.due_at = d.due_at)",
            types: &[],
        },
    ),
    (
        "no claim looks for lanes of its source",
        Sql {
            text: "SELECT d.lane_id FROM quell.due d WHERE d.source > 0 AND NOT EXISTS (
                     SELECT 1 FROM quell.queue_source g WHERE g.queue_id = d.queue_id AND g.source = d.source)",
            types: &[],
        },
    ),
    (
        "an event names a source that is not there",
        Sql {
            text: "SELECT DISTINCT lane_id FROM quell.event e WHERE e.source IS NOT NULL
                   AND NOT EXISTS (SELECT 1 FROM quell.source s WHERE s.id = e.source)",
            types: &[],
        },
    ),
    (
        "it has a lease and no entry: nobody would take it back",
        Sql {
            text: "SELECT l.id FROM quell.lane l WHERE l.lease_at IS NOT NULL AND NOT EXISTS (
                     SELECT 1 FROM quell.lease s WHERE s.queue_id = l.queue_id AND s.lease_at = l.lease_at
                       AND s.lane_id = l.id AND s.claim_id IS NOT DISTINCT FROM l.claim_id)
                   AND NOT EXISTS (
                     SELECT 1 FROM quell.lease_group g WHERE g.queue_id = l.queue_id AND g.lease_at = l.lease_at
                       AND l.id = ANY(g.lanes) AND g.claim_id IS NOT DISTINCT FROM l.claim_id)",
            types: &[],
        },
    ),
    (
        "it has an entry and no such lease",
        Sql {
            text: "SELECT s.lane_id FROM quell.lease s WHERE NOT EXISTS (
                     SELECT 1 FROM quell.lane l WHERE l.id = s.lane_id AND l.queue_id = s.queue_id
                       AND l.lease_at = s.lease_at)",
            types: &[],
        },
    ),
    (
        "it has steps and no row",
        Sql {
            text: "SELECT DISTINCT lane_id FROM quell.step s
                   WHERE NOT EXISTS (SELECT 1 FROM quell.lane l WHERE l.id = s.lane_id)",
            types: &[],
        },
    ),
];

/// Lanes that are read at once.
const PART: usize = 1_000;

/// What the lanes of one queue say.
#[derive(Default)]
struct Counted {
    buffered: u64,
    in_flight: u64,
}

/// A number that a lane or run says, and the events that it counts.
struct Claim {
    text: String,
    said: u64,
    lane: u64,
    lo: u64,
    hi: u64,
    mark: Option<u64>,
    source: Option<SourceId>,
    /// How many of the first must name that source.
    alike: u64,
}

impl View<'_> {
    pub(super) async fn verify(&self) -> StoreResult<Verified> {
        let mut problems = Vec::new();
        let counted = self.verify_lanes(&mut problems).await?;
        let totals = self.totals().await?;
        let (dead, delayed) = (self.by_queue(&DEAD).await?, self.by_queue(&DELAYED).await?);
        for queue in &self.queues {
            let none = Counted::default();
            let of_queue = counted.get(&queue.id).unwrap_or(&none);
            let totals = totals.get(&queue.id).copied().unwrap_or_default();
            let of = |counts: &BTreeMap<i32, u64>| counts.get(&queue.id).copied().unwrap_or(0);
            let rows = [
                ("buffered", totals.buffered, of_queue.buffered),
                ("in flight", totals.in_flight, of_queue.in_flight),
                ("dead", totals.dead, of(&dead)),
                ("delayed", totals.delayed, of(&delayed)),
            ];
            verify_queue(queue, &totals, &rows, &mut problems);
        }
        for (what, sql) in &CHECKS {
            for row in &self.query(sql, &[]).await? {
                problems.push(format!("lane {}: {what}", count(row, 0)?));
            }
        }
        for row in &self.query(&ENDED, &[]).await? {
            let id = RunId { lane: count(row, 0)?, number: count(row, 1)? };
            let (said, rows) = (count(row, 2)?, count(row, 3)?);
            problems.push(format!("{id}: it ended with {said} events, the rows say {rows}"));
        }
        let events = self.query(&EVENTS, &[]).await?.first().map_or(Ok(0), |row| count(row, 0))?;
        Ok(Verified { queues: self.queues.len() as u64, events, problems })
    }

    async fn by_queue(&self, sql: &Sql) -> StoreResult<BTreeMap<i32, u64>> {
        let rows = self.query(sql, &[]).await?;
        rows.iter().map(|row| Ok((get(row, 0)?, count(row, 1)?))).collect()
    }

    /// Every lane against its events and its index entries.
    async fn verify_lanes(&self, problems: &mut Vec<String>) -> StoreResult<BTreeMap<i32, Counted>> {
        let mut counted: BTreeMap<i32, Counted> = BTreeMap::new();
        let mut from = 0;
        loop {
            let rows = self.query(&LANES, &[&number(from), &number(PART as u64)]).await?;
            let mut claims = Vec::new();
            for row in &rows {
                let at = self.lane_at(row)?;
                let lane = &at.lane;
                from = lane.id;
                let of_queue = counted.entry(get(row, 0)?).or_default();
                let (events, ended) = (count(row, 7)?, count(row, 8)?);
                if events != ended + lane.events() {
                    let held = ended + lane.events();
                    problems.push(format!("lane {}: it has {events} events, its runs say {held}", lane.id));
                }
                if let Some(open) = &lane.open {
                    of_queue.buffered += open.count;
                    let text = format!("lane {}: its open run", lane.id);
                    let (said, hi) = (open.count, u64::MAX);
                    let (lo, source) = (open.lo, open.source);
                    // Behind those of its source others may wait, for the run after it.
                    claims.push(Claim { text, said, lane: lane.id, lo, hi, mark: None, source, alike: 1 });
                }
                for run in lane.fixed_runs() {
                    // Redriven events are buffered until they are claimed, as the totals count them.
                    match run.is_buffered() {
                        true => of_queue.buffered += run.count,
                        false => of_queue.in_flight += run.count,
                    }
                    let text = format!("{}: it", lane.run_id(run.number));
                    let mark = run.marked.then_some(run.number);
                    let (said, lo, hi, source) = (run.count, run.lo, run.hi, run.source);
                    claims.push(Claim { text, said, lane: lane.id, lo, hi, mark, source, alike: said });
                }
                self.verify_entries(&at, problems);
            }
            self.verify_claims(&claims, problems).await?;
            if rows.len() < PART {
                return Ok(counted);
            }
        }
    }

    async fn verify_claims(&self, claims: &[Claim], problems: &mut Vec<String>) -> StoreResult<()> {
        let of = |f: fn(&Claim) -> Option<i64>| -> Vec<Option<i64>> { claims.iter().map(f).collect() };
        let lanes = of(|c| Some(number(c.lane)));
        let (lo, hi) = (of(|c| Some(number(c.lo))), of(|c| Some(number(c.hi))));
        let marks = of(|c| maybe_number(c.mark));
        let (alike, sources) = (of(|c| Some(number(c.alike))), of(|c| c.source.map(|id| number(id.0))));
        let rows = self.query(&RANGES, &[&lanes, &lo, &hi, &marks, &alike, &sources]).await?;
        for (claim, row) in claims.iter().zip(&rows) {
            let rows = count(row, 0)?;
            if rows != claim.said {
                let (text, said) = (&claim.text, claim.said);
                problems.push(format!("{text} says {said} events, the rows say {rows}"));
            }
            if get(row, 1)? {
                let (text, source) =
                    (&claim.text, claim.source.map_or_else(|| "none".to_owned(), |id| id.to_string()));
                problems.push(format!("{text} asks source {source}, its events do not"));
            }
        }
        Ok(())
    }

    /// Index entries may lie before the true times, never behind them: a lane would be taken up too late, or never.
    fn verify_entries(&self, at: &LaneAt, problems: &mut Vec<String>) {
        let (lane, id) = (&at.lane, at.lane.id);
        match (lane.due_at(), at.entries.due) {
            (Some(due), None) => {
                problems.push(format!("lane {id}: it is due at {due} and nothing will ever wake it"));
            }
            // What is overdue when it is written gets the time of the writing.
            (Some(due), Some(entry)) if entry > due.max(self.now) => {
                problems.push(format!("lane {id}: it is due at {due} and entered at {entry}, later"));
            }
            _ => {}
        }
        match (lane.lease_at(), at.entries.lease) {
            (Some(until), entry) if entry.is_none_or(|entry| entry > until) => problems.push(format!(
                "lane {id}: its lease ends at {until} and nobody will look by then, in case its holder died"
            )),
            (None, Some(_)) => problems.push(format!("lane {id}: it has a lease entry without running")),
            _ => {}
        }
        if at.entries.due.is_some() && at.entries.source != lane.source() {
            problems.push(format!("lane {id}: it waits for another source than it is entered for"));
        }
        let priorities = self.find_queue(&at.key).map_or(0, |queue| queue.priorities);
        let priority = at.entries.priority;
        if at.entries.due.is_some() && priorities >> priority & 1 == 0 {
            problems.push(format!("lane {id}: no claim looks for lanes of its priority {priority}"));
        }
    }
}

/// The counters of one queue against the rows that they count.
fn verify_queue(queue: &QueueRow, totals: &Totals, rows: &[(&str, u64, u64)], problems: &mut Vec<String>) {
    let name = format!("{}/{}", queue.tenant, queue.name);
    if !totals.hold() {
        problems.push(format!("queue {name}: the counters do not add up: {totals:?}"));
    }
    for (what, said, rows) in rows.iter().filter(|(_, said, rows)| said != rows) {
        problems.push(format!("queue {name}: the counter says {said} {what}, the rows say {rows}"));
    }
}
