//! The book of prices: intakes, their points with all prices seen, what was last collected, and what each intake is worth.
//!
//! Kept in tables beside the lanes, on SQLite and PostgreSQL. The other stores have none, and are refused when the book is
//! opened. What is written belongs together in one transaction each:
//!
//! - `book/intakes.rs`: things are added, listed and removed with all that is known of them.
//! - `book/collection.rs`: one collection, all of it or nothing, and nothing of a worker that has lost its lane.
//! - `book/points.rs`: what is asked about points.
//! - `book/valuations.rs`: one value per intake.
//! - `book/copy.rs`: all of it goes along when a store is copied.
//!
//! Everything that grows has a bound here, with its reason.

mod collection;
mod copy;
mod intakes;
mod points;
mod valuations;

use std::sync::Arc;

use quell::quell_core::clock::Timestamp;
use quell::quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell::quell_core::event::{SourceName, Tenant};
use quell::quell_core::inspect::Page;
use quell::quell_core::limits;
use quell::quell_core::store::Store;
use quell::quell_core::tables::{Cell, Row, Tables};

pub use collection::{Collected, Collection, NewPoint};
pub use copy::Belongs;
pub use points::{Duplicate, Observation, Point, PointFilter};
pub use valuations::Valued;

use crate::money::{Currency, Money};

const APPLICATION: &str = "prices";
static MIGRATIONS: [&str; 1] = [include_str!("../migrations/001_prices.sql")];

/// Intakes of one tenant. A source with three requests a minute takes a month for so many, and one scheduled event sends a
/// collection for each of them.
pub const INTAKES_MAX: usize = 100_000;
/// Intakes that are added at once: one transaction, a moment on the store's writer.
pub const ADDED_MAX: usize = 1_000;
/// Points of one intake from one source, as many as one collection may find; of more, those seen longest ago go. A median of
/// the last five thousand prices does not move by older ones.
pub const POINTS_MAX: usize = 5_000;
/// Prices that are kept of one item, the latest ones: more than a year of daily changes.
pub const OBSERVATIONS_MAX: usize = 400;
/// Points that one value is made of, those seen last: four sources with all they may have. What is read at once stays within
/// a few megabytes.
pub const VALUED_MAX: usize = 4 * POINTS_MAX;
/// Rows of one page of a listing.
pub const PAGE_MAX: usize = limits::PAGE_MAX;

/// The book of one store. Cheap to clone.
#[derive(Clone)]
pub struct Book {
    tables: Arc<dyn Tables>,
}

impl Book {
    /// Opens the book of a store, and makes its tables if they are not there.
    pub async fn open(store: Arc<dyn Store>) -> StoreResult<Book> {
        let Some(tables) = store.tables() else {
            return Err(StoreError::new(
                ErrorKind::Invalid,
                "prices need tables, and this store has none: use SQLite or PostgreSQL",
            ));
        };
        tables.migrate(APPLICATION, &MIGRATIONS).await?;
        Ok(Book { tables })
    }
}

/// Which intakes or valuations are listed, in the order of tenant and id.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// Of this tenant; nothing means all.
    pub tenant: Option<Tenant>,
    /// Where an earlier page ended.
    pub cursor: Option<String>,
    pub limit: usize,
}

/// Makes a page of one row more than was asked for.
fn page<T>(mut items: Vec<T>, limit: usize, cursor: impl Fn(&T) -> serde_json::Value) -> Page<T> {
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|last| cursor(last).to_string());
    Page { items, next }
}

/// The limit of a listing, and one row more to see whether there is another page.
fn bounded(limit: usize) -> (usize, Cell) {
    let limit = limit.clamp(1, PAGE_MAX);
    (limit, count(limit + 1))
}

/// A cursor that was never handed out is refused: the first page again would look like the next one.
fn read_cursor<T: serde::de::DeserializeOwned>(cursor: &str) -> StoreResult<T> {
    serde_json::from_str(cursor).map_err(|_| {
        let detail = format!("cursor {cursor:?} is not one that this listing has given");
        StoreError::new(ErrorKind::Invalid, detail)
    })
}

/// Bounds and counts are far below what a column holds.
fn count(number: usize) -> Cell {
    Cell::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

/// Tokens stay below 2^53.
fn token(number: u64) -> Cell {
    Cell::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

fn time(row: &Row, column: usize) -> StoreResult<Timestamp> {
    row.int(column).map(Timestamp::from_millis)
}

fn maybe_time(row: &Row, column: usize) -> StoreResult<Option<Timestamp>> {
    Ok(row.maybe_int(column)?.map(Timestamp::from_millis))
}

fn number(row: &Row, column: usize) -> StoreResult<u64> {
    u64::try_from(row.int(column)?).map_err(|_| strange("a count is negative"))
}

fn tenant(row: &Row, column: usize) -> StoreResult<Tenant> {
    Tenant::new(row.text(column)?).map_err(|_| strange("a tenant's name"))
}

fn source(row: &Row, column: usize) -> StoreResult<SourceName> {
    SourceName::new(row.text(column)?).map_err(|_| strange("a source's name"))
}

fn currency(row: &Row, column: usize) -> StoreResult<Currency> {
    Currency::new(&row.text(column)?).map_err(|_| strange("a currency"))
}

/// Cents in one column and their currency in the next.
fn money(row: &Row, column: usize) -> StoreResult<Money> {
    Ok(Money { cents: row.int(column)?, currency: currency(row, column + 1)? })
}

fn maybe_money(row: &Row, column: usize) -> StoreResult<Option<Money>> {
    match row.maybe_int(column)? {
        Some(_) => money(row, column).map(Some),
        None => Ok(None),
    }
}

fn strange(detail: &str) -> StoreError {
    StoreError::new(ErrorKind::Corrupt, format!("the book of prices cannot be read: {detail}"))
}
