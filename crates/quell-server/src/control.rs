//! The operator's hand over HTTP. Everything is recorded with the name of the token; actions that find things as they were
//! asked for answer `changed: false`.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::Request;
use quell::RedriveWish;
use quell::quell_core::batch::RunId;
use quell::quell_core::event::{EventId, Key, LaneKey, QueueName};
use quell::quell_core::inspect::{LaneFilter, RunFilter};
use quell::quell_core::lifecycle::RunState;
use quell::quell_core::store::{Controlled, Purge, PurgeWhat, QueueScope, RedriveTo};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::auth::Principal;
use crate::error::{Answer, Problem, ProblemDocument};
use crate::inspect::{EventQuery, Owner, key_prefix, visible_run};
use crate::{Path, Query, body, json, limits};

/// What was done.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Done {
    /// False when things already were as asked.
    changed: bool,
    /// Events that were moved, discarded or erased.
    events: u64,
    /// The run that was made or ended.
    run: Option<RunId>,
    /// There is more of it: call again.
    more: bool,
}

impl From<Controlled> for Done {
    fn from(done: Controlled) -> Self {
        Done { changed: done.changed, events: done.events, run: done.run, more: done.more }
    }
}

impl Done {
    pub(crate) fn changed(changed: bool) -> Self {
        Done::from(Controlled::changed(changed))
    }
}

fn done(controlled: Controlled) -> Answer<Response> {
    Ok(json(&Done::from(controlled)))
}

fn changed(changed: bool) -> Answer<Response> {
    done(Controlled::changed(changed))
}

/// What can be done to one lane, or to many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LaneAction {
    /// Hand it over now: close its window, or end its backoff.
    Flush,
    /// Stop handing it over; a running handler goes on.
    Pause,
    /// End a pause, or the wait for a failed run.
    Resume,
    /// End what it is doing, or is about to do.
    Cancel,
}

pub(crate) async fn act(app: &App, lane: LaneKey, action: LaneAction, actor: &str) -> Answer<Controlled> {
    let engine = &app.engine;
    Ok(match action {
        LaneAction::Flush => Controlled::changed(engine.flush(lane, actor).await?),
        LaneAction::Pause => Controlled::changed(engine.pause(lane, actor).await?),
        LaneAction::Resume => Controlled::changed(engine.resume(lane, actor).await?),
        LaneAction::Cancel => engine.cancel(lane, None, actor).await?,
    })
}

/// Flushes, pauses, resumes or cancels one lane.
#[utoipa::path(
    post, path = "/v1/lanes/{queue}/{key}/{action}", operation_id = "act_on_lane", tag = "operate",
    params(("queue" = QueueName, Path), ("key" = Key, Path), ("action" = LaneAction, Path), Owner),
    responses(
        (status = 200, description = "Done", body = Done),
        (status = 404, description = "No such lane or action", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["operate"])),
)]
pub(crate) async fn act_on_lane(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path((queue, key, action)): Path<(String, String, String)>,
    Query(owner): Query<Owner>,
) -> Answer<Response> {
    let action = lane_action(&action)?;
    let lane = principal.lane(owner.tenant.as_deref(), &queue, &key)?;
    done(act(&app, lane, action, &principal.actor()).await?)
}

pub(crate) fn lane_action(text: &str) -> Answer<LaneAction> {
    match text {
        "flush" => Ok(LaneAction::Flush),
        "pause" => Ok(LaneAction::Pause),
        "resume" => Ok(LaneAction::Resume),
        "cancel" => Ok(LaneAction::Cancel),
        other => Err(Problem::not_found(format!("{other:?} is none of flush, pause, resume, cancel"))),
    }
}

/// Which lanes, and whether to touch them.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BulkLanes {
    queue: String,
    tenant: Option<String>,
    /// Only keys that start with this.
    key_prefix: Option<String>,
    /// Only count and show them.
    #[serde(default)]
    dry_run: bool,
    /// Go on behind an earlier answer: its `next`.
    cursor: Option<String>,
}

/// What a bulk action met.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BulkDone {
    /// How many it met.
    matched: usize,
    /// How many it changed; 0 in a dry run.
    changed: usize,
    events: u64,
    dry_run: bool,
    /// The first of them, up to 20.
    items: Vec<String>,
    /// Those that refused, with the reason, up to 20.
    problems: Vec<String>,
    /// There may be more: call again with this as `cursor`.
    next: Option<String>,
}

impl BulkDone {
    const SHOWN: usize = 20;

