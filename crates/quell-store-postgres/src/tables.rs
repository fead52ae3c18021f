//! Tables of applications in the store's schema: each write one transaction on a connection of the pool.
//!
//! Statements are sent whole with the types of their values, thirty at a time in one round trip, so they work through
//! poolers, too. The store's own connections are told to go by indexes and never by bitmaps ([`connection.rs`]), which is
//! right for lanes and wrong for a full-text index: a transaction of an application plans as PostgreSQL would by itself.
//! A sealed store takes no write of an application either, except those of a copy ([`PastSeal`]).

use std::error::Error as StdError;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::tables::{Cell, Dialect, Row, Statement, Tables, newer_tables};
use quell_store_rows::rows::Trouble;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Error, error::SqlState};

use crate::PostgresStore;
use crate::begin::WITH_OTHERS;
use crate::connection::Connection;
use crate::error::{at_commit, cause, not_done};

/// Statements that travel together; more are not sent in their order (see `Connection::together`).
const TOGETHER: usize = 30;
const BEGIN: &str = "BEGIN; SET LOCAL enable_bitmapscan = on; SET LOCAL enable_seqscan = on; \
    SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on; SET LOCAL random_page_cost = 1.1";

#[derive(Debug)]
struct Bound<'a>(&'a Cell);

impl Bound<'_> {
    /// The server finds out by itself what a NULL is.
    fn kind(&self) -> Type {
        match self.0 {
            Cell::Null => Type::UNKNOWN,
            Cell::Int(_) => Type::INT8,
            Cell::Text(_) => Type::TEXT,
        }
    }
}

impl ToSql for Bound<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match self.0 {
            Cell::Null => Ok(IsNull::Yes),
            Cell::Int(value) => value.to_sql(kind, out),
            Cell::Text(text) => text.to_sql(kind, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

struct Read(Cell);

impl<'a> FromSql<'a> for Read {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Read(match *kind {
            Type::INT8 => Cell::Int(i64::from_sql(kind, raw)?),
            Type::INT4 => Cell::Int(i64::from(i32::from_sql(kind, raw)?)),
            Type::BOOL => Cell::Int(i64::from(bool::from_sql(kind, raw)?)),
            _ => Cell::Text(String::from_sql(kind, raw)?),
        }))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Read(Cell::Null))
    }

    fn accepts(kind: &Type) -> bool {
        [Type::INT8, Type::INT4, Type::BOOL].contains(kind) || <String as FromSql<'_>>::accepts(kind)
    }
}

/// A mistake in the statement is the caller's and not the schema's.
fn explained(error: &Error) -> StoreError {
    match error.code() {
        // Classes 22, 23 and 42: values, constraints, and the statement itself.
        Some(code)
            if ["22", "23", "42"].iter().any(|class| code.code().starts_with(class))
                && code != &SqlState::INSUFFICIENT_PRIVILEGE =>
        {
            let said = cause(error);
            StoreError::new(
                ErrorKind::Invalid,
                format!("PostgreSQL refuses a statement of an application: {said}"),
            )
        }
        _ => not_done(error),
    }
}

async fn run(connection: &Connection, statements: &[Statement]) -> StoreResult<Vec<u64>> {
    let mut all = Vec::with_capacity(statements.len());
    for statement in statements {
        let text = connection.own_text(&statement.sql);
        let mut changed = 0;
        for rows in statement.rows.chunks(TOGETHER) {
            let values: Vec<Vec<Bound<'_>>> =
                rows.iter().map(|row| row.iter().map(Bound).collect()).collect();
            let sent = values.iter().map(|row| {
                let typed: Vec<(&(dyn ToSql + Sync), Type)> =
                    row.iter().map(|value| (value as _, value.kind())).collect();
                let text = &text;
                async move { connection.change(text, &typed).await }
            });
            for answer in join_all(sent).await {
                changed += answer.map_err(|e| explained(&e))?;
            }
        }
        statement.check_changed(changed)?;
        all.push(changed);
    }
    Ok(all)
}

async fn find(connection: &Connection, query: &Statement) -> StoreResult<Vec<Row>> {
    let text = connection.own_text(&query.sql);
    let mut found = Vec::new();
    for row in &query.rows {
        let values: Vec<Bound<'_>> = row.iter().map(Bound).collect();
        let typed: Vec<(&(dyn ToSql + Sync), Type)> =
            values.iter().map(|value| (value as _, value.kind())).collect();
        for row in connection.ask(&text, &typed).await.map_err(|e| explained(&e))? {
            let cells = (0..row.len()).map(|column| row.try_get::<_, Read>(column).map(|read| read.0));
            found.push(Row(cells.collect::<Result<_, _>>().map_err(|e| explained(&e))?));
        }
    }
    Ok(found)
}

