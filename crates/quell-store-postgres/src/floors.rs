//! From where on this process looks for what is due.
//!
//! While any session has an old transaction open, the server keeps the entries of every lane that was handed out since,
//! and they lie before those that are alive: a look that began at the very first would walk over all of them. So each look
//! remembers where it found the first living entry, and the next one begins there.
//!
//! An entry may yet appear before that place: its transaction was slow to commit, or an operator let an old lane go on. Then
//! the bell that rings for it takes the place back to where it lies. A bell may be late or lost; hence a look that makes allowance for
//! slow commits several times a second and whenever the last one found nothing due, so that nobody is told that nothing is due
//! without it. Every few seconds a look begins at the very first.
//!
//! Leases are given for a while from now, so those that are over lie between now and the first that is alive, if any is. While
//! none is, a look begins behind everything that this process has given; its next lease takes the place back, as does a bell
//! of another process, which may have given shorter ones, and a look that found nothing due.
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

/// A commit that takes no longer than this is not overlooked by a look that makes allowance for it, bell or no bell.
const SLOW_COMMIT: Duration = Duration::from_secs(2);
/// How often a look makes allowance for slow commits: it walks over everything that was handed out since.
const WITH_ALLOWANCE: Duration = Duration::from_millis(250);
/// How often a look begins at the very first entry.
const FROM_THE_FIRST: Duration = Duration::from_secs(2);
/// Where a look begins that knows nothing.
const FIRST: i64 = i64::MIN;
/// The same for leases, where one less is asked for.
const UNKNOWN: i64 = i64::MIN + 1;

#[derive(Default)]
pub(crate) struct Floors(Mutex<Places>);

#[derive(Default)]
struct Places {
    /// By the numbers of their queues.
    of_queue: HashMap<i32, Place>,
    /// When the last of the leases ends that this process has given, by queue.
    given: HashMap<i32, i64>,
    /// Rises whenever a place is taken back: what a look found that began before is not remembered.
    taken_back: u64,
    since: Option<Instant>,
    allowed: Option<Instant>,
}

#[derive(Debug, Clone)]
struct Place {
    /// The last look found something due.
    busy: bool,
    /// Now less the time of a slow commit, by the last look.
    slow: i64,
    /// For lanes that wait for no source.
    due: i64,
    lease: i64,
    /// For those of each source that any lane was seen to wait for.
    governed: BTreeMap<SourceId, i64>,
}

impl Place {
    /// Takes it back to this moment. True when it was behind that.
    fn take_back(&mut self, at: i64) -> bool {
        let mut behind = at < self.due;
        self.due = self.due.min(at);
        for due in self.governed.values_mut() {
            behind |= at < *due;
            *due = at.min(*due);
        }
        behind
    }
}

/// Where a look begins in each queue.
pub(crate) struct Start {
    taken_back: u64,
    pub(crate) queues: Vec<i32>,
    pub(crate) due: Vec<i64>,
    pub(crate) lease: Vec<i64>,
    governed: BTreeMap<(i32, SourceId), i64>,
    /// Leases that this process had given by then.
    given: HashMap<i32, i64>,
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
        if places.allowed.is_none_or(|allowed| allowed.elapsed() >= WITH_ALLOWANCE) {
            places.of_queue.values_mut().for_each(|place| place.busy = false);
            places.allowed = Some(clock::now());
        }
        let mut start = Start {
            taken_back: places.taken_back,
            queues: Vec::new(),
            due: Vec::new(),
            lease: Vec::new(),
            governed: BTreeMap::new(),
            given: places.given.clone(),
        };
        for (queue, place) in &mut places.of_queue {
            if !place.busy {
                place.take_back(place.slow);
                place.lease = UNKNOWN;
            }
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
        if places.taken_back != start.taken_back {
            return;
        }
        // What becomes due from now on is seen without any bell.
        let begin = |levels: &[(u8, Timestamp)]| {
            let first = levels.iter().map(|(_, first)| *first).min();
            first.map_or(now, |first| first.min(now)).as_millis()
        };
        let given = start.given.get(&queue).copied().unwrap_or(FIRST);
        let lease = outlook.first_lease.map_or(now.as_millis().max(given), Timestamp::as_millis);
        // Where a source had lanes and has none now, the look came to the end without finding one.
        let known = start.governed.range((queue, SourceId(0))..=(queue, SourceId(u64::MAX)));
        let mut governed: BTreeMap<SourceId, i64> =
            known.map(|((_, source), _)| (*source, now.as_millis())).collect();
        governed.extend(outlook.governed.iter().map(|(source, levels)| (*source, begin(levels))));
        let (slow, due) = (now.before(SLOW_COMMIT).as_millis(), begin(&outlook.levels));
        let levels = outlook.levels.iter().chain(outlook.governed.iter().flat_map(|(_, levels)| levels));
        let busy = levels.into_iter().any(|(_, first)| *first <= now);
        places.of_queue.insert(queue, Place { busy, slow, due, lease, governed });
    }

