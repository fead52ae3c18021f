//! The dashboard's pages: sessions with what they do right now, one conversation, and words found in all of them.
//!
//! Everything that an agent or a person wrote is text and stays text: no markup is made of it, and the templates escape it.
//! What stands in a list is bounded, and a long conversation is shown a hundred messages at a time.

use askama::Template;
use async_trait::async_trait;
use quell::quell_core::clock::Timestamp;
use quell_server::pages::{Clock, Page, PageError, PageRequest, Section, When, number, query, segment};

use crate::lazily::LazyArchive;
use crate::reading::{FOUND, Hit, HookRow, Message, Named, Search, Session, SessionFilter, Tokens};
use crate::shape::Status;

/// Sessions on a page.
const SESSIONS: u32 = 50;
/// Messages on a page.
const MESSAGES: u32 = 100;
/// Found messages on a page.
const HITS: u32 = 50;
const HOOK_EVENTS: u32 = 50;
/// Bytes of a text that are shown before somebody asks for all of it.
const SHOWN: usize = 8 << 10;

const STATUSES: [Status; 6] =
    [Status::Started, Status::Active, Status::PermissionNeeded, Status::Idle, Status::Done, Status::Ended];

/// What is in an archive, for the dashboard: `AppPage::of(Arc::new(Pages::new(LazyArchive::new(store))))`.
pub struct Pages {
    archive: LazyArchive,
}

impl Pages {
    pub fn new(archive: LazyArchive) -> Self {
        Pages { archive }
    }
}

#[async_trait]
impl Section for Pages {
    fn name(&self) -> &'static str {
        "transcripts"
    }

    fn title(&self) -> &'static str {
        "Transcripts"
    }

    async fn page(&self, request: PageRequest) -> Result<Page, PageError> {
        match request.path()[..] {
            [] => self.list(&request).await,
            ["search"] => self.found(&request).await,
            ["sessions", id] if !id.is_empty() => self.conversation(&request, id).await,
            _ => Err(PageError::not_found("there is no such page of transcripts")),
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

    fn when(&self, at: &i64) -> When {
        self.clock.when(&Timestamp::from_millis(*at))
    }

    fn session(&self, id: &str) -> String {
        format!("{}/sessions/{}", self.base, segment(id))
    }

    fn newest(&self, id: &str) -> String {
        self.session(id) + "?page=last"
    }

    /// The page with this message on it, at its place.
    fn message(&self, hit: &Hit) -> String {
        format!("{}?at={}#m-{}", self.session(&hit.session_id), hit.n, segment(&hit.uuid))
    }

    /// A colour; the word stands beside it.
    fn tone(&self, status: &str) -> &'static str {
        match status {
            "started" => "started",
            "active" => "active",
            "permission_needed" => "waiting",
            "idle" => "idle",
            "done" => "done",
            _ => "",
        }
    }

    fn number(&self, n: &i64) -> String {
        number(&u64::try_from(*n).unwrap_or(0))
    }

    /// `950`, `12.3k`, `4.6M`.
    fn short(&self, n: &i64) -> String {
        let n = u64::try_from(*n).unwrap_or(0);
        let tenths = |unit: u64| {
            let tenths = n / (unit / 10);
            if tenths.is_multiple_of(10) || tenths >= 1_000 {
                (tenths / 10).to_string()
            } else {
                format!("{}.{}", tenths / 10, tenths % 10)
            }
        };
        match n {
            0..1_000 => n.to_string(),
            1_000..1_000_000 => tenths(1_000) + "k",
            1_000_000..1_000_000_000 => tenths(1_000_000) + "M",
            _ => tenths(1_000_000_000) + "G",
        }
    }

    /// All that the model was given to read.
    fn read(&self, tokens: &Tokens) -> i64 {
        tokens.input.saturating_add(tokens.cache_creation).saturating_add(tokens.cache_read)
    }

    fn project<'a>(&self, project: &'a str) -> &'a str {
        project.trim_end_matches('/').rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(project)
    }
}

/// What the form of the list holds.
#[derive(Default)]
struct Wish {
    project: String,
    status: String,
    since: String,
}

