//! What is kept: sessions, prompts, messages and how far each file was read, in tables of the store's own database.
//!
//! Every change is one transaction that may be repeated: rows have the ids of what they tell of (the `uuid` of a line, the
//! id of a hook event), the first stored wins, and what is added up (messages, tokens) is counted anew from the rows. A
//! pass that is cut off anywhere is simply made again. Reading is in `reading.rs`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use quell::quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell::quell_core::store::Store;
use quell::quell_core::tables::{Cell, Dialect, Statement, Tables};

use crate::ingest::Read;
use crate::line::{Entry, Kind, Role, Tally, Title, TitleRank, Usage};
use crate::reader::Position;
use crate::shape::{HookEvent, Status};

pub(crate) const APPLICATION: &str = "transcripts";
const SQLITE: &[&str] = &[include_str!("../migrations/sqlite_0001_archive.sql")];
const POSTGRES: &[&str] = &[include_str!("../migrations/postgres_0001_archive.sql")];

/// What makes the tables of the archive.
pub(crate) fn migrations(dialect: Dialect) -> &'static [&'static str] {
    match dialect {
        Dialect::Sqlite => SQLITE,
        Dialect::Postgres => POSTGRES,
    }
}

/// Of a line of an unknown type; a longer one is cut.
pub const RAW_BYTES_MAX: usize = 64 << 10;
/// Sessions forgotten in one transaction.
const FORGET_STEP: usize = 50;

/// The tables of the application.
#[derive(Clone)]
pub struct Archive {
    pub(crate) tables: Arc<dyn Tables>,
}

/// A hook event on its way into the tables.
#[derive(Debug, Clone)]
pub struct Told {
    /// The id of its event in the queue.
    pub id: String,
    /// When the store took it.
    pub at: i64,
    pub event: HookEvent,
}

/// How far a file was read.
#[derive(Debug, Clone)]
pub struct FileRow {
    pub position: Position,
    version: i64,
}

/// Some lines of one file, ready to be stored.
#[derive(Debug, Default)]
pub struct Chunk {
    pub entries: Vec<(u64, Entry)>,
    /// Lines of unknown types: where they begin and what they say.
    pub raw: Vec<(u64, Option<String>, String)>,
    pub lines: u64,
    pub malformed: u64,
    pub unknown: u64,
}

impl Chunk {
    pub fn count(&mut self, tally: &Tally) {
        (self.lines, self.malformed, self.unknown) = (tally.lines, tally.malformed, tally.unknown_types);
    }
}

/// What a session is known as while one of its files is read.
#[derive(Debug, Clone)]
pub struct Current {
    pub prompt_id: Option<String>,
    /// Nothing of this time or before is taken: the session was forgotten then.
    pub forgotten_until: Option<i64>,
    pub transcript: Option<String>,
}

impl Current {
    fn takes(&self, entry: &Entry) -> bool {
        self.forgotten_until.is_none_or(|until| entry.at.is_some_and(|at| at > until))
    }

    /// Nothing is stored if the session was forgotten since: the last statement of every transaction, because the ones
    /// before it wait for who is forgetting.
    fn still(&self, session: &str) -> Statement {
        match self.forgotten_until {
            Some(until) => {
                let sql =
                    "UPDATE quell.transcripts_forgotten SET until = $2 WHERE session_id = $1 AND until = $2";
                Statement::new(sql, [session.into(), until.into()]).changing(1)
            }
            None => {
                let sql = "DELETE FROM quell.transcripts_forgotten WHERE session_id = $1";
                Statement::new(sql, [session.into()]).changing(0)
            }
        }
    }
}

impl Archive {
    /// The tables in this store, made if they are not there. Refused on stores without tables.
    pub async fn open(store: Arc<dyn Store>) -> StoreResult<Archive> {
        let kind = store.description().kind;
        let tables = store.tables().ok_or_else(|| {
            let detail = format!(
                "transcripts need tables, and a {kind} store has none; use sqlite:PATH, or postgres://… for a team"
            );
            StoreError::new(ErrorKind::Invalid, detail)
        })?;
        tables.migrate(APPLICATION, migrations(tables.dialect())).await?;
        Ok(Archive { tables })
    }

