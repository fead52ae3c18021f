//! Values in the book: one per intake, replaced by every later one and by no earlier one.

use quell::quell_core::error::{ErrorKind, StoreResult};
use quell::quell_core::event::Tenant;
use quell::quell_core::inspect::Page;
use quell::quell_core::tables::{Cell, Row, Statement};
use serde::Serialize;
use serde_json::json;

use super::intakes::{hold, listed};
use super::{Book, Listing, bounded, currency, number, page, strange, tenant, time, token};
use crate::intake::Intake;
use crate::value::{Counted, Estimate, Valuation};

/// What an intake is worth, and which run said so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Valued {
    pub tenant: Tenant,
    pub intake: String,
    #[serde(flatten)]
    pub valuation: Valuation,
    pub run: String,
}

const COLUMNS: &str =
    "tenant, intake, currency, cents, low_cents, high_cents, sold, ask, bid, other_currency, as_of, run";

const PUT: &str = "INSERT INTO quell.prices_valuation AS known
    (tenant, intake, currency, cents, low_cents, high_cents, points, sold, ask, bid, other_currency, as_of, run, token)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
    ON CONFLICT (tenant, intake) DO UPDATE SET
        currency = excluded.currency, cents = excluded.cents, low_cents = excluded.low_cents,
        high_cents = excluded.high_cents, points = excluded.points, sold = excluded.sold, ask = excluded.ask,
        bid = excluded.bid, other_currency = excluded.other_currency, as_of = excluded.as_of, run = excluded.run,
        token = excluded.token
    WHERE known.token <= excluded.token";

impl Book {
    /// Writes the value of an intake; false when nothing was written, because a later claim of its lane has written one or the
    /// intake was removed.
    pub async fn put_valuation(
        &self,
        intake: &Intake,
        valuation: &Valuation,
        run: &str,
        held: u64,
    ) -> StoreResult<bool> {
        let Valuation { currency, estimate, counted, other_currency, as_of } = valuation;
        let whole = |number: u64| Cell::Int(i64::try_from(number).unwrap_or(i64::MAX));
        let values = [
            intake.tenant.as_str().into(),
            intake.id.as_str().into(),
            currency.as_str().into(),
            estimate.map(|estimate| estimate.cents).into(),
            estimate.map(|estimate| estimate.low_cents).into(),
            estimate.map(|estimate| estimate.high_cents).into(),
            whole(counted.all()),
            whole(counted.sold),
            whole(counted.ask),
            whole(counted.bid),
            whole(*other_currency),
            as_of.as_millis().into(),
            run.into(),
            token(held),
        ];
        let put = Statement::new(PUT, values).changing(1);
        match self.tables.write(vec![hold(intake), put]).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind == ErrorKind::Conflict => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub async fn valuation(&self, tenant: &Tenant, intake: &str) -> StoreResult<Option<Valued>> {
        let sql = format!("SELECT {COLUMNS} FROM quell.prices_valuation WHERE tenant = $1 AND intake = $2");
        let rows = self.tables.read(Statement::new(sql, [tenant.as_str().into(), intake.into()])).await?;
        rows.first().map(read).transpose()
    }

    /// Values by tenant and id of the intake.
    pub async fn valuations(&self, listing: &Listing) -> StoreResult<Page<Valued>> {
        let (limit, rows) = bounded(listing.limit);
        let statement = listed(COLUMNS, "quell.prices_valuation", "intake", listing, rows)?;
        let rows = self.tables.read(statement).await?;
        let items = rows.iter().map(read).collect::<StoreResult<Vec<_>>>()?;
        Ok(page(items, limit, |last: &Valued| json!([last.tenant.as_str(), last.intake])))
    }
}

fn read(row: &Row) -> StoreResult<Valued> {
    let estimate = match (row.maybe_int(3)?, row.maybe_int(4)?, row.maybe_int(5)?) {
        (None, None, None) => None,
        (Some(cents), Some(low_cents), Some(high_cents)) => Some(Estimate { cents, low_cents, high_cents }),
        _ => return Err(strange("half a value")),
    };
    let valuation = Valuation {
        currency: currency(row, 2)?,
        estimate,
        counted: Counted { sold: number(row, 6)?, ask: number(row, 7)?, bid: number(row, 8)? },
        other_currency: number(row, 9)?,
        as_of: time(row, 10)?,
    };
    Ok(Valued { tenant: tenant(row, 0)?, intake: row.text(1)?, valuation, run: row.text(11)? })
}
