//! Several databases as one store, by the real command: `--store a,b`, `store = [..]`, and `quell store move`.

use serde_json::Value;

use crate::support::{Folder, Process, items, until};

const ONE: &str = "sqlite:one.db";
const TWO: &str = "sqlite:a.db,sqlite:b.db";
const THREE: &str = "sqlite:c.db,sqlite:d.db,sqlite:e.db";

const CONFIG: &str = "store = [\"sqlite:a.db\", \"sqlite:b.db\"]\n[worker]\ngrace = \"100ms\"\n\
    [queues.jobs]\nwindow = \"none\"\n[queues.more]\nwindow = \"none\"\n[queues.chat]\nwindow = { quiet = \"1h\" }\n\
    [queues.bad]\nwindow = \"none\"\nhandler = { exec = [\"false\"] }\nretry = { attempts = 1 }\n";

fn lines(keys: usize) -> String {
    let line = |n: usize| format!("{{\"key\":\"k{n}\",\"payload\":{{\"n\":{n}}},\"id\":\"m{n}\"}}\n");
    (0..keys).map(line).collect()
}

fn fill(folder: &Folder, store: &str, keys: usize) {
    folder.quell_with(&["send", "chat", "--bulk", "-", "--store", store], &lines(keys)).ok();
    folder.quell_with(&["send", "jobs", "--bulk", "-", "--store", store], &lines(50)).ok();
    folder.quell_with(&["send", "bad", "--bulk", "-", "--store", store], &lines(4)).ok();
    let work = ["work", "--until-idle", "--queue", "jobs", "--queue", "bad", "--store", store];
    folder.quell(&work).ok();
    folder.quell(&["send", "jobs", "later", "1", "--delay", "1h", "--store", store]).ok();
    folder.quell(&["pause", "jobs", "--store", store]).ok();
}

/// What is in a store, as its doctor and its listings tell it.
fn told(folder: &Folder, store: &str) -> Value {
    let ask = |args: &[&str]| folder.json(&[args, &["--store", store]].concat());
    let doctor = ask(&["doctor"]);
    assert_eq!(doctor["ok"], true, "{doctor}");
    let keys = |listing: &Value| {
        let mut keys: Vec<String> =
            items(listing).iter().map(|row| format!("{} {}", row["queue"], row["key"])).collect();
        keys.sort();
        keys
    };
    let mut queues = doctor["queues"].as_array().unwrap().clone();
    queues.sort_by_key(|queue| queue["queue"].to_string());
    let (lanes, dead) = (ask(&["lanes", "--limit", "500"]), ask(&["dead"]));
    serde_json::json!({ "queues": queues, "lanes": keys(&lanes), "dead": keys(&dead) })
}

#[test]
fn two_files_are_one_store_and_half_of_it_is_refused() {
    let folder = Folder::with_config(CONFIG);
    folder.quell_with(&["send", "jobs", "--bulk", "-"], &lines(40)).ok();
    let lanes = folder.json(&["lanes", "--limit", "500"]);
    assert_eq!(items(&lanes).len(), 40);
    // Both have some of it.
    for file in ["a.db", "b.db"] {
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let file = rusqlite::Connection::open_with_flags(folder.path(file), flags).unwrap();
        let lanes: i64 = file.query_row("SELECT count(*) FROM lane", [], |row| row.get(0)).unwrap();
        assert!((5..36).contains(&lanes), "{lanes} of 40 lanes are here");
    }
    folder.quell_with(&["send", "jobs", "--bulk", "-"], &lines(40)).ok().says("40 already there");
    folder.quell(&["work", "--until-idle"]).ok();
    let runs = folder.json(&["runs", "--state=succeeded", "--limit", "500"]);
    assert_eq!(items(&runs).len(), 40);
    let one = items(&runs)[7]["id"].as_str().unwrap().to_owned();
    assert_eq!(folder.json(&["run", &one])["state"], "succeeded");
    folder
        .quell(&["lanes", "--store", "sqlite:a.db"])
        .exits(5)
        .complains("the list names 1 of the 2 databases of this store; missing: ");
    folder.quell(&["lanes", "--store", "sqlite:b.db,sqlite:a.db"]).ok();
    folder.send("jobs", "alone", "1");
    folder.quell(&["send", "jobs", "x", "1", "--store", ONE]).ok();
    folder
        .quell(&["send", "jobs", "x", "1", "--store", "sqlite:a.db,sqlite:b.db,sqlite:one.db"])
        .exits(5)
        .complains("databases are added with `quell store move`");
}

#[test]
fn a_store_is_moved_from_one_file_to_two_and_on_to_three() {
    let folder = Folder::with_config(CONFIG);
    fill(&folder, ONE, 200);
    let before = told(&folder, ONE);
    let moved = folder.json(&["store", "move", ONE, TWO]);
    assert_eq!((&moved["action"], &moved["counts"]["lanes"]), (&"move".into(), &254.into()), "{moved}");
    assert!(told(&folder, TWO) == before, "the two files tell something else");
    folder.quell(&["send", "chat", "k1", "1", "--store", ONE]).exits(5).complains("sealed by a copy to");
    // Ids are known, numbers go on, and there is work to be done.
    let again = ["send", "chat", "k1", "{\"n\":1}", "--id", "m1", "--store", TWO];
    folder.quell(&again).ok().says("already there: m1");
    folder.quell_with(&["send", "more", "--bulk", "-", "--store", TWO], &lines(60)).ok();
    folder.quell(&["work", "--until-idle", "--queue", "more", "--store", TWO]).ok();

    let before = told(&folder, TWO);
    folder.quell(&["store", "move", TWO, THREE]).ok().says("verified: both sides are the same");
    assert!(told(&folder, THREE) == before, "the three files tell something else");
    folder.quell(&["store", "move", THREE, "sqlite:c.db,sqlite:f.db"]).exits(4).complains("is on both sides");
}

#[test]
fn a_move_that_is_killed_goes_on_where_it_was() {
    let folder = Folder::with_config(CONFIG);
    fill(&folder, ONE, 4_000);
    let before = told(&folder, ONE);
    let place = || {
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let file = rusqlite::Connection::open_with_flags(folder.path("a.db"), flags).ok()?;
        let sql = "SELECT json_extract(copy_place, '$.lane') FROM meta";
        file.query_row(sql, [], |row| row.get::<_, Option<i64>>(0)).ok().flatten()
    };
    let mut reached = -1;
    for _ in 0..3 {
        let moving = Process::start(folder.command(&["store", "move", ONE, TWO]));
        until("a new place", || {
            let further = place().is_some_and(|lane| lane > reached);
            reached = reached.max(place().unwrap_or(-1));
            further
        });
        moving.signal(rustix::process::Signal::KILL);
        assert!(!moving.end().0.success(), "it was killed before it was done");
    }
    folder.quell(&["lanes", "--store", TWO]).exits(5);
    let done = folder.json(&["store", "move", ONE, TWO]);
    assert_eq!((&done["resumed"], &done["counts"]["lanes"]), (&true.into(), &4_054.into()), "{done}");
    let after = told(&folder, TWO);
    assert_eq!((&after["queues"], &after["dead"]), (&before["queues"], &before["dead"]));
}
