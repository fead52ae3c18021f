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

/// What the list can be limited to, with the words for it.
const VOICES: [(&str, &str); 2] = [("human", "a person"), ("bot", "the bot")];

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

    fn voice(&self, state: &Voice) -> &'static str {
        match state {
            Voice::Bot => "the bot",
            Voice::Human => "a person",
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
    answers: &'a str,
    tenant: &'a str,
    customer: &'a str,
}

impl Head<'_> {
    fn voices(&self) -> &'static [(&'static str, &'static str)] {
        &VOICES
    }
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

    fn is_human(&self) -> bool {
        self.one.state == Voice::Human
    }

    fn paused_by(&self) -> Option<&str> {
        self.lane.as_ref()?.row.paused_by.as_deref()
    }

    /// There may be older ones.
    fn is_cut(&self) -> bool {
        self.entries.len() >= ENTRIES
    }

    /// What the desk offers, to be copied into a terminal.
    fn commands(&self) -> Vec<String> {
        let tenant = match self.one.tenant.is_none() {
            true => String::new(),
            false => format!(" --tenant {}", quoted(self.one.tenant.as_str())),
        };
        let whom = format!("{}{tenant}", quoted(&self.one.key));
        let turn = match self.is_human() || self.paused_by().is_some() {
            true => "resume",
            false => "takeover",
        };
        vec![format!("quell chat {turn} {whom}"), format!("quell chat say {whom} 'I am here.'")]
    }

    /// Why it waits, as a sentence begins.
    fn why(&self) -> String {
        let mut letters = self.lane.as_ref().map_or("", |lane| lane.row.why.as_str()).chars();
        letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    }

    /// Messages of the answer that is under way.
    fn in_flight(&self) -> u64 {
        self.lane.as_ref().map_or(0, |lane| lane.row.in_flight)
    }

    /// Something waits or is being answered.
    fn is_busy(&self) -> bool {
        self.in_flight() > 0 || self.lane.as_ref().is_some_and(|lane| lane.row.buffered > 0)
    }
}

impl Pages {
    async fn list(&self, request: &PageRequest) -> Result<Page, PageError> {
        let view = View::of(request);
        let answers = request.field("answers").unwrap_or_default();
        let state = match answers {
            "" => None,
            "human" => Some(Voice::Human),
            "bot" => Some(Voice::Bot),
            _ => return Err(PageError::invalid("a conversation is answered by `human` or by `bot`")),
        };
        let (tenant, customer) = (request.field("tenant"), request.field("customer"));
        let wanted = Wanted {
            tenant: tenant.map(Tenant::new).transpose().map_err(|e| PageError::invalid(e.to_string()))?,
            state,
            customer: customer.map(str::to_owned),
            limit: LISTED,
        };
        let conversations = self.desk().await?.book.list(&wanted).await?;
        let filtered = state.is_some() || tenant.is_some() || customer.is_some();
        let (tenant, customer) = (tenant.unwrap_or_default(), customer.unwrap_or_default());
        let head = Head { view: &view, answers, tenant, customer };
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

/// One word for a shell, whatever a provider calls its customers.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:+@%/-".contains(&byte);
    match !word.is_empty() && !word.starts_with('-') && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
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

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_customer_stays_one_word_of_a_shell() {
        assert_eq!(quoted("wati:12025550110"), "wati:12025550110");
        assert_eq!(quoted("meta:US.263$(reboot)"), "'meta:US.263$(reboot)'");
        assert_eq!(quoted("it's; ls"), r"'it'\''s; ls'");
        assert_eq!((quoted(""), quoted("-f")), ("''".to_owned(), "'-f'".to_owned()));
    }
}
