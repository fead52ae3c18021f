//! Begin: a transaction with its first locks and its numbers, in one round trip.
//!
//! Everything that can be asked before anything is answered travels together with the BEGIN: whether the store is sealed and
//! of which past it is, the lanes that are locked first, and the numbers, which come last and are therefore larger than any
//! number in these lanes. If it turns out that the store is sealed, or of another past, what was locked is let go.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use quell_core::clock::Timestamp;
use quell_core::error::StoreError;
use quell_store_rows::rows::{Begun, First, Lanes, Pick, Rows, RowsResult};
use tokio_postgres::{Error, Row};

use crate::Shared;
use crate::connection::{Connection, Request, Sql};
use crate::error::{self, trouble};
use crate::find;
use crate::options::StatementMode;
use crate::origin::{self, origin};
use crate::queues::Fault;
use crate::rows::{get, number};
use crate::tx::{Tx, by_id, by_key, due_requests, places, store_time};

/// Connections that turn out to be dead when they are used: after a restart of the server there may be several.
const DEAD_CONNECTIONS: usize = 4;

/// The server's time, the offset of tests, and whether anything may be written.
static BEGIN: Sql = Sql {
    text: concat!(
        "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, test_offset, sealed, origin IS NOT DISTINCT FROM ",
        origin!(),
        ", origin FROM quell.meta"
    ),
    types: &[],
};
/// The same for sessions that keep no settings.
static BEGIN_UNNAMED: Sql = Sql {
    text: concat!(
        "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, test_offset, sealed, origin IS NOT DISTINCT FROM ",
        origin!(),
        ", origin, set_config('lock_timeout', '5000', true), set_config('jit', 'off', true),
           set_config('idle_in_transaction_session_timeout', '10000', true) FROM quell.meta"
    ),
    types: &[],
};
/// Whoever writes holds this together with others, from before it reads whether the store is sealed: see `copy.rs`.
pub(crate) static WITH_OTHERS: Sql =
    Sql { text: "SELECT pg_advisory_xact_lock_shared(hashtextextended('quell.seal', 0))", types: &[] };
/// What a transaction learns first.
struct Learned {
    now: Timestamp,
    sealed: Option<String>,
    same_origin: bool,
    /// What was asked along with it; nothing when it was asked by numbers of another past.
    answers: Option<Vec<Result<Vec<Row>, Error>>>,
}

/// A transaction, who has sealed the store, and what was asked along with its beginning.
type Opened = (Tx, Option<String>, Option<Vec<Result<Vec<Row>, Error>>>);

impl Tx {
    pub(crate) async fn begin(shared: &Arc<Shared>) -> RowsResult<Tx> {
        let (tx, _) = unsealed(open(shared, &[]).await?).await?;
        Ok(tx)
    }

    /// For what is done to a sealed store: a copy into it.
    pub(crate) async fn begin_sealed(shared: &Arc<Shared>) -> RowsResult<Tx> {
        let (mut tx, ..) = open(shared, &[]).await?;
        tx.filling = true;
        Ok(tx)
    }

    /// With its first locks and its numbers.
    pub(crate) async fn begin_with(
        shared: &Arc<Shared>,
        first: First<'_>,
        numbers: usize,
    ) -> RowsResult<Begun> {
        let mut requests = question(shared, first).unwrap_or_default();
        if requests.is_empty() {
            return locked_apart(Tx::begin(shared).await?, first).await;
        }
        if numbers > 0 {
            requests.push(find::numbers(numbers));
        }
        let (mut tx, answers) = unsealed(open(shared, &requests).await?).await?;
        let Some(answers) = answers else { return locked_apart(tx, first).await };
        let answers = answers.into_iter().map(|answer| answer.map_err(|e| trouble(&e)));
        let mut answers = answers.collect::<RowsResult<Vec<Vec<Row>>>>()?.into_iter();
        let mut next = || answers.next().unwrap_or_default();
        let lanes = match first {
            First::Keys(keys, _) => tx.found_by_key(keys, next()).await?,
            First::Ids(ids, patience) => tx.found_by_id(ids, patience, &next()).await?,
            First::Due(..) => {
                let (due, front) = (next(), next());
                Lanes { lanes: tx.found_due(&due, &front).await?, ..Lanes::default() }
            }
        };
        let numbers: Vec<Range<u64>> = find::blocks(&next())?;
        Ok(Begun { rows: Box::new(tx), lanes, numbers })
    }
}

