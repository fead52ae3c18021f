//! The operator's hand: redrive, cancel, purge, and single events.

use std::io::{Read, Write};
use std::process::Stdio;

use serde_json::Value;

use crate::support::{Folder, items, until};

/// Everything fails until there is a file `mended`; what is handled then is written down, one line per batch.
const CONFIG: &str = r#"
[queues.jobs]
window = "none"
max_events = 1
handler = { exec = ["/bin/sh", "handle.sh"] }
[queues.batches]
window = "none"
handler = { exec = ["/bin/sh", "handle.sh"] }
[queues.chat]
window = { quiet = "1h" }
"#;

fn folder() -> Folder {
    let folder = Folder::with_config(CONFIG);
    folder.write("handle.sh", "[ -e mended ] || { echo broken >&2; exit 65; }\ncat >> seen; echo >> seen");
    folder
}

fn work(folder: &Folder) {
    folder.quell(&["work", "--until-idle"]).ok();
}

fn dead(folder: &Folder) -> Vec<Value> {
    items(&folder.json(&["dead"])).to_vec()
}

/// The ids of all events that were handled, in order.
fn handled(folder: &Folder) -> Vec<String> {
    let seen = folder.read("seen");
    let batches =
        seen.lines().filter(|line| !line.is_empty()).map(|line| serde_json::from_str::<Value>(line).unwrap());
    let ids = |batch: Value| {
        let events = batch["events"].as_array().cloned().unwrap_or_default();
        events.into_iter().map(|event| event["id"].as_str().unwrap().to_owned())
    };
    batches.flat_map(ids).collect()
}

#[test]
fn a_dead_run_is_redriven_and_really_processed_again() {
    let folder = folder();
    for id in ["a", "b", "c"] {
        folder.quell(&["send", "batches", "ada", "1", "--id", id]).ok();
    }
    work(&folder);
    let run = dead(&folder)[0]["id"].as_str().unwrap().to_owned();
    folder.write("mended", "");

    let one = folder.quell(&["redrive", &run, "--event", "b"]).ok();
    one.says(&format!("redriven {run} of batches/ada: 1 event in run_"));
    folder.quell(&["redrive", &run, "--event", "b"]).ok().says("nothing to do, its events went into run_");
    folder.quell(&["redrive", &run, "--event", "z"]).exits(3).complains("never had an event z");
    work(&folder);
    assert_eq!(handled(&folder), ["b"]);

    let rest = folder.json(&["redrive", &run, "--actor", "ops"]);
    assert_eq!((&rest["runs"], &rest["events"]), (&1.into(), &2.into()), "{rest}");
    let into = rest["items"][0]["into"].as_str().unwrap().to_owned();
    work(&folder);
    assert_eq!(handled(&folder), ["b", "a", "c"]);
    assert!(dead(&folder).is_empty());
    assert!(items(&folder.json(&["dead", "--key", "ada"])).is_empty(), "redriven is not dead any more");
    folder
        .quell(&["run", &into])
        .ok()
        .says("succeeded, 2 events")
        .says("redriven from  ")
        .says("fired by       redrive");
    folder.quell(&["run", &run]).ok().says("failed, 0 events").says(&format!("redriven into  {into}"));
    folder.quell(&["audit", "--run", &into]).ok().says("redriven").says("OTHER RUN").says(&run).says("ops");

    let again = folder.json(&["redrive", &run]);
    assert_eq!((&again["runs"], &again["items"][0]["changed"]), (&0.into(), &false.into()));
    folder.quell(&["redrive", &into]).ok().says("nothing to do, it succeeded");
    folder.quell(&["redrive", "run_zz_zz"]).exits(3).complains("there is no run");
    folder.quell(&["redrive"]).exits(2);
    assert_eq!(handled(&folder).len(), 3, "repeating did nothing");
}

#[test]
fn a_run_can_go_back_as_new_events() {
    let folder = folder();
    let first = folder.json(&["send", "batches", "ada", "1", "--id", "a"]);
    work(&folder);
    let run = dead(&folder)[0]["id"].as_str().unwrap().to_owned();
    folder.quell(&["redrive", &run, "--as-new"]).ok().says("1 event as new in run_");
    let lane = folder.json(&["lane", "batches", "ada"]);
    assert_eq!((&lane["buffered"], &lane["events"][0]["id"]), (&1.into(), &"a".into()), "{lane}");
    assert!(lane["events"][0]["seq"].as_u64() > first["seq"].as_u64(), "{lane}");
}

