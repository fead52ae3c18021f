//! Listings of sources, and the sources that lanes wait for.

use std::collections::BTreeMap;

use quell_core::error::StoreResult;
use quell_core::inspect::{Page, SourceFilter, SourceRow};
use quell_core::source::{Source, SourceId};
use quell_store_rows::rows::LaneAt;
use tokio_postgres::types::Type;

use super::View;
use super::lanes::page_limit;
use crate::connection::Sql;
use crate::find::read_sources;
use crate::rows::{count, number};

static BY_ID: Sql =
    Sql { text: "SELECT body FROM quell.source WHERE id = ANY($1)", types: &[Type::INT8_ARRAY] };
/// Behind the one that the cursor names: sources never go, so it is there.
static BY_NAME: Sql = Sql {
    text: "SELECT body FROM quell.source
           WHERE ($1::text IS NULL OR name = $1) AND ($2::text IS NULL OR tenant = $2)
             AND ($3::bigint IS NULL OR (name, tenant) > (SELECT c.name, c.tenant FROM quell.source c WHERE c.id = $3))
           ORDER BY name, tenant LIMIT $4",
    types: &[Type::TEXT, Type::TEXT, Type::INT8, Type::INT8],
};
/// Lanes that wait are found by their entries. Those that an operator paused or a failed run blocked have none, and wait, too.
static WAITING: Sql = Sql {
    text: "SELECT w.id, (SELECT coalesce(sum(n.lanes), 0)::bigint FROM quell.queue_source g
                         CROSS JOIN LATERAL (SELECT count(*) AS lanes FROM quell.due d
                                             WHERE d.queue_id = g.queue_id AND d.source = g.source) n
                         WHERE g.source = w.id)
             + (SELECT count(*) FROM quell.lane l
                WHERE l.held AND l.source = w.id AND l.due_at IS NULL AND l.lease_at IS NULL),
             (SELECT count(*) FROM quell.answer a WHERE a.source = w.id AND a.kept AND a.expires_at > $2)
           FROM unnest($1::bigint[]) AS w(id)",
    types: &[Type::INT8_ARRAY, Type::INT8],
};

impl View<'_> {
    pub(super) async fn sources(&self, filter: &SourceFilter) -> StoreResult<Page<SourceRow>> {
        let limit = page_limit(filter.limit);
        let (name, tenant) =
            (filter.name.as_ref().map(|n| n.as_str()), filter.tenant.as_ref().map(|t| t.as_str()));
        let after: Option<i64> = filter.cursor.as_deref().and_then(|cursor| cursor.parse().ok());
        let rows = self.query(&BY_NAME, &[&name, &tenant, &after, &number(limit as u64 + 1)]).await?;
        let mut sources = read_sources(&rows)?;
        let more = sources.len() > limit;
        sources.truncate(limit);
        let ids: Vec<i64> = sources.iter().map(|source| number(source.id.0)).collect();
        let mut counted: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for row in &self.query(&WAITING, &[&ids, &self.now.as_millis()]).await? {
            counted.insert(count(row, 0)?, (count(row, 1)?, count(row, 2)?));
        }
        let listed = |source: &Source| {
            let (waiting, cached) = counted.get(&source.id.0).copied().unwrap_or_default();
            SourceRow::of(source, self.now, waiting, cached)
        };
        let next = sources.last().filter(|_| more).map(|source| source.id.0.to_string());
        Ok(Page { items: sources.iter().map(listed).collect(), next })
    }

    /// The sources that these lanes wait for.
    pub(super) async fn sources_of(
        &self,
        lanes: impl Iterator<Item = &LaneAt>,
    ) -> StoreResult<BTreeMap<SourceId, Source>> {
        let mut ids: Vec<i64> = lanes.filter_map(|at| at.lane.source()).map(|id| number(id.0)).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        let sources = read_sources(&self.query(&BY_ID, &[&ids]).await?)?;
        Ok(sources.into_iter().map(|source| (source.id, source)).collect())
    }
}
