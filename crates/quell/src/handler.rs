//! What does the work: the interface between the worker and any code that handles batches.
//!
//! A [`Handler`] receives a [`Run`] (one batch under one lease) and answers with an [`Outcome`]. An answer is data: "try
//! again in a minute" and "this can never work" are no errors. Plain closures become handlers by [`from_fn`] and may
//! return `()`, an outcome or a `Result`; an `Err` is an *unclassified* error, which the queue's `on_error` turns into
//! an outcome ([`Answer::decide`]).
//!
//! Fifth stop on the path of an event, between the claim and the settle. Panics, heartbeats and deadlines are the
//! worker's: it cancels [`Run::stopping`], waits a little, and then drops the handler's future. What a handler can ask
//! of its run (the gate, steps) is in `steps.rs`; requests to its source go through `Run::fetcher` (`fetching.rs`).

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use quell_core::batch::{Batch, RunId};
use quell_core::clock::Timestamp;
use quell_core::event::{Event, Key, QueueName, Tenant};
use quell_core::outcome::Outcome;
use quell_core::step::RunInput;
use quell_core::window::FiredBy;

use crate::clock::Chance;
use crate::config::OnError;
use crate::engine::Engine;
use crate::trace::Trace;

/// Code that handles batches. One value serves many runs at once.
///
/// Closures become handlers by [`from_fn`]; a type of one's own can hold what all runs share:
///
/// ```
/// use quell::{Handler, Outcome, Run};
///
/// struct Mailer {
///     from: String,
/// }
///
/// #[async_trait::async_trait]
/// impl Handler for Mailer {
///     async fn handle(&self, run: &Run) -> Outcome {
///         let Ok(letter) = run.envelope() else { return Outcome::failed("not to be read") };
///         // The same for every attempt of this batch: whoever sends it can tell that it was sent before.
///         let once = run.step_key("mail");
///         println!("{}: {} events under {once}, {} bytes", self.from, run.events().len(), letter.len());
///         Outcome::succeeded()
///     }
/// }
/// ```
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Does the work of one run. It may be called again for the same run: the token grows with every claim.
    async fn handle(&self, run: &Run) -> Outcome;

    /// What the worker calls. Only handlers that know unclassified errors have a reason to write it themselves.
    async fn answer(&self, run: &Run) -> Answer {
        Answer::Outcome(self.handle(run).await)
    }

    /// How long the handler is waited for after [`Run::interrupted`] was cancelled, before its future is dropped. Only
    /// handlers that have something to put an end to outside this process need a moment.
    fn stop_grace(&self) -> Duration {
        Duration::ZERO
    }
}

#[async_trait]
impl<H: Handler + ?Sized> Handler for Arc<H> {
    async fn handle(&self, run: &Run) -> Outcome {
        (**self).handle(run).await
    }

    async fn answer(&self, run: &Run) -> Answer {
        (**self).answer(run).await
    }

    fn stop_grace(&self) -> Duration {
        (**self).stop_grace()
    }
}

/// What came out of a handler, before the queue's settings have had their say.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The handler has decided.
    Outcome(Outcome),
    /// An error that the handler did not classify; the text is kept.
    Error(String),
}

impl Answer {
    /// An unclassified error fails the run, or tries it again where the queue says so.
    pub fn decide(self, on_error: OnError) -> Outcome {
        match (self, on_error) {
            (Answer::Outcome(outcome), _) => outcome,
            (Answer::Error(text), OnError::Failed) => Outcome::failed(text),
            (Answer::Error(text), OnError::Retry) => Outcome::retry(text),
        }
    }
}

/// What a closure may return.
pub trait IntoAnswer {
    /// `()` has succeeded, an `Err` is unclassified, an outcome is itself.
    fn into_answer(self) -> Answer;
}

impl IntoAnswer for Answer {
    fn into_answer(self) -> Answer {
        self
    }
}

impl IntoAnswer for Outcome {
    fn into_answer(self) -> Answer {
        Answer::Outcome(self)
    }
}

impl IntoAnswer for () {
    fn into_answer(self) -> Answer {
        Answer::Outcome(Outcome::succeeded())
    }
}

