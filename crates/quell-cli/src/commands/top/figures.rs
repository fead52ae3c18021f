//! What one look reads: totals, a page of lanes, workers, sources. None of it depends on the number of lanes.

use quell::clock::Stopwatch;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::error::StoreResult;
use quell::quell_core::event::LaneKey;
use quell::quell_core::inspect::{
    Health, LaneDetail, LaneFilter, LaneRow, QueueStats, RunFilter, RunRow, SourceFilter, SourceRow,
};
use quell::quell_core::totals::Totals;
use quell::rates::{self, Seen, Trail, Trend};
use quell::{Engine, Presence};

/// Sources that are shown; `quell sources` lists all.
const SOURCES: usize = 50;
/// Runs of a lane that are shown.
const RUNS: usize = 10;

/// One look.
#[derive(Debug, Clone)]
pub(super) struct Figures {
    pub(super) health: Health,
    pub(super) queues: Vec<QueueStats>,
    pub(super) lanes: Vec<LaneRow>,
    pub(super) more_lanes: bool,
    pub(super) workers: Vec<(Presence, Timestamp)>,
    pub(super) sources: Vec<SourceRow>,
    pub(super) accepted: Trend,
    pub(super) succeeded: Trend,
    pub(super) error_rate: Option<f64>,
}

impl Figures {
    pub(super) fn now(&self) -> Timestamp {
        self.health.now
    }

    pub(super) fn total(&self) -> Totals {
        self.queues.iter().fold(Totals::default(), |sum, queue| sum.plus(&queue.totals))
    }

    /// Queues whose events are not all where they should be.
    pub(super) fn broken(&self) -> Vec<&QueueStats> {
        self.queues.iter().filter(|queue| !queue.totals.hold()).collect()
    }

    pub(super) fn oldest_due_ms(&self) -> Option<u64> {
        self.queues.iter().filter_map(|queue| queue.oldest_due_ms).max()
    }
}

/// A lane that somebody opened.
#[derive(Debug, Clone)]
pub(super) struct OpenLane {
    pub(super) lane: LaneKey,
    /// Missing when it is idle and forgotten.
    pub(super) detail: Option<LaneDetail>,
    pub(super) runs: Vec<RunRow>,
}

/// Looks again and again, and remembers enough to tell how fast things go.
pub(super) struct Looker {
    engine: Engine,
    filter: LaneFilter,
    since: Stopwatch,
    trail: Trail,
}

impl Looker {
    pub(super) fn new(engine: Engine, filter: LaneFilter) -> Self {
        Looker { engine, filter, since: Stopwatch::start(), trail: Trail::default() }
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Lanes whose key begins with this.
    pub(super) async fn look(&mut self, prefix: &str) -> StoreResult<Figures> {
        let LaneFilter { tenant, queue, .. } = self.filter.clone();
        let health = self.engine.health().await?;
        let mut queues = self.engine.stats().await?;
        queues.retain(|of| {
            tenant.as_ref().is_none_or(|t| *t == of.tenant) && queue.as_ref().is_none_or(|q| *q == of.queue)
        });
        let key_prefix = (!prefix.is_empty()).then(|| prefix.to_owned());
        let page = self.engine.lanes(LaneFilter { key_prefix, ..self.filter.clone() }).await?;
        let workers = self.engine.workers().await?;
        let of = SourceFilter { tenant, limit: SOURCES, ..SourceFilter::default() };
        let sources = self.engine.sources(of).await?.items;
        self.trail.note(self.since.elapsed(), &queues);
        let seen: Vec<Seen> = self.trail.seen(|_, _| true);
        Ok(Figures {
            health,
            queues,
            lanes: page.items,
            more_lanes: page.next.is_some(),
            workers,
            sources,
            accepted: rates::trend(&seen, |c| c.accepted),
            succeeded: rates::trend(&seen, |c| c.succeeded),
            error_rate: rates::error_rate(&seen),
        })
    }

    pub(super) async fn detail(&self, lane: LaneKey) -> StoreResult<OpenLane> {
        let detail = self.engine.lane(lane.clone()).await?;
        let of = RunFilter {
            tenant: Some(lane.tenant.clone()),
            queue: Some(lane.queue.clone()),
            key: Some(lane.key.clone()),
            limit: RUNS,
            ..RunFilter::default()
        };
        let runs = self.engine.runs(of).await?.items;
        Ok(OpenLane { lane, detail, runs })
    }
}
