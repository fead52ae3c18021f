//! Events in: `POST /v1/queues/{queue}/events`.
//!
//! One object, an array, a stream of lines, or CloudEvents in their three forms, told apart by the content type. An
//! answer of 202 means that the events are committed; requests that come at the same time share their transactions in the
//! store. An array is stored whole or not at all; a stream is stored in groups, one answer line for each of its lines.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use quell::Incoming;
use quell::config::QueueSettings;
use quell::quell_core::error::ErrorKind;
use quell::quell_core::event::{EventId, Headers, Key, LaneKey, Payload, QueueName, SourceName};
use quell::quell_core::limits as core_limits;
use quell::quell_core::store::Receipt;
use quell::quell_core::window::WindowPolicy;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::app::App;
use crate::auth::Principal;
use crate::error::{Answer, Problem, ProblemDocument};
use crate::{Path, body, cloudevents, depth, json, limits};

/// Header fields of a request that travel with its events.
const KEPT_HEADERS: [&str; 2] = ["traceparent", "tracestate"];

/// One event as it is sent.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventBody<'a> {
    /// Who it belongs to.
    #[schema(min_length = 1, max_length = 512)]
    #[serde(borrow)]
    pub(crate) key: Cow<'a, str>,
    /// Any JSON; its bytes are kept as they are sent.
    #[serde(borrow)]
    #[schema(value_type = quell::quell_core::event::Payload)]
    pub(crate) payload: &'a RawValue,
    /// Sent twice, it is stored once.
    #[schema(min_length = 1, max_length = 256)]
    #[serde(borrow, default)]
    pub(crate) id: Option<Cow<'a, str>>,
    #[schema(max_length = 128)]
    #[serde(borrow, default)]
    pub(crate) tenant: Option<Cow<'a, str>>,
    /// The source that governs it, in place of the queue's.
    #[serde(borrow, default)]
    pub(crate) source: Option<Cow<'a, str>>,
    /// 0 to 9, 9 first; 4 unless it is said.
    #[schema(minimum = 0, maximum = 9)]
    pub(crate) priority: Option<u8>,
    /// Kept aside this long before it enters its lane, at most 366 days.
    #[schema(maximum = 31_622_400_000u64)]
    pub(crate) delay_ms: Option<u64>,
    /// A window of its own in place of the queue's.
    pub(crate) window: Option<WindowBody>,
    /// Refused with 409 when the key has anything to do.
    #[serde(default)]
    pub(crate) only_if_idle: bool,
}

/// When a lane is due.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum WindowBody {
    /// At once.
    None {},
    /// So long after the first event.
    Fixed { wait_ms: u64 },
    /// When no event has come for so long, at the latest so long after the first.
    Quiet { quiet_ms: u64, max_wait_ms: u64 },
}

impl WindowBody {
    fn policy(self) -> WindowPolicy {
        let ms = Duration::from_millis;
        match self {
            WindowBody::None {} => WindowPolicy::None,
            WindowBody::Fixed { wait_ms } => WindowPolicy::Fixed { wait: ms(wait_ms) },
            WindowBody::Quiet { quiet_ms, max_wait_ms } => {
                WindowPolicy::Quiet { quiet: ms(quiet_ms), max_wait: ms(max_wait_ms) }
            }
        }
    }
}

/// One event, or several.
#[derive(ToSchema)]
#[allow(dead_code, reason = "the shape of a body for the document; it is read by its first character")]
#[schema(title = "EventBody or EventBody[]")]
#[serde(untagged)]
pub(crate) enum EventsBody<'a> {
    One(EventBody<'a>),
    Many(Vec<EventBody<'a>>),
}

/// What was stored.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Receipts {
    /// One for each event, in the order of the request.
    receipts: Vec<Receipt>,
}

