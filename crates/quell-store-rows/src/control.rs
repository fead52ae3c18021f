//! Control: an operator's hand on a lane, a run, a queue, a schedule or a source.

use std::collections::BTreeSet;

use quell_core::batch::RunId;
use quell_core::event::{EventId, LaneKey, SourceName};
use quell_core::source::Source;
use quell_core::store::{
    Control, ControlAction, Controlled, Purge, PurgeWhat, Redrive, RedriveTo, too_many_sources,
};
use quell_core::{limits, working_set::LaneSums};

use crate::append::front;
use crate::rows::{Backend, Patience, RowsResult, Want};
use crate::settle::locked_by_id;
use crate::work::{Index, Work, members};

pub(crate) async fn control(backend: &dyn Backend, request: &Control) -> RowsResult<Controlled> {
    let mut work = Work::begin(backend).await?;
    match &request.action {
        ControlAction::Flush(key)
        | ControlAction::PauseLane(key)
        | ControlAction::ResumeLane(key)
        | ControlAction::Cancel { lane: key, .. } => {
            lock(&mut work, key).await?;
            work.find(&Want::default(), 32).await?;
        }
        ControlAction::PauseQueue(_) | ControlAction::ResumeQueue(_) => {
            work.find(&Want { pauses: true, ..Want::default() }, 16).await?;
        }
        ControlAction::PutSchedule(_) | ControlAction::RemoveSchedule { .. } => {
            work.find(&Want { schedules: true, ..Want::default() }, 16).await?;
        }
        ControlAction::PutSource { name, .. } | ControlAction::RemoveSource { name } => {
            read_source(&mut work, name).await?;
        }
        ControlAction::EnableSource(scope)
        | ControlAction::DisableSource(scope)
        | ControlAction::ReleaseSource(scope)
        | ControlAction::ResetSource(scope) => {
            // Lanes are locked before sources, everywhere.
            lock(&mut work, &scope.trail()).await?;
            read_source(&mut work, &scope.name).await?;
        }
        ControlAction::Redrive(redrive) => read_run(&mut work, redrive).await?,
        ControlAction::Purge(purge) => read_purgeable(&mut work, purge).await?,
        ControlAction::EraseLane(key) => return erase_lane(backend, work, &request.actor, key).await,
        ControlAction::EraseEvent { lane, id } => read_to_erase(&mut work, lane, id).await?,
        ControlAction::EditEvent { lane, id, .. } | ControlAction::DeleteEvent { lane, id } => {
            lock(&mut work, lane).await?;
            let mut want = Want::default();
            if let Some(lane) = work.lane(lane) {
                want.ids.push((lane.id, id.clone()));
                // The one that is first when this one is gone.
                want.spans.extend(lane.open.map(|open| front(lane.id, open.lo, 2)));
            }
            work.find(&want, 32).await?;
        }
    }
    let now = work.now;
    match work.set.control(now, &request.actor, request.action.clone()) {
        Ok(controlled) => {
            if let ControlAction::ResetSource(scope) = &request.action {
                let mine = |s: &&Source| s.tenant == scope.tenant && s.name == scope.name;
                let reset = work.set.sources.values().find(mine).map(|source| source.id);
                reset.into_iter().for_each(|source| work.empty(source));
            }
            if let Some(at) = work.commit(Index::Exact).await? {
                backend.ring(at);
            }
            Ok(controlled)
        }
        Err(error) => {
            work.rollback().await;
            Err(error.into())
        }
    }
}

async fn lock(work: &mut Work, key: &LaneKey) -> RowsResult<()> {
    let lanes = work.rows.lanes(std::slice::from_ref(key), Patience::Answer).await?;
    work.take_in(lanes.lanes);
    Ok(())
}

/// How many declarations there are is known by the number of those that are here.
async fn read_source(work: &mut Work, name: &SourceName) -> RowsResult<()> {
    let found = work.find(&Want { declared: Some(name.clone()), ..Want::default() }, 16).await?;
    if found.declarations.is_empty() && found.declared >= limits::SOURCES_DECLARED_MAX {
        return Err(too_many_sources().into());
    }
    Ok(())
}

async fn read_run(work: &mut Work, redrive: &Redrive) -> RowsResult<()> {
    let run = redrive.run;
    locked_by_id(work, &BTreeSet::from([run.lane]), Patience::Answer).await?;
    let mut want = Want { runs: vec![run], ..Want::default() };
    if redrive.to == RedriveTo::Head && !redrive.fresh {
        want.steps.push(run);
    }
    work.find(&want, 0).await?;
    let ended = work.set.finished.iter().find(|r| r.ended.run.number == run.number);
    let spans: Vec<_> = ended.iter().map(|r| members(run.lane, &r.ended.run)).collect();
    let events = ended.map_or(0, |r| usize::try_from(r.ended.run.count).unwrap_or(usize::MAX));
    work.find(&Want { spans, ..Want::default() }, 32 + events.saturating_mul(3)).await?;
    Ok(())
}

