//! `quell prices source`: whom prices are asked of.
//!
//! A source is a section of the configuration, and `add` writes one (`source/add.rs`). It is disabled until somebody enables it, which says that its terms allow this. `test` is a run like any
//! other, in a queue of its own and worked on here, so that trying a source out keeps to its limits, too.

mod add;

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use owo_colors::OwoColorize;
use quell::config::{AdapterSettings, Flags, PricesSettings};
use quell::quell_core::event::{LaneKey, Payload, SourceName, Tenant};
use quell::quell_core::inspect::{SourceFilter, SourceRow};
use quell::quell_core::lifecycle::RunState;
use quell::quell_core::source::Standing;
use quell::quell_core::store::SourceScope;
use quell::{Incoming, Shutdown, Waited, Worker, WorkerOptions};
use quell_collectors::{COLLECT_TEST, live, queue};

use super::{AboutArgs, Desk, Owner, Params, described};
use crate::args::{ByHand, Form, Global};
use crate::commands::sources::{breaker, standing, tokens};
use crate::context;
use crate::failure::{self, Failure};
use crate::output::{self, Columns, cell};
use crate::progress;
use crate::times;

/// How long a test is waited for: a slow source answers in a minute, and one without a token says so.
const TEST_WAIT: Duration = Duration::from_secs(60);
const TITLE_CHARS: usize = 60;

