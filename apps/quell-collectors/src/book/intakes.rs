//! Intakes in the book: added once, listed by page, removed with everything that is known of them.

use quell::quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell::quell_core::event::Tenant;
use quell::quell_core::inspect::Page;
use quell::quell_core::tables::{Cell, Row, Statement};
use serde_json::json;

use super::{
    ADDED_MAX, Book, INTAKES_MAX, Listing, bounded, count, currency, page, read_cursor, tenant, time,
};
use crate::intake::{About, Intake};

const COLUMNS: &str = "tenant, id, year, mintmark, denomination, series, title, currency, created_at";

const ADD: &str = "INSERT INTO quell.prices_intake
    (tenant, id, year, mintmark, denomination, series, title, currency, created_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    ON CONFLICT (tenant, id) DO NOTHING";

/// Changes nothing, and changes no row when there are too many of them.
const ROOM: &str = "UPDATE quell.prices_intake SET id = id WHERE tenant = $1 AND id = $2
    AND (SELECT count(*) FROM quell.prices_intake WHERE tenant = $1) <= $3";

/// The row of an intake is held until the transaction ends, so that nothing is written for one that is removed at the same
/// time. One that was removed and made anew meanwhile is another one.
const HOLD: &str = "UPDATE quell.prices_intake SET id = id WHERE tenant = $1 AND id = $2 AND created_at = $3";

/// The intake first, as everybody does who writes.
const REMOVE: [&str; 5] = [
    "DELETE FROM quell.prices_intake WHERE tenant = $1 AND id = $2",
    "DELETE FROM quell.prices_collected WHERE tenant = $1 AND intake = $2",
    "DELETE FROM quell.prices_observation WHERE tenant = $1 AND intake = $2",
    "DELETE FROM quell.prices_point WHERE tenant = $1 AND intake = $2",
    "DELETE FROM quell.prices_valuation WHERE tenant = $1 AND intake = $2",
];

impl Book {
    /// Adds intakes of one or several tenants, all or none of those that are new; says how many were. One whose id is known
    /// is left as it is, because its points are those of the thing that it was.
    pub async fn add(&self, intakes: &[Intake]) -> StoreResult<u64> {
        if intakes.len() > ADDED_MAX {
            let detail = format!("{} intakes at once; at most {ADDED_MAX} are added together", intakes.len());
            return Err(StoreError::new(ErrorKind::Limit, detail));
        }
        let mut statements = vec![Statement::many(ADD, intakes.iter().map(cells).collect())];
        let mut tenants: Vec<&Intake> = intakes.iter().collect();
        tenants.sort_by_key(|intake| &intake.tenant);
        tenants.dedup_by_key(|intake| &intake.tenant);
        for Intake { tenant, id, .. } in tenants {
            let values = [tenant.as_str().into(), id.as_str().into(), count(INTAKES_MAX)];
            statements.push(Statement::new(ROOM, values).changing(1));
        }
        let changed = self.tables.write(statements).await.map_err(|error| match error.kind {
            ErrorKind::Conflict => {
                let detail = format!("a tenant has at most {INTAKES_MAX} intakes; remove some first");
                StoreError::new(ErrorKind::Limit, detail)
            }
            _ => error,
        })?;
        Ok(changed.first().copied().unwrap_or_default())
    }

    pub async fn intake(&self, tenant: &Tenant, id: &str) -> StoreResult<Option<Intake>> {
        let sql = format!("SELECT {COLUMNS} FROM quell.prices_intake WHERE tenant = $1 AND id = $2");
        let rows = self.tables.read(Statement::new(sql, [tenant.as_str().into(), id.into()])).await?;
        rows.first().map(read).transpose()
    }

    /// Intakes by tenant and id.
    pub async fn intakes(&self, listing: &Listing) -> StoreResult<Page<Intake>> {
        let (limit, rows) = bounded(listing.limit);
        let statement = listed(COLUMNS, "quell.prices_intake", "id", listing, rows)?;
        let rows = self.tables.read(statement).await?;
        let items = rows.iter().map(read).collect::<StoreResult<Vec<_>>>()?;
        Ok(page(items, limit, |last| json!([last.tenant.as_str(), last.id])))
    }

    /// Removes an intake with its points, observations and value; false when there is none.
    pub async fn remove(&self, tenant: &Tenant, id: &str) -> StoreResult<bool> {
        let one = |sql| Statement::new(sql, [tenant.as_str().into(), id.into()]);
        let changed = self.tables.write(REMOVE.into_iter().map(one).collect()).await?;
        Ok(changed.first().is_some_and(|removed| *removed > 0))
    }
}

/// The first statement of everything that is written for an intake.
pub(super) fn hold(intake: &Intake) -> Statement {
    let Intake { tenant, id, created_at, .. } = intake;
    let values = [tenant.as_str().into(), id.as_str().into(), created_at.as_millis().into()];
    Statement::new(HOLD, values).changing(1)
}

/// One page of rows by tenant and a second column.
pub(super) fn listed(
    columns: &str,
    table: &str,
    by: &str,
    listing: &Listing,
    limit: Cell,
) -> StoreResult<Statement> {
    let mut sql = format!("SELECT {columns} FROM {table} WHERE 1 = 1");
    let mut values: Vec<Cell> = Vec::new();
    if let Some(tenant) = &listing.tenant {
        values.push(tenant.as_str().into());
        sql.push_str(" AND tenant = $1");
    }
    if let Some(cursor) = &listing.cursor {
        let (tenant, id): (String, String) = read_cursor(cursor)?;
        values.extend([tenant.into(), id.into()]);
        sql.push_str(&format!(" AND (tenant, {by}) > (${}, ${})", values.len() - 1, values.len()));
    }
    values.push(limit);
    sql.push_str(&format!(" ORDER BY tenant, {by} LIMIT ${}", values.len()));
    Ok(Statement::new(sql, values))
}

fn cells(intake: &Intake) -> Vec<Cell> {
    let Intake { tenant, id, about, currency, created_at } = intake;
    vec![
        tenant.as_str().into(),
        id.as_str().into(),
        about.year.as_deref().into(),
        about.mintmark.as_deref().into(),
        about.denomination.as_deref().into(),
        about.series.as_deref().into(),
        about.title.as_deref().into(),
        currency.as_str().into(),
        created_at.as_millis().into(),
    ]
}

fn read(row: &Row) -> StoreResult<Intake> {
    Ok(Intake {
        tenant: tenant(row, 0)?,
        id: row.text(1)?,
        about: About {
            year: row.maybe_text(2)?,
            mintmark: row.maybe_text(3)?,
            denomination: row.maybe_text(4)?,
            series: row.maybe_text(5)?,
            title: row.maybe_text(6)?,
        },
        currency: currency(row, 7)?,
        created_at: time(row, 8)?,
    })
}
