//! Append inside a caller's own transaction: the application's rows and the event are stored together or not at all.
//!
//! The event is only put aside: no lane is read or changed and nothing is checked to be unique, so a caller that takes its
//! time blocks nobody. Duplicates are dealt with when the event enters its lane (a duplicate is dropped and recorded, a
//! known id with another payload becomes a dead letter). The wake-up is part of the transaction, too: PostgreSQL sends it
//! when that commits.

use quell_core::aside::Aside;
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::event::NewEvent;
use quell_core::store::{AppendRequest, Receipt, unknown_source};
use tokio_postgres::Transaction;
use tokio_postgres::types::{ToSql, Type};

use crate::PostgresStore;
use crate::begin::WITH_OTHERS;
use crate::commit::{NEW_ASIDE, aside_values};
use crate::connection::{Connection, Sql, in_schema};
use crate::error::not_done;
use crate::queues::Fault;
use crate::rows::{count, get};
use crate::tx::store_time;

static NUMBER: Sql = Sql {
    text: "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, test_offset, sealed, nextval('quell.number')
           FROM quell.meta",
    types: &[],
};
static DECLARED: Sql = Sql { text: "SELECT 1 FROM quell.declaration WHERE name = $1", types: &[Type::TEXT] };
static COUNT: Sql = Sql {
    text: "INSERT INTO quell.queue_delta (queue_id, accepted, succeeded, dead, discarded, delayed, buffered, in_flight)
           VALUES ($1, 1, 0, 0, 0, 1, 0, 0)",
    types: &[Type::INT4],
};
static TELL: Sql = Sql { text: "SELECT pg_notify($1, $2)", types: &[Type::TEXT, Type::TEXT] };

/// What an event aside must keep to before it is accepted.
fn check(event: &NewEvent) -> StoreResult<()> {
    AppendRequest { events: vec![event.clone()], repeat: false }.check()?;
    if event.only_if_idle {
        let detail = "an event inside a transaction cannot ask for an idle lane: it enters its lane later";
        return Err(StoreError::new(ErrorKind::Invalid, detail));
    }
    Ok(())
}

impl PostgresStore {
    /// Adds an event to the caller's own open transaction on the store's database: it exists when that commits, and only
    /// then. Its number is given when it enters its lane, after the commit; workers are woken by the commit itself.
    ///
    /// The transaction may be on any connection to the same database, by whoever may write to the store's schema. How
    /// durable its commit is depends on that session's `synchronous_commit`. After an error of the server the
    /// transaction is over, as after any error in PostgreSQL: roll it back.
    pub async fn append_in(&self, transaction: &Transaction<'_>, event: &NewEvent) -> StoreResult<Receipt> {
        check(event)?;
        let queue = self.queue_of(event).await?;
        let schema = self.shared.connections.schema();
        let ask = async |sql: &'static Sql, values: &[&(dyn ToSql + Sync)]| {
            let typed: Vec<_> = values.iter().copied().zip(sql.types.iter().cloned()).collect();
            let text = in_schema(sql.text, schema);
            transaction.query_typed(&text, &typed).await.map_err(|e| not_done(&e))
        };
        // Whoever seals the store waits for this transaction, or gives up.
        ask(&WITH_OTHERS, &[]).await?;
        let rows = ask(&NUMBER, &[]).await?;
        let row = rows.first().ok_or_else(|| crate::error::unreadable("the table meta is empty"))?;
        if let Some(why) = get::<Option<String>>(row, 2)? {
            return Err(quell_core::copy::sealed(&why));
        }
        if let Some(name) = event.governed_by()
            && ask(&DECLARED, &[&name.as_str()]).await?.is_empty()
        {
            return Err(unknown_source(&event.lane, name));
        }
        let aside = Aside::new(count(row, 3)?, event.clone(), store_time(row)?);
        let values = aside_values(&[(queue, &aside)]);
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|v| &**v as _).collect();
        ask(&NEW_ASIDE, &values).await?;
        ask(&COUNT, &[&queue]).await?;
        // From nobody in particular, so that this process hears it, too.
        ask(&TELL, &[&self.shared.channel, &format!("/{}", aside.ready_at.as_millis())]).await?;
        Ok(Receipt {
            event_id: event.id.id().clone(),
            seq: None,
            run_id: None,
            duplicate: false,
            due_at: Some(aside.ready_at),
            state: None,
            met: None,
        })
    }

    /// The number of the event's queue. A queue that does not exist is made apart from the caller's transaction, because
    /// others who make it would have to wait for that.
    async fn queue_of(&self, event: &NewEvent) -> StoreResult<i32> {
        let names = (event.lane.tenant.clone(), event.lane.queue.clone());
        let queues = &self.shared.queues;
        if let Some(known) = queues.get(&names) {
            return Ok(known.id);
        }
        let connection: Connection = self.shared.connections.get().await?;
        let fault = |fault| match fault {
            Fault::Connection(error) => not_done(&error),
            Fault::Store(error) => error,
        };
        let (made, _) = queues.make(&connection, &[&names]).await.map_err(fault)?;
        for (names, known) in made {
            queues.put(names, known);
        }
        let known = queues.get(&names);
        Ok(known.ok_or_else(|| StoreError::unavailable("the queue could not be made; try again"))?.id)
    }
}
