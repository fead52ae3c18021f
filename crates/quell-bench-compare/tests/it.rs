//! The runner and Quell's own driver as processes, on a real store and without anything to download.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::path::Path;
use std::process::{Command, Output};

use quell_bench_compare::answer::{self, Answer};
use quell_bench_compare::sizes::Sizes;
use quell_test_servers::{postgres_url, redis_url};

fn sizes() -> Sizes {
    Sizes {
        jobs: 512,
        one_ms: 50,
        keyed_events: 60,
        keyed_keys: 6,
        burst_keys: 5,
        burst_rounds: 3,
        ..Sizes::short()
    }
}

fn program(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quell-bench-compare")).args(arguments).output().unwrap()
}

fn driven(shape: &str, address: &str) -> Answer {
    let sizes = serde_json::to_string(&sizes()).unwrap();
    let output = program(&["quell", shape, address, &sizes]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    answer::read(&String::from_utf8_lossy(&output.stdout)).unwrap()
}

fn text(folder: &Path) -> &str {
    folder.to_str().unwrap()
}

#[test]
fn quell_answers_the_protocol_of_drivers_on_every_store() {
    let folder = tempfile::tempdir().unwrap();
    for address in [text(folder.path()), &postgres_url(), &redis_url()] {
        let jobs = driven("jobs", address);
        for rate in ["one", "callers", "bulk", "drain"] {
            assert!(jobs.figure(rate).is_some_and(|rate| rate > 0.0), "{rate}: {jobs:?}");
        }
        assert_eq!((jobs.figure("drained"), jobs.figure("distinct")), (Some(512.0), Some(512.0)));

        let keyed = driven("keyed", address);
        let checked = ["handled", "overlaps", "disorders"].map(|name| keyed.figure(name));
        assert_eq!(checked, [Some(60.0), Some(0.0), Some(0.0)]);
        assert!(keyed.figure("seconds").is_some());

        let burst = driven("burst", address);
        let counted = ["sent", "runs", "delivered"].map(|name| burst.figure(name));
        assert_eq!(counted, [Some(15.0), Some(5.0), Some(15.0)]);
        assert!(burst.figure("late_p99").is_some());
        assert!(burst.versions.contains_key("Quell"));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the driver leaves nothing behind");
}

#[test]
fn a_whole_run_prints_the_tables_of_what_was_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let run =
        ["--short", "--rounds", "2", "--system", "quell-sqlite", "--shape", "keyed", "--keyed-events", "50"];
    let output = program(&[&run[..], &["--inside", text(folder.path())]].concat());
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains("medians of 2 rounds"), "{printed}");
    let row = printed
        .lines()
        .find(|line| line.starts_with("| **Quell** | 0."))
        .unwrap_or_else(|| panic!("{printed}"));
    assert!(row.ends_with(" | 50 | 0 | 0 |"), "{row}");
    assert!(
        printed.contains("| **Quell** | not run | – | – | – |"),
        "a shape that was not chosen is said: {printed}"
    );
    assert_eq!(std::fs::read_dir(folder.path().join("data")).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_done_is_refused_with_the_choices() {
    for (arguments, told) in [
        (&["--system", "kafka"][..], "choose from quell-sqlite, huey"),
        (&["--shape", "tps"][..], "choose from jobs, keyed, burst"),
        (&["--short", "--write"][..], "five rounds at least"),
    ] {
        let output = program(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(told), "{arguments:?}: {said}");
    }
}
