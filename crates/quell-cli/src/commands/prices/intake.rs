//! `quell prices intake`: things whose price is wanted.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use quell::config::Flags;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::Tenant;
use quell_collectors::book::{ADDED_MAX, Listing};
use quell_collectors::intake::{About, Intake};
use quell_collectors::money::Currency;
use serde::Deserialize;

use super::{AboutArgs, Desk, Owner};
use crate::args::{Form, Global, Paging};
use crate::confirm::confirm;
use crate::context;
use crate::failure::{self, Failure};
use crate::output::{self, Columns, Facts, cell};
use crate::times;

const TITLE_CHARS: usize = 48;

#[derive(Debug, Subcommand)]
pub(super) enum IntakeCommand {
    /// Add one, or many from a file with --from
    Add(AddArgs),
    /// All of them
    List(ListArgs),
    /// One of them, with its value and its last collections
    Show(OneArgs),
    /// Remove one with all its prices
    Remove(RemoveArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell prices intake add --year 1921 --mintmark D --denomination '1 dollar' --series Morgan
  quell prices intake add --id eagle-2024 --title 'American Silver Eagle 1 oz' --year 2024 --currency USD
  quell prices intake add --from coins.jsonl        one JSON object per line, with the same names; - is stdin

An intake that is there already is left as it is.")]
pub(super) struct AddArgs {
    /// Its name, for ever; made from what it is when it is not given
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    #[command(flatten)]
    about: AboutArgs,
    /// What it is valued in; default what [prices] says, else USD
    #[arg(long, value_name = "CODE")]
    currency: Option<String>,
    /// Many at once, one JSON object per line; - is stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["id", "year", "mintmark", "denomination", "series", "title"])]
    from: Option<PathBuf>,
    #[command(flatten)]
    owner: Owner,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Only of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
pub(super) struct OneArgs {
    /// Its name, as the list shows it
    #[arg(value_name = "INTAKE")]
    id: String,
    #[command(flatten)]
    owner: Owner,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
pub(super) struct RemoveArgs {
    /// Its name, as the list shows it
    #[arg(value_name = "INTAKE")]
    id: String,
    #[command(flatten)]
    owner: Owner,
    /// Without asking
    #[arg(long)]
    yes: bool,
}

pub(super) async fn run(command: IntakeCommand, global: &Global) -> Result<u8, Failure> {
    match command {
        IntakeCommand::Add(args) => add(args, global).await,
        IntakeCommand::List(args) => list(&args, global).await,
        IntakeCommand::Show(args) => show(&args, global).await,
        IntakeCommand::Remove(args) => remove(&args, global).await,
    }
}

/// One line of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: Option<String>,
    currency: Option<String>,
    year: Option<String>,
    mintmark: Option<String>,
    denomination: Option<String>,
    series: Option<String>,
    title: Option<String>,
}

async fn add(args: AddArgs, global: &Global) -> Result<u8, Failure> {
    let loaded = context::load(global, Flags::default())?;
    let usual = loaded.settings.prices.as_ref().map_or("USD", |prices| &prices.currency).to_owned();
    let desk = Desk::of(loaded).await?;
    let maker = Maker { tenant: args.owner.tenant()?, usual, now: context::now(&desk.engine).await? };
    let (mut given, mut added) = (0_u64, 0_u64);
    match &args.from {
        None => {
            let About { year, mintmark, denomination, series, title } = args.about.about();
            let (id, currency) = (args.id, args.currency);
            let one = Line { id, currency, year, mintmark, denomination, series, title };
            let intake = maker.make(one).map_err(|problem| Failure::new(failure::USAGE, problem))?;
            (given, added) = (1, desk.book.add(std::slice::from_ref(&intake)).await?);
            if !args.form.json {
                output::line(&intake.id)?;
            }
        }
        Some(path) => {
            let mut lines = Lines::open(path)?;
            loop {
                let part = lines.part(&maker, args.currency.as_deref())?;
                if part.is_empty() {
                    break;
                }
                given += part.len() as u64;
                added += desk.book.add(&part).await?;
            }
        }
    }
    let known = given - added;
    if args.form.json {
        output::json(&serde_json::json!({ "added": added, "known": known }))?;
    } else {
        let what = times::count(added, "intake");
        let rest =
            if known == 0 { String::new() } else { format!(", {known} known already and left as they are") };
        output::say(format!("added {what}{rest}"));
    }
    Ok(0)
}

/// Makes intakes of what was typed or read.
struct Maker {
    tenant: Tenant,
    usual: String,
    now: Timestamp,
}

impl Maker {
    fn make(&self, line: Line) -> Result<Intake, String> {
        let Line { id, currency, year, mintmark, denomination, series, title } = line;
        let currency = currency.as_deref().unwrap_or(&self.usual);
        let currency = Currency::new(currency).map_err(|bad| bad.to_string())?;
        let about = About { year, mintmark, denomination, series, title };
        let about = about.checked().map_err(|bad| bad.to_string())?;
        let id = id.unwrap_or_else(|| named_after(&about));
        Intake::new(self.tenant.clone(), &id, about, currency, self.now).map_err(|bad| bad.to_string())
    }
}

/// `1921-d-1-dollar-morgan`: the same thing has the same name, so adding it twice adds it once.
fn named_after(about: &About) -> String {
    let About { year, mintmark, denomination, series, title } = about;
    let parts = [year, mintmark, denomination, series, title].into_iter().flatten();
    let words = parts.flat_map(|part| part.split(|letter: char| !letter.is_ascii_alphanumeric()));
    let words: Vec<String> = words.filter(|word| !word.is_empty()).map(str::to_ascii_lowercase).collect();
    words.join("-").chars().take(64).collect::<String>().trim_end_matches('-').to_owned()
}

/// A file of intakes, read in parts that are stored together.
struct Lines {
    from: Box<dyn BufRead>,
    number: u64,
}

impl Lines {
    fn open(path: &PathBuf) -> Result<Lines, Failure> {
        let from: Box<dyn BufRead> = match path.as_os_str() == "-" {
            true => Box::new(BufReader::new(std::io::stdin())),
            false => {
                let opened = std::fs::File::open(path);
                let shown = path.display();
                Box::new(BufReader::new(opened.map_err(|error| {
                    Failure::new(failure::USAGE, format!("cannot read {shown}: {error}"))
                })?))
            }
        };
        Ok(Lines { from, number: 0 })
    }

    fn part(&mut self, maker: &Maker, currency: Option<&str>) -> Result<Vec<Intake>, Failure> {
        let mut part = Vec::new();
        let mut text = String::new();
        while part.len() < ADDED_MAX {
            text.clear();
            if self.from.read_line(&mut text)? == 0 {
                break;
            }
            self.number += 1;
            if text.trim().is_empty() {
                continue;
            }
            let bad = |problem: String| {
                Failure::new(failure::USAGE, format!("line {}: {problem}", self.number))
                    .help("what stands before it is stored or known; correct it and give the file again")
            };
            let mut line: Line = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
            line.currency = line.currency.or_else(|| currency.map(str::to_owned));
            part.push(maker.make(line).map_err(bad)?);
        }
        Ok(part)
    }
}

async fn list(args: &ListArgs, global: &Global) -> Result<u8, Failure> {
    let desk = Desk::open(global).await?;
    let listing = Listing {
        tenant: context::tenant_of(args.tenant.as_deref())?,
        cursor: args.paging.cursor.clone(),
        limit: args.paging.limit.into(),
    };
    let page = desk.book.intakes(&listing).await?;
    if args.form.json {
        output::json(&serde_json::json!({ "items": page.items, "next": page.next }))?;
        return Ok(0);
    }
    let mut table =
        Columns::new(&["INTAKE", "TENANT", "YEAR", "MARK", "DENOMINATION", "SERIES", "TITLE", "CURRENCY"]);
    for intake in &page.items {
        let About { year, mintmark, denomination, series, title } = &intake.about;
        let shown = |text: &Option<String>| {
            output::or_dash(text.as_ref().map(|text| times::one_line(text, TITLE_CHARS)))
        };
        let tenant = if intake.tenant.is_none() { "-" } else { intake.tenant.as_str() };
        table.row([
            cell(&intake.id),
            cell(times::safe(tenant)),
            cell(shown(year)),
            cell(shown(mintmark)),
            cell(shown(denomination)),
            cell(shown(series)),
            cell(shown(title)),
            cell(intake.currency),
        ]);
    }
    table.write()?;
    output::page_end(&page, "intakes; `quell prices intake add` adds one");
    Ok(0)
}

async fn show(args: &OneArgs, global: &Global) -> Result<u8, Failure> {
    let desk = Desk::open(global).await?;
    let tenant = args.owner.tenant()?;
    let intake = desk.must_know(&tenant, &args.id).await?;
    let collected = desk.book.collected(&tenant, &args.id).await?;
    let valued = desk.book.valuation(&tenant, &args.id).await?;
    if args.form.json {
        let answer = serde_json::json!({ "intake": intake, "valuation": valued, "collected": collected });
        output::json(&answer)?;
        return Ok(0);
    }
    let now = context::now(&desk.engine).await?;
    let mut facts = Facts::default();
    facts.add("intake", &*intake.id);
    facts.add_some("tenant", (!intake.tenant.is_none()).then(|| times::safe(intake.tenant.as_str())));
    let About { year, mintmark, denomination, series, title } = &intake.about;
    for (name, text) in [
        ("year", year),
        ("mintmark", mintmark),
        ("denomination", denomination),
        ("series", series),
        ("title", title),
    ] {
        facts.add_some(name, text.as_deref().map(times::safe));
    }
    facts.add("added", times::full(intake.created_at, now));
    facts.add("value", super::shown::value_of(valued.as_ref(), intake.currency));
    facts.write()?;
    let mut table = Columns::new(&["SOURCE", "COLLECTED", "FOUND", "NEW", "SEEN", "UNMATCHED", "RUN"]);
    for column in 2..6 {
        table = table.right(column);
    }
    for one in &collected {
        table.row([
            cell(&one.source),
            cell(times::short(one.at, now)),
            cell(one.found),
            cell(one.new),
            cell(one.seen),
            cell(one.unmatched),
            cell(&one.run),
        ]);
    }
    table.write()?;
    if collected.is_empty() {
        output::say("never collected; `quell prices collect` asks for it");
    }
    Ok(0)
}

async fn remove(args: &RemoveArgs, global: &Global) -> Result<u8, Failure> {
    let desk = Desk::open(global).await?;
    let tenant = args.owner.tenant()?;
    desk.must_know(&tenant, &args.id).await?;
    confirm(&format!("remove intake {} with all its prices, for good", args.id), args.yes)?;
    let removed = desk.book.remove(&tenant, &args.id).await?;
    output::say(if removed { "removed" } else { "it was gone already" });
    Ok(0)
}
