//! Is it alive, is it ready, what does it count: `/healthz`, `/readyz`, `/metrics`.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{MatchedPath, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method, Request, StatusCode, header};
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};
use quell::clock::{self, Stopwatch};
use quell::observe::{self, Metric};
use quell::spans::{self, Recorded};
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::auth::Principal;
use crate::error::{Answer, Problem, ProblemDocument};
use crate::json;

/// A store that does not answer within this time is not there.
const READY_TIME: Duration = Duration::from_secs(3);
/// Seconds, for everything that is measured.
const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// What the server counts beside the engine.
pub const METRICS: &[Metric] = &[
    Metric::counter(
        "quell_http_requests_total",
        &["route", "status"],
        "requests by route and class of status",
    ),
    Metric::histogram("quell_http_request_seconds", &["route"], "from the head to the answer's head"),
    Metric::gauge("quell_http_connections", &[], "connections that are open now"),
    Metric::gauge("quell_http_long_polls", &[], "requests that wait for something now"),
    Metric::gauge("quell_http_streams", &[], "live streams that are open now"),
    Metric::counter("quell_http_connections_refused_total", &[], "connections above the bound"),
    Metric::counter(
        "quell_http_claims_undelivered_total",
        &[],
        "claims handed back because their worker had gone",
    ),
    Metric::counter("quell_http_wrong_tokens_total", &[], "requests with a token that is not known"),
    Metric::counter(
        "quell_hooks_total",
        &["endpoint", "verdict", "reason"],
        "deliveries of webhooks; `endpoint` is `unknown` for names that are none, `reason` is `none` where nothing was wrong",
    ),
    Metric::counter(
        "quell_hook_secrets_total",
        &["endpoint", "secret"],
        "deliveries by the secret that proved them, from 1: when nobody uses the older one, it can go",
    ),
    Metric::counter(
        "quell_hook_conflicts_total",
        &[],
        "events of deliveries whose id was known with another payload; the first stays",
    ),
    Metric::counter(
        "quell_hooks_unrecorded_total",
        &[],
        "deliveries that the inspector does not show, because too many came at once or the store was away",
    ),
    Metric::gauge("quell_build_info", &["version"], "1"),
];

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Alive {
    status: &'static str,
    version: &'static str,
}

/// The process is there. Says nothing about the store.
#[utoipa::path(
    get, path = "/healthz", operation_id = "healthz", tag = "health",
    responses((status = 200, description = "Alive", body = Alive)),
    security(()),
)]
pub(crate) async fn healthz() -> Response {
    json(&Alive { status: "alive", version: env!("CARGO_PKG_VERSION") })
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Ready {
    status: &'static str,
    store: &'static str,
    schema: u32,
}

/// The store answers and its schema is one that this program knows; not while the server is stopping.
#[utoipa::path(
    get, path = "/readyz", operation_id = "readyz", tag = "health",
    responses(
        (status = 200, description = "Ready", body = Ready),
        (status = 503, description = "Not now", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(()),
)]
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Answer<Response> {
    if app.stop.is_cancelled() {
        return Err(Problem::unavailable("the server is stopping"));
    }
    let health = tokio::time::timeout(READY_TIME, app.engine.health()).await;
    match health {
        Ok(Ok(health)) => {
            let about = health.description;
            Ok(json(&Ready { status: "ready", store: about.kind, schema: about.schema }))
        }
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Problem::unavailable("the store did not answer in time")),
    }
}

/// What the process counts, for the whole process: one recorder, however many servers a test starts in it.
pub fn recorder() -> Result<&'static PrometheusHandle, BuildError> {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    if let Some(handle) = HANDLE.get() {
        return Ok(handle);
    }
    let handle = PrometheusBuilder::new().set_buckets(&BUCKETS)?.install_recorder()?;
    observe::describe(observe::METRICS);
    observe::describe(METRICS);
    Ok(HANDLE.get_or_init(|| handle))
}

/// Prometheus text: counters of this process, and the store's totals of this moment.
#[utoipa::path(
    get, path = "/metrics", operation_id = "metrics", tag = "health",
    responses((status = 200, description = "Prometheus text", body = String, content_type = "text/plain")),
    security(("token" = ["read"])),
)]
pub(crate) async fn metrics_text(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
) -> Answer<Response> {
    // They are sums over all tenants.
    principal.unlimited()?;
    let broken = |error: BuildError| {
        tracing::error!(%error, "metrics");
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "metrics",
            "this process counts nothing; its log says why",
        )
    };
    let handle = recorder().map_err(broken)?;
    metrics::gauge!("quell_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    match tokio::time::timeout(READY_TIME, observe::scrape(&app.engine)).await {
        Ok(Ok(())) => {}
        _ => metrics::counter!("quell_store_unreadable_total").increment(1),
    }
    handle.run_upkeep();
    let mut response = handle.render().into_response();
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    Ok(response)
}

/// Counts and times a request by its route, never by its target.
pub(crate) struct Measured {
    route: String,
    method: Method,
    started: Stopwatch,
    span: Recorded,
}

/// Requests that have a span: those that bring events in or end a run. Polls, heartbeats and looks have none.
const RECORDED: [&str; 4] =
    ["/v1/queues/{queue}/events", "/v1/claims/{run_id}/settle", "/hooks/{name}", "/hooks/{name}/{token}"];

impl Measured {
    pub(crate) fn begin(request: &mut Request<Body>) -> Self {
        let route = request.extensions().get::<MatchedPath>().map_or("none", |path| path.as_str()).to_owned();
        let (method, started) = (request.method().clone(), Stopwatch::start());
        let span = match RECORDED.contains(&route.as_str()) {
            true => spans::serving(&method, &route, request.headers_mut()),
            false => Recorded::default(),
        };
        Measured { route, method, started, span }
    }

    pub(crate) fn end(self, status: StatusCode) {
        let Measured { route, method, started, span } = self;
        span.answered(status);
        let class = match status.as_u16() {
            200..=299 => "2xx",
            300..=399 => "3xx",
            400..=499 => "4xx",
            _ => "5xx",
        };
        let (taken, status) = (started.elapsed(), status.as_u16());
        tracing::debug!(%method, route, status, ms = taken.as_millis(), "http.request");
        metrics::counter!("quell_http_requests_total", "route" => route.clone(), "status" => class)
            .increment(1);
        metrics::histogram!("quell_http_request_seconds", "route" => route).record(taken.as_secs_f64());
    }
}

/// Counters that nobody reads must not grow: the exporter folds what it has sampled.
pub(crate) async fn upkeep() {
    loop {
        clock::sleep(Duration::from_secs(5)).await;
        if let Ok(handle) = recorder() {
            handle.run_upkeep();
        }
    }
}
