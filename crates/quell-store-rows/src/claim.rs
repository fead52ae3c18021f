//! Claim: due lanes are handed out, one batch and one lease each.
//!
//! The outlook says which queues have something due, by index entries; each of them gets its share, a different one
//! first each time. Lanes of a source that lets nobody go are passed over as a whole; what a source lets go is counted
//! when its row is locked, and taken in the transaction that hands the lanes out. Lanes that somebody else is just claiming are left to them. Entries may lie before the true times
//! (windows that restarted): the claim moves such entries and looks again until it has enough or nothing is left.
//! Expired leases, schedules and events aside are seen to first, in transactions of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quell_core::batch::Batch;
use quell_core::clock::Timestamp;
use quell_core::event::{LaneKey, QueueName, Tenant};
use quell_core::lane::{Attention, Lane, rank};
use quell_core::limits;
use quell_core::source::SourceId;
use quell_core::store::{ClaimRequest, Claimed, RunPolicy};

use crate::append::front;
use crate::rows::{Backend, Outlook, Pick, QueueOutlook, RowsResult, Span, Want};
use crate::work::{Index, Work, members};

/// Looks that one claim takes: each either hands lanes out or moves entries that lay too early.
const LOOKS_MAX: usize = 16;

/// What is left of a claim's allowance.
pub(crate) struct Progress {
    pub(crate) claimed: Claimed,
    left: usize,
    bytes: u64,
    pushes: usize,
    of_name: BTreeMap<QueueName, usize>,
    /// The caller gave the claim its id, so that it may be sent more than once.
    named: bool,
    /// A claim of this id has got its lanes meanwhile.
    pub(crate) made_before: bool,
}

impl Progress {
    pub(crate) fn new(request: &ClaimRequest, named: bool) -> Self {
        Progress {
            named,
            made_before: false,
            claimed: Claimed::default(),
            left: request.max.min(limits::CLAIM_LANES_MAX),
            bytes: 0,
            pushes: limits::CLAIM_PUSH_MAX,
            of_name: BTreeMap::new(),
        }
    }

    /// It has got as many lanes as it asked for.
    pub(crate) fn is_full(&self) -> bool {
        self.left == 0 && !self.made_before
    }
}

/// The live claims that an earlier call of this worker with this id got: its answer may have been lost.
pub(crate) async fn claimed_before(
    backend: &dyn Backend,
    request: &ClaimRequest,
    id: &str,
) -> RowsResult<Option<Claimed>> {
    let mut work = Work::begin(backend).await?;
    let lanes = work.rows.claimed(id).await?;
    work.take_in(lanes);
    let lanes = work.set.lanes.values();
    let spans = lanes.filter_map(|l| Some(members(l.lane.id, l.lane.current.as_ref()?))).collect();
    work.find(&Want { spans, ..Want::default() }, 0).await?;
    let batches = work.set.claimed_before(work.now, id, &request.worker);
    let now = work.now;
    work.rollback().await;
    let claimed = Claimed { batches, now, next_at: Some(now), ..Claimed::default() };
    Ok((!claimed.batches.is_empty()).then_some(claimed))
}

/// The queues of this claim where leases have run out.
pub(crate) fn expired(outlook: &Outlook, request: &ClaimRequest) -> Vec<(Tenant, QueueName)> {
    let mine = |q: &QueueOutlook| request.policy_for(&q.tenant, &q.queue).is_some();
    all_queues(outlook, |q| mine(q) && q.first_lease.is_some_and(|at| at <= outlook.now))
}

/// The queues of this claim where something aside is ready, or a schedule is due.
pub(crate) fn ready(outlook: &Outlook, request: &ClaimRequest) -> Vec<(Tenant, QueueName)> {
    let mine = |q: &QueueOutlook| request.policy_for(&q.tenant, &q.queue).is_some();
    let due =
        |q: &QueueOutlook| [q.first_aside, q.first_fire].into_iter().flatten().any(|at| at <= outlook.now);
    all_queues(outlook, |q| mine(q) && due(q))
}

/// True when this outlook has lanes to hand out.
pub(crate) fn has_due(outlook: &Outlook, request: &ClaimRequest) -> bool {
    outlook.queues.iter().any(|q| {
        let policy = request.policy_for(&q.tenant, &q.queue);
        policy.is_some_and(|policy| due_levels(outlook, q, policy).next().is_some())
    })
}

