//! From where on this process looks for what is due.
//!
//! While any session has an old transaction open, the server keeps the entries of every lane that was handed out since,
//! and they lie before those that are alive: a look that began at the very first would walk over all of them. So each look
//! remembers where it found the first living entry, and the next one begins there.
//!
//! An entry may yet appear before that place: its transaction was slow to commit, or an operator let an old lane go on.
//! Hence the allowance for slow commits, a bell for everything older than that forgets the place, and every few seconds a
//! look begins at the very first again.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use quell_core::clock::Timestamp;
use quell_store_rows::rows::QueueOutlook;
use tokio::time::Instant;

use crate::clock;

/// A commit that takes no longer than this is not overlooked.
const SLOW_COMMIT: Duration = Duration::from_secs(2);
/// How often a look begins at the very first entry.
const FROM_THE_FIRST: Duration = Duration::from_secs(2);
/// Where a look begins that knows nothing.
const FIRST: i64 = i64::MIN;

#[derive(Default)]
pub(crate) struct Floors(Mutex<Places>);

#[derive(Default)]
struct Places {
    /// By the numbers of their queues.
    of_queue: HashMap<i32, Place>,
    /// Rises whenever the places are forgotten: what a look found that began before is not remembered.
    forgotten: u64,
    since: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    due: i64,
    lease: i64,
}

/// Where a look begins in each queue.
pub(crate) struct Start {
    forgotten: u64,
    pub(crate) queues: Vec<i32>,
    pub(crate) due: Vec<i64>,
    pub(crate) lease: Vec<i64>,
}

impl Floors {
    pub(crate) fn start(&self) -> Start {
        let mut places = self.lock();
        if places.since.is_none_or(|since| since.elapsed() >= FROM_THE_FIRST) {
            places.of_queue.clear();
            places.since = Some(clock::now());
        }
        let mut start =
            Start { forgotten: places.forgotten, queues: Vec::new(), due: Vec::new(), lease: Vec::new() };
        for (queue, place) in &places.of_queue {
            start.queues.push(*queue);
            start.due.push(place.due);
            start.lease.push(place.lease);
        }
        start
    }

    /// What a look found in a queue.
    pub(crate) fn found(&self, start: &Start, queue: i32, now: Timestamp, outlook: &QueueOutlook) {
        let mut places = self.lock();
        if places.forgotten != start.forgotten {
            return;
        }
        let slow = now.before(SLOW_COMMIT);
        let first = outlook.levels.iter().map(|(_, first)| *first).min();
        let due = first.map_or(slow, |first| first.min(slow)).as_millis();
        let lease = outlook.later_lease.unwrap_or(now).as_millis();
        places.of_queue.insert(queue, Place { due, lease });
    }

    /// A lease of this process ends at this moment.
    pub(crate) fn leased(&self, queue: i32, until: Timestamp) {
        if let Some(place) = self.lock().of_queue.get_mut(&queue) {
            place.lease = place.lease.min(until.as_millis());
        }
    }

    /// From where on lanes of this queue are due.
    pub(crate) fn due(&self, queue: i32) -> i64 {
        self.lock().of_queue.get(&queue).map_or(FIRST, |place| place.due)
    }

    /// Something is due from this moment on; what is older than a slow commit may lie anywhere.
    pub(crate) fn rung(&self, at: Timestamp) {
        let mut places = self.lock();
        if places.of_queue.values().any(|place| at.as_millis() < place.due) {
            places.of_queue.clear();
            places.forgotten += 1;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Places> {
        self.0.lock().expect("no panic happens while it is locked")
    }
}

#[cfg(test)]
mod tests {
    use quell_core::event::{QueueName, Tenant};

    use super::*;

    fn outlook(first: Option<i64>, lease: Option<i64>) -> QueueOutlook {
        QueueOutlook {
            tenant: Tenant::none(),
            queue: QueueName::new("q").unwrap(),
            paused: false,
            running: 0,
            levels: first.into_iter().map(|at| (4, Timestamp::from_millis(at))).collect(),
            first_lease: None,
            later_lease: lease.map(Timestamp::from_millis),
            first_aside: None,
            first_fire: None,
        }
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[tokio::test]
    async fn a_look_begins_where_the_last_one_found_something_but_never_after_a_slow_commit() {
        let floors = Floors::default();
        let start = floors.start();
        assert_eq!(floors.due(7), FIRST);
        floors.found(&start, 7, at(100_000), &outlook(Some(50_000), None));
        assert_eq!(floors.due(7), 50_000, "a lane that waits since long is still seen");
        floors.found(&start, 7, at(100_000), &outlook(Some(150_000), Some(160_000)));
        assert_eq!(floors.due(7), 98_000);
        let next = floors.start();
        assert_eq!((next.queues, next.due, next.lease), (vec![7], vec![98_000], vec![160_000]));
    }

    #[tokio::test]
    async fn a_bell_for_something_older_forgets_the_place_also_for_a_look_under_way() {
        let floors = Floors::default();
        let start = floors.start();
        floors.found(&start, 7, at(100_000), &outlook(None, None));
        floors.rung(at(99_000));
        assert_eq!(floors.due(7), 98_000, "what is due now is seen anyway");
        floors.rung(at(10_000));
        assert_eq!(floors.due(7), FIRST);
        floors.found(&start, 7, at(100_000), &outlook(None, None));
        assert_eq!(floors.due(7), FIRST, "that look had begun before");
    }

    #[tokio::test]
    async fn a_lease_of_this_process_is_seen_however_soon_it_ends() {
        let floors = Floors::default();
        let start = floors.start();
        floors.found(&start, 7, at(100_000), &outlook(None, Some(160_000)));
        floors.leased(7, at(101_000));
        assert_eq!(floors.start().lease, vec![101_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn every_few_seconds_a_look_begins_at_the_very_first() {
        let floors = Floors::default();
        let start = floors.start();
        floors.found(&start, 7, at(100_000), &outlook(None, None));
        tokio::time::advance(FROM_THE_FIRST).await;
        assert!(floors.start().queues.is_empty());
    }
}
