//! Sweep: leases that ran out are taken back, schedules fire, events aside enter their lanes; the retention is the
//! backend's own.

use std::collections::{BTreeMap, BTreeSet};

use quell_core::event::{LaneKey, NewEvent, Overflow, QueueName, Tenant};
use quell_core::lane::Attention;
use quell_core::limits;
use quell_core::store::Reclaimed;

use crate::append::{front, govern};
use crate::rows::{Backend, Patience, RowsResult, Want};
use crate::work::{Index, Work, to_be_split};

/// Takes back the leases of these queues that ran out, if allowed, and moves the entries of those that were extended. Says
/// whether there may be more.
pub(crate) async fn reclaim(
    backend: &dyn Backend,
    queues: &[(Tenant, QueueName)],
    allowed: bool,
) -> RowsResult<(Vec<Reclaimed>, bool)> {
    let mut work = Work::begin(backend).await?;
    let lanes = work.rows.expired(queues, limits::SWEEP_LANES_STEP).await?;
    let more = lanes.len() == limits::SWEEP_LANES_STEP;
    let keys = work.take_in(lanes);
    let now = work.now;
    let mut expired = Vec::new();
    let mut want = Want::default();
    for key in keys {
        let Some(lane) = work.lane(&key) else { continue };
        if lane.attention(now) != Attention::Expired {
            work.push(key);
        } else if allowed {
            want.spans.extend(to_be_split(lane));
            expired.push(key);
        }
    }
    let numbers = if expired.is_empty() { 0 } else { 16 + expired.len() * 12 };
    work.find(&want, numbers).await?;
    let reclaimed: Vec<Reclaimed> = expired.iter().filter_map(|key| work.set.reclaim(now, key)).collect();
    if let Some(at) = work.commit(Index::Exact).await? {
        backend.ring(at);
    }
    Ok((reclaimed, more && allowed))
}

/// Fires the schedules of these queues that are due and takes ready events into their lanes. Says whether there is more.
pub(crate) async fn fire_and_enter(
    backend: &dyn Backend,
    queues: &[(Tenant, QueueName)],
) -> RowsResult<bool> {
    let mut work = Work::begin(backend).await?;
    let fires = work.rows.fires(queues).await?;
    let mut ready = work.rows.ready(queues, limits::ASIDE_STEP + 1).await?;
    // What a schedule fires is taken in at once: its lane is needed, too.
    let fired: Vec<LaneKey> = fires
        .iter()
        .map(|row| &row.schedule)
        .map(|s| LaneKey { tenant: s.tenant.clone(), queue: s.queue.clone(), key: s.key.clone() })
        .collect();
    let keys: BTreeSet<LaneKey> = ready.iter().map(|aside| aside.event.lane.clone()).chain(fired).collect();
    if keys.is_empty() {
        work.rollback().await;
        return Ok(false);
    }
    let count = ready.len() + fires.len();
    let keys: Vec<LaneKey> = keys.into_iter().collect();
    let lanes = work.rows.lanes(&keys, Patience::None).await?;
    // What waits for a lane that somebody is changing is for the next look.
    let busy: BTreeSet<LaneKey> = lanes.busy.into_iter().collect();
    let more = ready.len() > limits::ASIDE_STEP;
    ready.retain(|aside| !busy.contains(&aside.event.lane));
    let fires: Vec<_> = fires
        .into_iter()
        .filter(|row| {
            let s = &row.schedule;
            !busy.iter().any(|k| k.tenant == s.tenant && k.queue == s.queue && k.key == s.key)
        })
        .collect();
    work.take_in(lanes.lanes);
    let now = work.now;
    let fired: Vec<NewEvent> = fires.iter().filter_map(|row| row.clone().fire(now)).map(|(e, _)| e).collect();
    let want = wanted(&work, ready.iter().map(|aside| &aside.event).chain(&fired));
    work.take_in_aside(&ready);
    work.take_in_schedules(&fires);
    // One more than are at hand enters of each lane, see `wanted`.
    work.find(&want, 16 + 2 * count * 7).await?;
    work.set.fire_and_enter(now, |_, _| true);
    if let Some(at) = work.commit(Index::Lazy).await? {
        backend.ring(at);
    }
    Ok(more)
}

/// What is looked up for these events, which may enter their lanes.
fn wanted<'e>(work: &Work, events: impl Iterator<Item = &'e NewEvent>) -> Want {
    let mut want = Want::default();
    // How many enter each lane, and the least room that any of those has that drop others.
    let mut entering: BTreeMap<&LaneKey, (u64, Option<u64>)> = BTreeMap::new();
    for event in events {
        let (count, room) = entering.entry(&event.lane).or_default();
        *count += 1;
        if event.policy.overflow == Overflow::DropOldest {
            *room = Some(room.map_or(event.policy.lane_events, |room| room.min(event.policy.lane_events)));
        }
        govern(&mut want, event);
        want.ids.extend(work.lane(&event.lane).map(|lane| (lane.id, event.id.id().clone())));
    }
    for (key, (count, room)) in entering {
        // Those of one lane enter in order: behind one that has to wait, all wait.
        want.aside_first.push(key.clone());
        let Some(lane) = work.lane(key) else { continue };
        if let (Some(open), Some(room)) = (lane.open, room) {
            // The first of the lane, which is read along, may have become ready since the others were found. Were one event
            // too few read, what stays would seem to be nothing, and would belong to no run any more.
            let over = (lane.events() + count + 1).saturating_sub(room);
            if over > 0 {
                want.spans.push(front(lane.id, open.lo, over + 1));
            }
        }
    }
    want
}
