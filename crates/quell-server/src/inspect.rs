//! Reading: lanes with the reason they wait, runs, events, the audit trail, dead letters, totals, sources, schedules,
//! workers.
//!
//! Listings are pages by cursor and read a bounded number of rows. What belongs to a tenant or queue that the credential
//! may not see is 404, as if it were not there.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use quell::clock::{self, Stopwatch};
use quell::quell_core::audit::AuditRecord;
use quell::quell_core::batch::RunId;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::{EventId, Key, Payload, QueueName, SourceName, Tenant};
use quell::quell_core::inspect::{
    AuditFilter, EventPlace, LaneDetail, LaneFilter, LaneRow, Page, QueueStats, RunDetail, RunFilter, RunRow,
    SourceFilter, SourceRow,
};
use quell::quell_core::lifecycle::RunState;
use quell::quell_core::limits as core_limits;
use quell::quell_core::schedule::ScheduleRow;
use quell::quell_core::source::{Breaker, Standing};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::auth::Principal;
use crate::error::{Answer, Problem, ProblemDocument};
use crate::{Path, Query, json, limits};

/// Which page of a listing.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct LanesQuery {
    pub(crate) tenant: Option<String>,
    pub(crate) queue: Option<String>,
    /// Only keys that start with this.
    pub(crate) key_prefix: Option<String>,
    /// Only those that a worker holds.
    #[serde(default)]
    pub(crate) running: bool,
    /// Also those that have nothing to do.
    #[serde(default)]
    pub(crate) idle: bool,
    /// Go on behind an earlier page: its `next`.
    pub(crate) cursor: Option<String>,
    /// Rows at the most, 20 unless it is said.
    #[param(minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<usize>,
}

pub(crate) fn limit(asked: Option<usize>) -> Answer<usize> {
    match asked {
        None => Ok(core_limits::PAGE_DEFAULT),
        Some(n) if (1..=core_limits::PAGE_MAX).contains(&n) => Ok(n),
        Some(_) => {
            let most = core_limits::PAGE_MAX;
            Err(Problem::bad_request(format!("limit is between 1 and {most}")).at("limit"))
        }
    }
}

/// No key holds a NUL, and not every store can be asked for one.
pub(crate) fn key_prefix(asked: Option<String>) -> Answer<Option<String>> {
    match asked {
        Some(text) if text.contains('\0') => {
            Err(Problem::bad_request("no key contains a NUL character").at("key_prefix"))
        }
        asked => Ok(asked),
    }
}

impl LanesQuery {
    pub(crate) fn filter(&self, principal: &Principal) -> Answer<LaneFilter> {
        Ok(LaneFilter {
            tenant: principal.tenant_filter(self.tenant.as_deref())?,
            queue: principal.queue_filter(self.queue.as_deref())?,
            key_prefix: key_prefix(self.key_prefix.clone())?,
            running: self.running,
            idle: self.idle,
            cursor: self.cursor.clone(),
            limit: limit(self.limit)?,
        })
    }
}

/// Keys that have something to do, each with the reason it waits.
#[utoipa::path(
    get, path = "/v1/lanes", operation_id = "list_lanes", tag = "read", params(LanesQuery),
    responses(
        (status = 200, description = "A page of lanes", body = Page<LaneRow>),
    ),
    security(("token" = ["read"])),
)]
pub(crate) async fn lanes(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<LanesQuery>,
) -> Answer<Response> {
    Ok(json(&app.engine.lanes(query.filter(&principal)?).await?))
}

/// Whose lane.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Owner {
    #[param(max_length = 128)]
    pub(crate) tenant: Option<String>,
}

