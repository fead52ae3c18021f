//! One request: what bounds it, and what it never does.

use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::{Method, StatusCode, header};
use quell_fetch::{BODY_BYTES_MAX, Call, CallError, Excess, Http, HttpSettings, USER_AGENT};

use crate::server::{Server, answer, ok};
use crate::world::{loopback, short};

const MIB: usize = 1024 * 1024;

fn gzip(bytes: &[u8], times: usize) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    for _ in 0..times {
        encoder.write_all(bytes).unwrap();
    }
    encoder.finish().unwrap()
}

#[tokio::test]
async fn a_request_says_who_asks_and_carries_what_it_is_given() {
    let server = Server::local(|_, _| answer("201 Created", &[("x-a", "b")], "made")).await;
    let call = Call::new(Method::POST, server.url("/things?x=1#y"))
        .header(header::AUTHORIZATION, "Bearer t".parse().unwrap())
        .body("{}");
    let reply = loopback().call(call).await.unwrap();
    assert_eq!((reply.status, reply.body.as_slice()), (StatusCode::CREATED, b"made".as_slice()));
    assert_eq!(reply.headers["x-a"], "b");
    let head = &server.requests()[0];
    assert!(head.starts_with("post /things?x=1 http/1.1\r\n"), "{head}");
    for line in [&format!("user-agent: {USER_AGENT}"), "authorization: bearer t", "content-length: 2"] {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{line} in {head}");
    }
    assert!(!head.contains("referer") && !head.contains("cookie"), "{head}");
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let inside = Server::local(|_, _| ok("inside")).await;
    let target = inside.url("/");
    let server = Server::local(move |n, _| {
        let status = ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"][n];
        answer(status, &[("location", &target)], "")
    })
    .await;
    for status in [301, 302, 303, 307, 308] {
        let reply = loopback().call(Call::get(server.url("/"))).await.unwrap();
        assert_eq!(reply.status.as_u16(), status);
    }
    assert_eq!((server.connections(), inside.connections()), (5, 0));
}

#[tokio::test]
async fn an_answer_is_read_up_to_its_cap() {
    let server = Server::local(|_, head| {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let body = vec![b'x'; if path.contains("over") { MIB + 1 } else { MIB }];
        if path.contains("chunked") {
            let mut bytes = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
            for chunk in body.chunks(65_536) {
                bytes.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
                bytes.extend(chunk);
                bytes.extend(b"\r\n");
            }
            bytes.extend(b"0\r\n\r\n");
            return bytes;
        }
        answer("200 OK", &[], body)
    })
    .await;
    for path in ["/at", "/chunked-at"] {
        let reply = loopback().call(Call::get(server.url(path))).await.unwrap();
        assert_eq!(reply.body.len(), MIB, "{path}");
    }
    for path in ["/over", "/chunked-over"] {
        let answer = loopback().call(Call::get(server.url(path))).await;
        assert_eq!(answer, Err(CallError::TooLarge { max: MIB }), "{path}");
    }
}

#[tokio::test]
async fn a_compressed_answer_is_bounded_by_what_it_unfolds_to() {
    let small = gzip(b"hello", 1);
    // 256 MiB of zeros in about 256 KiB, and a bomb in a bomb, whose inner one stays folded.
    let bomb = gzip(&vec![0; MIB], 256);
    let nested = gzip(&bomb, 1);
    assert!(bomb.len() < MIB && nested.len() < MIB);
    let server = Server::local(move |_, head| {
        let (encoding, body) = match head.split(' ').nth(1) {
            Some("/bomb") => ("gzip", &bomb),
            Some("/nested") => ("gzip", &nested),
            Some("/broken") => return answer("200 OK", &[("content-encoding", "gzip")], "not gzip"),
            _ => ("gzip", &small),
        };
        answer("200 OK", &[("content-encoding", encoding)], body)
    })
    .await;
    let get = async |path: &str| loopback().call(Call::get(server.url(path))).await;
    assert_eq!(get("/small").await.unwrap().body, b"hello");
    assert_eq!(get("/bomb").await, Err(CallError::TooLarge { max: MIB }));
    assert!(get("/nested").await.unwrap().body.len() < MIB);
    assert!(matches!(get("/broken").await, Err(CallError::Broken(_))));
    assert!(server.requests()[0].contains("accept-encoding: gzip"));
}

