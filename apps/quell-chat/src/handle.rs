//! One run of a conversation: what a customer wrote in one burst, one answer of the model, one reply.
//!
//! The order is the promise: `llm` (remembered, so a crash does not ask twice) → the natural wait → the gate → `send` (recorded
//! before it begins, so it is never begun twice) → the book → the end of the run. Until the gate newer messages may still join,
//! or throw the answer away; after it the batch is frozen, and every later attempt goes on with the same answer.
//!
//! A reply is sent by tries, each a step of its own that must not be repeated (`send-1`, `send-2`, …). A try that certainly did
//! not send is followed by another; one of which nobody knows is looked for at the provider, and where that is not possible the
//! conversation is handed to a person. What cannot be answered at all ends as failed, which `escalate.rs` is told of.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use quell::clock::{self, Chance};
use quell::config::ChatSettings;
use quell::fetch::{FetchError, Fetcher, Http};
use quell::quell_core::clock::Timestamp;
use quell::quell_core::error::StoreError;
use quell::quell_core::event::Event;
use quell::quell_core::source::{Because, FaultKind, SourceFault, SourceReport, SourceVerdict};
use quell::{DuringRun, Engine, Handler, Hold, Outcome, Run, RunError, StepOnce};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::book::{About, Book, Conversation, Entry, Place, Role, Voice};
use crate::delay;
use crate::history::{Bounds, turns};
use crate::join::join;
use crate::live::{Live, Tenant};
use crate::message::Message;
use crate::model::{self, Answer, ModelError, Usage};
use crate::provider::{Recipient, Reconciled, Sending};

/// Tries to send one reply; each that may be followed by another has certainly sent nothing.
const SEND_TRIES: u32 = 8;
/// How long after a try whose end is unknown the provider is asked: its lists are not always up to date.
pub const RECONCILE_AFTER: Duration = Duration::from_secs(10);
/// How long the typing indicator may take; nobody waits for it.
const TYPING_TIMEOUT: Duration = Duration::from_secs(5);

/// Answers conversations.
pub struct Answers {
    pub engine: Engine,
    pub book: Arc<dyn Book>,
    pub live: Arc<Live>,
    pub http: Http,
    pub chance: Chance,
    /// See [`RECONCILE_AFTER`].
    pub reconcile_after: Duration,
}

/// What the model said, as it is remembered.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Said {
    text: Option<String>,
    /// Why there is nothing to send.
    why: Option<String>,
    cut: bool,
    usage: Usage,
    /// The model was shown less of the past than it should.
    shortened: bool,
}

/// When a reply is sent at the earliest, as it is remembered.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Pause {
    ms: u64,
    until: i64,
}

/// What became of one try, as it is remembered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Tried {
    Sent {
        id: Option<String>,
    },
    NotSent {
        why: String,
        again: bool,
    },
    /// The provider may have it since this time, and nothing is known since that one: a call takes long to fail.
    Unknown {
        why: String,
        since: i64,
        at: i64,
    },
}

/// A try of which nobody knows whether it was sent, see [`Tried::Unknown`].
struct Doubt<'a> {
    why: &'a str,
    since: i64,
    at: i64,
    /// It was made by this attempt.
    fresh: bool,
}

/// Why a run does not go on.
enum Stop {
    /// The run's answer is clear.
    With(Box<Outcome>),
    /// The run could not be asked: it is somebody else's, or the store is away.
    Run(RunError),
}

impl From<RunError> for Stop {
    fn from(error: RunError) -> Self {
        Stop::Run(error)
    }
}

impl From<Outcome> for Stop {
    fn from(outcome: Outcome) -> Self {
        Stop::With(Box::new(outcome))
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Outcome::retry(format!("the book of conversations did not answer: {error}")).into()
    }
}

#[async_trait]
impl Handler for Answers {
    async fn handle(&self, run: &Run) -> Outcome {
        let Some(tenant) = self.live.tenant(run.tenant()) else {
            let section = ChatSettings::section(run.tenant());
            let text = format!("there is no [{section}] in the configuration, so nobody knows how to answer");
            return Outcome::retry(text).source_unused();
        };
        // The address of the model stands in the operator's own configuration, so it is meant.
        let Some(fetcher) = run.fetcher(&self.http.meaning(&tenant.model.base_url)) else {
            return Outcome::retry("there is no worker behind this run");
        };
        let ended = self.answer(run, tenant, &fetcher).await;
        let outcome = match ended {
            Ok(outcome) => outcome,
            Err(Stop::With(outcome)) => *outcome,
            Err(Stop::Run(error)) => Outcome::retry(error.to_string()),
        };
        match outcome.source == SourceReport::default() {
            true => fetcher.finish(outcome),
            // What the fetcher made of an error says already what it means for the source.
            false => outcome,
        }
    }
}