impl Wish {
    fn is_empty(&self) -> bool {
        self.project.is_empty() && self.status.is_empty() && self.since.is_empty()
    }
}

#[derive(Template)]
#[template(path = "list_head.html")]
struct ListHead<'a> {
    view: &'a View,
    wish: &'a Wish,
    problem: Option<String>,
}

impl ListHead<'_> {
    fn statuses(&self) -> [&'static str; 6] {
        STATUSES.map(Status::as_str)
    }
}

#[derive(Template)]
#[template(path = "list.html")]
struct List<'a> {
    view: &'a View,
    wish: &'a Wish,
    sessions: Vec<Session>,
    /// Not the first page.
    further: bool,
    more: bool,
}

impl List<'_> {
    fn at(&self, after: &str) -> String {
        let wish = self.wish;
        let pairs =
            [("project", &*wish.project), ("status", &wish.status), ("since", &wish.since), ("after", after)];
        self.view.base.clone() + &query(&pairs)
    }

    fn next(&self) -> Option<String> {
        let last = self.sessions.last().filter(|_| self.more)?;
        Some(self.at(&format!("{}.{}", last.last_at, last.id)))
    }
}

#[derive(Template)]
#[template(path = "found.html")]
struct Found<'a> {
    view: &'a View,
    words: &'a str,
    project: &'a str,
    role: &'a str,
    session: &'a str,
    hits: Vec<Hit>,
    /// Something was looked for.
    asked: bool,
}

impl Found<'_> {
    fn is_full(&self) -> bool {
        self.hits.len() >= HITS as usize
    }

    fn parts<'s>(&self, hit: &'s Hit) -> Vec<(bool, &'s str)> {
        parts(&hit.snippet)
    }
}

/// What stands between the marks, and what around them.
fn parts(snippet: &str) -> Vec<(bool, &str)> {
    let (open, close) = FOUND;
    let (mut parts, mut rest, mut inside) = (Vec::new(), snippet, false);
    while let Some(at) = rest.find([open, close]) {
        let (text, after) = rest.split_at(at);
        if !text.is_empty() {
            parts.push((inside, text));
        }
        inside = after.starts_with(open);
        rest = &after[after.chars().next().map_or(0, char::len_utf8)..];
    }
    if !rest.is_empty() {
        parts.push((inside, rest));
    }
    parts
}

/// Messages as they are shown: those of a subagent that follow each other are folded together.
struct Stretch {
    messages: Vec<Message>,
    sidechain: bool,
    agent: Option<String>,
    open: bool,
}

fn stretches(messages: Vec<Message>, at: Option<i64>) -> Vec<Stretch> {
    let mut all: Vec<Stretch> = Vec::new();
    for message in messages {
        let wanted = at == Some(message.n);
        match all.last_mut() {
            Some(last) if last.sidechain == message.sidechain && last.agent == message.agent_id => {
                last.open |= wanted;
                last.messages.push(message);
            }
            _ => all.push(Stretch {
                sidechain: message.sidechain,
                agent: message.agent_id.clone(),
                open: wanted,
                messages: vec![message],
            }),
        }
    }
    all
}

#[derive(Template)]
#[template(path = "session.html")]
struct Conversation<'a> {
    view: &'a View,
    session: Session,
    stretches: Vec<Stretch>,
    total: i64,
    page: i64,
    pages: i64,
    /// The message that is shown with all of its text.
    whole: Option<&'a str>,
    hooks: Vec<HookRow>,
}