impl<T: IntoAnswer, E: fmt::Display> IntoAnswer for Result<T, E> {
    fn into_answer(self) -> Answer {
        match self {
            Ok(value) => value.into_answer(),
            // The alternate form, because error types that carry their causes print the whole chain with it.
            Err(error) => Answer::Error(format!("{error:#}")),
        }
    }
}

/// A handler made of a closure: `from_fn(|run: Run| async move { … })`.
pub fn from_fn<F, Fut, A>(handle: F) -> FromFn<F>
where
    F: Fn(Run) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = A> + Send,
    A: IntoAnswer,
{
    FromFn(handle)
}

/// Made by [`from_fn`].
#[derive(Clone, Copy)]
pub struct FromFn<F>(F);

impl<F> fmt::Debug for FromFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FromFn")
    }
}

#[async_trait]
impl<F, Fut, A> Handler for FromFn<F>
where
    F: Fn(Run) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = A> + Send,
    A: IntoAnswer,
{
    async fn handle(&self, run: &Run) -> Outcome {
        self.answer(run).await.decide(OnError::Failed)
    }

    async fn answer(&self, run: &Run) -> Answer {
        (self.0)(run.clone()).await.into_answer()
    }
}

/// One batch under one lease, as a handler sees it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Run(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    batch: Batch,
    stopping: CancellationToken,
    interrupted: CancellationToken,
    known: Arc<Known>,
    /// Of the run's span, where spans are recorded.
    trace: Option<Trace>,
    backing: Option<Backing>,
}

/// What heartbeats have told of the lane since the claim.
#[derive(Debug, Default)]
pub(crate) struct Known {
    newer: AtomicU64,
}

impl Known {
    pub(crate) fn tell(&self, newer: u64) {
        self.newer.store(newer, Ordering::Relaxed);
    }
}

/// The worker behind a run: its engine, and the ear of the run's driver.
pub(crate) struct Backing {
    pub(crate) engine: Engine,
    pub(crate) driver: Box<dyn Fn(RunInput) + Send + Sync>,
}

impl Backing {
    pub(crate) fn tell(&self, input: RunInput) {
        (self.driver)(input);
    }
}

impl fmt::Debug for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Backing")
    }
}

impl Run {
    /// A run without a worker behind it, for tests of handlers: its gate is always open, and its steps do their work
    /// and remember nothing.
    pub fn new(batch: Batch, stopping: CancellationToken) -> Self {
        let (interrupted, known) = (CancellationToken::new(), Arc::default());
        Run(Arc::new(Shared { batch, stopping, interrupted, known, trace: None, backing: None }))
    }

    pub(crate) fn backed(
        batch: Batch,
        stopping: CancellationToken,
        known: Arc<Known>,
        trace: Option<Trace>,
        backing: Backing,
    ) -> Self {
        let interrupted = CancellationToken::new();
        Run(Arc::new(Shared { batch, stopping, interrupted, known, trace, backing: Some(backing) }))
    }

    pub(crate) fn trace(&self) -> Option<&Trace> {
        self.0.trace.as_ref()
    }

    pub(crate) fn backing(&self) -> Option<&Backing> {
        self.0.backing.as_ref()
    }

    /// A number by chance.
    pub(crate) fn draw(&self) -> u64 {
        self.backing()
            .map_or_else(|| Chance::from_system().number(), |backing| backing.engine.chance().number())
    }

    /// The batch as the store gave it out.
    pub fn batch(&self) -> &Batch {
        &self.0.batch
    }

    /// All events of the run, in order; at least one.
    pub fn events(&self) -> &[Event] {
        &self.0.batch.events
    }

    /// The run's id: the same for all its attempts.
    pub fn run_id(&self) -> RunId {
        self.0.batch.run_id
    }

    /// The queue of its lane.
    pub fn queue(&self) -> &QueueName {
        &self.0.batch.lane.queue
    }

    /// Whose events these are.
    pub fn key(&self) -> &Key {
        &self.0.batch.lane.key
    }

    /// The owner of the key.
    pub fn tenant(&self) -> &Tenant {
        &self.0.batch.lane.tenant
    }

