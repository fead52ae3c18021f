//! What becomes of transcripts, whatever they are: through the hook, as an agent would have it.

use serde_json::Value;

use super::host::{Host, append, fixture, line, millis, until};

const HALF: &str = "66cc59ee-7192-40d7-81b2-bb993cae11a6";
const SPLIT: &str = "9af034b9-0143-48ff-80d0-04b21d417ead";

fn texts(session: &Value) -> Vec<&str> {
    session["messages"].as_array().unwrap().iter().filter_map(|message| message["text"].as_str()).collect()
}

/// A token as it is in circulation, made here so that it is in no file of ours.
fn secret() -> String {
    format!("sk-ant-{}-{}", "api03", "Zq8vK2mT5rY9wX4bN7cJ1dF6gH3pL0sA".repeat(3))
}

#[test]
fn a_half_written_line_is_left_for_the_next_pass() {
    let host = Host::new();
    host.place("truncated_last_line.jsonl", HALF);
    host.stop(HALF);
    host.stored(HALF, 3);
    host.quiet();
    let whole = std::fs::read_to_string(fixture("transcripts/truncated_last_line.completed.jsonl")).unwrap();
    let had = std::fs::metadata(host.transcript(HALF)).unwrap().len();
    append(&host.transcript(HALF), &whole[usize::try_from(had).unwrap()..]);
    host.stop(HALF);
    host.stored(HALF, 4);
    host.quiet();
    let session = host.session(HALF);
    assert_eq!(session["session"]["tokens"]["input"], 422, "{session}");
    assert_eq!(session["session"]["messages"], 4);
    assert_eq!(host.number("SELECT malformed FROM transcripts_file"), 0);
}

#[test]
fn a_file_that_was_cut_or_exchanged_is_read_again_and_nothing_is_stored_twice() {
    let host = Host::new();
    host.write("s", 0..6);
    host.stop("s");
    host.stored("s", 6);
    host.quiet();
    // Cut, and it goes on with something else.
    let kept: String = (0..2).chain(10..13).map(|number| line("s", number)).collect();
    std::fs::write(host.transcript("s"), kept).unwrap();
    host.stop("s");
    host.stored("s", 9);
    host.quiet();
    // Exchanged for another file that begins the same.
    let other: String = (0..2).chain(10..13).chain(20..40).map(|number| line("s", number)).collect();
    std::fs::write(host.path("other"), other).unwrap();
    std::fs::rename(host.path("other"), host.transcript("s")).unwrap();
    host.stop("s");
    host.stored("s", 29);
    host.quiet();
    assert_eq!(host.session("s")["session"]["messages"], 29);
}

#[test]
fn a_transcript_that_appears_later_is_waited_for() {
    let host = Host::new();
    host.stop("s");
    millis(3_000);
    host.write("s", 0..2);
    host.stored("s", 2);
    host.quiet();
    assert!(host.number("SELECT claims FROM run") >= 2);
    assert_eq!(host.session("s")["session"]["problem"], Value::Null);
}

#[test]
fn a_transcript_that_never_appears_is_noted_after_ten_tries() {
    let host = Host::new();
    host.stop("s");
    until("a run", || host.number("SELECT count(*) FROM run") == 1);
    host.quiet();
    let tries = host.number("SELECT claims FROM run");
    assert!((10..=11).contains(&tries), "{tries}");
    let session = host.session("s");
    assert!(session["session"]["problem"].as_str().unwrap().contains("does not exist"), "{session}");
    assert_eq!(session["hook_events"].as_array().unwrap().len(), 1);
    assert_eq!(host.runs("s")[0]["state"], "succeeded");
    // It is read when it is there after all.
    host.write("s", 0..2);
    host.stop("s");
    host.stored("s", 2);
    host.quiet();
    assert_eq!(host.session("s")["session"]["problem"], Value::Null);
}

