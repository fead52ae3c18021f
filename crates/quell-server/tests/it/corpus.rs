//! What nobody should send, over real connections.
//!
//! Each case is the bytes of one connection and the answer that they must get: its status and, in a problem document,
//! its code. Whatever it is, nothing of it may be accepted and the server must still be there afterwards. An answer without
//! a code is one of the transport, which gives up before there is a request to answer in full.

use std::time::Duration;

use quell::TokenWish;
use quell::tokens::Scope;
use serde_json::{Value, json};

use crate::support::{RawReply, World};

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// The bytes of a connection, and what must come back.
struct Case {
    name: String,
    send: Vec<u8>,
    status: u16,
    /// The code of the problem document; nothing where the transport answers by itself.
    code: Option<&'static str>,
}

fn problem(name: impl Into<String>, send: Vec<u8>, status: u16, code: &'static str) -> Case {
    Case { name: name.into(), send, status, code: Some(code) }
}

fn invalid(name: impl Into<String>, send: Vec<u8>) -> Case {
    problem(name, send, 400, "invalid")
}

/// The head is so wrong that the transport answers.
fn bare(name: impl Into<String>, send: impl AsRef<[u8]>, status: u16) -> Case {
    Case { name: name.into(), send: send.as_ref().to_vec(), status, code: None }
}

