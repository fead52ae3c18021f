//! The inspector over HTTP: the last deliveries, why they were refused, and taking them in again.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use quell::deliveries::{DeliveryRecord, DeliveryVerdict};
use quell::quell_core::clock::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::auth::Principal;
use crate::error::{Answer, Problem, ProblemDocument};
use crate::{Path, Query, hooks, json};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeliveriesQuery {
    /// Only of this endpoint.
    pub(crate) endpoint: Option<String>,
    /// Only those that ended so.
    pub(crate) verdict: Option<DeliveryVerdict>,
}

/// A delivery in a list: everything but what was sent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeliveryRow {
    id: String,
    endpoint: String,
    scheme: String,
    received_at: Timestamp,
    from: Option<String>,
    verdict: DeliveryVerdict,
    status: u16,
    reason: Option<String>,
    detail: Option<String>,
    body_bytes: usize,
    /// How many events it has brought.
    events: usize,
    replay_of: Option<String>,
}

impl From<DeliveryRecord> for DeliveryRow {
    fn from(record: DeliveryRecord) -> Self {
        DeliveryRow {
            id: record.id,
            endpoint: record.endpoint,
            scheme: record.scheme,
            received_at: record.received_at,
            from: record.from,
            verdict: record.verdict,
            status: record.status,
            reason: record.reason,
            detail: record.detail,
            body_bytes: record.body_bytes,
            events: record.events.len(),
            replay_of: record.replay_of,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Deliveries {
    items: Vec<DeliveryRow>,
}

/// The deliveries that a credential may see, newest first. They are of no tenant: one that was refused belongs to nobody.
pub(crate) async fn seen(
    app: &App,
    principal: &Principal,
    query: &DeliveriesQuery,
) -> Answer<Vec<DeliveryRecord>> {
    principal.unlimited()?;
    let mut records = app.engine.deliveries().await?;
    records.retain(|record| {
        query.endpoint.as_ref().is_none_or(|name| record.endpoint == *name)
            && query.verdict.is_none_or(|verdict| record.verdict == verdict)
    });
    Ok(records)
}

pub(crate) async fn find(app: &App, principal: &Principal, id: &str) -> Answer<DeliveryRecord> {
    principal.unlimited()?;
    let found = app.engine.delivery(id).await?;
    found.ok_or_else(|| Problem::not_found("there is no such delivery; only the last ones are kept"))
}

/// The last deliveries of webhooks, taken and refused, newest first.
#[utoipa::path(
    get, path = "/v1/deliveries", operation_id = "list_deliveries", tag = "hooks", params(DeliveriesQuery),
    responses((status = 200, description = "What is remembered", body = Deliveries)),
    security(("token" = ["read"])),
)]
pub(crate) async fn list_deliveries(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<DeliveriesQuery>,
) -> Answer<Response> {
    let records = seen(&app, &principal, &query).await?;
    Ok(json(&Deliveries { items: records.into_iter().map(DeliveryRow::from).collect() }))
}

/// One delivery as it came, without its secrets.
#[utoipa::path(
    get, path = "/v1/deliveries/{id}", operation_id = "get_delivery", tag = "hooks",
    params(("id" = String, Path)),
    responses(
        (status = 200, description = "The delivery", body = DeliveryRecord),
        (status = 404, description = "No such delivery", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["read"])),
)]
pub(crate) async fn delivery(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Answer<Response> {
    Ok(json(&find(&app, &principal, &id).await?))
}

/// Takes a delivery in again.
///
/// One that was refused is checked anew, with the secrets and rules of today; one that was taken becomes new events, with ids of
/// their own.
#[utoipa::path(
    post, path = "/v1/deliveries/{id}/replay", operation_id = "replay_delivery", tag = "hooks",
    params(("id" = String, Path)),
    responses(
        (status = 200, description = "What became of it", body = DeliveryRecord),
        (status = 404, description = "No such delivery", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "It cannot be taken in again from here", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["operate"])),
)]
pub(crate) async fn replay_delivery(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Answer<Response> {
    Ok(json(&replay(&app, &principal, &id).await?))
}

pub(crate) async fn replay(app: &App, principal: &Principal, id: &str) -> Answer<DeliveryRecord> {
    let record = find(app, principal, id).await?;
    let endpoints = app.hooks.endpoints();
    let endpoint = endpoints.get(&record.endpoint);
    let replayed = hooks::replay(&app.engine, endpoint, &record, &principal.actor()).await;
    replayed.map_err(|why| Problem::new(StatusCode::CONFLICT, "not-replayable", why))
}
