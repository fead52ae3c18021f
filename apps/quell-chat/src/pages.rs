//! The dashboard's pages: conversations with who answers in them, and one conversation with what waits in it.
//!
//! What customers wrote is text and stays text: the templates escape it. Lists are bounded.

use askama::Template;
use async_trait::async_trait;
use quell::Engine;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::Tenant;
use quell::quell_core::inspect::LaneDetail;
use quell_server::pages::{Clock, Page, PageError, PageRequest, Section, When, query, segment};
use tokio::sync::OnceCell;

use crate::book::{self, Conversation, Entry, Place, Role, Voice, Wanted};
use crate::desk::{Desk, DeskError};
use crate::join::words;
use crate::message::Message;

/// Conversations on a page.
const LISTED: usize = 100;
/// Entries of a conversation that are shown.
const ENTRIES: usize = 200;

/// Conversations, for the dashboard.
pub struct Pages {
    engine: Engine,
    /// Opened when somebody looks.
    desk: OnceCell<Desk>,
}

impl Pages {
    pub fn new(engine: Engine) -> Self {
        Pages { engine, desk: OnceCell::new() }
    }

    async fn desk(&self) -> Result<&Desk, PageError> {
        let open = || async {
            let book = book::open(self.engine.store().clone()).await?;
            Ok::<_, PageError>(Desk { engine: self.engine.clone(), book })
        };
        self.desk.get_or_try_init(open).await
    }
}

#[async_trait]
impl Section for Pages {
    fn name(&self) -> &'static str {
        "chat"
    }

    fn title(&self) -> &'static str {
        "Chat"
    }

    async fn page(&self, request: PageRequest) -> Result<Page, PageError> {
        match request.path()[..] {
            [] => self.list(&request).await,
            ["with", key] if !key.is_empty() => self.conversation(&request, key).await,
            _ => Err(PageError::not_found("there is no such page of chat")),
        }
    }
}

/// What all templates write the same way.
struct View {
    base: String,
    clock: Clock,
}

impl View {
    fn of(request: &PageRequest) -> Self {
        View { base: request.base.clone(), clock: Clock { now: request.now } }
    }

    fn when(&self, at: &Timestamp) -> When {
        self.clock.when(at)
    }

    fn conversation(&self, one: &Conversation) -> String {
        let tenant = query(&[("tenant", one.tenant.as_str())]);
        format!("{}/with/{}{tenant}", self.base, segment(&one.key))
    }

    fn tone(&self, state: &Voice) -> &'static str {
        match state {
            Voice::Bot => "done",
            Voice::Human => "waiting",
        }
    }

    fn lane(&self, one: &Conversation) -> String {
        let tenant = query(&[("tenant", one.tenant.as_str())]);
        format!("/ui/lanes/chat/{}{tenant}", segment(&one.key))
    }
}

#[derive(Template)]
#[template(path = "chat_head.html")]
struct Head<'a> {
    view: &'a View,
    human: bool,
    tenant: &'a str,
    customer: &'a str,
}

#[derive(Template)]
#[template(path = "chat_list.html")]
struct List<'a> {
    view: &'a View,
    conversations: Vec<Conversation>,
    filtered: bool,
}

impl List<'_> {
    fn is_full(&self) -> bool {
        self.conversations.len() >= LISTED
    }
}

#[derive(Template)]
#[template(path = "chat_conversation.html")]
struct Shown<'a> {
    view: &'a View,
    one: Conversation,
    entries: Vec<Entry>,
    lane: Option<LaneDetail>,
    waiting: Vec<(Timestamp, String)>,
}

impl Shown<'_> {
    fn who(&self, entry: &Entry) -> String {
        match entry.role {
            Role::Customer => self.one.name.clone().unwrap_or_else(|| "Customer".to_owned()),
            Role::Bot => "Bot".to_owned(),
            Role::Human => entry.about.by.clone().unwrap_or_else(|| "A person".to_owned()),
            Role::Note => "Note".to_owned(),
        }
    }

    fn class(&self, entry: &Entry) -> &'static str {
        match entry.role {
            Role::Customer => "prompt person",
            Role::Bot => "assistant",
            Role::Human => "person",
            Role::Note => "meta",
        }
    }

    /// Something waits or is being answered.
    fn is_busy(&self) -> bool {
        self.lane.as_ref().is_some_and(|lane| lane.row.buffered > 0 || lane.row.in_flight > 0)
    }
}

impl Pages {
    async fn list(&self, request: &PageRequest) -> Result<Page, PageError> {
        let view = View::of(request);
        let human = request.field("answers") == Some("human");
        let (tenant, customer) = (request.field("tenant"), request.field("customer"));
        let wanted = Wanted {
            tenant: tenant.map(Tenant::new).transpose().map_err(|e| PageError::invalid(e.to_string()))?,
            state: human.then_some(Voice::Human),
            customer: customer.map(str::to_owned),
            limit: LISTED,
        };
        let conversations = self.desk().await?.book.list(&wanted).await?;
        let filtered = human || tenant.is_some() || customer.is_some();
        let (tenant, customer) = (tenant.unwrap_or_default(), customer.unwrap_or_default());
        let head = Head { view: &view, human, tenant, customer };
        let list = List { view: &view, conversations, filtered };
        Ok(Page::new("Chat").fixed(&head).live(&list))
    }

    async fn conversation(&self, request: &PageRequest, key: &str) -> Result<Page, PageError> {
        let view = View::of(request);
        let tenant = Tenant::new(request.field("tenant").unwrap_or_default())
            .map_err(|e| PageError::invalid(e.to_string()))?;
        let place = Place { tenant, key: key.to_owned() };
        let desk = self.desk().await?;
        let one = desk.find(&place).await.map_err(refused)?;
        let entries = desk.book.entries(&place, ENTRIES).await?;
        let lane = desk.lane(&place).await.map_err(refused)?;
        let events = lane.iter().flat_map(|lane| &lane.events);
        let waiting = events.filter_map(|event| {
            let message: Message = serde_json::from_str(event.payload.as_str()).ok()?;
            Some((event.received_at, words(&message)))
        });
        let waiting = waiting.collect();
        let title = one.name.clone().unwrap_or_else(|| one.customer.clone());
        Ok(Page::new(title).live(&Shown { view: &view, one, entries, lane, waiting }))
    }
}

fn refused(error: DeskError) -> PageError {
    match error {
        DeskError::Unknown(_) => {
            PageError::not_found("there is no such conversation; it may have been forgotten")
        }
        DeskError::Invalid(problem) => PageError::invalid(problem),
        other => PageError::Failed(other.to_string()),
    }
}