#[test]
fn what_may_not_be_read_is_noted_and_the_event_is_kept() {
    let host = Host::new();
    let inside = host.path("claude/projects/p");
    let outside = host.path("outside.jsonl");
    append(&outside, &line("outside", 0));
    std::os::unix::fs::symlink(&outside, inside.join("link.jsonl")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        inside.join("fifo.jsonl"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    std::os::unix::fs::symlink("/dev/zero", inside.join("zero.jsonl")).unwrap();
    let up = inside.join("../../../outside.jsonl");
    let cases = [
        ("outside", outside.clone(), "below none of the configured directories"),
        ("zero", "/dev/zero".into(), "below none of the configured directories"),
        ("link", inside.join("link.jsonl"), "symbolic link"),
        ("zerolink", inside.join("zero.jsonl"), "symbolic link"),
        ("fifo", inside.join("fifo.jsonl"), "not a regular file"),
        ("folder", inside.clone(), "not a regular file"),
        ("up", up, "`..`"),
        ("relative", "p/x.jsonl".into(), "not absolute"),
    ];
    for (session, path, _) in &cases {
        let mut event = host.event("Stop", session);
        event["transcript_path"] = path.display().to_string().into();
        host.hook(&event);
    }
    until("all are noted", || host.number("SELECT count(*) FROM run") == 8);
    host.quiet();
    assert_eq!(host.number("SELECT count(*) FROM transcripts_message"), 0);
    for (session, _, why) in &cases {
        let shown = host.session(session);
        assert!(shown["session"]["problem"].as_str().unwrap().contains(why), "{session}: {shown}");
        assert_eq!(shown["hook_events"].as_array().unwrap().len(), 1, "{session}");
        host.quell(&["session", session]).ok().says("problem").says(why);
    }
}

#[test]
fn subagents_are_read_with_their_session_and_shown_when_asked_for() {
    let host = Host::new();
    host.place(&format!("sidechain_split/{SPLIT}.jsonl"), SPLIT);
    let folder = host.path("claude/projects/p").join(SPLIT).join("subagents");
    std::fs::create_dir_all(&folder).unwrap();
    let from = fixture("transcripts/sidechain_split").join(SPLIT).join("subagents/agent-a1c3f252.jsonl");
    let own = folder.join("agent-a1c3f252.jsonl");
    std::fs::copy(from, &own).unwrap();
    let mut event = host.event("SubagentStop", SPLIT);
    event["agent_transcript_path"] = own.display().to_string().into();
    host.hook(&event);
    host.stored(SPLIT, 6);
    host.quiet();
    let session = host.session(SPLIT);
    let all = session["messages"].as_array().unwrap();
    assert_eq!(all.iter().filter(|message| message["sidechain"] == true).count(), 2);
    assert_eq!(session["session"]["tokens"]["input"], 1511 + 940);
    let plain = host.quell(&["session", SPLIT]).ok();
    let more = host.quell(&["session", SPLIT, "--subagents"]).ok();
    assert!(!plain.out.contains("subagent") && more.out.contains("subagent"), "{}{}", plain.out, more.out);
}

/// Every byte that is kept on the disk.
fn everything_kept(host: &Host) -> Vec<u8> {
    let mut all = Vec::new();
    let mut folders = vec![host.path("data")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false => all.extend(std::fs::read(entry.path()).unwrap_or_default()),
            }
        }
    }
    all
}

fn is_kept(host: &Host, text: &str) -> bool {
    everything_kept(host).windows(text.len()).any(|part| part == text.as_bytes())
}

#[test]
fn a_secret_gets_nowhere_near_the_disk() {
    let host = Host::new();
    let secret = secret();
    let said =
        |number: usize| line("s", number).replace("about", &format!("ANTHROPIC_API_KEY={secret} about"));
    append(&host.transcript("s"), &(said(0) + &said(1)));
    append(
        &host.transcript("s"),
        &format!("{{\"type\":\"novelty\",\"sessionId\":\"s\",\"x\":\"{secret}\"}}\n"),
    );
    let mut event = host.event("UserPromptSubmit", "s");
    event["prompt"] = format!("use {secret} for it").into();
    host.hook(&event);
    host.stored("s", 2);
    host.quiet();
    // The same while the database is locked: then it lies in the spool.
    let connection = host.connection().unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    host.hook(&event);
    assert!(!host.spool().is_empty().unwrap());
    assert!(!is_kept(&host, &secret), "it is in the spool");
    assert!(is_kept(&host, "for it"), "and the rest of the prompt is");
    connection.execute_batch("ROLLBACK").unwrap();
    until("both are there", || host.hook_events("s") == 2);
    host.quiet();
    assert!(!is_kept(&host, &secret));
    let session = host.session("s");
    assert!(
        texts(&session).iter().all(|text| text.contains("message") && !text.contains("sk-ant")),
        "{session}"
    );
}

