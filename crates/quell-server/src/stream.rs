//! What happens, as it happens: `GET /v1/stream`, server-sent events.
//!
//! One task looks at the audit trail for everybody, soon after the store has rung and at least once in a while; each
//! listener gets what its credential may see, from the moment its answer begins. An event's id is the record's, so a client
//! that comes back with `Last-Event-ID` gets what it missed out of the trail, also from another server or after a restart;
//! when that is too much, or the trail does not reach back so far, it is told of a gap. Besides `transition` there is
//! `changed`: something in the store may be different, for pages that show it.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, header};
use quell::Engine;
use quell::clock::{self, Stopwatch};
use quell::quell_core::audit::AuditRecord;
use quell::quell_core::error::StoreResult;
use quell::quell_core::event::{Key, QueueName, Tenant};
use quell::quell_core::inspect::AuditFilter;
use quell::quell_core::store::Wakeups;
use serde::Deserialize;
use tokio::sync::{OnceCell, broadcast};
use tokio_util::sync::CancellationToken;
use utoipa::IntoParams;

use crate::app::App;
use crate::auth::Principal;
use crate::error::{Answer, Problem};
use crate::{Query, limits};

/// Without a sign of the store the trail is looked at this often.
const LOOK: Duration = Duration::from_secs(1);
/// A line for proxies that close what is silent.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a listener is believed to be welcome.
const CHECK: Duration = Duration::from_secs(5);
/// Some records are not told.
const GAP: &str = "event: gap\ndata: {}\n\n";

#[derive(Debug, Clone)]
enum News {
    Transition(Arc<AuditRecord>),
    Changed,
    /// More happened at once than is told.
    Gap,
}

/// The trail as this server follows it.
pub(crate) struct Stream {
    engine: Engine,
    stop: CancellationToken,
    tell: broadcast::Sender<News>,
    follows: OnceCell<()>,
    listeners: AtomicUsize,
}

impl Stream {
    pub(crate) fn new(engine: Engine, stop: CancellationToken) -> Arc<Self> {
        Arc::new(Stream {
            engine,
            stop,
            tell: broadcast::Sender::new(limits::STREAM_KEPT),
            follows: OnceCell::new(),
            listeners: AtomicUsize::new(0),
        })
    }

    /// Begins with the first listener and goes on as long as the server does. When it returns, whatever happens is told.
    async fn follow(self: &Arc<Self>) -> StoreResult<()> {
        let begin = async || {
            let wakeups = self.engine.store().wakeups();
            let seen = self.engine.newest_record().await?;
            let this = self.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = this.run(wakeups, seen) => {}
                    () = this.stop.cancelled() => {}
                }
            });
            Ok(())
        };
        self.follows.get_or_try_init(begin).await.copied()
    }

    async fn run(&self, mut wakeups: Box<dyn Wakeups>, mut seen: u64) {
        loop {
            let rung = tokio::select! {
                () = wakeups.woken() => true,
                () = clock::sleep(LOOK) => false,
            };
            match self.look(seen).await {
                Ok(newest) => seen = newest,
                Err(error) => tracing::debug!(%error, "the stream cannot look at the store"),
            }
            if rung {
                // Nobody listening is no fault.
                let _ = self.tell.send(News::Changed);
            }
            clock::sleep(limits::STREAM_EVERY).await;
        }
    }

    /// Tells what is newer than what was seen, oldest first.
    async fn look(&self, seen: u64) -> StoreResult<u64> {
        let (newer, whole) =
            self.engine.audit_since(seen, AuditFilter::default(), limits::STREAM_KEPT).await?;
        let newest = newer.last().map_or(seen, |record| record.id);
        if !whole && !newer.is_empty() {
            let _ = self.tell.send(News::Gap);
        }
        for record in newer {
            let _ = self.tell.send(News::Transition(Arc::new(record)));
        }
        Ok(newest)
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
    open(&app, wanted, last).await
}

/// For pages of the dashboard, which show what anybody who is logged in may see.
pub(crate) async fn for_page(app: &Arc<App>, principal: Principal) -> Answer<Response> {
    open(app, Wanted { principal, tenant: None, queue: None, key: None }, None).await
}

async fn open(app: &Arc<App>, wanted: Wanted, last: Option<u64>) -> Answer<Response> {
    let full = || Problem::too_many("too many streams are open", Duration::from_secs(5));
    let listener = Listener::new(&app.stream).ok_or_else(full)?;
    let news = app.stream.tell.subscribe();
    app.stream.follow().await?;
    let mut first = String::from("retry: 1000\n\n");
    let mut told = last.unwrap_or(0);
    if let Some(id) = last {
        let of = AuditFilter {
            tenant: wanted.tenant.clone(),
            queue: wanted.queue.clone(),
            key: wanted.key.clone(),
            ..AuditFilter::default()
        };
        let (missed, whole) = app.engine.audit_since(id, of, limits::STREAM_KEPT).await?;
        if !whole {
            first.push_str(GAP);
        }
        told = missed.last().map_or(told, |record| record.id);
        missed.iter().filter(|record| wanted.is(record)).for_each(|record| first.push_str(&frame(record)));
    }
    let state = Open {
        first: Some(first),
        news,
        wanted,
        app: app.clone(),
        checked: Stopwatch::start(),
        told,
        _listener: listener,
    };
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
    app: Arc<App>,
    /// When the listener was last seen to be welcome.
    checked: Stopwatch,
    /// The latest record that was sent, or passed over.
    told: u64,
    _listener: Listener,
}

impl Open {
    async fn next(&mut self) -> Option<String> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            let news = tokio::select! {
                news = self.news.recv() => Some(news),
                () = clock::sleep(KEEP_ALIVE) => None,
                () = self.app.stop.cancelled() => return None,
            };
            if !self.is_welcome().await {
                return None;
            }
            let Some(news) = news else { return Some(": still here\n\n".to_owned()) };
            match news {
                Ok(News::Changed) => return Some("event: changed\ndata: {}\n\n".to_owned()),
                Ok(News::Transition(record)) => {
                    if self.wanted.is(&record) && record.id > self.told {
                        return Some(frame(&record));
                    }
                }
                Ok(News::Gap) | Err(broadcast::error::RecvError::Lagged(_)) => return Some(GAP.to_owned()),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// A token that was taken away, or has expired, takes its streams along; so does the first token of an open server.
    async fn is_welcome(&mut self) -> bool {
        if self.checked.elapsed() < CHECK {
            return true;
        }
        self.checked = Stopwatch::start();
        let (app, tokens) = (&self.app, &self.app.tokens);
        match self.wanted.principal.token_id() {
            Some(id) => !matches!(tokens.by_id(app, id).await, Ok(None)),
            None => !matches!(tokens.is_open(app).await, Ok(false)),
        }
    }
}

/// JSON has no line breaks of its own, so one `data` line holds it.
fn frame(record: &AuditRecord) -> String {
    let data = serde_json::to_string(record).unwrap_or_default();
    format!("id: {}\nevent: transition\ndata: {data}\n\n", record.id)
}
