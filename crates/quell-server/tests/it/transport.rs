//! Connections: slow ones, many of them, old and new versions, and the end.

use std::time::Duration;

use quell::Engine;
use quell::clock;
use quell::tokens::Scope;
use quell_server::{ServeError, Server, ServerOptions, limits};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::{CONFIG, LONG, RawReply, Reply, World, settings, until};

const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn append_of(length: usize) -> String {
    format!(
        "POST /v1/queues/jobs/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
}

/// Reads until this text has come.
async fn read_to(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    let reading = async {
        let mut piece = [0; 4096];
        while !text.contains(end) {
            let read = stream.read(&mut piece).await.expect("the connection holds");
            assert!(read > 0, "closed after {text:?}");
            text.push_str(&String::from_utf8_lossy(&piece[..read]));
        }
    };
    assert!(tokio::time::timeout(LONG, reading).await.is_ok(), "{end:?} does not come");
    text
}

/// Sends a byte a second until the server has had enough, and what it said then.
async fn trickle(world: &World, begin: &str, each: &str) -> String {
    let mut stream = world.raw().await;
    stream.write_all(begin.as_bytes()).await.expect("it is taken");
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    for at in 0..60 {
        tokio::select! {
            read = stream.read(&mut piece) => match read {
                Ok(read) if read > 0 => answer.extend_from_slice(&piece[..read]),
                _ => return String::from_utf8_lossy(&answer).into_owned(),
            },
            () = clock::sleep(Duration::from_secs(1)) => {
                let byte = each.as_bytes()[at % each.len()];
                if stream.write_all(&[byte]).await.is_err() {
                    return String::from_utf8_lossy(&answer).into_owned();
                }
            }
        }
    }
    panic!("a byte a second is still taken after a minute");
}

#[tokio::test]
async fn three_hundred_slow_heads_and_idle_connections_are_closed_and_nobody_waits_for_them() {
    let world = World::new().await;
    let silent = world.raw().await;
    let mut used = world.raw().await;
    used.write_all(HEALTH.as_bytes()).await.expect("it is taken");
    read_to(&mut used, "alive").await;
    let slow = (0..300).map(|_| trickle(&world, "", "GET /healthz HTTP/1.1\r\nX: "));
    let slow = async { tokio::join!(futures_util::future::join_all(slow), closed(silent), closed(used)).0 };
    let healthy = async {
        let mut served = 0u32;
        loop {
            assert_eq!(world.get("/healthz").await.status, 200);
            world.append("jobs", "k", json!(served)).await;
            served += 1;
            clock::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        answers = tokio::time::timeout(limits::HEAD_TIME * 2, slow) => {
            let answers = answers.expect("all of them are closed");
            assert!(answers.iter().all(|answer| !answer.contains(" 200 ")));
        }
        () = healthy => unreachable!("it has no end"),
    }
    world.verify().await;
}

#[tokio::test]
async fn a_body_of_a_byte_a_second_and_one_that_pauses_are_given_up() {
    let world = World::new().await;
    let (head, rest) =
        (append_of(10_000), append_of(10_000).replace("application/json", "application/x-ndjson"));
    let pausing = async {
        let mut stream = world.raw().await;
        stream.write_all(format!("{head}{{").as_bytes()).await.expect("it is taken");
        read_to(&mut stream, "too-slow").await
    };
    let hook = head.replace("/v1/queues/jobs/events", "/hooks/github");
    let (body, lines, hook, paused) = tokio::join!(
        trickle(&world, &head, " "),
        trickle(&world, &rest, " "),
        trickle(&world, &hook, " "),
        pausing
    );
    for answer in [&body, &hook, &paused] {
        assert!(answer.contains(" 408 ") && answer.contains("too-slow"), "{answer}");
    }
    assert!(lines.contains("too-slow"), "{lines}");
    assert_eq!(world.accepted().await, 0);
}

/// Waits until the server closes this connection.
async fn closed(mut stream: TcpStream) {
    let mut rest = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut rest).await;
}

#[tokio::test]
async fn one_connection_more_than_there_may_be_is_told_so() {
    let world = World::with(CONFIG, |options| ServerOptions { connections: 4, ..options }).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut stream = world.raw().await;
        stream.write_all(HEALTH.as_bytes()).await.expect("it is taken");
        read_to(&mut stream, "alive").await;
        held.push(stream);
    }
    let refused = world.send_raw(HEALTH.as_bytes()).await;
    assert_eq!(refused.status(), 503, "{}", refused.text);
    assert!(refused.text.contains("Retry-After: 1\r\n") && refused.closed, "{}", refused.text);
    let (_, body) = refused.text.split_once("\r\n\r\n").expect("a body");
    let document: Value = serde_json::from_str(body).expect("the whole document");
    assert_eq!((&document["code"], &document["status"]), (&json!("too-many-connections"), &json!(503)));
    for stream in &mut held {
        stream.write_all(HEALTH.as_bytes()).await.expect("it is taken");
        read_to(stream, "alive").await;
    }
    held.pop();
    until("there is a place again", async || {
        world.send_raw(HEALTH.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n").as_bytes()).await.status()
            == 200
    })
    .await;
}

#[tokio::test]
async fn requests_in_a_row_are_answered_in_order() {
    let world = World::new().await;
    let body = "{\"key\":\"k\",\n\"payload\":1}";
    let chunks = "POST /v1/queues/jobs/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let all = format!(
        "{HEALTH}{}{body}{chunks}c\r\n{}\r\nc\r\n{}\r\n0\r\n\r\n{}",
        append_of(body.len()),
        &body[..12],
        &body[12..],
        HEALTH.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"),
    );
    let reply = world.send_raw(all.as_bytes()).await;
    let statuses: Vec<&str> = reply.text.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(statuses, ["200", "202", "202", "200"], "{}", reply.text);
    assert_eq!(world.accepted().await, 2);
}

