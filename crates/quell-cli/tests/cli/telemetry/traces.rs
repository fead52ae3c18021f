//! OTLP traces, as a collector of this machine receives them from real processes.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

use super::ear::{Ear, attribute, place};
use crate::support::{Folder, PATIENCE, Process, http, until};

/// Sent along with every test that records, so that nothing has to wait for the usual five seconds.
const SOON: (&str, &str) = ("OTEL_BSP_SCHEDULE_DELAY", "50");

/// The context of the `n`th sender: trace and span.
fn sender(n: usize) -> String {
    format!("{:032x}-{:016x}", 0xabc0 + n, 0xdef0 + n)
}

fn send(address: &str, queue: &str, body: &str, n: usize) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "POST /v1/queues/{queue}/events HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/json\r\ntraceparent: 00-{}-01\r\ntracestate: shop=a{n}\r\nContent-Length: {}\r\n\r\n",
        sender(n),
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
}

/// The names of the threads of a process.
fn threads(process: &Process) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.pid())).unwrap();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    tasks.flatten().filter_map(name).map(|name| name.trim().to_owned()).collect()
}

fn of<'s>(spans: &'s [(Resource, Span)], kind: SpanKind, name: &str) -> Vec<&'s Span> {
    let wanted = |span: &&Span| span.kind == kind as i32 && span.name == name;
    spans.iter().map(|(_, span)| span).filter(wanted).collect()
}

fn own(span: &Span) -> String {
    place(&span.trace_id, &span.span_id)
}

fn parent(span: &Span) -> String {
    place(&span.trace_id, &span.parent_span_id)
}

fn links(span: &Span) -> BTreeSet<String> {
    span.links.iter().map(|link| place(&link.trace_id, &link.span_id)).collect()
}

#[track_caller]
fn has(span: &Span, attributes: &[(&str, &str)]) {
    for (name, value) in attributes {
        assert_eq!(attribute(&span.attributes, name).as_deref(), Some(*value), "{name} of {span:#?}");
    }
}

