//! What applications keep beside the lanes goes along with a copy.
//!
//! An application says which tables it has, and how it keeps the same rows in keys, if it does. Its rows are copied when
//! the source is sealed, in the order of their keys and a page at a time; after each page the target keeps the place. A
//! page that is put in place twice is there once.
//!
//! Two databases do not sort texts alike. So the rows of a table are compared as a set: by their count, and by the sum of
//! the SHA-256 of each row, in which no two rows are alike because each has a key of its own.

use std::sync::Arc;

use async_trait::async_trait;
use quell_core::copy::{Applications, Portable};
use quell_core::error::StoreResult;
use quell_core::keys::Keys;
use quell_core::tables::{Cell, Dialect, Row, Statement, Tables, newer_tables};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Copier, CopyError, Phase, Place};

/// Rows of one page. A line of a transcript may have megabytes, and a page is in memory at once.
const PAGE_ROWS: usize = 64;

/// One table of an application.
#[derive(Debug)]
pub struct Table {
    /// With the application's prefix: `chat_entry`.
    pub name: &'static str,
    /// Whole numbers and texts; those of the key come first.
    pub columns: &'static [&'static str],
    /// So many columns make the key.
    pub key: usize,
    /// The key is a number that PostgreSQL gives by itself.
    pub numbered: bool,
}

/// What an application keeps, for a copy.
pub trait Application: Send + Sync {
    /// As its migrations know it.
    fn name(&self) -> &'static str;

    /// All of its tables.
    fn tables(&self) -> &'static [Table];

    /// What makes its tables.
    fn migrations(&self, dialect: Dialect) -> &'static [&'static str];

    /// The same rows in keys, on a store that has no tables. Nothing when the application needs tables.
    fn in_keys(&self, keys: Arc<dyn Keys>) -> Option<Arc<dyn Rows>> {
        let _ = keys;
        None
    }
}

