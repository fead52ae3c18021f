//! The section of `docs/benchmarks.md`: tables and pictures of one run, between two markers.

use std::collections::BTreeMap;

use crate::answer::Answer;
use crate::cell::Outcome;
use crate::limits;
use crate::sizes::Sizes;
use crate::spread::{Spread, shown};
use crate::svg::{Bar, Chart, Group};
use crate::systems::{SYSTEMS, Shape, Store, System};
use crate::texts::TEXTS;

pub const BEGIN: &str = "<!-- written by cargo xtask compare: begin -->";
pub const END: &str = "<!-- written by cargo xtask compare: end -->";

/// Everything that one run found.
#[derive(Debug, Clone, Default)]
pub struct Results {
    pub rounds: usize,
    /// The outcomes of each system and shape, in the order of the rounds.
    pub outcomes: BTreeMap<(&'static str, Shape), Vec<Outcome>>,
}

impl Results {
    pub fn add(&mut self, system: &System, shape: Shape, outcome: Outcome) {
        self.outcomes.entry((system.id, shape)).or_default().push(outcome);
    }

    fn of(&self, system: &System, shape: Shape) -> &[Outcome] {
        self.outcomes.get(&(system.id, shape)).map_or(&[], Vec::as_slice)
    }

    fn answers(&self, system: &System, shape: Shape) -> impl Iterator<Item = &Answer> {
        self.of(system, shape).iter().filter_map(|outcome| outcome.as_ref().ok())
    }

    fn spread(&self, system: &System, shape: Shape, figure: &str) -> Option<Spread> {
        Spread::of(self.answers(system, shape).filter_map(|answer| answer.figure(figure)).collect())
    }

    /// Why a system has no figures of a shape, if it has none.
    fn missing(&self, system: &System, shape: Shape) -> Option<String> {
        if let Err(reason) = system.shape(shape) {
            return Some(reason.to_owned());
        }
        let outcomes = self.of(system, shape);
        if outcomes.iter().any(Result::is_ok) {
            return None;
        }
        match outcomes.iter().find_map(|outcome| outcome.as_ref().err()) {
            Some(reason) => Some(format!("failed: {}", in_a_cell(reason))),
            None => Some("not run".to_owned()),
        }
    }

    /// Rounds of a shape that failed while others did not, for the notes.
    fn failures(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for ((id, shape), outcomes) in &self.outcomes {
            let failed: Vec<&String> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
            if let (Some(reason), true) = (failed.first(), failed.len() < outcomes.len()) {
                let (count, all, reason) = (failed.len(), outcomes.len(), in_a_cell(reason));
                notes.push(format!("`{id}`, {}: {count} of {all} rounds failed ({reason})", shape.name()));
            }
        }
        notes
    }

    fn chosen(&self) -> impl Iterator<Item = &'static System> + '_ {
        let ran = |system: &&System| Shape::ALL.iter().any(|shape| !self.of(system, *shape).is_empty());
        SYSTEMS.iter().filter(ran)
    }

    fn on(&self, store: Store) -> Vec<&'static System> {
        self.chosen().filter(|system| system.store == store).collect()
    }

    fn versions(&self, driver_of: &System) -> String {
        let answers = self
            .outcomes
            .iter()
            .filter(|((id, _), _)| {
                SYSTEMS.iter().any(|system| system.id == *id && told_with(system, driver_of))
            })
            .flat_map(|(_, outcomes)| outcomes)
            .filter_map(|outcome| outcome.as_ref().ok());
        let versions: BTreeMap<&String, &String> = answers.flat_map(|answer| &answer.versions).collect();
        let said: Vec<String> =
            versions.into_iter().map(|(name, version)| format!("{name} {version}")).collect();
        said.join(", ")
    }
}

fn told_with(system: &System, text_of: &System) -> bool {
    use crate::systems::Driver::Beanstalkd;
    system.driver == text_of.driver
        || matches!((system.driver, text_of.driver), (Beanstalkd { .. }, Beanstalkd { .. }))
}

/// What a run was made with.
#[derive(Debug, Clone)]
pub struct Conditions {
    pub date: String,
    pub machine: String,
    pub build: String,
    pub stores: Vec<String>,
}

const RATES: [(&str, &str); 4] =
    [("one", "one by one"), ("callers", "64 callers"), ("bulk", "bulk of 1,000"), ("drain", "drain")];

