//! What a handler can ask of its run: to pass the gate before an effect, and to remember what it has done.
//!
//! - [`Run::hold`] is the point of no return: after it the batch stays as it is, and before it newer events may still
//!   join. A handler that is told to give way ends; its attempt is over in the store and refunded.
//! - [`Run::step`] runs a piece of work at least once and remembers its first result: a later attempt of the same batch
//!   gets the result instead of the work, so a crash after a paid call costs nothing.
//! - [`Run::step_once`] is for what must not be repeated: the intent is recorded first, and an attempt that finds an
//!   intent without a result is told so. Whether the effect happened only the outside party knows; pass it
//!   [`Run::step_key`] as an idempotency key if it takes one.
//!
//! Results belong to a *revision* of the batch: when newer events are merged in, it is another batch, and its steps
//! start anew. Answers of the store that are unknown are asked for again with the same token, which gives the same
//! answer. A lease that turns out to be lost ends the attempt: the handler gets [`RunError::Lost`], is stopped, and
//! nothing is settled for it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::event::{AppendPolicy, EventId, NewEvent, NewEventId};
use quell_core::step::RunInput;
use quell_core::store::{Held, HoldAnswer, HoldRequest, StepAction, StepAnswer, StepRequest, Store};

use crate::clock;
use crate::engine::{EngineError, REPEAT_PAUSES};
use crate::handler::Run;
use crate::incoming::Incoming;

/// The further pauses after those of the engine. With a store that stays away the lease cannot be kept either, so the
/// worker usually stops the handler before they are used up.
const LAST_PAUSES: usize = 12;

/// What the gate said.
#[must_use = "a run that was told to give way is over: its handler must not go on"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Go on: the batch is frozen for the rest of the run, and retries repeat exactly this batch.
    Held,
    /// Newer events arrived: end now. They and this batch become one, and the attempt is refunded.
    Superseded,
    /// Newer events or an operator interrupted the run before it came to the gate: end now.
    Interrupted,
}

impl Hold {
    /// Whether the effect may follow.
    pub fn is_held(self) -> bool {
        self == Hold::Held
    }
}

/// What came of work that must not be done twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepOnce<T> {
    /// It is done, now or in an earlier attempt, and this is its result.
    Done(T),
    /// An earlier attempt meant to do it, and nobody knows whether it did. The handler decides: ask the outside party,
    /// hand over to a person, or fail.
    Unknown,
}

impl<T> StepOnce<T> {
    /// What the step returned, now or in an earlier attempt; nothing when nobody knows whether it happened.
    pub fn done(self) -> Option<T> {
        match self {
            StepOnce::Done(value) => Some(value),
            StepOnce::Unknown => None,
        }
    }
}

/// Why a handler could not ask its run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the text of each error says what its fields are")]
pub enum RunError {
    /// The attempt is over: somebody else has the run, or it was settled. Nothing that the handler answers is kept.
    #[error("the run is not this handler's any more: {0}")]
    Lost(StoreError),
    /// The store did not do it, or nobody knows, also after several tries.
    #[error("the store did not answer a handler: {0}")]
    Store(StoreError),
    /// The result of a step cannot be written as JSON, or what an earlier version stored cannot be read.
    #[error("step {name:?}: {problem}")]
    Value { name: String, problem: String },
}

/// For handlers whose errors are plain texts.
impl From<RunError> for String {
    fn from(error: RunError) -> String {
        error.to_string()
    }
}

impl Run {
    /// The gate before an effect: passes only if nothing newer than this batch has arrived. Repeating it gives the same
    /// answer.
    pub async fn hold(&self) -> Result<Hold, RunError> {
        self.ask_hold(Some(self.head_seq())).await
    }

    /// The gate without a condition: passes also if newer events wait, unless the run was interrupted or cancelled.
    pub async fn hold_anyway(&self) -> Result<Hold, RunError> {
        self.ask_hold(None).await
    }