    fn new(dry_run: bool, next: Option<String>) -> Self {
        BulkDone { matched: 0, changed: 0, events: 0, dry_run, items: Vec::new(), problems: Vec::new(), next }
    }

    fn met(&mut self, what: impl ToString) {
        self.matched += 1;
        if self.items.len() < Self::SHOWN {
            self.items.push(what.to_string());
        }
    }

    /// A store that is away ends the whole; anything else concerns this one.
    fn took(&mut self, what: impl ToString, answer: Answer<Controlled>) -> Answer<()> {
        match answer {
            Ok(controlled) => {
                self.changed += usize::from(controlled.changed);
                self.events += controlled.events;
                Ok(())
            }
            Err(problem) if problem.ends_bulk() => Err(problem),
            Err(problem) => {
                if self.problems.len() < Self::SHOWN {
                    self.problems.push(format!("{}: {}", what.to_string(), problem.detail()));
                }
                Ok(())
            }
        }
    }
}

/// Flushes, pauses, resumes or cancels every lane of a queue that a filter meets, up to 1,000 at a time.
#[utoipa::path(
    post, path = "/v1/lanes/{action}", operation_id = "act_on_lanes", tag = "operate",
    params(("action" = LaneAction, Path)),
    request_body = BulkLanes,
    responses(
        (status = 200, description = "Done, or what would be done", body = BulkDone),
        (status = 404, description = "No such action", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["operate"])),
)]
pub(crate) async fn act_on_lanes(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(action): Path<String>,
    request: Request<Body>,
) -> Answer<Response> {
    let action = lane_action(&action)?;
    let wish: BulkLanes = body::json(request).await?;
    let queue = QueueName::new(&wish.queue)?;
    principal.queue(&queue)?;
    let filter = LaneFilter {
        tenant: principal.tenant_filter(wish.tenant.as_deref())?,
        queue: Some(queue),
        key_prefix: key_prefix(wish.key_prefix)?,
        running: false,
        // A paused lane without events is idle, and can be resumed.
        idle: action == LaneAction::Resume,
        cursor: wish.cursor,
        limit: limits::BULK_MAX,
    };
    let page = app.engine.lanes(filter).await?;
    let mut bulk = BulkDone::new(wish.dry_run, page.next);
    let actor = principal.actor();
    for row in page.items {
        bulk.met(&row.lane);
        if !wish.dry_run {
            let answer = act(&app, row.lane.clone(), action, &actor).await;
            bulk.took(&row.lane, answer)?;
        }
    }
    Ok(json(&bulk))
}

/// Deletes everything of a key for good: payloads, the key's text, steps, dead letters, ids. Cancels first.
#[utoipa::path(
    delete, path = "/v1/lanes/{queue}/{key}", operation_id = "erase_lane", tag = "admin",
    params(("queue" = QueueName, Path), ("key" = Key, Path), Owner),
    responses(
        (status = 200, description = "Erased", body = Done),
        (status = 404, description = "No such lane", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["admin"])),
)]
pub(crate) async fn erase_lane(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path((queue, key)): Path<(String, String)>,
    Query(owner): Query<Owner>,
) -> Answer<Response> {
    let lane = principal.lane(owner.tenant.as_deref(), &queue, &key)?;
    done(app.engine.erase_lane(lane, &principal.actor()).await?)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code, reason = "the shape of a path for the document; the text is matched where it is read")]
pub(crate) enum QueueAction {
    Pause,
    Resume,
}

/// Pauses or resumes a queue, of one tenant or (by an unlimited token, without `tenant`) of all.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/{action}", operation_id = "act_on_queue", tag = "operate",
    params(("queue" = QueueName, Path), ("action" = QueueAction, Path), Owner),
    responses(
        (status = 200, description = "Done", body = Done),
        (status = 404, description = "No such queue or action", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["operate"])),
)]
pub(crate) async fn act_on_queue(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path((queue, action)): Path<(String, String)>,
    Query(owner): Query<Owner>,
) -> Answer<Response> {
    let queue = QueueName::new(queue)?;
    principal.queue(&queue)?;
    app.engine.queue(&queue)?;
    let scope = QueueScope { queue, tenant: principal.tenant_filter(owner.tenant.as_deref())? };
    let actor = principal.actor();
    match action.as_str() {
        "pause" => changed(app.engine.pause_queue(scope, &actor).await?),
        "resume" => changed(app.engine.resume_queue(scope, &actor).await?),
        other => Err(Problem::not_found(format!("{other:?} is neither pause nor resume"))),
    }
}

