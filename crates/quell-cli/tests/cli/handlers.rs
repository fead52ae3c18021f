//! Programs as handlers, end to end.

use crate::support::{Folder, items};

const EXEC: &str = r#"
[queues.jobs]
window = { quiet = "50ms" }
lease = "1s"
handler = { exec = ["/bin/sh", "handle.sh"] }
"#;

#[test]
fn a_program_receives_the_batch_and_answers_by_exit_code() {
    let folder = Folder::with_config(EXEC);
    folder.write("handle.sh", "cat > envelope.json; echo \"$QUELL_KEY $QUELL_EVENTS $QUELL_ATTEMPT\" > env.txt; echo '{\"result\":7}'");
    folder.send("jobs", "order 17", r#"{"n":1}"#);
    folder.send("jobs", "order 17", r#"{"n":2}"#);
    folder.quell(&["work", "--until-idle"]).ok();
    assert_eq!(folder.read("env.txt"), "order 17 2 1\n");
    let envelope: serde_json::Value = serde_json::from_str(&folder.read("envelope.json")).unwrap();
    assert_eq!((&envelope["key"], &envelope["events"][1]["payload"]["n"]), (&"order 17".into(), &2.into()));
    assert_eq!(envelope["fired_by"], "quiet");
    let run = folder.json(&["run", envelope["run_id"].as_str().unwrap()]);
    assert_eq!((&run["state"], &run["result"]), (&"succeeded".into(), &7.into()));
}

#[test]
fn the_first_handler_in_shell_of_the_guide_answers_a_burst_once() {
    let folder = Folder::with_config(include_str!("../../../../examples/first_handler/quell.toml"));
    folder.write("answer.sh", include_str!("../../../../examples/first_handler/answer.sh"));
    folder.send("chat", "customer-7", r#"{"text":"hi"}"#);
    let receipt = folder.send("chat", "customer-7", r#"{"text":"are you there?"}"#);
    folder.quell(&["work", "--until-idle"]).ok();
    assert_eq!(folder.read("answers.txt"), "customer-7 you said: hi, are you there?\n");
    let run = folder.json(&["run", receipt["run_id"].as_str().unwrap()]);
    assert_eq!(run["result"]["answer"], "you said: hi, are you there?");
}

#[test]
fn until_idle_ends_when_nothing_is_left_and_waits_for_windows_and_retries() {
    let folder = Folder::with_config(
        "[queues.jobs]\nwindow = \"none\"\nretry = { base = \"50ms\", attempts = 3 }\n\
         handler = { exec = [\"/bin/sh\", \"-c\", \"[ $QUELL_ATTEMPT = 3 ]\"] }\n\
         [queues.chat]\nwindow = { fixed = \"300ms\" }\n",
    );
    folder.quell(&["work", "--until-idle"]).ok();
    folder.send("jobs", "a", "1");
    folder.send("chat", "b", "1");
    folder.quell(&["work", "--until-idle"]).ok().says("chat/b: 1 event, fired by fixed");
    let runs = folder.json(&["runs"]);
    assert!(items(&runs).iter().all(|run| run["state"] == "succeeded"), "{runs}");
    let jobs = items(&runs).iter().find(|run| run["queue"] == "jobs").unwrap();
    assert_eq!((&jobs["attempts"], &jobs["retries"]), (&3.into(), &2.into()));
}

#[test]
fn a_worker_takes_only_its_queues_and_its_tenant() {
    let folder = Folder::new();
    folder.json(&["send", "chat", "a", "1", "--tenant", "acme"]);
    folder.json(&["send", "chat", "b", "1"]);
    folder.json(&["send", "mail", "c", "1"]);
    folder
        .quell(&["work", "--until-idle", "--queue", "chat", "--tenant", "acme"])
        .ok()
        .says("acme:chat/a: 1 event");
    let left: Vec<String> =
        items(&folder.json(&["lanes"])).iter().map(|lane| lane["key"].as_str().unwrap().to_owned()).collect();
    assert_eq!(left, ["b", "c"]);
    folder
        .quell(&["work", "--until-idle", "--queue", "mail", "--queue", "chat"])
        .ok()
        .says("mail/c")
        .says("chat/b");
}

#[test]
fn a_killed_worker_is_replaced_after_one_lease_with_a_higher_token() {
    let folder = Folder::with_config(EXEC);
    // The first attempt hangs; the orphan ends by itself.
    folder.write(
        "handle.sh",
        "echo \"$QUELL_ATTEMPT $QUELL_TOKEN\" >> tokens; [ $QUELL_ATTEMPT = 1 ] && exec sleep 20; exit 0",
    );
    let first = folder.start(&["work"]).started();
    let receipt = folder.send("jobs", "a", "1");
    let held = folder.until("a lease", &["lanes", "--running"], |page| !items(page).is_empty());
    let holder = held["items"][0]["worker"].as_str().unwrap();
    assert!(holder.contains(&format!(":{}:", first.pid())), "{holder}");
    crate::support::until("the program", || folder.read("tokens").ends_with('\n'));
    first.signal(rustix::process::Signal::KILL);
    let (status, _) = first.end();
    assert_eq!(status.code(), None, "it was killed");

    let mut second = folder.start(&["work"]).started();
    let warning = second.line("lease.reclaimed");
    assert!(warning.contains("key=a"), "{warning}");
    let run = receipt["run_id"].as_str().unwrap();
    let done = folder.until("the run", &["run", run], |run| run["state"] == "succeeded");
    assert_eq!((&done["attempts"], &done["claims"]), (&2.into(), &2.into()));
    let tokens: Vec<u64> =
        folder.read("tokens").lines().map(|line| line.split_once(' ').unwrap().1.parse().unwrap()).collect();
    assert!(tokens.len() == 2 && tokens[1] > tokens[0], "{tokens:?}");
    let changes: Vec<&str> =
        done["audit"].as_array().unwrap().iter().map(|r| r["change"].as_str().unwrap()).collect();
    assert_eq!(changes, ["claimed", "reclaimed", "claimed", "succeeded"]);
    second.stop();
}

#[test]
fn a_run_tells_what_each_attempt_started_and_how_it_ended() {
    let folder = Folder::with_config(
        "[queues.jobs]\nwindow = \"none\"\nretry = { base = \"50ms\", attempts = 2 }\n\
         handler = { exec = [\"/bin/sh\", \"-c\", \"echo printed; echo broken $QUELL_ATTEMPT >&2; exit 3\"] }\n",
    );
    let receipt = folder.send("jobs", "a", "1");
    folder.quell(&["work", "--until-idle"]).ok();
    let id = receipt["run_id"].as_str().unwrap();
    let run = folder.json(&["run", id]);
    let reports = run["reports"].as_array().unwrap();
    let told: Vec<_> = reports
        .iter()
        .map(|r| (r["exit_code"].as_i64(), r["stderr"].as_str(), r["response"].as_str()))
        .collect();
    let attempt = |stderr| (Some(3), Some(stderr), Some("printed"));
    assert_eq!(told, [attempt("broken 1"), attempt("broken 2")], "{run}");
    assert_eq!(reports[0]["request"], "/bin/sh with 2 arguments");
    let claims = run["audit"].as_array().unwrap().iter().filter(|record| record["change"] == "claimed");
    let tokens: Vec<_> = claims.map(|record| &record["token"]).collect();
    assert_eq!(reports.iter().map(|r| &r["token"]).collect::<Vec<_>>(), tokens, "by the tokens of the trail");
    folder.quell(&["run", id]).ok().says("ASKED").says("exit code 3").says("exit code 3: broken 1");
    folder.quell(&["run", id, "--reports"]).ok().says("STDERR of").says("ANSWER of").says("printed");
}
