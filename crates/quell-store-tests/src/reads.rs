//! Reads for tests, and the two checks that must hold after any history.
//!
//! [`assert_totals`] is the no-loss equation, counted and compared with the rows. [`assert_trail`] folds the audit: every
//! record is a legal move from the state the one before it left, nobody claims a lane before the previous holder's
//! attempt has ended, tokens rise, each end of an attempt belongs to the claim before it and names its worker, each refund
//! is recorded, and the last record of a run is the state the run is shown in.

use std::collections::BTreeMap;
use std::time::Duration;

use quell_core::audit::AuditRecord;
use quell_core::batch::RunId;
use quell_core::clock::Timestamp;
use quell_core::event::{Key, LaneKey};
use quell_core::inspect::{
    AuditFilter, EventPlace, Health, Inspect, Inspected, LaneDetail, LaneFilter, LaneRow, Page, QueueLeases,
    QueueStats, RunDetail, RunFilter, RunRow, SourceFilter, SourceRow, Verified,
};
use quell_core::lifecycle::{self, Change, RunState};
use quell_core::store::Store;
use quell_core::totals::Totals;

use crate::World;
use crate::builders::{id, queue, source_name, tenant};

/// What may pass by itself in a real store between two calls of a test, on a machine that does other things too.
pub const TOLERANCE: Duration = Duration::from_secs(4);

/// Two moments that would be equal if no real time passed.
#[track_caller]
pub fn assert_moment(world: &dyn World, told: Timestamp, expected: Timestamp, what: &str) {
    if world.clock_runs() {
        let apart = told.since(expected).max(expected.since(told));
        assert!(apart <= TOLERANCE, "{what}: {told} is not about {expected}");
    } else {
        assert_eq!(told, expected, "{what}");
    }
}

macro_rules! read {
    ($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) -> $answer:ty, $request:expr, $variant:ident) => {
        $(#[$doc])*
        pub async fn $name(store: &dyn Store $(, $argument: $type)*) -> $answer {
            match store.inspect($request).await.expect("reads are answered") {
                Inspected::$variant(answer) => answer,
                other => panic!("a read is answered with its own kind, not {other:?}"),
            }
        }
    };
}

read!(
    /// One lane in full.
    lane_detail(key: &LaneKey) -> Option<Box<LaneDetail>>, Inspect::Lane(key.clone()), Lane
);
read!(
    /// One page of lanes.
    lane_page(filter: LaneFilter) -> Page<LaneRow>, Inspect::Lanes(filter), Lanes
);
read!(
    /// One run in full.
    run_detail(run: RunId) -> Option<Box<RunDetail>>, Inspect::Run(run), Run
);
read!(
    /// One page of runs.
    run_page(filter: RunFilter) -> Page<RunRow>, Inspect::Runs(filter), Runs
);
read!(
    /// One page of the audit, newest first.
    audit_page(filter: AuditFilter) -> Page<AuditRecord>, Inspect::Audit(filter), Audit
);
read!(
    /// Where an event is now.
    event_place(key: &LaneKey, event: &str) -> Option<EventPlace>, Inspect::Event(key.clone(), id(event)), Event
);
read!(
    /// Totals of every queue, in no particular order.
    stats_as_listed() -> Vec<QueueStats>, Inspect::Stats, Stats
);
read!(
    /// The leases of every queue that has any, in no particular order.
    leases_as_listed() -> Vec<QueueLeases>, Inspect::Leases, Leases
);
read!(
    /// The equation against the rows.
    verify() -> Verified, Inspect::Verify, Verify
);
read!(
    /// One page of sources.
    source_page(filter: SourceFilter) -> Page<SourceRow>, Inspect::Sources(filter), Sources
);
read!(
    /// How the store is.
    health() -> Health, Inspect::Health, Health
);

/// Totals of every queue, sorted by tenant and name.
pub async fn stats(store: &dyn Store) -> Vec<QueueStats> {
    let mut rows = stats_as_listed(store).await;
    rows.sort_by(|a, b| (&a.tenant, &a.queue).cmp(&(&b.tenant, &b.queue)));
    rows
}

/// The leases of every queue that has any, sorted by tenant and name.
pub async fn leases(store: &dyn Store) -> Vec<QueueLeases> {
    let mut rows = leases_as_listed(store).await;
    rows.sort_by(|a, b| (&a.tenant, &a.queue).cmp(&(&b.tenant, &b.queue)));
    rows
}

/// The source of this tenant and name.
pub async fn source_row(store: &dyn Store, tenant_name: &str, name: &str) -> SourceRow {
    let filter = SourceFilter {
        tenant: Some(tenant(tenant_name)),
        name: Some(source_name(name)),
        ..SourceFilter::default()
    };
    let mut rows = source_page(store, filter).await.items;
    assert_eq!(rows.len(), 1, "a tenant and a name are one source");
    rows.remove(0)
}