async fn commit(connection: &Connection) -> StoreResult<()> {
    connection.batch("COMMIT").await.map_err(|error| match at_commit(&error) {
        Trouble::Store(error) => error,
        Trouble::Again => not_done(&error),
    })
}

impl PostgresStore {
    async fn begin(&self) -> StoreResult<Connection> {
        let connection = self.shared.connections.get().await?;
        connection.batch(BEGIN).await.map_err(|e| not_done(&e))?;
        Ok(connection)
    }
}

/// Whoever seals the store waits for this transaction, or it finds the seal.
async fn unsealed(connection: &Connection) -> StoreResult<()> {
    let lock = connection.own_text(WITH_OTHERS.text);
    connection.ask(&lock, &[]).await.map_err(|e| not_done(&e))?;
    let rows = find(connection, &Statement::new("SELECT sealed FROM quell.meta", [])).await?;
    match rows.first().map_or(Ok(None), |row| row.maybe_text(0))? {
        Some(by) => Err(quell_core::copy::sealed(&by)),
        None => Ok(()),
    }
}

async fn migrate(
    connection: &Connection,
    application: &str,
    migrations: &[&'static str],
    seal: Seal,
) -> StoreResult<()> {
    // Whoever comes second waits here, and finds the work done.
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended('quell tables of quell.', 0))::text";
    find(connection, &Statement::new(lock, [])).await?;
    let sql = "SELECT version FROM quell.application WHERE name = $1";
    let rows = find(connection, &Statement::new(sql, [application.into()])).await?;
    let known = rows.first().map_or(Ok(0), |row| row.int(0))?;
    let done = usize::try_from(known).ok().filter(|done| *done <= migrations.len());
    let done = done.ok_or_else(|| newer_tables(application, known, migrations.len()))?;
    if done == migrations.len() {
        return Ok(());
    }
    if seal == Seal::Heeded {
        unsealed(connection).await?;
    }
    for migration in &migrations[done..] {
        let text = connection.own_text(migration);
        connection.batch(&text).await.map_err(|e| explained(&e))?;
    }
    let sql = "INSERT INTO quell.application (name, version) VALUES ($1, $2)
               ON CONFLICT (name) DO UPDATE SET version = excluded.version";
    let version = i64::try_from(migrations.len()).unwrap_or(i64::MAX);
    run(connection, &[Statement::new(sql, [application.into(), version.into()])]).await?;
    Ok(())
}

/// Whether a seal stops a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seal {
    Heeded,
    /// It is that of the copy that writes.
    Own,
}

impl PostgresStore {
    async fn migrate_tables(
        &self,
        application: &str,
        migrations: &[&'static str],
        seal: Seal,
    ) -> StoreResult<()> {
        let connection = self.begin().await?;
        // A connection that is dropped inside a transaction is closed, which rolls it back.
        migrate(&connection, application, migrations, seal).await?;
        commit(&connection).await
    }

    async fn write_tables(&self, statements: &[Statement], seal: Seal) -> StoreResult<Vec<u64>> {
        let connection = self.begin().await?;
        let written = async {
            if seal == Seal::Heeded {
                unsealed(&connection).await?;
            }
            run(&connection, statements).await
        };
        match written.await {
            Ok(changed) => commit(&connection).await.map(|()| changed),
            Err(error) => {
                if connection.batch("ROLLBACK").await.is_err() {
                    connection.discard();
                }
                Err(error)
            }
        }
    }
}

#[async_trait]
impl Tables for PostgresStore {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    async fn migrate(&self, application: &'static str, migrations: &[&'static str]) -> StoreResult<()> {
        self.migrate_tables(application, migrations, Seal::Heeded).await
    }

    async fn write(&self, statements: Vec<Statement>) -> StoreResult<Vec<u64>> {
        self.write_tables(&statements, Seal::Heeded).await
    }

    async fn read(&self, query: Statement) -> StoreResult<Vec<Row>> {
        let connection = self.begin().await?;
        let found = find(&connection, &query).await;
        if connection.batch("ROLLBACK").await.is_err() {
            connection.discard();
        }
        found
    }
}

/// The same tables for a copy, which works on sealed stores.
pub(crate) struct PastSeal(pub(crate) Arc<PostgresStore>);

#[async_trait]
impl Tables for PastSeal {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    async fn migrate(&self, application: &'static str, migrations: &[&'static str]) -> StoreResult<()> {
        self.0.migrate_tables(application, migrations, Seal::Own).await
    }

    async fn write(&self, statements: Vec<Statement>) -> StoreResult<Vec<u64>> {
        self.0.write_tables(&statements, Seal::Own).await
    }

    async fn read(&self, query: Statement) -> StoreResult<Vec<Row>> {
        self.0.read(query).await
    }
}
