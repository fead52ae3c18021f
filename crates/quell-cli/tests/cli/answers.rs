//! Every reading command, as a table and as JSON.

use serde_json::Value;

use crate::support::{Folder, items};

const CONFIG: &str = r#"
[queues.jobs]
window = "none"
retry = { base = "1ms", cap = "1ms", attempts = 2, jitter = 0 }
handler = { exec = ["/bin/sh", "handle.sh"] }
[queues.chat]
window = { quiet = "1h" }
"#;

/// One run that succeeded, one that failed at once, one that failed after two tries, and one key that waits.
fn folder() -> Folder {
    let folder = Folder::with_config(CONFIG);
    folder.write(
        "handle.sh",
        "case $QUELL_KEY in
           bad) echo 'cannot do it' >&2; exit 65;;
           flaky) echo 'not now' >&2; exit 1;;
         esac
         echo '{\"result\":{\"ok\":true},\"usage\":{\"pages\":3}}'",
    );
    for key in ["good", "bad", "flaky"] {
        folder.send("jobs", key, r#"{"secret":"words"}"#);
    }
    folder.quell(&["work", "--until-idle", "--queue", "jobs"]).ok();
    folder.send("chat", "ada", r#"{"secret":"words"}"#);
    folder
}

fn run_of(folder: &Folder, key: &str) -> Value {
    items(&folder.json(&["runs", "--queue", "jobs", "--key", key]))[0].clone()
}

#[test]
fn lanes_say_why_they_wait() {
    let folder = folder();
    folder.quell(&["lanes"]).ok().says("LANE").says("chat/ada").says("buffered 1, due in 59m");
    let page = folder.json(&["lanes"]);
    assert_eq!(items(&page).len(), 1, "idle ones are not listed: {page}");
    assert_eq!((&page["items"][0]["key"], &page["next"]), (&"ada".into(), &Value::Null));
    let all = folder.json(&["lanes", "--idle"]);
    assert_eq!(items(&all).len(), 4, "{all}");
    let listing = ["lanes", "--idle", "--queue", "jobs", "--limit", "2"];
    let page = folder.json(&listing);
    assert_eq!(items(&page).len(), 2);
    let next = page["next"].as_str().unwrap();
    folder.quell(&listing).ok().complains(&format!("more: --cursor {next}"));
    let rest = folder.json(&[listing.as_slice(), &["--cursor", next]].concat());
    assert_eq!((items(&rest).len(), &rest["next"]), (1, &Value::Null));
    assert_eq!(items(&folder.json(&["lanes", "--key", "a"])).len(), 1);
    assert_eq!(items(&folder.json(&["lanes", "--key", "b"])).len(), 0);
    assert_eq!(items(&folder.json(&["lanes", "--queue", "jobs"])).len(), 0);
    folder.quell(&["lanes", "--running"]).ok().complains("no running lanes");
    folder.quell(&["lanes", "--tenant", "acme"]).ok().complains("no lanes with something to do");
}

#[test]
fn a_lane_answers_with_its_sentence_first_and_hides_payloads() {
    let folder = folder();
    let answer = folder.quell(&["lane", "chat", "ada"]).ok().says("open run").says("BYTES");
    assert!(answer.out.starts_with("chat/ada: buffered 1, due in 59m"), "{}", answer.out);
    assert!(!answer.out.contains("words"));
    folder.quell(&["lane", "chat", "ada", "--payloads"]).ok().says(r#"{"secret":"words"}"#);
    let lane = folder.json(&["lane", "chat", "ada"]);
    assert_eq!((&lane["waiting"]["buffered"], &lane["events"][0]["payload_bytes"]), (&1.into(), &18.into()));
    assert_eq!(lane["events"][0].get("payload"), None);
    let lane = folder.json(&["lane", "chat", "ada", "--payloads"]);
    assert_eq!(lane["events"][0]["payload"]["secret"], "words");
    folder.quell(&["lane", "chat", "nobody"]).exits(3).complains("nothing is known of lane chat/nobody");
}

#[test]
fn runs_are_listed_counted_and_shown_with_their_history() {
    let folder = folder();
    folder.quell(&["runs"]).ok().says("FIRED BY").says("succeeded").says("exit code 65: cannot do it");
    assert_eq!(items(&folder.json(&["runs"])).len(), 4);
    assert_eq!(items(&folder.json(&["runs", "--state", "failed"])).len(), 2);
    assert_eq!(items(&folder.json(&["runs", "--queue", "chat"]))[0]["state"], "pending");
    assert_eq!(items(&folder.json(&["runs", "--stuck", "5m"])).len(), 0);
    folder.quell(&["runs", "--stuck", "0s"]).ok().complains("no stuck runs");
    folder.quell(&["runs", "--count-by", "state,worker"]).ok().says("STATE").says("WORKER");
    let counts = folder.json(&["runs", "--count-by", "state"]);
    let failed = items(&counts).iter().find(|item| item["state"] == "failed").unwrap();
    assert_eq!((&failed["runs"], &failed["events"]), (&2.into(), &2.into()), "{counts}");

    let good = run_of(&folder, "good");
    let id = good["id"].as_str().unwrap();
    let shown =
        folder.quell(&["run", id]).ok().says("of jobs/good: succeeded, 1 event").says("pending → running");
    let shown = shown.says(r#"{"ok":true}"#).says("pages 3");
    assert!(!shown.out.contains("words"));
    folder.quell(&["run", id, "--payloads"]).ok().says(r#"{"secret":"words"}"#);
    let json = folder.json(&["run", id]);
    assert_eq!((&json["result"]["ok"], &json["usage"]["pages"]), (&true.into(), &3.0.into()));
    assert_eq!(
        (&json["audit"][0]["change"], &json["audit"][1]["change"]),
        (&"claimed".into(), &"succeeded".into())
    );
    assert_eq!((&json["list"][0]["payload_bytes"], json["list"][0].get("payload")), (&18.into(), None));
    assert_eq!(folder.json(&["run", id, "--payloads"])["list"][0]["payload"]["secret"], "words");
    folder.quell(&["run", "run_zz_zz"]).exits(3).complains("there is no run");
    folder.quell(&["run", "17"]).exits(2).complains("does not look like run_");
}

#[test]
fn the_dead_letter_tells_what_went_wrong() {
    let folder = folder();
    folder.quell(&["dead"]).ok().says("exit code 65: cannot do it").says("exit code 1: not now");
    let page = folder.json(&["dead"]);
    // Which of the two ended last is up to the machine.
    let told =
        |field: &str| -> Vec<String> { items(&page).iter().map(|run| run[field].to_string()).collect() };
    assert!(told("completed_at").is_sorted_by(|newer, older| newer >= older), "newest first: {page}");
    let mut tries = told("attempts");
    tries.sort();
    assert_eq!(tries, ["1", "2"], "{page}");
    assert_eq!(items(&folder.json(&["dead", "--key", "bad"])).len(), 1);
    folder.quell(&["dead", "--queue", "chat"]).ok().complains("no failed runs");
}

#[test]
fn the_audit_tells_who_did_what() {
    let folder = folder();
    folder.quell(&["pause", "chat", "ada", "--actor", "ops"]).ok().says("paused lane chat/ada");
    folder.quell(&["audit"]).ok().says("running → failed").says("exhausted").says("ops");
    let page = folder.json(&["audit", "--limit", "1"]);
    assert_eq!((&page["items"][0]["change"], &page["items"][0]["actor"]), (&"paused".into(), &"ops".into()));
    assert!(page["next"].is_string());
    assert_eq!(items(&folder.json(&["audit", "--queue", "jobs", "--key", "flaky"])).len(), 4);
    let run = run_of(&folder, "flaky")["id"].as_str().unwrap().to_owned();
    assert_eq!(items(&folder.json(&["audit", "--run", &run])).len(), 4);
}

#[test]
fn an_operator_pauses_resumes_and_flushes() {
    let folder = folder();
    let user = format!("tester@{} (cli)", rustix::system::uname().nodename().to_string_lossy());
    folder.quell(&["pause", "chat"]).ok().says("paused queue chat");
    folder.quell(&["pause", "chat"]).ok().says("was paused already");
    folder.quell(&["lane", "chat", "ada"]).ok().says(&format!("queue paused by {user}"));
    folder.quell(&["flush", "chat", "ada"]).ok().says("flushed chat/ada");
    folder.quell(&["work", "--until-idle"]).ok();
    assert_eq!(folder.json(&["lane", "chat", "ada"])["buffered"], 1, "a flush does not pass a pause");
    assert_eq!(folder.json(&["resume", "chat"])["changed"], true);
    assert_eq!(folder.json(&["resume", "chat"])["changed"], false);
    folder.quell(&["work", "--until-idle"]).ok().says("chat/ada: 1 event, fired by flush");
    assert_eq!(folder.json(&["flush", "chat", "ada"])["changed"], false);
    folder.quell(&["pause", "chat", "--tenant", "acme"]).ok().says("queue chat of tenant acme");
    folder.quell(&["resume", "chat", "bob"]).ok().says("was not paused");
    for command in [["pause", "chta"].as_slice(), &["resume", "chta"], &["flush", "chta", "ada"]] {
        folder.quell(command).exits(3).complains("unknown queue \"chta\"");
    }
}

#[test]
fn check_and_doctor_answer_people_and_programs() {
    let folder = folder();
    folder.quell(&["check"]).ok().says("queues.chat.window").says("quell.toml line 7").says("default");
    let check = folder.json(&["check"]);
    let window = items(&check).iter().find(|item| item["setting"] == "queues.chat.window").unwrap();
    assert_eq!((&check["file"], &window["origin"]["file"]["line"]), (&"quell.toml".into(), &7.into()));
    let schema = folder.quell(&["check", "--schema"]).ok().json();
    assert_eq!(schema["title"], "quell.toml");

    let doctor =
        folder.quell(&["doctor"]).ok().says("durable").says("schema 6").says("file mode").says("holds");
    doctor.says("free of").says("ok nothing is lost: 4 events");
    let doctor = folder.json(&["doctor"]);
    assert_eq!((&doctor["ok"], &doctor["machine"]["mode"]), (&true.into(), &"600".into()));
    assert_eq!(doctor["verified"]["problems"], Value::Array(Vec::new()));
    let chat = doctor["queues"].as_array().unwrap().iter().find(|queue| queue["queue"] == "chat").unwrap();
    assert_eq!((&chat["accepted"], &chat["buffered"]), (&1.into(), &1.into()));
}

#[test]
fn doctor_finds_a_counter_that_leaked() {
    let folder = folder();
    let file = rusqlite::Connection::open(folder.path("quell.db")).unwrap();
    file.execute("UPDATE queue SET accepted = accepted + 1", []).unwrap();
    drop(file);
    let answer = folder.quell(&["doctor"]).exits(1).says("problem").says("DOES NOT HOLD");
    assert!(!answer.out.contains("nothing is lost"));
    assert_eq!(folder.quell(&["doctor", "--json"]).exits(1).json()["ok"], false);
}

#[test]
fn colour_is_for_terminals_and_a_reader_may_leave_early() {
    let folder = folder();
    for args in [["runs"].as_slice(), &["lane", "chat", "ada"], &["dead"], &["doctor"]] {
        assert!(!folder.quell(args).ok().out.contains('\u{1b}'), "{args:?}");
    }
    assert!(folder.quell(&["runs", "--color", "always"]).ok().out.contains('\u{1b}'));
    let answer = {
        let mut command = folder.command(&["runs", "--color", "always"]);
        command.env("NO_COLOR", "1").args(["--color", "auto"]);
        command.output().unwrap()
    };
    assert!(!String::from_utf8_lossy(&answer.stdout).contains('\u{1b}'));

    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output =
        folder.command(&["runs"]).stdout(writer).stderr(std::process::Stdio::piped()).output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn a_damaged_cursor_and_an_unknown_queue_are_no_empty_answer() {
    let folder = folder();
    for listing in ["lanes", "runs", "audit", "dead"] {
        folder.quell(&[listing, "--cursor", "nonsense"]).exits(2).complains("cursor \"nonsense\" is not one");
        folder.quell(&[listing, "--queue", "jbos"]).exits(3).complains("unknown queue \"jbos\"");
    }
    folder.quell(&["runs", "--queue", "jbos", "--count-by", "state"]).exits(3);
    folder.quell(&["lanes", "--idle", "--cursor", "nonsense"]).exits(2);
    folder.quell(&["runs", "--queue", "jobs", "--key", "good", "--cursor", "f.x"]).exits(2);
    let page = folder.json(&["runs", "--limit", "2"]);
    let rest = folder.json(&["runs", "--cursor", page["next"].as_str().unwrap()]);
    assert_eq!(items(&rest).len(), 2, "the cursor that was given is good: {rest}");
}

#[test]
fn steps_are_listed_and_their_values_only_when_asked_for() {
    use quell::{Quell, Queue, Run, from_fn};
    let folder = Folder::new();
    let url = format!("sqlite:{}", folder.path("quell.db").display());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let sent = runtime.block_on(async {
        let handler = from_fn(|run: Run| async move {
            let said: Result<String, _> =
                run.step("llm", || async { Ok::<_, String>("words".to_owned()) }).await;
            said.map(|_| ()).map_err(|e| e.to_string())
        });
        let quell = Quell::open(&url).queue("chat", Queue::none().handler(handler)).start().await.unwrap();
        let sent = quell.send("chat", "ada", serde_json::json!(1)).await.unwrap();
        quell.until_idle().await.unwrap();
        quell.shutdown().await;
        sent
    });
    let run = sent.run_id.unwrap().to_string();
    let shown = folder.quell(&["run", &run]).ok().says("STEP").says("llm");
    assert!(!shown.out.contains("words"), "{}", shown.out);
    folder.quell(&["run", &run, "--steps"]).ok().says("VALUE").says("\"words\"");
    assert_eq!(folder.json(&["run", &run])["steps"][0]["value"], "words");
}

#[test]
fn whatever_an_actor_calls_himself_cannot_steer_a_terminal() {
    let folder = folder();
    folder.quell(&["pause", "chat", "ada", "--actor", "eve\u{1b}[2J"]).ok();
    for args in [["lanes"].as_slice(), &["lane", "chat", "ada"], &["audit"]] {
        // In colour, because without it every escape sequence is taken out anyway.
        let answer = folder.quell(&[args, &["--color", "always"]].concat()).ok().says(r"eve\u{1b}[2J");
        assert!(!answer.out.contains("\u{1b}[2J"), "{args:?}: {}", answer.out);
    }
}

#[test]
fn a_failed_run_that_blocks_its_key_is_named() {
    let folder = Folder::with_config(
        "[queues.jobs]\nwindow = \"none\"\non_failed = \"block\"\nhandler = { exec = [\"/bin/sh\", \"-c\", \"exit 65\"] }\n",
    );
    let run = folder.send("jobs", "ada", "1")["run_id"].as_str().unwrap().to_owned();
    folder.quell(&["work", "--until-idle"]).ok();
    folder.send("jobs", "ada", "2");
    folder.quell(&["work", "--until-idle"]).ok();
    folder.quell(&["lanes"]).ok().says(&format!("blocked by the failed {run}"));
    folder.quell(&["lane", "jobs", "ada"]).ok().says(&format!("blocked by     {run}"));
    assert_eq!(folder.json(&["lane", "jobs", "ada"])["blocked_by"], run.as_str());
    folder.quell(&["resume", "jobs", "ada"]).ok().says("resumed lane jobs/ada");
    assert_eq!(folder.json(&["lane", "jobs", "ada"])["blocked_by"], Value::Null);
}

#[test]
fn keys_are_shown_escaped_and_tenants_apart() {
    let folder = Folder::new();
    folder.json(&["send", "chat", "a\u{1b}[2J\nb", "1", "--tenant", "acme"]);
    let answer = folder.quell(&["lanes"]).ok().says(r"acme:chat/a\u{1b}[2J\nb");
    assert!(!answer.out.contains('\u{1b}'));
    assert_eq!(items(&folder.json(&["lanes", "--tenant", "acme"]))[0]["key"], "a\u{1b}[2J\nb");
    assert_eq!(items(&folder.json(&["lanes", "--tenant", "other"])).len(), 0);
    folder.quell(&["lane", "chat", "a\u{1b}[2J\nb"]).exits(3);
    folder.quell(&["lane", "chat", "a\u{1b}[2J\nb", "--tenant", "acme"]).ok();
}
