//! What the children do until they are killed: send, work, and lay hands on lanes; and how what is left is finished.

use std::sync::Arc;
use std::time::Duration;

use quell_check::history::Op;
use quell_core::batch::{Batch, WorkerId};
use quell_core::error::ErrorKind;
use quell_core::event::{NewEventId, Payload};
use quell_core::inspect::{Inspect, Inspected, RunFilter};
use quell_core::lane::DuringRun;
use quell_core::lifecycle::RunState;
use quell_core::outcome::Verdict;
use quell_core::store::{
    AppendRequest, ClaimQueues, ClaimRequest, Control, ControlAction, HoldAnswer, Purge, PurgeWhat, Redrive,
    RedriveTo, SettleRequest, StepAction, StepAnswer, Store, Wakeups,
};
use quell_core::window::WindowPolicy;
use serde_json::json;

use crate::chance::Chance;
use crate::courses::{Course, LANES, LEASE, courses};
use crate::record::Recorded;
use crate::requests::{extend_request, hold_request, id, settle_request, step_request};

/// What a handler takes, every other time.
const HANDLING: Duration = Duration::from_millis(10);

/// Sends until it is killed: new events, some again, some later, some with wishes of their own.
pub(crate) async fn append_forever(store: &Recorded, name: &str) {
    let courses = courses();
    let mut chance = Chance::seeded(seed_of(name));
    let mut sent: Vec<(usize, u64, String)> = Vec::new();
    for number in 0u64.. {
        let mut batch = Vec::new();
        for part in 0..1 + chance.below(3) {
            let which = usize::try_from(chance.below(courses.len() as u64 - 1)).expect("a small index");
            batch.push((which, chance.below(LANES), format!("{name}-{number}-{part}")));
        }
        if chance.percent(15) && !sent.is_empty() {
            batch.push(chance.pick(&sent).clone());
        }
        let mut events: Vec<_> = batch.iter().map(|(which, n, id)| courses[*which].event(*n, id)).collect();
        for event in &mut events {
            match chance.below(20) {
                0 | 1 => event.delay = Some(Duration::from_millis(1 + chance.below(30))),
                2 => event.priority = u8::try_from(chance.below(10)).expect("a digit"),
                3 => event.window = Some(WindowPolicy::None),
                4 => event.only_if_idle = true,
                _ => {}
            }
        }
        if chance.percent(3) && !sent.is_empty() {
            let (which, n, id) = chance.pick(&sent).clone();
            let mut other = courses[which].event(n, &id);
            other.payload = Payload::of(&json!("something else"));
            events = vec![other];
            batch.clear();
        }
        let request = AppendRequest { events, repeat: false };
        if answered(store, request).await {
            sent.extend(batch);
        } else {
            pause(Duration::from_millis(10)).await;
        }
        // A store in memory answers without ever waiting; give the others a turn.
        tokio::task::yield_now().await;
    }
}

async fn answered(store: &Recorded, mut request: AppendRequest) -> bool {
    loop {
        match store.append(request.clone()).await {
            Ok(_) => return true,
            Err(error) if error.is_temporary() => {
                request.repeat |= error.is_unknown();
                pause(Duration::from_millis(5)).await;
            }
            Err(error) => {
                let own = matches!(error.kind, ErrorKind::Full | ErrorKind::NotIdle | ErrorKind::Conflict);
                assert!(own, "append: {error}");
                return false;
            }
        }
    }
}

/// Claims and handles until it is killed.
pub(crate) async fn work_forever(store: &Recorded, name: &str) {
    let courses = courses();
    let me = Arc::new(WorkerId { name: name.to_owned(), pid: std::process::id(), start: name.to_owned() });
    let mut listener = store.wakeups();
    for turn in 0u64.. {
        let mut request = claim_for(&me, &courses);
        request.claim_id = turn.is_multiple_of(3).then(|| format!("{name}-{turn}"));
        let claimed = match store.claim(request.clone()).await {
            Ok(claimed) => claimed,
            Err(error) if error.is_temporary() => {
                pause(Duration::from_millis(5)).await;
                continue;
            }
            Err(error) => panic!("claim: {error}"),
        };
        if claimed.batches.is_empty() {
            let until_due = claimed.next_at.map_or(LEASE, |at| at.since(claimed.now));
            wait(&mut *listener, until_due).await;
        }
        if turn.is_multiple_of(9) && !claimed.batches.is_empty() {
            // The same claims as far as they live, or others when none does; the checker tells a mixture.
            if let Ok(again) = store.claim(request).await {
                let known = |token| claimed.batches.iter().any(|b| b.token == token);
                for batch in again.batches.iter().filter(|b| !known(b.token)) {
                    handle(store, &courses, batch).await;
                }
            }
        }
        for batch in &claimed.batches {
            handle(store, &courses, batch).await;
        }
    }
}

