//! Upkeep: what a busy store leaves behind is tidied up while it is busy.
//!
//! Lanes are found by the first rows of `due` and `lease_group`, and those are the ones that go first: what is left of them in the
//! index lies in front of everything that every claim looks for. The server's own autovacuum comes once a minute, which is
//! late by some hundred thousand rows; the two tables are small, so a vacuum of them takes milliseconds. The changes of the
//! totals are added up here, too, when there are many.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quell_core::error::StoreResult;

use crate::connection::Connections;
use crate::error::not_done;
use crate::{clock, sweep};

/// How often it is looked whether there is something to tidy up.
const LOOK: Duration = Duration::from_millis(500);
/// Rows that may be left behind before that.
const LEFT: u64 = 20_000;
/// Changes of totals that may wait to be added up.
const DELTAS: u64 = 2_000;

/// What this process has left behind since the last time.
#[derive(Default)]
pub(crate) struct Left {
    pub(crate) entries: AtomicU64,
    pub(crate) deltas: AtomicU64,
}

/// Tidies up until the task is ended.
pub(crate) async fn run(left: Arc<Left>, connections: Connections) {
    loop {
        clock::wait(LOOK).await;
        let vacuum = left.entries.load(Ordering::Relaxed) >= LEFT;
        let fold = left.deltas.load(Ordering::Relaxed) >= DELTAS;
        if vacuum || fold {
            // It is only late then, and comes again.
            if let Err(error) = tidy(&left, &connections, vacuum, fold).await {
                tracing::debug!(%error, "the store was not tidied up");
            }
        }
    }
}

async fn tidy(left: &Left, connections: &Connections, vacuum: bool, fold: bool) -> StoreResult<()> {
    let connection = connections.get().await?;
    if fold {
        left.deltas.store(0, Ordering::Relaxed);
        sweep::fold(&connection).await?;
    }
    if vacuum {
        left.entries.store(0, Ordering::Relaxed);
        for table in ["due", "lease_group", "queue_delta"] {
            // Whoever is at it already does the same.
            let schema = connections.schema();
            let sql = format!("VACUUM (SKIP_LOCKED, TRUNCATE FALSE, INDEX_CLEANUP ON) {schema}.{table}");
            connection.batch(&sql).await.map_err(|e| not_done(&e))?;
        }
    }
    Ok(())
}
