//! The arrivals of a lane as they were recorded, for a replay through other settings.

use std::collections::BTreeMap;
use std::time::Duration;

use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::LaneKey;
use quell::quell_core::inspect::RunFilter;

use super::trial::Fields;
use crate::app::App;
use crate::auth::Principal;
use crate::dashboard::view::{self, filled};
use crate::error::{Answer, Problem};
use crate::limits;

/// What is still known of a lane's events.
#[derive(Debug, Clone)]
pub(super) struct Recorded {
    pub(super) lane: LaneKey,
    /// When the first of them came.
    pub(super) from: Timestamp,
    /// Offsets from it.
    pub(super) arrivals: Vec<Duration>,
    /// The runs that they made, as it was.
    pub(super) runs: usize,
    /// There were more than are taken.
    pub(super) more: bool,
}

impl Recorded {
    pub(super) fn place(&self) -> String {
        view::lane_place(&self.lane)
    }
}

/// Nothing unless a lane is named: with a queue alone, only its settings are taken.
pub(super) async fn of(app: &App, principal: &Principal, fields: &Fields) -> Answer<Option<Recorded>> {
    let (Some(queue), Some(key)) = (filled(fields.queue.as_ref()), filled(fields.key.as_ref())) else {
        return Ok(None);
    };
    let unknown = || Problem::not_found(format!("nothing is known of {queue}/{key}"));
    let named = principal.lane(filled(fields.tenant.as_ref()).as_deref(), &queue, &key);
    let lane = named.map_err(|problem| if problem.code() == "forbidden" { unknown() } else { problem })?;
    let filter = RunFilter {
        tenant: Some(lane.tenant.clone()),
        queue: Some(lane.queue.clone()),
        key: Some(lane.key.clone()),
        limit: limits::PLAYGROUND_RUNS,
        ..RunFilter::default()
    };
    let page = app.engine.runs(filter).await?;
    // By their numbers: a redriven event is in two runs and came once.
    let mut came: BTreeMap<u64, Timestamp> = BTreeMap::new();
    let (mut more, mut runs) = (page.next.is_some(), 0);
    for row in &page.items {
        if came.len() >= limits::PLAYGROUND_EVENTS {
            more = true;
            break;
        }
        let Some(run) = app.engine.run(row.id).await? else { continue };
        runs += usize::from(!run.list.is_empty() && run.row.claims > 0);
        came.extend(run.list.iter().map(|event| (event.seq, event.received_at)));
    }
    while came.len() > limits::PLAYGROUND_EVENTS {
        came.pop_first();
        more = true;
    }
    let mut moments: Vec<Timestamp> = came.into_values().collect();
    moments.sort_unstable();
    let from = *moments.first().ok_or_else(unknown)?;
    let arrivals = moments.iter().map(|at| at.since(from).min(limits::PLAYGROUND_SPAN)).collect();
    Ok(Some(Recorded { lane, from, arrivals, runs, more }))
}