/// The text between the markers.
#[must_use]
pub fn write(results: &Results, sizes: &Sizes, conditions: &Conditions) -> String {
    let mut page = String::new();
    let mut line = |text: &str| {
        page.push_str(text);
        page.push('\n');
    };
    line(&format!(
        "Measured on {} on {}, medians of {} rounds with their least and most in brackets; {}. {}.",
        conditions.date,
        conditions.machine,
        results.rounds,
        conditions.build,
        conditions.stores.join("; ")
    ));
    line("");
    for store in Store::ALL {
        let systems = results.on(store);
        if systems.is_empty() {
            continue;
        }
        line(&format!("### {}", store.title()));
        line("");
        rates(results, store, &systems, &mut line);
        checks(results, sizes, &systems, &mut line);
    }
    for chart in charts(results) {
        line(&format!("![{}](images/{})", chart.1.title, chart.0));
        line("");
    }
    line("### What was compared");
    line("");
    line("| system | versions | settings here | order per key | debounce | what is kept of finished work |");
    line("| --- | --- | --- | --- | --- | --- |");
    for text in &TEXTS {
        let Some(system) = SYSTEMS.iter().find(|system| system.id == text.id) else { continue };
        let versions = results.versions(system);
        line(&format!(
            "| {} | {versions} | {} | {} | {} | {} |",
            text.name, text.settings, text.order, text.debounce, text.history
        ));
    }
    line("");
    let failures = results.failures();
    if !failures.is_empty() {
        line("Rounds without an answer, which are left out of the medians:");
        line("");
        for failure in failures {
            line(&format!("- {failure}"));
        }
        line("");
    }
    page
}

