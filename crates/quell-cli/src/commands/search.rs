//! `quell search`: words in everything that was said.

use std::time::Duration;

use clap::Args;
use owo_colors::OwoColorize;
use quell::config::DurationText;
use quell::quell_core::clock::Timestamp;
use quell_transcripts::reading::{FOUND, Hit, Search};
use serde_json::json;

use crate::args::{Form, Global};
use crate::commands::sessions;
use crate::context;
use crate::failure::Failure;
use crate::output;
use crate::times;

#[derive(Debug, Args)]
#[command(after_help = "\
All words must be there; \"a phrase\" stands together, OR is between alternatives, -word must not be there (in quotation
marks with the others, or after --: otherwise it is taken for an option).

Examples:
  quell search rate limit
  quell search '\"rate limit\" -test' --project coin-shop --since 7d
  quell search backoff OR jitter --role assistant --json")]
pub(crate) struct SearchArgs {
    /// What is looked for
    #[arg(value_name = "WORDS", required = true)]
    words: Vec<String>,
    /// Only in sessions whose project folder contains this
    #[arg(long, value_name = "PATH")]
    project: Option<String>,
    /// Only what this side said
    #[arg(long, value_name = "ROLE", value_parser = ["user", "assistant"])]
    role: Option<String>,
    /// Only in this session
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Only what was said in this time, such as 2d
    #[arg(long, value_name = "DURATION", value_parser = DurationText::parse)]
    since: Option<Duration>,
    /// Only what was said longer ago than this
    #[arg(long, value_name = "DURATION", value_parser = DurationText::parse)]
    until: Option<Duration>,
    /// Hits at the most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    #[command(flatten)]
    form: Form,
}

pub(crate) async fn run(args: &SearchArgs, global: &Global) -> Result<u8, Failure> {
    let (_, engine, archive) = sessions::opened(global).await?;
    let now = context::now(&engine).await?;
    let session = match &args.session {
        Some(id) => Some(sessions::named(&archive, id).await?.id),
        None => None,
    };
    let ago = |age: Option<Duration>| age.map(|age| now.before(age).as_millis());
    let search = Search {
        words: args.words.join(" "),
        project: args.project.clone(),
        role: args.role.clone(),
        session,
        since: ago(args.since),
        until: ago(args.until),
        limit: u32::from(args.limit),
    };
    let hits = archive.search(&search).await?;
    if args.form.json {
        output::json(&json!({ "items": hits.iter().map(for_programs).collect::<Vec<_>>() }))?;
        return Ok(0);
    }
    for hit in &hits {
        let at = hit.at.map(|at| times::short(Timestamp::from_millis(at), now)).unwrap_or_default();
        let title = times::one_line(hit.title.as_deref().unwrap_or("-"), 80);
        let id = sessions::short_id(&hit.session_id);
        output::line(format!("{} {} {} {}", id.yellow(), title.bold(), hit.role.dimmed(), at.dimmed()))?;
        output::line(format!("  {}", marked(&hit.snippet)))?;
    }
    if hits.is_empty() {
        output::say("nothing was found");
    } else {
        output::say("`quell session ID` shows the conversation");
    }
    Ok(0)
}

/// The words that were found stand out, and nothing else steers the terminal.
fn marked(snippet: &str) -> String {
    let (open, close) = FOUND;
    let mut text = String::new();
    let mut rest = snippet;
    while let Some((before, after)) = rest.split_once(open) {
        let (found, after) = after.split_once(close).unwrap_or((after, ""));
        text.push_str(&flat(before));
        text.push_str(&flat(found).red().bold().to_string());
        rest = after;
    }
    text + &flat(rest)
}

fn flat(text: &str) -> String {
    let mut flat = String::new();
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => flat.push(' '),
            c if c.is_control() => {}
            c => flat.push(c),
        }
    }
    flat
}

/// With the marks as programs expect them.
fn for_programs(hit: &Hit) -> serde_json::Value {
    let (open, close) = FOUND;
    let mut value = json!(hit);
    value["snippet"] = hit.snippet.replace(open, "«").replace(close, "»").into();
    value
}
