//! `quell chat`: conversations with customers, and what a person does with them.

use clap::{Args, Subcommand};
use owo_colors::OwoColorize;
use quell::config::Flags;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::Tenant;
use quell_chat::book::{self, Conversation, Entry, Place, Role, Voice, Wanted};
use quell_chat::desk::{self, Desk, DeskError};
use quell_chat::join::words;
use quell_chat::live::Live;
use quell_chat::message::Message;
use serde_json::json;

use crate::args::{ByHand, Form, Global};
use crate::confirm::confirm;
use crate::context::{self, Loaded, actor};
use crate::failure::{self, Failure};
use crate::output::{self, Columns, Facts, cell};
use crate::times;

const PREVIEW_CHARS: usize = 50;
const NAME_CHARS: usize = 24;
/// Entries that `show` shows unless asked for more.
const ENTRIES_DEFAULT: u16 = 50;

#[derive(Debug, Args)]
#[command(after_help = "\
CUSTOMER is the number, or the key as `quell chat list` shows it.

Examples:
  quell chat list --human                      conversations that wait for a person
  quell chat show 12025550110
  quell chat takeover 12025550110              from now on a person answers
  quell chat say 12025550110 'I am here.'
  quell chat resume 12025550110                the bot answers again
  quell chat forget 12025550110                removes everything that was said, for good")]
pub(crate) struct ChatArgs {
    #[command(subcommand)]
    command: ChatCommand,
}