/// Stores events durably.
///
/// 202 means committed. A repeated `id` of the same key is answered with the first receipt and `duplicate: true`; with
/// another payload it is 409. Also takes `application/x-ndjson` (one event per line, one answer line each) and CloudEvents
/// (binary, structured and batched).
#[utoipa::path(
    post, path = "/v1/queues/{queue}/events", operation_id = "append", tag = "events",
    params(
        ("queue" = QueueName, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "The id of an event without one; of an array, with `/` and the place added."),
    ),
    request_body(content = EventsBody<'static>, content_type = "application/json"),
    responses(
        (status = 202, description = "Stored", body = Receipts),
        (status = 404, description = "No such queue", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 408, description = "The body came too slowly", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "A known id with another payload, or the key is not idle", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "Too large", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 415, description = "Not a content type that is taken", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 429, description = "The key's lane is full", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["ingest"])),
)]
pub(crate) async fn append(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(queue): Path<String>,
    request: Request<Body>,
) -> Answer<Response> {
    let queue = QueueName::new(queue)?;
    principal.queue(&queue)?;
    let queue = app.engine.queue(&queue)?;
    let headers = request.headers();
    let to = Inbound { queue, principal, headers: kept_headers(headers), key: idempotency_key(headers)? };
    let media = body::media_type(headers)?;
    if cloudevents::is_cloudevent(&media, headers) {
        let parts = request.headers().clone();
        let bytes = body::read(request, limits::BODY_BYTES).await?;
        let events = cloudevents::read(&media, &parts, &bytes)?;
        let events = events.into_iter().map(|event| to.cloud(event)).collect::<Answer<_>>()?;
        return store(&app, &to.queue, events).await;
    }
    match media.as_str() {
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" => {
            body::refuse_encoding(request.headers())?;
            Ok(lines(app, to, request.into_body()))
        }
        media if body::is_json(media) => {
            let bytes = body::read(request, limits::BODY_BYTES).await?;
            let events = to.read(&bytes)?;
            store(&app, &to.queue, events).await
        }
        "" => {
            Err(Problem::unsupported("say what the body is: Content-Type: application/json")
                .at("Content-Type"))
        }
        other => {
            let detail = format!(
                "{other:?} is not taken: send application/json, application/x-ndjson or a CloudEvent"
            );
            Err(Problem::unsupported(detail).at("Content-Type"))
        }
    }
}

async fn store(app: &App, queue: &QueueSettings, events: Vec<Incoming>) -> Answer<Response> {
    let receipts = append_checked(app, queue, events).await?;
    let mut response = json(&Receipts { receipts });
    *response.status_mut() = StatusCode::ACCEPTED;
    Ok(response)
}

async fn append_checked(app: &App, queue: &QueueSettings, events: Vec<Incoming>) -> Answer<Vec<Receipt>> {
    depth::check(app, queue, events.iter().map(|event| &event.lane.tenant)).await?;
    app.engine.append(events).await.map_err(too_much)
}

/// A limit that an append meets is one of size.
pub(crate) fn too_much(error: quell::EngineError) -> Problem {
    let limit = matches!(&error, quell::EngineError::Store(e) if e.kind == ErrorKind::Limit);
    let problem = Problem::from(error);
    if limit { problem.status(StatusCode::PAYLOAD_TOO_LARGE, "too-large") } else { problem }
}

/// The bytes of a payload as they were sent.
pub(crate) fn payload(sent: &RawValue) -> Answer<Payload> {
    if sent.get().len() > core_limits::PAYLOAD_BYTES_MAX {
        let most = core_limits::PAYLOAD_BYTES_MAX;
        return Err(Problem::too_large(format!("a payload has at most {most} bytes")).at("payload"));
    }
    Ok(Payload::from_json(sent.get().as_bytes())?)
}

/// Where events of one request go, and what is the same for all of them.
struct Inbound {
    queue: Arc<QueueSettings>,
    principal: Principal,
    headers: Headers,
    /// The `Idempotency-Key`.
    key: Option<String>,
}

impl Inbound {
    /// One event or an array.
    fn read(&self, bytes: &[u8]) -> Answer<Vec<Incoming>> {
        let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
        if first == Some(&b'[') {
            let bodies: Vec<EventBody<'_>> = body::parse(bytes)?;
            if bodies.len() > core_limits::APPEND_EVENTS_MAX {
                let most = core_limits::APPEND_EVENTS_MAX;
                return Err(Problem::too_large(format!("more than {most} events in one request")));
            }
            let placed = bodies.into_iter().enumerate();
            return placed.map(|(at, event)| self.event(event, Some(at))).collect();
        }
        Ok(vec![self.event(body::parse(bytes)?, None)?])
    }

