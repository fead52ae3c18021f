//! The accept loop: connections with limits, and an orderly end.
//!
//! Hand-written on hyper's connection builder, because `axum::serve` has neither a time limit for the head of a request
//! nor a bound on connections. A connection gets HTTP/1.1 or, by prior knowledge, HTTP/2. The head must arrive in time,
//! also the first one; an idle connection is closed after the same time. A reader who takes nothing is given up.
//!
//! What could be read in two ways is refused below, in `wire.rs`.
//!
//! When the server stops, it accepts nothing more; requests that are under way are finished within the grace, long polls
//! and streams are ended at once (they listen to the same signal).

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use quell::clock::{self, Stopwatch};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::error::Problem;
use crate::limits;
use crate::wire::Wire;

/// Where a request comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// What all listeners of a server share.
#[derive(Clone)]
pub(crate) struct Connections {
    free: Arc<Semaphore>,
    /// Places of those that are told that there is none.
    refusing: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Connections {
    pub(crate) fn new(most: usize, stop: CancellationToken) -> Self {
        Connections {
            free: Arc::new(Semaphore::new(most)),
            refusing: Arc::new(Semaphore::new(limits::REFUSING)),
            tasks: TaskTracker::new(),
            stop,
        }
    }

    /// Serves until it is told to stop.
    pub(crate) async fn accept(self, listener: TcpListener, router: Router) {
        loop {
            let accepted = tokio::select! {
                () = self.stop.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let (stream, from) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, most likely: those that end make room.
                    tracing::warn!(%error, "http.accept");
                    clock::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            match self.free.clone().try_acquire_owned() {
                Ok(place) => {
                    let (router, stop) = (router.clone(), self.stop.clone());
                    self.tasks.spawn(async move {
                        serve(stream, from, router, stop).await;
                        drop(place);
                    });
                }
                Err(_) => {
                    metrics::counter!("quell_http_connections_refused_total").increment(1);
                    // Beyond that many it is closed without a word.
                    if let Ok(place) = self.refusing.clone().try_acquire_owned() {
                        self.tasks.spawn(async move {
                            refuse(stream).await;
                            drop(place);
                        });
                    }
                }
            }
        }
    }

    /// Waits until all connections have ended, at most this long.
    pub(crate) async fn drained(&self, grace: Duration) -> bool {
        self.tasks.close();
        tokio::time::timeout(grace, self.tasks.wait()).await.is_ok()
    }
}

/// One more than there may be: told at once, so that it is tried elsewhere or later.
async fn refuse(mut stream: TcpStream) {
    const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n\
                          Content-Type: application/problem+json\r\nContent-Length: 141\r\n\r\n\
                          {\"type\":\"urn:quell:too-many-connections\",\"title\":\"Service Unavailable\",\"status\":503,\
                          \"code\":\"too-many-connections\",\"detail\":\"try again later\"}";
    let told = async {
        stream.write_all(FULL).await?;
        stream.shutdown().await?;
        // Closed with something unread, the connection would be reset, and the answer lost with it.
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        std::io::Result::Ok(())
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), told).await;
}

async fn serve(stream: TcpStream, from: SocketAddr, router: Router, stop: CancellationToken) {
    // Answers are small and complete: waiting for more would only delay them.
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits::WRITE_TIME));
    let activity = Arc::new(Activity::new());
    let io = TokioIo::new(Wire::new(Box::pin(stream), activity.clone()));
    let service = {
        let activity = activity.clone();
        service_fn(move |request: Request<Incoming>| {
            let (router, busy) = (router.clone(), Activity::begin(&activity));
            async move { answer(router, from, request, busy).await }
        })
    };
    let builder = builder();
    let mut connection = pin!(builder.serve_connection(io, service));
    metrics::gauge!("quell_http_connections").increment(1.0);
    let mut stopping = false;
    loop {
        let watch = clock::sleep(Duration::from_secs(1));
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, %from, "http.connection");
                }
                break;
            }
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            () = watch => {
                if activity.is_idle(limits::HEAD_TIME) {
                    // HTTP/1 watches over its heads itself; this is for those who have not said which version they speak,
                    // and for silent connections of HTTP/2.
                    break;
                }
            }
        }
    }
    metrics::gauge!("quell_http_connections").decrement(1.0);
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::HEAD_TIME)
        .max_buf_size(limits::HEAD_BYTES)
        .max_headers(limits::HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits::STREAMS)
        .max_pending_accept_reset_streams(limits::RESETS)
        .max_local_error_reset_streams(limits::RESETS)
        .max_header_list_size(u32::try_from(limits::HEAD_BYTES).unwrap_or(u32::MAX))
        .keep_alive_interval(limits::PING_EVERY)
        .keep_alive_timeout(limits::PING_EVERY);
    builder
}

