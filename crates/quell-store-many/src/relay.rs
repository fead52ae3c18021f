//! Events that a settle carries to a key of another database: neither lost nor doubled.
//!
//! A settle and the events that it carries are one transaction, which no two databases share. So an event for another database
//! is wrapped, and the settle carries the wrapping into the queue [`RELAY`] of its own database: a refused settle carries
//! nothing, and what a settle has carried is there whatever happens next. Afterwards the wrapping is claimed like any
//! other event, its content is stored in its own database under the id that it would have had (`run_id/n`), and only then the
//! wrapping is settled. Whoever dies in between leaves a lease, and after it the same is done again; the id is known then.
//!
//! The process that settles relays at once. What it could not finish is found by the next sweep, whichever process makes it.

use std::sync::Arc;
use std::time::Duration;

use quell_core::batch::Batch;
use quell_core::error::StoreResult;
use quell_core::event::{AppendPolicy, Event, LaneKey, NewEvent, NewEventId, Payload, QueueName};
use quell_core::lane::{OnFailed, RunRules};
use quell_core::limits as core_limits;
use quell_core::outcome::Verdict;
use quell_core::store::{
    AppendRequest, ClaimQueue, ClaimQueues, ClaimRequest, RunPolicy, SettleRequest, Settled,
};
use quell_core::window::Window;

use crate::ManyStore;
use crate::limits::{RELAY_STEP, RELAY_STEPS_MAX};

/// The queue in which events wait for another database. Nobody else may append to it.
pub const RELAY: &str = "quell.relay";

/// What the wrapping adds to the largest payload.
const WRAPPING_BYTES_MAX: usize = 16 * 1024;
/// A database that is away is tried again this late at the latest.
const AGAIN_MAX: Duration = Duration::from_secs(60);

impl ManyStore {
    pub(crate) async fn settle_and_relay(&self, request: SettleRequest) -> StoreResult<Settled> {
        if request.events.is_empty() {
            return self.on_run(request.run_id, |n| self.members[n].settle(request.clone())).await;
        }
        request.check()?;
        let settled = self.on_run(request.run_id, |n| {
            let events = request.events.iter().map(|event| self.wrapped(n, event)).collect();
            let settled = self.members[n].settle(SettleRequest { events, ..request.clone() });
            async move { settled.await.map(|settled| (n, settled)) }
        });
        let (database, settled) = settled.await?;
        if request.events.iter().any(|event| self.map.home(&event.lane) != database) {
            self.relay_from(database).await;
        }
        Ok(settled)
    }

    /// The event as a settle in this database carries it.
    fn wrapped(&self, database: usize, event: &NewEvent) -> NewEvent {
        if self.map.home(&event.lane) == database {
            return event.clone();
        }
        let text = serde_json::to_string(event).expect("an event is plain data");
        let policy = AppendPolicy {
            window: Window::none(),
            payload_bytes: core_limits::PAYLOAD_BYTES_MAX + WRAPPING_BYTES_MAX,
            lane_events: core_limits::LANE_EVENTS_MAX,
            ..AppendPolicy::default()
        };
        let lane = LaneKey { queue: relay_queue(), ..event.lane.clone() };
        let wrapping = NewEvent::new(lane, event.id.clone(), Payload::from_stored(&text), policy.into());
        NewEvent { priority: event.priority, ..wrapping }
    }

    /// Relays what is due in this database. Failures are kept where they are and tried again.
    pub(crate) async fn relay_from(&self, database: usize) {
        for _ in 0..RELAY_STEPS_MAX {
            let policy = RunPolicy {
                max_attempts: core_limits::ATTEMPTS_MAX,
                rules: RunRules { on_failed: OnFailed::Bisect, ..RunRules::default() },
                ..RunPolicy::default()
            };
            let queue = ClaimQueue::new(relay_queue(), Arc::new(policy), RELAY_STEP);
            let request = ClaimRequest {
                worker: self.relayer.clone(),
                queues: ClaimQueues::Listed(vec![queue]),
                tenant: None,
                max: RELAY_STEP,
                reclaim: true,
                claim_id: None,
            };
            let claimed = match self.members[database].claim(request).await {
                Ok(claimed) => claimed,
                Err(error) => {
                    tracing::warn!(%error, "events for other databases wait for the next sweep");
                    return;
                }
            };
            if claimed.batches.is_empty() {
                return;
            }
            self.relay_batches(database, claimed.batches).await;
        }
    }

    /// Stores what is in these wrappings, each under its own id, and settles them.
    pub(crate) async fn relay_batches(&self, database: usize, batches: Vec<Batch>) {
        for batch in batches {
            self.remember(std::slice::from_ref(&batch), database);
            let report = self.relay_batch(&batch).await;
            if let Err(error) = self.members[database].settle(report).await {
                tracing::warn!(%error, run = %batch.run_id, "a relayed event is not settled: it is relayed again");
            }
        }
    }

    async fn relay_batch(&self, batch: &Batch) -> SettleRequest {
        let settle = |verdict| SettleRequest::new(batch.run_id, batch.token, verdict);
        let failed = |error: String| SettleRequest { error: Some(error), ..settle(Verdict::Failed) };
        let events: Result<Vec<NewEvent>, serde_json::Error> = batch.events.iter().map(unwrapped).collect();
        let events = match events {
            Ok(events) => events,
            Err(_) => {
                return failed(
                    "what was to be relayed cannot be read; was it written by a newer Quell?".into(),
                );
            }
        };
        // One after the other, so that one that is refused does not look like all of them.
        for event in events {
            let home = self.map.home(&event.lane);
            let request = AppendRequest { events: vec![event], repeat: false };
            match self.members[home].append(request).await {
                Ok(_) => {}
                Err(error) if error.is_temporary() => {
                    let delay = AGAIN_MAX.min(Duration::from_secs(1 << batch.retries.min(6)));
                    let retry = settle(Verdict::Retry { after: Some(delay) });
                    return SettleRequest { delay, error: Some(error.to_string()), ..retry };
                }
                Err(error) => return failed(error.to_string()),
            }
        }
        settle(Verdict::Succeeded)
    }
}

fn relay_queue() -> QueueName {
    QueueName::new(RELAY).expect("it is a name of a queue")
}

/// The event under the id that the settle gave its wrapping. It waits aside, as what a settle carries does.
fn unwrapped(wrapping: &Event) -> Result<NewEvent, serde_json::Error> {
    let event: NewEvent = wrapping.payload.parse()?;
    let delay = event.delay.or(Some(Duration::ZERO));
    Ok(NewEvent { id: NewEventId::Given(wrapping.id.clone()), delay, ..event })
}
