//! Sessions of other hosts: their hooks keep them until a server, or the database of a team, takes them.

use std::net::TcpListener;

use super::host::{Host, until};

const SESSION: &str = "db5b5fab-8f4d-4e27-9da1-494c73cf256d";

/// Retries that do not take a minute.
const PATIENT: &str =
    "[transcripts]\n[queues.transcripts]\nretry = { base = \"300ms\", factor = 1.0, attempts = 500 }\n";

fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn keeping() -> Host {
    let host = Host::debouncing(Some("0.2"));
    std::fs::create_dir_all(host.database().parent().unwrap()).unwrap();
    host
}

fn counts(server: &Host) -> (i64, i64, i64) {
    let tokens = server.number("SELECT input_tokens FROM transcripts_session");
    (server.messages(SESSION), server.hook_events(SESSION), tokens)
}

#[test]
fn sessions_of_another_host_are_kept_by_a_server() {
    let server = keeping();
    let mut serve = server.start(&["--store", &server.store(), "serve"]);
    let address = serve.http_address();
    let agent = Host::debouncing(Some("0.2")).sending_to(&format!("http://{address}"));
    agent.place("simple.jsonl", SESSION);
    let mut event = agent.event("UserPromptSubmit", SESSION);
    event["prompt"] = "Add a cache to the price collector".into();
    agent.hook(&event);
    agent.stop(SESSION);
    until("it arrives", || counts(&server) == (4, 2, 1489));
    agent.quiet();
    // It grows, and only what is new is sent.
    agent.write(SESSION, 0..2);
    agent.stop(SESSION);
    until("the rest arrives", || counts(&server) == (6, 3, 1489 + 3));
    agent.quiet();
    let session = server.session(SESSION);
    assert_eq!(
        (&session["session"]["problem"], &session["session"]["status"]),
        (&serde_json::Value::Null, &"done".into())
    );
    assert_eq!(session["session"]["title"], "Add a cache to the price collector");
    assert!(!server.path("claude/projects/p").join(format!("{SESSION}.jsonl")).exists());
    assert_eq!(agent.messages(SESSION), 0, "what is sent is not kept here");
    serve.stop();
}

#[test]
fn what_a_server_was_away_for_is_delivered_when_it_is_back() {
    let server = keeping();
    let port = port();
    let listen = format!("127.0.0.1:{port}");
    let agent = Host::debouncing(Some("0.2")).configured(PATIENT).sending_to(&format!("http://{listen}"));
    agent.place("simple.jsonl", SESSION);
    agent.stop(SESSION);
    until("it was tried", || agent.number("SELECT r_retries FROM lane") > 0);
    let serve = server.start(&["--store", &server.store(), "serve", "--listen", &listen]).started();
    // No other hook comes: the worker tries again.
    until("it arrives", || counts(&server) == (4, 1, 1489));
    agent.quiet();
    serve.stop();
    // Away again, and this time the host's worker dies, too.
    agent.stop(SESSION);
    until("it was tried", || agent.number("SELECT r_retries FROM lane") > 0);
    agent.kill_all();
    until("it is gone", || agent.workers().is_empty());
    let serve = server.start(&["--store", &server.store(), "serve", "--listen", &listen]).started();
    agent.write(SESSION, 0..2);
    agent.stop(SESSION);
    until("everything arrives", || counts(&server) == (6, 3, 1489 + 3));
    agent.quiet();
    serve.stop();
    assert_eq!(server.number("SELECT count(*) - count(DISTINCT uuid) FROM transcripts_message"), 0);
    assert_eq!(server.number("SELECT count(*) FROM run WHERE state = 4"), 0);
}

#[test]
fn a_problem_of_another_host_is_told_to_the_server() {
    let server = keeping();
    let mut serve = server.start(&["--store", &server.store(), "serve"]);
    let address = serve.http_address();
    let agent = Host::debouncing(Some("0.2")).sending_to(&format!("http://{address}"));
    let mut event = agent.event("Stop", SESSION);
    event["transcript_path"] = "/etc/passwd".into();
    agent.hook(&event);
    until("it arrives", || {
        server.number("SELECT count(*) FROM transcripts_session WHERE problem IS NOT NULL") == 1
    });
    agent.quiet();
    let session = server.session(SESSION);
    assert!(session["session"]["problem"].as_str().unwrap().contains("/etc/passwd"), "{session}");
    assert_eq!(session["messages"], serde_json::json!([]));
    serve.stop();
}

#[test]
fn a_team_keeps_its_sessions_in_one_postgresql() {
    let url = quell_test_servers::postgres_url();
    let joint = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{joint}schema=team{}&pool=4", std::process::id());
    let hosts = ["ada", "bob"].map(|name| (name, Host::debouncing(Some("0.2")).keeping_in(&url)));
    for (name, host) in &hosts {
        host.write(name, 0..3);
        host.stop(name);
    }
    let reader = Host::new();
    let messages = |session: &str| {
        let page = reader.json(&["--store", &url, "sessions"]);
        let found = page["items"].as_array().unwrap().iter().find(|item| item["id"] == session).cloned();
        found.map_or(0, |item| item["messages"].as_i64().unwrap())
    };
    for (name, host) in &hosts {
        until("its session is there", || messages(name) == 3);
        host.quiet();
        host.write(name, 3..5);
        host.stop(name);
        until("what is new is there", || messages(name) == 5);
        host.quiet();
        assert!(!host.log().contains("postgres"), "{}", host.log());
    }
    let hits = reader.json(&["--store", &url, "search", "word4"]);
    assert_eq!(hits["items"].as_array().unwrap().len(), 2, "{hits}");
    reader.quell(&["--store", &url, "sessions", "forget", "ada", "--yes"]).ok();
    assert_eq!((messages("ada"), messages("bob")), (0, 5));
}

#[test]
fn a_server_that_wants_a_token_gets_the_one_of_the_file() {
    let server = keeping();
    let made = server.json(&[
        "--store",
        &server.store(),
        "token",
        "create",
        "laptop",
        "--scope",
        "ingest",
        "--queue",
        "transcripts",
    ]);
    let secret =
        made["secret"].as_str().or(made["token"].as_str()).expect("a new token is shown once").to_owned();
    let mut serve = server.start(&["--store", &server.store(), "serve"]);
    let address = serve.http_address();
    let url = format!("http://{address}");
    let agent = Host::debouncing(Some("0.2")).sending_to(&url);
    std::fs::write(agent.path("token"), format!("{secret}\n")).unwrap();
    let file = agent.path("token").display().to_string();
    agent.write("s", 0..2);
    let event = agent.event("Stop", "s").to_string();
    agent.feed(&mut agent.command(&["hook", "--server", &url, "--token-file", &file]), event.as_bytes()).ok();
    until("it arrives", || server.messages("s") == 2);
    agent.quiet();
    serve.stop();
}
