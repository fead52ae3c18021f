//! The dashboard: what the server knows, for people, on the same port as the API. `/` is the overview, everything else is
//! under `/ui`.
//!
//! Pages are plain HTML that works without scripts; with them the part that changes (`#live`) is fetched again whenever the
//! stream says that something is different. The same address answers both: a request with `HX-Request` gets that part alone.
//!
//! Looking needs the scope `read`, and every other method `operate`; both are decided in one place ([`visit`]), so a page that
//! is added cannot forget it. `session.rs` knows who is logged in, `origin.rs` refuses what other sites send, `shell.rs` is the
//! frame around all pages, `section.rs` lets applications add some, `assets.rs` holds what they load, `watch.rs` remembers how
//! things went.

mod assets;
mod attempts;
mod audit;
mod bulk;
mod commands;
mod countdown;
mod dead;
mod deliveries;
mod form;
mod lane;
mod lane_query;
pub(crate) use lane_query::{reread_lane_words, told_lane_query};
mod lanes;
mod operations;
mod origin;
mod overview;
mod payload;
mod playground;
mod run;
mod runs;
#[cfg(test)]
mod samples;
mod schedules;
mod section;
mod session;
mod shell;
mod sources;
mod spark;
mod timeline;
pub(crate) mod view;
mod watch;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY};
use http::{HeaderMap, HeaderValue, Method, Request};
use quell::tokens::Scope;

use crate::app::App;
use crate::auth::Principal;
use crate::error::{Answer, Problem};
use crate::stream;

pub(crate) use operations::Operations;
pub use section::{Page, PageError, PageRequest, Section};
pub use shell::{AppPage, Shell};
pub(crate) use watch::Watch;

/// Nothing is loaded from elsewhere, nothing inline runs, and no other page may frame this one.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

/// The dashboard with the pages that an application has added.
pub(crate) fn router(app: &Arc<App>, pages: &[AppPage]) -> Router<Arc<App>> {
    let mut behind_login = Router::new()
        .route("/", get(overview::page))
        .route("/ui/lanes", get(lanes::list))
        .route("/ui/lanes/preview", post(bulk::preview))
        .route("/ui/lanes/begin", post(bulk::begin))
        .route("/ui/lanes/{queue}/{key}", get(lane::detail))
        .route("/ui/lanes/{queue}/{key}/purge", get(lane::purge_preview).post(lane::purge))
        .route("/ui/lanes/{queue}/{key}/{action}", post(lane::act))
        .route("/ui/operations", get(operations::list))
        .route("/ui/operations/{id}", get(operations::show))
        .route("/ui/operations/{id}/stop", post(operations::stop))
        .route("/ui/dead", get(dead::list))
        .route("/ui/dead/{kind}", get(dead::group))
        .route("/ui/dead/{kind}/redrive", post(dead::redrive))
        .route("/ui/runs", get(runs::list))
        .route("/ui/runs/{run_id}", get(run::detail))
        .route("/ui/runs/{run_id}/edit", get(run::edit))
        .route("/ui/runs/{run_id}/redrive", post(run::redrive))
        .route("/ui/deliveries", get(deliveries::list))
        .route("/ui/deliveries/{id}", get(deliveries::detail))
        .route("/ui/deliveries/{id}/replay", post(deliveries::replay))
        .route("/ui/sources", get(sources::list))
        .route("/ui/sources/{name}/{action}", post(sources::act))
        .route("/ui/schedules", get(schedules::list))
        .route("/ui/schedules/{name}/remove", post(schedules::remove))
        .route("/ui/audit", get(audit::list))
        .route("/ui/playground", get(playground::page))
        .route("/ui/stream", get(live))
        .route("/ui/{*rest}", get(nowhere));
    for page in pages {
        let added = page.router.clone().layer(Extension(app.clone()));
        let added = Router::new().nest_service(&page.place(), added).route_layer(from_fn(for_all));
        behind_login = behind_login.merge(added);
    }
    let navigation = shell::navigation(pages);
    let behind_login = behind_login
        .route_layer(from_fn_with_state((app.clone(), navigation), visit))
        .layer(from_fn(origin::check));
    let open = Router::new()
        .route("/ui/login", get(session::form).post(session::login))
        .route("/ui/logout", post(session::logout))
        .layer(from_fn(origin::check))
        .route("/ui/assets/{name}", get(assets::asset));
    behind_login.merge(open)
}

/// What every answer of the dashboard carries, also that there is no such page.
pub(crate) fn protect(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// Whether a path is the dashboard's.
pub(crate) fn is_page(path: &str) -> bool {
    path == "/" || path == "/ui" || path.starts_with("/ui/")
}

/// Lets those in who are logged in and may do this, and gives the pages their frame.
async fn visit(
    State((app, navigation)): State<(Arc<App>, shell::Navigation)>,
    mut request: Request<Body>,
    next: Next,
) -> Response {
    let principal = match session::visitor(&app, request.headers()).await {
        Ok(Some(principal)) => principal,
        Ok(None) => return session::turn_away(&request),
        Err(problem) => return Failed::from(problem).into_response(),
    };
    let looks = matches!(*request.method(), Method::GET | Method::HEAD);
    let scope = if looks { Scope::Read } else { Scope::Operate };
    if !principal.allows(scope) {
        let detail = format!("this needs a token with the scope `{scope}`");
        return Problem::forbidden(detail).into_response();
    }
    let shell = Shell::new(&principal, navigation, &request);
    request.extensions_mut().insert(shell);
    request.extensions_mut().insert(principal);
    next.run(request).await
}

/// What an application shows is of all tenants and queues, as far as anybody here can tell.
async fn for_all(Extension(principal): Extension<Principal>, request: Request<Body>, next: Next) -> Response {
    match principal.unlimited() {
        Ok(()) => next.run(request).await,
        Err(problem) => Failed::from(problem).into_response(),
    }
}

/// The stream of the pages: that something is different, and what happened.
async fn live(State(app): State<Arc<App>>, Extension(principal): Extension<Principal>) -> Answer<Response> {
    stream::for_page(&app, principal).await
}

async fn nowhere() -> Failed {
    Failed::from(Problem::not_found("there is no such page"))
}

/// A problem as a page for people.
struct Failed(Problem);

impl<P: Into<Problem>> From<P> for Failed {
    fn from(problem: P) -> Self {
        Failed(problem.into())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let page = shell::problem_page(&self.0);
        shell::with_status_of(self.0, page)
    }
}

type PageAnswer = Result<Response, Failed>;
