//! Tables of applications in the store's file: written on the writer thread, read on connections of their own.
//!
//! A write is a closure of `transact.rs`, so it has that file's time limit and its guard: an application cannot commit
//! half of anything, and cannot keep the writer from others for longer than a transaction may take.

use std::sync::Arc;

use async_trait::async_trait;
use quell_core::error::{StoreError, StoreResult};
use quell_core::tables::{Cell, Dialect, Row, Statement, Tables, newer_tables};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, ToSql, params_from_iter};

use crate::SqliteStore;
use crate::error::not_done;
use crate::transact::{TRANSACTION_MAX, TransactionError};

/// The text as this database has it: one schema, and numbered values with a question mark.
fn spelled(sql: &str) -> String {
    sql.replace("quell.", "").replace('$', "?")
}

struct Bound<'a>(&'a Cell);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Cell::Null => ValueRef::Null,
            Cell::Int(value) => ValueRef::Integer(*value),
            Cell::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

fn cell(value: ValueRef<'_>) -> StoreResult<Cell> {
    match value {
        ValueRef::Null => Ok(Cell::Null),
        ValueRef::Integer(value) => Ok(Cell::Int(value)),
        ValueRef::Text(bytes) => Ok(Cell::Text(String::from_utf8_lossy(bytes).into_owned())),
        ValueRef::Real(_) | ValueRef::Blob(_) => Err(StoreError::new(
            quell_core::error::ErrorKind::Invalid,
            "an application's columns are numbers without fraction and texts; cast the value in the query",
        )),
    }
}

fn write(connection: &Connection, statements: &[Statement]) -> StoreResult<Vec<u64>> {
    let run = |statement: &Statement| -> rusqlite::Result<u64> {
        let mut prepared = connection.prepare_cached(&spelled(&statement.sql))?;
        let mut changed = 0;
        for values in &statement.rows {
            changed += prepared.execute(params_from_iter(values.iter().map(Bound)))? as u64;
        }
        Ok(changed)
    };
    let mut all = Vec::with_capacity(statements.len());
    for statement in statements {
        let changed = run(statement).map_err(|e| explained(&e))?;
        statement.check_changed(changed)?;
        all.push(changed);
    }
    Ok(all)
}

fn read(connection: &Connection, query: &Statement) -> StoreResult<Vec<Row>> {
    let mut prepared = connection.prepare_cached(&spelled(&query.sql)).map_err(|e| explained(&e))?;
    let width = prepared.column_count();
    let mut found = Vec::new();
    for values in &query.rows {
        let mut rows =
            prepared.query(params_from_iter(values.iter().map(Bound))).map_err(|e| explained(&e))?;
        while let Some(row) = rows.next().map_err(|e| explained(&e))? {
            let read = |column| cell(row.get_ref(column).map_err(|e| explained(&e))?);
            found.push(Row((0..width).map(read).collect::<StoreResult<_>>()?));
        }
    }
    Ok(found)
}

/// A mistake in the statement, such as a search that is no query, is the caller's and not the file's.
fn explained(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        None | Some(rusqlite::ErrorCode::Unknown | rusqlite::ErrorCode::ConstraintViolation) => {
            let detail = format!("SQLite refuses a statement of an application: {error}");
            StoreError::new(quell_core::error::ErrorKind::Invalid, detail)
        }
        Some(_) => not_done(error),
    }
}

fn migrate(connection: &Connection, application: &str, migrations: &[&str]) -> StoreResult<()> {
    let known = version(connection, application)?;
    let done = usize::try_from(known).ok().filter(|done| *done <= migrations.len());
    let done = done.ok_or_else(|| newer_tables(application, known, migrations.len()))?;
    for migration in &migrations[done..] {
        connection.execute_batch(&spelled(migration)).map_err(|e| explained(&e))?;
    }
    let sql = "INSERT INTO application (name, version) VALUES (?1, ?2)
               ON CONFLICT (name) DO UPDATE SET version = excluded.version";
    connection.execute(sql, (application, migrations.len())).map_err(|e| not_done(&e))?;
    Ok(())
}

fn version(connection: &Connection, application: &str) -> StoreResult<i64> {
    let sql = "SELECT version FROM application WHERE name = ?1";
    let found = connection.query_row(sql, [application], |row| row.get(0)).optional();
    Ok(found.map_err(|e| not_done(&e))?.unwrap_or(0))
}

fn flat<T>(done: Result<T, TransactionError<StoreError>>) -> StoreResult<T> {
    done.map_err(|error| match error {
        TransactionError::Closure(error) | TransactionError::Store(error) => error,
    })
}

impl SqliteStore {
    async fn migrate_tables(
        &self,
        application: &'static str,
        migrations: &[&'static str],
        passes_seal: bool,
    ) -> StoreResult<()> {
        let known = self.read(move |connection| version(connection, application)).await?;
        if usize::try_from(known).is_ok_and(|known| known == migrations.len()) {
            return Ok(());
        }
        let migrations = migrations.to_vec();
        let work = move |connection: &Connection, _: &mut _| migrate(connection, application, &migrations);
        flat(self.transact(TRANSACTION_MAX, passes_seal, work).await)
    }

    async fn write_tables(&self, statements: Vec<Statement>, passes_seal: bool) -> StoreResult<Vec<u64>> {
        let work = move |connection: &Connection, _: &mut _| write(connection, &statements);
        flat(self.transact(TRANSACTION_MAX, passes_seal, work).await)
    }
}

#[async_trait]
impl Tables for SqliteStore {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    async fn migrate(&self, application: &'static str, migrations: &[&'static str]) -> StoreResult<()> {
        self.migrate_tables(application, migrations, false).await
    }

    async fn write(&self, statements: Vec<Statement>) -> StoreResult<Vec<u64>> {
        self.write_tables(statements, false).await
    }

    async fn read(&self, query: Statement) -> StoreResult<Vec<Row>> {
        SqliteStore::read(self, move |connection| read(connection, &query)).await
    }
}

/// The same tables for a copy, which works on sealed stores.
pub(crate) struct PastSeal(pub(crate) Arc<SqliteStore>);

#[async_trait]
impl Tables for PastSeal {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    async fn migrate(&self, application: &'static str, migrations: &[&'static str]) -> StoreResult<()> {
        self.0.migrate_tables(application, migrations, true).await
    }

    async fn write(&self, statements: Vec<Statement>) -> StoreResult<Vec<u64>> {
        self.0.write_tables(statements, true).await
    }

    async fn read(&self, query: Statement) -> StoreResult<Vec<Row>> {
        Tables::read(&*self.0, query).await
    }
}
