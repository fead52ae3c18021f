//! What a handler asks outside parties with: the HTTP client that the source of its run governs, and the time that stands
//! in what is sent to them.

use quell_core::clock::Timestamp;
use quell_core::event::SourceName;
use quell_fetch::{Fetcher, Http};

use crate::clock::{RealTime, Time};
use crate::handler::Run;

impl Run {
    /// The client for requests to the source of this run: kept answers, a token for each request, the breaker. Nothing for a
    /// run without a worker behind it, as in tests of handlers.
    pub fn fetcher(&self, http: &Http) -> Option<Fetcher> {
        let store = self.backing()?.engine.store().clone();
        Some(Fetcher::new(http.clone(), store, self.batch()))
    }

    /// The client for requests to another declared source than the run's own, of the same tenant or shared: a token for
    /// each request, its breaker, no kept answers. Of the run's own source it says nothing.
    pub fn fetcher_of(&self, http: &Http, name: SourceName) -> Option<Fetcher> {
        let store = self.backing()?.engine.store().clone();
        Some(Fetcher::of_source(http.clone(), store, self.batch(), name))
    }

    /// The wall clock of the worker behind the run, for what is sent to others.
    pub(crate) fn wall(&self) -> Timestamp {
        self.backing().map_or_else(|| RealTime::new().wall(), |backing| backing.engine.time().wall())
    }
}