/// The state of an event's run, by its id.
pub async fn state_of(store: &dyn Store, key: &LaneKey, event: &str) -> Option<RunState> {
    event_place(store, key, event).await.and_then(|place| place.state)
}

/// The listing row of a lane, also when it is idle.
pub async fn lane_row(store: &dyn Store, key: &LaneKey) -> Option<LaneRow> {
    lane_detail(store, key).await.map(|detail| detail.row)
}

/// All lanes, page by page.
pub async fn all_lanes(store: &dyn Store, filter: LaneFilter) -> Vec<LaneRow> {
    quell_torture::reads::all_lanes(store, filter).await.expect("reads are answered")
}

/// All runs, page by page.
pub async fn all_runs(store: &dyn Store, filter: RunFilter) -> Vec<RunRow> {
    quell_torture::reads::all_runs(store, filter).await.expect("reads are answered")
}

/// The whole audit, oldest first.
pub async fn trail(store: &dyn Store, filter: AuditFilter) -> Vec<AuditRecord> {
    quell_torture::reads::trail(store, filter).await.expect("reads are answered")
}

/// The audit of one key without tenant, oldest first.
pub async fn trail_of(store: &dyn Store, queue_name: &str, key: &str) -> Vec<AuditRecord> {
    let key = Key::new(key).expect("test keys are good keys");
    trail(store, AuditFilter { queue: Some(queue(queue_name)), key: Some(key), ..AuditFilter::default() })
        .await
}

/// What happened, in order.
pub fn changes(records: &[AuditRecord]) -> Vec<Change> {
    records.iter().map(|r| r.change).collect()
}

/// The totals of a queue without tenant.
pub async fn totals(store: &dyn Store, queue_name: &str) -> Totals {
    totals_of(store, "", queue_name).await
}

/// The totals of a tenant's queue.
pub async fn totals_of(store: &dyn Store, tenant_name: &str, queue_name: &str) -> Totals {
    let (tenant, queue) = (tenant(tenant_name), queue(queue_name));
    let found = stats(store).await.into_iter().find(|s| s.tenant == tenant && s.queue == queue);
    found.map_or_else(Totals::default, |s| s.totals)
}

/// The no-loss equation holds: counted, and compared with the rows.
pub async fn assert_totals(world: &dyn World) {
    let store = world.store();
    let verified = verify(&*store).await;
    assert!(verified.problems.is_empty(), "the store finds itself in disorder: {:?}", verified.problems);
    let mut seen: BTreeMap<_, (u64, u64, u64)> = BTreeMap::new();
    for row in all_lanes(&*store, LaneFilter { limit: 1_000, ..LaneFilter::default() }).await {
        let running = row.state == Some(RunState::Running);
        assert_eq!(running, row.lease_until.is_some(), "a running lane, and only it, has a lease: {row:?}");
        assert_eq!(running, row.token.is_some(), "a running lane, and only it, shows its token: {row:?}");
        let sums = seen.entry((row.lane.tenant, row.lane.queue)).or_default();
        sums.0 += row.buffered;
        sums.1 += row.in_flight;
        sums.2 += u64::from(running);
    }
    for queue in stats(&*store).await {
        let totals = queue.totals;
        assert!(totals.hold(), "accepted is the sum of the others: {totals:?}");
        let rows = seen.remove(&(queue.tenant.clone(), queue.queue.clone())).unwrap_or_default();
        let told = (totals.buffered, totals.in_flight, queue.running);
        assert_eq!(told, rows, "buffered, in flight and running of {} agree with the lanes", queue.queue);
    }
    assert!(seen.is_empty(), "every lane is counted somewhere: {seen:?}");
}

/// The trail is whole: see the module doc.
pub async fn assert_trail(world: &dyn World) {
    let store = world.store();
    let records = trail(&*store, AuditFilter::default()).await;
    let runs = all_runs(&*store, RunFilter { limit: 1_000, ..RunFilter::default() }).await;
    if world.one_sequence() {
        check_numbers(&records);
    }
    check_trail(&records, &runs);
}

/// The numbers of records rise over the whole trail.
pub fn check_numbers(records: &[AuditRecord]) {
    for (before, after) in records.iter().zip(records.iter().skip(1)) {
        assert!(before.id < after.id, "audit ids rise: {before:?} {after:?}");
    }
}

