//! The handler `http` against a service on this machine: what it sends, and what it makes of the answer.

#![expect(clippy::unwrap_used, reason = "what a test builds for itself is there, or the test fails")]

use std::time::Duration;

use quell::fetch::{Allow, Guard, Http, HttpSettings};
use quell::handlers::http::{Push, PushSettings};
use quell::quell_core::batch::{Batch, RunId};
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::{Event, EventId, Headers, Key, LaneKey, Payload, QueueName, Tenant};
use quell::quell_core::outcome::Verdict;
use quell::quell_core::source::{FaultKind, SourceFault, SourceReport};
use quell::quell_core::window::FiredBy;
use quell::webhook::{Scheme, Secret, Standard};
use quell::{Handler, Outcome, Run};
use standardwebhooks::Webhook;
use tokio_util::sync::CancellationToken;

use crate::receiver::{Answer, Heard, Receiver, ok, say};

const NEW: &str = "whsec_cXVlbGwtZml4dHVyZS1zdGFuZGFyZC1zZWNyZXQtMDE=";
const OLD: &str = "whsec_cXVlbGwtZml4dHVyZS1zdGFuZGFyZC1zZWNyZXQtMDI=";
const STRANGER: &str = "whsec_cXVlbGwtZml4dHVyZS1zdGFuZGFyZC1zZWNyZXQtMDM=";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Two events of one key, on their first attempt.
pub(crate) fn batch() -> Batch {
    let parent = ("traceparent".to_owned(), format!("00-{TRACE}-00f067aa0ba902b7-01"));
    let event = |seq, headers| Event {
        seq,
        id: EventId::new(format!("evt_{seq}")).unwrap(),
        received_at: Timestamp::from_millis(1_700_000_000_000),
        payload: Payload::from_json(br#"{"text":"hello"}"#).unwrap(),
        headers,
        was_seq: None,
    };
    Batch {
        run_id: RunId { lane: 84, number: 303 },
        lane: LaneKey::new(QueueName::new("chat").unwrap(), Key::new("49 171/5 é").unwrap())
            .of(Tenant::new("acme & co").unwrap()),
        attempt: 1,
        max_attempts: 10,
        retries: 0,
        token: 17,
        revision: 3,
        fired_by: FiredBy::Quiet,
        first_at: Timestamp::from_millis(1_700_000_000_000),
        last_at: Timestamp::from_millis(1_700_000_001_500),
        claimed_at: Timestamp::from_millis(1_700_000_003_500),
        lease_until: Timestamp::from_millis(1_700_000_063_500),
        head_seq: 12,
        source: None,
        events: vec![
            event(11, Headers::from([parent, ("tracestate".into(), "a=1".into())])),
            event(12, Headers::new()),
        ],
    }
}

pub(crate) fn run() -> Run {
    Run::new(batch(), CancellationToken::new())
}

/// A client that may speak to this machine.
fn loopback() -> Http {
    let settings = HttpSettings { body_bytes_max: 64 * 1024, ..HttpSettings::default() };
    Http::new(Guard::new(Allow::parse(["127.0.0.0/8"]).unwrap()), &settings).unwrap()
}

pub(crate) fn push(receiver: &Receiver, secrets: &[&str], timeout: Duration) -> Push {
    let settings = PushSettings { timeout, ..PushSettings::new(receiver.url("/quell?a=b")) };
    let secrets: Vec<Secret> = secrets.iter().map(|text| Standard.secret(text).unwrap()).collect();
    Push::new(&settings, secrets, loopback())
}

/// What becomes of a run that is answered so.
async fn outcome_of(answer: impl Fn() -> Answer + Send + Sync + 'static) -> Outcome {
    let receiver = Receiver::start(move |_, _| answer()).await;
    let told = push(&receiver, &[], Duration::from_secs(30)).handle(&run()).await;
    assert!(told.report.is_some(), "every attempt tells what it asked");
    plain(told)
}

/// Without what is only told to people.
fn plain(outcome: Outcome) -> Outcome {
    Outcome { report: None, ..outcome }
}

fn verified(heard: &Heard, secret: &str) -> bool {
    Webhook::new(secret).unwrap().verify(&heard.body, &heard.headers).is_ok()
}

#[tokio::test]
async fn another_library_accepts_the_signature_also_while_the_secret_is_changed() {
    let receiver = Receiver::start(|_, _| ok()).await;
    for (secrets, new, old) in [(&[NEW][..], true, false), (&[OLD, NEW], true, true), (&[OLD], false, true)] {
        let pushed = push(&receiver, secrets, Duration::from_secs(30));
        assert_eq!(plain(pushed.handle(&run()).await), Outcome::succeeded());
        let heard = receiver.heard().pop().unwrap();
        assert_eq!((verified(&heard, NEW), verified(&heard, OLD)), (new, old), "{secrets:?}");
        assert!(!verified(&heard, STRANGER));
        assert_eq!(heard.header("webhook-signature").split(' ').count(), secrets.len());
        let forged = Heard { body: b"{}".to_vec(), ..heard };
        assert!(!verified(&forged, NEW) && !verified(&forged, OLD));
    }
}

#[tokio::test]
async fn a_request_has_the_envelope_and_all_that_a_careful_receiver_needs() {
    let receiver = Receiver::start(|_, _| ok()).await;
    let run = run();
    push(&receiver, &[NEW], Duration::from_secs(30)).handle(&run).await;
    let heard = receiver.heard().remove(0);
    assert_eq!(heard.line, "POST /quell?a=b HTTP/1.1");
    assert_eq!(heard.body, run.envelope().unwrap().into_bytes());
    for (name, value) in [
        ("content-type", "application/json"),
        ("webhook-id", "run_2m_9f-3"),
        ("quell-run", "run_2m_9f"),
        ("quell-queue", "chat"),
        ("quell-key", "49%20171%2F5%20%C3%A9"),
        ("quell-tenant", "acme%20%26%20co"),
        ("quell-attempt", "1"),
        ("quell-token", "17"),
        ("quell-seq", "11-12"),
        ("tracestate", "a=1"),
    ] {
        assert_eq!(heard.header(name), value, "{name}");
    }
    let parent = heard.header("traceparent");
    assert!(parent.starts_with(&format!("00-{TRACE}-")) && parent.ends_with("-01"), "{parent}");
    assert!(!parent.contains("00f067aa0ba902b7"), "a span of its own: {parent}");
}

#[tokio::test]
async fn a_repeated_batch_has_the_same_id_and_another_batch_another() {
    let receiver = Receiver::start(|_, _| ok()).await;
    let pushed = push(&receiver, &[NEW], Duration::from_secs(30));
    let again = Batch { attempt: 2, token: 18, ..batch() };
    let grown = Batch { revision: 4, ..again.clone() };
    for batch in [batch(), again, grown] {
        pushed.handle(&Run::new(batch, CancellationToken::new())).await;
    }
    let heard = receiver.heard();
    let of = |name| heard.iter().map(|heard| heard.header(name)).collect::<Vec<_>>();
    assert_eq!(of("webhook-id"), ["run_2m_9f-3", "run_2m_9f-3", "run_2m_9f-4"]);
    assert_eq!(of("quell-attempt"), ["1", "2", "2"]);
    assert_eq!(of("quell-token"), ["17", "18", "18"]);
}

#[tokio::test]
async fn without_a_secret_nothing_is_signed_and_without_a_tenant_none_is_named() {
    let receiver = Receiver::start(|_, _| ok()).await;
    let mut batch = batch();
    batch.lane.tenant = Tenant::none();
    let run = Run::new(batch, CancellationToken::new());
    assert_eq!(plain(push(&receiver, &[], Duration::from_secs(30)).handle(&run).await), Outcome::succeeded());
    let heard = receiver.heard().remove(0);
    assert!(!heard.headers.contains_key("webhook-signature") && !heard.headers.contains_key("quell-tenant"));
    assert_eq!(heard.header("webhook-id"), "run_2m_9f-3");
}

#[tokio::test]
async fn every_status_has_its_outcome() {
    let receiver = Receiver::start(|_, heard| {
        let code = heard.header("quell-attempt");
        say(&format!("{code} Said"), &[("location", "http://127.0.0.1:9/")], "because")
    })
    .await;
    let pushed = push(&receiver, &[], Duration::from_secs(30));
    let outcome = async |code: u32| {
        pushed.handle(&Run::new(Batch { attempt: code, ..batch() }, CancellationToken::new())).await
    };
    let retry = Verdict::Retry { after: None };
    let fault = |kind| SourceReport::Fault(SourceFault::new(kind));
    let mut cases = vec![
        (408, retry, SourceReport::Fine),
        (409, Verdict::Superseded, SourceReport::Fine),
        (410, Verdict::Failed, SourceReport::Fine),
        (425, retry, SourceReport::Fine),
        (429, retry, fault(FaultKind::TooManyRequests)),
    ];
    cases.extend([200, 201, 202, 206, 226, 299].map(|code| (code, Verdict::Succeeded, SourceReport::Fine)));
    cases.extend(
        [300, 301, 302, 303, 305, 307, 308, 399].map(|code| (code, Verdict::Failed, SourceReport::Fine)),
    );
    let other = [
        400, 401, 402, 403, 404, 405, 406, 411, 413, 415, 418, 421, 422, 423, 424, 426, 428, 431, 451, 499,
        600,
    ];
    cases.extend(other.map(|code| (code, Verdict::Failed, SourceReport::Fine)));
    cases
        .extend([500, 501, 502, 503, 504, 507, 599].map(|code| (code, retry, fault(FaultKind::ServerError))));
    for (code, verdict, source) in cases {
        let outcome = outcome(code).await;
        assert_eq!((outcome.verdict, outcome.source), (verdict, source), "{code}");
        let text = outcome.error.unwrap_or_default();
        match code {
            200..=299 => assert_eq!(text, ""),
            300..=399 => assert!(text.ends_with("redirects are never followed"), "{text}"),
            _ => assert!(
                text.starts_with(&format!("the service answered {code}")) && text.ends_with(": because"),
                "{text}"
            ),
        }
    }
    // 204 and 304 have no body.
    for (status, verdict) in [("204 No Content", Verdict::Succeeded), ("304 Not Modified", Verdict::Failed)] {
        let bare = outcome_of(move || Answer::Say(format!("HTTP/1.1 {status}\r\n\r\n").into_bytes())).await;
        assert_eq!(bare.verdict, verdict, "{status}");
    }
}

#[tokio::test]
async fn retry_after_is_honoured_within_a_second_and_an_hour() {
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (said, expected) in [
        ("120", Some(120)),
        ("0", Some(1)),
        ("-5", Some(1)),
        ("3600", Some(3600)),
        ("3601", Some(3600)),
        ("1000000000000", Some(3600)),
        ("99999999999999999999999999", Some(3600)),
        ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
        ("Sun, 06 Nov 1994 08:49:00 GMT", Some(1)),
        ("Tue, 31 Dec 2199 23:59:59 GMT", Some(3600)),
        ("soon", None),
        ("1.5", None),
    ] {
        for status in ["429 Too Many Requests", "503 Service Unavailable", "408 Request Timeout"] {
            let outcome = outcome_of(move || say(status, &[("retry-after", said), ("date", date)], "")).await;
            let after = expected.map(Duration::from_secs);
            assert_eq!(outcome.verdict, Verdict::Retry { after }, "{status} {said}");
            if let SourceReport::Fault(fault) = outcome.source {
                assert_eq!(fault.retry_after, after, "{said}");
            }
        }
    }
    // A date without the service's own is compared with our clock: 1994 has passed.
    let past = outcome_of(move || say("503 No", &[("retry-after", date)], "")).await;
    assert_eq!(past.verdict, Verdict::Retry { after: Some(Duration::from_secs(1)) });
    let done = outcome_of(|| say("200 OK", &[("retry-after", "60")], "")).await;
    assert_eq!(done, Outcome::succeeded());
}

#[tokio::test]
async fn a_json_object_in_the_answer_is_a_report() {
    let report = r#"{"result":{"ok":1},"usage":{"tokens":7,"bad":"x"},"retry_after_ms":1500}"#;
    let done = outcome_of(move || say("200 OK", &[], report)).await;
    assert_eq!(
        done,
        Outcome::succeeded().with_result(serde_json::json!({ "ok": 1 })).with_usage("tokens", 7.0)
    );
    let later = outcome_of(move || say("503 No", &[("retry-after", "60")], report)).await;
    assert_eq!(later.verdict, Verdict::Retry { after: Some(Duration::from_millis(1500)) }, "it knows better");
    assert_eq!(later.usage.len(), 1);
    for (said, expected) in [
        (r#"{"source_unused":true}"#, SourceReport::Unused),
        (r#"{"source_fault":true}"#, SourceReport::Fault(SourceFault::new(FaultKind::Other))),
        (r#"{"source_fault":false}"#, SourceReport::Fine),
    ] {
        assert_eq!(outcome_of(move || say("500 No", &[], said)).await.source, expected, "{said}");
    }
    for text in ["ok", "[1]", "<html></html>", "{\"other\":1}", "{\"usage\":3}", "\u{0}"] {
        assert_eq!(outcome_of(move || say("200 OK", &[], text)).await, Outcome::succeeded(), "{text}");
    }
}

#[tokio::test]
async fn an_attempt_tells_what_it_asked_without_the_query_and_what_was_answered() {
    let receiver = Receiver::start(|_, _| say("503 No", &[("x-secret", "s3cret")], " busy\u{0}\n")).await;
    let told = push(&receiver, &[], Duration::from_secs(30)).handle(&run()).await.report.unwrap();
    assert_eq!(told.request, Some(format!("POST {}?…", receiver.url("/quell"))));
    assert_eq!((told.status, told.response.as_deref()), (Some(503), Some("busy\u{fffd}")));
    assert!(!format!("{told:?}").contains("s3cret"), "headers are not kept: {told:?}");
    drop(receiver);
    let nobody = Receiver::start(|_, _| Answer::Hold("200 OK")).await;
    let told = push(&nobody, &[], Duration::from_millis(100)).handle(&run()).await.report.unwrap();
    assert_eq!((told.status, told.response), (None, None), "nothing was answered");
    assert!(told.request.is_some_and(|asked| asked.starts_with("POST http://127.0.0.1:")));
}

#[tokio::test]
async fn an_error_is_one_plain_line_with_the_beginning_of_the_answer() {
    let text_of = async |body: &'static [u8]| {
        let outcome = outcome_of(move || say("422 Unprocessable Entity", &[], body)).await;
        outcome
            .error
            .unwrap()
            .strip_prefix("the service answered 422 Unprocessable Entity")
            .unwrap()
            .to_owned()
    };
    assert_eq!(text_of(b"").await, "");
    assert_eq!(text_of(b" \r\n\t ").await, "");
    assert_eq!(text_of(b"no\r\n  such\x1b[31m\tkey\x07\0!").await, ": no such [31m key \u{fffd}!");
    assert_eq!(text_of(b"\xff\xfe").await, ": \u{fffd}\u{fffd}");
    let long = outcome_of(|| say("400 Bad", &[], "é".repeat(30_000))).await.error.unwrap();
    assert!(long.len() < 1100 && long.ends_with("é…"), "{}", long.len());
}

#[tokio::test]
async fn no_answer_is_tried_again_and_is_the_sources_fault() {
    let (cut, odd) = (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", b"SSH-2.0-OpenSSH\r\n");
    let receiver = Receiver::start(move |number, _| match number {
        0 => Answer::Hold("200 OK"),
        1 => Answer::Say(odd.to_vec()),
        _ => Answer::Drip(cut[..40].to_vec()),
    })
    .await;
    let pushed = push(&receiver, &[], Duration::from_millis(200));
    for (text, kind) in [
        ("no answer in time", FaultKind::TimeOut),
        ("the answer broke off", FaultKind::Connection),
        ("no answer in time", FaultKind::TimeOut),
    ] {
        let outcome = pushed.handle(&run()).await;
        assert_eq!(outcome.verdict, Verdict::Retry { after: None }, "{outcome:?}");
        assert_eq!(outcome.source, SourceReport::Fault(SourceFault::new(kind)), "{outcome:?}");
        assert!(outcome.error.as_deref().unwrap().starts_with(text), "{outcome:?}");
    }
    let closed = Receiver::start(|_, _| ok()).await;
    let pushed = push(&closed, &[], Duration::from_secs(30));
    drop(closed);
    tokio::task::yield_now().await;
    let outcome = pushed.handle(&run()).await;
    assert_eq!(outcome.source, SourceReport::Fault(SourceFault::new(FaultKind::Connection)), "{outcome:?}");
    assert!(outcome.error.as_deref().unwrap().starts_with("no connection"), "{outcome:?}");
}

#[tokio::test]
async fn an_interrupted_run_lets_go_at_once_and_its_connection_is_closed() {
    let receiver = Receiver::start(|_, _| Answer::Hold("200 OK")).await;
    let (pushed, run) = (push(&receiver, &[], Duration::from_secs(60)), run());
    let (outcome, ()) = tokio::join!(pushed.handle(&run), async {
        crate::support::until("it is asked", async || receiver.heard().len() == 1).await;
        run.interrupted().cancel();
    });
    assert_eq!(plain(outcome), Outcome::interrupted());
    crate::support::until("the service sees it", async || receiver.closed() == 1).await;
}