impl Conversation<'_> {
    fn page(&self, page: i64) -> String {
        format!("{}?page={page}", self.view.session(&self.session.id))
    }

    fn who(&self, message: &Message) -> &'static str {
        match message.role.as_str() {
            "assistant" if message.sidechain => "Subagent",
            "assistant" => "Assistant",
            _ if message.is_prompt => "Prompt",
            _ if message.sidechain => "To the subagent",
            _ => "User",
        }
    }

    /// What of a text is shown, and how many bytes are not.
    fn cut<'s>(&self, message: &Message, text: &'s str) -> (&'s str, usize) {
        if self.whole == Some(&message.uuid) {
            return (text, 0);
        }
        let end = text.floor_char_boundary(SHOWN);
        (&text[..end], text.len() - end)
    }

    fn whole_of(&self, message: &Message) -> String {
        let place = query(&[("page", &self.page.to_string()), ("whole", &message.uuid)]);
        format!("{}{place}{}", self.view.session(&self.session.id), self.anchor(message))
    }

    fn anchor(&self, message: &Message) -> String {
        format!("#m-{}", segment(&message.uuid))
    }

    fn is_silent(&self, message: &Message) -> bool {
        message.text.is_empty()
            && message.thinking.is_empty()
            && message.tools.is_empty()
            && message.tool_results == 0
    }
}

impl Pages {
    async fn list(&self, request: &PageRequest) -> Result<Page, PageError> {
        let view = View::of(request);
        let held = |name| request.field(name).unwrap_or_default().to_owned();
        let wish = Wish { project: held("project"), status: held("status"), since: held("since") };
        let head = |problem| ListHead { view: &view, wish: &wish, problem };
        let page = Page::new("Transcripts");
        if !wish.status.is_empty() && !STATUSES.iter().any(|status| status.as_str() == wish.status) {
            return Ok(page.fixed(&head(Some(format!("There is no status {:?}.", wish.status)))));
        }
        let since = match request.field("since").map(|text| (text, moment(text, request.now))) {
            Some((text, None)) => {
                let problem = format!("{text:?} is no time: write 30m, 12h, 7d or 2026-07-31.");
                return Ok(page.fixed(&head(Some(problem))));
            }
            Some((_, found)) => found,
            None => None,
        };
        let after = request.field("after").map(cursor).transpose()?;
        let further = after.is_some();
        let some = |text: &String| (!text.is_empty()).then(|| text.clone());
        let filter = SessionFilter {
            project: some(&wish.project),
            status: some(&wish.status),
            since,
            before: None,
            after,
            // One more tells whether there is another page.
            limit: SESSIONS + 1,
        };
        let mut sessions = self.archive.open().await?.sessions(&filter).await?;
        let more = sessions.len() > SESSIONS as usize;
        sessions.truncate(SESSIONS as usize);
        let list = List { view: &view, wish: &wish, sessions, further, more };
        Ok(page.fixed(&head(None)).live(&list))
    }

    /// Not fetched again: whoever reads what was found does not want it to move.
    async fn found(&self, request: &PageRequest) -> Result<Page, PageError> {
        let field = |name| request.field(name).unwrap_or_default();
        let (words, role) = (field("q"), field("role"));
        if !["", "user", "assistant"].contains(&role) {
            return Err(PageError::invalid("somebody is `user` or `assistant`"));
        }
        let owned = |name| request.field(name).map(str::to_owned);
        let search = Search {
            words: words.to_owned(),
            project: owned("project"),
            role: owned("role"),
            session: owned("session"),
            limit: HITS,
            ..Search::default()
        };
        let hits = self.archive.open().await?.search(&search).await?;
        let view = View::of(request);
        let (project, session, asked) = (field("project"), field("session"), !words.is_empty());
        let found = Found { view: &view, words, project, role, session, hits, asked };
        let title = if asked { format!("{words} · Transcripts") } else { "Search transcripts".to_owned() };
        Ok(Page::new(title).fixed(&found))
    }

