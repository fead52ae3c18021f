//! What happens, as it happens: `GET /v1/stream`, server-sent events.
//!
//! One task looks at the audit trail for everybody, soon after the store has rung and at least once in a while; each
//! listener gets what its credential may see. An event's id is the record's, so a client that comes back with
//! `Last-Event-ID` gets what it missed, as far as it is still at hand, and is told of a gap otherwise. Besides
//! `transition` there is `changed`: something in the store may be different, for pages that show it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, header};
use quell::Engine;
use quell::clock;
use quell::quell_core::audit::AuditRecord;
use quell::quell_core::error::StoreResult;
use quell::quell_core::event::{Key, QueueName, Tenant};
use quell::quell_core::inspect::AuditFilter;
use serde::Deserialize;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use utoipa::IntoParams;

use crate::app::App;
use crate::auth::Principal;
use crate::error::{Answer, Problem, ProblemDocument};
use crate::{Query, limits};

/// Without a sign of the store the trail is looked at this often.
const LOOK: Duration = Duration::from_secs(1);
/// A line for proxies that close what is silent.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Records of one look at the trail.
const PAGE: usize = 500;

#[derive(Debug, Clone)]
enum News {
    Transition(Arc<AuditRecord>),
    Changed,
}

/// The trail as this server follows it.
pub(crate) struct Stream {
    engine: Engine,
    stop: CancellationToken,
    tell: broadcast::Sender<News>,
    /// The latest records, for those who come back.
    kept: Mutex<VecDeque<Arc<AuditRecord>>>,
    follows: AtomicBool,
    listeners: AtomicUsize,
}

impl Stream {
    pub(crate) fn new(engine: Engine, stop: CancellationToken) -> Arc<Self> {
        Arc::new(Stream {
            engine,
            stop,
            tell: broadcast::Sender::new(limits::STREAM_KEPT),
            kept: Mutex::default(),
            follows: AtomicBool::new(false),
            listeners: AtomicUsize::new(0),
        })
    }

    /// Begins with the first listener and goes on as long as the server does: a second one need not wait.
    fn follow(self: &Arc<Self>) {
        if !self.follows.swap(true, Ordering::SeqCst) {
            let this = self.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = this.run() => {}
                    () = this.stop.cancelled() => {}
                }
            });
        }
    }

    async fn run(&self) {
        let mut wakeups = self.engine.store().wakeups();
        let mut seen = None;
        loop {
            match self.look(&mut seen).await {
                Ok(()) => {}
                Err(error) => tracing::debug!(%error, "the stream cannot look at the store"),
            }
            clock::sleep(limits::STREAM_EVERY).await;
            let rung = tokio::select! {
                () = wakeups.woken() => true,
                () = clock::sleep(LOOK) => false,
            };
            if rung {
                // Nobody listening is no fault.
                let _ = self.tell.send(News::Changed);
            }
        }
    }

    /// Tells what is newer than what was seen, oldest first.
    async fn look(&self, seen: &mut Option<u64>) -> StoreResult<()> {
        let mut newer = Vec::new();
        let mut cursor = None;
        loop {
            let filter = AuditFilter { cursor, limit: PAGE, ..AuditFilter::default() };
            let page = self.engine.audit(filter).await?;
            let known = |record: &AuditRecord| seen.is_some_and(|seen| record.id <= seen);
            let met = page.items.iter().any(known);
            newer.extend(page.items.into_iter().filter(|record| !known(record)));
            cursor = page.next;
            if met || seen.is_none() || cursor.is_none() || newer.len() >= limits::STREAM_KEPT {
                break;
            }
        }
        let first = seen.is_none();
        *seen = newer.first().map(|record| record.id).or(*seen).or(Some(0));
        for record in newer.into_iter().rev() {
            let record = Arc::new(record);
            let mut kept = self.kept.lock().expect("no panic happens while it is locked");
            kept.push_back(record.clone());
            if kept.len() > limits::STREAM_KEPT {
                kept.pop_front();
            }
            drop(kept);
            if !first {
                let _ = self.tell.send(News::Transition(record));
            }
        }
        Ok(())
    }

    /// What was kept after this record, and whether it is all of it.
    fn after(&self, id: u64) -> (Vec<Arc<AuditRecord>>, bool) {
        let kept = self.kept.lock().expect("no panic happens while it is locked");
        let whole =
            kept.front().is_none_or(|first| first.id <= id + 1) || kept.iter().any(|record| record.id == id);
        (kept.iter().filter(|record| record.id > id).cloned().collect(), whole)
    }
}

/// One who listens; the number of them is bounded.
struct Listener(Arc<Stream>);

