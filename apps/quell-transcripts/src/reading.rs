//! What was said, for people: sessions, conversations, and words found in all of them.
//!
//! Everything is paged and bounded; nothing here changes anything. The language of a search is the same on both databases:
//! words that must all be there, `"a phrase"`, `OR` between alternatives, `-without`.

use quell::quell_core::clock::Timestamp;
use quell::quell_core::error::StoreResult;
use quell::quell_core::tables::{Cell, Dialect, Row, Statement};
use serde::Serialize;

use crate::archive::Archive;

/// Sessions, messages or hits in one answer.
pub const PAGE_MAX: u32 = 1_000;
/// Around the words that were found in a snippet; whoever shows it replaces them.
pub const FOUND: (char, char) = ('\u{2}', '\u{3}');
/// Words and operators of one search; more are a mistake, or somebody who wants to know how slow it gets.
const TERMS_MAX: usize = 32;

/// A session in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Session {
    pub id: String,
    pub project: Option<String>,
    pub cwd: Option<String>,
    pub title: Option<String>,
    pub status: String,
    /// Milliseconds since 1970, as all times here; programs get them as RFC 3339.
    #[serde(serialize_with = "moment")]
    pub began_at: i64,
    #[serde(serialize_with = "moment")]
    pub last_at: i64,
    pub transcript: Option<String>,
    pub messages: i64,
    pub prompts: i64,
    pub tokens: Tokens,
    /// Why its transcript is not read, if it is not.
    pub problem: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tokens {
    pub input: i64,
    pub output: i64,
    pub cache_creation: i64,
    pub cache_read: i64,
}

fn moment<S: serde::Serializer>(at: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    Timestamp::from_millis(*at).serialize(serializer)
}

fn perhaps_moment<S: serde::Serializer>(at: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
    at.map(Timestamp::from_millis).serialize(serializer)
}

/// Which sessions are wanted; the newest come first.
#[derive(Debug, Clone, Default)]
pub struct SessionFilter {
    /// Part of the project's path.
    pub project: Option<String>,
    pub status: Option<String>,
    /// Active at this time or later.
    pub since: Option<i64>,
    /// Last active before this time.
    pub before: Option<i64>,
    /// Only those after this one in the list.
    pub after: Option<(i64, String)>,
    pub limit: u32,
}

/// One line of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Where it stands among all that was read; the cursor of a page.
    pub n: i64,
    pub uuid: String,
    pub role: String,
    #[serde(serialize_with = "perhaps_moment")]
    pub at: Option<i64>,
    pub prompt_id: Option<String>,
    pub is_prompt: bool,
    /// Said by or to a subagent.
    pub sidechain: bool,
    pub meta: bool,
    pub agent_id: Option<String>,
    pub model: Option<String>,
    pub text: String,
    pub thinking: String,
    /// One line for each tool that was used.
    pub tools: Vec<String>,
    pub tool_results: i64,
    pub tool_failures: i64,
}

/// A hook event of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HookRow {
    pub id: String,
    pub name: String,
    #[serde(serialize_with = "moment")]
    pub at: i64,
    pub prompt_id: Option<String>,
}

/// What is looked for.
#[derive(Debug, Clone, Default)]
pub struct Search {
    pub words: String,
    pub project: Option<String>,
    pub role: Option<String>,
    pub session: Option<String>,
    pub since: Option<i64>,
    pub until: Option<i64>,
    pub limit: u32,
}

/// A message that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hit {
    pub session_id: String,
    pub title: Option<String>,
    pub project: Option<String>,
    pub uuid: String,
    pub n: i64,
    pub role: String,
    #[serde(serialize_with = "perhaps_moment")]
    pub at: Option<i64>,
    /// Part of the text, with [`FOUND`] around what was looked for.
    pub snippet: String,
}

/// A session by the beginning of its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    One(Box<Session>),
    None,
    /// The first of several.
    Several(Vec<String>),
}

const SESSION: &str = "s.id, s.project, s.cwd, s.title, s.status, s.began_at, s.last_at, s.transcript, s.messages, \
    s.prompts, s.input_tokens, s.output_tokens, s.cache_creation_tokens, s.cache_read_tokens, s.problem";

fn session(row: &Row) -> StoreResult<Session> {
    Ok(Session {
        id: row.text(0)?,
        project: row.maybe_text(1)?,
        cwd: row.maybe_text(2)?,
        title: row.maybe_text(3)?,
        status: row.text(4)?,
        began_at: row.int(5)?,
        last_at: row.int(6)?,
        transcript: row.maybe_text(7)?,
        messages: row.int(8)?,
        prompts: row.int(9)?,
        tokens: Tokens {
            input: row.int(10)?,
            output: row.int(11)?,
            cache_creation: row.int(12)?,
            cache_read: row.int(13)?,
        },
        problem: row.maybe_text(14)?,
    })
}

