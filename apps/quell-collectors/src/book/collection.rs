//! One collection in the book: one transaction at the end of all pages.
//!
//! It begins with the two rows that may forbid it. The intake must still be the one that was asked for, and the lane's last
//! collection must not have a newer token: a worker that lost its lane, however late it wakes, stores nothing.
//!
//! A point that is there is replaced only by a strictly better match. Otherwise it has been seen again, and of an item with an
//! id of its own the price is an observation if it differs from the one before. Nothing of it moves back in time, so an answer
//! from the cache never covers a newer one. A run that stores twice, because it died before it could say so, stores the same,
//! and its counts are the same: they are counted by the run that every point names.

use quell::quell_core::clock::Timestamp;
use quell::quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell::quell_core::event::{SourceName, Tenant};
use quell::quell_core::tables::{Cell, Row, Statement};
use serde::Serialize;

use super::intakes::hold;
use super::{Book, OBSERVATIONS_MAX, PAGE_MAX, POINTS_MAX, count, number, source, tenant, time, token};
use crate::dedupe::EXTERNAL;
use crate::found::Found;
use crate::intake::Intake;
use crate::money::Money;

/// What one run has collected.
#[derive(Debug, Clone)]
pub struct Collection<'a> {
    pub intake: &'a Intake,
    pub source: &'a SourceName,
    pub run: &'a str,
    pub token: u64,
    /// When the source said all this.
    pub at: Timestamp,
    /// Each key once.
    pub points: &'a [NewPoint],
    /// Items of all pages.
    pub found: u64,
    /// Items that do not fit the intake well enough.
    pub unmatched: u64,
    /// Items without what a point needs.
    pub skipped: u64,
    pub pages: u64,
    /// All of it came from the cache.
    pub cached: bool,
}

/// An item that fits, under its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPoint {
    pub key: String,
    pub found: Found,
    /// 0 to 100.
    pub strength: u8,
}

/// The last collection of an intake from a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Collected {
    pub tenant: Tenant,
    pub intake: String,
    pub source: SourceName,
    pub run: String,
    pub at: Timestamp,
    pub found: u64,
    pub new: u64,
    pub replaced: u64,
    /// Known points that were met again.
    pub seen: u64,
    pub unmatched: u64,
    pub skipped: u64,
    pub pages: u64,
    pub cached: bool,
}

const FENCE: &str = "INSERT INTO quell.prices_collected AS known
    (tenant, intake, source, token, run, at, found, points_kept, points_new, points_replaced, unmatched, skipped, pages, cached)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, 0, $9, $10, $11, $12)
    ON CONFLICT (tenant, intake, source) DO UPDATE SET
        token = excluded.token, run = excluded.run, at = excluded.at, found = excluded.found,
        points_kept = excluded.points_kept, unmatched = excluded.unmatched, skipped = excluded.skipped, pages = excluded.pages, cached = excluded.cached
    WHERE known.token <= excluded.token";

const INSERT: &str = "INSERT INTO quell.prices_point
    (tenant, intake, source, dedupe_key, external_id, url, title, cents, currency, original_cents, original_currency,
     price_type, dated_at, match_strength, first_seen_at, last_seen_at, first_run, changed_run, observations)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $15, $16, $16, 0)
    ON CONFLICT (tenant, intake, source, dedupe_key) DO NOTHING";

const REPLACE: &str = "UPDATE quell.prices_point SET
        external_id = $5, url = $6, title = $7, cents = $8, currency = $9, original_cents = $10, original_currency = $11,
        price_type = $12, dated_at = $13, match_strength = $14, changed_run = $15
    WHERE tenant = $1 AND intake = $2 AND source = $3 AND dedupe_key = $4 AND match_strength < $14";

/// The price is written down if it is the first one, or another than the latest and not older than the last look.
const OBSERVE: &str = "INSERT INTO quell.prices_observation
    (tenant, intake, source, dedupe_key, n, at, cents, currency, run)
    SELECT tenant, intake, source, dedupe_key, observations + 1, $5, $6, $7, $8 FROM quell.prices_point
    WHERE tenant = $1 AND intake = $2 AND source = $3 AND dedupe_key = $4
        AND (observations = 0 OR (last_seen_at <= $5 AND (latest_cents <> $6 OR latest_currency <> $7)))";

