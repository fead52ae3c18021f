//! HTTP around the engine: anyone with curl can use Quell, and see and control everything.
//!
//! All routes are on one screen ([`routes`]), grouped by the scope that they demand; what is in no group cannot be
//! reached. Connections are accepted by `accept.rs` with limits of their own; `auth.rs` says who asks; `append.rs` takes
//! events in, `claims.rs` hands work out, `inspect.rs` and `control.rs` show and steer, `declare.rs` is for
//! administrators, `dashboard.rs` is for people.
//!
//! First stop on the path of an event that comes over HTTP; the next one is the engine's `append`.

mod accept;
mod app;
mod append;
mod auth;
mod body;
mod claims;
mod cloudevents;
mod control;
mod dashboard;
mod declare;
mod depth;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod health;
pub mod hooks;
mod inspect;
pub mod limits;
mod openapi;
mod polls;
mod reload;
mod stream;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use quell::Engine;
use quell::clock::SteppedTime;
use quell::config::{Flags, ServerSettings, Settings, SettingsInput};
use quell::endpoints::ReadyEndpoint;
use quell::quell_core::memory::MemoryStore;
use quell::tokens::Scope;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::accept::Connections;
use crate::app::App;
use crate::auth::TokenBook;
use crate::error::Problem;
use crate::health::Measured;
use crate::hooks::Hooks;

/// What an application needs to add pages to the dashboard: a [`Section`](pages::Section), and how things are written there.
pub mod pages {
    pub use crate::dashboard::view::{Clock, When, number, query, segment};
    pub use crate::dashboard::{AppPage, Page, PageError, PageRequest, Section, Shell};
}

pub use dashboard::{AppPage, Shell};
pub use health::{METRICS, recorder};
pub use reload::{LiveServer, Reload, Reloaded};

/// How a server is reached.
#[derive(Clone)]
pub struct ServerOptions {
    /// `host:port`; port 0 means any free one.
    pub listen: String,
    /// Everything but events in and work out is only here, if it is given.
    pub admin_listen: Option<String>,
    /// Names under which it may be asked for, besides loopback's own; empty on another address means any.
    pub hosts: Vec<String>,
    pub connections: usize,
    /// Where providers send their webhooks.
    pub endpoints: Vec<ReadyEndpoint>,
    /// Pages that an application adds to the dashboard.
    pub pages: Vec<AppPage>,
    /// How the configuration is read again; without it `POST /v1/reload` is refused.
    pub reload: Option<Arc<dyn Reload>>,
}

impl ServerOptions {
    pub fn at(listen: impl Into<String>) -> Self {
        let listen = listen.into();
        ServerOptions {
            listen,
            admin_listen: None,
            hosts: Vec::new(),
            connections: ServerSettings::CONNECTIONS_DEFAULT,
            endpoints: Vec::new(),
            pages: Vec::new(),
            reload: None,
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot listen on {address}: {error}")]
    Listen { address: String, error: io::Error },
    #[error(
        "{address} can be reached from other machines, and there is no token: make one with `quell token create NAME --scope \
         admin`, or listen on 127.0.0.1"
    )]
    NoTokens { address: SocketAddr },
    #[error(
        "{address} can be reached from other machines, and the endpoint {endpoint:?} takes what anybody sends: give it a scheme \
         that proves the sender, or say allow_unsigned = true in its section"
    )]
    Unsigned { address: SocketAddr, endpoint: String },
    #[error(transparent)]
    Store(#[from] quell::quell_core::error::StoreError),
}

/// A server that listens and does not answer yet.
pub struct Server {
    app: Arc<App>,
    listeners: Vec<(TcpListener, Router)>,
    address: SocketAddr,
    admin_address: Option<SocketAddr>,
    /// An address that other machines reach.
    elsewhere: Option<SocketAddr>,
    connections: Connections,
    stop: CancellationToken,
}

impl Server {
    /// Listens. From here on clients can connect; they are answered by [`Server::run`].
    pub async fn bind(engine: Engine, options: ServerOptions) -> Result<Server, ServeError> {
        let public = listen(&options.listen).await?;
        let admin = match &options.admin_listen {
            Some(address) => Some(listen(address).await?),
            None => None,
        };
        let all: Vec<SocketAddr> =
            [Some(&public), admin.as_ref()].into_iter().flatten().map(|(_, at)| *at).collect();
        let elsewhere = all.iter().find(|address| !is_loopback(address.ip()));
        if let Some(address) = elsewhere
            && engine.tokens().await?.is_empty()
        {
            return Err(ServeError::NoTokens { address: *address });
        }
        if let (Some(address), Some(endpoint)) = (elsewhere, hooks::unproven(&options.endpoints)) {
            return Err(ServeError::Unsigned { address: *address, endpoint: endpoint.to_owned() });
        }
        let stop = CancellationToken::new();
        let hosts = allowed_hosts(&all, elsewhere.is_none(), &options.hosts);
        let tokens = TokenBook::new(elsewhere.is_none());
        let hooks = Hooks::new(options.endpoints, &engine.settings());
        let app = Arc::new(App::new(engine, tokens, hooks, hosts, options.reload, stop.clone()));
        let mut listeners = Vec::new();
        let admin_address = admin.as_ref().map(|(_, at)| *at);
        match admin {
            Some((listener, _)) => {
                listeners.push((public.0, finish(&app, public_routes(&app), None)));
                listeners.push((listener, finish(&app, routes(&app), Some(&options.pages))));
            }
            None => listeners.push((public.0, finish(&app, routes(&app), Some(&options.pages)))),
        }
        let connections = Connections::new(options.connections, stop.clone());
        let elsewhere = elsewhere.copied();
        Ok(Server { app, listeners, address: public.1, admin_address, elsewhere, connections, stop })
    }