/// Due lanes of a queue that may be handed out: for one source or none, and one priority.
#[derive(Debug, Clone, Copy)]
struct Level {
    source: Option<SourceId>,
    priority: u8,
    /// As many as the source lets go.
    most: u64,
}

/// The lanes of a queue by what they wait for, with when the first of each priority is due.
fn waiting(q: &QueueOutlook) -> impl Iterator<Item = (Option<SourceId>, &[(u8, Timestamp)])> {
    let governed = q.governed.iter().map(|(source, levels)| (Some(*source), &levels[..]));
    std::iter::once((None, &q.levels[..])).chain(governed)
}

fn is_open(q: &QueueOutlook, policy: &RunPolicy) -> bool {
    let full = policy.max_running.is_some_and(|max| q.running >= u64::from(max));
    !q.paused && !full
}

/// The levels of a queue that have due lanes which may be handed out. A source that lets nobody go is passed over.
fn due_levels<'o>(
    outlook: &'o Outlook,
    q: &'o QueueOutlook,
    policy: &RunPolicy,
) -> impl Iterator<Item = Level> + use<'o> {
    let open = is_open(q, policy);
    let now = outlook.now;
    waiting(q).filter(move |_| open).flat_map(move |(source, levels)| {
        let most = outlook.readiness(source).most();
        let due = levels.iter().filter(move |(_, first)| most > 0 && *first <= now);
        due.map(move |(priority, _)| Level { source, priority: *priority, most })
    })
}

/// When this claimer should look again: a lane is due when its source lets it go. A queue at its `max_running` is woken by
/// a settle instead; an expired lease that this claimer may not take back is left for others.
pub(crate) fn next_at(outlook: &Outlook, request: &ClaimRequest) -> Option<Timestamp> {
    let of_queue = |q: &QueueOutlook| {
        let policy = request.policy_for(&q.tenant, &q.queue)?;
        let due = waiting(q).filter_map(|(source, levels)| {
            let first = levels.iter().map(|(_, first)| *first).min()?;
            outlook.readiness(source).not_before(first)
        });
        let due = due.min().filter(|_| is_open(q, policy));
        let lease = if request.reclaim { q.first_lease } else { q.later_lease };
        [due, lease, q.first_aside, q.first_fire].into_iter().flatten().min()
    };
    outlook.queues.iter().filter_map(of_queue).min()
}

