//! The book of conversations: what was said with each customer, and who answers there.
//!
//! Two ways to keep it, by what the store has to offer: tables on SQLite and PostgreSQL (`book/tables.rs`), keys on Redis
//! (`book/keys.rs`). Both hold the same promises (`tests/book.rs`).
//!
//! An entry is written once, however often it is tried: its id is made of the run that it comes from. So a run may write to the
//! book before it settles, and a crash between the two only makes the next attempt write the same again.

mod copy;
mod keys;
mod tables;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use quell::Run;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell::quell_core::event::Tenant;
use quell::quell_core::store::Store;
use quell::quell_core::tables::{Cell, Row};
use serde::{Deserialize, Serialize};

pub use copy::Belongs;

use crate::message::{self, Channel, Message};
use crate::provider::Recipient;

const APPLICATION: &str = "chat";

/// Entries that are kept of one conversation; older ones go. A model is shown far fewer, and a person who looks back so far has
/// the customer's own telephone.
pub const ENTRIES_MAX: usize = 2_000;
/// Conversations that are listed at once.
pub const LISTED_MAX: usize = 1_000;
/// Characters of the last thing that was said, for lists.
const PREVIEW_CHARS: usize = 80;

/// Which conversation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub tenant: Tenant,
    pub key: String,
}

impl Place {
    /// That of the lane.
    pub fn of(run: &Run) -> Place {
        Place { tenant: run.tenant().clone(), key: run.key().to_string() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tenant.is_none() {
            true => f.write_str(&self.key),
            false => write!(f, "{}/{}", self.tenant, self.key),
        }
    }
}

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Voice {
    Bot,
    /// A person has taken over, or is asked to: what the customer writes is kept, and nothing is answered by itself.
    Human,
}

impl Voice {
    pub fn as_str(self) -> &'static str {
        match self {
            Voice::Bot => "bot",
            Voice::Human => "human",
        }
    }

    fn named(name: &str) -> StoreResult<Voice> {
        match name {
            "bot" => Ok(Voice::Bot),
            "human" => Ok(Voice::Human),
            _ => Err(strange("a conversation is answered by neither bot nor human")),
        }
    }
}

/// What is known of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Conversation {
    pub tenant: Tenant,
    pub key: String,
    pub channel: Channel,
    pub customer: String,
    pub flow: Option<String>,
    pub name: Option<String>,
    /// Our own number or its id.
    pub address: Option<String>,
    pub state: Voice,
    /// Why a person is asked for.
    pub reason: Option<String>,
    pub changed_at: Timestamp,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    /// The beginning of what was said last.
    pub preview: String,
}

impl Conversation {
    pub fn place(&self) -> Place {
        Place { tenant: self.tenant.clone(), key: self.key.clone() }
    }

    /// What a message tells of the customer, and where it was sent to.
    pub fn hear(&mut self, message: &Message) {
        self.customer.clone_from(&message.customer);
        self.name = message.name.clone().or(self.name.take());
        self.address = message.to.clone().or(self.address.take());
    }

    /// Where a reply goes.
    pub fn recipient(&self) -> Recipient {
        Recipient { customer: self.customer.clone(), from: self.address.clone() }
    }

    /// What a place alone says of a conversation that nobody has written anything into yet.
    pub fn begun(place: &Place, at: Timestamp) -> Option<Conversation> {
        let (channel, customer, flow) = message::parts(&place.key)?;
        Some(Conversation {
            tenant: place.tenant.clone(),
            key: place.key.clone(),
            channel,
            customer,
            flow,
            name: None,
            address: None,
            state: Voice::Bot,
            reason: None,
            changed_at: at,
            first_at: at,
            last_at: at,
            preview: String::new(),
        })
    }
}

/// Who said it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Customer,
    Bot,
    Human,
    /// Nobody: what happened, for those who read along. Never shown to the model or the customer.
    Note,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Customer => "customer",
            Role::Bot => "bot",
            Role::Human => "human",
            Role::Note => "note",
        }
    }

    fn named(name: &str) -> StoreResult<Role> {
        let all = [Role::Customer, Role::Bot, Role::Human, Role::Note];
        all.into_iter().find(|role| role.as_str() == name).ok_or_else(|| strange("an entry of nobody known"))
    }
}

/// One thing that was said.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    /// Unique in its conversation.
    pub id: String,
    pub at: Timestamp,
    pub role: Role,
    pub text: String,
    pub about: About,
}

