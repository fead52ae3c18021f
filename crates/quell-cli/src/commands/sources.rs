//! `quell sources`: outside parties with limits of their own, and the hand laid on them.
//!
//! What is declared in the store is in force for every process at once. Sources of `quell.toml` are put there by a
//! starting worker; what this command changes lasts until the next one starts with another file.

use std::time::Duration;

use clap::{Args, Subcommand};
use quell::config::DurationText;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::{SourceName, Tenant};
use quell::quell_core::inspect::{SourceFilter, SourceRow};
use quell::quell_core::source::{Breaker, SourceRules, Standing};
use quell::quell_core::store::SourceScope;

use crate::args::{ByHand, Form, Global};
use crate::context;
use crate::failure::{self, Failure};
use crate::output::{self, Columns, Facts, cell};
use crate::times;

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  quell sources                                      all of them
  quell sources show ebay                            one in full, with what it waits for
  quell sources disable ebay                         hold its keys; nothing fails, no attempt is counted
  quell sources enable ebay
  quell sources reset ebay                           close the breaker, fill the bucket, forget kept answers
  quell sources put ebay --rate-limit-per-minute 60 --burst 5
  quell sources release old-shop                     let the keys of a removed source go without limits

Sources of quell.toml ([sources.NAME]) are put into the store when a worker starts."
)]
pub(crate) struct SourcesArgs {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List sources with breaker and tokens
    List(ListArgs),
    /// One source in full
    Show(OneArgs),
    /// Let the keys of a source go again
    Enable(HandArgs),
    /// Hold the keys of a source; running handlers go on
    Disable(HandArgs),
    /// Close the breaker, fill the bucket, end a silence, forget kept answers
    Reset(HandArgs),
    /// Declare a source or change its limits, in force for every process at once
    Put(PutArgs),
    /// Take a declaration away: keys that wait for it are held until it is put again or released
    Remove(HandArgs),
    /// Let the keys of a removed source go without limits
    Release(HandArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Only sources of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
struct OneArgs {
    /// Its name, as the list shows it
    name: String,
    /// The owner of the source; without it the shared one, and that of those who have no tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
struct HandArgs {
    /// Its name, as the list shows it
    name: String,
    /// The owner of the source; without it the shared one, and that of those who have no tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    by: ByHand,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
struct PutArgs {
    /// Its name, by which queues and events name it
    name: String,
    /// Requests per minute in the long run; without it there is no limit
    #[arg(long, value_name = "N")]
    rate_limit_per_minute: Option<u32>,
    /// Requests at once after a rest
    #[arg(long, value_name = "N", default_value_t = 1)]
    burst: u32,
    /// Faults in a row that open the breaker
    #[arg(long, value_name = "N", default_value_t = SourceRules::default().failures)]
    failures: u32,
    /// How long an open breaker lets nobody go
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = DurationText::parse)]
    cooldown: Duration,
    /// How long answers are kept
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = DurationText::parse)]
    cache_ttl: Duration,
    /// Keep no answers
    #[arg(long, conflicts_with = "cache_ttl")]
    no_cache: bool,
    /// One for all tenants together
    #[arg(long)]
    shared: bool,
    #[command(flatten)]
    by: ByHand,
    #[command(flatten)]
    form: Form,
}

pub(crate) async fn run(args: SourcesArgs, global: &Global) -> Result<u8, Failure> {
    match args.action {
        None => list(&args.list, global).await,
        Some(Action::List(args)) => list(&args, global).await,
        Some(Action::Show(args)) => show(&args, global).await,
        Some(Action::Enable(args)) => hand(args, Hand::Enable, global).await,
        Some(Action::Disable(args)) => hand(args, Hand::Disable, global).await,
        Some(Action::Reset(args)) => hand(args, Hand::Reset, global).await,
        Some(Action::Remove(args)) => hand(args, Hand::Remove, global).await,
        Some(Action::Release(args)) => hand(args, Hand::Release, global).await,
        Some(Action::Put(args)) => put(args, global).await,
    }
}