#[test]
fn a_burst_from_many_traces_is_one_run_linked_to_all_of_them() {
    let (collector, handler) = (Ear::listen(), Ear::listen());
    let folder = Folder::with_config(&format!(
        "[queues.orders]\nwindow = {{ quiet = \"1h\" }}\nhandler = {{ http = \"{}/batch\" }}\n",
        handler.url()
    ));
    let url = collector.url();
    let mut serve = folder.start_with(
        &["serve"],
        &[
            SOON,
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &url),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20Zm9vOmJhcg"),
            ("OTEL_SERVICE_NAME", "shop"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test"),
        ],
    );
    let address = serve.http_address();
    for n in 0..5 {
        send(&address, "orders", r#"{"key":"customer-7","payload":{"text":"confidential"}}"#, n);
    }
    folder.quell(&["flush", "orders", "customer-7"]).ok();
    until("the batch is handled", || handler.heard().len() == 1);
    assert!(threads(&serve).iter().any(|name| name.starts_with("OpenTelemetry")), "{:?}", threads(&serve));
    serve.stop();

    let spans = collector.spans();
    let served = of(&spans, SpanKind::Server, "POST /v1/queues/{queue}/events");
    let from: BTreeSet<String> = served.iter().map(|span| parent(span)).collect();
    assert_eq!(from, (0..5).map(sender).collect(), "each request continues the trace of its sender");
    has(served[0], &[("http.request.method", "POST"), ("http.response.status_code", "202")]);

    let appended = of(&spans, SpanKind::Producer, "append orders");
    let parents: BTreeSet<String> = appended.iter().map(|span| parent(span)).collect();
    assert_eq!(parents, served.iter().map(|span| own(span)).collect(), "within the request that brought it");
    let append = [("messaging.operation.name", "append"), ("messaging.operation.type", "send")];
    has(appended[0], &append);

    let runs = of(&spans, SpanKind::Consumer, "process orders");
    let [run] = runs[..] else { panic!("one run: {runs:#?}") };
    assert!(run.parent_span_id.is_empty(), "it comes from several traces, so it is in none of them");
    let contexts: BTreeSet<String> = appended.iter().map(|span| own(span)).collect();
    assert_eq!(links(run), contexts);
    assert!(run.links.iter().any(|link| link.trace_state == "shop=a3"), "{:#?}", run.links);
    has(
        run,
        &[
            ("messaging.system", "quell"),
            ("messaging.destination.name", "orders"),
            ("messaging.operation.name", "process"),
            ("messaging.operation.type", "process"),
            ("messaging.batch.message_count", "5"),
            ("quell.run.outcome", "succeeded"),
            ("quell.run.state", "succeeded"),
            ("quell.run.fired_by", "flush"),
        ],
    );
    assert_eq!(run.status.as_ref().map_or(0, |status| status.code), StatusCode::Unset as i32);
    let settled = of(&spans, SpanKind::Client, "settle orders");
    assert_eq!(parent(settled[0]), own(run));
    let claimed = of(&spans, SpanKind::Client, "claim orders");
    assert_eq!(links(claimed[0]), contexts);
    has(claimed[0], &[("messaging.operation.type", "receive"), ("messaging.batch.message_count", "5")]);

    let asked = &handler.heard()[0];
    assert_eq!(asked.headers["traceparent"], format!("00-{}-01", own(run)), "the handler is part of the run");
    let who = &spans[0].0.attributes;
    assert_eq!(attribute(who, "service.name").as_deref(), Some("shop"));
    assert_eq!(attribute(who, "deployment.environment.name").as_deref(), Some("test"));
    for request in collector.heard() {
        assert_eq!(request.headers["authorization"], "Basic Zm9vOmJhcg");
        let text = String::from_utf8_lossy(&request.body).into_owned();
        assert!(
            !text.contains("confidential") && !text.contains("customer-7"),
            "no payload, and no key unasked"
        );
    }
}

#[test]
fn a_single_event_keeps_its_trace_and_a_failure_is_told_by_its_kind() {
    let collector = Ear::listen();
    let folder = Folder::with_config(
        "[queues.jobs]\nwindow = \"none\"\n\
         handler = { exec = [\"sh\", \"-c\", \"echo $TRACEPARENT > seen; echo confidential >&2; exit 65\"] }\n",
    );
    let (url, from) = (format!("{}/v1/traces", collector.url()), format!("00-{}-01", sender(1)));
    let recorded = |args: &[&str]| {
        let mut command = folder.command(args);
        command.env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &url).env("QUELL_TRACE_KEYS", "true");
        command.env("TRACEPARENT", &from);
        crate::support::Answer::of(&mut command).ok()
    };
    recorded(&["send", "jobs", "customer-7"]);
    recorded(&["work", "--until-idle"]);

    let spans = collector.spans();
    let appended = of(&spans, SpanKind::Producer, "append jobs");
    assert_eq!(parent(appended[0]), sender(1), "whoever started the command is its parent");
    let run = of(&spans, SpanKind::Consumer, "process jobs")[0];
    assert_eq!(parent(run), own(appended[0]), "one event: the same trace");
    assert_eq!(links(run), BTreeSet::from([own(appended[0])]), "and the link all the same");
    assert_eq!(run.status.as_ref().map(|status| status.code), Some(StatusCode::Error as i32));
    let told = [
        ("error.type", "failed"),
        ("quell.run.outcome", "failed"),
        ("quell.run.state", "failed"),
        ("messaging.destination.partition.id", "customer-7"),
    ];
    has(run, &told);
    assert_eq!(folder.read("seen").trim(), format!("00-{}-01", own(run)), "the program is part of the run");
    assert_eq!(attribute(&spans[0].0.attributes, "service.name").as_deref(), Some("quell"));
    let texts = collector.heard().into_iter().map(|heard| String::from_utf8_lossy(&heard.body).into_owned());
    assert!(
        texts.into_iter().all(|text| !text.contains("confidential")),
        "what a program says is no attribute"
    );
}

/// A port where nobody listens, and one where somebody listens and never answers.
#[test]
fn a_collector_that_is_away_changes_nothing_for_the_work() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for address in [silent.local_addr().unwrap(), gone] {
        let folder = Folder::with_config("[queues.hello]\nwindow = \"none\"\n");
        let url = format!("http://{address}");
        let mut serve = folder.start_with(&["serve"], &[SOON, ("OTEL_EXPORTER_OTLP_ENDPOINT", &url)]);
        let http_address = serve.http_address();
        for n in 0..20 {
            send(&http_address, "hello", &format!(r#"{{"key":"k{n}","payload":{n}}}"#), n);
        }
        until("all of them are handled", || {
            let (_, text) = http(&http_address, "GET", "/v1/stats", None, "");
            text.contains("\"succeeded\":20")
        });
        serve.stop();
    }
}

#[test]
fn switched_off_nothing_is_built_and_headers_stay_as_they_came() {
    let collector = Ear::listen();
    let url = collector.url();
    let folder = Folder::with_config("[queues.orders]\nwindow = { quiet = \"1h\" }\n");
    for off in [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")] {
        let mut serve = folder.start_with(&["serve"], &[SOON, ("OTEL_EXPORTER_OTLP_ENDPOINT", &url), off]);
        let address = serve.http_address();
        send(&address, "orders", r#"{"key":"k","payload":1}"#, 1);
        let (_, lane) = http(&address, "GET", "/v1/lanes/orders/k", None, "");
        assert!(lane.contains(&format!("\"traceparent\":\"00-{}-01\"", sender(1))), "{lane}");
        let names = threads(&serve);
        let of_spans =
            |name: &String| name.starts_with("OpenTelemetry") || name.starts_with("reqwest-internal");
        assert!(!names.iter().any(of_spans), "{names:?}");
        serve.stop();
    }
    assert_eq!(collector.connections(), 0);
}