#[derive(Debug, Subcommand)]
pub(super) enum SourceCommand {
    /// Describe one in quell.toml; it is disabled until it is enabled
    Add(Box<add::AddArgs>),
    /// All of them, with breakers and tokens
    List(ListArgs),
    /// Let it be asked: its terms allow what is done with its prices
    Enable(HandArgs),
    /// Hold everything that would ask it
    Disable(HandArgs),
    /// Ask it once and show what would be stored
    Test(TestArgs),
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    owner: Owner,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
pub(super) struct HandArgs {
    /// Its name: [prices.sources.NAME]
    name: String,
    #[command(flatten)]
    owner: Owner,
    #[command(flatten)]
    by: ByHand,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell prices source test shop --title 'American Silver Eagle' --year 2024
  quell prices source test shop --intake eagle-2024")]
pub(super) struct TestArgs {
    /// Its name: [prices.sources.NAME]
    name: String,
    /// Ask for this intake
    #[arg(long, value_name = "INTAKE", conflicts_with_all = ["year", "mintmark", "denomination", "series", "title"])]
    intake: Option<String>,
    #[command(flatten)]
    about: AboutArgs,
    #[command(flatten)]
    params: Params,
    #[command(flatten)]
    owner: Owner,
    #[command(flatten)]
    form: Form,
}

pub(super) async fn run(command: SourceCommand, global: &Global) -> Result<u8, Failure> {
    match command {
        SourceCommand::Add(args) => add::add(*args, global).await,
        SourceCommand::List(args) => list(&args, global).await,
        SourceCommand::Enable(args) => hand(args, true, global).await,
        SourceCommand::Disable(args) => hand(args, false, global).await,
        SourceCommand::Test(args) => test(args, global).await,
    }
}

/// A source that nobody described.
pub(super) fn unknown(prices: &PricesSettings, name: &SourceName) -> Failure {
    let known: Vec<&str> = prices.sources.keys().map(SourceName::as_str).collect();
    let known = if known.is_empty() {
        "none is described".to_owned()
    } else {
        format!("there are: {}", known.join(", "))
    };
    Failure::new(failure::NOT_FOUND, format!("there is no source of prices {name:?}; {known}"))
        .help("`quell prices source add` describes one")
}

async fn list(args: &ListArgs, global: &Global) -> Result<u8, Failure> {
    let desk = Desk::open(global).await?;
    let prices = desk.prices()?;
    let tenant = args.owner.tenant()?;
    let rows = desk.engine.all_sources(SourceFilter::default()).await?;
    let state = |name: &SourceName| -> Option<&SourceRow> {
        let of = |row: &&SourceRow| row.name == *name && (row.tenant == tenant || row.rules.shared);
        rows.iter().find(of)
    };
    if args.form.json {
        let items: Vec<serde_json::Value> = prices
            .sources
            .iter()
            .map(|(name, source)| {
                serde_json::json!({ "name": name, "adapter": adapter(&source.adapter), "currency": source.currency, "state": state(name) })
            })
            .collect();
        output::json(&serde_json::json!({ "items": items, "next": null }))?;
        return Ok(0);
    }
    let now = context::now(&desk.engine).await?;
    let names = [
        "SOURCE",
        "ADAPTER",
        "ENABLED",
        "BREAKER",
        "STREAK",
        "TOKENS",
        "WAITING",
        "PAUSED UNTIL",
        "LAST SUCCESS",
        "LAST FAILURE",
    ];
    let mut table = Columns::new(&names).right(4).right(5).right(6);
    for (name, source) in &prices.sources {
        let row = state(name);
        let or_dash = |text: Option<String>| output::or_dash(text);
        table.row([
            cell(name),
            cell(adapter(&source.adapter)),
            cell(row.map_or("yes", standing)),
            cell(or_dash(row.map(|row| breaker(row.breaker).to_owned()))),
            cell(or_dash(row.map(|row| row.failure_streak.to_string()))),
            cell(or_dash(row.map(tokens))),
            cell(or_dash(row.map(|row| row.waiting.to_string()))),
            cell(times::short_or_dash(row.and_then(|row| row.paused_until), now)),
            cell(times::short_or_dash(row.and_then(|row| row.last_success_at), now)),
            cell(times::short_or_dash(row.and_then(|row| row.last_failure_at), now)),
        ]);
    }
    table.write()?;
    if prices.sources.is_empty() {
        output::say("no sources of prices; `quell prices source add` describes one");
    }
    Ok(0)
}

fn adapter(settings: &AdapterSettings) -> &'static str {
    match settings {
        AdapterSettings::Json(_) => "json",
        AdapterSettings::Ebay(_) => "ebay",
    }
}

async fn hand(args: HandArgs, enable: bool, global: &Global) -> Result<u8, Failure> {
    let desk = Desk::open(global).await?;
    let name = SourceName::new(&args.name)?;
    let prices = desk.prices()?;
    if !prices.sources.contains_key(&name) {
        return Err(unknown(prices, &name));
    }
    let actor = context::actor(&args.by);
    let scope = SourceScope { tenant: args.owner.tenant()?, name: name.clone() };
    // It may be new in the file, and no worker has started since.
    desk.engine.apply_sources().await?;
    let changed = match enable {
        true => desk.engine.enable_source(scope, &actor).await?,
        false => desk.engine.disable_source(scope, &actor).await?,
    };
    let word = if enable { "enabled" } else { "disabled" };
    if args.form.json {
        output::json(&serde_json::json!({ "name": name, "enabled": enable, "changed": changed }))?;
        return Ok(0);
    }
    output::line(match (changed, enable) {
        (false, _) => format!("source {name} was {word} already"),
        (true, true) => {
            format!("enabled source {name}; `quell prices source test {name} --title …` tries it out")
        }
        (true, false) => format!("disabled source {name}: what would ask it is held, and nothing fails"),
    })?;
    Ok(0)
}

async fn test(args: TestArgs, global: &Global) -> Result<u8, Failure> {
    let loaded = context::load(global, Flags::default())?;
    let name = SourceName::new(&args.name)?;
    let prices = described(&loaded)?.clone();
    if !prices.sources.contains_key(&name) {
        return Err(unknown(&prices, &name));
    }
    if args.intake.is_none() && args.about.is_empty() {
        return Err(Failure::new(failure::USAGE, "what is it to be asked for?")
            .help("--title and so on describe a thing, --intake names one"));
    }
    let desk = Desk::of(loaded).await?;
    let tenant = args.owner.tenant()?;
    let mut payload = serde_json::json!({ "source_id": name, "query_params": args.params.map() });
    match &args.intake {
        Some(id) => payload["intake_id"] = desk.must_know(&tenant, id).await?.id.into(),
        None => payload["about"] = serde_json::json!(args.about.about()),
    }
    refuse_disabled(&desk, &tenant, &name).await?;
    let event = Incoming::new(COLLECT_TEST, name.as_str(), Payload::of(&payload))?;
    let event = event.tenant(tenant.as_str())?.source(name.as_str())?;
    let lane = event.lane.clone();

    let sources = live::sources(&prices, &desk.loaded.env).map_err(|e| Failure::new(failure::USAGE, e))?;
    let http = quell_collectors::client(&desk.loaded.settings)
        .map_err(|error| Failure::new(failure::FAILED, error.to_string()))?;
    let rules = live::value_rules(&prices.value);
    let handlers = quell_collectors::handlers(&desk.engine, &desk.book, &Arc::new(sources), &rules, &http);
    let options = WorkerOptions {
        queues: vec![queue(COLLECT_TEST)],
        handlers,
        env: desk.loaded.env.clone(),
        ..WorkerOptions::default()
    };
    let worker = Worker::new(desk.engine.clone(), options)?;
    let receipt = desk
        .engine
        .append(vec![event])
        .await?
        .pop()
        .ok_or_else(|| Failure::new(failure::FAILED, "the store gave no receipt for the request"))?;
    let shutdown = Shutdown::new();
    let working = tokio::spawn(worker.run(shutdown.clone()));
    let bar = progress::wheel("asking");
    let waited = desk.engine.wait(lane.clone(), receipt.event_id.clone(), TEST_WAIT).await;
    bar.finish_and_clear();
    shutdown.request();
    let _ = working.await;
    match waited? {
        Waited::Ended(run) => tell(&run, args.form),
        Waited::StillGoing(_) => Err(not_yet(&desk, lane).await?),
    }
}

/// A test of a disabled source would only wait.
async fn refuse_disabled(desk: &Desk, tenant: &Tenant, name: &SourceName) -> Result<(), Failure> {
    let filter =
        SourceFilter { tenant: Some(tenant.clone()), name: Some(name.clone()), ..SourceFilter::default() };
    let rows = desk.engine.sources(filter).await?.items;
    match rows.first().map(|row| row.standing) {
        Some(Standing::Disabled) => Err(Failure::new(failure::REFUSED, format!("source {name} is disabled"))
            .help(format!("when its terms allow it: quell prices source enable {name}"))),
        _ => Ok(()),
    }
}

async fn not_yet(desk: &Desk, lane: LaneKey) -> Result<Failure, Failure> {
    let why = desk.engine.lane(lane).await?.map(|lane| lane.row.why).unwrap_or_default();
    Ok(Failure::new(failure::NOT_YET, format!("no answer yet: {why}"))
        .help("it stays in queue collect.test, and is asked when a worker of this file runs"))
}

fn tell(run: &quell::quell_core::inspect::RunDetail, form: Form) -> Result<u8, Failure> {
    if form.json {
        output::json(&serde_json::json!({
            "run_id": run.row.id, "state": run.row.state, "error": run.row.error, "result": run.result,
        }))?;
        return Ok(if run.row.state == RunState::Succeeded { 0 } else { failure::RUN_FAILED });
    }
    let (RunState::Succeeded, Some(result)) = (run.row.state, &run.result) else {
        let error = run.row.error.clone().unwrap_or_else(|| "no reason was given".to_owned());
        return Err(Failure::new(
            failure::RUN_FAILED,
            format!("the source could not be asked: {}", times::safe(&error)),
        ));
    };
    let number = |name: &str| result[name].as_u64().unwrap_or(0);
    output::line(format!(
        "{} on {}: {} would be stored, {} do not match, {} lack something",
        times::count(number("found"), "item"),
        times::count(number("pages"), "page"),
        number("points").to_string().green(),
        number("unmatched"),
        number("skipped"),
    ))?;
    let mut table = Columns::new(&["PRICE", "TYPE", "MATCH", "TITLE", "LEFT OUT BECAUSE"]).right(0).right(2);
    let items = result["items"].as_array().map_or(&[] as &[_], Vec::as_slice);
    for item in items {
        let text = |name: &str| item[name].as_str().map(|text| times::one_line(text, TITLE_CHARS));
        table.row([
            cell(output::or_dash(text("price"))),
            cell(output::or_dash(text("price_type"))),
            cell(output::or_dash(item["match_strength"].as_u64())),
            cell(output::or_dash(text("title"))),
            cell(text("left_out").unwrap_or_default()),
        ]);
    }
    table.write()?;
    Ok(0)
}
