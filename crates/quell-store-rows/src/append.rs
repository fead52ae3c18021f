//! Append: a group of requests in one transaction.
//!
//! The lanes of all requests are locked together, what the decisions look up is read together, and everything is written
//! together. A request whose lane somebody else is changing leaves the group and is done alone, so that one slow lane
//! holds up nobody else; a request that is refused has changed nothing.

use std::collections::{BTreeMap, BTreeSet};

use quell_core::error::StoreResult;
use quell_core::event::{LaneKey, NewEvent, NewEventId, Overflow};
use quell_core::store::{AppendRequest, Appended};

use crate::rows::{Backend, First, Patience, RowsResult, Span, Want};
use crate::work::{Index, Work};

/// What became of the requests of a group; nothing for those that are to be done alone.
pub(crate) type Answers<T> = Vec<Option<StoreResult<T>>>;

pub(crate) async fn append(
    backend: &dyn Backend,
    requests: &[&AppendRequest],
    patience: Patience,
) -> RowsResult<Answers<Appended>> {
    let keys: BTreeSet<&LaneKey> = requests.iter().flat_map(|r| &r.events).map(|e| &e.lane).collect();
    let keys: Vec<LaneKey> = keys.into_iter().cloned().collect();
    let all: usize = requests.iter().map(|r| r.events.len()).sum();
    let (mut work, lanes) = Work::begin_with(backend, First::Keys(&keys, patience), numbers(all)).await?;
    let busy: BTreeSet<LaneKey> = lanes.busy.into_iter().collect();
    let free: Vec<bool> =
        requests.iter().map(|r| r.events.iter().all(|event| !busy.contains(&event.lane))).collect();
    let in_group = || requests.iter().zip(&free).filter(|(_, free)| **free).map(|(request, _)| *request);
    if in_group().next().is_none() {
        work.rollback().await;
        return Ok(requests.iter().map(|_| None).collect());
    }
    let want = wanted(&work, in_group());
    let events: usize = in_group().map(|r| r.events.len()).sum();
    work.find(&want, numbers(events)).await?;
    // A duplicate is answered with the run its first event is in, or was in.
    let mut ended = Want::default();
    for l in work.set.lanes.values() {
        for (seq, kept) in &l.events {
            if l.lane.run_of(*seq, kept.mark).is_none() {
                ended.runs_of.push((l.lane.id, *seq, kept.mark));
            }
        }
    }
    work.find(&ended, 0).await?;
    let now = work.now;
    let answers = requests.iter().zip(&free).map(|(r, free)| free.then(|| work.set.append(now, r))).collect();
    if let Some(at) = work.commit(Index::Lazy).await? {
        backend.ring(at);
    }
    Ok(answers)
}

/// An event may need a lane, its own number, its run's, a source, and, where it drops others, their run's and a record.
fn numbers(events: usize) -> usize {
    16 + events * 7
}

fn wanted<'r>(work: &Work, requests: impl Iterator<Item = &'r AppendRequest>) -> Want {
    let mut want = Want::default();
    let mut news: BTreeMap<&LaneKey, u64> = BTreeMap::new();
    let mut drops: BTreeMap<&LaneKey, u64> = BTreeMap::new();
    for (event, repeat) in requests.flat_map(|r| r.events.iter().map(|event| (event, r.repeat))) {
        let lane = work.lane(&event.lane);
        let given = matches!(event.id, NewEventId::Given(_));
        if given || repeat {
            if let Some(lane) = lane {
                want.ids.push((lane.id, event.id.id().clone()));
            }
            want.aside_ids.push((event.lane.clone(), event.id.id().clone()));
        }
        if event.only_if_idle {
            want.aside_first.push(event.lane.clone());
        }
        govern(&mut want, event);
        let Some(lane) = lane else { continue };
        let Some(open) = lane.open else { continue };
        if event.policy.content_dedupe && !given && event.delay.is_none() && open.window.closed.is_none() {
            want.contents.push((lane.id, open.lo, event.payload.fingerprint()));
        }
        let new = news.entry(&event.lane).or_default();
        *new += 1;
        if event.policy.overflow == Overflow::DropOldest {
            let over = (lane.events() + *new).saturating_sub(event.policy.lane_events);
            let most = drops.entry(&event.lane).or_default();
            *most = over.max(*most);
        }
    }
    for (key, over) in drops.into_iter().filter(|(_, over)| *over > 0) {
        let lane = work.lane(key);
        if let Some((id, open)) = lane.and_then(|l| Some((l.id, l.open?))) {
            want.spans.push(front(id, open.lo, over + 1));
        }
    }
    want
}

/// What governs this event is read, if anything does.
pub(crate) fn govern(want: &mut Want, event: &NewEvent) {
    if let Some(name) = event.governed_by() {
        let place = (event.lane.tenant.clone(), name.clone());
        if !want.governing.contains(&place) {
            want.governing.push(place);
        }
    }
}

/// The first unmarked events of a lane from this number on.
pub(crate) fn front(lane: u64, from: u64, most: u64) -> Span {
    Span { lane, from, upto: i64::MAX as u64, mark: None, most, bytes: None }
}
