//! `quell doctor`: what it finds, and that it says what to do about it.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::support::Folder;

const CONFIG: &str = "[queues.chat]\nwindow = \"none\"\n[queues.jobs]\n";

fn findings(folder: &Folder) -> Vec<Value> {
    let doctor = folder.json(&["doctor"]);
    let found = doctor["findings"].as_array().unwrap().clone();
    for finding in &found {
        assert!(finding["fix"].as_str().is_some_and(|fix| !fix.is_empty()), "{finding} helps nobody");
    }
    found
}

fn says(found: &[Value], texts: &[&str]) -> bool {
    found.iter().any(|finding| texts.iter().all(|text| finding["text"].as_str().unwrap().contains(text)))
}

#[test]
fn a_well_store_has_no_finding_and_its_facts_are_told() {
    let folder = Folder::with_config(CONFIG);
    folder.send("chat", "ada", "1");
    assert_eq!(findings(&folder), Vec::<Value>::new());
    let doctor = folder.quell(&["doctor"]).ok();
    for fact in
        ["version", "durability", "store time", "journal mode", "wal size", "file mode", "disk", "workers"]
    {
        assert!(doctor.out.contains(fact), "{fact}: {}", doctor.out);
    }
}

#[test]
fn a_file_that_others_can_read_is_found_with_the_command_that_mends_it() {
    let folder = Folder::with_config(CONFIG);
    folder.send("chat", "ada", "1");
    std::fs::set_permissions(folder.path("quell.db"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let found = findings(&folder);
    assert!(says(&found, &["mode 644", "others can read"]), "{found:?}");
    folder.quell(&["doctor"]).ok().says("warning").says("fix chmod 600");
}

#[test]
fn processes_with_different_settings_are_named_with_their_queue() {
    let folder = Folder::with_config(CONFIG);
    folder.write("other.toml", "[queues.chat]\nwindow = { quiet = \"9s\" }\n[queues.jobs]\n");
    folder.send("chat", "ada", "1");
    let one = folder.start(&["work"]).started();
    let pid = |process: &crate::support::Process| format!("(pid {})", process.pid());
    folder.until("the first one", &["doctor"], |doctor| doctor["workers"] == 1);
    assert_eq!(findings(&folder), Vec::<Value>::new(), "one process, and the file that it has read");

    let other = folder.start(&["work", "--config", "other.toml"]).started();
    folder.until("both", &["doctor"], |doctor| doctor["workers"] == 2);
    let found = findings(&folder);
    assert!(says(&found, &["queue chat", "different settings", &pid(&one), &pid(&other)]), "{found:?}");
    assert!(!says(&found, &["queue jobs"]), "{found:?}");

    // The other one ends; now the file changes, and nobody has read it again.
    other.stop();
    folder.until("one", &["doctor"], |doctor| doctor["workers"] == 1);
    folder.write("quell.toml", "[queues.chat]\nwindow = { quiet = \"3s\" }\n[queues.jobs]\n");
    let found = findings(&folder);
    assert!(says(&found, &["queue chat", "the file here", &pid(&one)]), "{found:?}");
    one.signal(rustix::process::Signal::HUP);
    folder.until("the reload", &["doctor"], |doctor| doctor["findings"].as_array().unwrap().is_empty());
    one.stop();
}
