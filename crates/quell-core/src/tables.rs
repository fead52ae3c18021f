//! Tables of an application in the store's own database: the small interface that applications keep their data by.
//!
//! An application on SQLite or PostgreSQL has tables beside the lanes, so that one backup holds everything and nothing
//! else has to be set up. It sees no driver: a statement is text with values, and the text is the same on both databases
//! wherever they agree. Tables are named with the schema, `quell.chat_message`, and with the application's prefix, so that
//! no later version of Quell can want the name; values are `$1`, `$2`, …. Columns are `bigint` (or SQLite's `INTEGER`)
//! and `text`; what is true or false is 0 or 1.
//!
//! A store without tables (Redis, memory) has none to give ([`Store::tables`](crate::store::Store::tables)), and an
//! application that needs them says so when it starts. On Redis there are [`keys`](crate::keys) instead.

use std::borrow::Cow;

use async_trait::async_trait;

use crate::error::{ErrorKind, StoreError, StoreResult};

/// Where the SQL of the databases differs, an application asks which it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// With the words of SQLite.
    Sqlite,
    /// With the words of PostgreSQL.
    Postgres,
}

/// One value of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// Nothing.
    Null,
    /// A whole number; also truth, as 0 and 1, and time, as milliseconds.
    Int(i64),
    /// Text; also JSON.
    Text(String),
}

impl From<i64> for Cell {
    fn from(value: i64) -> Self {
        Cell::Int(value)
    }
}

impl From<bool> for Cell {
    fn from(value: bool) -> Self {
        Cell::Int(i64::from(value))
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Self {
        Cell::Text(value)
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Self {
        Cell::Text(value.to_owned())
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Cell::Null, Into::into)
    }
}

/// A row that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row(pub Vec<Cell>);

impl Row {
    /// A number that must be there.
    pub fn int(&self, column: usize) -> StoreResult<i64> {
        match self.0.get(column) {
            Some(Cell::Int(value)) => Ok(*value),
            other => Err(unexpected(column, "a number", other)),
        }
    }

    /// A text that must be there.
    pub fn text(&self, column: usize) -> StoreResult<String> {
        match self.0.get(column) {
            Some(Cell::Text(value)) => Ok(value.clone()),
            other => Err(unexpected(column, "a text", other)),
        }
    }

    /// A whole number that may be missing.
    pub fn maybe_int(&self, column: usize) -> StoreResult<Option<i64>> {
        match self.0.get(column) {
            Some(Cell::Null) => Ok(None),
            _ => self.int(column).map(Some),
        }
    }

    /// A text that may be missing.
    pub fn maybe_text(&self, column: usize) -> StoreResult<Option<String>> {
        match self.0.get(column) {
            Some(Cell::Null) => Ok(None),
            _ => self.text(column).map(Some),
        }
    }

    /// A whole number that stands for truth.
    pub fn flag(&self, column: usize) -> StoreResult<bool> {
        self.int(column).map(|value| value != 0)
    }
}

/// Never shows the value: it may be anything that a user wrote.
fn unexpected(column: usize, wanted: &str, found: Option<&Cell>) -> StoreError {
    let found = match found {
        None => "nothing",
        Some(Cell::Null) => "NULL",
        Some(Cell::Int(_)) => "a number",
        Some(Cell::Text(_)) => "a text",
    };
    StoreError::new(ErrorKind::Corrupt, format!("column {column} has {found} where {wanted} belongs"))
}

/// A statement and the rows of values that it is run with, once for each.
#[derive(Debug, Clone)]
pub struct Statement {
    /// With `$1`, `$2`, … for the cells of a row.
    pub sql: Cow<'static, str>,
    /// Each is one execution.
    pub rows: Vec<Vec<Cell>>,
    /// How many rows it must change; otherwise nothing of the transaction is stored ([`ErrorKind::Conflict`]).
    pub must_change: Option<u64>,
}

impl Statement {
    /// With one row of values.
    pub fn new(sql: impl Into<Cow<'static, str>>, values: impl IntoIterator<Item = Cell>) -> Self {
        Statement { sql: sql.into(), rows: vec![values.into_iter().collect()], must_change: None }
    }

    /// Run once for each row.
    pub fn many(sql: impl Into<Cow<'static, str>>, rows: Vec<Vec<Cell>>) -> Self {
        Statement { sql: sql.into(), rows, must_change: None }
    }

    /// Nothing of the transaction is stored unless the statement changes just this many rows.
    #[must_use]
    pub fn changing(self, rows: u64) -> Self {
        Statement { must_change: Some(rows), ..self }
    }

    /// Refuses a change that came out differently than it must.
    pub fn check_changed(&self, changed: u64) -> StoreResult<()> {
        match self.must_change {
            Some(wanted) if wanted != changed => Err(StoreError::new(
                ErrorKind::Conflict,
                format!(
                    "a statement changed {changed} rows and not {wanted}: somebody else was first; nothing was stored"
                ),
            )),
            _ => Ok(()),
        }
    }
}

/// Tables of applications. Every write is one transaction, durable before it answers.
#[async_trait]
pub trait Tables: Send + Sync + 'static {
    /// Whose words statements are written in.
    fn dialect(&self) -> Dialect;

    /// Brings the tables of an application to the last of its migrations, each of which is applied once, in order, by one
    /// process at a time. Refuses tables of a newer version of the application.
    async fn migrate(&self, application: &'static str, migrations: &[&'static str]) -> StoreResult<()>;

    /// Runs statements in one transaction: all of them or none. Says how many rows each has changed.
    async fn write(&self, statements: Vec<Statement>) -> StoreResult<Vec<u64>>;

    /// Reads rows; with several rows of values, the rows of all of them one after the other.
    async fn read(&self, query: Statement) -> StoreResult<Vec<Row>>;
}

/// Why the tables of an application are not touched.
pub fn newer_tables(application: &str, found: i64, known: usize) -> StoreError {
    let detail = format!(
        "the tables of {application} have version {found} and this Quell knows up to {known}; start a newer Quell"
    );
    StoreError::new(ErrorKind::Corrupt, detail)
}