/// A request that says that it is the last one of its connection.
fn request(method: &str, target: &str, fields: &[(&str, &str)], body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    for (name, value) in fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH") {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    let mut bytes = format!("{head}\r\n").into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

fn get(target: &str) -> Vec<u8> {
    request("GET", target, &[], "")
}

fn send(method: &str, target: &str, body: &Value) -> Vec<u8> {
    request(method, target, &[JSON], body.to_string())
}

const EVENTS: &str = "/v1/queues/jobs/events";

/// A body for `jobs` as it is.
fn events(body: impl AsRef<[u8]>) -> Vec<u8> {
    request("POST", EVENTS, &[JSON], body)
}

/// An event that is well but for what is changed in it.
fn event(change: &Value) -> Vec<u8> {
    let mut body = json!({ "key": "k", "payload": 1 });
    for (name, value) in change.as_object().expect("an object") {
        body[name] = value.clone();
    }
    events(body.to_string())
}

/// Two events for the same queue, each well.
const GOOD: &str = r#"{"key":"k","payload":1}"#;

impl Case {
    /// What is wrong with the answer, or with the server after it.
    async fn faults(&self, world: &World) -> Vec<String> {
        let before = world.accepted().await;
        let reply = world.send_raw(&self.send).await;
        let mut faults = self.faults_of(&reply);
        if world.accepted().await != before {
            faults.push(format!("{}: something of it was accepted", self.name));
        }
        if world.get("/healthz").await.status != 200 {
            faults.push(format!("{}: the server is not well afterwards", self.name));
        }
        faults
    }

    fn faults_of(&self, reply: &RawReply) -> Vec<String> {
        let (head, body) = reply.text.split_once("\r\n\r\n").unwrap_or_default();
        let document: Value = serde_json::from_str(body).unwrap_or_default();
        let typed = head.contains("content-type: application/problem+json");
        let told = match self.code {
            Some(code) => {
                typed
                    && document["code"] == code
                    && document["status"] == self.status
                    && document["type"] == format!("urn:quell:{code}")
            }
            None => true,
        };
        if reply.status() == self.status && reply.closed && told {
            return Vec::new();
        }
        let got: String = reply.text.chars().take(600).collect();
        vec![format!("{}: not {} {:?} but {got:?}", self.name, self.status, self.code)]
    }
}

async fn check_all(world: &World, cases: Vec<Case>) {
    let mut faults = Vec::new();
    for case in &cases {
        faults.extend(case.faults(world).await);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    world.verify().await;
}

fn framing() -> Vec<Case> {
    let post = |fields: &str, body: &str| {
        format!(
            "POST {EVENTS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{fields}\r\n{body}"
        )
    };
    let chunked =
        |chunks: &str| post("Connection: close\r\nTransfer-Encoding: chunked\r\n", chunks).into_bytes();
    let broken = |name: &str, chunks: &str| invalid(name, chunked(chunks));
    vec![
        bare(
            "a length and chunks",
            post(
                "Content-Length: 23\r\nTransfer-Encoding: chunked\r\n",
                "17\r\n{\"key\":\"k\",\"payload\":1}\r\n0\r\n\r\n",
            ),
            400,
        ),
        bare(
            "chunks and a length",
            post(
                "Transfer-Encoding: chunked\r\nContent-Length: 23\r\n",
                "17\r\n{\"key\":\"k\",\"payload\":1}\r\n0\r\n\r\n",
            ),
            400,
        ),
        bare("two lengths", post("Content-Length: 23\r\nContent-Length: 5\r\n", GOOD), 400),
        bare("two lengths in one field", post("Content-Length: 23, 5\r\n", GOOD), 400),
        bare("a length with a sign", post("Content-Length: +23\r\n", GOOD), 400),
        bare("a negative length", post("Content-Length: -1\r\n", GOOD), 400),
        bare("a length in words", post("Content-Length: many\r\n", GOOD), 400),
        bare("a length beyond 64 bits", post("Content-Length: 99999999999999999999999\r\n", GOOD), 400),
        bare("an encoding that is not chunks", post("Transfer-Encoding: gzip\r\n", GOOD), 400),
        bare("chunks that are not last", post("Transfer-Encoding: chunked, identity\r\n", GOOD), 400),
        bare(
            "chunks in HTTP/1.0",
            format!(
                "POST {EVENTS} HTTP/1.0\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
            400,
        ),
        bare("bare line feeds", "GET /healthz HTTP/1.1\nHost: localhost\n\n", 400),
        bare("one bare line feed", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nA: b\nC: d\r\n\r\n", 400),
        bare("a bare carriage return", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nA: b\rC: d\r\n\r\n", 400),
        bare("a folded line", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nA: b\r\n c\r\n\r\n", 400),
        bare("a space before the colon", "GET /healthz HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
        bare("a field without a name", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n: x\r\n\r\n", 400),
        bare("a field without a colon", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nnothing\r\n\r\n", 400),
        bare("NUL in a field", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nA: b\0c\r\n\r\n", 400),
        bare("NUL in the target", "GET /heal\0thz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        bare("a space in the target", "GET /heal thz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        bare("a method that is none", "G@T /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        bare("no method", " /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        bare("version 1.2", "GET /healthz HTTP/1.2\r\nHost: localhost\r\n\r\n", 400),
        bare("version 3", "GET /healthz HTTP/3.0\r\nHost: localhost\r\n\r\n", 400),
        bare("version 0.9", "GET /healthz\r\n\r\n", 400),
        bare("TLS to a plain port", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and so on\r\n\r\n", 400),
        broken("a chunk of no size", "\r\n{}\r\n0\r\n\r\n"),
        broken("a chunk of a size that is no number", "zz\r\n{}\r\n0\r\n\r\n"),
        broken("a chunk beyond 64 bits", "fffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
        broken("a chunk with a sign", "-2\r\n{}\r\n0\r\n\r\n"),
        broken("a chunk that is shorter than it says", "5\r\n{}\r\n0\r\n\r\n"),
        broken("a chunk that ends without a line", "2\r\n{}0\r\n\r\n"),
        broken("a chunk that ends with a bare line feed", "17\r\n{\"key\":\"k\",\"payload\":1}\n0\r\n\r\n"),
    ]
}

#[tokio::test]
async fn what_could_be_read_in_two_ways_is_refused_and_the_connection_closed() {
    check_all(&World::new().await, framing()).await;
}

fn heads() -> Vec<Case> {
    let fields = |count: usize| -> String { (0..count).map(|n| format!("x-{n}: 1\r\n")).collect() };
    let health =
        |more: &str| format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n");
    let hosted =
        |host: &str| format!("GET /healthz HTTP/1.1\r\n{host}Connection: close\r\n\r\n").into_bytes();
    let wrong = |name: &str, method: &str, target: &str| {
        problem(
            format!("{name}: {method} {target}"),
            request(method, target, &[], ""),
            405,
            "method-not-allowed",
        )
    };
    vec![
        bare("more than 16 KiB of fields", health(&format!("x: {}\r\n", "a".repeat(20_000))), 431),
        bare("more than 64 fields", health(&fields(80)), 431),
        problem(
            "a target over 4 KiB",
            get(&format!("/v1/lanes?key_prefix={}", "a".repeat(4_200))),
            414,
            "target-too-long",
        ),
        bare("a target over all bounds", get(&format!("/v1/lanes?key_prefix={}", "a".repeat(40_000))), 431),
        invalid("no host", hosted("")),
        invalid("an empty host", hosted("Host: \r\n")),
        invalid("two hosts", hosted("Host: localhost\r\nHost: localhost\r\n")),
        problem("another host", hosted("Host: evil.example\r\n"), 421, "unknown-host"),
        problem("another host and our port", hosted("Host: evil.example:7710\r\n"), 421, "unknown-host"),
        problem(
            "a host that begins like ours",
            hosted("Host: localhost.evil.example\r\n"),
            421,
            "unknown-host",
        ),
        problem("a host with a user", hosted("Host: localhost@evil.example\r\n"), 421, "unknown-host"),
        invalid("the form for proxies", request("GET", "http://localhost/healthz", &[], "")),
        invalid("the form for proxies, elsewhere", request("GET", "http://evil.example/", &[], "")),
        problem("a tunnel", request("CONNECT", "evil.example:443", &[], ""), 405, "method-not-allowed"),
        problem("about everything", request("OPTIONS", "*", &[], ""), 404, "not-found"),
        wrong("an echo", "TRACE", "/v1/lanes"),
        wrong("a preflight", "OPTIONS", "/v1/lanes"),
        wrong("small letters", "get", "/healthz"),
        wrong("unknown", "BREW", "/healthz"),
        wrong("get for post", "GET", EVENTS),
        wrong("delete for get", "DELETE", "/v1/runs/run_1_1"),
        wrong("put for post", "PUT", "/v1/claims"),
        wrong("post for get", "POST", "/openapi.json"),
    ]
}

#[tokio::test]
async fn heads_are_bounded_and_say_whom_they_ask() {
    check_all(&World::new().await, heads()).await;
}

#[tokio::test]
async fn a_refused_method_is_told_which_ones_there_are() {
    let world = World::new().await;
    for (target, allowed) in
        [("/v1/lanes/jobs/k", "GET,HEAD,DELETE"), ("/v1/claims", "POST"), ("/healthz", "GET,HEAD")]
    {
        let reply = world.send_raw(&request("PATCH", target, &[JSON], "{}")).await;
        let field = reply.text.lines().find_map(|line| line.strip_prefix("allow: ")).unwrap_or_default();
        let sorted = |text: &str| {
            let mut list: Vec<String> = text.split(',').map(|method| method.trim().to_owned()).collect();
            list.sort();
            list
        };
        assert_eq!(sorted(field), sorted(allowed), "{target}: {}", reply.text);
    }
}

#[tokio::test]
async fn no_answer_invites_pages_of_elsewhere() {
    let world = World::new().await;
    let origin = [("Origin", "https://evil.example"), ("Access-Control-Request-Method", "POST")];
    for (method, target) in
        [("OPTIONS", EVENTS), ("OPTIONS", "/v1/tokens"), ("GET", "/v1/lanes"), ("GET", "/nowhere")]
    {
        let reply = world.send_raw(&request(method, target, &origin, "")).await;
        assert!(!reply.text.to_lowercase().contains("access-control-"), "{method} {target}: {}", reply.text);
        assert!(reply.text.contains("x-content-type-options: nosniff"), "{method} {target}: {}", reply.text);
    }
}

fn paths() -> Vec<Case> {
    let mut cases: Vec<Case> = [
        "/v1",
        "/v1/",
        "/v2/lanes",
        "/v1/lanes/",
        "//v1/lanes",
        "/v1//lanes",
        "/v1/../v1/lanes",
        "/v1/%2e%2e/v1/lanes",
        "/v1/./lanes",
        "/V1/lanes",
        "/v1/lanes.json",
        "/v1/queues/jobs",
        "/v1/queues/jobs/events/",
        "/v1/lanes%2Fjobs%2Fk",
        "/v1/lanes;a=b",
        "/.git/config",
        "/favicon.ico.php",
        "/v1/lanes/jobs/a/b/c",
    ]
    .into_iter()
    .map(|path| problem(format!("no such path: {path}"), get(path), 404, "not-found"))
    .collect();
    cases.extend([
        invalid("NUL in a key of a path", get("/v1/lanes/jobs/%00")),
        invalid("a key of a path that is not UTF-8", get("/v1/lanes/jobs/%ff%fe")),
        invalid("a percent sign without digits in a path", get("/v1/lanes/jobs/%zz")),
        invalid("a percent sign at the end of a path", get("/v1/lanes/jobs/50%")),
        invalid("a percent sign without digits in a query", get("/v1/lanes?key_prefix=%zz")),
        invalid("a query that is not UTF-8", get("/v1/lanes?key_prefix=%ff")),
        invalid("a queue of capitals in a path", get("/v1/lanes/JOBS/k")),
        invalid("a queue with dots and slashes", get("/v1/lanes/..%2F..%2Fetc/k")),
        invalid("a key over 512 bytes in a path", get(&format!("/v1/lanes/jobs/{}", "k".repeat(513)))),
        problem("a key with an encoded slash is one key", get("/v1/lanes/jobs/a%2Fb"), 404, "not-found"),
        problem("an unknown action", request("POST", "/v1/lanes/jobs/k/explode", &[], ""), 404, "not-found"),
        problem(
            "an unknown action for many",
            send("POST", "/v1/lanes/explode", &json!({ "queue": "jobs" })),
            404,
            "not-found",
        ),
        problem(
            "an unknown action of a queue",
            request("POST", "/v1/queues/jobs/explode", &[], ""),
            404,
            "not-found",
        ),
        problem(
            "a queue that is not there",
            request("POST", "/v1/queues/nope/pause", &[], ""),
            404,
            "unknown-queue",
        ),
    ]);
    cases
}

#[tokio::test]
async fn paths_are_taken_as_they_are_and_unknown_ones_lead_nowhere() {
    check_all(&World::new().await, paths()).await;
}

fn bodies() -> Vec<Case> {
    let typed = |kind: &str| request("POST", EVENTS, &[("Content-Type", kind)], GOOD);
    let unsupported = |name: &str, send| problem(name, send, 415, "unsupported-media-type");
    let encoded = |coding: &str| {
        unsupported(coding, request("POST", EVENTS, &[JSON, ("Content-Encoding", coding)], GOOD))
    };
    let payload = |text: &str| events(format!("{{\"key\":\"k\",\"payload\":{text}}}"));
    let deep = |depth: usize| payload(&format!("{}{}", "[".repeat(depth), "]".repeat(depth)));
    let announced = |length: &str| {
        format!(
            "POST {EVENTS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{{"
        )
    };
    vec![
        invalid("nothing", events("")),
        invalid("spaces", events("  \n ")),
        unsupported("no content type", request("POST", EVENTS, &[], GOOD)),
        unsupported("text", typed("text/plain")),
        unsupported("a form", typed("application/x-www-form-urlencoded")),
        unsupported("several parts", typed("multipart/form-data; boundary=x")),
        unsupported("an empty content type", typed("")),
        unsupported("a content type that is none", typed("json")),
        invalid("two content types", request("POST", EVENTS, &[JSON, JSON], GOOD)),
        encoded("gzip"),
        encoded("br"),
        encoded("zstd"),
        encoded("gzip, gzip"),
        encoded("identity, gzip"),
        unsupported(
            "two codings",
            request(
                "POST",
                EVENTS,
                &[JSON, ("Content-Encoding", "identity"), ("Content-Encoding", "gzip")],
                GOOD,
            ),
        ),
        problem("a length over the bound", announced("8388609").into_bytes(), 413, "too-large"),
        problem("a length over everything", announced("9999999999999").into_bytes(), 413, "too-large"),
        invalid("a byte order mark", events(b"\xef\xbb\xbf{\"key\":\"k\",\"payload\":1}")),
        invalid("not UTF-8", events(b"{\"key\":\"k\",\"payload\":\"\xff\"}")),
        invalid("a key that is not UTF-8", events(b"{\"key\":\"\xc3\x28\",\"payload\":1}")),
        invalid("half of a pair in a key", events(r#"{"key":"\ud800","payload":1}"#)),
        invalid("half of a pair in an id", events(r#"{"key":"k","id":"\udc00","payload":1}"#)),
        invalid("NUL in a key", events(r#"{"key":"a\u0000b","payload":1}"#)),
        invalid("NUL in an id", events(r#"{"key":"k","id":"\u0000","payload":1}"#)),
        invalid("NUL in a tenant", events(r#"{"key":"k","tenant":"\u0000","payload":1}"#)),
        invalid("a control character in a string", events("{\"key\":\"a\nb\",\"payload\":1}")),
        invalid("bytes behind it", events(format!("{GOOD} x"))),
        invalid("two documents", events(format!("{GOOD}{GOOD}"))),
        invalid("broken off", events(&GOOD[..12])),
        invalid("a key twice", events(r#"{"key":"k","key":"l","payload":1}"#)),
        invalid("a payload twice", events(r#"{"key":"k","payload":1,"payload":2}"#)),
        invalid("an unknown field", event(&json!({ "prio": 1 }))),
        invalid("a field of capitals", event(&json!({ "Priority": 1 }))),
        invalid("129 levels", deep(129)),
        invalid("100,000 levels", deep(100_000)),
        invalid("no number", payload("NaN")),
        invalid("a number with a leading zero", payload("01")),
        invalid("a comment", payload("1 /* one */")),
        invalid("a comma too many", payload("[1,]")),
        problem("a number of 9 MB", payload(&"1".repeat(9_000_000)), 413, "too-large"),
        problem(
            "a payload over the queue's bound",
            request(
                "POST",
                "/v1/queues/small/events",
                &[JSON],
                json!({ "key": "k", "payload": "x".repeat(1_100) }).to_string(),
            ),
            413,
            "too-large",
        ),
        problem(
            "a payload over every bound",
            payload(&format!("\"{}\"", "x".repeat(4_300_000))),
            413,
            "too-large",
        ),
        invalid(
            "100,000 unknown fields",
            events(format!(
                "{{\"key\":\"k\",\"payload\":1{}}}",
                (0..100_000).map(|n| format!(",\"f{n}\":1")).collect::<String>()
            )),
        ),
        invalid("a text", events("\"key\"")),
        invalid("a number", events("7")),
        invalid("null", events("null")),
        invalid("an empty object", events("{}")),
        invalid("no payload", events(r#"{"key":"k"}"#)),
        invalid("no key", events(r#"{"payload":1}"#)),
        invalid("an empty key", event(&json!({ "key": "" }))),
        invalid("a key of 513 bytes", event(&json!({ "key": "k".repeat(513) }))),
        invalid("a key of 257 letters of two bytes", event(&json!({ "key": "é".repeat(257) }))),
        invalid("an empty id", event(&json!({ "id": "" }))),
        invalid("an id of 257 bytes", event(&json!({ "id": "i".repeat(257) }))),
        invalid("a tenant of 129 bytes", event(&json!({ "tenant": "t".repeat(129) }))),
        invalid("priority 10", event(&json!({ "priority": 10 }))),
        invalid("priority -1", event(&json!({ "priority": -1 }))),
        invalid("priority 1.5", event(&json!({ "priority": 1.5 }))),
        invalid("priority 256", event(&json!({ "priority": 256 }))),
        invalid("a delay of 367 days", event(&json!({ "delay_ms": 31_708_800_000u64 }))),
        invalid("a delay of all time", event(&json!({ "delay_ms": u64::MAX }))),
        invalid("a negative delay", event(&json!({ "delay_ms": -1 }))),
        invalid(
            "a window of eight days",
            event(&json!({ "window": { "fixed": { "wait_ms": 691_200_000u64 } } })),
        ),
        invalid("a window of all time", event(&json!({ "window": { "fixed": { "wait_ms": u64::MAX } } }))),
        invalid(
            "a window without quiet",
            event(&json!({ "window": { "quiet": { "quiet_ms": 0, "max_wait_ms": 10 } } })),
        ),
        invalid(
            "a window that ends before it is quiet",
            event(&json!({ "window": { "quiet": { "quiet_ms": 100, "max_wait_ms": 10 } } })),
        ),
        invalid("a window of an unknown kind", event(&json!({ "window": { "later": {} } }))),
        invalid(
            "a window of two kinds",
            event(&json!({ "window": { "none": {}, "fixed": { "wait_ms": 1 } } })),
        ),
        invalid(
            "a window with an unknown field",
            event(&json!({ "window": { "fixed": { "wait_ms": 1, "max": 2 } } })),
        ),
        invalid("an unknown source", event(&json!({ "source": "nobody" }))),
        invalid("a source of capitals", event(&json!({ "source": "Shop" }))),
        problem(
            "an unknown queue",
            request("POST", "/v1/queues/nope/events", &[JSON], GOOD),
            404,
            "unknown-queue",
        ),
        invalid("a queue of capitals", request("POST", "/v1/queues/Jobs/events", &[JSON], GOOD)),
        invalid(
            "a queue of 65 letters",
            request("POST", &format!("/v1/queues/{}/events", "q".repeat(65)), &[JSON], GOOD),
        ),
        problem("10,001 events", events(format!("[{}]", vec![GOOD; 10_001].join(","))), 413, "too-large"),
        invalid(
            "one bad event among good ones",
            events(format!("[{GOOD},{GOOD},{{\"key\":\"\",\"payload\":1}}]")),
        ),
        invalid("a list in a list", events(format!("[[{GOOD}]]"))),
        invalid("an event of a list that is a number", events(format!("[{GOOD},7]"))),
        problem(
            "one large event among good ones",
            request(
                "POST",
                "/v1/queues/small/events",
                &[JSON],
                format!("[{GOOD},{}]", json!({ "key": "k", "payload": "x".repeat(1_100) })),
            ),
            413,
            "too-large",
        ),
        problem(
            "more than a lane takes",
            request("POST", "/v1/queues/small/events", &[JSON], format!("[{GOOD},{GOOD},{GOOD},{GOOD}]")),
            429,
            "lane-full",
        ),
    ]
}

#[tokio::test]
async fn bad_bodies_are_refused_whole() {
    check_all(&World::new().await, bodies()).await;
}

fn wrong_types() -> Vec<Case> {
    let others = |name: &str| match name {
        "key" | "id" | "tenant" | "source" => vec![json!(7), json!(true), json!([]), json!({})],
        "priority" | "delay_ms" => vec![json!("1"), json!(true), json!([1])],
        "only_if_idle" => vec![json!("true"), json!(1), Value::Null],
        _ => vec![json!(7), json!("later"), json!([])],
    };
    let names = ["key", "id", "tenant", "source", "priority", "delay_ms", "window", "only_if_idle"];
    let of = |name: &'static str| {
        others(name)
            .into_iter()
            .map(move |value| invalid(format!("{name} is {value}"), event(&json!({ name: value }))))
    };
    names.into_iter().flat_map(of).collect()
}

#[tokio::test]
async fn every_field_of_an_event_has_its_type() {
    check_all(&World::new().await, wrong_types()).await;
}

fn keyed(values: &[&str]) -> Vec<u8> {
    let mut fields = vec![JSON];
    fields.extend(values.iter().map(|value| ("Idempotency-Key", *value)));
    request("POST", EVENTS, &fields, GOOD)
}

fn cloud_and_keys() -> Vec<Case> {
    let whole = json!({ "specversion": "1.0", "id": "7", "source": "/shop", "type": "order.paid" });
    let structured = |change: Value| {
        let mut body = whole.clone();
        for (name, value) in change.as_object().expect("an object") {
            body[name] = value.clone();
        }
        request("POST", EVENTS, &[("Content-Type", "application/cloudevents+json")], body.to_string())
    };
    let batched =
        |body: &str| request("POST", EVENTS, &[("Content-Type", "application/cloudevents-batch+json")], body);
    let binary = |fields: &[(&str, &str)], body: &str| {
        let mut all = vec![JSON, ("ce-specversion", "1.0")];
        all.extend(fields);
        request("POST", EVENTS, &all, body)
    };
    let mut cases: Vec<Case> = ["id", "source", "type", "specversion"]
        .into_iter()
        .flat_map(|name| {
            [Value::Null, json!(""), json!(7), json!({})].map(|value| {
                invalid(format!("CloudEvent: {name} is {value}"), structured(json!({ name: value })))
            })
        })
        .collect();
    cases.extend([
        invalid("CloudEvent: version 0.3", structured(json!({ "specversion": "0.3" }))),
        invalid("CloudEvent: both forms of data", structured(json!({ "data": 1, "data_base64": "AA==" }))),
        invalid("CloudEvent: an attribute of capitals", structured(json!({ "partitionKey": "k" }))),
        invalid("CloudEvent: data in base 64 that is none", structured(json!({ "data_base64": "*" }))),
        invalid("CloudEvent: data in base 64 that is a number", structured(json!({ "data_base64": 7 }))),
        invalid("CloudEvent: a key of 513 bytes", structured(json!({ "subject": "s".repeat(513) }))),
        invalid(
            "CloudEvent: no object",
            request("POST", EVENTS, &[("Content-Type", "application/cloudevents+json")], "[]"),
        ),
        invalid(
            "CloudEvent: an attribute twice in JSON",
            request(
                "POST",
                EVENTS,
                &[("Content-Type", "application/cloudevents+json")],
                r#"{"specversion":"1.0","id":"7","id":"8","source":"/shop","type":"t"}"#,
            ),
        ),
        invalid(
            "CloudEvents: a bad one in a batch",
            batched(&format!("[{whole},{{\"specversion\":\"1.0\"}}]")),
        ),
        invalid("CloudEvents: no list", batched(&whole.to_string())),
        problem(
            "CloudEvents in Avro",
            request("POST", EVENTS, &[("Content-Type", "application/cloudevents+avro")], "x"),
            415,
            "unsupported-media-type",
        ),
        invalid("CloudEvent in fields: no id", binary(&[("ce-source", "/s"), ("ce-type", "t")], "1")),
        invalid(
            "CloudEvent in fields: an attribute twice",
            binary(&[("ce-id", "1"), ("ce-id", "2"), ("ce-source", "/s"), ("ce-type", "t")], "1"),
        ),
        invalid(
            "CloudEvent in fields: two versions",
            binary(&[("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "/s"), ("ce-type", "t")], "1"),
        ),
        invalid(
            "CloudEvent in fields: not UTF-8",
            binary(&[("ce-id", "%ff"), ("ce-source", "/s"), ("ce-type", "t")], "1"),
        ),
        invalid(
            "CloudEvent in fields: data that is no JSON",
            binary(&[("ce-id", "1"), ("ce-source", "/s"), ("ce-type", "t")], "{"),
        ),
        invalid("Idempotency-Key: empty", keyed(&[""])),
        invalid("Idempotency-Key: an empty quotation", keyed(&["\"\""])),
        invalid("Idempotency-Key: twice", keyed(&["a", "b"])),
        invalid("Idempotency-Key: 241 bytes", keyed(&["k".repeat(241).as_str()])),
        invalid("Idempotency-Key: a tabulator", keyed(&["a\tb"])),
        invalid("Idempotency-Key: not ASCII", keyed(&["é"])),
    ]);
    cases
}

#[tokio::test]
async fn cloud_events_and_idempotency_keys_are_whole_or_refused() {
    check_all(&World::new().await, cloud_and_keys()).await;
}

fn claims() -> Vec<Case> {
    let claim = |name: &str, change: Value| {
        let mut body = json!({ "queues": ["jobs"], "worker": "w" });
        for (field, value) in change.as_object().expect("an object") {
            body[field] = value.clone();
        }
        invalid(format!("claim: {name}"), send("POST", "/v1/claims", &body))
    };
    let ask = |name: &str, body: Value, status, code| {
        problem(format!("claim: {name}"), send("POST", "/v1/claims", &body), status, code)
    };
    vec![
        claim("none", json!({ "max": 0 })),
        claim("101", json!({ "max": 101 })),
        claim("a negative number", json!({ "max": -1 })),
        claim("no name", json!({ "worker": "" })),
        claim("a name of 129 bytes", json!({ "worker": "w".repeat(129) })),
        claim("a name with a line", json!({ "worker": "a\r\nb" })),
        claim("a name with an escape", json!({ "worker": "a\u{1b}[31m" })),
        claim("a lease of 1 ms", json!({ "lease_ms": 1 })),
        claim("a lease of two days", json!({ "lease_ms": 172_800_000 })),
        claim("a negative wait", json!({ "wait_ms": -5 })),
        claim("an empty claim id", json!({ "claim_id": "" })),
        claim("a claim id of 129 bytes", json!({ "claim_id": "c".repeat(129) })),
        claim("NUL in a claim id", json!({ "claim_id": "\0" })),
        claim("a queue of capitals", json!({ "queues": ["Jobs"] })),
        claim("queues that are no list", json!({ "queues": "jobs" })),
        claim("an unknown field", json!({ "queue": "jobs" })),
        claim("a tenant of 129 bytes", json!({ "tenant": "t".repeat(129) })),
        ask("no worker", json!({ "queues": ["jobs"] }), 400, "invalid"),
        ask("an unknown queue", json!({ "queues": ["nope"], "worker": "w" }), 404, "unknown-queue"),
        ask(
            "a queue that the server handles",
            json!({ "queues": ["own"], "worker": "w" }),
            409,
            "not-pulled",
        ),
        ask(
            "one of ours and one of the server's",
            json!({ "queues": ["jobs", "own"], "worker": "w" }),
            409,
            "not-pulled",
        ),
        problem(
            "claim: as text",
            request("POST", "/v1/claims", &[("Content-Type", "text/plain")], "{}"),
            415,
            "unsupported-media-type",
        ),
        problem(
            "claim: over 1 MiB",
            request("POST", "/v1/claims", &[JSON], " ".repeat(1_048_577)),
            413,
            "too-large",
        ),
    ]
}

#[tokio::test]
async fn claims_that_make_no_sense_take_nothing() {
    let world = World::new().await;
    world.append("jobs", "k", json!(1)).await;
    check_all(&world, claims()).await;
    assert_eq!(world.claim("jobs", 1).await.len(), 1, "one of them has taken the run");
}

#[tokio::test]
async fn wrong_runs_tokens_and_verdicts_change_nothing() {
    let world = World::new().await;
    world.append("jobs", "k", json!(1)).await;
    let run = world.claim("jobs", 1).await.remove(0);
    let (id, token) =
        (run["run_id"].as_str().expect("an id").to_owned(), run["token"].as_u64().expect("a token"));
    let mut cases = Vec::new();
    for (what, body) in [
        ("extend", json!({ "token": token })),
        ("hold", json!({ "token": token })),
        ("settle", json!({ "token": token, "outcome": "succeeded" })),
    ] {
        for bad in ["1", "run_", "run_1", "run_u_u", "run_1_1_1", "RUN_1_1", "run_zzzzzzzzzzzzzzz_1", "%00"] {
            cases.push(invalid(
                format!("{what} {bad}"),
                send("POST", &format!("/v1/claims/{bad}/{what}"), &body),
            ));
        }
        for unknown in ["run_zz_zz", "run_0_0", "run_7zzzzzzzzzz_7zzzzzzzzzz"] {
            let target = format!("/v1/claims/{unknown}/{what}");
            cases.push(problem(format!("{what} {unknown}"), send("POST", &target, &body), 404, "not-found"));
        }
        let mut stale = body.clone();
        stale["token"] = json!(token + 1);
        let target = format!("/v1/claims/{id}/{what}");
        cases.push(problem(
            format!("{what} by another token"),
            send("POST", &target, &stale),
            409,
            "stale-token",
        ));
        stale["token"] = json!(u64::MAX);
        cases.push(problem(
            format!("{what} by the largest token"),
            send("POST", &target, &stale),
            409,
            "stale-token",
        ));
        stale["token"] = json!(-1);
        cases.push(invalid(format!("{what} by a negative token"), send("POST", &target, &stale)));
        stale["token"] = json!("1");
        cases.push(invalid(format!("{what} by a token of text"), send("POST", &target, &stale)));
        stale["tokens"] = json!(1);
        cases.push(invalid(format!("{what} with an unknown field"), send("POST", &target, &stale)));
        cases.push(invalid(format!("{what} without a token"), send("POST", &target, &json!({}))));
    }
    let settle = |name: &str, change: Value| {
        let mut body = json!({ "token": token, "outcome": "succeeded" });
        for (field, value) in change.as_object().expect("an object") {
            body[field] = value.clone();
        }
        invalid(format!("settle: {name}"), send("POST", &format!("/v1/claims/{id}/settle"), &body))
    };
    cases.extend([
        settle("an unknown outcome", json!({ "outcome": "done" })),
        settle("success later", json!({ "retry_after_ms": 5 })),
        settle("failed if nothing is newer", json!({ "outcome": "failed", "if_head": 1 })),
        settle(
            "a source that was not asked and has failed",
            json!({ "source_unused": true, "source_fault": { "kind": "other" } }),
        ),
        settle("an unknown fault", json!({ "outcome": "retry", "source_fault": { "kind": "tired" } })),
        settle("a number that is text", json!({ "usage": { "tokens": "7" } })),
    ]);
    let step = |name: &str, path: &str, body: &Value, status, code| {
        problem(
            format!("step: {name}"),
            send("PUT", &format!("/v1/claims/{id}/steps/{path}"), body),
            status,
            code,
        )
    };
    let value = json!({ "token": token, "value": 1 });
    cases.extend([
        step("a name of 129 bytes", &"s".repeat(129), &value, 400, "invalid"),
        step("NUL in a name", "a%00b", &value, 400, "invalid"),
        step("a name that is not UTF-8", "%ff", &value, 400, "invalid"),
        step("neither value nor intent", "s", &json!({ "token": token }), 400, "invalid"),
        step(
            "a value and an intent",
            "s",
            &json!({ "token": token, "value": 1, "begin": true }),
            400,
            "invalid",
        ),
        step(
            "a value over 256 KiB",
            "s",
            &json!({ "token": token, "value": "v".repeat(300_000) }),
            422,
            "over-limit",
        ),
        step("another token", "s", &json!({ "token": token + 1, "value": 1 }), 409, "stale-token"),
        invalid(
            "step: no name",
            send("PUT", &format!("/v1/claims/{id}/steps/%20"), &json!({ "token": "x" })),
        ),
        problem(
            "step: no name at all",
            send("PUT", &format!("/v1/claims/{id}/steps/"), &value),
            404,
            "not-found",
        ),
        invalid("step: read without a token", get(&format!("/v1/claims/{id}/steps/s"))),
        invalid(
            "step: read with two tokens",
            get(&format!("/v1/claims/{id}/steps/s?token={token}&token={token}")),
        ),
        problem(
            "step: read by another token",
            get(&format!("/v1/claims/{id}/steps/s?token={}", token + 1)),
            409,
            "stale-token",
        ),
    ]);
    check_all(&world, cases).await;
    let settled = world
        .post(&format!("/v1/claims/{id}/settle"), json!({ "token": token, "outcome": "succeeded" }))
        .await;
    assert_eq!(settled.json()["state"], "succeeded", "{}", settled.text);
    let again =
        send("POST", &format!("/v1/claims/{id}/settle"), &json!({ "token": token, "outcome": "failed" }));
    let kept = send("POST", &format!("/v1/claims/{id}/extend"), &json!({ "token": token }));
    let ended = vec![
        problem("another end of an ended run", again, 409, "already-settled"),
        problem("keeping an ended run", kept, 409, "stale-token"),
    ];
    check_all(&world, ended).await;
}

fn listings() -> Vec<Case> {
    let mut cases = Vec::new();
    for path in ["lanes", "runs", "dead", "audit", "sources"] {
        for (name, query) in [
            ("limit 0", "limit=0"),
            ("limit 1001", "limit=1001"),
            ("limit -1", "limit=-1"),
            ("limit x", "limit=x"),
            ("an empty limit", "limit="),
            ("an unknown parameter", "sort=key"),
            ("a parameter twice", "limit=5&limit=6"),
            ("a forged cursor", "cursor=1%20OR%201%3D1"),
            ("a cursor of quotes", "cursor=%27%3B--"),
            ("a tenant of 129 bytes", &format!("tenant={}", "t".repeat(129))),
        ] {
            cases.push(invalid(format!("{path}: {name}"), get(&format!("/v1/{path}?{query}"))));
        }
        if path != "sources" {
            cases.push(invalid(
                format!("{path}: a queue of quotes"),
                get(&format!("/v1/{path}?queue=%27%20OR%201%3D1--")),
            ));
        }
    }
    cases.extend([
        invalid("runs: an unknown state", get("/v1/runs?state=asleep")),
        invalid("runs: NUL in a key", get("/v1/runs?key=%00")),
        invalid("audit: a run that is none", get("/v1/audit?run=7")),
        invalid("lanes: NUL in a prefix", get("/v1/lanes?key_prefix=%00")),
        invalid("lanes: running that is neither", get("/v1/lanes?running=maybe")),
        invalid("run: an id that is none", get("/v1/runs/7")),
        problem("run: an unknown id", get("/v1/runs/run_zz_zz"), 404, "not-found"),
        invalid("run: a wait that is none", get("/v1/runs/run_zz_zz?wait_ms=soon")),
        invalid("event: without its lane", get("/v1/events/e")),
        problem("event: an unknown id", get("/v1/events/e?queue=jobs&key=k"), 404, "not-found"),
        problem("lane: an unknown key", get("/v1/lanes/jobs/nobody"), 404, "not-found"),
        problem("source: unknown", get("/v1/sources/nobody"), 404, "not-found"),
        invalid("source: capitals", get("/v1/sources/Shop")),
        invalid("stream: an unknown parameter", get("/v1/stream?from=1")),
    ]);
    cases
}

#[tokio::test]
async fn listings_take_what_they_know_and_nothing_else() {
    check_all(&World::new().await, listings()).await;
}

fn orders() -> Vec<Case> {
    let put = |name: &str, path: &str, body: Value| invalid(name.to_owned(), send("PUT", path, &body));
    let schedule = json!({ "cron": "@daily", "queue": "jobs", "key": "k", "payload": 1 });
    let scheduled = |name: &str, change: Value| {
        let mut body = schedule.clone();
        for (field, value) in change.as_object().expect("an object") {
            body[field] = value.clone();
        }
        put(&format!("schedule: {name}"), "/v1/schedules/s", body)
    };
    let token =
        |name: &str, body: Value| invalid(format!("token: {name}"), send("POST", "/v1/tokens", &body));
    vec![
        put("source: a burst of 0", "/v1/sources/shop", json!({ "rate_limit_per_minute": 1, "burst": 0 })),
        put("source: a rate of 0", "/v1/sources/shop", json!({ "rate_limit_per_minute": 0 })),
        put(
            "source: a rate beyond all",
            "/v1/sources/shop",
            json!({ "rate_limit_per_minute": 4_000_000_000u32 }),
        ),
        put("source: a cooldown of all time", "/v1/sources/shop", json!({ "cooldown_ms": u64::MAX })),
        put("source: an unknown field", "/v1/sources/shop", json!({ "speed": 1 })),
        put("source: a name of capitals", "/v1/sources/Shop", json!({})),
        problem(
            "source: nothing to patch",
            send("PATCH", "/v1/sources/nobody", &json!({ "enabled": true })),
            404,
            "not-found",
        ),
        scheduled("no calendar", json!({ "cron": "soon" })),
        scheduled("the 30th of February", json!({ "cron": "0 0 30 2 *" })),
        scheduled("an unknown zone", json!({ "zone": "Moon/Far" })),
        scheduled("an empty key", json!({ "key": "" })),
        scheduled("an unknown field", json!({ "every": 5 })),
        put("schedule: a name of 65 bytes", &format!("/v1/schedules/{}", "s".repeat(65)), schedule.clone()),
        problem(
            "schedule: an unknown queue",
            send(
                "PUT",
                "/v1/schedules/s",
                &json!({ "cron": "@daily", "queue": "nope", "key": "k", "payload": 1 }),
            ),
            404,
            "unknown-queue",
        ),
        token("no scope", json!({ "name": "t", "scopes": [] })),
        token("an unknown scope", json!({ "name": "t", "scopes": ["root"] })),
        token("no name", json!({ "name": "", "scopes": ["read"] })),
        token("a name of 65 bytes", json!({ "name": "t".repeat(65), "scopes": ["read"] })),
        token("a name with a line", json!({ "name": "a\nb", "scopes": ["read"] })),
        token("over at once", json!({ "name": "t", "scopes": ["read"], "expires_in_ms": 0 })),
        token(
            "for longer than a year",
            json!({ "name": "t", "scopes": ["read"], "expires_in_ms": u64::MAX }),
        ),
        problem("token: unknown", request("DELETE", "/v1/tokens/0000000000", &[], ""), 404, "not-found"),
        invalid("bulk: no queue", send("POST", "/v1/lanes/pause", &json!({}))),
        invalid(
            "bulk: a forged cursor",
            send("POST", "/v1/lanes/pause", &json!({ "queue": "jobs", "cursor": "' OR 1=1" })),
        ),
        invalid(
            "redrive: an unknown field",
            send("POST", "/v1/dead/redrive", &json!({ "queue": "jobs", "all": true })),
        ),
        problem(
            "redrive: an unknown run",
            send("POST", "/v1/runs/run_zz_zz/redrive", &json!({})),
            404,
            "not-found",
        ),
        problem(
            "cancel: an unknown run",
            request("POST", "/v1/runs/run_zz_zz/cancel", &[], ""),
            404,
            "not-found",
        ),
        invalid("purge: everything", request("DELETE", "/v1/dead", &[], "")),
        invalid("purge: an unknown parameter", request("DELETE", "/v1/dead?queue=jobs&older=1", &[], "")),
        invalid("edit: no payload", send("PUT", "/v1/events/e?queue=jobs&key=k", &json!({}))),
        problem(
            "edit: an unknown event",
            send("PUT", "/v1/events/e?queue=jobs&key=k", &json!({ "payload": 1 })),
            404,
            "not-found",
        ),
        problem(
            "delete: an unknown event",
            request("DELETE", "/v1/events/e?queue=jobs&key=k", &[], ""),
            404,
            "not-found",
        ),
    ]
}

#[tokio::test]
async fn orders_that_cannot_be_kept_are_refused() {
    let world = World::new().await;
    check_all(&world, orders()).await;
    assert_eq!(world.get("/v1/tokens").await.json()["items"], json!([]));
    assert_eq!(world.get("/v1/schedules").await.json()["items"], json!([]));
    assert_eq!(world.get("/v1/sources").await.json()["items"], json!([]));
}

#[test]
fn the_corpus_holds_more_than_three_hundred_cases() {
    let tables = [
        framing(),
        heads(),
        paths(),
        bodies(),
        wrong_types(),
        cloud_and_keys(),
        claims(),
        listings(),
        orders(),
    ];
    assert!(tables.iter().map(Vec::len).sum::<usize>() > 300);
}

#[tokio::test]
async fn a_body_over_the_bound_is_refused_with_and_without_a_length() {
    let world = World::new().await;
    let large = vec![b' '; 8 * 1024 * 1024 + 1];
    let mut cases = vec![problem("with a length", events(&large), 413, "too-large")];
    let head = format!(
        "POST {EVENTS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    let mut chunked = head.into_bytes();
    for chunk in large.chunks(65_536) {
        chunked.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        chunked.extend_from_slice(chunk);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    cases.push(problem("without one", chunked, 413, "too-large"));
    check_all(&world, cases).await;
}

#[tokio::test]
async fn a_body_of_exactly_the_bound_is_read() {
    let world = World::new().await;
    let mut body = GOOD.as_bytes().to_vec();
    body.resize(8 * 1024 * 1024, b' ');
    let reply = world.send_raw(&events(&body)).await;
    assert_eq!(reply.status(), 202, "{}", reply.text);
    assert_eq!(world.accepted().await, 1);
}

#[tokio::test]
async fn keys_may_hold_anything_but_nul() {
    let world = World::new().await;
    for key in [
        "k".repeat(512).as_str(),
        "a\nb",
        "\u{202e}abc",
        "e\u{301}",
        "é",
        "%",
        "'; DROP TABLE lanes;--",
        "{}*?[",
        "\u{1b}[31m",
        "../../etc",
    ] {
        world.append("jobs", key, json!(1)).await;
        let path: String = key.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let lane = world.get(&format!("/v1/lanes/jobs/{path}")).await;
        assert_eq!(lane.json()["key"], key, "{}", lane.text);
    }
    // Two ways to write the same letter are two keys: they are compared as bytes.
    assert_eq!(world.get("/v1/lanes?limit=100").await.json()["items"].as_array().map(Vec::len), Some(10));
    world.verify().await;
}

#[tokio::test]
async fn a_payload_is_kept_byte_for_byte() {
    let world = World::new().await;
    let odd = [
        r#""\ud800""#,
        r#""\u0000""#,
        "1e999",
        "-0.0",
        "1.10",
        "123456789012345678901234567890",
        r#"{"b":1,"a":2,"b":3}"#,
        r#"{ "a" : [ ] }"#,
        r#""<script>alert(1)</script>""#,
        "\"\\u001b[31m\u{202e}\"",
    ];
    for (at, payload) in odd.iter().enumerate() {
        let reply = world
            .send_raw(&events(format!("{{\"key\":\"k{at}\",\"id\":\"e\",\"payload\":{payload}}}")))
            .await;
        assert_eq!(reply.status(), 202, "{payload}: {}", reply.text);
        let event = world.get(&format!("/v1/events/e?queue=jobs&key=k{at}")).await;
        assert!(event.text.contains(&format!("\"payload\":{payload}")), "{payload}: {}", event.text);
    }
    // One odd payload does not keep the others from a worker.
    let body = json!({ "queues": ["jobs"], "worker": "w", "max": 100 });
    let claimed = world.post("/v1/claims", body).await;
    assert_eq!(claimed.text.matches("\"run_id\"").count(), odd.len(), "{}", claimed.text);
}

#[tokio::test]
async fn filters_are_compared_and_never_read() {
    let world = World::new().await;
    for key in ["a%b", "a_b", "a*b", "axb", "a'b", "a\\b", "a[b"] {
        world.append("jobs", key, json!(1)).await;
    }
    for (prefix, met) in [
        ("a%25", 1),
        ("a_", 1),
        ("a*", 1),
        ("a%27", 1),
        ("a%5C", 1),
        ("a%5B", 1),
        ("a", 7),
        ("%25", 0),
        ("", 7),
        ("a%27%20OR%201%3D1", 0),
    ] {
        let page = world.get(&format!("/v1/lanes?queue=jobs&key_prefix={prefix}")).await;
        assert_eq!(page.json()["items"].as_array().map(Vec::len), Some(met), "{prefix}: {}", page.text);
    }
    for query in [
        "runs?key=a%25",
        "audit?key=a%25",
        "dead?key=a%25",
        "lanes?tenant=%25",
        "runs?tenant=%27%20OR%201%3D1--",
        "audit?tenant=%25",
        "sources?tenant=%25",
    ] {
        let page = world.get(&format!("/v1/{query}")).await;
        assert_eq!(page.status, 200, "{query}: {}", page.text);
        assert_eq!(page.json()["items"], json!([]), "{query}");
    }
}

#[tokio::test]
async fn a_bad_line_is_refused_alone() {
    let world = World::new().await;
    let body = format!("{GOOD}\n{{\"key\":\"\",\"payload\":1}}\n\n{GOOD}\nnot JSON\n{GOOD}");
    let reply =
        world.send_raw(&request("POST", EVENTS, &[("Content-Type", "application/x-ndjson")], body)).await;
    assert_eq!(reply.status(), 202, "{}", reply.text);
    assert_eq!(world.accepted().await, 3);
    assert_eq!(reply.text.matches("\"event_id\"").count(), 3, "{}", reply.text);
    for line in ["\"line\":2", "\"line\":5"] {
        assert!(reply.text.contains(line), "{line}: {}", reply.text);
    }
}

#[tokio::test]
async fn a_line_that_never_ends_is_given_up_and_those_before_it_stay() {
    let world = World::new().await;
    let mut body = format!("{GOOD}\n").into_bytes();
    body.resize(5 * 1024 * 1024, b'x');
    let reply =
        world.send_raw(&request("POST", EVENTS, &[("Content-Type", "application/x-ndjson")], body)).await;
    assert_eq!(reply.status(), 202, "{}", reply.text);
    assert!(reply.text.contains("too-large"), "{}", reply.text);
    assert_eq!(world.accepted().await, 1);
}

#[tokio::test]
async fn a_long_line_in_small_pieces_is_looked_at_once() {
    let world = World::new().await;
    let line = format!("{{\"key\":\"k\",\"payload\":\"{}\"}}\n", "x".repeat(400_000));
    let mut bytes = format!(
        "POST {EVENTS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/x-ndjson\r\n\
         Transfer-Encoding: chunked\r\n\r\n"
    );
    line.chars().for_each(|letter| bytes.push_str(&format!("1\r\n{letter}\r\n")));
    bytes.push_str("0\r\n\r\n");
    let reply = world.send_raw(bytes.as_bytes()).await;
    assert!(reply.closed && reply.text.contains("too-large"), "{}", reply.text);
}

#[tokio::test]
async fn compressed_lines_are_refused() {
    let world = World::new().await;
    let fields = [("Content-Type", "application/x-ndjson"), ("Content-Encoding", "gzip")];
    let send = request("POST", EVENTS, &fields, GOOD);
    check_all(&world, vec![problem("compressed lines", send, 415, "unsupported-media-type")]).await;
}

#[tokio::test]
async fn a_body_that_breaks_off_stores_nothing() {
    let world = World::new().await;
    let whole = events(GOOD);
    let mut stream = world.raw().await;
    tokio::io::AsyncWriteExt::write_all(&mut stream, &whole[..whole.len() - 3]).await.expect("it is taken");
    drop(stream);
    assert_eq!(world.get("/healthz").await.status, 200);
    // Whatever the server makes of it, it has made by the time that a whole event is stored behind it.
    world.append("jobs", "k", json!(2)).await;
    assert_eq!(world.accepted().await, 1);
}

#[tokio::test]
async fn credentials_are_shown_once_in_their_place_and_are_exactly_right() {
    let world = World::new().await;
    let right = world.token("right", &[Scope::Admin], &[], &[]).await;
    let revoked = world.token("revoked", &[Scope::Admin], &[], &[]).await;
    let id = revoked.split('_').nth(1).expect("an id").to_owned();
    let soon = TokenWish {
        name: "soon over".to_owned(),
        scopes: [Scope::Admin].into(),
        tenants: [].into(),
        queues: [].into(),
        expires_in: Some(Duration::from_secs(1)),
    };
    let (over, about) = world.engine.make_token(soon, "test").await.expect("a token can be made");
    let with = |value: &str| request("GET", "/v1/lanes", &[("Authorization", value)], "");
    let bearer = |token: &str| with(&format!("Bearer {token}"));
    let taken = world.send_raw(&bearer(&right)).await;
    assert_eq!(taken.status(), 200, "{}", taken.text);
    let gone = world
        .send_raw(&request(
            "DELETE",
            &format!("/v1/tokens/{id}"),
            &[("Authorization", &format!("Bearer {right}"))],
            "",
        ))
        .await;
    assert_eq!(gone.status(), 200, "{}", gone.text);
    let last = |to: &str| format!("{}{to}", &right[..right.len() - 1]);
    let off = if right.ends_with('0') { last("1") } else { last("0") };
    let denied = |name: &str, send| problem(name, send, 401, "unauthorized");
    let twice = [("Authorization", format!("Bearer {right}")), ("Authorization", format!("Bearer {right}"))];
    let twice: Vec<(&str, &str)> = twice.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut cases = vec![
        denied("none", get("/v1/lanes")),
        denied("none, for events", request("POST", EVENTS, &[JSON], GOOD)),
        denied("an empty one", with("")),
        denied("no text", with("Bearer")),
        denied("another scheme", with("Basic cm9vdDpyb290")),
        denied("a token without a scheme", with(&right)),
        denied("twice", request("GET", "/v1/lanes", &twice, "")),
        denied("in the query", get(&format!("/v1/lanes?access_token={right}"))),
        denied("in the query as we would call it", get(&format!("/v1/lanes?token={right}"))),
        denied("as a cookie", request("GET", "/v1/lanes", &[("Cookie", &format!("token={right}"))], "")),
        denied("a letter less", bearer(&right[..right.len() - 1])),
        denied("a letter more", bearer(&format!("{right}0"))),
        denied("a check sum that is off", bearer(&off)),
        denied("of capitals", bearer(&right.to_uppercase())),
        denied("taken away", bearer(&revoked)),
        denied("not ASCII", with("Bearer quell_é")),
    ];
    crate::support::until("the token is over", async || {
        let now = world.engine.health().await.expect("the store is there").now;
        about.expires_at.is_some_and(|at| now > at)
    })
    .await;
    cases.push(denied("over", bearer(&over)));
    for case in cases {
        let reply = world.send_raw(&case.send).await;
        assert_eq!(case.faults_of(&reply), Vec::<String>::new());
        assert!(reply.text.contains("www-authenticate: Bearer"), "{}: {}", case.name, reply.text);
        assert_eq!(world.accepted().await, 0, "{}", case.name);
        // Somebody who is known in between, so that nobody takes the cases for guesses.
        assert_eq!(world.send_raw(&bearer(&right)).await.status(), 200, "{}", case.name);
    }
}
