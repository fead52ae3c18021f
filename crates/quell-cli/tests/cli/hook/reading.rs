//! Reading what was captured: `sessions`, `session`, `search`, and taking in what is there already.

use serde_json::Value;

use super::host::{Host, fixture, line};

const SIMPLE: &str = "db5b5fab-8f4d-4e27-9da1-494c73cf256d";
const TOOLS: &str = "164f1513-563e-4bed-8510-0358acc6d8f2";
const INLINE: &str = "02e50777-e57b-4e11-817e-16c97c7dfaf5";

/// With some sessions in it, taken in as they lie there.
fn library() -> Host {
    let host = Host::new();
    for (name, session) in
        [("simple.jsonl", SIMPLE), ("tools_thinking.jsonl", TOOLS), ("sidechain_inline.jsonl", INLINE)]
    {
        host.place(name, session);
    }
    let folder = host.path("claude/projects").display().to_string();
    host.quell(&["sessions", "import", &folder]).ok().says("3 sessions in 3 transcripts");
    host
}

fn ids(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect()
}

#[test]
fn a_host_without_sessions_says_how_to_get_some() {
    let host = Host::new();
    for args in [&["sessions"][..], &["session", "x"], &["search", "x"], &["sessions", "forget", "x"]] {
        host.quell(args).exits(3).complains("no session has been captured").complains("quell hook install");
    }
    assert!(!host.database().exists(), "looking makes nothing");
    host.quell(&["sessions", "import", "/nowhere"]).exits(3).complains("/nowhere");
    std::fs::create_dir_all(host.path("nothing")).unwrap();
    let empty = host.path("nothing").display().to_string();
    host.quell(&["sessions", "import", &empty]).ok().says("0 sessions in 0 transcripts");
    assert_eq!(host.json(&["sessions"]), serde_json::json!({ "items": [], "next": null }));
    host.quell(&["search", "anything"]).ok().complains("nothing was found");
}

#[test]
fn what_is_there_already_is_taken_in_once() {
    let host = library();
    let folder = host.path("claude/projects").display().to_string();
    let again = host.json(&["sessions", "import", &folder]);
    assert_eq!((&again["files"], &again["lines"], &again["bytes"]), (&3.into(), &0.into(), &0.into()));
    assert_eq!(again["refused"], serde_json::json!([]));
    assert_eq!(host.number("SELECT count(*) FROM transcripts_message"), 4 + 11 + 8);
    // A hook of the same session goes on where the import stopped.
    host.stop(SIMPLE);
    host.quiet();
    assert_eq!((host.messages(SIMPLE), host.hook_events(SIMPLE)), (4, 1));
    // One file alone, and one that is not a transcript.
    let single = fixture("transcripts/unicode.jsonl").display().to_string();
    host.quell(&["sessions", "import", &single]).ok().says("1 session in 1 transcript: 8 lines new");
    std::fs::write(host.path("claude/projects/p/broken.jsonl"), "not json\n{\n").unwrap();
    let broken = host.json(&["sessions", "import", &folder]);
    assert_eq!(broken["malformed"], 2, "{broken}");
}

