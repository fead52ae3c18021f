//! All intakes at all enabled sources, by one event: what a schedule sends.
//!
//! Each becomes an event of its own in the lane of its intake and source, with an id made of this run: a repeated attempt sends
//! nothing twice. A lane that has something to do already gets nothing more, so that a source which is slower than the
//! schedule does not collect ever longer queues of the same question.

use std::collections::BTreeMap;

use quell::quell_core::error::StoreResult;
use quell::quell_core::event::{LaneKey, SourceName, Tenant};
use quell::quell_core::inspect::SourceFilter;
use quell::quell_core::limits;
use quell::{Engine, EngineError, Incoming, Outcome, Run};
use serde_json::json;

use crate::book::Listing;
use crate::collect::{Collects, Stop};
use crate::intake::Intake;
use crate::request::event;

/// Intakes that are looked at together; with all their sources they are one append.
const STEP: usize = 200;

/// Of these sources, those that a tenant may ask: not disabled by hand, neither its own nor a shared one.
pub async fn enabled(
    engine: &Engine,
    tenant: &Tenant,
    names: impl IntoIterator<Item = &SourceName>,
) -> StoreResult<Vec<SourceName>> {
    let rows =
        engine.all_sources(SourceFilter { limit: limits::PAGE_MAX, ..SourceFilter::default() }).await?;
    let is_enabled = |name: &&SourceName| {
        let of = |owner: &Tenant| rows.iter().find(|row| row.name == **name && row.tenant == *owner);
        let shared = of(&Tenant::none()).filter(|row| row.rules.shared);
        // One that no event has named yet has no row of its own, and nobody can have disabled it.
        of(tenant).or(shared).is_none_or(|row| row.enabled)
    };
    Ok(names.into_iter().filter(is_enabled).cloned().collect())
}

/// Sends one event for each.
pub(crate) async fn send_all(collects: &Collects, run: &Run) -> Result<Outcome, Stop> {
    let away = |error: EngineError| Outcome::retry(format!("not all collections could be sent: {error}"));
    let engine = &collects.engine;
    let sources = enabled(engine, run.tenant(), collects.sources.keys()).await?;
    let mut listing = Listing { tenant: Some(run.tenant().clone()), cursor: None, limit: STEP };
    let (mut sent, mut busy, mut intakes) = (0_usize, 0_usize, 0_usize);
    loop {
        let page = collects.book.intakes(&listing).await?;
        let mut events = Vec::new();
        for intake in &page.items {
            for source in &sources {
                let event = asked(run, intake, source).map_err(away)?;
                match has_work(engine, &event.lane).await? {
                    true => busy += 1,
                    false => events.push(event),
                }
            }
        }
        intakes += page.items.len();
        sent += events.len();
        for some in events.chunks(limits::APPEND_EVENTS_MAX) {
            engine.append(some.to_vec()).await.map_err(away)?;
        }
        match page.next {
            Some(next) => listing.cursor = Some(next),
            None => break,
        }
    }
    let result = json!({ "intakes": intakes, "sources": sources.len(), "sent": sent, "busy": busy });
    Ok(Outcome::succeeded().with_result(result).source_unused())
}

fn asked(run: &Run, intake: &Intake, source: &SourceName) -> Result<Incoming, EngineError> {
    let event = event(&intake.tenant, &intake.id, source, &BTreeMap::new())?;
    Ok(event.id(&format!("all/{}", run.run_id()))?)
}

async fn has_work(engine: &Engine, lane: &LaneKey) -> StoreResult<bool> {
    let known = engine.lane(lane.clone()).await?;
    Ok(known.is_some_and(|lane| {
        lane.row.state.is_some() || lane.row.buffered > 0 || lane.row.in_flight > 0 || lane.delayed > 0
    }))
}
