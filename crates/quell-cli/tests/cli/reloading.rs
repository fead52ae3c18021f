//! The configuration, changed while processes run: SIGHUP and `POST /v1/reload`.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Folder, http, items, until};

/// A handler that says in a file that it began, and waits for another one before it ends.
const SLOW: &str = "[queues.slow]
window = \"none\"
lease = \"5s\"
handler = { exec = [\"sh\", \"-c\", \"touch began; while [ ! -e go ]; do sleep 0.05; done; echo old >> done\"] }
";
const QUICK: &str = "[queues.slow]
window = \"none\"
handler = { exec = [\"sh\", \"-c\", \"echo new >> done\"] }
[queues.fresh]
window = \"none\"
handler = { exec = [\"sh\", \"-c\", \"echo fresh >> done\"] }
";

fn post(address: &str, path: &str, body: &Value) -> (u16, Value) {
    let (status, text) = http(address, "POST", path, None, &body.to_string());
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

fn reload(address: &str) -> (u16, Value) {
    post(address, "/v1/reload", &Value::Null)
}

fn names(answer: &Value, field: &str) -> Vec<String> {
    let list = answer[field].as_array().unwrap_or_else(|| panic!("no {field} in {answer}"));
    list.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

fn sends(address: &str, queue: &str, key: &str) -> u16 {
    post(address, &format!("/v1/queues/{queue}/events"), &json!({ "key": key, "payload": 1 })).0
}

#[test]
fn a_hang_up_puts_the_file_in_force_and_running_handlers_keep_their_leases() {
    let folder = Folder::with_config(SLOW);
    let mut serve = folder.start(&["serve"]);
    let address = serve.http_address();
    assert_eq!(sends(&address, "slow", "a"), 202);
    assert_eq!(sends(&address, "fresh", "a"), 404, "it is not in the file yet");
    until("the handler began", || folder.path("began").exists());

    folder.write("quell.toml", QUICK);
    serve.signal(Signal::HUP);
    let told = serve.line("config.reloaded");
    assert!(told.contains("queues.fresh.handler") && told.contains("queues.slow.handler"), "{told}");
    assert_eq!(sends(&address, "fresh", "a"), 202);
    until("the new queue is worked on", || folder.read("done").contains("fresh"));
    // A key of the changed queue is handled in the new way while the old run goes on.
    assert_eq!(sends(&address, "slow", "b"), 202);
    until("the changed queue is worked on", || folder.read("done").contains("new"));

    let lane = folder.json(&["lane", "slow", "a"]);
    assert_eq!(lane["state"], "running", "{lane}");
    folder.write("go", "");
    until("the run that was under way ends", || folder.read("done").contains("old"));
    let run = folder.until("it succeeded", &["runs", "--queue", "slow", "--key", "a"], |page| {
        items(page)[0]["state"] == "succeeded"
    });
    assert_eq!(items(&run)[0]["attempts"], 1, "its lease was kept: {run}");
    let audit = folder.quell(&["audit", "--queue", "slow", "--json"]).ok().out;
    assert!(!audit.contains("reclaimed"), "{audit}");
    serve.stop();
}

#[test]
fn a_file_that_cannot_be_used_is_refused_with_its_place_and_the_old_one_stays() {
    let folder = Folder::with_config("[queues.a]\nwindow = \"none\"\n");
    let mut serve = folder.start(&["serve"]);
    let address = serve.http_address();
    let refused = |text: &str, problem: &str| {
        folder.write("quell.toml", text);
        let (status, answer) = reload(&address);
        assert_eq!((status, answer["code"].as_str()), (422, Some("bad-configuration")), "{answer}");
        assert!(answer["detail"].as_str().unwrap().contains(problem), "{problem:?} is not in {answer}");
    };
    refused("[queues.a]\nlease = \"10 lightyears\"\n", "quell.toml:2:9");
    refused("[queues.a\n", "quell.toml:1");
    refused("[queues.b]\nwindow = \"none\"\nsource = \"nobody\"\n", "nobody");
    let push = "[queues.b]\nhandler = { http = \"https://example.com/\", secret_env = \"NOWHERE\" }\n";
    refused(push, "NOWHERE");
    let hook = "[queues.a]\n[endpoints.github]\nscheme = \"github\"\nsecret_file = \"none\"\nqueue = \"a\"\nkey = \"/x\"\n";
    refused(hook, "github");
    serve.signal(Signal::HUP);
    serve.line("config.refused");
    assert_eq!(sends(&address, "b", "k"), 404);
    assert_eq!(sends(&address, "a", "k"), 202);
    serve.line("a/k: 1 event, fired by none");

    std::fs::remove_file(folder.path("quell.toml")).unwrap();
    let (status, answer) = reload(&address);
    assert_eq!(status, 422);
    assert!(answer["detail"].as_str().unwrap().contains("gone"), "{answer}");
    serve.stop();
}

#[test]
fn windows_endpoints_sources_and_schedules_follow_the_file() {
    let before = "[queues.a]\nwindow = { quiet = \"1h\", max_wait = \"2h\" }\n[sources.shop]\nrate_limit_per_minute = 5\n";
    let folder = Folder::with_config(before);
    let mut serve = folder.start(&["serve"]);
    let address = serve.http_address();
    assert_eq!(http(&address, "POST", "/hooks/plain", None, "{\"who\":\"ada\"}").0, 401);
    assert_eq!(sends(&address, "a", "early"), 202);

    let after = "[queues.a]\nwindow = \"none\"\n[sources.shop]\nrate_limit_per_minute = 7\n[sources.other]\n\
        [schedules.nightly]\ncron = \"0 3 * * *\"\nqueue = \"a\"\nkey = \"daily\"\npayload = {}\n\
        [endpoints.plain]\nscheme = \"none\"\nqueue = \"a\"\nkey = \"/who\"\n";
    folder.write("quell.toml", after);
    let (status, answer) = reload(&address);
    assert_eq!(status, 200, "{answer}");
    let changed = names(&answer, "changed");
    for name in ["queues.a.window", "sources.shop.rate_limit_per_minute"] {
        assert!(changed.contains(&name.to_owned()), "{name} is not in {changed:?}");
    }
    assert_eq!(names(&answer, "restart"), Vec::<String>::new());

    assert_eq!(http(&address, "POST", "/hooks/plain", None, "{\"who\":\"ada\"}").0, 200);
    serve.line("a/ada: 1 event, fired by none");
    // A window that was open keeps what it was opened with.
    assert_eq!(folder.json(&["lane", "a", "early"])["state"], "pending");
    folder.until("the source has its new limit", &["sources"], |page| {
        let limit = |name: &str| {
            let row = items(page).iter().find(|row| row["name"] == name)?;
            Some(row["per_minute"].as_u64())
        };
        limit("shop") == Some(Some(7)) && limit("other") == Some(None)
    });
    folder.until("the schedule is there", &["schedules"], |page| {
        items(page).iter().any(|row| row.to_string().contains("nightly"))
    });

    folder.write("quell.toml", before);
    assert_eq!(reload(&address).0, 200);
    assert_eq!(http(&address, "POST", "/hooks/plain", None, "{\"who\":\"ada\"}").0, 401, "it is gone again");
    folder.until("the schedule is gone", &["schedules"], |page| items(page).is_empty());
    serve.stop();
}

#[test]
fn what_a_process_cannot_change_about_itself_is_told_and_stays() {
    let folder = Folder::with_config("[queues.a]\nwindow = \"none\"\n");
    let mut serve = folder.start(&["serve"]);
    let address = serve.http_address();
    folder.write(
        "quell.toml",
        "store = \"sqlite:other.db\"\n[queues.a]\nwindow = \"none\"\n[queues.b]\nwindow = \"none\"\n",
    );
    for _ in 0..2 {
        let (status, answer) = reload(&address);
        assert_eq!(status, 200, "{answer}");
        assert_eq!(names(&answer, "restart"), ["store"], "also when it is asked again");
    }
    assert_eq!(sends(&address, "b", "k"), 202);
    serve.line("b/k: 1 event");
    assert!(!folder.path("other.db").exists());
    serve.stop();
}

#[test]
fn a_queue_that_is_taken_out_of_the_file_keeps_its_events_until_it_comes_back() {
    let both = "[queues.a]\nwindow = \"none\"\n[queues.b]\nwindow = { fixed = \"2s\" }\n";
    let folder = Folder::with_config(both);
    let mut serve = folder.start(&["serve"]);
    let address = serve.http_address();
    assert_eq!(sends(&address, "b", "k"), 202);
    folder.write("quell.toml", "[queues.a]\nwindow = \"none\"\n");
    assert_eq!(reload(&address).0, 200);
    assert_eq!(sends(&address, "b", "k"), 404);
    folder.until("its window is over", &["lane", "b", "k"], |lane| {
        lane["why"].as_str().is_some_and(|why| !why.contains("due in")) && lane["state"] == "pending"
    });
    folder.write("quell.toml", both);
    assert_eq!(reload(&address).0, 200);
    serve.line("b/k: 1 event, fired by fixed");
    serve.stop();
}

#[test]
fn all_processes_read_the_file_again() {
    let folder = Folder::with_config("[queues.a]\nwindow = \"none\"\n");
    let mut serve = folder.start(&["serve", "--processes", "3"]);
    let address = serve.http_address();
    let working = |wanted: &str| {
        let (_, text) = http(&address, "GET", "/v1/workers", None, "");
        let page: Value = serde_json::from_str(&text).unwrap();
        let has = |row: &&Value| row["queues"].as_array().unwrap().iter().any(|queue| queue == wanted);
        items(&page).iter().filter(has).count()
    };
    until("all of them are there", || working("a") == 3);
    folder.write("quell.toml", "[queues.a]\nwindow = \"none\"\n[queues.b]\nwindow = \"none\"\n");
    assert_eq!(reload(&address).0, 200);
    until("all of them work on the new queue", || working("b") == 3);
    serve.stop();
}

#[test]
fn without_a_file_there_is_nothing_to_read_again_and_without_a_token_nobody_may() {
    let folder = Folder::new();
    let mut serve = folder.start(&["serve"]);
    let address = serve.http_address();
    let (status, answer) = reload(&address);
    assert_eq!((status, answer["code"].as_str()), (409, Some("no-configuration")));
    serve.signal(Signal::HUP);
    serve.line("there is no configuration file");
    let operator = folder.quell(&["token", "create", "ops", "--scope", "operate"]).ok().out;
    until("the server knows", || http(&address, "POST", "/v1/reload", None, "").0 == 401);
    assert_eq!(http(&address, "POST", "/v1/reload", Some(operator.trim()), "").0, 403);
    serve.stop();
}