/// One burst on its way.
struct Burst<'a> {
    run: &'a Run,
    tenant: Arc<Tenant>,
    messages: Vec<(Timestamp, Message)>,
    text: String,
    conversation: Conversation,
}

impl Answers {
    async fn answer(&self, run: &Run, tenant: Arc<Tenant>, fetcher: &Fetcher) -> Result<Outcome, Stop> {
        let burst = self.burst(run, tenant).await?;
        if burst.conversation.state == Voice::Human {
            self.book.record(&burst.conversation, &[burst.asked()]).await?;
            return Ok(burst.ended("human", None));
        }
        self.show_typing(&burst);
        let said: Said = run.step("llm", || self.ask(&burst, fetcher)).await?;
        if let Some(text) = &said.text {
            self.wait(&burst, text).await?;
        }
        match pass(run, burst.tenant.settings.during_run).await? {
            Hold::Held => {}
            Hold::Superseded | Hold::Interrupted => return Ok(Outcome::superseded()),
        }
        let Some(text) = said.text.clone() else {
            let why = said.why.clone().unwrap_or_else(|| "the model gave no answer".to_owned());
            self.hand_over(&burst, &[burst.asked()], &why).await?;
            return Ok(with_usage(burst.ended("no_answer", None), &said));
        };
        // Somebody may have taken over while the model was thinking.
        let now = self.book.conversation(&burst.place()).await?;
        if now.is_some_and(|now| now.state == Voice::Human) {
            self.book
                .record(&burst.conversation, &[burst.asked(), burst.withheld(self.engine.wall())])
                .await?;
            return Ok(with_usage(burst.ended("human", None), &said));
        }
        let outcome = self.reply(&burst, &text).await?;
        Ok(with_usage(outcome, &said))
    }