#[test]
fn sessions_are_listed_filtered_and_paged() {
    let host = library();
    let all = host.json(&["sessions"]);
    assert_eq!(all["next"], Value::Null);
    let mut listed = ids(&all);
    listed.sort_unstable();
    assert_eq!(listed, [INLINE, TOOLS, SIMPLE]);
    let tools = all["items"].as_array().unwrap().iter().find(|item| item["id"] == TOOLS).unwrap();
    assert_eq!(
        tools["tokens"],
        serde_json::json!({
            "input": 2232, "output": 260, "cache_creation": 2260, "cache_read": 4100,
        })
    );
    assert_eq!(
        (&tools["messages"], &tools["prompts"], &tools["status"]),
        (&11.into(), &1.into(), &"done".into())
    );

    let mut paged = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut args = vec!["sessions", "--limit", "1"];
        if let Some(cursor) = &cursor {
            args.extend(["--cursor", cursor]);
        }
        let page = host.json(&args);
        paged.extend(ids(&page).into_iter().map(str::to_owned));
        match page["next"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    assert_eq!(paged, ids(&all), "page by page the same as at once");
    host.quell(&["sessions", "--cursor", "x"]).exits(2).complains("not from an earlier page");

    assert_eq!(ids(&host.json(&["sessions", "--project", "COIN-shop"])).len(), 3);
    for none in
        [["--project", "elsewhere"], ["--project", "coin%"], ["--status", "active"], ["--since", "1d"]]
    {
        assert_eq!(ids(&host.json(&["sessions", none[0], none[1]])), Vec::<&str>::new(), "{none:?}");
    }
    host.hook(&host.event("UserPromptSubmit", SIMPLE));
    host.quiet();
    for one in [["--status", "active"], ["--since", "1d"]] {
        assert_eq!(ids(&host.json(&["sessions", one[0], one[1]])), [SIMPLE], "{one:?}");
    }
    host.quell(&["sessions"]).ok().says("Fix the rounding of negative prices").says("active");
}

#[test]
fn a_conversation_is_shown_as_text_markdown_and_json() {
    let host = library();
    let plain = host.quell(&["session", &TOOLS[..8]]).ok();
    let plain = plain.says("you ").says("→ Bash: cargo test price").says("2232 in, 260 out");
    assert!(!plain.out.contains("The rounding rule sits"), "what it thought is not asked for");
    host.quell(&["session", TOOLS, "--thinking"]).ok().says("~ The rounding rule sits in one place");
    let markdown = host.quell(&["session", TOOLS, "--markdown", "--thinking"]).ok();
    markdown.says("# Fix the rounding").says("## You · 2025-10-08T09:03:21.137Z").says("> The rounding rule");
    let json = host.session(TOOLS);
    assert_eq!((json["messages"].as_array().unwrap().len(), &json["session"]["id"]), (11, &TOOLS.into()));
    assert_eq!(json["hook_events"], serde_json::json!([]));
    let thought = json["messages"].as_array().unwrap().iter().find(|one| one["thinking"] != "").unwrap();
    assert_eq!(thought["role"], "assistant");
    assert!(thought["thinking"].as_str().unwrap().starts_with("The rounding rule"));

    let without = host.quell(&["session", INLINE]).ok();
    let with = host.quell(&["session", INLINE, "--subagents"]).ok().says("to subagent");
    assert!(!without.out.contains("subagent") && with.out.len() > without.out.len());
    host.quell(&["session", TOOLS, "--json", "--markdown"]).exits(2);
    host.quell(&["session", "nobody"]).exits(3).complains("there is no session nobody");
    let twin = format!("{}-twin", &TOOLS[..8]);
    host.write(&twin, 0..1);
    host.stop(&twin);
    host.stored(&twin, 1);
    host.quell(&["session", &TOOLS[..8]]).exits(2).complains("several sessions begin with");
    host.quell(&["session", TOOLS]).ok();
}

#[test]
fn words_are_found_in_all_sessions_and_where_they_are_looked_for() {
    let host = library();
    host.write("other", 0..4);
    let mut line = line("other", 4).replace("message 4", "the rate limit, not a limit of the rate");
    line = line.replace("coin-shop", "stamp-shop").replace("2025-10-08", "2035-10-08");
    super::host::append(&host.transcript("other"), &line);
    host.stop("other");
    host.stored("other", 5);
    host.quiet();
    let found = |args: &[&str]| -> Vec<String> {
        let mut all = vec!["search"];
        all.extend(args);
        let page = host.json(&all);
        page["items"].as_array().unwrap().iter().map(|hit| hit["uuid"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(found(&["word3"]), ["other-00003"]);
    assert_eq!(found(&["message", "word1"]), ["other-00001"]);
    assert_eq!(found(&["message", "--session", "other"]).len(), 4);
    assert_eq!(found(&["message", "--session", "other", "--limit", "2"]).len(), 2);
    assert_eq!(found(&["\"rate limit\""]), ["other-00004"]);
    assert_eq!(found(&["\"limit rate\""]), Vec::<String>::new());
    let mut either = found(&["word1", "OR", "word2"]);
    either.sort();
    assert_eq!(either, ["other-00001", "other-00002"]);
    assert_eq!(found(&["message -word1 -word2 -word3"]), ["other-00000"]);
    assert_eq!(found(&["message", "--role", "assistant"]), found(&["word1", "OR", "word3"]));
    assert_eq!(found(&["word4", "--since", "1d"]), ["other-00004"]);
    assert_eq!(found(&["word3", "--since", "1d"]), Vec::<String>::new());
    assert_eq!(found(&["message", "--until", "1d"]).len(), 4);
    assert_eq!(found(&["word3", "--project", "elsewhere"]), Vec::<String>::new());
    // What it thought, and what it did.
    assert_eq!(found(&["rounding", "rule", "sits", "--session", TOOLS]).len(), 1);
    assert_eq!(found(&["\"cargo test price\""]).len(), 1);
    // What looks like an order to the database is only words.
    for odd in ["\"", "*", "text:word3", "NEAR(a b)", "a^b", "'; DROP TABLE x"] {
        host.quell(&["search", odd]).ok();
    }
    let hit = &host.json(&["search", "word3"])["items"][0];
    assert_eq!((&hit["session_id"], &hit["role"]), (&"other".into(), &"assistant".into()));
    assert!(hit["snippet"].as_str().unwrap().contains("«word3»"), "{hit}");
    host.quell(&["search", "word3"]).ok().says("about word3").complains("quell session ID");
    host.quell(&["search", "--json", "--", "message", "-word1"]).ok().says("«message»");
    host.quell(&["search", "message", "-word1"]).exits(2).complains("unexpected argument");
    host.quell(&["search"]).exits(2);
    host.quell(&["search", "x", "--role", "nobody"]).exits(2);
}

#[test]
fn a_terminal_is_not_steered_by_what_was_said() {
    let host = Host::new();
    let line = line("s", 0).replace("about", "\\u001b[31mred\\u0007\\u202e");
    super::host::append(&host.transcript("s"), &line);
    host.stop("s");
    host.stored("s", 1);
    for args in [
        &["session", "s"][..],
        &["session", "s", "--markdown"],
        &["sessions"],
        &["search", "red*", "OR", "word0"],
    ] {
        let said = host.quell(args).ok().out;
        assert!(!said.contains(['\u{1b}', '\u{7}']), "{args:?}: {said:?}");
    }
}

#[test]
fn an_event_that_nobody_works_on_is_seen_to_by_whoever_looks() {
    let host = Host::debouncing(Some("0.1"));
    host.write("s", 0..2);
    host.stop("s");
    host.stored("s", 2);
    host.quiet();
    host.write("s", 2..4);
    // Stored, and everybody who could have worked on it is gone.
    let lock = quell_transcripts::keeper::alone(&host.database()).unwrap().unwrap();
    host.stop("s");
    drop(lock);
    assert_eq!(host.workers(), Vec::<u32>::new());
    host.quell(&["sessions"]).ok();
    host.stored("s", 4);
    host.quiet();
}
