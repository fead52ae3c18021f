//! A server of this machine that hears every request out and says yes: a collector, or somebody who handles batches.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

#[derive(Debug, Clone)]
pub(crate) struct Heard {
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

pub(crate) struct Ear {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<Heard>>>,
    connections: Arc<AtomicUsize>,
}

impl Ear {
    pub(crate) fn listen() -> Ear {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (heard, connections) = (Arc::default(), Arc::new(AtomicUsize::new(0)));
        let ear = Ear { address, heard: Arc::clone(&heard), connections: connections.clone() };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                connections.fetch_add(1, Ordering::SeqCst);
                let heard = heard.clone();
                std::thread::spawn(move || {
                    while let Some(request) = hear(&stream) {
                        heard.lock().unwrap().push(request);
                        let yes = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                        if (&stream).write_all(yes.as_bytes()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        ear
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// All spans that have come, each with who recorded it.
    pub(crate) fn spans(&self) -> Vec<(Resource, Span)> {
        let mut spans = Vec::new();
        for request in self.heard() {
            assert_eq!(request.path, "/v1/traces");
            assert_eq!(request.headers["content-type"], "application/x-protobuf");
            let sent = ExportTraceServiceRequest::decode(&*request.body).unwrap();
            for of in sent.resource_spans {
                let resource = of.resource.unwrap();
                let all = of.scope_spans.into_iter().flat_map(|of| of.spans);
                spans.extend(all.map(|span| (resource.clone(), span)));
            }
        }
        spans
    }
}

/// One request; nothing when the other side is done.
fn hear(stream: &TcpStream) -> Option<Heard> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Heard { path, headers, body })
}

/// An attribute as text.
pub(crate) fn attribute(attributes: &[KeyValue], name: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == name)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => Some(format!("{other:?}")),
    }
}

/// `trace-span` in hex.
pub(crate) fn place(trace: &[u8], span: &[u8]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("{}-{}", hex(trace), hex(span))
}
