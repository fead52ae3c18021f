//! What administrators declare: sources, schedules and tokens. Operators enable, disable and reset sources.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{Request, StatusCode};
use quell::config::ScheduleSettings;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::cron::{Cron, Zone};
use quell::quell_core::event::{Key, Payload, QueueName, SourceName, Tenant};
use quell::quell_core::schedule::schedule_name;
use quell::quell_core::source::SourceRules;
use quell::quell_core::store::SourceScope;
use quell::tokens::{ApiToken, Scope};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::app::App;
use crate::auth::Principal;
use crate::control::Done;
use crate::error::{Answer, Problem, ProblemDocument};
use crate::inspect::{Owner, SourceView, find_source};
use crate::{Path, Query, body, json};

/// What an operator wants of a source.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PatchSource {
    /// `false` holds its lanes; nothing fails and no attempt is counted.
    enabled: Option<bool>,
    /// Closes the breaker, fills the bucket, ends a silence that the source asked for and forgets its answers.
    #[serde(default)]
    reset: bool,
}

/// Enables, disables or resets a source.
#[utoipa::path(
    patch, path = "/v1/sources/{name}", operation_id = "patch_source", tag = "sources",
    params(("name" = SourceName, Path), Owner),
    request_body = PatchSource,
    responses(
        (status = 200, description = "The source as it is now", body = SourceView),
        (status = 404, description = "No such source", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["operate"])),
)]
pub(crate) async fn patch_source(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
    Query(owner): Query<Owner>,
    request: Request<Body>,
) -> Answer<Response> {
    let wish: PatchSource = body::json(request).await?;
    let scope = own_source(&app, &principal, SourceName::new(name)?, owner.tenant.as_deref()).await?;
    let actor = principal.actor();
    let engine = &app.engine;
    match wish.enabled {
        Some(true) => drop(engine.enable_source(scope.clone(), &actor).await?),
        Some(false) => drop(engine.disable_source(scope.clone(), &actor).await?),
        None => {}
    }
    if wish.reset {
        engine.reset_source(scope.clone(), &actor).await?;
    }
    Ok(json(&find_source(&app, scope.name, scope.tenant).await?))
}

/// The source that a request of an operator means, if it is the operator's business.
pub(crate) async fn own_source(
    app: &App,
    principal: &Principal,
    name: SourceName,
    tenant: Option<&str>,
) -> Answer<SourceScope> {
    let tenant = principal.tenant(tenant)?;
    // A tenant's own has no state before it is first asked; a shared one is everybody's.
    let found = match find_source(app, name.clone(), tenant.clone()).await {
        Ok(found) => found,
        Err(_) => find_source(app, name.clone(), Tenant::none()).await?,
    };
    principal.source(found.shared)?;
    Ok(SourceScope { tenant: if found.shared { Tenant::none() } else { tenant }, name })
}

/// The limits of a source, as in `[sources.NAME]`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SourceBody {
    /// Requests per minute in the long run; no limit when it is left out.
    rate_limit_per_minute: Option<u32>,
    /// Requests at once after a rest, 1 unless it is said.
    burst: Option<u32>,
    /// Faults in a row that open the breaker, 5 unless it is said.
    failures: Option<u32>,
    /// How long an open breaker lets nobody go, 5 minutes unless it is said.
    cooldown_ms: Option<u64>,
    /// How long an answer is kept, 1 hour unless it is said; 0 keeps none.
    cache_ttl_ms: Option<u64>,
    /// One for all tenants; otherwise each tenant has its own.
    #[serde(default)]
    shared: bool,
}

