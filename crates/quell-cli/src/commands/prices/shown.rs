//! `quell prices points` and `quell prices valuation`: what is known, and what it comes to.

use clap::Args;
use owo_colors::OwoColorize;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::SourceName;
use quell_collectors::book::{Listing, Point, PointFilter, Valued};
use quell_collectors::money::{Currency, Money};
use quell_collectors::request::value_event;
use quell_collectors::value::Valuation;

use super::{Desk, Owner};
use crate::args::{Form, Global, Paging};
use crate::context;
use crate::failure::Failure;
use crate::output::{self, Columns, Facts, cell};
use crate::times;

const TITLE_CHARS: usize = 44;
/// Points that the small chart is drawn of.
const CHART_POINTS: usize = 1_000;
/// Its width in characters.
const CHART_WIDTH: usize = 48;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell prices points morgan-1921-d                        seen last, first
  quell prices points morgan-1921-d --history ext_1100     the prices that one item was seen with
  quell prices points --duplicates                         must find nothing: each item is kept once")]
pub(crate) struct PointsArgs {
    /// Whose prices
    #[arg(value_name = "INTAKE", required_unless_present = "duplicates")]
    intake: Option<String>,
    /// Only of this source
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// The prices that one item was seen with, in order; needs --source where several have it
    #[arg(long, value_name = "KEY")]
    history: Option<String>,
    /// Items that are stored twice, of all intakes
    #[arg(long, conflicts_with_all = ["intake", "source", "history"])]
    duplicates: bool,
    #[command(flatten)]
    owner: Owner,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell prices valuation                                   all intakes
  quell prices valuation morgan-1921-d                     one of them, with its prices over time
  quell prices valuation morgan-1921-d --recompute         ask for it to be made anew; a worker does it")]
pub(crate) struct ValuationArgs {
    /// Only this one, with its prices over time
    #[arg(value_name = "INTAKE")]
    intake: Option<String>,
    /// Ask for the value to be made anew
    #[arg(long, requires = "intake")]
    recompute: bool,
    /// Of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    form: Form,
}

pub(super) async fn points(args: &PointsArgs, global: &Global) -> Result<u8, Failure> {
    let desk = Desk::open(global).await?;
    let Some(intake) = args.intake.as_deref().filter(|_| !args.duplicates) else {
        return duplicates(&desk, args.form).await;
    };
    let tenant = args.owner.tenant()?;
    desk.must_know(&tenant, intake).await?;
    let source = args.source.as_deref().map(SourceName::new).transpose()?;
    let filter = PointFilter {
        tenant,
        intake: intake.to_owned(),
        source,
        cursor: args.paging.cursor.clone(),
        limit: args.paging.limit.into(),
    };
    if let Some(key) = &args.history {
        return history(&desk, &filter, key, args.form).await;
    }
    let page = desk.book.points(&filter).await?;
    if args.form.json {
        output::json(&serde_json::json!({ "items": page.items, "next": page.next }))?;
        return Ok(0);
    }
    let now = context::now(&desk.engine).await?;
    let mut table =
        Columns::new(&["PRICE", "TYPE", "MATCH", "SOURCE", "LAST SEEN", "PRICES", "KEY", "TITLE"])
            .right(0)
            .right(2)
            .right(5);
    for point in &page.items {
        table.row([
            cell(point.current()),
            cell(point.price_type),
            cell(point.match_strength),
            cell(&point.source),
            cell(times::short(point.last_seen_at, now)),
            cell(point.observations.max(1)),
            cell(times::safe(&point.dedupe_key)),
            cell(times::one_line(&point.title, TITLE_CHARS)),
        ]);
    }
    table.write()?;
    output::page_end(&page, "prices yet; `quell prices collect` asks for them");
    Ok(0)
}

async fn duplicates(desk: &Desk, form: Form) -> Result<u8, Failure> {
    let found = desk.book.duplicates().await?;
    if form.json {
        output::json(&serde_json::json!({ "items": found, "next": null }))?;
        return Ok(0);
    }
    let mut table = Columns::new(&["INTAKE", "SOURCE", "KEY", "COUNT"]).right(3);
    for one in &found {
        table.row([
            cell(&one.intake),
            cell(&one.source),
            cell(times::safe(&one.dedupe_key)),
            cell(one.count),
        ]);
    }
    table.write()?;
    if found.is_empty() {
        output::say("no item is stored twice");
    }
    Ok(0)
}

async fn history(desk: &Desk, filter: &PointFilter, key: &str, form: Form) -> Result<u8, Failure> {
    let PointFilter { tenant, intake, source, .. } = filter;
    let seen = match source {
        Some(source) => desk.book.observations(tenant, intake, source, key).await?,
        None => {
            let known = desk.book.collected(tenant, intake).await?;
            let mut all = Vec::new();
            for one in &known {
                all.extend(desk.book.observations(tenant, intake, &one.source, key).await?);
            }
            all
        }
    };
    if form.json {
        output::json(&serde_json::json!({ "items": seen, "next": null }))?;
        return Ok(0);
    }
    let now = context::now(&desk.engine).await?;
    let mut table = Columns::new(&["SEEN", "PRICE", "RUN"]).right(1);
    for one in &seen {
        table.row([cell(times::short(one.at, now)), cell(one.price), cell(&one.run)]);
    }
    table.write()?;
    if seen.is_empty() {
        output::say("no prices of such an item; only items with an id of their own have a history");
    }
    Ok(0)
}

pub(super) async fn valuation(args: &ValuationArgs, global: &Global) -> Result<u8, Failure> {
    let desk = Desk::open(global).await?;
    let tenant = context::tenant_of(args.tenant.as_deref())?;
    let Some(intake) = &args.intake else {
        let listing = Listing { tenant, cursor: args.paging.cursor.clone(), limit: args.paging.limit.into() };
        return list(&desk, &listing, args.form).await;
    };
    let owner = Owner { tenant: args.tenant.clone() };
    let intake = desk.must_know(&owner.tenant()?, intake).await?;
    if args.recompute {
        desk.prices()?;
        let event = value_event(&intake)?;
        let receipts = desk.engine.append(vec![event]).await?;
        if args.form.json {
            output::json(&serde_json::json!({ "receipts": receipts }))?;
        } else {
            output::say("asked for; a worker makes it within seconds");
        }
        return Ok(0);
    }
    let valued = desk.book.valuation(&intake.tenant, &intake.id).await?;
    if args.form.json {
        output::json(&valued)?;
        return Ok(0);
    }
    let now = context::now(&desk.engine).await?;
    let mut facts = Facts::default();
    facts.add("intake", &*intake.id);
    facts.add("value", value_of(valued.as_ref(), intake.currency));
    if let Some(Valued { valuation, .. }) = &valued {
        let Valuation { counted, other_currency, as_of, .. } = valuation;
        let parts = [(counted.sold, "sold"), (counted.ask, "ask"), (counted.bid, "bid")];
        let parts: Vec<String> =
            parts.iter().filter(|(n, _)| *n > 0).map(|(n, name)| format!("{n} {name}")).collect();
        let parts = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
        facts.add("made of", format!("{}{parts}", times::count(counted.all(), "price")));
        let others = *other_currency;
        facts.add_some(
            "left out",
            (others > 0).then(|| format!("{} in other currencies", times::count(others, "price"))),
        );
        facts.add("as of", times::full(*as_of, now));
    }
    facts.write()?;
    let filter = PointFilter {
        tenant: intake.tenant.clone(),
        intake: intake.id.clone(),
        source: None,
        cursor: None,
        limit: CHART_POINTS,
    };
    let points = desk.book.points(&filter).await?.items;
    if let Some(drawn) = chart(&points, intake.currency) {
        output::line(format!("\n  {}", drawn.bars.cyan()))?;
        output::line(format!("  {}", drawn.legend.dimmed()))?;
    }
    Ok(0)
}

async fn list(desk: &Desk, listing: &Listing, form: Form) -> Result<u8, Failure> {
    let page = desk.book.valuations(listing).await?;
    if form.json {
        output::json(&serde_json::json!({ "items": page.items, "next": page.next }))?;
        return Ok(0);
    }
    let now = context::now(&desk.engine).await?;
    let mut table = Columns::new(&["INTAKE", "VALUE", "LOW", "HIGH", "POINTS", "AS OF"])
        .right(1)
        .right(2)
        .right(3)
        .right(4);
    for Valued { intake, valuation, .. } in &page.items {
        let money = valuation.money();
        let part = |place: usize| output::or_dash(money.map(|money| money[place]));
        table.row([
            cell(intake),
            cell(part(1)),
            cell(part(0)),
            cell(part(2)),
            cell(valuation.counted.all()),
            cell(times::short(valuation.as_of, now)),
        ]);
    }
    table.write()?;
    output::page_end(&page, "values yet; `quell prices collect` asks for prices");
    Ok(0)
}

/// The value in one line.
pub(super) fn value_of(valued: Option<&Valued>, currency: Currency) -> String {
    match valued.map(|valued| valued.valuation.money()) {
        Some(Some([low, value, high])) => format!("{value}, half of the weight between {low} and {high}"),
        Some(None) => format!("none: no price in {currency} counts"),
        None => "none yet".to_owned(),
    }
}

/// Prices over time, drawn with characters.
struct Drawn {
    bars: String,
    legend: String,
}

/// The mean price of each stretch of time, between the lowest and the highest of them; nothing for fewer than two points.
fn chart(points: &[Point], currency: Currency) -> Option<Drawn> {
    let at = |point: &Point| point.date.unwrap_or(point.last_seen_at);
    let mut priced: Vec<(Timestamp, i64)> = points
        .iter()
        .filter(|point| point.current().currency == currency)
        .map(|point| (at(point), point.current().cents))
        .collect();
    priced.sort_unstable();
    let (first, last) = (priced.first()?.0, priced.last()?.0);
    if priced.len() < 2 {
        return None;
    }
    let span = last.as_millis().saturating_sub(first.as_millis()).max(1);
    let width = i64::try_from(CHART_WIDTH).unwrap_or(1);
    let mut stretches: Vec<Vec<i64>> = vec![Vec::new(); CHART_WIDTH];
    for (moment, cents) in &priced {
        let passed = moment.as_millis().saturating_sub(first.as_millis());
        let place =
            (i128::from(passed) * i128::from(width - 1) / i128::from(span)).clamp(0, i128::from(width - 1));
        stretches[usize::try_from(place).unwrap_or(0)].push(*cents);
    }
    let mean = |prices: &Vec<i64>| {
        let sum: i128 = prices.iter().map(|cents| i128::from(*cents)).sum();
        i64::try_from(sum / i128::try_from(prices.len()).ok()?.max(1)).ok()
    };
    let means: Vec<Option<i64>> =
        stretches.iter().map(|prices| if prices.is_empty() { None } else { mean(prices) }).collect();
    let (low, high) = (means.iter().flatten().min().copied()?, means.iter().flatten().max().copied()?);
    let steps = i64::try_from(BARS.len()).unwrap_or(1) - 1;
    let bar = |cents: &Option<i64>| match cents {
        Some(cents) => BARS[usize::try_from((cents - low) * steps / (high - low).max(1)).unwrap_or(0)],
        None => ' ',
    };
    let money = |cents| Money { cents, currency };
    let day = |moment: Timestamp| moment.to_string().chars().take(10).collect::<String>();
    Some(Drawn {
        bars: means.iter().map(bar).collect(),
        legend: format!("{} to {}, {} to {}", day(first), day(last), money(low), money(high)),
    })
}

#[cfg(test)]
mod tests {
    use quell_collectors::found::PriceType;