async fn answer(
    router: Router,
    from: SocketAddr,
    request: Request<Incoming>,
    busy: Busy,
) -> Result<Response<Body>, std::convert::Infallible> {
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(Peer(from));
    let refused = check(&request);
    let response = match refused {
        Some(problem) => {
            let mut response = axum::response::IntoResponse::into_response(problem);
            if request.version() < Version::HTTP_2 {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
        None => match router.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        },
    };
    // The connection is busy until the answer has been taken, too: a stream is not idle.
    Ok(response.map(|body| Body::new(Held { body, _busy: busy })))
}

/// What no route should see.
fn check(request: &Request<Body>) -> Option<Problem> {
    let target = request.uri().path_and_query().map_or("", |target| target.as_str());
    if target.len() > limits::TARGET_BYTES {
        let detail = format!("the target has more than {} bytes", limits::TARGET_BYTES);
        return Some(Problem::new(StatusCode::URI_TOO_LONG, "target-too-long", detail));
    }
    // HTTP/1 counts them while it reads; HTTP/2 counts their bytes alone.
    if request.headers().len() > limits::HEADERS {
        let detail = format!("there are more than {} header fields", limits::HEADERS);
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Some(Problem::new(status, "too-many-fields", detail));
    }
    if request.method() == Method::CONNECT {
        let detail = "this is no proxy";
        let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", detail);
        return Some(problem.allow("GET, HEAD, POST, PUT, PATCH, DELETE"));
    }
    if request.version() < Version::HTTP_2 {
        // The form that proxies get: whoever sends it here takes us for one.
        if request.uri().scheme().is_some() {
            return Some(Problem::bad_request("send the path alone: this is no proxy"));
        }
        let mut hosts = request.headers().get_all(header::HOST).iter();
        let named = hosts.next().is_some_and(|host| !host.is_empty());
        // HTTP/1.0 may leave it out.
        let needed = request.version() == Version::HTTP_11 || request.headers().contains_key(header::HOST);
        if needed && (!named || hosts.next().is_some()) {
            return Some(Problem::bad_request("name the server in one Host header").at("Host"));
        }
    }
    // Two names are one too many (RFC 9113, section 8.3.1).
    let other =
        |host: &HeaderValue| request.uri().authority().is_some_and(|authority| *host != authority.as_str());
    if request.headers().get(header::HOST).is_some_and(other) {
        return Some(Problem::bad_request("Host and :authority name two servers").at("Host"));
    }
    if !is_percent_encoded(target) {
        let detail =
            "a percent sign in the target begins two hexadecimal digits; write %25 for the sign itself";
        return Some(Problem::bad_request(detail).at("target"));
    }
    None
}

/// Whether every percent sign is followed by two digits: anything else would be read as it stands, or not at all.
fn is_percent_encoded(target: &str) -> bool {
    let mut parts = target.as_bytes().split(|byte| *byte == b'%');
    parts.next();
    parts.all(|part| part.len() >= 2 && part[..2].iter().all(u8::is_ascii_hexdigit))
}

/// Whether a connection has anything under way.
pub(crate) struct Activity {
    requests: AtomicUsize,
    /// Milliseconds of `since` at which the last request ended, or the last byte of an answer was taken.
    ended: AtomicU64,
    since: Stopwatch,
}

impl Activity {
    fn new() -> Self {
        Activity { requests: AtomicUsize::new(0), ended: AtomicU64::new(0), since: Stopwatch::start() }
    }

    fn begin(this: &Arc<Self>) -> Busy {
        this.requests.fetch_add(1, Ordering::Relaxed);
        Busy(this.clone())
    }

    /// A large answer is still on its way when its request has ended.
    pub(crate) fn touch(&self) {
        let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.ended.store(now, Ordering::Relaxed);
    }

    fn is_idle(&self, limit: Duration) -> bool {
        let ended = Duration::from_millis(self.ended.load(Ordering::Relaxed));
        self.requests.load(Ordering::Relaxed) == 0 && self.since.elapsed().saturating_sub(ended) > limit
    }
}

struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.touch();
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A body that keeps its connection busy.
struct Held {
    body: Body,
    _busy: Busy,
}

impl http_body::Body for Held {
    type Data = bytes::Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
