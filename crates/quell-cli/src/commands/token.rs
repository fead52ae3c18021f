//! `quell token`: who may do what over HTTP.
//!
//! A token is shown once, when it is made; the store keeps its hash. As soon as a store has one, every request needs one.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::{Args, Subcommand};
use quell::config::DurationText;
use quell::quell_core::event::{QueueName, Tenant};
use quell::tokens::{ApiToken, Scope};
use quell::{Engine, TokenWish};

use crate::args::{ByHand, Form, Global};
use crate::context;
use crate::failure::{self, Failure};
use crate::output::{self, Columns, cell};
use crate::times;

#[derive(Debug, Args)]
#[command(after_help = "\
Scopes:
  ingest   append events
  work     claim and settle runs
  read     look at everything, payloads included
  operate  flush, pause, resume, cancel, redrive, purge; also reads
  admin    everything

Examples:
  quell token create ops --scope admin
  quell token create shop --scope ingest --queue orders --tenant acme --expires 90d
  quell token list
  quell token revoke 4k2m9x0c3d")]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a token; it is printed once, on stdout
    Create(CreateArgs),
    /// List tokens, without what would help to guess them
    List(ListArgs),
    /// Take a token away; running servers know it after two seconds
    Revoke(RevokeArgs),
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// What it is for; what is done with it is recorded under this name
    name: String,
    /// ingest, work, read, operate or admin; may be given several times
    #[arg(long = "scope", value_name = "SCOPE", required = true, value_parser = scope)]
    scopes: Vec<Scope>,
    /// Only this tenant; may be given several times
    #[arg(long = "tenant", value_name = "TENANT")]
    tenants: Vec<String>,
    /// Only this queue; may be given several times
    #[arg(long = "queue", value_name = "QUEUE")]
    queues: Vec<String>,
    /// Worth nothing after this long; for ever without
    #[arg(long, value_name = "DURATION", value_parser = DurationText::parse)]
    expires: Option<Duration>,
    #[command(flatten)]
    hand: ByHand,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
struct RevokeArgs {
    /// Its id, as `quell token list` shows it
    id: String,
}

fn scope(text: &str) -> Result<Scope, String> {
    text.parse().map_err(|e: quell::quell_core::event::Invalid| e.problem)
}

pub(crate) async fn run(args: TokenArgs, global: &Global) -> Result<u8, Failure> {
    match args.action {
        Action::Create(args) => {
            // The first thing that a new store holds may be its token.
            let loaded = context::load(global, quell::config::Flags::default())?;
            create(&context::open_now(&loaded).await?, args).await
        }
        Action::List(args) => list(&context::open_existing(global).await?, &args).await,
        Action::Revoke(args) => revoke(&context::open_existing(global).await?, &args).await,
    }
}

async fn create(engine: &Engine, args: CreateArgs) -> Result<u8, Failure> {
    let wish = TokenWish {
        name: args.name,
        scopes: args.scopes.into_iter().collect(),
        tenants: args.tenants.iter().map(Tenant::new).collect::<Result<BTreeSet<_>, _>>()?,
        queues: args.queues.iter().map(QueueName::new).collect::<Result<BTreeSet<_>, _>>()?,
        expires_in: args.expires,
    };
    let first = engine.tokens().await?.is_empty();
    let (text, about) = engine.make_token(wish, &context::actor(&args.hand)).await?;
    if args.form.json {
        let mut value = serde_json::to_value(about.without_hash()).map_err(std::io::Error::other)?;
        value["token"] = text.into();
        output::json(&value)?;
        return Ok(0);
    }
    output::line(&text)?;
    output::say("it is shown this once; send it as `Authorization: Bearer …`");
    if first {
        output::say("it is the first one of this store: from now on every request over HTTP needs a token");
    }
    Ok(0)
}

async fn list(engine: &Engine, args: &ListArgs) -> Result<u8, Failure> {
    let tokens: Vec<ApiToken> = engine.tokens().await?.into_iter().map(ApiToken::without_hash).collect();
    if args.form.json {
        output::json(&tokens)?;
        return Ok(0);
    }
    if tokens.is_empty() {
        output::say("no tokens: on loopback everybody may do everything, and other addresses are refused");
    }
    let now = context::now(engine).await?;
    let mut table = Columns::new(&["ID", "NAME", "SCOPES", "TENANTS", "QUEUES", "MADE", "BY", "EXPIRES"]);
    for token in tokens {
        let scopes = joined(token.scopes.iter());
        let (tenants, queues) = (or_all(joined(token.tenants.iter())), or_all(joined(token.queues.iter())));
        let made = times::clock_face(token.made_at, now);
        let expires = token.expires_at.map_or_else(|| "never".to_owned(), |at| times::clock_face(at, now));
        table.row(
            [&token.id, &token.name, &scopes, &tenants, &queues, &made, &token.made_by, &expires].map(cell),
        );
    }
    table.write()?;
    Ok(0)
}

async fn revoke(engine: &Engine, args: &RevokeArgs) -> Result<u8, Failure> {
    if !engine.revoke_token(&args.id).await? {
        return Err(Failure::new(
            failure::NOT_FOUND,
            format!("there is no token {:?}: see `quell token list`", args.id),
        ));
    }
    output::say(format!("token {} is worth nothing any more; servers know it after two seconds", args.id));
    Ok(0)
}

fn joined<T: ToString>(items: impl Iterator<Item = T>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(",")
}

fn or_all(text: String) -> String {
    if text.is_empty() { "all".to_owned() } else { text }
}
