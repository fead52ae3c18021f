//! Forward-only migrations, one process at a time, and the checks that the schema is ours and of our version.

use quell_core::error::{ErrorKind, StoreError, StoreResult};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use crate::connection::{Connection, Connections, Sql};
use crate::error::{cause, not_done};
use crate::options::Options;
use crate::origin::origin;
use crate::rows::get;

const MIGRATIONS: [&str; 7] = [
    include_str!("../migrations/0001_engine.sql"),
    include_str!("../migrations/0002_sources.sql"),
    include_str!("../migrations/0003_shelves.sql"),
    include_str!("../migrations/0004_tables.sql"),
    include_str!("../migrations/0005_room.sql"),
    include_str!("../migrations/0006_lease_groups.sql"),
    include_str!("../migrations/0007_first_events.sql"),
];

/// The schema this program works with.
pub(crate) const VERSION: u32 = 7;
const _: () = assert!(MIGRATIONS.len() == VERSION as usize);

/// Asked of the tables and not by `to_regnamespace`, which may answer from before somebody else's commit.
static FOUND: Sql = Sql {
    text: "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1),
                  EXISTS (SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                          WHERE n.nspname = $1 AND c.relname = 'meta')",
    types: &[Type::TEXT],
};
static READ_VERSION: Sql = Sql { text: "SELECT version FROM quell.meta", types: &[] };

/// Brings the schema to [`VERSION`], or refuses it.
pub(crate) async fn migrate(connections: &Connections, options: &Options) -> StoreResult<()> {
    let connection = connections.get().await?;
    if version(&connection, options).await.map_err(|e| explained(&e, options))? == Some(VERSION) {
        return Ok(());
    }
    let done = change(&connection, options).await;
    if done.is_err() && connection.batch("ROLLBACK").await.is_err() {
        connection.discard();
    }
    done
}

/// The version of the schema, if there is one of ours.
async fn version(connection: &Connection, options: &Options) -> Result<Option<u32>, Error> {
    let found = connection.query(&FOUND, &[&options.schema]).await?;
    let ours: bool = found.first().map_or(Ok(false), |row| row.try_get(1))?;
    if !ours {
        return Ok(None);
    }
    let rows = connection.query(&READ_VERSION, &[]).await?;
    let version: i32 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
    Ok(u32::try_from(version).ok())
}

async fn change(connection: &Connection, options: &Options) -> StoreResult<()> {
    let schema = &options.schema;
    let failed = |e: &Error| explained(e, options);
    // Whoever comes second waits here, and finds the work done.
    let begin = format!(
        "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('quell migrations of {schema}', 0)); \
         SET LOCAL lock_timeout = 5000"
    );
    connection.batch(&begin).await.map_err(|e| failed(&e))?;
    let found = connection.query(&FOUND, &[schema]).await.map_err(|e| failed(&e))?;
    let exists: bool = found.first().map_or(Ok(false), |row| get(row, 0))?;
    let known = version(connection, options).await.map_err(|e| failed(&e))?;
    if known.is_some_and(|known| known > VERSION) {
        let known = known.unwrap_or_default();
        return Err(StoreError::new(
            ErrorKind::Corrupt,
            format!(
                "schema {schema} of database {} has version {known} and this Quell knows up to {VERSION}; start a newer Quell",
                options.database()
            ),
        ));
    }
    if !exists {
        connection.batch(&format!("CREATE SCHEMA {schema}")).await.map_err(|e| failed(&e))?;
    }
    let done = usize::try_from(known.unwrap_or(0)).unwrap_or(usize::MAX);
    for migration in MIGRATIONS.iter().skip(done) {
        connection.batch(&connection.text(migration)).await.map_err(|e| failed(&e))?;
    }
    // Tables that were made just now have no past.
    let fresh = connection.text(concat!("UPDATE quell.meta SET origin = ", origin!(), " WHERE version = 0"));
    connection.batch(&fresh).await.map_err(|e| failed(&e))?;
    let stamp = format!("UPDATE {schema}.meta SET version = {VERSION}; COMMIT");
    connection.batch(&stamp).await.map_err(|e| failed(&e))
}

/// Why the schema could not be read or made.
fn explained(error: &Error, options: &Options) -> StoreError {
    let (schema, user, database) = (&options.schema, options.user(), options.database());
    let invalid = |detail: String| StoreError::new(ErrorKind::Invalid, detail);
    match error.code() {
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => invalid(format!(
            "user {user} lacks a right on schema {schema} of database {database} ({}); let an administrator run CREATE \
             SCHEMA {schema} AUTHORIZATION {user}, or GRANT CREATE ON DATABASE {database} TO {user}",
            cause(error)
        )),
        Some(&SqlState::DUPLICATE_TABLE | &SqlState::DUPLICATE_OBJECT | &SqlState::UNDEFINED_COLUMN) => {
            invalid(format!(
                "schema {schema} of database {database} belongs to another program ({}); name another with schema= in the \
                 URL",
                cause(error)
            ))
        }
        _ => not_done(error),
    }
}