#[tokio::test]
async fn the_rest_of_an_answer_can_be_left_unread() {
    let bomb = gzip(&vec![0; MIB], 64);
    let server = Server::local(move |_, head| match head.split(' ').nth(1) {
        Some("/bomb") => answer("200 OK", &[("content-encoding", "gzip")], &bomb),
        // More is announced than ever comes: who drops the rest does not wait for it.
        Some("/stuck") => {
            let mut bytes = format!("HTTP/1.1 503 No\r\ncontent-length: {}\r\n\r\n", 9 * MIB).into_bytes();
            bytes.extend(vec![b'x'; MIB]);
            bytes
        }
        Some("/large") => answer("404 Not Found", &[], vec![b'x'; 9 * MIB]),
        _ => ok("short"),
    })
    .await;
    for (path, status, bytes) in
        [("/bomb", 200, MIB), ("/stuck", 503, MIB), ("/large", 404, MIB), ("/", 200, 5)]
    {
        let call = Call::get(server.url(path)).excess(Excess::Drop);
        let reply = loopback().call(call).await.unwrap();
        assert_eq!((reply.status.as_u16(), reply.body.len()), (status, bytes), "{path}");
    }
}

#[tokio::test]
async fn a_call_may_have_a_time_limit_of_its_own() {
    let server = Server::local(|_, _| Vec::new()).await;
    let call = || Call::get(server.url("/")).timeout(Duration::from_millis(100));
    for http in [loopback(), short(Duration::from_secs(600))] {
        assert!(matches!(http.call(call()).await, Err(CallError::TimedOut(_))));
    }
}

#[test]
fn a_cap_that_memory_could_not_bear_is_no_setting() {
    for body_bytes_max in [0, BODY_BYTES_MAX + 1] {
        let settings = HttpSettings { body_bytes_max, ..HttpSettings::default() };
        assert!(matches!(Http::new(Default::default(), &settings), Err(CallError::Invalid(_))));
    }
    let settings = HttpSettings { body_bytes_max: BODY_BYTES_MAX, ..HttpSettings::default() };
    assert!(Http::new(Default::default(), &settings).is_ok());
}

#[tokio::test]
async fn failures_are_told_apart() {
    let server = Server::local(|_, head| match head.split(' ').nth(1) {
        Some("/silent") => Vec::new(),
        Some("/cut") => b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf".to_vec(),
        Some("/headers") => {
            let many: String = (0..200).map(|n| format!("x-{n}: y\r\n")).collect();
            format!("HTTP/1.1 200 OK\r\n{many}\r\n").into_bytes()
        }
        _ => b"SSH-2.0-OpenSSH\r\n".to_vec(),
    })
    .await;
    let http = short(Duration::from_millis(300));
    let get = async |path: &str| http.call(Call::get(server.url(path))).await;
    assert!(matches!(get("/silent").await, Err(CallError::TimedOut(_))));
    assert!(matches!(get("/cut").await, Err(CallError::Broken(_))));
    assert!(matches!(get("/headers").await, Err(CallError::Broken(_))));
    assert!(matches!(get("/other").await, Err(CallError::Broken(_))));
    let closed = {
        let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        format!("http://{}/", gone.local_addr().unwrap())
    };
    let answer = http.call(Call::get(closed)).await;
    assert!(matches!(answer, Err(CallError::Connect(_))), "{answer:?}");
}

#[tokio::test]
async fn an_error_does_not_tell_the_query() {
    let server = Server::local(|_, _| b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf".to_vec()).await;
    let error = loopback().call(Call::get(server.url("/?key=secret"))).await.unwrap_err();
    assert!(!error.to_string().contains("secret"), "{error}");
}

/// Environment variables cannot be set inside a process that has threads, so the test runs itself with them.
#[tokio::test]
async fn a_proxy_of_the_environment_is_not_used() {
    let proxy = Server::local(|_, _| ok("proxied")).await;
    let target = Server::local(|_, _| ok("direct")).await;
    let mut child = tokio::process::Command::new(std::env::current_exe().unwrap());
    child.args(["call::fetches_what_the_environment_names", "--exact", "--ignored"]);
    child.env("QUELL_TEST_URL", target.url("/"));
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        child.env(name, proxy.url("/"));
    }
    let output = child.output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!((proxy.connections(), target.connections()), (0, 1));
}

#[tokio::test]
#[ignore = "run by a_proxy_of_the_environment_is_not_used"]
async fn fetches_what_the_environment_names() {
    let reply = loopback().call(Call::get(std::env::var("QUELL_TEST_URL").unwrap())).await.unwrap();
    assert_eq!(reply.body, b"direct");
}
