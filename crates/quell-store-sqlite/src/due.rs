//! Which lanes of a queue are due, and when the queue wants attention next.
//!
//! Due lanes are found per queue, priority and source, and what a source lets go is decided before any lane of it is
//! looked at: the lanes of a source that lets nobody go are skipped as a whole, however many there are. The moment at
//! which it lets somebody go again is a time at which the queue wants attention; a source that is held has none, and
//! whoever changes that sets the queue's time anew ([`Tx::change_source`]). Queues whose lanes never asked a source pay
//! nothing for all this.

use std::collections::HashMap;

use quell_core::clock::Timestamp;
use quell_core::lane::rank;
use quell_core::limits;
use quell_core::source::{Readiness, SourceId};
use rusqlite::Connection;

use crate::aside;
use crate::rows::{LaneRow, source_code, source_of};
use crate::tx::{QueueRow, Tx};

pub(crate) const LANE_DUE: &str = concat!(
    include_str!("../sql/lane.sql"),
    "WHERE queue_id = ?1 AND priority = ?4 AND source = ?5 AND due_at <= ?2 ORDER BY due_at LIMIT ?3"
);
pub(crate) const LANE_DUE_FIRST: &str = "SELECT min(due_at) FROM lane WHERE queue_id = ?1 AND priority = ?2 AND source = ?3 AND due_at IS NOT NULL";
pub(crate) const LEASE_FIRST: &str = "SELECT min(lease_at) FROM lane WHERE queue_id = ?1 AND lease_at > ?2";
/// The next source that lanes with a due time ask: one step through the index, past all lanes of the one before.
pub(crate) const SOURCE_NEXT: &str = "SELECT min(source) FROM lane WHERE queue_id = ?1 AND priority = ?2 AND source > ?3 AND due_at IS NOT NULL";
/// The next queue with lanes that wait for a source; the conditions of the index are repeated word for word.
pub(crate) const QUEUE_NEXT: &str = "SELECT min(queue_id) FROM lane
    WHERE source = ?1 AND source <> 0 AND lease_at IS NULL AND queue_id > ?2";

/// Says what a source lets go; without a source, everything.
pub(crate) type Ready<'r> = &'r mut dyn FnMut(Option<SourceId>) -> rusqlite::Result<Readiness>;

/// The priorities that lanes of a queue have had.
pub(crate) fn levels(in_use: u64) -> impl Iterator<Item = u8> {
    (0..=limits::PRIORITY_MAX).filter(move |priority| in_use >> priority & 1 == 1)
}

/// The sources that waiting lanes of one priority ask: none is always among them.
pub(crate) fn asked(
    connection: &Connection,
    queue: &QueueRow,
    priority: u8,
) -> rusqlite::Result<Vec<Option<SourceId>>> {
    let mut sources = vec![None];
    if queue.governed {
        let mut statement = connection.prepare_cached(SOURCE_NEXT)?;
        let mut last: u64 = 0;
        while let Some(next) = statement.query_row((queue.id, priority, last), |row| row.get(0))? {
            sources.push(source_of(next));
            last = next;
        }
    }
    Ok(sources)
}

/// The queues in which lanes wait for a source.
pub(crate) fn waiting_queues(connection: &Connection, source: SourceId) -> rusqlite::Result<Vec<u64>> {
    let mut statement = connection.prepare_cached(QUEUE_NEXT)?;
    let (mut queues, mut last): (Vec<u64>, u64) = (Vec::new(), 0);
    while let Some(next) = statement.query_row((source.0, last), |row| row.get(0))? {
        queues.push(next);
        last = next;
    }
    Ok(queues)
}