    /// Keeps hook events, each once, and what they tell of their session: that it exists, where, in which state, and which
    /// prompt it works on.
    pub async fn tell(&self, session: &str, told: &[Told]) -> StoreResult<()> {
        let current = self.current(session).await?;
        // What was forgotten while it was on its way stays forgotten.
        let is_new = |told: &&Told| current.forgotten_until.is_none_or(|until| told.at > until);
        let told: Vec<&Told> = told.iter().filter(is_new).collect();
        let Some(last) = told.iter().map(|told| told.at).max() else { return Ok(()) };
        let first = told.iter().map(|told| told.at).min().unwrap_or(last);
        let mut all = Vec::new();
        let events = told.iter().map(|Told { id, at, event }| {
            let payload = serde_json::Value::Object(event.payload.clone()).to_string();
            vec![
                id.as_str().into(),
                session.into(),
                event.event.as_str().into(),
                (*at).into(),
                event.prompt_id.as_deref().into(),
                without_nul(payload).into(),
            ]
        });
        all.push(Statement::many(
            "INSERT INTO quell.transcripts_event (id, session_id, name, at, prompt_id, payload)
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO NOTHING",
            events.collect(),
        ));
        let latest =
            |find: fn(&HookEvent) -> Option<&str>| told.iter().rev().find_map(|told| find(&told.event));
        let cwd = latest(|event| event.cwd.as_deref());
        let began_in = told.iter().find_map(|told| told.event.cwd.as_deref());
        let status = told.iter().rev().find_map(|told| told.event.status());
        let transcript = latest(|event| event.transcript_path.as_deref());
        all.push(Statement::new(
            "INSERT INTO quell.transcripts_session (id, project, cwd, status, began_at, last_at, transcript)
             VALUES ($1, $2, $3, $4, $5, $6, $7)
             ON CONFLICT (id) DO UPDATE SET
               project = coalesce(transcripts_session.project, excluded.project),
               cwd = coalesce(excluded.cwd, transcripts_session.cwd),
               last_at = CASE WHEN excluded.last_at > transcripts_session.last_at
                         THEN excluded.last_at ELSE transcripts_session.last_at END,
               transcript = coalesce(excluded.transcript, transcripts_session.transcript)",
            [
                session.into(),
                began_in.into(),
                cwd.into(),
                status.unwrap_or(Status::Active).as_str().into(),
                first.into(),
                last.into(),
                transcript.into(),
            ],
        ));
        if let Some(status) = status {
            let sql = "UPDATE quell.transcripts_session SET status = $1 WHERE id = $2";
            all.push(Statement::new(sql, [status.as_str().into(), session.into()]));
        }
        all.extend(prompts(session, &told));
        all.push(current.still(session));
        self.tables.write(all).await.map(|_| ())
    }

    /// What is known of a session.
    pub async fn current(&self, session: &str) -> StoreResult<Current> {
        let sql = "SELECT s.prompt_id, f.until, s.transcript
                   FROM (SELECT $1 AS id) AS wanted
                   LEFT JOIN quell.transcripts_session AS s ON s.id = wanted.id
                   LEFT JOIN quell.transcripts_forgotten AS f ON f.session_id = wanted.id";
        let rows = self.tables.read(Statement::new(sql, [session.into()])).await?;
        let row = rows.first().ok_or_else(|| StoreError::not_found("the session"))?;
        Ok(Current {
            prompt_id: row.maybe_text(0)?,
            forgotten_until: row.maybe_int(1)?,
            transcript: row.maybe_text(2)?,
        })
    }

    /// How far a file was read, if it was.
    pub async fn file(&self, path: &Path) -> StoreResult<Option<FileRow>> {
        let sql = "SELECT position, version FROM quell.transcripts_file WHERE path = $1";
        let rows = self.tables.read(Statement::new(sql, [path_text(path).into()])).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let position = serde_json::from_str(&row.text(0)?).map_err(|e| {
            StoreError::new(ErrorKind::Corrupt, format!("how far a transcript was read is unreadable: {e}"))
        })?;
        Ok(Some(FileRow { position, version: row.int(1)? }))
    }

