//! What is written of the metrics: the page is made of the tables, and whatever is shipped names only what there is.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use quell::observe::Metric;
use serde_json::{Value, json};

use super::alerts::promtool;
use crate::support::Folder;

const BEFORE: &str = "\
# Metrics

`GET /metrics`, Prometheus text. Labels are bounded: the first hundred queues of a process have their own name, all others are
`other`, and so it is with sources; keys, ids and tenants are never labels. Gauges of queues, sources and workers are read from the
store at the scrape, with a fixed number of reads however many keys there are; counters are those of the process that answers.

| name | kind | labels | meaning |
| --- | --- | --- | --- |
";
const AFTER: &str = "
What is worth an alarm is in [alerts.yml](../../deploy/prometheus/alerts.yml), a dashboard for Grafana in
[quell.json](../../deploy/grafana/quell.json), and both are explained in the [guide](../guide/telemetry.md).
";

fn tables() -> Vec<Metric> {
    [quell::observe::METRICS, quell_server::METRICS, quell_chat::METRICS].concat()
}

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every name of a metric in a text, without what the exporter adds to histograms.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
    let cut = |word: &str| {
        let ends = ["_bucket", "_sum", "_count"];
        ends.iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word).to_owned()
    };
    words.filter(|word| word.starts_with("quell_")).map(cut).collect()
}

#[test]
fn the_page_of_the_metrics_is_what_the_tables_say() {
    let row = |Metric { name, kind, labels, meaning }: &Metric| {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        format!("| `{name}` | {} | {} | {meaning} |\n", kind.as_str(), labels.join(", "))
    };
    let rows: String = tables().iter().map(row).collect();
    let (path, page) = (root().join("docs/reference/metrics.md"), format!("{BEFORE}{rows}{AFTER}"));
    if std::env::var_os("QUELL_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(
        written == page,
        "docs/reference/metrics.md is not what the tables say; QUELL_WRITE_REFERENCE=1 writes it anew"
    );
}

#[test]
fn rules_and_dashboard_name_only_metrics_that_there_are() {
    let known: BTreeSet<String> = tables().iter().map(|metric| metric.name.to_owned()).collect();
    for file in ["deploy/prometheus/alerts.yml", "deploy/grafana/quell.json", "docs/guide/telemetry.md"] {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        let unknown: Vec<String> = named(&text).difference(&known).cloned().collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
}

/// A name that is counted somewhere and described nowhere would be missing on the page.
#[test]
fn what_is_counted_is_what_is_described() {
    let known: BTreeSet<String> = tables().iter().map(|metric| metric.name.to_owned()).collect();
    let mut counted = BTreeSet::new();
    for folder in ["crates/quell/src", "crates/quell-server/src", "apps/quell-chat/src"] {
        sources(&root().join(folder), &mut |line| counted.extend(named(line)));
    }
    assert_eq!(counted, known);
}

fn sources(folder: &Path, each: &mut impl FnMut(&str)) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, each);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let counts = |line: &&str| line.contains("!(\"quell_") || line.contains("set(\"quell_");
            text.lines().filter(counts).for_each(&mut *each);
        }
    }
}

/// As rules that only record, so that promtool reads them: what Grafana puts in place of its variables is put there before.
#[test]
fn every_panel_of_the_dashboard_explains_itself_and_asks_what_prometheus_understands() {
    let text = std::fs::read_to_string(root().join("deploy/grafana/quell.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(dashboard["templating"]["list"][0]["type"], "datasource");
    let panels = dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row");
    let mut rules = Vec::new();
    for panel in panels {
        assert!(panel["description"].as_str().is_some_and(|text| text.len() > 30), "{panel:#}");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel:#}");
        for target in panel["targets"].as_array().unwrap() {
            let asked = target["expr"].as_str().unwrap().replace("$__rate_interval", "5m");
            rules.push(json!({ "record": format!("asked:{}", rules.len()), "expr": asked }));
        }
    }
    assert!(rules.len() > 20, "{}", rules.len());
    let folder = Folder::new();
    folder.write("rules.yml", &json!({ "groups": [{ "name": "dashboard", "rules": rules }] }).to_string());
    let answer = promtool().args(["check", "rules"]).arg(folder.path("rules.yml")).output().unwrap();
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
}