impl Listener {
    fn new(stream: &Arc<Stream>) -> Option<Self> {
        let before = stream.listeners.fetch_add(1, Ordering::SeqCst);
        let listener = Listener(stream.clone());
        metrics::gauge!("quell_http_streams").increment(1.0);
        (before < limits::STREAMS_MAX).then_some(listener)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.listeners.fetch_sub(1, Ordering::SeqCst);
        metrics::gauge!("quell_http_streams").decrement(1.0);
    }
}

/// What of it is wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamQuery {
    tenant: Option<String>,
    queue: Option<String>,
    key: Option<String>,
}

struct Wanted {
    principal: Principal,
    tenant: Option<Tenant>,
    queue: Option<QueueName>,
    key: Option<Key>,
}

impl Wanted {
    fn is(&self, record: &AuditRecord) -> bool {
        self.principal.sees_of(&record.tenant, &record.queue)
            && self.tenant.as_ref().is_none_or(|tenant| *tenant == record.tenant)
            && self.queue.as_ref().is_none_or(|queue| *queue == record.queue)
            && self.key.as_ref().is_none_or(|key| record.key.as_ref() == Some(key))
    }
}

/// Transitions as they happen, as server-sent events.
///
/// `event: transition` carries a record of the audit trail and its number as `id`; `event: changed` says that something in
/// the store may be different; `event: gap` says that records were missed: read `/v1/audit`.
#[utoipa::path(
    get, path = "/v1/stream", operation_id = "stream", tag = "read",
    params(StreamQuery, ("Last-Event-ID" = Option<String>, Header)),
    responses(
        (status = 200, description = "A stream that does not end", body = String, content_type = "text/event-stream"),
        (status = 400, description = "Not as it should be", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["read"])),
)]
pub(crate) async fn stream(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
    Query(query): Query<StreamQuery>,
) -> Answer<Response> {
    let wanted = Wanted {
        tenant: query.tenant.as_deref().map(|named| principal.tenant(Some(named))).transpose()?,
        queue: query.queue.as_deref().map(QueueName::new).transpose()?,
        key: query.key.as_deref().map(Key::new).transpose()?,
        principal,
    };
    if let Some(queue) = &wanted.queue {
        wanted.principal.queue(queue)?;
    }
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.parse().ok());
    open(&app, wanted, last)
}

/// For pages of the dashboard, which show what anybody who is logged in may see.
pub(crate) fn for_page(app: &App, principal: Principal) -> Answer<Response> {
    open(app, Wanted { principal, tenant: None, queue: None, key: None }, None)
}

fn open(app: &App, wanted: Wanted, last: Option<u64>) -> Answer<Response> {
    let full = || Problem::too_many("too many streams are open", Duration::from_secs(5));
    let listener = Listener::new(&app.stream).ok_or_else(full)?;
    let news = app.stream.tell.subscribe();
    app.stream.follow();
    let mut first = String::from("retry: 1000\n\n");
    if let Some(id) = last {
        let (missed, whole) = app.stream.after(id);
        if !whole {
            first.push_str("event: gap\ndata: {}\n\n");
        }
        missed.iter().filter(|record| wanted.is(record)).for_each(|record| first.push_str(&frame(record)));
    }
    let state = Open { first: Some(first), news, wanted, stop: app.stop.clone(), last, _listener: listener };
    let frames = stream::unfold(state, |mut state| async move {
        let text = state.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(text)), state))
    });
    let mut response = Body::from_stream(frames).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

struct Open {
    first: Option<String>,
    news: broadcast::Receiver<News>,
    wanted: Wanted,
    stop: CancellationToken,
    last: Option<u64>,
    _listener: Listener,
}

impl Open {
    async fn next(&mut self) -> Option<String> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            let news = tokio::select! {
                news = self.news.recv() => news,
                () = clock::sleep(KEEP_ALIVE) => return Some(": still here\n\n".to_owned()),
                () = self.stop.cancelled() => return None,
            };
            match news {
                Ok(News::Changed) => return Some("event: changed\ndata: {}\n\n".to_owned()),
                Ok(News::Transition(record)) => {
                    if self.wanted.is(&record) && self.last.is_none_or(|last| record.id > last) {
                        return Some(frame(&record));
                    }
                }
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    return Some("event: gap\ndata: {}\n\n".to_owned());
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

/// JSON has no line breaks of its own, so one `data` line holds it.
fn frame(record: &AuditRecord) -> String {
    let data = serde_json::to_string(record).unwrap_or_default();
    format!("id: {}\nevent: transition\ndata: {data}\n\n", record.id)
}
