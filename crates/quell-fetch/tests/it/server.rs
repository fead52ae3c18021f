//! A server that says exactly what a test wants to be said, byte by byte, and counts who came.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

type Answer = dyn Fn(usize, &str) -> Vec<u8> + Send + Sync;

/// Listens until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Answers the n-th request, counted from 0, with what `answer` makes of its head. One request per connection; an
    /// empty answer means silence until the client gives up. Paths that begin with `/slow` take a tenth of a second.
    pub(crate) async fn start(
        at: &str,
        answer: impl Fn(usize, &str) -> Vec<u8> + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind(at).await.expect("this machine has this address");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (connections, requests) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (counted, heard) = (connections.clone(), requests.clone());
        let answer: Arc<Answer> = Arc::new(answer);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, heard.clone(), answer.clone()));
            }
        });
        Server { address, connections, requests, task }
    }

    /// On the loopback address, any port.
    pub(crate) async fn local(answer: impl Fn(usize, &str) -> Vec<u8> + Send + Sync + 'static) -> Server {
        Server::start("127.0.0.1:0", answer).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// The heads of all requests, in lower case.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no test panics with it").clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, heard: Arc<Mutex<Vec<String>>>, answer: Arc<Answer>) {
    let mut head = Vec::new();
    let mut byte = [0; 1];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte).await {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let number = {
        let mut heard = heard.lock().expect("no test panics with it");
        heard.push(head.clone());
        heard.len() - 1
    };
    let bytes = answer(number, &head);
    if head.starts_with("get /slow") {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    if bytes.is_empty() {
        // Nothing more is sent; the client closes when it has waited enough.
        let _ = stream.read(&mut byte).await;
        return;
    }
    // A client that has seen enough closes early; that is no fault of the server.
    let _ = stream.write_all(&bytes).await;
    let _ = stream.shutdown().await;
}

/// An answer with a length, after which the connection is closed.
pub(crate) fn answer(status: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut bytes = format!("HTTP/1.1 {status}\r\nconnection: close\r\n").into_bytes();
    // A 304 has no body and says nothing of one.
    if !status.starts_with("304") {
        bytes.extend(format!("content-length: {}\r\n", body.len()).into_bytes());
    }
    for (name, value) in headers {
        bytes.extend(format!("{name}: {value}\r\n").into_bytes());
    }
    bytes.extend(b"\r\n");
    bytes.extend(body);
    bytes
}

pub(crate) fn ok(body: &str) -> Vec<u8> {
    answer("200 OK", &[], body)
}