/// Rows of tables, wherever they are kept.
#[async_trait]
pub trait Rows: Send + Sync {
    /// Rows in an order of their keys that stays the same, those after `after`; at most `most`.
    async fn page(&self, table: &'static Table, after: Option<&[Cell]>, most: usize)
    -> StoreResult<Vec<Row>>;

    /// Puts rows in place, all or none. What is there under the same key stays as it is.
    async fn put(&self, table: &'static Table, rows: Vec<Row>) -> StoreResult<()>;
}

/// What an application keeps on both sides of a copy.
pub struct Belongings {
    application: &'static str,
    tables: &'static [Table],
    from: Arc<dyn Rows>,
    /// Nothing when the target has no place for it.
    to: Option<Arc<dyn Rows>>,
}

impl Belongings {
    /// Those of the applications that have ever kept anything in the source. Their tables are made in the target, which is
    /// empty as far as the copy is concerned.
    pub async fn find(
        applications: &[&dyn Application],
        from: &Arc<dyn Portable>,
        to: &Arc<dyn Portable>,
    ) -> StoreResult<Vec<Belongings>> {
        let mut found = Vec::new();
        for application in applications {
            let Some(source) = open(*application, from, false).await? else { continue };
            let to = open(*application, to, true).await?;
            let (application, tables) = (application.name(), application.tables());
            found.push(Belongings { application, tables, from: source, to });
        }
        Ok(found)
    }
}

async fn open(
    application: &dyn Application,
    store: &Arc<dyn Portable>,
    make: bool,
) -> StoreResult<Option<Arc<dyn Rows>>> {
    let tables = match store.clone().applications() {
        Applications::Nowhere => return Ok(None),
        Applications::Keys(keys) => return Ok(application.in_keys(keys)),
        Applications::Tables(tables) => tables,
    };
    let (name, migrations) = (application.name(), application.migrations(tables.dialect()));
    let sql = "SELECT version FROM quell.application WHERE name = $1";
    let versions = tables.read(Statement::new(sql, [name.into()])).await?;
    let version = versions.first().map_or(Ok(0), |row| row.int(0))?;
    if version == 0 && !make {
        return Ok(None);
    }
    if usize::try_from(version).is_ok_and(|version| version > migrations.len()) {
        return Err(newer_tables(name, version, migrations.len()));
    }
    tables.migrate(name, migrations).await?;
    Ok(Some(Arc::new(InTables(tables))))
}

/// Rows where they are rows.
struct InTables(Arc<dyn Tables>);

/// `$1, $2, …`, so many of them.
fn values(count: usize) -> String {
    (1..=count).map(|n| format!("${n}")).collect::<Vec<_>>().join(", ")
}

fn select(table: &Table, from_place: bool, most: usize) -> String {
    let (name, columns) = (table.name, table.columns.join(", "));
    let key = table.columns[..table.key].join(", ");
    let after = if from_place { format!(" WHERE ({key}) > ({})", values(table.key)) } else { String::new() };
    format!("SELECT {columns} FROM quell.{name}{after} ORDER BY {key} LIMIT {most}")
}

fn insert(table: &Table, dialect: Dialect) -> String {
    let (name, columns) = (table.name, table.columns.join(", "));
    let key = table.columns[..table.key].join(", ");
    let own = if table.numbered && dialect == Dialect::Postgres { " OVERRIDING SYSTEM VALUE" } else { "" };
    let values = values(table.columns.len());
    format!("INSERT INTO quell.{name} ({columns}){own} VALUES ({values}) ON CONFLICT ({key}) DO NOTHING")
}

/// Numbers that PostgreSQL gives go on after those that were put in place.
fn count_on(table: &Table) -> String {
    let (name, key) = (table.name, table.columns[0]);
    format!(
        "SELECT setval(pg_get_serial_sequence('quell.{name}', '{key}'), (SELECT max({key}) FROM quell.{name}))"
    )
}

#[async_trait]
impl Rows for InTables {
    async fn page(
        &self,
        table: &'static Table,
        after: Option<&[Cell]>,
        most: usize,
    ) -> StoreResult<Vec<Row>> {
        let sql = select(table, after.is_some(), most);
        self.0.read(Statement::new(sql, after.unwrap_or_default().to_vec())).await
    }

    async fn put(&self, table: &'static Table, rows: Vec<Row>) -> StoreResult<()> {
        let dialect = self.0.dialect();
        let rows = rows.into_iter().map(|row| row.0).collect();
        let mut statements = vec![Statement::many(insert(table, dialect), rows)];
        if table.numbered && dialect == Dialect::Postgres {
            statements.push(Statement::new(count_on(table), []));
        }
        self.0.write(statements).await.map(drop)
    }
}

/// How far the copy of what applications keep is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AppPlace {
    /// Tables that are copied.
    done: Vec<String>,
    /// The key of the last row that was copied of the next.
    after: Option<Vec<serde_json::Value>>,
}

fn to_json(cells: &[Cell]) -> Vec<serde_json::Value> {
    cells
        .iter()
        .map(|cell| match cell {
            Cell::Null => serde_json::Value::Null,
            Cell::Int(number) => (*number).into(),
            Cell::Text(text) => text.as_str().into(),
        })
        .collect()
}

fn from_json(values: &[serde_json::Value]) -> Vec<Cell> {
    values
        .iter()
        .map(|value| match value {
            serde_json::Value::String(text) => Cell::Text(text.clone()),
            value => value.as_i64().map_or(Cell::Null, Cell::Int),
        })
        .collect()
}

/// What was copied of one table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CopiedTable {
    /// Its name.
    pub table: &'static str,
    /// Rows in the target; the source has as many.
    pub rows: u64,
    /// The sum of the SHA-256 of all rows, the same on both sides.
    pub sha256: String,
}

/// A set of rows: how many, and the sum of their digests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Set {
    rows: u64,
    sum: [u64; 4],
}

impl Set {
    fn add(&mut self, row: &Row) {
        self.rows += 1;
        let bytes = serde_json::to_vec(&to_json(&row.0)).expect("numbers and texts always have a form");
        let digest = Sha256::digest(bytes);
        for (sum, part) in self.sum.iter_mut().zip(digest.chunks_exact(8)) {
            *sum = sum.wrapping_add(part.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
        }
    }

    fn hex(&self) -> String {
        self.sum.iter().map(|part| format!("{part:016x}")).collect()
    }
}

async fn all(rows: &dyn Rows, table: &'static Table) -> StoreResult<Set> {
    let mut set = Set::default();
    let mut after: Option<Vec<Cell>> = None;
    loop {
        let page = rows.page(table, after.as_deref(), PAGE_ROWS).await?;
        page.iter().for_each(|row| set.add(row));
        let Some(last) = page.last() else { return Ok(set) };
        after = Some(last.0[..table.key].to_vec());
    }
}

impl Copier<'_> {
    /// Before anything is copied: there is a place for everything, and nothing in it.
    pub(super) async fn check_belongings(&self, belongings: &[Belongings]) -> Result<(), CopyError> {
        for Belongings { application, tables, from, to } in belongings {
            for table in *tables {
                let Some(to) = to else {
                    if !self.read(from.page(table, None, 1).await)?.is_empty() {
                        return Err(self.refused(format!(
                            "{application} keeps rows in {}, and the target has no place for them; choose SQLite or \
                             PostgreSQL",
                            table.name
                        )));
                    }
                    continue;
                };
                if !self.wrote(to.page(table, None, 1).await)?.is_empty() {
                    return Err(self.not_empty(format!("{application} has rows in {}", table.name)));
                }
            }
        }
        Ok(())
    }