#[test]
fn the_dead_letter_is_redriven_oldest_first() {
    let folder = folder();
    for id in ["a", "b", "c", "d"] {
        folder.quell(&["send", "jobs", "ada", "1", "--id", id]).ok();
    }
    folder.quell(&["send", "jobs", "bob", "1", "--id", "e", "--tenant", "acme"]).ok();
    work(&folder);
    assert_eq!(dead(&folder).len(), 5);
    let before = folder.json(&["runs"]);
    folder.quell(&["redrive", "--queue", "jobs"]).exits(2).complains("--all, --limit N or --dry-run");
    let plan = folder.quell(&["redrive", "--queue", "jobs", "--dry-run"]).ok();
    plan.says("jobs/ada: 1 event").says("would redrive 5 runs with 5 events; nothing was changed");
    assert_eq!(folder.json(&["runs"]), before, "a dry run changes nothing");
    folder.quell(&["redrive", "--queue", "jbos", "--all"]).exits(3).complains("unknown queue");
    folder.quell(&["redrive", "--queue", "chat", "--all"]).ok().says("nothing is dead there");

    folder.write("mended", "");
    let two = folder.quell(&["redrive", "--queue", "jobs", "--key", "ada", "--limit", "2"]).ok();
    two.says("redriven 2 runs with 2 events");
    work(&folder);
    assert_eq!(handled(&folder), ["a", "b"]);
    folder.quell(&["redrive", "--queue", "jobs", "--all", "--tenant", ""]).ok().says("redriven 2 runs");
    work(&folder);
    assert_eq!(handled(&folder), ["a", "b", "c", "d"], "the events of a key keep their order");
    assert_eq!(folder.json(&["redrive", "--queue", "jobs", "--all"])["events"], 1);
    assert!(dead(&folder).is_empty());
}

#[test]
fn a_key_with_too_many_runs_is_refused_and_the_others_go_on() {
    let folder = folder();
    let lines: String = (0..67).map(|n| format!("{{\"key\":\"ada\",\"payload\":{n}}}\n")).collect();
    folder.quell_with(&["send", "jobs", "--bulk", "-"], &lines).ok();
    folder.send("jobs", "bob", "1");
    work(&folder);
    let answer = folder.quell(&["redrive", "--queue", "jobs", "--all", "--json"]).exits(1).json();
    assert_eq!((&answer["runs"], &answer["refused"]), (&66.into(), &2.into()), "{answer}");
    let refused = items(&answer).iter().find(|item| item["error"].is_string()).unwrap();
    assert!(refused["error"].as_str().unwrap().contains("64 runs wait in lane jobs/ada"), "{refused}");
    assert!(items(&answer).iter().any(|item| item["key"] == "bob" && item["changed"] == true), "{answer}");
    let lane = folder.quell(&["lane", "jobs", "ada"]).ok();
    lane.says("queued runs").says("run_");
}

#[test]
fn what_waits_is_cancelled_at_once_and_a_holder_is_asked() {
    let folder = folder();
    folder.send("chat", "ada", "1");
    let cancelled = folder.quell(&["cancel", "chat", "ada"]).ok().says("cancelled run_");
    cancelled.says("of chat/ada: 1 event discarded; `quell redrive run_");
    folder.quell(&["cancel", "chat", "ada"]).ok().says("chat/ada has nothing to cancel");
    folder.quell(&["cancel", "chat", "nobody"]).exits(3).complains("nothing is known of lane chat/nobody");
    folder.quell(&["cancel", "chta", "ada"]).exits(3).complains("unknown queue");
    folder.quell(&["cancel", "--run", "run_zz_zz"]).exits(3);
    folder.quell(&["cancel", "chat"]).exits(2);

    folder.write("handle.sh", "echo $$ > pid; exec sleep 20");
    let worker = folder.start(&["work", "--queue", "batches"]).started();
    let run = folder.send("batches", "bob", "1")["run_id"].as_str().unwrap().to_owned();
    until("the program", || folder.read("pid").ends_with('\n'));
    let pid: u32 = folder.read("pid").trim().parse().unwrap();
    let asked = folder.quell(&["cancel", "--run", &run]).ok().says("asked ");
    asked.says(&format!("to stop {run} of batches/bob: it is cancelled then, unless it succeeds first"));
    let done = folder.until("the cancellation", &["run", &run], |run| run["state"] == "cancelled");
    until("the end of the program", || !crate::support::is_alive(pid));
    let changes: Vec<&str> =
        done["audit"].as_array().unwrap().iter().map(|r| r["change"].as_str().unwrap()).collect();
    assert_eq!(changes, ["claimed", "cancel_requested", "cancelled"]);
    folder.quell(&["cancel", "--run", &run]).ok().says("has ended as cancelled: nothing to cancel");
    worker.stop();
}

