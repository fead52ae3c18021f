//! Webhooks from the command line: `trigger`, `deliveries`, `tail`, and what `serve` says of endpoints.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;

use crate::support::{Folder, PATIENCE, Process, http, items, until};

const CONFIG: &str = r#"
[queues.builds]
window = { quiet = "300ms" }
[endpoints.github]
scheme = "github"
secret_file = "github.secret"
queue = "builds"
key = "/repository/full_name"
"#;

fn folder() -> Folder {
    let folder = Folder::with_config(CONFIG);
    folder.write("github.secret", "it takes a while to guess this\n");
    folder
}

fn hook(address: &str) -> String {
    format!("http://{address}/hooks/github")
}

/// The deliveries that are remembered, once there are so many.
fn deliveries(folder: &Folder, count: usize) -> Vec<Value> {
    let list = || items(&folder.json(&["deliveries"])).to_vec();
    until("the deliveries are remembered", || list().len() == count);
    list()
}

fn serving(folder: &Folder) -> (Process, String) {
    let mut serve = folder.start(&["serve"]);
    let address = serve.http_address();
    serve.line("/hooks/github (github, signed) into builds");
    (serve, address)
}

#[test]
fn a_burst_of_webhooks_becomes_one_batch_and_every_delivery_is_remembered() {
    let folder = folder();
    let (mut serve, address) = serving(&folder);
    let url = hook(&address);
    let sent = folder.quell(&["trigger", "github/push", "--count", "3", "--url", &url]).ok();
    assert_eq!(sent.out.matches("\"accepted\":1").count(), 3, "{}", sent.out);
    serve.line("builds/example/coin-shop: 3 events, fired by quiet");

    let twice = ["trigger", "github/push", "--id", "again", "--url", &url];
    folder.quell(&twice).ok().says("\"accepted\":1");
    folder.quell(&twice).ok().says("\"duplicates\":1");
    let set = ["trigger", "github/push", "--set", "/repository/full_name=a/b", "--url", &url];
    folder.quell(&set).ok();
    serve.line("builds/a/b: 1 event");
    folder
        .quell(&["trigger", "github/ping", "--url", &url])
        .exits(4)
        .says("422 ")
        .complains("quell deliveries");
    assert_eq!(http(&address, "POST", "/hooks/github", None, "{}").0, 401);
    assert_eq!(http(&address, "POST", "/hooks/nobody", None, "{}").0, 401);

    let all = deliveries(&folder, 9);
    let of = |verdict: &str| all.iter().filter(|one| one["verdict"] == verdict).count();
    assert_eq!((of("accepted"), of("duplicate"), of("refused")), (5, 1, 3));
    let refused = folder.quell(&["deliveries", "--refused"]).ok();
    refused.says("no_key: there is no key at /repository/full_name").says("missing_signature").says("nobody");
    let taken = all.iter().find(|one| one["verdict"] == "accepted").unwrap()["id"].as_str().unwrap();
    let shown = folder.quell(&["deliveries", "show", taken]).ok();
    shown.says("yes, by secret 1").says("x-hub-signature-256: sha256=").says("\"full_name\"");
    folder.quell(&["deliveries", "replay", taken, "--actor", "ops"]).ok().says("replayed by").says("ops");
    folder.quell(&["deliveries", "show", "dlv_none"]).exits(3).complains("there is no delivery");
    serve.stop();
}

#[test]
fn what_a_wrong_secret_refused_is_taken_in_again_when_it_is_mended() {
    let folder = folder();
    let (serve, address) = serving(&folder);
    folder.write("theirs.secret", "what the provider really knows");
    folder.write("theirs.toml", &CONFIG.replace("github.secret", "theirs.secret"));
    let send = ["--config", "theirs.toml", "trigger", "github/push", "--id", "lost", "--url"];
    let url = hook(&address);
    let send: Vec<&str> = send.iter().copied().chain([url.as_str()]).collect();
    folder.quell(&send).exits(4).says("401 lost");
    let id = deliveries(&folder, 1)[0]["id"].as_str().unwrap().to_owned();
    serve.stop();

    let refused = folder.quell(&["deliveries", "replay", &id]).exits(4);
    refused.says("bad_signature");
    folder.write("github.secret", "what the provider really knows");
    folder.quell(&["deliveries", "replay", &id]).ok().says("lost in builds/example/coin-shop");
    folder.quell(&["work", "--until-idle"]).ok().says("builds/example/coin-shop: 1 event");
}

