//! The committed figures, and the judgement on new ones.
//!
//! Worse fails, and so does better: a gain that is not written down could be lost again unseen.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;

use quell_bench::verbs::Verb;

/// Figures by what is counted, per unit of the verb.
pub(crate) type Costs = BTreeMap<String, f64>;
/// Costs by the name of the verb, by the name of the store.
type Figures = BTreeMap<String, BTreeMap<String, Costs>>;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/counts.toml");
const HELP: &str = "QUELL_WRITE_REFERENCE=1 cargo test -p quell-bench --test counts";
/// Tests of several stores write the one file.
static WRITING: Mutex<()> = Mutex::new(());

/// Compares what one store took for each verb with the file, or writes it there when that is asked for.
pub(crate) fn judge(store: &str, counted: Vec<(Verb, Costs)>) {
    // A store that fails says so by itself; the others are judged all the same.
    let _alone = WRITING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut figures = read();
    if std::env::var_os("QUELL_WRITE_REFERENCE").is_some() {
        let counted = counted.into_iter().map(|(verb, costs)| (verb.name().to_owned(), costs));
        figures.insert(store.to_owned(), counted.collect());
        std::fs::write(FILE, write(&figures)).unwrap();
        return;
    }
    let of_store = figures.remove(store).unwrap_or_default();
    let found: Vec<String> =
        counted.iter().flat_map(|(verb, now)| compare(*verb, of_store.get(verb.name()), now)).collect();
    assert!(
        found.is_empty(),
        "{store} does not cost what crates/quell-bench/counts.toml says:\n{}\n\
         What is worse wants a reason, what is better is to be kept: write the file anew with\n  {HELP}",
        found.join("\n")
    );
}

/// One line for each difference that matters.
fn compare(verb: Verb, was: Option<&Costs>, now: &Costs) -> Vec<String> {
    let Some(was) = was else { return vec![format!("  {}: new", verb.name())] };
    let mut found = Vec::new();
    for (what, &now) in now {
        let name = verb.name();
        let Some(&was) = was.get(what) else {
            found.push(format!("  {name}: {what} {} are new", shown(now)));
            continue;
        };
        let allowed = was * allowance(verb, what) + besides(verb);
        if (now - was).abs() > allowed {
            let word = if now > was { "WORSE" } else { "better" };
            found.push(format!("  {name}: {what} {} → {}, {word}", shown(was), shown(now)));
        }
    }
    found
}

/// What happens now and then beside the calls, such as a wake-up for others: less than one thing for each call of a single lane, and
/// for a call of many lanes a few, which are nothing for each of them.
fn besides(verb: Verb) -> f64 {
    match verb.units_of_a_call() {
        1 => 0.8,
        units => 3.0 / units as f64,
    }
}

/// As a share. Bytes and instructions depend on ids and on how a page happens to split, and what several callers get depends on
/// how they meet.
fn allowance(verb: Verb, what: &str) -> f64 {
    match what {
        _ if verb.is_concurrent() => 0.5,
        "instructions" | "bytes" => 0.08,
        _ => 0.02,
    }
}

fn read() -> Figures {
    match std::fs::read_to_string(FILE) {
        Ok(text) => toml::from_str(&text).unwrap(),
        Err(_) => Figures::new(),
    }
}

/// Verbs in their order, so that the file reads as the tests go.
fn write(figures: &Figures) -> String {
    let mut text = format!(
        "# What each verb of each store costs, per unit that its name says. Written by the test that compares it:\n#   {HELP}\n"
    );
    for (store, verbs) in figures {
        for verb in Verb::ALL {
            let Some(costs) = verbs.get(verb.name()) else { continue };
            write!(text, "\n[{store}.\"{}\"]\n", verb.name()).unwrap();
            for (what, value) in costs {
                writeln!(text, "{what} = {}", shown(*value)).unwrap();
            }
        }
    }
    text
}

/// Three decimals for what is a few, none for what is thousands; TOML wants a point in each.
fn shown(value: f64) -> String {
    if value >= 100.0 { format!("{value:.1}") } else { format!("{value:.3}") }
}

#[test]
fn worse_and_better_are_told_apart_and_what_is_within_the_allowance_is_silent() {
    let costs = |statements: f64, instructions: f64| {
        Costs::from([("statements".to_owned(), statements), ("instructions".to_owned(), instructions)])
    };
    let was = costs(12.0, 1_000.0);
    assert_eq!(compare(Verb::AppendOne, Some(&was), &costs(12.0, 1_079.0)), Vec::<String>::new());
    let worse = compare(Verb::AppendOne, Some(&was), &costs(14.0, 1_000.0));
    assert_eq!(worse, ["  append of one event, per event: statements 12.000 → 14.000, WORSE"]);
    let better = compare(Verb::AppendOne, Some(&was), &costs(12.0, 900.0));
    assert_eq!(better, ["  append of one event, per event: instructions 1000.0 → 900.0, better"]);
    assert_eq!(compare(Verb::AppendOne, None, &was), ["  append of one event, per event: new"]);
    assert_eq!(compare(Verb::AppendCallers, Some(&was), &costs(15.0, 1_200.0)), Vec::<String>::new());
}

#[test]
fn what_is_written_is_read_again() {
    let costs = Costs::from([("round_trips".to_owned(), 1.0), ("bytes".to_owned(), 1_234.5)]);
    let verbs = BTreeMap::from([(Verb::Extend.name().to_owned(), costs)]);
    let figures = Figures::from([("redis".to_owned(), verbs)]);
    assert_eq!(toml::from_str::<Figures>(&write(&figures)).unwrap(), figures);
}