/// Hands out once what this outlook shows. False when there is nothing more to look for.
pub(crate) async fn hand_out(
    backend: &dyn Backend,
    outlook: &Outlook,
    request: &ClaimRequest,
    progress: &mut Progress,
) -> RowsResult<bool> {
    let chosen = choose(outlook, request, progress);
    if chosen.is_empty() || progress.left == 0 || progress.pushes == 0 {
        return Ok(false);
    }
    let may_be_repeated = progress.claimed.batches.is_empty() && progress.named;
    let bounded = chosen.iter().any(|(_, policy, _)| policy.max_running.is_some());
    let mut rooms: BTreeMap<(Tenant, QueueName), usize> = BTreeMap::new();
    let mut picks = Vec::new();
    let (mut work, mut lanes) = if may_be_repeated || bounded {
        let mut work = Work::begin(backend).await?;
        if may_be_repeated {
            // The same claim may have been sent twice at once: the first of them gets the lanes, and the other is told.
            let id = request.claim_id.as_deref().unwrap_or_default();
            let lanes = work.rows.claimed(id).await?;
            work.take_in(lanes);
            if work.set.is_claimed(work.now, id, &request.worker) {
                work.rollback().await;
                progress.made_before = true;
                return Ok(false);
            }
        }
        for (q, policy, share) in &chosen {
            let mut room = *share;
            if let Some(max) = policy.max_running {
                let running = work.rows.running(&q.tenant, &q.queue).await?;
                let free = u64::from(max).saturating_sub(running);
                room = room.min(usize::try_from(free).unwrap_or(usize::MAX));
            }
            pick(outlook, q, policy, room, &mut rooms, &mut picks);
        }
        if picks.is_empty() {
            work.rollback().await;
            return Ok(false);
        }
        let lanes = work.rows.due(&picks).await?;
        (work, lanes)
    } else {
        for (q, policy, share) in &chosen {
            pick(outlook, q, policy, *share, &mut rooms, &mut picks);
        }
        if picks.is_empty() {
            return Ok(false);
        }
        Work::begin_due(backend, &picks, outlook.now).await?
    };
    // Each priority has an order of its own, and a higher one overtakes by a bounded time.
    lanes.sort_by_key(|at| rank(at.entries.due.unwrap_or(work.now), at.entries.priority));
    let found = lanes.len();
    let keys = work.take_in(lanes);
    // The outlook has only read what sources allow: now nobody else takes of it until the end.
    let sources: BTreeSet<SourceId> = keys.iter().filter_map(|key| work.lane(key)?.source()).collect();
    work.find(&Want { sources: sources.into_iter().collect(), ..Want::default() }, 0).await?;
    let mut allowed: BTreeMap<SourceId, u64> = BTreeMap::new();
    let now = work.now;
    let mut taken: Vec<(LaneKey, Arc<RunPolicy>)> = Vec::new();
    // Kept apart until the commit: a transaction that is begun anew begins with what was left before it.
    let (mut left, mut bytes, mut of_name) = (progress.left, progress.bytes, progress.of_name.clone());
    let mut pushed = 0;
    for key in keys {
        let Some(lane) = work.lane(&key) else { continue };
        if !matches!(lane.attention(now), Attention::Again | Attention::Cut) {
            // The window restarted after this entry was written: the entry moves to the true time.
            work.push(key);
            pushed += 1;
            continue;
        }
        let Some(policy) = request.policy_for(&key.tenant, &key.queue) else { continue };
        let room = rooms.get_mut(&(key.tenant.clone(), key.queue.clone()));
        let Some(room) = room.filter(|room| **room > 0) else { continue };
        let of_name = of_name.entry(key.queue.clone()).or_default();
        if left == 0 || *of_name >= request.room_for(&key.queue) || bytes >= limits::CLAIM_BYTES_MAX {
            continue;
        }
        if let Some(source) = lane.source() {
            let allowed = allowed.entry(source).or_insert_with(|| work.set.readiness(now, lane).most());
            if *allowed == 0 {
                continue;
            }
            *allowed -= 1;
        }
        *room -= 1;
        *of_name += 1;
        left -= 1;
        bytes += bytes_of(lane);
        taken.push((key, policy.clone()));
    }
    let batches = take(&mut work, request, &taken).await?;
    // What is due again after its lease needs no bell: those who sleep were told by the outlook.
    work.commit(Index::Exact).await?;
    progress.claimed.batches.extend(batches);
    (progress.left, progress.bytes, progress.of_name) = (left, bytes, of_name);
    progress.pushes = progress.pushes.saturating_sub(pushed);
    // A look that got fewer lanes than it asked for has seen them all; one that moved entries looks again.
    let saturated = picks.iter().any(|pick| found >= pick.most);
    Ok((saturated || pushed > 0) && progress.left > 0 && progress.bytes < limits::CLAIM_BYTES_MAX)
}

/// What is looked for in a queue that may give this many lanes.
fn pick(
    outlook: &Outlook,
    q: &QueueOutlook,
    policy: &RunPolicy,
    room: usize,
    rooms: &mut BTreeMap<(Tenant, QueueName), usize>,
    picks: &mut Vec<Pick>,
) {
    if room == 0 {
        return;
    }
    rooms.insert((q.tenant.clone(), q.queue.clone()), room);
    let levels = due_levels(outlook, q, policy);
    picks.extend(levels.map(|Level { source, priority, most }| Pick {
        tenant: q.tenant.clone(),
        queue: q.queue.clone(),
        source,
        priority,
        most: room.min(usize::try_from(most).unwrap_or(usize::MAX)),
    }));
}

/// At the most what this lane's batch weighs.
fn bytes_of(lane: &Lane) -> u64 {
    match (&lane.current, lane.open) {
        (Some(run), _) => run.bytes,
        (None, Some(open)) => open.bytes.min(open.window.window.max_bytes),
        (None, None) => 0,
    }
}