    /// Stores lines of a file and how far it was read by them, in one transaction. What is `known` is
    /// what [`Archive::file`] said or the last call returned; when somebody else has read on meanwhile, nothing is stored ([`ErrorKind::Conflict`]).
    pub async fn take(&self, read: Read<'_>) -> StoreResult<FileRow> {
        let Read { session, path, known, position, chunk, current, now } = read;
        let name = path_text(path);
        let written = serde_json::to_string(position)
            .map_err(|e| StoreError::new(ErrorKind::Invalid, format!("a position cannot be written: {e}")))?;
        let count = |n: u64| Cell::Int(i64::try_from(n).unwrap_or(i64::MAX));
        let numbers = [count(chunk.lines), count(chunk.malformed), count(chunk.unknown), now.into()];
        let version = known.map_or(1, |known| known.version + 1);
        let mark = match known {
            None => {
                let sql = "INSERT INTO quell.transcripts_file
                             (path, session_id, position, version, lines, malformed, unknown, read_at)
                           VALUES ($1, $2, $3, 1, $4, $5, $6, $7) ON CONFLICT (path) DO NOTHING";
                let values = [name.clone().into(), session.into(), written.into()];
                Statement::new(sql, values.into_iter().chain(numbers))
            }
            Some(known) => {
                let sql = "UPDATE quell.transcripts_file SET position = $3, version = version + 1,
                             lines = lines + $4, malformed = malformed + $5, unknown = unknown + $6, read_at = $7
                           WHERE path = $1 AND version = $2";
                let values = [name.clone().into(), known.version.into(), written.into()];
                Statement::new(sql, values.into_iter().chain(numbers))
            }
        };
        let mut all = vec![mark.changing(1)];
        all.extend(self.lines(session, chunk, current));
        let taken: HashSet<u64> =
            chunk.entries.iter().filter(|entry| current.takes(&entry.1)).map(|(at, _)| *at).collect();
        let raw = chunk.raw.iter().filter(|(at, ..)| taken.contains(at)).map(|(at, kind, line)| {
            let at = Cell::Int(i64::try_from(*at).unwrap_or(i64::MAX));
            vec![name.clone().into(), at, session.into(), kind.as_deref().into(), line.as_str().into()]
        });
        all.push(Statement::many(
            "INSERT INTO quell.transcripts_raw (path, at_byte, session_id, type, line) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (path, at_byte) DO NOTHING",
            raw.collect(),
        ));
        all.push(current.still(session));
        self.tables.write(all).await?;
        Ok(FileRow { position: position.clone(), version })
    }

    /// Stores lines that came without their file, from another host.
    pub async fn take_lines(&self, session: &str, chunk: &Chunk, current: &Current) -> StoreResult<()> {
        let mut all = self.lines(session, chunk, current);
        all.push(current.still(session));
        self.tables.write(all).await.map(|_| ())
    }

