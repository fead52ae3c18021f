//! `quell sessions`: what was captured of coding agents; also takes in what is there already, and forgets.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use quell::Engine;
use quell::config::DurationText;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::{Key, LaneKey};
use quell::quell_core::inspect::Page;
use quell_transcripts::archive::Archive;
use quell_transcripts::hook::bring_in;
use quell_transcripts::reading::{Named, Session, SessionFilter};

use crate::args::{ByHand, Form, Global, Paging};
use crate::commands::hook::work;
use crate::confirm::confirm;
use crate::context::{self, actor};
use crate::failure::{self, Failure};
use crate::output::{self, Columns, cell};
use crate::transcripts::{self, Place};
use crate::{progress, times};

const TITLE_CHARS: usize = 60;
const PROJECT_CHARS: usize = 40;
/// Characters of an id that tell sessions apart in a table; `quell session` takes them.
const ID_CHARS: usize = 8;
/// Files of one import, and folders within one another.
const IMPORT_FILES_MAX: usize = 100_000;
const IMPORT_DEPTH_MAX: usize = 8;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    command: Option<SessionsCommand>,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    form: Form,
}

/// Which sessions.
#[derive(Debug, Default, Args)]
struct Which {
    /// Only those whose project folder contains this
    #[arg(long, value_name = "PATH")]
    project: Option<String>,
    /// Only those in this state: started, active, permission_needed, idle, done, ended
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// Only those that did something in this time, such as 2d
    #[arg(long, value_name = "DURATION", value_parser = DurationText::parse)]
    since: Option<Duration>,
}

#[derive(Debug, Subcommand)]
enum SessionsCommand {
    /// Take in transcripts that are there already
    Import(ImportArgs),
    /// Remove sessions and everything said in them, for good
    Forget(ForgetArgs),
}

#[derive(Debug, Args)]
struct ImportArgs {
    /// A folder with transcripts (*.jsonl), or one of them; such as ~/.claude/projects
    #[arg(value_name = "DIR")]
    from: PathBuf,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
struct ForgetArgs {
    /// Ids of sessions, or how they begin
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// All whose project folder contains this
    #[arg(long, value_name = "PATH")]
    project: Option<String>,
    /// All that have done nothing for this long, such as 90d
    #[arg(long, value_name = "DURATION", value_parser = DurationText::parse)]
    older_than: Option<Duration>,
    /// Without asking
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    by: ByHand,
}

pub(crate) async fn run(args: SessionsArgs, global: &Global) -> Result<u8, Failure> {
    match args.command {
        Some(SessionsCommand::Import(wish)) => import(&wish, global).await,
        Some(SessionsCommand::Forget(wish)) => forget(wish, global).await,
        None => list(&args.which, &args.paging, args.form, global).await,
    }
}

async fn list(which: &Which, paging: &Paging, form: Form, global: &Global) -> Result<u8, Failure> {
    let (_, engine, archive) = opened(global).await?;
    let now = context::now(&engine).await?;
    let filter = SessionFilter {
        project: which.project.clone(),
        status: which.status.clone(),
        since: which.since.map(|since| now.before(since).as_millis()),
        before: None,
        after: paging.cursor.as_deref().map(cursor).transpose()?,
        limit: u32::from(paging.limit),
    };
    let sessions = archive.sessions(&filter).await?;
    let full = sessions.len() == usize::from(paging.limit);
    let next = sessions.last().filter(|_| full).map(|last| format!("{}:{}", last.last_at, last.id));
    let page = Page { items: sessions, next };
    if form.json {
        output::json(&page)?;
        return Ok(0);
    }
    let mut table =
        Columns::new(&["ID", "PROJECT", "TITLE", "STATUS", "LAST ACTIVITY", "MESSAGES", "TOKENS IN", "OUT"])
            .right(5)
            .right(6)
            .right(7);
    for session in &page.items {
        table.row([
            cell(short_id(&session.id)),
            cell(shown_project(session)),
            cell(times::one_line(session.title.as_deref().unwrap_or("-"), TITLE_CHARS)),
            cell(&session.status),
            cell(times::short(Timestamp::from_millis(session.last_at), now)),
            cell(session.messages),
            cell(session.tokens.input + session.tokens.cache_creation + session.tokens.cache_read),
            cell(session.tokens.output),
        ]);
    }
    table.write()?;
    output::page_end(&page, "sessions");
    Ok(0)
}

/// Opens what was captured, and sees that somebody works if something waits: a worker that was killed together with the
/// process that looked after it is made up for.
pub(crate) async fn opened(global: &Global) -> Result<(crate::context::Loaded, Engine, Archive), Failure> {
    let (loaded, engine, archive) = transcripts::open(global).await?;
    if let Ok(place) = Place::of(&loaded.settings, None, &loaded.env) {
        work::see_to_what_waits(&engine, &place, global).await;
    }
    Ok((loaded, engine, archive))
}

fn cursor(text: &str) -> Result<(i64, String), Failure> {
    let parts = text.split_once(':').and_then(|(at, id)| Some((at.parse().ok()?, id.to_owned())));
    parts
        .ok_or_else(|| Failure::new(failure::USAGE, format!("--cursor {text:?} is not from an earlier page")))
}

pub(crate) fn short_id(id: &str) -> String {
    times::one_line(&id.chars().take(ID_CHARS).collect::<String>(), ID_CHARS)
}

pub(crate) fn shown_project(session: &Session) -> String {
    let project = session.project.as_deref().unwrap_or("-");
    let home = std::env::var("HOME").unwrap_or_default();
    let project = match project.strip_prefix(&home).filter(|_| !home.is_empty()) {
        Some(rest) => format!("~{rest}"),
        None => project.to_owned(),
    };
    times::one_line(&project, PROJECT_CHARS)
}

/// The one session that is meant.
pub(crate) async fn named(archive: &Archive, id: &str) -> Result<Session, Failure> {
    match archive.session(id).await? {
        Named::One(session) => Ok(*session),
        Named::None => Err(Failure::new(failure::NOT_FOUND, format!("there is no session {id}"))
            .help("`quell sessions` lists them")),
        Named::Several(ids) => {
            let text = format!("several sessions begin with {id}: {}", ids.join(", "));
            Err(Failure::new(failure::USAGE, text).help("write more of the id"))
        }
    }
}

async fn import(args: &ImportArgs, global: &Global) -> Result<u8, Failure> {
    let from = std::fs::canonicalize(&args.from)
        .map_err(|e| Failure::new(failure::NOT_FOUND, format!("{}: {e}", args.from.display())))?;
    let loaded = transcripts::load(global)?;
    if let quell::config::StoreKind::Sqlite(path) = loaded.settings.store.url.kind()
        && let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty())
    {
        transcripts::make_folder(folder)?;
    }
    let engine = context::open_now(&loaded).await?;
    let archive = Archive::open(engine.store().clone()).await?;
    let files = transcripts_below(&from);
    let total = files.iter().map(|(_, bytes)| bytes).sum();
    let below = if from.is_dir() { from.clone() } else { from.parent().unwrap_or(&from).to_path_buf() };
    let ingest = transcripts::wishes(&loaded)?.below(vec![below]).ingest(archive);
    let now = context::now(&engine).await?.as_millis();
    let bar = progress::bytes(Some(total));
    let (mut sessions, mut lines, mut refused) = (std::collections::BTreeSet::new(), 0, Vec::new());
    let (mut bytes, mut malformed) = (0, 0);
    for (path, size) in &files {
        let done = ingest.import(path, now).await?;
        match done.refused {
            Some(why) => refused.push((path, why)),
            None => sessions.extend(done.session),
        }
        lines += done.passed.lines;
        bytes += done.passed.bytes;
        malformed += done.passed.malformed;
        bar.inc(*size);
    }
    bar.finish_and_clear();
    if args.form.json {
        let refused: Vec<_> =
            refused.iter().map(|(path, why)| serde_json::json!({ "path": path, "why": why })).collect();
        output::json(&serde_json::json!({
            "files": files.len(), "sessions": sessions.len(), "lines": lines, "bytes": bytes,
            "malformed": malformed, "refused": refused,
        }))?;
        return Ok(0);
    }
    for (path, why) in &refused {
        output::say(format!("not read: {}: {why}", path.display()));
    }
    let count = |n: usize, what: &str| times::count(u64::try_from(n).unwrap_or(u64::MAX), what);
    output::line(format!(
        "{} in {}: {} new, {} not understood",
        count(sessions.len(), "session"),
        count(files.len(), "transcript"),
        times::count(lines, "line"),
        malformed,
    ))?;
    Ok(0)
}

