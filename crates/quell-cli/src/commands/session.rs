//! `quell session`: one conversation, to be read.

use clap::Args;
use owo_colors::OwoColorize;
use quell::quell_core::clock::Timestamp;
use quell_transcripts::archive::Archive;
use quell_transcripts::reading::{Message, PAGE_MAX, Session};
use serde_json::json;

use crate::args::Global;
use crate::commands::sessions;
use crate::context;
use crate::failure::Failure;
use crate::output::{self, Facts};
use crate::times;

#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    /// The id of a session, or how it begins
    #[arg(value_name = "ID")]
    id: String,
    /// One JSON value: the session, its messages and its hook events
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// As Markdown
    #[arg(long)]
    markdown: bool,
    /// Also what the model thought
    #[arg(long)]
    thinking: bool,
    /// Also what was said to and by subagents
    #[arg(long)]
    subagents: bool,
}

pub(crate) async fn run(args: &SessionArgs, global: &Global) -> Result<u8, Failure> {
    let (_, engine, archive) = sessions::opened(global).await?;
    let session = sessions::named(&archive, &args.id).await?;
    if args.json {
        return as_json(&archive, &session).await;
    }
    let now = context::now(&engine).await?;
    match args.markdown {
        true => output::text(markdown_head(&session))?,
        false => head(&session, now)?,
    }
    let mut after = None;
    loop {
        let page = archive.messages(&session.id, after, PAGE_MAX).await?;
        let Some(last) = page.last() else { return Ok(0) };
        after = Some(last.n);
        for message in page.iter().filter(|message| is_shown(message, args)) {
            output::text(match args.markdown {
                true => markdown(message, args),
                false => plain(message, args, now),
            })?;
        }
    }
}

fn is_shown(message: &Message, args: &SessionArgs) -> bool {
    let says = !message.text.is_empty()
        || !message.tools.is_empty()
        || args.thinking && !message.thinking.is_empty();
    says && !message.meta && (args.subagents || !message.sidechain)
}

fn head(session: &Session, now: Timestamp) -> std::io::Result<()> {
    output::line(format!(
        "{}",
        times::one_line(session.title.as_deref().unwrap_or("(no title)"), 200).bold()
    ))?;
    let mut facts = Facts::default();
    facts.add("session", times::one_line(&session.id, 200));
    facts.add_some("project", session.project.as_deref().map(|path| times::one_line(path, 400)));
    facts.add("status", &session.status);
    facts.add("began", times::full(Timestamp::from_millis(session.began_at), now));
    facts.add("last activity", times::full(Timestamp::from_millis(session.last_at), now));
    facts.add("messages", format!("{}, of them {} prompts", session.messages, session.prompts));
    let tokens = &session.tokens;
    facts.add(
        "tokens",
        format!(
            "{} in, {} out, {} written to the cache, {} read from it",
            tokens.input, tokens.output, tokens.cache_creation, tokens.cache_read
        ),
    );
    facts.add_some("problem", session.problem.as_deref().map(|text| times::one_line(text, 400)));
    facts.write()?;
    output::line("")
}

fn plain(message: &Message, args: &SessionArgs, now: Timestamp) -> String {
    let at = message.at.map(|at| times::clock_face(Timestamp::from_millis(at), now)).unwrap_or_default();
    let who = match (message.role.as_str(), message.sidechain) {
        ("user", false) => "you".green().bold().to_string(),
        ("user", true) => "to subagent".green().to_string(),
        (_, false) => "agent".cyan().bold().to_string(),
        (_, true) => "subagent".cyan().to_string(),
    };
    let mut text = format!("{who} {}\n", at.dimmed());
    if args.thinking && !message.thinking.is_empty() {
        text.push_str(&indented(&times::safe(&message.thinking), "  ~ "));
    }
    if !message.text.is_empty() {
        text.push_str(&indented(&times::safe(&message.text), "  "));
    }
    for tool in &message.tools {
        text.push_str(&format!("  {} {}\n", "→".dimmed(), times::one_line(tool, 300).dimmed()));
    }
    text.push('\n');
    text
}

fn indented(text: &str, with: &str) -> String {
    text.lines().map(|line| format!("{with}{line}\n")).collect()
}

fn markdown_head(session: &Session) -> String {
    let mut text = format!("# {}\n\n", times::one_line(session.title.as_deref().unwrap_or("Session"), 200));
    text.push_str(&format!("- session: `{}`\n", times::one_line(&session.id, 200)));
    if let Some(project) = &session.project {
        text.push_str(&format!("- project: `{}`\n", times::one_line(project, 400)));
    }
    text.push_str(&format!(
        "- {} to {}\n\n",
        Timestamp::from_millis(session.began_at),
        Timestamp::from_millis(session.last_at)
    ));
    text
}

fn markdown(message: &Message, args: &SessionArgs) -> String {
    let who = match (message.role.as_str(), message.sidechain) {
        ("user", false) => "You",
        ("user", true) => "To a subagent",
        (_, false) => "Agent",
        (_, true) => "Subagent",
    };
    let at = message.at.map(|at| format!(" · {}", Timestamp::from_millis(at))).unwrap_or_default();
    let mut text = format!("## {who}{at}\n\n");
    if args.thinking && !message.thinking.is_empty() {
        text.push_str(&indented(&times::safe(&message.thinking), "> "));
        text.push('\n');
    }
    if !message.text.is_empty() {
        text.push_str(&times::safe(&message.text));
        text.push_str("\n\n");
    }
    for tool in &message.tools {
        text.push_str(&format!("- `{}`\n", times::one_line(tool, 300).replace('`', "'")));
    }
    if !message.tools.is_empty() {
        text.push('\n');
    }
    text
}

/// Everything; written piece by piece, because a session may have tens of thousands of messages.
async fn as_json(archive: &Archive, session: &Session) -> Result<u8, Failure> {
    let events = archive.hook_events(&session.id, PAGE_MAX).await?;
    output::text(format!(
        "{{\"session\":{},\"hook_events\":{},\"messages\":[",
        json!(session),
        json!(events)
    ))?;
    let (mut after, mut first) = (None, true);
    loop {
        let page = archive.messages(&session.id, after, PAGE_MAX).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.n);
        for message in &page {
            let text = serde_json::to_string(message).map_err(std::io::Error::other)?;
            output::text(format!("{}{text}", if first { "" } else { "," }))?;
            first = false;
        }
    }
    output::line("]}")?;
    Ok(0)
}
