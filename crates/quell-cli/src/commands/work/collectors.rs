//! Prices, where a process collects them: the handlers of `collect`, `collect.test` and `collect.value`.
//!
//! They are made of the settings, secrets and all, at the start and whenever the configuration is read again.

use std::collections::BTreeMap;
use std::sync::Arc;

use quell::Engine;
use quell::quell_core::event::QueueName;
use quell::worker::OwnHandler;
use quell_collectors::book::Book;
use quell_collectors::live;

use crate::context::Loaded;
use crate::failure::{self, Failure};

/// The book of prices, where the store can keep one.
pub(super) struct Collectors(Book);

impl Collectors {
    /// Nothing where the file has no `[prices]`.
    pub(super) async fn open(engine: &Engine, loaded: &Loaded) -> Result<Option<Collectors>, Failure> {
        if loaded.settings.prices.is_none() {
            return Ok(None);
        }
        if engine.store().clone().tables().is_none() {
            return Err(Failure::new(failure::USAGE, "prices need tables, and this store has none")
                .help("use sqlite:PATH or postgres://…, or remove [prices]"));
        }
        Ok(Some(Collectors(Book::open(engine.store().clone()).await?)))
    }

    /// Who collects, by what was read.
    pub(super) fn handlers(
        &self,
        engine: &Engine,
        loaded: &Loaded,
    ) -> Result<BTreeMap<QueueName, OwnHandler>, Failure> {
        let Some(prices) = &loaded.settings.prices else { return Ok(BTreeMap::new()) };
        let sources =
            live::sources(prices, &loaded.env).map_err(|problem| Failure::new(failure::USAGE, problem))?;
        let http = quell_collectors::client(&loaded.settings)
            .map_err(|error| Failure::new(failure::FAILED, error.to_string()))?;
        let rules = live::value_rules(&prices.value);
        Ok(quell_collectors::handlers(engine, &self.0, &Arc::new(sources), &rules, &http))
    }
}
