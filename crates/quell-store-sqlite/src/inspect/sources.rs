//! Sources by name and tenant, each with its state and with how many lanes wait for it.

use quell_core::inspect::{Page, SourceFilter, SourceRow};
use quell_core::lane::Lane;
use quell_core::source::{Source, SourceId};
use rusqlite::{OptionalExtension, Row};

use super::View;
use super::lanes::page_limit;
use crate::sources::{SOURCE_BY_ID, read_source};

pub(super) const LISTED: &str =
    "SELECT body FROM source WHERE (name, tenant) > (?1, ?2) ORDER BY name, tenant LIMIT ?3";
pub(super) const LISTED_OF_NAME: &str =
    "SELECT body FROM source WHERE name = ?1 AND tenant >= ?2 ORDER BY tenant LIMIT ?3";
/// For one tenant by its own index, behind this name.
pub(super) const LISTED_OF_TENANT: &str =
    "SELECT body FROM source WHERE tenant = ?2 AND name > ?1 ORDER BY name LIMIT ?3";
const ONE: &str = "SELECT body FROM source WHERE tenant = ?1 AND name = ?2";
/// The conditions of the index are repeated word for word.
pub(super) const WAITING: &str =
    "SELECT count(*) FROM lane WHERE source = ?1 AND source <> 0 AND lease_at IS NULL";
pub(super) const KEPT: &str =
    "SELECT count(*) FROM answer WHERE source = ?1 AND expires_at > ?2 AND value IS NOT NULL";

impl View<'_> {
    /// The cursor is the number of the last source of the page before.
    pub(super) fn sources(&mut self, filter: &SourceFilter) -> rusqlite::Result<Page<SourceRow>> {
        let limit = page_limit(filter.limit);
        let behind = filter.cursor.as_deref().and_then(|cursor| cursor.parse().ok()).map(SourceId);
        let behind = match behind {
            Some(id) => self.source(id)?.cloned(),
            None => None,
        };
        let mut found = self.listed_sources(filter, behind.as_ref(), limit + 1)?;
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).map(|source| source.id.to_string());
        let mut items = Vec::with_capacity(found.len());
        for source in found {
            let waiting = self.count(WAITING, [source.id.0])?;
            let kept = self.count(KEPT, (source.id.0, self.now.as_millis()))?;
            items.push(SourceRow::of(&source, self.now, waiting, kept));
        }
        Ok(Page { items, next })
    }

    fn listed_sources(
        &self,
        filter: &SourceFilter,
        behind: Option<&Source>,
        most: usize,
    ) -> rusqlite::Result<Vec<Source>> {
        let read = |row: &Row<'_>| read_source(row);
        // No name is empty, so this stands before the first of all.
        let (name, tenant) = behind.map_or(("", ""), |s| (s.name.as_str(), s.tenant.as_str()));
        let connection = self.connection;
        match (&filter.name, &filter.tenant) {
            (Some(_), Some(_)) if behind.is_some() => Ok(Vec::new()),
            (Some(name), Some(tenant)) => {
                let mut statement = connection.prepare_cached(ONE)?;
                statement.query_map([tenant.as_str(), name.as_str()], read)?.collect()
            }
            (Some(name), None) => {
                let mut statement = connection.prepare_cached(LISTED_OF_NAME)?;
                // A tenant may be empty, and none holds a NUL: this is the first text behind the last one.
                let from = behind.map_or_else(String::new, |s| format!("{}\0", s.tenant));
                statement.query_map((name.as_str(), from, most), read)?.collect()
            }
            (None, Some(tenant)) => {
                let mut statement = connection.prepare_cached(LISTED_OF_TENANT)?;
                statement.query_map((name, tenant.as_str(), most), read)?.collect()
            }
            (None, None) => {
                let mut statement = connection.prepare_cached(LISTED)?;
                statement.query_map((name, tenant, most), read)?.collect()
            }
        }
    }

    /// A source by its number, read once per look.
    pub(super) fn source(&mut self, id: SourceId) -> rusqlite::Result<Option<&Source>> {
        if !self.sources.contains_key(&id) {
            let mut statement = self.connection.prepare_cached(SOURCE_BY_ID)?;
            let found = statement.query_row([id.0], read_source).optional()?;
            self.sources.insert(id, found);
        }
        Ok(self.sources.get(&id).and_then(Option::as_ref))
    }

    /// The source that a lane waits for.
    pub(super) fn source_for(&mut self, lane: &Lane) -> rusqlite::Result<Option<&Source>> {
        match lane.source() {
            Some(id) => self.source(id),
            None => Ok(None),
        }
    }
}