#[test]
fn a_run_behind_another_one_is_not_cancelled_in_its_place() {
    let folder = folder();
    for id in ["a", "b"] {
        folder.quell(&["send", "jobs", "ada", "1", "--id", id]).ok();
    }
    work(&folder);
    folder.write("handle.sh", "echo $$ > pid; exec sleep 20");
    let moved = folder.json(&["redrive", "--queue", "jobs", "--all"]);
    let second = moved["items"][1]["into"].as_str().unwrap().to_owned();
    let worker = folder.start(&["work", "--queue", "jobs"]).started();
    until("the program", || folder.read("pid").ends_with('\n'));
    folder.write("handle.sh", "exit 0");
    folder.quell(&["cancel", "--run", &second]).exits(4).complains(&format!("{second} waits behind run_"));
    let json = folder.quell(&["cancel", "jobs", "ada", "--run", &second, "--json"]).exits(4).json();
    assert_eq!((&json["changed"], &json["state"]), (&false.into(), &"pending".into()));
    folder.quell(&["lane", "jobs", "ada"]).ok().says("queued runs");
    assert_eq!(folder.json(&["cancel", "jobs", "ada"])["state"], "running");
    folder.until("the cancellation", &["runs", "--state", "cancelled"], |page| items(page).len() == 1);
    worker.stop();
}

#[test]
fn a_purge_is_counted_first_agreed_to_and_then_complete() {
    let folder = folder();
    let lines: String = (0..1_500).map(|n| format!("{{\"key\":\"k{n}\",\"payload\":{n}}}\n")).collect();
    folder.quell_with(&["send", "chat", "--bulk", "-", "--delay", "1h"], &lines).ok();
    folder.quell(&["send", "chat", "ada", "1"]).ok();
    folder.quell(&["send", "chat", "ada", "2", "--tenant", "acme"]).ok();
    folder.send("jobs", "bob", "1");
    // Not for the delayed ones: they would be waited for.
    folder.quell(&["work", "--until-idle", "--queue", "jobs"]).ok();
    let stats = |folder: &Folder| folder.json(&["doctor"])["queues"].clone();
    let before = stats(&folder);

    let plan = folder.quell(&["purge", "delayed", "--queue", "chat", "--dry-run"]).ok();
    plan.says("would discard at least 1000 delayed events of queue chat; nothing was changed");
    folder
        .quell(&["purge", "dead", "--queue", "jobs", "--dry-run"])
        .ok()
        .says("would discard 1 dead event of");
    let refused = folder.quell(&["purge", "dead", "--queue", "jobs"]).exits(2);
    refused.complains("this would discard 1 dead event of queue jobs").complains("--yes");
    assert_eq!(stats(&folder), before, "nothing was changed so far");

    let one = folder.json(&["purge", "delayed", "--queue", "chat", "--key", "k7", "--yes"]);
    assert_eq!(one["events"], 1, "{one}");
    let all = folder.json(&["purge", "delayed", "--queue", "chat", "--yes"]);
    assert_eq!((&all["events"], &all["changed"]), (&1_499.into(), &true.into()), "{all}");
    folder
        .quell(&["purge", "delayed", "--queue", "chat", "--yes"])
        .ok()
        .says("queue chat has no delayed events");
    folder
        .quell(&["purge", "buffered", "--queue", "chat", "--tenant", "acme", "--yes"])
        .ok()
        .says("discarded 1");
    assert_eq!(folder.json(&["lane", "chat", "ada"])["buffered"], 1, "of another tenant");
    folder
        .quell(&["purge", "dead", "--queue", "jobs", "--yes"])
        .ok()
        .says("discarded 1 dead event of queue jobs");
    assert!(dead(&folder).is_empty());
    folder.quell(&["purge", "dead", "--queue", "jbos", "--yes"]).exits(3);
    folder.quell(&["purge", "everything", "--queue", "jobs"]).exits(2);
    assert_eq!(folder.json(&["doctor"])["verified"]["problems"], Value::Array(Vec::new()));
}