/// How an entry came to be.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Several messages were joined.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_aggregated: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_count: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fired_by: Option<String>,
    /// The numbers of the first and the last event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seqs: Option<(u64, u64)>,
    /// The provider's id of a message that was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_as: Option<String>,
    /// Whether a reply went out, where that is not plain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// Which conversations are listed.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    pub tenant: Option<Tenant>,
    pub state: Option<Voice>,
    /// The number or name that the provider knows the customer by.
    pub customer: Option<String>,
    pub limit: usize,
}

/// Where conversations are kept.
#[async_trait]
pub trait Book: Send + Sync + 'static {
    async fn conversation(&self, place: &Place) -> StoreResult<Option<Conversation>>;

    /// The last entries of a conversation, oldest first.
    async fn entries(&self, place: &Place, last: usize) -> StoreResult<Vec<Entry>>;

    /// Writes entries that are not there yet, in this order, in one step; the conversation is made or brought up to date.
    async fn record(&self, conversation: &Conversation, entries: &[Entry]) -> StoreResult<()>;

    /// Says who answers from now on, and why, with a note. The conversation is made if it is not there.
    async fn hand(&self, conversation: &Conversation, note: &Entry) -> StoreResult<()>;

    /// Those in which something was said last come first.
    async fn list(&self, wanted: &Wanted) -> StoreResult<Vec<Conversation>>;

    /// Removes a conversation and all that was said; how many entries there were.
    async fn forget(&self, place: &Place) -> StoreResult<u64>;
}

/// Opens the book of a store.
pub async fn open(store: Arc<dyn Store>) -> StoreResult<Arc<dyn Book>> {
    if let Some(tables) = store.clone().tables() {
        return Ok(Arc::new(tables::InTables::open(tables).await?));
    }
    if let Some(keys) = store.keys() {
        return Ok(Arc::new(keys::InKeys::new(keys)));
    }
    Err(StoreError::new(ErrorKind::Invalid, "this store has no place for conversations"))
}

/// The beginning of a text, in one line.
fn preview(text: &str) -> String {
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(PREVIEW_CHARS) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// What stands last in a list of entries and is no note: the new preview.
fn last_said(entries: &[Entry]) -> Option<String> {
    entries.iter().rev().find(|entry| entry.role != Role::Note).map(|entry| preview(&entry.text))
}

/// The columns of a conversation in the order in which both ways keep them.
fn cells(c: &Conversation) -> [Cell; 13] {
    [
        c.tenant.as_str().into(),
        c.key.as_str().into(),
        c.channel.as_str().into(),
        c.customer.as_str().into(),
        c.flow.as_deref().into(),
        c.name.as_deref().into(),
        c.address.as_deref().into(),
        c.state.as_str().into(),
        c.reason.as_deref().into(),
        c.changed_at.as_millis().into(),
        c.first_at.as_millis().into(),
        c.last_at.as_millis().into(),
        c.preview.as_str().into(),
    ]
}

fn read_conversation(row: &Row) -> StoreResult<Conversation> {
    Ok(Conversation {
        tenant: Tenant::new(row.text(0)?).map_err(|_| strange("a tenant's name"))?,
        key: row.text(1)?,
        channel: Channel::named(&row.text(2)?).ok_or_else(|| strange("a channel"))?,
        customer: row.text(3)?,
        flow: row.maybe_text(4)?,
        name: row.maybe_text(5)?,
        address: row.maybe_text(6)?,
        state: Voice::named(&row.text(7)?)?,
        reason: row.maybe_text(8)?,
        changed_at: time(row, 9)?,
        first_at: time(row, 10)?,
        last_at: time(row, 11)?,
        preview: row.text(12)?,
    })
}

/// What is kept of an entry besides its place: id, time, role, text, and how it came to be.
fn read_entry(row: &Row) -> StoreResult<Entry> {
    Ok(Entry {
        id: row.text(0)?,
        at: time(row, 1)?,
        role: Role::named(&row.text(2)?)?,
        text: row.text(3)?,
        about: read_about(&row.text(4)?),
    })
}

/// Tables give numbers back as numbers, keys as texts.
fn time(row: &Row, column: usize) -> StoreResult<Timestamp> {
    let millis = match row.0.get(column) {
        Some(Cell::Text(text)) => text.parse().map_err(|_| strange("a time"))?,
        _ => row.int(column)?,
    };
    Ok(Timestamp::from_millis(millis))
}

fn read_about(text: &str) -> About {
    // Fields are only ever added, so what an older or newer version wrote can be read; anything else is no reason to lose the text.
    serde_json::from_str(text).unwrap_or_default()
}

fn strange(detail: &str) -> StoreError {
    StoreError::new(ErrorKind::Corrupt, format!("the book of conversations cannot be read: {detail}"))
}
