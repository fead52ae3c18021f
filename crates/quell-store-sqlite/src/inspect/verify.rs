//! The no-loss equation against the rows themselves: a counter that leaked is found here and not believed.

use quell_core::inspect::Verified;

use super::View;

impl View<'_> {
    pub(super) fn verify(&self) -> rusqlite::Result<Verified> {
        let mut problems = Vec::new();
        for queue in &self.queues {
            let name = format!("{}/{}", queue.tenant, queue.name);
            if !queue.totals.hold() {
                problems.push(format!("queue {name}: the counters do not add up: {:?}", queue.totals));
            }
            let sql = "SELECT coalesce(sum(o_count), 0), coalesce(sum(r_count), 0),
                              count(*) FILTER (WHERE r_state = 1) FROM lane WHERE queue_id = ?1";
            let (buffered, in_flight, running): (u64, u64, u64) = self
                .connection
                .prepare_cached(sql)?
                .query_row([queue.id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            let counted = [
                ("buffered", queue.totals.buffered, buffered),
                ("in flight", queue.totals.in_flight, in_flight),
                ("running", queue.running, running),
                ("dead", queue.totals.dead, self.dead(queue.id)?),
            ];
            for (what, said, rows) in counted {
                if said != rows {
                    problems
                        .push(format!("queue {name}: the counter says {said} {what}, the rows say {rows}"));
                }
            }
            let earliest = crate::claim::earliest(self.connection, queue.id)?;
            if let Some(earliest) = earliest
                && queue.next_at.is_none_or(|next| next > earliest)
            {
                problems
                    .push(format!("queue {name}: a lane is due at {earliest}, before the queue's own time"));
            }
        }
        for (sql, what) in CHECKS {
            let mut statement = self.connection.prepare_cached(sql)?;
            for lane in statement.query_map([], |row| row.get::<_, u64>(0))? {
                problems.push(format!("lane {}: {what}", lane?));
            }
        }
        let quick: String = self.connection.query_row("PRAGMA quick_check(5)", [], |row| row.get(0))?;
        if quick != "ok" {
            problems.push(format!("the file is damaged: {quick}"));
        }
        let events = self.connection.query_row("SELECT count(*) FROM event", [], |row| row.get(0))?;
        Ok(Verified { queues: self.queues.len() as u64, events, problems })
    }

    fn dead(&self, queue: u64) -> rusqlite::Result<u64> {
        let sql = "SELECT coalesce(sum(run.count), 0) FROM run JOIN lane ON lane.id = run.lane_id
                   WHERE run.state = 4 AND lane.queue_id = ?1";
        self.connection.prepare_cached(sql)?.query_row([queue], |row| row.get(0))
    }
}

/// Lanes that contradict their own events or index entries.
const CHECKS: [(&str, &str); 5] = [
    (
        "SELECT DISTINCT lane_id FROM event WHERE lane_id NOT IN (SELECT id FROM lane)",
        "it has events and no row",
    ),
    (
        "SELECT id FROM lane WHERE o_number IS NOT NULL AND o_count <>
           (SELECT count(*) FROM event WHERE lane_id = lane.id AND seq >= o_lo)",
        "its open run counts other events than there are",
    ),
    (
        "SELECT id FROM lane WHERE r_number IS NOT NULL AND r_count <>
           (SELECT count(*) FROM event WHERE lane_id = lane.id AND seq BETWEEN r_lo AND r_hi)",
        "its current run counts other events than there are",
    ),
    (
        "SELECT id FROM lane WHERE (r_state = 1) IS NOT (lease_at IS NOT NULL) AND (r_state = 1 OR lease_at IS NOT NULL)",
        "it runs without a lease entry, or has one without running",
    ),
    (
        "SELECT id FROM lane WHERE due_at IS NULL AND lease_at IS NULL AND paused_at IS NULL
           AND (o_number IS NOT NULL OR r_number IS NOT NULL)",
        "it has events and nothing will ever wake it",
    ),
];