    /// This process has given leases: the first of them ends at this moment, and the last at that. A look under way may have
    /// begun before, so it is remembered only if it cannot have passed over them.
    pub(crate) fn leased(&self, queue: i32, first: Timestamp, last: Timestamp) {
        let (first, last) = (first.as_millis(), last.as_millis());
        let places = &mut *self.lock();
        let given = places.given.entry(queue).or_insert(FIRST);
        let mut passed_over = first < *given;
        *given = last.max(*given);
        match places.of_queue.get_mut(&queue) {
            Some(place) => {
                passed_over |= first < place.lease;
                place.lease = place.lease.min(first);
            }
            None => passed_over = true,
        }
        places.taken_back += u64::from(passed_over);
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

    /// Something is due from this moment on: by this process, which knows of its leases anyway.
    pub(crate) fn rung_here(&self, at: Timestamp) {
        let mut places = self.lock();
        let mut behind = false;
        places.of_queue.values_mut().for_each(|place| behind |= place.take_back(at.as_millis()));
        places.taken_back += u64::from(behind);
    }

    /// The same by another process, and it may be a lease that ends then.
    pub(crate) fn rung(&self, at: Timestamp) {
        self.rung_here(at);
        let mut places = self.lock();
        let mut behind = false;
        for place in places.of_queue.values_mut() {
            behind |= at.as_millis() < place.lease;
            place.lease = at.as_millis().min(place.lease);
        }
        places.taken_back += u64::from(behind);
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
            first_lease: lease.map(Timestamp::from_millis),
            later_lease: lease.map(Timestamp::from_millis),
            first_aside: None,
            first_fire: None,
        }
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[tokio::test]
    async fn a_look_begins_where_the_last_one_found_something_due() {
        let floors = Floors::default();
        let start = floors.start();
        assert_eq!(floors.due(7, None), FIRST);
        floors.found(&start, 7, at(100_000), &outlook(Some(50_000), Some(160_000)));
        let next = floors.start();
        assert_eq!((next.queues, next.due, next.lease), (vec![7], vec![50_000], vec![160_000]));
        floors.found(&start, 7, at(100_000), &outlook(Some(99_999), Some(160_000)));
        assert_eq!(floors.start().due, vec![99_999]);
    }

    #[tokio::test]
    async fn nobody_is_told_twice_that_nothing_is_due_without_allowance_for_slow_commits() {
        let floors = Floors::default();
        floors.found(&floors.start(), 7, at(100_000), &outlook(Some(150_000), Some(160_000)));
        assert_eq!(floors.due(7, None), 100_000, "never after now");
        let next = floors.start();
        assert_eq!((next.due, next.lease), (vec![98_000], vec![UNKNOWN]));
        assert_eq!(floors.due(7, None), 98_000);
    }

    #[tokio::test(start_paused = true)]
    async fn several_times_a_second_a_busy_one_makes_allowance_for_slow_commits() {
        let floors = Floors::default();
        floors.found(&floors.start(), 7, at(100_000), &outlook(Some(99_999), None));
        assert_eq!(floors.start().due, vec![99_999]);
        tokio::time::advance(WITH_ALLOWANCE).await;
        assert_eq!(floors.start().due, vec![98_000]);
        floors.found(&floors.start(), 7, at(100_250), &outlook(Some(100_249), None));
        assert_eq!(floors.start().due, vec![100_249], "until the next one");
    }

    #[tokio::test]
    async fn a_bell_for_something_older_takes_the_place_back_also_for_a_look_under_way() {
        let floors = Floors::default();
        let start = floors.start();
        floors.found(&start, 7, at(100_000), &outlook(Some(100_000), Some(160_000)));
        floors.rung_here(at(101_000));
        assert_eq!(floors.due(7, None), 100_000, "what is due now is seen anyway");
        floors.rung_here(at(10_000));
        assert_eq!(floors.due(7, None), 10_000);
        floors.found(&start, 7, at(100_000), &outlook(Some(100_000), None));
        let next = floors.start();
        assert_eq!((next.due, next.lease), (vec![10_000], vec![160_000]), "that look had begun before");
        floors.rung(at(120_000));
        assert_eq!(floors.start().lease, vec![120_000], "another process may have given a lease until then");
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
        assert_eq!((floors.due(7, None), floors.due(7, Some(source))), (99_000, 1_000));
        assert_eq!(floors.due(7, Some(SourceId(4))), FIRST, "nothing is known of another one");
        let start = floors.start();
        assert_eq!(start.governed(), r#"{"7.3":1000}"#);
        floors.found(&start, 7, at(101_000), &held(None));
        assert_eq!(floors.due(7, Some(source)), 101_000, "none of its lanes was left");
        floors.rung_here(at(98_500));
        assert_eq!(floors.due(7, Some(source)), 98_500, "a bell for one of its lanes takes the place back");
    }

    #[tokio::test]
    async fn a_lease_of_this_process_is_seen_however_soon_it_ends() {
        let floors = Floors::default();
        let due = Some(100_000);
        floors.found(&floors.start(), 7, at(100_000), &outlook(due, Some(160_000)));
        let under_way = floors.start();
        floors.leased(7, at(101_000), at(130_000));
        assert_eq!(floors.start().lease, vec![101_000]);
        floors.found(&under_way, 7, at(100_001), &outlook(due, Some(160_000)));
        assert_eq!(floors.start().lease, vec![101_000], "that look had begun before");
    }

    #[tokio::test]
    async fn while_no_lease_is_alive_a_look_begins_behind_all_that_this_process_has_given() {
        let floors = Floors::default();
        let due = Some(100_000);
        floors.found(&floors.start(), 7, at(100_000), &outlook(due, None));
        floors.leased(7, at(130_000), at(130_001));
        let under_way = floors.start();
        floors.leased(7, at(130_002), at(130_003));
        floors.found(&under_way, 7, at(100_010), &outlook(due, None));
        let floor = floors.start().lease;
        assert_eq!(floor, vec![130_001], "a lease that was given meanwhile is not passed over");
        floors.found(&floors.start(), 7, at(100_020), &outlook(due, None));
        assert_eq!(floors.start().lease, vec![130_003]);
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