    /// Does the work and remembers its result, or gives back the result that an earlier attempt of this batch has
    /// stored. An error of the work is not stored. If two store a result, the first one is everybody's.
    ///
    /// ```
    /// use quell::{Outcome, Run, RunError};
    ///
    /// async fn handle(run: Run) -> Result<Outcome, RunError> {
    ///     // Paid once, however often this run is tried.
    ///     let answer: String = run.step("model", || async { Ok::<_, RunError>("42".to_owned()) }).await?;
    ///     if !run.hold().await?.is_held() {
    ///         return Ok(Outcome::superseded()); // newer events came meanwhile
    ///     }
    ///     println!("{answer}");
    ///     Ok(Outcome::succeeded())
    /// }
    /// ```
    pub async fn step<T, E, F, Fut>(&self, name: &str, work: F) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<RunError>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        if let StepAnswer::Done { value, .. } = self.ask_step(name, StepAction::Read).await? {
            return Ok(read(name, value)?);
        }
        let made = work().await?;
        Ok(self.finish(name, made).await?)
    }

    /// Does work that must not be repeated: the intent is recorded before it begins. An error of the work is not
    /// stored, but the intent stays: the next attempt gets [`StepOnce::Unknown`].
    pub async fn step_once<T, E, F, Fut>(&self, name: &str, work: F) -> Result<StepOnce<T>, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<RunError>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        match self.ask_step(name, StepAction::Begin).await? {
            StepAnswer::Done { value, .. } => return Ok(StepOnce::Done(read(name, value)?)),
            StepAnswer::Unknown => return Ok(StepOnce::Unknown),
            StepAnswer::New | StepAnswer::Begun => {}
        }
        let made = work().await?;
        Ok(StepOnce::Done(self.finish(name, made).await?))
    }

    /// A name for this step of this batch that stays the same over all attempts: an idempotency key for whoever is
    /// asked to do it.
    pub fn step_key(&self, name: &str) -> String {
        format!("{}/{}/{name}", self.run_id(), self.revision())
    }

    /// Follow-up work for [`quell_core::outcome::Outcome::then`]: the event with the policy of its queue, which must be
    /// known here. Its id will be `run_id/n`, whatever the event says.
    pub fn follow_up(&self, event: Incoming) -> Result<NewEvent, EngineError> {
        if let Some(backing) = self.backing() {
            return backing.engine.resolve(event);
        }
        let Incoming { lane, payload, headers, priority, delay, window, .. } = event;
        let id = NewEventId::Made(EventId::new("follow-up")?);
        let new = NewEvent::new(lane, id, payload, Arc::new(AppendPolicy::default()));
        Ok(NewEvent { headers, priority, delay, window, ..new })
    }

    async fn finish<T: Serialize + DeserializeOwned>(&self, name: &str, made: T) -> Result<T, RunError> {
        let problem =
            |e: serde_json::Error| RunError::Value { name: name.to_owned(), problem: e.to_string() };
        let value = serde_json::to_value(&made).map_err(problem)?;
        match self.ask_step(name, StepAction::Finish(value)).await? {
            StepAnswer::Done { value, stored: false } => read(name, value),
            _ => Ok(made),
        }
    }

    async fn ask_hold(&self, if_head: Option<u64>) -> Result<Hold, RunError> {
        let (run_id, token) = (self.run_id(), self.token());
        let ask = |store: Arc<dyn Store>| -> BoxFuture<'static, StoreResult<Held>> {
            Box::pin(async move { store.hold(HoldRequest { run_id, token, if_head }).await })
        };
        let Some(Held { answer, state }) = self.ask("hold", ask).await? else { return Ok(Hold::Held) };
        let hold = match answer {
            HoldAnswer::Held => return Ok(Hold::Held),
            HoldAnswer::Superseded => Hold::Superseded,
            HoldAnswer::Interrupted => Hold::Interrupted,
        };
        if let Some(backing) = self.backing() {
            backing.tell(RunInput::GaveWay { answer, state });
        }
        Ok(hold)
    }

    async fn ask_step(&self, name: &str, action: StepAction) -> Result<StepAnswer, RunError> {
        let alone = match &action {
            StepAction::Read => StepAnswer::New,
            StepAction::Begin => StepAnswer::Begun,
            StepAction::Finish(value) => StepAnswer::Done { value: value.clone(), stored: true },
        };
        let (run_id, token) = (self.run_id(), self.token());
        let request = StepRequest { run_id, token, name: name.to_owned(), action };
        let ask = move |store: Arc<dyn Store>| -> BoxFuture<'static, StoreResult<StepAnswer>> {
            let request = request.clone();
            Box::pin(async move { store.step(request).await })
        };
        Ok(self.ask("step", ask).await?.unwrap_or(alone))
    }

    /// Asks the store, again and again with the same token while the answer is temporary. Nothing for a run without one.
    async fn ask<T>(
        &self,
        what: &'static str,
        ask: impl Fn(Arc<dyn Store>) -> BoxFuture<'static, StoreResult<T>>,
    ) -> Result<Option<T>, RunError> {
        let Some(backing) = self.backing() else { return Ok(None) };
        let last = REPEAT_PAUSES[REPEAT_PAUSES.len() - 1];
        let mut pauses = REPEAT_PAUSES.into_iter().chain(std::iter::repeat_n(last, LAST_PAUSES));
        loop {
            let error = match ask(backing.engine.store().clone()).await {
                Ok(answer) => return Ok(Some(answer)),
                Err(error) => error,
            };
            let pause: Option<Duration> = pauses.next().filter(|_| error.is_temporary());
            let Some(pause) = pause else { return Err(self.refused(error)) };
            tracing::warn!(run = %self.run_id(), call = what, %error, "a handler's call is repeated");
            clock::sleep(pause).await;
        }
    }

    fn refused(&self, error: StoreError) -> RunError {
        if !matches!(error.kind, ErrorKind::LostLease | ErrorKind::AlreadySettled | ErrorKind::NotFound) {
            return RunError::Store(error);
        }
        if let Some(backing) = self.backing() {
            backing.tell(RunInput::Lost(error.clone()));
        }
        RunError::Lost(error)
    }
}

