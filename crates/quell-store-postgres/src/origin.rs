//! Whether this is still the history in which numbers were given: after a restore or a failover they must go on rising.
//!
//! A server that was promoted or recovered to a point in time writes on a new timeline, and tables that came out of a dump
//! are other tables. `meta.origin` keeps both as they were. A transaction that finds something else has come to a past
//! that others may have gone on from: before it gives a number, the sequence is raised beyond everything that can have
//! been told there. A copy of the server's files that was simply put back shows neither; whoever does that empties
//! `meta.origin`.

use quell_core::clock::Timestamp;
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::lease::after_restore;
use tokio_postgres::types::Type;

use crate::connection::{Connections, Sql};
use crate::error::not_done;
use crate::find::BLOCK;
use crate::rows::{count, get, number};
use crate::tx::store_time;

/// The timeline that is being written, and the table itself.
macro_rules! origin {
    () => {
        "(left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) || ':' || 'quell.meta'::regclass::oid)"
    };
}
pub(crate) use origin;

static LOOK: Sql = Sql {
    text: concat!(
        "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, test_offset, origin IS NOT DISTINCT FROM ",
        origin!(),
        ", (SELECT last_value FROM quell.number) FROM quell.meta FOR UPDATE"
    ),
    types: &[],
};
static RAISE: Sql = Sql { text: "SELECT setval('quell.number', $1, true)", types: &[Type::INT8] };
static RENEW: Sql = Sql { text: concat!("UPDATE quell.meta SET origin = ", origin!()), types: &[] };

/// Raises the sequence, once for all who have found the change.
pub(crate) async fn renew(connections: &Connections) -> StoreResult<()> {
    let connection = connections.get().await?;
    connection.batch("BEGIN").await.map_err(|e| not_done(&e))?;
    let done = async {
        let rows = connection.query(&LOOK, &[]).await.map_err(|e| not_done(&e))?;
        let row = rows.first().ok_or_else(|| crate::error::unreadable("the table meta is empty"))?;
        if get(row, 2)? {
            return Ok(());
        }
        let next = raised(count(row, 3)? + BLOCK, store_time(row)?)?;
        connection.query(&RAISE, &[&number(next)]).await.map_err(|e| not_done(&e))?;
        connection.query(&RENEW, &[]).await.map_err(|e| not_done(&e))?;
        tracing::warn!(
            numbers_from = next,
            "the database was restored, or another server has taken over: numbers go on far ahead, so that none is given twice"
        );
        Ok(())
    }
    .await;
    let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
    if let Err(error) = connection.batch(end).await {
        connection.discard();
        return done.and(Err(not_done(&error)));
    }
    done
}

/// On a multiple of a block, as all that the sequence gives.
fn raised(last: u64, now: Timestamp) -> StoreResult<u64> {
    let next = after_restore(last, now).map(|next| next.div_ceil(BLOCK) * BLOCK);
    next.ok_or_else(|| {
        StoreError::new(
            ErrorKind::Corrupt,
            "there are no numbers left below 2^53 to go on with after a restore",
        )
    })
}