pub(crate) fn claim_for(worker: &Arc<WorkerId>, courses: &[Course]) -> ClaimRequest {
    ClaimRequest {
        worker: worker.clone(),
        queues: ClaimQueues::Listed(courses.iter().map(Course::claim).collect()),
        tenant: None,
        max: 2,
        reclaim: true,
        claim_id: None,
    }
}

async fn handle(store: &Recorded, courses: &[Course], batch: &Batch) {
    let (run, token) = (batch.run_id.number, batch.token);
    store.fact(Op::HandlerBegin { run, token, seqs: batch.events.iter().map(|e| e.seq).collect() });
    let verdict = process(store, courses, batch).await;
    store.fact(Op::HandlerEnd { run, token });
    if let Some(verdict) = verdict {
        let mut request = settle_request(batch, verdict);
        if token.is_multiple_of(5) {
            request.if_head = Some(batch.head_seq);
        }
        if token.is_multiple_of(6) {
            let made = id(&format!("carried-{token}"));
            let carried = courses[1].event(token % LANES, &format!("carried by {token}"));
            request.events = vec![quell_core::event::NewEvent { id: NewEventId::Made(made), ..carried }];
        }
        settled(store, request).await;
    }
}

/// What a handler would do, decided by the token alone; nothing when the attempt is over already.
async fn process(store: &Recorded, courses: &[Course], batch: &Batch) -> Option<Verdict> {
    let (token, queue) = (batch.token, batch.lane.queue.as_str());
    let rules = courses.iter().find(|c| c.name == queue)?.run.rules;
    if token.is_multiple_of(2) {
        // Long enough that whoever is stopped is often stopped here, with a lease.
        pause(HANDLING).await;
    }
    if token.is_multiple_of(4) {
        remember(store, batch).await?;
    }
    if token.is_multiple_of(3) {
        match store.extend(extend_request(batch, LEASE)).await {
            Ok(extended) if extended.interrupt => return Some(Verdict::Interrupted),
            Ok(_) => {}
            Err(error) if error.is_temporary() => {}
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::LostLease, "extend: {error}");
                return None;
            }
        }
    }
    tokio::task::yield_now().await;
    if rules.during_run == DuringRun::Gate || token.is_multiple_of(7) {
        let if_head = (rules.during_run == DuringRun::Gate).then_some(batch.head_seq);
        match store.hold(hold_request(batch, if_head)).await {
            Ok(held) if held.answer != HoldAnswer::Held => return None,
            Ok(_) => {}
            Err(error) if error.is_temporary() => return None,
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::LostLease, "hold: {error}");
                return None;
            }
        }
    }
    Some(match token % 16 {
        0 => Verdict::Retry { after: None },
        1 => Verdict::Release,
        2 | 3 => Verdict::Failed,
        4 => Verdict::Superseded,
        _ => Verdict::Succeeded,
    })
}

/// A piece that is remembered, and one that must not be done twice. Nothing when the lease is lost.
async fn remember(store: &Recorded, batch: &Batch) -> Option<()> {
    for (name, first) in [("paid", StepAction::Read), ("sent", StepAction::Begin)] {
        let answer = store.step(step_request(batch, name, first)).await.ok()?;
        if matches!(answer, StepAnswer::New | StepAnswer::Begun) {
            let result = StepAction::Finish(json!(batch.token));
            store.step(step_request(batch, name, result)).await.ok()?;
        }
    }
    Some(())
}