    pub(super) async fn copy_belongings(
        &mut self,
        belongings: &[Belongings],
        place: &mut Place,
    ) -> Result<(), CopyError> {
        let mut done = 0;
        for Belongings { tables, from, to, .. } in belongings {
            let Some(to) = to else { continue };
            for table in *tables {
                if place.applications.done.iter().any(|name| name == table.name) {
                    continue;
                }
                let mut after = place.applications.after.as_deref().map(from_json);
                loop {
                    let page = self.read(from.page(table, after.as_deref(), PAGE_ROWS).await)?;
                    let Some(last) = page.last() else { break };
                    let key = last.0[..table.key].to_vec();
                    done += page.len() as u64;
                    self.wrote(to.put(table, page).await)?;
                    place.applications.after = Some(to_json(&key));
                    after = Some(key);
                    self.keep(place).await?;
                    self.tell(Phase::Applications, done, done);
                }
                place.applications.done.push(table.name.to_owned());
                place.applications.after = None;
                self.keep(place).await?;
            }
        }
        Ok(())
    }

    /// Reads both sides.
    pub(super) async fn verify_belongings(
        &mut self,
        belongings: &[Belongings],
    ) -> Result<Vec<CopiedTable>, CopyError> {
        let (mut copied, mut differ) = (Vec::new(), Vec::new());
        for Belongings { tables, from, to, .. } in belongings {
            let Some(to) = to else { continue };
            for table in *tables {
                let (one, other) = (all(&**from, table).await, all(&**to, table).await);
                let (one, other) = (self.read(one)?, self.wrote(other)?);
                if one.rows != other.rows {
                    differ.push(format!("it has {} rows in {} and not {}", other.rows, table.name, one.rows));
                } else if one != other {
                    differ.push(format!("the rows of {} differ", table.name));
                }
                copied.push(CopiedTable { table: table.name, rows: one.rows, sha256: one.hex() });
            }
        }
        if differ.is_empty() {
            Ok(copied)
        } else {
            Err(CopyError::Differs { to: self.names.to.clone(), what: differ })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: Table =
        Table { name: "chat_entry", columns: &["tenant", "n", "text"], key: 2, numbered: false };

    #[test]
    fn statements_go_by_the_key_and_put_nothing_twice() {
        assert_eq!(
            select(&ENTRY, false, 7),
            "SELECT tenant, n, text FROM quell.chat_entry ORDER BY tenant, n LIMIT 7"
        );
        assert!(
            select(&ENTRY, true, 7)
                .contains("chat_entry WHERE (tenant, n) > ($1, $2) ORDER BY tenant, n LIMIT 7")
        );
        assert_eq!(
            insert(&ENTRY, Dialect::Postgres),
            "INSERT INTO quell.chat_entry (tenant, n, text) VALUES ($1, $2, $3) ON CONFLICT (tenant, n) DO NOTHING"
        );
        let numbered = Table { numbered: true, ..ENTRY };
        assert!(insert(&numbered, Dialect::Postgres).contains(") OVERRIDING SYSTEM VALUE VALUES ("));
        assert_eq!(insert(&numbered, Dialect::Sqlite), insert(&ENTRY, Dialect::Sqlite));
    }

    #[test]
    fn a_set_of_rows_is_the_same_in_every_order_and_no_other() {
        let row = |cells: [Cell; 2]| Row(cells.into());
        let (a, b) = (row(["a".into(), 1.into()]), row(["b".into(), Cell::Null]));
        let set = |rows: &[&Row]| {
            let mut set = Set::default();
            rows.iter().for_each(|row| set.add(row));
            set
        };
        assert_eq!(set(&[&a, &b]), set(&[&b, &a]));
        assert_ne!(set(&[&a, &b]), set(&[&a, &a]));
        assert_ne!(set(&[&row(["1".into(), 1.into()])]), set(&[&row([1.into(), "1".into()])]));
        assert_eq!(set(&[&a]).hex().len(), 64);
    }

    #[test]
    fn a_place_is_read_back_as_it_was() {
        let key = [Cell::Text("ä\"".into()), Cell::Int(i64::MIN), Cell::Null];
        let place = AppPlace { done: vec!["x".into()], after: Some(to_json(&key)) };
        let text = serde_json::to_string(&place).expect("plain data");
        let read: AppPlace = serde_json::from_str(&text).expect("as written");
        assert_eq!(from_json(&read.after.expect("there is one")), key);
    }
}