/// [`assert_trail`] on what was read.
pub fn check_trail(records: &[AuditRecord], runs: &[RunRow]) {
    // Rule 31: within a lane. Transactions on different lanes of one server overlap, and each has its own moment.
    let mut latest: BTreeMap<_, &AuditRecord> = BTreeMap::new();
    for after in records {
        let lane = (&after.tenant, &after.queue, &after.key);
        if let Some(before) = latest.insert(lane, after).filter(|_| after.key.is_some()) {
            assert!(before.at <= after.at, "store time never goes back in a lane: {before:?} {after:?}");
        }
    }
    let mut trail = Trail::default();
    for record in records {
        let Some(run) = record.run else { continue };
        if let Some((from, to)) = trail.step(run, record) {
            trail.attempt(run, record, from, to);
        }
    }
    for row in runs {
        if let Some(last) = trail.ends.get(&row.id) {
            assert_eq!(row.state, *last, "a run is in the state of its last record: {row:?}");
        }
        if trail.whole.get(&row.id) == Some(&true)
            && let Some(claims) = trail.claims.get(&row.id)
        {
            let refunds = trail.refunds.get(&row.id).copied().unwrap_or_default();
            assert_eq!(*claims, row.claims, "each claim has one record: {row:?}");
            assert_eq!(claims - refunds, row.attempts, "each refund has one record: {row:?}");
        }
    }
}

/// The audit, folded.
#[derive(Default)]
struct Trail<'a> {
    ends: BTreeMap<RunId, RunState>,
    claims: BTreeMap<RunId, u32>,
    refunds: BTreeMap<RunId, u32>,
    /// Whether the trail of the run starts with its first claim, or before: older records may have been removed.
    whole: BTreeMap<RunId, bool>,
    tokens: BTreeMap<u64, u64>,
    /// Per lane the claim whose attempt has not ended.
    holders: BTreeMap<u64, &'a AuditRecord>,
}

impl<'a> Trail<'a> {
    /// A legal move from where the record before it ended. Nothing when the record says nothing of a state.
    fn step(&mut self, run: RunId, record: &'a AuditRecord) -> Option<(RunState, RunState)> {
        let (from, to) = match (record.from, record.to) {
            (Some(from), Some(to)) => (from, to),
            // Runs that begin with a record: halves, and what was redriven (as new: into an open run that may be known).
            (None, Some(RunState::Pending))
                if matches!(record.change, Change::SplitOff | Change::Redriven) =>
            {
                assert!(record.other_run.is_some(), "it says where the events came from: {record:?}");
                let before = self.ends.insert(run, RunState::Pending);
                assert!(before.is_none_or(|b| b == RunState::Pending), "it was there before: {record:?}");
                self.whole.entry(run).or_insert(true);
                return None;
            }
            (None, None) if record.change == Change::Unblocked => return None,
            _ => panic!("a record of a run says from what to what: {record:?}"),
        };
        assert_eq!(lifecycle::next(from, record.change), Some(to), "a legal move: {record:?}");
        if let Some(before) = self.ends.insert(run, to) {
            assert_eq!(before, from, "a move starts where the one before it ended: {record:?}");
        }
        let first = record.change == Change::Claimed && record.prior_worker.is_none();
        self.whole.entry(run).or_insert(first || record.token == 0);
        Some((from, to))
    }

    /// One holder at a time, and each end belongs to the claim before it.
    fn attempt(&mut self, run: RunId, record: &'a AuditRecord, from: RunState, to: RunState) {
        let held = record.verdict.is_none() || from == RunState::Running;
        assert!(held, "only a holder has a verdict: {record:?}");
        match (from, to) {
            (RunState::Running, RunState::Running) => {
                if let Some(claim) = self.holders.get(&run.lane) {
                    assert_eq!((claim.run, claim.token), (record.run, record.token), "{record:?}");
                }
            }
            (_, RunState::Running) => {
                assert!(record.worker.is_some(), "a claim names its worker: {record:?}");
                let last = self.tokens.insert(run.lane, record.token).unwrap_or(0);
                assert!(record.token > last, "tokens of a lane strictly rise: {record:?}");
                let held = self.holders.insert(run.lane, record);
                assert!(held.is_none(), "two holders of one lane: {held:?} and {record:?}");
                *self.claims.entry(run).or_default() += 1;
            }
            (RunState::Running, _) => {
                let nobody = matches!(record.change, Change::Reclaimed | Change::Expired | Change::Restored);
                assert!(!nobody || record.prior_worker.is_some(), "it names who was there: {record:?}");
                let refunded = matches!(
                    record.change,
                    Change::Released
                        | Change::Superseded
                        | Change::Interrupted
                        | Change::Restored
                        | Change::ProbeFaulted
                        | Change::Starved
                );
                *self.refunds.entry(run).or_default() += u32::from(refunded);
                if let Some(claim) = self.holders.remove(&run.lane) {
                    let ended = (record.run, record.token);
                    assert_eq!(ended, (claim.run, claim.token), "the end of the claim before it: {record:?}");
                    let worker = record.prior_worker.as_ref().or(record.worker.as_ref());
                    assert_eq!(worker, claim.worker.as_ref(), "and of its worker: {record:?}");
                }
            }
            // What waits or has ended: nobody holds it, whoever holds another run of the lane.
            _ => {}
        }
    }
}
