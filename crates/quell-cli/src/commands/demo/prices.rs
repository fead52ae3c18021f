//! `quell demo prices`: three coins, two sources, each item once, one value each.
//!
//! Everything is real but the sources: a store, workers, steps, limits, and a local market that speaks eBay's protocol and that
//! of a plain shop over HTTP. It has every third item twice, with tracking in its address and its title spelt otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;

use owo_colors::OwoColorize;
use quell::config::{Config, Flags, Settings, SettingsInput, SourceText};
use quell::quell_core::event::Tenant;
use quell::{Engine, Shutdown, Worker, WorkerOptions};
use quell_collectors::book::{Book, Listing};
use quell_collectors::intake::{About, Intake};
use quell_collectors::local::{Catalogue, Endpoint, Fault, LocalMarket};
use quell_collectors::money::Currency;
use quell_collectors::{live, request};

use crate::failure::{self, Failure};
use crate::output::{self, Columns, cell};
use crate::times;

/// Different items that each search finds.
const ITEMS: usize = 30;
const COINS: [(&str, &str, &str); 3] = [
    ("eagle-2024", "2024", "Silver Eagle"),
    ("morgan-1921", "1921", "Morgan Dollar"),
    ("maple-2023", "2023", "Gold Maple Leaf"),
];

pub(super) async fn play() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let market = LocalMarket::start(Catalogue::generated(ITEMS)).await?;
    let env: BTreeMap<String, String> =
        LocalMarket::env().map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let settings = settings(folder.path(), &market, &env)?;
    let broken = |problem: String| Failure::new(failure::FAILED, problem);
    let prices = settings.prices.clone().ok_or_else(|| broken("the demo has no [prices]".to_owned()))?;
    let sources = Arc::new(live::sources(&prices, &env).map_err(broken)?);
    let http = quell_collectors::client(&settings).map_err(|error| broken(error.to_string()))?;
    let engine = Engine::open(settings).await?;
    let book = Book::open(engine.store().clone()).await?;
    let rules = live::value_rules(&prices.value);
    let handlers = quell_collectors::handlers(&engine, &book, &sources, &rules, &http);

    output::line(
        "A market on this machine, asked as eBay and as a shop are asked; the store and the worker are real.\n",
    )?;
    let now = engine.health().await?.now;
    let coin = |(id, year, title): (&str, &str, &str)| {
        let about = About { year: Some(year.to_owned()), title: Some(title.to_owned()), ..About::default() };
        Intake::new(Tenant::none(), id, about, Currency::USD, now)
    };
    let coins =
        COINS.into_iter().map(coin).collect::<Result<Vec<_>, _>>().map_err(|bad| broken(bad.to_string()))?;
    book.add(&coins).await?;
    // A source that fails once costs a try and no price.
    market.fail_next(Endpoint::Shop, Fault::ServerError);
    let mut events = Vec::new();
    for coin in &coins {
        for source in prices.sources.keys() {
            events.push(request::event(&coin.tenant, &coin.id, source, &BTreeMap::new())?);
        }
    }
    let asked = events.len() as u64;
    engine.append(events).await?;
    output::line(format!(
        "{} for {} at {}",
        times::count(asked, "request"),
        times::count(coins.len() as u64, "coin"),
        times::count(prices.sources.len() as u64, "source")
    ))?;

    let options = WorkerOptions { handlers, env, until_idle: true, ..WorkerOptions::default() };
    Worker::new(engine.clone(), options)?.run(Shutdown::new()).await;
    let collected = book.last_collected(None, 100).await?;
    for one in &collected {
        let (found, new) = (times::count(one.found, "item"), times::count(one.new, "point"));
        output::line(format!(
            "  {} at {}: {found} on {}, {new}",
            one.intake.bold(),
            one.source,
            times::count(one.pages, "page")
        ))?;
    }
    output::line(format!(
        "\n{} requests to the market, one of which failed and was made again",
        market.asked().len()
    ))?;
    let twice = book.duplicates().await?.len();
    output::line(format!("{twice} items are stored twice\n"))?;
    let listing = Listing { tenant: None, cursor: None, limit: 10 };
    let mut table =
        Columns::new(&["COIN", "VALUE", "LOW", "HIGH", "PRICES"]).right(1).right(2).right(3).right(4);
    for valued in book.valuations(&listing).await?.items {
        let money = valued.valuation.money();
        let part = |place: usize| output::or_dash(money.map(|money| money[place]));
        table.row([
            cell(&valued.intake),
            cell(part(1)),
            cell(part(0)),
            cell(part(2)),
            cell(valued.valuation.counted.all()),
        ]);
    }
    table.write()?;
    Ok(())
}

fn settings(
    folder: &std::path::Path,
    market: &LocalMarket,
    env: &BTreeMap<String, String>,
) -> Result<Settings, Failure> {
    let store = folder.join("demo.db");
    let text = format!(
        "store = {}\n[queues.collect]\nretry = {{ base = \"200ms\", attempts = 5 }}\n[queues.\"collect.value\"]\nwindow = {{ quiet = \"300ms\", \
         max_wait = \"2s\" }}\n[sources.ebay]\n[prices]\n{}",
        toml::Value::String(format!("sqlite:{}", store.display())),
        market.settings()
    );
    let source = SourceText::new("demo", text);
    let config = Config::parse(&source.text, &source.name)?;
    let input = SettingsInput { config: Some((config, source)), env, flags: Flags::default() };
    Ok(Settings::resolve(input)?)
}
