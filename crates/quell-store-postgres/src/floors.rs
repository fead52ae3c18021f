//! From where on this process looks for what is due.
//!
//! While any session has an old transaction open, the server keeps the entries of every lane that was handed out since,
//! and they lie before those that are alive: a look that began at the very first would walk over all of them. So each look
//! remembers where it found the first living entry, and the next one begins there.
//!
//! An entry may yet appear before that place: its transaction was slow to commit, or an operator let an old lane go on.
//! Hence the allowance for slow commits, a bell for everything older than that forgets the place, and every few seconds a
//! look begins at the very first again.
//!
//! The lanes of each source have a place of their own: those that a source holds back lie far behind, and whoever looks for
//! others must not have to begin there.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::Duration;

use quell_core::clock::Timestamp;
use quell_core::source::SourceId;
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

#[derive(Debug, Clone)]
struct Place {
    /// For lanes that wait for no source.
    due: i64,
    lease: i64,
    /// For those of each source that any lane was seen to wait for.
    governed: BTreeMap<SourceId, i64>,
}

impl Place {
    fn lies_behind(&self, at: i64) -> bool {
        at < self.due || self.governed.values().any(|due| at < *due)
    }
}

/// Where a look begins in each queue.
pub(crate) struct Start {
    forgotten: u64,
    pub(crate) queues: Vec<i32>,
    pub(crate) due: Vec<i64>,
    pub(crate) lease: Vec<i64>,
    governed: BTreeMap<(i32, SourceId), i64>,
}

impl Start {
    /// The places of governed lanes as JSON, under the number of the queue, a point and the number of the source: the server
    /// finds each by its name, however many there are.
    pub(crate) fn governed(&self) -> String {
        let places = self.governed.iter();
        let named = places.map(|((queue, source), due)| (format!("{queue}.{}", source.0), (*due).into()));
        serde_json::Value::Object(named.collect()).to_string()
    }
}

impl Floors {
    pub(crate) fn start(&self) -> Start {
        let mut places = self.lock();
        if places.since.is_none_or(|since| since.elapsed() >= FROM_THE_FIRST) {
            places.of_queue.clear();
            places.since = Some(clock::now());
        }
        let mut start = Start {
            forgotten: places.forgotten,
            queues: Vec::new(),
            due: Vec::new(),
            lease: Vec::new(),
            governed: BTreeMap::new(),
        };
        for (queue, place) in &places.of_queue {
            start.queues.push(*queue);
            start.due.push(place.due);
            start.lease.push(place.lease);
            start.governed.extend(place.governed.iter().map(|(source, due)| ((*queue, *source), *due)));
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
        let begin = |levels: &[(u8, Timestamp)]| {
            let first = levels.iter().map(|(_, first)| *first).min();
            first.map_or(slow, |first| first.min(slow)).as_millis()
        };
        let (due, lease) = (begin(&outlook.levels), outlook.later_lease.unwrap_or(now).as_millis());
        // Where a source had lanes and has none now, the look came to the end without finding one.
        let known = start.governed.range((queue, SourceId(0))..=(queue, SourceId(u64::MAX)));
        let mut governed: BTreeMap<SourceId, i64> =
            known.map(|((_, source), _)| (*source, slow.as_millis())).collect();
        governed.extend(outlook.governed.iter().map(|(source, levels)| (*source, begin(levels))));
        places.of_queue.insert(queue, Place { due, lease, governed });
    }

    /// A lease of this process ends at this moment.
    pub(crate) fn leased(&self, queue: i32, until: Timestamp) {
        if let Some(place) = self.lock().of_queue.get_mut(&queue) {
            place.lease = place.lease.min(until.as_millis());
        }
    }

    /// From where on lanes of this queue that wait for this source, or for none, are due.
    pub(crate) fn due(&self, queue: i32, source: Option<SourceId>) -> i64 {
        let places = self.lock();
        let place = places.of_queue.get(&queue);
        match source {
            None => place.map_or(FIRST, |place| place.due),
            Some(id) => place.and_then(|place| place.governed.get(&id).copied()).unwrap_or(FIRST),
        }
    }

    /// Something is due from this moment on; what is older than a slow commit may lie anywhere.
    pub(crate) fn rung(&self, at: Timestamp) {
        let mut places = self.lock();
        if places.of_queue.values().any(|place| place.lies_behind(at.as_millis())) {
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
            governed: Vec::new(),
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
        assert_eq!(floors.due(7, None), FIRST);
        floors.found(&start, 7, at(100_000), &outlook(Some(50_000), None));
        assert_eq!(floors.due(7, None), 50_000, "a lane that waits since long is still seen");
        floors.found(&start, 7, at(100_000), &outlook(Some(150_000), Some(160_000)));
        assert_eq!(floors.due(7, None), 98_000);
        let next = floors.start();
        assert_eq!((next.queues, next.due, next.lease), (vec![7], vec![98_000], vec![160_000]));
    }

    #[tokio::test]
    async fn a_bell_for_something_older_forgets_the_place_also_for_a_look_under_way() {
        let floors = Floors::default();
        let start = floors.start();
        floors.found(&start, 7, at(100_000), &outlook(None, None));
        floors.rung(at(99_000));
        assert_eq!(floors.due(7, None), 98_000, "what is due now is seen anyway");
        floors.rung(at(10_000));
        assert_eq!(floors.due(7, None), FIRST);
        floors.found(&start, 7, at(100_000), &outlook(None, None));
        assert_eq!(floors.due(7, None), FIRST, "that look had begun before");
    }

    #[tokio::test]
    async fn lanes_that_a_source_holds_back_do_not_keep_the_others_place_back() {
        let floors = Floors::default();
        let source = SourceId(3);
        let held = |first: Option<i64>| QueueOutlook {
            governed: first.into_iter().map(|first| (source, vec![(4, at(first))])).collect(),
            ..outlook(Some(99_000), None)
        };
        floors.found(&floors.start(), 7, at(100_000), &held(Some(1_000)));
        assert_eq!((floors.due(7, None), floors.due(7, Some(source))), (98_000, 1_000));
        assert_eq!(floors.due(7, Some(SourceId(4))), FIRST, "nothing is known of another one");
        let start = floors.start();
        assert_eq!(start.governed(), r#"{"7.3":1000}"#);
        floors.found(&start, 7, at(101_000), &held(None));
        assert_eq!(floors.due(7, Some(source)), 99_000, "none of its lanes was left");
        floors.rung(at(98_500));
        assert_eq!(floors.due(7, Some(source)), FIRST, "a bell for one of its lanes forgets the place");
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
