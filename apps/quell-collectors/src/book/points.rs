//! What is asked about points: pages of them, the prices that one has been seen with, and whether any is there twice.

use quell::quell_core::clock::Timestamp;
use quell::quell_core::error::StoreResult;
use quell::quell_core::event::{SourceName, Tenant};
use quell::quell_core::inspect::Page;
use quell::quell_core::tables::{Cell, Row, Statement};
use serde::Serialize;
use serde_json::json;

use super::{
    Book, OBSERVATIONS_MAX, PAGE_MAX, VALUED_MAX, bounded, count, maybe_money, maybe_time, money, number,
    page, read_cursor, source, strange, tenant, time,
};
use crate::found::PriceType;
use crate::intake::Intake;
use crate::money::Money;
use crate::value::Priced;

/// One price of one item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Point {
    pub source: SourceName,
    pub dedupe_key: String,
    pub external_id: Option<String>,
    pub url: Option<String>,
    pub title: String,
    /// The price with which the best match was found.
    pub price: Money,
    /// What the source converted it from.
    pub original: Option<Money>,
    pub price_type: PriceType,
    /// When it was sold or listed, if the source said.
    pub date: Option<Timestamp>,
    pub match_strength: u8,
    pub first_seen_at: Timestamp,
    pub last_seen_at: Timestamp,
    /// How many prices an item with an id of its own has been seen with.
    pub observations: u64,
    /// The latest of them.
    pub latest: Option<Money>,
}

impl Point {
    /// What it costs now: the latest price it was seen with.
    pub fn current(&self) -> Money {
        self.latest.unwrap_or(self.price)
    }
}

/// Which points are listed; those seen last come first.
#[derive(Debug, Clone)]
pub struct PointFilter {
    pub tenant: Tenant,
    pub intake: String,
    pub source: Option<SourceName>,
    /// Where an earlier page ended.
    pub cursor: Option<String>,
    pub limit: usize,
}

/// A price that an item was seen with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Observation {
    /// 1 for the first one.
    pub n: u64,
    pub at: Timestamp,
    pub price: Money,
    pub run: String,
}

/// A point that is there more than once, which must never be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Duplicate {
    pub tenant: Tenant,
    pub intake: String,
    pub source: SourceName,
    pub dedupe_key: String,
    pub count: u64,
}

const COLUMNS: &str =
    "source, dedupe_key, external_id, url, title, cents, currency, original_cents, original_currency,
    price_type, dated_at, match_strength, first_seen_at, last_seen_at, observations, latest_cents, latest_currency";

const DUPLICATES: &str = "SELECT tenant, intake, source, dedupe_key, count(*) FROM quell.prices_point
    GROUP BY tenant, intake, source, dedupe_key HAVING count(*) > 1 LIMIT $1";

impl Book {
    /// The points of an intake.
    pub async fn points(&self, filter: &PointFilter) -> StoreResult<Page<Point>> {
        let (limit, rows) = bounded(filter.limit);
        let mut sql = format!("SELECT {COLUMNS} FROM quell.prices_point WHERE tenant = $1 AND intake = $2");
        let mut values: Vec<Cell> = vec![filter.tenant.as_str().into(), filter.intake.as_str().into()];
        if let Some(source) = &filter.source {
            values.push(source.as_str().into());
            sql.push_str(" AND source = $3");
        }
        if let Some(cursor) = &filter.cursor {
            let (at, source, key): (i64, String, String) = read_cursor(cursor)?;
            let n = values.len();
            values.extend([at.into(), source.into(), key.into()]);
            sql.push_str(&format!(
                " AND (last_seen_at < ${0} OR (last_seen_at = ${0} AND (source, dedupe_key) > (${1}, ${2})))",
                n + 1,
                n + 2,
                n + 3
            ));
        }
        values.push(rows);
        sql.push_str(&format!(" ORDER BY last_seen_at DESC, source, dedupe_key LIMIT ${}", values.len()));
        let rows = self.tables.read(Statement::new(sql, values)).await?;
        let items = rows.iter().map(read).collect::<StoreResult<Vec<_>>>()?;
        Ok(page(items, limit, |last: &Point| {
            json!([last.last_seen_at.as_millis(), last.source.as_str(), last.dedupe_key])
        }))
    }

    /// The prices of one point that are kept, the latest first.
    pub async fn observations(
        &self,
        tenant: &Tenant,
        intake: &str,
        source: &SourceName,
        dedupe_key: &str,
    ) -> StoreResult<Vec<Observation>> {
        let sql = "SELECT n, at, cents, currency, run FROM quell.prices_observation
            WHERE tenant = $1 AND intake = $2 AND source = $3 AND dedupe_key = $4 ORDER BY n DESC LIMIT $5";
        let values = [
            tenant.as_str().into(),
            intake.into(),
            source.as_str().into(),
            dedupe_key.into(),
            count(OBSERVATIONS_MAX),
        ];
        let read = |row: &Row| {
            Ok(Observation {
                n: number(row, 0)?,
                at: time(row, 1)?,
                price: money(row, 2)?,
                run: row.text(4)?,
            })
        };
        self.tables.read(Statement::new(sql, values)).await?.iter().map(read).collect()
    }

    /// Points that are there more than once. The tables do not allow one; this is the older system's question, to be asked all
    /// the same.
    pub async fn duplicates(&self) -> StoreResult<Vec<Duplicate>> {
        let read = |row: &Row| {
            Ok(Duplicate {
                tenant: tenant(row, 0)?,
                intake: row.text(1)?,
                source: source(row, 2)?,
                dedupe_key: row.text(3)?,
                count: number(row, 4)?,
            })
        };
        self.tables.read(Statement::new(DUPLICATES, [count(PAGE_MAX)])).await?.iter().map(read).collect()
    }

    /// What the value of an intake is made of: the points seen last, each with its latest price.
    pub async fn priced(&self, intake: &Intake) -> StoreResult<Vec<Priced>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM quell.prices_point WHERE tenant = $1 AND intake = $2
            ORDER BY last_seen_at DESC, source, dedupe_key LIMIT $3"
        );
        let values = [intake.tenant.as_str().into(), intake.id.as_str().into(), count(VALUED_MAX)];
        let priced = |row: &Row| read(row).map(|point| Priced::of(&point));
        self.tables.read(Statement::new(sql, values)).await?.iter().map(priced).collect()
    }
}

fn read(row: &Row) -> StoreResult<Point> {
    Ok(Point {
        source: source(row, 0)?,
        dedupe_key: row.text(1)?,
        external_id: row.maybe_text(2)?,
        url: row.maybe_text(3)?,
        title: row.text(4)?,
        price: money(row, 5)?,
        original: maybe_money(row, 7)?,
        price_type: PriceType::named(&row.text(9)?).ok_or_else(|| strange("a price type"))?,
        date: maybe_time(row, 10)?,
        match_strength: u8::try_from(row.int(11)?).map_err(|_| strange("a match strength"))?,
        first_seen_at: time(row, 12)?,
        last_seen_at: time(row, 13)?,
        observations: number(row, 14)?,
        latest: maybe_money(row, 15)?,
    })
}
