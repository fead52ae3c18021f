//! `quell serve`: HTTP beside the workers, tokens, and workers in other languages.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Folder, Process, http, until};

fn post(address: &str, path: &str, body: &Value) -> (u16, Value) {
    let (status, text) = http(address, "POST", path, None, &body.to_string());
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

fn get(address: &str, path: &str) -> Value {
    let (status, text) = http(address, "GET", path, None, "");
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn an_event_over_http_is_handled_by_the_same_process() {
    let folder = Folder::with_config("[queues.hello]\nwindow = \"none\"\n");
    let mut serve = folder.start(&["serve"]);
    let address = serve.http_address();
    let event = json!({ "key": "world", "payload": { "text": "hi" }, "id": "a" });
    let (status, answer) = post(&address, "/v1/queues/hello/events", &event);
    assert_eq!(status, 202, "{answer}");
    serve.line("hello/world: 1 event, fired by none");
    let (_, again) = post(&address, "/v1/queues/hello/events", &event);
    assert_eq!(again["receipts"][0]["duplicate"], true);
    let run = answer["receipts"][0]["run_id"].as_str().unwrap();
    assert_eq!(get(&address, &format!("/v1/runs/{run}?wait_ms=20000"))["state"], "succeeded");
    assert_eq!(get(&address, "/readyz")["status"], "ready");
    let workers = get(&address, "/v1/workers");
    assert_eq!(workers["items"][0]["pid"], serve.pid());
    serve.stop();
}

#[test]
fn no_work_leaves_the_work_to_other_processes() {
    let folder = Folder::with_config("[queues.hello]\nwindow = \"none\"\n");
    let mut serve = folder.start(&["serve", "--no-work"]);
    let address = serve.http_address();
    serve.line("`quell work` runs the handlers elsewhere");
    post(&address, "/v1/queues/hello/events", &json!({ "key": "k", "payload": 1 }));
    assert_eq!(get(&address, "/v1/lanes/hello/k")["state"], "pending");
    folder.quell(&["work", "--until-idle"]).ok().says("hello/k: 1 event");
    serve.stop();
    folder.quell(&["serve", "--no-work", "--processes", "2"]).exits(2).complains("--processes");
}

#[test]
fn an_address_that_is_taken_and_one_for_everybody_are_refused_in_words() {
    let folder = Folder::new();
    let mut serve = folder.start(&["serve"]);
    let address = serve.http_address();
    folder.quell(&["serve", "--listen", &address]).exits(2).complains("cannot listen on");
    let refused = folder.quell(&["serve", "--listen", "0.0.0.0:0"]).exits(2);
    refused.complains("can be reached from other machines").complains("quell token create");
    serve.stop();
}

#[test]
fn tokens_are_made_listed_used_and_taken_away() {
    let folder = Folder::new();
    let made = folder.quell(&["token", "create", "shop", "--scope", "ingest", "--queue", "orders"]).ok();
    let made = made.complains("shown this once").complains("first one of this store");
    let token = made.out.trim().to_owned();
    assert!(token.starts_with("quell_") && token.len() == 75, "{token}");
    let listed = folder.quell(&["token", "list"]).ok().says("shop").says("orders").out;
    let whole = folder.quell(&["token", "list", "--json"]).ok().out;
    assert!(!listed.contains(&token[17..]) && !whole.contains("hash"), "{whole}");

    let mut serve = folder.start(&["serve"]);
    let address = serve.http_address();
    let body = json!({ "key": "k", "payload": 1 }).to_string();
    let send = |queue: &str, token: Option<&str>| {
        http(&address, "POST", &format!("/v1/queues/{queue}/events"), token, &body).0
    };
    assert_eq!(send("orders", None), 401);
    assert_eq!(send("orders", Some("quell_nonsense")), 401);
    assert_eq!(send("orders", Some(&token)), 202);
    assert_eq!(send("others", Some(&token)), 403);
    assert_eq!(http(&address, "GET", "/v1/lanes", Some(&token), "").0, 403);

    let id = folder.json(&["token", "list"])[0]["id"].as_str().unwrap().to_owned();
    // With another one beside it, so that the server does not become open again.
    folder.quell(&["token", "create", "ops", "--scope", "admin"]).ok();
    folder.quell(&["token", "revoke", &id]).ok();
    folder.quell(&["token", "revoke", &id]).exits(3);
    until("the server knows", || send("orders", Some(&token)) == 401);
    folder.quell(&["token", "create", "x", "--scope", "root"]).exits(2).complains("none of ingest");
    folder
        .quell(&["token", "create", "x", "--scope", "admin", "--tenant", "a"])
        .exits(2)
        .complains("cannot be limited");
    serve.stop();
}

#[test]
fn a_service_manager_is_told_when_it_is_ready_and_when_it_stops() {
    let folder = Folder::new();
    let socket = std::os::unix::net::UnixDatagram::bind(folder.path("notify")).unwrap();
    socket.set_read_timeout(Some(crate::support::PATIENCE)).unwrap();
    let mut told = [0; 256];
    let mut next = || {
        let length = socket.recv(&mut told).unwrap();
        String::from_utf8_lossy(&told[..length]).trim().to_owned()
    };
    let mut command = folder.command(&["serve", "--listen", "127.0.0.1:0"]);
    command
        .env("NOTIFY_SOCKET", folder.path("notify"))
        .env("WATCHDOG_USEC", "200000")
        .env_remove("WATCHDOG_PID");
    let mut serve = Process::start(command);
    let address = serve.http_address();
    assert_eq!(next(), "READY=1");
    assert_eq!(get(&address, "/healthz")["status"], "alive");
    assert_eq!(next(), "WATCHDOG=1");
    assert_eq!(next(), "WATCHDOG=1", "again and again");
    serve.signal(rustix::process::Signal::TERM);
    while next() != "STOPPING=1" {}
    assert_eq!(serve.end().0.code(), Some(0));
}

/// A program of `examples/`.
fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

/// Starts a worker in another language; it is killed when it is dropped.
fn worker(program: &str, name: &str, address: &str) -> Process {
    let mut command = Command::new(program);
    command.arg(example(name)).arg(format!("http://{address}")).arg("hello").env_remove("QUELL_TOKEN");
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(found.is_ok(), "{program} is needed: apt-get install --no-install-recommends python3 nodejs");
    Process::start(command)
}

/// Three events of a burst reach it as one run; one that is killed in the middle loses nothing.
fn works_and_may_die(program: &str, name: &str) {
    let folder = Folder::with_config(
        "[queues.hello]\nwindow = { quiet = \"300ms\", max_wait = \"5s\" }\nlease = \"2s\"\nhandler = \"pull\"\n",
    );
    let mut serve = folder.start(&["serve"]);
    let address = serve.http_address();
    let mut first = worker(program, name, &address);
    let burst: Vec<Value> = (0..3).map(|n| json!({ "key": "ada", "payload": n })).collect();
    let (_, stored) = post(&address, "/v1/queues/hello/events", &Value::Array(burst));
    let line = first.line("ada");
    assert!(line.replace(' ', "").contains("[0,1,2]"), "{line}");
    let run = stored["receipts"][2]["run_id"].as_str().unwrap();
    let ended = get(&address, &format!("/v1/runs/{run}?wait_ms=20000"));
    assert_eq!((&ended["state"], &ended["result"]["events"]), (&json!("succeeded"), &json!(3)), "{ended}");

    // It waits in a long poll; killed there, it holds nothing and hinders nobody.
    first.kill();
    let (_, stored) = post(&address, "/v1/queues/hello/events", &json!({ "key": "bob", "payload": 7 }));
    let mut second = worker(program, name, &address);
    second.line("bob");
    let run = stored["receipts"][0]["run_id"].as_str().unwrap();
    assert_eq!(get(&address, &format!("/v1/runs/{run}?wait_ms=20000"))["state"], "succeeded");
    second.kill();

    // One that dies with a run in its hands: the next one gets it after the lease.
    post(&address, "/v1/queues/hello/events", &json!({ "key": "cy", "payload": 8 }));
    let wish = json!({ "queues": ["hello"], "worker": "dies", "wait_ms": 10_000, "lease_ms": 500 });
    let (_, claimed) = post(&address, "/v1/claims", &wish);
    let run = claimed["claims"][0]["run_id"].as_str().unwrap().to_owned();
    let mut third = worker(program, name, &address);
    third.line("cy");
    let ended = get(&address, &format!("/v1/runs/{run}?wait_ms=20000"));
    assert_eq!((&ended["state"], &ended["attempts"]), (&json!("succeeded"), &json!(2)), "{ended}");
    third.kill();
    folder.quell(&["doctor"]).ok();
    serve.stop();
}

#[test]
fn a_worker_in_python_works_and_may_die() {
    works_and_may_die("python3", "pull_worker.py");
}

#[test]
fn a_worker_in_node_works_and_may_die() {
    works_and_may_die("node", "pull_worker.mjs");
}