/// The lanes that stand first and can go: each priority and each source has an order of its own, and a higher priority
/// overtakes by a bounded time. No more lanes of a source than it lets go.
pub(crate) fn due_lanes(tx: &mut Tx<'_, '_>, queue: u64, limit: usize) -> rusqlite::Result<Vec<LaneRow>> {
    let now = tx.now.as_millis();
    let row = tx.queue(queue)?.clone();
    let mut left: HashMap<Option<SourceId>, usize> = HashMap::new();
    let mut lanes: Vec<LaneRow> = Vec::new();
    for priority in levels(row.priorities) {
        for source in asked(tx.connection, &row, priority)? {
            let Readiness::Go { most, .. } = tx.readiness(source)? else { continue };
            let most = limit.min(usize::try_from(most).unwrap_or(usize::MAX));
            left.insert(source, most);
            let statement = tx.statements.get(LANE_DUE)?;
            let place = (queue, now, most, priority, source_code(source));
            for lane in statement.query_map(place, LaneRow::read)? {
                lanes.push(lane?);
            }
        }
    }
    if row.priorities.count_ones() > 1 || row.governed {
        lanes.sort_by_key(|lane| rank(lane.due_entry.unwrap_or(tx.now), lane.priority_entry));
        lanes.retain(|lane| match left.get_mut(&lane.source_entry) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        });
        lanes.truncate(limit);
    }
    lanes.into_iter().map(|lane| tx.with_worker(lane)).collect()
}

/// The earliest time at which a queue wants attention: its lanes, its events aside, its schedules.
pub(crate) fn earliest(
    connection: &Connection,
    queue: &QueueRow,
    ready: Ready<'_>,
) -> rusqlite::Result<Option<Timestamp>> {
    let due = earliest_due(connection, queue, ready)?;
    let lease = earliest_lease(connection, queue.id, i64::MIN)?;
    let aside = aside::earliest(connection, queue)?;
    Ok([due, lease, aside].into_iter().flatten().min())
}

/// The earliest time at which a lane can be handed out, as far as it is known.
pub(crate) fn earliest_due(
    connection: &Connection,
    queue: &QueueRow,
    ready: Ready<'_>,
) -> rusqlite::Result<Option<Timestamp>> {
    let mut first = None;
    for priority in levels(queue.priorities) {
        for source in asked(connection, queue, priority)? {
            let ready = ready(source)?;
            if matches!(ready, Readiness::Held(_)) {
                continue;
            }
            let place = (queue.id, priority, source_code(source));
            let due = first_entry(connection, LANE_DUE_FIRST, place)?;
            let due = due.and_then(|due| ready.not_before(due));
            first = [first, due].into_iter().flatten().min();
        }
    }
    Ok(first)
}

/// The earliest entry of lanes that ask this source.
pub(crate) fn first_of(
    connection: &Connection,
    queue: &QueueRow,
    source: SourceId,
) -> rusqlite::Result<Option<Timestamp>> {
    let mut first = None;
    for priority in levels(queue.priorities) {
        let due = first_entry(connection, LANE_DUE_FIRST, (queue.id, priority, source.0))?;
        first = [first, due].into_iter().flatten().min();
    }
    Ok(first)
}

pub(crate) fn earliest_lease(
    connection: &Connection,
    queue: u64,
    after: i64,
) -> rusqlite::Result<Option<Timestamp>> {
    first_entry(connection, LEASE_FIRST, (queue, after))
}

fn first_entry(
    connection: &Connection,
    sql: &str,
    of: impl rusqlite::Params,
) -> rusqlite::Result<Option<Timestamp>> {
    let found: Option<i64> = connection.prepare_cached(sql)?.query_row(of, |row| row.get(0))?;
    Ok(found.map(Timestamp::from_millis))
}

impl Tx<'_, '_> {
    /// When a queue wants attention next, from what it has.
    pub(crate) fn earliest(&mut self, queue: u64) -> rusqlite::Result<Option<Timestamp>> {
        let row = self.queue(queue)?.clone();
        earliest(self.connection, &row, &mut |source| self.readiness(source))
    }

    /// Sets the queue's own time anew from what it has.
    pub(crate) fn set_next(&mut self, queue: u64) -> rusqlite::Result<()> {
        let next = self.earliest(queue)?;
        self.queue(queue)?.next_at = next;
        Ok(())
    }

    /// A lane of this queue is due at `due`, and can go then or when its source lets it.
    pub(crate) fn lane_due(
        &mut self,
        queue: u64,
        source: Option<SourceId>,
        due: Option<Timestamp>,
    ) -> rusqlite::Result<()> {
        let Some(due) = due else { return Ok(()) };
        let when = self.readiness(source)?.not_before(due);
        self.due(queue, when)
    }