/// Ends a run that has not ended. A running handler is told to stop.
#[utoipa::path(
    post, path = "/v1/runs/{run_id}/cancel", operation_id = "cancel_run", tag = "operate",
    params(("run_id" = RunId, Path)),
    responses(
        (status = 200, description = "Done", body = Done),
        (status = 404, description = "No such run", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["operate"])),
)]
pub(crate) async fn cancel_run(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(run): Path<String>,
) -> Answer<Response> {
    let id: RunId = run.parse()?;
    let lane = visible_run(&app, &principal, id).await?.row.lane;
    done(app.engine.cancel(lane, Some(id), &principal.actor()).await?)
}

/// How failed or cancelled runs go back.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RedriveBody {
    /// Only these events; all of the run when it is left out.
    #[serde(default)]
    events: Vec<String>,
    /// With new numbers at the end of the lane, in place of its head.
    #[serde(default)]
    as_new: bool,
    /// Forget what the steps of the old run remembered.
    #[serde(default)]
    fresh: bool,
}

impl RedriveBody {
    fn wish(&self) -> Answer<RedriveWish> {
        let events = self.events.iter().map(EventId::new).collect::<Result<Vec<_>, _>>()?;
        let to = if self.as_new { RedriveTo::New } else { RedriveTo::Head };
        Ok(RedriveWish { events, edits: Vec::new(), to, fresh: self.fresh })
    }
}

/// Puts the events of a failed or cancelled run back to work, with a fresh budget of attempts.
#[utoipa::path(
    post, path = "/v1/runs/{run_id}/redrive", operation_id = "redrive_run", tag = "operate",
    params(("run_id" = RunId, Path)),
    request_body(content = Option<RedriveBody>, content_type = "application/json"),
    responses(
        (status = 200, description = "Done", body = Done),
        (status = 404, description = "No such run", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "Too large, or too many wait already", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["operate"])),
)]
pub(crate) async fn redrive_run(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(run): Path<String>,
    request: Request<Body>,
) -> Answer<Response> {
    let wish: RedriveBody = body::json_or_default(request).await?;
    let id: RunId = run.parse()?;
    visible_run(&app, &principal, id).await?;
    done(app.engine.redrive(id, wish.wish()?, &principal.actor()).await?)
}

/// Which ended runs go back, and how.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BulkRedrive {
    queue: String,
    tenant: Option<String>,
    key: Option<String>,
    /// Only runs whose error contains this.
    error_contains: Option<String>,
    /// Cancelled runs in place of failed ones.
    #[serde(default)]
    cancelled: bool,
    #[serde(default)]
    as_new: bool,
    #[serde(default)]
    fresh: bool,
    #[serde(default)]
    dry_run: bool,
    cursor: Option<String>,
}

/// Puts every failed run of a queue that a filter meets back to work, up to 1,000 at a time, oldest last.
#[utoipa::path(
    post, path = "/v1/dead/redrive", operation_id = "redrive_dead", tag = "operate",
    request_body = BulkRedrive,
    responses(
        (status = 200, description = "Done, or what would be done", body = BulkDone),
    ),
    security(("token" = ["operate"])),
)]
pub(crate) async fn redrive_dead(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    request: Request<Body>,
) -> Answer<Response> {
    let wish: BulkRedrive = body::json(request).await?;
    let queue = QueueName::new(&wish.queue)?;
    principal.queue(&queue)?;
    let filter = RunFilter {
        tenant: principal.tenant_filter(wish.tenant.as_deref())?,
        queue: Some(queue),
        key: wish.key.as_deref().map(Key::new).transpose()?,
        state: Some(if wish.cancelled { RunState::Cancelled } else { RunState::Failed }),
        cursor: wish.cursor,
        limit: limits::BULK_MAX,
    };
    let page = app.engine.runs(filter).await?;
    let mut bulk = BulkDone::new(wish.dry_run, page.next);
    let how = RedriveBody { events: Vec::new(), as_new: wish.as_new, fresh: wish.fresh }.wish()?;
    let actor = principal.actor();
    for row in page.items {
        let gone_back = row.links.redriven_into.is_some();
        let wanted = |text: &String| row.error.as_ref().is_some_and(|error| error.contains(text));
        if gone_back || !wish.error_contains.as_ref().is_none_or(wanted) {
            continue;
        }
        bulk.met(row.id);
        if !wish.dry_run {
            let answer = app.engine.redrive(row.id, how.clone(), &actor).await;
            bulk.took(row.id, answer.map_err(Problem::from))?;
        }
    }
    Ok(json(&bulk))
}