    /// 1 for the first claim of this run.
    pub fn attempt(&self) -> u32 {
        self.0.batch.attempt
    }

    /// Whether a retry after this attempt would be refused: the time for a last resort.
    pub fn is_last_attempt(&self) -> bool {
        self.0.batch.attempt >= self.0.batch.max_attempts
    }

    /// Larger for every later claim of this lane: pass it on, so that a stale worker's effects can be told apart.
    pub fn token(&self) -> u64 {
        self.0.batch.token
    }

    /// Why the batch was handed over now.
    pub fn fired_by(&self) -> FiredBy {
        self.0.batch.fired_by
    }

    /// Raised by every merge with newer events: the same run with another batch. Steps are remembered under it.
    pub fn revision(&self) -> u32 {
        self.0.batch.revision
    }

    /// The newest event of the lane at the claim: what [`Run::hold`] and `Outcome::if_head` compare with.
    pub fn head_seq(&self) -> u64 {
        self.0.batch.head_seq
    }

    /// Events that wait for the next run, as the last heartbeat has told: a hint that this batch is behind.
    pub fn newer(&self) -> u64 {
        self.0.known.newer.load(Ordering::Relaxed)
    }

    /// Cancelled when the worker wants the handler to end soon; a little later its future is dropped.
    pub fn stopping(&self) -> &CancellationToken {
        &self.0.stopping
    }

    /// Cancelled when the work is not wanted any more: newer events interrupted the run, an operator cancelled it, or it
    /// gave way at the gate. Then [`Run::stopping`] is cancelled, too, and the future is dropped very soon.
    pub fn interrupted(&self) -> &CancellationToken {
        &self.0.interrupted
    }

    /// Whether the work is not wanted any more; see [`Run::interrupted`].
    pub fn is_interrupted(&self) -> bool {
        self.0.interrupted.is_cancelled()
    }

    /// The envelope as JSON, payloads byte for byte as they were sent. An error means that the store gave back bytes
    /// which are not JSON.
    pub fn envelope(&self) -> Result<String, serde_json::Error> {
        let batch = &self.0.batch;
        serde_json::to_string(&Envelope {
            run_id: batch.run_id,
            queue: &batch.lane.queue,
            key: &batch.lane.key,
            tenant: &batch.lane.tenant,
            attempt: batch.attempt,
            max_attempts: batch.max_attempts,
            token: batch.token,
            revision: batch.revision,
            fired_by: batch.fired_by,
            first_at: batch.first_at,
            last_at: batch.last_at,
            lease_until: batch.lease_until,
            head_seq: batch.head_seq,
            events: &batch.events,
        })
    }
}

/// The public form of a batch: what `exec` programs read and pull workers are answered. Fields are only ever added.
#[derive(Serialize)]
struct Envelope<'a> {
    run_id: RunId,
    queue: &'a QueueName,
    key: &'a Key,
    tenant: &'a Tenant,
    attempt: u32,
    max_attempts: u32,
    token: u64,
    revision: u32,
    fired_by: FiredBy,
    first_at: Timestamp,
    last_at: Timestamp,
    lease_until: Timestamp,
    head_seq: u64,
    events: &'a [Event],
}