/// Settles until the answer is known.
pub(crate) async fn settled(store: &Recorded, request: SettleRequest) {
    let request = SettleRequest { delay: Duration::from_millis(10), ..request };
    loop {
        match store.settle(request.clone()).await {
            Ok(_) => return,
            Err(error) if error.is_temporary() => pause(Duration::from_millis(5)).await,
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::LostLease, "settle: {error}");
                return;
            }
        }
    }
}

/// Lays hands on lanes until it is killed.
pub(crate) async fn operate_forever(store: &Recorded, name: &str) {
    let courses = courses();
    let mut chance = Chance::seeded(seed_of(name));
    loop {
        pause(Duration::from_millis(2 + chance.below(20))).await;
        // Notices are made by the store alone: one that is erased before anybody saw it would be known to nobody.
        let which = usize::try_from(chance.below(courses.len() as u64 - 1)).expect("a small index");
        let course = &courses[which];
        let lane = course.lane(chance.below(LANES));
        match chance.below(12) {
            0 => act(store, ControlAction::Flush(lane)).await,
            1 => {
                act(store, ControlAction::PauseLane(lane.clone())).await;
                pause(Duration::from_millis(chance.below(20))).await;
                act(store, ControlAction::ResumeLane(lane)).await;
            }
            2 => act(store, ControlAction::ResumeLane(lane)).await,
            3 => act(store, ControlAction::Cancel { lane, run: None }).await,
            4..=6 => redrive_one(store, course, &mut chance).await,
            7 => {
                let what = *chance.pick(&[PurgeWhat::Dead, PurgeWhat::Buffered]);
                let (queue, key, tenant) = (lane.queue, Some(lane.key), Some(lane.tenant));
                act(store, ControlAction::Purge(Purge { queue, tenant, key, what, dry_run: false })).await;
            }
            _ => {
                let Ok(Inspected::Lane(Some(detail))) = store.inspect(Inspect::Lane(lane.clone())).await
                else {
                    continue;
                };
                let Some(event) = detail.events.last() else { continue };
                let id = event.id.clone();
                match chance.below(4) {
                    0 => act(store, ControlAction::DeleteEvent { lane, id }).await,
                    1 => act(store, ControlAction::EraseEvent { lane, id }).await,
                    _ => {
                        let payload = Payload::of(&json!({ "edited": event.seq, "by": name }));
                        act(store, ControlAction::EditEvent { lane, id, payload }).await;
                    }
                }
            }
        }
    }
}

async fn redrive_one(store: &Recorded, course: &Course, chance: &mut Chance) {
    let state = *chance.pick(&[RunState::Failed, RunState::Failed, RunState::Cancelled]);
    let filter = RunFilter { state: Some(state), limit: 20, ..RunFilter::default() };
    let Ok(Inspected::Runs(page)) = store.inspect(Inspect::Runs(filter)).await else { return };
    let Some(row) = page.items.iter().find(|row| row.events > 0 && row.lane.queue.as_str() == course.name)
    else {
        return;
    };
    let to = *chance.pick(&[RedriveTo::Head, RedriveTo::New]);
    let fresh = chance.percent(30);
    let (events, edits) = (Vec::new(), Vec::new());
    let redrive = Redrive { run: row.id, events, edits, to, fresh, policy: course.append.clone() };
    act(store, ControlAction::Redrive(redrive)).await;
}

pub(crate) async fn act(store: &Recorded, action: ControlAction) {
    let control = Control { actor: "operator".to_owned(), action };
    while let Err(error) = store.control(control.clone()).await {
        if !error.is_temporary() {
            // What it was meant for has gone on in the meantime, or there is too much of it.
            assert!(
                matches!(error.kind, ErrorKind::NotFound | ErrorKind::Limit | ErrorKind::Full),
                "control: {error}"
            );
            return;
        }
        pause(Duration::from_millis(5)).await;
    }
}

/// Waits for a wake-up, at most so long and never long.
pub(crate) async fn wait(listener: &mut dyn Wakeups, at_most: Duration) {
    let bounded = at_most.clamp(Duration::from_millis(1), Duration::from_millis(100));
    let _ = tokio::time::timeout(bounded, listener.woken()).await;
}

pub async fn pause(time: Duration) {
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

/// Every child has a course of its own.
fn seed_of(name: &str) -> u64 {
    name.bytes().fold(7, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)))
}
