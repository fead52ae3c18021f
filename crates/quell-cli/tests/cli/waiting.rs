//! `quell send` with wishes: wait for the end, delay, priority, a window of its own, unique work.

use std::process::Stdio;

use serde_json::Value;

use crate::support::{Folder, Process, items};

const CONFIG: &str = r#"
[queues.jobs]
window = "none"
retry = { base = "1ms", cap = "1ms", attempts = 2, jitter = 0 }
handler = { exec = ["/bin/sh", "handle.sh"] }
[queues.chat]
window = { quiet = "1h" }
[queues.talk]
window = { quiet = "20ms" }
during_run = "interrupt"
handler = { exec = ["/bin/sh", "-c", "echo $QUELL_EVENTS >> talk; [ $QUELL_EVENTS -ge 2 ] || exec sleep 20"] }
"#;

fn folder() -> Folder {
    let folder = Folder::with_config(CONFIG);
    folder.write(
        "handle.sh",
        "case $QUELL_KEY in
           bad) echo 'cannot do it' >&2; exit 65;;
           flaky) [ $QUELL_ATTEMPT = 2 ] || exit 1;;
         esac
         echo '{\"result\":{\"ok\":true},\"usage\":{\"pages\":3}}'",
    );
    folder
}

#[test]
fn waiting_tells_the_end_and_the_exit_code_says_which() {
    let folder = folder();
    let worker = folder.start(&["work"]).started();
    let good = folder.quell(&["send", "jobs", "good", "1", "--wait=20s"]).ok().says("stored evt_");
    good.says(" succeeded with 1 event after 1 try").says(r#"{"ok":true}"#);
    let json = folder.json(&["send", "jobs", "flaky", "1", "--id", "f", "--wait=20s"]);
    assert_eq!((&json["event_id"], &json["ended"]["state"]), (&"f".into(), &"succeeded".into()), "{json}");
    assert_eq!((&json["ended"]["attempts"], &json["ended"]["usage"]["pages"]), (&2.into(), &3.0.into()));
    assert_eq!(json["ended"]["result"]["ok"], true);

    let bad = folder.quell(&["send", "jobs", "bad", "1", "--id", "b", "--wait"]).exits(6);
    bad.says(" failed with 1 event").complains("cannot do it");
    let again = folder.quell(&["send", "jobs", "bad", "1", "--id", "b", "--wait", "--json"]).exits(6).json();
    assert_eq!((&again["duplicate"], &again["ended"]["state"]), (&true.into(), &"failed".into()));

    let late = folder.quell(&["send", "chat", "ada", "1", "--wait=50ms"]).exits(8);
    late.says("due in ").complains("has not ended after 50ms");
    let late = folder.quell(&["send", "chat", "ada", "1", "--wait=0s", "--json"]).exits(8).json();
    assert_eq!(late["ended"], Value::Null);
    worker.stop();
}

#[test]
fn waiting_ends_when_somebody_cancels_purges_or_erases() {
    let folder = folder();
    let mut waiting = wait_for(&folder, &["send", "chat", "ada", "1", "--wait"]);
    waiting.line("stored evt_");
    folder.quell(&["cancel", "chat", "ada"]).ok();
    waiting.line("cancelled with 1 event after 0 tries");
    assert_eq!(waiting.end().0.code(), Some(7));

    let mut waiting = wait_for(&folder, &["send", "chat", "ada", "1", "--delay", "1h", "--wait"]);
    waiting.line("delayed: it enters its lane in ");
    folder.quell(&["purge", "delayed", "--queue", "chat", "--yes"]).ok();
    waiting.line("cancelled with 1 event after 0 tries");
    assert_eq!(waiting.end().0.code(), Some(7));

    let mut waiting = wait_for(&folder, &["send", "chat", "bob", "1", "--delay", "1h", "--wait"]);
    waiting.line("delayed: it enters its lane in ");
    folder.quell(&["lane", "chat", "bob", "--erase", "--yes"]).ok();
    waiting.line("was erased before it was handled");
    assert_eq!(waiting.end().0.code(), Some(7));
}

fn wait_for(folder: &Folder, args: &[&str]) -> Process {
    let mut command = folder.command(args);
    command.stdin(Stdio::null());
    Process::start(command)
}

#[test]
fn waiting_follows_an_event_through_its_delay_and_into_another_run() {
    let folder = folder();
    let worker = folder.start(&["work"]).started();
    let json = folder.json(&["send", "jobs", "late", "1", "--delay", "100ms", "--wait=20s"]);
    assert_eq!((&json["seq"], &json["run_id"]), (&Value::Null, &Value::Null), "aside at first: {json}");
    assert_eq!(json["ended"]["state"], "succeeded");

    // The first event's handler is interrupted by the second one, and one run ends with both.
    let mut first = wait_for(&folder, &["send", "talk", "ada", "1", "--wait", "--json"]);
    crate::support::until("the first handler", || folder.read("talk").lines().count() == 1);
    let second = folder.json(&["send", "talk", "ada", "2", "--wait=20s"]);
    assert_ne!(second["run_id"], second["ended"]["id"], "it waited in a run that was merged: {second}");
    assert_eq!((&second["ended"]["events"], &second["ended"]["interrupts"]), (&2.into(), &1.into()));
    let ended: Value = serde_json::from_str(&first.line("ended")).unwrap();
    assert_eq!(ended["ended"]["id"], second["ended"]["id"]);
    assert_eq!(first.end().0.code(), Some(0));
    let merged = second["run_id"].as_str().unwrap();
    let into = second["ended"]["id"].as_str().unwrap();
    folder.quell(&["run", merged]).ok().says(&format!("merged into  {into}"));
    folder
        .quell(&["run", into])
        .ok()
        .says("gave way      1×")
        .says("fired by      merge")
        .says("interrupted");
    worker.stop();
}

#[test]
fn a_delayed_event_is_shown_and_comes_when_it_is_ready() {
    let folder = folder();
    let sent = folder.quell(&["send", "jobs", "ada", "1", "--delay", "1h"]).ok();
    sent.says(", delayed: it enters its lane in ");
    folder.quell(&["lane", "jobs", "ada"]).ok().says("jobs/ada: idle, 1 delayed event");
    assert_eq!(folder.json(&["lane", "jobs", "ada"])["delayed"], 1);
    folder.quell(&["send", "jobs", "ada", "1", "--delay", "367d"]).exits(4).complains("366 days");
    folder.quell(&["send", "jobs", "bob", "1", "--delay", "200ms"]).ok();
    folder.quell(&["purge", "delayed", "--queue", "jobs", "--key", "ada", "--yes"]).ok();
    folder.quell(&["work", "--until-idle"]).ok();
    assert_eq!(items(&folder.json(&["runs"]))[0]["key"], "bob");
}

#[test]
fn a_higher_priority_goes_first_and_is_shown() {
    let folder = Folder::with_config("[queues.jobs]\nwindow = \"none\"\n");
    for (key, priority) in [("low", "0"), ("plain", "4"), ("high", "9")] {
        folder.quell(&["send", "jobs", key, "1", "--priority", priority]).ok();
    }
    folder.quell(&["lane", "jobs", "high"]).ok().says("priority       9");
    folder.quell(&["lanes"]).ok().says("; priority 9").says("; priority 0");
    assert!(!folder.quell(&["lane", "jobs", "plain"]).ok().out.contains("priority"));
    let shown = folder.quell(&["work", "--until-idle", "--concurrency", "1"]).ok().out;
    let order: Vec<&str> =
        shown.lines().filter_map(|line| line.split("jobs/").nth(1)?.split(':').next()).collect();
    assert_eq!(order, ["high", "plain", "low"]);
    folder.quell(&["send", "jobs", "a", "1", "--priority", "10"]).exits(2).complains("0..=9");
}

#[test]
fn an_event_brings_its_own_window_or_wants_an_idle_key() {
    let folder = folder();
    folder.quell(&["send", "chat", "ada", "1"]).ok().says("due in ");
    folder.quell(&["send", "chat", "ada", "2", "--window", "none"]).ok().says("due now");
    folder.quell(&["send", "chat", "bob", "1", "--window", "fixed=5m"]).ok().says("due in ");
    folder
        .quell(&["send", "chat", "cyd", "1", "--window", "soon"])
        .exits(2)
        .complains("quiet=2s,max_wait=20s");
    let refused = folder.quell(&["send", "chat", "bob", "2", "--only-if-idle"]).exits(4);
    refused.complains("lane chat/bob has work").complains("`quell lane chat bob`");
    folder.quell(&["send", "chat", "dan", "1", "--only-if-idle"]).ok();
    let bob = folder.json(&["lane", "chat", "bob"]);
    assert_eq!((&bob["buffered"], &bob["waiting"]["due_by"]), (&1.into(), &"fixed".into()), "{bob}");
}

#[test]
fn lines_of_a_bulk_have_wishes_of_their_own() {
    let folder = folder();
    let lines = "{\"key\":\"a\",\"payload\":1,\"delay_ms\":3600000}\n{\"key\":\"b\",\"payload\":1,\"priority\":9}\n\
                 {\"key\":\"c\",\"payload\":1}\n{\"key\":\"d\",\"payload\":1,\"priority\":12}\n";
    let args = ["send", "chat", "--bulk", "-", "--priority", "7", "--json"];
    let answer = folder.quell_with(&args, lines).exits(1).complains("line 4: invalid: event 0: priority 12");
    let receipts: Vec<Value> = answer.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((receipts.len(), &receipts[0]["seq"]), (4, &Value::Null), "{receipts:?}");
    assert_eq!(folder.json(&["lane", "chat", "a"])["delayed"], 1);
    assert_eq!(folder.json(&["lane", "chat", "b"])["priority"], 9);
    assert_eq!(folder.json(&["lane", "chat", "c"])["priority"], 7, "what the line does not say");
    folder.quell_with(&["send", "chat", "--bulk", "-", "--wait"], lines).exits(2);
}

#[test]
fn an_event_that_could_never_be_stored_makes_no_store() {
    let folder = Folder::with_config("[queues.chat]\nmax_payload = \"10B\"\n");
    folder.quell(&["send", "caht", "ada", "1"]).exits(3);
    folder.quell(&["send", "chat", "ada", "\"0123456789\""]).exits(4).complains("the queue allows 10");
    folder.quell(&["send", "chat", "ada", "1", "--delay", "400d"]).exits(4);
    folder.quell_with(&["send", "caht", "--bulk", "-"], "{\"key\":\"a\",\"payload\":1}\n").exits(3);
    folder.quell(&["schedules", "put", "x", "--cron", "@daily", "--queue", "caht", "--key", "a"]).exits(3);
    assert!(!folder.path("quell.db").exists());
}
