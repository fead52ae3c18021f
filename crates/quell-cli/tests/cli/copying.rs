//! Everything from one store to another by the real command, also when it is killed in the middle.

use crate::support::{Folder, Process, items, until};

const CONFIG: &str = "[worker]\ngrace = \"100ms\"\n[queues.jobs]\nwindow = \"none\"\n[queues.chat]\nwindow = { quiet = \"1h\" }\n\
    [queues.bad]\nwindow = \"none\"\nhandler = { exec = [\"false\"] }\nretry = { attempts = 1 }\n";

fn fill(folder: &Folder, keys: usize) {
    let line = |n: usize| format!("{{\"key\":\"k{n}\",\"payload\":{{\"n\":{n}}},\"id\":\"m{n}\"}}\n");
    let lines: String = (0..keys).map(line).collect();
    folder.quell_with(&["send", "chat", "--bulk", "-"], &lines).ok();
    folder.quell_with(&["send", "jobs", "--bulk", "-"], &(0..50).map(line).collect::<String>()).ok();
    folder.send("bad", "k", "1");
    folder.quell(&["work", "--until-idle", "--queue", "jobs", "--queue", "bad"]).ok();
    folder.quell(&["send", "jobs", "later", "1", "--delay", "1h"]).ok();
    folder.quell(&["pause", "jobs"]).ok();
}

/// One fact of a file, straight from it.
fn fact(folder: &Folder, file: &str, sql: &str) -> Option<String> {
    let connection = rusqlite::Connection::open_with_flags(
        folder.path(file),
        rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX,
    );
    connection.ok()?.query_row(sql, [], |row| row.get(0)).ok()
}

#[test]
fn a_store_moves_with_everything_and_the_old_one_says_so() {
    let folder = Folder::with_config(CONFIG);
    fill(&folder, 200);
    let latest = folder.send("chat", "k0", "0")["seq"].as_u64();
    let before = folder.json(&["doctor"]);
    let moved = ["--store", "sqlite:new.db"];
    let on_copy = |args: &[&str]| folder.json(&[args, moved.as_slice()].concat());
    folder
        .quell(&["store", "copy", "sqlite:quell.db", "sqlite:new.db"])
        .ok()
        .says("copied sqlite:quell.db to sqlite:new.db")
        .says("verified: both sides are the same")
        .complains("start workers and senders with --store sqlite:new.db");
    assert_eq!(on_copy(&["doctor"])["queues"], before["queues"]);
    assert_eq!(on_copy(&["doctor"])["ok"], true);
    for listing in [["runs", "--state=succeeded", "--limit=500"].as_slice(), &["audit", "--limit=500"]] {
        assert!(items(&on_copy(listing)) == items(&folder.json(listing)), "{listing:?} differs");
        assert!(items(&on_copy(listing)).len() >= 50);
    }
    assert_eq!(items(&on_copy(&["dead"])).len(), 1);

    folder
        .quell(&["send", "chat", "k1", "1"])
        .exits(5)
        .complains("the store was sealed by a copy to sqlite:")
        .complains("lift the seal with `quell store unseal --force`");
    folder.quell(&["doctor"]).ok().says("the store is sealed");
    let again =
        folder.quell(&[&["send", "chat", "k1", "{\"n\":1}", "--id", "m1"], moved.as_slice()].concat());
    again.ok().says("already there: m1");
    let sent = on_copy(&["send", "chat", "k1", "2"]);
    assert!(latest.is_some() && sent["seq"].as_u64() > latest, "numbers go on: {sent}");

    // It is not copied twice, nor onto something.
    folder.quell(&["store", "copy", "quell.db", "third.db"]).exits(4).complains("cannot be copied");
    folder.quell(&["store", "copy", "new.db", "quell.db"]).exits(4).complains("is not empty");
    folder
        .quell(&["store", "copy", "new.db", "./new.db"])
        .exits(4)
        .complains("both the source and the target");
    folder.quell(&["store", "copy", "nothing.db", "x.db"]).exits(5).complains("there is no store");
    folder.quell(&["store", "copy", "oracle:x", "y.db"]).exits(2).complains("not a kind of store");
    let secret = folder.quell(&["store", "copy", "new.db", "postgres://me:secret@127.0.0.1:1/db"]);
    assert!(secret.code != 0 && !secret.err.contains("secret"), "{secret:?}");
    assert_eq!(on_copy(&["doctor"])["ok"], true);
}

#[test]
fn a_seal_keeps_a_store_as_it_is_until_it_is_lifted_by_force() {
    let folder = Folder::with_config(CONFIG);
    folder.send("chat", "ada", "1");
    folder.quell(&["store", "seal", "quell.db", "--actor", "ada"]).ok().says("sealed quell.db");
    folder.quell(&["store", "seal", "quell.db"]).exits(4).complains("sealed already, by ada");
    folder.quell(&["send", "chat", "ada", "2"]).exits(5).complains("sealed by ada");
    folder.quell(&["pause", "chat"]).exits(5).complains("sealed by ada");
    assert_eq!(folder.json(&["lane", "chat", "ada"])["buffered"], 1, "reads go on");
    folder.quell(&["store", "unseal", "quell.db"]).exits(4).complains("--force");
    let lifted = folder.json(&["store", "unseal", "quell.db", "--force"]);
    assert_eq!((&lifted["sealed_by"], &lifted["changed"]), (&"ada".into(), &true.into()));
    folder.quell(&["store", "unseal", "quell.db"]).ok().says("was not sealed");
    folder.send("chat", "ada", "2");
}

#[test]
fn a_copy_that_is_killed_goes_on_where_it_was() {
    let folder = Folder::with_config(CONFIG);
    fill(&folder, 4_000);
    let place = |sql: &str| fact(&folder, "new.db", sql);
    let mut reached = -1;
    for _ in 0..3 {
        let mut command = folder.command(&["store", "copy", "quell.db", "new.db"]);
        command.env("QUELL_LOG", "error");
        let copying = Process::start(command);
        let lane = "SELECT CAST(json_extract(copy_place, '$.lane') AS TEXT) FROM meta";
        until("a new place", || {
            let lane = place(lane).and_then(|text| text.parse().ok()).unwrap_or(-1);
            let further = lane > reached;
            reached = reached.max(lane);
            further
        });
        copying.signal(rustix::process::Signal::KILL);
        let (status, _) = copying.end();
        assert!(!status.success(), "it was killed before it was done");
    }
    assert!(place("SELECT copy_place FROM meta").is_some());
    folder.quell(&["store", "unseal", "new.db", "--force"]).exits(4).complains("half a store");
    let there: u64 = place("SELECT CAST(count(*) AS TEXT) FROM lane").unwrap().parse().unwrap();
    assert!(there > 0 && there < 4_000, "{there} lanes were copied before it was killed");
    let done = folder.json(&["store", "copy", "quell.db", "new.db"]);
    assert_eq!((&done["resumed"], &done["counts"]["lanes"]), (&true.into(), &4_051.into()), "{done}");
    let doctor = folder.json(&["doctor", "--store", "sqlite:new.db"]);
    assert_eq!(doctor["ok"], true, "{doctor}");
    assert_eq!(doctor["queues"], folder.json(&["doctor"])["queues"]);
}