/// Events per second, and how many times as many Quell has on the same store.
fn rates(results: &Results, store: Store, systems: &[&'static System], line: &mut impl FnMut(&str)) {
    let ours = SYSTEMS.iter().find(|system| system.id == store.quell());
    if store == Store::Own {
        line("Ratios are those of Quell on SQLite, measured in the same rounds.");
        line("");
    }
    line("| events/s | one by one | 64 callers | bulk of 1,000 | drain |");
    line("| --- | --- | --- | --- | --- |");
    for system in systems {
        if system.shape(Shape::Jobs).is_err() {
            continue;
        }
        let cells: Vec<String> = match results.missing(system, Shape::Jobs) {
            Some(reason) => std::iter::once(reason).chain(std::iter::repeat_n("–".to_owned(), 3)).collect(),
            None => RATES.iter().map(|(figure, _)| rate_cell(results, system, ours, figure)).collect(),
        };
        line(&format!("| {} | {} |", system.title, cells.join(" | ")));
    }
    line("");
}

fn rate_cell(results: &Results, system: &System, ours: Option<&System>, figure: &str) -> String {
    let Some(spread) = results.spread(system, Shape::Jobs, figure) else { return "–".to_owned() };
    let mut cell = with_range(&spread);
    if figure == "drain" {
        cell.push_str(&unfinished(results, system));
    }
    if let Some(ours) = ours.filter(|ours| ours.id != system.id)
        && let Some(times) = results.spread(ours, Shape::Jobs, figure).and_then(|our| our.times(&spread))
    {
        cell.push_str(&format!("; Quell {} ×", shown(times)));
    }
    cell
}

/// What a drain left undone, or did twice.
fn unfinished(results: &Results, system: &System) -> String {
    let rounds: Vec<(f64, f64, f64)> = results
        .answers(system, Shape::Jobs)
        .filter_map(|answer| {
            Some((answer.figure("appended")?, answer.figure("drained")?, answer.figure("distinct")?))
        })
        .collect();
    let finished = rounds.iter().filter(|(appended, drained, _)| drained >= appended).count();
    let mut said = String::new();
    let median = |of: fn(&(f64, f64, f64)) -> f64| Spread::of(rounds.iter().map(of).collect());
    if let (0, Some(appended), Some(drained)) = (finished, median(|round| round.0), median(|round| round.1)) {
        said.push_str(&format!("; {} of {} in its time", shown(drained.median), shown(appended.median)));
    } else if finished < rounds.len() {
        said.push_str(&format!("; finished in {finished} of {} rounds", rounds.len()));
    }
    if rounds.iter().any(|(_, drained, distinct)| distinct < drained) {
        said.push_str("; some twice");
    }
    said
}

fn with_range(spread: &Spread) -> String {
    format!("{} ({} – {})", shown(spread.median), shown(spread.least), shown(spread.most))
}

/// Keyed and burst, where being right comes before being quick.
fn checks(results: &Results, sizes: &Sizes, systems: &[&'static System], line: &mut impl FnMut(&str)) {
    let events = shown(sizes.keyed_events as f64);
    line(&format!(
        "| keyed: {events} events, {} keys, 1 ms | seconds | handled | overlaps | out of order |",
        sizes.keyed_keys
    ));
    line("| --- | --- | --- | --- | --- |");
    for system in systems {
        let cells = match results.missing(system, Shape::Keyed) {
            Some(reason) => format!("{reason} | – | – | –"),
            None => {
                let get = |figure: &str| results.spread(system, Shape::Keyed, figure);
                let handled = get("handled");
                let seconds = finished_seconds(results, sizes, system);
                let handled = handled.map_or("–".to_owned(), |spread| shown(spread.median));
                let at_most = |figure| get(figure).map_or("–".to_owned(), |spread| shown(spread.most));
                format!("{seconds} | {handled} | {} | {}", at_most("overlaps"), at_most("disorders"))
            }
        };
        line(&format!("| {} | {cells} |", system.title));
    }
    line("");
    let (keys, all) = (sizes.burst_keys, sizes.burst_keys * sizes.burst_rounds);
    let took = (sizes.burst_rounds as u64 * sizes.pace_ms) as f64 / 1_000.0;
    line(&format!(
        "| burst: {} keys × {} events in {} s | sent, in | runs (wanted {}) | events delivered | late p50 / p99, ms |",
        shown(keys as f64),
        sizes.burst_rounds,
        shown(took),
        shown(keys as f64)
    ));
    line("| --- | --- | --- | --- | --- |");
    for system in systems {
        if system.id == "graphile-worker-local" {
            continue;
        }
        let cells = match results.missing(system, Shape::Burst) {
            Some(reason) => format!("{reason} | – | – | –"),
            None => burst_cells(results, system, all),
        };
        line(&format!("| {} | {cells} |", system.title));
    }
    line("");
}

fn burst_cells(results: &Results, system: &System, all: usize) -> String {
    let get = |figure: &str| results.spread(system, Shape::Burst, figure);
    let median = |figure: &str| get(figure).map_or("–".to_owned(), |spread| shown(spread.median));
    let range = |figure: &str| {
        get(figure).map_or("–".to_owned(), |spread| {
            if spread.least == spread.most { shown(spread.median) } else { with_range(&spread) }
        })
    };
    let sent = get("sent").map_or(0.0, |spread| spread.median);
    let sent =
        if sent < all as f64 { format!("{} of {}", shown(sent), shown(all as f64)) } else { shown(sent) };
    format!(
        "{sent}, {} s | {} | {} | {} / {}",
        median("append_seconds"),
        range("runs"),
        range("delivered"),
        median("late_p50"),
        median("late_p99")
    )
}

/// The time of the rounds that came to their end, and how many did if not all.
fn finished_seconds(results: &Results, sizes: &Sizes, system: &System) -> String {
    let all: Vec<&Answer> = results.answers(system, Shape::Keyed).collect();
    let whole = |answer: &&&Answer| answer.figure("handled") >= Some(sizes.keyed_events as f64);
    let finished: Vec<f64> = all.iter().filter(whole).filter_map(|answer| answer.figure("seconds")).collect();
    let (count, limit) = (finished.len(), shown(sizes.keyed_ms as f64 / 1_000.0));
    match Spread::of(finished) {
        None => format!("not finished in {limit} s"),
        Some(spread) if count == all.len() => with_range(&spread),
        Some(spread) => format!("{}; finished in {count} of {} rounds", with_range(&spread), all.len()),
    }
}

/// The pictures and the names of their files.
#[must_use]
pub fn charts(results: &Results) -> Vec<(String, Chart)> {
    let mut charts = Vec::new();
    for (figure, what) in RATES {
        let title =
            if figure == "drain" { "Drain, no-op handler".to_owned() } else { format!("Append, {what}") };
        charts.push((
            format!("compare-{figure}.svg"),
            chart(results, Shape::Jobs, figure, &title, "events/s, more is better"),
        ));
    }
    charts.push((
        "compare-keyed.svg".to_owned(),
        chart(
            results,
            Shape::Keyed,
            "handled_per_second",
            "Keyed, strictly serial per key, 1 ms handler",
            "events/s, more is better",
        ),
    ));
    charts.push((
        "compare-burst.svg".to_owned(),
        chart(
            results,
            Shape::Burst,
            "delivered",
            "Burst, events that reached a handler",
            "of those offered, more is better",
        ),
    ));
    charts
}

fn chart(results: &Results, shape: Shape, figure: &str, title: &str, unit: &str) -> Chart {
    let bar = |system: &&'static System| {
        let spread = match figure {
            "handled_per_second" => handled_per_second(results, system),
            figure => results.spread(system, shape, figure),
        };
        let faults = |name: &str| results.spread(system, shape, name).is_some_and(|spread| spread.most > 0.0);
        let note = match (&spread, results.missing(system, shape)) {
            (_, Some(reason)) => reason,
            (None, None) => "not offered".to_owned(),
            (Some(_), None) if faults("overlaps") || faults("disorders") => "out of order".to_owned(),
            (Some(_), None) => String::new(),
        };
        Bar { label: system.title.replace(['*', '`'], ""), ours: system.is_quell(), spread, note }
    };
    let group = |store: Store| {
        let systems: Vec<&'static System> = results
            .on(store)
            .into_iter()
            .filter(|system| system.id != "graphile-worker-local" || shape == Shape::Keyed)
            .collect();
        let bars: Vec<Bar> = systems.iter().map(bar).collect();
        (!bars.is_empty()).then(|| Group { title: store.title().replace('`', ""), bars })
    };
    Chart {
        title: title.to_owned(),
        unit: unit.to_owned(),
        groups: Store::ALL.into_iter().filter_map(group).collect(),
    }
}

fn handled_per_second(results: &Results, system: &System) -> Option<Spread> {
    let answers = results.answers(system, Shape::Keyed);
    Spread::of(
        answers.filter_map(|answer| Some(answer.figure("handled")? / answer.figure("seconds")?)).collect(),
    )
}

/// A reason as part of a table.
fn in_a_cell(reason: &str) -> String {
    reason.replace('|', "/").replace(['\n', '\r'], " ")
}

/// The page with this text between its markers.
///
/// # Errors
///
/// When the page has not both markers, in their order.
pub fn put_into(page: &str, text: &str) -> anyhow::Result<String> {
    let begin = page.find(BEGIN).map(|at| at + BEGIN.len());
    let (Some(begin), Some(end)) = (begin, page.find(END)) else {
        anyhow::bail!("the page has no markers: it needs the lines {BEGIN} and {END}");
    };
    anyhow::ensure!(begin <= end, "the markers are in the wrong order");
    Ok(format!("{}\n\n{}\n\n{}", &page[..begin], text.trim(), &page[end..]))
}

/// Whether a run is worth writing down.
#[must_use]
pub fn worth_writing(rounds: usize, short: bool) -> bool {
    rounds >= limits::ROUNDS_WRITTEN && !short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg;
    use crate::systems::named;

    fn answer(figures: &[(&str, f64)]) -> Outcome {
        let figures = figures.iter().map(|(name, value)| ((*name).to_owned(), Some(*value))).collect();
        Ok(Answer { figures, versions: [("thing".to_owned(), "1.2".to_owned())].into() })
    }

    fn results() -> Results {
        let mut results = Results { rounds: 3, ..Results::default() };
        let mut add = |id, shape, outcome| results.add(named(id).unwrap(), shape, outcome);
        for one in [900.0, 1_000.0, 1_200.0] {
            let whole = [("appended", 20_000.0), ("drained", 20_000.0), ("distinct", 20_000.0)];
            add(
                "quell-postgres",
                Shape::Jobs,
                answer(&[&[("one", one), ("drain", 30_000.0)], &whole[..]].concat()),
            );
        }
        let keyed = [("handled", 10_000.0), ("overlaps", 0.0), ("disorders", 0.0), ("seconds", 0.5)];
        add("quell-postgres", Shape::Keyed, answer(&keyed));
        add(
            "pg-boss",
            Shape::Jobs,
            answer(&[
                ("one", 500.0),
                ("drain", 300.0),
                ("appended", 20_000.0),
                ("drained", 1_500.0),
                ("distinct", 1_500.0),
            ]),
        );
        add("pg-boss", Shape::Jobs, Err("no answer within 60 s".to_owned()));
        add(
            "pg-boss",
            Shape::Keyed,
            answer(&[("handled", 99.0), ("overlaps", 0.0), ("disorders", 7.0), ("seconds", 8.0)]),
        );
        let burst = [
            ("sent", 20_000.0),
            ("append_seconds", 2.0),
            ("runs", 3_900.0),
            ("delivered", 3_900.0),
            ("late_p50", 1.0),
            ("late_p99", 9.0),
        ];
        add("pg-boss", Shape::Burst, answer(&burst));
        add("procrastinate", Shape::Jobs, Err("not installed: a | b\nfailed".to_owned()));
        results
    }

    fn written() -> String {
        let conditions = Conditions {
            date: "a day".to_owned(),
            machine: "a machine".to_owned(),
            build: "a build".to_owned(),
            stores: vec!["a store".to_owned()],
        };
        write(&results(), &Sizes::default(), &conditions)
    }

    fn has(page: &str, line: &str) {
        assert!(page.lines().any(|of| of == line), "no line {line:?} in\n{page}");
    }

    #[test]
    fn a_figure_is_a_median_with_its_range_and_a_peer_has_the_ratio() {
        let page = written();
        has(&page, "| **Quell** | 1,000 (900 – 1,200) | – | – | 30,000 (30,000 – 30,000) |");
        has(
            &page,
            "| pg-boss | 500 (500 – 500); Quell 2 × | – | – | 300 (300 – 300); 1,500 of 20,000 in its time; Quell 100 × |",
        );
    }

    #[test]
    fn a_peer_that_failed_or_lacks_a_shape_has_a_row_that_says_so() {
        let page = written();
        has(&page, "| procrastinate | failed: not installed: a / b failed | – | – | – |");
        has(&page, "| procrastinate | no debounce | – | – | – |");
        has(&page, "- `pg-boss`, jobs: 1 of 2 rounds failed (no answer within 60 s)");
        let told = page.lines().filter(|line| line.starts_with("| huey |")).count();
        assert!(told <= 1, "a peer that was not chosen has no figures: {page}");
    }

    #[test]
    fn order_and_delivery_are_checked_beside_the_times() {
        let page = written();
        has(&page, "| **Quell** | 0.50 (0.50 – 0.50) | 10,000 | 0 | 0 |");
        has(&page, "| pg-boss | not finished in 3 s | 99 | 0 | 7 |");
        has(&page, "| pg-boss | 20,000, 2 s | 3,900 | 3,900 | 1 / 9 |");
    }

    #[test]
    fn pictures_have_a_bar_for_everyone_and_say_what_is_missing() {
        let charts = charts(&results());
        assert_eq!(charts.len(), 6);
        let (_, keyed) = charts.iter().find(|(name, _)| name == "compare-keyed.svg").unwrap();
        let drawn = svg::draw(keyed);
        assert!(drawn.contains("out of order") && drawn.contains(">20,000<"), "{drawn}");
        let (_, burst) = charts.iter().find(|(name, _)| name == "compare-burst.svg").unwrap();
        assert!(svg::draw(burst).contains("no debounce"));
    }

    #[test]
    fn the_text_replaces_what_is_between_the_markers_and_nothing_else() {
        let page = format!("# a\n{BEGIN}\nold\n{END}\nb\n");
        let once = put_into(&page, "new\n").unwrap();
        assert_eq!(once, format!("# a\n{BEGIN}\n\nnew\n\n{END}\nb\n"));
        assert_eq!(put_into(&once, "new\n").unwrap(), once);
        assert!(put_into("# a", "new").is_err());
        assert!(put_into(&format!("{END}{BEGIN}"), "new").is_err());
    }

    #[test]
    fn the_page_of_this_repository_has_its_markers() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks.md"))
            .unwrap();
        assert!(put_into(&page, "x").is_ok());
    }

    #[test]
    fn few_rounds_and_the_short_form_are_not_written_down() {
        assert!(worth_writing(5, false));
        assert!(!worth_writing(4, false) && !worth_writing(9, true));
    }
}