/// Declares a source, or changes its limits, for every process at once.
#[utoipa::path(
    put, path = "/v1/sources/{name}", operation_id = "put_source", tag = "sources",
    params(("name" = SourceName, Path)),
    request_body = SourceBody,
    responses(
        (status = 200, description = "Declared", body = Done),
        (status = 400, description = "Limits that cannot be kept", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "Too many sources", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["admin"])),
)]
pub(crate) async fn put_source(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
    request: Request<Body>,
) -> Answer<Response> {
    principal.unlimited()?;
    let wish: SourceBody = body::json(request).await?;
    let usual = SourceRules::default();
    let rules = SourceRules {
        per_minute: wish.rate_limit_per_minute,
        burst: wish.burst.unwrap_or(usual.burst),
        failures: wish.failures.unwrap_or(usual.failures),
        cooldown: wish.cooldown_ms.map_or(usual.cooldown, Duration::from_millis),
        cache_ttl: match wish.cache_ttl_ms {
            None => usual.cache_ttl,
            Some(0) => None,
            Some(ms) => Some(Duration::from_millis(ms)),
        },
        shared: wish.shared,
    };
    rules.check()?;
    let changed = app.engine.put_source(SourceName::new(name)?, rules, &principal.actor()).await?;
    Ok(json(&Done::changed(changed)))
}

/// Takes a declaration away: lanes that wait for it are held, and new events that name it are refused.
#[utoipa::path(
    delete, path = "/v1/sources/{name}", operation_id = "remove_source", tag = "sources",
    params(("name" = SourceName, Path)),
    responses(
        (status = 200, description = "Done", body = Done),
        (status = 404, description = "No such source", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["admin"])),
)]
pub(crate) async fn remove_source(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
) -> Answer<Response> {
    principal.unlimited()?;
    let changed = app.engine.remove_source(SourceName::new(name)?, &principal.actor()).await?;
    Ok(json(&Done::changed(changed)))
}

/// What fires when.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScheduleBody<'a> {
    /// Five fields, or a word such as `@daily`.
    cron: &'a str,
    /// A named time zone, UTC unless it is said.
    zone: Option<&'a str>,
    queue: &'a str,
    key: String,
    #[serde(borrow)]
    #[schema(value_type = quell::quell_core::event::Payload)]
    payload: &'a RawValue,
}

/// Makes or changes a schedule beside those of the configuration; an unchanged one keeps its place in time.
#[utoipa::path(
    put, path = "/v1/schedules/{name}", operation_id = "put_schedule", tag = "schedules",
    params(("name" = String, Path), Owner),
    request_body(content = ScheduleBody<'static>, content_type = "application/json"),
    responses(
        (status = 200, description = "Done", body = Done),
        (status = 404, description = "No such queue", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "Too many schedules", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["admin"])),
)]
pub(crate) async fn put_schedule(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
    Query(owner): Query<Owner>,
    request: Request<Body>,
) -> Answer<Response> {
    if !body::is_json(&body::media_type(request.headers())?) {
        return Err(Problem::unsupported("send the body as application/json"));
    }
    let bytes = body::read(request, crate::limits::SMALL_BODY_BYTES).await?;
    let wish: ScheduleBody<'_> = body::parse(&bytes)?;
    let queue = QueueName::new(wish.queue)?;
    principal.queue(&queue)?;
    let schedule = ScheduleSettings {
        tenant: principal.tenant(owner.tenant.as_deref())?,
        name: schedule_name(&name)?,
        cron: wish.cron.parse::<Cron>().map_err(|e| Problem::bad_request(e.to_string()).at("cron"))?,
        zone: match wish.zone {
            Some(zone) => zone.parse::<Zone>().map_err(|e| Problem::bad_request(e.to_string()).at("zone"))?,
            None => Zone::default(),
        },
        queue,
        key: Key::new(wish.key)?,
        payload: Payload::from_json(wish.payload.get().as_bytes())?,
    };
    let changed = app.engine.put_schedule(schedule, &principal.actor()).await?;
    Ok(json(&Done::changed(changed)))
}

/// Removes a schedule. One that the configuration names comes back with the next start of a worker.
#[utoipa::path(
    delete, path = "/v1/schedules/{name}", operation_id = "remove_schedule", tag = "schedules",
    params(("name" = String, Path), Owner),
    responses(
        (status = 200, description = "Done", body = Done),
    ),
    security(("token" = ["admin"])),
)]
pub(crate) async fn remove_schedule(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
    Query(owner): Query<Owner>,
) -> Answer<Response> {
    let changed = take_schedule(&app, &principal, &name, owner.tenant.as_deref()).await?;
    Ok(json(&Done::changed(changed)))
}