/// By the same rule.
const LATEST: &str = "UPDATE quell.prices_point SET
        observations = observations + 1, latest_at = $5, latest_cents = $6, latest_currency = $7
    WHERE tenant = $1 AND intake = $2 AND source = $3 AND dedupe_key = $4
        AND (observations = 0 OR (last_seen_at <= $5 AND (latest_cents <> $6 OR latest_currency <> $7)))";

const SEEN: &str = "UPDATE quell.prices_point SET last_seen_at = $5
    WHERE tenant = $1 AND intake = $2 AND source = $3 AND dedupe_key = $4 AND last_seen_at < $5";

const TRIM_OBSERVATIONS: &str = "DELETE FROM quell.prices_observation AS old
    WHERE tenant = $1 AND intake = $2 AND source = $3
        AND dedupe_key IN (SELECT dedupe_key FROM quell.prices_point
            WHERE tenant = $1 AND intake = $2 AND source = $3 AND observations > $4)
        AND n <= (SELECT observations - $4 FROM quell.prices_point AS point
            WHERE point.tenant = $1 AND point.intake = $2 AND point.source = $3 AND point.dedupe_key = old.dedupe_key)";

/// What is beyond the bound, for both of the tables. A collection has at most as many points as may stay.
const TRIM: [&str; 2] = [
    "DELETE FROM quell.prices_observation WHERE tenant = $1 AND intake = $2 AND source = $3 AND dedupe_key IN
        (SELECT dedupe_key FROM quell.prices_point WHERE tenant = $1 AND intake = $2 AND source = $3
            ORDER BY last_seen_at DESC, dedupe_key LIMIT $4 OFFSET $4)",
    "DELETE FROM quell.prices_point WHERE tenant = $1 AND intake = $2 AND source = $3 AND dedupe_key IN
        (SELECT dedupe_key FROM quell.prices_point WHERE tenant = $1 AND intake = $2 AND source = $3
            ORDER BY last_seen_at DESC, dedupe_key LIMIT $4 OFFSET $4)",
];

const TELL: &str = "UPDATE quell.prices_collected SET
        points_new = (SELECT count(*) FROM quell.prices_point
            WHERE tenant = $1 AND intake = $2 AND source = $3 AND first_run = $4),
        points_replaced = (SELECT count(*) FROM quell.prices_point
            WHERE tenant = $1 AND intake = $2 AND source = $3 AND changed_run = $4 AND first_run <> $4)
    WHERE tenant = $1 AND intake = $2 AND source = $3";

const COLLECTED: &str =
    "SELECT tenant, intake, source, run, at, found, points_kept, points_new, points_replaced, unmatched,
    skipped, pages, cached FROM quell.prices_collected";

impl Book {
    /// Stores what one run has collected, or nothing of it. A conflict means that the lane has gone to another claim since, or
    /// that the intake was removed.
    pub async fn store(&self, collection: &Collection<'_>) -> StoreResult<Collected> {
        self.tables.write(statements(collection)).await?;
        let place = place(collection);
        let sql = format!("{COLLECTED} WHERE tenant = $1 AND intake = $2 AND source = $3");
        let rows = self.tables.read(Statement::new(sql, place)).await?;
        rows.first().map(read).transpose()?.ok_or_else(|| {
            // Only the removal of its intake takes the row away, and that may come between the two statements.
            StoreError::new(ErrorKind::Conflict, "the intake was removed while its points were stored")
        })
    }

    /// The last collection of an intake from each of its sources.
    pub async fn collected(&self, tenant: &Tenant, intake: &str) -> StoreResult<Vec<Collected>> {
        let sql = format!("{COLLECTED} WHERE tenant = $1 AND intake = $2 ORDER BY source LIMIT $3");
        let values = [tenant.as_str().into(), intake.into(), count(PAGE_MAX)];
        self.tables.read(Statement::new(sql, values)).await?.iter().map(read).collect()
    }

    /// The collections of a tenant, or of all, that were made last.
    pub async fn last_collected(&self, tenant: Option<&Tenant>, limit: usize) -> StoreResult<Vec<Collected>> {
        let mut values: Vec<Cell> = vec![count(limit.clamp(1, PAGE_MAX))];
        let mut sql = COLLECTED.to_owned();
        if let Some(tenant) = tenant {
            values.push(tenant.as_str().into());
            sql.push_str(" WHERE tenant = $2");
        }
        sql.push_str(" ORDER BY at DESC, tenant, intake, source LIMIT $1");
        self.tables.read(Statement::new(sql, values)).await?.iter().map(read).collect()
    }
}