async fn list(args: &ListArgs, global: &Global) -> Result<u8, Failure> {
    let tenant = context::tenant_of(args.tenant.as_deref())?;
    let engine = context::open_existing(global).await?;
    let rows = engine.all_sources(SourceFilter { tenant, ..SourceFilter::default() }).await?;
    if args.form.json {
        output::json(&serde_json::json!({ "items": rows, "next": null }))?;
        return Ok(0);
    }
    let now = context::now(&engine).await?;
    let mut table = Columns::new(&[
        "NAME",
        "ENABLED",
        "BREAKER",
        "STREAK",
        "TOKENS",
        "WAITING",
        "PAUSED UNTIL",
        "LAST SUCCESS",
        "LAST FAILURE",
    ])
    .right(3)
    .right(4)
    .right(5);
    for row in &rows {
        table.row([
            cell(name_of(row)),
            cell(standing(row)),
            cell(breaker(row.breaker)),
            cell(row.failure_streak),
            cell(tokens(row)),
            cell(row.waiting),
            cell(times::short_or_dash(row.paused_until, now)),
            cell(times::short_or_dash(row.last_success_at, now)),
            cell(times::short_or_dash(row.last_failure_at, now)),
        ]);
    }
    table.write()?;
    if rows.is_empty() {
        output::say("no sources; [sources.NAME] in quell.toml declares one, or `quell sources put`");
    }
    Ok(0)
}

async fn show(args: &OneArgs, global: &Global) -> Result<u8, Failure> {
    let name = SourceName::new(&args.name)?;
    let tenant = context::tenant_of(args.tenant.as_deref())?.unwrap_or_else(Tenant::none);
    let engine = context::open_existing(global).await?;
    let one = SourceFilter { tenant: Some(tenant), name: Some(name.clone()), ..SourceFilter::default() };
    let rows = engine.sources(one).await?.items;
    let row = rows.first().ok_or_else(|| unknown(&name))?;
    if args.form.json {
        output::json(row)?;
        return Ok(0);
    }
    let now = context::now(&engine).await?;
    facts(row, now).write()?;
    Ok(0)
}

fn facts(row: &SourceRow, now: Timestamp) -> Facts {
    let mut facts = Facts::default();
    let rules = &row.rules;
    facts.add("source", name_of(row));
    facts.add("enabled", standing(row));
    facts.add_some("changed by", row.changed_by.clone());
    facts.add("breaker", breaker(row.breaker));
    facts.add("failure streak", format!("{} of {}", row.failure_streak, rules.failures));
    facts.add_some("paused until", row.paused_until.map(|at| times::full(at, now)));
    facts.add_some("probed by", row.probe.map(|run| run.to_string()));
    facts.add_some("silent until", row.not_before.map(|at| times::full(at, now)));
    facts.add("tokens", tokens(row));
    facts.add_some("last success", row.last_success_at.map(|at| times::full(at, now)));
    facts.add_some("last failure", row.last_failure_at.map(|at| times::full(at, now)));
    facts.add("waiting keys", row.waiting.to_string());
    facts.add("kept answers", row.cached.to_string());
    let rate = rules.per_minute.map_or_else(|| "no limit".to_owned(), |n| format!("{n} per minute"));
    facts.add("rate limit", format!("{rate}, burst {}", rules.burst));
    let cooldown = DurationText::show(rules.cooldown);
    facts.add("breaker opens", format!("after {} faults in a row, for {cooldown}", rules.failures));
    let ttl = rules
        .cache_ttl
        .map_or_else(|| "none are kept".to_owned(), |ttl| format!("kept for {}", DurationText::show(ttl)));
    facts.add("answers", ttl);
    facts.add("shared", if rules.shared { "by all tenants" } else { "no, one per tenant" });
    facts
}

/// What a hand does to a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hand {
    Enable,
    Disable,
    Reset,
    Remove,
    Release,
}

impl Hand {
    fn word(self) -> &'static str {
        match self {
            Hand::Enable => "enable",
            Hand::Disable => "disable",
            Hand::Reset => "reset",
            Hand::Remove => "remove",
            Hand::Release => "release",
        }
    }
}