#[tokio::test]
async fn one_who_asks_before_sending_a_large_body_is_not_sent_for_it() {
    let world = World::new().await;
    let head =
        append_of(9_000_000).replace("\r\n\r\n", "\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n");
    let reply = world.send_raw(head.as_bytes()).await;
    assert_eq!((reply.status(), reply.closed), (413, true), "{}", reply.text);
    let small = append_of(23).replace("\r\n\r\n", "\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n");
    let mut stream = world.raw().await;
    stream.write_all(small.as_bytes()).await.expect("it is taken");
    read_to(&mut stream, "100 Continue").await;
    stream.write_all(b"{\"key\":\"k\",\"payload\":1}").await.expect("it is taken");
    assert_eq!(RawReply::read(&mut stream).await.status(), 202);
}

#[tokio::test]
async fn one_who_listens_only_after_sending_learns_that_it_was_too_much() {
    let world = World::new().await;
    for _ in 0..5 {
        let mut stream = world.raw().await;
        stream.write_all(append_of(9_000_000).as_bytes()).await.expect("it is taken");
        stream.write_all(&vec![b' '; 9_000_000]).await.expect("it is taken, and thrown away");
        let answer = read_to(&mut stream, "\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    }
    assert_eq!(world.accepted().await, 0);
}

#[tokio::test]
async fn a_large_answer_may_be_read_slowly() {
    let config = "[queues.large]\nwindow = \"none\"\nhandler = \"pull\"\nmax_payload = \"4MiB\"\n";
    let world = World::with(config, |options| options).await;
    for n in 0..5 {
        world.append("large", &format!("k{n}"), json!("x".repeat(3 * 1024 * 1024))).await;
    }
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(64 * 1024).expect("it can be small");
    let mut stream = socket.connect(world.address).await.expect("the server listens");
    let body = json!({ "queues": ["large"], "worker": "w", "max": 5 }).to_string();
    let head = append_of(body.len()).replace("/v1/queues/jobs/events", "/v1/claims");
    stream.write_all(format!("{head}{body}").as_bytes()).await.expect("it is taken");
    // For longer than an idle connection lives.
    let mut got = 0;
    let mut piece = vec![0; 256 * 1024];
    while got < 15 * 1024 * 1024 {
        let read = tokio::time::timeout(LONG, stream.read(&mut piece)).await.expect("it goes on");
        let read = read.expect("the connection holds");
        assert!(read > 0, "closed after {got} bytes");
        got += read;
        clock::sleep(Duration::from_micros(read as u64)).await;
    }
}

#[tokio::test]
async fn http_2_is_spoken_by_those_who_know() {
    let world = World::new().await;
    let client =
        Client::builder().no_proxy().http2_prior_knowledge().timeout(LONG).build().expect("a client");
    let send = |body: Value| client.post(world.url("/v1/queues/jobs/events")).json(&body);
    let all = (0..300).map(|n| send(json!({ "key": format!("k{}", n % 5), "payload": n })).send());
    for answer in futures_util::future::join_all(all).await {
        let answer = answer.expect("it is answered");
        assert_eq!((answer.status(), answer.version()), (StatusCode::ACCEPTED, reqwest::Version::HTTP_2));
    }
    assert_eq!(world.accepted().await, 300);
    let mut many = send(json!({ "key": "k", "payload": 1 }));
    for n in 0..80 {
        many = many.header(format!("x-{n}"), "1");
    }
    let many = Reply::of(many).await;
    assert_eq!((many.status.as_u16(), many.problem().as_str()), (431, "too-many-fields"));
    let large = send(json!({ "key": "k", "payload": 1 })).header("x", "y".repeat(40_000)).send().await;
    assert!(large.is_err() || large.is_ok_and(|answer| answer.status() == 431));
    let elsewhere = send(json!({ "key": "k", "payload": 1 })).header("host", "evil.example").send().await;
    assert!(elsewhere.is_err() || elsewhere.is_ok_and(|answer| !answer.status().is_success()));
    assert_eq!(world.accepted().await, 300);
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("it is short").to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

#[tokio::test]
async fn rapid_resets_end_their_connection_and_no_other() {
    let world = World::new().await;
    // GET http://localhost/ in the shortest form: three indexed fields, and a literal for the authority.
    let head = [&[0x82, 0x86, 0x84, 0x01, 9][..], b"localhost"].concat();
    let mut stream = world.raw().await;
    let mut bytes = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])].concat();
    for n in 0..20_000u32 {
        bytes.extend(frame(1, 5, 2 * n + 1, &head));
        bytes.extend(frame(3, 0, 2 * n + 1, &[0, 0, 0, 8]));
    }
    let _ = stream.write_all(&bytes).await;
    let reply = RawReply::read(&mut stream).await;
    assert!(reply.closed, "20,000 resets are taken");
    // Headers that do not end are not gathered for ever.
    let mut stream = world.raw().await;
    let mut bytes =
        [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[]), &frame(1, 1, 1, &head)].concat();
    for _ in 0..5_000 {
        bytes.extend(frame(9, 0, 1, &[0x00, 1, b'a', 1, b'b'].repeat(100)));
    }
    let _ = stream.write_all(&bytes).await;
    assert!(RawReply::read(&mut stream).await.closed, "2.5 MB of one head are taken");
    assert_eq!(world.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_stop_finishes_what_is_under_way_and_ends_what_waits() {
    let mut world = World::new().await;
    let body = "{\"key\":\"k\",\"payload\":1}";
    let mut under_way = world.raw().await;
    under_way
        .write_all(format!("{}{}", append_of(body.len()), &body[..5]).as_bytes())
        .await
        .expect("it is taken");
    let mut stream = world.raw().await;
    stream.write_all(b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("it is taken");
    read_to(&mut stream, "retry: 1000").await;
    let claim = json!({ "queues": ["jobs"], "worker": "w", "wait_ms": 50_000 }).to_string();
    let mut poll = world.raw().await;
    let head = append_of(claim.len()).replace("/v1/queues/jobs/events", "/v1/claims");
    poll.write_all(format!("{head}{claim}").as_bytes()).await.expect("it is taken");
    let waiting = format!(
        "/v1/runs/{}?wait_ms=50000",
        world.append("chat", "k", json!(1)).await["run_id"].as_str().expect("an id")
    );
    let waiting = tokio::spawn(Reply::of(world.request(Method::GET, &waiting)));
    // All of them are there when a request that came after them has been answered.
    until("the poll waits", async || world.get("/healthz").await.status == 200).await;
    clock::sleep(Duration::from_millis(100)).await;
    world.stop.cancel();
    let (polled, streamed) = tokio::join!(RawReply::read(&mut poll), RawReply::read(&mut stream));
    assert_eq!((polled.status(), polled.closed), (200, true), "{}", polled.text);
    assert!(polled.text.contains("\"claims\":[]"), "{}", polled.text);
    assert!(streamed.closed, "{}", streamed.text);
    assert_eq!(waiting.await.expect("it is answered").json()["state"], "pending");
    until("nobody new is taken", async || TcpStream::connect(world.address).await.is_err()).await;
    under_way.write_all(&body.as_bytes()[5..]).await.expect("it is taken");
    let answer = RawReply::read(&mut under_way).await;
    assert_eq!((answer.status(), answer.closed), (202, true), "{}", answer.text);
    let serving = world.serving.take().expect("it serves");
    assert!(serving.await.expect("it ends"), "something was not finished");
    assert_eq!(world.accepted().await, 2);
}

#[tokio::test]
async fn a_stop_does_not_wait_for_ever() {
    let mut world = World::new().await;
    let mut stuck = world.raw().await;
    stuck.write_all(append_of(100).as_bytes()).await.expect("it is taken");
    until("it is there", async || world.get("/healthz").await.status == 200).await;
    world.stop.cancel();
    let serving = world.serving.take().expect("it serves");
    let ended = tokio::time::timeout(LONG, serving).await.expect("it ends");
    assert!(!ended.expect("it ends"), "a body that never came was waited for");
}

#[tokio::test]
async fn strangers_find_only_events_work_and_health() {
    let world = World::with(CONFIG, |options| ServerOptions {
        admin_listen: Some("127.0.0.1:0".to_owned()),
        ..options
    })
    .await;
    let admin = world.admin.expect("there are two");
    let document: Value = serde_json::from_str(&quell_server::document()).expect("it is JSON");
    let public = world.get("/openapi.json").await.json();
    let mut hidden = 0;
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let is_public = matches!(operation["tags"][0].as_str(), Some("events" | "work"))
                || matches!(path.as_str(), "/healthz" | "/readyz");
            assert_eq!(public["paths"][path][method].is_object(), is_public, "{method} {path}");
            if is_public {
                continue;
            }
            hidden += 1;
            let filled = path.replace("{queue}", "jobs").replace(['{', '}'], "");
            let method: Method = method.to_uppercase().parse().expect("a method");
            let reply = Reply::of(world.request(method.clone(), &filled)).await;
            assert!(matches!(reply.status.as_u16(), 404 | 405), "{method} {filled}: {}", reply.text);
            let there = world.client.request(method.clone(), format!("http://{admin}{filled}")).send().await;
            let status = there.expect("it is answered").status();
            assert_ne!(status, 405, "{method} {filled}");
        }
    }
    assert!(hidden > 25, "{hidden}");
    let lanes = world.client.get(format!("http://{admin}/v1/lanes")).send().await.expect("it is answered");
    assert_eq!(lanes.status(), 200);
    assert_eq!(world.get("/v1/lanes").await.status, 404);
    world.append("jobs", "k", json!(1)).await;
    assert_eq!(world.claim("jobs", 1).await.len(), 1);
    assert_eq!(world.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn a_server_that_can_be_reached_from_elsewhere_wants_tokens() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let engine = Engine::open(settings(CONFIG, &folder)).await.expect("the store opens");
    for options in [
        ServerOptions::at("0.0.0.0:0"),
        ServerOptions::at("[::]:0"),
        ServerOptions { admin_listen: Some("0.0.0.0:0".to_owned()), ..ServerOptions::at("127.0.0.1:0") },
    ] {
        match Server::bind(engine.clone(), options.clone()).await {
            Err(ServeError::NoTokens { .. }) => {}
            // A machine without IPv6.
            Err(ServeError::Listen { .. }) if options.listen.starts_with('[') => {}
            Err(error) => panic!("{}: {error}", options.listen),
            Ok(_) => panic!("{} starts without a token", options.listen),
        }
    }
    let world = World::new().await;
    let token = world.token("first", &[Scope::Read], &[], &[]).await;
    let server = Server::bind(world.engine.clone(), ServerOptions::at("0.0.0.0:0")).await.expect("it starts");
    let at = format!("http://127.0.0.1:{}/v1/lanes", server.address().port());
    tokio::spawn(server.run(world.stop.clone(), Duration::from_secs(1)));
    let without = world.client.get(&at).header("host", "quell.example").send().await.expect("it is answered");
    assert_eq!(without.status(), 401);
    let with = world.client.get(&at).header("host", "quell.example").bearer_auth(&token).send().await;
    assert_eq!(with.expect("it is answered").status(), 200);
}

#[tokio::test]
async fn names_that_are_allowed_are_answered() {
    let world =
        World::with(CONFIG, |options| ServerOptions { hosts: vec!["Quell.Example".to_owned()], ..options })
            .await;
    for host in ["quell.example", "QUELL.EXAMPLE:8080", "localhost", "127.0.0.1:1", "[::1]:80"] {
        let reply = world
            .send_raw(
                format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes(),
            )
            .await;
        assert_eq!(reply.status(), 200, "{host}: {}", reply.text);
    }
    let old = world.send_raw(b"GET /healthz HTTP/1.0\r\n\r\n").await;
    assert_eq!(old.status(), 200, "{}", old.text);
}

/// Kilobytes of this process that are in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("there is one");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[tokio::test]
async fn what_is_announced_and_not_sent_costs_nothing() {
    let world = World::new().await;
    let before = resident();
    let mut stalled = Vec::new();
    for _ in 0..64 {
        let mut stream = world.raw().await;
        stream.write_all(append_of(8 * 1024 * 1024).as_bytes()).await.expect("it is taken");
        stream.write_all(&[b' '; 1024]).await.expect("it is taken");
        stalled.push(stream);
    }
    world.append("jobs", "k", json!(1)).await;
    let grown = resident().saturating_sub(before) / 1024;
    assert!(grown < 256, "64 announced bodies of 8 MiB take {grown} MiB");
    assert_eq!(world.accepted().await, 1);
}