fn place(collection: &Collection<'_>) -> Vec<Cell> {
    let Intake { tenant, id, .. } = collection.intake;
    vec![tenant.as_str().into(), id.as_str().into(), collection.source.as_str().into()]
}

fn with(place: &[Cell], more: impl IntoIterator<Item = Cell>) -> Vec<Cell> {
    place.iter().cloned().chain(more).collect()
}

fn statements(collection: &Collection<'_>) -> Vec<Statement> {
    let place = place(collection);
    let (at, run): (Cell, Cell) = (collection.at.as_millis().into(), collection.run.into());
    let fence = [
        token(collection.token),
        run.clone(),
        at.clone(),
        whole(collection.found),
        count(collection.points.len()),
        whole(collection.unmatched),
        whole(collection.skipped),
        whole(collection.pages),
        collection.cached.into(),
    ];
    let each = |more: &dyn Fn(&NewPoint) -> Vec<Cell>| -> Vec<Vec<Cell>> {
        let row = |point: &NewPoint| {
            let key = Cell::from(point.key.as_str());
            with(&place, std::iter::once(key).chain(more(point)))
        };
        collection.points.iter().map(row).collect()
    };
    let named = collection.points.iter().filter(|point| point.key.starts_with(EXTERNAL));
    let observed = |end: &[Cell]| -> Vec<Vec<Cell>> {
        let row = |point: &NewPoint| {
            let Money { cents, currency } = point.found.price;
            let seen = [point.key.as_str().into(), at.clone(), cents.into(), currency.as_str().into()];
            with(&place, seen.into_iter().chain(end.iter().cloned()))
        };
        named.clone().map(row).collect()
    };
    let new = |point: &NewPoint| -> Vec<Cell> {
        described(point).into_iter().chain([at.clone(), run.clone()]).collect()
    };
    let better =
        |point: &NewPoint| -> Vec<Cell> { described(point).into_iter().chain([run.clone()]).collect() };
    vec![
        hold(collection.intake),
        Statement::new(FENCE, with(&place, fence)).changing(1),
        Statement::many(INSERT, each(&new)),
        Statement::many(REPLACE, each(&better)),
        Statement::many(OBSERVE, observed(std::slice::from_ref(&run))),
        Statement::many(LATEST, observed(&[])),
        Statement::many(SEEN, each(&|_| vec![at.clone()])),
        Statement::new(TRIM_OBSERVATIONS, with(&place, [count(OBSERVATIONS_MAX)])),
        Statement::new(TRIM[0], with(&place, [count(POINTS_MAX)])),
        Statement::new(TRIM[1], with(&place, [count(POINTS_MAX)])),
        Statement::new(TELL, with(&place, [run.clone()])),
    ]
}

/// From the id to the strength, in the order of the columns.
fn described(point: &NewPoint) -> [Cell; 10] {
    let Found { external_id, url, title, price, original, price_type, date } = &point.found;
    [
        external_id.as_deref().into(),
        url.as_deref().into(),
        title.as_str().into(),
        price.cents.into(),
        price.currency.as_str().into(),
        original.map(|money| money.cents).into(),
        original.as_ref().map(|money| money.currency.as_str()).into(),
        price_type.as_str().into(),
        date.map(Timestamp::as_millis).into(),
        i64::from(point.strength).into(),
    ]
}

fn whole(number: u64) -> Cell {
    Cell::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

fn read(row: &Row) -> StoreResult<Collected> {
    let (kept, new, replaced) = (number(row, 6)?, number(row, 7)?, number(row, 8)?);
    Ok(Collected {
        tenant: tenant(row, 0)?,
        intake: row.text(1)?,
        source: source(row, 2)?,
        run: row.text(3)?,
        at: time(row, 4)?,
        found: number(row, 5)?,
        new,
        replaced,
        seen: kept.saturating_sub(new + replaced),
        unmatched: number(row, 9)?,
        skipped: number(row, 10)?,
        pages: number(row, 11)?,
        cached: row.flag(12)?,
    })
}