    /// For changes while it runs.
    pub fn live(&self) -> LiveServer {
        LiveServer::new(self.app.clone(), self.elsewhere)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// Answers until `stop` rings, then finishes what is under way within the grace. True when all of it was finished.
    pub async fn run(self, stop: CancellationToken, grace: Duration) -> bool {
        let mut accepting = tokio::task::JoinSet::new();
        for (listener, router) in self.listeners {
            accepting.spawn(self.connections.clone().accept(listener, router));
        }
        accepting.spawn(health::upkeep());
        let app = self.app.clone();
        accepting.spawn(async move { app.watch.run(&app.engine).await });
        let app = self.app;
        accepting.spawn(async move { app.hooks.recorder.run(&app.engine).await });
        stop.cancelled().await;
        self.stop.cancel();
        let drained = self.connections.drained(grace).await;
        accepting.shutdown().await;
        drained
    }
}

async fn listen(address: &str) -> Result<(TcpListener, SocketAddr), ServeError> {
    let told = |error| ServeError::Listen { address: address.to_owned(), error };
    let listener = TcpListener::bind(address).await.map_err(told)?;
    let at = listener.local_addr().map_err(told)?;
    Ok((listener, at))
}

fn is_loopback(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback()),
    }
}

/// On loopback only its own names, so that a page of somewhere else cannot reach it by a name that points here.
fn allowed_hosts(own: &[SocketAddr], loopback: bool, more: &[String]) -> Option<BTreeSet<String>> {
    if !loopback && more.is_empty() {
        return None;
    }
    let own = own.iter().map(|address| match address.ip() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    });
    let loopbacks = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned);
    Some(loopbacks.into_iter().chain(own).chain(more.iter().map(|host| host.to_ascii_lowercase())).collect())
}

type Routes = OpenApiRouter<Arc<App>>;

/// Demands a scope of every route of a group.
fn group(scope: Scope, app: &Arc<App>, routes: Routes) -> Routes {
    routes.route_layer(from_fn_with_state((app.clone(), scope), auth::admit))
}

/// Every route there is.
fn routes(app: &Arc<App>) -> Routes {
    let read = OpenApiRouter::new()
        .routes(routes!(inspect::lanes))
        .routes(routes!(inspect::lane))
        .routes(routes!(inspect::runs))
        .routes(routes!(inspect::run))
        .routes(routes!(inspect::event))
        .routes(routes!(inspect::audit))
        .routes(routes!(inspect::dead))
        .routes(routes!(inspect::stats))
        .routes(routes!(inspect::sources))
        .routes(routes!(inspect::source))
        .routes(routes!(inspect::schedules))
        .routes(routes!(declare::workers))
        .routes(routes!(hooks::inspector::list_deliveries))
        .routes(routes!(hooks::inspector::delivery))
        .routes(routes!(stream::stream))
        .routes(routes!(health::metrics_text));
    let operate = OpenApiRouter::new()
        .routes(routes!(control::act_on_lane))
        .routes(routes!(control::act_on_lanes))
        .routes(routes!(control::act_on_queue))
        .routes(routes!(control::cancel_run))
        .routes(routes!(control::redrive_run))
        .routes(routes!(control::redrive_dead))
        .routes(routes!(control::purge_dead))
        .routes(routes!(control::purge_delayed))
        .routes(routes!(control::purge_buffered))
        .routes(routes!(control::edit_event))
        .routes(routes!(control::delete_event))
        .routes(routes!(declare::patch_source))
        .routes(routes!(hooks::inspector::replay_delivery));
    let admin = OpenApiRouter::new()
        .routes(routes!(control::erase_lane))
        .routes(routes!(declare::put_source))
        .routes(routes!(declare::remove_source))
        .routes(routes!(declare::put_schedule))
        .routes(routes!(declare::remove_schedule))
        .routes(routes!(reload::reload))
        .routes(routes!(declare::make_token))
        .routes(routes!(declare::list_tokens))
        .routes(routes!(declare::revoke_token));
    public_routes(app)
        .merge(group(Scope::Read, app, read))
        .merge(group(Scope::Operate, app, operate))
        .merge(group(Scope::Admin, app, admin))
}

