//! The tables of `docs/design/scale.md` are what the program says: no number stands there that no command made.
//!
//! To write them anew: `QUELL_WRITE_REFERENCE=1 cargo test -p quell-cli --bin quell capacity_page`.

use std::fmt::Write;
use std::path::Path;

use clap::Parser;
use quell_bench::Kind;
use quell_bench::costs::Costs;

use super::{CapacityArgs, asked, grouped, plan, rows};

const STORES: [(&str, Kind); 3] =
    [("sqlite", Kind::Sqlite), ("postgres", Kind::Postgres), ("redis", Kind::Redis)];
const COUNTS: &str = include_str!("../../../../../quell-bench/counts.toml");

#[derive(Parser)]
struct Line {
    /// The flags conflict with it, so it has to be there.
    #[arg(id = "script")]
    _script: Option<String>,
    #[command(flatten)]
    capacity: CapacityArgs,
}

/// A table for readers of the repository; the first column is text.
fn markdown(head: &[String], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut page = format!("| {} |\n| --- |{}\n", head.join(" | "), " ---: |".repeat(head.len() - 1));
    for row in rows {
        writeln!(page, "| {} |", row.join(" | ")).unwrap();
    }
    page
}

fn head(first: &str) -> Vec<String> {
    [first, "SQLite", "PostgreSQL", "Redis"].map(str::to_owned).to_vec()
}

/// What one store needs for the loads that the command line takes when none is named.
fn needs(store: &str, kind: Kind) -> String {
    let line = Line::parse_from(["quell", "--capacity", "--kind", store]);
    let costs = Costs::committed(kind).unwrap();
    let plans: Vec<_> = line
        .capacity
        .events_per_minute
        .iter()
        .map(|events| asked(&line.capacity, *events, 0).unwrap())
        .map(|ask| (ask.clone(), plan::plan(&ask, &costs)))
        .collect();
    let loads = plans.iter().map(|(ask, _)| grouped(ask.events_per_minute));
    let head: Vec<String> = ["events a minute".to_owned()].into_iter().chain(loads).collect();
    markdown(&head, rows(&plans).into_iter().map(|(what, values)| [vec![what], values].concat()))
}

fn costs() -> String {
    let all = STORES.map(|(_, kind)| toml::Table::try_from(Costs::committed(kind).unwrap()).unwrap());
    let cells = |name: &String| {
        let of = |costs: &toml::Table| format!("{:.1}", costs[name].as_float().unwrap());
        [vec![format!("`{name}`")], all.iter().map(of).collect()].concat()
    };
    markdown(&head("cost"), all[0].keys().map(cells))
}

/// What does not depend on a machine, from the file that the test `counts` of quell-bench compares.
fn counts() -> String {
    let counted: toml::Table = toml::from_str(COUNTS).unwrap();
    let shown = |store: &str, verb: &str, what: &str| {
        let value = counted[store].get(verb).and_then(|verb| verb.get(what)).and_then(toml::Value::as_float);
        value.map_or("–".to_owned(), |value| format!("{value:.3}"))
    };
    let verbs = [
        "append of one event, per event",
        "append by 64 callers at once, per event",
        "claim of one lane, per lane",
        "claim of 512 lanes, per lane",
        "settle of one run, per run",
        "settle by 64 callers at once, per run",
    ];
    let row = |verb: &str, what: &str, columns: [&str; 3]| {
        let cells = STORES.iter().zip(columns).map(|((store, _), column)| shown(store, verb, column));
        [vec![format!("{verb}: {what}")], cells.collect()].concat()
    };
    let both = |verb: &'static str| {
        [
            row(verb, "round trips", ["", "round_trips", "round_trips"]),
            row(verb, "flushes", ["flushes", "commits", "round_trips"]),
        ]
    };
    markdown(&head("count"), verbs.into_iter().flat_map(both))
}

/// The page with each table between its marks as it has to be.
fn written(page: &str) -> String {
    let mut page = page.to_owned();
    let tables = STORES.map(|(store, kind)| (store, needs(store, kind)));
    for (name, table) in tables.into_iter().chain([("costs", costs()), ("counts", counts())]) {
        let (begins, ends) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
        let from = page.find(&begins).unwrap_or_else(|| panic!("{begins} is missing")) + begins.len();
        let to = page.find(&ends).unwrap_or_else(|| panic!("{ends} is missing"));
        page.replace_range(from..to, &format!("\n{table}\n"));
    }
    page
}

#[test]
fn the_capacity_page_says_what_the_command_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/design/scale.md");
    let committed = std::fs::read_to_string(&path).unwrap();
    let wanted = written(&committed);
    if std::env::var_os("QUELL_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, &wanted).unwrap();
        return;
    }
    let help = "run QUELL_WRITE_REFERENCE=1 cargo test -p quell-cli --bin quell capacity_page";
    assert!(committed == wanted, "docs/design/scale.md is not what the command says: {help}");
}