    async fn burst<'a>(&self, run: &'a Run, tenant: Arc<Tenant>) -> Result<Burst<'a>, Stop> {
        let messages =
            run.events().iter().map(read).collect::<Result<Vec<_>, _>>().map_err(Outcome::failed)?;
        let text = join(&messages, tenant.settings.aggregation);
        let place = Place::of(run);
        let mut conversation = match self.book.conversation(&place).await? {
            Some(known) => known,
            None => Conversation::begun(&place, run.batch().first_at).ok_or_else(|| {
                Outcome::failed(format!("{:?} is not the key of a conversation", place.key))
            })?,
        };
        if let Some((_, last)) = messages.last() {
            conversation.hear(last);
        }
        Ok(Burst { run, tenant, messages, text, conversation })
    }

    /// Best effort, beside the question to the model.
    fn show_typing(&self, burst: &Burst<'_>) {
        if !burst.tenant.settings.typing_indicator {
            return;
        }
        let Some(message_id) = burst.messages.last().and_then(|(_, message)| message.message_id.clone())
        else {
            return;
        };
        let (tenant, http) = (burst.tenant.clone(), self.http.clone());
        let (channel, to) = (burst.conversation.channel, burst.recipient());
        tokio::spawn(async move {
            if let Some(provider) = tenant.provider(channel) {
                let typing = provider.typing(&http, &to, &message_id);
                let _ = tokio::time::timeout(TYPING_TIMEOUT, typing).await;
            }
        });
    }

    async fn ask(&self, burst: &Burst<'_>, fetcher: &Fetcher) -> Result<Said, Stop> {
        let tenant = &burst.tenant;
        let mut bounds =
            Bounds { messages: tenant.settings.history_messages, bytes: tenant.settings.history_bytes };
        let past = self.book.entries(&burst.place(), bounds.messages).await?;
        let mut shortened = false;
        loop {
            let turns = turns(tenant.prompt.as_deref(), &past, bounds, &burst.text);
            match model::ask(fetcher, &tenant.model, &turns).await {
                Ok(Answer::Reply { text, cut, usage, .. }) => {
                    return Ok(Said { text: Some(text), why: None, cut, usage, shortened });
                }
                Ok(Answer::Nothing { why, usage }) => {
                    return Ok(Said { text: None, why: Some(why.to_string()), cut: false, usage, shortened });
                }
                Err(ModelError::ContextLength(_)) if !shortened => {
                    bounds = Bounds::shorter_than(&turns);
                    shortened = true;
                }
                Err(error) => return Err(outcome_of(fetcher, error).into()),
            }
        }
    }

    /// The natural wait: whoever writes meanwhile is still heard.
    async fn wait(&self, burst: &Burst<'_>, text: &str) -> Result<(), Stop> {
        let settings = &burst.tenant.settings;
        if !settings.natural_delays {
            return Ok(());
        }
        let planned = || async {
            let wait = delay::natural(text, settings.delay_variance_percent, self.chance.unit());
            let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            let until = self.engine.wall().as_millis().saturating_add_unsigned(ms);
            Ok::<_, Stop>(Pause { ms, until })
        };
        let pause: Pause = burst.run.step("delay", planned).await?;
        let left = u64::try_from(pause.until.saturating_sub(self.engine.wall().as_millis())).unwrap_or(0);
        clock::sleep(Duration::from_millis(left.min(pause.ms))).await;
        Ok(())
    }

    /// Sends the reply, at most once, and writes both sides into the book.
    async fn reply(&self, burst: &Burst<'_>, text: &str) -> Result<Outcome, Stop> {
        let governed = self.governed(burst);
        if let Some(governed) = &governed {
            // Before the try is begun: one that waits for its turn has sent nothing.
            governed.take_token().await.map_err(|error| self.no_turn(&error))?;
        }
        for number in 1..=SEND_TRIES {
            let name = format!("send-{number}");
            let mut fresh = None;
            let tried = burst
                .run
                .step_once(&name, || self.send(burst, governed.as_ref(), &name, text, &mut fresh))
                .await?;
            let tried = match tried {
                StepOnce::Done(tried) => tried,
                // The process that meant to send it is gone.
                StepOnce::Unknown => {
                    let begun = self.begun(burst, &name).await?.as_millis();
                    Tried::Unknown {
                        why: "a worker died while it was sent".to_owned(),
                        since: begun,
                        at: begun,
                    }
                }
            };
            match (tried, fresh) {
                (Tried::Sent { id }, _) => return self.sent(burst, text, id).await,
                (Tried::NotSent { why, again: true }, Some(after)) => return Ok(try_again(after, why)),
                (Tried::NotSent { again: true, .. }, None) => {}
                (Tried::NotSent { why, again: false }, _) => {
                    return Ok(Outcome::failed(format!("the reply cannot be sent: {why}")));
                }
                (Tried::Unknown { why, since, at }, fresh) => {
                    let doubt = Doubt { why: &why, since, at, fresh: fresh.is_some() };
                    if let Some(outcome) = self.reconcile(burst, text, &doubt).await? {
                        return Ok(outcome);
                    }
                }
            }
        }
        Ok(Outcome::failed(format!("the reply could not be sent in {SEND_TRIES} tries")))
    }

    /// When a try began that an earlier attempt made, which is long before the present attempt did.
    async fn begun(&self, burst: &Burst<'_>, step: &str) -> Result<Timestamp, Stop> {
        let (batch, revision) = (burst.run.batch(), burst.run.revision());
        let away = |error| Outcome::retry(format!("when the reply was begun cannot be read: {error}"));
        let detail = self.engine.run(batch.run_id).await.map_err(away)?;
        let mut steps = detail.into_iter().flat_map(|detail| detail.steps);
        let begun = steps.find(|known| known.name == step && known.revision == revision);
        // Nobody could have answered before the last message of the batch was there.
        Ok(begun.map_or(batch.last_at, |known| known.at))
    }

    /// Who asks the provider's source for a turn.
    fn governed(&self, burst: &Burst<'_>) -> Option<Fetcher> {
        let source = burst.tenant.source(burst.conversation.channel)?;
        burst.run.fetcher_of(&self.http, source.clone())
    }

    /// The provider is not asked now: a rate limit is nobody's failure, an outage is waited for.
    fn no_turn(&self, error: &FetchError) -> Outcome {
        let text = format!("the reply waits for the provider: {error}");
        match error {
            FetchError::NoToken { because: Because::RateLimited, .. } => Outcome::release(text),
            FetchError::NoToken { until, .. } => {
                let left = until.as_millis().saturating_sub(self.engine.wall().as_millis());
                let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
                Outcome::retry_after(left.max(Duration::from_secs(1)), text)
            }
            _ => Outcome::retry(text),
        }
    }

    /// One try. `fresh` is set when it was made now, with the pause before another.
    async fn send(
        &self,
        burst: &Burst<'_>,
        governed: Option<&Fetcher>,
        step: &str,
        text: &str,
        fresh: &mut Option<Option<Duration>>,
    ) -> Result<Tried, Stop> {
        let channel = burst.conversation.channel;
        let Some(provider) = burst.tenant.provider(channel) else {
            *fresh = Some(None);
            let why = format!("there is no account for {channel} in the configuration");
            return Ok(Tried::NotSent { why, again: false });
        };
        let own_id = burst.run.step_key(step);
        let since = self.engine.wall().as_millis();
        let sending = provider.send(&self.http, &burst.recipient(), text, &own_id).await;
        if let Some(governed) = governed {
            // A word that the store did not take only makes its breaker a little slower.
            let _ = governed.tell_source(verdict(&sending)).await;
        }
        let (tried, after) = match sending {
            Sending::Sent { id } => (Tried::Sent { id }, None),
            Sending::NotSent { why, again, .. } => {
                (Tried::NotSent { why, again: again.is_some() }, again.flatten())
            }
            Sending::Unknown { why } => {
                (Tried::Unknown { why, since, at: self.engine.wall().as_millis() }, None)
            }
        };
        *fresh = Some(after);
        Ok(tried)
    }

    /// Nobody knows whether it was sent: the provider is asked if it can be, otherwise a person. Nothing means that it was
    /// certainly not sent, and may be tried again.
    async fn reconcile(
        &self,
        burst: &Burst<'_>,
        text: &str,
        doubt: &Doubt<'_>,
    ) -> Result<Option<Outcome>, Stop> {
        let Doubt { why, since, at, fresh } = *doubt;
        let provider = burst.tenant.provider(burst.conversation.channel);
        let askable = provider.filter(|provider| provider.reconciles());
        if let Some(provider) = askable {
            let age = u64::try_from(self.engine.wall().as_millis().saturating_sub(at)).unwrap_or(0);
            let wait = self.reconcile_after.saturating_sub(Duration::from_millis(age));
            if fresh || !wait.is_zero() {
                let text = format!("whether the reply was sent is unknown and will be asked: {why}");
                return Ok(Some(Outcome::retry_after(wait.max(Duration::from_secs(1)), text)));
            }
            let since = Timestamp::from_millis(since);
            match provider.reconcile(&self.http, &burst.recipient(), text, since).await {
                Reconciled::Sent { id } => return self.sent(burst, text, id).await.map(Some),
                Reconciled::NotSent => return Ok(None),
                Reconciled::Unknown { .. } => {}
            }
        }
        let about = About { delivery: Some("unknown".to_owned()), ..burst.about() };
        let reply = Entry { about, ..burst.replied(self.engine.wall(), text) };
        let reason = format!("it is unknown whether the last reply reached the customer: {why}");
        self.hand_over(burst, &[burst.asked(), reply], &reason).await?;
        Ok(Some(burst.ended("unknown", None)))
    }

    async fn sent(&self, burst: &Burst<'_>, text: &str, id: Option<String>) -> Result<Outcome, Stop> {
        let about = About { sent_as: id.clone(), ..burst.about() };
        let reply = Entry { about, ..burst.replied(self.engine.wall(), text) };
        self.book.record(&burst.conversation, &[burst.asked(), reply]).await?;
        Ok(burst.ended("sent", id))
    }

    async fn hand_over(&self, burst: &Burst<'_>, entries: &[Entry], reason: &str) -> Result<(), Stop> {
        self.book.record(&burst.conversation, entries).await?;
        let (state, reason) = (Voice::Human, Some(reason.to_owned()));
        let handed = Conversation { state, reason: reason.clone(), ..burst.conversation.clone() };
        let note = Entry {
            id: format!("{}/handed", burst.id()),
            at: self.engine.wall(),
            role: Role::Note,
            text: format!("a person is asked to take over: {}", reason.unwrap_or_default()),
            about: burst.about(),
        };
        tracing::warn!(conversation = %burst.place(), run = %burst.run.run_id(), "chat.handed_over");
        Ok(self.book.hand(&handed, &note).await?)
    }
}