/// Why is this key waiting?
///
/// The reasons one by one and in one sentence, with the first buffered events.
#[utoipa::path(
    get, path = "/v1/lanes/{queue}/{key}", operation_id = "get_lane", tag = "read",
    params(("queue" = QueueName, Path), ("key" = Key, Path), Owner),
    responses(
        (status = 200, description = "The lane", body = LaneDetail),
        (status = 404, description = "Nothing is known of this key", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["read"])),
)]
pub(crate) async fn lane(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path((queue, key)): Path<(String, String)>,
    Query(owner): Query<Owner>,
) -> Answer<Response> {
    let lane = principal.lane(owner.tenant.as_deref(), &queue, &key)?;
    let found = app.engine.lane(lane.clone()).await?;
    Ok(json(&found.ok_or_else(|| Problem::not_found(format!("nothing is known of {lane}")))?))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunsQuery {
    pub(crate) tenant: Option<String>,
    pub(crate) queue: Option<String>,
    pub(crate) key: Option<String>,
    #[param(inline)]
    pub(crate) state: Option<RunState>,
    pub(crate) cursor: Option<String>,
    #[param(minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<usize>,
}

impl RunsQuery {
    pub(crate) fn filter(&self, principal: &Principal) -> Answer<RunFilter> {
        Ok(RunFilter {
            tenant: principal.tenant_filter(self.tenant.as_deref())?,
            queue: principal.queue_filter(self.queue.as_deref())?,
            key: self.key.as_deref().map(Key::new).transpose()?,
            state: self.state,
            cursor: self.cursor.clone(),
            limit: limit(self.limit)?,
        })
    }
}

/// Runs, newest first.
#[utoipa::path(
    get, path = "/v1/runs", operation_id = "list_runs", tag = "read", params(RunsQuery),
    responses(
        (status = 200, description = "A page of runs", body = Page<RunRow>),
    ),
    security(("token" = ["read"])),
)]
pub(crate) async fn runs(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<RunsQuery>,
) -> Answer<Response> {
    Ok(json(&app.engine.runs(query.filter(&principal)?).await?))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeadQuery {
    pub(crate) tenant: Option<String>,
    pub(crate) queue: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) cursor: Option<String>,
    #[param(minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<usize>,
}

/// Failed runs with their errors, newest first: the dead letters.
#[utoipa::path(
    get, path = "/v1/dead", operation_id = "list_dead", tag = "read", params(DeadQuery),
    responses(
        (status = 200, description = "A page of failed runs", body = Page<RunRow>),
    ),
    security(("token" = ["read"])),
)]
pub(crate) async fn dead(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<DeadQuery>,
) -> Answer<Response> {
    let DeadQuery { tenant, queue, key, cursor, limit } = query;
    let query = RunsQuery { tenant, queue, key, state: Some(RunState::Failed), cursor, limit };
    Ok(json(&app.engine.runs(query.filter(&principal)?).await?))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitQuery {
    /// Wait until it has ended, at most so long (55 s at the most).
    #[serde(default)]
    pub(crate) wait_ms: u64,
}

/// One run with its events, steps and history; with `wait_ms`, when it has ended.
#[utoipa::path(
    get, path = "/v1/runs/{run_id}", operation_id = "get_run", tag = "read",
    params(("run_id" = RunId, Path), WaitQuery),
    responses(
        (status = 200, description = "The run as it is now: its `state` says whether it has ended", body = RunDetail),
        (status = 404, description = "No such run", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["read"])),
)]
pub(crate) async fn run(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(run): Path<String>,
    Query(wait): Query<WaitQuery>,
) -> Answer<Response> {
    let id: RunId = run.parse()?;
    let wait = Duration::from_millis(wait.wait_ms).min(limits::WAIT_MAX);
    let started = Stopwatch::start();
    let mut wakeups = (!wait.is_zero()).then(|| app.engine.store().wakeups());
    let mut pause = Duration::from_millis(5);
    loop {
        let found = visible_run(&app, &principal, id).await?;
        let left = started.left(wait);
        let Some(wakeups) = wakeups.as_mut().filter(|_| !found.row.state.is_final() && !left.is_zero())
        else {
            return Ok(json(&found));
        };
        clock::sleep(Duration::from_millis(5).min(left)).await;
        tokio::select! {
            () = wakeups.woken() => {}
            () = clock::sleep(pause.min(left)) => {}
            () = app.stop.cancelled() => return Ok(json(&found)),
        }
        pause = (pause * 2).min(Duration::from_millis(250));
    }
}