#[test]
fn a_secret_that_cannot_be_used_is_told_at_the_start_and_never_shown() {
    let folder = Folder::with_config(CONFIG);
    folder.quell(&["check"]).ok().complains("endpoint \"github\": the secret from file github.secret");
    let refused = folder.quell(&["serve", "--listen", "127.0.0.1:0"]).exits(2);
    refused.complains("endpoint \"github\"").complains("file github.secret").complains("secret_file");
    folder.write("github.secret", "too short");
    let refused = folder.quell(&["serve", "--listen", "127.0.0.1:0"]).exits(2).complains("cannot be used");
    assert!(!refused.err.contains("too short"), "{}", refused.err);
}

#[test]
fn what_can_be_triggered_is_listed_and_what_cannot_is_told() {
    let folder = folder();
    folder.quell(&["trigger"]).ok().says("github/push").says("stripe/payment").says("standard/order");
    folder.quell(&["trigger", "nothing"]).exits(3).complains("neither a fixture nor a file");
    folder.quell(&["trigger", "stripe/payment"]).exits(2).complains("no endpoint has the scheme");
    folder.quell(&["trigger", "github/push", "--endpoint", "gitlab"]).exits(3).complains("there are: github");
    folder.quell(&["trigger", "github/push", "--url", "ftp://x/"]).exits(2).complains("cannot be sent to");
    let nobody = ["trigger", "github/push", "--url", "http://127.0.0.1:9/hooks/github"];
    folder.quell(&nobody).exits(1).complains("is `quell serve` running?");
}

/// Answers these statuses, one after the other, and tells what it was asked.
fn receiver(statuses: &'static [u16]) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, heard) = channel();
    std::thread::spawn(move || {
        for status in statuses {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut text, mut length) = (String::new(), 0);
            while reader.read_line(&mut text).unwrap() > 2 {
                let last = text.lines().last().unwrap_or_default().to_ascii_lowercase();
                if let Some(value) = last.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let _ = tell.send(text + &String::from_utf8(body).unwrap());
            let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    (format!("http://{address}/batch"), heard)
}

#[test]
fn listen_sends_every_batch_to_one_address_and_tells_what_it_answered() {
    let folder = folder();
    folder.write(
        "quell.toml",
        &CONFIG.replace("[endpoints", "retry = { base = \"10ms\" }\nhandler = \"pull\"\n[endpoints"),
    );
    let (url, heard) = receiver(&[503, 200]);
    let mut listen = folder.start(&["listen", "--forward-to", &url]);
    let address = listen.http_address();
    listen.line("every batch goes to http://127.0.0.1:");
    listen.line("signed with whsec_");
    folder.quell(&["trigger", "github/push", "--count", "2", "--url", &hook(&address)]).ok();
    listen.line("builds/example/coin-shop → 2 events");
    let first = heard.recv_timeout(PATIENCE).unwrap();
    let second = heard.recv_timeout(PATIENCE).unwrap();
    listen.line("attempt 2: succeeded after");
    for request in [&first, &second] {
        assert!(request.starts_with("POST /batch HTTP/1.1"), "{request}");
        for part in
            ["webhook-signature: v1,", "quell-key: example%2Fcoin-shop", "traceparent: 00-", "\"events\":["]
        {
            assert!(request.contains(part), "no {part} in {request}");
        }
    }
    listen.stop();
    folder.quell(&["listen", "--forward-to", "file:///x"]).exits(2).complains("cannot be sent to");
    folder.quell(&["listen"]).exits(2).complains("--forward-to");
}

#[test]
fn tail_shows_what_happens_as_it_happens() {
    let folder =
        Folder::with_config("[queues.jobs]\nwindow = \"none\"\n[queues.others]\nwindow = \"none\"\n");
    folder.send("jobs", "before", "1");
    folder.quell(&["work", "--until-idle"]).ok();
    let mut tail = folder.start(&["tail", "--queue", "jobs", "--last", "1"]);
    tail.line("from now on");
    folder.send("others", "x", "1");
    folder.send("jobs", "k7", "1");
    folder.quell(&["work", "--until-idle"]).ok();
    tail.line("jobs/k7");
    tail.line("running → succeeded");
    tail.signal(rustix::process::Signal::INT);
    let (status, lines) = tail.end();
    assert_eq!(status.code(), Some(0), "{lines:#?}");
    let shown = |text: &str| lines.iter().any(|line| line.text().contains(text));
    assert!(shown("jobs/before") && !shown("others"), "{lines:#?}");
}
