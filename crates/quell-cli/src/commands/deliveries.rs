//! `quell deliveries`: what webhooks have brought, why it was refused, and taking it in again. From the store itself: what any
//! server of it has received is here.

use clap::{Args, Subcommand};
use quell::config::Flags;
use quell::deliveries::{DeliveryRecord, DeliveryVerdict};
use quell::quell_core::clock::Timestamp;
use quell::{Engine, endpoints};

use crate::args::{ByHand, Form, Global};
use crate::context;
use crate::failure::{self, Failure};
use crate::output::{self, Columns, Facts, cell};
use crate::times;

const DETAIL_CHARS: usize = 80;
/// Of a body, unless all of it is asked for.
const BODY_CHARS: usize = 2_000;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell deliveries                            the last ones, newest first
  quell deliveries --refused                  only what was not taken, with the reason
  quell deliveries show dlv_…                 one of them, with headers and body
  quell deliveries replay dlv_…               take it in again, with the secrets and rules of today")]
pub(crate) struct DeliveriesArgs {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// One delivery, with headers and body; secrets are not kept
    Show(ShowArgs),
    /// Take a delivery in again: what was refused is checked anew, what was taken becomes a new event
    Replay(ReplayArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Only of this endpoint
    #[arg(long, value_name = "NAME")]
    endpoint: Option<String>,
    /// Only what was not taken
    #[arg(long)]
    refused: bool,
    /// Rows at the most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=256))]
    limit: u16,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// Its id, as the list shows it
    id: String,
    /// The whole body, however long it is
    #[arg(long)]
    whole: bool,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
struct ReplayArgs {
    /// Its id, as the list shows it
    id: String,
    #[command(flatten)]
    hand: ByHand,
    #[command(flatten)]
    form: Form,
}

pub(crate) async fn run(args: DeliveriesArgs, global: &Global) -> Result<u8, Failure> {
    match args.action {
        None => list(&context::open_existing(global).await?, &args.list).await,
        Some(Action::Show(args)) => show(&context::open_existing(global).await?, &args).await,
        Some(Action::Replay(args)) => replay(args, global).await,
    }
}

async fn list(engine: &Engine, args: &ListArgs) -> Result<u8, Failure> {
    let mut records = engine.deliveries().await?;
    records.retain(|record| {
        args.endpoint.as_ref().is_none_or(|name| record.endpoint == *name)
            && (!args.refused || record.verdict == DeliveryVerdict::Refused)
    });
    records.truncate(args.limit.into());
    if args.form.json {
        output::json(&serde_json::json!({ "items": records, "next": null }))?;
        return Ok(0);
    }
    if records.is_empty() {
        output::say("no deliveries: nothing was sent to /hooks/ lately");
    }
    let now = engine.wall();
    let mut table =
        Columns::new(&["ID", "AT", "ENDPOINT", "VERDICT", "STATUS", "EVENTS", "DETAIL"]).right(4).right(5);
    for record in records {
        let detail = record.reason.iter().chain(&record.detail).cloned().collect::<Vec<_>>().join(": ");
        table.row([
            cell(&record.id),
            cell(times::short(record.received_at, now)),
            cell(times::one_line(&record.endpoint, DETAIL_CHARS)),
            cell(record.verdict.as_str()),
            cell(record.status),
            cell(record.events.len()),
            cell(times::one_line(&detail, DETAIL_CHARS)),
        ]);
    }
    table.write()?;
    Ok(0)
}

async fn show(engine: &Engine, args: &ShowArgs) -> Result<u8, Failure> {
    let record = found(engine, &args.id).await?;
    if args.form.json {
        output::json(&record)?;
        return Ok(0);
    }
    detail(&record, engine.wall(), args.whole)?;
    Ok(0)
}

async fn found(engine: &Engine, id: &str) -> Result<DeliveryRecord, Failure> {
    engine.delivery(id).await?.ok_or_else(|| {
        Failure::new(failure::NOT_FOUND, format!("there is no delivery {id:?}"))
            .help("`quell deliveries` lists those that are remembered: only the last ones are")
    })
}

fn detail(record: &DeliveryRecord, now: Timestamp, whole: bool) -> std::io::Result<()> {
    let mut facts = Facts::default();
    facts.add("delivery", &record.id);
    let from = record.from.as_deref().map(|from| format!(" from {from}")).unwrap_or_default();
    facts.add("received", times::full(record.received_at, now) + &from);
    facts.add("endpoint", format!("{} ({})", times::one_line(&record.endpoint, DETAIL_CHARS), record.scheme));
    facts.add("verdict", format!("{}, answered {}", record.verdict.as_str(), record.status));
    facts.add_some("reason", record.reason.clone());
    facts.add_some("detail", record.detail.as_deref().map(times::safe));
    let proven = match (record.proven, record.secret) {
        (true, Some(number)) => format!("yes, by secret {number}"),
        (true, None) => "yes".to_owned(),
        (false, _) => "no".to_owned(),
    };
    facts.add("proven", proven);
    facts.add_some("replay of", record.replay_of.clone());
    facts.add_some("replayed by", record.replayed_by.as_deref().map(times::safe));
    for event in &record.events {
        let known = match (event.duplicate, event.differs) {
            (_, true) => ", known with another payload",
            (true, false) => ", known already",
            _ => "",
        };
        let lane = times::one_line(&format!("{}/{}", event.queue, event.key), DETAIL_CHARS);
        facts.add("event", format!("{} in {lane}{known}", event.event_id));
    }
    facts.add("request", times::one_line(&format!("{} {}", record.method, record.target), 200));
    for (name, value) in &record.headers {
        facts.add("", times::one_line(&format!("{name}: {value}"), 200));
    }
    facts.write()?;
    let most = if whole { usize::MAX } else { BODY_CHARS };
    let shown: String = record.body.chars().take(most).collect();
    output::line(format!("\n{}", times::safe(&shown)))?;
    if record.body_is_cut || shown.len() < record.body.len() {
        output::say(format!("({} of {} bytes; --json has what is kept)", shown.len(), record.body_bytes));
    }
    Ok(())
}

async fn replay(args: ReplayArgs, global: &Global) -> Result<u8, Failure> {
    let loaded = context::load(global, Flags::default())?;
    context::must_exist(&loaded.settings)?;
    let engine = context::open_now(&loaded).await?;
    let record = found(&engine, &args.id).await?;
    let (ready, _) = endpoints::ready(&engine.settings(), &loaded.env)?;
    let by = context::actor(&args.hand);
    let endpoint = ready.iter().find(|one| one.settings.name == record.endpoint);
    let replayed = quell_server::hooks::replay(&engine, endpoint, &record, &by).await;
    let replayed = replayed.map_err(|why| Failure::new(failure::REFUSED, why))?;
    if args.form.json {
        output::json(&replayed)?;
    } else {
        detail(&replayed, engine.wall(), false)?;
    }
    Ok(if replayed.verdict == DeliveryVerdict::Refused { failure::REFUSED } else { 0 })
}