/// Which queues are looked into, and how many lanes each may give: every queue gets its share before any gets more.
fn choose<'o>(
    outlook: &'o Outlook,
    request: &ClaimRequest,
    progress: &Progress,
) -> Vec<(&'o QueueOutlook, Arc<RunPolicy>, usize)> {
    let mut due: Vec<(&QueueOutlook, Arc<RunPolicy>)> = outlook
        .queues
        .iter()
        .filter_map(|q| {
            let policy = request.policy_for(&q.tenant, &q.queue)?;
            due_levels(outlook, q, policy).next()?;
            Some((q, policy.clone()))
        })
        .collect();
    if due.is_empty() {
        return Vec::new();
    }
    let turn = usize::try_from(outlook.now.as_millis() / 7).unwrap_or(0) % due.len();
    due.rotate_left(turn);
    due.truncate(progress.left.max(1));
    let share = progress.left.div_ceil(due.len());
    let mut chosen: Vec<_> = due
        .into_iter()
        .filter_map(|(q, policy)| {
            let taken = progress.of_name.get(&q.queue).copied().unwrap_or(0);
            let room = share.min(request.room_for(&q.queue).saturating_sub(taken));
            (room > 0).then_some((q, policy, room))
        })
        .collect();
    // Queues are locked in one order by everybody.
    chosen.sort_by(|(a, ..), (b, ..)| (&a.tenant, &a.queue).cmp(&(&b.tenant, &b.queue)));
    chosen
}

async fn take(
    work: &mut Work,
    request: &ClaimRequest,
    taken: &[(LaneKey, Arc<RunPolicy>)],
) -> RowsResult<Vec<Batch>> {
    let mut want = Want::default();
    for (key, policy) in taken {
        want.spans.extend(work.lane(key).iter().flat_map(|lane| spans(lane, policy)));
    }
    let numbers = if taken.is_empty() { 0 } else { 16 + taken.len() * 8 };
    work.find(&want, numbers).await?;
    // A first event that fills the batch alone leaves the one behind it unread.
    let bounded: BTreeSet<u64> =
        want.spans.iter().filter(|span| span.bytes.is_some()).map(|span| span.lane).collect();
    let mut rest = Want::default();
    for (key, _) in taken {
        let l = &work.set.lanes[key];
        let Some(open) = l.lane.open else { continue };
        let mut read = l.events.range(open.lo..).filter(|(_, k)| k.mark.is_none());
        if let Some((last, _)) = read.next_back().filter(|_| bounded.contains(&l.lane.id)) {
            rest.spans.push(front(l.lane.id, last + 1, 1));
        }
    }
    work.find(&rest, 0).await?;
    let now = work.now;
    Ok(taken.iter().map(|(key, policy)| work.set.hand_out(now, key, request, policy)).collect())
}

/// The events that a claim of this lane reads.
fn spans(lane: &Lane, policy: &RunPolicy) -> Vec<Span> {
    let newer = |events: u64, bytes: u64, max_events: u32, max_bytes: u64| {
        let open = lane.open?;
        // Behind the events of the open run there are none.
        let most = (u64::from(max_events).saturating_sub(events) + 1).min(open.count);
        let room = max_bytes.saturating_sub(bytes);
        let bytes = (open.bytes > room).then_some(room + 1);
        Some(Span { bytes, ..front(lane.id, open.lo, most) })
    };
    match &lane.current {
        None => lane
            .open
            .and_then(|o| newer(0, 0, o.window.window.max_events, o.window.window.max_bytes))
            .into_iter()
            .collect(),
        Some(run) => {
            let own = members(lane.id, run);
            let merges = lane.takes_newer(policy).filter(|run| !run.is_buffered());
            let more = merges.and_then(|run| newer(run.count, run.bytes, run.max_events, run.max_bytes));
            std::iter::once(own).chain(more).collect()
        }
    }
}

/// How often a claim looks.
pub(crate) fn looks() -> std::ops::Range<usize> {
    0..LOOKS_MAX
}

/// The queues of an outlook, once each.
pub(crate) fn all_queues(
    outlook: &Outlook,
    wanted: impl Fn(&QueueOutlook) -> bool,
) -> Vec<(Tenant, QueueName)> {
    let queues: BTreeSet<_> =
        outlook.queues.iter().filter(|q| wanted(q)).map(|q| (q.tenant.clone(), q.queue.clone())).collect();
    queues.into_iter().collect()
}
