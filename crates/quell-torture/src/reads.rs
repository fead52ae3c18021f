//! Reads of a whole store, page by page.

use quell_core::audit::AuditRecord;
use quell_core::batch::RunId;
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::inspect::{
    AuditFilter, Inspect, Inspected, LaneFilter, LaneRow, Page, QueueStats, RunDetail, RunFilter, RunRow,
    Verified,
};
use quell_core::store::Store;

macro_rules! read {
    ($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) -> $answer:ty, $request:expr, $variant:ident) => {
        $(#[$doc])*
        pub async fn $name(store: &dyn Store $(, $argument: $type)*) -> StoreResult<$answer> {
            match store.inspect($request).await? {
                Inspected::$variant(answer) => Ok(answer),
                other => Err(StoreError::new(
                    ErrorKind::Corrupt,
                    format!("a read was answered with another kind: {other:?}"),
                )),
            }
        }
    };
}

read!(lane_page(filter: LaneFilter) -> Page<LaneRow>, Inspect::Lanes(filter), Lanes);
read!(run_page(filter: RunFilter) -> Page<RunRow>, Inspect::Runs(filter), Runs);
read!(audit_page(filter: AuditFilter) -> Page<AuditRecord>, Inspect::Audit(filter), Audit);
read!(
    /// One run in full.
    run_detail(run: RunId) -> Option<Box<RunDetail>>, Inspect::Run(run), Run
);
read!(
    /// Totals of every queue, in no particular order.
    stats() -> Vec<QueueStats>, Inspect::Stats, Stats
);
read!(
    /// The equation against the rows.
    verify() -> Verified, Inspect::Verify, Verify
);

/// All lanes.
pub async fn all_lanes(store: &dyn Store, filter: LaneFilter) -> StoreResult<Vec<LaneRow>> {
    let mut filter = filter;
    let mut all = Vec::new();
    loop {
        let page = lane_page(store, filter.clone()).await?;
        all.extend(page.items);
        filter.cursor = page.next;
        if filter.cursor.is_none() {
            return Ok(all);
        }
    }
}

/// All runs.
pub async fn all_runs(store: &dyn Store, filter: RunFilter) -> StoreResult<Vec<RunRow>> {
    let mut filter = filter;
    let mut all = Vec::new();
    loop {
        let page = run_page(store, filter.clone()).await?;
        all.extend(page.items);
        filter.cursor = page.next;
        if filter.cursor.is_none() {
            return Ok(all);
        }
    }
}

/// The whole audit, oldest first.
pub async fn trail(store: &dyn Store, filter: AuditFilter) -> StoreResult<Vec<AuditRecord>> {
    let mut filter = AuditFilter { limit: 1_000, ..filter };
    let mut all = Vec::new();
    loop {
        let page = audit_page(store, filter.clone()).await?;
        all.extend(page.items);
        filter.cursor = page.next;
        if filter.cursor.is_none() {
            all.reverse();
            return Ok(all);
        }
    }
}
