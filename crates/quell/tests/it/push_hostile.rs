//! The handler `http` and what is hostile: addresses inside, redirects, answers without end. Nothing inside is connected to,
//! and nothing outside makes a worker wait or swell.

#![expect(clippy::unwrap_used, reason = "what a test builds for itself is there, or the test fails")]

use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use quell::fetch::{Allow, Guard, Http, HttpSettings, Refused};
use quell::handlers::http::{Push, PushSettings};
use quell::quell_core::outcome::Verdict;
use quell::quell_core::source::SourceReport;
use quell::{Handler, Outcome};

use crate::forbidden::{FORBIDDEN_HOSTS, forbidden_urls, ip};
use crate::names::Names;
use crate::push::{push, run};
use crate::receiver::{Answer, Receiver, ok, say};

async fn sent(http: &Http, url: &str) -> Outcome {
    Push::new(&PushSettings::new(url), Vec::new(), http.clone()).handle(&run()).await
}

/// Tried again, because the operator can mend it; the token of a source goes back, because nothing was sent.
fn assert_refused(outcome: &Outcome, reason: &str, what: &str) {
    assert_eq!(outcome.verdict, Verdict::Retry { after: None }, "{what}");
    assert_eq!(outcome.source, SourceReport::Unused, "{what}");
    let text = outcome.error.as_deref().unwrap();
    assert!(text.starts_with("nothing was sent: ") && text.ends_with(reason), "{what}: {text}");
}

#[tokio::test]
async fn a_forbidden_address_is_refused_however_it_is_written_or_named_and_nobody_is_connected_to() {
    let canary = Receiver::start(|_, _| ok()).await;
    let port = canary.address.port();
    let mut cases = 0;
    let http = Http::new(Guard::default(), &HttpSettings::default()).unwrap();
    for (host, why) in FORBIDDEN_HOSTS {
        let url = format!("http://{host}:{port}/");
        assert_refused(&sent(&http, &url).await, &format!("is not allowed: it is {why}"), &url);
        cases += 1;
    }
    for (url, expected) in forbidden_urls() {
        assert_refused(&sent(&http, url).await, &expected.to_string(), url);
        cases += 1;
    }
    // The same addresses behind names, alone and beside a public one.
    let address = |host: &str| {
        let url = reqwest::Url::parse(&format!("http://{host}/")).unwrap();
        let plain = url.host_str().unwrap().trim_matches(['[', ']']).trim_end_matches('.').to_owned();
        plain.parse::<IpAddr>().ok()
    };
    let found: Vec<(IpAddr, &str)> =
        FORBIDDEN_HOSTS.iter().filter_map(|(host, why)| Some((address(host)?, *why))).collect();
    let name = |kind: &str, n: usize| format!("{kind}{n}.example");
    let public = ip("1.1.1.1");
    let names = Names::all(found.iter().enumerate().flat_map(|(n, (address, _))| {
        [(name("one", n), vec![vec![*address]]), (name("two", n), vec![vec![public, *address]])]
    }));
    let http = Http::with_names(Guard::default(), &HttpSettings::default(), names.clone()).unwrap();
    for (n, (_, why)) in found.iter().enumerate() {
        for name in [name("one", n), name("two", n)] {
            let url = format!("http://{name}:{port}/");
            assert_refused(&sent(&http, &url).await, &format!("an address of it is {why}"), &url);
            cases += 1;
        }
    }
    assert_eq!(names.asked(), 2 * found.len());
    assert!(FORBIDDEN_HOSTS.len() >= 130 && found.len() >= 110 && cases >= 400, "{cases}");
    assert_eq!((canary.connections(), canary.heard().len()), (0, 0));
}