/// A run that the caller may see.
pub(crate) async fn visible_run(app: &App, principal: &Principal, id: RunId) -> Answer<RunDetail> {
    let found = app.engine.run(id).await?.filter(|run| principal.sees(&run.row.lane));
    found.ok_or_else(|| Problem::not_found(format!("{id} does not exist")))
}

/// Which lane an event's id belongs to: ids are unique within one.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventQuery {
    pub(crate) queue: String,
    pub(crate) key: String,
    pub(crate) tenant: Option<String>,
}

/// Where an event is now: the truth about it, whatever happened to its runs.
#[utoipa::path(
    get, path = "/v1/events/{event_id}", operation_id = "get_event", tag = "read",
    params(("event_id" = EventId, Path), EventQuery),
    responses(
        (status = 200, description = "The event, the run it belongs to and that run's state", body = EventPlace),
        (status = 404, description = "No such event", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["read"])),
)]
pub(crate) async fn event(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    Query(of): Query<EventQuery>,
) -> Answer<Response> {
    let lane = principal.lane(of.tenant.as_deref(), &of.queue, &of.key)?;
    let id = EventId::new(id)?;
    let found = app.engine.event(lane.clone(), id.clone()).await?;
    Ok(json(&found.ok_or_else(|| Problem::not_found(format!("there is no event {id} of {lane}")))?))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditQuery {
    pub(crate) tenant: Option<String>,
    pub(crate) queue: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) run: Option<String>,
    pub(crate) cursor: Option<String>,
    #[param(minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<usize>,
}

/// Who changed what, newest first.
#[utoipa::path(
    get, path = "/v1/audit", operation_id = "list_audit", tag = "read", params(AuditQuery),
    responses(
        (status = 200, description = "A page of the trail", body = Page<AuditRecord>),
    ),
    security(("token" = ["read"])),
)]
pub(crate) async fn audit(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<AuditQuery>,
) -> Answer<Response> {
    let filter = AuditFilter {
        tenant: principal.tenant_filter(query.tenant.as_deref())?,
        queue: principal.queue_filter(query.queue.as_deref())?,
        key: query.key.as_deref().map(Key::new).transpose()?,
        run: query.run.as_deref().map(str::parse).transpose()?,
        cursor: query.cursor,
        limit: limit(query.limit)?,
    };
    Ok(json(&app.engine.audit(filter).await?))
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Stats {
    queues: Vec<QueueStats>,
}

/// Totals per tenant and queue. `accepted = succeeded + dead + discarded + delayed + buffered + in_flight`, always.
#[utoipa::path(
    get, path = "/v1/stats", operation_id = "stats", tag = "read",
    responses((status = 200, description = "Totals", body = Stats)),
    security(("token" = ["read"])),
)]
pub(crate) async fn stats(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
) -> Answer<Response> {
    let mut queues = app.engine.stats().await?;
    queues.retain(|stats| principal.sees_of(&stats.tenant, &stats.queue));
    Ok(json(&Stats { queues }))
}

/// A source with its rules and its state.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SourceView {
    pub(crate) name: SourceName,
    /// Empty for a shared one, and for those who have no tenant.
    tenant: Tenant,
    enabled: bool,
    standing: Standing,
    breaker: Breaker,
    failure_streak: u32,
    last_success_at: Option<Timestamp>,
    last_failure_at: Option<Timestamp>,
    paused_until: Option<Timestamp>,
    /// The source asked for silence until then.
    not_before: Option<Timestamp>,
    /// The run that tries whether it works again.
    probe: Option<RunId>,
    /// Whole tokens in the bucket; missing when there is no limit.
    tokens: Option<u64>,
    /// Lanes whose next batch asks it and that no worker holds.
    waiting: u64,
    /// Answers that are kept.
    cached: u64,
    changed_by: Option<String>,
    rate_limit_per_minute: Option<u32>,
    burst: u32,
    failures: u32,
    cooldown_ms: u64,
    cache_ttl_ms: Option<u64>,
    pub(crate) shared: bool,
}

