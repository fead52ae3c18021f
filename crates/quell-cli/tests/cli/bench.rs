//! `quell bench` on real stores: what is asked for is measured, and nothing else is touched.

use quell_test_servers::{postgres_url, redis_url};

use crate::support::Folder;

#[test]
fn a_workload_is_measured_as_a_table_and_as_json() {
    let folder = Folder::new();
    folder.quell(&["bench", "start"]).ok().says("WORKLOAD").says("start latency p50").complains("SQLite 3");
    let figures = folder.json(&["bench", "start"]);
    assert_eq!(
        (&figures["items"][0]["workload"], &figures["items"][0]["unit"]),
        (&"start".into(), &"ms".into())
    );
    assert_eq!(figures["store"], "sqlite");
    assert!(figures["conditions"].as_str().unwrap().contains("synchronous = FULL"), "{figures}");
    folder.quell(&["bench", "everything"]).exits(2).complains("jobs, keyed, burst, start, timer");
    assert_eq!(std::fs::read_dir(folder.path("")).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn only_a_flag_names_the_store_that_is_measured() {
    let folder = Folder::with_config("store = \"postgres://nobody@localhost:1/nowhere\"\n");
    folder.quell(&["bench", "bloat"]).ok().complains("SQLite 3").complains("bloat: left out");
    let both = folder.quell(&["bench", "--store", "sqlite:quell.db", "--folder", "."]);
    both.exits(2).complains("--folder is for SQLite");
    folder.quell(&["bench", "start", "--store", "mysql://h"]).exits(2).complains("not a kind of store");
    folder.quell(&["bench", "start", "--store", "sqlite:mine.db"]).ok();
    assert!(!folder.path("mine.db").exists(), "a benchmark works beside the file and not in it");
}

#[test]
fn a_server_of_its_own_is_measured_over_http() {
    let folder = Folder::new();
    let figures = folder.json(&["bench", "--http", "--jobs", "640", "--waiting", "1000"]);
    let units: Vec<&str> =
        figures["items"].as_array().unwrap().iter().map(|f| f["unit"].as_str().unwrap()).collect();
    assert_eq!(units, ["events/s", "events/s", "×", "ms", "ms", "MB"], "{figures}");
}

#[test]
fn what_those_who_look_cost_is_measured() {
    let folder = Folder::new();
    let figures = folder.json(&["bench", "dashboard", "--jobs", "2560", "--waiting", "2000"]);
    let items = figures["items"].as_array().unwrap();
    let units: Vec<&str> = items.iter().map(|f| f["unit"].as_str().unwrap()).collect();
    assert_eq!(units, ["events/s", "events/s", "×", "ms", "ms"], "{figures}");
    assert!(items.iter().all(|item| item["value"].as_f64().unwrap() > 0.0), "{figures}");
}

#[test]
fn lanes_are_drained_by_one_two_and_four_processes() {
    let folder = Folder::new();
    let sqlite = format!("sqlite:{}", folder.path("quell.db").display());
    for store in [sqlite, postgres_url(), redis_url()] {
        let figures = folder.json(&["bench", "processes", "--process-lanes", "200", "--store", &store]);
        let rates: Vec<f64> =
            figures["items"].as_array().unwrap().iter().map(|item| item["value"].as_f64().unwrap()).collect();
        assert!(rates.len() == 3 && rates.iter().all(|rate| *rate > 0.0), "{figures}");
    }
    assert_eq!(std::fs::read_dir(folder.path("")).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn two_thousand_slow_heads_and_a_hundred_senders_of_bombs_keep_nobody_from_sending() {
    let folder = Folder::new();
    let figures = folder.json(&["bench", "siege", "--siege-seconds", "3"]);
    let items = figures["items"].as_array().unwrap();
    let of = |what: &str| {
        let found = items.iter().find(|item| item["what"].as_str().unwrap().starts_with(what));
        found.unwrap_or_else(|| panic!("no {what:?} in {figures}"))["value"].as_f64().unwrap()
    };
    // Each of the well-meaning was answered, or there would be no figures; how soon is for the benchmark to say.
    assert!(of("append p99 at") > 0.0 && of("append p99 beside") > 0.0);
    assert!(of("bombs that were sent, all refused") >= 100.0);
    // A hundred bodies of eight megabytes may be on their way at once; what they were to become would be many times that.
    let most = items.iter().find(|item| item["what"] == "memory of the server, at the most").unwrap();
    assert!(most["value"].as_f64().unwrap() < 1_000.0, "{figures}");
}

#[test]
fn a_hot_key_and_what_grows_are_measured_when_they_are_named_and_drawn() {
    let folder = Folder::new();
    let short = ["--hot-seconds", "1", "--hot-rate", "200", "--waiting", "1100", "--history", "300"];
    let small = ["--growth-events", "1280", "--process-lanes", "100", "--plot", "pictures"];
    let figures = folder.json(&[&["bench", "hot", "growth"], &short[..], &small[..]].concat());
    let items = figures["items"].as_array().unwrap();
    let of = |workload: &str| items.iter().filter(|item| item["workload"] == workload).count();
    for name in ["hot", "growth-lanes", "growth-sizes", "growth-payloads", "growth-workers", "growth-history"]
    {
        assert!(of(name) > 1, "{name}: {figures}");
    }
    let picture = std::fs::read_to_string(folder.path("pictures/growth-lanes-sqlite.svg")).unwrap();
    assert!(picture.contains("start latency p99 beside …, ms"), "{picture}");
}
