//! The alert rules that are shipped, judged by promtool over what real servers answer on `/metrics`.
//!
//! A server is scraped when all is well and again in a state that is not. Both answers become the series of a test of
//! rules, with their true names, labels and values, as if Prometheus had scraped the second one for some minutes.

use std::collections::BTreeMap;
use std::process::Command;

use quell::clock::{RealTime, Time};
use serde_json::{Value, json};

use super::page::root;
use crate::support::{Folder, Process, http, until};

const RULES: [&str; 8] = [
    "QuellLeaseHeldLong",
    "QuellExpiredLeasesAtStart",
    "QuellAppendsMeetRunningLane",
    "QuellMoreRunningThanConcurrency",
    "QuellRunningWithoutHeartbeat",
    "QuellSourcePaused",
    "QuellOldestDue",
    "QuellEventsUnaccounted",
];

/// By the name of a series: its value.
type Scrape = BTreeMap<String, String>;

fn scrape(address: &str) -> Scrape {
    let (status, text) = http(address, "GET", "/metrics", None, "");
    assert_eq!(status, 200, "{text}");
    let target = "job=\"quell\",instance=\"here\"";
    let now = RealTime::new().wall().as_millis() / 1_000;
    let series = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        // The time of promtool's tests begins with the first sample, so moments are told by their distance from now.
        let moment = name.contains("_timestamp_seconds").then(|| value.parse::<f64>().unwrap() - now as f64);
        let name = match name.split_once('{') {
            Some((name, labels)) => format!("{name}{{{target},{labels}"),
            None => format!("{name}{{{target}}}"),
        };
        Some((name, moment.map_or_else(|| value.to_owned(), |moment| moment.to_string())))
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(series).collect()
}

/// Which rules fire when the first was scraped once and the second for the four minutes after it.
fn firing(folder: &Folder, before: &Scrape, after: &Scrape) -> Vec<&'static str> {
    let series = |(name, value): (&String, &String)| {
        let first = before.get(name).map_or("_", String::as_str);
        json!({ "series": name, "values": format!("{first} {value}+0x4") })
    };
    let series: Vec<Value> = after.iter().map(series).collect();
    let fires = |rule: &&str| {
        let expression = format!("count(ALERTS{{alertname=\"{rule}\",alertstate=\"firing\"}}) > bool 0");
        let test = json!({
            "rule_files": [root().join("deploy/prometheus/alerts.yml")],
            "evaluation_interval": "30s",
            "tests": [{
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": [{
                    "expr": expression, "eval_time": "4m", "exp_samples": [{ "labels": "{}", "value": 1 }],
                }],
            }],
        });
        folder.write("test.yml", &test.to_string());
        let answer = promtool().args(["test", "rules"]).arg(folder.path("test.yml")).output().unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&answer.stdout), String::from_utf8_lossy(&answer.stderr));
        assert!(answer.status.success() || said.contains("got:"), "promtool could not judge {rule}: {said}");
        answer.status.success()
    };
    RULES.into_iter().filter(fires).collect()
}

pub(super) fn promtool() -> Command {
    Command::new(quell_test_servers::promtool().unwrap_or_else(|e| panic!("{e}")))
}

fn post(address: &str, path: &str, body: &Value) -> Value {
    let (status, text) = http(address, "POST", path, None, &body.to_string());
    assert!(status < 300, "{status} {text}");
    serde_json::from_str(&text).unwrap()
}

fn send(address: &str, queue: &str, key: &str) {
    post(address, &format!("/v1/queues/{queue}/events"), &json!({ "key": key, "payload": 1 }));
}

fn claim(address: &str, queue: &str, lease_ms: u64) -> usize {
    let wish =
        json!({ "queues": [queue], "worker": "w", "max": 20, "lease_ms": lease_ms, "wait_ms": 20_000 });
    post(address, "/v1/claims", &wish)["claims"].as_array().unwrap().len()
}

/// What is done to a store behind its back, while nobody has it open.
fn by_hand(folder: &Folder, sql: &str) {
    rusqlite::Connection::open(folder.path("quell.db")).unwrap().execute_batch(sql).unwrap();
}

fn serve(folder: &Folder, args: &[&str]) -> (Process, String) {
    let mut serve = folder.start(&[&["serve"], args].concat());
    let address = serve.http_address();
    (serve, address)
}