impl Burst<'_> {
    fn place(&self) -> Place {
        self.conversation.place()
    }

    fn recipient(&self) -> Recipient {
        self.conversation.recipient()
    }

    /// The same over all attempts of this batch.
    fn id(&self) -> String {
        format!("{}/{}", self.run.run_id(), self.run.revision())
    }

    fn about(&self) -> About {
        About { run: Some(self.run.run_id().to_string()), ..About::default() }
    }

    fn asked(&self) -> Entry {
        let batch = self.run.batch();
        let seqs = self.run.events().first().zip(self.run.events().last());
        Entry {
            id: format!("{}/asked", self.id()),
            at: batch.last_at,
            role: Role::Customer,
            text: self.text.clone(),
            about: About {
                is_aggregated: self.messages.len() > 1,
                message_count: u64::try_from(self.messages.len()).ok(),
                fired_by: Some(batch.fired_by.as_str().to_owned()),
                seqs: seqs.map(|(first, last)| (first.seq, last.seq)),
                ..self.about()
            },
        }
    }

    fn replied(&self, at: Timestamp, text: &str) -> Entry {
        Entry {
            id: format!("{}/replied", self.id()),
            at,
            role: Role::Bot,
            text: text.to_owned(),
            about: self.about(),
        }
    }

    fn withheld(&self, at: Timestamp) -> Entry {
        Entry {
            id: format!("{}/withheld", self.id()),
            at,
            role: Role::Note,
            text: "an answer of the model was not sent, because a person has taken over".to_owned(),
            about: self.about(),
        }
    }

    fn ended(&self, delivery: &'static str, sent_as: Option<String>) -> Outcome {
        let messages = self.messages.len();
        metrics::counter!("quell_chat_bursts_total", "delivery" => delivery).increment(1);
        Outcome::succeeded().with_result(json!({
            "delivery": delivery,
            "messages": messages,
            "is_aggregated": messages > 1,
            "sent_as": sent_as,
        }))
    }
}

