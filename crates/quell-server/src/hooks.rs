//! Webhooks in: `POST /hooks/{name}`.
//!
//! The order of the checks is the promise: size and time of the body (`body.rs`), then the proof on the bytes as they came,
//! then parsing, then the store, and only after its commit a 2xx. Whoever has not proven itself is answered 401 with nothing
//! in it, whatever was wrong, also for an endpoint that does not exist; what was wrong in full is for the operator
//! (`inspector.rs`). Only HTTP/1 is spoken here: strangers need no more, and its attacks are fewer.
//!
//! `receive.rs` decides what becomes of a delivery; this file is the HTTP around it.

pub(crate) mod inspector;
mod receive;
mod recorder;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Request, StatusCode, Version};
use quell::Engine;
use quell::clock;
use quell::config::Settings;
use quell::deliveries::{DeliveryRecord, Places};
use quell::endpoints::ReadyEndpoint;
use quell::quell_core::clock::Timestamp;
use quell::webhook::{Because, Check, Proof, Refusal, Secret};
use serde::Serialize;

use crate::accept::Peer;
use crate::app::App;
use crate::error::{Answer, Problem};
use crate::{Path, body, depth, limits};

pub(crate) use recorder::Recorder;

use receive::{Received, Sent};

/// The endpoints of a server, and where their deliveries are remembered.
pub(crate) struct Hooks {
    endpoints: BTreeMap<String, ReadyEndpoint>,
    pub(crate) recorder: Recorder,
    /// For endpoints that do not exist: they take as long to refuse as those that do.
    nobody: Secret,
    /// As much as the payload of any of their queues may have. It is the same for every name: a bound of its own would tell
    /// that there is such an endpoint.
    body_bytes: usize,
}

impl Hooks {
    pub(crate) fn new(endpoints: Vec<ReadyEndpoint>, settings: &Settings) -> Self {
        let queues = endpoints.iter().filter_map(|one| settings.queue(&one.settings.queue));
        let body_bytes =
            queues.map(|queue| queue.append.payload_bytes).fold(limits::HOOK_BODY_BYTES, usize::max);
        let named = endpoints.into_iter().map(|endpoint| (endpoint.settings.name.clone(), endpoint));
        Hooks {
            endpoints: named.collect(),
            recorder: Recorder::default(),
            nobody: Secret::new(clock::secret()),
            body_bytes,
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&ReadyEndpoint> {
        self.endpoints.get(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.endpoints.keys().map(String::as_str)
    }

    /// Whether a text has the token of an endpoint in it: sent to the wrong place, it is not kept either.
    fn is_token(&self, text: &str) -> bool {
        let bearers = self.endpoints.values().filter(|one| one.settings.scheme.proof() == Proof::Bearer);
        let mut tokens = bearers.flat_map(|one| &one.proofs.secrets);
        tokens.any(|token| std::str::from_utf8(token.bytes()).is_ok_and(|token| text.contains(token)))
    }

    /// The endpoint whose deliveries are not proven at all, if there is one that must not be open to everybody.
    pub(crate) fn open(endpoints: &[ReadyEndpoint]) -> Option<&str> {
        let open =
            |one: &&ReadyEndpoint| one.settings.scheme.proof() == Proof::None && !one.settings.allow_unsigned;
        endpoints.iter().find(open).map(|one| one.settings.name.as_str())
    }
}

/// Takes a delivery that was kept in again, by the endpoint of its name; an error says why that cannot be. What became of it is
/// kept before this returns, so whoever asked can look at it.
pub async fn replay(
    engine: &Engine,
    endpoint: Option<&ReadyEndpoint>,
    record: &DeliveryRecord,
    by: &str,
) -> Result<DeliveryRecord, String> {
    let replayed = receive::again(engine, endpoint, record, by).await?;
    if let Err(error) = engine.keep_delivery(&mut Places::default(), replayed.clone()).await {
        tracing::warn!(%error, delivery = replayed.id, "a replay could not be remembered");
    }
    Ok(replayed)
}

/// What a sender is told of a delivery that was taken.
#[derive(Debug, Serialize)]
struct Taken<'a> {
    delivery: &'a str,
    accepted: usize,
    duplicates: usize,
    ignored: usize,
}

/// `POST /hooks/{name}`, and `GET` for providers that first ask whether somebody is here.
pub(crate) async fn hook(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    request: Request<Body>,
) -> Response {
    if request.version() > Version::HTTP_11 {
        let detail = "webhooks are taken over HTTP/1.1";
        let status = StatusCode::HTTP_VERSION_NOT_SUPPORTED;
        return Problem::new(status, "http-version", detail).into_response();
    }
    let (parts, sent) = request.into_parts();
    let endpoint = app.hooks.get(&name);
    // The body is read before anything is decided: how long this takes says nothing about who is known here.
    let whole = Request::from_parts(parts.clone(), sent);
    let (bytes, unread) = match body::read(whole, app.hooks.body_bytes).await {
        Ok(bytes) => (bytes, None),
        Err(problem) => (Bytes::new(), Some(problem)),
    };
    let arrived =
        Arrived { name: &name, parts: &parts, body: &bytes, unread: unread.is_some(), at: app.wall() };
    let received = match (endpoint, unread) {
        (_, Some(problem)) => Received::failed(problem, false),
        (None, None) => unknown(&app, &arrived),
        (Some(endpoint), None) => receive(&app, endpoint, &arrived.sent()).await,
    };
    let record = arrived.record(&app, endpoint, &received);
    count(endpoint, &record);
    let response = answer(endpoint, &received, &record);
    app.hooks.recorder.keep(record);
    response
}

/// That its queue is full is told only to those who have proven themselves.
async fn receive(app: &App, endpoint: &ReadyEndpoint, sent: &Sent<'_>) -> Received {
    let secret = match receive::prove(endpoint, sent) {
        Ok(secret) => secret,
        Err(received) => return received,
    };
    match waiting(app, endpoint).await {
        Ok(()) => receive::take(&app.engine, endpoint, &sent.delivery(), secret, None).await,
        Err(problem) => Received::failed(problem, true),
    }
}

async fn waiting(app: &App, endpoint: &ReadyEndpoint) -> Answer<()> {
    let queue = app.engine.queue(&endpoint.settings.queue)?;
    depth::check(app, &queue, std::iter::once(&endpoint.settings.tenant)).await
}

/// Refused like a wrong signature, and after as much work.
fn unknown(app: &App, arrived: &Arrived<'_>) -> Received {
    let check = Check {
        secrets: std::slice::from_ref(&app.hooks.nobody),
        now: arrived.at.as_millis() / 1_000,
        tolerance: limits::HOOK_TOLERANCE,
        public_url: None,
    };
    let delivery = arrived.sent().delivery();
    let _ = quell::webhook::Standard.sham(&delivery, &check);
    Received::refused(Refusal::new(Because::UnknownEndpoint, "there is no such endpoint"), None)
}

/// A request of which the body has been read.
struct Arrived<'a> {
    name: &'a str,
    parts: &'a Parts,
    body: &'a [u8],
    /// The body was not taken.
    unread: bool,
    at: Timestamp,
}

impl Arrived<'_> {
    fn target(&self) -> &str {
        self.parts.uri.path_and_query().map_or("/", |target| target.as_str())
    }