#[test]
fn promtool_finds_no_fault_with_the_rules_and_the_test_knows_all_of_them() {
    let rules = root().join("deploy/prometheus/alerts.yml");
    let answer = promtool().args(["check", "rules"]).arg(&rules).output().unwrap();
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    let (text, guide) = (
        std::fs::read_to_string(&rules).unwrap(),
        std::fs::read_to_string(root().join("docs/guide/telemetry.md")).unwrap(),
    );
    let after = |word: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix(word));
        lines.map(|rest| rest.trim().to_owned()).collect()
    };
    assert_eq!(after("- alert:"), RULES);
    let anchor = |title: &str| title.to_ascii_lowercase().replace(' ', "-");
    let sections: Vec<String> =
        guide.lines().filter_map(|line| line.strip_prefix("### ").map(anchor)).collect();
    for book in after("runbook:") {
        let (file, section) = book.split_once('#').unwrap();
        assert_eq!(file, "docs/guide/telemetry.md");
        assert!(sections.iter().any(|known| known == section), "{section}: {sections:?}");
    }
    assert_eq!((after("summary:").len(), after("description:").len(), after("runbook:").len()), (8, 8, 8));
}

#[test]
fn a_server_at_work_fires_no_alert() {
    let folder =
        Folder::with_config("[queues.hello]\nwindow = \"none\"\n[sources.ebay]\nrate_limit_per_minute = 6\n");
    let (serve, address) = serve(&folder, &[]);
    send(&address, "hello", "k");
    let before = scrape(&address);
    for n in 0..20 {
        send(&address, "hello", &format!("k{n}"));
    }
    until("all of them are handled", || {
        let (_, text) = http(&address, "GET", "/v1/stats", None, "");
        text.contains("\"succeeded\":21")
    });
    until("its worker has told of itself", || {
        scrape(&address)
            .iter()
            .any(|(name, value)| name.starts_with("quell_workers_concurrency") && value == "20")
    });
    assert_eq!(firing(&folder, &before, &scrape(&address)), [""; 0]);
    serve.stop();
}

#[test]
fn every_rule_fires_on_a_server_that_is_in_the_state_it_is_about() {
    let pulled = "window = \"none\"\nhandler = \"pull\"\n";
    let queues = ["held", "silent", "late", "broken", "stray"];
    let all = |of: &dyn Fn(&str) -> String| -> String { queues.iter().map(|name| of(name)).collect() };
    let folder = Folder::with_config(&all(&|name| format!("[queues.{name}]\n{pulled}")));
    let (first, address) = serve(&folder, &["--no-work"]);
    send(&address, "held", "k");
    assert_eq!(claim(&address, "held", 3_600_000), 1);
    send(&address, "stray", "k");
    assert_eq!(claim(&address, "stray", 3_600_000), 1);
    for n in 0..11 {
        send(&address, "silent", &format!("k{n}"));
    }
    assert_eq!(claim(&address, "silent", 1_000), 11);
    send(&address, "late", "k");
    send(&address, "broken", "k");
    first.stop();

    // Ten minutes later by the store's clock; somebody has miscounted, and one of the queues is not pulled any more.
    by_hand(&folder, "UPDATE meta SET clock_offset = clock_offset + 600000");
    by_hand(&folder, "UPDATE queue SET succeeded = succeeded + 1 WHERE name = 'broken'");
    let stray = |name: &str| if name == "stray" { "window = \"none\"\n" } else { pulled };
    let sections = all(&|name| format!("[queues.{name}]\n{}", stray(name)));
    folder.write("quell.toml", &format!("{sections}[sources.ebay]\nrate_limit_per_minute = 6\n"));
    folder.quell(&["sources", "put", "ebay", "--rate-limit-per-minute", "6"]).ok();
    folder.quell(&["sources", "disable", "ebay"]).ok();
    let (second, address) = serve(&folder, &["--no-work"]);
    send(&address, "held", "k");
    let before = scrape(&address);
    for _ in 0..12 {
        send(&address, "held", "k");
    }
    let mut fired = firing(&folder, &before, &scrape(&address));
    second.stop();

    // Workers come back and find what the others left.
    let (third, address) = serve(&folder, &[]);
    let third = third.started();
    let after = scrape(&address);
    fired.extend(
        firing(&folder, &after, &after).into_iter().filter(|rule| *rule == "QuellExpiredLeasesAtStart"),
    );
    third.stop();
    fired.sort_by_key(|rule| RULES.iter().position(|known| known == rule));
    assert_eq!(fired, RULES);
}