    fn lines(&self, session: &str, chunk: &Chunk, current: &Current) -> Vec<Statement> {
        let all = chunk.entries.iter().map(|(_, entry)| entry);
        let entries: Vec<&Entry> = all.filter(|entry| current.takes(entry)).collect();
        let mut all = Vec::new();
        let (first, last) = entries
            .iter()
            .filter_map(|entry| entry.at)
            .fold((i64::MAX, i64::MIN), |(first, last), at| (first.min(at), last.max(at)));
        if first <= last {
            // A session that no hook has told of begins with its first line.
            let began_in = entries.iter().find_map(|entry| entry.cwd.as_deref());
            all.push(Statement::new(
                "INSERT INTO quell.transcripts_session (id, project, cwd, status, began_at, last_at)
                 VALUES ($1, $2, $2, $3, $4, $5)
                 ON CONFLICT (id) DO UPDATE SET
                   project = coalesce(transcripts_session.project, excluded.project),
                   began_at = CASE WHEN excluded.began_at < transcripts_session.began_at
                              THEN excluded.began_at ELSE transcripts_session.began_at END,
                   last_at = CASE WHEN excluded.last_at > transcripts_session.last_at
                             THEN excluded.last_at ELSE transcripts_session.last_at END",
                [session.into(), began_in.into(), Status::Done.as_str().into(), first.into(), last.into()],
            ));
        }
        let messages = entries.iter().filter_map(|entry| message_row(session, entry, current));
        all.push(Statement::many(
            "INSERT INTO quell.transcripts_message (uuid, session_id, parent, role, at, prompt_id, is_prompt, sidechain,
               meta, agent_id, api_id, model, text, thinking, tools, results, failures)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
             ON CONFLICT (uuid) DO NOTHING",
            messages.collect(),
        ));
        // Of the lines of one answer the last counts, so only that one is sent.
        let mut usage: HashMap<&str, Usage> = HashMap::new();
        for entry in &entries {
            if let Some(message) = &entry.message
                && let (Some(id), Some(used)) = (&message.api_id, message.usage)
            {
                usage.insert(id, used);
            }
        }
        let rows = usage.into_iter().map(|(id, used)| {
            vec![
                session.into(),
                id.into(),
                used.input_tokens.into(),
                used.output_tokens.into(),
                used.cache_creation_input_tokens.into(),
                used.cache_read_input_tokens.into(),
            ]
        });
        all.push(Statement::many(
            "INSERT INTO quell.transcripts_usage
               (session_id, api_id, input_tokens, output_tokens, cache_creation_tokens, cache_read_tokens)
             VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (session_id, api_id) DO UPDATE SET
               input_tokens = excluded.input_tokens, output_tokens = excluded.output_tokens,
               cache_creation_tokens = excluded.cache_creation_tokens,
               cache_read_tokens = excluded.cache_read_tokens",
            rows.collect(),
        ));
        let titles = entries.iter().filter_map(|entry| entry.title.as_ref());
        all.extend(best_titles(titles).into_iter().map(|(rank, text)| title(session, rank, text)));
        all
    }

    /// After a pass: counts what the session has, gives it a title if it has none, and fills in the text of a prompt that
    /// came without one. `problem` tells why something could not be read.
    pub async fn finish(&self, session: &str, problem: Option<&str>) -> StoreResult<()> {
        let first = "SELECT text FROM quell.transcripts_message
                     WHERE session_id = $1 AND is_prompt = 1 ORDER BY n LIMIT 1";
        let first = self.tables.read(Statement::new(first, [session.into()])).await?;
        let mut all = Vec::new();
        if let Some(text) = first.first().map(|row| row.text(0)).transpose()? {
            all.push(title(session, FIRST_PROMPT, &short_title(&text)));
        }
        all.push(Statement::new(
            "UPDATE quell.transcripts_prompt SET text =
               (SELECT text FROM quell.transcripts_message
                WHERE session_id = $1 AND is_prompt = 1 ORDER BY n DESC LIMIT 1)
             WHERE session_id = $1 AND text IS NULL
               AND id = (SELECT prompt_id FROM quell.transcripts_session WHERE id = $1)",
            [session.into()],
        ));
        let sum = |column: &str| {
            format!(
                "(SELECT coalesce(sum({column}), 0) FROM quell.transcripts_usage WHERE session_id = $1)::bigint"
            )
        };
        let sql = format!(
            "UPDATE quell.transcripts_session SET problem = $2,
               messages = (SELECT count(*) FROM quell.transcripts_message WHERE session_id = $1),
               prompts = (SELECT count(*) FROM quell.transcripts_message WHERE session_id = $1 AND is_prompt = 1),
               input_tokens = {}, output_tokens = {}, cache_creation_tokens = {}, cache_read_tokens = {}
             WHERE id = $1",
            sum("input_tokens"),
            sum("output_tokens"),
            sum("cache_creation_tokens"),
            sum("cache_read_tokens"),
        );
        let sql = match self.tables.dialect() {
            Dialect::Sqlite => sql.replace("::bigint", ""),
            Dialect::Postgres => sql,
        };
        all.push(Statement::new(sql, [session.into(), problem.into()]));
        self.tables.write(all).await.map(|_| ())
    }

    /// Removes everything that is known of sessions, and remembers that they were forgotten: their files may still be
    /// there, and are not read again. Says how many were known.
    pub async fn forget(&self, sessions: &[String], until: i64) -> StoreResult<u64> {
        let mut gone = 0;
        for some in sessions.chunks(FORGET_STEP) {
            let rows = || some.iter().map(|id| vec![Cell::from(id.as_str())]).collect();
            let mut all =
                vec![Statement::many("DELETE FROM quell.transcripts_session WHERE id = $1", rows())];
            for table in ["event", "prompt", "file", "message", "usage", "raw"] {
                let sql = format!("DELETE FROM quell.transcripts_{table} WHERE session_id = $1");
                all.push(Statement::many(sql, rows()));
            }
            all.push(Statement::many(
                "INSERT INTO quell.transcripts_forgotten (session_id, until) VALUES ($1, $2)
                 ON CONFLICT (session_id) DO UPDATE SET until =
                   CASE WHEN excluded.until > transcripts_forgotten.until
                   THEN excluded.until ELSE transcripts_forgotten.until END",
                some.iter().map(|id| vec![id.as_str().into(), until.into()]).collect(),
            ));
            let changed = self.tables.write(all).await?;
            gone += changed.first().copied().unwrap_or(0);
        }
        Ok(gone)
    }
}