async fn read_purgeable(work: &mut Work, purge: &Purge) -> RowsResult<()> {
    let found = work.rows.purgeable(purge, limits::PURGE_STEP + 1).await?;
    let mut want = Want::default();
    let mut numbers = 64;
    match purge.what {
        PurgeWhat::Dead => {
            let lanes: BTreeSet<u64> = found.dead.iter().map(|run| run.lane).collect();
            locked_by_id(work, &lanes, Patience::Answer).await?;
            numbers += found.dead.len() * 2;
            want.runs = found.dead;
        }
        PurgeWhat::Delayed => {
            let keys: BTreeSet<LaneKey> = found.aside.iter().map(|a| a.event.lane.clone()).collect();
            let keys: Vec<LaneKey> = keys.into_iter().collect();
            let lanes = work.rows.lanes(&keys, Patience::Answer).await?;
            work.take_in(lanes.lanes);
            for aside in &found.aside {
                let (key, id) = (&aside.event.lane, aside.event.id.id());
                want.aside_ids.push((key.clone(), id.clone()));
                want.ids.extend(work.lane(key).map(|lane| (lane.id, id.clone())));
            }
            numbers += found.aside.len() * 4;
        }
        PurgeWhat::Buffered => {
            let lanes = work.rows.lanes(&found.lanes, Patience::Answer).await?;
            let mut events = 0;
            let enough = limits::PURGE_STEP as u64;
            for at in &lanes.lanes {
                let Some(open) = at.lane.open.filter(|_| events < enough) else { continue };
                events += open.count;
                want.spans.push(front(at.lane.id, open.lo, open.count));
            }
            numbers += lanes.lanes.len() * 4;
            work.take_in(lanes.lanes);
        }
    }
    work.find(&want, numbers).await?;
    Ok(())
}

async fn erase_lane(
    backend: &dyn Backend,
    mut work: Work,
    actor: &str,
    key: &LaneKey,
) -> RowsResult<Controlled> {
    lock(&mut work, key).await?;
    let id = work.lane(key).map(|lane| lane.id);
    // A schedule of this key would name it again.
    let want = Want { sums: Some((key.clone(), id)), schedules: true, ..Want::default() };
    let runs = work.lane(key).map_or(0, |l| l.fixed_runs().count());
    let sums: LaneSums = work.find(&want, 32 + runs * 4).await?.sums;
    let now = work.now;
    let controlled = work.set.erase_lane_of(now, actor, key, sums);
    // A schedule of this key may be there without a lane.
    if let Some(at) = work.commit_erased(key.clone()).await? {
        backend.ring(at);
    }
    Ok(controlled)
}

/// The event wherever it is, the run it belongs to, and those that it went through, with their steps.
async fn read_to_erase(work: &mut Work, key: &LaneKey, id: &EventId) -> RowsResult<()> {
    lock(work, key).await?;
    let mut want = Want { aside_ids: vec![(key.clone(), id.clone())], ..Want::default() };
    let lane = work.lane(key).cloned();
    want.ids.extend(lane.as_ref().map(|l| (l.id, id.clone())));
    let open = lane.as_ref().and_then(|l| Some((l.id, l.open?.lo)));
    want.spans.extend(open.map(|(id, lo)| front(id, lo, 2)));
    work.find(&want, 64).await?;
    let Some(lane) = lane else { return Ok(()) };
    let l = &work.set.lanes[key];
    let Some((seq, mark)) = l.ids.get(id).and_then(|(seq, _)| Some((*seq, l.events.get(seq)?.mark))) else {
        return Ok(());
    };
    let mut next = match lane.run_of(seq, mark) {
        Some((number, _)) => {
            // A run that has not ended: its steps go, and those of the runs it came from.
            let run = RunId { lane: lane.id, number };
            work.find(&Want { steps: vec![run], ..Want::default() }, 0).await?;
            let run = lane.fixed_runs().find(|c| c.number == number);
            run.and_then(|run| run.links.redriven_from.or(run.links.split_from))
        }
        None => {
            let want = Want { runs_of: vec![(lane.id, seq, mark)], ..Want::default() };
            let found = work.find(&want, 0).await?;
            found.runs.first().map(|run| run.ended.run.number)
        }
    };
    while let Some(number) = next.take() {
        let run = RunId { lane: lane.id, number };
        let found = work.find(&Want { runs: vec![run], steps: vec![run], ..Want::default() }, 0).await?;
        let ended = found.runs.first().map(|r| &r.ended.run.links);
        next = ended.and_then(|links| links.redriven_from.or(links.split_from));
    }
    Ok(())
}