    fn event(&self, event: EventBody<'_>, at: Option<usize>) -> Answer<Incoming> {
        let placed = |problem: Problem| match at {
            Some(at) => problem.at(format!("[{at}]")),
            None => problem,
        };
        self.incoming(event, at).map_err(placed)
    }

    fn incoming(&self, event: EventBody<'_>, at: Option<usize>) -> Answer<Incoming> {
        let lane = LaneKey::new(self.queue.name.clone(), Key::new(&*event.key)?)
            .of(self.principal.tenant(event.tenant.as_deref())?);
        let payload = payload(event.payload)?;
        let delay = event.delay_ms.map(Duration::from_millis);
        if delay.is_some_and(|delay| delay > core_limits::DELAY_MAX) {
            return Err(Problem::bad_request("a delay is at most 366 days").at("delay_ms"));
        }
        let id = match (event.id, &self.key, at) {
            (Some(id), ..) => Some(EventId::new(&*id)?),
            (None, Some(key), Some(at)) => Some(EventId::new(format!("{key}/{at}"))?),
            (None, Some(key), None) => Some(EventId::new(key)?),
            (None, None, _) => None,
        };
        let priority = event.priority.unwrap_or(core_limits::PRIORITY_DEFAULT);
        if priority > core_limits::PRIORITY_MAX {
            return Err(Problem::bad_request(format!("priority {priority} is not between 0 and 9")));
        }
        Ok(Incoming {
            id,
            headers: self.headers.clone(),
            priority,
            delay,
            window: event.window.map(WindowBody::policy),
            only_if_idle: event.only_if_idle,
            source: event.source.map(SourceName::new).transpose()?,
            ..Incoming::to(lane, payload)
        })
    }

    fn cloud(&self, event: cloudevents::CloudEvent) -> Answer<Incoming> {
        let lane =
            LaneKey::new(self.queue.name.clone(), Key::new(&event.key)?).of(self.principal.tenant(None)?);
        let id = Some(EventId::new(&event.id)?);
        Ok(Incoming { id, headers: self.headers.clone(), ..Incoming::to(lane, event.payload) })
    }
}

/// The trace that a request belongs to.
pub(crate) fn kept_headers(headers: &HeaderMap) -> Headers {
    let kept = |name: &&str| {
        let value = headers.get(*name)?.to_str().ok().filter(|value| value.len() <= 512)?;
        Some(((*name).to_owned(), value.to_owned()))
    };
    KEPT_HEADERS.iter().filter_map(kept).collect()
}

/// RFC draft: a quoted string; plain ones are common.
fn idempotency_key(headers: &HeaderMap) -> Answer<Option<String>> {
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else { return Ok(None) };
    let wrong =
        || Problem::bad_request("Idempotency-Key is 1 to 240 visible characters, once").at("Idempotency-Key");
    let text = value.to_str().map_err(|_| wrong())?.trim();
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let visible = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if values.next().is_some() || text.is_empty() || text.len() > 240 || !visible {
        return Err(wrong());
    }
    Ok(Some(text.to_owned()))
}

/// One line of the answer to a stream.
#[derive(Serialize)]
#[serde(untagged)]
enum Line {
    Stored(Receipt),
    Refused { line: u64, problem: ProblemDocument },
}

/// Reads lines, stores them in groups and answers line by line, as they come.
fn lines(app: Arc<App>, to: Inbound, body: Body) -> Response {
    let state = Lines {
        app,
        to,
        body: body::Incoming::new(body),
        rest: BytesMut::new(),
        looked: 0,
        line: 0,
        ended: false,
    };
    let answers = stream::unfold(state, |mut state| async move {
        let answer = state.group().await?;
        Some((Ok::<_, std::convert::Infallible>(answer), state))
    });
    let mut response = Body::from_stream(answers).into_response();
    *response.status_mut() = StatusCode::ACCEPTED;
    let ndjson = HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(header::CONTENT_TYPE, ndjson);
    response
}

struct Lines {
    app: Arc<App>,
    to: Inbound,
    body: body::Incoming,
    /// What has come and is not a whole line yet.
    rest: BytesMut,
    /// So much of it has no line end: a long line that comes in small pieces is looked at once, not at every piece.
    looked: usize,
    line: u64,
    ended: bool,
}