/// The rank of a title that was made of the first prompt: any other is better.
const FIRST_PROMPT: i64 = 1;

fn rank(rank: TitleRank) -> i64 {
    match rank {
        TitleRank::Summary => 2,
        TitleRank::LastPrompt => 3,
        TitleRank::Ai => 4,
        TitleRank::Custom => 5,
    }
}

/// The last of each rank; a better rank follows, so that it wins.
fn best_titles<'a>(titles: impl Iterator<Item = &'a Title>) -> BTreeMap<i64, &'a str> {
    titles.map(|title| (rank(title.rank), title.text.as_str())).collect()
}

fn title(session: &str, rank: i64, text: &str) -> Statement {
    let sql = "UPDATE quell.transcripts_session SET title = $2, title_rank = $3
               WHERE id = $1 AND title_rank <= $3";
    Statement::new(sql, [session.into(), text.into(), rank.into()])
}

/// One line of a prompt.
fn short_title(text: &str) -> String {
    const CHARS: usize = 100;
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    match line.char_indices().nth(CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// The prompts that hook events tell of, and which is the latest.
fn prompts(session: &str, told: &[&Told]) -> Vec<Statement> {
    let mut rows = Vec::new();
    let mut latest = None;
    for Told { id, at, event } in told {
        let text = event.prompt();
        // An agent that does not number its prompts has one at each submission.
        let prompt = match (&event.prompt_id, text) {
            (Some(prompt), _) => prompt.as_str(),
            (None, Some(_)) => id.as_str(),
            (None, None) => continue,
        };
        let text = text.map(|text| without_nul(text.to_owned()));
        rows.push(vec![prompt.into(), session.into(), (*at).into(), text.into()]);
        latest = Some(prompt);
    }
    let mut all = vec![Statement::many(
        "INSERT INTO quell.transcripts_prompt (id, session_id, at, text) VALUES ($1, $2, $3, $4)
         ON CONFLICT (id) DO UPDATE SET text = coalesce(transcripts_prompt.text, excluded.text)",
        rows,
    )];
    if let Some(latest) = latest {
        let sql = "UPDATE quell.transcripts_session SET prompt_id = $1 WHERE id = $2";
        all.push(Statement::new(sql, [latest.into(), session.into()]));
    }
    all
}

fn message_row(session: &str, entry: &Entry, current: &Current) -> Option<Vec<Cell>> {
    let (uuid, message) = (entry.uuid.as_deref()?, entry.message.as_ref()?);
    debug_assert!(matches!(entry.kind, Kind::User | Kind::Assistant));
    let tools: Vec<String> =
        message.tools.iter().map(|tool| format!("{}: {}", tool.name, tool.summary)).collect();
    let failures = message.results.iter().filter(|result| result.is_error).count();
    let count = |n: usize| Cell::Int(i64::try_from(n).unwrap_or(i64::MAX));
    Some(vec![
        uuid.into(),
        session.into(),
        entry.parent_uuid.as_deref().into(),
        match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
        }
        .into(),
        entry.at.into(),
        current.prompt_id.as_deref().into(),
        message.is_prompt.into(),
        entry.sidechain.into(),
        entry.meta.into(),
        entry.agent_id.as_deref().into(),
        message.api_id.as_deref().into(),
        message.model.as_deref().into(),
        message.text.as_str().into(),
        message.thinking.as_str().into(),
        tools.join("\n").into(),
        count(message.results.len()),
        count(failures),
    ])
}

/// PostgreSQL's texts cannot hold it.
fn without_nul(text: String) -> String {
    if text.contains('\0') || text.contains("\\u0000") {
        return text.replace('\0', "\u{fffd}").replace("\\u0000", "\\ufffd");
    }
    text
}

pub(crate) fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
