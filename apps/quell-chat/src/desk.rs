//! What a person does with a conversation: take it over, say something, hand it back, pause it, forget it.
//!
//! *Paused* and *taken over* are two things. A paused conversation waits: what the customer writes is stored and answered by the
//! bot after `resume`. In one that was taken over a person answers: what the customer writes goes into the book at the end of
//! each burst, and the bot says nothing.

use std::sync::Arc;
use std::time::Duration;

use quell::clock;
use quell::config::{CHAT, CHAT_FAILED};
use quell::fetch::Http;
use quell::quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell::quell_core::event::{Invalid, Key, LaneKey, Tenant};
use quell::quell_core::inspect::LaneDetail;
use quell::{Engine, EngineError};

use crate::book::{About, Book, Conversation, Entry, Place, Role, Voice, Wanted};
use crate::live::Live;
use crate::message;
use crate::provider::Sending;

/// A run that is told to end does so within its heartbeat; then nothing writes to the book any more.
const FORGET_PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Why something could not be done.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DeskError {
    #[error("there is no conversation {0}")]
    Unknown(Place),
    #[error("{0}")]
    Invalid(String),
    /// Certainly nothing was sent.
    #[error("nothing was sent: {0}")]
    NotSent(String),
    /// The customer may have got it.
    #[error("it is unknown whether it was sent: {0}")]
    Unsure(String),
    #[error("a worker is still busy with this conversation; what was said is gone, try again for the rest")]
    Busy,
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl From<StoreError> for DeskError {
    fn from(error: StoreError) -> Self {
        DeskError::Engine(error.into())
    }
}

impl From<Invalid> for DeskError {
    fn from(error: Invalid) -> Self {
        DeskError::Invalid(error.to_string())
    }
}

/// Where people sit.
pub struct Desk {
    pub engine: Engine,
    pub book: Arc<dyn Book>,
}

impl Desk {
    /// The conversation, also one of which nothing but waiting messages is known yet.
    pub async fn find(&self, place: &Place) -> Result<Conversation, DeskError> {
        if let Some(known) = self.book.conversation(place).await? {
            return Ok(known);
        }
        let waiting = self.lane(place).await?;
        let begun = Conversation::begun(place, waiting.as_ref().map_or(self.engine.wall(), |lane| lane.now));
        begun.filter(|_| waiting.is_some()).ok_or_else(|| DeskError::Unknown(place.clone()))
    }

    /// What waits there.
    pub async fn lane(&self, place: &Place) -> Result<Option<LaneDetail>, DeskError> {
        Ok(self.engine.lane(lane(CHAT, place)?).await?)
    }

    /// From now on a person answers.
    pub async fn take_over(&self, place: &Place, by: &str) -> Result<(), DeskError> {
        let known = self.find(place).await?;
        let reason = Some(format!("taken over by {by}"));
        let handed = Conversation { state: Voice::Human, reason, ..known };
        Ok(self.book.hand(&handed, &self.note(by, &format!("taken over by {by}"))).await?)
    }

    /// From now on the bot answers again, and nothing holds it back.
    pub async fn resume(&self, place: &Place, by: &str) -> Result<(), DeskError> {
        let known = self.find(place).await?;
        if known.state != Voice::Bot {
            let handed = Conversation { state: Voice::Bot, reason: None, ..known };
            self.book.hand(&handed, &self.note(by, &format!("handed back to the bot by {by}"))).await?;
        }
        self.engine.resume(lane(CHAT, place)?, by).await?;
        Ok(())
    }

    /// Nothing is answered before `resume`; what comes is stored.
    pub async fn pause(&self, place: &Place, by: &str) -> Result<bool, DeskError> {
        Ok(self.engine.pause(lane(CHAT, place)?, by).await?)
    }

    /// Says something in place of the bot, by the way that the customer wrote last.
    pub async fn say(
        &self,
        live: &Live,
        http: &Http,
        place: &Place,
        text: &str,
        by: &str,
    ) -> Result<Option<String>, DeskError> {
        let known = self.find(place).await?;
        let tenant = live.tenant(&place.tenant);
        let provider = tenant.as_ref().and_then(|tenant| tenant.provider(known.channel));
        let provider = provider.ok_or_else(|| {
            DeskError::Invalid(format!("there is no account for {} in the configuration", known.channel))
        })?;
        if provider.fit(text) != text {
            let problem =
                format!("it is longer than {} takes in one message; say it in parts", known.channel);
            return Err(DeskError::Invalid(problem));
        }
        let id = self.new_id();
        let (delivery, sent) = match provider.send(http, &known.recipient(), text, &id).await {
            Sending::Sent { id } => (None, Ok(id)),
            Sending::NotSent { why, .. } => return Err(DeskError::NotSent(why)),
            Sending::Unknown { why } => (Some("unknown".to_owned()), Err(DeskError::Unsure(why))),
        };
        let about = About {
            sent_as: sent.as_ref().ok().cloned().flatten(),
            delivery,
            by: Some(by.to_owned()),
            ..About::default()
        };
        let entry = Entry { id, at: self.engine.wall(), role: Role::Human, text: text.to_owned(), about };
        self.book.record(&known, &[entry]).await?;
        sent
    }

    /// Removes everything that was said: waiting events, runs with their steps, dead letters, deliveries and the book. The trail
    /// keeps that something happened, and not what.
    pub async fn forget(&self, place: &Place, by: &str) -> Result<u64, DeskError> {
        // First, so that nothing is shown any more while a worker comes to its end.
        let mut entries = self.book.forget(place).await?;
        for queue in [CHAT, CHAT_FAILED] {
            self.erase(lane(queue, place)?, by).await?;
        }
        // A run that was under way may have written once more.
        entries += self.book.forget(place).await?;
        Ok(entries)
    }

    async fn erase(&self, lane: LaneKey, by: &str) -> Result<(), DeskError> {
        let since = clock::Stopwatch::start();
        loop {
            match self.engine.erase_lane(lane.clone(), by).await {
                Ok(erased) if !erased.more => {}
                Ok(_) => continue,
                Err(error) if error.kind == ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            match self.engine.lane(lane.clone()).await? {
                Some(left) if left.row.in_flight > 0 || left.row.buffered > 0 => {}
                _ => return Ok(()),
            }
            if since.elapsed() > FORGET_PATIENCE {
                return Err(DeskError::Busy);
            }
            clock::sleep(LOOK_EVERY).await;
        }
    }

    fn note(&self, by: &str, text: &str) -> Entry {
        let about = About { by: Some(by.to_owned()), ..About::default() };
        Entry { id: self.new_id(), at: self.engine.wall(), role: Role::Note, text: text.to_owned(), about }
    }

    fn new_id(&self) -> String {
        format!("desk/{}", self.engine.delivery_id())
    }
}

fn lane(queue: &str, place: &Place) -> Result<LaneKey, DeskError> {
    let key = Key::new(&place.key)?;
    Ok(LaneKey::new(crate::queue(queue), key).of(place.tenant.clone()))
}

/// The conversations that somebody may mean by what was typed: a key, or the number of a customer.
pub async fn meant(desk: &Desk, tenant: Option<&Tenant>, who: &str) -> StoreResult<Vec<Conversation>> {
    let wanted = |customer: String| Wanted {
        tenant: tenant.cloned(),
        customer: Some(customer),
        limit: 20,
        ..Default::default()
    };
    if message::parts(who).is_some() {
        let place = Place { tenant: tenant.cloned().unwrap_or_else(Tenant::none), key: who.to_owned() };
        if let Ok(found) = desk.find(&place).await {
            return Ok(vec![found]);
        }
    }
    let digits: String = who.chars().filter(char::is_ascii_digit).collect();
    let mut found = desk.book.list(&wanted(who.to_owned())).await?;
    if found.is_empty() && !digits.is_empty() && digits != who {
        found = desk.book.list(&wanted(digits)).await?;
    }
    Ok(found)
}
