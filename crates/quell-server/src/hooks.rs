//! Webhooks in: `POST /hooks/{name}`, and the paths that endpoints have besides.
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

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

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
use quell::tokens::TOKEN_PREFIX;
use quell::webhook::{Answer as AnswerOf, Because, Check, Proof, Refusal, Secret};
use serde::Serialize;

use crate::accept::Peer;
use crate::app::App;
use crate::error::{Answer, Problem};
use crate::{Path, body, depth, limits, not_found};

pub(crate) use recorder::Recorder;

use receive::{Received, Sent};

/// The endpoints of a server, which may change while it runs, and where their deliveries are remembered.
pub(crate) struct Hooks {
    endpoints: RwLock<Arc<Endpoints>>,
    pub(crate) recorder: Recorder,
    /// For endpoints that do not exist: they take as long to refuse as those that do.
    nobody: Secret,
}

impl Hooks {
    pub(crate) fn new(endpoints: Vec<ReadyEndpoint>, settings: &Settings) -> Self {
        Hooks {
            endpoints: RwLock::new(Arc::new(Endpoints::new(endpoints, settings))),
            recorder: Recorder::default(),
            nobody: Secret::new(clock::secret()),
        }
    }

    /// Those in force. A delivery is received by what it was begun with.
    pub(crate) fn endpoints(&self) -> Arc<Endpoints> {
        self.endpoints.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn change(&self, endpoints: Endpoints) {
        *self.endpoints.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(endpoints);
    }
}

/// The endpoints in force.
pub(crate) struct Endpoints {
    endpoints: BTreeMap<String, ReadyEndpoint>,
    /// The endpoint that has this path of its own.
    paths: BTreeMap<String, String>,
    /// As much as the payload of any of their queues may have. It is the same for every name: a bound of its own would tell
    /// that there is such an endpoint.
    body_bytes: usize,
}

impl Endpoints {
    pub(crate) fn new(endpoints: Vec<ReadyEndpoint>, settings: &Settings) -> Self {
        let queues = endpoints.iter().filter_map(|one| settings.queue(&one.settings.queue));
        let body_bytes =
            queues.map(|queue| queue.append.payload_bytes).fold(limits::HOOK_BODY_BYTES, usize::max);
        let path = |one: &ReadyEndpoint| Some((one.settings.path.clone()?, one.settings.name.clone()));
        let paths = endpoints.iter().filter_map(path).collect();
        let named = endpoints.into_iter().map(|endpoint| (endpoint.settings.name.clone(), endpoint));
        Endpoints { endpoints: named.collect(), paths, body_bytes }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&ReadyEndpoint> {
        self.endpoints.get(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.endpoints.keys().map(String::as_str)
    }

    /// The endpoint that has this path of its own, and the token behind it, where its scheme takes one there.
    pub(crate) fn at<'a>(&self, path: &'a str) -> Option<(&str, Option<&'a str>)> {
        if let Some(name) = self.paths.get(path) {
            return Some((name, None));
        }
        let (path, rest) = path.rsplit_once('/').filter(|(_, rest)| !rest.is_empty())?;
        let endpoint = self.get(self.paths.get(path)?)?;
        let takes = endpoint.settings.scheme.takes_path_token();
        takes.then_some((endpoint.settings.name.as_str(), Some(rest)))
    }

    /// The tokens of all endpoints that know a word and sign nothing.
    fn tokens(&self) -> impl Iterator<Item = &str> {
        let bearers = self.endpoints.values().filter(|one| one.settings.scheme.proof() == Proof::Bearer);
        let tokens = bearers.flat_map(|one| &one.proofs.secrets);
        tokens.filter_map(|token| std::str::from_utf8(token.bytes()).ok())
    }

    /// Whether a text has the token of an endpoint in it: sent to the wrong place, it is not kept either.
    fn is_token(&self, text: &str) -> bool {
        self.tokens().any(|token| text.contains(token))
    }

    /// Whether a field is not kept: some endpoint has its secret there, or it has a token in it, one of ours included. Whoever
    /// means another endpoint than the one that they have reached has still sent it.
    fn is_confidential(&self, name: &str, value: &str) -> bool {
        let mut names = self.endpoints.values().flat_map(|one| one.settings.scheme.confidential());
        self.is_token(value) || value.contains(TOKEN_PREFIX) || names.any(|one| one == name)
    }

    /// The body without any token, for what is kept of one that nobody has proven: it may be meant for another endpoint.
    fn without_tokens<'a>(&self, body: &'a [u8]) -> Cow<'a, [u8]> {
        let mut schemes = self.endpoints.values().map(|one| &one.settings.scheme);
        let stripped = schemes.find_map(|scheme| scheme.without_secrets(body));
        let body = stripped.map_or(Cow::Borrowed(body), Cow::Owned);
        let replaced = std::str::from_utf8(&body).ok().filter(|text| self.is_token(text)).map(|text| {
            let replace = |text: String, token: &str| text.replace(token, receive::REDACTED);
            self.tokens().fold(text.to_owned(), replace).into_bytes()
        });
        replaced.map_or(body, Cow::Owned)
    }
}