impl Lines {
    /// The answers of the next group; nothing after the last one.
    async fn group(&mut self) -> Option<Bytes> {
        let mut read: Vec<(u64, Answer<Incoming>)> = Vec::new();
        let mut bytes = 0;
        let mut broken = None;
        while read.len() < limits::NDJSON_LINES && bytes < limits::NDJSON_BYTES {
            if let Some(line) = self.take_line() {
                self.line += 1;
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                bytes += line.len();
                read.push((self.line, self.parse(&line)));
            } else if self.ended {
                break;
            } else if let Err(problem) = self.more(read.is_empty()).await {
                broken = Some(problem);
                self.ended = true;
                self.rest.clear();
                self.looked = 0;
                break;
            } else if !read.is_empty() && !self.rest[self.looked..].contains(&b'\n') && !self.ended {
                // What is there is stored before more is waited for.
                break;
            }
        }
        if read.is_empty() && broken.is_none() {
            return None;
        }
        let mut answers = store_lines(&self.app, &self.to.queue, read).await;
        if let Some(problem) = broken {
            answers.push(Line::Refused { line: self.line + 1, problem: problem.document() });
        }
        let mut out = Vec::new();
        for answer in answers {
            // Receipts and problems are plain data: this cannot fail.
            if serde_json::to_writer(&mut out, &answer).is_ok() {
                out.push(b'\n');
            }
        }
        Some(out.into())
    }

    fn parse(&self, line: &[u8]) -> Answer<Incoming> {
        self.to.incoming(body::parse(line)?, Some(usize::try_from(self.line - 1).unwrap_or(usize::MAX)))
    }

    fn take_line(&mut self) -> Option<Bytes> {
        let found = self.rest[self.looked..].iter().position(|byte| *byte == b'\n');
        match found.map(|found| self.looked + found) {
            Some(end) => {
                self.looked = 0;
                let mut line = self.rest.split_to(end + 1);
                line.truncate(end);
                Some(line.freeze())
            }
            None if self.ended && !self.rest.is_empty() => {
                self.looked = 0;
                Some(self.rest.split().freeze())
            }
            None => {
                self.looked = self.rest.len();
                None
            }
        }
    }

    /// Waits for more of the body; when something has been read already, only for what is there.
    async fn more(&mut self, wait: bool) -> Answer<()> {
        if self.rest.len() > core_limits::PAYLOAD_BYTES_MAX + 64 * 1024 {
            return Err(Problem::too_large("a line is longer than any event may be"));
        }
        let next = if wait {
            self.body.piece().await?
        } else {
            match futures_util::FutureExt::now_or_never(self.body.piece()) {
                Some(next) => next?,
                None => return Ok(()),
            }
        };
        match next {
            Some(piece) => self.rest.extend_from_slice(&piece),
            None => self.ended = true,
        }
        Ok(())
    }
}

/// One transaction for all; when it was refused as a whole, each line is tried by itself.
async fn store_lines(app: &App, queue: &QueueSettings, read: Vec<(u64, Answer<Incoming>)>) -> Vec<Line> {
    let good: Vec<Incoming> = read.iter().filter_map(|(_, event)| event.as_ref().ok().cloned()).collect();
    let together = append_checked(app, queue, good).await;
    let mut lines = Vec::with_capacity(read.len());
    let mut receipts = together.map(Vec::into_iter);
    for (line, event) in read {
        let stored = match (event, &mut receipts) {
            (Err(problem), _) => Err(problem),
            (Ok(_), Ok(receipts)) => Ok(receipts.next()),
            (Ok(_), Err(problem)) if is_for_all(problem) => Err(problem.clone()),
            (Ok(event), Err(_)) => {
                let alone = append_checked(app, queue, vec![event]).await;
                alone.map(|mut receipts| receipts.pop())
            }
        };
        match stored {
            Ok(receipt) => lines.extend(receipt.map(Line::Stored)),
            Err(problem) => lines.push(Line::Refused { line, problem: problem.document() }),
        }
    }
    lines
}

/// Whether every line would meet it: the store is away, or the queue is full.
fn is_for_all(problem: &Problem) -> bool {
    matches!(problem.code(), "unavailable" | "unknown-outcome" | "corrupt" | "queue-full")
}