/// What to throw away.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct PurgeQuery {
    queue: String,
    tenant: Option<String>,
    key: Option<String>,
    /// Only count.
    #[serde(default)]
    dry_run: bool,
}

async fn purge(app: &App, principal: &Principal, query: PurgeQuery, what: PurgeWhat) -> Answer<Response> {
    let queue = QueueName::new(&query.queue)?;
    principal.queue(&queue)?;
    let tenant = principal.tenant_filter(query.tenant.as_deref())?;
    let key = query.key.as_deref().map(Key::new).transpose()?;
    let purge = Purge { queue, tenant, key, what, dry_run: query.dry_run };
    done(app.engine.purge(purge, &principal.actor()).await?)
}

/// Throws dead letters away, up to 1,000 runs at a time.
#[utoipa::path(
    delete, path = "/v1/dead", operation_id = "purge_dead", tag = "operate", params(PurgeQuery),
    responses(
        (status = 200, description = "Done, or what would be done", body = Done),
    ),
    security(("token" = ["operate"])),
)]
pub(crate) async fn purge_dead(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<PurgeQuery>,
) -> Answer<Response> {
    purge(&app, &principal, query, PurgeWhat::Dead).await
}

/// Throws delayed events away, up to 1,000 at a time.
#[utoipa::path(
    delete, path = "/v1/delayed", operation_id = "purge_delayed", tag = "operate", params(PurgeQuery),
    responses(
        (status = 200, description = "Done, or what would be done", body = Done),
    ),
    security(("token" = ["operate"])),
)]
pub(crate) async fn purge_delayed(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<PurgeQuery>,
) -> Answer<Response> {
    purge(&app, &principal, query, PurgeWhat::Delayed).await
}

/// Throws buffered events away, never those of a run that has begun, up to 1,000 at a time.
#[utoipa::path(
    delete, path = "/v1/buffered", operation_id = "purge_buffered", tag = "operate", params(PurgeQuery),
    responses(
        (status = 200, description = "Done, or what would be done", body = Done),
    ),
    security(("token" = ["operate"])),
)]
pub(crate) async fn purge_buffered(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<PurgeQuery>,
) -> Answer<Response> {
    purge(&app, &principal, query, PurgeWhat::Buffered).await
}

/// A new payload.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditBody<'a> {
    #[serde(borrow)]
    #[schema(value_type = quell::quell_core::event::Payload)]
    payload: &'a RawValue,
}

/// Changes the payload of one buffered event.
#[utoipa::path(
    put, path = "/v1/events/{event_id}", operation_id = "edit_event", tag = "operate",
    params(("event_id" = EventId, Path), EventQuery),
    request_body(content = EditBody<'static>, content_type = "application/json"),
    responses(
        (status = 200, description = "Done", body = Done),
        (status = 404, description = "It is not buffered (any more)", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "Too large", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "Larger than its queue allows", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["operate"])),
)]
pub(crate) async fn edit_event(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    Query(of): Query<EventQuery>,
    request: Request<Body>,
) -> Answer<Response> {
    if !body::is_json(&body::media_type(request.headers())?) {
        return Err(Problem::unsupported("send the body as application/json"));
    }
    let bytes = body::read(request, limits::BODY_BYTES).await?;
    let wish: EditBody<'_> = body::parse(&bytes)?;
    let payload = crate::append::payload(wish.payload)?;
    let lane = principal.lane(of.tenant.as_deref(), &of.queue, &of.key)?;
    let most = app.engine.queue(&lane.queue)?.append.payload_bytes;
    if payload.len() > most {
        return Err(Problem::too_large(format!("a payload of this queue has at most {most} bytes")));
    }
    done(app.engine.edit_event(lane, EventId::new(id)?, payload, &principal.actor()).await?)
}

/// Takes one buffered event out of its lane; it is discarded.
#[utoipa::path(
    delete, path = "/v1/events/{event_id}", operation_id = "delete_event", tag = "operate",
    params(("event_id" = EventId, Path), EventQuery),
    responses(
        (status = 200, description = "Done", body = Done),
        (status = 404, description = "It is not buffered (any more)", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["operate"])),
)]
pub(crate) async fn delete_event(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    Query(of): Query<EventQuery>,
) -> Answer<Response> {
    let lane = principal.lane(of.tenant.as_deref(), &of.queue, &of.key)?;
    done(app.engine.delete_event(lane, EventId::new(id)?, &principal.actor()).await?)
}