async fn hand(args: HandArgs, hand: Hand, global: &Global) -> Result<u8, Failure> {
    let name = SourceName::new(&args.name)?;
    let tenant = context::tenant_of(args.tenant.as_deref())?.unwrap_or_else(Tenant::none);
    let actor = context::actor(&args.by);
    let engine = context::open_existing(global).await?;
    let scope = SourceScope { tenant, name: name.clone() };
    let changed = match hand {
        Hand::Enable => engine.enable_source(scope, &actor).await?,
        Hand::Disable => engine.disable_source(scope, &actor).await?,
        Hand::Reset => engine.reset_source(scope, &actor).await?,
        Hand::Remove => engine.remove_source(name.clone(), &actor).await?,
        Hand::Release => engine.release_source(scope, &actor).await?,
    };
    if args.form.json {
        output::json(&serde_json::json!({ "name": name, "action": hand.word(), "changed": changed }))?;
        return Ok(0);
    }
    if hand == Hand::Remove && !changed {
        return Err(unknown(&name));
    }
    output::line(match (hand, changed) {
        (Hand::Enable, true) => format!("enabled source {name}"),
        (Hand::Enable, false) => format!("source {name} was enabled already"),
        (Hand::Disable, true) => {
            format!("disabled source {name}: its keys are held, `quell sources enable {name}` goes on")
        }
        (Hand::Disable, false) => format!("source {name} was disabled already"),
        (Hand::Reset, _) => {
            format!("reset source {name}: the breaker is closed, the bucket full, no answer kept")
        }
        (Hand::Remove, _) => format!(
            "removed source {name}: keys that wait for it are held until it is put again, or `quell sources release {name}`"
        ),
        (Hand::Release, true) => format!("released source {name}: its keys go without limits"),
        (Hand::Release, false) => format!("source {name} was released already"),
    })?;
    Ok(0)
}

async fn put(args: PutArgs, global: &Global) -> Result<u8, Failure> {
    let name = SourceName::new(&args.name)?;
    let rules = SourceRules {
        per_minute: args.rate_limit_per_minute,
        burst: args.burst,
        failures: args.failures,
        cooldown: args.cooldown,
        cache_ttl: (!args.no_cache).then_some(args.cache_ttl),
        shared: args.shared,
    };
    rules.check()?;
    let loaded = context::load(global, quell::config::Flags::default())?;
    let engine = context::open_now(&loaded).await?;
    let changed = engine.put_source(name.clone(), rules, &context::actor(&args.by)).await?;
    if args.form.json {
        output::json(&serde_json::json!({ "name": name, "action": "put", "changed": changed }))?;
        return Ok(0);
    }
    output::line(match changed {
        true => format!("put source {name}: in force for every process at once"),
        false => format!("source {name} was there just so"),
    })?;
    if engine.settings().sources.iter().any(|declared| declared.name == name) {
        output::say("the next worker that starts with this quell.toml puts what the file says");
    }
    Ok(0)
}

fn unknown(name: &SourceName) -> Failure {
    Failure::new(failure::NOT_FOUND, format!("there is no source {name}")).help("`quell sources` lists them")
}

fn name_of(row: &SourceRow) -> String {
    if row.tenant.is_none() { row.name.to_string() } else { format!("{}:{}", row.tenant, row.name) }
}

pub(super) fn standing(row: &SourceRow) -> &'static str {
    match row.standing {
        Standing::Enabled => "yes",
        Standing::Disabled => "no",
        Standing::Removed => "removed",
        Standing::Released => "released",
    }
}

pub(super) fn breaker(breaker: Breaker) -> &'static str {
    match breaker {
        Breaker::Closed => "closed",
        Breaker::Open => "open",
        Breaker::HalfOpen => "half open",
    }
}

pub(super) fn tokens(row: &SourceRow) -> String {
    match row.tokens {
        Some(tokens) => format!("{tokens} of {}", row.rules.burst),
        None => "no limit".to_owned(),
    }
}