    use super::*;

    fn point(day: i64, cents: i64, currency: Currency) -> Point {
        let at = Timestamp::from_millis(day * 86_400_000);
        Point {
            source: SourceName::new("shop").unwrap(),
            dedupe_key: "ext_1".to_owned(),
            external_id: None,
            url: None,
            title: "coin".to_owned(),
            price: Money { cents, currency },
            original: None,
            price_type: PriceType::Ask,
            date: None,
            match_strength: 100,
            first_seen_at: at,
            last_seen_at: at,
            observations: 1,
            latest: None,
        }
    }

    #[test]
    fn a_chart_goes_from_the_first_to_the_last_price_and_from_the_lowest_to_the_highest() {
        let euro = Currency::new("EUR").unwrap();
        let points: Vec<Point> = (0..48).map(|day| point(day, 1000 + day * 10, Currency::USD)).collect();
        let drawn = chart(&points, Currency::USD).unwrap();
        assert_eq!(drawn.bars.chars().count(), CHART_WIDTH);
        assert!(drawn.bars.starts_with('▁') && drawn.bars.ends_with('█'), "{}", drawn.bars);
        assert_eq!(drawn.legend, "1970-01-01 to 1970-02-17, 10.00 USD to 14.70 USD");
        assert!(chart(&points, euro).is_none(), "prices in another currency are not drawn");
        assert!(chart(&points[..1], Currency::USD).is_none(), "one point is no course");
        let same = [point(1, 500, Currency::USD), point(1, 500, Currency::USD)];
        assert!(chart(&same, Currency::USD).unwrap().bars.starts_with('▁'));
    }
}