/// Somebody at a terminal is asked, and only a yes is one.
#[test]
fn at_a_terminal_a_purge_asks() {
    let folder = folder();
    folder.send("chat", "ada", "1");
    let ask = |answer: &str| -> (Option<i32>, String) {
        let (mut ours, theirs) = terminal();
        let mut command = folder.command(&["purge", "buffered", "--queue", "chat"]);
        let theirs_too = theirs.try_clone().unwrap();
        let mut child = command.stdin(theirs).stderr(theirs_too).stdout(Stdio::null()).spawn().unwrap();
        drop(command);
        ours.write_all(answer.as_bytes()).unwrap();
        let code = child.wait().unwrap().code();
        let mut said = String::new();
        // The end of a terminal whose other side has closed is an error.
        let mut bytes = [0; 4096];
        while let Ok(n) = ours.read(&mut bytes) {
            if n == 0 {
                break;
            }
            said += &String::from_utf8_lossy(&bytes[..n]);
        }
        (code, said)
    };
    let (code, said) = ask("\n");
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("This would discard 1 buffered event of queue chat. Go on? [y/N]"), "{said}");
    assert_eq!(folder.json(&["lane", "chat", "ada"])["buffered"], 1);
    let (code, said) = ask("yes\n");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(folder.json(&["lane", "chat", "ada"])["buffered"], 0);
}

/// Both ends of a terminal.
pub(crate) fn terminal() -> (std::fs::File, std::fs::File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = std::fs::OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    (std::fs::File::from(ours), theirs)
}

#[test]
fn one_waiting_event_is_edited_or_deleted() {
    let folder = folder();
    for id in ["a", "b"] {
        folder.quell(&["send", "chat", "ada", r#"{"n":1}"#, "--id", id]).ok();
    }
    folder.quell(&["lane", "chat", "ada", "--edit-event", "a", "--with", r#"{"n":7}"#]).ok().says("changed");
    folder.quell(&["lane", "chat", "ada", "--edit-event", "a", "--with", r#"{"n":7}"#]).ok().says("already");
    folder.quell_with(&["lane", "chat", "ada", "--edit-event", "b"], r#"{"n":8}"#).ok();
    folder.quell(&["lane", "chat", "ada", "--edit-event", "b", "--with", "seven"]).exits(2).complains("JSON");
    folder
        .quell(&["lane", "chat", "ada", "--edit-event", "z", "--with", "1"])
        .exits(3)
        .complains("not buffered");
    let events = folder.json(&["lane", "chat", "ada", "--payloads"])["events"].clone();
    assert_eq!((&events[0]["payload"]["n"], &events[1]["payload"]["n"]), (&7.into(), &8.into()), "{events}");

    folder.quell(&["lane", "chat", "ada", "--delete-event", "a"]).ok().says("`quell redrive run_");
    folder.quell(&["lane", "chat", "ada", "--delete-event", "a"]).exits(3);
    let lane = folder.json(&["lane", "chat", "ada"]);
    assert_eq!((&lane["buffered"], &lane["events"][0]["id"]), (&1.into(), &"b".into()), "{lane}");
    let gone = items(&folder.json(&["runs", "--state", "cancelled"]))[0]["id"].as_str().unwrap().to_owned();
    folder.quell(&["redrive", &gone]).ok().says("redriven");
    assert_eq!(folder.json(&["lane", "chat", "ada"])["buffered"], 2);
    folder.quell(&["lane", "chat", "ada", "--erase", "--delete-event", "a"]).exits(2);
}

#[test]
fn an_erased_key_is_gone_for_good_and_the_numbers_stay() {
    let folder = folder();
    folder.send("batches", "secret-name", r#"{"secret":"words"}"#);
    work(&folder);
    folder
        .quell(&["send", "batches", "secret-name", r#"{"secret":"again"}"#, "--id", "late", "--delay", "1h"])
        .ok();
    let refused = folder.quell(&["lane", "batches", "secret-name", "--erase"]).exits(2);
    refused.complains("delete everything of batches/secret-name for good");
    let erased = folder.quell(&["lane", "batches", "secret-name", "--erase-event", "late", "--yes"]).ok();
    erased.says("erased late of batches/secret-name for good");
    let erased = folder.quell(&["lane", "batches", "secret-name", "--erase", "--yes"]).ok();
    erased
        .says("erased batches/secret-name for good: 1 event")
        .says("counted as discarded; the audit keeps its numbers");
    folder.quell(&["lane", "batches", "secret-name"]).exits(3);
    folder.quell(&["lane", "batches", "secret-name", "--erase", "--yes"]).exits(3).complains("erased before");
    assert!(dead(&folder).is_empty());
    let audit = folder.quell(&["audit", "--json"]).ok();
    assert!(audit.out.contains("erased") && audit.out.contains("claimed"), "{}", audit.out);
    assert!(!audit.out.contains("secret-name"), "{}", audit.out);
    let queues = folder.json(&["doctor"])["queues"].clone();
    let of = queues.as_array().unwrap().iter().find(|queue| queue["queue"] == "batches").unwrap();
    assert_eq!((&of["accepted"], &of["discarded"]), (&2.into(), &2.into()), "{of}");
}
