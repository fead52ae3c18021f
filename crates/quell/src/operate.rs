//! The operator's hand: everything that steers lanes, runs and events from outside, recorded with who did it.
//!
//! Each method is one `control` of the store. Those that may find nothing to do answer whether anything changed; those
//! that count answer with [`Controlled`]. Schedules are in `schedules.rs`.

use quell_core::batch::RunId;
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::event::{EventId, LaneKey, Payload};
use quell_core::store::{Control, ControlAction, Controlled, Purge, QueueScope, Redrive, RedriveTo};

use crate::engine::{Engine, EngineError};

/// How a failed or cancelled run goes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedriveWish {
    /// Only these events; none means all of the run.
    pub events: Vec<EventId>,
    /// New payloads for some of them.
    pub edits: Vec<(EventId, Payload)>,
    /// Before anything that waits, or at the end of the lane.
    pub to: RedriveTo,
    /// Forget what the steps of the old run remembered.
    pub fresh: bool,
}

impl Default for RedriveWish {
    /// All events, at the head of the lane, with the steps that are known.
    fn default() -> Self {
        RedriveWish { events: Vec::new(), edits: Vec::new(), to: RedriveTo::Head, fresh: false }
    }
}

impl Engine {
    /// Closes a lane's window or ends its backoff now; false when there was nothing to hasten.
    pub async fn flush(&self, lane: LaneKey, actor: &str) -> StoreResult<bool> {
        self.changed(ControlAction::Flush(lane), actor).await
    }

    /// Stops new claims of a lane; a running attempt goes on. False when it was paused already.
    pub async fn pause(&self, lane: LaneKey, actor: &str) -> StoreResult<bool> {
        self.changed(ControlAction::PauseLane(lane), actor).await
    }

    /// Lifts the lane's own pause, or else the block of a failed run.
    pub async fn resume(&self, lane: LaneKey, actor: &str) -> StoreResult<bool> {
        self.changed(ControlAction::ResumeLane(lane), actor).await
    }

    /// Stops handing over a queue, of one tenant or of all. False when it was paused already.
    pub async fn pause_queue(&self, scope: QueueScope, actor: &str) -> StoreResult<bool> {
        self.changed(ControlAction::PauseQueue(scope), actor).await
    }

    /// Ends the pause of a queue. False when there was none.
    pub async fn resume_queue(&self, scope: QueueScope, actor: &str) -> StoreResult<bool> {
        self.changed(ControlAction::ResumeQueue(scope), actor).await
    }

    /// Ends the current run of a lane, or the one that collects if none is current; with `run` only if it still is that
    /// one. A running handler is told to stop; if it succeeds before it hears of it, it has succeeded.
    pub async fn cancel(&self, lane: LaneKey, run: Option<RunId>, actor: &str) -> StoreResult<Controlled> {
        self.control(ControlAction::Cancel { lane, run }, actor).await
    }

    /// Puts the events of a failed or cancelled run back, with a fresh budget of attempts. Repeated it does nothing.
    pub async fn redrive(
        &self,
        run: RunId,
        wish: RedriveWish,
        actor: &str,
    ) -> Result<Controlled, EngineError> {
        let detail = self.run(run).await?.ok_or_else(|| StoreError::not_found(run))?;
        let LaneKey { queue, tenant, .. } = &detail.row.lane;
        let policy = self.queue(queue)?.append_policy(tenant);
        let RedriveWish { events, edits, to, fresh } = wish;
        let most = policy.payload_bytes;
        if let Some((id, payload)) = edits.iter().find(|(_, payload)| payload.len() > most) {
            let text =
                format!("the payload of event {id} has {} bytes; the queue allows {most}", payload.len());
            return Err(StoreError::new(ErrorKind::Limit, text).into());
        }
        let redrive = Redrive { run, events, edits, to, fresh, policy };
        Ok(self.control(ControlAction::Redrive(redrive), actor).await?)
    }

    /// Discards dead, delayed or buffered events, never those of a current run. A bounded number per call: the answer
    /// says whether there is more.
    pub async fn purge(&self, purge: Purge, actor: &str) -> StoreResult<Controlled> {
        self.control(ControlAction::Purge(purge), actor).await
    }

    /// Deletes everything of a key for good: payloads, the key's text, steps, dead letters, ids. Cancels first.
    pub async fn erase_lane(&self, lane: LaneKey, actor: &str) -> StoreResult<Controlled> {
        self.forget_deliveries(&lane, None).await?;
        self.control(ControlAction::EraseLane(lane), actor).await
    }

    /// Deletes one event for good. Cancels the run it is in.
    pub async fn erase_event(&self, lane: LaneKey, id: EventId, actor: &str) -> StoreResult<Controlled> {
        self.forget_deliveries(&lane, Some(&id)).await?;
        self.control(ControlAction::EraseEvent { lane, id }, actor).await
    }

    /// Changes the payload of one buffered event.
    pub async fn edit_event(
        &self,
        lane: LaneKey,
        id: EventId,
        payload: Payload,
        actor: &str,
    ) -> StoreResult<Controlled> {
        self.control(ControlAction::EditEvent { lane, id, payload }, actor).await
    }

    /// Takes one buffered event out of its lane; it is discarded.
    pub async fn delete_event(&self, lane: LaneKey, id: EventId, actor: &str) -> StoreResult<Controlled> {
        self.control(ControlAction::DeleteEvent { lane, id }, actor).await
    }

    async fn changed(&self, action: ControlAction, actor: &str) -> StoreResult<bool> {
        Ok(self.control(action, actor).await?.changed)
    }

    pub(crate) async fn control(&self, action: ControlAction, actor: &str) -> StoreResult<Controlled> {
        self.store().control(Control { actor: actor.to_owned(), action }).await
    }
}