/// A run for tests of handlers: two events, first attempt.
#[cfg(test)]
pub(crate) fn sample_run(payload: &str) -> Run {
    use quell_core::event::{EventId, Headers, LaneKey, Payload};
    let event = |seq, headers| Event {
        seq,
        id: EventId::new(format!("evt_{seq}")).unwrap(),
        received_at: Timestamp::from_millis(1_700_000_000_000),
        payload: Payload::from_json(payload.as_bytes()).unwrap(),
        headers,
        was_seq: None,
    };
    let traced = Headers::from([("traceparent".to_owned(), "00-1-2-01".to_owned())]);
    let batch = Batch {
        run_id: RunId { lane: 84, number: 303 },
        lane: LaneKey::new(QueueName::new("chat").unwrap(), Key::new("49 171/5").unwrap())
            .of(Tenant::new("acme").unwrap()),
        attempt: 1,
        max_attempts: 10,
        retries: 0,
        token: 17,
        revision: 3,
        fired_by: FiredBy::Quiet,
        first_at: Timestamp::from_millis(1_700_000_000_000),
        last_at: Timestamp::from_millis(1_700_000_001_500),
        claimed_at: Timestamp::from_millis(1_700_000_003_500),
        lease_until: Timestamp::from_millis(1_700_000_063_500),
        head_seq: 12,
        source: None,
        events: vec![event(11, Headers::new()), event(12, traced)],
    };
    Run::new(batch, CancellationToken::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use quell_core::outcome::Verdict;

    async fn answer_of<H: Handler>(handler: H) -> Answer {
        handler.answer(&sample_run("{}")).await
    }

    #[tokio::test]
    async fn a_closure_may_return_nothing_an_outcome_or_a_result() {
        let done = Answer::Outcome(Outcome::succeeded());
        assert_eq!(answer_of(from_fn(|_run: Run| async {})).await, done);
        assert_eq!(answer_of(from_fn(|_run: Run| async { Ok::<(), String>(()) })).await, done);
        assert_eq!(answer_of(from_fn(|_run: Run| async { Outcome::succeeded() })).await, done);
        let retry = from_fn(|_run: Run| async { Ok::<_, std::fmt::Error>(Outcome::retry("later")) });
        assert_eq!(answer_of(retry).await, Answer::Outcome(Outcome::retry("later")));
    }

    #[tokio::test]
    async fn an_err_is_unclassified_and_the_queue_decides() {
        let handler = from_fn(|run: Run| async move { Err::<(), _>(format!("no answer for {}", run.key())) });
        let answer = answer_of(handler).await;
        assert_eq!(answer, Answer::Error("no answer for 49 171/5".into()));
        assert_eq!(answer.clone().decide(OnError::Failed).verdict, Verdict::Failed);
        let retried = answer.decide(OnError::Retry);
        assert_eq!(retried, Outcome::retry("no answer for 49 171/5"));
    }

    #[tokio::test]
    async fn a_classified_outcome_is_never_changed_by_on_error() {
        let failed = Answer::Outcome(Outcome::failed("never"));
        assert_eq!(failed.decide(OnError::Retry), Outcome::failed("never"));
    }

    #[tokio::test]
    async fn handlers_are_usable_behind_a_pointer() {
        let shared: Arc<dyn Handler> = Arc::new(from_fn(|_run: Run| async { Err::<(), _>("broken") }));
        assert_eq!(shared.handle(&sample_run("{}")).await, Outcome::failed("broken"));
        assert_eq!(answer_of(shared).await, Answer::Error("broken".into()));
    }

    #[test]
    fn the_envelope_has_the_documented_fields_in_order() {
        let text = sample_run("{\"b\":1.0, \"a\":\"\\u0000\"}").envelope().unwrap();
        assert_eq!(
            text,
            "{\"run_id\":\"run_2m_9f\",\"queue\":\"chat\",\"key\":\"49 171/5\",\"tenant\":\"acme\",\"attempt\":1,\
             \"max_attempts\":10,\"token\":17,\"revision\":3,\"fired_by\":\"quiet\",\
             \"first_at\":\"2023-11-14T22:13:20.000Z\",\"last_at\":\"2023-11-14T22:13:21.500Z\",\"lease_until\":\"2023-11-14T22:14:23.500Z\",\"head_seq\":12,\
             \"events\":[{\"seq\":11,\"id\":\"evt_11\",\"received_at\":\"2023-11-14T22:13:20.000Z\",\
             \"payload\":{\"b\":1.0, \"a\":\"\\u0000\"}},{\"seq\":12,\"id\":\"evt_12\",\
             \"received_at\":\"2023-11-14T22:13:20.000Z\",\"payload\":{\"b\":1.0, \"a\":\"\\u0000\"},\
             \"headers\":{\"traceparent\":\"00-1-2-01\"}}]}"
        );
    }

    #[test]
    fn a_clone_of_a_run_hears_of_stopping_too() {
        let run = sample_run("{}");
        let copy = run.clone();
        run.stopping().cancel();
        assert!(copy.stopping().is_cancelled());
    }
}
