//! Events that are not in a lane yet: delayed, appended inside a caller's own transaction, fired by a schedule, or
//! carried by a settle.
//!
//! They are accepted and counted, but have no sequence number: that is given when they enter their lane, in the order
//! of (ready, accepted). Every claim takes in what is ready for its queues, and every sweep for all of them; a full lane
//! leaves its events aside. What every store must agree on is here as pure functions.

use std::sync::Arc;

use serde_json::json;

use crate::batch::RunId;
use crate::clock::Timestamp;
use crate::event::{Event, EventId, LaneKey, NewEvent, NewEventId, Payload};
use crate::lane::Finished;
use crate::lifecycle::RunState;
use crate::store::RunPolicy;

/// One event aside.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Aside {
    /// The order of acceptance.
    pub number: u64,
    /// What enters its lane later.
    pub event: NewEvent,
    /// When its sender got the receipt.
    pub accepted_at: Timestamp,
    /// When it enters its lane.
    pub ready_at: Timestamp,
    /// Not looked at before this moment, because its lane was full.
    pub look_at: Timestamp,
}

impl Aside {
    /// Set aside at this moment, under a number of its own.
    pub fn new(number: u64, event: NewEvent, now: Timestamp) -> Self {
        let ready_at = now.after(event.delay.unwrap_or_default());
        Aside { number, event, accepted_at: now, ready_at, look_at: ready_at }
    }
}

/// What a settle carries gets ids of the run, so that a repeated settle cannot make two of one.
pub fn carried(run: RunId, events: &[NewEvent]) -> impl Iterator<Item = NewEvent> + '_ {
    (1..).zip(events).map(move |(n, event)| NewEvent {
        id: NewEventId::Given(
            EventId::new(format!("{run}/{n}")).expect("a run and a number are a short text"),
        ),
        ..event.clone()
    })
}

/// The policy by which a run of these events is claimed: nobody is told of a run that is made of notices alone,
/// whatever its queue says, or two queues that tell each other would never come to rest.
pub fn told(policy: &Arc<RunPolicy>, events: &[Event]) -> Arc<RunPolicy> {
    if policy.notify.is_some() && events.iter().all(|event| is_notice(&event.id)) {
        return Arc::new(RunPolicy { notify: None, ..(**policy).clone() });
    }
    policy.clone()
}

fn is_notice(id: &EventId) -> bool {
    id.as_str().strip_suffix(NOTICE).is_some_and(|run| run.parse::<RunId>().is_ok())
}

const NOTICE: &str = "/notify";

/// The event that tells how a run ended, if its queue wants that told. Notices are never told of themselves, and a run
/// whose events went into another one has not ended for anybody.
pub fn notice(
    lane: &LaneKey,
    run: RunId,
    ended: &Finished,
    result: Option<&serde_json::Value>,
) -> Option<NewEvent> {
    let notify = ended.run.notify.as_ref()?;
    if !notify.on.contains(&ended.state) || notify.queue == lane.queue || ended.run.count == 0 {
        return None;
    }
    let mut payload = json!({
        "run_id": run,
        "queue": lane.queue,
        "key": lane.key,
        "tenant": lane.tenant,
        "state": ended.state,
        "attempts": ended.run.attempt(),
        "events": ended.run.count,
        "completed_at": ended.at,
    });
    if ended.state != RunState::Succeeded {
        payload["error"] = json!(ended.run.error);
    }
    if let Some(result) = result {
        payload["result"] = result.clone();
    }
    let id = EventId::new(format!("{run}{NOTICE}")).expect("a run and a word are a short text");
    let to = LaneKey { queue: notify.queue.clone(), ..lane.clone() };
    Some(NewEvent::new(to, NewEventId::Given(id), Payload::of(&payload), notify.policy.clone().into()))
}
