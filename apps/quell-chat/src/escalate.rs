//! Conversations for which no answer could be made: the queue `chat.failed`.
//!
//! The store tells this queue of every run of `chat` that has failed for good, in the transaction that ends it, so a worker that
//! dies in its last attempt is escalated like any other. What the customer wrote goes into the book, a person is asked to take
//! over, the customer is told if so configured, and the conversation is paused if so configured.

use std::sync::Arc;

use async_trait::async_trait;
use quell::config::Aggregation;
use quell::fetch::Http;
use quell::quell_core::batch::RunId;
use quell::quell_core::error::StoreError;
use quell::quell_core::event::{Event, LaneKey, QueueName};
use quell::{Engine, Handler, Outcome, Run, RunError, StepOnce};
use serde::Deserialize;

use crate::book::{About, Book, Conversation, Entry, Place, Role, Voice};
use crate::handle::read;
use crate::join::join;
use crate::live::{Live, Tenant};
use crate::provider::Sending;

/// Who the pause is by.
const ACTOR: &str = "chat";

/// Hands conversations over.
pub struct Escalates {
    pub engine: Engine,
    pub book: Arc<dyn Book>,
    pub live: Arc<Live>,
    pub http: Http,
}

/// What the store says of a run that has ended.
#[derive(Debug, Deserialize)]
struct Notice {
    run_id: String,
    queue: QueueName,
    error: Option<String>,
}

/// Everything here may be done again: the store or the book was away.
struct Away(String);

impl From<StoreError> for Away {
    fn from(error: StoreError) -> Self {
        Away(error.to_string())
    }
}

impl From<RunError> for Away {
    fn from(error: RunError) -> Self {
        Away(error.to_string())
    }
}

#[async_trait]
impl Handler for Escalates {
    async fn handle(&self, run: &Run) -> Outcome {
        match self.escalate(run).await {
            Ok(()) => Outcome::succeeded(),
            Err(Away(text)) => Outcome::retry(text),
        }
    }
}

impl Escalates {
    async fn escalate(&self, run: &Run) -> Result<(), Away> {
        let place = Place::of(run);
        let Some(last) = run.events().last() else { return Ok(()) };
        let notice: Notice = serde_json::from_str(last.payload.as_str()).map_err(|e| Away(e.to_string()))?;
        let known = self.book.conversation(&place).await?;
        let Some(conversation) = known.or_else(|| Conversation::begun(&place, last.received_at)) else {
            return Ok(());
        };
        let tenant = self.live.tenant(run.tenant());
        let conversation = self.write_down(&notice, conversation, tenant.as_deref()).await?;
        let reason = match &notice.error {
            Some(error) => format!("no answer could be made: {error}"),
            None => "no answer could be made".to_owned(),
        };
        let handed =
            Conversation { state: Voice::Human, reason: Some(reason.clone()), ..conversation.clone() };
        let about = About { run: Some(notice.run_id.clone()), ..About::default() };
        let note = Entry {
            id: format!("{}/escalated", notice.run_id),
            at: self.engine.wall(),
            role: Role::Note,
            text: format!("a person is asked to take over: {reason}"),
            about,
        };
        self.book.hand(&handed, &note).await?;
        tracing::warn!(conversation = %place, run = notice.run_id, "chat.escalated");
        metrics::counter!("quell_chat_escalated_total").increment(1);
        let Some(tenant) = tenant else { return Ok(()) };
        if let Some(text) = &tenant.settings.escalation_message {
            self.tell(run, &notice, &conversation, &tenant, text).await?;
        }
        if tenant.settings.pause_when_escalated {
            let lane = LaneKey::new(notice.queue.clone(), run.key().clone()).of(run.tenant().clone());
            self.engine.pause(lane, ACTOR).await?;
        }
        Ok(())
    }

    /// What the customer wrote, for whoever takes over. The events are in the dead letter and not lost; a copy reads better.
    async fn write_down(
        &self,
        notice: &Notice,
        mut conversation: Conversation,
        tenant: Option<&Tenant>,
    ) -> Result<Conversation, Away> {
        let detail = match notice.run_id.parse::<RunId>() {
            Ok(id) => self.engine.run(id).await?,
            Err(_) => None,
        };
        let Some(detail) = detail else { return Ok(conversation) };
        let messages: Vec<_> = detail.list.iter().filter_map(|event: &Event| read(event).ok()).collect();
        let Some((at, last)) = messages.last() else { return Ok(conversation) };
        conversation.hear(last);
        let how = tenant.map_or(Aggregation::Timed, |tenant| tenant.settings.aggregation);
        let entry = Entry {
            id: format!("{}/asked", notice.run_id),
            at: *at,
            role: Role::Customer,
            text: join(&messages, how),
            about: About {
                run: Some(notice.run_id.clone()),
                is_aggregated: messages.len() > 1,
                message_count: u64::try_from(messages.len()).ok(),
                ..About::default()
            },
        };
        self.book.record(&conversation, &[entry]).await?;
        Ok(conversation)
    }

    /// At most once, and once is enough of a try: whoever takes over sees whether the customer was told.
    async fn tell(
        &self,
        run: &Run,
        notice: &Notice,
        conversation: &Conversation,
        tenant: &Tenant,
        text: &str,
    ) -> Result<(), Away> {
        let Some(provider) = tenant.provider(conversation.channel) else { return Ok(()) };
        let send = || async {
            let own_id = run.step_key("tell");
            Ok::<_, Away>(match provider.send(&self.http, &conversation.recipient(), text, &own_id).await {
                Sending::Sent { id } => ("sent".to_owned(), id),
                Sending::NotSent { .. } => ("not sent".to_owned(), None),
                Sending::Unknown { .. } => ("unknown".to_owned(), None),
            })
        };
        let (delivery, sent_as) = match run.step_once("tell", send).await? {
            StepOnce::Done(told) => told,
            StepOnce::Unknown => ("unknown".to_owned(), None),
        };
        let entry = Entry {
            id: format!("{}/told", notice.run_id),
            at: self.engine.wall(),
            role: Role::Bot,
            text: text.to_owned(),
            about: About {
                run: Some(notice.run_id.clone()),
                sent_as,
                delivery: Some(delivery),
                ..About::default()
            },
        };
        Ok(self.book.record(conversation, &[entry]).await?)
    }
}
