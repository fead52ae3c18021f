//! `quell simulate`: the scripts of `examples/simulate`, word for word, and what is said of scripts that are wrong.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{Folder, items};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/simulate")
}

/// What is printed for an example is kept beside it. To write it anew: QUELL_WRITE_REFERENCE=1.
fn shows_what_is_kept(name: &str) -> String {
    let folder = Folder::at(&examples());
    let shown = folder.quell(&["simulate", &format!("{name}.sim")]).ok().out;
    let kept = format!("{name}.txt");
    if std::env::var_os("QUELL_WRITE_REFERENCE").is_some() {
        folder.write(&kept, &shown);
    }
    assert_eq!(shown, folder.read(&kept), "examples/simulate/{kept}");
    shown
}

fn with_script(script: &str) -> Folder {
    let config = std::fs::read_to_string(examples().join("quell.toml")).unwrap();
    let folder = Folder::with_config(&config);
    folder.write("a.sim", script);
    folder
}

#[test]
fn a_burst_is_shown_with_the_reason_for_each_batch() {
    let shown = shows_what_is_kept("burst");
    for said in ["window restarted, due at 900ms", "quiet: quiet for 500ms", "cap: never quiet", "duplicate"]
    {
        assert!(shown.contains(said), "{said}: {shown}");
    }
}

#[test]
fn failures_are_shown_with_their_backoff_and_their_end() {
    let shown = shows_what_is_kept("failures");
    for said in ["attempt 1 of 3; again at", "it is in the dead letter", "redrive: put back to work by hand"]
    {
        assert!(shown.contains(said), "{said}: {shown}");
    }
}

#[test]
fn a_crash_a_pause_and_a_schedule_are_shown() {
    let shown = shows_what_is_kept("crash");
    for said in ["crashed", "lease lost", "pause_queue", "entered", "resume_queue"] {
        assert!(shown.contains(said), "{said}: {shown}");
    }
}

#[test]
fn a_source_that_breaks_down_holds_its_keys() {
    let shown = shows_what_is_kept("source");
    for said in ["probe_faulted", "disable_source", "enable_source"] {
        assert!(shown.contains(said), "{said}: {shown}");
    }
}

#[test]
fn nothing_is_stored_started_or_sent() {
    let folder = with_script("send orders/a\n");
    folder.quell(&["simulate", "a.sim"]).ok().complains("nothing was stored");
    let mut left: Vec<String> = std::fs::read_dir(folder.path("."))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["a.sim", "quell.toml"]);
}

#[test]
fn a_program_reads_the_same_as_json() {
    let folder = with_script("handler orders fails once\nsend orders/a x2 every 100ms\n");
    let told = folder.json(&["simulate", "a.sim", "--seed", "7"]);
    assert_eq!((&told["seed"], &told["nothing_is_lost"]), (&7.into(), &true.into()), "{told}");
    let what: Vec<&str> = items(&told).iter().map(|line| line["what"].as_str().unwrap()).collect();
    assert_eq!(what, ["started", "appended", "appended", "claimed", "retried", "claimed", "succeeded"]);
    let claimed = &items(&told)[3];
    assert_eq!((&claimed["at_ms"], &claimed["fired_by"]), (&600.into(), &"quiet".into()), "{claimed}");
    assert_eq!((&claimed["events"], &claimed["attempt"]), (&2.into(), &1.into()), "{claimed}");
    let sums = &told["queues"]["orders"];
    assert_eq!(
        (&sums["events"], &sums["batches"], &sums["retries"], &sums["wait_max_ms"]),
        (&2.into(), &2.into(), &1.into(), &600.into()),
        "{sums}"
    );
}

#[test]
fn the_same_seed_shows_the_same_and_another_one_another() {
    let script =
        "handler orders takes 10ms..900ms\nhandler orders fails 30%\nsend orders/a x30 every 700ms\n";
    let folder = with_script(script);
    let shown = |seed: &str| folder.quell(&["simulate", "a.sim", "--seed", seed]).ok().out;
    assert_eq!(shown("1"), shown("1"));
    assert_ne!(shown("1"), shown("2"));
}

#[test]
fn without_a_configuration_every_queue_has_the_defaults_and_a_script_may_come_from_a_pipe() {
    let folder = Folder::new();
    let shown = folder.quell_with(&["simulate", "-"], "send anything/a\n").ok();
    shown.says("quiet: quiet for 1s");
}

#[test]
fn what_is_left_in_the_end_is_told_with_its_reason() {
    let folder = with_script("pause orders\nsend orders/a\nuntil 1m\n");
    folder.quell(&["simulate", "a.sim"]).ok().says("still there: orders/a: ").says("paused");
    let told: Value = folder.json(&["simulate", "a.sim"]);
    assert_eq!(told["waiting"][0]["lane"], "orders/a", "{told}");
}

#[test]
fn a_mistake_in_a_script_is_named_with_its_line() {
    let cases = [
        (
            "send orders/a\nat 5s sned orders/a\n",
            "a.sim, line 2: \"sned\" is nothing that can happen",
            "help: ",
        ),
        (
            "send odrers/a\n",
            "a.sim, line 1: the configuration has no queue odrers",
            "it knows orders, reports",
        ),
        ("source shop disable\n", "a.sim, line 1: the configuration has no source shop", "[sources.shop]"),
        ("at 1s crash worker 4\n", "a.sim, line 1: there is no worker 4", "counted from 1"),
    ];
    for (script, said, help) in cases {
        let folder = with_script(script);
        folder.quell(&["simulate", "a.sim"]).exits(2).complains(said).complains(help);
    }
    with_script("").quell(&["simulate", "b.sim"]).exits(2).complains("the script b.sim cannot be read");
}

#[test]
fn a_load_is_planned_without_a_store_and_the_same_seed_plans_the_same() {
    let folder = Folder::new();
    let ask = |events: &str, more: &[&str]| {
        let command = ["simulate", "--capacity", "--kind", "postgres", "--events-per-minute", events];
        folder.json(&[&command[..], more].concat())["items"][0]["plan"].clone()
    };
    let one = ask("2e8", &[]);
    assert_eq!(one, ask("2e8", &[]));
    assert_ne!(one["late_p99_ms"], ask("2e8", &["--seed", "5"])["late_p99_ms"]);
    let databases = |plan: &Value| plan["databases"].as_f64().unwrap();
    let half = ask("1e8", &[]);
    assert!((1.9..=2.1).contains(&(databases(&one) / databases(&half))), "{one} {half}");
    let dear = ask("2e8", &["--cost", "store_append_event_us=10000"]);
    assert!(databases(&dear) > 10.0 * databases(&one), "{dear}");
    let shown = folder.quell(&["simulate", "--capacity"]).ok();
    shown.says("EVENTS A MINUTE").says("100,000,000").says("databases").says("the next limit");
}

#[test]
fn a_plan_that_makes_no_sense_is_refused() {
    let folder = Folder::new();
    folder.quell(&["simulate"]).exits(2).complains("SCRIPT");
    folder.quell(&["simulate", "a.sim", "--capacity"]).exits(2).complains("cannot be used with");
    folder.quell(&["simulate", "a.sim", "--burst", "5"]).exits(2).complains("cannot be used with");
    folder
        .quell(&["simulate", "--capacity", "--cost", "money=1"])
        .exits(2)
        .complains("store_append_event_us");
    folder.quell(&["simulate", "--capacity", "--events-per-minute", "0"]).exits(2).complains("more than 0");
    folder.quell(&["simulate", "--capacity", "--busy", "2"]).exits(2).complains("share of the time");
}