impl From<SourceRow> for SourceView {
    fn from(row: SourceRow) -> Self {
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        SourceView {
            name: row.name,
            tenant: row.tenant,
            enabled: row.enabled,
            standing: row.standing,
            breaker: row.breaker,
            failure_streak: row.failure_streak,
            last_success_at: row.last_success_at,
            last_failure_at: row.last_failure_at,
            paused_until: row.paused_until,
            not_before: row.not_before,
            probe: row.probe,
            tokens: row.tokens,
            waiting: row.waiting,
            cached: row.cached,
            changed_by: row.changed_by,
            rate_limit_per_minute: row.rules.per_minute,
            burst: row.rules.burst,
            failures: row.rules.failures,
            cooldown_ms: ms(row.rules.cooldown),
            cache_ttl_ms: row.rules.cache_ttl.map(ms),
            shared: row.rules.shared,
        }
    }
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct SourcesQuery {
    pub(crate) tenant: Option<String>,
    pub(crate) cursor: Option<String>,
    #[param(minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<usize>,
}

/// Outside parties with limits, by name.
#[utoipa::path(
    get, path = "/v1/sources", operation_id = "list_sources", tag = "sources", params(SourcesQuery),
    responses(
        (status = 200, description = "A page of sources", body = Page<SourceView>),
    ),
    security(("token" = ["read"])),
)]
pub(crate) async fn sources(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<SourcesQuery>,
) -> Answer<Response> {
    let tenant = principal.tenant_filter(query.tenant.as_deref())?;
    let filter = SourceFilter { tenant, name: None, cursor: query.cursor, limit: limit(query.limit)? };
    let page = app.engine.sources(filter).await?;
    let items: Vec<SourceView> = page.items.into_iter().map(SourceView::from).collect();
    Ok(json(&Page { items, next: page.next }))
}

/// One source.
#[utoipa::path(
    get, path = "/v1/sources/{name}", operation_id = "get_source", tag = "sources",
    params(("name" = SourceName, Path), Owner),
    responses(
        (status = 200, description = "The source", body = SourceView),
        (status = 404, description = "No such source", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["read"])),
)]
pub(crate) async fn source(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
    Query(owner): Query<Owner>,
) -> Answer<Response> {
    let tenant = principal.tenant(owner.tenant.as_deref())?;
    Ok(json(&find_source(&app, SourceName::new(name)?, tenant).await?))
}

pub(crate) async fn find_source(app: &App, name: SourceName, tenant: Tenant) -> Answer<SourceView> {
    let filter = SourceFilter { tenant: Some(tenant), name: Some(name.clone()), cursor: None, limit: 1 };
    let found = app.engine.sources(filter).await?.items.pop();
    found.map(SourceView::from).ok_or_else(|| Problem::not_found(format!("there is no source {name}")))
}

/// A schedule with its place in time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ScheduleView {
    name: String,
    tenant: Tenant,
    cron: String,
    zone: String,
    queue: QueueName,
    key: Key,
    payload: Payload,
    last_fire: Timestamp,
    next_at: Option<Timestamp>,
}

impl From<ScheduleRow> for ScheduleView {
    fn from(row: ScheduleRow) -> Self {
        let ScheduleRow { schedule, last_fire, next_at } = row;
        ScheduleView {
            name: schedule.name.as_str().to_owned(),
            tenant: schedule.tenant,
            cron: schedule.cron.to_string(),
            zone: schedule.zone.to_string(),
            queue: schedule.queue,
            key: schedule.key,
            payload: schedule.payload,
            last_fire,
            next_at,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Schedules {
    items: Vec<ScheduleView>,
}

/// What comes by the calendar, with its next fire.
#[utoipa::path(
    get, path = "/v1/schedules", operation_id = "list_schedules", tag = "schedules",
    responses((status = 200, description = "All schedules", body = Schedules)),
    security(("token" = ["read"])),
)]
pub(crate) async fn schedules(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
) -> Answer<Response> {
    let rows = app.engine.schedules().await?.into_iter();
    let seen = rows.filter(|row| principal.sees_of(&row.schedule.tenant, &row.schedule.queue));
    Ok(json(&Schedules { items: seen.map(ScheduleView::from).collect() }))
}