/// What strangers and programs need: events in, work out, and whether the server is there.
fn public_routes(app: &Arc<App>) -> Routes {
    let ingest = OpenApiRouter::new().routes(routes!(append::append));
    let work = OpenApiRouter::new()
        .routes(routes!(claims::claim))
        .routes(routes!(claims::extend))
        .routes(routes!(claims::hold))
        .routes(routes!(claims::get_step))
        .routes(routes!(claims::put_step))
        .routes(routes!(claims::settle));
    OpenApiRouter::with_openapi(openapi::Document::openapi())
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .merge(group(Scope::Ingest, app, ingest))
        .merge(group(Scope::Work, app, work))
}

/// With the dashboard and its added pages, or without.
fn finish(app: &Arc<App>, routes: Routes, pages: Option<&[AppPage]>) -> Router {
    let (router, document) = routes.split_for_parts();
    let document = bytes::Bytes::from(text_of(document));
    let mut router = router.route("/hooks/{name}", axum::routing::any(hooks::hook));
    router = router.route("/hooks/{name}/{token}", axum::routing::any(hooks::hook_with_token));
    router = router.route("/openapi.json", axum::routing::get(async move || openapi_json(document)));
    if let Some(pages) = pages {
        router = router.merge(dashboard::router(app, pages));
    }
    router
        .fallback(hooks::elsewhere)
        .method_not_allowed_fallback(not_allowed)
        .layer(from_fn_with_state(app.clone(), guard))
        .layer(CatchPanicLayer::custom(panicked))
        .with_state(app.clone())
}

/// The document about all routes, as it is committed in `docs/reference/openapi.json`.
pub fn document() -> String {
    // It needs the routes, and nobody to answer them.
    let store = Arc::new(MemoryStore::new(Arc::new(SteppedTime::new())));
    let input = SettingsInput { config: None, env: &BTreeMap::new(), flags: Flags::default() };
    let settings = Settings::resolve(input).expect("without any wish the defaults are in force");
    let engine = Engine::with_store(store, settings);
    let (tokens, hooks) = (TokenBook::new(true), Hooks::new(Vec::new(), &engine.settings()));
    let app = App::new(engine, tokens, hooks, None, None, CancellationToken::new());
    text_of(routes(&Arc::new(app)).into_openapi())
}

fn text_of(mut document: utoipa::openapi::OpenApi) -> String {
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    openapi::add_common_answers(&mut document);
    let mut text = document.to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

fn openapi_json(document: bytes::Bytes) -> Response {
    let mut response = document.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(crate) async fn not_found() -> Problem {
    Problem::not_found("there is no such path; /openapi.json lists all of them")
}

async fn not_allowed() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "this path does not take this method")
}

fn panicked(_: Box<dyn std::any::Any + Send>) -> Response {
    let detail = "the server made a mistake; its log says more";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail).into_response()
}

/// Whom it is asked as, what every answer carries, and how long it took: one layer, because each costs every request a box.
async fn guard(State(app): State<Arc<App>>, mut request: Request<Body>, next: Next) -> Response {
    let measured = Measured::begin(&mut request);
    let page = dashboard::is_page(request.uri().path());
    let mut response = match check_host(&app, &request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if page {
        dashboard::protect(headers);
    }
    measured.end(response.status());
    response
}

fn check_host(app: &App, request: &Request<Body>) -> Result<(), Problem> {
    let Some(allowed) = &app.hosts else { return Ok(()) };
    // A webhook comes through a tunnel with the tunnel's name. It proves itself, and where it does not, `open.rs` refuses pages.
    let path = request.uri().path();
    if path.starts_with("/hooks/") || app.hooks.endpoints().at(path).is_some() {
        return Ok(());
    }
    let host = match request.uri().authority() {
        Some(authority) => Some(authority.as_str()),
        None => request.headers().get(header::HOST).and_then(|value| value.to_str().ok()),
    };
    let Some(host) = host else {
        // HTTP/1.0 has none, and no browser speaks it.
        return Ok(());
    };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty() => name,
        _ => host,
    };
    if allowed.contains(&name.to_ascii_lowercase()) {
        return Ok(());
    }
    let detail = "this server is not asked for by that name; [server] hosts lists more";
    Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "unknown-host", detail))
}

/// Query parameters; wrong ones are a problem document.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        if percent_encoding::percent_decode_str(query).decode_utf8().is_err() {
            // Otherwise it would be read with other characters in their place.
            return Err(Problem::bad_request("the query is not UTF-8").at("query"));
        }
        let parsed = axum::extract::Query::<T>::try_from_uri(&parts.uri);
        parsed
            .map(|query| Query(query.0))
            .map_err(|error| Problem::bad_request(error.body_text()).at("query"))
    }
}

/// What stands in the path; text that is not UTF-8 is a problem document.
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let parsed = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        parsed.map(|path| Path(path.0)).map_err(|error| Problem::bad_request(error.body_text()).at("path"))
    }
}

/// An answer as JSON that nobody keeps.
pub(crate) fn json<T: Serialize>(value: &T) -> Response {
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
