//! A service on this machine that batches are sent to: it keeps what it heard and answers what a test wants.

#![expect(clippy::unwrap_used, reason = "what a test builds for itself is there, or the test fails")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use quell::clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Heard {
    /// `POST /path HTTP/1.1`
    pub(crate) line: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Heard {
    /// Empty when it is not there.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// What is answered.
pub(crate) enum Answer {
    /// These bytes; the connection stays open.
    Say(Vec<u8>),
    /// Nothing until [`Receiver::release`], then this status.
    Hold(&'static str),
    /// These bytes, then one more after the other for ever.
    Drip(Vec<u8>),
}

/// An answer with a length.
pub(crate) fn say(status: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Answer {
    let mut bytes = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.as_ref().len()).into_bytes();
    for (name, value) in headers {
        bytes.extend(format!("{name}: {value}\r\n").into_bytes());
    }
    bytes.extend(b"\r\n");
    bytes.extend(body.as_ref());
    Answer::Say(bytes)
}

pub(crate) fn ok() -> Answer {
    say("200 OK", &[], "")
}

type Answers = dyn Fn(usize, &Heard) -> Answer + Send + Sync;

#[derive(Debug, Default)]
struct Seen {
    connections: AtomicUsize,
    closed: AtomicUsize,
    heard: Mutex<Vec<Heard>>,
    released: watch::Sender<bool>,
}

/// Listens until it is dropped.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    seen: Arc<Seen>,
    task: tokio::task::JoinHandle<()>,
}

impl Receiver {
    /// Answers the n-th request, counted from 0, on any free port of the loopback address.
    pub(crate) async fn start(answer: impl Fn(usize, &Heard) -> Answer + Send + Sync + 'static) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, answer): (Arc<Seen>, Arc<Answers>) = (Arc::default(), Arc::new(answer));
        let shared = seen.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let (seen, answer) = (shared.clone(), answer.clone());
                tokio::spawn(async move {
                    serve(stream, &seen, &*answer).await;
                    seen.closed.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Receiver { address, seen, task }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// Connections that are over.
    pub(crate) fn closed(&self) -> usize {
        self.seen.closed.load(Ordering::SeqCst)
    }

    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.seen.heard.lock().unwrap().clone()
    }

    /// Answers what is held.
    pub(crate) fn release(&self) {
        self.seen.released.send_replace(true);
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, seen: &Seen, answer: &Answers) {
    while let Some(heard) = request(&mut stream).await {
        let number = {
            let mut all = seen.heard.lock().unwrap();
            all.push(heard.clone());
            all.len() - 1
        };
        match answer(number, &heard) {
            Answer::Say(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Answer::Hold(status) => {
                let mut released = seen.released.subscribe();
                tokio::select! {
                    _ = released.wait_for(|released| *released) => {}
                    // Nobody sends before the answer, so this is the end.
                    _ = stream.read_u8() => return,
                }
                let bytes = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                if stream.write_all(bytes.as_bytes()).await.is_err() {
                    return;
                }
            }
            Answer::Drip(bytes) => {
                let mut wrote = stream.write_all(&bytes).await;
                while wrote.is_ok() {
                    clock::sleep(Duration::from_millis(50)).await;
                    wrote = stream.write_all(b"x").await;
                }
                return;
            }
        }
    }
}

/// The next request of a connection; none when it is closed.
async fn request(stream: &mut TcpStream) -> Option<Heard> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.trim_end().split("\r\n");
    let line = lines.next()?.to_owned();
    let mut headers = HeaderMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    let length = headers.get("content-length").map_or(0, |value| value.to_str().unwrap().parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Heard { line, headers, body })
}