/// Removes a schedule that may be seen; another one is as if it were not there.
pub(crate) async fn take_schedule(
    app: &App,
    principal: &Principal,
    name: &str,
    tenant: Option<&str>,
) -> Answer<bool> {
    let tenant = principal.tenant(tenant)?;
    let rows = app.engine.schedules().await?;
    let of = rows.iter().find(|row| row.schedule.name.as_str() == name && row.schedule.tenant == tenant);
    let Some(row) = of.filter(|row| principal.sees_of(&row.schedule.tenant, &row.schedule.queue)) else {
        return Ok(false);
    };
    Ok(app.engine.remove_schedule(tenant, row.schedule.name.as_str(), &principal.actor()).await?)
}

/// A token to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenBody {
    /// What it is for; what is done with it is recorded under this name.
    #[schema(min_length = 1, max_length = 64)]
    name: String,
    #[schema(min_items = 1)]
    scopes: BTreeSet<Scope>,
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    tenants: BTreeSet<Tenant>,
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    queues: BTreeSet<QueueName>,
    /// Worth nothing after so long, at most 366 days; for ever when it is left out.
    expires_in_ms: Option<u64>,
}

/// A token that was made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenMade {
    /// Shown this once.
    token: String,
    #[serde(flatten)]
    about: ApiToken,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Tokens {
    items: Vec<ApiToken>,
}

/// Makes a token. Its text is in this answer and nowhere else.
#[utoipa::path(
    post, path = "/v1/tokens", operation_id = "make_token", tag = "admin",
    request_body = TokenBody,
    responses(
        (status = 201, description = "Made", body = TokenMade),
        (status = 422, description = "Too many tokens", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["admin"])),
)]
pub(crate) async fn make_token(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    request: Request<Body>,
) -> Answer<Response> {
    principal.unlimited()?;
    let wish: TokenBody = body::json(request).await?;
    let wish = quell::TokenWish {
        name: wish.name,
        scopes: wish.scopes,
        tenants: wish.tenants,
        queues: wish.queues,
        expires_in: wish.expires_in_ms.map(Duration::from_millis),
    };
    let (token, about) = app.engine.make_token(wish, &principal.actor()).await?;
    app.tokens.forget();
    let mut response = json(&TokenMade { token, about: about.without_hash() });
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

/// All tokens, without what would help to guess them.
#[utoipa::path(
    get, path = "/v1/tokens", operation_id = "list_tokens", tag = "admin",
    responses((status = 200, description = "Tokens", body = Tokens)),
    security(("token" = ["admin"])),
)]
pub(crate) async fn list_tokens(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
) -> Answer<Response> {
    principal.unlimited()?;
    let items = app.engine.tokens().await?.into_iter().map(ApiToken::without_hash).collect();
    Ok(json(&Tokens { items }))
}

/// Takes a token away; other servers know it after two seconds at the latest.
#[utoipa::path(
    delete, path = "/v1/tokens/{id}", operation_id = "revoke_token", tag = "admin",
    params(("id" = String, Path)),
    responses(
        (status = 200, description = "Done", body = Done),
        (status = 404, description = "No such token", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["admin"])),
)]
pub(crate) async fn revoke_token(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Answer<Response> {
    principal.unlimited()?;
    let changed = app.engine.revoke_token(&id).await?;
    app.tokens.forget();
    if !changed {
        return Err(Problem::not_found("there is no token of this id"));
    }
    Ok(json(&Done::changed(true)))
}

/// A process that works on this store.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WorkerView {
    #[serde(flatten)]
    about: quell::Presence,
    seen_at: Timestamp,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Workers {
    items: Vec<WorkerView>,
}

/// Processes that work on this store, as they told of themselves within the last minute.
#[utoipa::path(
    get, path = "/v1/workers", operation_id = "list_workers", tag = "read",
    responses((status = 200, description = "Workers", body = Workers)),
    security(("token" = ["read"])),
)]
pub(crate) async fn workers(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
) -> Answer<Response> {
    let seen = app.engine.workers().await?.into_iter().filter(|(about, _)| principal.sees_worker(about));
    Ok(json(&Workers { items: seen.map(|(about, seen_at)| WorkerView { about, seen_at }).collect() }))
}