    fn sent(&self) -> Sent<'_> {
        Sent {
            method: &self.parts.method,
            target: self.target(),
            headers: &self.parts.headers,
            body: self.body,
            at: self.at,
        }
    }

    fn record(&self, app: &App, endpoint: Option<&ReadyEndpoint>, received: &Received) -> DeliveryRecord {
        let from = self.parts.extensions.get::<Peer>().map(|peer| peer.0.ip().to_string());
        let id = app.engine.delivery_id();
        let mut record = receive::record(id, self.name, endpoint, &self.sent(), received);
        record.body_is_cut |= self.unread;
        for (_, value) in record.headers.iter_mut().filter(|(_, value)| app.hooks.is_token(value)) {
            receive::REDACTED.clone_into(value);
        }
        DeliveryRecord { from, ..record }
    }
}

fn answer(endpoint: Option<&ReadyEndpoint>, received: &Received, record: &DeliveryRecord) -> Response {
    let mut response = match received {
        Received::Greeted(handshake) => {
            let mut response = handshake.answer.clone().into_response();
            let plain = HeaderValue::from_static("text/plain; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, plain);
            response
        }
        Received::Taken { events, ignored, .. } => {
            let duplicates = events.iter().filter(|event| event.duplicate).count();
            let taken = Taken {
                delivery: &record.id,
                accepted: events.len() - duplicates,
                duplicates,
                ignored: ignored.len(),
            };
            let silent = endpoint.is_some_and(|endpoint| endpoint.settings.scheme.wants_silence());
            if silent { StatusCode::OK.into_response() } else { crate::json(&taken) }
        }
        // Nothing in it, and the same for everything that can be wrong: what is wrong helps whoever tries.
        Received::Refused { refusal, .. } if refusal.because.is_unproven() => {
            StatusCode::UNAUTHORIZED.into_response()
        }
        Received::Refused { refusal, .. } => {
            let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", refusal.detail.clone());
            problem.into_response()
        }
        Received::Failed { problem, .. } => problem.clone().into_response(),
    };
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// By endpoint and verdict; names of endpoints that do not exist are a stranger's, and no label.
fn count(endpoint: Option<&ReadyEndpoint>, record: &DeliveryRecord) {
    let name = endpoint.map_or("unknown", |endpoint| endpoint.settings.name.as_str()).to_owned();
    let reason = record.reason.clone().unwrap_or_else(|| "none".to_owned());
    let verdict = record.verdict.as_str();
    tracing::debug!(endpoint = name, verdict, reason, "hook.received");
    metrics::counter!("quell_hooks_total", "endpoint" => name.clone(), "verdict" => verdict, "reason" => reason)
        .increment(1);
    if let Some(secret) = record.secret {
        // An old secret that nobody uses any more can go.
        metrics::counter!("quell_hook_secrets_total", "endpoint" => name, "secret" => secret.to_string())
            .increment(1);
    }
    let differing = record.events.iter().filter(|event| event.differs).count();
    if differing > 0 {
        metrics::counter!("quell_hook_conflicts_total").increment(differing as u64);
    }
}