/// The gate before the reply. Where newer messages wait for the next answer anyway, they are no reason to hold this one back.
async fn pass(run: &Run, during_run: DuringRun) -> Result<Hold, RunError> {
    match during_run {
        DuringRun::Queue => run.hold_anyway().await,
        DuringRun::Interrupt | DuringRun::Gate => run.hold().await,
    }
}

/// Certainly nothing was sent, and another try may be made.
fn try_again(after: Option<Duration>, why: String) -> Outcome {
    let text = format!("the reply was not sent: {why}");
    match after {
        Some(after) => Outcome::retry_after(after, text),
        None => Outcome::retry(text),
    }
}

fn verdict(sending: &Sending) -> SourceVerdict {
    let is_fault = match sending {
        Sending::Sent { .. } => false,
        Sending::NotSent { source_fault, .. } => *source_fault,
        Sending::Unknown { .. } => true,
    };
    match is_fault {
        true => SourceVerdict::Fault(SourceFault { kind: FaultKind::Other, retry_after: None }),
        false => SourceVerdict::Fine,
    }
}

fn outcome_of(fetcher: &Fetcher, error: ModelError) -> Outcome {
    let text = error.to_string();
    match error {
        ModelError::RateLimited { retry_after: Some(after), .. } => Outcome::retry_after(after, text),
        ModelError::RateLimited { .. } | ModelError::Broken(_) => Outcome::retry(text),
        ModelError::ContextLength(_) | ModelError::Quota(_) | ModelError::Refused(_) => Outcome::failed(text),
        ModelError::Fetch(error) => fetcher.outcome(&error),
    }
}

fn with_usage(outcome: Outcome, said: &Said) -> Outcome {
    let named = [("prompt_tokens", said.usage.prompt), ("completion_tokens", said.usage.completion)];
    let counted = named.into_iter().filter_map(|(name, count)| Some((name, count?)));
    counted.fold(outcome, |outcome, (name, count)| {
        // Tokens of one answer are far below what a float counts exactly.
        outcome.with_usage(name, u32::try_from(count).map_or(f64::MAX, f64::from))
    })
}

pub(crate) fn read(event: &Event) -> Result<(Timestamp, Message), String> {
    let message = serde_json::from_str(event.payload.as_str()).map_err(|error| {
        format!("event {} is no message of a customer: {error}; send it through an endpoint", event.seq)
    })?;
    Ok((event.received_at, message))
}