/// Transcripts below a folder with their sizes, main ones before those of subagents, symbolic links left out.
fn transcripts_below(from: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    let mut folders = vec![(from.to_path_buf(), 0)];
    if from.is_file() {
        folders.clear();
        found.push((from.to_path_buf(), from.metadata().map_or(0, |facts| facts.len())));
    }
    while let Some((folder, depth)) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let (Ok(kind), path) = (entry.file_type(), entry.path()) else { continue };
            if kind.is_dir() && depth < IMPORT_DEPTH_MAX {
                folders.push((path, depth + 1));
            } else if kind.is_file()
                && path.extension().is_some_and(|extension| extension == "jsonl")
                && found.len() < IMPORT_FILES_MAX
            {
                found.push((path, entry.metadata().map_or(0, |facts| facts.len())));
            }
        }
    }
    found.sort_by_key(|(path, _)| (path.components().count(), path.clone()));
    found
}

async fn forget(args: ForgetArgs, global: &Global) -> Result<u8, Failure> {
    let (loaded, engine, archive) = opened(global).await?;
    if let Ok(place) = Place::of(&loaded.settings, None, &loaded.env)
        && place.target == transcripts::Target::Here
    {
        // What was said before counts as said before, wherever it lies.
        bring_in(&engine, &place.database).await?;
    }
    let now = context::now(&engine).await?;
    let mut ids = Vec::new();
    for id in &args.ids {
        ids.push(named(&archive, id).await?.id);
    }
    if args.project.is_some() || args.older_than.is_some() {
        let filter = SessionFilter {
            project: args.project.clone(),
            before: args.older_than.map(|age| now.before(age).as_millis()),
            ..SessionFilter::default()
        };
        ids.extend(archive.session_ids(&filter).await?);
    } else if ids.is_empty() {
        return Err(Failure::new(failure::USAGE, "nothing says which sessions")
            .help("name them, or use --project or --older-than"));
    }
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() {
        output::say("no such session");
        return Ok(0);
    }
    let what = times::count(u64::try_from(ids.len()).unwrap_or(u64::MAX), "session");
    confirm(&format!("forget {what} and everything said in them"), args.yes)?;
    let actor = actor(&args.by);
    archive.forget(&ids, now.as_millis()).await?;
    // The events that told of them hold prompts, too. On SQLite this also overwrites what was removed.
    for id in &ids {
        let lane = LaneKey::new(transcripts::queue(), Key::new(id)?);
        match engine.erase_lane(lane, &actor).await {
            Ok(_) => {}
            Err(error) if error.kind == quell::quell_core::error::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    output::line(format!("{what} forgotten; the agent's own files are not touched"))?;
    Ok(0)
}