#[tokio::test]
async fn a_name_that_changes_its_mind_reaches_nobody_inside() {
    let canary = Receiver::start(|_, _| ok()).await;
    // The guard of this test takes one further loopback address, where nobody listens, for a public one.
    let names = Names::of("shop.example", &[&["127.9.9.9"], &["127.0.0.1"]]);
    let allow = Allow::parse(["127.9.9.9/32"]).unwrap();
    let http = Http::with_names(Guard::new(allow), &HttpSettings::default(), names).unwrap();
    let url = format!("http://shop.example:{}/", canary.address.port());
    let first = sent(&http, &url).await;
    assert!(first.error.as_deref().unwrap().starts_with("no connection"), "{first:?}");
    assert_refused(&sent(&http, &url).await, "an address of it is loopback", &url);
    assert_eq!(canary.connections(), 0);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let inside = Arc::new(Receiver::start(|_, _| ok()).await);
    let target = inside.url("/admin");
    let receiver = Receiver::start(move |n, _| {
        let status = ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"][n];
        say(status, &[("location", &target), ("connection", "close")], "")
    })
    .await;
    let pushed = push(&receiver, &[], Duration::from_secs(30));
    for code in [301, 302, 303, 307, 308] {
        let outcome = pushed.handle(&run()).await;
        assert_eq!(outcome.verdict, Verdict::Failed, "{code}");
        assert!(outcome.error.as_deref().unwrap().ends_with("redirects are never followed"), "{outcome:?}");
    }
    assert_eq!((receiver.heard().len(), inside.connections()), (5, 0));
}

/// Zeros, folded to a thousandth.
fn bomb(mib: usize) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let zeros = vec![0; 1024 * 1024];
    for _ in 0..mib {
        encoder.write_all(&zeros).unwrap();
    }
    encoder.finish().unwrap()
}

#[tokio::test]
async fn the_status_decides_whatever_the_size_of_the_answer() {
    let (large, bomb) = (vec![b'x'; 10 * 1024 * 1024], bomb(64));
    let receiver = Receiver::start(move |n, _| match n {
        0 => say("200 OK", &[], &large),
        1 => say("404 Not Found", &[], &large),
        2 => say("200 OK", &[("content-encoding", "gzip")], &bomb),
        3 => say("500 No", &[("content-encoding", "gzip")], &bomb),
        _ => Answer::Say(
            b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999\r\n\r\n"
                .iter()
                .chain(&large)
                .copied()
                .collect(),
        ),
    })
    .await;
    let pushed = push(&receiver, &[], Duration::from_secs(30));
    for verdict in [
        Verdict::Succeeded,
        Verdict::Failed,
        Verdict::Succeeded,
        Verdict::Retry { after: None },
        Verdict::Succeeded,
    ] {
        let outcome = pushed.handle(&run()).await;
        assert_eq!(outcome.verdict, verdict);
        assert!(outcome.error.unwrap_or_default().len() < 2048);
    }
}

#[tokio::test]
async fn an_answer_without_end_is_over_at_the_time_limit() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n";
    for begun in [head, &head[..20], "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffff\r\n"] {
        let receiver = Receiver::start(move |_, _| Answer::Drip(begun.as_bytes().to_vec())).await;
        let outcome = push(&receiver, &[], Duration::from_millis(300)).handle(&run()).await;
        assert_eq!(outcome.verdict, Verdict::Retry { after: None }, "{outcome:?}");
        assert!(outcome.error.as_deref().unwrap().starts_with("no answer in time"), "{outcome:?}");
        crate::support::until("the connection is closed", async || receiver.closed() == 1).await;
    }
}

#[tokio::test]
async fn an_answer_of_a_thousand_headers_is_none() {
    let receiver = Receiver::start(|_, _| {
        let many: String = (0..1000).map(|n| format!("x-{n}: y\r\n")).collect();
        Answer::Say(format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{many}\r\n").into_bytes())
    })
    .await;
    let outcome = push(&receiver, &[], Duration::from_secs(30)).handle(&run()).await;
    assert_eq!(outcome.verdict, Verdict::Retry { after: None });
    assert!(outcome.error.as_deref().unwrap().starts_with("the answer broke off"), "{outcome:?}");
}

#[test]
fn a_refusal_does_not_tell_what_a_name_means_inside() {
    let refused = Refused::Resolved { name: "a.example".into(), address: ip("10.1.2.3"), why: "private" };
    assert!(!refused.to_string().contains("10.1.2.3"));
}