/// What is asked together with the BEGIN; nothing when a queue is not known here by its number.
fn question(shared: &Shared, first: First<'_>) -> Option<Vec<Request>> {
    match first {
        First::Keys(keys, patience) => {
            let (queues, texts) = places(keys, |names| shared.queues.get(names).map(|known| known.id));
            let known = queues.len() == keys.len();
            known.then(|| vec![(by_key(patience), vec![Box::new(queues) as _, Box::new(texts) as _])])
        }
        First::Ids(ids, patience) => {
            let numbers: Vec<i64> = ids.iter().map(|id| number(*id)).collect();
            Some(vec![(by_id(patience), vec![Box::new(numbers)])])
        }
        First::Due(picks, at) => {
            let known = |pick: &Pick| {
                shared.queues.get(&(pick.tenant.clone(), pick.queue.clone())).map(|known| known.id)
            };
            let picks: Option<Vec<(i32, &Pick)>> =
                picks.iter().map(|pick| Some((known(pick)?, pick))).collect();
            Some(due_requests(shared, &picks?, at))
        }
    }
}

/// The first locks in a round trip of their own.
async fn locked_apart(mut tx: Tx, first: First<'_>) -> RowsResult<Begun> {
    let lanes = match first {
        First::Keys(keys, patience) => tx.lanes(keys, patience).await?,
        First::Ids(ids, patience) => tx.lanes_by_id(ids, patience).await?,
        First::Due(picks, _) => Lanes { lanes: tx.due(picks).await?, ..Lanes::default() },
    };
    Ok(Begun { rows: Box::new(tx), lanes, numbers: Vec::new() })
}

async fn unsealed((tx, sealed, answers): Opened) -> RowsResult<(Tx, Option<Vec<Result<Vec<Row>, Error>>>)> {
    match sealed {
        None => Ok((tx, answers)),
        Some(by) => {
            Box::new(tx).rollback().await;
            Err(quell_core::copy::sealed(&by).into())
        }
    }
}

async fn open(shared: &Arc<Shared>, requests: &[Request]) -> RowsResult<Opened> {
    for _ in 0..DEAD_CONNECTIONS {
        let connection = shared.connections.get().await?;
        match open_on(&connection, shared, requests).await {
            Ok(Learned { now, sealed, same_origin: true, answers }) => {
                let connection = Some(connection);
                let (without_lane, without_queue) = (Vec::new(), BTreeSet::new());
                let shared = shared.clone();
                let (over, firsts) = (Vec::new(), HashMap::new());
                let (over_at, filling) = (i64::MIN, false);
                let tx = Tx {
                    connection,
                    shared,
                    now,
                    without_lane,
                    without_queue,
                    over,
                    over_at,
                    firsts,
                    filling,
                };
                return Ok((tx, sealed, answers));
            }
            Ok(_) => {
                Tx::end(connection).await;
                origin::renew(&shared.connections).await?;
            }
            // It had died in the pool, and nothing has been asked for yet.
            Err(Fault::Connection(error)) if error.is_closed() || connection.is_closed() => {
                connection.discard();
            }
            Err(fault) => {
                connection.discard();
                return Err(shared.fault(fault));
            }
        }
    }
    Err(StoreError::unavailable("every connection to PostgreSQL was lost; nothing was stored, try again")
        .into())
}

async fn open_on(connection: &Connection, shared: &Shared, requests: &[Request]) -> Result<Learned, Fault> {
    let named = shared.connections.mode() == StatementMode::Named;
    let with_others = connection.ready(&WITH_OTHERS).await?;
    let ready = connection.ready(if named { &BEGIN } else { &BEGIN_UNNAMED }).await?;
    let prepared = connection.all_ready(requests).await?;
    // Polled one after the other, so sent in this order.
    let (begun, locked, rows, answers) = futures_util::future::join4(
        connection.batch("BEGIN"),
        connection.send(&with_others, &[]),
        connection.send(&ready, &[]),
        connection.send_all(requests, &prepared),
    )
    .await;
    begun?;
    locked?;
    let rows = rows?;
    let row = rows.first().ok_or_else(|| error::unreadable("the table meta is empty"))?;
    let same_origin = get(row, 3)?;
    // Numbers of queues from another past may mean other queues in this one.
    if same_origin {
        shared.leases.are_of(get(row, 4)?, shared.connections.made());
    }
    let forgotten = same_origin && shared.queues.are_of(get(row, 4)?);
    let answers = (!forgotten).then_some(answers);
    Ok(Learned { now: store_time(row)?, sealed: get(row, 2)?, same_origin, answers })
}
