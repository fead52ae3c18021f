//! Backup and restore of a store that is in use.

use std::collections::BTreeSet;

use crate::support::{Folder, items};

const CONFIG: &str = "[worker]\ngrace = \"100ms\"\n[queues.jobs]\nwindow = \"none\"\n[queues.chat]\nwindow = { quiet = \"1h\" }\n\
    [queues.slow]\nwindow = \"none\"\nhandler = { exec = [\"sleep\", \"20\"] }\n";

fn ids(folder: &Folder, file: &str) -> BTreeSet<String> {
    let file = rusqlite::Connection::open(folder.path(file)).unwrap();
    let mut statement = file.prepare("SELECT id FROM event").unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_backup_made_while_a_worker_runs_is_a_whole_store() {
    let folder = Folder::with_config(CONFIG);
    let worker = folder.start(&["work", "--queue", "jobs", "--queue", "slow"]).started();
    let lines: String = (0..2_000)
        .map(|n| format!("{{\"key\":\"k{}\",\"payload\":{n},\"id\":\"m{n}\"}}\n", n % 50))
        .collect();
    folder.quell_with(&["send", "chat", "--bulk", "-"], &lines).ok();
    folder.send("slow", "held", "1");
    let held = folder.until("a lease", &["lanes", "--running"], |page| !items(page).is_empty());
    let token = held["items"][0]["token"].as_u64().unwrap();

    // Work goes on meanwhile.
    let more: String = (0..2_000).map(|n| format!("{{\"key\":\"j{n}\",\"payload\":{n}}}\n")).collect();
    let sender = {
        let folder = Folder::at(&folder.path(""));
        std::thread::spawn(move || folder.quell_with(&["send", "jobs", "--bulk", "-"], &more).ok())
    };
    let made = folder.json(&["backup", "copy.db"]);
    sender.join().unwrap();
    assert_eq!(made["bytes"].as_u64(), std::fs::metadata(folder.path("copy.db")).ok().map(|meta| meta.len()));
    let after = folder.json(&["send", "chat", "after", "1", "--id", "after"]);
    folder.until("the rest", &["doctor"], |doctor| {
        let queues = doctor["queues"].as_array().unwrap();
        queues.iter().any(|queue| queue["queue"] == "jobs" && queue["succeeded"] == 2_000)
    });
    worker.stop();

    let restored = folder.quell(&["restore", "copy.db", "--store", "sqlite:second.db"]).ok();
    restored.says("restored sqlite:second.db from copy.db").complains("after the backup are not in it");
    let doctor = folder.json(&["doctor", "--store", "sqlite:second.db"]);
    assert_eq!(doctor["ok"], true, "{doctor}");
    folder.quell(&["doctor", "--store", "sqlite:second.db"]).ok().says("restored at");
    let kept = ids(&folder, "second.db");
    assert!((0..2_000).all(|n| kept.contains(&format!("m{n}"))), "what was acknowledged before is in it");
    assert!(!kept.contains("after"));

    // The lease of the old past is void, and no number comes again.
    assert_eq!(items(&folder.json(&["lanes", "--running", "--store", "sqlite:second.db"])).len(), 0);
    let audit = folder.quell(&["audit", "--queue", "slow", "--store", "sqlite:second.db"]).ok();
    audit.says("restored").says("is void");
    let sent = folder.json(&["send", "chat", "after", "1", "--store", "sqlite:second.db"]);
    assert!(sent["seq"].as_u64().unwrap() > after["seq"].as_u64().unwrap().max(token), "{sent} {after}");
    folder.quell(&["work", "--until-idle", "--queue", "jobs", "--store", "sqlite:second.db"]).ok();
    assert_eq!(folder.json(&["doctor", "--store", "sqlite:second.db"])["ok"], true);
}

#[test]
fn a_store_is_replaced_only_by_force_and_never_while_it_is_used() {
    let folder = Folder::with_config(CONFIG);
    folder.quell(&["send", "chat", "ada", "1", "--id", "old"]).ok();
    folder
        .quell(&["backup", "copy.db"])
        .ok()
        .says("backed up sqlite:./quell.db to copy.db")
        .complains("quell restore copy.db");
    folder.quell(&["send", "chat", "ada", "2", "--id", "new"]).ok();
    folder
        .quell(&["restore", "copy.db"])
        .exits(4)
        .complains("there is a store at sqlite:./quell.db")
        .complains("--force");

    let worker = folder.start(&["work"]).started();
    folder.quell(&["restore", "copy.db", "--force"]).exits(4).complains("is in use");
    assert!(ids(&folder, "quell.db").contains("new"));
    worker.stop();

    let done = folder.json(&["restore", "copy.db", "--force"]);
    let kept = done["kept"].as_str().unwrap().trim_start_matches("./").to_owned();
    assert_eq!(folder.json(&["lane", "chat", "ada"])["buffered"], 1);
    assert!(!ids(&folder, "quell.db").contains("new"));
    assert!(ids(&folder, &kept).contains("new"), "the store that was there is kept as {kept}");
}

#[test]
fn what_is_no_backup_or_no_place_for_one_is_refused() {
    let folder = Folder::with_config(CONFIG);
    folder.quell(&["backup", "copy.db"]).exits(5).complains("there is no store");
    folder.send("chat", "ada", "1");
    folder.write("letter.txt", "dear aunt");
    folder.quell(&["backup", "letter.txt"]).exits(4).complains("letter.txt already exists");
    folder.quell(&["backup", "no/such/folder.db"]).exits(5);
    assert_eq!(folder.read("letter.txt"), "dear aunt");
    let elsewhere = ["--store", "sqlite:second.db"];
    folder.quell(&[&["restore", "missing.db"], elsewhere.as_slice()].concat()).exits(3);
    let letter = folder.quell(&[&["restore", "letter.txt"], elsewhere.as_slice()].concat());
    assert!([4, 5].contains(&letter.code), "{letter:?}");
    folder
        .quell(&[&["restore", "quell.db"], elsewhere.as_slice()].concat())
        .exits(4)
        .complains("not a backup");
    assert!(!folder.path("second.db").exists());
    for command in [["backup", "copy.db"], ["restore", "quell.db"]] {
        let other = [command.as_slice(), &["--store", "postgres://me:secret@db/x"]].concat();
        let refused = folder.quell(&other).exits(2).complains("with its own tools");
        assert!(!refused.err.contains("secret"), "{}", refused.err);
    }
}