#[test]
fn what_was_forgotten_is_gone_from_the_file_and_does_not_come_back() {
    let host = Host::new();
    let unlikely = "Quetzalcoatlus northropi";
    append(&host.transcript("s"), &line("s", 0).replace("about", unlikely));
    append(&host.transcript("s"), &line("s", 1));
    let raw = "Hatzegopteryx thambema";
    append(
        &host.transcript("s"),
        &format!(
            "{{\"type\":\"novelty\",\"sessionId\":\"s\",\"timestamp\":\"2025-10-08T08:00:05.000Z\",\"x\":\"{raw}\"}}\n"
        ),
    );
    let mut event = host.event("UserPromptSubmit", "s");
    event["prompt"] = format!("what is {unlikely}?").into();
    host.hook(&event);
    host.write("other", 0..2);
    host.stop("other");
    host.stored("s", 2);
    host.stored("other", 2);
    host.quiet();
    assert!(is_kept(&host, unlikely) && is_kept(&host, raw));
    host.quell(&["sessions", "forget", "s"]).exits(2).complains("--yes");
    host.quell(&["sessions", "forget", "s", "--yes"]).ok().says("1 session forgotten");
    host.quell(&["session", "s"]).exits(3).complains("there is no session");
    assert!(!is_kept(&host, unlikely), "it is still in the bytes of the file");
    assert!(!is_kept(&host, raw), "a line of an unknown type is still in the bytes of the file");
    // The session goes on, and its transcript still begins with what was forgotten.
    append(&host.transcript("s"), &line("s", 3).replace("2025-10-08", "2035-10-08"));
    host.stop("s");
    host.stored("s", 1);
    host.quiet();
    assert_eq!(texts(&host.session("s")), ["message 3 about word3"]);
    assert!(!is_kept(&host, unlikely), "it came back");
    assert!(!is_kept(&host, raw), "a line of an unknown type came back");
    assert_eq!(host.messages("other"), 2);
}

#[test]
fn what_is_forgotten_while_it_is_read_does_not_come_back() {
    let host = Host::debouncing(Some("0.1"));
    // Known before, so that it can be named whenever the pass is met.
    host.stop("s");
    until("the session is known", || host.hook_events("s") == 1);
    host.write_much("s");
    host.stop("s");
    let held = host.in_the_middle("s");
    // Both wait for the database now, and go on together.
    std::thread::scope(|scope| {
        let forgetting = scope.spawn(|| host.quell(&["sessions", "forget", "s", "--yes"]).ok());
        millis(300);
        drop(held);
        forgetting.join().unwrap();
    });
    host.quiet();
    assert_eq!((host.messages("s"), host.hook_events("s")), (0, 0));
}

#[test]
fn what_lies_in_the_spool_is_forgotten_with_its_session() {
    let host = Host::new();
    host.write("s", 0..2);
    host.stop("s");
    host.stored("s", 2);
    host.quiet();
    // A worker was not there for it yet.
    let unlikely = "Dolichorhynchops osborni";
    let connection = host.connection().unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let lock = quell_transcripts::keeper::alone(&host.database()).unwrap().unwrap();
    let mut event = host.event("UserPromptSubmit", "s");
    event["prompt"] = unlikely.into();
    host.hook(&event);
    connection.execute_batch("ROLLBACK").unwrap();
    assert!(is_kept(&host, unlikely));
    host.quell(&["sessions", "forget", "s", "--yes"]).ok();
    drop(lock);
    host.stop("other");
    host.write("other", 0..1);
    host.stored("other", 1);
    host.quiet();
    assert!(!is_kept(&host, unlikely), "it was said before");
}

#[test]
fn old_sessions_are_forgotten_when_the_retention_says_so() {
    let host = Host::new().configured("[transcripts]\nretention = \"1d\"\n");
    let folder = host.path("claude/projects").display().to_string();
    host.write("old", 0..4);
    host.quell(&["sessions", "import", &folder]).ok();
    assert_eq!(host.messages("old"), 4);
    let now = line("new", 0).replace("2025-10-08", "2035-10-08");
    append(&host.transcript("new"), &now);
    host.stop("new");
    host.stored("new", 1);
    until("the old one is forgotten", || host.messages("old") == 0);
    host.quiet();
    host.quell(&["session", "old"]).exits(3);
    assert_eq!(host.session("new")["session"]["messages"], 1);
}

#[test]
fn a_server_forgets_old_sessions_too() {
    let host = Host::new();
    let folder = host.path("claude/projects").display().to_string();
    host.write("old", 0..4);
    host.quell(&["sessions", "import", &folder]).ok();
    let config = host.path("server.toml");
    std::fs::write(&config, "[transcripts]\nretention = \"1d\"\n").unwrap();
    let config = config.display().to_string();
    let serve = host.start(&["--store", &host.store(), "--config", &config, "serve"]).started();
    append(&host.transcript("new"), &line("new", 0).replace("2025-10-08", "2035-10-08"));
    host.stop("new");
    host.stored("new", 1);
    until("the old one is forgotten", || host.messages("old") == 0);
    serve.stop();
}

#[test]
fn an_event_that_looks_like_a_parcel_is_kept_all_the_same() {
    let host = Host::new();
    host.write("s", 0..2);
    let mut event = host.event("PostToolUse", "s");
    event["tool_input"] = serde_json::json!({ "quell_parcel": 1 });
    host.hook(&event);
    host.stored("s", 2);
    host.quiet();
    assert_eq!(host.hook_events("s"), 1);
}
