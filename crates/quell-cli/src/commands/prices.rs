//! `quell prices`: things whose price is wanted, the sources that are asked, and what came of it.

mod collect;
mod intake;
mod shown;
mod source;
mod watch;

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use quell::Engine;
use quell::config::{Flags, PricesSettings};
use quell::quell_core::event::Tenant;
use quell_collectors::book::Book;
use quell_collectors::intake::About;

use crate::args::Global;
use crate::context::{self, Loaded};
use crate::failure::{self, Failure};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell prices source add shop --url 'https://api.example.com/search?q={query}&page={page}' \\
       --items /results --title /name --price /price --id /sku --currency USD
  quell prices source enable shop
  quell prices source test shop --title 'Morgan Dollar' --year 1921
  quell prices intake add --id morgan-1921-d --year 1921 --mintmark D --series Morgan
  quell prices collect                         every intake at every enabled source
  quell prices watch                           see it happen
  quell prices valuation                       what everything is worth
  quell prices valuation morgan-1921-d         one of them, with its prices over time

Runs and sources are seen like any other:
  quell runs --queue collect                   recent collections
  quell runs --queue collect --stuck 5m        those that nobody seems to work on
  quell prices source list                     breakers, tokens, last success and failure")]
pub(crate) struct PricesArgs {
    #[command(subcommand)]
    command: PricesCommand,
}

#[derive(Debug, Subcommand)]
enum PricesCommand {
    /// Things whose price is wanted: add, list, show, remove
    #[command(subcommand)]
    Intake(intake::IntakeCommand),
    /// Whom prices are asked of: add, list, enable, disable, test
    #[command(subcommand)]
    Source(source::SourceCommand),
    /// Ask for prices now, of all intakes or of some
    Collect(collect::CollectArgs),
    /// The prices that are known of an intake
    Points(shown::PointsArgs),
    /// What intakes are worth
    Valuation(shown::ValuationArgs),
    /// See collections and values as they come
    Watch(watch::WatchArgs),
}

/// What an intake is, as it is typed.
#[derive(Debug, Clone, Default, Args)]
struct AboutArgs {
    /// The year of the thing
    #[arg(long, value_name = "YEAR")]
    year: Option<String>,
    /// Where it was minted, such as D
    #[arg(long, value_name = "MARK")]
    mintmark: Option<String>,
    /// What it is called by its value, such as "1 dollar"
    #[arg(long, value_name = "TEXT")]
    denomination: Option<String>,
    /// The series that it belongs to, such as Morgan
    #[arg(long, value_name = "TEXT")]
    series: Option<String>,
    /// What it is called
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
}

impl AboutArgs {
    fn about(self) -> About {
        let AboutArgs { year, mintmark, denomination, series, title } = self;
        About { year, mintmark, denomination, series, title }
    }

    fn is_empty(&self) -> bool {
        let AboutArgs { year, mintmark, denomination, series, title } = self;
        [year, mintmark, denomination, series, title].into_iter().all(Option::is_none)
    }
}

/// Whose it is.
#[derive(Debug, Clone, Default, Args)]
struct Owner {
    /// The owner of the intakes
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
}

impl Owner {
    /// No tenant is that of intakes without one.
    fn tenant(&self) -> Result<Tenant, Failure> {
        Ok(context::tenant_of(self.tenant.as_deref())?.unwrap_or_else(Tenant::none))
    }
}

/// Further values for the templates of a source.
#[derive(Debug, Clone, Default, Args)]
struct Params {
    /// A further value for the source's templates; may be given several times
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = pair)]
    params: Vec<(String, String)>,
}

impl Params {
    fn map(&self) -> BTreeMap<String, String> {
        self.params.iter().cloned().collect()
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it is written NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(crate) async fn run(args: PricesArgs, global: &Global) -> Result<u8, Failure> {
    match args.command {
        PricesCommand::Intake(command) => intake::run(command, global).await,
        PricesCommand::Source(command) => source::run(command, global).await,
        PricesCommand::Collect(args) => collect::run(args, global).await,
        PricesCommand::Points(args) => shown::points(&args, global).await,
        PricesCommand::Valuation(args) => shown::valuation(&args, global).await,
        PricesCommand::Watch(args) => watch::run(&args, global).await,
    }
}

/// The store with the book in it. `intake add` makes the store, everything else wants one that is there.
struct Desk {
    loaded: Loaded,
    engine: Engine,
    book: Book,
}

impl Desk {
    async fn open(global: &Global) -> Result<Desk, Failure> {
        let loaded = context::load(global, Flags::default())?;
        context::must_exist(&loaded.settings)?;
        Desk::of(loaded).await
    }

    async fn of(loaded: Loaded) -> Result<Desk, Failure> {
        let engine = context::open_now(&loaded).await?;
        let book = Book::open(engine.store().clone()).await?;
        Ok(Desk { loaded, engine, book })
    }

    /// What `[prices]` says.
    fn prices(&self) -> Result<&PricesSettings, Failure> {
        described(&self.loaded)
    }

    /// An intake that must be there.
    async fn must_know(
        &self,
        tenant: &Tenant,
        id: &str,
    ) -> Result<quell_collectors::intake::Intake, Failure> {
        self.book.intake(tenant, id).await?.ok_or_else(|| {
            Failure::new(failure::NOT_FOUND, format!("there is no intake {id:?}"))
                .help("`quell prices intake list` lists them, `quell prices intake add` adds one")
        })
    }
}

fn described(loaded: &Loaded) -> Result<&PricesSettings, Failure> {
    loaded.settings.prices.as_ref().ok_or_else(|| {
        Failure::new(failure::USAGE, "the configuration has no [prices]")
            .help("`quell prices source add` describes a source, and makes it")
    })
}