#[derive(Debug, Subcommand)]
enum ChatCommand {
    /// Conversations, those with the latest message first
    List(ListArgs),
    /// One conversation, to be read, and what waits in it
    Show(ShowArgs),
    /// Answer nothing until `resume`; what the customer writes is stored
    Pause(WhoArgs),
    /// Let the bot answer again, after a pause or a take-over
    Resume(WhoArgs),
    /// A person answers from now on; what the customer writes is kept in the conversation
    Takeover(WhoArgs),
    /// Say something to the customer
    Say(SayArgs),
    /// Remove everything that was said, everywhere, for good
    Forget(ForgetArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Only those that wait for a person or were taken over
    #[arg(long)]
    human: bool,
    /// Only of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Rows at the most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
struct Who {
    /// The customer's number, or the key of the conversation
    #[arg(value_name = "CUSTOMER")]
    customer: String,
    /// Only of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
}

#[derive(Debug, Args)]
struct ShowArgs {
    #[command(flatten)]
    who: Who,
    /// The last entries, this many
    #[arg(long, value_name = "N", default_value_t = ENTRIES_DEFAULT, value_parser = clap::value_parser!(u16).range(1..=2000))]
    limit: u16,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
struct WhoArgs {
    #[command(flatten)]
    who: Who,
    #[command(flatten)]
    by: ByHand,
}

#[derive(Debug, Args)]
struct SayArgs {
    #[command(flatten)]
    who: Who,
    /// What is said, in one message
    #[arg(value_name = "TEXT")]
    text: String,
    #[command(flatten)]
    by: ByHand,
}

#[derive(Debug, Args)]
struct ForgetArgs {
    #[command(flatten)]
    who: Who,
    /// Without asking
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    by: ByHand,
}

pub(crate) async fn run(args: ChatArgs, global: &Global) -> Result<u8, Failure> {
    let (loaded, desk) = open(global).await?;
    match args.command {
        ChatCommand::List(args) => list(&desk, &args).await,
        ChatCommand::Show(args) => show(&desk, &args).await,
        ChatCommand::Pause(args) => {
            let place = named(&desk, &args.who).await?.place();
            let changed = desk.pause(&place, &actor(&args.by)).await?;
            done(if changed {
                "paused: nothing is answered before `quell chat resume`"
            } else {
                "it was paused already"
            })
        }
        ChatCommand::Resume(args) => {
            let place = named(&desk, &args.who).await?.place();
            desk.resume(&place, &actor(&args.by)).await?;
            done("the bot answers again")
        }
        ChatCommand::Takeover(args) => {
            let place = named(&desk, &args.who).await?.place();
            desk.take_over(&place, &actor(&args.by)).await?;
            done("taken over: the bot says nothing before `quell chat resume`; `quell chat say` answers")
        }
        ChatCommand::Say(args) => say(&loaded, &desk, args).await,
        ChatCommand::Forget(args) => forget(&desk, args).await,
    }
}

async fn open(global: &Global) -> Result<(Loaded, Desk), Failure> {
    let loaded = context::load(global, Flags::default())?;
    context::must_exist(&loaded.settings)?;
    let engine = context::open_now(&loaded).await?;
    let book = book::open(engine.store().clone()).await?;
    Ok((loaded, Desk { engine, book }))
}

fn done(text: &str) -> Result<u8, Failure> {
    output::line(text)?;
    Ok(0)
}

/// The one conversation that is meant.
async fn named(desk: &Desk, who: &Who) -> Result<Conversation, Failure> {
    let tenant = context::tenant_of(who.tenant.as_deref())?;
    let mut found = desk::meant(desk, tenant.as_ref(), &who.customer).await?;
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => {
            Err(Failure::new(failure::NOT_FOUND, format!("there is no conversation with {:?}", who.customer))
                .help("`quell chat list` shows them; a key such as wati:12025550110 names one exactly"))
        }
        n => {
            let places: Vec<String> = found.iter().map(|one| one.place().to_string()).collect();
            let text = format!("{n} conversations with {:?}: {}", who.customer, places.join(", "));
            Err(Failure::new(failure::USAGE, text).help("name the key, and --tenant"))
        }
    }
}

async fn list(desk: &Desk, args: &ListArgs) -> Result<u8, Failure> {
    let wanted = Wanted {
        tenant: context::tenant_of(args.tenant.as_deref())?,
        state: args.human.then_some(Voice::Human),
        customer: None,
        limit: usize::from(args.limit),
    };
    let conversations = desk.book.list(&wanted).await?;
    if args.form.json {
        output::json(&json!({ "items": conversations }))?;
        return Ok(0);
    }
    if conversations.is_empty() {
        output::say("no conversation yet");
        return Ok(0);
    }
    let now = context::now(&desk.engine).await?;
    let mut table = Columns::new(&["KEY", "TENANT", "NAME", "ANSWERS", "LAST", "SAID"]);
    for one in &conversations {
        table.row([
            cell(times::one_line(&one.key, 60)),
            cell(if one.tenant.is_none() { "-" } else { one.tenant.as_str() }),
            cell(times::one_line(one.name.as_deref().unwrap_or("-"), NAME_CHARS)),
            cell(one.state.as_str()),
            cell(times::short(one.last_at, now)),
            cell(times::one_line(&one.preview, PREVIEW_CHARS)),
        ]);
    }
    table.write()?;
    Ok(0)
}

async fn show(desk: &Desk, args: &ShowArgs) -> Result<u8, Failure> {
    let conversation = named(desk, &args.who).await?;
    let place = conversation.place();
    let entries = desk.book.entries(&place, usize::from(args.limit)).await?;
    let lane = desk.lane(&place).await?;
    let waiting: Vec<(Timestamp, Message)> = lane
        .iter()
        .flat_map(|lane| &lane.events)
        .filter_map(|event| Some((event.received_at, serde_json::from_str(event.payload.as_str()).ok()?)))
        .collect();
    if args.form.json {
        let waiting: Vec<_> =
            waiting.iter().map(|(at, message)| json!({ "at": at, "message": message })).collect();
        let why = lane.as_ref().map(|lane| &lane.row.why);
        output::json(&json!({
            "conversation": conversation, "entries": entries, "waiting": waiting, "why": why,
        }))?;
        return Ok(0);
    }
    let now = context::now(&desk.engine).await?;
    head(&conversation, now)?;
    for entry in &entries {
        output::text(said(entry, now))?;
    }
    if let Some(lane) = &lane
        && (lane.row.buffered > 0 || lane.row.in_flight > 0)
    {
        output::line(format!("\n{} {}", "waits:".bold(), lane.row.why))?;
        for (at, message) in &waiting {
            output::line(format!(
                "  {} {}",
                times::short(*at, now).dimmed(),
                times::one_line(&words(message), 200)
            ))?;
        }
    }
    Ok(0)
}

fn head(conversation: &Conversation, now: Timestamp) -> std::io::Result<()> {
    let title = conversation.name.as_deref().unwrap_or(&conversation.customer);
    output::line(format!("{}", times::one_line(title, 200).bold()))?;
    let mut facts = Facts::default();
    facts.add("conversation", times::one_line(&conversation.place().to_string(), 200));
    facts.add("customer", times::one_line(&conversation.customer, 100));
    facts.add("answered by", conversation.state.as_str());
    facts.add_some("because", conversation.reason.as_deref().map(|reason| times::one_line(reason, 300)));
    facts.add("first message", times::full(conversation.first_at, now));
    facts.add("last message", times::full(conversation.last_at, now));
    facts.write()
}

fn said(entry: &Entry, now: Timestamp) -> String {
    let who = match entry.role {
        Role::Customer => "customer".cyan().to_string(),
        Role::Bot => "bot".green().to_string(),
        Role::Human => entry.about.by.as_deref().unwrap_or("human").yellow().to_string(),
        Role::Note => "note".dimmed().to_string(),
    };
    let delivery = match entry.about.delivery.as_deref() {
        Some("unknown") => format!(" {}", "(unknown whether it was sent)".red()),
        Some(other) if other != "sent" => format!(" ({other})"),
        _ => String::new(),
    };
    let lines: Vec<String> =
        entry.text.lines().map(|line| format!("  {}", times::one_line(line, 4_000))).collect();
    format!("\n{who} {}{delivery}\n{}\n", times::short(entry.at, now).dimmed(), lines.join("\n"))
}

async fn say(loaded: &Loaded, desk: &Desk, args: SayArgs) -> Result<u8, Failure> {
    let Some(chat) = &loaded.settings.chat else {
        return Err(Failure::new(
            failure::USAGE,
            "there is no [chat] in the configuration, so nobody knows the account",
        )
        .help("run it in the folder of quell.toml, or name it with --config"));
    };
    let place = named(desk, &args.who).await?.place();
    let live = Live::load(chat, &loaded.env).map_err(|problem| Failure::new(failure::USAGE, problem))?;
    let http = quell_chat::client(&loaded.settings)
        .map_err(|error| Failure::new(failure::FAILED, error.to_string()))?;
    desk.say(&live, &http, &place, &args.text, &actor(&args.by)).await?;
    done("sent")
}

async fn forget(desk: &Desk, args: ForgetArgs) -> Result<u8, Failure> {
    let conversation = match named(desk, &args.who).await {
        Ok(found) => found.place(),
        // Named exactly, it may be gone from the book and still be in dead letters.
        Err(error) => match quell_chat::message::parts(&args.who.customer) {
            Some(_) => {
                let tenant = context::tenant_of(args.who.tenant.as_deref())?.unwrap_or_else(Tenant::none);
                Place { tenant, key: args.who.customer.clone() }
            }
            None => return Err(error),
        },
    };
    confirm(&format!("remove everything said in {conversation}"), args.yes)?;
    let entries = desk.forget(&conversation, &actor(&args.by)).await?;
    let what = if entries == 1 { "entry" } else { "entries" };
    output::line(format!("forgotten: {entries} {what}"))?;
    Ok(0)
}

impl From<DeskError> for Failure {
    fn from(error: DeskError) -> Self {
        let text = error.to_string();
        match error {
            DeskError::Unknown(_) => Failure::new(failure::NOT_FOUND, text),
            DeskError::Invalid(_) => Failure::new(failure::USAGE, text),
            DeskError::NotSent(_) => Failure::new(failure::FAILED, text),
            DeskError::Unsure(_) => Failure::new(failure::NOT_YET, text).help(
                "look at the customer's side before you say it again; the conversation shows it as unknown",
            ),
            DeskError::Busy => Failure::new(failure::NOT_YET, text),
            DeskError::Engine(error) => error.into(),
        }
    }
}