    async fn conversation(&self, request: &PageRequest, id: &str) -> Result<Page, PageError> {
        let session = match self.archive.open().await?.session(id).await? {
            Named::One(session) => *session,
            Named::None => {
                return Err(PageError::not_found("there is no such session; it may have been forgotten"));
            }
            Named::Several(_) => {
                return Err(PageError::not_found("several sessions begin like that; write more of the id"));
            }
        };
        let whole_number = |name: &str| {
            let parsed = request.field(name).map(str::parse::<i64>).transpose();
            parsed.map_err(|_| PageError::invalid(format!("`{name}` is a number")))
        };
        let at = whole_number("at")?;
        let (total, before) = self.archive.open().await?.places(&session.id, at).await?;
        let size = i64::from(MESSAGES);
        let pages = (total + size - 1).div_euclid(size).max(1);
        let page = match (request.field("page"), at) {
            (None, Some(_)) => before.div_euclid(size) + 1,
            (Some("last"), _) => pages,
            _ => whole_number("page")?.unwrap_or(1),
        };
        let page = page.clamp(1, pages);
        let messages =
            self.archive.open().await?.messages_from(&session.id, (page - 1) * size, MESSAGES).await?;
        let view = View::of(request);
        let title = session.title.clone().unwrap_or_else(|| session.id.clone());
        let conversation = Conversation {
            view: &view,
            stretches: stretches(messages, at),
            total,
            page,
            pages,
            whole: request.field("whole"),
            hooks: self.archive.open().await?.hook_events(&session.id, HOOK_EVENTS).await?,
            session,
        };
        Ok(Page::new(title).live(&conversation))
    }
}

/// Where the next page of the list begins.
fn cursor(text: &str) -> Result<(i64, String), PageError> {
    let read = || {
        let (at, id) = text.split_once('.')?;
        Some((at.parse().ok()?, id.to_owned()))
    };
    read()
        .ok_or_else(|| PageError::invalid("that page of the list cannot be found; begin with the first one"))
}

/// `7d` before now, a date or a moment.
fn moment(text: &str, now: Timestamp) -> Option<i64> {
    use jiff::civil::Date;
    use jiff::tz::TimeZone;
    if let Ok(moment) = text.parse::<jiff::Timestamp>() {
        return Some(moment.as_millisecond());
    }
    if let Ok(date) = text.parse::<Date>() {
        return Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond());
    }
    let span = text.parse::<jiff::Span>().ok().filter(|span| !span.is_negative())?;
    let now = jiff::Timestamp::from_millisecond(now.as_millis()).ok()?.to_zoned(TimeZone::UTC);
    Some(now.checked_sub(span).ok()?.timestamp().as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> View {
        View { base: "/x".into(), clock: Clock { now: Timestamp::from_millis(0) } }
    }

    #[test]
    fn big_numbers_are_short() {
        let cases: [(i64, &str); 9] = [
            (-1, "0"),
            (950, "950"),
            (1_000, "1k"),
            (12_345, "12.3k"),
            (123_456, "123k"),
            (999_999, "999k"),
            (4_650_000, "4.6M"),
            (1_000_000_000, "1G"),
            (i64::MAX, "9223372036G"),
        ];
        for (n, wanted) in cases {
            assert_eq!(view().short(&n), wanted);
        }
    }

    #[test]
    fn a_time_is_a_distance_a_date_or_a_moment() {
        let now = Timestamp::from_millis(10 * 86_400_000);
        assert_eq!(moment("7d", now), Some(3 * 86_400_000));
        assert_eq!(moment("1h 30m", now), Some(10 * 86_400_000 - 5_400_000));
        assert_eq!(moment("1970-01-03", now), Some(2 * 86_400_000));
        assert_eq!(moment("1970-01-01T00:00:01Z", now), Some(1_000));
        for wrong in ["", "yesterday", "-7d", "7", "99999999999999d", "<script>"] {
            assert_eq!(moment(wrong, now), None, "{wrong}");
        }
    }

    #[test]
    fn marks_are_taken_apart_wherever_they_stand() {
        assert_eq!(parts("a \u{2}b\u{3} c"), [(false, "a "), (true, "b"), (false, " c")]);
        assert_eq!(parts("\u{2}b\u{3}"), [(true, "b")]);
        assert_eq!(parts("\u{3}a\u{2}\u{2}b"), [(false, "a"), (true, "b")]);
        assert_eq!(parts(""), []);
    }

    #[test]
    fn a_project_is_called_by_its_folder() {
        let cases = [("/home/ada/shop", "shop"), ("/home/ada/shop/", "shop"), ("/", "/"), ("shop", "shop")];
        for (path, name) in cases {
            assert_eq!(view().project(path), name);
        }
    }
}