fn read<T: DeserializeOwned>(name: &str, value: serde_json::Value) -> Result<T, RunError> {
    serde_json::from_value(value).map_err(|e| RunError::Value {
        name: name.to_owned(),
        problem: format!("what an earlier attempt stored cannot be read: {e}; give the step a new name"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::sample_run;
    use quell_core::event::Payload;

    #[tokio::test]
    async fn a_run_without_a_worker_passes_every_gate_and_does_every_step() {
        let run = sample_run("{}");
        assert_eq!(run.hold().await, Ok(Hold::Held));
        let done: Result<u32, RunError> = run.step("add", || async { Ok(2 + 2) }).await;
        assert_eq!(done, Ok(4));
        let once: Result<StepOnce<u32>, String> = run.step_once("send", || async { Err("no".into()) }).await;
        assert_eq!(once, Err("no".to_owned()));
        assert_eq!(run.step_key("send"), "run_2m_9f/3/send");
        let event = Incoming::new("mail", "ada", Payload::of(&serde_json::json!(1))).unwrap().priority(9);
        assert_eq!(run.follow_up(event).unwrap().priority, 9);
    }

    #[test]
    fn a_stored_value_of_another_shape_says_what_to_do() {
        let problem = read::<u32>("llm", serde_json::json!("text")).unwrap_err().to_string();
        assert!(problem.starts_with("step \"llm\": what an earlier attempt stored"), "{problem}");
        assert!(problem.ends_with("give the step a new name"), "{problem}");
    }
}