    /// Remembers that the queue has lanes of this priority, and whether any asks a source, so that claims look for them.
    pub(crate) fn has_lanes(
        &mut self,
        queue: u64,
        priority: u8,
        source: Option<SourceId>,
    ) -> rusqlite::Result<()> {
        let row = self.queue(queue)?;
        row.priorities |= 1 << priority;
        row.governed |= source.is_some();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use quell_core::batch::Batch;
    use quell_core::source::SourceReport;
    use quell_core::store::{ClaimRequest, Control, ControlAction, SettleRequest};
    use quell_store_tests::builders::{
        FAILED, append_request, breaker, claim_request, event, fault, settle_request, source_name, worker,
    };

    use super::*;
    use crate::tx::{Names, Statements};
    use crate::{append, claim, control, migrate, settle};

    /// A store without its threads: each call is one transaction on this connection.
    struct Desk<'c> {
        statements: Statements<'c>,
        names: Names,
    }

    impl Desk<'_> {
        fn at<T>(&mut self, work: impl FnOnce(&mut Tx<'_, '_>) -> T) -> T {
            let mut tx = Tx::begin(&mut self.statements, &mut self.names).unwrap();
            let done = work(&mut tx);
            assert!(tx.commit().is_ok(), "it is committed");
            done
        }

        fn lanes(&mut self, names: impl Iterator<Item = String>, source: Option<&str>) {
            let names: Vec<String> = names.collect();
            for names in names.chunks(500) {
                let events = names.iter().map(|key| match source {
                    Some(source) => event("q", key).source(source),
                    None => event("q", key),
                });
                self.at(|tx| append::append(tx, &append_request(events))).unwrap();
            }
        }

        fn claim(&mut self, max: usize) -> Vec<Batch> {
            let request = ClaimRequest { max, ..claim_request(&worker("w")) };
            self.at(|tx| claim::claim(tx, &request)).unwrap().batches
        }

        fn open_breaker(&mut self) {
            let rules = breaker(1);
            let action = ControlAction::PutSource { name: source_name("shop"), rules };
            self.at(|tx| control::control(tx, &Control { actor: "ada".into(), action })).unwrap();
            self.lanes(std::iter::once("first".to_owned()), Some("shop"));
            let batch = self.claim(1).pop().unwrap();
            let source: SourceReport = fault();
            let request = SettleRequest { source, ..settle_request(&batch, FAILED) };
            self.at(|tx| settle::settle(tx, &request)).unwrap();
        }
    }

    /// What a claim of others costs in steps of SQLite's machine, with so many lanes that an open breaker holds.
    fn cost(held: usize) -> u64 {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate::migrate(&mut connection).unwrap();
        let steps = Arc::new(AtomicU64::new(0));
        let counter = steps.clone();
        let count = move || {
            counter.fetch_add(1, Ordering::Relaxed);
            false
        };
        connection.progress_handler(1, Some(count)).unwrap();
        let mut desk = Desk { statements: Statements::new(&connection), names: Names::default() };
        desk.open_breaker();
        desk.lanes((0..held).map(|n| format!("held{n}")), Some("shop"));
        desk.lanes((0..30).map(|n| format!("free{n:02}")), None);
        // The first one prepares what the others use, and sets the queue's time.
        assert_eq!(desk.claim(10).len(), 10);
        let before = steps.load(Ordering::Relaxed);
        let batches = desk.claim(10);
        let cost = steps.load(Ordering::Relaxed) - before;
        assert_eq!(batches.len(), 10);
        assert!(batches.iter().all(|batch| batch.source.is_none()));
        cost
    }

    #[test]
    fn ten_thousand_lanes_that_an_open_breaker_holds_cost_a_claim_of_others_no_more_than_one_does() {
        let (none, one, many) = (cost(0), cost(1), cost(10_000));
        assert_eq!(many, one, "not one step for each of them");
        // To find out that there is such a source, and that it lets nobody go: a few look-ups by index.
        assert!(one < none + 300, "{one} with the source, {none} without");
    }
}