const MESSAGE: &str = "n, uuid, role, at, prompt_id, is_prompt, sidechain, meta, agent_id, model, text, thinking, tools, \
    results, failures FROM quell.transcripts_message";

/// Conditions and their values, in the order in which they are written.
#[derive(Default)]
struct Where {
    text: String,
    values: Vec<Cell>,
}

impl Where {
    /// `?` stands for the value.
    fn and(&mut self, condition: &str, value: Option<impl Into<Cell>>) -> &mut Self {
        if let Some(value) = value {
            self.values.push(value.into());
            let place = format!("${}", self.values.len());
            self.text.push_str(" AND ");
            self.text.push_str(&condition.replace('?', &place));
        }
        self
    }

    fn value(&mut self, value: impl Into<Cell>) -> String {
        self.values.push(value.into());
        format!("${}", self.values.len())
    }
}

/// A pattern that finds a text anywhere, whatever signs are in it.
fn containing(text: &str) -> String {
    format!("%{}%", text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_"))
}

fn page(limit: u32) -> i64 {
    i64::from(limit.clamp(1, PAGE_MAX))
}

impl Archive {
    /// Sessions, the latest first.
    pub async fn sessions(&self, filter: &SessionFilter) -> StoreResult<Vec<Session>> {
        let mut wanted = Where::default();
        wanted
            .and("lower(s.project) LIKE lower(?) ESCAPE '\\'", filter.project.as_deref().map(containing))
            .and("s.status = ?", filter.status.as_deref())
            .and("s.last_at >= ?", filter.since)
            .and("s.last_at < ?", filter.before);
        if let Some((at, id)) = &filter.after {
            let (at, id) = (wanted.value(*at), wanted.value(id.as_str()));
            wanted.text.push_str(&format!(" AND (s.last_at < {at} OR s.last_at = {at} AND s.id > {id})"));
        }
        let limit = wanted.value(page(filter.limit));
        let sql = format!(
            "SELECT {SESSION} FROM quell.transcripts_session AS s WHERE 1 = 1{}
             ORDER BY s.last_at DESC, s.id LIMIT {limit}",
            wanted.text
        );
        let rows = self.tables.read(Statement::new(sql, wanted.values)).await?;
        rows.iter().map(session).collect()
    }

    /// The ids of all sessions that a filter wants, whatever its limit.
    pub async fn session_ids(&self, filter: &SessionFilter) -> StoreResult<Vec<String>> {
        let (mut all, mut filter) = (Vec::new(), SessionFilter { limit: PAGE_MAX, ..filter.clone() });
        loop {
            let page = self.sessions(&filter).await?;
            let Some(last) = page.last() else { return Ok(all) };
            filter.after = Some((last.last_at, last.id.clone()));
            all.extend(page.into_iter().map(|session| session.id));
        }
    }

    /// The session whose id begins like this.
    pub async fn session(&self, id: &str) -> StoreResult<Named> {
        let sql = format!(
            "SELECT {SESSION} FROM quell.transcripts_session AS s
             WHERE s.id = $1 OR s.id LIKE $2 ESCAPE '\\' ORDER BY s.id = $1 DESC, s.last_at DESC LIMIT 6"
        );
        let start = containing(id);
        let start = &start[1..];
        let rows = self.tables.read(Statement::new(sql, [id.into(), start.into()])).await?;
        let mut found = rows.iter().map(session).collect::<StoreResult<Vec<_>>>()?;
        Ok(match found.len() {
            0 => Named::None,
            1 => Named::One(Box::new(found.remove(0))),
            _ if found[0].id == id => Named::One(Box::new(found.remove(0))),
            _ => Named::Several(found.into_iter().map(|session| session.id).collect()),
        })
    }

    /// What was said in a session, in the order in which it was read; `after` is the `n` of the last one seen.
    pub async fn messages(&self, session: &str, after: Option<i64>, limit: u32) -> StoreResult<Vec<Message>> {
        let sql = format!("SELECT {MESSAGE} WHERE session_id = $1 AND n > $2 ORDER BY n LIMIT $3");
        let values = [session.into(), after.unwrap_or(i64::MIN).into(), page(limit).into()];
        let rows = self.tables.read(Statement::new(sql, values)).await?;
        rows.iter().map(message).collect()
    }

    /// The same, beginning after so many of them.
    pub async fn messages_from(&self, session: &str, skip: i64, limit: u32) -> StoreResult<Vec<Message>> {
        let sql = format!("SELECT {MESSAGE} WHERE session_id = $1 ORDER BY n LIMIT $2 OFFSET $3");
        let values = [session.into(), page(limit).into(), skip.max(0).into()];
        let rows = self.tables.read(Statement::new(sql, values)).await?;
        rows.iter().map(message).collect()
    }

    /// How many messages a session has, and how many of them stand before `n`.
    pub async fn places(&self, session: &str, n: Option<i64>) -> StoreResult<(i64, i64)> {
        let sql = "SELECT count(*), count(CASE WHEN n < $2 THEN 1 END) FROM quell.transcripts_message
                   WHERE session_id = $1";
        let values = [session.into(), n.unwrap_or(i64::MIN).into()];
        let rows = self.tables.read(Statement::new(sql, values)).await?;
        rows.first().map_or(Ok((0, 0)), |row| Ok((row.int(0)?, row.int(1)?)))
    }

    /// The hook events of a session, the latest first.
    pub async fn hook_events(&self, session: &str, limit: u32) -> StoreResult<Vec<HookRow>> {
        let sql = "SELECT id, name, at, prompt_id FROM quell.transcripts_event
                   WHERE session_id = $1 ORDER BY at DESC, id DESC LIMIT $2";
        let rows = self.tables.read(Statement::new(sql, [session.into(), page(limit).into()])).await?;
        let read = |row: &Row| {
            Ok(HookRow {
                id: row.text(0)?,
                name: row.text(1)?,
                at: row.int(2)?,
                prompt_id: row.maybe_text(3)?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// The prompts of a session with their texts, the latest first.
    pub async fn prompts(&self, session: &str, limit: u32) -> StoreResult<Vec<(String, Option<String>)>> {
        let sql = "SELECT id, text FROM quell.transcripts_prompt WHERE session_id = $1 ORDER BY at DESC, id DESC LIMIT $2";
        let rows = self.tables.read(Statement::new(sql, [session.into(), page(limit).into()])).await?;
        rows.iter().map(|row| Ok((row.text(0)?, row.maybe_text(1)?))).collect()
    }

    /// Messages with these words, the best first.
    pub async fn search(&self, search: &Search) -> StoreResult<Vec<Hit>> {
        let terms = terms(&search.words);
        if !terms.iter().any(|term| matches!(term, Term::With(_))) {
            return Ok(Vec::new());
        }
        let mut wanted = Where::default();
        let (open, close) = FOUND;
        let (from, snippet, order) = match self.tables.dialect() {
            Dialect::Sqlite => {
                let words = wanted.value(for_sqlite(&terms));
                wanted.text.push_str(&format!(" AND transcripts_search MATCH {words}"));
                (
                    "quell.transcripts_search AS f JOIN quell.transcripts_message AS m ON m.n = f.rowid",
                    format!("snippet(transcripts_search, -1, '{open}', '{close}', '…', 24)"),
                    "f.rank, m.n DESC",
                )
            }
            Dialect::Postgres => {
                let words = wanted.value(for_postgres(&terms));
                wanted.text.push_str(" AND m.search @@ q.words");
                let snippet = format!(
                    "ts_headline('simple', left(concat_ws(E'\\n', nullif(m.text, ''), nullif(m.thinking, ''), m.tools),
                       100000), q.words, 'StartSel={open}, StopSel={close}, MaxFragments=2, MaxWords=16, MinWords=4')"
                );
                wanted.text.push_str(&format!(" AND {words} IS NOT NULL"));
                (
                    "quell.transcripts_message AS m CROSS JOIN websearch_to_tsquery('simple', $1) AS q (words)",
                    snippet,
                    "ts_rank(m.search, q.words) DESC, m.n DESC",
                )
            }
        };
        wanted
            .and("lower(s.project) LIKE lower(?) ESCAPE '\\'", search.project.as_deref().map(containing))
            .and("m.role = ?", search.role.as_deref())
            .and("m.session_id = ?", search.session.as_deref())
            .and("m.at >= ?", search.since)
            .and("m.at < ?", search.until);
        let limit = wanted.value(page(search.limit));
        let sql = format!(
            "SELECT m.session_id, s.title, s.project, m.uuid, m.n, m.role, m.at, {snippet}
             FROM {from} JOIN quell.transcripts_session AS s ON s.id = m.session_id
             WHERE 1 = 1{} ORDER BY {order} LIMIT {limit}",
            wanted.text
        );
        let rows = self.tables.read(Statement::new(sql, wanted.values)).await?;
        let read = |row: &Row| {
            Ok(Hit {
                session_id: row.text(0)?,
                title: row.maybe_text(1)?,
                project: row.maybe_text(2)?,
                uuid: row.text(3)?,
                n: row.int(4)?,
                role: row.text(5)?,
                at: row.maybe_int(6)?,
                snippet: row.text(7)?,
            })
        };
        rows.iter().map(read).collect()
    }
}

fn message(row: &Row) -> StoreResult<Message> {
    Ok(Message {
        n: row.int(0)?,
        uuid: row.text(1)?,
        role: row.text(2)?,
        at: row.maybe_int(3)?,
        prompt_id: row.maybe_text(4)?,
        is_prompt: row.flag(5)?,
        sidechain: row.flag(6)?,
        meta: row.flag(7)?,
        agent_id: row.maybe_text(8)?,
        model: row.maybe_text(9)?,
        text: row.text(10)?,
        thinking: row.text(11)?,
        tools: row.text(12)?.lines().map(str::to_owned).collect(),
        tool_results: row.int(13)?,
        tool_failures: row.int(14)?,
    })
}

/// One part of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Term {
    /// A word, or several in this order.
    With(String),
    Without(String),
    /// Between alternatives.
    Or,
}

/// What a person typed, in parts. Signs that a database would understand in its own way are left out.
fn terms(words: &str) -> Vec<Term> {
    let mut found = Vec::new();
    let mut rest = words.trim_start();
    while !rest.is_empty() && found.len() < TERMS_MAX {
        let (without, after) = match rest.strip_prefix('-') {
            Some(after) if !after.starts_with(char::is_whitespace) => (true, after),
            _ => (false, rest),
        };
        let (text, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => {
                let end = after.find(|c: char| c.is_whitespace() || c == '"').unwrap_or(after.len());
                after.split_at(end)
            }
        };
        let plain = text.replace(['"', '\0'], " ");
        if plain.chars().any(char::is_alphanumeric) {
            found.push(match (without, plain.as_str()) {
                (false, "OR") => Term::Or,
                (true, _) => Term::Without(plain),
                (false, _) => Term::With(plain),
            });
        }
        rest = after.trim_start();
    }
    found
}

/// `(a b) OR (c) NOT (d)`, every word quoted.
fn for_sqlite(terms: &[Term]) -> String {
    let (mut groups, mut without) = (vec![Vec::new()], Vec::new());
    for term in terms {
        match term {
            Term::With(text) => groups.last_mut().expect("there is always one").push(format!("\"{text}\"")),
            Term::Without(text) => without.push(format!("\"{text}\"")),
            Term::Or => groups.push(Vec::new()),
        }
    }
    let groups: Vec<String> = groups
        .iter()
        .filter(|group| !group.is_empty())
        .map(|group| format!("({})", group.join(" AND ")))
        .collect();
    let mut query = format!("({})", groups.join(" OR "));
    for text in without {
        query.push_str(&format!(" NOT {text}"));
    }
    query
}

/// In the language of `websearch_to_tsquery`. What is excluded there binds to its alternative only, so it is said with each.
fn for_postgres(terms: &[Term]) -> String {
    let without: String = terms
        .iter()
        .filter_map(|term| if let Term::Without(text) = term { Some(format!(" -\"{text}\"")) } else { None })
        .collect();
    let mut query = String::new();
    for term in terms {
        match term {
            Term::With(text) => query.push_str(&format!("\"{text}\" ")),
            Term::Or if !query.trim_end().is_empty() => query.push_str(&format!("{without} OR ")),
            Term::Or | Term::Without(_) => {}
        }
    }
    query + &without
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Term {
        Term::With(text.into())
    }

    #[test]
    fn what_is_typed_is_read_as_words_phrases_and_exclusions() {
        let cases: [(&str, Vec<Term>); 8] = [
            ("", vec![]),
            ("price cache", vec![with("price"), with("cache")]),
            ("\"price cache\" x", vec![with("price cache"), with("x")]),
            ("\"never closed", vec![with("never closed")]),
            ("a -b -\"c d\"", vec![with("a"), Term::Without("b".into()), Term::Without("c d".into())]),
            ("a OR b or c", vec![with("a"), Term::Or, with("b"), with("or"), with("c")]),
            ("- * () \"\" ^", vec![]),
            ("foo-bar* src/main.rs", vec![with("foo-bar*"), with("src/main.rs")]),
        ];
        for (typed, wanted) in cases {
            assert_eq!(terms(typed), wanted, "{typed:?}");
        }
        assert_eq!(terms(&"word ".repeat(100)).len(), TERMS_MAX);
    }

    #[test]
    fn both_databases_are_asked_for_the_same() {
        let typed = terms("a \"b c\" OR d -e");
        assert_eq!(for_sqlite(&typed), "((\"a\" AND \"b c\") OR (\"d\")) NOT \"e\"");
        assert_eq!(for_postgres(&typed), "\"a\" \"b c\"  -\"e\" OR \"d\"  -\"e\"");
    }
}
