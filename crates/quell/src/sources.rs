//! Outside parties with limits of their own: how those of the configuration get into the store, and the operator's hand.
//!
//! The store governs (`quell-core/src/source.rs`): what is declared there is in force for every process at once, whoever put
//! it. A process that declares sources puts them before the first event that names one, and when its worker starts. A
//! worker whose file has `[sources]` also takes away what the file no longer has; lanes that wait for such a source are
//! held, with the reason, until it is declared again or released.

use std::collections::BTreeSet;

use quell_core::error::StoreResult;
use quell_core::event::SourceName;
use quell_core::inspect::{Inspect, Inspected, Page, SourceFilter, SourceRow};
use quell_core::source::{Declaration, SourceRules, Standing};
use quell_core::store::{ControlAction, SourceScope};

use crate::engine::{Engine, mixed_up};

/// Who changes configured sources, in listings.
const ACTOR: &str = "configuration";

/// What the configuration did to the sources of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AppliedSources {
    /// New or changed.
    pub put: usize,
    /// Those that were there and stay as they are.
    pub unchanged: usize,
    /// Gone from the file.
    pub removed: usize,
}

impl Engine {
    /// Sources with their state, by name.
    pub async fn sources(&self, filter: SourceFilter) -> StoreResult<Page<SourceRow>> {
        match self.inspect(Inspect::Sources(filter)).await? {
            Inspected::Sources(page) => Ok(page),
            other => Err(mixed_up(&other)),
        }
    }

    /// All pages of them; the filter's cursor says where to begin.
    pub async fn all_sources(&self, mut filter: SourceFilter) -> StoreResult<Vec<SourceRow>> {
        let mut rows = Vec::new();
        loop {
            let page = self.sources(filter.clone()).await?;
            rows.extend(page.items);
            match page.next {
                Some(next) => filter.cursor = Some(next),
                None => return Ok(rows),
            }
        }
    }

    /// Declares a source, or changes what is declared, for every process at once; false when it was there just so.
    pub async fn put_source(&self, name: SourceName, rules: SourceRules, actor: &str) -> StoreResult<bool> {
        Ok(self.control(ControlAction::PutSource { name, rules }, actor).await?.changed)
    }

    /// Takes a declaration away: lanes that wait for it are held. One that the configuration names comes back with the next
    /// start of a worker.
    pub async fn remove_source(&self, name: SourceName, actor: &str) -> StoreResult<bool> {
        Ok(self.control(ControlAction::RemoveSource { name }, actor).await?.changed)
    }

    /// Lets the keys of a source go again. False when it was enabled.
    pub async fn enable_source(&self, source: SourceScope, actor: &str) -> StoreResult<bool> {
        Ok(self.control(ControlAction::EnableSource(source), actor).await?.changed)
    }

    /// Holds the lanes of a source: nothing fails, and no attempt is counted.
    pub async fn disable_source(&self, source: SourceScope, actor: &str) -> StoreResult<bool> {
        Ok(self.control(ControlAction::DisableSource(source), actor).await?.changed)
    }

    /// Closes the breaker, fills the bucket, ends a silence that the source asked for and forgets its answers.
    pub async fn reset_source(&self, source: SourceScope, actor: &str) -> StoreResult<bool> {
        Ok(self.control(ControlAction::ResetSource(source), actor).await?.changed)
    }

    /// Lets the lanes of a source that is not declared any more go ungoverned.
    pub async fn release_source(&self, source: SourceScope, actor: &str) -> StoreResult<bool> {
        Ok(self.control(ControlAction::ReleaseSource(source), actor).await?.changed)
    }

    /// Brings the store's sources to what the configuration says. A worker does this at its start; without configured
    /// sources it does nothing.
    pub async fn apply_sources(&self) -> StoreResult<AppliedSources> {
        let settings = self.settings();
        let wanted = &settings.sources;
        if wanted.is_empty() {
            return Ok(AppliedSources::default());
        }
        let mut applied = self.declare_sources().await?;
        // A program that declares its own sources has no file, and leaves those of others alone.
        if settings.schedules.is_none() {
            return Ok(applied);
        }
        for name in self.declared_sources().await? {
            if wanted.iter().all(|declaration| declaration.name != name) {
                applied.removed += usize::from(self.remove_source(name, ACTOR).await?);
            }
        }
        Ok(applied)
    }

    /// Puts the configured sources into the store and takes none away: what a process does that only sends.
    pub(crate) async fn declare_sources(&self) -> StoreResult<AppliedSources> {
        let mut applied = AppliedSources::default();
        for Declaration { name, rules } in &self.settings().sources {
            match self.put_source(name.clone(), *rules, ACTOR).await? {
                true => applied.put += 1,
                false => applied.unchanged += 1,
            }
        }
        Ok(applied)
    }

    /// The names that are declared in the store.
    async fn declared_sources(&self) -> StoreResult<BTreeSet<SourceName>> {
        let rows = self.all_sources(SourceFilter::default()).await?;
        let declared = |row: &SourceRow| matches!(row.standing, Standing::Enabled | Standing::Disabled);
        Ok(rows.into_iter().filter(declared).map(|row| row.name).collect())
    }
}