/// The endpoint whose deliveries are not proven at all, if there is one that must not be open to everybody.
pub(crate) fn unproven(endpoints: &[ReadyEndpoint]) -> Option<&str> {
    let open =
        |one: &&ReadyEndpoint| one.settings.scheme.proof() == Proof::None && !one.settings.allow_unsigned;
    endpoints.iter().find(open).map(|one| one.settings.name.as_str())
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
    answered(&app, &name, None, request).await
}

/// `POST /hooks/{name}/{token}`, for schemes whose senders can put their token nowhere else. Where the scheme is another one
/// it is as if there were no such endpoint.
pub(crate) async fn hook_with_token(
    State(app): State<Arc<App>>,
    Path((name, _)): Path<(String, String)>,
    request: Request<Body>,
) -> Response {
    let path = request.uri().path().to_owned();
    let token = path.rsplit_once('/').map(|(_, token)| token);
    answered(&app, &name, token, request).await
}

/// Whatever is no route: an endpoint may have a path of its own.
pub(crate) async fn elsewhere(State(app): State<Arc<App>>, request: Request<Body>) -> Response {
    let path = request.uri().path().to_owned();
    match app.hooks.endpoints().at(&path) {
        Some((name, token)) => answered(&app, name, token, request).await,
        None => not_found().await.into_response(),
    }
}

async fn answered(app: &App, name: &str, rest: Option<&str>, request: Request<Body>) -> Response {
    if request.version() > Version::HTTP_11 {
        let detail = "webhooks are taken over HTTP/1.1";
        let status = StatusCode::HTTP_VERSION_NOT_SUPPORTED;
        return Problem::new(status, "http-version", detail).into_response();
    }
    let (parts, sent) = request.into_parts();
    let fits = |one: &&ReadyEndpoint| rest.is_none() || one.settings.scheme.takes_path_token();
    let endpoints = app.hooks.endpoints();
    let endpoint = endpoints.get(name).filter(fits);
    // The body is read before anything is decided: how long this takes says nothing about who is known here.
    let whole = Request::from_parts(parts.clone(), sent);
    let (bytes, unread) = match body::read(whole, endpoints.body_bytes).await {
        Ok(bytes) => (bytes, None),
        Err(problem) => (Bytes::new(), Some(problem)),
    };
    let unread_body = unread.is_some();
    let arrived = Arrived { name, rest, parts: &parts, body: &bytes, unread: unread_body, at: app.wall() };
    let received = match (endpoint, unread) {
        (_, Some(problem)) => Received::failed(problem, false),
        (None, None) => unknown(app, &arrived),
        (Some(endpoint), None) => receive(app, endpoint, &arrived.sent()).await,
    };
    let record = arrived.record(app, &endpoints, endpoint, &received);
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
        verify: &[],
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
    /// The segment of the path after the endpoint's own.
    rest: Option<&'a str>,
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
            rest: self.rest,
            headers: &self.parts.headers,
            body: self.body,
            at: self.at,
        }
    }

    /// Whose body may be kept as it came: it is proven, or signed as a whole and would be no longer with a part of it gone.
    fn is_plain(endpoint: Option<&ReadyEndpoint>, received: &Received) -> bool {
        let signed = endpoint.is_some_and(|one| one.settings.scheme.proof() == Proof::Signed);
        signed || received.is_proven()
    }

    fn record(
        &self,
        app: &App,
        endpoints: &Endpoints,
        endpoint: Option<&ReadyEndpoint>,
        received: &Received,
    ) -> DeliveryRecord {
        let from = self.parts.extensions.get::<Peer>().map(|peer| peer.0.ip().to_string());
        let id = app.engine.delivery_id();
        let plain = Arrived::is_plain(endpoint, received);
        let body = if plain { Cow::Borrowed(self.body) } else { endpoints.without_tokens(self.body) };
        let sent = Sent { body: &body, ..self.sent() };
        let mut record = receive::record(id, self.name, endpoint, &sent, received);
        record.body_bytes = self.body.len();
        record.body_is_cut |= self.unread;
        if endpoint.is_none() && endpoints.is_token(self.name) {
            // The token stands where the name should be.
            receive::REDACTED.clone_into(&mut record.endpoint);
            record.target = format!("/hooks/{}", receive::REDACTED);
        }
        for (name, value) in &mut record.headers {
            if endpoints.is_confidential(name, value) {
                receive::REDACTED.clone_into(value);
            }
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
            let answer = endpoint.map(|endpoint| endpoint.settings.scheme.answer());
            match answer.unwrap_or(AnswerOf::Account) {
                AnswerOf::Account => crate::json(&taken),
                AnswerOf::Nothing => StatusCode::OK.into_response(),
                AnswerOf::Text { media, text } => {
                    let mut response = text.into_response();
                    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
                    response
                }
            }
        }
        // Nothing in it, and the same for everything that can be wrong: what is wrong helps whoever tries.
        Received::Refused { refusal, .. } if refusal.because.is_unproven() => {
            receive::status(refusal).into_response()
        }
        Received::Refused { refusal, .. } => {
            Problem::new(receive::status(refusal), "invalid", refusal.detail.clone()).into_response()
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
