//! A short campaign per store: real processes, real faults, the whole history judged.
//!
//! What needs rights or programs that are missing is skipped by the command itself, with its reason; here it is printed and counted.

use serde_json::Value;

use crate::support::Folder;

/// Runs a campaign of a few seconds and holds what it says against what must be.
fn campaign(folder: &Folder, store: &str, more: &[&str]) -> Value {
    let common = ["torture", "--store", store, "--minutes", "0.12", "--seed", "7", "--bites", "1", "--json"];
    let ended = folder.quell(&[&common, more].concat());
    let said = ended.err.clone();
    println!("{said}");
    let answer = ended.ok().json();
    assert_eq!(answer["good"], true, "{answer}");
    let report = answer["report"].clone();
    assert_eq!(report["violations"], 0);
    for skipped in report["skipped"].as_array().unwrap() {
        println!("skipped: {skipped}");
        let reason = skipped["reason"].as_str().unwrap();
        assert!(said.contains(reason), "a skip is said: {reason}");
    }
    for name in ["acknowledged", "runs", "claims"] {
        assert!(report[name].as_u64().unwrap() > 0, "nothing happened: {report}");
    }
    assert!(report["faults"]["kill"].as_u64().unwrap() > 5, "{report}");
    report
}

/// Whether a fault was done, or was skipped because this machine cannot do it.
fn done_or_skipped(report: &Value, fault: &str) -> bool {
    let skipped = report["skipped"].as_array().unwrap().iter().any(|skipped| skipped["fault"] == fault);
    let done = report["faults"].as_object().unwrap().keys().any(|name| name.split(' ').next() == Some(fault));
    skipped || done
}

#[test]
fn processes_on_a_file_are_killed_stopped_and_lose_their_power_and_no_promise_is_broken() {
    let folder = Folder::new();
    let report =
        campaign(&folder, "sqlite:torture.db", &["--faults", "kill,zombie,fsync,full-disk,power-cut"]);
    assert!(done_or_skipped(&report, "power-cut"), "{report}");
    if report["faults"]["power-cut"].as_u64().is_some() {
        assert_eq!(report["bite"]["found"], 1, "without flushes a power cut loses something: {report}");
    }
    assert!(!folder.path("torture.db").exists(), "what was new is removed");
}

#[test]
fn processes_on_a_server_of_their_own_are_killed_and_cut_off_and_no_promise_is_broken() {
    for store in ["postgres:local", "redis:local"] {
        let report = campaign(&Folder::new(), store, &["--faults", "kill,zombie,tcp,power-cut"]);
        assert!(done_or_skipped(&report, "tcp"), "{report}");
        assert_eq!(report["skipped"][0]["fault"], "power-cut", "{report}");
    }
}

#[test]
fn a_store_with_data_is_not_tortured() {
    let folder = Folder::new();
    folder.send("chat", "ada", "1");
    let refused = folder.quell(&["torture", "--store", "sqlite:quell.db", "--minutes", "0.1"]).exits(4);
    assert!(refused.err.contains("is in use: it has 1 queues and has accepted 1 events"), "{}", refused.err);
    assert!(refused.err.contains("name a file that does not exist"), "{}", refused.err);
    folder.quell(&["torture", "--minutes", "0.1"]).exits(2).complains("torture needs --store");
}
